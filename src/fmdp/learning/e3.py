"""Factored E3 (Kearns & Koller 1999): explicit choice between exploration and exploitation.

An entry is known after m visits. In a state with unknown entries the learner plays balanced
wandering: the action with the least visited unknown entry. In a state where all entries are known,
three plans (absorbing.py) decide, and the decision holds for ceil(1 / (1 - discount)) steps or
until an unknown entry is visited:

    exploit, with the plan of the known model, if V*(heaven) - V*(known) <= eps R / (1 - discount),
    else explore, with a plan that is paid hi_k - lo_k for factor k where that is unknown,

R the sum of the ranges. Explore or exploit: V*(explore) >= V*(heaven) - V*(known), because both
models move alike and differ in exactly that pay. So either the plan is within eps per step of every
policy of the true model, or some plan reaches the unknown with a discounted chance above eps. With
m large enough for known entries to be near the truth, polynomially many visits, that is the paper's
theorem: near-optimal, in the discounted sense, on all but polynomially many steps. The default m =
300, as in f-Rmax, gives up that constant.

Differences from the paper: it plans T steps ahead and is given the optimal return, or guesses it;
here there is a discount, and the value of heaven bounds the optimum. It pays 1 for unknown entries;
here the pay is the range that is unknown, which makes the lemma one line and ignores entries that
no reward depends on. The argument does not hold for the average reward: a known model that may be
left, however rarely, gains what the absorbing values pay. The text of the paper was not available;
the construction is tested as a theorem.

Cost: three exact plans over prod (|S_i| + 1) states whenever an entry becomes known, and a pass
over all states and actions after every visit to an unknown entry. Steps are taken one by one.
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
from fmdp.learning.absorbing import (
    KnownRows,
    Mask,
    estimated_parts,
    known_entries,
    model_with_absorbing_values,
    original_states,
    structure_with_absorbing_values,
)
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.discounted import Discounted
from fmdp.learning.episodes import FOR_EVER
from fmdp.learning.learner import require_planner
from fmdp.learning.statistics import Floats, entries_of_pairs
from fmdp.model import FactoredMDP, Structure
from fmdp.model.entries import Index
from fmdp.model.spaces import encode, shown
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.policies.archive import array_in
from fmdp.planning.policies.policy import TablePolicy

_KNOWN = 2**62
_FORBIDDEN = 2**63 - 1
"""Sentinels in place of visit counts."""


class Models(NamedTuple):
    """The three models that E3 plans for, with equal transitions."""

    known: FactoredMDP
    heaven: FactoredMDP
    explore: FactoredMDP


def models_of(
    structure: Structure,
    transitions: Sequence[Floats],
    rewards: Sequence[Floats],
    known: KnownRows,
) -> Models:
    """Return the known model, heaven, and the model that only pays for unknown entries."""
    lows = [lo for lo, _ in structure.reward_ranges]
    highs = [hi for _, hi in structure.reward_ranges]
    nothing = [np.full(len(table), lo) for table, lo in zip(rewards, lows, strict=True)]
    return Models(
        model_with_absorbing_values(structure, transitions, rewards, known, lows),
        model_with_absorbing_values(structure, transitions, rewards, known, highs),
        model_with_absorbing_values(structure, transitions, nothing, known, highs),
    )


def least_tried(structure: Structure, visits: Index, sure: Mask) -> tuple[Index, Mask]:
    """Return for every state the allowed action with the least visited unknown entry: [S].

    The second array [S] says whether there is such an action; if not, the action is any allowed
    one.
    """
    pairs = entries_of_pairs(structure, structure.m + structure.l)
    tried = np.where(sure, _KNOWN, visits)[pairs].min(axis=0)
    tried[~_allowed(structure)] = _FORBIDDEN
    actions: Index = tried.argmin(axis=1)
    return actions, tried.min(axis=1) < _KNOWN


@lru_cache(maxsize=8)  # used at every visit to an unknown entry
def _allowed(structure: Structure) -> Mask:
    return structure.allowed_mask()


class E3(Discounted):
    """Factored E3: explores until the plan for the known part is good enough, then exploits."""

    takes_derived = False

    name = "e3"

    m: int = setting(300, "visits after which an entry is known", low=1)
    eps: float = setting(
        0.05,
        "largest loss per step of the plan in the known model against the optimistic one, in units "
        "of the sum of the reward ranges",
        low=0.0,
    )
    episodes: str = setting(
        "known", "when to plan again: when an entry becomes known", choices=("known",)
    )

    def check_planner(self) -> None:
        """Raise InvalidParameter for a planner without a value of every state."""
        super().check_planner()
        reason = f"{self.owner()} compares values of single states"
        require_planner(self.planner, Exact, reason, "exact")

    def planned_structure(self, structure: Structure) -> Structure:
        return structure_with_absorbing_values(structure)

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        larger = structure_with_absorbing_values(structure)
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
        state, steps = agent.memory["state"], 1
        if state >= 0 and not wandering[state]:
            if agent.memory["known"] != int(sure.sum()):
                self._plan(agent, int(sure.sum()))
            chosen = agent.memory["exploit" if agent.memory["near"][state] else "explore"]
            actions = np.where(wandering, actions, chosen)
            steps = math.ceil(1.0 / (1.0 - self.discount))
        limits = np.where(sure, FOR_EVER, seen.visits + 1)
        return Decision(TablePolicy(s.state_sizes, s.action_sizes, actions), steps, limits)

    def _plan(self, agent: Agent, known: int) -> None:
        """Plan for the three models and store the results, with the number of known entries.

        Entries never become unknown, so that number tells whether the plans are up to date.
        """
        states, models = original_states(agent.statistics.structure), self._models(agent)
        plans = [agent.plan(model, describe=True) for model in models]
        tables, values = [], []
        for plan in plans:
            assert isinstance(plan.policy, TablePolicy)
            tables.append(np.asarray(plan.policy.actions[states], dtype=np.int64))
            values.append(plan.bias)
        known_value, heaven_value, _ = values
        near = np.zeros(len(states), dtype=np.int64)
        # Explore if a limit of the user cut off a plan, which then has no values.
        if known_value is not None and heaven_value is not None:
            precise: float = agent.planner.tolerance  # type: ignore[union-attr]
            enough = self.eps * agent.structure.reward_range_total / (1.0 - self.discount)
            near[heaven_value[states] - known_value[states] <= enough + precise] = 1
        agent.memory.update(known=known, exploit=tables[0], explore=tables[2], near=near)
