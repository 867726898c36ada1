"""The factored-span truncation has the properties that docs/theory-span.md proves."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup
from fmdp.elimination.truncation import make_truncation
from fmdp.planning.spans import factored_spans
from fmdp.testing import oracles, strategies

Floats = NDArray[np.float64]
Drawn = tuple[tuple[int, ...], tuple[float, ...], Floats, Floats]


@st.composite
def functions(draw: st.DrawFn) -> Drawn:
    """Sizes, budgets (0 too) and two functions over the states."""
    structure = draw(strategies.structures(max_states=72, max_values=6))
    sizes = structure.state_sizes
    budgets = tuple(draw(st.sampled_from((0.0, 0.25, 1.0, 3.5, 1000.0))) for _ in sizes)
    return sizes, budgets, draw(strategies.values(structure)), draw(strategies.values(structure))


def truncate(v: Floats, sizes: tuple[int, ...], budgets: tuple[float, ...]) -> Floats:
    out = v.copy()
    make_truncation(sizes, budgets).apply(out)
    return out


@given(functions())
@settings(max_examples=150)
def test_one_axis_at_a_time_is_the_minimum_over_all_pairs(drawn: Drawn) -> None:
    sizes, budgets, v, _ = drawn
    expected = oracles.truncated(v, sizes, budgets)
    np.testing.assert_allclose(truncate(v, sizes, budgets), expected, atol=1e-10)


@given(functions(), st.randoms(use_true_random=False))
@settings(max_examples=80)
def test_any_order_of_the_axes_gives_the_same(drawn: Drawn, random: Random) -> None:
    sizes, budgets, v, _ = drawn
    order = random.sample(range(len(sizes)), len(sizes))
    expected = truncate(v, sizes, budgets).reshape(sizes)
    turned = np.ascontiguousarray(v.reshape(sizes).transpose(order)).reshape(-1)
    got = truncate(turned, tuple(sizes[i] for i in order), tuple(budgets[i] for i in order))
    np.testing.assert_allclose(
        got.reshape([sizes[i] for i in order]), expected.transpose(order), atol=1e-10
    )


@given(functions())
@settings(max_examples=150)
def test_largest_function_below_v_within_the_budgets(drawn: Drawn) -> None:
    sizes, budgets, v, w = drawn
    u = truncate(v, sizes, budgets)
    assert (u <= v).all()
    for wide, budget in zip(oracles.factored_spans(u, sizes), budgets, strict=True):
        assert wide <= budget + 1e-10
    # Within the budgets already: unchanged.
    np.testing.assert_allclose(truncate(u, sizes, budgets), u, atol=1e-10)
    # Any other function below v within the budgets is below u; one is made from w.
    other = truncate(w, sizes, budgets)
    other = other - max(0.0, float((other - v).max()))
    assert (other <= u + 1e-10).all()


@given(functions(), st.floats(-50, 50))
@settings(max_examples=150)
def test_monotone_non_expansive_and_commutes_with_constants(drawn: Drawn, constant: float) -> None:
    sizes, budgets, v, w = drawn
    tv, tw = truncate(v, sizes, budgets), truncate(w, sizes, budgets)
    assert np.abs(tv - tw).max() <= np.abs(v - w).max() + 1e-10
    d, td = v - w, tv - tw
    assert td.max() - td.min() <= d.max() - d.min() + 1e-10
    above = truncate(np.maximum(v, w), sizes, budgets)
    assert (above >= np.maximum(tv, tw) - 1e-10).all()
    np.testing.assert_allclose(truncate(v + constant, sizes, budgets), tv + constant, atol=1e-9)


@given(functions())
@settings(max_examples=80)
def test_for_one_factor_it_is_the_truncation_of_scal(drawn: Drawn) -> None:
    _, budgets, v, _ = drawn
    got = truncate(v, (len(v),), budgets[:1])
    expected = np.minimum(v, v.min() + budgets[0]) if len(v) > 1 else v
    np.testing.assert_allclose(got, expected, atol=1e-12)


def test_by_hand() -> None:
    """Two binary variables, c = (1, 2): (1, 1) is 3 away from (0, 0)."""
    v = np.array([0.0, 9.0, 9.0, 9.0])
    np.testing.assert_array_equal(truncate(v, (2, 2), (1.0, 2.0)), [0.0, 2.0, 1.0, 3.0])
    # Not one truncation of the joint span: min(v, min v + 3) would leave 3 at (0, 1) and (1, 0).
    v = np.array([5.0, 0.0, 7.0, 0.5, 0.25, 8.0])
    np.testing.assert_array_equal(truncate(v, (2, 3), (0.5, 2.0)), [1.0, 0.0, 2.0, 0.5, 0.25, 2.25])


@given(st.data())
@settings(max_examples=40)
def test_a_backup_truncates_in_its_own_layout(data: st.DataObject) -> None:
    tables = data.draw(strategies.optimistic_tables())
    structure = tables.structure
    h = data.draw(strategies.values(structure))
    budgets = [data.draw(st.sampled_from((0.0, 0.5, 2.0))) for _ in structure.state_sizes]
    backup = Backup(structure, nested=True)
    backup.load(tables)
    internal = backup.to_internal(h)
    backup.truncation(budgets).apply(internal)
    np.testing.assert_allclose(
        backup.to_canonical(internal),
        oracles.truncated(h, structure.state_sizes, budgets),
        atol=1e-10,
    )
    for wide, budget in zip(
        factored_spans(backup.to_canonical(internal), structure.state_sizes), budgets, strict=True
    ):
        assert wide <= budget + 1e-10


@given(st.data())
@settings(max_examples=40)
def test_the_lowest_backup_is_the_least_over_actions(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    h = data.draw(strategies.values(model.structure))
    backup = Backup(model.structure)
    backup.load(model)
    out = np.empty_like(h)
    before = backup.apply(h)
    backup.lowest(backup.to_internal(h), out)
    expected = oracles.action_values(oracles.dense(model), h).min(axis=0)
    np.testing.assert_allclose(backup.to_canonical(out), expected, atol=1e-9)
    np.testing.assert_array_equal(backup.apply(h), before)  # the rewards are as they were
