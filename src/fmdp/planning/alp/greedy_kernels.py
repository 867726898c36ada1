"""Compiled evaluation of greedy policies: argmax over a of Q(s, a) in one state or many."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp.elimination import maxsum
from fmdp.elimination.maxsum import Messages, Packed, Schedule
from fmdp.elimination.ties import mix, tie_hash
from fmdp.planning.alp.slack import tie_slack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 16
"""States that read a table together: more do not fit into the cache, fewer read tables more often.
On `circle:1000` a state takes a fifth of the time that it takes alone."""


class TableLayout(NamedTuple):
    """Positions of the tables of Q's functions, [state rows, decisions] each, in a flat array.

    With a single decision variable a function has one decision per slice, and slice 0 belongs to
    most actions: the specials are the (action, slice) that differ.
    """

    state_variables: Ints  # flat: the state variables of every function
    state_steps: Ints  # flat: their strides in its table
    state_start: Ints  # [functions + 1]: where the variables of a function begin
    base: Ints  # [functions + 1]: where its table begins
    special_start: Ints  # [functions + 1]
    special_action: Ints
    special_slice: Ints


class Query(NamedTuple):
    """The parts of a policy that do not depend on the state."""

    sizes: Ints
    decision_sizes: Ints
    n_actions: int
    indexed: bool
    """True if a state's index is its key for ties."""
    rule: int
    seed: int
    values: Floats
    forbids: bool
    """True if a value is minus infinity: its action is forbidden."""
    layout: tuple[Ints, ...]
    """The arrays of `TableLayout`."""


@njit(nogil=True)
def extract(buffer: Floats, pool: Ints, widths: Ints, base: Ints, values: Floats) -> None:
    """Copy the tables of Q from the network's buffer, maximising over private targets."""
    at = 0
    for f in range(widths.shape[0]):
        for entry in range(base[f], base[f + 1]):
            best = -np.inf
            for _ in range(widths[f]):
                best = max(best, buffer[pool[at]])
                at += 1
            values[entry] = best


@njit(nogil=True)
def state_key(state: Ints, sizes: Ints, indexed: bool) -> np.uint64:
    """Return the same as elimination.ties.state_key."""
    if indexed:
        index = np.int64(0)
        for v in range(sizes.shape[0]):
            index = index * sizes[v] + state[v]
        return np.uint64(index)
    key = np.uint64(0)
    for v in range(sizes.shape[0]):
        key = mix(key ^ np.uint64(state[v]))
    return key >> np.uint64(1)


@njit(nogil=True)
def _better(rule: int, seed: int, key: Any, candidate: int, incumbent: int) -> bool:
    """Return whether the rule prefers a tied candidate to a tied incumbent of lower index."""
    if rule == 0:
        return bool(tie_hash(seed, key, candidate) < tie_hash(seed, key, incumbent))
    return rule == 2


@njit(nogil=True)
def choose_single(packed: Any, state: Ints, actions: Ints) -> None:
    """Choose the actions of the given state and of its successors in C order; advances `state`."""
    query = Query(*packed)
    block = np.empty((min(BLOCK, actions.shape[0]), state.shape[0]), dtype=np.int64)
    for first in range(0, actions.shape[0], BLOCK):
        n = min(BLOCK, actions.shape[0] - first)
        for r in range(n):
            block[r] = state
            _next_state(state, query.sizes)
        _choose_block(query, block[:n], actions[first : first + n])


@njit(nogil=True)
def choose_single_each(packed: Any, states: Ints, actions: Ints) -> None:
    """Choose the action of every row of states."""
    query = Query(*packed)
    for first in range(0, states.shape[0], BLOCK):
        end = min(first + BLOCK, states.shape[0])
        _choose_block(query, states[first:end], actions[first:end])


