"""The estimated model: what the counts say, and a stated guess where they say nothing."""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP
from fmdp.model.entries import split_cells, split_reward_entries


def estimated_model(statistics: Statistics) -> FactoredMDP:
    """P-hat and R-hat as a model: the maximum of the likelihood.

    Rows that were never visited are uniform, and rewards that were never seen are in the middle of
    their range. Counts do not say where a model begins: this one begins where every variable is 0.

    Parameters
    ----------
    statistics
        Of an agent (`agent.statistics`), or filled by `statistics.record`.

    Returns
    -------
    FactoredMDP
        Of the same structure; a new one, which later counts do not change.
    """
    if not isinstance(statistics, Statistics):
        raise InvalidParameter(
            f"estimated_model takes Statistics, as agent.statistics is; got {quoted(statistics)}"
        )
    s, entries = statistics.structure, statistics.entries
    of_cell = entries.cell_entry
    visited = (statistics.transition_visits > 0)[of_cell]
    values = np.diff(entries.first_cell)[of_cell]
    rows = np.where(visited, statistics.transition_means(), 1.0 / values)
    middle = 0.5 * (statistics.reward_lo + statistics.reward_hi)
    rewards = np.where(statistics.reward_visits > 0, statistics.reward_means(), middle)
    # A mean of rewards at an end of the range may pass it by rounding.
    rewards = np.clip(rewards, statistics.reward_lo, statistics.reward_hi)
    return FactoredMDP.trusted(s, split_cells(s, rows), split_reward_entries(s, rewards))
