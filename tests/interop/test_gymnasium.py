"""Models as Gymnasium environments: Gymnasium's own checks, and the simulator as a referee."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import Environment, FactoredMDP, Noise
from fmdp.errors import FmdpError, InvalidParameter, TooLarge, UnknownName
from fmdp.interop.gymnasium import (
    FactoredEnv,
    FactoredVectorEnv,
    environment_ids,
    register_envs,
)
from fmdp.interop.gymnasium.actions import JointActions
from fmdp.interop.gymnasium.kernels import no_streams, put_stream, stream_of
from fmdp.problems import PROBLEMS
from fmdp.problems.ids import parse_id
from fmdp.simulation.loop import streams
from fmdp.testing import strategies

FAMILIES = sorted(environment_ids().items())


def settings_of(name: str) -> dict[str, Any]:
    """Of the example of a family."""
    return parse_id(PROBLEMS.find(name).example_id()).as_dict()


def one_variable(noise: Noise | None = None) -> FactoredMDP:
    return FactoredMDP.from_factors(
        [3], [2], [((0, 1), [[0.2, 0.3, 0.5]] * 6)], [((0,), [0.0, 0.5, 1.0])], noise=noise
    )


def mixed_noise() -> FactoredMDP:
    """Rewards of every kind, one without noise between the others and two of them last."""
    kinds = [Noise("bernoulli"), Noise(), Noise("gaussian", 0.3), Noise(), Noise()]
    row = np.full((1, 20), 0.05)
    return FactoredMDP.from_factors(
        [20, 2],
        [2, 3],
        [((), row), ((0, 2), np.tile([[0.3, 0.7], [0.9, 0.1]], (20, 1)))],
        [((1,), [0.2, 0.8]), ((1,), [0.1, 0.3]), ((3,), [0.4, 0.5, 0.6]), ((), [0.5]), ((), [1.0])],
        noise=kinds,
    )


# ---- Gymnasium's own checks ----------------------------------------------------------------------


@pytest.mark.parametrize(("env_id", "name"), FAMILIES)
def test_every_family_passes_the_checker(env_id: str, name: str) -> None:
    check_env(gymnasium.make(env_id, **settings_of(name)).unwrapped)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"problem": "circle:3,dynamics=guestrin"},
        {"problem": "examples/pumps.json"},
        {"problem": "maintenance:3,crew=1"},
        {"problem": "maintenance:3,crew=1", "joint": True},
        {"problem": "riverswim:2", "joint": True, "named": True},
        {"problem": fmdp.problems.Circle(size=3)},
        {"problem": one_variable()},
        {"problem": mixed_noise()},
    ],
)
def test_any_model_passes_the_checker(
    kwargs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    check_env(gymnasium.make("fmdp/Model-v0", **kwargs).unwrapped)


def test_the_checker_finds_what_is_wrong() -> None:
    class SameArray(FactoredEnv):
        def _observed(self) -> Any:
            return self._state

        def step(self, action: Any) -> Any:
            held = self._state
            found = super().step(action)
            held[:] = self._state
            self._state = held
            return held, *found[1:]

    with pytest.raises(AssertionError, match="share an object"):
        check_env(SameArray("circle:3"), skip_render_check=True)


@pytest.mark.parametrize(("env_id", "name"), FAMILIES)
def test_the_settings_of_a_family_and_of_an_environment_have_other_names(
    env_id: str, name: str
) -> None:
    own = {one.name for one in PROBLEMS.find(name).parameters}
    assert not own & {"problem", "render_mode", "joint", "forbidden", "named", "num_envs"}


def test_spaces() -> None:
    env = gymnasium.make("fmdp/Circle-v0", size=7)
    assert env.observation_space == gymnasium.spaces.MultiDiscrete([2] * 7)
    assert env.action_space == gymnasium.spaces.Discrete(8)
    assert env.spec is not None
    assert env.spec.max_episode_steps is None
    two = FactoredEnv("riverswim:2")
    assert two.action_space == gymnasium.spaces.MultiDiscrete([2, 2])
    assert FactoredEnv("riverswim:2", joint=True).action_space == gymnasium.spaces.Discrete(4)
    alone = FactoredEnv(one_variable())
    assert alone.observation_space == gymnasium.spaces.Discrete(3)
    assert isinstance(alone.reset()[0], np.int64)


# ---- the same luck as everywhere in fmdp ---------------------------------------------------------


def walk(env: Any, steps: int, seed: int, chosen: np.random.Generator) -> list[Any]:
    """Actions, observations, rewards of a run from a seed."""
    env.reset(seed=seed)
    found = []
    for _ in range(steps):
        action = tuple(chosen.integers(env.structure.action_sizes).tolist())
        done = action if len(action) > 1 else action[0]
        observation, reward, terminated, truncated, info = env.step(np.array(done))
        assert not terminated
        assert not truncated
        found.append((action, np.atleast_1d(observation).tolist(), reward, info["rewards"]))
    return found


@settings(max_examples=40, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**40))
def test_an_environment_is_the_simulator_to_the_last_bit(model: FactoredMDP, seed: int) -> None:
    referee = Environment(model, streams(seed)[0])
    chosen = np.random.Generator(np.random.PCG64(1))
    for action, observation, reward, rewards in walk(FactoredEnv(model), 30, seed, chosen):
        expected, state = referee.step(action)
        assert tuple(observation) == state
        assert tuple(rewards.tolist()) == expected
        assert reward == sum(expected)  # one after the other


def test_a_seed_is_the_luck_of_simulate() -> None:
    model = fmdp.problem("circle:4")
    run = fmdp.simulate(model, "random", 200, seed=7, record=True)
    assert run.trajectory is not None
    env = FactoredEnv(model)
    env.reset(seed=7)
    for t, action in enumerate(run.trajectory.actions):
        observation, reward, *_ = env.step(int(action[0]))
        assert observation.tolist() == run.trajectory.states[t + 1].tolist()
        assert reward == run.trajectory.rewards[t].sum()
    env.reset(seed=8)  # another seed has other luck
    others = [env.step(int(action[0]))[0].tolist() for action in run.trajectory.actions]
    assert others != run.trajectory.states[1:].tolist()


@settings(max_examples=40, deadline=None)
@given(model=strategies.models(), seed=st.integers(0, 2**40), copies=st.integers(1, 4))
def test_every_copy_is_an_environment_to_the_last_bit(
    model: FactoredMDP, seed: int, copies: int
) -> None:
    check_copies(model, seed, copies)


@pytest.mark.parametrize(
    "problem",
    [
        "random:4,values=5,noise=bernoulli",
        "random:3,values=30,noise=gaussian",
        "circle:5,dynamics=guestrin,alike=machines",
        "maintenance:3",
        mixed_noise(),
        one_variable(Noise("gaussian", 0.5)),
    ],
)
def test_noise_of_every_kind_and_variables_of_any_size(problem: Any) -> None:
    check_copies(problem if isinstance(problem, FactoredMDP) else fmdp.problem(problem), 3, 3)


def check_copies(model: FactoredMDP, seed: int, copies: int) -> None:
    vector = FactoredVectorEnv(model, copies)
    alone = [FactoredEnv(model) for _ in range(copies)]
    observations, _ = vector.reset(seed=seed)
    begun = [env.reset(seed=seed + i)[0] for i, env in enumerate(alone)]
    assert observations.tolist() == [np.asarray(one).tolist() for one in begun]
    vector.action_space.seed(1)
    for _ in range(30):
        actions = vector.action_space.sample()
        observations, rewards, ended, cut, infos = vector.step(actions)
        assert not ended.any()
        assert not cut.any()
        for i, env in enumerate(alone):
            observation, reward, _, _, info = env.step(actions[i])
            assert np.asarray(observation).tolist() == observations[i].tolist()
            assert reward == rewards[i]
            assert info["rewards"].tolist() == infos["rewards"][i].tolist()
    for i, generator in enumerate(vector.np_random):
        assert generator.bit_generator.state == alone[i].np_random.bit_generator.state


def test_a_stream_comes_back_as_it_went_in() -> None:
    generator = np.random.Generator(np.random.PCG64(2**100 + 5))
    held = no_streams(2)
    put_stream(held, 1, generator)
    assert stream_of(held, 1).random(5).tolist() == generator.random(5).tolist()


def test_resets_go_on_with_the_luck() -> None:
    env = FactoredEnv("circle:4")

    def two_runs(seed: int) -> list[Any]:
        env.reset(seed=seed)
        first = [env.step(0)[0].tolist() for _ in range(20)]
        env.reset()
        return [first, [env.step(0)[0].tolist() for _ in range(20)]]

    found = two_runs(0)
    assert found == two_runs(0)
    assert found[0] != found[1]


def test_a_reset_may_begin_elsewhere() -> None:
    env = FactoredEnv("circle:3")
    assert env.reset(options={"state": (0, 1, 0)})[0].tolist() == [0, 1, 0]
    named = {"machine_0": "down", "machine_1": "working", "machine_2": "down"}
    assert env.reset(options={"state": named})[0].tolist() == [0, 1, 0]
    vector = FactoredVectorEnv("circle:3", 2)
    assert vector.reset(options={"state": (0, 1, 0)})[0].tolist() == [[0, 1, 0]] * 2
    with pytest.raises(InvalidParameter, match='did you mean "state"'):
        env.reset(options={"stat": (0, 1, 0)})


def test_named_states_and_text() -> None:
    env = FactoredEnv("circle:2", named=True, render_mode="ansi")
    assert env.reset(seed=0)[1]["state"] == {"machine_0": "working", "machine_1": "working"}
    assert env.render() == "machine_0=working machine_1=working"
    _, reward, _, _, info = env.step(1)
    shown = " ".join(f"{name}={value}" for name, value in info["state"].items())
    assert env.render() == f"restart=1 -> {reward:g}, {shown}"
    assert FactoredEnv("circle:2").render() is None
    vector = FactoredVectorEnv("circle:2", 2, render_mode="ansi")
    vector.reset(seed=0)
    vector.step(np.array([1, 1]))
    assert vector.render() is not None
    assert vector.render()[0] == env.render()  # type: ignore[index]


# ---- many copies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {"problem": "circle:3"},
        {"problem": "riverswim:2"},
        {"problem": "riverswim:2", "joint": True},
        {"problem": "maintenance:3,crew=1"},
        {"problem": "maintenance:3,crew=1", "joint": True},
        {"problem": one_variable(Noise("bernoulli"))},
    ],
)
def test_many_copies_are_as_the_sync_vector_env_has_them(kwargs: dict[str, Any]) -> None:
    native = gymnasium.make_vec("fmdp/Model-v0", num_envs=5, **kwargs)
    sync = gymnasium.make_vec("fmdp/Model-v0", num_envs=5, vectorization_mode="sync", **kwargs)
    assert isinstance(native, FactoredVectorEnv)
    assert isinstance(sync, SyncVectorEnv)
    assert native.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    for space in (
        "action_space",
        "observation_space",
        "single_action_space",
        "single_observation_space",
    ):
        assert getattr(native, space) == getattr(sync, space)
    assert data_equivalence(native.reset(seed=11), sync.reset(seed=11), exact=True)
    assert native.np_random_seed == (11, 12, 13, 14, 15)
    native.action_space.seed(0)
    for t in range(40):
        actions = native.action_space.sample()
        assert native.observation_space.contains(
            native.states.reshape(native.observation_space.shape)
        )
        assert data_equivalence(native.step(actions), sync.step(actions), exact=True)
        if t % 10 == 9:
            mask = np.array([True, False, False, True, True])
            seeds = [t, None, None, None, 5]
            ours = native.reset(seed=seeds, options={"reset_mask": mask.copy()})
            theirs = sync.reset(seed=seeds, options={"reset_mask": mask.copy()})
            assert data_equivalence(ours, theirs, exact=True)
    assert data_equivalence(native.reset(), sync.reset(), exact=True)
    assert data_equivalence(native.step(actions), sync.step(actions), exact=True)


def test_what_a_step_gives_is_not_used_again() -> None:
    env = FactoredVectorEnv("circle:3", 4)
    env.reset(seed=0)
    first = env.step(np.zeros(4, dtype=np.int64))
    kept = copy.deepcopy(first)
    first[0][:] = 0
    second = env.step(np.zeros(4, dtype=np.int64))
    again = FactoredVectorEnv("circle:3", 4)
    again.reset(seed=0)
    assert data_equivalence(again.step(np.zeros(4, dtype=np.int64)), kept, exact=True)
    assert data_equivalence(again.step(np.zeros(4, dtype=np.int64)), second, exact=True)


def test_without_a_seed_there_is_luck_too() -> None:
    def walked() -> list[Any]:
        env = FactoredVectorEnv("circle:7", 3)
        env.reset()
        return [env.step(np.zeros(3, dtype=np.int64))[0].tolist() for _ in range(20)]

    assert walked() != walked()


@pytest.mark.parametrize("make", [FactoredEnv, lambda problem: FactoredVectorEnv(problem, 2)])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copy_goes_on_by_itself(make: Any, copied: Any) -> None:
    env = make("circle:4")
    env.reset(seed=0)
    actions = env.action_space.sample()
    env.step(actions)
    twin = copied(env)
    ours = [env.step(actions)[0].tolist() for _ in range(20)]
    assert [twin.step(actions)[0].tolist() for _ in range(20)] == ours


# ---- constraints ---------------------------------------------------------------------------------


def test_masks_are_what_the_structure_allows() -> None:
    env = FactoredEnv("maintenance:3,crew=1")
    s = env.structure
    _, info = env.reset(seed=0)
    for _ in range(30):
        allowed = [s.allowed(env.state, np.unravel_index(a, s.action_sizes)) for a in range(8)]  # type: ignore[arg-type]
        assert info["action_mask"].tolist() == [int(one) for one in allowed]
        assert info["action_mask"].dtype == np.int8
        action = env.action_space.sample(mask=info["action_mask"])
        assert s.allowed(env.state, action.tolist())
        *_, info = env.step(action)
        assert info["replaced"] is False


def test_a_large_table_of_masks_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = FactoredEnv("maintenance:3,crew=1")
    monkeypatch.setattr("fmdp.interop.gymnasium.actions._MOST_TABULATED", 1)
    env = FactoredEnv("maintenance:3,crew=1")
    env.reset(seed=0)
    assert env.action_mask().tolist() == whole.action_mask().tolist()


@pytest.mark.parametrize("joint", [False, True])
def test_the_lowest_allowed_action_stands_for_a_forbidden_one(joint: bool) -> None:
    env = FactoredEnv("maintenance:3,crew=1", joint=joint)
    none, two = (0, 6) if joint else (np.array([0, 0, 0]), np.array([1, 1, 0]))
    env.reset(seed=3)
    *done, info = env.step(two)
    assert info["replaced"] is True
    env.reset(seed=3)
    *instead, info = env.step(none)
    assert info["replaced"] is False
    assert data_equivalence(done, instead, exact=True)
    strict = FactoredEnv("maintenance:3,crew=1", joint=joint, forbidden="raise")
    strict.reset(seed=3)
    with pytest.raises(InvalidParameter, match="crew"):
        strict.step(two)
    strict.step(none)
    copies = FactoredVectorEnv("maintenance:3,crew=1", 2, joint=joint, forbidden="raise")
    copies.reset(seed=3)
    with pytest.raises(InvalidParameter, match="crew"):
        copies.step(np.array([none, two]))


def test_a_mask_of_joint_actions_draws_evenly_from_what_it_allows() -> None:
    space = JointActions([2, 3], seed=0)
    mask = np.array([0, 1, 0, 0, 1, 1], dtype=np.int8)
    drawn = [tuple(space.sample(mask=mask).tolist()) for _ in range(300)]
    assert {*drawn} == {(0, 1), (1, 1), (1, 2)}
    assert min(drawn.count(one) for one in {*drawn}) > 60
    own = space.sample(mask=(np.array([0, 1], np.int8), np.array([1, 0, 0], np.int8)))
    assert own.tolist() == [1, 0]
    for wrong in (mask[:5], np.zeros(6, dtype=np.int8)):
        with pytest.raises(InvalidParameter, match="a mask of joint actions must have 6"):
            space.sample(mask=wrong)


def test_too_many_joint_actions_for_a_mask() -> None:
    with pytest.raises(TooLarge, match="forbidden='raise'"):
        FactoredEnv("maintenance:21,levels=2,crew=1")
    env = FactoredEnv("maintenance:21,levels=2,crew=1", forbidden="raise")
    assert env.reset(seed=0)[1] == {}
    env.step(np.zeros(21, dtype=np.int64))
    with pytest.raises(TooLarge, match="a mask has at most"):
        env.action_mask()
    with pytest.raises(InvalidParameter, match="no constraints"):
        FactoredEnv("circle:3").action_mask()


# ---- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize("action", [8, -1, 2.0, "1", None, [1], np.array([1, 2]), True])
def test_what_is_no_action(action: Any) -> None:
    env = FactoredEnv("circle:7")
    env.reset(seed=0)
    before = env.np_random.bit_generator.state
    with pytest.raises(InvalidParameter, match=r"must be a whole number in 0\.\.7; got"):
        env.step(action)
    assert env.np_random.bit_generator.state == before


@pytest.mark.parametrize(
    "actions", [[0, 8], [0, -1], [0.0, 1.0], [0], [[0, 1]], "ab", [2**63, 0]], ids=str
)
def test_what_are_no_actions_moves_nothing(actions: Any) -> None:
    env = FactoredVectorEnv("circle:7", 2)
    env.reset(seed=0)
    before = [one.bit_generator.state for one in env.np_random]
    with pytest.raises(InvalidParameter, match="for each of 2 environments"):
        env.step(actions)
    assert [one.bit_generator.state for one in env.np_random] == before


@pytest.mark.parametrize(
    ("kwargs", "error", "text"),
    [
        ({"problem": "circel:3"}, UnknownName, 'did you mean "circle"'),
        ({"problem": "circle", "sise": 3}, UnknownName, "sise"),
        ({"problem": "circle"}, InvalidParameter, "size"),
        ({"problem": "circle", "size": 0}, InvalidParameter, "size"),
        ({"problem": "circle:3", "size": 3}, InvalidParameter, "name of a family"),
        ({"problem": one_variable(), "size": 3}, InvalidParameter, "name of a family"),
        ({"problem": 3}, InvalidParameter, "a problem must be"),
        ({"problem": "no/such.json"}, FmdpError, "no such file"),
        ({"problem": "circle:3", "render_mode": "human"}, InvalidParameter, "render_mode"),
        ({"problem": "circle:3", "forbidden": "maybe"}, InvalidParameter, "forbidden"),
        ({"problem": "circle:3", "joint": "yes"}, InvalidParameter, "joint"),
    ],
)
def test_wrong_input_is_one_line(kwargs: Any, error: type[Exception], text: str) -> None:
    for make in (FactoredEnv, FactoredVectorEnv):
        with pytest.raises(error, match=text) as raised:
            make(**kwargs)
        assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("kwargs", "text"),
    [
        ({"seed": [1]}, "one for each of 2"),
        ({"seed": "1"}, "one for each of 2"),
        ({"seed": -1}, "seed"),
        ({"options": {"reset_mask": [True]}}, "reset_mask"),
        ({"options": {"reset_mask": np.zeros(2, dtype=np.bool_)}}, "reset_mask"),
        ({"options": {"where": 3}}, "options of reset"),
    ],
)
def test_wrong_resets(kwargs: Any, text: str) -> None:
    with pytest.raises(InvalidParameter, match=text):
        FactoredVectorEnv("circle:3", 2).reset(**kwargs)
    with pytest.raises(InvalidParameter, match="num_envs"):
        FactoredVectorEnv("circle:3", 0)


# ---- registration --------------------------------------------------------------------------------


def python(script: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    return ran.stdout if ran.returncode == 0 else ran.stderr


def test_an_id_alone_brings_its_module() -> None:
    script = (
        "import gymnasium\n"
        "env = gymnasium.make('fmdp.interop.gymnasium:fmdp/Circle-v0', size=7)\n"
        "print(env.reset(seed=0)[0].tolist(), env.spec.id)"
    )
    assert python(script) == "[1, 1, 1, 1, 1, 1, 1] fmdp/Circle-v0\n"


def test_fmdp_does_not_look_for_gymnasium() -> None:
    script = "import fmdp, sys; fmdp.problem('circle:3'); print('gymnasium' in sys.modules)"
    assert python(script) == "False\n"


def test_what_is_said_without_gymnasium() -> None:
    script = "import sys; sys.modules['gymnasium'] = None; import fmdp.interop.gymnasium"
    told = python(script).splitlines()[-1]
    assert told.endswith(
        "MissingGymnasium: environments need Gymnasium, which is not installed: "
        "pip install 'fmdp[gym]'"
    )


def test_a_family_of_ones_own_has_an_id_too() -> None:
    class TwoCoins(fmdp.Problem):
        """Coins."""

        size: int = fmdp.setting(2, "number of coins", low=1)

        def build(self) -> FactoredMDP:
            rows = [((), [[0.5, 0.5]])] * self.size
            return FactoredMDP.from_factors([2] * self.size, [2], rows, [((0,), [0.0, 1.0])])

    fmdp.register(TwoCoins)
    try:
        register_envs()
        register_envs()  # again, and nothing is said twice
        env = gymnasium.make("fmdp/TwoCoins-v0", size=3)
        check_env(env.unwrapped)
        assert env.observation_space == gymnasium.spaces.MultiDiscrete([2, 2, 2])
    finally:
        PROBLEMS.forget("two-coins")
        gymnasium.registry.pop("fmdp/TwoCoins-v0", None)


def test_the_table_of_the_page_has_every_id() -> None:
    page = (Path(__file__).parents[2] / "docs" / "gymnasium.md").read_text()
    for env_id, _ in [*FAMILIES, ("fmdp/Model-v0", "")]:
        assert f"`{env_id}`" in page, env_id
