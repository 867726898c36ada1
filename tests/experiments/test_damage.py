"""Stores that were killed, locked, locked away, or changed behind fmdp's back: what is sound is
read whole, what is not is said in one line that names it, and nothing becomes a wrong number."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest

from fmdp import Results
from fmdp.errors import FileProblem
from fmdp.experiments import database, digests, worker
from fmdp.experiments.cells import group_runs
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.measures import repeatable
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import FILE_NAME, Damaged, Store, StoredRun
from fmdp.experiments.sweep import SweepSummary, run_sweep

SPEC = parse_spec("""
    steps = 30
    seeds = 2
    problems = ["circle:2"]
    learners = ["psrl", "random"]
""")
NOBODY = 65534


def swept(directory: Path, *, retry_failed: bool = False) -> SweepSummary:
    return run_sweep(SPEC, directory, workers=InThisProcess(), retry_failed=retry_failed)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test changes."""
    directory = tmp_path_factory.mktemp("sound")
    assert swept(directory).done == 4
    return directory


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    shutil.copy(sound / FILE_NAME, tmp_path / FILE_NAME)
    return tmp_path


def everything(directory: Path) -> list[object]:
    """All that a reader can ask for, times apart."""
    with Store.open(directory) as store:
        found: list[object] = [group_runs(store).missing]
        for run in store.runs():
            curve, recording = store.curve(run.key), store.recording(run.key)
            found += [run.key, run.status, repeatable(run.measures), curve.t.tolist()]
            found.append({name: values.tolist() for name, values in curve.values.items()})
            found.append(None if recording is None else recording.states.tolist())
            found.append(store.model(run.model).content_hash)
        return found


def changed(directory: Path, *sentences: str) -> str:
    """The key of a run that is done and recorded, after these changes to it."""
    with closing(sqlite3.connect(directory / FILE_NAME, isolation_level=None)) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        (key,) = raw.execute("SELECT run FROM recordings ORDER BY run").fetchone()
        for sentence in sentences:
            assert raw.execute(sentence, {"key": key}).rowcount != 0, sentence
    return str(key)


# ---- read-only, killed, locked ---------------------------------------------------------------


@contextmanager
def locked_away(directory: Path) -> Iterator[Path]:
    """The store where whoever reads it may write nothing; root becomes nobody for that."""
    place = Path(tempfile.mkdtemp())
    try:
        for path in directory.iterdir():
            shutil.copy(path, place)
        for path in place.iterdir():
            path.chmod(0o444)
        place.chmod(0o555)
        root = os.geteuid() == 0
        if root:
            os.seteuid(NOBODY)
        try:
            yield place
        finally:
            if root:
                os.seteuid(0)
    finally:
        place.chmod(0o755)
        shutil.rmtree(place)


def killed(directory: Path) -> None:
    """Makes the runs and dies before they are folded into the file."""
    program = textwrap.dedent("""
        import os, signal, sys
        from fmdp.experiments import sweep
        from fmdp.experiments.executors import InThisProcess
        from fmdp.experiments.spec import parse_spec
        def die(*args):
            os.kill(os.getpid(), signal.SIGKILL)
        sweep.SweepSummary = die
        sweep.run_sweep(parse_spec(sys.argv[1]), sys.argv[2], workers=InThisProcess())
    """)
    ended = subprocess.run(
        [sys.executable, "-c", program, SPEC.text, str(directory)], check=False, timeout=300
    )
    assert ended.returncode == -signal.SIGKILL
    assert (directory / f"{FILE_NAME}-wal").stat().st_size > 0


@pytest.mark.parametrize("left", ["-shm", "-wal", ""])
def test_after_a_kill_the_log_is_read_where_nothing_can_be_written(
    sound: Path, tmp_path: Path, left: str
) -> None:
    killed(tmp_path)
    if left != "-shm":
        (tmp_path / f"{FILE_NAME}-shm").unlink()
    if left == "":  # all is in the file: nothing is beside it
        Store.open(tmp_path).close()
    expected = everything(sound)
    with locked_away(tmp_path) as away:
        before = sorted(path.name for path in away.iterdir())
        assert everything(away) == expected
        assert sorted(path.name for path in away.iterdir()) == before


