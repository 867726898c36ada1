"""Base classes of learners: frozen settings and the methods that make decisions.

A learner has no state. `start` makes the agent of one run (agent.py), which counts the steps and
calls `decide(agent)` whenever its last decision is over. A planning learner only has to define
`tables(agent)`: the model or the optimistic tables to plan with.

Unless set otherwise, plans inside learners have a tolerance of 1e-3 times the sum of the reward
ranges and at most 200 sweeps, and use the exact planner if its predicted cost allows it
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
    TOLERANCE,
    planner_for_learning,
    predicted_plan_seconds,
    steps_until_affordable,
)
from fmdp.learning.registry import LEARNERS
from fmdp.learning.residuals import Monitor, ScopeMonitor
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.counts.planner import Counts as CountsPlanner
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.registry import planner_of
from fmdp.planning.settings import refuse_targets, searches_basis, without_search
from fmdp.planning.span import SpanConstrained
from fmdp.planning.status import Tables

MAX_SWEEPS = 200
"""Limit for plans inside learners. Only sampled models with several chains reach it."""

TABULAR = (Exact, SpanConstrained)
"""Planners whose policies are tables of the joint states."""

PLANNER_MEANING = (
    "the planner: an object such as fmdp.Exact(tolerance=1e-2), or a text such as "
    "'alp,basis=pairs'; by default exact if that is affordable, else approximate"
)

ROLES = ("learner", "upper", "lower", "baseline")

_NEVER_CALLED = ("act", "observe")


class Learner(Settings, ABC):
    """A learning algorithm: frozen settings and the method `decide`.

    Subclasses declare settings as fields with `fmdp.setting`. See PlanningLearner for algorithms
    that plan.
    """

    noun: ClassVar[str] = "learner"
    registry: ClassVar[Any] = LEARNERS
    role: ClassVar[str] = "learner"
    """Role in comparisons: learner, upper (knows the model), lower (random), baseline (fixed)."""
    counts: ClassVar[bool] = True
    """Whether steps are counted; otherwise the statistics stay empty."""
    knows_model: ClassVar[bool] = False
    """Whether it is given the model and not only the structure."""
    breaks_ties_by_tries: ClassVar[bool] = False
    """Whether plans prefer the least tried of tied actions; the setting `ties` if it plans."""
    knows_rewards: ClassVar[bool] = False
    """Whether it is given the mean rewards of the model; the setting `rewards` if it plans."""
    takes_derived: ClassVar[bool] = True
    """Whether it takes structures with (deterministic) derived variables."""
    plans_for_models: ClassVar[bool] = False
    """Whether all its plans are for models, and none for optimistic tables."""
    only_planner: ClassVar[str | None] = None
    """Name of the only planner that it works with; None if there are several."""
    planner_defaults: ClassVar[Mapping[str, object]] = {}
    """Settings of that planner that may be omitted because the learner sets them in every plan."""
    example: ClassVar[Mapping[str, object]] = {}
    """Values of required settings, with which `fmdp.testing.check_learner` makes the class. They
    must do for models with one action variable."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if cls.role not in ROLES:
            raise TypeError(f"the role of {cls.__name__} must be one of {', '.join(ROLES)}")
        if cls.watch is not Learner.watch and cls.watch_steps is not Learner.watch_steps:
            raise TypeError(f"{cls.__name__} defines watch and watch_steps; it must be one of them")
        for name in _NEVER_CALLED:
            if hasattr(cls, name):
                raise TypeError(
                    f"{cls.__name__} defines {name}, which is never called: the algorithm belongs "
                    f"into decide(self, agent), and watch sees every step"
                )

    @abstractmethod
    def decide(self, agent: Agent) -> Decision:
        """Return the policy to play next, and for how long.

        Parameters
        ----------
        agent
            The run so far: `agent.statistics`, `agent.steps`, `agent.memory`, `agent.structure`,
            `agent.randomness`; `agent.plan(tables)` makes a plan.
        """

    def refresh(self, agent: Agent) -> None:
        """Prepare the next decision of `agent`; called before `decide`. By default nothing."""

    def learned_scopes(self, agent: Agent) -> dict[str, Any] | None:
        """Return the scopes that `agent` has learned, in plain values; None if they are known."""
        return None

    def scope_monitor(self, agent: Agent) -> Monitor | None:
        """Return a new test of the scopes of `agent`; None if its rows are not all observed."""
        s = agent.structure
        observed = all(variable.deterministic for variable in s.derived)
        return ScopeMonitor(s) if observed else None

    def watch(
        self,
        agent: Agent,
        state: Sequence[int],
        action: Sequence[int],
        rewards: Sequence[float],
        next_state: Sequence[int],
    ) -> None:
        """Process one step; called after every step, for algorithms that need more than counts.

        A learner that overrides it is run step by step, which is slower than `watch_steps`. Store
        values in `agent.memory`; call `agent.end_decision()` to be asked for a new decision.

        Parameters
        ----------
        agent
            The run so far, including this step.
        state, action, next_state
            One index per variable.
        rewards
            One number per reward factor.
        """

    def watch_steps(
        self,
        agent: Agent,
        states: NDArray[np.int32],
        actions: NDArray[np.int32],
        rewards: NDArray[np.float64],
    ) -> int | None:
        """Process n steps at once, as `watch` does one; with compiled code it is as fast as a
        learner that only counts.

        The steps are shown before they are counted: `agent.steps` and `agent.statistics` are those
        before the first of them. How many there are is not the learner's to choose, so it has to
        process them one after the other. Override this method or `watch`, not both.

        Parameters
        ----------
        agent
            The run so far, without these steps.
        states
            [n + 1, state variables]: the state before each step, and that after the last.
        actions
            [n, action variables].
        rewards
            [n, reward factors].

        Returns
        -------
        int or None
            k, from 1 to n: the decision ends after the k-th of these steps, and those behind it are
            not taken; `agent.memory` must be as after the k-th. None: it goes on.
        """
        return None

    def remember(self, structure: Structure) -> dict[str, Any]:
        """Return the initial `agent.memory`: numbers, texts, lists and arrays by name.

        `structure` is that of the model to act in.
        """
        return {}

    def check_memory(self, structure: Structure, memory: Mapping[str, Any]) -> None:
        """Raise InvalidParameter if a loaded `memory` does not fit this learner in `structure`.

        By default it must have the names of `remember`, and arrays for arrays.
        """
        for name, initial in self.remember(structure).items():
            if isinstance(initial, np.ndarray) != isinstance(memory.get(name), np.ndarray) or (
                name not in memory
            ):
                raise InvalidParameter(
                    f"the memory of {self.owner()} must have {name!r}, "
                    f"{'an array' if isinstance(initial, np.ndarray) else 'a plain value'}"
                )

    def statistics_for(self, structure: Structure) -> Statistics:
        """Return the initial `agent.statistics` in `structure`; by default counts per factor.

        They are empty. Plans are for the structure of the statistics, which may differ.
        """
        return Statistics(structure)

    def planned_structure(self, structure: Structure) -> Structure:
        """Return the structure that the planner is prepared for; by default the same structure.

        Override it to plan in a larger model than that of the statistics, `structure`: with more
        actions, values, or reward factors (`fmdp.with_reward_factors`). The policy of a `Decision`
        must fit the model to act in.
        """
        return structure

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        """Return the planner of an agent, and why a default planner is not the exact one.

        `structure` is that of the statistics.
        """
        return None, None

    def plan_seconds(self, structure: Structure, planner: Planner | None) -> float:
        """Return the predicted seconds per plan of `planner` in `structure`; 0 if not rationed."""
        return 0.0

    def plan_tolerance(self, agent: Agent) -> float | None:
        """Return the tolerance of the next plan of `agent`; None for the planner's own."""
        return None

    @property
    def ends_before_limits(self) -> bool:
        """Whether a decision ends before an entry at its limit is visited again, and not as soon
        as the limit is reached."""
        return False

    def class_place(self) -> str:
        """Return the name of the class in files: its registered name, or module:Class."""
        return LEARNERS.place(type(self))

    def setting_texts(self, structure: Structure) -> dict[str, str]:
        """Return the settings as texts that read back as equal values.

        `structure` is that of the model to act in. A setting without such a text raises
        InvalidParameter.
        """
        texts = {}
        for parameter in self.parameters:
            value = getattr(self, parameter.name)
            texts[parameter.name] = parameter.show(value)
            if parameter.parse(texts[parameter.name], self.owner()) != value:
                raise InvalidParameter(
                    f"{self.owner()} cannot be saved: its '{parameter.name}' has no text that "
                    f"stands for it; got {texts[parameter.name]}"
                )
        return texts

    def _policy_to_save(self, structure: Structure, played: Any) -> Any:
        """Return the policy that a saved agent's file contains, given the one that is played."""
        return played

    def _watches(self) -> bool:
        return type(self).watch is not Learner.watch

    def _watches_steps(self) -> bool:
        return type(self).watch_steps is not Learner.watch_steps

    def start(
        self,
        structure: Structure | FactoredMDP,
        generator: np.random.Generator | int | None = None,
    ) -> Agent:
        """Return a new agent: one run of this learner.

        Parameters
        ----------
        structure
            The structure of the model to act in, or the model. Of a model, learners see only the
            structure, those with rewards=known also the mean rewards, and the oracle everything.
        generator
            A generator or a seed, for learners that draw random numbers. With None the first draw
            raises InvalidParameter.

        Returns
        -------
        Agent
            An agent without experience.

        Raises
        ------
        InvalidParameter
            If `structure` is neither a structure nor a model, a model is needed and not given, or
            the planner does not fit the structure.
        """
        owner = self.owner()
        model = structure if isinstance(structure, FactoredMDP) else None
        if (self.knows_model or self.knows_rewards) and model is None:
            why = "" if self.knows_model else ", whose rewards it knows"
            raise InvalidParameter(
                f"{owner} must be told a FactoredMDP{why}; got {quoted(structure)}"
            )
        acted_in = structure.structure if isinstance(structure, FactoredMDP) else structure
        if not isinstance(acted_in, Structure):
            raise InvalidParameter(
                f"{owner} starts with a Structure or a FactoredMDP; got {quoted(structure)}"
            )
        self._refuse_derived(acted_in)
        rewards = None
        if self.knows_rewards and model is not None:
            rewards = self.statistics_for(acted_in).rewards_of(model)
        return self.agent_for(
            acted_in, generator_of(generator, owner), model if self.knows_model else None, rewards
        )

    def _refuse_derived(self, structure: Structure) -> None:
        """Raise InvalidParameter if there are derived variables that this learner cannot take."""
        drawn = [variable for variable in structure.derived if not variable.deterministic]
        if drawn and self.counts and not self.knows_model:
            raise InvalidParameter(
                f"{self.owner()} does not observe {quoted(drawn[0].name)}, a derived variable that "
                f"is drawn at random; learners take those that follow from the state and action"
            )
        if structure.derived and not self.takes_derived:
            raise InvalidParameter(
                f"{self.owner()} does not take models with derived variables; "
                f"fmdp.expand(model) is the same model without them"
            )

    def agent_for(
        self,
        structure: Structure,
        generator: np.random.Generator | None,
        model: FactoredMDP | None = None,
        known_rewards: NDArray[np.float64] | None = None,
    ) -> Agent:
        """Return a new agent from checked parts; `start` and `fmdp.load_agent` call it.

        `structure` is that of the model to act in; `generator` may be None. `model` is given to
        learners that know it, `known_rewards`, the mean of every reward entry of
        `statistics_for(structure)`, to those that know the rewards.
        """
        agent = Agent(self, structure, generator, model)
        if known_rewards is not None:
            agent.statistics.know_rewards(known_rewards)
        return agent


