"""TSDE (Ouyang, Gagrani, Nayyar & Jain 2017): posterior sampling on joint states and actions.

Samples come from the posterior itself (c = 1) under a proper prior, here Dirichlet(.1) in every
cell. The paper has two stopping rules: an episode ends when a count has more than doubled, or when
it is one step longer than the last. Bayesian regret O~(H S sqrt(A T)) for a prior on models whose
span is at most H.

The paper knows the rewards. By default their means are learned here and drawn as in PSRL
(posterior.py), which costs most of the regret on small problems. `faithful=True` knows them
(`rewards=known`). There is no public code to compare the prior with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from fmdp.learning.flat import Flat
from fmdp.learning.psrl import PSRL
from fmdp.learning.published import Published


class TSDE(Flat, Published, PSRL):
    """Posterior sampling with dynamic episodes, by Ouyang and others: flat."""

    name = "tsde"
    published: ClassVar[Mapping[str, object]] = {"rewards": "known"}

    c = 1.0
    prior = 0.1
    episodes = "tsde"
