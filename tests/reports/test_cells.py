"""Which runs make a cell, and what the reader is told about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fmdp.errors import FileProblem
from fmdp.experiments.dataset import gather
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.store import Curve, Store
from fmdp.problems import problem
from fmdp.reports.notes import notes_on_runs

GAP = GAP_REGRET.name
REALISED = REGRET.name


def test_a_cell_has_the_runs_of_one_learner_on_one_problem(store: Store) -> None:
    runs = gather(store)
    assert [problem.name for problem in runs.problems] == ["circle:3", "three-leg:4"]
    assert runs.labels == ("PSRL", "DORL", "f-Rmax", "PSRL, exact", "DORL, exact", "oracle")
    assert len(runs.cells) == 12
    for cell in runs.cells:
        assert cell.seeds == (0, 1, 2, 3, 4)
        for run, regret, gap in zip(
            cell.runs, cell.curves[REALISED], cell.curves[GAP], strict=True
        ):
            curve = store.curve(run.key)
            np.testing.assert_array_equal(cell.t, curve.t)
            np.testing.assert_array_equal(regret, curve.values[REALISED])
            np.testing.assert_array_equal(gap, curve.values[GAP])
            assert run.measures[REALISED] == regret[-1]
    assert list(notes_on_runs(runs)) == []


def test_the_recorded_run_is_the_first_seed(store: Store) -> None:
    cell = gather(store).cells[0]
    assert cell.recorded is not None
    assert cell.recorded.seed == 0
    recording = store.recording(cell.recorded.key)
    assert recording is not None
    assert len(recording.states) == cell.steps + 1


def test_of_two_versions_of_a_run_the_newer_counts(made: ModuleType, tmp_path: Path) -> None:
    made.make_store(tmp_path, problems=["circle:3"], learners=made.LEARNERS[:2])
    made.make_store(
        tmp_path,
        problems=["circle:3"],
        learners=made.LEARNERS[:1],
        results_version=2,
        seeds=range(3),
    )
    with Store.open(tmp_path) as store:
        runs = gather(store)
    psrl, dorl = runs.cells
    assert [run.results_version for run in psrl.runs] == [2, 2, 2, 1, 1]
    assert [run.results_version for run in dorl.runs] == [1] * 5
    notes = list(notes_on_runs(runs))
    assert notes[0].startswith("Results versions are mixed: 7 of version 1, 3 of version 2.")
    assert notes[1].startswith("3 runs of an older results version, or of older code")


def test_failed_and_missing_runs_are_told(made: ModuleType, tmp_path: Path) -> None:
    made.make_store(
        tmp_path, problems=["circle:3"], failed=[("DORL", 1)], missing=[("PSRL", 3), ("DORL", 4)]
    )
    with Store.open(tmp_path) as store:
        runs = gather(store)
    notes = list(notes_on_runs(runs))
    assert notes[:2] == [
        "1 run failed and is not in any number here.",
        "2 runs that the spec requests are not in the store (yet).",
    ]
    assert notes[2].startswith("Cells have different numbers of runs, 3 to 5;")
    assert [run.error for _, _, run in runs.grouped.failed] == ["Odd: no"]


def test_a_first_seed_that_failed_does_not_move_its_cell(made: ModuleType, tmp_path: Path) -> None:
    made.make_store(tmp_path, problems=["circle:3"], failed=[("PSRL", 0)])
    with Store.open(tmp_path) as store:
        assert gather(store).labels[:2] == ("PSRL", "DORL")


def test_two_specs_that_share_runs_do_not_double_them(made: ModuleType, tmp_path: Path) -> None:
    made.make_store(tmp_path, problems=["circle:3"])
    with Store.create(tmp_path) as store:
        spec = store.specs()[0]
        members = store.members(spec.hash)
        again = replace(spec, hash="f" * 64, name="again", added="2026-01-02")
        store.add_spec(again, [replace(m, label=f"other {m.label}") for m in members], [])
        runs = gather(store)
    assert len(runs.cells) == 6
    assert all(len(cell.runs) == 5 for cell in runs.cells)
    assert runs.labels[0] == "other PSRL"  # the spec that was asked for last gives the names


def test_cells_that_share_a_label_are_told_apart(made: ModuleType, tmp_path: Path) -> None:
    learners = [made.MadeLearner("PSRL", "psrl", 1.0, {"c": c, "prior": 0.01}) for c in (0.1, 0.75)]
    for k, learner in enumerate(learners):  # as two specs would have it
        made.make_store(tmp_path, problems=["circle:3"], learners=[learner], steps=50 + k)
    with Store.open(tmp_path) as store:
        labels = gather(store).labels
    assert set(labels) == {"PSRL, c=0.1, steps=50", "PSRL, c=0.75, steps=51"}


def test_a_model_file_that_changed_is_two_problems(made: ModuleType, tmp_path: Path) -> None:
    models = [problem("circle:3"), problem("circle:3,seed=2")]
    for k, model in enumerate(models):
        renamed = type(model)(
            model.structure,
            transitions=model.transitions,
            rewards=model.rewards,
            initial_state=model.initial_state,
            name="my.json",
        )
        made.make_store(
            tmp_path, problems=[renamed], learners=made.LEARNERS[:1], steps=50, seeds=[k]
        )
    with Store.open(tmp_path) as store:
        names = [problem.name for problem in gather(store).problems]
    assert len(set(names)) == 2
    assert all(name.startswith("my.json (") for name in names)


def test_curves_are_cut_to_the_checkpoints_that_all_runs_have(
    made: ModuleType, tmp_path: Path
) -> None:
    made.make_store(tmp_path, problems=["circle:3"], learners=made.LEARNERS[:1], seeds=[0])
    with Store.create(tmp_path) as store:
        run = next(store.runs())
        t = np.array([1, 100, 200])
        other = replace(run, key="e" * 64, seed=1, results_version=2)
        store.add_run(other, Curve(t, {REALISED: np.array([0.0, 1.0, 2.0])}))
        cell = gather(store).cells[0]
    assert set(cell.t.tolist()) <= {1, 100, 200}
    assert cell.curves[REALISED][1, -1] == 2.0
    assert GAP not in cell.curves


def test_a_store_without_a_done_run_is_refused(made: ModuleType, tmp_path: Path) -> None:
    every = [(learner.label, seed) for learner in made.LEARNERS for seed in range(5)]
    made.make_store(tmp_path, problems=["circle:3"], failed=every)
    with (
        Store.open(tmp_path) as store,
        pytest.raises(FileProblem, match="has no run that is done, so there is nothing to report"),
    ):
        gather(store)
