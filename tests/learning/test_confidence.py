"""Every width by hand; the sets hold the truth, and too narrow ones are seen to lose it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import FactoredMDP, OptimisticTables, Statistics, Structure
from fmdp.learning.confidence import (
    all_or_nothing_tables,
    all_or_nothing_width,
    confidence_tables,
    reward_log_terms,
    reward_width,
    transition_log_terms,
    transition_width,
)
from fmdp.model.entries import split_cells
from fmdp.simulation import Environment
from fmdp.testing import strategies

STRUCTURE = Structure(
    state_sizes=(2, 3),
    action_sizes=(2,),
    transition_scopes=((0, 2), (1,)),
    reward_scopes=((0,), (1, 2)),
    reward_ranges=((0.0, 1.0), (-1.0, 3.0)),
)


def test_log_terms_by_hand() -> None:
    # m = l = 2; factor 0 has 2 values and 4 rows, factor 1 has 3 and 3; rewards have 2 and 6 rows.
    terms = transition_log_terms(STRUCTURE, t=5, rho=0.1)
    assert terms == pytest.approx([math.log(6 * 2 * 2 * 4 * 50), math.log(6 * 2 * 3 * 3 * 50)])
    assert reward_log_terms(STRUCTURE, t=5, rho=0.1) == pytest.approx(
        [math.log(6 * 2 * 2 * 50), math.log(6 * 2 * 6 * 50)]
    )


def test_delta_p_by_hand() -> None:
    # 18 * 2 / 100 = .36; sqrt(.25 * .36) + .36 = .3 + .36.
    assert transition_width(0.25, 100, 2.0) == pytest.approx(0.66)
    assert transition_width(0.0, 100, 2.0) == pytest.approx(0.36)
    # A count of 0 counts as 1; c takes the place of 18.
    assert transition_width(1.0, 0, 4.0, constant=0.01) == pytest.approx(0.2 + 0.04)


def test_delta_r_by_hand() -> None:
    assert reward_width(100, 3.0) == pytest.approx(0.6)  # sqrt(12 * 3 / 100)
    assert reward_width(0, 3.0, constant=0.03) == pytest.approx(0.3)


def test_all_or_nothing_by_hand() -> None:
    assert all_or_nothing_width([0, 4, 5, 6], 5).tolist() == [math.inf, math.inf, 0, 0]


def seen_twice() -> Statistics:
    statistics = Statistics(STRUCTURE)
    statistics.record((0, 2), (1,), (0.5, 1.0), (1, 0))
    statistics.record((0, 2), (1,), (0.5, 2.0), (0, 0))
    return statistics


def test_tables_by_hand() -> None:
    tables = confidence_tables(
        seen_twice(), t=3, rho=0.1, transition_constant=0.01, reward_constant=0.01
    )
    log_term = math.log(6 * 2 * 2 * 4 * 30)
    rate = 0.01 * log_term / 2
    lower = 0.5 - (math.sqrt(0.5 * rate) + rate)
    assert tables.lower[0][1] == pytest.approx([lower, lower])
    assert tables.free[0][1] == pytest.approx(1 - 2 * lower)
    reward_log = math.log(6 * 2 * 6 * 30)
    # Factor 1, entry (s1 = 2, a = 1) = 5: mean 1.5, range of size 4.
    assert tables.rewards[1][5] == pytest.approx(
        min(3.0, 1.5 + 4 * math.sqrt(0.01 * reward_log / 2))
    )


def test_what_was_never_visited_is_free_and_best() -> None:
    for tables in (
        confidence_tables(seen_twice(), t=3, rho=0.1),
        all_or_nothing_tables(seen_twice(), enough=2),
        all_or_nothing_tables(seen_twice(), enough=3),
    ):
        assert tables.lower[0][[0, 2, 3]].tolist() == [[0, 0]] * 3
        assert tables.free[0][[0, 2, 3]].tolist() == [1, 1, 1]
        assert tables.rewards[0].tolist()[1] == 1.0
        assert tables.rewards[1].tolist()[:5] == [3.0] * 5


def test_known_entries_are_as_estimated() -> None:
    known = all_or_nothing_tables(seen_twice(), enough=2)
    assert known.lower[0][1].tolist() == [0.5, 0.5]
    assert known.free[0][1] == 0.0
    assert known.rewards[1][5] == 1.5
    unknown = all_or_nothing_tables(seen_twice(), enough=3)
    assert unknown.free[0][1] == 1.0
    assert unknown.rewards[1][5] == 3.0


@settings(max_examples=40, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**32 - 1), steps=st.integers(0, 40))
def test_flat_tables_are_those_of_the_checking_constructor(
    model: FactoredMDP, seed: int, steps: int
) -> None:
    s = model.structure
    rng = np.random.Generator(np.random.PCG64(seed))
    environment, statistics = Environment(model, rng), Statistics(s)
    for _ in range(steps):
        state = environment.state
        action = [int(rng.integers(size)) for size in s.action_sizes]
        statistics.record(state, action, *environment.step(action))
    for constant in (0.0, 0.03, 18.0):
        made = confidence_tables(
            statistics, t=steps + 1, rho=0.1, transition_constant=constant, reward_constant=constant
        )
        p_hat, visits = statistics.transition_means(), statistics.transition_visits
        width = transition_width(
            p_hat,
            visits[statistics.entries.cell_entry],
            np.repeat(transition_log_terms(s, steps + 1, 0.1), [t.size for t in made.lower]),
            constant,
        )
        totals = [statistics.reward_totals(k) for k in range(s.l)]
        log_terms = reward_log_terms(s, steps + 1, 0.1)
        with np.errstate(divide="ignore"):
            checked = OptimisticTables.from_widths(
                s,
                split_cells(s, p_hat),
                split_cells(s, width),
                [sums / np.maximum(1, n) for n, sums in totals],
                [
                    np.where(n > 0, reward_width(n, log_terms[k], constant), np.inf)
                    for k, (n, _) in enumerate(totals)
                ],
            )
        for one, other in zip(
            made.lower + made.free + made.rewards,
            checked.lower + checked.free + checked.rewards,
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)
            assert not one.flags.writeable
        OptimisticTables(s, made.lower, made.free, made.rewards)


def inside(tables: OptimisticTables, truth: FactoredMDP) -> bool:
    """Return whether the truth is in the one-sided set."""
    slack = 1e-12
    return all(
        (true >= lower - slack).all()
        for lower, true in zip(tables.lower, truth.transitions, strict=True)
    ) and all(
        (true <= high + slack).all()
        for high, true in zip(tables.rewards, truth.rewards, strict=True)
    )


def lost(model: FactoredMDP, seed: int, **constants: float) -> bool:
    """Return whether the truth leaves the set during a run with random actions."""
    rng = np.random.Generator(np.random.PCG64(seed))
    environment = Environment(model, rng)
    statistics = Statistics(model.structure)
    checks = {1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377}
    for t in range(1, max(checks) + 1):
        if t in checks and not inside(
            confidence_tables(statistics, t=t, rho=0.1, **constants), model
        ):
            return True
        state = environment.state
        action = [int(rng.integers(size)) for size in model.structure.action_sizes]
        statistics.record(state, action, *environment.step(action))
    return False


def test_coverage_with_a_negative_control() -> None:
    model = fmdp.problem("random:3,values=3,seed=1,noise=bernoulli")
    runs = 40
    # At most rho = .1 of the runs may lose the truth: 40 runs lose 8 with probability .04.
    assert sum(lost(model, seed) for seed in range(runs)) < 8
    # Constants a thousand times smaller make no confidence set, and the test must see it.
    narrow = {"transition_constant": 0.018, "reward_constant": 0.012}
    assert sum(lost(model, seed, **narrow) for seed in range(runs)) > runs // 2


def test_the_capped_width_is_no_two_sided_bound() -> None:
    """P = (.9, .1) seen five times is (1, 0) with probability .59: capping at P-hat leaves width
    0 around 0, which misses .1; the one-sided set and the uncapped width hold it."""
    truth, estimate = np.array([0.9, 0.1]), np.array([1.0, 0.0])
    width = transition_width(estimate, 5, math.log(6 * 2 * 5 / 0.1))
    capped = np.minimum(width, estimate)
    assert not (np.abs(truth - estimate) <= capped).all()
    assert (truth >= estimate - capped).all()
    assert (np.abs(truth - estimate) <= width).all()
