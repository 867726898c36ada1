"""Who depends on whom, written out by hand for small networks."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from fmdp.problems.topologies import (
    Parents,
    bi_ring,
    circle,
    grid,
    grid_width,
    mesh,
    network,
    star,
    three_leg,
    tree,
)


@pytest.mark.parametrize(
    ("topology", "n", "parents"),
    [
        (circle, 1, ((),)),
        (circle, 2, ((1,), (0,))),
        (circle, 4, ((3,), (0,), (1,), (2,))),
        (three_leg, 1, ((),)),
        (three_leg, 8, ((), (0,), (0,), (0,), (1,), (2,), (3,), (4,))),
        (star, 1, ((),)),
        (star, 4, ((), (0,), (0,), (0,))),
        (bi_ring, 1, ((),)),
        (bi_ring, 2, ((1,), (0,))),
        (bi_ring, 4, ((1, 3), (0, 2), (1, 3), (0, 2))),
        (tree, 1, ((),)),
        (tree, 6, ((), (0,), (0,), (1,), (1,), (2,))),
        # 0 1 2
        # 3 4 5
        # 6
        (grid, 7, ((), (0,), (1,), (0,), (1, 3), (2, 4), (3,))),
        (mesh, 7, ((1, 3), (0, 2, 4), (1, 5), (0, 4, 6), (1, 3, 5), (2, 4), (3,))),
        (grid, 1, ((),)),
        (grid, 2, ((), (0,))),
        (mesh, 2, ((1,), (0,))),
    ],
)
def test_parents(topology: Callable[[int], Parents], n: int, parents: Parents) -> None:
    assert topology(n) == parents


def test_grid_width_is_the_ceiling_of_the_root() -> None:
    assert all(grid_width(n) == math.ceil(math.sqrt(n)) for n in range(1, 200))


def test_network_takes_edges_from_parent_to_child() -> None:
    assert network(4, ((0, 1), (1, 2), (0, 2))) == ((), (0,), (0, 1), ())