def test_a_log_that_cannot_be_read_is_not_ignored(tmp_path: Path) -> None:
    killed(tmp_path)
    (tmp_path / f"{FILE_NAME}-shm").unlink()
    with locked_away(tmp_path) as away:
        if os.getuid() == 0:
            os.seteuid(0)
        (away / f"{FILE_NAME}-wal").chmod(0)
        if os.getuid() == 0:
            os.seteuid(NOBODY)
        with pytest.raises(FileProblem, match=r"-wal: .* cannot be read"):
            Store.open(away)


def test_a_store_that_cannot_be_written_is_not_called_damaged(copy: Path) -> None:
    with locked_away(copy) as away, pytest.raises(FileProblem, match="cannot be") as caught:
        swept(away)
    assert "damaged" not in str(caught.value)


def test_a_lock_is_waited_for_not_long_and_not_in_silence(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "WAIT_SECONDS", 0.4)
    monkeypatch.setattr(database, "_SILENT_SECONDS", 0.1)
    said: list[str] = []
    holder = sqlite3.connect(copy / FILE_NAME, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(FileProblem, match="is locked by another process") as caught:
        Store.open(copy, waiting=said.append)
    assert "damaged" not in str(caught.value)
    assert len(said) == 1
    assert "waiting" in said[0]
    with pytest.raises(FileProblem, match="is locked by another process"):
        Store.create(copy, waiting=said.append)
    with pytest.warns(UserWarning, match="waiting"), pytest.raises(FileProblem):
        Store.open(copy)
    holder.close()
    with Store.open(copy, waiting=said.append) as store:  # and then nothing is in the way
        assert len(store.keys("done")) == 4
    assert len(said) == 2


def test_no_log_and_no_shared_memory_stays(sound: Path, tmp_path: Path) -> None:
    assert sorted(path.name for path in sound.iterdir()) == ["runs.lock", FILE_NAME]
    killed(tmp_path)
    expected = everything(sound)
    assert everything(tmp_path) == expected  # by a reader, which folds the log in
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs.lock", FILE_NAME]
    assert everything(tmp_path) == expected


def test_a_lock_that_is_a_directory_or_no_lock_is_one_line(copy: Path) -> None:
    lock = copy / "runs.lock"
    lock.mkdir()
    with pytest.raises(FileProblem, match=r"runs\.lock: is a directory"):
        swept(copy)
    lock.rmdir()
    lock.write_text("something else, longer than a header of SQLite\n" * 20)
    with pytest.raises(FileProblem, match=r"runs\.lock: cannot be the lock"):
        swept(copy)


def test_what_a_kill_has_left_is_cleaned_up(copy: Path) -> None:
    for suffix in ("", "-journal"):
        (copy / f".{FILE_NAME}.0badcafe.tmp{suffix}").write_bytes(b"half")
    swept(copy)
    assert sorted(path.name for path in copy.iterdir()) == ["runs.lock", FILE_NAME]


def test_a_pipe_is_no_store(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE_NAME)
    with pytest.raises(FileProblem, match="is not a regular file"):
        Store.open(tmp_path)


# ---- damaged content -------------------------------------------------------------------------

DAMAGE = [
    "UPDATE runs SET seconds = seconds + 1 WHERE key = :key",
    "UPDATE runs SET parameters = '{' WHERE key = :key",
    "UPDATE runs SET parameters = '[1]' WHERE key = :key",
    "UPDATE runs SET planner_settings = '\"x\"' WHERE key = :key",
    "UPDATE runs SET status = 'king' WHERE key = :key",
    "UPDATE runs SET role = 'king' WHERE key = :key",
    "UPDATE runs SET steps = -5 WHERE key = :key",
    "UPDATE runs SET seconds = 9e999 WHERE key = :key",
    "UPDATE runs SET learner = CAST(x'ff' AS TEXT) WHERE key = :key",
    "UPDATE measures SET value = 'high' WHERE run = :key AND name = 'regret'",
    "UPDATE measures SET value = 9e999 WHERE run = :key AND name = 'regret'",
    "UPDATE measures SET value = x'00' WHERE run = :key AND name = 'gain'",
    "UPDATE measures SET value = value + 1e-9 WHERE run = :key AND name = 'regret'",
    "DELETE FROM measures WHERE run = :key",
    "DELETE FROM measures WHERE run = :key AND name = 'gain_kind'",
    "DELETE FROM curves WHERE run = :key",
    "DELETE FROM curves WHERE run = :key AND measure = 'regret' AND t = 1",
    "UPDATE curves SET value = 9e999 WHERE run = :key",
    "UPDATE curves SET measure = 'nonsense' WHERE run = :key AND measure = 'regret'",
    "DELETE FROM recordings WHERE run = :key AND array = 'states'",
    "UPDATE recordings SET data = x'00' WHERE run = :key AND array = 'states'",
    "UPDATE recordings SET shape = '[1, 2' WHERE run = :key AND array = 'states'",
    "UPDATE recordings SET dtype = 'O' WHERE run = :key AND array = 'states'",
    "UPDATE recordings SET array = 'own' WHERE run = :key AND array = 'states'",
    "DELETE FROM digests WHERE name = :key",
]


@pytest.mark.parametrize("sentence", DAMAGE)
def test_a_run_that_was_changed_is_named_not_counted_and_made_again(
    copy: Path, sound: Path, sentence: str
) -> None:
    key = changed(copy, sentence)
    with pytest.raises(Damaged) as caught:
        everything(copy)
    text = str(caught.value)
    assert text.startswith(str(copy / FILE_NAME))
    assert key in text
    with Results.open(copy) as results, pytest.raises(Damaged, match=key):
        results.runs_table()
    summary = swept(copy)
    assert (summary.done, summary.failed) == (3, 1)
    assert key in next(iter(summary.errors.values()))
    again = swept(copy, retry_failed=True)
    assert (again.done, again.failed, again.already) == (4, 0, 3)
    assert everything(copy) == everything(sound)


def test_what_is_left_of_a_run_that_is_gone_is_in_nobodys_way(copy: Path, sound: Path) -> None:
    changed(copy, "DELETE FROM runs WHERE key = :key")
    assert swept(copy).done == 4
    assert everything(copy) == everything(sound)


@pytest.mark.parametrize(
    "sentence",
    [
        "UPDATE specs SET resolved = '{'",
        "UPDATE specs SET title = 'another'",
        "UPDATE members SET label = 'another' WHERE position = 1",
        "DELETE FROM members WHERE position = 1",
        "UPDATE models SET document = x'00'",
        "UPDATE models SET document = zeroblob(100)",
    ],
)
def test_a_damaged_spec_or_model_is_named_and_mended_by_the_same_sweep(
    copy: Path, sound: Path, sentence: str
) -> None:
    changed(copy, sentence)
    with pytest.raises(FileProblem, match=r"is damaged: .*; the same sweep again mends it"):
        everything(copy)
    assert swept(copy).already == 4
    assert everything(copy) == everything(sound)


@pytest.mark.parametrize("table", ["digests", "curves", "recordings", "members", "meta"])
def test_a_store_without_one_of_its_tables_is_refused_in_one_line(copy: Path, table: str) -> None:
    with closing(sqlite3.connect(copy / FILE_NAME)) as raw:
        raw.execute(f"DROP TABLE {table}")
    for action in (Store.open, Store.create):
        with pytest.raises(FileProblem, match=FILE_NAME):
            action(copy)


def test_damage_to_what_no_spec_asks_for_stops_nothing(copy: Path) -> None:
    with Store.create(copy) as store:
        run = next(store.runs(status="done"))
        other = StoredRun(**{**vars(run), "key": "0" * 64, "results_version": 0})
        store.add_run(other, store.curve(run.key))
    with closing(sqlite3.connect(copy / FILE_NAME)) as raw:
        raw.execute("DELETE FROM digests WHERE name = ?", ("0" * 64,))
        raw.commit()
    with Store.open(copy) as store:
        found = group_runs(store)
    assert found.damaged == 1
    assert sum(len(cell.runs) for cell in found.cells) == 4


def read_or_told(directory: Path) -> list[object] | str:
    try:
        return everything(directory)
    except FileProblem as error:
        return str(error)


@pytest.mark.parametrize(
    "sentence",
    [
        "UPDATE specs SET hash = 'another'",
        "UPDATE runs SET key = 'another' WHERE key = :key",
        "UPDATE runs SET key = CAST(x'ff' AS TEXT) WHERE key = :key",
    ],
)
def test_what_has_lost_its_name_goes_when_damage_is_made_good(
    copy: Path, sound: Path, sentence: str
) -> None:
    changed(copy, sentence)
    assert swept(copy, retry_failed=True).failed == 0
    assert everything(copy) == everything(sound)


def test_a_schema_that_is_no_text_is_damage(copy: Path) -> None:
    path = copy / FILE_NAME
    path.write_bytes(
        path.read_bytes().replace(b"CREATE TABLE runs (", b"CREATE TABLE \x8a\x8auns(")
    )
    for action in (Store.open, Store.create):
        with pytest.raises(FileProblem, match="is damaged"):
            action(copy)


@pytest.mark.parametrize("said", ["", "x", "-1", "0", "5", "9" * 5000, "²"])
def test_a_version_that_is_none_is_refused_in_one_line(copy: Path, said: str) -> None:
    with closing(sqlite3.connect(copy / FILE_NAME, isolation_level=None)) as raw:
        raw.execute("UPDATE meta SET value = ? WHERE key = 'schema_version'", (said,))
    for action in (Store.open, Store.create):
        with pytest.raises(FileProblem, match="has schema version"):
            action(copy)


def test_flipped_bits_are_found_or_do_no_harm(copy: Path, sound: Path) -> None:
    whole = (sound / FILE_NAME).read_bytes()
    expected = everything(sound)
    generator = random.Random(10)
    found = 0
    for _ in range(150):
        place = generator.randrange(len(whole))
        flipped = bytearray(whole)
        flipped[place] ^= 1 << generator.randrange(8)
        (copy / FILE_NAME).write_bytes(flipped)
        told = read_or_told(copy)
        if isinstance(told, str):
            assert FILE_NAME in told
            assert "\n" not in told
            found += 1
        else:
            assert told == expected, place
        for left in copy.glob(f"{FILE_NAME}-*"):
            left.unlink()
    assert found > 30  # most of a store is content


# ---- runs that cannot be stored --------------------------------------------------------------


@pytest.mark.parametrize("checked_by_the_worker", [True, False])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "low"])
def test_a_run_that_cannot_be_stored_is_a_failed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: object, checked_by_the_worker: bool
) -> None:
    genuine = worker.measured
    monkeypatch.setattr(
        worker,
        "measured",
        lambda run: {**genuine(run), **({"regret": value} if run.seed == 1 else {})},
    )
    if not checked_by_the_worker:
        monkeypatch.setattr(worker, "checked", lambda measures, *, done: measures)
    summary = swept(tmp_path)
    assert (summary.done, summary.failed) == (2, 2)
    assert all("'regret' measure" in error for error in summary.errors.values())
    assert swept(tmp_path).already == 4
    monkeypatch.setattr(worker, "measured", genuine)
    assert swept(tmp_path, retry_failed=True).done == 4


