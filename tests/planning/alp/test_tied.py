"""One weight for what symmetries send to each other: the same optimum, certified as before."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import residuals

import fmdp
from fmdp.model.spaces import all_assignments
from fmdp.model.symmetry import symmetry_of
from fmdp.planning.alp import ALP, PreparedALP, basis_scopes
from fmdp.planning.alp.bases import chains, collapsed, make_basis, tied
from fmdp.planning.plan import Status
from fmdp.problems import problem

NAMES = [
    "circle:6,dynamics=guestrin",
    "circle:6,dynamics=ippc",
    "bi-ring:5,dynamics=talebi",
    "star:5,dynamics=guestrin",
    "three-leg:7,dynamics=talebi",
    "machines:2",
    "riverswim:2",
]


@pytest.mark.parametrize("criterion", ["discounted", "average"])
@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_that_of_all_weights(name: str, criterion: str) -> None:
    model = problem(name)
    symmetry = symmetry_of(model)
    assert symmetry is not None
    scopes = symmetry.closed(chains(model.structure, 2))
    settings = ALP(basis=scopes, criterion=criterion)
    prepared = PreparedALP(settings, model.structure, share_for=model, symmetry=symmetry)
    found = prepared.solve(model, describe=True)
    free = settings.plan(model)
    assert found.status is free.status is Status.CONVERGED
    assert prepared.basis.size < make_basis(model.structure, scopes).size
    assert found.objective == pytest.approx(free.objective, rel=1e-5)
    # The certificate is of the whole model: the residual of its weights, over all actions.
    basis = make_basis(model.structure, scopes)
    weights = found.stats["weights"]
    assert len(weights) == basis.size
    states = all_assignments(model.structure.state_sizes)
    h = np.array([basis.value(weights, state) for state in states])
    assert found.gain_upper == pytest.approx(residuals(model, h).max(), abs=1e-9)
    assert found.gain_upper >= residuals(model, h).max() - 1e-13
    assert found.span == pytest.approx(h.max() - h.min(), abs=1e-9)
    along = [
        np.ptp(h.reshape(model.structure.state_sizes), axis=i).max()
        for i in range(model.structure.m)
    ]
    assert found.factored_spans == pytest.approx(along, abs=1e-9)
    # And the policy is greedy for them, over all actions.
    discount = settings.discount if criterion == "discounted" else 1.0
    values = residuals(model, h, discount)
    assert found.policy is not None
    sizes = model.structure.action_sizes
    chosen = np.array([np.ravel_multi_index(found.policy(tuple(s)), sizes) for s in states])
    taken = values[chosen, np.arange(len(states))]
    assert taken == pytest.approx(values.max(axis=0), abs=1e-7)


def test_ties_are_the_orbits_of_functions() -> None:
    model = problem("circle:5,dynamics=guestrin")
    symmetry = symmetry_of(model)
    assert symmetry is not None
    basis = tied(make_basis(model.structure, symmetry.closed([(0, 1)])), symmetry)
    assert basis.size == 2  # one machine, two neighbours
    weights = np.array([3.0, 5.0])
    assert basis.value(weights, (1, 1, 0, 1, 0)) == 3 * 3.0 + 5.0
    assert basis.untied(weights).tolist() == [3.0] * 5 + [5.0] * 5
    half = [np.array([0.5, 0.5])] * 5
    assert basis.means(half) == pytest.approx([5 / 2, 5 / 4])
    assert basis.heights().tolist() == [5.0, 5.0]


def test_functions_of_one_block_may_be_tied() -> None:
    """Two copies side by side: over both positions jointly, (1, 2) is the image of (2, 1)."""
    model = problem("riverswim:2")
    symmetry = symmetry_of(model)
    assert symmetry is not None
    free = make_basis(model.structure, [(0, 1)])
    basis = tied(free, symmetry)
    assert free.size == 35
    assert basis.size == 5 + 5 * 6 // 2
    weights = np.random.default_rng(0).normal(size=basis.size)
    for state in all_assignments((6, 6)):
        assert basis.value(weights, state) == pytest.approx(basis.value(weights, state[::-1]))


def test_collapsed_is_the_same_function() -> None:
    model = problem("random:5,values=3,seed=2")
    basis = make_basis(model.structure, [(0, 1, 2), (2, 3), (3, 4), (0,)])
    weights = np.random.default_rng(1).normal(size=basis.size)
    few = collapsed(basis, weights)
    assert [block.scope for block in few.blocks] == [(0, 1, 2), (2, 3), (3, 4)]
    for state in all_assignments(model.structure.state_sizes):
        expected = basis.value(weights, state)
        assert few.value(np.ones(3), state) == pytest.approx(expected, abs=1e-12)


def test_auto_uses_them() -> None:
    model = problem("circle:9,dynamics=guestrin,reward=mean")
    plan = fmdp.plan(model, "alp")
    exact = fmdp.plan(model)
    assert exact.gain_upper is not None
    assert exact.gain_lower is not None
    assert plan.gain_upper is not None
    assert plan.gain_upper >= exact.gain_lower
    assert plan.gain_upper <= 1.03 * exact.gain_upper
    assert plan.policy_gain >= 0.99 * exact.gain_lower
    assert max(step["weights"] for step in plan.stats["grown"]) <= 128
    state = (1, 0, 1, 1, 1, 0, 0, 1, 1)
    assert plan.explain(state).action == model.structure.name_action(plan.policy(state))


def test_at_the_end_the_bound_alone_is_tightened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basis_scopes, "MOST_VALUES_TIED", 32)
    model = problem("circle:8,dynamics=guestrin,reward=mean")
    plan = ALP().plan(model)
    assert plan.stats["grown_until"] == "size"
    *before, last = plan.stats["grown"]
    assert last["judged"] is None
    assert last["weights"] > before[-1]["weights"]
    assert plan.gain_upper == last["gain_upper"] < min(step["gain_upper"] for step in before)
    exact = fmdp.plan(model)
    assert exact.gain_lower is not None
    assert plan.gain_upper >= exact.gain_lower


def test_interrupted_there_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(basis_scopes, "MOST_VALUES_TIED", 32)

    def interrupt(*given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(PreparedALP, "tightened", interrupt)
    plan = ALP().plan(problem("circle:8,dynamics=guestrin,reward=mean"))
    assert plan.status is Status.INTERRUPTED
    assert plan.policy is not None


def test_relevance_of_ones_own_keeps_every_weight() -> None:
    """It need not be the same for images: the program is not the symmetric one."""
    model = problem("circle:4,dynamics=guestrin,reward=mean")
    uneven = ((0.9, 0.1), *[(0.5, 0.5)] * 3)
    plan = fmdp.plan(model, ALP(relevance=uneven))
    assert plan.stats["grown"][0]["weights"] == 4
    assert fmdp.plan(model, ALP()).stats["grown"][0]["weights"] == 1


def test_groups_go_to_groups() -> None:
    """Equal machines in pairs: a symmetry that took a pair apart would make every two machines a
    scope, and the network complete."""
    n = 24
    transitions = []
    for i in range(n):
        works = np.full((2, n + 1), 0.4)
        works[1] = 0.8
        works[:, i] = 0.95
        transitions.append(np.stack([1.0 - works.ravel(), works.ravel()], axis=1))
    pairs = tuple((i, i + 1) for i in range(0, n, 2))
    structure = fmdp.Structure(
        state_sizes=(2,) * n,
        action_sizes=(n + 1,),
        transition_scopes=tuple((i, n) for i in range(n)),
        reward_scopes=tuple((i,) for i in range(n)),
        groups=pairs,
    )
    model = fmdp.FactoredMDP(structure, transitions, [np.array([0.0, 1.0])] * n)
    symmetry = symmetry_of(model)
    assert symmetry is not None
    assert set(symmetry.closed(pairs)) == set(pairs)
    assert len(set(symmetry.leaders)) == 1
    plan = ALP().plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.stats["grown"][0]["weights"] < 12
