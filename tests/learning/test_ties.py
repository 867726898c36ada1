"""Which of several equally good actions a learner takes: a random one, or the least tried."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp import Statistics, TablePolicy
from fmdp.elimination.ties import Ties, tie_hash
from fmdp.errors import FmdpError, InvalidParameter, TooLarge
from fmdp.learning.agent import Agent
from fmdp.learning.registry import LEARNERS
from fmdp.simulation import Reference, Simulation
from fmdp.testing import oracles, strategies

CIRCLE = fmdp.problem("circle:3")
TIED = ("ucrl2,ties=planner", "ucrl3,ties=planner", "dorl", "frmax", "dbn-ucrl", "fsrl", "pmevi")
"""Optimistic learners: before anything is seen all actions are tied in every state."""
NO_REFERENCE = Reference(0.0, "exact", None, 0.0)


def started(text: str, seed: int | None = 0, **others: object) -> Agent:
    generator = None if seed is None else np.random.default_rng(seed)
    kind, settings = LEARNERS.split(text)
    return kind.make(settings, **others).start(CIRCLE, generator)


def first_actions(agent: Agent) -> list[int]:
    policy = agent.decide().policy
    assert isinstance(policy, TablePolicy)
    return list(map(int, policy.actions))


# ---- a tie seed per run -------------------------------------------------------------------------


@pytest.mark.parametrize("text", TIED)
def test_runs_with_different_seeds_break_ties_differently(text: str) -> None:
    """All of them used to play the policy of tie_seed=0 while everything was tied."""
    policies = [first_actions(started(text, seed)) for seed in range(6)]
    assert len({tuple(policy) for policy in policies}) == 6
    # With the same seed a run is the same.
    assert first_actions(started(text, 3)) == policies[3]


@pytest.mark.parametrize("text", TIED)
def test_no_action_is_favoured(text: str) -> None:
    """The next test has the negative control: with ties=first one action has every state."""
    chosen = np.concatenate([first_actions(started(text, seed)) for seed in range(60)])
    shares = np.bincount(chosen, minlength=4) / len(chosen)  # 480 draws, deviation .02
    assert shares.min() > 0.15
    assert shares.max() < 0.35


def test_a_rule_that_is_given_stands() -> None:
    for seed in range(3):
        assert set(first_actions(started("dorl", seed, planner=fmdp.Exact(ties="first")))) == {0}
        assert set(first_actions(started("dorl", seed, planner=fmdp.Exact(ties="last")))) == {3}


@pytest.mark.parametrize("planner", [fmdp.Exact, fmdp.ALP])
def test_a_tie_seed_that_is_given_stands(planner: type) -> None:
    """The same in every run and in every plan: that of the planner alone."""
    agent = started("dorl", 1, planner=planner(tie_seed=5))
    first, second = (agent.plan(agent.learner.tables(agent)).policy for _ in range(2))
    other = started("dorl", 2, planner=planner(tie_seed=5))
    third = other.plan(other.learner.tables(other)).policy
    assert list(first.actions) == list(second.actions) == list(third.actions)
    assert agent.tie_seed is None
    prepared = planner(tie_seed=5).prepare(CIRCLE.structure)
    alone = prepared.solve(agent.learner.tables(agent)).policy
    assert list(first.actions) == list(alone.actions)


@pytest.mark.parametrize("planner", [fmdp.Exact(), fmdp.ALP()])
def test_every_plan_of_a_run_breaks_ties_afresh(planner: object) -> None:
    agent = started("dorl", 1, planner=planner)
    tables = agent.learner.tables(agent)
    plans = [tuple(map(int, agent.plan(tables).policy.actions)) for _ in range(5)]
    assert len(set(plans)) == 5


def test_without_a_generator_the_tie_seed_is_zero() -> None:
    one, two = started("dorl", None), started("dorl", None)
    assert first_actions(one) == first_actions(two)
    assert one.tie_seed == 0


def test_plans_outside_learners_have_the_tie_seed_zero() -> None:
    """`fmdp plan` gives what it always gave."""
    flat = fmdp.problem("jao:3")
    for planner in (fmdp.Exact, fmdp.ALP):
        one, two = (planner(tie_seed=seed).plan(flat).policy for seed in (None, 0))
        assert list(one.actions) == list(two.actions)


def test_a_decision_that_fails_draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    agent, other = started("dorl", 4), started("dorl", 4)

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(agent.prepared, "solve", interrupted)
        with pytest.raises(KeyboardInterrupt):
            agent.decide()
    assert agent.tie_seed is None
    assert first_actions(agent) == first_actions(other)


def test_the_tie_seed_is_saved(tmp_path: Path) -> None:
    agent = started("dorl", 4)
    first_actions(agent)
    agent.save(tmp_path / "agent.npz")
    assert agent.tie_seed is not None
    assert fmdp.load_agent(tmp_path / "agent.npz").tie_seed == agent.tie_seed


def test_a_file_with_a_wrong_tie_seed_is_refused(tmp_path: Path) -> None:
    agent = started("dorl", 4)
    agent.tie_seed = -1
    agent.save(tmp_path / "agent.npz")
    with pytest.raises(FmdpError, match="'tie_seed' must be a whole number"):
        fmdp.load_agent(tmp_path / "agent.npz")


def test_a_planner_of_ones_own_need_not_know_of_ties() -> None:
    """It has `solve(tables)` alone, although it has settings by these names."""

    class Plain:
        ties, tie_seed = "random", None

        def prepare(self, structure: object) -> Plain:
            return self

        def solve(self, tables: object) -> object:
            return fmdp.Exact().prepare(CIRCLE.structure).solve(tables)

    agent = started("dorl")
    agent.planner = Plain()  # type: ignore[assignment]
    assert len(first_actions(agent)) == 8


# ---- the least tried action ---------------------------------------------------------------------


@given(st.data(), st.sampled_from(["random", "first", "last"]), st.integers(0, 2**32 - 1))
def test_the_least_tried_of_the_tied_actions(data: st.DataObject, rule: str, seed: int) -> None:
    """Against the definition: the best, then the fewest tries, then the rule."""
    shape = data.draw(st.tuples(st.integers(1, 4), st.integers(1, 5)))
    numbers = st.lists(st.integers(0, 2), min_size=shape[1], max_size=shape[1])
    rows = st.lists(numbers, min_size=shape[0], max_size=shape[0])
    values = np.array(data.draw(rows), dtype=np.float64)
    tries = np.array(data.draw(rows), dtype=np.int64)
    chosen = Ties(rule, seed, tries).choose(values, 0.5)
    for s, action in enumerate(chosen):
        tied = [a for a in range(shape[1]) if values[s, a] == values[s].max()]
        fewest = min(tries[s, a] for a in tied)
        left = [a for a in tied if tries[s, a] == fewest]
        ranks = {"random": lambda a, s=s: int(tie_hash(seed, s, a)), "first": int}
        expected = max(left) if rule == "last" else min(left, key=ranks[rule])
        assert action == expected


@given(strategies.models(), st.sampled_from(["exact", "vertex", "span"]), st.data())
def test_plans_take_the_least_tried_of_the_best_actions(
    model: fmdp.FactoredMDP, how: str, data: st.DataObject
) -> None:
    """Whatever the planner: the action is optimal at its bias, and no other such was tried less."""
    s = model.structure
    planner = {
        "exact": fmdp.Exact(),
        "vertex": fmdp.Exact(targets="vertex"),
        "span": fmdp.SpanConstrained(budget=100.0 * s.reward_unit),
    }[how]
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    tries = rng.integers(0, 3, size=(s.n_states, s.n_actions))
    tables = model
    if how == "vertex":
        nothing = [np.zeros(rows) for rows in s.transition_rows]
        tables = fmdp.model.OptimisticTables(s, model.transitions, nothing, model.rewards)
    plan = planner.prepare(s).solve(tables, ties=Ties("random", 1, tries), describe=True)
    if plan.policy is None or plan.bias is None or plan.status.value != "converged":
        return
    assert plan.ties == "least-tried"
    values = oracles.action_values(oracles.dense(model), plan.bias).T  # [S, A]
    values = np.where(s.allowed_mask(), values, -np.inf)
    slack = 2e-6 * s.reward_unit
    for state in range(s.n_states):
        action = int(plan.policy.actions[state])
        best = values[state].max()
        assert values[state, action] >= best - slack
        clearly = values[state] >= best - 1e-12 * s.reward_unit
        assert tries[state, action] <= tries[state, clearly].min() or not clearly.any()


@pytest.mark.parametrize("text", ["ucrl2", "dorl,ties=least-tried"])
def test_tries_are_counted_by_the_steps_of_the_run(text: str) -> None:
    """Flat: N(s, a). Factored: the visits of the rows that (s, a) uses, summed over the factors."""
    agent = started(text, 1)
    simulation = Simulation(CIRCLE, agent, 1, reference=NO_REFERENCE, record=True)
    simulation.run(300)
    trajectory = simulation.result().trajectory
    assert trajectory is not None
    steps = np.column_stack([trajectory.states[:-1], trajectory.actions])
    s = CIRCLE.structure
    scopes = [tuple(range(4))] if text == "ucrl2" else s.transition_scopes
    found = agent.statistics.tries().reshape(2, 2, 2, 4)
    for x in np.ndindex(found.shape):
        expected = sum(int((steps[:, z] == np.array(x)[list(z)]).all(axis=1).sum()) for z in scopes)
        assert found[x] == expected


def test_ucrl2_tries_equal_actions_in_turn() -> None:
    """One state, three actions that are the same: after 3 n steps none is ahead by much."""
    model = fmdp.FactoredMDP.from_functions(
        states={"s": 1},
        actions={"a": 3},
        parents={"s": ["s", "a"]},
        transition=lambda name, values: [1.0],
        reward={"r": (["s", "a"], lambda values: 0.5)},
        reward_ranges={"r": (0.0, 1.0)},
    )
    agent = fmdp.UCRL2().start(model, 1)
    taken: list[int] = []
    for _ in range(12):
        taken.append(agent.act((0,))[0])
        agent.observe((0,), (taken[-1],), [0.5], (0,))
    # Episodes end when a count doubles: each action once, then each once more, then twice.
    assert sorted(taken[:3]) == [0, 1, 2]
    assert sorted(taken[3:6]) == [0, 1, 2]
    assert [taken[i] for i in range(6, 12, 2)] == [taken[i] for i in range(7, 12, 2)]


def test_what_cannot_take_the_least_tried_action_says_so() -> None:
    with pytest.raises(InvalidParameter, match=r"needs a planner with a table.*alp"):
        fmdp.DORL(ties="least-tried", planner=fmdp.ALP())
    for text in ("e3", "opsrl", "frmax,form=heaven"):
        with pytest.raises(InvalidParameter, match="plans in a larger model"):
            started(f"{text},ties=least-tried")
    learner = fmdp.DORL(ties="least-tried", planner=fmdp.Exact())
    with pytest.raises(TooLarge, match="counts of tries"):
        learner.start(fmdp.problem("maintenance:8,levels=4"))


def test_tries_before_anything_happened() -> None:
    assert not Statistics(CIRCLE.structure).tries().any()


def test_ucrl2_has_the_regret_of_the_public_code() -> None:
    """circle:4, 10,000 steps: the public code has 2,218 to 2,252, a shared policy had 4,711."""
    model = fmdp.problem("circle:4")
    learner = LEARNERS.read("ucrl2")
    regrets = [fmdp.simulate(model, learner, steps=10_000, seed=seed).regret for seed in range(10)]
    assert 0.95 * 2218 < np.median(regrets) < 1.05 * 2252
    assert max(regrets) < 2500
