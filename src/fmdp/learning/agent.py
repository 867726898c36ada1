"""The agent: the state of one run of a learner.

    agent = learner.start(structure, generator)
    action = agent.act(state)                           # calls learner.decide if a decision is due
    agent.observe(state, action, rewards, next_state)   # counts the step

A `Decision` is a policy and the conditions that end it. A loop that plays many steps at once asks
for a `stretch` instead of an action, plays it in compiled code that updates the statistics in
place, and reports with `played` how many steps it took. Both ways lead to the same state, bit by
bit.

`Agent` is final. An algorithm is a learner, a subclass of `fmdp.Learner`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, final, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.interrupts import held
from fmdp._base.parameters import quoted
from fmdp.elimination.ties import Ties, plan_seed
from fmdp.errors import InvalidParameter
from fmdp.learning.basis_growth import first_growth
from fmdp.learning.encoding import (
    FORMAT,
    VERSION,
    generator_header,
    pack_agent,
    planner_header,
    structure_header,
)
from fmdp.learning.episodes import FOR_EVER
from fmdp.learning.planning_budget import TOLERANCE
from fmdp.learning.residuals import Finding, Monitor
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.entries import NO_LIMITS, NOT_COUNTED, Index
from fmdp.model.io.files import dumps, path_of, write_atomically
from fmdp.model.naming import Assignment, ByName, ByNumber, Value
from fmdp.model.spaces import strides, whole_number
from fmdp.planning.plan import Plan, Planner, Prepared, ready
from fmdp.planning.policies.archive import policy_bytes
from fmdp.planning.policies.playing import (
    MOST_ACTIONS,
    NO_ACTIONS,
    ActionTable,
    StepBatch,
    action_table,
)
from fmdp.planning.policies.policy import Policy, has_sizes_of
from fmdp.planning.policies.randomised import RandomisedPolicy
from fmdp.planning.policies.rule import Rule
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.settings import SEARCHED, with_basis
from fmdp.planning.spans import marginals as marginals_of
from fmdp.planning.status import Status, Tables

if TYPE_CHECKING:
    from fmdp.learning.learner import Learner


@dataclass(frozen=True, eq=False)
class Decision:
    """A policy to play, and when the learner is asked again.

    The decision ends after `steps` steps, when a count reaches its limit, or when the learner
    calls `agent.end_decision()`.

    Parameters
    ----------
    policy
        A policy made by a planner, a TablePolicy, an ExploringPolicy, a TimedPolicy (step 0 is the
        first step of the decision), or a function state -> action, which is called in every step.
    steps
        Largest number of steps; unlimited by default.
    limits
        Counts that end the decision: int64 [entries], compared with `statistics.visits` after
        every step. Empty for no limits.
    """

    policy: Policy | RandomisedPolicy
    steps: int = FOR_EVER
    limits: Index = field(default_factory=lambda: NO_LIMITS)


@dataclass
class Counters:
    """Numbers that an agent counts.

    This is the only list of them. All are saved with the agent, and restored when a decision fails.
    """

    steps: int = 0
    episodes: int = 0
    """Decisions of a learner with `counts`."""
    planner_calls: int = 0
    unconverged_plans: int = 0


class _Snapshot(NamedTuple):
    """The state of an agent before it decides."""

    attributes: dict[str, Any]
    """All attributes; what they refer to is copied below if a decision may change it."""
    counters: Counters
    memory: dict[str, Any]
    generator: Any
    warm: Mapping[str, NDArray[Any]] | None


_SOLVED = (Status.CONVERGED, Status.MULTICHAIN, Status.DISCOUNTED)
"""Statuses of plans whose policy is proved optimal."""


@final
class Agent:
    """One run of a learner, made by `learner.start(structure, generator)`.

    Attributes
    ----------
    learner
        The learner that makes the decisions.
    structure
        Structure of the model that the agent acts in.
    model
        That model, for a learner that knows it (the oracle); None for all others.
    tie_seed
        Seed for tie-breaking in this run, drawn at the first plan; None before that, 0 if the
        agent had no generator then.
    generator
        Random number generator, or None.
    statistics
        Counts so far.
    memory
        Values that the learner keeps besides the counts: numbers, texts, lists and arrays by name.
    planner_reason
        Why the default planner is not the exact one; None otherwise.
    plan_seconds
        Predicted seconds per plan if plans are rationed (planning_budget.py); else 0.
    basis_growth
        How the basis of the linear programs has grown; None if the planner has a given basis, or
        none (basis_growth.py).
    decision
        The current decision; None before the first.
    counters
        Numbers of steps, episodes, planner calls and unconverged plans.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        raise TypeError(
            f"{cls.__name__} inherits from Agent, which is final; write an algorithm as a subclass "
            f"of Learner"
        )

    def __init__(
        self,
        learner: Learner,
        structure: Structure,
        generator: np.random.Generator | None,
        model: FactoredMDP | None = None,
    ) -> None:
        self.learner = learner
        self.structure = structure
        self.generator = generator
        self.model = model
        self.tie_seed: int | None = None
        self.statistics: Statistics = learner.statistics_for(structure)
        self._planner: Planner | None
        self.planner_reason: str | None
        self._planner, self.planner_reason = learner.planner_for(self.statistics.structure)
        self.plan_seconds = learner.plan_seconds(
            learner.planned_structure(self.statistics.structure), self._planner
        )
        self.basis_growth = first_growth(self._planner)
        self.memory: dict[str, Any] = learner.remember(structure)
        self.counters = Counters()
        self.decision: Decision | None = None
        self._taken = 0  # steps of the current decision
        self._over = True
        self._table: ActionTable | None = None
        self._random = False  # whether its policy is randomised
        self._drawn: NDArray[np.int64] | None = None  # the next action of a randomised policy
        self._prepared: Prepared | None = None
        self._monitor: Monitor | None = None
        self._watched = learner._watches()
        self.watches_steps = learner._watches_steps()
        self._ends_before_limits = learner.ends_before_limits

    def __repr__(self) -> str:
        return f"<Agent of {self.learner!r} after {self.steps:,} steps>"

    @property
    def steps(self) -> int:
        """Number of observed steps."""
        return self.counters.steps

    @property
    def episodes(self) -> int:
        """Number of decisions, for a learner with `counts`."""
        return self.counters.episodes

    @property
    def planner_calls(self) -> int:
        """Number of plans."""
        return self.counters.planner_calls

    @property
    def unconverged_plans(self) -> int:
        """Number of plans that did not converge; their policies were used."""
        return self.counters.unconverged_plans

    @property
    def rations_plans(self) -> bool:
        """Whether a decision may last until the next plan is affordable."""
        return self.plan_seconds > 0.0

    @property
    def planner(self) -> Planner | None:
        """The planner, with the learner's defaults filled in; None for a learner without plans.

        Another planner may be assigned at any time; it is used from the next decision on.
        """
        return self._planner

    @planner.setter
    def planner(self, planner: Planner) -> None:
        if planner is None or not hasattr(self.learner, "planner"):
            raise InvalidParameter(
                f"{self.learner.owner()} cannot plan with {quoted(planner)}; "
                + (
                    "it takes an fmdp.Planner"
                    if hasattr(self.learner, "planner")
                    else "it does not plan"
                )
            )
        # The same checks and defaults as for a planner that is a setting of the learner.
        learner: Any = self.learner
        with_planner: Learner = replace(learner, planner=planner)
        self._planner, _ = with_planner.planner_for(self.statistics.structure)
        self.planner_reason = None
        self.basis_growth = first_growth(self._planner)
        self.plan_seconds = 0.0  # plans of a chosen planner are not rationed
        self._prepared = None

    @property
    def basis(self) -> dict[str, Any] | None:
        """How the basis of the linear programs has grown; None if the planner has a given basis, or
        none.

        Its keys: scopes, their number (0 for the first basis, `singles`); largest_scope, in
        variables; bases_tried; changes; last_change, the step of the last one or None.
        """
        growth, planner = self.basis_growth, self._planner
        return None if growth is None else growth.summary(getattr(planner, "basis", None))

    # ---- testing the scopes ---------------------------------------------------------------------

    def test_scopes(self, wanted: bool = True) -> None:
        """Test from now on whether the scopes explain the observed steps, or stop testing.

        An agent that tests is simulated step by step, which is slower. `scope_findings` has the
        result. If the learner itself learns the scopes, all steps so far are tested at once, and
        the question is whether any scope within its bounds explains them. Nothing is tested if
        derived variables are drawn at random.

        Parameters
        ----------
        wanted
            Whether to test. A test that has begun continues; False ends it and drops its counts.
        """
        if not wanted:
            self._monitor = None
        elif self._monitor is None:
            self._monitor = self.learner.scope_monitor(self)

    @property
    def tests_scopes(self) -> bool:
        """Whether the scopes are tested."""
        return self._monitor is not None

    @property
    def scope_findings(self) -> tuple[Finding, ...]:
        """Dependences that the scopes do not explain; empty if none was found or tested.

        For each state variable the strongest one, as a named tuple (variable, depends_on, when,
        log10_evidence, step) whose text is a sentence. If the scopes are right, the probability of
        any finding in an endless run is at most 1 % (docs/default-learner.md).
        """
        return () if self._monitor is None else self._monitor.findings

    # ---- for learners ---------------------------------------------------------------------------

    @property
    def randomness(self) -> np.random.Generator:
        """The generator.

        Raises
        ------
        InvalidParameter
            If the agent has none.
        """
        if self.generator is None:
            owner = self.learner.owner()
            raise InvalidParameter(
                f"{owner} draws at random and has no generator; give start a seed or a "
                f"numpy.random.Generator, or use simulate"
            )
        return self.generator

    @property
    def steps_of_last_episode(self) -> int:
        """Number of steps of the last decision; 1 before the first."""
        return self._taken if self.episodes else 1

    @property
    def changed_by_act(self) -> bool:
        """Whether the next `act` makes a decision or draws a random number."""
        if self._over or self.decision is None or (self._random and self._drawn is None):
            return True
        return self._ends_before_limits and self._limit_reached()

    def plan(self, tables: Tables, *, marginals: bool = False, **options: Any) -> Plan:
        """Plan with these tables, starting from the previous plan.

        A plan that did not converge is counted and returned all the same.

        Parameters
        ----------
        tables
            A model or optimistic tables, for the structure of `agent.statistics` or for
            `learner.planned_structure` of it.
        marginals
            Whether `plan.marginals` is needed: for each state variable an array with the mean
            bias of each of its values. Works with every planner that returns them or a bias.
        **options
            Further arguments of the planner's `solve`, such as `describe=True` for the bias.

        Returns
        -------
        Plan
            A plan with a policy.

        Raises
        ------
        InvalidParameter
            If the learner has no planner, the planner has no policy within its limits, or it has
            neither marginals nor a bias and `marginals` is set.
        KeyboardInterrupt
            If Ctrl-C interrupted the planner.
        """
        if not isinstance(tables, FactoredMDP | OptimisticTables):
            raise InvalidParameter(
                f"{self.learner.owner()} must plan with a FactoredMDP or OptimisticTables; got "
                f"{quoted(tables)}"
            )
        # A third-party planner may not know the argument.
        if marginals and getattr(self.planner, "gives_marginals", False):
            options["marginals"] = True
        tolerance = self.learner.plan_tolerance(self)
        if tolerance is not None:
            options.setdefault("tolerance", tolerance)
        if getattr(self.planner, "takes_ties", False):
            options = {"ties": self._ties(), **options}
        plan = self._solved(tables, options)
        self.counters.planner_calls += 1
        if self.basis_growth is not None:
            self.basis_growth = self.basis_growth.after_plan()
            if isinstance(tables, FactoredMDP) and self.basis_growth.is_due(
                self.planner_calls, self.steps
            ):
                plan = self._with_larger_basis(plan, tables, options)
        self.counters.unconverged_plans += plan.status not in _SOLVED
        return self._with_marginals(plan, tables.structure) if marginals else plan

    def _solved(self, tables: Tables, options: Mapping[str, Any]) -> Plan:
        """Return a plan with a policy."""
        plan = self.prepared.solve(tables, **options)
        if not isinstance(plan, Plan):
            raise InvalidParameter(
                f"the planner of {self.learner.owner()} must give a Plan; got {quoted(plan)}"
            )
        plan.status.raise_if_interrupted()
        if plan.policy is None:
            raise InvalidParameter(
                f"{self.learner.owner()} needs a policy, and planner {plan.planner} gave none: "
                f"{plan.status.message}"
            )
        return plan

    def _with_larger_basis(
        self, plan: Plan, model: FactoredMDP, options: Mapping[str, Any]
    ) -> Plan:
        """Try larger bases on this model, and plan again if one is better."""
        growth, planner = self.basis_growth, self._planner
        assert growth is not None
        outcome = planner.larger_basis(  # type: ignore[union-attr]
            model,
            plan,
            difference=TOLERANCE * self.structure.reward_range_total,
            ties=options.get("ties"),
            **growth.limits(self.steps, self.rations_plans),
        )
        self.basis_growth = growth.after_trial(outcome, self.steps)
        if outcome.scopes is None:
            return plan
        self._planner = with_basis(planner, outcome.scopes or SEARCHED)
        self._prepared = None
        return self._solved(model, options)

    def _with_marginals(self, plan: Plan, structure: Structure) -> Plan:
        if plan.marginals is not None:
            return plan
        if plan.bias is None:
            raise InvalidParameter(
                f"{self.learner.owner()} has to know what values are worth, and planner "
                f"{plan.planner} says neither its marginals nor a bias"
            )
        return replace(plan, marginals=marginals_of(plan.bias, structure.state_sizes))

    def _ties(self) -> Ties:
        """Return how the next plan breaks its ties.

        Without a tie seed in the settings, every plan has its own seed, made from the run's tie
        seed and the number of the plan. With one seed for all plans, wide confidence sets, which
        tie all actions, would lead to the same policy again and again, without exploration.
        """
        planner: Any = self.planner
        seed = planner.tie_seed
        if planner.ties == "random" and seed is None:
            if self.tie_seed is None:
                self.tie_seed = 0 if self.generator is None else int(self.generator.integers(2**32))
            seed = plan_seed(self.tie_seed, self.planner_calls)
        tries = self.statistics.tries() if self.learner.breaks_ties_by_tries else None
        return Ties(planner.ties, seed or 0, tries)

    @property
    def prepared(self) -> Prepared:
        """The planner, prepared for the structure; it starts each plan from the previous one."""
        if self._prepared is None:
            if self.planner is None:
                raise InvalidParameter(f"{self.learner.owner()} has no planner to plan with")
            planned = self.learner.planned_structure(self.statistics.structure)
            self._prepared = ready(self.planner, planned)
        return self._prepared

    def adopt(self, statistics: Statistics) -> None:
        """Replace `statistics` by those of the same steps under other scopes.

        The planner is prepared anew, and chosen anew unless it was given. Nothing happens if they
        are the current ones.
        """
        if statistics is self.statistics:
            return
        before, self.statistics = self.statistics.structure, statistics
        structure = statistics.structure
        if self.basis_growth is not None and self._planner is not None:
            # A basis that grew along other scopes is of no use.
            self._planner = replace(self._planner, basis=SEARCHED)  # type: ignore[call-arg]
            self.basis_growth = replace(self.basis_growth, plan_seconds=0.0)
        if self._planner == self.learner.planner_for(before)[0]:
            self._planner, self.planner_reason = self.learner.planner_for(structure)
            planned = self.learner.planned_structure(structure)
            self.plan_seconds = self.learner.plan_seconds(planned, self._planner)
            first = first_growth(self._planner)
            self.basis_growth = None if first is None else self.basis_growth or first
        self._prepared = None

    # ---- decisions ------------------------------------------------------------------------------

    def decide(self) -> Decision:
        """Return the current decision, or ask the learner for a new one if it is over.

        If the learner fails, or does not return a decision for this structure (InvalidParameter),
        the agent is left as it was.
        """
        if self._over or self.decision is None:
            before = self._snapshot()
            try:
                self.learner.refresh(self)
                self._begin(self._checked(self.learner.decide(self)))
                self.counters.episodes += self.learner.counts
            except BaseException:
                with held():
                    self._restore_snapshot(before)
                raise
        assert self.decision is not None
        return self.decision

    def end_decision(self) -> None:
        """End the current decision, so that the next step begins with a new one.

        For learners that override `watch`: call it there when a condition is met that neither
        `Decision.steps` nor `Decision.limits` can express.
        """
        self._over, self._drawn = True, None

    def _snapshot(self) -> _Snapshot:
        """Copy what a decision may change.

        If the learner is asked again after Ctrl-C, it must draw the same numbers and plan from the
        same start.
        """
        prepared, drawn = self._prepared, self.generator
        return _Snapshot(
            attributes=dict(vars(self)),
            counters=copy(self.counters),
            memory=dict(self.memory),
            generator=None if drawn is None else drawn.bit_generator.state,
            # Third-party planners only need `solve`.
            warm=prepared.warm_state() if hasattr(prepared, "restore_warm_state") else None,  # type: ignore[union-attr]
        )

    def _restore_snapshot(self, before: _Snapshot) -> None:
        vars(self).update(before.attributes)
        self.counters = before.counters
        self.memory.clear()
        self.memory.update(before.memory)
        if self.generator is not None and before.generator is not None:
            self.generator.bit_generator.state = before.generator
        if self._prepared is not None and before.warm is not None:
            self._prepared.restore_warm_state(before.warm)

    def _begin(self, decision: Decision, taken: int = 0, over: bool = False) -> None:
        """Make this the current decision, with `taken` steps already done."""
        self.decision = decision
        self._taken, self._over = taken, over
        self._table = None
        self._random = isinstance(decision.policy, RandomisedPolicy)

    def _checked(self, decision: Any) -> Decision:
        if not isinstance(decision, Decision):
            raise self._refusal(f"must give a Decision; got {quoted(decision)}")
        steps = whole_number(decision.steps)
        if steps is None or steps < 1:
            raise self._refusal(f"gave {quoted(decision.steps)} steps; must be 1 or more")
        limits, visits = decision.limits, self.statistics.visits
        if limits is not NO_LIMITS and (
            not isinstance(limits, np.ndarray)
            or limits.dtype != visits.dtype
            or (limits.shape != visits.shape and limits.shape != (0,))
        ):
            raise self._refusal(
                f"gave limits {quoted(limits)}; must be an int64 array of length {len(visits)}, "
                f"or empty"
            )
        policy = decision.policy
        if not has_sizes_of(policy, self.structure):
            if not callable(policy):
                raise self._refusal(f"must give a policy; got {quoted(policy)}")
            policy = policy if isinstance(policy, Rule) else Rule(policy, self.structure)
        if isinstance(policy, RandomisedPolicy):
            policy = policy.under(self.structure)
        return Decision(policy, steps, limits)

    def _refusal(self, what: str) -> InvalidParameter:
        return InvalidParameter(f"{self.learner.owner()}: decide {what}")

    # ---- step by step ---------------------------------------------------------------------------

    @overload
    def act(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def act(self, state: ByNumber) -> tuple[int, ...]: ...
    def act(self, state: Any) -> Any:
        """Return the action to take in this state; repeated calls return the same action.

        Parameters
        ----------
        state
            One index or value name per state variable, or a mapping or text by name, as in
            `Structure.check_state`.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One index per action variable; or, if a mapping or text was given, the value of each
            action variable by name.

        Raises
        ------
        InvalidParameter
            If it is not a state of the structure, the learner needs a generator and has none, or
            its policy chooses a forbidden action.
        """
        naming = self.structure.naming
        return naming.answer(self._action(naming.check_state(state)), state)

    def _action(self, state: tuple[int, ...]) -> tuple[int, ...]:
        action = self._proposed(state)
        if self._ends_before_limits and self._at_limit(state, action):
            self._over, self._drawn = True, None
            action = self._proposed(state)
        return action

    def _at_limit(self, state: Sequence[int], action: Sequence[int]) -> bool:
        """Return whether this step would visit an entry that has reached its limit."""
        assert self.decision is not None
        limits = self.decision.limits
        if not limits.size:
            return False
        entries = self.statistics.entries_of(state, action)
        return bool((self.statistics.visits[entries] >= limits[entries]).any())

    def _proposed(self, state: tuple[int, ...]) -> tuple[int, ...]:
        policy = self.decide().policy
        if isinstance(policy, TimedPolicy):
            return self._allowed(state, policy(state, step=self._taken))
        if not isinstance(policy, RandomisedPolicy):
            return self._allowed(state, policy(state))
        if self._drawn is None:
            before = self.randomness.bit_generator.state
            try:
                self._drawn = policy.draw(self.randomness, 1)[0]
            except BaseException:
                self.randomness.bit_generator.state = before
                raise
        if self._drawn[0] >= 0:
            return self._allowed(state, policy.settle(self._drawn, state))
        assert policy.base is not None
        return self._allowed(state, policy.base(state))

    def _allowed(self, state: Sequence[int], action: tuple[int, ...]) -> tuple[int, ...]:
        s = self.structure
        if s.constraints:
            s.check_allowed(state, s.check_action(action))
        return action

    def observe(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> None:
        """Count one step, chosen by this agent or not. A refused step changes nothing.

        `state`, `action`, `rewards` and `next_state` are as in `Statistics.record`.

        Raises
        ------
        InvalidParameter
            If it is not a step of the structure.
        """
        ended = False
        if self.watches_steps:
            self.statistics.check(state, action, rewards, next_state)
            ended = self._watch_one(state, action, rewards, next_state)
        if self.learner.counts:
            self.statistics.record(state, action, rewards, next_state)
        else:
            self.statistics.check(state, action, rewards, next_state)
        self._advance(1, not self._ends_before_limits and self._limit_reached())
        self._drawn = None
        if ended:
            self.end_decision()
        s = self.structure
        if self._monitor is not None:
            self._monitor.observe(
                s.check_state(state), s.check_action(action), s.check_state(next_state)
            )
        if self._watched:
            self.learner.watch(
                self,
                s.check_state(state),
                s.check_action(action),
                self.statistics.rewards_in_order(rewards),
                s.check_state(next_state),
            )

    def _watch_one(
        self,
        state: Assignment,
        action: Assignment,
        rewards: Sequence[float] | Mapping[str, float],
        next_state: Assignment,
    ) -> bool:
        s = self.structure
        states = np.array([s.check_state(state), s.check_state(next_state)], dtype=np.int32)
        actions = np.array([s.check_action(action)], dtype=np.int32)
        observed = np.array([self.statistics.rewards_in_order(rewards)], dtype=np.float64)
        _, ended = self.watch_steps(states, actions, observed)
        return ended

    def watch_steps(
        self,
        states: NDArray[np.int32],
        actions: NDArray[np.int32],
        rewards: NDArray[np.float64],
    ) -> tuple[int, bool]:
        """Show steps to the learner's `watch_steps` before they are counted.

        `states`, `actions` and `rewards` are as there. Return how many of them are to be taken, and
        whether the decision ends then.
        """
        n = len(actions)
        answer = self.learner.watch_steps(self, states, actions, rewards)
        if answer is None:
            return n, False
        kept = whole_number(answer)
        if kept is None or not 1 <= kept <= n:
            raise InvalidParameter(
                f"{self.learner.owner()}: watch_steps must return None, or the number of steps "
                f"after which the decision ends, 1 to {n}; got {quoted(answer)}"
            )
        return kept, True

    # ---- many steps at once ---------------------------------------------------------------------

    def stretch(self, at_most: int, *, previewed: bool = False) -> StepBatch | None:
        """Return the next steps, `at_most` so many, as precomputed actions, to be played at once.

        The batch has the number of steps, their actions, and the counts that the loop updates. It
        is None if the next step has to be taken with `act` and `observe`. Call `played` before any
        other method. `previewed` states that the caller shows the steps to `watch_steps`, if
        `watches_steps`.
        """
        if self._watched or self._ends_before_limits or self.statistics.stepwise:
            return None
        if self._monitor is not None or (self.watches_steps and not previewed):
            return None
        decision = self.decide()
        # As with `observe`, limits that are already reached end the decision after one step.
        left = 1 if self._limit_reached() else decision.steps - self._taken
        policy, steps = decision.policy, min(at_most, left)
        drawn, base = NO_ACTIONS, policy.base if self._random else policy  # type: ignore[union-attr]
        if self.structure.n_actions > MOST_ACTIONS or (self._random and policy.by_state):  # type: ignore[union-attr]
            return None
        if isinstance(base, TimedPolicy):
            steps = min(steps, base.steps_alike(self._taken))
            base = base.stage(self._taken)
            if self._table is not None and self._table.policy is not base:
                self._table = None
        if base is not None:
            if self._table is None and not isinstance(base, Rule):
                self._table = action_table(base, self.structure)  # type: ignore[arg-type]
            if self._table is None:
                return None
        if self._random:
            assert isinstance(policy, RandomisedPolicy)
            self._before = self.randomness.bit_generator.state
            drawn = self._joint(self._draw(policy, steps))
        counts = self.statistics.counts if self.learner.counts else NOT_COUNTED
        joined = self.statistics.joined
        return StepBatch(steps, self._table, drawn, counts, joined, decision.limits)

    def played(self, stretch: StepBatch, taken: int) -> None:
        """Record that `taken` steps of `stretch`, the last batch, were played and counted."""
        assert self.decision is not None
        if self._random:
            if taken < stretch.steps:
                self._undraw(self.decision.policy, taken)
            else:
                self._drawn = None
        self._advance(taken, self._limit_reached())

    def _draw(self, policy: RandomisedPolicy, steps: int) -> NDArray[np.int64]:
        """Return actions for the next steps; `act` may already have drawn the first."""
        if self._drawn is None:
            return policy.draw(self.randomness, steps)
        return np.concatenate([self._drawn[None], policy.draw(self.randomness, steps - 1)])

    def _undraw(self, policy: Any, taken: int) -> None:
        """Move the generator back to where it is after `taken` steps."""
        self.randomness.bit_generator.state = self._before
        if taken:
            self._draw(policy, taken)
            self._drawn = None

    def _joint(self, actions: NDArray[np.int64]) -> Index:
        joint: Index = actions @ np.array(strides(self.structure.action_sizes), dtype=np.int64)
        joint[actions[:, 0] < 0] = -1
        return joint

    def _advance(self, taken: int, limit_reached: bool) -> None:
        self.counters.steps += taken
        if self.decision is None:
            return  # the agent only observes the steps of another
        self._taken += taken
        self._over = self._over or limit_reached or self._taken >= self.decision.steps

    def _limit_reached(self) -> bool:
        limits = NO_LIMITS if self.decision is None else self.decision.limits
        return bool(limits.size and (self.statistics.visits >= limits).any())

    # ---- saving ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the agent to the file `path`, from which `fmdp.load_agent` continues the run.

        An existing file is replaced atomically.
        """
        path_of(path, "a learner file")
        write_atomically(path, agent_content(self))


def agent_content(agent: Agent) -> bytes:
    """Return the content of an agent's file; the same agent gives the same bytes."""
    learner, structure = agent.learner, agent.structure
    values, arrays = state_of(agent)
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "learner": learner.class_place(),
        "settings": learner.setting_texts(structure),
        "learner_planner": planner_header(getattr(learner, "planner", None)),
        "planner": planner_header(agent.planner),
        "generator": generator_header(agent.generator),
        "state": values,
    }
    if agent.model is not None:
        header["model"] = dumps(agent.model)
    else:
        header["structure"] = structure_header(structure)
        if structure.alike is not None:
            classes = [*structure.alike.transitions, *structure.alike.rewards]
            arrays["alike"] = np.concatenate(classes)
    policy = learner._policy_to_save(structure, getattr(agent.decision, "policy", None))
    if policy is not None:
        arrays["policy"] = np.frombuffer(policy_bytes(policy), dtype=np.uint8)
    return pack_agent(header, arrays, learner.owner())


def state_of(agent: Agent) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the plain values and the arrays that an agent's file contains.

    Together with the learner, the generator and the current policy they determine the agent.
    """
    decision = agent.decision
    values: dict[str, Any] = asdict(agent.counters)
    values |= {"taken": agent._taken, "over": agent._over, "reason": agent.planner_reason}
    values["prepared"] = agent._prepared is not None
    values["rationed"] = agent.rations_plans
    values["length"] = None if decision is None else decision.steps
    values["drawn"] = None if agent._drawn is None else agent._drawn.tolist()
    values["tie_seed"] = agent.tie_seed
    values["basis_growth"] = None if agent.basis_growth is None else asdict(agent.basis_growth)
    arrays: dict[str, NDArray[Any]] = {
        f"counts.{name}": array for name, array in agent.statistics.counts._asdict().items()
    }
    if decision is not None:
        arrays["limits"] = decision.limits
    values["memory"] = {}
    for name, value in agent.memory.items():
        if isinstance(value, np.ndarray):
            arrays[f"memory.{name}"] = value
        else:
            values["memory"][name] = value
    for name, array in agent.statistics.saved().items():
        arrays[name] = array
    if agent.statistics.known_rewards is not None:
        arrays["known_rewards"] = agent.statistics.known_rewards
    if agent._prepared is not None:
        for name, array in agent._prepared.warm_state().items():
            arrays[f"warm.{name}"] = array
    if agent._monitor is not None:
        for name, array in agent._monitor.arrays().items():
            arrays[f"scopes.{name}"] = array
    return values, arrays
