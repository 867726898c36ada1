"""Which values each variable can have, starting from the initial state.

The least sets V_i with the initial value in V_i and, for all values of the parents in their sets
and all actions, the next value in V_i: closed under every step, so what is outside is never
reached. (The sets are those of single variables; joint states inside them may still be out of
reach.) It finds the ranges of whole numbers, fluents that never change, places never entered.
A law too wide to be looked at counts as one that may give any value, and so does one that makes no
sense in some joint state, since that may be out of reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.interop.rddl.expressions import Constant, atoms_of
from fmdp.interop.rddl.variables import Variable, primed, single
from fmdp.interop.rddl.world import World

MOST_LOOKED_AT = 1 << 20
"""Joint values of the parents."""
MOST_NUMBERS = 256
"""Values of a fluent that is a whole number."""


def reach(world: World, groups: Iterable[Variable]) -> dict[str, Variable]:
    """The variables of all state and hidden fluents, each with the values that it can have, by
    name; `groups` are those of several fluents. `world` owns them afterwards."""
    return _Search(world, list(groups)).run()


class _Search:
    def __init__(self, world: World, groups: list[Variable]) -> None:
        self.world = world
        self.whole = {one.name: one for one in groups}
        grouped = {fluent for one in groups for fluent in one.fluents}
        self.current: dict[str, Variable] = {}
        initial = world.instance.initial
        for group in groups:
            self.current[group.name] = group.keeping([group.value_where(initial)])
        for name in world.instance.states:
            if name not in world.fixed and name not in grouped:
                self.current[name] = single(name, [initial[name]])
        for one in self.current.values():
            world.own(one)

    def run(self) -> dict[str, Variable]:
        world = self.world
        own_hidden = [one for one in world.hidden if one in world.instance.intermediate]
        for name in own_hidden:
            self.current[name] = single(name, ())
            world.own(self.current[name])
            self._look(name)
        readers: dict[str, list[str]] = {}
        for name, one in self.current.items():
            laws = (name,) if name in world.laws else map(primed, one.fluents)
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

    def _look(self, name: str) -> bool:
        """Add the values that a variable can have next; whether there were new ones."""
        old = self.current[name]
        grown = self._group(name) if name in self.whole else self._single(name)
        if grown.size == old.size:
            return False
        self.current[name] = grown
        self.world.own(grown)
        return True

    def _fits(self, scope: list[Variable]) -> bool:
        return math.prod(one.size for one in scope) <= MOST_LOOKED_AT

    def _single(self, name: str) -> Variable:
        world = self.world
        law = world.laws[name if name in world.laws else primed(name)]
        fluent = world.instance.states.get(name) or world.instance.intermediate[name]
        known = self.current[name].fluents[name]
        scope = world.scope([law])
        found: set[Constant] = set(fluent.values or ())
        if self._fits(scope):
            try:
                chances = world.evaluation(scope, 1, name).law(law)
                found = {
                    self._decoded(one, fluent.values)
                    for one, own in chances.items()
                    if (own > 0).any()
                }
            except InvalidModel as error:
                if fluent.values is None:
                    raise InvalidModel(f"the next value of {name}: {error}") from None
        elif fluent.values is None:
            raise InvalidModel(
                f"{name} is a whole number that depends on {len(scope)} variables; its range "
                f"cannot be found"
            )
        every = found.union(known)
        if fluent.values is None:
            if len(every) > MOST_NUMBERS:
                raise InvalidModel(
                    f"{name} is a number without end: more than {MOST_NUMBERS} values are "
                    f"reached, such as {max(every, key=float)}; must be bounded"
                )
            return single(name, sorted(every, key=float))
        for one in every:
            if one not in fluent.values:
                raise InvalidModel(f"{name} becomes {one}; must be in {fluent.values}")
        return single(name, [one for one in fluent.values if one in every])

    def _decoded(self, value: Constant, values: tuple[Constant, ...] | None) -> Constant:
        """A value as the domain has it: an object by its name, true or false for 1 or 0."""
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
        kept = {whole.values.index(one) for one in old.values}
        laws = [world.laws[primed(one)] for one in whole.fluents]
        scope = world.scope(laws)
        if not self._fits(scope):
            return whole
        evaluation = world.evaluation(scope, 1, name)
        chances = [evaluation.truth(law) for law in laws]
        for place, own in enumerate(chances, start=1):
            if (own > 0).any():
                kept.add(place)
        if np.any(1.0 - sum(chances) > 1e-12):
            kept.add(0)
        return whole.keeping(sorted(kept))


def never_changing(variables: Iterable[Variable]) -> dict[str, Constant]:
    """Fluents that have one value, and what it is."""
    return {
        fluent: told[0]
        for one in variables
        for fluent, told in one.fluents.items()
        if len(set(told)) == 1
    }
