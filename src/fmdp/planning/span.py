"""Planning under a budget for the factored span: the optimisation problem of FSRL.

Let L be the backup of the exact planner (of a model, or optimistic) and truncate(v) the largest
function below v with sp_i <= c_i for every i (elimination/truncation.py). There is a u within the
budgets and exactly one number lambda_c with

    truncate(L u) = u + lambda_c,      lambda_c = max { min(L u - u) : sp_i(u) <= c_i for every i },

and min(T v - v) <= lambda_c <= max(T v - v) for every v, T = truncate o L. The iteration
v <- (1 - tau) v + tau T v from 0 converges for every model, including periodic and multichain ones.
The policy is greedy for the untruncated L at v. docs/theory-span.md has the proofs. Cost of a
sweep: that of the exact planner plus one pass over v per axis.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import REQUIRED, quoted
from fmdp._base.portable_math import exp
from fmdp._base.settings import setting
from fmdp.elimination.backup import Backup, TimeUp, backup_for
from fmdp.elimination.kernels import Pace
from fmdp.elimination.ties import Ties
from fmdp.elimination.truncation import Truncation
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.structure import check_structure
from fmdp.planning.exact import iteration
from fmdp.planning.expanded import PreparedExpanded, plan_expanded
from fmdp.planning.plan import Plan, Planner, of_model
from fmdp.planning.policies.archive import array_in
from fmdp.planning.prepared import (
    KINDS,
    PreparedOnEngine,
    engine_stats,
    limits_of,
    policy_in_time,
    unprepared,
    with_tolerance,
)
from fmdp.planning.settings import (
    Limited,
    OnEngine,
    OneOrSeveral,
    TieBreaking,
    tolerance_setting,
)
from fmdp.planning.spans import factored_spans, span
from fmdp.planning.status import Progress, Status, Tables, middle_of_bounds

Vector = NDArray[np.float64]
Budget = float | tuple[float, ...]

DAMPINGS = (0.9, 0.5)
"""tau at first, and after a stall: 1/2 is best against periods (see docs/theory-span.md)."""

# The search for a split is a heuristic: the gain is neither smooth nor concave in the split.
_ROUNDS = 40
"""Most rounds of the search."""
_WARM_PATIENCE = 1
"""Rounds without improvement after which a search stops that starts from an earlier result."""
_PROBE = 0.01
"""Fraction of a budget that is taken away to estimate its marginal value."""
_STEP = 1.0
"""Step size of the multiplicative update in round 1; it decreases as one over the square root."""


class SpanConstrained(Limited, TieBreaking, OnEngine, Planner):
    """Value iteration under a budget for the factored span of the bias, as FSRL needs it.

    Its bounds enclose the fixed point of the truncated operator, not the model's best gain.
    """

    name = "span"
    summary = "value iteration under a budget for the factored span of the bias, as FSRL needs it"
    gives_marginals = True
    takes_ties = True
    on_any_model: ClassVar[Mapping[str, object]] = {"budget": 1.0, "split": None}

    budget: Budget = setting(
        REQUIRED,
        "--span-budget: the sum of the budgets, or one for each state variable, "
        "in the unit of the reward",
        kind=OneOrSeveral,
        low=0.0,
    )
    split: str | None = setting(
        None,
        "--span-split: how one budget is divided; by default uniform, or as given",
        choices=("uniform", "given", "search"),
    )
    tolerance: float | None = tolerance_setting()

    def check(self) -> None:
        if self.split == "uniform" and isinstance(self.budget, tuple):
            raise InvalidParameter(
                f"split uniform divides one budget; got {len(self.budget)} budgets: "
                f"give their sum, or split given"
            )

    def budgets(self, structure: Structure) -> tuple[float, ...]:
        """Return one budget per state variable; a search starts from them.

        Parameters
        ----------
        structure
            The structure of the model.

        Returns
        -------
        tuple[float, ...]
            In the unit of the reward.

        Raises
        ------
        InvalidParameter
            If there are several budgets, but not one per state variable.
        """
        return _budgets(self.budget, self.split, structure)

    def prepare(self, structure: Structure) -> PreparedSpan | PreparedExpanded:
        check_structure(structure, "prepare")
        if structure.derived:
            return PreparedExpanded(self, structure)
        self.budgets(structure)
        return PreparedSpan(self, structure)

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        # Equal tables of different actions share their work.
        check_model(model, "plan")
        if model.structure.derived:
            return plan_expanded(self, model, progress)
        started = time.perf_counter()
        budgets = self.budgets(model.structure)
        limits = limits_of(self, model.structure, started)
        try:
            backup = backup_for(
                model,
                memory_limit=self.memory_limit,
                threads=self.threads,
                deadline=limits.deadline,
            )
        except (TimeUp, KeyboardInterrupt) as error:
            empty = unprepared(self, model.structure, error, started)
            return replace(empty, stats={"budgets": budgets}, bounds_best_gain=False)
        run = _Run(self, backup, model.structure, progress, started)
        solution = run.search(budgets) if self.split == "search" else run.solve(budgets)
        return of_model(run.plan(solution, describe=True, started=started), model, self)


class PreparedSpan(PreparedOnEngine):
    """The span planner of one structure; keeps u and the best split found between calls."""

    def __init__(self, settings: SpanConstrained, structure: Structure) -> None:
        super().__init__(settings, structure)
        self.settings = settings
        self._splits: dict[str, Vector] = {}

    def solve(
        self,
        tables: Tables,
        *,
        budget: Budget | None = None,
        describe: bool = False,
        marginals: bool = False,
        tolerance: float | None = None,
        ties: Ties | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Plan with these tables.

        `budget`, `ties` and `tolerance` replace those of the settings for this call. `describe`
        adds u in C order, its spans, and the number of truncated states; `marginals` adds the
        marginals of u.
        """
        started = time.perf_counter()
        settings = with_tolerance(self.settings, tolerance)
        chosen = settings.budget if budget is None else _checked(budget)
        budgets = _budgets(chosen, settings.split, self.structure)
        limits = limits_of(settings, self.structure, started)
        try:
            kind, backup, h, _ = self._load(tables, limits.deadline)
        except (TimeUp, KeyboardInterrupt) as error:
            empty = unprepared(settings, self.structure, error, started)
            return replace(empty, stats={"budgets": budgets}, bounds_best_gain=False)
        run = _Run(settings, backup, self.structure, progress, started, h, ties)
        if settings.split == "search":
            patience = _ROUNDS
            if kind in self._splits:
                patience = _WARM_PATIENCE
                budgets = tuple(sum(budgets) * self._splits[kind])
            solution = run.search(budgets, patience)
            if sum(solution.budgets) > 0.0:
                self._splits[kind] = np.array(solution.budgets) / sum(solution.budgets)
        else:
            solution = run.solve(budgets)
        h[:] = solution.outcome.h
        plan = run.plan(solution, describe=describe, started=started)
        return self._with_marginals(plan, backup.to_canonical(h)) if marginals else plan

    def forget(self) -> None:
        """Start the next solve from zero and its search from the settings."""
        super().forget()
        self._splits.clear()

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        splits = {f"split.{kind}": split.copy() for kind, split in self._splits.items()}
        return {**super().warm_state(), **splits}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        vectors = {name: array for name, array in state.items() if not name.startswith("split.")}
        super().restore_warm_state(vectors)
        self._splits = {
            name.removeprefix("split."): self._checked_split(state, name).copy()
            for name in state
            if name.startswith("split.")
        }

    def _checked_split(self, state: Mapping[str, NDArray[Any]], name: str) -> Vector:
        shares = array_in(state, name, "f", (self.structure.m,), 0.0, 1.0)
        if name.removeprefix("split.") not in KINDS or abs(float(shares.sum()) - 1.0) > 1e-6:
            raise InvalidParameter(
                f"the shares {quoted(name)} of a budget must add up to 1, for one of "
                f"{', '.join(KINDS)}; got the sum {float(shares.sum())!r}"
            )
        return shares


