"""Spans and marginals of h_w = sum_b w_b phi_b, computed without tabulating it.

The span is max h - min h. The factored span of variable i is

    sp_i(h) = max over the others of (max over s_i - min over s_i),

to which only the basis functions that depend on s_i contribute. Both are computed by elimination.
The marginals are sums of those of the basis functions, up to a constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.network import Network
from fmdp.planning.alp.bases import Basis, Block

Floats = NDArray[np.float64]
_TABULATED = 1 << 12
"""Joint values up to which a factored span is computed from a table: networks have overhead."""


def span(
    basis: Basis, weights: Floats, memory_limit: int | None = None, deadline: Deadline = NEVER
) -> float:
    """Return max h_w - min h_w."""
    scopes = [block.scope for block in basis.blocks]
    if not scopes:
        return 0.0
    network = Network(
        basis.state_sizes,
        scopes,
        contexts=[-1] * len(scopes),
        memory_limit=memory_limit,
        deadline=deadline,
    )
    extremes = []
    for sign in (1.0, -1.0):
        for f, block in enumerate(basis.blocks):
            network.table(f)[0] = sign * block.weighted(weights)
        extremes.append(network.maximise())
    return extremes[0] + extremes[1]


def factored_spans(
    basis: Basis,
    weights: Floats,
    memory_limit: int | None = None,
    deadline: Deadline = NEVER,
    of: Sequence[int] | None = None,
) -> tuple[float, ...]:
    """Return sp_i(h_w) for every state variable; with `of`, 0 for all others."""
    mentions: list[list[Block]] = [[] for _ in basis.state_sizes]
    for block in basis.blocks:
        for v in block.scope:
            mentions[v].append(block)
    return tuple(
        _span_along(v, blocks, basis.state_sizes, weights, memory_limit, deadline)
        if of is None or v in of
        else 0.0
        for v, blocks in enumerate(mentions)
    )


def marginals(basis: Basis, weights: Floats) -> tuple[Floats, ...]:
    """Return, for each state variable, the mean of h_w over the others, up to a constant: functions
    that do not depend on the variable are omitted."""
    means = tuple(np.zeros(size) for size in basis.state_sizes)
    for block in basis.blocks:
        table = block.weighted(weights).reshape([basis.state_sizes[v] for v in block.scope])
        for position, v in enumerate(block.scope):
            others = tuple(axis for axis in range(table.ndim) if axis != position)
            means[v][:] += table.mean(axis=others)
    return means


def _span_along(
    i: int,
    blocks: Sequence[Block],
    sizes: tuple[int, ...],
    weights: Floats,
    memory_limit: int | None,
    deadline: Deadline,
) -> float:
    deadline.check()
    if not blocks:
        return 0.0
    others = sorted({v for block in blocks for v in block.scope} - {i})
    if math.prod(sizes[v] for v in others) * sizes[i] <= _TABULATED:
        # [sizes of the others, size of i]
        total = np.zeros([*(sizes[v] for v in others), sizes[i]])
        for block in blocks:
            shape = [sizes[v] if v in block.scope else 1 for v in others]
            position = block.scope.index(i)
            table = block.weighted(weights).reshape([sizes[v] for v in block.scope])
            total += np.moveaxis(table, position, -1).reshape([*shape, sizes[i]])
        return float((total.max(axis=-1) - total.min(axis=-1)).max())
    # Maximise h(.., high) - h(.., low) over two copies of s_i.
    high, low = len(sizes), len(sizes) + 1
    scopes, tables = [], []
    for block in blocks:
        position = block.scope.index(i)
        shape = [sizes[v] for v in block.scope]
        table = np.moveaxis(block.weighted(weights).reshape(shape), position, -1).ravel()
        rest = tuple(v for v in block.scope if v != i)
        scopes += [(*rest, high), (*rest, low)]
        tables += [table, -table]
    network = Network(
        (*sizes, sizes[i], sizes[i]),
        scopes,
        contexts=[-1] * len(scopes),
        memory_limit=memory_limit,
        deadline=deadline,
    )
    for f, table in enumerate(tables):
        network.table(f)[0] = table
    return network.maximise()
