"""Results: every frame has the numbers of the store, with pandas and without."""

from __future__ import annotations

import gc
import re
import sqlite3
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import fmdp
from fmdp import Results, load_results
from fmdp.errors import FileProblem, InvalidParameter, UnknownName
from fmdp.experiments.analysis import analyse
from fmdp.experiments.dataset import gather
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep
from fmdp.model import FactoredMDP, save
from fmdp.simulation.frames import MissingFrames

SPEC = """
name = "first"
steps = 60
seeds = [3, 5]
problems = ["circle:2", "three-leg:3"]

[[learners]]
name = "psrl"
label = "PSRL"
planner = "exact"
set = { c = [0.1, 0.75] }

[[learners]]
name = "dorl"
label = "DORL"
planner = { name = "exact", memory_limit = 1 }    # too little: these fail
problems = ["circle:2"]

[[learners]]
name = "oracle"

[[learners]]
name = "random"
"""
LABELS = ["PSRL c=0.1", "PSRL c=0.75", "oracle", "random"]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test writes to: 2 x 4 x 2 runs done, 2 failed."""
    folder = tmp_path_factory.mktemp("results")
    summary = run_sweep(parse_spec(SPEC), folder, workers=InThisProcess())
    assert (summary.done, summary.failed) == (16, 2)
    return folder


@pytest.fixture
def results(directory: Path) -> Iterator[Results]:
    with Results.open(directory) as opened:
        yield opened


@pytest.fixture
def without_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "pandas"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pandas", None)


def test_a_row_a_run(results: Results) -> None:
    frame = results.runs()
    assert len(frame) == 18
    assert frame.columns[:6].tolist() == ["problem", "label", "learner", "role", "seed", "steps"]
    stored = {run.key: run for run in results.store.runs()}
    assert set(frame["key"]) == stored.keys()
    for row in frame.to_dict("records"):
        run = stored[row["key"]]
        for name in ("problem", "learner", "role", "seed", "steps", "status", "seconds"):
            assert row[name] == getattr(run, name)
        assert {name: row[name] for name in run.measures} == run.measures
    done = frame[frame["status"] == "done"]
    assert done["label"].drop_duplicates().tolist() == LABELS
    assert done["error"].isna().all()
    assert dict(zip(done["label"], done["role"], strict=True)) == {
        "PSRL c=0.1": "learner",
        "PSRL c=0.75": "learner",
        "oracle": "upper",
        "random": "lower",
    }


def test_failed_runs_are_there_without_numbers(results: Results) -> None:
    frame = results.runs()
    failed = frame[frame["status"] == "failed"]
    assert failed["label"].tolist() == ["DORL"] * 2
    assert failed["seed"].tolist() == [3, 5]
    assert failed["error"].str.startswith("TooLarge: ").all()
    assert failed[["regret", "gap_regret", "gain", "episodes"]].isna().all(axis=None)


def test_parameters_are_columns(results: Results) -> None:
    varied = results.runs()
    assert "set.c" in varied
    assert "set.prior" not in varied  # the same in all runs that have it
    assert "planner.memory_limit" in varied
    by_label = varied.groupby("label")["set.c"].first()
    assert by_label["PSRL c=0.1"] == 0.1
    assert np.isnan(by_label["random"])
    every = results.runs(parameters="all")
    assert set(every["set.prior"].dropna()) == {0.01}
    # Both are called episodes: the parameter is a rule, the measure a number.
    assert every["set.episodes"].dropna().map(type).eq(str).all()
    assert every["episodes"].dtype == np.float64
    with pytest.raises(InvalidParameter, match="'parameters' parameter of runs must be varied or"):
        results.runs(parameters="some")  # type: ignore[arg-type]


def test_lists_among_the_parameters_can_be_grouped_by(directory: Path, tmp_path: Path) -> None:
    with Results.open(directory) as results, Store.create(tmp_path) as other:
        run = next(results.store.runs(status="done"))
        other.add_spec(results.store.specs()[0], [], [results.store.model(run.model)])
        for k, budget in enumerate(([1.0, 2.0], [3.0])):
            own = replace(run, key=f"{k}" * 64, parameters={"budget": budget})
            other.add_run(own, results.store.curve(run.key))
    with Results.open(tmp_path) as results:
        assert results.runs().groupby("set.budget").size().to_dict() == {(1.0, 2.0): 1, (3.0,): 1}


def test_curves_have_every_seed(results: Results) -> None:
    frame = results.curves()
    assert frame.columns.tolist() == [
        "problem",
        "label",
        "learner",
        "role",
        "seed",
        "t",
        "regret",
        "gap_regret",
        "problem_id",
    ]
    runs = results.runs()
    for row in runs[runs["status"] == "done"].itertuples():
        own = frame[
            (frame["problem"] == row.problem)
            & (frame["label"] == row.label)
            & (frame["seed"] == row.seed)
        ]
        curve = results.store.curve(row.key)
        assert own["t"].tolist() == curve.t.tolist()
        assert own["regret"].tolist() == curve.values["regret"].tolist()
        assert own["gap_regret"].tolist() == curve.values["gap_regret"].tolist()
        assert own["regret"].iloc[-1] == row.regret
    assert len(frame) == 16 * len(curve.t)
    only = results.curves("gap_regret")
    assert only.columns[-3:].tolist() == ["t", "gap_regret", "problem_id"]
    with pytest.raises(UnknownName, match=r"'gap_regrets' has a curve.*did you mean \"gap_regret"):
        results.curves("gap_regrets")


def test_a_run_without_a_curve_of_a_measure_has_gaps_in_it(tmp_path: Path, directory: Path) -> None:
    with Results.open(directory) as results, Store.create(tmp_path) as other:
        runs = list(results.store.runs(status="done"))[:2]
        models = {run.model: results.store.model(run.model) for run in runs}
        other.add_spec(results.store.specs()[0], [], models.values())
        whole, bare = (results.store.curve(run.key) for run in runs)
        other.add_run(runs[0], whole)
        other.add_run(runs[1], replace(bare, values={"regret": bare.values["regret"]}))
    with Results.open(tmp_path) as results:
        table = results.curves_table()
        k = len(whole.t)
        assert table["gap_regret"][:k].tolist() == whole.values["gap_regret"].tolist()
        assert np.isnan(table["gap_regret"][k:]).all()


def test_the_summary_has_the_numbers_of_the_report(results: Results) -> None:
    frame = results.summary().set_index(["problem", "label", "measure"])
    with Store.open(results.store.path.parent) as store:
        summaries = analyse(gather(store)).summaries
    assert len(summaries) == 8
    for found in summaries:
        for measure, summary in found.by_measure.items():
            row = frame.loc[(found.cell.problem, found.cell.label, measure)]
            assert row["runs"] == 2
            assert row["least"] == summary.best
            assert row["lower_quartile"] == summary.lower_quartile
            assert row["median"] == summary.median
            assert row["upper_quartile"] == summary.upper_quartile
            assert row["most"] == summary.worst
            assert np.isnan(row["interval_low"])  # two runs are too few
            assert row["mean"] == summary.mean
            assert (row["mean_low"], row["mean_high"]) == summary.mean_interval
    assert frame.loc[("circle:2", "oracle", "planner_calls"), "median"] == 1.0
    assert "gain_kind" not in frame.index.get_level_values("measure")  # no number
    assert set(results.summary("gain")["measure"]) == {"gain"}


def test_a_recording_is_the_trajectory_by_name(results: Results) -> None:
    frame = results.recording("circle:2", "PSRL c=0.75")
    run = next(
        run
        for run in results.store.runs()
        if (run.problem, run.parameters.get("c"), run.seed) == ("circle:2", 0.75, 3)
    )
    recording = results.store.recording(run.key)
    assert recording is not None
    structure = results.store.model(run.model).structure
    assert frame.columns.tolist() == [
        "t",
        *structure.state_names,
        *structure.action_names,
        *(f"reward.{name}" for name in structure.reward_names),
        "reward",
    ]
    assert frame["t"].tolist() == list(range(1, 61))
    np.testing.assert_array_equal(frame[list(structure.state_names)], recording.states[:-1])
    np.testing.assert_array_equal(frame[list(structure.action_names)], recording.actions)
    regret = 60 * run.measures["gain"] - frame["reward"].sum()
    assert regret == pytest.approx(run.measures["regret"])
    again = results.recording(key=run.key)
    pd.testing.assert_frame_equal(frame, again)


def test_which_recording_must_be_clear(results: Results) -> None:
    with pytest.raises(UnknownName, match="4 recorded runs fit, and it must be one; they are: cir"):
        results.recording("circle:2")
    with pytest.raises(UnknownName, match="no recorded runs fit, and it must be one; there are: c"):
        results.recording("circle:2", "random", seed=5)


def test_a_variable_may_be_called_like_another_column(tmp_path: Path) -> None:
    model = FactoredMDP.from_factors(
        (2, 2),
        (2,),
        [([0], [[0.5, 0.5]] * 2), ([1], [[0.5, 0.5]] * 2)],
        [([0], [0.0, 1.0])],
        state_names=("t", "reward"),
        action_names=("reward.all",),
        reward_names=("all",),
    )
    save(model, tmp_path / "odd.json")
    spec = parse_spec(
        'steps = 5\nseeds = 1\nproblems = ["odd.json"]\nlearners = ["random"]\n', folder=tmp_path
    )
    run_sweep(spec, tmp_path / "out", workers=InThisProcess())
    with Results.open(tmp_path / "out") as results:
        frame = results.recording()
    assert frame.columns.tolist() == [
        "t",
        "variable.t",
        "variable.reward",
        "variable.reward.all",
        "reward.all",
        "reward",
    ]
    assert frame["t"].tolist() == list(range(1, 6))
    assert frame["reward.all"].tolist() == frame["variable.t"].tolist()


def test_one_spec_of_several(directory: Path, tmp_path: Path) -> None:
    both = tmp_path / "both"
    run_sweep(parse_spec(SPEC), both, workers=InThisProcess())
    smaller = (
        SPEC.replace('"first"', '"second"')
        .replace("PSRL", "Posterior")
        .replace(', "three-leg:3"]', "]")
    )
    run_sweep(parse_spec(smaller), both, workers=InThisProcess())
    with Results.open(both) as results:
        assert len(results.runs()) == 18  # the runs that both ask for are there once
        # The spec that was asked for last gives its runs their names.
        names = results.runs()[["problem", "label"]].drop_duplicates().values.tolist()
        assert ["circle:2", "Posterior c=0.1"] in names
        assert ["three-leg:3", "PSRL c=0.1"] in names
        assert ["circle:2", "PSRL c=0.1"] not in names
        own = results.runs("second")
        assert set(own["problem"]) == {"circle:2"}
        assert own["label"].drop_duplicates().tolist() == [
            "Posterior c=0.1",
            "Posterior c=0.75",
            "oracle",
            "random",
            "DORL",
        ]
        assert set(results.curves(spec="second")["problem"]) == {"circle:2"}
        assert set(results.summary(spec="second")["problem"]) == {"circle:2"}
        with pytest.raises(UnknownName, match=r"has no spec .*there are first, second; did you me"):
            results.runs("secnod")


def test_of_two_results_versions_the_newest_counts(directory: Path, tmp_path: Path) -> None:
    with Results.open(directory) as results, Store.create(tmp_path) as other:
        run = next(results.store.runs(status="done"))
        other.add_spec(results.store.specs()[0], [], [results.store.model(run.model)])
        for version, key in ((1, "a"), (2, "b")):
            measures = {**run.measures, "regret": float(version)}
            own = replace(run, key=key * 64, results_version=version, measures=measures)
            other.add_run(own, results.store.curve(run.key))
    with Results.open(tmp_path) as results:
        assert results.runs()["regret"].tolist() == [2.0]
        assert results.summary("regret")["runs"].tolist() == [1]


TABLES: dict[str, dict[str, Any]] = {
    "runs": {"parameters": "all"},
    "curves": {},
    "summary": {},
    "standings": {},
    "comparisons": {"measure": "gap_regret"},
    "slopes": {"measure": "gap_regret"},
    "against": {"parameter": "c"},
    "recording": {"problem": "circle:2", "label": "random"},
}


@pytest.mark.parametrize("name", TABLES)
def test_every_frame_has_the_columns_of_its_table(results: Results, name: str) -> None:
    frame = getattr(results, name)(**TABLES[name])
    table = getattr(results, f"{name}_table")(**TABLES[name])
    pd.testing.assert_frame_equal(frame, pd.DataFrame(table))
    assert len({len(column) for column in table.values()}) == 1
    assert len(frame) > 0


@pytest.mark.usefixtures("without_pandas")
@pytest.mark.parametrize("name", TABLES)
def test_without_pandas_arrays_are_there_and_the_extra_is_named(
    results: Results, name: str
) -> None:
    table = getattr(results, f"{name}_table")(**TABLES[name])
    assert all(isinstance(column, np.ndarray) for column in table.values())
    with pytest.raises(MissingFrames, match=r"pip install 'fmdp\[frames\]'") as caught:
        getattr(results, name)(**TABLES[name])
    assert isinstance(caught.value, ImportError)
    assert "\n" not in str(caught.value)


def test_what_is_in_there_in_six_lines(results: Results) -> None:
    lines = repr(results).splitlines()
    assert len(lines) == 6
    assert all(len(line) <= 120 for line in lines[1:])
    words = repr(results)
    for part in (
        "16 done, 2 failed, 0 not there yet",
        "circle:2, three-leg:3",
        "PSRL c=0.1",
        "first",
        "regret, gap_regret, gain",
    ):
        assert part in words


@pytest.mark.skipif(sqlite3.threadsafety < 3, reason="SQLite is built for one thread")
def test_results_are_read_and_forgotten_in_any_thread(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collector runs in whichever thread allocates, and results that nobody closed sit in
    cycles: of frames, notebooks, exceptions."""
    opened = load_results(directory)
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)

    def read_and_forget(held: list[Results]) -> int:
        runs = len(held[0].runs())
        held.append(held)  # type: ignore[arg-type]
        held.clear()
        gc.collect()
        return runs

    held = [opened]
    del opened
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(read_and_forget, held).result() == 18
    assert complaints == []


