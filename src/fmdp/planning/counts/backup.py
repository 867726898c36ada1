"""The Bellman backup of a quotient, which the exact planner's phases run on.

A sweep is one chance step for every block of the quotient, and a maximum over the moves. Nothing is
written out, so that a fleet of a hundred parts with four levels (176,851 states) takes a fraction
of a second per sweep.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER
from fmdp.elimination.ties import rule_code, tie_ranks
from fmdp.planning.counts.quotient import Pairs, Quotient
from fmdp.planning.exact.small import TabularBackup
from fmdp.planning.tabular.model import TabularModel

Vector = NDArray[np.float64]

LEAST_LOG = -600.0
"""Logarithm of a probability that is far from the smallest number."""


class _Layout(NamedTuple):
    """The properties of an elimination layout that plans report."""

    multiply_adds: int
    order: tuple[int, ...] = (0,)
    branch: tuple[int, ...] = ()


class CountBackup(TabularBackup):
    """The operators of `Backup` for a quotient; vectors are in the order of its states."""

    def __init__(self, quotient: Quotient) -> None:
        # Not super().__init__: it would write the model out.
        self.quotient = quotient
        self.structure = quotient.structure
        self.memory_limit, self.threads, self.deadline = quotient.limit, 1, NEVER
        self.layout: Any = _Layout(quotient.n_pairs)
        self.roundings = quotient.roundings
        self.decision_bytes, self.vector_bytes = 0, 8 * 3 * quotient.n_states  # h, L h, scratch
        self.predicted_bytes = quotient.predicted_bytes
        self.predicted_seconds = quotient.predicted_seconds
        self.extremes = np.zeros(3)
        self._in_order = True
        self._policy: tuple[bytes, Pairs] | None = None

    def _expectations(self, h: Vector) -> Vector:
        self.quotient.deadline = self.deadline
        return self.quotient.expectations(h)

    def sweep(self, h: Vector, out: Vector) -> None:
        """out <- L h (no discount)."""
        self._best(self._expectations(h), out)

    def _best(self, expectations: Vector, out: Vector) -> None:
        out.fill(-np.inf)
        for move, pairs in enumerate(self.quotient.pairs):
            worth = self.quotient.worth(expectations, move)
            np.maximum(worth, out[pairs.states], out=worth)
            out[pairs.states] = worth

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """out <- R_pi + P_pi h."""
        mark = actions.tobytes()
        if self._policy is None or self._policy[0] != mark:
            self._policy = mark, self.quotient.of_policy(actions)
        pairs = self._policy[1]
        out[:] = pairs.rewards
        out += self.quotient.expected(self._expectations(h), pairs.rows, pairs.laws)

    def action_values(self, h: Vector, discount: float = 1.0) -> Vector:
        """Return R + discount * P h, -inf where a move is not possible: [S, moves]."""
        expectations = self._expectations(discount * h)
        values = np.full((self.n_states, len(self.quotient.moves)), -np.inf)
        for move, pairs in enumerate(self.quotient.pairs):
            values[pairs.states, move] = self.quotient.worth(expectations, move)
        return values

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> NDArray[np.int64]:
        """Return a greedy move for every state; value <- what the chosen moves are worth."""
        code = rule_code(ties_rule)
        expectations = self._expectations(h)
        self._best(expectations, value)
        least = value - slack
        actions = np.full(self.n_states, -1, dtype=np.int64)
        lowest = np.zeros(self.n_states, dtype=np.uint64)
        for move, pairs in enumerate(self.quotient.pairs):
            worth = self.quotient.worth(expectations, move)
            tied = worth >= least[pairs.states]
            states, worth = pairs.states[tied], worth[tied]
            if code == 0:
                ranks = tie_ranks(states, np.array(move), tie_seed)
                taken = (actions[states] < 0) | (ranks < lowest[states])
                lowest[states[taken]] = ranks[taken]
            else:
                taken = (actions[states] < 0) | (code == 2)
            actions[states[taken]] = move
            value[states[taken]] = worth[taken]
        return actions

    # ---- the quotient written out ----

    def written_out(self, entries: int) -> TabularModel | None:
        """Return the quotient as lists of successors; None if it has more entries than that.

        Its probabilities are the backup of the indicators of all states.
        """
        n_states, n_moves = self.n_states, len(self.quotient.moves)
        if n_states * n_moves * n_states > entries:
            return None
        if self.quotient.least_log_probability < LEAST_LOG:
            return None  # a positive probability may be rounded to 0, and the support be wrong
        quotient = self.quotient
        expectations = self._expectations(np.eye(n_states))
        probabilities = np.zeros((n_states, n_moves, n_states))
        rewards = np.zeros((n_states, n_moves))
        allowed = np.full((n_states, n_moves), -1, dtype=np.int64)
        for move, pairs in enumerate(quotient.pairs):
            laws = quotient.expected(expectations, pairs.rows, pairs.laws)
            probabilities[pairs.states, move] = laws
            rewards[pairs.states, move] = pairs.rewards
            allowed[pairs.states, move] = move
        # A move that is not possible is the lowest possible one under another number.
        first = (allowed >= 0).argmax(axis=1)
        states, missing = np.nonzero(allowed < 0)
        probabilities[states, missing] = probabilities[states, first[states]]
        rewards[states, missing] = rewards[states, first[states]]
        allowed[states, missing] = first[states]
        successors = np.broadcast_to(np.arange(n_states), probabilities.shape)
        return TabularModel(
            successors,
            probabilities,
            probabilities > 0.0,
            rewards,
            self.roundings,
            np.full(rewards.shape, self.structure.reward_size),
            allowed,
        )
