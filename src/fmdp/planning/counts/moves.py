"""Moves on counts: how many parts in each local state take each action."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.model.compositions import compositions, n_compositions
from fmdp.model.exchangeable.parts import Exchangeable
from fmdp.model.spaces import count, strides

Indices = NDArray[np.int64]


class Allotment(NamedTuple):
    """The number of parts of a group that take each action other than the default one."""

    classes: tuple[int, ...]
    """Classes of which there are some, none of them a default class."""
    counts: tuple[int, ...]


class Move(NamedTuple):
    """An action of the quotient."""

    common: tuple[int, ...]
    """Values of the common action variables; the mode of a selector."""
    allotments: tuple[Allotment, ...]
    """By group."""


class LocalSpace:
    """The classes of the parts of one group: (local state, own action, way it is addressed)."""

    def __init__(self, parts: Exchangeable, g: int) -> None:
        group, sizes = parts.groups[g], parts.model.structure.all_sizes
        self.number = g
        self.n_parts = group.n_parts
        self.state_sizes = tuple(sizes[v] for v in group.states[0])
        self.action_sizes = tuple(sizes[v] for v in group.actions[0])
        self.ways = len(group.values[0]) if group.values else 0
        self.selector = group.selector
        self.n_states, self.n_actions = count(self.state_sizes), count(self.action_sizes)
        self.n_classes = self.n_states * self.n_actions * (self.ways + 1)
        numbers = np.arange(self.n_classes)
        self.state = numbers // (self.n_actions * (self.ways + 1))
        self.action = numbers // (self.ways + 1) % self.n_actions
        self.way = numbers % (self.ways + 1)
        """0 if not addressed, else 1 + the way."""
        idle = [0] * len(self.action_sizes)
        for cap in parts.caps:
            for group_number, slot, value in cap.of_parts:
                if group_number == g:
                    idle[slot - len(self.state_sizes)] = value
        self.default_action = sum(
            value * step for value, step in zip(idle, strides(self.action_sizes), strict=True)
        )

    @property
    def action_slots(self) -> range:
        """Slots of the action variables of a part."""
        n = len(self.state_sizes)
        return range(n, n + len(self.action_sizes))

    def value(self, slot: int) -> Indices:
        """Return the value of a variable of the part in each class."""
        n = len(self.state_sizes)
        if slot < n:
            return self.state // strides(self.state_sizes)[slot] % self.state_sizes[slot]
        place = slot - n
        return self.action // strides(self.action_sizes)[place] % self.action_sizes[place]

    def number_of(self, state: int, action: int, way: int = 0) -> int:
        """Return the number of a class."""
        return (state * self.n_actions + action) * (self.ways + 1) + way

    @cached_property
    def defaults(self) -> Indices:
        """The class of each local state with the default action."""
        states = range(self.n_states)
        return np.array([self.number_of(j, self.default_action) for j in states])

    @property
    def n_counts(self) -> int:
        return n_compositions(self.n_parts, self.n_states)


def all_moves(parts: Exchangeable, locals_: Sequence[LocalSpace]) -> Iterator[Move]:
    """Yield the moves that respect all caps."""
    for common in itertools.product(*(range(parts.size(v)) for v in parts.common_actions)):
        modes = dict(zip(parts.common_actions, common, strict=True))
        allotments = []
        for local in locals_:
            way = 0
            if local.selector is not None:
                mode = parts.modes[local.selector][modes[local.selector]]
                way = mode.kind + 1 if mode.group == local.number else 0
            allotments.append(list(_allotments(parts, local, way)))
        for chosen in itertools.product(*allotments):
            move = Move(common, chosen)
            if _within_caps(parts, locals_, move):
                yield move


def _allotments(parts: Exchangeable, local: LocalSpace, way: int) -> Iterator[Allotment]:
    """Yield the allotments of a group; `way` is 1 + the way in which one part is addressed."""
    others = [
        local.number_of(j, v)
        for j in range(local.n_states)
        for v in range(local.n_actions)
        if v != local.default_action
    ]
    most = most_active(parts, local) if others else 0
    addressed: list[tuple[int, ...]] = [()]
    if way:
        addressed = [
            (local.number_of(j, v, way),)
            for j in range(local.n_states)
            for v in range(local.n_actions)
        ]
    for extra in addressed:
        # The last bin are the parts that do nothing else.
        for row in compositions(min(most, local.n_parts - len(extra)), len(others) + 1):
            used = [(c, int(n)) for c, n in zip(others, row[:-1], strict=True) if n]
            yield Allotment(
                (*(c for c, _ in used), *extra), (*(n for _, n in used), *(1 for _ in extra))
            )


def _within_caps(parts: Exchangeable, locals_: Sequence[LocalSpace], move: Move) -> bool:
    """Return whether a move respects all caps; the default action of a part is idle."""
    values = dict(zip(parts.common_actions, move.common, strict=True))
    for cap in parts.caps:
        active = sum(values[v] != idle for v, idle in cap.common)
        for g, slot, idle in cap.of_parts:
            local, allotment = locals_[g], move.allotments[g]
            value = local.value(slot)
            default = int(value[local.defaults[0]]) != idle
            active += local.n_parts * default
            for c, number in zip(allotment.classes, allotment.counts, strict=True):
                active += number * (int(value[c] != idle) - default)
        if active > cap.most:
            return False
    return True


def most_active(parts: Exchangeable, local: LocalSpace) -> int:
    """Return a bound on the parts of a group with another than the default action.

    A cap bounds them only if its idle values are the default action: those of two caps may differ.
    """
    default = {slot: int(local.value(slot)[local.defaults[0]]) for slot in local.action_slots}
    most = local.n_parts
    for cap in parts.caps:
        if default == {slot: idle for g, slot, idle in cap.of_parts if g == local.number}:
            most = min(most, cap.most)
    return most
