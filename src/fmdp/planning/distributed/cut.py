"""The cut that divides an elimination into two halves, each of which a rank runs on its own share.

The groups of a layout are eliminated one after the other.  The tensor between two groups has the
next values of the groups still to come as its fast axes, and the current variables that are known
so far as its slow ones:

    h(first', later')  --first groups-->  T(known, later')  --later groups-->  (L h)(known, others)

* The first groups treat all `later'` alike.  So each rank holds h for some *cells*, joint values of
  a few `spread` variables among the later ones, and all values of the others.
* The later groups treat all `known` alike.  So between the two each rank gives away T for most of
  `known` and receives T for some of them, now with all cells.  They add all rewards.
* L h is then divided by `known`, and one more exchange divides it by cells again.

What a rank computes for one cell or one joint value of `known` does not depend on what else it
holds, and the cut does not depend on the number of ranks: every number is the same on any number of
them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from fmdp.elimination.layout import Layout, volume
from fmdp.errors import InvalidParameter

SHARES = 16
"""Least number of cells, and of joint values of `known`, where the model has that many."""
SHARE_STATES = 1 << 20
"""States for which there is one more share: more ranks than shares cannot take part."""
CELL_STATES = 1 << 16
"""Most states of a cell if enough variables can be spread: the first groups read a cell once for
every joint value of `known`, so it should stay in the second-level cache."""


@dataclass(frozen=True)
class Cut:
    """A cut of a layout, with the variables that divide the work."""

    layout: Layout
    """Its branches are the known variables and some others.  Only the later groups are run."""
    first: int
    """Number of groups before the cut."""
    known: tuple[int, ...]
    """Current variables that the first groups depend on; the first branches of the layout."""
    spread: tuple[int, ...]
    """Variables of the later groups, not known, whose joint values are the cells."""

    @cached_property
    def first_layout(self) -> Layout:
        """The first groups alone, for all cells, without branches: its axes are `known`."""
        pieces = self.layout.pieces[: self.first]
        return replace(self.layout, branch=(), pieces=pieces)

    @cached_property
    def n_known(self) -> int:
        return volume(self.known, self._sizes)

    @cached_property
    def n_cells(self) -> int:
        return volume(self.spread, self._sizes)

    @cached_property
    def n_classes(self) -> int:
        """Classes of actions that the first groups distinguish: as often T is computed."""
        return self.first_layout.node_counts[-1]

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of one sweep on all ranks.  T of each class is computed from the start."""
        before = sum(group.out_size * group.n_v for group in self.first_layout.groups)
        later = zip(self.layout.node_counts, self.layout.groups, strict=True)
        after = sum(
            nodes * group.out_size * group.n_v for nodes, group in list(later)[self.first :]
        )
        return self.n_classes * before + self.layout.n_branches * after

    @property
    def cell_order(self) -> tuple[int, ...]:
        """The variables of a cell's vector, slowest first: the eliminated ones come first."""
        return tuple(j for j in self.layout.order if j not in self.spread)

    @property
    def later(self) -> tuple[int, ...]:
        """The variables of the later groups, in the order of elimination."""
        return tuple(i for piece in self.layout.pieces[self.first :] for i in piece)

    @property
    def others(self) -> tuple[int, ...]:
        """The current variables that are not known, in the order in which L h has them."""
        return (*self.layout.branch[len(self.known) :], *self.layout.axes)

    @property
    def _sizes(self) -> tuple[int, ...]:
        return self.layout.structure.state_sizes

    @property
    def most_ranks(self) -> int:
        """Ranks that can share the work."""
        return min(self.n_known, self.n_cells)


def choose_cut(layout: Layout, ranks: int) -> Cut:
    """Return the earliest cut with enough shares; raise InvalidParameter if ranks are more.

    An early cut sends least: T has a copy for every class of actions that the first groups
    distinguish.  Groups that are too large to be divided are taken apart.
    """
    structure = layout.structure
    if structure.m < 2:
        raise InvalidParameter("planning over MPI ranks needs at least 2 state variables; got 1")
    single = replace(layout, branch=(), pieces=tuple((j,) for j in layout.order))
    fused = [_cut_after(layout, first) for first in range(1, len(layout.pieces))]
    cuts = fused + [_cut_after(single, first) for first in range(1, len(single.pieces))]
    wanted = max(SHARES, structure.n_states // SHARE_STATES)
    best = max(cuts, key=lambda cut: min(cut.most_ranks, wanted))
    best = replace(best, spread=_fewest(best, max(wanted, structure.n_states // CELL_STATES)))
    if best.most_ranks < ranks:
        raise InvalidParameter(
            f"this model can be planned over at most {best.most_ranks} MPI ranks; got {ranks}"
        )
    return best


def _cut_after(layout: Layout, first: int) -> Cut:
    """Return the cut after so many groups, with all variables that can be spread."""
    whole = replace(layout, branch=())
    n_known = sum(len(group.opened) + len(group.own) for group in whole.groups[:first])
    known, further = whole.axes[:n_known], layout.branch[n_known:]
    later = [i for piece in layout.pieces[first:] for i in piece]
    spread = tuple(j for j in later if j not in known)
    cut = replace(layout, branch=known + further, first_with_rewards=first)
    return Cut(cut, first, known, spread)


def _fewest(cut: Cut, cells: int) -> tuple[int, ...]:
    """Return the first variables of `spread` that have so many joint values, or all."""
    for number in range(1, len(cut.spread) + 1):
        chosen = replace(cut, spread=cut.spread[:number])
        if chosen.n_cells >= cells:
            return chosen.spread
    return cut.spread
