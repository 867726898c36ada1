"""Spaces: the index arithmetic against itertools.product, exact however large."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.spaces import (
    all_assignments,
    count,
    decode,
    encode,
    project,
    strides,
    weighted_index,
    whole_number,
)

SIZES = st.lists(st.integers(1, 4), max_size=5)


def every(sizes: list[int]) -> list[tuple[int, ...]]:
    return list(itertools.product(*(range(size) for size in sizes)))


def test_c_order_by_hand() -> None:
    assert strides((2, 3, 4)) == (12, 4, 1)
    assert encode((1, 2, 3), (2, 3, 4)) == 23
    assert decode(13, (2, 3, 4)) == (1, 0, 1)
    assert project((2, 3), (1,)).tolist() == [0, 1, 2, 0, 1, 2]
    assert project((2, 3), (1, 0)).tolist() == [0, 2, 4, 1, 3, 5]
    assert project((2, 2), ()).tolist() == [0, 0, 0, 0]


@given(SIZES)
def test_indices_follow_itertools_product(sizes: list[int]) -> None:
    assignments = every(sizes)
    assert count(sizes) == len(assignments)
    assert all_assignments(sizes).tolist() == [list(x) for x in assignments]
    for index, x in enumerate(assignments):
        assert encode(x, sizes) == index
        assert decode(index, sizes) == x


@given(SIZES, st.data())
def test_project_is_the_index_of_the_part(sizes: list[int], data: st.DataObject) -> None:
    scope = data.draw(st.permutations(range(len(sizes))))
    scope = scope[: data.draw(st.integers(0, len(scope)))]
    own = [sizes[v] for v in scope]
    expected = [encode([x[v] for v in scope], own) for x in every(sizes)]
    assert project(sizes, scope).tolist() == expected


def test_large_spaces_are_exact() -> None:
    sizes = (2,) * 300
    assert count(sizes) == 2**300
    last = (1,) * 300
    assert encode(last, sizes) == 2**300 - 1
    assert decode(2**300 - 1, sizes) == last


def test_more_variables_than_numpy_has_axes() -> None:
    sizes = (1,) * 100 + (2, 3)
    assert project(sizes, (101,)).tolist() == [0, 1, 2, 0, 1, 2]
    assert all_assignments(sizes)[:, 100:].tolist() == all_assignments((2, 3)).tolist()


def test_arrays_over_huge_spaces_are_refused() -> None:
    with pytest.raises(TooLarge, match=str(8 * 2**40)) as caught:
        weighted_index((2,) * 40, (0,) * 40)
    assert caught.value.needed_bytes == 8 * 2**40
    with pytest.raises(TooLarge):
        all_assignments((2,) * 40)


def test_errors_name_the_value() -> None:
    with pytest.raises(InvalidParameter, match=r"value 3 at position 1 must be in 0\.\.2"):
        encode((0, 3), (2, 3))
    with pytest.raises(InvalidParameter, match=r"value 0\.5 at position 0"):
        encode((0.5, 1), (2, 3))  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="has 1 values; must have 2"):
        encode((0,), (2, 3))
    with pytest.raises(InvalidParameter, match=r"index 6 must be in 0\.\.5"):
        decode(6, (2, 3))


def test_whole_numbers_are_integers_but_not_bools() -> None:
    assert whole_number(3) == 3
    assert type(whole_number(np.int16(3))) is int
    for other in (True, np.True_, 3.0, "3", None):
        assert whole_number(other) is None


def test_messages_about_astronomical_spaces_can_be_written() -> None:
    with pytest.raises(TooLarge, match=r"needs about 10\^6021 bytes"):
        project((2,) * 20_000, ())
    with pytest.raises(InvalidParameter, match=r"index -1 must be in 0\.\.about 10\^6020"):
        decode(-1, (2,) * 20_000)
