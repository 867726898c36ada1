"""Expressions of PRISM, parsed by precedence and evaluated at many assignments at once.

    ? :   =>   <=>   |   &   !   = !=   < <= >= >   + -   * /   unary -        (weakest first)

Values are truths, whole numbers and reals, which do not mix: `/` gives a real, a sum of whole
numbers is whole, and a type error (1 & x, true + 1) is refused with its line. The condition
c ? a : b evaluates each branch only where it is taken, so that it can guard a division. Sums and
disjunctions are flat lists, so that a guard of thousands of terms is not a deep tree.

Cost: one pass over the arrays per operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidModel, did_you_mean
from fmdp.interop.limits import LARGEST_WHOLE, exact
from fmdp.interop.prism.tokens import KEYWORDS, Token, refuse

Values: TypeAlias = NDArray[Any]
"""bool, int64 or float64; one value per assignment, or a single value."""

DEEPEST = 120
"""Deepest nesting of brackets, conditions and operands, within Python's recursion limit."""

_SIGNS = (("=>",), ("<=>",), ("|",), ("&",), ("=", "!="), ("<", "<=", ">", ">="), "+-", "*/")
_LEVELS = {sign: level for level, signs in enumerate(_SIGNS) for sign in signs}
_STRONGEST = len(_SIGNS)

_FUNCTIONS = ("min", "max", "floor", "ceil", "round", "pow", "mod", "log")
_COMPARISONS: dict[str, Callable[[Values, Values], Values]] = {
    "=": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True)
class Expression:
    """An operator with its operands, or a leaf: a name or a value."""

    operator: str
    """An operator's sign, "chain" for sums and products, a function's name, "name" or "value"."""
    parts: tuple[Expression, ...]
    line: int
    detail: Any = None
    """The name, the value, or the signs between the parts of a chain."""

    def leaves(self) -> Iterator[Expression]:
        """Yield the leaves that are names."""
        if self.operator == "name":
            yield self
        for part in self.parts:
            yield from part.leaves()

    def terms(self) -> list[Expression]:
        """Return the terms of a sum; any other expression is its own only term."""
        if self.operator != "chain" or not {*self.detail} <= {"+", "-"}:
            return [self]
        signs = ("+", *self.detail)
        return [
            term if sign == "+" else Expression("-", (term,), term.line)
            for sign, part in zip(signs, self.parts, strict=True)
            for term in part.terms()
        ]


ONE = Expression("value", (), 0, 1)


def _joined(parts: list[Expression], signs: list[str], line: int) -> Expression:
    """Join operands of one level to one expression."""
    if signs[0] in "+-*/":
        return Expression("chain", tuple(parts), line, tuple(signs))
    if signs[0] in _COMPARISONS:
        if len(signs) > 1:
            refuse(line, f"a {signs[0]} b {signs[1]} c needs brackets")
        return Expression(signs[0], tuple(parts), line)
    if signs[0] == "=>":  # a => b => c is a => (b => c), which is !a | !b | c
        denied = [Expression("!", (part,), line) for part in parts[:-1]]
        return Expression("|", (*denied, parts[-1]), line)
    return Expression(signs[0], tuple(parts), line)


