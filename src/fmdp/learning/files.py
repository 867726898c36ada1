"""Loading saved agents, which `Agent.save` writes: an archive of arrays with a JSON header.

A file contains the structure, the learner by name (or module:Class) with its settings, the planner
with its settings and its warm state, the statistics, the learner's memory, the current decision
with its policy, and the state of the generator: everything that the next step depends on. A loaded
agent continues the run bit by bit.

Loading executes no code from a file and imports no module that a file names, so third-party learner
classes have to be imported or registered before. Counts, limits, warm-start vectors and policies
are checked against the structure, and counts against each other, before compiled code reads them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from fmdp._base.archives import read_file, unpack
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.basis_growth import read_growth
from fmdp.learning.encoding import (
    FORMAT,
    MOST_STEPS,
    VERSION,
    as_int,
    as_type,
    read_generator,
    read_planner,
    read_structure,
    refuse_larger,
)
from fmdp.learning.follow import IN_THIS_FILE, Follow
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Counts, entries_of, first_rows
from fmdp.model.io.files import loads, path_of
from fmdp.planning.policies.archive import array_in
from fmdp.planning.policies.files import policy_from_bytes
from fmdp.planning.policies.randomised import LOTS

Arrays = Mapping[str, NDArray[Any]]

_LARGEST_TIE_SEED = 2**32 - 1


def load_agent(path: str | os.PathLike[str]) -> Agent:
    """Load an agent, which continues its run bit by bit.

    Parameters
    ----------
    path
        A file written by `agent.save` or `fmdp learn --out`. If its learner is a class of your
        own, import or register that class first: loading a file imports no code.

    Returns
    -------
    Agent
        The agent as it was when it was saved.

    Raises
    ------
    FileProblem
        If there is no such file, it is not a learner file, or its learner is unknown.
    """
    path_of(path, "a learner file")
    return agent_from(read_file(path, "a learner file"), os.fspath(path))


def agent_from(content: bytes, label: str) -> Agent:
    """Return the agent of a file's content; `label` names the file in errors."""
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
    learner = _learner(header, arrays)
    model: FactoredMDP | None = None
    if learner.knows_model:
        model = loads(as_type(header["model"], "model", str), "its model")
        structure = model.structure
    else:
        structure = read_structure(header["structure"], arrays)
        if "statistics.scopes" not in arrays:  # else the scopes of the model were not used
            refuse_larger(structure, arrays)
    empty = learner.statistics_for(structure).restored(arrays)
    counts = _checked_counts(empty.structure, arrays)
    # Not `start`: that of a baseline looks for the policy or rule that the file names, and that of
    # a learner with known rewards needs the model.
    agent = learner.agent_for(
        structure,
        read_generator(header["generator"]),
        model,
        _known_rewards(empty, arrays) if learner.knows_rewards else None,
    )
    if empty.stepwise:  # the scopes were learned, and are those of the file
        known = agent.statistics.known_rewards
        agent.adopt(empty)
        if known is not None:
            empty.know_rewards(known)
    if header["planner"] is not None:
        agent._planner = read_planner(header["planner"])  # the learner's defaults are included
    for array, saved in zip(agent.statistics.counts, counts, strict=True):
        array[:] = saved
    _restore(agent, as_type(header["state"], "state", dict), arrays)
    return agent


def _learner(header: dict[str, Any], arrays: Arrays) -> Learner:
    kind = LEARNERS.find(str(header["learner"]), importing=False)
    parts = {}
    if header["learner_planner"] is not None:
        parts["planner"] = read_planner(header["learner_planner"])
    settings = as_type(header["settings"], "settings", dict)
    if issubclass(kind, Follow) and settings.get("policy") == IN_THIS_FILE:
        content = array_in(arrays, "policy", "u", (None,))
        settings = {**settings, "policy": policy_from_bytes(content.tobytes(), "its policy")}
    learner: Learner = kind.make(settings, **parts)
    if isinstance(learner, Follow):
        learner.refuse_to_import()
    return learner


# ---- counts --------------------------------------------------------------------------------------


def _known_rewards(empty: Statistics, arrays: Arrays) -> NDArray[np.float64]:
    """Return the known mean of every reward entry, which must be inside its range."""
    means = array_in(arrays, "known_rewards", "f", empty.reward_lo.shape)
    if not ((means >= empty.reward_lo) & (means <= empty.reward_hi)).all():
        raise InvalidParameter("its known rewards are outside the ranges of the reward factors")
    return means


def _checked_counts(structure: Structure, arrays: Arrays) -> Counts:
    """Return the counts, after checking that some sequence of steps could have made them.

    Every step visits one entry of every factor and one value of that entry, and pays a reward
    within the factor's range.
    """
    entries = entries_of(structure)
    n_rewards = entries.n_entries - entries.n_transition_entries
    cells = array_in(arrays, "counts.cells", "i", (entries.n_cells,), 0, MOST_STEPS)
    visits = array_in(arrays, "counts.visits", "i", (entries.n_entries,), 0, MOST_STEPS)
    sums = array_in(arrays, "counts.reward_sums", "f", (n_rewards,))
    # Floats are exact for all totals up to the limit that is checked here.
    totals = _steps_counted(structure, visits)
    most = cells.sum(dtype=np.float64) / structure.m
    if len(totals) > 1 or not min(totals).is_integer() or max(*totals, most) > MOST_STEPS:
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
    return Counts(cells, visits, sums)


