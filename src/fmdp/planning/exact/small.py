"""The Bellman backup of a small model in NumPy: no elimination, no compiled code.

The transition probabilities of all (state, action) pairs are written out as one dense array, and a
sweep is a product of that array with h. The exact planner runs on it as on the elimination engine:
value iteration, policy iteration on the written-out model (planning/tabular) and their certificates
are the same code. To load Numba takes longer than to plan for such a model, and to compile the
engine for the first time takes some ten seconds.

Cost: 8 bytes and one multiply-add per sweep for every pair and next state.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER
from fmdp.elimination.backup import Backup
from fmdp.elimination.decomposition import decompose
from fmdp.elimination.kernels import Pace
from fmdp.elimination.ties import Ties
from fmdp.model import FactoredMDP
from fmdp.model.spaces import project

Vector = NDArray[np.float64]

PAIRS = 1 << 12
"""Most (state, action) pairs."""
ENTRIES = 1 << 21
"""Most probabilities. To load Numba and the engine takes .4 s; 600,000 entries are planned in .03 s
and 10 million in .4 s if 13 sweeps are enough, and a thousand sweeps of 2 million take 1 s."""
_MEMORY_LIMIT = 1 << 30
"""Default for what a plan and all it keeps may take; it takes much less."""
_SECONDS_PER_ENTRY = 5e-10
_SECONDS_PER_SWEEP = 2e-5
_BYTES_PER_ENTRY = 24
"""Of the array and of its copy while it is built."""


def tabular_backup(model: FactoredMDP, memory_limit: int | None = None) -> TabularBackup | None:
    """Return the backup of a model that is small enough, None for others.

    Models whose effects are planned one component at a time are left to the engine: it breaks the
    ties of each component by itself.
    """
    structure = model.structure
    pairs = structure.n_states * structure.n_actions
    entries = pairs * structure.n_states
    limit = _MEMORY_LIMIT if memory_limit is None else memory_limit
    if pairs > PAIRS or entries > ENTRIES or _BYTES_PER_ENTRY * entries > limit:
        return None
    components = decompose(structure)
    if components is not None and components.describes(model):
        return None
    return TabularBackup(model, limit)


class _Layout(NamedTuple):
    """The properties of an elimination layout that plans report."""

    multiply_adds: int
    order: tuple[int, ...]
    branch: tuple[int, ...] = ()


class TabularBackup(Backup):
    """The operators of `Backup` for one model with few states; vectors are in C order."""

    compiled = False

    def __init__(self, model: FactoredMDP, memory_limit: int) -> None:
        # Not super().__init__: it would build an elimination program.
        structure = self.structure = model.structure
        n_states, n_actions = structure.n_states, structure.n_actions
        self.memory_limit, self.threads, self.deadline = memory_limit, 1, NEVER
        # Pairs with the action first: a maximum over actions is then one over contiguous rows.
        by_action = np.arange(n_states * n_actions).reshape(n_states, n_actions).T.reshape(-1)
        rows = np.ones((len(by_action), 1))
        for scope, table in zip(structure.transition_scopes, model.transitions, strict=True):
            factor = table[project(structure.sizes, scope)[by_action]]
            rows = (rows[:, :, None] * factor[:, None, :]).reshape(len(by_action), -1)
        self._rows = rows
        rewards = np.zeros(len(by_action))
        for scope, means in zip(structure.reward_scopes, model.rewards, strict=True):
            rewards += means[project(structure.sizes, scope)[by_action]]
        self._rewards = rewards.reshape(n_actions, n_states)
        if structure.constraints:
            self._rewards[~structure.allowed_mask().T] = -np.inf
        entries = rows.size
        self.layout: Any = _Layout(entries, tuple(range(structure.m)))
        # A probability is a product of m numbers, rows sum to 1 up to a rounding per value, a sum
        # of n products is rounded n times, and rewards are sums of their factors.
        self.roundings = (
            n_states + sum(structure.state_sizes) + 2 * structure.m + 2 * structure.l + 6
        )
        self.decision_bytes, self.vector_bytes = 0, 8 * 4 * n_states
        self.predicted_bytes = 8 * (entries + 2 * n_states * n_actions) + self.vector_bytes
        self.predicted_seconds = _SECONDS_PER_SWEEP + _SECONDS_PER_ENTRY * entries
        self.extremes = np.zeros(3)
        self._in_order = True
        self._states = np.arange(n_states)

    def _values(self, h: Vector) -> Vector:
        """Return R + P h: [A, S], -inf where an action is not allowed."""
        # Not BLAS: the last bits of its sums depend on its number of threads.
        values: Vector = np.einsum("ps,s->p", self._rows, h).reshape(self._rewards.shape)
        values += self._rewards
        return values

    def sweep(self, h: Vector, out: Vector) -> None:
        """out <- L h (no discount)."""
        self._values(h).max(axis=0, out=out)

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """out <- R_pi + P_pi h."""
        out[:] = self._values(h)[actions, self._states]

    def action_values(self, h: Vector, discount: float = 1.0) -> Vector:
        """Return R + discount * P h, -inf where an action is not allowed: [S, A]."""
        return np.ascontiguousarray(self._values(discount * h).T)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> NDArray[np.int64]:
        """Return a greedy action for every state; value <- what the chosen actions are worth."""
        values = self._values(h)
        actions = Ties(ties_rule, tie_seed).choose(values.T, slack)
        value[:] = values[actions, self._states]
        return actions

    def residual(self, h: Vector, new: Vector) -> None:
        """extremes <- min and max of new - h, and the largest |h|."""
        moved = new - h
        self.extremes[:] = moved.min(), moved.max(), np.abs(h).max()

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        """Mode ITERATE of the engine's kernel, without truncation."""
        for number in range(1, pace.sweeps + 1):
            self.sweep(h if pace.discount == 1.0 else pace.discount * h, new)
            self.residual(h, new)
            gap = self.extremes[1] - self.extremes[0]
            if gap <= pace.tolerance or number == pace.sweeps:
                return number
            self.advance(h, new, pace)
        return 0

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        """h <- (1 - tau) h + tau new, minus a constant that keeps it bounded."""
        shift = 0.0
        if pace.discount == 1.0:
            shift = pace.tau * 0.5 * float(self.extremes[0] + self.extremes[1])
        h += pace.tau * (new - h) - shift
