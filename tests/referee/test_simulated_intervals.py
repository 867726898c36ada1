"""Simulated intervals against the referee, and the referee of coverage against wrong intervals."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import fmdp
from referee import recipes, simulated_intervals
from referee.claims import Case
from referee.ledger import Ledger

COVERED = "simulated evaluation: intervals cover the gain"


def _nothing_disagrees(short: bool) -> None:
    ledger = Ledger()
    for turn in range(len(simulated_intervals.cases(short))):
        ledger.add(simulated_intervals.play_model(turn, short))
    assert ledger.compared > 0
    assert not ledger.disagreements, "\n".join(map(str, ledger.disagreements))


@pytest.mark.referee
def test_a_few_models() -> None:
    _nothing_disagrees(True)


@pytest.mark.slow
@pytest.mark.referee
def test_all_models() -> None:
    _nothing_disagrees(False)


def _broken(
    case: Case, evaluate: simulated_intervals.Evaluate, seeds: int = 30, mixes: bool = False
) -> set[str]:
    ledger = Ledger()
    simulated_intervals.judge_coverage(ledger, case, range(seeds), mixes, evaluate)
    return ledger.claims_broken


def _one_run(case: Case, policy: Any, seed: int) -> SimpleNamespace:
    """Student's t on 32 batches of one run from the initial state, as fmdp 0.2.0 had it."""
    draw = np.random.default_rng(seed)
    law = case.flat.matrices[0].cumsum(axis=1)
    rewards = np.empty(simulated_intervals.STEPS)
    state = case.flat.start
    for step, uniform in enumerate(draw.random(simulated_intervals.STEPS)):
        rewards[step] = case.flat.rewards[0, state]
        state = min(int(np.searchsorted(law[state], uniform, side="right")), len(law) - 1)
    means = rewards[-32 * 562 :].reshape(32, 562).mean(axis=1)
    half = stats.t.ppf(0.995, 31) * means.std(ddof=1) / np.sqrt(32)
    return SimpleNamespace(
        kind="simulated",
        status=SimpleNamespace(value="simulated"),
        gain=means.mean(),
        gain_lower=max(means.mean() - half, -10.0),
        gain_upper=min(means.mean() + half, 10.0),
        confidence=0.99,
        certified_bounds=(-10.0, 10.0),
    )


def test_one_long_run_is_caught_on_slow_models() -> None:
    assert _broken(Case(recipes.random_factored(2)), _one_run, 8) == set()
    assert COVERED in _broken(Case(recipes.leaking_class(1e-4, 1)), _one_run, 8)


def test_intervals_that_are_too_short_are_caught() -> None:
    case = Case(recipes.random_factored(2))

    def shortened(case: Case, policy: Any, seed: int) -> fmdp.planning.evaluate.Evaluation:
        found = simulated_intervals.simulated(case, policy, seed)
        assert found.gain is not None
        tenth = 0.1 * (found.gain_upper - found.gain_lower)
        return replace(found, gain_lower=found.gain - tenth / 2, gain_upper=found.gain + tenth / 2)

    assert _broken(case, simulated_intervals.simulated) == set()
    assert _broken(case, shortened) == {COVERED}


def test_an_interval_of_everything_is_caught_where_it_is_not_needed() -> None:
    def vacuous(case: Case, policy: Any, seed: int) -> Any:
        found = simulated_intervals.simulated(case, policy, seed)
        low, high = found.certified_bounds
        return replace(
            found,
            gain=None,
            gain_lower=low,
            gain_upper=high,
            confidence=None,
            status=fmdp.Status.UNMIXED,
        )

    case = Case(recipes.random_factored(2))
    assert _broken(case, vacuous, 3) == set()
    claim = "simulated evaluation: a model that mixes has an interval"
    assert _broken(case, vacuous, 3, mixes=True) == {claim}


@pytest.mark.parametrize(
    ("wrong", "claim"),
    [
        ({"status": fmdp.Status.CONVERGED}, "simulated evaluation: says that it is simulated"),
        ({"confidence": None}, "simulated evaluation: a confidence only with an interval"),
        ({"gain": None}, "simulated evaluation: a confidence only with an interval"),
        ({"certified_bounds": (0.0, 1e-9)}, "simulated evaluation: certified bounds hold"),
    ],
)
def test_wrong_words_are_caught(wrong: dict[str, Any], claim: str) -> None:
    case = Case(recipes.random_factored(2))

    def changed(case: Case, policy: Any, seed: int) -> Any:
        return replace(simulated_intervals.simulated(case, policy, seed), **wrong)

    assert claim in _broken(case, changed, 2)
