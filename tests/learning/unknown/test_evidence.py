"""Counts and scores of candidate scopes, against counting one by one."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import gammaln, logsumexp

from fmdp.errors import TooLarge
from fmdp.learning.unknown import evidence as evidence_module
from fmdp.learning.unknown.evidence import Evidence
from fmdp.learning.unknown.scores import log_likelihood
from fmdp.model import Structure


def structure(states: tuple[int, ...], actions: tuple[int, ...]) -> Structure:
    return Structure(states, actions, [()] * len(states), [()])


STRUCTURE = structure((2, 3, 2), (3, 2))


def steps_of(seed: int, n: int) -> Any:
    drawn = np.random.default_rng(seed)
    sizes = (*STRUCTURE.sizes, *STRUCTURE.state_sizes)
    return drawn.integers(0, sizes, size=(n, len(sizes)))


def fill(evidence: Evidence, steps: Any) -> None:
    for step in steps:
        evidence.append(step[:5], step[5:])


def by_hand(steps: Any, scope: tuple[int, ...], i: int) -> Any:
    shape = [STRUCTURE.sizes[v] for v in scope]
    table = np.zeros((*shape, STRUCTURE.state_sizes[i]), dtype=int)
    for step in steps:
        table[(*(step[v] for v in scope), step[5 + i])] += 1
    return table.reshape(-1, STRUCTURE.state_sizes[i])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), n=st.integers(0, 60), parts=st.integers(1, 4))
def test_tables_are_the_counts_of_the_steps(seed: int, n: int, parts: int) -> None:
    evidence, steps = Evidence(STRUCTURE, 2, 1), steps_of(seed, n)
    for part in np.array_split(steps, parts):  # counted in several passes
        fill(evidence, part)
        evidence.scores()
    for scope in evidence.sets:
        for i in range(3):
            assert np.array_equal(evidence.counts(i, scope), by_hand(steps, scope, i))


def test_any_other_scope_is_counted_later() -> None:
    evidence, steps = Evidence(STRUCTURE, 1, 1), steps_of(1, 40)
    fill(evidence, steps)
    scope = (0, 1, 2, 3, 4)
    assert scope not in evidence.place
    assert np.array_equal(evidence.counts(1, scope), by_hand(steps, scope, 1))


def test_the_candidates_are_all_sets_within_the_bounds() -> None:
    evidence = Evidence(STRUCTURE, 2, 1)
    expected = {
        states + actions
        for k in (0, 1, 2)
        for states in itertools.combinations(range(3), k)
        for actions in ((), (3,), (4,))
    }
    assert set(evidence.sets) == expected
    assert len(evidence.sets) == len(expected)
    assert [len(scope) for scope in evidence.sets] == sorted(map(len, evidence.sets))


def log_marginal(counts: Any) -> float:
    """Return the log-probability of [rows, values] under Dirichlet(1/r, ..., 1/r) rows."""
    prior = 1.0 / counts.shape[1]
    cells = gammaln(prior + counts) - gammaln(prior)
    return float(cells.sum() - gammaln(1.0 + counts.sum(axis=1)).sum())


def test_scores_are_mixtures_of_dirichlet_multinomial_probabilities() -> None:
    """No action, one of them, or all of them have rows of their own."""
    evidence, steps = Evidence(STRUCTURE, 2, 1), steps_of(7, 80)
    fill(evidence, steps)
    scores, fits = evidence.scores()
    for z, scope in enumerate(evidence.sets):
        actions = math.prod(STRUCTURE.sizes[v] for v in scope if v >= 3)
        for i, size in enumerate(STRUCTURE.state_sizes):
            counts = by_hand(steps, scope, i)
            table = counts.reshape(-1, actions, size)
            cases = [log_marginal(table.sum(axis=1)), log_marginal(counts)]
            if actions > 2:
                one_apart = [
                    log_marginal(table[:, a]) + log_marginal(np.delete(table, a, 1).sum(axis=1))
                    for a in range(actions)
                ]
                cases.append(logsumexp(one_apart) - math.log(actions))
            expected = logsumexp(cases) - math.log(len(cases))
            assert scores[z, i] == pytest.approx(expected, rel=1e-12)
            visited = counts[counts.sum(axis=1) > 0]
            assert fits[z, i] == pytest.approx(log_likelihood(visited), rel=1e-12)


def test_scores_are_probabilities_of_sequences() -> None:
    """Summed over all next values of five steps with given actions, they add up to 1."""
    total = 0.0
    for values in itertools.product((0, 1), repeat=5):
        evidence = Evidence(structure((2,), (3,)), 1, 1)
        for t, (before, after) in enumerate(itertools.pairwise((0, *values))):
            evidence.append(np.array([before, t % 3]), np.array([after]))
        total += np.exp(evidence.scores()[0][:, 0])
    assert total == pytest.approx(np.ones(4))


def test_one_score_by_hand() -> None:
    """No parents and the next values 0, 1, 1 under Dirichlet(1/2, 1/2): 1/2 * 1/4 * 1/2."""
    evidence = Evidence(structure((2,), (1,)), 0, 0)
    for value in (0, 1, 1):
        evidence.append(np.array([0, 0]), np.array([value]))
    scores, fits = evidence.scores()
    assert scores[0, 0] == pytest.approx(math.log(1 / 2 * (1 / 2) / 2 * (3 / 2) / 3))
    assert fits[0, 0] == pytest.approx(math.log(1 / 3) + 2 * math.log(2 / 3))


def test_too_many_candidates_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(TooLarge, match="lower parents") as refused:
        Evidence(structure((2,) * 60, (61,)), 12, 1, "learner slf-ucrl")
    assert "\n" not in str(refused.value)
    assert "at most 12 of 60 state variables" in str(refused.value)
    # The prediction is the size of the tables, and 64 bytes per set and variable besides.
    monkeypatch.setattr(evidence_module, "available_memory", lambda: 0)
    with pytest.raises(TooLarge) as predicted:
        Evidence(STRUCTURE, 2, 1)
    monkeypatch.undo()
    evidence = Evidence(STRUCTURE, 2, 1)
    tables = sum(evidence.table(scope).nbytes for scope in evidence.sets)
    assert predicted.value.needed_bytes == tables + (300 + 64 * 3) * len(evidence.sets)
