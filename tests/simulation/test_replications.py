"""The statistics of independent runs, on numbers that can be checked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fmdp.simulation.replications import accepted_batches, counted, interval, unseen_share

RUNS = 16
T_15 = 3.286039
"""The .9975 quantile of Student's t with 15 degrees of freedom (from tables)."""


def test_what_was_not_seen_follows_the_rule_of_three() -> None:
    assert unseen_share(1000, 0.05) == pytest.approx(3 / 1000, rel=0.01)
    # Half a chance per batch is missed by three batches with probability 1/8.
    assert unseen_share(3, 1 / 8) == pytest.approx(0.5)
    for batches, alpha in ((7, 0.01), (1 << 20, 0.005)):
        missed = (1.0 - unseen_share(batches, alpha)) ** batches
        assert missed == pytest.approx(alpha, rel=1e-6)


def test_independent_batches_are_accepted_as_they_are() -> None:
    means = np.random.default_rng(0).normal(size=(RUNS, 256))
    assert accepted_batches(means) == 256


@pytest.mark.parametrize("memory", [2, 4, 8, 16])
def test_batches_shorter_than_the_memory_are_joined(memory: int) -> None:
    independent = np.random.default_rng(1).normal(size=(RUNS, 512 // memory))
    assert accepted_batches(np.repeat(independent, memory, axis=1)) == 512 // memory


def test_a_memory_of_more_than_an_eighth_of_a_run_is_not_accepted() -> None:
    independent = np.random.default_rng(2).normal(size=(RUNS, 4))
    assert accepted_batches(np.repeat(independent, 64, axis=1)) is None
    assert interval(np.repeat(independent, 64, axis=1), (-9.0, 9.0), 0.99) is None


def test_runs_that_disagree_give_no_interval() -> None:
    means = np.random.default_rng(3).normal(0.0, 0.01, size=(RUNS, 256))
    assert interval(means, (-1.0, 1.0), 0.99) is not None
    means[5] += 0.1  # one run of sixteen in another room
    assert interval(means, (-1.0, 1.0), 0.99) is None


def test_runs_that_drift_give_no_interval() -> None:
    means = np.random.default_rng(4).normal(0.0, 0.01, size=(RUNS, 256))
    assert interval(means + np.linspace(0.0, 0.1, 256), (-1.0, 1.0), 0.99) is None


def test_few_batches_give_no_interval() -> None:
    assert accepted_batches(np.zeros((RUNS, 8))) == 8
    assert accepted_batches(np.zeros((RUNS, 4))) is None


def test_the_first_eighth_is_not_counted() -> None:
    assert counted(np.arange(16.0)[None]).tolist() == [list(range(2, 16))]
    assert counted(np.arange(8.0)[None]).tolist() == [list(range(1, 8))]


def test_without_luck_the_interval_is_what_was_not_seen() -> None:
    means = np.tile([0.5, 0.5, 0.4, 0.6, 0.4, 0.6, 0.5, 0.5], (RUNS, 1))
    found = interval(means, (0.0, 1.0), 0.99)
    # All runs have the mean .5; 16 x 7 batches were counted, and .005^(1/112) = .9538.
    assert found is not None
    assert found.batches == 8
    assert found.lower == pytest.approx(0.5 * 0.005 ** (1 / 112))
    assert found.upper == pytest.approx(1.0 - found.lower)


def test_without_reach_the_interval_is_students() -> None:
    """Certified bounds far away in one direction would widen it; here they are where the mean is
    plus or minus little, so the share of what was not seen hardly counts."""
    generator = np.random.default_rng(5)
    means = generator.normal(size=(RUNS, 1 << 12))
    found = interval(means, (-1.0, 1.0), 0.99)
    of_runs = counted(means).mean(axis=1)
    half = T_15 * of_runs.std(ddof=1) / 4
    unseen = 1.0 - 0.005 ** (1 / (RUNS * 3584))
    assert found is not None
    mean = of_runs.mean()
    assert found.lower == pytest.approx((1 - unseen) * (mean - half) - unseen, rel=1e-6)
    assert found.upper == pytest.approx((1 - unseen) * (mean + half) + unseen, rel=1e-6)


def test_rounding_is_no_disagreement() -> None:
    means = 0.6 + 1e-16 * np.random.default_rng(6).integers(0, 3, size=(RUNS, 64))
    means[3] += 2e-16
    found = interval(means, (0.6, 0.6), 0.99, rounding=1e-13)
    assert found is not None
    assert (found.lower, found.upper) == (0.6, 0.6)
    within = interval(means, (0.0, 1.0), 0.99, rounding=1e-13)
    assert within is not None
    assert within.lower < 0.6 - 1e-13 < 0.6 + 1e-13 < within.upper


@pytest.mark.parametrize("probability", [0.0005, 0.003, 0.01, 0.05, 0.5])
def test_the_coverage_of_rare_batches(probability: float) -> None:
    """Batches that pay 1 with a small probability and else 0: far from normal, and often unseen.
    Student's t alone covers much less, which shows that the test can fail."""
    generator = np.random.default_rng(7)
    repetitions, covered, student = 400, 0, 0
    for _ in range(repetitions):
        means = (generator.random((RUNS, 64)) < probability).astype(float)
        found = interval(means, (0.0, 1.0), 0.99)
        of_runs = counted(means).mean(axis=1)
        half = T_15 * of_runs.std(ddof=1) / math.sqrt(RUNS)
        student += abs(of_runs.mean() - probability) <= half
        covered += found is None or found.lower <= probability <= found.upper
    assert covered >= 0.985 * repetitions
    if probability <= 0.003:
        assert student < 0.97 * repetitions
