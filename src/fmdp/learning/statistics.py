"""Statistics: what a learner has counted, per factor (Xu & Tewari 2020, "Empirical estimates").

    N_P(x, s'), N_P(x) for x in X[Z_i],    N_R(x) and the sum of the rewards for x in X[Z_k],
    P-hat(s' | x) = N_P(x, s') / max{1, N_P(x)},    R-hat(x) = (sum of rewards) / max{1, N_R(x)}.

Rows that are known to be alike are one x here: they are counted together. The arrays are flat over
entries and cells (entries.py) and are filled in place, by `record` or by the simulator's compiled
loop through the same `count` of model/entries.py. An entry that was never visited has a row of mass
0: what that means is for the confidence set or the posterior to say.

A learner may know the mean rewards (`know_rewards`). Every reward entry then has a range that is
its mean alone, so that bounds, samples and estimates, all of which stay inside the range, are the
known mean whatever was observed. Observed rewards are counted all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

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
from fmdp.model.naming import Assignment, in_order
from fmdp.model.spaces import project, shown

Floats = NDArray[np.float64]

RANGE_TOLERANCE = 1e-9
"""How far an observed reward may lie outside its range, relative to the size of the range."""


MOST_PAIRS = 1 << 24
"""Up to so many pairs of a state and an action, times the number of factors, are tries counted."""


class Statistics:
    """What has been counted in a structure: three arrays that only grow.

    An entry is one row of one factor, or a class of rows that the structure knows to be alike. The
    transition entries come first, factor by factor, then those of the rewards; a cell is one next
    value of a transition entry. An entry that several factors share is visited once for each of
    them in a step.

    Parameters
    ----------
    structure
        Of the model that the steps are taken in.
    """

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
        """The mean of every reward entry where the learner knows it; else None."""
        self.joined: Entries = NOT_JOINED
        """`entries`, where these are of joint states and actions; else nothing."""
        self._joint = np.zeros(len(structure.sizes), dtype=np.int64)
        self._next = np.zeros(structure.m, dtype=np.int64)
        self._found = np.zeros(structure.m + structure.l, dtype=np.int64)

    @property
    def cell_counts(self) -> Index:
        """N_P(x, s') of every cell: [cells]."""
        return self.counts.cells

    @property
    def visits(self) -> Index:
        """N(x) of every entry: [entries], those of the transitions first."""
        return self.counts.visits

    @property
    def reward_sums(self) -> Floats:
        """The sum of the observed rewards of every reward entry: [reward entries]."""
        return self.counts.reward_sums

    def rewards_of(self, model: FactoredMDP) -> Floats:
        """Return the mean of every reward entry in a model: [reward entries].

        Parameters
        ----------
        model
            A model with the structure that the steps are taken in.
        """
        rows = [np.asarray(table, dtype=np.float64).reshape(-1) for table in model.rewards]
        return self._known(np.concatenate(rows) if rows else np.zeros(0))

    def _known(self, rows: Floats) -> Floats:
        means: Floats = rows[first_rows(self.structure).rewards]
        return np.clip(means, self.reward_lo, self.reward_hi)

    def know_rewards(self, means: Floats) -> None:
        """Take the mean of every reward entry as known.

        Parameters
        ----------
        means
            As `rewards_of` gives them: [reward entries].
        """
        self.known_rewards = self.reward_lo = self.reward_hi = means

    def tries(self) -> Index:
        """Return how often every joint action was tried in every state: [S, A].

        That is the sum, over the transition factors, of the visits to the row that the action uses
        there; with one factor it is N(s, a).

        Raises
        ------
        TooLarge
            Where there are too many joint states and actions.
        """
        total: Index = self.visits[transition_entries_of_pairs(self.structure)].sum(axis=0)
        return total

    def record(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> None:
        """Count one step; everything is checked first, so a refused step leaves no trace.

        Parameters
        ----------
        state, action, next_state
            One value for each variable, by number or by name; or a mapping or a text by name, as in
            `Structure.check_state`.
        rewards
            One number for each reward factor, in the unit of the model, inside its range; or a
            mapping from the names of the reward factors.

        Raises
        ------
        InvalidParameter
            Where it is no step of this structure.
        """
        observed = self.check(state, action, rewards, next_state)
        locate(self.entries, self._joint, self._found)
        count(self.entries, self._found, self._next, observed, self.counts)

    def entries_of(self, state: Sequence[int], action: Sequence[int]) -> Index:
        """Return the entries that are visited by this action in this state: one per factor.

        Parameters
        ----------
        state, action
            One value for each variable, by number.
        """
        found = np.zeros_like(self._found)
        locate(self.entries, np.array([*state, *action], dtype=np.int64), found)
        return found

    def check(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> Floats:
        """Refuse a step that cannot be, and count nothing.

        Parameters
        ----------
        state, action, next_state
            One value for each variable, by number or by name; or a mapping or a text by name, as in
            `Structure.check_state`.
        rewards
            One number for each reward factor, in the unit of the model, inside its range; or a
            mapping from the names of the reward factors.

        Returns
        -------
        Floats
            The rewards as an array, [l].

        Raises
        ------
        InvalidParameter
            Where it is no step of this structure, or a constraint forbids the action.
        """
        s = self.structure
        before, done = s.check_state(state), s.check_action(action)
        s.check_allowed(before, done)
        after = s.check_state(next_state, "next state")
        observed = self._check_rewards(rewards)
        self._joint[: s.m] = before
        self._joint[s.m :] = done
        self._next[:] = after
        return observed

    def rewards_in_order(self, rewards: Sequence[float] | Mapping[str, float]) -> Sequence[float]:
        """The rewards as they are given, or in the order of the factors where they come by name.

        Parameters
        ----------
        rewards
            One number for each reward factor, or a mapping from the names of the reward factors.

        Raises
        ------
        InvalidParameter
            Where a name is unknown, or one is missing.
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
                f"rewards must be {s.l} numbers, one a reward factor; got {rewards!r}"
            )
        for k, (value, (lo, hi)) in enumerate(zip(observed.tolist(), s.reward_ranges, strict=True)):
            slack = RANGE_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
            if not lo - slack <= value <= hi + slack:
                raise InvalidParameter(
                    f"{s.reward_label(k)}: observed reward is {value!r}; "
                    f"must be in its range [{lo!r}, {hi!r}]"
                )
        return observed

    # ---- estimates, flat ------------------------------------------------------------------------

    @property
    def transition_visits(self) -> Index:
        """N_P(x) of every transition entry: [transition entries], a view."""
        return self.visits[: self.entries.n_transition_entries]

    @property
    def reward_visits(self) -> Index:
        """N_R(x) of every reward entry: [reward entries], a view."""
        return self.visits[self.entries.n_transition_entries :]

    def transition_means(self) -> Floats:
        """P-hat of every cell: [cells]; 0 in rows that were never visited."""
        visits = np.maximum(self.transition_visits, 1)
        means: Floats = self.cell_counts / visits[self.entries.cell_entry]
        return means

    def reward_means(self) -> Floats:
        """R-hat of every reward entry, [reward entries], 0 where nothing was seen; the mean itself
        where it is known."""
        if self.known_rewards is not None:
            return self.known_rewards.copy()
        means: Floats = self.reward_sums / np.maximum(self.reward_visits, 1)
        return means

    # ---- the same, factor by factor -------------------------------------------------------------

    def transition_counts(self, i: int) -> Index:
        """N_P(x, s') of one factor.

        Parameters
        ----------
        i
            The number of the state variable, from 0.

        Returns
        -------
        Index
            [|X[Z_i]|, |S_i|]: a row for each assignment of the scope, a view; where rows are
            alike, a copy in which each has the counts of its class.
        """
        return split_cells(self.structure, self.cell_counts)[i]

    def reward_totals(self, k: int) -> tuple[Index, Floats]:
        """N_R(x) and the sum of the observed rewards of one factor.

        Parameters
        ----------
        k
            The number of the reward factor, from 0.

        Returns
        -------
        tuple[Index, Floats]
            Two views [|X[Z_k]|]: a number for each assignment of the scope; where rows are alike,
            copies in which each has the numbers of its class.
        """
        s = self.structure
        return (
            split_reward_entries(s, self.reward_visits)[k],
            split_reward_entries(s, self.reward_sums)[k],
        )


@lru_cache(maxsize=8)
def transition_entries_of_pairs(structure: Structure) -> Index:
    """Return the entry of every transition factor at every state and joint action: [m, S, A]."""
    s, entries = structure, entries_of(structure)
    numbers = s.m * s.n_states * s.n_actions
    if numbers > MOST_PAIRS:
        raise TooLarge(
            f"{shown(s.n_states)} joint states and {shown(s.n_actions)} joint actions of {s.m} "
            f"factors make {shown(numbers)} counts of tries; at most {MOST_PAIRS} are allowed",
            8 * numbers,
            8 * MOST_PAIRS,
        )
    found = np.empty((s.m, s.n_states * s.n_actions), dtype=np.int64)
    for factor, scope in enumerate(s.transition_scopes):
        rows = entries.first_row[factor] + project(s.sizes, scope)
        found[factor] = entries.entry_of_row[rows] if len(entries.entry_of_row) else rows
    return found.reshape(s.m, s.n_states, s.n_actions)
