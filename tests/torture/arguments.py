"""Argument lists made from what the commands declare, thousands of them.

Every option of every command, every parameter of every problem, planner and learner, with values
that are allowed, nearly allowed, or absurd: some lists are made of sound values alone and do their
work, some have one fault, some many. Each is a program of its own, forked from a warm parent, with
a limit of memory. Whatever is asked, the answer is 0, 1, 2 with one line, or 130 after the Ctrl-C
that a list gets which works for long; and JSON is JSON.
"""

from __future__ import annotations

import json
import random
import signal
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torture import signals
from torture.nursery import Nursery
from torture.trial import SHORT, Trial

LISTS = 3000
"""At scale 1."""
SECONDS_A_LIST = 1.0
"""After so long an argument list that is still at work gets a Ctrl-C."""
SECONDS = 600.0
"""How long it may take to end after that, on a machine that has much else to do."""
MOST_SECONDS = 20.0
"""Of the processor, for a list that gets a Ctrl-C and does not end of it: then it was lost."""
TO_THE_END = 10
"""One in so many ends with the exit of the interpreter, which takes longer than most lists do."""
FAULTS = (0.0, 0.0, 0.03, 0.12)
"""How likely a value is absurd; one of these for a list."""
OPTIONS = (0.03, 0.1, 0.25)
"""How likely an option is given that need not be; many exclude each other."""
WEIGHTS = {"plan": 3, "learn": 3, "reproduce": 0.3, "report": 0.3, "list": 0.3}
"""How often a command is taken, where not once: many options, or little to say, or seconds."""
WANTED = {"act": "state", "fit": "model", "export": "kind"}
"""Options without which a command does nothing, though others could stand for them."""
STATE = "machine_0=working,machine_1=down,machine_2=working"
MODULES = ("fmdp.experiments.sweep", "fmdp.experiments.executors")


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        prepare(place)
        number = max(1, round(LISTS * scale))
        warm = warming(place) if scale >= SHORT else [["plan", "circle:3"]]
        with Nursery(place, warm, MODULES) as nursery:
            yield argument_lists(random.Random(seed).getrandbits(32), number, place, nursery)


def warming(place: Path) -> list[list[str]]:
    """What loads most of the compiled code, and the figures' library."""
    learners = ("psrl", "dorl", "fsrl", "frmax", "ucrl2", "ucrl3", "ucrl-factored")
    policy = str(place / "policy.npz")
    return [
        ["plan", "circle:3"],
        ["plan", "circle:3", "--planner", "alp"],
        ["plan", "riverswim:1", "--planner", "span", "--span-budget", "3"],
        *(["learn", "circle:2", "--learner", name, "--steps", "50"] for name in learners),
        ["measure", "circle:2"],
        ["export", policy, str(place / "warm.txt"), "--as", "tree"],
        ["evaluate", "circle:3", policy],
        ["act", "circle:3", policy, "--state", STATE],
        ["show", "circle:2"],
        ["list"],
        ["report", str(place / "store"), "--out", str(place / "page")],
    ]


def prepare(place: Path) -> None:
    """The files that lists read: a model, its policy, a spec, its store, a log."""
    import fmdp
    from fmdp.experiments.executors import InThisProcess
    from fmdp.experiments.spec import read_spec
    from fmdp.experiments.sweep import run_sweep

    signals.prepare(place)
    run_sweep(read_spec(place / "spec.toml"), place / "store", workers=InThisProcess())
    (place / "longer.toml").write_text(signals.SPEC.replace("seeds = 2", "seeds = 3"))
    run = fmdp.simulate(fmdp.problem("circle:3"), "random", 60, record=True)
    assert run.trajectory is not None
    run.trajectory.to_frame().to_csv(place / "log.csv", index=False)


