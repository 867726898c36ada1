"""What a learner is: frozen settings, and how they decide.

A learner is told the structure and never sees the model. It has no state: `start` makes the agent
of one run (agent.py), which counts what happens and asks the learner for a `Decision` whenever the
last one is over. So an algorithm is one method, `decide(agent)`; a planning learner's is one line
shorter, `tables(agent)`: what to plan with, from the statistics as they are now.

Plans inside learners: a tolerance of 1e-3 times the sum of the reward ranges and at most 200 sweeps
unless it is set otherwise; exact where the predicted cost allows it, else approximate
(planning_budget.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.generators import generator_of
from fmdp._base.parameters import quoted
from fmdp._base.settings import Settings, part, setting
from fmdp.elimination.ties import LEAST_TRIED
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent, Decision
from fmdp.learning.episodes import (
    DEFAULT_RULE,
    OWN_RULES,
    RULES,
    RULES_MEANING,
    EpisodeRule,
    check_length,
    ends_before_limits,
    episode_rule,
    horizon_length,
)
from fmdp.learning.planning_budget import (
    planner_for_learning,
    predicted_plan_seconds,
    steps_until_affordable,
)
from fmdp.learning.registry import LEARNERS
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner, Tables
from fmdp.planning.registry import planner_of
from fmdp.planning.settings import refuse_targets, without_search
from fmdp.planning.span import SpanConstrained

TOLERANCE = 1e-3
"""Of plans inside learners, in units of the sum of the reward ranges."""
MAX_SWEEPS = 200
"""Of plans inside learners; more than enough but for sampled models with several chains."""

PLANNER_MEANING = (
    "what plans: an object such as fmdp.Exact(tolerance=1e-2), or a text such as "
    "'alp,basis=pairs'; by default exact where that fits, else approximate"
)

ROLES = ("learner", "upper", "lower", "baseline")

_NOT_ASKED = ("act", "observe")


class Learner(Settings, ABC):
    """A learning algorithm: frozen settings, and how they decide.

    Inherit, declare settings as fields with `fmdp.setting`, and write `decide`. See PlanningLearner
    for those that plan.
    """

    noun: ClassVar[str] = "learner"
    registry: ClassVar[Any] = LEARNERS
    role: ClassVar[str] = "learner"
    """In a comparison: learner, upper (knows the model), lower (random), baseline (fixed)."""
    counts: ClassVar[bool] = True
    """Whether what happens is counted; without, the statistics stay empty."""
    knows_model: ClassVar[bool] = False
    """Whether it is told the model and not the structure alone."""
    breaks_ties_by_tries: ClassVar[bool] = False
    """Whether plans take the least tried of equally good actions; a setting of those that plan."""
    knows_rewards: ClassVar[bool] = False
    """Whether it is told the mean rewards of the model; a setting of those that plan."""
    only_planner: ClassVar[str | None] = None
    """The name of the one planner that it works with, if there is only one."""
    planner_defaults: ClassVar[Mapping[str, object]] = {}
    """What need not be given for that planner, because the learner says it at every plan."""
    example: ClassVar[Mapping[str, object]] = {}
    """Values for the settings that have to be given, with which it runs on a model with one action
    variable: for tests."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.role not in ROLES:
            raise TypeError(f"the role of {cls.__name__} must be one of {', '.join(ROLES)}")
        for name in _NOT_ASKED:
            if hasattr(cls, name):
                raise TypeError(
                    f"{cls.__name__} defines {name}, which nobody would call: a learner says "
                    f"what it does in decide(self, agent), and may look on in watch"
                )

    @abstractmethod
    def decide(self, agent: Agent) -> Decision:
        """What to do until the next decision.

        Parameters
        ----------
        agent
            The run so far: `agent.statistics`, `agent.steps`, `agent.memory`, `agent.structure`,
            `agent.randomness`; `agent.plan(tables)` plans.

        Returns
        -------
        Decision
            A policy, and how long it is played.
        """

    def watch(
        self,
        agent: Agent,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        """Called after every step if a learner overrides it, for what counts do not say.

        Steps are then taken one by one, which is slower. What is to be kept goes into
        `agent.memory`.

        Parameters
        ----------
        agent
            The run so far, this step counted.
        state, action, next_state
            One value for each variable, by number.
        rewards
            One number for each reward factor, in the unit of the model.
        """

    def remember(self, structure: Structure) -> dict[str, Any]:
        """What `agent.memory` begins with; nothing by default.

        Parameters
        ----------
        structure
            Of the model to act in.

        Returns
        -------
        dict[str, Any]
            Numbers, texts, lists and arrays by name, which are saved with the agent.
        """
        return {}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        """Refuse a memory from a file that is none of this learner; asked when an agent is loaded.

        By default it must have what `remember` begins with.

        Parameters
        ----------
        structure
            Of the model to act in.
        memory
            What the file holds.

        Raises
        ------
        InvalidParameter
            Where it is none.
        """
        for name, begun in self.remember(structure).items():
            if isinstance(begun, np.ndarray) != isinstance(memory.get(name), np.ndarray) or (
                name not in memory
            ):
                raise InvalidParameter(
                    f"the memory of {self.owner()} must have {name!r}, "
                    f"{'an array' if isinstance(begun, np.ndarray) else 'a plain value'}"
                )

    def statistics_for(self, structure: Structure) -> Statistics:
        """What `agent.statistics` begins with: counts factor by factor by default.

        Parameters
        ----------
        structure
            Of the model to act in.

        Returns
        -------
        Statistics
            Without a count; their structure is what is planned for.
        """
        return Statistics(structure)

    def planned_structure(self, structure: Structure) -> Structure:
        """What `tables` are of: the structure itself, unless a learner plans in a larger model.

        Parameters
        ----------
        structure
            Of the statistics.

        Returns
        -------
        Structure
            What the planner is prepared for; the policy of a `Decision` is for the model to act in
            all the same.
        """
        return structure

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        """The planner of an agent; none by default.

        Parameters
        ----------
        structure
            Of the model to act in.

        Returns
        -------
        tuple[Planner | None, str | None]
            The planner, and why it is not the exact one where nobody chose.
        """
        return None, None

    def plan_seconds(self, structure: Structure, planner: Planner | None) -> float:
        """Return what a plan is predicted to take, where plans are rationed; 0 where not.

        Parameters
        ----------
        structure
            What is planned for.
        planner
            The planner of the agent.
        """
        return 0.0

    def plan_tolerance(self, agent: Agent) -> float | None:
        """Return the tolerance of a plan made now; None, the default, for that of the planner.

        Parameters
        ----------
        agent
            The run so far.
        """
        return None

    @property
    def ends_before_limits(self) -> bool:
        """Whether a decision ends before an entry at its limit is visited once more, and not as
        soon as a count reaches its limit."""
        return False

    @classmethod
    def _watches(cls) -> bool:
        return cls.watch is not Learner.watch

    def start(
        self,
        structure: Structure | FactoredMDP,
        generator: np.random.Generator | int | None = None,
    ) -> Agent:
        """The agent of one run.

        Parameters
        ----------
        structure
            Of the model to act in. A model may be given instead: learners are told its structure
            alone, those with rewards=known its mean rewards too, and the oracle all of it.
        generator
            For learners that draw at random: a generator or a seed; `simulate` gives one. None:
            there is none until one is needed, which is then an error that says so.

        Returns
        -------
        Agent
            Which has seen nothing yet.

        Raises
        ------
        InvalidParameter
            Where it is told neither a structure nor a model, or no model although it has to know
            the model or its rewards, or the planner that is set does not fit the structure.
        """
        owner = self.owner()
        model = structure if isinstance(structure, FactoredMDP) else None
        if (self.knows_model or self.knows_rewards) and model is None:
            why = "" if self.knows_model else ", whose rewards it knows"
            raise InvalidParameter(
                f"{owner} must be told a FactoredMDP{why}; got {quoted(structure)}"
            )
        told = structure.structure if isinstance(structure, FactoredMDP) else structure
        if not isinstance(told, Structure):
            raise InvalidParameter(
                f"{owner} starts with a Structure or a FactoredMDP; got {quoted(structure)}"
            )
        rewards = None
        if self.knows_rewards and model is not None:
            rewards = self.statistics_for(told).rewards_of(model)
        return self.agent_for(
            told, generator_of(generator, owner), model if self.knows_model else None, rewards
        )

    def agent_for(
        self,
        structure: Structure,
        generator: np.random.Generator | None,
        model: FactoredMDP | None = None,
        known_rewards: NDArray[np.float64] | None = None,
    ) -> Agent:
        """Make the agent of one run from what `start`, or a saved file, has found.

        Parameters
        ----------
        structure
            Of the model to act in.
        generator
            For learners that draw at random, or None.
        model
            For learners that are told the model, or None.
        known_rewards
            The mean of every reward entry of `statistics_for(structure)`, for learners that are
            told the rewards, or None.

        Returns
        -------
        Agent
            Which has seen nothing yet.
        """
        agent = Agent(self, structure, generator, model)
        if known_rewards is not None:
            agent.statistics.know_rewards(known_rewards)
        return agent


class PlanningLearner(Learner):
    """A learner that plans at the start of every episode with tables made from its statistics.

    Inherit and write `tables`; or `decide`, with `agent.plan` and `self.episode`.
    """

    episodes: str = setting(DEFAULT_RULE, RULES_MEANING, choices=RULES)
    length: int | None = setting(
        None,
        "steps of an episode, for episodes=fixed (the horizon, where there is one); on average, "
        "for episodes=geometric",
        low=1,
    )
    horizon: int | None = setting(
        None,
        "steps to plan for: as many undiscounted backups, and a policy that depends on the time; "
        "none: for ever",
        low=1,
        high=2**53,
        only_with=("episodes", ("fixed",)),
        unkeyed=(None,),
    )
    ties: str = setting(
        "planner",
        "which of several equally good actions is taken: as the planner is set (by default at "
        "random, afresh in every plan of every run), or the one with the fewest visits in the "
        "state so far, and of several such actions as the planner is set",
        choices=("planner", LEAST_TRIED),
        unkeyed=("planner",),
    )
    rewards: str = setting(
        "learned",
        "whether the mean rewards are learned, or known from the start, as some papers have it",
        choices=("learned", "known"),
        unkeyed=("learned",),
    )
    planner: Planner | str | None = part(None, PLANNER_MEANING)

    @property
    def breaks_ties_by_tries(self) -> bool:  # type: ignore[override]
        """Whether plans take the least tried of equally good actions."""
        return self.ties == LEAST_TRIED

    @property
    def knows_rewards(self) -> bool:  # type: ignore[override]
        """Whether it is told the mean rewards of the model."""
        return self.rewards == "known"

    def check(self) -> None:
        super().check()
        if self.horizon is not None:
            length = horizon_length(self.horizon, self.length, self.owner())
            object.__setattr__(self, "length", length)
        self.check_episodes()
        object.__setattr__(self, "planner", planner_of(self.planner, self.owner()))
        if self.horizon is not None and self.planner is not None:
            over_horizon(self.planner, self.horizon, self.owner())
        self.check_planner()
        if self.planner is not None:
            self._check_ties(self.planner)

    def check_episodes(self) -> None:
        """Refuse a length that the episode rule has no use for, or that it lacks.

        Raises
        ------
        InvalidParameter
            Where it is so.
        """
        check_length(self.episodes, self.length, self.owner())

    def check_planner(self) -> None:
        """Refuse a planner that is set for what this learner does not do.

        Raises
        ------
        InvalidParameter
            Where it is.
        """
        refuse_targets(self.planner, self.owner())

    def _check_ties(self, planner: Any) -> None:
        """Raise if the least tried action is asked for and the planner cannot take it."""
        if self.breaks_ties_by_tries and not isinstance(planner, Exact | SpanConstrained):
            raise InvalidParameter(
                f"the 'ties' parameter of {self.owner()}: {LEAST_TRIED} needs a planner with a "
                f"table of the states; got planner {getattr(planner, 'name', planner)}, must be "
                f"exact or span"
            )

    def agent_for(
        self,
        structure: Structure,
        generator: np.random.Generator | None,
        model: FactoredMDP | None = None,
        known_rewards: NDArray[np.float64] | None = None,
    ) -> Agent:
        agent = super().agent_for(structure, generator, model, known_rewards)
        if self.breaks_ties_by_tries:
            self._check_ties(agent.planner)
            counted = agent.statistics.structure
            if self.planned_structure(counted) != counted:
                raise InvalidParameter(
                    f"the 'ties' parameter of {self.owner()}: {LEAST_TRIED} needs plans over the "
                    f"states and actions that are counted; {self.owner()} plans in a larger model, "
                    f"must be planner"
                )
            agent.statistics.tries()  # which refuses a model with too many pairs
        return agent

    @abstractmethod
    def tables(self, agent: Agent) -> Tables:
        """What to plan with at the start of an episode.

        Parameters
        ----------
        agent
            The run so far: `agent.statistics`, `agent.steps`, `agent.randomness`, ....

        Returns
        -------
        Tables
            A model, such as `estimated_model(agent.statistics)`, or optimistic tables.
        """

    def decide(self, agent: Agent) -> Decision:
        return self.episode(agent, agent.plan(self.tables(agent)).policy)

    def episode(self, agent: Agent, policy: Any) -> Decision:
        """This policy until the episode is over, by the rule that is set.

        Parameters
        ----------
        agent
            The run so far.
        policy
            What is played: one that a planner made, an ExploringPolicy, a function state -> action.

        Returns
        -------
        Decision
            With the steps and the limits of the rule.
        """
        rule = self.rule(agent.statistics.structure)
        visits, previous = agent.statistics.visits, agent.steps_of_last_episode
        generator = agent.randomness if rule.draws else None
        begun = rule.start(agent.episodes + 1, visits, previous, generator)
        wait = steps_until_affordable(agent.plan_seconds, agent.planner_calls, agent.steps)
        if wait == 1:
            return Decision(policy, begun.length, begun.limits)
        # Counts must not end the episode before the next plan is affordable.
        limits = np.maximum(begun.limits, visits + wait) if len(begun.limits) else begun.limits
        return Decision(policy, max(wait, begun.length), limits)

    @property
    def max_sweeps(self) -> int:
        """The most sweeps of a plan, where the planner has no limit of its own."""
        return MAX_SWEEPS

    @property
    def ends_before_limits(self) -> bool:
        return ends_before_limits(self.episodes)

    def rule(self, structure: Structure) -> EpisodeRule:
        """When to plan again, by the settings `episodes` and `length`.

        Parameters
        ----------
        structure
            Of the model to act in.
        """
        return episode_rule(self.episodes, self.length, structure)

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = self.planner, None
        if planner is None:
            planner, reason = planner_for_learning(
                structure,
                rationed=self.episodes in OWN_RULES,
                by_parts=self.horizon is None,
            )
        if self.horizon is not None:
            planner = over_horizon(planner, self.horizon, self.owner(), reason)
        return for_learning(planner, structure, self.max_sweeps), reason

    def plan_seconds(self, structure: Structure, planner: Planner | None) -> float:
        if self.planner is not None or self.episodes not in OWN_RULES:
            return 0.0
        return predicted_plan_seconds(
            structure,
            isinstance(planner, Exact | SpanConstrained),
            by_parts=isinstance(planner, Exact) and self.horizon is None,
        )


class OptimisticLearner(PlanningLearner):
    """A planning learner whose tables are optimistic: free mass goes where it is worth most."""

    targets: str | None = setting(
        None,
        "how the exact planner places free mass: during the elimination, or jointly (slower); "
        "by default as the planner is set, which is nested",
        choices=("nested", "vertex"),
    )

    def check_planner(self) -> None:
        """Targets are what it is about, and are given in one place."""
        if self.planner is not None:
            with_targets(self.planner, self.targets)

    @abstractmethod
    def tables(self, agent: Agent) -> OptimisticTables: ...

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        assert planner is not None
        return with_targets(planner, self.targets), reason


def for_learning(planner: Any, structure: Structure, max_sweeps: int = MAX_SWEEPS) -> Planner:
    """A planner for plans by the hundred: a tolerance at its default becomes 1e-3 times the sum of
    the reward ranges (over 1 - discount, of discounted values), value iteration without a limit of
    its own gets one of `max_sweeps`, and no basis is looked for; whatever was set otherwise
    stays."""
    planner = without_search(planner)
    # A planner of the user's own need not be a dataclass; it is then used as it is.
    names = {one.name for one in fields(planner)} if is_dataclass(planner) else set()
    changes: dict[str, Any] = {}
    if "tolerance" in names and planner.tolerance is None:
        total = structure.reward_range_total or structure.reward_unit
        # An error of epsilon / (1 - discount) in discounted values costs epsilon a step.
        discounted = getattr(planner, "criterion", None) == "discounted"
        steps = 1.0 / (1.0 - planner.discount) if discounted else 1.0
        changes["tolerance"] = TOLERANCE * total * steps
    # The iterations of a linear program are rounds or pivots, many of them cheap: it has a limit of
    # its own where they are not (linear/alp.py). None either where there are as many sweeps as
    # steps to plan for.
    finite = getattr(planner, "criterion", None) == "finite"
    iterated = isinstance(planner, Exact | SpanConstrained) and not finite
    if iterated and planner.max_iterations is None:
        changes["max_iterations"] = max_sweeps
    finished: Planner = replace(planner, **changes) if changes else planner
    return finished


def over_horizon(planner: Any, horizon: int, owner: str, reason: str | None = None) -> Planner:
    """The exact planner over a learner's horizon, which may be given in one place alone; `reason`:
    why it is not the exact one, where nobody chose."""
    if not isinstance(planner, Exact):
        named = getattr(planner, "name", planner)
        chosen = f"got planner {named}" if reason is None else f"{reason}; give planner=exact"
        raise InvalidParameter(
            f"{owner} with horizon={horizon} plans by so many backups, which the exact planner "
            f"alone does; {chosen}"
        )
    if planner.criterion == "average":
        return replace(planner, criterion="finite", horizon=horizon)
    if planner.horizon != horizon:
        other = planner.criterion if planner.horizon is None else f"horizon={planner.horizon}"
        raise InvalidParameter(
            f"the 'horizon' parameter of {owner} must be that of its planner; got "
            f"horizon={horizon} for the learner and {other} for its planner"
        )
    return planner


def with_targets(planner: Any, targets: str | None) -> Planner:
    """The planner with a learner's `targets`, which may be given in one place alone."""
    defaults = {one.name: one.default for one in fields(planner)} if is_dataclass(planner) else {}
    if targets is None:
        found: Planner = planner
        return found
    if "targets" not in defaults:
        raise InvalidParameter(
            f"planner {planner.name} has no setting for the 'targets' parameter; got {targets}"
        )
    if planner.targets not in (targets, defaults["targets"]):
        raise InvalidParameter(
            f"the 'targets' parameter must be given once; got {targets} for the learner and "
            f"{planner.targets} for its planner"
        )
    changed: Planner = replace(planner, targets=targets)
    return changed
