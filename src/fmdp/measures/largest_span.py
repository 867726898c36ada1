"""The largest span among the optimal policies, as Xu & Tewari (2020) define the span of a model.

"If there are multiple optimal policies, we consider the policy with the largest span for its bias
vector." The policies are the deterministic stationary ones with the best gain g from every state,
and the bias of one is h_pi = lim (C) E sum_t (r_t - g), the solution of h = r - g + P h with P* h =
0, periodic and multichain policies included. With h any solution of Lh = h + g and the gaps d(s, a)
= g + h(s) - R(s, a) - (P_a h)(s) >= 0,

    pi is optimal  <=>  d(s, pi(s)) = 0 in its recurrent states,
    h_pi(s) = h(s) - J_pi(s),   J_pi(s) = E sum_t d(s_t, a_t) + E[mu_C h, C the class it ends in],

so in its transient states an optimal policy may lose any amount. The largest sp(h_pi) is the
largest h_pi(s) - h_pi(s') over pairs of states; for sp_i, over the pairs that differ in variable i
alone, separately for each i.

With deterministic moves this is a longest simple path problem, so no fast algorithm can be expected
(docs/theory.md, section 6). The steps, each of them exact (span_search.py):

1. The core U of states that lie in *every* closed set of pairs without a gap is recurrent under
   every optimal policy. If it contains all states, all optimal policies have the same bias.
2. If U is not empty and no policy avoids U for ever, J is bounded by a shortest-path problem
   with the maximum in place of the minimum: bounds for every pair, closed by branch and bound.
3. Otherwise the policies are enumerated, from each state only over the states that they reach.

Steps 2 and 3 stop after a number of policies; the bounds that are left hold.

Whether a gap is zero is proved, never guessed from a small number (exact_gaps.py): a gap of 1e-12
that is paid for 10^12 steps counts. The model is the one that its doubles represent exactly, so
actions are tied if they are tied exactly. Small models are searched in long decimals; larger ones
in doubles, and again in decimals if rounding keeps the bounds apart. If it is not proved which gaps
are zero, the bounds are 0 and infinity.
"""

from __future__ import annotations

import decimal
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from fmdp._base.progress import PartsReport
from fmdp.measures import exact_gaps
from fmdp.measures.exact_gaps import Undecided
from fmdp.measures.integer_model import integer_model
from fmdp.measures.span_search import Arithmetic, Effort, SpanSearch
from fmdp.model import FactoredMDP
from fmdp.model.products import flatten
from fmdp.model.spaces import project_some
from fmdp.planning.spans import factored_spans, span
from fmdp.planning.tabular.end_components import end_components
from fmdp.planning.tabular.gains import optimal_gains
from fmdp.planning.tabular.gth import Numbers
from fmdp.planning.tabular.model import write_out

Interval = tuple[float, float]

STATE_LIMIT = 512
"""Default for the largest number of states of a model that is searched."""
EFFORT = 400_000
"""Default effort for all spans together: seconds. A state of a policy costs 1 with deterministic
moves, else an eighth of the number of states of the policy."""
_ENTRY_LIMIT = 2**24  # of dense tables, S x S x A
_INTEGER_ENTRIES = 2**22
"""Largest number of successors of all states and actions for a model in integers."""
_DECIMAL_FIRST = 12
"""Largest number of states for which the search begins with decimals."""
_DECIMAL_AT_ALL = 64
"""Largest number of states for which decimals are tried if doubles do not suffice."""
_DECIMAL_COST = 8
"""Factor by which the effort is reduced with decimals."""
_SEARCH_DIGITS = 60  # of the decimals in the search
_EPS = float(np.finfo(np.float64).eps)
_DOUBLES = Arithmetic(float, _EPS, 1e-10)
_DECIMALS = Arithmetic(Decimal, 10.0 ** (1 - _SEARCH_DIGITS), 1e-30)
_LEAST_PROBABILITY = 1e-250
"""Doubles are not used if a joint probability may be smaller."""


