"""Search for the largest span among the optimal policies, from the gaps of their actions.

largest_span.py has the definition, the gaps, and the three steps, which are implemented here.
`SpanSearch` finds the core U of states that are recurrent under every optimal policy (step 1) and
computes the bias of a policy, `_BranchAndBound` handles models in which every policy reaches U
(step 2), and `_Enumeration` tries all policies over the states that they reach (step 3).

All numbers are doubles, or all are decimals (`Arithmetic`). The bias of a policy is h - J, where J
is a sum of nonnegative terms that is computed without subtraction, so its error is a small multiple
of J itself. Bounds on J over all policies are certified by residuals (`_BranchAndBound._extreme`).
Every result is widened by these errors. Cost: S^3 per policy, in dense algebra.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.progress import PartsReport
from fmdp.measures.reachability import closed_classes
from fmdp.model.spaces import strides
from fmdp.planning.tabular.gth import (
    Numbers,
    expected_totals,
    relative_error,
    stationary_law,
)

Mask = NDArray[np.bool_]
Actions = NDArray[np.int64]
Number = Any
"""A float or a Decimal."""
Bounds = tuple[Number, Number]
PartialPolicy = dict[int, int]

_ROUNDS = 10_000  # limit of policy iteration, in case rounding makes it cycle


@dataclass(frozen=True)
class Arithmetic:
    """The kind of numbers that a search computes with."""

    make: Callable[[Any], Number]
    """Makes a number from a float or a text."""
    unit: float
    """Relative error of one operation."""
    close: float
    """Relative distance of bounds at which the search stops."""


class _BudgetExceeded(Exception):
    """Raised when the allowed effort is used up."""


class Effort:
    """The allowed effort of a search, and the effort so far."""

    def __init__(self, limit: int, progress: PartsReport | None) -> None:
        self.limit, self.used, self.policies, self.progress = limit, 0, 0, progress

    def spend(self, states: int, deterministic: bool = False) -> None:
        if self.used >= self.limit:
            raise _BudgetExceeded
        self.used += states * (1 if deterministic else 1 + states // 8)
        self.policies += 1
        if self.progress is not None and self.policies % 500 == 0:
            self.progress(min(self.used, self.limit), self.limit, "largest span: tried")


class SpanSearch:
    """The search for one model; an action is tight if its gap is 0.

    `transitions` is [A, S, S], `bias` h >= 0 [S], `gaps` [S, A], exactly 0 if the action is
    optimal. `roundings` is the number of roundings that each probability and gap carries.
    """

    def __init__(
        self,
        transitions: Numbers,
        bias: Numbers,
        gaps: Numbers,
        sizes: tuple[int, ...],
        effort: Effort,
        arithmetic: Arithmetic,
        roundings: int,
    ) -> None:
        self.transitions = transitions
        self.support: Mask = np.asarray(transitions > 0, dtype=bool)
        self.into: Mask = np.ascontiguousarray(self.support.transpose(2, 1, 0))  # [S', S, A]
        self.bias, self.gaps, self.sizes, self.effort = bias, gaps, sizes, effort
        self.arithmetic, self.roundings = arithmetic, roundings
        self.n = len(bias)
        make = arithmetic.make
        self.zero, self.infinity = make(0), make("inf")
        self.relative_error = make(relative_error(self.n, arithmetic.unit, roundings))
        self.scale = bias.max() + gaps.max()
        self.tight: Mask = np.asarray(gaps == 0, dtype=bool)
        self.largest_total = self.zero
        # A policy without gaps: optimal, and used to complete partial policies.
        self.tight_policy: Actions = self.tight.argmax(axis=1)
        self.actions = self._distinct_actions()

    def run(self) -> list[Bounds]:
        """Return bounds on the largest span and on the largest sp_i of every variable."""
        with np.errstate(all="ignore"):  # overflow means no bounds, see below
            bounds = self._bounds()
        # Rounding of h, and the errors of the sums J of all policies that were tried.
        make = self.arithmetic.make
        margin = make(8 * self.arithmetic.unit) * self.bias.max()
        margin += 2 * self.relative_error * self.largest_total
        if not margin < self.infinity:
            return [(self.zero, self.infinity) for _ in bounds]
        return [(max(self.zero, low - margin), high + margin) for low, high in bounds]

    def _bounds(self) -> list[Bounds]:
        core = self._core_states()
        if core.all():
            return [(value, value) for value in self.spans(self.bias)]
        of_tight_policy = self.bias_of(self.tight_policy)
        assert of_tight_policy is not None
        lower = self.spans(of_tight_policy)
        anywhere = np.ones((self.n, self.gaps.shape[1]), dtype=bool)
        if core.any():
            for state in np.flatnonzero(core):
                self.actions[state] = [a for a in self.actions[state] if self.tight[state, a]]
            if not self._closed_set(anywhere, ~core).any():
                return _BranchAndBound(self, core).spans(lower)
        return _Enumeration(self).spans(lower)

    def _distinct_actions(self) -> list[list[int]]:
        """Return the actions of every state, one of those with equal effects."""
        chosen = []
        for state in range(self.n):
            seen: dict[tuple[Number, ...], int] = {}
            for action, gap in enumerate(self.gaps[state]):
                seen.setdefault((gap, *self.transitions[action, state].tolist()), action)
            chosen.append(sorted(seen.values()))
        return chosen

    def _core_states(self) -> Mask:
        """Return U: the states that no closed set of tight pairs avoids."""
        tight = self.tight
        classes = closed_classes(self.support[self.tight_policy, np.arange(self.n)])
        core = np.zeros(self.n, dtype=bool)
        if len(classes) > 1:
            return core
        members = classes[0]
        everything = np.ones(self.n, dtype=bool)

        def avoidable(state: int) -> bool:
            others = everything.copy()
            others[state] = False
            return bool(self._closed_set(tight, others).any())

        tied = any(sum(tight[s, a] for a in self.actions[s]) > 1 for s in members)
        if not tied:
            # A policy that reaches one state of the class visits all of it.
            core[members] = not avoidable(int(members[0]))
            return core
        for state in members:
            core[state] = not avoidable(int(state))
        return core

    def _closed_set(self, pairs: Mask, inside: Mask) -> Mask:
        """Return the largest set of states within `inside` that these pairs [S, A] need not
        leave."""
        alive = inside.copy()
        usable = pairs & inside[:, None]
        lost = ~alive
        while lost.any():
            usable &= ~self.into[lost].any(axis=0)
            lost = alive & ~usable.any(axis=1)
            alive &= ~lost
        return alive

    def bias_of(self, policy: Actions, within: NDArray[np.int64] | None = None) -> Numbers | None:
        """Return h_pi on the states `within`, which pi does not leave; None if pi is not optimal.

        If pi has one recurrent class and `within` is None, h_pi is returned up to a constant.
        """
        states = np.arange(self.n) if within is None else within
        chosen = policy[states]
        chain = self.transitions[chosen, states][:, states]
        tight = self.tight[states, chosen]
        base = self.bias[states]
        lost = np.full(len(states), self.zero)
        transient = np.ones(len(states), dtype=bool)
        classes = closed_classes(self.support[chosen, states][:, states])
        for members in classes:
            if not tight[members].all():
                return None
            if within is not None or len(classes) > 1:
                lost[members] = stationary_law(chain[np.ix_(members, members)]) @ base[members]
            transient[members] = False
        rest, ends = np.flatnonzero(transient), np.flatnonzero(~transient)
        if len(rest):
            into = chain[np.ix_(rest, ends)]
            paid = self.gaps[states, chosen][rest] + into @ lost[ends]
            lost[rest] = expected_totals(chain[np.ix_(rest, rest)], into.sum(axis=1), paid)
        self.largest_total = max(self.largest_total, lost.max())
        return np.asarray(base - lost)

    def raise_lower(self, lower: list[Number], bias: Numbers | None) -> None:
        """Raise the lower bounds of all spans by the bias of an optimal policy."""
        if bias is not None:
            lower[:] = map(max, lower, self.spans(bias))

    def spans(self, bias: Numbers) -> list[Number]:
        """Return the span and the factored spans."""
        cube = bias.reshape(self.sizes)
        lines = [np.moveaxis(cube, i, 0).reshape(size, -1) for i, size in enumerate(self.sizes)]
        factored = [(line.max(axis=0) - line.min(axis=0)).max() for line in lines]
        return [bias.max() - bias.min(), *factored]

    def reached(self, policy: Actions, state: int, stop: Mask | None = None) -> Mask:
        """Return the states that a policy reaches from a state, itself included, up to those of
        `stop`."""
        seen = np.zeros(self.n, dtype=bool)
        seen[state] = True
        front = [state]
        while front:
            current = front.pop()
            if stop is not None and stop[current]:
                continue
            new = self.support[policy[current], current] & ~seen
            seen |= new
            front += np.flatnonzero(new).tolist()
        return seen

    def pairs(self, axis: int | None, upper: Numbers) -> Iterator[tuple[Number, int, int]]:
        """Yield (upper bound, s, s') in decreasing order.

        With an axis, only pairs that differ in that variable alone.
        """
        if axis is None:
            high, low = (index.ravel() for index in np.indices((self.n, self.n)))
        else:
            step, size = strides(self.sizes)[axis], self.sizes[axis]
            states = np.arange(self.n)
            zeros = states[states // step % size == 0]
            firsts = [zeros + v * step for v in range(size)]
            ordered = list(itertools.permutations(range(size), 2))
            if not ordered:
                return
            high = np.concatenate([firsts[v] for v, _ in ordered])
            low = np.concatenate([firsts[w] for _, w in ordered])
        values = upper[high, low]
        order = np.argsort(-values, kind="stable")
        for k in order:
            yield values[k], int(high[k]), int(low[k])

    def near(self, lower: Number, upper: Number) -> bool:
        """Return whether a search may stop between these bounds; the upper one still counts."""
        close = self.arithmetic.make(self.arithmetic.close)
        tiny = self.arithmetic.make(100 * self.arithmetic.unit)
        return bool(upper <= lower + close * abs(upper) + tiny * self.scale)


class _BranchAndBound:
    """Step 2: every policy reaches U, so J is between the largest and the least cost until U.

    All optimal policies have one class, and with it h_pi = h - J_pi up to a constant, where J_pi
    counts the gaps until U. A node fixes some actions; the extremes of J under those bound the
    pair, and the bound is attained if one policy can follow both extremes.
    """

    def __init__(self, search: SpanSearch, core: Mask) -> None:
        self.search, self.core = search, core
        self.allowed = np.zeros_like(search.gaps, dtype=bool)
        for state, actions in enumerate(search.actions):
            self.allowed[state, actions] = True
        self.off = np.flatnonzero(~core)
        self.inside = search.transitions[:, self.off][:, :, self.off]  # [A, F, F]
        self.leaving = search.transitions[:, self.off][:, :, core].sum(axis=2)  # [A, F]
        self.longest: Number = search.infinity
        ones = np.full(search.gaps.shape, search.zero + 1)
        steps, short, _ = self._extreme_totals(ones, {}, 1, search.tight_policy)
        if 2 * short <= 1:  # every action reduces the expected time by at least 1/2
            self.longest = 2 * steps.max(initial=search.zero)
        self.most, self.costliest = self._extreme({}, 1, search.tight_policy)

    def spans(self, lower: list[Number]) -> list[Bounds]:
        bias = self.search.bias
        upper = bias[:, None] - (bias - self.most)[None, :]
        best = list(lower)
        axes = [None, *range(len(self.search.sizes))]
        return [self._best(axis, upper, best, index) for index, axis in enumerate(axes)]

    def _best(self, axis: int | None, upper: Numbers, lower: list[Number], index: int) -> Bounds:
        search = self.search
        waiting = search.pairs(axis, upper)
        heap: list[tuple[Number, int, int, int, dict[int, int]]] = []
        number = itertools.count()
        following = next(waiting, None)
        effort = search.effort
        dropped = search.zero  # the largest bound of a pruned node that was near enough
        # An equal share of the remaining effort for every variable.
        share = effort.used + (effort.limit - effort.used) // (len(lower) - index)
        while True:
            if following is not None and (not heap or following[0] >= -heap[0][0]):
                value, high, low = following
                heapq.heappush(heap, (-value, next(number), high, low, {}))
                following = next(waiting, None)
            if not heap:
                return lower[index], max(lower[index], dropped)
            bound = -heap[0][0]
            if search.near(lower[index], bound) or effort.used >= share:
                return lower[index], max(lower[index], bound, dropped)
            _, _, high, low, fixed = heapq.heappop(heap)
            policy, branch = self._candidate(high, low, fixed)
            effort.spend(search.n)
            bias = search.bias_of(policy)
            search.raise_lower(lower, bias)
            if bias is not None and search.near(bias[high] - bias[low], bound):
                dropped = max(dropped, bound)
                continue
            if branch is None:
                continue
            for action in search.actions[branch]:
                child = {**fixed, branch: action}
                most, _ = self._extreme(child, 1, self.costliest)
                least, _ = self._extreme(child, -1, search.tight_policy)
                value = search.bias[high] - least[high] - search.bias[low] + most[low]
                value = min(value, bound)
                if search.near(lower[index], value):
                    dropped = max(dropped, value)
                else:
                    heapq.heappush(heap, (-value, next(number), high, low, child))

    def _candidate(self, high: int, low: int, fixed: dict[int, int]) -> tuple[Actions, int | None]:
        """Return a policy with the largest J from `low` and otherwise the least J from `high`, and
        the state to branch on.

        The state is None if every relevant state is fixed or has one action.
        """
        search = self.search
        costly = self.costliest
        cheap = search.tight_policy
        if fixed:
            costly = self._extreme(fixed, 1, self.costliest)[1]
            cheap = self._extreme(fixed, -1, search.tight_policy)[1]
        far = search.reached(costly, low, self.core)
        near = search.reached(cheap, high, self.core)
        policy = np.where(far & ~self.core, costly, cheap)
        conflict = far & near & (costly != cheap) & ~self.core
        again = search.reached(policy, int(np.flatnonzero(self.core)[0]))
        conflict |= again & ~search.tight[np.arange(search.n), policy]
        for matters in (conflict, far | near | again):
            for state in np.flatnonzero(matters):
                if int(state) not in fixed and len(search.actions[state]) > 1:
                    return policy, int(state)
        return policy, None

    def _extreme(self, fixed: PartialPolicy, sign: int, start: Actions) -> tuple[Numbers, Actions]:
        """Bound the expected gaps until U of every policy, from above (sign 1) or below (-1).

        With v >= c + P v - r for every action, J <= v + r T for every policy, T the longest
        expected time until U; the same with the signs reversed. Returns [S], and a policy near the
        bound.
        """
        search = self.search
        values, short, policy = self._extreme_totals(search.gaps, fixed, sign, start)
        total = np.full(search.n, search.zero)
        if short == 0:
            total[self.off] = values
        elif max(short, self.longest) < search.infinity:
            total[self.off] = values + sign * short * self.longest
        elif sign > 0:
            total[self.off] = search.infinity
        return total, policy

    def _extreme_totals(
        self, costs: Numbers, fixed: PartialPolicy, sign: int, start: Actions
    ) -> tuple[Numbers, Number, Actions]:
        """Compute the largest or least expected costs v until U by policy iteration.

        Returns v on the states outside U, an upper bound on the improvement of any action over v
        (rounding included), and the policy.
        """
        search, off = self.search, self.off
        allowed = self.allowed[off].copy()
        policy = start.copy()
        for state, action in fixed.items():
            policy[state] = action
            if not self.core[state]:
                row = int(np.searchsorted(off, state))
                allowed[row] = False
                allowed[row, action] = True
        rows = np.arange(len(off))
        make = search.arithmetic.make
        unit = make(search.arithmetic.unit * (4 * len(off) + 2 * search.roundings + 16))
        for _ in range(_ROUNDS):
            chosen = policy[off]
            values = expected_totals(
                self.inside[chosen, rows], self.leaving[chosen, rows], costs[off, chosen]
            )
            gained, noise = self._gained(values, costs[off])
            ahead = np.where(allowed, sign * gained, -search.infinity)
            best = ahead.argmax(axis=1)
            unsure = unit * (noise[rows, best] + noise[rows, chosen])
            better = np.asarray(ahead[rows, best] > ahead[rows, chosen] + unsure, dtype=bool)
            if not better.any():
                break
            policy[off[better]] = best[better]
        short = np.where(allowed, ahead + unit * noise, search.zero).max(initial=search.zero)
        if not (values < search.infinity).all() or not short < search.infinity:
            return values, search.infinity, policy  # overflow
        return values, short, policy

    def _gained(self, values: Numbers, costs: Numbers) -> tuple[Numbers, Numbers]:
        """Return c + P v - v of all actions and the size of the summed terms: [F, A] each.

        Differences of values are weighted, so that self-loops lose no digits.
        """
        ahead = values[None, :] - values[:, None]
        gained, sizes = costs.copy(), costs.copy()
        for action, (inside, leaving) in enumerate(zip(self.inside, self.leaving, strict=True)):
            gained[:, action] += (inside * ahead).sum(axis=1) - leaving * values
            sizes[:, action] += (inside * abs(ahead)).sum(axis=1) + leaving * values
        return gained, sizes


class _Enumeration:
    """Step 3: all policies from each state over the states that they reach, then pairs of
    states."""

    def __init__(self, search: SpanSearch) -> None:
        self.search = search
        self.after: list[dict[int, list[int]]] = [
            {a: np.flatnonzero(search.support[a, state]).tolist() for a in search.actions[state]}
            for state in range(search.n)
        ]
        self.gaps: list[list[Number]] = search.gaps.tolist()
        self.base: list[Number] = search.bias.tolist()

    def spans(self, lower: list[Number]) -> list[Bounds]:
        n, infinity = self.search.n, self.search.infinity
        highest, lowest = np.full(n, -infinity), np.full(n, infinity)
        above: list[PartialPolicy] = [{} for _ in range(n)]
        below: list[PartialPolicy] = [{} for _ in range(n)]
        try:
            for state in range(n):
                for choice, bias in self._optimal({}, state):
                    value = bias[state]
                    if value > highest[state]:
                        highest[state], above[state] = value, choice
                    if value < lowest[state]:
                        lowest[state], below[state] = value, choice
        except _BudgetExceeded:
            for choice in (*above, *below):
                self.search.raise_lower(lower, self.search.bias_of(self._completed(choice)))
            return [(value, infinity) for value in lower]
        upper = highest[:, None] - lowest
        axes = [None, *range(len(self.search.sizes))]
        return [
            self._best(axis, upper, best, highest, above, below)
            for best, axis in zip(lower, axes, strict=True)
        ]

    def _best(
        self,
        axis: int | None,
        upper: Numbers,
        best: Number,
        highest: Numbers,
        above: list[PartialPolicy],
        below: list[PartialPolicy],
    ) -> Bounds:
        """Return bounds on the largest difference of a pair."""
        for bound, high, low in self.search.pairs(axis, upper):
            if self.search.near(best, bound):
                return best, max(best, bound)
            if all(below[low].get(state, a) == a for state, a in above[high].items()):
                return bound, bound  # one policy attains both
            try:
                best = max(best, self._pair(high, low, highest[high], best))
            except _BudgetExceeded:
                return best, max(best, bound)
        return best, best

    def _pair(self, high: int, low: int, highest: Number, best: Number) -> Number:
        """Return the largest h_pi(high) - h_pi(low), or `best` if that is larger."""
        for first, bias in self._optimal({}, low):
            if highest - bias[low] > best:
                for _, onward in self._optimal(first, high):
                    best = max(best, onward[high] - bias[low])
        return best

    def _completed(self, choice: PartialPolicy) -> Actions:
        """Return a partial policy, completed with tight pairs."""
        policy = self.search.tight_policy.copy()
        policy[list(choice)] = list(choice.values())
        return policy

    def _optimal(
        self, given: PartialPolicy, root: int
    ) -> Iterator[tuple[PartialPolicy, dict[int, Number]]]:
        """Yield actions and bias of all optimal partial policies from the root that extend
        `given`."""
        for choice, states in self._choices(dict(given), [root], 0):
            single = all(len(self.after[state][choice[state]]) == 1 for state in states)
            self.search.effort.spend(len(states), single)
            bias = (
                self._deterministic_bias(choice, states[0])
                if single
                else self._bias(choice, states)
            )
            if bias is not None:
                yield dict(choice), bias

    def _choices(
        self, chosen: PartialPolicy, states: list[int], done: int
    ) -> Iterator[tuple[PartialPolicy, list[int]]]:
        """Yield all choices of actions in the states that are reached, in order of reaching them.

        Both arguments are modified in place and restored when the iterator ends.
        """
        if done == len(states):
            yield chosen, states
            return
        current = states[done]
        given = current in chosen
        for action in [chosen[current]] if given else self.search.actions[current]:
            chosen[current] = action
            new = [state for state in self.after[current][action] if state not in states]
            states.extend(new)
            yield from self._choices(chosen, states, done + 1)
            del states[len(states) - len(new) :]
        if not given:
            del chosen[current]

    def _bias(self, choice: PartialPolicy, states: list[int]) -> dict[int, Number] | None:
        """Return h_pi on these states; None if the choice is not optimal."""
        bias = self.search.bias_of(self._completed(choice), np.array(states))
        return None if bias is None else dict(zip(states, bias.tolist(), strict=True))

    def _deterministic_bias(self, choice: PartialPolicy, root: int) -> dict[int, Number] | None:
        """Return the same for deterministic moves: a path from the root into a cycle."""
        path: list[int] = []
        current = root
        while current not in path:
            path.append(current)
            current = self.after[current][choice[current]][0]
        entry = path.index(current)
        cycle = path[entry:]
        if any(self.gaps[state][choice[state]] for state in cycle):
            return None
        lost = sum(self.base[state] for state in cycle) / len(cycle)
        bias = {state: self.base[state] - lost for state in cycle}
        for state in reversed(path[:entry]):
            lost += self.gaps[state][choice[state]]
            bias[state] = self.base[state] - lost
        self.search.largest_total = max(self.search.largest_total, lost)
        return bias
