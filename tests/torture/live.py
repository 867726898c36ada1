"""`fmdp serve`: lines of any bytes, a folder that others change, a journal that is damaged.

Every line has to get one bounded answer in bounded time. A server whose folder is renamed has to
end as an undisturbed one; where files are removed or replaced, nothing further is acknowledged. A
damaged journal is refused, or every acknowledged event is there.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fmdp
from fmdp.service import Service
from fmdp.service.lines import MOST_BYTES, MOST_ERROR, MOST_ID, serve
from torture.service import MODEL, SECONDS, Client, References, Wrong, agent_of, fork
from torture.trial import Trial

LINES, FOLDERS, JOURNALS = 20_000, 120, 3000
"""At scale 1."""
LINES_AT_ONCE = 40
SECONDS_A_LINE = 5.0
"""Processor time; a line of 1 MiB takes about 0.3 s."""
MOST_ANSWER = MOST_ID + 12 * MOST_ERROR + 2000
"""Bytes of an answer: a character may take twelve as JSON; a status or an action is short here."""
LEARNER = "psrl"
STEP: dict[str, Any] = {
    "state": [1, 1, 0],
    "action": [0],
    "rewards": [1, 1, 0],
    "next_state": [1, 1, 1],
}


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        folder = Path(text)
        for number, (name, full, attempt) in enumerate(
            [
                ("serve sent lines of any bytes", LINES, lines),
                ("serve while others rename or remove its folder", FOLDERS, folders),
                ("serve with a damaged journal", JOURNALS, journals),
            ]
        ):
            luck = random.Random(f"{seed} live {number}")
            place = folder / str(number)
            place.mkdir()
            tried = max(1, round(full * scale))
            yield Trial(name, tried, tuple(attempt(luck, tried, place)))
            shutil.rmtree(place)


# ---- lines --------------------------------------------------------------------------------------

PIECES = [
    *(b"{", b"}", b"[", b"]", b'"', b":", b",", b"\\", b"\0", b"\r", b"\xff", b"\xed\xa0\x80"),
    *(b"NaN", b"-Infinity", b"1e999", b"-1e-999", b"true", b"null", b"\\ud800", b"\\u0000"),
    *(b"9" * 5000, b"[" * 3000, b'"a":1,' * 3000, b"1," * 3000, b"x" * 70_000, b" " * 70_000),
    *(b'"id":', b'"state":', b'"observe":', b'"status":', b'"machine_0":', b"machine_0=1,"),
    *(b"1.5", b"-1", b"3", b"[1,1,1]", b'"working_0":', "\U0001f600é".encode(), b"\xef\xbb\xbf"),
]


def seeds(luck: random.Random) -> list[bytes]:
    s = fmdp.problem(MODEL).structure
    named = {"state": s.name_state((1, 1, 0)), "id": luck.choice([1, "x", None, [{}], 1e300])}
    given = [{"observe": STEP}, {"observe": STEP, "state": [1, 1, 1]}, named, {"status": True}]
    return [json.dumps(request).encode() for request in given]


def hostile(luck: random.Random) -> bytes:
    """Return a line: a request that was changed some times, or bytes at random."""
    if luck.random() < 0.02:
        return luck.choice(PIECES)[:1] * luck.randrange(2 * MOST_BYTES)
    if luck.random() < 0.05:
        return luck.randbytes(luck.randrange(300)).replace(b"\n", b"")
    data = luck.choice(seeds(luck))
    for _ in range(luck.choice((0, 1, 1, 2, 5))):
        start = luck.randrange(len(data) + 1)
        end = start if luck.random() < 0.5 else luck.randrange(start, len(data) + 1)
        data = data[:start] + luck.choice([*PIECES, data[end : end + 30]]) + data[end:]
    return data


def lines(luck: random.Random, count: int, folder: Path) -> Iterator[str]:
    known = done = 0
    while done < count:
        with Service(fmdp.problem(MODEL), LEARNER, folder / "a") as service:
            if service.status()["observed"] != known:
                yield f"{service.status()['observed']} observed after a restart, not {known}"
            for _ in range(20):
                sent = [hostile(luck) for _ in range(min(LINES_AT_ONCE, max(1, count - done)))]
                done += len(sent)
                try:
                    known, wrong = sent_lines(service, sent, known)
                except Exception as error:
                    wrong = [f"{type(error).__name__}: {error}: {[one[:200] for one in sent]}"]
                yield from wrong
                if wrong or done >= count:
                    break


def sent_lines(service: Service, sent: list[bytes], known: int) -> tuple[int, list[str]]:
    """Return the number of observations, and what is wrong with the answers."""
    out: list[bytes] = []
    wrong = []
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(b"".join(line + b"\n" for line in sent))
        file.seek(0)
        started = time.process_time()
        serve(service, file.fileno(), out.append)
        seconds = time.process_time() - started
    answers = b"".join(out).split(b"\n")[:-1]
    if len(answers) != len(sent):
        wrong.append(f"{len(answers)} answers to {len(sent)} lines")
    if seconds > SECONDS_A_LINE * len(sent):
        wrong.append(f"{seconds:.1f} s for {[one[:200] for one in sent]}")
    for line, answer in zip(sent, answers, strict=False):
        if len(answer) > MOST_ANSWER:
            wrong.append(f"{len(answer)} bytes to {line[:200]!r}")
        told = json.loads(answer, parse_constant=lambda name: wrong.append(name))
        if not told.keys() & {"error", "observed", "action", "status"}:
            wrong.append(f"{line[:200]!r} was answered by {answer[:200]!r}")
        if "observed" in told:
            known += 1
            if told["observed"] != known:
                wrong.append(f"observed {told['observed']}, not {known}")
    return known, wrong


# ---- the folder ---------------------------------------------------------------------------------


def folders(luck: random.Random, count: int, folder: Path) -> Iterator[str]:
    references = References(folder / "calm")
    for number in range(count):
        place = folder / f"round-{number}"
        place.mkdir()
        attempt = luck.choice((renamed, removed))
        try:
            attempt(luck, place, references)
        except Wrong as wrong:
            yield f"{attempt.__name__}: {wrong} ({place})"
        shutil.rmtree(place, ignore_errors=True)  # a server that did wrong may still run there


def later(luck: random.Random, action: Callable[[], None]) -> threading.Timer:
    timer = threading.Timer(luck.random() ** 2 * 0.5, action)
    timer.start()
    return timer


def renamed(luck: random.Random, place: Path, references: References) -> None:
    """While the first server works, its folder is renamed, and a second takes the old name."""
    expected = references[LEARNER]
    live, old = place / "live", place / "old"
    first = fork(LEARNER, live, luck.choice((7, 50, 10_000)), 10 * SECONDS)
    client = Client()
    while not live.exists() or not (live / "service.json").exists():
        time.sleep(0.001)

    def rename() -> None:
        live.rename(old)
        if luck.random() < 0.5:
            live.mkdir()

    timer = later(luck, rename)
    over = client.life(first, random.Random(0))
    timer.join()
    second, others = fork(LEARNER, live, luck.choice((7, 10_000)), 10 * SECONDS), Client()
    over = others.life(second, random.Random(0)) and over
    # The second has inherited the pipe to the first, so it has to end before.
    statuses = [second.end(), first.end()]
    if not over or statuses != [0, 0]:
        raise Wrong(f"ended with {statuses}")
    for who, where in ((client, old), (others, live)):
        if who.actions != expected.actions or agent_of(where) != expected.agent:
            raise Wrong(f"{where.name} is not as an undisturbed one")


def removed(luck: random.Random, place: Path, _: References) -> None:
    """A file, or the whole folder, is removed or replaced at a random moment."""
    live, copy = place / "live", place / "copy"
    server = fork(LEARNER, live, luck.choice((7, 10_000)), 10 * SECONDS)
    acknowledged = 0

    def observe() -> bool:
        nonlocal acknowledged
        server.write(json.dumps({"observe": STEP}).encode() + b"\n")
        answer = server.answer()
        if "observed" not in answer:
            if "was removed or replaced" not in answer["error"]:
                raise Wrong(str(answer))
            return False
        acknowledged += 1
        return True

    for _ in range(luck.randrange(1, 30)):
        observe()
    kind = luck.choice(("folder", "file", "replaced", "swapped"))

    def change() -> None:
        if kind in ("replaced", "swapped"):
            shutil.copytree(live, copy)
        if kind in ("folder", "swapped"):
            shutil.rmtree(live)
        if kind == "swapped":
            copy.rename(live)
        if kind in ("file", "replaced"):
            name = luck.choice(sorted(path.name for path in live.iterdir()))
            (live / name).unlink()
            if kind == "replaced":
                (copy / name).rename(live / name)

    change_failed: list[BaseException] = []

    def attempt() -> None:
        try:
            change()
        except OSError as error:  # a snapshot has removed the file in the meantime
            change_failed.append(error)

    timer = later(luck, attempt)
    going = True
    while going and timer.is_alive():
        going = observe()
    timer.join()
    if change_failed:
        server.end()
        return
    before = sorted(path.name for path in place.rglob("*"))
    if going and observe():
        gone = [name for name in ("service.json",) if not (live / name).exists()]
        # A snapshot between the choice of a file and its removal makes the change harmless.
        if kind in ("folder", "swapped") or gone:
            raise Wrong(f"{kind}: acknowledged {acknowledged} after the change")
        status = server.end()
        if status != 0:
            raise Wrong(f"{kind}: ended with {status}")
        return
    status = server.end()
    if status != 2:
        raise Wrong(f"{kind}: ended with {status}")
    if before != sorted(path.name for path in place.rglob("*")):
        raise Wrong(f"{kind}: wrote elsewhere")


# ---- the journal --------------------------------------------------------------------------------


def journals(luck: random.Random, count: int, folder: Path) -> Iterator[str]:
    sound, damaged = folder / "sound", folder / "damaged"
    for number in range(count):
        if number % 100 == 0:
            shutil.rmtree(sound, ignore_errors=True)
            acknowledged = killed(luck, sound)
            content = (sound / "journal-0").read_bytes()
        shutil.rmtree(damaged, ignore_errors=True)
        shutil.copytree(sound, damaged)
        kind, changed = damage(luck, content)
        (damaged / "journal-0").write_bytes(changed)
        try:
            service = Service(fmdp.problem(MODEL), LEARNER, damaged, say=str)
        except fmdp.FmdpError as error:
            if kind == "torn":
                yield f"{kind}: refused: {error}"
            elif str(damaged) not in str(error) or (damaged / "journal-0").read_bytes() != changed:
                yield f"{kind}: {error}"
        else:
            known = service.status()["observed"]
            service.close(snapshot=False)
            if known < acknowledged:
                yield f"{kind}: {known} of {acknowledged} acknowledged are left, without a word"


def killed(luck: random.Random, folder: Path) -> int:
    """Kill a server in the middle of its work; return how many observations it acknowledged."""
    server = fork(LEARNER, folder, 10_000, 10 * SECONDS)
    count = luck.randrange(1, 30)
    for number in range(count):
        server.write(json.dumps({"observe": STEP, "state": [1, 1, 1]}).encode() + b"\n")
        if server.answer().get("observed") != number + 1:
            raise RuntimeError("the server did not answer")
    os.kill(server.pid, signal.SIGKILL)
    server.end()
    return count


def damage(luck: random.Random, content: bytes) -> tuple[str, bytes]:
    kind = luck.choice(("torn", "bits", "last newline", "cut", "cut at a line", "lines", "splice"))
    data = bytearray(content)
    rows = content.splitlines(keepends=True)
    if kind == "torn":  # what a kill leaves: the beginning of one more line
        last = rows[-1]
        data += last[: luck.randrange(1, len(last) - 1)]
    elif kind == "bits":
        for _ in range(luck.choice((1, 1, 2, 3))):
            data[luck.randrange(len(data))] ^= 1 << luck.randrange(8)
    elif kind == "last newline":
        data[-1] ^= 1 << luck.randrange(8)
    elif kind == "cut":
        del data[luck.randrange(len(data)) :]
    elif kind == "cut at a line":
        data = bytearray(b"".join(rows[: luck.randrange(len(rows))]))
    elif kind == "lines":
        first, second = luck.randrange(len(rows)), luck.randrange(len(rows))
        rows[first] = rows[second] if luck.random() < 0.5 else b""
        data = bytearray(b"".join(rows))
    else:
        start = luck.randrange(len(data))
        data[start : start + luck.randrange(200)] = luck.randbytes(luck.randrange(200))
    return kind, bytes(data)
