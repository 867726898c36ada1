"""Values as values: every entry point is asked by value, and an oracle of its own knows which.

The values of every variable are numbers in an order in which no value stands at the position that
it names, so that whoever takes a value for a position, or a position for a value, is caught.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fmdp
from fmdp.model.naming import listed_values
from referee import claims, truth
from referee.claims import Case
from referee.ledger import Ledger
from referee.recipes import Recipe

Lists = tuple[tuple[Any, ...], ...]

MOST_STATES = 64
"""Every state is asked several times: larger models take too long and show nothing more."""


def lists_for(recipe: Recipe, turn: int) -> Lists:
    """Return a list of values for every variable: shifted integers, negative ones, fractions, texts
    of numbers, or numbers and a word."""
    lists = []
    for v, size in enumerate(recipe.state_sizes + recipe.action_sizes):
        shifted = [(place + 1) % size if size > 1 else 5 for place in range(size)]
        kind = (turn + v) % 5
        if kind == 1:
            lists.append(tuple(-value for value in shifted))
        elif kind == 2:
            lists.append(tuple(1.5 * value for value in shifted))
        elif kind == 3:
            lists.append(tuple(map(str, shifted)))
        elif kind == 4:
            lists.append(("off", *range(size - 1)))
        else:
            lists.append(tuple(shifted))
    return tuple(lists)


def names_of(recipe: Recipe) -> tuple[str, ...]:
    states = (f"x{i}" for i in range(len(recipe.state_sizes)))
    return (*states, *(f"do{i}" for i in range(len(recipe.action_sizes))))


def by_value(names: Sequence[str], lists: Lists, places: Sequence[int]) -> dict[str, Any]:
    """Return an assignment by its values."""
    return {name: values[place] for name, values, place in zip(names, lists, places, strict=True)}


def places_of(names: Sequence[str], lists: Lists, given: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the positions of an assignment by its values: equal ones of the same kind of value."""
    found = []
    for name, values in zip(names, lists, strict=True):
        same = [
            place
            for place, value in enumerate(values)
            if value == given[name] and isinstance(value, str) == isinstance(given[name], str)
        ]
        found.append(same[0] if same else -1)
    return tuple(found)


def build(recipe: Recipe, lists: Lists) -> fmdp.FactoredMDP:
    """Make the model by functions that look values up in the recipe, with rules by value."""
    names = names_of(recipe)
    m = len(recipe.state_sizes)
    sizes = recipe.state_sizes + recipe.action_sizes

    def row(scope: Sequence[int], values: Mapping[str, Any]) -> int:
        index = 0
        for v in scope:
            place = places_of(names[v : v + 1], lists[v : v + 1], values)[0]
            assert place >= 0, f"{names[v]} is {values[names[v]]!r}, which is no value"
            index = index * sizes[v] + place
        return index

    def law(name: str, values: Mapping[str, Any]) -> dict[Any, float]:
        i = names.index(name)
        scope, table = recipe.transitions[i]
        return dict(zip(lists[i], table[row(scope, values)].tolist(), strict=True))

    rewards = [
        (
            f"r{k}",
            [names[v] for v in scope],
            lambda values, scope=scope, table=table: float(table[row(scope, values)]),
        )
        for k, (scope, table) in enumerate(recipe.rewards)
    ]
    rules = [
        by_value([names[v] for v in scope], tuple(lists[v] for v in scope), places)
        for scope, table in recipe.forbidden
        for places, forbidden in zip(
            truth.assignments([sizes[v] for v in scope]), table.tolist(), strict=True
        )
        if forbidden
    ]
    return fmdp.FactoredMDP.from_functions(
        dict(zip(names[:m], lists[:m], strict=True)),
        dict(zip(names[m:], lists[m:], strict=True)),
        {names[i]: [names[v] for v in scope] for i, (scope, _) in enumerate(recipe.transitions)},
        law,
        rewards,
        reward_ranges={f"r{k}": bounds for k, bounds in enumerate(recipe.ranges)},
        forbid=rules,
        initial_state=by_value(names[:m], lists[:m], recipe.start),
        name=recipe.name,
    )


