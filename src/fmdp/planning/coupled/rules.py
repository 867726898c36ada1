"""Policies of a fleet from the prices of its budgets: by priority, and the ID policy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model.spaces import IndexArray, strides
from fmdp.planning.coupled.pricing import Criterion, Dual, Round, action_values
from fmdp.planning.coupled.types import Block, Types
from fmdp.planning.policies.fleet import FleetPolicy

Floats = NDArray[np.float64]

_GOLDEN = 0.6180339887498949
"""Multiples of the golden ratio, without their whole parts, spread evenly over [0, 1)."""
_SAME = 1e-10
"""Advantages are rounded to multiples of this, relative to the largest value of a type, so that
rounding errors do not rank equal actions."""


def priority_policy(types: Types, dual: Dual, criterion: Criterion) -> FleetPolicy:
    """Return the policy that spends the budgets by advantage per price.

    With biases h_i at the best prices, the advantage of an action is r + P h_i minus that of the
    cheapest action. With one budget and unit costs, the policy maximises the sum of r + P h_i over
    the joint actions: it is greedy for the bound's own value function.
    """
    return _policy(types, "priority", _by_advantage(types, dual, criterion))


def id_policy(types: Types, dual: Dual, generator: np.random.Generator) -> FleetPolicy:
    """Return the policy under which parts follow the solution of the linear program, in order.

    The solution mixes policies of the parts. Instead of drawing actions, each part follows one of
    the mixed policies in all steps, and the shares of the parts are those of the mixture: the
    policy is then a function of the state. What the parts leave of the budgets is not spent: that
    would move them away from the law of the solution.
    """
    n_parts = types.fleet.n_parts
    order = generator.permutation(n_parts)
    ends = np.cumsum(dual.weights)
    along = (np.arange(n_parts) + 0.5) * _GOLDEN % 1.0
    profiles = np.empty(n_parts, dtype=np.int64)
    profiles[order] = np.minimum(np.searchsorted(ends, along), len(ends) - 1)
    wishes = np.stack(
        [np.concatenate([b.actions.reshape(-1) for b in tried.blocks]) for tried in dual.rounds]
    )
    none = np.zeros((wishes.shape[1], 1), dtype=np.int64), np.full((wishes.shape[1], 1), -np.inf)
    return _policy(types, "id", none, (order, profiles, wishes))


def index_policy(types: Types, indices: list[Floats]) -> FleetPolicy:
    """Return the policy that spends one budget by index: [T, S] for each block, -inf for none.

    A part is active only if its index is positive, that is if it pays more than nothing.
    """
    candidates, scores = [], []
    for block, index in zip(types.blocks, indices, strict=True):
        active = 1 - block.cheapest if block.shape.n_actions == 2 else block.cheapest
        candidates.append(active.reshape(-1, 1))
        scores.append(np.where(index > 0.0, index, -np.inf).reshape(-1, 1))
    return _policy(types, "whittle", (_padded(candidates, 0), _padded(scores, -np.inf)))


def marginals_of(types: Types, solved: Round) -> tuple[Floats, ...]:
    """Return for each state variable the mean of its part's bias over the other variables."""
    marginals: list[Floats] = [np.zeros(0)] * types.fleet.structure.m
    for block, best in zip(types.blocks, solved.blocks, strict=True):
        sizes = block.shape.state_sizes
        bias = best.bias(solved.prices).reshape(block.n_types, *sizes)
        for place in range(len(sizes)):
            others = tuple(axis for axis in range(1, bias.ndim) if axis != place + 1)
            mean = bias.mean(axis=others)
            numbers = block.shape.states[:, place].tolist()
            for variable, number in zip(numbers, block.type_of.tolist(), strict=True):
                marginals[variable] = mean[number]
    return tuple(marginals)


def _by_advantage(types: Types, dual: Dual, criterion: Criterion) -> tuple[IndexArray, Floats]:
    """Return candidates and scores of all rows, both [rows, candidates]."""
    prices = dual.prices
    if not prices.any():
        prices = 1.0 / np.maximum(types.limits, 1.0)
    steps = [
        _frontier(block, _advantages(block, solved.bias(dual.prices), criterion), prices)
        for block, solved in zip(types.blocks, dual.best.blocks, strict=True)
    ]
    return (
        _padded([actions for actions, _ in steps], 0),
        _padded([scores for _, scores in steps], -np.inf),
    )


def _advantages(block: Block, bias: Floats, criterion: Criterion) -> Floats:
    """Return r + P h of every action, minus that of the cheapest: [T, S, A]."""
    free = np.zeros(block.costs.shape[2])
    everyone = np.arange(block.n_types)
    values = action_values(block, free, (1.0 - criterion.residual_restart()) * bias, everyone)
    base = np.take_along_axis(values, block.cheapest[..., None], axis=2)
    advantages = values - base
    size = np.abs(bias).max(axis=1) + np.abs(base[..., 0]).max(axis=1)
    unit = np.where(size > 0.0, _SAME * size, 1.0)[:, None, None]
    rounded: Floats = np.round(advantages / unit) * unit
    return rounded


