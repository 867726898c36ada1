"""A policy that the ranks of an MPI job hold in parts, and the files that they write."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import pack, reason
from fmdp._base.divided import write_part
from fmdp.errors import FileProblem, FmdpError
from fmdp.model import Structure
from fmdp.model.constraints import plain
from fmdp.model.io.files import path_of, write_atomically
from fmdp.planning.distributed.backup import RanksBackup
from fmdp.planning.policies.archive import FORMAT, PARTS, PARTS_SUFFIX, VERSION, parts_folder
from fmdp.planning.policies.parts import TABLES


class PolicyParts:
    """The part of a policy that one rank holds; `save` is called by all ranks together."""

    def __init__(
        self,
        backup: RanksBackup,
        structure: Structure,
        tables: NDArray[np.unsignedinteger[Any]],
        stages: Sequence[int] | None,
        discount: float = 1.0,
    ) -> None:
        """`tables` are [tables, states of this rank], `stages` the table of every step of a
        horizon, None for a policy that is the same at every step."""
        self._ranks, self._known = backup.ranks, backup.share.known
        self._first = backup.share.first_action
        self._structure, self._stages, self._discount = structure, stages, discount
        self.tables = tables

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a policy file that `load_policy` reads, and a folder with the tables beside it.

        Parameters
        ----------
        path
            The file, which all ranks can reach.  An existing file is replaced in one step, after
            all parts are written; its folder is then deleted.

        Raises
        ------
        FileProblem
            If a part cannot be written.
        """
        target = path_of(path, "a policy file").resolve()  # parts lie beside the file, not a link
        ranks = self._ranks
        folder = ranks.from_first(lambda: _new_folder(target))
        try:
            ranks.each(lambda: write_part(folder, TABLES, self.tables, self._first))
            ranks.from_first(lambda: self._finish(target, folder))
        except FmdpError:
            ranks.from_first(lambda: shutil.rmtree(folder, ignore_errors=True))
            raise

    def _finish(self, target: Path, folder: Path) -> None:
        before = parts_folder(target)
        structure = self._structure
        header = {
            "format": FORMAT,
            "version": VERSION,
            "kind": PARTS,
            "state_sizes": structure.state_sizes,
            "action_sizes": structure.action_sizes,
            "names": structure.naming.header(),
            "constraints": [plain(constraint) for constraint in structure.constraints],
            "folder": folder.name,
            "order": [*self._known.by, *self._known.others],
            "stages": None if self._stages is None else list(self._stages),
            "discount": self._discount,
        }
        write_atomically(target, pack(header, {}))
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)


def _new_folder(target: Path) -> Path:
    folder = target.with_name(f"{target.name}{PARTS_SUFFIX}{secrets.token_hex(4)}")
    try:
        folder.mkdir()
    except OSError as error:
        raise FileProblem(f"{folder}: cannot be made ({reason(error)})") from None
    return folder
