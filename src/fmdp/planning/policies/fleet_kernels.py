"""Compiled decisions of fleet policies: the joint action of all parts in a state."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Rules(NamedTuple):
    """A policy of a fleet. A *row* is a (type, state of the part), numbered over all types."""

    row_start: Ints  # [parts]: the row of state 0 of the part's type
    cost_start: Ints  # [parts]: the cost of its action 0
    cheapest: Ints  # [rows]
    ranks: Ints  # [rows, candidates]: the rank of each candidate, 0 first; -1 if it is none
    candidates: Ints  # [rows, candidates]: actions
    n_ranks: int
    costs: Ints  # [types and actions, budgets]
    limits: Ints  # [budgets]
    order: Ints  # [parts] or empty: the order in which parts follow their own policies
    profiles: Ints  # [parts] or empty: which of the policies of its type a part follows
    wishes: Ints  # [profiles, rows]: these policies


class Layout(NamedTuple):
    """Which part each variable belongs to, and its weight in the state or action of the part."""

    state_part: Ints
    state_step: Ints
    action_part: Ints
    action_step: Ints
    action_sizes: Ints


@njit(nogil=True)
def choose(rules: Rules, states: Ints, actions: Ints, head: Ints, after: Ints, left: Ints) -> None:
    """Fill in the action of every part; `head`, `after` and `left` are workspaces.

    The cheapest actions come first. Then parts follow their own policies, in order, while the
    budgets last. Then candidates of the parts that still have their cheapest action are taken by
    rank; a later candidate of a part replaces an earlier one.
    """
    n_parts, n_budgets = len(states), len(rules.limits)
    left[:] = rules.limits
    for p in range(n_parts):
        actions[p] = rules.cheapest[rules.row_start[p] + states[p]]
        for k in range(n_budgets):
            left[k] -= rules.costs[rules.cost_start[p] + actions[p], k]
    for p in rules.order:
        wish = rules.wishes[rules.profiles[p], rules.row_start[p] + states[p]]
        if wish != actions[p]:
            take(rules, p, wish, actions, left)
    width = rules.candidates.shape[1]
    head[: rules.n_ranks] = -1
    # Lists are filled from the back, so that parts of equal rank come in order.
    for p in range(n_parts - 1, -1, -1):
        row = rules.row_start[p] + states[p]
        if actions[p] != rules.cheapest[row]:
            continue
        for c in range(width):
            rank = rules.ranks[row, c]
            if rank >= 0:
                after[p * width + c] = head[rank]
                head[rank] = p * width + c
    for rank in range(rules.n_ranks):
        # Actions that cost nothing come first; when nothing is left, no other can be taken.
        if rank > 0 and n_budgets > 0 and left.max() == 0:
            break
        at = head[rank]
        while at >= 0:
            p = at // width
            row = rules.row_start[p] + states[p]
            take(rules, p, rules.candidates[row, at % width], actions, left)
            at = after[at]


@njit(nogil=True)
def take(rules: Rules, p: int, action: int, actions: Ints, left: Ints) -> None:
    """Let a part take another action if the budgets allow it."""
    new, old = rules.cost_start[p] + action, rules.cost_start[p] + actions[p]
    for k in range(len(left)):
        if rules.costs[new, k] - rules.costs[old, k] > left[k]:
            return
    for k in range(len(left)):
        left[k] -= rules.costs[new, k] - rules.costs[old, k]
    actions[p] = action


@njit(nogil=True)
def choose_each(
    rules: Rules,
    layout: Layout,
    states: Ints,
    actions: Ints,
    head: Ints,
    after: Ints,
    left: Ints,
) -> None:
    """Fill in the actions [states, action variables] of many states [states, state variables]."""
    n_parts = len(rules.row_start)
    of_parts = np.empty(n_parts, dtype=np.int64)
    chosen = np.empty(n_parts, dtype=np.int64)
    for b in range(len(states)):
        of_parts[:] = 0
        for v in range(states.shape[1]):
            of_parts[layout.state_part[v]] += states[b, v] * layout.state_step[v]
        choose(rules, of_parts, chosen, head, after, left)
        for v in range(actions.shape[1]):
            value = chosen[layout.action_part[v]] // layout.action_step[v]
            actions[b, v] = value % layout.action_sizes[v]
