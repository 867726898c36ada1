"""Trials of larger bases, and symmetric programs of models with alike rows."""

from dataclasses import replace

import numpy as np
import pytest

import fmdp
from fmdp.planning.alp.basis_trial import _is_better, larger_basis
from fmdp.planning.evaluate import evaluate_exactly

RING = "circle:10,dynamics=guestrin,alike=machines"
FREELY = {"difference": 1e-3, "seconds": 100.0, "plan_seconds": 10.0}


def gain(model, plan):
    evaluation = evaluate_exactly(model, plan.policy)
    assert evaluation.gain_upper - evaluation.gain_lower < 1e-6
    return evaluation.gain_lower


def planned(model, planner):
    return planner.prepare(model.structure).solve(model)


def test_a_better_basis_is_found_where_singles_are_poor():
    model, settings = fmdp.problem(RING), fmdp.ALP()
    plan = planned(model, settings)
    outcome = larger_basis(settings, model, plan, **FREELY)
    assert outcome.scopes is not None
    better = planned(model, fmdp.ALP(basis=outcome.scopes))
    assert gain(model, better) > 1.5 * gain(model, plan)
    assert 0.0 < outcome.plan_seconds < outcome.seconds


def test_nothing_beats_an_optimal_policy():
    model, settings = fmdp.problem("circle:6"), fmdp.ALP()
    plan = planned(model, settings)
    assert gain(model, plan) == pytest.approx(fmdp.plan(model).gain, abs=1e-3)
    outcome = larger_basis(settings, model, plan, **FREELY)
    assert outcome.bases == 2
    assert outcome.scopes is None


def test_a_basis_that_does_not_pay_is_given_up():
    model = fmdp.problem("circle:6")
    settings = fmdp.ALP(basis=fmdp.chains(model.structure, 2))
    outcome = larger_basis(settings, model, planned(model, settings), **FREELY)
    assert outcome.scopes == ()
    ring = fmdp.problem(RING)
    pays = fmdp.ALP(basis=fmdp.chains(ring.structure, 3))
    assert larger_basis(pays, ring, planned(ring, pays), **FREELY).scopes != ()


@pytest.mark.parametrize("limit", ["seconds", "plan_seconds"])
def test_the_limits_are_kept(limit):
    model, settings = fmdp.problem(RING), fmdp.ALP()
    limits = {**FREELY, limit: 1e-9}
    outcome = larger_basis(settings, model, planned(model, settings), **limits)
    assert (outcome.scopes, outcome.bases) == (None, 0)
    assert outcome.seconds <= limits["seconds"]


def test_values_of_one_variable_come_before_neighbours():
    """On machines:2 singles cannot tell that only a loaded machine pays."""
    model, settings = fmdp.problem("machines:2"), fmdp.ALP()
    plan = planned(model, settings)
    outcome = larger_basis(settings, model, plan, **FREELY)
    assert outcome.scopes is not None
    assert gain(model, planned(model, fmdp.ALP(basis=outcome.scopes))) > gain(model, plan)


def test_better_means_above_noise_and_above_the_difference():
    base = np.zeros(4)
    assert _is_better(base + 1.0, base, 0.5)
    assert not _is_better(base + 1.0, base, 2.0)
    # Mean 1, standard error 1: the differences have deviation 2.
    noisy = np.array([-1.0, 3.0, 1.0 + 6**0.5 / 3**0.5, 1.0 - 6**0.5 / 3**0.5])
    assert noisy.mean() == pytest.approx(1.0)
    assert not _is_better(noisy, base, 0.0)


@pytest.mark.parametrize("basis", ["singles", "pairs", 3])
def test_alike_machines_share_weights_inside_learners(basis):
    """The program with one weight per class of functions has the same optimum as with all."""
    model = fmdp.problem("circle:6,dynamics=guestrin,alike=machines")
    scopes = fmdp.chains(model.structure, 3) if basis == 3 else basis
    settings = fmdp.ALP(basis=scopes, tolerance=1e-7)
    prepared = settings.prepare(model.structure)
    plan = prepared.solve(model, marginals=True)
    assert prepared.symmetric(model).basis.size < prepared.basis.size
    plain = replace(model.structure, alike=None)
    unshared = fmdp.FactoredMDP(plain, model.transitions, model.rewards)
    other = settings.prepare(plain)
    assert other.symmetric(unshared) is None
    assert plan.objective == pytest.approx(other.solve(unshared).objective, abs=1e-5)
    assert all(np.allclose(values, plan.marginals[0]) for values in plan.marginals)
    assert np.ptp(plan.marginals[0]) > 0.0


def test_a_basis_that_is_not_symmetric_is_solved_as_given():
    model = fmdp.problem("circle:6,dynamics=guestrin,alike=machines")
    prepared = fmdp.ALP(basis=((0, 1), (2,), (3,), (4,), (5,))).prepare(model.structure)
    assert prepared.symmetric(model) is None
