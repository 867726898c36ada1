"""Values are values: a number in a mapping is the value that was listed, at every entry point."""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.interop import prism
from fmdp.logs.steps import codes_of
from fmdp.model.naming import (
    ListedNames,
    are_numerals,
    listed_values,
    number_in,
    positions_are_clear,
)
from fmdp.model.structure import Structure
from fmdp.planning.explain.export import exported
from fmdp.planning.policies.playing import ActionTable
from fmdp.planning.policies.rule import Rule
from fmdp.service.lines import Lines

# The orders are neither sorted nor counted from 0, so that a value and its position always differ.
BEDS = (3, 1, 2)
ORDERS = (2, 0, 1)


def ward() -> fmdp.FactoredMDP:
    """Beds 1 to 3: as many as were ordered, at most 3; ordering costs, full wards pay."""

    def transition(name: str, values: Any) -> Any:
        return min(3, max(1, values["order"] + 1))

    return fmdp.FactoredMDP.from_functions(
        {"beds": BEDS},
        {"order": ORDERS},
        {"beds": ["order"]},
        transition,
        {"pay": (["beds", "order"], lambda v: v["beds"] * 2 - v["order"] ** 2)},
        forbid=[{"beds": 1, "order": 2}],
        initial_state={"beds": 1},
    )


def by_position(values: tuple[int, ...], value: int) -> int:
    return values.index(value)


def test_values_are_kept_as_listed() -> None:
    s = ward().structure
    assert s.state_values == (("3", "1", "2"),)
    assert listed_values(s.state_values[0]) == (3, 1, 2)
    assert ward().initial_state == (1,)
    assert s.check_state({"beds": 1}) == (1,)
    assert s.check_state({"beds": "1"}) == (1,)
    assert s.check_state("beds=1") == s.check_state('{"beds": 1}') == (1,)
    assert s.check_state((1,)) == (1,)
    assert s.check_state({"beds": np.int64(1)}) == s.check_state({"beds": 1.0}) == (1,)
    assert s.name_state({"beds": 1}) == {"beds": "1"}
    with pytest.raises(InvalidParameter, match='"beds" has no value 0; must be one of 3, 1, 2'):
        s.check_state({"beds": 0})
    with pytest.raises(InvalidParameter, match=r'"beds" is 3; must be in 0\.\.2, or one of'):
        s.check_state((3,))


def test_a_policy_is_asked_and_answers_by_value() -> None:
    model = ward()
    plan = fmdp.plan(model)
    policy: Any = plan.policy
    for beds in BEDS:
        best = max(
            (order for order in ORDERS if (beds, order) != (1, 2)),
            # One step ahead is all that the order decides.
            key=lambda order: -(order**2) + 2 * min(3, order + 1),
        )
        assert policy({"beds": beds}) == {"order": best}
        assert type(policy({"beds": beds})["order"]) is int
        assert policy((by_position(BEDS, beds),)) == (by_position(ORDERS, best),)
        explained = plan.explain({"beds": beds})
        assert explained.state == {"beds": beds}
        assert explained.action == {"order": best}
        assert f"beds={beds}" in str(explained)


def test_forbid_means_the_value_in_both_places() -> None:
    model = ward()
    bare = model.with_constraints(fmdp.forbid(model, {"beds": 1, "order": 2}))
    assert bare.structure.constraints[0].table.tolist() == (
        model.structure.constraints[0].table.tolist()
    )
    for beds in BEDS:
        for order in ORDERS:
            state, action = by_position(BEDS, beds), by_position(ORDERS, order)
            assert model.structure.allowed((state,), (action,)) == ((beds, order) != (1, 2))
    with pytest.raises(InvalidModel, match='"beds" has no value 0'):
        fmdp.forbid(model, {"beds": 0, "order": 2})


def test_an_idle_value_is_a_value() -> None:
    two = Structure(
        (2,), (3, 3), ((0,),), (), action_names=("a", "b"), action_values=(ORDERS, ORDERS)
    )
    cap = fmdp.at_most(two, 1, idle=0)
    assert cap.idle == (1, 1)  # the position of 0
    assert fmdp.at_most(two, 1).idle == (0, 0)  # by default the first value


def test_rules_get_the_values_as_listed() -> None:
    model = ward()
    seen: set[tuple[Any, type]] = set()

    @fmdp.named
    def rule(state: Any) -> Any:
        seen.add((state["beds"], type(state["beds"])))
        return {"order": 1 if state["beds"] == 1 else 0}

    # From 1 bed it orders 1 and has 2, from 2 it orders 0 and has 1: pay (2 - 1 + 4 - 0) / 2.
    assert fmdp.evaluate(model, rule).gain == pytest.approx(2.5)
    assert seen == {(beds, int) for beds in BEDS}

    @fmdp.named
    def alone(state: Any) -> int:
        return 1 if state["beds"] == 1 else 0

    assert fmdp.evaluate(model, alone).gain == pytest.approx(2.5)


