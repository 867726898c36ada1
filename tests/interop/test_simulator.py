"""Models from simulators: what is sampled, what is learned, what holds, and every refusal."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.stats import beta

import fmdp
from fmdp.errors import FmdpError, InvalidModel, InvalidParameter, TooLarge
from fmdp.interop.simulator import door
from fmdp.interop.simulator.sampling import evenly

STATES = {"pump": ["worn", "good"], "tank": [0, 1, 2], "price": ["low", "high"]}
ACTIONS = {"crew": ["rest", "fix"]}
PARENTS = {"pump": ["pump", "crew"], "tank": ["pump", "tank"], "price": ["price"]}


def law(name: str, x: Any) -> dict[Any, float]:
    if name == "pump":
        fails = 0.3 if x["pump"] == "good" else 1.0
        works = 0.9 if x["crew"] == "fix" else 1.0 - fails
        return {"good": works, "worn": 1.0 - works}
    if name == "tank":
        fuller, rises = min(2, x["tank"] + 1), 0.8 if x["pump"] == "good" else 0.2
        emptier = max(0, x["tank"] - 1)
        if fuller == emptier:
            return {fuller: 1.0}
        return {fuller: rises, emptier: 1.0 - rises}
    return {x["price"]: 0.7, "low" if x["price"] == "high" else "high": 0.3}


def sale(x: Any) -> float:
    return float(x["tank"] * (2 if x["price"] == "high" else 1))


TRUTH = fmdp.FactoredMDP.from_functions(
    STATES,
    ACTIONS,
    PARENTS,
    law,
    reward={"sale": (["tank", "price"], sale)},
    costs={"crew": (["crew"], lambda x: x["crew"] == "fix")},
)


def step(state: Any, action: Any, generator: np.random.Generator) -> Any:
    """The same system as a simulator."""
    following = {}
    for name in state:
        values = law(name, {**state, **action})
        number = generator.choice(len(values), p=list(values.values()))
        following[name] = list(values)[number]
    return following, {"sale": sale(state), "crew": -1.0 * (action["crew"] == "fix")}


def first(generator: np.random.Generator) -> dict[str, Any]:
    return {"pump": "good", "tank": 0, "price": "low"}


@pytest.mark.parametrize("reset", [None, first], ids=["chosen", "trajectory"])
def test_scopes_numbers_and_plans(reset: Any) -> None:
    fitted = fmdp.from_simulator(step, (STATES, ACTIONS), samples=4_000, reset=reset)
    model = fitted.model
    assert model.structure.transition_scopes == TRUTH.structure.transition_scopes
    assert model.structure.reward_scopes == TRUTH.structure.reward_scopes
    assert model.structure.reward_ranges == TRUTH.structure.reward_ranges
    assert (fitted.steps, fitted.runs, fitted.rows) == (4_000, int(reset is not None), 12)
    assert model.name == "step"
    assert model.initial_state == ((1, 0, 0) if reset else (0, 0, 0))
    for table, true in zip(model.transitions, TRUTH.transitions, strict=True):
        assert np.abs(table - true).max() < 0.1
    for table, true in zip(model.rewards, TRUTH.rewards, strict=True):
        assert table == pytest.approx(true)
    best = fmdp.plan(TRUTH).gain
    policy = fmdp.plan(model).policy
    assert policy is not None
    assert fmdp.evaluate(TRUTH, policy).gain == pytest.approx(best)
    robust = fmdp.plan(model, fmdp.Exact(intervals="robust"))
    assert robust.gain_lower is not None
    assert 0.4 * best < robust.gain_lower < best


def test_the_same_seed_gives_the_same_model() -> None:
    def sampled(seed: int, **more: Any) -> fmdp.FactoredMDP:
        return fmdp.from_simulator(step, (STATES, ACTIONS), 300, seed=seed, **more).model

    reports: list[Any] = []
    assert sampled(3) == sampled(3, progress=reports.append)
    assert sampled(3) != sampled(4)
    assert reports[0] == {"step": 1, "steps": 300}


@pytest.mark.parametrize("samples", [5, 24, 25, 100])
def test_samples_are_spread_evenly(samples: int) -> None:
    sizes = (2, 3, 4)
    chosen = evenly(sizes, samples, np.random.default_rng(0))
    assert chosen.shape == (samples, 3)
    if samples < 24:
        for column, size in zip(chosen.T, sizes, strict=True):
            assert np.ptp(np.bincount(column, minlength=size)) <= 1
    else:
        rows = np.ravel_multi_index(tuple(chosen.T), sizes)
        assert np.ptp(np.bincount(rows, minlength=24)) <= 1


# ---- intervals -----------------------------------------------------------------------------------


def all_inside(model: fmdp.FactoredMDP, true: fmdp.FactoredMDP, share: float) -> bool:
    """Whether all true numbers lie inside the intervals, shrunk to a share about the estimates."""
    ends = model.intervals
    assert ends is not None
    kinds = (
        (model.transitions, true.transitions, ends.lower, ends.upper),
        (model.rewards, true.rewards, ends.reward_lower, ends.reward_upper),
    )
    return all(
        (middle - share * (middle - lower) <= exact + 1e-9).all()
        and (exact <= middle + share * (upper - middle) + 1e-9).all()
        for kind in kinds
        for middle, exact, lower, upper in zip(*kind, strict=True)
    )


@pytest.mark.parametrize("reset", [None, first], ids=["chosen", "trajectory"])
def test_all_intervals_hold_together_as_often_as_they_promise(reset: Any) -> None:
    fits = [
        fmdp.from_simulator(step, TRUTH.structure, 240, seed=seed, reset=reset, rho=0.2).model
        for seed in range(60)
    ]
    assert np.mean([all_inside(model, TRUTH, 1.0) for model in fits]) >= 0.8
    assert np.mean([all_inside(model, TRUTH, 1 / 3) for model in fits]) < 0.8


def test_chosen_states_need_no_allowance_for_the_number_of_visits() -> None:
    """Clopper and Pearson's interval by hand: 2 rows of two values, no rewards, rho = 0.1."""

    def coin(state: Any, action: Any, generator: np.random.Generator) -> Any:
        return {"side": int(generator.random() < 0.3)}, {}

    fitted = fmdp.from_simulator(
        coin, ({"side": 2}, {"toss": 1}), 100, parents={"side": ["side"]}, prior=0
    )
    ends = fitted.model.intervals
    assert ends is not None
    hits = fitted.model.transitions[0][:, 1] * 50
    assert ends.lower[0][:, 1] == pytest.approx(beta.ppf(0.025, hits, 51 - hits), rel=1e-6)
    assert ends.upper[0][:, 1] == pytest.approx(beta.ppf(0.975, hits + 1, 50 - hits), rel=1e-6)


