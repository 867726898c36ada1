"""Who is ahead, in words and in one figure: ratios to the best learner, and what a step costs.

The figure is a table in colours. A row is a learner, those that run on most problems first and of
them the lowest geometric mean of its ratios; a column is a problem. A number is the median regret
divided by that of the best learner there (1: nobody is better), and the colour its logarithm; a
hatched field is a pair that does not fit. Beside it the processor time a step: a dot at the median
over the problems, a line from the cheapest to the dearest. It stays legible with twenty learners on
as many problems, where curves do not.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fmdp.experiments.standings import Overall, Standing, overall
from fmdp.experiments.store import LeftOut
from fmdp.reports.analysis import Analysis
from fmdp.reports.cells import MEASURES, Runs
from fmdp.reports.figures import FONT_SIZE, SETTINGS, Drawing, saved, titled
from fmdp.reports.style import COLOURS, GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOUR_MAP = "YlOrBr"  # light to dark in one direction, so that grey printers keep the order
MOST_RATIO = 100.0
"""Where the colours end: what is a hundred times worse is not told from what is a thousand."""
_TOP = -1.6  # of both panels: a line above the first row is for what a 1 stands for
MOST_NAMED = 6
"""Problems that a sentence lists by name."""


def is_comparison(found: Sequence[Standing]) -> bool:
    """Whether two learners meet on some problem."""
    learners: dict[tuple[str, int], set[str]] = {}
    for one in found:
        if one.role == "learner":
            learners.setdefault((one.problem, one.steps), set()).add(one.label)
    return any(len(labels) > 1 for labels in learners.values())


def by_problem(found: Sequence[Standing]) -> dict[tuple[str, int], list[Standing]]:
    """(problem, steps) -> its standings, the lowest median first."""
    sorted_out: dict[tuple[str, int], list[Standing]] = {}
    for one in found:
        sorted_out.setdefault((one.problem, one.steps), []).append(one)
    return sorted_out


def ranked(found: Sequence[Standing]) -> list[Overall]:
    """Over all problems: the optimal policy, learners that ran on more of them before those that
    ran on fewer, then what does not learn; each by the mean ratio."""
    place = {"upper": 0, "learner": 1, "baseline": 2, "lower": 3}
    return sorted(overall(found), key=lambda one: (place[one.role], -one.problems))


# ---- in words -----------------------------------------------------------------------------------


def sentences(runs: Runs, analysis: Analysis) -> tuple[str, ...]:
    """Who has the lowest medians, and what a step costs; nothing where no two learners meet."""
    found = runs.standings
    if not is_comparison(found):
        return ()
    problems = by_problem(found)
    if len(problems) == 1:
        return (_of_one(next(iter(problems.values())), analysis), _of_cost(found))
    return (_of_all(found), *_of_means(found, len(problems)), _of_cost(found))


def first_of(own: Sequence[Standing]) -> list[Standing]:
    """The learners that nobody is ahead of: one, but for ties."""
    return [one for one in own if one.place == 1]


def verdict(own: Sequence[Standing], analysis: Analysis) -> str:
    """Whether the first differs from the second by more than luck, on the seeds of both."""
    learners = [one for one in own if one.role == "learner"]
    if len(learners) < 2:
        return "no other learner is there"
    one, two = learners[:2]
    for found in analysis.comparisons:
        if (found.problem, found.measure) == (one.problem, one.measure) and {
            found.first,
            found.second,
        } == {one.label, two.label}:
            return found.verdict
    return "no difference shown"


def _of_one(own: Sequence[Standing], analysis: Analysis) -> str:
    learners = [one for one in own if one.role == "learner"]
    first, second = learners[0], learners[1]

    def numbers(one: Standing) -> str:
        worst = number_text(one.worst)
        return f"{number_text(one.median)} (mean {mean_text(one)}, worst run {worst})"

    return (
        f"On {first.problem} {first.label} has the lowest median {MEASURES[first.measure]}, "
        f"{numbers(first)}, before {second.label} with {numbers(second)}; on the same seeds "
        f"(signed-rank, Holm): {verdict(own, analysis)}."
    )


def _of_all(found: Sequence[Standing]) -> str:
    problems = by_problem(found)
    won: dict[str, list[str]] = {}
    for (name, _), own in problems.items():
        for one in first_of(own):
            won.setdefault(one.label, []).append(name)
    told = []
    for label, names in sorted(won.items(), key=lambda item: -len(item[1])):
        where = f" ({', '.join(names)})" if len(names) <= MOST_NAMED else ""
        told.append(f"{label} on {len(names)}{where}")
    return f"The lowest median {_measures(found)} of {len(problems)} problems: {'; '.join(told)}."


def _of_means(found: Sequence[Standing], many: int) -> tuple[str, ...]:
    rows = [
        one
        for one in ranked(found)
        if one.role == "learner" and one.problems == many and one.ratio_mean is not None
    ]
    if len(rows) < 2:
        return ()
    told = ", ".join(
        f"{one.label} {ratio_text(one.ratio_mean)} (at most {ratio_text(one.ratio_largest)})"
        for one in rows[:3]
    )
    sentence = (
        f"Of the {len(rows)} learners that ran on all of them, the lowest medians in units of each "
        f"problem's best, geometric mean over the problems: {told}."
    )
    return (sentence,)


def _of_cost(found: Sequence[Standing]) -> str:
    rows = [one for one in overall(found) if one.role == "learner"]
    by_cost = sorted(rows, key=lambda one: one.seconds_per_step)
    cheap, dear = by_cost[0], by_cost[-1]
    clocks = {one.clock for one in found}
    clock = "processor time" if clocks == {"processor"} else "wall clock, at least in part,"
    return (
        f"A step costs from {per_step(cheap.seconds_per_step)} ({cheap.label}) to "
        f"{per_step(dear.seconds_per_step)} ({dear.label}) of {clock} in the median."
    )


def per_step(seconds: float) -> str:
    """ "12 µs", "3.4 ms", "1.2 s": two digits are all that a time is worth."""
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * unit or name == "µs":
            value = seconds / unit
            return f"{value:,.0f} {name}" if value >= 10 else f"{value:.2g} {name}"
    raise AssertionError("the last unit takes everything")


def number_text(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def mean_text(one: Standing) -> str:
    """Return the mean, with half the width of its 95 % interval where there is one."""
    mean = number_text(one.mean)
    if one.mean_low is None or one.mean_high is None:
        return mean
    return f"{mean} ± {number_text((one.mean_high - one.mean_low) / 2)}"


def ratio_text(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2f}" if value < 2 else f"{value:.1f}"


# ---- the figure ---------------------------------------------------------------------------------


def figure(found: Sequence[Standing], left_out: Sequence[LeftOut]) -> Drawing:
    """Every learner on every problem, and what a step costs."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    problems = by_problem(found)
    rows = [one for one in ranked(found) if one.role != "upper"]
    with mpl.rc_context(SETTINGS):
        drawing = Figure(layout="constrained")
        widths = (len(problems) + 1.4, 4.2)
        left, right = drawing.subplots(1, 2, width_ratios=widths, squeeze=False)[0]
        _table(left, rows, problems, {(one.problem, one.label) for one in left_out})
        # With few problems the table is narrower than its title on one line.
        title = f"median {_measures(found)}, best = 1"
        title = title.replace(", best", ",\nbest") if len(problems) < 4 else title
        left.set_title(title, loc="left", parse_math=False)
        _costs(right, rows, found)
        drawing.set_size_inches(5.4 + 0.5 * len(problems), 1.9 + 0.25 * len(rows))
        files = saved(drawing)
    return Drawing("standings", files, caption(found))


