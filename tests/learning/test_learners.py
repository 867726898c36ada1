"""Promises of learners: proper tables, few plans, equal runs for every unit and form of policy.
test_conformance.py has the contract of all of them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Exact, FactoredMDP, OptimisticTables, Structure
from fmdp.errors import InvalidParameter, UnknownName
from fmdp.learning.learner import for_learning, with_targets
from fmdp.learning.registry import LEARNERS
from fmdp.planning.alp import ALP
from fmdp.planning.plan import Plan, Tables
from fmdp.planning.policies import playing
from fmdp.simulation import Reference, Simulation
from fmdp.testing.learners import StepByStep

from .conftest import started

MODEL = fmdp.problem("random:3,values=2,parents=1,actions=3,seed=5,noise=bernoulli")
REFERENCE = Reference(gain=1.5, gain_kind="exact", gaps=None, seconds=0.0)


class Checking:
    """The exact planner behind a guard that reads every table through the checking constructor."""

    name = "checking"

    def __init__(self) -> None:
        self.inner = Exact(tolerance=1e-2, max_iterations=100)
        self.calls = 0

    def prepare(self, structure: Structure) -> Checking:
        self.prepared = self.inner.prepare(structure)
        return self

    def solve(self, tables: Tables) -> Plan:
        self.calls += 1
        if isinstance(tables, OptimisticTables):
            checked: Tables = OptimisticTables(
                tables.structure, tables.lower, tables.free, tables.rewards
            )
        else:
            checked = FactoredMDP(tables.structure, tables.transitions, tables.rewards)
        return self.prepared.solve(checked)

    def warm_state(self) -> Any:
        return self.prepared.warm_state()


@pytest.mark.parametrize("name", ["psrl", "dorl", "frmax"])
@pytest.mark.parametrize("problem", ["jao:2", "random:2,values=3,seed=2,noise=gaussian"])
def test_every_row_that_is_planned_with_is_a_distribution(name: str, problem: str) -> None:
    model = fmdp.problem(problem)
    planner = Checking()
    settings: dict[str, Any] = {"m": 5} if name == "frmax" else {}
    agent = LEARNERS.find(name).make(settings, planner=planner).start(model)
    Simulation(model, agent, reference=REFERENCE).run(300)
    assert agent.planner_calls == planner.calls > 5


@pytest.mark.parametrize("name", ["psrl", "dorl", "fsrl"])
def test_arithmetic_episodes_make_few_plans(name: str) -> None:
    agent = started(f"{name},episodes=arithmetic", MODEL)
    for steps in (50, 1000):
        Simulation(MODEL, agent, reference=REFERENCE).run(steps)
        largest = MODEL.structure.max_scope_size
        bound = math.sqrt(3 * largest * agent.steps)
        assert agent.planner_calls == agent.episodes <= bound


def test_frmax_plans_again_when_an_entry_becomes_known() -> None:
    agent = started("frmax,m=4", MODEL)
    simulation = Simulation(MODEL, StepByStep(agent), reference=REFERENCE)
    known = 0
    for _ in range(200):
        simulation.run(1)
        calls = agent.planner_calls
        now = int((agent.statistics.visits >= 4).sum())
        agent.act(simulation.environment.state)
        assert (agent.planner_calls > calls) == (now > known)
        known = now
    assert known > 5


def test_a_learner_can_be_shown_what_others_did() -> None:
    agent = started("dorl", MODEL)
    for _ in range(10):
        agent.observe((0, 0, 0), (2,), (0.0, 0.0, 0.0), (1, 1, 1))
    assert agent.steps == 10
    assert agent.planner_calls == 0
    agent.act((0, 0, 0))
    assert agent.planner_calls == 1


def test_psrl_without_a_generator_says_how_to_give_one() -> None:
    with pytest.raises(InvalidParameter, match="give start a seed"):
        fmdp.PSRL().start(MODEL.structure).act(MODEL.initial_state)
    assert fmdp.DORL().start(MODEL.structure).act(MODEL.initial_state)


def test_unknown_names_and_values_are_refused() -> None:
    with pytest.raises(UnknownName, match='did you mean "prior"'):
        LEARNERS.read("psrl,priors=1")
    with pytest.raises(TypeError, match="unexpected keyword argument 'priors'"):
        fmdp.PSRL(priors=1)  # type: ignore[call-arg]
    with pytest.raises(InvalidParameter, match="'c' parameter of learner dorl"):
        fmdp.DORL(c=-1)
    with pytest.raises(UnknownName, match='did you mean "dorl"'):
        LEARNERS.find("dorel")
    with pytest.raises(InvalidParameter, match="starts with a Structure or a FactoredMDP"):
        fmdp.DORL().start("circle:4")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="must be told a FactoredMDP"):
        fmdp.Oracle().start(MODEL.structure)
    with pytest.raises(InvalidParameter, match="must be span"):
        fmdp.FSRL(planner=Exact())


def test_an_honest_learner_is_not_told_the_model() -> None:
    for kind in LEARNERS.own():
        agent = kind.make(kind.example).start(MODEL, 0)
        assert (agent.model is MODEL) == (kind.role == "upper")
        assert agent.structure == MODEL.structure


def test_every_registered_learner_says_what_it_is() -> None:
    kinds = LEARNERS.own()
    assert [kind.name for kind in kinds][:5] == ["default", "psrl", "dorl", "fsrl", "frmax"]
    for kind in kinds:
        assert kind.summary
        assert all(parameter.meaning for parameter in kind.parameters)


def test_plans_inside_learners_are_coarse_unless_asked_otherwise() -> None:
    structure = fmdp.problem("circle:4").structure
    chosen: Any = for_learning(Exact(ties="first"), structure)
    assert (chosen.tolerance, chosen.max_iterations, chosen.ties) == (4e-3, 200, "first")
    chosen = for_learning(Exact(tolerance=1e-4, max_iterations=9), structure)
    assert (chosen.tolerance, chosen.max_iterations) == (1e-4, 9)
    chosen = for_learning(ALP(), structure)
    # Values under a discount of .95 may be 20 times as far off for the same loss a step.
    assert (chosen.tolerance, chosen.max_iterations) == (pytest.approx(8e-2), None)
    chosen = for_learning(ALP(criterion="average"), structure)
    assert (chosen.tolerance, chosen.max_iterations) == (4e-3, None)
    chosen = with_targets(Exact(), "vertex")
    assert (chosen.name, chosen.targets) == ("exact", "vertex")
    agent: Any = fmdp.DORL(targets="vertex").start(structure)
    assert agent.planner == Exact(tolerance=4e-3, max_iterations=200, targets="vertex")
    assert agent.learner.planner is None  # what the user did not choose is not in the settings


def test_learners_do_not_care_about_the_unit_of_the_reward() -> None:
    """`mean` divides every reward and range by n (a power of 2, so without rounding): the same
    actions, the rewards divided by n."""
    runs = {}
    for reward in ("sum", "mean"):
        model = fmdp.problem(f"circle:4,reward={reward}")
        for name in ("psrl", "dorl", "frmax"):
            agent = started(f"{name},m=10" if name == "frmax" else name, model)
            simulation = Simulation(model, agent, seed=1, reference=REFERENCE)
            simulation.run(400)
            runs[name, reward] = simulation.environment.total_reward
    for name in ("psrl", "dorl", "frmax"):
        assert runs[name, "sum"] == pytest.approx(4 * runs[name, "mean"])


def test_fsrl_with_a_large_budget_is_dorl() -> None:
    """Budgets that no bias needs leave nothing to truncate."""
    totals = []
    for name, settings in (("dorl", {}), ("fsrl", {"budget": 1e6})):
        agent = LEARNERS.find(name).make(settings).start(MODEL)
        assert agent.planner is not None
        agent.planner = replace(agent.planner, tolerance=1e-8, max_iterations=10_000)  # type: ignore[call-arg]
        simulation = Simulation(MODEL, agent, seed=2, reference=REFERENCE)
        simulation.run(300)
        totals.append(simulation.environment.total_reward)
    assert totals[0] == totals[1]


def test_learners_approach_the_best_policy() -> None:
    """On an easy problem the gap regret of the second half is a fraction of the first's."""
    model = fmdp.problem("jao:2,delta=0.1,epsilon=0.5")
    reference = fmdp.simulation.reference_for(model)
    for name in ("psrl", "dorl", "fsrl", "frmax"):
        halves = np.zeros(2)
        for seed in range(3):
            agent = started(f"{name},m=20" if name == "frmax" else name, model, seed)
            simulation = Simulation(model, agent, seed, reference=reference)
            for half in range(2):
                before = simulation.environment.total_gap
                simulation.run(1000)
                halves[half] += simulation.environment.total_gap - before
        assert halves[1] < 0.5 * halves[0], name