@njit(nogil=True)
def _choose_block(query: Any, states: Ints, actions: Ints) -> None:
    """Choose the actions of a few states at once, which read each table while it is cached."""
    layout, values = TableLayout(*query.layout), query.values
    variables, steps = layout.state_variables, layout.state_steps
    n, n_actions = states.shape[0], query.decision_sizes[0]
    q = np.zeros((n, n_actions))
    total, size = np.zeros(n), np.zeros(n)
    # Functions that forbid an action are counted, not added: infinities do not cancel.
    forbidding_all = np.zeros(n, dtype=np.int64)
    forbidding = np.zeros((n if query.forbids else 0, n_actions), dtype=np.int64)
    for f in range(layout.base.shape[0] - 1):
        first, end = layout.special_start[f], layout.special_start[f + 1]
        consecutive = n > 1 and not query.forbids and _consecutive(layout, first, end)
        for r in range(n):
            at = layout.base[f]
            for position in range(layout.state_start[f], layout.state_start[f + 1]):
                at += steps[position] * states[r, variables[position]]
            usual = values[at]
            forbidden = usual == -np.inf
            if forbidden:
                forbidding_all[r] += 1
                usual = 0.0
            total[r] += usual
            size[r] += abs(usual)
            if consecutive:
                a, at = layout.special_action[first], at + layout.special_slice[first]
                _add_differences(q[r, a : a + end - first], values[at : at + end - first], usual)
                continue
            for s in range(first, end):
                special = values[at + layout.special_slice[s]]
                if query.forbids:
                    if special == -np.inf:
                        forbidding[r, layout.special_action[s]] += 0 if forbidden else 1
                        continue
                    forbidding[r, layout.special_action[s]] -= 1 if forbidden else 0
                q[r, layout.special_action[s]] += special - usual
    for r in range(n):
        best = -np.inf
        for a in range(n_actions):
            excluded = forbidding_all[r] + (forbidding[r, a] if query.forbids else 0)
            q[r, a] = q[r, a] + total[r] if excluded == 0 else -np.inf
            best = max(best, q[r, a])
        least = best - tie_slack(size[r])
        key = state_key(states[r], query.sizes, query.indexed)
        chosen = -1
        for a in range(n_actions):
            if q[r, a] >= least and (chosen < 0 or _better(query.rule, query.seed, key, a, chosen)):
                chosen = a
        actions[r] = max(chosen, 0)


@njit(nogil=True)
def _add_differences(q: Floats, values: Floats, usual: float) -> None:
    for k in range(q.shape[0]):
        q[k] += values[k] - usual


@njit(nogil=True)
def _consecutive(layout: Any, first: int, end: int) -> bool:
    """Return whether specials have consecutive actions and slices, so that vector code applies."""
    if first == end:
        return False
    action = layout.special_action[first] - first
    place = layout.special_slice[first] - first
    for s in range(first, end):
        if layout.special_action[s] - s != action or layout.special_slice[s] - s != place:
            return False
    return True


@njit(nogil=True)
def choose_jointly(packed: Any, network: Packed, state: Ints, decisions: Any) -> None:
    """Choose the decisions of the given state and of its successors in C order; advances `state`.

    Each state fills the network, maximises, and descends from the root within the tie tolerance.
    """
    query = Query(*packed)
    for number in range(decisions.shape[0]):
        size = _fill_network(query, state, network)
        maxsum.evaluate(network)
        key = state_key(state, query.sizes, query.indexed)
        chosen = decisions[number]
        chosen[:] = -1
        _descend(query, network, key, tie_slack(size), chosen)
        for variable in range(query.n_actions):
            if chosen[variable] < 0:  # no function depends on it: all its values are tied
                variable_key = _variable_key(key, variable, query.n_actions)
                chosen[variable] = 0
                for option in range(1, query.decision_sizes[variable]):
                    if _better(query.rule, query.seed, variable_key, option, chosen[variable]):
                        chosen[variable] = option
        _next_state(state, query.sizes)


