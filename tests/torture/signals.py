"""Kills and signals at random moments of the commands, and argument lists made at random.

Signals (Ctrl-C and SIGTERM, once and twice) and kills come at a random moment of `plan`, `learn`,
`convert` and `report`, from the first line of the program on.  After a signal the program must end
by itself with 0, 1, 2, 130 or 143 and no traceback, soon; whatever it was to write is there whole
or not at all.

Argument lists are made from what the commands declare: every option of every command, every
parameter of every problem, planner and learner, with values that are allowed, nearly allowed, or
absurd.  Many are tried in one child, which has limits of memory and time.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torture.trial import Trial

ALLOWED = (0, 1, 2, 130, 143)
MEMORY_BYTES = 6 << 30
SECONDS = 120.0
"""How long a child may take altogether."""
SECONDS_A_LIST = 10.0
"""After so long an argument list that is still at work gets a Ctrl-C."""
LISTS_A_CHILD = 60

KILLS, SIGNALS, LISTS = 120, 300, 3000
"""At scale 1."""

PROGRAM = (
    "import sys\n"
    "from fmdp.cli import main\n"
    "sys.stderr.write('started\\n'); sys.stderr.flush()\n"
    "sys.exit(main())\n"
)
SPEC = """
steps = 200
seeds = 2
problems = ["circle:2", "riverswim:4"]
learners = ["random", {name = "psrl", set = {c = 0.5}}]
"""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tasks = prepared_tasks(place)
        chance = random.Random(seed)
        yield disturbed("kill -9 at random moments", tasks, chance, count(KILLS, scale), kill)
        for name, numbers in (
            ("Ctrl-C at random moments", (signal.SIGINT,)),
            ("SIGTERM at random moments", (signal.SIGTERM,)),
            ("two signals at random moments", (signal.SIGINT, signal.SIGTERM)),
        ):
            twice = len(numbers) == 2
            tried = count(SIGNALS, scale / 3)
            yield disturbed(name, tasks, chance, tried, sender(numbers, twice))
        yield argument_lists(chance.getrandbits(32), count(LISTS, scale), place)


def count(number: int, scale: float) -> int:
    return max(1, round(number * scale))


# ---- kills and signals --------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A command with the file that it writes, and a check of what is there afterwards."""

    name: str
    arguments: tuple[str, ...]
    target: Path
    check: Callable[[Path], object]
    seconds: float
    """How long it takes undisturbed."""
    content: bytes | None
    """What it writes; None where that is more than one file."""


def prepared_tasks(place: Path) -> list[Task]:
    import fmdp

    spec, store = place / "spec.toml", place / "store"
    spec.write_text(SPEC)
    finished(["sweep", str(spec), "--out", str(store), "--workers", "1"])
    policy, learner, model = place / "policy.npz", place / "learner.npz", place / "model.json"
    page = place / "report"
    structure = fmdp.problem("circle:8").structure
    found = [
        (
            "plan",
            ["plan", "circle:8", "--tolerance", "1e-10", "--out", str(policy)],
            policy,
            lambda path: fmdp.load_policy(path, structure),
        ),
        (
            "learn",
            ["learn", "circle:4", "--learner", "psrl", "--steps", "3000", "--out", str(learner)],
            learner,
            fmdp.load_agent,
        ),
        ("convert", ["convert", "circle:40", str(model)], model, fmdp.load),
        (
            "report",
            ["report", str(store), "--out", str(page), "--json"],
            page / "index.html",
            lambda path: path.read_text(encoding="utf-8").index("</html>"),
        ),
    ]
    tasks = []
    for name, arguments, target, check in found:
        seconds = finished(arguments)
        content = None if name == "report" else target.read_bytes()
        tasks.append(Task(name, tuple(arguments), target, check, seconds, content))
    return tasks


def finished(arguments: Sequence[str]) -> float:
    """Run a command to its end, twice so that it is compiled, and say how long it took."""
    for _ in range(2):
        started = time.perf_counter()
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            capture_output=True,
            text=True,
            timeout=10 * SECONDS,
            env=surroundings(),
        )
        if ran.returncode != 0:
            raise RuntimeError(f"{arguments}: {ran.returncode}\n{ran.stderr}")
    return time.perf_counter() - started


def surroundings() -> dict[str, str]:
    return {**os.environ, "FMDP_THREADS": "2", "PYTHONUNBUFFERED": ""}


Disturb = Callable[[subprocess.Popen[str], random.Random], None]


def kill(process: subprocess.Popen[str], chance: random.Random) -> None:
    process.kill()


def sender(numbers: Sequence[signal.Signals], twice: bool) -> Disturb:
    def send(process: subprocess.Popen[str], chance: random.Random) -> None:
        process.send_signal(chance.choice(numbers))
        if twice:
            time.sleep(chance.choice([0.0, 0.001, 0.02, 0.3]) * chance.random())
            process.send_signal(chance.choice(numbers))

    return send


def disturbed(
    name: str, tasks: Sequence[Task], chance: random.Random, tried: int, disturb: Disturb
) -> Trial:
    failures = []
    for number in range(tried):
        task = tasks[number % len(tasks)]
        wrong = disturbed_once(task, chance, disturb)
        if wrong is not None:
            failures.append(f"{' '.join(task.arguments)}: {wrong}")
    return Trial(name, tried, tuple(failures))


def disturbed_once(task: Task, chance: random.Random, disturb: Disturb) -> str | None:
    old = chance.random() < 0.5 and task.content is not None
    if old:
        assert task.content is not None
        task.target.write_bytes(task.content)
    else:
        task.target.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *task.arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited,
        env=surroundings(),
    )
    assert process.stderr is not None
    process.stderr.readline()  # the interpreter itself has started
    time.sleep(task.seconds * chance.random())
    disturb(process, chance)
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return f"did not end within {SECONDS:.0f} s"
    status = process.returncode
    if disturb is not kill:
        # Killed by SIGTERM before it could listen: for a shell that is 143 as well.
        status = 143 if status == -signal.SIGTERM else status
        if status not in ALLOWED:
            return f"status {status}: {errors[-500:]}"
    if "Traceback" in errors or "Exception ignored" in errors:
        return f"a traceback: {errors[-1500:]}"
    if "--json" in task.arguments and status == 0:
        json.loads(output)
    if task.target.exists():
        try:
            task.check(task.target)
        except Exception as error:
            return f"{task.target.name} is not whole: {error!r}"
    elif old:
        return f"{task.target.name} was there and is gone"
    return None


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


# ---- argument lists -----------------------------------------------------------------------------

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
    script = f"from torture.signals import child; child({seed}, {number}, {str(folder)!r})"
    path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    log = folder / "lists.log"
    with log.open("w") as said, tempfile.TemporaryDirectory() as here:
        process = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=said,
            stderr=subprocess.STDOUT,
            preexec_fn=limited,
            cwd=here,
            env={**surroundings(), "FMDP_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)},
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
