"""Machine code that was kept: it is Numba's own, it is used where nothing has changed, and small
plans then load neither Numba nor the large parts of SciPy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp._base import compiled, machine_code

HEAVY = (
    *("numba", "scipy.linalg", "scipy.sparse", "highspy", "numpy.ma"),
    *("pydantic", "rich", "importlib.metadata"),
)
CLOCKS = ("seconds", "seconds_startup", "seconds_evaluation", "peak_memory_bytes")
PROBLEMS = ("circle:4", "circle:7", "riverswim:6", "random:4")
COMMAND = f"""
import contextlib, io, json, sys
from fmdp.cli import main

for problem in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        status = main(["plan", problem, "--json"])
    loaded = [name for name in {HEAVY!r} if name in sys.modules]
    print(json.dumps([status, json.loads(printed.getvalue()), loaded]))
"""


def python(*arguments: str, cwd: Path | None = None, **settings: str) -> Any:
    """A fresh process, in which nothing is set that changes what Numba makes."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=cwd,
        env=env | settings,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


Planned = dict[str, tuple[dict[str, Any], list[str]]]


def planned(**settings: str) -> Planned:
    """What `fmdp plan --json` prints of each problem but for its clocks, and what of HEAVY is there
    after it: one process plans them all, so that what one loads, the next has too."""
    ran = python("-c", COMMAND, *PROBLEMS, **settings)
    found: Planned = {}
    for problem, line in zip(PROBLEMS, ran.stdout.splitlines(), strict=True):
        status, answer, loaded = json.loads(line)
        assert status == 0
        found[problem] = ({key: answer[key] for key in answer if key not in CLOCKS}, loaded)
    return found


@pytest.fixture(scope="module")
def second_time() -> Planned:
    """The plans of a process before which another has kept what it compiled."""
    planned()
    return planned()


def test_a_small_plan_loads_nothing_heavy_the_second_time(second_time: Planned) -> None:
    assert {problem: loaded for problem, (_, loaded) in second_time.items() if loaded} == {}


def test_a_setting_of_numbas_is_obeyed_and_the_bits_are_the_same(second_time: Planned) -> None:
    with_numba = planned(NUMBA_CAPTURED_ERRORS="new_style")
    for problem, (plain, loaded) in with_numba.items():
        assert "numba" in loaded
        assert second_time[problem][0] == plain


# ---- a function from its first call to its last --------------------------------------------------

KERNEL = """
import sys
import numpy as np
from fmdp._base import compiled
from fmdp._base.compiled import njit

@njit()
def scale(row):
    return row[0] * 3.0

@njit(nogil=True, fastmath={"contract"})
def total(rows, weights, out):
    found = 0
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            out[i] += weights[0] * rows[i, j]
            found += 1
        out[i] += scale(rows[i])
    return found

@njit()
def allocates(n):
    return np.ones(n).sum()

rows = np.random.default_rng(0).random((7, 5))
out = np.zeros(7)
compiled.CALLS_WITHOUT_NUMBA = int(sys.argv[2])
for _ in range(3):
    found = total(rows, (0.1, 5), out)
if sys.argv[1] == "allocates":
    allocates(3)
print(found, out.tobytes().hex(), "numba" in sys.modules)
"""


def kernel(folder: Path, mode: str = "plain", calls: int = 1000, **settings: str) -> list[str]:
    cache = str(folder / "cache")
    ran = python("kernel.py", mode, str(calls), cwd=folder, NUMBA_CACHE_DIR=cache, **settings)
    assert ran.stderr == ""
    found: list[str] = ran.stdout.split()
    return found


def test_what_was_kept_is_used_as_long_as_it_is_right(tmp_path: Path) -> None:
    script = tmp_path / "kernel.py"
    script.write_text(KERNEL)
    *first, loaded = kernel(tmp_path, "allocates")
    assert loaded == "True"
    assert kernel(tmp_path) == [*first, "False"]
    assert kernel(tmp_path, "allocates") == [*first, "True"]  # its own memory is Numba's
    assert kernel(tmp_path, calls=2) == [*first, "True"]  # many calls are faster with Numba
    (tmp_path / ".numba_config.yaml").write_text("captured_errors: new_style\n")
    assert kernel(tmp_path)[-1] == "True"
    (tmp_path / ".numba_config.yaml").unlink()
    # A damaged file is not used, and is written again.
    (file,) = (tmp_path / "cache" / "fmdp").glob("*total*.nbo")
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert kernel(tmp_path) == [*first, "True"]
    assert file.read_bytes() == good
    file.write_bytes(b"[]\n")
    assert kernel(tmp_path) == [*first, "True"]
    assert file.read_bytes() == good
    # Another source, of the same length.
    script.write_text(KERNEL.replace("weights[0] *", "weights[0] -"))
    changed = kernel(tmp_path)
    assert changed[-1] == "True"
    assert changed[1] != first[1]
    assert kernel(tmp_path) == [*changed[:-1], "False"]


