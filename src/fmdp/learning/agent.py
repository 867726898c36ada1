"""Agent: the state of one run of a learner. Stepping, bulk play and saving follow from decisions.

    agent = learner.start(structure, generator)
    action = agent.act(state)                               asks the learner when a decision is due
    agent.observe(state, action, rewards, next_state)       counts, and sees whether it is over

A decision is a policy and how long it is played. A loop that plays many steps at once asks for a
`stretch` instead of an action, plays it in compiled code that fills the statistics in place, and
says with `played` how far it got. Both ways lead to the same state of the agent, to the last bit.

Nobody inherits from Agent: what an algorithm says is in its Learner, and nothing else is asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, final, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.interrupts import held
from fmdp._base.parameters import quoted
from fmdp.elimination.ties import Ties, plan_seed
from fmdp.errors import InvalidParameter
from fmdp.learning.episodes import FOR_EVER
from fmdp.learning.statistics import Statistics
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.entries import NO_LIMITS, NOT_COUNTED, Index
from fmdp.model.naming import Assignment, ByName, ByNumber, Value
from fmdp.model.spaces import strides, whole_number
from fmdp.planning.plan import Plan, Planner, Prepared, ready
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
from fmdp.planning.status import Status, Tables

if TYPE_CHECKING:
    from fmdp.learning.learner import Learner


@dataclass(frozen=True, eq=False)
class Decision:
    """What a learner does until it is asked again: the one thing that an algorithm says.

    Parameters
    ----------
    policy
        What is played: one that a planner made, a TablePolicy, an ExploringPolicy, a TimedPolicy
        (the decision's first step is its step 0), or any function state -> action, which is then
        asked in every step.
    steps
        How many steps at most; for ever by default.
    limits
        Counts at which it ends earlier: int64 [entries], compared with `statistics.visits` after
        every step; empty for none.
    """

    policy: Policy | RandomisedPolicy
    steps: int = FOR_EVER
    limits: Index = field(default_factory=lambda: NO_LIMITS)


@dataclass
class Counters:
    """Numbers that an agent counts. This is the only list of them: all are saved with the agent,
    and set back when a decision fails."""

    steps: int = 0
    episodes: int = 0
    """Decisions of a learner that counts what it sees."""
    planner_calls: int = 0
    unconverged_plans: int = 0


class _Before(NamedTuple):
    """The state of an agent before it decides."""

    fields: dict[str, Any]
    counters: Counters
    memory: dict[str, Any]
    generator: Any
    warm: Mapping[str, NDArray[Any]] | None


_SOLVED = (Status.CONVERGED, Status.MULTICHAIN, Status.DISCOUNTED)
"""How a plan ends whose policy is proved to be best, from every state if gains differ."""

_UNDONE = (
    "decision",
    "tie_seed",
    "planner_reason",
    "plan_seconds",
    "_taken",
    "_over",
    "_table",
    "_random",
    "_planner",
    "_prepared",
)
"""Attributes that a decision changes, beside its counters, its planner's warm state, the generator
and the memory."""


@final
class Agent:
    """One run of a learner, made by `learner.start(structure, generator)`.

    Attributes
    ----------
    learner
        The settings that it runs with.
    structure
        Of the model that it acts in, which it never sees.
    model
        That model, for a learner that is told it (the oracle); None for all others.
    tie_seed
        The seed of the run's own tie breaking, drawn from the generator at the first plan; None
        before that, and 0 where the agent had no generator then.
    generator
        For whatever is drawn at random; None until one is needed and given.
    statistics
        What has been counted so far.
    memory
        What the learner keeps beside the statistics: numbers, texts, lists, arrays, by name.
    planner_reason
        Why it is not the exact one, where it was left to the learner.
    plan_seconds
        What a plan is predicted to take, where plans are rationed (learning/planning_budget.py);
        0 where the planner was given.
    decision
        The one under way; None before the first.
    counters
        How many steps, episodes, planner calls and unconverged plans so far.
    """

    def __init_subclass__(cls, **arguments: Any) -> None:
        raise TypeError(
            f"{cls.__name__} inherits from Agent, which is the library's own; what an algorithm "
            f"does is said by a Learner"
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
        self.memory: dict[str, Any] = learner.remember(structure)
        self.counters = Counters()
        self.decision: Decision | None = None
        self._taken = 0  # steps of it
        self._over = True
        self._table: ActionTable | None = None
        self._random = False  # whether its policy draws
        self._drawn: NDArray[np.int64] | None = None  # what a random policy does next
        self._prepared: Prepared | None = None
        self._watched = learner._watches()
        self._ends_before_limits = learner.ends_before_limits

    def __repr__(self) -> str:
        return f"<Agent of {self.learner!r} after {self.steps:,} steps>"

    @property
    def steps(self) -> int:
        """How many steps were observed so far."""
        return self.counters.steps

    @property
    def episodes(self) -> int:
        """How many decisions of a learner that counts what it sees were made so far."""
        return self.counters.episodes

    @property
    def planner_calls(self) -> int:
        """How many plans were made so far."""
        return self.counters.planner_calls

    @property
    def unconverged_plans(self) -> int:
        """How many of these plans did not converge; they were used all the same."""
        return self.counters.unconverged_plans

    @property
    def planner(self) -> Planner | None:
        """The planner, with a learner's defaults for what was left open; None for a learner that
        does not plan.

        Another planner may be assigned at any time: it is used from the next decision on.
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
        # The same checks and defaults as for a planner that is given to the learner.
        learner: Any = self.learner
        with_planner: Learner = replace(learner, planner=planner)
        self._planner, _ = with_planner.planner_for(self.statistics.structure)
        self.planner_reason = None
        self.plan_seconds = 0.0  # a planner that was chosen is never waited for
        self._prepared = None

    # ---- what the learner uses ------------------------------------------------------------------

    @property
    def randomness(self) -> np.random.Generator:
        """The generator, or an error that says how to give one."""
        if self.generator is None:
            owner = self.learner.owner()
            raise InvalidParameter(
                f"{owner} draws at random and has no generator; give start a seed or a "
                f"numpy.random.Generator, or use simulate"
            )
        return self.generator

    @property
    def steps_of_last_episode(self) -> int:
        """Of the decision that is over; 1 before the first."""
        return self._taken if self.episodes else 1

    @property
    def changed_by_act(self) -> bool:
        """Whether to be asked for an action now would decide or draw; otherwise `act` leaves the
        agent as it is."""
        if self._over or self.decision is None or (self._random and self._drawn is None):
            return True
        return self._ends_before_limits and self._limit_reached()

    def plan(self, tables: Tables, **how: Any) -> Plan:
        """Plan with these tables; a plan that did not converge is used and counted.

        Parameters
        ----------
        tables
            A model, or optimistic tables, of the agent's structure, or of the one that its learner
            plans in (`Learner.planned_structure`).
        **how
            What the planner's `solve` takes beside them.

        Returns
        -------
        Plan
            One that has a policy.

        Raises
        ------
        InvalidParameter
            Where the learner has no planner, or the planner no policy within its limits.
        KeyboardInterrupt
            Where Ctrl-C ended the planning.
        """
        if not isinstance(tables, FactoredMDP | OptimisticTables):
            raise InvalidParameter(
                f"{self.learner.owner()} must plan with a FactoredMDP or OptimisticTables; got "
                f"{quoted(tables)}"
            )
        tolerance = self.learner.plan_tolerance(self)
        if tolerance is not None:
            how.setdefault("tolerance", tolerance)
        if getattr(self.planner, "takes_ties", False):
            how = {"ties": self._ties(), **how}
        plan = self.prepared.solve(tables, **how)
        if not isinstance(plan, Plan):
            raise InvalidParameter(
                f"the planner of {self.learner.owner()} must give a Plan; got {quoted(plan)}"
            )
        if plan.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        if plan.policy is None:
            raise InvalidParameter(
                f"{self.learner.owner()} needs a policy, and planner {plan.planner} gave none: "
                f"{plan.status.message}"
            )
        self.counters.planner_calls += 1
        self.counters.unconverged_plans += plan.status not in _SOLVED
        return plan

    def _ties(self) -> Ties:
        """Return how the next plan breaks its ties.

        Without a tie seed in the settings, every plan of a run has its own, made from the run's
        tie seed and the number of the plan. With one seed for all plans, wide confidence sets, in
        which all actions are tied, would lead to one policy and no exploration until they narrow.
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
        """The planner, made ready for the structure and warm from one plan to the next."""
        if self._prepared is None:
            if self.planner is None:
                raise InvalidParameter(f"{self.learner.owner()} has no planner to plan with")
            planned = self.learner.planned_structure(self.statistics.structure)
            self._prepared = ready(self.planner, planned)
        return self._prepared

    # ---- decisions ------------------------------------------------------------------------------

    def decide(self) -> Decision:
        """The decision under way; a new one if there is none. If it fails, the old one stands.

        Returns
        -------
        Decision
            What the learner said, its policy checked against the structure.

        Raises
        ------
        InvalidParameter
            Where the learner gives what is no decision for this structure.
        """
        if self._over or self.decision is None:
            before = self._snapshot()
            try:
                self._begin(self._checked(self.learner.decide(self)))
                self.counters.episodes += self.learner.counts
            except BaseException:
                with held():
                    self._go_back(before)
                raise
        assert self.decision is not None
        return self.decision

    def _snapshot(self) -> _Before:
        """What a decision may change before it stands: asked again, after Ctrl-C in the middle of a
        plan, it must draw the same, and plan from the same start."""
        prepared, drawn = self._prepared, self.generator
        return _Before(
            fields={name: getattr(self, name) for name in _UNDONE},
            counters=replace(self.counters),
            memory=dict(self.memory),
            generator=None if drawn is None else drawn.bit_generator.state,
            # Of a planner that is somebody's own `solve` alone is asked for.
            warm=prepared.warm_state() if hasattr(prepared, "restore_warm_state") else None,  # type: ignore[union-attr]
        )

    def _go_back(self, before: _Before) -> None:
        for name, value in before.fields.items():
            setattr(self, name, value)
        self.counters = before.counters
        self.memory.clear()
        self.memory.update(before.memory)
        if self.generator is not None and before.generator is not None:
            self.generator.bit_generator.state = before.generator
        if self._prepared is not None and before.warm is not None:
            self._prepared.restore_warm_state(before.warm)

    def _begin(self, decision: Decision, taken: int = 0, over: bool = False) -> None:
        """Follow this decision, of which so many steps have been taken."""
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
                f"gave limits {quoted(limits)}; must be {len(visits)} of int64, one an entry, or "
                f"none"
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
        """The action to take in this state; asking again gives the same answer.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name, as
            in `Structure.check_state`.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One position per action variable. Where a mapping or a text was given, the value of each
            action variable by its name, as the value was listed.

        Raises
        ------
        InvalidParameter
            Where it is no state of the structure, the learner draws and has no generator, or its
            policy answers with an action that a constraint forbids.
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
        """Whether an entry that this step would visit is at its limit."""
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
            return policy.settle(self._drawn, state)
        assert policy.base is not None
        return self._allowed(state, policy.base(state))

    def _allowed(self, state: Sequence[int], action: tuple[int, ...]) -> tuple[int, ...]:
        """What a policy answers, unless a constraint forbids it."""
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
        """What came of an action, the agent's own or another's. A refused step leaves no trace.

        Parameters
        ----------
        state, action, next_state
            One value for each variable, by number or by name; or a mapping or a text by name, as in
            `Structure.check_state`.
        rewards
            One number for each reward factor, in the unit of the model, inside its range; or a
            mapping from the names of the reward factors.

        Raises
        ------
        InvalidParameter
            Where it is no step of the structure.
        """
        if self.learner.counts:
            self.statistics.record(state, action, rewards, next_state)
        else:
            self.statistics.check(state, action, rewards, next_state)
        self._advance(1, not self._ends_before_limits and self._limit_reached())
        self._drawn = None
        if self._watched:
            s = self.structure
            self.learner.watch(
                self,
                s.check_state(state),
                s.check_action(action),
                self.statistics.rewards_in_order(rewards),
                s.check_state(next_state),
            )

    # ---- many steps at once ---------------------------------------------------------------------

    def stretch(self, at_most: int) -> StepBatch | None:
        """The coming steps, where it can be said beforehand what is done in them.

        For loops that take many steps at once, such as that of `simulate`. `played` has to be told
        before anything else is asked.

        Parameters
        ----------
        at_most
            How many steps the loop can take at once.

        Returns
        -------
        StepBatch | None
            How many steps, the actions, and the counts that the loop fills; None where the next
            step is to be taken by `act` and `observe`.
        """
        if self._watched or self._ends_before_limits:
            return None
        decision = self.decide()
        # Limits that are reached beforehand end it after one step, as they do step by step.
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
        """Some steps of a stretch were played, all of them counted.

        Parameters
        ----------
        stretch
            What `stretch` gave last.
        taken
            How many of its steps.
        """
        assert self.decision is not None
        if self._random:
            if taken < stretch.steps:
                self._undraw(self.decision.policy, taken)
            else:
                self._drawn = None
        self._advance(taken, self._limit_reached())

    def _draw(self, policy: RandomisedPolicy, steps: int) -> NDArray[np.int64]:
        """The coming steps of a random policy; the first may have been drawn to answer `act`."""
        if self._drawn is None:
            return policy.draw(self.randomness, steps)
        return np.concatenate([self._drawn[None], policy.draw(self.randomness, steps - 1)])

    def _undraw(self, policy: Any, taken: int) -> None:
        """Put the generator where it stands after so many steps, as if no more had been drawn."""
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
            return  # somebody else acts, and this one looks on
        self._taken += taken
        self._over = self._over or limit_reached or self._taken >= self.decision.steps

    def _limit_reached(self) -> bool:
        limits = NO_LIMITS if self.decision is None else self.decision.limits
        return bool(limits.size and (self.statistics.visits >= limits).any())

    # ---- saving ---------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `fmdp.load_agent` goes on from there.

        Parameters
        ----------
        path
            Where to write; an existing file is replaced when the new one is whole.
        """
        from fmdp.learning.files import save_agent

        save_agent(self, path)
