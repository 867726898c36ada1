"""Ctrl-C at chosen calls of a command, in one process: an interrupted result is no finding.

`signals.py` sends signals after random times, which seldom meet a given line twice. Here the signal
is raised at the n-th call of a function of fmdp, so that a failure can be repeated. A command must
end with 130, or with the output and the status that it has without a Ctrl-C. With 130 it says
nothing, or gives the results so far: the status `interrupted` or fewer steps, and bounds on the
gain that agree with those of the whole result.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from torture.trial import SHORT, Trial

MOMENTS = 1500
"""At scale 1."""
UNSTEADY = ("seconds", "memory", "cache")
"""Parts of the names of numbers that no two runs have in common."""
SLACK = 1e-9


@dataclass
class Calls:
    """A profile function that counts the calls of fmdp and raises the signal at one of them."""

    at: int | None = None
    count: int = 0
    first: dict[CodeType, int] = field(default_factory=dict)
    where: str = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or "/fmdp/" not in frame.f_code.co_filename:
            return
        self.count += 1
        self.first.setdefault(frame.f_code, self.count)
        if self.count == self.at:
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}"
            signal.raise_signal(signal.SIGINT)


@dataclass(frozen=True)
class Answer:
    status: int
    output: str
    errors: str
    calls: Calls

    @property
    def content(self) -> Any:
        try:
            return steady(json.loads(self.output))
        except ValueError:
            return self.output


def steady(value: Any) -> Any:
    """The value without what differs between two runs."""
    if isinstance(value, dict):
        kept = {key: steady(part) for key, part in value.items()}
        return {key: part for key, part in kept.items() if not any(w in key for w in UNSTEADY)}
    return [steady(part) for part in value] if isinstance(value, list) else value


def answer(words: Sequence[str], at: int | None = None) -> Answer:
    """What a command says, with a Ctrl-C at the call of that number."""
    from fmdp.cli import main

    calls, output, errors = Calls(at), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        sys.setprofile(calls)
        try:
            status = main(words)
        except KeyboardInterrupt:  # before the program listens, and after it has ended
            status = 130
        finally:
            sys.setprofile(None)
    return Answer(status, output.getvalue(), errors.getvalue(), calls)


def wrong(told: Answer, truth: Answer) -> str | None:
    """What is wrong about an interrupted answer, or None."""
    if told.content == truth.content and told.status in (truth.status, 130):
        return None
    if told.status != 130 or "Traceback" in told.errors:
        return f"status {told.status}: {told.output[-300:]} {told.errors[-300:]}"
    if not told.output:
        return None
    if not isinstance(told.content, dict):
        return f"130 with {told.output[-300:]}"
    content, whole = told.content, truth.content
    if content.get("status") != "interrupted" and content.get("steps") == whole.get("steps"):
        finished = {key for key in whole if content.get(key) not in (whole[key], None)}
        return f"130, and {finished} differ" if finished else None
    for low, high in ((content, whole), (whole, content)):
        lower, upper = low.get("gain_lower"), high.get("gain_upper")
        if lower is not None and upper is not None and lower > upper + SLACK:
            return f"the gain is between {content['gain_lower']} and {content['gain_upper']}"
    return None


def moments(calls: Calls, number: int, chance: random.Random) -> list[int]:
    """First calls of functions, since each is another place, and as many others."""
    firsts = sorted(calls.first.values())
    chosen = chance.sample(firsts, min(number - number // 2, len(firsts)))
    others = chance.sample(range(1, calls.count + 1), min(number // 2, calls.count))
    return sorted({*chosen, *others})


def commands(place: Path, short: bool) -> list[list[str]]:
    """The commands, whose files are made here; the first ones are the short form."""
    saved = {}
    for name, words in (
        ("small", ["circle:4"]),
        ("table", ["jao:9"]),
        ("large", ["circle:11"]),
        ("timed", ["circle:4", "--criterion", "finite", "--horizon", "4"]),
        ("greedy", ["circle:24", "--planner", "alp"]),
    )[: 1 if short else None]:
        saved[name] = str(place / f"{name}.npz")
        answer(["plan", *words, "--out", saved[name]])
    few = [
        ["act", "circle:4", saved["small"], "--state", "..."],
        ["evaluate", "circle:4", saved["small"]],
        ["plan", "circle:4"],
    ]
    if short:
        return [[*words, "--json"] for words in few]
    every = [
        *few,
        ["doctor"],
        *(
            [command, problem, saved[policy], *end]
            for command, end in (("act", ["--state", "..."]), ("evaluate", []))
            for problem, policy in (
                ("jao:9", "table"),
                ("circle:11", "large"),
                ("circle:4", "timed"),
            )
        ),
        ["act", "circle:24", saved["greedy"], "--state", "..."],
        ["evaluate", "circle:24", saved["greedy"], "--steps", "640"],
        ["plan", "circle:10"],
        ["plan", "jao:9"],
        ["plan", "large-diameter"],
        ["plan", "circle:4", "--criterion", "discounted"],
        ["plan", "circle:4", "--criterion", "finite", "--horizon", "4"],
        ["plan", "circle:4", "--planner", "alp"],
        ["plan", "circle:4", "--planner", "alp", "--method", "factored"],
        ["plan", "circle:6", "--planner", "alp", "--basis", "pairs", "--criterion", "average"],
        ["plan", "riverswim:2", "--planner", "span", "--span-budget", "3"],
        ["measure", "circle:2"],
        ["measure", "riverswim:1"],
        ["learn", "circle:3", "--learner", "psrl", "--steps", "1200"],
        ["show", "circle:3"],
    ]
    return [[*words, "--json"] for words in every]


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    chance = random.Random(seed)
    failures: list[str] = []
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        asked = commands(Path(folder), scale < SHORT)
        for words in asked:
            answer(words)  # imports, compiled code and caches
            truth = answer(words)
            number = max(2, round(MOMENTS * scale / len(asked)))
            for at in moments(truth.calls, number, chance):
                told = answer(words, at)
                tried += 1
                what = wrong(told, truth)
                if what is not None:
                    failures.append(f"{' '.join(words)}, call {at} ({told.calls.where}): {what}")
    yield Trial("Ctrl-C at chosen calls: 130, or the true answer", tried, tuple(failures))
