"""Explanations of saved policies against exact arithmetic, above all on chains where linear solves
fail: several recurrent classes, and classes that are left once in up to 1e14 steps.

The values of a state are true differences of the policy's bias. They exist where every action
leads, under the policy, to one and the same recurrent class. There they must be given, within their
own error bounds and right in every digit that is printed; elsewhere they must be refused.
"""

from __future__ import annotations

import contextlib
import decimal
import io
import json
import math
import tempfile
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import fmdp
from fmdp._base.numerals import rounded_number
from fmdp.cli import main
from fmdp.errors import InvalidParameter
from fmdp.planning.explain.explain import explain_policy
from referee import recipes, truth
from referee.claims import INFINITE, Case
from referee.ledger import Ledger
from referee.recipes import Recipe

DIGITS = 7
"""Digits of a value that is printed."""
Explain = Callable[[Case, Sequence[int], int], Any]
"""Returns the explanation of a policy in a state, by its index, or None where it is refused."""


def several_classes(seed: int) -> Recipe:
    """Up to four closed classes and some transient states, in random order."""
    draw = np.random.default_rng((seed, 1))
    sizes = draw.integers(1, 4, size=draw.integers(2, 5))
    block = np.repeat(np.arange(len(sizes)), sizes)
    transient = int(draw.integers(0, 4))
    n = len(block) + transient
    order = draw.permutation(n)
    moves, pays = np.zeros((n, 2, n)), draw.uniform(0.0, 1.0, (n, 2))
    for s in range(n):
        for a in range(2):
            inside = s < len(block) and (a == 0 or draw.random() < 0.6)
            places = np.flatnonzero(block == block[s]) if inside else np.arange(n)
            moves[order[s], a, order[places]] = draw.dirichlet(np.ones(len(places)))
    return recipes.flat(f"several classes seed {seed}", "several classes", moves, pays)


def slow(seed: int) -> Recipe:
    """Rooms of one to three states between which only tiny leaks lead, in a cycle."""
    draw = np.random.default_rng((seed, 2))
    sizes = draw.integers(1, 4, size=draw.integers(2, 4))
    room = np.repeat(np.arange(len(sizes)), sizes)
    n = len(room)
    same_pay = draw.random() < 0.3
    moves, pays = np.zeros((n, 2, n)), draw.uniform(0.0, 1.0, (n, 2))
    if same_pay:
        pays[:, 0] = 0.4
    for s in range(n):
        home = np.flatnonzero(room == room[s])
        away = np.flatnonzero(room == (room[s] + 1) % len(sizes))
        leak = 10.0 ** -draw.uniform(6.0, 14.0)
        moves[s, 0, home] = draw.dirichlet(np.ones(len(home))) * (1.0 - leak)
        moves[s, 0, away[0]] += leak
        moves[s, 1] = draw.dirichlet(np.ones(n))
    return recipes.flat(f"slow rooms seed {seed}", "slow", moves, pays)


def asked(case: Case, actions: Sequence[int], place: int) -> fmdp.Explanation | None:
    """Explain a policy as a program would."""
    try:
        return explain_policy(case.model, _policy(case, actions), _state(case, place))
    except InvalidParameter:
        return None


def asked_by_file(case: Case, actions: Sequence[int], place: int) -> dict[str, Any]:
    """Save model and policy and return what `fmdp act --json` prints."""
    names = case.model.structure.name_state(_state(case, place))
    with tempfile.TemporaryDirectory() as folder, io.StringIO() as out:
        model, policy = Path(folder) / "model.json", Path(folder) / "policy.npz"
        fmdp.save(case.model, model)
        _policy(case, actions).save(policy)
        with contextlib.redirect_stdout(out):
            status = main(["act", str(model), str(policy), "--state", json.dumps(names), "--json"])
        assert status == 0
        answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def _policy(case: Case, actions: Sequence[int]) -> fmdp.TablePolicy:
    recipe = case.recipe
    return fmdp.TablePolicy(recipe.state_sizes, recipe.action_sizes, np.array(actions))


def _state(case: Case, place: int) -> tuple[int, ...]:
    return truth.assignments(case.recipe.state_sizes)[place]


