"""The linear programs of a criterion, solved in one stage (discounted) or two (average reward).

Discounted (Guestrin et al. 2003): min sum_s alpha(s) V_w(s) subject to V_w >= R + g P V_w, with
V_w = w_0 + h_w. Always feasible and bounded; V_w >= V*, and the objective bounds alpha . V*.

Average reward: min lambda subject to lambda + h_w >= R + P h_w; lambda bounds the optimal gain.
Where the bound is not tight, lambda does not determine h_w, and under optimism it is never tight:
w = 0 is optimal as soon as lambda is the largest reward, and a greedy policy would be arbitrary. So
a second stage takes, among all weights that attain lambda, those of the best discounted program:
min sum_s alpha(s) V_w(s) subject to V_w >= R + g P V_w and to the first stage's constraints.

After the solver has stopped, the scalar (w_0 or lambda) is raised by the worst violation that
elimination finds and by a bound on rounding. So `objective` is a bound, converged or not;
converged, it is at most the tolerance above the optimum.

All numbers are in units of `BellmanResidual.unit`, with rewards counted from
`BellmanResidual.origin`: a reward of c in every step adds c to lambda, c / (1 - g) to w_0, and
changes nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp._base.memory import available_memory, describe_bytes
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.planning.alp.alp_settings import ALPSettings
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.constraints import FIXED, BellmanConstraints
from fmdp.planning.alp.cuts import STABILISED, CuttingPlanes
from fmdp.planning.alp.factored import FactoredProgram, emitted_size
from fmdp.planning.alp.greedy import GreedyExtractor
from fmdp.planning.alp.interior import InteriorCuttingPlanes, fits, memory_needed
from fmdp.planning.alp.program import LinearProgram, Monitor, ProgramSolution
from fmdp.planning.limits import tolerance_of
from fmdp.planning.status import Status

Floats = NDArray[np.float64]

ROUNDING = 4e-9
"""Smallest violation worth cutting: below it rounding and the solver's tolerance decide."""
PINNED = 1e-7
"""Relative slack of lambda in the second stage: less makes it infeasible by rounding, more lets it
lose the first stage's bound."""
HURRIED_ROUNDS = 20
"""Rounds of a plan inside a learner with many weights: fewer are faster, and the next plan resumes
from the same cuts."""
_MANY_WEIGHTS, _EMITTED_ROWS = 64, 200
_FEW_WEIGHTS, _EMITTED_ROWS_ALONE = 8, 16
"""Numbers of weights, and of emitted rows per weight, at which one large program becomes slower
than many rounds (`_emission_pays`); measured on circles, multi-agent networks and products."""


@dataclass(frozen=True, eq=False)
class StagedSolution:
    """The solution of all stages, in units of the residual, the origin added."""

    status: Status
    weights: Floats
    constant: float | None
    objective: float
    violation: float
    iterations: int
    n_rows: int


