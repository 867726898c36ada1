"""Exploration of joint states, for instances whose whole numbers have no range of their own.

A number such as the value of a knapsack is bounded only together with its weight: taken alone, it
seems to grow for ever. If the joint states that can be reached are few, they are listed one by one,
and every fluent has the values that it takes in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.interop.rddl.expressions import atoms_of
from fmdp.interop.rddl.laws import Evaluation
from fmdp.interop.rddl.variables import Array, Frame, primed
from fmdp.interop.rddl.world import Explored, World

MOST_STATES = 1 << 16
"""Most joint states that are listed."""
MOST_ROWS = 1 << 22
"""Most rows (state, action, draws) that are evaluated in all, a few seconds of work."""
_ROWS_AT_ONCE = 1 << 16


class Rows(Frame):
    """A frame with one axis of rows, on which all fluents have values."""

    def __init__(self, columns: dict[str, Array], codes: Mapping[str, int]) -> None:
        super().__init__((), codes)
        self.columns = columns
        self.shape = (len(next(iter(columns.values()))),)

    def array(self, fluent: str) -> Array:
        return self.columns[fluent]


def explore(world: World) -> Explored:
    """Return the joint states that can be reached; raise InvalidModel if they are too many."""
    return _Exploration(world).run()


class _Exploration:
    def __init__(self, world: World) -> None:
        self.world = world
        instance = world.instance
        self.names = tuple(name for name in instance.states if name not in world.fixed)
        self.hidden = [name for name in world.hidden if name in instance.intermediate]
        self.drawn: dict[str, set[float]] = {name: set() for name in self.hidden}
        self.rows_left = MOST_ROWS
        coder = Frame((), world.codes)
        self.first = np.array([[float(coder.coded(instance.initial[name])) for name in self.names]])
        variables = {world.owners[name].name: world.owners[name] for name in instance.actions}
        self.actions: dict[str, Array] = {}
        joint = np.array(
            list(itertools.product(*(range(v.size) for v in variables.values()))), dtype=np.int64
        )
        for place, v in enumerate(variables.values()):
            for fluent, constants in v.fluents.items():
                values = np.array([float(coder.coded(constant)) for constant in constants])
                self.actions[fluent] = values[joint[:, place]]
        self.count = len(joint)
        self.conditions = [
            condition
            for _, condition in world.conditions
            if atoms_of(condition) & instance.actions.keys()
        ]

    def run(self) -> Explored:
        seen = {self.first.tobytes()}
        states, frontier = [self.first], self.first
        while len(frontier):
            fresh = []
            for following in self._successors(frontier):
                fresh += [row for row in following if row.tobytes() not in seen]
                seen.update(row.tobytes() for row in following)
                if len(seen) > MOST_STATES:
                    raise InvalidModel(f"more than {MOST_STATES} states are reached")
            frontier = np.array(fresh).reshape(-1, len(self.names))
            states.append(frontier)
        drawn = {name: frozenset(values) for name, values in self.drawn.items()}
        return Explored(self.names, np.concatenate(states), drawn)

    def _successors(self, states: Array) -> Iterator[Array]:
        """Yield the states that follow some states, each once per batch."""
        batch = max(1, _ROWS_AT_ONCE // self.count)
        for start in range(0, len(states), batch):
            part = states[start : start + batch]
            columns = {
                name: np.repeat(part[:, place], self.count) for place, name in enumerate(self.names)
            }
            for fluent, values in self.actions.items():
                columns[fluent] = np.tile(values, len(part))
            yield np.unique(self._following(columns), axis=0)

    def _following(self, columns: dict[str, Array]) -> Array:
        for condition in self.conditions:
            allowed = self._evaluation(columns).value(condition).astype(np.bool_)
            columns = _taken(columns, np.flatnonzero(np.broadcast_to(allowed, _length(columns))))
        for name in self.hidden:
            rows, values = self._outcomes(columns, name)
            columns = _taken(columns, rows) | {name: values}
            self.drawn[name].update(np.unique(values).tolist())
        rows = np.arange(_length(columns))
        following: list[Array] = []
        for name in self.names:
            taken = _taken(columns, rows)
            outcomes, values = self._outcomes(taken, primed(name))
            rows = rows[outcomes]
            following = [*(column[outcomes] for column in following), values]
        return np.stack(following, axis=1)

    def _outcomes(self, columns: dict[str, Array], name: str) -> tuple[Array, Array]:
        """Return the possible values of a fluent with the row of each, all rows at least once."""
        length = _length(columns)
        if not length:
            return np.arange(0), np.zeros(0)
        rows, values = [], []
        for value, chance in self._evaluation(columns).law(self.world.laws[name]).items():
            possible = np.flatnonzero(np.broadcast_to(chance, length) > 0)
            rows.append(possible)
            values.append(np.full(len(possible), float(value)))
        joined = np.concatenate(rows) if rows else np.arange(0)
        if len(np.unique(joined)) < length:
            raise InvalidModel(
                f"the next value of {name} is not defined in a state that is reached"
            )
        self.rows_left -= len(joined)
        if self.rows_left < 0:
            raise InvalidModel(f"more than {MOST_ROWS} steps are possible")
        return joined, np.concatenate(values)

    def _evaluation(self, columns: dict[str, Array]) -> Evaluation:
        return Evaluation(Rows(columns, self.world.codes))


def _length(columns: Mapping[str, Array]) -> int:
    return len(next(iter(columns.values())))


def _taken(columns: Mapping[str, Array], rows: Array | Sequence[int]) -> dict[str, Array]:
    return {name: column[rows] for name, column in columns.items()}
