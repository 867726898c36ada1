"""OptimisticTables: the extreme transition by hand, and the confidence set {P >= p-minus}."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidModel
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.testing import oracles
from fmdp.testing.strategies import models, optimistic_pairs, optimistic_tables

ONE_ROW = Structure((3,), (1,), ((),), ())


def test_the_extreme_transition_by_hand() -> None:
    """p-hat (.5, .3, .2), widths (.1, .05, .05): p-minus (.4, .25, .15), free .2."""
    tables = OptimisticTables.from_widths(
        ONE_ROW, [[[0.5, 0.3, 0.2]]], [[[0.1, 0.05, 0.05]]], [], []
    )
    np.testing.assert_allclose(tables.lower[0], [[0.4, 0.25, 0.15]])
    np.testing.assert_allclose(tables.free[0], [0.2])
    np.testing.assert_allclose(tables.extreme_row(0, 0, 1), [0.4, 0.45, 0.15])


def test_a_width_takes_no_more_than_there_is() -> None:
    tables = OptimisticTables.from_widths(ONE_ROW, [[[0.9, 0.1, 0.0]]], [0.2], [], [])
    np.testing.assert_allclose(tables.lower[0], [[0.7, 0.0, 0.0]])
    np.testing.assert_allclose(tables.free[0], [0.3])


@pytest.mark.parametrize("p_hat", [[0.0, 0.0, 0.0], [0.5, 0.5, 0.0]])
def test_nothing_known_means_all_mass_is_free(p_hat: list[float]) -> None:
    tables = OptimisticTables.from_widths(ONE_ROW, [[p_hat]], [np.inf], [], [])
    assert tables.lower[0].tolist() == [[0.0, 0.0, 0.0]]
    assert tables.free[0].tolist() == [1.0]


def test_optimistic_rewards_by_hand() -> None:
    """Widths are in units of the range (here 2), and the range caps the reward."""
    structure = Structure((2,), (2,), ((),), ((0, 1), ()), ((-1.0, 1.0), (3.0, 3.0)))
    tables = OptimisticTables.from_widths(
        structure,
        [[[1, 0]]],
        [0],
        [[-0.5, 0.0, 0.9, 0.2], [3.0]],
        [[0.1, 0.0, 0.1, np.inf], [np.inf]],
    )
    np.testing.assert_allclose(tables.rewards[0], [-0.3, 0.0, 1.0, 1.0])
    assert tables.rewards[1].tolist() == [3.0]


@given(optimistic_tables())
def test_every_extreme_row_is_a_distribution_above_the_lower_bounds(
    tables: OptimisticTables,
) -> None:
    for i, (lower, size) in enumerate(zip(tables.lower, tables.structure.state_sizes, strict=True)):
        for row in range(len(lower)):
            for target in range(size):
                extreme = tables.extreme_row(i, row, target)
                assert (extreme >= lower[row]).all()
                assert extreme.sum() == pytest.approx(1.0, abs=1e-12)


@given(optimistic_pairs())
def test_a_model_in_the_set_is_a_mixture_of_extreme_rows(
    pair: tuple[OptimisticTables, FactoredMDP],
) -> None:
    """P_i = sum_t w_t P_i^{t+} with w = (P_i - p-minus) / free: what optimism rests on."""
    tables, truth = pair
    for i, table in enumerate(truth.transitions):
        for row, true_row in enumerate(table):
            free = tables.free[i][row]
            if free < 1e-9:
                np.testing.assert_allclose(true_row, tables.lower[i][row], atol=1e-9)
                continue
            weights = (true_row - tables.lower[i][row]) / free
            assert (weights >= -1e-12).all()
            mixture = sum(w * tables.extreme_row(i, row, t) for t, w in enumerate(weights))
            np.testing.assert_allclose(mixture, true_row, atol=1e-12)


SMALL = optimistic_tables().filter(
    lambda t: t.structure.n_states**2 * t.structure.n_actions * t.structure.n_states <= 2**14
)


@given(SMALL, st.data())
def test_planning_the_extended_model_is_choosing_vertex_targets(
    tables: OptimisticTables, data: st.DataObject
) -> None:
    """max over joint actions and targets of the extended model = the vertex backup by oracle."""
    s = tables.structure
    h = np.random.default_rng(data.draw(st.integers(0, 999))).normal(size=s.n_states)
    flat = oracles.dense(tables.extended())
    q = (flat.rewards + flat.transitions @ h).reshape(s.n_actions, s.n_states, s.n_states)
    np.testing.assert_allclose(q.max(axis=1), oracles.vertex_values(tables, h), atol=1e-9)


@given(optimistic_tables())
def test_the_extended_structure(tables: OptimisticTables) -> None:
    s = tables.structure
    extended = tables.extended()
    x = extended.structure
    assert x.state_sizes == s.state_sizes
    assert x.action_sizes == s.action_sizes + s.state_sizes
    assert x.reward_scopes == s.reward_scopes
    first = s.m + len(s.action_sizes)
    for i, (mine, theirs) in enumerate(zip(x.transition_scopes, s.transition_scopes, strict=True)):
        assert mine == (*theirs, first + i)
    for mine, theirs in zip(extended.rewards, tables.rewards, strict=True):
        assert np.array_equal(mine, theirs)
    assert x.action_values[len(s.action_sizes) :] == s.state_values


@given(models())
def test_zero_widths_are_the_model_whatever_the_targets(model: FactoredMDP) -> None:
    s = model.structure
    plain = OptimisticTables.from_model(model)
    estimated = OptimisticTables.from_widths(
        s, model.transitions, [0.0] * s.m, model.rewards, [0.0] * s.l
    )
    for i, table in enumerate(model.transitions):
        assert np.array_equal(plain.lower[i], table)
        assert np.array_equal(estimated.lower[i], table)
        np.testing.assert_allclose(estimated.free[i], 0.0, atol=1e-14)
        for target in range(s.state_sizes[i]):
            assert np.array_equal(plain.extreme_row(i, 0, target), table[0])
    for mine, theirs in zip(estimated.rewards, model.rewards, strict=True):
        assert np.array_equal(mine, theirs)


@given(models(), st.floats(0, 2), st.floats(0, 2))
def test_tables_made_from_widths_pass_the_checks_of_the_constructor(
    model: FactoredMDP, width: float, reward_width: float
) -> None:
    s = model.structure
    made = OptimisticTables.from_widths(
        s, model.transitions, [width] * s.m, model.rewards, [reward_width] * s.l
    )
    checked = OptimisticTables(s, made.lower, made.free, made.rewards)
    for field in ("lower", "free", "rewards"):
        for mine, theirs in zip(getattr(made, field), getattr(checked, field), strict=True):
            assert np.array_equal(mine, theirs)
            assert not mine.flags.writeable


def test_target_names_do_not_clash() -> None:
    structure = Structure((2,), (2,), ((),), (), state_names=("x",), action_names=("target_x",))
    extended = OptimisticTables.from_widths(structure, [[[1, 0]]], [0], [], []).extended()
    assert extended.structure.action_names == ("target_x", "target_x_")


def test_tables_are_read_only_also_after_pickling() -> None:
    tables = OptimisticTables.from_widths(ONE_ROW, [[[0.5, 0.3, 0.2]]], [0.1], [], [])
    for twin in (tables, pickle.loads(pickle.dumps(tables))):
        with pytest.raises(ValueError, match="read-only"):
            twin.lower[0][0, 0] = 1.0
        assert np.array_equal(twin.lower[0], tables.lower[0])


STRUCTURE = Structure((2,), (2,), ((1,),), ((0,),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"p_hat": [[[0.5, 0.5], [0.6, 0.5]]]}, ['"s0"), row 1 (a0=1)', "[0.6, 0.5]", "at most 1"]),
        ({"p_hat": [[[0.5, 0.5], [-0.5, 0.5]]]}, ['factor 0 ("s0")', "p_hat", "-0.5"]),
        ({"p_hat": [[[0.5, 0.5]]]}, ["p_hat", "[1, 2]", "[2, 2]"]),
        ({"p_hat": [[[0.5, float("nan")]] * 2]}, ["p_hat", "nan", "row 0"]),
        ({"p_hat": []}, ["0 transition estimates", "1"]),
        ({"widths": [-0.1]}, ["widths", "-0.1", "at least 0"]),
        ({"widths": [float("nan")]}, ["widths", "nan"]),
        ({"widths": [[[0.1, 0.1, 0.1]]]}, ["widths", "[1, 3]", "[2, 2]"]),
        ({"widths": ["wide"]}, ["widths", "numbers"]),
        ({"reward_mean": [[0.5]]}, ['reward factor 0 ("r0")', "reward_mean", "[1]", "[2]"]),
        ({"reward_mean": [[0.5, float("nan")]]}, ['reward factor 0 ("r0")', "not finite"]),
        ({"reward_width": [[0.5, -1.0]]}, ['reward factor 0 ("r0")', "reward_width", "-1.0"]),
    ],
)
def test_errors_of_from_widths_name_the_culprit(change: dict[str, Any], words: list[str]) -> None:
    good: dict[str, Any] = {
        "p_hat": [[[0.5, 0.5], [0.0, 0.0]]],
        "widths": [0.1],
        "reward_mean": [[0.0, 1.0]],
        "reward_width": [0.1],
    }
    OptimisticTables.from_widths(STRUCTURE, **good)
    with pytest.raises(InvalidModel) as caught:
        OptimisticTables.from_widths(STRUCTURE, **(good | change))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("lower", "free", "rewards", "words"),
    [
        ([[0.5, 0.5], [0.5, 0.4]], [0.0, 0.0], [0.0, 1.0], ["row 1 (a0=1)", "[0.5, 0.4]", "sum"]),
        ([[0.5, 0.5], [1.5, 0.0]], [0.0, -0.5], [0.0, 1.0], ["row 1 (a0=1)", "-0.5"]),
        ([[0.5, 0.5], [0.5, 0.5]], [0.0, 0.0], [0.0, 1.5], ["row 1 (s0=1)", "1.5", "[0.0, 1.0]"]),
        ([[0.5, 0.5], [np.nan, 0.5]], [0.0, 0.0], [0.0, 1.0], ["row 1 (a0=1)", "nan"]),
        ([[0.5, 0.5], [0.5, 0.5]], [0.0, 0.0], [np.nan, 1.0], ["row 0 (s0=0)", "nan"]),
        ([[0.5, 0.5], [0.5, 0.5]], [0.0], [0.0, 1.0], ["free", "[1]", "[2]"]),
    ],
)
def test_errors_of_the_tables_name_the_row(
    lower: Any, free: Any, rewards: Any, words: list[str]
) -> None:
    with pytest.raises(InvalidModel) as caught:
        OptimisticTables(STRUCTURE, (lower,), (free,), (rewards,))
    for word in words:
        assert word in str(caught.value)


def test_the_number_of_tables_is_checked() -> None:
    with pytest.raises(InvalidModel, match="0 lower tables; must be 1"):
        OptimisticTables(STRUCTURE, (), (), ())
