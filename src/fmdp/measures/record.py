"""All measures of a problem in one record, as `fmdp measure` prints them.

The gain is that of the exact plan. The spans are those of the bias that damped value iteration from
zero converges to: the exact solution of the optimality equation if it is unique and the model is
small, else the bias of the plan. The largest spans are over all optimal policies, as the paper
defines them; the mixing time is that of the plan's policy; the diameter depends on the model alone.
A number that is out of reach is None.

Where parts are exchangeable and there are too many joint states, gain and spans are those of the
plan on counts, and all other measures are out of reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmdp._base.parameters import quoted
from fmdp._base.progress import PartsReport, line_of_parts, reporting, showing
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.measures.diameter_search import Diameter, diameter
from fmdp.measures.largest_span import LargestSpans, largest_spans
from fmdp.measures.mixing import mixing_time
from fmdp.model import FactoredMDP, Structure
from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.model.expansion import expand
from fmdp.model.factored import check_model
from fmdp.planning.choice import EXACT_STATES
from fmdp.planning.counts.planner import Counts
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import TablePolicy

PRECISION = 1e-9
"""Tolerance of the plan, in units of the reward range. It is finer than a plan needs, because
the bias, and so the spans, are less precise than the gain."""


@dataclass(frozen=True)
class Measures:
    """Measures of the difficulty of a problem. `inf` is a value; None means unknown.

    Attributes
    ----------
    diameter
        The longest of the shortest expected times between two states; None if its bounds do not
        meet.
    diameter_bounds
        (lower, upper), rounding included.
    span
        max - min of the optimal bias that value iteration converges to.
    factored_spans
        For each state variable the largest change of that bias when it alone changes.
    factored_span_sum
        Their sum, the paper's Q.
    largest_span
        The largest span of a bias among the optimal policies (`fmdp.measures.largest_spans`); None
        if its bounds do not meet.
    largest_span_bounds
        (lower, upper) of the largest span.
    largest_factored_spans
        For each state variable the largest factored span, each over all optimal policies, so that
        their sum is at least the Q of every policy.
    largest_factored_spans_bounds
        (lower, upper) of each.
    largest_factored_span_sum
        Their sum.
    gain
        The optimal gain; None if it depends on the state.
    gain_bounds
        (lower, upper), certified.
    status
        Status of the plan behind gain and spans (as in `plan`).
    mixing_time
        Steps until the optimal policy of the plan forgets its initial state.
    m
        Number of state variables.
    l
        Number of reward factors.
    L
        The largest number of assignments of a scope.
    W
        The largest number of values of a state variable.
    """

    diameter: float | None
    diameter_bounds: tuple[float, float] | None
    span: float | None
    factored_spans: tuple[float, ...] | None
    factored_span_sum: float | None
    largest_span: float | None
    largest_span_bounds: tuple[float, float] | None
    largest_factored_spans: tuple[float | None, ...] | None
    largest_factored_spans_bounds: tuple[tuple[float, float], ...] | None
    largest_factored_span_sum: float | None
    gain: float | None
    gain_bounds: tuple[float, float] | None
    status: str
    mixing_time: float | None
    m: int
    l: int  # noqa: E741 - the paper's symbol
    L: int
    W: int


def measure(
    model: FactoredMDP,
    planner: Exact | None = None,
    *,
    progress: bool | PartsReport | None = None,
) -> Measures:
    """Return diameter, spans, gain and mixing time of a model.

    Parameters
    ----------
    model
        The model to measure.
    planner
        Settings of the exact planner whose gain and bias are measured, with the average criterion.
        None is one that is precise enough.
    progress
        True shows a progress bar; a function is called as `progress(done, total, text)`; None is
        silent.

    Returns
    -------
    Measures
        A record; a measure that is out of reach is None.

    Raises
    ------
    InvalidParameter
        If the planner is not an fmdp.Exact for the average reward and the nominal model.
    """
    check_model(model, "measure")
    if planner is not None and not isinstance(planner, Exact):
        raise InvalidParameter(
            f"the planner of measure must be an fmdp.Exact, whose bias the spans are of; "
            f"got {quoted(planner)}"
        )
    if planner is not None and planner.criterion != "average":
        raise InvalidParameter(
            f"measure is about the average reward; got a planner with criterion {planner.criterion}"
        )
    if planner is not None and planner.intervals != "nominal":
        raise InvalidParameter(
            f"measure is about the model's own numbers; got a planner with intervals "
            f"{planner.intervals}"
        )
    if progress is not True:
        with reporting(progress, "", "measure"):
            return _measured(model, planner, progress or None)
    title = f"measuring {model.name or 'the model'}"
    with showing(title, line_of_parts) as show:
        return _measured(model, planner, lambda *parts: show(parts))


def _measured(model: FactoredMDP, planner: Exact | None, progress: PartsReport | None) -> Measures:
    if planner is None and _beyond_exact(model.structure):
        plan = _plan_on_counts(model, progress)
        if plan is not None:
            return _record(model.structure, plan)
    model = expand(model)
    structure = model.structure
    plan = _plan(model, planner, progress)
    mixing: float | None = None
    if plan is not None and isinstance(plan.policy, TablePolicy):
        actions = plan.policy.actions.astype(np.int64)
        mixing = mixing_time(model, actions, progress=progress)
    distance = diameter(model, progress=progress) if structure.n_states <= EXACT_STATES else None
    largest = largest_spans(model, progress=progress)
    return _record(structure, plan, mixing, distance, largest)


def _record(
    structure: Structure,
    plan: Plan | None,
    mixing: float | None = None,
    distance: Diameter | None = None,
    largest: LargestSpans | None = None,
) -> Measures:
    """Return the measures; what is None is out of reach."""
    spans = None if plan is None else _spans(plan, largest)
    bounds = None
    if plan is not None and plan.gain_lower is not None and plan.gain_upper is not None:
        bounds = (plan.gain_lower, plan.gain_upper)
    return Measures(
        diameter=None if distance is None else distance.value,
        diameter_bounds=None if distance is None else (distance.lower, distance.upper),
        span=None if spans is None else spans[0],
        factored_spans=None if spans is None else spans[1:],
        factored_span_sum=None if spans is None else sum(spans[1:]),
        largest_span=None if largest is None else largest.value,
        largest_span_bounds=None if largest is None else largest.span,
        largest_factored_spans=None if largest is None else largest.factored_values,
        largest_factored_spans_bounds=None if largest is None else largest.factored,
        largest_factored_span_sum=None if largest is None else largest.factored_sum,
        gain=None if plan is None else plan.gain,
        gain_bounds=bounds,
        status="too_large" if plan is None else plan.status.value,
        mixing_time=mixing,
        m=structure.m,
        l=structure.l,
        L=structure.max_scope_size,
        W=structure.max_state_size,
    )


def _spans(plan: Plan, largest: LargestSpans | None) -> tuple[float, ...] | None:
    """Return the span and the factored spans of the optimal bias.

    A plan stops when its gain is precise enough, and its bias may still be far from the limit. So
    the exact solution of the optimality equation is used if it is known and unique.
    """
    if largest is not None and largest.of_bias is not None:
        return largest.of_bias
    if plan.span is None or plan.factored_spans is None:
        return None
    return plan.span, *plan.factored_spans


def _beyond_exact(structure: Structure) -> bool:
    """Return whether there are too many states or actions for the measures of joint states."""
    return structure.n_states > EXACT_STATES or structure.n_actions > EXACT_STATES


def _report_to(progress: PartsReport | None) -> Callable[[Mapping[str, Any]], None]:
    def report(status: Mapping[str, Any]) -> None:
        if progress is not None:
            progress(0, 1, f"planning: {status['sweeps']} sweeps, gap {status['gap']:.2g}")

    return report


def _plan_on_counts(model: FactoredMDP, progress: PartsReport | None) -> Plan | None:
    """Return the plan on counts of exchangeable parts, None without any or if it is too large."""
    if exchangeable_parts(model)[0] is None:
        return None
    try:
        plan = Counts().plan(model, progress=_report_to(progress))
    except TooLarge:
        return None
    plan.status.raise_if_interrupted()
    return plan


def _plan(model: FactoredMDP, planner: Exact | None, progress: PartsReport | None) -> Plan | None:
    """Return the exact plan, or None if the model is too large."""
    structure = model.structure
    if _beyond_exact(structure):
        return None
    unit = structure.reward_range_total or structure.reward_unit
    chosen = planner or Exact(tolerance=PRECISION * unit)
    try:
        plan = chosen.plan(model, progress=_report_to(progress))
    except TooLarge:
        return None
    plan.status.raise_if_interrupted()
    return plan
