"""The observations of a service: read from its folder, exported as a log, moved to another model.

Journals are kept as `log-N` when a snapshot replaces them, so the folder has every observation from
the first on. Folders of earlier versions have lost those before their last snapshot; `missing` says
how many events that were.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.learning.files import agent_from
from fmdp.model import Structure
from fmdp.model.io.files import path_of, write_atomically
from fmdp.service.folder import Folder
from fmdp.service.journal import Journal
from fmdp.service.service import NAME, Service, stored_identity

Step = tuple[Sequence[int], Sequence[int], Sequence[float], Sequence[int]]


@dataclass(frozen=True, eq=False)
class Observations:
    """The observations in the folder of a service, in their order.

    Attributes
    ----------
    structure
        The structure of the system.
    steps
        State, action, rewards and next state of every observation, by position.
    missing
        Number of events before the first one that the folder still has.
    """

    structure: Structure
    steps: list[Step]
    missing: int


def observations(directory: str | os.PathLike[str]) -> Observations:
    """Return the observations in `directory`, the folder of a service that does not run.

    Raises
    ------
    FileProblem
        If it is not the folder of a service, a process serves there, or it is damaged.
    """
    path = path_of(directory, "a service")
    if not path.is_dir():
        raise FileProblem(f"{path}: no such folder; must be that of a service")
    folder = Folder(path)
    try:
        stored_identity(folder)
        names = [parts for name in folder.names() if (parts := NAME.fullmatch(name))]
        snapshots = [int(parts[2]) for parts in names if parts[1] == "agent"]
        if not snapshots:
            raise FileProblem(f"{path}: has no snapshot agent-N.npz of its learner")
        newest = max(snapshots)
        name = f"agent-{newest}.npz"
        agent = agent_from(folder.read(name, "a learner file"), str(path / name))
        kept = sorted(
            (int(parts[2]), parts[0])
            for parts in names
            if parts[1] != "agent" and int(parts[2]) <= newest
        )
        steps: list[Step] = []
        number = kept[0][0]
        for after, file in kept:
            if after != number:
                raise FileProblem(
                    f"{path / file}: begins after event {after:,}; must begin after {number:,}"
                )
            journal = Journal.reopen(folder, file, after)
            try:
                steps += [event["observe"] for event in journal.events() if "observe" in event]
            finally:
                journal.close()
            number = journal.number
        return Observations(agent.structure, steps, kept[0][0])
    finally:
        folder.close()


def export_log(directory: str | os.PathLike[str], out: str | os.PathLike[str]) -> Observations:
    """Write the observations of a service as a CSV file that `fmdp.fit` reads, and return them.

    `directory` is its folder, in which no server may run, and `out` the path of the file.

    Raises
    ------
    FileProblem
        If the folder cannot be read or the file cannot be written.
    """
    stored = observations(directory)
    s = stored.structure
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    following = [f"next_{name}" for name in s.state_names]
    writer.writerow([*s.state_names, *s.action_names, *s.reward_names, *following])
    for state, action, rewards, after in stored.steps:
        writer.writerow(
            [
                *_names(s.state_values, state),
                *_names(s.action_values, action),
                *map(repr, rewards),
                *_names(s.state_values, after),
            ]
        )
    write_atomically(out, text.getvalue())
    return stored


def _names(values: Sequence[Sequence[str]], positions: Sequence[int]) -> list[str]:
    return [names[position] for names, position in zip(values, positions, strict=True)]


def migrate(service: Service, directory: str | os.PathLike[str]) -> tuple[str, ...]:
    """Show a new service the observations of another one, whose model may differ.

    Observations are translated by the names of variables, values and rewards, so that scopes and
    alike rows may change freely. The other folder stays as it is. Everything is on disk on return.

    Parameters
    ----------
    service
        A service without observations.
    directory
        Folder of the service whose observations are taken; it must not run.

    Returns
    -------
    tuple[str, ...]
        What was kept and what was dropped, one line each.

    Raises
    ------
    InvalidParameter
        If the service has observations, or a variable or reward is new, so that no observation
        says what it was.
    FileProblem
        If the folder cannot be read.
    """
    if service.agent.steps:
        raise InvalidParameter(
            f"{service.directory} has {service.agent.steps:,} observations; must be a new folder"
        )
    stored = observations(directory)
    old, new = stored.structure, service.structure
    for kind in ("state_names", "action_names", "reward_names"):
        missing = [name for name in getattr(new, kind) if name not in getattr(old, kind)]
        if missing:
            raise InvalidParameter(
                f"{directory}: its observations have no {kind[:-6]} {missing[0]!r}, which the "
                f"model has"
            )
    kept = 0
    dropped: dict[str, int] = {}
    for state, action, rewards, after in stored.steps:
        step: list[Any] = [
            _translated(old.state_names, old.state_values, state, new.state_names),
            _translated(old.action_names, old.action_values, action, new.action_names),
            {n: r for n, r in zip(old.reward_names, rewards, strict=True) if n in new.reward_names},
            _translated(old.state_names, old.state_values, after, new.state_names),
        ]
        try:
            service.observe(*step, commit=False)
            kept += 1
        except FileProblem:
            raise
        except FmdpError as error:
            dropped[str(error)] = dropped.get(str(error), 0) + 1
    service.commit()
    lines = [f"kept {kept:,} of {len(stored.steps):,} observations"]
    for kind in ("state_names", "action_names", "reward_names"):
        gone = [name for name in getattr(old, kind) if name not in getattr(new, kind)]
        lines += [f"dropped {kind[:-6]} {name!r}, which the model does not have" for name in gone]
    lines += [f"dropped {number:,} observations: {why}" for why, number in dropped.items()]
    if stored.missing:
        lines.append(f"dropped {stored.missing:,} earlier events, which {directory} has not kept")
    lines.append("dropped the decisions and plans of the old learner; the new one makes its own")
    return tuple(lines)


def _translated(
    names: Sequence[str],
    values: Sequence[Sequence[str]],
    positions: Sequence[int],
    wanted: Sequence[str],
) -> dict[str, str]:
    return {
        name: text
        for name, text in zip(names, _names(values, positions), strict=True)
        if name in wanted
    }
