"""In which order to eliminate the next-state variables, and what that will cost.

Eliminating s'_i needs the current values of its parents.  A parent j whose own turn has not come
is `open`: its current value must be carried beside its next value until s'_j goes.  One step costs

    S * |S_i| * prod over open j of |S_j| * (joint actions told apart so far),

and which variables are open depends only on the *set* already eliminated.  So the cheapest order
is a shortest path over sets: exact for up to a dozen variables, a beam search beyond.  The order is
a function of the structure alone (ties go to the lexicographically smallest), which nested targets
need: their value depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache

from fmdp.model import Structure

# All subsets of 12 variables fit into the beam (924 of size 6), so the search is exact there.
BEAM = 1000
BEAM_LARGE = 120


@lru_cache(maxsize=16)  # a plan asks for it several times, a run for the same one as the last
def elimination_order(structure: Structure) -> tuple[int, ...]:
    """The cheapest order found, first eliminated first."""
    m = structure.m
    sizes = structure.state_sizes
    parents = [_mask(structure.state_scope(i)) for i in range(m)]
    actions = [_mask(v - m for v in structure.action_scope(i)) for i in range(m)]
    beam_width = BEAM if m <= 12 else BEAM_LARGE

    open_volume = _volumes(sizes)
    told_volume = _volumes(structure.action_sizes)
    # done -> (cost so far, order, union of parents, union of action variables)
    frontier: dict[int, tuple[float, tuple[int, ...], int, int]] = {0: (0.0, (), 0, 0)}
    for _ in range(m):
        following: dict[int, tuple[float, tuple[int, ...], int, int]] = {}
        for done, (cost, order, needed, told) in frontier.items():
            for i in range(m):
                if done >> i & 1:
                    continue
                after = done | 1 << i
                needed_after = needed | parents[i]
                told_after = told | actions[i]
                total = cost + sizes[i] * open_volume(needed_after & ~after) * told_volume(
                    told_after
                )
                other = following.get(after)
                # Most sets are met at a worse price than before; orders are made for the others.
                if other is not None and total > other[0]:
                    continue
                longer = (*order, i)
                if other is None or (total, longer) < other[:2]:
                    following[after] = (total, longer, needed_after, told_after)
        kept = sorted(following.items(), key=lambda item: item[1][:2])[:beam_width]
        frontier = dict(kept)
    (best,) = frontier.values()
    return best[1]


def _volumes(sizes: Sequence[int]) -> Callable[[int], float]:
    """The number of joint values of the variables in a mask, each mask multiplied out once."""

    @cache
    def volume(mask: int) -> float:
        product = 1.0
        for position in range(mask.bit_length()):
            if mask >> position & 1:
                product *= sizes[position]
        return product

    return volume


def _mask(variables: object) -> int:
    result = 0
    for variable in variables:  # type: ignore[attr-defined]
        result |= 1 << variable
    return result
