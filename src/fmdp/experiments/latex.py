"""Tables of results as LaTeX: one `tabular` with the rules of booktabs, for \\input in a paper."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

Record = Mapping[str, Any]
Column = tuple[str, str, Callable[[Record], str]]
"""The heading in LaTeX, the alignment (l or r), and the text of a row in LaTeX."""

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    # A bracket after the end of a row would be its optional argument.
    "[": "{[}",
    "]": "{]}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}


def escaped(text: object) -> str:
    """Return a text that LaTeX prints as it is."""
    return re.sub(r"[][\\~^<>&%$#_{}]", lambda found: _ESCAPES[found[0]], str(text))


def number(value: Any) -> str:
    """Return a number in mathematics, with three digits or as a whole number; a dash for none."""
    if value is None or not math.isfinite(value):
        return "--"
    text = f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"
    mantissa, exponent, power = text.partition("e")
    power = rf" \cdot 10^{{{int(power)}}}" if exponent else ""
    return f"${mantissa.replace(',', '{,}')}{power}$"


def interval(low: Any, high: Any) -> str:
    """Return the two ends of an interval; a dash for none."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return "--"
    return f"[{number(low)}, {number(high)}]"


def _text(key: str) -> Callable[[Record], str]:
    return lambda row: escaped(row[key])


def _number(key: str) -> Callable[[Record], str]:
    return lambda row: number(row[key])


def _interval(low: str, high: str) -> Callable[[Record], str]:
    return lambda row: interval(row[low], row[high])


def _measure(row: Record) -> str:
    return escaped(str(row["measure"]).replace("_", " "))


def _place(row: Record) -> str:
    return "" if row["place"] is None or math.isnan(row["place"]) else f"{row['place']:.0f}"


_PROBLEM: Column = ("Problem", "l", _text("problem"))
_LEARNER: Column = ("Learner", "l", _text("label"))
_RUNS: Column = ("Runs", "r", _number("runs"))
_MEDIAN: tuple[Column, ...] = (
    ("Median", "r", _number("median")),
    (r"95\,\%", "r", _interval("interval_low", "interval_high")),
)
_MEAN: tuple[Column, ...] = (
    ("Mean", "r", _number("mean")),
    (r"95\,\%", "r", _interval("mean_low", "mean_high")),
)
LAYOUTS: dict[str, tuple[Column, ...]] = {
    "standings": (
        _PROBLEM,
        ("Place", "r", _place),
        _LEARNER,
        *_MEDIAN,
        *_MEAN,
        ("Worst", "r", _number("worst")),
        (r"$\mu$s/step", "r", lambda row: number(1e6 * row["seconds_per_step"])),
    ),
    "summary": (
        _PROBLEM,
        _LEARNER,
        ("Measure", "l", _measure),
        _RUNS,
        *_MEDIAN,
        *_MEAN,
        ("Most", "r", _number("most")),
    ),
    "comparisons": (
        _PROBLEM,
        ("Measure", "l", _measure),
        ("First", "l", _text("first")),
        ("Second", "l", _text("second")),
        ("Seeds", "r", _number("seeds")),
        ("Median difference", "r", _number("median_difference")),
        (r"95\,\%", "r", _interval("interval_low", "interval_high")),
        ("$p$ (Holm)", "r", _number("p_holm")),
        ("Finding", "l", _text("finding")),
    ),
    "slopes": (
        _PROBLEM,
        _LEARNER,
        ("Measure", "l", _measure),
        _RUNS,
        ("Slope", "r", _number("slope")),
        (r"95\,\%", "r", _interval("slope_low", "slope_high")),
    ),
}
"""The columns of every table that has a LaTeX form."""


def latex(layout: str, table: Mapping[str, NDArray[Any]]) -> str:
    """Return a table of results in LaTeX."""
    names = [*table]
    rows = [dict(zip(names, values, strict=True)) for values in zip(*table.values(), strict=True)]
    columns = LAYOUTS[layout]
    return tabular(
        [head for head, _, _ in columns],
        [align for _, align, _ in columns],
        [[text(row) for _, _, text in columns] for row in rows],
    )


def tabular(heads: Sequence[str], aligns: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a tabular of cells that are LaTeX already."""
    lines = [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{tabular}}{{{''.join(aligns)}}}",
        r"\toprule",
        *(" & ".join(cells) + r" \\" for cells in (heads,)),
        r"\midrule",
        *(" & ".join(cells) + r" \\" for cells in rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"
