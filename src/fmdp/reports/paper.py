"""Figure 2 of Xu & Tewari (2020) drawn from a store, and how our numbers stand to their claims.

A store holds the figure if it has PSRL, DORL and f-Rmax, planned by approximate linear programming,
on some of the paper's four problems; models are known by content, whatever the spec calls them.
The paper prints curves and no numbers, so its claims are what can be compared:

1. PSRL and DORL perform alike (it excepts three-leg 4): medians within a factor CLOSE.
2. Both are far better than f-Rmax: its median is at least FAR times theirs.
3. Both end near-optimal in spite of the approximate planner: in the second half of the run they
   lose at most NEAR of the optimal gain.
4. The best constants are about c = 0.75 (PSRL) and c = 0.03 (DORL); told where a search was run.

Each is decided by the numbers, problem by problem, and either outcome is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fmdp.problems import problem
from fmdp.reports.analysis import Analysis
from fmdp.reports.cells import REALISED, Cell, Problem, Runs
from fmdp.reports.figures import Drawing, paired_figure
from fmdp.reports.style import styles

PROBLEMS = ("circle:4", "circle:7", "three-leg:4", "three-leg:7")
CONSTANTS: Mapping[str, Mapping[str, float]] = {"psrl": {"c": 0.75}, "dorl": {"c": 0.03}}
NAMES = {"psrl": "PSRL", "dorl": "DORL", "frmax": "f-Rmax"}
PLANNER = "alp"

CLOSE = 1.5
FAR = 3.0
NEAR = 0.02


@dataclass(frozen=True, eq=False)
class Panel:
    """One problem of the figure: the paper's three learners, and all others as ours."""

    name: str
    problem: Problem
    theirs: Mapping[str, Cell]
    """psrl, dorl, frmax."""
    ours: tuple[Cell, ...]


@cache
def _hashes() -> Mapping[str, str]:
    return {problem(name).content_hash: name for name in PROBLEMS}


def panels(runs: Runs) -> list[Panel]:
    """The paper's problems in its order, as far as the store has them with all three learners.
    Of runs of several lengths (a first look, then the figure) the longest count."""
    found = {}
    for own in runs.problems:
        name = _hashes().get(own.model_hash)
        if name is None:
            continue
        longest = max(cell.steps for cell in own.cells)
        cells = [cell for cell in own.cells if cell.steps == longest]
        theirs = {learner: _theirs(cells, learner) for learner in NAMES}
        known = {learner: cell for learner, cell in theirs.items() if cell is not None}
        if len(known) == len(NAMES):
            ours = tuple(cell for cell in cells if cell.planner != PLANNER)
            found[name] = Panel(name, own, known, ours)
    return [found[name] for name in PROBLEMS if name in found]


def _theirs(cells: Sequence[Cell], learner: str) -> Cell | None:
    """The cell with the paper's constants; after a search without them, the best."""
    cells = [c for c in cells if c.learner == learner and c.planner == PLANNER]
    exactly = [
        cell
        for cell in cells
        if all(cell.parameters.get(k) == v for k, v in CONSTANTS.get(learner, {}).items())
    ]
    # The paper takes the best m of f-Rmax for each experiment.
    return min(exactly or cells, key=_median, default=None)


def _median(cell: Cell) -> float:
    ends = cell.ends(REALISED)
    return float("inf") if ends is None else float(np.median(ends))


def figure(runs: Runs, found: Sequence[Panel]) -> Drawing:
    """A row a problem: the paper's learners on the left, ours beside them."""
    shown = _on_their_scale(found)
    rows = [
        (
            panel.name,
            tuple(panel.theirs.values()),
            (
                panel.theirs["psrl"],
                panel.theirs["dorl"],
                *(cell for cell in panel.ours if cell.label in shown),
            ),
        )
        for panel in found
    ]
    looks = styles([cell for _, left, right in rows for cell in (*left, *right)], runs.cells)
    counts = sorted({len(cell.runs) for panel in found for cell in panel.theirs.values()})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = (
        f"Realised regret on the problems of Xu & Tewari (2020), Figure 2. Left: the paper's "
        f"learners with its planner (approximate linear programming, single-variable bases) and "
        f"its constants. Right: PSRL and DORL again, and beside them what this library adds, as "
        f"far as it is on their scale. Medians over {many} runs, bands from the lower to the upper "
        f"quartile; reward is the number of machines that work."
    )
    return Drawing("figure-2", paired_figure(rows, REALISED, looks), caption)


