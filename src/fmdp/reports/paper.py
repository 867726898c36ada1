"""Figure 2 of Xu & Tewari (2020) drawn from a store, and how our numbers stand to their claims.

A store holds the figure if it has PSRL, DORL and f-Rmax, planned by approximate linear programming,
on some of the paper's four problems; models are known by content, whatever the spec calls them.
The paper prints curves and no numbers, so its claims are what can be compared:

1. PSRL and DORL perform alike (it excepts three-leg 4): medians within a factor CLOSE.
2. Both are far better than f-Rmax: its median is at least FAR times theirs.
3. Both end near-optimal in spite of the approximate planner: in the second half of the run they
   lose at most NEAR of the optimal gain.
4. The best constants are about c = 0.75 (PSRL) and c = 0.03 (DORL), and m = 300 or 500 (f-Rmax);
   told where a search was run.

Beside them: whether f-Rmax with the paper's m is better than random actions, and FSRL, the paper's
third algorithm, which it does not run. Each is decided by the numbers, problem by problem, and
either outcome is said. The problems are single instances of random tables (`xu` dynamics, seed=1),
and the figure and the text say so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fmdp.problems import problem
from fmdp.reports.analysis import Analysis
from fmdp.reports.cells import REALISED, Cell, Compared, Runs
from fmdp.reports.figures import Drawing, paired_figure
from fmdp.reports.style import styles

PROBLEMS = ("circle:4", "circle:7", "three-leg:4", "three-leg:7")
KNOWN_AFTER = {"circle:4": 300, "circle:7": 500, "three-leg:4": 500, "three-leg:7": 500}
"""The m of f-Rmax in the paper's figure."""
NAMES = {"psrl": "PSRL", "dorl": "DORL", "frmax": "f-Rmax"}
PLANNER = "alp"
THIRD = "fsrl"


def constant(learner: str, problem_name: str) -> tuple[str, float]:
    """The one parameter that the paper searched, and its value in the figure."""
    if learner == "frmax":
        return "m", KNOWN_AFTER[problem_name]
    return "c", {"psrl": 0.75, "dorl": 0.03}[learner]


CLOSE = 1.5
FAR = 3.0
NEAR = 0.02


@dataclass(frozen=True, eq=False)
class Panel:
    """One problem of the figure: the paper's learners, and all others as ours."""

    name: str
    problem: Compared
    theirs: Mapping[str, Cell]
    """psrl, dorl, frmax."""
    third: Cell | None
    """FSRL, if the store has it: with the paper's c and, of several, without a given budget."""
    ours: tuple[Cell, ...]

    @property
    def papers(self) -> tuple[Cell, ...]:
        """The paper's algorithms: PSRL, DORL, FSRL if there, f-Rmax."""
        third = () if self.third is None else (self.third,)
        return (self.theirs["psrl"], self.theirs["dorl"], *third, self.theirs["frmax"])


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
        theirs = {learner: _theirs(cells, learner, name) for learner in NAMES}
        known = {learner: cell for learner, cell in theirs.items() if cell is not None}
        if len(known) == len(NAMES):
            third = _third(cells)
            ours = tuple(c for c in cells if c.planner != PLANNER and c is not third)
            found[name] = Panel(name, own, known, third, ours)
    return [found[name] for name in PROBLEMS if name in found]


def _theirs(cells: Sequence[Cell], learner: str, name: str) -> Cell | None:
    """The cell with the paper's constant; after a search without it, the best."""
    cells = [c for c in cells if c.learner == learner and c.planner == PLANNER]
    parameter, value = constant(learner, name)
    exactly = [cell for cell in cells if cell.parameters.get(parameter) == value]
    return min(exactly or cells, key=_median, default=None)


def _third(cells: Sequence[Cell]) -> Cell | None:
    cells = [cell for cell in cells if cell.learner == THIRD]
    if not cells:
        return None
    c = constant("dorl", "")[1]
    return min(cells, key=lambda cell: (cell.parameters.get("c") != c, bool(_budget(cell))))


