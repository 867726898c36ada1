"""The Policy protocol and policies that are tables.

A policy is a deterministic function of the state. `TablePolicy` holds one action index per state in
the smallest unsigned integer type that fits: one megabyte for a million states and 21 actions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fmdp._base.html import html_table
from fmdp._base.memory import describe_count
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import Structure
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import count, decode, strides, whole_number
from fmdp.planning.policies.archive import Parts, StoredPolicy

MOST_ANSWERED = 1 << 12
"""Most states whose decoded action a table caches; simulations ask for few states repeatedly."""


@runtime_checkable
class Policy(Protocol):
    """Anything that maps a state to an action and can be saved."""

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        """Return the action in a state, always the same one.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One position per action variable. For a mapping or a text, the value of each action
            variable by its name, as listed in the model.

        Raises
        ------
        InvalidParameter
            If it is not a state of the policy.
        """
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to a file that `load_policy` reads.

        Parameters
        ----------
        path
            The file; an existing file is replaced atomically.
        """
        ...


_ROWS_SHOWN = 20
"""Most states of a table in a notebook."""
MOST_NUMBERED = 2**63
"""Joint actions that a table of int64 can number."""


def refuse_unnumbered(action_sizes: Sequence[int]) -> None:
    """Raise TooLarge if there are too many joint actions for a table."""
    n_actions = count(action_sizes)
    if n_actions >= MOST_NUMBERED:
        raise TooLarge(
            f"a table cannot number {describe_count(n_actions)} joint actions; must be below 2^63",
            n_actions,
            MOST_NUMBERED,
        )


class TablePolicy(StoredPolicy, Policy):
    """A policy as a table: one joint action for every state.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable.
    action_sizes
        Number of values of each action variable.
    actions
        The index of the joint action of every joint state, both in C order: [S], whole numbers
        from 0 to A - 1. They are copied into the smallest type that holds them.
    naming
        The names of variables and values, as `structure.naming`; None for default names. Equality
        of policies ignores names.

    Raises
    ------
    InvalidParameter
        If the sizes, the shape, an action or the names are not as above; the text names the state.
    TooLarge
        If there are 2^63 joint actions or more.
    """

    kind = "table"

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        actions: NDArray[np.integer[Any]],
        naming: Naming | None = None,
    ) -> None:
        super().__init__(_sizes(state_sizes, "state"), _sizes(action_sizes, "action"), naming)
        refuse_unnumbered(self.action_sizes)
        states, joint = count(self.state_sizes), count(self.action_sizes)
        try:
            actions = np.asarray(actions)
        except ValueError:  # lists of unequal length
            actions = np.empty(0, dtype=object)
        if actions.dtype.kind not in "iu":
            raise InvalidParameter(
                f"the actions of a policy must be whole numbers; got an array of {actions.dtype}"
            )
        if actions.shape != (states,):
            raise InvalidParameter(
                f"a policy over {states} states needs that many actions; got shape {actions.shape}"
            )
        if states and (int(actions.min()) < 0 or int(actions.max()) >= joint):
            worst = int(np.argmax((actions < 0) | (actions >= joint)))
            raise InvalidParameter(
                f"the action of state {worst} is {int(actions[worst])}; allowed: 0 to {joint - 1}"
            )
        self._hold(actions)

    def _hold(self, actions: NDArray[np.integer[Any]]) -> None:
        """Store a copy of checked actions."""
        joint = count(self.action_sizes)
        table = actions.astype(smallest_unsigned(joint), copy=True)
        table.flags.writeable = False
        self.actions: NDArray[np.unsignedinteger[Any]] = table
        self._steps = strides(self.state_sizes)
        self._answered: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    @classmethod
    def trusted(cls, structure: Structure, actions: NDArray[np.integer[Any]]) -> TablePolicy:
        """Return the policy of actions that are right by construction, without checking them.

        For planners inside learners, which make thousands: `actions` is as in the constructor, for
        the states and actions of `structure`.
        """
        policy = object.__new__(cls)
        policy.state_sizes, policy.action_sizes = structure.state_sizes, structure.action_sizes
        policy.naming = structure.naming
        policy._hold(actions)
        return policy

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
        try:
            known = self._answered.get(state)
        except TypeError:  # a list, a mapping
            known = None
        # (1.0,) and (True,) are equal to (1,) but are not states.
        if known is not None and (known[0] is state or only_ints(state)):
            return known[1]
        place = 0
        checked = self.naming.states.check(state, "state")
        for value, step in zip(checked, self._steps, strict=True):
            place += value * step
        action = decode(self._index_at(place), self.action_sizes)
        if checked is state:
            if len(self._answered) >= MOST_ANSWERED:
                self._answered.clear()
            self._answered[checked] = checked, action
        return self.naming.answer(action, state)

    def _index_at(self, place: int) -> int:
        """Return the index of the joint action at one place of the table."""
        return int(self.actions[place])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_answered": {}}

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TablePolicy)
            and self.state_sizes == other.state_sizes
            and self.action_sizes == other.action_sizes
            and np.array_equal(self.actions, other.actions)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TablePolicy({len(self.actions)} states, {count(self.action_sizes)} actions)"

    def _repr_html_(self) -> str:
        states, actions = self.naming.states, self.naming.actions
        shown = range(min(len(self.actions), _ROWS_SHOWN))
        rows = []
        for number in shown:
            state = decode(number, self.state_sizes)
            action = decode(int(self.actions[number]), self.action_sizes)
            rows.append((*states.named(state).values(), "", *actions.named(action).values()))
        more = f", the first {len(shown)} of them" if len(shown) < len(self.actions) else ""
        caption = f"{self!r}{more}"
        return html_table(caption, (*states.names, "→", *actions.names), rows)

    def content(self) -> Parts:
        return {}, {"actions": self.actions}


_INT = {int}


def only_ints(given: Any) -> bool:
    """Return whether it is an int or a non-empty tuple of ints, excluding bools and NumPy types."""
    if type(given) is tuple:
        return {*map(type, given)} == _INT
    return type(given) is int


def has_sizes_of(policy: object, structure: Structure) -> bool:
    """Return whether a policy knows its sizes; raise InvalidParameter if they are not these.

    Compiled code relies on the check. Names, where the policy has them, must agree as well.
    """
    given = [getattr(policy, f"{what}_sizes", None) for what in ("state", "action")]
    if None in given:
        return False
    sizes = tuple(tuple(sizes) for sizes in given)  # type: ignore[arg-type]
    ours = (structure.state_sizes, structure.action_sizes)
    if sizes != ours:
        raise InvalidParameter(
            f"the policy is for state sizes {sizes[0]} and action sizes {sizes[1]}; "
            f"the model has {ours[0]} and {ours[1]}"
        )
    naming = getattr(policy, "naming", None)
    if isinstance(naming, Naming) and naming is not structure.naming:
        naming.refuse_other(structure.naming, "the policy", "the model")
    return True


def _sizes(sizes: Any, kind: str) -> tuple[int, ...]:
    try:
        checked = [whole_number(size) for size in sizes]
    except TypeError:
        checked = []
    whole = tuple(size for size in checked if size is not None and size > 0)
    if not whole or len(whole) < len(checked):
        raise InvalidParameter(
            f"{kind} sizes of a policy must be whole numbers of at least 1; got {quoted(sizes)}"
        )
    return whole


def smallest_unsigned(values: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type with at least this many values."""
    for kind in (np.uint8, np.uint16, np.uint32):
        if values <= np.iinfo(kind).max + 1:
            return kind
    return np.uint64
