"""What a learner is: `act(state)` -> action, `observe(state, action, rewards, next_state)`.

A learner is told the structure and never sees the model. It can be driven by any loop; nothing is
assumed about who calls. Between two decisions its policy is fixed, and a loop that knows this may
ask for an `offer` (a policy, a number of steps, limits on counts), run it in compiled code that
fills the learner's statistics in place, and tell how far it got with `absorb`. Both ways lead to
the same state of the learner, to the last bit.

`PlanningLearner` is what all algorithms of the paper share: at the start of an episode, tables are
made from the statistics (an optimistic set, or a sample) and handed to a planner, whose policy is
played until the episode ends. A plan that did not converge is used and counted.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.learning.episodes import NO_LIMITS, Counts, Episode, EpisodeRule
from fmdp.learning.statistics import Statistics
from fmdp.model import Structure
from fmdp.model.structure import check_structure
from fmdp.parameters import Choice, Integer, Parameter, quoted, resolve
from fmdp.planning.choice import choose_planner
from fmdp.planning.exact import Exact
from fmdp.planning.plan import Plan, Planner, Prepared, Status, Tables
from fmdp.planning.policy import Policy, TablePolicy
from fmdp.planning.registry import planner_of
from fmdp.planning.settings import refuse_targets
from fmdp.planning.span import SpanConstrained

Table = NDArray[np.integer[Any]]
"""Joint action indices."""

TOLERANCE = 1e-3
"""Of plans inside learners, in units of the sum of the reward ranges."""
MAX_SWEEPS = 200
"""Of plans inside learners; more than enough but for sampled models with several chains."""
TABULATED_STATES = 1 << 18
"""Up to here a policy that is no table becomes one, state by state as states are met."""
EXACT_STATES = 1 << 13
"""Learners plan hundreds of times: above this the exact planner is not their default."""

TARGETS = Choice(
    "targets",
    None,
    "how the exact planner places free mass: during the elimination, or jointly (slower); "
    "by default as the planner is set, which is nested",
    choices=("nested", "vertex"),
)


@dataclass(frozen=True, eq=False)
class Offer:
    """What a learner will do until its next decision."""

    actions: Table
    """Joint action indices: by state [S], or one for each of the coming steps. In a table by state
    -1 stands for an action that the policy has not been asked for yet."""
    by_state: bool
    steps: int
    limits: Counts
    """As in Episode: the offer ends when the visits of an entry reach its limit."""
    statistics: Statistics | None
    """Where every step is counted."""
    policy: Policy | None = None
    """Who is asked for the actions that are missing."""


class Learner(ABC):
    """The common part: settings, counters, a generator."""

    name: ClassVar[str]
    role: ClassVar[str] = "learner"
    summary: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()

    def __init__(
        self,
        structure: Structure,
        settings: Mapping[str, object],
        generator: np.random.Generator | int | None,
    ) -> None:
        """`generator` is for learners that draw at random: a generator, or a seed for one; without
        it `simulate` gives the learner one."""
        check_structure(structure, f"learner {self.name}")
        self.structure = structure
        self.settings: dict[str, Any] = resolve(self.parameters, settings, f"learner {self.name}")
        """Every parameter with its value."""
        self.generator = generator_of(generator, f"learner {self.name}")
        self.steps = 0
        """Steps observed."""
        self.episodes = 0
        self.planner_calls = 0
        self.unconverged_plans = 0

    @abstractmethod
    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        """The action to take in this state; asking again gives the same answer."""

    @abstractmethod
    def observe(
        self,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        """What came of an action, the learner's own or another's: one reward a reward factor."""

    def offer(self, at_most: int) -> Offer | None:
        """What the learner will do for up to `at_most` steps, if that can be said beforehand."""
        return None

    def absorb(self, taken: int, limit_reached: bool) -> None:
        """An offer was played for so many steps, all of them counted in its statistics."""
        raise NotImplementedError

    @property
    def randomness(self) -> np.random.Generator:
        """The generator, or an error that says how to give one."""
        if self.generator is None:
            raise InvalidParameter(
                f"learner {self.name} draws at random and has no generator; pass generator=seed "
                f"or a numpy.random.Generator, or use simulate"
            )
        return self.generator

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `load_learner` goes on from there."""
        from fmdp.learning.files import save_learner

        save_learner(self, path)

    # What files.py stores beside settings, counters and generator.

    @abstractmethod
    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Plain values and arrays that make up the rest of the learner's state."""

    @abstractmethod
    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take over what `state` has given."""


class PlanningLearner(Learner):
    """Statistics, an episode rule and a planner; children say which tables are planned with."""

    plans_for_models: ClassVar[bool] = False
    """Not for optimistic tables, whose free mass needs targets."""

    def __init__(
        self,
        structure: Structure,
        settings: Mapping[str, object],
        generator: np.random.Generator | int | None,
        planner: Planner | str | None,
    ) -> None:
        super().__init__(structure, settings, generator)
        self.statistics = Statistics(structure)
        self.planner_reason: str | None = None
        """Why the planner is not the exact one, where it was left to the learner."""
        given = planner_of(planner, f"learner {self.name}")
        if self.plans_for_models:
            refuse_targets(given, f"learner {self.name}")
        self.planner = self.choose_planner(given)
        self.rule: EpisodeRule = self.episode_rule()
        self.policy: Policy | None = None
        """The policy of the episode under way."""
        self._actions: Table | None = None  # the policy as far as tabulated
        self._prepared: Prepared | None = None
        self._episode = Episode(0, NO_LIMITS)
        self._taken = 0  # steps of the episode under way
        self._over = True

    @abstractmethod
    def episode_rule(self) -> EpisodeRule:
        """When to plan again."""

    @abstractmethod
    def tables(self) -> Tables:
        """What to plan with, from the statistics as they are now."""

    def choose_planner(self, planner: Planner | None) -> Planner:
        """The planner with a learner's defaults for what was left open."""
        if planner is None:
            planner, self.planner_reason = choose_planner(self.structure, most_states=EXACT_STATES)
        return for_learning(planner, self.structure, self.settings.get("targets"))

    # ---- step by step ---------------------------------------------------------------------------

    def act(self, state: Sequence[int]) -> tuple[int, ...]:
        if self._over:
            self._begin()
        assert self.policy is not None
        return self.policy(state)

    def observe(
        self,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        self.statistics.record(state, action, rewards, next_state)
        limits = self._episode.limits
        reached = bool(limits.size and (self.statistics.visits >= limits).any())
        self.absorb(1, reached)

    # ---- in bulk --------------------------------------------------------------------------------

    def offer(self, at_most: int) -> Offer | None:
        if self._over:
            self._begin()
        assert self.policy is not None
        if self._actions is None:
            self._actions = action_table(self.policy, self.structure)
        if self._actions is None:
            return None
        steps = min(at_most, self._episode.length - self._taken)
        limits = self._episode.limits
        return Offer(self._actions, True, steps, limits, self.statistics, self.policy)

    def absorb(self, taken: int, limit_reached: bool) -> None:
        self.steps += taken
        self._taken += taken
        self._over = self._over or limit_reached or self._taken >= self._episode.length

    # ---- episodes -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start an episode: make the tables, plan, ask the rule. A failed plan changes nothing."""
        if self._prepared is None:
            self._prepared = self.planner.prepare(self.structure)
        plan = self.plan()
        if plan.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if plan.policy is None:
            raise RuntimeError(f"planner {self.planner.name} gave no policy: {plan.status.message}")
        self.planner_calls += 1
        self.unconverged_plans += plan.status is not Status.CONVERGED
        self.policy = plan.policy
        self._actions = None
        previous = self._taken if self.episodes else 1
        self.episodes += 1
        self._episode = self.rule.start(self.episodes, self.statistics.visits, previous)
        self._taken = 0
        self._over = False

    def plan(self) -> Plan:
        """Plan with the tables of now."""
        assert self._prepared is not None
        return self._prepared.solve(self.tables())

    # ---- saving ---------------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values = {"taken": self._taken, "over": self._over, "length": self._episode.length}
        arrays: dict[str, NDArray[Any]] = {
            "cell_counts": self.statistics.cell_counts,
            "visits": self.statistics.visits,
            "reward_sums": self.statistics.reward_sums,
            "limits": self._episode.limits,
        }
        if self._prepared is not None:
            for name, array in self._prepared.warm_state().items():
                arrays[f"warm.{name}"] = array
        return values, arrays

    def restore(self, values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        for name in ("cell_counts", "visits", "reward_sums"):
            held: NDArray[Any] = getattr(self.statistics, name)
            held[:] = arrays[name]
        self._episode = Episode(int(values["length"]), arrays["limits"].astype(np.int64))
        self._taken, self._over = int(values["taken"]), bool(values["over"])
        self._prepared = self.planner.prepare(self.structure)
        self._prepared.restore_warm_state(
            {name[5:]: array for name, array in arrays.items() if name.startswith("warm.")}
        )


def generator_of(given: object, owner: str) -> np.random.Generator | None:
    """A generator from what a user hands over: a generator, a seed for PCG64, or None."""
    if given is None or isinstance(given, np.random.Generator):
        return given
    try:
        seed = Integer("generator", 0, "", low=0).check(given, owner)
    except InvalidParameter:
        raise InvalidParameter(
            f"the 'generator' of {owner} must be a numpy.random.Generator or a seed, an integer "
            f">= 0; got {quoted(given)}"
        ) from None
    return np.random.Generator(np.random.PCG64(seed))


def action_table(policy: Policy, structure: Structure) -> Table | None:
    """The policy's table, or an empty one to be filled as states are met; None for too many."""
    if isinstance(policy, TablePolicy):
        return policy.actions
    if structure.n_states <= TABULATED_STATES:
        return np.full(structure.n_states, -1, dtype=np.int64)
    return None


def for_learning(
    planner: Planner | None, structure: Structure, targets: str | None = None
) -> Planner:
    """A planner for plans by the hundred.

    Without one: exact where there are at most 2^13 states and it fits, else approximate. A
    tolerance at its default becomes 1e-3 times the sum of the reward ranges, and where no limit is
    set value iteration gets one of 200 sweeps; whatever was set otherwise stays.
    """
    chosen: Any = planner
    if planner is None:
        chosen = choose_planner(structure, most_states=EXACT_STATES).planner
    # A planner of the user's own need not be a dataclass; it is then used as it is.
    defaults = {f.name: f.default for f in fields(chosen)} if is_dataclass(chosen) else {}
    changes: dict[str, Any] = {}
    if "tolerance" in defaults and chosen.tolerance is None:
        changes["tolerance"] = TOLERANCE * (structure.reward_range_total or structure.reward_unit)
    # The iterations of a linear program are rounds or pivots, many of them cheap: no limit there.
    if isinstance(chosen, Exact | SpanConstrained) and chosen.max_iterations is None:
        changes["max_iterations"] = MAX_SWEEPS
    if targets is not None:
        if "targets" not in defaults:
            raise InvalidParameter(
                f"planner {chosen.name} has no setting for the 'targets' parameter; got {targets}"
            )
        if chosen.targets not in (targets, defaults["targets"]):
            raise InvalidParameter(
                f"the 'targets' parameter must be given once; got {targets} for the learner and "
                f"{chosen.targets} for its planner"
            )
        changes["targets"] = targets
    finished: Planner = replace(chosen, **changes) if changes else chosen
    return finished
