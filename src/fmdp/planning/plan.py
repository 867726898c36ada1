"""The Planner base class, the Prepared protocol, and Plan, the result of planning.

A planner is a frozen object of settings. `planner.prepare(structure)` does the work that depends on
the structure alone (orders, programs, index arrays). `prepared.solve(tables)` may then be called
tens of thousands of times with changing tables; each call starts from the last solution. The result
is an immutable `Plan`: value, status, certificates and statistics.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp._base.html import html_table
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
from fmdp.model import FactoredMDP, Structure
from fmdp.model.factored import check_model
from fmdp.model.naming import Assignment
from fmdp.planning.expanded import PreparedExpanded
from fmdp.planning.explain.explanation import Explanation
from fmdp.planning.policies.policy import Policy
from fmdp.planning.registry import PLANNERS
from fmdp.planning.status import Progress, Status, Tables

if TYPE_CHECKING:
    from fmdp.planning.occupancy.records import Summary


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """The result of planning. A number that is not known or does not apply is None.

    Attributes
    ----------
    planner : str
        The name of the planner.
    status : Status
        How it ended; its message says how far the numbers can be trusted.
    policy : Policy or None
        State -> action. None if planning ended before there was a policy.
    gain : float or None
        The planner's estimate of the quantity that its bounds enclose: the best gain of the model
        (with `bounds_best_gain`), otherwise the optimum of the planner's own operator. It is the
        middle of the bounds if these are closer than a twentieth of the range of the rewards, or
        than the tolerance; it is the certified gain of the policy if no other lower bound is known.
        None if the bounds are wider, or if the gain depends on the state.
    gain_lower : float or None
        Lower bound on the best gain of every state, and on the policy's gain from every state.
    gain_upper : float or None
        Upper bound on the best gain of every state.
    span : float or None
        max h - min h of the bias, or of the function that takes its place.
    factored_spans : tuple of float or None
        The largest change of the bias along each state variable.
    objective : float or None
        The value of a linear program, or the mean discounted value over the states.
    iterations : int
        Sweeps, rounds of a linear program, or simplex iterations.
    seconds : float
        Wall-clock time of preparing and solving.
    ties : str or None
        Which of several equally good actions the policy takes: random (by a hash of the state),
        first, or last.
    policy_gain : float or None
        Lower bound on the policy's gain from the initial state; the gain exceeds it by less than
        the tolerance.
    bias : array or None
        [S] in C order; the value function under a discount. None if it is not tabulated.
    marginals : tuple of array or None
        For each state variable, the mean over the other variables of the function for which the
        policy is greedy, up to a constant. None unless requested.
    stats : mapping
        Further results of the planner, by name.
    bounds_best_gain : bool
        Whether the bounds enclose the model's best gain, and not the optimum of another operator.
    model : FactoredMDP or None
        The model; None if a learner made the plan.
    settings : Planner or None
        The planner that made the plan.
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
        """Return the value of each action in a state, and what each costs against the best.

        Parameters
        ----------
        state
            By number or by name, as in `Structure.check_state`.
        model
            The model; needed only if `plan.model` is None.
        step
            The step of a plan with a horizon, from 0.

        Returns
        -------
        Explanation
            The chosen action, the allowed actions with value and gap, best first, and the
            runner-up; `print` shows a table. With a discount or a horizon the value is R + g P V;
            otherwise it is R + P h - h(s), so that the best value is the gain. A gap is the total
            loss from taking the action once.

        Raises
        ------
        InvalidParameter
            If it is not a state of the model, the plan has no policy, or a step is given for a
            plan without a horizon.
        TooLarge
            If the values do not fit into memory. For a plan without a bias the policy is evaluated.
        """
        # Imported on use: it loads the elimination engine.
        from fmdp.planning.explain.explain import explain_plan

        return explain_plan(self, state, model, step)

    def summary(
        self, *, events: Mapping[str, Any] | None = None, most_visited: int = 10
    ) -> Summary:
        """Return what the policy does in the long run: shares of time and means, with bounds.

        Parameters
        ----------
        events
            Events to count, as in `fmdp.inspect`.
        most_visited
            Number of states to list.

        Returns
        -------
        Summary
            Exact. `fmdp.inspect(model, plan.policy)` also simulates what is too large.

        Raises
        ------
        InvalidParameter
            If the plan has no policy or no model, an event is not valid, or no error bound of the
            shares can be proven.
        TooLarge
            If the law does not fit into memory.
        """
        # Imported on use: it loads the elimination engine.
        from fmdp.planning.occupancy.summary import summarise

        if self.policy is None or self.model is None:
            raise InvalidParameter(f"this plan has no policy to inspect: {self.status.message}")
        return summarise(self.model, self.policy, events=events, most_visited=most_visited)

    @property
    def gain_bounds(self) -> tuple[float | None, float | None]:
        """(gain_lower, gain_upper)."""
        return self.gain_lower, self.gain_upper

    @property
    def factored_span_sum(self) -> float | None:
        """Q, the sum of the factored spans."""
        return None if self.factored_spans is None else sum(self.factored_spans)

    def __repr__(self) -> str:
        """Return at most six lines, without the numbers that are not known."""
        rows = {
            "gain": self._gain_text(),
            "objective": self._objective_text(),
            "policy": self._policy_text(),
            "span": self._span_text(),
            "effort": f"{self.iterations:,} iteration{'s' * (self.iterations != 1)}, "
            f"{seconds_text(self.seconds)}",
        }
        head = f"Plan of planner {self.planner}: {self.status.value}, {self.status.message}"
        return "\n".join([head, *(f"  {name:9} {text}" for name, text in rows.items() if text)])

    def _repr_html_(self) -> str:
        caption, *lines = repr(self).splitlines()
        return html_table(caption, (), (line.split(maxsplit=1) for line in lines))

    def _gain_text(self) -> str:
        lower, upper = self.gain_bounds
        parts = []
        if self.gain is not None:
            # The gain of an approximate plan is that of its policy.
            of_policy = self.gain == self.policy_gain
            bounds = (lower, upper)
            within = self.stats.get("policy_gain_bounds", bounds) if of_policy else bounds
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
        if "intervals" in self.stats:  # there the policy's guarantee is the lower bound
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
    """A planner that is prepared for one structure. It belongs to one run and keeps a warm state.

    Classes of other packages may inherit from it; they have no warm state unless they override the
    two methods.
    """

    @abstractmethod
    def solve(self, tables: Tables, *, progress: Progress | None = None) -> Plan:
        """Plan with these tables, starting from the last solution.

        Parameters
        ----------
        tables
            A model, or the optimistic tables of a learner, with the structure that it was prepared
            for.
        progress
            A callback that receives a mapping of intermediate results from time to time, or None.

        Returns
        -------
        Plan
            Its status says how far its numbers can be trusted. Ctrl-C also ends with a plan.
        """

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        """Return what the next solve depends on beside the settings, to the last bit.

        Returns
        -------
        Mapping[str, NDArray[Any]]
            Arrays by name, which may be written to a file; empty if there is no such state.
        """
        return {}

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a state that `warm_state` has returned, perhaps in another process.

        Parameters
        ----------
        state
            The arrays by name, of a planner with the same settings and structure.
        """


class Planner(Settings, ABC):
    """Base class of planners: settings, and `prepare`.

    A subclass declares its settings with `fmdp.setting` and returns a `Prepared` from `prepare`;
    docs/own-planner.md has a complete example. fmdp accepts any object with such a method, but only
    a subclass can be named on the command line and in specs.
    """

    noun = "planner"
    registry: ClassVar[Registry[Planner]] = PLANNERS
    on_any_model: ClassVar[Mapping[str, object]] = {}
    """Values for settings that are required or fit one model only, for use on any other model."""
    gives_marginals: ClassVar[bool] = False
    """Whether `solve(tables, marginals=True)` of the prepared planner sets `Plan.marginals`."""
    takes_ties: ClassVar[bool] = False
    """Whether `solve(tables, ties=...)` of the prepared planner accepts an `elimination.ties.Ties`
    that replaces the settings `ties` and `tie_seed`. Each run of a learner passes its own."""

    takes_derived: ClassVar[bool] = False
    """Whether `prepare` accepts structures with derived variables. A planner that does not is
    given the same model without them."""

    @abstractmethod
    def prepare(self, structure: Structure) -> Prepared:
        """Do the work that depends on the structure alone; each `solve` receives tables.

        Parameters
        ----------
        structure
            Scopes, sizes and reward ranges of the models to plan for.

        Returns
        -------
        Prepared
            It solves any tables of this structure.
        """

    def least_gain_upper(self, model: FactoredMDP, progress: Progress | None = None) -> float:
        """Return an upper bound on the gain that is cheaper than a plan, infinity if there is none.

        It is certified, and regret on a large model is measured against it if it is the least one.

        Parameters
        ----------
        model
            The model whose gain is bounded.
        progress
            Called with the progress of the programs.
        """
        return math.inf

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        """Plan for one model, without a warm start.

        Parameters
        ----------
        model
            The model.
        progress
            A callback that receives a mapping of intermediate results from time to time, or None.

        Returns
        -------
        Plan
            Its status says how far its numbers can be trusted. Ctrl-C also ends with a plan.
        """
        check_model(model, "plan")
        plan = ready(self, model.structure).solve(model, progress=progress)
        return of_model(plan, model, self)


def of_model(plan: Plan, model: FactoredMDP, settings: Any) -> Plan:
    """Return the plan with its model and planner set; anything but a plan is returned unchanged."""
    if not isinstance(plan, Plan) or plan.model is not None:
        return plan
    return replace(plan, model=model, settings=settings)


def ready(planner: Planner, structure: Structure) -> Prepared:
    """Return what `prepare` returns; raise InvalidParameter if it has no method `solve`."""
    takes = getattr(planner, "takes_derived", False)
    expanded = bool(structure.derived) and not takes
    prepared: Prepared = (
        PreparedExpanded(planner, structure) if expanded else planner.prepare(structure)
    )
    if not callable(getattr(prepared, "solve", None)):
        raise InvalidParameter(
            f"prepare of planner {getattr(planner, 'name', planner)} must give an object with "
            f"solve(tables); got {quoted(prepared)}"
        )
    return prepared
