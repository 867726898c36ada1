"""Who is ahead, in words and drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fmdp.experiments.analysis import analyse
from fmdp.experiments.dataset import gather
from fmdp.experiments.standings import by_problem, is_comparison, ranked
from fmdp.experiments.store import LeftOut, Store
from fmdp.reports import figures
from fmdp.reports.standings_figure import figure
from fmdp.reports.wording import headline, number_text, per_step, ratio_text, sentences


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "FORMATS", ("svg",))


def test_the_sentences_name_who_has_the_lowest_median(store: Store) -> None:
    runs = gather(store)
    analysis = analyse(runs)
    first, *others = sentences(runs, analysis)
    assert first.startswith("The lowest median gap regret of 2 problems: ")
    for problem in runs.problems:
        ends = {
            cell.label: float(np.median(cell.ends("gap_regret")))  # type: ignore[arg-type]
            for cell in problem.cells
            if cell.role == "learner"
        }
        best = min(ends, key=lambda label: ends[label])
        part = next(part for part in first.split(";") if problem.name in part)
        assert f"{best} on " in part
    assert others[-1].startswith("A step costs from ")
    assert "wall clock" in others[-1]  # made-up runs have no processor time


def test_the_headline_is_three_short_sentences(store: Store) -> None:
    runs = gather(store)
    told = headline(runs, analyse(runs))
    assert len(told) == 3
    assert all(len(sentence) < 130 for sentence in told)
    assert told[0].startswith("Lowest median gap regret on 2 problems: ")
    assert told[1].endswith("on none of 2.")  # five seeds are too few


def test_the_headline_of_one_learner(made: ModuleType, tmp_path: Path) -> None:
    made.make_store(tmp_path, problems=["circle:3"], learners=made.LEARNERS[:1])
    with Store.open(tmp_path) as store:
        runs = gather(store)
    (told,) = headline(runs, analyse(runs))
    assert re.fullmatch(
        r"PSRL on circle:3: median gap regret [\d.]+ after 200 steps, over 5 runs.", told
    )


def test_of_one_problem_the_first_two_and_the_finding(made: ModuleType, tmp_path: Path) -> None:
    learners = [made.MadeLearner(f"psrl {k}", "psrl", float(k), {"c": k}) for k in (1, 20)]
    made.make_store(tmp_path, problems=["circle:3"], learners=learners, seeds=range(12))
    with Store.open(tmp_path) as store:
        runs = gather(store)
    analysis = analyse(runs)
    told, _ = sentences(runs, analysis)
    assert told.startswith("On circle:3 psrl 1 has the lowest median gap regret, ")
    (own,) = by_problem(runs.standings).values()
    assert analysis.verdict_on_first(own) == "psrl 1 is better"
    assert told.endswith("on the same seeds (signed-rank, Holm): psrl 1 is better.")
    assert analysis.verdict_on_first(own[:1]) == "no other learner is there"


def test_one_learner_alone_is_no_comparison(made: ModuleType, tmp_path: Path) -> None:
    learners = [made.MadeLearner("psrl", "psrl", 1.0, {"c": 1})]
    made.make_store(tmp_path, problems=["circle:3"], learners=learners)
    with Store.open(tmp_path) as store:
        runs = gather(store)
    assert not is_comparison(runs.standings)
    assert sentences(runs, analyse(runs)) == ()


def test_the_figure_has_every_learner_problem_and_ratio(store: Store) -> None:
    runs = gather(store)
    absent = (LeftOut("circle:3", "nobody", "no"),)
    drawn = figure(runs.standings, absent)
    again = figure(runs.standings, absent)
    assert drawn.files["svg"] == again.files["svg"]
    assert "over 5 runs" in drawn.caption
    # Text is drawn as outlines; what is written is in comments.
    text = drawn.files["svg"].decode()
    for one in runs.standings:
        if one.role != "upper":
            assert f"<!-- {one.label} -->" in text
            assert f"<!-- {ratio_text(one.ratio)} -->" in text
    assert "<!-- lowest median -->" in text


def test_learners_of_more_problems_come_first_between_the_ends(store: Store) -> None:
    by_chance = [
        replace(one, label="chance", role="lower", place=None)
        for one in gather(store).standings
        if one.label == "DORL, exact"
    ]
    found = [*by_chance, *gather(store).standings]
    fewer = [one for one in found if (one.problem, one.label) != ("circle:3", "PSRL")]
    roles = [one.role for one in ranked(fewer)]
    assert roles[0] == "upper"
    assert roles[-1] == "lower"
    learners = [one for one in ranked(fewer) if one.role == "learner"]
    assert [one.problems for one in learners] == sorted(
        (one.problems for one in learners), reverse=True
    )
    assert learners[-1].label == "PSRL"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.5e-7, "0.25 µs"),
        (4e-6, "4 µs"),
        (1.234e-5, "12 µs"),
        (9.996e-4, "1 ms"),
        (3.4e-3, "3.4 ms"),
        (0.5, "500 ms"),
        (1.26, "1.3 s"),
        (75.0, "75 s"),
    ],
)
def test_times(seconds: float, text: str) -> None:
    assert per_step(seconds) == text


def test_numbers() -> None:
    assert [ratio_text(value) for value in (None, 1.0, 2.04, 9.96, 1234.0)] == [
        "-",
        "1.00",
        "2.0",
        "10",
        "1,234",
    ]
    assert [number_text(value) for value in (0.12345, 9.99, 12345.6)] == ["0.123", "9.99", "12,346"]
