"""Constraints on actions inside the elimination.

Constraints on actions alone restrict the enumeration of joint actions. A constraint that looks at
the state becomes a reward factor: 0 where it allows (s, a), -CHARGE where it forbids. With f the
number of constraints that forbid (s, a), the sweep computes

    q'(s, a) = R + P h - f CHARGE,    so   max_a q'(s, a) = max over the allowed a of R + P h.

Proof that certificates are unaffected. Adding 0.0 to a number changes no bit of it, and rewards are
added as soon as their scope is known, before the remaining variables are averaged; so q' of an
allowed action is, to the bit, what the sweep computes without constraints. A forbidden one has f >=
1, and rows that sum to 1 up to rounding preserve its charge: q' <= -CHARGE / 2, less than any
allowed q, since |R + P h| < CHARGE / 4 (rewards of a step are at most 1e300, and a charge is at
least 1e304 with up to 10^4 constraints). Every state has an allowed action, so the maximum is
attained by one, by more than any slack of a tie. -inf would do the same except for rows with zeros,
as 0 * inf is not a number. The charge is not a reward: ranges, sizes and rounding allowances are
those of the structure, and a minimum over actions (`Backup.lowest`) negates the rewards but not the
charge.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fmdp.model import Structure
from fmdp.model.constraints import allowed_combinations

Index = NDArray[np.int64]

CHARGE = 1e306
"""Charge of one constraint; the sum over all that forbid one action is at most 100 times as
much."""


@lru_cache(maxsize=16)
def charging(structure: Structure) -> Structure:
    """Return the structure that the engine works on; the same object without state constraints.
    Constraints that look at the state are appended as reward factors. Those on actions alone are
    kept."""
    m = structure.m
    looking = tuple(c for c in structure.constraints if c.scope[0] < m)
    if not looking:
        return structure
    taken = set(structure.reward_names)
    names = []
    for number in range(len(looking)):
        name = f"constraint {number}"
        while name in taken:
            name += "'"
        names.append(name)
        taken.add(name)
    return replace(
        structure,
        reward_scopes=structure.reward_scopes + tuple(c.scope for c in looking),
        reward_ranges=structure.reward_ranges + ((0.0, 0.0),) * len(looking),
        reward_names=structure.reward_names + tuple(names),
        constraints=tuple(c for c in structure.constraints if c.scope[0] >= m),
        alike=None,
        effects=None,
    )


def charges(structure: Structure) -> NDArray[np.float64]:
    """Return the tables of the factors that `charging` appends, end to end."""
    looking = [c for c in structure.constraints if c.scope[0] < structure.m]
    charge = -CHARGE * min(1.0, 100.0 / max(1, len(looking)))
    parts = [np.where(c.forbidden_table(structure.sizes), charge, 0.0) for c in looking]
    return np.concatenate([np.zeros(0), *parts])


def enumerated(structure: Structure) -> Index:
    """Return the joint actions that no constraint on actions alone forbids, in C order: [A', n]."""
    on_actions = [c for c in structure.constraints if c.scope[0] >= structure.m]
    return allowed_combinations(on_actions, structure.m, structure.sizes)
