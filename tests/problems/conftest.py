"""A folder of one's own to stand in: its modules are imported anew, and forgotten afterwards."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fmdp.problems import PROBLEMS


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    modules, names = set(sys.modules), PROBLEMS.names()
    yield tmp_path
    for name in set(sys.modules) - modules:
        if not name.startswith(("fmdp", "numpy", "numba", "scipy", "rich")):
            del sys.modules[name]
    for name in PROBLEMS.names():
        if name not in names:
            PROBLEMS.forget(name)
