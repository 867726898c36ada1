"""The search for the largest span among the optimal policies, from the gaps of their model.

largest_span.py has the definition, what a gap is, and the three steps; here are the steps.
`Search` finds the states U that every optimal policy keeps (step 1) and what a policy's bias is,
`_Bounded` is branch and bound where every policy reaches U (step 2), `_Enumerated` tries the
policies over the states that they reach (step 3).

All numbers are doubles, or all are decimals (`Numerals` says which, and how they round).  The bias
of a policy is h - J, where J is a sum of nonnegative terms that is computed without subtraction, so
its error is a small multiple of J itself.  Bounds on J over all policies are certified by residuals
(`_Bounded._extreme`).  Every result is widened by these errors.  Dense algebra: S^3 per policy.
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
from fmdp.measures.exact_gaps import closed_classes
from fmdp.measures.gth import (
    Numbers,
    expected_totals,
    relative_error,
    stationary_law,
)
from fmdp.model.spaces import strides

Mask = NDArray[np.bool_]
Actions = NDArray[np.int64]
Number = Any
"""A float or a Decimal."""
Bounds = tuple[Number, Number]
PartialPolicy = dict[int, int]

_ROUNDS = 10_000


@dataclass(frozen=True)
class Numerals:
    """The kind of numbers that a search computes with.

    Attributes
    ----------
    make
        Makes a number from a float or a text.
    unit
        Relative error of one operation.
    close
        Bounds this near, relative to themselves, have met.
    """

    make: Callable[[Any], Number]
    unit: float
    close: float


class _OutOfBudget(Exception):
    """As much has been tried as is allowed."""


class Effort:
    """How much may be tried, and how much was."""

    def __init__(self, limit: int, progress: PartsReport | None) -> None:
        self.limit, self.used, self.policies, self.progress = limit, 0, 0, progress

    def spend(self, states: int, deterministic: bool = False) -> None:
        if self.used >= self.limit:
            raise _OutOfBudget
        self.used += states * (1 if deterministic else 1 + states // 8)
        self.policies += 1
        if self.progress is not None and self.policies % 500 == 0:
            self.progress(min(self.used, self.limit), self.limit, "largest span: tried")


class Search:
    """One model: its gaps, which states every optimal policy keeps, and bounds for all pairs.

    Parameters
    ----------
    transitions
        [A, S, S].
    bias
        h >= 0, [S].
    gaps
        [S, A], at least 0; exactly 0 where the action is optimal.
    roundings
        Number of roundings that each probability and gap carries.
    """

    def __init__(
        self,
        transitions: Numbers,
        bias: Numbers,
        gaps: Numbers,
        sizes: tuple[int, ...],
        effort: Effort,
        numerals: Numerals,
        roundings: int,
    ) -> None:
        self.transitions = transitions
        self.support: Mask = np.asarray(transitions > 0, dtype=bool)
        self.into: Mask = np.ascontiguousarray(self.support.transpose(2, 1, 0))  # [S', S, A]
        self.bias, self.gaps, self.sizes, self.effort = bias, gaps, sizes, effort
        self.numerals, self.roundings = numerals, roundings
        self.n = len(bias)
        make = numerals.make
        self.zero, self.infinity = make(0), make("inf")
        self.relative_error = make(relative_error(self.n, numerals.unit, roundings))
        self.scale = bias.max() + gaps.max()
        self.free: Mask = np.asarray(gaps == 0, dtype=bool)
        self.largest_total = self.zero
        # The policy without gaps: optimal, and what fills up every partial policy.
        self.plain: Actions = self.free.argmax(axis=1)
        self.actions = self._distinct_actions()

    def run(self) -> list[Bounds]:
        """Return bounds on the largest span and on the largest sp_i of every variable."""
        with np.errstate(all="ignore"):  # what overflows has no bounds, see below
            found = self._searched()
        # Rounding of h, and the errors of the sums J of all policies that were looked at.
        make = self.numerals.make
        margin = make(8 * self.numerals.unit) * self.bias.max()
        margin += 2 * self.relative_error * self.largest_total
        if not margin < self.infinity:
            return [(self.zero, self.infinity) for _ in found]
        return [(max(self.zero, low - margin), high + margin) for low, high in found]

    def _searched(self) -> list[Bounds]:
        kept = self._always_recurrent()
        if kept.all():
            return [(own, own) for own in self.spans(self.bias)]
        lower = self._spans_of(self.plain)
        anywhere = np.ones((self.n, self.gaps.shape[1]), dtype=bool)
        if kept.any():
            for state in np.flatnonzero(kept):
                self.actions[state] = [a for a in self.actions[state] if self.free[state, a]]
            if not self._closed_set(anywhere, ~kept).any():
                return _Bounded(self, kept).spans(lower)
        return _Enumerated(self).spans(lower)

    def _distinct_actions(self) -> list[list[int]]:
        """For every state its actions, one of those that do the same."""
        chosen = []
        for state in range(self.n):
            seen: dict[tuple[Number, ...], int] = {}
            for action, gap in enumerate(self.gaps[state]):
                seen.setdefault((gap, *self.transitions[action, state].tolist()), action)
            chosen.append(sorted(seen.values()))
        return chosen

    def _always_recurrent(self) -> Mask:
        """U: the states that no closed set of pairs without a gap avoids."""
        free = self.free
        classes = closed_classes(self.support[self.plain, np.arange(self.n)])
        kept = np.zeros(self.n, dtype=bool)
        if len(classes) > 1:
            return kept
        members = classes[0]
        everything = np.ones(self.n, dtype=bool)

        def avoidable(state: int) -> bool:
            others = everything.copy()
            others[state] = False
            return bool(self._closed_set(free, others).any())

        tied = any(sum(free[s, a] for a in self.actions[s]) > 1 for s in members)
        if not tied:
            # Whoever meets one state of the class stays in all of it.
            kept[members] = not avoidable(int(members[0]))
            return kept
        for state in members:
            kept[state] = not avoidable(int(state))
        return kept

    def _closed_set(self, pairs: Mask, inside: Mask) -> Mask:
        """The largest set of states within `inside` that these pairs [S, A] need never leave."""
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

        Where pi has one recurrent class and `within` is None, the constant of h_pi is left out.
        """
        states = np.arange(self.n) if within is None else within
        chosen = policy[states]
        chain = self.transitions[chosen, states][:, states]
        free = self.free[states, chosen]
        base = self.bias[states]
        lost = np.full(len(states), self.zero)
        transient = np.ones(len(states), dtype=bool)
        classes = closed_classes(self.support[chosen, states][:, states])
        for members in classes:
            if not free[members].all():
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

    def _spans_of(self, policy: Actions) -> list[Number]:
        bias = self.bias_of(policy)
        assert bias is not None
        return self.spans(bias)

    def spans(self, bias: Numbers) -> list[Number]:
        """Return the span and the factored spans."""
        cube = bias.reshape(self.sizes)
        lines = [np.moveaxis(cube, i, 0).reshape(size, -1) for i, size in enumerate(self.sizes)]
        factored = [(own.max(axis=0) - own.min(axis=0)).max() for own in lines]
        return [bias.max() - bias.min(), *factored]

    def reached(self, policy: Actions, state: int, stop: Mask | None = None) -> Mask:
        """The states that a policy meets from a state, it included; not beyond those of `stop`."""
        seen = np.zeros(self.n, dtype=bool)
        seen[state] = True
        front = [state]
        while front:
            here = front.pop()
            if stop is not None and stop[here]:
                continue
            new = self.support[policy[here], here] & ~seen
            seen |= new
            front += np.flatnonzero(new).tolist()
        return seen

    def pairs(self, axis: int | None, upper: Numbers) -> Iterator[tuple[Number, int, int]]:
        """Yield (upper bound, s, s'), the largest first; if an axis is given, only the pairs that
        differ in it alone."""
        if axis is None:
            high, low = (own.ravel() for own in np.indices((self.n, self.n)))
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
        """Whether a search may stop between these bounds; the upper one still counts."""
        close = self.numerals.make(self.numerals.close)
        tiny = self.numerals.make(100 * self.numerals.unit)
        return bool(upper <= lower + close * abs(upper) + tiny * self.scale)


