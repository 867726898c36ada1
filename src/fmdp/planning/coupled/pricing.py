"""Prices of budgets, and the certified bound that they give.

For prices mu >= 0 of the budgets, any policy that keeps them gains at most

    D(mu) = sum_k mu_k limit_k + sum over parts of g_i(mu),

where g_i(mu) is the best gain of part i alone if it pays mu per unit of each budget: a policy of
the whole pays for no more than the limits, and its parts cannot gain more apart. D is convex and
piecewise linear, and its minimum is the value of the linear program over the occupancies of the
parts. Kelley's method finds the prices: the policies of a round are a cutting plane,
sum_i r_i + sum_k mu_k (limit_k - sum_i u_ik), with their mean rewards r and uses u.

Every part is solved by policy iteration, all types of a shape at once. The chain of a policy
restarts with a tiny probability in a fixed distribution, so that it has one recurrent class and its
equations one solution, whatever the part. The bound does not rely on that: with the bias h of the
last policy, max over (s, a) of r(s, a) - mu c(a) + sum P h - h(s), without restarts, is at least
g_i(mu) from every state, for any h. Where the best gain of a part depends on its state the bound is
that of its best state.

With a discount, the restarts have the probability 1 - discount and lead to the initial state: the
gain of that chain is (1 - discount) V(initial state), and the same residual bounds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.elimination.rounding import rounding_allowance
from fmdp.model.spaces import IndexArray
from fmdp.planning.constrained.lagrangian import Stopped, lowest_point
from fmdp.planning.coupled.types import Block, Types
from fmdp.planning.status import Status
from fmdp.planning.tabular.linear_systems import one_thread

Floats = NDArray[np.float64]

_RESTARTS = (1e-7, 1e-13)
"""Probability of a restart during policy iteration, and in the evaluation of its last policy. The
first keeps equations of multichain policies solvable to some nine digits; the second is too small
to move a bound that rounding does not move."""
_MOST_IMPROVEMENTS = 200
_SAME = 1e-11
"""Actions whose values differ by less than this, relative to the size of the bias, are tied: the
first is taken, so that rounding does not decide."""
_LARGEST_PRICE = 1e7
"""Largest price of a unit, in ranges of the rewards of a part."""
_MOST_ROUNDS = 400


@dataclass(frozen=True, eq=False)
class Solved:
    """The best policies of the types of a block at some prices."""

    actions: IndexArray
    """[T, S]"""
    means: Floats
    """[T, 1 + K]: mean reward and mean uses."""
    biases: Floats
    """[T, S, 1 + K]: the biases of the reward and of the uses."""
    upper: Floats
    """[T]: certified upper bounds on the best gains net of prices."""

    def bias(self, prices: Floats) -> Floats:
        """Return the bias of the reward net of prices: [T, S]."""
        bias: Floats = self.biases @ np.concatenate([[1.0], -prices])
        return bias


class Criterion:
    """How often the chain of a part restarts, and where: average reward or a discount."""

    def __init__(self, discount: float | None = None) -> None:
        self.discount = discount

    @property
    def unit(self) -> float:
        """The value of one reward per step: 1, or 1 / (1 - discount)."""
        return 1.0 if self.discount is None else 1.0 / (1.0 - self.discount)

    def restarts(self) -> tuple[float, float]:
        return _RESTARTS if self.discount is None else (1.0 - self.discount,) * 2

    def law(self, block: Block) -> Floats:
        """Return the distribution after a restart: [T, S]."""
        n_types, n_states = block.rewards.shape[:2]
        if self.discount is None:
            return np.full((n_types, n_states), 1.0 / n_states)
        law = np.zeros((n_types, n_states))
        law[np.arange(n_types), block.starts] = 1.0
        return law

    def residual_restart(self) -> float:
        """The restarts of the chain whose gain is bounded."""
        return 0.0 if self.discount is None else 1.0 - self.discount


def evaluate(
    block: Block, actions: IndexArray, types: IndexArray, restart: float, law: Floats
) -> tuple[Floats, Floats]:
    """Return the means [n, 1 + K] and biases [n, S, 1 + K] of policies of some types [n, S]."""
    at = types[:, None], np.arange(actions.shape[1]), actions
    payments = np.concatenate(
        [block.rewards[at][..., None], block.costs[types[:, None], actions]], axis=2
    )
    system = np.eye(actions.shape[1]) - (1.0 - restart) * block.transitions[at]
    system -= restart * law[types][:, None, :]
    # The bias of state 0 is 0; the unknown in its place is the mean.
    system[:, :, 0] = 1.0
    solution = np.linalg.solve(system, payments)
    means = solution[:, 0].copy()
    solution[:, 0] = 0.0
    return means, solution


def action_values(block: Block, prices: Floats, bias: Floats, types: IndexArray) -> Floats:
    """Return r - prices c + P bias of all actions, -inf where not allowed: [n, S, A]."""
    n, n_states = bias.shape
    flat = block.transitions[types].reshape(n, -1, n_states) @ bias[:, :, None]
    values = block.rewards[types] + flat.reshape(n, n_states, -1)
    values -= (block.costs[types] @ prices)[:, None, :]
    return np.where(block.allowed[types], values, -np.inf)


def solve_block(
    block: Block, prices: Floats, criterion: Criterion, actions: IndexArray | None = None
) -> Solved:
    """Return the best policies at some prices, beginning with `actions` [T, S]."""
    n_types, n_states = block.rewards.shape[:2]
    law, (restart, last_restart) = criterion.law(block), criterion.restarts()
    actions = block.cheapest.copy() if actions is None else actions.copy()
    weights = np.concatenate([[1.0], -prices])
    means = np.empty((n_types, len(weights)))
    biases = np.empty((n_types, n_states, len(weights)))
    left = np.arange(n_types)
    for _ in range(_MOST_IMPROVEMENTS):
        means[left], biases[left] = evaluate(block, actions[left], left, restart, law)
        bias = biases[left] @ weights
        values = action_values(block, prices, (1.0 - restart) * bias, left)
        now = np.take_along_axis(values, actions[left][..., None], axis=2)[..., 0]
        size = np.abs(bias).max(axis=1) + np.abs(now).max(axis=1)
        most = values.max(axis=2)
        best = (values >= (most - _SAME * size[:, None])[..., None]).argmax(axis=2)
        better = most > now + 2.0 * _SAME * size[:, None]
        actions[left] = np.where(better, best, actions[left])
        left = left[better.any(axis=1)]
        if not len(left):
            break
    upper = _upper_bounds(block, prices, biases @ weights, criterion, law)
    if last_restart != restart:
        # Either bias may give the better bound: the second is that of a chain without restarts
        # but for rounding, which is large if the policy has several recurrent classes.
        last_means, last = evaluate(block, actions, np.arange(n_types), last_restart, law)
        last_upper = _upper_bounds(block, prices, last @ weights, criterion, law)
        kept = last_upper <= upper
        upper = np.where(kept, last_upper, upper)
        means = np.where(kept[:, None], last_means, means)
        biases = np.where(kept[:, None, None], last, biases)
    return Solved(actions, means, biases, upper)


def _upper_bounds(
    block: Block, prices: Floats, bias: Floats, criterion: Criterion, law: Floats
) -> Floats:
    """Return certified upper bounds on the gains net of prices, from any bias: [T]."""
    n_types, n_states = bias.shape
    bias = bias - 0.5 * (bias.max(axis=1) + bias.min(axis=1))[:, None]
    restart = criterion.residual_restart()
    values = action_values(block, prices, (1.0 - restart) * bias, np.arange(n_types))
    residual = (values - bias[:, :, None]).max(axis=(1, 2))
    residual += restart * (law * bias).sum(axis=1)
    size = np.abs(bias).max(axis=1) + block.reward_sizes + (block.costs @ prices).max(axis=1)
    roundings = 2 * n_states + 15 + max(1, len(block.shape.reward_scopes))
    allowance = rounding_allowance(1.0, roundings) * size
    upper: Floats = residual + (len(prices) + 1) * allowance
    return upper


@dataclass(frozen=True, eq=False)
class Round:
    """The best policies of all types at some prices, and the bound that they give."""

    prices: Floats
    blocks: tuple[Solved, ...]
    upper: float
    """Certified D(prices)."""
    line: Floats
    """(limit_k - use_k, reward): the coefficients of the cutting plane."""


@dataclass(frozen=True, eq=False)
class Dual:
    """The result of the search for prices."""

    best: Round
    """The round with the least bound."""
    rounds: tuple[Round, ...]
    """The rounds whose policies mix to the solution of the linear program,"""
    weights: Floats
    """and their shares."""
    gap: float
    """How far the bound may be above its minimum over all prices; not certified."""

    @property
    def prices(self) -> Floats:
        return self.best.prices

    @property
    def upper(self) -> float:
        return self.best.upper


class DualSearch:
    """Kelley's method for the prices of one fleet; `best` is known from the first round on."""

    def __init__(self, types: Types, criterion: Criterion, tolerance: float) -> None:
        self.types = types
        self.criterion = criterion
        self.tolerance = tolerance
        self.rounds: list[Round] = []
        self.gap = math.inf
        self.status = Status.ITERATION_LIMIT
        """How the search ended."""
        self._shares = np.ones(1)
        """Shares of the rounds in the solution of the linear program."""
        copies = np.concatenate([block.copies for block in types.blocks])
        # Lines are divided by the number of parts, and rewards by a power of two near their range,
        # so that the linear program is well scaled: the tolerances of its solver are absolute.
        self._scale = float(copies.sum())
        spread = [np.ptp(block.rewards, axis=(1, 2)).max(initial=0.0) for block in types.blocks]
        largest = max(map(float, spread)) or 1.0
        self._unit = 2.0 ** round(math.log2(largest))
        self.most = _LARGEST_PRICE * largest

    def run(
        self,
        first: Floats,
        deadline: Deadline,
        report: Callable[[Round], None],
        most_rounds: int | None = None,
    ) -> None:
        """Search until the bound is within the tolerance of its minimum; raise TimeUp."""
        prices = first
        with one_thread():
            for _ in range(most_rounds or _MOST_ROUNDS):
                deadline.check()
                latest = self._round(prices)
                self.rounds.append(latest)
                report(latest)
                try:
                    prices, least = self._lowest()
                except Stopped as stopped:
                    self.status = stopped.status
                    return
                self.gap = max(self.best.upper - self.types.constant - least * self._scale, 0.0)
                if self.gap <= self.tolerance:
                    self.status = Status.CONVERGED
                    return
                if any(np.array_equal(prices, earlier.prices) for earlier in self.rounds):
                    # A price that comes again adds no plane: rounding hides the rest of the gap.
                    self.status = Status.PRECISION_LIMIT
                    return

    @property
    def best(self) -> Round:
        return min(self.rounds, key=lambda tried: tried.upper)

    def _lowest(self) -> tuple[Floats, float]:
        """Return the prices at which the highest plane is lowest, and its height; keep the shares.

        Raise Stopped if the linear program could not be solved.
        """
        lines = np.array([r.line for r in self.rounds]) / self._scale
        lines[:, -1] /= self._unit
        prices, least, self._shares = lowest_point(lines, self.most / self._unit)
        return prices * self._unit, least * self._unit

    def _round(self, prices: Floats) -> Round:
        before = self.rounds[-1].blocks if self.rounds else [None] * len(self.types.blocks)
        solved = tuple(
            solve_block(block, prices, self.criterion, None if old is None else old.actions)
            for block, old in zip(self.types.blocks, before, strict=True)
        )
        total = np.zeros(1 + len(prices))
        for block, part in zip(self.types.blocks, solved, strict=True):
            total += block.copies @ part.means
        line = np.concatenate([self.types.limits - total[1:], total[:1]])
        return Round(prices, solved, self._upper(prices, solved), line)

    def _upper(self, prices: Floats, solved: tuple[Solved, ...]) -> float:
        terms: list[Floats] = [prices * self.types.limits, np.array([self.types.constant])]
        terms += [b.copies * s.upper for b, s in zip(self.types.blocks, solved, strict=True)]
        joined = np.concatenate(terms)
        # Products and their sum are rounded once each.
        return math.fsum(joined) + 4e-16 * math.fsum(np.abs(joined))

    def result(self) -> Dual:
        weights = np.ones(1)
        rounds = [self.best]
        used = np.flatnonzero(self._shares > 1e-9)
        if len(self.rounds) > 1 and len(used):
            rounds = [self.rounds[j] for j in used]
            weights = self._shares[used] / self._shares[used].sum()
        return Dual(self.best, tuple(rounds), weights, self.gap)
