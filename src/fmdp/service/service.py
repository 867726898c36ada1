"""Service: a learner on a live system, whose memory survives any death of its process.

An agent is a function of what it was told and asked, in order: learners draw from one generator,
plans start warm from earlier plans, and both happen where `act` has to decide or draw. So the
events are the observations and those acts (`Agent.changed_by_act`); any other act leaves the agent
as it is and is no event. The folder of a service holds

    service.json      what is served: the model by its hash, the learner with its settings, the seed
    agent-N.npz       the agent after N events
    journal-N         the events after those (journal.py)
    lock              held by the one process that serves

and the agent is what the newest snapshot gives when the events of its journal are done again, to
the last bit. A snapshot is one new name: its empty journal is made first, and the old pair goes
last, so at every moment the newest snapshot with its journal is the whole truth. Plans that look at
the clock (max_seconds) cannot be made again: such a decision is kept by a snapshot at once.

Cost: an observation is a line of some hundred bytes and an fsync, which several may share. A
restart does again what came since the last snapshot: at most `snapshot_every` events, and about
half a minute of planning.
"""

from __future__ import annotations

import json
import os
import re
import time
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from fmdp import __version__
from fmdp._base.archives import reason
from fmdp._base.interrupts import held
from fmdp._base.parameters import Integer, quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, did_you_mean
from fmdp.learning.agent import Agent
from fmdp.learning.encoding import planner_header
from fmdp.learning.files import load_agent
from fmdp.learning.follow import learner_of
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.io.files import locked, parse_json, path_of, read_text, write_atomically
from fmdp.model.naming import Assignment, Value
from fmdp.service.journal import Journal

FORMAT = "fmdp-service"
VERSION = 1
SNAPSHOT_EVERY = 10_000
"""Events between two snapshots, where nothing else is said."""
_SECONDS_TO_DO_AGAIN = 30.0
_IDENTITY = "service.json"
_SUM = "crc32"
"""Its checksum, a key of its own; folders of before have none."""
_LOCK = "lock"
_NAME = re.compile(r"(agent|journal)-([0-9]{1,18})(?:\.npz)?")
_OWNER = "a service"
_SEED = Integer("seed", 0, "seed of the learner", low=0)
_EVERY = Integer("snapshot_every", SNAPSHOT_EVERY, "events between two snapshots", low=1)


