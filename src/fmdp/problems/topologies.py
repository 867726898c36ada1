"""Network topologies: the parents of each of n machines.

A topology is a function n -> for each machine the sorted indices of its parents. A machine is never
its own parent, so a circle of one machine has no parents and a two-way ring of two has one each.
"""

from __future__ import annotations

import math

Parents = tuple[tuple[int, ...], ...]


def _others(i: int, machines: set[int]) -> tuple[int, ...]:
    return tuple(sorted(machines - {i}))


def circle(n: int) -> Parents:
    return tuple(_others(i, {(i - 1) % n}) for i in range(n))


def separate(n: int) -> Parents:
    return ((),) * n


def three_leg(n: int) -> Parents:
    """Machine 0 is the root; 1, 2 and 3 begin the legs, and the parent of j >= 4 is j - 3."""
    return tuple(() if i == 0 else (max(0, i - 3),) for i in range(n))


def star(n: int) -> Parents:
    return tuple(() if i == 0 else (0,) for i in range(n))


def bi_ring(n: int) -> Parents:
    return tuple(_others(i, {(i - 1) % n, (i + 1) % n}) for i in range(n))


def tree(n: int) -> Parents:
    return tuple(() if i == 0 else ((i - 1) // 2,) for i in range(n))


def grid_width(n: int) -> int:
    """Return the columns of the row-major grid of n machines, ceil(sqrt n)."""
    return math.isqrt(n - 1) + 1


def grid(n: int) -> Parents:
    """Return the machines to the left and above."""
    width = grid_width(n)
    return tuple(
        _others(i, ({i - 1} if i % width else set()) | ({i - width} if i >= width else set()))
        for i in range(n)
    )


def mesh(n: int) -> Parents:
    """Return the neighbours of `grid` in both directions: left, right, above and below."""
    neighbours: list[set[int]] = [set() for _ in range(n)]
    for child, parents in enumerate(grid(n)):
        for parent in parents:
            neighbours[child].add(parent)
            neighbours[parent].add(child)
    return tuple(tuple(sorted(machines)) for machines in neighbours)


def network(n: int, edges: tuple[tuple[int, int], ...]) -> Parents:
    """Return the parents in any directed graph, given as (parent, child) pairs."""
    parents: list[set[int]] = [set() for _ in range(n)]
    for parent, child in edges:
        parents[child].add(parent)
    return tuple(_others(child, machines) for child, machines in enumerate(parents))