def test_closed_results_say_so(directory: Path) -> None:
    with Results.open(directory) as results:
        pass
    assert repr(results).endswith("runs.sqlite, closed")


def test_many_labels_are_cut(tmp_path: Path) -> None:
    values = ", ".join(f"{k / 100}" for k in range(1, 41))
    spec = parse_spec(
        'steps = 3\nseeds = 1\nproblems = ["circle:2"]\n'
        f'learners = [{{ name = "psrl", set = {{ c = [{values}] }} }}]'
    )
    run_sweep(spec, tmp_path, workers=InThisProcess())
    with Results.open(tmp_path) as results:
        lines = repr(results).splitlines()
    assert len(lines) == 6
    assert lines[3].endswith(" ...")
    assert len(lines[3]) <= 120


def test_an_empty_store_has_empty_frames(tmp_path: Path) -> None:
    Store.create(tmp_path).close()
    with Results.open(tmp_path) as results:
        assert len(results.runs()) == len(results.curves()) == len(results.summary()) == 0
        assert "regret" in results.curves().columns
        assert "0 done" in repr(results)
        with pytest.raises(UnknownName, match="there are: none"):
            results.recording()
    with pytest.raises(FileProblem, match="there is no such file"):
        Results.open(tmp_path / "nothing")


def test_results_let_go_of_the_file_when_nobody_needs_them(directory: Path) -> None:
    results = load_results(directory)
    store = results.store
    assert store.specs()
    del results
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.specs()


ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"^```(python|toml)\n(.*?)^```$",
    (ROOT / "docs" / "experiments.md").read_text(),
    flags=re.DOTALL | re.MULTILINE,
)


