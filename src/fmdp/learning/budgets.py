"""A span budget for FSRL that needs no Q in advance: it doubles when it has been refuted.

Suppose the truth is in the confidence sets and Q is enough: sp_i(h*) <= c_i for every i. Then every
plan is optimistic: its promise lambda_k (the upper bound of the plan) is at least lambda*. Since
R(s, a) + (P h*)(s, a) <= lambda* + h*(s) for every state and action, whatever is played,

    sum over n steps of (r_t - lambda_k)  <=  sp(h*) + a martingale,

where sp(h*) <= Q, and r + h*(s') lies in an interval of length R + Q, R the sum of the reward
ranges. By Azuma and Hoeffding, with probability 1 - rho for all n and all budgets j = 1, 2, ...,

    sum over n steps of (r_t - lambda_k)  <=  Q + (R + Q) sqrt(n/2 log(n (n + 1) j (j + 1) / rho)).

More reward than that refutes Q, and it is doubled: so doubling never passes twice what is enough.
Too small a budget can also keep its promises, by promising little: so a floor grows with time.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.model import Structure


def growing_budget(t: int, growth: float, structure: Structure) -> float:
    """growth * (sum of the reward ranges) * log2(1 + t), for t = 1, 2, ...."""
    return growth * structure.reward_range_total * math.log2(1 + t)


def refutation_threshold(
    budget: float, reward_range: float, steps: int, test: int, failure_probability: float
) -> float:
    """The reward above the promises that no n steps bring if the budget is enough, n = steps."""
    log = math.log(steps * (steps + 1) * test * (test + 1) / failure_probability)
    return budget + (reward_range + budget) * math.sqrt(0.5 * steps * log)


class BudgetDoubling:
    """The budget of the plan to come, from the rewards that earlier plans have brought.

    Before each plan: `budget = doubling.revise(steps, reward)` with the totals so far; after it:
    `doubling.promise(plan.gain_upper)`.
    """

    def __init__(
        self, structure: Structure, *, growth: float = 1.0, failure_probability: float = 0.1
    ) -> None:
        self.structure = structure
        self.growth = growth
        self.failure_probability = failure_probability
        self.budget = growing_budget(1, growth, structure)
        self.refuted = 0
        """How often a budget has been refuted."""
        self._tested = self.budget  # the budget at the start of the test under way
        self._tested_steps = 0
        self._excess = 0.0  # reward above the promises since then
        self._promise = 0.0
        self._steps = 0
        self._reward = 0.0

    def revise(self, steps: int, reward: float) -> float:
        """The budget for the next plan; steps and reward are those of the whole run so far."""
        taken = steps - self._steps
        self._excess += (reward - self._reward) - taken * self._promise
        self._tested_steps += taken
        self._steps, self._reward = steps, reward
        level = self._tested
        if self._tested_steps > 0 and self._excess > refutation_threshold(
            level,
            self.structure.reward_range_total,
            self._tested_steps,
            self.refuted + 1,
            self.failure_probability,
        ):
            level *= 2.0
            self.refuted += 1
            self._tested_steps, self._excess = 0, 0.0
        self.budget = max(level, growing_budget(steps + 1, self.growth, self.structure))
        if self._tested_steps == 0:
            self._tested = self.budget
        return self.budget

    def promise(self, gain_upper: float) -> None:
        """The upper bound of the plan that is played from now on."""
        self._promise = gain_upper

    def state(self) -> dict[str, Any]:
        """Plain values; with the arguments of the constructor they are all there is."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, values: Mapping[str, Any]) -> None:
        """From what `state` has returned, perhaps by way of a file; or InvalidParameter."""
        for name, least in _STATE.items():
            value = values.get(name) if isinstance(values, Mapping) else None
            whole = isinstance(getattr(self, name), int)
            right = type(value) is int or (type(value) is float and not whole)
            if not right or not max(least, -sys.float_info.max) <= value <= sys.float_info.max:  # type: ignore[operator]
                raise InvalidParameter(
                    f"{name.strip('_')} of a budget must be a {'whole' if whole else 'finite'} "
                    f"number{'' if least else ', at least 0'}; got {quoted(value)}"
                )
        for name in _STATE:
            setattr(self, name, values[name])


_STATE = {
    "budget": 0,
    "refuted": 0,
    "_tested": 0,
    "_tested_steps": 0,
    "_excess": -math.inf,
    "_promise": -math.inf,
    "_steps": 0,
    "_reward": -math.inf,
}
"""What there is beside the arguments of the constructor, and the least that each can be."""
