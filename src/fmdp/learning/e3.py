"""Factored E3 (Kearns & Koller 1999): explore or exploit, and say which.

An entry is known after m visits. With an unknown entry at hand, wander: take an action that has
one, the one least tried. Where all entries are known, three plans decide (elsewhere.py has the
models), and what is decided holds for ceil(1 / (1 - discount)) steps, or until an unknown entry is
visited:

    exploit, with the plan of the known model, if V*(heaven) - V*(known) <= eps R / (1 - discount),
    else explore, with a plan that is paid hi_k - lo_k for factor k where that is unknown,

R the sum of the ranges. Explore or exploit: V*(explore) >= V*(heaven) - V*(known), because both
models move alike and differ in exactly that pay. So either the plan is within eps a step of every
policy of the true model, or some plan reaches the unknown with a discounted chance above eps.
With m large enough for known entries to be near the truth, polynomially many visits, that is the
paper's theorem: near-optimal, in the discounted sense, on all but polynomially many steps. The
default m = 300, f-Rmax's, keeps the algorithm and gives that constant up.

Differences. The paper plans T steps ahead and is given the optimal return, or guesses it; here
there is a discount, and heaven's value bounds the optimum. The paper pays 1 for what is unknown;
here it pays what it may hide, which makes the lemma one line and leaves alone what no reward
depends on. Under average reward nothing of this stands: a known model that may be left, however
rarely, gains what elsewhere pays. What is least tried is, of the unknown entries of an action, the
least visited one. The text of the paper was not at hand; the construction is checked as a theorem.

Cost: three exact plans over prod (|S_i| + 1) states whenever an entry becomes known, and a look at
all states and actions after every visit to an unknown entry; steps are taken one by one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fmdp._base.parameters import quoted
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.discounted import Discounted
from fmdp.learning.elsewhere import (
    Known,
    Mask,
    estimated_parts,
    known_entries,
    model_with_elsewhere,
    states_here,
    structure_with_elsewhere,
)
from fmdp.learning.episodes import FOR_EVER
from fmdp.learning.statistics import Floats
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Index, entries_of
from fmdp.model.spaces import encode, project, shown
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.policies.archive import array_in
from fmdp.planning.policies.policy import TablePolicy

_KNOWN = 2**62
_FORBIDDEN = 2**63 - 1
"""In the place of how often an action was tried."""


class Models(NamedTuple):
    """What E3 plans for; all three move alike."""

    known: FactoredMDP
    heaven: FactoredMDP
    explore: FactoredMDP


def models_of(
    structure: Structure,
    transitions: Sequence[Floats],
    rewards: Sequence[Floats],
    known: Known,
) -> Models:
    """The known model, heaven, and the one that pays for what is unknown alone."""
    lows = [lo for lo, _ in structure.reward_ranges]
    highs = [hi for _, hi in structure.reward_ranges]
    nothing = [np.full(len(table), lo) for table, lo in zip(rewards, lows, strict=True)]
    return Models(
        model_with_elsewhere(structure, transitions, rewards, known, lows),
        model_with_elsewhere(structure, transitions, rewards, known, highs),
        model_with_elsewhere(structure, transitions, nothing, known, highs),
    )


@lru_cache(maxsize=8)  # asked for at every visit to an unknown entry
def _pairs(structure: Structure) -> tuple[Index, Mask]:
    """The entry of every factor at every pair, [m + l, S, A], and what is allowed, [S, A]."""
    s, entries = structure, entries_of(structure)
    found = np.empty((s.m + s.l, s.n_states * s.n_actions), dtype=np.int64)
    for factor, scope in enumerate((*s.transition_scopes, *s.reward_scopes)):
        rows = entries.first_row[factor] + project(s.sizes, scope)
        found[factor] = entries.entry_of_row[rows] if len(entries.entry_of_row) else rows
    return found.reshape(-1, s.n_states, s.n_actions), s.allowed_mask()


def least_tried(structure: Structure, visits: Index, sure: Mask) -> tuple[Index, Mask]:
    """For every state the allowed action with the least visited unknown entry, the first of
    several, and whether there is one (else it is any that is allowed): [S], [S]."""
    found, allowed = _pairs(structure)
    tried = np.where(sure, _KNOWN, visits)[found].min(axis=0)
    tried[~allowed] = _FORBIDDEN
    actions: Index = tried.argmin(axis=1)
    return actions, tried.min(axis=1) < _KNOWN


class E3(Discounted):
    """Factored E3: explores until the plan in what is known is good enough, and then exploits."""

    name = "e3"

    m: int = setting(300, "visits after which an entry is known", low=1)
    eps: float = setting(
        0.05,
        "how far a step's worth of the plan in what is known may be below the optimistic one, in "
        "units of the sum of the reward ranges",
        low=0.0,
    )
    episodes: str = setting(
        "known", "when to plan again: when an entry becomes known", choices=("known",)
    )

    def check_planner(self) -> None:
        """Refuse a planner that has no value for every state."""
        super().check_planner()
        if self.planner is not None and not isinstance(self.planner, Exact):
            raise InvalidParameter(
                f"{self.owner()} compares values of single states; got planner "
                f"{getattr(self.planner, 'name', self.planner)}, must be exact"
            )

    def planned_structure(self, structure: Structure) -> Structure:
        return structure_with_elsewhere(structure)

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        larger = structure_with_elsewhere(structure)
        planner, reason = super().planner_for(larger)
        if not isinstance(planner, Exact):
            raise InvalidParameter(
                f"{self.owner()} needs the exact planner, for {shown(larger.n_states)} states with "
                f"one value more for each variable ({reason}); give planner=exact to try all the "
                f"same"
            )
        return planner, reason

    def remember(self, structure: Structure) -> dict[str, Any]:
        nothing = np.zeros(0, dtype=np.int64)
        return {"state": -1, "known": -1, "exploit": nothing, "explore": nothing, "near": nothing}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        super().check_memory(structure, memory)
        for name, end in (("state", structure.n_states), ("known", FOR_EVER)):
            value = memory[name]
            if type(value) is not int or not -1 <= value < end:
                raise InvalidParameter(
                    f"the memory of {self.owner()} has {name} {quoted(value)}; must be a whole "
                    f"number from -1 to {end - 1}"
                )
        shape = (structure.n_states if memory["known"] >= 0 else 0,)
        for name, end in (
            ("exploit", structure.n_actions),
            ("explore", structure.n_actions),
            ("near", 2),
        ):
            array_in(memory, name, "i", shape, 0, end - 1)

    def watch(
        self,
        agent: Agent,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        agent.memory["state"] = encode(next_state, agent.structure.state_sizes)

    def tables(self, agent: Agent) -> FactoredMDP:
        return self._models(agent).known

    def _models(self, agent: Agent) -> Models:
        seen = agent.statistics
        return models_of(*estimated_parts(seen, known_entries(seen, self.m)))

    def decide(self, agent: Agent) -> Decision:
        seen = agent.statistics
        s, sure = seen.structure, known_entries(seen, self.m)
        actions, wandering = least_tried(s, seen.visits, sure)
        here, steps = agent.memory["state"], 1
        if here >= 0 and not wandering[here]:
            if agent.memory["known"] != int(sure.sum()):
                self._plan(agent, int(sure.sum()))
            chosen = agent.memory["exploit" if agent.memory["near"][here] else "explore"]
            actions = np.where(wandering, actions, chosen)
            steps = math.ceil(1.0 / (1.0 - self.discount))
        limits = np.where(sure, FOR_EVER, seen.visits + 1)
        return Decision(TablePolicy(s.state_sizes, s.action_sizes, actions), steps, limits)

    def _plan(self, agent: Agent, known: int) -> None:
        """Known entries only become more, so that their number says whether a plan is of today."""
        here, models = states_here(agent.statistics.structure), self._models(agent)
        plans = [agent.plan(model, describe=True) for model in models]
        tables, values = [], []
        for plan in plans:
            assert isinstance(plan.policy, TablePolicy)
            tables.append(np.asarray(plan.policy.actions[here], dtype=np.int64))
            values.append(plan.bias)
        known_value, heaven_value, _ = values
        near = np.zeros(len(here), dtype=np.int64)
        # A plan that a limit of the user's has cut off has no values: then explore.
        if known_value is not None and heaven_value is not None:
            precise: float = agent.planner.tolerance  # type: ignore[union-attr]
            enough = self.eps * agent.structure.reward_range_total / (1.0 - self.discount)
            near[heaven_value[here] - known_value[here] <= enough + precise] = 1
        agent.memory.update(known=known, exploit=tables[0], explore=tables[2], near=near)