def _checked(budget: float | Sequence[float] | Vector) -> Budget:
    checked: Budget = SpanConstrained.parameters[0].check(budget, SpanConstrained.owner())
    return checked


def _budgets(budget: Budget, split: str | None, structure: Structure) -> tuple[float, ...]:
    """Return one budget per state variable; variables with a single value get none."""
    m = structure.m
    if isinstance(budget, tuple) or (m == 1 and split != "search"):
        given = budget if isinstance(budget, tuple) else (budget,)
        if len(given) != m:
            raise InvalidParameter(
                f"budget has {len(given)} numbers; must be one, "
                f"or one for each of the {m} state variables"
            )
        return given
    if split == "given":
        raise InvalidParameter(
            f"split given needs one budget for each of the {m} state variables; got {budget}"
        )
    spanning = [size > 1 for size in structure.state_sizes]
    share = budget / max(1, sum(spanning))
    return tuple(share if spans else 0.0 for spans in spanning)


class _Truncated:
    """T = truncate o L as an operator for `iteration.solve`."""

    def __init__(self, backup: Backup, truncation: Truncation) -> None:
        self.backup = backup
        self.truncation = truncation
        self.extremes = backup.extremes
        self.roundings = backup.roundings + 2 * backup.structure.m

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        axes, budgets = self.truncation.axes, self.truncation.budgets
        return self.backup.iterate(h, new, scratch, pace._replace(axes=axes, budgets=budgets))

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        self.backup.advance(h, new, pace)


