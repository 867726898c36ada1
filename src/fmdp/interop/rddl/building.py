"""From a grounded instance to a FactoredMDP.

What never changes from the initial state on is put in as a constant; fluents of which at most one
holds become one variable; values that are never reached are left out; actions that no law reads
are the same as doing nothing, and left out too. So the model is that of the states which can be
reached (and of others that the factored form cannot tell from them). With max-nondef-actions = 1
all actions are one variable, doing nothing first; otherwise each is its own, with a constraint.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl import groups, rewards
from fmdp.interop.rddl.expressions import Constant, Node, atoms_of, is_random
from fmdp.interop.rddl.instance import Instance, conjuncts
from fmdp.interop.rddl.laws import Evaluation
from fmdp.interop.rddl.reachable import never_changing, reach
from fmdp.interop.rddl.variables import (
    NOOP,
    Array,
    Frame,
    Variable,
    chosen,
    primed,
    shown,
    single,
)
from fmdp.interop.rddl.world import World, pruned
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost, Constraint, Forbidden
from fmdp.model.factored import FactoredMDP

MOST_IN_ALL = 1 << 27
"""Numbers of all tables: 1 GiB, as for the problems that come with fmdp."""
MOST_JOINT = 1 << 16
"""Joint actions of which it is looked at whether two are ever at work."""
MOST_CLASSED = 1 << 22
"""Rows times fluents of a table whose classes are looked at."""


@dataclass(frozen=True)
class Imported:
    """A model with the fluents that its variables stand for.

    Parameters
    ----------
    model
        The model.
    states, actions
        Its variables, each with what the fluents are under each value.
    fixed
        Fluents that never change, and what they are.
    instance
        What the model was made of; it has the horizon and the discount.
    """

    model: FactoredMDP
    states: tuple[Variable, ...]
    actions: tuple[Variable, ...]
    fixed: Mapping[str, Constant]
    instance: Instance

    def state(self, fluents: Mapping[str, Any]) -> tuple[int, ...]:
        """The model's state where the fluents are as given, by their names in pyRDDLGym.

        Parameters
        ----------
        fluents
            Every state fluent, such as an observation of pyRDDLGym has them.
        """
        for name, value in self.fixed.items():
            if fluents[name] != value:
                raise InvalidModel(
                    f"{name} is {fluents[name]}, but it is {shown(value)} in every state that can "
                    f"be reached"
                )
        return tuple(one.value_where(fluents) for one in self.states)

    def fluents(self, state: Sequence[int]) -> dict[str, Constant]:
        """What every state fluent is in a state of the model.

        Parameters
        ----------
        state
            One value a state variable.
        """
        own = {
            fluent: told[value]
            for one, value in zip(self.states, state, strict=True)
            for fluent, told in one.fluents.items()
        }
        return {**self.fixed, **own}

    def action(self, action: Sequence[int]) -> dict[str, Constant]:
        """What the action fluents are under an action of the model: those that are not at their
        defaults, as `step` of pyRDDLGym takes them.

        Parameters
        ----------
        action
            One value an action variable.
        """
        return {
            fluent: told[value]
            for one, value in zip(self.actions, action, strict=True)
            for fluent, told in one.fluents.items()
            if told[value] != self.instance.actions[fluent].default
        }


def build(instance: Instance, name: str) -> Imported:
    """The model of an instance."""
    world = World(instance)
    for one in _actions(world, list(instance.actions)):
        world.own(one)
    world.refuse_shared_draws([single(one, ()) for one in instance.states])
    _fix(world, reach(world, ()))
    actions = _actions(world, _read(world))
    for one in actions:
        world.own(one)
    variables = reach(world, groups.find(world, actions))
    fixed = _fix(world, variables)
    states = [
        one
        for one in variables.values()
        if one.name not in instance.intermediate and not fixed.keys() >= one.fluents.keys()
    ]
    if not states:
        first = next(iter(instance.states))
        states = [single(first, [instance.initial[first]])]
    actions = _actions(world, _read(world))
    model = _model(world, states, actions, name)
    kept = {fluent for one in states for fluent in one.fluents}
    constant = {one: value for one, value in world.fixed.items() if one not in kept}
    return Imported(model, tuple(states), tuple(actions), constant, instance)


def _read(world: World) -> list[str]:
    """The action fluents that anything depends on."""
    read = set().union(
        *(atoms_of(law) for law in world.laws.values()),
        atoms_of(world.reward),
        *(atoms_of(condition) for _, condition in world.conditions),
    )
    return [one for one in world.instance.actions if one in read]


def _fix(world: World, variables: Mapping[str, Variable]) -> dict[str, Constant]:
    """Put in the fluents that never change, and say which."""
    found = {
        fluent: value
        for fluent, value in never_changing(variables.values()).items()
        if fluent in world.instance.states
    }
    world.fix(found)
    return found


def _actions(world: World, used: Sequence[str]) -> list[Variable]:
    instance = world.instance
    fluents = [instance.actions[one] for one in used]
    for one in fluents:
        if one.values is None:
            raise InvalidModel(
                f"action-fluent {one.name} is a number; must be bool or of an enumerated type"
            )
    most = instance.most_at_work
    if (most is None or most > 1) and _one_at_a_time(world):
        most = 1
    if not fluents or most == 0:
        return [Variable("action", (NOOP,), {one.name: (one.default,) for one in fluents})]
    if most == 1 and len(fluents) > 1:
        return [chosen("action", fluents)]
    return [single(one.name, one.values or ()) for one in fluents]


def _one_at_a_time(world: World) -> bool:
    """Whether conditions on actions alone forbid any two to be at work at once."""
    instance = world.instance
    actions = [one for one in instance.actions.values() if one.values is not None]
    singles = [single(one.name, one.values or ()) for one in actions]
    if len(actions) < 2 or math.prod(one.size for one in singles) > MOST_JOINT:
        return False
    evaluation = Evaluation(Frame(singles, world.codes))
    busy: Array = np.zeros((1,) * len(singles), dtype=np.int64)
    for one in actions:
        busy = busy + (evaluation.frame.array(one.name) != evaluation.frame.coded(one.default))
    several = busy > 1
    for _, condition in world.conditions:
        for part in conjuncts(condition):
            if atoms_of(part) <= instance.actions.keys():
                several = several & evaluation.value(part).astype(np.bool_)
    return not several.any()


def _model(
    world: World, states: Sequence[Variable], actions: Sequence[Variable], name: str
) -> FactoredMDP:
    instance = world.instance
    world.order.clear()
    for one in states:
        world.own(one)
    for one in actions:
        world.own(one)
    for hidden in world.hidden:
        if hidden in instance.intermediate:
            world.own(world.owners[hidden])
    for one in states:
        if any(primed(fluent) in atoms_of(world.reward) for fluent in one.fluents):
            world.own(one.primed())
    number = {one.name: index for index, one in enumerate([*states, *actions])}
    total = 0
    transitions, classes = [], []
    for one in states:
        scope, table = pruned(*world.table(one), 1)
        total += table.size
        if total > MOST_IN_ALL:
            raise TooLarge(
                f"the tables have more than {MOST_IN_ALL} numbers", 8 * total, 8 * MOST_IN_ALL
            )
        transitions.append(([number[v.name] for v in scope], np.ascontiguousarray(table)))
        classes.append(_classes(world, one, scope, table.size // one.size))
    found = rewards.factors(world)
    reward_classes = [np.arange(means.size) for _, means in found]
    return FactoredMDP.from_factors(
        [one.size for one in states],
        [one.size for one in actions],
        transitions,
        [([number[v.name] for v in scope], np.ascontiguousarray(means)) for scope, means in found],
        state_names=[one.name for one in states],
        action_names=[one.name for one in actions],
        state_values=[one.listed for one in states],
        action_values=[one.listed for one in actions],
        reward_names=_reward_names(found),
        initial_state=[one.value_where(instance.initial) for one in states],
        name=name,
        alike=Alike(_apart(classes), _apart(reward_classes)),
        constraints=_constraints(world, actions, number),
    )


def _apart(classes: Sequence[Array]) -> tuple[Array, ...]:
    """The same classes, none of them shared between factors."""
    starts = np.cumsum([0, *(int(own.max(initial=-1)) + 1 for own in classes)])
    return tuple(own + start for own, start in zip(classes, starts, strict=False))


def _classes(world: World, variable: Variable, scope: list[Variable], rows: int) -> Array:
    """Rows that are alike by the text of the law; each its own where hidden draws are in it."""
    laws = [world.laws[primed(one)] for one in variable.fluents]
    if any(atoms_of(law) & world.laws.keys() for law in laws) or rows * len(laws) > MOST_CLASSED:
        return np.arange(rows)
    evaluation = world.evaluation(world.scope(laws), 1, variable.name)
    names = {one.name for one in scope}
    kept = []
    for law in laws:
        own = evaluation.classes(law)
        for axis, one in enumerate(evaluation.frame.variables):
            if one.name not in names:  # the table does not change along it
                own = own.take([0], axis=axis)
        shape = [one.size if one.name in names else 1 for one in evaluation.frame.variables]
        kept.append(np.broadcast_to(own, shape).reshape(-1))
    _, found = np.unique(np.stack(kept, axis=1), axis=0, return_inverse=True)
    return found.reshape(-1)


def _reward_names(found: Sequence[tuple[list[Variable], Array]]) -> list[str]:
    names: list[str] = []
    for scope, _ in found:
        told = "+".join(one.name for one in scope[:3]) + ("+..." if len(scope) > 3 else "")
        label = f"reward of {told}" if told else "reward"
        names.append(label if label not in names else f"{label} ({len(names)})")
    return names


def _constraints(
    world: World, actions: Sequence[Variable], number: dict[str, int]
) -> list[Constraint]:
    instance = world.instance
    made: list[Constraint] = []
    most = instance.most_at_work
    if most is not None and 0 < most < len(actions):  # none where they are one variable
        idle = [
            next(iter(one.fluents.values())).index(instance.actions[one.name].default)
            for one in actions
        ]
        numbers = tuple(number[one.name] for one in actions)
        made.append(AtMost(numbers, most, tuple(idle), "max-nondef-actions"))
    tables: dict[tuple[str, ...], tuple[list[Variable], Array, str]] = {}
    for label, condition in world.conditions:
        for part in conjuncts(condition):
            if not isinstance(part, Node):
                if not part:
                    raise InvalidModel(f"{label} never holds")
                continue
            if is_random(part):
                raise InvalidModel(f"{label} is drawn; must read the state and the action")
            scope = world.scope([part])
            evaluation = world.evaluation(scope, 1, label)
            shape = [one.size for one in scope]
            forbidden = ~np.broadcast_to(evaluation.value(part).astype(np.bool_), shape)
            if not forbidden.any():
                continue
            scope, forbidden = pruned(scope, forbidden, 0)
            if not any(one in actions for one in scope):
                told = ", ".join(one.name for one in scope[:4])
                raise InvalidModel(
                    f"{label} speaks of states alone ({told}) and is not known to hold in all of "
                    f"them; must speak of actions"
                )
            key = tuple(one.name for one in scope)
            old = tables.get(key)
            if old is not None:
                forbidden = forbidden | old[1]
            tables[key] = (scope, forbidden, label if old is None else old[2])
    labels = [label for _, _, label in tables.values()]
    for place, (scope, forbidden, label) in enumerate(tables.values()):
        told = label if labels.count(label) == 1 else f"{label} ({place})"
        made.append(
            Forbidden(
                tuple(number[one.name] for one in scope),
                np.ascontiguousarray(forbidden).reshape(-1),
                told,
            )
        )
    return made
