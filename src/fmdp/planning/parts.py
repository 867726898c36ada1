"""Planning for models with independent parts: one plan per part, joined into a plan of the whole.

The optimal gain, bias and discounted value of such a model are sums over its parts
(model/independence.py), and playing the optimal policy of each part is optimal. Planning the parts
one by one costs the sum of their sweeps instead of sweeps over the product of their states and
actions. Bounds are sums of the parts' certified bounds, rounded outwards. Each part gets an equal
share of the tolerance. The policy and the bias are tables over the joint states.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp._base.parameters import quoted
from fmdp.elimination.ties import Ties, plan_seed
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.independence import Part
from fmdp.planning.joining import (
    Whole,
    joint_status,
    parts_to_plan,
    rounded_sum,
    sum_of_bounds,
)
from fmdp.planning.plan import Plan, Prepared
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.status import Progress, Status, Tables

_ARRAYS = 4
"""Arrays over the joint states while plans are joined: actions, bias, and a copy of each."""
_NO_TIME = 1e-9
"""Time limit of a part when no time is left, in seconds; a limit must be above 0."""


def joint_bytes(structure: Structure) -> int:
    """Return the memory that joining the plans of the parts takes."""
    return 8 * _ARRAYS * structure.n_states


def limit_of_parts(structure: Structure, memory_limit: int | None) -> int:
    """Return the memory limit of a single part; raise TooLarge if the joint tables do not fit.

    `memory_limit` is that of the whole plan in bytes; None is half of the free memory.
    """
    limit = available_memory() // 2 if memory_limit is None else memory_limit
    needed = joint_bytes(structure)
    if needed >= limit:
        raise TooLarge(
            f"the policy of an exact plan over {describe_count(structure.n_states)} states needs "
            f"{describe_bytes(needed)}; the memory limit is {describe_bytes(limit)}",
            needed_bytes=needed,
            limit_bytes=limit,
        )
    return limit - needed


def plan_parts(
    settings: Any, model: FactoredMDP, tolerance: float, progress: Progress | None
) -> Plan:
    """Plan each part of a model, the smallest first, and join the plans.

    Each part gets a share of the tolerance and the remaining time. After Ctrl-C the remaining parts
    are planned by a single sweep, so that there is a policy.
    """
    started = time.perf_counter()
    structure = model.structure
    parts = parts_to_plan(structure)
    memory_limit = limit_of_parts(structure, settings.memory_limit)
    plans: dict[int, Plan] = {}
    interrupted = False
    for p in sorted(range(len(parts)), key=lambda p: parts[p].structure.n_states):
        left = _time_left(settings.max_seconds, started)
        planner = replace(
            settings,
            tolerance=tolerance / len(parts),
            max_seconds=left,
            memory_limit=memory_limit,
            **_tie_seed_of(settings, p),
        )
        if interrupted:
            hasty = replace(planner, max_iterations=1, max_seconds=min(left or 1.0, 1.0))
            plans[p] = replace(hasty.plan(parts[p].model(model)), status=Status.INTERRUPTED)
            continue
        report = None if progress is None else _sum_progress(progress, parts, plans, p, tolerance)
        plans[p] = planner.plan(parts[p].model(model), progress=report)
        interrupted = plans[p].status is Status.INTERRUPTED
    in_order = [plans[p] for p in range(len(parts))]
    closed = None if settings.criterion == "discounted" else tolerance
    joined = join_plans(Whole(structure, parts), in_order, closed)
    return replace(joined, seconds=time.perf_counter() - started)


def _time_left(max_seconds: float | None, started: float) -> float | None:
    if max_seconds is None:
        return None
    return max(max_seconds - (time.perf_counter() - started), _NO_TIME)


def _tie_seed_of(settings: Any, number: int) -> dict[str, int]:
    """Return the tie seed of a part; different seeds let equal parts break ties differently."""
    if settings.ties != "random":
        return {}
    return {"tie_seed": plan_seed(settings.tie_seed or 0, number)}


def _sum_progress(
    progress: Progress,
    parts: Sequence[Part],
    plans: Mapping[int, Plan],
    current: int,
    tolerance: float,
) -> Progress:
    """Return a callback that adds the bounds of the other parts to those of the current one."""
    lower, upper = 0.0, 0.0
    for p, part in enumerate(parts):
        if p != current:
            known = plans[p].gain_bounds if p in plans else part.structure.reward_bounds
            lower += known[0] or 0.0
            upper += known[1] or 0.0

    def report(news: Mapping[str, Any]) -> None:
        if news.get("gain_lower") is None or news.get("gain_upper") is None:
            return progress(news)
        low, high = news["gain_lower"] + lower, news["gain_upper"] + upper
        whole = {"gain_lower": low, "gain_upper": high, "gap": high - low, "tolerance": tolerance}
        return progress({**news, **whole})

    return report


class PreparedParts:
    """A planner that is prepared for each part of a structure, and the warm state of each.

    Each part gets an equal share of the tolerance and of the time.
    """

    def __init__(
        self,
        settings: Any,
        structure: Structure,
        tolerance: float,
        prepare: Callable[[Any, Structure], Prepared],
    ) -> None:
        self.settings = settings
        self.structure = structure
        self.parts = parts_to_plan(structure)
        self._whole = Whole(structure, self.parts)
        self._tolerance = tolerance
        count, seconds = len(self.parts), settings.max_seconds
        shares = replace(
            settings,
            tolerance=tolerance / count,
            max_seconds=None if seconds is None else seconds / count,
            memory_limit=limit_of_parts(structure, settings.memory_limit),
        )
        self._prepared = [prepare(shares, part.structure) for part in self.parts]

    def solve(
        self,
        tables: Tables,
        *,
        tolerance: float | None = None,
        ties: Ties | None = None,
        progress: Progress | None = None,
        **how: Any,
    ) -> Plan:
        """Plan with these tables part by part, each from its last solution.

        `tolerance` and `ties` replace those of the settings; every part gets a different tie seed.
        `how` contains further arguments of the planner's `solve`.
        """
        started = time.perf_counter()
        goal = self._tolerance if tolerance is None else tolerance
        breaking = self.settings.tie_breaking if ties is None else ties
        plans: list[Plan] = []
        for number, (prepared, part) in enumerate(zip(self._prepared, self.parts, strict=True)):
            if plans and plans[-1].status is Status.INTERRUPTED:
                plans.append(_not_planned(self.settings, part.structure))
                continue
            how["ties"] = _ties_of_part(self._whole, part, breaking, number)
            how["tolerance"] = goal / len(self.parts)
            plans.append(prepared.solve(part.tables(tables), progress=progress, **how))
        closed = None if self.settings.criterion == "discounted" else goal
        joined = join_plans(self._whole, plans, closed)
        return replace(joined, seconds=time.perf_counter() - started)

    def forget(self) -> None:
        """Start the next solve of every part from zero."""
        for prepared in self._prepared:
            prepared.forget()  # type: ignore[attr-defined]

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        """Return the warm vectors of all parts, named by part."""
        return {
            f"{number}.{name}": array
            for number, prepared in enumerate(self._prepared)
            for name, array in prepared.warm_state().items()
        }

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state that `warm_state` has returned."""
        by_part: list[dict[str, NDArray[Any]]] = [{} for _ in self.parts]
        for name, array in state.items():
            number, dot, kind = name.partition(".")
            if not dot:
                continue  # a vector over the joint states, from before results version 5
            if number not in {str(p) for p in range(len(by_part))}:
                raise InvalidParameter(
                    f"a planner of {len(by_part)} independent parts keeps no vector "
                    f"{quoted(name)}; must be one of 0.plain, ..., {len(by_part) - 1}.vertex"
                )
            by_part[int(number)][kind] = array
        for prepared, state_of_part in zip(self._prepared, by_part, strict=True):
            prepared.restore_warm_state(state_of_part)


