"""The product of n copies of one small MDP, each with its own state and action variable.

The copies are independent, so gain, bias and factored spans add up over them, while the diameter of
the product can grow like 2^n or be infinite. The lower bound and the large-diameter example of Xu
and Tewari 2020 rest on this.
"""

from __future__ import annotations

import numpy as np

from fmdp.model.alike import Alike
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray
from fmdp.model.structure import Structure
from fmdp.problems.family import refuse_if_too_large, reward_divisor


def copies(
    *,
    name: str,
    n: int,
    transition: FloatArray,  # [S, A, S]
    means: FloatArray,  # [S], or [S, A] where the reward depends on the action
    reward: str,
    initial: int,
    action_values: tuple[str, ...] | None = None,
    alike: bool = False,
) -> FactoredMDP:
    """Return the product; copy i has state variable i, action variable i and rewards in [0, 1].
    With `alike` the structure declares the rows of the copies to be equal."""
    states, actions, _ = transition.shape
    refuse_if_too_large(name, n * (transition.size + means.size), 2 * n)
    divisor = reward_divisor(reward, n)
    structure = Structure(
        state_sizes=(states,) * n,
        action_sizes=(actions,) * n,
        transition_scopes=tuple((i, n + i) for i in range(n)),
        reward_scopes=tuple((i, n + i) if means.ndim == 2 else (i,) for i in range(n)),
        reward_ranges=((0.0, 1.0 / divisor),) * n,
        action_values=(action_values or tuple(map(str, range(actions))),) * n,
        alike=(
            Alike((np.arange(states * actions),) * n, (np.arange(means.size),) * n)
            if alike
            else None
        ),
    )
    return FactoredMDP(
        structure,
        transitions=[transition] * n,
        rewards=[means / divisor] * n,
        initial_state=(initial,) * n,
        name=name,
    )