class Words:
    """A stream of tokens, and the parser of expressions."""

    def __init__(self, given: list[Token]) -> None:
        self._given = given
        self._place = 0
        self._depth = 0

    @property
    def next(self) -> Token:
        """The next token, which is not consumed."""
        return self._given[self._place]

    def take(self) -> Token:
        """Consume and return the next token."""
        token = self.next
        if token.kind != "end":
            self._place += 1
        return token

    def takes(self, *texts: str) -> Token | None:
        """Consume and return the next token if it is one of these, else return None."""
        if self.next.kind in ("sign", "name") and self.next.text in texts:
            return self.take()
        return None

    def need(self, text: str, after: str) -> Token:
        """Consume and return the next token, which must be this one."""
        token = self.takes(text)
        if token is None:
            refuse(self.next.line, f"{after} must be followed by {text}; got {self.next.text}")
        return token

    def name(self, what: str) -> Token:
        """Consume and return the next token, which must be a name that is not reserved."""
        token = self.take()
        if token.kind != "name" or token.text in KEYWORDS:
            refuse(token.line, f"{what} must be a name; got {token.text}")
        return token

    # ---- expressions, by precedence --------------------------------------------------------------

    def expression(self) -> Expression:
        """Parse an expression."""
        condition = self._binary(0)
        sign = self.takes("?")
        if sign is None:
            return condition
        with self._deeper():
            chosen = self.expression()
            self.need(":", "a ? b")
            return Expression("?", (condition, chosen, self.expression()), sign.line)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > DEEPEST:
            refuse(self.next.line, f"an expression is nested more than {DEEPEST} deep")
        yield
        self._depth -= 1

    def _binary(self, weakest: int) -> Expression:
        """Parse operands that are joined by operators of at least this level."""
        with self._deeper():
            left = self._prefix()
            while (level := self._level()) >= weakest:
                parts, signs, line = [left], [], self.next.line
                while self._level() == level:
                    signs.append(self.take().text)
                    parts.append(self._binary(level + 1))
                left = _joined(parts, signs, line)
            return left

    def _level(self) -> int:
        """Return the precedence of the next token, or -1 if it is no binary operator."""
        return _LEVELS.get(self.next.text, -1) if self.next.kind == "sign" else -1

    def _prefix(self) -> Expression:
        sign = self.takes("!", "-")
        if sign is None:
            return self._leaf()
        # ! x = 1 denies the comparison; - x * y is (- x) * y.
        operand = self._binary(_LEVELS["="] if sign.text == "!" else _STRONGEST)
        return Expression(sign.text, (operand,), sign.line)

    def _leaf(self) -> Expression:
        token = self.take()
        if token.text == "(":
            inner = self.expression()
            self.need(")", "an expression in brackets")
            return inner
        if token.kind == "number":
            whole = token.text.isdigit()
            if len(token.text) > 15 if whole else not math.isfinite(float(token.text)):
                most = "below 2^53" if whole else "finite"
                refuse(token.line, f"the number {quoted(token.text)} is too large; must be {most}")
            return Expression(
                "value", (), token.line, int(token.text) if whole else float(token.text)
            )
        if token.text in ("true", "false"):
            return Expression("value", (), token.line, token.text == "true")
        if token.kind == "name" and token.text in _FUNCTIONS and self.next.text == "(":
            return self._call(token)
        if token.kind == "name" and token.text == "func":
            self.need("(", "func")
            called = self.take()
            if called.text not in _FUNCTIONS:
                refuse(called.line, f"func({called.text}, ...) is no function that is read")
            self.need(",", f"func({called.text}")
            return self._arguments(called)
        if token.kind == "name" and token.text not in KEYWORDS:
            if self.next.text == "'":
                refuse(token.line, f"{token.text}' is read; only values before the step may be")
            return Expression("name", (), token.line, token.text)
        return refuse(token.line, f"{token.text} is no expression")

    def _call(self, function: Token) -> Expression:
        self.need("(", function.text)
        return self._arguments(function)

    def _arguments(self, function: Token) -> Expression:
        parts = [self.expression()]
        while self.takes(","):
            parts.append(self.expression())
        self.need(")", f"the arguments of {function.text}")
        wanted = {"min": (1, 1 << 20), "max": (1, 1 << 20), "pow": (2, 2), "mod": (2, 2)}
        least, most = wanted.get(function.text, (2, 2) if function.text == "log" else (1, 1))
        if not least <= len(parts) <= most:
            refuse(function.line, f"{function.text} has {len(parts)} arguments; must have {least}")
        return Expression(function.text, tuple(parts), function.line)


# ---- evaluation ----------------------------------------------------------------------------------


def evaluate(expression: Expression, values: Mapping[str, Values]) -> Values:
    """Return the value of an expression; names are arrays of one length, or single values.

    Raises InvalidModel, with the line, for unknown names and type errors.
    """
    operator, line = expression.operator, expression.line
    if operator == "value":
        return np.asarray(expression.detail)
    if operator == "name":
        value = values.get(expression.detail)
        if value is None:
            known = did_you_mean(expression.detail, values)
            refuse(line, f"{expression.detail} is no variable, constant or formula{known}")
        return value
    if operator == "?":
        return _chosen(expression, values)
    parts = [evaluate(part, values) for part in expression.parts]
    if operator in ("&", "|", "<=>", "!"):
        return _logic(expression, parts)
    if operator in ("=", "!="):
        left, right = parts
        if (left.dtype.kind == "b") != (right.dtype.kind == "b"):
            refuse(line, f"{operator} compares a truth with a number")
        return _COMPARISONS[operator](left, right)
    for part in parts:
        if part.dtype.kind == "b":
            sign = "arithmetic" if operator == "chain" else operator
            refuse(line, f"{sign} needs numbers; got a truth")
    if operator in _COMPARISONS:
        return _COMPARISONS[operator](*parts)
    return _number(expression, parts)