# ---- rewards, scopes and draws -------------------------------------------------------------------


def test_noise_is_measured() -> None:
    def pays(state: Any, action: Any, generator: np.random.Generator) -> Any:
        won = generator.random() < 0.25 + 0.5 * state["x"]
        tips = generator.normal(action["a"], 0.5)
        following = {"x": int(generator.integers(2))}
        return following, {"won": won, "tips": tips, "fee": -1.5 * action["a"]}

    fitted = fmdp.from_simulator(
        pays, ({"x": 2}, {"a": 2}), 2_000, parents={"won": ["x"], "tips": ["a"], "fee": ["a"]}
    )
    won, tips, fee = fitted.model.noise
    assert (won.kind, tips.kind, fee.kind) == ("bernoulli", "gaussian", "deterministic")
    assert tips.scale == pytest.approx(0.5, rel=0.1)
    assert any("'tips' varies within its rows" in note for note in fitted.notes)
    assert any("'fee' is what the samples show, [-1.5, 0]," in note for note in fitted.notes)


@pytest.mark.parametrize("together", [False, True])
def test_next_values_that_are_drawn_together_are_noted(together: bool) -> None:
    def moves(state: Any, action: Any, generator: np.random.Generator) -> Any:
        """A customer leaves one queue and joins the other, or two unrelated things happen."""
        out, into = (generator.random(2) < 0.5).tolist()
        into = out if together else into
        after = {"a": max(0, state["a"] - out), "b": min(3, state["b"] + into), "c": state["c"]}
        return after, 0.0

    states = {"a": 4, "b": 4, "c": 2}
    fitted = fmdp.from_simulator(moves, (states, {"go": 2}), 2_000)
    noted = [note for note in fitted.notes if "not drawn independently" in note]
    assert len(noted) == together
    if together:
        assert "'a' and 'b'" in noted[0]


