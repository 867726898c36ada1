"""The bound of Theorem 1 of Xu & Tewari (2020) on the Bayesian regret of PSRL, with its constants.

docs/theory.md, section 7: Theorem 10 has the closed form, Corollary 15 the term for a prior without
a bounded diameter. The paper itself states O~(D (l + m sqrt W) sqrt(T L)) without constants.
"""

from __future__ import annotations

import math

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.model import Structure

TRANSITION_CONSTANT = 18.0
REWARD_CONSTANT = 12.0
"""Constants of the confidence sets in the paper's equations (1) and (2)."""


def psrl_regret_bound(
    structure: Structure,
    diameter: float,
    steps: int,
    *,
    rewards_known: bool = False,
    outside: float = 0.0,
    tolerance: float = 0.0,
) -> float:
    """Return an upper bound on the Bayesian regret of PSRL with the true prior.

    It holds for posterior sampling with the prior that the model is drawn from, arithmetic episodes
    and exact plans. For practical numbers of steps it exceeds steps times the reward range, which
    no learner can lose.

    Parameters
    ----------
    structure
        The structure of the models, without derived variables.
    diameter
        d: the largest diameter of the models, or of all but a part of them.
    steps
        T, the number of steps.
    rewards_known
        Whether PSRL knows the mean rewards.
    outside
        Probability under the prior of a diameter above d; every step of such an episode is charged
        with the whole range of the reward.
    tolerance
        Largest error of the gain of a plan.

    Returns
    -------
    float
        In units of the reward.

    Raises
    ------
    InvalidParameter
        If the structure has derived variables, which the theorem does not cover.
    """
    if structure.derived:
        raise InvalidParameter("the bound must be asked for a structure without derived variables")
    d, reward_range = diameter, float(structure.reward_range_total)
    largest = structure.max_scope_size  # L
    rho = 1 / math.sqrt(steps)
    log = math.log(
        6 * max(structure.m, structure.l) * structure.max_state_size * largest * steps / rho
    )
    longest = 1 + math.sqrt(3 * steps / largest)  # of the arithmetic episodes
    episodes = math.sqrt(3 * largest * steps)
    classes, together = structure.n_transition_classes, _factors_per_class(structure)
    met = 2 * classes * together * longest
    met += (1 + math.sqrt(2)) * math.sqrt(classes * structure.m * steps)
    width = 2 * math.sqrt(TRANSITION_CONSTANT * structure.max_state_size * log)
    bound = d * reward_range * width * met
    if not rewards_known:
        rows = 2 * largest * longest + (1 + math.sqrt(2)) * math.sqrt(largest * steps)
        bound += 2 * reward_range * math.sqrt(REWARD_CONSTANT * log) * rows
    bound += episodes * d * reward_range
    bound += (d + 1) * reward_range * math.sqrt(0.5 * steps * math.log(1 / rho))
    bound += 2 * reward_range * steps * rho
    return bound + steps * (tolerance + outside * reward_range)


def _factors_per_class(structure: Structure) -> int:
    """Return the largest number of factors that share a class of alike rows."""
    numbers = [np.unique(structure.transition_classes_of(i)) for i in range(structure.m)]
    return int(np.bincount(np.concatenate(numbers)).max())
