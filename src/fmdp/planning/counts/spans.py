"""Spans, values and means over joint states of a function of counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.model.count_space import CountSpace
from fmdp.model.spaces import count, strides
from fmdp.planning.counts.chance import one_more
from fmdp.planning.policies.counts import joint_states

Vector = NDArray[np.float64]


def factored_spans_on_counts(h: Vector, space: CountSpace) -> tuple[float, ...]:
    """Return the largest change of h along each state variable of the model.

    When a variable of one part changes, the other N - 1 parts stay: for every count vector of
    N - 1 parts and all values of the part's other variables, one part is added in each value.
    """
    cube = h.reshape(space.shape)
    spans = [0.0] * len(space.state_sizes)
    for g, group in enumerate(space.groups):
        along = np.moveaxis(cube, g, 0)
        sources = one_more(space.n_parts[g] - 1, space.n_local[g])
        sizes = space.local_sizes[g]
        for slot, (step, size) in enumerate(zip(strides(sizes), sizes, strict=True)):
            largest = 0.0
            others = [j for j in range(space.n_local[g]) if j // step % size == 0]
            for j in others:
                values = np.stack([along[sources[j + step * value]] for value in range(size)])
                largest = max(largest, float((values.max(axis=0) - values.min(axis=0)).max()))
            for part in group:
                spans[part[slot]] = largest
    inner = count(space.common_sizes)
    for v, size in zip(space.common_states, space.common_sizes, strict=True):
        inner //= size
        values = h.reshape(-1, size, inner)
        spans[v] = float((values.max(axis=1) - values.min(axis=1)).max())
    return tuple(spans)


def marginals_on_counts(h: Vector, space: CountSpace) -> tuple[Vector, ...]:
    """Return for each state variable of the model the mean of h over the others, by its value.

    In a joint state drawn at random with counts n, a part is in local state j with probability
    n_j / N.
    """
    weighted = h * space.weights
    marginals: list[Vector] = [np.zeros(0)] * len(space.state_sizes)
    for g, group in enumerate(space.groups):
        sizes = space.local_sizes[g]
        by_local = (weighted @ space.counts[g] / space.n_parts[g]).reshape(sizes)
        for slot, size in enumerate(sizes):
            others = tuple(axis for axis in range(len(sizes)) if axis != slot)
            mean = by_local.sum(axis=others) * size
            for part in group:
                marginals[part[slot]] = mean
    inner = count(space.common_sizes)
    for v, size in zip(space.common_states, space.common_sizes, strict=True):
        inner //= size
        marginals[v] = weighted.reshape(-1, size, inner).sum(axis=(0, 2)) * size
    return tuple(marginals)


def over_joint_states(h: Vector, space: CountSpace) -> Vector:
    """Return h as a function of the joint states, in C order."""
    out = np.empty(count(space.state_sizes))
    for start, states in joint_states(space.state_sizes):
        out[start : start + len(states)] = h[space.states_of(states)]
    return out
