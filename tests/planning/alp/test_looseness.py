"""Stalls of a growing basis, and the estimate of what is loose."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import dense

import fmdp
from fmdp import TablePolicy
from fmdp._base.deadlines import NEVER
from fmdp.model.expansion import expand
from fmdp.model.spaces import all_assignments
from fmdp.planning.alp import ALP, growth, looseness, policy_errors
from fmdp.planning.alp.bases import Basis, make_basis
from fmdp.planning.alp.looseness import Rise, estimated_rise, loose_part
from fmdp.problems import problem
from fmdp.testing import oracles


@pytest.mark.parametrize(
    ("gaps", "n_weights", "stalled"),
    [
        ([1.0], 10, None),
        ([1.0, 0.95], 10, None),  # two rounds of patience before a small program
        ([1.0, 0.95, 0.92], 10, 2),
        ([1.0, 0.95, 0.85], 10, None),
        ([1.0, 0.95], 1000, 1),  # one before a large program
        ([1.0, 0.8], 1000, None),
        ([1.0, 0.5, 0.49], 1000, 1),
        ([1.0, 0.5, 0.49], 10, None),
    ],
)
def test_when_a_gap_has_stalled(gaps: list[float], n_weights: int, stalled: int | None) -> None:
    assert growth.stalled_rounds(gaps, n_weights) == stalled


@pytest.mark.parametrize(
    ("rise", "loose"),
    [
        (None, "unknown"),
        (Rise(float("nan"), 0.1), "unknown"),
        (Rise(-0.5, 0.2), "bound"),
        (Rise(0.1, 0.1), "bound"),
        (Rise(0.9, 0.1), "policy"),
        (Rise(0.5, 0.1), "both"),
        (Rise(0.5, 0.5), "unknown"),
    ],
)
def test_what_is_loose_if_the_gap_is_one(rise: Rise | None, loose: str) -> None:
    assert loose_part(1.0, rise) == loose


def bias_of(model: fmdp.FactoredMDP, actions: np.ndarray) -> tuple[Basis, np.ndarray, np.ndarray]:
    """Return the exact bias of a policy, as a basis over all variables with weights, and as h."""
    P, R = dense(model)
    places = np.arange(len(actions))
    matrix, reward = P[actions, places], R[actions, places]
    gain = oracles.policy_gain(oracles.dense(model), actions)[0]
    system = np.vstack([np.eye(len(actions)) - matrix, np.eye(1, len(actions))])
    h = np.linalg.lstsq(system, np.append(reward - gain, 0.0), rcond=None)[0]
    basis = make_basis(model.structure, [tuple(range(model.structure.m))])
    states = all_assignments(model.structure.state_sizes)
    table = np.array([[basis.value(row, s) for row in np.eye(basis.size)] for s in states])
    return basis, np.linalg.lstsq(table, h - h[0], rcond=None)[0], h


@pytest.mark.parametrize("optimal", [True, False])
def test_the_rise_is_the_mean_of_the_best_advantages(optimal: bool) -> None:
    """With the policy's own bias there is no noise: max_a (R + P h - h) - gain, in one state."""
    model = problem("circle:3,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, fmdp.Exact(tolerance=1e-10))
    assert isinstance(plan.policy, TablePolicy)
    s = model.structure
    actions = (
        plan.policy.actions.astype(np.int64) if optimal else np.full(s.n_states, s.n_actions - 1)
    )
    policy = TablePolicy(s.state_sizes, s.action_sizes, actions)
    basis, weights, h = bias_of(model, actions)
    P, R = dense(model)
    gain = oracles.policy_gain(oracles.dense(model), actions)[0]
    advantages = (R + P @ h - h - gain).max(axis=0)
    for number in (0, s.n_states - 1):
        state = all_assignments(s.state_sizes)[number : number + 1]
        rise = estimated_rise(model, policy, basis, weights, state, np.random.default_rng(0), NEVER)
        assert rise is not None
        assert rise.mean == pytest.approx(advantages[number], abs=1e-8)
        assert rise.error == pytest.approx(0.0, abs=1e-8)
    assert optimal == (advantages.max() < 1e-8)


def test_a_model_with_constraints_has_no_estimate() -> None:
    model = problem("maintenance:3,crew=1")
    assert model.structure.constraints
    basis = make_basis(model.structure, "indicators")
    policy = TablePolicy(
        model.structure.state_sizes,
        model.structure.action_sizes,
        np.zeros(model.structure.n_states, dtype=np.int64),
    )
    states = all_assignments(model.structure.state_sizes)
    generator = np.random.default_rng(0)
    weights = np.zeros(basis.size)
    assert estimated_rise(model, policy, basis, weights, states, generator, NEVER) is None


def test_the_plan_says_why_it_stopped_and_what_is_loose(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "stalled_rounds", lambda gaps, n_weights: 1)
    monkeypatch.setattr(looseness, "_STATES", 4)
    model = problem("circle:5,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, ALP(gap=1e-6))
    outcome = plan.stats["growth"]
    assert plan.stats["grown_until"] == "stall"
    assert "in the last round" in outcome["message"]
    assert outcome["loose"] in ("bound", "policy", "both", "unknown")
    assert outcome["gain_upper"] == plan.gain_upper
    # Without a gap to aim at, the basis grows as far as it may.
    assert fmdp.plan(model, ALP(gap=0.0)).stats["grown_until"] == "size"


def test_errors_with_derived_variables_are_those_of_the_expanded_model() -> None:
    """A derived count of the variables that are up drives all of them."""
    names = ["a", "b", "c"]
    model = fmdp.FactoredMDP.from_functions(
        {name: [0, 1] for name in names},
        {"help": names},
        {name: [name, "up", "help"] for name in names},
        lambda name, v: (
            {0: 0.5 - 0.1 * v["up"], 1: 0.5 + 0.1 * v["up"]}
            if v["help"] == name
            else {v[name]: 1.0}
        ),
        {f"pay {name}": ([name, "up"], lambda v: float(sum(v.values()))) for name in names},
        derived={"up": fmdp.Sum(names)},
    )
    s = model.structure
    basis = make_basis(s, [(0, 1), (2,)])
    weights = np.linspace(-1.0, 2.0, basis.size)
    states = all_assignments(s.state_sizes)
    actions = np.arange(len(states))[:, None] % 3
    errors = policy_errors.bellman_errors(model, basis, weights, states, actions)
    plain = expand(model)
    expected = policy_errors.bellman_errors(plain, basis, weights, states, actions)
    assert errors == pytest.approx(expected, abs=1e-12)
    plan = fmdp.plan(model, ALP())
    best = fmdp.plan(model, fmdp.Exact())
    assert plan.gain_upper >= best.gain - 1e-9  # type: ignore[operator]
