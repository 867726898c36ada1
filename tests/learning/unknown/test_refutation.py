"""True scopes are hardly ever refuted, wrong ones are."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.learning.unknown.evidence import Evidence
from fmdp.learning.unknown.refutation import (
    distance_excess,
    interval_excess,
    refuted_by_likelihood,
    refuted_by_supersets,
    supersets,
)
from fmdp.model import Structure

ONE = Structure((2,), (2,), [()], [()])
"""One variable and one action with two values; the action may be a parent."""


def chance_that_the_true_scope_is_refuted(
    q: float, steps: int, threshold: float, *, mixture: bool
) -> float:
    """The exact probability, over all sequences, that "no parents" is ever refuted although it is
    true: the next value is 1 with probability q. The action depends on what was seen."""
    total = 0.0
    for values in itertools.product((0, 1), repeat=steps):
        evidence, refuted = Evidence(ONE, 0, 1), False
        for t, value in enumerate(values):
            action = (sum(values[:t]) + t) % 2
            evidence.append(np.array([0, action]), np.array([value]))
            scores, fits = evidence.scores()
            places = [evidence.place[()], evidence.place[(1,)]]
            if mixture:
                found = refuted_by_likelihood(scores[places, 0], fits[places, 0], 1, threshold)
                refuted |= bool(found[0])
            else:  # the negative control: no allowance for the parameters that were fitted
                gain = fits[places[1], 0] - fits[places[0], 0]
                refuted |= bool(gain > math.log(1 / threshold))
        ones = sum(values)
        total += refuted * q**ones * (1 - q) ** (steps - ones)
    return total


@pytest.mark.parametrize("q", [0.5, 0.2, 0.03])
@pytest.mark.parametrize("rho", [0.5, 0.2])
def test_the_chance_to_refute_a_true_scope_is_at_most_rho(q: float, rho: float) -> None:
    assert chance_that_the_true_scope_is_refuted(q, 9, rho, mixture=True) <= rho


def test_the_largest_likelihood_alone_does_not_keep_that_promise() -> None:
    assert chance_that_the_true_scope_is_refuted(0.5, 9, 0.5, mixture=False) > 0.5


def evidence_of_steps(model: fmdp.FactoredMDP, steps: int, seed: int, parents: int) -> Evidence:
    """What random actions in `model` show."""
    run = fmdp.simulate(model, "random", steps, seed, record=True, regret=False)
    trajectory: Any = run.trajectory
    evidence = Evidence(model.structure, parents, 1)
    joint = np.concatenate([trajectory.states[:-1], trajectory.actions], axis=1)
    for x, after in zip(joint, trajectory.states[1:], strict=True):
        evidence.append(x, after)
    return evidence


CIRCLE = fmdp.problem("circle:4,dynamics=guestrin")
TRUE = CIRCLE.structure.transition_scopes


def of_size(evidence: Evidence, parents: int) -> list[int]:
    return [
        z
        for z, scope in enumerate(evidence.sets)
        if scope[-1:] == (4,) and len(scope) == parents + 1
    ]


def test_likelihood_keeps_true_scopes_and_refutes_all_others() -> None:
    left_at = {}
    for steps in (1, 50, 200, 2000):
        evidence = evidence_of_steps(CIRCLE, steps, 3, 2)
        scores, fits = evidence.scores()
        places = of_size(evidence, 2)
        for i in range(4):
            refuted = refuted_by_likelihood(scores[places, i], fits[places, i], 4, 0.1)
            left = [evidence.sets[z] for z, gone in zip(places, refuted, strict=True) if not gone]
            assert TRUE[i] in left
            left_at[steps] = left_at.get(steps, 0) + len(left)
    assert left_at[1] == 4 * 6
    assert left_at[2000] == 4


def test_a_scope_with_a_superfluous_parent_is_not_refuted() -> None:
    evidence = evidence_of_steps(CIRCLE, 3000, 5, 3)
    scores, fits = evidence.scores()
    places = of_size(evidence, 3)
    refuted = refuted_by_likelihood(scores[places, 0], fits[places, 0], 4, 0.1)
    for z, gone in zip(places, refuted, strict=True):
        assert gone != set(TRUE[0]).issubset(evidence.sets[z])


@pytest.mark.parametrize("rule", ["intervals", "distances"])
def test_supersets_refute_wrong_scopes_alone(rule: str) -> None:
    evidence = evidence_of_steps(CIRCLE, 12_000, 1, 4)
    if rule == "intervals":
        excess = interval_excess(0.1, 4, 12_001, 0.1)
    else:
        excess = distance_excess(evidence, 100, lambda rows, visits, pooled: 0.3)
    wrong = 0
    for z in of_size(evidence, 2):
        scope = evidence.sets[z]
        refuted = refuted_by_supersets(evidence, scope, excess)
        assert not any(gone and scope == true for gone, true in zip(refuted, TRUE, strict=True))
        wrong += int(refuted.sum())
    assert wrong >= 16, "of 20 wrong ones; machines are mostly down, and some rows are rare"


def test_the_paper_s_own_constant_refutes_nothing_true_and_little_at_all() -> None:
    evidence = evidence_of_steps(CIRCLE, 12_000, 1, 4)
    excess = interval_excess(1.0, 4, 12_001, 0.1)
    refuted = {
        evidence.sets[z]: refuted_by_supersets(evidence, evidence.sets[z], excess)
        for z in of_size(evidence, 2)
    }
    assert not any(refuted[true][i] for i, true in enumerate(TRUE))
    assert sum(int(of_scope.sum()) for of_scope in refuted.values()) < 4 * 5


def test_supersets_have_the_same_actions() -> None:
    evidence = Evidence(CIRCLE.structure, 3, 1)
    assert list(supersets(evidence, (0, 4), most=1)) == [(0, 1, 4), (0, 2, 4), (0, 3, 4)]
    assert len(list(supersets(evidence, (0, 4)))) == 3 + 3
    assert all(4 not in outer for outer in supersets(evidence, (0,)))


def test_a_difference_by_hand() -> None:
    """Ten visits each: value 1 follows action 0 twice and action 1 eight times. The estimates
    (.8, .2) and (.2, .8) are at distance .6 from the pooled (.5, .5)."""
    evidence = Evidence(Structure((2, 2), (1,), [(), ()], [()]), 1, 0)
    for parent, ones in ((0, 2), (1, 8)):
        for n in range(10):
            evidence.append(np.array([parent, 0, 0]), np.array([int(n < ones), 0]))
    for largest, refuted in ((0.59, [True, False]), (0.61, [False, False])):
        excess = distance_excess(evidence, 10, lambda rows, visits, pooled, d=largest: d)
        assert refuted_by_supersets(evidence, (), excess).tolist() == refuted
    too_few = distance_excess(evidence, 11, lambda rows, visits, pooled: 0.0)
    assert not refuted_by_supersets(evidence, (), too_few).any()
