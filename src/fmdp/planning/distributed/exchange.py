"""Vectors over the states that are divided among ranks, and the move from one division to another.

A vector is divided by some variables: a rank holds a contiguous range of their joint values, and
for each of these all values of the other variables, in a given order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from fmdp.planning.distributed.ranks import Ranks, shares

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Division:
    """The variables that divide a vector, and the order of the others."""

    by: tuple[int, ...]
    others: tuple[int, ...]
    sizes: tuple[int, ...]
    """Of all variables."""

    @property
    def pieces(self) -> int:
        """Joint values of the dividing variables."""
        return prod(self.sizes[j] for j in self.by)

    @property
    def piece_size(self) -> int:
        return prod(self.sizes[j] for j in self.others)

    def starts(self, ranks: int) -> NDArray[np.int64]:
        """Return [ranks + 1]: the first piece of each rank, and the number of pieces."""
        return shares(self.pieces, ranks)

    def count(self, ranks: Ranks) -> int:
        """Return how many numbers this rank holds."""
        first, end = self.starts(ranks.size)[ranks.rank : ranks.rank + 2]
        return int(end - first) * self.piece_size


class Redistribution:
    """Moves a vector from one division to another one, by variables that the first does not use."""

    def __init__(self, before: Division, after: Division, ranks: Ranks) -> None:
        self._before, self._after, self._ranks = before, after, ranks
        self._from = before.starts(ranks.size)
        self._to = after.starts(ranks.size)
        self._rest = tuple(j for j in before.others if j not in after.by)

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to the others in one move."""
        counts = self._counts_sent()
        return 8 * (sum(counts) - counts[self._ranks.rank])

    def move(self, source: Vector, sent: Vector, received: Vector, out: Vector) -> None:
        """Set `out`; `sent` and `received` are workspaces of at least the sizes of the vectors."""
        before, after, ranks = self._before, self._after, self._ranks
        sizes = before.sizes
        own = self._from[ranks.rank + 1] - self._from[ranks.rank]
        rest = [sizes[j] for j in self._rest]
        # (own pieces, others) -> (pieces of the receivers, own pieces, rest)
        wanted = (*after.by, -1, *self._rest)
        packed = sent[: source.size]
        permute(source, (-1, *before.others), wanted, {-1: int(own)}, sizes, packed)
        counts, received_counts = self._counts_sent(), self._counts_received()
        arrived = received[: sum(received_counts)]
        ranks.exchange(packed, counts, arrived, received_counts)
        # From each rank: (own pieces after, its pieces before, rest)
        kept = int(self._to[ranks.rank + 1] - self._to[ranks.rank])
        run = prod(rest)
        whole = sent[: out.size].reshape(kept, before.pieces, run)
        start = 0
        for sender, count in enumerate(received_counts):
            first, end = self._from[sender : sender + 2]
            block = arrived[start : start + count].reshape(kept, end - first, run)
            whole[:, first:end] = block
            start += count
        held = (-1, *before.by, *self._rest)
        permute(whole.reshape(-1), held, (-1, *after.others), {-1: kept}, sizes, out)

    def _counts_sent(self) -> list[int]:
        own = self._from[self._ranks.rank + 1] - self._from[self._ranks.rank]
        return self._counts(np.diff(self._to) * own)

    def _counts_received(self) -> list[int]:
        own = self._to[self._ranks.rank + 1] - self._to[self._ranks.rank]
        return self._counts(np.diff(self._from) * own)

    def _counts(self, pieces: NDArray[np.int64]) -> list[int]:
        run = prod(self._before.sizes[j] for j in self._rest)
        return [int(count) * run for count in pieces]


def permute(
    source: Vector,
    axes: Sequence[int],
    wanted: Sequence[int],
    extra: dict[int, int],
    sizes: Sequence[int],
    out: Vector,
) -> None:
    """Copy a tensor with these axes to one whose axes are in another order.

    Axes are variables, whose sizes are in `sizes`, or keys of `extra`.  Axes that stay neighbours
    are copied as one, which makes the runs long.
    """
    runs: list[list[int]] = []
    position = {axis: place for place, axis in enumerate(axes)}
    for axis in wanted:
        if runs and position[axis] == position[runs[-1][-1]] + 1:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    size = {axis: extra[axis] if axis in extra else sizes[axis] for axis in axes}
    stored = sorted(runs, key=lambda run: position[run[0]])
    shape = [prod(size[axis] for axis in run) for run in stored]
    order = [stored.index(run) for run in runs]
    view = source.reshape(shape).transpose(order)
    np.copyto(out.reshape(view.shape), view)
