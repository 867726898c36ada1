"""Compiled steps of the elimination engine.

A step eliminates a group of next-state variables from a tensor laid out as [outer, V, inner]
(V = joint values of the group, inner = variables still to be eliminated):

    out[o, r, u, i] = reward[o, r, u] + sum_v M[ctx(o, r), v, u] in[o, v, i]
                      (+ free[ctx(o, r), u] * max_v in[o, v, i]   for nested targets)

where u runs over the values of the group's own current variables and r over current variables that
are needed as parents before their own turn. Rewards are added as soon as their scope is known:
every row has mass one, so a constant passes through the later steps unchanged.

Where a row p is chosen from a box or a ball, the values of a cell are sorted, best first for the
best p of the set, worst first for the worst one. Boxes, M <= p <= M + caps: the free mass is poured
in that order, each value up to its cap. Balls, |p - M|_1 <= 2 free: mass is moved from the last
values to the first. Divergences, KL(M, p) <= free: a concave maximisation over one number
(`_divergence_value`).

Cost of a step: outer * rep * U * V * inner multiply-adds; docs/exact.md says how near they come to
what the machine can do.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.elimination.simd import EIGHT_LANES, FOUR_LANES, block_operations, operations
from fmdp.model.divergence import EVERYTHING

Index = NDArray[np.int64]
Vector = NDArray[np.float64]

# Offsets are unsigned: Numba checks every signed index for counting from the end.
ZERO, ONE, TWO, THREE, FOUR, FIVE, SIX, SEVEN, EIGHT = (np.uint64(number) for number in range(9))

# Of `_divergence_value`: limit of Newton's method, its precision and least start in units of the
# largest difference, and the factor by which a step that leads below 0 is replaced.
NEWTON_STEPS = 60
PRECISION = 1e-15
SMALLEST_START = 1e-3
EIGHTH = 8.0

FLAGS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"contract"},
    "error_model": "numpy",
}
# Only called from compiled code: the wrappers for Python would double the time to compile.
INSIDE: dict[str, Any] = {**FLAGS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
# Inlined by Numba: a function of its own would be optimised by LLVM once more.
INLINED: dict[str, Any] = {**FLAGS, "inline": "always"}

_load, _store, _spread, _plus, _times = operations(EIGHT_LANES)
_load_4, _store_4, _spread_4, _plus_4, _times_4 = operations(FOUR_LANES)
(
    _load_rows_2,
    _load_rows_3,
    _load_rows_4,
    _load_rows_8,
    _weights_2,
    _weights_3,
    _weights_4,
    _weights_8,
    _products_2,
    _products_4,
    _products_8,
    _add,
    _load_columns,
    _plus_each,
    _store_columns,
) = block_operations()


class Tables(NamedTuple):
    """The arrays of a program that one step reads; arguments are copied in every call."""

    rows: Vector
    free: Vector
    rewards: Vector
    contexts: Index
    caps: Vector


class Shape(NamedTuple):
    """The sizes of the axes of one step, named as in the formula above. Any eight cells (o, r) that
    are `apart` read the same rows; it is 0 where there is no such distance (program.py)."""

    outer: Any
    rep: Any
    n_v: Any
    n_u: Any
    inner: Any
    apart: Any


class Place(NamedTuple):
    """The offset at which one step begins in each array that it reads or writes."""

    source: Any
    arena: Any
    rows: Any
    free: Any
    rewards: Any
    contexts: Any


@njit(**INLINED)
def step_vector(S, D, tables, place, shape, has_r):
    """Take a step with inner > 1, vectorised over the innermost axis."""
    n_v, n_u, inner = shape.n_v, shape.n_u, shape.inner
    unrolled = n_v in (TWO, FOUR, EIGHT)
    begin = ZERO
    if unrolled and n_u > ONE and inner >= EIGHT:
        begin = inner - inner % EIGHT
        if n_v == EIGHT and n_u == EIGHT:
            _eight_by_eight(S, D, tables, place, shape, has_r)
        elif n_v == EIGHT and n_u == FOUR:
            _eight_by_four(S, D, tables, place, shape, has_r)
        elif n_v == EIGHT:
            _eight_by_two(S, D, tables, place, shape, has_r)
        elif n_v == FOUR and n_u == FOUR:
            _four_by_four(S, D, tables, place, shape, has_r)
        else:
            _by_two(S, D, tables, place, shape, has_r)
    if n_v == THREE and inner >= EIGHT:
        _three(S, D, tables, place, shape, has_r)
    elif n_v == THREE and n_u == THREE and inner == THREE:
        _three_by_three(S, D, tables, place, shape, has_r)
    elif begin < inner:
        _row_by_row(S, D, tables, place, shape, has_r, begin)


@njit(**INLINED)
def _blocks(shape):
    """Return how the numbers that are multiplied by the same rows M are found in blocks of eight:
    the number of cells (o, r) that share them, the distance of these cells, the number of blocks,
    and the distances of the blocks in the input and in the output.

    Usually they are the run of one cell. A run of eight is a single block; if cells that are
    `apart` read the same rows, their blocks are taken together.
    """
    outer, rep, n_v, n_u, inner, apart = shape
    if apart > ZERO:
        return EIGHT, apart, EIGHT, apart // rep * n_v * inner, apart * n_u * inner
    return ONE, outer * rep, inner // EIGHT, EIGHT, EIGHT


@njit(**INLINED)
def _eight_by(S, D, tables, place, shape, has_r, n_u):
    """Take it for eight values of v, two blocks at a time: a weight is loaded once for both."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    rep, inner = shape.rep, shape.inner
    sharing, apart, blocks, s_step, d_step = _blocks(shape)
    for first in range(ZERO, shape.outer * rep, sharing * apart):
        for q in range(first, first + apart):
            o = q if rep == ONE else q // rep
            row = m0 + np.uint64(contexts[0, c0 + q]) * EIGHT * n_u
            reward = r0
            if has_r:
                reward += np.uint64(contexts[1, c0 + q]) * n_u
            for k in range(ZERO, blocks, TWO):
                s, d = s0 + o * EIGHT * inner + k * s_step, d0 + q * n_u * inner + k * d_step
                t, e = s, d  # an odd block is computed twice
                if k + ONE < blocks:
                    t, e = s + s_step, d + d_step
                y, z = _load_rows_8(S, s, inner), _load_rows_8(S, t, inner)
                for u in range(n_u):
                    c = _spread(R[reward + u] if has_r else 0.0)
                    weights = _weights_8(M, row + u, n_u)
                    _store(D, d + u * inner, _add(c, weights, y))
                    _store(D, e + u * inner, _add(c, weights, z))


