"""Models written out: the rows of all states and actions, of a policy, or of some pairs.

Memory grows with states x actions x successors, so every function that writes something out takes
a limit and returns None above it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP
from fmdp.model.spaces import project_some, strides

if TYPE_CHECKING:  # SciPy's sparse matrices take long to load
    from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Actions = NDArray[np.integer[Any]]

MOST_ENTRIES = 1 << 23
"""States x actions x successors up to which a model is written out."""
BYTES_PER_ENTRY = 64
"""Memory for an entry of the lists and for what is computed from it."""
_CACHED_ENTRIES = 1 << 14
"""Entries that `TabularModel.advantages` works on at a time, so that they stay in the cache."""


def entries_within(memory_limit: int | None) -> int:
    """Return the entries that may be written out under a memory limit in bytes.

    Memory that is free at the moment does not count: the same run gives the same plan anywhere.
    """
    return (
        MOST_ENTRIES if memory_limit is None else min(MOST_ENTRIES, memory_limit // BYTES_PER_ENTRY)
    )


class Successors:
    """The rows of P as lists of successors, for models with few of them.

    Factor i has at most k_i successors in any row.  A joint row has at most `width` = prod_i k_i,
    and shorter rows are padded with entries of probability 0.
    """

    def __init__(self, model: FactoredMDP) -> None:
        self.structure = model.structure
        self.steps: list[Indices] = []  # [rows, k_i], the value times its stride
        self.probabilities: list[Floats] = []  # [rows, k_i]
        self.width = 1
        for table, stride in zip(
            model.transitions, strides(model.structure.state_sizes), strict=True
        ):
            most = int((table > 0).sum(axis=1).max())
            values = np.argsort(table == 0, axis=1, kind="stable")[:, :most]
            self.steps.append(values * stride)
            self.probabilities.append(np.take_along_axis(table, values, axis=1))
            self.width *= most

    def rows(self, actions: Actions) -> tuple[Indices, Floats]:
        """Return successors and probabilities [S, width] under one joint action per state."""
        return self.rows_of(_policy_pairs(self.structure.n_actions, actions))[:2]

    def rows_of(self, pairs: Indices) -> tuple[Indices, Floats, Mask]:
        """Return successors, probabilities and support [pairs, width].

        A pair is state * actions + action.  The support is that of the factors, since a product of
        probabilities may underflow.
        """
        structure = self.structure
        columns = np.zeros((len(pairs), 1), dtype=np.int64)
        weights = np.ones((len(pairs), 1))
        possible = np.ones((len(pairs), 1), dtype=np.bool_)
        for scope, steps, probabilities in zip(
            structure.transition_scopes, self.steps, self.probabilities, strict=True
        ):
            row = project_some(structure.sizes, scope, pairs)
            possible = _outer(np.logical_and, possible, (probabilities > 0.0)[row])
            columns = _outer(np.add, columns, steps[row])
            weights = _outer(np.multiply, weights, probabilities[row])
        return columns, weights, possible


def _outer(operation: np.ufunc, left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Combine [n, w] and [n, k] to [n, w * k], every number of a row with every one of the other.

    One pass for each of the k columns: NumPy is slow if its innermost loop has two steps.
    """
    product = np.empty((*left.shape, right.shape[1]), dtype=left.dtype)
    for place in range(right.shape[1]):
        operation(left, right[:, place, None], out=product[:, :, place])
    return product.reshape(len(left), -1)


def _policy_pairs(n_actions: int, actions: Actions) -> Indices:
    pairs: Indices = np.arange(len(actions)) * n_actions + actions
    return pairs


# ---- the matrix of a policy ----------------------------------------------------------------------


