"""The search for the largest span among the optimal policies, from the gaps of their model.

largest_span.py has the definition, what a gap is, and the three steps; here are the steps.
`Search` finds the states U that every optimal policy keeps (step 1) and what a policy's bias is,
`_Bounded` is branch and bound where every policy reaches U (step 2), `_Enumerated` tries the
policies over the states that they reach (step 3).  Dense algebra: S^3 a policy.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from fmdp.model.spaces import strides
from fmdp.planning.spans import factored_spans, span
from fmdp.progress import PartsReport

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]
Mask = NDArray[np.bool_]
Actions = NDArray[np.int64]
Interval = tuple[float, float]
PartialPolicy = dict[int, int]

_ROUNDS = 10_000


def _leaving(rows: Matrix, members: NDArray[np.int64]) -> Matrix:
    """I - P over some states, from their whole rows; 1 - P(s, s) is the sum of the rest of its row,
    so that a state that is hardly ever left costs no digits (Grassmann, Taksar & Heyman 1985)."""
    others = rows.copy()
    places = np.arange(len(members))
    others[places, members] = 0.0
    system = -others[:, members]
    system[places, places] = others.sum(axis=1)
    return system


def recurrent(chain: Matrix) -> list[NDArray[np.int64]]:
    """The closed strongly connected sets of a chain, by its support."""
    support = chain > 0
    count, label = connected_components(support, connection="strong")
    origin, successor = support.nonzero()
    leaving = set(label[origin][label[origin] != label[successor]].tolist())
    return [np.flatnonzero(label == own) for own in range(count) if own not in leaving]


def stationary_law(chain: Matrix) -> Vector:
    system = np.eye(len(chain)) - chain.T
    system[-1] = 1.0
    right = np.zeros(len(chain))
    right[-1] = 1.0
    return np.asarray(np.linalg.solve(system, right), dtype=np.float64)


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
    """One model: its gaps, which states every optimal policy keeps, and bounds for all pairs."""

    def __init__(
        self,
        transitions: Matrix,
        bias: Vector,
        gaps: Matrix,
        sizes: tuple[int, ...],
        effort: Effort,
    ) -> None:
        self.transitions = transitions  # [A, S, S]
        self.support: Mask = transitions > 0
        self.into: Mask = np.ascontiguousarray(self.support.transpose(2, 1, 0))  # [S', S, A]
        self.bias, self.gaps, self.sizes, self.effort = bias, gaps, sizes, effort
        self.n = len(bias)
        self.scale = span(bias) + float(gaps.max())
        # The policy without gaps: optimal, and what fills up every partial policy.
        self.plain: Actions = gaps.argmin(axis=1)
        self.actions = self._distinct_actions()

    def run(self) -> list[Interval]:
        """Bounds on the largest span and on the largest sp_i of every variable."""
        lower = self._spans_of(self.plain)
        kept = self._always_recurrent()
        if kept.all():
            return [(own, own) for own in lower]
        anywhere = np.ones((self.n, self.gaps.shape[1]), dtype=bool)
        if kept.any():
            for state in np.flatnonzero(kept):
                self.actions[state] = [a for a in self.actions[state] if not self.gaps[state, a]]
            if not self._closed_set(anywhere, ~kept).any():
                return _Bounded(self, kept).spans(lower)
        return _Enumerated(self).spans(lower)

    def _distinct_actions(self) -> list[list[int]]:
        """The actions of every state, one of those that do the same."""
        chosen = []
        for state in range(self.n):
            rows = np.column_stack([self.transitions[:, state], self.gaps[state]])
            _, first = np.unique(rows, axis=0, return_index=True)
            chosen.append(sorted(int(action) for action in first))
        return chosen

    def _always_recurrent(self) -> Mask:
        """U: the states that no closed set of pairs without a gap avoids."""
        free = self.gaps == 0.0
        classes = recurrent(self._chain(self.plain))
        kept = np.zeros(self.n, dtype=bool)
        if len(classes) > 1:
            return kept
        members = classes[0]
        everything = np.ones(self.n, dtype=bool)

        def avoidable(state: int) -> bool:
            others = everything.copy()
            others[state] = False
            return bool(self._closed_set(free, others).any())

        tied = any(sum(not self.gaps[s, a] for a in self.actions[s]) > 1 for s in members)
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

    def _chain(self, policy: Actions) -> Matrix:
        return self.transitions[policy, np.arange(self.n)]

    def bias_of(self, policy: Actions, within: NDArray[np.int64] | None = None) -> Vector | None:
        """h_pi on the states `within`, which pi does not leave; None if pi is not optimal there."""
        states = np.arange(self.n) if within is None else within
        chosen = policy[states]
        chain = self.transitions[chosen, states][:, states]
        costs = self.gaps[states, chosen]
        base = self.bias[states]
        lost = np.zeros(len(states))
        transient = np.ones(len(states), dtype=bool)
        for members in recurrent(chain):
            if costs[members].any():
                return None
            law = stationary_law(chain[np.ix_(members, members)])
            lost[members] = law @ base[members]
            transient[members] = False
        rest = np.flatnonzero(transient)
        if len(rest):
            ends = np.flatnonzero(~transient)
            system = _leaving(chain[rest], rest)
            right = costs[rest] + chain[np.ix_(rest, ends)] @ lost[ends]
            lost[rest] = np.linalg.solve(system, right)
        return base - lost

    def _spans_of(self, policy: Actions) -> list[float]:
        bias = self.bias_of(policy)
        assert bias is not None
        return self.spans(bias)

    def spans(self, bias: Vector) -> list[float]:
        return [span(bias), *factored_spans(bias, self.sizes)]

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

    def pairs(self, axis: int | None, upper: Matrix) -> Iterator[tuple[float, int, int]]:
        """(upper bound, s, s'), the best first; those that differ in the axis alone, if given."""
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
            yield float(values[k]), int(high[k]), int(low[k])

    def near(self, lower: float, upper: float) -> bool:
        return upper <= lower + 1e-10 * (self.scale + abs(upper))


class _Bounded:
    """Step 2: every policy reaches U, so J is bounded by the largest and least cost of the way.

    All optimal policies have one class, and with it h_pi = h - J_pi up to a constant, where J_pi
    counts the gaps until U. A node fixes some actions; J between its extremes under those bounds
    the pair, and the bound is attained if one policy can follow both extremes.
    """

    def __init__(self, search: Search, kept: Mask) -> None:
        self.search, self.kept = search, kept
        self.allowed = np.zeros_like(search.gaps, dtype=bool)
        for state, own in enumerate(search.actions):
            self.allowed[state, own] = True
        self.most, self.dearest = self._extreme({}, 1.0, search.plain)

    def spans(self, lower: list[float]) -> list[Interval]:
        bias = self.search.bias
        upper = bias[:, None] - (bias - self.most)[None, :]
        whole: list[float] = list(lower)
        found: list[Interval] = []
        for index, axis in enumerate([None, *range(len(self.search.sizes))]):
            found.append(self._best(axis, upper, whole, index))
        return found

    def _best(self, axis: int | None, upper: Matrix, lower: list[float], index: int) -> Interval:
        search = self.search
        waiting = search.pairs(axis, upper)
        heap: list[tuple[float, int, int, int, dict[int, int]]] = []
        number = itertools.count()
        following = next(waiting, None)
        effort = search.effort
        # An even share of what is left, so that no variable goes without.
        share = effort.used + (effort.limit - effort.used) // (len(lower) - index)
        while True:
            if following is not None and (not heap or following[0] >= -heap[0][0]):
                value, high, low = following
                heapq.heappush(heap, (-value, next(number), high, low, {}))
                following = next(waiting, None)
            if not heap:
                return lower[index], lower[index]
            bound = -heap[0][0]
            if search.near(lower[index], bound):
                return lower[index], max(lower[index], bound)
            if effort.used >= share:
                return lower[index], bound
            _, _, high, low, fixed = heapq.heappop(heap)
            policy, free = self._candidate(high, low, fixed)
            effort.spend(search.n)
            bias = search.bias_of(policy)
            if bias is not None:
                for own, value in enumerate(search.spans(bias)):
                    lower[own] = max(lower[own], value)
                if search.near(float(bias[high] - bias[low]), bound):
                    continue
            if free is None:
                continue
            for action in search.actions[free]:
                child = {**fixed, free: action}
                most, _ = self._extreme(child, 1.0, self.dearest)
                least, _ = self._extreme(child, -1.0, search.plain)
                value = search.bias[high] - least[high] - search.bias[low] + most[low]
                value = min(float(value), bound)
                if not search.near(lower[index], value):
                    heapq.heappush(heap, (-value, next(number), high, low, child))

    def _candidate(self, high: int, low: int, fixed: dict[int, int]) -> tuple[Actions, int | None]:
        """A policy that loses most from `low` and, elsewhere, least from `high`; where to branch.

        None if the choice is complete: every state that matters is fixed or has one action.
        """
        search = self.search
        dear = self.dearest
        cheap = search.plain
        if fixed:
            dear = self._extreme(fixed, 1.0, self.dearest)[1]
            cheap = self._extreme(fixed, -1.0, search.plain)[1]
        far = search.reached(dear, low, self.kept)
        near = search.reached(cheap, high, self.kept)
        policy = np.where(far & ~self.kept, dear, cheap)
        conflict = far & near & (dear != cheap) & ~self.kept
        again = search.reached(policy, int(np.flatnonzero(self.kept)[0]))
        conflict |= again & (search.gaps[np.arange(search.n), policy] > 0)
        for matters in (conflict, far | near | again):
            for state in np.flatnonzero(matters):
                if int(state) not in fixed and len(search.actions[state]) > 1:
                    return policy, int(state)
        return policy, None

    def _extreme(
        self, fixed: dict[int, int], sign: float, start: Actions
    ) -> tuple[Vector, Actions]:
        """The largest (sign 1) or least (-1) expected gaps until U: policy iteration."""
        search = self.search
        off = np.flatnonzero(~self.kept)
        allowed = self.allowed[off].copy()
        policy = start.copy()
        for state, action in fixed.items():
            policy[state] = action
            if not self.kept[state]:
                own = int(np.searchsorted(off, state))
                allowed[own] = False
                allowed[own, action] = True
        inside = search.transitions[:, off][:, :, off]  # [A, F, F]
        costs = np.where(allowed, sign * search.gaps[off], -np.inf)
        rows = np.arange(len(off))
        total = np.zeros(search.n)
        for _ in range(_ROUNDS):
            chosen = policy[off]
            system = _leaving(search.transitions[chosen, off], off)
            values = np.linalg.solve(system, costs[rows, chosen])
            ahead = costs + (inside @ values).T
            best = ahead.max(axis=1)
            better = best > ahead[rows, chosen] + 1e-12 * (search.scale + np.abs(values).max())
            if not better.any():
                break
            policy[off[better]] = ahead[better].argmax(axis=1)
        total[off] = sign * values
        return total, policy


class _Enumerated:
    """Step 3: from each state all policies over the states that they reach, then pairs."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.after: list[dict[int, list[int]]] = [
            {a: np.flatnonzero(search.support[a, state]).tolist() for a in search.actions[state]}
            for state in range(search.n)
        ]
        self.gaps: list[list[float]] = search.gaps.tolist()
        self.base: list[float] = search.bias.tolist()

    def spans(self, lower: list[float]) -> list[Interval]:
        n = self.search.n
        highest, lowest = np.full(n, -math.inf), np.full(n, math.inf)
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
            return [(own, math.inf) for own in lower]
        found = []
        for best, axis in zip(lower, [None, *range(len(self.search.sizes))], strict=True):
            bound = best
            for bound, high, low in self.search.pairs(axis, highest[:, None] - lowest):
                if self.search.near(best, bound):
                    bound = best
                    break
                if all(below[low].get(state, a) == a for state, a in above[high].items()):
                    best = bound  # one policy does both
                    break
                try:
                    best = max(best, self._pair(high, low, float(highest[high]), best))
                except _OutOfBudget:
                    break
            else:
                bound = best
            found.append((best, bound))
        return found

    def _pair(self, high: int, low: int, highest: float, best: float) -> float:
        """The largest h_pi(high) - h_pi(low), if it is above `best`."""
        for first, bias in self._optimal({}, low):
            if highest - bias[low] > best:
                for _, onward in self._optimal(first, high):
                    best = max(best, onward[high] - bias[low])
        return best

    def _raise(self, lower: list[float], choice: PartialPolicy) -> None:
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
    ) -> Iterator[tuple[PartialPolicy, dict[int, float]]]:
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

    def _bias(self, choice: PartialPolicy, states: list[int]) -> dict[int, float] | None:
        """h_pi on these states; None if the choice is not optimal."""
        policy = self.search.plain.copy()
        for state in states:
            policy[state] = choice[state]
        found = self.search.bias_of(policy, np.array(states))
        return None if found is None else dict(zip(states, found.tolist(), strict=True))

    def _on_a_line(self, choice: PartialPolicy, root: int) -> dict[int, float] | None:
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
        return bias