def test_texts_stay_texts() -> None:
    model = fmdp.FactoredMDP.from_functions(
        {"x": ["1", "0"]},
        {"a": ["0", "1"]},
        {"x": ["a"]},
        lambda name, v: v["a"],
        {"r": (["x"], lambda v: float(v["x"] == "1"))},
    )
    seen = []

    @fmdp.named
    def rule(state: Any) -> Any:
        seen.append(state["x"])
        return {"a": "1"}

    assert fmdp.evaluate(model, rule).gain == 1.0
    assert set(seen) == {"0", "1"}
    # A number that is the text of a value is that value, and never the position of another.
    assert model.structure.check_state({"x": 1}) == (0,)
    answer: Any = fmdp.plan(model).policy
    assert answer({"x": 1}) == {"a": "1"}


def test_default_values_are_numbers() -> None:
    model = fmdp.problem("riverswim:1")
    seen = []

    @fmdp.named
    def right(state: Any) -> Any:
        seen.append(*state.values())
        return "right"

    assert fmdp.evaluate(model, right).gain == pytest.approx(0.428622434)
    assert set(seen) == set(range(6))


def test_an_answer_alone_that_could_be_two_actions_is_refused() -> None:
    model = ward()
    with pytest.raises(
        InvalidParameter,
        match=r"action 1 could be the value 1 of \"order\", or its value at position 1, which is 0",
    ):
        fmdp.evaluate(model, lambda state: 1)
    environment = fmdp.Environment(model, np.random.default_rng(0))
    for _ in range(3):  # the second time the outcome is known, and it is refused all the same
        with pytest.raises(InvalidParameter, match="could be the value 1"):
            environment.step(1)
        environment.step((1,))
    environment.step({"order": 1})
    assert environment.state == (by_position(BEDS, 2),)


def test_an_exception_in_a_rule_names_the_state() -> None:
    model = ward()

    @fmdp.named
    def broken(state: Any) -> Any:
        return {"order": {3: 0, 1: 1}[state["beds"]]}

    with pytest.raises(
        InvalidParameter, match=r"Rule\(broken\) in state beds=2: the function fails: KeyError: 2"
    ) as caught:
        fmdp.evaluate(model, broken)
    assert isinstance(caught.value.__cause__, KeyError)

    @fmdp.named
    def misspelt(state: Any) -> Any:
        return state["bed"]

    with pytest.raises(InvalidParameter, match="reads 'bed', which is not among beds"):
        fmdp.evaluate(model, misspelt)

    @fmdp.named
    def wrong(state: Any) -> Any:
        return {"order": 7}

    with pytest.raises(InvalidParameter, match=r'in state beds=3: .*"order" has no value 7'):
        fmdp.evaluate(model, wrong)


def test_a_random_rule_is_refused() -> None:
    draw = np.random.default_rng(0)

    def rule(state: Any) -> tuple[int]:
        return (int(draw.integers(2)),)

    with pytest.raises(InvalidParameter, match="answered two different actions"):
        fmdp.evaluate(fmdp.problem("riverswim:2"), lambda state: rule(state) * 2)
    calls = iter(range(10**6))
    late = fmdp.problem("riverswim:1")
    with pytest.raises(InvalidParameter, match="answered two different actions"):
        # It changes only after every state was asked once.
        fmdp.evaluate(late, lambda state: (int(next(calls) > 7),))
    turns = iter(range(10**6))
    table = ActionTable(Rule(lambda state: (next(turns) % 2,), late.structure), late.structure)
    with pytest.raises(InvalidParameter, match="answered two different actions"):
        table.ask((0,))


def test_files_keep_numbers(tmp_path: Path) -> None:
    model = ward()
    fmdp.save(model, tmp_path / "ward.json")
    text = json.loads((tmp_path / "ward.json").read_text())
    assert text["states"][0]["values"] == [3, 1, 2]
    loaded = fmdp.load(tmp_path / "ward.json")
    assert loaded == model
    assert [listed_values(v) for v in loaded.structure.values] == [BEDS, ORDERS]
    assert loaded.structure.constraints[0].table.tolist() == (
        model.structure.constraints[0].table.tolist()
    )
    policy: Any = fmdp.plan(model).policy
    policy.save(tmp_path / "p.npz")
    again: Any = fmdp.load_policy(tmp_path / "p.npz")
    assert again({"beds": 1}) == policy({"beds": 1})
    assert type(again({"beds": 1})["order"]) is int
    agent = fmdp.PSRL().start(model.structure, np.random.default_rng(0))
    agent.observe({"beds": 1}, {"order": 1}, [1.0], {"beds": 2})
    agent.save(tmp_path / "agent.npz")
    kept = fmdp.load_agent(tmp_path / "agent.npz").structure
    assert [listed_values(v) for v in kept.values] == [BEDS, ORDERS]
    copied = pickle.loads(pickle.dumps(model.structure))
    assert copied == model.structure
    assert listed_values(copied.state_values[0]) == BEDS


