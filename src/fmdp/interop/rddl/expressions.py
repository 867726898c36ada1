"""Ground expressions: RDDL expressions with objects and non-fluents substituted.

An expression is a constant (a boolean, a number, or the name of an object) or a `Node`: an operator
and its arguments. `make` simplifies: it folds constants, short-circuits conjunctions and replaces a
decided `if` by its branch. The atoms (ground fluents) that remain are the possible parents.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

from fmdp.errors import InvalidModel
from fmdp.interop.limits import LARGEST_WHOLE, MOST_STEPS, refuse_whole

Constant = bool | int | float | str
"""Objects and values of enumerated types are strings."""

NONE: frozenset[str] = frozenset()


class Node:
    """An operator with its arguments, compared by value.

    `atoms` are the fluents in it; `random` is whether it contains a draw; `size` is the number of
    its parts, repeated ones included.
    """

    __slots__ = ("_hash", "args", "atoms", "op", "random", "size")

    def __init__(self, op: str, args: tuple[Any, ...]) -> None:
        self.op = op
        self.args = args
        self.atoms: frozenset[str] = (
            frozenset(args)
            if op == "atom"
            else NONE.union(*(arg.atoms for arg in args if isinstance(arg, Node)))
        )
        self.random: bool = op in ("bernoulli", "discrete", "unnormalised") or any(
            isinstance(arg, Node) and arg.random for arg in args
        )
        self.size: int = 1 + sum(arg.size if isinstance(arg, Node) else 1 for arg in args)
        if self.size > MOST_STEPS:
            raise InvalidModel(f"an expression has more than {MOST_STEPS} parts")
        self._hash = hash((op, args))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Node)
            and self._hash == other._hash
            and self.op == other.op
            and self.args == other.args
        )


Expression = Constant | Node


def atoms_of(expression: Expression) -> frozenset[str]:
    return expression.atoms if isinstance(expression, Node) else NONE


def is_random(expression: Expression) -> bool:
    return isinstance(expression, Node) and expression.random


def atom(name: str) -> Node:
    return Node("atom", (name,))


def _truth(value: Constant) -> bool:
    if isinstance(value, str):
        raise InvalidModel(f"{value} must be true or false")
    return bool(value)


def _number(value: Constant) -> int | float:
    if isinstance(value, str):
        raise InvalidModel(f"{value} must be a number")
    return int(value) if isinstance(value, bool) else value


def whole(value: int | float) -> int | float:
    """Return the value; raise InvalidModel if it is an integer of more than 53 bits."""
    if isinstance(value, int) and abs(value) >= LARGEST_WHOLE:
        refuse_whole()
    return value


def _power(base: int | float, exponent: int | float) -> int | float:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        exponent = min(exponent, 53)  # larger ones are refused, and would take long to compute
    result: int | float | complex = pow(base, exponent)
    return math.nan if isinstance(result, complex) else result


def _folded(
    operation: Callable[[Any, Any], Any], numbers: Iterable[int | float], first: int
) -> int | float:
    """Combine numbers from left to right."""
    result: int | float = first
    for number in numbers:
        result = whole(operation(result, number))
    return result


def _divided(a: Constant, b: Constant) -> float:
    if _number(b) == 0:
        return math.nan  # reported where it is used, with its row
    return _number(a) / _number(b)


UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": abs,
    "sgn": lambda x: (x > 0) - (x < 0),
    "round": lambda x: round(x),
    "floor": math.floor,
    "ceil": math.ceil,
    "exp": math.exp,
    "ln": math.log,
    "sqrt": math.sqrt,
    "cos": math.cos,
    "sin": math.sin,
    "tan": math.tan,
    "tanh": math.tanh,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "div": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "fmod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "pow": _power,
    "log": lambda a, b: math.log(a) / math.log(b),
    "hypot": math.hypot,
}
RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b,
    "~=": lambda a, b: a != b,
    "<": lambda a, b: _number(a) < _number(b),
    "<=": lambda a, b: _number(a) <= _number(b),
    ">": lambda a, b: _number(a) > _number(b),
    ">=": lambda a, b: _number(a) >= _number(b),
}


def is_number(expression: Expression, fluents: Collection[str]) -> bool:
    """Return whether an expression has numbers as values; `fluents` are those that have."""
    if not isinstance(expression, Node):
        return isinstance(expression, int | float) and not isinstance(expression, bool)
    if expression.op == "if":
        return any(is_number(value, fluents) for value in expression.args[1:])
    if expression.op == "atom":
        return expression.args[0] in fluents
    return expression.op in ("+", "*", "/", *UNARY, *BINARY)


def applied(op: str, args: Iterable[Constant]) -> Constant:
    """Return the value of an operator on constants."""
    values = list(args)
    if op in RELATIONS:
        return RELATIONS[op](*values)
    if op == "not":
        return not _truth(values[0])
    if op == "and":
        return all(map(_truth, values))
    if op == "or":
        return any(map(_truth, values))
    if op == "iff":
        return _truth(values[0]) == _truth(values[1])
    if op == "if":
        return values[1] if _truth(values[0]) else values[2]
    if op == "/":
        return _divided(*values)
    numbers = list(map(_number, values))
    if op == "+":
        return _folded(operator.add, numbers, 0)
    if op == "*":
        return _folded(operator.mul, numbers, 1)
    if op in ("min", "max"):
        return (min if op == "min" else max)(numbers)
    try:
        result: int | float = (UNARY | BINARY)[op](*numbers)
    except (ArithmeticError, ValueError):
        return math.nan
    return whole(result)


def make(op: str, *args: Expression) -> Expression:
    """Return a simplified expression."""
    if op in ("and", "or"):
        return _logical(op, args)
    if op in ("+", "*"):
        return _arithmetic(op, args)
    if op == "if":
        condition, then, otherwise = args
        if not isinstance(condition, Node):
            return then if _truth(condition) else otherwise
        if then == otherwise and type(then) is type(otherwise):
            return then
        if condition.op == "not" and not condition.random:
            return Node("if", (condition.args[0], otherwise, then))
        return Node("if", args)
    if op == "not" and isinstance(args[0], Node) and args[0].op == "not":
        inner: Expression = args[0].args[0]
        return inner
    if not any(isinstance(arg, Node) for arg in args):
        return applied(op, args)  # type: ignore[arg-type]  # all of them constants
    return Node(op, args)


def _logical(op: str, args: Iterable[Expression]) -> Expression:
    settles = op == "or"  # the value that decides the result
    kept: list[Expression] = []
    seen: set[Expression] = set()
    for arg in args:
        if not isinstance(arg, Node):
            if _truth(arg) == settles:
                return settles
            continue
        for part in arg.args if arg.op == op else (arg,):
            # Equal draws are still two independent draws.
            if part not in seen or is_random(part):
                kept.append(part)
                seen.add(part)
    if not kept:
        return not settles
    return kept[0] if len(kept) == 1 else Node(op, tuple(kept))


def _arithmetic(op: str, args: Iterable[Expression]) -> Expression:
    constants: list[Constant] = []
    kept: list[Node] = []
    for arg in args:
        if not isinstance(arg, Node):
            constants.append(arg)
        elif arg.op == op:
            constants += [part for part in arg.args if not isinstance(part, Node)]
            kept += [part for part in arg.args if isinstance(part, Node)]
        else:
            kept.append(arg)
    neutral = 0 if op == "+" else 1
    folded = applied(op, constants) if constants else neutral
    if op == "*" and folded == 0:
        return 0
    if not kept:
        return folded
    if folded == neutral:
        return kept[0] if len(kept) == 1 else Node(op, tuple(kept))
    return Node(op, (folded, *kept))


def replaced(expression: Expression, known: dict[str, Expression]) -> Expression:
    """Return the expression with some atoms replaced by expressions."""
    memory: dict[Node, Expression] = {}

    def walk(node: Any) -> Any:
        if not isinstance(node, Node) or not (node.atoms & known.keys()):
            return node
        if node.op == "atom":
            return known[node.args[0]]
        rebuilt = memory.get(node)
        if rebuilt is None:
            parts = tuple(map(walk, node.args))
            rebuilt = Node(node.op, parts) if node.op in DRAWS else make(node.op, *parts)
            memory[node] = rebuilt
        return rebuilt

    result: Expression = walk(expression)
    return result


DRAWS = ("bernoulli", "discrete", "unnormalised")
"""bernoulli(p); discrete and unnormalised (values, p, p, ...) with a tuple of constant values."""
