"""Compiled kernels of the elimination engine: steps, sweeps, value iteration.

A step eliminates a group of next-state variables from a tensor laid out as [outer, V, inner]
(V = joint values of the group, inner = variables still to be eliminated):

    out[o, r, u, i] = reward[o, r, u] + sum_v M[ctx(o, r), v, u] in[o, v, i]
                      (+ free[ctx(o, r), u] * max_v in[o, v, i]   for nested targets)

where u runs over the values of the group's own current variables and r over current variables that
are needed as parents before their own turn.  Rewards are added as soon as their scope is known:
every row has mass one, so a constant passes through the later steps unchanged.

Every output number is computed by one thread in one order, so a sweep gives the same bits on any
number of threads.  Cost of a step: outer * rep * U * V * inner multiply-adds.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from fmdp.elimination.ties import TIE_TOLERANCE, tie_hash
from fmdp.elimination.truncation import truncate

# Columns of `levels`, one row a group (program.py writes them).
OUTER, REP, V, U, INNER, M_BASE, M_ROWS, R_BASE, R_ROWS, CTX_BASE, F_BASE, HAS_R, BUFFER = range(13)
N_LEVEL_FIELDS = 13
# Columns of `nodes`, one row a step of the program, in depth-first order.
LEVEL, M_ROW, R_ROW, LEAF = range(4)
N_NODE_FIELDS = 4

_FLAGS: dict[str, Any] = {
    "cache": True, "nogil": True, "fastmath": {"contract"}, "error_model": "numpy",
}  # fmt: skip
# Only called from compiled code: the wrappers for Python would double the time to compile.
_INNER: dict[str, Any] = {**_FLAGS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


@numba.njit(**_INNER)
def _step_vector(S3, D3, M3, R2, ctx, rctx, row0, r0, rep, has_r):
    """inner > 1: vectorised over the innermost axis."""
    outer, n_v, inner = S3.shape
    n_u = D3.shape[1]
    for q in range(outer * rep):
        o = q // rep
        row = row0 + ctx[q]
        for u in range(n_u):
            c = 0.0
            if has_r:
                c = R2[r0 + rctx[q], u]
            if n_v == 2:
                a0, a1 = M3[row, 0, u], M3[row, 1, u]
                for i in range(inner):
                    D3[q, u, i] = c + a0 * S3[o, 0, i] + a1 * S3[o, 1, i]
            elif n_v == 4:
                a0, a1, a2, a3 = M3[row, 0, u], M3[row, 1, u], M3[row, 2, u], M3[row, 3, u]
                for i in range(inner):
                    D3[q, u, i] = (
                        c
                        + (a0 * S3[o, 0, i] + a1 * S3[o, 1, i])
                        + (a2 * S3[o, 2, i] + a3 * S3[o, 3, i])
                    )
            elif n_v == 8:
                a0, a1, a2, a3 = M3[row, 0, u], M3[row, 1, u], M3[row, 2, u], M3[row, 3, u]
                a4, a5, a6, a7 = M3[row, 4, u], M3[row, 5, u], M3[row, 6, u], M3[row, 7, u]
                for i in range(inner):
                    D3[q, u, i] = (
                        c
                        + (a0 * S3[o, 0, i] + a1 * S3[o, 1, i])
                        + (a2 * S3[o, 2, i] + a3 * S3[o, 3, i])
                        + (a4 * S3[o, 4, i] + a5 * S3[o, 5, i])
                        + (a6 * S3[o, 6, i] + a7 * S3[o, 7, i])
                    )
            else:
                for i in range(inner):
                    D3[q, u, i] = c
                for v in range(n_v):
                    a = M3[row, v, u]
                    # Many rows of real models are sparse (deterministic moves, neighbours only).
                    if a != 0.0:
                        for i in range(inner):
                            D3[q, u, i] += a * S3[o, v, i]


@numba.njit(**_INNER)
def _step_last(S2, D2, M3, R2, ctx, rctx, row0, r0, rep, has_r):
    """inner == 1, the last group: vectorised over u."""
    outer, n_v = S2.shape
    n_u = D2.shape[1]
    for q in range(outer * rep):
        o = q // rep
        row = row0 + ctx[q]
        if n_v == 2:
            s0, s1 = S2[o, 0], S2[o, 1]
            for u in range(n_u):
                D2[q, u] = s0 * M3[row, 0, u] + s1 * M3[row, 1, u]
        elif n_v == 4:
            s0, s1, s2, s3 = S2[o, 0], S2[o, 1], S2[o, 2], S2[o, 3]
            for u in range(n_u):
                D2[q, u] = (s0 * M3[row, 0, u] + s1 * M3[row, 1, u]) + (
                    s2 * M3[row, 2, u] + s3 * M3[row, 3, u]
                )
        elif n_v == 8:
            s0, s1, s2, s3 = S2[o, 0], S2[o, 1], S2[o, 2], S2[o, 3]
            s4, s5, s6, s7 = S2[o, 4], S2[o, 5], S2[o, 6], S2[o, 7]
            for u in range(n_u):
                D2[q, u] = (
                    (s0 * M3[row, 0, u] + s1 * M3[row, 1, u])
                    + (s2 * M3[row, 2, u] + s3 * M3[row, 3, u])
                    + (s4 * M3[row, 4, u] + s5 * M3[row, 5, u])
                    + (s6 * M3[row, 6, u] + s7 * M3[row, 7, u])
                )
        else:
            for u in range(n_u):
                D2[q, u] = 0.0
            for v in range(n_v):
                s = S2[o, v]
                for u in range(n_u):
                    D2[q, u] += s * M3[row, v, u]
        if has_r:
            for u in range(n_u):
                D2[q, u] += R2[r0 + rctx[q], u]


@numba.njit(**_INNER)
def _step_nested(S3, D3, M3, F2, R2, ctx, rctx, row0, r0, rep, has_r):
    """The free mass goes to the best next value, given everything not yet eliminated."""
    outer, n_v, inner = S3.shape
    n_u = D3.shape[1]
    for q in range(outer * rep):
        o = q // rep
        row = row0 + ctx[q]
        for u in range(n_u):
            c = 0.0
            if has_r:
                c = R2[r0 + rctx[q], u]
            f = F2[row, u]
            if n_v == 2:
                a0, a1 = M3[row, 0, u], M3[row, 1, u]
                for i in range(inner):
                    x, y = S3[o, 0, i], S3[o, 1, i]
                    D3[q, u, i] = c + (a0 * x + a1 * y) + f * (x if x > y else y)
            else:
                for i in range(inner):
                    D3[q, u, i] = S3[o, 0, i]
                for v in range(1, n_v):
                    for i in range(inner):
                        x, y = D3[q, u, i], S3[o, v, i]
                        D3[q, u, i] = x if x > y else y
                for i in range(inner):
                    D3[q, u, i] = c + f * D3[q, u, i]
                for v in range(n_v):
                    a = M3[row, v, u]
                    if a != 0.0:
                        for i in range(inner):
                            D3[q, u, i] += a * S3[o, v, i]


@numba.njit(**_INNER)
def _run_node(n, b, h, arena, levels, nodes, ctx, rctx, branch_m, branch_r, M, F, R, nested):
    """One node of the program: eliminate one group for one class of actions."""
    g = nodes[n, LEVEL]
    outer, rep, n_v, n_u = levels[g, OUTER], levels[g, REP], levels[g, V], levels[g, U]
    inner, rows = levels[g, INNER], levels[g, M_ROWS]
    row0 = nodes[n, M_ROW] + branch_m[b, g]
    r0 = nodes[n, R_ROW] + branch_r[b, g]
    has_r = levels[g, HAS_R] != 0
    n_in, n_q = outer * n_v * inner, outer * rep
    n_out = n_q * n_u * inner
    source = h[:n_in] if g == 0 else arena[levels[g - 1, BUFFER] : levels[g - 1, BUFFER] + n_in]
    target = arena[levels[g, BUFFER] : levels[g, BUFFER] + n_out]
    base, r_base, c_base = levels[g, M_BASE], levels[g, R_BASE], levels[g, CTX_BASE]
    M3 = M[base : base + rows * n_v * n_u].reshape(rows, n_v, n_u)
    R2 = R[r_base : r_base + levels[g, R_ROWS] * n_u].reshape(levels[g, R_ROWS], n_u)
    c, rc = ctx[c_base : c_base + n_q], rctx[c_base : c_base + n_q]
    if nested:
        f_base = levels[g, F_BASE]
        F2 = F[f_base : f_base + rows * n_u].reshape(rows, n_u)
        S3, D3 = source.reshape(outer, n_v, inner), target.reshape(n_q, n_u, inner)
        _step_nested(S3, D3, M3, F2, R2, c, rc, row0, r0, rep, has_r)
    elif inner == 1:
        S2, D2 = source.reshape(outer, n_v), target.reshape(n_q, n_u)
        _step_last(S2, D2, M3, R2, c, rc, row0, r0, rep, has_r)
    else:
        S3, D3 = source.reshape(outer, n_v, inner), target.reshape(n_q, n_u, inner)
        _step_vector(S3, D3, M3, R2, c, rc, row0, r0, rep, has_r)
    return target


@numba.njit(**_FLAGS)
def sweep(h, out, b_lo, b_hi, arena, best, levels, nodes, ctx, rctx, branch_m, branch_r,
          branch_base, leaf_offset, M, F, R, nested):  # fmt: skip
    """out <- max over joint actions of (reward + P h), for the branches b_lo <= b < b_hi."""
    for b in range(b_lo, b_hi):
        for k in range(best.shape[0]):
            best[k] = -np.inf
        for n in range(nodes.shape[0]):
            target = _run_node(
                n, b, h, arena, levels, nodes, ctx, rctx, branch_m, branch_r, M, F, R, nested
            )
            if nodes[n, LEAF] >= 0:
                for k in range(best.shape[0]):
                    x, y = best[k], target[k]
                    best[k] = x if x > y else y
        base = branch_base[b]
        for k in range(best.shape[0]):
            out[base + leaf_offset[k]] = best[k]


@numba.njit(**_FLAGS)
def greedy(h, value, actions, b_lo, b_hi, arena, chosen, levels, nodes, ctx, rctx, branch_m,
           branch_r, branch_base, leaf_offset, canonical_base, canonical_offset, leaf_start,
           leaf_actions, M, F, R, nested, rule, seed):  # fmt: skip
    """The action index of every state, C order, given value = L h; ties as ties.py says."""
    for b in range(b_lo, b_hi):
        base, c_base = branch_base[b], canonical_base[b]
        for k in range(chosen.shape[0]):
            chosen[k] = -1
        for n in range(nodes.shape[0]):
            target = _run_node(
                n, b, h, arena, levels, nodes, ctx, rctx, branch_m, branch_r, M, F, R, nested
            )
            leaf = nodes[n, LEAF]
            if leaf < 0:
                continue
            for k in range(chosen.shape[0]):
                x = value[base + leaf_offset[k]]
                if target[k] < x - TIE_TOLERANCE * (1.0 + abs(x)):
                    continue
                for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                    a, now = leaf_actions[p], chosen[k]
                    if now < 0:
                        chosen[k] = a
                    elif rule == 1:
                        chosen[k] = min(a, now)
                    elif rule == 2:
                        chosen[k] = max(a, now)
                    else:
                        key = c_base + canonical_offset[k]
                        rank, held = tie_hash(seed, key, a), tie_hash(seed, key, now)
                        if rank < held or (rank == held and a < now):
                            chosen[k] = a
        for k in range(chosen.shape[0]):
            actions[c_base + canonical_offset[k]] = chosen[k]


@numba.njit(**_FLAGS)
def policy_sweep(h, out, actions, b_lo, b_hi, arena, levels, nodes, ctx, rctx, branch_m, branch_r,
                 branch_base, leaf_offset, canonical_base, canonical_offset, action_leaf,
                 M, F, R, nested):  # fmt: skip
    """out <- reward + P h under the given policy (action indices in C order)."""
    for b in range(b_lo, b_hi):
        base, c_base = branch_base[b], canonical_base[b]
        for n in range(nodes.shape[0]):
            target = _run_node(
                n, b, h, arena, levels, nodes, ctx, rctx, branch_m, branch_r, M, F, R, nested
            )
            leaf = nodes[n, LEAF]
            if leaf < 0:
                continue
            for k in range(leaf_offset.shape[0]):
                if action_leaf[actions[c_base + canonical_offset[k]]] == leaf:
                    out[base + leaf_offset[k]] = target[k]


@numba.njit(**_FLAGS)
def residual(h, new, extremes):
    """extremes <- min and max of new - h, and the largest |h| (for the rounding allowance)."""
    low, high, size = np.inf, -np.inf, 0.0
    for s in range(h.shape[0]):
        d = new[s] - h[s]
        low = d if d < low else low
        high = d if d > high else high
        size = max(size, abs(h[s]))
    extremes[0], extremes[1], extremes[2] = low, high, size


@numba.njit(**_FLAGS)
def advance(h, new, tau, shift):
    """h <- (1 - tau) h + tau new - shift."""
    for s in range(h.shape[0]):
        h[s] += tau * (new[s] - h[s]) - shift


@numba.njit(**_FLAGS)
def iterate(h, new, scaled, discount, tau, tolerance, sweeps, arena, best, levels, nodes, ctx, rctx,
            branch_m, branch_r, branch_base, leaf_offset, M, F, R, nested, axes, budgets,
            extremes):  # fmt: skip
    """Up to `sweeps` sweeps of (damped, discounted) relative value iteration in one call.

    Each sweep is followed by the truncation of truncation.py (none without axes).  On return
    new = truncate L h and `extremes` is their residual: h is not moved after the last sweep, so
    that what is certified, the bias and the greedy policy all belong to one h.
    """
    for sweep_number in range(1, sweeps + 1):
        source = h
        if discount != 1.0:
            for s in range(h.shape[0]):
                scaled[s] = discount * h[s]
            source = scaled
        sweep(source, new, 0, branch_base.shape[0], arena, best, levels, nodes, ctx, rctx, branch_m,
              branch_r, branch_base, leaf_offset, M, F, R, nested)  # fmt: skip
        truncate(new, axes, budgets)
        residual(h, new, extremes)
        if extremes[1] - extremes[0] <= tolerance or sweep_number == sweeps:
            return sweep_number
        advance(h, new, tau, relative_shift(extremes, tau, discount))
    return 0


@numba.njit(**_FLAGS)
def relative_shift(extremes, tau, discount):
    """The constant taken off in every sweep so that h stays bounded (none under a discount)."""
    return tau * 0.5 * (extremes[0] + extremes[1]) if discount == 1.0 else 0.0


@numba.njit(**_FLAGS)
def gather_products(base, index, out):
    """out[e] = product over the members of base[index[k, e]]: rows of a fused group."""
    for e in range(out.shape[0]):
        x = base[index[0, e]]
        for k in range(1, index.shape[0]):
            x *= base[index[k, e]]
        out[e] = x


@numba.njit(**_FLAGS)
def gather_sums(base, index, out):
    """out[e] = sum over the reward factors of base[index[k, e]]."""
    for e in range(out.shape[0]):
        x = 0.0
        for k in range(index.shape[0]):
            x += base[index[k, e]]
        out[e] = x
