"""Tests whether any candidate scope explains the observed steps, or the bound is too small.

As in residuals.py, the next value of variable i may depend on something w besides its scope: on
another variable of the current step, on the next value of another variable, or on the previous
step. Here no scope is given. Let L(Z) be the largest likelihood of the observed next values of i
under candidate Z, and S(Z, w) their probability (scores.py) if rows may depend on Z and on w. For
the pair of i and w

    E = S(Z, w) / (number of candidates of i) / max over candidates Z' of L(Z'),

where Z is the most probable candidate now. The sum of S(Z, w) over all candidates, divided by their
number, is a probability of sequences, and at least the numerator. If some candidate Z* contains all
parents, the denominator is at least the likelihood under the true rows. So E is at most a
nonnegative martingale that starts at 1, although Z is chosen by the steps, and an alarm at E >= K /
a for one of K pairs is false with probability at most a in an endless run (Ville's inequality).

The steps are kept by the learner, so a test needs no counts of its own. A variable whose scope is
given has one candidate; it is not tested if that scope names derived variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.learning.residuals import (
    FALSE_ALARMS,
    REASONS,
    WHEN,
    Finding,
    checked_arrays,
    next_test_after,
)
from fmdp.learning.statistics import Floats
from fmdp.learning.unknown.evidence import Scope
from fmdp.learning.unknown.scores import fit_and_score
from fmdp.model.entries import Index
from fmdp.model.spaces import strides

if TYPE_CHECKING:
    from fmdp.learning.unknown.learner import ScopeLearner
    from fmdp.learning.unknown.statistics import ScopeStatistics

GROWTH = 4
"""The next test is due when a fourth more steps have been observed: each scores all candidates."""


class CandidateMonitor:
    """The alarms so far of a run with unknown scopes. Steps before its start are tested, too.

    Parameters
    ----------
    learner
        A learner with unknown scopes.
    seen
        Statistics of its run.
    """

    def __init__(self, learner: ScopeLearner, seen: ScopeStatistics) -> None:
        s = self.structure = seen.structure
        self._learner, self._seen = learner, seen
        self._hints = learner.hints(s)
        sizes = np.array([*s.sizes, *s.state_sizes, *s.sizes], dtype=np.int64)
        self._sizes = sizes
        """Sizes of all w: current state and action, next state, previous state and action."""
        self._sources: list[Index] = [
            np.array([w for w in range(len(sizes)) if self._is_pair(i, w)], dtype=np.int64)
            for i in range(s.m)
        ]
        self.alarms: Index = np.zeros(s.m, dtype=np.int64)
        """[m]: number of observed steps at the first alarm; 0 for none."""
        self.evidence: Floats = np.zeros((s.m, len(sizes)))
        """[m, sources]: log E at the last test."""
        self._findings: tuple[Finding, ...] = ()
        if seen.evidence.steps:
            self.test()
        self._due = next_test_after(seen.evidence.steps, GROWTH)

    def _is_pair(self, i: int, w: int) -> bool:
        s, n = self.structure, len(self.structure.sizes)
        earlier = w < n or w >= n + s.m or w - n < i
        return earlier and min(int(self._sizes[w]), s.state_sizes[i]) > 1

    def observe(
        self, state: Sequence[int], action: Sequence[int], next_state: Sequence[int]
    ) -> None:
        """Test if that is due; the step itself has been recorded."""
        if self._seen.evidence.steps >= self._due:
            self.test()
            self._due = next_test_after(self._seen.evidence.steps, GROWTH)

    def test(self) -> None:
        """Compute the evidence of all pairs, and note new alarms."""
        values = _values(self._seen.evidence.log, self.structure.m)
        limit = math.log(max(sum(map(len, self._sources)), 1) / FALSE_ALARMS)
        for i, sources in enumerate(self._sources):
            self._test_variable(i, sources, values)
            largest = self.evidence[i, sources].max(initial=-math.inf)
            if self.alarms[i] == 0 and largest >= limit:
                self.alarms[i] = self._seen.evidence.steps
        self._findings = self._strongest_alarms()

    def _test_variable(self, i: int, sources: Index, values: NDArray[Any]) -> None:
        scope, n_candidates, largest_fit = self._candidate(i)
        if any(v >= len(self.structure.sizes) for v in scope):
            return
        contexts, n_contexts = self._joint(values, [v for v in scope if v < self.structure.m])
        actions, n_actions = self._joint(values, [v for v in scope if v >= self.structure.m])
        shape = n_contexts, n_actions, self.structure.state_sizes[i]
        moved = values[:, len(self.structure.sizes) + i].astype(np.int64)
        scores = np.empty(len(sources))
        rows = contexts, actions, moved
        _score_pairs(values, sources, self._sizes, rows, shape, self._logs(i), scores)
        self.evidence[i, sources] = scores - math.log(n_candidates) - largest_fit

    def _candidate(self, i: int) -> tuple[Scope, int, float]:
        """Return the most probable candidate, the number of candidates, and their largest fit."""
        evidence = self._seen.evidence
        candidates = self._learner.candidates(self._seen)[i]
        if candidates.given:
            scope = candidates.scopes[0]
            if any(v >= len(self.structure.sizes) for v in scope):
                return scope, 1, 0.0
            counts = evidence.counts(i, scope)[:, None]
            return scope, 1, fit_and_score(counts, *self._logs(i))[0]
        scores, fits = (array[candidates.places, i] for array in evidence.scores())
        best = int((scores + candidates.log_prior).argmax())
        return candidates.scopes[best], len(scores), float(fits.max())

    def _logs(self, i: int) -> tuple[Floats, Floats, Floats]:
        """Return the logarithms of counts of variable `i`, for `fit_and_score`."""
        evidence = self._seen.evidence
        logs = evidence.logs
        return logs.of_cell[evidence.size_places[i]], logs.of_row, logs.entropy

    def _joint(self, values: NDArray[Any], variables: Sequence[int]) -> tuple[Index, int]:
        """Return the joint value of some variables in every step, and the number of such values."""
        sizes = [self.structure.sizes[v] for v in variables]
        steps = np.array(strides(sizes), dtype=np.int64)
        joint: Index = values[:, list(variables)].astype(np.int64) @ steps
        return joint, math.prod(sizes)

    # ---- what was found -------------------------------------------------------------------------

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The strongest dependence of every variable with an alarm, the strongest first."""
        return self._findings

    def _strongest_alarms(self) -> tuple[Finding, ...]:
        s = self.structure
        n = len(s.sizes)
        findings = []
        for i in np.flatnonzero(self.alarms).tolist():
            sources = self._sources[i]
            w = int(sources[self.evidence[i, sources].argmax()])
            when = (w >= n) + (w >= n + s.m)
            variable = w - (0, n, n + s.m)[when]
            finding = Finding(
                s.state_names[i],
                s.names[variable],
                WHEN[when],
                float(self.evidence[i, w]) / math.log(10.0),
                int(self.alarms[i]),
                REASONS[WHEN[when]] if when else self._reason(i, variable),
            )
            findings.append(finding)
        findings.sort(key=lambda finding: -finding.log10_evidence)
        return tuple(findings)

    def _reason(self, i: int, variable: int) -> str:
        """Return why no candidate has this parent besides the others."""
        if i in self._hints.given:
            return "which is not in its given scope"
        if variable in self._hints.forbidden[i]:
            return "an edge that is forbidden"
        learner, kind = self._learner, "parent" if variable < self.structure.m else "action parent"
        bound = learner.parents if kind == "parent" else learner.action_parents
        reason = (
            f"besides its learned scope: the bound of {bound} {kind}{'s' if bound != 1 else ''} "
            f"is too small"
        )
        return reason + (", or a required edge is wrong" if self._hints.required[i] else "")

    # ---- saving ---------------------------------------------------------------------------------

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays by name."""
        return {"alarms": self.alarms, "evidence": self.evidence}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set the state to a result of `arrays`; raise InvalidParameter if it does not fit."""
        checked = checked_arrays(arrays, self.arrays())
        self.alarms, self.evidence = checked["alarms"], checked["evidence"]
        self._findings = self._strongest_alarms()