class Service:
    """A learner that acts and observes, and whose memory is on disk before it answers.

    A context manager: leaving it makes a snapshot and gives the folder free.

    Parameters
    ----------
    model
        Of the system, whose structure and names count; learners are not told its tables.
    learner
        Such as fmdp.PSRL(c=0.1), or its text: "psrl,c=0.1".
    directory
        The folder of the service; made where it is not there. One that was served before is gone
        on with, by the same model, learner and seed alone.
    seed
        Of the learner.
    snapshot_every
        Events after which the whole learner is saved and the journal begins anew.
    say
        Told, in one line, what an operator should know and is no error; a warning by default.

    Raises
    ------
    InvalidParameter
        Where the folder belongs to another model, learner or seed.
    FileProblem
        Where another process serves there, or the folder is damaged or cannot be written.
    """

    def __init__(
        self,
        model: FactoredMDP,
        learner: Learner | str,
        directory: str | os.PathLike[str],
        seed: int = 0,
        *,
        snapshot_every: int = SNAPSHOT_EVERY,
        say: Callable[[str], None] | None = None,
    ) -> None:
        check_model(model, _OWNER)
        found = learner_of(learner, _OWNER)
        if found is None:
            raise InvalidParameter(f"{_OWNER} needs a learner; got {quoted(learner)}")
        self.directory = path_of(directory, "a service")
        self._every = _EVERY.check(snapshot_every, _OWNER)
        self._say = warnings.warn if say is None else say
        self._model = model
        self._learner = found
        self._seed = _SEED.check(seed, _OWNER)
        self._unwritten: list[Any] = []  # acts that happened while the disk was full
        self._unsaved = False  # a decision by the clock that no snapshot has yet
        self._whole = True  # the agent in memory is what is on disk, with the unwritten acts
        self._seconds = 0.0  # of work that a restart would do again
        self._snapshot_seconds = 0.0
        self._snapshot = 0
        self._due = self._every  # events after which the next snapshot is made
        self._agent: Agent
        self._journal: Journal
        self._lock: int | None = _take(self.directory)
        try:
            self._open()
        except BaseException:
            self._give_back()
            raise

    # ---- what is served -------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The learner's run: to look at. What it is told past the service is not on disk."""
        return self._agent

    @property
    def structure(self) -> Structure:
        """Of the system."""
        return self._model.structure

    @property
    def broken(self) -> bool:
        """Whether the disk failed in a way that only a new start can go on from."""
        return self._journal.broken

    def status(self) -> dict[str, Any]:
        """Return how far it has come, and what it plans with.

        Returns
        -------
        dict[str, Any]
            Observations, episodes, plans, events and the last snapshot as numbers; the name of the
            planner, why it is not the exact one, and the predicted seconds of a plan where plans
            are rationed.
        """
        agent = self._agent
        planner = agent.planner
        return {
            "planner": None if planner is None else getattr(planner, "name", repr(planner)),
            "planner_reason": agent.planner_reason,
            "plan_seconds": float(f"{agent.plan_seconds:.2g}") or None,
            "observed": agent.steps,
            "episodes": agent.episodes,
            "planner_calls": agent.planner_calls,
            "unconverged_plans": agent.unconverged_plans,
            "events": self._journal.number,
            "snapshot": self._snapshot,
        }

    # ---- asking and telling ---------------------------------------------------------------------

    def act(self, state: Assignment, *, commit: bool = True) -> tuple[int, ...] | dict[str, Value]:
        """The action to take in this state; asking again gives the same answer.

        Parameters
        ----------
        state
            One value for each state variable, by name or by number.
        commit
            Whether it is made durable here; without, `commit` has to be called before the answer is
            used.

        Returns
        -------
        tuple[int, ...] | dict[str, str | int | float]
            Positions where the state is a sequence; where it is a mapping or a text, the value of
            each action variable by its name, as the value was listed.

        Raises
        ------
        InvalidParameter
            Where it is no state of the structure.
        FileProblem
            Where it cannot be written down; the same may be asked again.
        """
        self._settle()
        checked = self.structure.check_state(state)
        agent = self._agent
        action = self._changing_act(checked) if agent.changed_by_act else agent.act(checked)
        if commit:
            self.commit()
            self.tidy()
        answer: tuple[int, ...] | dict[str, Value] = self.structure.naming.answer(action, state)
        return answer

    def _changing_act(self, state: tuple[int, ...]) -> tuple[int, ...]:
        """Decide or draw, then write down that it was done: where deciding fails nothing was."""
        started = time.perf_counter()
        self._whole = False
        action = self._agent.act(state)
        if getattr(self._agent.planner, "max_seconds", None) is not None:
            self._unsaved = True
        else:
            self._unwritten.append({"act": list(state)})
        self._whole = True
        self._seconds += time.perf_counter() - started
        self._write_down()
        return action

    def observe(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
        *,
        commit: bool = True,
    ) -> int:
        """What came of an action, the learner's own or another's; on disk when this returns.

        Parameters
        ----------
        state, action, next_state
            One value for each variable, by name or by number.
        rewards
            One number for each reward factor, in their order or by name.
        commit
            Whether it is made durable here; without, `commit` has to be called before anybody is
            told.

        Returns
        -------
        int
            How many observations there are now, with this one.

        Raises
        ------
        InvalidParameter
            Where it is no step of the structure; nothing was counted.
        FileProblem
            Where it cannot be written down; nothing was counted.
        """
        self._settle()
        s = self.structure
        step = (
            s.check_state(state),
            s.check_action(action),
            _rewards(rewards, s),
            s.check_state(next_state, "next state"),
        )
        self._agent.statistics.check(*step)
        self._write_down()
        started = time.perf_counter()
        place = self._journal.place()
        self._whole = False  # until it is in both, however it ends
        try:
            self._journal.append([{"observe": step}])
        except FileProblem:
            self._whole = True
            raise
        try:
            self._agent.observe(*step)
        except Exception:
            self._journal.withdraw(*place)
            raise
        self._whole = True
        self._seconds += time.perf_counter() - started
        if commit:
            self.commit()
            self.tidy()
        return self._agent.steps

    def _write_down(self) -> None:
        """What has happened and is in no file yet, because there was no room for it."""
        if self._unsaved:
            self.snapshot()
        if self._unwritten:
            self._journal.append(self._unwritten)
            self._unwritten = []

    def commit(self) -> None:
        """Return when everything so far is on disk.

        Raises
        ------
        FileProblem
            Where that cannot be had; nothing since the last commit may be acknowledged.
        """
        self._journal.commit()

    # ---- snapshots ------------------------------------------------------------------------------

    def tidy(self) -> None:
        """A snapshot, if one is due; one that cannot be made is said, and the journal goes on."""
        events = self._journal.number - self._snapshot
        long = max(_SECONDS_TO_DO_AGAIN, 20.0 * self._snapshot_seconds)
        if events < self._due and self._seconds < long:
            return
        try:
            self.snapshot()
        except FmdpError as error:
            # Not again at every event: a learner that cannot be saved will not be able to later.
            self._due, self._seconds = 2 * max(events, self._every), 0.0
            self._say(f"no snapshot, so the journal grows and a restart takes longer: {error}")

    def snapshot(self) -> None:
        """Save the whole learner, durable when this returns, and begin a new journal.

        Raises
        ------
        FmdpError
            Where it cannot be saved; nothing is lost, and the old journal goes on.
        """
        self._settle()
        number = self._journal.number
        if number == self._snapshot and not self._unsaved and not self._unwritten:
            return
        started = time.perf_counter()
        with held():  # between its new name and the new journal nobody may interrupt
            self._journal.commit()
            if number == self._snapshot:
                self._agent.save(self._path("agent", number))
            else:
                self._turn_over(number)
        self._unwritten, self._unsaved = [], False
        self._seconds, self._due = 0.0, self._every
        self._snapshot_seconds = time.perf_counter() - started

    def _turn_over(self, number: int) -> None:
        journal = Journal.create(self._path("journal", number), number)
        target = self._path("agent", number)
        try:
            self._agent.save(target)
        except BaseException:
            journal.close()
            # Not the newest snapshot while the old journal goes on.
            for path in (target, journal.path):
                path.unlink(missing_ok=True)
            raise
        self._journal.close()
        self._journal, self._snapshot = journal, number
        self._clear_old()

    def _clear_old(self) -> None:
        for path in self.directory.iterdir():
            name = _NAME.fullmatch(path.name)
            if name is not None and int(name[2]) != self._snapshot:
                try:
                    path.unlink()
                except OSError as error:
                    self._say(f"{path}: is old and cannot be removed ({reason(error)})")

    def _path(self, kind: str, number: int) -> Path:
        return self.directory / f"{kind}-{number}{'.npz' if kind == 'agent' else ''}"

    # ---- opening and closing --------------------------------------------------------------------

    def _open(self) -> None:
        asked = _identity(self._model, self._learner, self._seed)
        path = self.directory / _IDENTITY
        if path.exists():
            _refuse_other(_held_identity(path), asked, self.directory)
        else:
            _refuse_foreign(self.directory)
            Journal.create(self._path("journal", 0), 0).close()
            self._learner.start(self._model, self._seed).save(self._path("agent", 0))
            known = {**asked, "fmdp": __version__}
            known[_SUM] = _sum_of(known)
            write_atomically(path, json.dumps(known, indent=1) + "\n")
        self._restore()
        self._clear_old()

    def _settle(self) -> None:
        """After something that was cut off in the middle, memory is made what is on disk."""
        if self._lock is None:
            raise FileProblem(f"{self.directory}: this service is closed")
        if self.broken:
            raise FileProblem(f"{self._journal.path}: has failed; a new start reads what is there")
        if not self._whole:
            self._journal.close()
            self._restore()

    def _restore(self) -> None:
        """The agent of the newest snapshot, and what the journal says, once more."""
        numbers = [
            int(name[2])
            for name in (_NAME.fullmatch(path.name) for path in self.directory.iterdir())
            if name is not None and name[1] == "agent"
        ]
        if not numbers:
            raise FileProblem(f"{self.directory}: has no snapshot agent-N.npz of its learner")
        started = time.perf_counter()
        self._snapshot = max(numbers)
        agent = load_agent(self._path("agent", self._snapshot))
        if agent.structure != self.structure:
            raise FileProblem(
                f"{self._path('agent', self._snapshot)}: is of another structure than the model"
            )
        if agent.learner.knows_model:
            agent.model = self._model
        path = self._path("journal", self._snapshot)
        self._journal, events, torn = Journal.reopen(path, self._snapshot)
        try:
            for place, event in enumerate(events):
                _do_again(agent, event, f"{path}, line {place + 2}")
        except BaseException:
            self._journal.close()
            raise
        self._agent = agent
        self._unwritten, self._unsaved, self._whole = [], False, True
        self._seconds = time.perf_counter() - started
        if torn:
            self._say(
                f"{path}: the last line was cut off and is dropped ({torn} bytes); nothing that "
                f"was acknowledged is lost"
            )

    def close(self, *, snapshot: bool = True) -> None:
        """Give the folder free; everything acknowledged is there, with or without a snapshot.

        Parameters
        ----------
        snapshot
            Whether the whole learner is saved first, so that the next start has nothing to do
            again.
        """
        if self._lock is None:
            return
        try:
            if snapshot and self._whole and not self.broken:
                try:
                    self.snapshot()
                except FmdpError as error:
                    self._say(f"no snapshot at the end, the journal has everything: {error}")
        finally:
            self._journal.close()
            self._give_back()

    def _give_back(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Service:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _take(directory: Path) -> int:
    """The folder, made where it is not there, with its lock."""
    try:
        if directory.exists() and not directory.is_dir():
            raise FileProblem(f"{directory}: is no folder; must be one, or a new name")
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / _IDENTITY).exists():
            _refuse_foreign(directory)  # before anything is left there
        descriptor = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except FileProblem:
        raise
    except (OSError, ValueError) as error:
        raise FileProblem(f"{directory}: cannot be written ({reason(error)})") from None
    if not locked(descriptor):
        os.close(descriptor)
        raise FileProblem(
            f"{directory}: another process serves there; must be one at a time for a folder"
        )
    return descriptor