def test_sparse_rows_do_not_look_dependent() -> None:
    """Hundreds of rows of a few visits each: no false alarm in any of six pairs and ten seeds."""

    def draws(state: Any, action: Any, generator: np.random.Generator) -> Any:
        return {name: int(generator.random() < 0.1 + 0.1 * x) for name, x in state.items()}, 0.0

    everything = ["w", "x", "y", "z", "a"]
    states = dict.fromkeys("wxyz", 2)
    structure = dict.fromkeys(states, everything)
    for seed in range(10):
        fitted = fmdp.from_simulator(
            draws, (states, {"a": 30}), 1_500, seed=seed, parents={**structure, "reward": []}
        )
        assert not any("independently" in note for note in fitted.notes)


def test_known_scopes_stay() -> None:
    fitted = fmdp.from_simulator(
        step,
        (STATES, ACTIONS),
        3_000,
        parents={"price": ["crew", "price"], "sale": ["price", "tank"]},
        reward_ranges={"sale": (-1, 5)},
    )
    s = fitted.model.structure
    assert [s.transition_scopes[0], s.transition_scopes[2]] == [(0, 3), (2, 3)]
    assert (s.reward_scopes[0], s.reward_ranges) == ((1, 2), ((-1.0, 5.0), (-1.0, 0.0)))
    assert "'crew' is what the samples show" in "".join(fitted.notes)
    assert "'sale' is what the samples show" not in "".join(fitted.notes)


def test_a_model_gives_everything_but_the_numbers() -> None:
    fixed = TRUTH.with_constraints(fmdp.forbid(TRUTH, {"crew": "fix", "price": "high"}))

    def careful(state: Any, action: Any, generator: np.random.Generator) -> Any:
        assert (action["crew"], state["price"]) != ("fix", "high")
        return step(state, action, generator)

    for reset in (None, first):
        fitted = fmdp.from_simulator(careful, fixed, 500, reset=reset)
        assert fitted.model.structure == fixed.structure
        assert fitted.rows_seen == fitted.rows == 12


def test_unvisited_rows_are_counted() -> None:
    def stays(state: Any, action: Any, generator: np.random.Generator) -> Any:
        return dict(state), 1.0

    fitted = fmdp.from_simulator(stays, ({"x": 4}, {"a": 1}), 50, reset=lambda generator: {"x": 2})
    assert (fitted.rows, fitted.rows_seen) == (4, 1)
    assert "3 of 4 rows were never visited" in "".join(fitted.notes)
    assert "3 of 4 rows were never visited" in fitted._repr_html_()


