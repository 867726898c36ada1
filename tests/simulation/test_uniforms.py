"""The uniforms of an environment are those of its generator, to the last bit and to the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.simulation.uniforms import UniformBlocks


class Own(np.random.Generator):
    """A class of one's own, which may draw otherwise: here from the other end."""

    def random(self, *shape: Any) -> Any:  # type: ignore[override]
        return 1.0 - super().random(*shape)


KINDS = (
    lambda seed: np.random.Generator(np.random.PCG64(seed)),
    lambda seed: np.random.Generator(np.random.PCG64DXSM(seed)),
    lambda seed: np.random.Generator(np.random.MT19937(seed)),
    lambda seed: Own(np.random.PCG64(seed)),
)


def same_state(one: np.random.Generator, other: np.random.Generator) -> bool:
    return str(one.bit_generator.state) == str(other.bit_generator.state)


@settings(max_examples=60, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 2**64),
    width=st.integers(1, 9),
    rows=st.integers(1, 20),
    data=st.data(),
)
def test_blocks_are_what_the_generator_gives(
    kind: Any, seed: int, width: int, rows: int, data: st.DataObject
) -> None:
    columns = data.draw(st.lists(st.integers(0, width - 1), max_size=12))
    ours, theirs = kind(seed), kind(seed)
    for generator in (ours, theirs):
        generator.integers(2**32, dtype=np.uint32)  # half a number that waits in its state
    luck = UniformBlocks(ours, width, columns, rows)
    for _ in range(3):
        assert np.array_equal(luck.block(), theirs.random((rows, width))[:, columns])
        assert same_state(ours, theirs)


def test_others_may_draw_in_between_and_set_the_generator_anew() -> None:
    ours, theirs = (np.random.Generator(np.random.PCG64(3)) for _ in range(2))
    luck = UniformBlocks(ours, 5, [0, 4], 7)
    for _ in range(3):
        assert np.array_equal(luck.block(), theirs.random((7, 5))[:, [0, 4]])
        assert ours.normal() == theirs.normal()
    for generator in (ours, theirs):  # another stream: the increment is another too
        generator.bit_generator.state = np.random.PCG64(4).state
    assert np.array_equal(luck.block(), theirs.random((7, 5))[:, [0, 4]])
    assert same_state(ours, theirs)


@pytest.mark.parametrize("place", [0, 2**64 - 1, 2**64, 2**128 - 1, (2**64 - 1) << 64])
def test_carries(place: int) -> None:
    """Where the halves of the state are all zeros or all ones."""
    ours, theirs = (np.random.Generator(np.random.PCG64(0)) for _ in range(2))
    for generator in (ours, theirs):
        state: Any = generator.bit_generator.state
        state["state"]["state"] = place
        generator.bit_generator.state = state
    assert np.array_equal(UniformBlocks(ours, 3, [0, 1, 2], 50).block(), theirs.random((50, 3)))
    assert same_state(ours, theirs)
