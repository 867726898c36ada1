"""Anderson acceleration (planning/exact/acceleration.py) of vectors that ranks share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.planning.distributed.backup import RanksBackup
from fmdp.planning.distributed.checkpoints import exact_text
from fmdp.planning.exact.acceleration import KEPT, LEAST_KEPT, Anderson, block_borders, weigh

Index = NDArray[np.int64]


class RanksAnderson(Anderson):
    """Anderson's rule with sums over all ranks, taken cell by cell in an order that is always the
    same."""

    def __init__(self, backup: RanksBackup, kept: int, on_disk: bool = False) -> None:
        self._backup = backup
        starts = backup.share.cell_starts
        in_cell = block_borders(int(starts[1]))
        borders = (starts[:-1, None] + in_cell[None, :-1]).reshape(-1)
        borders = np.append(borders, starts[-1])
        unit = backup.structure.reward_unit
        super().__init__(
            backup.share.n_states, kept, backup.over, unit, on_disk=on_disk, borders=borders
        )

    def content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a checkpoint needs: numbers that all ranks have, and arrays of this rank."""
        used = min(self._used, self.kept)
        numbers = {
            "kept": self.kept,
            "used": self._used,
            "begun": self._begun,
            "restarts": self._restarts,
            "least": [exact_text(self._least), exact_text(self._least_ever)],
            "gram": [[exact_text(x) for x in row] for row in self._gram],
            "totals": [exact_text(x) for x in self._totals],
        }
        if not self._begun:
            return numbers, {}
        arrays = {"f": self._f, "g": self._g}
        return numbers, {**arrays, "df": self._df[:used], "dg": self._dg[:used]}

    def restore(
        self, numbers: Mapping[str, Any], read: Callable[[str], NDArray[np.float64]]
    ) -> None:
        """Set everything to the content of a checkpoint, whose arrays `read` returns by name."""
        number = float.fromhex
        self._used, self._begun = numbers["used"], numbers["begun"]
        self._restarts = numbers["restarts"]
        self._least, self._least_ever = map(number, numbers["least"])
        self._gram[:] = [[number(x) for x in row] for row in numbers["gram"]]
        self._totals[:] = [number(x) for x in numbers["totals"]]
        if self._begun:
            used = min(self._used, self.kept)
            self._f[:], self._g[:] = read("f"), read("g")
            self._df[:used], self._dg[:used] = read("df"), read("dg")

    def _weigh(self, slot: int, count: int) -> None:
        backup = self._backup
        kept = self._sums.shape[2]
        n_cells = len(backup.share.cell_starts) - 1
        by_cell = self._sums.reshape(n_cells, -1, 3, kept).sum(axis=1)
        counts = [
            len(backup.share.cells.pieces_of(rank)) * 3 * kept for rank in range(backup.ranks.size)
        ]
        sums = backup.ranks.gather(by_cell.reshape(-1), counts).reshape(-1, 3, kept)
        system = (self._gram, self._totals, self._system, self._weights)
        weigh(sums, slot, count, backup.n_states, *system)


def acceleration_over_ranks(backup: RanksBackup, on_disk: bool) -> RanksAnderson | None:
    """Return an acceleration with as many differences as fit on all ranks; None if too few."""
    if on_disk:
        return RanksAnderson(backup, KEPT, on_disk)
    room = backup.memory_limit - backup.predicted_bytes
    n_states = int(backup.largest(float(backup.share.n_states)))
    kept = min(KEPT, (room // n_states - 2 * 8) // (2 * 4))
    return None if kept < LEAST_KEPT else RanksAnderson(backup, kept)
