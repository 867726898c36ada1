"""From pyRDDLGym's lifted syntax tree to ground expressions.

Objects are put in for variables and non-fluents for their values while the tree is walked, and
conjunctions stop at the first part that is false: `exists_{?y : computer} [CONNECTED(?y, ?x) ^
running(?y)]` costs one look at CONNECTED a computer, and leaves an atom a neighbour. What this
does not know it refuses by name: continuous laws, matrices, functions of one's own.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fmdp.errors import InvalidModel
from fmdp.interop.rddl.expressions import (
    BINARY,
    UNARY,
    Constant,
    Expression,
    Node,
    atom,
    make,
)

Objects = Mapping[str, str]
"""Variable of the lifted text ("?x") -> object."""

AGGREGATIONS = ("sum", "prod", "avg", "max", "min", "forall", "exists")
RELATIONS = ("==", "~=", "<", "<=", ">", ">=")


def ground_name(name: str, objects: Sequence[str]) -> str:
    """The name of a fluent of the instance, as pyRDDLGym has it: running___c1, alive___x1__y2."""
    return name if not objects else f"{name}___{'__'.join(objects)}"


_MARK = re.compile(r"@?(values-\d+--)?")


def object_name(text: str) -> str:
    """An object or a value of an enumerated type: without its @, and without the type that
    `writing` puts before a value whose name another type has too."""
    return _MARK.sub("", text, count=1)


class Grounder:
    """Puts objects and non-fluents into expressions of one instance."""

    def __init__(
        self,
        types: Mapping[str, Sequence[str]],
        parameters: Mapping[str, Sequence[str]],
        non_fluents: Callable[[str, tuple[str, ...]], Constant | None],
    ) -> None:
        """`types` has the objects of every type, `parameters` the types of the parameters of every
        fluent, `non_fluents` the value of a non-fluent, None where it is a fluent."""
        self._types = types
        self._parameters = parameters
        self._non_fluents = non_fluents
        self._literals = {one for objects in types.values() for one in objects}

    def ground(self, tree: Any, objects: Objects) -> Expression:
        """The ground expression of a lifted one."""
        kind, name = tree.etype
        args = tree.args
        if kind == "constant":
            value: Constant = args
            return value
        if kind == "pvar":
            return self._fluent(args[0], args[1] or (), objects)
        if kind == "boolean":
            return self._logical(name, args, objects)
        if kind == "arithmetic":
            return self._arithmetic(name, [self.ground(one, objects) for one in args])
        if kind == "relational":
            return make(name, *(self.ground(one, objects) for one in args))
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
        if name.startswith("?"):
            return self._object(name, objects)
        if name.startswith("@"):
            return object_name(name)
        if name in self._literals and name not in self._parameters:
            return name
        if name not in self._parameters and name.rstrip("'") not in self._parameters:
            raise InvalidModel(f"{name} is no fluent and no object of the domain")
        choices: list[Expression] = [
            self._object(one, objects) if isinstance(one, str) else self.ground(one, objects)
            for one in given
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
        """The fluent of objects; where one is the value of a fluent, one branch for each object."""
        if not choices:
            known = self._non_fluents(name, so_far)
            return atom(ground_name(name, so_far)) if known is None else known
        first, rest = choices[0], choices[1:]
        if isinstance(first, str):
            return self._selected(name, needed[1:], rest, (*so_far, first))
        found: Expression | None = None
        for one in reversed(self._types[needed[0]]):
            own = self._selected(name, needed[1:], rest, (*so_far, one))
            found = own if found is None else make("if", make("==", first, one), own, found)
        if found is None:
            raise InvalidModel(f"{name}: type {needed[0]} has no objects")
        return found

    def _object(self, name: str, objects: Objects) -> str:
        if name.startswith("?"):
            if name not in objects:
                raise InvalidModel(f"{name} stands for no object here")
            return objects[name]
        return object_name(name)

    def _logical(self, op: str, args: Sequence[Any], objects: Objects) -> Expression:
        if op == "~":
            return make("not", self.ground(args[0], objects))
        if op in ("^", "&", "|"):
            return self._joined(
                "or" if op == "|" else "and",
                (lambda one=one: self.ground(one, objects) for one in args),
            )
        first = self.ground(args[0], objects)
        if op == "=>":
            if first is False:
                return True
            return make("or", make("not", first), self.ground(args[1], objects))
        return make("iff", first, self.ground(args[1], objects))

    @staticmethod
    def _joined(op: str, parts: Any) -> Expression:
        """A conjunction or disjunction whose parts are made one by one, until one decides it."""
        kept = []
        for part in parts:
            made = part()
            if not isinstance(made, Node) and bool(made) == (op == "or"):
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
        bound = self._assignments(variables)
        if op in ("forall", "exists"):
            parts = (lambda one=one: self.ground(inner, {**objects, **one}) for one in bound)
            return self._joined("and" if op == "forall" else "or", parts)
        values = [self.ground(inner, {**objects, **one}) for one in bound]
        if op in ("min", "max"):
            return make(op, *values)
        total = make("*" if op == "prod" else "+", *values)
        return self._arithmetic("/", [total, len(values)]) if op == "avg" else total

    def _assignments(self, variables: Sequence[Any]) -> list[dict[str, str]]:
        names, types = zip(*(one[1] for one in variables), strict=True)
        for kind in types:
            if kind not in self._types:
                raise InvalidModel(f"{kind} is no type of the domain")
        found = itertools.product(*(self._types[kind] for kind in types))
        return [dict(zip(names, one, strict=True)) for one in found]

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
            told = (
                self._object(value, objects)
                if isinstance(value, str)
                else self.ground(value, objects)
            )
            cases.append((told, self.ground(case[1], objects)))
        if otherwise is None:
            if not cases:
                raise InvalidModel("a switch has no cases")
            otherwise = cases.pop()[1]  # all values have a case, or the simulator refuses it too
        for told, then in reversed(cases):
            otherwise = make("if", make("==", chosen, told), then, otherwise)
        return otherwise

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
            values = tuple(object_name(case[0]) for _, case in args[1:])
            chances = [self.ground(case[1], objects) for _, case in args[1:]]
            return Node(kind, (values, *chances))
        if law in ("Discrete(p)", "UnnormDiscrete(p)"):
            *variables, (inner,) = args
            bound = self._assignments(variables)
            if len(variables) != 1:
                raise InvalidModel(f"{law} over several variables is not read")
            values = tuple(next(iter(one.values())) for one in bound)
            return Node(kind, (values, *(self.ground(inner, {**objects, **one}) for one in bound)))
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
        return make(name, *(self.ground(one, objects) for one in args))
