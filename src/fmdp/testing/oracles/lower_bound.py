"""The lower bound on regret for JAO products, with its constants (docs/theory.md, Theorem 10).

One copy: two states, 1 -> 0 with delta, 0 -> 1 with delta, or with delta + epsilon under the one
good action of A. A wrong action in state 0 costs epsilon / (2 delta + epsilon). Compare with the
model without a good action, in which state 0 is visited

    E N_0 = T / 2 + (1 - (1 - 2 delta)^T) / (4 delta)

times under every policy, and the actions are indistinguishable. By Pinsker's inequality the
expected number of wrong actions changes by at most T sqrt(KL / 2), and the divergence of the two
laws is the number of times that the good action was played in state 0 times kl(delta, delta +
epsilon).
"""

from __future__ import annotations

import math


def jao_least_regret(
    steps: int, epsilon: float, *, delta: float = 0.2, actions: int = 2, copies: int = 1
) -> float:
    """Return a lower bound on the expected gap regret of every learner, for one epsilon.

    All copies start in 0; the bound is an average over which action of every copy is the good one.

    Parameters
    ----------
    steps
        Length of the run.
    epsilon
        How much more likely the good action leaves state 0.
    delta
        Probability of leaving either state under an ordinary action.
    actions
        Number of actions of a copy.
    copies
        Number of independent copies.
    """
    fast = delta + epsilon
    in_zero = steps / 2 + (1 - (1 - 2 * delta) ** steps) / (4 * delta)
    divergence = delta * math.log(delta / fast) + (1 - delta) * math.log((1 - delta) / (1 - fast))
    wrong = in_zero * (1 - 1 / actions) - steps * math.sqrt(in_zero * divergence / (2 * actions))
    return copies * epsilon / (2 * delta + epsilon) * max(0.0, wrong)


def jao_lower_bound(steps: int, *, delta: float = 0.2, actions: int = 2, copies: int = 1) -> float:
    """Return the largest `jao_least_regret` over a fine grid of epsilon.

    Parameters
    ----------
    steps
        Length of the run.
    delta
        Probability of leaving either state under an ordinary action.
    actions
        Number of actions of a copy.
    copies
        Number of independent copies.
    """
    top = 0.999 * (1 - delta)
    grid = [top * 10 ** (-6 * k / 2000) for k in range(2001)]
    return max(
        jao_least_regret(steps, epsilon, delta=delta, actions=actions, copies=copies)
        for epsilon in grid
    )
