"""Restless bandits of the literature: n equal arms, of which some may be active in a step.

gast1, gast2, gast3
    The three-state examples of Gast, Gaujal & Yan, "Exponential convergence rate for the asymptotic
    optimality of Whittle index policy" (2020), with 40 % of the arms active. Numbers as in the
    published code of Hong, Xie, Chen & Wang (github.com/YigeHong/rb-focus-set, rb_settings.py), to
    eight digits; rows are divided by their sums. The linear program over the occupancies of one arm
    of gast2 has the value 0.12380017.
circulant
    Four states on a circle; an active arm moves on with probability 1/2, a passive one back. Fu,
    Nazarathy, Moka & Taylor, "Towards Q-learning the Whittle index for restless bandits" (2019),
    where 20 % of the arms are active. The Whittle indices are -1/2, 1/2, 1, -1.
nonindexable
    A three-state arm that has no Whittle indices, from the same published code as the first three
    (NonIndexableExample; half of the arms are active).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.model.factored import FactoredMDP
from fmdp.problems.family import Problem, alike_setting, refuse_if_too_large
from fmdp.problems.fleet import Part, Words, budget_of, budget_setting, fleet_model

Rows = list[list[float]]


class _Example(NamedTuple):
    share: float
    """Share of the arms that may be active."""
    passive: Rows
    active: Rows
    passive_reward: list[float]
    active_reward: list[float]


_EXAMPLES = {
    "gast1": _Example(
        0.4,
        [
            [0.5214073, 0.40392496, 0.07466774],
            [0.0158415, 0.21455666, 0.76960184],
            [0.53722329, 0.37651148, 0.08626522],
        ],
        [
            [0.24639364, 0.23402385, 0.51958251],
            [0.49681581, 0.49509821, 0.00808597],
            [0.37826553, 0.15469252, 0.46704195],
        ],
        [0.0, 0.0, 0.0],
        [0.72232506, 0.18844869, 0.25752477],
    ),
    "gast2": _Example(
        0.4,
        [
            [0.02232142, 0.10229283, 0.87538575],
            [0.03426605, 0.17175704, 0.79397691],
            [0.52324756, 0.45523298, 0.02151947],
        ],
        [
            [0.14874601, 0.30435809, 0.54689589],
            [0.56845754, 0.41117331, 0.02036915],
            [0.25265570, 0.27310439, 0.4742399],
        ],
        [0.0, 0.0, 0.0],
        [0.37401552, 0.11740814, 0.07866135],
    ),
    "gast3": _Example(
        0.4,
        [
            [0.47819592, 0.02090623, 0.50089785],
            [0.08063373, 0.15456935, 0.76479692],
            [0.66552514, 0.08481946, 0.2496554],
        ],
        [
            [0.00279465, 0.37327924, 0.62392611],
            [0.51582335, 0.46333908, 0.02083756],
            [0.41875202, 0.17776712, 0.40348086],
        ],
        [0.0, 0.0, 0.0],
        [0.97658608, 0.53014109, 0.40394919],
    ),
    "circulant": _Example(
        0.2,
        [[0.5, 0.0, 0.0, 0.5], [0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.5, 0.5]],
        [[0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 0.0, 0.5]],
        [-1.0, 0.0, 0.0, 1.0],
        [-1.0, 0.0, 0.0, 1.0],
    ),
    "nonindexable": _Example(
        0.5,
        [[0.1902, 0.4156, 0.3942], [0.5676, 0.4191, 0.0133], [0.0191, 0.1097, 0.8712]],
        [[0.7796, 0.0903, 0.1301], [0.1903, 0.1863, 0.6234], [0.2901, 0.3901, 0.3198]],
        [0.458, 0.5308, 0.6873],
        [0.9631, 0.7963, 0.1057],
    ),
}


class Restless(Problem):
    """Equal arms with published numbers; a budget limits how many are active in a step."""

    name = "restless"
    summary = "restless bandits of the literature: equal arms, some of which are active"
    example = "restless:5"

    size: int = setting(REQUIRED, "number of arms", low=1)
    arm: str = setting("gast2", "the published example", choices=tuple(_EXAMPLES))
    budget: int | None = budget_setting()
    alike: str = alike_setting("types")

    def build(self) -> FactoredMDP:
        n, chosen = self.size, _EXAMPLES[self.arm]
        refuse_if_too_large(str(self), 64, 2 * n)
        rows = np.array([chosen.passive, chosen.active]).transpose(1, 0, 2)
        rows = rows / rows.sum(axis=2, keepdims=True)
        means = np.array([chosen.passive_reward, chosen.active_reward]).T
        return fleet_model(
            str(self),
            [Part(rows, means)],
            n,
            budget_of(self.budget, chosen.share, n),
            Words("arm", ("passive", "active")),
            self.alike == "types",
        )
