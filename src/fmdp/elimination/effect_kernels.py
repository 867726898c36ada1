"""Compiled kernels of effects: maxima one component at a time, and the actions that attain them.

A flat tensor holds one number for every layer (decomposition.py) and joint state, the layer
slowest, the states in elimination order. For one component c, whose local state is y before and s
after the step,

    out[q', .., s, ..] = max over local actions a allowed in s, and layers q that a leads to q',
                         of  cost(s, a) + in[q, .., f(s, a), ..]

in place: the new numbers along the component's axes depend only on the old ones along these axes.
All other coordinates together are `fibres`. A block of them is copied to contiguous memory, so that
the inner loops run over contiguous numbers wherever the axes of the component lie.

Every number is computed by one thread in one order: the same bits on any number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.elimination.ties import tie_hash

Index = NDArray[np.int64]
Vector = NDArray[np.float64]

# Columns of `shapes`, one row per component.
STATES, ACTIONS, INNER, FIBRES, CELL, BASE, START, PAIR, S_AXIS, S_AXES, A_AXIS, A_AXES = range(12)
N_SHAPE_FIELDS = 12
# Columns of `axes`, one row per variable of a component.
STEP, SIZE, LOCAL = range(3)
BLOCK = 64
"""Fibres per block: its numbers stay in the first cache, and the loops are long enough."""

_FLAGS: dict[str, Any] = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}


class Tables(NamedTuple):
    """The components and their rewards, concatenated."""

    shapes: Index  # [components, N_SHAPE_FIELDS]
    cells: Index  # offset in the tensor of every local state
    bases: Index  # first fibre of every run, where these are not equally spaced
    starts: Index  # for every local state, its first choice; one more entry per component
    sources: Index  # [choices]: the local state that a choice leads to
    choices: Index  # [choices]: its local action
    costs: Vector  # [choices]
    kinds: Index  # [choices]
    outcomes: Index  # [local states, local actions] of every component: as `sources`, for all pairs
    pays: Vector  # the same for costs
    pair_kinds: Index  # the same for kinds
    joint: Index  # the same for the local action's share of the index of the joint action
    axes: Index  # [variables, 3]: states in the tensor, then actions in the joint action
    following: Index
    joined: Index
    live: NDArray[np.bool_]
    setups: Vector  # [layers]
    setup: Vector  # [2]: if nothing is done, if something is
    done: Index  # [kinds]: whether something is done
    before: Vector  # [states], or empty


@njit(inline="always", **_FLAGS)
def _gather_block(t, c, n_states, tensor, held, together, o, lanes, w):
    """Copy w fibres of component c to contiguous memory: from offset o on if they lie `together`,
    else from the offsets in `lanes`."""
    size = t.shapes[c, STATES]
    for q in range(t.following.shape[1]):
        if not t.live[c + 1, q]:
            continue
        for y in range(size):
            source = np.uint64(q * n_states + t.cells[t.shapes[c, CELL] + y])
            at = np.uint64((q * size + y) * BLOCK)
            if together:
                for b in range(w):
                    held[at + b] = tensor[source + o + b]
            else:
                for b in range(w):
                    held[at + b] = tensor[source + lanes[b]]


@njit(inline="always", **_FLAGS)
def _best_choices(t, c, s, held, w, best, fresh):
    """Set best[q'] to the maximum over the choices in local state s of component c, for w fibres.
    fresh[q'] stays True for layers that no choice leads to."""
    n_layers, size, start = t.following.shape[1], t.shapes[c, STATES], t.shapes[c, START] + s
    for q in range(n_layers):
        fresh[q] = True
    for e in range(t.starts[start], t.starts[start + 1]):
        cost, y, kind = t.costs[e], t.sources[e], t.kinds[e]
        for q in range(n_layers):
            if not t.live[c + 1, q]:
                continue
            into = t.following[kind, q]
            if into < 0:
                continue
            at, to = np.uint64((q * size + y) * BLOCK), np.uint64(into * BLOCK)
            if fresh[into]:
                fresh[into] = False
                for b in range(w):
                    best[to + b] = cost + held[at + b]
            else:
                for b in range(w):
                    x, z = best[to + b], cost + held[at + b]
                    best[to + b] = x if x > z else z


@njit(**_FLAGS)
def maximise(tensor, n_states, tables, component, component_end, first, end, blocks, stop):
    """Take the step above for components component_end - 1, ..., component, in this order.

    The tensor is divided into `blocks` blocks, and the step of none of these components leaves a
    block. Blocks first <= b < end are worked on one after the other, so that each stays in cache.
    With 0 blocks there is one component, and `first` and `end` are numbers of its fibres.
    """
    t = Tables(*tables)
    n_layers = t.following.shape[1]
    largest = 0
    for c in range(component, component_end):
        largest = max(largest, t.shapes[c, STATES])
    held = np.empty(n_layers * largest * BLOCK)
    best = np.empty(n_layers * BLOCK)
    fresh = np.empty(n_layers, dtype=np.bool_)
    lanes = np.empty(BLOCK, dtype=np.uint64)
    n_components = component_end - component
    for turn in range((end - first) * n_components if blocks > 0 else 1):
        c = component_end - 1 - turn % n_components
        size, inner = t.shapes[c, STATES], t.shapes[c, INNER]
        cell0, base0 = t.shapes[c, CELL], t.shapes[c, BASE]
        low, high = first, end
        if blocks > 0:
            fibres = t.shapes[c, FIBRES] // blocks
            low = (first + turn // n_components) * fibres
            high = low + fibres
        run, place = low // inner, low % inner
        f = low
        while f < high:
            if stop[0] != 0:
                return
            width = min(BLOCK, high - f)
            if width > inner - place:
                # Several short runs share a block; the last piece of a long run has its fibres.
                width = inner - place if inner >= BLOCK else width
            base = t.bases[base0 + run] if base0 >= 0 else run * size * inner
            together = width <= inner - place
            origin = base + place
            if together:
                place += width
                if place == inner:
                    run, place = run + 1, 0
            else:
                for b in range(width):
                    base = t.bases[base0 + run] if base0 >= 0 else run * size * inner
                    lanes[b] = base + place
                    place += 1
                    if place == inner:
                        run, place = run + 1, 0
            # Unsigned offsets, as in steps.py.
            w, o = np.uint64(width), np.uint64(origin)
            _gather_block(t, c, n_states, tensor, held, together, o, lanes, w)
            for s in range(size):
                _best_choices(t, c, s, held, w, best, fresh)
                for q in range(n_layers):
                    if not t.live[c, q]:
                        continue
                    target = np.uint64(q * n_states + t.cells[cell0 + s])
                    at = np.uint64(q * BLOCK)
                    if fresh[q]:
                        for b in range(w):
                            best[at + b] = -np.inf
                    if together:
                        for b in range(w):
                            tensor[target + o + b] = best[at + b]
                    else:
                        for b in range(w):
                            tensor[target + lanes[b]] = best[at + b]
            f += width


@njit(**_FLAGS)
def collect(tensor, n_states, tables, out, first, end):
    """Set out to before + max over layers of (set-up + tensor), for states first <= s < end."""
    t = Tables(*tables)
    n_layers, has_before = t.following.shape[1], t.before.shape[0] > 0
    for s in range(first, end):
        best = -np.inf
        for q in range(n_layers):
            if t.live[0, q]:
                x = t.setups[q] + tensor[q * n_states + s]
                best = x if x > best else best
        out[s] = t.before[s] + best if has_before else best


@njit(**_FLAGS)
def follow(tables, canonical, actions, places, pays, first, end):
    """Fill in where given actions lead and their rewards, for states first <= s < end.

    `actions` has one entry per state in C order, or a single one for all states. `canonical` is the
    index in C order of each state of the tensor; it is empty where the orders are the same.
    """
    t = Tables(*tables)
    has_before, same = t.before.shape[0] > 0, canonical.shape[0] == 0
    for s in range(first, end):
        action = actions[0]
        if actions.shape[0] > 1:
            action = actions[s] if same else actions[canonical[s]]
        place, paid, done = s, 0.0, 0
        for c in range(t.shapes.shape[0]):
            local, taken = 0, 0
            for j in range(t.shapes[c, S_AXIS], t.shapes[c, S_AXIS] + t.shapes[c, S_AXES]):
                local += s // t.axes[j, STEP] % t.axes[j, SIZE] * t.axes[j, LOCAL]
            for j in range(t.shapes[c, A_AXIS], t.shapes[c, A_AXIS] + t.shapes[c, A_AXES]):
                taken += action // t.axes[j, STEP] % t.axes[j, SIZE] * t.axes[j, LOCAL]
            pair = t.shapes[c, PAIR] + local * t.shapes[c, ACTIONS] + taken
            cell = t.shapes[c, CELL]
            place += t.cells[cell + t.outcomes[pair]] - t.cells[cell + local]
            paid += t.pays[pair]
            done |= t.done[t.pair_kinds[pair]]
        paid += t.setup[done]
        places[s] = place
        pays[s] = t.before[s] + paid if has_before else paid


@njit(**_FLAGS)
def gather(chance, places, pays, out, first, end):
    """Set out to pays + chance[places], for states first <= s < end."""
    for s in range(first, end):
        out[s] = pays[s] + chance[places[s]]


@njit(**_FLAGS)
def settle(tables, layers, pays, first, end):
    """Add the rewards of the state and of the chosen layer."""
    t = Tables(*tables)
    has_before = t.before.shape[0] > 0
    for s in range(first, end):
        paid = pays[s] + t.setups[layers[s]]
        pays[s] = t.before[s] + paid if has_before else paid


@njit(**_FLAGS)
def decide(tensor, n_states, tables, c, value, choice, canonical, decided, first, end):
    """Choose the local action of component c, given those of the components before it.

    This is done for the states of fibres first <= f < end. `tensor` has the maxima over components
    c + 1, c + 2, .... A local action is tied if, followed by the best actions of these components,
    it comes within the slack of `value`; the joint action then does, too.

    `choice` is (slack, rule, seed); `decided` is (places, layers, actions, pays) of the components
    before c.
    """
    t = Tables(*tables)
    slack, rule, seed = choice
    places, layers, actions, pays = decided
    n_layers, has_before = t.following.shape[1], t.before.shape[0] > 0
    same = canonical.shape[0] == 0
    size, inner = t.shapes[c, STATES], t.shapes[c, INNER]
    cell0, base0, start0 = t.shapes[c, CELL], t.shapes[c, BASE], t.shapes[c, START]
    pair0, n_actions = t.shapes[c, PAIR], t.shapes[c, ACTIONS]
    worth = np.empty(n_actions)
    run, place = first // inner, first % inner
    for _ in range(first, end):
        base = t.bases[base0 + run] if base0 >= 0 else run * size * inner
        for local in range(size):
            cell = t.cells[cell0 + local]
            s = base + place + cell
            origin, layer, paid = places[s] - cell, layers[s], pays[s]
            begin, stop = t.starts[start0 + local], t.starts[start0 + local + 1]
            best = -np.inf
            for e in range(begin, stop):
                x = -np.inf
                used = t.following[t.kinds[e], layer]
                if used >= 0:
                    at = origin + t.cells[cell0 + t.sources[e]]
                    for q in range(n_layers):
                        joined = t.joined[used, q]
                        if joined >= 0 and t.live[c + 1, q]:
                            z = t.setups[joined] + tensor[q * n_states + at]
                            x = z if z > x else x
                    x += paid + t.costs[e]
                worth[e - begin] = x
                best = x if x > best else best
            goal = value[s] - slack
            if has_before:
                goal -= t.before[s]
            # Rounding may have put all of them below.
            goal = best if best < goal else goal
            chosen, n_tied = begin, 0
            for e in range(begin, stop):
                if worth[e - begin] >= goal:
                    n_tied += 1
                    chosen = e
            state = s if same else canonical[s]
            if n_tied > 1:
                chosen, rank = -1, np.uint64(0)
                for e in range(begin, stop):
                    if worth[e - begin] < goal:
                        continue
                    key = np.uint64(t.joint[pair0 + t.choices[e]])
                    if rule == 0:
                        key = tie_hash(seed, state, (np.int64(c) << 32) + t.choices[e])
                    elif rule == 2:
                        key = ~key
                    if chosen < 0 or key < rank:
                        chosen, rank = e, key
            places[s] = origin + t.cells[cell0 + t.sources[chosen]]
            layers[s] = t.following[t.kinds[chosen], layer]
            actions[state] += t.joint[pair0 + t.choices[chosen]]
            pays[s] = paid + t.costs[chosen]
        place += 1
        if place == inner:
            run, place = run + 1, 0
