"""The phases of the exact planner: the documented transitions, and what a stop leaves behind."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp._base.deadlines import NEVER, Deadline, TimeUp
from fmdp.learning.posterior import sample_model
from fmdp.model import FactoredMDP
from fmdp.planning.exact import planner, solver
from fmdp.planning.exact.solver import Phase, Problem, State
from fmdp.planning.plan import Status

PAGE = Path(__file__).parents[2] / "docs" / "how-exact-works.md"

Transitions = Counter[tuple[Phase, Phase]]


def documented() -> set[tuple[Phase, Phase]]:
    edges = re.findall(r"^([A-Z_]+) +-> ([A-Z_]+)", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    return {(Phase[before], Phase[after]) for before, after in edges}


@pytest.fixture
def transitions(monkeypatch: pytest.MonkeyPatch) -> Transitions:
    """The transitions of all plans of a test."""
    seen: Transitions = Counter()

    def traced(problem: Problem, state: State) -> State:
        def follow(phase: Phase, function: solver.PhaseFunction) -> solver.PhaseFunction:
            def run(problem: Problem, state: State) -> State:
                after = function(problem, state)
                seen[phase, after.phase] += 1
                return after

            return run

        phases = {phase: follow(phase, function) for phase, function in problem.phases.items()}
        return solver.solve(replace(problem, phases=phases), state)

    monkeypatch.setattr(planner, "solve", traced)
    return seen


def leaking(leak: float) -> FactoredMDP:
    """Two states that are left with probability `leak`, paying 1 and 0."""
    law = [[1.0 - leak, leak], [leak, 1.0 - leak]]
    return FactoredMDP.from_factors((2,), (1,), [((0,), law)], [((0,), [1.0, 0.0])])


def corridor(n: int) -> FactoredMDP:
    """Left or right, surely; the ends pay .99 and 1 for staying."""
    law, rewards = np.zeros((n, 2, n)), np.zeros((n, 2))
    for s in range(n):
        law[s, 0, max(s - 1, 0)] = law[s, 1, min(s + 1, n - 1)] = 1.0
    rewards[0, 0], rewards[-1, 1] = 0.99, 1.0
    return FactoredMDP.from_factors((n,), (2,), [((0, 1), law)], [((0, 1), rewards)])


def two_rooms(pay: float) -> FactoredMDP:
    """Two states that are never left, paying .6 and `pay`."""
    return FactoredMDP.from_factors((2,), (1,), [((0,), np.eye(2))], [((0,), [0.6, pay])])


def slow_models(count: int) -> list[FactoredMDP]:
    """Sampled before anything was observed: nearly deterministic rows."""
    statistics = fmdp.Statistics(fmdp.problem("three-leg:4,dynamics=talebi").structure)
    return [sample_model(statistics, 0.75, 0.01, np.random.default_rng(s)) for s in range(count)]


def test_the_page_lists_every_transition(transitions: Transitions) -> None:
    """Models of all kinds: no transition that is not on the page, and nearly all that are."""
    models = [
        *(fmdp.problem(name) for name in ("circle:4", "jao:3", "riverswim:2", "large-diameter")),
        *(fmdp.problem(f"random:3,values=3,seed={seed}") for seed in range(4)),
        *(leaking(leak) for leak in (1e-3, 1e-9)),
        corridor(4),
        corridor(40),
        two_rooms(0.6),
        two_rooms(0.2),
        *slow_models(12),
    ]
    for model in models:
        fmdp.Exact().plan(model)
        fmdp.Exact(max_iterations=3).plan(model)
        fmdp.Exact(criterion="discounted", discount=0.9999, max_iterations=500).plan(model)
        prepared = fmdp.Exact(tolerance=4e-3, max_iterations=200).prepare(model.structure)
        for _ in range(2):
            prepared.solve(model)
    known = documented()
    assert set(transitions) <= known
    assert {phase for phase, _ in transitions} == set(Phase) - {Phase.DONE}
    assert len(set(transitions)) >= len(known) - 2  # what rounding decides is rare


def test_a_state_is_frozen() -> None:
    state = State(np.zeros(2), np.zeros(2), np.zeros(2), 0.0, 1.0)
    with pytest.raises(AttributeError):
        state.sweeps = 3  # type: ignore[misc]


@pytest.mark.parametrize("stop", [TimeUp, KeyboardInterrupt])
@pytest.mark.parametrize("phase", [Phase.ITERATE, Phase.DIAGNOSE, Phase.ACCELERATE, Phase.POLISH])
def test_the_bounds_of_the_last_whole_sweep_hold(
    phase: Phase, stop: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the second pass of a phase, or in its only one."""
    model, calls = fmdp.problem("circle:4,dynamics=guestrin"), iter(range(10_000))
    best = fmdp.Exact(tolerance=1e-9).plan(model).gain

    def stopped(problem: Problem, state: State) -> State:
        inner = problem.phases[phase]

        def run(problem: Problem, state: State) -> State:
            if next(calls) == (0 if phase is Phase.POLISH else 1):
                raise stop
            return inner(problem, state)

        return solver.solve(replace(problem, phases={**problem.phases, phase: run}), state)

    monkeypatch.setattr(planner, "solve", stopped)
    plan = fmdp.Exact().plan(model)
    assert plan.gain_lower <= best <= plan.gain_upper  # type: ignore[operator]
    assert plan.policy is not None
    if stop is KeyboardInterrupt:
        assert plan.status is Status.INTERRUPTED
    else:
        polished = phase is Phase.POLISH
        assert plan.status is (Status.CONVERGED if polished else Status.TIME_LIMIT)
    assert (plan.bias is not None) == (phase is Phase.POLISH and stop is TimeUp)


def test_deadlines() -> None:
    assert not NEVER.expired()
    assert NEVER.remaining() is None
    NEVER.check()
    late, soon = Deadline.after(-1.0), Deadline.after(60.0)
    assert late.expired()
    assert late.remaining() == 0.0
    with pytest.raises(TimeUp):
        late.check()
    soon.check()
    assert 0.0 < soon.remaining() <= 60.0  # type: ignore[operator]
    assert Deadline.after(None) == NEVER
