"""A state that is reached from everywhere whatever is done, if the tables show one at sight.

For every state variable i a value v_i is looked for such that

* at v_i it may stay: every row of its factor with s_i = v_i gives v_i some probability; and
* it can be reached from every value: a set that begins with v_i takes in all values from which
  every row of the factor gives the set some probability, until nothing is left out.

Then from every joint state, under all actions, with some probability every variable goes to its
value and those that are there wait for the others: (v_1, .., v_m) is reached. So it is recurrent
under every policy, there is one recurrent class under each, the gain is one number, no policy is
periodic, and solutions of the optimality equation differ by constants alone (docs/exact.md). The
condition is sufficient and not necessary: a false answer says nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.classes import Look, nothing
from fmdp.model import FactoredMDP
from fmdp.model.spaces import count


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
