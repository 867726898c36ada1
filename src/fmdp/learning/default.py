"""The default learner: optimism of one standard deviation above a pooled posterior.

At the start of an episode every row has a posterior that learns how similar rows are (pooling.py).
Let g_i be the marginal of the last plan's bias along variable i, scaled to [0, 1]: the worth of
each value of s_i. The worth <theta, g_i> of a row has a posterior mean mu and deviation sd, and

    u = max(mu + c sd, Wilson(mu, sd, c)) + c^4 / N^2,    at most 1,    c = 1,

is its optimistic worth. The plan uses the mean row, with as much mass moved to the best value as
gives it the worth u. N is the equivalent number of samples: sd^2 = mu (1 - mu) / N. Wilson's upper
end, the largest q with (q - mu)^2 <= c^2 q (1 - q) / N, is the larger one where mu < 1/2: a row
that failed five times out of five has a mean near 0 and hardly any variance, and yet it may be
good. The last term vanishes after a few samples: it makes the learner try again what failed once,
where otherwise one unlucky step could rule out the best action for good. Rewards are treated alike,
in units of their range, with the variance of their noise learned from the sums of the episodes
(noise.py). The plan is that of an ordinary model, so every planner works, with alike rows,
constraints and effects.

Nothing needs tuning: c = 1 is the scale of the posterior itself. Everything is in units of the
bias, and worths that differ by rounding alone count as equal, so the unit of the reward does not
matter. docs/default-learner.md has the evidence and docs/theory.md the guarantee, which needs a
larger c and a bias that is a sum over variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fmdp._base.settings import setting
from fmdp.elimination.ties import TIE_TOLERANCE
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.episodes import RULES, RULES_MEANING
from fmdp.learning.noise import Batches, no_batches, noise_variance, scaled_sums, with_batch
from fmdp.learning.pooling import posterior
from fmdp.learning.statistics import Floats, Statistics
from fmdp.learning.unknown.learner import ScopeLearner
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Entries, Index, entries_of, split_cells, split_reward_entries
from fmdp.planning.plan import Plan


class Default(ScopeLearner):
    """Optimism of one standard deviation above a posterior that learns which rows are alike."""

    name = "default"
    plans_for_models = True

    c: float = setting(1.0, "standard deviations of optimism: larger explores more", low=0.0)
    episodes: str = setting("paced", RULES_MEANING, choices=RULES)

    def remember(self, structure: Structure) -> dict[str, Any]:
        worths = np.zeros(sum(structure.state_sizes))
        return {"worths": worths, **no_batches(structure.n_reward_classes)._asdict()}

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

    def tables(self, agent: Agent) -> FactoredMDP:
        batches = Batches(*(agent.memory[name] for name in Batches._fields))
        return optimistic_model(agent.statistics, agent.memory["worths"], batches, self.c)

    def decide(self, agent: Agent) -> Decision:
        batches = Batches(*(agent.memory[name] for name in Batches._fields))
        agent.memory.update(with_batch(batches, agent.statistics)._asdict())
        if not _worths_differ(agent.statistics.structure, agent.memory["worths"]):
            # No worths yet: make a plan only to find them.
            self._plan(agent)
        return self.episode(agent, self._plan(agent).policy)

    def _plan(self, agent: Agent) -> Plan:
        plan = agent.plan(self.tables(agent), marginals=True)
        assert plan.marginals is not None
        agent.memory["worths"] = np.concatenate(plan.marginals)
        return plan


def optimistic_model(
    statistics: Statistics, worths: Floats, batches: Batches, c: float
) -> FactoredMDP:
    """Return the model of the posterior means, with every row and every reward raised by its bonus.

    `worths` has the worth of each value of each state variable, in any unit, concatenated.
    """
    s = statistics.structure
    rows = np.empty(statistics.cell_counts.shape)
    scaled, best = _worth_of_cells(s, worths)
    for mixture in posterior(statistics):
        cells = mixture.pools.cells
        mean, variance = mixture.moments(scaled[cells])
        share = (upper_end(mean, variance, c) - mean) / np.maximum(1.0 - mean, 1e-300)
        share = np.minimum(share, 1.0)[..., None]
        rows[cells] = (1.0 - share) * mixture.mean() + share * best[cells]
    rewards = optimistic_rewards(statistics, batches, c)
    return FactoredMDP.trusted(s, split_cells(s, rows), split_reward_entries(s, rewards))


def optimistic_rewards(statistics: Statistics, batches: Batches, c: float) -> Floats:
    """Return the upper end of the mean of every reward entry.

    The prior counts as one observation in the middle of the range.
    """
    lo, hi, visits = statistics.reward_lo, statistics.reward_hi, statistics.reward_visits
    mean = (scaled_sums(statistics) + 0.5) / (visits + 1.0)
    upper = upper_end(mean, noise_variance(batches, mean) / (visits + 2.0), c)
    rewards: Floats = np.clip(lo + (hi - lo) * upper, lo, hi)
    return rewards


def upper_end(mean: ArrayLike, variance: ArrayLike, c: float) -> Floats:
    """Return the larger of mean + c sd and Wilson's upper end, plus c^4 / N^2, at most 1.

    For a number in [0, 1] with this posterior mean and variance. Broadcasts.
    """
    mu, var = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    coin = mu * (1.0 - mu)
    # c^2 / N; without variance there is nothing to learn.
    ratio = c * c * np.divide(var, coin, out=np.zeros_like(mu * var), where=coin > 0.0)
    wilson = (mu + 0.5 * ratio + np.sqrt(ratio * coin + 0.25 * ratio**2)) / (1.0 + ratio)
    upper: Floats = np.minimum(np.maximum(mu + c * np.sqrt(var), wilson) + ratio**2, 1.0)
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


def _worth_of_cells(structure: Structure, worths: Floats) -> tuple[Floats, Floats]:
    """Return the worth of every cell, scaled to [0, 1] per row, and the best row for every row.

    The best row has all its mass on the best values. Worths within `_worth_slack` are equal:
    scaling would magnify rounding errors, which depend on the unit of the reward.
    """
    places = _places(structure)
    slack = _worth_slack(structure, worths)
    starts, of_cell = places.entries.first_cell[:-1], places.entries.cell_entry
    worth = np.bincount(places.cells, worths[places.values]) / places.sharing
    low = np.minimum.reduceat(worth, starts)
    size = np.maximum.reduceat(worth, starts) - low
    differ = size > slack
    scaled = np.where(differ[of_cell], worth - low[of_cell], 0.0)
    scaled /= np.where(differ, size, 1.0)[of_cell]
    best = worth >= (low + size)[of_cell] - slack
    return scaled, best / np.add.reduceat(best.astype(np.float64), starts)[of_cell]
