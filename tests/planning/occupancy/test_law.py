"""Long-run laws against flat linear algebra: unichain, periodic and multichain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import fmdp
from fmdp.model.spaces import encode
from fmdp.planning.occupancy import law as law_module
from fmdp.planning.occupancy.adjoint import Adjoint
from fmdp.planning.occupancy.law import Law, NotCertified, long_run_law
from fmdp.planning.policies.mixed import Mixture, one_table
from fmdp.planning.tabular.model import policy_matrix
from fmdp.testing.strategies import models, policies

Floats = NDArray[np.float64]


def spread(law: Law, n: int) -> Floats:
    shares = np.zeros(n)
    shares[law.states] = law.shares
    return shares


def averaged(matrix: Floats, start: int) -> Floats:
    """The Cesaro limit by squaring the lazy chain: P/2 + I/2 has the same limit and no period."""
    power = 0.5 * (matrix + np.eye(len(matrix)))
    for _ in range(60):
        power = power @ power
        power /= power.sum(axis=1, keepdims=True)
    return np.asarray(power[start])


def chain(rows: list[list[float]], initial: int = 0) -> tuple[fmdp.FactoredMDP, Mixture]:
    model = fmdp.FactoredMDP.from_factors(
        [len(rows)],
        [1],
        [([0], np.array(rows))],
        [([0], np.zeros(len(rows)))],
        initial_state=(initial,),
    )
    return model, one_table(np.zeros(len(rows), dtype=np.int64))


@settings(max_examples=60)
@given(st.data())
def test_random_models(data: st.DataObject) -> None:
    model = data.draw(models())
    actions = data.draw(policies(model.structure))
    law = long_run_law(model, one_table(actions))
    start = encode(model.initial_state, model.structure.state_sizes)
    matrix = policy_matrix(model, actions)
    shares = spread(law, len(matrix))
    assert np.abs(shares @ matrix - shares).sum() < 1e-12
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    oracle = averaged(matrix, start)
    # Very slow chains are not settled by the oracle's 2^60 steps of rounded products.
    if np.abs(oracle @ matrix - oracle).sum() < 1e-14:
        assert np.abs(shares - oracle).sum() <= 1e-8 + law.error


@settings(max_examples=60)
@given(st.data())
def test_the_adjoint_is_the_transposed_backup(data: st.DataObject) -> None:
    model = data.draw(models())
    s = model.structure
    first, second = (data.draw(policies(s)) for _ in range(2))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights, mu = rng.random(s.n_states), rng.random(s.n_states)
    tables = [(weights, first), (1.0 - weights, second)]
    mixed = weights[:, None] * policy_matrix(model, first)
    mixed += (1.0 - weights)[:, None] * policy_matrix(model, second)
    adjoint = Adjoint(model, tables)
    expected = mu @ mixed
    eps = float(np.finfo(np.float64).eps)
    assert (np.abs(adjoint(mu) - expected) <= 2 * adjoint.roundings * eps * expected).all()


def test_a_periodic_chain_has_the_law_of_its_averages() -> None:
    law = long_run_law(*chain([[0, 1, 0], [0, 0, 1], [1, 0, 0]]))
    assert law.shares == pytest.approx([1 / 3] * 3, abs=1e-15)
    assert law.classes == 1


def test_several_classes_are_weighted_by_absorption() -> None:
    # From state 0: to 1 with 1/4, to the pair 2, 3 with 3/4; the pair is left for each other.
    rows = [[0.0, 0.25, 0.75, 0], [0, 1, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 1, 0]]
    law = long_run_law(*chain(rows))
    assert law.classes == 2
    assert spread(law, 4) == pytest.approx([0, 0.25, 0.75 * 2 / 3, 0.75 / 3], abs=1e-15)
    assert long_run_law(*chain(rows, initial=1)).shares.tolist() == [1.0]


def test_a_slow_chain_keeps_all_its_digits() -> None:
    law = long_run_law(*chain([[1 - 1e-12, 1e-12], [3e-12, 1 - 3e-12]]))
    assert law.shares == pytest.approx([0.75, 0.25], rel=1e-3)
    assert law.error < 1e-13


@pytest.mark.parametrize("problem", ["circle:8", "star:7,dynamics=guestrin", "three-leg:7"])
def test_iteration_agrees_with_elimination(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = fmdp.problem(problem)
    policy = fmdp.plan(model).policy
    assert isinstance(policy, fmdp.TablePolicy)
    tables = one_table(policy.actions.astype(np.int64))
    direct = long_run_law(model, tables)
    monkeypatch.setattr(law_module, "DIRECT_STATES", 1)
    iterated = long_run_law(model, tables)
    assert (direct.method, iterated.method) == ("elimination", "iteration")
    gap = np.abs(spread(direct, model.structure.n_states) - iterated.shares).sum() / 2
    assert gap <= direct.error + iterated.error < 1e-8


def test_several_classes_are_not_certified_by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(law_module, "DIRECT_STATES", 1)
    with pytest.raises(NotCertified, match="several recurrent classes"):
        long_run_law(*chain([[0.5, 0.5, 0, 0], [0.5, 0.5, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]))
