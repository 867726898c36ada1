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

from fmdp.planning.distributed.ranks import Ranks

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Division:
    """The variables that divide a vector, and the order of the others."""

    by: tuple[int, ...]
    others: tuple[int, ...]
    sizes: tuple[int, ...]
    """Of all variables."""
    ranks: int

    @property
    def pieces(self) -> int:
        """Joint values of the dividing variables."""
        return prod(self.sizes[j] for j in self.by)

    @property
    def piece_size(self) -> int:
        return prod(self.sizes[j] for j in self.others)

    def pieces_of(self, rank: int) -> range:
        """Return the joint values of the dividing variables that a rank has."""
        return range(self.pieces * rank // self.ranks, self.pieces * (rank + 1) // self.ranks)

    def count(self, rank: int) -> int:
        """Return how many numbers a rank holds."""
        return len(self.pieces_of(rank)) * self.piece_size


class Redistribution:
    """Moves a vector from one division to another one, by variables that the first does not use."""

    def __init__(self, before: Division, after: Division, rank: int) -> None:
        self._before, self._after, self._rank = before, after, rank
        self._rest = tuple(j for j in before.others if j not in after.by)
        self._run = prod(before.sizes[j] for j in self._rest)
        own_before, own_after = len(before.pieces_of(rank)), len(after.pieces_of(rank))
        ranks = range(before.ranks)
        self._sent = [len(after.pieces_of(to)) * own_before * self._run for to in ranks]
        self._received = [len(before.pieces_of(by)) * own_after * self._run for by in ranks]

    @property
    def bytes_sent(self) -> int:
        """Bytes that this rank sends to the others in one move."""
        return 8 * (sum(self._sent) - self._sent[self._rank])

    def move(
        self, source: Vector, sent: Vector, received: Vector, out: Vector, ranks: Ranks
    ) -> None:
        """Set `out`; `sent` and `received` are workspaces of at least the sizes of the vectors."""
        before, after, rest = self._before, self._after, self._rest
        extra = {-1: len(before.pieces_of(self._rank))}
        # (own pieces, others) -> (pieces of the receivers, own pieces, rest)
        packed, arrived = sent[: source.size], received[: sum(self._received)]
        permute(source, (-1, *before.others), (*after.by, -1, *rest), extra, before.sizes, packed)
        ranks.exchange(packed, self._sent, arrived, self._received)
        # From each rank: (own pieces after, its pieces before, rest)
        kept = len(after.pieces_of(self._rank))
        whole = sent[: out.size].reshape(kept, before.pieces, self._run)
        start = 0
        for sender, count in enumerate(self._received):
            pieces = before.pieces_of(sender)
            block = arrived[start : start + count].reshape(kept, len(pieces), self._run)
            whole[:, pieces.start : pieces.stop] = block
            start += count
        held = (-1, *before.by, *rest)
        permute(whole.reshape(-1), held, (-1, *after.others), {-1: kept}, before.sizes, out)


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
