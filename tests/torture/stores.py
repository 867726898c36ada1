"""Stores, sweeps and reports: killed, damaged in bytes and by SQL, locked, on a full disk, read
while they are written.

What has to hold: a store gives exactly what an undisturbed sweep gives, or one line that names it;
a sweep that is started again ends with the numbers of one that was never disturbed; a report is the
old one or the new one. Nothing here looks into the code of the store, only at what it gives.
"""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")  # children are forked: no threads before

from fmdp.errors import FileProblem, FmdpError
from fmdp.experiments import database
from fmdp.experiments.cells import group_runs
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.measures import repeatable
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.experiments.store import FILE_NAME, Store
from fmdp.experiments.sweep import run_sweep
from fmdp.reports import report
from fmdp.reports.figures import MissingPlots
from torture import child
from torture.trial import Trial

Found = list[Any]
BATCH = 25


SPEC = """
    name = "NAME"
    steps = 30
    seeds = 2
    problems = ["circle:2", "circle:3"]
    learners = ["psrl", "random", "oracle"]
"""


@functools.cache
def spec(name: str = "tortured") -> Spec:
    return parse_spec(SPEC.replace("NAME", name))


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        folder = Path(text)
        sound = folder / "sound"
        sweep(sound)  # compiles, here, what the children will run
        reference = everything(sound)

        def several(full: int) -> int:
            return max(1, round(full * scale))

        for number, (name, full, one) in enumerate(
            [
                ("a sweep killed at random moments, and gone on with", 300, killed_sweeps),
                ("a report killed at random moments", 200, killed_reports),
                ("a store with damaged bytes: report and sweep", 4000, damaged_bytes),
                ("a store damaged by SQL: report, sweep, --retry-failed", 3000, damaged_by_sql),
                ("a store read while it is written, the writer killed", 40, read_while_written),
                ("a sweep on a full disk, and gone on with", 100, full_disk),
                ("a store that another process has locked", 20, locked),
            ]
        ):
            luck = random.Random(f"{seed} {number}")
            own = folder / f"round-{number}"
            own.mkdir()
            count = several(full)
            failures = tuple(one(luck, count, own, sound, reference))
            yield Trial(name, count, failures)
            shutil.rmtree(own)


def sweep(directory: Path, *, retry_failed: bool = False) -> tuple[int, int]:
    summary = run_sweep(
        spec(), directory, workers=InThisProcess(), retry_failed=retry_failed, waiting=str
    )
    return summary.done, summary.failed


def everything(directory: Path) -> Found:
    """All that a reader can ask for; times apart, as JSON would have it."""
    with Store.open(directory, waiting=str) as store, store.snapshot():
        found: Found = [group_runs(store).missing]
        models = functools.cache(lambda key: store.model(key).content_hash)
        for run in sorted(store.runs(skipping=store.damaged()), key=lambda run: run.key):
            curve, recording = store.curve(run.key), store.recording(run.key)
            measures = sorted(repeatable(run.measures).items())
            found.append([run.key, run.status, run.problem, run.learner, measures])
            found.append(
                [curve.t.tolist(), {n: v.tolist() for n, v in sorted(curve.values.items())}]
            )
            found.append(None if recording is None else recording.states.tolist())
            found.append(models(run.model))
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def written(directory: Path, out: Path) -> None:
    """The report without its figures, which take seconds and read nothing."""

    def none() -> None:
        raise MissingPlots("not now")

    report.require_matplotlib = none
    report.write_report(directory, out, waiting=str)


def contents(folder: Path) -> dict[str, str]:
    if not folder.exists():
        return {}
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def litter(directory: Path) -> list[str]:
    allowed = {FILE_NAME, "runs.lock", "report"}
    return sorted(path.name for path in directory.iterdir() if path.name not in allowed)


def seconds_of(action: Callable[[], Any]) -> float:
    """By the clock, in a child that nobody disturbs."""
    started = time.monotonic()
    child.run(action)
    return time.monotonic() - started


# ---- kills -----------------------------------------------------------------------------------


