"""The approximate linear program prepared for a structure, and solved for tables of it.

For any weights w, max over (s, a) of R + P h_w - h_w bounds the gain from above. It is reported as
`gain_upper`. Elimination computes it after the solver has stopped, and a bound on rounding is
added, so it does not depend on any tolerance of the solver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline, TimeUp
from fmdp._base.parameters import quoted
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.expansion import shared_draws, without_draws
from fmdp.model.structure import Scope, check_structure
from fmdp.model.symmetry import Symmetry, symmetry_of
from fmdp.planning.alp import values
from fmdp.planning.alp.alp_settings import ALPSettings
from fmdp.planning.alp.bases import Basis, collapsed, make_basis, tied
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.greedy import GreedyExtractor
from fmdp.planning.alp.program import Monitor
from fmdp.planning.alp.staged_program import HURRIED_ROUNDS, StagedProgram, StagedSolution, under
from fmdp.planning.limits import GRACE_SECONDS
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import Policy
from fmdp.planning.prepared import unprepared
from fmdp.planning.settings import without_search
from fmdp.planning.status import Progress, Status, Tables

Floats = NDArray[np.float64]

KINDS = ("plain", "optimistic")
"""Kinds of tables, each with its own cost network."""
TABULATED = 1 << 12
"""States up to which a plan inside a learner tabulates its policy: a table costs time once and
makes every later query faster."""
TABULATED_ONCE = 1 << 16
"""The same for a plan outside a learner, which can afford a larger table."""
SECONDS_PER_WEIGHT_SQUARED, SECONDS_PER_BYTE, SECONDS_PER_FUNCTION = 1.5e-6, 1.5e-9, 1e-4
"""Predicted seconds of a round of cuts per square of the number of weights and per byte of the
network, and of a plan per basis function. Plans of learners on circles, grids and random models
took a quarter of the prediction to a little more than it."""


class PreparedALP:
    """The linear program of one structure; keeps networks, rows and bases between calls."""

    def __init__(
        self,
        settings: ALPSettings,
        structure: Structure,
        *,
        share_for: FactoredMDP | None = None,
        dense: bool = False,
        relative: float = 0.0,
        symmetry: Symmetry | None = None,
    ) -> None:
        """Prepare the basis.

        If `share_for` is the only model that will be solved, actions with equal tables share their
        work. With its symmetries, functions that are images of each other share one weight, and the
        program is that of the reduced model. If `dense`, described plans are solved by interior
        points wherever possible, even if elimination emits few rows. Interior points stop within
        the share `relative` of the optimum.
        """
        check_structure(structure, "prepare")
        settings = without_search(settings)
        self.settings = settings
        self.basis: Basis = make_basis(structure, settings.basis)
        refuse_joint_draws(structure, self.basis)
        self._expansion = without_draws(structure)
        if self._expansion is not None:
            structure = self._expansion.structure
            share_for = None if share_for is None else self._expansion.tables(share_for)
        self.structure = structure
        self._symmetry = symmetry
        if symmetry is not None:
            self.basis = tied(self.basis, symmetry)
        self._dense = dense and settings.method == "cuts"
        self._relative = relative
        self._relevance = self.basis.means(relevance_of(structure, settings.relevance))
        self._share_for = share_for
        self._programs: dict[str, StagedProgram] = {}
        self._warm: dict[str, NDArray[Any]] = {}

    def solve(
        self,
        tables: Tables,
        *,
        describe: bool = False,
        marginals: bool = False,
        ties: Ties | None = None,
        progress: Progress | None = None,
        started: float | None = None,
    ) -> Plan:
        """Plan with these tables.

        `describe` adds the spans of h_w, `marginals` its marginals.  `ties` replaces the tie
        breaking of the settings.  The time limit counts from `started` (of perf_counter), by
        default from now.
        """
        if isinstance(tables, OptimisticTables) and tables.upper is not None:
            raise InvalidParameter(
                "planner alp takes sets of lower ends and free mass alone; these tables have upper "
                "ends, which planner exact and span take"
            )
        started = time.perf_counter() if started is None else started
        symmetric = self.symmetric(tables)
        if symmetric is not None:
            plan = symmetric.solve(
                tables, describe=describe, ties=ties, progress=progress, started=started
            )
            return self._with_marginals(plan) if marginals else plan
        if self._expansion is not None:
            tables = self._expansion.tables(tables)
        settings = self.settings
        deadline = Deadline.after(settings.max_seconds, started)
        kind = "optimistic" if isinstance(tables, OptimisticTables) else "plain"
        try:
            program = self.program_for(kind, deadline)
            program.residual.load(self._reduced(tables))
            deadline.check()
            monitor = self._monitor(program, deadline, progress)
            solution = program.run(monitor, hurried=not describe)
            plan = self._plan(program, solution, describe, started, deadline, ties=ties)
            return self._with_marginals(plan) if marginals else plan
        except (TimeUp, KeyboardInterrupt) as error:
            return without_program(settings, self.structure, error, started)

    def symmetric(self, tables: Tables) -> PreparedALP | None:
        """Return the program of this model with one weight for functions that its symmetries map to
        each other; None if there is none, or this program has its model already.

        Only alike rows are looked at: estimated tables are equal to the last bit where they are
        alike, and hardly anywhere else.
        """
        s = self.structure
        if s.alike is None or self._share_for is not None or self.settings.relevance is not None:
            return None
        symmetry = symmetry_of(tables) if isinstance(tables, FactoredMDP) else None
        if symmetry is None or not symmetry.keeps(block.scope for block in self.basis.blocks):
            return None
        return PreparedALP(self.settings, s, share_for=symmetry.model, symmetry=symmetry)

    def predicted_seconds(self) -> float:
        """Return the predicted processor seconds of a plan inside a learner, at most.

        Building the program and `HURRIED_ROUNDS` rounds count, each with a linear program and two
        passes over the network.
        """
        network = self.program_for("plain").residual.network
        n_weights = self.basis.size
        per_round = SECONDS_PER_WEIGHT_SQUARED * n_weights**2 + SECONDS_PER_BYTE * network.bytes
        functions = sum(block.size for block in self.basis.blocks)
        return HURRIED_ROUNDS * per_round + SECONDS_PER_FUNCTION * functions

    def _with_marginals(self, plan: Plan) -> Plan:
        if "weights" not in plan.stats:  # stopped before the first solution
            return plan
        return replace(plan, marginals=values.marginals(self.basis, plan.stats["weights"]))

    def tightest(self, progress: Progress | None = None, deadline: Deadline = NEVER) -> Plan:
        """Return the plan whose weights have the least `gain_upper`, the first stage of the average
        criterion, for the tables of the last described `solve`."""
        started = time.perf_counter()
        program = self.program_for("plain", deadline)
        solution = program.run_average(self._monitor(program, deadline, progress))
        return self._plan(program, solution, True, started, deadline, discount=1.0)

    def tightened(
        self, tables: FactoredMDP, begin: Mapping[Scope, Floats], rounds: int
    ) -> float | None:
        """Return a `gain_upper` after some rounds of interior points on the average criterion.

        They begin at weights of a smaller basis, by scope. Return None if the program is not dense.
        """
        weights = np.zeros(self.basis.size)
        for block in self.basis.blocks:
            if block.scope in begin:
                weights[block.columns] = begin[block.scope]
        return self._bound(tables, weights, rounds, anyway=False)

    def bound(self, tables: FactoredMDP, rounds: int, progress: Progress | None = None) -> float:
        """Return a `gain_upper` after some rounds on the average criterion, without a policy."""
        if self._expansion is not None:
            tables = self._expansion.tables(tables)
        bound = self._bound(tables, None, rounds, progress, anyway=True)
        assert bound is not None
        return bound

    def _bound(
        self,
        tables: FactoredMDP,
        weights: Floats | None,
        rounds: int,
        progress: Progress | None = None,
        *,
        anyway: bool,
    ) -> float | None:
        deadline = Deadline.after(self.settings.max_seconds)
        program = self.program_for("plain", deadline)
        residual = program.residual
        residual.load(self._reduced(tables))
        unit = residual.unit
        monitor = Monitor(iterations=rounds, deadline=deadline, progress=progress, unit=unit)
        start = None if weights is None else weights / unit
        solution = program.run_average_from(start, monitor, anyway=anyway)
        if solution is None:
            return None
        solution.status.raise_if_interrupted()
        return residual.largest(solution.x[:-1], 1.0) * unit

    def program_for(self, kind: str, deadline: Deadline = NEVER) -> StagedProgram:
        """Return the program for a kind of tables, built on first use."""
        if kind not in self._programs:
            settings = self.settings
            optimistic = kind == "optimistic"
            structure, share_for = self.structure, self._share_for
            if self._symmetry is not None:
                share_for = self._symmetry.reduced
                structure = share_for.structure
            residual = BellmanResidual(
                structure,
                self.basis,
                optimistic=optimistic,
                split=optimistic and settings.targets == "split",
                model=None if optimistic else share_for,
                memory_limit=settings.memory_limit,
                close_inside=self._symmetry is not None,
                deadline=deadline,
            )
            program = StagedProgram(
                settings, residual, self._relevance, deadline, self._dense, self._relative
            )
            program.restore(under(f"{kind}.", self._warm))
            self._programs[kind] = program
        return self._programs[kind]

    def _reduced(self, tables: Tables) -> Tables:
        return tables if self._symmetry is None else self._symmetry.reduced

    def _monitor(
        self, program: StagedProgram, deadline: Deadline, progress: Progress | None
    ) -> Monitor:
        return Monitor(
            iterations=self.settings.max_iterations,
            deadline=deadline,
            progress=progress,
            unit=program.residual.unit,
        )

    def _plan(
        self,
        program: StagedProgram,
        solution: StagedSolution,
        describe: bool,
        started: float,
        deadline: Deadline,
        discount: float | None = None,
        ties: Ties | None = None,
    ) -> Plan:
        settings, residual = self.settings, program.residual
        ties = settings.tie_breaking if ties is None else ties
        if discount is None:
            discount = settings.discount if settings.criterion == "discounted" else 1.0
        unit, status = residual.unit, solution.status
        weights = solution.weights * unit
        gain_upper = residual.largest(solution.weights, 1.0) * unit
        if deadline.at is not None:
            deadline = Deadline(max(deadline.at, time.perf_counter() + GRACE_SECONDS))
        policy: Policy | None = None
        span = spans = None
        try:
            policy = self._policy(program, solution.weights, discount, describe, ties)
            deadline.check()
            if describe:
                span, spans = self._spans(weights, deadline)
        except TimeUp:
            status = Status.TIME_LIMIT if status is Status.CONVERGED else status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        return Plan(
            planner=settings.name,
            status=status,
            policy=policy,
            gain=None,
            gain_lower=None,
            gain_upper=gain_upper,
            span=span,
            factored_spans=spans,
            objective=solution.objective * unit,
            iterations=solution.iterations,
            seconds=time.perf_counter() - started,
            ties=ties.name,
            stats=self._stats(program, solution, weights),
        )

    def _stats(
        self, program: StagedProgram, solution: StagedSolution, weights: Floats
    ) -> dict[str, Any]:
        settings, residual = self.settings, program.residual
        constant = solution.constant
        return {
            "basis": self.basis.name,
            "weights": self.basis.untied(weights),
            "constant": None if constant is None else constant * residual.unit,
            "method": settings.method,
            "rows": solution.n_rows,
            "rows_from": "elimination" if program.emits else "separation",
            "violation": solution.violation * residual.unit,
            "induced_width": residual.network.width,
            "memory_bytes": residual.network.bytes,
            "targets": settings.targets if residual.optimistic else None,
            "relaxed": residual.optimistic and settings.targets == "split",
        }

    def _spans(self, weights: Floats, deadline: Deadline) -> tuple[float, tuple[float, ...]]:
        limit = self.settings.memory_limit
        if self._symmetry is None:
            span = values.span(self.basis, weights, limit, deadline)
            return span, values.factored_spans(self.basis, weights, limit, deadline)
        basis = collapsed(self.basis, weights)
        weights = np.ones(basis.size)
        leaders = self._symmetry.leaders
        spans = values.factored_spans(basis, weights, limit, deadline, of=sorted(set(leaders)))
        return values.span(basis, weights, limit, deadline), tuple(spans[v] for v in leaders)

    def _policy(
        self, program: StagedProgram, weights: Floats, discount: float, describe: bool, ties: Ties
    ) -> Policy:
        extractor = program.extractor
        if self._symmetry is not None:
            # The policy chooses among all actions; the reduced model has fewer.
            basis, model = collapsed(self.basis, weights), self._symmetry.model
            residual = BellmanResidual(
                model.structure,
                basis,
                model=model,
                memory_limit=self.settings.memory_limit,
                maximised=False,
            )
            residual.load(model)
            extractor, weights = GreedyExtractor(residual), np.ones(basis.size)
        greedy = extractor.policy(weights, discount, ties.rule, ties.seed)
        few = TABULATED_ONCE if describe else TABULATED
        return greedy.tabulate_up_to(few)

    def forget(self) -> None:
        """Discard the warm state: the next solve starts from scratch."""
        self._warm = {}
        for program in self._programs.values():
            program.restore({})

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays with which, beside the settings, the next solve is the same bit for
        bit."""
        state = dict(self._warm)
        for kind, program in self._programs.items():
            state = {name: array for name, array in state.items() if not name.startswith(kind)}
            state |= {f"{kind}.{name}": array for name, array in program.state().items()}
        return state

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._warm = {name: array.copy() for name, array in state.items()}
        for name in state:
            if name.partition(".")[0] not in KINDS:
                raise InvalidParameter(f"a linear program keeps no {quoted(name)}")
        for kind, program in self._programs.items():
            program.restore(under(f"{kind}.", self._warm))
        for kind in KINDS:
            # The arrays may come from a file, and only the network can check them, so the program
            # is built now.
            if under(f"{kind}.", self._warm):
                self.program_for(kind)