def _steps_counted(structure: Structure, visits: NDArray[Any]) -> set[float]:
    """Return the numbers of steps according to each group of factors that share entries.

    A step visits each factor of a group once.
    """
    s = structure
    classes = [np.unique(s.transition_classes_of(i)) for i in range(s.m)]
    first = s.n_transition_classes
    classes += [first + np.unique(s.reward_classes_of(k)) for k in range(s.l)]
    if s.alike is None:
        return {float(visits[members].sum(dtype=np.float64)) for members in classes}
    factor = np.repeat(np.arange(len(classes)), [len(members) for members in classes])
    shared = csr_array((np.ones(len(factor)), (factor, np.concatenate(classes))))
    n_groups, group = connected_components(shared @ shared.T, directed=False)
    totals = set()
    for number in range(n_groups):
        factors = np.flatnonzero(group == number)
        members = np.unique(np.concatenate([classes[f] for f in factors]))
        totals.add(float(visits[members].sum(dtype=np.float64) / len(factors)))
    return totals


# ---- the rest of the state -----------------------------------------------------------------------


def _restore(agent: Agent, values: Mapping[str, Any], arrays: Arrays) -> None:
    for counter in fields(agent.counters):
        setattr(agent.counters, counter.name, as_int(values[counter.name], counter.name))
    if not as_type(values.get("rationed", True), "rationed", bool):  # missing in older files
        agent.plan_seconds = 0.0
    seed = values.get("tie_seed")  # missing in older files
    agent.tie_seed = None if seed is None else as_int(seed, "tie_seed", 0, _LARGEST_TIE_SEED)
    agent.basis_growth = read_growth(values.get("basis_growth"))  # missing in older files
    reason = values["reason"]
    agent.planner_reason = None if reason is None else as_type(reason, "reason", str)
    agent.memory = dict(as_type(values["memory"], "memory", dict))
    warm, scopes = {}, {}
    for name, array in arrays.items():
        head, _, rest = name.partition(".")
        if head == "memory":
            agent.memory[rest] = array
        elif head == "warm":
            warm[rest] = array
        elif head == "scopes":
            scopes[rest] = array
    if scopes:
        agent.test_scopes()
        if agent._monitor is None:
            raise InvalidParameter("its scopes cannot be tested, and it has counts of a test")
        agent._monitor.restore(scopes)
    agent.learner.check_memory(agent.structure, agent.memory)
    if values["length"] is not None:
        decision = Decision(
            _policy(agent, arrays),
            as_int(values["length"], "length", 1, sys.maxsize),
            _limits(agent, arrays),
        )
        taken, over = as_int(values["taken"], "taken"), as_type(values["over"], "over", bool)
        if taken >= decision.steps and not over:
            raise InvalidParameter(
                f"its decision must be over after {decision.steps} steps; got {taken}"
            )
        agent._begin(decision, taken, over)
    if values["drawn"] is not None:
        agent._drawn = _drawn(agent, values["drawn"])
    # Older files do not say whether the planner was prepared; it was if it had been called.
    prepared = as_type(values.get("prepared", agent.planner_calls > 0), "prepared", bool)
    if agent.planner is not None and (warm or prepared):
        agent.prepared.restore_warm_state(warm)


def _policy(agent: Agent, arrays: Arrays) -> Any:
    if "policy" not in arrays and isinstance(agent.learner, Follow):
        return agent.learner.policy_for(agent.structure)
    content = array_in(arrays, "policy", "u", (None,))
    if content.dtype != np.uint8:
        raise InvalidParameter(f"its part 'policy' is of {content.dtype}; must be of uint8")
    return policy_from_bytes(content.tobytes(), "its policy", agent.structure)


def _limits(agent: Agent, arrays: Arrays) -> NDArray[np.int64]:
    limits = array_in(arrays, "limits", "i", (None,), 0)
    if len(limits) not in (0, len(agent.statistics.visits)):
        raise InvalidParameter(
            f"its part 'limits' has {len(limits)} entries; must have none, or "
            f"{len(agent.statistics.visits)}"
        )
    return limits


def _drawn(agent: Agent, drawn: Any) -> NDArray[np.int64]:
    """Return the action, or its lot, that was drawn and not yet taken.

    It is -1 everywhere if the base of a randomised policy chooses the action.
    """
    policy = None if agent.decision is None else agent.decision.policy
    sizes = agent.structure.action_sizes
    if getattr(policy, "by_variable", False):
        if not isinstance(drawn, list) or len(drawn) != len(sizes):
            raise InvalidParameter(f"its drawn action {quoted(drawn)} has no lot per variable")
        lots = zip(drawn, sizes, strict=True)
        return np.array([as_int(lot, "drawn", 0, size) for lot, size in lots], dtype=np.int64)
    if getattr(policy, "by_state", False) and isinstance(drawn, list) and drawn[:1] != [-1]:
        if len(drawn) != len(sizes) or any(drawn[1:]):
            raise InvalidParameter(f"its drawn action {quoted(drawn)} is no lot")
        return np.array([as_int(drawn[0], "drawn", 0, LOTS - 1), *drawn[1:]], dtype=np.int64)
    if drawn == [-1] * len(sizes) and getattr(policy, "base", None) is not None:
        return np.array(drawn, dtype=np.int64)
    return np.array(agent.structure.check_action(drawn, "its drawn action"), dtype=np.int64)