def test_a_file_without_an_idle_value_takes_the_first(tmp_path: Path) -> None:
    model = fmdp.FactoredMDP.from_functions(
        {"x": [5, 6]}, {"a": [7, 8]}, {"x": ["a"]}, lambda name, v: v["a"] - 2, at_most=0
    )
    fmdp.save(model, tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    assert '"idle": 7' in text
    (tmp_path / "m.json").write_text(text.replace(', "idle": 7', ""))
    assert fmdp.load(tmp_path / "m.json").structure == model.structure


def test_learners_and_services_by_value(tmp_path: Path) -> None:
    model = ward()
    agent = fmdp.PSRL().start(model.structure, np.random.default_rng(0))
    other = fmdp.PSRL().start(model.structure, np.random.default_rng(0))
    agent.observe({"beds": 1}, {"order": 1}, [1.0], {"beds": 2})
    other.observe((1,), (2,), [1.0], (2,))
    for mine, theirs in zip(agent.statistics.counts, other.statistics.counts, strict=True):
        assert np.array_equal(mine, theirs)
    answer = agent.act({"beds": 1})
    assert answer == {"order": ORDERS[other.act((1,))[0]]}
    with fmdp.Service(model, "psrl", tmp_path / "d") as service:
        assert type(service.act({"beds": 1})["order"]) is int  # type: ignore[call-overload]
        reader, writer = os.pipe()
        os.write(writer, b'{"state": {"beds": 1}}\n{"state": {"beds": 0}}\n{"state": [1]}\n')
        os.close(writer)
        sent = io.BytesIO()
        Lines(service, reader, sent.write, 1).run()  # type: ignore[arg-type]
        lines = [json.loads(line) for line in sent.getvalue().splitlines()]
        assert lines[0]["action"]["order"] in {"0", "1", "2"}
        assert '"beds" has no value 0' in lines[1]["error"]
        assert ORDERS[lines[2]["action"][0]] == int(lines[0]["action"]["order"])


def test_exported_functions_take_and_give_values() -> None:
    policy: Any = fmdp.plan(ward()).policy
    space: dict[str, Any] = {}
    exec("".join(exported(policy, "python")[0]), space)
    for beds in BEDS:
        assert space["act"]({"beds": beds}) == policy({"beds": beds})
        assert space["act"](beds=str(beds)) == policy({"beds": beds})
    with pytest.raises(ValueError, match="has no value 0"):
        space["act"](beds=0)


def test_keys_of_alike_rows_are_made_of_values() -> None:
    s = ward().structure
    seen = set()

    def key(name: str, values: Any) -> Any:
        seen.add(values["order"])
        return values["order"]

    fmdp.Alike.by_key(s, key)
    assert seen == set(ORDERS)


@pytest.mark.parametrize(
    ("values", "given", "place"),
    [
        (("low", "high"), 1, 1),  # words alone: a number can only be a position
        (("0", "1", "none"), 2, 2),  # texts of numbers at their own positions
        (("none", 1, 2), 1, 1),
        ((0.5, 1.0), 1, 1),
        ((False, True), True, 1),
        ((False, True), 1, 1),
        ((0, 1), True, 1),
        (("1", "2"), 2, 1),
        (("1.5", "2.0"), 2, 1),
    ],
)
def test_numbers_in_mappings(values: tuple[Any, ...], given: Any, place: int) -> None:
    s = Structure((len(values),), (2,), ((),), (), state_values=(values,))
    assert s.check_state({"s0": given}) == (place,)


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ((1, 2, 3), 0),
        (("none", 1, 2), 0),  # numbers were listed, and this is none of them
        (("1", "2"), 0),
        (("01", "02"), 1),  # looks like a number, and like which one is left open
        (("1", "1.0"), 1),
        (("0", "1", "10"), 2),
        ((1, 2), 1.5),
        ((1, 2), None),
        ((1, 2), float("nan")),
        ((1, 2), float("inf")),
        ((1, 2), 10**400),
        (("low", "high"), True),
    ],
)
def test_what_is_ambiguous_is_refused(values: tuple[Any, ...], given: Any) -> None:
    s = Structure((len(values),), (2,), ((),), (), state_values=(values,))
    with pytest.raises(InvalidParameter, match=r'^state: "s0" ') as caught:
        s.check_state({"s0": given})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ((1, "1"), '"1" occurs twice'),
        ((1, 1.0), "1 and 1.0 are the same number"),
        ((True, 1), "True and 1 are the same number"),
        ((1, float("nan")), "finite number"),
        ((1, 10**400), "finite number"),
        ((1, (2,)), "printable string"),
    ],
)
def test_lists_that_cannot_be_told_apart_are_refused(values: Any, words: str) -> None:
    with pytest.raises(InvalidModel, match=words):
        Structure((2,), (2,), ((),), (), state_values=(values,))


