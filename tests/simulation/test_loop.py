"""simulate: one seed, one run; learners of one's own; runs in pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.simulation import Reference, Simulation, reference_for, regret, simulate
from fmdp.simulation.loop import streams

MODEL = fmdp.problem("circle:3")
REFERENCE = reference_for(MODEL)


def cost(run: fmdp.Run) -> tuple[Any, ...]:
    return run.regret, run.gap_regret, run.curve, run.planner_calls


def test_the_ten_lines_of_the_design() -> None:
    model = fmdp.problem("circle:4")
    plan = fmdp.plan(model)
    assert plan.policy is not None
    assert len(plan.policy((1, 0, 1, 1))) == 1
    run = fmdp.simulate(model, fmdp.DORL(c=0.03, planner=fmdp.Exact()), steps=500, seed=0)
    assert run.gap_regret is not None
    assert run.gap_regret >= 0.0
    assert (run.steps, run.episodes) == (500, run.agent.episodes)


@pytest.mark.parametrize("name", ["PSRL", "DORL", "FSRL", "FRmax", "Random"])
def test_one_seed_is_one_run(name: str) -> None:
    def run(seed: int) -> fmdp.Run:
        return simulate(MODEL, getattr(fmdp, name)(), 300, seed, reference=REFERENCE)

    assert cost(run(1)) == cost(run(1))
    assert cost(run(1)) != cost(run(2))


def test_a_run_in_pieces_is_the_same_run() -> None:
    whole = Simulation(MODEL, fmdp.PSRL(), 5, reference=REFERENCE)
    whole.run(200)
    pieces = Simulation(MODEL, fmdp.PSRL(), 5, reference=REFERENCE)
    for steps in (1, 99, 37, 63):
        pieces.run(steps)
    assert pieces.environment.steps == 200
    assert pieces.result().regret == whole.result().regret
    assert pieces.result().gap_regret == whole.result().gap_regret


def test_the_streams_are_named_and_apart() -> None:
    environment, learner = streams(3)
    children = np.random.SeedSequence(3).spawn(2)
    assert environment.random() == np.random.Generator(np.random.PCG64(children[0])).random()
    assert learner.random() == np.random.Generator(np.random.PCG64(children[1])).random()


def test_a_generator_of_ones_own_is_kept() -> None:
    mine = np.random.Generator(np.random.PCG64(8))
    agent = fmdp.PSRL().start(MODEL.structure, mine)
    simulate(MODEL, agent, 10, reference=REFERENCE)
    assert agent.generator is mine
    without = fmdp.PSRL().start(MODEL.structure)
    simulate(MODEL, without, 10, seed=3, reference=REFERENCE)
    theirs = simulate(MODEL, fmdp.PSRL(), 10, seed=3, reference=REFERENCE).agent.generator
    assert without.generator is not None
    assert without.generator.bit_generator.state == theirs.bit_generator.state


class Stubborn:
    """The least that a learner can be."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def act(self, state: tuple[int, ...]) -> Sequence[int]:
        return [3]

    def observe(self, *step: Any) -> None:
        self.seen.append(step)


def test_a_learner_of_ones_own() -> None:
    learner = Stubborn()
    run = simulate(MODEL, learner, 40, reference=REFERENCE)
    assert (run.steps, run.episodes, run.planner_calls) == (40, None, None)
    assert len(learner.seen) == 40
    states = [step[0] for step in learner.seen]
    assert states[0] == MODEL.initial_state
    assert states[1:] == [step[3] for step in learner.seen[:-1]]


def test_more_states_and_actions_than_an_index_can_count() -> None:
    model = fmdp.problem("machines:70")  # 9^70 states, 2^70 joint actions
    reference = Reference(1.0, "upper_bound", None, 0.0)
    run = simulate(model, fmdp.Random(), 30, reference=reference)
    assert (run.steps, run.gain_kind, run.gap_regret) == (30, "upper_bound", None)


def test_an_agent_of_another_structure_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="structure"):
        simulate(MODEL, fmdp.DORL().start(fmdp.problem("circle:4").structure), 10)


def test_progress_is_reported() -> None:
    news: list[Mapping[str, Any]] = []
    simulate(MODEL, fmdp.DORL(), 500, reference=REFERENCE, progress=news.append)
    assert news
    assert set(news[0]) == {"step", "steps", "episode", "regret", "seconds"}
    assert news[0]["steps"] == 500


def test_a_policy_is_evaluated_by_simulation_too() -> None:
    policy = fmdp.plan(MODEL).policy
    assert policy is not None
    exact = fmdp.evaluate(MODEL, policy)
    simulated = fmdp.simulation.evaluate_by_simulation(MODEL, policy, steps=200_000)
    assert (exact.kind, simulated.kind) == ("exact", "simulated")
    assert simulated.gain_lower <= exact.gain <= simulated.gain_upper
    assert simulated.gain_upper - simulated.gain_lower < 0.02
    assert 190_000 < simulated.iterations <= 200_000

    class Asked:
        """The same policy without its table."""

        def __call__(self, state: Sequence[int]) -> tuple[int, ...]:
            return policy(state)

        def save(self, path: object) -> None: ...

    asked = fmdp.simulation.evaluate_by_simulation(MODEL, Asked(), steps=2000)
    tabulated = fmdp.simulation.evaluate_by_simulation(MODEL, policy, steps=2000)
    assert asked.run_gains == tabulated.run_gains


def test_a_run_without_regret_is_the_same_run() -> None:
    model = fmdp.problem("circle:3")
    plain = simulate(model, "psrl", 500, seed=3, regret=False)
    full = simulate(model, "psrl", 500, seed=3)
    assert (plain.total_reward, plain.planner_calls) == (full.total_reward, full.planner_calls)
    assert plain.regret is plain.gain is plain.gap_regret is plain.gain_kind is None
    assert plain.curve == ()
    assert plain.no_regret_reason == "not asked for"
    assert "no regret: not asked for" in repr(plain)
    assert full.regret is not None
    assert full.no_regret_reason is None
    assert simulate(model, "psrl", 500, seed=3, regret=True).regret == full.regret
    with pytest.raises(InvalidParameter, match="'regret' parameter of simulate"):
        simulate(model, "psrl", 5, regret="no")  # type: ignore[arg-type]


def test_a_reference_that_takes_longer_than_the_run_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By prediction; a given reference and regret=True are not affected."""
    model = fmdp.problem("circle:3")
    reference = reference_for(model)
    monkeypatch.setattr(regret, "predicted_plan_seconds", lambda *_, **__: 15.0)
    run = simulate(model, "random", 100)
    assert run.regret is None
    assert run.no_regret_reason is not None
    assert run.no_regret_reason.startswith("the optimal gain is predicted to take 15")
    assert simulate(model, "psrl", 100).regret is None
    assert simulate(model, "psrl", 1000).regret is not None  # a budget of 20 seconds
    assert simulate(model, "random", 100, regret=True).regret is not None
    assert simulate(model, "random", 100, reference=reference).regret is not None
