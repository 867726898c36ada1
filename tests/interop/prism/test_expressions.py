"""Expressions of PRISM, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fmdp.errors import InvalidModel
from fmdp.interop.prism.expressions import DEEPEST, Expression, Words, evaluate
from fmdp.interop.prism.tokens import tokens

X = {"x": np.array([0, 1, 2, 3]), "b": np.array([True, True, False, False]), "n": np.array(5)}


def read(text: str) -> Expression:
    words = Words(tokens(text))
    found = words.expression()
    assert words.next.kind == "end", words.next
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1+2*3", 7),
        ("(1+2)*3", 9),
        ("7-2-1", 4),
        ("8/2/2", 2.0),
        ("2/4", 0.5),  # of whole numbers too
        ("-2*3", -6),
        ("- -2", 2),
        ("1-fail", 0.75),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("2.", 2.0),
        ("min(3,1,2)", 1),
        ("max(3,1,2.5)", 3.0),
        ("func(min, 3, 1)", 1),
        ("floor(2.7)", 2),
        ("ceil(2.1)", 3),
        ("round(2.5)", 3),
        ("floor(-0.5)", -1),
        ("pow(2,10)", 1024),
        ("pow(2,-1)", 0.5),
        ("mod(7,3)", 1),
        ("mod(-1,3)", 2),
        ("log(8,2)", 3.0),
        ("true ? 1 : 2", 1),
        ("false ? 1 : true ? 2 : 3", 2),
        ("1<2 & 2<1 | true", True),
        ("true | false & false", True),
        ("!1=2", True),  # ! is weaker than =
        ("!true & false", False),
        ("false => false", True),
        ("true => false => false", True),
        ("true <=> false", False),
        ("1<2 = true", True),
        ("2>=2", True),
        ("2!=2", False),
    ],
)
def test_values_by_hand(text: str, value: object) -> None:
    made = evaluate(read(text), {"fail": np.array(0.25)})
    assert made.item() == pytest.approx(value, abs=1e-15)
    assert type(made.item()) is type(value)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("x", [0, 1, 2, 3]),
        ("x>=1 & x<=2", [False, True, True, False]),
        ("b ? x : n", [0, 1, 5, 5]),
        ("x/n", [0.0, 0.2, 0.4, 0.6]),
        ("!b | x=0", [True, False, True, True]),
        ("x>0 ? 6/x : 0", [0.0, 6.0, 3.0, 2.0]),  # divides only where x is not 0
        ("x>0 ? mod(6,x) : 7", [7, 0, 0, 0]),
        ("b <=> x<2", [True, True, True, True]),
    ],
)
def test_at_many_places_at_once(text: str, values: list[object]) -> None:
    assert evaluate(read(text), X).tolist() == values


def test_long_sums_and_disjunctions_are_no_deep_trees() -> None:
    assert evaluate(read("+".join(["1"] * 20_000)), {}).item() == 20_000
    assert evaluate(read("|".join(["x=9"] * 5_000 + ["x=2"])), X).tolist() == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1 & true", "& needs truths; got a number"),
        ("true + 1", "needs numbers; got a truth"),
        ("b < true", "< needs numbers"),
        ("b = 1", "= compares a truth with a number"),
        ("1 ? 2 : 3", "the condition of ?"),
        ("b ? 1 : true", "between a truth and a number"),
        ("1/x", "no finite number (a division by 0?)"),
        ("mod(1,x)", "a second number above 0"),
        ("mod(1.5,2)", "needs whole numbers"),
        ("log(0,2)", "no finite number"),
        ("pow(10,400)", "no finite number"),
        ("pow(10,17)", "too large; must be below 2^53"),
        ("999999999999999*999999999999999", "too large; must be below 2^53"),
        ("12345678901234567", "too large; must be below 2^53"),
        ("1<x<2", "a < b < c needs brackets"),
        ("x' + 1", "x' is read; only values before the step may be"),
        ("pow(1)", "pow has 1 arguments; must have 2"),
        ("y+1", "y is no variable, constant or formula"),
        ("1+", "the end of the file is no expression"),
        ("module", "module is no expression"),
        ("(1", "must be followed by )"),
        ("1 # 2", "'#' is no character of a PRISM model"),
        ("(" * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1), "nested more than"),
        ("!" * (DEEPEST + 1) + "true", "nested more than"),
        ("true?" * (DEEPEST + 1) + "1", "nested more than"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_line(text: str, words: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        evaluate(read("\n\n" + text), X)
    assert words in str(caught.value)
    assert str(caught.value).startswith("line 3: ")


def test_the_terms_of_a_sum() -> None:
    terms = read("x - (n + 2*x) - 1").terms()
    values = [evaluate(term, X) + 0 * X["x"] for term in terms]
    assert [own.tolist() for own in values] == [[0, 1, 2, 3], [-5] * 4, [0, -2, -4, -6], [-1] * 4]
