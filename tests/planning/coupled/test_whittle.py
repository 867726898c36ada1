"""Whittle indices: by hand, against published code, and by the definition."""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp import AtMost, Budget, FactoredMDP, Structure
from fmdp.errors import InvalidModel
from fmdp.planning.coupled import Coupled
from fmdp.planning.coupled.pricing import Criterion, action_values, solve_block
from fmdp.planning.coupled.whittle import block_indices, whittle_indices

from .fleets import fleet, gast, written_out


def test_parts_that_actions_do_not_move_have_the_difference_of_rewards_as_index() -> None:
    law = np.repeat(np.array([[0.3, 0.7], [0.6, 0.4]]), 2, axis=0)
    pay = np.array([0.1, 0.6, 0.2, -0.3])
    scopes = ((0, 2), (1, 3))
    structure = Structure(
        (2, 2), (2, 2), scopes, scopes, ((-1.0, 1.0),) * 2, constraints=(AtMost((2, 3), 1),)
    )
    (indices,) = whittle_indices(
        written_out(FactoredMDP(structure, [law, law], [pay, pay])), Criterion()
    )
    np.testing.assert_allclose(indices, [[0.5, -0.5]], atol=1e-12)


def test_indices_are_per_unit_of_the_budget() -> None:
    law, pay = np.ones((2, 1)), np.array([0.0, 0.6])
    scopes = ((0, 2), (1, 3))
    budget = Budget((2, 3), 3.0, ((0.0, 1.0), (0.0, 2.0)))
    structure = Structure((1, 1), (2, 2), scopes, scopes, constraints=(budget,))
    types = written_out(FactoredMDP(structure, [law, law], [pay, pay]))
    (indices,) = whittle_indices(types, Criterion())
    np.testing.assert_allclose(indices[:, 0], [0.6, 0.3], atol=1e-12)


def test_the_published_example() -> None:
    """Numbers of markovianbandit-pkg 0.4 (Gast, Gaujal & Khun 2023)."""
    indices, indexable = block_indices(written_out(gast(5)).blocks[0], Criterion())
    assert indexable.all()
    expected = [0.37401552, 0.1819942331224036, -0.02115715959047218]
    np.testing.assert_allclose(indices[0], expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_at_its_index_a_state_is_indifferent(seed: int) -> None:
    block = written_out(fleet(3, 3, 1, levels=4, seed=seed)).blocks[0]
    indices, indexable = block_indices(block, Criterion())
    for t in np.flatnonzero(indexable):
        for state in range(4):
            price = np.array([indices[t, state]])
            solved = solve_block(block, price, Criterion())
            values = action_values(block, price, solved.bias(price), np.arange(3))
            assert values[t, state, 0] == pytest.approx(values[t, state, 1], abs=1e-7)


def test_a_part_without_indices_is_named() -> None:
    """markovianbandit-pkg 0.4 finds part 3 of this fleet not indexable as well."""
    model = fleet(4, 4, 1, levels=3, seed=5, sparse=0.1)
    with pytest.raises(InvalidModel, match="the part of a3 has no Whittle index"):
        fmdp.plan(model, Coupled(policy="whittle"))


@pytest.mark.peers
@pytest.mark.parametrize("seed", range(5))
def test_the_peer_has_the_same_indices(seed: int) -> None:
    peer = pytest.importorskip("markovianbandit", reason="markovianbandit-pkg is not installed")
    block = written_out(fleet(4, 4, 1, levels=3 + seed, seed=seed)).blocks[0]
    indices, indexable = block_indices(block, Criterion())
    for t in range(4):
        bandit = peer.restless_bandit_from_P0P1_R0R1(
            block.transitions[t, :, 0],
            block.transitions[t, :, 1],
            block.rewards[t, :, 0],
            block.rewards[t, :, 1],
        )
        assert bandit.is_indexable() == indexable[t]
        if indexable[t]:
            np.testing.assert_allclose(indices[t], bandit.whittle_indices(), atol=1e-9)
        discounted, _ = block_indices(block, Criterion(0.9))
        theirs = bandit.whittle_indices(discount=0.9)
        np.testing.assert_allclose(discounted[t], theirs, atol=1e-9)
