"""FactoredMDP: tables of any shape and order, rows that are distributions, errors by row."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model import FactoredMDP, Noise, Structure
from fmdp.testing.strategies import models

STRUCTURE = Structure(
    state_sizes=(2, 3),
    action_sizes=(2,),
    transition_scopes=((0, 2), ()),
    reward_scopes=((1,), ()),
    reward_ranges=((0.0, 2.0), (-1.0, 1.0)),
    state_names=("door", "lamp"),
    state_values=(("open", "shut"), ("red", "green", "blue")),
)
DOOR = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.0, 1.0]]]  # [door, a0, next door]
LAMP = [0.2, 0.3, 0.5]
REWARDS = [[0.0, 1.0, 2.0], -0.5]
MODEL = FactoredMDP(STRUCTURE, [DOOR, LAMP], REWARDS, Noise("bernoulli"), (1, 2), "door and lamp")


def test_tables_are_rows_in_c_order() -> None:
    assert MODEL.transitions[0].tolist() == [[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.0, 1.0]]
    assert MODEL.transitions[1].tolist() == [[0.2, 0.3, 0.5]]
    assert [table.shape for table in MODEL.rewards] == [(3,), (1,)]
    assert MODEL.noise == (Noise("bernoulli"), Noise("bernoulli"))
    assert MODEL.initial_state == (1, 2)


def test_rows_and_rewards_of_a_pair_by_hand() -> None:
    assert MODEL.transition_row(0, (0, 2), (1,)).tolist() == [0.2, 0.8]
    assert MODEL.transition_row(1, (0, 2), (1,)).tolist() == LAMP
    assert MODEL.expected_reward((0, 2), (1,)) == 1.5
    with pytest.raises(InvalidParameter, match=r'"lamp" is 3; must be in 0\.\.2'):
        MODEL.expected_reward((0, 3), (1,))
    with pytest.raises(InvalidParameter, match=r'"a0" is -1; must be in 0\.\.1'):
        MODEL.transition_row(0, (0, 0), (-1,))


@given(models())
def test_every_row_is_a_distribution_and_every_mean_in_its_range(model: FactoredMDP) -> None:
    for table in model.transitions:
        assert (table >= 0).all()
        np.testing.assert_allclose(table.sum(axis=1), 1.0, rtol=0, atol=1e-14)
    for table, (lo, hi) in zip(model.rewards, model.structure.reward_ranges, strict=True):
        assert ((table >= lo) & (table <= hi)).all()


@given(st.integers(0, 2**32 - 1), st.integers(1, 3000), st.floats(-9.9e-10, 9.9e-10))
def test_normalising_is_idempotent_to_the_last_bit(seed: int, size: int, miss: float) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.dirichlet(np.full(size, rng.choice([0.01, 1.0])), size=3) * (1 + miss)
    structure = Structure((size, 3), (1,), ((1,), ()), ())
    once = FactoredMDP(structure, [rows, [1, 0, 0]], [])
    twice = FactoredMDP(structure, once.transitions, [])
    assert np.array_equal(once.transitions[0], twice.transitions[0])
    np.testing.assert_allclose(once.transitions[0].sum(axis=1), 1.0, rtol=0, atol=size * 5e-16)


def test_exact_rows_are_not_touched() -> None:
    row = [0.2, 0.7, 0.1]  # sums to 0.9999999999999999 in floating point
    assert row[0] + row[1] + row[2] != 1.0  # (from Python 3.12 on `sum` is exact)
    model = FactoredMDP(Structure((3,), (1,), ((),), ()), [row], [])
    assert model.transitions[0][0].tolist() == row


def test_means_a_rounding_error_outside_the_range_are_put_on_its_end() -> None:
    structure = Structure((2,), (1,), ((),), ((0,),), ((0.0, 0.3),))
    model = FactoredMDP(structure, [[1, 0]], [[0.1 + 0.2, -1e-17]])
    assert 0.1 + 0.2 > 0.3
    assert model.rewards[0].tolist() == [0.3, 0.0]


@given(models(), st.data())
def test_from_factors_takes_scopes_in_any_order(model: FactoredMDP, data: st.DataObject) -> None:
    """Every table is given with its axes shuffled; the model must come out the same."""
    s = model.structure

    def shuffled(scope: tuple[int, ...], table: Any, columns: tuple[int, ...]) -> Any:
        order = data.draw(st.permutations(range(len(scope))))
        block = table.reshape((*s.scope_sizes(scope), *columns))
        moved = block.transpose(*order, *range(len(scope), block.ndim))
        if data.draw(st.booleans()):
            moved = moved.reshape(-1, *columns)
        by_name = data.draw(st.booleans())
        given_scope = [scope[position] for position in order]
        return [s.names[v] for v in given_scope] if by_name else given_scope, moved

    again = FactoredMDP.from_factors(
        s.state_sizes,
        s.action_sizes,
        [
            shuffled(scope, table, (size,))
            for scope, table, size in zip(
                s.transition_scopes, model.transitions, s.state_sizes, strict=True
            )
        ],
        [
            shuffled(scope, table, ())
            for scope, table in zip(s.reward_scopes, model.rewards, strict=True)
        ],
        reward_ranges=s.reward_ranges,
        noise=model.noise,
        initial_state=model.initial_state,
        name=model.name,
    )
    assert again == model
    assert again.content_hash == model.content_hash


def test_from_factors_by_hand() -> None:
    """P(x' = 1 | x, y) = .1 x + .2 y, the table given with y first."""
    table = [[[1 - p, p] for p in (0.2 * y, 0.2 * y + 0.1)] for y in range(3)]
    model = FactoredMDP.from_factors(
        (2, 3),
        (1,),
        [(["y", "x"], table), ((), [1, 0, 0])],
        state_names=("x", "y"),
        groups=[["y", "x"]],
    )
    assert model.structure.transition_scopes == ((0, 1), ())
    for x, y in product(range(2), range(3)):
        assert model.transition_row(0, (x, y), (0,))[1] == pytest.approx(0.1 * x + 0.2 * y)
    assert model.structure.groups == ((0, 1),)


def test_content_hash_tells_apart_what_differs() -> None:
    def changed(**change: Any) -> FactoredMDP:
        arguments: dict[str, Any] = {
            "structure": STRUCTURE,
            "transitions": [DOOR, LAMP],
            "rewards": REWARDS,
            "noise": Noise("bernoulli"),
            "initial_state": (1, 2),
            "name": "door and lamp",
        }
        return FactoredMDP(**(arguments | change))

    assert changed() == MODEL
    assert hash(changed()) == hash(MODEL)
    others = [
        changed(transitions=[DOOR, [0.2, 0.5, 0.3]]),
        changed(rewards=[[0.0, 1.0, 1.5], -0.5]),
        changed(noise=None),
        changed(initial_state=(0, 2)),
        changed(name="other"),
    ]
    assert all(other != MODEL for other in others)
    assert len({MODEL.content_hash, *(other.content_hash for other in others)}) == 6
    assert MODEL != "door and lamp"


def test_the_content_hash_is_the_same_for_both_zeros() -> None:
    structure = Structure((2,), (1,), ((),), ((),))
    positive = FactoredMDP(structure, [[1.0, 0.0]], [0.0])
    negative = FactoredMDP(structure, [[1.0, -0.0]], [-0.0])
    assert positive == negative
    assert positive.content_hash == negative.content_hash


def test_nothing_can_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        MODEL.transitions[0][0, 0] = 0.5
    with pytest.raises(ValueError, match="read-only"):
        MODEL.rewards[0][0] = 0.5
    with pytest.raises(FrozenInstanceError):
        MODEL.name = "x"  # type: ignore[misc]
    given_table = np.array([[0.5, 0.5]])
    model = FactoredMDP(Structure((2,), (1,), ((),), ()), [given_table], [])
    given_table[:] = 0
    assert model.transitions[0].tolist() == [[0.5, 0.5]]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_frozen_too(duplicate: Any) -> None:
    twin = duplicate(MODEL)
    assert twin == MODEL
    assert not twin.transitions[0].flags.writeable


def test_a_reward_table_that_is_not_a_vector_of_its_scope_and_other_shapes() -> None:
    with pytest.raises(InvalidModel) as caught:
        FactoredMDP(STRUCTURE, [np.ones((2, 2)), LAMP], REWARDS)
    assert str(caught.value) == (
        'transition factor 0 ("door"): the table has shape [2, 2]; must be [4, 2] or [2, 2, 2], '
        "for scope (door, a0)"
    )
    with pytest.raises(InvalidModel, match=r'reward factor 0 \("r0"\): .* must be \[3\]'):
        FactoredMDP(STRUCTURE, [DOOR, LAMP], [[[0.0, 1.0, 2.0]], -0.5])


def broken(i: int, row: int, values: list[Any]) -> list[Any]:
    """The transition tables with one row replaced."""
    tables: list[Any] = [np.array(DOOR).reshape(4, 2).tolist(), [list(LAMP)]]
    tables[i][row] = values
    return tables


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"transitions": broken(0, 3, [0.5, 0.4])},
            ['transition factor 0 ("door"), row 3 (door=shut, a0=1)', "0.9", "within 1e-09"],
        ),
        (
            {"transitions": broken(0, 1, [1.5, -0.5])},
            ['"door"), row 1 (door=open, a0=1)', "value 1 is -0.5", "at least 0"],
        ),
        (
            {"transitions": broken(0, 2, [float("nan"), 0.5])},
            ['"door"), row 2 (door=shut, a0=0)', "value 0 is nan", "finite"],
        ),
        (
            {"transitions": broken(1, 0, [0.0, float("inf"), 0.0])},
            ['transition factor 1 ("lamp"), row 0 (empty scope)', "value 1 is inf"],
        ),
        ({"transitions": broken(1, 0, [1e308] * 3)}, ['"lamp"), row 0', "sums to inf"]),
        ({"transitions": broken(0, 0, ["a", "b"])}, ['"door")', "not numbers"]),
        ({"transitions": broken(0, 0, [None, 1])}, ['"door")', "not numbers"]),
        ({"transitions": broken(0, 0, [1.0])}, ['"door")', "one length"]),
        ({"transitions": [DOOR]}, ["1 transition tables", "2 state variables"]),
        (
            {"rewards": [[0.0, 2.5, 2.0], 0]},
            ['reward factor 0 ("r0"), row 1 (lamp=green)', "2.5", "[0.0, 2.0]"],
        ),
        ({"rewards": [[0.0, 1.0, float("nan")], 0]}, ['"r0"), row 2 (lamp=blue)', "nan"]),
        ({"rewards": [[0.0, 1.0, 2.0], -2]}, ['factor 1 ("r1"), row 0 (empty scope)', "-2.0"]),
        ({"rewards": []}, ["0 reward tables", "2 reward factors"]),
        ({"noise": [Noise()]}, ["1 noise laws", "2 reward factors"]),
        ({"noise": ["bernoulli", Noise()]}, ["noise of reward factor 0", "'bernoulli'"]),
        ({"initial_state": (0, 3)}, ["initial state (0, 3)", '"lamp" is 3', "0..2"]),
        ({"initial_state": (0,)}, ["initial state (0,)", "must have 2"]),
        ({"name": "two\nlines"}, ["name", "printable"]),
        ({"structure": "circle"}, ["structure", "'circle'"]),
    ],
)
def test_errors_name_the_culprit(change: dict[str, Any], words: list[str]) -> None:
    good: dict[str, Any] = {
        "structure": STRUCTURE,
        "transitions": [DOOR, LAMP],
        "rewards": REWARDS,
    }
    FactoredMDP(**good)
    with pytest.raises(InvalidModel) as caught:
        FactoredMDP(**(good | change))
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def test_several_bad_rows_are_counted() -> None:
    with pytest.raises(InvalidModel, match=r"row 0 .*\(and 3 more bad rows\)"):
        FactoredMDP(STRUCTURE, [np.zeros((4, 2)), LAMP], REWARDS)


