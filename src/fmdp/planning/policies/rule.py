"""Rules: policies that are Python functions of the user, state -> action."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, overload

from fmdp._base.parameters import quoted
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.model import Structure
from fmdp.model.naming import ByName, ByNumber, NamedValues, Value, plain_value
from fmdp.model.spaces import whole_number

_R = TypeVar("_R", bound=Callable[[Any], Any])


def named(rule: _R) -> _R:
    """Mark a rule as called by name: it receives a mapping instead of a tuple.

    Use it as a decorator: `@fmdp.named` above `def careful(state)`, which then reads
    `state["pump"] == "worn"` or `state["queue"] >= 2`. Values are as the model lists them, numbers
    or texts. Any rule may return its action by position or by name.

    Parameters
    ----------
    rule
        A function that takes a mapping from the name of every state variable to its value and
        returns an action.

    Returns
    -------
    Callable
        The same rule; fmdp accepts it wherever it accepts a rule.

    Raises
    ------
    InvalidParameter
        If it is not a function.
    """
    if isinstance(rule, type) or not callable(rule):
        raise InvalidParameter(f"named takes a function state -> action; got {quoted(rule)}")

    @functools.wraps(rule)
    def asked(state: Mapping[str, Value]) -> Any:
        return rule(state)

    asked.asked_by_name = True  # type: ignore[attr-defined]
    return asked  # type: ignore[return-value]


class Rule:
    """A policy that calls a function of the user: state -> action, by position or by name.

    With a single action variable the function may return its value alone. It is called for every
    state that is met and must always return the same action for a state. It receives a tuple of
    positions, or a mapping to the listed values if it is marked by `named`. An exception inside the
    function becomes an InvalidParameter that names the state.
    """

    def __init__(self, function: Callable[[Any], Any], structure: Structure) -> None:
        if isinstance(function, type) or not callable(function):
            raise InvalidParameter(
                f"a rule must be a function state -> action; got {quoted(function)}"
            )
        self.function = function
        self._structure = structure
        self._by_name = getattr(function, "asked_by_name", False) is True

    def __repr__(self) -> str:
        return f"Rule({getattr(self.function, '__name__', type(self.function).__name__)})"

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        naming = self._structure.naming
        checked = naming.check_state(state)
        asked = NamedValues(naming.states.as_listed(checked)) if self._by_name else checked
        try:
            answer = self.function(asked)
        except Exception as error:
            reason = error.args[0] if isinstance(error, KeyError) and error.args else error
            text = ": ".join(filter(None, [type(error).__name__, " ".join(str(reason).split())]))
            raise InvalidParameter(
                f"{self.in_state(checked)}: the function fails: {text}"
            ) from error
        try:
            action = as_action(answer, self._structure, by_value=self._by_name)
            self._structure.check_allowed(checked, action)
        except FmdpError as error:
            error.args = (f"{self.in_state(checked)}: {error}",)
            raise
        return naming.answer(action, state)

    def confirm(self, state: tuple[int, ...], action: tuple[int, ...]) -> None:
        """Raise InvalidParameter if a second call for this state returns another action."""
        if self(state) != action:
            raise InvalidParameter(
                f"{self.in_state(state)}: answered two different actions when it was asked twice; "
                f"a policy must always answer a state with the same action, so a rule that draws "
                f"its actions at random is none"
            )

    def in_state(self, state: tuple[int, ...]) -> str:
        """Return the name of the rule and of the state, for errors; the state is by position."""
        named = self._structure.naming.states.named(state)
        return f"{self!r} in state {', '.join(map('='.join, named.items()))}"

    def save(self, path: str | os.PathLike[str]) -> None:
        raise InvalidParameter(
            "a rule of one's own cannot be saved: a policy file holds numbers and no code"
        )


def as_action(answer: Any, structure: Structure, *, by_value: bool = False) -> tuple[int, ...]:
    """Return the positions of an action from what a rule or a learner returned.

    The answer is a sequence of positions or names, a mapping or text by name, or, with a single
    action variable, its value alone. With `by_value`, a number alone is a value. Otherwise it may
    also be a position, and it is refused if the two readings differ.
    """
    alone = plain_value(answer)
    is_number = isinstance(alone, int | float) if by_value else whole_number(alone) is not None
    if not is_number:
        return structure.check_action(answer)
    if len(structure.action_sizes) > 1:
        raise InvalidParameter(
            f"a rule answered {quoted(alone)}; an action must have "
            f"{len(structure.action_sizes)} values, one for each action variable"
        )
    actions = structure.naming.actions
    return (actions.place(0, alone) if by_value else actions.alone(alone),)
