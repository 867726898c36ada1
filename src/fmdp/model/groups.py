"""Disjoint sets of numbers, joined one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Groups:
    """Disjoint sets of the numbers 0..n-1 (union-find); the lowest number of each leads."""

    def __init__(self, n: int) -> None:
        self._above = list(range(n))

    def leader(self, i: int) -> int:
        above = self._above
        while above[i] != i:
            above[i] = above[above[i]]
            i = above[i]
        return i

    def join(self, i: int, j: int) -> None:
        lower, higher = sorted((self.leader(i), self.leader(j)))
        self._above[higher] = lower

    def join_all(self, links: Iterable[Sequence[int]]) -> None:
        """Join all numbers of each link."""
        for link in links:
            for i in link[1:]:
                self.join(link[0], i)

    def leaders(self) -> list[int]:
        return [self.leader(i) for i in range(len(self._above))]

    def members(self) -> list[list[int]]:
        """Return the sets, each sorted, by their leaders."""
        sets: dict[int, list[int]] = {}
        for i, leader in enumerate(self.leaders()):
            sets.setdefault(leader, []).append(i)
        return list(sets.values())
