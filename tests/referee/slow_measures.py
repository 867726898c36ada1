"""What `measure` prints about slow models, against exact arithmetic over all policies.

The models have a few states that are left once in 10^3 to 10^18 steps, rewards that differ by as
little as 1e-13, ties, several recurrent classes, periodic chains and single states.  Truth is
brute force in fractions: the bias of every deterministic policy that is optimal, the powers of the
chain for the mixing time, and `truth.diameter`.
"""

from __future__ import annotations

import itertools
import math
import traceback
import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from fmdp.measures import measure, mixing_time
from referee import recipes, truth
from referee.ledger import Ledger
from referee.recipes import Recipe
from referee.truth import Flat, Row

SHORT, FULL = 60, 1000
"""Number of models of the two forms."""
PARTS = 8
"""Parts of the game that can be played side by side."""
CLOSE = Fraction(1, 10**6)
"""Relative error that is allowed where a number is printed without bounds."""

Spans = list[Fraction]


def models(short: bool) -> list[Recipe]:
    """Return the generated models, the same ones each time."""
    number = SHORT if short else FULL
    return [_factored(seed) if seed % 4 == 3 else _flat(seed) for seed in range(number)]


def _slow_row(draw: np.random.Generator, n: int) -> np.ndarray:
    """Return a deterministic row, a row that hardly ever leaves, or one with halves."""
    row = np.zeros(n)
    kind = draw.choice(["sure", "slow", "slow", "halves"])
    first, second = draw.integers(n, size=2)
    if kind == "sure" or first == second:
        row[first] = 1.0
    elif kind == "halves":
        row[first] = row[second] = 0.5
    else:
        leak = float(draw.choice([1, 3, 7])) * 10.0 ** -float(draw.integers(3, 19))
        row[first], row[second] = 1.0 - leak, leak
    return row


def _rewards(draw: np.random.Generator, size: int) -> np.ndarray:
    """Return rewards, some of them all but equal."""
    if draw.random() < 0.1:
        return np.full(size, 0.6)
    means = draw.choice([0.0, 0.5, 1.0], size=size)
    near = draw.random(size) < 0.3
    return np.where(near, 1.0 - 10.0 ** -draw.integers(6, 14, size=size).astype(float), means)


def _flat(seed: int) -> Recipe:
    draw = np.random.default_rng([22, seed])
    n, actions = int(draw.integers(1, 5)), int(draw.integers(1, 4))
    moves = np.array([[_slow_row(draw, n) for _ in range(actions)] for _ in range(n)])
    means = _rewards(draw, n * actions).reshape(n, actions)
    return recipes.flat(f"slow {seed}", "slow", moves, means, ranges=(0.0, 1.0))


def _factored(seed: int) -> Recipe:
    """Two variables of two values; the second looks at the first, the action at both."""
    draw = np.random.default_rng([23, seed])
    first = np.array([_slow_row(draw, 2) for _ in range(4)])
    second = np.array([_slow_row(draw, 2) for _ in range(8)])
    return Recipe(
        f"slow factored {seed}",
        "slow",
        (2, 2),
        (2,),
        (((0, 2), first), ((0, 1, 2), second)),
        (((0, 2), _rewards(draw, 4)), ((1,), _rewards(draw, 2))),
        ((0.0, 1.0), (0.0, 1.0)),
        (0, 0),
    )


# ---- truth --------------------------------------------------------------------------------------


def bias_of(flat: Flat, policy: Sequence[int]) -> list[Fraction]:
    """Return the solution of h = R - g + P h with P* h = 0."""
    rows = [flat.rows[s][a] for s, a in enumerate(policy)]
    anchored = truth.policy_value(flat, policy).bias
    constants = [Fraction(0)] * len(rows)
    settled: set[int] = set()
    for members in truth.recurrent(rows):
        law = truth.stationary(rows, members)
        mean = sum((p * anchored[s] for p, s in zip(law, members, strict=True)), Fraction(0))
        for s in members:
            constants[s] = mean
        settled.update(members)
    others = [s for s in range(len(rows)) if s not in settled]
    if others:
        right = [
            [sum(p * constants[t] for t, p in rows[s].items() if t in settled)] for s in others
        ]
        system = [[(s == t) - rows[s].get(t, Fraction(0)) for t in others] for s in others]
        for s, (mean,) in zip(others, truth.solve(system, right), strict=True):
            constants[s] = mean
    return [h - constant for h, constant in zip(anchored, constants, strict=True)]