@njit(**INSIDE)
def _eight_by_eight(S, D, tables, place, shape, has_r):
    _eight_by(S, D, tables, place, shape, has_r, EIGHT)


@njit(**INSIDE)
def _eight_by_four(S, D, tables, place, shape, has_r):
    _eight_by(S, D, tables, place, shape, has_r, FOUR)


@njit(**INSIDE)
def _eight_by_two(S, D, tables, place, shape, has_r):
    _eight_by(S, D, tables, place, shape, has_r, TWO)


@njit(**INSIDE)
def _four_by_four(S, D, tables, place, shape, has_r):
    """Take it for four values of v and u: all weights stay in registers."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    rep, inner = shape.rep, shape.inner
    sharing, apart, blocks, s_step, d_step = _blocks(shape)
    for first in range(ZERO, shape.outer * rep, sharing * apart):
        for q in range(first, first + apart):
            o = q if rep == ONE else q // rep
            row = m0 + np.uint64(contexts[0, c0 + q]) * FOUR * FOUR
            ca, cb, cc, cd = 0.0, 0.0, 0.0, 0.0
            if has_r:
                b = r0 + np.uint64(contexts[1, c0 + q]) * FOUR
                ca, cb, cc, cd = R[b], R[b + ONE], R[b + TWO], R[b + THREE]
            w0, w1 = _weights_4(M, row, FOUR), _weights_4(M, row + ONE, FOUR)
            w2, w3 = _weights_4(M, row + TWO, FOUR), _weights_4(M, row + THREE, FOUR)
            for k in range(blocks):
                y = _load_rows_4(S, s0 + o * FOUR * inner + k * s_step, inner)
                d = d0 + q * FOUR * inner + k * d_step
                _store(D, d, _add(_spread(ca), w0, y))
                _store(D, d + inner, _add(_spread(cb), w1, y))
                _store(D, d + TWO * inner, _add(_spread(cc), w2, y))
                _store(D, d + THREE * inner, _add(_spread(cd), w3, y))


@njit(**INSIDE)
def _by_two(S, D, tables, place, shape, has_r):
    """Take it for two values of u, and two or four of v: all weights stay in registers."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    rep, n_v, inner = shape.rep, shape.n_v, shape.inner
    sharing, apart, blocks, s_step, d_step = _blocks(shape)
    for first in range(ZERO, shape.outer * rep, sharing * apart):
        for q in range(first, first + apart):
            o = q if rep == ONE else q // rep
            row = m0 + np.uint64(contexts[0, c0 + q]) * n_v * TWO
            ca, cb = 0.0, 0.0
            if has_r:
                b = r0 + np.uint64(contexts[1, c0 + q]) * TWO
                ca, cb = R[b], R[b + ONE]
            s, d = s0 + o * n_v * inner, d0 + q * TWO * inner
            if n_v == FOUR:
                w0, w1 = _weights_4(M, row, TWO), _weights_4(M, row + ONE, TWO)
                for k in range(blocks):
                    y = _load_rows_4(S, s + k * s_step, inner)
                    _store(D, d + k * d_step, _add(_spread(ca), w0, y))
                    _store(D, d + k * d_step + inner, _add(_spread(cb), w1, y))
            else:
                x0, x1 = _weights_2(M, row, TWO), _weights_2(M, row + ONE, TWO)
                for k in range(blocks):
                    z = _load_rows_2(S, s + k * s_step, inner)
                    _store(D, d + k * d_step, _add(_spread(ca), x0, z))
                    _store(D, d + k * d_step + inner, _add(_spread(cb), x1, z))


