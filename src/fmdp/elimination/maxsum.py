"""Compiled passes over the schedule of a cost network (see network.py).

One flat buffer holds the tables of the functions, followed by the messages. A schedule is a list of
blocks. The items of a block share their index maps and differ in where they read and write:

    message[out + map_out[j]] = max over j of  sum over inputs q of buffer[in_q + map_q[j]].

`best` holds the maximiser j of every message entry, so an optimal assignment is read off by
following the inputs of the maximisers down to the functions. A position in the buffer identifies
the table entry and the function, so a list of positions is all that a constraint of a linear
program needs. Every pass is linear in the number of joint entries.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
ShortInts = NDArray[np.int32]


class Schedule(NamedTuple):
    """The blocks of items as arrays of the compiled passes."""

    maps: ShortInts
    """Index maps, end to end; a map is identified by its start."""
    block_items: Ints
    """[blocks + 1]: the first item of every block."""
    block_joint: Ints
    """[blocks]: number of joint entries."""
    block_inputs: Ints
    """[blocks + 1]: start of the block's input maps in `input_map`."""
    block_out_map: Ints
    block_out_size: Ints
    input_map: Ints
    item_block: ShortInts
    item_input: Ints
    """[items]: start of the item's input positions in `input_at`."""
    input_at: Ints
    item_out: Ints
    """[items]: position of the item's message."""
    owner: ShortInts
    """[message entries]: the item that writes it."""
    variables: ShortInts
    """The variables of every block's joint table, last fastest, one block after another."""
    first_variable: Ints
    """[blocks + 1]: start of the block's variables."""


class Messages(NamedTuple):
    """Buffer, maximisers and workspace of one network."""

    buffer: Floats
    best: ShortInts
    """[message entries]: the joint entry that attains the maximum."""
    stack: Ints


Packed = tuple[tuple[NDArray[Any], ...], tuple[NDArray[Any], ...]]
"""The arrays of a Schedule and of Messages as plain tuples, whose types Numba infers much faster
than those of named tuples; a re-plan passes them a hundred times."""


@njit(nogil=True)
def evaluate(network: Packed) -> None:
    """Compute every message from the functions at the head of the buffer."""
    schedule, messages = Schedule(*network[0]), Messages(*network[1])
    buffer, best = messages.buffer, messages.best
    maps, input_map, input_at = schedule.maps, schedule.input_map, schedule.input_at
    first_message = buffer.shape[0] - best.shape[0]
    for block in range(schedule.block_joint.shape[0]):
        joint = schedule.block_joint[block]
        first_map = schedule.block_inputs[block]
        n_inputs = schedule.block_inputs[block + 1] - first_map
        out_map = schedule.block_out_map[block]
        out_size = schedule.block_out_size[block]
        for item in range(schedule.block_items[block], schedule.block_items[block + 1]):
            out = schedule.item_out[item]
            reads = schedule.item_input[item]
            for entry in range(out, out + out_size):
                buffer[entry] = -np.inf
            for j in range(joint):
                total = 0.0
                for q in range(n_inputs):
                    total += buffer[input_at[reads + q] + maps[input_map[first_map + q] + j]]
                entry = out + maps[out_map + j]
                if total > buffer[entry]:
                    buffer[entry] = total
                    best[entry - first_message] = j


@njit(nogil=True)
def trace(network: Packed, heads: Ints, begin: Ints, counts: Ints, entries: Ints) -> int:
    """Write the function entries that sum to each message entry of `heads` to `entries`. Head r
    starts from the joint entry begin[r], or from its maximiser if that is negative. `counts`
    receives the number of entries per head. Return their total."""
    schedule, messages = Schedule(*network[0]), Messages(*network[1])
    best, stack = messages.best, messages.stack
    maps, input_map, input_at = schedule.maps, schedule.input_map, schedule.input_at
    n_functions = messages.buffer.shape[0] - best.shape[0]
    total = 0
    for r in range(heads.shape[0]):
        before = total
        depth = 1
        stack[0] = heads[r]
        while depth > 0:
            depth -= 1
            entry = stack[depth]
            item = schedule.owner[entry - n_functions]
            block = schedule.item_block[item]
            j = np.int64(best[entry - n_functions])
            if entry == heads[r] and begin[r] >= 0:
                j = begin[r]
            first_map = schedule.block_inputs[block]
            reads = schedule.item_input[item]
            for q in range(schedule.block_inputs[block + 1] - first_map):
                read = input_at[reads + q] + maps[input_map[first_map + q] + j]
                if read < n_functions:
                    entries[total] = read
                    total += 1
                else:
                    stack[depth] = read
                    depth += 1
        counts[r] = total - before
    return total


@njit(nogil=True)
def assign(network: Packed, start: int, sizes: Ints, values: Ints) -> None:
    """Write the assignment behind the message entry at `start` into `values`. Variables that no
    function reads are left unchanged."""
    schedule, messages = Schedule(*network[0]), Messages(*network[1])
    best, stack = messages.best, messages.stack
    maps, input_map, input_at = schedule.maps, schedule.input_map, schedule.input_at
    n_functions = messages.buffer.shape[0] - best.shape[0]
    depth = 1
    stack[0] = start
    while depth > 0:
        depth -= 1
        entry = stack[depth]
        item = schedule.owner[entry - n_functions]
        block = schedule.item_block[item]
        j = best[entry - n_functions]
        rest = j
        first_variable = schedule.first_variable[block]
        for position in range(schedule.first_variable[block + 1] - 1, first_variable - 1, -1):
            variable = schedule.variables[position]
            values[variable] = rest % sizes[variable]
            rest //= sizes[variable]
        first_map = schedule.block_inputs[block]
        reads = schedule.item_input[item]
        for q in range(schedule.block_inputs[block + 1] - first_map):
            read = input_at[reads + q] + maps[input_map[first_map + q] + j]
            if read >= n_functions:
                stack[depth] = read
                depth += 1
