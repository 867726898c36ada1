"""Cached code that is damaged, foreign or cannot be written, and files that look like modules.

A kernel is loaded from its cache in children of a process that has imported Numba, but not that
kernel. Whatever the cache contains, the child must not crash, and must return the kernel's result.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import pkgutil
import random
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fmdp._base import compiled
from torture import child
from torture.trial import Trial

BITS, CUTS, CACHES, PLANTED = 70_000, 10_000, 200, 40
"""At scale 1."""
PER_CHILD = 2_000
NOBODY = 65534
SECONDS = 600.0

KERNEL = """
def kernel(x):
    return x * 3.0 + 1.0
"""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    chance = random.Random(f"caches {seed}")
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        place = Path(text)
        (place / "kernel.py").write_text(KERNEL)
        sound = place / "sound"
        ended = child.run(lambda: called(place, sound))
        assert ended.result == [7.0, 0], ended.bad
        (file,) = sound.rglob("*.nbc")
        content = file.read_bytes()
        if number := round(BITS * scale):
            flips = chance.sample(range(8 * len(content)), min(number, 8 * len(content)))
            yield damaged("cached code with one flipped bit", place, file, flips, flipped)
        if number := round(CUTS * scale):
            lengths = chance.sample(range(len(content)), min(number, len(content)))
            yield damaged("cached code that is cut short", place, file, lengths, cut)
        if number := round(CACHES * scale):
            yield in_bad_caches(chance, number, place, sound)
        if number := round(PLANTED * scale):
            yield among_planted_modules(chance, number, place)


# ---- files -------------------------------------------------------------------------------------


@functools.cache
def dispatcher(place: Path, cache: Path) -> Any:
    """The kernel with its cache, for one process."""
    os.environ["NUMBA_CACHE_DIR"] = str(cache)
    os.environ["XDG_CACHE_HOME"] = str(cache.with_name("home"))
    sys.path.insert(0, str(place))  # Numba imports the module of a cached function
    return compiled._dispatcher(importlib.import_module("kernel").kernel, {}, "stamp")


def called(place: Path, cache: Path) -> list[float]:
    """The kernel's result, and how often it came from the cache."""
    kernel = dispatcher(place, cache)
    return [kernel(2.0), sum(kernel.stats.cache_hits.values())]


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def cut(content: bytes, length: int) -> bytes:
    return content[:length]


def damaged(
    name: str, place: Path, file: Path, numbers: list[int], damage: Callable[[bytes, int], bytes]
) -> Trial:
    """Load every damaged form of a file; each must be a miss."""
    compiled.load_numba()
    content = file.read_bytes()
    failures = []

    def load(batch: list[int]) -> list[int]:
        from numba import float64

        kernel = dispatcher(place, file.parent.parent)
        loaded = []
        for number in batch:
            file.write_bytes(damage(content, number))
            if kernel._cache.load_overload((float64,), kernel.targetctx) is not None:
                loaded.append(number)
        file.write_bytes(content)
        assert kernel._cache.load_overload((float64,), kernel.targetctx) is not None
        return loaded

    for start in range(0, len(numbers), PER_CHILD):
        batch = numbers[start : start + PER_CHILD]
        ended = child.run(functools.partial(load, batch))
        file.write_bytes(content)
        if ended.bad:
            failures.append(f"{batch[0]} to {batch[-1]}: {ended.bad}")
        else:
            failures += [f"loaded although {name}: {number}" for number in ended.result]
    return Trial(name, len(numbers), tuple(failures))


# ---- directories -------------------------------------------------------------------------------


def replace_by_directory(chance: random.Random, file: Path) -> None:
    file.unlink()
    file.mkdir()


