"""Checkpoints of a plan over ranks: everything that the rest of the plan depends on, in a folder.

A resumed plan continues with the same bits, on any number of ranks.  Arrays are written in parts to
a new subfolder.  Then the file `checkpoint.json`, which names the subfolder, is replaced in one
step, and the old subfolder is deleted: whenever a job is killed, one whole checkpoint is left.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Mapping
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

Part = tuple[NDArray[Any], int]
"""A rank's part of an array, and the index of its first entry along the last axis."""


class Checkpoints:
    """The checkpoint of one plan, in one folder; all ranks call its methods together.

    Parameters
    ----------
    folder
        Where it is; made when the first checkpoint is written.
    ranks
        The ranks that plan together.
    identity
        What identifies the plan: the model, the settings that affect its numbers, the division.
    every
        Least time between two checkpoints in seconds.
    """

    def __init__(self, folder: Path, ranks: Ranks, identity: str, every: float = SECONDS) -> None:
        self._folder, self._ranks, self._identity, self._every = folder, ranks, identity, every
        self._written = ranks.clock()
        self.count = 0
        """Checkpoints written so far."""

    @property
    def due(self) -> bool:
        return self._ranks.clock() - self._written >= self._every

    def write(self, content: Mapping[str, Any], arrays: Mapping[str, Part]) -> None:
        """Replace the checkpoint; raise FileProblem on all ranks if one cannot write its part."""
        ranks, name = self._ranks, self._ranks.from_first(lambda: secrets.token_hex(8))
        target = self._folder / name

        def write_own() -> None:
            for label, (part, first) in arrays.items():
                write_part(target, label, part, first)

        def finish() -> None:
            header = {"format": FORMAT, "version": VERSION, "plan": self._identity}
            text = json.dumps({**header, "arrays": name, "content": content})
            write_atomically(self._folder / _FILE, text)
            for old in self._folder.iterdir():
                if old.is_dir() and old.name != name:
                    shutil.rmtree(old, ignore_errors=True)

        try:
            ranks.from_first(lambda: _make(target))
            ranks.together(write_own)
            ranks.from_first(finish)
        except FileProblem:
            ranks.from_first(lambda: shutil.rmtree(target, ignore_errors=True))
            raise
        self._written = ranks.clock()
        self.count += 1

    def read(self) -> Mapping[str, Any] | None:
        """Return the content of the checkpoint, None if there is none; raise FileProblem if it
        belongs to another plan."""
        file = self._folder / _FILE

        def load() -> Any:
            if not file.exists():
                return None
            try:
                header = json.loads(read_file(file, "a checkpoint"))
                known = header["format"], header["version"]
                plan, arrays, content = header["plan"], header["arrays"], header["content"]
            except (ValueError, KeyError, TypeError):
                known, plan, arrays, content = ("", 0), "", "", None
            if known != (FORMAT, VERSION) or Path(str(arrays)).name != arrays:
                raise FileProblem(f"{file}: is no checkpoint of this version of fmdp")
            if plan != self._identity:
                raise FileProblem(
                    f"{file}: is the checkpoint of a plan with another model or other settings; "
                    f"give another --checkpoint folder, or delete this one"
                )
            return arrays, content

        found = self._ranks.from_first(load)
        if found is None:
            return None
        self._arrays = self._folder / found[0]
        content: Mapping[str, Any] = found[1]
        return content

    def array(self, name: str, count: int, first: int, end: int, kind: str = "f") -> NDArray[Any]:
        """Return a range of an array of the checkpoint that was read."""
        own: list[NDArray[Any]] = []

        def read() -> None:
            own.append(DividedArray(self._arrays, name, count, kind).read(first, end))

        self._ranks.together(read)
        return own[0]

    def delete(self) -> None:
        """Delete the checkpoint, which is of no use after the plan is finished."""

        def remove() -> None:
            if (self._folder / _FILE).exists():
                shutil.rmtree(self._folder, ignore_errors=True)

        self._ranks.from_first(remove)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be made ({reason(error)})") from None


def exact_text(number: float) -> str:
    """Return a text from which `float.fromhex` makes the same number, infinite ones included."""
    return float(np.float64(number)).hex()