def test_names_of_numbers() -> None:
    assert [number_in(name) for name in ("2", "-1", "0.5", "1e+16", "02", "1e3", "x", "nan")] == (
        [2, -1, 0.5, 1e16, None, None, None, None]
    )
    assert number_in("9" * 400) is None
    assert are_numerals(ListedNames(range(3)))
    assert not are_numerals(("0", "1"))
    assert not are_numerals(ListedNames([0, True]))
    assert positions_are_clear(("low", "high"))
    assert positions_are_clear(("0", "1", "inf"))
    assert not positions_are_clear(("1", "0"))
    assert not positions_are_clear(ListedNames(range(2)))
    assert codes_of(ListedNames([2.0, 1.0])) == {"2.0": 0, "1.0": 1, "2": 0, "1": 1}
    assert codes_of(("a", "b")) == {"a": 0, "b": 1, "0": 0, "1": 1}
    assert codes_of(ListedNames(["none", 2])) == {"none": 0, "2": 1}


def test_equality_is_of_names() -> None:
    texts = Structure((2,), (1,), ((),), (), state_values=(("1", "2"),))
    numbers = Structure((2,), (1,), ((),), (), state_values=((1, 2),))
    assert texts == numbers
    assert hash(texts) == hash(numbers)


def test_a_log_has_numbers_where_its_columns_have(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("beds,order,pay\n3,1,1\n2,1,0\n2,none,0\n3,1,1\n")
    model = fmdp.fit(path, structure="learn", actions=["order"], rewards=["pay"]).model
    assert listed_values(model.structure.state_values[0]) == (2, 3)
    assert listed_values(model.structure.action_values[0]) == ("1", "none")
    log = "beds,order,pay\n3,1,1\n1,0,0\n1,0,0\n"
    path.write_text(log)
    fitted = fmdp.fit(path, ward())
    assert fitted.model.structure == ward().structure
    path.write_text(log.replace("1,0,0", "0,0,0"))
    with pytest.raises(InvalidParameter, match="there is no value '0'"):
        fmdp.fit(path, ward())


def test_a_recorded_run_is_fitted_as_it_was(tmp_path: Path) -> None:
    """A frame of positions was read back as values: other states than those of the run."""
    model = ward()
    run = fmdp.simulate(model, "random", steps=200, seed=0, record=True)
    trajectory: Any = run.trajectory
    columns = trajectory.columns()
    assert columns["beds"].tolist() == [BEDS[place] for place in trajectory.states[:200, 0]]
    path = tmp_path / "log.csv"
    rows = zip(columns["beds"], columns["order"], columns["reward.pay"], strict=True)
    path.write_text("beds,order,pay\n" + "".join(f"{b},{o},{p}\n" for b, o, p in rows))
    fitted = fmdp.fit(path, model, prior=0.0).model
    tables = zip(fitted.transitions, model.transitions, strict=True)
    assert all(np.array_equal(mine, theirs) for mine, theirs in tables)
    words = fmdp.problem("machines:2")
    told = fmdp.simulate(words, "random", steps=5, seed=0, record=True).trajectory
    assert told is not None
    assert all(column.dtype == np.int64 for name, column in told.columns().items()
               if name in words.structure.names)  # fmt: skip


def test_gymnasium_has_values_in_its_info() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    import fmdp.interop.gymnasium  # noqa: F401 - registers the environments

    env = gymnasium.make("fmdp/Model-v0", problem=ward(), named=True)
    for beds in BEDS:
        observation, info = env.reset(seed=0, options={"state": {"beds": beds}})
        assert observation == by_position(BEDS, beds)
        assert info["state"] == {"beds": beds}


def test_prism_files_keep_numbers(tmp_path: Path) -> None:
    model = ward()
    prism.save(model, tmp_path / "ward.prism")
    read = fmdp.problem(str(tmp_path / "ward.prism"))
    assert [listed_values(v) for v in read.structure.values] == [BEDS, ORDERS]
    (tmp_path / "m.prism").write_text(
        "mdp\nmodule m\n  x : [-1..1] init 0;\n  [up] true -> (x'=1);\n  [down] true -> (x'=-1);\n"
        'endmodule\nrewards "r"\n  true : x + 1;\nendrewards\n'
    )
    signed = fmdp.problem(str(tmp_path / "m.prism"))
    assert listed_values(signed.structure.state_values[0]) == (-1, 0, 1)
    assert signed.structure.check_state({"x": 1}) == (2,)
