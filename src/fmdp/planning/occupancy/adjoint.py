"""One step of a policy forwards: mu -> mu P_pi, the transpose of the policy's backup.

    (mu P)(s') = sum_a sum_s mu(s) pi(a | s) prod_i P_i(s'_i | s[Z_i], a[Z_i])

The backup gathers: it sums out s'_i and brings in the variables of Z_i. The adjoint scatters: each
factor brings in s'_i, and a state variable is summed out as soon as no factor that is left depends
on it. Factors can be applied in any order. Actions are therefore divided in halves, recursively:
the factors on which the actions of a half differ are applied inside it, and the factors on which
they agree are applied once to the sum. Where each of n actions changes one of n factors, this takes
n log n applications instead of n^2.

All numbers are nonnegative and nothing is subtracted, so each result is known up to a relative
error of `roundings` units.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP
from fmdp.planning.policies.mixed import Mixture
from fmdp.planning.tabular.linear_systems import one_thread

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

_TENSORS = 6
"""Tensors of the largest size that exist at the same time, with those that wait in the halves."""


@dataclass(frozen=True, eq=False)
class _Application:
    """The application of one factor to a tensor with one axis per variable.

    Axes are numbered by variable: s_j is j and s'_i is m + i.
    """

    front: tuple[int, ...]
    """Positions of the axes in the order (kept axes of the scope, dropped axes, others)."""
    shape: tuple[int, int, int]
    """Sizes of these three groups."""
    law: Floats
    """[kept, values of s'_i, dropped]"""
    result: tuple[int, ...]
    """The sizes of the axes of the result: (kept, s'_i, others)."""

    def __call__(self, tensor: Floats) -> Floats:
        front = np.ascontiguousarray(tensor.transpose(self.front)).reshape(self.shape)
        result: Floats = np.matmul(self.law, front).reshape(self.result)
        return result


@dataclass(frozen=True, eq=False)
class _Node:
    """Actions first, ..., last - 1 of the used ones, and the factors on which they agree."""

    first: int
    last: int
    halves: tuple[_Node, ...]
    order: tuple[int, ...] | None
    """The axes of the second half in the order of those of the first."""
    unused: tuple[int, ...]
    """Leaves: state variables that no factor depends on."""
    applications: tuple[_Application, ...]


class Adjoint:
    """The operator mu -> mu P_pi of one policy.

    Parameters
    ----------
    model
        The model, without derived variables.
    tables
        The policy.
    memory_limit
        Most bytes; None is half of the free memory.

    Raises
    ------
    TooLarge
        If the intermediate tensors do not fit into the memory limit.
    """

    def __init__(
        self, model: FactoredMDP, tables: Mixture, memory_limit: int | None = None
    ) -> None:
        self.structure = s = model.structure
        self.roundings = 2 * (sum(s.state_sizes) + 2 * s.m + len(tables) + 4)
        self._peak = s.n_states
        used, ranks = np.unique(np.stack([actions for _, actions in tables]), return_inverse=True)
        self._ranks: list[Indices] = list(ranks.reshape(len(tables), -1))
        self._weights = [weights for weights, _ in tables]
        self._sizes = (*s.state_sizes, *s.state_sizes)
        self._needs = [frozenset(v for v in scope if v < s.m) for scope in s.transition_scopes]
        self._laws = [_laws(model, i, used) for i in range(s.m)]
        self._root, self._axes = self._grow(0, len(used), frozenset(range(s.m)))
        limit = available_memory() // 2 if memory_limit is None else memory_limit
        needed = 8 * _TENSORS * self._peak
        if needed > limit:
            raise TooLarge(
                f"the law of the policy needs {describe_bytes(needed)}; the limit is "
                f"{describe_bytes(limit)}",
                needed,
                limit,
            )

    def __call__(self, mu: Floats) -> Floats:
        """Return mu P: [S], in C order."""
        with one_thread():  # the last bits would depend on the number of threads
            tensor = self._apply(self._root, mu)
        order = [self._axes.index(self.structure.m + i) for i in range(self.structure.m)]
        return np.ascontiguousarray(tensor.transpose(order)).reshape(-1)

    def _apply(self, node: _Node, mu: Floats) -> Floats:
        if node.halves:
            first, second = node.halves
            tensor = self._apply(first, mu)
            tensor += self._apply(second, mu).transpose(node.order)
        else:
            tensor = self._masked(node, mu).reshape(self.structure.state_sizes)
            if node.unused:
                tensor = tensor.sum(axis=node.unused)
        for application in node.applications:
            tensor = application(tensor)
        return tensor

    def _masked(self, node: _Node, mu: Floats) -> Floats:
        """Return mu(s) times the probability that the policy takes one of the node's actions."""
        total = np.zeros_like(mu)
        for ranks, weights in zip(self._ranks, self._weights, strict=True):
            taken = (ranks >= node.first) & (ranks < node.last)
            total += np.where(taken, weights * mu, 0.0)
        return total

    # ---- the order of the factors ----------------------------------------------------------------

    def _grow(
        self, first: int, last: int, factors: frozenset[int]
    ) -> tuple[_Node, tuple[int, ...]]:
        """Return the node of some actions, which applies these factors, and the axes after it."""
        common = {i for i in factors if len(set(self._laws[i].kind[first:last])) == 1}
        halves: tuple[_Node, ...] = ()
        order: tuple[int, ...] | None = None
        unused: tuple[int, ...] = ()
        if common < factors:
            middle = (first + last) // 2
            left, axes = self._grow(first, middle, factors - common)
            right, others = self._grow(middle, last, factors - common)
            halves, order = (left, right), tuple(others.index(axis) for axis in axes)
        else:
            needed = frozenset[int]().union(*self._needs)
            unused = tuple(j for j in range(self.structure.m) if j not in needed)
            axes = tuple(j for j in range(self.structure.m) if j in needed)
        later = set(range(self.structure.m)) - factors
        applications = []
        while common:
            i = min(common, key=lambda i: (self._size_after(i, axes, common | later), i))
            common.remove(i)
            application, axes = self._application(i, first, axes, common | later)
            applications.append(application)
        return _Node(first, last, halves, order, unused, tuple(applications)), axes

    def _dropped(self, i: int, left: Collection[int]) -> frozenset[int]:
        """Return the state variables that only factor i of those that are left depends on."""
        return self._needs[i].difference(*(self._needs[k] for k in left if k != i))

    def _size_after(self, i: int, axes: Sequence[int], left: Collection[int]) -> int:
        dropped = self._dropped(i, left)
        return prod(self._sizes[axis] for axis in axes if axis not in dropped) * self._sizes[i]

    def _application(
        self, i: int, first: int, axes: tuple[int, ...], left: Collection[int]
    ) -> tuple[_Application, tuple[int, ...]]:
        m, sizes = self.structure.m, self._sizes
        gone = self._dropped(i, left)
        dropped = [j for j in axes if j in gone]
        kept = [j for j in axes if j in self._needs[i] and j not in gone]
        others = [axis for axis in axes if axis not in self._needs[i]]
        law = self._laws[i]
        table = law.tables[law.kind[first]]  # [scope..., values]
        table = table.transpose([*(law.scope.index(j) for j in (*kept, *dropped)), -1 % table.ndim])
        shape = tuple(prod(sizes[axis] for axis in group) for group in (kept, dropped, others))
        after = (*kept, m + i, *others)
        self._peak = max(self._peak, prod(shape), shape[0] * sizes[i] * shape[2])
        self.roundings += 2 * shape[1]
        application = _Application(
            tuple(axes.index(axis) for axis in (*kept, *dropped, *others)),
            (shape[0], shape[1], shape[2]),
            np.ascontiguousarray(
                table.reshape(shape[0], shape[1], sizes[i]).transpose(0, 2, 1), dtype=np.float64
            ),
            tuple(sizes[axis] for axis in after),
        )
        return application, after


@dataclass(frozen=True, eq=False)
class _Laws:
    """The distinct laws of one next-state variable under the used actions."""

    scope: tuple[int, ...]
    """The state variables of the factor."""
    tables: list[Floats]
    """[values of the scope..., values of s'_i] each"""
    kind: list[int]
    """The table of every used action."""


def _laws(model: FactoredMDP, i: int, used: Indices) -> _Laws:
    s = model.structure
    scope = s.transition_scopes[i]
    states = tuple(v for v in scope if v < s.m)
    actions = [v for v in scope if v >= s.m]
    # Variables of the scope come in any order; states are brought to the front.
    cube = model.transitions[i].reshape(*s.scope_sizes(scope), -1)
    cube = cube.transpose([*(scope.index(v) for v in (*states, *actions)), len(scope)])
    shape = tuple(s.sizes[v] for v in states)
    rows = cube.reshape(*shape, -1, s.state_sizes[i])
    place = np.zeros(len(used), dtype=np.int64)
    values = np.unravel_index(used, s.action_sizes)
    for v in actions:
        place = place * s.sizes[v] + values[v - s.m]
    numbers: dict[bytes, int] = {}
    tables: list[Floats] = []
    kind = []
    of_place: dict[int, int] = {}
    for p in place.tolist():
        if p not in of_place:
            table = np.ascontiguousarray(rows[..., p, :], dtype=np.float64)
            of_place[p] = numbers.setdefault(table.tobytes(), len(tables))
            if of_place[p] == len(tables):
                tables.append(table)
        kind.append(of_place[p])
    return _Laws(states, tables, kind)
