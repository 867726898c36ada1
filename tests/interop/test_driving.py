"""Learners on environments that are not fmdp's: what they are told, and what comes of it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import fmdp
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.interop.gymnasium import FactoredEnv, drive
from fmdp.interop.spaces import Variables


class Corridor(gymnasium.Env[Any, Any]):
    """Places 5, 6, 7: right moves on and from 7 ends the episode with 1; left stays and pays 0.
    Every episode begins at 5; a lamp goes on and off by itself, one step on, one step off."""

    def __init__(self, limit: int | None = None) -> None:
        self.observation_space = spaces.Dict(
            {"place": spaces.Discrete(3, start=5), "lamp": spaces.MultiBinary(1)}
        )
        self.action_space = spaces.Tuple((spaces.Discrete(2, start=-1),))
        self.limit = limit
        self.done: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place, self.lamp, self.age = 5, 0, 0
        return self.seen(), {}

    def seen(self) -> dict[str, Any]:
        return {"place": np.int64(self.place), "lamp": np.array([self.lamp], dtype=np.int8)}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.done.append(int(action[0]))
        right = action[0] == 0
        ended = right and self.place == 7
        self.place = min(self.place + right, 7)
        self.lamp, self.age = 1 - self.lamp, self.age + 1
        return self.seen(), float(ended), bool(ended), self.age == self.limit, {}


CORRIDOR = fmdp.Structure(
    (2, 3), (2,), ((0, 1, 2), (1, 2)), ((1, 2),), state_names=("lamp", "place")
)
"""Dict spaces are in the order of the alphabet; the lamp goes out when the corridor ends."""


def right(state: tuple[int, ...]) -> int:
    return 1


# ---- the loop ------------------------------------------------------------------------------------


@pytest.mark.parametrize("learner", ["psrl", "random"])
def test_driving_is_simulating_to_the_last_bit(learner: str) -> None:
    model = fmdp.problem("circle:3")
    driven = drive(FactoredEnv(model), learner, 400, seed=5, structure=model.structure)
    run = fmdp.simulate(model, learner, 400, 5)
    assert driven.total_reward == run.total_reward
    told: Any = run.agent
    assert driven.agent.statistics.counts.cells.tolist() == told.statistics.counts.cells.tolist()
    assert driven.agent.episodes == told.episodes
    assert driven.curve[-1] == (400, driven.total_reward)
    other = drive(FactoredEnv(model), learner, 400, seed=6, structure=model.structure)
    assert other.total_reward != driven.total_reward


def test_an_end_leads_to_the_next_beginning() -> None:
    env = Corridor()
    learner = fmdp.PSRL().start(CORRIDOR, 0)
    driven = drive(env, learner, 9)
    # What was done and seen is counted here by hand, from the environment's own record.
    place, lamp = 0, 0
    counts: dict[Any, int] = {}
    returns, paid = [], 0.0
    for action in env.done:
        moved = action + 1
        ended = moved == 1 and place == 2
        after = (0, 0) if ended else (1 - lamp, min(place + moved, 2))
        counts[(lamp, place, moved), after] = counts.get(((lamp, place, moved), after), 0) + 1
        paid += ended
        if ended:
            returns.append(paid)
            paid = 0.0
        lamp, place = after
    statistics = driven.agent.statistics
    expected = fmdp.Statistics(CORRIDOR)
    for (x, after), times in counts.items():
        for _ in range(times):
            expected.record(x[:2], x[2:], [float(x[1] == 2 and x[2] == 1)], after)
    assert statistics.counts.cells.tolist() == expected.counts.cells.tolist()
    assert statistics.counts.reward_sums.tolist() == expected.counts.reward_sums.tolist()
    assert driven.returns == tuple(returns)


def test_a_time_limit_says_nothing_about_the_state() -> None:
    driven = drive(Corridor(limit=2), right, 4, structure=CORRIDOR)
    assert driven.returns == (0.0, 0.0)
    agent = fmdp.PSRL().start(CORRIDOR, 0)
    env = Corridor(limit=1)
    drive(env, agent, 6)
    # Nobody ever got from place 0 to any lamp but the one that is on: no reset was counted.
    lamps = agent.statistics.counts.cells[: 2 * 2 * 3 * 2].reshape(-1, 2)
    assert lamps[:, 0].sum() == 0
    assert lamps[:, 1].sum() == 6


def test_a_learner_gets_through_the_corridor() -> None:
    # Three steps right and one reward: a third a step at best, and an eighth at random or less.
    best = drive(Corridor(), right, 300, structure=CORRIDOR)
    assert best.total_reward == 100.0
    learned = drive(Corridor(), "psrl", 300, structure=CORRIDOR)
    assert learned.total_reward > 80.0
    assert drive(Corridor(), "random", 300, structure=CORRIDOR).total_reward < 80.0


def test_an_agent_goes_on() -> None:
    first = drive(Corridor(), "psrl", 50, structure=CORRIDOR)
    second = drive(Corridor(), first.agent, 50)
    assert second.agent is first.agent
    assert second.agent.steps == 100


def test_rewards_may_be_split() -> None:
    two = fmdp.Structure((2, 3), (2,), ((0, 1, 2), (1, 2)), ((1, 2), ()))
    driven = drive(Corridor(), right, 6, structure=two, rewards=lambda reward, info: (reward, 0.5))
    assert driven.total_reward == 2.0  # the environment's own


# ---- structures that are learned -----------------------------------------------------------------


class Switches(gymnasium.Env[Any, Any]):
    """Two switches; each action value flips one of them, mostly. Coupled, the second is flipped
    only while the first is on."""

    observation_space = spaces.MultiDiscrete([2, 2])
    action_space = spaces.Discrete(2)

    def __init__(self, coupled: bool) -> None:
        self.coupled = coupled

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.on = [0, 0]
        return np.array(self.on), {}

    def step(self, action: Any) -> Any:
        first, second = self.on
        luck = self.np_random.random(2) < 0.9
        if action == 0 and luck[0]:
            self.on[0] = 1 - first
        if action == 1 and luck[1] and (first or not self.coupled):
            self.on[1] = 1 - second
        return np.array(self.on), float(second), False, False, {}


@pytest.mark.parametrize(("coupled", "second"), [(False, (1, 2)), (True, (0, 1, 2))])
def test_scopes_are_found(coupled: bool, second: tuple[int, ...]) -> None:
    driven = drive(Switches(coupled), "psrl", 1_600, reward_range=(0, 1), explore=1_500)
    assert driven.structure.transition_scopes == ((0, 2), second)
    assert driven.structure.reward_scopes == ((1,),)
    assert driven.structure.reward_ranges == ((0.0, 1.0),)
    assert driven.explored == 1_500
    assert driven.agent.steps == 1_600  # it has seen what was explored


def test_one_variable_needs_no_exploring() -> None:
    driven = drive(gymnasium.make("FrozenLake-v1"), "random", 200, reward_range=(0, 1))
    assert driven.structure.transition_scopes == ((0, 1),)
    assert driven.structure.state_sizes == (16,)
    assert driven.explored == 0


def test_decoded_variables_have_names() -> None:
    driven = drive(
        gymnasium.make("FrozenLake-v1"),
        "random",
        60,
        reward_range=(0, 1),
        decode=lambda place: divmod(int(place), 4),
        variables={"row": 4, "column": 4},
        explore=50,
    )
    assert driven.structure.state_names == ("row", "column")


# ---- spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "sizes"),
    [
        (spaces.Discrete(4, start=-2), (4,)),
        (spaces.MultiDiscrete([2, 3]), (2, 3)),
        (spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [0, -3]]), (2, 3, 4, 5)),
        (spaces.MultiBinary(3), (2, 2, 2)),
        (spaces.MultiBinary([2, 2]), (2, 2, 2, 2)),
        (spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([3, 4]))), (2, 3, 4)),
        (
            spaces.Dict({"b": spaces.Discrete(5), "a": spaces.Tuple((spaces.MultiBinary(2),))}),
            (2, 2, 5),
        ),
    ],
    ids=str,
)
def test_spaces_become_variables_and_back(space: Any, sizes: tuple[int, ...]) -> None:
    variables = Variables(space, "action")
    assert variables.sizes == sizes
    space.seed(0)
    for _ in range(30):
        sample = space.sample()
        values = variables.values(sample)
        assert all(0 <= value < size for value, size in zip(values, sizes, strict=True))
        back = variables.element(values)
        assert space.contains(back)
        assert variables.values(back) == values
        assert str(back) == str(sample)


def test_names_of_a_dict() -> None:
    space = spaces.Dict({"b": spaces.Discrete(5), "a": spaces.MultiBinary(2)})
    assert Variables(space, "observation").names == ("a_0", "a_1", "b")


# ---- what is refused -----------------------------------------------------------------------------


class Boxed(Corridor):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Box(0.0, 1.0, (2,))


@pytest.mark.parametrize(
    ("env", "kwargs", "text"),
    [
        (Corridor(), {}, r"needs reward_range=\(lo, hi\)"),
        (Corridor(), {"reward_range": (1, 0)}, "needs reward_range"),
        (Corridor(), {"reward_range": (0, 0.5)}, r"step \d+: the environment pays 1"),
        (Corridor(), {"reward_range": (0, 1), "structure": CORRIDOR}, "no reward_range"),
        (Corridor(), {"structure": "learn"}, "must be a Structure or None"),
        (Corridor(), {"structure": fmdp.problem("circle:2").structure}, r"sizes \(3,\)"),
        (Boxed(), {"reward_range": (0, 1)}, r"got Box\(.*give decode and variables"),
        (Boxed(), {"reward_range": (0, 1), "decode": lambda o: (0,)}, "variables="),
        (Corridor(), {"structure": CORRIDOR, "decode": lambda o: (0, 3)}, "must be in 0..2"),
        (Corridor(), {"structure": CORRIDOR, "decode": 3}, "must be a function"),
        (Corridor(), {"structure": CORRIDOR, "rewards": lambda r, i: (1, 2)}, "2 rewards for 1"),
        ("Corridor", {"structure": CORRIDOR}, "takes an environment"),
        (Corridor(), {"structure": CORRIDOR, "learner": "psrrl"}, 'did you mean "psrl"'),
        (Corridor(), {"structure": CORRIDOR, "learner": "oracle"}, "must be told a FactoredMDP"),
        (Corridor(), {"structure": CORRIDOR, "steps": 0}, "steps"),
        (Corridor(), {"structure": CORRIDOR, "seed": -1}, "seed"),
        (Corridor(), {"reward_range": (0, 1), "explore": 0}, "explore"),
    ],
)
def test_wrong_input_is_one_line(env: Any, kwargs: dict[str, Any], text: str) -> None:
    given = {"learner": "random", "steps": 100, **kwargs}
    with pytest.raises(FmdpError, match=text) as raised:
        drive(env, **given)
    assert len(str(raised.value).splitlines()) == 1


def test_an_agent_of_another_structure() -> None:
    agent = fmdp.PSRL().start(CORRIDOR, 0)
    with pytest.raises(InvalidParameter, match="brings its own structure"):
        drive(Corridor(), agent, 5, structure=fmdp.problem("circle:2").structure)