def test_gymnasium_is_not_needed() -> None:
    script = (
        "import sys, fmdp\n"
        "step = lambda state, action, generator: (state, 1.0)\n"
        "print(fmdp.from_simulator(step, ({'x': 2}, {'a': 2}), 10))\n"
        "assert 'gymnasium' not in sys.modules"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stderr == ""
    assert ran.stdout.startswith("Fit of 10 steps: 4 of 4 rows visited")


# ---- refusals ------------------------------------------------------------------------------------


def returning(answer: Any) -> Callable[..., Any]:
    return lambda state, action, generator: answer


GOOD = {"pump": "worn", "tank": 0, "price": "low"}
REFUSED: dict[str, tuple[Any, str]] = {
    "no pair": (
        returning(GOOD),
        r"crew=\w+: returns \{.*must return a pair \(next state, reward\)",
    ),
    "nothing": (returning(None), "returns None; must return a pair"),
    "an unknown value": (
        returning(({**GOOD, "pump": "godo"}, 0.0)),
        r'price=\w+; action crew=\w+: next state: "pump" has no value "godo"; must be.*"good"',
    ),
    "a number outside": (returning(({**GOOD, "tank": 7}, 0.0)), r'"tank" is 7'),
    "a missing variable": (returning(({"pump": "worn", "tank": 0}, 0.0)), '"price" is missing'),
    "an unknown variable": (returning(({**GOOD, "x": 0}, 0.0)), 'no state variable is called "x"'),
    "no reward": (returning((GOOD, None)), "pays None as 'reward'; must be a finite number"),
    "an infinite reward": (returning((GOOD, np.inf)), "pays inf as 'reward'"),
    "a text": (returning((GOOD, {"a": "1"})), "pays '1' as 'a'"),
    "an exception": (
        lambda state, action, generator: 1 / 0,
        r"state pump=.*; action crew=.*: fails: ZeroDivisionError: division by zero",
    ),
    "an unknown name": (
        lambda state, action, generator: state["pmup"],
        "fails: KeyError: reads 'pmup', which is not among pump, tank, price",
    ),
    "no function": ("step", "needs a function step"),
    "a class": (dict, "needs a function step"),
}


@pytest.mark.parametrize(("simulator", "words"), REFUSED.values(), ids=REFUSED)
def test_bad_simulators_are_refused_in_one_line(simulator: Any, words: str) -> None:
    with pytest.raises(FmdpError, match=words) as refusal:
        fmdp.from_simulator(simulator, (STATES, ACTIONS), 100)
    assert "\n" not in str(refusal.value)


def test_other_rewards_in_a_later_step_are_refused() -> None:
    def fickle(state: Any, action: Any, generator: np.random.Generator) -> Any:
        return GOOD, {"a" if generator.random() < 0.5 else "b": 1.0}

    with pytest.raises(InvalidModel, match=r"pays [ab]; must pay [ab], in every step"):
        fmdp.from_simulator(fickle, (STATES, ACTIONS), 100)
    with pytest.raises(InvalidModel, match="pays 3; must be a mapping from sale, crew"):
        fmdp.from_simulator(returning((GOOD, 3)), TRUTH, 100)
    with pytest.raises(InvalidModel, match=r"pays 9 as 'reward', which must be in \[0, 1\]"):
        fmdp.from_simulator(
            returning((GOOD, 9)), (STATES, ACTIONS), 100, reward_ranges={"reward": (0, 1)}
        )


ARGUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({"samples": 2}, "are 2, too few to see every value of 'tank'; must be at least 3"),
    "none": ({"samples": 0}, "the 'samples' parameter of from_simulator must be"),
    "no variables": ({"variables": None}, "needs variables: a pair"),
    "three": ({"variables": (STATES, ACTIONS, {})}, "must be a pair"),
    "an unknown parent": ({"parents": {"pump": ["crw"]}}, "parents of 'pump'.*crw"),
    "an unknown factor": ({"parents": {"pmup": ["crew"]}}, 'did you mean "pump"'),
    "an unknown range": ({"reward_ranges": {"sal": (0, 1)}}, 'did you mean "sale"'),
    "a bad range": ({"reward_ranges": {"sale": (1, 0)}}, "two numbers lo <= hi"),
    "states alone": ({"variables": STATES}, r"must be a pair \(states, actions\)"),
    "two states alone": ({"variables": {"x": 2, "y": 2}}, r"must be a pair \(states, actions\)"),
    "decode": ({"decode": dict.get}, "for the observations of an environment"),
    "reset": ({"reset": 3}, "'reset' of from_simulator must be a function"),
    "reset fails": ({"reset": lambda generator: 1 / 0}, "reset: fails: ZeroDivisionError"),
    "reset elsewhere": ({"reset": lambda generator: (0, 9, 0)}, "the state of reset.*is 9"),
    "idle": ({"variables": TRUTH, "max_parents": 2}, "takes no max_parents beside it; got 2"),
    "initial": ({"initial_state": (0, 3, 0)}, "initial state.*is 3"),
    "idle zeros": ({"zeros_from_samples": True}, "zeros_from_samples is for trajectories"),
    "a bad name": ({"name": "a\nb"}, "must be a printable text"),
    "progress": ({"progress": 3}, "the 'progress' of from_simulator"),
}


