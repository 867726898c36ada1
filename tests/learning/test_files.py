"""Bad learner files are refused in one line (check_learner sees that good ones go on exactly)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Exact, load_agent
from fmdp._base.archives import pack
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.learning import files
from fmdp.learning.follow import Follow
from fmdp.learning.learner import Learner
from fmdp.simulation import Simulation
from fmdp.testing.learners import StepByStep

from .test_learners import MODEL, REFERENCE, Checking


def test_saving_between_act_and_observe(learner: Learner, tmp_path: Path) -> None:
    try:
        agent = learner.start(MODEL, 0)
    except FmdpError:
        pytest.skip("a choice that does not fit this model")
    Simulation(MODEL, agent, reference=REFERENCE).run(5)
    action = agent.act((0, 0, 0))
    agent.save(tmp_path / "learner.npz")
    loaded = load_agent(tmp_path / "learner.npz")
    assert loaded.learner == agent.learner
    assert loaded.act((0, 0, 0)) == action
    for one in (agent, loaded):
        one.observe((0, 0, 0), action, (0.0, 0.0, 0.0), (1, 1, 1))
    for _ in range(3):
        assert loaded.act((1, 1, 1)) == agent.act((1, 1, 1))
        for one in (agent, loaded):
            one.observe((1, 1, 1), action, (0.0, 0.0, 0.0), (1, 1, 1))


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_a_drawn_action_is_saved_with_the_agent(epsilon: float, tmp_path: Path) -> None:
    """An action drawn to answer `act` is taken next, in bulk and step by step."""
    best = fmdp.plan(MODEL).policy
    assert best is not None
    fmdp.ExploringPolicy(best, epsilon).save(tmp_path / "exploring.npz")
    agent = Follow(policy=tmp_path / "exploring.npz").start(MODEL, 4)
    answer = agent.act(MODEL.initial_state)
    agent.save(tmp_path / "learner.npz")
    walks = []
    for one in (
        agent,
        load_agent(tmp_path / "learner.npz"),
        StepByStep(load_agent(tmp_path / "learner.npz")),
    ):
        simulation = Simulation(MODEL, one, 1, reference=REFERENCE, record=True)
        simulation.run(40)
        trajectory = simulation.result().trajectory
        assert trajectory is not None
        walks.append(trajectory.actions.tolist())
    assert walks[0] == walks[1] == walks[2]
    assert tuple(walks[0][0]) == answer


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_bit_generator_of_numpy(name: str, tmp_path: Path) -> None:
    generator = np.random.Generator(getattr(np.random, name)(7))
    agent = fmdp.PSRL().start(MODEL.structure, generator)
    agent.act((0, 0, 0))
    agent.save(tmp_path / "learner.npz")
    loaded = load_agent(tmp_path / "learner.npz")
    assert loaded.randomness.random(5).tolist() == generator.random(5).tolist()


def test_a_planner_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    agent = fmdp.DORL(planner=Checking()).start(MODEL.structure)
    with pytest.raises(InvalidParameter, match=r"is no fmdp.Planner cannot be saved; got .*Checki"):
        agent.save(tmp_path / "learner.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    agent = fmdp.DORL(planner=Exact(ties="first")).start(MODEL.structure)
    Simulation(MODEL, agent, reference=REFERENCE).run(10)
    agent.save(tmp_path / "learner.npz")
    return tmp_path / "learner.npz"


def rewritten(path: Path, **changes: Any) -> Path:
    """The file with another header and the checksum of the whole: a lie, and no accident."""
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(str(arrays.pop("header"))) | changes
    header = {key: value for key, value in header.items() if value is not ...}
    path.write_bytes(pack(header, arrays))
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "fmdp-policy"}, "its format is not fmdp-learner"),
        ({"version": 1}, "has learner version 1; this fmdp reads 3"),
        ({"learner": "dorll"}, "unknown learner 'dorll'.*did you mean \"dorl\""),
        ({"settings": {"d": 1}}, "has no parameter 'd'"),
        ({"planner": {"name": "perfect", "settings": {}}}, "unknown planner 'perfect'"),
        ({"generator": ...}, "lacks a part of its learner: 'generator'"),
        ({"state": {}}, "lacks a part of its learner"),
    ],
)
def test_a_bad_header_is_refused(saved: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(FileProblem, match=said) as caught:
        load_agent(rewritten(saved, **changes))
    assert "\n" not in str(caught.value)


def test_a_cut_or_foreign_file_is_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for cut in (0, 10, len(content) // 2, len(content) - 5):
        saved.write_bytes(content[:cut])
        with pytest.raises(FileProblem, match="not a learner file"):
            load_agent(saved)
    with pytest.raises(FileProblem, match="no such file"):
        load_agent(tmp_path / "nothing.npz")


def test_a_file_with_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.npz"
    np.savez(path, header=np.array([{"format": "fmdp-learner"}], dtype=object))
    with pytest.raises(FileProblem, match="not a learner file"):
        load_agent(path)


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    agent = load_agent(saved)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(FileProblem, match="cannot be written"):
        agent.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["learner.npz"]
    assert files.VERSION == 3


# ---- a file runs nothing -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        {"learner": "brings_harm:Learner"},
        {"planner": {"name": "brings_harm:Planner", "settings": {}}},
        {"learner_planner": {"name": "brings_harm:Planner", "settings": {}}},
        {"learner": "policy", "settings": {"policy": "brings_harm:rule"}, "learner_planner": None},
    ],
    ids=["learner", "planner", "learner_planner", "rule"],
)
def test_a_file_does_not_import_what_it_names(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    (tmp_path / "brings_harm.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FileProblem, match="a file does not import code; import brings_harm first"):
        load_agent(rewritten(saved, **changes))


class Own(fmdp.PSRL):
    """Posterior sampling under a name of its own."""


def test_a_learner_of_ones_own_is_loaded_where_its_class_is_known(tmp_path: Path) -> None:
    agent = Own(c=0.5).start(MODEL, 3)
    agent.act(MODEL.initial_state)
    agent.save(tmp_path / "learner.npz")
    loaded = load_agent(tmp_path / "learner.npz")
    assert loaded.learner == Own(c=0.5)
    assert loaded.act((1, 1, 1)) == agent.act((1, 1, 1))


def test_a_rule_that_lives_somewhere_is_found_again(tmp_path: Path) -> None:
    agent = fmdp.simulate(MODEL, "policy,policy=fmdp.learning.follow:first_action", 7).agent
    agent.save(tmp_path / "learner.npz")
    loaded = load_agent(tmp_path / "learner.npz")
    assert (loaded.steps, loaded.act((1, 1, 1))) == (7, (0,))
    elsewhere = fmdp.simulate(MODEL, lambda state: 1, 7).agent
    with pytest.raises(InvalidParameter, match="cannot be saved"):
        elsewhere.save(tmp_path / "other.npz")
    assert not (tmp_path / "other.npz").exists()
