"""Structure: the graph G of a factored MDP, all that a learner is told.

Sizes of the state variables S_1, ..., S_m and of the action variables; the scope Z_i of every
transition factor P_i(. | x[Z_i]) and of every reward factor R_k(x[Z_k]), where x = (state,
action); the range of every reward factor; names; groups of state variables.

State variables are numbered 0..m-1 and action variables m, m+1, .... A scope is sorted, so a
state variable always comes before an action variable. A Structure is frozen, checked when it is
made, and equal to another exactly if the contents are equal.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel, InvalidParameter, UnknownName, did_you_mean
from fmdp.model.alike import Alike, unequal_pair
from fmdp.model.constraints import (
    Constraint,
    Mask,
    allowed_joint_actions,
    check_constraints,
    forbidden_choices,
    forbidden_pairs,
    state_without_action,
)
from fmdp.model.effects import Effects, check_components, check_factors
from fmdp.model.naming import (
    Assignment,
    Naming,
    checked_names,
    checked_values,
    listed,
    quote,
    refuse_repeated,
)
from fmdp.model.spaces import (
    IndexArray,
    count,
    decode,
    items,
    shown,
    shown_tuple,
    strides,
    whole_number,
)

Scope = tuple[int, ...]

MAX_SIZE = 2**24
"""Most values of one variable: each value has a name, and each is a column of a table."""
LARGEST_REWARD = 1e300
"""Of a step: gains, biases and sums over runs must stay finite numbers."""


@dataclass(frozen=True)
class Structure:
    """Sizes, scopes, reward ranges, names and groups of a factored MDP (the paper's G).

    All that a learner is told. Variables are numbered: state variables 0 to m - 1, action
    variables m, m + 1, .... Lists are taken for tuples everywhere.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable, at least 1; the length is m, at least 1.
    action_sizes
        Number of values of each action variable, at least 1; at least one variable.
    transition_scopes
        For each state variable i the variables that its next value depends on, sorted. May be
        empty, and need not hold i itself.
    reward_scopes
        For each of the l reward factors the variables that it depends on, sorted. There may be no
        reward factor.
    reward_ranges
        (lo, hi) of each reward factor, lo <= hi, finite; (0, 1) for all where none is given.
    state_names
        One printable name a state variable; s0, s1, ... where none is given. No two variables,
        of states or actions, have one name.
    action_names
        One printable name an action variable; a0, a1, ... where none is given.
    reward_names
        One printable name a reward factor; r0, r1, ... where none is given.
    state_values
        For each state variable its values, texts or numbers; the numbers 0, 1, ... where none are
        given. Kept as the names (texts) of the values together with the values as listed.
    action_values
        For each action variable its values, texts or numbers; the numbers 0, 1, ... where none are
        given. Kept in the same way.
    groups
        Disjoint sets of state variables that belong together; kept sorted. None where none is
        given.
    alike
        Which rows of the tables are known to be equal; None where each is its own.
    constraints
        What forbids actions in states (`Forbidden`, `AtMost`); every state must keep an action.
    effects
        Where actions act at once and surely and chance comes afterwards; None for any other model.

    Raises
    ------
    InvalidModel
        Where these do not make a structure; the text names the variable or factor.
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

    def __post_init__(self) -> None:
        self._settle_variables()
        self._settle_factors()

    def _settle_variables(self) -> None:
        """Check sizes and names, and make tuples of them."""
        state_sizes = _sizes(self.state_sizes, "state")
        action_sizes = _sizes(self.action_sizes, "action")
        state_names = checked_names(self.state_names, len(state_sizes), "state", "s")
        action_names = checked_names(self.action_names, len(action_sizes), "action", "a")
        refuse_repeated(state_names + action_names, "variable name")
        self._settle(
            state_sizes=state_sizes,
            action_sizes=action_sizes,
            state_names=state_names,
            action_names=action_names,
            state_values=checked_values(self.state_values, state_sizes, state_names, "state"),
            action_values=checked_values(self.action_values, action_sizes, action_names, "action"),
        )

    def _settle_factors(self) -> None:
        """Check scopes, rewards and groups, the variables being settled."""
        m, n_variables = self.m, len(self.sizes)
        transition_scopes = items(self.transition_scopes, "transition scopes")
        if len(transition_scopes) != m:
            raise InvalidModel(
                f"{len(transition_scopes)} transition scopes for {m} state variables; "
                f"there must be one a state variable"
            )
        reward_scopes = items(self.reward_scopes, "reward scopes")
        reward_names = checked_names(self.reward_names, len(reward_scopes), "reward", "r")
        refuse_repeated(reward_names, "reward name")
        self._settle(
            transition_scopes=tuple(
                _scope(scope, n_variables, f"transition factor {i} ({quote(name)})")
                for i, (scope, name) in enumerate(
                    zip(transition_scopes, self.state_names, strict=True)
                )
            ),
            reward_scopes=tuple(
                _scope(scope, n_variables, f"reward factor {k} ({quote(name)})")
                for k, (scope, name) in enumerate(zip(reward_scopes, reward_names, strict=True))
            ),
            reward_ranges=_ranges(self.reward_ranges, reward_names),
            reward_names=reward_names,
            groups=_groups(self.groups, m),
            constraints=check_constraints(self.constraints, m, self.sizes, self.names),
        )
        if self.effects is not None:
            check_components(self.effects, m, self.sizes, self.names)
        self._settle_alike()
        if self.effects is not None:
            check_factors(self.effects, self)
        self._refuse_stuck_states()

    def _settle_alike(self) -> None:
        """Check that rows of a class could be equal; classes of one row each say nothing."""
        alike = self.alike
        if alike is None:
            return
        if not isinstance(alike, Alike):
            raise InvalidModel(f"alike is {shown(alike)}; must be an Alike")
        for numbers, rows, kinds, label, what in (
            (
                alike.transitions,
                self.transition_rows,
                self.state_sizes,
                self.transition_label,
                "values",
            ),
            (alike.rewards, self.reward_rows, self.reward_ranges, self.reward_label, "range"),
        ):
            if tuple(map(len, numbers)) != rows:
                raise InvalidModel(
                    f"classes of rows for tables of {tuple(map(len, numbers))} rows; "
                    f"the tables have {rows}"
                )
            pair = unequal_pair(numbers, kinds)
            if pair is not None:
                raise InvalidModel(
                    f"{label(pair[0])} and {label(pair[1])} have rows of one class, but {what} "
                    f"{kinds[pair[0]]} and {kinds[pair[1]]}; must be equal"
                )
        if alike.is_trivial:
            self._settle(alike=None)

    def _refuse_stuck_states(self) -> None:
        stuck = state_without_action(self.constraints, self.m, self.sizes)
        if stuck is not None:
            constraints, scope, values = stuck
            where = ", ".join(
                f"{self.names[v]}={self.values[v][value]}"
                for v, value in zip(scope, values, strict=True)
            )
            raise InvalidModel(
                f"no action is allowed {f'where {where}' if where else 'in any state'}: "
                f"{' and '.join(c.label(self.names) for c in constraints)} "
                f"forbid{'s' if len(constraints) == 1 else ''} all; every state must keep an action"
            )

    def _settle(self, **values: Any) -> None:
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
        """The same variables, which are not checked again, with these factors.

        Parameters
        ----------
        transition_scopes, reward_scopes, reward_ranges, reward_names, groups, alike, constraints, \
        effects
            As in `Structure`.
        """
        made = object.__new__(type(self))
        made._settle(
            **{field: getattr(self, field) for field in _OF_VARIABLES},
            transition_scopes=transition_scopes,
            reward_scopes=reward_scopes,
            reward_ranges=reward_ranges,
            reward_names=reward_names,
            groups=groups,
            alike=alike,
            constraints=constraints,
            effects=effects,
        )
        made._settle_factors()
        return made

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    def __reduce__(self) -> tuple[type[Structure], tuple[Any, ...]]:
        # Cached values stay behind: the hash of a string differs from process to process.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @cached_property
    def m(self) -> int:
        """Number of state variables (and of transition factors)."""
        return len(self.state_sizes)

    @cached_property
    def l(self) -> int:  # noqa: E743 - the paper's symbol
        """Number of reward factors."""
        return len(self.reward_scopes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of all variables, states then actions."""
        return self.state_sizes + self.action_sizes

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of all variables, states then actions."""
        return self.state_names + self.action_names

    @cached_property
    def values(self) -> tuple[Sequence[str], ...]:
        """Names of the values of all variables, states then actions."""
        return self.state_values + self.action_values

    @cached_property
    def naming(self) -> Naming:
        """The names alone, which a policy keeps."""
        return Naming.of(self.state_names, self.action_names, self.state_values, self.action_values)

    @cached_property
    def n_states(self) -> int:
        """Number of joint states, exact."""
        return count(self.state_sizes)

    @cached_property
    def n_actions(self) -> int:
        """Number of joint actions, exact."""
        return count(self.action_sizes)

    @cached_property
    def transition_rows(self) -> tuple[int, ...]:
        """|X[Z_i]| of every transition factor: rows of its table."""
        return tuple(count(self.scope_sizes(scope)) for scope in self.transition_scopes)

    @cached_property
    def reward_rows(self) -> tuple[int, ...]:
        """|X[Z_k]| of every reward factor: entries of its table."""
        return tuple(count(self.scope_sizes(scope)) for scope in self.reward_scopes)

    @cached_property
    def transition_starts(self) -> tuple[int, ...]:
        """[m + 1]: where the numbers of each transition factor begin, all tables end to end."""
        cells = map(math.prod, zip(self.transition_rows, self.state_sizes, strict=True))
        return (0, *itertools.accumulate(cells))

    @cached_property
    def row_starts(self) -> tuple[int, ...]:
        """[m + 1]: the same where there is one number a row, such as its free mass."""
        return (0, *itertools.accumulate(self.transition_rows))

    @cached_property
    def reward_starts(self) -> tuple[int, ...]:
        """[l + 1]: where the means of each reward factor begin, all tables end to end."""
        return (0, *itertools.accumulate(self.reward_rows))

    @cached_property
    def max_scope_size(self) -> int:
        """L: the largest number of assignments of a scope, transition or reward; where rows are
        alike, the largest number of classes of one."""
        if self.alike is not None:
            return self.alike.largest
        return max(self.transition_rows + self.reward_rows)

    @cached_property
    def n_transition_classes(self) -> int:
        """Number of classes of alike transition rows; of rows where none are alike."""
        return self.row_starts[-1] if self.alike is None else self.alike.n_transitions

    @cached_property
    def n_reward_classes(self) -> int:
        """Number of classes of alike reward rows; of rows where none are alike."""
        return self.reward_starts[-1] if self.alike is None else self.alike.n_rewards

    @cached_property
    def transition_class_counts(self) -> tuple[int, ...]:
        """How many classes the rows of each transition factor fall into; rows where none are
        alike."""
        if self.alike is None:
            return self.transition_rows
        return tuple(len(np.unique(own)) for own in self.alike.transitions)

    def transition_classes_of(self, i: int) -> IndexArray:
        """The class of every row of a transition factor: [|X[Z_i]|].

        Parameters
        ----------
        i
            Number of the factor, which is that of its state variable.
        """
        if self.alike is not None:
            return self.alike.transitions[i]
        return np.arange(self.row_starts[i], self.row_starts[i + 1], dtype=np.int64)

    def reward_classes_of(self, k: int) -> IndexArray:
        """The class of every row of a reward factor: [|X[Z_k]|].

        Parameters
        ----------
        k
            Number of the reward factor.
        """
        if self.alike is not None:
            return self.alike.rewards[k]
        return np.arange(self.reward_starts[k], self.reward_starts[k + 1], dtype=np.int64)

    @cached_property
    def max_state_size(self) -> int:
        """W: the largest number of values of a state variable."""
        return max(self.state_sizes)

    @cached_property
    def reward_range_total(self) -> float:
        """The sum of the widths of all reward ranges, sum_k (hi_k - lo_k)."""
        return float(sum(hi - lo for lo, hi in self.reward_ranges))

    @cached_property
    def reward_bounds(self) -> tuple[float, float]:
        """The least and the most that a step can pay, and so any gain; sums rounded outwards."""
        return outward_sums(self.reward_ranges)

    @cached_property
    def reward_size(self) -> float:
        """The largest |reward| that a step can pay."""
        return float(sum(max(abs(lo), abs(hi)) for lo, hi in self.reward_ranges))

    @cached_property
    def reward_unit(self) -> float:
        """What tolerances are measured in: the largest range of a reward factor.

        Where every range is 0 it is the largest |reward|, and 1 where nothing is ever paid. It
        scales with the rewards, so that nothing depends on the unit they are stated in.
        """
        ranges = [hi - lo for lo, hi in self.reward_ranges]
        sizes = [max(abs(lo), abs(hi)) for lo, hi in self.reward_ranges]
        return float(max(ranges, default=0.0) or max(sizes, default=0.0) or 1.0)

    def scope_sizes(self, scope: Sequence[int]) -> tuple[int, ...]:
        """Sizes of the variables of a scope.

        Parameters
        ----------
        scope
            Numbers of variables, in any order.

        Returns
        -------
        tuple[int, ...]
            One size a variable, in the order of the scope.
        """
        sizes = self.sizes
        return tuple(sizes[variable] for variable in scope)

    def variable(self, name: str) -> int:
        """The number of the variable with this name.

        Parameters
        ----------
        name
            Name of a state or action variable.

        Returns
        -------
        int
            0 to m - 1 for a state variable, m or more for an action variable.

        Raises
        ------
        UnknownName
            Where no variable is called so; the text suggests the nearest name.
        """
        number = self._numbers.get(name)
        if number is None:
            raise UnknownName(
                f"no variable is called {quote(name)}; must be one of {listed(self.names)}"
                f"{did_you_mean(name, self.names)}"
            )
        return number

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def state_scope(self, i: int) -> Scope:
        """The state variables in the scope of a transition factor.

        Parameters
        ----------
        i
            Number of the factor, which is that of its state variable.
        """
        return tuple(v for v in self.transition_scopes[i] if v < self.m)

    def action_scope(self, i: int) -> Scope:
        """The action variables (m, m + 1, ...) in the scope of a transition factor.

        Parameters
        ----------
        i
            Number of the factor, which is that of its state variable.
        """
        return tuple(v for v in self.transition_scopes[i] if v >= self.m)

    def reward_state_scope(self, k: int) -> Scope:
        """The state variables in the scope of a reward factor.

        Parameters
        ----------
        k
            Number of the reward factor.
        """
        return tuple(v for v in self.reward_scopes[k] if v < self.m)

    def scope_row(self, scope: Sequence[int], state: Sequence[int], action: Sequence[int]) -> int:
        """The row of x[scope] in a table over the scope, for x = (state, action).

        Parameters
        ----------
        scope
            Numbers of variables; the last one is the fastest.
        state
            One value a state variable. Not checked: see `check_state`.
        action
            One value an action variable. Not checked: see `check_action`.

        Returns
        -------
        int
            0 to |X[scope]| - 1.
        """
        m = self.m
        row = 0
        for variable, step in zip(scope, strides(self.scope_sizes(scope)), strict=True):
            row += step * int(state[variable] if variable < m else action[variable - m])
        return row

    def check_state(self, state: Assignment, what: str = "state") -> tuple[int, ...]:
        """The state as a tuple of ints, or an error that names the variable.

        Parameters
        ----------
        state
            A sequence with one entry per state variable, each a position (a whole number counted
            from 0) or the name of a value; or a mapping from the name of every state variable to
            its value, in which a number that is a value means that value; or the same as a text,
            "name=value,name=value".
        what
            How the error calls it.

        Returns
        -------
        tuple[int, ...]
            One whole number a state variable.

        Raises
        ------
        InvalidParameter
            Where it is no state of this structure.
        """
        return self.naming.states.check(state, what)

    def check_action(self, action: Assignment, what: str = "action") -> tuple[int, ...]:
        """The action as a tuple of ints, or an error that names the variable.

        Parameters
        ----------
        action
            A sequence with one entry per action variable, each a position (a whole number counted
            from 0) or the name of a value; or a mapping from the name of every action variable to
            its value, in which a number that is a value means that value; or the same as a text,
            "name=value,name=value".
        what
            How the error calls it.

        Returns
        -------
        tuple[int, ...]
            One whole number an action variable.

        Raises
        ------
        InvalidParameter
            Where it is no action of this structure.
        """
        return self.naming.actions.check(action, what)

    def name_state(self, state: Assignment) -> dict[str, str]:
        """Return the state by name: the name of every state variable, and of its value, as texts.

        Parameters
        ----------
        state
            As in `check_state`.

        Raises
        ------
        InvalidParameter
            Where it is no state of this structure.
        """
        return self.naming.name_state(state)

    def name_action(self, action: Assignment) -> dict[str, str]:
        """Return the action by name: the name of every action variable, and of its value, as texts.

        Parameters
        ----------
        action
            As in `check_action`.

        Raises
        ------
        InvalidParameter
            Where it is no action of this structure.
        """
        return self.naming.name_action(action)

    def allowed(self, state: Sequence[int], action: Sequence[int]) -> bool:
        """Whether no constraint forbids the action in the state.

        Parameters
        ----------
        state
            One value a state variable. Not checked: see `check_state`.
        action
            One value an action variable. Not checked: see `check_action`.
        """
        joint = (*state, *action)
        return not any(c.forbids(joint, self.sizes) for c in self.constraints)

    def check_allowed(self, state: Sequence[int], action: Sequence[int]) -> None:
        """Refuse an action that a constraint forbids in the state, by the constraint's name.

        Parameters
        ----------
        state
            One value a state variable. Not checked: see `check_state`.
        action
            One value an action variable. Not checked: see `check_action`.

        Raises
        ------
        InvalidParameter
            Where it is forbidden.
        """
        if not self.constraints:
            return
        joint = (*state, *action)
        for constraint in self.constraints:
            if constraint.forbids(joint, self.sizes):
                told = ", ".join(
                    f"{self.names[v]}={self.values[v][joint[v]]}" for v in constraint.scope
                )
                raise InvalidParameter(
                    f"action {shown_tuple(action)} is not allowed in state {shown_tuple(state)}: "
                    f"{constraint.label(self.names)} forbids {told}"
                )

    def allowed_actions(self, state: Sequence[int]) -> IndexArray:
        """The joint actions that are allowed in a state, by index, ascending.

        Parameters
        ----------
        state
            One value a state variable. Not checked: see `check_state`.
        """
        allowed = allowed_joint_actions(self.constraints, state, self.m, self.sizes)
        return np.flatnonzero(allowed).astype(np.int64)

    def allowed_mask(self) -> Mask:
        """Whether each joint action is allowed in each joint state: [S, A], guarded by size."""
        return ~forbidden_pairs(self.constraints, self.m, self.sizes)

    def allowed_pairs(self) -> IndexArray:
        """What stands for each pair of joint state and action, known by s * A + a: itself where it
        is allowed, else the lowest action that is allowed in s. [S * A], guarded by size.

        Written out so, whoever looks at every action sees the values, gains and ways of the model
        with its constraints.
        """
        pairs = np.arange(self.n_states * self.n_actions, dtype=np.int64)
        if not self.constraints:
            return pairs
        mask = self.allowed_mask()
        first = np.arange(self.n_states) * self.n_actions + mask.argmax(axis=1)
        stands: IndexArray = np.where(
            mask, pairs.reshape(mask.shape), first[:, None].astype(np.int64)
        ).reshape(-1)
        return stands

    def check_policy(self, actions: IndexArray) -> None:
        """Refuse a policy that plays a forbidden action, by its first such state.

        Parameters
        ----------
        actions
            The index of the joint action of every joint state: [S]. Not checked otherwise.

        Raises
        ------
        InvalidParameter
            Where it plays one; the text names state, action and constraint.
        """
        if not self.constraints:
            return
        forbidden = forbidden_choices(self.constraints, actions, self.m, self.sizes)
        if forbidden.any():
            first = int(forbidden.argmax())
            state = decode(first, self.state_sizes)
            self.check_allowed(state, decode(int(actions[first]), self.action_sizes))

    def transition_label(self, i: int) -> str:
        """How errors and tables call a transition factor.

        Parameters
        ----------
        i
            Number of the factor.
        """
        return f"transition factor {i} ({quote(self.state_names[i])})"

    def reward_label(self, k: int) -> str:
        """How errors and tables call a reward factor.

        Parameters
        ----------
        k
            Number of the factor.
        """
        return f"reward factor {k} ({quote(self.reward_names[k])})"

    def row_label(self, scope: Sequence[int], row: int) -> str:
        """A row of a table with its assignment: 'row 5 (s0=1, a0=2)'.

        Parameters
        ----------
        scope
            The variables of the table; the last one is the fastest.
        row
            Number of the row, counted from 0.
        """
        assignment = decode(row, self.scope_sizes(scope))
        parts = (
            f"{self.names[variable]}={self.values[variable][value]}"
            for variable, value in zip(scope, assignment, strict=True)
        )
        return f"row {row} ({', '.join(parts) or 'empty scope'})"


_OF_VARIABLES = (
    "state_sizes",
    "action_sizes",
    "state_names",
    "action_names",
    "state_values",
    "action_values",
)


def check_structure(structure: object, owner: str) -> None:
    """Refuse what is no structure, and say where structures come from."""
    if not isinstance(structure, Structure):
        raise InvalidParameter(
            f"{owner} must be given a Structure, as model.structure is; got {shown(structure)}"
        )


def outward_sums(bounds: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """Return the sum of the lower bounds rounded down and that of the upper bounds rounded up; a
    sum that is a float is returned as it is."""
    pairs = list(bounds)
    lowest = sum((Fraction(lo) for lo, _ in pairs), Fraction(0))
    highest = sum((Fraction(hi) for _, hi in pairs), Fraction(0))
    lower, upper = float(lowest), float(highest)
    lower = math.nextafter(lower, -math.inf) if Fraction(lower) > lowest else lower
    upper = math.nextafter(upper, math.inf) if Fraction(upper) < highest else upper
    return lower, upper


def _sizes(sizes: Iterable[int], kind: str) -> tuple[int, ...]:
    checked: list[int] = []
    for index, size in enumerate(items(sizes, f"{kind} sizes")):
        whole = whole_number(size)
        if whole is None or not 1 <= whole <= MAX_SIZE:
            raise InvalidModel(
                f"size of {kind} variable {index} is {shown(size)}; "
                f"must be a whole number in 1..{MAX_SIZE}"
            )
        checked.append(whole)
    if not checked:
        raise InvalidModel(f"no {kind} variable; there must be at least one")
    return tuple(checked)


def _scope(scope: Iterable[int], n_variables: int, label: str) -> Scope:
    checked: list[int] = []
    for variable in members(scope, f"{label}: scope"):
        whole = whole_number(variable)
        if whole is None or not 0 <= whole < n_variables:
            raise InvalidModel(
                f"{label}: scope has variable {shown(variable)}; must be in 0..{n_variables - 1}"
            )
        checked.append(whole)
    if any(a >= b for a, b in itertools.pairwise(checked)):
        raise InvalidModel(
            f"{label}: scope {shown_tuple(checked)} must be sorted and without repeats "
            f"(FactoredMDP.from_factors sorts scopes together with their tables)"
        )
    return tuple(checked)


def members(variables: Any, label: str) -> Iterable[Any]:
    """The variables of a scope or group; a lone variable or a string is a slip, and said so."""
    try:
        return items(variables, label)
    except InvalidModel:
        raise InvalidModel(f"{label} is {shown(variables)}; must be a list of variables") from None


def _ranges(
    ranges: Sequence[tuple[float, float]], names: Sequence[str]
) -> tuple[tuple[float, float], ...]:
    ranges = items(ranges, "reward ranges")
    if len(ranges) == 0:
        return tuple((0.0, 1.0) for _ in names)
    if len(ranges) != len(names):
        raise InvalidModel(
            f"{len(ranges)} reward ranges for {len(names)} reward factors; "
            f"there must be one a reward factor"
        )
    checked: list[tuple[float, float]] = []
    for k, (pair, name) in enumerate(zip(ranges, names, strict=True)):
        label = f"reward factor {k} ({quote(name)})"
        try:
            lo, hi = pair
            # + 0.0 makes -0.0 and 0.0 the same range, also in the content hash.
            lo, hi = float(lo) + 0.0, float(hi) + 0.0
        except (TypeError, ValueError, OverflowError):
            raise InvalidModel(f"{label}: range {pair!r} must be two numbers lo, hi") from None
        if not (lo <= hi and math.isfinite(hi - lo)):
            raise InvalidModel(f"{label}: range [{lo!r}, {hi!r}] must be finite with lo <= hi")
        checked.append((lo, hi))
    largest = sum(max(abs(lo), abs(hi)) for lo, hi in checked)
    if not largest <= LARGEST_REWARD:
        raise InvalidModel(
            f"the rewards of a step may sum to {largest:.3g}; must be at most "
            f"{LARGEST_REWARD:.0e}, or sums over a run would leave the range of numbers"
        )
    return tuple(checked)


def _groups(groups: Iterable[Iterable[int]], m: int) -> tuple[Scope, ...]:
    checked: list[Scope] = []
    owner: dict[int, int] = {}
    for index, group in enumerate(items(groups, "groups")):
        own: list[int] = []
        for variable in members(group, f"group {index}"):
            whole = whole_number(variable)
            if whole is None or not 0 <= whole < m:
                raise InvalidModel(
                    f"group {index}: variable {shown(variable)} must be a state variable "
                    f"in 0..{m - 1}"
                )
            if whole in owner:
                raise InvalidModel(
                    f"group {index}: state variable {whole} is already in group {owner[whole]}; "
                    f"groups must be disjoint"
                )
            owner[whole] = index
            own.append(whole)
        if not own:
            raise InvalidModel(f"group {index} is empty; must have at least one state variable")
        checked.append(tuple(sorted(own)))
    return tuple(sorted(checked))
