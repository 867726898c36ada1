"""The phases that only the exact planner has: start, proof of uniqueness, policies, polish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fmdp.elimination.backup import Backup
from fmdp.elimination.ties import TIE_TOLERANCE, Ties
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.exact import solver
from fmdp.planning.exact.direct import average_solution, discounted_solution
from fmdp.planning.exact.operators import OptimalOperator
from fmdp.planning.exact.polish import extended_bias, unique_bias
from fmdp.planning.exact.recurrence import always_reached, in_every_best_class
from fmdp.planning.exact.solver import Phase, PhaseFunction, PolicySolution, Problem, State
from fmdp.planning.exact.vanishing_discount import MOST_STATES, vanishing_discount_solution
from fmdp.planning.prepared import EngineSettings
from fmdp.planning.status import Progress, Tables

PATIENCE = 64
"""Sweeps after which a plan whose bias is not reported turns to policy iteration."""
POLISHED_PAIRS = 1 << 12
"""States x actions up to which a reported bias is solved for directly as well."""


@dataclass(frozen=True, eq=False, kw_only=True)
class ExactProblem(Problem):
    """A plan of the exact planner: tables, settings, and whether the bias is reported."""

    settings: EngineSettings
    tables: Tables
    ties: Ties
    describe: bool
    phases: Mapping[Phase, PhaseFunction] = field(default_factory=dict)

    @property
    def structure(self) -> Structure:
        return self.tables.structure

    @property
    def targets(self) -> int:
        """Joint targets per action: with vertex targets an engine's action is (action, targets)."""
        return self.backup.structure.n_actions // self.structure.n_actions

    def model(self) -> FactoredMDP | None:
        """Return the model for policy iteration; nested targets have none."""
        tables = self.tables
        if isinstance(tables, FactoredMDP):
            return tables
        if self.settings.targets == "vertex":
            return tables.extended()
        if not any(free.any() for free in tables.free):
            return FactoredMDP.trusted(tables.structure, tables.lower, tables.rewards)
        return None


def exact_problem(
    settings: EngineSettings,
    backup: Backup,
    tables: Tables,
    limits: solver.Limits,
    *,
    ties: Ties,
    discount: float,
    cold: bool,
    describe: bool,
    on_disk: bool = False,
    progress: Progress | None,
) -> ExactProblem:
    """Return the problem of a plan, with the phases that it may run."""
    structure, average = tables.structure, discount == 1.0
    phases = dict(solver.VALUE_ITERATION)
    phases[Phase.POLICY_ITERATION] = policy_iteration if average else discounted_policy_iteration
    if describe and cold and isinstance(tables, FactoredMDP):
        phases[Phase.START] = start
        phases[Phase.PROVE_UNIQUE] = prove_unique
    if describe and average and structure.n_states * structure.n_actions <= POLISHED_PAIRS:
        phases[Phase.POLISH] = polish
        phases[Phase.EXTEND] = extend
    hurry = average and not describe and structure.n_states <= MOST_STATES
    return ExactProblem(
        operator=OptimalOperator(backup),
        limits=limits,
        phases=phases,
        discount=discount,
        cold=cold,
        dampings=(1.0, solver.DAMPING) if average else (1.0,),
        reserve=tie_reserve(structure, limits) if average else 0.0,
        patience=PATIENCE if hurry else None,
        on_disk=on_disk,
        progress=progress,
        settings=settings,
        tables=tables,
        ties=ties,
        describe=describe,
    )


def tie_reserve(structure: Structure, limits: solver.Limits) -> float:
    """Return the part of the tolerance that is reserved for tie-breaking."""
    return min(TIE_TOLERANCE * structure.reward_unit, 0.25 * limits.tolerance)


def start(problem: ExactProblem, state: State) -> State:
    """Turn acceleration on, and look for a state that every policy reaches.

    Acceleration could change which of several biases is found.  Under a discount, or if a state is
    always reached, there is only one.
    """
    tables = problem.tables
    assert isinstance(tables, FactoredMDP)
    unique = state.unique or always_reached(tables, problem.limits.deadline) is not None
    return solver.start(problem, state._replace(unique=unique))


