"""Studies of stored runs: how fast regret grows with the steps, and how it depends on a parameter.

The slope of a cell is that of log(mean regret) against log(t), by least squares over the
checkpoints of the last decade of steps: 1 is linear growth, 1/2 that of the bounds, 0 that of a
learner that has stopped losing. Its 95 % interval is the jackknife over the runs with Student's t:
slope +- t_(n-1) sqrt((n - 1) / n sum_i (slope without run i - their mean)^2).

A series is a set of cells that differ in one numeric parameter only: a setting of the learner
(`c`), of the planner (`planner.tolerance`), or of the id of the problem (`problem.size`,
`problem.actions`). Seeds are no parameters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fmdp._base.parameters import quoted
from fmdp.errors import FmdpError, UnknownName, did_you_mean
from fmdp.experiments.cells import Cell
from fmdp.experiments.dataset import CellCurves
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.statistics import LEVEL, Interval, SampleSummary, summarise
from fmdp.experiments.store import canonical_json
from fmdp.problems.ids import is_path, parse_id
from fmdp.problems.registry import HOMES

WINDOW = 10
"""Slopes are taken from steps / WINDOW to steps."""
PLANNER, PROBLEM = "planner.", "problem."
"""Prefixes of the names of parameters of planners and problems."""
_SEEDS = ("seed", "tie_seed")


@dataclass(frozen=True)
class Slope:
    """The growth of the mean of a measure over the last decade of steps."""

    problem: str
    label: str
    learner: str
    role: str
    steps: int
    measure: str
    runs: int
    first_step: int
    """The first checkpoint of the fit."""
    slope: float | None
    """None where the mean is not positive, or there are fewer than two checkpoints."""
    slope_low: float | None
    slope_high: float | None
    """The 95 % interval; None below two runs."""


def slopes(cells: Iterable[CellCurves], measures: Sequence[str]) -> list[Slope]:
    """Return the slope of every measure that a cell has a curve of."""
    return [
        _slope(cell, measure) for cell in cells for measure in measures if measure in cell.curves
    ]


def _slope(cell: CellCurves, measure: str) -> Slope:
    last = cell.t * WINDOW >= cell.steps
    t, curves = cell.t[last], cell.curves[measure][:, last]
    estimate = log_slope(t, curves.mean(axis=0))
    low, high = jackknife(t, curves, estimate) or (None, None)
    return Slope(
        cell.problem,
        cell.label,
        cell.learner,
        cell.role,
        cell.steps,
        measure,
        len(curves),
        int(t[0]),
        estimate,
        low,
        high,
    )


def log_slope(t: NDArray[Any], values: NDArray[np.float64]) -> float | None:
    """Return the least-squares slope of log(values) against log(t); None if there is none."""
    if len(t) < 2 or not (values > 0).all():
        return None
    x = np.log(t) - np.log(t).mean()
    return float(x @ np.log(values) / (x @ x))


def jackknife(
    t: NDArray[Any], curves: NDArray[np.float64], estimate: float | None
) -> Interval | None:
    """Return the jackknife interval of the slope of the mean of some curves, [n, K]."""
    n = len(curves)
    if estimate is None or n < 2:
        return None
    total = curves.sum(axis=0)
    without = [log_slope(t, (total - curve) / (n - 1)) for curve in curves]
    known = [slope for slope in without if slope is not None]
    if len(known) < n:
        return None
    spread = math.sqrt((n - 1) * float(np.var(known)))
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * spread
    return estimate - half, estimate + half


@dataclass(frozen=True, eq=False)
class Point:
    """One cell of a series."""

    parameter: str
    series: str
    """The common name of its cells: the problem or its family, and the learner."""
    panel: str
    """The problem, or its family where the parameter is one of the problem."""
    line: str
    """The learner without the parameter."""
    value: float
    cell: Cell
    measure: str
    summary: SampleSummary


def parameters_of(cells: Sequence[Cell], ids: Mapping[str, str], least: int = 3) -> list[str]:
    """Return the numeric parameters that have at least `least` values in some series.

    `ids` has the canonical ids of the problems by name.
    """
    names = dict.fromkeys(name for cell in cells for name in _numbers(cell, ids))
    return [
        name
        for name in names
        if any(
            len({value for value, _ in members}) >= least
            for members in _series(cells, name, ids).values()
        )
    ]


def against(
    cells: Sequence[Cell],
    parameter: str,
    measure: str | None,
    ids: Mapping[str, str],
    least: int = 2,
) -> list[Point]:
    """Return the cells of every series of a parameter with at least `least` values, in order.

    The measure is gap regret where all cells of a series have it, else realised regret. Raise
    UnknownName if no cells differ in the parameter alone.
    """
    series = {
        key: sorted(members, key=lambda member: member[0])
        for key, members in _series(cells, parameter, ids).items()
        if len({value for value, _ in members}) >= least
    }
    if not series:
        known = parameters_of(cells, ids, least)
        raise UnknownName(
            f"no cells differ in the parameter {quoted(parameter)} alone; "
            f"there are series of {', '.join(known) or 'no parameter'}"
            f"{did_you_mean(parameter, known)}"
        )
    return [
        point
        for key, members in series.items()
        for point in _points(parameter, key, members, measure)
    ]


_Key = tuple[str, ...]
_Member = tuple[float, Cell]


def _points(
    parameter: str,
    key: _Key,
    members: Sequence[_Member],
    measure: str | None,
) -> Iterator[Point]:
    panel, line = key[0], _shared_words([cell for _, cell in members])
    known = all(cell.ends(GAP_REGRET.name) is not None for _, cell in members)
    name = measure or (GAP_REGRET.name if known else REGRET.name)
    for value, cell in members:
        ends = cell.ends(name)
        if ends is not None:
            series = f"{panel}: {line}"
            yield Point(parameter, series, panel, line, value, cell, name, summarise(ends))


def _shared_words(cells: Sequence[Cell]) -> str:
    """Return the words that all labels have, such as "PSRL" of "PSRL c=0.1" and "PSRL c=1"."""
    others = [cell.label.split() for cell in cells]
    shared = [word for word in cells[0].label.split() if all(word in words for words in others)]
    return " ".join(shared).rstrip(",") or cells[0].learner


def _series(
    cells: Sequence[Cell], parameter: str, ids: Mapping[str, str]
) -> dict[_Key, list[_Member]]:
    """Return the cells by all that they have beside the parameter, the panel first."""
    series: dict[_Key, list[_Member]] = {}
    for cell in cells:
        value = _numbers(cell, ids).get(parameter)
        if value is not None:
            series.setdefault(_rest(cell, parameter, ids), []).append((value, cell))
    return series


def _numbers(cell: Cell, ids: Mapping[str, str]) -> dict[str, float]:
    """Return the numeric parameters of a cell by name."""
    named = {
        **cell.parameters,
        **{PLANNER + name: value for name, value in cell.planner_settings.items()},
        **{PROBLEM + name: value for name, value in _of_problem(cell, ids).items()},
    }
    return {
        name: float(value)
        for name, value in named.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and name.rpartition(".")[2] not in _SEEDS
    }


def _rest(cell: Cell, parameter: str, ids: Mapping[str, str]) -> _Key:
    """Return the panel of a cell, and everything beside the parameter that must be equal."""
    settings = {name: value for name, value in cell.parameters.items() if name != parameter}
    planned = {
        name: value for name, value in cell.planner_settings.items() if PLANNER + name != parameter
    }
    of_problem = parameter.startswith(PROBLEM)
    if of_problem:
        # Tolerances of plans follow the range of the reward, which may grow with the problem.
        planned.pop("tolerance", None)
    return (
        *(_family(cell, parameter, ids) if of_problem else (cell.problem, cell.source)),
        cell.learner,
        canonical_json(settings),
        cell.planner or "",
        canonical_json(planned),
        str(cell.steps),
        canonical_json(cell.runs[0].code),
    )


def _family(cell: Cell, parameter: str, ids: Mapping[str, str]) -> _Key:
    """Return the id of a problem without the parameter."""
    name = parameter.removeprefix(PROBLEM)
    head, _, rest = ids[cell.problem].partition(",")
    family, colon, size = head.partition(":")
    kept = [part for part in rest.split(",") if part and part.partition("=")[0] != name]
    first = family if name == "size" else f"{family}{colon}{size}"
    return (",".join([first, *kept]),)


def _of_problem(cell: Cell, ids: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the problem if it is one of fmdp's families, else none."""
    text = ids.get(cell.problem, cell.problem)
    # Classes of others are not imported to read a store.
    if cell.prior is not None or is_path(text) or re.split("[:,]", text)[0] not in HOMES:
        return {}
    try:
        family = parse_id(text)
    except FmdpError:  # a name of the user's own, such as "circle:4 and a price"
        return {}
    return {parameter.name: getattr(family, parameter.name) for parameter in family.parameters}