class PlanningLearner(Learner):
    """A learner that plans at the start of every episode.

    Subclasses define `tables`, or `decide` by means of `agent.plan` and `self.episode`.
    """

    episodes: str = setting(DEFAULT_RULE, RULES_MEANING, choices=RULES)
    length: int | None = setting(
        None,
        "steps of an episode, for episodes=fixed (by default the horizon, if there is one); mean "
        "number of steps, for episodes=geometric",
        low=1,
    )
    horizon: int | None = setting(
        None,
        "number of steps to plan for, by as many undiscounted backups, with a policy that depends "
        "on the time; none: infinite horizon",
        low=1,
        high=2**53,
        only_with=("episodes", ("fixed",)),
        unkeyed=(None,),
    )
    ties: str = setting(
        "planner",
        "which of several equally good actions is taken: by the setting of the planner (by default "
        "at random, differently in every plan), or the one with the fewest visits in the state, "
        "with remaining ties by the setting of the planner",
        choices=("planner", LEAST_TRIED),
        unkeyed=("planner",),
    )
    rewards: str = setting(
        "learned",
        "whether the mean rewards are learned, or known from the start, as in some papers",
        choices=("learned", "known"),
        unkeyed=("learned",),
    )
    planner: Planner | str | None = part(None, PLANNER_MEANING)

    @property
    def breaks_ties_by_tries(self) -> bool:  # type: ignore[override]
        """Whether plans break ties in favour of the least tried action."""
        return self.ties == LEAST_TRIED

    @property
    def knows_rewards(self) -> bool:  # type: ignore[override]
        """Whether it is given the mean rewards of the model."""
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
        """Raise InvalidParameter if `length` is missing for the episode rule, or unused by it."""
        check_length(self.episodes, self.length, self.owner())

    def check_planner(self) -> None:
        """Raise InvalidParameter if this learner cannot use the planner."""
        refuse_targets(self.planner, self.owner())

    def _check_ties(self, planner: Any) -> None:
        """Raise InvalidParameter if ties=least-tried and the planner has no table of states."""
        if self.breaks_ties_by_tries:
            reason = f"the 'ties' parameter of {self.owner()}: {LEAST_TRIED} needs a planner with a"
            require_planner(planner, TABULAR, f"{reason} table of the states", "exact or span")

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
            agent.statistics.tries()  # raises TooLarge for too many pairs
        return agent

    @abstractmethod
    def tables(self, agent: Agent) -> Tables:
        """Return the tables to plan with at the start of an episode.

        Parameters
        ----------
        agent
            The run so far: `agent.statistics`, `agent.steps`, `agent.randomness`, ....

        Returns
        -------
        Tables
            A model, such as `fmdp.estimated_model(agent.statistics)`, or optimistic tables, such
            as `fmdp.confidence_tables(agent.statistics, t=agent.steps + 1, rho=0.1)`.
        """

    def decide(self, agent: Agent) -> Decision:
        return self.episode(agent, agent.plan(self.tables(agent)).policy)

    def episode(self, agent: Agent, policy: Any) -> Decision:
        """Return the decision to play `policy` for one episode of `agent`.

        The policy is of any kind that a `Decision` takes; the settings say when the episode ends.
        """
        rule = self.rule(agent.statistics.structure)
        visits, previous = agent.statistics.visits, agent.steps_of_last_episode
        generator = agent.randomness if rule.draws else None
        episode = rule.start(agent.episodes + 1, visits, previous, generator)
        growth = agent.basis_growth if agent.rations_plans else None
        further = 0.0 if growth is None else growth.seconds_with_next_plan
        wait = steps_until_affordable(agent.plan_seconds, agent.planner_calls, agent.steps, further)
        if wait == 1:
            return Decision(policy, episode.length, episode.limits)
        # Counts must not end the episode before the next plan is affordable.
        limits = (
            np.maximum(episode.limits, visits + wait) if len(episode.limits) else episode.limits
        )
        return Decision(policy, max(wait, episode.length), limits)

    @property
    def max_sweeps(self) -> int:
        """Largest number of sweeps per plan if the planner sets no limit."""
        return MAX_SWEEPS

    @property
    def ends_before_limits(self) -> bool:
        return ends_before_limits(self.episodes)

    def rule(self, structure: Structure) -> EpisodeRule:
        """Return the episode rule of the settings `episodes` and `length`, for `structure`."""
        return episode_rule(self.episodes, self.length, structure)

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = self.planner, None
        if planner is None:
            planner, reason = planner_for_learning(
                structure,
                rationed=self.episodes in OWN_RULES,
                by_parts=self.horizon is None,
                for_models=self.plans_for_models and self.horizon is None,
            )
        if self.horizon is not None:
            planner = over_horizon(planner, self.horizon, self.owner(), reason)
        grows = self.plans_for_models and self.horizon is None
        return for_learning(planner, structure, self.max_sweeps, grows=grows), reason

    def plan_seconds(self, structure: Structure, planner: Planner | None) -> float:
        if self.planner is not None or self.episodes not in OWN_RULES:
            return 0.0
        return predicted_plan_seconds(
            structure,
            isinstance(planner, TABULAR),
            by_parts=isinstance(planner, Exact) and self.horizon is None,
            counts=isinstance(planner, CountsPlanner),
        )


