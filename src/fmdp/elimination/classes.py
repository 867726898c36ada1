"""Which joint actions a factor can tell apart, by structure or by the numbers in its table.

Actions that are alike for all factors of a step share that step (program.py); how many can share
decides the price of a layout (layout.py).  Only arrays of [factors, joint actions] are made here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.forbidden import enumerated
from fmdp.model import Structure
from fmdp.model.spaces import count, strides

Index = NDArray[np.int64]
Step = tuple[tuple[int, ...], tuple[int, ...]]
"""The transition and the reward factors of one group."""
Look = Callable[[], object]
"""A look at the clock, now and then in long preparations; it raises where time is up."""


def nothing() -> None:
    """Looks at no clock."""


_FEW = 256
"""Rows up to which a loop is faster than sorting."""


class FlatTables(NamedTuple):
    """The tables of a model, all factors end to end (`Structure.transition_starts` and so on)."""

    transitions: NDArray[np.float64]
    free: NDArray[np.float64]
    """Free masses; empty if there are none."""
    rewards: NDArray[np.float64]
    upper: NDArray[np.float64] = np.zeros(0)
    """Upper ends of the rows, laid out as `transitions`; empty if there are none."""


@dataclass(frozen=True, eq=False)
class ActionClasses:
    """Which joint actions a factor can tell apart: a class number for every joint action.

    By structure, two actions are alike for a factor if they agree on the action variables of its
    scope, or if the rows that they read are known to be alike in every state.  By tables, they are
    alike if the numbers of the factor are the same, which is often so in hand-made models
    (restarting machine 3 is nothing to machine 7) and hardly ever in learned ones, unless it is
    known.  Only arrays of [factors, joint actions] are made.  The joint actions are those that no
    constraint on actions alone forbids.
    """

    transitions: Index  # [m, A]
    rewards: Index  # [l, A]
    actions: Index
    """[A, action variables]: the joint actions, in C order."""
    # Layouts that are compared have most of their groups in common, and what groups have done
    # together after a few of them; so has a step with another that differs in factors to which all
    # actions are alike.
    _known: dict[Step, tuple[Index, Index]] = field(default_factory=dict, repr=False)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ActionClasses)
            and np.array_equal(self.transitions, other.transitions)
            and np.array_equal(self.rewards, other.rewards)
            and np.array_equal(self.actions, other.actions)
        )

    def __hash__(self) -> int:
        return hash((self.transitions.tobytes(), self.rewards.tobytes()))

    def taken(self, which: NDArray[Any]) -> ActionClasses:
        """Those of some of the joint actions."""
        return ActionClasses(
            self.transitions[:, which], self.rewards[:, which], self.actions[which]
        )

    def of_group(self, step: Step) -> tuple[Index, Index]:
        """Class of every joint action in a step, and the first joint action of each class."""
        return self._of(self._telling(step))

    def of_beginnings(self, steps: Sequence[Step]) -> tuple[int, ...]:
        """How many classes the first step tells apart, the first two together, and so on."""
        counts = []
        before: Step = ((), ())
        for step in steps:
            own = self._telling(step)
            alone, _ = self._of(own)
            after = (before[0] + own[0], tuple(sorted(before[1] + own[1])))
            if after not in self._known:
                self._known[after] = self._numbered([self._known[before][0], alone])
            counts.append(len(self._known[after][1]))
            before = after
        return tuple(counts)

    def _of(self, told: Step) -> tuple[Index, Index]:
        if told not in self._known:
            members, rewards = told
            columns = [self.transitions[i] for i in members] + [self.rewards[f] for f in rewards]
            self._known[told] = self._numbered(columns)
        return self._known[told]

    def _telling(self, step: Step) -> Step:
        """The factors of a step to which not all actions are alike."""
        transitions, rewards = self._differing
        members, paying = step
        return tuple(i for i in members if transitions[i]), tuple(f for f in paying if rewards[f])

    @cached_property
    def _differing(self) -> tuple[list[bool], list[bool]]:
        of = (self.transitions, self.rewards)
        first, second = ((own != own[:, :1]).any(axis=1).tolist() for own in of)
        return first, second

    def _numbered(self, columns: list[Index]) -> tuple[Index, Index]:
        if not columns:
            return np.zeros(len(self.actions), dtype=np.int64), np.zeros(1, dtype=np.int64)
        return number_rows(np.stack(columns, axis=1))


def number_rows(rows: NDArray[Any]) -> tuple[Index, Index]:
    """Equal rows get equal numbers, in order of first appearance; and where each first appears."""
    if len(rows) <= _FEW and rows.dtype.kind == "i":
        seen: dict[tuple[int, ...], int] = {}
        numbers: list[int] = []
        firsts: list[int] = []
        for at, row in enumerate(map(tuple, rows.tolist())):
            numbers.append(seen.setdefault(row, len(firsts)))
            if numbers[-1] == len(firsts):
                firsts.append(at)
        return np.array(numbers, dtype=np.int64), np.array(firsts, dtype=np.int64)
    keys = np.ascontiguousarray(rows) + 0  # + 0 makes one of the two zeros
    if keys.dtype.kind != "i":
        return _number(keys.view(np.dtype((np.void, keys.dtype.itemsize * keys.shape[1])))[:, 0])
    # Numbers of classes, each below the number of rows or joint actions: two columns make one key.
    found, first = _number(keys[:, 0])
    for column in keys.T[1:]:
        found, first = _number(found * (column.max() + 1) + column)
    return found, first


def _number(keys: NDArray[Any]) -> tuple[Index, Index]:
    """`number_rows` of one column; sorted, for a million joint actions are too many for a loop."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    return number[inverse], first[order].astype(np.int64)