def killed_sweeps(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    # A moment of a sweep, not of what follows it; the first moments more often than the last.
    usual = seconds_of(lambda: sweep(folder / "usual"))
    kills = number = 0
    while kills < count:
        number += 1
        own = folder / str(number)
        for _ in range(luck.randint(1, 12)):
            ended = child.run(
                lambda own=own: sweep(own), kill_after=luck.random() ** 2 * 1.5 * usual
            )  # type: ignore[misc]
            kills += ended.signal == signal.SIGKILL
            if ended.error is not None:
                yield ended.error
            if ended.signal is None:
                break
        ended = child.run(lambda own=own: [sweep(own), everything(own)])  # type: ignore[misc]
        if ended.bad:
            yield ended.bad
        elif ended.result[1] != reference:
            yield f"after kills the store differs from one that was never disturbed ({own})"
        elif litter(own):
            yield f"left behind: {litter(own)}"


def killed_reports(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    other = folder / "other"
    run_sweep(spec("another"), other, workers=InThisProcess(), waiting=str)
    out = folder / "out" / "report"
    reports = []
    for store in (sound, other):
        ended = child.run(lambda store=store: written(store, out))  # type: ignore[misc]
        if ended.bad:
            yield ended.bad
        reports.append(contents(out))
    if reports[0] == reports[1] or not all(reports):
        yield "the two reports cannot be told from each other"
    usual = seconds_of(lambda: written(other, out))
    kills = 0
    for number in range(20 * count):
        store = (sound, other)[number % 2]
        after = luck.random() * 1.2 * usual
        ended = child.run(lambda store=store: written(store, out), kill_after=after)  # type: ignore[misc]
        kills += ended.signal == signal.SIGKILL
        if ended.error is not None:
            yield ended.error
        if contents(out) not in reports:
            yield f"the report is neither the old nor the new one: {sorted(contents(out))}"
        if ended.signal is None and [path.name for path in out.parent.iterdir()] != ["report"]:
            yield f"left behind: {[path.name for path in out.parent.iterdir()]}"
        if kills >= count:
            return


# ---- damage ----------------------------------------------------------------------------------


def damaged_bytes(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    whole = (sound / FILE_NAME).read_bytes()
    yield from batches(
        luck,
        count,
        folder,
        reference,
        lambda own, own_luck: mutate(whole, own / FILE_NAME, own_luck),
    )


def mutate(whole: bytes, path: Path, luck: random.Random) -> None:
    data = bytearray(whole)
    page = 4096
    kind = luck.choice(["bits", "bits", "bits", "header", "zeros", "cut", "longer", "pages"])
    if kind == "bits":
        for _ in range(luck.choice([1, 1, 2, 10])):
            data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    elif kind == "header":
        data[luck.randrange(100)] = luck.randrange(256)
    elif kind == "zeros":
        start = luck.randrange(len(data))
        end = min(len(data), start + luck.choice([1, 16, 512, page]))
        data[start:end] = bytes(end - start)
    elif kind == "cut":
        del data[luck.randrange(len(data)) :]
    elif kind == "longer":
        data += luck.randbytes(luck.choice([1, page]))
    else:
        pages = len(data) // page
        one, two = luck.randrange(pages) * page, luck.randrange(pages) * page
        data[one : one + page] = whole[two : two + page]
    path.write_bytes(data)


VALUES: list[Any] = [
    None,
    "",
    "x",
    "{",
    "[]",
    "[[[[[[",
    "{}",
    '{"a": NaN}',
    "done",
    "failed",
    "king",
    "\N{RIGHT-TO-LEFT OVERRIDE}\x1b[2J",
    "<script>",
    "[1e9, 1e9]",
    "[4611686018427387904, 4]",
    "|O",
    "<f8",
    0,
    -1,
    2**63 - 1,
    1e308,
    float("inf"),
    -0.0,
    b"",
    b"\xff",
    b"x\x9c\x03\x00\x00\x00\x00\x01",
    "9" * 5000,
]


def damaged_by_sql(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    def spoil(own: Path, own_luck: random.Random) -> None:
        shutil.copy(sound / FILE_NAME, own / FILE_NAME)
        with closing(sqlite3.connect(own / FILE_NAME, isolation_level=None)) as raw:
            for _ in range(own_luck.choice([1, 1, 3])):
                with suppress(sqlite3.Error):
                    change(raw, own_luck)

    yield from batches(luck, count, folder, reference, spoil)


def change(raw: sqlite3.Connection, luck: random.Random) -> None:
    """One change that the schema knows of: a value, a row, or a part of the schema itself."""
    raw.execute("PRAGMA ignore_check_constraints = ON")
    inside = raw.execute("SELECT type, name FROM sqlite_master WHERE sql NOT NULL").fetchall()
    for kind, name in inside:
        if kind == "trigger":
            raw.execute(f"DROP TRIGGER {name}")
    tables = [name for kind, name in inside if kind == "table"]
    table = luck.choice(tables)
    key = [row[1] for row in raw.execute(f"PRAGMA table_info({table})") if row[5]]
    rows = raw.execute(f"SELECT {', '.join(key)} FROM {table}").fetchall()
    if not rows:
        return  # an earlier change has emptied it
    where = " AND ".join(f"{column} = ?" for column in key)
    row = luck.choice(rows)
    kind = luck.choice(["value"] * 6 + ["delete", "delete all", "copy", "drop", "rename", "strict"])
    if kind == "value":
        column = luck.choice([row[1] for row in raw.execute(f"PRAGMA table_info({table})")])
        sentence = f"UPDATE {table} SET {column} = ? WHERE {where}"
        raw.execute(sentence, (luck.choice(VALUES), *row))
    elif kind == "delete":
        raw.execute(f"DELETE FROM {table} WHERE {where}", row)
    elif kind == "delete all":
        raw.execute(f"DELETE FROM {table}")
    elif kind == "copy":
        other = luck.choice(rows)
        column = luck.choice(key)
        raw.execute(f"UPDATE OR REPLACE {table} SET {column} = ? WHERE {where}", (other[0], *row))
    elif kind == "drop":
        raw.execute(f"DROP TABLE {table}")
    elif kind == "rename":
        column = luck.choice([row[1] for row in raw.execute(f"PRAGMA table_info({table})")])
        raw.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    else:
        raw.execute("PRAGMA writable_schema = ON")
        raw.execute(
            "UPDATE sqlite_master SET sql = replace(sql, 'STRICT, ', '') WHERE name = ?", (table,)
        )


def batches(
    luck: random.Random,
    count: int,
    folder: Path,
    reference: Found,
    spoil: Callable[[Path, random.Random], None],
) -> Iterator[str]:
    """Spoiled stores, many a child; a child that dies is tried again one by one."""
    seeds = [luck.random() for _ in range(count)]
    for start in range(0, count, BATCH):
        some = seeds[start : start + BATCH]
        ended = child.run(lambda some=some: [judged(folder, reference, spoil, s) for s in some])  # type: ignore[misc]
        if ended.bad is None:
            yield from (found for found in ended.result if found is not None)
            continue
        for one in some:
            alone = child.run(lambda one=one: judged(folder, reference, spoil, one))  # type: ignore[misc]
            if alone.bad or alone.result:
                yield f"with {one!r}: {alone.bad or alone.result}"


def judged(
    folder: Path, reference: Found, spoil: Callable[[Path, random.Random], None], seed: float
) -> str | None:
    """None if all went as it must with the store that this seed spoils."""
    own = folder / "own"
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir()
    luck = random.Random(seed)
    spoil(own, luck)
    # In a third of the cases a sweep comes first, or the only reader is a report.
    read = told(lambda: everything(own))
    if isinstance(read, list) and read != reference and not fewer(read, reference):
        return f"with {seed!r}: the store says something else and does not know"
    page = told(lambda: written(own, own / "report"))
    if isinstance(read, str) != isinstance(page, str):
        nothing = isinstance(page, str) and "nothing to report" in page
        if not nothing:
            return f"with {seed!r}: reading says {str(read)[:200]}, the report {page}"
    before = (own / FILE_NAME).read_bytes() if (own / FILE_NAME).exists() else b""
    ended = told(lambda: sweep(own))
    if isinstance(ended, str):
        after = (own / FILE_NAME).read_bytes() if (own / FILE_NAME).exists() else b""
        same = before == after
        return None if same else f"with {seed!r}: refused ({ended}), and changed the store"
    mended = told(lambda: sweep(own, retry_failed=True))
    if isinstance(mended, str):
        return None if FILE_NAME in mended else f"with {seed!r}: {mended}"
    if mended[1]:
        return f"with {seed!r}: {mended[1]} runs are damaged for ever"
    last = told(lambda: everything(own))
    if last != reference and not isinstance(last, str):
        return f"with {seed!r}: mended, and not what it was"
    if isinstance(last, str):
        return f"with {seed!r}: mended, and cannot be read: {last}"
    return None


def fewer(found: Found, reference: Found) -> bool:
    """Runs, or their spec, were removed whole: the store cannot know, and a sweep makes them."""
    return all(one in reference for one in found[1:])


def told(action: Callable[[], Any]) -> Any:
    """What it gives, or its refusal; anything else goes through and is a failure."""
    try:
        return action()
    except FmdpError as error:
        line = str(error)
        if "\n" in line or (isinstance(error, FileProblem) and "runs." not in line):
            raise
        return line


# ---- company ---------------------------------------------------------------------------------


def read_while_written(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    for number in range(count):
        own = folder / str(number)
        Store.create(own).close()
        after = luck.random() * 2.0

        def write_and_read(own: Path = own, after: float = after) -> list[str]:
            pid = os.fork()
            if pid == 0:
                with suppress(BaseException):
                    sweep(own)
                os._exit(0)
            until, problems = time.monotonic() + after, []
            while time.monotonic() < until:
                found = told(lambda: everything(own))
                if isinstance(found, str):
                    problems.append(found)
                elif not fewer(found, reference):
                    problems.append("a reader saw a run that was not whole")
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return problems

        ended = child.run(write_and_read)
        if ended.bad:
            yield ended.bad
        yield from ended.result or ()
        last = child.run(lambda own=own: [sweep(own), everything(own)])  # type: ignore[misc]
        if last.bad:
            yield last.bad
        elif last.result[1] != reference:
            yield "after that the store differs from one that was never disturbed"


def full_disk(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    size = (sound / FILE_NAME).stat().st_size
    for number in range(count):
        own = folder / str(number)
        room = luck.randrange(size)

        def crowded(own: Path = own, room: int = room) -> Any:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            ended = told(lambda: sweep(own))
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )
            return ended

        ended = child.run(crowded)
        if ended.bad:
            yield ended.bad
        last = child.run(lambda own=own: [sweep(own), everything(own)])  # type: ignore[misc]
        if last.bad:
            yield last.bad
        elif last.result[1] != reference:
            yield "after a full disk the store differs from one that was never disturbed"
        elif litter(own):
            yield f"left behind: {litter(own)}"
        shutil.rmtree(own, ignore_errors=True)


def locked(
    luck: random.Random, count: int, folder: Path, sound: Path, reference: Found
) -> Iterator[str]:
    shutil.copy(sound / FILE_NAME, folder / FILE_NAME)

    def asked(held: float) -> Any:
        # For what is let go soon, as long as a machine may take that has much else to do.
        database.WAIT_SECONDS = 120.0 if held < 1 else 1.5
        ready, wake = os.pipe()
        pid = os.fork()
        if pid == 0:
            holder = sqlite3.connect(folder / FILE_NAME, isolation_level=None)
            holder.execute("BEGIN EXCLUSIVE")
            os.write(wake, b"!")
            time.sleep(held)
            os._exit(0)
        os.read(ready, 1)
        found = told(lambda: everything(folder))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return found

    for number in range(count):
        held = (0.2, 0.8, 600.0)[number % 3]
        ended = child.run(lambda held=held: asked(held))  # type: ignore[misc]
        if ended.bad:
            yield ended.bad
            continue
        found = ended.result
        if held < 1 and found != reference:
            yield f"held for {held} s: {str(found)[:200]}"
        if held > 1 and not (isinstance(found, str) and "is locked by another process" in found):
            yield f"held for {held} s: {str(found)[:200]}"
