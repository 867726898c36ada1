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

from fmdp.model import FactoredMDP


def always_reached(model: FactoredMDP) -> tuple[int, ...] | None:
    """Such a joint state, or None."""
    structure = model.structure
    found = []
    for i, (scope, table) in enumerate(
        zip(structure.transition_scopes, model.transitions, strict=True)
    ):
        possible = np.asarray(table) > 0.0
        sizes = [structure.sizes[v] for v in scope]
        if i in scope:
            own = scope.index(i)
            rows = np.moveaxis(possible.reshape(*sizes, -1), own, 0)
            by_value = rows.reshape(sizes[own], -1, possible.shape[1])
        else:
            # What s_i was does not matter.
            by_value = np.broadcast_to(possible, (structure.state_sizes[i], *possible.shape))
        value = _attractor(by_value)
        if value is None:
            return None
        found.append(value)
    return tuple(found)


def _attractor(possible: NDArray[np.bool_]) -> int | None:
    """A value of one variable that may stay and is reached from all; possible[u, row, v]."""
    n_values = possible.shape[0]
    for value in range(n_values):
        if not possible[value, :, value].all():
            continue
        reached = np.zeros(n_values, dtype=np.bool_)
        reached[value] = True
        grows = True
        while grows and not reached.all():
            goes = np.asarray(possible[:, :, reached].any(axis=2))
            nearer = goes.all(axis=1) | reached
            grows = bool((nearer != reached).any())
            reached = nearer
        if reached.all():
            return value
    return None