def number_slices(table: NDArray[Any]) -> tuple[Index, Index]:
    """The same of the slices table[:, c, :], numbered by c."""
    return number_rows(table.transpose(1, 0, 2).reshape(table.shape[1], -1))


def action_classes(
    structure: Structure, tables: FlatTables | None = None, look: Look = nothing
) -> ActionClasses:
    """Classes by structure, or by the numbers in the tables."""
    m = structure.m
    joint_actions = enumerated(structure)

    def classes(scope: Sequence[int], numbers: Callable[[], NDArray[Any]]) -> Index:
        look()
        told = [v - m for v in scope if v >= m]
        told_sizes = [structure.action_sizes[v] for v in told]
        projection: Index = joint_actions[:, told] @ np.array(strides(told_sizes), dtype=np.int64)
        if not told or (tables is None and structure.alike is None):
            return projection
        # A scope is sorted, states before actions: [states, actions, numbers of a row].
        states = count(structure.scope_sizes([v for v in scope if v < m]))
        alike, _ = number_slices(numbers().reshape(states, count(told_sizes), -1))
        result: Index = alike[projection]
        return result

    def transition_numbers(i: int) -> NDArray[Any]:
        if tables is None:
            return structure.transition_classes_of(i)
        rows = structure.transition_rows[i]
        part = tables.transitions[slice(*structure.transition_starts[i : i + 2])].reshape(rows, -1)
        if tables.free.size:
            free = tables.free[slice(*structure.row_starts[i : i + 2])].reshape(rows, 1)
            part = np.concatenate([part, free], axis=1)
        if tables.upper.size:
            upper = tables.upper[slice(*structure.transition_starts[i : i + 2])].reshape(rows, -1)
            part = np.concatenate([part, upper], axis=1)
        return part

    def reward_numbers(f: int) -> NDArray[Any]:
        if tables is None:
            return structure.reward_classes_of(f)
        return tables.rewards[slice(*structure.reward_starts[f : f + 2])]

    transitions = [
        classes(structure.transition_scopes[i], lambda i=i: transition_numbers(i))  # type: ignore[misc]
        for i in range(m)
    ]
    rewards = [
        classes(structure.reward_scopes[f], lambda f=f: reward_numbers(f))  # type: ignore[misc]
        for f in range(structure.l)
    ]
    empty = np.zeros((0, len(joint_actions)), dtype=np.int64)
    return ActionClasses(
        np.stack(transitions), np.stack(rewards) if rewards else empty, joint_actions
    )
