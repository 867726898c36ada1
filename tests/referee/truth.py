"""What is true of a small model, in exact arithmetic: gains of policies, best gains, biases.

A model becomes a list of rows P(. | s, a) and rewards R(s, a) of rational numbers: every double of
the tables is taken as the fraction that it is, and a row is divided by its exact sum. Up to a few
states everything is computed in fractions; beyond, in decimals of 110 digits, of which no system
here loses more than a few dozen.

Gain of a policy: the recurrent classes of its support; in each the stationary law by elimination
of states without subtraction (Grassmann, Taksar and Heyman 1985); elsewhere absorption. Best gain:
multichain policy iteration (Puterman 1994, section 9.2). It ends in (g, h) with

    g = max_a P_a g    and    g + h >= R_a + P_a h  for every a that attains the first,

with equality for the policy, compared exactly, which proves that g is the best gain of each state.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from referee.recipes import Recipe

Number = Any
"""A Fraction or a Decimal: the arithmetic below is written once for both."""
Row = dict[int, Number]

FRACTIONS_UP_TO = 12
"""States up to which fractions are used: their digits grow with every elimination."""
DIGITS = 110
_NEARLY = Decimal(10) ** -50
"""Decimals this near, relative to the size of what is compared, are the same number."""


@dataclass(frozen=True)
class Flat:
    """rows[s][a] = {s': P(s' | s, a)}, pays[s][a] = R(s, a)."""

    rows: list[list[Row]]
    pays: list[list[Number]]
    start: int
    exact: bool

    @property
    def n_states(self) -> int:
        return len(self.rows)

    @property
    def n_actions(self) -> int:
        return len(self.rows[0])

    @cached_property
    def matrices(self) -> NDArray[np.float64]:
        """[A, S, S], rounded."""
        found = np.zeros((self.n_actions, self.n_states, self.n_states))
        for s, actions in enumerate(self.rows):
            for a, row in enumerate(actions):
                for t, p in row.items():
                    found[a, s, t] = float(p)
        return found

    @cached_property
    def rewards(self) -> NDArray[np.float64]:
        """[A, S], rounded."""
        return np.array([[float(pay) for pay in pays] for pays in self.pays]).T

    def same(self, one: Number, other: Number, size: Number | float) -> bool:
        """Whether two numbers that were made of numbers of this size are one."""
        return one == other if self.exact else abs(one - other) <= _NEARLY * Decimal(size)

    def above(self, one: Number, other: Number, size: Number) -> bool:
        return one > other and not self.same(one, other, size)


def assignments(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """All of them, the last variable fastest."""
    found: list[tuple[int, ...]] = [()]
    for size in sizes:
        found = [(*values, v) for values in found for v in range(size)]
    return found


def flatten(recipe: Recipe) -> Flat:
    """P(s' | s, a) = product of the factors, R(s, a) = their sum, of exact numbers."""
    exact = recipe.n_states <= FRACTIONS_UP_TO
    sizes = recipe.state_sizes + recipe.action_sizes

    def number(value: float) -> Number:
        return Fraction(value) if exact else Decimal(value)

    def place(scope: Sequence[int], joint: Sequence[int]) -> int:
        index = 0
        for v in scope:
            index = index * sizes[v] + joint[v]
        return index

    with decimal.localcontext(prec=DIGITS):
        tables: list[list[list[tuple[int, Number]]]] = []
        for _, table in recipe.transitions:
            normal: list[list[tuple[int, Number]]] = []
            for given in table:
                values = [number(float(p)) for p in given]
                total = sum(values)
                normal.append([(v, p / total) for v, p in enumerate(values) if p])
            tables.append(normal)
        means = [[number(float(mean)) for mean in table] for _, table in recipe.rewards]
        states, actions = assignments(recipe.state_sizes), assignments(recipe.action_sizes)
        rows: list[list[Row]] = []
        pays: list[list[Number]] = []
        for state in states:
            of_state: list[Row] = []
            paid: list[Number] = []
            for action in actions:
                joint = state + action
                row: Row = {0: number(1.0)}
                for (scope, _), normal, size in zip(
                    recipe.transitions, tables, recipe.state_sizes, strict=True
                ):
                    factor = normal[place(scope, joint)]
                    row = {t * size + v: p * q for t, p in row.items() for v, q in factor}
                of_state.append(row)
                paid.append(
                    sum(
                        table[place(scope, joint)]
                        for (scope, _), table in zip(recipe.rewards, means, strict=True)
                    )
                )
            # What may not be done is written as the first that may: the best of both is the same.
            may = [recipe.allows(state, action) for action in actions]
            first = may.index(True)
            rows.append(
                [row if ok else of_state[first] for row, ok in zip(of_state, may, strict=True)]
            )
            pays.append([pay if ok else paid[first] for pay, ok in zip(paid, may, strict=True)])
    return Flat(rows, pays, states.index(recipe.start), exact)


def reachable(rows: Sequence[Row]) -> list[set[int]]:
    """What each state of a chain reaches, itself included."""
    found = []
    for s in range(len(rows)):
        seen, edge = {s}, [s]
        while edge:
            for t in rows[edge.pop()]:
                if t not in seen:
                    seen.add(t)
                    edge.append(t)
        found.append(seen)
    return found


def recurrent(rows: Sequence[Row]) -> list[list[int]]:
    """The closed classes: states that everything they reach comes back to."""
    reach = reachable(rows)
    classes: list[list[int]] = []
    for s, seen in enumerate(reach):
        if all(s in reach[t] for t in seen) and s == min(seen):
            classes.append(sorted(seen))
    return classes


def stationary(rows: Sequence[Row], members: Sequence[int]) -> list[Number]:
    """The stationary law of a closed class, without a subtraction."""
    place = {s: i for i, s in enumerate(members)}
    n = len(members)
    zero = rows[members[0]][next(iter(rows[members[0]]))] * 0
    chain = [[zero] * n for _ in range(n)]
    for s in members:
        for t, p in rows[s].items():
            chain[place[s]][place[t]] = p
    for k in range(n - 1, 0, -1):
        leaves = sum(chain[k][:k])
        for i in range(k):
            if chain[i][k]:
                chain[i][k] /= leaves
                for j in range(k):
                    if chain[k][j]:
                        chain[i][j] += chain[i][k] * chain[k][j]
    law = [zero + 1]
    for k in range(1, n):
        law.append(sum((law[i] * chain[i][k] for i in range(k)), zero))
    total = sum(law)
    return [p / total for p in law]


def solve(system: list[list[Number]], right: list[list[Number]]) -> list[list[Number]]:
    """Gauss without pivoting but for zeros: the systems are I - P on states that are left."""
    n = len(system)
    for k in range(n):
        best = max(range(k, n), key=lambda i: abs(system[i][k]))
        if best != k:
            system[k], system[best] = system[best], system[k]
            right[k], right[best] = right[best], right[k]
        for i in range(k + 1, n):
            if not system[i][k]:
                continue
            factor = system[i][k] / system[k][k]
            for j in range(k + 1, n):
                if system[k][j]:
                    system[i][j] -= factor * system[k][j]
            for c in range(len(right[i])):
                right[i][c] -= factor * right[k][c]
    for k in range(n - 1, -1, -1):
        for c in range(len(right[k])):
            rest = sum((system[k][j] * right[j][c] for j in range(k + 1, n)), 0 * right[k][c])
            right[k][c] = (right[k][c] - rest) / system[k][k]
    return right


@dataclass(frozen=True)
class Valued:
    """Gain and bias of a policy; the bias is 0 in the first state of each recurrent class."""

    gain: list[Number]
    bias: list[Number]
    classes: int

    @property
    def bias_size(self) -> float:
        return float(max(self.bias) - min(self.bias))


def policy_value(flat: Flat, policy: Sequence[int]) -> Valued:
    """g = P g, g + h = r + P h."""
    with decimal.localcontext(prec=DIGITS):
        rows = [flat.rows[s][int(a)] for s, a in enumerate(policy)]
        pays = [flat.pays[s][int(a)] for s, a in enumerate(policy)]
        zero = pays[0] * 0
        one = zero + 1
        n = len(rows)
        gain: list[Number] = [zero] * n
        bias: list[Number] = [zero] * n
        classes = recurrent(rows)
        settled: set[int] = set()
        for members in classes:
            law = stationary(rows, members)
            value = sum((p * pays[s] for p, s in zip(law, members, strict=True)), zero)
            for s in members:
                gain[s] = value
            settled.update(members)
            rest = members[1:]
            found = _absorbed(rows, rest, [[pays[s] - value] for s in rest], one)
            for s, (h,) in zip(rest, found, strict=True):
                bias[s] = h
        transient = [s for s in range(n) if s not in settled]
        if transient:
            right = [
                [sum((p * gain[t] for t, p in rows[s].items() if t in settled), zero)]
                for s in transient
            ]
            for s, (g,) in zip(transient, _absorbed(rows, transient, right, one), strict=True):
                gain[s] = g
            right = [
                [
                    pays[s]
                    - gain[s]
                    + sum((p * bias[t] for t, p in rows[s].items() if t in settled), zero)
                ]
                for s in transient
            ]
            for s, (h,) in zip(transient, _absorbed(rows, transient, right, one), strict=True):
                bias[s] = h
        return Valued(gain, bias, len(classes))


def _absorbed(
    rows: Sequence[Row], states: Sequence[int], right: list[list[Number]], one: Number
) -> list[list[Number]]:
    """(I - P restricted to the states)^-1 right."""
    place = {s: i for i, s in enumerate(states)}
    system = [[one * 0] * len(states) for _ in states]
    for s in states:
        i = place[s]
        system[i][i] = system[i][i] + one
        for t, p in rows[s].items():
            if t in place:
                system[i][place[t]] = system[i][place[t]] - p
    return solve(system, right)


@dataclass(frozen=True)
class Best:
    """The best gain of each state, a bias and a policy that has them."""

    gain: list[Number]
    bias: list[Number]
    policy: tuple[int, ...]
    one_gain: bool
    """Whether the best gain is the same from every state."""

    @property
    def lowest(self) -> Number:
        return min(self.gain)

    @property
    def highest(self) -> Number:
        return max(self.gain)

    @property
    def bias_size(self) -> float:
        return float(max(self.bias) - min(self.bias))


def best(flat: Flat, start: Sequence[int] | None = None) -> Best:
    """Multichain policy iteration; the improved action changes only where it is better."""
    n = flat.n_states
    policy = list(start) if start is not None else [0] * n
    with decimal.localcontext(prec=DIGITS):
        pay_size = max(abs(pay) for pays in flat.pays for pay in pays)
        for _ in range(1000):
            value = policy_value(flat, policy)
            gain, bias = value.gain, value.bias
            future = [[_mean(row, gain) for row in flat.rows[s]] for s in range(n)]
            changed = False
            for s in range(n):
                top = max(future[s])
                if flat.above(top, future[s][policy[s]], pay_size):
                    policy[s] = future[s].index(top)
                    changed = True
            if changed:
                continue
            size = pay_size + max(abs(h) for h in bias)
            for s in range(n):
                top_gain = max(future[s])
                worth = {
                    a: flat.pays[s][a] + _mean(flat.rows[s][a], bias)
                    for a in range(flat.n_actions)
                    if flat.same(future[s][a], top_gain, pay_size)
                }
                top = max(worth.values())
                if flat.above(top, worth[policy[s]], size):
                    policy[s] = next(a for a, q in worth.items() if q == top)
                    changed = True
            if not changed:
                one = all(flat.same(g, gain[0], pay_size) for g in gain)
                return Best(gain, bias, tuple(policy), one)
    raise AssertionError("policy iteration did not end")


def _mean(row: Row, values: Sequence[Number]) -> Number:
    return sum((p * values[t] for t, p in row.items()), values[0] * 0)


def backup(flat: Flat, h: Sequence[float]) -> tuple[list[Number], list[list[Number]]]:
    """L h and the values of all actions, exactly, for a given h of doubles."""
    with decimal.localcontext(prec=DIGITS):
        kind = Fraction if flat.exact else Decimal
        values = [kind(float(v)) for v in h]
        q = [
            [pay + _mean(row, values) for pay, row in zip(pays, rows, strict=True)]
            for pays, rows in zip(flat.pays, flat.rows, strict=True)
        ]
        return [max(of_state) for of_state in q], q


def discounted_value(flat: Flat, discount: float) -> NDArray[np.float64]:
    """V* by policy iteration on dense matrices."""
    P, R = flat.matrices, flat.rewards
    states = np.arange(flat.n_states)
    policy = np.zeros(flat.n_states, dtype=np.int64)
    for _ in range(1000):
        chain, pays = P[policy, states], R[policy, states]
        value = np.linalg.solve(np.eye(flat.n_states) - discount * chain, pays)
        worth = R + discount * P @ value
        slack = 1e-13 * (np.abs(R).max() + np.abs(value).max())
        better = worth.max(axis=0) > worth[policy, states] + slack
        if not better.any():
            return np.asarray(value)
        policy = np.where(better, worth.argmax(axis=0), policy)
    raise AssertionError("policy iteration did not end")


def communicating(flat: Flat) -> bool:
    """Whether every state can be reached from every other under some policy."""
    union = [{t: 1 for row in rows for t in row} for rows in flat.rows]
    everything = set(range(flat.n_states))
    return all(seen == everything for seen in reachable(union))


def diameter(flat: Flat) -> Decimal:
    """The longest of the shortest expected travels between two states; infinite if there is none.

    Policy iteration for each target, from a policy that moves along a path of positive probability
    and so gets there from everywhere; in decimals, since only a comparison of sizes is needed.
    """
    if not communicating(flat):
        return Decimal("Infinity")
    with decimal.localcontext(prec=DIGITS):
        one = Decimal(1)
        rows = [[{t: _decimal(p) for t, p in row.items()} for row in of] for of in flat.rows]
        longest = Decimal(0)
        for target in range(flat.n_states):
            others = [s for s in range(flat.n_states) if s != target]
            policy = _towards(flat, target)
            while True:
                chain = [rows[s][policy[s]] for s in range(flat.n_states)]
                travel = [Decimal(0)] * flat.n_states
                found = _absorbed(chain, others, [[one] for _ in others], one)
                for s, (time,) in zip(others, found, strict=True):
                    travel[s] = time
                changed = False
                for s in others:
                    times = [one + _mean(row, travel) for row in rows[s]]
                    if min(times) < travel[s] * (1 - _NEARLY):
                        policy[s] = times.index(min(times))
                        changed = True
                if not changed:
                    break
            longest = max(longest, *travel)
    return longest


def _decimal(number: Number) -> Decimal:
    if isinstance(number, Fraction):
        return Decimal(number.numerator) / Decimal(number.denominator)
    return Decimal(number)


def _towards(flat: Flat, target: int) -> list[int]:
    """For each state an action that may come nearer to the target."""
    policy = [0] * flat.n_states
    known = {target}
    while len(known) < flat.n_states:
        for s in range(flat.n_states):
            if s in known:
                continue
            nearer = [a for a, row in enumerate(flat.rows[s]) if known & row.keys()]
            if nearer:
                policy[s] = nearer[0]
                known.add(s)
    return policy
