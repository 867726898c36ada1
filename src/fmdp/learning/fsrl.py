"""FSRL (Xu & Tewari 2020, Algorithm 2): optimism under a budget Q for the factored span.

The confidence set is DORL's. The program max lambda subject to Q(h) <= Q, which the paper leaves
open, is relaxed to the truncated iteration of planning/span.py: each factor gets a budget c_i with
sum c_i = Q, and the same regret argument holds, O~(Q sqrt(W L T)), as soon as sp_i(h*) <= c_i for
every i. Under the uniform split that asks for Q >= m max_i sp_i(h*).

Without a budget Q is doubled whenever more reward comes in than it can explain (budgets.py), and is
at least Q(t) = growth * (sum of the reward ranges) * log2(1 + t). From the first t at which it is
enough the plans are optimistic, so the regret is O~(sqrt(W L T)) with log T or twice the needed Q
in the place of Q, plus what is lost before: a number that does not depend on T.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.budgets import BudgetDoubling
from fmdp.learning.dorl import DORL
from fmdp.learning.learner import for_learning, with_targets
from fmdp.model import Structure
from fmdp.parameters import Numbers, number_text
from fmdp.planning.plan import Planner
from fmdp.planning.span import SpanConstrained
from fmdp.settings import setting

GROWTH = 1.0


class FSRL(DORL):
    """Optimism under a budget for the factored span of the bias.

    The planner may be a SpanConstrained, whose budget counts where none is set here; a budget of 0,
    under which nothing could be learned, stands for none.
    """

    only_planner = "span"
    planner_defaults: ClassVar[Mapping[str, object]] = {"budget": 0.0}

    budget: float | tuple[float, ...] | None = setting(
        None,
        "the sum Q of the span budgets, or one for each state variable, in the unit of the "
        "reward; none: it is doubled when refuted, and grows with time",
        kind=Numbers,
        low=0.0,
    )
    split: str | None = setting(
        None,
        "how one budget is divided between the state variables; uniform by default",
        choices=("uniform", "given", "search"),
    )
    growth: float = setting(
        GROWTH,
        "of the least budget at step t, in units of the sum of the reward ranges times "
        "log2(1 + t), where no budget is given",
        low=0.0,
        low_open=True,
        only_with=("budget", (None,)),
    )

    def check(self) -> None:
        if isinstance(self.planner, str) and self.planner == "span":
            # By its name alone the planner has no budget of its own, as without a name.
            object.__setattr__(self, "planner", None)
        super().check()
        if self.planner is not None and not isinstance(self.planner, SpanConstrained):
            raise InvalidParameter(
                f"learner fsrl plans under a span budget; got planner {self.planner.name}, "  # type: ignore[union-attr]
                f"must be span"
            )
        chosen = self._span_planner()
        if not self.grows and self.growth != GROWTH:
            raise InvalidParameter(
                f"the 'growth' parameter of learner fsrl is used where no budget is given; got "
                f"growth={number_text(self.growth)} with budget {chosen.budget}"
            )

    @property
    def grows(self) -> bool:
        """Whether no budget was given, so that it has to be found."""
        return self.budget is None and getattr(self.planner, "budget", 0.0) == 0.0

    def _span_planner(self) -> SpanConstrained:
        """The planner with the budget and the split, each given in one place."""
        # Where the budget grows, every call brings its own.
        chosen = SpanConstrained(budget=0.0) if self.planner is None else self.planner
        assert isinstance(chosen, SpanConstrained)
        for name, unset in (("budget", 0.0), ("split", None)):
            own = getattr(self, name)
            if own is None:
                continue
            changed = replace(chosen, **{name: own})
            if getattr(chosen, name) not in (unset, getattr(changed, name)):
                raise InvalidParameter(
                    f"the '{name}' of learner fsrl must be given once; got "
                    f"{getattr(changed, name)} for the learner and {getattr(chosen, name)} "
                    f"for its planner"
                )
            chosen = changed
        return chosen

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        chosen = self._span_planner()
        chosen.budgets(structure)
        return with_targets(for_learning(chosen, structure), self.targets), None

    def remember(self, structure: Structure) -> dict[str, Any]:
        return {"doubling": self._doubling(structure).state()} if self.grows else {}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        if self.grows:
            self._doubling(structure).restore(memory["doubling"])

    def _doubling(self, structure: Structure) -> BudgetDoubling:
        return BudgetDoubling(structure, growth=self.growth, failure_probability=self.rho)

    def decide(self, agent: Agent) -> Decision:
        if not self.grows:
            return super().decide(agent)
        doubling = self._doubling(agent.structure)
        doubling.restore(agent.memory["doubling"])
        budget = doubling.revise(agent.steps, float(agent.statistics.reward_sums.sum()))
        found = agent.plan(self.tables(agent), budget=budget)
        if found.gain_upper is not None:
            doubling.promise(found.gain_upper)
        agent.memory["doubling"] = doubling.state()
        return self.episode(agent, found.policy)
