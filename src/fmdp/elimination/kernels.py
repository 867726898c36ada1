"""Compiled kernels of the elimination engine: sweeps and value iteration, made of steps (steps.py).

Every output number is computed by one thread in one order, so a sweep gives the same bits on any
number of threads.

Numba optimises a function again inside each of its callers. Therefore one function, `run`, walks
the program in all modes.

`run` takes plain tuples and converts them to named ones: Numba needs half a microsecond per call to
find the type of a named tuple, and a re-plan of a small model takes few microseconds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fmdp._base.compiled import njit
from fmdp.elimination.steps import (
    FLAGS,
    INLINED,
    INSIDE,
    ONE,
    ZERO,
    Index,
    Place,
    Shape,
    Tables,
    Vector,
    step_divergence,
    step_last,
    step_nested,
    step_sorted,
    step_vector,
)
from fmdp.elimination.ties import tie_hash
from fmdp.elimination.truncation import NO_TRUNCATION, truncate

# Columns of `levels`, one row per group (program.py writes them).
OUTER, REP, V, U, INNER, M_BASE, R_BASE, CTX_BASE, F_BASE, HAS_R, BUFFER, APART = range(12)
N_LEVEL_FIELDS = 12
# Columns of `nodes`, one row per step of the program, in depth-first order.
LEVEL, M_ROW, R_ROW, LEAF = range(4)
N_NODE_FIELDS = 4
# Kinds of the set that a row is chosen from.
FREE, BOX, BALL, DIVERGENCE = range(4)
# Modes of `run`.
BACKUP, ITERATE, GREEDY, POLICY, VALUES = range(5)


class Steps(NamedTuple):
    """The steps of a program, and the tables that they read in the order of reading."""

    levels: Index
    nodes: Index
    contexts: Index  # [2, cells]: rows of the transition tables and of the rewards
    branch_rows: Index  # [2, branches, groups]: offsets that a branch adds to these
    branch_bases: Index
    """[3, branches]: its first state: in vectors, in C order, and in the table of actions."""
    offsets: Index  # [3, cells of the last tensor]: offsets that a cell adds to these
    leaf_start: Index  # [leaves + 1]: where the joint actions of a leaf begin
    leaf_actions: Index
    action_leaf: Index  # [joint actions], -1 for those that are not enumerated
    rows: Vector  # M: joint rows of the groups
    free: Vector  # free masses; empty where targets are not nested
    rewards: Vector
    caps: Vector
    """The most free mass that each value can take, laid out as `rows`; for divergences the largest
    probability; empty for other sets."""
    shape: Index
    """[2]: the kind of set of a row (FREE, BOX, BALL, DIVERGENCE); 1 if the worst p of the set is
    taken, else 0."""


class Sources(NamedTuple):
    """The entries of a model's concatenated tables that the entries of `Steps` are made of.

    Group g has the entries start[g] <= e < start[g + 1]; the k-th is made of parts[g] numbers,
    at[first[g] + q * (start[g + 1] - start[g]) + k] for q < parts[g].
    """

    at: Index
    first: Index
    parts: Index
    start: Index


class Room(NamedTuple):
    """The workspace of one thread."""

    arena: Vector
    """The tensors between the steps, concatenated."""
    best: Vector
    """[cells of the last tensor]"""
    extremes: Vector
    """Smallest and largest residual of the last sweep, and the largest |h|."""
    stop: Index
    """Set to 1 by another thread to end this one."""
    order: Index
    """[values of the largest variable + 1]: the order of the values of the last cell, from which
    the next sort starts; the last entry is the number of these values."""


class Pace(NamedTuple):
    """The parameters of value iteration."""

    sweeps: int = 1
    """Most sweeps."""
    tolerance: float = 0.0
    """It ends when max(L h - h) - min(L h - h) is at most this."""
    tau: float = 1.0
    """Damping: h <- (1 - tau) h + tau L h."""
    discount: float = 1.0
    axes: Index = NO_TRUNCATION.axes
    budgets: Vector = NO_TRUNCATION.budgets
    """Axes and budgets of the truncation; empty without one."""


class Chosen(NamedTuple):
    """The actions to take or to fill in, and how ties are broken."""

    actions: Index
    """[states], in C order (in the engine for MPI: those of one process)."""
    slack: float
    rule: int
    seed: int


@njit(**INSIDE)
def is_preferred(choice, state, action, held):
    """Return whether a tied action replaces the action that is held (-1: none)."""
    if held < 0:
        return True
    if choice.rule == 1:
        return action < held
    if choice.rule == 2:
        return action > held
    rank, other = tie_hash(choice.seed, state, action), tie_hash(choice.seed, state, held)
    return rank < other or (rank == other and action < held)


@njit(**INLINED)
def _take_leaf(mode, steps, leaf, room, d0, bases, choice, new):
    """Use the values of the joint actions of a leaf, which are in the arena from d0 on."""
    base, c_base, a_base = bases
    arena, best, offsets, actions = room.arena, room.best, steps.offsets, choice.actions
    leaf_start, leaf_actions = steps.leaf_start, steps.leaf_actions
    n_cells = np.uint64(best.shape[0])
    if mode == POLICY:
        for k in range(n_cells):
            if steps.action_leaf[actions[a_base + offsets[2, k]]] == leaf:
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
            state, at = c_base + offsets[1, k], a_base + offsets[2, k]
            for p in range(leaf_start[leaf], leaf_start[leaf + 1]):
                if is_preferred(choice, state, leaf_actions[p], actions[at]):
                    actions[at] = leaf_actions[p]
                    best[k] = arena[d0 + k]
    else:
        for k in range(n_cells):
            x, y = best[k], arena[d0 + k]
            best[k] = x if x > y else y


@njit(**FLAGS)
def run(
    mode,
    h,
    new,
    scratch,
    first,
    end,
    steps,
    room,
    pace,
    choice,
    nested,
    ordered,
    divergent,
    truncated,
):
    """Walk the program for the branches first <= b < end.

    BACKUP    new <- max over joint actions of (reward + P h)
    POLICY    new <- reward + P h under the actions of `choice`
    GREEDY    actions <- an action that attains new = L h up to the slack in every state, ties as
              ties.py says; new <- what the chosen action is worth
    VALUES    new <- reward + P h of every joint action: [states in C order, joint actions], flat
    ITERATE   up to `pace.sweeps` backups of (damped, discounted) relative value iteration, each
              followed by the truncation of truncation.py. On return new = truncate L h and
              `room.extremes` is their residual: h is not moved after the last sweep, so that the
              certificate, the bias and the greedy policy belong to the same h.

    Returns the number of sweeps, or -1, with incomplete output, when another thread has set
    room.stop[0].

    The last four arguments are None or True: `nested` if rows are chosen from a set, `ordered` if
    that is a box or a ball, `divergent` if it is a ball of the divergence, `truncated` if `pace`
    has a truncation. Numba removes branches on None
    before it compiles, so that each kind of plan compiles only the steps that it takes.
    """
    steps, room, pace, choice = Steps(*steps), Room(*room), Pace(*pace), Chosen(*choice)
    arena, best = room.arena, room.best
    levels, nodes, offsets = steps.levels, steps.nodes, steps.offsets
    tables = Tables(steps.rows, steps.free, steps.rewards, steps.contexts, steps.caps)
    ball, worst = steps.shape[0] == BALL, steps.shape[1] != 0
    n_cells = np.uint64(best.shape[0])
    last_sweep = pace.sweeps if mode == ITERATE else 1
    for sweep_number in range(1, last_sweep + 1):
        origin = h
        if mode == ITERATE and pace.discount != 1.0:
            for s in range(h.shape[0]):
                scratch[s] = pace.discount * h[s]
            origin = scratch
        for b in range(first, end):
            base, a_base = steps.branch_bases[0, b], steps.branch_bases[2, b]
            bases = (base, steps.branch_bases[1, b], a_base)
            for k in range(n_cells):
                best[k] = -np.inf
            if mode == GREEDY:
                for k in range(n_cells):
                    choice.actions[a_base + offsets[2, k]] = -1
            for n in range(nodes.shape[0]):
                if room.stop[0] != 0:
                    return -1
                g = nodes[n, LEVEL]
                n_v, n_u = np.uint64(levels[g, V]), np.uint64(levels[g, U])
                shape = Shape(
                    np.uint64(levels[g, OUTER]),
                    np.uint64(levels[g, REP]),
                    n_v,
                    n_u,
                    np.uint64(levels[g, INNER]),
                    np.uint64(levels[g, APART]),
                )
                row = np.uint64(nodes[n, M_ROW] + steps.branch_rows[0, b, g])
                r_row = np.uint64(nodes[n, R_ROW] + steps.branch_rows[1, b, g])
                has_r = levels[g, HAS_R] != 0
                d0 = np.uint64(levels[g, BUFFER])
                source, s0 = origin, ZERO
                if g > 0:
                    source, s0 = arena, np.uint64(levels[g - 1, BUFFER])
                place = Place(
                    s0,
                    d0,
                    np.uint64(levels[g, M_BASE]) + row * n_v * n_u,
                    np.uint64(levels[g, F_BASE]) + row * n_u,
                    np.uint64(levels[g, R_BASE]) + r_row * n_u,
                    np.uint64(levels[g, CTX_BASE]),
                )
                if divergent is not None:
                    step_divergence(source, arena, tables, place, shape, has_r, worst)
                elif ordered is not None:
                    step_sorted(source, arena, tables, place, shape, has_r, room.order, ball, worst)
                elif nested is not None:
                    step_nested(source, arena, tables, place, shape, has_r)
                elif shape.inner == ONE:
                    step_last(source, arena, tables, place, shape, has_r)
                else:
                    step_vector(source, arena, tables, place, shape, has_r)
                if nodes[n, LEAF] >= 0:
                    _take_leaf(mode, steps, nodes[n, LEAF], room, d0, bases, choice, new)
            if mode != VALUES:
                for k in range(n_cells):
                    new[base + offsets[0, k]] = best[k]
        if mode != ITERATE:
            return 1
        if truncated is not None:
            truncate(new, pace.axes, pace.budgets)
        residual(h, new, room.extremes)
        if room.extremes[1] - room.extremes[0] <= pace.tolerance or sweep_number == last_sweep:
            return sweep_number
        advance(h, new, pace.tau, relative_shift(room.extremes, pace.tau, pace.discount))
    return 0


@njit(**FLAGS)
def residual(h, new, extremes):
    """Set extremes to min and max of new - h, and the largest |h| (for the rounding allowance)."""
    low, high, size = np.inf, -np.inf, 0.0
    for s in range(h.shape[0]):
        d = new[s] - h[s]
        low = d if d < low else low
        high = d if d > high else high
        size = max(size, abs(h[s]))
    extremes[0], extremes[1], extremes[2] = low, high, size


@njit(**FLAGS)
def advance(h, new, tau, shift):
    """h <- (1 - tau) h + tau new - shift."""
    for s in range(h.shape[0]):
        h[s] += tau * (new[s] - h[s]) - shift


@njit(**FLAGS)
def relative_shift(extremes, tau, discount):
    """Return the constant subtracted in every sweep to keep h bounded, 0 under a discount."""
    return tau * 0.5 * (extremes[0] + extremes[1]) if discount == 1.0 else 0.0


@njit(**FLAGS)
def gather_products(base, sources, out):
    """Set every entry to the product of its sources: joint rows of fused groups."""
    for g in range(sources.parts.shape[0]):
        parts, start, end = sources.parts[g], sources.start[g], sources.start[g + 1]
        first = sources.first[g]
        for k in range(end - start):
            x = base[sources.at[first + k]]
            for q in range(1, parts):
                x *= base[sources.at[first + q * (end - start) + k]]
            out[start + k] = x


@njit(**FLAGS)
def gather_sums(base, sources, out):
    """Set every entry to the sum of its sources: the rewards of several factors."""
    for g in range(sources.parts.shape[0]):
        parts, start, end = sources.parts[g], sources.start[g], sources.start[g + 1]
        first = sources.first[g]
        for k in range(end - start):
            x = 0.0
            for q in range(parts):
                x += base[sources.at[first + q * (end - start) + k]]
            out[start + k] = x