def spans_of(bias: Sequence[Fraction], sizes: Sequence[int]) -> Spans:
    """Return the span, then the factored spans."""
    states = truth.assignments(sizes)
    found = [max(bias) - min(bias)]
    for i in range(len(sizes)):
        lines: dict[tuple[int, ...], list[Fraction]] = {}
        for state, h in zip(states, bias, strict=True):
            lines.setdefault(state[:i] + state[i + 1 :], []).append(h)
        found.append(max(max(line) - min(line) for line in lines.values()))
    return found


def largest_spans(flat: Flat, best: truth.Best, sizes: Sequence[int]) -> Spans:
    """Try every deterministic policy that has the best gain from every state."""
    found = [Fraction(0)] * (1 + len(sizes))
    # One of the actions of a state that do the same.
    actions = [
        [
            a
            for a, row in enumerate(rows)
            if (row, pays[a]) not in list(zip(rows[:a], pays, strict=False))
        ]
        for rows, pays in zip(flat.rows, flat.pays, strict=True)
    ]
    for policy in itertools.product(*actions):
        if truth.policy_value(flat, policy).gain == best.gain:
            own = spans_of(bias_of(flat, policy), sizes)
            found = [max(pair) for pair in zip(found, own, strict=True)]
    return found


def unique_bias(flat: Flat, best: truth.Best) -> bool:
    """Whether the optimality equation has one solution up to a constant.

    It has where the pairs without a gap have a single maximal end component.
    """
    n, g, h = flat.n_states, best.gain[0], best.bias
    free = [
        [
            row
            for row, pay in zip(rows, pays, strict=True)
            if g + h[s] == pay + sum(p * h[t] for t, p in row.items())
        ]
        for s, (rows, pays) in enumerate(zip(flat.rows, flat.pays, strict=True))
    ]
    while True:
        union: list[Row] = [{t: Fraction(1) for row in rows for t in row} for rows in free]
        reach = truth.reachable(union)
        label = [min(t for t in reach[s] if s in reach[t]) for s in range(n)]
        kept = [
            [row for row in rows if all(label[t] == label[s] for t in row)]
            for s, rows in enumerate(free)
        ]
        if kept == free:
            return len({label[s] for s in range(n) if free[s]}) == 1
        free = kept


def distance(power: list[list[Fraction]], law: list[Fraction]) -> Fraction:
    return max(sum(abs(p - q) for p, q in zip(row, law, strict=True)) for row in power) / 2


