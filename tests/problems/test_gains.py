"""Exact gains that are known from elsewhere, by dense value iteration written out here.

For any h, min(Lh - h) <= gain <= max(Lh - h); damping makes periodic models converge.
"""

from __future__ import annotations

import numpy as np
import pytest

import fmdp
from fmdp import flatten

CONVERGED = 1e-10


def dense_gain(problem: str) -> tuple[float, np.ndarray]:
    """(the optimal gain within CONVERGED, the bias with minimum 0)."""
    flat = flatten(fmdp.problem(problem))
    h = np.zeros(flat.rewards.shape[1])
    for _ in range(20_000):
        rise = (flat.rewards + flat.transitions @ h).max(axis=0) - h
        if np.ptp(rise) < CONVERGED:
            return float(rise.max() + rise.min()) / 2, h - h.min()
        h += 0.8 * (rise - rise.min())
    raise AssertionError(f"{problem}: the bounds are still {np.ptp(rise)} apart")


@pytest.mark.parametrize(
    ("problem", "gain", "within"),
    [
        ("circle:3", 2.9330007, 6e-8),
        ("circle:3,reward=mean", 2.9330007 / 3, 2e-8),
        ("three-leg:4", 3.9200237, 6e-8),
        ("circle:7,dynamics=guestrin,reward=mean", 0.844975, 6e-7),
        ("circle:4,dynamics=guestrin,reward=mean", 0.914944, 6e-7),
        ("large-diameter", 1.0, 1e-9),
        ("large-diameter,reward=mean", 0.5, 1e-9),
        ("riverswim:1", 0.428622434, 7e-10),
        ("riverswim:2", 2 * 0.428622434, 2e-9),
    ],
)
def test_known_gain(problem: str, gain: float, within: float) -> None:
    assert dense_gain(problem)[0] == pytest.approx(gain, abs=within)


@pytest.mark.parametrize(
    ("n", "delta", "epsilon"), [(1, 0.2, 0.1), (3, 0.2, 0.1), (2, 0.5, 0.5), (2, 0.05, 0.3)]
)
def test_jao_has_the_gain_and_span_of_its_formulas(n: int, delta: float, epsilon: float) -> None:
    gain, bias = dense_gain(f"jao:{n},delta={delta},epsilon={epsilon}")
    assert gain == pytest.approx(n * (delta + epsilon) / (2 * delta + epsilon), abs=1e-9)
    assert np.ptp(bias) == pytest.approx(n / (2 * delta + epsilon), abs=1e-7)


@pytest.mark.parametrize(
    ("problem", "span_sum", "uniform"),
    [
        ("circle:4,dynamics=guestrin,reward=mean", 5.918, 5.918),
        ("three-leg:4,dynamics=guestrin,reward=mean", 3.18, 4.20),
        ("three-leg:7,dynamics=guestrin,reward=mean", 6.27, 9.76),
    ],
)
def test_known_factored_spans(problem: str, span_sum: float, uniform: float) -> None:
    """sp_i is the largest change of the bias along axis i; `uniform` is m times the largest."""
    bias = dense_gain(problem)[1]
    table = bias.reshape((2,) * (len(bias).bit_length() - 1))
    spans = [float(np.ptp(table, axis=i).max()) for i in range(table.ndim)]
    assert sum(spans) == pytest.approx(span_sum, abs=0.006)
    assert table.ndim * max(spans) == pytest.approx(uniform, abs=0.006)


def test_spans_of_the_other_products() -> None:
    assert np.ptp(dense_gain("riverswim:2")[1]) == pytest.approx(2 * 6.310324, abs=2e-6)
    assert np.ptp(dense_gain("large-diameter")[1]) == pytest.approx(2.0, abs=1e-8)


def test_the_bad_end_of_a_restart_cost() -> None:
    """One machine, ippc: in the working state never restart; down, restart at a cost of .5.

    Stationary: working w, down 1 - w with w = .95 w + (1 - w), so w = 1 / 1.05, and the gain is
    w - .5 (1 - w).
    """
    w = 1 / 1.05
    assert dense_gain("circle:1,dynamics=ippc")[0] == pytest.approx(w - 0.5 * (1 - w), abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["circle:7", "three-leg:7"])
def test_single_variable_bases_are_nearly_optimal_on_ten_draws(network: str) -> None:
    """docs/problems.md says so about `xu` in general; the control is a rule where they are not."""

    def lost(problem: str) -> float:
        model = fmdp.problem(problem)
        best = fmdp.plan(model, fmdp.Exact()).gain
        found = fmdp.evaluate(model, fmdp.plan(model, fmdp.ALP(basis="singles")).policy).gain
        assert best is not None
        assert found is not None
        return (best - found) / best

    assert max(lost(f"{network},seed={seed}") for seed in range(1, 11)) <= 2e-4
    assert lost("circle:7,dynamics=guestrin") > 2e-4