@njit(**INSIDE)
def _three(S, D, tables, place, shape, has_r):
    """Take it for three values of v. The last block of eight overlaps the one before it."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    rep, n_u, inner = shape.rep, shape.n_u, shape.inner
    for o in range(shape.outer):
        s = s0 + o * THREE * inner
        for r in range(rep):
            q = o * rep + r
            row = m0 + np.uint64(contexts[0, c0 + q]) * THREE * n_u
            reward = r0
            if has_r:
                reward += np.uint64(contexts[1, c0 + q]) * n_u
            for u in range(n_u):
                weights = _weights_3(M, row + u, n_u)
                c, d = R[reward + u] if has_r else 0.0, d0 + (q * n_u + u) * inner
                for k in range(ZERO, inner, EIGHT):
                    i = min(k, inner - EIGHT)
                    y = _load_rows_3(S, s + i, inner)
                    _store(D, d + i, _add(_spread(c), weights, y))


@njit(**INSIDE)
def _three_by_three(S, D, tables, place, shape, has_r):
    """Take it for three values of v and u on runs of three; all loops are unrolled."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    for o in range(shape.outer):
        s = s0 + o * THREE * THREE
        for r in range(shape.rep):
            q = o * shape.rep + r
            a = m0 + np.uint64(contexts[0, c0 + q]) * THREE * THREE
            reward = r0
            if has_r:
                reward += np.uint64(contexts[1, c0 + q]) * THREE
            for u in range(THREE):
                d = d0 + (q * THREE + u) * THREE
                c = R[reward + u] if has_r else 0.0
                for i in range(THREE):
                    x = c
                    for v in range(THREE):
                        x += M[a + v * THREE + u] * S[s + v * THREE + i]
                    D[d + i] = x


