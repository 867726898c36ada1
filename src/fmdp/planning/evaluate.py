"""The gain of a given policy by elimination (simulation.evaluate is for what does not fit).

Relative value iteration with the policy's own backup; min and max of T_pi h - h enclose the
gain of every state.  Where they do not meet, the policy has several recurrent classes; the gain
reported is the one from the initial state, which T_pi h - h converges to.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode
from fmdp.planning import iteration
from fmdp.planning.plan import Progress, Status
from fmdp.planning.policy import Policy, TablePolicy
from fmdp.planning.prepared import DEFAULT_SWEEPS, reward_size, tolerance_of

POLICY_GAIN_STATES = 1 << 16
"""Largest model for which a plan reports the gain of its own policy."""
TABULATED_STATES = 1 << 22
"""Largest model whose policy is written out as a table to be evaluated exactly."""


@dataclass(frozen=True)
class Evaluation:
    """The gain of a policy from the initial state.

    `exact`: the bounds are certified for every starting state.  `simulated`: they are a confidence
    interval at the level `confidence`.
    """

    gain: float
    gain_lower: float
    gain_upper: float
    kind: str
    status: Status
    iterations: int
    seconds: float
    confidence: float | None = None


def evaluate_exactly(
    model: FactoredMDP,
    policy: Policy,
    *,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Certified bounds on the policy's gain by elimination; raises TooLarge if it does not fit."""
    started = time.perf_counter()
    structure = model.structure
    backup = Backup(structure, share_for=model, memory_limit=memory_limit)
    operator = iteration.PolicyOperator(backup, action_table(model, policy))
    outcome = iteration.solve(
        operator,
        np.zeros(backup.n_states),
        iteration.Limits(tolerance_of(tolerance, structure), max_iterations or DEFAULT_SWEEPS),
        sweep_seconds=backup.predicted_seconds,
        reward_size=reward_size(structure),
        depth=structure.m,
        progress=progress,
    )
    gain = 0.5 * (outcome.lower + outcome.upper)
    status = outcome.status
    if status is Status.MULTICHAIN:
        here = encode(model.initial_state, structure.state_sizes)
        gain = float(backup.to_canonical(outcome.new - outcome.h)[here])
    return Evaluation(
        gain=gain,
        gain_lower=outcome.lower,
        gain_upper=outcome.upper,
        kind="exact",
        status=status,
        iterations=outcome.sweeps,
        seconds=time.perf_counter() - started,
    )


def action_table(model: FactoredMDP, policy: Policy) -> NDArray[np.int64]:
    """The joint action index of every state, C order; a policy without a table is asked."""
    structure = model.structure
    if isinstance(policy, TablePolicy):
        if (policy.state_sizes, policy.action_sizes) != (
            structure.state_sizes,
            structure.action_sizes,
        ):
            raise InvalidParameter(
                f"the policy is for state sizes {policy.state_sizes} and action sizes "
                f"{policy.action_sizes}; the model has {structure.state_sizes} and "
                f"{structure.action_sizes}"
            )
        return policy.actions.astype(np.int64)
    states = np.ndindex(*structure.state_sizes)
    return np.fromiter(
        (encode(policy(state), structure.action_sizes) for state in states),
        dtype=np.int64,
        count=structure.n_states,
    )
