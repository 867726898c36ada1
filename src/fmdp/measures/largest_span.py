"""The largest span among the optimal policies, as Xu & Tewari (2020) define the span of a model.

"If there are multiple optimal policies, we consider the policy with the largest span for its bias
vector." The policies are the deterministic stationary ones with the best gain g from every state,
and the bias of one is h_pi = lim (C) E sum_t (r_t - g), the solution of h = r - g + P h with
P* h = 0, periodic and multichain policies included. With h any solution of Lh = h + g and the gaps
d(s, a) = g + h(s) - R(s, a) - (P_a h)(s) >= 0,

    pi is optimal  <=>  d(s, pi(s)) = 0 in its recurrent states,
    h_pi(s) = h(s) - J_pi(s),   J_pi(s) = E sum_t d(s_t, a_t) + E[mu_C h, C the class it ends in],

so a state that an optimal policy leaves for good may lose as much as it likes on the way. The
largest sp(h_pi) is the largest h_pi(s) - h_pi(s') over pairs of states; for sp_i, over the pairs
that differ in variable i alone, each i for itself.

This is a longest simple path where moves are deterministic, so no fast algorithm is to be hoped for
(docs/theory.md, section 6). What is done, each step exact:

1. The states U that lie in *every* closed set of pairs without a gap are recurrent under every
   optimal policy. If they are all states, every optimal policy has the same bias.
2. If U is not empty and no policy stays off U for ever, J is bounded by a shortest-path problem
   with the maximum in place of the minimum: bounds for every pair, closed by branch and bound.
3. Otherwise the policies are enumerated, from each state only over the states that they reach.

The steps are in span_search.py. 2 and 3 stop after a number of policies; the bounds that are left
hold. Gaps of at most 1e-9 units of the reward count as none; where rounding is larger than that,
there is no answer. Dense algebra: S^3 a policy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fmdp.measures.span_search import (
    Actions,
    Effort,
    Interval,
    Matrix,
    Search,
    Vector,
    recurrent,
    stationary_law,
)
from fmdp.model import FactoredMDP
from fmdp.model.products import flatten
from fmdp.planning.component import one_gain
from fmdp.planning.flat import Flat, flat_of
from fmdp.planning.gains import best_gains
from fmdp.progress import PartsReport

STATE_LIMIT = 512
"""Up to this many states a model is written out by default."""
EFFORT = 400_000
"""What is tried by default, for all spans together: a state of a policy costs 1 where moves are
deterministic, else as much as an eighth of the states of the policy. Seconds."""
_ENTRY_LIMIT = 2**24
_NO_GAP = 1e-9


@dataclass(frozen=True)
class LargestSpans:
    """Bounds (lower, upper), up to rounding in the last digits; the upper one is infinite where the
    search gave up.

    Attributes
    ----------
    span
        Bounds of the largest span among the optimal policies.
    factored
        For each state variable i, bounds of the largest sp_i among the optimal policies.
    policies
        How many policies were tried, whole or over the states that they reach.
    """

    span: Interval
    factored: tuple[Interval, ...]
    policies: int

    @property
    def value(self) -> float | None:
        """The largest span, if the bounds meet."""
        return _met(self.span)

    @property
    def factored_values(self) -> tuple[float | None, ...]:
        """The largest sp_i of every variable, each over all optimal policies."""
        return tuple(_met(own) for own in self.factored)

    @property
    def factored_sum(self) -> float | None:
        """The sum of the largest sp_i: at least Q(h_pi) of every optimal policy."""
        known = [own for own in self.factored_values if own is not None]
        return sum(known) if len(known) == len(self.factored) else None


def _met(bounds: Interval) -> float | None:
    lower, upper = bounds
    return lower if upper < math.inf and upper - lower <= 1e-9 * upper else None


def largest_spans(
    model: FactoredMDP,
    *,
    state_limit: int = STATE_LIMIT,
    effort: int = EFFORT,
    progress: PartsReport | None = None,
) -> LargestSpans | None:
    """Bounds on the largest span and factored spans among the optimal policies of a model.

    Parameters
    ----------
    model
        The model.
    state_limit
        Most states (and actions to match) for which it is tried.
    effort
        How much is tried, for all spans together: a state of a policy costs 1 where moves are
        deterministic, else as much as an eighth of the states of the policy.
    progress
        Called as `progress(done, total, text)`.

    Returns
    -------
    LargestSpans or None
        None if the model is larger than the limit, or if its best gain depends on the state,
        where the definition has no optimal policy.
    """
    structure = model.structure
    n_states = structure.n_states
    if n_states > state_limit or n_states * n_states * structure.n_actions > _ENTRY_LIMIT:
        return None
    flat = flatten(model)
    solved = _solve(model)
    if solved is None:
        return None
    tried = Effort(effort, progress)
    found = Search(flat.transitions, *solved, structure.state_sizes, tried).run()
    return LargestSpans(found[0], tuple(found[1:]), tried.policies)


# ---- the optimality equation --------------------------------------------------------------------


def _solve(model: FactoredMDP) -> tuple[Vector, Matrix] | None:
    """A solution h [S] of Lh = h + g and the gaps [S, A].

    None if g depends on the state, or if rounding leaves a gap in doubt by more than what counts
    as none.
    """
    flat = flat_of(model, _ENTRY_LIMIT)
    gains = None if flat is None else best_gains(flat)
    if flat is None or gains is None or gains.lower.max() > gains.upper.min():
        return None
    everywhere = np.ones(flat.n_states, dtype=np.bool_)
    every_pair = np.ones((flat.n_states, flat.n_actions), dtype=np.bool_)
    found = one_gain(flat, everywhere, every_pair, start=gains.actions)
    # Where no policy leads everyone to one class, that of the best gains has a solution.
    h = found.h if found is not None else _bias_of(flat, gains.actions)
    worth, noise = flat.advantages(h)
    none = _NO_GAP * model.structure.reward_unit
    best = worth.max(axis=1)
    gaps = best.max() - worth
    if best.max() - best.min() > none or bool((noise > none)[gaps <= 2.0 * (none + noise)].any()):
        return None
    gaps[gaps <= none + noise] = 0.0
    return h, np.ascontiguousarray(gaps)


def _bias_of(flat: Flat, policy: Actions) -> Vector:
    """The bias of a policy of a written-out model."""
    everyone = np.arange(flat.n_states)
    chain = np.zeros((flat.n_states, flat.n_states))
    rows = np.repeat(everyone, flat.successors.shape[2])
    columns = flat.successors[everyone, policy].ravel()
    np.add.at(chain, (rows, columns), flat.probabilities[everyone, policy].ravel())
    return _evaluate(chain, flat.rewards[everyone, policy])[1]


def _evaluate(chain: Matrix, income: Vector) -> tuple[Vector, Vector]:
    """Gain and bias (P* h = 0) of a chain, any number of classes and any period."""
    n = len(chain)
    gain, bias = np.zeros(n), np.zeros(n)
    transient = np.ones(n, dtype=bool)
    for members in recurrent(chain):
        inside = chain[np.ix_(members, members)]
        law = stationary_law(inside)
        own = float(law @ income[members])
        gain[members] = own
        system = np.eye(len(members)) - inside + law
        bias[members] = np.linalg.solve(system, income[members] - own)
        transient[members] = False
    rest = np.flatnonzero(transient)
    if len(rest):
        ends = np.flatnonzero(~transient)
        system = np.eye(len(rest)) - chain[np.ix_(rest, rest)]
        into = chain[np.ix_(rest, ends)]
        gain[rest] = np.linalg.solve(system, into @ gain[ends])
        bias[rest] = np.linalg.solve(system, income[rest] - gain[rest] + into @ bias[ends])
    return gain, bias
