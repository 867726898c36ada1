"""The closed form of Theorem 10 of docs/theory.md, against numbers made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.measures import psrl_regret_bound


def test_the_bound_of_two_variables_by_hand() -> None:
    # m = l = 2, W = 2, every scope one variable and the action: L = 4 rows, 8 in all; R = 2.
    structure = fmdp.problem("random:2,parents=1,actions=2").structure
    assert (structure.max_scope_size, structure.n_transition_classes) == (4, 8)
    # T = 10^4: rho = 0.01, the logarithm is of 6 * 2 * 2 * 4 * 10^4 * 100 = 9.6e7.
    log = 18.3798587
    assert math.log(9.6e7) == pytest.approx(log, rel=1e-6)
    # Episodes: at most sqrt(12e4) = 346.410, the longest 1 + sqrt(7500) = 87.6025.
    seen = 2 * 8 * 87.60254 + 2.41421356 * math.sqrt(8 * 2 * 1e4)  # 1401.64 + 965.69
    width = 2 * math.sqrt(18 * 2 * log)  # 51.446
    luck = 4 * 2 * math.sqrt(0.5e4 * math.log(100))  # D + 1 = 4
    expected = 3 * 2 * width * seen + 346.41016 * 3 * 2 + luck + 2 * 2 * 1e4 * 0.01
    assert psrl_regret_bound(structure, 3.0, 10_000, rewards_known=True) == pytest.approx(expected)
    # Learned rewards add 2 R sqrt(12 log) times Lemma 2 for one factor of L rows.
    rows = 2 * 4 * 87.60254 + 2.41421356 * 200
    learned = expected + 4 * math.sqrt(12 * log) * rows
    assert psrl_regret_bound(structure, 3.0, 10_000) == pytest.approx(learned)
    # Mass outside the diameter and the tolerance of plans cost a part of every step.
    looser = psrl_regret_bound(
        structure, 3.0, 10_000, rewards_known=True, outside=0.05, tolerance=0.1
    )
    assert looser == pytest.approx(expected + 1e4 * (0.1 + 0.05 * 2))


def test_alike_rows_lower_the_bound() -> None:
    apart, alike = (
        fmdp.problem(f"circle:4,dynamics=guestrin,alike={which}").structure
        for which in ("none", "rows")
    )
    assert psrl_regret_bound(alike, 5.0, 10**9) < psrl_regret_bound(apart, 5.0, 10**9)


def test_it_grows_like_the_root_of_the_steps() -> None:
    structure = fmdp.problem("circle:3").structure
    ratio = psrl_regret_bound(structure, 5.0, 10**14) / psrl_regret_bound(structure, 5.0, 10**12)
    assert 10 < ratio < 11  # the logarithm is the rest


def test_derived_variables_are_refused() -> None:
    coin = fmdp.Derived("coin", 2, (), np.array([[0.5, 0.5]]))
    structure = fmdp.Structure((2, 2), (1,), ((3,), (3,)), ((0, 1),), derived=(coin,))
    with pytest.raises(InvalidParameter, match="without derived variables"):
        psrl_regret_bound(structure, 1.0, 10)
