"""`fmdp serve`: killed, terminated and starved of disk at random moments, and gone on with.

A client drives a simulated system through a server, with questions, observations, bursts of them,
and lines that are none. The server dies at a random moment; the next one is asked how much it
knows, and the client goes on from there. What has to hold: every observation that was acknowledged
is known, none is known that was never sent, every action is the one that an undisturbed server
gave, and in the end the learner is the same, byte for byte. Servers are forked, which reaches
moments that are milliseconds apart, and real programs, killed from their first instruction on.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")  # children are forked: no threads before

import fmdp
from fmdp.service import Service
from fmdp.service.lines import serve
from torture.trial import Trial

MODEL = "circle:3"
STEPS = 400
LEARNERS = (
    "psrl",
    "dorl",
    "fsrl",
    "random",
    "frmax",
    "psrl,episodes=tsde",
)
FORKED, PROGRAMS, TERMINATED, FULL = 400, 100, 60, 60
"""At scale 1."""
SECONDS = 600.0
"""How long one answer may take."""


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory(prefix="fmdp-torture-") as text:
        folder = Path(text)
        references = References(folder / "calm")
        for number, (name, full, one) in enumerate(
            [
                ("serve killed -9 at random moments, forked", FORKED, forked),
                ("serve killed -9 at random moments, the program", PROGRAMS, programs),
                ("serve sent SIGTERM or Ctrl-C at random moments", TERMINATED, terminated),
                ("serve on a full disk, and gone on with", FULL, full_disk),
            ]
        ):
            luck = random.Random(f"{seed} serve {number}")
            own = folder / str(number)
            own.mkdir()
            tried = max(1, round(full * scale))
            yield Trial(name, tried, tuple(one(luck, tried, own, references)))
            shutil.rmtree(own)


# ---- the system and its client ------------------------------------------------------------------


def asks(step: int) -> bool:
    """Whether the action of this step is asked for; else it is the client's own, in a burst."""
    return random.Random(f"asks {step // 5}").random() < 0.6


def own_action(step: int) -> list[int]:
    return [random.Random(f"own {step}").randrange(4)]


def after(step: int, state: list[int], action: list[int]) -> list[int]:
    """Three machines; all chance is in the number of the step."""
    chance = random.Random(f"{step} {state} {action}")
    return [int(machine == action[0] or chance.random() < 0.8) for machine in range(3)]


class Wrong(Exception):
    """What the server did and may not do."""


class Died(Exception):
    """The server is gone."""


@dataclass
class Client:
    """What the system's side knows, over all lives of its server."""

    sent: int = 0
    acknowledged: int = 0
    states: list[list[int]] = field(default_factory=lambda: [[1, 1, 1]])
    """Before each step, as far as it is known."""
    actions: dict[int, list[int]] = field(default_factory=dict)
    """Of the steps that were asked."""

    def life(self, server: Server, luck: random.Random) -> bool:
        """Go on with this server until all steps are done (True) or it dies."""
        try:
            known = self.ask(server, {"status": True})["status"]["observed"]
            if not self.acknowledged <= known <= self.sent:
                raise Wrong(f"{known} known of {self.acknowledged} acknowledged, {self.sent} sent")
            self.acknowledged = known
            while known < STEPS:
                if luck.random() < 0.1:
                    self.ask_nonsense(server, luck)
                burst = [known]
                while not asks(burst[-1] + 1) and burst[-1] + 1 < STEPS and luck.random() < 0.9:
                    burst.append(burst[-1] + 1)
                self.play(server, burst)
                known = burst[-1] + 1
            return True
        except Died:
            return False

    def play(self, server: Server, burst: list[int]) -> None:
        """The action of the first of these steps may be asked for; they are told in one go."""
        first = burst[0]
        if asks(first):
            action = self.ask(server, {"state": self.states[first]})["action"]
            if self.actions.setdefault(first, action) != action:
                raise Wrong(f"step {first}: {action} after {self.actions[first]}")
        lines = []
        for step in burst:
            state = self.states[step]
            action = self.actions[step] if asks(step) else own_action(step)
            following = after(step, state, action)
            if len(self.states) == step + 1:
                self.states.append(following)
            told = {"state": state, "action": action, "next_state": following}
            lines.append({"observe": {**told, "rewards": state}})
        self.sent = max(self.sent, burst[-1] + 1)
        server.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        for step in burst:
            answer = server.answer()
            if answer.get("observed") != step + 1:
                raise Full if "cannot be written" in answer.get("error", "") else Wrong(str(answer))
            self.acknowledged = step + 1

    def ask(self, server: Server, request: dict[str, Any]) -> dict[str, Any]:
        server.write(json.dumps(request).encode() + b"\n")
        answer = server.answer()
        if "error" in answer:
            raise Full if "cannot be written" in answer["error"] else Wrong(str(answer))
        return answer

    def ask_nonsense(self, server: Server, luck: random.Random) -> None:
        line = luck.choice(
            [b"", b"{", b"[1]", b'{"state": [1, 1, 9]}', b'{"observe": {}}', b"\xff"]
        )
        server.write(line + b"\n")
        if server.answer().keys() != {"error"}:
            raise Wrong(f"{line!r} was taken")


