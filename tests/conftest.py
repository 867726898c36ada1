"""Options and fixtures of all tests.

Hypothesis has no deadlines, since the first call compiles and machines are shared. `make test` uses
the same 50 examples every time; `make test-all` sets HYPOTHESIS_PROFILE=thorough for 400 fresh
ones. `--tenth N` runs a tenth of the tests marked slow, a different one for each N; CI passes the
number of commits, so that different landings run different tenths.

A test with the mark `sampled` takes every value of each of its parameters in `make test`; the other
combinations of the values count as slow.

The files of RELEASE carry the mark `release`: a few from every room, half a minute of processor
time in all, that need neither the repository nor an extra; `make release-check` runs them under
every Python, against what is installed there.
"""

from __future__ import annotations

import gc
import os
import platform
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings

if platform.machine() in ("x86_64", "AMD64"):
    # Sums in the last bits depend on the processor. Most runs do not, but PSRL with the planner
    # `coupled` does, and then its fingerprint would. Must be set before NumPy is imported.
    os.environ.setdefault("OPENBLAS_CORETYPE", "Haswell")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in a shell's background job, whose children would ignore the Ctrl-C that tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("repeatable", derandomize=True, max_examples=50, **_common)
settings.register_profile("thorough", max_examples=400, **_common)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

TESTS = Path(__file__).parent
RELEASE = (
    "cli/test_doctor.py",
    "cli/test_plan.py",
    "experiments/test_executors.py",
    "experiments/test_store.py",
    "learning/test_learners.py",
    "logs/test_fit.py",
    "model/test_factored.py",
    "planning/test_plan.py",
    "problems/test_contract.py",
    "problems/test_gains.py",
    "service/test_lines.py",
    "simulation/test_loop.py",
    "simulation/test_regret.py",
    "test_archives.py",
    "test_public_names.py",
    "theory/test_known_problems.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tenth", type=int, help="run this tenth of the tests marked slow")


def pytest_configure() -> None:
    # Collecting makes a million objects that all stay: the collector would search them again and
    # again and find nothing.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _mark_unsampled(items)
    tenth = config.getoption("--tenth")
    if tenth is not None:
        chosen = [item for item in items if _in_tenth(item, tenth)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
    for item in items:
        if item.path.is_relative_to(TESTS) and str(item.path.relative_to(TESTS)) in RELEASE:
            item.add_marker("release")


def _mark_unsampled(items: list[pytest.Item]) -> None:
    """Mark as slow the combinations of parameters that a sampled test can do without.

    Combination (i, j, ...) is kept if j = i modulo the number of values of the second parameter,
    and so on, where the first parameter has the most values. Then each value of it is kept once,
    and each value of the others at least once.
    """
    tests: dict[str, list[tuple[pytest.Item, dict[str, Any]]]] = {}
    for item in items:
        if item.get_closest_marker("sampled") is not None:
            name = item.nodeid.partition("[")[0]
            tests.setdefault(name, []).append((item, item.callspec.params))  # type: ignore[attr-defined]
    for combinations in tests.values():
        values = {
            name: list(dict.fromkeys(id(chosen[name]) for _, chosen in combinations))
            for name in combinations[0][1]
        }
        longest = max(values, key=lambda name: len(values[name]))
        for item, chosen in combinations:
            number = values[longest].index(id(chosen[longest]))
            if any(id(chosen[name]) != ids[number % len(ids)] for name, ids in values.items()):
                item.add_marker("slow")


def _in_tenth(item: pytest.Item, tenth: int) -> bool:
    slow = item.get_closest_marker("slow") is not None
    return slow and crc32(item.nodeid.encode()) % 10 == tenth % 10


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of one's own to stand in: its modules are imported anew and forgotten afterwards,
    and so is what they register."""
    from fmdp.learning.registry import LEARNERS
    from fmdp.planning.registry import PLANNERS
    from fmdp.problems import PROBLEMS

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])  # as for a script beside them
    modules = set(sys.modules)
    registries = {one: one.names() for one in (LEARNERS, PLANNERS, PROBLEMS)}
    yield tmp_path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(tmp_path)):
            del sys.modules[name]
    for registry, names in registries.items():
        for name in set(registry.names()) - set(names):
            registry.forget(name)
