"""TSDE (Ouyang, Gagrani, Nayyar & Jain 2017): posterior sampling on joint states and actions.

PSRL as it is meant: the posterior itself (c = 1) under a proper prior, here Dirichlet(.1) in every
cell, and the paper's two stopping rules: an episode ends when a count has
more than doubled, and when it is one step longer than the last. Bayesian regret
O~(H S sqrt(A T)) for a prior on models whose span is at most H.

The paper knows the rewards; here their means are drawn as PSRL draws them (posterior.py).
"""

from __future__ import annotations

from fmdp.learning.flat import Flat
from fmdp.learning.psrl import PSRL


class TSDE(Flat, PSRL):
    """Posterior sampling with dynamic episodes, by Ouyang and others: flat."""

    name = "tsde"

    c = 1.0
    prior = 0.1
    episodes = "tsde"
