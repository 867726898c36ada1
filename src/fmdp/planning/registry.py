"""Planners by name, each with the declaration of its settings (settings.py).

The command line, sweep specs and `fmdp list` read planners from here; a planner's own class checks
its fields by the same declarations. Building a planner from a name and a mapping checks every
setting and names the culprit. Classes are imported when they are built, not before: the linear
planner brings a solver with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fmdp.errors import InvalidParameter, UnknownName, did_you_mean
from fmdp.parameters import Parameter, quoted, resolve
from fmdp.planning.plan import Planner
from fmdp.planning.settings import ALP, EXACT, SPAN


@dataclass(frozen=True)
class PlannerKind:
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    build: Callable[..., Planner]
    for_any_model: Mapping[str, object] = field(default_factory=dict)
    """What to use, on another model, in the place of settings that are made for one model."""

    def make(self, given: Mapping[str, object]) -> Planner:
        """The planner with these settings, and the defaults for the others."""
        return self.build(**resolve(self.parameters, given, f"planner {self.name}"))


def _exact(**given: Any) -> Planner:
    from fmdp.planning.exact import Exact

    return Exact(**given)


def _span(**given: Any) -> Planner:
    from fmdp.planning.span import SpanConstrained

    return SpanConstrained(**given)


def _alp(**given: Any) -> Planner:
    from fmdp.planning import linear

    return linear.ALP(**given)


_EXACT = PlannerKind(
    "exact",
    "relative value iteration by elimination; certified bounds on the optimal gain",
    EXACT,
    _exact,
)

_ALP = PlannerKind(
    "alp",
    "approximate linear programming; certified upper bound, for state spaces of any size",
    ALP,
    _alp,
)

_SPAN = PlannerKind(
    "span",
    "value iteration under a budget for the factored span of the bias, as FSRL needs it",
    SPAN,
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


def planner_of(given: object, owner: str, verb: str = "prepare") -> Planner | None:
    """A planner from what a user hands over: an object of settings, a name, or None.

    `verb` is what the owner will ask it to do: prepare (learners), or plan.
    """
    if given is None:
        return None
    if isinstance(given, str):
        return planner_kind(given).make({})
    if isinstance(given, type) or not callable(getattr(given, verb, None)):
        raise InvalidParameter(
            f"the 'planner' of {owner} must be an object such as fmdp.Exact() or fmdp.ALP(), "
            f"or the name of a planner; got {quoted(given)}"
        )
    return given  # type: ignore[return-value]
