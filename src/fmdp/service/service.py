"""A learner on a live system, whose memory survives the death of its process.

An agent is a function of its observations and of the acts at which it decides or draws, in order:
learners draw from one generator, and plans start from earlier plans. So these are the events
(`Agent.changed_by_act`); any other act does not change the agent. The folder of a service holds

    service.json      the model by its hash, the learner with its settings, the seed
    agent-N.npz       the agent after N events
    journal-N         the events after those (journal.py)
    log-N             an older journal, kept for its observations (observations.py)

and the agent is the newest snapshot with the events of its journal repeated, to the last bit. The
empty journal of a snapshot is created before it, and the old pair is removed last, so at every
moment the newest snapshot with its journal is complete. All of them are used through a descriptor
of the folder, which the one process that serves has locked (folder.py), and no answer is given
after one of them was removed or replaced. Plans that depend on the clock
(max_seconds) cannot be repeated: such a decision is kept by a snapshot at once.

Cost: an observation is a line of some hundred bytes and an fsync, which several may share. A
restart repeats the work since the last snapshot: at most `snapshot_every` events, and about half a
minute of planning.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fmdp import __version__
from fmdp._base.archives import reason
from fmdp._base.foreign_code import is_own
from fmdp._base.interrupts import held
from fmdp._base.parameters import Integer, quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter, did_you_mean
from fmdp.learning.agent import Agent, agent_content
from fmdp.learning.encoding import planner_header
from fmdp.learning.files import agent_from
from fmdp.learning.follow import learner_of
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.io.files import parse_json, path_of
from fmdp.model.naming import Assignment, Value
from fmdp.service.differences import structure_difference
from fmdp.service.folder import Folder
from fmdp.service.journal import Journal

FORMAT = "fmdp-service"
VERSION = 1
SNAPSHOT_EVERY = 10_000
"""Default number of events between two snapshots."""
_SECONDS_TO_REPLAY = 30.0
"""Seconds of work after which a snapshot is made, so that a restart takes no longer."""
_IDENTITY = "service.json"
_CHECKSUM = "crc32"
"""Key of the checksum in service.json; older folders have none."""
MOST_TEXT = 500
"""Most characters of an error of a learner that are passed on."""
NAME = re.compile(r"(agent|journal|log)-([0-9]{1,18})(?:\.npz)?")
_OWNER = "a service"
_SEED = Integer("seed", 0, "seed of the learner", low=0)
_EVERY = Integer("snapshot_every", SNAPSHOT_EVERY, "events between two snapshots", low=1)


class Service:
    """A learner that acts and observes, and whose memory is on disk before it answers.

    A context manager: leaving it makes a snapshot and releases the folder.

    Parameters
    ----------
    model
        Model of the system. Only its structure and names are used; learners do not see its tables.
    learner
        A learner such as fmdp.PSRL(c=0.1), or its text: "psrl,c=0.1".
    directory
        Folder of the service; created if missing, otherwise resumed, which needs the same model,
        learner and seed.
    seed
        Seed of the learner.
    snapshot_every
        Number of events after which the learner is saved and a new journal begins.
    say
        Called with one line that an operator should know and that is no error; by default a
        warning.

    Raises
    ------
    InvalidParameter
        If the folder belongs to another model, learner or seed.
    FileProblem
        If another process serves there, or the folder is damaged or cannot be written.
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
        checked_learner = learner_of(learner, _OWNER)
        if checked_learner is None:
            raise InvalidParameter(f"{_OWNER} needs a learner; got {quoted(learner)}")
        self.directory = path_of(directory, "a service")
        self._every = _EVERY.check(snapshot_every, _OWNER)
        self._say = warnings.warn if say is None else say
        self._model = model
        self._learner = checked_learner
        self._seed = _SEED.check(seed, _OWNER)
        self._unwritten: list[Any] = []  # acts that happened while the disk was full
        self._unsaved = False  # a decision that depended on the clock and is in no snapshot yet
        self._whole = True  # the agent in memory equals the files plus the unwritten acts
        self._other_model = False  # the folder was begun with another model of this structure
        self._seconds = 0.0  # seconds of work that a restart would repeat
        self._snapshot_seconds = 0.0
        self._snapshot = 0
        self._due = self._every  # events after which the next snapshot is made
        self._agent: Agent
        self._reported: set[str] = set()  # variables whose findings the operator was told about
        self._journal: Journal
        self._folder = Folder(self.directory)
        try:
            self._open()
        except BaseException:
            self._folder.close()
            raise

    # ---- state ----------------------------------------------------------------------------------

    @property
    def agent(self) -> Agent:
        """The agent, for inspection. Observations that bypass the service are not on disk."""
        return self._agent

    @property
    def structure(self) -> Structure:
        """Structure of the system."""
        return self._model.structure

    @property
    def broken(self) -> bool:
        """Whether the disk failed so that only a restart can continue."""
        return self._journal.failure != ""

    def status(self) -> dict[str, Any]:
        """Return the counters of the service and its planner.

        Returns
        -------
        dict[str, Any]
            Numbers of observations, episodes, plans and events, and of the last snapshot; the name
            of the planner, the reason why it is not the exact one, and the predicted seconds of a
            plan if plans are rationed; how a basis has grown (null if there is none that may
            grow); and as scope_findings the dependences that the scopes do not
            explain, one object for each variable that has some.
        """
        if not self._whole and not self.broken:
            self._recover()  # after an error of the learner, memory may be ahead of the files
        agent = self._agent
        planner = agent.planner
        return {
            "planner": None if planner is None else getattr(planner, "name", repr(planner)),
            "planner_reason": agent.planner_reason or _planner_reason(agent),
            "plan_seconds": float(f"{agent.plan_seconds:.2g}") or None,
            "observed": agent.steps,
            "episodes": agent.episodes,
            "planner_calls": agent.planner_calls,
            "unconverged_plans": agent.unconverged_plans,
            "events": self._journal.number,
            "snapshot": self._snapshot,
            "basis": agent.basis,
            "scope_findings": [finding._asdict() for finding in agent.scope_findings],
        }

    # ---- acting and observing -------------------------------------------------------------------

    def act(self, state: Assignment, *, commit: bool = True) -> tuple[int, ...] | dict[str, Value]:
        """Return the action to take in this state; repeated calls give the same answer.

        Parameters
        ----------
        state
            One value for each state variable, by name or by number.
        commit
            Whether to make it durable here; otherwise `commit` must be called before the answer is
            used.

        Returns
        -------
        tuple[int, ...] | dict[str, str | int | float]
            Positions if the state is a sequence; if it is a mapping or a text, the value of each
            action variable by name, as the value was listed.

        Raises
        ------
        InvalidParameter
            If it is not a state of the structure.
        FileProblem
            If it cannot be written to disk; the call may be repeated.
        """
        self._recover()
        checked = self.structure.check_state(state)
        agent = self._agent
        action = self._changing_act(checked) if agent.changed_by_act else agent.act(checked)
        if commit:
            self.commit()
            self.tidy()
        answer: tuple[int, ...] | dict[str, Value] = self.structure.naming.answer(action, state)
        return answer

    def _changing_act(self, state: tuple[int, ...]) -> tuple[int, ...]:
        """Decide or draw, then record it; if deciding fails, nothing is recorded."""
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
        """Record the outcome of an action, the learner's or another's; on disk on return.

        Parameters
        ----------
        state, action, next_state
            One value for each variable, by name or by number.
        rewards
            One number for each reward factor, in their order or by name.
        commit
            Whether to make it durable here; otherwise `commit` must be called before it is
            acknowledged.

        Returns
        -------
        int
            Number of observations, including this one.

        Raises
        ------
        InvalidParameter
            If it is not a step of the structure; nothing was counted.
        FileProblem
            If it cannot be written to disk; nothing was counted.
        """
        self._recover()
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
        self._whole = False  # until both journal and agent have it
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
        self._report_findings()
        return self._agent.steps

    def _report_findings(self) -> None:
        """Tell the operator about new findings, once for each variable."""
        for finding in self._agent.scope_findings:
            if finding.variable not in self._reported:
                self._reported.add(finding.variable)
                self._say(f"the model may be wrong: {finding}")

    def _write_down(self) -> None:
        """Write events that a full disk has kept from the files."""
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
            If that fails, or a file of the folder was removed or replaced; nothing since the last
            commit may be acknowledged.
        """
        self._refuse_closed()
        self._journal.commit()
        try:
            self._folder.check()
        except FileProblem as error:
            raise self._journal.fail(str(error)) from None

    # ---- snapshots ------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Make a snapshot if one is due; if it fails, say so and continue the journal."""
        events = self._journal.number - self._snapshot
        long = max(_SECONDS_TO_REPLAY, 20.0 * self._snapshot_seconds)
        if events < self._due and self._seconds < long:
            return
        try:
            self.snapshot()
        except FmdpError as error:
            if self.broken:
                return  # the next call raises this error; what was acknowledged before stays so
            # Do not try at every event: a learner that cannot be saved now cannot be saved later.
            self._due, self._seconds = 2 * max(events, self._every), 0.0
            self._say(f"no snapshot, so the journal grows and a restart takes longer: {error}")

    def snapshot(self) -> None:
        """Save the learner, durable on return, and begin a new journal.

        Raises
        ------
        FmdpError
            If it cannot be saved; nothing is lost, and the old journal continues.
        """
        self._recover()
        self.commit()
        number = self._journal.number
        if number == self._snapshot and not self._unsaved and not self._unwritten:
            return
        started = time.perf_counter()
        with held():  # no interrupt between the new snapshot and the new journal
            if number == self._snapshot:
                self._folder.write(_agent(number), agent_content(self._agent))
                self._expect_files()
            else:
                self._turn_over(number)
        self._unwritten, self._unsaved = [], False
        self._seconds, self._due = 0.0, self._every
        self._snapshot_seconds = time.perf_counter() - started

    def _turn_over(self, number: int) -> None:
        journal = Journal.create(self._folder, _journal(number), number)
        try:
            self._folder.write(_agent(number), agent_content(self._agent))
        except BaseException:
            journal.close()
            # The old journal continues, so this must not become the newest snapshot.
            for name in (_agent(number), _journal(number)):
                with contextlib.suppress(FileNotFoundError):
                    self._folder.remove(name)
            self._expect_files()
            raise
        self._journal.close()
        self._journal, self._snapshot = journal, number
        self._expect_files()
        self._clear_old()

    def _expect_files(self) -> None:
        self._folder.expect(_IDENTITY, _agent(self._snapshot), _journal(self._snapshot))

    def _clear_old(self) -> None:
        for name in self._folder.names():
            parts = NAME.fullmatch(name)
            if parts is None or parts[1] == "log" or int(parts[2]) == self._snapshot:
                continue
            try:
                if parts[1] == "journal" and int(parts[2]) < self._snapshot:
                    self._folder.rename(name, f"log-{parts[2]}")
                else:
                    self._folder.remove(name)
            except OSError as error:
                path = self.directory / name
                self._say(f"{path}: is old and cannot be removed ({reason(error)})")

    # ---- opening and closing --------------------------------------------------------------------

    def _open(self) -> None:
        requested = _identity(self._model, self._learner, self._seed)
        folder = self._folder
        if _IDENTITY in folder.names():
            stored = stored_identity(folder)
            # Only learners that know the model or its rewards depend on more than the structure,
            # which `_restore` compares.
            self._other_model = stored["model"] != requested["model"]
            if not self._learner.knows_model:
                requested["model"] = stored["model"]
            _refuse_other(stored, requested, folder)
        else:
            _refuse_foreign(folder)
            Journal.create(folder, _journal(0), 0).close()
            agent = self._learner.start(self._model, self._seed)
            agent.test_scopes()
            folder.write(_agent(0), agent_content(agent))
            identity = {**requested, "fmdp": __version__}
            identity[_CHECKSUM] = _checksum(identity)
            folder.write(_IDENTITY, json.dumps(identity, indent=1).encode() + b"\n")
        self._restore()
        self._clear_old()

    def _recover(self) -> None:
        """Reload the agent from disk after an interrupted operation."""
        self._refuse_closed()
        if self.broken:
            raise FileProblem(self._journal.failure)
        if not self._whole:
            self._journal.close()
            self._restore()

    def _refuse_closed(self) -> None:
        if self._folder.closed:
            raise FileProblem(f"{self.directory}: this service is closed")

    def _restore(self) -> None:
        """Load the newest snapshot and repeat the events of its journal."""
        names = [NAME.fullmatch(name) for name in self._folder.names()]
        numbers = [int(parts[2]) for parts in names if parts is not None and parts[1] == "agent"]
        if not numbers:
            raise FileProblem(f"{self.directory}: has no snapshot agent-N.npz of its learner")
        started = time.perf_counter()
        self._snapshot = max(numbers)
        name = _agent(self._snapshot)
        path = self.directory / name
        agent = agent_from(self._folder.read(name, "a learner file"), str(path))
        if agent.structure != self.structure:
            raise InvalidParameter(
                f"{self.directory} serves with another model: "
                f"{structure_difference(agent.structure, self.structure)} (use another folder; "
                f"--migrate {self.directory} takes its observations there)"
            )
        if self._other_model and agent.statistics.known_rewards is not None:
            raise InvalidParameter(
                f"{self.directory} serves with another model, whose rewards the learner knows (use "
                f"another folder to start again)"
            )
        if agent.learner.knows_model:
            agent.model = self._model
        agent.test_scopes()  # the snapshot of an older version has no test yet
        self._journal = Journal.reopen(self._folder, _journal(self._snapshot), self._snapshot)
        try:
            for event in self._journal.events():
                _replay(agent, event, self._journal)
        except BaseException:
            self._journal.close()
            raise
        self._agent = agent
        self._reported = {finding.variable for finding in agent.scope_findings}
        self._expect_files()
        self._unwritten, self._unsaved, self._whole = [], False, True
        self._seconds = time.perf_counter() - started
        if self._journal.torn:
            self._say(
                f"{self._journal.path}: the last line was cut off and is dropped "
                f"({self._journal.torn} bytes); every event recorded as acknowledged is there"
            )

    def close(self, *, snapshot: bool = True) -> None:
        """Release the folder; everything acknowledged is on disk, with or without a snapshot.

        Parameters
        ----------
        snapshot
            Whether to save the learner first, so that the next start has nothing to repeat.

        Raises
        ------
        FileProblem
            If a file of the folder was removed or replaced, or the disk failed.
        """
        if self._folder.closed:
            return
        try:
            if snapshot and self._whole and not self.broken:
                try:
                    self.snapshot()
                except FmdpError as error:
                    if self.broken:
                        raise
                    self._say(f"no snapshot at the end, the journal has everything: {error}")
        finally:
            self._journal.close()
            self._folder.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _planner_reason(agent: Agent) -> str | None:
    """Return why an agent has its planner, if nothing prevented the exact one."""
    if agent.planner is None:
        return None
    if getattr(agent.learner, "planner", None) is not None:
        return "it was given"
    return "the learner's default for a model of this size"


