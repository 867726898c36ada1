"""A span budget for FSRL that doubles when it is refuted, so that Q need not be known.

Suppose that the truth is in the confidence sets and Q is enough: sp_i(h*) <= c_i for every i. Then
every plan is optimistic: its promise lambda_k, the upper bound of the plan, is at least lambda*.
Since R(s, a) + (P h*)(s, a) <= lambda* + h*(s) for every state and action, for every policy

    sum over n steps of (r_t - lambda_k)  <=  sp(h*) + a martingale,

where sp(h*) <= Q, and r + h*(s') lies in an interval of length R + Q, R the sum of the reward
ranges. By Azuma and Hoeffding, with probability 1 - rho for all n and all budgets j = 1, 2, ...,

    sum over n steps of (r_t - lambda_k)  <=  Q + (R + Q) sqrt(n/2 log(n (n + 1) j (j + 1) / rho)).

More reward than that refutes Q, and the budget is doubled, so doubling never exceeds twice a
sufficient Q. A budget that is too small may also promise little and never be refuted, so it has a
lower limit that grows with time.
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
    """Return growth * (sum of the reward ranges) * log2(1 + t), for t = 1, 2, ...."""
    return growth * structure.reward_range_total * math.log2(1 + t)


def refutation_threshold(
    budget: float, reward_range: float, steps: int, test: int, failure_probability: float
) -> float:
    """Return the largest reward above the promises in n = `steps` steps if the budget is enough."""
    log = math.log(steps * (steps + 1) * test * (test + 1) / failure_probability)
    return budget + (reward_range + budget) * math.sqrt(0.5 * steps * log)


class BudgetDoubling:
    """The span budget of the next plan, from the rewards so far.

    Call `budget = doubling.revise(steps, reward)` before each plan, with the totals of the run, and
    `doubling.promise(plan.gain_upper)` after it.
    """

    def __init__(
        self, structure: Structure, *, growth: float = 1.0, failure_probability: float = 0.1
    ) -> None:
        self.structure = structure
        self.growth = growth
        self.failure_probability = failure_probability
        self.budget = growing_budget(1, growth, structure)
        self.refuted = 0
        """Number of refuted budgets."""
        self._tested = self.budget  # the budget at the start of the current test
        self._tested_steps = 0
        self._excess = 0.0  # reward above the promises since then
        self._promise = 0.0
        self._steps = 0
        self._reward = 0.0

    def revise(self, steps: int, reward: float) -> float:
        """Return the budget of the next plan, from the number of steps and the total reward of
        the run."""
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
        """Set the promise: the upper bound of the plan that is played from now on."""
        self._promise = gain_upper

    def state(self) -> dict[str, Any]:
        """Return the state in plain values."""
        return {name: getattr(self, name) for name in _STATE}

    def restore(self, values: Mapping[str, Any]) -> None:
        """Set the state to a result of `state`; raise InvalidParameter for other values."""
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
"""The attributes of the state, with their least values."""