def judge_answers(
    ledger: Ledger,
    case: Case,
    lists: Lists,
    actions: Sequence[int],
    answer: Callable[[Any], Any],
    who: str,
) -> None:
    """What is asked by value in every state is answered by the value of the right action."""
    recipe = case.recipe
    m, names = len(recipe.state_sizes), names_of(recipe)
    wrong = []
    joint = truth.assignments(recipe.action_sizes)
    for s, state in enumerate(truth.assignments(recipe.state_sizes)):
        asked = by_value(names[:m], lists[:m], state)
        said = answer(asked)
        right = by_value(names[m:], lists[m:], joint[actions[s]])
        if said != right or [*map(type, said.values())] != [*map(type, right.values())]:
            wrong.append(f"{asked} is answered {said}, and not {right}")
    detail = "; ".join(wrong[:2])
    ledger.judge(f"values: {who} by value", recipe, not wrong, claims.INFINITE, detail)


def values_as_values(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    """Policies, rules, constraints, learners, environments and files, all asked by value."""
    recipe = case.recipe
    if recipe.n_states > MOST_STATES:
        return
    lists = lists_for(recipe, turn)
    m, names = len(recipe.state_sizes), names_of(recipe)
    model = build(recipe, lists)
    states = truth.assignments(recipe.state_sizes)
    joint = truth.assignments(recipe.action_sizes)
    may = [[recipe.allows(state, action) for action in joint] for state in states]
    draw = np.random.default_rng(turn)
    actions = [int(draw.choice(np.flatnonzero(own))) for own in may]
    known = [[model.structure.allowed(state, action) for action in joint] for state in states]
    ledger.judge("values: constraints by value", recipe, known == may, claims.INFINITE, "differ")

    policy = fmdp.TablePolicy(
        recipe.state_sizes, recipe.action_sizes, np.array(actions), model.structure.naming
    )
    judge_answers(ledger, case, lists, actions, policy, "a policy")
    judge_answers(ledger, case, lists, actions, lambda asked: policy(json.dumps(asked)), "JSON")
    with tempfile.TemporaryDirectory() as folder:
        policy.save(Path(folder) / "p.npz")
        loaded: Any = fmdp.load_policy(Path(folder) / "p.npz")
        judge_answers(ledger, case, lists, actions, loaded, "a saved policy")
        fmdp.save(model, Path(folder) / "m.json")
        again = fmdp.load(Path(folder) / "m.json")
    kept = [tuple(listed_values(own)) for own in again.structure.values] == [*lists]
    ledger.judge(
        "values: a model file gives the values and the model back",
        recipe,
        kept and again == model,
        claims.INFINITE,
        "differ",
    )

    @fmdp.named
    def rule(state: Any) -> Any:
        place = states.index(places_of(names[:m], lists[:m], state))
        return by_value(names[m:], lists[m:], joint[actions[place]])

    claims.judge_evaluation(ledger, case, actions, fmdp.evaluate(model, rule))

    told, counted = (
        fmdp.PSRL().start(model.structure, np.random.default_rng(turn)) for _ in range(2)
    )
    paid = [0.5 * (lo + hi) for lo, hi in recipe.ranges]
    for s, state in enumerate(states[:20]):
        after = states[(s * 7 + turn) % len(states)]
        done = joint[actions[s]]
        told.observe(
            by_value(names[:m], lists[:m], state),
            by_value(names[m:], lists[m:], done),
            paid,
            by_value(names[:m], lists[:m], after),
        )
        counted.observe(state, done, paid, after)
    same = all(
        np.array_equal(one, other)
        for one, other in zip(told.statistics.counts, counted.statistics.counts, strict=True)
    )
    ledger.judge("values: observations by value", recipe, same, claims.INFINITE, "counts differ")

    first, second = (fmdp.Environment(model, np.random.default_rng(turn)) for _ in range(2))
    lived = []
    for _ in range(20):
        done = joint[actions[states.index(first.state)]]
        lived.append(first.step(done) == second.step(by_value(names[m:], lists[m:], done)))
    ledger.judge("values: steps by value", recipe, all(lived), claims.INFINITE, "differ")
