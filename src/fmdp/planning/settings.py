"""The settings of every planner, each declared once: name, meaning, default, what is allowed.

The dataclasses of the planners check their fields with these declarations, and the registry hands
the same ones to the command line, sweep specs and `fmdp list`; so Python refuses what the command
line refuses, in the same words. A test compares the defaults of the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from fmdp.errors import InvalidParameter
from fmdp.parameters import (
    REQUIRED,
    Choice,
    Integer,
    Number,
    Numbers,
    Parameter,
    number_text,
)

DISCOUNT = 0.95


@dataclass(frozen=True)
class Basis(Choice):
    """The name of a family, or scopes: tuples of state variables, by number or by name."""

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or scopes of state variables"

    def _accept(self, value: Any) -> Any:
        if isinstance(value, str):
            return super()._accept(value)
        return tuple(tuple(_variable(v) for v in _items(scope)) for scope in _items(value))

    def _write(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        return "+".join("(" + " ".join(str(v) for v in scope) + ")" for scope in value)


@dataclass(frozen=True)
class Distributions(Parameter):
    """One row of numbers at least 0 for each state variable."""

    kind = "numbers"

    @property
    def allowed(self) -> str:
        return "rows of numbers >= 0, one row for each state variable"

    def _read(self, text: str) -> Any:
        raise ValueError

    def _accept(self, value: Any) -> tuple[tuple[float, ...], ...]:
        weight = Number(self.name, 0.0, "", low=0.0)
        return tuple(tuple(weight._accept(p) for p in _items(row)) for row in _items(value))

    def _write(self, value: Any) -> str:
        return "+".join(" ".join(number_text(p) for p in row) for row in value)


def refuse_targets(planner: object, owner: str) -> None:
    """Refuse targets that are set for planning with a model, where no mass is free."""
    for one in fields(planner) if is_dataclass(planner) else ():
        if one.name == "targets" and getattr(planner, one.name) != one.default:
            raise InvalidParameter(
                f"the 'targets' parameter of the planner is for optimistic tables; {owner} plans "
                f"for a model, got targets={getattr(planner, one.name)}"
            )


def _items(value: Any) -> tuple[Any, ...]:
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise ValueError
    try:
        return tuple(value)
    except TypeError:  # an array without dimensions
        raise ValueError from None


def _variable(value: Any) -> int | str:
    return value if isinstance(value, str) else Integer("", 0, "", low=0)._accept(value)


_DISCOUNT = Number(
    "discount",
    DISCOUNT,
    "discount of the discounted criterion, and of the second stage of the average one",
    low=0.0,
    high=1.0,
    high_open=True,
)
_TOLERANCE = Number(
    "tolerance",
    None,
    "stop when the gap between the gain's bounds is at most this, in the unit of the reward; "
    "by default 1e-6 times the largest range of a reward factor",
    low=0.0,
    low_open=True,
)
_CRITERION = Choice("criterion", "average", "what is maximised", choices=("average", "discounted"))
_LIMITS = (
    Integer(
        "max_iterations",
        None,
        "stop after this many iterations (sweeps: 100,000 if not given)",
        low=1,
    ),
    Number("max_seconds", None, "stop after this many seconds", low=0.0, low_open=True),
    Integer("memory_limit", None, "bytes; by default half of what is free", low=1),
)
_TIES = (
    Choice(
        "ties",
        "random",
        "which of several equally good actions is taken: by a hash of the state, first or last",
        choices=("random", "first", "last"),
    ),
    Integer(
        "tie_seed", 0, "seed of that hash", low=0, high=2**32 - 1, only_with=("ties", ("random",))
    ),
)
_TARGETS = Choice(
    "targets",
    "nested",
    "how optimistic tables place their free mass; a model has none, and no use for it",
    choices=("nested", "vertex"),
)
_THREADS = Integer(
    "threads", None, "threads of a sweep; all cores by default, and one in small models", low=1
)

EXACT: tuple[Parameter, ...] = (
    _TOLERANCE,
    _CRITERION,
    replace(
        _DISCOUNT,
        default=None,
        meaning=f"of the discounted criterion alone; then {DISCOUNT}",
        only_with=("criterion", ("discounted",)),
    ),
    *_LIMITS,
    *_TIES,
)
EXACT_FIELDS = (*EXACT, _TARGETS, _THREADS)
"""With the settings that only Python has."""

ALP: tuple[Parameter, ...] = (
    Basis(
        "basis",
        "singles",
        "the functions whose weighted sum approximates the value",
        choices=("singles", "indicators", "pairs", "local"),
    ),
    Choice(
        "method",
        "cuts",
        "constraint generation, or the factored linear program",
        choices=("cuts", "factored"),
    ),
    replace(_CRITERION, default="discounted"),
    _DISCOUNT,
    replace(
        _TOLERANCE,
        meaning="largest violation of a constraint that is left; by default 1e-6 times the "
        "largest range of a reward factor (the factored program is solved to the solver's own "
        "precision, and its status says if that is worse)",
    ),
    *_LIMITS,
    *_TIES,
)
ALP_FIELDS: tuple[Parameter, ...] = (
    *ALP,
    Distributions("relevance", None, "alpha, one distribution a state variable; uniform"),
    replace(_TARGETS, default="joint", choices=("joint", "split")),
)

SPAN: tuple[Parameter, ...] = (
    Numbers(
        "budget",
        REQUIRED,
        "--span-budget: the sum of the budgets, or one for each state variable, "
        "in the unit of the reward",
        low=0.0,
    ),
    Choice(
        "split",
        None,
        "--span-split: how one budget is divided; by default uniform, or as given",
        choices=("uniform", "given", "search"),
    ),
    _TOLERANCE,
    *_LIMITS,
    *_TIES,
)
SPAN_FIELDS = (*SPAN, _TARGETS, _THREADS)

RESIDUAL_FIELDS: tuple[Parameter, ...] = (
    *(one for one in ALP if one.name not in ("method", "criterion", "tolerance")),
    replace(_TOLERANCE, meaning="largest violation that is left, and smallest step that counts"),
)
"""Of approximate policy iteration and its relatives, which only Python has."""
