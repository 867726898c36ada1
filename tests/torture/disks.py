"""A disk that is full: a small file system of its own, filled to the last pages.

Whatever a command was to write, it says in one line that there is no room (or there was some), what
was there before is there still, nothing half-written stays, and the same command succeeds when
there is room again. Needs root, for the file system.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torture import child, signals, stores
from torture.nursery import Nursery
from torture.trial import SHORT, Trial

WIDE = 400 << 20
COMMANDS, SWEEPS = 80, 40
"""At scale 1."""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    if scale < SHORT:
        return
    chance = random.Random(f"disks {seed}")
    names = ("commands that write onto a full disk", "a sweep on a full disk of its own")
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        place = Path(text) / "disk"
        place.mkdir()
        problem = mounted(place)
        if problem:
            yield from (Trial(name, 0, skipped=problem) for name in names)
            return
        try:
            yield commands(chance, max(1, round(COMMANDS * scale)), place, Path(text), names[0])
            yield sweeps(chance, max(1, round(SWEEPS * scale)), place, names[1])
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)


def mounted(place: Path) -> str:
    """An empty string, or why there is no file system of one's own here."""
    if os.geteuid() != 0:
        return "a file system of its own needs root"
    words = ["mount", "-t", "tmpfs", "-o", f"size={WIDE}", "fmdp-torture", str(place)]
    try:
        ran = subprocess.run(words, capture_output=True, text=True, check=False)
    except OSError as error:
        return f"mount: {error.strerror}"
    return "" if ran.returncode == 0 else ran.stderr.strip()


@contextlib.contextmanager
def room(place: Path, size: int) -> Iterator[None]:
    """So many bytes are free, and not one more."""
    found = os.statvfs(place)
    used = (found.f_blocks - found.f_bfree) * found.f_frsize
    resize(place, used + size)
    try:
        yield
    finally:
        resize(place, WIDE)


def resize(place: Path, size: int) -> None:
    subprocess.run(
        ["mount", "-o", f"remount,size={size}", "-t", "tmpfs", "fmdp-torture", str(place)],
        check=True,
    )


# ---- commands ------------------------------------------------------------------------------------


def commands(chance: random.Random, number: int, place: Path, elsewhere: Path, name: str) -> Trial:
    signals.prepare(place)
    made = [make(place) for make in signals.TASKS]
    failures = []
    with Nursery(elsewhere, warm=[task.words for task in made]) as nursery:
        tasks = [task.measured(nursery) for task in made]
        for which in range(number):
            task = tasks[which % len(tasks)]
            wrong = one(chance, task, nursery, place)
            if wrong:
                failures.append(f"{' '.join(task.words)}: {wrong}")
    return Trial(name, number, tuple(failures))


def one(chance: random.Random, task: signals.Task, nursery: Nursery, place: Path) -> str | None:
    old = chance.random() < 0.5
    if not task.whole:
        old = True
    elif old:
        task.target.write_bytes(task.content)
    else:
        task.target.unlink(missing_ok=True)
    before = listing(place)
    with room(place, chance.choice([0, 4096, chance.randrange(1, 2 * len(task.content) + 1)])):
        ended = nursery.run(task.words)
    wrong = "took too long" if ended is None else ended.wrong(0, 2)
    if wrong:
        return wrong
    after = listing(place)
    if task.target.exists():
        try:
            task.check(task.target)
        except Exception as error:
            return f"{task.target.name} is not whole: {error!r}"
    elif old:
        return f"{task.target.name} was there and is gone"
    if ended is not None and ended.status == 2:
        if after != before:
            return f"refused, and there is something else: {sorted(set(after) ^ set(before))}"
        again = nursery.run(task.words)
        wrong = "took too long" if again is None else again.wrong(0)
        if wrong:
            return f"with room again: {wrong}"
    return None


def listing(place: Path) -> dict[str, Any]:
    return {
        str(path.relative_to(place)): path.stat().st_size
        for path in place.rglob("*")
        if path.is_file()
    }


# ---- sweeps --------------------------------------------------------------------------------------


def sweeps(chance: random.Random, number: int, place: Path, name: str) -> Trial:
    sound = place / "sound"
    stores.sweep(sound)
    reference = stores.everything(sound)
    size = (sound / stores.FILE_NAME).stat().st_size
    failures = []
    for _ in range(number):
        own = place / "own"
        shutil.rmtree(own, ignore_errors=True)
        with room(place, chance.randrange(2 * size)):
            ended = child.run(lambda own=own: stores.told(lambda: stores.sweep(own)))  # type: ignore[misc]
        if ended.bad:
            failures.append(ended.bad)
            continue
        last = child.run(lambda own=own: [stores.sweep(own), stores.everything(own)])  # type: ignore[misc]
        if last.bad:
            failures.append(last.bad)
        elif last.result[1] != reference:
            failures.append("the store differs from one that was never disturbed")
        elif stores.litter(own):
            failures.append(f"left behind: {stores.litter(own)}")
    return Trial(name, number, tuple(failures))
