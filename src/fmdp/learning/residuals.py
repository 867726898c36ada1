"""Tests whether the scopes explain the observed steps: residual dependence, tested sequentially.

The model says that the next value of variable i, given its row x, is drawn afresh from theta_x. If
a scope lacks a variable, or a part of the system is not observed, the next value still depends on
something else: on another variable of the current step, on the next value of another variable, or
on the previous step. A *pair* is a variable and one such candidate w. For each pair and row

    E_x = prod_w DM(counts of x and w) / sup_theta prod_v theta(v)^(counts of x and v),

where DM is the probability that the Krichevsky-Trofimov predictor (Dirichlet 1/2) gives to the
values seen together with w. The numerator is the likelihood of a fixed predictor that may use w;
the denominator is at least the likelihood of the true row. So E_x is at most a nonnegative
martingale that starts at 1 ("universal inference", Wasserman, Ramdas & Balakrishnan 2020). Mixtures
are too, and since a step visits one row of i,

    E = (prod_x (1/2 + E_x / 2) + prod_x (1 - 1/R + E_x / R)) / 2,    R rows,

is for dependence in many rows or in few. By Ville's inequality P(E ever reaches 1/a) <= a if the
scopes are right, however the actions are chosen and whenever one looks. With K pairs an alarm needs
E >= K / a, which makes the probability of *any* false alarm, in an endless run, at most a.

Counts of all pairs are kept, [rows, values of w, values of i] each, for as many pairs as fit into
`MOST_CELLS`, those with the smallest tables first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.learning.dirichlet import log_likelihood
from fmdp.learning.statistics import Floats
from fmdp.model import Structure
from fmdp.model.entries import Index, entries_of, locate

FALSE_ALARMS = 0.01
"""Probability of any alarm, at any time, if the scopes are right."""
MOST_CELLS = 1 << 20
"""Most counts of all pairs together: 8 MB."""
FIRST_TEST = 64
"""Number of steps at the first test; the next is due when a tenth more have been observed."""

CURRENT, NEXT, PREVIOUS = 0, 1, 2
WHEN = ("current", "next", "previous")
REASONS = {
    "current": "which is not in its scope",
    "next": "so the two do not move independently given their scopes",
    "previous": "so something that is not observed, or changes over time, affects it",
}


class Finding(NamedTuple):
    """A dependence that the scopes do not explain."""

    variable: str
    """The state variable whose next value depends on more than its scope."""
    depends_on: str
    """The variable that it seems to depend on."""
    when: str
    """Which value of that variable: "current", "next" (of the same step), or "previous"."""
    log10_evidence: float
    """log10 of E at the last test."""
    step: int
    """Number of observed steps at the first alarm."""
    reason: str
    """The conclusion about the scopes, as a part of a sentence."""

    def __str__(self) -> str:
        return (
            f"the next value of {self.variable!r} depends on the {self.when} value of "
            f"{self.depends_on!r}, {self.reason} (evidence 10^{self.log10_evidence:.0f} after "
            f"{self.step:,} steps; the chance of a false alarm is at most {FALSE_ALARMS:.0%})"
        )


class _Pairs(NamedTuple):
    """The tested pairs of a structure: arrays over the pairs."""

    factor: Index
    source: Index
    """Place of w in (state, action, next state, previous state, previous action)."""
    rows: Index
    candidates: Index
    """Number of values of w."""
    values: Index
    """Number of values of the variable."""
    start: Index
    """[pairs + 1]: offsets of the tables in the array of counts."""
    possible: int
    """Number of pairs before `MOST_CELLS`."""


class Monitor(Protocol):
    """A sequential test of the scopes of a run."""

    def observe(
        self, state: Sequence[int], action: Sequence[int], next_state: Sequence[int]
    ) -> None:
        """Process one step, which the statistics have counted."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The strongest alarm of every variable, the strongest first."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays by name."""

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set the state to a result of `arrays`; raise InvalidParameter if it does not fit."""


