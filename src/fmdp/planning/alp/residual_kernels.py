"""Compiled passes over the tables of the Bellman residual."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Coefficients(NamedTuple):
    """Every entry of every function of the network as a linear form in w, function by function.

    Entry e of function f is

        constant[e] + sum_c (g expected - current)[at + c] w[columns[first + c]]

    for its few columns c, where `at` and `first` are those of the function.
    """

    function: NDArray[np.int32]  # [entries]
    first_entry: Ints  # [functions + 1]
    first_coefficient: Ints  # [functions + 1]
    first_column: Ints  # [functions + 1]
    columns: NDArray[np.int32]
    constant: Floats  # [entries]
    expected: Floats
    """Coefficients of g w_b in every entry: (P phi_b)(x)."""
    current: Floats
    """Coefficients of -w_b in every entry: phi_b(s)."""


class Terms(NamedTuple):
    """The terms of all functions, as flat arrays.

    A reward term adds a reward factor to a function, a backprojection term adds P phi_b for all
    functions b of a block.
    """

    reward: Ints  # [rewards]: where the factor's table begins
    reward_entry: Ints  # [rewards]: first entry of the function
    reward_entries: Ints  # [rewards]: entries of the function
    reward_index: Ints  # [rewards]: where its index array begins
    back_entry: Ints  # [blocks]: first entry of the function
    back_entries: Ints  # [blocks]: entries of the function
    back_coefficient: Ints  # [blocks]: where the function's coefficients begin
    back_columns: Ints  # [blocks]: columns of the function
    back_position: Ints  # [blocks]: position of the block's first function among them
    back_size: Ints  # [blocks]: functions of the block
    back_values: Ints  # [blocks]: where phi begins
    back_factors: Ints  # [blocks + 1]: where its list of factors begins
    factor: Ints  # the factors
    factor_index: Ints  # where the index array of each begins
    table: Ints  # [m]: where the factor's table begins
    values: Ints  # [m]: sizes of the state variables
    phi: Floats
    rows: NDArray[np.int32]  # the index arrays, concatenated


@njit(nogil=True)
def largest_row_error(tables: Floats, sizes: Ints, rows: Ints) -> float:
    """Return max |sum of a row - 1| over the rows of all factors."""
    error = 0.0
    at = 0
    for i in range(sizes.shape[0]):
        for _ in range(rows[i]):
            total = 0.0
            for value in range(sizes[i]):
                total += tables[at + value]
            at += sizes[i]
            error = max(error, abs(total - 1.0))
    return error


@njit(nogil=True)
def extend_optimistic(lower: Floats, free: Floats, sizes: Ints, rows: Ints, out: Floats) -> None:
    """Write P_i(x)^{t+}, the lower ends with the free mass on target t, as [row, t, value] for each
    factor."""
    at = 0
    read = 0
    row_at = 0
    for i in range(sizes.shape[0]):
        size = sizes[i]
        for _ in range(rows[i]):
            for target in range(size):
                for value in range(size):
                    out[at + value] = lower[read + value]
                out[at + target] += free[row_at]
                at += size
            read += size
            row_at += 1


@njit(nogil=True)
def linear_forms(terms: Terms, tables: Floats, rewards: Floats, coefficients: Any) -> None:
    """Compute the constant (rewards) and coefficients (backprojections) of every entry."""
    named = Coefficients(*coefficients)
    constant, expected = named.constant, named.expected
    constant[:] = 0.0
    expected[:] = 0.0
    for r in range(terms.reward.shape[0]):
        first = terms.reward_entry[r]
        index = terms.reward_index[r]
        for e in range(terms.reward_entries[r]):
            constant[first + e] += rewards[terms.reward[r] + terms.rows[index + e]]
    for t in range(terms.back_entry.shape[0]):
        first_factor = terms.back_factors[t]
        n_factors = terms.back_factors[t + 1] - first_factor
        joint = 1
        for q in range(n_factors):
            joint *= terms.values[terms.factor[first_factor + q]]
        size = terms.back_size[t]
        for e in range(terms.back_entries[t]):
            out = terms.back_coefficient[t] + e * terms.back_columns[t] + terms.back_position[t]
            for x in range(joint):
                values = terms.back_values[t] + x * size
                if not terms.phi[values : values + size].any():
                    continue  # most values of a product of indicators are 0
                rest = x
                probability = 1.0
                for q in range(n_factors - 1, -1, -1):
                    i = terms.factor[first_factor + q]
                    value = rest % terms.values[i]
                    rest //= terms.values[i]
                    row = terms.rows[terms.factor_index[first_factor + q] + e]
                    probability *= tables[terms.table[i] + row * terms.values[i] + value]
                    if probability == 0.0:
                        break
                if probability != 0.0:
                    for b in range(size):
                        expected[out + b] += probability * terms.phi[values + b]


@njit(nogil=True)
def fill_tables(
    coefficients: Any, weights: Floats, discount: float, share: float, out: Floats
) -> None:
    """Write R + discount P h_w - share h_w, function by function."""
    linear = Coefficients(*coefficients)
    columns, constant = linear.columns, linear.constant
    expected, current = linear.expected, linear.current
    for f in range(linear.first_entry.shape[0] - 1):
        first_column = linear.first_column[f]
        n_columns = linear.first_column[f + 1] - first_column
        at = linear.first_coefficient[f]
        for e in range(linear.first_entry[f], linear.first_entry[f + 1]):
            total = constant[e]
            for c in range(n_columns):
                total += weights[columns[first_column + c]] * (
                    discount * expected[at + c] - share * current[at + c]
                )
            out[e] = total
            at += n_columns
