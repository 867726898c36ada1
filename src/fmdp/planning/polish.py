"""The bias to its last digits, where it is known to be the only one.

Bounds that meet say nothing about h: a state that pays a millionth less and is left once in 10^8
steps is missing from it. The equation of the policy that is greedy at h,

    h + gain = r + P h        (one recurrent class: one solution up to a constant),

has all of it, whatever the chain is, and where no action is better at its solution than the
policy's own, that is the bias. Sweeps of the engine certify it as they do any h.
Cost: a linear system over the states for a policy, and one or two policies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, check_clock
from fmdp.model import FactoredMDP
from fmdp.planning.component import bias_of
from fmdp.planning.flat import chain_of, only_class
from fmdp.planning.improvement import certified
from fmdp.planning.iteration import Ending

Vector = NDArray[np.float64]

_STATES = 1 << 12
_POLICIES = 4
"""That are tried: the first is nearly always the best."""
_BY_ROUNDING = 4.0
"""Allowances for rounding that the bounds of a solution are apart at most: two of them are added to
what rounding has really done."""


def polished(
    model: FactoredMDP, backup: Backup, ending: Ending, deadline: float | None
) -> Ending | None:
    """The ending at an h that solves the optimality equation but for rounding; None where none is
    found. `ending.h` is one whose bounds meet, and is not changed."""
    h, out = ending.h, np.empty_like(ending.h)
    everyone = np.zeros(backup.n_states, dtype=np.int64)
    backup.sweep(h, out)
    for _ in range(_POLICIES):
        check_clock(deadline)
        chain = chain_of(model, backup.greedy_actions(h, out, "first", 0, 0.0))
        if chain is None:
            return None
        recurrent = only_class(chain.successors, chain.possible, _STATES)
        found = None if recurrent is None else bias_of(chain, everyone, int(recurrent.argmax()))
        if found is None:
            return None
        h = backup.to_internal(found[0])
        backup.sweep(h, out)
        lower, upper, slack = certified(backup, h, out)
        if upper - lower <= _BY_ROUNDING * slack:
            return Ending(
                ending.status,
                lower,
                min(upper, ending.upper),
                ending.sweeps,
                ending.damping,
                h,
                out,
                whole=True,
                slack=slack,
                accelerated=ending.accelerated,
            )
    return None