def prove_unique(problem: ExactProblem, state: State) -> State:
    """Try to prove that all solutions of the optimality equation are equal up to a constant.

    The proof needs a state in every recurrent class of every optimal policy.  Heuristic: argmax h
    is probably one.
    """
    if state.unique:
        return solver.after_proof(problem, state, True, 0)
    proved, sweeps = in_every_best_class(
        problem.backup, state.h, state.lower, int(state.h.argmax()), state.scratch
    )
    return solver.after_proof(problem, state, proved, sweeps)


def policy_iteration(problem: ExactProblem, state: State) -> State:
    """Solve by policies what the sweeps cannot: on the engine first if no bias is reported."""
    return solver.after_policy_iteration(problem, state, _best_policies(problem, state))


def discounted_policy_iteration(problem: ExactProblem, state: State) -> State:
    """Solve by policies under a discount, whose gap hardly shrinks where classes are several."""
    model = problem.model()
    solution = None
    if model is not None:
        solution = discounted_solution(
            model,
            problem.backup,
            state.h,
            problem.discount,
            memory_limit=problem.settings.memory_limit,
            deadline=problem.limits.deadline,
        )
    return solver.after_policy_iteration(problem, state, solution)


def _best_policies(problem: ExactProblem, state: State) -> PolicySolution | None:
    model = problem.model()
    if model is None:
        return None
    if problem.describe:
        return _written_out(problem, model, state)
    limits = problem.limits
    tolerance = limits.tolerance - problem.reserve
    better = vanishing_discount_solution(
        model, problem.backup, state.h, tolerance, problem.limits.deadline
    )
    if better is not None and better.h is not None:
        return PolicySolution(start=better.h)
    solution = _written_out(problem, model, state)
    if better is None:
        return solution
    if solution is not None:
        low, high = solution.bounds
        if solution.differ is not None or high - low <= limits.tolerance:
            return solution
    return PolicySolution(bounds=better.bounds, actions=better.actions, discounted=True)


def _written_out(
    problem: ExactProblem, model: FactoredMDP, state: State, *, converged: bool = False
) -> PolicySolution | None:
    return average_solution(
        model,
        problem.backup,
        state.h,
        problem.limits.tolerance,
        problem.ties.with_targets(problem.targets),
        memory_limit=problem.settings.memory_limit,
        deadline=problem.limits.deadline,
        converged=converged,
    )


def polish(problem: ExactProblem, state: State) -> State:
    """Solve for the bias to its last digits.

    Bounds that meet say nothing about h: a state that pays a millionth less and is left once in
    10^8 steps is missing from it.  Where the bias is not unique, the h of value iteration is kept.
    """
    if not state.policies_tried:
        state = _polished(problem, state)
    if state.solved_by_policies or state.accelerated or state.unique:
        return state._replace(phase=Phase.DONE)
    return state._replace(phase=Phase.EXTEND, bias=state.h)


def _polished(problem: ExactProblem, state: State) -> State:
    tolerance, tables = problem.limits.tolerance, problem.tables
    memory_limit, deadline = problem.settings.memory_limit, problem.limits.deadline
    if state.accelerated and isinstance(tables, FactoredMDP):  # the bias is proved to be unique
        solved = unique_bias(
            tables, problem.backup, state, tolerance - problem.reserve, memory_limit, deadline
        )
        if solved is not None:
            return solved
    model = problem.model()
    solution = None if model is None else _written_out(problem, model, state, converged=True)
    return with_solution(problem, state, solution)


def with_solution(problem: ExactProblem, state: State, solution: PolicySolution | None) -> State:
    """Return a converged state with the bias that policy iteration found, if it is unique."""
    tolerance = problem.limits.tolerance
    if solution is None or solution.differ is not None:
        return state
    low, high = solution.bounds
    state = state._replace(upper=min(state.upper, high))
    if state.upper - low > tolerance or solution.h is None or not solution.unique_bias:
        return state
    return state._replace(h=solution.h, lower=low, solution=solution, solved_by_policies=True)


def extend(problem: ExactProblem, state: State) -> State:
    """Sweep on where the bias is not unique: there the limit of the sweeps defines it."""
    bias, error = extended_bias(problem.backup, state, problem.limits.deadline)
    return state._replace(phase=Phase.DONE, bias=bias, span_error=error)
