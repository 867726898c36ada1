"""The parts of a fleet written out, with equal parts stored once.

A *type* is a part with its tables. Parts of one shape with equal tables, costs (and, where it
matters, initial states) are copies of one type. A `Block` holds all types of one shape in arrays
with the type as first axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.constraints import Mask
from fmdp.model.spaces import IndexArray, project, strides
from fmdp.planning.coupled.fleet import Cap, Fleet, Shape, affordable_actions, cheapest_actions

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Block:
    """The T types of one shape: S states and A joint actions each, K budgets."""

    shape: Shape
    transitions: Floats
    """[T, S, A, S]"""
    rewards: Floats
    """[T, S, A]"""
    reward_sizes: Floats
    """[T]: the sum over reward factors of the largest |reward|; theirs may cancel in `rewards`."""
    costs: Floats
    """[T, A, K], in units"""
    allowed: Mask
    """[T, S, A]: whether the part's constraints allow an action and the budgets leave room for it.
    """
    cheapest: IndexArray
    """[T, S]: an allowed action that costs least in every budget."""
    starts: IndexArray
    """[T]: the initial state; of a copy, if the copies differ."""
    copies: IndexArray
    """[T]: number of parts of each type."""
    type_of: IndexArray
    """[n]: the type of each part of the shape."""
    initial: IndexArray
    """[n]: the initial state of each part of the shape."""

    @property
    def n_types(self) -> int:
        return len(self.rewards)


@dataclass(frozen=True, eq=False)
class Types:
    """All types of a fleet."""

    fleet: Fleet
    blocks: tuple[Block, ...]
    constant: float
    """The sum of the rewards that depend on nothing."""

    @property
    def caps(self) -> tuple[Cap, ...]:
        return self.fleet.caps

    @property
    def limits(self) -> Floats:
        return np.array([cap.most for cap in self.caps], dtype=np.float64)

    @property
    def n_types(self) -> int:
        return sum(block.n_types for block in self.blocks)


def types_of(
    fleet: Fleet, model: FactoredMDP, *, by_start: bool = False, memory_limit: int | None = None
) -> Types:
    """Return the types of the parts of a model; with `by_start`, initial states tell them apart.

    Raise TooLarge if the written-out types do not fit into the memory limit.
    """
    limit = memory_limit if memory_limit is not None else available_memory() // 2
    blocks = tuple(
        _block(shape, affordable, model, by_start, limit)
        for shape, affordable in zip(fleet.shapes, affordable_actions(fleet), strict=True)
    )
    constant = math.fsum(float(model.rewards[k][0]) for k in fleet.constant_rewards)
    return Types(fleet, blocks, constant)


def _block(
    shape: Shape, affordable: Mask, model: FactoredMDP, by_start: bool, memory_limit: int
) -> Block:
    n = len(shape.parts)
    start = np.array(model.initial_state, dtype=np.int64)
    steps = np.array(strides(shape.state_sizes), dtype=np.int64)
    initial: IndexArray = start[shape.states] @ steps if len(steps) else np.zeros(n, np.int64)
    columns = [_stacked(model.transitions, column) for column in shape.states.T]
    columns += [_stacked(model.rewards, column) for column in shape.rewards.T]
    keys: list[NDArray[Any]] = [*columns, shape.costs.reshape(n, -1)]
    if by_start:
        keys.append(initial[:, None])
    first, type_of = _distinct(keys)
    n_states, n_actions = shape.n_states, shape.n_actions
    needed = 8 * len(first) * n_states * n_actions * (3 * n_states + 8)
    if needed > memory_limit:
        raise TooLarge(
            f"{len(first)} different parts of {n_states} states and {n_actions} actions need "
            f"{describe_bytes(needed)}; the memory limit is {describe_bytes(memory_limit)}",
            needed,
            memory_limit,
        )
    sizes = (*shape.state_sizes, *shape.action_sizes)
    transitions = np.ones((len(first), n_states * n_actions, 1))
    for column, scope, size in zip(
        columns, shape.transition_scopes, shape.state_sizes, strict=False
    ):
        table = column[first].reshape(len(first), -1, size)[:, project(sizes, scope)]
        transitions = (transitions[..., None] * table[:, :, None, :]).reshape(
            *transitions.shape[:2], -1
        )
    rewards = np.zeros((len(first), n_states * n_actions))
    reward_sizes = np.zeros(len(first))
    for column, scope in zip(columns[len(shape.state_sizes) :], shape.reward_scopes, strict=True):
        rewards += column[first][:, project(sizes, scope)]
        reward_sizes += np.abs(column[first]).max(axis=1)
    costs = shape.costs[first]
    return Block(
        shape,
        transitions.reshape(len(first), n_states, n_actions, n_states),
        rewards.reshape(len(first), n_states, n_actions),
        reward_sizes,
        np.ascontiguousarray(costs.transpose(0, 2, 1), dtype=np.float64),
        shape.allowed & affordable[first][:, None, :],
        cheapest_actions(shape.allowed, costs)[:, 0],
        initial[first],
        np.bincount(type_of, minlength=len(first)).astype(np.int64),
        type_of,
        initial,
    )


def _stacked(tables: Sequence[Floats], numbers: IndexArray) -> Floats:
    """Return some tables, each flattened, as rows."""
    return np.stack([tables[number].reshape(-1) for number in numbers.tolist()])


def _distinct(keys: Sequence[NDArray[Any]]) -> tuple[IndexArray, IndexArray]:
    """Return the first row of each set of equal rows, in order, and the set of every row."""
    # A column of zeros is for parts that have no tables: actions without any effect.
    columns = [*(k.astype(np.float64) for k in keys), np.zeros((len(keys[0]), 1))]
    rows = np.ascontiguousarray(np.concatenate(columns, axis=1))
    rows += 0.0  # turns -0.0 into 0.0
    opaque = rows.view(np.dtype((np.void, rows.shape[1] * 8)))[:, 0]
    _, first, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order].astype(np.int64), rank[inverse].astype(np.int64)
