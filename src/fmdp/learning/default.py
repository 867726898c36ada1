"""The default learner: optimism of one standard deviation above a pooled posterior.

At the start of an episode every row has a posterior that knows how alike rows are (pooling.py).
With g_i the marginal of the last plan's bias along variable i, scaled to [0, 1] (what each value of
s_i is worth), the worth <theta, g_i> of a row has a posterior mean mu and a deviation sd, and

    u = max(mu + c sd, Wilson(mu, sd, c)) + c^4 / N^2,    at most 1,    c = 1,

is what the row is planned with: the mean row, of which so much goes to the best value that its
worth is u. N is the number of samples that this is worth: sd^2 = mu (1 - mu) / N. Wilson's upper
end, the largest q with (q - mu)^2 <= c^2 q (1 - q) / N, is the larger one where mu < 1/2: a row
that failed five times of five has a mean near 0 and hardly any variance, and yet it may be good.
The last term is gone after a few samples: what went wrong the first time is tried a second time,
where otherwise one step of bad luck could rule out the best action for good. Rewards: the same, in
units of their range, with the variance of their noise learned from the sums of the episodes
(noise.py). The rest is an ordinary plan of an ordinary model, so that any planner serves, with
alike rows, constraints and effects.

Nothing is to be tuned: the scale c = 1 is the posterior's own. Everything is in units of the
bias, and worths that differ by rounding alone are equal, so that the unit of the reward does not
matter. docs/default-learner.md has the evidence and
docs/theory.md the guarantee, which asks for a larger c and for the bias to be a sum over variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fmdp._base.settings import setting
from fmdp.elimination.ties import TIE_TOLERANCE
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.episodes import RULES, RULES_MEANING
from fmdp.learning.learner import PlanningLearner
from fmdp.learning.noise import Batches, no_batches, noise_variance, scaled_sums, with_batch
from fmdp.learning.pooling import posterior
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Index, entries_of, split_cells, split_reward_entries
from fmdp.planning.plan import Plan
from fmdp.planning.spans import marginals

Floats = NDArray[np.float64]


class Default(PlanningLearner):
    """Optimism of one standard deviation above a posterior that learns which rows are alike."""

    name = "default"

    c: float = setting(1.0, "standard deviations of optimism: larger explores more", low=0.0)
    episodes: str = setting("paced", RULES_MEANING, choices=RULES)

    def remember(self, structure: Structure) -> dict[str, Any]:
        worths = np.zeros(sum(structure.state_sizes))
        return {"worths": worths, **no_batches(structure.n_reward_classes)._asdict()}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        for name, begun in self.remember(structure).items():
            array = memory[name]
            if (array.shape, array.dtype) != (begun.shape, begun.dtype) or not (
                np.isfinite(array).all() and (name == "worths" or (array >= 0.0).all())
            ):
                raise InvalidParameter(
                    f"the memory of {self.owner()} must have {begun.size} finite numbers as "
                    f"{name!r}{'' if name == 'worths' else ', none below 0'}"
                )

    def tables(self, agent: Agent) -> FactoredMDP:
        batches = Batches(*(agent.memory[name] for name in Batches._fields))
        return optimistic_model(agent.statistics, agent.memory["worths"], batches, self.c)

    def decide(self, agent: Agent) -> Decision:
        batches = Batches(*(agent.memory[name] for name in Batches._fields))
        agent.memory.update(with_batch(batches, agent.statistics)._asdict())
        if not _worths_differ(agent.statistics.structure, agent.memory["worths"]):
            # Nothing is known of what is worth having: the first plan is for that alone.
            self._plan(agent)
        return self.episode(agent, self._plan(agent).policy)

    def _plan(self, agent: Agent) -> Plan:
        # A planner of the user's own need not know the question; its bias answers it too.
        asked = getattr(agent.planner, "gives_marginals", False)
        plan = agent.plan(self.tables(agent), **({"marginals": True} if asked else {}))
        found = plan.marginals
        if found is None and plan.bias is not None:
            found = marginals(plan.bias, agent.statistics.structure.state_sizes)
        if found is None:
            raise InvalidParameter(
                f"{self.owner()} has to know what values are worth, and planner {plan.planner} "
                f"says neither its marginals nor a bias"
            )
        agent.memory["worths"] = np.concatenate(found)
        return plan


def optimistic_model(
    statistics: Statistics, worths: Floats, batches: Batches, c: float
) -> FactoredMDP:
    """The model of the posterior means, every row and every reward raised by its bonus.

    `worths`: what each value of each state variable is worth, in any unit, one after the other.
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
    """The upper end of the mean of every reward entry; that was seen once more than it was, in the
    middle of its range."""
    lo, hi, visits = statistics.reward_lo, statistics.reward_hi, statistics.reward_visits
    mean = (scaled_sums(statistics) + 0.5) / (visits + 1.0)
    upper = upper_end(mean, noise_variance(batches, mean) / (visits + 2.0), c)
    rewards: Floats = np.clip(lo + (hi - lo) * upper, lo, hi)
    return rewards


