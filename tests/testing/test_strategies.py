"""The strategies reach what they promise: `find` fails when no example has the property."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.testing import oracles
from fmdp.testing.strategies import (
    models,
    optimistic_pairs,
    policies,
    structures,
    values,
)

QUICK = settings(
    max_examples=400,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
    database=None,
    derandomize=True,
)


def parents(structure: Structure, i: int) -> set[int]:
    return {v for v in structure.transition_scopes[i] if v < structure.m}


def has_cycle(structure: Structure) -> bool:
    """Return whether the parent graph, self-loops ignored, has a directed cycle."""
    left = set(range(structure.m))
    while left:
        roots = {i for i in left if not (parents(structure, i) - {i}) & left}
        if not roots:
            return True
        left -= roots
    return False


STRUCTURES: dict[str, Callable[[Structure], bool]] = {
    "cyclic scopes": has_cycle,
    "several parents": lambda s: any(len(parents(s, i)) > 1 for i in range(s.m)),
    "a scope without its variable": lambda s: any(i not in parents(s, i) for i in range(s.m)),
    "an empty transition scope": lambda s: () in s.transition_scopes,
    "an empty reward scope": lambda s: () in s.reward_scopes,
    "no reward": lambda s: s.l == 0,
    "one value": lambda s: 1 in s.state_sizes and s.m > 1,
    "five values": lambda s: 5 in s.state_sizes,
    "two action variables": lambda s: len(s.action_sizes) > 1 and s.n_actions > 2,
    "an action variable without effect": lambda s: (
        not any(v == s.m for scope in s.transition_scopes for v in scope)
    ),
}


@pytest.mark.parametrize("what", STRUCTURES)
def test_structures_have(what: str) -> None:
    find(structures(), STRUCTURES[what], settings=QUICK)


def test_large_variables_can_be_asked_for() -> None:
    big = structures(max_variables=2, max_values=20, max_states=400)
    find(big, lambda s: s.max_state_size == 20, settings=QUICK)


def test_counts_stay_within_what_was_asked() -> None:
    @settings(max_examples=100, deadline=None)
    @given(structures(max_states=10, max_actions=3, min_variables=2))
    def check(structure: Structure) -> None:
        assert structure.n_states <= 10
        assert structure.n_actions <= 3
        assert structure.m >= 2

    check()


def is_periodic(model: FactoredMDP) -> bool:
    """Return whether every state returns to itself only after an even number of steps under all
    policies. The graph of all actions then has two colours."""
    support = (oracles.dense(model).transitions > 0).any(axis=0)
    if len(support) < 2:
        return False
    even = np.linalg.matrix_power((support @ support).astype(float), 40) > 0
    return not np.diag(support @ even).any()


MODELS: dict[str, Callable[[FactoredMDP], bool]] = {
    "deterministic": lambda m: all(set(np.unique(t)) <= {0.0, 1.0} for t in m.transitions),
    "zeros": lambda m: any(((t == 0).any() and ((t > 0) & (t < 1)).any()) for t in m.transitions),
    "periodic": is_periodic,
    "multichain": lambda m: np.ptp(oracles.optimal(oracles.dense(m)).gain) > 1e-3,
    "infinite diameter": lambda m: np.isinf(oracles.diameter(oracles.dense(m))),
    "finite diameter": lambda m: (
        m.structure.n_states > 4 and np.isfinite(oracles.diameter(oracles.dense(m)))
    ),
    "tiny probabilities": lambda m: any(((t > 0) & (t < 1e-4)).any() for t in m.transitions),
    "another start": lambda m: any(m.initial_state),
}


@pytest.mark.parametrize("what", MODELS)
def test_models_are(what: str) -> None:
    find(models(structures(max_states=12, max_values=3)), MODELS[what], settings=QUICK)


@settings(max_examples=60, deadline=None)
@given(models(rows=("positive",)))
def test_positive_rows_make_one_aperiodic_chain(model: FactoredMDP) -> None:
    assert all((table > 0).all() for table in model.transitions)


@settings(max_examples=60, deadline=None)
@given(optimistic_pairs())
def test_the_truth_is_in_the_set(pair: tuple[OptimisticTables, FactoredMDP]) -> None:
    tables, truth = pair
    for lower, free, row in zip(tables.lower, tables.free, truth.transitions, strict=True):
        assert (row >= lower - 1e-12).all()
        assert lower.sum(axis=1) + free == pytest.approx(np.ones(len(free)))
    for above, means in zip(tables.rewards, truth.rewards, strict=True):
        assert (above >= means).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_vectors_and_policies_fit_their_structure(data: st.DataObject) -> None:
    structure = data.draw(structures())
    h = data.draw(values(structure))
    assert h.shape == (structure.n_states,)
    assert np.isfinite(h).all()
    actions = data.draw(policies(structure))
    assert actions.shape == h.shape
    assert ((actions >= 0) & (actions < structure.n_actions)).all()
    additive = data.draw(values(structure, additive=True)).reshape(structure.state_sizes)
    # A sum of functions of single variables: its difference along an axis ignores the others.
    for axis in range(structure.m):
        steps = np.diff(additive, axis=axis)
        if steps.size:
            flat = np.moveaxis(steps, axis, 0).reshape(steps.shape[axis], -1)
            assert np.ptp(flat, axis=1).max() == pytest.approx(0, abs=1e-9)
