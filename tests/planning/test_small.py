"""Plans of small models in NumPy against plans of the same models by the elimination engine."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.elimination.backup import backup_for
from fmdp.elimination.ties import RULES, Ties, tie_hash
from fmdp.model import FactoredMDP
from fmdp.planning.exact import planner
from fmdp.planning.exact.planner import Exact
from fmdp.planning.exact.small import PAIRS, tabular_backup
from fmdp.planning.plan import Plan
from fmdp.planning.status import Status
from fmdp.problems import problem
from fmdp.testing.strategies import constrained, models

ANY_MODEL = st.one_of(models(), models(constrained()))
SETTINGS = (
    Exact(),
    Exact(tolerance=1e-9, ties="first"),
    Exact(ties="last"),
    Exact(criterion="discounted", discount=0.97),
    Exact(criterion="finite", horizon=5),
)
PROBLEMS = (
    *("circle:4", "circle:7", "circle:4,dynamics=ippc", "bi-ring:5", "star:5", "grid:4", "tree:6"),
    *("riverswim:1", "riverswim:2", "jao:1", "jao:2", "machines:2", "large-diameter"),
    *("random:4", "random:3,values=3,actions=2,noise=bernoulli"),
)


def by_engine(settings: Exact, model: FactoredMDP) -> Plan:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "tabular_backup", lambda *_: None)
        return settings.plan(model)


def agree(small: Plan, engine: Plan, model: FactoredMDP, tolerance: float) -> None:
    assert small.status is engine.status
    assert (small.gain is None) == (engine.gain is None)
    if engine.gain_lower is not None:
        assert small.gain_lower is not None
        assert small.gain_upper is not None
        assert engine.gain_upper is not None
        assert small.gain_lower <= engine.gain_upper
        assert engine.gain_lower <= small.gain_upper
        widths = small.gain_upper - small.gain_lower, engine.gain_upper - engine.gain_lower
        assert abs(widths[0] - widths[1]) <= tolerance
    assert (small.span is None) == (engine.span is None)
    if engine.span is not None:
        error = 2.0 * max(plan.stats.get("span_error", 0.0) for plan in (small, engine))
        assert small.span == pytest.approx(engine.span, rel=1e-9, abs=error + 1e-12)
        assert small.factored_spans == pytest.approx(
            engine.factored_spans, rel=1e-9, abs=error + 1e-12
        )
    if engine.objective is not None:
        assert small.objective == pytest.approx(engine.objective, abs=tolerance)
    start = "gain_from_initial_state"
    assert (start in small.stats) == (start in engine.stats)
    if start in engine.stats:
        assert small.stats[start] == pytest.approx(engine.stats[start], abs=tolerance)
    pairs = zip(tables(small), tables(engine), strict=True)
    assert all(np.array_equal(*pair) for pair in pairs)
    assert all(policy_is_allowed(model, actions) for actions in tables(small))


def tables(plan: Plan) -> list[Any]:
    policy: Any = plan.policy
    return [stage.actions for stage in getattr(policy, "stages", [policy])]


def policy_is_allowed(model: FactoredMDP, actions: Any) -> bool:
    return bool(model.structure.allowed_mask()[np.arange(len(actions)), actions].all())


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda own: f"{own.criterion} {own.ties}")
@given(ANY_MODEL)
def test_it_is_the_plan_of_the_engine(settings: Exact, model: FactoredMDP) -> None:
    tolerance = settings.tolerance or 1e-6 * model.structure.reward_unit
    agree(settings.plan(model), by_engine(settings, model), model, tolerance)


@pytest.mark.parametrize("name", PROBLEMS)
def test_problem_families(name: str) -> None:
    model = problem(name)
    assert tabular_backup(model) is not None
    for settings in SETTINGS:
        tolerance = settings.tolerance or 1e-6 * model.structure.reward_unit
        agree(settings.plan(model), by_engine(settings, model), model, tolerance)


@given(ANY_MODEL, st.integers(0, 2**32 - 1))
def test_operators_are_those_of_the_engine(model: FactoredMDP, seed: int) -> None:
    small, engine = tabular_backup(model), backup_for(model)
    assert small is not None
    h = np.random.default_rng(seed).normal(size=model.structure.n_states)
    assert small.apply(h, 0.9) == pytest.approx(engine.apply(h, 0.9), rel=1e-12, abs=1e-12)
    assert small.action_values(h) == pytest.approx(engine.action_values(h), rel=1e-12, abs=1e-12)
    for rule in RULES:
        value, actions = small.greedy(h, ties=rule, tie_seed=7)
        assert np.array_equal(actions, engine.greedy(h, ties=rule, tie_seed=7)[1])
        assert small.for_policy(h, actions) == pytest.approx(value, abs=1e-8)


def test_limits_end_it_with_bounds_that_hold() -> None:
    model = problem("circle:5")
    best = Exact().plan(model).gain
    assert best is not None
    for sweeps in (1, 2, 5):
        plan = Exact(max_iterations=sweeps).plan(model)
        assert plan.status is Status.ITERATION_LIMIT
        assert plan.iterations == sweeps
        assert plan.policy is not None
        assert plan.gain_lower is not None
        assert plan.gain_upper is not None
        assert plan.gain_lower <= best <= plan.gain_upper
    late = Exact(max_seconds=1e-9).plan(model)
    assert late.status is Status.TIME_LIMIT


def test_an_interrupt_gives_the_plan_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    from fmdp.planning.exact.small import TabularBackup

    sweep, calls = TabularBackup.sweep, itertools.count()

    def impatient(self: TabularBackup, *arguments: Any) -> None:
        if next(calls) == 3:
            raise KeyboardInterrupt
        sweep(self, *arguments)

    monkeypatch.setattr(TabularBackup, "sweep", impatient)
    plan = Exact().plan(problem("circle:5"))
    assert plan.status is Status.INTERRUPTED
    assert plan.iterations == 3
    assert plan.policy is not None


def test_larger_models_and_little_memory_are_left_to_the_engine() -> None:
    small = problem("circle:4")
    assert tabular_backup(small) is not None
    assert tabular_backup(small, memory_limit=10_000) is None
    large = problem("circle:9")
    assert large.structure.n_states * large.structure.n_actions > PAIRS
    assert tabular_backup(large) is None
    # Ties of components are broken by component, there.
    assert tabular_backup(problem("maintenance:2")) is None


def test_ties_are_ranked_by_the_hash_of_compiled_code() -> None:
    values = np.zeros((50, 7))
    ranks = [[tie_hash(11, s, a) for a in range(7)] for s in range(50)]
    assert np.array_equal(Ties("random", 11).choose(values, 0.0), np.argmin(ranks, axis=1))
    values[:, 2] = -1.0
    assert not (Ties("random", 11).choose(values, 0.5) == 2).any()
    assert (Ties("first").choose(values[:, 2:], 0.5) == 1).all()
    assert (Ties("last").choose(values[:, :3], 0.5) == 1).all()
