"""The values of the factors of a model on counts: rows, rewards and forbidden pairs of a move.

The rows of the parts of a group depend on the values of the common variables, the common actions
and the sums (the context) and on the class of the part: its local state, its action and whether it
is addressed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.errors import TooLarge
from fmdp.model.compositions import composition_rank
from fmdp.model.count_space import CountSpace
from fmdp.model.exchangeable.parts import (
    FORBIDDEN,
    REWARD,
    TRANSITION,
    CommonFactor,
    Exchangeable,
    PartFactor,
)
from fmdp.model.spaces import count
from fmdp.planning.counts.moves import LocalSpace, Move

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_CONTEXTS = 1 << 14
"""Most joint values of the common variables and sums that the rows of one group depend on."""


class _Context:
    """A factor of one part by (values of shared variables, class)."""

    def __init__(self, parts: Exchangeable, local: LocalSpace, form: PartFactor) -> None:
        self.form = form
        self.shared = form.shared
        self.sizes = tuple(parts.size(v) for v in form.shared)
        classes = np.arange(local.n_classes)
        n = len(form.shared)
        index: list[Indices] = [local.value(slot).reshape((1,) * n + (-1,)) for slot in form.slots]
        for axis, (v, size) in enumerate(zip(form.shared, self.sizes, strict=True)):
            along = [1] * (n + 1)
            along[axis] = size
            values = np.arange(size).reshape(along)
            if v == local.selector:
                way = local.way.reshape((1,) * n + (-1,))
                values = np.where(way > 0, size + way - 1, values)
            index.append(values)
        shape = (*self.sizes, len(classes))
        places = tuple(np.broadcast_to(i, shape) for i in index)
        self.table = (
            form.table[places]
            if places
            else np.broadcast_to(form.table, (*shape, form.table.shape[-1]))
        )
        """[sizes of the shared variables, classes, outcomes]"""


class _Regime(NamedTuple):
    """The rows of a group in one context, and the types that classes belong to."""

    base: Floats
    """[types, local states]: distinct rows of default classes."""
    extra: Floats
    """[types, local states]: rows of other classes that are equal to none of these."""
    type_of: Indices
    """[classes]: base types first, then extra types."""


class RegimesOfGroup:
    """The rows of a group in all contexts; contexts with equal rows are one regime."""

    def __init__(self, parts: Exchangeable, local: LocalSpace) -> None:
        forms = [f for f in parts.part_factors[local.number] if f.kind == TRANSITION]
        contexts = [_Context(parts, local, form) for form in forms]
        contexts.sort(key=lambda context: context.form.number)
        self.shared = tuple(sorted({v for context in contexts for v in context.shared}))
        self.sizes = tuple(parts.size(v) for v in self.shared)
        if count(self.sizes) > MOST_CONTEXTS:
            raise TooLarge(
                f"the rows of a part depend on {describe_count(count(self.sizes))} joint values of "
                f"what is common; at most {MOST_CONTEXTS}",
                count(self.sizes),
                MOST_CONTEXTS,
            )
        self.regimes: list[_Regime] = []
        known: dict[bytes, int] = {}
        numbers = []
        for values in itertools.product(*map(range, self.sizes)):
            at = dict(zip(self.shared, values, strict=True))
            rows = np.ones((local.n_classes, 1))
            for context in contexts:
                factor = context.table[tuple(at[v] for v in context.shared)]
                rows = (rows[:, :, None] * factor[:, None, :]).reshape(local.n_classes, -1)
            number = known.setdefault(rows.tobytes(), len(known))
            if number == len(self.regimes):
                self.regimes.append(_regime(rows, local))
            numbers.append(number)
        self._number = np.array(numbers, dtype=np.int64)

    def numbers(self, values: PairValues) -> Indices:
        """Return the regime of each pair."""
        return self._number[values.index(self.shared, self.sizes)]


def _regime(rows: Floats, local: LocalSpace) -> _Regime:
    base: dict[bytes, int] = {}
    for c in local.defaults:
        base.setdefault(rows[c].tobytes(), len(base))
    extra: dict[bytes, int] = {}
    type_of = np.zeros(local.n_classes, dtype=np.int64)
    for c in range(local.n_classes):
        mark = rows[c].tobytes()
        if mark in base:
            type_of[c] = base[mark]
        else:
            type_of[c] = len(base) + extra.setdefault(mark, len(extra))
    width = rows.shape[1]

    def stacked(marks: dict[bytes, int]) -> Floats:
        listed = [np.frombuffer(mark) for mark in marks]
        return np.array(listed).reshape(-1, width)

    return _Regime(stacked(base), stacked(extra), type_of)


class PairValues:
    """Everything that factors depend on, for the pairs of one move after another."""

    def __init__(
        self, parts: Exchangeable, locals_: Sequence[LocalSpace], space: CountSpace
    ) -> None:
        self.parts, self.locals, self.space = parts, locals_, space
        self.reward_forms = [
            (local, _Context(parts, local, form))
            for local in locals_
            for form in parts.part_factors[local.number]
            if form.kind == REWARD
        ]
        self.forbidden_forms = [
            (local, _Context(parts, local, form))
            for local in locals_
            for form in parts.part_factors[local.number]
            if form.kind == FORBIDDEN
        ]

    def start(self, move: Move) -> Indices:
        """Take a move, and return the states in which there are parts enough for it."""
        possible = np.ones(self.space.n_states, dtype=np.bool_)
        acting = []
        for local, allotment, counts in zip(
            self.locals, move.allotments, self.space.counts, strict=True
        ):
            by_state = np.zeros(local.n_states, dtype=np.int64)
            for c, number in zip(allotment.classes, allotment.counts, strict=True):
                by_state[local.state[c]] += number
            acting.append(by_state)
            for j in np.flatnonzero(by_state):
                possible &= counts[:, j] >= by_state[j]
        self.states = np.flatnonzero(possible)
        self.present: list[list[int]] = []
        self.counts: list[dict[int, Indices]] = []
        for local, allotment, by_state, counts in zip(
            self.locals, move.allotments, acting, self.space.counts, strict=True
        ):
            of_class = {
                int(local.defaults[j]): counts[self.states, j] - by_state[j]
                for j in range(local.n_states)
            }
            for c, number in zip(allotment.classes, allotment.counts, strict=True):
                of_class[c] = np.full(len(self.states), number)
            self.present.append(list(of_class))
            self.counts.append(of_class)
        self._common_actions = dict(zip(self.parts.common_actions, move.common, strict=True))
        self._known: dict[int, Indices] = {}
        self._ranks: dict[object, Indices] = {}
        self._find_forbidden()
        return self.states

    def restrict(self, kept: Mask) -> Indices:
        """Keep some of the pairs, and return their states."""
        self.states = self.states[kept]
        self.counts = [{c: n[kept] for c, n in of.items()} for of in self.counts]
        self._known, self._ranks = {}, {}
        return self.states

    def value(self, v: int) -> Indices:
        """Return the value of a shared variable in every pair."""
        if v not in self._known:
            n = len(self.states)
            if v in self._common_actions:
                self._known[v] = np.full(n, self._common_actions[v])
            elif v in self.parts.common_states:
                column = self.parts.common_states.index(v)
                self._known[v] = self.space.common[self.states, column]
            else:
                self._known[v] = self._sum(v)
        return self._known[v]

    def _sum(self, v: int) -> Indices:
        total = next(s for s in self.parts.sums if s.number == v)
        value = np.zeros(len(self.states), dtype=np.int64)
        for step in total.steps:
            if step.block is None:
                value = step.table[value, self.value(step.variable)]
            else:
                value = step.table[value, self.rank(step.block, step.classes)]
        return value

    def rank(self, block: tuple[int, tuple[int, ...]], classes: Indices | None = None) -> Indices:
        """Return the rank of the counts of the joint values of some slots, or of their classes."""
        key = (block, None if classes is None else classes.tobytes())
        if key not in self._ranks:
            g, slots = block
            local = self.locals[g]
            sizes = [int(local.value(slot).max()) + 1 for slot in slots]
            joint = np.zeros(local.n_classes, dtype=np.int64)
            for slot, size in zip(slots, sizes, strict=True):
                joint = joint * size + local.value(slot)
            if classes is not None:
                joint = classes[joint]
            bins = math.prod(sizes) if classes is None else int(classes.max()) + 1
            columns = [np.zeros(len(self.states), dtype=np.int64) for _ in range(bins)]
            for c in self.present[g]:
                columns[joint[c]] = columns[joint[c]] + self.counts[g][c]
            self._ranks[key] = composition_rank(columns, local.n_parts)
        return self._ranks[key]

    def index(self, shared: Sequence[int], sizes: Sequence[int]) -> Indices:
        """Return the joint index of shared variables in every pair."""
        index = np.zeros(len(self.states), dtype=np.int64)
        for v, size in zip(shared, sizes, strict=True):
            index = index * size + self.value(v)
        return index

    def common_rows(self, factor: CommonFactor) -> Indices:
        """Return the row of a common factor in every pair."""
        index = self.index(factor.shared, factor.table.shape[: len(factor.shared)])
        for block, size in zip(
            factor.blocks, factor.table.shape[len(factor.shared) : -1], strict=True
        ):
            index = index * size + self.rank(block)
        return index

    def _find_forbidden(self) -> None:
        forbidden = np.zeros(len(self.states), dtype=np.bool_)
        for factor in self.parts.common_factors:
            if factor.kind == FORBIDDEN:
                forbidden |= factor.table.reshape(-1)[self.common_rows(factor)]
        for local, context in self.forbidden_forms:
            table = context.table.reshape(-1, local.n_classes)
            row = self.index(context.shared, context.sizes)
            for c in self.present[local.number]:
                forbidden |= table[row, c] & (self.counts[local.number][c] > 0)
        self.forbidden = forbidden

    def rewards(self) -> Floats:
        """Return the reward of every pair."""
        rewards = np.zeros(len(self.states))
        for factor in self.parts.common_factors:
            if factor.kind == REWARD:
                rewards += factor.table.reshape(-1)[self.common_rows(factor)]
        for local, context in self.reward_forms:
            table = context.table.reshape(-1, local.n_classes)
            row = self.index(context.shared, context.sizes)
            for c in self.present[local.number]:
                rewards += self.counts[local.number][c] * table[row, c]
        return rewards

    def laws(self) -> tuple[list[tuple[int, ...]], Indices]:
        """Return the different laws of the next common values, each as the rows of its factors, and
        the place of that of every pair among them."""
        columns = [self.common_rows(factor) for factor in common_transitions(self.parts)]
        # Numbered again after every factor: the number of all combinations may be beyond 64 bits.
        place = np.zeros(len(self.states), dtype=np.int64)
        first = place[:0]
        for rows in columns:
            joint = place * (int(rows.max(initial=0)) + 1) + rows
            _, first, inverse = np.unique(joint, return_index=True, return_inverse=True)
            place = inverse.reshape(-1)
        return list(zip(*(rows[first].tolist() for rows in columns), strict=True)), place


def common_transitions(parts: Exchangeable) -> list[CommonFactor]:
    """Return the transition factors of the common variables, in their order."""
    factors = [f for f in parts.common_factors if f.kind == TRANSITION]
    return sorted(factors, key=lambda factor: factor.number)