# Calls that pass all arrays of a policy and a network cost a fifth of the time: inlined.
@njit(nogil=True, forceinline=True)
def _fill_network(query: Any, state: Ints, network: Packed) -> float:
    """Write Q at one state into the network; return the sum of its functions' largest |value|."""
    layout, values = TableLayout(*query.layout), query.values
    variables, steps = layout.state_variables, layout.state_steps
    buffer = Messages(*network[1]).buffer
    to = 0
    size = 0.0
    for f in range(layout.base.shape[0] - 1):
        at = layout.base[f]
        rows = layout.base[f + 1] - at
        for position in range(layout.state_start[f], layout.state_start[f + 1]):
            at += steps[position] * state[variables[position]]
            rows //= query.sizes[variables[position]]
        largest = 0.0
        for entry in range(rows):
            value = values[at + entry]
            buffer[to] = value
            if value != -np.inf:
                largest = max(largest, abs(value))
            to += 1
        size += largest
    return size


@njit(nogil=True, forceinline=True)
def _descend(query: Any, network: Packed, key: np.uint64, slack: float, chosen: Ints) -> None:
    """Fix the decisions from the root of the evaluated network down, losing at most the slack."""
    schedule, messages = Schedule(*network[0]), Messages(*network[1])
    buffer, best, stack = messages.buffer, messages.best, messages.stack
    maps, input_map, input_at = schedule.maps, schedule.input_map, schedule.input_at
    n_functions = buffer.shape[0] - best.shape[0]
    depth = 1
    stack[0] = buffer.shape[0] - 1
    while depth > 0:
        depth -= 1
        entry = stack[depth]
        item = schedule.owner[entry - n_functions]
        block = schedule.item_block[item]
        first_map = schedule.block_inputs[block]
        n_inputs = schedule.block_inputs[block + 1] - first_map
        reads = schedule.item_input[item]
        options = schedule.block_joint[block] // schedule.block_out_size[block]
        first = (entry - schedule.item_out[item]) * options
        j = best[entry - n_functions]
        variable = -1  # the fastest of the joint table, which is maximised over
        if schedule.first_variable[block + 1] > schedule.first_variable[block]:
            variable = schedule.variables[schedule.first_variable[block + 1] - 1]
        if 0 <= variable < query.n_actions:
            variable_key = _variable_key(key, variable, query.n_actions)
            taken = -1
            lost = 0.0
            for option in range(options):
                total = 0.0
                for q in range(n_inputs):
                    place = input_map[first_map + q] + first + option
                    total += buffer[input_at[reads + q] + maps[place]]
                loss = buffer[entry] - total
                if loss <= slack and (
                    taken < 0 or _better(query.rule, query.seed, variable_key, option, taken)
                ):
                    taken = option
                    lost = loss
            slack -= lost
            taken = max(taken, 0)  # only an inconsistent file forbids every option
            chosen[variable] = taken
            j = first + taken
        for q in range(n_inputs):
            read = input_at[reads + q] + maps[input_map[first_map + q] + j]
            if read >= n_functions:
                stack[depth] = read
                depth += 1


@njit(nogil=True)
def choose_jointly_each(packed: Any, network: Packed, states: Ints, decisions: Ints) -> None:
    """Apply `choose_jointly` to every row of states."""
    for r in range(states.shape[0]):
        choose_jointly(packed, network, states[r].copy(), decisions[r : r + 1])


@njit(nogil=True)
def _variable_key(key: np.uint64, variable: int, n_actions: int) -> np.uint64:
    """Return the key of an action variable. A single one breaks its ties as the exact planner
    does; several must have different keys."""
    if n_actions == 1:
        return key
    mixed: np.uint64 = mix(key ^ mix(np.uint64(variable)))
    return mixed


@njit(nogil=True)
def _next_state(state: Ints, sizes: Ints) -> None:
    for v in range(sizes.shape[0] - 1, -1, -1):
        state[v] += 1
        if state[v] < sizes[v]:
            return
        state[v] = 0
