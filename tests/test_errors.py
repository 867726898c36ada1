"""Errors: one line each, catchable as the built-in kind, and whole after pickling."""

from __future__ import annotations

import pickle

import pytest

from fmdp.errors import (
    FileProblem,
    FmdpError,
    InvalidModel,
    InvalidParameter,
    TooLarge,
    UnknownName,
    did_you_mean,
)


@pytest.mark.parametrize(
    ("kind", "builtin"),
    [
        (InvalidModel, ValueError),
        (InvalidParameter, ValueError),
        (UnknownName, LookupError),
        (FileProblem, OSError),
    ],
)
def test_each_error_is_also_of_the_built_in_kind(
    kind: type[FmdpError], builtin: type[Exception]
) -> None:
    error = kind("what, where")
    assert isinstance(error, FmdpError)
    assert isinstance(error, builtin)
    assert str(error) == "what, where"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == "what, where"


def test_a_message_is_one_line() -> None:
    assert str(InvalidModel("a\nb\r\nc")) == "a b c"


def test_too_large_keeps_its_numbers_when_pickled() -> None:
    error = pickle.loads(pickle.dumps(TooLarge("too large", 2**70, 8)))
    assert str(error) == "too large"
    assert (error.needed_bytes, error.limit_bytes) == (2**70, 8)


def test_did_you_mean_suggests_only_what_is_near() -> None:
    known = ["circle", "three-leg", "Star"]
    assert did_you_mean("cirlce", known) == '; did you mean "circle"?'
    assert did_you_mean("STAR", known) == '; did you mean "Star"?'
    assert did_you_mean("riverswim", known) == ""
    assert did_you_mean("x", []) == ""