def test_a_part_from_another_file_that_has_changed_is_compiled_again(tmp_path: Path) -> None:
    """Three files deep: what was made of the old part is used neither with Numba nor without."""
    inner = "from fmdp._base.compiled import njit\n@njit()\ndef part(x):\n    return x * 3.0\n"
    middle = "from fmdp._base.compiled import njit\nfrom inner import part\n"
    middle += "@njit()\ndef more(x):\n    return part(x) + 1.0\n"
    (tmp_path / "inner.py").write_text(inner)
    (tmp_path / "middle.py").write_text(middle)
    (tmp_path / "kernel.py").write_text(
        "import sys\nfrom fmdp._base.compiled import njit\nfrom middle import more\n"
        "@njit()\ndef whole(x):\n    return more(x)\n"
        "print(whole(2.0), 0, 'numba' in sys.modules)\n"
    )
    assert kernel(tmp_path) == ["7.0", "0", "True"]
    assert kernel(tmp_path) == ["7.0", "0", "False"]
    (tmp_path / "inner.py").write_text(inner.replace("3.0", "40.0"))
    assert kernel(tmp_path) == ["81.0", "0", "True"]
    assert kernel(tmp_path) == ["81.0", "0", "False"]


def test_where_numba_is_not_as_expected_nothing_is_kept_and_all_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def surprise(*_: object) -> None:
        raise AttributeError("_cache")

    written: list[object] = []
    monkeypatch.setattr(machine_code, "_read", lambda *_: None)
    monkeypatch.setattr(machine_code, "_kept", surprise)
    monkeypatch.setattr(machine_code, "_write", lambda *_: written.append(_))
    from fmdp.elimination.ties import tie_hash

    tie_hash(1, 2, 3)
    compiled.load_numba()
    compiled._keep()
    assert written == []


# ---- arguments -----------------------------------------------------------------------------------

Pair = namedtuple("Pair", ["first", "second"])


def arguments() -> list[Any]:
    whole = np.arange(24.0).reshape(2, 3, 4)
    frozen = np.zeros(3, dtype=np.int32)
    frozen.flags.writeable = False
    return [
        whole,
        whole.T,
        whole[:, ::2],
        whole[:0],
        np.zeros((), dtype=np.float32),
        np.zeros(3, dtype=np.bool_),
        np.asfortranarray(np.zeros((2, 2), dtype=np.uint64)),
        frozen,
        3,
        -(2**63),
        np.int64(4),
        2.5,
        np.float64(0.0),
        True,
        (1, 2.0, whole),
        ((), (False,)),
        Pair(whole, 3),
    ]


@pytest.mark.parametrize("number", range(len(arguments())))
def test_types_are_told_as_numba_tells_them(number: int) -> None:
    from numba import typeof

    own = arguments()[number]
    found = machine_code.flattened([own])
    assert found is not None
    assert found[0] == machine_code._text_of(typeof(own))
    assert len(found[1]) == 8 * len(machine_code._llvm_types(found[0]))


@pytest.mark.parametrize(
    "own",
    [
        None,
        "text",
        2**63,
        1j,
        np.float32(1.0),
        np.uint64(3),
        np.zeros(2, dtype=np.complex128),
        np.zeros(2, dtype=">f8"),
        np.zeros(17, dtype=np.uint8)[1:].view(np.float64),
        np.zeros(2, dtype=[("a", np.float64)]),
        (1, None),
        [1, 2],
    ],
)
def test_other_arguments_are_left_to_numba(own: Any) -> None:
    assert machine_code.flattened([own]) is None


def test_what_is_known_of_an_array_is_true_of_it_now() -> None:
    """Arrays are known by where they lie: one that is frozen is another type, and one that comes to
    lie where another was is not taken for it."""
    array = np.zeros(3)
    before = machine_code.flattened([array])
    assert before is not None
    array.flags.writeable = False
    after = machine_code.flattened([array])
    assert after is not None
    assert (before[0], after[0]) == ("<f81C ", "<f81Cr ")
    assert before[1] == after[1]
    many = len(machine_code._arrays)
    for size in range(100):
        found = machine_code.flattened([np.zeros(size)])
        assert found is not None
        assert int.from_bytes(found[1][16:24], sys.byteorder) == size
    assert len(machine_code._arrays) <= many + 1


def test_an_array_that_is_changed_in_place_is_described_anew() -> None:
    """An array keeps its identity when its shape, strides or dtype is replaced."""

    def described(array: Any) -> tuple[str, bytes]:
        found = machine_code.flattened([array])
        assert found is not None
        return found

    array = np.arange(6.0)
    seen = {described(array)}

    def changed() -> None:
        anew = described(array)
        assert anew == described(array.view())  # another object, described for the first time
        assert anew not in seen
        seen.add(anew)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # NumPy may do away with setting them
        array.shape = (2, 3)
        changed()
        array.shape = (3, 2)
        changed()
        array.strides = (8, 24)
        changed()
        array.strides = (16, 8)
        array.shape = (6,)
        array.dtype = np.int64
        changed()
    array.flags.writeable = False
    changed()
    with pytest.raises(ValueError, match="cannot resize"):
        array.resize(100_000, refcheck=False)  # its memory stays where it is
