"""Statistics of a run whose scopes are chosen while it goes on.

The counts are those of the structure with the scopes of the moment, so that every learner can use
them. `with_scopes` returns the statistics of the same steps under other scopes; the evidence about
all candidates is shared between them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.learning.encoding import refuse_larger
from fmdp.learning.statistics import Statistics
from fmdp.learning.unknown.evidence import Evidence, Scope
from fmdp.model import Alike, Structure
from fmdp.model.entries import split_cells
from fmdp.model.naming import Assignment
from fmdp.planning.policies.archive import array_in

NO_PARENT = -1
"""Fills up the rows of an array of scopes."""


class ScopeStatistics(Statistics):
    """Counts under chosen scopes, and the evidence about all candidates.

    Parameters
    ----------
    structure
        Structure of the model to act in. Its variables, values, reward factors and constraints are
        used, not its transition scopes.
    scopes
        The chosen scope of every state variable.
    evidence
        Steps and counts of the candidates.
    changes
        For each change so far: the step, the state variable, and its new scope.
    """

    stepwise = True

    def __init__(
        self,
        structure: Structure,
        scopes: Sequence[Scope],
        evidence: Evidence,
        changes: tuple[tuple[int, int, Scope], ...] = (),
    ) -> None:
        super().__init__(structure_with_scopes(structure, scopes))
        self.evidence = evidence
        self.changes = changes

    def record(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> None:
        super().record(state, action, rewards, next_state)
        self.evidence.append(self._joint, self._next)

    @property
    def preparations(self) -> int:
        """Number of times that scopes changed, so that the planner was prepared anew."""
        return len({step for step, _, _ in self.changes})

    def with_scopes(self, scopes: Sequence[Scope]) -> ScopeStatistics:
        """Return the statistics of the same steps under other scopes; itself for the same."""
        before = self.structure.transition_scopes
        scopes = tuple(scopes)
        if scopes == before:
            return self
        steps = self.evidence.steps
        news = tuple((steps, i, new) for i, new in enumerate(scopes) if new != before[i])
        changed = ScopeStatistics(self.structure, scopes, self.evidence, self.changes + news)
        changed._fill_counts(self)
        if self.known_rewards is not None:
            changed.know_rewards(self.known_rewards)
        return changed

    def _fill_counts(self, before: Statistics) -> None:
        """Count the transitions anew where a scope differs; take over all other counts."""
        s, n = self.structure, self.entries.n_transition_entries
        old = split_cells(before.structure, before.cell_counts)
        tables = [
            old[i] if scope == before.structure.transition_scopes[i] else self.counts_of(i, scope)
            for i, scope in enumerate(s.transition_scopes)
        ]
        self.counts.cells[:] = np.concatenate([table.reshape(-1) for table in tables])
        self.counts.visits[:n] = np.concatenate([table.sum(axis=1) for table in tables])
        self.counts.visits[n:] = before.reward_visits
        self.counts.reward_sums[:] = before.reward_sums

    def counts_of(self, i: int, scope: Scope) -> NDArray[np.int64]:
        """Return the counts of state variable `i` under any scope: [rows, values]."""
        table: NDArray[np.int64] = self.evidence.counts(i, scope).astype(np.int64)
        return table

    # ---- saving ---------------------------------------------------------------------------------

    def saved(self) -> dict[str, NDArray[Any]]:
        changes = [[step, i, *_padded(scope, self.structure)] for step, i, scope in self.changes]
        width = 2 + len(self.structure.all_sizes)
        return {
            "statistics.log": self.evidence.log,
            "statistics.scopes": np.array(
                [_padded(scope, self.structure) for scope in self.structure.transition_scopes],
                dtype=np.int64,
            ),
            "statistics.changes": np.array(changes, dtype=np.int64).reshape(-1, width),
        }

    def restored(self, arrays: Mapping[str, NDArray[Any]]) -> Statistics:
        s = self.structure
        n = len(s.all_sizes)
        log = array_in(arrays, "statistics.log", "u", (None, len(s.sizes) + s.m))
        sizes = np.array([*s.sizes, *s.state_sizes], dtype=np.int64)
        if (log >= sizes).any():
            raise InvalidParameter("its steps have values that the variables do not have")
        scopes = array_in(arrays, "statistics.scopes", "i", (s.m, n), NO_PARENT, n - 1)
        changes = array_in(arrays, "statistics.changes", "i", (None, 2 + n), NO_PARENT)
        chosen = [_scope(row) for row in scopes.tolist()]
        refuse_larger(structure_with_scopes(s, chosen), arrays)
        self.evidence.extend(log)
        changed = tuple((int(row[0]), int(row[1]), _scope(row[2:])) for row in changes.tolist())
        return ScopeStatistics(s, chosen, self.evidence, changed)


def _padded(scope: Scope, structure: Structure) -> list[int]:
    return [*scope, *[NO_PARENT] * (len(structure.all_sizes) - len(scope))]


def _scope(row: Sequence[int]) -> Scope:
    return tuple(v for v in row if v != NO_PARENT)


def structure_with_scopes(structure: Structure, scopes: Sequence[Scope]) -> Structure:
    """Return the structure with other transition scopes.

    Rows of rewards that are known to be alike stay so. Which rows of transitions are alike, and
    effects, are knowledge of the scopes, and are dropped.
    """
    s = structure
    changed = s.with_factors(
        tuple(scopes), s.reward_scopes, s.reward_ranges, s.reward_names, s.groups, None,
        s.constraints, None,
    )  # fmt: skip
    if s.alike is None or not s.l:
        return changed
    starts = np.cumsum([0, *changed.transition_rows])
    rows = tuple(np.arange(a, b) for a, b in pairwise(starts.tolist()))
    return s.with_factors(
        changed.transition_scopes, s.reward_scopes, s.reward_ranges, s.reward_names, s.groups,
        Alike(rows, s.alike.rewards), s.constraints, None,
    )  # fmt: skip
