"""Intervals: by hand, against the definition, and how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

import fmdp
from fmdp.logs.intervals import mean_width, proportion_interval, shares


def array(value: float) -> np.ndarray:
    return np.array([value], dtype=np.float64)


def test_by_hand() -> None:
    """No hit in n: 1 - (d/2)^(1/n); all hits: its mirror; no visit: nothing is known."""
    lower, upper = proportion_interval(array(0), array(10), array(0.05))
    assert (lower[0], upper[0]) == (0.0, pytest.approx(1 - 0.025**0.1, abs=2e-9))
    lower, upper = proportion_interval(array(10), array(10), array(0.05))
    assert (lower[0], upper[0]) == (pytest.approx(0.025**0.1, abs=2e-9), 1.0)
    lower, upper = proportion_interval(array(0), array(0), array(0.05))
    assert (lower[0], upper[0]) == (0.0, 1.0)


@given(st.integers(1, 400), st.data(), st.floats(1e-30, 0.5))
def test_each_end_is_where_the_tail_is_half_the_failure(
    n: int, data: st.DataObject, d: float
) -> None:
    """Clopper & Pearson: P(X >= k; lower) = d/2 = P(X <= k; upper), rounded outwards."""
    k = data.draw(st.integers(0, n))
    lower, upper = proportion_interval(array(k), array(n), array(d))
    assert 0 <= lower[0] <= k / n <= upper[0] <= 1
    if k > 0:
        assert binom.sf(k - 1, n, lower[0]) <= d / 2 * (1 + 1e-6)
        assert binom.sf(k - 1, n, min(1, lower[0] * (1 + 1e-6))) >= d / 2 * (1 - 1e-6)
    if k < n:
        assert binom.cdf(k, n, upper[0]) <= d / 2 * (1 + 1e-4)


def test_shares_of_all_visits_sum_to_no_more_than_the_whole() -> None:
    n = np.arange(1.0, 100_001.0)
    assert shares(n, 0.2).sum() == pytest.approx(0.2 * (1 - 1 / 100_001))
    assert shares(array(0), 0.2)[0] == 0.1


def test_widths_of_means_by_hand() -> None:
    """n = 100, failure 0.08: Hoeffding sqrt(log 50 / 200); without variance Bernstein's second
    term, 7 log 100 / 297."""
    assert mean_width(array(100), array(0.25), array(0.08))[0] == pytest.approx(
        np.sqrt(np.log(50) / 200)
    )
    assert mean_width(array(100), array(0), array(0.08))[0] == pytest.approx(7 * np.log(100) / 297)
    assert mean_width(array(1), array(0), array(0.08))[0] == 1.0
    assert mean_width(array(0), array(0), array(0.08))[0] == 1.0


# ---- how often they hold -------------------------------------------------------------------------


def held_together(fitted: fmdp.Fit, truth: fmdp.FactoredMDP) -> bool:
    ends = fitted.model.intervals
    assert ends is not None
    return all(
        ((lower <= table) & (table <= upper)).all()
        for tables, lowers, uppers in (
            (truth.transitions, ends.lower, ends.upper),
            (truth.rewards, ends.reward_lower, ends.reward_upper),
        )
        for table, lower, upper in zip(tables, lowers, uppers, strict=True)
    )


MODEL = fmdp.FactoredMDP.from_factors(
    [2, 3],
    [2],
    [([0, 2], np.array([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7], [0.05, 0.95]])),
     ([0, 1], np.tile([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]], (3, 1)))],
    [([0], [0.25, 0.8])],
    noise=fmdp.Noise("bernoulli"),
)  # fmt: skip


def coverage(runs: int, steps: int, rho: float, shrink: float = 1.0) -> float:
    """How often all intervals hold together, for logs that a learner has collected."""
    held = 0
    for seed in range(runs):
        run = fmdp.simulate(MODEL, "psrl", steps, seed=seed, record=True)
        assert run.trajectory is not None
        fitted = fmdp.fit(run.trajectory.to_frame(), MODEL, rho=rho, prior=0)
        if shrink != 1.0:
            fitted = _shrunk(fitted, shrink)
        held += held_together(fitted, MODEL)
    return held / runs


def _shrunk(fitted: fmdp.Fit, by: float) -> fmdp.Fit:
    """The control: intervals that promise too much."""
    from dataclasses import replace

    model, ends = fitted.model, fitted.model.intervals
    assert ends is not None
    tables = [*model.transitions], [*model.transitions], [*model.rewards], [*model.rewards]
    arrays = (
        tuple(middle + by * (end - middle) for middle, end in zip(middles, own, strict=True))
        for middles, own in zip(tables, ends.arrays(), strict=True)
    )
    narrow = type(ends)(*arrays)
    remade = fmdp.FactoredMDP(
        model.structure, model.transitions, model.rewards, model.noise, None, "", narrow
    )
    return replace(fitted, model=remade)


def test_intervals_hold_as_often_as_they_say_and_narrower_ones_do_not() -> None:
    """60 logs of adaptive play: failures beyond rho = 0.2 plus four deviations would be a bug."""
    pytest.importorskip("pandas")
    assert coverage(60, 150, 0.2) >= 1 - 0.2 - 4 * np.sqrt(0.2 * 0.8 / 60)
    assert coverage(60, 150, 0.2, shrink=0.3) < 1 - 0.2 - 4 * np.sqrt(0.2 * 0.8 / 60)


def test_a_single_interval_is_not_much_wider_than_it_must_be() -> None:
    """One row of one binary variable, a share of its own: the union over the visits costs less than
    half of the width at a thousand visits."""
    d = 0.1
    lower, upper = proportion_interval(array(500), array(1000), array(d))
    wider = proportion_interval(array(500), array(1000), shares(array(1000), d))
    assert (wider[1] - wider[0])[0] < 3.5 * (upper - lower)[0]
