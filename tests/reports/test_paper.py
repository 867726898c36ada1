"""Each claim of the paper, decided both ways by numbers made for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fmdp.experiments.analysis import Analysis, analyse
from fmdp.experiments.dataset import Dataset, gather
from fmdp.experiments.paper import panels
from fmdp.experiments.store import Store
from fmdp.reports.paper_claims import figure, paragraphs

Made = Callable[..., tuple[Dataset, Analysis]]


@pytest.fixture
def numbers(made: ModuleType, tmp_path: Path) -> Made:
    """A store with the paper's learners; their regret grows like scale * sqrt(t)."""

    def build(
        psrl: float = 1.2,
        dorl: float = 1.3,
        frmax: float = 20.0,
        *,
        ours: float | None = None,
        problems: tuple[Any, ...] = ("circle:4",),
        extra: tuple[Any, ...] = (),
        seeds: int = 12,
    ) -> tuple[Dataset, Analysis]:
        learners = [
            made.MadeLearner("PSRL", "psrl", psrl, {"c": 0.75}, "alp"),
            made.MadeLearner("DORL", "dorl", dorl, {"c": 0.03}, "alp"),
            made.MadeLearner("f-Rmax", "frmax", frmax, {"m": 300}, "alp"),
            *extra,
        ]
        if ours is not None:
            learners.append(made.MadeLearner("DORL, exact", "dorl", ours, {"c": 0.03}, "exact"))
        made.make_store(
            tmp_path, problems=problems, learners=learners, seeds=range(seeds), steps=100
        )
        with Store.open(tmp_path) as store:
            runs = gather(store)
        return runs, analyse(runs)

    return build


def median_of(analysis: Analysis, label: str) -> float:
    """Return the median regret on circle:4."""
    (median,) = (
        summary.by_measure["regret"].median
        for summary in analysis.summaries
        if (summary.cell.problem, summary.cell.label) == ("circle:4", label)
    )
    return median


def test_all_claims_hold(numbers: Made) -> None:
    (words,) = paragraphs(*numbers())
    assert "first claim, that PSRL and DORL perform alike, holds here" in words
    assert "far below f-Rmax, holds: its median is" in words
    assert "significant throughout" in words


def test_the_numbers_told_are_the_medians(numbers: Made) -> None:
    runs, analysis = numbers()
    (words,) = paragraphs(runs, analysis)
    for label in ("PSRL", "DORL"):
        median = median_of(analysis, label)
        assert f"{median:,.0f}" in words
    assert "after 100 steps over 12 runs" in words


def test_psrl_and_dorl_apart(numbers: Made) -> None:
    (words,) = paragraphs(*numbers(psrl=1.0, dorl=4.0, frmax=90.0))
    assert "perform alike, does not hold here" in words
    assert "far below f-Rmax, holds" in words


def test_apart_on_one_problem_only(made: ModuleType, tmp_path: Path) -> None:
    for problem, scale in (("circle:4", 1.2), ("three-leg:4", 4.0)):
        learners = [
            made.MadeLearner("PSRL", "psrl", 1.2, {"c": 0.75}, "alp"),
            made.MadeLearner("DORL", "dorl", scale, {"c": 0.03}, "alp"),
            made.MadeLearner("f-Rmax", "frmax", 60.0, {"m": 300}, "alp"),
        ]
        made.make_store(
            tmp_path, problems=[problem], learners=learners, seeds=range(9), steps=100, name=problem
        )
    with Store.open(tmp_path) as store:
        runs = gather(store)
    (words,) = paragraphs(runs, analyse(runs))
    assert "holds here on circle:4 but not on three-leg:4 (the one problem that the paper" in words


def test_frmax_not_far(numbers: Made) -> None:
    (words,) = paragraphs(*numbers(frmax=2.0))
    assert "far below f-Rmax, does not hold" in words


def test_frmax_better_is_told_as_not_significant(numbers: Made) -> None:
    (words,) = paragraphs(*numbers(psrl=20.0, dorl=20.0, frmax=1.0))
    assert "does not hold" in words
    assert "not significant everywhere" in words


def test_not_near_optimal(numbers: Made) -> None:
    (words,) = paragraphs(*numbers(psrl=60.0, dorl=60.0, frmax=900.0))
    assert "near-optimal in spite of the approximate planner, does not hold for" in words


