"""The structure of a factored MDP, its graph G: everything that a learner knows beforehand.

`Structure` holds the fields and checks them together. What can be computed from them is inherited
from the modules of each idea: variables.py, scopes.py, ranges.py, alike.py, allowed.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model.alike import Alike, RowClasses, check_alike
from fmdp.model.allowed import AllowedActions
from fmdp.model.constraints import Constraint, check_constraints
from fmdp.model.derived import Derived, checked_derived
from fmdp.model.effects import Effects, check_components, check_factors
from fmdp.model.naming import checked_names, checked_values, refuse_repeated
from fmdp.model.ranges import LARGEST_REWARD, RewardRanges, checked_ranges, outward_sums
from fmdp.model.scopes import Scope, checked_groups, checked_scopes
from fmdp.model.spaces import MAX_SIZE, items, shown
from fmdp.model.variables import checked_sizes

__all__ = ["LARGEST_REWARD", "MAX_SIZE", "Scope", "Structure", "check_structure", "outward_sums"]


@dataclass(frozen=True)
class Structure(RowClasses, RewardRanges, AllowedActions):
    """Sizes, scopes, reward ranges, names and groups of a factored MDP (the paper's G).

    Variables are numbered: state variables 0 to m - 1, action variables m, m + 1, .... A structure
    is frozen, checked when it is made, and equal to another exactly if the contents are equal.
    Lists are accepted for tuples everywhere.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable, at least 1; the length is m, at least 1.
    action_sizes
        Number of values of each action variable, at least 1; at least one variable.
    transition_scopes
        For each state variable i the variables that its next value depends on, sorted. May be
        empty, and need not contain i.
    reward_scopes
        For each of the l reward factors the variables that it depends on, sorted. l may be 0.
    reward_ranges
        (lo, hi) of each reward factor, lo <= hi, finite; (0, 1) for all by default.
    state_names
        One printable name per state variable; s0, s1, ... by default. The names of all variables,
        of states and actions, must differ.
    action_names
        One printable name per action variable; a0, a1, ... by default.
    reward_names
        One printable name per reward factor; r0, r1, ... by default.
    state_values
        For each state variable its values, texts or numbers; the numbers 0, 1, ... by default.
        Stored as the names (texts) of the values, which remember the values as listed.
    action_values
        The same for each action variable.
    groups
        Disjoint sets of state variables that belong together; stored sorted.
    alike
        Which rows of the tables are known to be equal; None if every row is its own class.
    constraints
        Constraints on the actions (`Forbidden`, `AtMost`, `Budget`); every state must keep an
        action.
    effects
        For models whose actions act first and deterministically; None for any other model.
    derived
        Quantities of one step that scopes of factors may name, numbered after the actions.

    Raises
    ------
    InvalidModel
        If these do not make a structure; the message names the variable or factor.
    """

    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    transition_scopes: tuple[Scope, ...]
    reward_scopes: tuple[Scope, ...]
    reward_ranges: tuple[tuple[float, float], ...] = ()
    state_names: tuple[str, ...] = ()
    action_names: tuple[str, ...] = ()
    reward_names: tuple[str, ...] = ()
    state_values: tuple[Sequence[str], ...] = ()
    action_values: tuple[Sequence[str], ...] = ()
    groups: tuple[Scope, ...] = ()
    alike: Alike | None = None
    constraints: tuple[Constraint, ...] = ()
    effects: Effects | None = None
    derived: tuple[Derived, ...] = ()

    def __post_init__(self) -> None:
        self._check_variables()
        self._check_factors()

    def _check_variables(self) -> None:
        state_sizes = checked_sizes(self.state_sizes, "state")
        action_sizes = checked_sizes(self.action_sizes, "action")
        state_names = checked_names(self.state_names, len(state_sizes), "state", "s")
        action_names = checked_names(self.action_names, len(action_sizes), "action", "a")
        derived = checked_derived(self.derived, state_sizes + action_sizes)
        names = state_names + action_names + tuple(variable.name for variable in derived)
        refuse_repeated(names, "variable name")
        self._set(
            state_sizes=state_sizes,
            action_sizes=action_sizes,
            derived=derived,
            state_names=state_names,
            action_names=action_names,
            state_values=checked_values(self.state_values, state_sizes, state_names, "state"),
            action_values=checked_values(self.action_values, action_sizes, action_names, "action"),
        )

    def _check_factors(self) -> None:
        """Check all other fields; they rely on the variables."""
        m, n_variables = self.m, len(self.all_sizes)
        transition_scopes = items(self.transition_scopes, "transition scopes")
        if len(transition_scopes) != m:
            raise InvalidModel(
                f"{len(transition_scopes)} transition scopes for {m} state variables; "
                f"there must be one per state variable"
            )
        reward_scopes = items(self.reward_scopes, "reward scopes")
        names = checked_names(self.reward_names, len(reward_scopes), "reward", "r")
        refuse_repeated(names, "reward name")
        self._set(
            transition_scopes=checked_scopes(
                transition_scopes, self.state_names, n_variables, "transition"
            ),
            reward_scopes=checked_scopes(reward_scopes, names, n_variables, "reward"),
            reward_ranges=checked_ranges(self.reward_ranges, names),
            reward_names=names,
            groups=checked_groups(self.groups, m),
            constraints=check_constraints(self.constraints, m, self.sizes, self.names),
        )
        if self.effects is not None:
            check_components(self.effects, m, self.sizes, self.names)
        self._set(alike=check_alike(self.alike, self, self.reward_ranges))
        if self.effects is not None:
            check_factors(self.effects, self)
        self._refuse_stuck_states()

    def _set(self, **values: Any) -> None:
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def with_factors(
        self,
        transition_scopes: Sequence[Scope],
        reward_scopes: Sequence[Scope],
        reward_ranges: Sequence[tuple[float, float]] = (),
        reward_names: Sequence[str] = (),
        groups: Sequence[Scope] = (),
        alike: Alike | None = None,
        constraints: Sequence[Constraint] = (),
        effects: Effects | None = None,
    ) -> Structure:
        """Return a structure over the same variables, which are not checked again.

        `transition_scopes`, `reward_scopes`, `reward_ranges`, `reward_names`, `groups`, `alike`,
        `constraints` and `effects` are as in `Structure`.
        """
        changed = self._with(
            transition_scopes=transition_scopes,
            reward_scopes=reward_scopes,
            reward_ranges=reward_ranges,
            reward_names=reward_names,
            groups=groups,
            alike=alike,
            constraints=constraints,
            effects=effects,
        )
        changed._check_factors()
        return changed

    def with_derived(self, derived: Sequence[Derived]) -> Structure:
        """Return the same structure with other derived variables, which its factors must not name.

        Parameters
        ----------
        derived
            As in `Structure`.
        """
        changed = self._with(derived=items(derived, "derived variables"))
        changed._check_variables()
        return changed

    def with_ranges(self, reward_ranges: Sequence[tuple[float, float]]) -> Structure:
        """Return the same structure with other `reward_ranges`; only these are checked."""
        ranges = checked_ranges(reward_ranges, self.reward_names)
        check_alike(self.alike, self, ranges)
        return self._with(reward_ranges=ranges)

    def _with(self, **values: Any) -> Structure:
        """Return a copy with other fields, not checked."""
        changed = object.__new__(type(self))
        changed._set(**{field.name: getattr(self, field.name) for field in fields(self)} | values)
        return changed

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __reduce__(self) -> tuple[type[Structure], tuple[Any, ...]]:
        # Without cached values: the hash of a string differs from process to process.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


def check_structure(structure: object, owner: str) -> None:
    """Raise InvalidParameter if it is not a structure."""
    if not isinstance(structure, Structure):
        raise InvalidParameter(
            f"{owner} must be given a Structure, as model.structure is; got {shown(structure)}"
        )
