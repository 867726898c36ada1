"""The short form of the torture, for every change; `make torture` is the long one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
MODULES = [path.stem for path in sorted(HERE.glob("*.py")) if "\ndef rounds(" in path.read_text()]
SCALE = 0.004
LONGEST = ("arguments", "files", "hostile", "service")


@pytest.mark.parametrize(
    "module",
    [pytest.param(name, marks=pytest.mark.slow if name in LONGEST else ()) for name in MODULES],
)
def test_nothing_goes_wrong_in_a_few_rounds(module: str) -> None:
    """In a process of its own: children are forked there, and tests have threads."""
    words = [sys.executable, "-m", "torture", "--seed", "1", "--scale", str(SCALE)]
    ended = subprocess.run(
        [*words, "--only", module],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
