"""Policies on counts: the action depends on how many parts are in each local state.

A table has one move per count vector (model/count_space.py). A move says how many parts of a group
in a local state take an action; in a state the first of these parts, in the order of the model, are
taken. So the policy is a deterministic function of the state, of a size that does not grow with the
number of joint states.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import Structure
from fmdp.model.count_space import CountSpace
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import count, strides
from fmdp.planning.policies.archive import Parts, StoredPolicy, array_in, sizes_in
from fmdp.planning.policies.policy import Policy, TablePolicy, smallest_unsigned
from fmdp.planning.policies.timed import TimedPolicy

Indices = NDArray[np.int64]

COLUMNS = ("move", "group", "local state", "action", "way", "parts")
"""Columns of `CountMoves.allotments`."""


@dataclass(frozen=True)
class PartsOfGroup:
    """The variables of the parts of one group, and the values of a shared action for them."""

    states: tuple[tuple[int, ...], ...]
    actions: tuple[tuple[int, ...], ...]
    selector: int = -1
    """The shared action variable that addresses parts, -1 without one."""
    values: tuple[tuple[int, ...], ...] = ()
    default: tuple[int, ...] = ()
    """Values of the actions of a part to which no move gives another one."""

    def plain(self) -> dict[str, Any]:
        """Return it as plain JSON values; `PartsOfGroup(**plain)` reads them back."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _are_values(values: Sequence[int], sizes: Sequence[int]) -> bool:
    """Return whether there is one value for each variable of these sizes."""
    return len(values) == len(sizes) and all(
        0 <= value < size for value, size in zip(values, sizes, strict=True)
    )


