"""A grounded instance: objects, fluents, ground expressions and limits.

Names are those of pyRDDLGym: `running___c1` is a fluent, `running'___c1` its next value. Features
that no finite model with observed states has are refused here by name: real fluents, observations,
a horizon that is a condition. A state that fulfils the termination condition is absorbing and pays
nothing. A next value that other laws read is drawn once, as an intermediate fluent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fmdp.errors import InvalidModel
from fmdp.interop.rddl.expressions import (
    Constant,
    Expression,
    Node,
    atom,
    atoms_of,
    is_number,
    make,
    replaced,
)
from fmdp.interop.rddl.grounding import Grounder, ground_name, object_name

LARGEST_GROUNDING = 1 << 20
"""Most ground fluents with the same name."""
MOST_CHOICES = 256
"""Most values of an action fluent that is a whole number."""
BOOLEAN = (False, True)


@dataclass(frozen=True)
class Fluent:
    """A ground fluent: its family, objects and values.

    The values of a whole number are None, because its range is computed, not declared.
    """

    name: str
    family: str
    objects: tuple[str, ...]
    values: tuple[Constant, ...] | None
    default: Constant


@dataclass
class Instance:
    """A domain with an instance, grounded."""

    name: str
    types: dict[str, tuple[str, ...]]
    states: dict[str, Fluent] = field(default_factory=dict)
    actions: dict[str, Fluent] = field(default_factory=dict)
    intermediate: dict[str, Fluent] = field(default_factory=dict)
    initial: dict[str, Constant] = field(default_factory=dict)
    next: dict[str, Expression] = field(default_factory=dict)
    """The law of the next value of every state fluent."""
    between: dict[str, Expression] = field(default_factory=dict)
    """The law of every intermediate fluent."""
    reward: Expression = 0
    conditions: list[tuple[str, Expression]] = field(default_factory=list)
    """Conditions on states and actions, each with its label."""
    most_at_work: int | None = None
    horizon: int | None = None
    discount: float | None = None


class _Reader:
    def __init__(self, tree: Any) -> None:
        self.domain, self.instance, self.constants = tree.domain, tree.instance, tree.non_fluents
        self.declared: dict[str, Any] = {}
        for declaration in self.domain.pvariables:
            if declaration.name in self.declared:
                raise InvalidModel(f"{declaration.name} is declared twice")
            self.declared[declaration.name] = declaration
        self.types = self._types()
        self.given = self._given()

    def _types(self) -> dict[str, tuple[str, ...]]:
        objects = dict(getattr(self.constants, "objects", ()) or ())
        objects |= dict(getattr(self.instance, "objects", ()) or ())
        types = {}
        for name, kind in getattr(self.domain, "types", ()) or ():
            if kind == "object":
                if name not in objects:
                    raise InvalidModel(f"the instance has no objects of type {name}")
                types[name] = tuple(map(object_name, objects[name]))
            else:
                types[name] = tuple(map(object_name, kind))
        return types

    def _given(self) -> dict[tuple[str, tuple[str, ...]], Constant]:
        """Return the values of non-fluents and initial fluents in the instance."""
        given: dict[tuple[str, tuple[str, ...]], Constant] = {}
        for block in (
            getattr(self.constants, "init_non_fluent", ()),
            getattr(self.instance, "init_state", ()),
        ):
            for (name, objects), value in block or ():
                if name not in self.declared:
                    raise InvalidModel(f"the instance sets {name}, which the domain does not have")
                key = name, tuple(map(object_name, objects or ()))
                for object_, kind in zip(key[1], self.parameters(name), strict=False):
                    if object_ not in self.types.get(kind, ()):
                        raise InvalidModel(f"{name}: {object_} is no object of type {kind}")
                if len(key[1]) != len(self.parameters(name)):
                    raise InvalidModel(f"the instance sets {name} of {len(key[1])} objects")
                given[key] = self._value(name, value)
        return given

    def parameters(self, name: str) -> tuple[str, ...]:
        kinds = tuple(self.declared[name].param_types or ())
        for kind in kinds:
            if kind not in self.types:
                raise InvalidModel(f"{name} is of objects of type {kind}, which is no type")
        return kinds

    def _value(self, name: str, value: Any) -> Constant:
        kind = self.declared[name].range
        if kind == "bool":
            return bool(value)
        if kind in ("int", "real"):
            if isinstance(value, str):
                raise InvalidModel(f"{name} is {value}; must be a number")
            return int(value) if kind == "int" else float(value)
        label, allowed = object_name(str(value)), self._objects(name)
        if label not in allowed:
            raise InvalidModel(f"{name} is {label}; must be one of {', '.join(allowed)}")
        return label

    def _objects(self, name: str) -> tuple[str, ...]:
        """Return the values of a fluent whose values are objects or of an enumerated type."""
        objects = self.types.get(self.declared[name].range)
        if not objects:
            raise InvalidModel(f"{name} is of type {self.declared[name].range}, which is none")
        return objects

    def _default(self, name: str) -> Constant:
        declared = self.declared[name]
        if declared.default is not None:
            return self._value(name, declared.default)
        if declared.range == "bool":
            return False
        if declared.range in ("int", "real"):
            return 0
        return self._objects(name)[0]

    def known(self, name: str, objects: tuple[str, ...]) -> Constant | None:
        """Return the value of a non-fluent, or None for a fluent."""
        declared = self.declared.get(name)
        if declared is None or declared.fluent_type != "non-fluent":
            return None
        given = self.given.get((name, objects))
        return self._default(name) if given is None else given

    def fluents(self, kind: str) -> Iterator[Fluent]:
        for name, declared in self.declared.items():
            if declared.fluent_type != kind:
                continue
            values: tuple[Constant, ...] | None
            if declared.range == "bool":
                values = BOOLEAN
            elif declared.range == "int":
                values = None
            elif declared.range == "real":
                values = None
                if kind != "interm-fluent" and kind != "derived-fluent":
                    raise InvalidModel(
                        f"{kind} {name} is real; must be bool, int or of an enumerated type"
                    )
            else:
                values = self._objects(name)
            domains = [self.types[parameter] for parameter in self.parameters(name)]
            total = math.prod(map(len, domains))
            if total > LARGEST_GROUNDING:
                raise InvalidModel(
                    f"{kind} {name} is {total} fluents; at most {LARGEST_GROUNDING} are read"
                )
            for objects in itertools.product(
                *(self.types[parameter] for parameter in self.parameters(name))
            ):
                yield Fluent(ground_name(name, objects), name, objects, values, self._default(name))


def grounded(tree: Any) -> Instance:
    """Return the instance of a syntax tree."""
    reader = _Reader(tree)
    domain, instance = tree.domain, tree.instance
    for name, declared in reader.declared.items():
        if declared.fluent_type == "observ-fluent":
            raise InvalidModel(
                f"observ-fluent {name}: the state is not observed; must be a problem without "
                f"observations (an MDP, not a POMDP)"
            )
    made = Instance(instance.name, reader.types)
    made.states = {fluent.name: fluent for fluent in reader.fluents("state-fluent")}
    made.actions = {fluent.name: fluent for fluent in reader.fluents("action-fluent")}
    for kind in ("interm-fluent", "derived-fluent"):
        made.intermediate |= {fluent.name: fluent for fluent in reader.fluents(kind)}
    if not made.states:
        raise InvalidModel("the domain has no state-fluents; must have one")
    if not made.actions:
        raise InvalidModel("the domain has no action-fluents; must have one")
    for fluent in made.states.values():
        given = reader.given.get((fluent.family, fluent.objects))
        made.initial[fluent.name] = fluent.default if given is None else given
    grounder = Grounder(
        reader.types, {name: reader.parameters(name) for name in reader.declared}, reader.known
    )
    _laws(made, domain, grounder)
    try:
        made.reward = grounder.ground(domain.reward, {})
    except InvalidModel as error:
        raise InvalidModel(f"reward: {error}") from None
    _limits(made, domain, instance, grounder)
    _bound_actions(made)
    _terminate(made, domain, grounder)
    _share_next_values(made)
    return made


def _laws(made: Instance, domain: Any, grounder: Grounder) -> None:
    _, laws = domain.cpfs
    by_family = families(made.states | made.intermediate)
    for law in laws:
        name, variables = law.pvar[1]
        family = name.removesuffix("'")
        is_next = name.endswith("'")
        for fluent in by_family.get(family, ()):
            target = made.next if is_next else made.between
            if is_next != (fluent.name in made.states):
                continue
            if len(variables or ()) != len(fluent.objects):
                raise InvalidModel(f"the law of {name} is of {len(variables or ())} objects")
            bound = dict(zip(variables or (), fluent.objects, strict=True))
            try:
                target[fluent.name] = grounder.ground(law.expr, bound)
            except InvalidModel as error:
                raise InvalidModel(f"{name}: {error}") from None
    for fluent in (made.states | made.intermediate).values():
        if fluent.name not in (made.next if fluent.name in made.states else made.between):
            raise InvalidModel(f"{fluent.family} has no law in cpfs; every fluent must have one")


def _limits(made: Instance, domain: Any, instance: Any, grounder: Grounder) -> None:
    for what, block in (
        ("action-precondition", "preconds"),
        ("state-action-constraint", "constraints"),
        ("state-invariant", "invariants"),
    ):
        for number, tree in enumerate(getattr(domain, block, ()) or (), start=1):
            label = f"{what} {number}"
            made.conditions.append((label, _condition(made, tree, grounder, label)))
    most = getattr(instance, "max_nondef_actions", None)
    made.most_at_work = None if most is None or isinstance(most, str) else int(most)
    if made.most_at_work is not None and made.most_at_work < 0:
        raise InvalidModel(
            f"max-nondef-actions is {made.most_at_work}; must be a whole number from 0, or pos-inf"
        )
    horizon = getattr(instance, "horizon", None)
    if horizon is not None and not isinstance(horizon, int | str):
        raise InvalidModel("the horizon is a condition (terminate-when); must be a number")
    made.horizon = horizon if isinstance(horizon, int) else None
    discount = getattr(instance, "discount", None)
    made.discount = None if discount is None else float(discount)


def _bound_actions(made: Instance) -> None:
    """Give action fluents that are whole numbers the range that their conditions allow."""
    for fluent in [fluent for fluent in made.actions.values() if fluent.values is None]:
        low, high = -math.inf, math.inf
        for _, condition in made.conditions:
            for part in conjuncts(condition):
                least, most = _range(part, fluent.name)
                low, high = max(low, least), min(high, most)
        if not high - low < MOST_CHOICES:
            raise InvalidModel(
                f"action-fluent {fluent.name} is a whole number from {low} to {high}; "
                f"action-preconditions must leave it at most {MOST_CHOICES} values"
            )
        values = tuple(range(math.ceil(low), math.floor(high) + 1))
        if fluent.default not in values:
            raise InvalidModel(
                f"action-fluent {fluent.name} may not be {fluent.default}, its default"
            )
        made.actions[fluent.name] = replace(fluent, values=values)


def _range(part: Expression, name: str) -> tuple[float, float]:
    """Return the bounds that a comparison with a constant sets to a fluent."""
    if not isinstance(part, Node) or part.atoms != {name} or len(part.args) != 2:
        return -math.inf, math.inf
    mirrored = {"<=": ">=", "<": ">", ">=": "<=", ">": "<", "==": "=="}
    (first, second), relation = part.args, part.op
    if isinstance(second, Node):
        first, second, relation = second, first, mirrored.get(relation, "")
    if isinstance(second, Node | str) or first.op != "atom" or relation not in mirrored:
        return -math.inf, math.inf
    strictly = {"<": (0, math.ceil(second) - 1), ">": (math.floor(second) + 1, 0)}.get(
        relation, (second, second)
    )
    return (
        strictly[0] if relation in (">=", ">", "==") else -math.inf,
        strictly[1] if relation in ("<=", "<", "==") else math.inf,
    )


def _condition(made: Instance, tree: Any, grounder: Grounder, label: str) -> Expression:
    """Return a condition; raise InvalidModel if it cannot be read or is a number."""
    try:
        condition = grounder.ground(tree, {})
    except InvalidModel as error:
        raise InvalidModel(f"{label}: {error}") from None
    fluents = made.states | made.intermediate | made.actions
    numbers = {name for name, fluent in fluents.items() if fluent.values is None}
    if is_number(condition, numbers):
        raise InvalidModel(f"{label} is a number; must be true or false")
    return condition


def _terminate(made: Instance, domain: Any, grounder: Grounder) -> None:
    """Make the states of the termination block absorbing, without reward and without conditions."""
    trees = getattr(domain, "terminals", ()) or ()
    ended = make("or", *(_condition(made, tree, grounder, "termination") for tree in trees))
    for name in sorted(atoms_of(ended) - made.states.keys()):
        raise InvalidModel(f"termination reads {name}; must read state fluents")
    if not trees:
        return
    for name, law in made.next.items():
        made.next[name] = make("if", ended, atom(name), law)
    made.reward = make("if", ended, 0, made.reward)
    # Conditions on actions alone are kept as they are: they leave an action in every state.
    made.conditions = [
        (label, part if atoms_of(part) <= made.actions.keys() else make("or", ended, part))
        for label, condition in made.conditions
        for part in conjuncts(condition)
    ]


def _share_next_values(made: Instance) -> None:
    """Make next values that laws of other fluents read intermediate fluents."""
    laws = [*made.next.values(), *made.between.values()]
    read = set().union(*map(atoms_of, laws))
    renamed: dict[str, Expression] = {}
    for name, fluent in made.states.items():
        primed = ground_name(f"{fluent.family}'", fluent.objects)
        if primed in read:
            drawn = ground_name(f"next-{fluent.family}", fluent.objects)
            made.intermediate[drawn] = replace(fluent, name=drawn, family=f"next-{fluent.family}")
            made.between[drawn] = made.next[name]
            made.next[name] = renamed[primed] = atom(drawn)
    if renamed:
        made.next = {name: replaced(law, renamed) for name, law in made.next.items()}
        made.between = {name: replaced(law, renamed) for name, law in made.between.items()}
        made.reward = replaced(made.reward, renamed)


def families(fluents: Mapping[str, Fluent]) -> dict[str, list[Fluent]]:
    """Return fluents by their name in the domain."""
    by_family: dict[str, list[Fluent]] = {}
    for fluent in fluents.values():
        by_family.setdefault(fluent.family, []).append(fluent)
    return by_family


def conjuncts(condition: Expression) -> Sequence[Expression]:
    """Return the conjuncts of a condition."""
    if not isinstance(condition, bool | int | float | str) and condition.op == "and":
        return condition.args
    return (make("and", condition),)
