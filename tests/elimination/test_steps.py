"""The steps compute the same bits, however many numbers they take at a time."""

from __future__ import annotations

import numpy as np
import pytest

from fmdp.elimination import kernels
from fmdp.elimination.backup import backup_for
from fmdp.problems import problem
from fmdp.testing import oracles


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        # (values of v, values of u, inner) of steps that take eight cells together.
        ("circle:9", {(4, 4, 8), (8, 4, 1)}),
        ("grid:9", {(8, 8, 1)}),
        ("tree:12", {(4, 4, 8), (8, 8, 1)}),
        ("bi-ring:12,dynamics=guestrin", {(4, 2, 8), (8, 2, 1)}),
        ("circle:20,dynamics=guestrin", {(8, 8, 8), (8, 4, 1)}),
    ],
)
def test_cells_taken_together_have_the_bits_of_cells_taken_one_by_one(
    name: str, shapes: set[tuple[int, int, int]]
) -> None:
    backup = backup_for(problem(name), threads=1)
    programs = [part.program for part in backup._parts] or [backup.program]
    h = np.random.default_rng(0).normal(size=backup.n_states)
    together = backup.apply(h)
    taken = set()
    for program in programs:
        levels = program.steps.levels
        used = levels[levels[:, kernels.APART] > 0]
        taken |= {tuple(map(int, row)) for row in used[:, [kernels.V, kernels.U, kernels.INNER]]}
        levels[:, kernels.APART] = 0
    assert shapes <= taken
    np.testing.assert_array_equal(backup.apply(h), together)


@pytest.mark.parametrize(
    "name",
    [
        "circle:9",
        "grid:9",
        "bi-ring:10",
        "random:5,values=3,parents=2",
        "random:3,values=8,parents=2",
    ],
)
def test_sweeps_equal_the_dense_ones(name: str) -> None:
    """Unlike the models that Hypothesis draws, these are large enough for all kinds of steps."""
    model = problem(name)
    h = np.random.default_rng(0).normal(size=model.structure.n_states)
    expected = oracles.bellman(oracles.dense(model), h)
    np.testing.assert_allclose(backup_for(model).apply(h), expected, rtol=0, atol=1e-13)
