"""Whittle indices of parts with two actions, one of which costs more of the only budget.

A part is indexable if, as the price rises, each of its states changes once from active to passive
as its best action; the price at which it does is the index of the state (Whittle 1988). The
indices follow from policy iteration in the price: for the policy that is best at one price, the
advantages of the active action are linear functions of the price, and the next price at which one
of them is zero ends the policy. All types of a shape are treated at once, in as many steps as they
have states.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidModel
from fmdp.planning.coupled.pricing import Criterion, evaluate
from fmdp.planning.coupled.types import Block, Types
from fmdp.planning.tabular.linear_systems import one_thread

Floats = NDArray[np.float64]

_SAME = 1e-9
"""Prices that differ by less, relative to their size, are one price: rounding."""


def whittle_indices(types: Types, criterion: Criterion) -> list[Floats]:
    """Return the indices [T, S] of each block; -inf for parts without a choice.

    An index is the price of one unit of the budget at which both actions are equally good. Raise
    InvalidModel if there are several budgets, or a part with other actions or without indices.
    """
    if len(types.caps) != 1:
        raise InvalidModel(
            f"the Whittle index policy needs one budget; the model has {len(types.caps)}: "
            f"{', '.join(cap.name for cap in types.caps)}"
        )
    with one_thread():
        return [_indices_of(types, block, criterion) for block in types.blocks]


def _indices_of(types: Types, block: Block, criterion: Criterion) -> Floats:
    n_types, n_states, n_actions = block.rewards.shape
    if n_actions == 1:
        return np.full((n_types, n_states), -np.inf)
    costs = block.costs[:, :, 0]
    if n_actions != 2 or not block.shape.allowed.all() or (costs[:, 0] == costs[:, 1]).any():
        raise InvalidModel(
            f"the Whittle index policy needs parts with two actions, allowed in all states, of "
            f"which one costs more; {_label(types, block, 0)} is none"
        )
    indices, indexable = block_indices(block, criterion)
    if not indexable.all():
        worst = int(np.argmin(indexable))
        raise InvalidModel(
            f"{_label(types, block, worst)} has no Whittle index: its states do not change from "
            f"active to passive once each as the price rises"
        )
    return indices


def _label(types: Types, block: Block, number: int) -> str:
    part = int(np.argmax(block.type_of == number))
    v = int(block.shape.actions[part, 0])
    return f"the part of {types.fleet.structure.names[v]}"


def block_indices(block: Block, criterion: Criterion) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the indices [T, S] and whether each type is indexable [T]."""
    n_types, n_states = block.rewards.shape[:2]
    every = np.arange(n_types)
    dear = block.costs[:, :, 0].argmax(axis=1)
    active = np.ones((n_types, n_states), dtype=np.bool_)
    indices = np.full((n_types, n_states), np.inf)
    price = np.full(n_types, -np.inf)
    indexable = np.ones(n_types, dtype=np.bool_)
    for step in range(n_states):
        worth, use = _advantages(block, active, dear, criterion)
        if step == 0:
            # At prices far below zero the best policy is active in all states.
            indexable &= ((use > 0.0) | ((use == 0.0) & (worth >= 0.0))).all(axis=1)
        slack = _SAME * (1.0 + np.abs(np.where(np.isfinite(price), price, 0.0)))
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = worth / use
        leaving = np.where(active & (use > 0.0), crossing, np.inf)
        leaving = np.maximum(leaving, price[:, None])
        state = leaving.argmin(axis=1)
        price = leaving[every, state]
        returning = np.where(~active & (use < 0.0), crossing, np.inf).min(axis=1)
        indexable &= ~(returning < price - slack)
        going = np.isfinite(price)
        indices[every[going], state[going]] = price[going]
        active[every[going], state[going]] = False
    return indices, indexable


def _advantages(
    block: Block, active: NDArray[np.bool_], dear: NDArray[np.int64], criterion: Criterion
) -> tuple[Floats, Floats]:
    """Return by how much the active action is worth more, and how much more it uses: [T, S]."""
    every = np.arange(len(active))
    cheap = 1 - dear
    actions = np.where(active, dear[:, None], cheap[:, None])
    restart = criterion.restarts()[1]
    _, biases = evaluate(block, actions, every, restart, criterion.law(block))
    change = block.transitions[every, :, dear] - block.transitions[every, :, cheap]
    moved = (1.0 - restart) * (change @ biases)
    rewards = block.rewards[every, :, dear] - block.rewards[every, :, cheap]
    costs = block.costs[every, dear, 0] - block.costs[every, cheap, 0]
    return rewards + moved[..., 0], costs[:, None] + moved[..., 1]
