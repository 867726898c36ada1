"""Plans against a parameter: gain, what the plan does, and where its decisions change."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fmdp._base.html import html_table
from fmdp._base.numerals import lower_text, short_number, upper_text
from fmdp._base.parameters import quoted
from fmdp._base.progress import reporting
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.factored import check_model
from fmdp.planning.choice import plan as plan_for
from fmdp.planning.occupancy.records import Summary
from fmdp.planning.plan import Plan, Planner
from fmdp.planning.policies.policy import TablePolicy
from fmdp.planning.status import Progress, Status
from fmdp.simulation.inspect import inspect


@dataclass(frozen=True)
class Point:
    """The plan for one value of the parameter.

    Attributes
    ----------
    value
        The value of the parameter.
    status
        How planning ended.
    gain
        The gain of the plan, or None.
    gain_lower
        Lower bound on the best gain, or None.
    gain_upper
        Upper bound on the best gain, or None.
    summary
        What the plan does; None if it has no policy.
    changed
        The share of states in which the policy differs from that of the first value; None if the
        policies are not tables of the same sizes.
    changed_time
        The share of time, under this plan, in such states; None if it is not known exactly.
    """

    value: Any
    status: Status
    gain: float | None
    gain_lower: float | None
    gain_upper: float | None
    summary: Summary | None
    changed: float | None
    changed_time: float | None


@dataclass(frozen=True)
class WhatIf:
    """Plans for several values of one parameter.

    Attributes
    ----------
    parameter
        The name of the parameter.
    points
        One per value, in the given order.
    """

    parameter: str
    points: tuple[Point, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat mapping per value: gain, bounds, changes, means and shares of actions."""
        rows = []
        for point in self.points:
            row: dict[str, Any] = {self.parameter: point.value, "status": point.status.value}
            for name in ("gain", "gain_lower", "gain_upper", "changed", "changed_time"):
                row[name] = getattr(point, name)
            if point.summary is not None:
                means = {**point.summary.factors, **point.summary.quantities}
                row |= {f"mean {name}": mean for name, mean in means.items()}
                for name, shares in point.summary.actions.items():
                    row |= {f"share {name}={value}": share for value, share in shares.items()}
            rows.append(row)
        return rows

    def __str__(self) -> str:
        """Return one line per value: gain, bounds and changes."""
        names = (self.parameter, "gain", "gain_lower", "gain_upper", "changed", "changed_time")
        # Bounds are rounded outwards, so that the printed interval holds.
        texts = {"gain_lower": lower_text, "gain_upper": upper_text}
        rows = [
            [_text(row[name], texts.get(name, short_number)) for name in names]
            for row in self.rows()
        ]
        widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in (names, *rows)
        )

    def _repr_html_(self) -> str:
        names = (self.parameter, "gain", "gain_lower", "gain_upper", "changed", "changed_time")
        rows = ([row[name] for name in names] for row in self.rows())
        return html_table(f"Plans by {self.parameter}", names, rows)

    def to_csv(self) -> str:
        """Return the rows as the text of a CSV file; numbers that are not known are empty."""
        rows = self.rows()
        names = list(dict.fromkeys(name for row in rows for name in row))
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return text.getvalue()


def _text(value: object, of_number: Callable[[float], str]) -> str:
    if isinstance(value, float):
        return of_number(value)
    return "" if value is None else str(value)


def whatif(
    build: Callable[[Any], FactoredMDP],
    *,
    planner: Planner | str | None = None,
    progress: bool | Progress | None = None,
    **varied: Sequence[Any],
) -> WhatIf:
    """Plan for every value of a parameter, and compare what the plans do.

    Parameters
    ----------
    build
        A function from a value of the parameter to a model.
    planner
        As in `fmdp.plan`.
    progress
        True shows a bar; a function receives a mapping of the state of the work; None is silent.
    varied
        The name of the parameter and its values, as in `whatif(build, arrivals=[0.1, 0.2])`.

    Returns
    -------
    WhatIf
        Gain with bounds, summary and changed decisions for every value.

    Raises
    ------
    InvalidParameter
        If not exactly one parameter with at least one value is given, or `build` returns no model.
    """
    if not callable(build):
        raise InvalidParameter(f"whatif needs a function that builds a model; got {quoted(build)}")
    if len(varied) != 1:
        raise InvalidParameter(
            f"whatif varies one parameter, as in whatif(build, arrivals=[0.1, 0.2]); "
            f"got {', '.join(varied) or 'none'}"
        )
    ((name, given),) = varied.items()
    try:
        values = list(given)
    except TypeError:
        values = []
    if not values or isinstance(given, str):
        raise InvalidParameter(f"whatif: {name} must be a list of values; got {quoted(given)}")
    return vary(build, name, values, planner=planner, progress=progress)


def vary(
    build: Callable[[Any], FactoredMDP],
    name: str,
    values: Sequence[Any],
    *,
    planner: Planner | str | None = None,
    progress: bool | Progress | None = None,
) -> WhatIf:
    """Return what `whatif` does, for a parameter of any name."""
    points: list[Point] = []
    first: Plan | None = None
    with reporting(progress, f"varying {name}", "whatif") as report:
        for value in values:
            model = _built(build, name, value)
            plan = plan_for(model, planner, progress=report)
            plan.status.raise_if_interrupted()
            first = plan if first is None else first
            points.append(_point(value, model, plan, first))
    return WhatIf(name, tuple(points))


def _built(build: Callable[[Any], FactoredMDP], name: str, value: Any) -> FactoredMDP:
    """Return the model of a value; an error of the user's function names the value."""
    try:
        model = build(value)
    except FmdpError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())
        raise InvalidParameter(
            f"whatif: the function fails for {name}={quoted(value)}: {type(error).__name__}: {text}"
        ) from error
    check_model(model, "whatif")
    return model


def _point(value: Any, model: FactoredMDP, plan: Plan, first: Plan) -> Point:
    summary = None if plan.policy is None else inspect(model, plan.policy)
    changed = changed_time = None
    new, old = plan.policy, first.policy
    if (
        isinstance(new, TablePolicy)
        and isinstance(old, TablePolicy)
        and (new.state_sizes, new.action_sizes) == (old.state_sizes, old.action_sizes)
    ):
        differs = (new.actions != old.actions).astype(np.float64)
        changed = float(differs.mean())
        if summary is not None and summary.law is not None:
            changed_time = float(differs[summary.law.states] @ summary.law.shares)
    return Point(
        value,
        plan.status,
        plan.gain,
        plan.gain_lower,
        plan.gain_upper,
        summary,
        changed,
        changed_time,
    )
