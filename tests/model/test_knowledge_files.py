"""Model files of version 2: what a structure knows survives them, and flaws are one line each."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.errors import FileProblem, FmdpError, InvalidModel
from fmdp.model import (
    Alike,
    AtMost,
    Budget,
    Effect,
    Effects,
    FactoredMDP,
    Forbidden,
    Intervals,
    Noise,
)
from fmdp.model.io.files import dumps, loads
from fmdp.model.io.renaming import find_renaming, renamed_rows
from fmdp.model.rules import find_boxes, find_rules, inside, owners
from fmdp.model.spaces import IndexArray, all_assignments, count
from fmdp.model.structure import Structure
from fmdp.testing.strategies import models

ROOT = Path(__file__).parents[2]
SCHEMA, SCHEMA_3 = (
    jsonschema.Draft202012Validator(
        json.loads(
            (package_files("fmdp.model") / "schema" / f"fmdp-model-{n}.schema.json").read_text()
        )
    )
    for n in (2, 3)
)
NAMES = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=4)
SIZES = st.lists(st.integers(1, 4), max_size=4)


# ---- models that know something ------------------------------------------------------------------


def _classes(draw: st.DrawFn, s: Structure, scope: Sequence[int]) -> np.ndarray[Any, Any]:
    """Classes of rows as people have them: by a part of the scope, by a condition, or any."""
    sizes = s.scope_sizes(scope)
    rows = all_assignments(sizes)
    how = draw(st.sampled_from(["own", "part", "condition", "any"]))
    if how == "part" and scope:
        kept = draw(st.sets(st.integers(0, len(scope) - 1)))
        return np.array([hash(tuple(row[sorted(kept)].tolist())) for row in rows])
    if how == "condition" and scope:
        axis = draw(st.integers(0, len(scope) - 1))
        value = draw(st.integers(0, sizes[axis] - 1))
        return np.where(rows[:, axis] == value, -1, np.arange(len(rows)))
    if how == "any":
        few = draw(st.integers(1, 3))
        return np.array(draw(st.lists(st.integers(0, few), min_size=len(rows), max_size=len(rows))))
    return np.arange(len(rows))


def _apart(numbers: Sequence[np.ndarray[Any, Any]]) -> list[IndexArray]:
    """The same classes in each factor, none in two."""
    made, start = [], 0
    for own in numbers:
        _, inverse = np.unique(own, return_inverse=True)
        made.append(inverse.reshape(-1).astype(np.int64) + start)
        start += len(own)
    return made


def _shared(
    draw: st.DrawFn, numbers: list[IndexArray], kinds: Sequence[Any], sizes: Sequence[Any]
) -> list[IndexArray]:
    """Some factors take classes of others: all, their axes moved and values renamed; or some."""
    for target in range(len(numbers)):
        fitting = [o for o in range(target) if kinds[o] == kinds[target]]
        if not fitting or draw(st.booleans()):
            continue
        source = draw(st.sampled_from(fitting))
        if sorted(sizes[source]) == sorted(sizes[target]) and draw(st.booleans()):
            order = next(
                p
                for p in itertools.permutations(range(len(sizes[source])))
                if [sizes[source][a] for a in p] == list(sizes[target])
            )
            cube = numbers[source].reshape(sizes[source]).transpose(order)
            for axis, size in enumerate(cube.shape):
                cube = cube.take(draw(st.permutations(range(size))), axis=axis)
            numbers[target] = np.ascontiguousarray(cube).reshape(-1)
        else:
            row = draw(st.integers(0, len(numbers[target]) - 1))
            numbers[target] = numbers[target].copy()
            numbers[target][row] = numbers[source][0]
    return numbers


def _with_rows_of_classes(tables: Sequence[Any], numbers: Sequence[IndexArray]) -> list[Any]:
    """Every row becomes the first of its class."""
    made = [np.array(table) for table in tables]
    first: dict[int, Any] = {}
    for table, own in zip(made, numbers, strict=True):
        for row, number in enumerate(own.tolist()):
            table[row] = first.setdefault(number, table[row].copy())
    return made


@st.composite
def knowing_models(draw: st.DrawFn) -> FactoredMDP:
    """Models with alike rows within and between factors, constraints, intervals, names."""
    model = draw(models())
    s = model.structure
    ranges = ((-3.0, 3.0),) * s.l
    rewards = [np.clip(means, -3, 3) for means in model.rewards]
    numbers = _shared(
        draw,
        _apart([_classes(draw, s, scope) for scope in s.transition_scopes]),
        s.state_sizes,
        [s.scope_sizes(scope) for scope in s.transition_scopes],
    )
    of_rewards = _shared(
        draw,
        _apart([_classes(draw, s, scope) for scope in s.reward_scopes]),
        ranges,
        [s.scope_sizes(scope) for scope in s.reward_scopes],
    )
    alike = Alike(tuple(numbers), tuple(of_rewards)) if draw(st.booleans()) else None
    if alike is not None:
        transitions = _with_rows_of_classes(model.transitions, numbers)
        rewards = _with_rows_of_classes(rewards, of_rewards)
    else:
        transitions = list(model.transitions)
    constraints: list[Any] = []
    if draw(st.booleans()):
        scope = tuple(range(len(s.sizes)))[-draw(st.integers(1, min(3, len(s.sizes)))) :]
        rows = all_assignments(s.scope_sizes(scope))
        busy = rows[:, [v >= s.m for v in scope]].any(axis=1)  # the first action stays allowed
        table = [draw(st.booleans()) and bool(own) for own in busy]
        constraints.append(Forbidden(scope, np.array(table), draw(NAMES | st.just(""))))
    if draw(st.booleans()):
        actions = tuple(range(s.m, len(s.sizes)))
        constraints.append(AtMost(actions, draw(st.integers(0, 2)), (0,) * len(actions), "few"))
    if draw(st.booleans()):
        costs = [
            (0, *(draw(st.sampled_from((0, 1, 0.1, 2.5))) for _ in range(s.sizes[v] - 1)))
            for v in range(s.m, len(s.sizes))
        ]
        limit = draw(st.sampled_from((0, 0.3, 1, 4.25)))
        constraints.append(Budget(tuple(range(s.m, len(s.sizes))), limit, tuple(costs)))
    names = draw(st.lists(NAMES, min_size=len(s.sizes), max_size=len(s.sizes), unique=True))
    values = tuple(
        tuple(draw(st.lists(NAMES, min_size=n, max_size=n, unique=True)))
        if draw(st.booleans())
        else ()
        for n in s.sizes
    )
    structure = replace(
        s,
        reward_ranges=ranges,
        state_names=tuple(names[: s.m]),
        action_names=tuple(names[s.m :]),
        state_values=values[: s.m],
        action_values=values[s.m :],
        alike=alike,
        constraints=tuple(constraints),
    )
    return FactoredMDP(
        structure,
        transitions,
        rewards,
        draw(st.sampled_from([Noise(), Noise("bernoulli"), Noise("gaussian", 0.3)])),
        model.initial_state,
        "knows",
        _intervals(draw, transitions, rewards, alike),
    )


def _intervals(
    draw: st.DrawFn, transitions: Sequence[Any], rewards: Sequence[Any], alike: Alike | None
) -> Intervals | None:
    how = draw(st.sampled_from(["none", "of no width", "by class", "by row"]))
    if how == "none":
        return None
    dice = np.random.default_rng(draw(st.integers(0, 9)))

    def wide(
        tables: Sequence[Any], classes: Any, sign: int, lo: float, hi: float
    ) -> tuple[Any, ...]:
        width = 0.0 if how == "of no width" else 0.2
        made = [table + sign * width * dice.random(table.shape) for table in tables]
        if how == "by class" and classes is not None:
            made = _with_rows_of_classes(made, classes)
        return tuple(np.clip(table, lo, hi) for table in made)

    classes = (None, None) if alike is None else (alike.transitions, alike.rewards)
    return Intervals(
        wide(transitions, classes[0], -1, 0, 1),
        wide(transitions, classes[0], 1, 0, 1),
        wide(rewards, classes[1], -1, -3, 3),
        wide(rewards, classes[1], 1, -3, 3),
    )


@st.composite
def models_of_twins(draw: st.DrawFn) -> FactoredMDP:
    """A ring of machines of one make, each with a value of the action of its own."""
    n, size, do = draw(st.tuples(st.integers(2, 4), st.integers(2, 3), st.integers(1, 5)))
    make = _classes(draw, Structure((size, size), (do,), ((0, 1), ()), ()), (0, 1, 2))
    (cube,) = _apart([make])
    dice = np.random.default_rng(draw(st.integers(0, 9)))
    rows = dice.dirichlet(np.ones(size), len(make))
    moves = draw(st.lists(st.permutations(range(do)), min_size=n, max_size=n))
    scopes, numbers = [], []
    for i, move in enumerate(moves):
        scope = (i, (i + 1) % n, n)
        own = cube.reshape(size, size, do).take(move, axis=2)
        numbers.append(np.ascontiguousarray(own.transpose(np.argsort(scope))).reshape(-1))
        scopes.append(tuple(sorted(scope)))
    wide = draw(st.booleans())
    own = [rows[classes] for classes in numbers]
    return FactoredMDP(
        Structure((size,) * n, (do,), tuple(scopes), (), alike=Alike(tuple(numbers), ())),
        own,
        [],
        intervals=Intervals(tuple(0.9 * table for table in own), tuple(own), (), ())
        if wide
        else None,
    )


@st.composite
def models_with_effects(draw: st.DrawFn) -> FactoredMDP:
    """Two components and a variable that nobody acts on; rewards of every kind."""
    sizes = draw(st.tuples(*[st.integers(1, 3)] * 3))
    actions = draw(st.tuples(*[st.integers(1, 3)] * 2))
    whole = sizes + actions
    dice = np.random.default_rng(draw(st.integers(0, 99)))
    components = (
        Effect((0,), (3,), dice.integers(0, sizes[0], sizes[0] * actions[0])),
        Effect((2,), (4,), dice.integers(0, sizes[2], sizes[2] * actions[1])),
    )
    after = tuple(tuple(sorted(draw(st.sets(st.integers(0, 2), max_size=2)))) for _ in range(3))
    of_reward = tuple(sorted(draw(st.sets(st.integers(0, 2)))))
    effects = Effects(
        components, after, ("after", "before", "cost", "setup"), (of_reward, (), (), ())
    )
    scopes = [effects.full_scope(own) for own in after]
    rows = [effects.after_rows(own, whole) for own in after]
    local = [
        dice.dirichlet(np.ones(sizes[i]), count([whole[v] for v in after[i]])) for i in range(3)
    ]
    reward_scopes = (effects.full_scope(of_reward), (1,), (2, 4), (3, 4))
    reward_rows = effects.after_rows(of_reward, whole)
    busy = (all_assignments(actions) > 0).any(axis=1).astype(np.int64)
    reward_classes = (
        reward_rows,
        np.arange(sizes[1]) + 1000,
        np.arange(sizes[2] * actions[1]) + 2000,
        busy + 3000,
    )
    means = (
        dice.random(count([whole[v] for v in of_reward]))[reward_rows],
        dice.random(sizes[1]),
        dice.random(sizes[2] * actions[1]),
        dice.random(2)[busy],
    )
    structure = Structure(
        sizes,
        actions,
        tuple(scopes),
        reward_scopes,
        alike=Alike(tuple(own + 1000 * i for i, own in enumerate(rows)), reward_classes),
        effects=effects,
    )
    tables = [table[own] for table, own in zip(local, rows, strict=True)]
    told = None
    if draw(st.booleans()):
        told = Intervals(
            tuple(np.maximum(t - 0.1 * dice.random(t.shape), 0) for t in tables),
            tuple(tables),
            means,
            tuple(np.ones_like(own) for own in means),
        )
    return FactoredMDP(structure, tables, means, intervals=told)


def same_bits(a: FactoredMDP, b: FactoredMDP) -> bool:
    tables = zip(a.transitions + a.rewards, b.transitions + b.rewards, strict=True)
    return a == b and all(x.tobytes() == y.tobytes() for x, y in tables)


@settings(max_examples=300, deadline=None)
@given(st.one_of(knowing_models(), models_of_twins(), models_with_effects()))
def test_what_a_model_knows_survives_its_file_bit_for_bit(model: FactoredMDP) -> None:
    text = dumps(model)
    document = json.loads(text)
    s = model.structure
    knows = s.alike is not None or s.constraints or s.effects or model.intervals is not None
    budgets = any(isinstance(constraint, Budget) for constraint in s.constraints)
    assert document["version"] == (3 if budgets else 2 if knows else 1)
    if knows:
        (SCHEMA_3 if budgets else SCHEMA).validate(document)
    again = loads(text)
    assert again.structure == s
    assert same_bits(again, model)
    assert again.content_hash == model.content_hash
    assert dumps(again) == text


# ---- rules and renamings -------------------------------------------------------------------------


@st.composite
def classes_of_rows(draw: st.DrawFn) -> tuple[tuple[int, ...], IndexArray]:
    sizes = tuple(draw(SIZES))
    few = draw(st.integers(0, 4))
    rows = st.lists(st.integers(0, few), min_size=count(sizes), max_size=count(sizes))
    return sizes, np.array(draw(rows), dtype=np.int64)


@given(classes_of_rows())
def test_rules_that_are_found_have_the_classes(given: tuple[tuple[int, ...], IndexArray]) -> None:
    sizes, classes = given
    rules = find_rules(sizes, classes, most_boxes=10**6)
    assert rules is not None
    assert len({rule.owner for rule in rules}) == len(rules) == len(np.unique(classes))
    owner = owners(sizes, [rule.boxes for rule in rules])
    assert (np.array([rule.owner for rule in rules])[owner] == classes).all()


@given(classes_of_rows())
def test_boxes_that_are_found_hold_the_rows(given: tuple[tuple[int, ...], IndexArray]) -> None:
    sizes, classes = given
    mask = classes == 0
    boxes = find_boxes(sizes, mask)
    assert (inside(sizes, boxes) == mask).all()
    held = sum(int(inside(sizes, [box]).sum()) for box in boxes)
    assert held == mask.sum(), "disjoint"


@given(st.data())
def test_the_first_rule_that_fits_counts(data: st.DataObject) -> None:
    sizes = tuple(data.draw(SIZES))
    rules = data.draw(
        st.lists(
            st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        axis: st.sets(st.integers(0, size - 1), min_size=1).map(
                            lambda values: tuple(sorted(values))
                        )
                        for axis, size in enumerate(sizes)
                    },
                ),
                min_size=1,
                max_size=2,
            ),
            max_size=4,
        )
    )
    expected = [
        next(
            (
                number
                for number, boxes in enumerate(rules)
                if any(all(row[axis] in own for axis, own in box.items()) for box in boxes)
            ),
            -1,
        )
        for row in all_assignments(sizes).tolist()
    ]
    assert owners(sizes, rules).tolist() == expected


@given(classes_of_rows(), st.data())
def test_a_renaming_that_is_found_is_one(
    given: tuple[tuple[int, ...], IndexArray], data: st.DataObject
) -> None:
    sizes, old = given
    order = data.draw(st.permutations(range(len(sizes))))
    cube = old.reshape(sizes).transpose(order)
    for axis, size in enumerate(cube.shape):
        cube = cube.take(data.draw(st.permutations(range(size))), axis=axis)
    new_sizes, new = cube.shape, np.ascontiguousarray(cube).reshape(-1)
    found = find_renaming(old, sizes, new, new_sizes)
    if found is not None:
        assert sorted(found.axes) == list(range(len(sizes)))
        assert (old[renamed_rows(found, sizes)] == new).all()
    assert find_renaming(old, sizes, old, sizes) is not None


# ---- what a file says ----------------------------------------------------------------------------


PAGE = (ROOT / "docs" / "model-file.md").read_text(encoding="utf-8")


def machine() -> dict[str, Any]:
    """The example of docs/model-file.md: two machines and a fitter who may be at one of them."""
    parsed: dict[str, Any] = json.loads(PAGE.split("```json\n")[2].split("```")[0])
    return parsed


def test_the_page_about_model_files() -> None:
    """What it quotes from the pumps is there; its error is what is said; its effects are read."""
    quoted, constraints, effects = (block.split("```")[0] for block in PAGE.split("```json\n")[3:6])
    assert quoted.strip() in (ROOT / "examples" / "pumps.json").read_text()
    flawed = machine()
    flawed["transitions"][0]["rules"][1]["when"]["fitter"] = "left"
    with pytest.raises(InvalidModel) as caught:
        loads(json.dumps(flawed), "machines.json")
    assert f"  {caught.value}\n" in PAGE
    assert loads(json.dumps(repairs())).structure.effects is not None
    assert json.loads(f"{{{effects}}}").items() <= repairs().items()
    crews = ("crew_1", "crew_2", "repair_1", "repair_2", "repair_3", "trip_1", "trip_2")
    values = {"crew": ["P1", "P2"], "repair": ["no", "yes"], "trip": ["none", "near", "far"]}
    document = {
        "format": "fmdp-model",
        "version": 3,
        "states": [{"name": "s", "size": 1}],
        "actions": [{"name": name, "values": values[name.split("_")[0]]} for name in crews],
        "transitions": [{"scope": [], "rows": [[1]]}],
        **json.loads(f"{{{constraints}}}"),
    }
    s = loads(json.dumps(document)).structure
    assert len(s.allowed_actions((0,))) == 2 * 7 * 8  # of the trips, two far ones cost 9.5


def test_rules_trees_likeness_costs_and_ranges() -> None:
    SCHEMA.validate(machine())
    model = loads(json.dumps(machine()))
    s = model.structure
    assert model.initial_state == (0, 1)
    # Rows of (left, fitter) and (right, fitter), the fitter fastest.
    assert model.transitions[0][:3].tolist() == [[0.8, 0.1, 0.1], [0.9, 0.1, 0], [0.8, 0.1, 0.1]]
    assert model.transitions[1][:3].tolist() == [[0.8, 0.1, 0.1], [0.8, 0.1, 0.1], [0.9, 0.1, 0]]
    assert s.alike is not None
    assert s.alike.transitions[0].tolist() == [0, 1, 0, 2, 1, 2, 3, 1, 3]
    assert s.alike.transitions[1].tolist() == [0, 0, 1, 2, 2, 1, 3, 3, 1]
    assert s.alike.rewards[0].tolist() == [0, 0, 0, 1, 1, 1, 2, 3, 3]
    assert s.alike.rewards[1].tolist() == [4, 5, 5]
    assert s.max_scope_size == 4
    assert model.rewards[0].tolist() == [3, 3, 3, 2, 2, 2, 1, 0, 0]
    assert model.rewards[1].tolist() == [0, -0.5, -0.5]
    assert s.reward_ranges == ((0, 3.5), (-0.5, 0))
    assert model.intervals is not None
    assert model.intervals.reward_lower[0].tolist() == [2.5, 2.5, 2.5, 2, 2, 2, 1, 0, 0]
    assert model.intervals.upper[0].tolist() == model.transitions[0].tolist()
    assert not s.allowed((0, 1), (1,))
    assert s.allowed((1, 1), (1,))
    assert loads(dumps(model)) == model


def test_a_range_beside_costs_is_of_the_costs() -> None:
    document = machine()
    document["rewards"][1]["range"] = [0, 2]
    assert loads(json.dumps(document)).structure.reward_ranges[1] == (-2, 0)


@pytest.mark.parametrize(("noise", "found"), [("deterministic", (-0.5, 0)), ("bernoulli", (-1, 0))])
def test_ranges_that_are_not_given(noise: str, found: tuple[float, float]) -> None:
    document = machine()
    document["rewards"][1]["noise"] = {"kind": noise}
    assert loads(json.dumps(document)).structure.reward_ranges[1] == found


def repairs() -> dict[str, Any]:
    return {
        "format": "fmdp-model",
        "version": 2,
        "states": [{"name": "machine", "values": ["new", "old", "down"]}],
        "actions": [{"name": "repair", "values": ["no", "yes"]}],
        "effects": [
            {
                "states": ["machine"],
                "actions": ["repair"],
                "outcome": [{"when": {"repair": "yes"}, "to": {"machine": "new"}}],
            }
        ],
        "transitions": [
            {"after": ["machine"], "rows": [[0.9, 0.1, 0], [0, 0.8, 0.2], [0, 0, 1]]},
        ],
        "rewards": [
            {"after": ["machine"], "means": [1, 0.8, 0]},
            {"scope": ["repair"], "costs": [0, 0.5], "kind": "cost"},
        ],
    }


def test_effects() -> None:
    """One machine that is repaired at once, and then wears: the table over what repairs leave."""
    document = repairs()
    SCHEMA.validate(document)
    model = loads(json.dumps(document))
    s = model.structure
    assert s.transition_scopes == ((0, 1),)
    new, old, down = [0.9, 0.1, 0], [0, 0.8, 0.2], [0, 0, 1]
    assert model.transitions[0].tolist() == [new, new, old, new, down, new]
    assert model.rewards[0].tolist() == [1, 1, 0.8, 1, 0, 1]
    assert s.alike is not None
    assert s.alike.transitions[0].tolist() == [0, 0, 1, 0, 2, 0]
    assert s.effects is not None
    assert s.effects.rewards == ("after", "cost")
    assert s.effects.components[0].outcome.tolist() == [0, 0, 1, 0, 2, 0]
    assert loads(dumps(model)) == model
    assert '{"when": {"repair": "yes"}, "to": {"machine": "new"}}' in dumps(model)


def test_the_pumps() -> None:
    text = (ROOT / "examples" / "pumps.json").read_text()
    SCHEMA.validate(json.loads(text))
    model = loads(text)
    s = model.structure
    assert s.transition_rows[:6] == (1323,) * 6
    for i in range(6):
        assert len(np.unique(s.transition_classes_of(i))) == 54
        assert len(np.unique(model.transitions[i], axis=0)) == 54
    assert s.n_transition_classes == 54 + 3
    # Pump 3, broken, between a worn one upstream and a new one downstream; crew 2 on it or not.
    state = (0, 1, 2, 0, 0, 0, 1)
    assert model.transition_row(2, state, (0, 3)) == pytest.approx([0.54, 0.2, 0.26])
    assert model.transition_row(2, state, (2, 4)) == pytest.approx([0, 0.07, 0.93])
    assert model.expected_reward(state, (0, 3)) == pytest.approx(4 + 0.8 - (4 * 0.2 + 0.3) - 0.3)
    assert len(s.allowed_actions(state)) == 49 - 6
    again = dumps(model)
    assert loads(again) == model
    assert len(again) < 12_000


FACTOR, WORK = 'transition factor 0 ("left")', 'reward factor 0 ("work")'
RULES, LIKE = ("transitions", 0, "rules"), ("transitions", 1, "like")
TREE, FORBID = ("rewards", 0, "tree"), ("constraints", 0, "forbid")


def put(target: Any, path: Sequence[Any], value: Any) -> None:
    for key in path[:-1]:
        target = target[key]
    if value is ...:
        del target[path[-1]]
    else:
        target[path[-1]] = value


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ((*RULES, 1, "when"), {"fitter": "left", "left": "up"}, ["rule 1", "never fit", "rule 0"]),
        ((*RULES, 2, "when"), {"left": {"not": "up"}}, ["rule 3", "never fit", "earlier rules"]),
        ((*RULES, 3), ..., [FACTOR, "no rule fits row 2 (fitter=off, left=down)", "(and 1 more)"]),
        (RULES, [], [FACTOR, "no rule fits"]),
        ((*RULES, 0, "when"), {"fiter": "left"}, [FACTOR, "rule 0", 'did you mean "fitter"?']),
        ((*RULES, 0, "when"), {"right": "up"}, ["rule 0", "not in the scope (fitter, left)"]),
        ((*RULES, 0, "when"), {"fitter": "lef"}, ["rule 0", '"lef"', 'did you mean "left"?']),
        ((*RULES, 0, "when"), {"fitter": 3}, ["rule 0", '"fitter" is 3', "0..2"]),
        ((*RULES, 0, "when"), {"fitter": []}, ["rule 0", '"fitter" is []', "at least one"]),
        ((*RULES, 0, "when"), {"fitter": {"not": [0, 1, 2]}}, ["rule 0", "at least one"]),
        ((*RULES, 0, "when"), {"fitter": {"but": 0}}, ["rule 0", '"but"']),
        ((*RULES, 0, "when"), {"fitter": True}, ["rule 0", '"fitter" is True']),
        ((*RULES, 0, "when"), [], ["rule 0", '"when" is []']),
        ((*RULES, 0, "when"), 3, ["rule 0", '"when" is 3', "object"]),
        ((*RULES, 0, "row"), ..., ["rule 0", 'must have "row"']),
        ((*RULES, 0, "row"), [1, 0], ["rule 0", '"row" is [1, 0]', "3 numbers"]),
        ((*RULES, 0, "row"), [1, 0, "0"], ["rule 0", '"row", entry 2 is "0"', "number"]),
        ((*RULES, 0, "row"), [1, 0, 1], [FACTOR, "rule 0: sums to 2.0"]),
        ((*RULES, 0, "row"), [2, -1, 0], [FACTOR, "rule 0", "-1.0"]),
        ((*RULES, 0, "lower"), [0, 0, 0], ["rule 0", '"lower" alone']),
        ((*RULES, 0, "alike"), "x", ["rule 0", '"alike" is "x"', "whole number"]),
        ((*RULES, 0), 7, ["rule 0 is 7", "object"]),
        ((*RULES, 0, "wen"), {}, ["rule 0", 'did you mean "when"?']),
        (("transitions", 0, "scope"), ..., [FACTOR, '"scope" is missing']),
        (("transitions", 0, "scope"), ["left", "left"], [FACTOR, '"left"', "twice"]),
        (("transitions", 0, "rows"), [], [FACTOR, '"rows" and "rules"', "one of"]),
        (("transitions", 0, "alike"), [], [FACTOR, '"alike" beside "rules"']),
        (("transitions", 0, "after"), ["left"], [FACTOR, '"after"', '"effects"']),
        (("transitions", 1, "scope"), [], ['1 ("right")', '"scope" beside "like"']),
        ((*LIKE, "factor"), "right", ['1 ("right")', 'is like itself: "right" like "right"']),
        ((*LIKE, "factor"), "lef", ['1 ("right")', 'did you mean "left"?']),
        ((*LIKE, "with"), {"left": "fitter"}, ['1 ("right")', "fitter for two variables"]),
        ((*LIKE, "with"), {"right": "left"}, ['1 ("right")', '"right" is not in the scope']),
        ((*LIKE, "with"), [], ['1 ("right")', '"with" is []', "object"]),
        ((*LIKE, "values"), {"fitter": {"left": "off", "off": "off"}}, ["two values"]),
        ((*LIKE, "values"), {"fitter": {"left": "middle"}}, ['"middle"', '1 ("right")']),
        ((*LIKE, "values"), {"fitter": 1}, ['"values" of "fitter" is 1', "object"]),
        (("states", 1, "values"), ["up", "slow"], ["right for left, which has 3 values"]),
        ((*TREE, "else"), ..., [WORK, "tree: no case for left=slow", '"else"']),
        ((*TREE, "cases", "slow"), 2, [WORK, 'tree: "else" can never fit', "left"]),
        ((*TREE, "cases", "fast"), 2, [WORK, '"fast"']),
        ((*TREE, "on"), "fitter", [WORK, "tree", '"fitter" is not in the scope']),
        ((*TREE, "cases"), [], [WORK, '"cases" is []', "object"]),
        ((*TREE, "cases", "down", "on"), "left", [WORK, "at left=down", "never fit", "above"]),
        ((*TREE, "cases", "down", "else"), "no", [WORK, "tree at left=down, right else", '"no"']),
        ((*TREE, "cases", "up"), {"cost": 1}, [WORK, 'has no "mean"']),
        (TREE, None, [WORK, "tree", "null", "number"]),
        (("rewards", 1, "alike"), [0, 0, 7], ['1 ("wages")', "class", "equal"]),
        (("rewards", 1, "alike"), [0, 7], ['"alike" has 2 numbers; must have 3']),
        (("rewards", 1, "costs", 1), 1e999, ['1 ("wages")', "finite"]),
        (("rewards", 1, "noise"), {"kind": "gaussian", "scale": 1}, ['("wages")', '"range"']),
        (("rewards", 1, "noise"), None, ['("wages"), noise is null', "object"]),
        (("rewards", 1, "kind"), "cost", ['("wages")', '"kind"', '"effects"']),
        ((*FORBID, 0), {"left": "up"}, ['constraint "nothing to mend"', "action variable"]),
        ((*FORBID, 0), {"left": "upp", "fitter": 0}, ["constraint 0", 'did you mean "up"?']),
        ((*FORBID, 0), {"fitter": [0, 1, 2], "left": "up"}, ["no action is allowed", "left=up"]),
        ((*FORBID, 0), 3, ["constraint 0", '"forbid", entry 0 is 3']),
        (("constraints", 0), {"at_most": -1}, ["constraint 0", "-1"]),
        (("constraints", 0), {"at_most": 1, "of": ["left"]}, ["action", "of actions left"]),
        (("constraints", 0), {"at_most": 1, "idle": "lazy"}, ["constraint 0", '"lazy"']),
        (("constraints", 0), {"at_most": 1, "idle": [0, 0]}, ["2 values for 1 variables"]),
        (("constraints", 0), {"budget": 1, "costs": {}}, ['a budget needs "version": 3']),
        (("constraints", 0, "forbids"), [], ['did you mean "forbid"?']),
        (("initial_state",), {"left": "up"}, ["initial state", '"right"']),
        (("initial_state",), {"left": "up", "right": "top"}, ["initial state", '"top"']),
        (("initial_state",), "up", ['"initial_state" is "up"; must be an array']),
        (("effects",), [{"states": ["left"], "actions": [], "outcome": []}], ["effect 0"]),
        (
            ("effects",),
            [{"states": ["fitter"], "actions": ["fitter"], "outcome": []}],
            ["effect 0"],
        ),
        (("effects",), 3, ['"effects" is 3']),
    ],
)
def test_errors_name_the_culprit(path: Sequence[Any], value: Any, words: list[str]) -> None:
    document = machine()
    put(document, path, value)
    with pytest.raises((FileProblem, InvalidModel)) as caught:
        loads(json.dumps(document).replace("Infinity", "1e999"), "f.json")
    message = str(caught.value)
    assert message.startswith("f.json: ")
    assert "\n" not in message
    assert len(message) < 400
    for word in words:
        assert word in message, message


def test_likeness_in_a_circle() -> None:
    document = machine()
    document["transitions"][0] = {"like": {"factor": "right"}}
    with pytest.raises(InvalidModel, match='"left" like "right" like "left"'):
        loads(json.dumps(document))


def test_rules_of_a_kilobyte_for_a_table_of_terabytes() -> None:
    """The tables are refused before they are made; so are conditions that list too much."""
    n = 40
    document = {
        "format": "fmdp-model",
        "version": 2,
        "states": [{"name": f"s{i}", "size": 2} for i in range(n)],
        "actions": [{"name": "a", "size": 2}],
        "transitions": [{"scope": [f"s{i}" for i in range(n)], "rules": [{"row": [0.5, 0.5]}]}]
        + [{"like": {"factor": "s0"}} for _ in range(n - 1)],
    }
    with pytest.raises(FileProblem, match=r"f: the tables of its rules take about .* memory") as e:
        loads(json.dumps(document), "f")
    assert "\n" not in str(e.value)
    document["states"] = [{"name": "s0", "size": 2**21}]
    document["transitions"] = [
        {
            "scope": ["s0"],
            "rules": [{"when": {"s0": {"not": i}}, "row": [1]} for i in range(2000)],
        }
    ]
    with pytest.raises((FileProblem, InvalidModel), match=r"f: .*(list more than|memory)"):
        loads(json.dumps(document), "f")


def test_a_deep_tree_is_read_or_refused_in_one_line() -> None:
    for depth in (50, 20_000):
        document = machine()
        text = '{"on": "left", "cases": {"up": 1}, "else": ' * depth + "0" + "}" * depth
        document["rewards"][0]["tree"] = "TREE"
        with pytest.raises((FileProblem, InvalidModel)) as caught:
            loads(json.dumps(document).replace('"TREE"', text), "f")
        assert str(caught.value).startswith("f: ")


def read_or_refused_in_one_line(text: str) -> bool:
    """Any other exception than ours goes through and fails the test; what is read is in the
    schema."""
    try:
        model = loads(text, "f")
    except FmdpError as error:
        return str(error).startswith("f: ") and "\n" not in str(error)
    SCHEMA.validate(json.loads(text))
    return loads(dumps(model)) == model


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False)
    | st.text(max_size=3) | st.sampled_from(["left", "right", "fitter", "up", "off", "work"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["left", "fitter", "not", "on", "cases", "row"]), inner),
    max_leaves=5,
)  # fmt: skip
PLACES = [
    RULES, (*RULES, 0), (*RULES, 0, "when"), (*RULES, 0, "when", "fitter"), (*RULES, 0, "row"),
    (*RULES, 0, "lower"), (*RULES, 0, "alike"), ("transitions", 0, "scope"), LIKE,
    (*LIKE, "factor"), (*LIKE, "with"), (*LIKE, "with", "left"), (*LIKE, "values"),
    (*LIKE, "values", "fitter"), TREE, (*TREE, "on"), (*TREE, "cases"), (*TREE, "cases", "up"),
    (*TREE, "else"), ("constraints",), ("constraints", 0), FORBID, (*FORBID, 0),
    ("constraints", 0, "at_most"), ("constraints", 0, "scope"), ("effects",), ("initial_state",),
    ("rewards", 1, "costs"), ("rewards", 1, "alike"), ("rewards", 1, "range"),
    ("rewards", 1, "noise"), ("rewards", 1, "kind"), ("rewards", 1, "lower"), ("groups",),
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PLACES), JSON)
def test_any_json_in_any_place_is_read_or_refused_in_one_line(
    place: tuple[Any, ...], value: Any
) -> None:
    document = machine()
    put(document, place, value)
    assert read_or_refused_in_one_line(json.dumps(document).replace("Infinity", "1e999"))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_whatever_is_cut_or_replaced_the_error_is_ours(data: st.DataObject) -> None:
    text = json.dumps(machine())
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 40)))
    scraps = ["", "0", "-1", '"x"', "null", "[]", "{}", "[[]]", "1e400", "true", ",", '"left"']
    assert read_or_refused_in_one_line(
        text[:start] + data.draw(st.sampled_from(scraps)) + text[stop:]
    )
