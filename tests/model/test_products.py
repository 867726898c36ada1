"""Products, permutations and flattening, against Kronecker products and a brute-force flat MDP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import (
    FactoredMDP,
    Noise,
    Structure,
    flat_model,
    flatten,
    permute_states,
    product,
)
from fmdp.testing import oracles
from fmdp.testing.strategies import models, structures

TINY = models(structures(max_variables=2, max_states=6, max_actions=3))


@st.composite
def named_models(draw: st.DrawFn) -> FactoredMDP:
    """Models with names, value names and groups of their own."""
    model = draw(models())
    s = model.structure
    cut = draw(st.integers(0, s.m))
    members = draw(st.permutations(range(s.m)))
    groups = [group for group in (members[:cut], members[cut:]) if group]
    structure = replace(
        s,
        state_names=tuple(f"state {i}" for i in range(s.m)),
        state_values=tuple(
            tuple(f"v{i}.{value}" for value in range(size)) for i, size in enumerate(s.state_sizes)
        ),
        groups=tuple(tuple(group) for group in groups),
    )
    return FactoredMDP(
        structure, model.transitions, model.rewards, model.noise, model.initial_state, model.name
    )


@given(models())
def test_flatten_is_the_flat_mdp_by_direct_products(model: FactoredMDP) -> None:
    flat, brute = flatten(model), oracles.dense(model)
    np.testing.assert_allclose(flat.transitions, brute.transitions, rtol=1e-13, atol=0)
    np.testing.assert_allclose(flat.rewards, brute.rewards, rtol=0, atol=1e-13)


@given(TINY, TINY)
def test_the_flat_product_is_the_kronecker_product(a: FactoredMDP, b: FactoredMDP) -> None:
    both, flat_a, flat_b = flatten(product(a, b)), flatten(a), flatten(b)
    np.testing.assert_allclose(
        both.transitions, np.kron(flat_a.transitions, flat_b.transitions), rtol=1e-13, atol=0
    )
    ones_a, ones_b = np.ones_like(flat_a.rewards), np.ones_like(flat_b.rewards)
    total = np.kron(flat_a.rewards, ones_b) + np.kron(ones_a, flat_b.rewards)
    np.testing.assert_allclose(both.rewards, total, rtol=0, atol=1e-12)


@given(TINY, TINY, TINY)
def test_products_are_associative(a: FactoredMDP, b: FactoredMDP, c: FactoredMDP) -> None:
    assert product(product(a, b), c) == product(a, product(b, c)) == product(a, b, c)
    assert product(a) == a


def test_a_product_by_hand() -> None:
    a = FactoredMDP.from_factors(
        (2,),
        (2,),
        [([0, 1], np.full((2, 2, 2), 0.5))],
        [([0], [0, 1])],
        noise=Noise("bernoulli"),
        initial_state=(1,),
        groups=[[0]],
        name="left",
    )
    b = FactoredMDP.from_factors((3,), (1,), [([1], [[0.2, 0.3, 0.5]])], name="right")
    both = product(a, b)
    s = both.structure
    assert (s.state_sizes, s.action_sizes) == ((2, 3), (2, 1))
    assert s.transition_scopes == ((0, 2), (3,))
    assert s.reward_scopes == ((0,),)
    assert s.names == ("s0", "s1", "a0", "a1")
    assert s.groups == ((0,),)
    assert both.initial_state == (1, 0)
    assert both.noise == (Noise("bernoulli"),)
    assert both.name == "left x right"


def test_names_that_clash_in_a_product_are_told_apart() -> None:
    def one(state: str, reward: str) -> FactoredMDP:
        structure = Structure(
            (2,), (2,), ((),), ((),), state_names=(state,), reward_names=(reward,)
        )
        return FactoredMDP(structure, [[1, 0]], [0])

    different = product(one("x", "p"), one("y", "q")).structure
    assert different.state_names == ("x", "y")
    assert different.action_names == ("a0", "a1")
    assert different.reward_names == ("p", "q")
    same = product(one("x", "p"), one("x", "p")).structure
    assert same.names == ("x.0", "x.1", "a0.0", "a0.1")
    assert same.reward_names == ("p.0", "p.1")
    # A state called "a1" clashes with the second action once actions are numbered anew.
    assert product(one("a1", "p"), one("y", "q")).structure.names == ("a1.0", "y.1", "a0.0", "a0.1")


def test_the_product_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="at least one"):
        product()


@given(named_models(), st.data())
def test_a_permuted_model_is_the_same_mdp_with_states_renumbered(
    model: FactoredMDP, data: st.DataObject
) -> None:
    s = model.structure
    order = data.draw(st.permutations(range(s.m)))
    permuted = permute_states(model, order)
    t = permuted.structure
    brute, new = oracles.dense(model), oracles.dense(permuted)
    # Index of the old state for every new state.
    old = np.arange(s.n_states).reshape(s.state_sizes).transpose(order).ravel()
    np.testing.assert_allclose(
        new.transitions, brute.transitions[:, old][:, :, old], rtol=1e-13, atol=0
    )
    np.testing.assert_allclose(new.rewards, brute.rewards[:, old], rtol=0, atol=1e-13)
    assert t.state_names == tuple(s.state_names[i] for i in order)
    assert t.state_values == tuple(s.state_values[i] for i in order)
    assert permuted.initial_state == tuple(model.initial_state[i] for i in order)
    assert {frozenset(t.names[v] for v in group) for group in t.groups} == {
        frozenset(s.names[v] for v in group) for group in s.groups
    }
    assert (permuted.noise, permuted.name) == (model.noise, model.name)


@given(named_models(), st.data())
def test_permuting_back_gives_the_same_model(model: FactoredMDP, data: st.DataObject) -> None:
    m = model.structure.m
    order = data.draw(st.permutations(range(m)))
    back = [order.index(i) for i in range(m)]
    assert permute_states(permute_states(model, order), back) == model
    assert permute_states(model, range(m)) == model


@given(TINY, TINY)
def test_products_commute_up_to_a_permutation(a: FactoredMDP, b: FactoredMDP) -> None:
    """Swapping the parts moves the states; actions and rewards move too, so compare flat."""
    m, n = a.structure.m, b.structure.m
    swapped = permute_states(product(b, a), [*range(n, n + m), *range(n)])
    flat, other = flatten(product(a, b)), flatten(swapped)
    actions = (
        np.arange(a.structure.n_actions * b.structure.n_actions)
        .reshape(b.structure.n_actions, a.structure.n_actions)
        .T.ravel()
    )
    np.testing.assert_allclose(flat.transitions, other.transitions[actions], rtol=1e-13, atol=0)
    np.testing.assert_allclose(flat.rewards, other.rewards[actions], rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", [(0,), (0, 0), (0, 2), (1, 0.0), (1, 0, 2)])
def test_an_order_that_is_no_permutation_is_refused(order: Any) -> None:
    model = FactoredMDP.from_factors((2, 2), (1,), [((), [1, 0]), ((), [1, 0])])
    with pytest.raises(InvalidParameter, match=r"must be a permutation .* 0\.\.1"):
        permute_states(model, order)


@given(models())
def test_the_flat_model_has_the_same_flat_mdp(model: FactoredMDP) -> None:
    s = model.structure
    one = flat_model(model)
    assert one.structure.state_sizes == (s.n_states,)
    assert one.structure.action_sizes == (s.n_actions,)
    assert one.structure.l == 1
    assert one.structure.reward_range_total == pytest.approx(s.reward_range_total)
    flat, again = flatten(model), flatten(one)
    np.testing.assert_allclose(again.transitions, flat.transitions, rtol=1e-12, atol=0)
    np.testing.assert_allclose(again.rewards, flat.rewards, rtol=0, atol=1e-12)
    assert one.initial_state == (np.ravel_multi_index(model.initial_state, s.state_sizes),)
    assert one.noise == ((model.noise[0],) if s.l == 1 else (Noise(),))


def test_flattening_is_refused_above_the_limit() -> None:
    n = 20
    model = FactoredMDP.from_factors((2,) * n, (3,), [((), [0.5, 0.5])] * n)
    with pytest.raises(TooLarge, match="1048576 states and 3 actions") as caught:
        flatten(model)
    assert caught.value.needed_bytes == 8 * 3 * 2**20 * (2**20 + 1)
    assert caught.value.limit_bytes == 2**30
    small = FactoredMDP.from_factors((2,), (3,), [((), [0.5, 0.5])])
    with pytest.raises(TooLarge, match="143 are allowed"):
        flat_model(small, limit_bytes=143)
    assert flat_model(small, limit_bytes=144).structure.n_states == 2