@pytest.mark.parametrize(("given", "words"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_bad_arguments_are_refused_in_one_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FmdpError, match=words) as refusal:
        fmdp.from_simulator(**{"step": step, "variables": (STATES, ACTIONS), **given})
    assert "\n" not in str(refusal.value)


def test_what_is_wrong_is_refused_after_the_first_step() -> None:
    calls = []

    def counted(state: Any, action: Any, generator: np.random.Generator) -> Any:
        calls.append(state)
        return step(state, action, generator)

    for given in ({"parents": {"sael": []}}, {"reward_ranges": {"sael": (0, 1)}}):
        with pytest.raises(InvalidParameter, match='did you mean "sale"'):
            fmdp.from_simulator(counted, (STATES, ACTIONS), **given)  # type: ignore[arg-type]
    assert len(calls) == 2


def test_what_does_not_fit_is_refused_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "available_memory", lambda: 2_000)
    with pytest.raises(TooLarge, match="100 samples of 4 variables need"):
        fmdp.from_simulator(step, (STATES, ACTIONS), 100)
    monkeypatch.setattr(door, "available_memory", lambda: 20_000)
    with pytest.raises(TooLarge, match="tables of these scopes need"):
        fmdp.from_simulator(
            step, (STATES, ACTIONS), 100, parents={name: [*STATES, *ACTIONS] for name in STATES}
        )


# ---- environments --------------------------------------------------------------------------------


def test_episodes_that_end_lead_to_the_next_start() -> None:
    gymnasium = pytest.importorskip("gymnasium")

    class Corridor(gymnasium.Env):  # type: ignore[misc, name-defined]
        """Places 0 to 3; the door at 3 ends an episode, and pays. A light goes on and off."""

        observation_space = gymnasium.spaces.Dict(
            {"place": gymnasium.spaces.Discrete(4), "light": gymnasium.spaces.Discrete(2)}
        )
        action_space = gymnasium.spaces.Discrete(2, start=5)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.place = 1
            return self._seen(), {}

        def step(self, action: Any) -> Any:
            self.place += 1 if action == 6 else -(self.place > 0)
            over = self.place == 3
            return self._seen(), float(over), over, False, {}

        def _seen(self) -> Any:
            return {"place": self.place, "light": int(self.np_random.integers(2))}

    fitted = fmdp.from_simulator(Corridor(), samples=2_000, prior=0)
    model = fitted.model
    s = model.structure
    assert s.state_names == ("light", "place")  # as the space sorts them
    assert s.transition_scopes == ((), (1, 2))
    rows = model.transitions[1].reshape(4, 2, 4)
    expected = {(0, 0): 0, (0, 1): 1, (1, 0): 0, (1, 1): 2, (2, 0): 1, (2, 1): 1}
    for (place, action), after in expected.items():
        assert rows[place, action].tolist() == np.eye(4)[after].tolist()
    assert rows[3].tolist() == [[0.25] * 4] * 2  # the door itself is never a start
    assert model.rewards[0].reshape(4, 2)[2].tolist() == [0, 1]
    notes = "\n".join(fitted.notes)
    assert "a step that ends one leads to the start of the next" in notes
    assert "2 of 9 rows were never visited" in notes
    assert fmdp.plan(model).gain == pytest.approx(0.5)
    assert fmdp.from_simulator(Corridor(), samples=2_000, prior=0).model == model
    # Nothing proves that the door is never entered without an end, where the reward is always 0.
    worst = fmdp.Exact(intervals="robust")
    assert fmdp.plan(model, worst).gain_upper == pytest.approx(0.0, abs=1e-6)
    closed = fmdp.from_simulator(Corridor(), samples=2_000, prior=0, zeros_from_samples=True)
    assert "that no step shows are taken for impossible: 3" in "\n".join(closed.notes)
    ends = closed.model.intervals
    assert ends is not None
    assert not ends.upper[1][:, 3].any()
    assert np.array_equal(closed.model.transitions[1][:6], model.transitions[1][:6])
    lower = fmdp.plan(closed.model, worst).gain_lower
    assert lower is not None
    assert 0.3 < lower < 0.5


