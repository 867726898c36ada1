"""Kinds of columns: numbers by hand, and tables that are alike without anybody saying so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp import Statistics
from fmdp.learning.kinds import (
    KIND,
    KIND_AND_ACTION,
    KINDS,
    Form,
    kind_means,
    kinds_of,
)
from fmdp.learning.pooling import pools_of, posterior


def test_contexts_of_a_ring_correspond() -> None:
    """In a circle of 3 machines every machine has itself and the one before it as parents. The
    scope of machine 1 is (0, 1, action), so its second context is "itself down, the one before it
    works" in the order of scopes (0, 1), and its third one in that of the form (1, 0)."""
    (pools,) = pools_of(fmdp.problem("circle:3").structure)
    (form,) = pools.forms
    assert form.rows.shape == (3 * 4, 4)  # columns of 3 machines and 4 actions, 4 contexts
    assert form.rows[0].tolist() == [0, 4, 8, 12]  # machine 0: scope (0, 2), in order already
    assert form.rows[4].tolist() == [16 + 0, 16 + 8, 16 + 4, 16 + 12]
    assert form.actions.tolist() == [0, 1, 2, 3] * 3


def test_factors_with_other_parents_have_other_forms() -> None:
    """The hub of a star has no parents, the others have the hub."""
    (pools,) = pools_of(fmdp.problem("star:4").structure)
    assert [form.rows.shape for form in pools.forms] == [(5, 2), (15, 4)]
    assert pools.form_of.tolist() == [0, 1, 1, 1]


def test_forms_cover_every_row_once() -> None:
    for name in ("machines:2", "coffee", "riverswim:2", "random:4,seed=1", "epidemic:4,graph=grid"):
        for pools in pools_of(fmdp.problem(name).structure):
            rows = np.concatenate([form.rows.ravel() for form in pools.forms])
            assert sorted(rows) == list(range(pools.rows.size))


@pytest.mark.parametrize("name", ["circle:4", "bi-ring:5", "tree:4", "coffee", "machines:2"])
def test_rows_of_a_column_by_brute_force(name: str) -> None:
    """Row by row: the entry of a factor, an action and a context, whose values are those of the
    other variables in cyclic order, the last one fastest."""
    s = fmdp.problem(name).structure
    for pools in pools_of(s):
        for form in pools.forms:
            n_actions = pools.rows.shape[1]
            factors = pools.factor[form.rows[:, 0] // n_actions]
            for column, (factor, action) in enumerate(zip(factors, form.actions, strict=True)):
                scope = s.transition_scopes[factor]
                parents = sorted((v for v in scope if v < s.m), key=lambda v: (v - factor) % s.m)
                others = [v for v in scope if v >= s.m]
                choices = list(np.ndindex(*s.scope_sizes(others)))
                for context, values in enumerate(np.ndindex(*s.scope_sizes(parents))):
                    value_of = dict(zip(parents, values, strict=True))
                    value_of |= dict(zip(others, choices[action], strict=True))
                    row = np.ravel_multi_index(
                        [value_of[v] for v in scope], s.scope_sizes(list(scope))
                    )
                    entry = pools.rows.ravel()[form.rows[column, context]]
                    assert entry == s.transition_classes_of(int(factor))[row]


def sampled(tables: list[list[float]], visits: int, seed: int) -> np.ndarray:
    """Counts [columns, contexts, 2] of coins with these probabilities [columns][contexts]."""
    heads = np.random.default_rng(seed).binomial(visits, np.array(tables))
    return np.stack([visits - heads, heads], axis=-1).astype(np.float64)


@pytest.mark.parametrize("seed", range(5))
def test_columns_are_sorted_into_kinds(seed: int) -> None:
    columns = sampled([[0.9, 0.1], [0.5, 0.5], [0.9, 0.1], [0.5, 0.5], [0.9, 0.1]], 60, seed)
    kind = kinds_of(columns, np.arange(5))
    assert kind.tolist() == [0, 1, 0, 1, 0]


def test_a_column_is_assigned_again_when_others_are_known() -> None:
    """Two of five may be like 20 of 28, as long as nothing else is known. When 3 of 23 is a kind,
    it fits that one better."""
    columns = np.array([[[2.0, 3.0]], [[20.0, 8.0]], [[3.0, 20.0]]])
    assert kinds_of(columns, np.arange(3)).tolist() == [1, 0, 1]


def test_there_is_a_largest_number_of_kinds() -> None:
    """Twenty columns that differ in at least one of five contexts, with fifty counts each."""
    tables = [[0.98 if column >> bit & 1 else 0.02 for bit in range(5)] for column in range(20)]
    kind = kinds_of(sampled(tables, 50, 0), np.arange(20))
    assert kind.tolist() == [*range(KINDS), -1, -1, -1, -1]


@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e6])
def test_counts_that_fade_have_kinds(scale: float) -> None:
    columns = scale * np.array([[[9.0, 1.0]], [[8.5, 0.7]], [[0.2, 9.1]]])
    means, spreads = kind_means((one_form(columns[:, 0], [0, 1, 0]),), columns[:, 0])
    assert means.sum(axis=-1) == pytest.approx(np.ones((2, 3)))
    assert np.isfinite(spreads).all()


def test_a_column_without_counts_is_of_no_kind() -> None:
    columns = np.array([[[3.0, 0.0]], [[0.0, 0.0]]])
    assert kinds_of(columns, np.arange(2)).tolist() == [0, -1]


def one_form(columns: np.ndarray, actions: list[int]) -> Form:
    return Form(np.arange(len(columns))[:, None], np.array(actions))