def _not_planned(settings: Any, structure: Structure) -> Plan:
    """Return the plan of a part that was not started: its bounds are the range of the rewards."""
    lower, upper = structure.reward_bounds
    return Plan(settings.name, Status.INTERRUPTED, gain_lower=lower, gain_upper=upper)


def _ties_of_part(whole: Whole, part: Part, ties: Ties, number: int) -> Ties:
    """Return how a part breaks its ties.

    The numbers of tries of a joint action are sums over the factors. With all other parts fixed,
    here at state 0 and action 0, they differ only by the tries of this part.
    """
    tries = ties.tries
    if tries is not None:
        rows = tries[whole.joint_states(part)]
        tries = np.ascontiguousarray(rows[:, whole.joint_actions(part)])
    return replace(ties, seed=plan_seed(ties.seed, number), tries=tries)


def join_plans(whole: Whole, plans: Sequence[Plan], tolerance: float | None = None) -> Plan:
    """Return the plan of the whole from the plans of its parts.

    If the bounds of the whole differ by at most the tolerance, it has converged, whatever the
    statuses of the parts. The tolerance is None under a discount, where the iteration does not
    bound the gain.
    """
    status = joint_status(plan.status for plan in plans)
    lower, upper = sum_of_bounds([plan.gain_bounds for plan in plans])
    gain = None
    if lower is not None and upper is not None:
        met = tolerance is not None and upper - lower <= tolerance
        if met and status is not Status.INTERRUPTED:
            status = Status.CONVERGED
        if met or all(plan.gain is not None for plan in plans):
            gain = 0.5 * (lower + upper)
    return Plan(
        planner=plans[0].planner,
        status=status,
        policy=_joint_policy(whole, plans),
        gain=gain,
        gain_lower=lower,
        gain_upper=upper,
        span=rounded_sum([plan.span for plan in plans]),
        factored_spans=whole.by_variable([plan.factored_spans for plan in plans], constant=0.0),
        objective=rounded_sum([plan.objective for plan in plans]),
        iterations=max(plan.iterations for plan in plans),
        ties=plans[0].ties,
        bias=_joint_bias(whole, plans),
        marginals=whole.by_variable([plan.marginals for plan in plans], constant=np.zeros(1)),
        stats=_joint_stats(whole.structure, status, plans),
        bounds_best_gain=all(plan.bounds_best_gain for plan in plans),
    )


