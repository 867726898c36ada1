"""How much a learner plans when nobody has chosen its planner: exact plans within a budget.

A run may spend ten seconds on plans, and ten milliseconds more with every step. The exact planner
is the default where one plan is predicted to take no more than the first ten seconds, actions
included; otherwise the approximate one is. Where plans are so expensive that the episode rule would
exceed the budget, a policy is played until the next plan is affordable. That holds for this
library's own episode rules, `growing` and `paced`. Published rules are followed to the letter; with
them the exact planner is the default up to half a second per plan.

All of it is predicted from the structure (multiply-adds per sweep, numbers per table), never
measured with a clock, so that a run is a function of its seed on every machine with enough memory.
Learners whose planner was given plan whenever their episode rule says so.
"""

from __future__ import annotations

import math

from fmdp.model import Structure
from fmdp.planning.choice import Chosen, choose_planner, exact_cost, too_many

FIRST_SECONDS = 10.0
"""Predicted seconds that a run may spend on plans at once; also the most that one plan may take."""
UNRATIONED_SECONDS = 0.5
"""The most that one plan may take where the episode rule alone says how many there are."""
SECONDS_PER_STEP = 0.01
"""Added to the budget by every step: with plans on average within it, a run makes at least a
hundred steps per second."""
SWEEPS_PER_PLAN = 100
"""Assumed sweeps of a plan inside a learner. Plans were seen to take 10 to 100 sweeps, or as long
by policy iteration."""
SECONDS_PER_CELL = 5e-7
"""Making one number of a learner's tables, sampled or from a pooled posterior."""


def planner_for_learning(
    structure: Structure,
    memory_limit: int | None = None,
    *,
    rationed: bool = False,
    by_parts: bool = True,
) -> Chosen:
    """Return the default planner of a learner, and why it is not the exact one.

    Parameters
    ----------
    structure
        What is planned for.
    memory_limit
        In bytes; None is half of the free memory.
    rationed
        Whether expensive plans are waited for.
    by_parts
        Whether the planner plans independent parts one by one.
    """
    most = FIRST_SECONDS if rationed else UNRATIONED_SECONDS
    return choose_planner(
        structure,
        most_seconds=most / SWEEPS_PER_PLAN,
        memory_limit=memory_limit,
        by_parts=by_parts,
    )


def predicted_plan_seconds(structure: Structure, exact: bool, *, by_parts: bool = True) -> float:
    """Return what one plan is predicted to take, its tables included.

    Parameters
    ----------
    structure
        What is planned for.
    exact
        Whether the planner sweeps over all states; the time of a linear program is not predicted,
        and only its tables are counted.
    by_parts
        Whether the planner plans independent parts one by one.
    """
    seconds = SECONDS_PER_CELL * structure.transition_starts[-1]
    if exact and too_many(structure, by_parts=by_parts) is None:
        seconds += SWEEPS_PER_PLAN * exact_cost(structure, by_parts=by_parts).seconds
    return seconds


def steps_until_affordable(plan_seconds: float, plans: int, steps: int) -> int:
    """Return how many steps to take before one more plan fits into the budget, at least 1.

    The least n >= 1 with (plans + 1) plan_seconds <= FIRST_SECONDS + SECONDS_PER_STEP (steps + n).

    Parameters
    ----------
    plan_seconds
        What a plan is predicted to take; 0 for no limit.
    plans, steps
        How many there were so far.
    """
    missing = (plans + 1) * plan_seconds - FIRST_SECONDS
    return max(1, math.ceil(missing / SECONDS_PER_STEP) - steps)