class ScopeMonitor:
    """Counts of all pairs, and the alarms so far.

    Parameters
    ----------
    structure
        Structure whose scopes are tested.
    """

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
        self._pairs = _pairs_of(structure)
        self._entries = entries_of(structure)
        self._classes = (
            None
            if structure.alike is None
            else [np.unique(structure.transition_classes_of(i)) for i in range(structure.m)]
        )
        n = len(self._pairs.factor)
        self.counts: Index = np.zeros(int(self._pairs.start[-1]), dtype=np.int64)
        self.alarms: Index = np.zeros(n, dtype=np.int64)
        """[pairs]: number of observed steps at the first alarm; 0 for none."""
        self.evidence: Floats = np.zeros(n)
        """[pairs]: log E at the last test."""
        self.steps = 0
        self._due = next_test_after(0)
        self._findings: tuple[Finding, ...] = ()
        self._last: tuple[int, ...] = ()  # state, action and next state of the last step

    def observe(
        self, state: Sequence[int], action: Sequence[int], next_state: Sequence[int]
    ) -> None:
        """Count one step, and test all pairs if that is due."""
        s, pairs = self.structure, self._pairs
        joint, following = (*state, *action), tuple(next_state)
        known = len(self._last) > 0 and self._last[len(joint) :] == tuple(state)
        previous = self._last[: len(joint)] if known else (0,) * len(joint)
        values = np.array([*joint, *following, *previous], dtype=np.int64)
        visited = np.zeros(s.m + s.l, dtype=np.int64)
        locate(self._entries, np.array(joint, dtype=np.int64), visited)
        row = visited[: s.m] - self._entries.first_row[: s.m]
        if self._classes is not None:
            row = np.array(
                [np.searchsorted(self._classes[i], visited[i]) for i in range(s.m)], dtype=np.int64
            )
        moved = values[len(joint) : len(joint) + s.m]
        table_row = row[pairs.factor] * pairs.candidates + values[pairs.source]
        cells = pairs.start[:-1] + table_row * pairs.values + moved[pairs.factor]
        self.counts[cells if known else cells[pairs.source < len(joint) + s.m]] += 1
        self._last = (*joint, *following)
        self.steps += 1
        if self.steps == self._due:
            self.test()
            self._due = next_test_after(self.steps)

    def test(self) -> None:
        """Compute the evidence of all pairs, and note new alarms."""
        pairs = self._pairs
        _log_evidence(
            self.counts, pairs.start, pairs.rows, pairs.candidates, pairs.values, self.evidence
        )
        limit = math.log(max(len(self.alarms), 1) / FALSE_ALARMS)
        self.alarms[(self.alarms == 0) & (self.evidence >= limit)] = self.steps
        self._findings = self._strongest_alarms()

    @property
    def n_pairs(self) -> tuple[int, int]:
        """Number of tested pairs, and of all pairs."""
        return len(self._pairs.factor), self._pairs.possible

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The strongest alarm of every variable, the strongest first.

        A variable that is related to the missing one causes alarms too, so the weaker alarms of a
        variable are not shown.
        """
        return self._findings

    def _strongest_alarms(self) -> tuple[Finding, ...]:
        s, pairs = self.structure, self._pairs
        n = len(s.sizes)
        names = (*s.state_names, *s.action_names)
        strongest: dict[int, Finding] = {}
        order = np.argsort(-self.evidence, kind="stable")
        for pair in order[self.alarms[order] > 0].tolist():
            factor, source = int(pairs.factor[pair]), int(pairs.source[pair])
            when = (source >= n) + (source >= n + s.m)
            name = names[source - (0, n, n + s.m)[when]]
            log10 = float(self.evidence[pair]) / math.log(10.0)
            step, reason = int(self.alarms[pair]), REASONS[WHEN[when]]
            finding = Finding(s.state_names[factor], name, WHEN[when], log10, step, reason)
            strongest.setdefault(factor, finding)
        return tuple(strongest.values())

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays by name."""
        last = np.array(self._last, dtype=np.int64)
        steps = np.array([self.steps], dtype=np.int64)
        return {
            "counts": self.counts,
            "alarms": self.alarms,
            "evidence": self.evidence,
            "last": last,
            "steps": steps,
        }

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Set the state to a result of `arrays`; raise InvalidParameter if it does not fit."""
        s = self.structure
        checked = checked_arrays(arrays, self.arrays(), last=[(0,), (len(s.sizes) + s.m,)])
        last = tuple(checked["last"].tolist())
        if any(v >= size for v, size in zip(last, (*s.sizes, *s.state_sizes), strict=False)):
            raise InvalidParameter("the part 'last' of its tested scopes is no step")
        self.counts, self.alarms = checked["counts"], checked["alarms"]
        self.evidence, self._last = checked["evidence"], last
        self.steps = int(checked["steps"][0])
        self._due = next_test_after(self.steps)
        self._findings = self._strongest_alarms()


def checked_arrays(
    arrays: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    **shapes: Sequence[tuple[int, ...]],
) -> dict[str, NDArray[Any]]:
    """Return copies of saved arrays; raise InvalidParameter if they are no state of a test.

    They have the types and shapes of those `expected`, or one of the `shapes` of their name.
    """
    checked = {}
    for name, array in expected.items():
        given = arrays.get(name)
        allowed = shapes.get(name, [array.shape])
        if given is None or given.dtype != array.dtype or given.shape not in allowed:
            raise InvalidParameter(f"the part {quoted(name)} of its tested scopes does not fit")
        if not np.isfinite(given).all() or (name != "evidence" and (given < 0).any()):
            raise InvalidParameter(f"the part {quoted(name)} of its tested scopes is invalid")
        checked[name] = given.copy()
    return checked


def next_test_after(steps: int, growth: int = 10) -> int:
    """Return the number of steps at the first test after `steps` steps.

    The tests are at `FIRST_TEST` steps and then whenever a part of 1 / `growth` more have been
    observed.
    """
    due = FIRST_TEST
    while due <= steps:
        due += due // growth
    return due


@lru_cache(maxsize=8)  # a service is opened and recovered with the same structure
def _pairs_of(structure: Structure) -> _Pairs:
    s = structure
    n = len(s.sizes)
    listed = []
    for i, scope in enumerate(s.transition_scopes):
        rows = len(np.unique(s.transition_classes_of(i)))
        current = [v for v in range(n) if v not in scope]
        following = [n + j for j in range(i)]
        previous = [n + s.m + v for v in range(n)]
        for source in (*current, *following, *previous):
            size = (*s.sizes, *s.state_sizes, *s.sizes)[source]
            if min(size, s.state_sizes[i]) > 1:
                listed.append((rows * size * s.state_sizes[i], i, source, rows, size))
    listed.sort()
    total = np.cumsum([cells for cells, *_ in listed], dtype=np.float64)
    kept = listed[: int((total <= MOST_CELLS).sum())]
    columns = np.array(kept, dtype=np.int64).reshape(-1, 5).T
    return _Pairs(
        factor=columns[1],
        source=columns[2],
        rows=columns[3],
        candidates=columns[4],
        values=np.array(s.state_sizes, dtype=np.int64)[columns[1]],
        start=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(columns[0])]),
        possible=len(listed),
    )


@njit(nogil=True)
def _log_evidence(  # type: ignore[no-untyped-def]
    counts, start, rows, candidates, values, evidence
):
    """Fill log E of every pair."""
    for pair in range(rows.size):
        n_rows, size, n_values = rows[pair], candidates[pair], values[pair]
        total = np.zeros(n_values)
        prior = np.full(n_values, 0.5)
        many = few = 0.0  # the logarithms of the two products
        for row in range(n_rows):
            begin = start[pair] + row * size * n_values
            log_ratio = 0.0
            total[:] = 0.0
            for w in range(size):
                of_value = np.zeros(n_values)
                for v in range(n_values):
                    of_value[v] = counts[begin + w * n_values + v]
                    total[v] += of_value[v]
                log_ratio += log_likelihood(of_value, prior)
            visits = total.sum()
            for v in range(n_values):
                if total[v] > 0.0:
                    log_ratio -= total[v] * math.log(total[v] / visits)
            if visits > 0.0:
                many += _log_mixture(log_ratio, 0.5)
                few += _log_mixture(log_ratio, 1.0 / n_rows)
        larger = max(many, few)
        evidence[pair] = larger + math.log(0.5 * (math.exp(many - larger) + math.exp(few - larger)))


@njit(nogil=True)
def _log_mixture(log_ratio, weight):  # type: ignore[no-untyped-def]
    """Return log(1 - weight + weight exp(log_ratio)) without overflow."""
    if log_ratio > 30.0:
        rest = (1.0 - weight) * math.exp(-log_ratio) if log_ratio < 700.0 else 0.0
        return log_ratio + math.log(weight + rest)
    return math.log(1.0 - weight + weight * math.exp(log_ratio))
