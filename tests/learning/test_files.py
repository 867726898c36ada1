"""Bad learner files are refused in one line (check_learner sees that good ones go on exactly)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Exact
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.learning import files
from fmdp.learning.files import load_learner
from fmdp.simulation import Simulation

from .conftest import make
from .test_learners import MODEL, REFERENCE, Checking


def test_saving_between_act_and_observe(kind: tuple[str, dict[str, Any]], tmp_path: Path) -> None:
    learner = make(*kind, MODEL)
    Simulation(MODEL, learner, reference=REFERENCE).run(5)
    action = learner.act((0, 0, 0))
    learner.save(tmp_path / "learner.npz")
    loaded = load_learner(tmp_path / "learner.npz")
    assert loaded.act((0, 0, 0)) == action
    for one in (learner, loaded):
        one.observe((0, 0, 0), action, (0.0, 0.0, 0.0), (1, 1, 1))
    assert loaded.act((1, 1, 1)) == learner.act((1, 1, 1))


@pytest.mark.parametrize("name", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_every_bit_generator_of_numpy(name: str, tmp_path: Path) -> None:
    generator = np.random.Generator(getattr(np.random, name)(7))
    learner = fmdp.PSRL(MODEL.structure, generator=generator)
    learner.act((0, 0, 0))
    learner.save(tmp_path / "learner.npz")
    loaded = load_learner(tmp_path / "learner.npz")
    assert loaded.randomness.random(5).tolist() == generator.random(5).tolist()


def test_a_planner_of_ones_own_cannot_be_saved(tmp_path: Path) -> None:
    learner = fmdp.DORL(MODEL.structure, planner=Checking())
    with pytest.raises(InvalidParameter, match="cannot be saved; got checking"):
        learner.save(tmp_path / "learner.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    learner = fmdp.DORL(MODEL.structure, planner=Exact(ties="first"))
    Simulation(MODEL, learner, reference=REFERENCE).run(10)
    learner.save(tmp_path / "learner.npz")
    return tmp_path / "learner.npz"


def rewritten(path: Path, **changes: Any) -> Path:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(str(arrays.pop("header"))) | changes
    header = {key: value for key, value in header.items() if value is not ...}
    np.savez(path, header=np.array(json.dumps(header)), **arrays)
    return path


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "fmdp-policy"}, "its format is not fmdp-learner"),
        ({"version": 2}, "has learner version 2; this fmdp reads 1"),
        ({"learner": "dorll"}, "unknown learner 'dorll'.*did you mean \"dorl\""),
        ({"settings": {"d": 1}}, "has no parameter 'd'"),
        ({"planner": {"name": "perfect", "settings": {}}}, "unknown planner 'perfect'"),
        ({"counters": ...}, "lacks a part of its learner: 'counters'"),
        ({"state": {}}, "lacks a part of its learner"),
    ],
)
def test_a_bad_header_is_refused(saved: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(FileProblem, match=said) as caught:
        load_learner(rewritten(saved, **changes))
    assert "\n" not in str(caught.value)


def test_a_cut_or_foreign_file_is_refused(saved: Path, tmp_path: Path) -> None:
    content = saved.read_bytes()
    for cut in (0, 10, len(content) // 2, len(content) - 5):
        saved.write_bytes(content[:cut])
        with pytest.raises(FileProblem, match="not a learner file"):
            load_learner(saved)
    with pytest.raises(FileProblem, match="no such file"):
        load_learner(tmp_path / "nothing.npz")


def test_a_file_with_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "learner.npz"
    np.savez(path, header=np.array([{"format": "fmdp-learner"}], dtype=object))
    with pytest.raises(FileProblem, match="not a learner file"):
        load_learner(path)


def test_a_failed_save_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    learner = load_learner(saved)

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(FileProblem, match="cannot be written"):
        learner.save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["learner.npz"]
    assert files.VERSION == 1