class OptimisticLearner(PlanningLearner):
    """A planning learner with optimistic tables: free mass goes to the best next values."""

    targets: str | None = setting(
        None,
        "how the exact planner places free mass: during the elimination, or jointly (slower); "
        "by default by the setting of the planner, which is nested",
        choices=("nested", "vertex"),
    )

    def check_planner(self) -> None:
        """Raise InvalidParameter if learner and planner set different targets."""
        if self.planner is not None:
            with_targets(self.planner, self.targets)

    @abstractmethod
    def tables(self, agent: Agent) -> OptimisticTables: ...

    def planner_for(self, structure: Structure) -> tuple[Planner | None, str | None]:
        planner, reason = super().planner_for(structure)
        assert planner is not None
        return with_targets(planner, self.targets), reason


def require_planner(planner: Any, kinds: Any, reason: str, allowed: str) -> None:
    """Raise InvalidParameter if the planner is given and is not of these kinds."""
    if planner is not None and not isinstance(planner, kinds):
        named = getattr(planner, "name", planner)
        raise InvalidParameter(f"{reason}; got planner {named}, must be {allowed}")


def for_learning(
    planner: Any, structure: Structure, max_sweeps: int = MAX_SWEEPS, *, grows: bool = False
) -> Planner:
    """Return the planner with a learner's defaults for settings that are not given.

    The tolerance becomes 1e-3 times the sum of the reward ranges (divided by 1 - discount for
    discounted values), value iteration gets a limit of `max_sweeps`, and no basis is searched for,
    unless it `grows` between plans (basis_growth.py).
    """
    if not (grows and searches_basis(planner)):
        planner = without_search(planner)
    # A third-party planner that is not a dataclass is used as it is.
    names = {field.name for field in fields(planner)} if is_dataclass(planner) else set()
    changes: dict[str, Any] = {}
    if "tolerance" in names and planner.tolerance is None:
        total = structure.reward_range_total or structure.reward_unit
        # An error of epsilon / (1 - discount) in discounted values costs epsilon per step.
        discounted = getattr(planner, "criterion", None) == "discounted"
        steps = 1.0 / (1.0 - planner.discount) if discounted else 1.0
        changes["tolerance"] = TOLERANCE * total * steps
    # Linear programs set their own limit (alp.py), and a finite horizon is one.
    finite = getattr(planner, "criterion", None) == "finite"
    iterated = isinstance(planner, (*TABULAR, CountsPlanner)) and not finite
    if iterated and planner.max_iterations is None:
        changes["max_iterations"] = max_sweeps
    changed: Planner = replace(planner, **changes) if changes else planner
    return changed


def over_horizon(planner: Any, horizon: int, owner: str, reason: str | None = None) -> Planner:
    """Return the exact planner with a learner's horizon.

    Raises InvalidParameter for other planners and for another horizon. `reason` says why a default
    planner is not the exact one.
    """
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
    """Return the planner with a learner's `targets`; raise if the planner sets another value."""
    if targets is None:
        return planner  # type: ignore[no-any-return]
    defaults = (
        {field.name: field.default for field in fields(planner)} if is_dataclass(planner) else {}
    )
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
