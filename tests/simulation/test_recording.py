"""Recorded runs: the same run to the bit, and everything in them adds up."""

from __future__ import annotations

import builtins
import importlib
import shutil
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, TooLarge
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, Noise
from fmdp.simulation import Reference, Simulation, simulate
from fmdp.simulation import trajectory as trajectory_module
from fmdp.simulation.trajectory import CHUNK, Recorder
from fmdp.testing.learners import StepByStep

MODEL = fmdp.problem("random:3,values=3,actions=2,seed=4,noise=gaussian")
FREE = Reference(0.0, "exact", None, 0.0)
TWO_ACTIONS = fmdp.problem("machines:2")


def cost(run: fmdp.Run) -> tuple[Any, ...]:
    return run.regret, run.curve, run.gap_curve, run.total_reward, run.episodes, run.planner_calls


@pytest.mark.sampled
@pytest.mark.parametrize("name", LEARNERS.names())
@pytest.mark.parametrize("model", [MODEL, TWO_ACTIONS], ids=["random", "machines"])
def test_a_recorded_run_is_the_same_run(name: str, model: FactoredMDP) -> None:
    kind = LEARNERS.find(name)
    learner = kind.make(kind.example)
    if name == "policy" and model is TWO_ACTIONS:
        learner = kind.make({"policy": fmdp.plan(model).policy})
    if name == "opsrl" and model is TWO_ACTIONS:
        learner = kind.make({"c": 0.05})  # as published it has more samples than fit
    plain = simulate(model, learner, 500, 3)
    recorded = simulate(model, learner, 500, 3, record=True)
    assert cost(recorded) == cost(plain)
    assert plain.trajectory is None
    for one, other in zip(
        recorded.agent.statistics.counts, plain.agent.statistics.counts, strict=True
    ):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("steps", "by_hand"),
    [
        (1, False),
        (7, False),
        (CHUNK - 1, False),
        (CHUNK, False),
        (CHUNK + 1, False),
        (2 * CHUNK + 5, False),
        (7, True),
        (CHUNK + 1, True),
    ],
)
def test_a_trajectory_adds_up(steps: int, by_hand: bool) -> None:
    """Across the borders of its chunks, in bulk and step by step."""
    agent = fmdp.PSRL(episodes="doubling").start(MODEL, 1)
    player: Any = StepByStep(agent) if by_hand else agent
    run = simulate(MODEL, player, steps, 5, record=True, reference=FREE)
    found = run.trajectory
    assert found is not None
    s = MODEL.structure
    assert len(found) == steps
    assert found.states.shape == (steps + 1, s.m)
    assert found.actions.shape == (steps, len(s.action_sizes))
    assert found.rewards.shape == (steps, s.l)
    assert found.states.dtype == found.actions.dtype == np.uint8
    assert tuple(found.states[0].tolist()) == MODEL.initial_state
    # The same sum in the same order: factor by factor, then step by step.
    total = 0.0
    for rewards in found.rewards.tolist():
        of_step = 0.0
        for reward in rewards:
            of_step += reward
        total += of_step
    assert total == run.total_reward
    again = fmdp.Statistics(s)
    for t in range(steps):
        again.record(
            found.states[t].tolist(),
            found.actions[t].tolist(),
            found.rewards[t],
            found.states[t + 1].tolist(),
        )
    assert np.array_equal(again.counts.cells, agent.statistics.counts.cells)
    assert np.array_equal(again.counts.visits, agent.statistics.counts.visits)
    assert np.array_equal(again.counts.reward_sums, agent.statistics.counts.reward_sums)


def test_bulk_and_stepping_are_written_down_alike() -> None:
    ways = [fmdp.Random().start(TWO_ACTIONS, 2), StepByStep(fmdp.Random().start(TWO_ACTIONS, 2))]
    runs = [simulate(TWO_ACTIONS, way, 900, 1, record=True, reference=FREE) for way in ways]
    one, other = (run.trajectory for run in runs)
    assert one is not None
    assert other is not None
    assert np.array_equal(one.states, other.states)
    assert np.array_equal(one.actions, other.actions)
    assert np.array_equal(one.rewards, other.rewards)


def test_a_run_in_pieces_has_one_trajectory() -> None:
    whole = simulate(MODEL, "dorl", 300, 2, record=True, reference=FREE).trajectory
    pieces = Simulation(MODEL, "dorl", 2, reference=FREE, record=True)
    for steps in (1, 100, 199):
        pieces.run(steps)
        assert len(pieces.result().trajectory or ()) == pieces.environment.steps
    found = pieces.result().trajectory
    assert whole is not None
    assert found is not None
    assert np.array_equal(found.states, whole.states)
    assert np.array_equal(found.rewards, whole.rewards)


