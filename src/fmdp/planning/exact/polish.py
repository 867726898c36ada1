"""The last digits of the bias: policy evaluation where it is unique, more sweeps where it is not.

Bounds that meet say nothing about h: a state that pays a millionth less and is left once in 10^8
steps is missing from it.  The equation of the policy that is greedy at h,

    h + gain = r + P h        (one recurrent class: one solution up to a constant),

has all of it, whatever the chain is.  If no action is better at its solution than the policy's
action, the solution is the bias.  So every action that the engine's rounding cannot tell from the
policy's is compared by differences, r + sum p (h' - h), whose rounding is its own and not that of
the largest h (tabular/model.py).  Better actions replace the policy's, and so on.
Cost: a linear system over the states for each policy, and one or two policies.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.backup import Backup
from fmdp.model import FactoredMDP
from fmdp.planning.exact import iteration
from fmdp.planning.exact.bounds import residual_of
from fmdp.planning.exact.operators import OptimalOperator
from fmdp.planning.exact.solver import Limits, State
from fmdp.planning.spans import span
from fmdp.planning.tabular.end_components import only_class
from fmdp.planning.tabular.evaluation import policy_bias
from fmdp.planning.tabular.model import (
    Successors,
    entries_within,
    write_out_chain,
    write_out_pairs,
)

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_POLICIES = 8
"""Policies that are tried: the first is nearly always optimal."""
_LEAST_SWEEPS, _MOST_SWEEPS = 64, 10_000
"""Range of the sweeps of each half of `extended_bias`."""
_NARROW = 1e-3
"""Share of the tolerance that the bounds of a solution may be apart."""
_APART = 4.0
"""Rounding allowances by which the engine tells one action from another."""


def unique_bias(
    model: FactoredMDP,
    backup: Backup,
    state: State,
    tolerance: float,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
) -> State | None:
    """Return the state at an h that solves the optimality equation up to rounding in each state.

    The bias must be unique.  `state.h`, whose bounds meet, is not changed.  None if no solution is
    found, or if the engine cannot certify it well within the tolerance.
    """
    n_states, n_actions = backup.n_states, model.structure.n_actions
    entries = entries_within(memory_limit)
    lists = Successors(model)
    out = np.empty_like(state.h)
    backup.sweep(state.h, out)
    policy = backup.greedy_actions(state.h, out, "first", 0, 0.0)
    for _ in range(_POLICIES):
        deadline.check()
        h = _bias(model, policy, entries)
        if h is None:
            return None
        inside = backup.to_internal(h)
        backup.sweep(inside, out)
        residual = residual_of(backup, inside, out)
        values = backup.action_values(h) - h[:, None]  # [S, A], -inf where not allowed
        near = values >= values.max(axis=1, keepdims=True) - _APART * residual.slack
        near[np.arange(n_states), policy] = True
        states, actions = np.nonzero(near)
        if len(states) * lists.width > entries:
            return None
        pairs = write_out_pairs(model, lists, states * n_actions + actions)
        worth, noise = (column[:, 0] for column in pairs.advantages(h, h[states]))
        better = _improved(policy, states, actions, worth, noise)
        if better is not None:
            policy = better
            continue
        if residual.upper - residual.lower > _NARROW * tolerance:
            return None  # h is so large that the bounds would report the engine's rounding
        return state._replace(
            lower=residual.lower,
            upper=min(residual.upper, state.upper),
            h=inside,
            new=out,
            whole=True,
            residual=residual,
        )
    return None


def _bias(model: FactoredMDP, policy: Indices, entries: int) -> Vector | None:
    """Return the bias of a policy with one recurrent class."""
    chain = write_out_chain(model, policy, entries)
    if chain is None:
        return None
    recurrent = only_class(chain.successors, chain.possible, chain.n_states)
    if recurrent is None:
        return None
    only_action = np.zeros(chain.n_states, dtype=np.int64)
    solution = policy_bias(chain, only_action, int(recurrent.argmax()))
    return None if solution is None else solution[0]


def _improved(
    policy: Indices, states: Indices, actions: Indices, worth: Vector, noise: Vector
) -> Indices | None:
    """Return the policy with the best action wherever one is surely better; None: nowhere.

    `worth` and `noise` are those of the pairs of `states` and `actions`.
    """
    chosen = actions == policy[states]
    held, unsure = np.empty(len(policy)), np.empty(len(policy))
    held[states[chosen]], unsure[states[chosen]] = worth[chosen], noise[chosen]
    gained = worth - held[states] - noise - unsure[states]
    if not (gained > 0.0).any():
        return None
    improved = policy.copy()
    order = np.argsort(gained, kind="stable")  # of several the best is written last
    order = order[gained[order] > 0.0]
    improved[states[order]] = actions[order]
    return improved


def extended_bias(backup: Backup, state: State, deadline: Deadline = NEVER) -> tuple[Vector, float]:
    """Return h after more sweeps of the same iteration, and an estimate of its error as a span.

    For models whose bias is not unique, where the limit of the sweeps is the definition.  Twice as
    many sweeps as there were follow.  The changes of h over the two halves are taken for terms of a
    geometric series, whose rest is the estimate; it is infinite if they do not shrink.  `state.h`
    is not changed.
    """
    sweeps = min(max(state.sweeps, _LEAST_SWEEPS), _MOST_SWEEPS)
    limits, operator = Limits(0.0, sweeps, deadline), OptimalOperator(backup)
    h, moved, noise = state.h, [], 0.0
    for _ in range(2):
        more = iteration.solve(operator, h.copy(), limits, cold=False, dampings=(state.damping,))
        more.status.raise_if_interrupted()
        moved.append(span(more.h - h))
        h, noise = more.h, _LEAST_SWEEPS * more.slack
    first, second = moved
    if second <= noise:
        return h, noise
    rest = second * second / (first - second) if second < first else np.inf
    return h, 2.0 * rest + noise