def _budget(cell: Cell) -> object:
    """What FSRL was given; nothing if it finds its own."""
    return cell.parameters.get("budget") or cell.planner_settings.get("budget")


def _median(cell: Cell) -> float:
    ends = cell.ends(REALISED)
    return float("inf") if ends is None else float(np.median(ends))


def figure(runs: Runs, found: Sequence[Panel]) -> Drawing:
    """A row a problem: the paper's learners on the left, ours beside them."""
    shown = _on_their_scale(found)
    rows = []
    for panel in found:
        ours = tuple(cell for cell in panel.ours if cell.label in shown)
        rows.append((panel.name, panel.papers, (*panel.papers[:-1], *ours)))
    looks = styles([cell for _, left, right in rows for cell in (*left, *right)], runs.cells)
    counts = sorted({len(cell.runs) for panel in found for cell in panel.theirs.values()})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    beside = (
        ", and its third algorithm, FSRL, which it does not run, with the span planner"
        if any(panel.third is not None for panel in found)
        else ""
    )
    caption = (
        f"Realised regret on the problems of Xu & Tewari (2020), Figure 2: one instance of the "
        f"random tables of each network (seed=1). Left: the paper's "
        f"learners with its planner (approximate linear programming, single-variable bases) and "
        f"its constants{beside}. Right: the same without f-Rmax, and beside them what this library "
        f"adds, as far as it is on their scale. Medians over {many} runs, bands from the lower to "
        f"the upper quartile; reward is the number of machines that work."
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
        *_against_random(found),
        _near_optimal(found),
        *_search(found),
    ]
    return (" ".join(told), *_fsrl(found), *_ours(found))


