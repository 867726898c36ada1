"""Constraints inside the engine: maxima and minima over the allowed actions, by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.elimination.backup import Backup, backup_for
from fmdp.model import FactoredMDP, Forbidden, Structure, at_most
from fmdp.model.spaces import decode
from fmdp.testing import oracles
from fmdp.testing.strategies import (
    constrained,
    models,
    optimistic_tables,
    policies,
    structures,
    values,
)

SMALL = structures(max_states=12, max_actions=6, max_variables=3)


def brute(model: FactoredMDP, h: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[S, A] of R + P h and of what is allowed, pair by pair, by the words of the constraints."""
    s = model.structure
    worth = np.zeros((s.n_states, s.n_actions))
    allowed = np.zeros((s.n_states, s.n_actions), dtype=bool)
    for i, state in enumerate(itertools.product(*map(range, s.state_sizes))):
        for a, action in enumerate(itertools.product(*map(range, s.action_sizes))):
            law = np.ones(1)
            for k in range(s.m):
                law = np.kron(law, model.transition_row(k, state, action))
            worth[i, a] = model.expected_reward(state, action) + law @ h
            allowed[i, a] = s.allowed(state, action)
    return worth, allowed


@given(st.data())
def test_a_sweep_is_over_the_allowed_actions(data: st.DataObject) -> None:
    model = data.draw(models(constrained(SMALL)))
    s = model.structure
    h = data.draw(values(s))
    worth, allowed = brute(model, h)
    best = np.where(allowed, worth, -np.inf).max(axis=1)
    least = np.where(allowed, worth, np.inf).min(axis=1)
    learned = Backup(s)
    learned.load(model)
    for backup in (backup_for(model), learned):
        assert np.allclose(backup.apply(h), best, rtol=1e-12, atol=1e-9)
        found, actions = backup.greedy(
            h, ties=data.draw(st.sampled_from(("random", "first", "last")))
        )
        assert np.allclose(found, best, rtol=1e-12, atol=1e-9)
        s.check_policy(actions)
        assert np.allclose(worth[np.arange(s.n_states), actions], best, rtol=1e-9, atol=1e-6)
        out = np.empty(s.n_states)
        for _ in range(2):  # turning the rewards round leaves them as they were
            backup.lowest(backup.to_internal(h), out)
            assert np.allclose(backup.to_canonical(out), least, rtol=1e-12, atol=1e-9)
        assert np.allclose(backup.apply(h), best, rtol=1e-12, atol=1e-9)
        table = backup.action_values(h)
        assert np.array_equal(np.isfinite(table), allowed)
        assert np.allclose(table[allowed], worth[allowed], rtol=1e-12, atol=1e-9)


@given(st.data())
def test_allowed_numbers_are_those_without_constraints_to_the_bit(data: st.DataObject) -> None:
    structure = data.draw(constrained(SMALL))
    model = data.draw(models(structure))
    free = FactoredMDP(
        Structure(
            structure.state_sizes,
            structure.action_sizes,
            structure.transition_scopes,
            structure.reward_scopes,
            structure.reward_ranges,
        ),
        model.transitions,
        model.rewards,
    )
    h = data.draw(values(structure))
    policy = data.draw(policies(structure))
    bound, loose = Backup(structure), Backup(free.structure)
    bound.load(model)
    loose.load(free)
    if [g.members for g in bound.layout.groups] == [g.members for g in loose.layout.groups]:
        assert np.array_equal(bound.for_policy(h, policy), loose.for_policy(h, policy))


@given(st.data())
def test_optimistic_sweeps_are_over_the_allowed_actions(data: st.DataObject) -> None:
    tables = data.draw(
        optimistic_tables(constrained(structures(max_states=8, max_actions=4, max_variables=3)))
    )
    h = data.draw(values(tables.structure))
    nested = backup_for(tables)
    wanted = oracles.nested_values(tables, h, nested.layout.order).max(axis=0)
    assert np.allclose(nested.apply(h), wanted, rtol=1e-10, atol=1e-9)
    vertex = backup_for(tables.extended())
    wanted = oracles.vertex_values(tables, h).max(axis=0)
    assert np.allclose(vertex.apply(h), wanted, rtol=1e-10, atol=1e-9)


def test_many_joint_actions_are_never_written_out() -> None:
    n = 20
    model = FactoredMDP.from_factors(
        (2,) * 3,
        (2,) * n,
        [((i, 3 + i), [[[1, 0], [0, 1]], [[0.5, 0.5], [0, 1]]]) for i in range(3)],
        [((3 + a,), [0.0, a / n]) for a in range(n)],
    )
    capped = model.with_constraints(at_most(model, 2))
    backup = backup_for(capped)
    assert len(backup.layout.classes.actions) == 1 + n + n * (n - 1) // 2
    best, actions = backup.greedy(np.zeros(8))
    assert best == pytest.approx(np.full(8, (n - 1 + n - 2) / n))
    assert decode(int(actions[0]), (2,) * n) == (0,) * (n - 2) + (1, 1)


def test_rewards_as_large_as_they_may_be() -> None:
    """The charge is more than any reward, and a hundred of them are still a number."""
    big = 1e300
    model = FactoredMDP.from_factors(
        (2,),
        (2,),
        [((0, 1), [[[1, 0], [0, 1]], [[1, 0], [0, 1]]])],
        [((0, 1), [[-big, big], [-big, big]])],
        reward_ranges=[(-big, big)],
    )
    rules = [Forbidden((0, 1), np.array([False, True, False, True]), f"{i}") for i in range(300)]
    backup = backup_for(model.with_constraints(*rules))
    out = backup.apply(np.zeros(2))
    assert out.tolist() == [-big, -big]
    low = np.empty(2)
    backup.lowest(np.zeros(2), low)
    assert low.tolist() == [-big, -big]