def _joint_policy(whole: Whole, plans: Sequence[Plan]) -> TablePolicy | None:
    policies: list[Any] = [plan.policy for plan in plans]
    if None in policies:
        return None
    structure = whole.structure
    actions = whole.join_actions([policy.actions for policy in policies])
    return TablePolicy(structure.state_sizes, structure.action_sizes, actions, structure.naming)


def _joint_bias(whole: Whole, plans: Sequence[Plan]) -> NDArray[np.float64] | None:
    biases = [plan.bias for plan in plans if plan.bias is not None]
    return whole.sum_over_states(biases) if len(biases) == len(plans) else None


def _joint_stats(structure: Structure, status: Status, plans: Sequence[Plan]) -> dict[str, Any]:
    """Return the statistics of the part with the largest sweeps, with sums where they add up."""
    largest = max(plans, key=lambda plan: plan.stats.get("multiply_adds", 0))
    stats = {key: value for key, value in largest.stats.items() if key not in _OF_ONE_PART}
    stats["independent_parts"] = len(plans)
    for key in ("memory_bytes", "multiply_adds"):
        stats[key] = sum(plan.stats.get(key, 0) for plan in plans)
    stats["memory_bytes"] += joint_bytes(structure)
    errors = [plan.stats["span_error"] for plan in plans if "span_error" in plan.stats]
    if errors:
        stats["span_error"] = math.fsum(errors)
    unknown = (None, None)
    objective = sum_of_bounds([plan.stats.get("objective_bounds", unknown) for plan in plans])
    if None not in objective:
        stats["objective_bounds"] = objective
    if status is Status.MULTICHAIN:
        name = "gain_from_initial_state_bounds"
        low, high = sum_of_bounds([plan.stats.get(name, plan.gain_bounds) for plan in plans])
        if low is not None and high is not None:
            stats[name] = (low, high)
            stats["gain_from_initial_state"] = 0.5 * (low + high)
    return stats


_OF_ONE_PART = (
    "conditioned",
    "elimination_order",
    "nested_bounds",
    "gain_from_initial_state",
    "gain_from_initial_state_bounds",
    "objective_bounds",
    "span_error",
)
"""Statistics of a part that do not hold for the whole."""
