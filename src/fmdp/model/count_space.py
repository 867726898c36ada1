"""The states of a model with exchangeable parts, by counts.

A state of the quotient is, for each group, how many parts are in each local state, and the values
of the common variables. States are numbered group by group (by the rank of the counts) and then by
the common variables, the last fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fmdp.model.compositions import composition_rank, compositions, n_compositions
from fmdp.model.spaces import all_assignments, count, strides

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


class CountSpace:
    """Counts of the parts of each group, and common variables.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable of the model.
    groups
        [groups][parts][slots]: the state variables of each part; sizes agree between parts.
    """

    def __init__(
        self, state_sizes: Sequence[int], groups: Sequence[Sequence[Sequence[int]]]
    ) -> None:
        self.state_sizes = tuple(state_sizes)
        self.groups = tuple(tuple(tuple(part) for part in group) for group in groups)
        inside = {v for group in self.groups for part in group for v in part}
        self.common_states = tuple(v for v in range(len(state_sizes)) if v not in inside)
        self.local_sizes = tuple(tuple(state_sizes[v] for v in group[0]) for group in self.groups)
        """[groups][slots]: sizes of the variables of a part."""
        self.n_local = tuple(map(count, self.local_sizes))
        """By group the number of local states."""
        self.n_parts = tuple(map(len, self.groups))
        self.common_sizes = tuple(state_sizes[v] for v in self.common_states)
        self.shape = (
            *(n_compositions(n, k) for n, k in zip(self.n_parts, self.n_local, strict=True)),
            count(self.common_sizes),
        )
        """Count vectors of each group, and last the joint values of the common variables."""
        self.n_states = math.prod(self.shape)

    def places(self, axis: int) -> Indices:
        """Return for every state its place on one axis of `shape`."""
        behind = strides(self.shape)[axis]
        places: Indices = np.arange(self.n_states) // behind % self.shape[axis]
        return places

    @cached_property
    def counts(self) -> tuple[Indices, ...]:
        """By group the counts by local state of every state: [S, local states]."""
        pairs = zip(self.n_parts, self.n_local, strict=True)
        return tuple(compositions(n, k)[self.places(g)] for g, (n, k) in enumerate(pairs))

    @cached_property
    def common(self) -> Indices:
        """The values of the common variables in every state: [S, common variables]."""
        return all_assignments(self.common_sizes)[self.places(len(self.groups))]

    def local_states(self, g: int, states: Indices) -> Indices:
        """Return the local state of every part of a group: [T, parts], from [T, variables]."""
        inside = np.zeros((len(states), self.n_parts[g]), dtype=np.int64)
        for slot, step in enumerate(strides(self.local_sizes[g])):
            inside += states[:, [part[slot] for part in self.groups[g]]] * step
        return inside

    def states_of(self, states: Indices) -> Indices:
        """Return the numbers of the count vectors of joint states: [T], from [T, variables]."""
        index = np.zeros(len(states), dtype=np.int64)
        for g, size in enumerate(self.shape[:-1]):
            local = self.local_states(g, states)
            columns = [(local == j).sum(axis=1) for j in range(self.n_local[g])]
            index = index * size + composition_rank(columns, self.n_parts[g])
        for v, size in zip(self.common_states, self.common_sizes, strict=True):
            index = index * size + states[:, v]
        return index

    def state_of(self, state: Sequence[int]) -> int:
        """Return the number of the count vector of one joint state."""
        return int(self.states_of(np.asarray([state], dtype=np.int64))[0])

    def example(self, number: int) -> tuple[int, ...]:
        """Return a joint state with these counts: parts in the order of their local states."""
        state = [0] * len(self.state_sizes)
        for g, group in enumerate(self.groups):
            local = np.repeat(np.arange(self.n_local[g]), self.counts[g][number])
            for part, inside in zip(group, local.tolist(), strict=True):
                steps = strides(self.local_sizes[g])
                for v, step, size in zip(part, steps, self.local_sizes[g], strict=True):
                    state[v] = inside // step % size
        for v, value in zip(self.common_states, self.common[number].tolist(), strict=True):
            state[v] = value
        return tuple(state)

    @cached_property
    def weights(self) -> Floats:
        """The share of all joint states that has each count vector: multinomials, with sum 1."""
        total = np.zeros(self.n_states)
        for n, k, counts in zip(self.n_parts, self.n_local, self.counts, strict=True):
            logs = np.array([math.lgamma(i + 1) for i in range(n + 1)])
            total += logs[n] - logs[counts].sum(axis=1) - n * math.log(k)
        weights: Floats = np.exp(total)
        weights /= weights.sum()
        return weights
