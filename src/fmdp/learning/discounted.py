"""Learners that plan under a discount.

A plan whose bounds on the discounted value V* are within epsilon / (1 - discount) has a policy that
loses epsilon per step, so the tolerance of plans inside learners, 1e-3 times the sum of the reward
ranges, is divided by 1 - discount. From a start of span at most R / (1 - discount), R the sum of
the ranges, n sweeps of value iteration bring MacQueen's bounds within 3 R discount^n / (1 -
discount)^2, so `sweeps_enough` is a limit that no plan reaches. Above a discount of .999 that may
take too long: the limit is then 20,000 sweeps, and a plan that does not converge within them is
used and counted.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any

from fmdp._base.parameters import number_text
from fmdp.errors import InvalidParameter
from fmdp.learning.learner import PlanningLearner, for_learning
from fmdp.learning.planning_budget import TOLERANCE, planner_for_learning
from fmdp.model import Structure
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.settings import DISCOUNT, discount_setting

MOST_SWEEPS = 20_000
"""Largest number of sweeps of a discounted plan, however close to 1 the discount is."""


def sweeps_enough(discount: float) -> int:
    """Return the least n with 3 discount^n / (1 - discount) <= 1e-3."""
    if discount == 0.0:
        return 1
    return max(1, math.ceil(math.log(TOLERANCE * (1.0 - discount) / 3.0) / math.log(discount)))


def with_discount(planner: Any, discount: float, owner: str) -> Planner:
    """Return the planner with a learner's discount; raise if the planner sets another one."""
    names = {field.name for field in fields(planner)} if is_dataclass(planner) else set()
    if not {"criterion", "discount"} <= names or planner.criterion == "finite":
        named = getattr(planner, "name", planner)
        finite = ",criterion=finite" if "criterion" in names else ""
        raise InvalidParameter(
            f"{owner} plans under a discount; got planner {named}{finite}, must be one that has "
            f"criterion=discounted"
        )
    if planner.criterion == "discounted" and planner.discount not in (DISCOUNT, discount):
        raise InvalidParameter(
            f"the 'discount' of {owner} must be given once; got {number_text(discount)} for the "
            f"learner and {number_text(planner.discount)} for its planner"
        )
    changed: Planner = replace(planner, criterion="discounted", discount=discount)
    return changed


def refuse_horizon(horizon: int | None, owner: str) -> None:
    """Raise InvalidParameter if there is a horizon besides the discount."""
    if horizon is not None:
        raise InvalidParameter(
            f"{owner} plans under a discount, not over a horizon; got horizon={horizon}, must be "
            f"none"
        )


def for_learning_discounted(planner: Any, structure: Structure) -> Planner:
    """Return a discounted planner with the defaults of plans inside learners."""
    if isinstance(planner, Exact):
        assert planner.discount is not None
        if planner.max_iterations is None:
            enough = min(sweeps_enough(planner.discount), MOST_SWEEPS)
            planner = replace(planner, max_iterations=enough)
    return for_learning(planner, structure)


def plan_discount_setting(default: float = DISCOUNT) -> Any:
    """Return the setting for the discount of the plans of a learner."""
    return discount_setting(
        default, "discount per step in plans, which look about 1 / (1 - discount) steps ahead"
    )


class Discounted(PlanningLearner):
    """A planning learner with discounted plans; list this base before the other."""

    discount: float = plan_discount_setting()

    def check_planner(self) -> None:
        """Raise InvalidParameter for a horizon or a planner with another discount or none."""
        refuse_horizon(self.horizon, self.owner())
        super().check_planner()
        if self.planner is not None:
            with_discount(self.planner, self.discount, self.owner())

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner: Any = self.planner
        reason = None
        if planner is None:
            planner, reason = planner_for_learning(structure)
        planner = with_discount(planner, self.discount, self.owner())
        return for_learning_discounted(planner, structure), reason
