"""The plan that the exact planner reports, made from the last state of its solution."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.ties import TIE_TOLERANCE
from fmdp.model import Structure
from fmdp.model.spaces import encode
from fmdp.planning.exact.bounds import average_bounds, discounted_value, policy_lower_bound
from fmdp.planning.exact.phases import ExactProblem
from fmdp.planning.exact.solver import State
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import TablePolicy, smallest_unsigned
from fmdp.planning.prepared import engine_stats, policy_in_time
from fmdp.planning.spans import factored_spans, span
from fmdp.planning.status import Status, middle_of_bounds

Vector = NDArray[np.float64]

_KNOWN = 1e-2
"""Estimated error of a span, relative to it, above which no span is reported."""


def report_bytes(criterion: str, structure: Structure) -> int:
    """Return the bytes per state that a plan needs at least: those of its report.

    Actions are chosen while h and L h are there, with a discount also the discounted h, over a
    horizon the values of the chosen actions. The policy is a copy in a smaller type. Then the bias
    takes the place of the actions.
    """
    vectors = 3 if criterion == "average" else 4
    return 8 * vectors + np.dtype(smallest_unsigned(structure.n_actions)).itemsize


def report(problem: ExactProblem, state: State, planner: str, started: float) -> Plan:
    """Return the plan, with the clock of time.perf_counter running since `started`."""
    if problem.discount == 1.0:
        return _average_plan(problem, state, planner, started)
    return _discounted_plan(problem, state, planner, started)


def _average_plan(problem: ExactProblem, state: State, planner: str, started: float) -> Plan:
    structure, stats = problem.structure, _stats(problem, state)
    lower = state.lower
    if _policies_decide(state):
        policy: TablePolicy | None = _policy_of_solution(problem, state)
    else:
        policy, image = policy_in_time(
            problem.settings,
            problem.backup,
            structure,
            state,
            state.h,
            problem.limits,
            problem.ties,
        )
        if image is not None:
            # The chosen actions may be worth a tie's slack less than L h promises.
            lower = policy_lower_bound(problem.backup, state.h, image)
            lower = max(lower, structure.reward_bounds[0])
    if state.status is Status.MULTICHAIN:
        low, high = _bounds_from_initial_state(problem, state)
        stats["gain_from_initial_state"] = 0.5 * (low + high)
        stats["gain_from_initial_state_bounds"] = (low, high)
    bias = spans = None
    if problem.describe and _solves_the_equation(state):
        if not (state.solved_by_policies or state.accelerated or state.unique):
            # There may be other biases.  This one is value iteration's, up to what is left of it.
            known = state.span_error is not None
            rest = state.sweeps * (state.upper - state.lower)
            stats["span_error"] = state.span_error if known else rest
        bias = problem.backup.to_canonical(state.h if state.bias is None else state.bias)
        bias -= bias.min()
        if not state.solved_by_policies or (state.solution and state.solution.unique_bias):
            spans = _known_spans(bias, structure, stats.get("span_error", 0.0))
    one_gain = state.status not in (Status.MULTICHAIN, Status.DISCOUNTED)
    gain = middle_of_bounds(lower, state.upper, structure, problem.limits.tolerance)
    return Plan(
        planner=planner,
        status=state.status,
        policy=policy,
        gain=gain if one_gain else None,
        gain_lower=lower,
        gain_upper=state.upper,
        span=None if bias is None or spans is None else span(bias),
        factored_spans=spans,
        iterations=state.sweeps,
        seconds=time.perf_counter() - started,
        ties=problem.ties.name,
        bias=bias,
        stats=stats,
    )


def _discounted_plan(problem: ExactProblem, state: State, planner: str, started: float) -> Plan:
    structure, discount, stats = problem.structure, problem.discount, _stats(problem, state)
    policy, image = policy_in_time(
        problem.settings,
        problem.backup,
        structure,
        state,
        np.multiply(state.h, discount, out=state.scratch),
        problem.limits,
        problem.ties,
    )
    lower = upper = objective = bias = spans = None
    if image is not None and np.isfinite(state.lower):
        base = state.h if state.solved_by_policies else image
        value, mean, stats["objective_bounds"] = discounted_value(
            problem.backup, base, discount, state.lower, state.upper, state.slack, out=image
        )
        actions = None if policy is None else policy.actions
        lower, upper = average_bounds(problem.backup, value, actions, image=state.scratch)
        if state.status in (Status.CONVERGED, Status.PRECISION_LIMIT):
            objective = mean
        if problem.describe and state.status is Status.CONVERGED:
            bias = problem.backup.to_canonical(value)
            spans = _known_spans(bias, structure, 0.0)
    return Plan(
        planner=planner,
        status=state.status,
        policy=policy,
        gain=None,
        gain_lower=lower,
        gain_upper=upper,
        span=None if bias is None or spans is None else span(bias),
        factored_spans=spans,
        objective=objective,
        iterations=state.sweeps,
        seconds=time.perf_counter() - started,
        ties=problem.ties.name,
        bias=bias,
        stats=stats,
    )


def _stats(problem: ExactProblem, state: State) -> dict[str, Any]:
    stats: dict[str, Any] = {"damping": state.damping, **engine_stats(problem.backup)}
    stats["accelerated"] = 0
    acceleration, backup = state.acceleration, problem.backup
    if acceleration is not None:
        stats["accelerated"] = acceleration.kept if state.accelerated else 0
        vectors = problem.sweep_bytes(state.unique) * backup.n_states
        sweeping = backup.program_bytes + vectors + acceleration.bytes
        stats["memory_bytes"] = max(sweeping, backup.predicted_bytes)
        if acceleration.on_disk:
            stats["disk_bytes"] = acceleration.vector_bytes
    return stats


def _policies_decide(state: State) -> bool:
    """Return whether the policy is the one of policy iteration, not the greedy one at h."""
    ended = state.status in (Status.MULTICHAIN, Status.DISCOUNTED)
    return ended or state.solved_by_policies


def _policy_of_solution(problem: ExactProblem, state: State) -> TablePolicy:
    assert state.solution is not None
    assert state.solution.actions is not None
    structure = problem.structure
    actions = state.solution.actions // problem.targets
    return TablePolicy(structure.state_sizes, structure.action_sizes, actions, structure.naming)


def _bounds_from_initial_state(problem: ExactProblem, state: State) -> tuple[float, float]:
    assert state.solution is not None
    assert state.solution.gains is not None
    structure, gains = problem.structure, state.solution.gains
    initial = getattr(problem.tables, "initial_state", (0,) * structure.m)
    place = encode(initial, structure.state_sizes)
    return float(gains.lower[place]), float(gains.upper[place])


def _solves_the_equation(state: State) -> bool:
    """Return whether h is a bias: that of an iteration that was stopped is not."""
    if state.solved_by_policies and (state.solution is None or state.solution.h is None):
        return False
    return state.status is Status.CONVERGED or state.bias is not None


def _known_spans(bias: Vector, structure: Structure, error: float) -> tuple[float, ...] | None:
    """Return the factored spans of a bias; None if its error is too large to report a span."""
    if error > max(_KNOWN * span(bias), TIE_TOLERANCE * structure.reward_unit):
        return None
    return factored_spans(bias, structure.state_sizes)
