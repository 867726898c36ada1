"""Saved agents: one archive of arrays and a JSON header, data and no code.

A file holds the structure, the learner by name (or module:Class) with its settings, the planner
with its settings and its warm state, the statistics, the learner's memory, the decision under way
with its policy (a policy file inside) and the state of the generator: all that the next step
depends on. An agent that is loaded goes on exactly as if nothing had happened, to the last bit.
Writing is atomic; reading runs nothing that is in a file, and imports no module that it names: the
class of a learner of one's own has to be there, imported or registered.

Nothing in a file is taken on trust, checksum or not: counts, limits, warm vectors and policies are
compared with the structure before compiled code sees them, and counts with each other.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fmdp._base.archives import pack, read_file, unpack
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.follow import Follow
from fmdp.learning.registry import LEARNERS
from fmdp.learning.statistics import Statistics
from fmdp.model import Alike, FactoredMDP, Structure
from fmdp.model.constraints import from_plain, plain
from fmdp.model.effects import effects_from_plain, effects_plain
from fmdp.model.entries import entries_of, first_rows
from fmdp.model.io.files import dumps, loads, path_of, write_atomically
from fmdp.model.naming import ListedNames, Numerals, are_numerals
from fmdp.planning.plan import Planner
from fmdp.planning.policies.archive import array_in, policy_bytes
from fmdp.planning.policies.files import policy_from_bytes
from fmdp.planning.policies.randomised import LOTS
from fmdp.planning.policies.rule import Rule
from fmdp.planning.registry import PLANNERS

FORMAT = "fmdp-learner"
VERSION = 3
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_LARGEST_TIE_SEED = 2**32 - 1
_COUNTS = ("cells", "visits", "reward_sums")
_IN_THIS_FILE = "(in this file)"
_MOST_STEPS = 2**53
"""Up to here sums of counts are exact in either kind of number."""


def save_agent(agent: Agent, path: str | os.PathLike[str]) -> None:
    """Write the agent, whole or not at all."""
    path_of(path, "a learner file")
    learner = agent.learner
    values, arrays = state_of(agent)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "learner": LEARNERS.place(type(learner)),
        "settings": settings_header(learner, agent.structure),
        "learner_planner": planner_header(getattr(learner, "planner", None)),
        "planner": planner_header(agent.planner),
        "generator": None if agent.generator is None else _plain(_generator_state(agent)),
        "state": values,
    }
    if agent.model is not None:
        header["model"] = dumps(agent.model)
    else:
        header["structure"] = {
            one.name: _compact(getattr(agent.structure, one.name))
            for one in fields(Structure)
            if one.name not in ("alike", "constraints", "effects")
        }
        if agent.structure.alike is not None:
            alike = agent.structure.alike
            arrays["alike"] = np.concatenate([*alike.transitions, *alike.rewards])
        header["structure"]["constraints"] = [plain(c) for c in agent.structure.constraints]
        if agent.structure.effects is not None:
            header["structure"]["effects"] = effects_plain(agent.structure.effects)
    policy = getattr(agent.decision, "policy", None)
    if isinstance(learner, Follow):
        policy = learner.found(agent.structure)
    # A rule is code and no data; who follows one has said where it lives.
    if policy is not None and not (isinstance(learner, Follow) and isinstance(policy, Rule)):
        arrays["policy"] = np.frombuffer(policy_bytes(policy), dtype=np.uint8)
    try:
        if json.loads(json.dumps(values["memory"])) != values["memory"]:
            raise TypeError("keys that are no texts, or tuples")
        content = pack(header, arrays)
    except TypeError as error:
        raise InvalidParameter(
            f"{learner.owner()} has something in its memory that cannot be saved: {error}; "
            f"numbers, texts, lists, dictionaries with texts as keys, and arrays can"
        ) from None
    write_atomically(path, content)


def _compact(value: Any) -> Any:
    """Return lists for tuples, and the values of variables as they were listed.

    Default values become an empty list, which is read as the same.
    """
    if isinstance(value, Numerals | ListedNames):
        return [] if are_numerals(value) else list(value.listed)
    if isinstance(value, tuple):
        return [_compact(item) for item in value]
    return value


def state_of(agent: Agent) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Plain values and arrays: with the learner, the generator and the policy of the decision under
    way all that an agent is."""
    decision = agent.decision
    values: dict[str, Any] = asdict(agent.counters)
    values |= {"taken": agent._taken, "over": agent._over, "reason": agent.planner_reason}
    values["prepared"] = agent._prepared is not None
    values["rationed"] = agent.plan_seconds > 0.0
    values["length"] = None if decision is None else decision.steps
    values["drawn"] = None if agent._drawn is None else agent._drawn.tolist()
    values["tie_seed"] = agent.tie_seed
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
    if agent.statistics.known_rewards is not None:
        arrays["known_rewards"] = agent.statistics.known_rewards
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
    content = read_file(path, "a learner file")
    header, arrays = unpack(content, label, what="learner", form=FORMAT, version=VERSION)
    try:
        return _agent(header, arrays)
    except FmdpError as error:
        raise FileProblem(f"{label} is not a usable learner file: {error}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise FileProblem(f"{label} lacks a part of its learner: {error}") from None
    except RecursionError:
        raise FileProblem(f"{label} lacks a part of its learner: nested too deeply") from None


def _agent(header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Agent:
    kind = LEARNERS.find(str(header["learner"]), importing=False)
    others = {}
    if header["learner_planner"] is not None:
        others["planner"] = _planner(header["learner_planner"])
    settings = _object(header["settings"], "settings")
    if issubclass(kind, Follow) and settings.get("policy") == _IN_THIS_FILE:
        held = array_in(arrays, "policy", "u", (None,))
        settings = {**settings, "policy": policy_from_bytes(held.tobytes(), "its policy")}
    learner = kind.make(settings, **others)
    if isinstance(learner, Follow):
        learner.refuse_to_import()
    told: Structure | FactoredMDP
    if kind.knows_model:
        told = loads(_text(header["model"], "model"), "its model")
    else:
        given = {**_object(header["structure"], "structure")}
        rules = given.pop("constraints", [])  # older files have none
        if not isinstance(rules, list):
            raise InvalidParameter(f"its 'constraints' must be a list; got {quoted(rules)}")
        effects = given.pop("effects", None)
        told = Structure(
            **{name: _tuples(v) for name, v in given.items()},
            constraints=tuple(from_plain(one) for one in rules),
        )
        told = replace(
            told,
            alike=_alike(told, arrays) if "alike" in arrays else None,
            effects=None if effects is None else effects_from_plain(effects),
        )
    acted_in = told if isinstance(told, Structure) else told.structure
    empty = learner.statistics_for(acted_in)
    counts = _checked_counts(empty.structure, arrays)
    # `start` of a baseline would look for the policy or rule that the file names, and `start` of a
    # learner that knows the rewards needs a model; the file has the policy and the rewards.
    agent = learner.agent_for(
        acted_in,
        _generator(header["generator"]),
        told if isinstance(told, FactoredMDP) else None,
        _known_rewards(empty, arrays) if learner.knows_rewards else None,
    )
    if header["planner"] is not None:
        agent._planner = _planner(header["planner"])  # with the learner's defaults already
    for name, array in counts.items():
        getattr(agent.statistics.counts, name)[:] = array
    _restore(agent, _object(header["state"], "state"), arrays)
    return agent


def _known_rewards(empty: Statistics, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Return the known mean of every reward entry, which must be inside its range."""
    means = array_in(arrays, "known_rewards", "f", empty.reward_lo.shape)
    if not ((means >= empty.reward_lo) & (means <= empty.reward_hi)).all():
        raise InvalidParameter("its known rewards are outside the ranges of the reward factors")
    return means


def _alike(structure: Structure, arrays: Mapping[str, NDArray[Any]]) -> Alike:
    """The class of every row of the tables, end to end; the structure checks what it means."""
    rows = [*structure.transition_rows, *structure.reward_rows]
    classes = np.split(array_in(arrays, "alike", "i", (sum(rows),), 0), np.cumsum(rows)[:-1])
    return Alike(tuple(classes[: structure.m]), tuple(classes[structure.m :]))


def _checked_counts(
    structure: Structure, arrays: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The counts, which must be those of steps in this structure: every step is one visit of an
    entry of every factor, and one of the entry's values, and pays within the factor's range."""
    entries = entries_of(structure)
    n_rewards = entries.n_entries - entries.n_transition_entries
    cells = array_in(arrays, "counts.cells", "i", (entries.n_cells,), 0, _MOST_STEPS)
    visits = array_in(arrays, "counts.visits", "i", (entries.n_entries,), 0, _MOST_STEPS)
    sums = array_in(arrays, "counts.reward_sums", "f", (n_rewards,))
    # In floats, which are exact here as long as they are allowed.
    totals = _steps_counted(structure, visits)
    most = cells.sum(dtype=np.float64) / structure.m
    if len(totals) > 1 or not min(totals).is_integer() or max(*totals, most) > _MOST_STEPS:
        raise InvalidParameter("its counts are not of the same number of steps for every factor")
    seen = np.add.reduceat(cells, entries.first_cell[:-1])
    if not np.array_equal(seen, visits[: entries.n_transition_entries]):
        raise InvalidParameter("its counts of values are not those of the visits to their rows")
    seen = visits[entries.n_transition_entries :]
    ranges = np.array(structure.reward_ranges, dtype=np.float64).reshape(-1, 2)
    ends = np.repeat(ranges, np.array(structure.reward_rows, dtype=np.int64), axis=0)
    lo, hi = ends[first_rows(structure).rewards].T
    size = np.maximum(np.maximum(np.abs(lo), np.abs(hi)), hi - lo)
    slack = np.maximum(1e-6, seen * 2.0**-52) * seen * size
    wrong = ~((sums >= lo * seen - slack) & (sums <= hi * seen + slack))
    if wrong.any():
        at = int(wrong.argmax())
        raise InvalidParameter(
            f"its sums of rewards are outside the range [{float(lo[at])!r}, {float(hi[at])!r}] of "
            f"what was counted"
        )
    return {"cells": cells, "visits": visits, "reward_sums": sums}


def _steps_counted(structure: Structure, visits: NDArray[Any]) -> set[float]:
    """How many steps the visits are of, by each set of factors that share entries with no other:
    every step is one visit for each of them."""
    s = structure
    classes = [np.unique(s.transition_classes_of(i)) for i in range(s.m)]
    first = s.n_transition_classes
    classes += [first + np.unique(s.reward_classes_of(k)) for k in range(s.l)]
    if s.alike is None:
        return {float(visits[own].sum(dtype=np.float64)) for own in classes}
    at = np.repeat(np.arange(len(classes)), [len(own) for own in classes])
    shared = csr_array((np.ones(len(at)), (at, np.concatenate(classes))))
    n, part = connected_components(shared @ shared.T, directed=False)
    counted = set()
    for number in range(n):
        factors = np.flatnonzero(part == number)
        own = np.unique(np.concatenate([classes[f] for f in factors]))
        counted.add(float(visits[own].sum(dtype=np.float64) / len(factors)))
    return counted


def _restore(agent: Agent, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
    for counter in fields(agent.counters):
        setattr(agent.counters, counter.name, _whole(values[counter.name], counter.name))
    if not _flag(values.get("rationed", True), "rationed"):  # older files do not say
        agent.plan_seconds = 0.0
    seed = values.get("tie_seed")  # older files have none
    agent.tie_seed = None if seed is None else _whole(seed, "tie_seed", 0, _LARGEST_TIE_SEED)
    reason = values["reason"]
    agent.planner_reason = None if reason is None else _text(reason, "reason")
    agent.memory = dict(_object(values["memory"], "memory"))
    warm = {}
    for name, array in arrays.items():
        head, _, rest = name.partition(".")
        if head == "memory":
            agent.memory[rest] = array
        elif head == "warm":
            warm[rest] = array
    agent.learner.check_memory(agent.structure, agent.memory)
    if values["length"] is not None:
        decision = Decision(
            _policy(agent, arrays),
            _whole(values["length"], "length", 1, sys.maxsize),
            _limits(agent, arrays),
        )
        taken, over = _whole(values["taken"], "taken"), _flag(values["over"], "over")
        if taken >= decision.steps and not over:
            raise InvalidParameter(
                f"its decision must be over after {decision.steps} steps; got {taken}"
            )
        agent._begin(decision, taken, over)
    if values["drawn"] is not None:
        agent._drawn = _drawn(agent, values["drawn"])
    # Older files do not say whether the planner was prepared; a planner that was called was.
    prepared = _flag(values.get("prepared", agent.planner_calls > 0), "prepared")
    if agent.planner is not None and (warm or prepared):
        agent.prepared.restore_warm_state(warm)


def _policy(agent: Agent, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if "policy" not in arrays and isinstance(agent.learner, Follow):
        return agent.learner.found(agent.structure)
    held = array_in(arrays, "policy", "u", (None,))
    if held.dtype != np.uint8:
        raise InvalidParameter(f"its part 'policy' is of {held.dtype}; must be of uint8")
    return policy_from_bytes(held.tobytes(), "its policy", agent.structure)


def _limits(agent: Agent, arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    limits = array_in(arrays, "limits", "i", (None,), 0)
    if len(limits) not in (0, len(agent.statistics.visits)):
        raise InvalidParameter(
            f"its part 'limits' has {len(limits)} entries; must have none, or "
            f"{len(agent.statistics.visits)}"
        )
    return limits


def _drawn(agent: Agent, drawn: Any) -> NDArray[np.int64]:
    """The action, or its lot, that was drawn and not yet taken; -1 all over where the policy's base
    is asked."""
    sizes = agent.structure.action_sizes
    if getattr(_played(agent), "by_state", False) and isinstance(drawn, list) and drawn[:1] != [-1]:
        if len(drawn) != len(sizes) or any(drawn[1:]):
            raise InvalidParameter(f"its drawn action {quoted(drawn)} is no lot")
        return np.array([_whole(drawn[0], "drawn", 0, LOTS - 1), *drawn[1:]], dtype=np.int64)
    if drawn == [-1] * len(sizes) and getattr(_played(agent), "base", None) is not None:
        return np.array(drawn, dtype=np.int64)
    return np.array(agent.structure.check_action(drawn, "its drawn action"), dtype=np.int64)


def _played(agent: Agent) -> Any:
    return None if agent.decision is None else agent.decision.policy


def _whole(value: Any, name: str, low: int = 0, high: int = _MOST_STEPS) -> int:
    if type(value) is not int or not low <= value <= high:
        raise InvalidParameter(
            f"its {name!r} must be a whole number from {low} to {high}; got {quoted(value)}"
        )
    return value


def _flag(value: Any, name: str) -> bool:
    if type(value) is not bool:
        raise InvalidParameter(f"its {name!r} must be true or false; got {quoted(value)}")
    return value


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParameter(f"its {name!r} must be an object; got {quoted(value)}")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise InvalidParameter(f"its {name!r} must be a text; got {quoted(value)}")
    return value


def settings_header(learner: Any, structure: Structure) -> dict[str, str]:
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


def planner_header(planner: Any) -> dict[str, Any] | None:
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
    name = _text(state["bit_generator"], "bit_generator")
    if name not in _BIT_GENERATORS:
        raise InvalidParameter(
            f"unknown bit generator {quoted(name)}; known are {', '.join(_BIT_GENERATORS)}"
        )
    bits = getattr(np.random, name)()
    # NumPy takes what it is given, and reads where the position points.
    _refuse_other_state(state, _plain(bits.state), "generator")
    bits.state = {key: _arrays(value) for key, value in state.items()}
    return np.random.Generator(bits)


_MOST_OF = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "uinteger": 2**32 - 1}
"""Of the numbers in a generator's state, by their names; 2^128 - 1 for the rest."""


def _refuse_other_state(given: Any, like: Any, name: str) -> None:
    """InvalidParameter unless it has the form of the other state, its numbers in their ranges."""
    if isinstance(like, Mapping):
        right = isinstance(given, Mapping) and given.keys() == like.keys()
        for key in like if right else ():
            _refuse_other_state(given[key], like[key], key)
    elif isinstance(like, list):
        most = 2**32 - 1 if len(like) > 4 else 2**64 - 1
        right = isinstance(given, list) and len(given) == len(like)
        right = right and all(type(one) is int and 0 <= one <= most for one in given)
    elif isinstance(like, int):
        most = _MOST_OF.get(name, 2**128 - 1)
        right = type(given) is int and 0 <= given <= most and (name != "inc" or given % 2 == 1)
    else:
        right = given == like
    if not right:
        raise InvalidParameter(f"the {name!r} of its generator is none; got {quoted(given)}")


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
