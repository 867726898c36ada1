"""Figures of regret curves: one panel per problem, with median lines and quartile bands.

Each figure is written as PNG, SVG and PDF (fonts embedded). The same runs give the same bytes with
the same Matplotlib: the files contain no dates and no random ids. Matplotlib (the extra `plots`) is
used through its objects, without pyplot, so no global state and no display is touched.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fmdp.errors import FmdpError
from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells
from fmdp.experiments.measures import REGRET, measure_named
from fmdp.reports.notes import counts_text
from fmdp.reports.style import ENDS, Style, styles

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = ("png", "svg", "pdf")
FORMATS: tuple[str, ...] = KINDS
"""File formats that are written; tests that need no figures leave them out."""
MOST_CURVES = 8
"""Most curves in one panel, for legibility."""

FONT_SIZE = 9.0
SETTINGS: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # part of Matplotlib, so figures are the same everywhere
    "font.size": FONT_SIZE,
    "axes.labelsize": FONT_SIZE,
    "axes.titlesize": FONT_SIZE + 1,
    "legend.fontsize": FONT_SIZE,
    "xtick.labelsize": FONT_SIZE - 1,
    "ytick.labelsize": FONT_SIZE - 1,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "pdf.fonttype": 42,  # TrueType, as publishers require
    "svg.hashsalt": "fmdp",
    "savefig.dpi": 200,
}
# Metadata without dates, so that the same runs give the same bytes.
UNDATED = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


class MissingPlots(FmdpError):
    """Matplotlib is not installed; the message names the extra that brings it."""


@dataclass(frozen=True)
class Drawing:
    """A figure in all formats, with its caption."""

    name: str
    files: Mapping[str, bytes]
    """Content by format."""
    caption: str


def require_matplotlib() -> None:
    """Raise MissingPlots if figures cannot be drawn."""
    try:
        import matplotlib.figure  # noqa: F401 - checks that it is installed
    except ImportError:
        raise MissingPlots(
            "figures need Matplotlib, which is not installed; install it with the extra "
            "fmdp[plots]: pip install 'fmdp[plots]'"
        ) from None


def draw(data: Dataset) -> list[Drawing]:
    """Draw every measure that has a curve, on logarithmic and on linear axes."""
    require_matplotlib()
    drawings = []
    for measure in data.measures:
        name = figure_name(measure)
        for scale in ("log", "linear"):
            shown = [(problem, drawn_cells(problem, measure, scale)) for problem in data.problems]
            panels = [(problem, cells) for problem, cells in shown if cells]
            suffix = "" if scale == "log" else "-linear"
            looks = styles([cell for _, cells in panels for cell in cells], data.cells)
            drawings.append(
                Drawing(
                    name + suffix,
                    regret_figure(panels, measure, scale, looks),
                    caption(panels, measure, scale),
                )
            )
    return drawings


def figure_name(measure: str) -> str:
    """Return the file name of the figure of a measure, without its ending."""
    return measure.replace("_", "-")


def drawn_cells(problem: ProblemCells, measure: str, scale: str) -> tuple[CellCurves, ...]:
    """Return the cells of a panel: all, or the best variant of each learner (with each planner).

    The upper end is left out on a logarithmic axis, since its regret is zero up to luck.
    """
    cells = _drawable(problem, measure, scale)
    if len(cells) <= MOST_CURVES:
        return tuple(cells)
    ranked = sorted(cells, key=lambda cell: float(np.median(cell.curves[measure][:, -1])))
    with_planner: dict[tuple[str, ...], CellCurves] = {}
    alone: dict[tuple[str, ...], CellCurves] = {}
    for cell in ranked:
        with_planner.setdefault((cell.learner, cell.planner or ""), cell)
        alone.setdefault((cell.learner,), cell)
    best = with_planner if len(with_planner) <= MOST_CURVES else alone
    return tuple(sorted(list(best.values())[:MOST_CURVES], key=cells.index))


def _drawable(problem: ProblemCells, measure: str, scale: str) -> list[CellCurves]:
    return [
        cell
        for cell in problem.cells
        if measure in cell.curves and (scale != "log" or cell.role != "upper")
    ]


def caption(
    panels: Sequence[tuple[ProblemCells, Sequence[CellCurves]]], measure: str, scale: str
) -> str:
    many = counts_text([len(cell.runs) for _, cells in panels for cell in cells])
    declared = measure_named(measure)
    unit = f" In units of {declared.unit}." if declared.unit else ""
    axes = {"log": "both axes logarithmic", "linear": "both axes linear"}[scale]
    names = ", ".join(problem.name for problem, _ in panels)
    words = (
        f"{declared.caption}{unit} On {names}. Lines are medians over {many} runs, bands reach "
        f"from the lower to the upper quartile; {axes}."
    )
    if scale == "log":
        words += " The grey line grows like the square root of t."
        if measure == REGRET.name:
            words += " Where a median is not positive, its line and band are interrupted."
        if any(cell.role == "upper" for problem, _ in panels for cell in problem.cells):
            words += " The optimal policy, whose regret is zero up to luck, is not drawn."
    elif any(cell.role == "lower" for _, cells in panels for cell in cells):
        words += " Random actions leave the panels upwards."
    if any(len(drawn) < len(_drawable(problem, measure, scale)) for problem, drawn in panels):
        words += (
            " Of each learner (with each planner) only the variant with the lowest median at the "
            "end is drawn."
        )
    return words


def regret_figure(
    panels: Sequence[tuple[ProblemCells, Sequence[CellCurves]]],
    measure: str,
    scale: str,
    looks: Mapping[str, Style],
) -> dict[str, bytes]:
    """Draw one panel per problem; return the file of each format."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        # Three columns fit on a page; four panels make a square.
        across = 2 if len(panels) == 4 else min(len(panels), 3)
        down = math.ceil(len(panels) / across)
        labels = list(dict.fromkeys(cell.label for _, cells in panels for cell in cells))
        figure = Figure(layout="constrained")
        axes = figure.subplots(down, across, squeeze=False)
        for place, ax in enumerate(axes.flat):
            if place >= len(panels):
                ax.set_visible(False)
                continue
            problem, cells = panels[place]
            draw_panel(ax, cells, measure, scale, looks)
            ax.set_title(titled(problem.name), loc="left", parse_math=False)
            if place + across >= len(panels):
                ax.set_xlabel("steps t")
            if place % across == 0:
                ax.set_ylabel(measure_named(measure).axis)
        width = max(3.4 * across, 4.6)
        lines = add_legend(figure, labels, looks, width)
        figure.set_size_inches(width, 2.5 * down + 0.19 * lines + 0.1)
        return saved(figure)


