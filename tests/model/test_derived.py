"""Derived variables against brute force: every sum over them written out."""

from __future__ import annotations

import itertools
import json
import pickle
import runpy
from collections.abc import Callable
from importlib.resources import files as package_files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from numpy.typing import NDArray

import fmdp
from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.experiments.worker import knowledge

from ..pages import Page

Row = tuple[int, ...]


def random_model(seed: int, drawn: float) -> fmdp.FactoredMDP:
    """A model with one to three derived variables, a share of them drawn."""
    rng = np.random.default_rng(seed)
    states = tuple(int(n) for n in rng.integers(2, 4, rng.integers(2, 4)))
    sizes = [*states, 2]
    derived = []
    for j in range(int(rng.integers(1, 4))):
        scope = _scope(rng, len(sizes), 2)
        size, rows = int(rng.integers(2, 4)), int(np.prod([sizes[v] for v in scope]))
        table: NDArray[np.generic] = rng.integers(0, size, rows)
        if rng.random() < drawn:
            table = rng.dirichlet(np.ones(size), rows)
        derived.append(fmdp.Derived(f"z{j}", size, scope, table))
        sizes.append(size)
    structure = fmdp.Structure(
        states,
        (2,),
        tuple(_scope(rng, len(sizes), 3) for _ in states),
        tuple(_scope(rng, len(sizes), 3) for _ in range(2)),
        derived=tuple(derived),
    )
    return fmdp.FactoredMDP(
        structure,
        [
            rng.dirichlet(np.ones(size), rows)
            for size, rows in zip(states, structure.transition_rows, strict=True)
        ],
        [rng.random(rows) for rows in structure.reward_rows],
    )


def _scope(rng: np.random.Generator, n: int, most: int) -> Row:
    members = rng.choice(n, int(rng.integers(1, min(most, n) + 1)), replace=False)
    return tuple(sorted(int(v) for v in members))


def written_out(model: fmdp.FactoredMDP) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """P [A, S, S] and R [A, S], one assignment of the derived variables after the other."""
    s = model.structure
    states = list(itertools.product(*map(range, s.state_sizes)))
    actions = list(itertools.product(*map(range, s.action_sizes)))

    def row(scope: Row, x: Row) -> int:
        index = 0
        for v in scope:
            index = index * s.all_sizes[v] + x[v]
        return index

    transitions = np.zeros((len(actions), len(states), len(states)))
    rewards = np.zeros((len(actions), len(states)))
    values = [range(variable.size) for variable in s.derived]
    for (a, action), (b, state), z in itertools.product(
        enumerate(actions), enumerate(states), itertools.product(*values)
    ):
        x = (*state, *action, *z)
        weight = 1.0
        for value, variable in zip(z, s.derived, strict=True):
            entry = variable.table[row(variable.scope, x)]
            weight *= float(entry == value if variable.deterministic else entry[value])
        for scope, means in zip(s.reward_scopes, model.rewards, strict=True):
            rewards[a, b] += weight * means[row(scope, x)]
        for c, following in enumerate(states):
            chance = weight
            for i, table in enumerate(model.transitions):
                chance *= table[row(s.transition_scopes[i], x), following[i]]
            transitions[a, b, c] += chance
    return transitions, rewards


def best_gain(transitions: NDArray[np.float64], rewards: NDArray[np.float64]) -> float:
    h = np.zeros(rewards.shape[1])
    for _ in range(5_000):
        backup = (rewards + transitions @ h).max(axis=0)
        change = backup - h
        h = 0.5 * (h + backup) - h[0]
    assert np.ptp(change) < 1e-7
    return float(change.mean())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("drawn", [0.0, 0.6])