def _identity(model: FactoredMDP, learner: Learner, seed: int) -> dict[str, Any]:
    """What a folder remembers, in JSON's own types."""
    settings = learner.setting_texts(model.structure)
    planner = planner_header(getattr(learner, "planner", None))
    found = {
        "format": FORMAT,
        "version": VERSION,
        "model": model.content_hash,
        "learner": LEARNERS.place(type(learner)),
        "settings": settings,
        "planner": planner,
        "seed": seed,
    }
    return dict(json.loads(json.dumps(found)))


def _sum_of(known: Mapping[str, Any]) -> str:
    """The checksum of what a folder remembers, whatever the order and the blanks."""
    told = {key: value for key, value in known.items() if key != _SUM}
    return f"{zlib.crc32(json.dumps(told, sort_keys=True).encode()):08x}"


def _held_identity(path: Path) -> dict[str, Any]:
    found = parse_json(read_text(path, "what a service serves"), str(path))
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise FileProblem(f"{path}: is not what a service remembers: its format is not {FORMAT}")
    if found.get(_SUM, _sum_of(found)) != _sum_of(found) or not set(_OTHER) <= set(found):
        raise FileProblem(f"{path}: is damaged: what it says and its checksum do not agree")
    if found.get("version") != VERSION:
        raise FileProblem(
            f"{path}: has service version {quoted(found.get('version'))}; this fmdp reads {VERSION}"
        )
    return found


