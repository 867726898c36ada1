"""The long-run law of a policy: the share of time spent in every state, with a certified error.

The law from the initial state is the limit of the averages of its first t distributions. It exists
for every chain. Periodic chains have it as well, and with several recurrent classes it is the
mixture of their stationary laws, weighted by the probabilities of ending in each.

* Where at most `DIRECT_STATES` states can be reached, their chain is written out and solved by GTH
  elimination, class by class. The result is right up to a proven relative error (gth.py).
* Otherwise mu P = mu is solved by a restarted Arnoldi method (Golub & Greif 2006) with the adjoint
  of the backup. Let r = mu P - mu, and W(s) an upper bound on the expected time from s to a state
  z. For every function f with values in [0, 1], mu f differs from its long-run mean by at most

      sum_s |r(s)| W(s),

  because the bias of f relative to z is at most W(s) in size. W comes from any h with
  1_z + P h - h >= low > 0: W = (h(z) - h) / low. That W is finite proves that z is reached from all
  states, hence that there is only one recurrent class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import describe_count
from fmdp.elimination.backup import Backup, backup_for, iterate_by_sweeps
from fmdp.elimination.kernels import Pace
from fmdp.elimination.rounding import rounding_allowance
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode
from fmdp.planning.exact import iteration
from fmdp.planning.exact.operators import PolicyOperator
from fmdp.planning.occupancy.adjoint import Adjoint
from fmdp.planning.policies.mixed import Mixture
from fmdp.planning.tabular.end_components import strongly_connected
from fmdp.planning.tabular.gth import expected_totals, relative_error, stationary_law
from fmdp.planning.tabular.model import Successors

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]

DIRECT_STATES = 1 << 10
"""Most reachable states whose chain is written out."""
LARGEST = 1 << 22
"""Most states whose law is computed."""
_ENTRIES = 1 << 23
"""Most probabilities of the rows that are written out."""
_KRYLOV = 8
"""Vectors per restart of the Arnoldi method."""
_RESTARTS = 60
_EPS = float(np.finfo(np.float64).eps)
_SAFETY = 1.01
"""For the rounding of sums without negative terms."""


class NotCertified(InvalidParameter):
    """The law was not proven: the chain is too slow, or has several classes in a large model."""


@dataclass(frozen=True, eq=False)
class Law:
    """The share of time of the states that can be visited."""

    states: Indices
    """The indices of the states, ascending. All other shares are 0."""
    shares: Floats
    error: float
    """Certified: the share of any set of states is wrong by at most this much."""
    classes: int
    """Recurrent classes in which the chain can end."""
    method: str
    """`elimination` or `iteration`."""


def long_run_law(
    model: FactoredMDP,
    tables: Mixture,
    *,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> Law:
    """Return the long-run law of a policy from the initial state.

    Raises TooLarge if it does not fit, and NotCertified if no error bound was found.
    """
    n_states = model.structure.n_states
    if n_states > LARGEST:
        raise TooLarge(
            f"the law of {describe_count(n_states)} states is not computed; at most "
            f"{describe_count(LARGEST)} are",
            8 * n_states,
            8 * LARGEST,
        )
    law = _direct(model, tables)
    return _iterated(model, tables, memory_limit, deadline) if law is None else law


# ---- chains that are written out -----------------------------------------------------------------


def _direct(model: FactoredMDP, tables: Mixture) -> Law | None:
    """Return the law by elimination; None if too many states can be reached."""
    lists = Successors(model)
    start = encode(model.initial_state, model.structure.state_sizes)
    place = {start: 0}
    reached = [start]
    rows: list[tuple[Indices, Floats]] = []
    while len(rows) < len(reached):
        some = np.array(reached[len(rows) :])
        if len(some) * lists.width * len(tables) > _ENTRIES:
            return None
        targets, weights = _rows(model, lists, tables, some)
        for target, weight in zip(targets, weights, strict=True):
            kept = weight > 0.0
            rows.append((target[kept], weight[kept]))
        for state in np.unique(targets[weights > 0.0]).tolist():
            if state not in place:
                place[state] = len(reached)
                reached.append(state)
        if len(reached) > DIRECT_STATES:
            return None
    matrix = np.zeros((len(reached), len(reached)))
    for number, (target, weight) in enumerate(rows):
        np.add.at(matrix[number], [place[state] for state in target.tolist()], weight)
    shares, classes = _absorbed_law(matrix)
    order = np.argsort(reached)
    error = relative_error(len(matrix), _EPS, model.structure.m + len(tables) + 2)
    # Absorption and stationary laws each have this error.
    return Law(np.array(reached)[order], shares[order], 2.1 * error, classes, "elimination")


def _rows(
    model: FactoredMDP, lists: Successors, tables: Mixture, states: Indices
) -> tuple[Indices, Floats]:
    """Return successors and probabilities [states, entries] under the policy."""
    n_actions = model.structure.n_actions
    parts = []
    for weights, actions in tables:
        targets, chances, possible = lists.rows_of(states * n_actions + actions[states])
        if (possible & (chances == 0.0)).any():
            raise NotCertified(
                "a transition of the policy is less likely than any number: its long-run law "
                "cannot be certified"
            )
        parts.append((targets, weights[states, None] * chances))
    return np.hstack([part[0] for part in parts]), np.hstack([part[1] for part in parts])


def _absorbed_law(matrix: Floats) -> tuple[Floats, int]:
    """Return the long-run law of a chain from state 0, and the number of recurrent classes."""
    origin, target = np.nonzero(matrix)
    count, label = strongly_connected(len(matrix), origin, target)
    leaves = np.zeros(count, dtype=np.bool_)
    leaves[label[origin[label[origin] != label[target]]]] = True
    closed = np.flatnonzero(~leaves)
    transient = np.flatnonzero(leaves[label])
    chances = np.ones(1)
    if len(closed) > 1:  # state 0 is then transient
        inside = matrix[np.ix_(transient, transient)]
        ends = np.stack([matrix[transient][:, label == c].sum(axis=1) for c in closed], axis=1)
        position = int(np.flatnonzero(transient == 0)[0])
        chances = expected_totals(inside, ends.sum(axis=1), ends)[position]
        chances = chances / chances.sum()
    shares = np.zeros(len(matrix))
    for number, chance in zip(closed, chances, strict=True):
        members = np.flatnonzero(label == number)
        shares[members] = chance * stationary_law(matrix[np.ix_(members, members)])
    return shares, len(closed)


# ---- larger chains -------------------------------------------------------------------------------


def _iterated(
    model: FactoredMDP, tables: Mixture, memory_limit: int | None, deadline: Deadline
) -> Law:
    adjoint = Adjoint(model, tables, memory_limit)
    mu = _arnoldi(adjoint, deadline)
    image = adjoint(mu)
    left = np.abs(image - mu) + _EPS * (adjoint.roundings + 2) * image + _EPS * mu
    times = _times_to(model, tables, int(mu.argmax()), float(mu.max()), memory_limit, deadline)
    # The sum of mu differs from 1 by rounding only.
    error = _SAFETY * float(left @ times) + abs(1.0 - float(mu.sum())) + _EPS * len(mu) ** 0.5
    return Law(np.arange(len(mu)), mu, min(error, 1.0), 1, "iteration")


def _arnoldi(adjoint: Adjoint, deadline: Deadline) -> Floats:
    """Return mu with mu P = mu up to rounding, or as near as the restarts come."""
    n = adjoint.structure.n_states
    mu = adjoint(np.full(n, 1.0 / n))
    best, least = mu, np.inf
    stalls = 0
    for _ in range(_RESTARTS):
        deadline.check()
        image = adjoint(mu)
        residual = float(np.abs(image - mu).sum())
        if residual < least:
            stalls = 0 if residual < 0.5 * least else stalls + 1
            best, least = image / image.sum(), residual
        else:
            stalls += 1
        if least <= 4 * adjoint.roundings * _EPS or stalls > 2:
            break
        mu = _refined(adjoint, mu, image)
    return best


def _refined(adjoint: Adjoint, mu: Floats, image: Floats) -> Floats:
    """Return the vector of the Krylov space of mu that minimises |mu P - mu|, made nonnegative."""
    basis = np.empty((_KRYLOV + 1, len(mu)))
    hessenberg = np.zeros((_KRYLOV + 1, _KRYLOV))
    norm = float(np.linalg.norm(mu))
    basis[0] = mu / norm
    steps = _KRYLOV
    for k in range(_KRYLOV):
        vector = image / norm if k == 0 else adjoint(basis[k])
        for _ in range(2):  # orthogonal to rounding
            along = np.einsum("ks,s->k", basis[: k + 1], vector)
            hessenberg[: k + 1, k] += along
            vector = vector - np.einsum("k,ks->s", along, basis[: k + 1])
        length = float(np.linalg.norm(vector))
        hessenberg[k + 1, k] = length
        if length < 1e-14:
            steps = k + 1
            break
        basis[k + 1] = vector / length
    shifted = hessenberg[: steps + 1, :steps] - np.eye(steps + 1, steps)
    weights = np.linalg.svd(shifted)[2][-1]
    law = np.einsum("k,ks->s", weights, basis[:steps])
    law = np.maximum(law if law.sum() > 0 else -law, 0.0)
    return np.asarray(law / law.sum())


class _Visits(PolicyOperator):
    """h -> 1_z + P h of a policy, for a backup without rewards."""

    def __init__(self, backup: Backup, tables: Mixture, target: int) -> None:
        super().__init__(backup, tables[0][1])
        self.tables = tables
        n_states = backup.n_states
        mark = np.zeros(n_states)
        mark[target] = 1.0
        self.place = int(backup.to_internal(mark).argmax())
        self.weights = [backup.to_internal(weights) for weights, _ in tables]
        self.roundings = backup.roundings + 2 * len(tables)

    def sweep(self, source: Floats, out: Floats) -> None:
        if len(self.tables) == 1:
            self.backup.policy_sweep(source, out, self.tables[0][1])
        else:
            total = np.zeros_like(out)
            for (_, actions), weights in zip(self.tables, self.weights, strict=True):
                self.backup.policy_sweep(source, out, actions)
                total += weights * out
            out[:] = total
        out[self.place] += 1.0

    def iterate(self, h: Floats, new: Floats, scratch: Floats, pace: Pace) -> int:
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)


def _times_to(
    model: FactoredMDP,
    tables: Mixture,
    target: int,
    share: float,
    memory_limit: int | None,
    deadline: Deadline,
) -> Floats:
    """Return upper bounds on the expected times to reach the target from every state: [S]."""
    s = model.structure
    nothing = [np.zeros(rows) for rows in s.reward_rows]
    empty = FactoredMDP.trusted(s, list(model.transitions), nothing)
    backup = backup_for(empty, memory_limit=memory_limit, deadline=deadline)
    operator = _Visits(backup, tables, target)
    limits = iteration.Limits(0.1 * share, _SWEEPS, deadline)
    outcome = iteration.solve(operator, np.zeros(backup.n_states), limits, accelerated=True)
    outcome.status.raise_if_interrupted()
    h = outcome.h
    new = np.empty_like(h)
    operator.sweep(h, new)
    size = float(np.abs(h).max()) + 1.0
    low = float((new - h).min()) - rounding_allowance(size, operator.roundings)
    if not low > 0.0:
        raise NotCertified(
            "the policy has several recurrent classes, or mixes too slowly for its long-run law to "
            "be certified"
        )
    times = (h[operator.place] - h) / low
    # Rounding of the difference; the times themselves are not negative.
    times = np.maximum(times, 0.0) * _SAFETY + 4 * _EPS * size / low
    return backup.to_canonical(times)


_SWEEPS = 2_000
"""Most sweeps of the times to reach a state."""
