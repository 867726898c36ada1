from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.measures import repeatable
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep

# Long enough that the learners plan and differ, short enough for a test.
SPEC = """
steps = 300
seeds = 3
problems = ["circle:2", "three-leg:3,dynamics=guestrin"]
learners = [{ name = "psrl", planner = "exact" }, { name = "dorl", planner = "alp" }, "random"]
"""


def everything(directory: Path) -> dict[str, Any]:
    """All that two sweeps must agree in to the last bit: the store without times and machine."""
    with Store.open(directory) as store:
        found: dict[str, Any] = {"members": [store.members(spec.hash) for spec in store.specs()]}
        for run in store.runs():
            row = asdict(run)
            for name in ("seconds", "finished", "machine"):
                del row[name]
            row["measures"] = repeatable(run.measures)
            curve, recording = store.curve(run.key), store.recording(run.key)
            kept = {"t": curve.t, **curve.values, **(vars(recording) if recording else {})}
            found[run.key] = row, {name: array.tobytes() for name, array in kept.items()}
    return found


@pytest.fixture(scope="session")
def spec() -> Spec:
    return parse_spec(SPEC)


@pytest.fixture(scope="session")
def spec_text() -> str:
    return SPEC


@pytest.fixture(scope="session")
def contents() -> Callable[[Path], dict[str, Any]]:
    return everything


@pytest.fixture(scope="session")
def serial(spec: Spec, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process gives that makes one run after another."""
    directory = tmp_path_factory.mktemp("serial")
    summary = run_sweep(spec, directory, workers=InThisProcess())
    assert (summary.done, summary.failed) == (18, 0)
    return everything(directory)