def _values(log: NDArray[Any], m: int) -> NDArray[Any]:
    """Return the values of all w in every step: [steps, sources].

    Where a step does not follow from the one before it, its previous values are set to 0: a
    function of what was observed before, as the proof needs.
    """
    n = log.shape[1] - m
    previous = np.zeros((len(log), n), dtype=log.dtype)
    if len(log) > 1:
        follows = (log[:-1, n:] == log[1:, :m]).all(axis=1)
        previous[1:] = np.where(follows[:, None], log[:-1, :n], 0)
    return np.concatenate([log, previous], axis=1)


@njit(nogil=True)
def _score_pairs(values, sources, sizes, rows, shape, logs, scores):  # type: ignore[no-untyped-def]
    """Fill the scores of a variable, [sources], if its rows may depend on one more value each."""
    contexts, actions, moved = rows
    n_contexts, n_actions, n_values = shape
    of_cell, of_row, entropy = logs
    for p in range(sources.size):
        w = sources[p]
        table = np.zeros((sizes[w] * n_contexts, n_actions, n_values), dtype=np.int32)
        for t in range(moved.size):
            table[values[t, w] * n_contexts + contexts[t], actions[t], moved[t]] += 1
        scores[p] = fit_and_score(table, of_cell, of_row, entropy)[1]
