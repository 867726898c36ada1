"""Two sufficient conditions for a unique bias, and the states that prove them.

**From the tables** (`always_reached`): a state that every policy reaches from everywhere.

For every state variable i, look for a value v_i such that

* at v_i it may stay: every row of its factor with s_i = v_i gives v_i some probability; and
* it can be reached from every value: a set that begins with v_i takes in all values from which
  every row of the factor gives the set some probability, until all values are in it.

Then from every joint state, under all actions, with some probability every variable moves to its
value and stays there until the others have: (v_1, .., v_m) is reached. So it is recurrent under
every policy, every policy has one recurrent class and no period, the gain is one number, and
solutions of the optimality equation differ only by constants (docs/exact.md). The condition is
sufficient, not necessary: None proves nothing.

**By sweeps** (`in_every_best_class`): a state that lies in every recurrent class of the optimal
gain g. A class without it also avoids all states from which every action may lead to it, and so on.
On the states that are left, its gain is at most max (L w - w), whatever w is there. If that is less
than a lower bound on g, no optimal class is without the state. With w = h of a running iteration,
and a penalty on the states to avoid, the proof takes two or three sweeps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.alignment import aligned
from fmdp.elimination.backup import Backup
from fmdp.elimination.rounding import rounding_allowance
from fmdp.model import FactoredMDP
from fmdp.model.spaces import count

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

SWEEPS = 6
"""Sweeps after which `in_every_best_class` gives up."""
PROOF_BYTES = 8 + 8 + 2
"""Bytes per state of `in_every_best_class`: w, L w, and the states to avoid and the others."""
_PENALTY = 2.0**200
"""Penalty of the states to avoid, in sizes of w."""
_BLOCK = 1 << 16
"""States that are handled at once."""
_LEFT_OUT = 2.0
"""Sizes of w below 0 from which on a value must include the penalty."""


def always_reached(model: FactoredMDP, deadline: Deadline = NEVER) -> tuple[int, ...] | None:
    """Return a joint state that every policy reaches from everywhere; None if the tables show none.

    `look` is called now and then, and may raise.
    """
    structure = model.structure
    values = []
    for i, (scope, table) in enumerate(
        zip(structure.transition_scopes, model.transitions, strict=True)
    ):
        possible = np.asarray(table) > 0.0
        n_values = possible.shape[1]
        if i in scope:
            place = scope.index(i)
            after = count(structure.scope_sizes(scope[place + 1 :]))
            rows = possible.reshape(-1, n_values, after, n_values)
            by_value = rows.transpose(1, 0, 2, 3).reshape(n_values, -1, n_values)
        else:
            # The row does not depend on s_i.
            by_value = np.broadcast_to(possible, (n_values, *possible.shape))
        value = _attractor(by_value, deadline)
        if value is None:
            return None
        values.append(value)
    return tuple(values)


def _attractor(possible: NDArray[np.bool_], deadline: Deadline) -> int | None:
    """Return a value of one variable that may stay and is reached from all, or None.

    possible[u, row, v]: whether the row, one of those at the value u, leads to v.
    """
    n_values = len(possible)
    hopeless = np.zeros(n_values, dtype=np.bool_)
    for value in range(n_values):
        if hopeless[value] or not possible[value, :, value].all():
            continue
        reached = np.zeros(n_values, dtype=np.bool_)
        reached[value] = True
        # Rows (u, row) that give the set some probability; a value joins when all of its rows do.
        hits = possible[:, :, value].copy()
        joins = hits.all(axis=1) & ~reached
        while joins.any():
            deadline.check()
            reached |= joins
            for joined in np.flatnonzero(joins):
                hits |= possible[:, :, joined]
            joins = hits.all(axis=1) & ~reached
        if reached.all():
            return value
        # The value is reached from all of these.  If one of them were reached from all values, so
        # would the value be.
        hopeless |= reached
    return None


def in_every_best_class(
    backup: Backup, h: Vector, lower: float, state: int | None, w: Vector | None = None
) -> tuple[bool, int]:
    """Return whether every recurrent class of optimal policies provably contains the state, and the
    number of sweeps that were made.

    `h`, near a solution, and `state` are in the order of the backup; `lower` is at most the optimal
    gain from every state.  `w` is a workspace of the same length.  If several processes plan
    together, `state` is None for those that do not hold it.  False proves nothing.

    Rounding: with |w| and the rewards at most `size`, a value below -2 size can only be one in
    which every action meets the penalty, since one that does not is at least -size.  A value above
    that is at most five allowances below the true one: actions whose share of the penalty is more
    than 4 size are worth less than -3 size, and lose; for the others every summand is at most
    5 size.
    """
    w, new = aligned(len(h)) if w is None else w, aligned(len(h))
    w[:] = h
    avoided = np.zeros(len(h), dtype=np.bool_)
    if state is not None:
        avoided[state] = True
    for sweeps in range(SWEEPS):
        size = backup.largest(_largest(w, avoided)) + backup.structure.reward_size
        penalty = size * _PENALTY
        if not np.isfinite(penalty):
            return False, sweeps
        w[avoided] = -penalty
        backup.sweep(w, new)
        highest = backup.largest(_avoid(w, new, avoided, lower, -_LEFT_OUT * size))
        if highest + 5.0 * rounding_allowance(size, backup.roundings) < lower:
            return True, sweeps + 1
    return False, SWEEPS


def _largest(w: Vector, avoided: Mask) -> float:
    """Return max |w| over the states that are not avoided, 0 if there are none."""
    return max(float(np.abs(w[block][~avoided[block]]).max(initial=0.0)) for block in _blocks(w))


def _blocks(w: Vector) -> list[slice]:
    """Return slices that cover w, so that temporary arrays stay small."""
    return [slice(first, first + _BLOCK) for first in range(0, len(w), _BLOCK)]


def _avoid(w: Vector, new: Vector, avoided: Mask, lower: float, least: float) -> float:
    """Return the largest new - w of the states that are left. States with new < least join the
    avoided ones; for the others w <- new - lower."""
    highest = -np.inf
    for block in _blocks(w):
        image, old = new[block], w[block]
        avoided[block] |= image < least
        left = ~avoided[block]
        highest = max(highest, float((image[left] - old[left]).max(initial=-np.inf)))
        old[left] = image[left] - lower
    return highest