@dataclass(frozen=True)
class LargestSpans:
    """Bounds (lower, upper) with rounding errors included.

    The upper bound is infinite if the search gave up.

    Attributes
    ----------
    span
        Bounds of the largest span among the optimal policies.
    factored
        For each state variable i, bounds of the largest sp_i among the optimal policies.
    policies
        Number of policies that were tried, complete or over the states that they reach.
    of_bias
        The span and the factored spans of the solution of the optimality equation, to the last
        digits; None if it has several solutions that differ by more than a constant.
    """

    span: Interval
    factored: tuple[Interval, ...]
    policies: int
    of_bias: tuple[float, ...] | None = None

    @property
    def value(self) -> float | None:
        """The largest span, if the bounds meet."""
        return self._met(self.span)

    @property
    def factored_values(self) -> tuple[float | None, ...]:
        """The largest sp_i of every variable, each over all optimal policies."""
        return tuple(self._met(bounds) for bounds in self.factored)

    @property
    def factored_sum(self) -> float | None:
        """The sum of the largest sp_i: at least Q(h_pi) of every optimal policy."""
        known = [value for value in self.factored_values if value is not None]
        return sum(known) if len(known) == len(self.factored) else None

    def _met(self, bounds: Interval) -> float | None:
        """Return the number between bounds that are apart by at most 1e-9 of the largest span."""
        lower, upper = bounds
        if math.isinf(upper) or upper - lower > 1e-9 * max(upper, self.span[1]):
            return None
        return lower if lower == 0.0 else lower + (upper - lower) / 2