def policy_entries(
    model: FactoredMDP, actions: Actions, dropped: float = 0.0
) -> tuple[Indices, Indices, Floats]:
    """Return state, next state and probability of the entries above `dropped` of P under a policy.

    Entries are ordered by state, then by next state.
    """
    structure = model.structure
    pairs = _policy_pairs(structure.n_actions, actions)
    origin = np.arange(structure.n_states)
    target, weight = np.zeros_like(origin), np.ones(len(origin))
    for scope, size, table in zip(
        structure.transition_scopes, structure.state_sizes, model.transitions, strict=True
    ):
        rows = table[project_some(structure.sizes, scope, pairs)]  # [S, S_i]
        product = (weight[:, None] * rows[origin]).ravel()
        kept = product > dropped
        origin = np.repeat(origin, size)[kept]
        target = (target[:, None] * size + np.arange(size)).ravel()[kept]
        weight = product[kept]
    return origin, target, weight


def policy_matrix(model: FactoredMDP, actions: Actions) -> Floats:
    """Return the transition matrix [S, S] under one joint action per state."""
    n_states = model.structure.n_states
    matrix = np.zeros((n_states, n_states))
    origin, target, weight = policy_entries(model, actions)
    matrix[origin, target] = weight
    return matrix


def sparse_policy_matrix(model: FactoredMDP, actions: Actions) -> csr_array:
    """Return the transition matrix under one joint action per state, as a sparse one."""
    from scipy.sparse import csr_array

    n_states = model.structure.n_states
    origin, target, weight = policy_entries(model, actions)
    starts = np.searchsorted(origin, np.arange(n_states + 1))
    return csr_array((weight, target, starts), shape=(n_states, n_states))