def test_a_time_limit_is_not_part_of_the_model() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("CliffWalking-v1", max_episode_steps=20)
    fitted = fmdp.from_simulator(env, ({"place": 48}, {"move": 4}), samples=1_000)
    assert "50 episodes were cut off by a time limit" in "\n".join(fitted.notes)
    assert fitted.runs == 51
    assert fitted.model.initial_state == (36,)
    assert fitted.model.name == "CliffWalking-v1"
    assert fitted.model.structure.transition_scopes == ((0, 1),)


def test_decoded_observations() -> None:
    gymnasium = pytest.importorskip("gymnasium")

    def places(observation: int) -> dict[str, int]:
        return {"row": int(observation) // 4, "column": int(observation) % 4}

    lake = gymnasium.make("FrozenLake-v1", is_slippery=False)
    variables = ({"row": 4, "column": 4}, {"move": ["left", "down", "right", "up"]})
    fitted = fmdp.from_simulator(lake, variables, 5_000, decode=places)
    assert fitted.model.structure.transition_scopes == ((0, 1, 2), (0, 1, 2))
    assert fmdp.plan(fitted.model).policy({"row": 0, "column": 0})["move"] in ("right", "down")  # type: ignore[misc]


def test_environments_that_do_not_fit_are_refused() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    with pytest.raises(InvalidParameter, match=r"observation space.*got Box.*give decode"):
        fmdp.from_simulator(gymnasium.make("CartPole-v1"))
    with pytest.raises(InvalidParameter, match=r"action space.*must be made of.*got Box"):
        fmdp.from_simulator(
            gymnasium.make("Pendulum-v1"), decode=int, variables=({"x": 2}, {"a": 2})
        )
    lake = gymnasium.make("FrozenLake-v1")
    with pytest.raises(InvalidParameter, match=r"state variables have \(15,\) values"):
        fmdp.from_simulator(lake, ({"place": 15}, {"move": 4}))
    with pytest.raises(InvalidParameter, match="has its own reset"):
        fmdp.from_simulator(lake, reset=first)
    with pytest.raises(InvalidModel, match=r"state place=.*; action move=.*: state of observation"):
        fmdp.from_simulator(
            lake,
            ({"place": 2}, {"move": 4}),
            decode=lambda observation: {"place": int(observation)},
        )

    class Broken(gymnasium.Wrapper):  # type: ignore[misc, name-defined]
        def step(self, action: Any) -> Any:
            raise RuntimeError("out of\norder")

    with pytest.raises(
        InvalidModel, match=r"state s0=0; action a0=\d: fails: RuntimeError: out of"
    ):
        fmdp.from_simulator(Broken(lake))
