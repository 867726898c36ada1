"""Names: every way to write a state or an action comes to the same tuple, and back."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import InvalidParameter
from fmdp.model import Structure
from fmdp.model.naming import Naming, Numerals

PUMP = Structure(
    (3, 2),
    (2,),
    ((0,), (1,)),
    (),
    state_names=("pump", "price"),
    state_values=(("new", "worn", "broken"), ("low", "high")),
    action_names=("act",),
    action_values=(("wait", "repair"),),
)


@pytest.mark.parametrize(
    "written",
    [
        (1, 0),
        [1, 0],
        np.array([1, 0]),
        np.array([1, 0], dtype=np.uint8),
        (np.int64(1), np.int8(0)),
        ("worn", "low"),
        ("worn", 0),
        np.array(["worn", "low"]),
        {"pump": "worn", "price": "low"},
        {"price": 0, "pump": "worn"},
        "pump=worn,price=low",
        " price = low , pump = worn",
        '{"pump": "worn", "price": 0}',
    ],
)
def test_every_way_to_write_a_state_comes_to_the_same(written: Any) -> None:
    found = PUMP.check_state(written)
    assert found == (1, 0)
    assert all(type(value) is int for value in found)
    assert PUMP.name_state(written) == {"pump": "worn", "price": "low"}


@pytest.mark.parametrize("written", [(1,), "act=repair", "repair", {"act": "repair"}, ["repair"]])
def test_every_way_to_write_an_action_comes_to_the_same(written: Any) -> None:
    assert PUMP.check_action(written) == (1,)
    assert PUMP.name_action(written) == {"act": "repair"}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"pum": "worn", "price": "low"}, ['no state variable is called "pum"', 'mean "pump"?']),
        ({"pump": "wron", "price": "low"}, ['"pump" has no value "wron"', 'mean "worn"?']),
        ({"pump": "worn"}, ['state: "price" is missing; every state variable must have a value']),
        ("pump=worn,pump=new,price=low", ['"pump" is given twice']),
        ('{"pump": 1, "pump": 2, "price": 0}', ['"pump" is given twice']),
        ("pump=worn", ['"price" is missing']),
        ("pump", ['"pump" must be name=value, as in pump=new,price=low']),
        ("", ['"" must be name=value']),
        ("pump=1,price=0", ['"pump" has no value "1"; must be one of new, worn, broken']),
        ({"pump": 3, "price": 0}, ['"pump" is 3; must be in 0..2, or one of new, worn, broken']),
        ({"pump": True, "price": 0}, ['"pump" is True']),
        ({0: 1, 1: 0}, ["no state variable is called 0"]),
        (("worn", "lo"), ["state ('worn', 'lo')", '"price" has no value "lo"', 'mean "low"?']),
        ((1,), ["has 1 values; must have 2"]),
        (7, ["state is 7; must be 2 whole numbers or names of values, or a mapping by name"]),
        ("{not json", ["is no JSON object"]),
        ("{" * 100_000, ["is no JSON object"]),
        ("x" * 100_000 + "=1", ["no state variable is called", "..."]),
        ({"act": "wait", "pump": "new", "price": "low"}, ['no state variable is called "act"']),
    ],
)
def test_what_is_no_state_is_refused_in_one_line(written: Any, words: list[str]) -> None:
    with pytest.raises(InvalidParameter) as refused:
        PUMP.check_state(written)
    said = str(refused.value)
    assert "\n" not in said
    assert len(said) < 1000
    for word in words:
        assert word in said


def test_a_value_alone_that_is_none_is_refused_by_its_variable() -> None:
    with pytest.raises(InvalidParameter, match=r'"act" has no value "repare".*mean "repair"'):
        PUMP.check_action("repare")


NAMES = st.text(
    st.characters(categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=5
).filter(str.isprintable)


@given(st.data())
def test_any_name_goes_in_and_out_again(data: st.DataObject) -> None:
    """Names with , = { and spaces too: as a mapping, in a sequence, and as JSON."""
    names = data.draw(st.lists(NAMES, min_size=3, max_size=3, unique=True))
    values = [
        tuple(data.draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))) for _ in range(2)
    ]
    structure = Structure(
        tuple(map(len, values)),
        (1,),
        ((), ()),
        (),
        state_names=tuple(names[:2]),
        action_names=(names[2],),
        state_values=tuple(values),
    )
    state = tuple(data.draw(st.integers(0, len(own) - 1)) for own in values)
    named = structure.name_state(state)
    assert list(named) == names[:2]
    assert structure.check_state(named) == state
    assert structure.check_state(json.dumps(named)) == state
    assert structure.check_state(list(named.values())) == state
    if not set(",={ ") & set("".join([*names, *map("".join, values)])):
        assert structure.check_state(",".join(map("=".join, named.items()))) == state


def test_a_million_values_are_found_without_a_table_of_their_names() -> None:
    naming = Naming.default((2**20,), (1,))
    assert isinstance(naming.states.values[0], Numerals)
    assert naming.check_state(f"s0={2**20 - 1}") == (2**20 - 1,)
    assert naming.states.named((77,)) == {"s0": "77"}
    for wrong in ("01", str(2**20), "-1", "1" * 5000, "²", "1_0"):
        with pytest.raises(InvalidParameter, match='"s0" has no value'):
            naming.check_state({"s0": wrong})


def test_default_names_are_known_as_such() -> None:
    assert Structure((2, 3), (2,), ((), ()), ()).naming.is_default
    assert not PUMP.naming.is_default
