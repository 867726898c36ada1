"""Reachable values of each variable from the initial state.

They are the least sets V_i that contain the initial value and, for all values of the parents in
their sets and all actions, the possible next values. Values outside are never reached; joint states
inside may still be unreachable. This gives the ranges of whole numbers, fluents that never change
and places that are never entered. Laws with too many parents may give any value, and so may laws
that are undefined in some joint state, since that may be unreachable. If a whole number has no
range by this, the joint states are listed (exploring.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.interop.rddl.exploring import explore
from fmdp.interop.rddl.expressions import Constant, atoms_of
from fmdp.interop.rddl.instance import Fluent
from fmdp.interop.rddl.variables import Variable, primed, single
from fmdp.interop.rddl.world import Explored, World

MOST_LOOKED_AT = 1 << 20
"""Most joint values of the parents over which a law is evaluated."""
MOST_NUMBERS = 256
"""Most values of a fluent that is a whole number."""


class _Unbounded(InvalidModel):
    """A whole number has no range that follows from the ranges of other fluents."""


def reach(world: World, groups: Iterable[Variable]) -> dict[str, Variable]:
    """Return the variables of all state and hidden fluents with their reachable values, by name.

    `groups` are the variables of several fluents. `world` owns all of them afterwards.
    """
    joined = list(groups)
    if world.explored is None:
        try:
            return _Search(world, joined).run()
        except _Unbounded as unbounded:
            try:
                world.explored = explore(world)
            except InvalidModel as error:
                raise InvalidModel(f"{unbounded} ({error})") from None
    return _Search(world, joined).explored(world.explored)


class _Search:
    def __init__(self, world: World, groups: list[Variable]) -> None:
        self.world = world
        self.whole = {v.name: v for v in groups}
        grouped = {fluent for v in groups for fluent in v.fluents}
        self.current: dict[str, Variable] = {}
        initial = world.instance.initial
        for group in groups:
            self.current[group.name] = group.keeping([group.value_where(initial)])
        for name in world.instance.states:
            if name not in world.fixed and name not in grouped:
                self.current[name] = single(name, [initial[name]])
        for v in self.current.values():
            world.own(v)

    def run(self) -> dict[str, Variable]:
        world = self.world
        own_hidden = [fluent for fluent in world.hidden if fluent in world.instance.intermediate]
        for name in own_hidden:
            self.current[name] = single(name, ())
            world.own(self.current[name])
            self._look(name)
        readers: dict[str, list[str]] = {}
        for name, v in self.current.items():
            laws = (name,) if name in world.laws else map(primed, v.fluents)
            for fluent in set().union(*(atoms_of(world.laws[law]) for law in laws)):
                readers.setdefault(fluent, []).append(name)
        waiting = dict.fromkeys(self.current)
        while waiting:
            name = next(iter(waiting))
            del waiting[name]
            if self._look(name):
                for fluent in self.current[name].fluents:
                    waiting.update(dict.fromkeys(readers.get(fluent, ())))
        return self.current

    def explored(self, found: Explored) -> dict[str, Variable]:
        """Return the variables with the values that they take in the explored states."""
        hidden = [name for name in self.world.hidden if name in self.world.instance.intermediate]
        for name in [*self.current, *hidden]:
            if name in self.whole:
                self.current[name] = self.whole[name].keeping(found.places(self.whole[name]))
            else:
                fluent = self._fluent(name)
                values = {self._decoded(value, fluent.values) for value in found.values(name)}
                self.current[name] = self._with_values(fluent, values)
            self.world.own(self.current[name])
        return self.current

    def _fluent(self, name: str) -> Fluent:
        return self.world.instance.states.get(name) or self.world.instance.intermediate[name]

    def _look(self, name: str) -> bool:
        """Add the possible next values of a variable; return whether there were new ones."""
        old = self.current[name]
        grown = self._group(name) if name in self.whole else self._single(name)
        if grown.size == old.size:
            return False
        self.current[name] = grown
        self.world.own(grown)
        return True

    def _fits(self, scope: list[Variable]) -> bool:
        return math.prod(v.size for v in scope) <= MOST_LOOKED_AT

    def _single(self, name: str) -> Variable:
        world = self.world
        law = world.laws[name if name in world.laws else primed(name)]
        fluent = self._fluent(name)
        known = self.current[name].fluents[name]
        scope = world.scope([law])
        reached: set[Constant] = set(fluent.values or ())
        if self._fits(scope):
            try:
                support = world.evaluation(scope, 1, name).support(law)
                reached = {self._decoded(value, fluent.values) for value in support}
            except InvalidModel as error:
                if fluent.values is None:
                    raise InvalidModel(f"the next value of {name}: {error}") from None
        elif fluent.values is None:
            raise _Unbounded(
                f"{name} is a whole number that depends on {len(scope)} variables; its range "
                f"cannot be found"
            )
        return self._with_values(fluent, reached.union(known))

    def _with_values(self, fluent: Fluent, values: set[Constant]) -> Variable:
        name = fluent.name
        if fluent.values is None:
            if len(values) > MOST_NUMBERS:
                raise _Unbounded(
                    f"{name} is a number without end: more than {MOST_NUMBERS} values are "
                    f"reached, such as {max(values, key=float)}; must be bounded"
                )
            return single(name, sorted(values, key=float))
        for value in values:
            if value not in fluent.values:
                raise InvalidModel(f"{name} becomes {value}; must be in {fluent.values}")
        return single(name, [value for value in fluent.values if value in values])

    def _decoded(self, value: Constant, values: tuple[Constant, ...] | None) -> Constant:
        """Return a value as in the domain: the name of an object, true or false for 1 or 0."""
        if values is None:
            return int(value) if float(value) == int(value) else float(value)
        if isinstance(values[0], str):
            return self.world.names[int(value)]
        if isinstance(values[0], bool):
            return bool(value)
        return value

    def _group(self, name: str) -> Variable:
        world, whole = self.world, self.whole[name]
        old = self.current[name]
        kept = {whole.values.index(value) for value in old.values}
        laws = [world.laws[primed(fluent)] for fluent in whole.fluents]
        scope = world.scope(laws)
        if not self._fits(scope):
            return whole
        evaluation = world.evaluation(scope, 1, name)
        chances = [evaluation.truth(law) for law in laws]
        for place, chance in enumerate(chances, start=1):
            if (chance > 0).any():
                kept.add(place)
        if np.any(1.0 - sum(chances) > 1e-12):
            kept.add(0)
        return whole.keeping(sorted(kept))


def never_changing(variables: Iterable[Variable]) -> dict[str, Constant]:
    """Return the fluents that have only one value, with that value."""
    return {
        fluent: constants[0]
        for v in variables
        for fluent, constants in v.fluents.items()
        if len(set(constants)) == 1
    }
