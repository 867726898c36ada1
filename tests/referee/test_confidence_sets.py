"""Every confidence set against exact binomials, and controls that show that the check can fail."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import fmdp
from fmdp.learning import opsrl, ucrl3
from fmdp.learning.concentration import (
    ETA,
    bernoulli_proxy,
    bernstein_width,
    ends_of,
    peeling_term,
    public_ucrl3_ends,
    right_tail_proxy,
)
from referee import confidence_sets
from referee.confidence_sets import Ends, Setup
from referee.ledger import Ledger


def _nothing_disagrees(short: bool) -> None:
    ledger = confidence_sets.play(short)
    shown = [str(item) for claim in sorted(ledger.claims_broken) for item in ledger.smallest(claim)]
    assert ledger.compared > 0
    assert not shown, "\n".join(["", ledger.table(), *shown])


@pytest.mark.referee
def test_a_few_sizes() -> None:
    _nothing_disagrees(True)


@pytest.mark.slow
@pytest.mark.referee
def test_all_sizes() -> None:
    _nothing_disagrees(False)


# ---- the check itself ---------------------------------------------------------------------------


def _no_ends(visits: int) -> Ends:
    return Ends(np.zeros((visits + 1, visits + 1)), np.ones((visits + 1, visits + 1)))


def test_the_chance_of_loss_by_hand() -> None:
    """Lost where the first two draws are successes, or where all of four fail."""
    ends = _no_ends(4)
    ends.upper[2, 2] = 0.0
    ends.lower[4, 0] = 1.0
    p = np.array([0.5, 0.25])
    assert confidence_sets.chance_of_loss(ends, p) == pytest.approx([5 / 16, 1 / 16 + (3 / 4) ** 4])


def test_the_chance_of_loss_is_that_of_all_sequences() -> None:
    """Against all 2^7 sequences in fractions, with ends at random."""
    rng = np.random.Generator(np.random.PCG64(5))
    ends = Ends(0.6 * rng.random((8, 8)), 1.0 - 0.6 * rng.random((8, 8)))
    for p in (Fraction(1, 3), Fraction(1, 2), Fraction(9, 10)):
        lost = Fraction(0)
        for draws in product((0, 1), repeat=7):
            counted = [(n, sum(draws[:n])) for n in range(1, 8)]
            if any(not ends.lower[at] <= p <= ends.upper[at] for at in counted):
                lost += p ** sum(draws) * (1 - p) ** (7 - sum(draws))
        found = confidence_sets.chance_of_loss(ends, np.array([float(p)]))
        assert found == pytest.approx([float(lost)])


def test_one_number_of_visits_is_a_binomial() -> None:
    ends = _no_ends(30)
    ends.lower[30, 22:] = 1.0
    found = confidence_sets.chance_of_loss(ends, confidence_sets.GRID)
    assert found == pytest.approx(binom.sf(21, 30, confidence_sets.GRID))


def test_ends_of_a_ball_and_of_a_box() -> None:
    """A ball of radius .4 around (.7, .3) holds p from .1 to .5; a box what both its sides do."""
    structure = fmdp.problem("random:1,values=2,parents=1,actions=1,seed=0").structure
    rows = np.array([[0.7, 0.3], [0.7, 0.3]])
    rewards = (np.ones(2),)
    ball = fmdp.OptimisticTables.from_balls(structure, (rows,), (np.array([0.4, 0.8]),), rewards)
    least, most = confidence_sets.row_ends(ball)
    assert least == pytest.approx([0.1, 0.0])
    assert most == pytest.approx([0.5, 0.7])


# ---- controls: each of these must fail ----------------------------------------------------------


def _broken(setup: Setup) -> set[str]:
    ledger = Ledger()
    confidence_sets.judge(ledger, setup, 20)
    return ledger.claims_broken


def _exchanged_ends(estimate: Any, visits: Any, delta: float, c: float = 1.0) -> Any:
    """What `bernoulli_ends` computed in 0.2.0: the variance proxies on the wrong sides."""
    n = np.maximum(1.0, visits)
    m = np.maximum(2.0, n)
    peeling = peeling_term(m, delta) / m
    laplace = 2.0 * (1.0 + 1.0 / n) * np.log(2.0 * np.sqrt(n + 1.0) / delta) / n

    def width(proxy: Any) -> Any:
        return lambda q: c * np.minimum(bernstein_width(q, peeling), np.sqrt(proxy(q) * laplace))

    return ends_of(estimate, width(bernoulli_proxy), width(right_tail_proxy))


@pytest.mark.parametrize("ends", [_exchanged_ends, public_ucrl3_ends])
def test_ends_on_the_wrong_sides_are_caught(ends: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = Setup(fmdp.UCRL3(), 2, 30, 60)
    assert not _broken(setup)
    monkeypatch.setattr(ucrl3, "bernoulli_ends", ends)
    assert _broken(setup) == {"coverage: rows of ucrl3"}


@pytest.mark.parametrize(
    "learner",
    [
        fmdp.UCRL2(c=0.03),
        fmdp.UCRL3(c=0.2),
        fmdp.UCRLFactored(c=0.2),
        fmdp.DBNUCRL(c=0.1),
        fmdp.SCAL(c=0.03),
        fmdp.REGAL(c=0.03),
        fmdp.PMEVI(c=0.03),
        fmdp.DORL(),
    ],
    ids=lambda learner: learner.name,
)
def test_narrow_sets_are_caught(learner: Any) -> None:
    broken = _broken(Setup(learner, 2, 2, 60))
    parts = {"rows", "rewards"} | ({"Bernstein bound"} if learner.name == "pmevi" else set())
    assert broken == {f"coverage: {part} of {learner.name}" for part in parts}


# ---- what has no promise for all n --------------------------------------------------------------


@pytest.mark.parametrize("states", [2, 4, 16])
def test_the_simple_rows_of_opsrl_hold_half_of_the_time(states: int) -> None:
    """For each n by itself a cell's lower end is above p with probability at most 1 / (2 S), so
    that all S cells of a row hold with probability at least 1/2: what the paper uses."""
    for n in (1, 2, 3, 5, 10, 30, 100, 1000):
        k = np.arange(n + 1)
        lower = k / n - opsrl.simple_width(k / n, n, states)
        p = confidence_sets.GRID[:, None]
        lost = np.where(p < lower, binom.pmf(k, n, p), 0.0).sum(axis=1)
        assert lost.max() <= 1 / (2 * states)


def test_the_peeling_of_the_public_code() -> None:
    """At n = 1 the public UCRL3 has log(eta) log(eta^2) = 2 log^2(eta): eta log(2 / delta)."""
    delta = 0.01
    rate = ETA * np.log(2 / delta)
    (lower,), (upper,) = public_ucrl3_ends(np.array([1.0]), np.array([1.0]), delta)
    assert (lower, upper) == (0.5, 1.0)
    (_,), (upper,) = public_ucrl3_ends(np.array([0.0]), np.array([1.0]), delta)
    laplace = 4 * np.log(2 * np.sqrt(2) / delta)
    # The upper end is where q = sqrt(q (1 - q) laplace), below the Bernstein bound.
    assert upper == pytest.approx(laplace / (1 + laplace))
    assert bernstein_width(upper, rate) > upper
