"""The default learner: optimism of about one standard deviation above a pooled posterior.

At the start of an episode every row has a posterior that learns which rows are alike, whichever
action and variable they belong to (pooling.py, kinds.py). Let g_i be the marginal of the last
plan's bias along variable i, scaled to [0, 1]: the worth of each value of s_i. The worth
<theta, g_i> of a row has a posterior mean mu and deviation sd, and

    u = max(mu + c_x sd, Wilson(mu, sd, c_x)) + c^4 / N^2,    at most 1,
    c_x^2 = c^2 (.35 + (1 - mu) (.65 + 8 / N) + (1 + mu^2) / 5 log(max{1, N_z / (8 N_x)})), c = 1,

is its optimistic worth, where N_x, at least 1, and N_z are the visits to the row and to its
context: to all rows that differ in the action alone. The plan uses the mean row, with as much mass
moved to the best value as gives it the worth u. N is the equivalent number of samples:
sd^2 = mu (1 - mu) / N. Wilson's upper end, the largest q with (q - mu)^2 <= c_x^2 q (1 - q) / N,
can be the larger one where mu < 1/2: a row that failed five times out of five has a mean near 0 and
hardly any variance, and yet it may be good. For the same reason c_x is larger for low means of few
samples. It grows with the visits to the context in which the row is not tried. The last term of u
vanishes after a few samples: it makes the learner try again what failed once.

A row with few visits may have been unlucky, and look unlike the others. So u is computed a second
time, with the odds that the row is independent divided by max{1, N_z / (8 N_x)}^(c^2), and the
larger one counts.

Rewards are treated alike, without N_z, in units of their range, with the variance of their noise
learned from the sums of the episodes, for every entry and its reward factor (noise.py). The plan is
that of an ordinary model, so every planner works, with alike rows, constraints and effects.

A value that was never seen in N > max(20, sqrt(t) / 2) visits to its row gets no mass after t
steps, and the posterior is that of the other values. Otherwise a mass of about 1 / N would make
states attractive for ever that cannot be reached, because an average over infinite time does not
count the tries.

No error is permanent. After 10^k steps the learner looks around for k steps: each of n action
variables is random with probability 1 / n, and the others follow the plan. So in a communicating
model every row is visited infinitely often, and the plans converge to those of the true model
(docs/default-learner.md has the proof). With `half_life` old steps lose their weight
(forgetting.py).

Nothing needs tuning: c = 1 is the scale of the posterior itself. Everything is in units of the
bias, and worths that differ by rounding alone count as equal, so the unit of the reward does not
matter. docs/default-learner.md has the evidence and docs/theory.md a guarantee, which needs a
larger c and a bias that is a sum over variables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp._base.parameters import quoted
from fmdp._base.portable_math import log
from fmdp._base.settings import setting
from fmdp.elimination.ties import TIE_TOLERANCE
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.episodes import ONE_STEP_LONGER, RULES, RULES_MEANING
from fmdp.learning.forgetting import (
    Evidence,
    evidence_of,
    fade,
    faded_counts,
    no_faded_counts,
)
from fmdp.learning.noise import (
    Batches,
    no_batches,
    noise_shares,
    noise_variance,
    reward_factors,
    with_batch,
)
from fmdp.learning.pooling import posterior
from fmdp.learning.statistics import Floats, Statistics
from fmdp.learning.unknown.learner import ScopeLearner
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Entries, Index, entries_of, split_cells, split_reward_entries
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import has_sizes_of
from fmdp.planning.policies.randomised import (
    ExploringPolicy,
    RandomisedPolicy,
    UniformPolicy,
)

LEAST_LEVEL = 0.35
"""c_x^2 / c^2 of a row that always led to the best value."""
FAILING_LEVEL = 0.65
"""How much larger it is for a row that never did, however often it was visited."""
FAILING_SAMPLES = 8.0
"""How much larger still it is for such a row after one sample; divided by their number."""
GROWTH = 0.2
"""How fast it grows with the logarithm of the imbalance of visits, for a mean of 0, and how much
faster for a mean of 1: good actions differ by little, and are easily lost."""
IMBALANCE = 8.0
"""Visits of the context per visit of the row from which on it grows."""
UNSEEN_VISITS = 20.0
"""Most visits to a row in which every value may have mass, seen or not."""
UNSEEN_SHARE = 0.5
"""The same per square root of the steps, in long runs."""
LOOK_BASE = 10
"""After LOOK_BASE^k steps the learner takes k exploring actions."""


class Default(ScopeLearner):
    """Optimism of about one deviation above a posterior that learns which rows are alike."""

    name = "default"
    plans_for_models = True

    c: float = setting(1.0, "standard deviations of optimism: larger explores more", low=0.0)
    episodes: str = setting("paced", RULES_MEANING, choices=RULES)
    half_life: int | None = setting(
        None,
        "steps after which an observation counts half, for systems that drift; by default "
        "nothing is forgotten",
        low=1,
        high=2**53,
        only_with=("scopes", ("known",)),
    )
    looks: bool = setting(
        True,
        "whether it looks around for k steps after 10^k steps, with one random action variable on "
        "average, so that no error of the learner is permanent",
    )

    def remember(self, structure: Structure) -> dict[str, Any]:
        memory = {
            "worths": np.zeros(sum(structure.state_sizes)),
            **no_batches(structure.n_reward_classes)._asdict(),
        }
        if self.half_life is not None:
            memory |= no_faded_counts(entries_of(structure))
        return memory

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        for name, initial in self.remember(structure).items():
            array = memory[name]
            if (array.shape, array.dtype) != (initial.shape, initial.dtype) or not (
                np.isfinite(array).all() and (name == "worths" or (array >= 0.0).all())
            ):
                raise InvalidParameter(
                    f"the memory of {self.owner()} must have {initial.size} finite numbers as "
                    f"{name!r}{'' if name == 'worths' else ', none below 0'}"
                )
        for name in ("looks", "length"):
            number = memory.get(name, 1)
            if not isinstance(number, int) or number < 1:
                raise InvalidParameter(
                    f"the memory of {self.owner()} must have an integer of at least 1 as {name!r}; "
                    f"got {quoted(number)}"
                )

    def tables(self, agent: Agent) -> FactoredMDP:
        batches = Batches(*(agent.memory[name] for name in Batches._fields))
        evidence = None if self.half_life is None else faded_counts(agent.memory)
        return optimistic_model(agent.statistics, agent.memory["worths"], batches, self.c, evidence)

    def decide(self, agent: Agent) -> Decision:
        batches = Batches(*(agent.memory[name] for name in Batches._fields))
        agent.memory.update(with_batch(batches, agent.statistics)._asdict())
        if self.half_life is not None:
            agent.memory.update(
                fade(agent.memory, agent.statistics, agent.steps, float(self.half_life))
            )
        if not _worths_differ(agent.statistics.structure, agent.memory["worths"]):
            # No worths yet: make a plan only to find them.
            self._plan(agent)
        policy = self._plan(agent).policy
        due = looks_due(agent.steps)
        if self.looks and agent.generator is not None and due > agent.memory.get("looks", 0):
            # The next episode may be one step longer than the last one, and not than this walk.
            agent.memory.update(looks=due, length=agent.steps_of_last_episode)
            return Decision(look_policy(agent.structure, policy), due)
        return self._episode(agent, policy)

    def _episode(self, agent: Agent, policy: Any) -> Decision:
        decision = self.episode(agent, policy)
        steps, before_walk = decision.steps, agent.memory.pop("length", None)
        if before_walk is not None and self.episodes in ONE_STEP_LONGER:
            steps = max(steps, before_walk + 1)
        if self.half_life is not None:
            steps = min(steps, max(1, self.half_life // 4))
        return replace(decision, steps=steps)

    def _plan(self, agent: Agent) -> Plan:
        plan = agent.plan(self.tables(agent), marginals=True)
        assert plan.marginals is not None
        agent.memory["worths"] = np.concatenate(plan.marginals)
        return plan


def looks_due(steps: int) -> int:
    """Return the largest k with LOOK_BASE^k <= steps; 0 for no steps."""
    k = 0
    while LOOK_BASE ** (k + 1) <= steps:
        k += 1
    return k


def look_policy(structure: Structure, policy: Any) -> RandomisedPolicy:
    """Return the policy of a look, in which one action variable is random on average.

    Each of n action variables is random with probability 1 / n, and the others follow `policy`.
    All are random if that depends on the time, is random itself, or has no sizes.
    """
    timed = getattr(policy, "horizon", None) is not None
    if timed or isinstance(policy, RandomisedPolicy) or not has_sizes_of(policy, structure):
        return UniformPolicy.of(structure)
    return ExploringPolicy(policy, 1.0 / len(structure.action_sizes), by_variable=True)


def optimistic_model(
    statistics: Statistics,
    worths: Floats,
    batches: Batches,
    c: float,
    evidence: Evidence | None = None,
) -> FactoredMDP:
    """Return the model of the posterior means, with every row and every reward raised by its bonus.

    `worths` has the worth of each value of each state variable, in any unit, concatenated;
    `evidence` the counts, by default those of the statistics.
    """
    s = statistics.structure
    counted = evidence_of(statistics) if evidence is None else evidence
    rows = np.empty(counted.cells.shape)
    possible = possible_values(s, counted.cells)
    scaled, best = _worth_of_cells(s, worths, possible)
    for mixture in posterior(s, counted.cells, possible):
        cells = mixture.pools.cells
        imbalance = log_imbalance(counted.cells[cells].sum(axis=-1))
        mean, variance = mixture.moments(scaled[cells])
        if_alike = mixture.believed_alike(c * c * imbalance).moments(scaled[cells])
        upper = np.maximum(
            upper_end(mean, variance, c, imbalance), upper_end(*if_alike, c, imbalance)
        )
        share = (upper - mean) / np.maximum(1.0 - mean, 1e-300)
        share = np.minimum(share, 1.0)[..., None]
        rows[cells] = (1.0 - share) * mixture.mean() + share * best[cells]
    rewards = optimistic_rewards(statistics, batches, c, counted)
    return FactoredMDP.trusted(s, split_cells(s, rows), split_reward_entries(s, rewards))


def possible_values(structure: Structure, cell_counts: Floats) -> NDArray[np.bool_]:
    """Return which values may have mass in their rows: [cells].

    A value that was never seen in N visits to its row has none if N is above UNSEEN_VISITS and
    above UNSEEN_SHARE sqrt(t), after t steps. All counts together are t for every factor.
    """
    entries = _places(structure).entries
    visits = np.add.reduceat(cell_counts, entries.first_cell[:-1])
    steps = cell_counts.sum() / structure.m
    few = visits <= max(UNSEEN_VISITS, UNSEEN_SHARE * math.sqrt(steps))
    possible: NDArray[np.bool_] = (cell_counts > 0.0) | few[entries.cell_entry]
    return possible


def log_imbalance(visits: Floats) -> Floats:
    """Return log(N / (IMBALANCE n)), at least 0, for rows with n visits in pools with N.

    `visits` has the n: [pools, rows].
    """
    imbalance = visits.sum(axis=-1, keepdims=True) / (IMBALANCE * np.maximum(visits, 1.0))
    logarithm: Floats = log(np.maximum(imbalance, 1.0))
    return logarithm


def optimistic_rewards(
    statistics: Statistics, batches: Batches, c: float, evidence: Evidence | None = None
) -> Floats:
    """Return the upper end of the mean of every reward entry.

    The prior counts as one observation in the middle of the range, or as less if the rewards of
    the factor have little noise (noise.py). `evidence` is as for `optimistic_model`.
    """
    lo, hi = statistics.reward_lo, statistics.reward_hi
    counted = evidence_of(statistics) if evidence is None else evidence
    visits = counted.reward_visits
    shares = noise_shares(batches, reward_factors(statistics.structure))
    mean = (counted.reward_sums + 0.5 * shares) / (visits + shares)
    variance = noise_variance(batches, mean, shares) / (visits + 2.0 * shares)
    upper = upper_end(mean, variance, c)
    rewards: Floats = np.clip(lo + (hi - lo) * upper, lo, hi)
    return rewards


def squared_level(mean: Floats, per_sample: Floats, imbalance: Floats | float) -> Floats:
    """Return c_x^2 / c^2 of rows with this mean worth, 1 / N, and logarithm of the imbalance."""
    failing = FAILING_LEVEL + FAILING_SAMPLES * per_sample
    growth = GROWTH * (1.0 + mean * mean)
    level: Floats = LEAST_LEVEL + (1.0 - mean) * failing + growth * imbalance
    return level


def upper_end(mean: ArrayLike, variance: ArrayLike, c: float, imbalance: ArrayLike = 0.0) -> Floats:
    """Return the larger of mean + c_x sd and Wilson's upper end, plus c^4 / N^2, at most 1.

    For a number in [0, 1] with this posterior mean and variance, and a row whose visits have this
    logarithm of their imbalance. Broadcasts.
    """
    mu, var = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    coin = mu * (1.0 - mu)
    # 1 / N; without variance there is nothing to learn.
    per_sample = np.divide(var, coin, out=np.zeros_like(mu * var), where=coin > 0.0)
    level = c * c * squared_level(mu, per_sample, np.asarray(imbalance, dtype=np.float64))
    ratio = level * per_sample
    wilson = (mu + 0.5 * ratio + np.sqrt(ratio * coin + 0.25 * ratio**2)) / (1.0 + ratio)
    second_try = (c * c * per_sample) ** 2
    upper: Floats = np.minimum(np.maximum(mu + np.sqrt(level * var), wilson) + second_try, 1.0)
    return upper


class _Places(NamedTuple):
    """The worths that belong to each cell. A class of rows that factors share uses their mean."""

    entries: Entries
    cells: Index
    values: Index
    sharing: Floats  # [cells]


def _worth_slack(structure: Structure, worths: Floats) -> float:
    """Return the largest difference of worths that count as equal.

    It is far above the rounding errors of a plan, and relative to the reward and the worths, so
    that it scales with the unit.
    """
    return TIE_TOLERANCE * (structure.reward_unit + float(np.abs(worths).max()))


def _worths_differ(structure: Structure, worths: Floats) -> bool:
    """Return whether some variable has values of different worth."""
    starts = np.cumsum([0, *structure.state_sizes[:-1]])
    spans = np.maximum.reduceat(worths, starts) - np.minimum.reduceat(worths, starts)
    return bool((spans > _worth_slack(structure, worths)).any())


@lru_cache(maxsize=8)  # used in every plan
def _places(structure: Structure) -> _Places:
    s, entries = structure, entries_of(structure)
    cells, values, first = [], [], 0
    for i, size in enumerate(s.state_sizes):
        rows = np.unique(s.transition_classes_of(i))
        cells.append((entries.first_cell[rows][:, None] + np.arange(size)).ravel())
        values.append(np.tile(np.arange(first, first + size), len(rows)))
        first += size
    flat = np.concatenate(cells)
    return _Places(entries, flat, np.concatenate(values), np.bincount(flat).astype(np.float64))


def _worth_of_cells(
    structure: Structure, worths: Floats, possible: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return the worth of every cell, scaled to [0, 1] per row, and the best row for every row.

    The best row has all its mass on the best values that are possible. Worths of impossible values
    may lie outside of [0, 1]. Worths within `_worth_slack` are equal:
    scaling would magnify rounding errors, which depend on the unit of the reward.
    """
    places = _places(structure)
    slack = _worth_slack(structure, worths)
    starts, of_cell = places.entries.first_cell[:-1], places.entries.cell_entry
    worth = np.bincount(places.cells, worths[places.values]) / places.sharing
    low = np.minimum.reduceat(np.where(possible, worth, np.inf), starts)
    size = np.maximum.reduceat(np.where(possible, worth, -np.inf), starts) - low
    differ = size > slack
    scaled = np.where(differ[of_cell], worth - low[of_cell], 0.0)
    scaled /= np.where(differ, size, 1.0)[of_cell]
    best = possible & (worth >= (low + size)[of_cell] - slack)
    return scaled, best / np.add.reduceat(best.astype(np.float64), starts)[of_cell]
