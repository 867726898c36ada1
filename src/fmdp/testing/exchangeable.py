"""Random models with exchangeable parts, for tests of plans on counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model.constraints import AtMost, Constraint, Forbidden
from fmdp.model.derived import Derived
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import count
from fmdp.model.structure import Structure

Floats = NDArray[np.float64]


@dataclass
class _Parts:
    """One group: how many parts, the sizes of their variables, and how they are acted on."""

    n: int
    sizes: tuple[int, ...]
    acted: str
    own_size: int
    states: list[list[int]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    counted: bool = False


class _Draws:
    """Rows that are drawn once for each key: equal keys have equal rows."""

    def __init__(self, generator: np.random.Generator, sparse: float) -> None:
        self._generator = generator
        self._sparse = sparse
        self._rows: dict[Hashable, Any] = {}

    def row(self, key: Hashable, size: int) -> Floats:
        """Return a distribution over `size` values."""
        if key not in self._rows:
            weights = self._generator.exponential(size=size)
            weights *= self._generator.random(size) >= self._sparse
            if not weights.any():
                weights[self._generator.integers(size)] = 1.0
            self._rows[key] = weights / weights.sum()
        row: Floats = self._rows[key]
        return row

    def number(self, key: Hashable) -> float:
        """Return a number between -1 and 1."""
        if key not in self._rows:
            self._rows[key] = float(self._generator.uniform(-1.0, 1.0))
        return float(self._rows[key])

    def chance(self, probability: float) -> bool:
        return bool(self._generator.random() < probability)

    def integer(self, low: int, high: int) -> int:
        return int(self._generator.integers(low, high + 1))


def exchangeable_model(
    generator: np.random.Generator, *, sparse: float = 0.2, most_states: int = 600
) -> FactoredMDP:
    """Return a random model with one or two groups of exchangeable parts.

    Parts have one or two variables; they are acted on by actions of their own (perhaps with a cap),
    by a shared action whose values address them, or not at all. There may be a common variable, a
    count over a group that others depend on, and constraints. Variables are numbered at random.

    Parameters
    ----------
    generator
        The source of randomness.
    sparse
        Probability that an entry of a row is 0.
    most_states
        Most joint states.
    """
    while True:
        model = _Builder(_Draws(generator, sparse)).build(generator)
        s = model.structure
        if s.n_states <= most_states and s.n_states * s.n_actions <= 64 * most_states:
            return model


class _Builder:
    """Draws one model."""

    def __init__(self, draws: _Draws) -> None:
        self.draws = draws
        self.groups = [self._group(g) for g in range(draws.integer(1, 2))]
        self.common = [draws.integer(2, 3) for _ in range(draws.integer(0, 1))]
        self.free_values = draws.integer(0, 2)

    def _group(self, g: int) -> _Parts:
        draws = self.draws
        n, slots = draws.integer(2, 4 if g == 0 else 2), draws.integer(1, 2)
        sizes = tuple(draws.integer(2, 3 if slots == 1 else 2) for _ in range(slots))
        acted = ("own", "addressed", "none")[draws.integer(0, 2)]
        return _Parts(n, sizes, acted, draws.integer(2, 3), counted=draws.chance(0.4))

    def build(self, generator: np.random.Generator) -> FactoredMDP:
        self._number(generator)
        self._add_counts()
        scopes, transitions = self._transitions()
        rewards = self._rewards()
        structure = Structure(
            state_sizes=self.state_sizes,
            action_sizes=self.action_sizes,
            transition_scopes=scopes,
            reward_scopes=tuple(scope for scope, _ in rewards),
            reward_ranges=((-1.0, 1.0),) * len(rewards),
            constraints=self._constraints(),
            derived=tuple(self.derived),
        )
        start = tuple(self.draws.integer(0, size - 1) for size in self.state_sizes)
        return FactoredMDP(structure, transitions, [table for _, table in rewards], None, start)

    def _number(self, generator: np.random.Generator) -> None:
        """Give every variable a number, in random order, and addressed parts their values."""
        sizes = [size for group in self.groups for _ in range(group.n) for size in group.sizes]
        sizes += self.common
        numbers = generator.permutation(len(sizes)).tolist()
        by_number = [0] * len(sizes)
        for number, size in zip(numbers, sizes, strict=True):
            by_number[number] = size
        self.state_sizes = tuple(by_number)
        for group in self.groups:
            for _ in range(group.n):
                group.states.append([numbers.pop(0) for _ in group.sizes])
        self.common_numbers = numbers
        m = len(sizes)
        own = [group for group in self.groups if group.acted == "own"]
        addressed = [group for group in self.groups if group.acted == "addressed"]
        action_sizes: list[int] = []
        for group in own:
            group.actions = [m + len(action_sizes) + part for part in range(group.n)]
            action_sizes += [group.own_size] * group.n
        self.selector = m + len(action_sizes)
        n_values = sum(group.n for group in addressed) + max(1, self.free_values)
        values = generator.permutation(n_values).tolist()
        for group in addressed:
            group.values = [values.pop() for _ in range(group.n)]
        self.action_sizes = (*action_sizes, n_values)
        self.sizes = [*self.state_sizes, *self.action_sizes]

    def _add_counts(self) -> None:
        """Add the chain of partial counts of the first variable of each counted group."""
        self.derived: list[Derived] = []
        self.totals: list[int] = []
        for g, group in enumerate(self.groups):
            if not group.counted:
                continue
            before = -1
            for step, part in enumerate(group.states):
                v, size = part[0], self.sizes[part[0]]
                hits = np.arange(size) == 0
                last = step == group.n - 1
                totals = np.arange(step + 1)
                table = hits.astype(np.int64) if step == 0 else np.add.outer(hits, totals).ravel()
                name = f"count_{g}" if last else f"count_{g}[{step + 1}]"
                scope = (v,) if step == 0 else (v, before)
                self.derived.append(Derived(name, range(step + 2), scope, table, partial=not last))
                before = len(self.sizes)
                self.sizes.append(step + 2)
            self.totals.append(before)

    def _meaning(self, value: int, group: _Parts | None, part: int) -> Hashable:
        """Return what a value of the selector means for a part, or for what is common."""
        if group is not None and value in group.values:
            return "this" if group.values[part] == value else "another"
        for g, other in enumerate(self.groups):
            if value in other.values:
                return f"group {g}"
        return value

    def _rows(
        self,
        scope: Sequence[int],
        key: Hashable,
        group: _Parts | None,
        part: int,
        made: Callable[[Hashable], Any],
    ) -> list[Any]:
        """Return one entry per assignment of the scope, drawn by what it means for the part."""
        local = {} if group is None else dict.fromkeys(group.states[part])
        places: dict[int, Hashable] = {v: f"slot {slot}" for slot, v in enumerate(local)}
        if group is not None and group.actions:
            places[group.actions[part]] = "own"
        rows = []
        for values in itertools.product(*(range(self.sizes[v]) for v in scope)):
            parts = [
                (str(places.get(v, v)), self._meaning(x, group, part) if v == self.selector else x)
                for v, x in zip(scope, values, strict=True)
            ]
            rows.append(made((key, *sorted(parts, key=str))))
        return rows

    def _shared(self, probability: float) -> list[int]:
        """Return some of the common variables and counts."""
        draws = self.draws
        shared = [v for v in self.common_numbers if draws.chance(probability)]
        return shared + [v for v in self.totals if draws.chance(probability)]

    def _transitions(self) -> tuple[tuple[tuple[int, ...], ...], list[Floats]]:
        draws = self.draws
        scopes: dict[int, tuple[int, ...]] = {}
        tables: dict[int, Floats] = {}
        for g, group in enumerate(self.groups):
            for slot, size in enumerate(group.sizes):
                shared = self._shared(0.4)
                both = draws.chance(0.7)
                if group.values or draws.chance(0.3):
                    shared.append(self.selector)
                for part, states in enumerate(group.states):
                    inside = states if both else [states[slot]]
                    own = [group.actions[part]] if group.actions else []
                    scope = tuple(sorted([*inside, *own, *shared]))
                    v = states[slot]
                    scopes[v] = scope
                    key = ("P", g, slot)
                    tables[v] = np.array(
                        self._rows(scope, key, group, part, partial(draws.row, size=size))
                    )
        for v in self.common_numbers:
            scope = tuple(sorted({v, self.selector, *self.totals}))
            size = self.sizes[v]
            tables[v] = np.array(
                self._rows(scope, ("C", v), None, 0, partial(draws.row, size=size))
            )
            scopes[v] = scope
        order = range(len(self.state_sizes))
        return tuple(scopes[v] for v in order), [tables[v] for v in order]

    def _rewards(self) -> list[tuple[tuple[int, ...], Floats]]:
        draws = self.draws
        rewards = []
        for g, group in enumerate(self.groups):
            shared = self._shared(0.3) + ([self.selector] if group.values else [])
            for part, states in enumerate(group.states):
                own = [group.actions[part]] if group.actions else []
                scope = tuple(sorted([*states, *own, *shared]))
                table = self._rows(scope, ("R", g), group, part, draws.number)
                rewards.append((scope, np.array(table)))
        common = tuple(sorted({*self._shared(0.7), self.selector}))
        rewards.append((common, np.array(self._rows(common, "R", None, 0, draws.number))))
        if draws.chance(0.3):
            rewards.append(self._symmetric_reward(self.groups[0]))
        return rewards

    def _symmetric_reward(self, group: _Parts) -> tuple[tuple[int, ...], Floats]:
        """Return a reward that is a table over the first variables of all parts of a group."""
        scope = tuple(sorted(part[0] for part in group.states))
        values = itertools.product(*(range(self.sizes[v]) for v in scope))
        table = [self.draws.number(("S", *sorted(row))) for row in values]
        return scope, np.array(table)

    def _constraints(self) -> tuple[Constraint, ...]:
        draws = self.draws
        constraints: list[Constraint] = []
        for g, group in enumerate(self.groups):
            if group.actions and draws.chance(0.6):
                idle = (draws.integer(0, group.own_size - 1),) * group.n
                constraints.append(
                    AtMost(tuple(group.actions), draws.integer(0, group.n), idle, f"cap_{g}")
                )
            elif group.actions and draws.chance(0.5):
                for part, action in enumerate(group.actions):
                    scope = (group.states[part][0], action)
                    table = np.zeros(count([self.sizes[v] for v in scope]), dtype=np.bool_)
                    table[group.own_size - 1] = True
                    constraints.append(Forbidden(scope, table, f"forbidden_{g}_{part}"))
        return tuple(constraints)
