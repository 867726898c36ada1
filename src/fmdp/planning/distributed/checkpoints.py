"""Checkpoints of a plan over ranks: everything that the rest of the plan depends on, in a folder.

A resumed plan continues with the same bits, on any number of ranks.  Arrays are written in parts to
a new subfolder.  Then the file `checkpoint.json`, which names the subfolder, is replaced in one
step, and the old subfolder is deleted: whenever a job is killed, one whole checkpoint is left.
Nothing else in the folder is touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import read_file, reason
from fmdp._base.divided import DividedArray, write_part
from fmdp.errors import FileProblem
from fmdp.model.io.files import write_atomically
from fmdp.planning.distributed.ranks import Ranks

FORMAT = "fmdp-checkpoint"
VERSION = 1
SECONDS = 600.0
"""Default time between two checkpoints."""
_FILE = "checkpoint.json"
_ARRAYS = "arrays-"
"""Prefix of the subfolders with arrays; no other subfolder is deleted."""

Part = tuple[NDArray[Any], int]
"""A rank's part of an array, and the index of its first entry along the last axis."""


class Checkpoints:
    """The checkpoint of one plan, in one folder; all ranks call its methods together.

    Parameters
    ----------
    folder
        Where it is; made if missing.
    ranks
        The ranks that plan together.
    identity
        What identifies the plan: the model, the settings that affect its numbers, the division.
    every
        Least time between two checkpoints in seconds.
    """

    def __init__(self, folder: Path, ranks: Ranks, identity: str, every: float = SECONDS) -> None:
        self.folder, self._ranks, self._identity, self._every = folder, ranks, identity, every
        ranks.from_first(lambda: _require_writable(folder))
        self._written = ranks.clock()
        self.count = 0
        """Checkpoints written so far."""

    @property
    def due(self) -> bool:
        return self._ranks.clock() - self._written >= self._every

    def write(self, content: Mapping[str, Any], arrays: Mapping[str, Part]) -> None:
        """Replace the checkpoint; raise FileProblem on all ranks if one cannot write its part."""
        ranks, name = self._ranks, self._ranks.from_first(lambda: _ARRAYS + secrets.token_hex(8))
        target = self.folder / name

        def write_own() -> dict[str, int]:
            checksums: dict[str, int] = {}
            for label, (part, first) in arrays.items():
                checksums |= write_part(target, label, part, first)
            return checksums

        def finish() -> None:
            header = {"format": FORMAT, "version": VERSION, "plan": self._identity}
            header |= {"digest": _digest(content), "arrays": name, "checksums": checksums}
            text = json.dumps({**header, "content": content})
            write_atomically(self.folder / _FILE, text)
            self._delete_arrays(name)

        try:
            ranks.from_first(lambda: _make(target))
            checksums: dict[str, int] = {}
            for written in ranks.all_of(ranks.each(write_own)):
                checksums |= written
            ranks.from_first(finish)
        except FileProblem:
            ranks.from_first(lambda: shutil.rmtree(target, ignore_errors=True))
            raise
        self._written = ranks.clock()
        self.count += 1

    def read(self) -> Mapping[str, Any] | None:
        """Return the content of the checkpoint, None if there is none; raise FileProblem if it
        is damaged or belongs to another plan."""
        file = self.folder / _FILE

        def load() -> Any:
            if not file.exists():
                return None
            try:
                header = json.loads(read_file(file, "a checkpoint"))
                known = header["format"], header["version"]
                plan, arrays, content = header["plan"], header["arrays"], header["content"]
                whole = header["digest"] == _digest(content) and Path(arrays).name == arrays
                checksums = dict(header["checksums"])
            except (ValueError, KeyError, TypeError):
                raise FileProblem(f"{file}: is damaged, or no checkpoint of fmdp") from None
            if known != (FORMAT, VERSION):
                raise FileProblem(f"{file}: is no checkpoint of this version of fmdp")
            if not whole:
                raise FileProblem(f"{file}: is damaged")
            if plan != self._identity:
                raise FileProblem(
                    f"{file}: is the checkpoint of a plan with another model or other settings; "
                    f"give another --checkpoint folder, or delete this one"
                )
            return arrays, checksums, content

        loaded = self._ranks.from_first(load)
        if loaded is None:
            return None
        self._arrays = self.folder / loaded[0]
        self._checksums: Mapping[str, int] = loaded[1]
        content: Mapping[str, Any] = loaded[2]
        return content

    def array(self, name: str, count: int, first: int, end: int, kind: str = "f") -> NDArray[Any]:
        """Return a range of an array of the checkpoint that was read."""

        def read() -> NDArray[Any]:
            return DividedArray(self._arrays, name, count, kind, self._checksums).read(first, end)

        return self._ranks.each(read)

    def delete(self) -> None:
        """Delete the checkpoint, which is of no use after the plan is finished, and its folder if
        that is then empty."""

        def remove() -> None:
            with suppress(OSError):  # what cannot be deleted must not cost the plan
                (self.folder / _FILE).unlink(missing_ok=True)
                self._delete_arrays()
                self.folder.rmdir()

        self._ranks.from_first(remove)

    def _delete_arrays(self, kept: str | None = None) -> None:
        for old in self.folder.glob(f"{_ARRAYS}*"):
            if old.name != kept:
                shutil.rmtree(old, ignore_errors=True)


def _require_writable(folder: Path) -> None:
    """Make a folder; raise FileProblem now, not after the first hours, if it cannot be used."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise FileProblem(f"{folder}: cannot be a checkpoint folder (it is a file)") from None
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be a checkpoint folder ({reason(error)})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise FileProblem(f"{folder}: cannot be a checkpoint folder (it is not writable)")


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be made ({reason(error)})") from None


def exact_text(number: float) -> str:
    """Return a text from which `float.fromhex` makes the same number, infinite ones included."""
    return float(np.float64(number)).hex()