def _agent(number: int) -> str:
    return f"agent-{number}.npz"


def _journal(number: int) -> str:
    return f"journal-{number}"


def _identity(model: FactoredMDP, learner: Learner, seed: int) -> dict[str, Any]:
    """Return the content of service.json, in JSON types."""
    settings = learner.setting_texts(model.structure)
    planner = planner_header(getattr(learner, "planner", None))
    identity = {
        "format": FORMAT,
        "version": VERSION,
        "model": model.content_hash,
        "learner": LEARNERS.place(type(learner)),
        "settings": settings,
        "planner": planner,
        "seed": seed,
    }
    return dict(json.loads(json.dumps(identity)))


def _checksum(identity: Mapping[str, Any]) -> str:
    """Return the checksum of service.json, independent of order and spaces."""
    content = {key: value for key, value in identity.items() if key != _CHECKSUM}
    return f"{zlib.crc32(json.dumps(content, sort_keys=True).encode()):08x}"


def stored_identity(folder: Folder) -> dict[str, Any]:
    path = folder.path / _IDENTITY
    content = folder.read(_IDENTITY, "what a service serves")
    identity = parse_json(content.decode(errors="replace"), str(path))
    if not isinstance(identity, dict) or identity.get("format") != FORMAT:
        raise FileProblem(f"{path}: is not what a service remembers: its format is not {FORMAT}")
    checksum = _checksum(identity)
    if identity.get(_CHECKSUM, checksum) != checksum or not set(_OTHER) <= set(identity):
        raise FileProblem(f"{path}: is damaged: what it says and its checksum do not agree")
    if identity.get("version") != VERSION:
        raise FileProblem(
            f"{path}: has service version {quoted(identity.get('version'))}; "
            f"this fmdp reads {VERSION}"
        )
    return identity


