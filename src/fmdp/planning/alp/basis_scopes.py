"""Scopes of a basis that grows: the first ones, and extensions that explain Bellman errors."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp.model import Structure
from fmdp.model.spaces import strides
from fmdp.model.structure import Scope
from fmdp.model.symmetry import Symmetry
from fmdp.planning.alp.bases import local_scopes, make_basis, subsets_of, tied

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_WEIGHTS = 640
"""Weights up to which scopes grow and a second program is solved: more take minutes to solve."""
MOST_WEIGHTS_TIED = 128
"""The same if symmetries tie weights, because each weight then stands for many functions."""
MOST_PAIRS = 1 << 15
"""Weights times values of the action variables up to which scopes grow: the cost of a program grows
with both. A circle of 40 reaches five neighbours in a minute, one of 100 two."""
MOST_FUNCTIONS = 6144
"""Functions up to which scopes grow, however few weights they share: each pass over the network
visits all of them. A circle of 40 equal machines reaches eight neighbours in less than a minute."""
MOST_VALUES = 64
"""Joint values of a scope up to which it grows: a basis has one function for each."""
MOST_VALUES_TIED = 256
"""The same if symmetries tie weights, because few remain."""
_LIKE_THE_BEST = 0.5
"""Scopes grow together whose score is at least this share of the best: a smaller share takes fewer
rounds and more weights."""


def first_scopes(structure: Structure, symmetry: Symmetry | None = None) -> tuple[Scope, ...]:
    """Return the groups that the problem declares, every other variable alone, and their images."""
    scopes = local_scopes(structure)
    return tuple(scopes) if symmetry is None else symmetry.closed(scopes)


def grown_scopes(
    structure: Structure,
    scopes: Sequence[Scope],
    states: Ints,
    errors: Floats,
    symmetry: Symmetry | None = None,
) -> tuple[Scope, ...] | None:
    """Return the scopes, some of them extended by a parent of one of their variables.

    The extensions that explain most of the errors are taken, and their images. Return None if no
    scope may grow.
    """
    sizes = structure.state_sizes
    most_values = MOST_VALUES if symmetry is None else MOST_VALUES_TIED
    scores: dict[Scope, float] = {}
    for scope in scopes:
        parents = {j for i in scope for j in structure.state_scope(i)}
        alone = _explained(sizes, scope, states, errors)
        for j in sorted(parents - set(scope)):
            wider = tuple(sorted({*scope, j}))
            if math.prod(sizes[v] for v in wider) <= most_values:
                gained = _explained(sizes, wider, states, errors) - alone
                scores[wider] = max(gained, scores.get(wider, -math.inf))
    if not scores:
        return None
    # A threshold keeps together scopes whose scores differ by rounding.
    least = _LIKE_THE_BEST * max(scores.values())
    added = {scope for scope, score in scores.items() if score >= least}
    if symmetry is not None:
        added = set(symmetry.closed(added))
    kept = [scope for scope in scopes if not any(set(scope) < set(wider) for wider in added)]
    grown = tuple(sorted({*kept, *added}))
    return grown if within_limits(structure, grown, symmetry) else None


def within_limits(
    structure: Structure, scopes: Sequence[Scope], symmetry: Symmetry | None = None
) -> bool:
    """Return whether scopes may grow to these. If not, no larger ones are within the limits."""
    if n_functions(structure.state_sizes, scopes) > MOST_FUNCTIONS:
        return False
    weights = n_weights(structure, scopes, symmetry)
    decided = structure if symmetry is None else symmetry.reduced.structure
    most = MOST_WEIGHTS if symmetry is None else MOST_WEIGHTS_TIED
    return weights <= most and weights * sum(decided.action_sizes) <= MOST_PAIRS


def widened_scopes(
    structure: Structure, scopes: Sequence[Scope], symmetry: Symmetry | None
) -> tuple[Scope, ...] | None:
    """Return every scope extended by each parent, or None if nothing changes or twice the usual
    limits are exceeded."""
    extended: set[Scope] = set()
    for scope in scopes:
        parents = {j for i in scope for j in structure.state_scope(i)}
        # A scope without parents stays as it is.
        extended |= {tuple(sorted({*scope, j})) for j in parents or scope}
    wider = tuple(sorted(extended)) if symmetry is None else symmetry.closed(extended)
    values = max((math.prod(structure.state_sizes[v] for v in scope) for scope in wider), default=0)
    most_values = MOST_VALUES if symmetry is None else MOST_VALUES_TIED
    most_weights = MOST_WEIGHTS if symmetry is None else MOST_WEIGHTS_TIED
    if (
        set(wider) == set(scopes)
        or values > 2 * most_values
        or n_functions(structure.state_sizes, wider) > 2 * MOST_FUNCTIONS
        or n_weights(structure, wider, symmetry) > 2 * most_weights
    ):
        return None
    return wider


def n_weights(structure: Structure, scopes: Sequence[Scope], symmetry: Symmetry | None) -> int:
    """Return the number of weights of the program over these scopes."""
    if symmetry is None:
        return n_functions(structure.state_sizes, scopes)
    return tied(make_basis(structure, scopes), symmetry).size


def n_functions(sizes: Sequence[int], scopes: Sequence[Scope]) -> int:
    """Return the number of functions of a basis of these scopes, shared ones counted once."""
    return sum(math.prod(sizes[v] - 1 for v in subset) for subset in subsets_of(scopes))


def _explained(sizes: Sequence[int], scope: Scope, states: Ints, errors: Floats) -> float:
    """Return the variance of the errors' means over the joint values of a scope."""
    shape = [sizes[v] for v in scope]
    at = states[:, list(scope)] @ np.array(strides(shape), dtype=np.int64)
    counts = np.bincount(at, minlength=math.prod(shape))
    sums = np.bincount(at, errors - errors.mean(), minlength=math.prod(shape))
    seen = counts > 0
    return float((sums[seen] ** 2 / counts[seen]).sum()) / len(errors)
