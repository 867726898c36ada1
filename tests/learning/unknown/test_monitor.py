"""The test of a bound on the parents: its e-process as a theorem, alarms, and no false ones."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FileProblem
from fmdp.learning.registry import LEARNERS
from fmdp.learning.unknown.monitor import CandidateMonitor

SMALL = "circle:4,dynamics=guestrin"


def agent_after(problem: str, learner: str, steps: int, seed: int = 0) -> Any:
    model = fmdp.problem(problem)
    agent = LEARNERS.read(learner).start(model)
    agent.test_scopes()
    fmdp.simulate(model, agent, steps, seed, regret=False)
    return agent


@pytest.mark.parametrize("p", [0.1, 0.4])
def test_the_expected_evidence_is_at_most_one(p: float) -> None:
    """Summed over all sequences of a coin, E[E] <= 1 for every pair, although the scope is chosen
    by the steps and the actions follow the coin.

    The numerators, summed over all sequences, are at most 1, too. Without the division by the
    number of candidates, which is three, they would not be.
    """
    model = fmdp.FactoredMDP.from_factors([2, 2], [2], [([], [1 - p, p]), ([1], np.eye(2)[::-1])])
    learner: Any = fmdp.Default(scopes="unknown", parents=1)
    sources = [0, 1, 2, 5, 6, 7]  # the current and the previous state and action
    expected, numerators = np.zeros(len(sources)), np.zeros(len(sources))
    for coins in itertools.product((0, 1), repeat=6):
        seen = learner.statistics_for(model.structure)
        state = (0, 0)
        for t, coin in enumerate(coins):
            after = (coin, 1 - t % 2)
            seen.record(state, (state[0],), (), after)
            state = after
        evidence = CandidateMonitor(learner, seen).evidence[0, sources]
        expected += math.prod(p if coin else 1 - p for coin in coins) * np.exp(evidence)
        places = learner.candidates(seen)[0].places
        numerators += np.exp(evidence + seen.evidence.scores()[1][places, 0].max())
    assert (expected <= 1.0 + 1e-12).all()
    assert (numerators <= 1.0 + 1e-12).all()
    assert (numerators > 1 / 3).any()


def test_the_evidence_by_hand() -> None:
    """Two steps, bound 0: s1 moves to the value of s0. The one candidate has no parents and
    likelihood 1/4; given s0, each next value has probability 1/2. So E = 1/4 / (1/4) = 1."""
    model = fmdp.FactoredMDP.from_factors(
        [2, 2], [1], [([0], np.full((2, 2), 0.5)), ([0], np.eye(2))]
    )
    learner: Any = fmdp.Default(scopes="unknown", parents=0)
    seen = learner.statistics_for(model.structure)
    seen.record((0, 1), (0,), (), (1, 0))
    seen.record((1, 0), (0,), (), (0, 1))
    monitor = CandidateMonitor(learner, seen)
    assert monitor.evidence[1, 0] == pytest.approx(0.0)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("learner", ["default,scopes=unknown", "psrl,scopes=unknown", "slf-ucrl"])
def test_a_bound_that_is_too_small_is_found_and_named(learner: str, seed: int) -> None:
    findings = agent_after(SMALL, f"{learner},parents=1", 2000, seed).scope_findings
    assert findings
    for finding in findings:
        i = int(finding.variable[-1])
        assert finding.depends_on in (f"machine_{i}", f"machine_{(i - 1) % 4}")
        assert finding.when == "current"
        assert 0 < finding.step <= 2000
        assert "learned scope: the bound of 1 parent is too small" in str(finding)
        assert "\n" not in str(finding)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    "learner", ["default,scopes=unknown", "psrl,scopes=unknown", "slf-ucrl", "slf-rmax,m=40"]
)
def test_no_alarm_with_the_right_bound(learner: str, seed: int) -> None:
    assert agent_after(SMALL, learner, 2000, seed).scope_findings == ()


@pytest.mark.parametrize("problem", [*(f"random:4,seed={k}" for k in range(6)), "circle:5"])
def test_no_alarm_on_other_problems(problem: str) -> None:
    assert agent_after(problem, "default,scopes=unknown,parents=3", 1500).scope_findings == ()


def test_a_bound_on_action_variables() -> None:
    """s0 moves to the exclusive or of two actions, most of the time."""
    either = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.1, 0.9], [0.9, 0.1]]])
    model = fmdp.FactoredMDP.from_factors([2], [2, 2], [([1, 2], either)])
    learner: Any = fmdp.Default(scopes="unknown", parents=1)
    agent = learner.start(model, 0)
    generator = np.random.default_rng(3)
    state = (0,)
    for _ in range(300):
        action = tuple(generator.integers(2, size=2).tolist())
        after = (int(generator.random() < either[action][1]),)
        agent.observe(state, action, (), after)
        state = after
    assert agent.scope_findings == ()
    agent.test_scopes()  # the steps so far are tested at once
    (finding,) = agent.scope_findings
    assert finding.step == 300
    assert "the bound of 1 action parent is too small" in str(finding)


@pytest.mark.parametrize(
    ("hints", "reason"),
    [
        ("forbidden=machine_3>machine_0", "an edge that is forbidden"),
        ("parents=2,required=self+machine_2>machine_0", "or a required edge is wrong"),
    ],
)
def test_wrong_hints_are_named(hints: str, reason: str) -> None:
    agent = agent_after(SMALL, f"default,scopes=unknown,{hints}", 2500, 1)
    (finding,) = agent.scope_findings
    assert (finding.variable, finding.depends_on) == ("machine_0", "machine_3")
    assert reason in str(finding)


def test_a_wrong_given_scope_is_named() -> None:
    """The model that the learner is told lacks a parent of s1; all other scopes are learned."""
    follows = np.array([[0.9, 0.1], [0.1, 0.9]])
    coin: tuple[list[int], Any] = ([], [0.5, 0.5])
    told = fmdp.FactoredMDP.from_factors([2, 2], [1], [coin, coin])
    true = fmdp.FactoredMDP.from_factors([2, 2], [1], [coin, ([0], follows)])
    learner: Any = fmdp.Default(scopes="unknown", given="s1")
    agent = learner.start(told, 0)
    trajectory = fmdp.simulate(true, "random", 200, 1, record=True, regret=False).trajectory
    assert trajectory is not None
    for t in range(200):
        agent.observe(trajectory.states[t], trajectory.actions[t], (), trajectory.states[t + 1])
    agent.test_scopes()
    (finding,) = agent.scope_findings
    assert (finding.variable, finding.depends_on) == ("s1", "s0")
    assert "which is not in its given scope" in str(finding)


def test_the_test_changes_nothing_and_is_saved(tmp_path: Path) -> None:
    learner = "default,scopes=unknown,parents=1"
    agent = agent_after(SMALL, learner, 1500)
    plain = fmdp.simulate(fmdp.problem(SMALL), learner, 1500, 0, regret=False)
    assert plain.agent.statistics.counts.cells.tolist() == agent.statistics.counts.cells.tolist()
    agent.save(tmp_path / "agent.npz")
    loaded = fmdp.load_agent(tmp_path / "agent.npz")
    assert loaded.tests_scopes
    assert loaded.scope_findings == agent.scope_findings != ()
    monitor: Any = loaded._monitor
    assert monitor._due == agent._monitor._due
    monitor.alarms = monitor.alarms - 1_000_000
    loaded.save(tmp_path / "broken.npz")
    with pytest.raises(FileProblem, match="'alarms' of its tested scopes"):
        fmdp.load_agent(tmp_path / "broken.npz")


def test_a_hidden_variable_is_found() -> None:
    """A hidden mode decides how a machine moves: no bound on the parents explains it."""
    moves = np.array([[[0.9, 0.1], [0.2, 0.8]], [[0.2, 0.8], [0.9, 0.1]]])
    model = fmdp.FactoredMDP.from_factors(
        [2, 2], [2], [([0], np.array([[0.98, 0.02], [0.02, 0.98]])), ([0, 1], moves)]
    )
    trajectory = fmdp.simulate(model, "random", 3000, 2, record=True, regret=False).trajectory
    assert trajectory is not None
    seen = fmdp.FactoredMDP.from_factors([2], [2], [([0], moves[0])])
    learner: Any = fmdp.Default(scopes="unknown", parents=1)
    agent = learner.start(seen, 0)
    for t in range(3000):
        state, after = trajectory.states[t, 1:], trajectory.states[t + 1, 1:]
        agent.observe(state, trajectory.actions[t], (), after)
    agent.test_scopes()
    (finding,) = agent.scope_findings
    assert (finding.variable, finding.when) == ("s0", "previous")
    assert "something that is not observed" in str(finding)
    assert math.isfinite(finding.log10_evidence)


def test_a_service_names_a_bound_that_is_too_small(tmp_path: Path) -> None:
    model = fmdp.problem(SMALL)
    trajectory = fmdp.simulate(model, "random", 1500, 1, record=True, regret=False).trajectory
    assert trajectory is not None
    lines: list[str] = []
    learner = "default,scopes=unknown,parents=1"
    with fmdp.Service(model, learner, tmp_path / "live", say=lines.append) as service:
        for t in range(1500):
            state, after = trajectory.states[t], trajectory.states[t + 1]
            service.observe(
                state, trajectory.actions[t], trajectory.rewards[t], after, commit=False
            )
        service.commit()
        findings = service.status()["scope_findings"]
    assert findings
    assert len(lines) == len(findings)
    assert all("the bound of 1 parent is too small" in line for line in lines)
    with fmdp.Service(model, learner, tmp_path / "live", say=lines.append) as service:
        assert service.status()["scope_findings"] == findings
    assert len(lines) == len(findings)
