"""Evaluation of ground expressions for all values of their variables at once.

Arrays have one axis per variable of a `Frame`, of length 1 if the expression does not depend on it,
and broadcasting replaces enumeration. A law is a dictionary from values to arrays of probabilities.
The draws in an expression are independent, so an operator on laws is a convolution:
`exists_{?x} Bernoulli(...)` costs two numbers per part, a sum of n draws n + 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.interop.limits import exact
from fmdp.interop.rddl.expressions import Constant, Expression, Node, applied, is_random
from fmdp.interop.rddl.variables import Array, Frame

Law = dict[Any, Array]
"""Value (coded as in the frame) -> probability."""

SLACK = 1e-9
"""Tolerance for sums of probabilities, as in a model file."""

_SUM_SLACK = 1e-6
"""Tolerance for the probabilities of a Discrete, which are written with few digits."""

MOST_VALUES = 4096
"""Most values of one law."""

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


def _defined(operation: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Return a division that gives NaN for a divisor of 0, also for integers."""
    return lambda a, b: (
        operation(a, b) if b.all() else np.where(b == 0, np.nan, operation(a, np.where(b, b, 1)))
    )


def _power(base: Array, exponent: Array) -> Array:
    if exponent.dtype.kind == "i" and (exponent < 0).any():
        base = base.astype(np.float64)
    return exact(np.power, base, exponent)


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "div": _defined(np.floor_divide),
    "mod": _defined(np.mod),
    "fmod": _defined(np.mod),
    "pow": _power,
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
    """Values and laws of expressions over one frame; common subexpressions are cached."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self._ones: Array = np.ones((1,) * len(frame.shape))
        self._values: dict[Node, Array] = {}

    def value(self, expression: Expression) -> Array:
        """Return the value of an expression without draws."""
        if not isinstance(expression, Node):
            return np.array(self.frame.coded(expression)).reshape((1,) * len(self.frame.shape))
        array = self._values.get(expression)
        if array is None:
            with np.errstate(all="ignore"):  # NaN is reported later, with its row
                array = self._evaluated(expression)
            self._values[expression] = array
        return array

    def _evaluated(self, node: Node) -> Array:
        if node.op == "atom":
            return self.frame.array(node.args[0])
        args = [self.value(arg) for arg in node.args]
        if node.op in _RELATIONS:
            return _RELATIONS[node.op](*args)
        if node.op in ("not", "and", "or", "iff"):
            truths = [array.astype(np.bool_) for array in args]
            if node.op == "not":
                return ~truths[0]
            if node.op == "iff":
                equal: Array = truths[0] == truths[1]
                return equal
            return _folded(np.logical_and if node.op == "and" else np.logical_or, truths)
        if node.op == "if":
            return np.where(args[0].astype(np.bool_), args[1], args[2])
        numbers = [array.astype(np.int64) if array.dtype.kind == "b" else array for array in args]
        if node.op == "+":
            return _folded(lambda a, b: exact(np.add, a, b), numbers)
        if node.op == "*":
            return _folded(lambda a, b: exact(np.multiply, a, b), numbers)
        if node.op in ("min", "max"):
            return _folded(_BINARY[node.op], numbers)
        if node.op == "/":
            return np.true_divide(*numbers)
        if node.op in _UNARY:
            return _UNARY[node.op](numbers[0])
        return _BINARY[node.op](*numbers)

    def law(self, expression: Expression, where: Array | None = None) -> Law:
        """Return the probabilities of the values of an expression.

        Rows outside `where` belong to a branch that is not taken and need not make sense.
        """
        if not isinstance(expression, Node) or not expression.random:
            values = self.value(expression)
            distinct = np.unique(values).tolist()  # what is not finite is undefined
            return {
                value: (values == value) * self._ones for value in distinct if np.isfinite(value)
            }
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
            law = self.law(node.args[0], where)
            for arg in node.args[1:]:
                law = _combined(node.op, [law, self.law(arg, where)])
            return law
        return _combined(node.op, [self.law(arg, where) for arg in node.args])

    def support(self, expression: Expression) -> list[Any]:
        """Return the values (coded as in the frame) that an expression takes in any row."""
        if not is_random(expression):
            values = np.unique(self.value(expression))
            return [value for value in values.tolist() if np.isfinite(value)]
        return [value for value, chance in self.law(expression).items() if (chance > 0).any()]

    def mean(self, expression: Expression) -> Array:
        """Return the expectation of a numeric expression."""
        if not is_random(expression):
            return self.value(expression).astype(np.float64) * self._ones
        total: Array = 0.0 * self._ones
        for value, chance in self.law(expression).items():
            total = total + float(value) * chance
        return total

    def _chance(self, expression: Expression, what: str, where: Array) -> Array:
        if is_random(expression):
            raise InvalidModel(f"{what} has a probability that is drawn itself; must be a number")
        chance = self.value(expression).astype(np.float64) * self._ones
        wrong = ~((chance >= -SLACK) & (chance <= 1 + SLACK))
        if (wrong & where).any():
            rows = wrong & where
            first = np.broadcast_to(chance, rows.shape)[rows][0]
            raise InvalidModel(
                f"{what} has the probability {first:g}{self._where_text(rows)}; must be in [0, 1]"
            )
        return np.where(wrong, 0.0, np.clip(chance, 0.0, 1.0))

    def _where_text(self, wrong: Array) -> str:
        """Return " where running___c1=false" for the first row in `wrong`."""
        if not self.frame.variables:
            return ""
        place = [axis[0] for axis in np.nonzero(wrong)]
        assignment = ", ".join(
            f"{v.name}={v.values[index]}"
            for v, index, size in zip(self.frame.variables, place, wrong.shape, strict=True)
            if size > 1
        )
        return f" where {assignment}" if assignment else ""

    def _discrete(self, node: Node, where: Array) -> Law:
        values, *weights = node.args
        if node.op == "unnormalised":
            chances = [self.value(weight).astype(np.float64) * self._ones for weight in weights]
        else:
            chances = [self._chance(weight, "Discrete", where) for weight in weights]
        total = _folded(np.add, chances)
        wrong = ~(total > 0) if node.op == "unnormalised" else ~(np.abs(total - 1.0) <= _SUM_SLACK)
        if (wrong & where).any():
            raise InvalidModel(
                f"Discrete has probabilities that do not sum to 1{self._where_text(wrong & where)}"
            )
        law: Law = {}
        for value, chance in zip(values, chances, strict=True):
            key = self.frame.coded(value)
            part = np.where(wrong, 1.0 / len(values), chance / np.where(wrong, 1.0, total))
            law[key] = law[key] + part if key in law else part
        return law

    def _branched(self, node: Node, where: Array) -> Law:
        condition, then, otherwise = node.args
        taken = self._truth(condition, where)
        law: Law = {}
        for branch, weight in ((then, taken), (otherwise, 1.0 - taken)):
            for value, chance in self.law(branch, where & (weight > 0)).items():
                part = weight * chance
                law[value] = law[value] + part if value in law else part
        return law

    def truth(self, condition: Expression) -> Array:
        """Return the probability that a condition holds."""
        return self._truth(condition, self._ones.astype(np.bool_))

    def _truth(self, condition: Expression, where: Array) -> Array:
        if not is_random(condition):
            return self.value(condition).astype(np.bool_) * self._ones
        law = self.law(condition, where)
        return sum((chance for value, chance in law.items() if value), 0.0 * self._ones)

    def classes(self, expression: Expression) -> Array:
        """Return class numbers of rows, equal for rows that are alike by the text.

        Rows are alike if they take the same branches and the last branch reads the same values.
        """
        total = 0

        def walk(part: Expression) -> Array:
            nonlocal total
            if isinstance(part, Node) and part.op == "if" and not is_random(part.args[0]):
                condition = self.value(part.args[0]).astype(np.bool_)
                then, otherwise = walk(part.args[1]), walk(part.args[2])
                return np.where(condition, then, otherwise)
            index, count = self.frame.joint_index(part.atoms if isinstance(part, Node) else ())
            start, total = total, total + count
            return index + start

        return walk(expression)


def _folded(operator: Any, arrays: list[Array]) -> Array:
    result = arrays[0]
    for array in arrays[1:]:
        result = operator(result, array)
    return result


def _combined(op: str, laws: list[Law]) -> Law:
    """Return the law of an operator on independent values."""
    combined: list[tuple[tuple[Any, ...], Array]]
    if len(laws) == 1:
        combined = [((value,), chance) for value, chance in laws[0].items()]
    else:
        combined = [
            ((first, second), a * b)
            for first, a in laws[0].items()
            for second, b in laws[1].items()
        ]
    law: Law = {}
    for values, chance in combined:
        result: Constant = applied(op, values)
        law[result] = law[result] + chance if result in law else chance
    if len(law) > MOST_VALUES:
        raise InvalidModel(
            f"an expression has {len(law)} values by chance; at most {MOST_VALUES} are read"
        )
    return law
