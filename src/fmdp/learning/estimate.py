"""The estimated model: relative frequencies, and a fixed guess for entries without visits."""

from __future__ import annotations

import numpy as np

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP
from fmdp.model.entries import split_cells, split_reward_entries


def estimated_model(statistics: Statistics) -> FactoredMDP:
    """Return the maximum likelihood model, P-hat and R-hat.

    Rows without visits are uniform, and unseen rewards are in the middle of their range. The
    initial state, which counts do not determine, has every variable at 0.

    Parameters
    ----------
    statistics
        Counts, such as `agent.statistics`, or filled by `statistics.record`.

    Returns
    -------
    FactoredMDP
        A model with the same structure, which later counts do not change.
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
    # Rounding may move a mean beyond the end of its range.
    rewards = np.clip(rewards, statistics.reward_lo, statistics.reward_hi)
    return FactoredMDP.trusted(s, split_cells(s, rows), split_reward_entries(s, rewards))
