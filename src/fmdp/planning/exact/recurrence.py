"""When solutions of the optimality equation differ by constants alone.

**At sight**: a state that is reached from everywhere whatever is done, if the tables show one.

For every state variable i a value v_i is looked for such that

* at v_i it may stay: every row of its factor with s_i = v_i gives v_i some probability; and
* it can be reached from every value: a set that begins with v_i takes in all values from which
  every row of the factor gives the set some probability, until nothing is left out.

Then from every joint state, under all actions, with some probability every variable goes to its
value and those that are there wait for the others: (v_1, .., v_m) is reached. So it is recurrent
under every policy, there is one recurrent class under each, the gain is one number, no policy is
periodic, and solutions of the optimality equation differ by constants alone (docs/exact.md). The
condition is sufficient and not necessary: a false answer says nothing.

**By sweeps**: a state that lies in every recurrent class of gain g, the optimal one. A class
without it avoids, besides, all states from which every action may lead to it, and so on; on those
that are left its gain is at most max (L w - w), whatever w is there. If that is less than a lower
bound on g, there is no optimal class without the state. With w = h of an iteration under way, its
penalty on what is to be avoided, that takes two or three sweeps where the tables show nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Look, nothing
from fmdp.elimination.alignment import aligned
from fmdp.elimination.backup import Backup
from fmdp.elimination.rounding import rounding_allowance
from fmdp.model import FactoredMDP
from fmdp.model.spaces import count

Vector = NDArray[np.float64]
Mask = NDArray[np.bool_]

SWEEPS = 6
"""After which `in_every_best_class` has no answer."""
_PENALTY = 2.0**200
_LEFT_OUT = 2.0
"""Sizes of w below 0 at which a value must have the penalty in it."""


def always_reached(model: FactoredMDP, look: Look = nothing) -> tuple[int, ...] | None:
    """Such a joint state, or None; `look` is called now and then, and may raise."""
    structure = model.structure
    found = []
    for i, (scope, table) in enumerate(
        zip(structure.transition_scopes, model.transitions, strict=True)
    ):
        possible = np.asarray(table) > 0.0
        n_values = possible.shape[1]
        if i in scope:
            own = scope.index(i)
            after = count(structure.scope_sizes(scope[own + 1 :]))
            rows = possible.reshape(-1, n_values, after, n_values)
            by_value = rows.transpose(1, 0, 2, 3).reshape(n_values, -1, n_values)
        else:
            # What s_i was does not matter.
            by_value = np.broadcast_to(possible, (n_values, *possible.shape))
        value = _attractor(by_value, look)
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def _attractor(possible: NDArray[np.bool_], look: Look) -> int | None:
    """A value of one variable that may stay and is reached from all; possible[u, row, v]."""
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
            look()
            reached |= joins
            for joined in np.flatnonzero(joins):
                hits |= possible[:, :, joined]
            joins = hits.all(axis=1) & ~reached
        if reached.all():
            return value
        # From all of these the value is reached: could all values come to one of them, they could
        # come to it.
        hopeless |= reached
    return None


def in_every_best_class(backup: Backup, h: Vector, lower: float, state: int) -> tuple[bool, int]:
    """Whether all recurrent classes of optimal policies are shown to contain the state, and the
    sweeps that it took.

    `h`, near a solution, and `state` are in elimination order; `lower` is at most the optimal gain
    from every state.  A false answer says nothing.

    Rounding: with |w| and the rewards at most `size`, a value below -2 size can only be one in
    which every action meets the penalty, since one that does not is at least -size.  A value above
    is not further below the true one than five allowances: actions whose share of the penalty is
    more than 4 size are worth less than -3 size, and lose; for the others everything that is
    summed up is at most 5 size.
    """
    w, new = np.array(h), aligned(len(h))
    avoided = np.zeros(len(h), dtype=np.bool_)
    avoided[state] = True
    for sweeps in range(SWEEPS):
        size = _largest(w, avoided) + backup.structure.reward_size
        penalty = size * _PENALTY
        if not np.isfinite(penalty):
            return False, sweeps
        w[avoided] = -penalty
        backup.sweep(w, new)
        highest = _avoid(w, new, avoided, lower, -_LEFT_OUT * size)
        if highest + 5.0 * rounding_allowance(size, backup.roundings) < lower:
            return True, sweeps + 1
    return False, SWEEPS


def _largest(w: Vector, avoided: Mask) -> float:
    """Return max |w| over the states that are not avoided, 0 if there are none."""
    return float(np.abs(w[~avoided]).max(initial=0.0))


def _avoid(w: Vector, new: Vector, avoided: Mask, lower: float, least: float) -> float:
    """Return the largest new - w of the states that are left. States with new < least join the
    avoided ones; for the others w <- new - lower."""
    avoided |= new < least
    left = ~avoided
    highest = float((new[left] - w[left]).max(initial=-np.inf))
    w[left] = new[left] - lower
    return highest
