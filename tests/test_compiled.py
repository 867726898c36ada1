"""Numba is loaded where it is needed, and its cache is used where no source file has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HEAVY = (
    *("numba", "scipy.linalg", "scipy.sparse", "highspy", "numpy.ma"),
    *("pydantic", "rich", "importlib.metadata"),
)
COMMANDS = """
import contextlib, io, json, sys
from fmdp.cli import main

heavy, commands = json.loads(sys.argv[1])
for command in commands:
    with contextlib.redirect_stdout(io.StringIO()):
        status = main(command)
    print(json.dumps([status, [name for name in heavy if name in sys.modules]]))
"""


def python(*arguments: str, cwd: Path | None = None, **settings: str) -> str:
    """Return the output of a fresh process that must succeed silently."""
    ran = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=cwd,
        env=os.environ | settings,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


def test_commands_on_small_models_load_nothing_heavy_and_compile_nothing(tmp_path: Path) -> None:
    """In one process, so that the modules that one command loads are there after the next ones."""
    out, cache = tmp_path / "policy.npz", tmp_path / "cache"
    commands: list[list[str]] = [
        ["plan", "circle:4", "--json", "--out", str(out)],
        *(["plan", name, "--json"] for name in ("circle:7", "riverswim:6", "random:4", "jao:1")),
        ["evaluate", "circle:4", str(out), "--json"],
        ["show", "circle:4", "--json"],
    ]
    asked = json.dumps([HEAVY, commands])
    lines = python("-c", COMMANDS, asked, NUMBA_CACHE_DIR=str(cache)).splitlines()
    assert [json.loads(line) for line in lines] == [[0, []]] * len(commands)
    assert not cache.exists()


@pytest.mark.parametrize("arguments", [["--criterion", "discounted"], ["--criterion", "finite"]])
def test_other_criteria_need_no_numba(arguments: list[str]) -> None:
    horizon = ["--horizon", "4"] if "finite" in arguments else []
    asked = json.dumps([["numba"], [["plan", "circle:3", "--json", *arguments, *horizon]]])
    assert json.loads(python("-c", COMMANDS, asked)) == [0, []]


def kernel(folder: Path) -> tuple[float, int]:
    """Return the result of kernel.py, and how many functions it found in the cache."""
    result, hits = python("kernel.py", cwd=folder, NUMBA_CACHE_DIR=str(folder / "cache")).split()
    return float(result), int(hits)


def test_a_function_is_compiled_again_when_an_imported_file_has_changed(tmp_path: Path) -> None:
    """Numba itself looks at the file of the function alone; here the change is three files away."""
    head = "from fmdp._base.compiled import njit\n"
    inner = f"{head}@njit()\ndef part(x):\n    return x * 3.0\n"
    middle = f"{head}from inner import part\n@njit()\ndef more(x):\n    return part(x) + 1.0\n"
    (tmp_path / "inner.py").write_text(inner)
    (tmp_path / "middle.py").write_text(middle)
    (tmp_path / "kernel.py").write_text(
        f"{head}from middle import more\n@njit()\ndef whole(x):\n    return more(x)\n"
        "print(whole(2.0), sum(whole.for_numba.stats.cache_hits.values()))\n"
    )
    assert kernel(tmp_path) == (7.0, 0)
    assert kernel(tmp_path) == (7.0, 1)
    (tmp_path / "inner.py").write_text(inner.replace("3.0", "40.0"))
    assert kernel(tmp_path) == (81.0, 0)
    assert kernel(tmp_path) == (81.0, 1)


def test_kernels_of_loaded_modules_become_numbas_own() -> None:
    script = (
        "import sys, fmdp.elimination.kernels as kernels, fmdp._base.compiled as compiled\n"
        "before = type(kernels.run).__name__, compiled.seconds_loading(), 'numba' in sys.modules\n"
        "compiled.load_numba()\n"
        "print(before, type(kernels.run).__name__, compiled.seconds_loading() > 0.0)\n"
    )
    assert python("-c", script) == "('Kernel', 0.0, False) CPUDispatcher True\n"


def test_a_listener_hears_events_from_the_moment_that_numba_is_loaded() -> None:
    from fmdp._base import compiled

    events: list[Any] = []

    class Listener:
        def on_start(self, event: Any) -> None:
            events.append(event.kind)

        def on_end(self, event: Any) -> None:
            events.append(None)

    with compiled.listening("numba:compile", Listener()):
        compiled.load_numba()
        from numba.core import event

        with event.trigger_event("numba:compile"):
            pass
    assert events == ["numba:compile", None]
