"""The share of one rank in a plan: what it holds, sends and needs, known before arrays are made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.layout import volume
from fmdp.planning.distributed.cut import Cut
from fmdp.planning.distributed.exchange import Division, Redistribution

Index = NDArray[np.int64]


@dataclass(frozen=True)
class RankShare:
    """The share of one rank."""

    cut: Cut
    size: int
    """Number of ranks."""
    rank: int

    @cached_property
    def cells(self) -> Division:
        """How vectors are divided."""
        return Division(self.cut.spread, self.cut.cell_order, self._sizes, self.size)

    @cached_property
    def known(self) -> Division:
        """How L h is divided before it is given back, and how actions are."""
        return Division(self.cut.known, self.cut.others, self._sizes, self.size)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.cut.layout.structure.state_sizes

    @property
    def n_states(self) -> int:
        """States whose values this rank holds."""
        return self.cells.count(self.rank)

    @property
    def n_actions(self) -> int:
        """States whose actions this rank holds."""
        return self.known.count(self.rank)

    @property
    def first_state(self) -> int:
        """The index of its first value, in the order in which cells follow each other."""
        return self.cells.pieces_of(self.rank).start * self.cells.piece_size

    @property
    def first_action(self) -> int:
        """The index of its first action, in the order in which joint values of `known` follow."""
        return self.known.pieces_of(self.rank).start * self.known.piece_size

    @cached_property
    def cell_starts(self) -> Index:
        """[own cells + 1]: where the cells of this rank begin in its vectors, and the end."""
        own = len(self.cells.pieces_of(self.rank))
        return np.arange(own + 1, dtype=np.int64) * self.cells.piece_size

    @cached_property
    def n_later(self) -> int:
        """Joint values of the variables of the later groups: numbers in T for one known value."""
        return volume(self.cut.later, self._sizes)

    @property
    def run_size(self) -> int:
        """Numbers in T for one known value and one cell."""
        return self.n_later // self.cut.n_cells

    @cached_property
    def sent_counts(self) -> list[int]:
        """Numbers of T that this rank sends to each rank."""
        own = len(self.cells.pieces_of(self.rank)) * self.run_size
        return [len(self.known.pieces_of(rank)) * own for rank in range(self.size)]

    @cached_property
    def received_counts(self) -> list[int]:
        """Numbers of T that this rank receives from each rank."""
        own = len(self.known.pieces_of(self.rank)) * self.run_size
        return [len(self.cells.pieces_of(rank)) * own for rank in range(self.size)]

    @property
    def buffer_sizes(self) -> tuple[int, int]:
        """Numbers in the buffers of what is sent and received: T, or a vector in another order."""
        least = max(self.n_states, self.n_actions)
        return max(sum(self.sent_counts), least), max(sum(self.received_counts), least)

    @property
    def bytes_between(self) -> int:
        """Bytes that this rank sends to others between the halves of one sweep."""
        return 8 * self.cut.n_classes * (sum(self.sent_counts) - self.sent_counts[self.rank])

    @property
    def bytes_back(self) -> int:
        """Bytes that this rank sends to others when L h is given back."""
        return Redistribution(self.known, self.cells, self.rank).bytes_sent

    @property
    def bytes_needed(self) -> int:
        """Bytes of vectors, buffers, programs and tables; without those of acceleration."""
        cut = self.cut
        first, later = cut.first_layout.groups, cut.layout.groups[cut.first :]
        numbers = 3 * self.n_states + self.n_actions  # h, L h, scratch; L h by `known`
        numbers += sum(self.buffer_sizes) + 2 * self.n_later
        numbers += self.n_actions + 3 * self.known.piece_size  # to choose actions
        numbers += sum(group.out_size // cut.n_cells for group in first)
        numbers += sum(group.out_size for group in later)
        return 8 * numbers + cut.layout.table_bytes + cut.first_layout.table_bytes
