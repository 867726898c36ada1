"""The one way to the checked contents of a model, behind all constructors of `FactoredMDP`.

`variables_of` checks the variables, `contents_from_tables` takes the tables of a structure, and
`contents_from_factors` takes (scope, table) pairs with scopes in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy.typing as npt

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model.alike import Alike, unequal_pair
from fmdp.model.constraints import Constraint
from fmdp.model.effects import Effects
from fmdp.model.intervals import Intervals
from fmdp.model.naming import Assignment
from fmdp.model.noise import Noise, laws_of
from fmdp.model.quantities import Quantity, checked_quantities, quantities_of
from fmdp.model.scopes import scope_numbers
from fmdp.model.spaces import FloatArray, items, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import (
    make_equal,
    pairs_of,
    reward_table,
    sort_rows,
    sorted_alike,
    sorted_intervals,
    transition_table,
)


class Contents(NamedTuple):
    """The checked fields of a `FactoredMDP`; the tables are read-only."""

    structure: Structure
    transitions: tuple[FloatArray, ...]
    rewards: tuple[FloatArray, ...]
    noise: tuple[Noise, ...]
    initial_state: tuple[int, ...]
    name: str
    intervals: Intervals | None
    quantities: tuple[Quantity, ...] = ()


def variables_of(
    state_sizes: Sequence[int],
    action_sizes: Sequence[int],
    state_names: Any = (),
    action_names: Any = (),
    state_values: Any = (),
    action_values: Any = (),
) -> Structure:
    """Return a structure of these variables, checked, whose factors say nothing yet."""
    sizes = items(state_sizes, "state sizes")
    return Structure(
        sizes,
        action_sizes,  # type: ignore[arg-type]  # Structure makes tuples of all these
        ((),) * len(sizes),
        (),
        state_names=state_names,
        action_names=action_names,
        state_values=state_values,
        action_values=action_values,
    )


def contents_from_tables(
    structure: Structure,
    transitions: Sequence[npt.ArrayLike],
    rewards: Sequence[npt.ArrayLike],
    noise: Noise | Sequence[Noise] | None,
    initial_state: Assignment | None,
    name: str,
    intervals: Intervals | None,
    quantities: Sequence[Quantity] = (),
) -> Contents:
    """Check the arguments of the constructor of `FactoredMDP`."""
    if not isinstance(structure, Structure):
        raise InvalidModel(f"structure is {structure!r}; must be a Structure")
    transitions = items(transitions, "transition tables")
    rewards = items(rewards, "reward tables")
    for given, needed, what in (
        (transitions, structure.m, "transition tables for {} state variables"),
        (rewards, structure.l, "reward tables for {} reward factors"),
    ):
        if len(given) != needed:
            raise InvalidModel(f"{len(given)} {what.format(needed)}; the numbers must agree")
    s = structure
    # Parts of one type are given one array, which is checked and stored once.
    stored: dict[tuple[Any, ...], FloatArray] = {}
    rows = []
    for i, table in enumerate(transitions):
        key: tuple[Any, ...] = (id(table), s.scope_sizes(s.transition_scopes[i]), s.state_sizes[i])
        if key not in stored:
            stored[key] = transition_table(s, i, s.transition_scopes[i], table)
        rows.append(stored[key])
    means = []
    for k, table in enumerate(rewards):
        key = (id(table), s.scope_sizes(s.reward_scopes[k]), s.reward_ranges[k])
        if key not in stored:
            stored[key] = reward_table(s, k, s.reward_scopes[k], table)
        means.append(stored[key])
    return checked_together(
        structure,
        rows,
        means,
        laws_of(noise, structure.l),
        _checked_state(initial_state, structure),
        _printable(name),
        intervals,
        checked_quantities(structure, quantities),
    )


def contents_from_factors(
    variables: Structure,
    transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
    rewards: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
    *,
    reward_ranges: Sequence[tuple[float, float]] = (),
    reward_names: Sequence[str] = (),
    groups: Sequence[Sequence[int | str]] = (),
    noise: Noise | Sequence[Noise] | None = None,
    initial_state: Assignment | None = None,
    name: str = "",
    alike: Alike | None = None,
    constraints: Sequence[Constraint] = (),
    effects: Effects | None = None,
    intervals: Intervals | None = None,
    quantities: Iterable[tuple[str, Sequence[int | str], npt.ArrayLike]] = (),
) -> Contents:
    """Check the arguments of `FactoredMDP.from_factors`, over the variables of a structure."""
    transitions = pairs_of(transitions, "transition factor")
    rewards = pairs_of(rewards, "reward factor")
    bare = with_rewards(variables, len(rewards), reward_ranges, reward_names)
    refuse_wrong_number(transitions, bare)
    # Checked in the given order, so that a message names the row as the caller counts.
    scopes: list[tuple[int, ...]] = []
    tables: list[FloatArray] = []
    for i, (scope, table) in enumerate(transitions):
        numbers = scope_numbers(bare, scope, bare.transition_label(i))
        scopes.append(numbers)
        tables.append(transition_table(bare, i, numbers, table))
    for k, (scope, table) in enumerate(rewards):
        numbers = scope_numbers(bare, scope, bare.reward_label(k))
        scopes.append(numbers)
        tables.append(reward_table(bare, k, numbers, table))
    in_order = tuple(tuple(sorted(scope)) for scope in scopes)
    rows = [sort_rows(bare.all_sizes, z, table) for z, table in zip(scopes, tables, strict=True)]
    structure = bare.with_factors(
        in_order[: bare.m],
        in_order[bare.m :],
        bare.reward_ranges,
        bare.reward_names,
        group_numbers(bare, groups),
        sorted_alike(alike, bare, scopes),
        constraints,
        effects,
    )
    return checked_together(
        structure,
        rows[: bare.m],
        rows[bare.m :],
        laws_of(noise, bare.l),
        _checked_state(initial_state, bare),
        _printable(name),
        sorted_intervals(intervals, bare, scopes),
        quantities_of(bare, quantities),
    )


def checked_together(
    structure: Structure,
    transitions: Sequence[FloatArray],
    rewards: Sequence[FloatArray],
    noise: tuple[Noise, ...],
    initial_state: tuple[int, ...],
    name: str,
    intervals: Intervals | None,
    quantities: tuple[Quantity, ...] = (),
) -> Contents:
    """Check what concerns several fields, each of them checked: alike rows and intervals."""
    s = structure
    if s.alike is not None:
        pair = unequal_pair(s.alike.rewards, noise)
        if pair is not None:
            raise InvalidModel(
                f"{s.reward_label(pair[0])} and {s.reward_label(pair[1])} have rows of one "
                f"class, but {noise[pair[0]]} and {noise[pair[1]]}; must be equal"
            )
        transitions = make_equal(s, transitions)
        rewards = make_equal(s, rewards, of_rewards=True)
    if intervals is not None:
        if not isinstance(intervals, Intervals):
            raise InvalidModel(f"intervals are {shown(intervals)}; must be Intervals")
        intervals = intervals.around(s, transitions, rewards)
        if s.alike is not None:
            intervals = intervals.together(s.alike)
    for table in (*transitions, *rewards):
        table.flags.writeable = False
    tables = tuple(transitions), tuple(rewards)
    return Contents(s, *tables, noise, initial_state, name, intervals, quantities)


def with_rewards(
    variables: Structure,
    n_rewards: int,
    reward_ranges: Sequence[tuple[float, float]],
    reward_names: Sequence[str],
) -> Structure:
    """Return the variables with reward factors whose scopes are not known yet, for messages."""
    empty: tuple[tuple[int, ...], ...] = ((),)
    return variables.with_factors(
        empty * variables.m, empty * n_rewards, reward_ranges, reward_names
    )


def refuse_wrong_number(transitions: Sequence[object], variables: Structure) -> None:
    """Raise InvalidModel unless there is one transition factor per state variable."""
    if len(transitions) != variables.m:
        raise InvalidModel(
            f"{len(transitions)} transition factors for {variables.m} state variables; "
            f"there must be one per state variable"
        )


def group_numbers(variables: Structure, groups: Any) -> tuple[tuple[int, ...], ...]:
    """Return groups of variables, given by name or number, as numbers."""
    return tuple(
        scope_numbers(variables, group, f"group {index}")
        for index, group in enumerate(items(groups, "groups"))
    )


def _printable(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable():
        raise InvalidModel(f"name {name!r}: must be a printable string")
    return name


def _checked_state(state: Assignment | None, structure: Structure) -> tuple[int, ...]:
    try:
        return structure.check_state(
            (0,) * structure.m if state is None else state, "initial state"
        )
    except InvalidParameter as error:
        raise InvalidModel(str(error)) from None