def replace_by_pipe(chance: random.Random, file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_link(chance: random.Random, file: Path) -> None:
    target = file.rename(file.with_suffix(".moved"))
    file.symlink_to(chance.choice([target, file, "/dev/zero", "nowhere"]))


def replace_content(chance: random.Random, file: Path) -> None:
    content = file.read_bytes()
    at, length = chance.randrange(len(content)), chance.randrange(1, 64)
    noise = chance.randbytes(chance.choice([0, length]))
    file.write_bytes(content[:at] + noise + content[at + length :])


def open_to_others(chance: random.Random, file: Path) -> None:
    chance.choice([file, file.parent, file.parent.parent]).chmod(chance.choice([0o777, 0o666]))


def give_away(chance: random.Random, file: Path) -> None:
    with contextlib.suppress(PermissionError):  # only root can
        os.chown(chance.choice([file, file.parent, file.parent.parent]), NOBODY, NOBODY)


def forbid(chance: random.Random, file: Path) -> None:
    chance.choice([file, file.parent, file.parent.parent]).chmod(0)


def leave(chance: random.Random, file: Path) -> None:
    pass


def remove(chance: random.Random, file: Path) -> None:
    chance.choice([file.unlink, lambda: shutil.rmtree(file.parent)])()


SPOILS = (
    *(replace_by_directory, replace_by_pipe, replace_by_link, replace_content),
    *(open_to_others, give_away, forbid, leave, remove),
)


def in_bad_caches(chance: random.Random, number: int, place: Path, sound: Path) -> Trial:
    failures = []
    for which in range(number):
        cache = place / f"cache-{which}"
        shutil.copytree(sound, cache)
        (file,) = cache.rglob("*.nbc")
        spoil = chance.choice(SPOILS)
        spoil(chance, file)
        limit = chance.choice([None, 0, 1_000, 10_000])
        umask = chance.choice([0, 0o022, 0o077])

        def use(cache: Path = cache, limit: int | None = limit, umask: int = umask) -> Any:
            os.umask(umask)
            if limit is not None:  # as on a full disk; the report of the child is shorter
                soft = max(limit, 200)
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, soft))
            return called(place, cache)

        ended = child.run(use)
        if ended.bad or ended.result[0] != 7.0:
            failures.append(f"{spoil.__name__}, {limit} bytes: {ended.bad or ended.result}")
        for folder in (cache, place / "home"):
            shutil.rmtree(folder, ignore_errors=True)
    return Trial("damaged, foreign and full caches of code", number, tuple(failures))


# ---- modules -----------------------------------------------------------------------------------


def among_planted_modules(chance: random.Random, number: int, place: Path) -> Trial:
    """Files with names of modules in the folder where a command runs."""
    name = "commands among files with names of modules"
    script = Path(sys.executable).with_name("fmdp")
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", "import runpy, fmdp, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    modules = {module.name for module in pkgutil.iter_modules()} - {"fmdp", "own"}
    by_python = {module.partition(".")[0] for module in loaded}
    failures = []
    for which in range(number):
        folder = place / f"planted-{which}"
        folder.mkdir()
        (folder / "own.py").write_text("import fmdp\nclass Mine(fmdp.Random):\n    name = 'm'\n")
        (folder / "spec.toml").write_text(
            'steps = 5\nseeds = 1\nproblems = ["circle:2"]\nlearners = ["random", "own:Mine"]\n'
        )
        as_script = chance.random() < 0.5 and script.exists()
        candidates = sorted(modules if as_script else modules - by_python)
        planted = chance.sample(candidates, chance.randrange(1, len(candidates)))
        for module in planted:
            (folder / f"{module}.py").write_text("open('ran', 'w')\nraise SystemExit(77)\n")
        few = ["--steps", "5", "--seeds", "1", "--out", "out", "--workers", "1"]
        words = chance.choice(
            [
                ["sweep", "spec.toml", "--out", "out", "--workers", "2"],
                ["compare", "circle:2", "--learners", "random,own:Mine", *few],
                ["learn", "circle:2", "--learner", "own:Mine", "--steps", "5"],
                ["plan", "circle:2"],
                ["list"],
            ]
        )
        program = [str(script)] if as_script else [sys.executable, "-m", "fmdp"]
        ran = subprocess.run(
            [*program, *words],
            cwd=folder,
            env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        if ran.returncode != 0 or (folder / "ran").exists():
            failures.append(f"{program} {words}: status {ran.returncode}: {ran.stderr[-500:]}")
        shutil.rmtree(folder)
    return Trial(name, number, tuple(failures))