def paired_figure(
    rows: Sequence[tuple[str, Sequence[CellCurves], Sequence[CellCurves]]],
    measure: str,
    looks: Mapping[str, Style],
) -> dict[str, bytes]:
    """Draw one row of two panels per problem, each panel with its own linear scale."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(SETTINGS):
        figure = Figure(layout="constrained")
        axes = figure.subplots(len(rows), 2, squeeze=False)
        for place, ((name, left, right), pair) in enumerate(zip(rows, axes, strict=True)):
            for ax, cells in zip(pair, (left, right), strict=True):
                draw_panel(ax, cells, measure, "linear", looks)
                if place == len(rows) - 1:
                    ax.set_xlabel("steps t")
            pair[0].set_ylabel(measure_named(measure).axis)
            pair[0].set_title(name, loc="left", parse_math=False)
            pair[1].set_title(f"{name}, enlarged, with ours", loc="left", parse_math=False)
        labels = list(
            dict.fromkeys(cell.label for _, left, right in rows for cell in (*left, *right))
        )
        lines = add_legend(figure, labels, looks, 7.0)
        figure.set_size_inches(7.0, 2.15 * len(rows) + 0.19 * lines + 0.1)
        return saved(figure)


def titled(name: str, most: int = 34) -> str:
    """Return a long id broken into lines after commas."""
    lines = [""]
    for part in re.findall(r"[^,]+,?|,", name):
        if lines[-1] and len(lines[-1]) + len(part) > most:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def draw_panel(
    ax: Axes, cells: Sequence[CellCurves], measure: str, scale: str, looks: Mapping[str, Style]
) -> None:
    """Draw the medians and quartile bands of some cells."""
    ends = []
    for place, cell in enumerate(cells):
        look = looks[cell.label]
        values = cell.curves[measure]
        low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        shown = middle
        if scale == "log":
            # Realised regret can be negative by luck and then has no logarithm.
            shown = np.where(middle > 0, middle, np.nan)
            floor = np.where(middle > 0, np.maximum(low, middle * 1e-3), np.nan)
            low, high = floor, np.where(middle > 0, high, np.nan)
        t = cell.t
        if cell.role not in ENDS:
            ax.fill_between(t, low, high, color=look.colour, alpha=0.16, linewidth=0)
        ax.plot(
            t,
            shown,
            color=look.colour,
            dashes=look.dash or (None, None),
            marker=look.marker,
            markevery=marked(t, scale, place, len(cells)),
            markeredgecolor="white",
            markeredgewidth=0.5,
        )
        ends.append(shown)
    last = max(int(cell.t[-1]) for cell in cells)
    if scale == "log":
        log_axes(ax, ends, last)
    else:
        ax.set_xlim(0, last)
        ax.set_ylim(*linear_limits(cells, measure))
        ax.locator_params(axis="x", nbins=5)
        ax.xaxis.set_major_formatter(thousands)
        ax.yaxis.set_major_formatter(thousands)


def linear_limits(cells: Sequence[CellCurves], measure: str) -> tuple[float, float]:
    """Return limits around all bands except the lower end's, which would flatten the others."""
    learners = [cell for cell in cells if cell.role != "lower"] or cells
    low = min(0.0, *(float(np.quantile(c.curves[measure], 0.25, axis=0).min()) for c in learners))
    high = max(float(np.quantile(c.curves[measure], 0.75, axis=0).max()) for c in learners)
    return low, max(high * 1.05, low + 1.0)


