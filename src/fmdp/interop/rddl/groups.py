"""Groups of fluents of which at most one holds: one variable instead of many booleans.

`robot-at(?x, ?y)` has one boolean per place, and 2^places states of which at most places + 1 occur.
It is proved that at most one fluent of a group holds: it does in the initial state, and for every
state in which it does, every action and all values of the other variables and of the random
intermediate fluents that the laws read, at most one of the next values can be true. (Other draws
are independent, so if two could be true, both could be at once.) Each family of fluents is tried,
grouped over all or some of its parameters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl.grounding import ground_name
from fmdp.interop.rddl.instance import BOOLEAN, Fluent, conjuncts, families
from fmdp.interop.rddl.variables import Array, Variable, exclusive, primed
from fmdp.interop.rddl.world import World

MOST_MERGED = 1 << 22
"""Most numbers in the table of a group; a larger group stays as booleans."""
MOST_AT_ONCE = 1 << 22
"""Most joint values over which the laws of a group are evaluated together."""


def find(world: World, actions: Sequence[Variable]) -> list[Variable]:
    """Return the groups as variables, with one value per fluent and one for none."""
    groups: list[Variable] = []
    states = {
        name: fluent
        for name, fluent in world.instance.states.items()
        if name not in world.fixed and fluent.values == BOOLEAN
    }
    for family, members in families(states).items():
        if len(members) < 2:
            continue
        for partition in _partitions(family, members):
            if all(_holds(world, group, actions) for group in partition):
                groups += partition
                break
    return groups


def _partitions(family: str, members: Sequence[Fluent]) -> Iterator[list[Variable]]:
    """Yield the ways to group a family, over all of its parameters first."""
    places = range(len(members[0].objects))
    for size in reversed(places):
        for over in itertools.combinations(places, size + 1):
            by_rest: dict[tuple[str, ...], list[Fluent]] = {}
            for fluent in members:
                rest = tuple(fluent.objects[place] for place in places if place not in over)
                by_rest.setdefault(rest, []).append(fluent)
            yield [
                exclusive(ground_name(family, rest), group)
                for rest, group in by_rest.items()
                if len(group) > 1
            ]


def _holds(world: World, group: Variable, actions: Sequence[Variable]) -> bool:
    """Return whether at most one of a group ever holds, and its table is small enough."""
    if sum(bool(world.instance.initial[fluent]) for fluent in group.fluents) > 1:
        return False
    laws = [world.laws[primed(fluent)] for fluent in group.fluents]
    before = {fluent: world.owners[fluent] for fluent in group.fluents}
    world.own(group)
    try:
        scope = world.scope(laws)
        rows = math.prod(v.size for v in scope)
        return rows * group.size <= MOST_MERGED and _is_proved(world, group, scope, actions)
    except (InvalidModel, TooLarge):
        return False  # a law that is undefined where several hold
    finally:
        world.owners |= before
        world.order.pop(group.name, None)


def _is_proved(
    world: World, group: Variable, scope: list[Variable], actions: Sequence[Variable]
) -> bool:
    """Return whether the laws keep at most one of a group true, evaluated together."""
    wider = [*scope, *(v for v in actions if v not in scope)]
    if math.prod(v.size for v in wider) <= MOST_AT_ONCE:
        scope = wider  # so that conditions on actions can be evaluated
    evaluation = world.evaluation(scope, 1, group.name)
    total: Array = np.zeros((1,) * len(scope), dtype=np.int16)
    for fluent in group.fluents:
        total = total + (evaluation.truth(world.laws[primed(fluent)]) > 0)
    violated = total > 1
    for _, condition in world.conditions:
        for part in conjuncts(condition):
            if all(v in scope for v in world.scope([part])):
                violated = violated & evaluation.value(part).astype(np.bool_)
    return not violated.any()
