"""The reference of regret: the optimal gain, and the gap of every state and action.

    realised regret = T lambda* - sum_t r_t,
    gap regret      = sum_t (max_a q(s_t, a) - q(s_t, a_t)),   q = R + P h,  h the optimal bias.

The gap regret is never negative and has little noise. Its expectation is that of the realised
regret plus h(s_1) - E h(s_{T+1}), so the two differ by at most sp(h) on average. It needs h, hence
an exact plan, one gain for all states, and a table over states and actions.

If the exact planner does not fit, regret is measured against a certified upper bound on the gain,
and is then itself an upper bound (`gain_kind`). Where the approximate linear program is the default
planner, the bound is the least of its plan with `singles` and of wider scopes that are cheap
(planning/alp/gain_bound.py).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fmdp._base.numerals import seconds_text
from fmdp.elimination.backup import backup_for
from fmdp.errors import InvalidParameter
from fmdp.learning.planning_budget import (
    FIRST_SECONDS,
    SECONDS_PER_STEP,
    predicted_plan_seconds,
)
from fmdp.model import FactoredMDP
from fmdp.model.factored import check_model
from fmdp.planning.choice import choose_planner_of, default_planner
from fmdp.planning.counts.planner import Counts
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Plan
from fmdp.planning.settings import without_search
from fmdp.planning.status import Progress, Status

TOLERANCE = 1e-8
"""Tolerance of the optimal gain, in units of the sum of the reward ranges: .01 over a million
steps."""
_SHORT_SECONDS = 1.0
"""Predicted seconds of a plan that is always made."""
_SECONDS_PER_STEP = 1e-5
"""Assumed seconds per step of a run, apart from plans."""
MOST_GAPS = 1 << 23
"""Largest table of gaps, states times actions: 64 MiB."""


@dataclass(frozen=True, eq=False)
class Reference:
    """What regret is measured against; computed once per model and shared by its runs.

    Attributes
    ----------
    gain
        The optimal gain from the initial state, or a certified upper bound on it.
    gain_kind
        "exact", or "upper_bound".
    gaps
        max q - q of every joint state and action, [S, A]; None if unknown.
    seconds
        Wall-clock time of the computation.
    """

    gain: float
    gain_kind: str
    gaps: NDArray[np.float64] | None
    seconds: float


def reference_for(model: FactoredMDP, *, progress: Progress | None = None) -> Reference:
    """Return the optimal gain and the gaps if they can be computed, else a certified bound.

    Parameters
    ----------
    model
        The model of the runs.
    progress
        Called at intervals with a mapping of the state of the work.

    Raises
    ------
    InvalidParameter
        If not even a bound was found.
    """
    check_model(model, "reference_for")
    started = time.perf_counter()
    planner = default_planner(model)
    if not isinstance(planner, Exact):
        planner = choose_planner_of(model).planner
    if not isinstance(planner, Exact | Counts):
        reference = _bounded(without_search(planner).plan(model, progress=progress), started)
        bound = min(reference.gain, planner.least_gain_upper(model, progress))
        return replace(reference, gain=bound, seconds=time.perf_counter() - started)
    scale = model.structure.reward_range_total or model.structure.reward_unit
    plan = type(planner)(tolerance=TOLERANCE * scale).plan(model, progress=progress)
    if plan.status is Status.MULTICHAIN:
        lower, upper = plan.stats["gain_from_initial_state_bounds"]
        if upper - lower <= TOLERANCE * scale:
            return Reference(0.5 * (lower + upper), "exact", None, time.perf_counter() - started)
        return Reference(upper, "upper_bound", None, time.perf_counter() - started)
    if plan.status is not Status.CONVERGED or plan.gain is None:
        return _bounded(plan, started)
    gaps = None
    if model.structure.n_states * model.structure.n_actions <= MOST_GAPS and plan.bias is not None:
        gaps = gap_table(model, plan.bias)
    return Reference(plan.gain, "exact", gaps, time.perf_counter() - started)


def long_reference(model: FactoredMDP, agent: object, steps: int) -> str | None:
    """Return why the reference should not be computed for a run; None if it is cheap enough.

    It is not if an exact plan is predicted to take longer than the run, and more than a second. A
    planning learner is predicted to use its budget of time. The time of a linear program is not
    predicted, so an approximate reference is always computed.
    """
    structure = model.structure
    if structure.derived:
        return None
    seconds = predicted_plan_seconds(structure, exact=True)
    own = _SECONDS_PER_STEP * steps
    if getattr(agent, "planner", None) is not None:
        own += FIRST_SECONDS + SECONDS_PER_STEP * steps
    if seconds <= max(own, _SHORT_SECONDS) or not isinstance(default_planner(model), Exact):
        return None
    return (
        f"the optimal gain is predicted to take {seconds_text(seconds)}, the run "
        f"{seconds_text(own)} (regret=True computes it)"
    )


def gap_table(model: FactoredMDP, bias: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return max_a' q(s, a') - q(s, a), [S, A], at least 0, for the optimal bias, [S]."""
    values = backup_for(model).action_values(bias)
    gaps: NDArray[np.float64] = values.max(axis=1, keepdims=True) - values
    return gaps


def _bounded(plan: Plan, started: float) -> Reference:
    plan.status.raise_if_interrupted()
    if plan.gain_upper is None:
        raise InvalidParameter(
            f"regret needs the optimal gain or a bound on it; the {plan.planner} planner ended "
            f"with status {plan.status.value} and gave none"
        )
    return Reference(plan.gain_upper, "upper_bound", None, time.perf_counter() - started)
