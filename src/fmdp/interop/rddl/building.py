"""Conversion of a grounded instance to a FactoredMDP.

Fluents that never change become constants; fluents of which at most one holds become one variable;
values that are never reached are left out, and so are actions that no law reads. The model thus has
the reachable states, and others that the factored form cannot exclude. With max-nondef-actions = 1
all actions are one variable, whose first value is no operation; otherwise each is a variable, with
a constraint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel, TooLarge
from fmdp.interop.rddl import groups, rewards
from fmdp.interop.rddl.expressions import (
    Constant,
    Expression,
    Node,
    atoms_of,
    is_random,
    replaced,
)
from fmdp.interop.rddl.grounding import ground_name
from fmdp.interop.rddl.instance import BOOLEAN, Fluent, Instance, conjuncts
from fmdp.interop.rddl.laws import Evaluation
from fmdp.interop.rddl.reachable import never_changing, reach
from fmdp.interop.rddl.variables import NOOP, Array, Frame, Variable, chosen, primed, shown, single
from fmdp.interop.rddl.world import World, pruned
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost, Constraint, Forbidden
from fmdp.model.derived import Derived
from fmdp.model.factored import FactoredMDP

MOST_IN_ALL = 1 << 27
"""Most numbers in all tables: 1 GiB, as for the problems of fmdp."""
MOST_JOINT = 1 << 16
"""Most joint actions for which it is checked whether two can be active at once."""
MOST_CLASSED = 1 << 22
"""Most rows times fluents of a table for which classes of alike rows are computed."""


@dataclass(frozen=True)
class Imported:
    """A model with the fluents that its variables stand for.

    Parameters
    ----------
    model
        The model.
    states, actions
        Its variables, each with the values of its fluents.
    fixed
        Fluents that never change, with their values.
    instance
        The grounded instance, which has the horizon and the discount.
    """

    model: FactoredMDP
    states: tuple[Variable, ...]
    actions: tuple[Variable, ...]
    fixed: Mapping[str, Constant]
    instance: Instance

    def state(self, fluents: Mapping[str, Any]) -> tuple[int, ...]:
        """Return the state of the model for given values of the fluents.

        Parameters
        ----------
        fluents
            Every state fluent by its name in pyRDDLGym, as in an observation.
        """
        for name, value in self.fixed.items():
            if fluents[name] != value:
                raise InvalidModel(
                    f"{name} is {fluents[name]}, but it is {shown(value)} in every state that can "
                    f"be reached"
                )
        return tuple(v.value_where(fluents) for v in self.states)

    def fluents(self, state: Sequence[int]) -> dict[str, Constant]:
        """Return the value of every state fluent in a state of the model.

        Parameters
        ----------
        state
            One value per state variable.
        """
        varying = {
            fluent: constants[value]
            for v, value in zip(self.states, state, strict=True)
            for fluent, constants in v.fluents.items()
        }
        return {**self.fixed, **varying}

    def action(self, action: Sequence[int]) -> dict[str, Constant]:
        """Return the action fluents with non-default values, as pyRDDLGym's `step` takes them.

        Parameters
        ----------
        action
            One value per action variable.
        """
        return {
            fluent: constants[value]
            for v, value in zip(self.actions, action, strict=True)
            for fluent, constants in v.fluents.items()
            if constants[value] != self.instance.actions[fluent].default
        }


def build(instance: Instance, name: str) -> Imported:
    """Return the model of an instance."""
    world = World(instance)
    for v in _actions(world, list(instance.actions)):
        world.own(v)
    world.derive_shared_draws([single(fluent, ()) for fluent in instance.states])
    _fix(world, reach(world, ()))
    actions = _actions(world, _read(world))
    for v in actions:
        world.own(v)
    variables = reach(world, groups.find(world, actions))
    fixed = _fix(world, variables)
    states = [
        v
        for v in variables.values()
        if v.name not in instance.intermediate and not fixed.keys() >= v.fluents.keys()
    ]
    if not states:
        first = next(iter(instance.states))
        states = [single(first, [instance.initial[first]])]
    actions = _actions(world, _read(world))
    model = _model(world, states, actions, name)
    kept = {fluent for v in states for fluent in v.fluents}
    constant = {fluent: value for fluent, value in world.fixed.items() if fluent not in kept}
    return Imported(model, tuple(states), tuple(actions), constant, instance)


def _read(world: World) -> list[str]:
    """Return the action fluents that laws, reward or conditions read."""
    read = set().union(
        *(atoms_of(law) for law in world.laws.values()),
        atoms_of(world.reward),
        *(atoms_of(condition) for _, condition in world.conditions),
    )
    return [fluent for fluent in world.instance.actions if fluent in read]


def _fix(world: World, variables: Mapping[str, Variable]) -> dict[str, Constant]:
    """Substitute the state fluents that never change, and return them."""
    constants = {
        fluent: value
        for fluent, value in never_changing(variables.values()).items()
        if fluent in world.instance.states
    }
    world.fix(constants)
    return constants


def _actions(world: World, used: Sequence[str]) -> list[Variable]:
    instance = world.instance
    fluents = [instance.actions[fluent] for fluent in used]
    for fluent in fluents:
        if fluent.values is None:
            raise InvalidModel(
                f"action-fluent {fluent.name} is a number; must be bool or of an enumerated type"
            )
    most = instance.most_at_work
    if (most is None or most > 1) and _one_at_a_time(world):
        most = 1
    if not fluents or most == 0:
        return [Variable("action", (NOOP,), {fluent.name: (fluent.default,) for fluent in fluents})]
    if most == 1 and len(fluents) > 1:
        return [chosen("action", fluents)]
    return _exclusive_actions(world, fluents)


def _exclusive_actions(world: World, fluents: Sequence[Fluent]) -> list[Variable]:
    """Return the action variables: one for fluents that a condition sum(...) <= 1 names.

    A fluent that several conditions name belongs to the first, the longest of them.
    """
    instance = world.instance
    free = {fluent.name: fluent for fluent in fluents}
    members: dict[str, list[Fluent]] = {}
    for names in _exclusive_names(world):
        group = [free[name] for name in names if name in free]
        if len(group) > 1:
            for fluent in group:
                del free[fluent.name]
            members[group[0].name] = group
    taken = {*instance.states, *instance.actions}
    variables = []
    for fluent in fluents:
        if fluent.name in free:
            variables.append(single(fluent.name, fluent.values or ()))
        elif fluent.name in members:
            name = _group_name(members[fluent.name], taken)
            taken.add(name)
            variables.append(chosen(name, members[fluent.name]))
    return variables


def _exclusive_names(world: World) -> Iterator[tuple[str, ...]]:
    """Yield the boolean fluents of which a condition allows one at most, longest condition first.

    Conditions on numbers are left out: a term below 0 would leave more for the others.
    """
    instance = world.instance
    every = instance.states | instance.intermediate | instance.actions
    parts = (part for _, condition in world.conditions for part in conjuncts(condition))
    for names, most in sorted(map(_sum_limit, parts), key=lambda limit: -len(limit[0])):
        if most == 1 and all(name in every and every[name].values == BOOLEAN for name in names):
            yield names


def _sum_limit(condition: Expression) -> tuple[tuple[str, ...], int]:
    """Return the fluents x, y, ... and k of a condition x + y + ... <= k, < k + 1 or == k.

    No fluents are returned for other conditions.
    """
    if not isinstance(condition, Node) or condition.op not in ("<=", "<", "=="):
        return (), 0
    total, most = condition.args
    terms = total.args if isinstance(total, Node) and total.op == "+" else ()
    if isinstance(most, Node | str) or any(
        not isinstance(term, Node) or term.op != "atom" for term in terms
    ):
        return (), 0
    names = tuple(term.args[0] for term in terms)
    limit = math.ceil(most) - 1 if condition.op == "<" else math.floor(most)
    return (names, limit) if len(set(names)) == len(names) else ((), 0)


def _group_name(group: Sequence[Fluent], taken: set[str]) -> str:
    """Return a name made of the family and the objects that all fluents of a group have."""
    named_families = {fluent.family for fluent in group}
    family = named_families.pop() if len(named_families) == 1 else "action"
    shared = [o for o in group[0].objects if all(o in fluent.objects for fluent in group)]
    name = ground_name(family, shared)
    while name in taken:
        name += "_"
    return name


def _one_at_a_time(world: World) -> bool:
    """Return whether conditions on actions alone forbid that two are active at once."""
    instance = world.instance
    actions = [fluent for fluent in instance.actions.values() if fluent.values is not None]
    singles = [single(fluent.name, fluent.values or ()) for fluent in actions]
    if len(actions) < 2 or math.prod(fluent.size for fluent in singles) > MOST_JOINT:
        return False
    evaluation = Evaluation(Frame(singles, world.codes))
    busy: Array = np.zeros((1,) * len(singles), dtype=np.int64)
    for fluent in actions:
        busy = busy + (
            evaluation.frame.array(fluent.name) != evaluation.frame.coded(fluent.default)
        )
    violated = busy > 1
    for _, condition in world.conditions:
        for part in conjuncts(condition):
            if atoms_of(part) <= instance.actions.keys():
                violated = violated & evaluation.value(part).astype(np.bool_)
    return not violated.any()


def _model(
    world: World, states: Sequence[Variable], actions: Sequence[Variable], name: str
) -> FactoredMDP:
    instance = world.instance
    world.order.clear()
    for v in states:
        world.own(v)
    for v in actions:
        world.own(v)
    for hidden in world.hidden:
        if hidden in instance.intermediate:
            world.own(world.owners[hidden])
    for v in states:
        if any(primed(fluent) in atoms_of(world.reward) for fluent in v.fluents):
            world.own(v.primed())
    world.derive_shared_draws(states)
    drawn = [world.owners[name] for name in world.hidden if name in world.derived]
    number = {v.name: index for index, v in enumerate([*states, *actions, *drawn])}
    total = 0
    transitions, classes = [], []
    for v in states:
        scope, table = pruned(*world.table(v), 1)
        total += table.size
        if total > MOST_IN_ALL:
            raise TooLarge(
                f"the tables have more than {MOST_IN_ALL} numbers", 8 * total, 8 * MOST_IN_ALL
            )
        transitions.append(([number[v.name] for v in scope], np.ascontiguousarray(table)))
        classes.append(_classes(world, v, scope, table.size // v.size))
    factors = rewards.factors(world)
    reward_classes = [np.arange(means.size) for _, means in factors]
    return FactoredMDP.from_factors(
        [v.size for v in states],
        [v.size for v in actions],
        transitions,
        [
            ([number[v.name] for v in scope], np.ascontiguousarray(means))
            for scope, means in factors
        ],
        state_names=[v.name for v in states],
        action_names=[v.name for v in actions],
        state_values=[v.listed for v in states],
        action_values=[v.listed for v in actions],
        reward_names=_reward_names(factors),
        initial_state=[v.value_where(instance.initial) for v in states],
        name=name,
        alike=Alike(_apart(classes), _apart(reward_classes)),
        constraints=_constraints(world, actions, number),
        derived=[_derived(world, v, number) for v in drawn],
    )


def _derived(world: World, variable: Variable, number: Mapping[str, int]) -> Derived:
    """Return the derived variable of an intermediate fluent."""
    scope, table = pruned(*world.table(variable), 1)
    numbers = [number[v.name] for v in scope]
    order = np.argsort(numbers)
    rows = table.transpose([*order, len(scope)]).reshape(-1, variable.size)
    certain = ((rows == 0.0) | (rows == 1.0)).all()
    return Derived(
        variable.name,
        variable.listed,
        tuple(sorted(numbers)),
        rows.argmax(axis=1) if certain else rows,
    )


def _apart(classes: Sequence[Array]) -> tuple[Array, ...]:
    """Return the classes renumbered such that factors share none."""
    starts = np.cumsum([0, *(int(numbers.max(initial=-1)) + 1 for numbers in classes)])
    return tuple(numbers + start for numbers, start in zip(classes, starts, strict=False))


def _classes(world: World, variable: Variable, scope: list[Variable], rows: int) -> Array:
    """Return classes of rows that are alike by the text of the law.

    With hidden draws, or in large tables, every row is a class.
    """
    laws = [world.laws[primed(fluent)] for fluent in variable.fluents]
    if any(atoms_of(law) & world.laws.keys() for law in laws) or rows * len(laws) > MOST_CLASSED:
        return np.arange(rows)
    evaluation = world.evaluation(world.scope(laws), 1, variable.name)
    names = {v.name for v in scope}
    kept = []
    for law in laws:
        numbers = evaluation.classes(law)
        for axis, v in enumerate(evaluation.frame.variables):
            if v.name not in names:  # the table does not change along it
                numbers = numbers.take([0], axis=axis)
        shape = [v.size if v.name in names else 1 for v in evaluation.frame.variables]
        kept.append(np.broadcast_to(numbers, shape).reshape(-1))
    _, joint = np.unique(np.stack(kept, axis=1), axis=0, return_inverse=True)
    return joint.reshape(-1)


def _cap(
    world: World, part: Node, scope: Sequence[Variable], number: dict[str, int], label: str
) -> AtMost | None:
    """Return the cap of a condition x + y + ... <= k on many actions, which needs no table."""
    names, most = _sum_limit(part)
    actions = world.instance.actions
    if (
        not names
        or part.op == "=="
        or math.prod(v.size for v in scope) <= MOST_JOINT
        or any(name not in actions or actions[name].values != BOOLEAN for name in names)
        or not all(v.fluents.keys() <= set(names) for v in scope)
    ):
        return None
    idle = tuple(v.value_where(dict.fromkeys(names, False)) for v in scope)
    return AtMost(tuple(number[v.name] for v in scope), max(most, 0), idle, label)


def _is_promise(world: World, label: str, part: Expression) -> bool:
    """Return whether a condition is a statement about states, which must hold in the first one.

    It changes no law, so it is not needed: the author says that it holds in all states that can be
    reached. A precondition of actions on states alone would leave states without actions.
    """
    if label.startswith("action-precondition") or atoms_of(part) & world.instance.actions.keys():
        return False
    if not replaced(part, dict(world.instance.initial)):
        raise InvalidModel(f"{label} does not hold in the first state")
    return True


def _reward_names(factors: Sequence[tuple[list[Variable], Array]]) -> list[str]:
    names: list[str] = []
    for scope, _ in factors:
        names_read = "+".join(v.name for v in scope[:3]) + ("+..." if len(scope) > 3 else "")
        label = f"reward of {names_read}" if names_read else "reward"
        names.append(label if label not in names else f"{label} ({len(names)})")
    return names


def _constraints(
    world: World, actions: Sequence[Variable], number: dict[str, int]
) -> list[Constraint]:
    """Return the constraints of max-nondef-actions and of all conditions."""
    instance = world.instance
    made: list[Constraint] = []
    most = instance.most_at_work
    if most is not None and 0 < most < len(actions):  # no cap if they are one variable
        defaults = {name: fluent.default for name, fluent in instance.actions.items()}
        idle = [v.value_where(defaults) for v in actions]
        numbers = tuple(number[v.name] for v in actions)
        made.append(AtMost(numbers, most, tuple(idle), "max-nondef-actions"))
    tables: dict[tuple[str, ...], tuple[list[Variable], Array, str]] = {}
    for label, part in _restrictions(world):
        scope = world.scope([part])
        cap = _cap(world, part, scope, number, label)
        if cap is not None:
            made.append(cap)
            continue
        scope, forbidden = _forbidden_table(world, actions, label, part, scope)
        if not forbidden.any():
            continue
        key = tuple(v.name for v in scope)
        if key in tables:
            _, before, label = tables[key]
            forbidden = forbidden | before
        tables[key] = (scope, forbidden, label)
    labels = [label for _, _, label in tables.values()]
    for place, (scope, forbidden, label) in enumerate(tables.values()):
        title = label if labels.count(label) == 1 else f"{label} ({place})"
        numbers = tuple(number[v.name] for v in scope)
        made.append(Forbidden(numbers, np.ascontiguousarray(forbidden).reshape(-1), title))
    return made


def _restrictions(world: World) -> Iterator[tuple[str, Node]]:
    """Yield the conditions that may forbid actions, split into conjuncts, each with its label."""
    for label, condition in world.conditions:
        for part in conjuncts(condition):
            if not isinstance(part, Node):
                if not part:
                    raise InvalidModel(f"{label} never holds")
                continue
            if is_random(part):
                raise InvalidModel(f"{label} is drawn; must read the state and the action")
            if not _is_promise(world, label, part):
                yield label, part


def _forbidden_table(
    world: World, actions: Sequence[Variable], label: str, part: Node, scope: list[Variable]
) -> tuple[list[Variable], Array]:
    """Return where a condition does not hold, over the variables that matter."""
    holds = world.evaluation(scope, 1, label).value(part).astype(np.bool_)
    forbidden = ~np.broadcast_to(holds, [v.size for v in scope])
    if not forbidden.any():
        return scope, forbidden
    scope, forbidden = pruned(scope, forbidden, 0)
    if not any(v in actions for v in scope):
        read = ", ".join(v.name for v in scope[:4])
        raise InvalidModel(
            f"{label} speaks of states alone ({read}) and is not known to hold in all of "
            f"them; must speak of actions"
        )
    return scope, forbidden