def _opening(found: Sequence[Panel]) -> str:
    cells = [cell for panel in found for cell in panel.theirs.values()]
    steps = sorted({cell.steps for cell in cells})
    counts = sorted({len(cell.runs) for cell in cells})
    many = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return (
        f"Xu & Tewari (2020) print curves and no numbers for their Figure 2, so what can be "
        f"compared are their claims; the numbers here are medians of realised regret after "
        f"{' and '.join(f'{n:,}' for n in steps)} steps over {many} runs, with their planner "
        f"and constants. Every network is one instance of its random tables (seed=1), so whatever "
        f"holds here holds on these instances."
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
    for learner in NAMES:
        searched = {}
        for panel in found:
            parameter = constant(learner, panel.name)[0]
            cells = [
                cell
                for cell in panel.problem.cells
                if cell.learner == learner
                and cell.planner == PLANNER
                and cell.steps == panel.theirs[learner].steps
                and parameter in cell.parameters
            ]
            if len({cell.parameters[parameter] for cell in cells}) > 1:
                searched[panel] = cells
        if searched:
            told.append(_winners(learner, searched))
    return told


def _winners(learner: str, searched: Mapping[Panel, Sequence[Cell]]) -> str:
    best = {panel: min(cells, key=_median) for panel, cells in searched.items()}
    parameter = constant(learner, next(iter(best)).name)[0]
    won = {panel: float(cell.parameters[parameter]) for panel, cell in best.items()}
    paper = {panel: constant(learner, panel.name)[1] for panel in best}
    opening = (
        f"In the search the best {parameter} of {NAMES[learner]} was "
        f"{_by_problem({panel.name: value for panel, value in won.items()})}"
    )
    if parameter == "c":
        near = all(_ratio(won[panel], paper[panel]) <= 3 for panel in best)
        verdict = "agrees with" if near else "is not everywhere near"
        return f"{opening}, which {verdict} the paper's {paper[next(iter(best))]:g}."
    where = _by_problem({panel.name: value for panel, value in paper.items()})
    if all(won[panel] == paper[panel] for panel in best):
        return f"{opening}, as in the paper."
    tried = {cell.parameters[parameter] for cells in searched.values() for cell in cells}
    least = ", the smallest tried" if set(won.values()) == {min(tried)} else ""
    factors = [
        _median(best[panel]) / max(_median(panel.theirs[k]) for k in ("psrl", "dorl"))
        for panel in best
    ]
    return (
        f"{opening}{least}, where the paper has {where}; even so its median is "
        f"{_span(factors)} times the worse of the other two."
    )


def _by_problem(values: Mapping[str, float]) -> str:
    """ "0.1 on circle:4 and circle:7 and 0.05 on three-leg:4", "100 on all 4 problems"."""
    places: dict[float, list[str]] = {}
    for name, value in values.items():
        places.setdefault(value, []).append(name)
    if len(places) == 1 and len(values) > 1:
        return f"{next(iter(places)):g} on all {len(values)} problems"
    return _listed([f"{value:g} on {_listed(names)}" for value, names in places.items()])


def _against_random(found: Sequence[Panel]) -> list[str]:
    """Is f-Rmax with the paper's m any better than no learning at all?"""
    worse: list[str] = []
    better: list[str] = []
    for panel in found:
        random = next((cell for cell in panel.ours if cell.role == "lower"), None)
        frmax = panel.theirs["frmax"]
        if random is None or frmax.parameters.get("m") != KNOWN_AFTER[panel.name]:
            continue
        own, other = _median(frmax), _median(random)
        told = f"{panel.name} ({own:,.0f} against {other:,.0f})"
        (worse if own > other else better).append(told)
    if not worse and not better:
        return []
    claim = "With the paper's m, f-Rmax is"
    many = len(worse) + len(better)
    if not worse:
        return [f"{claim} better than random actions: on {_listed(better)}."]
    if not better:
        return [f"{claim} worse than random actions: on {_listed(worse)}."]
    told = f"{claim} worse than random actions on {len(worse)} of {many} problems: on "
    return [f"{told}{_listed(worse)}; it is better on {_listed(better)}."]


def _fsrl(found: Sequence[Panel]) -> tuple[str, ...]:
    """The paper's third algorithm: what it was given, and what it came to."""
    known = [(panel, panel.third) for panel in found if panel.third is not None]
    if not known:
        return ()
    numbers = _listed([f"{_median(cell):,.0f} on {panel.name}" for panel, cell in known])
    budgets = {_told_budget(cell) for _, cell in known}
    ratios, beside = [], "DORL with the exact planner and the same c"
    for panel, cell in known:
        alike = [
            other
            for other in panel.ours
            if other.learner == "dorl"
            and all(other.parameters.get(k) == cell.parameters.get(k) for k in ("c", "episodes"))
        ]
        if not alike:
            beside = "DORL with the paper's planner"
        ratios.append(_median(cell) / max(_median((alike or [panel.theirs["dorl"]])[0]), 1e-9))
    constants = sorted({float(cell.parameters["c"]) for _, cell in known})
    told = (
        f"The paper's third algorithm, FSRL, is not in its figure, because how to plan under a "
        f"span budget was open; here it runs with the span planner, "
        f"c = {_listed([f'{c:g}' for c in constants])} and {_listed(sorted(budgets))}. Its "
        f"medians are {numbers}: {_span(ratios, 2)} times those of {beside}."
    )
    return (told,)


def _told_budget(cell: Cell) -> str:
    given = _budget(cell)
    if given:
        values = given if isinstance(given, (list, tuple)) else (given,)
        split = cell.planner_settings.get("split") or "uniform"
        divided = f", split {split}" if len(values) == 1 else ""
        return f"a budget of {' + '.join(f'{value:g}' for value in values)}{divided}"
    growth = cell.parameters.get("growth", 1.0)
    return (
        f"no budget given (it starts at {growth:g} times the sum of the reward ranges, is doubled "
        f"when the rewards refute it, and is at least log2(1 + t) times where it started)"
    )


def _ours(found: Sequence[Panel]) -> tuple[str, ...]:
    """What the library adds: the lowest median of ours beside the lowest of the paper's."""
    parts, lower = [], 0
    for panel in found:
        rivals = [cell for cell in panel.ours if cell.role == "learner"]
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


def _span(values: Sequence[float], digits: int = 1) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"


def _listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