class Asked:
    """A policy without a table, as approximate planners have; it counts how often it is asked."""

    def __init__(self, table: fmdp.TablePolicy) -> None:
        self.table = table
        self.state_sizes, self.action_sizes = table.state_sizes, table.action_sizes
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, state: Any) -> tuple[int, ...]:
        self.asked.append(tuple(state))
        return self.table(state)

    def save(self, path: Any) -> None: ...


class AskedPlanner:
    """The exact planner with policies that have no table."""

    name = "asked"

    def __init__(self) -> None:
        self.policies: list[Asked] = []

    def prepare(self, structure: Structure) -> AskedPlanner:
        self.prepared = Exact(tolerance=1e-2).prepare(structure)
        return self

    def solve(self, tables: Tables) -> Plan:
        plan = self.prepared.solve(tables)
        assert isinstance(plan.policy, fmdp.TablePolicy)
        self.policies.append(Asked(plan.policy))
        return replace(plan, policy=self.policies[-1])

    def warm_state(self) -> Any:
        return self.prepared.warm_state()


@pytest.mark.parametrize("most_states", [0, 1 << 18])
@pytest.mark.parametrize("rule", ["growing", "arithmetic", "doubling"])
def test_a_policy_without_a_table_runs_the_same(
    monkeypatch: pytest.MonkeyPatch, most_states: int, rule: str
) -> None:
    """Tabulated as states are met, or asked in every step where there are too many states."""
    monkeypatch.setattr(playing, "TABLE_STATES", most_states)
    planner: Any = AskedPlanner()
    asked = fmdp.DORL(planner=planner, episodes=rule).start(MODEL)
    # A third-party planner breaks its ties itself, here with the tie seed 0.
    plain = fmdp.DORL(planner=Exact(tolerance=1e-2, tie_seed=0), episodes=rule).start(MODEL)
    runs = [Simulation(MODEL, one, seed=6, reference=REFERENCE) for one in (asked, plain)]
    for run in runs:
        run.run(400)
    assert runs[0].environment.total_reward == runs[1].environment.total_reward
    assert np.array_equal(asked.statistics.cell_counts, plain.statistics.cell_counts)
    assert asked.planner_calls == plain.planner_calls
    once = all(len(set(policy.asked)) == len(policy.asked) for policy in planner.policies)
    assert once == (most_states > 0)


def test_nested_and_vertex_targets_agree_on_a_circle() -> None:
    """Nested targets are a relaxation; on the paper's circle of 4 they choose the same actions.
    Ties are broken by index: a hash would see (action, targets) under vertex targets."""
    model = fmdp.problem("circle:4")
    rewards = []
    for targets in ("nested", "vertex"):
        planner = Exact(ties="first", targets=targets)
        simulation = Simulation(model, fmdp.DORL(planner=planner), seed=1, reference=REFERENCE)
        simulation.run(600)
        rewards.append(simulation.environment.total_reward)
    assert rewards[0] == rewards[1]
