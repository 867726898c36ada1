"""Models from functions: tables by hand, the pumps of the documentation, and what goes wrong."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from fmdp.errors import FmdpError, InvalidModel, TooLarge
from fmdp.model import AtMost, FactoredMDP, Noise

from ..pages import Page

WEAR = ["new", "worn", "broken"]


def pump_law(name: str, values: Any) -> Any:
    if values["crew"] == "repair":
        return "new"
    if values["pump"] == "broken":
        return {"broken": 1}
    return {values["pump"]: 0.75, WEAR[WEAR.index(values["pump"]) + 1]: 0.25}


def law(name: str, values: Any) -> Any:
    return pump_law(name, values) if name == "pump" else [0.5, 0.5]


STATES: dict[str, Any] = {"pump": WEAR, "price": [10, 20]}
ACTIONS = {"crew": ["rest", "repair"]}
PARENTS = {"pump": ["pump", "crew"], "price": []}


def small(**more: Any) -> FactoredMDP:
    return FactoredMDP.from_functions(
        **{
            "states": STATES,
            "actions": ACTIONS,
            "parents": PARENTS,
            "transition": law,
            "reward": {"flow": (["pump", "price"], lambda v: v["price"] * (v["pump"] != "broken"))},
            "costs": {"wages": (["crew"], lambda v: 3 if v["crew"] == "repair" else 0)},
        }
        | more
    )


def test_tables_by_hand() -> None:
    model = small(initial_state={"pump": "worn", "price": 20}, name="a pump")
    s = model.structure
    assert s.state_values == (tuple(WEAR), ("10", "20"))
    assert s.transition_scopes == ((0, 2), ())
    assert model.transitions[0].tolist() == [
        [0.75, 0.25, 0.0],
        [1.0, 0.0, 0.0],
        [0.0, 0.75, 0.25],
        [1.0, 0.0, 0.0],
        [0.0, 0.0, 1.0],
        [1.0, 0.0, 0.0],
    ]
    assert model.transitions[1].tolist() == [[0.5, 0.5]]
    assert model.rewards[0].tolist() == [10, 20, 10, 20, 0, 0]
    assert model.rewards[1].tolist() == [0, -3]
    assert s.reward_names == ("flow", "wages")
    assert s.reward_ranges == ((0.0, 20.0), (-3.0, 0.0))
    assert model.initial_state == (1, 1)
    assert model.name == "a pump"
    assert s.alike is None


def test_a_scope_in_any_order_is_the_same_model() -> None:
    turned = small(parents={"pump": ["crew", "pump"], "price": []})
    assert turned == small()

    def key(name: str, values: Any) -> Any:
        return "repaired" if values.get("crew") == "repair" else (name, *values.items())

    def told(name: str, values: Any) -> Any:
        return key(name, dict(sorted(values.items())))

    assert small(parents={"pump": ["crew", "pump"], "price": []}, alike=told) == small(alike=told)


def test_ranges_that_are_given_and_noise() -> None:
    model = small(reward_ranges={"flow": (-5.0, 25.0)}, noise=Noise("bernoulli"))
    assert model.structure.reward_ranges == ((-5.0, 25.0), (-3.0, 0.0))
    assert model.noise == (Noise("bernoulli"),) * 2


def test_other_ways_to_say_rewards_and_values() -> None:
    listed = small(
        reward=[("flow", ("pump", "price"), lambda v: v["price"] * (v["pump"] != "broken"))]
    )
    assert listed == small()
    alone = small(reward=lambda v: v["price"] * (v["pump"] != "broken"), costs=())
    assert alone.structure.reward_names == ("reward",)
    assert alone.structure.reward_scopes == ((0, 1, 2),)
    counted = FactoredMDP.from_functions(
        {"stock": 3},
        {"order": range(2)},
        {"stock": ["stock", "order"]},
        lambda name, v: min(2, v["stock"] + v["order"]),
    )
    assert counted.transitions[0].argmax(axis=1).tolist() == [0, 1, 1, 2, 2, 2]


# ---- alike rows ---------------------------------------------------------------------------------


def pumps(n: int = 6) -> FactoredMDP:
    """n pumps in a ring, two crews, a price: 1,323 rows a pump, of which 54 differ."""
    names = [f"P{i}" for i in range(n)]
    beside = {p: (names[i - 1], names[(i + 1) % n]) for i, p in enumerate(names)}

    def attended(name: str, values: Any) -> bool:
        return name in (values["crew_1"], values["crew_2"])

    def transition(name: str, values: Any) -> Any:
        if name == "price":
            return {values["price"]: 0.8, "low" if values["price"] == "high" else "high": 0.2}
        burden = sum(values[other] == "broken" for other in beside[name])
        worse = 0.05 + 0.1 * burden
        if attended(name, values):
            return {"new": 0.9, values[name]: 0.1} if values[name] != "new" else "new"
        if values[name] == "broken":
            return "broken"
        return {values[name]: 1 - worse, WEAR[WEAR.index(values[name]) + 1]: worse}

    def alike(name: str, values: Any) -> Any:
        if name == "price":
            return None
        return name, attended(name, values), values[name], *(values[p] for p in beside[name])

    return FactoredMDP.from_functions(
        states={**dict.fromkeys(names, WEAR), "price": ["low", "high"]},
        actions={"crew_1": ["rest", *names], "crew_2": ["rest", *names]},
        parents={p: [p, *beside[p], "crew_1", "crew_2"] for p in names} | {"price": ["price"]},
        transition=transition,
        reward={
            f"flow {p}": (
                [p, "price"],
                lambda v, p=p: {"low": 1, "high": 2}[v["price"]] * (v[p] != "broken"),
            )
            for p in names
        },
        costs={
            f"wages of {crew}": ([crew], lambda v, crew=crew: 0.5 * (v[crew] != "rest"))
            for crew in ("crew_1", "crew_2")
        },
        alike=alike,
        forbid=[{"crew_1": p, "crew_2": p} for p in names],
        initial_state={**dict.fromkeys(names, "new"), "price": "low"},
        name="pumps",
    )


def test_the_pumps() -> None:
    model = pumps()
    s = model.structure
    assert s.transition_rows[:6] == (1323,) * 6
    assert [len(set(s.transition_classes_of(i).tolist())) for i in range(6)] == [54] * 6
    assert s.max_scope_size == 54
    assert s.reward_ranges[0] == (0.0, 2.0)
    assert s.reward_ranges[-1] == (-0.5, 0.0)
    state = {**dict.fromkeys((f"P{i}" for i in range(6)), "new"), "price": "low"}
    assert model.initial_state == s.check_state(state)
    for one, other in itertools.product(range(7), range(7)):
        assert s.allowed(model.initial_state, (one, other)) == (one != other or one == 0)


def test_classes_of_rewards_share_a_range() -> None:
    """Two rewards, of which one is never large: known to be alike, they have one range."""
    model = FactoredMDP.from_functions(
        {"a": 2, "b": 3},
        {"go": 1},
        {"a": ["a"], "b": ["b"]},
        lambda name, v: v[name],
        {"of a": (["a"], lambda v: v["a"]), "of b": (["b"], lambda v: v["b"])},
        reward_alike=lambda name, v: next(iter(v.values())),
    )
    assert model.structure.reward_ranges == ((0.0, 2.0),) * 2
    assert model.structure.n_reward_classes == 3


# ---- constraints --------------------------------------------------------------------------------


def test_constraints_in_words() -> None:
    actions = {"one": ["rest", "work"], "two": ["rest", "work"]}
    kwargs: dict[str, Any] = {
        "states": {"n": [5, 6, 7]},
        "actions": actions,
        "parents": {"n": ["n"]},
        "transition": lambda name, v: v["n"],
    }
    model = FactoredMDP.from_functions(
        **kwargs,
        forbid=[
            {"n": 6, "one": "work"},
            (["two", "n"], lambda v: v["two"] == "work" and v["n"] > 6),
        ],
        at_most=1,
    )
    s = model.structure
    for n, one, two in itertools.product(range(3), range(2), range(2)):
        allowed = not (n == 1 and one) and not (two and n == 2) and one + two <= 1
        assert s.allowed((n,), (one, two)) == allowed
    assert isinstance(s.constraints[-1], AtMost)
    several = FactoredMDP.from_functions(**kwargs, forbid=[{"n": [5, 7], "one": "work"}])
    assert several.structure.allowed_actions((0,)).tolist() == [0, 1]
    assert several.structure.allowed_actions((1,)).tolist() == [0, 1, 2, 3]


# ---- what goes wrong ----------------------------------------------------------------------------


def failing(name: str, values: Any) -> Any:
    raise ValueError("no\nidea")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"transition": failing},
            '("pump"), pump=new, crew=rest: the function fails: ValueError: no idea',
        ),
        (
            {"transition": lambda name, v: v["price"]},
            "the function fails: KeyError: reads 'price', which is not among pump, crew",
        ),
        (
            {"transition": lambda name, v: {"new": 0.5} if name == "pump" else 10},
            'transition factor 0 ("pump"), row 0 (pump=new, crew=rest): sums to 0.5',
        ),
        (
            {"transition": lambda name, v: {"wron": 1}},
            '"pump" has no value \'wron\'; must be one of new, worn, broken; did you mean "worn"?',
        ),
        ({"transition": lambda name, v: None}, '"pump" has no value None'),
        (
            {"transition": lambda name, v: [1.0]},
            '1 probabilities; must be 3, one per value of "pump"',
        ),
        (
            {"transition": lambda name, v: {"new": "all"}},
            "the function gives 'all'; must be a number",
        ),
        ({"transition": 3}, "must be a function; got 3"),
        ({"parents": {"pump": ["pump", "crew"]}}, "parents['price'] must list"),
        ({"parents": PARENTS | {"pumps": []}}, "called 'pumps'; did you mean \"pump\"?"),
        ({"parents": PARENTS | {"pump": ["pmup"]}}, 'no variable is called "pmup"'),
        ({"parents": ["pump"]}, "parents must be a mapping"),
        ({"reward": {"flow": (["pump"], lambda v: "much")}}, "pump=new: the function gives 'much'"),
        (
            {"reward": {"flow": (["pump"],)}},
            "reward 0 has 2 parts; must be (name, scope, function)",
        ),
        ({"reward_ranges": {"flwo": (0, 1)}}, "no reward is called 'flwo'; did you mean \"flow\"?"),
        ({"reward_ranges": {"flow": (0, 1)}}, "must be in its range"),
        ({"alike": lambda name, v: []}, "the key of a class of rows is []"),
        (
            {"alike": lambda name, v: "all" if name == "pump" else None},
            "rows of one class must be equal",
        ),
        ({"alike": failing}, 'the class of a row of "pump", pump=new, crew=rest: the function'),
        (
            {"initial_state": {"pump": "old", "price": 10}},
            "initial state: \"pump\" has no value 'old'",
        ),
        ({"initial_state": {"pump": "new"}}, "price"),
        ({"forbid": [{"crew": "nap"}]}, "forbid, rule 0: \"crew\" has no value 'nap'"),
        ({"forbid": [{"crews": "rest"}]}, 'no variable is called "crews"'),
        ({"forbid": [{"crew": ["rest", "repair"]}]}, "no action is allowed"),
        ({"states": ["pump"]}, "states must be a mapping"),
        ({"states": {"pump": WEAR, "price": [[1], [2]]}}, "[1] must be a text or a number"),
        ({"actions": {"pump": 2}}, '"pump" is a state and an action'),
    ],
)
def test_what_is_wrong_is_one_line(more: dict[str, Any], said: str) -> None:
    with pytest.raises(FmdpError) as caught:
        small(**more)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_scope_that_is_too_large_is_refused_before_it_is_called() -> None:
    states = dict.fromkeys((f"x{i}" for i in range(30)), 2)
    asked: list[Any] = []
    with pytest.raises(TooLarge, match="1073741824 joint values"):
        FactoredMDP.from_functions(
            states,
            {"a": 1},
            {name: list(states) for name in states},
            lambda name, v: asked.append(v),
        )
    assert not asked


# ---- ranges and costs of tables -----------------------------------------------------------------


def factors(*means: Any, **more: Any) -> FactoredMDP:
    return FactoredMDP.from_factors(
        (2,), (1,), [((0,), np.eye(2))], [((0,), own) for own in means], **more
    )


def test_ranges_of_tables_where_none_is_given() -> None:
    """(0, 1) as ever where the means lie there; found by itself elsewhere."""
    model = factors([0.0, 0.5], [-2.0, 0.0], [3.0, 3.0])
    assert model.structure.reward_ranges == ((0.0, 1.0), (-2.0, 0.0), (3.0, 3.0))
    with pytest.raises(InvalidModel, match="must be in its range"):
        factors([0.0, 2.0], reward_ranges=[(0, 1)])


def test_costs_are_rewards_negated() -> None:
    model = factors([0.0, 0.5], costs=[((0,), [0.0, 4.0])], reward_names=("gain", "wages"))
    assert model.rewards[1].tolist() == [0.0, -4.0]
    assert np.signbit(model.rewards[1]).tolist() == [False, True]
    assert model.structure.reward_ranges == ((0.0, 1.0), (-4.0, 0.0))
    assert factors(costs=[((0,), [0.5, 0.25])]) == factors([-0.5, -0.25])


def test_a_function_of_ones_own_keeps_its_error() -> None:
    with pytest.raises(InvalidModel) as caught:
        small(transition=failing)
    assert isinstance(caught.value.__cause__, ValueError)


# ---- the page -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_the_page_is_true(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("from-functions.md")
    page.run_python()
    printed = capsys.readouterr().out.splitlines()
    nominal, robust = map(float, printed[1].split())
    assert robust < nominal
    assert printed[2].startswith('equal_factors - the reward factors "flow left" and "flow right"')
    assert float(printed[3]) < float(printed[0]) < float(printed[4])
    assert printed[5].startswith("20 classes of rows: ")
    assert printed[6].startswith("6 classes of rows: ")

    def reads_too_much(name: str, values: Any) -> Any:
        return values["right"]

    with pytest.raises(InvalidModel) as caught:
        FactoredMDP.from_functions(
            {"left": WEAR, "right": WEAR},
            {"crew": ["rest", "left", "right"]},
            {"left": ["left", "crew"], "right": ["right", "crew"]},
            reads_too_much,
        )
    assert str(caught.value) in page.text


def test_triples_are_intervals() -> None:
    def vague(name: str, values: Any) -> Any:
        if name == "price":
            return [(0.4, 0.5, 0.75), 0.5]
        return {"new": (0.1, 0.15, 0.2), "worn": 0.85} if values["crew"] == "rest" else "new"

    model = small(
        transition=vague,
        parents={"pump": ["crew", "pump"], "price": []},  # not sorted
        costs={"wages": (["crew"], lambda v: (1, 2, 4) if v["crew"] == "repair" else 0)},
    )
    ends = model.intervals
    assert ends is not None
    assert model.transitions[0][::2].tolist() == [[0.15, 0.85, 0.0]] * 3
    assert ends.lower[0][0].tolist() == [0.1, 0.85, 0.0]
    assert ends.upper[0][0].tolist() == [0.2, 0.85, 0.0]
    assert ends.lower[0][1].tolist() == ends.upper[0][1].tolist() == [1.0, 0.0, 0.0]
    assert (ends.lower[1].tolist(), ends.upper[1].tolist()) == ([[0.4, 0.5]], [[0.75, 0.5]])
    # A cost of 1 to 4 is a reward of -4 to -1.
    assert model.rewards[1].tolist() == [0, -2]
    assert (ends.reward_lower[1].tolist(), ends.reward_upper[1].tolist()) == ([0, -4], [0, -1])
    assert model.structure.reward_ranges[1] == (-4, 0)
    assert small().intervals is None


@pytest.mark.parametrize(
    ("probability", "said"),
    [
        ((0.2, 0.1, 0.3), "lower <= nominal <= upper"),
        ((0.1, 0.2), "or three: lower, nominal, upper"),
        ((0.1, 0.25, 2.0), r"must lie in \[0.0, 1.0\]"),
        ((0.1, "x", 0.2), "must be a number"),
        ((0.1, float("nan"), 0.2), "lower <= nominal <= upper"),
    ],
)
def test_bad_triples(probability: Any, said: str) -> None:
    with pytest.raises(InvalidModel, match=said) as caught:
        small(
            transition=lambda n, v: (
                [0.5, 0.5] if n == "price" else {"new": probability, "worn": 0.75}
            )
        )
    assert 'transition factor 0 ("pump")' in str(caught.value)
    assert "\n" not in str(caught.value)