def test_the_bad_row_of_a_large_table_is_found() -> None:
    structure = Structure((2, 1000), (1000,), ((1, 2), ()), ())
    table = np.full((10**6, 2), 0.5)
    table[123_456, 0] = 0.6
    with pytest.raises(InvalidModel, match=r"row 123456 \(s1=123, a0=456\): sums to 1\.1"):
        FactoredMDP(structure, [table, np.eye(1000)[0]], [])


def test_from_factors_counts_rows_as_they_were_given() -> None:
    rows = [[0.5, 0.5]] * 6
    rows[4] = [0.5, 0.6]
    with pytest.raises(
        InvalidModel, match=r'factor 0 \("s0"\), row 4 \(a0=2, s0=0\): sums to 1\.1'
    ):
        FactoredMDP.from_factors((2,), (3,), [(["a0", "s0"], rows)])
    means = [0, 0, 2, 0]
    with pytest.raises(InvalidModel, match=r"row 2 \(a0=1, s0=0\): mean is 2\.0"):
        FactoredMDP.from_factors(
            (2,), (2,), [((), [1, 0])], [((1, 0), means)], reward_ranges=[(0, 1)]
        )


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ([0, 0], ["variable 0", '"door"', "twice"]),
        (["door", 0], ["variable 0", "twice"]),
        ([5], ["5", "0..1"]),
        (["dor"], ['"dor"', 'did you mean "door"?']),
        ([1.0], ["1.0"]),
        ("door", ["scope is 'door'", "list"]),
        (["\ud800"], ["'\\ud800'"]),
    ],
)
def test_from_factors_errors_name_the_variable(scope: Any, words: list[str]) -> None:
    with pytest.raises(InvalidModel) as caught:
        FactoredMDP.from_factors((2,), (2,), [(scope, [[1, 0]] * 2)], state_names=("door",))
    for word in ['transition factor 0 ("door")', *words]:
        assert word in str(caught.value)


def test_from_factors_needs_one_factor_a_state_variable() -> None:
    with pytest.raises(InvalidModel, match="1 transition factors for 2 state variables"):
        FactoredMDP.from_factors((2, 2), (2,), [((), [1, 0])])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("gausian", 1.0), ["'gausian'", 'did you mean "gaussian"?']),
        ((3,), ["3", "deterministic"]),
        (("gaussian",), ["scale is 0.0", "above 0"]),
        (("gaussian", float("inf")), ["inf"]),
        (("gaussian", float("nan")), ["nan"]),
        (("gaussian", "1"), ["'1'", "number"]),
        (("bernoulli", 0.5), ["0.5", "only gaussian"]),
    ],
)
def test_noise_errors(arguments: tuple[Any, ...], words: list[str]) -> None:
    with pytest.raises(InvalidModel) as caught:
        Noise(*arguments)
    for word in words:
        assert word in str(caught.value)


def test_repr_is_one_short_line() -> None:
    assert repr(MODEL) == (
        "FactoredMDP('door and lamp': state sizes (2, 3), action sizes (2,), 2 reward factors)"
    )
