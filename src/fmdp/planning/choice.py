"""`fmdp.plan`, the choice of a default planner, and the predicted cost of exact plans."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp._base.numerals import seconds_text
from fmdp._base.parameters import quoted
from fmdp._base.progress import reporting
from fmdp.elimination.backup import usable_cores
from fmdp.elimination.decomposition import decompose
from fmdp.elimination.effects import choice_seconds, decision_bytes, program_bytes
from fmdp.elimination.layout import choose_layout
from fmdp.elimination.tuning import STATE_BYTES
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.exchangeable.finding import exchangeable_by_alike, exchangeable_parts
from fmdp.model.exchangeable.parts import Exchangeable
from fmdp.model.expansion import expanded_structure, shared_draws
from fmdp.model.factored import check_model
from fmdp.model.products import FLAT_LIMIT_BYTES, flat_bytes
from fmdp.planning.constrained.limits import limits_of
from fmdp.planning.constrained.planner import plan_with_limits
from fmdp.planning.counts.cost import PredictedCost, predicted_cost
from fmdp.planning.counts.planner import Counts
from fmdp.planning.coupled import Coupled
from fmdp.planning.coupled.fleet import fewest_counts, what_parts_share
from fmdp.planning.evaluate import POLICY_GAIN_STATES, Evaluation, evaluate_exactly
from fmdp.planning.exact.planner import Exact
from fmdp.planning.joining import parts_to_plan
from fmdp.planning.limits import GRACE_SECONDS, tolerance_of
from fmdp.planning.parts import joint_bytes
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.policies.archive import StoredPolicy
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.registry import planner_of
from fmdp.planning.settings import refuse_targets
from fmdp.planning.status import Progress, Status, middle_of_bounds

EXACT_STATES = 1 << 22
"""Most states for which the exact planner is the default."""
COUNTED_STATES = 1 << 12
"""Fewest joint states for which counts are the default: smaller models are planned at once."""
COUNTS_PER_STATE = 8
"""Counts are the default if they are by this factor fewer than joint states, and a sweep by this
factor faster: the parts have to be found first."""
COUNTS_SECONDS = 2.0
"""Longest predicted sweep with which counts are the default instead of an approximate planner."""
_SECONDS_PER_FLAT_BYTE = 1e-10
"""A sweep over a flat model reads every probability once."""
_WITHOUT_POLICY_GAIN = (Status.INTERRUPTED, Status.INFEASIBLE, Status.UNBOUNDED)


def plan(
    model: FactoredMDP,
    planner: Planner | str | None = None,
    *,
    limits: Mapping[str, Any] | None = None,
    progress: bool | Progress | None = None,
) -> Plan:
    """Plan for a model, and evaluate the resulting policy if that is feasible.

    Ctrl-C returns the results so far, with `Status.INTERRUPTED`.

    Parameters
    ----------
    model
        The model.
    planner
        A planner, such as `Exact(tolerance=1e-3)`, or a text: "exact", "alp,basis=pairs". None is
        exact if there are at most 2^22 states and the predicted memory fits; `counts` if the model
        has thousands of states and exchangeable parts, so that counts are much cheaper; otherwise
        it is `coupled` for parts that share at most budgets, else the approximate linear program,
        and `stats["planner_reason"]` of the plan gives the reason.
    limits
        Limits on long-run averages: {name: (sense, value)}, the name that of a reward factor or a
        quantity, the sense "<=" or ">=". Exact planner only; docs/limits.md says what the plan then
        reports.
    progress
        True shows a progress bar; a callback receives a mapping of intermediate results from time
        to time; None is silent.

    Returns
    -------
    Plan
        Policy, gain with bounds, and a status that says how far these can be trusted. The gain of
        the returned policy (`Plan.policy_gain`) is computed for up to 2^16 states.

    Raises
    ------
    InvalidParameter
        If `model` is not a model, or a setting would have no effect in `plan`.
    UnknownName
        If no planner, reward factor or quantity has the name.
    Infeasible
        If no policy satisfies the limits; the message has the smallest achievable average.
    TooLarge
        If the given planner needs more than its memory limit.
    """
    check_model(model, "plan")
    chosen, reason = planner_of(planner, "plan"), None
    refuse_targets(chosen, "plan")
    bounds = limits_of(limits)
    if chosen is None:
        chosen, reason = choose_planner_of(model, averages=bool(bounds))
    with reporting(progress, f"planning {model.name}".rstrip(), "plan") as report:
        if bounds:
            return plan_with_limits(model, bounds, chosen, report)
        result = planned(model, chosen, report)
    if reason is None:
        return result
    return replace(result, stats={**result.stats, "planner_reason": reason})


def planned(model: FactoredMDP, chosen: Planner, progress: Progress | None = None) -> Plan:
    """Return the plan of a planner, with the gain of its policy if that is feasible."""
    deadline = Deadline.after(getattr(chosen, "max_seconds", None))
    result = plan_with(chosen, model, progress=progress)
    made: object = result.policy
    if isinstance(made, StoredPolicy):
        made.take_constraints(model.structure.constraints)
    if result.policy is None or result.status in _WITHOUT_POLICY_GAIN:
        return result
    if result.policy_gain is not None:  # known from the plan itself
        return result
    if isinstance(result.policy, TimedPolicy):  # it has a value over its horizon, but no gain
        return result
    if model.structure.n_states > POLICY_GAIN_STATES:
        return result
    started = time.perf_counter()
    max_seconds = deadline.remaining()
    if max_seconds is not None:
        max_seconds = max(max_seconds, GRACE_SECONDS)
    try:
        evaluation = evaluate_exactly(
            model,
            result.policy,
            tolerance=getattr(chosen, "tolerance", None),
            max_seconds=max_seconds,
            memory_limit=getattr(chosen, "memory_limit", None),
            progress=_of_evaluation(progress),
        )
    except TooLarge:
        return result
    except KeyboardInterrupt:
        return replace(result, status=Status.INTERRUPTED)
    if evaluation.status is Status.INTERRUPTED:
        return replace(result, status=Status.INTERRUPTED)
    stats = {**result.stats, "seconds_evaluation": time.perf_counter() - started}
    return _with_policy_gain(replace(result, stats=stats), evaluation, chosen, model.structure)


def _of_evaluation(progress: Progress | None) -> Progress | None:
    if progress is None:
        return None
    return lambda state: progress({**state, "what": "evaluating the policy"})


def _with_policy_gain(
    result: Plan, evaluation: Evaluation, chosen: Planner, structure: Structure
) -> Plan:
    """Return the plan with the certified gain of its policy, which may raise its lower bound."""
    assert evaluation.gain_lower is not None
    within = evaluation.gain_bounds or (evaluation.gain_lower, evaluation.gain_upper)
    # The lower bound is reported, so that the policy gain never exceeds the true gain. The lower
    # bound of a converged plan holds for its policy as well, and may be larger.
    policy_gain = None if evaluation.gain is None else within[0]
    converged = result.status is Status.CONVERGED and result.bounds_best_gain
    of_plan = result.gain_lower if converged else None
    if policy_gain is not None and of_plan is not None and of_plan > policy_gain:
        policy_gain = of_plan
        most = within[1]
        within = (of_plan, most if most is None else max(of_plan, most))
    stats = {**result.stats, "policy_gain_bounds": within}
    result = replace(result, policy_gain=policy_gain, stats=stats)
    if not result.bounds_best_gain:
        return result
    if result.gain_lower is None:
        # The policy's gain is the only lower bound of an approximate plan.
        return replace(result, gain=policy_gain, gain_lower=evaluation.gain_lower)
    lower, gain = max(result.gain_lower, evaluation.gain_lower), result.gain
    if gain is not None or _has_one_gain(result, chosen):
        # The bounds may be closer than those of the plan alone.
        tolerance = tolerance_of(getattr(chosen, "tolerance", None), structure)
        gain = middle_of_bounds(lower, result.gain_upper, structure, tolerance)
    return replace(result, gain=gain, gain_lower=lower)


def _has_one_gain(result: Plan, chosen: Planner) -> bool:
    """Return whether the bounds of an exact plan enclose a single gain, that of every state."""
    differ = result.status in (Status.MULTICHAIN, Status.DISCOUNTED)
    return isinstance(chosen, Exact) and chosen.criterion == "average" and not differ


def plan_with(planner: Planner, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
    """Return the plan of a planner; third-party planners only need `prepare`."""
    method = getattr(planner, "plan", None)
    if method is None:
        return _checked(Planner.plan(planner, model, progress=progress), planner)
    result: Plan = method(model, progress=progress)
    return of_model(_checked(result, planner), model, planner)


def _checked(result: object, planner: Planner) -> Plan:
    if not isinstance(result, Plan):
        raise InvalidParameter(
            f"planner {getattr(planner, 'name', planner)} must give a Plan; got {quoted(result)}"
        )
    return result


def default_planner(model: FactoredMDP, *, memory_limit: int | None = None) -> Planner:
    """Return the exact planner if it fits, otherwise the approximate one."""
    return choose_planner(model.structure, memory_limit=memory_limit).planner


class Chosen(NamedTuple):
    """A default planner, and the reason if it is not the exact one."""

    planner: Planner
    reason: str | None


class Cost(NamedTuple):
    """Predicted cost of an exact plan: memory in bytes, and seconds per sweep."""

    memory: int
    seconds: float


def choose_planner_of(
    model: FactoredMDP,
    *,
    settings: Collection[str] = (),
    averages: bool = False,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> Chosen:
    """Return the planner on counts where that is clearly cheaper, else `choose_planner`.

    `settings` are names of settings that the planner must have; with `averages`, limits on
    long-run averages are given, which only the exact planner takes. Raise TimeUp after the
    deadline.
    """
    chosen = choose_planner(
        model.structure,
        coupled=takes_all(Coupled, settings),
        memory_limit=memory_limit,
        deadline=deadline,
    )
    if averages or model.structure.n_states < COUNTED_STATES or not takes_all(Counts, settings):
        return chosen
    if not _counts_pay(model, chosen, memory_limit, deadline):
        return chosen
    return Chosen(Counts(memory_limit=memory_limit), None)


def counts_by_alike(
    structure: Structure, *, most_seconds: float, memory_limit: int | None = None
) -> Counts | None:
    """Return the planner on counts if alike rows make parts exchangeable and it is cheap enough.

    `most_seconds` is the largest predicted time of a sweep.
    """
    parts = exchangeable_by_alike(structure)
    cost = None if parts is None else _cost_on_counts(parts, memory_limit)
    if cost is None or cost.seconds > most_seconds:
        return None
    return Counts(memory_limit=memory_limit)


def _cost_on_counts(parts: Exchangeable, memory_limit: int | None) -> PredictedCost | None:
    """Return the predicted cost of a plan on counts; None if it does not fit."""
    try:
        cost = predicted_cost(parts)
    except TooLarge:
        return None
    limit = memory_limit if memory_limit is not None else available_memory() // 2
    return None if cost.states > EXACT_STATES or 2 * cost.memory > limit else cost


def takes_all(kind: type[Planner], settings: Collection[str]) -> bool:
    """Return whether a planner has all these settings."""
    return {parameter.name for parameter in kind.parameters}.issuperset(settings)


def _counts_pay(
    model: FactoredMDP, chosen: Chosen, memory_limit: int | None, deadline: Deadline
) -> bool:
    """Return whether planning on counts fits, and is clearly cheaper than the other planner."""
    coupled = isinstance(chosen.planner, Coupled)
    if coupled and fewest_counts(model.structure) > EXACT_STATES:
        return False  # looking for parts among 100,000 takes longer than the plan
    parts, _ = exchangeable_parts(model)
    deadline.check()
    cost = None if parts is None else _cost_on_counts(parts, memory_limit)
    if cost is None:
        return False
    if not isinstance(chosen.planner, Exact):
        return cost.seconds <= COUNTS_SECONDS
    limit = memory_limit if memory_limit is not None else available_memory() // 2
    exact = exact_cost(model.structure, threads=usable_cores(), memory_limit=limit)
    fewer = COUNTS_PER_STATE * cost.states <= model.structure.n_states
    return fewer and COUNTS_PER_STATE * cost.seconds <= exact.seconds


def choose_planner(
    structure: Structure,
    *,
    most_states: int = EXACT_STATES,
    most_seconds: float = math.inf,
    by_parts: bool = True,
    coupled: bool = True,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> Chosen:
    """Return the exact planner if its predicted cost allows it, otherwise an approximate one.

    Exact plans are limited to `most_states` joint states, whose joint actions can be listed or
    decomposed into components, to the memory limit, and to `most_seconds` per sweep of one thread.
    With `by_parts`, independent parts are planned one by one. With `coupled`, that planner is the
    approximate one for parts that share budgets. Raises TimeUp after the deadline.
    """
    limit = memory_limit if memory_limit is not None else available_memory() // 2
    reason = too_many(structure, most_states=most_states, by_parts=by_parts)
    if reason is None and structure.derived:
        reason = why_not_expanded(structure)
    if reason is None:
        threads = 1 if most_seconds < math.inf else usable_cores()
        cost = exact_cost(
            structure, by_parts=by_parts, threads=threads, memory_limit=limit, deadline=deadline
        )
        if cost.memory > limit:
            reason = (
                f"exact needs {describe_bytes(cost.memory)}; the memory limit is "
                f"{describe_bytes(limit)}"
            )
        elif cost.seconds > most_seconds:
            reason = (
                f"a sweep over {describe_count(structure.n_states)} states and "
                f"{describe_count(structure.n_actions)} joint actions is predicted to take "
                f"{seconds_text(cost.seconds)}; exact is the learners' default up to "
                f"{seconds_text(most_seconds)}"
            )
    if reason is None:
        return Chosen(Exact(memory_limit=memory_limit), None)
    shared = what_parts_share(structure) if coupled else None
    if shared is not None:
        return Chosen(Coupled(memory_limit=memory_limit), f"{reason}; {shared}")
    # Imported on use: it loads a solver of linear programs.
    from fmdp.planning.alp import ALP

    return Chosen(ALP(memory_limit=memory_limit), reason)


def why_not_expanded(structure: Structure) -> str | None:
    """Return why exact plans cannot do without derived variables; None if they can."""
    if shared_draws(structure):
        needed, limit = flat_bytes(structure), FLAT_LIMIT_BYTES
        return (
            None
            if needed <= limit
            else (
                f"several state variables depend on one drawn variable, and exact then needs "
                f"{describe_bytes(needed)}; at most {describe_bytes(limit)}"
            )
        )
    try:
        expanded_structure(structure)
    except TooLarge as error:
        return str(error)
    return None


def too_many(
    structure: Structure, *, most_states: int = EXACT_STATES, by_parts: bool = True
) -> str | None:
    """Return why a structure has too many states or joint actions to be listed; None otherwise."""
    if structure.n_states > most_states:
        return _above("states", structure.n_states, most_states)
    parts = parts_to_plan(structure) if by_parts else ()
    listed = max([part.structure.n_actions for part in parts] or [structure.n_actions])
    # With effects, the cost depends on the components and not on the number of joint actions.
    if listed > EXACT_STATES and decompose(structure) is None:
        return _above("actions", listed, EXACT_STATES)
    return None


def _above(what: str, number: int, most: int) -> str:
    return f"{describe_count(number)} {what}; exact is the default up to {describe_count(most)}"


def exact_cost(
    structure: Structure,
    *,
    by_parts: bool = True,
    threads: int = 1,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> Cost:
    """Return the predicted cost of an exact plan; raise TimeUp after the deadline.

    With `by_parts`, independent parts are planned one by one.
    """
    if shared_draws(structure):  # planned as one flat variable
        size = flat_bytes(structure)
        return Cost(2 * size, _SECONDS_PER_FLAT_BYTE * size)
    structure = expanded_structure(structure)
    parts = parts_to_plan(structure) if by_parts else ()
    if parts:
        costs = [
            exact_cost(
                part.structure, threads=threads, memory_limit=memory_limit, deadline=deadline
            )
            for part in parts
        ]
        memory = sum(cost.memory for cost in costs) + joint_bytes(structure)
        return Cost(memory, sum(cost.seconds for cost in costs))
    effects = decompose(structure)
    vectors = STATE_BYTES * structure.n_states
    layout = choose_layout(
        structure if effects is None else effects.after,
        threads=threads,
        memory_limit=None if memory_limit is None else memory_limit - vectors,
        deadline=deadline,
    )
    if effects is None:
        return Cost(vectors + layout.memory(threads), layout.seconds(threads))
    return Cost(
        vectors + program_bytes(effects, layout, threads) + decision_bytes(effects),
        layout.seconds(threads) + choice_seconds(effects, threads),
    )