def test_a_recording_that_does_not_fit_is_refused_before_it_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """3 + 1 + 8 l bytes a step for three small variables and one action variable."""
    monkeypatch.setattr(trajectory_module, "available_memory", lambda: 2_000_000)
    a_step = 3 + 1 + 8 * MODEL.structure.l
    most = 1_000_000 // a_step
    assert simulate(MODEL, "random", most, record=True, reference=FREE).steps == most
    with pytest.raises(TooLarge, match=f"at most {most:,} steps") as refusal:
        simulate(MODEL, "random", most + 1, record=True, reference=FREE)
    assert "\n" not in str(refusal.value)
    assert simulate(MODEL, "random", most + 1, reference=FREE).steps == most + 1


# ---- frames -------------------------------------------------------------------------------------


def test_frames() -> None:
    pandas = pytest.importorskip("pandas")
    run = simulate(MODEL, "random", 50, 1, record=True, checkpoints=[1, 5, 50])
    frame = run.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == ["t", "regret", "gap_regret"]
    assert list(zip(frame["t"], frame["regret"], strict=True)) == list(run.curve)
    assert list(zip(frame["t"], frame["gap_regret"], strict=True)) == list(run.gap_curve or ())
    assert run.trajectory is not None
    steps = run.trajectory.to_frame()
    s = MODEL.structure
    assert len(steps) == 50
    assert list(steps["t"]) == list(range(1, 51))
    assert list(steps.columns)[1 : 1 + s.m] == list(s.state_names)
    assert steps[s.state_names[1]].tolist() == run.trajectory.states[:-1, 1].tolist()
    assert steps[s.action_names[0]].tolist() == run.trajectory.actions[:, 0].tolist()
    assert steps.iloc[:, -s.l - 1 : -1].to_numpy().tolist() == run.trajectory.rewards.tolist()
    assert steps["reward"].sum() == pytest.approx(run.total_reward)


def test_no_column_is_lost_to_another_of_its_name() -> None:
    """A variable called t, and a reward called like a variable."""
    structure = fmdp.Structure(
        (2, 2),
        (2,),
        ((0,), (1,)),
        ((0,),),
        state_names=("t", "x"),
        action_names=("a",),
        reward_names=("x",),
    )
    half = np.full((2, 2), 0.5)
    model = FactoredMDP(structure, [half, half], [[0.0, 1.0]])
    found = simulate(model, "random", 20, record=True, reference=FREE).trajectory
    assert found is not None
    columns = found.columns()
    assert list(columns) == ["t", "variable.t", "x", "a", "reward.x", "reward"]
    assert columns["t"].tolist() == list(range(1, 21))
    assert columns["variable.t"].tolist() == columns["reward.x"].tolist()  # it is the variable


def test_without_pandas_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, *rest: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", missing)
    run = simulate(MODEL, "random", 5, record=True, reference=FREE)
    assert run.trajectory is not None
    for frame in (run.to_frame, run.trajectory.to_frame):
        with pytest.raises(FmdpError, match=r"pip install 'fmdp\[frames\]'"):
            frame()
    assert builtins.set(run.columns()) == {"t", "regret"}


# ---- checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [[1, 10, 100], (100, 10, 1, 10), iter([10, 1, 100]), {1, 10}])
def test_checkpoints_are_the_users(given: Any) -> None:
    """In their order, each once, and the last step always."""
    run = simulate(MODEL, "dorl", 100, 3, checkpoints=given)
    assert [t for t, _ in run.curve] == [1, 10, 100]
    usual = dict(simulate(MODEL, "dorl", 100, 3).curve)
    assert all(usual[t] == regret for t, regret in run.curve)  # looking on changes nothing


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0], "integer >= 1"),
        ([101], "must be steps from 1 to 100"),
        ([], "must be steps from 1 to 100; got"),
        ([1.5], "integer >= 1"),
        (["x"], "integer >= 1"),
        (5, "must be steps from 1 to 100; got 5"),
        ([True], "integer >= 1"),
    ],
)
def test_checkpoints_that_are_none_are_refused(given: Any, said: str) -> None:
    with pytest.raises(InvalidParameter, match="'checkpoints' parameter of simulate") as refusal:
        simulate(MODEL, "random", 100, checkpoints=given)
    assert said in str(refusal.value)


@pytest.mark.parametrize("steps", [0, -1, True, 1.0, None, 2**53 + 1])
def test_a_run_has_at_least_one_step(steps: Any) -> None:
    with pytest.raises(InvalidParameter, match="'steps' parameter of simulate must be an integer"):
        simulate(MODEL, "random", steps)


# ---- what a run looks like -----------------------------------------------------------------------


class Wordy:
    """An agent of one's own whose repr has lines."""

    def __repr__(self) -> str:
        return "Wordy(\n  much\n)"

    def act(self, state: Any) -> int:
        return 0

    def observe(self, *step: Any) -> None: ...


