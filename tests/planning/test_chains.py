"""Chains of policies and hitting times, dense, sparse and very long."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fmdp.planning.tabular.chains import hitting_times, sparse_hitting_times
from fmdp.planning.tabular.model import policy_matrix, sparse_policy_matrix
from fmdp.testing import oracles
from fmdp.testing.strategies import models, policies


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_matrix_of_a_policy(data: st.DataObject) -> None:
    model = data.draw(models())
    actions = data.draw(policies(model.structure))
    expected, _ = oracles.policy_chain(oracles.dense(model), actions)
    assert policy_matrix(model, actions) == pytest.approx(expected, abs=1e-15)
    assert sparse_policy_matrix(model, actions).toarray() == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize("n", [2, 5, 49, 100, 130])
def test_hitting_times_of_a_dense_chain(n: int) -> None:
    chain = np.random.default_rng(n).dirichlet(np.ones(n), size=n)
    for target in (0, n // 2, n - 1):
        expected = oracles.hitting_times(chain, target)
        assert hitting_times(chain, target) == pytest.approx(expected, rel=1e-12)
        sparse = sparse_hitting_times(csr_array(chain), target, 1e-12)
        assert sparse == pytest.approx(expected, rel=1e-11)


def climb(n: int, up: float) -> tuple[NDArray[np.float64], list[float]]:
    """A climb of n steps that slips one back when it fails, and the exact times to the top."""
    chain = np.zeros((n + 1, n + 1))
    chain[n, n] = 1.0
    for level in range(n):
        chain[level, level + 1] = up
        chain[level, max(level - 1, 0)] += 1.0 - up
    p, q = Fraction(up), Fraction(1.0 - up)
    one_step = [(1 + Fraction(0)) / p]  # from level k to k + 1: t_k = (1 + q t_{k-1}) / p
    for _ in range(1, n):
        one_step.append((1 + q * one_step[-1]) / p)
    times = [float(sum(one_step[level:])) for level in range(n)]
    return chain, [*times, 0.0]


@pytest.mark.parametrize(("n", "up"), [(5, 0.5), (8, 1e-3), (12, 1e-13), (60, 0.25)])
def test_times_of_any_length_keep_their_digits(n: int, up: float) -> None:
    """1e143 steps to 13 digits, where a linear solve has lost them all."""
    chain, expected = climb(n, up)
    assert hitting_times(chain, n) == pytest.approx(expected, rel=1e-12)


def test_the_sparse_solver_says_when_it_has_lost_its_digits() -> None:
    chain, expected = climb(5, 0.5)
    assert sparse_hitting_times(csr_array(chain), 5, 1e-12) == pytest.approx(expected, rel=1e-12)
    chain, _ = climb(12, 1e-13)
    assert sparse_hitting_times(csr_array(chain), 12, 1e-12) is None
