"""Comparisons pair the same seeds, and one family is corrected as a whole."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fmdp.experiments.store import Store
from fmdp.reports.analysis import analyse
from fmdp.reports.cells import GAP, REALISED, gather
from fmdp.reports.statistics import holm, signed_rank


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
    assert comparison.median == np.median(differences)


def test_holm_runs_over_all_problems_of_a_measure(store: Store) -> None:
    comparisons = analyse(gather(store)).comparisons
    for measure in (REALISED, GAP):
        family = [c for c in comparisons if c.measure == measure]
        assert len(family) == 2 * 15
        assert [c.adjusted for c in family] == holm([c.test.p_value for c in family])


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
    assert (gap.median > 0) == swapped
    assert gap.adjusted == 2 / 2**10


def test_equal_learners_show_no_difference_and_few_seeds_are_told(
    made: ModuleType, tmp_path: Path
) -> None:
    learners = [made.MadeLearner("one", "psrl", 1.0), made.MadeLearner("two", "dorl", 1.0)]
    made.make_store(tmp_path, problems=["circle:3"], learners=learners, seeds=range(3), steps=50)
    with Store.open(tmp_path) as store:
        analysis = analyse(gather(store))
    assert {c.verdict for c in analysis.comparisons} == {"no difference shown"}
    assert "3 pairs give no p-value below 0.25" in analysis.notes[0]


def test_different_numbers_of_steps_are_no_pair(made: ModuleType, tmp_path: Path) -> None:
    for steps, learner in zip((50, 60), made.LEARNERS, strict=False):
        made.make_store(tmp_path, problems=["circle:3"], learners=[learner], steps=steps)
    with Store.open(tmp_path) as store:
        assert analyse(gather(store)).comparisons == ()
