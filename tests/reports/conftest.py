from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from fmdp.experiments.store import Store


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fmdp_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def made() -> ModuleType:
    """made.py beside this file: tests are no package, so it is loaded by its path."""
    return _load(Path(__file__).with_name("made.py"))


@pytest.fixture(scope="session")
def two_problems(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test writes to."""
    folder: Path = made.make_store(tmp_path_factory.mktemp("two") / "store")
    return folder


@pytest.fixture
def store(two_problems: Path) -> Iterator[Store]:
    with Store.open(two_problems) as opened:
        yield opened