def _chosen(expression: Expression, values: Mapping[str, Values]) -> Values:
    condition = evaluate(expression.parts[0], values)
    if condition.dtype.kind != "b":
        refuse(expression.line, "the condition of ? must be a truth; got a number")
    if condition.ndim == 0:
        return evaluate(expression.parts[1 if condition else 2], values)
    branches = []
    for part, mask in zip(expression.parts[1:], (condition, ~condition), strict=True):
        selected = {
            name: branch[mask] if branch.ndim else branch for name, branch in values.items()
        }
        branches.append((mask, evaluate(part, selected)))
    if len({branch.dtype.kind == "b" for _, branch in branches}) > 1:
        refuse(expression.line, "? : chooses between a truth and a number")
    made = np.empty(condition.shape, dtype=np.result_type(*(branch for _, branch in branches)))
    for mask, branch in branches:
        made[mask] = branch
    return made


def _logic(expression: Expression, parts: list[Values]) -> Values:
    operator = expression.operator
    if any(part.dtype.kind != "b" for part in parts):
        refuse(expression.line, f"{operator} needs truths; got a number")
    if operator == "!":
        return np.logical_not(parts[0])
    join = {"&": np.logical_and, "|": np.logical_or, "<=>": np.equal}[operator]
    made = parts[0]
    for part in parts[1:]:
        made = np.asarray(join(made, part))
    return made


def _number(expression: Expression, parts: list[Values]) -> Values:
    operator, line = expression.operator, expression.line
    with np.errstate(all="ignore"):  # infinities and NaN are refused below, with the line
        if operator == "chain":
            made = parts[0]
            for sign, part in zip(expression.detail, parts[1:], strict=True):
                made = _step(sign, made, part, line)
        elif operator == "-":
            made = -parts[0]
        elif operator in ("min", "max"):
            made = parts[0]
            for part in parts[1:]:
                made = np.asarray((np.minimum if operator == "min" else np.maximum)(made, part))
        elif operator in ("floor", "ceil", "round"):
            real = np.asarray(parts[0], dtype=np.float64)
            # PRISM rounds halves upwards.
            half = 0.5 if operator == "round" else 0.0
            made = np.asarray(np.ceil(real) if operator == "ceil" else np.floor(real + half))
            _refuse_wild(made, line)
            made = made.astype(np.int64)
        elif operator == "mod":
            if any(part.dtype.kind != "i" for part in parts):
                refuse(line, "mod needs whole numbers; got reals")
            if (parts[1] <= 0).any():
                refuse(line, "mod needs a second number above 0")
            made = np.mod(*parts)
        elif operator == "pow":
            made = np.power(*(np.asarray(part, dtype=np.float64) for part in parts))
            if all(part.dtype.kind == "i" for part in parts) and (parts[1] >= 0).all():
                _refuse_wild(made, line)
                made = made.astype(np.int64)
        else:
            real, base = (np.asarray(part, dtype=np.float64) for part in parts)
            made = np.log(real) / np.log(base)
    made = np.asarray(made)
    _refuse_wild(made, line)
    return made


def _step(sign: str, left: Values, right: Values, line: int) -> Values:
    if sign == "/":
        return np.asarray(np.true_divide(left, right))
    try:
        return exact({"+": np.add, "-": np.subtract, "*": np.multiply}[sign], left, right)
    except InvalidModel as error:
        refuse(line, str(error))


def _refuse_wild(made: Values, line: int) -> None:
    if not np.isfinite(made).all():
        refuse(line, "an expression is no finite number (a division by 0?)")
    if made.dtype.kind == "i" and (np.abs(made.astype(np.float64)) >= LARGEST_WHOLE).any():
        refuse(line, "a whole number is too large; must be below 2^53")


def guard_holds(guard: Expression, values: Mapping[str, Values], n: int) -> NDArray[np.bool_]:
    """Return where a guard holds, among n assignments."""
    made = evaluate(guard, values)
    if made.dtype.kind != "b":
        refuse(guard.line, "a guard must be true or false; got a number")
    return np.broadcast_to(made, (n,))


def names_in(expressions: Iterable[Expression], known: Collection[str]) -> set[str]:
    """Return the names that expressions use; refuse those that are not known."""
    names = set()
    for leaf in (leaf for expression in expressions for leaf in expression.leaves()):
        if leaf.detail not in known:
            hint = did_you_mean(leaf.detail, known)
            refuse(leaf.line, f"{leaf.detail} is no variable, constant or formula{hint}")
        names.add(leaf.detail)
    return names
