"""A sweep gives the same numbers serial, parallel, interrupted, and with workers that die."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp.experiments.executors import InThisProcess, Processes
from fmdp.experiments.measures import GAIN, repeatable
from fmdp.experiments.progress import SweepProgress
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep
from fmdp.experiments.worker import Task, run_task

Contents = Callable[[Path], dict[str, Any]]


@pytest.mark.slow
def test_two_workers_of_which_one_is_killed_give_what_one_process_gives(
    spec: Spec, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    killed: list[int] = []

    def kill_one(news: SweepProgress) -> None:
        if news.done >= 4 and not killed:  # two runs may end in the same breath
            victim = multiprocessing.active_children()[0]
            assert victim.pid is not None
            killed.append(victim.pid)
            victim.kill()

    summary = run_sweep(spec, tmp_path, workers=Processes(2), progress=kill_one)
    assert killed
    assert (summary.done, summary.failed) == (18, 0)
    assert contents(tmp_path) == serial


def test_an_interrupted_sweep_goes_on_and_repeats_nothing(
    spec: Spec, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    def interrupt(news: SweepProgress) -> None:
        if news.done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(spec, tmp_path, workers=InThisProcess(), progress=interrupt)
    with Store.open(tmp_path) as store:
        first = {run.key: run for run in store.runs()}
    assert len(first) == 5

    seen: list[SweepProgress] = []
    summary = run_sweep(spec, tmp_path, workers=InThisProcess(), progress=seen.append)
    assert (summary.done, summary.already) == (18, 5)
    assert contents(tmp_path) == serial
    with Store.open(tmp_path) as store:  # times included: these were not made again
        assert all(store.run(key) == run for key, run in first.items())
    assert [news.done for news in seen if news.running == 0] == list(range(5, 19))
    assert seen[-1].leader in {"psrl (exact)", "dorl (alp)"}  # whoever it is, it is not chance

    again = run_sweep(spec, tmp_path, workers=InThisProcess())
    assert (again.done, again.already) == (18, 18)


def test_who_knows_the_model_is_never_ahead(tmp_path: Path) -> None:
    spec = parse_spec("""
        steps = 200
        seeds = 2
        problems = ["circle:2"]
        learners = ["oracle", "random", { name = "psrl", label = "PSRL" }]
    """)
    seen: list[SweepProgress] = []
    run_sweep(spec, tmp_path, workers=InThisProcess(), progress=seen.append)
    with Store.open(tmp_path) as store:
        medians = {
            role: np.median([r.measures["regret"] for r in store.runs() if r.role == role])
            for role in ("upper", "lower", "learner")
        }
    assert min(medians, key=medians.__getitem__) == "upper"  # it would be, by its regret
    assert "oracle" not in {news.leader for news in seen}
    run_sweep(spec, tmp_path, workers=InThisProcess(), progress=seen.append)  # all are stored now
    assert seen[-1].leader == "PSRL"


def test_a_larger_spec_uses_what_a_smaller_one_has_made(
    spec: Spec, spec_text: str, serial: dict[str, Any], contents: Contents, tmp_path: Path
) -> None:
    smaller = parse_spec(spec_text.replace("seeds = 3", "seeds = 1"))
    assert run_sweep(smaller, tmp_path, workers=InThisProcess()).done == 6
    assert run_sweep(spec, tmp_path, workers=InThisProcess()).already == 6
    found = contents(tmp_path)
    assert [len(members) for members in found.pop("members")] in ([6, 18], [18, 6])
    assert found == {key: run for key, run in serial.items() if key != "members"}


def test_a_failed_run_is_kept_with_its_error_and_stops_nothing(tmp_path: Path) -> None:
    spec = parse_spec("""
        steps = 50
        seeds = 2
        problems = ["circle:2"]
        learners = [{ name = "dorl", planner = { name = "exact", memory_limit = 1 } }, "random"]
    """)
    summary = run_sweep(spec, tmp_path, workers=InThisProcess())
    assert (summary.total, summary.done, summary.failed) == (4, 2, 2)
    (name, error) = next(iter(summary.errors.items()))
    assert name == "circle:2, dorl (exact memory_limit=1), seed 0"
    assert error.startswith("TooLarge: ")

    # Failed runs are finished too, unless one asks for them.
    with Store.open(tmp_path) as store:
        before = {run.key: run.finished for run in store.runs()}
    assert run_sweep(spec, tmp_path, workers=InThisProcess()).already == 4
    with Store.open(tmp_path) as store:
        assert {run.key: run.finished for run in store.runs()} == before
    retried = run_sweep(spec, tmp_path, workers=InThisProcess(), retry_failed=True)
    assert (retried.already, retried.failed) == (2, 2)


def test_the_example_runs(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "sweep.toml"
    text = example.read_text().replace("steps = 2_000", "steps = 100")
    summary = run_sweep(parse_spec(text), tmp_path, workers=InThisProcess())
    assert (summary.done, summary.failed) == (33, 0)


def test_a_recording_is_the_run_that_the_bulk_loop_makes(spec: Spec) -> None:
    """Recorded runs go step by step; not a bit of them differs."""
    for run in list(spec.runs())[:6]:
        recorded = run_task(Task.of(run))
        bare = Task.of(run)
        object.__setattr__(bare, "record", False)
        bulk = run_task(bare)
        assert repeatable(recorded.run.measures) == repeatable(bulk.run.measures)
        assert recorded.curve is not None
        assert bulk.curve is not None
        np.testing.assert_array_equal(recorded.curve.values["regret"], bulk.curve.values["regret"])
        assert bulk.recording is None


def test_a_recording_can_be_replayed(spec: Spec) -> None:
    made = run_task(Task.of(next(iter(spec.runs()))))
    recording, curve, run = made.recording, made.curve, made.run
    assert recording is not None
    assert curve is not None
    gain = run.measure(GAIN)
    assert gain is not None
    model = spec.problems[0].model
    assert recording.states.shape == (301, 2)
    assert recording.actions.shape == (300, 1)
    assert tuple(recording.states[0]) == model.initial_state
    # The rewards are those of the states and actions, and sum up to the regret.
    for t in (0, 7, 299):
        expected = model.expected_reward(
            recording.states[t].tolist(), recording.actions[t].tolist()
        )
        assert recording.rewards[t].sum() == pytest.approx(expected)
    realised = np.arange(1, 301) * gain - recording.rewards.sum(axis=1).cumsum()
    np.testing.assert_allclose(realised[curve.t - 1], curve.values["regret"], atol=1e-9)
    # Frames: from nothing known to what a count by hand gives at the end.
    assert recording.times[0] == 0
    assert recording.times[-1] == 300
    np.testing.assert_array_equal(recording.visited[0], [0, 0])
    np.testing.assert_array_equal(recording.uncertainty[0], [1.0, 1.0])
    visits: dict[tuple[int, ...], int] = {}
    for state, action in zip(recording.states[:-1], recording.actions, strict=True):
        row = (*state.tolist(), *action.tolist())  # in circle:2 every scope is everything
        visits[row] = visits.get(row, 0) + 1
    unvisited = 4 * 3 - len(visits)
    mean = (unvisited + sum(n**-0.5 for n in visits.values())) / 12
    np.testing.assert_array_equal(recording.visited[-1], [len(visits)] * 2)
    np.testing.assert_allclose(recording.uncertainty[-1], [mean] * 2)