# ---- models written out --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TabularModel:
    """The rows of a model; entries of probability 0 pad the shorter ones."""

    successors: Indices  # [S, A, width]
    probabilities: Floats  # [S, A, width]
    possible: Mask
    """[S, A, width]: the support, by the factors, since a product may underflow."""
    rewards: Floats  # [S, A]
    depth: int
    """Factors behind each probability and reward: the roundings that they carry."""
    reward_sizes: Floats
    """[S, A]: the sums of |reward| over the factors, at whose size the sums were rounded."""
    allowed_action: Indices | None = None
    """[S, A]: the action whose row is written, if constraints forbid some.  A forbidden action is
    the lowest allowed one under another number, which changes no value, gain or component."""

    @property
    def n_states(self) -> int:
        return int(self.successors.shape[0])

    @property
    def n_actions(self) -> int:
        return int(self.successors.shape[1])

    def allowed(self, actions: Indices) -> Indices:
        """Return a policy [S] with forbidden actions replaced by the ones that they stand for."""
        if self.allowed_action is None:
            return actions
        return np.take_along_axis(self.allowed_action, actions[:, None], axis=1)[:, 0]

    def advantages(self, h: Floats, at: Floats | None = None) -> tuple[Floats, Floats]:
        """Return r + P h - h of every state and action, and how far rounding can move each: [S, A].

        Summed as r + sum p (h' - h): what stays in place costs no digits, so that a state that is
        left once in 10^9 steps is as precise as any.  The probability of staying is taken as what
        the others leave.  `at` is h of the rows' own states, if these are not the states of h.
        """
        at = h if at is None else at
        worth, noise = self.rewards.copy(), self.reward_sizes.copy()
        at_once = max(1, _CACHED_ENTRIES // max(1, self.successors[0].size))
        for start in range(0, self.n_states, at_once):
            some = slice(start, start + at_once)
            moved = h[self.successors[some]]
            moved -= at[some, None, None]
            moved *= self.probabilities[some]
            worth[some] += moved.sum(axis=2)
            noise[some] += np.abs(moved, out=moved).sum(axis=2)
        noise *= relative_rounding(self.depth, self.successors.shape[2])
        return worth, noise

    def restricted(self, states: Indices, usable: Mask) -> TabularModel:
        """Return the model on some states with some actions [states, A], which do not leave it."""
        local = np.full(self.n_states, -1, dtype=np.int64)
        local[states] = np.arange(len(states))
        return TabularModel(
            np.where(self.possible[states], local[self.successors[states]], 0),
            self.probabilities[states],
            self.possible[states] & usable[:, :, None],
            self.rewards[states],
            self.depth,
            self.reward_sizes[states],
        )

    def chain(self, policy: Indices, states: Indices | None = None) -> TabularModel:
        """Return the chain of a policy [S], as a model with one action.

        `states` is a set that the policy does not leave, all states by default.
        """
        states = np.arange(self.n_states) if states is None else states
        local = np.zeros(self.n_states, dtype=np.int64)
        local[states] = np.arange(len(states))
        chosen = policy[states]
        return TabularModel(
            local[self.successors[states, chosen]][:, None],
            self.probabilities[states, chosen][:, None],
            self.possible[states, chosen][:, None],
            self.rewards[states, chosen][:, None],
            self.depth,
            self.reward_sizes[states, chosen][:, None],
        )


def relative_rounding(depth: int, terms: int) -> float:
    """Return a generous bound on the relative error of a sum of products of `depth` factors."""
    return 2 * (depth + terms + 4) * float(np.finfo(np.float64).eps)


def write_out(model: FactoredMDP, entries: int = MOST_ENTRIES) -> TabularModel | None:
    """Return the model written out; None if it has more entries than that."""
    structure = model.structure
    n_states, n_actions = structure.n_states, structure.n_actions
    if n_states * n_actions > entries:
        return None
    lists = Successors(model)
    if n_states * n_actions * lists.width > entries:
        return None
    pairs = structure.allowed_pairs()
    written = _written(model, lists, pairs, n_actions)
    if not structure.constraints:
        return written
    return replace(written, allowed_action=pairs.reshape(n_states, n_actions) % n_actions)


def write_out_chain(
    model: FactoredMDP, actions: Actions, entries: int = MOST_ENTRIES
) -> TabularModel | None:
    """Return the chain of a policy as a model with one action; None if it has too many entries."""
    n_states = model.structure.n_states
    if n_states > entries:
        return None
    lists = Successors(model)
    if n_states * lists.width > entries:
        return None
    return _written(model, lists, _policy_pairs(model.structure.n_actions, actions), 1)


def write_out_mixture(
    model: FactoredMDP, mixture: Sequence[tuple[Floats, Actions]], entries: int = MOST_ENTRIES
) -> TabularModel | None:
    """Return the chain of a policy that is given as pairs (weights, actions), each [S].

    None if it has too many entries.
    """
    chains = []
    for _, actions in mixture:
        chain = write_out_chain(model, actions, entries // len(mixture))
        if chain is None:
            return None
        chains.append(chain)
    if len(chains) == 1:
        return chains[0]
    weights = [weights[:, None, None] for weights, _ in mixture]
    pairs = list(zip(weights, chains, strict=True))
    return TabularModel(
        np.concatenate([chain.successors for chain in chains], axis=2),
        np.concatenate([weight * chain.probabilities for weight, chain in pairs], axis=2),
        np.concatenate([(weight > 0.0) & chain.possible for weight, chain in pairs], axis=2),
        sum((weight[:, 0] * chain.rewards for weight, chain in pairs), np.zeros(1)),
        chains[0].depth + len(chains) + 2,
        sum((weight[:, 0] * chain.reward_sizes for weight, chain in pairs), np.zeros(1)),
    )


def write_out_pairs(model: FactoredMDP, lists: Successors, pairs: Indices) -> TabularModel:
    """Return the rows of any pairs, each as if it were a state with one action.

    A pair is state * actions + action; successors are states of the model.
    """
    return _written(model, lists, pairs, 1)


def _written(model: FactoredMDP, lists: Successors, pairs: Indices, n_actions: int) -> TabularModel:
    structure = model.structure
    columns, weights, possible = lists.rows_of(pairs)
    rewards, sizes = np.zeros(len(pairs)), np.zeros(len(pairs))
    for scope, means in zip(structure.reward_scopes, model.rewards, strict=True):
        paid = means[project_some(structure.sizes, scope, pairs)]
        rewards += paid
        sizes += np.abs(paid)
    shape = (len(pairs) // n_actions, n_actions, -1)
    return TabularModel(
        columns.reshape(shape),
        weights.reshape(shape),
        possible.reshape(shape),
        rewards.reshape(shape[:2]),
        structure.m + structure.l,
        sizes.reshape(shape[:2]),
    )
