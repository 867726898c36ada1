"""Saved agents: one archive of arrays and a JSON header, data and no code.

A file holds the structure, the learner by name (or module:Class) with its settings, the planner
with its settings and its warm state, the statistics, the learner's memory, the decision under way
with its policy (a policy file inside) and the state of the generator: all that the next step
depends on. An agent that is loaded goes on exactly as if nothing had happened, to the last bit.
Writing is atomic; reading runs nothing that is in a file, and imports no module that it names: the
class of a learner of one's own has to be there, imported or registered.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.follow import Follow
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, Structure
from fmdp.model.files import dumps, loads, path_of, write_atomically
from fmdp.planning.plan import Planner
from fmdp.planning.policy import Rule, policy_bytes, policy_from_bytes
from fmdp.planning.registry import PLANNERS

FORMAT = "fmdp-learner"
VERSION = 2
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_COUNTERS = ("steps", "episodes", "planner_calls", "unconverged_plans")
_COUNTS = ("cells", "visits", "reward_sums")
_IN_THIS_FILE = "(in this file)"


def save_agent(agent: Agent, path: str | os.PathLike[str]) -> None:
    """Write the agent, whole or not at all."""
    path_of(path, "a learner file")
    learner = agent.learner
    values, arrays = state_of(agent)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "learner": LEARNERS.place(type(learner)),
        "settings": _settings_header(learner, agent.structure),
        "learner_planner": _planner_header(getattr(learner, "planner", None)),
        "planner": _planner_header(agent.planner),
        "generator": None if agent.generator is None else _plain(_generator_state(agent)),
        "state": values,
    }
    if agent.model is not None:
        header["model"] = dumps(agent.model)
    else:
        header["structure"] = {
            field.name: getattr(agent.structure, field.name) for field in fields(Structure)
        }
    policy = getattr(agent.decision, "policy", None)
    if isinstance(learner, Follow):
        policy = learner.found(agent.structure)
    # A rule is code and no data; who follows one has said where it lives.
    if policy is not None and not (isinstance(learner, Follow) and isinstance(policy, Rule)):
        arrays["policy"] = np.frombuffer(policy_bytes(policy), dtype=np.uint8)
    try:
        text = json.dumps(header)
        if json.loads(text)["state"]["memory"] != values["memory"]:
            raise TypeError("keys that are no texts, or tuples")
    except TypeError as error:
        raise InvalidParameter(
            f"{learner.owner()} has something in its memory that cannot be saved: {error}; "
            f"numbers, texts, lists, dictionaries with texts as keys, and arrays can"
        ) from None
    stream = io.BytesIO()
    np.savez_compressed(stream, header=np.array(text), **arrays)  # type: ignore[arg-type]
    write_atomically(path, stream.getvalue())


def state_of(agent: Agent) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Plain values and arrays: with the learner, the generator and the policy of the decision under
    way all that an agent is."""
    decision = agent.decision
    values: dict[str, Any] = {name: getattr(agent, name) for name in _COUNTERS}
    values |= {"taken": agent._taken, "over": agent._over, "reason": agent.planner_reason}
    values["length"] = None if decision is None else decision.steps
    values["drawn"] = None if agent._drawn is None else agent._drawn.tolist()
    arrays: dict[str, NDArray[Any]] = {
        f"counts.{name}": getattr(agent.statistics.counts, name) for name in _COUNTS
    }
    if decision is not None:
        arrays["limits"] = decision.limits
    values["memory"] = {}
    for name, value in agent.memory.items():
        if isinstance(value, np.ndarray):
            arrays[f"memory.{name}"] = value
        else:
            values["memory"][name] = value
    if agent._prepared is not None:
        for name, array in agent._prepared.warm_state().items():
            arrays[f"warm.{name}"] = array
    return values, arrays


