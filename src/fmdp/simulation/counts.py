"""The count process of a model with exchangeable parts, simulated under a policy on counts.

The law is that of the full model: given state and action, the parts of one class move independently
with one row, so their next counts are multinomial. A step draws a few binomial numbers, whatever
the number of parts (count_kernels.py), and is a thousand times faster than one of the full model
with thousands of parts. Seeded runs are reproducible, but differ from those of `Environment`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base import portable_math
from fmdp.planning.counts.policy_chain import PolicyChain
from fmdp.simulation.count_kernels import Moves, Numbering, play_counts
from fmdp.simulation.pcg64 import MULTIPLIER, halves

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class CountEnvironment:
    """A run of the count process under one policy.

    Parameters
    ----------
    chain
        The policy on counts.
    state
        The first state, by number of its counts.
    seed
        Seed of the draws.
    """

    def __init__(self, chain: PolicyChain, state: int, seed: int | np.random.SeedSequence) -> None:
        self.chain = chain
        self.state = state
        """Number of the current state of the quotient."""
        self.steps = 0
        """Steps so far."""
        self._numbering = _numbering(chain)
        self._moves = _moves(chain)
        space = chain.quotient.space
        self._counts = np.zeros(sum(space.n_local), dtype=np.int64)
        self._totals = np.zeros(1)
        generator: Any = np.random.PCG64(seed).state["state"]
        self._words = np.array(halves(generator["state"]), dtype=np.uint64)
        self._increment = np.array(
            [*halves(MULTIPLIER), *halves(generator["inc"])], dtype=np.uint64
        )

    def move_to(self, state: Sequence[int]) -> None:
        """Continue from a joint state of the model."""
        self.state = self.chain.quotient.space.state_of(state)

    def play(self, steps: int) -> float:
        """Take some steps, and return the sum of their expected rewards."""
        self._totals[0] = 0.0
        self.state = play_counts(
            self._moves,
            self._numbering,
            self.state,
            steps,
            self._words,
            self._increment,
            self._counts,
            self._totals,
        )
        self.steps += steps
        return float(self._totals[0])


def _numbering(chain: PolicyChain) -> tuple[Any, ...]:
    """Return how the kernel numbers the states, as a plain tuple."""
    space = chain.quotient.space
    strides = [math.prod(space.shape[axis + 1 :]) for axis in range(len(space.shape))]
    most = max(space.n_parts, default=0)
    bins = max(space.n_local, default=1)
    choose = [[math.comb(r + j, j) for j in range(bins)] for r in range(most + 1)]
    logs = portable_math.log(np.arange(1, most + 1))
    return tuple(
        Numbering(
            group_first=np.cumsum([0, *space.n_local]),
            parts=np.array(space.n_parts, dtype=np.int64),
            group_step=np.array(strides[:-1], dtype=np.int64),
            # Numbers beyond the range are never used: no state has such a rank.
            choose=np.array(np.minimum(np.array(choose, dtype=object), 2**62), dtype=np.int64),
            log_factorial=np.concatenate([[0.0], np.cumsum(logs)]),
        )
    )


def _moves(chain: PolicyChain) -> tuple[Any, ...]:
    """Return what can happen in each state, as a plain tuple."""
    quotient = chain.quotient
    space, n = quotient.space, chain.n_states
    first_bins = np.cumsum([0, *space.n_local])
    widths = [
        max((len(r.base) + len(r.extra) for r in of_group.regimes), default=0)
        for of_group in quotient.regimes
    ]
    columns = np.cumsum([0, *widths])
    sizes = np.zeros((n, columns[-1]), dtype=np.int64)
    laws = np.zeros((n, columns[-1]), dtype=np.int64)
    known: dict[bytes, int] = {}
    rows: list[Floats] = []
    for _, values in chain.by_move():
        for g, of_group in enumerate(quotient.regimes):
            numbers = of_group.numbers(values)
            for number in np.unique(numbers).tolist():
                regime = of_group.regimes[number]
                some = np.flatnonzero(numbers == number)
                states = values.states[some]
                for t, row in enumerate((*regime.base, *regime.extra)):
                    law = known.setdefault(row.tobytes(), len(rows))
                    if law == len(rows):
                        rows.append(row)
                    laws[states, columns[g] + t] = law
                for c in values.present[g]:
                    column = columns[g] + int(regime.type_of[c])
                    sizes[states, column] += values.counts[g][c][some]
    group_of = np.repeat(np.arange(len(widths)), widths)
    common, common_law = np.zeros((0, 1)), np.zeros(0, dtype=np.int32)
    if chain.pairs.laws is not None:
        common, common_law = np.cumsum(quotient.laws, axis=1), chain.pairs.laws
    return tuple(
        Moves(
            reward=chain.pairs.rewards,
            sizes=sizes,
            laws=laws,
            first_bin=first_bins[group_of],
            n_bins=np.array(space.n_local)[group_of],
            conditional=_conditional(rows),
            common=common,
            common_law=common_law,
        )
    )


def _conditional(rows: Sequence[Floats]) -> Floats:
    """Return the probability of each entry given that it is none of the earlier ones."""
    table = np.zeros((len(rows), max(map(len, rows), default=1)))
    for row, out in zip(rows, table, strict=True):
        left = np.cumsum(row[::-1])[::-1]
        out[: len(row)] = np.divide(row, left, out=np.zeros_like(row), where=left > 0.0)
    return table
