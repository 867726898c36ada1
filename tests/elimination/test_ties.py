"""One tie rule in Python and in compiled code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.elimination import ties
from fmdp.elimination.backup import backup_for
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**62), st.sets(st.integers(0, 50), min_size=1))
def test_python_and_compiled_ranks_agree(seed: int, key: int, tied: set[int]) -> None:
    ranked = min(tied, key=lambda action: int(ties.tie_hash(seed, key, action)))
    assert ties.choose_tied(sorted(tied), "random", seed, key) == ranked
    assert ties.choose_tied(sorted(tied), "first", seed, key) == min(tied)
    assert ties.choose_tied(sorted(tied), "last", seed, key) == max(tied)


def test_known_word_of_splitmix64() -> None:
    """The first output of the reference generator seeded with 0."""
    assert ties._mix_python(0) == 0xE220A8397B1DCDAF
    assert int(ties.mix(np.uint64(0))) == 0xE220A8397B1DCDAF


def test_all_actions_equal() -> None:
    """With nothing to choose between, `random` spreads over the actions and depends on the seed."""
    structure = Structure((16, 16), (5,), ((0,), (1,)), ((0,),), ((0.0, 1.0),))
    uniform = np.full((16, 16), 1 / 16)
    model = FactoredMDP(structure, [uniform, uniform], [np.zeros(16)])
    backup = backup_for(model)
    h = np.zeros(256)
    assert (backup.greedy(h, ties="first")[1] == 0).all()
    assert (backup.greedy(h, ties="last")[1] == 4).all()
    chosen = backup.greedy(h, ties="random", tie_seed=3)[1]
    assert np.bincount(chosen, minlength=5).min() > 25  # 256 / 5 = 51 each
    for state in ((0, 0), (3, 15), (7, 2)):
        key = ties.state_key(state, (16, 16))
        assert chosen[16 * state[0] + state[1]] == ties.choose_tied(range(5), "random", 3, key)
    assert (backup.greedy(h, ties="random", tie_seed=4)[1] != chosen).any()


def test_near_ties_are_ties_and_clear_winners_win() -> None:
    structure = Structure((2,), (3,), ((0,),), ((1,),), ((0.0, 1.0),))
    stay = np.eye(2)
    for gap, tied in ((1e-10, True), (1e-8, False)):
        model = FactoredMDP(structure, [stay], [np.array([0.5, 0.5 - gap, 0.1])])
        last = backup_for(model).greedy(np.zeros(2), ties="last")[1]
        assert (last == (1 if tied else 0)).all()


def test_state_key_of_a_huge_space_tells_states_apart() -> None:
    sizes = (2,) * 200
    zero, one = [0] * 200, [0] * 200
    one[0] = 1  # the slowest variable: its stride would vanish modulo 2^64
    assert ties.state_key(zero, sizes) != ties.state_key(one, sizes)


def test_unknown_rule() -> None:
    with pytest.raises(InvalidParameter, match='did you mean "random"'):
        ties.rule_code("randm")
