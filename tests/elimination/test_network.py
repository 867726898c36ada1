"""Cost networks against the maximum over all assignments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.elimination.network import Network, choose_contexts, min_fill
from fmdp.errors import TooLarge


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[int], list[tuple[int, ...]], int]:
    """Sizes, scopes (empty ones, disconnected parts, one variable in most of them) and a seed."""
    n = draw(st.integers(1, 6))
    sizes = draw(st.lists(st.integers(1, 4), min_size=n, max_size=n))
    scopes = draw(
        st.lists(st.lists(st.integers(0, n - 1), max_size=3, unique=True), min_size=1, max_size=8)
    )
    hub = draw(st.booleans())
    return (
        sizes,
        [tuple(sorted({*scope, *([n - 1] if hub else [])})) for scope in scopes],
        draw(st.integers(0, 2**32 - 1)),
    )


def fill(network: Network, scopes: list[tuple[int, ...]], seed: int) -> np.ndarray:
    """Whole numbers (so that ties are common) in every table; the sum over all assignments."""
    rng = np.random.default_rng(seed)
    total = np.zeros(network.sizes)
    for f, scope in enumerate(scopes):
        function = network.functions[f]
        network.table(f)[...] = rng.integers(-3, 4, size=(function.slices, function.rows))
        for x in itertools.product(*(range(size) for size in network.sizes)):
            row = 0
            for v in function.scope:
                row = row * network.sizes[v] + x[v]
            slices = network._classes[f]
            slot = 0 if slices is None else slices[x[function.context]]
            total[x] += network.table(f)[slot, row]
        assert set(function.scope) | ({function.context} & set(scope)) == set(scope)
    return total


@given(networks())
def test_the_maximum_and_a_maximiser_are_those_of_all_assignments(case) -> None:
    sizes, scopes, seed = case
    network = Network(sizes, scopes)
    total = fill(network, scopes, seed)
    assert network.maximise() == total.max()
    assert total[tuple(network.maximiser())] == total.max()


@given(networks(), st.data())
def test_contexts_that_share_slices_give_the_same_maximum(case, data: st.DataObject) -> None:
    sizes, scopes, seed = case
    contexts = choose_contexts(sizes, scopes)
    rng = np.random.default_rng(seed)
    classes = {}
    for f, (scope, context) in enumerate(zip(scopes, contexts, strict=True)):
        if context in scope:
            drawn = rng.integers(0, data.draw(st.integers(1, 3)), size=sizes[context])
            classes[f] = np.unique(drawn, return_inverse=True)[1]
    network = Network(sizes, scopes, contexts=contexts, classes=classes)
    total = fill(network, scopes, seed)
    assert network.maximise() == total.max()
    assert total[tuple(network.maximiser())] == total.max()
    # The closing entries are the maxima for each value of each component's context.
    if len(network.components) == 1 and network.components[0].context >= 0:
        context = network.components[0].context
        ((first, end),) = network.closing
        others = tuple(v for v in range(len(sizes)) if v != context)
        np.testing.assert_array_equal(network.buffer[first:end], total.max(axis=others))
        for value in range(sizes[context]):
            best = network.maximiser(first + value)
            best[context] = value
            assert total[tuple(best)] == total.max(axis=others)[value]


def circle(n: int) -> tuple[list[int], list[tuple[int, ...]]]:
    """n machines in a circle and one action variable of n + 1 values in every function."""
    return [2] * n + [n + 1], [(*sorted({(i - 1) % n, i}), n) for i in range(n)]


def test_a_thousand_actions_that_touch_one_function_each_share_their_messages() -> None:
    sizes, scopes = circle(200)
    own = {i: (np.arange(201) == i).astype(int) for i in range(200)}
    shared = Network(sizes, scopes, classes=own)
    apart = Network(sizes, scopes)
    assert shared.width == apart.width == 3  # x[i-1], x[i], one closing the circle, the action
    assert apart.n_messages > 20 * shared.n_messages
    rng = np.random.default_rng(0)
    for f in range(200):
        table = shared.table(f)
        table[...] = rng.normal(size=table.shape)
        apart.table(f)[...] = table[own[f]]
    assert shared.maximise() == pytest.approx(apart.maximise(), abs=1e-12)
    assert list(shared.maximiser()) == list(apart.maximiser())


def test_min_fill_on_a_circle_adds_one_edge_at_a_time() -> None:
    neighbours = {i: [(i - 1) % 6, (i + 1) % 6] for i in range(6)}
    order = min_fill(neighbours, [2] * 6)
    assert sorted(order) == list(range(6))
    network = Network([2] * 6, [(i, (i + 1) % 6) if i < 5 else (0, 5) for i in range(6)])
    assert network.width == 2


def test_min_fill_takes_the_leaves_of_a_star_first() -> None:
    neighbours = {0: list(range(1, 100)), **{leaf: [0] for leaf in range(1, 100)}}
    assert min_fill(neighbours, [2] * 100).index(0) >= 98


def test_a_width_that_does_not_fit_is_refused_with_its_figures() -> None:
    # Every pair of 40 variables: the first joint table would have 2^40 entries.
    scopes = list(itertools.combinations(range(40), 2))
    with pytest.raises(TooLarge, match="induced width 39") as refusal:
        Network([2] * 40, scopes, contexts=[-1] * len(scopes), memory_limit=1 << 30)
    assert refusal.value.needed_bytes > 2**40
    assert refusal.value.limit_bytes == 1 << 30


def test_predicted_bytes_bound_what_is_allocated() -> None:
    for network in (Network(*circle(12)), Network([3] * 8, [(i, (i + 3) % 8) for i in range(4)])):
        held = network.buffer.nbytes + network.best.nbytes
        held += sum(array.nbytes for array in network.schedule)
        assert held <= 1.5 * network.bytes + 4096
