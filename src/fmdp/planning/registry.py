"""Planners by name, each with the declaration of its settings.

The command line, sweep specs and `fmdp list` read planners from here; a planner's own class stays
the place where a setting is used. Building a planner from a name and a mapping checks every
setting and names the culprit. Classes are imported when they are built, not before: the linear
planner brings a solver with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fmdp.errors import UnknownName, did_you_mean
from fmdp.parameters import (
    REQUIRED,
    Choice,
    Integer,
    Number,
    Numbers,
    Parameter,
    quoted,
    resolve,
)
from fmdp.planning.plan import Planner


@dataclass(frozen=True)
class PlannerKind:
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    build: Callable[..., Planner]
    for_any_model: Mapping[str, object] = field(default_factory=dict)
    """What to use, on another model, in the place of settings that are made for one model."""

    def make(self, settings: Mapping[str, object]) -> Planner:
        """The planner with these settings, and the defaults for the others."""
        return self.build(**resolve(self.parameters, settings, f"planner {self.name}"))


def _exact(**settings: Any) -> Planner:
    from fmdp.planning.exact import Exact

    return Exact(**settings)


def _span(**settings: Any) -> Planner:
    from fmdp.planning.span import SpanConstrained

    return SpanConstrained(**settings)


def _alp(**settings: Any) -> Planner:
    from fmdp.planning.linear import ALP

    return ALP(**settings)


_DISCOUNT = Number(
    "discount",
    0.95,
    "discount of the discounted criterion",
    low=0.0,
    high=1.0,
    low_open=True,
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
    Integer("tie_seed", 0, "seed of that hash", low=0, high=2**32 - 1),
)

_EXACT = PlannerKind(
    "exact",
    "relative value iteration by elimination; certified bounds on the optimal gain",
    (
        _TOLERANCE,
        _CRITERION,
        replace(_DISCOUNT, default=None, meaning="of the discounted criterion alone; then 0.95"),
        *_LIMITS,
        *_TIES,
    ),
    _exact,
)

_ALP = PlannerKind(
    "alp",
    "approximate linear programming; certified upper bound, for state spaces of any size",
    (
        Choice(
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
            "largest range of a reward factor",
        ),
        *_LIMITS,
        *_TIES,
    ),
    _alp,
)

_SPAN = PlannerKind(
    "span",
    "value iteration under a budget for the factored span of the bias, as FSRL needs it",
    (
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
    ),
    _span,
    {"budget": 1.0, "split": None},
)


def planners() -> tuple[PlannerKind, ...]:
    """Every planner, in the order in which they are listed."""
    return (_EXACT, _ALP, _SPAN)


def planner_kind(name: str) -> PlannerKind:
    by_name = {kind.name: kind for kind in planners()}
    if name not in by_name:
        raise UnknownName(
            f"unknown planner {quoted(name)}; known are {', '.join(by_name)}"
            f"{did_you_mean(name, by_name)}"
        )
    return by_name[name]
