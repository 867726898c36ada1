"""Saved learners: one archive of arrays and a JSON header, data and no code.

A file holds the structure, the settings, the planner by name with its settings and its warm state,
the statistics, where the episode stands, its policy (as a policy file inside) and the state of the
generator: all that the next step depends on. A learner that is loaded goes on exactly as if
nothing had happened, to the last bit. Writing is atomic; reading never runs what is in a file.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.learning.learner import Learner, PlanningLearner
from fmdp.learning.oracle import Oracle
from fmdp.learning.registry import learner_kind
from fmdp.model import Structure
from fmdp.model.files import dumps, loads, path_of, write_atomically
from fmdp.planning.plan import Planner
from fmdp.planning.policy import Policy, load_policy
from fmdp.planning.registry import PLANNERS

FORMAT = "fmdp-learner"
VERSION = 1
_BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
_COUNTERS = ("steps", "episodes", "planner_calls", "unconverged_plans")


def save_learner(learner: Learner, path: str | os.PathLike[str]) -> None:
    """Write the learner, whole or not at all."""
    path_of(path, "a learner file")
    values, arrays = learner.state()
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "learner": learner.name,
        "settings": learner.settings,
        "counters": {name: getattr(learner, name) for name in _COUNTERS},
        "generator": None if learner.generator is None else _plain(_generator_state(learner)),
        "state": values,
    }
    if isinstance(learner, Oracle):
        header["model"] = dumps(learner.model)
    else:
        header["structure"] = {
            field.name: getattr(learner.structure, field.name) for field in fields(Structure)
        }
    if isinstance(learner, PlanningLearner):
        header["planner"] = _planner_header(learner.planner)
        if learner.policy is not None:
            arrays["policy"] = np.frombuffer(_policy_bytes(learner.policy), dtype=np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, header=np.array(json.dumps(header)), **arrays)  # type: ignore[arg-type]
    write_atomically(path, stream.getvalue())


def load_learner(path: str | os.PathLike[str]) -> Learner:
    """The learner as it was when it was saved."""
    path_of(path, "a learner file")
    label = os.fspath(path)
    header, arrays = _read(path)
    try:
        kind = learner_kind(str(header["learner"]))
        planner = None
        if header.get("planner") is not None:
            planner = _planner(header["planner"])
        if kind.build is Oracle:
            told: Any = loads(header["model"], label)
        else:
            told = Structure(**{name: _tuples(v) for name, v in header["structure"].items()})
        learner = kind.build(
            told, planner=planner, generator=_generator(header["generator"]), **header["settings"]
        )  # type: ignore[call-arg]
        for name in _COUNTERS:
            setattr(learner, name, int(header["counters"][name]))
        if isinstance(learner, PlanningLearner) and "policy" in arrays:
            learner.policy = _policy(arrays.pop("policy").tobytes(), learner.structure)
        learner.restore(header["state"], arrays)
    except FmdpError as error:
        raise FileProblem(f"{label} is not a usable learner file: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise FileProblem(f"{label} lacks a part of its learner: {error}") from None
    return learner


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


def _planner_header(planner: Any) -> dict[str, Any]:
    known = PLANNERS.names()
    if planner.name not in known:
        raise InvalidParameter(
            f"a learner with a planner of one's own cannot be saved; got {planner.name}, "
            f"must be one of {', '.join(known)}"
        )
    settings = {field.name: getattr(planner, field.name) for field in fields(planner)}
    return {"name": planner.name, "settings": settings}


def _planner(header: Mapping[str, Any]) -> Planner:
    settings = {name: _tuples(value) for name, value in header["settings"].items()}
    return PLANNERS.find(header["name"])(**settings)


def _policy_bytes(policy: Policy) -> bytes:
    # Policies are saved by path, each kind in its own way; a policy file inside serves them all.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        policy.save(file)
        return file.read_bytes()


def _policy(content: bytes, structure: Structure) -> Policy:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        file.write_bytes(content)
        return load_policy(file, structure)


def _generator_state(learner: Learner) -> Mapping[str, Any]:
    state = learner.randomness.bit_generator.state
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
