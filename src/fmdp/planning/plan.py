"""What a planner is, and what it returns.

A planner is a frozen object of settings.  `planner.prepare(structure)` does once what depends on
the structure alone (orders, programs, index arrays); `prepared.solve(tables)` may then be called
tens of thousands of times with changing tables, warm-started from the last call.  The result is an
immutable `Plan`: value, status, certificates and statistics.  A status is never silence: its
message says what the numbers beside it are worth.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp._base.numerals import (
    interval_text,
    known_number,
    lower_text,
    numbers_text,
    rounded_number,
    seconds_text,
    upper_text,
)
from fmdp._base.parameters import quoted
from fmdp._base.registries import Registry
from fmdp._base.settings import Settings
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.factored import check_model
from fmdp.model.naming import Assignment
from fmdp.planning.policies.policy import Policy
from fmdp.planning.registry import PLANNERS

if TYPE_CHECKING:
    from fmdp.planning.explain.explanation import Explanation

Tables = FactoredMDP | OptimisticTables
"""What a prepared planner solves: a model, or the optimistic tables of a learner."""

INFORMATIVE = 1.0 / 20.0
"""Share of the range of the rewards within which the middle of two bounds is given as a gain."""

Progress = Callable[[Mapping[str, Any]], None]
"""Called now and then during long work with what is known so far (see each planner)."""


class Status(enum.Enum):
    """How a plan or an evaluation ended; `value` is the word in the JSON, `message` says it to a
    person. Only evaluations of policies are `simulated` or `unmixed`.

    `Status("converged")` is the member with that value.
    """

    CONVERGED = "converged", "as precise as the tolerance asks"
    ITERATION_LIMIT = "iteration_limit", "stopped at the iteration limit; the bounds hold"
    TIME_LIMIT = "time_limit", "stopped at the time limit; the bounds hold"
    INTERRUPTED = "interrupted", "stopped by hand; the bounds so far hold"
    PRECISION_LIMIT = "precision_limit", "rounding keeps the bounds from closing further; they hold"
    RELAXATION_LIMIT = (
        "relaxation_limit",
        "no more sweeps would bring the bounds closer; they hold",
    )
    MULTICHAIN = "multichain", "the gain depends on the starting state; the bounds enclose all"
    DISCOUNTED = (
        "discounted",
        "no one gain for millions of steps: best under a discount of 1 - 1e-7; the bounds hold",
    )
    SIMULATED = (
        "simulated",
        "estimated from simulated runs; the interval is not certified",
    )
    UNMIXED = (
        "unmixed",
        "simulated runs disagree, drift or are too short for an interval; the bounds hold",
    )
    INFEASIBLE = "infeasible", "the linear program has no solution"
    UNBOUNDED = "unbounded", "the linear program has no finite optimum"
    TOO_LARGE = "too_large", "the predicted need is above the memory limit"

    message: str

    def __new__(cls, value: str, message: str) -> Status:
        member = object.__new__(cls)
        member._value_ = value
        member.message = message
        return member


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The result of planning. A number that does not apply is None, never a guess.

    Attributes
    ----------
    planner : str
        The name of the planner.
    status : Status
        How it ended; its message says what the numbers are worth.
    policy : Policy or None
        State -> action. None where planning ended before there was one.
    gain : float or None
        The planner's number for the quantity that its bounds enclose, between them: the best gain
        of the model (with `bounds_best_gain`), else the best that the planner's own operator
        allows. The middle of bounds that are closer than a twentieth of the range of the rewards,
        or than the tolerance; what the policy is sure to gain where nothing else is known from
        below. None where the bounds are wider, or the gain depends on the state.
    gain_lower : float or None
        At most the best gain of every state, and at most what the policy gains from every state.
    gain_upper : float or None
        At least the best gain of every state.
    span : float or None
        max h - min h of the bias (or of what stands for it).
    factored_spans : tuple of float or None
        The largest change of the bias along each state variable.
    objective : float or None
        The value of a linear program, or the mean discounted value over the states.
    iterations : int
        Sweeps, rounds of a linear program, or simplex iterations.
    seconds : float
        Wall clock of preparing and solving.
    ties : str or None
        Which of equally good actions the policy takes: random (by a hash of the state), first,
        last.
    policy_gain : float or None
        What the policy is sure to gain from the initial state; less than the tolerance more is
        possible.
    bias : array or None
        [S] in C order; the value function under a discount. None where it is not tabulated.
    marginals : tuple of array or None
        For each state variable what its values are worth: the mean over the other variables of what
        the policy is greedy for, up to a constant. None where it was not asked for.
    stats : mapping
        What else the planner has to say, by name.
    bounds_best_gain : bool
        Whether the bounds are those of the model's best gain, not of another operator's.
    model : FactoredMDP or None
        What was planned for; None where it is the plan of a learner.
    settings : Planner or None
        The planner that made it.
    """

    planner: str
    status: Status
    policy: Policy | None = None
    gain: float | None = None
    gain_lower: float | None = None
    gain_upper: float | None = None
    span: float | None = None
    factored_spans: tuple[float, ...] | None = None
    objective: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    ties: str | None = None
    policy_gain: float | None = None
    bias: NDArray[np.float64] | None = None
    marginals: tuple[NDArray[np.float64], ...] | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)
    bounds_best_gain: bool = True
    model: FactoredMDP | None = None
    settings: Any = None

    def explain(
        self, state: Assignment, model: FactoredMDP | None = None, *, step: int = 0
    ) -> Explanation:
        """Why the policy does what it does in a state: the value of each action, and its gap.

        Parameters
        ----------
        state
            By number or by name, as in `Structure.check_state`.
        model
            What was planned for, where the plan does not know it (`plan.model` is None).
        step
            Of a plan with a horizon: which step, from 0 for the first.

        Returns
        -------
        Explanation
            The chosen action, the allowed ones with value and gap, best first, and the runner-up;
            `print` shows a table. With a discount or a horizon the value is R + g P V; else it is
            R + P h - h(s), so that the best value is the gain. A gap is what taking the action once
            costs in all.

        Raises
        ------
        InvalidParameter
            Where it is no state of the model, or the plan has no policy, or no horizon and yet a
            step is asked.
        TooLarge
            Where what is needed does not fit: a plan without a bias has its policy evaluated.
        """
        from fmdp.planning.explain.explanation import explain_plan

        return explain_plan(self, state, model, step)

    @property
    def gain_bounds(self) -> tuple[float | None, float | None]:
        """(gain_lower, gain_upper)."""
        return self.gain_lower, self.gain_upper

    @property
    def factored_span_sum(self) -> float | None:
        """Q, the sum of the factored spans."""
        return None if self.factored_spans is None else sum(self.factored_spans)

    def __repr__(self) -> str:
        """At most six lines; what is not known is left out."""
        rows = {
            "gain": self._gain_text(),
            "objective": self._objective_text(),
            "policy": self._policy_text(),
            "span": self._span_text(),
            "effort": f"{self.iterations:,} iterations, {seconds_text(self.seconds)}",
        }
        head = f"Plan of planner {self.planner}: {self.status.value}, {self.status.message}"
        return "\n".join([head, *(f"  {name:9} {text}" for name, text in rows.items() if text)])

    def _gain_text(self) -> str:
        lower, upper = self.gain_bounds
        parts = []
        if self.gain is not None:
            # An approximate plan's gain is its policy's.
            own = self.gain == self.policy_gain
            within = self.stats.get("policy_gain_bounds", (lower, upper)) if own else (lower, upper)
            parts.append(known_number(self.gain, *within))
        elif self.stats.get("gain_from_initial_state") is not None:
            within = self.stats.get("gain_from_initial_state_bounds", (None, None))
            start = known_number(self.stats["gain_from_initial_state"], *within)
            parts.append(f"{start} from the initial state")
        if lower is not None and upper is not None:
            parts.append(f"certified {interval_text(lower, upper)}")
        elif upper is not None:
            parts.append(f"certified at most {upper_text(upper)}")
        elif lower is not None:
            parts.append(f"certified at least {lower_text(lower)}")
        case = {"robust": "worst", "optimistic": "best"}.get(self.stats.get("intervals", ""))
        if parts and case is not None:
            parts.append(f"both of the {case} case inside the intervals")
        elif parts and not self.bounds_best_gain:
            parts.append("both of the planner's own operator")
        return ", ".join(parts)

    def _objective_text(self) -> str | None:
        bounds = self.stats.get("objective_bounds")
        if self.objective is not None:
            return known_number(self.objective, *(bounds or (None, None)))
        return None if bounds is None else f"certified {interval_text(*bounds)}"

    def _policy_text(self) -> str:
        if self.policy is None:
            return "none"
        shown = repr(self.policy).partition("\n")[0]
        text = shown if len(shown) <= 70 else f"{shown[:67]}..."
        if self.policy_gain is None:
            return text
        if "intervals" in self.stats:  # what it is sure of there is the lower bound
            within = self.stats.get("policy_gain_bounds", (None, None))
            number = known_number(self.policy_gain, *within)
            return f"{text}, gains {number} in the model as it is"
        return f"{text}, sure to gain {lower_text(self.policy_gain)}"

    def _span_text(self) -> str | None:
        if self.span is None:
            return None
        error = self.stats.get("span_error")
        text = rounded_number(self.span, error)
        if self.factored_spans is None or self.factored_span_sum is None:
            return text
        of_sum = None if error is None else error * len(self.factored_spans)
        return (
            f"{text}; factored {numbers_text(self.factored_spans, error=error)}, "
            f"sum {rounded_number(self.factored_span_sum, of_sum)}"
        )