def _refuse_other(there: Mapping[str, Any], asked: Mapping[str, Any], directory: Path) -> None:
    for key in _OTHER:
        if there.get(key) == asked[key]:
            continue
        before, now = _told(there.get(key), asked[key])
        raise InvalidParameter(
            f"{directory} serves with {_OTHER[key]}: it has {before}; got {now} (another folder "
            f"begins anew)"
        )


_OTHER = {
    "model": "another model",
    "learner": "another learner",
    "settings": "other settings of the learner",
    "planner": "another planner",
    "seed": "another seed",
}


def _told(before: Any, now: Any) -> tuple[str, str]:
    """Two values for an error; of settings those that differ."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        key = keys[0]
        if isinstance(before.get(key), Mapping) and isinstance(now.get(key), Mapping):
            return _told(before[key], now[key])
        return f"{key}={before.get(key)}", f"{key}={now.get(key)}"
    if isinstance(before, Mapping) or isinstance(now, Mapping):
        return tuple("none" if one is None else str(one.get("name")) for one in (before, now))  # type: ignore[return-value]
    short = [one[:12] if isinstance(one, str) and len(one) == 64 else one for one in (before, now)]
    return str(short[0]), str(short[1])


def _refuse_foreign(directory: Path) -> None:
    """A new service begins in an empty folder, or where its first moments were cut off."""
    for path in directory.iterdir():
        name = path.name
        begun = name in (_LOCK, "agent-0.npz") or name.startswith(".fmdp-")
        begun = begun or (name == "journal-0" and path.read_bytes().count(b"\n") <= 1)
        if not begun:
            raise FileProblem(
                f"{directory}: holds {name!r} and no {_IDENTITY}; must be a new or empty folder, "
                f"or that of a service"
            )


def _do_again(agent: Agent, event: Any, where: str) -> None:
    try:
        if "act" in event:
            agent.act(tuple(event["act"]))
        else:
            state, action, rewards, next_state = event["observe"]
            agent.observe(tuple(state), tuple(action), tuple(rewards), tuple(next_state))
    except (FmdpError, LookupError, TypeError, ValueError) as error:
        raise FileProblem(f"{where}: cannot be done again: {error}") from None


def _rewards(rewards: Any, structure: Structure) -> tuple[float, ...]:
    names = structure.reward_names
    if isinstance(rewards, Mapping):
        for name in rewards:
            if name not in names:
                raise InvalidParameter(
                    f"no reward is called {quoted(name)}; must be "
                    f"{', '.join(names) or 'none'}{did_you_mean(str(name), names)}"
                )
        missing = [name for name in names if name not in rewards]
        if missing:
            raise InvalidParameter(
                f"rewards lack {missing[0]!r}; must have one for each of {', '.join(names)}"
            )
        rewards = [rewards[name] for name in names]
    listed = list(rewards) if hasattr(rewards, "tolist") else rewards
    if isinstance(listed, str) or not isinstance(listed, Sequence) or len(listed) != len(names):
        raise InvalidParameter(
            f"rewards must be {len(names)} numbers, or by name; got {quoted(rewards)}"
        )
    rewards = listed
    found = []
    for name, value in zip(names, rewards, strict=True):
        if isinstance(value, bool | str) or value is None:
            raise InvalidParameter(f"reward {name!r} must be a number; got {quoted(value)}")
        try:
            found.append(float(value))
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(
                f"reward {name!r} must be a finite number; got {quoted(value)}"
            ) from None
    return tuple(found)
