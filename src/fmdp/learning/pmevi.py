"""PMEVI-DT (Boone & Zhang 2024): UCRL2's set, one Bernstein bound, and a bias learned from the run.

Optimism over UCRL2's balls (ucrl2.py) with two additions (planning/projected.py). A *mitigation*

    p h* <= p-hat h* + beta(s, a),      beta = sqrt(2 V(p-hat, h*) x / N) + 3 c0 x / N,

does not pay for the number of states. A *projection* restricts the bias to differences that the run
has shown: over first passages s -> s' and back, the alternating sums of g-hat - r estimate h*(s') -
h*(s). The regret is O~(sqrt(sp(h*) S A T)), that of EBF (Zhang & Ji 2019), whose program is not
computable. Episodes end when a count has doubled.

With c0 >= sp(h*), all of the following hold at every step together with probability 1 - rho, a
third of rho each, and plans are then optimistic (docs/theory-span.md, section 8):

* the truth is in the balls, at rho / 3;
* beta with x = log(9 S A N (N + 1) / rho): Audibert, Munos & Szepesvari 2009, theorem 1, whose
  probability of failure 3 exp(-x) sums to rho / 3 over N = 1, 2, ... and the rows. V(p-hat, h*) is
  not known; it is at most the largest over functions within d (`variance_bound`);
* |h*(s') - h*(s) - estimate| <= (B + K c0 + 2 W + |lag| / t max(B, K c0 + W)) / passages, with
  B = t U - (sum of rewards), U an upper bound of the gain, W = (hi - lo + c0) sqrt(t y / 2),
  y = log(6 (S (S - 1) / 2 + 1) t (t + 1) / rho), lag the steps that passages s -> s' took more than
  those back, K the number of unbroken pieces of experience (1, unless others act in between).

c0 is `span`, or (hi - lo) t^(1/5), which is enough from some t on (the paper's T^(1/5), T known).
`c` multiplies the widths, beta and the errors of the differences, but not c0.

The paper's text was not available and there is no public code, so `faithful=True` is refused. Its
structure, beta and T^(1/5) are from memory; all constants are those of the proofs named here. The
paper sums the promises of past episodes in place of t U; U, the promise of today's set without
learned differences, needs no history of optimism. It bounds V by that of one function within d plus
an error.

Passages are counted step by step, with S^2 numbers each. Refused above 2^10 joint states.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp._base.compiled import njit
from fmdp._base.portable_math import log
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.confidence import scaled, shares_of
from fmdp.learning.flat import Flat
from fmdp.learning.sets import SetLearner
from fmdp.learning.statistics import Floats, Statistics
from fmdp.learning.ucrl2 import ucrl2_tables
from fmdp.model import OptimisticTables, Structure
from fmdp.model.entries import split_cells, split_transition_entries
from fmdp.model.spaces import encode, shown
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.policies.archive import array_in
from fmdp.planning.projected import Projected, closed

Index = NDArray[np.int64]

STATES = 1 << 10
"""Largest number of joint states for which passages between all pairs are counted."""
_COUNTED = ("passages", "lengths", "begun")
_SUMMED = ("rewards", "held")


def bernstein_log(visits: ArrayLike, rows: ArrayLike, rho: float) -> Floats:
    """Return x = log(3 rows N (N + 1) / rho), N at least 1; broadcasts."""
    n = np.maximum(1.0, np.asarray(visits, dtype=np.float64))
    term: Floats = log(3.0 * np.asarray(rows) * n * (n + 1.0) / rho)
    return term


def mitigation_width(
    variance: ArrayLike, visits: ArrayLike, log_term: ArrayLike, span: float
) -> Floats:
    """Return sqrt(2 V x / N) + 3 c0 x / N, infinite for N = 0; broadcasts."""
    n = np.asarray(visits, dtype=np.float64)
    rate = np.asarray(log_term) / np.maximum(1.0, n)
    width = np.sqrt(2.0 * np.asarray(variance) * rate) + 3.0 * span * rate
    return np.where(n > 0, width, np.inf)


def variance_bound(estimate: Floats, distances: Floats, span: float) -> Floats:
    """Bound the variance, under each row, of every function within `distances`: [rows].

    V(p, u) = 1/2 sum over x, y of p(x) p(y) (u(x) - u(y))^2, and (span / 2)^2 at most.
    """
    apart = np.maximum(distances, distances.T)  # |u(x) - u(y)| at most
    pairs = 0.5 * np.einsum("rx,rx->r", estimate @ np.square(apart), estimate)
    variance: Floats = np.minimum(pairs, 0.25 * span**2)
    return variance


def deviation(steps: int, states: int, reward_range: float, span: float, rho: float) -> float:
    """Return W, which bounds signed sums of t martingale differences, for all pairs and all t."""
    pairs = states * (states - 1) / 2 + 1
    log_term = math.log(2.0 * pairs * steps * (steps + 1) / rho)
    return (reward_range + span) * math.sqrt(0.5 * steps * log_term)


def difference_estimates(passages: Index, lengths: Index, rewards: Floats, gain: float) -> Floats:
    """Return the estimates of h*(s') - h*(s), 0 without passages: [s, s']."""
    excess = gain * lengths - rewards
    both = np.maximum(1, passages + passages.T)
    estimate: Floats = (excess - excess.T) / both
    return estimate


def difference_errors(
    passages: Index, lengths: Index, steps: int, missed: float, ends: float, width: float
) -> Floats:
    """Return (B + K c0 + 2 W + |lag| / t max(B, K c0 + W)) / passages: [S, S].

    `missed` is B, `ends` K c0, `width` W. Infinite without a passage.
    """
    lag = np.abs(lengths - lengths.T) / steps
    total = max(0.0, missed + ends + 2.0 * width) + lag * max(missed, ends + width)
    with np.errstate(divide="ignore"):
        error: Floats = total / (passages + passages.T)
    return error


@njit()
def arrive(
    x: int,
    now: int,
    total: float,
    passages: Index,
    lengths: Index,
    rewards: Floats,
    begun: Index,
    held: Floats,
) -> None:
    """Record that the run is in state x after `now` steps with a total reward of `total`.

    Passages to x end, and passages from x to all states begin unless they are already under way.
    """
    for y in range(len(passages)):
        if y == x:
            continue
        if begun[y, x] >= 0:
            passages[y, x] += 1
            lengths[y, x] += now - begun[y, x]
            rewards[y, x] += total - held[y, x]
            begun[y, x] = -1
        if begun[x, y] < 0:
            begun[x, y] = now
            held[x, y] = total


class LearnedDifferences(SetLearner):
    """Plans over balls within learned differences of the bias; list this base after Flat."""

    span: float | None = setting(
        None,
        "upper bound on the span of the optimal bias, in units of the reward; none: the range of "
        "the reward times the fifth root of t",
        low=0.0,
        low_open=True,
    )

    def check(self) -> None:
        if self.horizon is not None:
            raise InvalidParameter(
                f"{self.owner()} learns the bias, which plans over a horizon have not; got "
                f"horizon={self.horizon}, must be none"
            )
        super().check()

    def check_planner(self) -> None:
        """Raise InvalidParameter unless the planner is exact with criterion=average."""
        planner = self.planner
        criterion = getattr(planner, "criterion", None)
        if planner is not None and (not isinstance(planner, Exact) or criterion != "average"):
            named = f"{planner.name},criterion={criterion}" if criterion else planner.name  # type: ignore[union-attr]
            raise InvalidParameter(
                f"{self.owner()} projects the bias of the average reward; got planner {named}, "
                f"must be exact,criterion=average"
            )
        super().check_planner()

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        values = {field.name: getattr(planner, field.name) for field in fields(planner)}  # type: ignore[arg-type]
        return Projected(**values), reason

    # ---- passages between states ----------------------------------------------------------------

    def remember(self, structure: Structure) -> dict[str, Any]:
        shape = (structure.n_states, structure.n_states)
        arrays: dict[str, Any] = {name: np.zeros(shape, dtype=np.int64) for name in _COUNTED}
        arrays["begun"] -= 1
        arrays |= {name: np.zeros(shape) for name in _SUMMED}
        return {**arrays, "at": -1, "total": 0.0, "pieces": 0}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        shape = (structure.n_states, structure.n_states)
        for name in _COUNTED:
            array_in(memory, name, "i", shape, -1 if name == "begun" else 0)
        for name in _SUMMED:
            array_in(memory, name, "f", shape)
        at, total, pieces = (memory[name] for name in ("at", "total", "pieces"))
        if type(at) is not int or not -1 <= at < structure.n_states:
            raise InvalidParameter(f"the memory of {self.owner()} is at no state; got at={at!r}")
        if type(total) is not float or not math.isfinite(total):
            raise InvalidParameter(
                f"the memory of {self.owner()} must have a finite total; got {total!r}"
            )
        if type(pieces) is not int or pieces < 0:
            raise InvalidParameter(
                f"the memory of {self.owner()} must have pieces, at least 0; got {pieces!r}"
            )

    def watch(
        self,
        agent: Agent,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        memory, sizes = agent.memory, agent.structure.state_sizes
        passages = [memory[name] for name in ("passages", "lengths", "rewards", "begun", "held")]
        before, after = encode(state, sizes), encode(next_state, sizes)
        if memory["at"] != before:  # the state was set from outside: open passages do not count
            memory["begun"][:] = -1
            memory["pieces"] += 1
            arrive(before, agent.steps - 1, memory["total"], *passages)
        memory["total"] += float(sum(rewards))
        arrive(after, agent.steps, memory["total"], *passages)
        memory["at"] = after

    # ---- bounds for planning --------------------------------------------------------------------

    def span_bound(self, agent: Agent) -> float:
        """Return c0 of `agent`: the span, or the range of the reward times the fifth root of t."""
        if self.span is not None:
            return self.span
        return float(agent.structure.reward_range_total * (agent.steps + 1) ** 0.2)

    def mitigation(self, agent: Agent, distances: Floats, span: float) -> Floats:
        """Return beta of every joint state and action, for functions within the distances: [S, A].

        `agent` is the run so far; `distances`, [S, S], bound differences of the bias, `span` its
        span.
        """
        seen = agent.statistics
        s = seen.structure
        estimate = split_cells(s, seen.transition_means())[0]
        visits = split_transition_entries(s, seen.transition_visits)[0]
        rows = float(shares_of(s).transitions[0])
        log_term = bernstein_log(visits, rows, self.rho / 3.0)
        variance = variance_bound(estimate, distances, span)
        width = scaled(self.c, mitigation_width(variance, visits, log_term, span))
        return width.reshape(s.n_states, s.n_actions)

    def distances(self, agent: Agent, span: float, gain_upper: float) -> Floats:
        """Return upper bounds on h*(s) - h*(s') from passages and the span: [S, S], closed.

        `agent` is the run so far; `span` bounds the span of h*, `gain_upper` the optimal gain.
        """
        states, steps, memory = agent.structure.n_states, agent.steps, agent.memory
        widest = within_span(states, span)
        if not steps:
            return widest
        passages, lengths = memory["passages"], memory["lengths"]
        total = float(agent.statistics.reward_sums.sum())
        width = deviation(steps, states, agent.structure.reward_range_total, span, self.rho / 3.0)
        estimate = difference_estimates(passages, lengths, memory["rewards"], total / steps)
        error = difference_errors(
            passages,
            lengths,
            steps,
            steps * gain_upper - total,
            memory["pieces"] * span,
            width,
        )
        known = np.minimum(widest, estimate.T + scaled(self.c, error))
        if (known >= widest).all():
            return widest
        # With a small c, which has no guarantee, no function may have such differences.
        distances = closed(known)
        return widest if distances is None else distances

    def decide(self, agent: Agent) -> Decision:
        tables, span = self.tables(agent), self.span_bound(agent)
        widest = within_span(agent.structure.n_states, span)
        beta = self.mitigation(agent, widest, span)
        plan = agent.plan(tables, mitigation=beta, distances=widest)
        assert plan.gain_upper is not None
        known = self.distances(agent, span, plan.gain_upper)
        if (known < widest).any():
            beta = self.mitigation(agent, known, span)
            plan = agent.plan(tables, mitigation=beta, distances=known)
        return self.episode(agent, plan.policy)


def within_span(states: int, span: float) -> Floats:
    """Return the distances of functions of which only the span is known: [S, S]."""
    widest = np.full((states, states), span)
    np.fill_diagonal(widest, 0.0)
    return widest


class PMEVI(Flat, LearnedDifferences):
    """UCRL2's balls with a Bernstein bound and a learned bias, by Boone and Zhang: flat."""

    name = "pmevi"

    episodes = "doubling"

    def statistics_for(self, structure: Structure) -> Statistics:
        if structure.n_states > STATES:
            raise TooLarge(
                f"{self.owner()} counts ways between all pairs of joint states; got "
                f"{shown(structure.n_states)} joint states, must be at most {STATES}",
                40 * structure.n_states**2,
                40 * STATES**2,
            )
        return super().statistics_for(structure)

    def tables(self, agent: Agent) -> OptimisticTables:
        return ucrl2_tables(agent.statistics, agent.steps + 1, self.rho / 3.0, self.c)
