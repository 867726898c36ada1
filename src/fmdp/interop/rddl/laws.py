"""The value, or the law, of a ground expression for all values of its variables at once.

Arrays have one axis a variable of a `Frame` and are as long along it as the expression depends on
it, so that broadcasting does what enumeration would. A law is a dictionary from values to arrays of
probabilities. Every draw in an expression is independent of the others, so an operator on laws is
a convolution: `exists_{?x} Bernoulli(...)` costs two numbers a part, a sum of n draws n + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.interop.rddl.expressions import (
    Constant,
    Expression,
    Node,
    applied,
    is_random,
)
from fmdp.interop.rddl.variables import Array, Frame

Law = dict[Any, Array]
"""Value (coded as in the frame) -> its probability."""

SLACK = 1e-9
"""By which probabilities may miss 1, as in a model file."""

_SUM_SLACK = 1e-6
"""By which those of a Discrete may: its numbers are written with few digits."""

MOST_VALUES = 4096
"""Of one law: a sum of draws has as many as its parts have sums."""

_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": np.abs,
    "sgn": np.sign,
    "round": np.round,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "ln": np.log,
    "sqrt": np.sqrt,
    "cos": np.cos,
    "sin": np.sin,
    "tan": np.tan,
    "tanh": np.tanh,
}
_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "div": np.floor_divide,
    "mod": np.mod,
    "fmod": np.mod,
    "pow": np.power,
    "log": lambda a, b: np.log(a) / np.log(b),
    "hypot": np.hypot,
    "min": np.minimum,
    "max": np.maximum,
}
_RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "==": np.equal,
    "~=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


class Evaluation:
    """Values and laws of expressions over one frame; common parts are evaluated once."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._ones: Array = np.ones((1,) * len(frame.shape))
        self._values: dict[Node, Array] = {}

    def value(self, expression: Expression) -> Array:
        """What an expression without draws is."""
        if not isinstance(expression, Node):
            return np.array(self.frame.coded(expression)).reshape((1,) * len(self.frame.shape))
        found = self._values.get(expression)
        if found is None:
            with np.errstate(all="ignore"):  # rows that are not numbers are told by their row
                found = self._evaluated(expression)
            self._values[expression] = found
        return found

    def _evaluated(self, node: Node) -> Array:
        if node.op == "atom":
            return self.frame.array(node.args[0])
        args = [self.value(one) for one in node.args]
        if node.op in _RELATIONS:
            return _RELATIONS[node.op](*args)
        if node.op in ("not", "and", "or", "iff"):
            truths = [one.astype(np.bool_) for one in args]
            if node.op == "not":
                return ~truths[0]
            if node.op == "iff":
                equal: Array = truths[0] == truths[1]
                return equal
            return _folded(np.logical_and if node.op == "and" else np.logical_or, truths)
        if node.op == "if":
            return np.where(args[0].astype(np.bool_), args[1], args[2])
        numbers = [one.astype(np.int64) if one.dtype.kind == "b" else one for one in args]
        if node.op == "+":
            return _folded(np.add, numbers)
        if node.op == "*":
            return _folded(np.multiply, numbers)
        if node.op in ("min", "max"):
            return _folded(_BINARY[node.op], numbers)
        if node.op == "/":
            return np.true_divide(*numbers)
        if node.op in _UNARY:
            return _UNARY[node.op](numbers[0])
        return _BINARY[node.op](*numbers)

    def law(self, expression: Expression, where: Array | None = None) -> Law:
        """The probabilities of the values that an expression may have.

        Rows for which `where` does not hold are in a branch that is not taken: what stands there
        need not make sense, and does not count.
        """
        if not isinstance(expression, Node) or not expression.random:
            values = self.value(expression)
            told = np.unique(values).tolist()
            return {one: (values == one) * self._ones for one in told if one == one}  # no NaN
        node = expression
        if where is None:
            where = self._ones.astype(np.bool_)
        if node.op == "bernoulli":
            chance = self._chance(node.args[0], "Bernoulli", where)
            return {False: 1.0 - chance, True: chance}
        if node.op in ("discrete", "unnormalised"):
            return self._discrete(node, where)
        if node.op == "if":
            return self._branched(node, where)
        if node.op in ("+", "*", "and", "or", "min", "max"):
            found = self.law(node.args[0], where)
            for one in node.args[1:]:
                found = _combined(node.op, [found, self.law(one, where)])
            return found
        return _combined(node.op, [self.law(one, where) for one in node.args])

    def mean(self, expression: Expression) -> Array:
        """The expectation of a numeric expression."""
        if not is_random(expression):
            return self.value(expression).astype(np.float64) * self._ones
        total: Array = 0.0 * self._ones
        for one, chance in self.law(expression).items():
            total = total + float(one) * chance
        return total

    def _chance(self, expression: Expression, what: str, where: Array) -> Array:
        if is_random(expression):
            raise InvalidModel(f"{what} has a probability that is drawn itself; must be a number")
        chance = self.value(expression).astype(np.float64) * self._ones
        wrong = ~((chance >= -SLACK) & (chance <= 1 + SLACK))
        if (wrong & where).any():
            counted = wrong & where
            first = np.broadcast_to(chance, counted.shape)[counted][0]
            raise InvalidModel(
                f"{what} has the probability {first:g}{self._told(counted)}; must be in [0, 1]"
            )
        return np.where(wrong, 0.0, np.clip(chance, 0.0, 1.0))

    def _told(self, wrong: Array) -> str:
        """ " where running___c1=false": the first assignment for which something holds."""
        place = [axis[0] for axis in np.nonzero(wrong)]
        told = ", ".join(
            f"{one.name}={one.values[index]}"
            for one, index, size in zip(self.frame.variables, place, wrong.shape, strict=True)
            if size > 1
        )
        return f" where {told}" if told else ""

    def _discrete(self, node: Node, where: Array) -> Law:
        values, *weights = node.args
        if node.op == "unnormalised":
            chances = [self.value(one).astype(np.float64) * self._ones for one in weights]
        else:
            chances = [self._chance(one, "Discrete", where) for one in weights]
        total = _folded(np.add, chances)
        wrong = ~(total > 0) if node.op == "unnormalised" else ~(np.abs(total - 1.0) <= _SUM_SLACK)
        if (wrong & where).any():
            raise InvalidModel(
                f"Discrete has probabilities that do not sum to 1{self._told(wrong & where)}"
            )
        found: Law = {}
        for one, chance in zip(values, chances, strict=True):
            key = self.frame.coded(one)
            part = np.where(wrong, 1.0 / len(values), chance / np.where(wrong, 1.0, total))
            found[key] = found[key] + part if key in found else part
        return found

    def _branched(self, node: Node, where: Array) -> Law:
        condition, then, otherwise = node.args
        taken = self._truth(condition, where)
        found: Law = {}
        for branch, weight in ((then, taken), (otherwise, 1.0 - taken)):
            for one, chance in self.law(branch, where & (weight > 0)).items():
                part = weight * chance
                found[one] = found[one] + part if one in found else part
        return found

    def truth(self, condition: Expression) -> Array:
        """The probability that a condition holds."""
        return self._truth(condition, self._ones.astype(np.bool_))

    def _truth(self, condition: Expression, where: Array) -> Array:
        if not is_random(condition):
            return self.value(condition).astype(np.bool_) * self._ones
        law = self.law(condition, where)
        return sum((chance for one, chance in law.items() if one), 0.0 * self._ones)

    def classes(self, expression: Expression) -> Array:
        """Rows that are alike by the text: those in which the same branches are taken, and what
        the last of them reads is the same. A number for each, equal for alike rows."""
        total = 0

        def walk(one: Expression) -> Array:
            nonlocal total
            if isinstance(one, Node) and one.op == "if" and not is_random(one.args[0]):
                condition = self.value(one.args[0]).astype(np.bool_)
                then, otherwise = walk(one.args[1]), walk(one.args[2])
                return np.where(condition, then, otherwise)
            index, count = self.frame.joint_index(one.atoms if isinstance(one, Node) else ())
            start, total = total, total + count
            return index + start

        return walk(expression)


def _folded(operator: Any, arrays: list[Array]) -> Array:
    found = arrays[0]
    for one in arrays[1:]:
        found = operator(found, one)
    return found


def _combined(op: str, laws: list[Law]) -> Law:
    """The law of an operator on independent values."""
    combined: list[tuple[tuple[Any, ...], Array]]
    if len(laws) == 1:
        combined = [((one,), chance) for one, chance in laws[0].items()]
    else:
        combined = [
            ((first, second), a * b)
            for first, a in laws[0].items()
            for second, b in laws[1].items()
        ]
    found: Law = {}
    for values, chance in combined:
        result: Constant = applied(op, values)
        found[result] = found[result] + chance if result in found else chance
    if len(found) > MOST_VALUES:
        raise InvalidModel(
            f"an expression has {len(found)} values by chance; at most {MOST_VALUES} are read"
        )
    return found