def test_planners_and_flat_tables_agree_with_brute_force(seed: int, drawn: float) -> None:
    model = random_model(seed, drawn)
    transitions, rewards = written_out(model)
    flat = fmdp.flatten(model)
    np.testing.assert_allclose(flat.transitions, transitions, atol=1e-12)
    np.testing.assert_allclose(flat.rewards, rewards, atol=1e-12)
    gain = best_gain(transitions, rewards)
    plan = fmdp.plan(model)
    assert plan.gain == pytest.approx(gain, abs=2e-6)
    assert plan.model == model
    assert plan.policy is not None
    assert fmdp.evaluate(model, plan.policy).gain == pytest.approx(gain, abs=2e-6)
    bound = fmdp.ALP(basis="indicators", criterion="average").plan(model).gain_upper
    assert bound is not None
    assert bound >= gain - 1e-6


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("method", ["cuts", "factored"])
def test_linear_programs_of_the_expanded_model_have_the_same_optimum(
    seed: int, method: str
) -> None:
    model = random_model(seed, 0.0)
    expanded = fmdp.expand(model)
    assert not expanded.structure.derived
    for basis in ("singles", "pairs"):
        planner = fmdp.ALP(basis=basis, method=method)
        objective = planner.plan(expanded).objective
        assert planner.plan(model).objective == pytest.approx(objective, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_the_simulator_takes_the_steps_of_the_expanded_model(seed: int) -> None:
    model = random_model(seed, 0.0)
    policy = fmdp.plan(model).policy
    assert policy is not None
    seen = []
    for version in (model, fmdp.expand(model)):
        environment = fmdp.Environment(version, 7)
        seen.append([environment.step(policy(environment.state)) for _ in range(200)])
    assert seen[0] == seen[1]


def test_drawn_variables_are_drawn_once_for_all_that_depend_on_them() -> None:
    """Two variables that copy one fair coin are always equal, and each is 1 half of the time."""
    coin = fmdp.Derived("coin", 2, (), np.array([[0.5, 0.5]]))
    copy = np.eye(2)
    model = fmdp.FactoredMDP(
        fmdp.Structure((2, 2), (1,), ((3,), (3,)), ((0, 1),), derived=(coin,)),
        [copy, copy],
        [[1.0, 0.0, 0.0, 1.0]],
    )
    environment = fmdp.Environment(model, 0)
    values = [environment.step((0,))[1] for _ in range(400)]
    assert all(first == second for first, second in values)
    assert 150 < sum(first for first, _ in values) < 250
    plan = fmdp.plan(model)
    assert plan.gain == pytest.approx(1.0)  # independent copies would be equal half the time
    with pytest.raises(InvalidModel, match='"coin" is drawn, and both "s0" and "s1" depend on it'):
        fmdp.expand(model)
    with pytest.raises(InvalidParameter, match="function of s0 and s1, which both"):
        fmdp.ALP(basis=[["s0", "s1"]]).plan(model)


def counted(n: int) -> fmdp.FactoredMDP:
    """n machines that fail more often the more of them are down, and a repair of one of them."""
    machines = [f"m{i}" for i in range(n)]
    states = {name: ["up", "down"] for name in machines}
    parents = {name: [name, "repair", "down"] for name in machines}

    def transition(name: str, values: dict[str, object]) -> object:
        if values["repair"] == name:
            return "up"
        if values[name] == "down":
            return "down"
        failure = 0.1 + 0.02 * float(values["down"])  # type: ignore[arg-type]
        return {"down": failure, "up": 1.0 - failure}

    return fmdp.FactoredMDP.from_functions(
        states,
        {"repair": ["none", *machines]},
        parents,
        transition,
        {"up": (["down"], lambda values: n - values["down"])},
        derived={"down": fmdp.Count(machines, "down")},
    )


def test_a_count_over_many_variables_has_small_tables() -> None:
    model = counted(30)
    s = model.structure
    assert [variable.name for variable in s.derived if not variable.partial] == ["down"]
    assert max(variable.table.size for variable in s.derived) <= 2 * 30
    assert max(map(len, model.transitions)) == 2 * 31 * 31
    assert model.expected_reward([0] * 30, [0]) == 30.0
    assert model.expected_reward([1] * 3 + [0] * 27, [0]) == 27.0
    with pytest.raises(TooLarge, match="rows without derived variables"):
        fmdp.expand(model)


def test_a_counting_model_is_the_same_as_one_without_counts() -> None:
    model, machines = counted(3), ["m0", "m1", "m2"]

    def transition(name: str, values: dict[str, object]) -> object:
        down = sum(values[other] == "down" for other in machines)
        if values["repair"] == name:
            return "up"
        if values[name] == "down":
            return "down"
        return {"down": 0.1 + 0.02 * down, "up": 0.9 - 0.02 * down}

    plain = fmdp.FactoredMDP.from_functions(
        {name: ["up", "down"] for name in machines},
        {"repair": ["none", *machines]},
        {name: [*machines, "repair"] for name in machines},
        transition,
        {"up": (machines, lambda values: sum(value == "up" for value in values.values()))},
    )
    assert fmdp.plan(model).gain == pytest.approx(fmdp.plan(plain).gain, abs=1e-9)


def test_a_learner_learns_rows_of_the_count() -> None:
    model = counted(3)
    assert model.structure.max_scope_size == 2 * 4 * 4
    run = fmdp.learn(model, steps=300, seed=0)
    assert run.steps == 300
    again = fmdp.learn(pickle.loads(pickle.dumps(model)), steps=300, seed=0)
    assert again.regret == run.regret


def test_sums_any_and_all() -> None:
    model = fmdp.FactoredMDP.from_functions(
        {"a": [1, 2], "b": [0, 5], "c": ["x", "y"]},
        {"act": 1},
        {"a": ["a"], "b": ["b"], "c": ["c"]},
        lambda name, values: values[name],
        {
            "total": (["total"], lambda values: values["total"]),
            "any": (["any"], lambda values: 100 * values["any"]),
            "all": (["all"], lambda values: 1000 * values["all"]),
            "late": (["late"], lambda values: 10_000 * (values["late"] == "much")),
        },
        derived={
            "late": (["total"], lambda values: "much" if values["total"] > 5 else "little"),
            "total": fmdp.Sum(["a", "b"]),
            "any": fmdp.Any(["a", "b"], 5),
            "all": fmdp.All(["a", "b"], lambda value: value >= 2),
        },
    )
    assert model.expected_reward({"a": 1, "b": 0, "c": "x"}, [0]) == 1
    assert model.expected_reward({"a": 2, "b": 0, "c": "x"}, [0]) == 2
    assert model.expected_reward({"a": 1, "b": 5, "c": "x"}, [0]) == 6 + 100 + 10_000
    assert model.expected_reward({"a": 2, "b": 5, "c": "y"}, [0]) == 7 + 100 + 1000 + 10_000


def with_derived(**derived: object) -> fmdp.FactoredMDP:
    return fmdp.FactoredMDP.from_functions(
        {"a": [0, 1], "b": [0, 1]},
        {"act": 1},
        {"a": ["a"], "b": ["b"]},
        lambda name, values: values[name],
        derived=derived,
    )


@pytest.mark.parametrize(
    ("derived", "message"),
    [
        (
            {"x": (["y"], lambda v: 0), "y": (["x"], lambda v: 0)},
            '"x" depends on itself: x -> y -> x',
        ),
        ({"x": (["x"], lambda v: 0)}, '"x" depends on itself: x -> x'),
        ({"x": (["c"], lambda v: 0)}, 'derived variable "x": no variable is called "c"'),
        ({"a": (["b"], lambda v: 0)}, 'derived variable "a": must be a new name'),
        ({"x": fmdp.Sum(["a", "b"], cap=1)}, "can be 2.0, beyond its cap of 1; raise the cap"),
        ({"x": (["a"], lambda v: {0: 0.5, 1: 0.6})}, "must be probabilities that sum to 1"),
        ({"x": (["a"], lambda v: 1 / v["a"])}, 'variable "x", a=0: the function fails: ZeroDiv'),
        ({"x": (["a"], lambda v: float("inf"))}, 'variable "x", a=0: inf must be a text or a fin'),
        ({"x": (["a"], lambda v: [1])}, "must be a text or a finite number"),
        ({"x": fmdp.Sum(["a"], lambda value: 1 / value)}, "a=0: the function fails: ZeroDivision"),
        ({"x": fmdp.Count(["a"], lambda value: 1 / value)}, "the function fails: ZeroDivision"),
        ({"x": fmdp.Sum(["a"], lambda value: float("nan"))}, "a=0 gives nan; must be a number"),
        ({"x": fmdp.Count(["a", "b"], "down")}, "counts the value 'down', which none of its var"),
        ({"x": (["a"],)}, "must be .scope, function."),
        ({"x": 3}, "a pair .scope, function."),
    ],
)
def test_bad_derived_variables_are_refused_in_one_line(
    derived: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidModel, match=message) as refusal:
        with_derived(**derived)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fmdp.Count(3, 1), "Count: the variables must be a list; got 3"),  # type: ignore[arg-type]
        (lambda: fmdp.Count([], 1), "the list of variables is empty"),
        (lambda: fmdp.Sum(["a"], cap=float("nan")), "cap is nan; must be a number"),
        (lambda: fmdp.Sum(["a"], clip=True), "clip=True needs a cap"),
        (lambda: fmdp.Derived("z", 10**12, (), [0]), "has 1000000000000 values; must be in 1.."),  # type: ignore[arg-type]
    ],
)
def test_bad_definitions_are_refused_in_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidModel, match=message) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_thousands_of_derived_variables(tmp_path: Path) -> None:
    """A chain that is given in reverse, deeper than Python's recursion limit."""
    n = 1500

    def copy(source: str) -> object:
        return [source], lambda values: values[source]

    derived = {f"x{j}": copy(f"x{j - 1}") for j in reversed(range(1, n))} | {"x0": copy("a")}
    model = fmdp.FactoredMDP.from_functions(
        {"a": [0, 1]},
        {"act": 1},
        {"a": [f"x{n - 1}"]},
        lambda name, values: 1 - values[f"x{n - 1}"],
        {"one": (["a"], lambda values: values["a"])},
        derived=derived,
    )
    assert [variable.name for variable in model.structure.derived[:2]] == ["x0", "x1"]
    assert fmdp.plan(model).gain == pytest.approx(0.5)
    fmdp.save(model, tmp_path / "model.json")
    assert fmdp.load(tmp_path / "model.json") == model


