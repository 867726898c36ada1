"""Condition-based maintenance: n components wear, a crew replaces some of them, k must work.

A component has levels 0 (new) to levels - 1 (failed). Replacing makes it new at once; then each
wears by one level with probability `wear`, more (times 1 + load) while the component before it on
the ring is failed. Costs of a step depend on the state before the action: `preventive` for
replacing a working component and `corrective` for a failed one, `setup` once if anything is
replaced, `penalty` while fewer than k components work. `crew` limits the replacements per step.
Costs and system are those of the condition-based maintenance model of mdpsolver (Andersen,
Andersen, Kulahci & Nielsen 2022), whose components may wear by several levels.

Replacing is deterministic and immediate, wear is chance (`FactoredMDP.from_effects`), so exact
planners treat the 2^n joint actions one component at a time. The table of the penalty has levels^n
entries, that of the set-up 2^n. Where these would be large, they are over derived variables
instead: the number of working components, and whether any is replaced.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.model.aggregates import Aggregate, Count
from fmdp.model.aggregates import Any as AnyOf
from fmdp.model.alike import Alike
from fmdp.model.constraints import AtMost
from fmdp.model.effects import Effect
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray, IndexArray, all_assignments
from fmdp.problems.family import Problem, crew_setting, refuse_if_too_large

ACTIONS = ("leave", "replace")
MOST_ENTRIES = 1 << 22
"""Largest table over all components; larger ones are over a derived variable."""


class Maintenance(Problem):
    """Components that wear, preventive and corrective replacement, set-up costs, k out of n."""

    name = "maintenance"
    summary = "condition-based maintenance: n components wear, k must work, a crew replaces"
    example = "maintenance:3,levels=3,k=2,crew=2"

    size: int = setting(REQUIRED, "number of components", low=1)
    levels: int = setting(4, "levels of wear; the last is failed", low=2)
    k: int | None = setting(
        None, "components that must work, or the penalty is due; all by default", low=0
    )
    crew: int | None = crew_setting()
    wear: float = setting(
        0.3, "probability that a component wears by a level in a step", low=0.0, high=1.0
    )
    load: float = setting(
        0.0, "how much more a component wears beside a failed one: times 1 + load", low=0.0
    )
    preventive: float = setting(1.0, "cost of replacing a component that works", low=0.0)
    corrective: float = setting(3.0, "cost of replacing one that is failed", low=0.0)
    setup: float = setting(1.0, "cost of replacing anything at all", low=0.0)
    penalty: float = setting(10.0, "cost of a step with fewer than k that work", low=0.0)
    learned: str = setting(
        "apart",
        "whether a learner is told that all components wear alike, and learns them together",
        choices=("apart", "together"),
    )

    def check(self) -> None:
        if self.k is not None and self.k > self.size:
            raise InvalidParameter(
                f"k of maintenance must be at most the number of components, {self.size}; "
                f"got {self.k}"
            )

    def build(self) -> FactoredMDP:
        n, levels = self.size, self.levels
        needed = n if self.k is None else self.k
        neighbours = [(i - 1) % n if self.load > 0.0 and n > 1 else None for i in range(n)]
        beside = 1 if self.load > 0.0 and n > 1 else 0
        row_entries = 2 * levels * (2 * levels) ** beside * levels
        partial_counts = n * n * levels if needed and self.penalty else 0
        refuse_if_too_large(str(self), n * (row_entries + 2 * levels) + partial_counts, 2 * n)
        failed = levels - 1
        outcome = np.stack([np.arange(levels), np.zeros(levels, dtype=np.int64)], axis=1)
        laws = [self._law(i, other) for i, other in enumerate(neighbours)]
        cost = np.zeros((levels, 2))
        cost[:, 1] = -self.preventive
        cost[failed, 1] = -self.corrective
        rewards: list[tuple[Any, Any, Any]] = [("cost", (i, n + i), cost) for i in range(n)]
        names = [f"replacement_{i}" for i in range(n)]
        states, actions = ([f"{what}_{i}" for i in range(n)] for what in ("wear", "action"))
        derived: dict[str, Aggregate] = {}
        if self.setup:
            large = 2**n > MOST_ENTRIES
            rewards.append(("setup", ("replacing",) if large else (), (0.0, -self.setup)))
            names.append("setup")
            if large:
                derived["replacing"] = AnyOf(actions, "replace")
        if needed and self.penalty:
            rewards.append(self._penalty(needed))
            names.append("penalty")
            if rewards[-1][1] == ("working",):
                derived["working"] = Count(states, lambda level: level != "failed")
        cap: tuple[AtMost, ...] = ()
        if self.crew is not None and self.crew < n:
            cap = (AtMost(tuple(range(n, 2 * n)), self.crew, name="crew"),)
        return FactoredMDP.from_effects(
            (levels,) * n,
            (2,) * n,
            [Effect((i,), (n + i,), outcome.reshape(-1)) for i in range(n)],
            laws,
            rewards,
            reward_ranges=[(min(0.0, float(np.min(table))), 0.0) for _, _, table in rewards],
            state_names=states,
            action_names=actions,
            reward_names=names,
            state_values=((*map(str, range(failed)), "failed"),) * n,
            action_values=(ACTIONS,) * n,
            name=str(self),
            alike=self._alike(neighbours, rewards) if self.learned == "together" else None,
            constraints=cap,
            derived=derived,
        )

    def _penalty(self, needed: int) -> tuple[str, tuple[int | str, ...], FloatArray]:
        """Return the penalty for fewer working components than needed, as a reward factor."""
        n, levels = self.size, self.levels
        if levels**n > MOST_ENTRIES:
            return "before", ("working",), np.where(np.arange(n + 1) < needed, -self.penalty, 0.0)
        working = np.zeros(1, dtype=np.int64)
        for _ in range(n):
            working = (working[:, None] + (np.arange(levels) != levels - 1)).reshape(-1)
        return "before", tuple(range(n)), np.where(working < needed, -self.penalty, 0.0)

    def _law(self, i: int, other: int | None) -> tuple[tuple[int, ...], FloatArray]:
        """Return the scope after the action, and the distribution of the next level."""
        failed = self.levels - 1
        scope = (i,) if other is None else tuple(sorted((i, other)))
        values = all_assignments((self.levels,) * len(scope))
        level = values[:, scope.index(i)]
        chance = np.full(len(values), self.wear)
        if other is not None:
            beside = values[:, scope.index(other)] == failed
            chance[beside] = min(1.0, self.wear * (1.0 + self.load))
        chance[level == failed] = 0.0
        rows = np.arange(len(values))
        table = np.zeros((len(values), self.levels))
        table[rows, level] = 1.0 - chance
        table[rows, np.minimum(level + 1, failed)] += chance
        return scope, table

    def _alike(self, neighbours: list[int | None], rewards: list[tuple[Any, Any, Any]]) -> Alike:
        """Return the row classes of identical components: by own level and whether the one before
        is failed; replacements by level and action."""
        levels, failed = self.levels, self.levels - 1
        transitions: list[IndexArray] = []
        for i, other in enumerate(neighbours):
            scope = (i,) if other is None else tuple(sorted((i, other)))
            values = all_assignments((levels,) * len(scope))
            row = values[:, scope.index(i)]
            if other is not None:
                row = row + levels * (values[:, scope.index(other)] == failed)
            transitions.append(row)
        classes: list[IndexArray] = []
        start = 2 * levels
        for kind, _, table in rewards:
            rows = np.arange(np.size(table))
            if kind != "cost":
                rows, start = rows + start, start + len(rows)
            classes.append(rows)
        return Alike(tuple(transitions), tuple(classes))