@dataclass(frozen=True, eq=False)
class _Solution:
    """The fixed point for one split of the budget; no other solution shares its h."""

    budgets: tuple[float, ...]
    outcome: iteration.State
    rounds: int = 0
    gain_upper_any_split: float | None = None

    @property
    def gain(self) -> float:
        return 0.5 * (self.outcome.lower + self.outcome.upper)


class _Run:
    """One call of the planner: fixed points for one or more splits, then a plan."""

    def __init__(
        self,
        settings: SpanConstrained,
        backup: Backup,
        structure: Structure,
        progress: Progress | None,
        started: float,
        start: Vector | None = None,
        ties: Ties | None = None,
    ) -> None:
        self.settings = settings
        self.ties = settings.tie_breaking if ties is None else ties
        self.backup = backup
        self.structure = structure
        self.progress = progress
        self.start = np.zeros(backup.n_states) if start is None else start
        self.limits = limits_of(settings, structure, started)
        self.sweeps = 0

    def solve(
        self,
        budgets: Sequence[float] | Vector,
        start: Vector | None = None,
        tolerance: float | None = None,
    ) -> _Solution:
        """Return the fixed point of T for these budgets, iterating from a copy of `start`."""
        split = tuple(float(c) for c in budgets)
        truncation = self.backup.truncation(split)
        h = (self.start if start is None else start).copy()
        truncation.apply(h)  # a start for other budgets may exceed these
        before = self.sweeps

        def report(state: Mapping[str, Any]) -> None:
            if self.progress is not None:
                self.progress({**state, "sweeps": before + state["sweeps"]})

        outcome = iteration.solve(
            _Truncated(self.backup, truncation),
            h,
            replace(
                self.limits,
                tolerance=self.limits.tolerance if tolerance is None else tolerance,
                max_sweeps=max(1, self.limits.max_sweeps - before),
            ),
            cold=False,
            dampings=DAMPINGS,
            progress=None if self.progress is None else report,
        )
        self.sweeps += outcome.sweeps
        return _Solution(split, outcome)

    def search(self, budgets: Sequence[float], patience: int = _ROUNDS) -> _Solution:
        """Return the solution for the best split of sum(budgets) that was tried.

        The first split is the given one. The solution in which every axis has the whole sum bounds
        the gain of every split; if its spans fit into the sum, they are an optimal split.
        Otherwise multiplicative updates follow. The derivative of lambda_c by c_i is the frequency
        of truncation moves along axis i under the stationary distribution of the truncated process.
        It is estimated as the cost of a slightly smaller budget, which does not depend on which of
        several tied moves a fixed point makes.
        """
        total = float(sum(budgets))
        fine = min(self.limits.tolerance, 0.05 * _PROBE * total / self.structure.m)
        best = self.solve(budgets, tolerance=fine if total > 0.0 else None)
        if best.outcome.status is not Status.CONVERGED:
            return best
        if total == 0.0:
            return replace(best, gain_upper_any_split=best.outcome.upper)
        every = self.solve([total] * self.structure.m, best.outcome.h, fine)
        ceiling = every.outcome.upper
        current, rounds, since = best, 0, 0

        def finished(status: Status | None = None) -> _Solution:
            outcome = best.outcome if status is None else best.outcome._replace(status=status)
            return replace(best, outcome=outcome, rounds=rounds, gain_upper_any_split=ceiling)

        if halt := self._halt(every):
            return finished(halt)
        demand = np.array(self._spans(every.outcome.h))
        if demand.sum() > 0.0:
            fitted = self.solve(demand * (total / demand.sum()), every.outcome.h, fine)
            if halt := self._halt(fitted):
                return finished(halt)
            if fitted.gain > best.gain:
                best = current = fitted
        while rounds < _ROUNDS and since < patience:
            if ceiling - best.gain <= self.limits.tolerance:
                break
            c = np.array(current.budgets)
            worth = np.zeros_like(c)
            for i in np.flatnonzero(c > 0.0):
                less = c.copy()
                less[i] -= _PROBE * c[i]
                probe = self.solve(less, current.outcome.h, fine)
                if halt := self._halt(probe):
                    return finished(halt)
                worth[i] = max(0.0, (current.gain - probe.gain) / (_PROBE * c[i]))
            if worth.max() == 0.0:
                break
            rounds += 1
            c *= exp(_STEP / math.sqrt(rounds) * worth / worth.max())
            current = self.solve(c * (total / c.sum()), current.outcome.h, fine)
            if halt := self._halt(current):
                return finished(halt)
            since = 0 if current.gain > best.gain + self.limits.tolerance else since + 1
            if current.gain > best.gain:
                best = current
        return finished()

    def _halt(self, solution: _Solution) -> Status | None:
        """Return the status with which a search must end after this solution, or None."""
        if solution.outcome.status is not Status.CONVERGED:
            return solution.outcome.status
        if self.sweeps >= self.limits.max_sweeps:
            return Status.ITERATION_LIMIT
        if self.limits.deadline.expired():
            return Status.TIME_LIMIT
        return None

    def _spans(self, h: Vector) -> tuple[float, ...]:
        return factored_spans(self.backup.to_canonical(h), self.structure.state_sizes)

    def plan(self, solution: _Solution, *, describe: bool, started: float) -> Plan:
        settings, backup, structure = self.settings, self.backup, self.structure
        outcome = solution.outcome
        # The iteration returned T h; the policy is greedy for L h, which is at least T h.
        greedy = outcome._replace(new=np.empty_like(outcome.h), whole=False)
        policy, value = policy_in_time(
            settings, backup, structure, greedy, outcome.h, self.limits, self.ties
        )
        finite = bool(np.isfinite(outcome.lower))
        stats: dict[str, Any] = {
            "budgets": solution.budgets,
            "damping": outcome.damping,
            "search_rounds": solution.rounds,
            "gain_upper_any_split": solution.gain_upper_any_split,
            **engine_stats(backup),
        }
        bias = spans = None
        if describe and value is not None and outcome.status is not Status.INTERRUPTED:
            stats |= self._truncated(solution, value)
            bias = backup.to_canonical(outcome.h)
            bias -= bias.min()
            spans = factored_spans(bias, structure.state_sizes)
        return Plan(
            planner=settings.name,
            status=outcome.status,
            policy=policy,
            gain=self._gain(outcome) if finite else None,
            gain_lower=outcome.lower if finite else None,
            gain_upper=outcome.upper if finite else None,
            span=None if bias is None else span(bias),
            factored_spans=spans,
            objective=None,
            iterations=self.sweeps,
            seconds=time.perf_counter() - started,
            ties=self.ties.name,
            bias=bias,
            stats=stats,
            bounds_best_gain=False,
        )

    def _gain(self, outcome: iteration.State) -> float | None:
        return middle_of_bounds(outcome.lower, outcome.upper, self.structure, self.limits.tolerance)

    def _truncated(self, solution: _Solution, value: Vector) -> dict[str, Any]:
        """Return the number of truncated states, and whether a randomised policy attains lambda_c.

        It does if every truncated state has an action whose backup is at most u + lambda_c: some
        mixture with the greedy action satisfies R + P u = u + lambda_c, so that u is the bias of
        that policy. SCAL augments its model so that this holds; here it often fails, and nothing
        depends on it.
        """
        h, slack = solution.outcome.h, self.limits.tolerance
        self.backup.sweep(h, value)
        kept = value.copy()
        self.backup.truncation(solution.budgets).apply(kept)
        truncated = value - kept > slack
        count = int(np.count_nonzero(truncated))
        attained = True
        if count:
            lowest = np.empty_like(h)
            self.backup.lowest(h, lowest)
            attained = bool((lowest - h)[truncated].max() <= solution.gain + slack)
        return {"truncated_states": count, "attained": attained}
