"""Settings that several planners share, and parameter types that only planners need.

A planner inherits the groups it uses (`Limited`, `TieBreaking`, `OnEngine`) beside `Planner` and
declares its other settings itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

from fmdp._base.parameters import Bytes, Choice, Integer, Number, Numbers, Parameter, number_text
from fmdp._base.settings import Settings, setting
from fmdp.elimination.ties import Ties
from fmdp.errors import InvalidParameter

DISCOUNT = 0.95
"""Default discount."""

_SCOPES = re.compile(r"\([^()]*\)(\+\([^()]*\))*")


def tolerance_setting(
    meaning: str = "stop when the gap between the gain's bounds is at most this, in the unit of "
    "the reward; by default 1e-6 times the largest range of a reward factor",
) -> Any:
    return setting(None, meaning, low=0.0, low_open=True)


def criterion_setting(default: str, choices: tuple[str, ...] = ("average", "discounted")) -> Any:
    return setting(default, "what is maximised", choices=choices)


def discount_setting(
    default: float | None = DISCOUNT,
    meaning: str = "discount of the discounted criterion, and of the second stage of the average "
    "one",
    **limits: Any,
) -> Any:
    return setting(default, meaning, low=0.0, high=1.0, high_open=True, **limits)


def targets_setting(default: str, choices: tuple[str, ...]) -> Any:
    return setting(
        default,
        "how optimistic tables place their free mass; a model has none, and no use for it",
        choices=choices,
    )


FAMILIES = ("singles", "indicators", "pairs", "local")
"""Bases by name; see alp/bases.py."""
SEARCHED = "auto"
"""The name of the basis that is searched for each model; see alp/growth.py."""
GAP = 0.01
"""Gap between bound and policy, relative to the bound, at which the search for a basis ends."""


def basis_setting(default: str = "singles") -> Any:
    searched = default == SEARCHED
    return setting(
        default,
        "the functions whose weighted sum approximates the value"
        + (
            "; auto adds neighbours where the Bellman error is largest (inside learners that plan "
            "for models it begins with singles and grows where that pays; inside others: singles)"
            if searched
            else ""
        ),
        kind=BasisChoice,
        choices=(SEARCHED, *FAMILIES) if searched else FAMILIES,
    )


def with_basis(planner: Any, basis: Any) -> Any:
    """Return the planner with this basis instead of the one that it would search for."""
    return replace(planner, basis=basis, gap=GAP)


def searches_basis(planner: Any) -> bool:
    """Return whether the planner chooses its basis itself."""
    return getattr(planner, "basis", None) == SEARCHED


def without_search(planner: Any) -> Any:
    """Return the planner with the basis `singles` if it would search for one, and without
    simulations of its policies.

    It is for callers that plan hundreds of times or need bounds that do not change.
    """
    if not is_dataclass(planner):
        return planner
    if getattr(planner, "simulated_steps", 0) != 0:
        return replace(planner, simulated_steps=0)  # type: ignore[type-var]
    return with_basis(planner, FAMILIES[0]) if searches_basis(planner) else planner


class Limited(Settings):
    """Limits on iterations, time and memory."""

    max_iterations: int | None = setting(
        None, "stop after this many iterations (sweeps: 100,000 if not given)", low=1
    )
    max_seconds: float | None = setting(
        None, "stop after this many seconds", low=0.0, low_open=True
    )
    memory_limit: int | None = setting(
        None, "bytes; by default half of what is free", kind=Bytes, low=1
    )


class TieBreaking(Settings):
    """The choice among equally good actions."""

    ties: str = setting(
        "random",
        "which of several equally good actions is taken: by a hash of the state, first or last",
        choices=("random", "first", "last"),
    )
    tie_seed: int | None = setting(
        None,
        "seed of that hash; by default 0; in a learner, each run's own",
        low=0,
        high=2**32 - 1,
        only_with=("ties", ("random",)),
    )

    @property
    def tie_breaking(self) -> Ties:
        """The tie breaking of a plan outside a learner."""
        return Ties(self.ties, self.tie_seed or 0)


class ExactCriteria(Settings):
    """The criteria of exact plans, and how precise these are."""

    tolerance: float | None = tolerance_setting()
    criterion: str = criterion_setting("average", ("average", "discounted", "finite"))
    horizon: int | None = setting(
        None,
        "steps of the finite criterion, which has to have it",
        low=1,
        high=2**53,
        only_with=("criterion", ("finite",)),
        unkeyed=(None,),
    )
    discount: float | None = discount_setting(
        None,
        f"of the discounted criterion, then {DISCOUNT}, and of the finite one, which has none",
        only_with=("criterion", ("discounted", "finite")),
    )

    def check(self) -> None:
        if self.criterion == "discounted" and self.discount is None:
            object.__setattr__(self, "discount", DISCOUNT)
        if self.criterion == "finite" and self.horizon is None:
            raise InvalidParameter(
                f"the 'horizon' parameter of {self.owner()} (steps to plan for) must be given with "
                f"criterion=finite: an integer >= 1"
            )


class OnEngine(Settings):
    """Settings of sweeps of the elimination engine."""

    targets: str = targets_setting("nested", ("nested", "vertex"))
    threads: int | None = setting(
        None, "threads of a sweep; all cores by default, and one in small models", low=1
    )


@dataclass(frozen=True)
class BasisChoice(Choice):
    """The name of a basis, or scopes: tuples of state variables by number or name.

    As text: (0 1)+(1 2).
    """

    @property
    def allowed(self) -> str:
        return f"{super().allowed}, or scopes of state variables"

    def _read(self, text: str) -> Any:
        if not _SCOPES.fullmatch(text):
            return text
        scopes = (scope.split() for scope in text[1:-1].split(")+("))
        return tuple(tuple(int(v) if v.isdecimal() else v for v in scope) for scope in scopes)

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
    """One row of nonnegative numbers per state variable; as text: .5 .5+.2 .8."""

    kind = "numbers"

    @property
    def allowed(self) -> str:
        return "rows of numbers >= 0, one row for each state variable"

    def _read(self, text: str) -> Any:
        number = Number(self.name, 0.0, "")
        rows = re.split(r"(?<![eE])\+", text)  # 1e+3 is one number
        return tuple(tuple(number._read(p) for p in row.split()) for row in rows)

    def _accept(self, value: Any) -> tuple[tuple[float, ...], ...]:
        weight = Number(self.name, 0.0, "", low=0.0)
        return tuple(tuple(weight._accept(p) for p in _items(row)) for row in _items(value))

    def _write(self, value: Any) -> str:
        return "+".join(" ".join(number_text(p) for p in row) for row in value)


@dataclass(frozen=True)
class OneOrSeveral(Numbers):
    """Numbers, of which a single one is a float and not a tuple."""

    def _accept(self, value: Any) -> Any:
        numbers = super()._accept(value)
        return numbers[0] if len(numbers) == 1 else numbers

    def _write(self, value: Any) -> str:
        return super()._write(value if isinstance(value, tuple) else (value,))


def refuse_targets(planner: object, owner: str) -> None:
    """Raise InvalidParameter if `targets` is set: it has no effect on a plan for a model."""
    for field in fields(planner) if is_dataclass(planner) else ():
        if field.name == "targets" and getattr(planner, field.name) != field.default:
            raise InvalidParameter(
                f"the 'targets' parameter of the planner is for optimistic tables; {owner} plans "
                f"for a model, got targets={getattr(planner, field.name)}"
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
