"""Compiled passes over the schedule of a cost network (`network.py` makes it, and names its parts).

One flat buffer holds the tables of the functions first and the messages after them. A schedule is a
list of blocks; the items of a block share their index maps and differ in where they read and write:

    message[out + map_out[j]] = max over j of  sum over inputs q of buffer[in_q + map_q[j]].

`best` remembers the maximiser j of every message entry, so an optimal assignment is read off by
following the inputs of the maximisers down to the functions. A position in the buffer names the
table entry and the function at once: a list of such positions is all that a constraint of a linear
program needs to know. Every pass is linear in the number of joint entries.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Index = NDArray[np.int32]


class Schedule(NamedTuple):
    """Blocks of items; the arrays of the compiled passes."""

    maps: Index
    """Index maps, one after another; a map is known by where it begins."""
    block_items: Ints
    """[blocks + 1]: the first item of every block."""
    block_joint: Ints
    """[blocks]: number of joint entries."""
    block_inputs: Ints
    """[blocks + 1]: where the list of input maps of a block begins in `input_map`."""
    block_out_map: Ints
    block_out_size: Ints
    input_map: Ints
    item_block: Index
    item_input: Ints
    """[items]: where the item's list of input positions begins in `input_at`."""
    input_at: Ints
    item_out: Ints
    """[items]: position of the item's message."""
    owner: Index
    """[message entries]: the item that writes it."""


@numba.njit(cache=True, nogil=True)
def evaluate(schedule: Schedule, buffer: Floats, best: Index) -> None:
    """Compute every message from the functions at the head of the buffer."""
    maps = schedule.maps
    first_message = buffer.shape[0] - schedule.owner.shape[0]
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
                    at = schedule.input_at[reads + q] + maps[schedule.input_map[first_map + q] + j]
                    total += buffer[at]
                entry = out + maps[out_map + j]
                if total > buffer[entry]:
                    buffer[entry] = total
                    best[entry - first_message] = j


@numba.njit(cache=True, nogil=True)
def trace(
    schedule: Schedule, n_functions: int, best: Index, start: int, found: Ints, stack: Ints
) -> int:
    """The function entries that add up to the message entry at `start`, written to `found`;
    returns how many."""
    count = 0
    depth = 1
    stack[0] = start
    while depth > 0:
        depth -= 1
        entry = stack[depth]
        item = schedule.owner[entry - n_functions]
        block = schedule.item_block[item]
        j = best[entry - n_functions]
        first_map = schedule.block_inputs[block]
        reads = schedule.item_input[item]
        for q in range(schedule.block_inputs[block + 1] - first_map):
            at = schedule.input_at[reads + q] + schedule.maps[schedule.input_map[first_map + q] + j]
            if at < n_functions:
                found[count] = at
                count += 1
            else:
                stack[depth] = at
                depth += 1
    return count


@numba.njit(cache=True, nogil=True)
def assign(
    schedule: Schedule,
    n_functions: int,
    best: Index,
    start: int,
    variables: Index,
    sizes: Ints,
    first_variable: Ints,
    values: Ints,
    stack: Ints,
) -> None:
    """Write into `values` the assignment behind the message entry at `start`.

    Block b maximises over the variables variables[first_variable[b]:first_variable[b + 1]], last
    fastest. Variables that no function reads are left as they are.
    """
    depth = 1
    stack[0] = start
    while depth > 0:
        depth -= 1
        entry = stack[depth]
        item = schedule.owner[entry - n_functions]
        block = schedule.item_block[item]
        j = best[entry - n_functions]
        rest = j
        for position in range(first_variable[block + 1] - 1, first_variable[block] - 1, -1):
            variable = variables[position]
            values[variable] = rest % sizes[variable]
            rest //= sizes[variable]
        first_map = schedule.block_inputs[block]
        reads = schedule.item_input[item]
        for q in range(schedule.block_inputs[block + 1] - first_map):
            at = schedule.input_at[reads + q] + schedule.maps[schedule.input_map[first_map + q] + j]
            if at >= n_functions:
                stack[depth] = at
                depth += 1
