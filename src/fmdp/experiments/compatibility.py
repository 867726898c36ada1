"""Check whether a learner can run on a model, from the structure alone and before any run.

The learner is started, which applies its own limits: a flat learner counts a limited number of
joint states and actions, a learner over confidence sets needs the exact planner, and settings must
suit the structure. Then follow checks that a run makes only at its first plan. Value iteration
visits all joint states (exact, span), so its memory is predicted from the elimination order. Where
the learner chooses the planner, it plans hundreds of times, so the predicted time of a plan is
limited too (learning/planning_budget.py): other learners switch to linear programs above that
limit, but a learner with a span budget cannot. Nothing is planned and no step is taken here. An
infeasible plan depends on the numbers of the model and is found only by a run.
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


def incompatibility(learner: Learner, model: FactoredMDP) -> str | None:
    """Return the reason why the learner cannot run on the model, in one line, or None."""
    try:
        agent = learner.start(model)
        # Flat learners plan for another structure than that of the model.
        return _too_large(learner, agent.planner, agent.statistics.structure)
    except FmdpError as error:
        return str(error)


def _too_large(learner: Learner, planner: Planner | None, structure: Structure) -> str | None:
    if not isinstance(planner, Exact | SpanConstrained):
        return None
    if getattr(learner, "planner", None) is not None:
        choice = choose_planner(
            structure,
            most_states=structure.n_states,
            memory_limit=planner.memory_limit,
            by_parts=isinstance(planner, Exact),
        )
    elif isinstance(planner, Exact):
        return None  # the learner chose it because it fits
    else:
        rationed = getattr(learner, "episodes", None) in OWN_RULES
        choice = planner_for_learning(
            structure, planner.memory_limit, rationed=rationed, by_parts=False
        )
    if choice.reason is None:
        return None
    return f"{learner.owner()} plans over all states: {choice.reason}"
