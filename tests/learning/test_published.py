"""The preset faithful=True: what it sets, what its settings do, and numbers of public codes."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.experiments.spec import label_of
from fmdp.learning.agent import Agent
from fmdp.learning.concentration import (
    bernstein_width,
    empirical_bernstein_width,
    laplace_width,
    peeling_term,
)
from fmdp.learning.published import Published
from fmdp.learning.registry import LEARNERS
from fmdp.learning.ucrl3 import reward_width
from fmdp.simulation import Environment

RIVALS = [kind for kind in LEARNERS.own() if issubclass(kind, Published)]
PRESETS = [kind for kind in RIVALS if kind.published]
NEEDED: dict[str, dict[str, object]] = {"scal": {"budget": 3.0}, "regal": {"budget": 3.0}}


def faithful(kind: Any, **given: Any) -> Any:
    return kind(**{"faithful": True, **NEEDED.get(kind.name, {}), **given})


# ---- the mechanism ------------------------------------------------------------------------------


def test_which_learners_have_a_preset() -> None:
    assert {kind.name for kind in PRESETS} == {
        "ucrl2",
        "ucrl3",
        "kl-ucrl",
        "ucrl-factored",
        "dbn-ucrl",
        "scal",
        "regal",
        "tsde",
        "opsrl",
        "slf-ucrl",
    }


@pytest.mark.parametrize("kind", PRESETS, ids=lambda kind: kind.name)
def test_the_preset_sets_what_was_left_at_its_default(kind: Any) -> None:
    defaults = {field.name: field.default for field in fields(kind)}
    learner = faithful(kind)
    for name, value in kind.published.items():
        assert defaults[name] != value, f"{name} is no choice: it is the default"
        if name != "planner":
            assert getattr(learner, name) == value
    plain = kind(**NEEDED.get(kind.name, {}))
    assert all(getattr(plain, name) == defaults[name] for name in kind.published)


@pytest.mark.parametrize("kind", PRESETS, ids=lambda kind: kind.name)
def test_a_faithful_learner_has_a_short_text_that_makes_it_again(kind: Any) -> None:
    learner = faithful(kind)
    assert "faithful=true" in learner.words()
    assert not {word.partition("=")[0] for word in learner.words()} & set(kind.published)
    assert LEARNERS.read(",".join((kind.name, *learner.words()))) == learner
    assert replace(learner) == learner
    label = label_of(learner)
    assert "faithful=true" in label
    assert not any(f"{name}=" in label for name in kind.published)


def test_what_was_set_otherwise_stays() -> None:
    learner = fmdp.UCRL3(faithful=True, rho=0.2, stopping="inverse-root")
    assert (learner.rho, learner.stopping, learner.bounds) == (0.2, "inverse-root", "public")
    assert set(learner.words()) == {"faithful=true", "rho=0.2", "stopping=inverse-root"}


def test_the_preset_is_refused_where_nothing_is_known_or_something_is_missing() -> None:
    with pytest.raises(FmdpError, match="'faithful' parameter of learner pmevi must be false"):
        fmdp.PMEVI(faithful=True)
    for kind in (fmdp.SCAL, fmdp.REGAL):
        assert kind().grows
        with pytest.raises(FmdpError, match=r"'budget' parameter of learner .* must be given"):
            kind(faithful=True)
        assert not kind(faithful=True, budget=2.0).grows


@pytest.mark.parametrize("kind", PRESETS, ids=lambda kind: kind.name)
def test_a_faithful_learner_runs_and_goes_on_from_a_file(kind: Any, tmp_path: Path) -> None:
    model = fmdp.problem("riverswim:1")
    given = {"c": 0.1} if kind.name == "opsrl" else {}
    whole = faithful(kind, **given).start(model, 5)
    actions = play(model, whole, 300)
    half = faithful(kind, **given).start(model, 5)
    play(model, half, 150)
    half.save(tmp_path / "agent")
    other = fmdp.load_agent(tmp_path / "agent")
    play(model, other, 300, taken=actions[:150])
    assert np.array_equal(whole.statistics.cell_counts, other.statistics.cell_counts)
    assert whole.planner_calls == other.planner_calls


def play(
    model: fmdp.FactoredMDP, agent: Agent, steps: int, taken: list[Any] | None = None
) -> list[Any]:
    """Play in an environment with fixed random numbers and return the actions; the first ones
    may have been taken before, by an agent that was saved."""
    environment = Environment(model, np.random.Generator(np.random.PCG64(9)))
    actions = list(taken or ())
    for action in actions:
        environment.step(action)
    while len(actions) < steps:
        state = environment.state
        actions.append(agent.act(state))
        agent.observe(state, actions[-1], *environment.step(actions[-1]))
    return actions


# ---- episodes that end before a doubled pair is played ------------------------------------------


def episodes_by_jaksch(model: fmdp.FactoredMDP, agent: Agent, steps: int) -> list[int]:
    """Play, and compute from the steps alone at which of them the paper's rule begins an episode:
    while v_k(s, a) < max{1, N_k(s, a)} for the pair that the policy is about to play."""
    environment = Environment(model, np.random.Generator(np.random.PCG64(3)))
    before: dict[Any, int] = {}
    during: dict[Any, int] = {}
    begun = [0]
    for t in range(steps):
        state = environment.state
        if t and agent.decision is not None:
            pair = (state, agent.decision.policy(state))
            if during.get(pair, 0) >= max(1, before.get(pair, 0)):
                begun.append(t)
                for done, times in during.items():
                    before[done] = before.get(done, 0) + times
                during = {}
        action = agent.act(state)
        during[state, action] = during.get((state, action), 0) + 1
        agent.observe(state, action, *environment.step(action))
    return begun


@pytest.mark.parametrize("problem", ["riverswim:1", "jao:2", "circle:3"])
def test_an_episode_ends_before_a_doubled_pair_is_played(problem: str) -> None:
    model = fmdp.problem(problem)
    agent = fmdp.UCRL2(episodes="before-doubling", c=0.05).start(model, 1)
    begun = episodes_by_jaksch(model, agent, 600)
    assert agent.episodes == len(begun) > 10
    after = fmdp.UCRL2(episodes="doubling", c=0.05).start(model, 1)
    assert episodes_by_jaksch(model, after, 600) != begun or after.episodes != len(begun)


@pytest.mark.parametrize("kind", [fmdp.UCRL2, fmdp.UCRLFactored], ids=lambda kind: kind.name)
def test_the_entries_of_a_step_are_those_that_it_counts(kind: Any) -> None:
    model = fmdp.problem("random:3,values=3,actions=2,seed=2")
    agent = kind().start(model, 0)
    environment = Environment(model, np.random.Generator(np.random.PCG64(3)))
    for _ in range(30):
        state, before = environment.state, agent.statistics.visits.copy()
        action = agent.act(state)
        entries = agent.statistics.entries_of(state, action)
        agent.observe(state, action, *environment.step(action))
        expected = np.zeros_like(before)
        np.add.at(expected, entries, 1)
        assert np.array_equal(agent.statistics.visits - before, expected)


def test_with_factors_an_episode_ends_before_a_doubled_entry_is_visited() -> None:
    """No entry is visited in an episode more often than max{1, N_k} times."""
    model = fmdp.problem("circle:3")
    agent = fmdp.UCRLFactored(episodes="before-doubling", c=0.1).start(model, 1)
    environment = Environment(model, np.random.Generator(np.random.PCG64(3)))
    begun, counts = agent.episodes, agent.statistics.visits.copy()
    for _ in range(400):
        state = environment.state
        before = agent.statistics.visits.copy()
        action = agent.act(state)
        if agent.episodes > begun:
            begun, counts = agent.episodes, before
        agent.observe(state, action, *environment.step(action))
        assert (agent.statistics.visits - counts <= np.maximum(1, counts)).all()
    assert begun > 10


def test_asking_twice_gives_one_answer_when_an_episode_ends_before_a_step() -> None:
    model = fmdp.problem("riverswim:1")
    agent = fmdp.UCRL2(episodes="before-doubling").start(model, 1)
    environment = Environment(model, np.random.Generator(np.random.PCG64(3)))
    for _ in range(100):
        state = environment.state
        changes, plans = agent.changed_by_act, agent.planner_calls
        action = agent.act(state)
        assert changes or agent.planner_calls == plans
        assert agent.act(state) == action
        agent.observe(state, action, *environment.step(action))


# ---- how precise plans are ----------------------------------------------------------------------


class Recorder:
    """A prepared planner that notes the tolerance of every plan."""

    def __init__(self, prepared: Any) -> None:
        self.prepared, self.tolerances = prepared, []  # type: ignore[var-annotated]

    def solve(self, tables: Any, **how: Any) -> Any:
        plan = self.prepared.solve(tables, **how)
        self.tolerances.append((how.get("tolerance"), plan.gain_upper - plan.gain_lower))
        return plan

    def __getattr__(self, name: str) -> Any:
        return getattr(self.prepared, name)


@pytest.mark.parametrize(
    ("stopping", "expected"),
    [("fixed", None), ("inverse", 3.0 / 101), ("inverse-root", 3.0 / math.sqrt(101))],
)
def test_plans_stop_where_the_setting_says(stopping: str, expected: float | None) -> None:
    """circle:3 as a flat model has one reward factor with the range [0, 3]."""
    model = fmdp.problem("circle:3")
    learner = fmdp.UCRL2(stopping=stopping, c=0.01)
    agent = learner.start(model, 0)
    play(model, agent, 100)
    recorder = Recorder(agent.prepared)
    agent._prepared = recorder  # type: ignore[assignment]
    agent.plan(learner.tables(agent))
    ((tolerance, gap),) = recorder.tolerances
    assert tolerance == (None if expected is None else pytest.approx(expected))
    assert gap <= (3e-3 if expected is None else expected)
    assert agent.planner.max_iterations == (200 if stopping == "fixed" else 1000)  # type: ignore[union-attr]


def test_the_unit_of_a_factored_plan_is_one_reward_factor() -> None:
    model = fmdp.problem("circle:3")
    agent = fmdp.DBNUCRL(stopping="inverse").start(model, 0)
    assert agent.learner.plan_tolerance(agent) == pytest.approx(1.0)
    own = fmdp.DBNUCRL(stopping="inverse", planner=fmdp.Exact(tolerance=0.5, max_iterations=7))
    agent = own.start(model, 0)
    assert own.plan_tolerance(agent) is None
    assert agent.planner.max_iterations == 7  # type: ignore[union-attr]


@pytest.mark.parametrize("planner", [fmdp.Exact(), fmdp.SpanConstrained(budget=5.0)])
def test_a_tolerance_may_be_given_with_a_plan(planner: Any) -> None:
    model = fmdp.problem("riverswim:1")
    for tolerance in (0.1, 1e-9):
        plan = planner.prepare(model.structure).solve(model, tolerance=tolerance)
        assert plan.gain_upper - plan.gain_lower <= tolerance
    coarse, fine = (
        planner.prepare(model.structure).solve(model, tolerance=one).iterations
        for one in (0.1, 1e-9)
    )
    assert coarse < fine


# ---- sets of public codes, by hand --------------------------------------------------------------


def counted(learner: Any, cells: list[int], steps: int, reward: float = 0.0) -> Agent:
    """An agent on two values and one action whose rows have these counts."""
    problem = f"random:1,values={len(cells)},parents=1,actions=1,seed=0,noise=bernoulli"
    agent = learner.start(fmdp.problem(problem).structure, 0)
    counts = agent.statistics.counts
    counts.cells[:] = np.tile(cells, len(cells))
    counts.visits[:] = sum(cells)
    counts.reward_sums[:] = reward
    agent.counters.steps = steps
    return agent  # type: ignore[no-any-return]


def test_the_public_set_of_dbn_ucrl_is_the_intersection_of_two_boxes() -> None:
    """Two rows: delta = rho / 2 for either, whatever the number of values."""
    learner = fmdp.DBNUCRL(bounds="public", rho=0.02)
    agent = counted(learner, [30, 70], 100)
    tables = learner.tables(agent)
    rate = float(peeling_term(100, 0.01)) / 100
    empirical = float(empirical_bernstein_width(0.7, 100, 100 * rate))
    q = np.linspace(0, 1, 200_001)
    plausible = q[np.abs(q - 0.7) <= bernstein_width(q, rate)]
    assert tables.lower[0][0, 1] == pytest.approx(max(0.7 - empirical, plausible[0]), abs=1e-5)
    assert tables.upper is not None
    assert tables.upper[0][0, 1] == pytest.approx(min(0.7 + empirical, plausible[-1]), abs=1e-5)
    # Here both ends are Bernstein's for a Bernoulli variable, so the second box matters.
    assert plausible[0] > 0.7 - empirical
    assert plausible[-1] < 0.7 + empirical
    assert tables.rewards[0][0] == pytest.approx(float(laplace_width(100, 0.01)))


def test_the_proven_set_of_dbn_ucrl_divides_rho() -> None:
    learner = fmdp.DBNUCRL(rho=0.08)
    tables = learner.tables(counted(learner, [60, 140], 200))
    width = float(empirical_bernstein_width(0.7, 200, peeling_term(200, 0.01)))
    assert tables.lower[0][0, 1] == pytest.approx(0.7 - width)


def test_rewards_of_ucrl3_have_the_smaller_of_two_bounds() -> None:
    agent = counted(fmdp.UCRL3(), [5000, 5000], 10_000)
    seen, delta = agent.statistics, np.full(2, 0.001)
    laplace = float(laplace_width(10_000, 0.001))
    bernstein = 7.0 / 3.0 * float(peeling_term(10_000, 0.001)) / 10_000
    assert reward_width(seen, delta, public=False) == pytest.approx([bernstein] * 2)
    assert bernstein < laplace
    seen.counts.reward_sums[:] = 5000.0  # a mean in the middle, where Laplace's is smaller
    assert reward_width(seen, delta, public=False) == pytest.approx([laplace] * 2)
    seen.counts.visits[:] = 0
    assert np.isinf(reward_width(seen, delta, public=False)).all()


def test_the_public_level_of_scal_is_that_of_time() -> None:
    """At t = 10,000 the failure probability is .01, which a constant rho gives as well."""
    public, constant = fmdp.SCAL(level="inverse-root"), fmdp.SCAL(rho=0.01)
    agent = counted(public, [4000, 5999], 9_999)
    mine, theirs = public.tables(agent), constant.tables(agent)
    assert np.array_equal(mine.lower[0], theirs.lower[0])
    assert np.array_equal(mine.rewards[0], theirs.rewards[0])


# ---- numbers of public codes --------------------------------------------------------------------


def gap_regrets(problem: str, learner: Any, steps: int, seeds: int = 4) -> list[float]:
    model = fmdp.problem(problem)
    found = [
        fmdp.simulate(model, learner, steps=steps, seed=seed).gap_regret for seed in range(seeds)
    ]
    assert None not in found
    return sorted(float(regret) for regret in found if regret is not None)


@pytest.mark.slow
def test_ucrl2_has_the_regret_of_the_public_code_on_circle_4() -> None:
    """The public code has 2,218 to 2,252 after 10,000 steps."""
    found = gap_regrets("circle:4", fmdp.UCRL2(faithful=True), 10_000)
    assert 0.9 * 2218 <= np.mean(found) <= 1.1 * 2252, found


@pytest.mark.slow
def test_ucrl2_has_the_regret_of_the_public_code_on_riverswim() -> None:
    """The public code has 16,809 to 18,949 after 50,000 steps."""
    found = gap_regrets("riverswim:1", fmdp.UCRL2(faithful=True), 50_000, seeds=3)
    assert 16_809 <= np.mean(found) <= 18_949, found


@pytest.mark.slow
def test_ucrl3_has_the_regret_of_the_public_code_without_support_selection() -> None:
    """The public code has 306 to 458 after 10,000 steps, and 308 to 470 without its selection of
    supports, which is not offered here. The confidence set that keeps its promise has far more."""
    public = gap_regrets("riverswim:1", fmdp.UCRL3(faithful=True), 10_000)
    assert 306 <= np.median(public) <= 470, public
    proven = gap_regrets("riverswim:1", fmdp.UCRL3(), 10_000)
    assert proven[0] > 1.5 * np.median(public), (proven, public)


@pytest.mark.slow
def test_kl_ucrl_has_the_regret_of_the_public_code_with_its_bisection_turned_round() -> None:
    """After 10,000 steps on riverswim:1 that code has 1,789 to 2,407 (median 2,006 of 12 seeds), on
    jao:2 609 to 723 (6 seeds). As it is, without optimism about values that were seen, it has 2,178
    to 4,207 and 188 to 394."""
    found = gap_regrets("riverswim:1", fmdp.KLUCRL(faithful=True), 10_000, seeds=10)
    assert 1_789 <= np.median(found) <= 2_407, found
    found = gap_regrets("jao:2", fmdp.KLUCRL(faithful=True), 10_000)
    assert 609 <= np.median(found) <= 723 * 1.05, found


@pytest.mark.slow
def test_imed_rl_has_the_regret_of_the_public_code() -> None:
    """After 3,000 steps on riverswim:1 that code has 29 to 38 (median 36 of 8 seeds), and the index
    of the theorem, which explores more, 78 to 110 here."""
    found = gap_regrets("riverswim:1", fmdp.IMEDRL(faithful=True), 3_000, seeds=6)
    assert 29 <= np.median(found) <= 38, found
    theorem = gap_regrets("riverswim:1", fmdp.IMEDRL(), 3_000)
    assert theorem[0] > 1.5 * np.median(found), (theorem, found)


@pytest.mark.slow
def test_tsde_with_known_rewards() -> None:
    """With known rewards 121 to 507 after 10,000 steps on circle:4, else 1,464 to 1,726."""
    found = gap_regrets("circle:4", fmdp.TSDE(faithful=True), 10_000)
    assert 121 <= np.median(found) <= 507, found
    assert gap_regrets("circle:4", fmdp.TSDE(), 10_000, seeds=2)[0] > 1_000
