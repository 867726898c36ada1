"""Statistics: counts per factor (Xu & Tewari 2020, "Empirical estimates").

    N_P(x, s'), N_P(x) for x in X[Z_i],    N_R(x) and the sum of the rewards for x in X[Z_k],
    P-hat(s' | x) = N_P(x, s') / max{1, N_P(x)},    R-hat(x) = (sum of rewards) / max{1, N_R(x)}.

Rows that are known to be alike are one x: they are counted together. The arrays are flat over
entries and cells (entries.py) and are updated in place, by `record` or by the simulator's compiled
loop, both through `count` of model/entries.py. The row of an entry without visits has mass 0; the
confidence set or the posterior has to interpret that.

A learner may know the mean rewards (`know_rewards`). The range of every reward entry is then its
mean alone, so that bounds, samples and estimates, which stay inside the range, equal the known
mean. Observed rewards are counted all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import (
    NOT_JOINED,
    Counts,
    Entries,
    Index,
    count,
    entries_of,
    first_rows,
    locate,
    no_counts,
    split_cells,
    split_reward_entries,
)
from fmdp.model.expansion import pair_rows
from fmdp.model.naming import Assignment, in_order
from fmdp.model.spaces import shown

Floats = NDArray[np.float64]

RANGE_TOLERANCE = 1e-9
"""How far an observed reward may lie outside its range, relative to the size of the range."""
MOST_PAIRS = 1 << 24
"""Largest number of (state, action) pairs, times the number of factors, for `tries`."""


class Statistics:
    """Counts of steps in a structure: three arrays that only grow.

    An entry is one row of one factor, or a class of rows that the structure knows to be alike. The
    transition entries come first, factor by factor, then the reward entries; a cell is one next
    value of a transition entry. A step visits an entry once for each factor that shares it.

    Parameters
    ----------
    structure
        Structure of the model that the steps are taken in.
    """

    stepwise: ClassVar[bool] = False
    """Whether every step must be recorded by `record`, and not by the compiled loop."""

    def __init__(self, structure: Structure) -> None:
        if not isinstance(structure, Structure):
            raise InvalidParameter(
                f"Statistics are of a Structure, as model.structure is; got {quoted(structure)}"
            )
        self.structure = structure
        self.entries: Entries = entries_of(structure)
        self.counts: Counts = no_counts(self.entries)
        lo, hi = zip(*structure.reward_ranges, strict=True) if structure.l else ((), ())
        rows = np.array(structure.reward_rows, dtype=np.int64)
        firsts = first_rows(structure).rewards
        self.reward_lo: Floats = np.repeat(np.array(lo, dtype=np.float64), rows)[firsts]
        """The lower end of the range of every reward entry: [reward entries]."""
        self.reward_hi: Floats = np.repeat(np.array(hi, dtype=np.float64), rows)[firsts]
        """The upper end."""
        self.known_rewards: Floats | None = None
        """The mean of every reward entry if the learner knows it; else None."""
        self.joined: Entries = NOT_JOINED
        """`entries` if joint states and actions are counted; else empty."""
        self._joint = np.zeros(len(structure.sizes), dtype=np.int64)
        self._next = np.zeros(structure.m, dtype=np.int64)
        self._visited = np.zeros(structure.m + structure.l, dtype=np.int64)

    @property
    def cell_counts(self) -> Index:
        """N_P(x, s') of every cell: [cells]."""
        return self.counts.cells

    @property
    def visits(self) -> Index:
        """N(x) of every entry: [entries], transition entries first."""
        return self.counts.visits

    @property
    def reward_sums(self) -> Floats:
        """The sum of the observed rewards of every reward entry: [reward entries]."""
        return self.counts.reward_sums

    def rewards_of(self, model: FactoredMDP) -> Floats:
        """Return the mean of every reward entry in `model`: [reward entries]."""
        rows = [np.asarray(table, dtype=np.float64).reshape(-1) for table in model.rewards]
        return self._known(np.concatenate(rows) if rows else np.zeros(0))

    def _known(self, rows: Floats) -> Floats:
        means: Floats = rows[first_rows(self.structure).rewards]
        return np.clip(means, self.reward_lo, self.reward_hi)

    def know_rewards(self, means: Floats) -> None:
        """Set the known mean of every reward entry to `means`, a result of `rewards_of`."""
        self.known_rewards = self.reward_lo = self.reward_hi = means

    def tries(self) -> Index:
        """Return how often every joint action was tried in every state: [S, A].

        That is the sum, over the transition factors, of the visits to the row that the action uses
        there; with one factor it is N(s, a).

        Raises
        ------
        TooLarge
            If there are too many joint states and actions.
        """
        s = self.structure
        numbers = s.m * s.n_states * s.n_actions
        if numbers > MOST_PAIRS:
            raise TooLarge(
                f"{shown(s.n_states)} joint states and {shown(s.n_actions)} joint actions of {s.m} "
                f"factors make {shown(numbers)} counts of tries; at most {MOST_PAIRS} are allowed",
                8 * numbers,
                8 * MOST_PAIRS,
            )
        total: Index = self.visits[entries_of_pairs(s, s.m)].sum(axis=0)
        return total

    def record(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> None:
        """Count one step. A refused step changes nothing.

        Parameters
        ----------
        state, action, next_state
            One index or value name per variable, or a mapping or text by name, as in
            `Structure.check_state`.
        rewards
            One number per reward factor, inside its range, or a mapping by name.

        Raises
        ------
        InvalidParameter
            If it is not a step of this structure.
        """
        observed = self.check(state, action, rewards, next_state)
        locate(self.entries, self._joint, self._visited)
        count(self.entries, self._visited, self._next, observed, self.counts)

    def entries_of(self, state: Sequence[int], action: Sequence[int]) -> Index:
        """Return the entries that `action` visits in `state`, one per factor."""
        visited = np.zeros_like(self._visited)
        locate(self.entries, np.array([*state, *action], dtype=np.int64), visited)
        return visited

    def check(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> Floats:
        """Return the rewards of a step as an array, [l], without counting it.

        `state`, `action`, `rewards` and `next_state` are as in `record`.

        Raises
        ------
        InvalidParameter
            If it is not a step of this structure, or a constraint forbids the action.
        """
        s = self.structure
        checked_state, checked_action = s.check_state(state), s.check_action(action)
        s.check_allowed(checked_state, checked_action)
        checked_next = s.check_state(next_state, "next state")
        observed = self._check_rewards(rewards)
        self._joint[: s.m] = checked_state
        self._joint[s.m :] = checked_action
        self._next[:] = checked_next
        return observed

    def rewards_in_order(self, rewards: Sequence[float] | Mapping[str, float]) -> Sequence[float]:
        """Return `rewards` in the order of the factors: as they are, or from a mapping by name.

        Raises
        ------
        InvalidParameter
            If a name is unknown or missing.
        """
        if not isinstance(rewards, Mapping):
            return rewards
        numbers = {name: k for k, name in enumerate(self.structure.reward_names)}
        return in_order(rewards.items(), numbers, "reward factor", "rewards")

    def _check_rewards(self, rewards: Sequence[float] | Mapping[str, float]) -> Floats:
        s = self.structure
        rewards = self.rewards_in_order(rewards)
        try:
            observed = np.asarray(rewards, dtype=np.float64)
        except (TypeError, ValueError):
            observed = None
        if observed is None or observed.shape != (s.l,):
            raise InvalidParameter(
                f"rewards must be {s.l} numbers, one per reward factor; got {rewards!r}"
            )
        for k, (value, (lo, hi)) in enumerate(zip(observed.tolist(), s.reward_ranges, strict=True)):
            slack = RANGE_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
            if not lo - slack <= value <= hi + slack:
                raise InvalidParameter(
                    f"{s.reward_label(k)}: observed reward is {value!r}; "
                    f"must be in its range [{lo!r}, {hi!r}]"
                )
        return observed

    # ---- saving ---------------------------------------------------------------------------------

    def saved(self) -> dict[str, NDArray[Any]]:
        """Return arrays that a saved agent contains besides the counts, by name."""
        return {}

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> Statistics:
        """Return the statistics of a saved agent, without counts; `self` are those of a new one.

        `arrays` are those of its file, unchecked, and contain what `saved` returned.
        """
        return self

    # ---- estimates over entries and cells -------------------------------------------------------

    @property
    def transition_visits(self) -> Index:
        """N_P(x) of every transition entry: [transition entries], a view."""
        return self.visits[: self.entries.n_transition_entries]

    @property
    def reward_visits(self) -> Index:
        """N_R(x) of every reward entry: [reward entries], a view."""
        return self.visits[self.entries.n_transition_entries :]

    def transition_means(self) -> Floats:
        """Return P-hat of every cell, [cells]; 0 in rows without visits."""
        visits = np.maximum(self.transition_visits, 1)
        means: Floats = self.cell_counts / visits[self.entries.cell_entry]
        return means

    def reward_means(self) -> Floats:
        """Return R-hat of every reward entry, [reward entries]: the known mean, or 0 if never
        observed."""
        if self.known_rewards is not None:
            return self.known_rewards.copy()
        means: Floats = self.reward_sums / np.maximum(self.reward_visits, 1)
        return means

    # ---- counts per factor ----------------------------------------------------------------------

    def transition_counts(self, i: int) -> Index:
        """Return N_P(x, s') of transition factor `i`: [|X[Z_i]|, |S_i|].

        One row per assignment of the scope: a view or, if rows are alike, a copy in which each row
        has the counts of its class.
        """
        return split_cells(self.structure, self.cell_counts)[i]

    def reward_totals(self, k: int) -> tuple[Index, Floats]:
        """Return N_R(x) and the sum of the observed rewards of reward factor `k`: two [|X[Z_k]|].

        One number per assignment of the scope: views or, if rows are alike, copies in which each
        has the numbers of its class.
        """
        s = self.structure
        return (
            split_reward_entries(s, self.reward_visits)[k],
            split_reward_entries(s, self.reward_sums)[k],
        )


@lru_cache(maxsize=8)
def entries_of_pairs(structure: Structure, factors: int) -> Index:
    """Return the entries of the first factors at every state and joint action: [factors, S, A].

    Transition factors come first, then reward factors.
    """
    s, entries = structure, entries_of(structure)
    pairs = np.empty((factors, s.n_states * s.n_actions), dtype=np.int64)
    for factor, scope in enumerate((*s.transition_scopes, *s.reward_scopes)[:factors]):
        rows = entries.first_row[factor] + pair_rows(s, scope)
        pairs[factor] = entries.entry_of_row[rows] if len(entries.entry_of_row) else rows
    return pairs.reshape(factors, s.n_states, s.n_actions)


def check_statistics(statistics: object, owner: str) -> None:
    """Raise InvalidParameter if it is not an object of Statistics."""
    if not isinstance(statistics, Statistics):
        raise InvalidParameter(
            f"{owner} must be given Statistics, as agent.statistics is; got {shown(statistics)}"
        )