@njit(**INSIDE)
def _row_by_row(S, D, tables, place, shape, has_r, begin):
    """Compute every run from `begin` on; the compiler vectorises the loops."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape[:5]
    block, table = n_v * inner, n_v * n_u
    for o in range(outer):
        s = s0 + o * block
        for r in range(rep):
            q = o * rep + r
            row = m0 + np.uint64(contexts[0, c0 + q]) * table
            for u in range(n_u):
                c = 0.0
                if has_r:
                    c = R[r0 + np.uint64(contexts[1, c0 + q]) * n_u + u]
                d = d0 + (q * n_u + u) * inner
                a = row + u
                if n_v == TWO:
                    x0, x1 = M[a], M[a + n_u]
                    s1 = s + inner
                    for i in range(begin, inner):
                        D[d + i] = c + x0 * S[s + i] + x1 * S[s1 + i]
                elif n_v == FOUR:
                    x0, x1, x2, x3 = M[a], M[a + n_u], M[a + TWO * n_u], M[a + THREE * n_u]
                    s1, s2, s3 = s + inner, s + TWO * inner, s + THREE * inner
                    for i in range(begin, inner):
                        x = c + (x0 * S[s + i] + x1 * S[s1 + i])
                        D[d + i] = x + (x2 * S[s2 + i] + x3 * S[s3 + i])
                elif n_v == EIGHT:
                    x0, x1, x2, x3 = M[a], M[a + n_u], M[a + TWO * n_u], M[a + THREE * n_u]
                    e = a + FOUR * n_u
                    x4, x5, x6, x7 = M[e], M[e + n_u], M[e + TWO * n_u], M[e + THREE * n_u]
                    s1, s2, s3 = s + inner, s + TWO * inner, s + THREE * inner
                    s4 = s + FOUR * inner
                    s5, s6, s7 = s4 + inner, s4 + TWO * inner, s4 + THREE * inner
                    for i in range(begin, inner):
                        x = c + (x0 * S[s + i] + x1 * S[s1 + i])
                        x = x + (x2 * S[s2 + i] + x3 * S[s3 + i])
                        x = x + (x4 * S[s4 + i] + x5 * S[s5 + i])
                        D[d + i] = x + (x6 * S[s6 + i] + x7 * S[s7 + i])
                else:
                    for i in range(inner):
                        D[d + i] = c
                    for v in range(n_v):
                        x = M[a + v * n_u]
                        # Many rows of real models are sparse (sure moves, neighbours only).
                        if x != 0.0:
                            sv = s + v * inner
                            for i in range(inner):
                                D[d + i] += x * S[sv + i]


@njit(**INLINED)
def step_last(S, D, tables, place, shape, has_r):
    """Take the step of the last group, where inner == 1, vectorised over eight cells that read the
    same rows where there are such, else over u."""
    n_v, n_u = shape.n_v, shape.n_u
    if shape.apart > ZERO and n_v == EIGHT and n_u == EIGHT:
        _last_cells_8(S, D, tables, place, shape, has_r)
    elif shape.apart > ZERO and n_v == EIGHT and n_u == FOUR:
        _last_cells_4(S, D, tables, place, shape, has_r)
    elif shape.apart > ZERO and n_v == EIGHT and n_u == TWO:
        _last_cells_2(S, D, tables, place, shape, has_r)
    elif n_u == EIGHT and n_v == EIGHT:
        _last_eight(S, D, tables, place, shape, has_r)
    elif n_u == FOUR and n_v == EIGHT:
        _last_four(S, D, tables, place, shape, has_r, EIGHT)
    elif n_u == FOUR and n_v == FOUR:
        _last_four(S, D, tables, place, shape, has_r, FOUR)
    elif n_u == THREE and n_v == THREE:
        _last_square(S, D, tables, place, shape, has_r, THREE)
    elif n_u == FIVE and n_v == FIVE:
        _last_square(S, D, tables, place, shape, has_r, FIVE)
    elif n_u == SIX and n_v == SIX:
        _last_square(S, D, tables, place, shape, has_r, SIX)
    else:
        _last_of_any(S, D, tables, place, shape, has_r)


@njit(**INLINED)
def _last_cells(S, D, tables, place, shape, has_r, n_u, products):
    """Take it for eight values of v and for eight cells at a time, whose inputs and outputs are
    transposed in registers."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    rep, apart = shape.rep, shape.apart
    s_step, d_step = apart // rep * EIGHT, apart * n_u
    for first in range(ZERO, shape.outer * rep, EIGHT * apart):
        for q in range(first, first + apart):
            o = q if rep == ONE else q // rep
            a = m0 + np.uint64(contexts[0, c0 + q]) * EIGHT * n_u
            y = _load_columns(S, s0 + o * EIGHT, s_step)
            x = products(M, a, y)
            if has_r:
                x = _plus_each(x, R, r0 + np.uint64(contexts[1, c0 + q]) * n_u)
            _store_columns(D, d0 + q * n_u, d_step, x)


