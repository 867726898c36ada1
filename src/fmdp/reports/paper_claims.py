"""Figure 2 of Xu & Tewari (2020) drawn from a store, and the paper's claims compared with it.

A store has the figure if it has PSRL, DORL and f-Rmax, planned by approximate linear programming,
on some of the paper's four problems (experiments/paper.py). The paper prints curves and no numbers,
so its claims are compared:

1. PSRL and DORL perform alike (except on three-leg 4): medians within a factor CLOSE.
2. Both are far better than f-Rmax: its median is at least FAR times theirs.
3. Both end near-optimal in spite of the approximate planner: in the second half of the run they
   lose at most NEAR of the optimal gain.
4. The best constants are about c = 0.75 (PSRL) and c = 0.03 (DORL), and m = 300 or 500 (f-Rmax);
   only for a store with a search.

In addition: whether f-Rmax with the paper's m is better than random actions, and FSRL, the paper's
third algorithm, which it does not run. The numbers decide each claim, problem by problem. The
problems are single instances of random tables (`xu` dynamics, seed=1), and the text says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fmdp.experiments.analysis import Analysis
from fmdp.experiments.dataset import CellCurves, Dataset
from fmdp.experiments.measures import REGRET
from fmdp.experiments.paper import (
    KNOWN_AFTER,
    NAMES,
    PLANNER,
    Panel,
    budget_of,
    constant,
    late_loss,
    median_regret,
    panels,
)
from fmdp.reports.figures import Drawing, paired_figure
from fmdp.reports.notes import counts_text
from fmdp.reports.style import styles
from fmdp.reports.wording import listed, share_text

CLOSE = 1.5
"""Largest ratio of medians that counts as alike."""
FAR = 3.0
"""Smallest ratio of medians that counts as far."""
NEAR = 0.02
"""Largest share of the gain lost in the second half of a run that counts as near-optimal."""
MOST_OF_OURS = 6
"""Most learners of ours in a panel."""


def figure(data: Dataset, figure_panels: Sequence[Panel]) -> Drawing:
    """Draw one row per problem: the paper's learners on the left, ours beside them."""
    shown = _on_their_scale(figure_panels)
    rows = []
    for panel in figure_panels:
        ours = tuple(cell for cell in panel.ours if cell.label in shown)
        rows.append((panel.name, panel.papers, (*panel.papers[:-1], *ours)))
    looks = styles([cell for _, left, right in rows for cell in (*left, *right)], data.cells)
    many = _run_counts(figure_panels)
    beside = (
        ", and its third algorithm, FSRL, which it does not run, with the span planner"
        if any(panel.third is not None for panel in figure_panels)
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
    return Drawing("figure-2", paired_figure(rows, REGRET.name, looks), caption)


def _on_their_scale(figure_panels: Sequence[Panel]) -> frozenset[str]:
    """Return the labels of ours to draw in every panel.

    They are nowhere above FAR times PSRL and DORL, and have the lowest geometric means of their
    medians in units of PSRL's and DORL's.
    """
    scores: dict[str, list[float]] = {}
    for panel in figure_panels:
        scale = max(1.0, *_psrl_and_dorl(panel))
        for cell in panel.ours:
            scores.setdefault(cell.label, []).append(median_regret(cell) / scale)
    fitting = {
        label: float(np.mean(np.log(np.maximum(ratios, 1e-3))))
        for label, ratios in scores.items()
        if len(ratios) == len(figure_panels) and max(ratios) <= FAR
    }
    return frozenset(sorted(fitting, key=fitting.__getitem__)[:MOST_OF_OURS])


def _run_counts(figure_panels: Sequence[Panel]) -> str:
    return counts_text([len(c.runs) for panel in figure_panels for c in panel.theirs.values()])


def headline(data: Dataset) -> tuple[str, ...]:
    """Return one short sentence per claim of the paper; none for any other store."""
    figure_panels = panels(data)
    if not figure_panels:
        return ()
    of = len(figure_panels)
    close = sum(_alike(panel) <= CLOSE for panel in figure_panels)
    far = sum(_frmax_factor(panel) >= FAR for panel in figure_panels)
    losses = [[loss for loss in _losses(p).values() if loss is not None] for p in figure_panels]
    near = sum(bool(known) and max(known) <= NEAR for known in losses)
    alike = f"PSRL and DORL perform alike, within a factor of {CLOSE:g}"
    optimal = f"Both end near-optimal, losing at most {NEAR:.0%} of the gain in the second half"
    return (
        f"{alike}, on {share_text(close, of)} problems of the paper.",
        f"Both are far better than f-Rmax, by a factor of {FAR:g}, on {share_text(far, of)}.",
        f"{optimal}, on {share_text(near, of)}.",
    )


def paragraphs(data: Dataset, analysis: Analysis) -> tuple[str, ...]:
    """Compare the numbers with the paper's claims, in sentences; none for any other store."""
    figure_panels = panels(data)
    if not figure_panels:
        return ()
    claims = [
        _opening(figure_panels),
        _close(figure_panels),
        _far(figure_panels, analysis),
        *_against_random(figure_panels),
        _near_optimal(figure_panels),
        *_search(figure_panels),
    ]
    return (" ".join(claims), *_fsrl(figure_panels), *_ours(figure_panels))


def _opening(figure_panels: Sequence[Panel]) -> str:
    cells = [cell for panel in figure_panels for cell in panel.theirs.values()]
    steps = sorted({cell.steps for cell in cells})
    many = _run_counts(figure_panels)
    return (
        f"Xu & Tewari (2020) print curves and no numbers for their Figure 2, so what can be "
        f"compared are their claims; the numbers here are medians of realised regret after "
        f"{' and '.join(f'{n:,}' for n in steps)} steps over {many} runs, with their planner "
        f"and constants. Every network is one instance of its random tables (seed=1), so whatever "
        f"holds here holds on these instances."
    )


def _close(figure_panels: Sequence[Panel]) -> str:
    numbers = []
    close: list[str] = []
    apart: list[str] = []
    for panel in figure_panels:
        psrl, dorl = _psrl_and_dorl(panel)
        numbers.append(f"{psrl:,.0f} and {dorl:,.0f} on {panel.name}")
        (close if _alike(panel) <= CLOSE else apart).append(panel.name)
    medians = "; ".join(numbers)
    claim = "Their first claim, that PSRL and DORL perform alike,"
    if not apart:
        return f"{claim} holds here, within a factor of {CLOSE:g}: {medians}."
    if not close:
        return f"{claim} does not hold here, on no problem within a factor of {CLOSE:g}: {medians}."
    excepted = " (the one problem that the paper excepts)" if apart == ["three-leg:4"] else ""
    return (
        f"{claim} holds here on {listed(close)} but not on {listed(apart)}{excepted}, where a "
        f"factor of {CLOSE:g} counts as alike: {medians}."
    )


def _alike(panel: Panel) -> float:
    """Return the larger of the medians of PSRL and DORL divided by the smaller."""
    return _ratio(*_psrl_and_dorl(panel))


def _psrl_and_dorl(panel: Panel) -> tuple[float, float]:
    return median_regret(panel.theirs["psrl"]), median_regret(panel.theirs["dorl"])


def _ratio(one: float, two: float) -> float:
    low, high = sorted((one, two))
    return high / low if low > 0 else float("inf") if high > 0 else 1.0


def _far(figure_panels: Sequence[Panel], analysis: Analysis) -> str:
    claim = "Their second, that both are far below f-Rmax,"
    factors, failing, shown = [], [], True
    for panel in figure_panels:
        factor = _frmax_factor(panel)
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
    if len(failing) == len(figure_panels):
        return f"{claim} does not hold: {listed(failing)}; {paired}."
    return (
        f"{claim} does not hold on {listed(failing)}, where {FAR:g} times counts as far; it does "
        f"on the others; {paired}."
    )


def _frmax_factor(panel: Panel) -> float:
    """Return the median of f-Rmax divided by the worse of PSRL and DORL."""
    worse = max(_psrl_and_dorl(panel))
    return median_regret(panel.theirs["frmax"]) / worse if worse > 0 else float("inf")


def _significant(analysis: Analysis, panel: Panel, learner: str) -> bool:
    first, second = panel.theirs[learner], panel.theirs["frmax"]
    verdict = analysis.verdict(first.problem, REGRET.name, first.label, second.label)
    return verdict == f"{first.label} is better"


def _near_optimal(figure_panels: Sequence[Panel]) -> str:
    claim = "Their third, that both end near-optimal in spite of the approximate planner,"
    losses = {place: loss for panel in figure_panels for place, loss in _losses(panel).items()}
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
        f"{claim} does not hold for {listed(bad)}: in the second half of the steps up to "
        f"{worst:.1%} of the optimal gain is lost, where {NEAR:.0%} counts as near."
    )