def test_a_clipped_sum() -> None:
    model = with_derived(x=fmdp.Sum(["a", "b"], cap=1, clip=True))
    assert [list(variable.values) for variable in model.structure.derived] == [["0", "1"]] * 2


def test_hash_and_equality_cover_derived_variables() -> None:
    first, second = with_derived(x=fmdp.Sum(["a", "b"])), with_derived(x=fmdp.Any(["a", "b"], 1))
    assert first != second
    assert first.content_hash != second.content_hash
    assert pickle.loads(pickle.dumps(first)) == first
    assert with_derived(x=fmdp.Sum(["a", "b"])) == first


# ---- files ---------------------------------------------------------------------------------------

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((package_files("fmdp.model") / "schema" / "fmdp-model-3.schema.json").read_text())
)


@pytest.mark.parametrize("seed", range(10))
def test_files_keep_derived_variables(seed: int, tmp_path: Path) -> None:
    for model in (random_model(seed, 0.5), counted(3)):
        fmdp.save(model, tmp_path / "model.json")
        document = json.loads((tmp_path / "model.json").read_text())
        assert document["version"] == 3
        SCHEMA.validate(document)
        assert fmdp.load(tmp_path / "model.json") == model


COUNTED = {
    "format": "fmdp-model",
    "version": 3,
    "states": [
        {"name": "left", "values": ["up", "down"]},
        {"name": "right", "values": ["up", "down"]},
    ],
    "actions": [{"name": "wait", "size": 1}],
    "derived": [
        {"name": "broken", "count": {"over": ["left", "right"], "of": "down"}},
        {"name": "bad", "values": ["no", "yes"], "scope": ["broken"], "map": ["no", "no", "yes"]},
    ],
    "transitions": [
        {"scope": ["left"], "rows": [[0.9, 0.1], [0.5, 0.5]]},
        {"scope": ["bad"], "rules": [{"when": {"bad": "yes"}, "row": [0, 1]}, {"row": [1, 0]}]},
    ],
    "rewards": [{"scope": ["broken"], "costs": [0, 1, 5]}],
}


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    SCHEMA.validate(COUNTED)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(COUNTED))
    model = fmdp.load(path)
    assert [variable.name for variable in model.structure.derived] == ["broken[1]", "broken", "bad"]
    assert model.expected_reward({"left": "down", "right": "down"}, [0]) == -5.0
    assert model.transition_row(1, {"left": "down", "right": "down"}, [0]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "x", "count": {"over": ["nobody"], "of": "up"}}, "nobody"),
        ({"name": "x", "count": {"over": ["left"]}}, 'key "of" is missing'),
        ({"name": "x", "count": {"over": [], "of": 1}}, "must name at least one variable"),
        ({"name": "x", "size": 2, "scope": ["left"], "map": [0]}, "must have 2, one per"),
        ({"name": "x", "size": 2, "scope": ["left"], "map": [0, 2]}, '"map" has 2; must be one'),
        ({"name": "x", "size": 2, "scope": ["left"], "rows": [[1, 0], [1, 1]]}, "sum to 1"),
        ({"name": "x", "size": 2, "scope": ["x"], "map": [0, 1]}, "x"),
        ({"name": "x", "size": 2, "scope": ["left"]}, "no table"),
        ({"name": "left", "size": 2, "scope": [], "map": [0]}, "occurs twice"),
        ({"name": "x", "sum": {"over": ["left"]}}, "must be a number"),
    ],
)
def test_bad_entries_are_refused_in_one_line(
    entry: dict[str, object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(COUNTED | {"derived": [entry]}))
    with pytest.raises(InvalidModel, match=message) as refusal:
        fmdp.load(path)
    assert "\n" not in str(refusal.value)


def test_older_versions_have_no_derived_variables(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text(json.dumps(COUNTED | {"version": 2}))
    with pytest.raises(InvalidModel, match='"derived"'):
        fmdp.load(path)


def test_learners_that_cannot_take_them_say_so() -> None:
    model = random_model(3, 1.0)
    with pytest.raises(InvalidParameter, match="does not observe 'z0'"):
        fmdp.simulate(model, fmdp.PSRL(), steps=1, seed=0)
    assert fmdp.simulate(model, fmdp.Random(), steps=20, seed=0).steps == 20
    with pytest.raises(InvalidParameter, match="e3 does not take models with derived"):
        fmdp.simulate(counted(2), fmdp.E3(), steps=1, seed=0)


@pytest.mark.parametrize("learner", [fmdp.PSRL(), fmdp.DORL(), fmdp.UCRL2()])
def test_a_saved_learner_goes_on_as_it_would_have(learner: fmdp.Learner, tmp_path: Path) -> None:
    model = counted(3)
    agent = learner.start(model.structure, 0)
    _play(agent, fmdp.Environment(model, 1), 100)
    agent.save(tmp_path / "learner")
    loaded = fmdp.load_agent(tmp_path / "learner")
    assert loaded.statistics.structure == agent.statistics.structure
    going_on = [_play(player, fmdp.Environment(model, 2), 100) for player in (agent, loaded)]
    assert going_on[0] == going_on[1]


def _play(agent: fmdp.Agent, environment: fmdp.Environment, steps: int) -> list[object]:
    played: list[object] = []
    for _ in range(steps):
        state = environment.state
        action = agent.act(state)
        rewards, following = environment.step(action)
        agent.observe(state, action, rewards, following)
        played.append((action, following))
    return played


def test_heaven_does_not_take_them() -> None:
    with pytest.raises(InvalidParameter, match="form=heaven does not take models with derived"):
        fmdp.simulate(counted(2), fmdp.FRmax(form="heaven"), steps=1, seed=0)


def test_a_fit_counts_rows_of_derived_variables(tmp_path: Path) -> None:
    """The fitted table of the first machine is the share of steps in each row."""
    model = counted(2)
    run = fmdp.simulate(model, fmdp.Random(), steps=400, seed=0, record=True)
    assert run.trajectory is not None
    run.trajectory.to_frame().to_csv(tmp_path / "log.csv", index=False)
    fitted = fmdp.fit(tmp_path / "log.csv", model)
    assert fitted.model.structure.derived == model.structure.derived
    states, actions = run.trajectory.states, run.trajectory.actions
    down = states[:-1].sum(axis=1)
    seen = (states[:-1, 0] == 0) & (actions[:, 0] == 0) & (down == 1)
    share = states[1:, 0][seen].mean()
    s = model.structure
    row = s.scope_row(s.transition_scopes[0], (0, 1), (0,))
    counted_share = fitted.model.transitions[0][row, 1]
    assert counted_share == pytest.approx(share, abs=0.5 / seen.sum())
    with pytest.raises(InvalidParameter, match="fit does not observe 'z0'"):
        fmdp.fit(tmp_path / "log.csv", random_model(3, 1.0))


def test_knowledge_of_a_recorded_run() -> None:
    """Rows of a count are visited as the state and action say; rows of a draw are not known."""
    model = counted(2)
    run = fmdp.simulate(model, fmdp.Random(), steps=50, seed=0, record=True)
    assert run.trajectory is not None
    states, actions = run.trajectory.states, run.trajectory.actions
    visited, _ = knowledge(model.structure, states[:-1], actions, np.array([50]))
    joint = [(a, int(x[0]), int(x.sum())) for x, (a,) in zip(states[:-1], actions, strict=True)]
    assert visited[0, 0] == len(set(joint))


def test_a_run_with_shared_draws_has_a_regret() -> None:
    coin = fmdp.Derived("coin", 2, (), np.array([[0.5, 0.5]]))
    model = fmdp.FactoredMDP(
        fmdp.Structure((2, 2), (2,), ((3,), (3,)), ((0, 1, 2),), derived=(coin,)),
        [np.eye(2), np.eye(2)],
        [[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]],
    )
    run = fmdp.simulate(model, fmdp.Random(), steps=200, seed=0)
    # The optimal gain is 1, and half of the random actions fit the state.
    assert 70 < run.regret < 130


def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("derived.md")
    page.run_python()
    printed = capsys.readouterr().out
    for language, text in page.blocks:
        if language == "text":
            assert text in printed


def test_the_operating_block() -> None:
    block = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "operating_block.py"))
    model = block["operating_block"](3)
    assert max(model.structure.transition_rows) == 112
    assert model.structure.n_states == 20_412
    # With 7 patients waiting at most, 3 theatres ready and 2 patients, 2 are served.
    ready = {f"room_{n}": "clean" for n in (1, 2, 3)} | {f"team_{n}": "fresh" for n in (1, 2, 3)}
    state = model.structure.check_state(ready | {"queue": 2, "season": "quiet"})
    operate = {f"operate_{n}": "yes" for n in (1, 2, 3)} | {"cleaners": "usual"}
    row = model.transition_row(6, state, model.structure.check_action(operate))
    assert row[:3].tolist() == pytest.approx([0.7, 0.3, 0.0])
