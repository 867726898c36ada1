"""The product of n two-state MDPs of Jaksch, Auer and Ortner 2010: the lower bound (Theorem 3).

State 1 pays 1, state 0 nothing. Every action goes 1 -> 0 with probability delta and 0 -> 1 with
delta, the last action 0 -> 1 with delta + epsilon (the last, so that no lowest-index rule for
ties finds it by luck). For the sum as reward:
gain n (delta + epsilon) / (2 delta + epsilon), span = factored span sum = n / (2 delta + epsilon),
diameter 2 sum over odd j of C(n, j) / (1 - (1 - 2 delta)^j), which grows like 2^n.
"""

from __future__ import annotations

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.model.factored import FactoredMDP
from fmdp.parameters import Integer, Number, number_text
from fmdp.problems.copies import copies
from fmdp.problems.family import REWARD, Family, refuse_if_too_large, size_parameter


def build(
    *, name: str, size: int, delta: float, epsilon: float, actions: int, reward: str
) -> FactoredMDP:
    up = delta + epsilon
    if up > 1.0 + 1e-12:
        raise InvalidParameter(
            f"the 'epsilon' parameter of jao must be at most 1 - delta = {number_text(1 - delta)}; "
            f"got {number_text(epsilon)}"
        )
    refuse_if_too_large(name, size * (4 * actions + 2), 2 * size)
    transition = np.empty((2, actions, 2))
    transition[0, :, 1] = delta
    transition[0, -1, 1] = min(up, 1.0)  # .41 + .59 is 1 up to rounding
    transition[0, :, 0] = 1.0 - transition[0, :, 1]
    transition[1] = (delta, 1.0 - delta)
    return copies(
        name=name,
        n=size,
        transition=transition,
        means=np.array([0.0, 1.0]),
        reward=reward,
        initial=0,
    )


FAMILIES: tuple[Family, ...] = (
    Family(
        name="jao",
        summary="product of two-state MDPs whose good action is hard to tell (lower bound)",
        size=size_parameter("number of copies"),
        parameters=(
            Number(
                "delta", 0.2, "probability of a change of state", low=0.0, high=0.5, low_open=True
            ),
            Number("epsilon", 0.1, "what the last action adds to it in state 0", low=0.0, high=1.0),
            Integer("actions", 2, "values of each action variable", low=2),
            REWARD,
        ),
        build=build,
        example="jao:3",
    ),
)
