"""What the replay says is known: rows counted by hand, alike rows as one."""

from __future__ import annotations

import dataclasses

import numpy as np

from fmdp.experiments.worker import knowledge
from fmdp.model import Alike, Structure

# Two variables of two values, one action of two values; each depends on itself and the action.
APART = Structure((2, 2), (2,), ((0, 2), (1, 2)), ())
STATES = np.array([[0, 0], [0, 1], [1, 1]])
ACTIONS = np.array([[0], [0], [1]])
TIMES = np.array([0, 1, 3])


def test_rows_of_each_factor_are_counted() -> None:
    visited, uncertainty = knowledge(APART, STATES, ACTIONS, TIMES)
    # Factor 0 meets rows 0, 0, 3, factor 1 rows 0, 2, 3, of four each.
    np.testing.assert_array_equal(visited, [[0, 0], [1, 1], [2, 3]])
    np.testing.assert_allclose(uncertainty[2], [(1 / np.sqrt(2) + 3) / 4, 1.0])


def test_alike_rows_are_one_row_visited_wherever_one_is() -> None:
    # The action alone matters, and both variables are of one make: two classes in all.
    alike = Alike(([0, 1, 0, 1], [0, 1, 0, 1]), ())  # type: ignore[arg-type]
    visited, uncertainty = knowledge(
        dataclasses.replace(APART, alike=alike), STATES, ACTIONS, TIMES
    )
    np.testing.assert_array_equal(visited, [[0, 0], [1, 1], [2, 2]])
    # Four visits of the first class and two of the second, by both factors together.
    np.testing.assert_allclose(uncertainty[2], [(1 / 2 + 1 / np.sqrt(2)) / 2] * 2)
