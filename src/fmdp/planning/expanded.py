"""Planning for models with derived variables through the same models without them.

A planner that works on tables over states and actions plans for the expanded model
(model/expansion.py), which has the same states, actions and values. Where several state variables
depend on one drawn variable there is no such model, and it plans for the flat model, whose one
state variable has all joint states as values; their indices, and those of the actions, are equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from numpy.typing import NDArray

from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import expand, expansion_of, shared_draws
from fmdp.model.products import flat_model
from fmdp.planning.policies.mixed import MixedPolicy, mixed_policy, mixture_of
from fmdp.planning.policies.policy import Policy, TablePolicy
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.spans import factored_spans
from fmdp.planning.status import Progress, Tables

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan, Planner


class PreparedExpanded:
    """A planner that is prepared for the expanded structure, and takes tables of the original."""

    def __init__(self, planner: Planner, structure: Structure) -> None:
        self._expansion = expansion_of(structure)
        self._prepared = planner.prepare(self._expansion.structure)

    def solve(self, tables: Tables, *, progress: Progress | None = None, **options: Any) -> Plan:
        """Plan with these tables; the options are those of the planner."""
        return self._prepared.solve(self._expansion.tables(tables), progress=progress, **options)

    def warm_state(self) -> Mapping[str, NDArray[Any]]:
        return self._prepared.warm_state()

    def restore_warm_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._prepared.restore_warm_state(state)


def plan_expanded(planner: Planner, model: FactoredMDP, progress: Progress | None) -> Plan:
    """Return the plan of a planner for the expanded model, as a plan for the model."""
    if not shared_draws(model.structure):
        return replace(planner.plan(expand(model), progress=progress), model=model)
    plan = planner.plan(flat_model(model), progress=progress)
    sizes = model.structure.state_sizes
    spans = None if plan.bias is None else factored_spans(plan.bias, sizes)
    policy = None if plan.policy is None else _of_joint_states(plan.policy, model.structure)
    return replace(plan, model=model, factored_spans=spans, policy=policy)


def evaluated_model(
    model: FactoredMDP, policy: Policy | MixedPolicy
) -> tuple[FactoredMDP, Policy | MixedPolicy]:
    """Return the model without derived variables in which a policy is evaluated, and the policy."""
    s = model.structure
    if not shared_draws(s):
        return expand(model), policy
    flat = flat_model(model)
    if isinstance(policy, TimedPolicy):
        stages = [_of_one_variable(stage, flat.structure) for stage in policy.stages]
        return flat, TimedPolicy(stages, policy.discount)
    return flat, mixed_policy(flat.structure, mixture_of(policy, s))


def _of_joint_states(policy: Policy, s: Structure) -> Policy:
    """Return a policy of the flat model, whose states and actions have the same indices."""
    if isinstance(policy, TimedPolicy):
        stages = [_of_joint_states(stage, s) for stage in policy.stages]
        return TimedPolicy([cast(TablePolicy, stage) for stage in stages], policy.discount)
    assert isinstance(policy, TablePolicy)
    return TablePolicy(s.state_sizes, s.action_sizes, policy.actions, s.naming)


def _of_one_variable(policy: TablePolicy, flat: Structure) -> TablePolicy:
    return TablePolicy(flat.state_sizes, flat.action_sizes, policy.actions)