class _Bounded:
    """Step 2: every policy reaches U, so J is bounded by the largest and least cost of the way.

    All optimal policies have one class, and with it h_pi = h - J_pi up to a constant, where J_pi
    counts the gaps until U.  A node fixes some actions; J between its extremes under those bounds
    the pair, and the bound is attained if one policy can follow both extremes.
    """

    def __init__(self, search: Search, kept: Mask) -> None:
        self.search, self.kept = search, kept
        self.allowed = np.zeros_like(search.gaps, dtype=bool)
        for state, own in enumerate(search.actions):
            self.allowed[state, own] = True
        self.off = np.flatnonzero(~kept)
        self.inside = search.transitions[:, self.off][:, :, self.off]  # [A, F, F]
        self.leaving = search.transitions[:, self.off][:, :, kept].sum(axis=2)  # [A, F]
        self.longest: Number = search.infinity
        ones = np.full(search.gaps.shape, search.zero + 1)
        steps, short, _ = self._extreme_totals(ones, {}, 1, search.plain)
        if 2 * short <= 1:  # every action brings U nearer by half a step at least
            self.longest = 2 * steps.max(initial=search.zero)
        self.most, self.dearest = self._extreme({}, 1, search.plain)

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
        dropped = search.zero  # the largest bound of a node that was given up as near enough
        # An even share of what is left, so that no variable goes without.
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
            policy, free = self._candidate(high, low, fixed)
            effort.spend(search.n)
            bias = search.bias_of(policy)
            if bias is not None:
                for own, value in enumerate(search.spans(bias)):
                    lower[own] = max(lower[own], value)
                if search.near(bias[high] - bias[low], bound):
                    dropped = max(dropped, bound)
                    continue
            if free is None:
                continue
            for action in search.actions[free]:
                child = {**fixed, free: action}
                most, _ = self._extreme(child, 1, self.dearest)
                least, _ = self._extreme(child, -1, search.plain)
                value = search.bias[high] - least[high] - search.bias[low] + most[low]
                value = min(value, bound)
                if search.near(lower[index], value):
                    dropped = max(dropped, value)
                else:
                    heapq.heappush(heap, (-value, next(number), high, low, child))

    def _candidate(self, high: int, low: int, fixed: dict[int, int]) -> tuple[Actions, int | None]:
        """Return a policy that loses most from `low` and, elsewhere, least from `high`, and the
        state to branch on.

        The state is None if the choice is complete: every state that matters is fixed or has one
        action.
        """
        search = self.search
        dear = self.dearest
        cheap = search.plain
        if fixed:
            dear = self._extreme(fixed, 1, self.dearest)[1]
            cheap = self._extreme(fixed, -1, search.plain)[1]
        far = search.reached(dear, low, self.kept)
        near = search.reached(cheap, high, self.kept)
        policy = np.where(far & ~self.kept, dear, cheap)
        conflict = far & near & (dear != cheap) & ~self.kept
        again = search.reached(policy, int(np.flatnonzero(self.kept)[0]))
        conflict |= again & ~search.free[np.arange(search.n), policy]
        for matters in (conflict, far | near | again):
            for state in np.flatnonzero(matters):
                if int(state) not in fixed and len(search.actions[state]) > 1:
                    return policy, int(state)
        return policy, None

    def _extreme(self, fixed: PartialPolicy, sign: int, start: Actions) -> tuple[Numbers, Actions]:
        """Bound the expected gaps until U of every policy, from above (sign 1) or below (-1).

        With v >= c + P v - r for every action, J <= v + r T for every policy, T the longest
        expected time until U; the same with the signs reversed.  [S], and a policy near the bound.
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
        """Find the largest or least expected costs v until U by policy iteration.

        Returns v on the states off U, by how much at most an action is better than v says (errors
        of rounding included), and the policy.
        """
        search, off = self.search, self.off
        allowed = self.allowed[off].copy()
        policy = start.copy()
        for state, action in fixed.items():
            policy[state] = action
            if not self.kept[state]:
                own = int(np.searchsorted(off, state))
                allowed[own] = False
                allowed[own, action] = True
        rows = np.arange(len(off))
        make = search.numerals.make
        unit = make(search.numerals.unit * (4 * len(off) + 2 * search.roundings + 16))
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
            return values, search.infinity, policy  # beyond the range of numbers
        return values, short, policy

    def _gained(self, values: Numbers, costs: Numbers) -> tuple[Numbers, Numbers]:
        """Return c + P v - v of all actions and the size of what is summed up: [F, A] each.

        Differences of values are weighted, so that what stays in place costs no digits.
        """
        ahead = values[None, :] - values[:, None]
        gained, sizes = costs.copy(), costs.copy()
        for action, (inside, leaving) in enumerate(zip(self.inside, self.leaving, strict=True)):
            gained[:, action] += (inside * ahead).sum(axis=1) - leaving * values
            sizes[:, action] += (inside * abs(ahead)).sum(axis=1) + leaving * values
        return gained, sizes


class _Enumerated:
    """Step 3: from each state all policies over the states that they reach, then pairs."""

    def __init__(self, search: Search) -> None:
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
        except _OutOfBudget:
            for choice in (*above, *below):
                self._raise(lower, choice)
            return [(own, infinity) for own in lower]
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
                return bound, bound  # one policy does both
            try:
                best = max(best, self._pair(high, low, highest[high], best))
            except _OutOfBudget:
                return best, max(best, bound)
        return best, best

    def _pair(self, high: int, low: int, highest: Number, best: Number) -> Number:
        """Return the largest h_pi(high) - h_pi(low), or `best` if that is larger."""
        for first, bias in self._optimal({}, low):
            if highest - bias[low] > best:
                for _, onward in self._optimal(first, high):
                    best = max(best, onward[high] - bias[low])
        return best

    def _raise(self, lower: list[Number], choice: PartialPolicy) -> None:
        """Every policy that was found is a lower bound, filled up with pairs without a gap."""
        policy = self.search.plain.copy()
        for state, action in choice.items():
            policy[state] = action
        bias = self.search.bias_of(policy)
        if bias is not None:
            for own, value in enumerate(self.search.spans(bias)):
                lower[own] = max(lower[own], value)

    def _optimal(
        self, given: PartialPolicy, root: int
    ) -> Iterator[tuple[PartialPolicy, dict[int, Number]]]:
        """What optimal policies can do from the root, the given choices kept: actions and bias."""
        for choice, states in self._choices(dict(given), [root], 0):
            single = all(len(self.after[state][choice[state]]) == 1 for state in states)
            self.search.effort.spend(len(states), single)
            bias = self._on_a_line(choice, states[0]) if single else self._bias(choice, states)
            if bias is not None:
                yield dict(choice), bias

    def _choices(
        self, chosen: PartialPolicy, states: list[int], done: int
    ) -> Iterator[tuple[PartialPolicy, list[int]]]:
        """All ways to choose an action in every state that is met; `states` in order of meeting.

        Both arguments are worked on in place and are as they were when the iterator ends.
        """
        if done == len(states):
            yield chosen, states
            return
        here = states[done]
        given = here in chosen
        for action in [chosen[here]] if given else self.search.actions[here]:
            chosen[here] = action
            new = [state for state in self.after[here][action] if state not in states]
            states.extend(new)
            yield from self._choices(chosen, states, done + 1)
            del states[len(states) - len(new) :]
        if not given:
            del chosen[here]

    def _bias(self, choice: PartialPolicy, states: list[int]) -> dict[int, Number] | None:
        """h_pi on these states; None if the choice is not optimal."""
        policy = self.search.plain.copy()
        for state in states:
            policy[state] = choice[state]
        found = self.search.bias_of(policy, np.array(states))
        return None if found is None else dict(zip(states, found.tolist(), strict=True))

    def _on_a_line(self, choice: PartialPolicy, root: int) -> dict[int, Number] | None:
        """The same where every move is sure: a way from the root into a circle, no matrix."""
        way: list[int] = []
        here = root
        while here not in way:
            way.append(here)
            here = self.after[here][choice[here]][0]
        entry = way.index(here)
        circle = way[entry:]
        if any(self.gaps[state][choice[state]] for state in circle):
            return None
        lost = sum(self.base[state] for state in circle) / len(circle)
        bias = {state: self.base[state] - lost for state in circle}
        for state in reversed(way[:entry]):
            lost += self.gaps[state][choice[state]]
            bias[state] = self.base[state] - lost
        self.search.largest_total = max(self.search.largest_total, lost)
        return bias
