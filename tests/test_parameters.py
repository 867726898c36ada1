"""One declaration of a parameter: text to value, value to text, and one form of refusal."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp._base.parameters import (
    REQUIRED,
    Bytes,
    Choice,
    Edges,
    Integer,
    Number,
    Numbers,
    Parameter,
    canonical,
    number_text,
    resolve,
    split_assignments,
)
from fmdp.errors import InvalidParameter, UnknownName

STEPS = Integer("steps", 10, "how many", low=1)
SEED = Integer("seed", 0, "seed", low=0, high=9)
RHO = Number("rho", 0.1, "failure probability", low=0.0, high=1.0, low_open=True, high_open=True)
FREE = Number("x", 0.0, "any number")
MOST = Number("y", 0.0, "bounded above", high=2.0)
ROOM = Bytes("room", None, "bytes", low=1)
LENGTH = Integer("length", None, "length of an episode", low=1)
BUDGET = Numbers("budget", REQUIRED, "one, or one for each factor", low=0.0)
SPLIT = Choice("split", "uniform", "how", choices=("uniform", "search"))
EDGES = Edges("edges", (), "graph")


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [
        (STEPS, "7", 7),
        (STEPS, "+7", 7),
        (ROOM, "2000000", 2_000_000),
        (ROOM, "2K", 2048),
        (ROOM, "0.5 MiB", 2**19),
        (ROOM, "none", None),
        (LENGTH, "none", None),
        (LENGTH, "3", 3),
        (RHO, ".5", 0.5),
        (RHO, "1e-3", 0.001),
        (FREE, "-2", -2.0),
        (BUDGET, "3", (3.0,)),
        (BUDGET, "1+2.5", (1.0, 2.5)),
        (BUDGET, "1,2.5", (1.0, 2.5)),
        (BUDGET, "1e+3+2", (1000.0, 2.0)),
        (SPLIT, "search", "search"),
        (EDGES, "", ()),
        (EDGES, "1>2+0>1", ((0, 1), (1, 2))),
    ],
)
def test_text_is_read_as_the_kind_says(parameter: Parameter, text: str, value: object) -> None:
    read = parameter.parse(text, "thing")
    assert read == value
    assert type(read) is type(value)
    assert parameter.parse(parameter.show(read), "thing") == value


@pytest.mark.parametrize(
    ("parameter", "text", "allowed"),
    [
        (STEPS, "0", "an integer >= 1"),
        (ROOM, "0", "an integer >= 1, or a text such as 500M or 2G"),
        (ROOM, "2X", "an integer >= 1, or a text such as 500M or 2G"),
        (ROOM, "-2K", "an integer >= 1, or a text such as 500M or 2G"),
        (ROOM, "9" * 400 + ".5", "an integer >= 1, or a text such as 500M or 2G"),
        (STEPS, "", "an integer >= 1"),
        (STEPS, "7.0", "an integer >= 1"),
        (STEPS, "1_000", "an integer >= 1"),
        (STEPS, "\u0663", "an integer >= 1"),
        (STEPS, "none", "an integer >= 1"),
        (STEPS, "9" * 6000, "an integer >= 1"),
        (SEED, "10", "an integer in [0, 9]"),
        (LENGTH, "x", "an integer >= 1 or none"),
        (RHO, "0", "a number in (0, 1)"),
        (RHO, "1", "a number in (0, 1)"),
        (RHO, "nan", "a number in (0, 1)"),
        (FREE, "inf", "a number"),
        (FREE, "1e999", "a number"),
        (MOST, "3", "a number <= 2"),
        (BUDGET, "1++2", "a number, or several joined by '+', each a number >= 0"),
        (BUDGET, "1+-2", "a number, or several joined by '+', each a number >= 0"),
        (EDGES, "0>1+0>1", "edges parent>child joined by '+'"),
        (EDGES, "1>1", "edges parent>child joined by '+'"),
        (EDGES, "0-1", "edges parent>child joined by '+'"),
    ],
)
def test_refusals_say_what_is_allowed_and_what_came(
    parameter: Parameter, text: str, allowed: str
) -> None:
    with pytest.raises(InvalidParameter) as refused:
        parameter.parse(text, "thing")
    message = str(refused.value)
    assert message.startswith(f"the '{parameter.name}' parameter of thing must be {allowed}")
    assert "; got '" in message
    assert len(message) < 250
    assert "\n" not in message


def test_values_of_python_and_toml_are_checked_like_text() -> None:
    assert STEPS.check(np.int64(4), "thing") == 4
    assert RHO.check(np.float64(0.25), "thing") == 0.25
    assert BUDGET.check(2, "thing") == (2.0,)
    assert BUDGET.check([1, 2], "thing") == (1.0, 2.0)
    assert BUDGET.check("1+2", "thing") == (1.0, 2.0)
    assert EDGES.check([[1, 2], [0, 1]], "thing") == ((0, 1), (1, 2))
    assert LENGTH.check(None, "thing") is None
    whole = FREE.check(3, "thing")
    assert (whole, type(whole)) == (3.0, float)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (STEPS, True),
        (STEPS, 2.0),
        (STEPS, None),
        (FREE, False),
        (FREE, math.nan),
        (FREE, math.inf),
        (FREE, [1.0]),
        (FREE, 10**400),
        (BUDGET, []),
        (BUDGET, ["a"]),
        (SPLIT, 3),
        (EDGES, 3),
        (EDGES, [1, 2]),
        (EDGES, [(-1, 2)]),
        (EDGES, [(0, -2)]),
        (EDGES, [(0.5, 2)]),
    ],
)
def test_values_of_the_wrong_kind_are_refused(parameter: Parameter, value: object) -> None:
    with pytest.raises(InvalidParameter, match=f"the '{parameter.name}' parameter of thing must"):
        parameter.check(value, "thing")


def test_a_near_miss_gets_a_suggestion() -> None:
    with pytest.raises(InvalidParameter, match="got 'serach'; did you mean \"search\""):
        SPLIT.parse("serach", "FSRL")
    with pytest.raises(UnknownName, match=r"no parameter 'rh' \(it takes rho, x\).*mean \"rho\""):
        resolve((RHO, FREE), {"rh": 1}, "FSRL")
    with pytest.raises(UnknownName, match="it takes none"):
        resolve((), {"rho": 1}, "FSRL")


def test_assignments_are_split_once_each() -> None:
    assert split_assignments(["a=1", " b = x=y "], "thing") == {"a": "1", "b": "x=y"}
    with pytest.raises(InvalidParameter, match="'a' parameter of thing must be given once"):
        split_assignments(["a=1", "a=2"], "thing")
    for wrong in ("a", "", "=1"):
        with pytest.raises(InvalidParameter, match="must be given as key=value"):
            split_assignments([wrong], "thing")


def test_resolve_fills_in_defaults_in_declaration_order() -> None:
    values = resolve((RHO, BUDGET, LENGTH), {"budget": "3", "rho": 0.2}, "FSRL")
    assert list(values.items()) == [("rho", 0.2), ("budget", (3.0,)), ("length", None)]
    assert canonical((RHO, BUDGET, LENGTH), values) == ("rho=0.2", "budget=3")
    with pytest.raises(InvalidParameter, match=r"'budget' parameter of FSRL .* must be given"):
        resolve((RHO, BUDGET), {}, "FSRL")


def test_defaults_in_text() -> None:
    texts = [p.default_text for p in (STEPS, RHO, LENGTH, BUDGET, SPLIT, FREE)]
    assert texts == ["10", "0.1", "none", "required", "uniform", "0"]


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_their_text(value: float) -> None:
    assert FREE.parse(number_text(value), "thing") == value
    listed = Numbers("v", REQUIRED, "any")
    assert listed.parse(listed.show((value, 1.0)), "thing") == (value, 1.0)


@given(st.dictionaries(st.sampled_from(["x", "seed"]), st.integers(0, 9)))
def test_canonical_text_reads_back(chosen: dict[str, Any]) -> None:
    parameters = (FREE, SEED)
    values = resolve(parameters, chosen, "thing")
    again = resolve(parameters, split_assignments(canonical(parameters, values), "thing"), "thing")
    assert again == values