def load_agent(path: str | os.PathLike[str]) -> Agent:
    """The agent as it was when it was saved.

    Parameters
    ----------
    path
        A file that `agent.save` or `fmdp learn --out` wrote. The class of a learner of one's own
        must have been imported or registered before: a file does not import code.

    Returns
    -------
    Agent
        It goes on exactly as if nothing had happened, to the last bit.

    Raises
    ------
    FileProblem
        Where there is no such file, or it is no learner file, or its learner is not known.
    """
    path_of(path, "a learner file")
    label = os.fspath(path)
    header, arrays = _read(path)
    try:
        return _agent(header, arrays, label)
    except FmdpError as error:
        raise FileProblem(f"{label} is not a usable learner file: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileProblem(f"{label} lacks a part of its learner: {error}") from None


def _agent(header: dict[str, Any], arrays: dict[str, NDArray[Any]], label: str) -> Agent:
    kind = LEARNERS.find(str(header["learner"]), importing=False)
    others = {}
    if header["learner_planner"] is not None:
        others["planner"] = _planner(header["learner_planner"])
    settings = dict(header["settings"])
    if issubclass(kind, Follow) and settings["policy"] == _IN_THIS_FILE:
        settings["policy"] = policy_from_bytes(arrays["policy"].tobytes())
    learner = kind.make(settings, **others)
    if isinstance(learner, Follow):
        learner.refuse_to_import()
    told: Structure | FactoredMDP
    if kind.knows_model:
        told = loads(header["model"], label)
    else:
        told = Structure(**{name: _tuples(v) for name, v in header["structure"].items()})
    # As every learner starts: a baseline's own start would look for a policy or a rule by the name
    # that the file has for it, and the policy is in the file.
    agent = Learner.start(learner, told, _generator(header["generator"]))
    if header["planner"] is not None:
        agent.planner = _planner(header["planner"])
    _restore(agent, header["state"], arrays)
    return agent


def _restore(agent: Agent, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    for name in _COUNTERS:
        setattr(agent, name, int(values[name]))
    agent.planner_reason = values["reason"]
    for name in _COUNTS:
        held: NDArray[Any] = getattr(agent.statistics.counts, name)
        held[:] = arrays[f"counts.{name}"]
    agent.memory = dict(values["memory"])
    warm = {}
    for name, array in arrays.items():
        head, _, rest = name.partition(".")
        if head == "memory":
            agent.memory[rest] = array
        elif head == "warm":
            warm[rest] = array
    if values["length"] is not None:
        if "policy" not in arrays and isinstance(agent.learner, Follow):
            policy = agent.learner.found(agent.structure)
        else:
            policy = policy_from_bytes(arrays["policy"].tobytes(), agent.structure)
        limits = arrays["limits"].astype(np.int64)
        decision = Decision(policy, int(values["length"]), limits)
        agent._begin(decision, int(values["taken"]), bool(values["over"]))
    if values["drawn"] is not None:
        agent._drawn = np.array(values["drawn"], dtype=np.int64)
    if agent.planner is not None and (warm or agent.planner_calls):
        agent.prepared.restore_warm_state(warm)


def _read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    label = os.fspath(path)
    try:
        # From memory: NumPy leaves a broken file open.
        with np.load(io.BytesIO(Path(path).read_bytes()), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("header")))
    except FileNotFoundError:
        raise FileProblem(f"{label}: no such file; must be a learner file") from None
    except (OSError, ValueError, KeyError, EOFError, TypeError, zipfile.BadZipFile):
        raise FileProblem(f"{label} is not a learner file (or is cut short)") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileProblem(f"{label} is not a learner file: its format is not {FORMAT}")
    if header.get("version") != VERSION:
        raise FileProblem(
            f"{label} has learner version {header.get('version')}; this fmdp reads {VERSION}"
        )
    return header, arrays


def _settings_header(learner: Any, structure: Structure) -> dict[str, str]:
    """The settings as texts, which read back as what they are; a policy that is no file is in this
    one."""
    texts = {}
    for one in learner.parameters:
        value = getattr(learner, one.name)
        inside = isinstance(learner, Follow) and not isinstance(value, str)
        if inside and not isinstance(learner.found(structure), Rule):
            texts[one.name] = _IN_THIS_FILE
            continue
        texts[one.name] = one.show(value)
        if one.parse(texts[one.name], learner.owner()) != value:
            raise InvalidParameter(
                f"{learner.owner()} cannot be saved: its '{one.name}' has no text that stands for "
                f"it; got {texts[one.name]}"
            )
    return texts


def _planner_header(planner: Any) -> dict[str, Any] | None:
    if planner is None:
        return None
    if not is_dataclass(planner) or not isinstance(planner, Planner):
        raise InvalidParameter(
            f"a learner whose planner is no fmdp.Planner cannot be saved; got {planner!r}"
        )
    settings = {field.name: getattr(planner, field.name) for field in fields(planner)}
    return {"name": PLANNERS.place(type(planner)), "settings": settings}


def _planner(header: Mapping[str, Any]) -> Planner:
    settings = {name: _tuples(value) for name, value in header["settings"].items()}
    made: Planner = PLANNERS.find(header["name"], importing=False)(**settings)
    return made


def _generator_state(agent: Agent) -> Mapping[str, Any]:
    state = agent.randomness.bit_generator.state
    if state["bit_generator"] not in _BIT_GENERATORS:
        raise InvalidParameter(
            f"a learner with a bit generator of one's own cannot be saved; got "
            f"{state['bit_generator']}, must be one of {', '.join(_BIT_GENERATORS)}"
        )
    return dict(state)


def _generator(state: Mapping[str, Any] | None) -> np.random.Generator | None:
    if state is None:
        return None
    name = str(state["bit_generator"])
    if name not in _BIT_GENERATORS:
        raise ValueError(f"unknown bit generator {name}")
    bits = getattr(np.random, name)()
    bits.state = {key: _arrays(value) for key, value in state.items()}
    return np.random.Generator(bits)


def _plain(value: Any) -> Any:
    """Dictionaries with arrays (Philox, MT19937) in JSON's own types."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _arrays(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _arrays(item) for key, item in value.items()}
    return np.array(value, dtype=np.uint64) if isinstance(value, list) else value


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
