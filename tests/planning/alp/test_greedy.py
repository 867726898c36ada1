"""Greedy policies by elimination against the maximum over all joint actions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import basis_matrix, dense

import fmdp
from fmdp.elimination.ties import TIE_TOLERANCE, choose_tied, state_key
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.alp import ALP, GreedyPolicy
from fmdp.planning.alp.bases import make_basis
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.greedy import GreedyExtractor
from fmdp.planning.alp.greedy_kernels import state_key as compiled_key
from fmdp.planning.policies.files import load_policy
from fmdp.testing.strategies import models, optimistic_tables, structures

SMALL = structures(max_states=16, max_actions=8, max_variables=3)


def policy_of(tables, basis: str, weights, discount: float, ties="random", seed=0, model=None):
    structure = tables.structure
    residual = BellmanResidual(
        structure,
        make_basis(structure, basis),
        optimistic=isinstance(tables, OptimisticTables),
        model=model,
    )
    residual.load(tables)
    return GreedyExtractor(residual).policy(weights / residual.unit, discount, ties, seed)


@st.composite
def questions(draw: st.DrawFn):
    model = draw(models(SMALL))
    basis = draw(st.sampled_from(("singles", "indicators", "pairs")))
    k = make_basis(model.structure, basis).size
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    weights = rng.integers(-2, 3, size=k) * 1.0 if draw(st.booleans()) else rng.normal(size=k)
    return model, basis, weights, draw(st.sampled_from((1.0, 0.9)))


def q_values(model: FactoredMDP, basis, weights, discount: float) -> np.ndarray:
    P, R = dense(model)  # [A, S, S], [A, S]
    return (R + discount * P @ (basis_matrix(model.structure, basis) @ weights)).T


@given(questions(), st.sampled_from(("random", "first", "last")), st.booleans())
def test_a_chosen_action_is_tied_for_the_best(program, ties: str, shared: bool) -> None:
    model, basis, weights, discount = program
    policy = policy_of(
        model, basis, weights, discount, ties, seed=7, model=model if shared else None
    )
    q = q_values(model, basis, weights, discount)
    structure = model.structure
    table = policy.tabulate().actions
    for index, state in enumerate(np.ndindex(*structure.state_sizes)):
        action = policy(state)
        joint = int(np.ravel_multi_index(action, structure.action_sizes))
        assert joint == table[index]
        # In units of the rewards; the size of the values enters by what rounding can do alone.
        gaps = (q[index].max() - q[index]) / structure.reward_unit
        assert gaps[joint] <= 2 * TIE_TOLERANCE
        if len(structure.action_sizes) == 1:
            # The rule of the exact planner, where no value lies at the edge of the tolerance.
            edge = TIE_TOLERANCE
            if ((gaps < 0.5 * edge) | (gaps > 2 * edge)).all():
                tied = np.flatnonzero(gaps < edge).tolist()
                key = state_key(state, structure.state_sizes)
                assert joint == choose_tied(tied, ties, 7, key)


@given(st.data())
def test_targets_are_eliminated_with_the_actions(data: st.DataObject) -> None:
    """The best action of the extended model, whose best target need not be known."""
    structure = data.draw(structures(max_states=8, max_actions=4, max_variables=3))
    tables = data.draw(optimistic_tables(structure))
    basis = data.draw(st.sampled_from(("singles", "indicators", "pairs")))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    weights = rng.normal(size=make_basis(structure, basis).size)
    policy = policy_of(tables, basis, weights, 0.9)
    q = q_values(tables.extended(), basis, weights, 0.9)
    best = q.reshape(structure.n_states, structure.n_actions, -1).max(axis=2)
    for index, action in enumerate(policy.tabulate().actions):
        assert best[index, action] >= best[index].max() - 1e-8 * (1 + abs(best[index].max()))


def independent_agents(n: int) -> FactoredMDP:
    """n machines that stay as they are, n actions that pay 1 whatever they do: all is tied."""
    scopes = tuple((i,) for i in range(n))
    structure = Structure((2,) * n, (2,) * n, scopes, tuple((n + i,) for i in range(n)))
    return FactoredMDP(structure, [np.eye(2)] * n, [np.ones(2)] * n)


def test_ties_of_many_action_variables() -> None:
    """2^40 tied joint actions, never enumerated: all first, all last, or spread by the seed."""
    model = independent_agents(40)
    state = (1, 0) * 20
    chosen = {
        (ties, seed): policy_of(model, "singles", np.zeros(40), 0.9, ties, seed)(state)
        for ties in ("first", "last", "random")
        for seed in (0, 1)
    }
    assert chosen["first", 0] == (0,) * 40
    assert chosen["last", 1] == (1,) * 40
    assert 8 <= sum(chosen["random", 0]) <= 32
    assert chosen["random", 0] != chosen["random", 1]


def test_an_idle_action_variable_follows_the_rule_too() -> None:
    structure = Structure((2,), (3, 2), ((0, 2),), ((2,),))
    model = FactoredMDP(structure, [np.full((4, 2), 0.5)], [np.array([0.0, 1.0])])
    for ties, idle in (("first", 0), ("last", 2)):
        assert policy_of(model, "singles", np.zeros(1), 0.9, ties)((0,)) == (idle, 1)
    seen = {policy_of(model, "singles", np.zeros(1), 0.9, "random", s)((0,)) for s in range(20)}
    assert seen == {(0, 1), (1, 1), (2, 1)}


@given(st.lists(st.integers(0, 2), min_size=1, max_size=60))
def test_the_compiled_key_is_the_key_of_the_tie_rule(state: list[int]) -> None:
    sizes = [3] * len(state)
    indexed = 3 ** len(state) <= 1 << 62
    compiled = compiled_key(np.array(state), np.array(sizes), indexed)
    assert int(compiled) == state_key(state, sizes)


@pytest.mark.parametrize("problem", ["circle:5", "machines:2", "star:4,dynamics=guestrin"])
def test_saved_policies_answer_the_same(problem: str, tmp_path) -> None:
    model = fmdp.problem(problem)
    basis = make_basis(model.structure, "indicators")
    weights = np.random.default_rng(1).normal(size=basis.size)
    policy = policy_of(model, "indicators", weights, 0.95, seed=3, model=model)
    path = tmp_path / "policy.npz"
    policy.save(path)
    loaded = load_policy(path, model.structure)
    assert isinstance(loaded, GreedyPolicy)
    assert loaded.tabulate() == policy.tabulate()
    with pytest.raises(FileProblem, match="policy for state sizes"):
        load_policy(path, fmdp.problem("circle:6").structure)


def test_large_models_keep_the_policy_as_functions() -> None:
    """2^60 states: asked at a state, one restart; the planner never made a table."""
    model = fmdp.problem("circle:60,dynamics=guestrin,reward=mean")
    policy = ALP(basis="singles").plan(model).policy
    assert isinstance(policy, GreedyPolicy)
    state = [1] * 60
    state[17] = 0
    assert policy(state) == (17,)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ((1, 0), "has 2 values; must have 3"),
        ((0, 2, 0), '"machine_1" is 2; must be in 0..1'),
        ((0.5, 0, 0), '"machine_0" is 0.5; must be in 0..1'),
    ],
)
def test_states_that_do_not_exist(state, message: str) -> None:
    policy = policy_of(fmdp.problem("circle:3"), "singles", np.zeros(3), 0.9)
    with pytest.raises(InvalidParameter, match=message):
        policy(state)