ABSURD = (
    "",
    " ",
    "0",
    "-1",
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
        from fmdp.cli.commands import COMMANDS, command
        from fmdp.learning.registry import LEARNERS
        from fmdp.planning.registry import PLANNERS
        from fmdp.problems import PROBLEMS

        self.chance = random.Random(seed)
        self.folder = folder
        self.faults = 0.0
        # `reproduce` runs for hours by design; what it takes is tried without running it.
        self.commands: dict[str, Any] = {name: command(name) for name in COMMANDS}
        self.problems, self.planners = PROBLEMS.kinds(), PLANNERS.kinds()
        self.learners = LEARNERS.kinds()

    def list(self) -> list[str]:
        chance = self.chance
        names = sorted(self.commands)
        (name,) = chance.choices(names, [WEIGHTS.get(one, 1.0) for one in names])
        if chance.random() < 0.02:
            return [chance.choice([name[:-1], name + "x", *ABSURD])]
        self.faults = chance.choice(FAULTS)
        given = chance.choice(OPTIONS)
        found: list[str] = []
        for one in self.commands[name].params:
            if one.name == "help":
                continue
            if one.param_type_name == "argument":
                if not self.fault(0.25):
                    found.append(self.value(name, one.name))
            elif self.needed(name, one) or chance.random() < given:
                option = chance.choice(one.opts)
                if one.is_flag:
                    found.append(option)
                elif chance.random() < 0.8:
                    found += [option, self.value(name, one.name)]
                else:
                    found.append(f"{option}={self.value(name, one.name)}")
        if name == "reproduce":
            found.append("--no-such-option")
        if self.fault(0.5):
            found.insert(chance.randrange(len(found) + 1), chance.choice(ABSURD))
        return [name, *found]

    def needed(self, command: str, option: Any) -> bool:
        if WANTED.get(command) == option.name:
            return self.chance.random() < 0.8
        return bool(option.required) and not self.fault(0.25)

    def fault(self, share: float = 1.0) -> bool:
        return self.chance.random() < share * self.faults

    def value(self, command: str, name: str) -> str:
        chance = self.chance
        if self.fault():
            return chance.choice(ABSURD)
        makers: dict[str, Callable[[], str]] = {
            "problem": lambda: self.problem(command),
            "source": lambda: self.problem(command),
            "model": lambda: self.problem(command),
            "log": lambda: self.file("log.csv", "model.json"),
            "target": lambda: self.file("a.json", "a.json", "b.json", "c.txt"),
            "out": lambda: self.out(command),
            "policy": lambda: self.file("policy.npz", "policy.npz", "o2.npz"),
            "dir": lambda: self.file("served", f"served-{chance.random()}", "store"),
            "directory": lambda: self.file("store"),
            "spec": lambda: self.file("spec.toml", "spec.toml", "longer.toml", "none.toml"),
            "learner": lambda: self.settings(self.learners),
            "planner": lambda: self.settings(self.planners),
            "set": self.assignment,
            "steps": lambda: chance.choice(["1", "10", "300", "2000"]),
            "state": lambda: chance.choice([STATE, STATE, "machine_0=down", "{}"]),
            "kind": lambda: chance.choice(["csv", "tree", "python"]),
            "structure": lambda: "learn",
            "actions": lambda: "restart",
            "rewards": lambda: "reward.working_0,reward.working_1,reward.working_2",
            "ignore": lambda: chance.choice(["t", "reward", "nothing"]),
            "prior": lambda: chance.choice(["0", "0.5", "2"]),
            "rho": lambda: chance.choice(["0.1", "0.5", "1"]),
            "max_error": lambda: chance.choice(["0", "0.2", "1"]),
            "max_seconds": lambda: chance.choice(["0.001", "1", "2"]),
            "max_iterations": lambda: chance.choice(["1", "3", "50"]),
            "memory_limit": lambda: chance.choice(["1", "10K", "500M", "1G"]),
            "workers": lambda: chance.choice(["0", "1", "2"]),
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

    def file(self, *names: str) -> str:
        return str(self.folder / self.chance.choice(names))

    def out(self, command: str) -> str:
        if command == "sweep":  # mostly the store in which all is done: workers take seconds
            return self.file("store", "store", "store", "store", "o1")
        if command == "report":
            return self.file("page", "page", "store")
        if command == "fit":
            return self.file("fitted.json", "no/such.json")
        return self.file("o1", "o2.npz", "o2.npz", "no/such")

    def problem(self, command: str) -> str:
        """The model whose policy and log are there, for commands that read them; else any."""
        if self.chance.random() < (0.7 if command in ("act", "evaluate", "export", "fit") else 0.1):
            return self.chance.choice(["circle:3", str(self.folder / "model.json")])
        kind = self.chance.choice(self.problems)
        sizes = [1, 2, 3, 4, 5, 6, *([0, 10**22] if self.fault() else [])]
        size = "" if kind.size_parameter() is None else f":{self.chance.choice(sizes)}"
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
        """A value of a declared parameter: its default, one of its choices, what lies in its range;
        and where the list may have faults an end of the range, a little beyond it, an absurdity."""
        chance = self.chance
        values = list(getattr(parameter, "choices", ()))
        low, high = getattr(parameter, "low", None), getattr(parameter, "high", None)
        if not values:
            values = [
                f"{value:g}"
                for value in (0.1, 0.5, 1, 2, 3)[2 * (parameter.kind == "integer") :]
                if (low is None or low <= value) and (high is None or value <= high)
            ]
        if not parameter.required:
            values += [parameter.default_text] * 2
        if self.faults and chance.random() < 0.3:
            for end in (low, high):
                if end is not None and abs(end) < 1e300:
                    values += [f"{end:g}", f"{end + 1:g}", f"{end - 1:g}", f"{end + 1e-9!r}"]
            values += ["none", "1.5", chance.choice(ABSURD)]
        return chance.choice(values or ["1"])


def argument_lists(seed: int, tried: int, folder: Path, nursery: Nursery) -> Trial:
    maker = Maker(seed, folder)
    failures = []
    for number in range(tried):
        arguments = maker.list()
        wrong = one(nursery, arguments, number % TO_THE_END == 0)
        if wrong is not None:
            shown = ascii([word if len(word) < 400 else word[:400] + "..." for word in arguments])
            failures.append(f"{shown}: {wrong}")
    return Trial("argument lists made of the declared options", tried, tuple(failures))


def one(nursery: Nursery, arguments: Sequence[str], to_the_end: bool) -> str | None:
    running = nursery.start(arguments, to_the_end=to_the_end)
    long = not running.ends_within(SECONDS_A_LIST)
    if long:
        running.send(signal.SIGINT)
    ended = running.wait(SECONDS)
    if ended is None:
        return f"did not end within {SECONDS:.0f} s after a Ctrl-C"
    if long and ended.status != 130 and ended.seconds > MOST_SECONDS:
        return f"worked on for {ended.seconds:.0f} s of the processor after a Ctrl-C"
    wrong = ended.wrong(0, 1, 2, *((130,) if long else ()))
    if wrong is None and "--json" in arguments and ended.status == 0:
        try:
            json.loads(ended.output)
        except ValueError as error:
            return f"its output is no JSON: {error}"
    return wrong