class Prepared(Protocol):
    """A planner made ready for one structure; it belongs to one run and keeps its warm state.

    A class of one's own may inherit from it: then it has no warm state until it says so.
    """

    @abstractmethod
    def solve(self, tables: Tables, *, progress: Progress | None = None) -> Plan:
        """Plan with these tables, warm from the last call.

        Parameters
        ----------
        tables
            A model, or the optimistic tables of a learner, of the structure that it was prepared
            for.
        progress
            Called now and then with a mapping of what is known so far; None: nobody is told.

        Returns
        -------
        Plan
            With a status that says what its numbers are worth; Ctrl-C gives one too.
        """

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        """What must be kept, beside the settings, so that the next solve is the same to the bit.

        Returns
        -------
        Mapping[str, NDArray[Any]]
            Arrays by name, which may be written to a file; empty if there is nothing to keep.
        """
        return {}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `warm_state` has returned, perhaps in another process.

        Parameters
        ----------
        state
            The arrays by name, of a planner with the same settings and structure.
        """
        return


class Planner(Settings, ABC):
    """What every planner is: settings, and `prepare`.

    A subclass declares its settings by `fmdp.setting` and returns a `Prepared` from `prepare`;
    docs/own-planner.md has a whole one. fmdp takes any object with such a method, but only a
    subclass has a name on the command line and in specs.
    """

    noun = "planner"
    registry: ClassVar[Registry[Planner]] = PLANNERS
    on_any_model: ClassVar[Mapping[str, object]] = {}
    """What to use, on another model, in the place of settings that are made for one model, and of
    those that have to be given."""
    gives_marginals: ClassVar[bool] = False
    """Whether `solve(tables, marginals=True)` of what it prepares gives `Plan.marginals`."""
    takes_ties: ClassVar[bool] = False
    """Whether `solve(tables, ties=...)` of what it prepares takes an `elimination.ties.Ties` in
    place of the settings `ties` and `tie_seed`, so that each run of a learner breaks ties in its
    own way."""

    @abstractmethod
    def prepare(self, structure: Structure) -> Prepared:
        """Do once what depends on the structure alone; the tables come with every `solve`.

        Parameters
        ----------
        structure
            Scopes, sizes and reward ranges of the models to plan for.

        Returns
        -------
        Prepared
            Ready for tables of this structure, as often as they change.
        """

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        """Plan for one model, from nothing.

        Parameters
        ----------
        model
            What to plan for.
        progress
            Called now and then with a mapping of what is known so far; None: nobody is told.

        Returns
        -------
        Plan
            With a status that says what its numbers are worth; Ctrl-C gives one too.
        """
        check_model(model, "plan")
        found = ready(self, model.structure).solve(model, progress=progress)
        return of_model(found, model, self)


def middle_of_bounds(
    lower: float | None, upper: float | None, structure: Structure, tolerance: float
) -> float | None:
    """Return the middle of bounds on a gain, or None where they say too little about it.

    They must be within the tolerance, or closer than a twentieth of the range of the rewards
    (`INFORMATIVE`). A plan that was stopped early may know hardly more than that range, and its
    middle is no gain.
    """
    if lower is None or upper is None:
        return None
    close = max(tolerance, INFORMATIVE * structure.reward_range_total)
    return 0.5 * (lower + upper) if upper - lower <= close else None


def of_model(found: Plan, model: FactoredMDP, settings: Any) -> Plan:
    """The plan with what it was made for, and by whom; what is no plan as it is."""
    if not isinstance(found, Plan) or found.model is not None:
        return found
    return replace(found, model=model, settings=settings)


def ready(planner: Planner, structure: Structure) -> Prepared:
    """What `prepare` gives, or an error that says what it should have given."""
    prepared = planner.prepare(structure)
    if not callable(getattr(prepared, "solve", None)):
        raise InvalidParameter(
            f"prepare of planner {getattr(planner, 'name', planner)} must give an object with "
            f"solve(tables); got {quoted(prepared)}"
        )
    return prepared