class StagedProgram:
    """The linear programs of one criterion over one cost network."""

    def __init__(
        self,
        settings: ALPSettings,
        residual: BellmanResidual,
        relevance: Floats,
        deadline: Deadline,
        dense: bool = False,
        relative: float = 0.0,
    ) -> None:
        self.settings = settings
        self.residual = residual
        self.extractor = GreedyExtractor(residual, deadline)
        deadline.check()
        n = residual.basis.size
        limit = settings.memory_limit or available_memory() // 2
        factored = settings.method == "factored"
        dense = dense and n > STABILISED and memory_needed(n) <= limit
        self.emits = factored or (not dense and _emission_pays(residual, limit))
        if factored:
            _refuse_large(residual, limit)
        solver = FactoredProgram if self.emits else CuttingPlanes
        self._first_solver, self._second_solver = solver(), solver()
        many = not self.emits and n > _MANY_WEIGHTS and memory_needed(n) <= limit
        self._dense = dense or many
        discount = settings.discount
        self.discounted = BellmanConstraints(
            residual,
            discount,
            rhs=n,
            coefficient=1.0 - discount,
            first_column=n + 1,
            messages=self.emits,
        )
        self._value_cost = np.append(relevance, 1.0)
        self._gain_cost = np.append(np.zeros(n), 1.0)
        deadline.check()
        if settings.criterion == "average":
            self.average = BellmanConstraints(
                residual, 1.0, rhs=n, first_column=n + 1, messages=self.emits
            )
            self.pinned = BellmanConstraints(
                residual,
                1.0,
                rhs=FIXED,
                first_column=n + 1 + self.discounted.n_columns,
                messages=self.emits,
            )
        self._scale = likely_weight(residual, discount)
        self._cap = None if settings.weight_cap is None else settings.weight_cap / residual.unit
        self._tolerance = tolerance_of(settings.tolerance, residual.structure) / residual.unit
        self._relative = relative

    def program(
        self, cost: Floats, hurried: bool, *constraints: BellmanConstraints
    ) -> LinearProgram:
        tolerance = self._tolerance
        # A violation v of the discounted constraint is worth v / (1 - g) in the objective.
        accuracy = max(tolerance * min(family.coefficient for family in constraints), ROUNDING)
        charges = tuple(cost[-1] / constraints[0].coefficient for _ in constraints)
        return LinearProgram(
            cost,
            constraints,
            charges,
            accuracy,
            max(tolerance, accuracy),
            self._scale,
            # Under a cap no function can replace another one.
            self.residual.basis.needless if self._cap is None else self.residual.basis.void,
            relative=self._relative,
            shift=self.residual.origin * charges[0],
            raisable=tuple(family.rhs != FIXED for family in constraints),
            rounds=HURRIED_ROUNDS if hurried and len(cost) - 1 > STABILISED else None,
            cap=self._cap,
        )

    def run(self, monitor: Monitor, hurried: bool = False) -> StagedSolution:
        n = self.residual.basis.size
        if self.settings.criterion == "discounted":
            program = self.program(self._value_cost, hurried, self.discounted)
            return self.discounted_solution(self._solve_first(program, hurried, monitor))
        program = self.program(self._gain_cost, hurried, self.average)
        first = self._solve_first(program, hurried, monitor)
        bound = self._gain_solution(self.average, first)
        if first.status not in (Status.CONVERGED, Status.ITERATION_LIMIT):
            return bound
        # After an incomplete first stage, its last weights must be feasible in the second.
        incomplete = first.status is Status.ITERATION_LIMIT
        gain = float(first.x[n])
        slack = max(self._tolerance, PINNED) * (1.0 + abs(gain))
        if incomplete:
            slack += self._missing(self.average, first)[1]
        self.pinned.fixed = gain + slack
        program = self.program(self._value_cost, hurried, self.discounted, self.pinned)
        second = self._second_solver.solve(replace(program, start=first.x[:n]), monitor)
        x = second.x if np.isfinite(second.objective) else first.x
        return replace(
            bound,
            status=first.status if incomplete else second.status,
            weights=x[:n],
            iterations=first.iterations + second.iterations,
            n_rows=first.n_rows + second.n_rows,
        )

    def run_average(self, monitor: Monitor) -> StagedSolution:
        """Solve the first stage of the average criterion, whatever the criterion and the cap."""
        constraints, program = self._gain_program()
        dense = self._dense and fits(program)
        solver = InteriorCuttingPlanes() if dense else CuttingPlanes()
        solution = solver.solve(program, monitor)
        if dense and solution.status is Status.PRECISION_LIMIT:
            solution = CuttingPlanes().solve(replace(program, start=solution.x[:-1]), monitor)
        return self._gain_solution(constraints, solution)

    def run_average_from(
        self, start: Floats | None, monitor: Monitor, *, anyway: bool = False
    ) -> ProgramSolution | None:
        """Solve the first stage of the average criterion from these weights by interior points.

        If the program is not dense, return None; with `anyway`, solve it, by simplex where interior
        points cannot.
        """
        program = replace(self._gain_program()[1], start=start)
        interior = fits(program)
        if not (anyway or (self._dense and interior)):
            return None
        solver = InteriorCuttingPlanes() if interior else CuttingPlanes()
        return solver.solve(program, monitor)

    def _gain_program(self) -> tuple[BellmanConstraints, LinearProgram]:
        """Return min lambda without a cap, which would only make the bound looser.

        It has its own constraints, because `average` exists for its criterion alone.
        """
        n = self.residual.basis.size
        constraints = BellmanConstraints(self.residual, 1.0, rhs=n, first_column=n + 1)
        program = self.program(self._gain_cost, False, constraints)
        return constraints, replace(program, cap=None)

    def _solve_first(
        self, program: LinearProgram, hurried: bool, monitor: Monitor
    ) -> ProgramSolution:
        """Solve the first stage: dense programs by interior points, and if rounding stops these, by
        simplex. Plans inside learners use simplex, which resumes from the cuts of the last plan."""
        if hurried or not self._dense or not fits(program):
            return self._first_solver.solve(program, monitor)
        solution = InteriorCuttingPlanes().solve(program, monitor)
        if solution.status is not Status.PRECISION_LIMIT:
            return solution
        rest = self._first_solver.solve(replace(program, start=solution.x[:-1]), monitor)
        return replace(rest, iterations=solution.iterations + rest.iterations)

    def _missing(
        self, constraints: BellmanConstraints, solution: ProgramSolution
    ) -> tuple[float, float]:
        """Return the worst violation, and the increase of the right-hand side after which every
        constraint holds despite rounding."""
        violation = constraints.violation(solution.x)
        rounding = self.residual.rounding(solution.x, constraints.discount)
        return violation, max(violation, 0.0) + rounding

    def _gain_solution(
        self, constraints: BellmanConstraints, solution: ProgramSolution
    ) -> StagedSolution:
        n = self.residual.basis.size
        violation, missing = self._missing(constraints, solution)
        bound = float(solution.x[n]) + missing + self.residual.origin
        return StagedSolution(
            solution.status,
            solution.x[:n],
            None,
            bound,
            violation,
            solution.iterations,
            solution.n_rows,
        )

    def discounted_solution(self, solution: ProgramSolution) -> StagedSolution:
        n = self.residual.basis.size
        violation, missing = self._missing(self.discounted, solution)
        constant = float(solution.x[n])
        constant += (missing + self.residual.origin) / (1.0 - self.settings.discount)
        return StagedSolution(
            solution.status,
            solution.x[:n],
            constant,
            float(self._value_cost[:n] @ solution.x[:n]) + constant,
            violation,
            solution.iterations,
            solution.n_rows,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        solvers = {"first": self._first_solver, "second": self._second_solver}
        return {
            f"{stage}.{name}": array
            for stage, solver in solvers.items()
            for name, array in solver.state().items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        first: tuple[BellmanConstraints, ...] = (self.discounted,)
        second: tuple[BellmanConstraints, ...] = ()
        if self.settings.criterion == "average":
            first, second = (self.average,), (self.discounted, self.pinned)
        n = self.residual.basis.size
        self._first_solver.restore(under("first.", state), first, n)
        self._second_solver.restore(under("second.", state), second, n)
        for name in state:
            if name.partition(".")[0] not in ("first", "second"):
                raise InvalidParameter(f"a linear program keeps no {quoted(name)}")


def likely_weight(residual: BellmanResidual, discount: float) -> float:
    """Return a typical size of a weight, in units of the residual."""
    structure = residual.structure
    ranges = structure.reward_range_total / residual.unit / structure.m
    return (ranges or 1.0) / (1.0 - discount)


def under(prefix: str, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with the prefix, which is removed."""
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }


def _refuse_large(residual: BellmanResidual, limit: int) -> None:
    rows, needed = emitted_size(residual)
    if needed > limit:
        raise TooLarge(
            f"the factored linear program has {rows} rows and needs "
            f"{describe_bytes(needed)}; the memory limit is {describe_bytes(limit)}",
            needed,
            limit,
        )


def _emission_pays(residual: BellmanResidual, limit: int) -> bool:
    """Return whether constraint generation should start from all rows of the elimination.

    If there are few per weight, one solve with all of them beats many rounds: with many weights,
    because the number of rounds grows with them; without contexts, because a round then finds a
    single cut.
    """
    n = residual.basis.size
    rows, needed = emitted_size(residual)
    if needed > limit:
        return False
    if n > _MANY_WEIGHTS:
        return rows <= _EMITTED_ROWS * n
    alone = all(component.context < 0 for component in residual.network.components)
    return alone and n > _FEW_WEIGHTS and rows <= _EMITTED_ROWS_ALONE * n
