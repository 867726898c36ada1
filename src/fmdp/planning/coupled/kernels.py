"""Compiled simulation of the parts of a fleet."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.planning.policies.fleet_kernels import Rules, choose

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Chains(NamedTuple):
    """The laws and rewards of all types, for simulation."""

    n_states: Ints  # [parts]
    n_actions: Ints  # [parts]
    pair_start: Ints  # [parts]: where the (state, action) pairs of the type begin
    law_start: Ints  # [parts]: where their laws begin
    rewards: Floats  # [pairs]
    cumulative: Floats  # [pairs and next states]


@njit(nogil=True)
def walk(
    rules: Rules,
    chains: Chains,
    states: Ints,
    uniforms: Floats,
    rewards: Floats,
    head: Ints,
    after: Ints,
    left: Ints,
) -> None:
    """Simulate steps of the fleet: uniforms [steps, parts], rewards [steps]; moves `states`."""
    n_parts = len(states)
    actions = np.empty(n_parts, dtype=np.int64)
    for step in range(len(rewards)):
        choose(rules, states, actions, head, after, left)
        total = 0.0
        for p in range(n_parts):
            pair = states[p] * chains.n_actions[p] + actions[p]
            total += chains.rewards[chains.pair_start[p] + pair]
            at = chains.law_start[p] + pair * chains.n_states[p]
            last = at + chains.n_states[p] - 1
            position = at
            while position < last and chains.cumulative[position] <= uniforms[step, p]:
                position += 1
            states[p] = position - at
        rewards[step] = total
