"""The store: whole or not at all, never overwritten, and one clear line for any foreign file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmdp.errors import FileProblem
from fmdp.experiments.store import FILE_NAME, Curve, Member, Recording, Store, StoredRun, StoredSpec
from fmdp.problems import problem

MODEL = problem("circle:2")

DONE = StoredRun(
    key="a" * 64,
    model=MODEL.content_hash,
    problem="circle:2",
    learner="psrl",
    parameters={"c": 0.75, "prior": 0.01},
    planner="exact",
    planner_settings={"tolerance": 1e-6, "max_iterations": None},
    seed=3,
    steps=100,
    fmdp_version="0.1.0",
    results_version=1,
    machine="a test",
    finished="2026-01-01T00:00:00Z",
    seconds=0.5,
    status="done",
    regret=0.1 + 0.2,  # a number whose shortest text needs all its digits
    gap_regret=1.5,
    gain=1.9,
    gain_kind="exact",
    episodes=4,
    planner_calls=4,
    unconverged_plans=0,
)
FAILED = replace(
    DONE, key="b" * 64, status="failed", error="InvalidModel: no", regret=None, gap_regret=None,
    gain=None, gain_kind=None, episodes=None, planner_calls=None, unconverged_plans=None,
)  # fmt: skip
CURVE = Curve(np.array([1, 10, 100]), np.array([0.1, -2.5, 0.3]), np.array([0.0, 1.0, 1.5]))
RECORDING = Recording(
    states=np.array([[1, 1], [0, 1], [1, 0]], dtype=np.uint8),
    actions=np.array([[2], [0]], dtype=np.uint8),
    rewards=np.array([[1.0, 1.0], [0.0, 1.0]]),
    times=np.array([0, 2]),
    visited=np.array([[0, 0], [2, 1]]),
    uncertainty=np.array([[1.0, 1.0], [0.5, 0.7]]),
)
SPEC = StoredSpec("c" * 64, "small", "A title", "text", {"steps": 100}, "0.1.0", "2026-01-01")
MEMBERS = [
    Member(0, FAILED.key, "circle:2", MODEL.content_hash, "PSRL", 2),
    Member(1, DONE.key, "circle:2", MODEL.content_hash, "PSRL", 3),
    Member(2, "d" * 64, "circle:2", MODEL.content_hash, "PSRL", 4),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.create(tmp_path / "deep" / "out")
    store.add_spec(SPEC, MEMBERS, [MODEL])
    store.add_run(DONE, CURVE, RECORDING)
    store.add_run(FAILED)
    yield store
    store.close()


def test_what_is_stored_is_read_back_to_the_last_bit(store: Store) -> None:
    with Store.open(store.path.parent) as reader:
        assert reader.run(DONE.key) == DONE
        assert reader.run("e" * 64) is None
        assert list(reader.runs(spec=SPEC.hash)) == [FAILED, DONE]  # in the order of the spec
        assert list(reader.runs(status="failed")) == [FAILED]
        assert reader.keys("done") == {DONE.key}
        assert reader.specs() == [SPEC]
        assert reader.members(SPEC.hash) == MEMBERS
        assert reader.model(MODEL.content_hash) == MODEL
        curve = reader.curve(DONE.key)
        for name in ("t", "regret", "gap_regret"):
            np.testing.assert_array_equal(getattr(curve, name), getattr(CURVE, name))
        recording = reader.recording(DONE.key)
        assert recording is not None
        for name in ("states", "actions", "rewards", "times", "visited", "uncertainty"):
            kept, given = getattr(recording, name), getattr(RECORDING, name)
            np.testing.assert_array_equal(kept, given)
            assert kept.dtype == given.dtype
        assert len(reader.curve(FAILED.key).t) == 0
        assert reader.recording(FAILED.key) is None


def test_a_curve_without_gaps_says_so(store: Store) -> None:
    bare = replace(DONE, key="f" * 64, gap_regret=None)
    store.add_run(bare, Curve(CURVE.t, CURVE.regret, None))
    assert store.curve(bare.key).gap_regret is None


def test_a_run_that_is_done_is_never_overwritten(store: Store) -> None:
    with pytest.raises(FileProblem, match="is done and is not overwritten"):
        store.add_run(replace(DONE, regret=0.0))
    with pytest.raises(FileProblem):
        store.add_run(replace(FAILED, key=DONE.key))
    raw = sqlite3.connect(store.path)
    for sentence in ("UPDATE runs SET regret = 0.0", "DELETE FROM runs"):
        with pytest.raises(sqlite3.IntegrityError, match="done is never"):
            raw.execute(f"{sentence} WHERE key = '{DONE.key}'")
    raw.close()
    assert store.run(DONE.key) == DONE


def test_a_failed_run_gives_way_to_the_same_run_done(store: Store) -> None:
    store.add_run(replace(DONE, key=FAILED.key), CURVE)
    assert store.keys("failed") == set()
    assert len(store.curve(FAILED.key).t) == 3


def test_a_run_is_stored_whole_or_not_at_all(store: Store) -> None:
    twice = Curve(np.array([1, 1]), np.array([0.0, 0.0]), None)  # t is unique: the second fails
    other = replace(DONE, key="f" * 64)
    with pytest.raises(FileProblem, match="cannot be written"):
        store.add_run(other, twice, RECORDING)
    assert store.run(other.key) is None
    assert store.recording(other.key) is None


def test_foreign_keys_hold(store: Store) -> None:
    with pytest.raises(FileProblem, match="FOREIGN KEY"):
        store.add_run(replace(DONE, key="f" * 64, model="0" * 64))


def test_the_same_spec_again_changes_nothing_but_what_it_asks_for(store: Store) -> None:
    store.add_spec(replace(SPEC, added="2027-01-01"), MEMBERS[:1], [MODEL])
    assert store.specs() == [SPEC]
    assert store.members(SPEC.hash) == MEMBERS[:1]


def test_a_reader_cannot_write(store: Store) -> None:
    with Store.open(store.path.parent) as reader, pytest.raises(FileProblem, match="readonly"):
        reader.add_run(replace(DONE, key="f" * 64))


def test_one_process_writes_at_a_time(store: Store) -> None:
    other = Store.create(store.path.parent)
    with (
        store.writing(),
        pytest.raises(FileProblem, match="another process is writing"),
        other.writing(),
    ):
        pass
    with other.writing():  # the first has let go
        pass
    other.close()


def refusal(directory: Path) -> str:
    with pytest.raises(FileProblem) as caught:
        Store.open(directory)
    return str(caught.value)


def test_foreign_and_half_written_files_get_one_line(tmp_path: Path, store: Store) -> None:
    path = tmp_path / FILE_NAME
    assert "there is no such file" in refusal(tmp_path)
    path.write_bytes(b"")
    assert "is empty" in refusal(tmp_path)
    path.write_text("hello\n" * 100)
    assert "is not a SQLite file" in refusal(tmp_path)
    path.unlink()
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE meta (key, value)")
    other.commit()
    other.close()
    assert "not a store of fmdp" in refusal(tmp_path)
    store.close()
    whole = store.path.read_bytes()
    for share in (0.3, 0.6, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        assert "damaged or half-written" in refusal(tmp_path)
        before = path.read_bytes()
        with pytest.raises(FileProblem):
            Store.create(tmp_path)
        assert path.read_bytes() == before  # a refusal leaves it as it was


def test_another_schema_version_is_refused(store: Store) -> None:
    store.close()
    raw = sqlite3.connect(store.path)
    raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    raw.commit()
    raw.close()
    assert "has schema version 99; this fmdp reads version 1" in refusal(store.path.parent)


def test_making_a_store_leaves_no_other_file(tmp_path: Path) -> None:
    Store.create(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_store_in_a_directory_that_cannot_be_written_is_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.close()
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write anywhere
    with Store.open(store.path.parent) as reader:
        assert reader.run(DONE.key) == DONE
    assert [path.name for path in store.path.parent.iterdir()] == [FILE_NAME]  # as it was