def caption(found: Sequence[Standing]) -> str:
    """The words that belong under the figure."""
    counts = sorted({one.runs for one in found})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    steps = sorted({one.steps for one in found})
    return (
        f"Median {_measures(found)} after {' and '.join(f'{n:,}' for n in steps)} steps over "
        f"{many} runs, divided by that of the best learner of the problem, which is the first "
        f"line; colours are logarithmic up to {MOST_RATIO:g}. The first column is the geometric "
        f"mean over the problems on which the learner ran; hatched: the pair does not fit. Right: "
        f"{_clock(found)} a step, the median over the problems and the range."
    )


def _measures(found: Sequence[Standing]) -> str:
    names = sorted({one.measure for one in found})
    return " or ".join(MEASURES[name] for name in names)


def _clock(found: Sequence[Standing]) -> str:
    return "processor time" if {one.clock for one in found} == {"processor"} else "time"


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
        own = Rectangle((x - 0.5, y - 0.5), 1, 1, **looks)
        own.set_in_layout(False)  # hundreds of them, all inside the axes
        ax.add_patch(own)

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
        for x, ((name, _), own) in enumerate(problems.items()):
            found = next((one for one in own if one.label == row.label), None)
            if found is not None:
                text = number_text(found.median) if found.ratio is None else ratio_text(found.ratio)
                field(x, y, found.ratio, text, best=found.place == 1)
            elif (name, row.label) in left_out:
                patch(x, y, facecolor="white", edgecolor="#BBBBBB", hatch="////", linewidth=0.0)
    for x, own in enumerate(problems.values()):
        ax.text(x, -1.1, _best(own), ha="center", va="center", fontsize=FONT_SIZE - 1.5)
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


def _best(own: Sequence[Standing]) -> str:
    first = first_of(own)
    return number_text(first[0].median) if first else "-"


def _costs(ax: Axes, rows: Sequence[Overall], found: Sequence[Standing]) -> None:
    ticks = []
    for y, row in enumerate(rows):
        own = [max(one.seconds_per_step, 1e-9) for one in found if one.label == row.label]
        colour = GREY[0] if row.role != "learner" else COLOURS[0][0]
        ax.plot([min(own), max(own)], [y, y], color=colour, linewidth=1.2, solid_capstyle="round")
        ax.plot([float(np.median(own))], [y], "o", color=colour, markersize=4.5)
        ticks += own
    low, high = (math.log10(edge(ticks)) for edge in (min, max))
    ax.set_xscale("log")
    ax.set_xlim(10 ** (math.floor(low) - 0.1), 10 ** (math.ceil(high) + 0.1))
    decades = [10.0**n for n in range(math.floor(low), math.ceil(high) + 1)]
    ax.set_xticks(decades, [per_step(value) for value in decades], rotation=90)
    ax.minorticks_off()
    ax.set_yticks(range(len(rows)), [""] * len(rows))
    ax.set_ylim(len(rows) - 0.45, _TOP)
    ax.tick_params(axis="y", length=0)
    ax.set_title("time a step", loc="left", parse_math=False)
