"""Compiled kernels of the elimination engine: steps, sweeps, value iteration.

A step eliminates a group of next-state variables from a tensor laid out as [outer, V, inner]
(V = joint values of the group, inner = variables still to be eliminated):

    out[o, r, u, i] = reward[o, r, u] + sum_v M[ctx(o, r), v, u] in[o, v, i]
                      (+ free[ctx(o, r), u] * max_v in[o, v, i]   for nested targets)

Where a row is chosen from another set, the values of a cell are sorted, best first, and a small
function says what the best p of the set is worth (worst first: the worst p): boxes,
M <= p <= M + caps, pour the free mass in that order, each value up to its cap; balls,
|p - M|_1 <= 2 free, take it from the last values and give it to the first.

where u runs over the values of the group's own current variables and r over current variables that
are needed as parents before their own turn.  Rewards are added as soon as their scope is known:
every row has mass one, so a constant passes through the later steps unchanged.

Every output number is computed by one thread in one order, so a sweep gives the same bits on any
number of threads.  Cost of a step: outer * rep * U * V * inner multiply-adds.

Numba optimises a function again inside each of its callers, so there are few callers: everything
that walks the program is one function, `run`, with a mode.

`run` takes plain tuples and gives them their names inside: to tell the type of a named tuple costs
half a microsecond a call, and the re-plan of a small model has not many of those.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp.compiled import njit
from fmdp.elimination.ties import tie_hash
from fmdp.elimination.truncation import NO_TRUNCATION, truncate

Index = NDArray[np.int64]
Vector = NDArray[np.float64]

# Columns of `levels`, one row a group (program.py writes them).
OUTER, REP, V, U, INNER, M_BASE, R_BASE, CTX_BASE, F_BASE, HAS_R, BUFFER = range(11)
N_LEVEL_FIELDS = 11
# Columns of `nodes`, one row a step of the program, in depth-first order.
LEVEL, M_ROW, R_ROW, LEAF = range(4)
N_NODE_FIELDS = 4
# Shapes of the set that a row is chosen from.
FREE, BOX, BALL = range(3)
# Modes of `run`.
BACKUP, ITERATE, GREEDY, POLICY, VALUES = range(5)

# Unsigned, as all offsets are: signed ones would be checked for counting from the end.
ZERO, ONE, TWO, THREE, FOUR, EIGHT = (np.uint64(number) for number in (0, 1, 2, 3, 4, 8))

_FLAGS: dict[str, Any] = {
    "nogil": True,
    "fastmath": {"contract"},
    "error_model": "numpy",
}
# Only called from compiled code: the wrappers for Python would double the time to compile.
_INNER: dict[str, Any] = {**_FLAGS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class Steps(NamedTuple):
    """The steps of a program and the tables that they read, in the order of reading."""

    levels: Index
    nodes: Index
    contexts: Index  # [2, cells]: rows of the transition tables and of the rewards
    branch_rows: Index  # [2, branches, groups]: what a branch adds to them
    branch_bases: Index  # [2, branches]: its first state, in elimination order and in C order
    offsets: Index  # [2, cells of the last tensor]: what a cell adds to that
    leaf_start: Index  # [leaves + 1]: where the joint actions of a leaf begin
    leaf_actions: Index
    action_leaf: Index  # [joint actions], -1 for those that are not enumerated
    rows: Vector  # M: joint rows of the groups
    free: Vector  # free masses; empty where targets are not nested
    rewards: Vector
    caps: Vector
    """What a value can take of the free mass, laid out as `rows`; empty where it can take all."""
    shape: Index
    """[2]: of the set of a row (FREE, BOX, BALL), and not 0 where its worst p is taken; only boxes
    and balls have one."""


class Sources(NamedTuple):
    """From which entries of a model's tables, end to end, the entries of `Steps` are made.

    Group g has the entries start[g] <= e < start[g + 1]; the k-th is made of parts[g] numbers,
    at[first[g] + q * (start[g + 1] - start[g]) + k] for q < parts[g].
    """

    at: Index
    first: Index
    parts: Index
    start: Index


class Room(NamedTuple):
    """Where one thread works."""

    arena: Vector
    """The tensors between the steps, one behind the other."""
    best: Vector
    """[cells of the last tensor]"""
    extremes: Vector
    """Smallest and largest residual of the last sweep, and the largest |h|."""
    stop: Index
    """Not 0 when another thread wants this one to end."""
    order: Index
    """[values of the largest variable, and one more]: how the last cell was sorted, which is nearly
    how the next one is; the last entry says how many values that were."""


class Pace(NamedTuple):
    """How value iteration goes on, and when it ends."""

    sweeps: int = 1
    """At most so many."""
    tolerance: float = 0.0
    """Of the range of L h - h, below which no more follow."""
    tau: float = 1.0
    """Of the damping, h <- (1 - tau) h + tau L h."""
    discount: float = 1.0
    axes: Index = NO_TRUNCATION.axes
    budgets: Vector = NO_TRUNCATION.budgets
    """Of the truncation; none without axes."""


class Chosen(NamedTuple):
    """The actions that are taken, or are to be found."""

    actions: Index
    """[states], in C order"""
    slack: float
    rule: int
    seed: int


class _Tables(NamedTuple):
    """What of `Steps` a single step reads: arguments are copied in every call."""

    rows: Vector
    free: Vector
    rewards: Vector
    contexts: Index
    caps: Vector


class _Shape(NamedTuple):
    """Of one step: see above for the axes."""

    outer: Any
    rep: Any
    n_v: Any
    n_u: Any
    inner: Any


class _Place(NamedTuple):
    """Where one step begins in each of the arrays that it reads and writes."""

    source: Any
    arena: Any
    rows: Any
    free: Any
    rewards: Any
    contexts: Any


@njit(**_INNER)
def _step_vector(S, D, tables, place, shape, has_r):
    """inner > 1: vectorised over the innermost axis."""
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape
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
                    for i in range(inner):
                        D[d + i] = c + x0 * S[s + i] + x1 * S[s1 + i]
                elif n_v == FOUR:
                    x0, x1, x2, x3 = M[a], M[a + n_u], M[a + TWO * n_u], M[a + THREE * n_u]
                    s1, s2, s3 = s + inner, s + TWO * inner, s + THREE * inner
                    for i in range(inner):
                        D[d + i] = (
                            c + (x0 * S[s + i] + x1 * S[s1 + i]) + (x2 * S[s2 + i] + x3 * S[s3 + i])
                        )
                elif n_v == EIGHT:
                    x0, x1, x2, x3 = M[a], M[a + n_u], M[a + TWO * n_u], M[a + THREE * n_u]
                    e = a + FOUR * n_u
                    x4, x5, x6, x7 = M[e], M[e + n_u], M[e + TWO * n_u], M[e + THREE * n_u]
                    s1, s2, s3 = s + inner, s + TWO * inner, s + THREE * inner
                    s4 = s + FOUR * inner
                    s5, s6, s7 = s4 + inner, s4 + TWO * inner, s4 + THREE * inner
                    for i in range(inner):
                        D[d + i] = (
                            c
                            + (x0 * S[s + i] + x1 * S[s1 + i])
                            + (x2 * S[s2 + i] + x3 * S[s3 + i])
                            + (x4 * S[s4 + i] + x5 * S[s5 + i])
                            + (x6 * S[s6 + i] + x7 * S[s7 + i])
                        )
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


@njit(**_INNER)
def _step_last(S, D, tables, place, shape, has_r):
    """inner == 1, the last group: vectorised over u."""
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


@njit(**_INNER)
def _step_nested(S, D, tables, place, shape, has_r):
    """The free mass goes to the best next value, given everything not yet eliminated."""
    F, f0 = tables.free, place.free
    M, R, contexts = tables.rows, tables.rewards, tables.contexts
    s0, d0, m0, r0, c0 = place.source, place.arena, place.rows, place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape
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


@njit(**_INNER)
def _sort(order, S, at, stride, n_v, worst):
    """order <- the values v by S[at + v * stride], best first (`worst`: last), equal ones by v."""
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


@njit(**_INNER)
def _pour(order, S, at, stride, tables, a, n_u, free, n_v):
    """sum_v (M + what v gets of the free mass) S, poured in `order`, each up to its cap."""
    M, caps = tables.rows, tables.caps
    total, left = 0.0, free
    for k in range(n_v):
        v = np.uint64(order[k])
        # The last one takes what rounding has left over: the mass of a row stays what it is.
        cap = caps[a + v * n_u]
        take = cap if cap < left and k < n_v - 1 else left
        left -= take
        total += (M[a + v * n_u] + take) * S[at + v * stride]
    return total


@njit(**_INNER)
def _move(order, S, at, stride, tables, a, n_u, half, n_v):
    """sum_v p S with the mass `half` moved from the last values in `order` to the first one, as far
    as they have it."""
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


@njit(**_INNER)
def _step_sorted(S, D, tables, place, shape, has_r, order, ball, worst):
    """As _step_nested, for boxes and balls.  Another shape of set is another function as `_pour`,
    which is given the values of a cell in their order and says what the row is worth."""
    M, F, C, R = tables.rows, tables.free, tables.caps, tables.rewards
    contexts = tables.contexts
    s0, d0, m0, f0 = place.source, place.arena, place.rows, place.free
    r0, c0 = place.rewards, place.contexts
    outer, rep, n_v, n_u, inner = shape
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
                    # The two ends of the segment that any set of two values is.
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


@njit(**_FLAGS)
def run(mode, h, new, scratch, first, end, steps, room, pace, choice):
    """Walk the program for the branches first <= b < end.

    BACKUP    new <- max over joint actions of (reward + P h)
    POLICY    new <- reward + P h under the actions of `choice`
    GREEDY    actions <- an action that attains new = L h up to the slack in every state, ties as
              ties.py says; new <- what the chosen action is worth
    VALUES    new <- reward + P h of every joint action: [states in C order, joint actions], flat
    ITERATE   up to `pace.sweeps` backups of (damped, discounted) relative value iteration, each
              followed by the truncation of truncation.py.  On return new = truncate L h and
              `room.extremes` is their residual: h is not moved after the last sweep, so that what
              is certified, the bias and the greedy policy all belong to one h.  Returns the sweeps.

    Ends at once, with -1 and everything half done, when another thread sets room.stop[0].
    """
    steps, room, pace, choice = Steps(*steps), Room(*room), Pace(*pace), Chosen(*choice)
    arena, best = room.arena, room.best
    levels, nodes, offsets = steps.levels, steps.nodes, steps.offsets
    leaf_start, leaf_actions = steps.leaf_start, steps.leaf_actions
    tables = _Tables(steps.rows, steps.free, steps.rewards, steps.contexts, steps.caps)
    actions = choice.actions
    nested = steps.free.shape[0] > 0
    sorted_rows, ball, worst = steps.shape[0] != FREE, steps.shape[0] == BALL, steps.shape[1] != 0
    n_cells = np.uint64(best.shape[0])
    last_sweep = pace.sweeps if mode == ITERATE else 1
    for sweep_number in range(1, last_sweep + 1):
        origin = h
        if mode == ITERATE and pace.discount != 1.0:
            for s in range(h.shape[0]):
                scratch[s] = pace.discount * h[s]
            origin = scratch
        for b in range(first, end):
            base, c_base = steps.branch_bases[0, b], steps.branch_bases[1, b]
            for k in range(n_cells):
                best[k] = -np.inf
            if mode == GREEDY:
                for k in range(n_cells):
                    actions[c_base + offsets[1, k]] = -1
            for n in range(nodes.shape[0]):
                if room.stop[0] != 0:
                    return -1
                g = nodes[n, LEVEL]
                n_v, n_u = np.uint64(levels[g, V]), np.uint64(levels[g, U])
                shape = _Shape(
                    np.uint64(levels[g, OUTER]),
                    np.uint64(levels[g, REP]),
                    n_v,
                    n_u,
                    np.uint64(levels[g, INNER]),
                )
                row = np.uint64(nodes[n, M_ROW] + steps.branch_rows[0, b, g])
                r_row = np.uint64(nodes[n, R_ROW] + steps.branch_rows[1, b, g])
                has_r = levels[g, HAS_R] != 0
                d0 = np.uint64(levels[g, BUFFER])
                source, s0 = origin, ZERO
                if g > 0:
                    source, s0 = arena, np.uint64(levels[g - 1, BUFFER])
                place = _Place(
                    s0,
                    d0,
                    np.uint64(levels[g, M_BASE]) + row * n_v * n_u,
                    np.uint64(levels[g, F_BASE]) + row * n_u,
                    np.uint64(levels[g, R_BASE]) + r_row * n_u,
                    np.uint64(levels[g, CTX_BASE]),
                )
                if sorted_rows:
                    _step_sorted(
                        source, arena, tables, place, shape, has_r, room.order, ball, worst
                    )
                elif nested:
                    _step_nested(source, arena, tables, place, shape, has_r)
                elif shape.inner == ONE:
                    _step_last(source, arena, tables, place, shape, has_r)
                else:
                    _step_vector(source, arena, tables, place, shape, has_r)
                leaf = nodes[n, LEAF]
                if leaf < 0:
                    continue
                if mode == POLICY:
                    for k in range(n_cells):
                        if steps.action_leaf[actions[c_base + offsets[1, k]]] == leaf:
                            best[k] = arena[d0 + k]
                elif mode == VALUES:
                    for k in range(n_cells):
                        at = (c_base + offsets[1, k]) * steps.action_leaf.shape[0]
                        for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                            new[at + leaf_actions[p]] = arena[d0 + k]
                elif mode == GREEDY:
                    for k in range(n_cells):
                        x = new[base + offsets[0, k]]
                        if arena[d0 + k] < x - choice.slack:
                            continue
                        state = c_base + offsets[1, k]
                        for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                            if _is_preferred(choice, state, leaf_actions[p], actions[state]):
                                actions[state] = leaf_actions[p]
                                best[k] = arena[d0 + k]
                else:
                    for k in range(n_cells):
                        x, y = best[k], arena[d0 + k]
                        best[k] = x if x > y else y
            if mode != VALUES:
                for k in range(n_cells):
                    new[base + offsets[0, k]] = best[k]
        if mode != ITERATE:
            return 1
        truncate(new, pace.axes, pace.budgets)
        residual(h, new, room.extremes)
        if room.extremes[1] - room.extremes[0] <= pace.tolerance or sweep_number == last_sweep:
            return sweep_number
        advance(h, new, pace.tau, relative_shift(room.extremes, pace.tau, pace.discount))
    return 0


@njit(**_INNER)
def _is_preferred(choice, state, action, held):
    """Whether a tied action takes the place of the one that is held (-1: none)."""
    if held < 0:
        return True
    if choice.rule == 1:
        return action < held
    if choice.rule == 2:
        return action > held
    rank, other = tie_hash(choice.seed, state, action), tie_hash(choice.seed, state, held)
    return rank < other or (rank == other and action < held)


@njit(**_FLAGS)
def residual(h, new, extremes):
    """extremes <- min and max of new - h, and the largest |h| (for the rounding allowance)."""
    low, high, size = np.inf, -np.inf, 0.0
    for s in range(h.shape[0]):
        d = new[s] - h[s]
        low = d if d < low else low
        high = d if d > high else high
        size = max(size, abs(h[s]))
    extremes[0], extremes[1], extremes[2] = low, high, size


@njit(**_FLAGS)
def advance(h, new, tau, shift):
    """h <- (1 - tau) h + tau new - shift."""
    for s in range(h.shape[0]):
        h[s] += tau * (new[s] - h[s]) - shift


@njit(**_FLAGS)
def relative_shift(extremes, tau, discount):
    """The constant taken off in every sweep so that h stays bounded (none under a discount)."""
    return tau * 0.5 * (extremes[0] + extremes[1]) if discount == 1.0 else 0.0


@njit(**_FLAGS)
def gather_products(base, sources, out):
    """Every entry the product of its sources: joint rows of fused groups."""
    for g in range(sources.parts.shape[0]):
        parts, start, end = sources.parts[g], sources.start[g], sources.start[g + 1]
        first = sources.first[g]
        at = sources.at[first : first + parts * (end - start)].reshape(parts, end - start)
        own = out[start:end]
        for k in range(own.shape[0]):
            x = base[at[0, k]]
            for q in range(1, parts):
                x *= base[at[q, k]]
            own[k] = x


@njit(**_FLAGS)
def gather_sums(base, sources, out):
    """Every entry the sum of its sources: what several factors pay."""
    for g in range(sources.parts.shape[0]):
        parts, start, end = sources.parts[g], sources.start[g], sources.start[g + 1]
        first = sources.first[g]
        at = sources.at[first : first + parts * (end - start)].reshape(parts, end - start)
        own = out[start:end]
        for k in range(own.shape[0]):
            x = 0.0
            for q in range(parts):
                x += base[at[q, k]]
            own[k] = x