def mixes_at(rows: Sequence[Row], steps: int, digits: int = 60) -> bool | None:
    """Whether the distance to the stationary law is at most 1/4 after so many steps.

    Powers are rounded to a number of digits; None where the distance is all but 1/4.
    """
    (members,) = truth.recurrent(rows)
    law = [Fraction(0)] * len(rows)
    for s, p in zip(members, truth.stationary(rows, members), strict=True):
        law[s] = p
    n, unit = len(rows), 10**digits

    def product(left: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
        exact = [
            [sum(left[i][k] * right[k][j] for k in range(n)) for j in range(n)] for i in range(n)
        ]
        return [[Fraction(round(x * unit), unit) for x in row] for row in exact]

    power = [[Fraction(int(i == j)) for j in range(n)] for i in range(n)]
    base = [[row.get(t, Fraction(0)) for t in range(n)] for row in rows]
    left = steps
    while left:
        if left & 1:
            power = product(power, base)
        base, left = product(base, base), left >> 1
    far = distance(power, law)
    # Distances within 1e-11 of 1/4 are 1/4, as the documentation says.
    error = Fraction(4 * n * n * max(1, steps), unit) + Fraction(1, 10**11)
    return None if abs(far - Fraction(1, 4)) <= error else far <= Fraction(1, 4)


# ---- claims -------------------------------------------------------------------------------------


def judge(ledger: Ledger, recipe: Recipe, found: Any) -> None:
    """Hold the measures of a model against the truth."""
    flat = truth.flatten(recipe)
    best = truth.best(flat)
    if best.one_gain:
        _judge_largest(ledger, recipe, flat, best, found)
        _judge_spans(ledger, recipe, flat, best, found)
    else:
        ledger.judge(
            "slow models: no largest span where the gain depends on the state",
            recipe,
            found.largest_span is None,
            math.inf,
            f"printed {found.largest_span!r}",
        )
    _judge_diameter(ledger, recipe, flat, found)


def _judge_largest(
    ledger: Ledger, recipe: Recipe, flat: Flat, best: truth.Best, found: Any
) -> None:
    true = largest_spans(flat, best, recipe.state_sizes)
    ledger.judge(
        "slow models: the largest span has bounds",
        recipe,
        found.largest_span_bounds is not None,
        math.inf,
        "none",
    )
    if found.largest_span_bounds is None:
        return
    bounds = [found.largest_span_bounds, *found.largest_factored_spans_bounds]
    values = [found.largest_span, *found.largest_factored_spans]
    for (lower, upper), value, wanted in zip(bounds, values, true, strict=True):
        detail = f"printed {value!r} in {lower!r} to {upper!r}, true {float(wanted)!r}"
        off = max(Fraction(lower) - wanted, wanted - Fraction(min(upper, 1e300)), Fraction(0))
        claim = "slow models: bounds of the largest spans hold"
        ledger.judge(claim, recipe, off == 0, float(off), detail)
        if value is not None:
            off = abs(Fraction(value) - wanted)
            close = off <= true[0] / 10**9
            ledger.judge("slow models: largest spans", recipe, close, float(off), detail)
        known = "slow models: the largest spans of small models are known"
        ledger.judge(known, recipe, value is not None, math.inf, detail)


def _judge_spans(ledger: Ledger, recipe: Recipe, flat: Flat, best: truth.Best, found: Any) -> None:
    if found.span is None or not unique_bias(flat, best):
        return
    true = spans_of(best.bias, recipe.state_sizes)
    for value, wanted in zip([found.span, *found.factored_spans], true, strict=True):
        off = abs(Fraction(value) - wanted)
        ledger.judge(
            "slow models: spans where the bias is unique",
            recipe,
            off <= CLOSE * (true[0] + Fraction(recipe.unit)),
            float(off),
            f"printed {value!r}, true {float(wanted)!r}, status {found.status}",
        )


def judge_mixing(
    ledger: Ledger, recipe: Recipe, policy: Sequence[int], steps: float | None
) -> None:
    """Hold the mixing time of a policy against powers of its chain."""
    if steps is None:
        return
    flat = truth.flatten(recipe)
    rows = [flat.rows[s][a] for s, a in enumerate(policy)]
    classes = truth.recurrent(rows)
    endless = len(classes) > 1 or _period(rows, classes[0]) > 1
    claim = "slow models: mixing time"
    if endless or math.isinf(steps):
        ledger.judge(claim, recipe, endless == math.isinf(steps), math.inf, f"printed {steps!r}")
        return
    after, before = mixes_at(rows, int(steps)), steps > 0 and mixes_at(rows, int(steps) - 1)
    holds = after is not False and before is not True
    ledger.judge(claim, recipe, holds, math.inf, f"printed {steps!r}: {before}, then {after}")


def _period(rows: Sequence[Row], members: Sequence[int]) -> int:
    level = {members[0]: 0}
    edge, found = [members[0]], 0
    while edge:
        s = edge.pop()
        for t in rows[s]:
            if t in level:
                found = math.gcd(found, level[s] + 1 - level[t])
            else:
                level[t] = level[s] + 1
                edge.append(t)
    return found


def _judge_diameter(ledger: Ledger, recipe: Recipe, flat: Flat, found: Any) -> None:
    if found.diameter_bounds is None or flat.n_states == 1:
        return
    true = truth.diameter(flat)
    lower, upper = found.diameter_bounds
    detail = f"printed {lower!r} to {upper!r}, true {float(true)!r}"
    if true.is_infinite() or math.isinf(upper):
        holds = true.is_infinite() == math.isinf(upper)
        ledger.judge("slow models: infinite diameter", recipe, holds, math.inf, detail)
        return
    exact = Fraction(true)
    off = max(Fraction(lower) - exact, exact - Fraction(upper), Fraction(0))
    slack = exact / 10**100  # of the decimals of the truth
    claim = "slow models: bounds of the diameter hold"
    ledger.judge(claim, recipe, off <= slack, float(off), detail)


# ---- the game -----------------------------------------------------------------------------------


def pieces(short: bool) -> int:
    """Return the number of pieces that the models are dealt out in."""
    return PARTS


def play_part(part: int, short: bool) -> Ledger:
    """Measure every PARTS-th model; an exception or a warning is a disagreement too."""
    ledger = Ledger()
    for number, recipe in list(enumerate(models(short)))[part::PARTS]:
        claim = "slow models: no exception and no warning"
        draw = np.random.default_rng(number)
        policy = draw.integers(recipe.n_actions, size=recipe.n_states)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                model = recipe.build()
                found, steps = measure(model), mixing_time(model, policy)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
            detail = f"{type(error).__name__} in {where}: {error}"
            ledger.judge(claim, recipe, False, math.inf, detail)
        else:
            ledger.judge(claim, recipe, True)
            judge(ledger, recipe, found)
            judge_mixing(ledger, recipe, policy.tolist(), steps)
    return ledger


def play(short: bool) -> Ledger:
    """Measure all models, one after the other."""
    ledger = Ledger()
    for part in range(PARTS):
        ledger.add(play_part(part, short))
    return ledger
