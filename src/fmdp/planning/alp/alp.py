"""The approximate linear program: settings, prepared once for a structure, solved for tables.

Discounted (Guestrin et al. 2003): min sum_s alpha(s) V_w(s) subject to V_w >= R + g P V_w, with
V_w = w_0 + h_w. Always feasible and bounded; V_w >= V*, and the objective bounds alpha . V*.

Average reward: min lambda subject to lambda + h_w >= R + P h_w; lambda bounds the optimal gain. It
says nothing about h_w where the bound is not tight, and under optimism it never is: w = 0 is
optimal as soon as lambda is the largest reward, and a greedy policy would be arbitrary. So a second
stage takes, among all weights that attain lambda, those of the best discounted program: min
sum_s alpha(s) V_w(s) subject to V_w >= R + g P V_w and to the first stage's constraints.

For any w whatsoever, max over (s, a) of R + P h_w - h_w bounds the gain from above: `gain_upper`,
found by elimination after the solver is done, so that no tolerance of the solver enters, and
widened by what rounding can have done to it. In the same way the scalar (w_0 or lambda) is raised
by what is left of the worst violation, so that `objective` is a bound, converged or not; converged,
it is at most the tolerance above the optimum.

Everything but the settings and the plan is in the unit of the forms, and counted from their origin
(`Forms.unit`, `Forms.origin`): a reward of c in every step adds c to lambda, c / (1 - g) to w_0,
and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Look, nothing
from fmdp._base.memory import available_memory, describe_bytes
from fmdp._base.parameters import quoted
from fmdp._base.settings import setting
from fmdp.elimination.backup import TimeUp, check_clock
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.factored import check_model
from fmdp.model.structure import Scope, check_structure
from fmdp.model.symmetry import Symmetry
from fmdp.planning.alp import values
from fmdp.planning.alp.bases import Basis, collapsed, make_basis, tied
from fmdp.planning.alp.constraints import FIXED, Constraints
from fmdp.planning.alp.cuts import STABILISED, Cuts
from fmdp.planning.alp.factored import Factored, emitted_size
from fmdp.planning.alp.forms import Forms
from fmdp.planning.alp.greedy import Extractor
from fmdp.planning.alp.growth import plan_by_growth
from fmdp.planning.alp.interior import Interior, fits, memory_needed
from fmdp.planning.alp.question import Answer, Question, Watch
from fmdp.planning.limits import GRACE_SECONDS, deadline_of, tolerance_of
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.policies.policy import Policy
from fmdp.planning.prepared import unprepared
from fmdp.planning.settings import (
    GAP,
    SEARCHED,
    Distributions,
    Limited,
    TieBreaking,
    basis_setting,
    criterion_setting,
    discount_setting,
    targets_setting,
    tolerance_setting,
    without_search,
)
from fmdp.planning.status import Progress, Status, Tables

Floats = NDArray[np.float64]
NamedScope = tuple[int | str, ...]

KINDS = ("plain", "optimistic")
"""Of tables: what there is a network for."""
TABULATED = 1 << 12
"""States up to which a plan inside a learner has its policy as a table."""
TABULATED_ONCE = 1 << 16
"""And a plan that is made once."""
ROUNDING = 4e-9
"""Violation below which rounding and the solver's own tolerance decide, in the forms' unit."""
PINNED = 1e-7
"""Room above lambda, relative to it and the forms' unit, that the second stage has."""
HURRIED_ROUNDS = 20
"""Rounds of a plan inside a learner, with many weights: the next one goes on from there."""
_MANY_WEIGHTS, _EMITTED_ROWS = 64, 200
_FEW_WEIGHTS, _EMITTED_ROWS_ALONE = 8, 16
"""See `_emission_pays`; measured on circles, multi-agent networks and products."""