def _losses(panel: Panel) -> dict[tuple[str, str], float | None]:
    return {
        (panel.name, NAMES[learner]): late_loss(panel.theirs[learner], panel.problem.gain)
        for learner in ("psrl", "dorl")
    }


def _search(figure_panels: Sequence[Panel]) -> list[str]:
    """Return sentences on claim 4, if the store has several constants of a learner."""
    claims = []
    for learner in NAMES:
        searched = {}
        for panel in figure_panels:
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
            claims.append(_winners(learner, searched))
    return claims


def _winners(learner: str, searched: Mapping[Panel, Sequence[CellCurves]]) -> str:
    best = {panel: min(cells, key=median_regret) for panel, cells in searched.items()}
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
    factors = [median_regret(cell) / max(_psrl_and_dorl(panel)) for panel, cell in best.items()]
    return (
        f"{opening}{least}, where the paper has {where}; even so its median is "
        f"{_span(factors)} times the worse of the other two."
    )


def _by_problem(values: Mapping[str, float]) -> str:
    """Return "0.1 on circle:4 and 0.05 on three-leg:4", or "100 on all 4 problems"."""
    places: dict[float, list[str]] = {}
    for name, value in values.items():
        places.setdefault(value, []).append(name)
    if len(places) == 1 and len(values) > 1:
        return f"{next(iter(places)):g} on all {len(values)} problems"
    return listed([f"{value:g} on {listed(names)}" for value, names in places.items()])


