"""Finite product spaces: assignments of variables and their index x[Z].

A joint assignment x of variables with sizes (n_1, ..., n_k) has the index

    index(x) = sum_j x_j * stride_j,   stride_j = n_{j+1} * ... * n_k

that is C order, the last variable fastest, everywhere in the library. Counts and indices of single
assignments are exact Python integers, however large the space. Arrays over all assignments have one
int64 per entry and are refused (TooLarge) above a limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge

FloatArray: TypeAlias = npt.NDArray[np.float64]
IndexArray: TypeAlias = npt.NDArray[np.int64]

ARRAY_LIMIT_BYTES = 2**32
"""Largest array over all assignments."""
MAX_SIZE = 2**24
"""Largest number of values of a variable: each value has a name and is a column of a table."""
_LONGEST_SHOWN = 200


def count(sizes: Sequence[int]) -> int:
    """Return the number of joint assignments, exact; 1 for no variables."""
    return math.prod(int(size) for size in sizes)


def strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the step in the index when each variable grows by one."""
    steps: list[int] = []
    step = 1
    for size in reversed(sizes):
        steps.append(step)
        step *= int(size)
    return tuple(reversed(steps))


def starts(counts: Sequence[int] | IndexArray) -> IndexArray:
    """Return the offsets of concatenated parts of these lengths, and the total length."""
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(np.asarray(counts, dtype=np.int64), out=bounds[1:])
    return bounds


def encode(assignment: Sequence[int], sizes: Sequence[int]) -> int:
    """Return the index of one assignment."""
    if len(assignment) != len(sizes):
        raise InvalidParameter(
            f"assignment {shown_tuple(assignment)} has {len(assignment)} values; "
            f"must have {len(sizes)}"
        )
    index = 0
    for position, (value, size) in enumerate(zip(assignment, sizes, strict=True)):
        whole = whole_number(value)
        if whole is None or not 0 <= whole < size:
            raise InvalidParameter(
                f"assignment {shown_tuple(assignment)}: value {shown(value)} at position "
                f"{position} must be in 0..{size - 1}"
            )
        index = index * int(size) + whole
    return index


def decode(index: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the assignment with this index."""
    total = count(sizes)
    if not 0 <= index < total:
        raise InvalidParameter(f"index {shown(index)} must be in 0..{shown(total - 1)}")
    rest = int(index)
    values: list[int] = []
    for size in reversed(sizes):
        rest, value = divmod(rest, int(size))
        values.append(value)
    return tuple(reversed(values))


def all_assignments(sizes: Sequence[int]) -> IndexArray:
    """Return every assignment in order: [count(sizes), len(sizes)]."""
    total = count(sizes)
    refuse_above_limit(total * len(sizes))
    indices = np.arange(total, dtype=np.int64)
    assignments = np.empty((total, len(sizes)), dtype=np.int64)
    for position, (step, size) in enumerate(zip(strides(sizes), sizes, strict=True)):
        assignments[:, position] = indices // step % size
    return assignments


def weighted_index(sizes: Sequence[int], weights: Sequence[int]) -> IndexArray:
    """Return sum_j x_j * weight_j for every assignment x in order: [count(sizes)].

    Built one variable at a time, so that NumPy's limit on the number of axes does not matter.
    """
    refuse_above_limit(count(sizes))
    index = np.zeros(1, dtype=np.int64)
    for size, weight in zip(sizes, weights, strict=True):
        steps = np.arange(size, dtype=np.int64) * weight
        index = (index[:, None] + steps).reshape(-1)
    return index


def project(sizes: Sequence[int], scope: Sequence[int]) -> IndexArray:
    """Return for every joint assignment x the index of x[scope]: [count(sizes)].

    The scope may be in any order; its last variable is the fastest.
    """
    weights = [0] * len(sizes)
    for variable, step in zip(scope, strides([sizes[v] for v in scope]), strict=True):
        weights[variable] = step
    return weighted_index(sizes, weights)


def project_some(sizes: Sequence[int], scope: Sequence[int], places: IndexArray) -> IndexArray:
    """Return `project` at the joint assignments with these indices: [len(places)]."""
    index = np.zeros(len(places), dtype=np.int64)
    behind = strides(sizes)
    for variable, step in zip(scope, strides([sizes[v] for v in scope]), strict=True):
        index += places // behind[variable] % sizes[variable] * step
    return index


def items(value: Any, what: str) -> tuple[Any, ...]:
    """Return the members of a list, tuple or array; raise InvalidModel for anything else."""
    if not isinstance(value, str | bytes | Mapping) and isinstance(value, Iterable):
        try:
            return tuple(value)
        except TypeError:  # an array without dimensions; a class
            pass
    raise InvalidModel(f"{what} must be a list; got {shown(value)}")


def array_of(value: Any) -> npt.NDArray[Any]:
    """Return np.asarray of it; ragged lists become an empty array of objects, to be refused."""
    try:
        return np.asarray(value)
    except ValueError:
        return np.empty(0, dtype=object)


def sorted_numbers(value: Any, what: str) -> tuple[int, ...]:
    """Return sorted numbers of variables, without repeats; raise InvalidModel for anything else."""
    numbers = [whole_number(v) for v in items(value, what)]
    scope = tuple(v for v in numbers if v is not None and v >= 0)
    if len(scope) != len(numbers) or list(scope) != sorted(set(scope)):
        raise InvalidModel(
            f"{what} {shown(value)} must be sorted numbers of variables, without repeats"
        )
    return scope


def whole_number(value: Any) -> int | None:
    """Return the value as an int if it is an integer (Python or NumPy, not a bool), else None."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        return None
    return int(value)


def shown(value: Any) -> str:
    """Return a value for messages as a person would write it: 3, not np.int64(3)."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, int) and value >= 10**30:
        # Python does not print integers of thousands of digits.
        return f"about 10^{int(math.log10(value))}"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 3] + "..."


def shown_tuple(values: Sequence[Any]) -> str:
    """Return values as a tuple, for messages."""
    return f"({', '.join(map(shown, values))}{',' if len(values) == 1 else ''})"


def refuse_above_limit(entries: int) -> None:
    """Raise TooLarge if an array of this many numbers exceeds the limit."""
    needed = 8 * entries
    if needed > ARRAY_LIMIT_BYTES:
        raise TooLarge(
            f"an array over all assignments needs {shown(needed)} bytes; "
            f"at most {ARRAY_LIMIT_BYTES} are allowed",
            needed,
            ARRAY_LIMIT_BYTES,
        )
