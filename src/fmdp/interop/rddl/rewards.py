"""The reward as a sum of factors of small scope.

Sums are taken apart, and so are products of a sum with a constant; products and branches that hold
a sum are distributed over it where their table would be large: if (c) then a + b else d is
(if (c) then a else 0) + (if (c) then b else 0) + (if (c) then 0 else d). Terms of one scope are one
factor. A reward that depends on the next state, or is drawn, is kept as its expectation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fmdp.interop.rddl.expressions import Expression, Node, is_random, make
from fmdp.interop.rddl.variables import Array, Variable
from fmdp.interop.rddl.world import World, pruned

SMALL = 1 << 10
"""Rows of a table that is not worth being taken apart."""


def factors(world: World) -> list[tuple[list[Variable], Array]]:
    """The scope and the means of every reward factor."""
    found: dict[tuple[str, ...], tuple[list[Variable], Array]] = {}
    for term in terms(world, world.reward):
        scope, means = pruned(*world.mean(term, "a term of the reward"), 0)
        key = tuple(one.name for one in scope)
        old = found.get(key)
        found[key] = (scope, means if old is None else old[1] + means)
    constant = found.pop((), None)
    kept = [one for one in found.values() if np.any(one[1] != 0)]
    if constant is not None and np.any(constant[1] != 0):
        # A constant is part of any factor; without one it is a factor of its own.
        if kept:
            scope, means = kept[0]
            kept[0] = (scope, means + constant[1])
        else:
            kept.append(constant)
    return kept


def terms(world: World, expression: Expression) -> Iterator[Expression]:
    """Expressions whose sum is the expression."""
    if not isinstance(expression, Node):
        yield expression
        return
    if expression.op == "+":
        for one in expression.args:
            yield from terms(world, one)
        return
    if expression.op == "*":
        constants = [one for one in expression.args if not isinstance(one, Node)]
        others = [one for one in expression.args if isinstance(one, Node)]
        if len(others) == 1:
            for one in terms(world, others[0]):
                yield make("*", *constants, one)
            return
        yield from _distributed(world, expression, constants, others)
        return
    if expression.op == "/" and not isinstance(expression.args[1], Node):
        for one in terms(world, expression.args[0]):
            yield (
                Node("/", (one, expression.args[1]))
                if isinstance(one, Node)
                else make("/", one, expression.args[1])
            )
        return
    if expression.op == "if" and _is_large(world, expression) and not is_random(expression.args[0]):
        condition, then, otherwise = expression.args
        for one in terms(world, then):
            yield make("if", condition, one, 0)
        for one in terms(world, otherwise):
            yield make("if", condition, 0, one)
        return
    yield expression


def _distributed(
    world: World, product: Node, constants: list[Expression], others: list[Node]
) -> Iterator[Expression]:
    """A product over the first sum in it, if it is large; a drawn sum is the same draw in all its
    terms, so only what is not drawn is taken apart."""
    place = next((i for i, one in enumerate(others) if one.op == "+"), None)
    if place is None or not _is_large(world, product) or any(map(is_random, others)):
        yield product
        return
    rest = others[:place] + others[place + 1 :]
    for one in others[place].args:
        yield from terms(world, make("*", *constants, *rest, one))


def _is_large(world: World, expression: Expression) -> bool:
    return math.prod(one.size for one in world.scope([expression])) > SMALL
