"""A run against random actions, and the negative control: random actions against themselves."""

from __future__ import annotations

from dataclasses import replace

import pytest

import fmdp
from fmdp.problems import problem
from fmdp.simulation import baseline
from fmdp.simulation.baseline import compare_with_random
from fmdp.simulation.regret import Reference, reference_for

MODEL = problem("circle:4")
REFERENCE = reference_for(MODEL)
WITHOUT_GAPS = Reference(REFERENCE.gain, "exact", None, 0.0)


@pytest.mark.parametrize("reference", [REFERENCE, WITHOUT_GAPS], ids=["gaps", "rewards"])
def test_a_learner_that_learns_is_better_than_random(reference: Reference) -> None:
    run = fmdp.learn(MODEL, steps=2000, seed=1, reference=reference)
    against = compare_with_random(run, MODEL, reference)
    assert against is not None
    assert against.better


@pytest.mark.parametrize("reference", [REFERENCE, WITHOUT_GAPS], ids=["gaps", "rewards"])
def test_random_actions_are_not_better_than_random(reference: Reference) -> None:
    for seed in range(5):
        run = fmdp.simulate(MODEL, fmdp.Random(), 2000, seed, reference=reference)
        against = compare_with_random(run, MODEL, reference)
        assert against is not None
        assert not against.better


def test_a_small_gain_is_seen_where_gaps_are_known() -> None:
    """Random actions have 93 % of the optimum here, and the rewards of a step much noise."""
    model = problem("jao:3")
    reference = reference_for(model)
    run = fmdp.simulate(model, fmdp.PSRL(), 3000, 0, reference=reference)
    against = compare_with_random(run, model, reference)
    assert against is not None
    assert against.better


def test_the_second_half_is_what_counts() -> None:
    """By hand: regret 1000 after 1000 steps and still 1000 after 2000, so none per step."""
    run = fmdp.simulate(MODEL, fmdp.Random(), 2000, reference=WITHOUT_GAPS)
    late = replace(run, regret=1000.0, curve=((1000, 1000.0), (2000, 1000.0)))
    against = compare_with_random(late, MODEL, WITHOUT_GAPS)
    assert against is not None
    assert against.learner == 0.0
    assert against.better


def test_nothing_is_said_of_short_runs_or_where_nothing_can_be_learned() -> None:
    short = fmdp.simulate(MODEL, fmdp.Random(), 999, reference=REFERENCE)
    assert compare_with_random(short, MODEL, REFERENCE) is None
    alike = fmdp.FactoredMDP(
        fmdp.Structure((2,), (2,), ((),), ((0,),)), [[[0.5, 0.5]]], [[0.1, 0.1]]
    )
    for reference in (reference_for(alike), Reference(0.1, "exact", None, 0.0)):
        run = fmdp.simulate(alike, fmdp.PSRL(), 2000, reference=reference)
        assert compare_with_random(run, alike, reference) is None


def test_an_interrupted_comparison_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    run = fmdp.simulate(MODEL, fmdp.Random(), 2000, reference=REFERENCE)
    cut = replace(run, interrupted=True)
    monkeypatch.setattr(baseline, "simulate", lambda *_, **__: cut)
    with pytest.raises(KeyboardInterrupt):
        compare_with_random(run, MODEL, REFERENCE)