def test_near_optimal(numbers: Made) -> None:
    (words,) = paragraphs(*numbers(psrl=0.2, dorl=0.2, frmax=9.0))
    assert "near-optimal in spite of the approximate planner, holds" in words


@pytest.mark.parametrize(("scale", "verdict"), [(0.3, "lower on all 1"), (9.0, "lower on none")])
def test_ours_beside(numbers: Made, scale: float, verdict: str) -> None:
    first, second = paragraphs(*numbers(ours=scale))
    assert "holds" in first
    assert f"picked after the fact, is {verdict}. On circle:4 DORL, exact: " in second


def test_the_search_of_constants(made: ModuleType, numbers: Made) -> None:
    grid = tuple(
        made.MadeLearner(f"PSRL c={c}", "psrl", scale, {"c": c}, "alp")
        for c, scale in ((0.05, 5.0), (20.0, 9.0))
    )
    (words,) = paragraphs(*numbers(extra=grid))
    assert "the best c of PSRL was 0.75 on circle:4, which agrees with the paper's 0.75." in words
    assert "best c of DORL" not in words


def test_a_search_that_ends_elsewhere(made: ModuleType, numbers: Made) -> None:
    grid = (made.MadeLearner("DORL c=20", "dorl", 0.2, {"c": 20.0}, "alp"),)
    (words,) = paragraphs(*numbers(extra=grid))
    assert "best c of DORL was 20 on circle:4, which is not everywhere near the paper's" in words


def test_the_search_of_m_and_the_papers_m_stays_in_the_figure(
    made: ModuleType, numbers: Made
) -> None:
    """m = 100 wins; the figure and the claims keep the paper's 300."""
    grid = tuple(
        made.MadeLearner(f"f-Rmax m={m}", "frmax", scale, {"m": m}, "alp")
        for m, scale in ((100, 9.0), (700, 40.0))
    )
    runs, analysis = numbers(extra=grid)
    (words,) = paragraphs(runs, analysis)
    best, worse = (median_of(analysis, label) for label in ("f-Rmax m=100", "f-Rmax"))
    psrl, dorl = (median_of(analysis, label) for label in ("PSRL", "DORL"))
    assert (
        f"the best m of f-Rmax was 100 on circle:4, the smallest tried, where the paper has 300 on "
        f"circle:4; even so its median is {best / max(psrl, dorl):.1f} times the worse"
    ) in words
    assert f"its median is {worse / max(psrl, dorl):.1f} times the worse of the two" in words
    (panel,) = panels(runs)
    assert panel.theirs["frmax"].parameters["m"] == 300


def test_the_papers_m_may_win(made: ModuleType, numbers: Made) -> None:
    grid = (made.MadeLearner("f-Rmax m=100", "frmax", 40.0, {"m": 100}, "alp"),)
    (words,) = paragraphs(*numbers(extra=grid))
    assert "the best m of f-Rmax was 300 on circle:4, as in the paper." in words


@pytest.mark.parametrize(("scale", "verdict"), [(5.0, "worse"), (90.0, "better")])
def test_frmax_against_random_actions(
    made: ModuleType, numbers: Made, scale: float, verdict: str
) -> None:
    runs, analysis = numbers(
        extra=(made.MadeLearner("random", "random", scale, {}, None, role="lower"),)
    )
    (words,) = paragraphs(runs, analysis)
    frmax, random = (median_of(analysis, label) for label in ("f-Rmax", "random"))
    assert (
        f"With the paper's m, f-Rmax is {verdict} than random actions: on circle:4 "
        f"({frmax:,.0f} against {random:,.0f})."
    ) in words


def test_frmax_is_worse_than_random_actions_on_some(made: ModuleType, tmp_path: Path) -> None:
    for problem, m, scale in (("circle:4", 300, 90.0), ("three-leg:4", 500, 5.0)):
        learners = [
            made.MadeLearner("PSRL", "psrl", 1.2, {"c": 0.75}, "alp"),
            made.MadeLearner("DORL", "dorl", 1.2, {"c": 0.03}, "alp"),
            made.MadeLearner("f-Rmax", "frmax", 30.0, {"m": m}, "alp"),
            made.MadeLearner("random", "random", scale, {}, None, role="lower"),
        ]
        made.make_store(
            tmp_path, problems=[problem], learners=learners, seeds=range(9), steps=100, name=problem
        )
    with Store.open(tmp_path) as store:
        runs = gather(store)
    (words,) = paragraphs(runs, analyse(runs))
    assert "worse than random actions on 1 of 2 problems: on three-leg:4 (" in words
    assert "; it is better on circle:4 (" in words


