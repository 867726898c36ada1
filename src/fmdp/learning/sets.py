"""Optimistic learners whose confidence sets have upper ends: boxes and balls around every row.

At c = 1 the true rows and means are in the set at every step with probability at least 1 - rho;
tests/referee/confidence_sets.py checks that in exact arithmetic. `c` multiplies every width and
radius. With c < 1 the guarantee is given up for less exploration.

Optimism is by nested targets: boxes and balls have too many corners for the actions of an extended
FMDP. So targets=vertex and the approximate planner are refused.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent
from fmdp.learning.learner import TABULAR, require_planner
from fmdp.learning.published import Published
from fmdp.model import OptimisticTables, Structure
from fmdp.model.spaces import shown
from fmdp.planning.plan import Planner


class SetLearner(Published):
    """An optimistic learner whose sets are boxes or balls, planned with the exact planner."""

    c: float = setting(
        1.0,
        "factor of every width of the confidence set; 1 keeps its guarantee, less explores less",
        low=0.0,
    )
    rho: float = setting(
        0.1, "failure probability of the confidence set", low=0.0, high=1.0, low_open=True
    )
    episodes = "doubling"

    def check_planner(self) -> None:
        """Raise InvalidParameter for a planner that does not take boxes and balls."""
        planner: Any = self.planner
        reason = f"{self.owner()} plans over sets with upper ends"
        require_planner(planner, TABULAR, reason, "exact or span")
        if planner is not None and planner.targets != "nested":
            raise InvalidParameter(
                f"{self.owner()} plans over sets with upper ends, whose corners are no targets; "
                f"got targets={planner.targets}, must be nested"
            )

    @abstractmethod
    def tables(self, agent: Agent) -> OptimisticTables: ...

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        if not isinstance(planner, TABULAR):
            raise InvalidParameter(
                f"{self.owner()} plans over sets with upper ends, which need the exact planner; "
                f"{shown(structure.n_states)} states are too many for it here ({reason}); give "
                f"planner=exact to try all the same"
            )
        return planner, reason