class Full(Died):
    """An event was refused because there is no room for it."""


class Server:
    """A process that serves, with an end to its life."""

    def __init__(
        self, pid: int, down: int, up: int, seconds: float, number: int = signal.SIGKILL
    ) -> None:
        self.pid, self.down, self.up = pid, down, up
        self.number = number
        self.ends = time.monotonic() + seconds
        self.killed = False
        self.held = b""
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        try:
            os.write(self.down, data)
        except BrokenPipeError:
            raise Died from None

    def answer(self) -> dict[str, Any]:
        started = time.monotonic()
        while not self.lines:
            self._kill_in_time()
            left = max(0.0, self.ends - time.monotonic()) if not self.killed else 0.5
            if select.select([self.up], [], [], min(left, 0.5))[0]:
                data = os.read(self.up, 1 << 16)
                if not data:
                    raise Died
                *whole, self.held = (self.held + data).split(b"\n")
                self.lines += whole
            if time.monotonic() - started > SECONDS:
                raise Wrong("no answer")
        found: dict[str, Any] = json.loads(self.lines.pop(0))
        return found

    def _kill_in_time(self) -> None:
        if not self.killed and time.monotonic() >= self.ends:
            os.kill(self.pid, self.number)
            self.killed = True

    def end(self) -> int:
        """Close its input and wait; its status as a shell has it."""
        os.close(self.down)
        started = time.monotonic()
        while True:
            self._kill_in_time()
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                break
            if time.monotonic() - started > SECONDS:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                os.close(self.up)
                raise Wrong("did not end")
            time.sleep(0.001)
        os.close(self.up)
        return os.waitstatus_to_exitcode(status)


def fork(learner: str, folder: Path, every: int, seconds: float, room: int | None = None) -> Server:
    of_child, down = os.pipe()
    up, to_parent = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(down)
            os.close(up)
            if room is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))

            def write(data: bytes) -> None:
                while data:
                    data = data[os.write(to_parent, data) :]

            model = fmdp.problem(MODEL)
            with Service(model, learner, folder, snapshot_every=every, say=str) as service:
                serve(service, of_child, write)
            os._exit(0)
        except fmdp.FmdpError:
            os._exit(2)
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
    os.close(of_child)
    os.close(to_parent)
    return Server(pid, down, up, seconds)


def program(
    learner: str, folder: Path, every: int, seconds: float, number: int = signal.SIGKILL
) -> Server:
    of_child, down = os.pipe()
    up, to_parent = os.pipe()
    words = [sys.executable, "-m", "fmdp", "serve", "--model", MODEL, "--learner", learner]
    with (folder.parent / f"{folder.name}.err").open("ab") as said:
        process = subprocess.Popen(
            [*words, "--dir", str(folder), "--snapshot-every", str(every)],
            stdin=of_child,
            stdout=to_parent,
            stderr=said,
        )
    process.returncode = 0  # waited for here, and not by its destructor
    os.close(of_child)
    os.close(to_parent)
    return Server(process.pid, down, up, seconds, number)


@dataclass(frozen=True)
class Reference:
    actions: dict[int, list[int]]
    agent: bytes


def agent_of(folder: Path) -> bytes:
    (path,) = folder.glob("agent-*.npz")
    return path.read_bytes()