def true_values(case: Case, actions: Sequence[int], place: int) -> list[Any] | None:
    """Return the value of every action, exactly; None where they are not defined."""
    recipe, flat = case.recipe, case.flat
    rows = [flat.rows[s][int(a)] for s, a in enumerate(actions)]
    reach = truth.reachable(rows)
    state = _state(case, place)
    may = [
        a
        for a, action in enumerate(truth.assignments(recipe.action_sizes))
        if a == actions[place] or recipe.allows(state, action)
    ]
    after = {place}.union(*(flat.rows[place][a] for a in may))
    classes = truth.recurrent(rows)
    ends = {
        number for number, members in enumerate(classes) for s in after if members[0] in reach[s]
    }
    if len(ends) > 1:
        return None
    h = case.value_of(actions).bias
    with decimal.localcontext(prec=truth.DIGITS):
        return [
            pay + sum(p * (h[t] - h[place]) for t, p in row.items())
            for pay, row in zip(flat.pays[place], flat.rows[place], strict=True)
        ]


def judge_explanation(
    ledger: Ledger, case: Case, actions: Sequence[int], place: int, explain: Explain = asked
) -> None:
    """Compare one explanation with the truth."""
    true, said = true_values(case, actions, place), explain(case, actions, place)
    where = f"state {place} of policy {list(map(int, actions))}"
    ledger.judge(
        "explanation: refused where values are not defined",
        case.recipe,
        (true is not None) or (said is None),
        INFINITE,
        f"{where} is answered",
    )
    ledger.judge(
        "explanation: given where values are defined",
        case.recipe,
        (true is None) or (said is not None),
        INFINITE,
        f"{where} is refused",
    )
    if true is None or said is None:
        return
    kind = Fraction if case.flat.exact else Decimal
    exactly = {}
    with decimal.localcontext(prec=truth.DIGITS):
        for one in said.values:
            index = truth.assignments(case.recipe.action_sizes).index(
                case.model.structure.check_action(one.action)
            )
            exactly[index] = (one, true[index])
        best = max(value for _, value in exactly.values())
        for one, value in exactly.values():
            # In decimals the truth itself ends after a hundred digits.
            off = float(abs(kind(one.value) - value))
            ledger.judge(
                "explanation: value within its error bound",
                case.recipe,
                off <= one.error,
                off / case.unit,
                f"{where}: {one.value!r} with error {one.error!r}, true {float(value)!r}",
            )
            printed = rounded_number(one.value, one.error)
            wrong = float(abs(kind(printed) - value))
            size = math.floor(math.log10(abs(float(value)))) if value else -300
            last = math.ceil(math.log10(20.0 * one.error)) if one.error else -300
            unit = 10.0 ** max(size - DIGITS + 1, last)
            ledger.judge(
                "explanation: every printed digit of a value",
                case.recipe,
                wrong <= 0.6 * unit,
                wrong / case.unit,
                f"{where}: printed {printed}, true {float(value)!r}",
            )
            gap_off = float(abs(kind(one.gap) - (best - value)))
            room = one.error + said.values[0].error + 2.0**-51 * abs(float(best - value))
            ledger.judge(
                "explanation: gap",
                case.recipe,
                gap_off <= room,
                gap_off / case.unit,
                f"{where}: {one.gap!r}, true {float(best - value)!r}",
            )


def judge_saved(ledger: Ledger, case: Case, actions: Sequence[int], place: int) -> None:
    """Compare what `fmdp act` prints of saved files with the explanation in the program."""
    said, answer = asked(case, actions, place), asked_by_file(case, actions, place)
    expected = None
    if said is not None:
        # The command prints values of variables as texts.
        expected = [
            [{name: str(value) for name, value in one.action.items()}, one.value, one.gap]
            for one in said.values
        ]
    same = answer["values"] == expected and (answer["reason"] is None) == (said is not None)
    ledger.judge(
        "explanation: `fmdp act` of saved files gives the same",
        case.recipe,
        same,
        INFINITE,
        f"state {place}: {answer['values']} and {expected}",
    )


def explanations(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    """The round: a random policy of the model, and chains that are hard to explain."""
    recipe, draw = case.recipe, np.random.default_rng(turn)
    actions = draw.integers(recipe.n_actions, size=recipe.n_states)
    for s, state in enumerate(truth.assignments(recipe.state_sizes)):
        allowed = [
            a
            for a, action in enumerate(truth.assignments(recipe.action_sizes))
            if recipe.allows(state, action)
        ]
        if actions[s] not in allowed:
            actions[s] = allowed[0]
    states = draw.permutation(recipe.n_states)[: 2 if short else 4]
    for place in states.tolist():
        judge_explanation(ledger, case, actions.tolist(), place)
    for number in range(1 if short else 2):
        for made in (several_classes, slow):
            hard = Case(made(2 * turn + number))
            always_first = [0] * hard.recipe.n_states
            for place in range(hard.recipe.n_states):
                judge_explanation(ledger, hard, always_first, place)
            if number == 0:
                judge_saved(ledger, hard, always_first, 0)
