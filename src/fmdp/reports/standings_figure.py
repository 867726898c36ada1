"""The figure of the standings: ratios to the best learner, and the time per step.

The figure is a coloured table with one row per learner and one column per problem. Rows are sorted
by the number of problems, then by the geometric mean of the ratios. A number is the median regret
divided by that of the best learner (1: no learner is better), and its colour is logarithmic; a
hatched field is a pair that does not fit. On the right is the processor time per step: a dot at the
median over the problems, and a line from the smallest to the largest. The table stays legible with
twenty learners on as many problems, where curves do not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmdp.experiments.standings import Overall, Standing, by_problem, first_of, ranked
from fmdp.experiments.store import LeftOut
from fmdp.reports.figures import FONT_SIZE, SETTINGS, Drawing, saved, titled
from fmdp.reports.style import COLOURS, GREY
from fmdp.reports.wording import (
    measures_text,
    number_text,
    per_step,
    ratio_text,
    standings_caption,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR_MAP = "YlOrBr"  # monotone lightness, so that grey printers keep the order
MOST_RATIO = 100.0
"""End of the colour scale; larger ratios look the same."""
_TOP = -1.6  # leaves a line above the first row for the value of ratio 1


def figure(standings: Sequence[Standing], left_out: Sequence[LeftOut]) -> Drawing:
    """Draw the ratio of every learner on every problem, and the time per step."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    problems = by_problem(standings)
    rows = [row for row in ranked(standings) if row.role != "upper"]
    with mpl.rc_context(SETTINGS):
        drawing = Figure(layout="constrained")
        widths = (len(problems) + 1.4, 4.2)
        left, right = drawing.subplots(1, 2, width_ratios=widths, squeeze=False)[0]
        _table(left, rows, problems, {(pair.problem, pair.label) for pair in left_out})
        # With few problems the table is narrower than its title on one line.
        title = f"median {measures_text(standings)}, best = 1"
        title = title.replace(", best", ",\nbest") if len(problems) < 4 else title
        left.set_title(title, loc="left", parse_math=False)
        _costs(right, rows, standings)
        drawing.set_size_inches(5.4 + 0.5 * len(problems), 1.9 + 0.25 * len(rows))
        files = saved(drawing)
    return Drawing("standings", files, standings_caption(standings, MOST_RATIO))


def _table(
    ax: Axes,
    rows: Sequence[Overall],
    problems: Mapping[tuple[str, int], Sequence[Standing]],
    left_out: Collection[tuple[str, str]],
) -> None:
    import matplotlib as mpl
    from matplotlib.colors import LogNorm
    from matplotlib.patches import Rectangle

    colours, scale = mpl.colormaps[COLOUR_MAP], LogNorm(1.0, MOST_RATIO, clip=True)

    def patch(x: float, y: int, **looks: Any) -> None:
        square = Rectangle((x - 0.5, y - 0.5), 1, 1, **looks)
        square.set_in_layout(False)  # hundreds of them, all inside the axes
        ax.add_patch(square)

    def field(x: float, y: int, ratio: float | None, text: str, *, best: bool = False) -> None:
        colour: Any = "white" if ratio is None else colours(scale(max(ratio, 1.0)) * 0.85)
        patch(x, y, facecolor=colour, edgecolor="white", linewidth=0.8)
        red, green, blue = mpl.colors.to_rgb(colour)
        light = 0.3 * red + 0.59 * green + 0.11 * blue > 0.5
        written = ax.text(
            x,
            y,
            text,
            ha="center",
            va="center",
            fontsize=FONT_SIZE - 1.5,
            fontweight="bold" if best else "normal",
            color="black" if light else "white",
        )
        written.set_in_layout(False)

    for y, row in enumerate(rows):
        field(-1.2, y, row.ratio_mean, ratio_text(row.ratio_mean))
        for x, ((name, _), members) in enumerate(problems.items()):
            cell = next((member for member in members if member.label == row.label), None)
            if cell is not None:
                text = number_text(cell.median) if cell.ratio is None else ratio_text(cell.ratio)
                field(x, y, cell.ratio, text, best=cell.place == 1)
            elif (name, row.label) in left_out:
                patch(x, y, facecolor="white", edgecolor="#BBBBBB", hatch="////", linewidth=0.0)
    for x, members in enumerate(problems.values()):
        ax.text(x, -1.1, _best(members), ha="center", va="center", fontsize=FONT_SIZE - 1.5)
    names = [titled(name, 20) for name, _ in problems]
    ax.set_xticks([-1.2, *range(len(names))], ["geometric mean", *names], rotation=90)
    ax.set_yticks([-1.1, *range(len(rows))], ["lowest median", *(row.label for row in rows)])
    for tick in (*ax.get_xticklabels(), *ax.get_yticklabels()):
        tick.set_parse_math(False)
    ax.set_xlim(-1.75, len(names) - 0.45)
    ax.set_ylim(len(rows) - 0.45, _TOP)
    ax.tick_params(length=0)
    ax.grid(visible=False)
    for spine in ax.spines.values():
        spine.set_visible(False)


def _best(rows: Sequence[Standing]) -> str:
    first = first_of(rows)
    return number_text(first[0].median) if first else "-"


def _costs(ax: Axes, rows: Sequence[Overall], standings: Sequence[Standing]) -> None:
    ticks = []
    for y, row in enumerate(rows):
        times = [max(s.seconds_per_step, 1e-9) for s in standings if s.label == row.label]
        colour = GREY[0] if row.role != "learner" else COLOURS[0][0]
        ax.plot(
            [min(times), max(times)], [y, y], color=colour, linewidth=1.2, solid_capstyle="round"
        )
        ax.plot([float(np.median(times))], [y], "o", color=colour, markersize=4.5)
        ticks += times
    low, high = (math.log10(edge(ticks)) for edge in (min, max))
    ax.set_xscale("log")
    ax.set_xlim(10 ** (math.floor(low) - 0.1), 10 ** (math.ceil(high) + 0.1))
    decades = [10.0**n for n in range(math.floor(low), math.ceil(high) + 1)]
    ax.set_xticks(decades, [per_step(value) for value in decades], rotation=90)
    ax.minorticks_off()
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    ax.set_ylim(len(rows) - 0.45, _TOP)
    ax.tick_params(axis="y", length=0)
    ax.set_title("time per step", loc="left", parse_math=False)
