"""Learners that plan under a span budget: FSRL, and SCAL and REGAL on one factor.

The budget is given, or it is doubled whenever the reward refutes it (budgets.py) and is at least
Q(t) = growth * (sum of the reward ranges) * log2(1 + t). The planner is `span`, whose truncated
iteration on one factor is that of SCAL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from fmdp._base.parameters import Numbers, number_text
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.budgets import BudgetDoubling
from fmdp.learning.learner import PlanningLearner, for_learning, require_planner
from fmdp.model import Structure
from fmdp.planning.plan import Planner
from fmdp.planning.span import SpanConstrained

GROWTH = 1.0  # default of the setting `growth`


class SpanBudgeted(PlanningLearner):
    """A planning learner under a span budget; list this base before the one with the set.

    The planner may be a SpanConstrained, whose budget counts if none is set here; a budget of 0,
    under which nothing can be learned, means none. The learner must have a setting `rho`.
    """

    only_planner = "span"
    planner_defaults: ClassVar[Mapping[str, object]] = {"budget": 0.0}

    budget: float | tuple[float, ...] | None = setting(
        None,
        "the sum Q of the span budgets, or one budget per state variable, in units of the reward; "
        "none: it is doubled when refuted, and grows with time",
        kind=Numbers,
        low=0.0,
    )
    growth: float = setting(
        GROWTH,
        "least budget at step t if none is given, in units of the sum of the reward ranges times "
        "log2(1 + t)",
        low=0.0,
        low_open=True,
        only_with=("budget", (None,)),
    )

    def check(self) -> None:
        if self.horizon is not None:
            raise InvalidParameter(
                f"{self.owner()} bounds the span of a bias, which plans over a horizon have not; "
                f"got horizon={self.horizon}, must be none"
            )
        if isinstance(self.planner, str) and self.planner == "span":
            # The name alone sets no budget.
            object.__setattr__(self, "planner", None)
        super().check()
        reason = f"{self.owner()} plans under a span budget"
        require_planner(self.planner, SpanConstrained, reason, "span")
        chosen = self._span_planner()
        if self.grows and getattr(self, "faithful", False):
            raise InvalidParameter(
                f"the 'budget' parameter of {self.owner()} must be given with faithful=true: the "
                f"published algorithm is told a bound on the span; got none"
            )
        if not self.grows and self.growth != GROWTH:
            raise InvalidParameter(
                f"the 'growth' parameter of {self.owner()} is used where no budget is given; got "
                f"growth={number_text(self.growth)} with budget {chosen.budget}"
            )

    @property
    def grows(self) -> bool:
        """Whether no budget was given, so that it grows."""
        return self.budget is None and getattr(self.planner, "budget", 0.0) == 0.0

    def _span_planner(self) -> SpanConstrained:
        """Return the planner with the budget and the split; raise if one is given twice."""
        # A growing budget is an argument of every plan.
        chosen = SpanConstrained(budget=0.0) if self.planner is None else self.planner
        assert isinstance(chosen, SpanConstrained)
        for name, unset in (("budget", 0.0), ("split", None)):
            value = getattr(self, name, None)
            if value is None:
                continue
            changed = replace(chosen, **{name: value})
            if getattr(chosen, name) not in (unset, getattr(changed, name)):
                raise InvalidParameter(
                    f"the '{name}' of {self.owner()} must be given once; got "
                    f"{getattr(changed, name)} for the learner and {getattr(chosen, name)} "
                    f"for its planner"
                )
            chosen = changed
        return chosen

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        chosen = self._span_planner()
        chosen.budgets(structure)
        return for_learning(chosen, structure, self.max_sweeps), None

    def remember(self, structure: Structure) -> dict[str, Any]:
        return {"doubling": self._doubling(structure).state()} if self.grows else {}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        if self.grows:
            self._doubling(structure).restore(memory["doubling"])

    def _doubling(self, structure: Structure) -> BudgetDoubling:
        return BudgetDoubling(structure, growth=self.growth, failure_probability=self.rho)  # type: ignore[attr-defined]

    def decide(self, agent: Agent) -> Decision:
        if not self.grows:
            return super().decide(agent)
        doubling = self._doubling(agent.structure)
        doubling.restore(agent.memory["doubling"])
        budget = doubling.revise(agent.steps, float(agent.statistics.reward_sums.sum()))
        plan = agent.plan(self.tables(agent), budget=budget)
        if plan.gain_upper is not None:
            doubling.promise(plan.gain_upper)
        agent.memory["doubling"] = doubling.state()
        return self.episode(agent, plan.policy)
