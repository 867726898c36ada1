"""Planning for models with derived variables through the same models without them.

A planner that works on tables over states and actions plans for the expanded model
(model/expansion.py), which has the same states, actions and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import expand, expansion_of
from fmdp.planning.status import Progress, Tables

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan, Planner


class PreparedExpanded:
    """A planner that is prepared for the expanded structure, and takes tables of the original."""

    def __init__(self, planner: Planner, structure: Structure) -> None:
        self._expansion = expansion_of(structure)
        self._prepared = planner.prepare(self._expansion.structure)

    def solve(self, tables: Tables, *, progress: Progress | None = None, **options: Any) -> Plan:
        """Plan with these tables; the options are those of the planner."""
        return self._prepared.solve(self._expansion.tables(tables), progress=progress, **options)

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        return self._prepared.warm_state()

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._prepared.restore_warm_state(state)


def plan_expanded(planner: Planner, model: FactoredMDP, progress: Progress | None) -> Plan:
    """Return the plan of a planner for the expanded model, as a plan for the model."""
    return replace(planner.plan(expand(model), progress=progress), model=model)
