"""Brute-force oracles: short, slow, and sharing no code with what they check.

They read only the scopes and the tables of a model. `dense` has the flat MDP, `average` gain and
bias, `hitting` expected times and the diameter, `targets` the optimistic backups, `boxes` those
over boxes and balls, `truncation` the factored-span truncation and its constrained gain,
`lower_bound` the least regret of any learner on JAO products.
"""

from fmdp.testing.oracles.average import (
    AverageSolution,
    all_policies,
    damped_value_iteration,
    limiting_matrix,
    optimal,
    policy_bias,
    policy_gain,
    recurrent_classes,
    stationary_law,
)
from fmdp.testing.oracles.boxes import (
    ball_value,
    box_corners,
    box_value,
    box_values,
    divergence_value,
    nested_box_values,
)
from fmdp.testing.oracles.dense import (
    DenseMDP,
    action_values,
    allowed_table,
    assignments,
    bellman,
    dense,
    policy_chain,
    scope_row,
)
from fmdp.testing.oracles.hitting import diameter, hitting_times, shortest_times
from fmdp.testing.oracles.lower_bound import jao_least_regret, jao_lower_bound
from fmdp.testing.oracles.targets import (
    extended,
    extreme_transition,
    nested_values,
    next_law,
    optimistic_reward,
    vertex_values,
)
from fmdp.testing.oracles.truncation import constrained_gain, factored_spans, hamming, truncated

__all__ = [
    "AverageSolution",
    "DenseMDP",
    "action_values",
    "all_policies",
    "allowed_table",
    "assignments",
    "ball_value",
    "bellman",
    "box_corners",
    "box_value",
    "box_values",
    "constrained_gain",
    "damped_value_iteration",
    "dense",
    "diameter",
    "divergence_value",
    "extended",
    "extreme_transition",
    "factored_spans",
    "hamming",
    "hitting_times",
    "jao_least_regret",
    "jao_lower_bound",
    "limiting_matrix",
    "nested_box_values",
    "nested_values",
    "next_law",
    "optimal",
    "optimistic_reward",
    "policy_bias",
    "policy_chain",
    "policy_gain",
    "recurrent_classes",
    "scope_row",
    "shortest_times",
    "stationary_law",
    "truncated",
    "vertex_values",
]
