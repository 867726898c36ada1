"""The gain of a given policy: exact by elimination where the states fit, else simulated.

Exact: relative value iteration with the policy's own backup; min and max of T_pi h - h enclose the
gain of every state.  Where they do not meet, the policy has several recurrent classes; the gain
reported is the one from the initial state, which T_pi h - h converges to.

Simulated: one long run from the initial state, cut into batches; the interval is Student's t on the
batch means after a burn-in, at the stated confidence.  It is an estimate and is labelled so.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup
from fmdp.elimination.program import flat_offsets
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode
from fmdp.planning import iteration
from fmdp.planning.plan import Progress, Status
from fmdp.planning.policy import Policy, TablePolicy
from fmdp.planning.prepared import DEFAULT_SWEEPS

POLICY_GAIN_STATES = 1 << 16
"""Largest model for which a plan reports the gain of its own policy."""
TABULATED_STATES = 1 << 22
"""Largest model whose policy is written out as a table to be evaluated exactly."""
CONFIDENCE = 0.99
BATCHES = 32


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


def evaluate(
    model: FactoredMDP,
    policy: Policy,
    *,
    tolerance: float = 1e-6,
    max_iterations: int | None = None,
    memory_limit: int | None = None,
    steps: int = 1_000_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Exact where it fits into memory, else a simulation of `steps` steps."""
    structure = model.structure
    if structure.n_states <= TABULATED_STATES:
        try:
            return evaluate_exactly(
                model, policy, tolerance=tolerance, max_iterations=max_iterations,
                memory_limit=memory_limit, progress=progress,
            )  # fmt: skip
        except TooLarge:
            pass
    return evaluate_by_simulation(model, policy, steps=steps, seed=seed)


def evaluate_exactly(
    model: FactoredMDP,
    policy: Policy,
    *,
    tolerance: float = 1e-6,
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
        iteration.Limits(tolerance, max_iterations or DEFAULT_SWEEPS),
        sweep_seconds=backup.predicted_seconds,
        reward_size=float(sum(max(abs(lo), abs(hi)) for lo, hi in structure.reward_ranges)),
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


def evaluate_by_simulation(
    model: FactoredMDP, policy: Policy, *, steps: int = 1_000_000, seed: int = 0
) -> Evaluation:
    """Batch means of the expected reward along one run; a tenth of the steps is burnt in."""
    from scipy import stats

    started = time.perf_counter()
    structure = model.structure
    generator = np.random.Generator(np.random.PCG64(seed))
    walk = _Walk(model)
    state = np.array(model.initial_state, dtype=np.int64)
    batch = max(1, int(0.9 * steps) // BATCHES)
    burn_in = max(0, steps - batch * BATCHES)
    totals = np.zeros(BATCHES)
    for step in range(-burn_in, batch * BATCHES):
        action = np.array(policy(tuple(state.tolist())), dtype=np.int64)
        reward = walk.step(state, action, generator.random(structure.m))
        if step >= 0:
            totals[step // batch] += reward
    means = totals / batch
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, BATCHES - 1)) * float(means.std(ddof=1))
    half /= math.sqrt(BATCHES)
    gain = float(means.mean())
    return Evaluation(
        gain=gain,
        gain_lower=gain - half,
        gain_upper=gain + half,
        kind="simulated",
        status=Status.CONVERGED,
        iterations=steps,
        seconds=time.perf_counter() - started,
        confidence=CONFIDENCE,
    )


class _Walk:
    """Flat tables for the compiled step of a simulation."""

    def __init__(self, model: FactoredMDP) -> None:
        structure = model.structure
        p_offset, _, r_offset = flat_offsets(structure)
        self.cumulative = np.concatenate(
            [np.cumsum(t, axis=1).reshape(-1) for t in model.transitions]
        )
        self.rewards = np.concatenate([*model.rewards, np.zeros(0)])
        self.p_offset = np.array(p_offset)
        self.r_offset = np.array(r_offset)
        self.sizes = np.array(structure.sizes, dtype=np.int64)
        scopes = [*structure.transition_scopes, *structure.reward_scopes]
        self.scope_start = np.cumsum([0, *(len(scope) for scope in scopes)])
        self.scope_variables = np.array([v for scope in scopes for v in scope], dtype=np.int64)
        self.joint = np.zeros(len(structure.sizes), dtype=np.int64)

    def step(
        self, state: NDArray[np.int64], action: NDArray[np.int64], uniforms: NDArray[np.float64]
    ) -> float:
        """Move the state in place; the expected reward of what was left."""
        self.joint[: len(state)] = state
        self.joint[len(state) :] = action
        return float(
            _step(
                self.joint, state, uniforms, self.cumulative, self.rewards, self.p_offset,
                self.r_offset, self.sizes, self.scope_start, self.scope_variables,
            )
        )  # fmt: skip


@numba.njit(cache=True, nogil=True)
def _step(  # type: ignore[no-untyped-def]
    joint, state, uniforms, cumulative, rewards, p_offset, r_offset, sizes, scope_start,
    scope_variables,
):  # fmt: skip
    m = state.shape[0]
    total = 0.0
    for factor in range(scope_start.shape[0] - 1):
        row = 0
        for p in range(scope_start[factor], scope_start[factor + 1]):
            row = row * sizes[scope_variables[p]] + joint[scope_variables[p]]
        if factor < m:
            start = p_offset[factor] + row * sizes[factor]
            value = 0
            while value < sizes[factor] - 1 and uniforms[factor] >= cumulative[start + value]:
                value += 1
            state[factor] = value
        else:
            total += rewards[r_offset[factor - m] + row]
    return total