@pytest.mark.parametrize(
    ("player", "first"),
    [
        (fmdp.DORL(c=0.1), "Run of DORL(c=0.1) on random:3"),
        (fmdp.Random(), "Run of Random() on random:3"),
        (Wordy(), "Run of Wordy( much ) on random:3"),
    ],
    ids=["dorl", "random", "wordy"],
)
def test_a_run_is_four_lines_at_most(player: Any, first: str) -> None:
    run = simulate(MODEL, player, 1200, 7)
    lines = repr(run).splitlines()
    assert len(lines) == (4 if isinstance(player, fmdp.DORL) else 3)
    assert lines[0].startswith(first)
    assert lines[0].endswith(", seed 7")
    assert (
        f"regret {run.regret:.6g} (gap regret {run.gap_regret:.6g}) after 1,200 steps" in lines[1]
    )
    assert "measured against the optimal gain" in lines[2]
    if isinstance(player, fmdp.DORL):
        assert lines[3].split()[:4] == [
            f"{run.episodes}",
            "episodes,",
            f"{run.planner_calls}",
            "plans,",
        ]


def test_a_model_without_rewards_is_recorded_too() -> None:
    model = FactoredMDP.from_factors([2], [2], [((1,), [[0.2, 0.8], [0.7, 0.3]])], noise=Noise())
    found = simulate(model, "random", 30, record=True, reference=FREE).trajectory
    assert found is not None
    assert found.rewards.shape == (30, 0)


def test_a_recording_takes_its_own_size_and_no_more() -> None:
    """Chunks were joined at the end, which took as much again."""
    simulation = Simulation(MODEL, "random", 1, reference=FREE, record=True)
    simulation.run(1000)
    tracemalloc.start()
    simulation.run(400_000)
    found = simulation.result().trajectory
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None
    size = found.states.nbytes + found.actions.nbytes + found.rewards.nbytes
    assert most < 1.2 * size


def test_what_is_recorded_later_changes_no_trajectory() -> None:
    simulation = Simulation(MODEL, "psrl", 1, reference=FREE, record=True)
    kept = []
    for steps in (1, 30, 7, 20_000, 3):
        simulation.run(steps)
        found = simulation.result().trajectory
        assert found is not None
        kept.append((found, found.states.copy(), found.actions.copy(), found.rewards.copy()))
    whole = Simulation(MODEL, "psrl", 1, reference=FREE, record=True)
    whole.run(1 + 30 + 7 + 20_000 + 3)
    expected = whole.result().trajectory
    assert expected is not None
    for found, states, actions, rewards in kept:
        assert np.array_equal(found.states, states)
        assert np.array_equal(states, expected.states[: len(states)])
        assert np.array_equal(found.actions, actions)
        assert np.array_equal(actions, expected.actions[: len(actions)])
        assert np.array_equal(found.rewards, rewards)
        assert np.array_equal(rewards, expected.rewards[: len(rewards)])


def test_a_folder_holds_what_memory_would(tmp_path: Path) -> None:
    """More steps than a chunk has, and a learner that plans: both ways of running are in it."""
    model = fmdp.problem("circle:3")
    steps = CHUNK + 100
    kept = fmdp.simulate(model, "psrl", steps, seed=3, record=True).trajectory
    run = fmdp.simulate(model, "psrl", steps, seed=3, record=tmp_path / "run")
    assert kept is not None
    assert run.trajectory is not None
    for name in ("states", "actions", "rewards"):
        expected, found = getattr(kept, name), np.load(tmp_path / "run" / f"{name}.npy")
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(getattr(run.trajectory, name), expected)


def test_a_folder_goes_on_and_earlier_trajectories_stay(tmp_path: Path) -> None:
    simulation = Simulation(fmdp.problem("circle:3"), "random", 0, record=tmp_path / "run")
    simulation.run(10)
    first = simulation.result().trajectory
    assert first is not None
    states = np.array(first.states)
    simulation.run(7)
    whole = simulation.result().trajectory
    assert whole is not None
    assert len(whole) == 17
    np.testing.assert_array_equal(first.states, states)
    np.testing.assert_array_equal(whole.states[:11], states)
    alone = Simulation(fmdp.problem("circle:3"), "random", 0, record=True)
    alone.run(17)
    at_once = alone.result().trajectory
    assert at_once is not None
    np.testing.assert_array_equal(whole.states, at_once.states)
    np.testing.assert_array_equal(whole.rewards, at_once.rewards)


def test_what_a_kill_leaves_is_a_shorter_recording(tmp_path: Path) -> None:
    """The files as they are between two chunks, which is all that a kill can see."""
    recorder = Recorder(fmdp.problem("circle:3").structure, tmp_path / "run")
    for _ in range(2):
        recorder.written(len(recorder.rows().states))
    assert len(np.load(tmp_path / "run" / "states.npy")) == CHUNK


def test_a_folder_that_is_not_empty_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(FileProblem, match="is not empty"):
        fmdp.simulate(fmdp.problem("circle:3"), "random", 5, record=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_recording_that_does_not_fit_onto_the_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    with pytest.raises(TooLarge, match="what is free on its disk: at most 3 steps"):
        fmdp.simulate(fmdp.problem("circle:3"), "random", 5, record=tmp_path / "run")