def test_means_by_hand() -> None:
    """Column 0 has 9 and 1 of 10. Column 1 has no counts and is believed to be of that kind: its
    mean is 9.5 / 11 with one sample of prior, and its spread that of 11 samples."""
    counts = np.array([[9.0, 1.0], [0.0, 0.0]])
    means, spreads = kind_means((one_form(counts, [0, 1]),), counts)
    assert means[KIND, 1] == pytest.approx([9.5 / 11, 1.5 / 11])
    assert spreads[KIND, 1] == pytest.approx(1 / 12)
    # No other column of the kind has its action.
    assert means[KIND_AND_ACTION, 1] == pytest.approx(means[KIND, 1])
    assert spreads[KIND_AND_ACTION, 1] == pytest.approx(spreads[KIND, 1])
    # Column 0 without itself: nothing is known of any kind.
    assert means[:, 0] == pytest.approx(np.full((2, 2), 0.5))
    assert spreads[:, 0] == pytest.approx([0.5, 0.5])


def test_kinds_that_differ_spread_the_mean() -> None:
    """Two kinds with 10 of 10 and 0 of 10, and a column without counts, which may be of either.
    Its mean is 1/2 for each value. Both kinds are 5/11 from it in each value: a variance of
    2 (5/11)^2, of at most 1 - 2/4. Each kind has the spread of 11 samples."""
    counts = np.array([[10.0, 0.0], [0.0, 10.0], [0.0, 0.0]])
    means, spreads = kind_means((one_form(counts, [0, 1, 2]),), counts)
    assert means[KIND, 2] == pytest.approx([0.5, 0.5])
    assert spreads[KIND, 2] == pytest.approx(1 / 12 + 2 * (5 / 11) ** 2 / 0.5)


def test_columns_of_the_same_action_count_more() -> None:
    """Six columns of one kind. Those of action 0 have 20 of 100, those of action 1 have 26 of 100:
    a difference that is too small for two kinds. The other columns have 118 of 500, those of action
    0 among them 40 of 200."""
    counts = np.array([[80.0, 20.0], [74.0, 26.0]] * 3)
    form = one_form(counts, [0, 1] * 3)
    assert len(set(kinds_of(counts[:, None], np.arange(6)).tolist())) == 1
    means, spreads = kind_means((form,), counts)
    assert means[KIND, 0, 1] == pytest.approx(118.5 / 501)
    assert spreads[KIND, 0] == pytest.approx(1 / 502)
    # 1 / (k + 1) = 1 / 17 + 1 / 502: the kind is worth k = 15.443 samples beside the 200.
    assert means[KIND_AND_ACTION, 0, 1] == pytest.approx(
        (40 + 15.443 * 118.5 / 501) / 215.443, abs=1e-5
    )
    assert spreads[KIND_AND_ACTION, 0] == pytest.approx(1 / 216.443, abs=1e-7)


counts_of_columns = st.integers(0, 2**32 - 1).map(
    lambda seed: np.random.default_rng(seed).poisson(0.7, (5, 3, 3)).astype(np.float64)
)


@given(counts_of_columns)
def test_means_are_laws(columns: np.ndarray) -> None:
    """Means sum to 1, and a spread is at least that of what was counted in the same context."""
    rows = columns.reshape(-1, 3)
    form = Form(np.arange(15).reshape(5, 3), np.array([0, 1, 2, 0, 1]))
    means, spreads = kind_means((form,), rows)
    assert means.sum(axis=-1) == pytest.approx(np.ones((2, 15)))
    assert (means > 0.0).all()
    most = columns.sum(axis=(0, 2))  # of each context
    assert (spreads.reshape(2, 5, 3) >= 1.0 / (most + 17.0 + 2.0)).all()
    assert (spreads <= 1.5).all()


def posterior_mean(model: fmdp.FactoredMDP, counts: np.ndarray) -> np.ndarray:
    """The mean row of every entry, as cells."""
    rows = np.empty(len(counts))
    for mixture in posterior(model.structure, counts):
        rows[mixture.pools.cells] = mixture.mean()
    return rows


def test_restarting_is_known_where_it_was_never_tried() -> None:
    """Thirty tries of every row, but none of "restart machine 2 while it and its neighbour are
    down": what restarts do to the other machines there, and to machine 2 elsewhere, tells."""
    model = fmdp.problem("circle:5,dynamics=guestrin")
    truth = np.concatenate([table.ravel() for table in model.transitions])
    counts = np.round(30.0 * truth)
    # Rows of machine 2 follow 2 * 4 * 6 others; in the first context action 2 is its restart.
    first = 2 * (2 * 4 * 6 + 2)
    assert truth[first : first + 2].tolist() == [0.0, 1.0]
    counts[first : first + 2] = 0.0
    assert posterior_mean(model, counts)[first + 1] > 0.9


def test_parts_of_other_makes_do_not_mislead() -> None:
    """Every variable of a `random` model has its own table. After 3,000 random steps the mean
    squared error is at most a sixth larger than that of each row for itself."""
    model = fmdp.problem("random:4,seed=1")
    steps = fmdp.simulate(model, "random", steps=3_000, seed=1, record=True).trajectory
    assert steps is not None
    statistics = Statistics(model.structure)
    for t in range(3_000):
        statistics.record(steps.states[t], steps.actions[t], steps.rewards[t], steps.states[t + 1])
    truth = np.concatenate([table.ravel() for table in model.transitions])
    visits = statistics.transition_visits[statistics.entries.cell_entry]
    alone = (statistics.cell_counts + 0.5) / (visits + 1.0)
    ours = posterior_mean(model, statistics.cell_counts)
    assert ((ours - truth) ** 2).mean() < 7 / 6 * ((alone - truth) ** 2).mean()