def refuse_joint_draws(structure: Structure, basis: Basis) -> None:
    """Raise InvalidParameter if a basis function is over two variables that share a draw.

    Its expectation would need their joint distribution, and the program has the distribution of
    each next value alone.
    """
    for v, states in shared_draws(structure).items():
        for block in basis.blocks:
            both = [structure.state_names[i] for i in block.scope if i in states]
            if len(both) > 1:
                raise InvalidParameter(
                    f"basis {basis.name} has a function of {both[0]} and {both[1]}, which both "
                    f"depend on the drawn variable {quoted(structure.names[v])}; planner alp takes "
                    f"such a model with functions of one of them: basis=indicators or singles"
                )


def without_program(
    settings: ALPSettings, structure: Structure, error: TimeUp | KeyboardInterrupt, started: float
) -> Plan:
    """Return the plan of a program that was stopped before its first solve.

    Weights of 0 satisfy every constraint if the scalar is the sum of the largest rewards.
    """
    plan = unprepared(settings, structure, error, started)
    best = structure.reward_bounds[1]
    discounted = settings.criterion == "discounted"
    return replace(plan, objective=best / (1.0 - settings.discount) if discounted else best)


def relevance_of(
    structure: Structure, given: Sequence[Sequence[float]] | None
) -> tuple[Floats, ...]:
    """Return alpha as one distribution per state variable, uniform by default."""
    if given is None:
        return tuple(np.full(size, 1.0 / size) for size in structure.state_sizes)
    if len(given) != structure.m:
        raise InvalidParameter(
            f"relevance has {len(given)} distributions; must be one for each of the "
            f"{structure.m} state variables"
        )
    checked: list[Floats] = []
    for v, (row, size) in enumerate(zip(given, structure.state_sizes, strict=True)):
        weights = np.array(row, dtype=np.float64)
        if weights.shape != (size,) or (weights < 0.0).any() or not weights.sum() > 0.0:
            raise InvalidParameter(
                f"relevance of state variable {v} is {tuple(row)}; must be {size} numbers, at "
                f"least 0 and not all 0"
            )
        checked.append(weights / weights.sum())
    return tuple(checked)
