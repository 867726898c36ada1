"""Compiled code is loaded only if it is undamaged and nobody else could have written it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fmdp._base import code_cache

KERNEL = """
from fmdp._base.compiled import njit

@njit()
def first(x):
    return x + 1.0

@njit()
def second(x):
    return x * 2.0

def main():
    result = first(2.0) + second(2.0)
    return result, sum(sum(f.for_numba.stats.cache_hits.values()) for f in (first, second))
"""
NOBODY = 65534
pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Return a function that runs two kernels in a process, and returns how many of them came from
    the cache, and standard error."""
    (tmp_path / "kernel.py").write_text(KERNEL)

    def run(before: str = "", umask: int = 0o022) -> tuple[int, str]:
        script = f"{before}\nimport kernel as k; r, h = k.main(); assert r == 7.0; print(h)"
        places = {"NUMBA_CACHE_DIR": tmp_path / "cache", "XDG_CACHE_HOME": tmp_path / "home"}
        ran = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env={**os.environ, **{name: str(path) for name, path in places.items()}},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            umask=umask,
        )
        assert ran.returncode == 0, ran.stderr
        return int(ran.stdout), ran.stderr

    return run


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.nbc"))


def test_folders_are_the_users_alone_whatever_the_umask(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    assert run(umask=0) == (0, "")
    paths = [tmp_path / "cache", *(tmp_path / "cache").rglob("*")]
    assert [oct(path.stat().st_mode & 0o777) for path in paths if path.is_dir()] == ["0o700"] * 2
    assert [oct(path.stat().st_mode & 0o777) for path in files(tmp_path)] == ["0o644"] * 2
    assert run(umask=0) == (2, "")


def give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("to give a file to another user needs root")
    os.chown(path, NOBODY, NOBODY)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda path: path.chmod(0o777), id="chmod"),
        pytest.param(give_away, id="chown", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize(
    "which", ["the folder", pytest.param("its parent", marks=pytest.mark.slow), "a file"]
)
def test_what_others_can_write_is_not_loaded(
    run: Callable[..., tuple[int, str]],
    tmp_path: Path,
    spoil: Callable[[Path], None],
    which: str,
) -> None:
    assert run() == (0, "")
    code = files(tmp_path)[0]
    if which == "a file":
        spoil(code)
        assert run() == (1, "")  # the other file is used, and this one replaced
        assert run() == (2, "")
        return
    spoil(code.parent if which == "the folder" else code.parent.parent)
    hits, errors = run()
    assert hits == 0
    assert errors.startswith(f"fmdp: {tmp_path / 'cache'} (NUMBA_CACHE_DIR) is not used: ")
    assert errors.count("\n") == 1
    assert run()[0] == 2  # from the user's cache directory
    assert len(files(tmp_path / "home")) == 2


def test_without_a_directory_every_run_compiles_and_says_so_once(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    for name in ("cache", "home"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o777)
    for _ in range(2):
        hits, errors = run()
        assert hits == 0
        assert errors.startswith("fmdp: compiled code cannot be kept, and is compiled in every run")
        assert errors.count("\n") == 1
    assert files(tmp_path) == []


def link(path: Path) -> None:
    target = path.with_suffix(".moved")
    path.rename(target)
    path.symlink_to(target)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGE: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(path.read_bytes()[:-1]),
    lambda path: path.write_bytes(path.read_bytes()[:10]),
    lambda path: path.write_bytes(path.read_bytes()[:-9] + b"\xff" + path.read_bytes()[-8:]),
    lambda path: path.write_bytes(path.read_bytes().replace(b"numba", b"nimba")),
    lambda path: path.write_bytes(files(path.parent)[1].read_bytes()),  # of another function
    link,
    pipe,
]


@pytest.mark.slow
def test_damage_is_a_miss_and_is_repaired(
    run: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    run()
    for damage in DAMAGE:
        damage(files(tmp_path)[0])
        assert run() == (1, "")
    assert run() == (2, "")


def test_a_valid_file_that_names_missing_classes_is_a_miss(
    run: Callable[..., tuple[int, str]],
) -> None:
    """As after an update that moved a class: the digest is right, and unpickling fails."""
    spoil = (
        "import pickle, numba.core.serialize\n"
        "numba.core.serialize.dumps = lambda value: b'cno.such.module\\nThing\\n.'\n"
    )
    assert run(spoil) == (0, "")
    assert run() == (0, "")
    assert run() == (2, "")


@pytest.mark.parametrize("obstacle", ["no space", "a directory in the place of a file"])
def test_what_cannot_be_written_is_said_once(
    run: Callable[..., tuple[int, str]], tmp_path: Path, obstacle: str
) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))"
    if obstacle == "no space":
        hits, errors = run(limit)
        assert list((tmp_path / "cache").rglob("*.*")) == []
    else:
        run()
        for path in files(tmp_path):
            path.unlink()
            path.mkdir()
        hits, errors = run()
    assert hits == 0
    assert errors.startswith(f"fmdp: compiled code cannot be kept in {tmp_path / 'cache'}")
    assert errors.count("\n") == 1


def test_a_read_only_installation_is_read_and_the_users_directory_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose package belongs to root, with code that root has compiled."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(
        code_cache.os, "access", lambda path, mode: "package" not in os.fspath(path)
    )
    (tmp_path / "package").mkdir()
    read, written = code_cache.cache_directories(tmp_path / "package" / "kernel.py")
    assert read == tmp_path / "package" / "__pycache__"
    assert written.parent == tmp_path / "home" / "fmdp"


def test_parents_may_be_shared_only_with_a_sticky_bit(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert code_cache.distrust(shared / "mine") == f"{shared} can be written by other users"
    shared.chmod(0o1777)
    assert code_cache.distrust(shared / "mine") is None
    assert code_cache.distrust(shared) == f"{shared} can be written by other users"


def test_a_link_is_followed_before_the_check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner could turn it elsewhere between the check and the use."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "link"))
    (directory,) = code_cache.cache_directories(tmp_path / "kernel.py")
    assert directory.parent == tmp_path / "mine"
