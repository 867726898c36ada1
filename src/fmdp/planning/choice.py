"""One verb: plan for a model, with the planner that is asked for or the one that fits."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp._base.numerals import seconds_text
from fmdp._base.parameters import quoted
from fmdp._base.progress import reporting
from fmdp.elimination.backup import check_clock, usable_cores
from fmdp.elimination.decomposition import decompose
from fmdp.elimination.effects import choice_seconds, predicted_bytes
from fmdp.elimination.layout import choose_layout
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.planning.evaluate import POLICY_GAIN_STATES, evaluate_exactly
from fmdp.planning.exact.planner import Exact
from fmdp.planning.joining import parts_to_plan
from fmdp.planning.limits import GRACE_SECONDS, tolerance_of
from fmdp.planning.parts import joint_bytes
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.policies.policy import keep_constraints
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.registry import planner_of
from fmdp.planning.settings import refuse_targets
from fmdp.planning.status import Progress, Status, middle_of_bounds

EXACT_STATES = 1 << 22
_WITHOUT_POLICY_GAIN = (Status.INTERRUPTED, Status.INFEASIBLE, Status.UNBOUNDED)


def plan(
    model: FactoredMDP,
    planner: Planner | str | None = None,
    *,
    progress: bool | Progress | None = None,
) -> Plan:
    """Plan, and say what the returned policy is sure to gain where that can be computed.

    Ctrl-C ends it with what is known so far (`Status.INTERRUPTED`).

    Parameters
    ----------
    model
        What to plan for.
    planner
        Settings of a planner, such as `Exact(tolerance=1e-3)`, or a text: "exact",
        "alp,basis=pairs". None: exact where there are at most 2^22 states and the
        predicted memory fits, else the approximate linear program, and `stats["planner_reason"]`
        of the plan says why.
    progress
        True shows a bar; a function is called now and then with a mapping of what is known so
        far; None is silent.

    Returns
    -------
    Plan
        Policy, gain with its bounds, and a status that says what these are worth. The gain of the
        returned policy (`Plan.policy_gain`) is there up to 2^16 states.

    Raises
    ------
    InvalidParameter
        Where the model is no model, or a setting would have no effect in `plan`.
    UnknownName
        Where no planner has the name.
    TooLarge
        Where the given planner would take more than its memory limit.
    """
    check_model(model, "plan")
    chosen, reason = planner_of(planner, "plan"), None
    refuse_targets(chosen, "plan")
    if chosen is None:
        chosen, reason = choose_planner(model.structure)
    with reporting(progress, f"planning {model.name}".rstrip(), "plan") as report:
        found = planned(model, chosen, report)
    if reason is None:
        return found
    return replace(found, stats={**found.stats, "planner_reason": reason})


def planned(model: FactoredMDP, chosen: Planner, progress: Progress | None = None) -> Plan:
    """Return the plan of a planner, with the gain of its policy where that can be computed."""
    begun = time.monotonic()
    found = plan_with(chosen, model, progress=progress)
    keep_constraints(found.policy, model.structure.constraints)
    if found.policy is None or found.status in _WITHOUT_POLICY_GAIN:
        return found
    if isinstance(found.policy, TimedPolicy):
        return found  # over its horizon it has a value, and no gain
    if model.structure.n_states > POLICY_GAIN_STATES:
        return found
    started = time.perf_counter()
    max_seconds = getattr(chosen, "max_seconds", None)
    if max_seconds is not None:
        max_seconds = max(max_seconds - (time.monotonic() - begun), GRACE_SECONDS)
    if progress is not None:
        told = progress

        def progress(news: Mapping[str, Any]) -> None:
            told({**news, "what": "evaluating the policy"})

    try:
        evaluation = evaluate_exactly(
            model,
            found.policy,
            tolerance=getattr(chosen, "tolerance", None),
            max_seconds=max_seconds,
            memory_limit=getattr(chosen, "memory_limit", None),
            progress=progress,
        )
    except TooLarge:
        return found
    except KeyboardInterrupt:
        return replace(found, status=Status.INTERRUPTED)
    if evaluation.status is Status.INTERRUPTED:
        return replace(found, status=Status.INTERRUPTED)
    assert evaluation.gain_lower is not None
    within = evaluation.gain_bounds or (evaluation.gain_lower, evaluation.gain_upper)
    stats = {
        **found.stats,
        "seconds_evaluation": time.perf_counter() - started,
        "policy_gain_bounds": within,
    }
    # What the policy is sure to gain: on this side of the truth it may be called a bound. The plan
    # may be sure of more.
    policy_gain = None if evaluation.gain is None else within[0]
    sure = found.gain_lower if found.status is Status.CONVERGED and found.bounds_best_gain else None
    if policy_gain is not None and sure is not None and sure > policy_gain:
        policy_gain = sure
        most = within[1]
        stats["policy_gain_bounds"] = (sure, most if most is None else max(sure, most))
    if not found.bounds_best_gain:
        return replace(found, policy_gain=policy_gain, stats=stats)
    if found.gain_lower is None:
        # It is all that an approximate plan can promise from below.
        lower = evaluation.gain_lower
        return replace(
            found, policy_gain=policy_gain, gain=policy_gain, gain_lower=lower, stats=stats
        )
    lower, gain = max(found.gain_lower, evaluation.gain_lower), found.gain
    if gain is not None or _has_one_gain(found, chosen):
        # The bounds may be closer than those of the plan alone.
        tolerance = tolerance_of(getattr(chosen, "tolerance", None), model.structure)
        gain = middle_of_bounds(lower, found.gain_upper, model.structure, tolerance)
    return replace(found, policy_gain=policy_gain, gain=gain, gain_lower=lower, stats=stats)


def _has_one_gain(found: Plan, chosen: Planner) -> bool:
    """Return whether the bounds of an exact plan enclose one number, the gain of every state."""
    several = found.status in (Status.MULTICHAIN, Status.DISCOUNTED)
    return isinstance(chosen, Exact) and chosen.criterion == "average" and not several


def plan_with(planner: Planner, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
    """The plan of a planner, which need not inherit from Planner: `prepare` is enough."""
    own = getattr(planner, "plan", None)
    if own is None:
        return _checked(Planner.plan(planner, model, progress=progress), planner)
    found: Plan = own(model, progress=progress)
    return of_model(_checked(found, planner), model, planner)


def _checked(found: object, planner: Planner) -> Plan:
    if not isinstance(found, Plan):
        raise InvalidParameter(
            f"planner {getattr(planner, 'name', planner)} must give a Plan; got {quoted(found)}"
        )
    return found


def default_planner(model: FactoredMDP, *, memory_limit: int | None = None) -> Planner:
    """Return the exact planner where it fits, else the approximate one."""
    return choose_planner(model.structure, memory_limit=memory_limit).planner


class Chosen(NamedTuple):
    """A planner that was chosen, and why it is not the exact one; None where it is."""

    planner: Planner
    reason: str | None


class Cost(NamedTuple):
    """What an exact plan is predicted to need."""

    memory: int
    """In bytes."""
    seconds: float
    """Of one sweep."""


def choose_planner(
    structure: Structure,
    *,
    most_states: int = EXACT_STATES,
    most_seconds: float = math.inf,
    by_parts: bool = True,
    memory_limit: int | None = None,
    deadline: float | None = None,
) -> Chosen:
    """Return the exact planner where its predicted cost allows it, else the approximate one.

    Exact plans are for at most `most_states` joint states, whose joint actions can be listed or
    taken one component at a time, within the memory limit and `most_seconds` per sweep of one
    thread.
    `by_parts`: whether independent parts are planned one by one. Raises TimeUp after the deadline.
    """
    limit = memory_limit if memory_limit is not None else available_memory() // 2
    reason = too_many(structure, most_states=most_states, by_parts=by_parts)
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
    from fmdp.planning.alp import ALP

    return Chosen(ALP(memory_limit=memory_limit), reason)


def too_many(
    structure: Structure, *, most_states: int = EXACT_STATES, by_parts: bool = True
) -> str | None:
    """Return why a structure has too many states or joint actions to be listed; None otherwise."""
    parts = parts_to_plan(structure) if by_parts else ()
    listed = max([part.structure.n_actions for part in parts] or [structure.n_actions])
    # With effects the components are taken one by one, however many joint actions there are.
    n_actions = listed if decompose(structure) is None else 1
    for what, number, most in (
        ("states", structure.n_states, most_states),
        ("actions", n_actions, EXACT_STATES),
    ):
        if number > most:
            return (
                f"{describe_count(number)} {what}; exact is the default up to "
                f"{describe_count(most)}"
            )
    return None


def exact_cost(
    structure: Structure,
    *,
    by_parts: bool = True,
    threads: int = 1,
    memory_limit: int | None = None,
    deadline: float | None = None,
) -> Cost:
    """Return what an exact plan is predicted to need.

    `by_parts`: whether independent parts are planned one by one. Raises TimeUp after the deadline.
    """
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
    layout = choose_layout(
        structure if effects is None else effects.after,
        threads=threads,
        memory_limit=memory_limit,
        look=partial(check_clock, deadline),
    )
    if effects is None:
        return Cost(layout.memory(threads), layout.seconds(threads))
    return Cost(
        predicted_bytes(effects, layout, threads),
        layout.seconds(threads) + choice_seconds(effects, threads),
    )
