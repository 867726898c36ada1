"""Kills and signals at random moments of the commands.

Signals (Ctrl-C and SIGTERM, once and twice) and kills come at a random moment of a command, most of
them in children of a warm parent, some in processes of their own, from the first line of the
program on.  After a signal the program must end by itself with 0, 1, 2, 130 or 143 and no
traceback, soon; whatever it was to write is there whole or not at all, and after a signal what is
there can be gone on with.

A command that writes is one function in TASKS; one that answers while it runs, as `fmdp serve`,
gets a module of its own beside this one, with `rounds(seed, scale)`, and is found by it.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torture.nursery import Fresh, Nursery, Running
from torture.trial import SHORT, Trial

ALLOWED = (0, 1, 2, 130, 143)
SECONDS = 600.0
"""How long a child may take altogether, on a machine that has much else to do."""
FRESH = 8
"""One in so many is a process of its own, which can be met while it imports."""

KILLS, SIGNALS = 120, 320
"""At scale 1."""

SPEC = """
steps = 200
seeds = 2
problems = ["circle:2", "riverswim:4"]
learners = ["random", {name = "psrl", set = {c = 0.5}}]
"""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        prepare(place)
        made = [make(place) for make in (TASKS if scale >= SHORT else (plan, learn, convert))]
        with Nursery(place, warm=[task.words for task in made]) as nursery:
            tasks = [task.measured(nursery) for task in made]
            one, other = (signal.SIGINT,), (signal.SIGTERM,)
            for name, number, signals, times in (
                ("kill -9 at random moments", KILLS, (signal.SIGKILL,), 1),
                ("Ctrl-C at random moments", SIGNALS / 4, one, 1),
                ("SIGTERM at random moments", SIGNALS / 4, other, 1),
                ("two signals at random moments", SIGNALS / 2, one + other, 2),
            ):
                tried = max(1, round(number * scale))
                yield disturbed(name, nursery, tasks, chance, tried, signals, times)


# ---- kills and signals --------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """A command with the file that it writes, and a check of what is there afterwards."""

    words: tuple[str, ...]
    target: Path
    check: Callable[[Path], object]
    whole: bool = True
    """Whether the target is all that is written, and can be put there beforehand."""
    seconds: tuple[float, float] = (0.0, 0.0)
    """How long it takes undisturbed, by the clock and by the processor."""
    content: bytes = b""
    """What it writes."""

    def measured(self, nursery: Nursery) -> Task:
        started = time.perf_counter()
        ended = nursery.run(self.words)
        clock = time.perf_counter() - started
        if ended is None or ended.wrong(0):
            raise RuntimeError(f"{self.words}: {ended}")
        self.check(self.target)
        content = self.target.read_bytes()
        seconds = clock, min(clock, ended.seconds)
        return Task(self.words, self.target, self.check, self.whole, seconds, content)


def prepare(place: Path) -> None:
    """The files that tasks and argument lists read."""
    import fmdp

    (place / "spec.toml").write_text(SPEC)
    fmdp.save(fmdp.problem("circle:3"), place / "model.json")
    found = fmdp.plan(fmdp.problem("circle:3")).policy
    assert found is not None
    found.save(place / "policy.npz")


def plan(place: Path) -> Task:
    import fmdp

    structure = fmdp.problem("circle:10").structure
    out = place / "planned.npz"
    words = ("plan", "circle:10", "--tolerance", "1e-10", "--out", str(out))
    return Task(words, out, lambda path: fmdp.load_policy(path, structure))


def plan_approximately(place: Path) -> Task:
    import fmdp

    structure = fmdp.problem("circle:30").structure
    out = place / "approximate.npz"
    words = ("plan", "circle:30", "--planner", "alp,basis=pairs", "--out", str(out))
    return Task(words, out, lambda path: fmdp.load_policy(path, structure))


def learn(place: Path) -> Task:
    out = place / "learner.npz"
    words = ("learn", "circle:4", "--learner", "psrl", "--steps", "3000", "--out", str(out))
    return Task(words, out, goes_on)


def learn_step_by_step(place: Path) -> Task:
    out = place / "fsrl.npz"
    words = ("learn", "circle:3", "--learner", "fsrl", "--steps", "400", "--out", str(out))
    return Task(words, out, goes_on)


def goes_on(path: Path) -> None:
    """A learner is not only whole: it learns on."""
    import fmdp

    agent = fmdp.load_agent(path)
    sizes = "circle:4" if len(agent.structure.state_sizes) == 4 else "circle:3"
    fmdp.simulate(fmdp.problem(sizes), agent, 20)


def convert(place: Path) -> Task:
    import fmdp

    target = place / "converted.json"
    return Task(("convert", "circle:40", str(target)), target, fmdp.load)


def report(place: Path) -> Task:
    from fmdp.experiments.executors import InThisProcess
    from fmdp.experiments.spec import read_spec
    from fmdp.experiments.sweep import run_sweep

    store, page = place / "store", place / "report"
    words = ("report", str(store), "--out", str(page), "--json")
    run_sweep(read_spec(place / "spec.toml"), store, workers=InThisProcess())

    def check(path: Path) -> None:
        path.read_text(encoding="utf-8").index("</html>")

    return Task(words, page / "index.html", check, whole=False)


TASKS = (plan, plan_approximately, learn, learn_step_by_step, convert, report)


def disturbed(
    name: str,
    nursery: Nursery,
    tasks: Sequence[Task],
    chance: random.Random,
    tried: int,
    signals: Sequence[signal.Signals],
    times: int,
) -> Trial:
    failures = []
    for number in range(tried):
        # Of every command as much, but for the report, whose figures take longer than all others.
        quick = [one for one in tasks if one.whole]
        task = tasks[-1] if number % 12 == 11 else quick[number % len(quick)]
        fresh = number % FRESH == FRESH - 1
        wrong = disturbed_once(nursery, task, chance, signals, times, fresh)
        if wrong is not None:
            failures.append(f"{' '.join(task.words)}: {wrong}")
    return Trial(name, tried, tuple(failures))


def disturbed_once(
    nursery: Nursery,
    task: Task,
    chance: random.Random,
    signals: Sequence[signal.Signals],
    times: int,
    fresh: bool,
) -> str | None:
    old = task.whole and chance.random() < 0.5
    if old:
        task.target.write_bytes(task.content)
    elif task.whole:
        task.target.unlink(missing_ok=True)
    elif chance.random() < 0.5:
        shutil.rmtree(task.target.parent, ignore_errors=True)
    running: Running = Fresh(task.words) if fresh else nursery.start(task.words)
    time.sleep((chance.choice(task.seconds) + 0.6 * fresh) * chance.random())
    running.send(chance.choice(signals))
    for _ in range(times - 1):
        time.sleep(chance.choice([0.0, 0.001, 0.02, 0.3]) * chance.random())
        running.send(chance.choice(signals))
    ended = running.wait(SECONDS)
    if ended is None:
        return f"did not end within {SECONDS:.0f} s"
    # Killed by SIGTERM before it could listen, or after it had ended: for a shell that is 143.
    killed = (-signal.SIGTERM, *(-one for one in signals if one is signal.SIGKILL))
    wrong = ended.wrong(*ALLOWED, *killed)
    if wrong is not None:
        return wrong
    if "--json" in task.words and ended.status == 0:
        json.loads(ended.output)
    if task.target.exists():
        try:
            task.check(task.target)
        except Exception as error:
            return f"{task.target.name} is not whole: {error!r}"
    elif old:
        return f"{task.target.name} was there and is gone"
    return None
