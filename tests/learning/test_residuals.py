"""The test of the scopes: its e-process as a theorem, no false alarms, and what it finds."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import FileProblem
from fmdp.learning.residuals import FALSE_ALARMS, ScopeMonitor


def coin_and_clock(p: float = 0.3) -> fmdp.FactoredMDP:
    """A coin with an empty scope, and a clock that alternates."""
    return fmdp.FactoredMDP.from_factors(
        [2, 2], [1], [([], np.array([1 - p, p])), ([1], np.array([[0.0, 1.0], [1.0, 0.0]]))]
    )


def monitored(structure: fmdp.Structure, states: np.ndarray, actions: np.ndarray) -> ScopeMonitor:
    """Return a monitor that has observed a trajectory."""
    monitor = ScopeMonitor(structure)
    for t in range(len(actions)):
        monitor.observe(states[t].tolist(), actions[t].tolist(), states[t + 1].tolist())
    return monitor


def played(model: fmdp.FactoredMDP, steps: int, seed: int, learner: str = "random"):  # type: ignore[no-untyped-def]
    trajectory = fmdp.simulate(model, learner, steps, seed, record=True, regret=False).trajectory
    assert trajectory is not None
    return trajectory.states.astype(np.int64), trajectory.actions.astype(np.int64)


def without(model: fmdp.FactoredMDP, variable: int) -> fmdp.FactoredMDP:
    """Return the model without a state variable: what somebody believes who does not see it."""
    s = model.structure
    number = {v: v - (v > variable) for v in range(len(s.sizes))}
    factors = []
    for i, (scope, table) in enumerate(zip(s.transition_scopes, model.transitions, strict=True)):
        if i == variable:
            continue
        full = np.asarray(table).reshape(*s.scope_sizes(scope), -1)
        if variable in scope:
            full = full.mean(axis=scope.index(variable))
        factors.append(([number[v] for v in scope if v != variable], full))
    sizes = [size for i, size in enumerate(s.state_sizes) if i != variable]
    return fmdp.FactoredMDP.from_factors(sizes, s.action_sizes, factors)


def with_smaller_scope(model: fmdp.FactoredMDP, i: int, parent: int) -> fmdp.FactoredMDP:
    """Return the model whose variable i does not depend on `parent`."""
    s = model.structure
    factors: list[tuple[list[int], np.ndarray]] = []
    for j, (scope, table) in enumerate(zip(s.transition_scopes, model.transitions, strict=True)):
        full = np.asarray(table).reshape(*s.scope_sizes(scope), -1)
        if j == i:
            full = full.mean(axis=scope.index(parent))
        factors.append(([v for v in scope if (j, v) != (i, parent)], full))
    return fmdp.FactoredMDP.from_factors(
        s.state_sizes,
        s.action_sizes,
        factors,
        list(zip(s.reward_scopes, model.rewards, strict=True)),
    )


def test_the_evidence_by_hand() -> None:
    """Four steps; the coin shows 1 exactly when the clock was 1.

    Given the clock's value, the predictor of Krichevsky and Trofimov gives two equal values a
    probability of 1/2 * 3/4 = 3/8; the best row gives the four values (1/2)^4. So E_x = (3/8)^2 *
    16 = 9/4, and with one row both mixtures apply: (1 + 9/4) / 2 = 13/8 and 9/4; their mean is
    31/16.
    """
    monitor = ScopeMonitor(coin_and_clock().structure)
    for clock in (0, 1, 0, 1):
        monitor.observe((0, clock), (0,), (clock, 1 - clock))
    monitor.test()
    pair = [
        k
        for k in range(monitor.n_pairs[0])
        if (monitor._pairs.factor[k], monitor._pairs.source[k]) == (0, 1)
    ]
    assert np.exp(monitor.evidence[pair]) == pytest.approx([31 / 16])


@pytest.mark.parametrize("p", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("steps", [1, 4, 9])
def test_the_expected_evidence_is_at_most_one(p: float, steps: int) -> None:
    """Summed over all sequences of a coin: for every pair of the coin, E[E] <= 1."""
    structure = coin_and_clock(p).structure
    expected = np.zeros(0)
    for coins in itertools.product((0, 1), repeat=steps):
        monitor = ScopeMonitor(structure)
        for t, coin in enumerate(coins):
            now = coins[t - 1] if t else 0
            monitor.observe((now, t % 2), (0,), (coin, 1 - t % 2))
        monitor.test()
        of_coin = monitor._pairs.factor == 0
        chance = math.prod(p if coin else 1 - p for coin in coins)
        expected = np.resize(expected, of_coin.sum()) + chance * np.exp(monitor.evidence[of_coin])
    assert (expected <= 1.0 + 1e-12).all()
    assert (expected > 0.0).all()


@pytest.mark.parametrize(
    "problem",
    [
        *(f"random:4,seed={seed}" for seed in range(12)),
        "circle:5",
        "jao:3",
        "machines:2",
        "circle:4,dynamics=guestrin,alike=machines",
    ],
)
def test_no_false_alarm_in_correct_models(problem: str) -> None:
    """Sixteen models; the chance of any alarm is at most 1 % for each."""
    model = fmdp.problem(problem)
    learner = "default" if problem.startswith(("circle", "jao")) else "random"
    monitor = monitored(model.structure, *played(model, 3_000, 1, learner))
    assert monitor.findings == ()
    assert monitor.evidence.max() < math.log(monitor.n_pairs[0] / FALSE_ALARMS)
    assert monitor.n_pairs[0] == monitor.n_pairs[1]


@pytest.mark.parametrize("learner", ["random", "default"])
def test_a_missing_parent_is_found_and_named(learner: str) -> None:
    model = fmdp.problem("circle:5,dynamics=guestrin")
    believed = with_smaller_scope(model, 3, 2)
    monitor = monitored(believed.structure, *played(model, 3_000, 1, learner))
    (finding,) = monitor.findings
    assert (finding.variable, finding.depends_on, finding.when) == ("s3", "s2", "current")
    assert finding.step <= 3_000
    assert finding.log10_evidence > 4.0
    assert "'s3' depends on the current value of 's2', which is not in its scope" in str(finding)


def test_a_hidden_variable_is_found() -> None:
    """A hidden mode, which changes once in fifty steps, decides how a machine moves."""
    moves = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.2, 0.8], [0.9, 0.1]]])
    model = fmdp.FactoredMDP.from_factors(
        [2, 2], [2], [([0], np.array([[0.98, 0.02], [0.02, 0.98]])), ([0, 1], moves)]
    )
    believed = without(model, 0)
    states, actions = played(model, 5_000, 2)
    monitor = monitored(believed.structure, states[:, 1:], actions)
    (finding,) = monitor.findings
    assert (finding.variable, finding.when) == ("s0", "previous")
    assert "something that is not observed" in str(finding)


def test_values_that_move_together_are_found() -> None:
    """Two coins that always agree: each is right by itself, and their product is wrong."""
    model = fmdp.FactoredMDP.from_factors([2, 2], [1], [([], [0.5, 0.5]), ([], [0.5, 0.5])])
    monitor = ScopeMonitor(model.structure)
    generator = np.random.default_rng(0)
    state = (0, 0)
    for coin in generator.integers(2, size=100).tolist():
        monitor.observe(state, (0,), (coin, coin))
        state = (coin, coin)
    (finding,) = monitor.findings
    assert (finding.variable, finding.depends_on, finding.when) == ("s1", "s0", "next")


def test_a_gap_in_the_observations_has_no_previous_step() -> None:
    """Steps that do not follow each other say nothing about previous values."""
    monitor = ScopeMonitor(coin_and_clock().structure)
    for _ in range(10):
        monitor.observe((0, 0), (0,), (1, 1))
    previous = monitor._pairs.source >= 5
    tables = np.split(monitor.counts, monitor._pairs.start[1:-1])
    assert {int(table.sum()) for table, late in zip(tables, previous, strict=True) if late} == {0}
    assert {int(table.sum()) for table, late in zip(tables, previous, strict=True) if not late} == {
        10
    }


def test_large_models_test_the_pairs_that_fit() -> None:
    monitor = ScopeMonitor(fmdp.problem("circle:100,dynamics=guestrin").structure)
    tested, possible = monitor.n_pairs
    assert 0 < tested < possible
    assert len(monitor.counts) <= 1 << 20


def test_an_agent_tests_is_saved_and_continues(tmp_path: Path) -> None:
    """Step by step as in bulk, saved or not: the test changes nothing but what it finds."""
    model = fmdp.problem("circle:3")
    plain = fmdp.simulate(model, "default", 300, 2)
    agent = fmdp.Default().start(model)
    agent.test_scopes()
    assert agent.tests_scopes
    tested = fmdp.simulate(model, agent, 300, 2)
    assert tested.total_reward == plain.total_reward
    agent.save(tmp_path / "agent.npz")
    loaded = fmdp.load_agent(tmp_path / "agent.npz")
    assert loaded.tests_scopes
    assert loaded.scope_findings == ()
    for name, array in agent._monitor.arrays().items():  # type: ignore[union-attr]
        assert (loaded._monitor.arrays()[name] == array).all()  # type: ignore[union-attr]
    agent.test_scopes(False)
    assert not agent.tests_scopes
    broken = loaded._monitor
    assert broken is not None
    broken.alarms = broken.alarms - 1
    loaded.save(tmp_path / "broken.npz")
    with pytest.raises(FileProblem, match="'alarms' of its tested scopes"):
        fmdp.load_agent(tmp_path / "broken.npz")


def test_a_service_names_what_the_scopes_do_not_explain(tmp_path: Path) -> None:
    """On the status, once as a line for the operator, and after a restart too."""
    model = fmdp.problem("circle:4,dynamics=guestrin")
    believed = with_smaller_scope(model, 2, 1)
    states, actions = played(model, 3_000, 1)
    lines: list[str] = []
    with fmdp.Service(believed, "random", tmp_path / "live", say=lines.append) as service:
        for t in range(len(actions)):
            service.observe(states[t], actions[t], [0.5] * 4, states[t + 1], commit=False)
        service.commit()
        (finding,) = service.status()["scope_findings"]
    assert (finding["variable"], finding["depends_on"]) == ("s2", "s1")
    assert [line for line in lines if "the model may be wrong: the next value of 's2'" in line]
    assert len(lines) == 1
    with fmdp.Service(believed, "random", tmp_path / "live", say=lines.append) as service:
        assert service.status()["scope_findings"] == [finding]
    assert len(lines) == 1
