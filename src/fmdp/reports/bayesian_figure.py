"""The figure of Bayesian regret: means over drawn models, and the bound of Theorem 1.

One panel per prior. Lines are means with their 95 % intervals. Where a cell is PSRL with the true
prior, the black line is the bound with its constants and the grey one the most that can be lost.
Gap regret is drawn where it is known: its expectation differs from that of realised regret by at
most the span of the bias, and it has none of the luck of the rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmdp.experiments.bayesian import RegretBound
from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells
from fmdp.experiments.measures import GAP_REGRET, REGRET, measure_named, title_of
from fmdp.experiments.statistics import mean_interval, mean_of
from fmdp.reports.figures import (
    FONT_SIZE,
    SETTINGS,
    Drawing,
    add_legend,
    drawn_cells,
    marked,
    saved,
    titled,
)
from fmdp.reports.notes import counts_text
from fmdp.reports.style import BLACK, GREY, Style, styles
from fmdp.reports.wording import number_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "bayesian-regret"


def _measure(problems: Sequence[ProblemCells]) -> str:
    """Return gap regret if every cell has it, else realised regret."""
    cells = [cell for problem in problems for cell in problem.cells]
    known = all(GAP_REGRET.name in cell.curves for cell in cells)
    return GAP_REGRET.name if known else REGRET.name


def with_priors(data: Dataset) -> list[ProblemCells]:
    """Return the problems whose models are drawn from a prior."""
    return [problem for problem in data.problems if problem.prior is not None]


def sentences(data: Dataset, bounds: Mapping[str, RegretBound]) -> tuple[str, ...]:
    """Return what the runs say about Bayesian regret, one sentence or two per prior."""
    texts = []
    measure = _measure(with_priors(data))
    for problem in with_priors(data):
        means = [
            f"{cell.label} {_with_interval(cell.ends(measure))}"
            for cell in problem.cells
            if cell.role == "learner"
        ]
        if not means:
            continue
        steps = problem.cells[0].steps
        words = (
            f"On {problem.name} every seed draws its own model, so the mean over seeds is the "
            f"Bayesian regret ({title_of(measure)} after {steps:,} steps, with its 95 % interval): "
            f"{'; '.join(means)}."
        )
        bound = bounds.get(problem.name)
        if bound is not None:
            words += f" {_about_bound(bound, steps)}"
        texts.append(words)
    return tuple(texts)


def _with_interval(ends: Any) -> str:
    if ends is None:
        return "unknown"
    values = ends.tolist()
    interval = mean_interval(values)
    text = number_text(mean_of(values))
    if interval is None:
        return text
    return f"{text} ({number_text(interval[0])} to {number_text(interval[1])})"


def _about_bound(bound: RegretBound, steps: int) -> str:
    value, most = bound.at(steps), bound.reward_range * steps
    about = (
        f"Theorem 1 of Xu & Tewari (2020) with its constants bounds {bound.label} by "
        f"{_rounded(value)} (diameter {bound.diameter:.3g}, the largest of {bound.draws} draws)"
    )
    if value < most:
        return f"{about}."
    useful = bound.first_useful
    since = "nothing below 1e18 steps"
    if useful < np.inf:
        since = f"something only from {_rounded(useful)} steps on"
    return (
        f"{about}, which is more than the {_rounded(most)} that can be lost at all: the bound says "
        f"{since}."
    )


def _rounded(value: float) -> str:
    """Return a large number with two digits that are not zero."""
    return f"{float(f'{value:.2g}'):,.0f}"


def figure(data: Dataset, bounds: Mapping[str, RegretBound]) -> Drawing:
    """Draw the mean regret of every learner on every prior, with the bounds."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    measure = _measure(with_priors(data))
    panels = [
        (problem, cells)
        for problem in with_priors(data)
        if (cells := drawn_cells(problem, measure, "log"))
    ]
    looks = styles([cell for _, cells in panels for cell in cells], data.cells)
    with mpl.rc_context(SETTINGS):
        across = min(len(panels), 3)
        down = -(-len(panels) // across)
        drawing = Figure(layout="constrained")
        axes = drawing.subplots(down, across, squeeze=False)
        for place, ax in enumerate(axes.flat):
            if place >= len(panels):
                ax.set_visible(False)
                continue
            problem, cells = panels[place]
            _panel(ax, cells, measure, looks, bounds.get(problem.name))
            ax.set_title(titled(problem.name), loc="left", parse_math=False)
            ax.set_xlabel("steps t")
            if place % across == 0:
                ax.set_ylabel(f"mean {measure_named(measure).axis}")
        labels = list(dict.fromkeys(cell.label for _, cells in panels for cell in cells))
        width = max(3.6 * across, 4.8)
        lines = add_legend(drawing, labels, looks, width)
        drawing.set_size_inches(width, 3.0 * down + 0.19 * lines + 0.1)
        return Drawing(NAME, saved(drawing), _caption(panels, measure, bounds))


def _panel(
    ax: Axes,
    cells: Sequence[CellCurves],
    measure: str,
    looks: Mapping[str, Style],
    bound: RegretBound | None,
) -> None:
    ax.set_xscale("log")
    ax.set_yscale("log")
    largest = 1.0
    for place, cell in enumerate(cells):
        look, columns = looks[cell.label], cell.curves[measure].T.tolist()
        means = np.array([mean_of(column) for column in columns])
        ends = np.array([mean_interval(column) or (column[0],) * 2 for column in columns])
        shown = np.where(means > 0, means, np.nan)
        floor = np.where(means > 0, np.maximum(ends[:, 0], means * 1e-3), np.nan)
        ax.fill_between(cell.t, floor, ends[:, 1], color=look.colour, alpha=0.16, linewidth=0)
        ax.plot(
            cell.t,
            shown,
            color=look.colour,
            dashes=look.dash or (None, None),
            marker=look.marker,
            markevery=marked(cell.t, "log", place, len(cells)),
            markeredgecolor="white",
            markeredgewidth=0.5,
        )
        largest = max(largest, float(means.max()))
    last = max(int(cell.t[-1]) for cell in cells)
    ax.set_xlim(1, max(last, 10))
    if bound is None:
        ax.set_ylim(0.1, 2 * largest)
        return
    t = np.unique(np.geomspace(1, last, 60).round().astype(int))
    bounded = [bound.at(int(step)) for step in t]
    ax.plot(t, bounded, color=BLACK[0], linewidth=1.0)
    ax.plot(t, bound.reward_range * t, color=GREY[0], linewidth=1.0)
    for text, y, colour in (
        ("Theorem 1, with constants", bounded[-1], BLACK[0]),
        ("all that can be lost", bound.reward_range * last, GREY[0]),
    ):
        ax.annotate(
            text,
            (last, y),
            textcoords="offset points",
            xytext=(-2, 4),
            ha="right",
            color=colour,
            fontsize=FONT_SIZE - 1.5,
        )
    ax.set_ylim(0.1, 30 * bounded[-1])


def _caption(
    panels: Sequence[tuple[ProblemCells, Sequence[CellCurves]]],
    measure: str,
    bounds: Mapping[str, RegretBound],
) -> str:
    many = counts_text([len(cell.runs) for _, cells in panels for cell in cells])
    words = (
        f"Bayesian regret on {', '.join(problem.name for problem, _ in panels)}: every seed draws "
        f"its own model. Lines are means of {title_of(measure)} over {many} models, bands 95 % "
        f"intervals (Student's t); both axes logarithmic, interrupted where a mean is not positive."
    )
    if bounds:
        words += (
            " The black line is the bound of Theorem 1 of Xu & Tewari (2020) with its constants, "
            "for PSRL with the true prior and the largest diameter of the drawn models; the grey "
            "line is the number of steps times the range of the reward."
        )
    return words
