"""The pooled posterior: numbers by hand, limits, and how near it comes to the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import fmdp
from fmdp import Statistics
from fmdp.learning.dirichlet import log_likelihood
from fmdp.learning.kinds import Form, with_spread
from fmdp.learning.pooling import (
    CONCENTRATIONS,
    Pools,
    pooled,
    pools_of,
    posterior,
)
from fmdp.model.entries import entries_of


def pools_for(counts: np.ndarray, n_factors: int = 1) -> Pools:
    """Pools for counts [contexts, actions, values] of `n_factors`, each with a form of its own."""
    n_contexts, n_actions, _ = counts.shape
    rows = np.arange(n_contexts * n_actions).reshape(n_contexts, n_actions)
    cells = np.arange(counts.size).reshape(counts.shape)
    factor = np.arange(n_contexts) % n_factors
    forms = tuple(
        Form(rows[factor == f].T, np.arange(n_actions)) for f in range(min(n_factors, n_contexts))
    )
    return Pools(rows, cells, factor, rows % n_actions, np.arange(n_factors), forms)


def one_pool(counts: list[list[float]]) -> tuple[Pools, np.ndarray]:
    array = np.array([counts], dtype=np.float64)
    return pools_for(array), array


def test_the_likelihood_of_a_sequence() -> None:
    """Two successes and a failure under Beta(1, 1): integral of p^2 (1 - p) = 1/12."""
    found = log_likelihood(np.array([2.0, 1.0]), np.array([1.0, 1.0]))
    assert found == pytest.approx(math.log(1 / 12))
    # Under Beta(1/2, 1/2), one success: its mean.
    assert log_likelihood(np.array([1.0, 0.0]), np.array([0.5, 0.5])) == pytest.approx(
        math.log(0.5)
    )


def test_variances_add() -> None:
    # 1/5 + 1/20 = 1/4: four samples around a mean that is itself worth nineteen.
    assert with_spread(4.0, 1 / 20) == pytest.approx(3.0)
    # Columns that disagree completely: nearly all mass is on rows with one value.
    assert with_spread(1024.0, 1.0) == pytest.approx(0.01)
    # Nothing is known of the mean: hardly more than a prior of one sample.
    assert with_spread(1e12, 1 / 2) == pytest.approx(1.0)


def test_rows_that_look_alike_lend_each_other_their_samples() -> None:
    """Four rows with 50 of 100 successes; a fifth was never seen."""
    pools, counts = one_pool([[50, 50]] * 4 + [[0, 0]])
    mixture = pooled(pools, counts)
    mean = mixture.mean()[0]
    assert mean[:, 0] == pytest.approx([0.5] * 5)
    _, variance = mixture.moments(np.broadcast_to([0.0, 1.0], counts.shape))
    alone = 0.25 / 102
    assert (variance[0, :4] < 0.6 * alone).all()  # as of nearly twice as many samples
    assert variance[0, 4] < 0.3 * 0.25 / 2  # of what a row for itself has before it is seen


def test_a_row_that_differs_is_for_itself() -> None:
    """Restarting is one action of five: its row has nothing to do with the others."""
    pools, counts = one_pool([[10, 190]] * 4 + [[0, 50]])
    counts[0, 4] = [50, 0]
    mixture = pooled(pools, counts)
    assert mixture.odds[0, 0, 4] > 0.99
    assert mixture.mean()[0, 4, 0] == pytest.approx(50.5 / 51, abs=2e-3)
    assert mixture.mean()[0, 0, 0] == pytest.approx(0.05, abs=0.01)


def test_an_action_that_matters_in_one_context_is_believed_to_matter_in_others() -> None:
    """Three contexts of four actions. The last action differs from the others in two contexts; in
    the third, it has one sample, which says as little as one sample of another action would."""
    counts = np.empty((3, 4, 2))
    counts[:, :3] = [90, 10]
    counts[:2, 3] = [0, 50]
    counts[2, 2:] = [1, 0]
    mixture = pooled(pools_for(counts), counts)
    assert mixture.odds[0, 2, 3] > 2.0 * mixture.odds[0, 2, 2]
    _, variance = mixture.moments(np.broadcast_to([0.0, 1.0], counts.shape))
    assert variance[2, 3] > variance[2, 2]


@given(st.floats(0.01, 50.0), st.floats(0.0, 100.0))
def test_faded_counts_have_a_likelihood(parameter: float, count: float) -> None:
    """log Gamma(a + n) / Gamma(a), also if n is not a whole number."""
    counts, parameters = np.array([count, 0.0]), np.array([parameter, 1.0])
    total = parameter + 1.0
    expected = math.lgamma(parameter + count) - math.lgamma(parameter)
    expected -= math.lgamma(total + count) - math.lgamma(total)
    assert log_likelihood(counts, parameters) == pytest.approx(expected, abs=1e-9)


def test_five_failures_do_not_tell_a_row_from_its_pool() -> None:
    """0 of 5 where the others have 20 of 100: what it has to be, it may still be."""
    pools, counts = one_pool([[80, 20]] * 3 + [[5, 0]])
    mean, variance = pooled(pools, counts).moments(np.broadcast_to([0.0, 1.0], counts.shape))
    alone = 0.5 / 6
    assert mean[0, 3] > alone + 0.03
    assert mean[0, 3] + math.sqrt(variance[0, 3]) > 0.15


def test_a_neglected_row_is_believed_to_be_alike() -> None:
    """Odds of 3 : 1 that a row is independent, divided by 9, are 1 : 3. Odds of 0 and 1 do not
    change, and a factor of 1 changes nothing."""
    pools, counts = one_pool([[1, 3]] * 4)
    odds = np.array([[[0.75, 0.0, 1.0, 0.75]], [[0.25, 1.0, 0.0, 0.25]]])
    mixture = pooled(pools, counts)._replace(odds=odds)
    log_factor = np.array([[math.log(9.0), math.log(9.0), 100.0, 0.0]])
    believed = mixture.believed_alike(log_factor).odds
    assert believed[0, 0] == pytest.approx([0.25, 0.0, 1.0, 0.75])
    assert believed.sum(axis=0) == pytest.approx(np.ones((1, 4)))
    # However large the factor is.
    assert np.isfinite(mixture.believed_alike(np.full((1, 4), 1e6)).odds).all()


def test_factors_of_one_form_share_what_they_learn() -> None:
    """In the first of two factors all actions are alike. Two samples of each row of the other one
    say more for the same there, if it has the same form."""
    counts = np.array([[[90.0, 10.0]] * 4, [[2.0, 0.0], [1.0, 1.0], [2.0, 0.0], [2.0, 0.0]]])
    apart = pools_for(counts, n_factors=2)
    together = apart._replace(form_of=np.zeros(2, dtype=np.int64))
    independent = [pooled(pools, counts).odds[0, 1].max() for pools in (apart, together)]
    assert independent[1] < 0.9 * independent[0]


def test_one_row_is_a_row_with_a_prior_of_one_sample() -> None:
    pools, counts = one_pool([[3, 0, 1]])
    mixture = pooled(pools, counts)
    assert mixture.parameters[0, 0, 0] == pytest.approx([10 / 3, 1 / 3, 4 / 3])
    mean, variance = mixture.moments(np.broadcast_to([1.0, 0.0, 0.0], counts.shape))
    assert mean[0, 0] == pytest.approx(2 / 3)
    assert variance[0, 0] == pytest.approx((2 / 3) * (1 / 3) / 6)


@st.composite
def counted(draw: st.DrawFn) -> np.ndarray:
    shape = draw(st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4)))
    values = draw(
        st.lists(
            st.sampled_from([0, 0, 1, 2, 7, 100, 10**6]),
            min_size=math.prod(shape),
            max_size=math.prod(shape),
        )
    )
    return np.array(values, dtype=np.float64).reshape(shape)


@given(counted())
def test_it_is_a_posterior_whatever_was_counted(counts: np.ndarray) -> None:
    """Odds sum to 1, parameters are counts and something, and the assumption is never worth more
    than the largest concentration: |mean - frequency| <= kappa / (N + kappa) in every cell."""
    n_pools, n_rows, _ = counts.shape
    mixture = pooled(pools_for(counts, n_factors=2), counts)
    assert mixture.odds.sum(axis=0) == pytest.approx(np.ones((n_pools, n_rows)))
    assert (mixture.parameters > counts).all()
    mean, visits = mixture.mean(), counts.sum(axis=-1)[..., None]
    assert mean.sum(axis=-1) == pytest.approx(np.ones((n_pools, n_rows)))
    most = max(CONCENTRATIONS)
    frequency = np.divide(counts, visits, where=visits > 0, out=mean.copy())
    assert (np.abs(mean - frequency) <= most / (visits + most) + 1e-12).all()


@pytest.mark.slow
@given(counted(), st.randoms())
def test_the_order_of_rows_does_not_matter(counts: np.ndarray, random: object) -> None:
    """Equal numbers of visits are excepted: the first of these columns is sorted first."""
    totals = counts.sum(axis=(0, 2)).tolist()
    assume(len(set(totals)) == len(totals))
    pools = pools_for(counts)
    order = list(range(counts.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    straight, shuffled = pooled(pools, counts), pooled(pools, counts[:, order])
    assert shuffled.mean() == pytest.approx(straight.mean()[:, order], abs=1e-9)


def test_pools_hold_every_entry_once() -> None:
    """Rows that differ in the action alone are together; so they are in a circle of three."""
    s = fmdp.problem("circle:3").structure
    (pools,) = pools_of(s)
    assert pools.rows.shape == (3 * 4, 4)
    assert sorted(pools.rows.ravel()) == list(range(entries_of(s).n_transition_entries))
    # Row 4 z + a of machine 0: z counts (machine 0, machine 2), a is the machine restarted.
    assert pools.rows[1].tolist() == [4, 5, 6, 7]


@pytest.mark.parametrize("alike", ["rows", "machines"])
def test_classes_are_rows_and_stand_once(alike: str) -> None:
    s = fmdp.problem(f"circle:4,dynamics=guestrin,alike={alike}").structure
    rows = np.concatenate([pools.rows.ravel() for pools in pools_of(s)])
    assert sorted(rows) == list(range(entries_of(s).n_transition_entries))


def test_every_cell_has_a_posterior() -> None:
    model = fmdp.problem("riverswim:2")
    s = model.structure
    counts = Statistics(s).cell_counts
    cells = np.concatenate([mixture.pools.cells.ravel() for mixture in posterior(s, counts)])
    assert sorted(cells) == list(range(len(counts)))


@pytest.mark.parametrize(("dynamics", "most"), [("guestrin", 0.55), ("xu", 0.9)])
def test_pooled_rows_are_nearer_to_the_truth(dynamics: str, most: float) -> None:
    """After 300 random steps, in mean squared error over all rows, beside each row for itself; in
    `xu` no two rows are the same."""
    model = fmdp.problem(f"circle:5,dynamics={dynamics}")
    run = fmdp.simulate(model, "random", steps=300, seed=1, record=True)
    steps = run.trajectory
    assert steps is not None
    statistics = Statistics(model.structure)
    for t in range(300):
        statistics.record(steps.states[t], steps.actions[t], steps.rewards[t], steps.states[t + 1])
    truth = np.concatenate([table.ravel() for table in model.transitions])
    rows = np.empty_like(truth)
    for mixture in posterior(model.structure, statistics.cell_counts):
        rows[mixture.pools.cells] = mixture.mean()
    visits = statistics.transition_visits[statistics.entries.cell_entry]
    alone = (statistics.cell_counts + 0.5) / (visits + 1.0)
    assert ((rows - truth) ** 2).mean() < most * ((alone - truth) ** 2).mean()
