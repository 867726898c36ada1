"""Which of bound and policy is loose: an estimate, by changing single actions of the policy.

The gain of a policy pi is below the optimal gain by exactly E[A(s, pi*(s))], the mean of the
advantages of pi along an optimal policy (Kakade & Langford 2002). If no action is better than that
of pi in the states that pi visits, pi is probably near the optimum and the bound is loose;
otherwise the mean of the best advantages says how much one change per step would bring. Advantages
are estimated by simulated runs (rollout.py). The action is chosen by one half of the runs and
judged by the other, so that luck does not count.

Only changes of one action variable are tried, so the estimate may miss changes of several at once.
It certifies nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.model import FactoredMDP
from fmdp.planning.alp.bases import Basis
from fmdp.planning.alp.policy_errors import MOST_CHAINS, n_chains
from fmdp.planning.alp.rollout import Comparison
from fmdp.planning.policies.policy import Policy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_STATES, _CANDIDATES, _RUNS, _STEPS = 32, 4, 16, 24
"""Visited states, other actions per state, runs per action, and steps per run: more reduce the
error, and cost time in proportion."""
_LITTLE, _MOST = 0.25, 0.75
"""Shares of the gap: a rise of at most the first leaves the bound to blame, one of at least the
second the policy."""


@dataclass(frozen=True)
class Rise:
    """How much the policy's gain would rise by one better action per step, estimated."""

    mean: float
    error: float
    """Twice the standard error of the mean."""


def loose_part(gap: float, rise: Rise | None) -> str:
    """Return "bound", "policy", "both" or "unknown": what causes most of the gap.

    `gap` is the bound less the gain of the policy.
    """
    if rise is None or not math.isfinite(rise.mean + rise.error):
        return "unknown"
    low, high = rise.mean - rise.error, rise.mean + rise.error
    if high <= _LITTLE * gap:
        return "bound"
    if low >= _MOST * gap:
        return "policy"
    return "both" if low >= _LITTLE * gap and high <= _MOST * gap else "unknown"


def estimated_rise(
    model: FactoredMDP,
    policy: Policy,
    basis: Basis,
    weights: Floats,
    visited: Ints,
    generator: np.random.Generator,
    deadline: Deadline,
) -> Rise | None:
    """Estimate the rise in states that the policy visits; None if it has no other actions to try.

    `basis` and `weights` are those of h_w. Models with constraints have no estimate: a change of
    one action variable may be forbidden. TimeUp is raised when the deadline passes.
    """
    structure = model.structure
    if structure.constraints or max(structure.action_sizes, default=1) == 1:
        return None
    states = visited[generator.integers(len(visited), size=_STATES)]
    runs = max(_RUNS * n_chains(structure) // MOST_CHAINS, 2)
    _, advantages = Comparison(model, policy, basis, weights).totals(
        states, generator, candidates=_CANDIDATES, runs=runs, steps=_STEPS, deadline=deadline
    )
    rises = _cross_validated(advantages)
    return Rise(float(rises.mean()), 2.0 * float(rises.std(ddof=1)) / math.sqrt(_STATES))


def _cross_validated(advantages: Floats) -> Floats:
    """Return the advantage of the best action of every state, chosen by one half of the runs and
    judged by the other; [states, actions, runs]."""
    half = advantages.shape[2] // 2
    halves = advantages[:, :, :half].mean(axis=2), advantages[:, :, half:].mean(axis=2)
    places = np.arange(len(advantages))
    rises: Floats = 0.5 * (
        halves[1][places, halves[0].argmax(axis=1)] + halves[0][places, halves[1].argmax(axis=1)]
    )
    return rises
