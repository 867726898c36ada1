"""The elimination order is the cheapest one, and of several the lexicographically smallest."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from fmdp.elimination import layout, order
from fmdp.elimination.order import elimination_order
from fmdp.model import Structure
from fmdp.problems import problem
from fmdp.testing import strategies


def cost(structure: Structure, sequence: tuple[int, ...]) -> int:
    """As the module's header has it, step by step; without the factor S."""
    total, needed, told = 0, set[int](), set[int]()
    for end, i in enumerate(sequence, 1):
        needed |= set(structure.state_scope(i))
        told |= set(structure.action_scope(i))
        opened = needed - set(sequence[:end])
        total += structure.state_sizes[i] * math.prod(structure.sizes[v] for v in opened | told)
    return total


@given(strategies.structures(max_variables=5))
@settings(max_examples=80)
def test_no_order_is_cheaper_and_none_as_cheap_comes_before(structure: Structure) -> None:
    every = itertools.permutations(range(structure.m))
    best = min((cost(structure, sequence), sequence) for sequence in every)
    assert elimination_order(structure) == best[1]
    assert order._beam_order(structure) == best[1]  # all sets of so few variables are kept


def test_a_beam_finds_what_all_sets_have() -> None:
    for name in ("circle:8", "bi-ring:8", "grid:8", "three-leg:8", "random:8,values=3,seed=4"):
        structure = problem(name).structure
        assert order._beam_order(structure) == order._exact_order(structure)


def test_more_variables_than_an_integer_has_bits() -> None:
    """A chain, each looking at the next, of one value each but for the last two: those are the
    dearer the later they go, and the last is needed by the one before it."""
    m = 70
    scopes = (*((i, i + 1) for i in range(m - 1)), (m - 1,))
    structure = Structure((1,) * (m - 2) + (2, 2), (1,), scopes, ())
    found = elimination_order(structure)
    assert found.index(m - 1) < found.index(m - 2)
    assert sorted(found) == list(range(m))


@pytest.mark.parametrize("name", ["circle:9", "bi-ring:8", "grid:9", "random:7,values=3,parents=3"])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_layouts_that_are_not_priced_would_not_have_been_chosen(name: str, threads: int) -> None:
    structure = problem(name).structure
    classes = layout.action_classes(structure)
    found = layout._candidates(structure, False, classes, None)
    every = [own for alike in found for own in alike]
    for alike in found:
        for own in alike:
            assert own.least_seconds(alike[0], threads) <= own.seconds(threads)
    for limit in (None, *np.quantile([own.memory(threads) for own in every], [0.1, 0.5]), 0):
        fitting = [own for own in every if limit is None or own.memory(threads) <= limit]
        least = min((own.seconds(threads) for own in fitting), default=math.inf)
        fast = [own for own in fitting if own.seconds(threads) <= 1.05 * least]
        leanest = min(fast or every, key=lambda own: own.memory(threads))
        chosen = layout.choose_layout(structure, threads=threads, memory_limit=limit)
        assert (chosen.pieces, chosen.branch) == (leanest.pieces, leanest.branch)
