"""Strong connectivity of the graph of all actions, against the dense graph."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components, shortest_path

from fmdp.measures.reachability import Graph, is_communicating
from fmdp.model import FactoredMDP, Structure
from fmdp.problems import problem
from fmdp.testing import oracles
from fmdp.testing.strategies import models, structures


@settings(max_examples=80, deadline=None)
@given(models())
def test_agrees_with_the_dense_graph(model: FactoredMDP) -> None:
    support = (oracles.dense(model).transitions > 0).any(axis=0)
    components, _ = connected_components(support, connection="strong")
    assert is_communicating(model) is (components == 1)


def one_way(n: int) -> FactoredMDP:
    """n bits that can only be switched on: reached by all is not reaching all."""
    structure = Structure((2,) * n, (2,), tuple((i, n) for i in range(n)), ())
    table = [[1, 0], [0.5, 0.5], [0, 1], [0, 1]]
    return FactoredMDP(structure, [table] * n, [], initial_state=(1,) * n)


def test_a_state_that_cannot_be_left_is_seen_forwards() -> None:
    assert is_communicating(one_way(3)) is False


def test_probabilities_that_underflow_in_a_product_are_still_edges() -> None:
    structure = Structure((2,) * 20, (1,), tuple((i,) for i in range(20)), ())
    # The product of 20 factors of 1e-30 is 0 in floating point.
    table = [[1 - 1e-30, 1e-30], [1e-30, 1 - 1e-30]]
    assert is_communicating(FactoredMDP(structure, [table] * 20, [])) is True


def test_large_models_are_decided_or_left_open() -> None:
    assert is_communicating(problem("circle:16")) is True
    assert is_communicating(one_way(16)) is False
    # A circle of 500 places: 500 sweeps backwards, 500 steps forwards.
    table = np.roll(np.eye(500), 1, axis=1)
    ring = FactoredMDP.from_factors((500,), (1,), [((0,), table)])
    assert is_communicating(ring) is True
    assert is_communicating(ring, operations=1000) is None


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_written_graph_has_the_right_depths_and_policies(data: st.DataObject) -> None:
    thin = structures(max_variables=2, max_values=20, max_states=100, max_actions=4)
    model = data.draw(models(thin, rows=("deterministic", "lazy", "quarters")))
    graph = Graph(model)
    if not graph.is_sparse or not is_communicating(model):
        return
    mdp = oracles.dense(model)
    steps = shortest_path((mdp.transitions > 0).any(axis=0), unweighted=True)
    target = data.draw(st.integers(0, mdp.n_states - 1))
    assert graph.depth(target) == steps[:, target].max()
    chain, _ = oracles.policy_chain(mdp, graph.proper_policy(target))
    assert np.isfinite(oracles.hitting_times(chain, target)).all()


@pytest.mark.parametrize("problem_id", ["circle:4", "riverswim:2", "jao:2"])
def test_a_proper_policy_without_a_written_graph(problem_id: str) -> None:
    model = problem(problem_id)
    graph = Graph(model)
    assert not graph.is_sparse
    mdp = oracles.dense(model)
    for target in range(mdp.n_states):
        chain, _ = oracles.policy_chain(mdp, graph.proper_policy(target))
        assert np.isfinite(oracles.hitting_times(chain, target)).all()