MOST_OF_OURS = 6


def _on_their_scale(found: Sequence[Panel]) -> frozenset[str]:
    """Labels of ours to draw, the same in every panel: those that nowhere dwarf PSRL and DORL, and
    of them the lowest by the geometric mean of their medians in units of PSRL's and DORL's."""
    scores: dict[str, list[float]] = {}
    for panel in found:
        scale = max(1.0, *(_median(panel.theirs[learner]) for learner in ("psrl", "dorl")))
        for cell in panel.ours:
            scores.setdefault(cell.label, []).append(_median(cell) / scale)
    fitting = {
        label: float(np.mean(np.log(np.maximum(ratios, 1e-3))))
        for label, ratios in scores.items()
        if len(ratios) == len(found) and max(ratios) <= FAR
    }
    return frozenset(sorted(fitting, key=fitting.__getitem__)[:MOST_OF_OURS])


def paragraphs(runs: Runs, analysis: Analysis) -> tuple[str, ...]:
    """How the store's numbers stand to the paper's claims; nothing for any other store."""
    found = panels(runs)
    if not found:
        return ()
    told = [
        _opening(found),
        _close(found),
        _far(found, analysis),
        _near_optimal(found),
        *_search(found),
    ]
    return (" ".join(told), *_ours(found))


def _opening(found: Sequence[Panel]) -> str:
    cells = [cell for panel in found for cell in panel.theirs.values()]
    steps = sorted({cell.steps for cell in cells})
    counts = sorted({len(cell.runs) for cell in cells})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"Xu & Tewari (2020) print curves and no numbers for their Figure 2, so what can be "
        f"compared are their claims; the numbers here are medians of realised regret after "
        f"{' and '.join(f'{n:,}' for n in steps)} steps over {many} runs, with their planner "
        f"and constants."
    )


def _close(found: Sequence[Panel]) -> str:
    numbers = []
    close: list[str] = []
    apart: list[str] = []
    for panel in found:
        psrl, dorl = _median(panel.theirs["psrl"]), _median(panel.theirs["dorl"])
        numbers.append(f"{psrl:,.0f} and {dorl:,.0f} on {panel.name}")
        (close if _ratio(psrl, dorl) <= CLOSE else apart).append(panel.name)
    told = "; ".join(numbers)
    claim = "Their first claim, that PSRL and DORL perform alike,"
    if not apart:
        return f"{claim} holds here, within a factor of {CLOSE:g}: {told}."
    if not close:
        return f"{claim} does not hold here, on no problem within a factor of {CLOSE:g}: {told}."
    excepted = " (the one problem that the paper excepts)" if apart == ["three-leg:4"] else ""
    return (
        f"{claim} holds here on {_listed(close)} but not on {_listed(apart)}{excepted}, where a "
        f"factor of {CLOSE:g} counts as alike: {told}."
    )


def _far(found: Sequence[Panel], analysis: Analysis) -> str:
    claim = "Their second, that both are far below f-Rmax,"
    factors, failing, shown = [], [], True
    for panel in found:
        frmax = _median(panel.theirs["frmax"])
        worse = max(_median(panel.theirs[learner]) for learner in ("psrl", "dorl"))
        factor = frmax / worse if worse > 0 else float("inf")
        factors.append(factor)
        if factor < FAR:
            failing.append(f"{panel.name} ({factor:.1f} times)")
        shown = shown and all(
            _significant(analysis, panel, learner) for learner in ("psrl", "dorl")
        )
    paired = (
        "on the same seeds the difference is significant throughout (signed-rank, Holm)"
        if shown
        else "on the same seeds the difference is not significant everywhere (signed-rank, Holm)"
    )
    if not failing:
        span = _span(factors)
        return f"{claim} holds: its median is {span} times the worse of the two; {paired}."
    if len(failing) == len(found):
        return f"{claim} does not hold: {_listed(failing)}; {paired}."
    return (
        f"{claim} does not hold on {_listed(failing)}, where {FAR:g} times counts as far; it does "
        f"on the others; {paired}."
    )


