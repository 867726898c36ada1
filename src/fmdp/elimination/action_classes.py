"""Classes of joint actions that a factor cannot distinguish, by structure or by table entries.

Actions of one class for all factors of a step share that step (program.py). The number of classes
decides the price of a layout (layout.py). Only arrays of [factors, joint actions] are allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.forbidden import enumerated
from fmdp.elimination.tuning import LOOP_ROWS
from fmdp.model import Structure
from fmdp.model.spaces import count, strides

Index = NDArray[np.int64]
Step = tuple[tuple[int, ...], tuple[int, ...]]
"""The transition factors and the reward factors of one group."""


class FlatTables(NamedTuple):
    """The tables of a model, all factors end to end (see `Structure.transition_starts`)."""

    transitions: NDArray[np.float64]
    free: NDArray[np.float64]
    """Free masses; empty if there are none."""
    rewards: NDArray[np.float64]
    upper: NDArray[np.float64] = np.zeros(0)
    """Upper ends of the rows, in the layout of `transitions`; empty if there are none."""


@dataclass(frozen=True, eq=False)
class ActionClasses:
    """A class number per factor and joint action; actions of one class are alike for the factor.

    By structure, two actions are alike for a factor if they agree on the action variables of its
    scope, or if the structure declares the rows that they read to be alike in every state. By
    tables, they are alike if the factor's numbers are equal. That is common in hand-made models
    (restarting machine 3 does not affect machine 7) and rare in learned ones. Only joint actions
    that no constraint on actions alone forbids are numbered.
    """

    transitions: Index  # [m, A]
    rewards: Index  # [l, A]
    actions: Index
    """[A, action variables]: the joint actions in C order."""
    # Candidate layouts share most of their groups, so numberings are cached by the factors that
    # distinguish any actions.
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
        """Return the classes of a subset of the joint actions."""
        return ActionClasses(
            self.transitions[:, which], self.rewards[:, which], self.actions[which]
        )

    def of_group(self, step: Step) -> tuple[Index, Index]:
        """Return the class of every joint action in a step, and the first joint action of each."""
        return self._of(self._distinguishing(step))

    def of_beginnings(self, steps: Sequence[Step]) -> tuple[int, ...]:
        """Return how many classes the first step has, the first two steps together, and so on."""
        counts = []
        before: Step = ((), ())
        for step in steps:
            factors = self._distinguishing(step)
            alone, _ = self._of(factors)
            after = (before[0] + factors[0], tuple(sorted(before[1] + factors[1])))
            if after not in self._known:
                self._known[after] = self._numbered([self._known[before][0], alone])
            counts.append(len(self._known[after][1]))
            before = after
        return tuple(counts)

    def _of(self, factors: Step) -> tuple[Index, Index]:
        if factors not in self._known:
            members, rewards = factors
            columns = [self.transitions[i] for i in members] + [self.rewards[f] for f in rewards]
            self._known[factors] = self._numbered(columns)
        return self._known[factors]

    def _distinguishing(self, step: Step) -> Step:
        """Return the factors of a step for which not all actions are alike."""
        transitions, rewards = self._differing
        members, paying = step
        return tuple(i for i in members if transitions[i]), tuple(f for f in paying if rewards[f])

    @cached_property
    def _differing(self) -> tuple[list[bool], list[bool]]:
        tables = (self.transitions, self.rewards)
        first, second = ((classes != classes[:, :1]).any(axis=1).tolist() for classes in tables)
        return first, second

    def _numbered(self, columns: list[Index]) -> tuple[Index, Index]:
        if not columns:
            return np.zeros(len(self.actions), dtype=np.int64), np.zeros(1, dtype=np.int64)
        return number_rows(np.stack(columns, axis=1))


def number_rows(rows: NDArray[Any]) -> tuple[Index, Index]:
    """Number equal rows alike, by first appearance; return the numbers and the first indices."""
    if len(rows) <= LOOP_ROWS and rows.dtype.kind == "i":
        seen: dict[tuple[int, ...], int] = {}
        listed: list[int] = []
        firsts: list[int] = []
        for index, row in enumerate(map(tuple, rows.tolist())):
            listed.append(seen.setdefault(row, len(firsts)))
            if listed[-1] == len(firsts):
                firsts.append(index)
        return np.array(listed, dtype=np.int64), np.array(firsts, dtype=np.int64)
    keys = np.ascontiguousarray(rows) + 0  # + 0 turns -0.0 into 0.0
    if keys.dtype.kind != "i":
        row_type = np.dtype((np.void, keys.dtype.itemsize * keys.shape[1]))
        return _number_keys(keys.view(row_type)[:, 0])
    # Class numbers are below the number of rows or joint actions, so two columns make one key.
    numbers, first = _number_keys(keys[:, 0])
    for column in keys.T[1:]:
        numbers, first = _number_keys(numbers * (column.max() + 1) + column)
    return numbers, first


def _number_keys(keys: NDArray[Any]) -> tuple[Index, Index]:
    """Number one column as `number_rows` does, by sorting."""
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    return number[inverse], first[order].astype(np.int64)


def number_slices(table: NDArray[Any]) -> tuple[Index, Index]:
    """Number the slices table[:, c, :] by c, as `number_rows` does rows."""
    return number_rows(table.transpose(1, 0, 2).reshape(table.shape[1], -1))


def action_classes(
    structure: Structure, tables: FlatTables | None = None, deadline: Deadline = NEVER
) -> ActionClasses:
    """Return the classes by structure, or by the entries of the tables."""
    m = structure.m
    joint_actions = enumerated(structure)

    def classes(scope: Sequence[int], numbers: Callable[[], NDArray[Any]]) -> Index:
        deadline.check()
        variables = [v - m for v in scope if v >= m]
        sizes = [structure.action_sizes[v] for v in variables]
        projection: Index = joint_actions[:, variables] @ np.array(strides(sizes), dtype=np.int64)
        if not variables or (tables is None and structure.alike is None):
            return projection
        # A scope is sorted, states before actions: [states, actions, numbers of a row].
        states = count(structure.scope_sizes([v for v in scope if v < m]))
        alike, _ = number_slices(numbers().reshape(states, count(sizes), -1))
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
