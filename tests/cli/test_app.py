"""The frame around the commands: help, version, refusals, pipes, start-up."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import types
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import fmdp
from fmdp.cli import main
from fmdp.cli.commands import COMMANDS, command


def test_version(run: Any) -> None:
    assert run("--version").out == f"fmdp {fmdp.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_names_every_command(run: Any, arguments: tuple[str, ...]) -> None:
    ran = run(*arguments)
    assert ran.status == 0
    for name in COMMANDS:
        assert f"\n  {name} " in ran.out
    assert "..." not in ran.out.replace("[ARGS]...", "")  # no summary is cut short


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["plann"], 'did you mean "plan"?'),
        (["--verson"], 'did you mean "--version"?'),
        (["show", "circle:4", "--jsn"], 'fmdp show has no option "--jsn"; did you mean "--json"?'),
        (["show"], "missing argument 'PROBLEM' (see fmdp show --help)"),
        (["show", "--table"], "option '--table' requires an argument (see fmdp show --help)"),
        (["show", "circle:4", "more"], "unexpected extra argument"),
        (
            ["reproduce", "--runs", "x"],
            "'--runs' parameter of fmdp reproduce must be an integer >= 1",
        ),
        (["plan", "circle:4", "--out", ""], "--out must be a path; got ''"),
        (["report", ""], "DIR must be a path; got ''"),
        (["convert", "circle:3", "x.rddl+x.rddl"], "the files must be different ones"),
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


def test_an_end_of_file_is_a_bug_and_no_interrupt(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Typer takes EOFError for the end of an answer that the user was asked for."""

    def broken(*_: object, **__: object) -> None:
        raise EOFError("Ran out of input")

    monkeypatch.setattr("fmdp.problems.problem", broken)
    with pytest.raises(EOFError, match="Ran out of input"):
        run("show", "circle:4")


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


def test_a_command_brings_no_other_one() -> None:
    """Nor Pydantic, by which Typer would convert texts that are texts already."""
    script = (
        "import sys; from fmdp.cli import main; main(['show', 'circel:4', '--table', 'machine_0']);"
        "print(sorted(m for m in sys.modules if m.startswith('fmdp.cli.') or m == 'pydantic'))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300
    )
    brought = {name.rpartition(".")[2] for name in ast.literal_eval(ran.stdout)}
    assert brought & {*COMMANDS, "pydantic"} == {"show"}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_the_one_of_its_file(name: str) -> None:
    made = command(name)
    assert made.name == name
    own = importlib.import_module(f"fmdp.cli.{name}")
    assert made.callback.__wrapped__ is getattr(own, COMMANDS[name])


def given_to_a_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    """What a function is called with by a command line."""
    found: dict[str, Any] = {}

    def own(
        text: str,
        paths: list[str] | None = None,
        out: Path | None = None,
        place: Path = Path("here"),
        word: Annotated[str, typer.Option("--word")] = "default",
        several: Annotated[list[str] | None, typer.Option("--several")] = None,
        count: Annotated[int, typer.Option("--count", min=1)] = 3,
        flag: Annotated[bool, typer.Option("--flag")] = False,
    ) -> None:
        found.update(locals())
        del found["found"]

    module = types.ModuleType("fmdp.cli.own")
    monkeypatch.setattr(module, "own", own, raising=False)
    monkeypatch.setitem(sys.modules, "fmdp.cli.own", module)
    monkeypatch.setitem(COMMANDS, "own", "own")
    try:
        assert main(["own", *arguments]) == 0
    finally:
        command.cache_clear()
    return found


def test_what_a_command_is_given_has_the_types_that_it_declares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nothing = given_to_a_command(monkeypatch, "7")
    assert nothing == {
        "text": "7",
        "paths": None,
        "out": None,
        "place": Path("here"),
        "word": "default",
        "several": None,
        "count": 3,
        "flag": False,
    }
    line = ["", "--out", "a/b", "--place", "c", "--word=", "--several", "x", "--several", "y=1"]
    everything = given_to_a_command(monkeypatch, *line, "--count", "4", "--flag")
    assert everything == {
        "text": "",
        "paths": None,
        "out": Path("a/b"),
        "place": Path("c"),
        "word": "",
        "several": ["x", "y=1"],
        "count": 4,
        "flag": True,
    }


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