@pytest.mark.parametrize("problem_m", [300, 500])
def test_another_m_is_not_called_the_papers(
    made: ModuleType, tmp_path: Path, problem_m: int
) -> None:
    """On circle:4 the paper has m = 300: a store with 500 alone says nothing about the paper's."""
    learners = [
        made.MadeLearner("PSRL", "psrl", 1.2, {"c": 0.75}, "alp"),
        made.MadeLearner("DORL", "dorl", 1.2, {"c": 0.03}, "alp"),
        made.MadeLearner("f-Rmax", "frmax", 30.0, {"m": problem_m}, "alp"),
        made.MadeLearner("random", "random", 5.0, {}, None, role="lower"),
    ]
    made.make_store(tmp_path, problems=["circle:4"], learners=learners, steps=100)
    with Store.open(tmp_path) as store:
        runs = gather(store)
    (words,) = paragraphs(runs, analyse(runs))
    assert ("With the paper's m" in words) == (problem_m == 300)


def test_fsrl_stands_beside_them_and_its_budget_is_told(made: ModuleType, numbers: Made) -> None:
    third = made.MadeLearner(
        "FSRL", "fsrl", 1.2, {"c": 0.03, "budget": None, "growth": 1.0}, "span", {"budget": 0.0}
    )
    given = made.MadeLearner(
        "FSRL Q=8", "fsrl", 1.0, {"c": 0.03, "budget": [8.0]}, "span", {"budget": [8.0]}
    )
    runs, analysis = numbers(ours=1.0, extra=(given, third))
    _, words, ours = paragraphs(runs, analysis)
    fsrl, dorl = (median_of(analysis, label) for label in ("FSRL", "DORL, exact"))
    assert "FSRL, is not in its figure" in words
    assert (
        "c = 0.03 and no budget given (it starts at 1 times the sum of the reward ranges" in words
    )
    assert (
        f"medians are {fsrl:,.0f} on circle:4: {fsrl / dorl:.2f} times those of DORL with" in words
    )
    (panel,) = panels(runs)
    assert panel.third is not None
    assert panel.third.label == "FSRL"
    assert "FSRL, which it does not run, with the span planner" in figure(runs, [panel]).caption
    assert "FSRL Q=8" in ours or "DORL, exact" in ours


def test_a_given_budget_is_told(made: ModuleType, numbers: Made) -> None:
    given = made.MadeLearner(
        "FSRL", "fsrl", 1.0, {"c": 0.03, "budget": [8.0]}, "span", {"budget": [8.0]}
    )
    _, words = paragraphs(*numbers(extra=(given,)))
    assert "a budget of 8, split uniform" in words
    assert "times those of DORL with the paper's planner" in words


def test_a_first_look_in_the_same_store_does_not_count(made: ModuleType, tmp_path: Path) -> None:
    for steps in (20, 100):
        made.make_store(
            tmp_path, problems=["circle:4"], learners=made.LEARNERS, steps=steps, name=f"{steps}"
        )
    with Store.open(tmp_path) as store:
        runs = gather(store)
    (panel,) = panels(runs)
    assert {cell.steps for cell in (*panel.theirs.values(), *panel.ours)} == {100}
    assert "after 100 steps over 5 runs" in paragraphs(runs, analyse(runs))[0]


def test_another_store_has_no_paragraph(store: Store, numbers: Made) -> None:
    runs, analysis = numbers(problems=("circle:4,seed=2",))
    assert paragraphs(runs, analysis) == ()
    runs = gather(store)  # circle:3 and three-leg:4: the second is the paper's
    assert [panel.name for panel in panels(runs)] == ["three-leg:4"]


def test_the_figure_has_a_row_a_problem(numbers: Made) -> None:
    runs, _ = numbers(problems=("circle:4", "three-leg:4"), ours=1.0, seeds=3)
    drawing = figure(runs, panels(runs))
    assert drawing.name == "figure-2"
    assert set(drawing.files) == {"png", "svg", "pdf"}
    assert "Medians over 3 runs" in drawing.caption
    assert "one instance of the random tables of each network (seed=1)" in drawing.caption
