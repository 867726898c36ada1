"""The store: whole or not at all, never overwritten, and one clear line for any foreign file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fmdp.errors import FileProblem, InvalidParameter
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.store import FILE_NAME, Curve, Member, Recording, Store, StoredRun, StoredSpec
from fmdp.problems import problem

MODEL = problem("circle:2")

DONE = StoredRun(
    key="a" * 64,
    model=MODEL.content_hash,
    problem="circle:2",
    learner="psrl",
    role="learner",
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
    measures={
        "regret": 0.1 + 0.2,  # a number whose shortest text needs all its digits
        "gap_regret": 2.0,  # one that must not come back as a whole number
        "gain": 1.9,
        "gain_kind": "exact",
        "episodes": 4,
        "planner_calls": 4,
        "unconverged_plans": 0,
    },
)
FAILED = replace(DONE, key="b" * 64, status="failed", error="InvalidModel: no", measures={})
CURVE = Curve(
    np.array([1, 10, 100]),
    {"regret": np.array([0.1, -2.5, 0.3]), "gap_regret": np.array([0.0, 1.0, 2.0])},
)
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
        np.testing.assert_array_equal(curve.t, CURVE.t)
        assert curve.values.keys() == CURVE.values.keys()
        for name, values in CURVE.values.items():
            np.testing.assert_array_equal(curve.values[name], values)
        found = reader.run(DONE.key)
        assert found is not None
        assert [type(found.measures[name]) for name in ("gap_regret", "gain_kind", "episodes")] == [
            float,
            str,
            int,
        ]
        recording = reader.recording(DONE.key)
        assert recording is not None
        for name in ("states", "actions", "rewards", "times", "visited", "uncertainty"):
            kept, given = getattr(recording, name), getattr(RECORDING, name)
            np.testing.assert_array_equal(kept, given)
            assert kept.dtype == given.dtype
        assert len(reader.curve(FAILED.key).t) == 0
        assert reader.recording(FAILED.key) is None


def test_a_curve_without_gaps_says_so(store: Store) -> None:
    measures = {name: value for name, value in DONE.measures.items() if name != "gap_regret"}
    bare = replace(DONE, key="f" * 64, measures=measures)
    store.add_run(bare, Curve(CURVE.t, {"regret": CURVE.values["regret"]}))
    assert list(store.curve(bare.key).values) == ["regret"]
    found = store.run(bare.key)
    assert found is not None
    assert found.measure(GAP_REGRET) is None
    assert found.measure(REGRET) == 0.1 + 0.2


def test_a_run_that_is_done_is_never_overwritten(store: Store) -> None:
    with pytest.raises(FileProblem, match="is done and is not overwritten"):
        store.add_run(replace(DONE, measures={**DONE.measures, "regret": 0.0}))
    with pytest.raises(FileProblem):
        store.add_run(replace(FAILED, key=DONE.key))
    assert store.run(DONE.key) == DONE


RUN = f"'{DONE.key}'"
OTHER = "'" + "f" * 64 + "'"
COLUMNS = "model, problem, learner, role, parameters, planner, planner_settings, seed, steps, \
fmdp_version, results_version, machine, finished, seconds"


def another(status: str) -> str:
    """The run that is done once more, under another key, with this status."""
    return (
        f"INSERT INTO runs ({COLUMNS}, key, status) SELECT {COLUMNS}, {OTHER}, '{status}' "
        f"FROM runs WHERE key = {RUN}"
    )


@pytest.mark.parametrize(
    ("sentence", "why"),
    [
        (f"UPDATE runs SET error = NULL WHERE key = '{FAILED.key}'", "CHECK constraint failed"),
        (f"UPDATE runs SET role = 'king' WHERE key = '{FAILED.key}'", "CHECK constraint failed"),
        (
            another("failed"),
            "CHECK constraint failed",
        ),
        (f"INSERT INTO measures VALUES ({OTHER}, 'regret', 'low')", "CHECK constraint failed"),
        (f"INSERT INTO measures VALUES ({OTHER}, 'episodes', 1.5)", "CHECK constraint failed"),
        (f"INSERT INTO measures VALUES ({OTHER}, 'gain_kind', 'odd')", "CHECK constraint failed"),
        (f"INSERT INTO measures VALUES ({OTHER}, 'new', x'00')", "CHECK constraint failed"),
        (f"INSERT INTO measures VALUES ({OTHER}, 'new', NULL)", "NOT NULL constraint failed"),
    ],
)
def test_the_file_itself_refuses_what_must_not_be(store: Store, sentence: str, why: str) -> None:
    raw = sqlite3.connect(store.path)
    with pytest.raises(sqlite3.IntegrityError, match=why):
        raw.execute(sentence)
    raw.close()
    assert store.run(DONE.key) == DONE
    assert store.run(FAILED.key) == FAILED


@pytest.mark.parametrize(
    ("sentence", "key"),
    [
        (f"UPDATE runs SET seconds = 0.0 WHERE key = {RUN}", DONE.key),
        (f"UPDATE measures SET value = 0.0 WHERE run = {RUN} AND name = 'regret'", DONE.key),
        (f"DELETE FROM measures WHERE run = {RUN} AND name = 'gain'", DONE.key),
        (f"INSERT INTO measures VALUES ({RUN}, 'late', 1.0)", DONE.key),
        (f"INSERT INTO measures VALUES ('{FAILED.key}', 'regret', 1.0)", FAILED.key),
        (f"UPDATE curves SET value = 0.0 WHERE run = {RUN}", DONE.key),
        (f"DELETE FROM curves WHERE run = {RUN}", DONE.key),
        (f"INSERT INTO curves VALUES ({RUN}, 'regret', 7, 1.0)", DONE.key),
        ("UPDATE runs SET status = 'done', error = NULL", FAILED.key),
        (another("done"), "f" * 64),
    ],
)
def test_a_change_past_the_store_is_damage(store: Store, sentence: str, key: str) -> None:
    with closing(sqlite3.connect(store.path, isolation_level=None)) as raw:
        raw.execute(sentence)
    assert store.damaged().keys() == {key}


def test_a_failed_run_has_neither_measures_nor_curves(store: Store) -> None:
    for measures, curve in (({"regret": 1.0}, None), ({}, CURVE)):
        with pytest.raises(InvalidParameter, match="failed run must have no"):
            store.add_run(replace(FAILED, key="f" * 64, measures=measures), curve)
    assert store.run("f" * 64) is None


def test_a_failed_run_gives_way_to_the_same_run_done(store: Store) -> None:
    store.add_run(replace(DONE, key=FAILED.key), CURVE)
    assert store.keys("failed") == set()
    assert len(store.curve(FAILED.key).t) == 3


def test_a_run_is_stored_whole_or_not_at_all(store: Store) -> None:
    twice = Curve(np.array([1, 1]), {"regret": np.zeros(2)})  # t is unique: the second fails
    other = replace(DONE, key="f" * 64)
    with pytest.raises(FileProblem, match="cannot be stored"):
        store.add_run(other, twice, RECORDING)
    assert store.run(other.key) is None
    assert store.recording(other.key) is None


def test_runs_stored_together_are_there_at_the_end_except_for_one_that_cannot_be(
    store: Store,
) -> None:
    first, refused, last = (replace(DONE, key=letter * 64) for letter in "fgh")
    twice = Curve(np.array([1, 1]), {"regret": np.zeros(2)})
    with Store.open(store.path.parent) as reader:
        with contextlib.suppress(KeyboardInterrupt), store.together():
            store.add_run(first, CURVE)
            with pytest.raises(FileProblem, match="cannot be stored"):
                store.add_run(refused, twice)
            store.add_run(last, CURVE)
            assert reader.run(first.key) is None
            raise KeyboardInterrupt
        assert [reader.run(run.key) for run in (first, refused, last)] == [first, None, last]
        assert len(reader.curve(last.key).t) == 3


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


def test_a_newer_schema_version_is_refused(store: Store) -> None:
    store.close()
    raw = sqlite3.connect(store.path)
    raw.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    raw.commit()
    raw.close()
    before = store.path.read_bytes()
    words = "has schema version 99; this fmdp reads versions 3 to 4"
    assert words in refusal(store.path.parent)
    with pytest.raises(FileProblem, match=words):
        Store.create(store.path.parent)
    assert store.path.read_bytes() == before


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
