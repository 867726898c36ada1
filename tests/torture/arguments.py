"""Argument lists made from what the commands declare, thousands of them.

Every option of every command, every parameter of every problem, planner and learner, with values
that are allowed, nearly allowed, or absurd. Many are tried in one child, which has limits of memory
and time. Whatever is asked, the answer is 0, 1, 2 with one line, or 130 after the Ctrl-C that a
list gets which works for long.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torture.nursery import MEMORY_BYTES, limit, surroundings
from torture.signals import ALLOWED, prepare
from torture.trial import Trial

LISTS = 3000
"""At scale 1."""
LISTS_A_CHILD = 60
SECONDS_A_LIST = 2.0
"""After so long an argument list that is still at work gets a Ctrl-C."""
SECONDS = 600.0
"""How long a child may take beyond that."""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        number = max(1, round(LISTS * scale))
        yield argument_lists(random.Random(seed).getrandbits(32), number, Path(folder))


ABSURD = (
    "",
    " ",
    "0",
    "-1",
    "1",
    "2",
    "0.5",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e-320",
    "1e999",
    "10^22",
    "1" + "0" * 22,
    str(2**63 - 1),
    str(2**63),
    "9" * 5000,
    "none",
    "true",
    "null",
    "x" * 300,
    "é→\U0001f600",
    "\udcff",
    "a\nb",
    "$HOME",
    "{c}",
    "a=b=c",
    ",",
    ",,=",
    ":",
    "a:b",
    "os:system",
    "fmdp:FmdpError",
    "fmdp.model:FactoredMDP:3",
    "../..",
    "/",
    "/dev/null",
    "/dev/full",
    "/nowhere/file.json",
    "--json",
    "-h",
)


class Maker:
    """Argument lists from the declarations."""

    def __init__(self, seed: int, folder: Path) -> None:
        from typer.main import get_command

        from fmdp.cli.app import app
        from fmdp.learning.registry import LEARNERS
        from fmdp.planning.registry import PLANNERS
        from fmdp.problems import PROBLEMS

        self.chance = random.Random(seed)
        self.folder = folder
        # `reproduce` runs for hours by design; what it takes is tried without running it.
        self.commands: dict[str, Any] = dict(get_command(app).commands)  # type: ignore[attr-defined]
        self.problems, self.planners = PROBLEMS.kinds(), PLANNERS.kinds()
        self.learners = LEARNERS.kinds()

    def list(self) -> list[str]:
        chance = self.chance
        name = chance.choice(sorted(self.commands))
        if chance.random() < 0.02:
            return [chance.choice([name[:-1], name + "x", *ABSURD])]
        command = self.commands[name]
        found: list[str] = []
        for one in command.params:
            if one.name == "help":
                continue
            if one.param_type_name == "argument":
                if chance.random() < 0.97:
                    found.append(self.value(name, one.name))
            elif chance.random() < (0.95 if one.required else 0.2):
                option = chance.choice(one.opts)
                if one.is_flag:
                    found.append(option)
                elif chance.random() < 0.8:
                    found += [option, self.value(name, one.name)]
                else:
                    found.append(f"{option}={self.value(name, one.name)}")
        if name == "reproduce":
            found.append("--no-such-option")
        if chance.random() < 0.05:
            found.insert(chance.randrange(len(found) + 1), chance.choice(ABSURD))
        return [name, *found]

    def value(self, command: str, name: str) -> str:
        chance = self.chance
        if chance.random() < 0.12:
            return chance.choice(ABSURD)
        makers: dict[str, Callable[[], str]] = {
            "problem": self.problem,
            "source": self.problem,
            "target": lambda: str(self.folder / chance.choice(["a.json", "b.json", "c.txt"])),
            "out": lambda: str(self.folder / chance.choice(["o1", "o2.npz", "no/such"])),
            "policy": lambda: str(self.folder / "policy.npz"),
            "directory": lambda: str(self.folder / "store"),
            "spec": lambda: str(self.folder / chance.choice(["spec.toml", "none.toml"])),
            "learner": lambda: self.settings(self.learners),
            "planner": lambda: self.settings(self.planners),
            "set": self.assignment,
            "steps": lambda: chance.choice(["1", "10", "300", "2000"]),
            "max_seconds": lambda: chance.choice(["0.001", "1", "2"]),
            "max_iterations": lambda: chance.choice(["1", "3", "50"]),
            "memory_limit": lambda: chance.choice(["1", "10K", "500M", "1G"]),
            "workers": lambda: chance.choice(["0", "-1", "1"]),
            "dask": lambda: chance.choice(["tls://", "tcp://", "x", "inproc://", ""]),
            "factor": lambda: chance.choice(["machine_0", "reward:working_0", "x"]),
        }
        if name in makers:
            return makers[name]()
        for kind in self.planners:
            for parameter in kind.parameters:
                if parameter.name == name.removeprefix("span_"):
                    return self.of(parameter)
        return chance.choice(["0", "1", "7"])

    def problem(self) -> str:
        if self.chance.random() < 0.15:
            return str(self.folder / self.chance.choice(["model.json", "none.json"]))
        kind = self.chance.choice(self.problems)
        declared = kind.size_parameter()
        size = "" if declared is None else f":{self.chance.choice([1, 2, 3, 4, 5, 6, 10**22])}"
        return self.with_settings(f"{kind.name}{size}", kind.options())

    def settings(self, kinds: Sequence[Any]) -> str:
        kind = self.chance.choice(kinds)
        return self.with_settings(kind.name, kind.parameters)

    def with_settings(self, head: str, parameters: Sequence[Any]) -> str:
        own = [one for one in parameters if self.chance.random() < 0.15]
        return ",".join([head, *(f"{one.name}={self.of(one)}" for one in own)])

    def assignment(self) -> str:
        parameters = [one for kind in self.learners for one in kind.parameters]
        one = self.chance.choice(parameters)
        return f"{one.name}={self.of(one)}"

    def of(self, parameter: Any) -> str:
        """A value of a declared parameter: its default, one of its choices, an end of its range, a
        little beyond it, or an absurdity."""
        chance = self.chance
        values = list(getattr(parameter, "choices", ()))
        for end in (getattr(parameter, "low", None), getattr(parameter, "high", None)):
            if end is not None and abs(end) < 1e300:
                values += [f"{end:g}", f"{end + 1:g}", f"{end - 1:g}", f"{end + 1e-9!r}"]
        values += ["1", "2", "0.5", "3", "none", chance.choice(ABSURD)]
        if not parameter.required:
            values += [parameter.default_text] * 3
        return chance.choice(values)


def argument_lists(seed: int, tried: int, folder: Path) -> Trial:
    failures: list[str] = []
    done = 0
    while done < tried:
        number = min(LISTS_A_CHILD, tried - done)
        failures += lists_in_a_child(seed + done, number, folder)
        done += number
    return Trial("argument lists made of the declared options", tried, tuple(failures))


def lists_in_a_child(seed: int, number: int, folder: Path) -> list[str]:
    """What went wrong in a child that tries so many; it says each list before it begins."""
    script = f"from torture.arguments import child; child({seed}, {number}, {str(folder)!r})"
    log = folder / "lists.log"
    with log.open("w") as said, tempfile.TemporaryDirectory() as here:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=lambda: limit(MEMORY_BYTES),
            cwd=here,
            env={**os.environ, **surroundings(), "FMDP_THREADS": "1"},
        )
        try:
            status = process.wait(SECONDS + number * SECONDS_A_LIST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            status = None
    lines = log.read_text(errors="replace").splitlines()
    failures = [line for line in lines if line.startswith("FAILED")]
    if status != 0:
        failures.append(f"the child ended with {status}: {lines[-3:]}")
    return failures


def child(seed: int, number: int, folder: str) -> None:
    """In a process of its own: try argument lists one after the other."""
    from fmdp.cli import main

    maker = Maker(seed, Path(folder))
    for _ in range(number):
        arguments = maker.list()
        print("trying", ascii(arguments)[:600], flush=True)
        output, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            try:
                with interrupted_after(SECONDS_A_LIST):
                    status: Any = main(arguments)
            except BaseException as error:
                status = repr(error)
        said = errors.getvalue()
        wrong = status not in ALLOWED or "Traceback" in said
        if status == 2:
            refusals = [line for line in said.splitlines() if line.startswith("fmdp: ")]
            wrong = wrong or len(refusals) != 1
        if wrong:
            shown = ascii([one if len(one) < 400 else one[:400] + "..." for one in arguments])
            print(f"FAILED {shown}: {status}: {said[-1500:]!a}", flush=True)


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    # Not by an alarm: `plan --max-seconds` has that for itself.
    timer = threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
