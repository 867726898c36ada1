"""rewards=known: a learner that knows the mean rewards plans with them, whatever it observes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp._base.archives import pack, unpack
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments.spec import resolved_learner
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.registry import LEARNERS
from fmdp.model import FactoredMDP, flat_model
from fmdp.simulation import Reference, Simulation

MODEL = fmdp.problem("random:3,values=2,parents=1,actions=3,seed=5,noise=bernoulli")
PLANNING = [kind for kind in LEARNERS.kinds() if issubclass(kind, PlanningLearner)]
NO_REFERENCE = Reference(0.0, "exact", None, 0.0)


def run(learner: PlanningLearner, steps: int, seed: int = 1) -> fmdp.learning.agent.Agent:
    agent = learner.start(MODEL, seed)
    if steps:
        Simulation(MODEL, agent, seed, reference=NO_REFERENCE).run(steps)
    return agent


def rewards_of(agent: fmdp.learning.agent.Agent) -> list[float]:
    """Every number that a plan is paid with, sorted: larger models repeat them, and bonuses come
    after the model's own factors."""
    rewards = agent.learner.tables(agent).rewards[: agent.statistics.structure.l]
    return sorted({round(float(r), 12) for table in rewards for r in np.ravel(table)})


@pytest.mark.parametrize("kind", PLANNING, ids=lambda kind: kind.name)
@pytest.mark.parametrize("steps", [0, 60])
def test_plans_are_paid_with_the_rewards_of_the_model(
    kind: type[PlanningLearner], steps: int
) -> None:
    """The observed rewards are 0 and 1, of coins: no estimate is a mean of the model."""
    known = run(kind.make({**kind.example, "rewards": "known"}), steps)
    flat = known.statistics.structure.state_sizes != MODEL.structure.state_sizes
    truth = flat_model(MODEL).rewards if flat else MODEL.rewards
    expected = {round(float(r), 12) for table in truth for r in np.ravel(table)}
    found = set(rewards_of(known))
    if kind.name == "e3":  # unknown entries and lost variables pay the least
        found -= {round(lo, 12) for lo, _ in MODEL.structure.reward_ranges}
        assert found <= expected
    else:
        assert found == expected
    learned = run(kind.make(kind.example), steps)
    assert set(rewards_of(learned)) != expected  # the negative control


def test_a_known_reward_of_a_flat_learner_is_the_sum_of_the_factors() -> None:
    model = fmdp.problem("circle:2")
    agent = LEARNERS.read("tsde,rewards=known").start(model, 0)
    means = agent.statistics.reward_means().reshape(2, 2, 3)
    for up in np.ndindex(2, 2):
        assert list(means[up]) == pytest.approx([sum(up)] * 3)


def test_a_structure_alone_has_no_rewards() -> None:
    learner = LEARNERS.read("psrl,rewards=known")
    with pytest.raises(InvalidParameter, match="psrl must be told a FactoredMDP, whose rewards"):
        learner.start(MODEL.structure)
    LEARNERS.read("psrl").start(MODEL.structure)


def test_tsde_is_not_charged_for_learning_rewards() -> None:
    """circle:4, where its paper knows the rewards: 1,464 to 1,726 against 121 to 507 at 10,000."""
    model = fmdp.problem("circle:4")
    known, learned = (
        [
            fmdp.simulate(model, LEARNERS.read(f"tsde,rewards={how}"), 2000, seed).regret
            for seed in range(4)
        ]
        for how in ("known", "learned")
    )
    assert max(known) < 0.75 * min(learned)


def test_run_keys_tell_known_rewards_apart() -> None:
    one, two = (
        resolved_learner(LEARNERS.read(f"psrl,rewards={how}").start(MODEL))
        for how in ("known", "learned")
    )
    assert one != two


def test_a_saved_agent_keeps_the_rewards(tmp_path: Path) -> None:
    for text in ("dorl,rewards=known", "tsde,rewards=known"):
        agent = run(LEARNERS.read(text), 50)
        agent.save(tmp_path / "agent.npz")
        again = fmdp.load_agent(tmp_path / "agent.npz")
        assert again.statistics.known_rewards is not None
        np.testing.assert_array_equal(
            again.statistics.known_rewards, agent.statistics.known_rewards
        )
        assert rewards_of(again) == rewards_of(agent)


def test_a_file_with_wrong_rewards_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "agent.npz"
    LEARNERS.read("dorl,rewards=known").start(MODEL, 0).save(path)
    header, arrays = unpack(
        path.read_bytes(), "a file", what="learner", form="fmdp-learner", version=3
    )
    n = len(arrays["known_rewards"])
    for wrong, words in ((np.full(n, 7.0), "outside the ranges"), (np.zeros(n + 1), "known_rew")):
        path.write_bytes(pack(header, {**arrays, "known_rewards": wrong}))
        with pytest.raises(FmdpError, match=words):
            fmdp.load_agent(path)
    path.write_bytes(pack(header, {k: v for k, v in arrays.items() if k != "known_rewards"}))
    with pytest.raises(FmdpError, match="known_rewards"):
        fmdp.load_agent(path)


def test_a_service_knows_the_rewards(tmp_path: Path) -> None:
    with fmdp.Service(MODEL, LEARNERS.read("dorl,rewards=known"), tmp_path, seed=1) as service:
        state = list(MODEL.initial_state)
        service.act(state)
        before = service.agent.statistics.known_rewards
    with fmdp.Service(MODEL, LEARNERS.read("dorl,rewards=known"), tmp_path, seed=1) as service:
        np.testing.assert_array_equal(service.agent.statistics.known_rewards, before)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from fmdp.cli import main

    arguments = ["learn", "circle:2", "--learner", "tsde", "--set", "rewards=known"]
    status = main([*arguments, "--ties", "least-tried", "--steps", "50", "--json"])
    assert status == 0
    parameters = json.loads(capsys.readouterr().out)["parameters"]
    assert (parameters["rewards"], parameters["ties"]) == ("known", "least-tried")


def test_observed_rewards_are_counted_all_the_same() -> None:
    agent = run(LEARNERS.read("dorl,rewards=known"), 60)
    assert agent.statistics.reward_sums.sum() > 0
    assert isinstance(MODEL, FactoredMDP)
