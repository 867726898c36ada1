"""Figures of studies: growth of regret with the steps, and regret against a parameter.

`slopes` has one panel per problem and one row per learner: the slope of log(mean) against log(t)
over the last decade of steps, with its interval. `against-NAME` has one panel per problem, or per
family for a parameter of problems, and one line per learner: the mean with its interval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from fmdp.experiments.dataset import Dataset
from fmdp.experiments.measures import GAP_REGRET, REGRET, measure_named, title_of
from fmdp.experiments.studies import PROBLEM, Point, Slope, against, parameters_of, slopes
from fmdp.reports.figures import (
    MOST_CURVES,
    SETTINGS,
    Drawing,
    add_legend,
    saved,
    thousands,
    titled,
)
from fmdp.reports.notes import counts_text
from fmdp.reports.style import COLOURS, DASHES, ENDS, MARKERS, Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Item = TypeVar("Item")

SLOPES = "slopes"
_AGAINST = "against-"
_MOST_PANELS = 12
_LOG_FROM = 8.0
"""Ratio of the largest to the smallest number from which an axis is logarithmic."""
_MOST_TICKS = 10
"""Most values of a parameter that are all on the axis."""


def is_study(stem: str) -> bool:
    """Return whether a file of a report with this stem can be a figure of this module."""
    return stem == SLOPES or re.fullmatch(_AGAINST + r"[\w.-]+", stem) is not None


def figures(data: Dataset) -> list[Drawing]:
    """Draw the slopes, and every parameter that has three values or more."""
    drawings = [_slopes_figure(data)]
    for parameter in parameters_of(data.grouped.cells, data.ids):
        points = against(data.grouped.cells, parameter, None, data.ids, least=3)
        drawings.append(_against_figure(parameter, points))
    return [drawing for drawing in drawings if drawing is not None]


def _slopes_figure(data: Dataset) -> Drawing | None:
    measure = GAP_REGRET.name if GAP_REGRET.name in data.measures else REGRET.name
    all_rows = slopes(data.cells, [measure])
    rows = [row for row in all_rows if row.slope is not None and row.role != "upper"]
    panels = _by(rows, lambda row: row.problem)
    if not panels:
        return None
    import matplotlib as mpl
    from matplotlib.figure import Figure

    looks = styles([cell for cell in data.cells if cell.role != "upper"], data.cells)
    names = list(panels)[:_MOST_PANELS]
    with mpl.rc_context(SETTINGS):
        across = min(len(names), 3)
        down = math.ceil(len(names) / across)
        figure = Figure(layout="constrained")
        axes = figure.subplots(down, across, squeeze=False, sharex=True)
        longest = max(len(panels[name]) for name in names)
        for place, ax in enumerate(axes.flat):
            if place >= len(names):
                ax.set_visible(False)
                continue
            _draw_slopes(ax, panels[names[place]], looks)
            ax.set_title(titled(names[place]), loc="left", parse_math=False)
            ax.set_xlabel("slope")
        widest = max(len(row.label) for row in rows)
        figure.set_size_inches(across * (2.2 + 0.065 * widest), down * (0.9 + 0.2 * longest))
        files = saved(figure)
    return Drawing(SLOPES, files, _slopes_caption(rows, measure, names))


def _draw_slopes(ax: Axes, rows: Sequence[Slope], looks: Mapping[str, Style]) -> None:
    for x in (0.5, 1.0):
        ax.axvline(x, color="#888888", linewidth=0.8, zorder=1)
    for y, row in enumerate(rows):
        look = looks[row.label]
        if row.slope_low is not None and row.slope_high is not None:
            ax.plot([row.slope_low, row.slope_high], [y, y], color=look.colour)
        ax.plot([row.slope or 0.0], [y], look.marker, color=look.colour)
    ax.set_yticks(range(len(rows)), [row.label for row in rows])
    for tick in ax.get_yticklabels():
        tick.set_parse_math(False)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    slopes_shown = [row.slope for row in rows if row.slope is not None]
    low, high = min(0.0, *slopes_shown), max(1.0, *slopes_shown)
    ax.set_xlim(low - 0.1, high + 0.1)


def _slopes_caption(rows: Sequence[Slope], measure: str, names: Sequence[str]) -> str:
    many = counts_text([row.runs for row in rows])
    return (
        f"Growth of mean {title_of(measure)} on {', '.join(names)}: the slope of its logarithm "
        f"against that of the steps, over the last decade of steps, with 95 % intervals (jackknife "
        f"over {many} runs). 1/2 is growth like the square root of the steps, 1 is linear. "
        f"Intervals that leave the panel are cut."
    )


def _against_figure(parameter: str, points: Sequence[Point]) -> Drawing | None:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = {
        panel: _by(members, lambda point: point.series)
        for panel, members in _by(points, lambda point: point.panel).items()
    }
    names = list(panels)[:_MOST_PANELS]
    lines = list(dict.fromkeys(point.line for point in points))[:MOST_CURVES]
    looks = _looks(lines, points)
    with mpl.rc_context(SETTINGS):
        across = 2 if len(names) == 4 else min(len(names), 3)
        down = math.ceil(len(names) / across)
        figure = Figure(layout="constrained")
        axes = figure.subplots(down, across, squeeze=False)
        for place, ax in enumerate(axes.flat):
            if place >= len(names):
                ax.set_visible(False)
                continue
            for series in panels[names[place]].values():
                if series[0].line in looks:
                    _draw_series(ax, series, looks[series[0].line])
            members = [point for series in panels[names[place]].values() for point in series]
            _scale(ax, members)
            ax.set_title(titled(names[place]), loc="left", parse_math=False)
            ax.set_xlabel(parameter.removeprefix(PROBLEM), parse_math=False)
            if place % across == 0:
                ax.set_ylabel(f"mean {measure_named(members[0].measure).axis}")
        width = max(3.4 * across, 4.6)
        rows = add_legend(figure, lines, looks, width)
        figure.set_size_inches(width, 2.5 * down + 0.19 * rows + 0.1)
        files = saved(figure)
    many = counts_text([point.summary.n for point in points])
    measures = " and ".join(dict.fromkeys(title_of(point.measure) for point in points))
    caption = (
        f"Mean {measures} after the last step against {parameter}, over {many} runs, with 95 % "
        f"intervals (Student's t), on {', '.join(names)}. The points of a line differ in nothing "
        f"else."
    )
    return Drawing(_AGAINST + re.sub(r"[^\w.-]", "-", parameter), files, caption)


def _looks(lines: Sequence[str], points: Sequence[Point]) -> dict[str, Style]:
    """Return a style per line; random actions and the optimal policy keep theirs."""
    role_of = {point.line: point.cell.role for point in points}
    looks = {}
    for place, line in enumerate(lines):
        colours = ENDS.get(role_of[line], COLOURS[place % len(COLOURS)])
        dash = DASHES[(place + place // len(COLOURS)) % len(DASHES)]
        looks[line] = Style(*colours, dash, MARKERS[place % len(MARKERS)])
    return looks


def _draw_series(ax: Axes, series: Sequence[Point], look: Style) -> None:
    x = np.array([point.value for point in series])
    means = np.array([point.summary.mean for point in series])
    ends = [p.summary.mean_interval or (p.summary.mean, p.summary.mean) for p in series]
    low, high = np.array(ends).T
    ax.fill_between(x, low, high, color=look.colour, alpha=0.16, linewidth=0)
    ax.plot(
        x,
        means,
        color=look.colour,
        dashes=look.dash or (None, None),
        marker=look.marker,
        markeredgecolor="white",
        markeredgewidth=0.5,
    )


def _scale(ax: Axes, points: Sequence[Point]) -> None:
    """Set logarithmic axes for numbers of different sizes."""
    values = [point.value for point in points]
    means = [point.summary.mean for point in points]
    if min(values) > 0 and max(values) >= _LOG_FROM * min(values):
        ax.set_xscale("log")
    ticks = sorted(set(values))
    if len(ticks) <= _MOST_TICKS:
        ax.set_xticks(ticks, [f"{value:g}" for value in ticks])
        ax.minorticks_off()
    if min(means) > 0 and max(means) >= _LOG_FROM * min(means):
        ax.set_yscale("log")
        ax.set_ylim(min(means) / 2, max(means) * 2)
    else:
        ax.set_ylim(min(0.0, *means), max(means) * 1.3)
        ax.yaxis.set_major_formatter(thousands)


def _by(items: Sequence[Item], key: Callable[[Item], str]) -> dict[str, list[Item]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
