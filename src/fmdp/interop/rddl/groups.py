"""Groups of fluents of which at most one holds: one variable instead of many booleans.

`robot-at(?x, ?y)` is as many booleans as there are places, and 2^places states, of which all but
places + 1 never occur. That at most one of a group holds is proved, not assumed: it does in the
initial state, and for every state in which it does, every action and every value of what else the
laws read, at most one of the next values can be true. Laws are independent draws, so "can be true"
for two of them would be enough for both to be. Tried for each family of fluents, over all of its
parameters and over some.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl.expressions import atoms_of
from fmdp.interop.rddl.grounding import ground_name
from fmdp.interop.rddl.instance import Fluent, conjuncts, families
from fmdp.interop.rddl.variables import Array, Variable, exclusive, primed
from fmdp.interop.rddl.world import World

MOST_MERGED = 1 << 22
"""Numbers in the table of a group; a larger one stays as booleans."""
MOST_AT_ONCE = 1 << 22
"""Joint values over which a group is looked at as a whole."""


def find(world: World, actions: Sequence[Variable]) -> list[Variable]:
    """The groups, as variables with a value for each fluent and one for none."""
    found: list[Variable] = []
    states = {
        name: one
        for name, one in world.instance.states.items()
        if name not in world.fixed and one.values == (False, True)
    }
    for family, members in families(states).items():
        if len(members) < 2:
            continue
        for own in _partitions(family, members):
            if all(_holds(world, group, actions) for group in own):
                found += own
                break
    return found


def _partitions(family: str, members: Sequence[Fluent]) -> Iterator[list[Variable]]:
    """The ways to group a family: over all of its parameters first."""
    places = range(len(members[0].objects))
    for size in reversed(places):
        for over in itertools.combinations(places, size + 1):
            by_rest: dict[tuple[str, ...], list[Fluent]] = {}
            for one in members:
                rest = tuple(one.objects[place] for place in places if place not in over)
                by_rest.setdefault(rest, []).append(one)
            yield [
                exclusive(ground_name(family, rest), own)
                for rest, own in by_rest.items()
                if len(own) > 1
            ]


def _holds(world: World, group: Variable, actions: Sequence[Variable]) -> bool:
    """Whether at most one of a group holds for ever, and its table is small enough."""
    if sum(bool(world.instance.initial[one]) for one in group.fluents) > 1:
        return False
    laws = [world.laws[primed(one)] for one in group.fluents]
    if any(atoms_of(law) & world.laws.keys() for law in laws):
        return False  # hidden fluents: their draws are shared
    before = {one: world.owners[one] for one in group.fluents}
    world.own(group)
    try:
        scope = world.scope(laws)
        rows = math.prod(one.size for one in scope)
        proved = (
            _at_once(world, group, scope, actions)
            if rows <= MOST_AT_ONCE
            else _one_by_one(world, group, actions)
        )
        return proved and rows * group.size <= MOST_MERGED
    except (InvalidModel, TooLarge):
        return False  # a law that makes no sense where several hold proves nothing
    finally:
        world.owners |= before
        world.order.pop(group.name, None)


def _at_once(
    world: World, group: Variable, scope: list[Variable], actions: Sequence[Variable]
) -> bool:
    wider = [*scope, *(one for one in actions if one not in scope)]
    if math.prod(one.size for one in wider) <= MOST_AT_ONCE:
        scope = wider  # so that conditions on actions can be read
    evaluation = world.evaluation(scope, 1, group.name)
    total: Array = np.zeros((1,) * len(scope), dtype=np.int16)
    for one in group.fluents:
        total = total + (evaluation.truth(world.laws[primed(one)]) > 0)
    several = total > 1
    for _, condition in world.conditions:
        for part in conjuncts(condition):
            if all(one in scope for one in world.scope([part])):
                several = several & evaluation.value(part).astype(np.bool_)
    return not several.any()


def _one_by_one(world: World, group: Variable, actions: Sequence[Variable]) -> bool:
    """The same, where the laws together read too much: each by itself, and of what else it reads
    any value may make it true."""
    looked_at = [group, *actions]
    if math.prod(one.size for one in looked_at) > MOST_AT_ONCE:
        return False
    total: Array = np.zeros([one.size for one in looked_at], dtype=np.int16)
    for fluent in group.fluents:
        scope = world.scope([world.laws[primed(fluent)]])
        evaluation = world.evaluation(scope, 1, group.name)
        can: Array = evaluation.truth(world.laws[primed(fluent)]) > 0
        names = [one.name for one in scope]
        others = tuple(
            axis for axis, one in enumerate(scope) if one.name not in {v.name for v in looked_at}
        )
        can = np.any(can, axis=others, keepdims=True)
        # Groups stand before actions here, whatever their order among the axes of a table.
        places = [names.index(one.name) for one in looked_at if one.name in names]
        shaped = can.transpose([*places, *others]).reshape(
            [can.shape[names.index(one.name)] if one.name in names else 1 for one in looked_at]
        )
        total = total + shaped
    return bool(total.max() <= 1)
