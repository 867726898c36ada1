"""Optimistic posterior sampling (Agrawal & Jia 2017): the best of several samples of every row.

At the start of an episode psi rows Q_1, ..., Q_psi are drawn for every joint state and action, and
the plan is that of the extended model, in which action (a, j) moves by Q_j(s, a):

    N(s, a) >= eta:  Q_j ~ Dirichlet((N(s, a, .) + omega) / kappa), posterior sampling,
    N(s, a) < eta:   Q_j = p-minus + (1 - sum p-minus) 1{z_j}, z_j uniform over the states,
                     p-minus = p-hat - min(sqrt(3 p-hat log(4 S) / N) + 3 log(4 S) / N, p-hat),
    psi = S log(S A / rho),  kappa = omega = log(t / rho),  eta = sqrt(t S / A) + 12 omega S^2.

Episodes end when a count has doubled. Regret O~(D S sqrt(A T)) with probability 1 - rho, for
communicating models (the paper's third version; the first had sqrt(S) less).

The paper gives psi, kappa and omega as O(.); the constants are 1 here. They are from memory, as the
text of the paper was not available, except for the bound; its first bound contains the two parts of
eta, D S^(7/4) A^(3/4) T^(1/4) and D S^(5/2) A. The paper knows T; here t, the first step of the
episode, takes its place, with max{1, log(t / rho)} for small t. It knows the rewards, and so does
`faithful=True` (`rewards=known`). By default sample j has its own mean reward besides its row,
drawn as in PSRL (posterior.py) with kappa for c. There is no public code.

`c` multiplies psi, kappa, omega, eta and the widths. c = 1 is the theorem, where eta is so large
that small problems hardly ever leave the second line. As c goes to 0, the algorithm becomes PSRL
with ever narrower posteriors.

Flat: A psi S^2 numbers, refused above 2^22. A factored form would have one more action variable per
factor, its sample, as DORL has a target: the approximate planner could take it as it is, the exact
one would enumerate psi^m times the actions, and a backup that chooses during the elimination would
need sets of finitely many rows, which the engine does not have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.portable_math import exp
from fmdp._base.settings import setting
from fmdp.errors import TooLarge
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.episodes import FOR_EVER
from fmdp.learning.flat import Flat, each_table
from fmdp.learning.posterior import reward_posterior, sample_logarithms
from fmdp.learning.published import Published
from fmdp.learning.statistics import Floats
from fmdp.model import Alike, FactoredMDP, Structure
from fmdp.model.entries import split_cells, split_reward_entries
from fmdp.model.spaces import shown
from fmdp.planning.plan import Planner
from fmdp.planning.policies.policy import TablePolicy

CELLS = 1 << 22
"""Largest number of probabilities to plan with, A psi S^2."""


def number_of_samples(states: int, rows: int, rho: float, c: float = 1.0) -> int:
    """Return psi = S log(S A / rho), times c, at least 1; `rows` is S A."""
    samples = c * states * (math.log(rows) - math.log(rho))
    return max(1, math.ceil(min(samples, FOR_EVER)))


def confidence_term(t: int, rho: float) -> float:
    """Return kappa = omega = log(t / rho), at least 1."""
    return max(1.0, math.log(t) - math.log(rho))


def enough_visits(states: int, rows: int, t: int, omega: float) -> float:
    """Return eta = sqrt(t S / A) + 12 omega S^2; A is rows / S."""
    return math.sqrt(t * states**2 / rows) + 12.0 * omega * states**2


def simple_width(estimate: ArrayLike, visits: ArrayLike, states: int) -> Floats:
    """Return sqrt(3 p-hat log(4 S) / N) + 3 log(4 S) / N, with max{1, N} for N; broadcasts."""
    rate = 3.0 * math.log(4.0 * states) / np.maximum(1, visits)
    width: Floats = np.sqrt(np.asarray(estimate) * rate) + rate
    return width


@lru_cache(maxsize=8)  # used in every plan
def structure_with_samples(structure: Structure, samples: int) -> Structure:
    """Return a flat structure with one more action variable, the sample, as the last."""
    alike = structure.alike
    if alike is not None:
        numbers = np.arange(samples)
        alike = Alike(
            tuple((rows[:, None] * samples + numbers).reshape(-1) for rows in alike.transitions),
            tuple((rows[:, None] * samples + numbers).reshape(-1) for rows in alike.rewards),
        )
    last = len(structure.sizes)
    return replace(
        structure,
        action_sizes=(*structure.action_sizes, samples),
        action_names=(*structure.action_names, "sample"),
        action_values=(),
        transition_scopes=tuple((*scope, last) for scope in structure.transition_scopes),
        reward_scopes=tuple((*scope, last) for scope in structure.reward_scopes),
        alike=alike,
    )


class OPSRL(Flat, Published):
    """Optimism over several posterior samples of every row, by Agrawal and Jia: flat."""

    takes_derived = False

    name = "opsrl"
    published: ClassVar[Mapping[str, object]] = {"rewards": "known"}

    c: float = setting(
        1.0,
        "factor of the number of samples, their spread and the visits that a row needs for them; 1 "
        "is the theorem, less explores less",
        low=1e-9,
    )
    rho: float = setting(0.1, "failure probability of the bound", low=0.0, high=1.0, low_open=True)
    episodes = "doubling"

    def samples(self, structure: Structure) -> int:
        """Return the number of samples of every row of a flat `structure`."""
        states, rows = structure.n_states, structure.n_transition_classes
        return number_of_samples(states, rows, self.rho, self.c)

    def planned_structure(self, structure: Structure) -> Structure:
        return structure_with_samples(structure, self.samples(structure))

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        states, samples = structure.n_states, self.samples(structure)
        cells = structure.n_actions * samples * states**2
        if cells > CELLS:
            raise TooLarge(
                f"{self.owner()} plans with {shown(samples)} samples of every row of "
                f"{shown(states)} joint states and {shown(structure.n_actions)} joint actions, "
                f"{shown(cells)} numbers; at most {CELLS} are allowed, and a smaller c takes fewer "
                f"samples",
                8 * cells,
                8 * CELLS,
            )
        return super().planner_for(structure)

    def tables(self, agent: Agent) -> FactoredMDP:
        seen, draws = agent.statistics, agent.randomness
        s, t = seen.structure, agent.steps + 1
        states, rows, samples = s.n_states, s.n_transition_classes, self.samples(s)
        kappa = omega = self.c * confidence_term(t, self.rho)
        eta = self.c * enough_visits(states, rows, t, confidence_term(t, self.rho))
        visits = seen.transition_visits
        counts = seen.cell_counts.reshape(rows, states)
        few = visits < eta

        sampled = np.empty((rows, samples, states))
        parameters = (counts[~few, None, :] + omega) / kappa
        spread = np.broadcast_to(parameters, (len(parameters), samples, states))
        logarithms = sample_logarithms(spread, draws)
        weights = exp(logarithms - logarithms.max(axis=2, keepdims=True))
        sampled[~few] = weights / weights.sum(axis=2, keepdims=True)

        estimate = seen.transition_means().reshape(rows, states)[few]
        width = self.c * simple_width(estimate, visits[few, None], states)
        lower = estimate - np.minimum(width, estimate)
        targets = draws.integers(states, size=(len(lower), samples))
        sampled[few] = lower[:, None, :]
        free = np.maximum(1.0 - lower.sum(axis=1), 0.0)
        at_row, at_sample = np.nonzero(few)[0][:, None], np.arange(samples)
        sampled[at_row, at_sample, targets] += free[:, None]

        means, deviations = reward_posterior(seen, kappa)
        normals = draws.standard_normal((len(means), samples))
        paid = means[:, None] + deviations[:, None] * normals
        paid = np.clip(paid, seen.reward_lo[:, None], seen.reward_hi[:, None])
        larger = structure_with_samples(s, samples)
        return FactoredMDP.trusted(
            larger,
            split_cells(larger, sampled.reshape(-1)),
            split_reward_entries(larger, paid.reshape(-1)),
        )

    def episode(self, agent: Agent, policy: Any) -> Decision:
        s = agent.statistics.structure
        samples = self.samples(s)

        def without_sample(table: TablePolicy) -> TablePolicy:
            # The joint action is (action, sample), the sample fastest.
            return TablePolicy(s.state_sizes, s.action_sizes, table.actions // samples)

        return super().episode(agent, each_table(policy, without_sample))