def test_a_curve_that_cannot_be_stored_is_a_failed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = worker.curve_of

    def broken(run: object) -> object:
        curve = genuine(run)  # type: ignore[arg-type]
        curve.values["regret"][0] = np.nan  # type: ignore[index]
        return curve

    monkeypatch.setattr(worker, "curve_of", broken)
    summary = swept(tmp_path)
    assert (summary.done, summary.failed) == (0, 4)


def test_any_error_of_a_run_can_be_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise ValueError("half of a character: \udcff, and nothing: \0, " + "x" * 10**6)

    monkeypatch.setattr(worker, "simulate", broken)
    assert swept(tmp_path).failed == 4
    with Store.open(tmp_path) as store:
        for run in store.runs():
            assert run.error is not None
            assert len(run.error) < 200_000


# ---- digests ---------------------------------------------------------------------------------


def test_a_recording_is_never_unpacked_to_more_than_it_says(copy: Path) -> None:
    """A few bytes that say they are gigabytes: refused by the shape, not by the memory."""
    bomb = zlib.compress(b"\0" * 10**7)
    with closing(sqlite3.connect(copy / FILE_NAME, isolation_level=None)) as raw:
        raw.execute("UPDATE recordings SET data = ? WHERE array = 'states'", (bomb,))
        for (key,) in raw.execute("SELECT DISTINCT run FROM recordings").fetchall():
            digests.note(raw, "run", key)
    with Store.open(copy) as store:
        key = next(iter(store.recorded()))
        with pytest.raises(Damaged, match="has other bytes"):
            store.recording(key)
