"""Compiled code that grows decision trees: splits, labels under constraints, merging of leaves.

A node is a row of integers with the columns below. Children come after their parents. The samples
are the states, reordered so that those of a node are contiguous.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit

Ints = NDArray[np.int64]

LEAF = -1
"""The variable of a leaf."""
FORBIDDEN = -1
"""The number of wrong states of a node that cannot be a leaf."""
VARIABLE, VALUE, UPTO, YES, NO, LABEL, FIRST, END, WRONG = range(9)
"""Columns of a node: the split, its children, the most frequent action, the first and the end of
its states among the samples, and how many of them have another action."""


@njit(nogil=True)
def _xlogx(x: float) -> float:
    return x * math.log(x) if x > 0.0 else 0.0


@njit(nogil=True)
def grow(
    digits: Any,
    labels: Ints,
    n_labels: int,
    steps: Ints,
    offsets: Ints,
    samples: Ints,
    scratch: Ints,
    counts: Ints,
    nodes: Ints,
    done: int,
    made: int,
) -> tuple[int, int]:
    """Split nodes in the order of their creation until all are pure or the array is full.

    Returns the number of processed nodes and the number of nodes.
    """
    stamp = np.full(n_labels, -1, dtype=np.int64)
    local = np.zeros(n_labels, dtype=np.int64)
    known = np.zeros(n_labels, dtype=np.int64)
    total = np.zeros(n_labels, dtype=np.int64)
    before = np.zeros(n_labels, dtype=np.int64)
    while done < made:
        if made + 2 > nodes.shape[0]:
            return done, made
        first, end = nodes[done, FIRST], nodes[done, END]
        states = samples[first:end]
        k = _count_labels(labels, states, done, stamp, local, known, total)
        top = 0
        for j in range(1, k):
            if total[j] > total[top] or (total[j] == total[top] and known[j] < known[top]):
                top = j
        nodes[done, VARIABLE] = LEAF
        nodes[done, LABEL] = known[top]
        nodes[done, WRONG] = end - first - total[top]
        if k == 1:
            done += 1
            continue
        _count_values(digits, labels, states, local, offsets, counts, k)
        variable, value, upto = _best_split(offsets, counts, total, before, k, end - first)
        if variable < 0:
            variable, value = _relevant(digits, labels, steps, states)
        yes = _partition(digits, states, scratch, variable, value, upto)
        nodes[done, VARIABLE] = variable
        nodes[done, VALUE] = value
        nodes[done, UPTO] = upto
        nodes[done, YES] = made
        nodes[done, NO] = made + 1
        nodes[made, FIRST] = first
        nodes[made, END] = first + yes
        nodes[made + 1, FIRST] = first + yes
        nodes[made + 1, END] = end
        made += 2
        done += 1
    return done, made


@njit(nogil=True)
def _count_labels(
    labels: Ints, states: Ints, node: int, stamp: Ints, local: Ints, known: Ints, total: Ints
) -> int:
    """Number the k labels of a node, count their states in `total`, and return k.

    `local` maps a label to its number and `known` is the inverse; `stamp` says which entries of
    `local` belong to this node.
    """
    k = 0
    for s in states:
        y = labels[s]
        if stamp[y] != node:
            stamp[y] = node
            local[y] = k
            known[k] = y
            total[k] = 0
            k += 1
        total[local[y]] += 1
    return k


@njit(nogil=True)
def _count_values(
    digits: Any, labels: Ints, states: Ints, local: Ints, offsets: Ints, counts: Ints, k: int
) -> None:
    """Count the states of a node by value of each variable and label."""
    m = digits.shape[1]
    counts[: offsets[m] * k] = 0
    for s in states:
        y = local[labels[s]]
        for v in range(m):
            counts[(offsets[v] + digits[s, v]) * k + y] += 1


@njit(nogil=True)
def _best_split(
    offsets: Ints, counts: Ints, total: Ints, before: Ints, k: int, n: int
) -> tuple[int, int, int]:
    """Return variable, value and kind of the split with the least entropy; variable -1 if none
    reduces it. The kinds are 0 (one value) and 1 (the values up to it)."""
    whole = _xlogx(float(n))
    for j in range(k):
        whole -= _xlogx(float(total[j]))
    slack = 1e-9 * n
    best, variable, value, upto = whole - slack, -1, 0, 0
    for kind in range(2):
        for v in range(offsets.shape[0] - 1):
            size = offsets[v + 1] - offsets[v]
            if kind == 1 and size < 4:
                continue  # with two or three values, every such split is one of the first kind
            before[:k] = 0
            for x in range(size):
                at = (offsets[v] + x) * k
                inside = 0
                for j in range(k):
                    before[j] = counts[at + j] if kind == 0 else before[j] + counts[at + j]
                    inside += before[j]
                if inside == 0 or inside == n:
                    continue
                cost = _xlogx(float(inside)) + _xlogx(float(n - inside))
                for j in range(k):
                    cost -= _xlogx(float(before[j])) + _xlogx(float(total[j] - before[j]))
                if cost < best - slack:
                    best, variable, value, upto = cost, v, x, kind
    return variable, value, upto


@njit(nogil=True)
def _partition(
    digits: Any, states: Ints, scratch: Ints, variable: int, value: int, upto: int
) -> int:
    """Move the states that answer yes to the front, keep both orders, and return their number."""
    yes = rest = 0
    for s in states:
        have = digits[s, variable]
        if have == value or (upto == 1 and have < value):
            states[yes] = s
            yes += 1
        else:
            scratch[rest] = s
            rest += 1
    states[yes:] = scratch[:rest]
    return yes


@njit(nogil=True)
def _relevant(digits: Any, labels: Ints, steps: Ints, states: Ints) -> tuple[int, int]:
    """Return a variable on which the action depends in an impure box, and its least value there.

    Changing one variable of a state to another value of the box leads to a state of the box.
    """
    for v in range(digits.shape[1]):
        least = digits[states[0], v] + 0
        for s in states:
            least = min(least, digits[s, v] + 0)
        for s in states:
            if labels[s] != labels[s - (digits[s, v] - least) * steps[v]]:
                return v, least
    return -1, 0


@njit(nogil=True)
def allow(
    nodes: Ints,
    samples: Ints,
    kinds: Ints,
    allowed: NDArray[np.bool_],
    labels: Ints,
    n_used: int,
    fits: NDArray[np.bool_],
    weights: Ints,
) -> None:
    """Set label and wrong states of every node to those of its most frequent allowed action.

    A state counts as `weights` [S] of it.

    `fits` [nodes, actions] must be True; it is overwritten with the actions that are allowed in
    every state of a node.
    """
    counts = np.zeros(n_used, dtype=np.int64)
    for node in range(nodes.shape[0] - 1, -1, -1):
        first, end = nodes[node, FIRST], nodes[node, END]
        if nodes[node, VARIABLE] < 0:
            for place in range(first, end):
                kind = kinds[samples[place]]
                for a in range(fits.shape[1]):
                    fits[node, a] &= allowed[kind, a]
        else:
            yes, no = nodes[node, YES], nodes[node, NO]
            for a in range(fits.shape[1]):
                fits[node, a] = fits[yes, a] and fits[no, a]
        counts[:] = 0
        total = 0
        for place in range(first, end):
            counts[labels[samples[place]]] += weights[samples[place]]
            total += weights[samples[place]]
        best, most = -1, -1
        for a in range(fits.shape[1]):
            many = counts[a] if a < n_used else 0
            if fits[node, a] and many > most:
                best, most = a, many
        nodes[node, LABEL] = best
        nodes[node, WRONG] = total - most if best >= 0 else FORBIDDEN


@njit(nogil=True)
def merge(nodes: Ints) -> None:
    """Make a leaf of every node whose children are leaves with the same action."""
    for node in range(nodes.shape[0] - 1, -1, -1):
        if nodes[node, VARIABLE] >= 0:
            yes, no = nodes[node, YES], nodes[node, NO]
            pure = nodes[yes, VARIABLE] < 0 and nodes[no, VARIABLE] < 0
            if pure and nodes[yes, LABEL] == nodes[no, LABEL]:
                nodes[node, VARIABLE] = LEAF
