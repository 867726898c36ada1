"""Comparisons pair the same seeds, and the pairs of one question are corrected together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fmdp.experiments.analysis import Comparison, analyse
from fmdp.experiments.dataset import gather
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.statistics import holm, signed_rank
from fmdp.experiments.store import Store
from fmdp.reports.notes import notes

GAP = GAP_REGRET.name
REALISED = REGRET.name


def test_summaries_are_those_of_the_ends(store: Store) -> None:
    runs = gather(store)
    analysis = analyse(runs)
    for found in analysis.summaries:
        for measure in (REALISED, GAP):
            ends = np.array([run.measures[measure] for run in found.cell.runs])
            assert found.by_measure[measure].median == np.median(ends)
            assert found.by_measure[measure].worst == ends.max()


def test_every_two_learners_of_a_problem_are_compared_on_their_shared_seeds(
    made: ModuleType, tmp_path: Path
) -> None:
    made.make_store(
        tmp_path,
        problems=["circle:3"],
        learners=made.LEARNERS[:3],
        seeds=range(8),
        missing=[("PSRL", 1), ("DORL", 5)],
    )
    with Store.open(tmp_path) as store:
        runs = gather(store)
    found = {(c.measure, c.first, c.second): c for c in analyse(runs).comparisons}
    assert len(found) == 6
    comparison = found[REALISED, "PSRL", "DORL"]
    psrl, dorl = (
        {run.seed: run.measures["regret"] for run in cell.runs}
        for cell in runs.problems[0].cells[:2]
    )
    differences = [psrl[seed] - dorl[seed] for seed in (0, 2, 3, 4, 6, 7)]
    assert comparison.test == signed_rank(differences)
    assert comparison.differences.median == np.median(differences)


def test_holm_runs_over_the_pairs_of_one_problem_and_measure(store: Store) -> None:
    comparisons = analyse(gather(store)).comparisons
    for measure in (REALISED, GAP):
        for problem in ("circle:3", "three-leg:4"):
            family = [c for c in comparisons if (c.problem, c.measure) == (problem, measure)]
            assert {c.family for c in family} == {len(family)} == {15}
            assert [c.adjusted for c in family] == holm([c.test.p_value for c in family])


def test_what_else_is_in_the_store_does_not_change_an_answer(
    made: ModuleType, tmp_path: Path
) -> None:
    """The first comparison again, alone and in a store with another problem and another spec on
    the same problem, which shares one of its learners."""
    common = {"seeds": range(8), "steps": 100}
    asked = {"problems": ["circle:3"], "learners": made.LEARNERS[:2], "name": "asked"}
    other = {"problems": ["circle:3", "circle:4"], "learners": made.LEARNERS[1:5], "name": "other"}
    made.make_store(tmp_path / "alone", **asked, **common)
    for spec in (asked, other):
        made.make_store(tmp_path / "both", **spec, **common)

    def found(folder: str) -> dict[tuple[str, str, str, str], Comparison]:
        with Store.open(tmp_path / folder) as store:
            return {
                (c.problem, c.measure, c.first, c.second): c
                for c in analyse(gather(store)).comparisons
            }

    alone, both = found("alone"), found("both")
    for key, comparison in alone.items():
        assert comparison.family == both[key].family == 1
        assert both[key].adjusted == comparison.adjusted == comparison.test.p_value
    # The other question has six pairs; what nobody asked for is a question of the whole report.
    assert both["circle:3", GAP, "DORL", "f-Rmax"].family == 6
    assert both["circle:3", GAP, "PSRL", "f-Rmax"].family == 10


def test_runs_that_earn_the_same_are_equal_whatever_the_rounding(
    made: ModuleType, tmp_path: Path
) -> None:
    """Total rewards are multiples of .1, added up from the front and from the back."""
    totals = {"one": [9, 14, 11, 10, 13, 12, 8], "two": [9, 12, 13, 11, 10, 12, 11]}
    learners = [made.MadeLearner(label, "psrl", 1.0, {"c": len(label)}) for label in totals]
    learners[1] = replace(learners[1], learner="dorl")
    made.make_store(tmp_path, problems=["circle:3"], learners=learners, seeds=range(7))
    with Store.open(tmp_path) as store:
        runs = gather(store)
    cells = []
    for cell in runs.cells:
        kept = []
        for run, earned in zip(cell.runs, totals[cell.label], strict=True):
            total = sum([0.1] * earned) if cell.label == "one" else earned * 0.1
            kept.append(replace(run, measures={**run.measures, REALISED: 200 * 2.94 - total}))
        cells.append(replace(cell, runs=tuple(kept)))
    runs = replace(runs, problems=(replace(runs.problems[0], cells=tuple(cells)),))
    found = next(c for c in analyse(runs).comparisons if c.measure == REALISED)
    exact = signed_rank([two - one for one, two in zip(*totals.values(), strict=True)])
    assert found.test == exact
    assert (exact.lower, exact.equal, exact.higher) == (2, 2, 3)


@pytest.mark.parametrize("swapped", [False, True])
def test_the_verdict_names_the_learner_with_less_regret(
    made: ModuleType, tmp_path: Path, swapped: bool
) -> None:
    learners = [made.MadeLearner("small", "psrl", 1.0), made.MadeLearner("large", "dorl", 30.0)]
    made.make_store(
        tmp_path,
        problems=["circle:3"],
        seeds=range(10),
        steps=100,
        learners=learners[::-1] if swapped else learners,
    )
    with Store.open(tmp_path) as store:
        found = analyse(gather(store)).comparisons
    gap = next(c for c in found if c.measure == GAP)
    assert gap.verdict == "small is better"
    assert (gap.differences.median > 0) == swapped
    assert gap.adjusted == 2 / 2**10


def test_equal_learners_show_no_difference_and_few_seeds_are_told(
    made: ModuleType, tmp_path: Path
) -> None:
    learners = [made.MadeLearner("one", "psrl", 1.0), made.MadeLearner("two", "dorl", 1.0)]
    made.make_store(tmp_path, problems=["circle:3"], learners=learners, seeds=range(3), steps=50)
    with Store.open(tmp_path) as store:
        data = gather(store)
    analysis = analyse(data)
    assert {c.verdict for c in analysis.comparisons} == {"no difference shown"}
    told = notes(data, analysis)
    assert told[0].startswith("2 of 2 cells have no 95 % interval of the median")
    assert "n too small: it takes six runs, and they have 3." in told[0]
    assert "3 pairs give no p-value below 0.25" in told[1]


def test_different_numbers_of_steps_are_no_pair(made: ModuleType, tmp_path: Path) -> None:
    for steps, learner in zip((50, 60), made.LEARNERS, strict=False):
        made.make_store(tmp_path, problems=["circle:3"], learners=[learner], steps=steps)
    with Store.open(tmp_path) as store:
        assert analyse(gather(store)).comparisons == ()
