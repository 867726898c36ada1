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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.learning.budgets import BudgetDoubling
from fmdp.learning.dorl import CONSTANTS, RHO, C, Optimistic
from fmdp.learning.episodes import EPISODES, LENGTH
from fmdp.learning.learner import TARGETS, for_learning
from fmdp.model import Structure
from fmdp.parameters import Choice, Number, Numbers
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.span import PreparedSpan, SpanConstrained

GROWTH = Number(
    "growth",
    1.0,
    "of the least budget at step t, in units of the sum of the reward ranges times log2(1 + t), "
    "where no budget is given",
    low=0.0,
    low_open=True,
    only_with=("budget", (None,)),
)


class FSRL(Optimistic):
    """Optimism under a span budget; parameters budget, split, growth and those of DORL."""

    name = "fsrl"
    summary = "optimism under a budget for the factored span of the bias"
    parameters = (
        C,
        RHO,
        *CONSTANTS,
        Numbers(
            "budget",
            None,
            "the sum Q of the span budgets, or one for each state variable, in the unit of the "
            "reward; none: it is doubled when refuted, and grows with time",
            low=0.0,
        ),
        Choice(
            "split",
            None,
            "how one budget is divided between the state variables; uniform by default",
            choices=("uniform", "given", "search"),
        ),
        GROWTH,
        EPISODES,
        LENGTH,
        TARGETS,
    )

    def __init__(
        self,
        structure: Structure,
        *,
        planner: Planner | str | None = None,
        generator: np.random.Generator | int | None = None,
        **settings: object,
    ) -> None:
        """`planner` may be a SpanConstrained, whose budget counts where none is set here; a budget
        of 0, under which nothing could be learned, stands for none."""
        # By its name alone the planner has no budget of its own, as without a name.
        chosen = None if isinstance(planner, str) and planner == "span" else planner
        super().__init__(structure, planner=chosen, generator=generator, **settings)

    def choose_planner(self, planner: Planner | None) -> Planner:
        self._growing = self.settings["budget"] is None and getattr(planner, "budget", 0.0) == 0.0
        self._doubling = BudgetDoubling(
            self.structure,
            growth=self.settings["growth"],
            failure_probability=self.settings["rho"],
        )
        if isinstance(planner, SpanConstrained):
            chosen = planner
        elif planner is None:
            # Where the budget grows, every call brings its own.
            chosen = SpanConstrained(budget=0.0)
        else:
            raise InvalidParameter(
                f"learner fsrl plans under a span budget; got planner {planner.name}, must be span"
            )
        for name, unset in (("budget", 0.0), ("split", None)):
            if self.settings[name] is None:
                continue
            changed = replace(chosen, **{name: self.settings[name]})
            if getattr(chosen, name) not in (unset, getattr(changed, name)):
                raise InvalidParameter(
                    f"the '{name}' of learner fsrl must be given once; got "
                    f"{getattr(changed, name)} for the learner and {getattr(chosen, name)} "
                    f"for its planner"
                )
            chosen = changed
        if not self._growing and self.settings["growth"] != GROWTH.default:
            raise InvalidParameter(
                f"the 'growth' parameter of learner fsrl is used where no budget is given; got "
                f"growth={GROWTH.show(self.settings['growth'])} with budget {chosen.budget}"
            )
        chosen.budgets(self.structure)
        return for_learning(chosen, self.structure, self.settings["targets"])

    def plan(self) -> Plan:
        if not self._growing:
            return super().plan()
        assert isinstance(self._prepared, PreparedSpan)
        reward = float(self.statistics.reward_sums.sum())
        budget = self._doubling.revise(self.steps, reward)
        found = self._prepared.solve(self.tables(), budget=budget)
        if found.gain_upper is not None:
            self._doubling.promise(found.gain_upper)
        return found

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super().state()
        doubling = self._doubling.state() if self._growing else None
        return {**values, "doubling": doubling}, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        super().restore(values, arrays)
        self._growing = values["doubling"] is not None
        if self._growing:
            self._doubling.restore(values["doubling"])
