"""The chain of a policy on counts: evaluation, and long-run means of what happens.

The long-run mean of a function f of the counts and the move is the gain of the policy with rewards
f. For any h, it lies between the least and the largest f + P h - h, so every mean has a certificate
of its own, without the law of the chain. Where parts are exchangeable, a mean over all parts of a
group is a function of the counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.rounding import rounding_allowance
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.compositions import composition_rank
from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.model.spaces import shown, strides
from fmdp.planning.counts.backup import LEAST_LOG, CountBackup
from fmdp.planning.counts.moves import Move
from fmdp.planning.counts.pair_values import PairValues
from fmdp.planning.counts.quotient import Quotient
from fmdp.planning.policies.counts import CountMoves, CountPolicy
from fmdp.planning.tabular.evaluation import REFINEMENTS, chain_resolvent
from fmdp.planning.tabular.model import TabularModel

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

DIRECT_STATES = 1 << 10
"""Most count vectors for which a chain is written out and solved directly."""
SWEEPS = 20_000
"""Most sweeps of an iteration for long-run means."""
_CHECKED = 8
"""Sweeps between two checks of the bounds."""
_PATIENCE = 16
"""The iteration ends if the bounds have not halved since a sixteenth of all sweeps so far, and
not before some thousand."""
_TYPICAL_STEPS = 100
"""Steps along the mean counts to a typical state."""
_DAMPING = 0.9
"""Step of the iteration; below 1, so that periodic chains converge."""


class NotOnCounts(InvalidParameter):
    """The parts of a policy on counts are not exchangeable in a model."""


def chain_of(
    model: FactoredMDP,
    policy: CountPolicy,
    *,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> PolicyChain:
    """Return the chain of a policy on counts in a model.

    Raise NotOnCounts if its parts are not exchangeable there, InvalidParameter if an action is none
    of the model, and TooLarge if the counts do not fit into the memory limit.
    """
    quotient = quotient_for(model, policy.moves, memory_limit=memory_limit, deadline=deadline)
    return PolicyChain(quotient, moves_in(quotient, policy))


def quotient_for(
    model: FactoredMDP,
    moves: CountMoves,
    *,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> Quotient:
    """Return the quotient of a model by the parts of a policy; raise as `chain_of` does."""
    groups = [(group.states, group.actions) for group in moves.groups]
    parts, _ = exchangeable_parts(model)
    if parts is None or [(group.states, group.actions) for group in parts.groups] != groups:
        names = model.structure.state_names
        declared = [[names[v] for part in states for v in part] for states, _ in groups]
        try:
            parts, _ = exchangeable_parts(model, declared)
        except InvalidParameter as error:
            raise NotOnCounts(str(error)) from None
        if parts is None or [(group.states, group.actions) for group in parts.groups] != groups:
            raise NotOnCounts("the parts of the policy on counts are not those of the model")
    return Quotient(parts, memory_limit=memory_limit, deadline=deadline)


def moves_in(quotient: Quotient, policy: CountPolicy) -> Indices:
    """Return the move of the quotient in every count vector; raise InvalidParameter if a move of
    the policy is none of the model."""
    ours, given = quotient.count_moves, policy.moves
    numbers = {_content(ours, number): number for number in range(len(ours.common))}
    found = [numbers.get(_content(given, number), -1) for number in range(len(given.common))]
    moves: Indices = np.array(found, dtype=np.int64)[policy.actions]
    if (moves < 0).any():
        state = quotient.space.example(int((moves < 0).argmax()))
        raise InvalidParameter(
            f"the action of the policy on counts in state {shown(state)} is none of the model"
        )
    return moves


def _content(moves: CountMoves, number: int) -> tuple[Any, ...]:
    """Return what a move is, independently of its number."""
    rows = moves.allotments[moves.allotments[:, 0] == number, 1:]
    return tuple(moves.common[number].tolist()), frozenset(map(tuple, rows.tolist()))


class Means(NamedTuple):
    """Certified bounds on long-run means, one per function; they hold from every state."""

    lower: Floats
    upper: Floats

    @property
    def widest(self) -> float:
        return float((self.upper - self.lower).max(initial=0.0))


class PolicyChain:
    """The chain of a policy, given as one move per state of the quotient."""

    def __init__(self, quotient: Quotient, moves: NDArray[np.integer[Any]]) -> None:
        self.quotient = quotient
        self.moves = np.asarray(moves, dtype=np.int64)
        self.pairs = quotient.of_policy(self.moves)

    @property
    def n_states(self) -> int:
        return self.quotient.n_states

    def expected(self, h: Floats) -> Floats:
        """Return P h; h is [S] or [S, functions]."""
        expectations = self.quotient.expectations(h)
        return self.quotient.expected(expectations, self.pairs.rows, self.pairs.laws)

    def by_move(self) -> Iterator[tuple[Move, PairValues]]:
        """Yield each move of the policy with all that factors depend on, in its states."""
        values = PairValues(self.quotient.parts, self.quotient.locals, self.quotient.space)
        for number in np.unique(self.moves).tolist():
            states = values.start(self.quotient.moves[number])
            values.restrict(self.moves[states] == number)
            yield self.quotient.moves[number], values

    @cached_property
    def matrix(self) -> Floats:
        """P written out, [S, S]."""
        return self.expected(np.eye(self.n_states))

    def written_out(self) -> TabularModel | None:
        """Return the chain as a model with one action; None if it is too large, or if a positive
        probability may be rounded to 0."""
        n = self.n_states
        if n > DIRECT_STATES or self.quotient.least_log_probability < LEAST_LOG:
            return None
        probabilities = self.matrix[:, None, :]
        rewards = self.pairs.rewards[:, None]
        return TabularModel(
            np.broadcast_to(np.arange(n), probabilities.shape),
            probabilities,
            probabilities > 0.0,
            rewards,
            self.quotient.roundings,
            np.full(rewards.shape, self.quotient.structure.reward_size),
        )

    @cached_property
    def backup(self) -> CountBackup:
        """The backup of the quotient."""
        return CountBackup(self.quotient)

    def bounds(self, functions: Floats, h: Floats) -> Means:
        """Return bounds on the long-run means of functions [S, F] that any h [S, F] proves."""
        residual = functions + self.expected(h) - h
        slack = self._slack(functions, h)
        least, most = functions.min(axis=0), functions.max(axis=0)
        return Means(
            np.maximum(residual.min(axis=0) - slack, least),
            np.minimum(residual.max(axis=0) + slack, most),
        )

    def _slack(self, functions: Floats, h: Floats) -> Floats:
        """Return how far rounding can move the residuals of functions: [F]."""
        size = np.abs(h).max(axis=0) + np.abs(functions).max(axis=0)
        slack: Floats = rounding_allowance(1.0, self.quotient.roundings) * size
        return slack

    def _done(self, means: Means, functions: Floats, h: Floats, tolerance: float) -> bool:
        """Return whether bounds are within the tolerance, or as close as rounding allows."""
        goal = np.maximum(tolerance, 4.0 * self._slack(functions, h))
        return bool((means.upper - means.lower <= goal).all())

    def means(self, functions: Floats, tolerance: float, deadline: Deadline = NEVER) -> Means:
        """Return bounds on the long-run means of functions of the state and the policy's move.

        They meet up to the tolerance, unless the means depend on the initial state or too many
        sweeps are needed. TimeUp is raised after the deadline.
        """
        return self.solved(functions, tolerance, deadline)[1]

    def solved(
        self, functions: Floats, tolerance: float, deadline: Deadline = NEVER
    ) -> tuple[Floats, Means]:
        """Return the biases h of functions [S, F], and the bounds on their means; see `means`."""
        h = self._direct(functions) if self.n_states <= DIRECT_STATES else None
        if h is not None:
            means = self.bounds(functions, h)
            if self._done(means, functions, h, tolerance):
                return h, means
        return self._iterated(functions, tolerance, deadline)

    def typical_state(self, start: int) -> int:
        """Return a state that is visited often, as a rule: where rounded mean counts lead to."""
        space = self.quotient.space
        columns = [*space.counts, np.eye(space.shape[-1])[space.places(len(space.groups))]]
        means = self.expected(np.concatenate(columns, axis=1).astype(np.float64))
        ends = np.cumsum([0, *(column.shape[1] for column in columns)])
        steps = strides(space.shape)
        state = start
        for _ in range(_TYPICAL_STEPS):
            number = 0
            for g, step in enumerate(steps):
                mean = means[state, ends[g] : ends[g + 1]]
                if g == len(space.groups):
                    number += int(mean.argmax()) * step
                else:
                    rounded = np.diff(np.round(np.cumsum(mean)), prepend=0.0).astype(np.int64)
                    rank = composition_rank([np.array(x) for x in rounded], space.n_parts[g])
                    number += int(rank) * step
            state = number
        return state

    def _direct(self, functions: Floats) -> Floats | None:
        """Return h with functions + P h - h nearly constant; None if the chain has no such h."""
        n = self.n_states
        anchor = int(np.linalg.matrix_power(self.matrix, 64).mean(axis=0).argmax())
        rows = np.broadcast_to(np.arange(n), (n, n))
        solve = chain_resolvent(rows, self.matrix, anchor)
        if solve is None:
            return None
        h = np.zeros_like(functions)
        means = np.zeros(functions.shape[1])
        for _ in range(REFINEMENTS):
            left = functions - means + self.matrix @ h - h
            step = np.stack([solve(column) for column in left.T], axis=1)
            if not np.isfinite(step).all():
                return None
            means += step[anchor]
            step[anchor] = 0.0
            h += step
        return h

    def _iterated(
        self, functions: Floats, tolerance: float, deadline: Deadline
    ) -> tuple[Floats, Means]:
        h = np.zeros_like(functions)
        best = Means(functions.min(axis=0), functions.max(axis=0))
        halved, width = 0, np.inf
        for sweep in range(SWEEPS):
            deadline.check()
            if sweep % _CHECKED == 0:
                means = self.bounds(functions, h)
                best = Means(
                    np.maximum(best.lower, means.lower), np.minimum(best.upper, means.upper)
                )
                if best.widest <= 0.5 * width:
                    halved, width = sweep, best.widest
                if self._done(best, functions, h, tolerance) or sweep > _PATIENCE * (halved + 64):
                    break
            change = functions + self.expected(h) - h
            h += _DAMPING * (change - 0.5 * (change.min(axis=0) + change.max(axis=0)))
        return h, best