def _frontier(block: Block, advantages: Floats, prices: Floats) -> tuple[IndexArray, Floats]:
    """Return the actions that are worth more than cheaper ones, best gain per price first.

    Both arrays are [T * S, A - 1]. Each step goes from the last action to the one with the largest
    gain per additional price; the scores are these ratios, -inf where there is no further gain.
    """
    n_actions = advantages.shape[2]
    price = np.broadcast_to((block.costs @ prices)[:, None, :], advantages.shape)
    price = price.reshape(-1, n_actions)
    worth = advantages.reshape(-1, n_actions)
    rows = np.arange(len(worth))
    now = block.cheapest.reshape(-1).copy()
    actions = np.zeros((len(rows), max(n_actions - 1, 1)), dtype=np.int64)
    scores = np.full(actions.shape, -np.inf)
    for step in range(n_actions - 1):
        gain = worth - worth[rows, now][:, None]
        more = price - price[rows, now][:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(more > 0.0, gain / more, np.inf)
        ratio = np.where((gain > 0.0) & (more >= 0.0), ratio, -np.inf)
        # Among equal ratios the largest gain comes first, and of those the first action.
        largest = ratio == ratio.max(axis=1, keepdims=True)
        best = np.where(largest, gain, -np.inf).argmax(axis=1)
        scores[:, step] = ratio[rows, best]
        actions[:, step] = best
        now = np.where(scores[:, step] > -np.inf, best, now)
    return actions, scores


def _padded(blocks: list[NDArray[np.float64]] | list[IndexArray], filling: float) -> NDArray[Any]:
    """Return the rows of all blocks under each other, filled up to the same width."""
    width = max(rows.shape[1] for rows in blocks)
    return np.concatenate(
        [
            np.pad(rows, ((0, 0), (0, width - rows.shape[1])), constant_values=filling)
            for rows in blocks
        ]
    )


def _policy(
    types: Types,
    rule: str,
    ranked: tuple[IndexArray, Floats],
    own: tuple[IndexArray, IndexArray, IndexArray] | None = None,
) -> FleetPolicy:
    candidates, scores = ranked
    none = np.zeros(0, dtype=np.int64)
    order, profiles, wishes = own or (none, none, np.zeros((0, len(candidates)), dtype=np.int64))
    structure = types.fleet.structure
    arrays = {
        **_layout(types),
        "cheapest": np.concatenate([block.cheapest.reshape(-1) for block in types.blocks]),
        "ranks": _ranks(scores),
        "candidates": candidates,
        "costs": np.concatenate(
            [
                block.costs.reshape(block.n_types * block.shape.n_actions, len(types.caps))
                for block in types.blocks
            ]
        ).astype(np.int64),
        "limits": types.limits.astype(np.int64),
        "order": order,
        "profiles": profiles,
        "wishes": wishes,
    }
    contiguous = {name: np.ascontiguousarray(array, np.int64) for name, array in arrays.items()}
    policy = FleetPolicy(
        structure.state_sizes, structure.action_sizes, rule, contiguous, structure.naming
    )
    policy.take_constraints(structure.constraints)
    return policy


def _layout(types: Types) -> dict[str, IndexArray]:
    """Return the arrays that say where the variables of every part are."""
    structure, n_parts = types.fleet.structure, types.fleet.n_parts
    m = structure.m
    part = np.zeros(len(structure.sizes), dtype=np.int64)
    step = np.ones(len(structure.sizes), dtype=np.int64)
    type_of = np.zeros(n_parts, dtype=np.int64)
    row_start, cost_start = [], []
    first = rows = costs = 0
    for block in types.blocks:
        shape = block.shape
        type_of[shape.parts] = first + block.type_of
        first += block.n_types
        row_start.append(rows + np.arange(block.n_types) * shape.n_states)
        cost_start.append(costs + np.arange(block.n_types) * shape.n_actions)
        rows += block.n_types * shape.n_states
        costs += block.n_types * shape.n_actions
        for variables, sizes in (
            (shape.states, shape.state_sizes),
            (shape.actions, shape.action_sizes),
        ):
            part[variables] = shape.parts[:, None]
            step[variables] = np.array(strides(sizes), dtype=np.int64)
    return {
        "type_of": type_of,
        "state_part": part[:m],
        "state_step": step[:m],
        "action_part": part[m:],
        "action_step": step[m:],
        "row_start": np.concatenate(row_start),
        "cost_start": np.concatenate(cost_start),
    }


def _ranks(scores: Floats) -> IndexArray:
    """Return the rank of each score among the different ones, highest first; -1 for -inf."""
    inverse = np.unique(-scores, return_inverse=True)[1]
    ranks: IndexArray = inverse.reshape(scores.shape).astype(np.int64)
    return np.where(scores > -np.inf, ranks, -1)