def _refuse_other(stored: Mapping[str, Any], requested: Mapping[str, Any], folder: Folder) -> None:
    for key in _OTHER:
        if stored.get(key) == requested[key]:
            continue
        before, now = _difference(stored.get(key), requested[key])
        raise InvalidParameter(
            f"{folder.path} serves with {_OTHER[key]}: it has {before}; got {now} (use "
            f"another folder to start again)"
        )


_OTHER = {
    "model": "another model",
    "learner": "another learner",
    "settings": "other settings of the learner",
    "planner": "another planner",
    "seed": "another seed",
}


def _difference(before: Any, now: Any) -> tuple[str, str]:
    """Return texts of two values; of settings, the first that differs."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        keys = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        key = keys[0]
        if isinstance(before.get(key), Mapping) and isinstance(now.get(key), Mapping):
            return _difference(before[key], now[key])
        return f"{key}={before.get(key)}", f"{key}={now.get(key)}"
    if isinstance(before, Mapping) or isinstance(now, Mapping):
        names = ["none" if value is None else str(value.get("name")) for value in (before, now)]
        return names[0], names[1]
    short = [v[:12] if isinstance(v, str) and len(v) == 64 else v for v in (before, now)]
    return str(short[0]), str(short[1])


def _refuse_foreign(folder: Folder) -> None:
    """Raise FileProblem unless the folder is empty or the first start there was cut off."""
    for name in folder.names():
        begun = name in ("lock", _agent(0)) or name.startswith(".fmdp-")
        begun = begun or (name == _journal(0) and folder.read(name, "a journal").count(b"\n") <= 1)
        if not begun:
            raise FileProblem(
                f"{folder.path}: holds {name!r} and no {_IDENTITY}; must be a new or empty "
                f"folder, or that of a service"
            )


@contextlib.contextmanager
def learner_errors(agent: Agent) -> Iterator[None]:
    """Turn any error of a learner or planner that is not fmdp's into one line that names it."""
    try:
        yield
    except FmdpError:
        raise
    except Exception as error:
        parts = (agent.learner, agent.planner, getattr(agent.learner, "policy", None))
        if all(is_own(type(part)) for part in parts if part is not None):
            raise
        text = " ".join(f"{type(error).__name__}: {error}".split())
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}, line {frame.lineno}"
        raise FmdpError(f"{agent.learner.owner()} failed: {text[:MOST_TEXT]} ({place})") from error


def _replay(agent: Agent, event: Any, journal: Journal) -> None:
    try:
        with learner_errors(agent):
            if "act" in event:
                agent.act(tuple(event["act"]))
            else:
                state, action, rewards, next_state = event["observe"]
                agent.observe(tuple(state), tuple(action), tuple(rewards), tuple(next_state))
    except (FmdpError, LookupError, TypeError, ValueError) as error:
        where = f"{journal.path}, event {journal.number}"
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
    numbers = []
    for name, value in zip(names, listed, strict=True):
        if isinstance(value, bool | str) or value is None:
            raise InvalidParameter(f"reward {name!r} must be a number; got {quoted(value)}")
        try:
            numbers.append(float(value))
        except (TypeError, ValueError, OverflowError):
            raise InvalidParameter(
                f"reward {name!r} must be a finite number; got {quoted(value)}"
            ) from None
    return tuple(numbers)
