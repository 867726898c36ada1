"""Symmetries: what is found is one, number for number, and what is not one is refused."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

import fmdp
from fmdp import flatten
from fmdp._base.deadlines import Deadline, TimeUp
from fmdp.model import FactoredMDP, product
from fmdp.model.groups import Groups
from fmdp.model.spaces import all_assignments, encode
from fmdp.model.symmetry import Renumbering, is_symmetry, symmetry_of
from fmdp.problems import problem
from fmdp.testing.strategies import models

SYMMETRIC = {
    # One orbit of machines; two kinds of action: restart one, do nothing.
    "circle:6,dynamics=guestrin": (1, (2,)),
    "circle:6,dynamics=ippc": (1, (2,)),
    "bi-ring:6,dynamics=talebi": (1, (2,)),
    # The hub and the leaves; restart either, or nothing.
    "star:6,dynamics=guestrin": (2, (3,)),
    # The root and three legs of two.
    "three-leg:7,dynamics=guestrin": (3, (4,)),
    # Depths of a tree.
    "tree:7,dynamics=guestrin": (3, (4,)),
    # Status and load; each machine has its own action, and all joint actions stay.
    "machines:4": (2, (2, 2, 2, 2)),
    "jao:3": (1, (2, 2, 2)),
    "large-diameter": (1, (2, 2)),
}


@pytest.mark.parametrize("name", SYMMETRIC)
def test_known_symmetries_are_found(name: str) -> None:
    found = symmetry_of(problem(name))
    assert found is not None
    orbits, action_sizes = SYMMETRIC[name]
    assert len(set(found.leaders)) == orbits
    assert found.reduced.structure.action_sizes == action_sizes


@pytest.mark.parametrize(
    "name", ["circle:5", "circle:5,dynamics=guestrin,server=2", "random:5,seed=3"]
)
def test_where_machines_differ_there_is_none(name: str) -> None:
    assert symmetry_of(problem(name)) is None


def residuals(model: FactoredMDP, h: np.ndarray) -> np.ndarray:
    """R + P h - h of the dense model, [A, S]."""
    dense = flatten(model)
    return dense.rewards + dense.transitions @ h - h


def image(renumbering: Renumbering, state: np.ndarray, action: np.ndarray) -> tuple[list, list]:
    """Where a state and an action go, by the definition."""
    states, actions = [0] * len(state), [0] * len(action)
    for i, value in enumerate(state):
        states[renumbering.states[i]] = int(value)
    for v, value in enumerate(action):
        actions[renumbering.actions[v]] = renumbering.action_values[v][int(value)]
    return states, actions


SMALL = [name for name in SYMMETRIC if name != "machines:4"]


@pytest.mark.parametrize("name", [*SMALL, "riverswim:2", "machines:2"])
def test_residuals_are_the_same_at_images(name: str) -> None:
    """Against the dense model: for an h that is the same at images, so is R + P h - h."""
    model = problem(name)
    structure = model.structure
    found = symmetry_of(model)
    assert found is not None
    states = all_assignments(structure.state_sizes)
    actions = all_assignments(structure.action_sizes)
    orbit = Groups(len(states))
    for renumbering, state in itertools.product(found.renumberings, states):
        there, _ = image(renumbering, state, actions[0])
        orbit.join(
            encode(tuple(state), structure.state_sizes), encode(there, structure.state_sizes)
        )
    h = np.random.default_rng(0).normal(size=len(states))[orbit.leaders()]
    dense = residuals(model, h)  # [A, S]
    for renumbering in found.renumberings:
        for s, a in itertools.product(range(len(states)), range(len(actions))):
            to_state, to_action = image(renumbering, states[s], actions[a])
            to = dense[
                encode(to_action, structure.action_sizes), encode(to_state, structure.state_sizes)
            ]
            assert to == pytest.approx(dense[a, s], abs=1e-12)
    # So the reduced model, with fewer actions, has the same largest residual.
    assert residuals(found.reduced, h).max() == pytest.approx(dense.max(), abs=1e-12)


@given(models())
@settings(max_examples=30, deadline=None)
def test_a_model_beside_itself_has_the_exchange(model: FactoredMDP) -> None:
    twice = product(model, model)
    found = symmetry_of(twice)
    structure = twice.structure
    if structure.constraints or structure.effects is not None or twice.intervals is not None:
        assert found is None
        return
    assert found is not None
    m = model.structure.m
    sizes = Counter(found.leaders[i] for i in range(2 * m))
    assert all(size >= 2 for size in sizes.values())
    assert all(is_symmetry(twice, one) for one in found.renumberings)
    # The control: one number moved, and what sends its factor elsewhere is no symmetry any more.
    rewards = [np.array(table) for table in twice.rewards]
    if not rewards:
        return
    low, high = structure.reward_ranges[0]
    rewards[0][0] = low if rewards[0][0] > (low + high) / 2 else high
    moved = FactoredMDP.trusted(structure, [np.array(t) for t in twice.transitions], rewards)
    scope = structure.reward_scopes[0]
    if rewards[0][0] != twice.rewards[0][0]:
        away = [one for one in found.renumberings if one.scope(scope) != scope]
        assert not any(is_symmetry(moved, one) for one in away)


def test_what_is_no_symmetry_is_refused() -> None:
    model = problem("circle:4,dynamics=guestrin")
    turned, still = (1, 2, 3, 0), (0, 1, 2, 3)
    right = Renumbering(turned, (0,), ((1, 2, 3, 0, 4),))
    assert is_symmetry(model, right)
    assert not is_symmetry(model, Renumbering(turned, (0,), ((0, 1, 2, 3, 4),)))  # other restarts
    assert not is_symmetry(model, Renumbering((3, 2, 1, 0), (0,), ((3, 2, 1, 0, 4),)))  # mirrored
    assert is_symmetry(model, Renumbering(still, (0,), ((0, 1, 2, 3, 4),)))
    # Factors that share a scope may change places, but each has one partner.
    rewards = (*model.rewards[:3], 0.5 * model.rewards[3])
    uneven = FactoredMDP.trusted(model.structure, list(model.transitions), list(rewards))
    assert not is_symmetry(uneven, right)
    assert symmetry_of(uneven) is None


def test_scopes_are_closed() -> None:
    found = symmetry_of(problem("circle:4,dynamics=guestrin"))
    assert found is not None
    assert found.closed([(0, 1)]) == ((0, 1), (0, 3), (1, 2), (2, 3))
    assert found.closed([(0, 2)]) == ((0, 2), (1, 3))


def test_constraints_and_intervals_are_left_alone() -> None:
    free = problem("jao:2")
    assert symmetry_of(free) is not None
    bound = free.with_constraints(fmdp.at_most(free, 1))
    assert symmetry_of(bound) is None


def test_many_equal_variables_need_few_symmetries() -> None:
    """The memory of one symmetry for each of n variables would grow as n^2."""
    found = symmetry_of(problem("jao:100"))
    assert found is not None
    assert set(found.leaders) == {0}
    assert len(found.renumberings) < 50
    assert all(is_symmetry(found.model, renumbering) for renumbering in found.renumberings)


def test_the_search_ends_at_the_deadline() -> None:
    with pytest.raises(TimeUp):
        symmetry_of(problem("jao:100"), Deadline.after(0.0))