def log_axes(ax: Axes, ends: Sequence[Any], last: int) -> None:
    """Set logarithmic axes, with a line that grows like the square root of t."""
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlim(1, max(last, 10))
    finite = np.concatenate([e[np.isfinite(e)] for e in ends])
    if finite.size == 0:
        ax.set_ylim(0.1, 10)
        ax.annotate("no median is positive", (0.5, 0.5), xycoords="axes fraction", ha="center")
        return
    top = float(finite.max())
    # At most four decades, since the first steps would otherwise take most of the panel.
    bottom = max(float(finite.min()), top * 1e-4) * 0.7
    ax.set_ylim(bottom, max(top * 1.6, bottom * 10))
    guide = np.array([1.0, float(last)])
    level = math.sqrt(bottom * top) / math.sqrt(math.sqrt(last))
    ax.plot(guide, level * np.sqrt(guide), color="#888888", linewidth=0.8, zorder=1)
    ax.annotate(
        "∝ √t",
        (1.2, level * math.sqrt(1.2)),
        textcoords="offset points",
        xytext=(0, 9),
        color="#666666",
        fontsize=FONT_SIZE - 1,
    )


def marked(t: Any, scale: str, place: int, of: int) -> list[int]:
    """Return the checkpoints with a marker: spread evenly on the axis, staggered by learner."""
    steps = np.arange(6) + (place + 0.5) / max(of, 1)
    if scale == "log":
        wanted = np.exp(np.log(max(float(t[-1]), 2.0)) * steps / 6)
    else:
        wanted = float(t[-1]) * steps / 6
    return sorted({int(np.abs(t - w).argmin()) for w in wanted})


def thousands(value: float, _position: float) -> str:
    short = value == int(value) and abs(value) < 1e12  # not the 300 digits of 1e300
    return f"{value:,.0f}" if short else f"{value:g}"


def add_legend(
    figure: Figure, labels: Sequence[str], looks: Mapping[str, Style], width: float
) -> int:
    """Add one legend above all panels; return the number of its rows."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D(
            [],
            [],
            color=looks[label].colour,
            dashes=looks[label].dash or (None, None),
            marker=looks[label].marker,
            markeredgecolor="white",
            markeredgewidth=0.5,
        )
        for label in labels
    ]
    longest = max(map(len, labels))
    fits = max(1, int(width / (0.45 + 0.085 * longest)))
    rows = math.ceil(len(labels) / fits)
    legend = figure.legend(
        handles,
        # Matplotlib hides labels that begin with "_"; a zero-width space prevents that.
        [f"\u200b{label}" if label.startswith("_") else label for label in labels],
        loc="outside upper center",
        ncols=math.ceil(len(labels) / rows),
        frameon=False,
        handlelength=3.2,
        columnspacing=1.4,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a "$" in a label is shown as it is
    return rows


def saved(figure: Figure) -> dict[str, bytes]:
    """Return the file of each format."""
    files = {}
    with warnings.catch_warnings():
        # A character that the font lacks is drawn as a box.
        warnings.filterwarnings("ignore", message="(?s)Glyph .* missing from font")
        # Lay out once, not again for every format.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for kind in FORMATS:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=kind, metadata=UNDATED[kind])
            files[kind] = buffer.getvalue()
    return files
