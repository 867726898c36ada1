"""Files in the current folder that have the names of modules are not imported."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

PLANTED = "import pathlib; pathlib.Path({marker!r}).touch(); raise SystemExit(77)\n"
OWN = """
import fmdp

class Mine(fmdp.Random):
    name = "mine"
"""
SPEC = 'steps = 5\nseeds = 2\nproblems = ["circle:2"]\nlearners = ["random", "own_module:Mine"]\n'
SWEEP = ["sweep", "spec.toml", "--out", "swept", "--workers", "2"]
COMPARE = [
    *("compare", "circle:2", "--learners", "random,own_module:Mine", "--out", "compared"),
    *("--steps", "5", "--seeds", "2", "--workers", "2"),
]
PLAN = ["plan", "circle:2", "--json"]
SCRIPT = Path(sys.executable).with_name("fmdp")


def names(spare: str, *, missing: bool) -> set[str]:
    """Return the names of all modules, except those that a statement imports by itself.

    `missing`: also those of the standard library that this system does not have.
    """
    code = f"{spare}\nimport sys; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    everything = {module.name for module in pkgutil.iter_modules()}
    if missing:
        everything |= sys.stdlib_module_names
    spared = {name.partition(".")[0] for name in loaded} | {"fmdp", "own_module"}
    return {name for name in everything - spared if not name.startswith("_")}


@pytest.mark.parametrize(
    "command",
    [*(pytest.param(words, marks=pytest.mark.slow) for words in (SWEEP, COMPARE)), PLAN],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("how", ["the script", "python -m"])
def test_modules_of_the_current_folder_hide_no_others(
    tmp_path: Path, how: str, command: list[str]
) -> None:
    if how == "the script" and not SCRIPT.exists():
        pytest.skip("fmdp is not installed as a script")
    # Python itself imports some modules for `python -m`, before any line of fmdp.
    spare = "" if how == "the script" else "import runpy, fmdp"
    # The folder of a module that the user names is searched after everything that is installed.
    for name in names(spare, missing=command is PLAN):
        (tmp_path / f"{name}.py").write_text(PLANTED.format(marker=str(tmp_path / "ran")))
    (tmp_path / "own_module.py").write_text(OWN)
    (tmp_path / "spec.toml").write_text(SPEC)
    ran = subprocess.run(
        [*([str(SCRIPT)] if how == "the script" else [sys.executable, "-m", "fmdp"]), *command],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert not (tmp_path / "ran").exists()


def test_programs_that_a_run_starts_search_for_modules_as_usual(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from fmdp.experiments.executors import Processes

    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with Processes(1) as workers:
        assert workers.submit(os.getenv, "PYTHONSAFEPATH").result() is None
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    with Processes(1) as workers:
        assert workers.submit(os.getenv, "PYTHONSAFEPATH").result() == "1"