def _against_random(figure_panels: Sequence[Panel]) -> list[str]:
    """Compare f-Rmax with the paper's m to random actions."""
    worse: list[str] = []
    better: list[str] = []
    for panel in figure_panels:
        random = next((cell for cell in panel.ours if cell.role == "lower"), None)
        frmax = panel.theirs["frmax"]
        if random is None or frmax.parameters.get("m") != KNOWN_AFTER[panel.name]:
            continue
        ours, other = median_regret(frmax), median_regret(random)
        medians = f"{panel.name} ({ours:,.0f} against {other:,.0f})"
        (worse if ours > other else better).append(medians)
    if not worse and not better:
        return []
    claim = "With the paper's m, f-Rmax is"
    many = len(worse) + len(better)
    if not worse:
        return [f"{claim} better than random actions: on {listed(better)}."]
    if not better:
        return [f"{claim} worse than random actions: on {listed(worse)}."]
    opening = f"{claim} worse than random actions on {len(worse)} of {many} problems: on "
    return [f"{opening}{listed(worse)}; it is better on {listed(better)}."]


def _fsrl(figure_panels: Sequence[Panel]) -> tuple[str, ...]:
    """Return a paragraph on the paper's third algorithm."""
    known = [(panel, panel.third) for panel in figure_panels if panel.third is not None]
    if not known:
        return ()
    numbers = listed([f"{median_regret(cell):,.0f} on {panel.name}" for panel, cell in known])
    budgets = {_budget_text(cell) for _, cell in known}
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
        ratios.append(
            median_regret(cell) / max(median_regret((alike or [panel.theirs["dorl"]])[0]), 1e-9)
        )
    constants = sorted({float(cell.parameters["c"]) for _, cell in known})
    text = (
        f"The paper's third algorithm, FSRL, is not in its figure, because how to plan under a "
        f"span budget was open; here it runs with the span planner, "
        f"c = {listed([f'{c:g}' for c in constants])} and {listed(sorted(budgets))}. Its "
        f"medians are {numbers}: {_span(ratios, 2)} times those of {beside}."
    )
    return (text,)


def _budget_text(cell: CellCurves) -> str:
    given = budget_of(cell)
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


def _ours(figure_panels: Sequence[Panel]) -> tuple[str, ...]:
    """Return a paragraph on the lowest median of ours beside the lowest of the paper's."""
    parts, lower = [], 0
    for panel in figure_panels:
        rivals = [cell for cell in panel.ours if cell.role == "learner"]
        if not rivals:
            continue
        best = min(rivals, key=median_regret)
        theirs = min((panel.theirs[k] for k in ("psrl", "dorl")), key=median_regret)
        lower += median_regret(best) < median_regret(theirs)
        parts.append(
            f"on {panel.name} {best.label}: {median_regret(best):,.0f} "
            f"(worst run {_worst(best):,.0f}) against {theirs.label}: "
            f"{median_regret(theirs):,.0f} (worst {_worst(theirs):,.0f})"
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
    medians = "; ".join(parts)
    opening = "Beside the paper's learners, the lowest median of ours, picked after the fact,"
    return (f"{opening} {verdict}. {medians[0].upper()}{medians[1:]}.",)


def _worst(cell: CellCurves) -> float:
    ends = cell.ends(REGRET.name)
    return float("nan") if ends is None else float(ends.max())


def _span(values: Sequence[float], digits: int = 1) -> str:
    low, high = f"{min(values):.{digits}f}", f"{max(values):.{digits}f}"
    return low if low == high else f"{low} to {high}"