@njit(**INSIDE)
def _last_cells_8(S, D, tables, place, shape, has_r):
    _last_cells(S, D, tables, place, shape, has_r, EIGHT, _products_8)


@njit(**INSIDE)
def _last_cells_4(S, D, tables, place, shape, has_r):
    _last_cells(S, D, tables, place, shape, has_r, FOUR, _products_4)


@njit(**INSIDE)
def _last_cells_2(S, D, tables, place, shape, has_r):
    _last_cells(S, D, tables, place, shape, has_r, TWO, _products_2)


@njit(**INSIDE)
def _last_eight(S, D, tables, place, shape, has_r):
    """Take it for eight values of u and v."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    for o in range(shape.outer):
        s = s0 + o * EIGHT
        for r in range(shape.rep):
            q = o * shape.rep + r
            a = m0 + np.uint64(contexts[0, c0 + q]) * EIGHT * EIGHT
            x = _plus(_times(S[s], _load(M, a)), _times(S[s + ONE], _load(M, a + EIGHT)))
            for v in range(TWO, EIGHT, TWO):
                b = a + v * EIGHT
                y = _times(S[s + v], _load(M, b))
                x = _plus(x, _plus(y, _times(S[s + v + ONE], _load(M, b + EIGHT))))
            if has_r:
                x = _plus(x, _load(R, r0 + np.uint64(contexts[1, c0 + q]) * EIGHT))
            _store(D, d0 + q * EIGHT, x)


@njit(**INSIDE)
def _last_four(S, D, tables, place, shape, has_r, n_v):
    """Take it for four values of u. n_v is a constant in both calls, so its loop is unrolled."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    for o in range(shape.outer):
        s = s0 + o * n_v
        for r in range(shape.rep):
            q = o * shape.rep + r
            a = m0 + np.uint64(contexts[0, c0 + q]) * n_v * FOUR
            x = _plus_4(_times_4(S[s], _load_4(M, a)), _times_4(S[s + ONE], _load_4(M, a + FOUR)))
            for v in range(TWO, n_v, TWO):
                b = a + v * FOUR
                y = _times_4(S[s + v], _load_4(M, b))
                x = _plus_4(x, _plus_4(y, _times_4(S[s + v + ONE], _load_4(M, b + FOUR))))
            if has_r:
                x = _plus_4(x, _load_4(R, r0 + np.uint64(contexts[1, c0 + q]) * FOUR))
            _store_4(D, d0 + q * FOUR, x)


