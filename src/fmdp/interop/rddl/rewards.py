"""Decomposition of the reward into factors of small scope.

Sums are split, and so are products of a sum with a constant. Products and branches that contain a
sum are distributed over it if their table would be large: if (c) then a + b else d is
(if (c) then a else 0) + (if (c) then b else 0) + (if (c) then 0 else d). Terms of one scope are one
factor. A reward that is random or depends on the next state is replaced by its expectation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fmdp.interop.rddl.expressions import Expression, Node, is_random, make
from fmdp.interop.rddl.variables import Array, Variable
from fmdp.interop.rddl.world import World, pruned

SMALL = 1 << 10
"""Tables with at most this many rows are not split."""


def factors(world: World) -> list[tuple[list[Variable], Array]]:
    """Return the scope and the means of every reward factor."""
    by_scope: dict[tuple[str, ...], tuple[list[Variable], Array]] = {}
    for term in terms(world, world.reward):
        scope, means = pruned(*world.mean(term, "a term of the reward"), 0)
        key = tuple(v.name for v in scope)
        old = by_scope.get(key)
        by_scope[key] = (scope, means if old is None else old[1] + means)
    constant = by_scope.pop((), None)
    kept = [factor for factor in by_scope.values() if np.any(factor[1] != 0)]
    if constant is not None and np.any(constant[1] != 0):
        # Add the constant to the first factor, if there is one.
        if kept:
            scope, means = kept[0]
            kept[0] = (scope, means + constant[1])
        else:
            kept.append(constant)
    return kept


def terms(world: World, expression: Expression) -> Iterator[Expression]:
    """Yield terms whose sum is the expression."""
    if not isinstance(expression, Node):
        yield expression
        return
    if expression.op == "+":
        for term in expression.args:
            yield from terms(world, term)
        return
    if expression.op == "*":
        constants = [term for term in expression.args if not isinstance(term, Node)]
        others = [term for term in expression.args if isinstance(term, Node)]
        if len(others) == 1:
            for term in terms(world, others[0]):
                yield make("*", *constants, term)
            return
        yield from _distributed(world, expression, constants, others)
        return
    if expression.op == "/" and not isinstance(expression.args[1], Node):
        for term in terms(world, expression.args[0]):
            yield (
                Node("/", (term, expression.args[1]))
                if isinstance(term, Node)
                else make("/", term, expression.args[1])
            )
        return
    if expression.op == "if" and _is_large(world, expression) and not is_random(expression.args[0]):
        condition, then, otherwise = expression.args
        for term in terms(world, then):
            yield make("if", condition, term, 0)
        for term in terms(world, otherwise):
            yield make("if", condition, 0, term)
        return
    yield expression


def _distributed(
    world: World, product: Node, constants: list[Expression], others: list[Node]
) -> Iterator[Expression]:
    """Distribute a large product over its first sum.

    A random product is not split, because all terms would have to share the same draw.
    """
    place = next((i for i, factor in enumerate(others) if factor.op == "+"), None)
    if place is None or not _is_large(world, product) or any(map(is_random, others)):
        yield product
        return
    rest = others[:place] + others[place + 1 :]
    for term in others[place].args:
        yield from terms(world, make("*", *constants, *rest, term))


def _is_large(world: World, expression: Expression) -> bool:
    return math.prod(v.size for v in world.scope([expression])) > SMALL
