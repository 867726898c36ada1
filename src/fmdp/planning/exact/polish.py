"""The bias to its last digits, where it is known to be the only one.

Bounds that meet say nothing about h: a state that pays a millionth less and is left once in 10^8
steps is missing from it. The equation of the policy that is greedy at h,

    h + gain = r + P h        (one recurrent class: one solution up to a constant),

has all of it, whatever the chain is. Where no action is better at its solution than the policy's
own, that is the bias; so every action that the engine's rounding cannot tell from the policy's is
looked at by differences, r + sum p (h' - h), whose rounding is its own and not that of the largest
h (flat.py). What is better there takes its place, and so on.
Cost: a linear system over the states for a policy, and one or two policies.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, check_clock
from fmdp.model import FactoredMDP
from fmdp.planning.exact.improvement import certified
from fmdp.planning.exact.iteration import Ending, Limits, OptimalOperator, solve
from fmdp.planning.spans import span
from fmdp.planning.status import Status
from fmdp.planning.tabular.chains import Successors
from fmdp.planning.tabular.component import bias_of
from fmdp.planning.tabular.flat import BYTES_AN_ENTRY, ENTRIES, chain_of, only_class, pairs_of

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]

_POLICIES = 8
"""That are tried: the first is nearly always the best."""
_LEAST_SWEEPS, _MOST_SWEEPS = 64, 10_000
"""Between which the sweeps of each half of `settled` are."""
_NARROW = 1e-3
"""Of the tolerance, how far apart the bounds of a solution are at most."""
_APART = 4.0
"""Allowances for rounding by which the engine tells one action from another."""


def polished(
    model: FactoredMDP,
    backup: Backup,
    ending: Ending,
    tolerance: float,
    memory_limit: int | None,
    deadline: float | None,
) -> Ending | None:
    """The ending at an h that solves the optimality equation but for the rounding of each state;
    None where none is found, or the engine cannot certify it as well as bounds that have met should
    be. `ending.h` is one whose bounds meet, and is not changed."""
    n_states, n_actions = backup.n_states, model.structure.n_actions
    entries = ENTRIES if memory_limit is None else min(ENTRIES, memory_limit // BYTES_AN_ENTRY)
    lists = Successors(model)
    out = np.empty_like(ending.h)
    backup.sweep(ending.h, out)
    actions = backup.greedy_actions(ending.h, out, "first", 0, 0.0)
    for _ in range(_POLICIES):
        check_clock(deadline)
        h = _bias(model, actions, entries)
        if h is None:
            return None
        inside = backup.to_internal(h)
        backup.sweep(inside, out)
        low, high, slack = certified(backup, inside, out)
        values = backup.action_values(h) - h[:, None]  # [S, A], -inf where not allowed
        near = values >= values.max(axis=1, keepdims=True) - _APART * slack
        near[np.arange(n_states), actions] = True
        state, action = np.nonzero(near)
        if len(state) * lists.width > entries:
            return None
        worth, noise = (
            own[:, 0]
            for own in pairs_of(model, lists, state * n_actions + action).advantages(h, h[state])
        )
        better = _better(state, action, actions, worth, noise)
        if better is not None:
            actions = better
            continue
        if high - low > _NARROW * tolerance:  # a large h: the engine's rounding would be told of
            return None
        high = min(high, ending.upper)
        return replace(ending, lower=low, upper=high, h=inside, new=out, whole=True, slack=slack)
    return None


def settled(backup: Backup, ending: Ending, deadline: float | None) -> tuple[Vector, float]:
    """Return h after more sweeps of the same iteration, and an estimate of its distance, as a span,
    from the limit: for models whose bias is not unique, where that limit is the definition.

    Twice as many sweeps as there were follow. The changes of h over the two halves are taken for
    members of a geometric series, whose rest is the estimate; it is infinite where they do not
    shrink. `ending.h` is not changed.
    """
    sweeps = min(max(ending.sweeps, _LEAST_SWEEPS), _MOST_SWEEPS)
    limits, operator = Limits(0.0, sweeps, deadline), OptimalOperator(backup)
    h, moved, noise = ending.h, [], 0.0
    for _ in range(2):
        more = solve(operator, h.copy(), limits, cold=False, dampings=(ending.damping,))
        if more.status is Status.INTERRUPTED:
            raise KeyboardInterrupt
        moved.append(span(more.h - h))
        h, noise = more.h, _LEAST_SWEEPS * more.slack
    first, second = moved
    if second <= noise:
        return h, noise
    rest = second * second / (first - second) if second < first else np.inf
    return h, 2.0 * rest + noise


def _bias(model: FactoredMDP, actions: Indices, entries: int) -> Vector | None:
    """Of a policy with one recurrent class."""
    chain = chain_of(model, actions, entries)
    if chain is None:
        return None
    recurrent = only_class(chain.successors, chain.possible, chain.n_states)
    if recurrent is None:
        return None
    found = bias_of(chain, np.zeros(chain.n_states, dtype=np.int64), int(recurrent.argmax()))
    return None if found is None else found[0]


def _better(
    state: Indices, action: Indices, actions: Indices, worth: Vector, noise: Vector
) -> Indices | None:
    """The policy with the best action wherever one is surely better than its own; None: nowhere."""
    own = action == actions[state]
    held, unsure = np.empty(len(actions)), np.empty(len(actions))
    held[state[own]], unsure[state[own]] = worth[own], noise[own]
    gained = worth - held[state] - noise - unsure[state]
    if not (gained > 0.0).any():
        return None
    found = actions.copy()
    order = np.argsort(gained, kind="stable")  # of several the best is written last
    order = order[gained[order] > 0.0]
    found[state[order]] = action[order]
    return found