def test_every_block_of_the_page_is_run_or_is_an_example() -> None:
    examples = [path.read_text() for path in (ROOT / "examples").iterdir() if path.is_file()]
    unknown = [
        text
        for kind, text in BLOCKS
        if text not in examples
        and (kind == "toml" or not any(place in text for place in ('"DIR"', '-sweep"')))
    ]
    assert unknown == [text for _, text in BLOCKS if 'policy = "plan.npz"' in text]
    assert len(unknown) == 1
    assert len(BLOCKS) == 9


@pytest.fixture
def standing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own with the examples in it."""
    for path in (ROOT / "examples").iterdir():
        if path.is_file():
            (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_learner", None)


def test_the_baselines_of_the_page(standing: Path) -> None:
    (text,) = (text for _, text in BLOCKS if 'policy = "plan.npz"' in text)
    fmdp.plan(fmdp.problem("circle:3")).policy.save(standing / "plan.npz")
    head = 'steps = 30\nseeds = 1\nproblems = ["circle:3"]\n'
    spec = parse_spec(head + text, folder=standing)
    assert [cell.label for cell in spec.cells] == [
        "planned yesterday",
        "own_learner:first_that_is_down",
    ]
    assert run_sweep(spec, standing / "out", workers=InThisProcess()).done == 2


def test_the_example_of_ones_own_runs(standing: Path) -> None:
    text = (standing / "own.toml").read_text().replace("steps = 2_000", "steps = 200")
    spec = parse_spec(text, folder=standing)
    summary = run_sweep(spec, standing / "out", workers=InThisProcess())
    assert (summary.done, summary.failed) == (15, 0)
    with Results.open(standing / "out") as results:
        table = results.summary_table("gap_regret")
    median = dict(zip(table["label"], table["median"], strict=True))
    assert "epsilon-greedy epsilon=0.02" in median
    assert median["optimal policy"] == pytest.approx(0.0, abs=1e-6)
    assert median["epsilon-greedy epsilon=0.1"] > 0.0


@pytest.mark.slow
def test_the_sweep_of_the_page_runs(standing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (text for _, text in BLOCKS if '"python-sweep"' in text)
    exec(compile(block, "experiments.md", "exec"), {"__name__": "__main__"})
    printed = capsys.readouterr().out
    assert "24 done, 0 failed" in printed
    assert "DORL, linear programs" in printed
    assert printed.splitlines()[-1] == "27 {}"


def test_the_priors_of_the_page_run(standing: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = (text for _, text in BLOCKS if '"bayesian-sweep"' in text)
    exec(compile(block.replace("steps=200", "steps=20"), "experiments.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("dirichlet(circle:3),concentration=1, seed 0\n")
    assert "uniform rows" in printed


def test_the_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        (ROOT / "examples" / "sweep.toml")
        .read_text()
        .replace("steps = 2_000", "steps = 100")
        .replace("seeds = 3", "seeds = 1")
    )
    run_sweep(parse_spec(text), tmp_path / "DIR", workers=InThisProcess())
    monkeypatch.chdir(tmp_path)
    run = [text for _, text in BLOCKS if '"DIR"' in text]
    assert len(run) == 2  # the frames, and the store
    for block in run:
        exec(compile(block, "experiments.md", "exec"), {})
    assert "PSRL c=0.75" in capsys.readouterr().out