class ALP(Limited, TieBreaking, Planner):
    """Approximate linear programming, with a certified upper bound on the gain.

    For state spaces of any size. docs/approximate.md says how, what it costs and what it loses.
    """

    summary = "approximate linear programming; certified upper bound, for state spaces of any size"
    gives_marginals = True
    takes_ties = True

    basis: str | tuple[NamedScope, ...] = basis_setting(SEARCHED)
    gap: float = setting(
        GAP,
        "share of the bound that the policy may miss before the basis stops growing",
        low=0.0,
        only_with=("basis", (SEARCHED,)),
        unkeyed=(0.01,),
    )
    method: str = setting(
        "cuts",
        "constraint generation, or the factored linear program",
        choices=("cuts", "factored"),
    )
    weight_cap: float | None = setting(
        None,
        "size that no weight of a basis function may be above, in units of the reward: a program "
        "that is kept from far-off weights may have a better policy, and a larger objective",
        low=0.0,
        low_open=True,
        unkeyed=(None,),
    )
    criterion: str = criterion_setting("discounted")
    discount: float = discount_setting()
    tolerance: float | None = tolerance_setting(
        "how far the objective may be above the optimum; by default 1e-6 times the largest range "
        "of a reward factor (the factored program is solved to the solver's own precision, and "
        "its status says if that is worse)"
    )
    relevance: tuple[tuple[float, ...], ...] | None = setting(
        None, "alpha, one distribution a state variable; uniform", kind=Distributions
    )
    targets: str = targets_setting("joint", ("joint", "split"))

    def prepare(self, structure: Structure) -> PreparedALP:
        return PreparedALP(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        # Actions with equal tables share their work.
        check_model(model, "plan")
        if self.basis == SEARCHED:
            return plan_by_growth(self, model, progress)
        started = time.perf_counter()
        try:
            prepared = PreparedALP(self, model.structure, share_for=model)
        except KeyboardInterrupt as error:
            return without_program(self, model.structure, error, started)
        found = prepared.solve(model, describe=True, progress=progress, started=started)
        return of_model(found, model, self)


class PreparedALP:
    """The linear program of one structure; keeps networks, rows and bases between calls."""

    def __init__(
        self,
        settings: ALP,
        structure: Structure,
        *,
        share_for: FactoredMDP | None = None,
        dense: bool = False,
        symmetry: Symmetry | None = None,
    ) -> None:
        """`dense`: solve a plan that is described by interior points wherever that can be done,
        however few the rows that elimination would emit. `symmetry`, of the only model that is
        then solved: what it sends to each other has one weight, and the program is that of the
        reduced model."""
        check_structure(structure, "prepare")
        settings = without_search(settings)
        self.settings = settings
        self.structure = structure
        self.basis: Basis = make_basis(structure, settings.basis)
        self._symmetry = symmetry
        if symmetry is not None:
            self.basis = tied(self.basis, symmetry)
        self._dense = dense and settings.method == "cuts"
        self._relevance = self.basis.means(relevance_of(structure, settings.relevance))
        self._share_for = share_for
        self._stages_of: dict[str, _Stages] = {}
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
        breaking of the settings.  The clock runs since `started` (of perf_counter), or from now.
        """
        if isinstance(tables, OptimisticTables) and tables.upper is not None:
            raise InvalidParameter(
                "planner alp takes sets of lower ends and free mass alone; these tables have upper "
                "ends, which planner exact and span take"
            )
        settings = self.settings
        started = time.perf_counter() if started is None else started
        deadline = deadline_of(settings.max_seconds, started)
        kind = "optimistic" if isinstance(tables, OptimisticTables) else "plain"
        try:
            stages = self._stages_for(kind, partial(check_clock, deadline))
            stages.forms.load(tables if self._symmetry is None else self._symmetry.reduced)
            check_clock(deadline)
            found = stages.run(
                Watch(
                    iterations=settings.max_iterations,
                    deadline=deadline,
                    progress=progress,
                    unit=stages.forms.unit,
                ),
                hurried=not describe,
            )
            plan = self._plan(stages, found, describe, started, deadline, ties=ties)
            if marginals:
                worths = values.marginals(self.basis, plan.stats["weights"])
                plan = replace(plan, marginals=worths)
            return plan
        except (TimeUp, KeyboardInterrupt) as error:
            return without_program(settings, self.structure, error, started)

    def tightest(
        self,
        tables: FactoredMDP,
        progress: Progress | None = None,
        seconds: float | None = None,
    ) -> Plan:
        """After a described `solve` of the same tables: the plan whose weights have the least
        `gain_upper`, of the average criterion without its second stage."""
        settings, started = self.settings, time.perf_counter()
        deadline = deadline_of(settings.max_seconds if seconds is None else seconds, started)
        stages = self._stages_for("plain", partial(check_clock, deadline))
        watch = Watch(
            iterations=settings.max_iterations,
            deadline=deadline,
            progress=progress,
            unit=stages.forms.unit,
        )
        found = stages.run_average(watch)
        return self._plan(stages, found, True, started, deadline, discount=1.0)

    def tightened(
        self, tables: FactoredMDP, begin: Mapping[Scope, Floats], rounds: int
    ) -> float | None:
        """A `gain_upper` of the average criterion after so many rounds of interior points that
        begin at weights of a smaller basis, by scope; None where they cannot be had."""
        weights = np.zeros(self.basis.size)
        for block in self.basis.blocks:
            if block.scope in begin:
                weights[block.columns] = begin[block.scope]
        settings = self.settings
        deadline = deadline_of(settings.max_seconds, time.perf_counter())
        stages = self._stages_for("plain", partial(check_clock, deadline))
        forms = stages.forms
        forms.load(tables if self._symmetry is None else self._symmetry.reduced)
        watch = Watch(iterations=rounds, deadline=deadline, unit=forms.unit)
        answer = stages.near(weights / forms.unit, watch)
        if answer is None:
            return None
        if answer.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        return forms.largest_residual(answer.x[:-1], 1.0) * forms.unit

    def _stages_for(self, kind: str, look: Look = nothing) -> _Stages:
        if kind not in self._stages_of:
            settings = self.settings
            optimistic = kind == "optimistic"
            structure, share_for = self.structure, self._share_for
            if self._symmetry is not None:
                share_for = self._symmetry.reduced
                structure = share_for.structure
            forms = Forms(
                structure,
                self.basis,
                optimistic=optimistic,
                split=optimistic and settings.targets == "split",
                model=None if optimistic else share_for,
                memory_limit=settings.memory_limit,
                close_inside=self._symmetry is not None,
                look=look,
            )
            stages = _Stages(settings, forms, self._relevance, look, self._dense)
            stages.restore(_under(f"{kind}.", self._warm))
            self._stages_of[kind] = stages
        return self._stages_of[kind]

    def _plan(
        self,
        stages: _Stages,
        found: _Found,
        describe: bool,
        started: float,
        deadline: float | None,
        discount: float | None = None,
        ties: Ties | None = None,
    ) -> Plan:
        settings, forms = self.settings, stages.forms
        ties = settings.tie_breaking if ties is None else ties
        if discount is None:
            discount = settings.discount if settings.criterion == "discounted" else 1.0
        unit, status = forms.unit, found.status
        weights = found.weights * unit
        gain_upper = forms.largest_residual(found.weights, 1.0) * unit
        if deadline is not None:
            deadline = max(deadline, time.monotonic() + GRACE_SECONDS)
        look = partial(check_clock, deadline)
        policy: Policy | None = None
        span = spans = None
        try:
            policy = self._policy(stages, found.weights, discount, describe, ties)
            look()
            if describe:
                span, spans = self._spans(weights, look)
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
            objective=found.objective * unit,
            iterations=found.iterations,
            seconds=time.perf_counter() - started,
            ties=ties.name,
            stats={
                "basis": self.basis.name,
                "weights": self.basis.untied(weights),
                "constant": None if found.constant is None else found.constant * unit,
                "method": settings.method,
                "rows": found.n_rows,
                "rows_from": "elimination" if stages.emits else "separation",
                "violation": found.violation * unit,
                "induced_width": forms.network.width,
                "memory_bytes": forms.network.bytes,
                "targets": settings.targets if forms.optimistic else None,
                "relaxed": forms.optimistic and settings.targets == "split",
            },
        )

    def _spans(self, weights: Floats, look: Look) -> tuple[float, tuple[float, ...]]:
        limit = self.settings.memory_limit
        if self._symmetry is None:
            span = values.span(self.basis, weights, limit, look)
            return span, values.factored_spans(self.basis, weights, limit, look)
        basis = collapsed(self.basis, weights)
        weights = np.ones(basis.size)
        leaders = self._symmetry.leaders
        found = values.factored_spans(basis, weights, limit, look, of=sorted(set(leaders)))
        return values.span(basis, weights, limit, look), tuple(found[v] for v in leaders)

    def _policy(
        self, stages: _Stages, weights: Floats, discount: float, describe: bool, ties: Ties
    ) -> Policy:
        settings, extractor = self.settings, stages.extractor
        if self._symmetry is not None:
            # Of all actions, which the reduced model has not.
            basis, model = collapsed(self.basis, weights), self._symmetry.model
            limit = settings.memory_limit
            forms = Forms(model.structure, basis, model=model, memory_limit=limit, maximised=False)
            forms.load(model)
            extractor, weights = Extractor(forms), np.ones(basis.size)
        greedy = extractor.policy(weights, discount, ties.rule, ties.seed)
        few = TABULATED_ONCE if describe else TABULATED
        return greedy.tabulate() if self.structure.n_states <= few else greedy

    def forget(self) -> None:
        """Start the next solve from nothing."""
        self._warm = {}
        for stages in self._stages_of.values():
            stages.restore({})

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        """What must be kept, beside the settings, so that the next solve is the same to the bit."""
        state = dict(self._warm)
        for kind, stages in self._stages_of.items():
            state = {name: array for name, array in state.items() if not name.startswith(kind)}
            state |= {f"{kind}.{name}": array for name, array in stages.state().items()}
        return state

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._warm = {name: array.copy() for name, array in state.items()}
        for name in state:
            if name.partition(".")[0] not in KINDS:
                raise InvalidParameter(f"a linear program keeps no {quoted(name)}")
        for kind, stages in self._stages_of.items():
            stages.restore(_under(f"{kind}.", self._warm))
        for kind in KINDS:
            # Made now if there is anything to restore: a file may have brought it, and only the
            # network knows what it can mean.
            if _under(f"{kind}.", self._warm):
                self._stages_for(kind)


def without_program(
    settings: ALP, structure: Structure, error: TimeUp | KeyboardInterrupt, started: float
) -> Plan:
    """Weights of 0 satisfy every constraint where the scalar is the largest reward, summed up."""
    nothing = unprepared(settings, structure, error, started)
    best = structure.reward_bounds[1]
    discounted = settings.criterion == "discounted"
    return replace(nothing, objective=best / (1.0 - settings.discount) if discounted else best)


@dataclass(frozen=True, eq=False)
class _Found:
    """What a plan needs from the linear program, of one stage or two; in the unit of the forms,
    the origin added."""

    status: Status
    weights: Floats
    constant: float | None
    objective: float
    violation: float
    iterations: int
    n_rows: int


class _Stages:
    """The stages of one criterion over one network."""

    def __init__(
        self, settings: ALP, forms: Forms, relevance: Floats, look: Look, dense: bool = False
    ) -> None:
        self.settings = settings
        self.forms = forms
        self.extractor = Extractor(forms, look)
        look()
        n = forms.basis.size
        average = settings.criterion == "average"
        limit = settings.memory_limit or available_memory() // 2
        factored = settings.method == "factored"
        dense = dense and n > STABILISED and memory_needed(n) <= limit
        self.emits = factored or (not dense and _emission_pays(forms, limit))
        if factored:
            rows, needed = emitted_size(forms)
            if needed > limit:
                raise TooLarge(
                    f"the factored linear program has {rows} rows and needs "
                    f"{describe_bytes(needed)}; the memory limit is {describe_bytes(limit)}",
                    needed,
                    limit,
                )
        solver = Factored if self.emits else Cuts
        self._first_solver, self._second_solver = solver(), solver()
        many = not self.emits and n > _MANY_WEIGHTS and memory_needed(n) <= limit
        self._dense = dense or many
        discount = settings.discount
        self.discounted = Constraints(
            forms,
            discount,
            rhs=n,
            coefficient=1.0 - discount,
            first_column=n + 1,
            messages=self.emits,
        )
        self._value = np.append(relevance, 1.0)
        look()
        if average:
            self._gain = np.append(np.zeros(n), 1.0)
            self.average = Constraints(forms, 1.0, rhs=n, first_column=n + 1, messages=self.emits)
            self.pinned = Constraints(
                forms,
                1.0,
                rhs=FIXED,
                first_column=n + 1 + self.discounted.n_columns,
                messages=self.emits,
            )
        self._scale = likely_weight(forms, discount)
        self._cap = None if settings.weight_cap is None else settings.weight_cap / forms.unit
        self._tolerance = tolerance_of(settings.tolerance, forms.structure) / forms.unit

    def _question(self, cost: Floats, hurried: bool, *constraints: Constraints) -> Question:
        tolerance = self._tolerance
        # A violation v of the discounted constraint is worth v / (1 - g) in the objective.
        accuracy = max(tolerance * min(part.coefficient for part in constraints), ROUNDING)
        charges = tuple(cost[-1] / constraints[0].coefficient for _ in constraints)
        return Question(
            cost,
            constraints,
            charges,
            accuracy,
            max(tolerance, accuracy),
            self._scale,
            # Under a cap no function can do all that another one does.
            self.forms.basis.needless if self._cap is None else self.forms.basis.void,
            shift=self.forms.origin * charges[0],
            raisable=tuple(part.rhs != FIXED for part in constraints),
            rounds=HURRIED_ROUNDS if hurried and len(cost) - 1 > STABILISED else None,
            cap=self._cap,
        )

    def run(self, watch: Watch, hurried: bool = False) -> _Found:
        n = self.forms.basis.size
        if self.settings.criterion == "discounted":
            question = self._question(self._value, hurried, self.discounted)
            return self._of_discounted(self._first(question, hurried, watch))
        first = self._first(self._question(self._gain, hurried, self.average), hurried, watch)
        violation, missing = self._missing(self.average, first)
        gain = float(first.x[n])
        bound = gain + missing + self.forms.origin
        if first.status not in (Status.CONVERGED, Status.ITERATION_LIMIT):
            return _Found(
                first.status, first.x[:n], None, bound, violation, first.iterations, first.n_rows
            )
        # What a first stage that was cut short leaves has to be feasible for the second, too.
        short = first.status is Status.ITERATION_LIMIT
        slack = max(self._tolerance, PINNED) * (1.0 + abs(gain)) + (missing if short else 0.0)
        self.pinned.fixed = gain + slack
        question = self._question(self._value, hurried, self.discounted, self.pinned)
        second = self._second_solver.solve(replace(question, start=first.x[:n]), watch)
        x = second.x if np.isfinite(second.objective) else first.x
        return _Found(
            first.status if short else second.status,
            x[:n],
            None,
            bound,
            violation,
            first.iterations + second.iterations,
            first.n_rows + second.n_rows,
        )

    def run_average(self, watch: Watch) -> _Found:
        """The first stage of the average criterion alone, whatever the criterion and the cap."""
        n = self.forms.basis.size
        own, question = self._of_bound()
        dense = self._dense and fits(question)
        answer = Interior().solve(question, watch) if dense else Cuts().solve(question, watch)
        if dense and answer.status is Status.PRECISION_LIMIT:
            answer = Cuts().solve(replace(question, start=answer.x[:-1]), watch)
        violation, missing = self._missing(own, answer)
        bound = float(answer.x[n]) + missing + self.forms.origin
        return _Found(
            answer.status, answer.x[:n], None, bound, violation, answer.iterations, answer.n_rows
        )

    def _of_bound(self) -> tuple[Constraints, Question]:
        """The least lambda: constraints of their own, since `average` is there for its criterion
        alone, and no cap, which would only make the bound looser."""
        n = self.forms.basis.size
        own = Constraints(self.forms, 1.0, rhs=n, first_column=n + 1)
        question = self._question(np.append(np.zeros(n), 1.0), False, own)
        return own, replace(question, cap=None)

    def near(self, start: Floats, watch: Watch) -> Answer | None:
        """The first stage of the average criterion from these weights, by interior points."""
        question = replace(self._of_bound()[1], start=start)
        return Interior().solve(question, watch) if self._dense and fits(question) else None

    def _first(self, question: Question, hurried: bool, watch: Watch) -> Answer:
        """Of many weights and dense cuts by interior points; what rounding leaves to simplex. Plans
        inside learners go on from the cuts of the last one, which simplex does better."""
        if hurried or not self._dense or not fits(question):
            return self._first_solver.solve(question, watch)
        answer = Interior().solve(question, watch)
        if answer.status is not Status.PRECISION_LIMIT:
            return answer
        rest = self._first_solver.solve(replace(question, start=answer.x[:-1]), watch)
        return replace(rest, iterations=answer.iterations + rest.iterations)

    def _missing(self, constraints: Constraints, answer: Answer) -> tuple[float, float]:
        """The worst violation, and by how much the right-hand side has to be raised for every
        constraint to hold whatever rounding has done."""
        violation = constraints.violation(answer.x)
        return violation, max(violation, 0.0) + self.forms.rounding(answer.x, constraints.discount)

    def _of_discounted(self, answer: Answer) -> _Found:
        n = self.forms.basis.size
        violation, missing = self._missing(self.discounted, answer)
        constant = float(answer.x[n])
        constant += (missing + self.forms.origin) / (1.0 - self.settings.discount)
        return _Found(
            answer.status,
            answer.x[:n],
            constant,
            float(self._value[:n] @ answer.x[:n]) + constant,
            violation,
            answer.iterations,
            answer.n_rows,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        stages = {"first": self._first_solver, "second": self._second_solver}
        return {
            f"{stage}.{name}": array
            for stage, solver in stages.items()
            for name, array in solver.state().items()
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        first: tuple[Constraints, ...] = (self.discounted,)
        second: tuple[Constraints, ...] = ()
        if self.settings.criterion == "average":
            first, second = (self.average,), (self.discounted, self.pinned)
        n = self.forms.basis.size
        self._first_solver.restore(_under("first.", state), first, n)
        self._second_solver.restore(_under("second.", state), second, n)
        for name in state:
            if name.partition(".")[0] not in ("first", "second"):
                raise InvalidParameter(f"a linear program keeps no {quoted(name)}")


def likely_weight(forms: Forms, discount: float) -> float:
    """A size that weights may well have, in the unit of the forms."""
    ranges = forms.structure.reward_range_total / forms.unit / forms.structure.m
    return (ranges or 1.0) / (1.0 - discount)


def _emission_pays(forms: Forms, limit: int) -> bool:
    """Whether cuts should start from all rows of the elimination.

    Where they are few for each weight, one solve with all of them beats many rounds: with many
    weights, since the number of rounds grows with them; and without contexts, since a round then
    finds one cut only.
    """
    n = forms.basis.size
    rows, needed = emitted_size(forms)
    if needed > limit:
        return False
    if n > _MANY_WEIGHTS:
        return rows <= _EMITTED_ROWS * n
    alone = all(component.context < 0 for component in forms.network.components)
    return alone and n > _FEW_WEIGHTS and rows <= _EMITTED_ROWS_ALONE * n


def _under(prefix: str, state: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {
        name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)
    }


def relevance_of(
    structure: Structure, given: Sequence[Sequence[float]] | None
) -> tuple[Floats, ...]:
    """alpha as one distribution a state variable; uniform where none is given."""
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