def _significant(analysis: Analysis, panel: Panel, learner: str) -> bool:
    first, second = panel.theirs[learner], panel.theirs["frmax"]
    for comparison in analysis.comparisons:
        if comparison.measure == REALISED and comparison.problem == first.problem:
            labels = {comparison.first, comparison.second}
            if labels == {first.label, second.label}:
                return comparison.verdict == f"{first.label} is better"
    return False


def _near_optimal(found: Sequence[Panel]) -> str:
    claim = "Their third, that both end near-optimal in spite of the approximate planner,"
    losses = {
        (panel.name, NAMES[learner]): _late_loss(panel.theirs[learner], panel.problem.gain)
        for panel in found
        for learner in ("psrl", "dorl")
    }
    known = {place: loss for place, loss in losses.items() if loss is not None}
    if not known:
        return f"{claim} cannot be judged here: no exact gain is known."
    worst = max(known.values())
    bad = [f"{name} on {where}" for (where, name), loss in known.items() if loss > NEAR]
    if not bad:
        return (
            f"{claim} holds: in the second half of the steps they lose at most "
            f"{max(worst, 0.0):.1%} of the optimal gain."
        )
    return (
        f"{claim} does not hold for {_listed(bad)}: in the second half of the steps up to "
        f"{worst:.1%} of the optimal gain is lost, where {NEAR:.0%} counts as near."
    )


def _late_loss(cell: Cell, gain: float | None) -> float | None:
    """Median over the runs of the loss a step in the second half, as a share of the gain."""
    if gain is None or gain <= 0 or len(cell.t) < 2:
        return None
    middle = int(np.abs(cell.t - cell.t[-1] / 2).argmin())
    if middle == len(cell.t) - 1:
        middle -= 1
    values = cell.curves[REALISED]
    steps = int(cell.t[-1] - cell.t[middle])
    return float(np.median(values[:, -1] - values[:, middle])) / steps / gain


def _search(found: Sequence[Panel]) -> list[str]:
    """Claim 4, where the store has several constants of a learner."""
    told = []
    for learner, constants in CONSTANTS.items():
        paper = constants["c"]
        best = {}
        for panel in found:
            cells = [
                cell
                for cell in panel.problem.cells
                if cell.learner == learner
                and cell.planner == PLANNER
                and cell.steps == panel.theirs[learner].steps
                and "c" in cell.parameters
            ]
            if len({cell.parameters["c"] for cell in cells}) > 1:
                best[panel.name] = float(min(cells, key=_median).parameters["c"])
        if not best:
            continue
        where = _listed([f"{value:g} on {name}" for name, value in best.items()])
        near = all(_ratio(value, paper) <= 3 for value in best.values())
        verdict = (
            "which agrees with the paper's" if near else "which is not everywhere near the paper's"
        )
        told.append(
            f"In the search the best c of {NAMES[learner]} was {where}, {verdict} {paper:g}."
        )
    return told


def _ours(found: Sequence[Panel]) -> tuple[str, ...]:
    """What the library adds: the lowest median of ours beside the lowest of the paper's."""
    parts, lower = [], 0
    for panel in found:
        rivals = [cell for cell in panel.ours if cell.learner not in ("oracle", "random")]
        if not rivals:
            continue
        best = min(rivals, key=_median)
        theirs = min((panel.theirs[k] for k in ("psrl", "dorl")), key=_median)
        lower += _median(best) < _median(theirs)
        parts.append(
            f"on {panel.name} {best.label}: {_median(best):,.0f} (worst run {_worst(best):,.0f}) "
            f"against {theirs.label}: {_median(theirs):,.0f} (worst {_worst(theirs):,.0f})"
        )
    if not parts:
        return ()
    verdict = (
        f"is lower on all {len(parts)}"
        if lower == len(parts)
        else f"is lower on {lower} of {len(parts)}"
        if lower
        else "is lower on none"
    )
    told = "; ".join(parts)
    opening = "Beside the paper's learners, the lowest median of ours, picked after the fact,"
    return (f"{opening} {verdict}. {told[0].upper()}{told[1:]}.",)


def _worst(cell: Cell) -> float:
    ends = cell.ends(REALISED)
    return float("nan") if ends is None else float(ends.max())


def _ratio(one: float, two: float) -> float:
    low, high = sorted((one, two))
    return high / low if low > 0 else float("inf") if high > 0 else 1.0


def _span(values: Sequence[float]) -> str:
    low, high = f"{min(values):.1f}", f"{max(values):.1f}"
    return low if low == high else f"{low} to {high}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
