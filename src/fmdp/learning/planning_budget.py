"""Default planner of a learner, and how often it plans: a budget of predicted seconds.

A run may spend ten seconds on plans at once and ten milliseconds more per step. The exact planner
is the default if one plan is predicted to take at most the first ten seconds, greedy actions
included; otherwise the approximate planner is. If the episode rule would exceed the budget, a
policy is played until the next plan is affordable. That holds for this library's own episode rules,
`growing` and `paced`. Published rules are followed exactly; with them the exact planner is the
default up to half a second per plan.

Costs are predicted from the structure (multiply-adds per sweep, numbers per table), not measured
with a clock, so that a run is a function of its seed on every machine with enough memory. A learner
with a given planner plans whenever its episode rule says so.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from fmdp.model import Structure
from fmdp.model.exchangeable.finding import exchangeable_by_alike
from fmdp.planning.choice import (
    Chosen,
    choose_planner,
    counts_by_alike,
    exact_cost,
    takes_all,
    too_many,
)
from fmdp.planning.counts.cost import predicted_cost
from fmdp.planning.counts.planner import Counts
from fmdp.planning.coupled.planner import Coupled
from fmdp.planning.exact.planner import Exact

FIRST_SECONDS = 10.0
"""Predicted seconds of plans that a run may spend at once; also the limit for one plan."""
UNRATIONED_SECONDS = 0.5
"""Largest predicted seconds per plan if the episode rule alone decides when to plan."""
SECONDS_PER_STEP = 0.01
"""Added to the budget by every step. With plans within the budget, a run makes at least a
hundred steps per second."""
SWEEPS_PER_PLAN = 100
"""Assumed sweeps per plan inside a learner. Measured plans took 10 to 100 sweeps, or as long by
policy iteration."""
TOLERANCE = 1e-3
"""Tolerance of plans inside learners, in units of the sum of the reward ranges."""
SECONDS_PER_CELL = 5e-7
"""Predicted seconds per number of a learner's tables, sampled or from a pooled posterior."""


def planner_for_learning(
    structure: Structure,
    memory_limit: int | None = None,
    *,
    rationed: bool = False,
    by_parts: bool = True,
    for_models: bool = False,
    settings: Collection[str] = (),
) -> Chosen:
    """Return the default planner of a learner, and why it is not the exact one.

    With `rationed`, the learner waits for expensive plans. `by_parts` says whether the planner
    solves independent parts separately. With `for_models`, the learner plans for models and not
    for optimistic tables, so that the planner may also be `counts` or `coupled`, if it has all
    these settings. The memory limit is in bytes; None is half of the free memory.
    """
    most = (FIRST_SECONDS if rationed else UNRATIONED_SECONDS) / SWEEPS_PER_PLAN
    chosen = choose_planner(
        structure,
        most_seconds=most,
        memory_limit=memory_limit,
        by_parts=by_parts,
        coupled=for_models and takes_all(Coupled, settings),
    )
    exact = isinstance(chosen.planner, Exact)
    if exact or not for_models or not takes_all(Counts, settings):
        return chosen
    on_counts = counts_by_alike(structure, most_seconds=most, memory_limit=memory_limit)
    if on_counts is None:
        return chosen
    return Chosen(on_counts, "alike rows make its parts exchangeable")


def predicted_plan_seconds(
    structure: Structure, exact: bool, *, by_parts: bool = True, counts: bool = False
) -> float:
    """Return the predicted seconds of one plan, including its tables.

    The time of a linear program (not `exact` and not on `counts`) is not predicted; only its tables
    are counted.
    """
    seconds = SECONDS_PER_CELL * structure.transition_starts[-1]
    parts = exchangeable_by_alike(structure) if counts else None
    if parts is not None:
        seconds += SWEEPS_PER_PLAN * predicted_cost(parts).seconds
    if exact and too_many(structure, by_parts=by_parts) is None:
        seconds += SWEEPS_PER_PLAN * exact_cost(structure, by_parts=by_parts).seconds
    return seconds


def steps_until_affordable(
    plan_seconds: float, plans: int, steps: int, further_seconds: float = 0.0
) -> int:
    """Return how many steps to take before one more plan fits into the budget, at least 1.

    The least n >= 1 with (plans + 1) plan_seconds + further_seconds <= FIRST_SECONDS +
    SECONDS_PER_STEP (steps + n).
    """
    missing = (plans + 1) * plan_seconds + further_seconds - FIRST_SECONDS
    return max(1, math.ceil(missing / SECONDS_PER_STEP) - steps)