def largest_spans(
    model: FactoredMDP,
    *,
    state_limit: int = STATE_LIMIT,
    effort: int = EFFORT,
    progress: PartsReport | None = None,
) -> LargestSpans | None:
    """Return bounds on the largest span and factored spans among a model's optimal policies.

    Parameters
    ----------
    model
        The model.
    state_limit
        Largest number of states (and actions to match).
    effort
        Effort for all spans together: a state of a policy costs 1 with deterministic moves, else an
        eighth of the number of states of the policy.
    progress
        Called as `progress(done, total, text)`.

    Returns
    -------
    LargestSpans or None
        None if the model is larger than the limit, or if its best gain depends on the state, in
        which case the definition has no optimal policy. The bounds are 0 and infinity if it could
        not be proved which actions are optimal.
    """
    structure = model.structure
    n_states = structure.n_states
    if n_states > state_limit or n_states * n_states * structure.n_actions > _ENTRY_LIMIT:
        return None
    unknown = LargestSpans((0.0, math.inf), ((0.0, math.inf),) * structure.m, 0)
    try:
        optimum = _solve(model)
    except Undecided:
        return unknown
    if optimum is None:
        return None
    tried = Effort(effort, progress)
    spans: LargestSpans | None = None
    if n_states > _DECIMAL_FIRST:
        least = math.prod(float(table[table > 0].min()) for table in model.transitions)
        if optimum.fits and least > _LEAST_PROBABILITY:
            spans = _search(model, optimum, tried, False)
        if n_states > _DECIMAL_AT_ALL:
            return spans or unknown
    if spans is None or (spans.value is None and tried.used < effort // _DECIMAL_COST):
        tried = Effort(effort // _DECIMAL_COST, progress)
        with decimal.localcontext(prec=_SEARCH_DIGITS):
            spans = _search(model, optimum, tried, True)
    return spans


class _FloatOptimum(NamedTuple):
    """A certified optimal bias and the gaps of all actions, in doubles and in decimals."""

    bias: Numbers
    gaps: Numbers
    fits: bool
    """Whether the doubles are in range: no overflow, and no positive gap that became 0."""
    unique: bool
    """Whether all solutions of the optimality equation differ by constants."""
    roundings: int
    """Number of roundings that bounds the errors of the gaps and probabilities."""
    decimals: tuple[Numbers, Numbers]


def _search(
    model: FactoredMDP, optimum: _FloatOptimum, effort: Effort, exact: bool
) -> LargestSpans:
    """SpanSearch with doubles, or with decimals if `exact`."""
    sizes = model.structure.state_sizes
    laws = _decimal_transitions(model) if exact else flatten(model).transitions
    bias, gaps = optimum.decimals if exact else (optimum.bias, optimum.gaps)
    arithmetic, roundings = (_DECIMALS, 4) if exact else (_DOUBLES, optimum.roundings)
    bounds = SpanSearch(laws, bias, gaps, sizes, effort, arithmetic, roundings).run()
    spans = [(_rounded_down(lower), -_rounded_down(-upper)) for lower, upper in bounds]
    of_bias = None
    if optimum.unique:
        of_bias = (span(optimum.bias), *factored_spans(optimum.bias, sizes))
    return LargestSpans(spans[0], tuple(spans[1:]), effort.policies, of_bias)


def _rounded_down(number: float | Decimal) -> float:
    """Return the largest double not above a number."""
    nearest = float(number)
    return nearest if nearest <= number else math.nextafter(nearest, -math.inf)


def _decimal_transitions(model: FactoredMDP) -> Numbers:
    """Return P as decimals, [A, S, S]; every row of a factor is divided by its exact sum."""
    structure = model.structure
    shape = (structure.n_states, structure.n_actions)
    pairs = structure.allowed_pairs()
    joint = np.full((len(pairs), 1), Decimal(1))
    for scope, table in zip(structure.transition_scopes, model.transitions, strict=True):
        with decimal.localcontext(prec=2000):
            exact = np.array([[Decimal(float(p)) for p in row] for row in table], dtype=object)
            totals = exact.sum(axis=1)
        rows = (exact / totals[:, None])[project_some(structure.sizes, scope, pairs)]
        joint = (joint[:, :, None] * rows[:, None, :]).reshape(len(pairs), -1)
    return joint.reshape(*shape, -1).transpose(1, 0, 2)


# ---- the optimality equation --------------------------------------------------------------------


def _solve(model: FactoredMDP) -> _FloatOptimum | None:
    """Return h and the gaps; None if the best gain depends on the state.

    The optimality equation is solved exactly, starting from a policy that is optimal in doubles.
    Raises Undecided if it could not be proved which gaps are zero.
    """
    flat = write_out(model, _ENTRY_LIMIT)
    if flat is None:
        raise Undecided
    gains = optimal_gains(flat)
    if gains is not None and gains.lower.max() > gains.upper.min():
        return None
    integers = integer_model(model, _INTEGER_ENTRIES)
    if integers is None:
        raise Undecided
    # If the equations are singular in doubles, policy iteration begins with any policy.
    policy = np.zeros(flat.n_states, dtype=np.int64) if gains is None else gains.actions
    first = np.unique(integers.group, return_index=True)[1]
    solved = exact_gaps.solve(integers, integers.row[first, policy[first]].tolist())
    if solved is None:
        return None
    bias = exact_gaps.floats(solved.bias, solved.scale)[integers.group]
    rows = [exact_gaps.floats(gaps_of_group, solved.scale) for gaps_of_group in solved.gaps]
    numbers = list(zip(integers.group, integers.row, strict=True))
    gaps = np.array([rows[group][row] for group, row in numbers])
    with decimal.localcontext(prec=_SEARCH_DIGITS):
        scale = Decimal(solved.scale)
        long_bias = np.array([Decimal(h) / scale for h in solved.bias], dtype=object)
        long_rows = [np.array([Decimal(gap) / scale for gap in group]) for group in solved.gaps]
        long_gaps = np.array([long_rows[group][row] for group, row in numbers])
    decimals = (long_bias[integers.group], long_gaps)
    free = np.asarray(long_gaps == 0, dtype=np.bool_)
    fits = bool(np.isfinite(bias).all() and np.isfinite(gaps).all() and (free == (gaps == 0)).all())
    # The difference of two solutions is largest, and least, on sets that tight pairs need not
    # leave; if there is one such set, it is constant.
    unique = fits and end_components(flat, free).count == 1
    # The sum of a row of a factor may differ from 1 by two units of rounding per value.
    roundings = 2 * (model.structure.m + 1 + sum(model.structure.state_sizes))
    return _FloatOptimum(bias, gaps, fits, unique, roundings, decimals)
