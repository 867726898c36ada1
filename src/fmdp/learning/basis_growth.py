"""When a learner tries a larger basis of its linear programs, and what that may cost.

A planner `alp` whose basis is not given begins with `singles`. After a few plans, and whenever the
number of steps has doubled since, larger bases are tried on the tables of the plan
(planning/alp/basis_trial.py). One with a better policy is kept, until a later trial finds a better
one, or that `singles` are as good. Trials take at most a tenth of the budget of predicted seconds
(planning_budget.py), and plans with the larger basis are rationed with it. All costs are predicted,
so that a run is a function of its seed.

Learners with optimistic tables keep `singles`: such tables are a set of models, which cannot be
simulated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.learning.encoding import as_int, as_type
from fmdp.learning.planning_budget import FIRST_SECONDS, SECONDS_PER_STEP, UNRATIONED_SECONDS
from fmdp.planning.settings import searches_basis

if TYPE_CHECKING:  # loads HiGHS
    from fmdp.planning.alp.basis_trial import Outcome

FIRST_TRIAL = 8
"""Number of plans before the first trial: earlier tables say little."""
TRIAL_SHARE = 0.1
"""Share of the budget of planning that trials may take."""
RATIONED_SECONDS = 2.0
"""Largest predicted seconds per plan with a larger basis, if the learner waits for such plans."""


@dataclass(frozen=True)
class BasisGrowth:
    """The growing basis of one run."""

    plan_seconds: float = 0.0
    """Predicted seconds of a plan with the larger basis; 0 before it has grown."""
    spent_seconds: float = 0.0
    """Predicted seconds of all plans with larger bases."""
    trial_seconds: float = 0.0
    """Predicted seconds of all trials."""
    bases: int = 0
    """Number of larger bases that were compared with the one in use."""
    tried_at: int = 0
    """Step of the last trial; 0 before the first."""
    changes: tuple[int, ...] = ()
    """Steps at which the basis changed."""

    @property
    def seconds_with_next_plan(self) -> float:
        """Predicted seconds of the plans with larger bases, the next plan included."""
        return self.spent_seconds + self.plan_seconds

    def after_plan(self) -> BasisGrowth:
        """Return the state after one more plan."""
        return replace(self, spent_seconds=self.seconds_with_next_plan)

    def is_due(self, plans: int, steps: int) -> bool:
        """Return whether there is a trial after so many plans and steps."""
        return plans >= FIRST_TRIAL and steps >= 2 * self.tried_at

    def limits(self, steps: int, rationed: bool) -> dict[str, float]:
        """Return the limits of a trial after so many steps, in predicted seconds."""
        budget = TRIAL_SHARE * (FIRST_SECONDS + SECONDS_PER_STEP * steps)
        return {
            "seconds": budget - self.trial_seconds,
            "plan_seconds": RATIONED_SECONDS if rationed else UNRATIONED_SECONDS,
        }

    def after_trial(self, outcome: Outcome, steps: int) -> BasisGrowth:
        """Return the state after a trial at step `steps`."""
        tried = replace(
            self,
            trial_seconds=self.trial_seconds + outcome.seconds,
            bases=self.bases + outcome.bases,
            tried_at=max(steps, 1),
        )
        if outcome.scopes is None:
            return tried
        return replace(tried, plan_seconds=outcome.plan_seconds, changes=(*self.changes, steps))

    def summary(self, basis: Any) -> dict[str, Any]:
        """Return the result in plain values; `basis` is the basis in use."""
        return {
            "scopes": 0 if isinstance(basis, str) else len(basis),
            "largest_scope": 1 if isinstance(basis, str) else max(map(len, basis)),
            "bases_tried": self.bases,
            "changes": len(self.changes),
            "last_change": self.changes[-1] if self.changes else None,
        }


def first_growth(planner: Any) -> BasisGrowth | None:
    """Return the state before the first plan; None if the planner has a given basis, or none."""
    grows = searches_basis(planner) and hasattr(planner, "larger_basis")
    return BasisGrowth() if grows else None


def read_growth(header: Any) -> BasisGrowth | None:
    """Return the state of plain values, which may come from a file; raise InvalidParameter if they
    are wrong."""
    if header is None:
        return None
    as_type(header, "basis_growth", dict)
    numbers = {}
    for name in ("plan_seconds", "spent_seconds", "trial_seconds"):
        numbers[name] = value = header[name]
        if not isinstance(value, float) or not 0.0 <= value < math.inf:
            raise InvalidParameter(f"its {name!r} must be a number >= 0; got {quoted(value)}")
    return BasisGrowth(
        **numbers,
        bases=as_int(header["bases"], "bases"),
        tried_at=as_int(header["tried_at"], "tried_at"),
        changes=tuple(as_int(step, "changes") for step in header["changes"]),
    )
