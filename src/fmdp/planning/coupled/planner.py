"""The planner coupled: parts that share budgets are planned one by one at prices of the budgets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.structure import check_structure
from fmdp.planning.coupled.fleet import fleet_of
from fmdp.planning.coupled.pricing import Criterion, Dual, DualSearch, Round
from fmdp.planning.coupled.report import fleet_record
from fmdp.planning.coupled.rules import id_policy, index_policy, marginals_of, priority_policy
from fmdp.planning.coupled.simulation import Estimate, FleetSimulator
from fmdp.planning.coupled.types import Types, types_of
from fmdp.planning.coupled.whittle import whittle_indices
from fmdp.planning.limits import tolerance_of
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.policies.fleet import FleetPolicy
from fmdp.planning.settings import DISCOUNT, Limited, criterion_setting, discount_setting
from fmdp.planning.status import Progress, Status, Tables

_CHOOSING, _REPORTING = 0, 1
"""Streams of random numbers: policies are compared on one, and the estimate is made on the other,
so that it is not that of the luckier policy."""


class Coupled(Limited, Planner):
    """Plans for fleets: parts that are independent but for budgets on their actions.

    A certified upper bound on the gain, prices of the budgets, and a policy of the whole fleet with
    a simulated gain. docs/fleets.md explains the method.
    """

    gives_marginals = True
    summary = "parts that share budgets, priced; certified upper bound, for 100,000 parts and more"

    policy: str = setting(
        "best",
        "which policy: by priority, the ID policy or by Whittle indices; best simulates the first "
        "two (without simulation: priority)",
        choices=("best", "priority", "id", "whittle"),
    )
    criterion: str = criterion_setting("average")
    discount: float | None = discount_setting(
        None,
        f"discount of the discounted criterion; by default {DISCOUNT}",
        only_with=("criterion", ("discounted",)),
    )
    tolerance: float | None = setting(
        None,
        "how far the bound may be above its minimum over all prices; by default 1e-6 times the "
        "largest range of a reward factor",
        low=0.0,
        low_open=True,
    )
    simulated_steps: int | None = setting(
        None,
        "steps of each of the 8 simulated copies, 0 for no simulation (so in learners); by default "
        "96 to 5,000, by the number of parts",
        low=0,
    )
    seed: int = setting(0, "seed of the simulation and of the order of the ID policy", low=0)

    def prepare(self, structure: Structure) -> PreparedCoupled:
        check_structure(structure, "prepare")
        return PreparedCoupled(self, structure)

    def check(self) -> None:
        if self.criterion == "discounted" and self.discount is None:
            object.__setattr__(self, "discount", DISCOUNT)

    @property
    def rule(self) -> Criterion:
        """The criterion as the restarts of chains."""
        return Criterion(self.discount)


class PreparedCoupled:
    """The planner for one structure; it keeps the last prices."""

    def __init__(self, planner: Coupled, structure: Structure) -> None:
        self.planner = planner
        self.fleet = fleet_of(structure)
        self._prices = np.zeros(len(self.fleet.caps))

    def solve(
        self,
        tables: Tables,
        *,
        progress: Progress | None = None,
        marginals: bool = False,
    ) -> Plan:
        """Plan with these tables, which must be a model.

        With `marginals`, `Plan.marginals` is set.
        """
        started = time.perf_counter()
        if not isinstance(tables, FactoredMDP):
            raise InvalidParameter(
                "planner coupled plans for models; the optimistic tables of a learner need planner "
                "exact or alp"
            )
        planner = self.planner
        types = types_of(
            self.fleet,
            tables,
            by_start=planner.criterion == "discounted",
            memory_limit=planner.memory_limit,
        )
        tolerance = tolerance_of(planner.tolerance, self.fleet.structure)
        search = DualSearch(types, planner.rule, tolerance)
        deadline = Deadline.after(planner.max_seconds, started)
        making = _Making(planner, types, search, deadline, progress)
        status = making.run(self._prices)
        if search.rounds:
            self._prices = search.best.prices
        plan = making.plan(status, time.perf_counter() - started)
        if marginals and search.rounds:
            plan = replace(plan, marginals=marginals_of(types, search.best))
        return plan

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        return {"prices": self._prices}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._prices = np.array(state["prices"], dtype=np.float64)


class _Making:
    """One plan in the making: the results so far."""

    def __init__(
        self,
        planner: Coupled,
        types: Types,
        search: DualSearch,
        deadline: Deadline,
        progress: Progress | None,
    ) -> None:
        self.planner = planner
        self.types = types
        self.search = search
        self.deadline = deadline
        self.progress = progress
        self.policy: FleetPolicy | None = None
        self.estimate: Estimate | None = None
        self.compared: dict[str, float] = {}

    def run(self, prices: NDArray[np.float64]) -> Status:
        """Search prices, make the policy, and simulate it; return how it ended."""
        try:
            self.search.run(prices, self.deadline, self._report, self.planner.max_iterations)
            status = self.search.status
            self._make_policy()
        except TimeUp:
            status = Status.TIME_LIMIT
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if self.policy is None and self.search.rounds:
            self.policy = priority_policy(self.types, self.search.result(), self.planner.rule)
        return status

    def _report(self, latest: Round) -> None:
        if self.progress is not None:
            upper = None if self.planner.criterion == "discounted" else self.search.best.upper
            self.progress({"rounds": len(self.search.rounds), "gain_upper": upper})

    def _make_policy(self) -> None:
        planner, dual = self.planner, self.search.result()
        if planner.simulated_steps == 0:
            name = "priority" if planner.policy == "best" else planner.policy
            self.policy = self._policy(name, dual)
            return
        simulator = FleetSimulator(
            self.types, dual, planner.rule, planner.seed, planner.simulated_steps
        )
        if planner.policy != "best" or not self.types.caps:
            name = planner.policy if planner.policy != "best" else "priority"
            self.policy = self._policy(name, dual)
        else:
            candidates = [self._policy(name, dual) for name in ("priority", "id")]
            self.policy = candidates[0]
            for candidate in candidates:
                estimate = simulator.estimate(candidate, _CHOOSING, self.deadline)
                self.compared[candidate.rule] = estimate.mean
            self.policy = max(candidates, key=lambda made: self.compared[made.rule])
        estimate = simulator.estimate(self.policy, _REPORTING, self.deadline)
        # No gain is above the bound, so no estimate needs to reach beyond it.
        self.estimate = estimate.clipped(self.search.best.upper * planner.rule.unit)

    def _policy(self, name: str, dual: Dual) -> FleetPolicy:
        criterion = self.planner.rule
        if name == "priority":
            return priority_policy(self.types, dual, criterion)
        if name == "id":
            source = np.random.SeedSequence(self.planner.seed)
            return id_policy(self.types, dual, np.random.default_rng(source))
        return index_policy(self.types, whittle_indices(self.types, criterion))

    def plan(self, status: Status, seconds: float) -> Plan:
        upper = self.search.best.upper if self.search.rounds else None
        discount, unit = self.planner.rule.discount, self.planner.rule.unit
        stats: dict[str, Any] = {}
        if self.search.rounds:
            stats["fleet"] = fleet_record(
                self.types, self.search, self.policy, self.estimate, self.compared, unit
            )
        value = None if upper is None or discount is None else upper * unit
        return Plan(
            self.planner.name,
            status,
            policy=self.policy,
            gain_upper=upper if discount is None else None,
            objective=value,
            iterations=len(self.search.rounds),
            seconds=seconds,
            stats=stats,
        )