def undisturbed(learner: str, folder: Path) -> Reference:
    own = folder / learner.replace(",", "-")
    client = Client()
    server = fork(learner, own, 10_000, 10 * SECONDS)
    assert client.life(server, random.Random(0))
    assert server.end() == 0
    return Reference(client.actions, agent_of(own))


class References(dict[str, Reference]):
    """What an undisturbed server comes to, found when it is asked for."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __missing__(self, learner: str) -> Reference:
        self[learner] = undisturbed(learner, self.folder)
        return self[learner]


Start = Callable[[str, Path, int, float], Server]


def lives(
    luck: random.Random,
    kills: int,
    folder: Path,
    references: dict[str, Reference],
    start: Start,
    seconds: Callable[[], float],
    statuses: tuple[int, ...],
) -> Iterator[str]:
    """Services that live through kills, until there were as many."""
    done = number = 0
    while done < kills:
        number += 1
        own, learner = folder / str(number), luck.choice(LEARNERS)
        client, over = Client(), False
        while not over:
            # The last life is let be, so that every service comes to its end.
            time_left = seconds() if done < kills else 10 * SECONDS
            server = start(learner, own, luck.choice((7, 50, 10_000)), time_left)
            try:
                over = client.life(server, luck)
            except Wrong as wrong:
                yield f"{learner}: {wrong} ({own})"
                done += 1
                server.ends = 0.0
                with contextlib.suppress(Wrong):
                    server.end()
                break
            status = server.end()
            done += server.killed
            if status not in (statuses if server.killed else (0,)):
                yield f"{learner}: ended with {status} after {client.acknowledged} ({own})"
                break
            over = over and status == 0
        else:
            if client.actions != references[learner].actions:
                yield f"{learner}: other actions than an undisturbed one ({own})"
            elif agent_of(own) != references[learner].agent:
                yield f"{learner}: another learner than an undisturbed one ({own})"
            elif litter(own):
                yield f"left behind: {litter(own)}"
        shutil.rmtree(own, ignore_errors=True)


def litter(folder: Path) -> list[str]:
    kinds = ("agent-", "journal-", "service.json")
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith("log-"))
    if len(found) == 3 and all(
        name.startswith(kind) for name, kind in zip(found, kinds, strict=True)
    ):
        return []
    return found


def forked(
    luck: random.Random, count: int, folder: Path, references: dict[str, Reference]
) -> Iterator[str]:
    yield from lives(
        luck, count, folder, references, fork, lambda: luck.random() ** 2 * 0.4, (0, -9)
    )


def programs(
    luck: random.Random, count: int, folder: Path, references: dict[str, Reference]
) -> Iterator[str]:
    yield from lives(luck, count, folder, references, program, lambda: luck.random() * 6.0, (0, -9))


def terminated(
    luck: random.Random, count: int, folder: Path, references: dict[str, Reference]
) -> Iterator[str]:
    def start(learner: str, own: Path, every: int, seconds: float) -> Server:
        number = luck.choice((signal.SIGTERM, signal.SIGINT))
        return program(learner, own, every, seconds, number)

    # While the interpreter itself starts, the answer to a signal is Python's.
    statuses = (0, 130, 143, -signal.SIGTERM, -signal.SIGINT, 1)
    yield from lives(luck, count, folder, references, start, lambda: luck.random() * 6.0, statuses)


def full_disk(
    luck: random.Random, count: int, folder: Path, references: dict[str, Reference]
) -> Iterator[str]:
    """Files may grow to a random size; then there is room again."""
    for number in range(count):
        own, learner = folder / str(number), luck.choice(LEARNERS)
        client, over = Client(), False
        for room in (luck.randrange(60_000), luck.randrange(60_000), None):
            server = fork(learner, own, luck.choice((20, 10_000)), 10 * SECONDS, room)
            try:
                over = client.life(server, luck)
            except Wrong as wrong:
                yield f"{learner}: {wrong} ({own})"
            status = server.end()
            if status not in ((0, 2) if room is not None else (0,)):
                yield f"{learner}: ended with {status} ({own})"
            if over:
                break
        if not over or client.actions != references[learner].actions:
            yield f"{learner}: other actions than an undisturbed one ({own})"
        elif room is None and agent_of(own) != references[learner].agent:
            yield f"{learner}: another learner than an undisturbed one ({own})"
        shutil.rmtree(own, ignore_errors=True)
