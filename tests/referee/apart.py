"""Rounds with models of their own, dealt out to processes in pieces.

They stand in a module of their own because a spawned process cannot import what `__main__` defines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from referee import confidence_sets, rddl_caps, reports, simulated_intervals, slow_measures
from referee.ledger import Ledger


class Apart(NamedTuple):
    """A round with models of its own."""

    pieces: Callable[[bool], int]
    """Whether it is the short form -> how many pieces there are."""
    play: Callable[[int, bool], Ledger]
    """The number of a piece, and whether it is the short form -> what was compared."""


def in_one_piece(play: Callable[[bool], Ledger], number: int, short: bool) -> Ledger:
    """Play the only piece of a round."""
    return play(short)


def one(short: bool) -> int:
    """Return the number of pieces of a round that has one."""
    return 1


APART = {
    "confidence_sets": Apart(one, partial(in_one_piece, confidence_sets.play)),
    "rddl_caps": Apart(one, partial(in_one_piece, rddl_caps.play)),
    "reports": Apart(one, partial(in_one_piece, reports.play)),
    "slow_measures": Apart(slow_measures.pieces, slow_measures.play_part),
    "simulated_intervals": Apart(simulated_intervals.pieces, simulated_intervals.play_model),
}
