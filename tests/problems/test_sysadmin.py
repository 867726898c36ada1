"""SysAdmin: rows of each dynamics by hand, and `xu` against its recipe, written as a loop."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import fmdp
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP

NETWORK = "network:4,edges=1>0+3>0+0>2"


def works_next(model: FactoredMDP, i: int, state: tuple[int, ...], action: int) -> float:
    return float(model.transition_row(i, state, (action,))[1])


def xu_recipe(scopes: list[list[int]], seed: int, alpha1: float, alpha2: float) -> list[np.ndarray]:
    """P(down next) [values of the scope, action] for every factor, one draw at a time."""
    rng = np.random.RandomState(seed)
    n = len(scopes)
    tables = []
    for i in range(n):
        rows = []
        for values in itertools.product((0, 1), repeat=len(scopes[i])):
            value_of = dict(zip(scopes[i], values, strict=True))
            row = []
            for action in range(n + 1):
                u = rng.uniform()
                q = alpha1 * u if value_of[i] == 1 else max(u, 0.5)
                for machine in scopes[i]:
                    if value_of[machine] == 0:
                        q += alpha2 * rng.uniform()
                if action == i:
                    q = 0.0
                row.append(min(q, 1.0))
            rows.append(row)
        tables.append(np.array(rows))
    return tables


@pytest.mark.parametrize(
    ("problem", "scopes", "settings"),
    [
        ("circle:1", [[0]], (1, 0.1, 0.1)),
        ("circle:4", [[0, 3], [0, 1], [1, 2], [2, 3]], (1, 0.1, 0.1)),
        ("three-leg:5,seed=3", [[0], [0, 1], [0, 2], [0, 3], [1, 4]], (3, 0.1, 0.1)),
        ("bi-ring:3,alpha1=.3,alpha2=.7", [[0, 1, 2]] * 3, (1, 0.3, 0.7)),
        (NETWORK + ",seed=0,alpha2=0", [[0, 1, 3], [1], [0, 2], [3]], (0, 0.1, 0.0)),
    ],
)
def test_xu_is_its_recipe_draw_by_draw(
    problem: str, scopes: list[list[int]], settings: tuple[int, float, float]
) -> None:
    model = fmdp.problem(problem)
    n = len(scopes)
    assert [list(scope) for scope in model.structure.transition_scopes] == [
        [*scope, n] for scope in scopes
    ]
    for table, down in zip(model.transitions, xu_recipe(scopes, *settings), strict=True):
        assert table.shape == (down.size, 2)
        assert_array_equal(table[:, 0], down.reshape(-1))
        assert_array_equal(table[:, 1], 1.0 - down.reshape(-1))


def test_xu_rows_are_parameters_of_their_own() -> None:
    model = fmdp.problem("circle:7")
    assert set(model.structure.transition_rows) == {4 * 8}
    assert len(np.unique(model.transitions[2][:, 0])) == 4 * 8 - 3  # four rows of a restart


def test_structure_of_a_circle() -> None:
    model = fmdp.problem("circle:3")
    s = model.structure
    assert s.state_sizes == (2, 2, 2)
    assert s.action_sizes == (4,)
    assert s.transition_scopes == ((0, 2, 3), (0, 1, 3), (1, 2, 3))
    assert s.reward_scopes == ((0,), (1,), (2,))
    assert s.reward_ranges == ((0.0, 1.0),) * 3
    assert s.state_values == (("down", "working"),) * 3
    assert s.action_values == (("0", "1", "2", "none"),)
    assert model.initial_state == (1, 1, 1)
    assert {law.kind for law in model.noise} == {"deterministic"}
    assert model.expected_reward((1, 0, 1), (3,)) == 2.0


@pytest.mark.parametrize(
    ("dynamics", "expected"),
    [
        # (parent, self) = (0,0), (0,1), (1,0), (1,1), then a restart
        ("guestrin", (0.02375, 0.475, 0.0475, 0.95, 1.0)),
        ("talebi", (0.01, 0.67, 0.01, 0.90, 0.95)),
        ("ippc", (0.1, 0.70, 0.1, 0.95, 1.0)),
    ],
)
def test_rows_with_one_parent(dynamics: str, expected: tuple[float, ...]) -> None:
    model = fmdp.problem(f"circle:3,dynamics={dynamics}")
    n = 3
    for i in range(n):
        for k, (parent, own) in enumerate(itertools.product((0, 1), repeat=2)):
            for rest in (0, 1):
                state = [rest] * n
                state[i], state[i - 1] = own, parent
                for action in range(n + 1):
                    wanted = expected[4] if action == i else expected[k]
                    assert_allclose(works_next(model, i, tuple(state), action), wanted, rtol=1e-15)


@pytest.mark.parametrize(
    ("dynamics", "expected"),
    [
        # self down and self working, with 0, 1, 2 of 2 parents working
        ("guestrin", ((0.02375, 0.475), (0.02375, 0.475), (0.0475, 0.95))),
        ("talebi", ((0.01, 0.67), (0.01, 0.67), (0.01, 0.90))),
        ("ippc", ((0.1, 0.45 + 0.5 / 3), (0.1, 0.45 + 1.0 / 3), (0.1, 0.95))),
    ],
)
def test_rows_with_two_parents(dynamics: str, expected: tuple[tuple[float, float], ...]) -> None:
    model = fmdp.problem(f"{NETWORK},dynamics={dynamics}")
    assert model.structure.transition_scopes[0] == (0, 1, 3, 4)
    for own, left, right in itertools.product((0, 1), repeat=3):
        got = works_next(model, 0, (own, left, 0, right), 4)
        assert_allclose(got, expected[left + right][own], rtol=1e-15)


@pytest.mark.parametrize(
    ("dynamics", "down", "working"),
    [("guestrin", 0.0475, 0.95), ("talebi", 0.01, 0.90), ("ippc", 0.1, 0.95)],
)
def test_a_machine_without_parents_counts_as_one_whose_parents_work(
    dynamics: str, down: float, working: float
) -> None:
    for problem in ("star:3", "circle:1", "bi-ring:1", "network:2"):
        model = fmdp.problem(f"{problem},dynamics={dynamics}")
        n = model.structure.m
        assert model.structure.state_scope(0) == (0,)
        assert_allclose(works_next(model, 0, (0,) * n, n), down, rtol=1e-15)
        assert_allclose(works_next(model, 0, (1,) + (0,) * (n - 1), n), working, rtol=1e-15)


def test_ippc_pays_for_restarts() -> None:
    model = fmdp.problem("star:2,dynamics=ippc")
    assert model.structure.reward_scopes == ((0,), (1,), (2,))
    assert model.structure.reward_ranges == ((0.0, 1.0), (0.0, 1.0), (-0.5, 0.0))
    assert [model.expected_reward((1, 1), (a,)) for a in range(3)] == [1.5, 1.5, 2.0]
    assert "-0.0" not in str(model.structure.reward_ranges)


def test_server_and_mean_scale_means_and_ranges() -> None:
    model = fmdp.problem("circle:4,dynamics=ippc,server=3,reward=mean")
    assert model.structure.reward_ranges == ((0.0, 0.75), *[(0.0, 0.25)] * 3, (-0.125, 0.0))
    assert model.expected_reward((1, 1, 0, 0), (0,)) == 0.75 + 0.25 - 0.125
    assert fmdp.problem("circle:4,server=0").expected_reward((1, 1, 1, 1), (4,)) == 3.0


def test_reward_option_leaves_the_transitions_alone() -> None:
    plain, mean = fmdp.problem("grid:4"), fmdp.problem("grid:4,reward=mean")
    for one, other in zip(plain.transitions, mean.transitions, strict=True):
        assert_array_equal(one, other)


def test_parameters_of_the_random_tables_go_with_xu_only() -> None:
    for option in ("seed=2", "alpha1=.2", "alpha2=.2"):
        with pytest.raises(InvalidParameter, match=f"'{option[:-3].rstrip('=')}.*dynamics=xu"):
            fmdp.problem(f"circle:3,dynamics=talebi,{option}")


def test_a_thousand_machines() -> None:
    model = fmdp.problem("circle:1000,dynamics=talebi,reward=mean")
    assert model.structure.n_states == 2**1000
    assert model.structure.transition_rows == (4 * 1001,) * 1000
    assert_allclose(model.expected_reward(model.initial_state, (1000,)), 1.0)
    assert works_next(model, 500, model.initial_state, 500) == 0.95


@pytest.mark.parametrize(
    "problem",
    [
        "circle:100000",
        "circle:1" + "0" * 18,
        "star:6000",
        "network:40,edges=" + "+".join(f"{i}>39" for i in range(39)),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_made(problem: str) -> None:
    with pytest.raises(TooLarge, match="GiB of tables") as refused:
        fmdp.problem(problem)
    assert refused.value.needed_bytes > refused.value.limit_bytes == 2**30
