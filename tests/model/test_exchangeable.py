"""Groups of exchangeable parts: found, declared, and refused by what differs."""

from __future__ import annotations

import numpy as np
import pytest

from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.model.exchangeable.parts import Group
from fmdp.problems import problem
from fmdp.testing.exchangeable import exchangeable_model


def groups_of(model: FactoredMDP) -> tuple[Group, ...]:
    parts, _ = exchangeable_parts(model)
    return () if parts is None else parts.groups


def test_the_leaves_of_a_star_are_addressed_by_the_shared_action() -> None:
    (group,) = groups_of(problem("star:5,dynamics=guestrin"))
    assert group.states == ((1,), (2,), (3,), (4,))
    assert group.selector == 5
    assert group.values == ((1,), (2,), (3,), (4,))


def test_legs_are_parts_of_two_variables_and_two_addresses() -> None:
    (group,) = groups_of(problem("three-leg:7,dynamics=ippc"))
    assert group.states == ((1, 4), (2, 5), (3, 6))
    assert group.values == ((1, 4), (2, 5), (3, 6))


def test_components_with_actions_of_their_own() -> None:
    (group,) = groups_of(problem("maintenance:4,levels=3,crew=2"))
    assert group.states == ((0,), (1,), (2,), (3,))
    assert group.actions == ((4,), (5,), (6,), (7,))


@pytest.mark.parametrize("name", ["circle:6,dynamics=ippc", "machines:4", "star:6"])
def test_models_without_groups(name: str) -> None:
    assert groups_of(problem(name)) == ()


@pytest.mark.parametrize("seed", range(100, 160))
def test_random_models_have_the_groups_that_they_were_made_with(seed: int) -> None:
    model = exchangeable_model(np.random.default_rng(seed))
    parts, reasons = exchangeable_parts(model)
    assert parts is not None
    assert not reasons


def changed(model: FactoredMDP, i: int, rows: list[int], to: tuple[float, ...]) -> FactoredMDP:
    transitions = [np.array(table) for table in model.transitions]
    transitions[i][rows] = to
    return FactoredMDP(
        model.structure, transitions, model.rewards, initial_state=model.initial_state
    )


def test_one_row_that_differs_is_named_with_both_numbers() -> None:
    new = [0, 1, 3]  # left alone while new, or replaced
    model = changed(problem("maintenance:3,levels=2,k=0,setup=0"), 2, new, (0.5, 0.5))
    groups = groups_of(model)
    assert [group.states for group in groups] == [((0,), (1,))]
    with pytest.raises(InvalidParameter) as refusal:
        exchangeable_parts(model, [("wear_0", "wear_1", "wear_2")])
    assert str(refusal.value) == (
        "the parts are not exchangeable: wear_0 differs from wear_2: transition wear_0 is 0.7 and "
        "wear_2 is 0.5 at wear_0=0, action_0=leave, next value 0"
    )


def test_a_declared_group_must_be_state_variables() -> None:
    with pytest.raises(InvalidParameter, match='no state variable is called "wear_9"'):
        exchangeable_parts(problem("maintenance:3"), [("wear_0", "wear_9")])


def test_neighbours_on_a_ring_are_one_part() -> None:
    with pytest.raises(InvalidParameter, match="depend on each other directly"):
        exchangeable_parts(problem("circle:4,dynamics=ippc"), [("machine_0", "machine_1")])


def test_a_table_over_all_parts_must_be_symmetric() -> None:
    model = problem("maintenance:3,levels=2,k=2")
    rewards = [np.array(table) for table in model.rewards]
    rewards[-1][1] -= 1.0  # wear_2 alone is failed
    other = FactoredMDP(model.structure, model.transitions, rewards)
    with pytest.raises(
        InvalidParameter, match=r"reward penalty changes from .* when wear_1 and wear_2"
    ):
        exchangeable_parts(other, [("wear_0", "wear_1", "wear_2")])


def test_declared_parts_of_several_variables_have_their_own_actions() -> None:
    """The action of a machine acts on its status and its load, and on no other machine."""
    model = problem("machines:2,topology=none")
    parts, _ = exchangeable_parts(model, [["status_0", "load_0", "status_1", "load_1"]])
    assert parts is not None
    (group,) = parts.groups
    assert [sorted(part) for part in group.states] == [[0, 1], [2, 3]]
    assert group.actions == ((4,), (5,))