@njit(**INSIDE)
def _last_square(S, D, tables, place, shape, has_r, n):
    """Take it for n values of u and of v. n is a constant in all calls, so its loops are unrolled,
    which makes a sweep of `machines:5` or `riverswim:4` twice as fast."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    for o in range(shape.outer):
        s = s0 + o * n
        for r in range(shape.rep):
            q = o * shape.rep + r
            a = m0 + np.uint64(contexts[0, c0 + q]) * n * n
            reward = r0
            if has_r:
                reward += np.uint64(contexts[1, c0 + q]) * n
            for u in range(n):
                x = 0.0
                for v in range(n):
                    x += S[s + v] * M[a + v * n + u]
                D[d0 + q * n + u] = x + R[reward + u] if has_r else x


@njit(**INSIDE)
def _last_of_any(S, D, tables, place, shape, has_r):
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    outer, rep, n_v, n_u = shape.outer, shape.rep, shape.n_v, shape.n_u
    table = n_v * n_u
    for o in range(outer):
        s = s0 + o * n_v
        for r in range(rep):
            q = o * rep + r
            a = m0 + np.uint64(contexts[0, c0 + q]) * table
            d = d0 + q * n_u
            if n_v == TWO:
                x0, x1 = S[s], S[s + ONE]
                a1 = a + n_u
                for u in range(n_u):
                    D[d + u] = x0 * M[a + u] + x1 * M[a1 + u]
            elif n_v == FOUR:
                x0, x1, x2, x3 = S[s], S[s + ONE], S[s + TWO], S[s + THREE]
                a1, a2, a3 = a + n_u, a + TWO * n_u, a + THREE * n_u
                for u in range(n_u):
                    D[d + u] = (x0 * M[a + u] + x1 * M[a1 + u]) + (x2 * M[a2 + u] + x3 * M[a3 + u])
            elif n_v == EIGHT:
                x0, x1, x2, x3 = S[s], S[s + ONE], S[s + TWO], S[s + THREE]
                t = s + FOUR
                x4, x5, x6, x7 = S[t], S[t + ONE], S[t + TWO], S[t + THREE]
                a1, a2, a3, a4 = a + n_u, a + TWO * n_u, a + THREE * n_u, a + FOUR * n_u
                a5, a6, a7 = a4 + n_u, a4 + TWO * n_u, a4 + THREE * n_u
                for u in range(n_u):
                    D[d + u] = (
                        (x0 * M[a + u] + x1 * M[a1 + u])
                        + (x2 * M[a2 + u] + x3 * M[a3 + u])
                        + (x4 * M[a4 + u] + x5 * M[a5 + u])
                        + (x6 * M[a6 + u] + x7 * M[a7 + u])
                    )
            else:
                for u in range(n_u):
                    D[d + u] = 0.0
                for v in range(n_v):
                    x = S[s + v]
                    av = a + v * n_u
                    for u in range(n_u):
                        D[d + u] += x * M[av + u]
            if has_r:
                b = r0 + np.uint64(contexts[1, c0 + q]) * n_u
                for u in range(n_u):
                    D[d + u] += R[b + u]


@njit(**INSIDE)
def step_nested(S, D, tables, place, shape, has_r):
    """Give the free mass to the best next value, given everything not yet eliminated."""
    F, f0 = tables.free, place.free
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape[:5]
    block, table = n_v * inner, n_v * n_u
    for o in range(outer):
        s = s0 + o * block
        for r in range(rep):
            q = o * rep + r
            row = np.uint64(contexts[0, c0 + q])
            for u in range(n_u):
                c = 0.0
                if has_r:
                    c = R[r0 + np.uint64(contexts[1, c0 + q]) * n_u + u]
                f = F[f0 + row * n_u + u]
                d = d0 + (q * n_u + u) * inner
                a = m0 + row * table + u
                if n_v == TWO:
                    x0, x1 = M[a], M[a + n_u]
                    s1 = s + inner
                    for i in range(inner):
                        x, y = S[s + i], S[s1 + i]
                        D[d + i] = c + (x0 * x + x1 * y) + f * (x if x > y else y)
                else:
                    for i in range(inner):
                        D[d + i] = S[s + i]
                    for v in range(ONE, n_v):
                        sv = s + v * inner
                        for i in range(inner):
                            x, y = D[d + i], S[sv + i]
                            D[d + i] = x if x > y else y
                    for i in range(inner):
                        D[d + i] = c + f * D[d + i]
                    for v in range(n_v):
                        w = M[a + v * n_u]
                        if w != 0.0:
                            sv = s + v * inner
                            for i in range(inner):
                                D[d + i] += w * S[sv + i]


@njit(**INSIDE)
def _sort(order, S, at, stride, n_v, worst):
    """Sort the values v in `order` by S[at + v * stride], best first (`worst`: last), then by v."""
    for k in range(1, n_v):
        v = order[k]
        x = S[at + np.uint64(v) * stride]
        j = k
        while j > 0:
            w = order[j - 1]
            y = S[at + np.uint64(w) * stride]
            if y == x:
                if w < v:
                    break
            elif (y < x) == worst:
                break
            order[j] = w
            j -= 1
        order[j] = v


@njit(**INSIDE)
def _pour(order, S, at, stride, tables, a, n_u, free, n_v):
    """Return sum_v (M + share of v) S, the free mass poured in `order`, each up to its cap."""
    M, caps = tables.rows, tables.caps
    total, left = 0.0, free
    for k in range(n_v):
        v = np.uint64(order[k])
        # The last value takes the rest, rounding included, so that the mass of the row is kept.
        cap = caps[a + v * n_u]
        take = cap if cap < left and k < n_v - 1 else left
        left -= take
        total += (M[a + v * n_u] + take) * S[at + v * stride]
    return total


@njit(**INSIDE)
def _move(order, S, at, stride, tables, a, n_u, half, n_v):
    """Return sum_v p S with the mass `half`, or as much as there is, moved from the last values in
    `order` to the first one."""
    M = tables.rows
    first = np.uint64(order[0])
    left = min(half, 1.0 - M[a + first * n_u])
    total = (M[a + first * n_u] + left) * S[at + first * stride]
    for k in range(n_v - 1, 0, -1):
        v = np.uint64(order[k])
        p = M[a + v * n_u]
        take = p if p < left else left
        left -= take
        total += (p - take) * S[at + v * stride]
    return total


@njit(**INSIDE)
def step_sorted(S, D, tables, place, shape, has_r, order, ball, worst):
    """Take a step with rows from boxes or balls. Another kind of set needs a function like `_pour`,
    which returns the value of a row for a given order of the values of a cell."""
    M, F, C, R = tables.rows, tables.free, tables.caps, tables.rewards
    contexts = tables.contexts
    s0, d0, m0, f0 = place.source, place.arena, place.rows, place.free
    r0, c0 = place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape[:5]
    block, table = n_v * inner, n_v * n_u
    n_values = np.int64(n_v)
    if order[order.shape[0] - 1] != n_values:
        order[order.shape[0] - 1] = n_values
        for v in range(n_values):
            order[v] = v
    for o in range(outer):
        s = s0 + o * block
        if n_v == TWO:
            s1 = s + inner
            for r in range(rep):
                q = o * rep + r
                row = np.uint64(contexts[0, c0 + q])
                for u in range(n_u):
                    c = 0.0
                    if has_r:
                        c = R[r0 + np.uint64(contexts[1, c0 + q]) * n_u + u]
                    f = F[f0 + row * n_u + u]
                    a = m0 + row * table + u
                    b = a + n_u
                    # With two values the set is a segment: its two ends.
                    if ball:
                        first, second = min(f, M[b]), min(f, M[a])
                        x0, x1 = M[a] + first, M[b] - first
                        y0, y1 = M[a] - second, M[b] + second
                    else:
                        first, second = min(f, C[a]), min(f, C[b])
                        x0, x1 = M[a] + first, M[b] + (f - first)
                        y0, y1 = M[a] + (f - second), M[b] + second
                    d = d0 + (q * n_u + u) * inner
                    if worst:
                        for i in range(inner):
                            x = x0 * S[s + i] + x1 * S[s1 + i]
                            y = y0 * S[s + i] + y1 * S[s1 + i]
                            D[d + i] = c + (x if x < y else y)
                    else:
                        for i in range(inner):
                            x = x0 * S[s + i] + x1 * S[s1 + i]
                            y = y0 * S[s + i] + y1 * S[s1 + i]
                            D[d + i] = c + (x if x > y else y)
            continue
        for i in range(inner):
            _sort(order, S, s + i, inner, n_values, worst)
            for r in range(rep):
                q = o * rep + r
                row = np.uint64(contexts[0, c0 + q])
                for u in range(n_u):
                    c = 0.0
                    if has_r:
                        c = R[r0 + np.uint64(contexts[1, c0 + q]) * n_u + u]
                    f = F[f0 + row * n_u + u]
                    a = m0 + row * table + u
                    if ball:
                        worth = _move(order, S, s + i, inner, tables, a, n_u, f, n_values)
                    else:
                        worth = _pour(order, S, s + i, inner, tables, a, n_u, f, n_values)
                    D[d0 + (q * n_u + u) * inner + i] = c + worth


@njit(**INSIDE)
def _losses(S, at, stride, M, a, n_u, n_v, sign, top, mu):
    """Return sum p log(mu + x), sum p / (mu + x) and sum p / (mu + x)^2 over p > 0, x = top - S."""
    logs, once, twice = 0.0, 0.0, 0.0
    for v in range(n_v):
        p = M[a + np.uint64(v) * n_u]
        if p > 0.0:
            x = mu + (top - sign * S[at + np.uint64(v) * stride])
            logs += p * math.log(x)
            once += p / x
            twice += p / x / x
    return logs, once, twice


@njit(**INSIDE)
def _loss_at(S, at, stride, M, a, n_u, n_v, sign, top, mu, widest, radius):
    """Return exp(sum p log(mu + x) - radius) - mu without cancellation."""
    total = -radius
    scale = mu if mu >= widest else mu + widest
    for v in range(n_v):
        p = M[a + np.uint64(v) * n_u]
        if p > 0.0:
            x = top - sign * S[at + np.uint64(v) * stride]
            total += p * (math.log1p(x / mu) if mu >= widest else math.log((mu + x) / scale))
    return mu * math.expm1(total) if mu >= widest else scale * math.exp(total) - mu


@njit(**INSIDE)
def _divergence_value(S, at, stride, M, a, n_u, radius, n_v, worst):
    """Return the largest (`worst`: smallest) sum_v q S over all q with KL(p, q) <= radius, p in M.

    With x = max S - S the least loss sum q x is, by Lagrangian duality, the maximum over mu >= 0 of
        exp(sum p log(mu + x) - radius) - mu,
    which is concave, and every mu gives a bound from below: the value that is returned is never
    below the maximum, whenever Newton's method stops. The derivative is zero where
    sum p log(mu + x) + log sum p / (mu + x) = radius (Filippi, Cappe & Garivier 2010, whose nu is
    mu + max S). It is positive nowhere if that holds with < at mu = 0.
    """
    sign = -1.0 if worst else 1.0
    top = sign * S[at]
    for v in range(1, n_v):
        top = max(top, sign * S[at + np.uint64(v) * stride])
    mean, square, least, widest = 0.0, 0.0, np.inf, 0.0
    for v in range(n_v):
        p = M[a + np.uint64(v) * n_u]
        if p > 0.0:
            x = top - sign * S[at + np.uint64(v) * stride]
            mean += p * x
            square += p * x * x
            least, widest = min(least, x), max(widest, x)
    if radius == 0.0 or widest == 0.0:
        return sign * (top - mean)
    if radius >= EVERYTHING:
        return sign * top
    if least > 0.0:
        logs, once, _ = _losses(S, at, stride, M, a, n_u, n_v, sign, top, 0.0)
        if logs + math.log(once) <= radius:
            loss = _loss_at(S, at, stride, M, a, n_u, n_v, sign, top, 0.0, widest, radius)
            return sign * (top - loss)
    # For small radii the solution is near sqrt(variance / (2 radius)) - mean.
    spread = math.sqrt(max(square - mean * mean, 0.0) / (2.0 * radius))
    mu = max(spread - mean, SMALLEST_START * widest)
    for _ in range(NEWTON_STEPS):
        logs, once, twice = _losses(S, at, stride, M, a, n_u, n_v, sign, top, mu)
        excess, slope = logs + math.log(once) - radius, once - twice / once
        if slope >= 0.0 or mu < PRECISION * widest:
            break
        new = mu - excess / slope
        if new <= 0.0:
            mu /= EIGHTH
            continue
        moved, mu = abs(new - mu), new
        if abs(excess) * moved <= PRECISION * widest:
            break
    loss = _loss_at(S, at, stride, M, a, n_u, n_v, sign, top, mu, widest, radius)
    return sign * (top - max(loss, 0.0))


@njit(**INSIDE)
def step_divergence(S, D, tables, place, shape, has_r, worst):
    """Take a step with rows from balls of the divergence; `caps` has the upper ends of a box."""
    M, F, C, R = tables.rows, tables.free, tables.caps, tables.rewards
    contexts = tables.contexts
    s0, d0, m0, f0 = place.source, place.arena, place.rows, place.free
    r0, c0 = place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape[:5]
    block, table = n_v * inner, n_v * n_u
    n_values = np.int64(n_v)
    for o in range(outer):
        s = s0 + o * block
        for r in range(rep):
            q = o * rep + r
            row = np.uint64(contexts[0, c0 + q])
            for u in range(n_u):
                c = 0.0
                if has_r:
                    c = R[r0 + np.uint64(contexts[1, c0 + q]) * n_u + u]
                a, d = m0 + row * table + u, d0 + (q * n_u + u) * inner
                if n_v == TWO:
                    # With two values the ball is a segment between its upper ends.
                    x0, y1 = C[a], C[a + n_u]
                    for i in range(inner):
                        first, second = S[s + i], S[s + inner + i]
                        x = x0 * first + (1.0 - x0) * second
                        y = (1.0 - y1) * first + y1 * second
                        D[d + i] = c + (min(x, y) if worst else max(x, y))
                    continue
                f = F[f0 + row * n_u + u]
                for i in range(inner):
                    D[d + i] = c + _divergence_value(S, s + i, inner, M, a, n_u, f, n_values, worst)
