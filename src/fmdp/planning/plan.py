"""What a planner is, and what it returns.

A planner is a frozen object of settings.  `planner.prepare(structure)` does once what depends on
the structure alone (orders, programs, index arrays); `prepared.solve(tables)` may then be called
tens of thousands of times with changing tables, warm-started from the last call.  The result is an
immutable `Plan`: value, status, certificates and statistics.  A status is never silence: its
message says what the numbers beside it are worth.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.planning.policy import Policy

Tables = FactoredMDP | OptimisticTables
"""What a prepared planner solves: a model, or the optimistic tables of a learner."""

Progress = Callable[[Mapping[str, Any]], None]
"""Called now and then during long work with what is known so far (see each planner)."""


class Status(enum.Enum):
    """How a plan ended; `value` is the word in the JSON, `message` says it to a person.

    `Status("converged")` is the member with that value.
    """

    CONVERGED = "converged", "as precise as the tolerance asks"
    ITERATION_LIMIT = "iteration_limit", "stopped at the iteration limit; the bounds hold"
    TIME_LIMIT = "time_limit", "stopped at the time limit; the bounds hold"
    INTERRUPTED = "interrupted", "stopped by hand; the bounds so far hold"
    PRECISION_LIMIT = "precision_limit", "rounding keeps the bounds from closing further; they hold"
    MULTICHAIN = "multichain", "the gain depends on the starting state; the bounds enclose all"
    INFEASIBLE = "infeasible", "the linear program has no solution"
    UNBOUNDED = "unbounded", "the linear program has no finite optimum"
    TOO_LARGE = "too_large", "the predicted need is above the memory limit"

    message: str

    def __new__(cls, value: str, message: str) -> Status:
        member = object.__new__(cls)
        member._value_ = value
        member.message = message
        return member


@dataclass(frozen=True, eq=False)
class Plan:
    """The result of planning.  A number that does not apply is None, never a guess.

    All gains, biases and spans are in the unit of the reward.

    Attributes
    ----------
    planner
        Name of the planner.
    status
        How it ended; `status.message` says what the numbers are worth.
    policy
        The policy that was found; None where there is none.
    gain
        The best gain, one number for all states: the middle of its bounds for the exact planner,
        the gain of the policy for the approximate one, that of the truncated operator for the
        span planner. None where the best gain depends on the state, or is not known.
    gain_lower
        At most the best gain of every state, and the gain of the policy from every state.
    gain_upper
        At least the best gain of every state.
    span
        max - min of the bias (of the weighted basis functions for the approximate planner).
    factored_spans
        For each state variable the largest change of the bias when it alone changes: m numbers.
    objective
        Value of the linear program, or of a discounted plan: its mean over all states.
    iterations
        Sweeps, rounds of cuts, or simplex iterations.
    seconds
        Wall clock of preparing and solving.
    ties
        How tied actions were chosen among.
    policy_gain
        What the policy is sure to gain from the initial state; less than the tolerance more is
        possible. `fmdp.plan` fills it in, up to 2^16 states.
    bias
        [S] in C order; the value function under a discount.  None where it is not tabulated.
    stats
        What else the planner has to tell, by name.
    bounds_best_gain
        Whether the bounds are those of the model's best gain, not of another operator's.
    """

    planner: str
    status: Status
    policy: Policy | None
    gain: float | None
    gain_lower: float | None
    gain_upper: float | None
    span: float | None
    factored_spans: tuple[float, ...] | None
    objective: float | None
    iterations: int
    seconds: float
    ties: str
    policy_gain: float | None = None
    bias: NDArray[np.float64] | None = None
    stats: Mapping[str, Any] = field(default_factory=dict)
    bounds_best_gain: bool = True

    @property
    def gain_bounds(self) -> tuple[float | None, float | None]:
        """(gain_lower, gain_upper)."""
        return self.gain_lower, self.gain_upper

    @property
    def factored_span_sum(self) -> float | None:
        """The sum of the factored spans, the paper's Q(h)."""
        return None if self.factored_spans is None else sum(self.factored_spans)


class Prepared(Protocol):
    """A planner made ready for one structure; it belongs to one run and keeps its warm state."""

    def solve(self, tables: Tables, *, progress: Progress | None = None) -> Plan:
        """Plan for these tables, warm-started from the last call.

        Parameters
        ----------
        tables
            A model, or optimistic tables, of the structure that it was prepared for.
        progress
            Called now and then with a mapping of what is known so far.
        """
        ...

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        """What must be kept, beside the settings, so that the next solve is the same to the bit."""
        ...

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from a state that was kept.

        Parameters
        ----------
        state
            What `warm_state` gave.
        """
        ...


class Planner(Protocol):
    """Settings of a planner; frozen, so that it can be named in a spec and hashed."""

    @property
    def name(self) -> str:
        """What it is called in specs, on the command line and in its plans."""
        ...

    def prepare(self, structure: Structure) -> Prepared:
        """Do once what depends on the structure alone.

        Parameters
        ----------
        structure
            Of all tables to come.
        """
        ...

    def plan(self, model: FactoredMDP, *, progress: Progress | None = None) -> Plan:
        """Prepare and solve, once.

        Parameters
        ----------
        model
            What to plan for.
        progress
            Called now and then with a mapping of what is known so far.
        """
        ...
