"""Grounding of pyRDDLGym's lifted syntax tree.

Objects and the values of non-fluents are substituted while the tree is walked, and conjunctions
stop at the first false part: `exists_{?y : computer} [CONNECTED(?y, ?x) ^ running(?y)]` costs one
lookup of CONNECTED per computer and leaves one atom per neighbour. Unsupported features are refused
by name: continuous laws, matrices, external functions.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fmdp.errors import InvalidModel
from fmdp.interop.limits import MOST_STEPS
from fmdp.interop.rddl.expressions import (
    BINARY,
    UNARY,
    Constant,
    Expression,
    Node,
    atom,
    make,
    whole,
)

Objects = Mapping[str, str]
"""Variable of the lifted text ("?x") -> object."""

_STEPS_PER_PART = 4
"""Steps that a part counts for that is kept, whose memory outlives its evaluation."""

AGGREGATIONS = ("sum", "prod", "avg", "max", "min", "forall", "exists")
RELATIONS = ("==", "~=", "<", "<=", ">", ">=")


def ground_name(name: str, objects: Sequence[str]) -> str:
    """Return the name of a ground fluent as in pyRDDLGym: running___c1, alive___x1__y2."""
    return name if not objects else f"{name}___{'__'.join(objects)}"


_MARK = re.compile(r"@?(values-\d+--)?")


def object_name(text: str) -> str:
    """Return the name of an object or enumerated value without its @.

    Also removes the type that `writing` puts before names that several types have.
    """
    return _MARK.sub("", text, count=1)


def _operands(tree: Any, signs: str) -> Sequence[Any]:
    """Return the operands of an operator; a + b + c, which is parsed as (a + b) + c, has three."""
    if tree.etype[1] not in signs:
        return tree.args  # type: ignore[no-any-return]
    last: list[Any] = []
    inner = tree
    while inner.etype == tree.etype:
        last += reversed(inner.args[1:])
        inner = inner.args[0]
    return [inner, *reversed(last)]


class Grounder:
    """Substitutes objects and non-fluents in expressions of one instance."""

    def __init__(
        self,
        types: Mapping[str, Sequence[str]],
        parameters: Mapping[str, Sequence[str]],
        non_fluents: Callable[[str, tuple[str, ...]], Constant | None],
    ) -> None:
        """`types`: objects of every type; `parameters`: types of the parameters of every fluent;
        `non_fluents`: returns the value of a non-fluent, or None for a fluent."""
        self._types = types
        self._parameters = parameters
        self._non_fluents = non_fluents
        self._members = {kind: frozenset(objects) for kind, objects in types.items()}
        self._literals = frozenset().union(*self._members.values())
        self._steps_left = MOST_STEPS
        self._atoms: dict[str, Node] = {}

    def _spend(self, steps: int = 1) -> None:
        """Raise InvalidModel if all expressions together need too many steps."""
        self._steps_left -= steps
        if self._steps_left < 0:
            raise InvalidModel(
                f"the expressions have more than {MOST_STEPS} parts once objects are substituted"
            )

    def ground(self, tree: Any, objects: Objects) -> Expression:
        """Return the ground expression of a lifted one."""
        self._spend()
        kind, name = tree.etype
        args = tree.args
        if kind == "constant":
            value: Constant = args if isinstance(args, str) else whole(args)
            return value
        if kind == "pvar":
            return self._fluent(args[0], args[1] or (), objects)
        if kind == "boolean":
            return self._logical(name, _operands(tree, "^&|"), objects)
        if kind == "arithmetic":
            args = _operands(tree, "+*")
            return self._arithmetic(name, [self.ground(arg, objects) for arg in args])
        if kind == "relational":
            return make(name, *(self.ground(arg, objects) for arg in args))
        if kind == "aggregation":
            return self._aggregation(tree[0], args, objects)
        if kind == "control":
            return (self._if if name == "if" else self._switch)(args, objects)
        if kind == "randomvar":
            return self._draw(name, args, objects)
        if kind == "func":
            return self._function(name, args, objects)
        raise InvalidModel(f"{name} ({kind}) is not read: must be a discrete model")

    def _fluent(self, name: str, given: Sequence[Any], objects: Objects) -> Expression:
        if name.startswith(("?", "@")):
            return self._object(name, objects)
        if name in self._literals and name not in self._parameters:
            return name
        if name not in self._parameters and name.rstrip("'") not in self._parameters:
            raise InvalidModel(f"{name} is no fluent and no object of the domain")
        choices: list[Expression] = [
            self._object(arg, objects) if isinstance(arg, str) else self.ground(arg, objects)
            for arg in given
        ]
        needed = self._parameters[name.rstrip("'")]
        if len(choices) != len(needed):
            raise InvalidModel(f"{name} has {len(choices)} arguments; must be {len(needed)}")
        return self._selected(name, needed, choices, ())

    def _selected(
        self,
        name: str,
        needed: Sequence[str],
        choices: Sequence[Expression],
        so_far: tuple[str, ...],
    ) -> Expression:
        """Return the fluent of objects; one branch per object if that is a fluent's value."""
        if not choices:
            known = self._non_fluents(name, so_far)
            if known is not None:
                return known
            label = ground_name(name, so_far)
            if label not in self._atoms:
                self._atoms[label] = atom(label)
            return self._atoms[label]
        first, rest = choices[0], choices[1:]
        if isinstance(first, str):
            if first not in self._members[needed[0]]:
                raise InvalidModel(f"{name}: {first} is no object of type {needed[0]}")
            return self._selected(name, needed[1:], rest, (*so_far, first))
        branches: dict[Constant, Expression] = {
            object_: self._selected(name, needed[1:], rest, (*so_far, object_))
            for object_ in self._types[needed[0]]
        }
        if not branches:
            raise InvalidModel(f"{name}: type {needed[0]} has no objects")
        otherwise = branches[next(reversed(branches))]
        return _chosen(first, list(branches.items())[:-1], otherwise)

    def _object(self, name: str, objects: Objects) -> str:
        if name.startswith("?"):
            if name not in objects:
                raise InvalidModel(f"{name} stands for no object here")
            return objects[name]
        literal = object_name(name)
        if literal not in self._literals:
            raise InvalidModel(f"{name} is no object and no value of the domain")
        return literal

    def _logical(self, op: str, args: Sequence[Any], objects: Objects) -> Expression:
        if op == "~":
            return make("not", self.ground(args[0], objects))
        if op in ("^", "&", "|"):
            return self._joined(
                "or" if op == "|" else "and",
                (lambda arg=arg: self.ground(arg, objects) for arg in args),
            )
        first = self.ground(args[0], objects)
        if op == "=>":
            if first is False:
                return True
            return make("or", make("not", first), self.ground(args[1], objects))
        return make("iff", first, self.ground(args[1], objects))

    def _joined(self, op: str, parts: Any) -> Expression:
        """Return a conjunction or disjunction; parts are made until one of them decides it."""
        kept = []
        for part in parts:
            made = part()
            if isinstance(made, Node):
                self._spend(_STEPS_PER_PART)
            elif bool(made) == (op == "or"):
                return op == "or"
            kept.append(made)
        return make(op, *kept)

    @staticmethod
    def _arithmetic(op: str, args: Sequence[Expression]) -> Expression:
        if op == "-":
            return make("+", *args[:-1], make("*", -1, args[-1]))
        if op == "/" and not isinstance(args[1], Node) and not isinstance(args[1], str):
            if args[1] == 0 or not isinstance(args[0], Node):
                return make("/", *args)
            return Node("/", tuple(args))
        return make(op, *args)

    def _aggregation(self, op: str, args: Sequence[Any], objects: Objects) -> Expression:
        if op not in AGGREGATIONS:
            raise InvalidModel(f"{op}_ is not read; known are {', '.join(AGGREGATIONS)}")
        *variables, inner = args
        count, bound = self._assignments(variables)
        if op in ("forall", "exists"):
            parts = (
                lambda extra=extra: self.ground(inner, {**objects, **extra}) for extra in bound
            )
            return self._joined("and" if op == "forall" else "or", parts)
        self._spend(count)
        values = [self.ground(inner, {**objects, **extra}) for extra in bound]
        if op in ("min", "max"):
            return make(op, *values)
        total = make("*" if op == "prod" else "+", *values)
        return self._arithmetic("/", [total, len(values)]) if op == "avg" else total

    def _assignments(self, variables: Sequence[Any]) -> tuple[int, Iterator[dict[str, str]]]:
        """Return the number of assignments of objects to variables, and the assignments."""
        names, types = zip(*(v[1] for v in variables), strict=True)
        for kind in types:
            if kind not in self._types:
                raise InvalidModel(f"{kind} is no type of the domain")
        domains = [self._types[kind] for kind in types]
        products = itertools.product(*domains)
        made = (dict(zip(names, product, strict=True)) for product in products)
        return math.prod(map(len, domains)), made

    def _if(self, args: Sequence[Any], objects: Objects) -> Expression:
        condition = self.ground(args[0], objects)
        if not isinstance(condition, Node):
            return self.ground(args[1] if condition else args[2], objects)
        return make("if", condition, self.ground(args[1], objects), self.ground(args[2], objects))

    def _switch(self, args: Sequence[Any], objects: Objects) -> Expression:
        chosen = self.ground(args[0], objects)
        cases: list[tuple[Expression, Expression]] = []
        otherwise: Expression | None = None
        for kind, case in args[1:]:
            if kind == "default":
                otherwise = self.ground(case, objects)
                continue
            value = case[0]
            case_value = (
                self._object(value, objects)
                if isinstance(value, str)
                else self.ground(value, objects)
            )
            cases.append((case_value, self.ground(case[1], objects)))
        if otherwise is None:
            if not cases:
                raise InvalidModel("a switch has no cases")
            otherwise = cases.pop()[1]  # all values must have a case, as in the simulator
        return _chosen(chosen, cases, otherwise)

    def _draw(self, law: str, args: Sequence[Any], objects: Objects) -> Expression:
        if law in ("KronDelta", "DiracDelta"):
            return self.ground(args[0], objects)
        if law == "Bernoulli":
            chance = self.ground(args[0], objects)
            if not isinstance(chance, Node) and not isinstance(chance, str) and chance in (0, 1):
                return bool(chance)
            return Node("bernoulli", (chance,))
        kind = "unnormalised" if law.startswith("Unnorm") else "discrete"
        if law in ("Discrete", "UnnormDiscrete"):
            values = tuple(self._object(case[0], objects) for _, case in args[1:])
            chances = [self.ground(case[1], objects) for _, case in args[1:]]
            return Node(kind, (values, *chances))
        if law in ("Discrete(p)", "UnnormDiscrete(p)"):
            *variables, (inner,) = args
            if len(variables) != 1:
                raise InvalidModel(f"{law} over several variables is not read")
            bound = list(self._assignments(variables)[1])
            values = tuple(next(iter(extra.values())) for extra in bound)
            return Node(
                kind, (values, *(self.ground(inner, {**objects, **extra}) for extra in bound))
            )
        raise InvalidModel(
            f"the law {law} is not read; known are KronDelta, DiracDelta, Bernoulli, Discrete, "
            f"UnnormDiscrete"
        )

    def _function(self, name: str, args: Sequence[Any], objects: Objects) -> Expression:
        known = {**UNARY, **BINARY}
        wanted = 1 if name in UNARY else 2
        if name not in known or len(args) != wanted:
            raise InvalidModel(
                f"the function {name} of {len(args)} arguments is not read; known are "
                f"{', '.join(known)}"
            )
        return make(name, *(self.ground(arg, objects) for arg in args))


def _chosen(
    selector: Expression, cases: Sequence[tuple[Expression, Expression]], otherwise: Expression
) -> Expression:
    """Return the branch of the case that a selector is equal to.

    A selector that is drawn is drawn once: a Discrete becomes one Bernoulli per case, each given
    that none of the cases before it was drawn.
    """
    if not isinstance(selector, Node) or not selector.random:
        for value, branch in reversed(cases):
            otherwise = make("if", make("==", selector, value), branch, otherwise)
        return otherwise
    if selector.op == "if":
        condition, *parts = selector.args
        return make("if", condition, *(_chosen(part, cases, otherwise) for part in parts))
    if selector.op == "bernoulli":
        yes, no = (_chosen(value, cases, otherwise) for value in (True, False))
        return make("if", selector, yes, no)
    if selector.op not in ("discrete", "unnormalised"):
        raise InvalidModel(
            f"a choice by {selector.op} of random values is not read; must be by a Discrete"
        )
    values, *weights = selector.args
    *first, last = [_chosen(value, cases, otherwise) for value in values]
    for place, branch in reversed(list(enumerate(first))):
        chance = make("/", weights[place], make("+", *weights[place:]))
        last = make("if", Node("bernoulli", (chance,)), branch, last)
    return last
