"""The backup over counts is the backup over joint states."""

from __future__ import annotations

import numpy as np
import pytest

from fmdp.elimination.backup import backup_for
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.model.spaces import all_assignments
from fmdp.planning.counts.backup import CountBackup
from fmdp.planning.counts.quotient import Quotient
from fmdp.problems import problem
from fmdp.testing.exchangeable import exchangeable_model

PROBLEMS = (
    "star:7,dynamics=guestrin",
    "three-leg:7,dynamics=ippc",
    "maintenance:4,levels=3",
    "maintenance:4,levels=3,crew=2",
    "machines:3,topology=star",
    "network:5,dynamics=ippc",
)


def quotient_of(model: FactoredMDP) -> Quotient:
    parts, _ = exchangeable_parts(model)
    assert parts is not None
    return Quotient(parts)


def assert_same_backup(model: FactoredMDP, seed: int) -> None:
    """Compare both backups of a random function of the counts, in all joint states."""
    quotient = quotient_of(model)
    h = np.random.default_rng(seed).normal(size=quotient.n_states)
    image = np.empty_like(h)
    CountBackup(quotient).sweep(h, image)
    numbers = quotient.space.states_of(all_assignments(model.structure.state_sizes))
    wanted = backup_for(model).apply(h[numbers])
    np.testing.assert_allclose(image[numbers], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_backup_of_a_problem_is_that_of_its_joint_states(name: str) -> None:
    assert_same_backup(problem(name), 0)


@pytest.mark.parametrize("seed", range(40))
def test_the_backup_of_a_random_model_is_that_of_its_joint_states(seed: int) -> None:
    assert_same_backup(exchangeable_model(np.random.default_rng(seed)), seed)


def test_the_written_out_quotient_has_the_same_backup() -> None:
    backup = CountBackup(quotient_of(problem("star:7,dynamics=guestrin")))
    table = backup.written_out(1 << 20)
    assert table is not None
    np.testing.assert_allclose(table.probabilities.sum(axis=2), 1.0, atol=1e-13)
    h = np.random.default_rng(0).normal(size=backup.n_states)
    image = np.empty_like(h)
    backup.sweep(h, image)
    np.testing.assert_allclose(table.advantages(h)[0].max(axis=1) + h, image, atol=1e-13)


def test_the_backup_of_a_policy_is_a_column_of_the_values() -> None:
    backup = CountBackup(quotient_of(problem("maintenance:4,levels=3,crew=2")))
    h = np.random.default_rng(0).normal(size=backup.n_states)
    values = backup.action_values(h)
    moves = values.argmin(axis=1)
    image = np.empty_like(h)
    with pytest.raises(InvalidParameter, match="is not possible in state"):
        backup.policy_sweep(h, image, moves)
    moves = np.where(np.isfinite(values), values, np.inf).argmin(axis=1)
    backup.policy_sweep(h, image, moves)
    np.testing.assert_array_equal(image, values[np.arange(len(h)), moves])


def test_star_has_two_counts_per_leaf() -> None:
    """Counts of working leaves 0 .. 11, and a hub that works or not."""
    assert quotient_of(problem("star:12,dynamics=guestrin")).n_states == 24


def test_examples_have_the_counts_that_they_are_examples_of() -> None:
    space = quotient_of(problem("three-leg:7,dynamics=ippc")).space
    examples = np.array([space.example(number) for number in range(space.n_states)])
    np.testing.assert_array_equal(space.states_of(examples), np.arange(space.n_states))
    assert space.weights.sum() == pytest.approx(1.0)


def test_too_many_pairs_are_refused_before_they_are_listed() -> None:
    parts, _ = exchangeable_parts(problem("maintenance:40,levels=4,k=0,setup=0"))
    assert parts is not None
    with pytest.raises(TooLarge, match=r"planning on 12,341 counts needs .* for its pairs"):
        Quotient(parts, memory_limit=1 << 28)