def upper_end(mean: ArrayLike, variance: ArrayLike, c: float) -> Floats:
    """The larger of mean + c sd and Wilson's upper end, and c^4 / N^2 more, at most 1; for a number
    in [0, 1] with this posterior mean and variance. Broadcasts."""
    mu, var = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    coin = mu * (1.0 - mu)
    # c^2 / N: no variance says that there is nothing to learn.
    ratio = c * c * np.divide(var, coin, out=np.zeros_like(mu * var), where=coin > 0.0)
    wilson = (mu + 0.5 * ratio + np.sqrt(ratio * coin + 0.25 * ratio**2)) / (1.0 + ratio)
    upper: Floats = np.minimum(np.maximum(mu + c * np.sqrt(var), wilson) + ratio**2, 1.0)
    return upper


class _Places(NamedTuple):
    """Which worths a cell has: a class of rows that factors share has the mean of theirs."""

    cells: Index
    values: Index
    sharing: Floats  # [cells]


def _worth_slack(structure: Structure, worths: Floats) -> float:
    """Return how far apart two worths may be and count as equal: far more than rounding in a plan,
    relative to the reward and to the worths themselves, so that it scales with the unit."""
    return TIE_TOLERANCE * (structure.reward_unit + float(np.abs(worths).max()))


def _worths_differ(structure: Structure, worths: Floats) -> bool:
    """Return whether some variable has a value that is worth more than another."""
    starts = np.cumsum([0, *structure.state_sizes[:-1]])
    spans = np.maximum.reduceat(worths, starts) - np.minimum.reduceat(worths, starts)
    return bool((spans > _worth_slack(structure, worths)).any())


@lru_cache(maxsize=8)  # asked for in every plan
def _places(structure: Structure) -> _Places:
    s, entries = structure, entries_of(structure)
    cells, values, first = [], [], 0
    for i, size in enumerate(s.state_sizes):
        own = np.unique(s.transition_classes_of(i))
        cells.append((entries.first_cell[own][:, None] + np.arange(size)).ravel())
        values.append(np.tile(np.arange(first, first + size), len(own)))
        first += size
    flat = np.concatenate(cells)
    return _Places(flat, np.concatenate(values), np.bincount(flat).astype(np.float64))


def _worth_of_cells(structure: Structure, worths: Floats) -> tuple[Floats, Floats]:
    """Return the worth of every cell in its row, scaled to [0, 1], and for every row the row with
    all its mass on the best values.

    Worths within `_worth_slack` are equal: scaling them apart would make rounding errors, which
    depend on the unit of the reward, as large as what is known.
    """
    places, entries = _places(structure), entries_of(structure)
    slack = _worth_slack(structure, worths)
    starts, of_cell = entries.first_cell[:-1], entries.cell_entry
    worth = np.bincount(places.cells, worths[places.values]) / places.sharing
    low = np.minimum.reduceat(worth, starts)
    size = np.maximum.reduceat(worth, starts) - low
    differ = size > slack
    scaled = np.where(differ[of_cell], worth - low[of_cell], 0.0)
    scaled /= np.where(differ, size, 1.0)[of_cell]
    best = worth >= (low + size)[of_cell] - slack
    return scaled, best / np.add.reduceat(best.astype(np.float64), starts)[of_cell]
