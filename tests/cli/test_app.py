"""The frame around the commands: help, version, refusals, pipes, start-up."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import fmdp
from fmdp.cli.app import app


def test_version(run: Any) -> None:
    assert run("--version").out == f"fmdp {fmdp.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_command(run: Any, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.status == 0
    for command in app.registered_commands:
        assert f"\n  {command.name} " in ran.out
    assert "..." not in ran.out.replace("[ARGS]...", "")  # no summary is cut short


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["plann"], 'did you mean "plan"?'),
        (["--verson"], 'did you mean "--version"?'),
        (["show", "circle:4", "--jsn"], 'fmdp show has no option "--jsn"; did you mean "--json"?'),
        (["show"], "missing argument 'PROBLEM' (see fmdp show --help)"),
        (["show", "circle:4", "more"], "unexpected extra argument"),
        (["show", "circle:4", "--table", "machine_0", "--rows", "x"], "an integer >= 0; got 'x'"),
        (["show", "circel:4"], 'did you mean "circle"?'),
        (["show", "circle:4,dynamcs=xu"], 'did you mean "dynamics"?'),
        (["show", "circle"], "circle needs a size"),
        (["show", "nowhere/model.json"], "nowhere/model.json"),
    ],
)
def test_bad_input_is_one_line_and_status_2(run: Any, arguments: list[str], line: str) -> None:
    ran = run(*arguments)
    assert line in ran.refusal
    assert ran.out == ""


def test_memory_that_runs_out_is_a_refusal(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def hungry(text: str) -> None:
        raise MemoryError

    monkeypatch.setattr("fmdp.problems.problem", hungry)
    assert "out of memory" in run("show", "circle:4").refusal


def test_interrupt_is_status_130(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(text: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fmdp.problems.problem", impatient)
    ran = run("show", "circle:4")
    assert (ran.status, ran.out, ran.err) == (130, "", "fmdp: interrupted\n")


def test_help_loads_nothing_heavy() -> None:
    """What `fmdp --help` imports decides how long it takes; the rest is Python's own start."""
    script = (
        "import sys; from fmdp.cli import main; main(['--help']);"
        "print([m for m in ('numpy', 'scipy', 'numba', 'highspy', 'rich') if m in sys.modules],"
        " file=sys.stderr)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    assert ran.stderr.strip() == "[]"


def test_a_reader_that_goes_away_is_no_failure() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "fmdp", "show", "circle:500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
