"""The expectation over next counts, against the sum over all ways to move."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from numpy.typing import NDArray

from fmdp.model.compositions import composition_rank, compositions, n_compositions
from fmdp.planning.counts.chance import Chance, binomial_rows, with_one_more

Floats = NDArray[np.float64]


def expected_by_parts(rows: Floats, counts: NDArray[np.int64], values: Floats) -> Floats:
    """Move the parts one after another, with the law of the counts as a dictionary."""
    k = rows.shape[1]
    law: dict[tuple[int, ...], float] = {(0,) * k: 1.0}
    for row, number in zip(rows, counts, strict=True):
        for _ in range(number):
            moved: dict[tuple[int, ...], float] = defaultdict(float)
            for so_far, probability in law.items():
                for j in np.flatnonzero(row):
                    after = tuple(n + (i == j) for i, n in enumerate(so_far))
                    moved[after] += probability * row[j]
            law = moved
    ranks = composition_rank([np.array(column) for column in zip(*law, strict=True)], counts.sum())
    return (np.array(list(law.values()))[:, None] * values[ranks]).sum(axis=0)


@pytest.mark.parametrize("seed", range(60))
def test_the_expectation_is_the_sum_over_all_ways_to_move(seed: int) -> None:
    generator = np.random.default_rng(seed)
    d, k, total = generator.integers(1, 5), generator.integers(1, 4), generator.integers(0, 6)
    rows = generator.random((d, k)) * (generator.random((d, k)) < 0.6)
    rows[np.arange(d), generator.integers(k, size=d)] += 0.1
    rows /= rows.sum(axis=1, keepdims=True)
    values = generator.normal(size=(n_compositions(total, k), 2))
    chance = Chance(rows, int(total))
    result = chance.expectation(values)
    wanted = [expected_by_parts(rows, y, values) for y in compositions(int(total), int(d))]
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-13)


def test_wear_by_one_level_keeps_the_number_of_bins() -> None:
    """Four levels need one bin more than levels at most, not eight."""
    rows = np.array([[0.7, 0.3, 0, 0], [0, 0.7, 0.3, 0], [0, 0, 0.7, 0.3], [0, 0, 0, 1.0]])
    assert Chance(rows, 100).entries < 20 * n_compositions(100, 5)


def test_a_binomial_row_by_hand() -> None:
    np.testing.assert_allclose(binomial_rows(3, 0.25, 0.75)[2, :3], [9 / 16, 6 / 16, 1 / 16])


def test_one_more_part_by_hand() -> None:
    """Two bins, one part and one more: f(2, 0), f(1, 1), f(0, 2) are 1, 2, 4."""
    values = np.array([4.0, 2.0, 1.0])[:, None]  # in the order (0, 2), (1, 1), (2, 0)
    result = with_one_more(values, 1, np.array([0.5, 0.5]))
    np.testing.assert_array_equal(result[:, 0], [3.0, 1.5])


@pytest.mark.parametrize(("total", "bins"), [(0, 0), (0, 3), (3, 1), (4, 3), (2, 5)])
def test_ranks_count_the_compositions_in_order(total: int, bins: int) -> None:
    rows = compositions(total, bins)
    assert len(rows) == n_compositions(total, bins)
    assert [tuple(row) for row in rows] == sorted({tuple(row) for row in rows})
    if bins:
        np.testing.assert_array_equal(composition_rank(list(rows.T), total), np.arange(len(rows)))
