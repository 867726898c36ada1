"""Whether a learner can run on a model, said before any work, from the structure alone.

    why_not(learner, model) -> None, or the reason in one line

Asked is what a run would ask, at the price of starting it: a flat learner counts at most so many
joint states and actions, a learner over sets with upper ends needs the exact planner, settings must
suit the structure. Then what a run finds out only when it first plans: value iteration goes over
all joint states (exact, span), so its memory is predicted from the elimination order; and where the
planner was left to the learner, it plans by the hundred, so the predicted time of a plan is limited
(learning/planning_budget.py): above it other learners turn to linear programs, and one that plans
under a span budget has nothing to turn to. Nothing is planned here, and no step is taken. What
depends on the numbers of a model (a plan that is infeasible) is seen by the run alone.
"""

from __future__ import annotations

from fmdp.errors import FmdpError
from fmdp.learning.episodes import OWN_RULES
from fmdp.learning.learner import Learner
from fmdp.learning.planning_budget import planner_for_learning
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.choice import choose_planner
from fmdp.planning.exact.planner import Exact
from fmdp.planning.plan import Planner
from fmdp.planning.span import SpanConstrained


def why_not(learner: Learner, model: FactoredMDP) -> str | None:
    """Why it cannot run there, in one line; None where it can."""
    try:
        agent = learner.start(model)
        # Flat learners plan for another structure than that of the model.
        return _too_much(learner, agent.planner, agent.statistics.structure)
    except FmdpError as error:
        return str(error)


def _too_much(learner: Learner, planner: Planner | None, structure: Structure) -> str | None:
    if not isinstance(planner, Exact | SpanConstrained):
        return None
    by_parts = isinstance(planner, Exact)
    if getattr(learner, "planner", None) is not None:
        fits = choose_planner(
            structure,
            most_states=structure.n_states,
            memory_limit=planner.memory_limit,
            by_parts=by_parts,
        )
    elif isinstance(planner, Exact):
        return None  # it was chosen because it fits
    else:
        rationed = getattr(learner, "episodes", None) in OWN_RULES
        fits = planner_for_learning(
            structure, planner.memory_limit, rationed=rationed, by_parts=False
        )
    if fits.reason is None:
        return None
    return f"{learner.owner()} plans over all states: {fits.reason}"