@dataclass(frozen=True, eq=False)
class CountMoves:
    """Moves on counts, and the actions that they are in a state.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable.
    action_sizes
        Number of values of each action variable.
    groups
        The parts.
    common
        [moves, action variables]: values of the action variables that belong to no part; -1 where
        the move addresses a part of a group.
    allotments
        [rows, 6], by move: move, group, local state, joint own action, way in which the selector
        addresses the part (0: it does not), and the number of parts.

    Raises
    ------
    InvalidParameter
        If these do not fit together.
    """

    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    groups: tuple[PartsOfGroup, ...]
    common: Indices
    allotments: Indices

    def __post_init__(self) -> None:
        self._check_groups()
        self._check_moves()
        space = CountSpace(self.state_sizes, [group.states for group in self.groups])
        object.__setattr__(self, "space", space)
        starts = np.searchsorted(self.allotments[:, 0], np.arange(len(self.common) + 1))
        object.__setattr__(self, "_starts", starts)

    space: CountSpace = None  # type: ignore[assignment]
    """The count vectors."""
    _starts: Indices = None  # type: ignore[assignment]

    def _check_groups(self) -> None:
        used: set[int] = set()
        for group in self.groups:
            variables = self._variables_of(group)
            if variables is None or not used.isdisjoint(variables):
                raise InvalidParameter("its groups are not disjoint parts of equal sizes")
            used.update(variables)
        for group in self.groups:
            if not self._has_its_actions(group) or group.selector in used:
                raise InvalidParameter("its groups have actions that their model does not have")

    def _variables_of(self, group: PartsOfGroup) -> list[int] | None:
        """Return all variables of a group; None if its parts are not disjoint or not alike."""
        m, n = len(self.state_sizes), len(self.state_sizes) + len(self.action_sizes)
        sizes = (*self.state_sizes, *self.action_sizes)
        states = [v for part in group.states for v in part]
        actions = [v for part in group.actions for v in part]
        if not all(group.states) or not all(0 <= v < m for v in states):
            return None
        if not all(m <= v < n for v in actions) or len({*states, *actions}) < len(states + actions):
            return None
        parts = zip(group.states, group.actions, strict=True)
        shapes = {
            tuple(sizes[v] for v in (*of_states, *of_actions)) for of_states, of_actions in parts
        }
        return states + actions if len(shapes) == 1 else None

    def _has_its_actions(self, group: PartsOfGroup) -> bool:
        """Return whether the default actions and the values of the selector exist."""
        m = len(self.state_sizes)
        sizes = [self.action_sizes[v - m] for v in group.actions[0]]
        if not _are_values(group.default, sizes):
            return False
        if group.selector < 0 and not group.values:
            return True
        if not m <= group.selector < m + len(self.action_sizes):
            return False
        ways = len(group.values[0]) if group.values else 0
        sizes = [self.action_sizes[group.selector - m]] * ways
        right = len(group.values) == len(group.states)
        return right and all(_are_values(part, sizes) for part in group.values)

    def _check_moves(self) -> None:
        m = len(self.state_sizes)
        rows = self.allotments
        right = self.common.shape[1:] == (len(self.action_sizes),) and rows.shape[1:] == (6,)
        if right:
            right = bool(
                (self.common >= -1).all()
                and (self.common < np.array(self.action_sizes)).all()
                and (np.diff(rows[:, 0]) >= 0).all()
                and (rows >= 0).all()
                and (rows[:, 0] < len(self.common)).all()
                and (rows[:, 1] < len(self.groups)).all()
            )
        if right:
            limits = np.array(
                [
                    (
                        count([self.state_sizes[v] for v in group.states[0]]),
                        count([self.action_sizes[v - m] for v in group.actions[0]]),
                        1 + (len(group.values[0]) if group.values else 0),
                        1 + len(group.states),
                    )
                    for group in self.groups
                ]
            ).reshape(-1, 4)
            right = bool((rows[:, 2:] < limits[rows[:, 1]]).all())
        if not right:
            raise InvalidParameter("its moves do not fit its groups")

    def actions_of(self, states: Indices, moves: NDArray[np.integer[Any]]) -> Indices:
        """Return the actions of moves in states: [T, action variables], from [T, variables], [T].

        The first parts in a local state, in the order of the model, take the action.
        """
        actions = np.empty((len(states), len(self.action_sizes)), dtype=np.int64)
        for move in np.unique(moves).tolist():
            some = np.flatnonzero(moves == move)
            actions[some] = self._actions_of_move(states[some], move)
        return actions

    def _actions_of_move(self, states: Indices, move: int) -> Indices:
        m = len(self.state_sizes)
        actions = np.repeat(np.maximum(self.common[move], 0)[None], len(states), axis=0)
        local = [self.space.local_states(g, states) for g in range(len(self.groups))]
        free = [np.ones(inside.shape, dtype=np.bool_) for inside in local]
        for group in self.groups:
            for part in group.actions:
                actions[:, [v - m for v in part]] = group.default
        for _, g, j, action, way, parts in self.allotments[
            self._starts[move] : self._starts[move + 1]
        ].tolist():
            group = self.groups[g]
            able = (local[g] == j) & free[g]
            taken = able & (able.cumsum(axis=1) <= parts)
            free[g] &= ~taken
            own = [self.action_sizes[v - m] for v in group.actions[0]]
            for slot, (step, size) in enumerate(zip(strides(own), own, strict=True)):
                columns = [part[slot] - m for part in group.actions]
                actions[:, columns] = np.where(taken, action // step % size, actions[:, columns])
            if way:
                values = np.array([part[way - 1] for part in group.values])
                actions[:, group.selector - m] = values[taken.argmax(axis=1)]
        return actions

    def header(self) -> dict[str, Any]:
        """Return its entries of the header of a policy file."""
        return {"groups": [group.plain() for group in self.groups]}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return its arrays in a policy file."""
        return {"common": self.common, "allotments": self.allotments}


class CountPolicy(StoredPolicy, Policy):
    """A policy on counts: one move for every count vector.

    Parameters
    ----------
    moves
        The moves, and the parts that they refer to.
    actions
        The number of the move of every count vector: [counts], in the order of `moves.space`.
    naming
        The names of variables and values, as `structure.naming`; None for default names.

    Raises
    ------
    InvalidParameter
        If the shape is wrong or a move is unknown.
    """

    kind = "counts"

    def __init__(
        self,
        moves: CountMoves,
        actions: NDArray[np.integer[Any]],
        naming: Naming | None = None,
    ) -> None:
        super().__init__(moves.state_sizes, moves.action_sizes, naming)
        states, n_moves = moves.space.n_states, len(moves.common)
        if actions.shape != (states,):
            raise InvalidParameter(
                f"a policy over {states} counts needs that many moves; got shape {actions.shape}"
            )
        if actions.size and not (actions.min() >= 0 and actions.max() < n_moves):
            raise InvalidParameter(f"the moves of a policy must be in 0..{n_moves - 1}")
        self.moves = moves
        self.actions: NDArray[Any] = actions.astype(smallest_unsigned(n_moves))
        """The move of every count vector."""
        self.actions.flags.writeable = False

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        """Return the action in a state, in the form of `Policy`.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.
        """
        checked = self.naming.states.check(state, "state")
        action = self.actions_of(np.array([checked], dtype=np.int64))[0]
        return self.naming.answer(tuple(action.tolist()), state)

    def actions_of(self, states: Indices) -> Indices:
        """Return the actions in many states: [T, action variables], from [T, state variables].

        Positions, not checked.
        """
        return self.moves.actions_of(states, self.actions[self.moves.space.states_of(states)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CountPolicy) and _same_content(self, other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"CountPolicy({len(self.actions)} counts, {len(self.moves.common)} moves)"

    def content(self) -> Parts:
        return self.moves.header(), {"actions": self.actions, **self.moves.arrays()}


class TimedCountPolicy(TimedPolicy):
    """One policy on counts for every step of a horizon.

    Parameters
    ----------
    stages
        The policy of every step in order, all with the same moves.
    discount
        The discount per step; 1 is a plain sum.
    """

    kind = "timed counts"
    _stage_kind = CountPolicy

    def __init__(self, stages: Sequence[CountPolicy], discount: float = 1.0) -> None:
        super().__init__(stages, discount)  # type: ignore[arg-type]

    def content(self) -> Parts:
        header, arrays = super().content()
        moves = self.stages[0].moves  # type: ignore[attr-defined]
        return {**header, **moves.header()}, {**arrays, **moves.arrays()}

    def __repr__(self) -> str:
        return (
            f"TimedCountPolicy({self.horizon} steps, {len(self.stages)} different stages, "
            f"{len(self.stages[0].actions)} counts)"
        )


def _same_content(one: StoredPolicy, other: StoredPolicy) -> bool:
    def digest(policy: StoredPolicy) -> tuple[str, str]:
        header, arrays = policy.parts()
        data = hashlib.sha256()
        for name in sorted(arrays):
            data.update(f"{name} {arrays[name].shape}".encode() + arrays[name].tobytes())
        return repr(header), data.hexdigest()

    return digest(one) == digest(other)


# ---- files ---------------------------------------------------------------------------------------


def moves_in(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> CountMoves:
    """Return the moves in a policy file; raise InvalidParameter if they are wrong."""
    states, actions = sizes_in(header)
    try:
        groups = tuple(_group_in(given) for given in header["groups"])
    except (TypeError, ValueError, LookupError):
        raise InvalidParameter("its groups must be lists of numbers of variables") from None
    common = array_in(arrays, "common", "i", (None, len(actions)))
    allotments = array_in(arrays, "allotments", "i", (None, len(COLUMNS)))
    return CountMoves(states, actions, groups, common, allotments)


def _group_in(given: Mapping[str, Any]) -> PartsOfGroup:
    if given.keys() != PartsOfGroup.__dataclass_fields__.keys():
        raise ValueError

    def numbers(listed: Any) -> tuple[int, ...]:
        if not isinstance(listed, list) or not all(type(v) is int for v in listed):
            raise ValueError
        return tuple(listed)

    states, actions = (tuple(map(numbers, given[name])) for name in ("states", "actions"))
    values = tuple(map(numbers, given["values"]))
    if not states or len(states) != len(actions) or type(given["selector"]) is not int:
        raise ValueError
    return PartsOfGroup(states, actions, given["selector"], values, numbers(given["default"]))


def read_counts(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> StoredPolicy:
    """Return the CountPolicy in a file; raise InvalidParameter if it is wrong."""
    moves = moves_in(header, arrays)
    return CountPolicy(moves, array_in(arrays, "actions", "u", (moves.space.n_states,)))


def read_timed_counts(
    header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
) -> StoredPolicy:
    """Return the TimedCountPolicy in a file; raise InvalidParameter if it is wrong."""
    moves = moves_in(header, arrays)
    tables = array_in(arrays, "tables", "u", (None, moves.space.n_states))
    numbers = array_in(arrays, "stages", "i", (None,), 0, len(tables) - 1)
    stages = [CountPolicy(moves, table) for table in tables]
    return TimedCountPolicy(
        [stages[number] for number in numbers.tolist()], header.get("discount", 1.0)
    )


# ---- tables over joint states --------------------------------------------------------------------


def as_table(policy: CountPolicy, structure: Structure) -> TablePolicy:
    """Return the policy as a table over all joint states, for models with few of them."""
    actions = np.empty(structure.n_states, dtype=np.int64)
    steps = np.array(strides(structure.action_sizes), dtype=np.int64)
    for start, states in joint_states(structure.state_sizes):
        actions[start : start + len(states)] = policy.actions_of(states) @ steps
    return TablePolicy(structure.state_sizes, structure.action_sizes, actions, structure.naming)


def joint_table(
    policy: CountPolicy | TimedCountPolicy, structure: Structure, most_states: int
) -> TablePolicy | TimedPolicy:
    """Return the policy as tables over all joint states; raise TooLarge if there are too many."""
    stages: Sequence[Any] = (policy,) if isinstance(policy, CountPolicy) else policy.stages
    if structure.n_states > most_states:
        raise TooLarge(
            f"a table over {describe_count(structure.n_states)} joint states is too large; at most "
            f"{describe_count(most_states)} are listed",
            structure.n_states,
            most_states,
        )
    tables = [as_table(stage, structure) for stage in stages]
    if isinstance(policy, CountPolicy):
        return tables[0]
    return TimedPolicy([tables[k] for k in policy.stage_numbers], policy.discount)


def joint_states(sizes: Sequence[int]) -> Iterator[tuple[int, Indices]]:
    """Yield all joint states in order, some at a time: the first index and [T, variables]."""
    total, at_once = count(sizes), 1 << 14
    behind, values = np.array(strides(sizes)), np.array(sizes)
    for start in range(0, total, at_once):
        index = np.arange(start, min(start + at_once, total))
        yield start, index[:, None] // behind % values
