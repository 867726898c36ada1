"""FactoredMDP: a structure with its tables, frozen, checked and comparable by content.

    P(s' | s, a) = prod_i P_i(s'_i | x[Z_i]),   R(s, a) = sum_k R_k(x[Z_k]),   x = (s, a)

Transition table i has one row for each assignment of its scope, in C order, and one column for
each value of S_i; reward table k has one mean for each assignment. Every row is a distribution:
rows may miss the sum 1 by at most 1e-9 and are then divided by their sum. Rows that are
distributions up to rounding are not changed, so making a model from the tables of a model changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fmdp._base.html import html_table
from fmdp._base.memory import describe_count
from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.model.afterstates import contents_from_effects
from fmdp.model.alike import Alike, KeyOfRow
from fmdp.model.builder import (
    Contents,
    checked_together,
    contents_from_factors,
    contents_from_tables,
    variables_of,
)
from fmdp.model.check import Finding, check_contents
from fmdp.model.constraints import Constraint
from fmdp.model.content import content_hash
from fmdp.model.derived import Derived
from fmdp.model.effects import Effect, RewardKind
from fmdp.model.functions import RewardFactors, Rule, Transition, contents_from_functions
from fmdp.model.intervals import Intervals
from fmdp.model.naming import Assignment, Value, listed
from fmdp.model.noise import Noise
from fmdp.model.quantities import Quantity, quantity_pairs
from fmdp.model.spaces import FloatArray, items, shown, whole_number
from fmdp.model.structure import Structure
from fmdp.model.tables import negated, pairs_of, range_of, reward_table, transition_table

_NO_NOISE = Noise()

_LISTED = 20
"""Most variables, and values of one, in the table of a notebook."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class FactoredMDP:
    """A factored MDP: structure, transition and reward tables, noise, initial state, name.

    Frozen: tables are copied and read-only. Two models are equal, and have equal hashes, exactly if
    all contents are equal. `from_factors`, `from_functions` and `from_effects` make models without
    a structure.

    Parameters
    ----------
    structure
        Sizes, scopes, ranges and names.
    transitions
        For each state variable i a table [|X[Z_i]|, |S_i|], or with one axis per variable of the
        scope, [size, ..., size, |S_i|]: the distribution of its next value for each assignment of
        its scope. A row may miss the sum 1 by 1e-9 and is then divided by its sum.
    rewards
        For each reward factor k a table of means, [|X[Z_k]|] or [size, ..., size], inside its
        range.
    noise
        One law for all reward factors, or one for each; None if rewards always equal their mean.
    initial_state
        In one of the forms of `Structure.check_state`; None for the first value of every variable.
    name
        Any printable text on one line.
    intervals
        Lower and upper ends of the numbers in the tables; None if they are known exactly.
    quantities
        Named factors that pay nothing, whose long-run averages a plan may limit.

    Raises
    ------
    InvalidModel
        If these do not make a model; the message names the factor, the row and the value.
    """

    structure: Structure
    transitions: tuple[FloatArray, ...]  # [|X[Z_i]|, |S_i|] each
    rewards: tuple[FloatArray, ...]  # [|X[Z_k]|] each
    noise: tuple[Noise, ...]
    initial_state: tuple[int, ...]
    name: str
    intervals: Intervals | None
    quantities: tuple[Quantity, ...]

    def __init__(
        self,
        structure: Structure,
        transitions: Sequence[npt.ArrayLike],
        rewards: Sequence[npt.ArrayLike],
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Assignment | None = None,
        name: str = "",
        intervals: Intervals | None = None,
        quantities: Sequence[Quantity] = (),
    ) -> None:
        contents = contents_from_tables(
            structure, transitions, rewards, noise, initial_state, name, intervals, quantities
        )
        self._hold(contents)

    def _hold(self, contents: Contents) -> None:
        vars(self).update(contents._asdict())

    @classmethod
    def _of(cls, contents: Contents) -> FactoredMDP:
        """Return the model of checked contents."""
        model = object.__new__(cls)
        model._hold(contents)
        return model

    @property
    def _contents(self) -> Contents:
        return Contents(*(getattr(self, field) for field in Contents._fields))

    @classmethod
    def from_factors(
        cls,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
        rewards: Sequence[tuple[Sequence[int | str], npt.ArrayLike]] = (),
        *,
        costs: Sequence[tuple[Sequence[int | str], npt.ArrayLike]] = (),
        reward_ranges: Sequence[tuple[float, float]] = (),
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        reward_names: Sequence[str] = (),
        state_values: Sequence[Sequence[Value]] = (),
        action_values: Sequence[Sequence[Value]] = (),
        groups: Sequence[Sequence[int | str]] = (),
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Assignment | None = None,
        name: str = "",
        alike: Alike | None = None,
        constraints: Sequence[Constraint] = (),
        intervals: Intervals | None = None,
        quantities: Mapping[str, tuple[Sequence[int | str], npt.ArrayLike]] | None = None,
        derived: Sequence[Derived] = (),
    ) -> FactoredMDP:
        """Return the model of (scope, table) pairs, one for each factor.

        A scope is a list of variables, by number or by name, in any order. The axes of the table
        are in that order (last variable fastest) and are permuted to the sorted scope. `alike` and
        `intervals` count rows as in the given tables.

        Parameters
        ----------
        transitions
            For each state variable i a pair (scope, table) with a table
            [size, ..., size, |S_i|] or [|X[scope]|, |S_i|] of probabilities of its next value.
        rewards
            For each reward factor a pair (scope, table) with a table [size, ..., size] or
            [|X[scope]|] of means.
        costs
            More reward factors in the same form, whose means are the negated tables. They come
            after the rewards, also in names, ranges and noise.
        reward_ranges
            (lo, hi) of each reward factor. By default (0, 1) for a factor whose means lie there,
            and from the least to the largest mean for any other.
        groups
            Disjoint sets of state variables, by number or by name, that belong together.
        quantities
            Factors that pay nothing, in the form of `rewards` but by name: {name: (scope, table)}.
            A plan may limit their long-run averages.
        state_sizes, action_sizes, state_names, action_names, reward_names, state_values, \
        action_values, alike, constraints, derived
            As in `Structure`.
        noise, initial_state, name, intervals
            As in the constructor.

        Raises
        ------
        InvalidModel
            If these do not make a model; the message names the factor and the row as given.
        """
        variables = variables_of(
            state_sizes, action_sizes, state_names, action_names, state_values, action_values
        ).with_derived(derived)
        factors = pairs_of(rewards, "reward factor")
        factors += [
            (scope, negated(table, f"cost {index}"))
            for index, (scope, table) in enumerate(pairs_of(costs, "cost"))
        ]
        if len(items(reward_ranges, "reward ranges")) == 0:
            reward_ranges = [range_of(table) for _, table in factors]
        return cls._of(
            contents_from_factors(
                variables,
                transitions,
                factors,
                reward_ranges=reward_ranges,
                reward_names=reward_names,
                groups=groups,
                noise=noise,
                initial_state=initial_state,
                name=name,
                alike=alike,
                constraints=constraints,
                intervals=intervals,
                quantities=[(q, *pair) for q, pair in quantity_pairs(quantities, "table")],
            )
        )

    @classmethod
    def from_functions(
        cls,
        states: Mapping[str, Any],
        actions: Mapping[str, Any],
        parents: Mapping[str, Sequence[str]],
        transition: Transition,
        reward: RewardFactors = (),
        *,
        costs: RewardFactors = (),
        alike: KeyOfRow | None = None,
        reward_alike: KeyOfRow | None = None,
        reward_ranges: Mapping[str, tuple[float, float]] | None = None,
        groups: Sequence[Sequence[int | str]] = (),
        forbid: Sequence[Rule] = (),
        at_most: int | None = None,
        constraints: Sequence[Constraint] = (),
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Assignment | None = None,
        name: str = "",
        derived: Mapping[str, Any] | None = None,
        quantities: Mapping[str, tuple[Sequence[str], Callable[[Any], float]]] | None = None,
    ) -> FactoredMDP:
        """Return the model whose tables are computed by functions of named values.

        Parameters
        ----------
        states
            The state variables: name -> list of values, texts or numbers; a number n means the
            values 0 to n - 1.
        actions
            The action variables, in the same form.
        parents
            For each state variable the variables, states and actions, that its next value depends
            on, including itself if its own value matters.
        transition
            Called as transition(name, values) for every state variable and every assignment of its
            parents, {name of variable: value as listed}. Returns the distribution of the next
            value: a dictionary value -> probability (omitted values have 0), probabilities in the
            order of the values, or one value that is certain. A probability may be a triple (lower,
            nominal, upper); the model then has intervals.
        reward
            The reward factors: name -> (scope, function), or a list of (name, scope, function);
            function(values) is the mean for an assignment of the scope, or a triple (lower,
            nominal, upper). A single function is one factor over all variables.
        costs
            More reward factors in the same form, whose functions return costs: the means are
            negated.
        alike
            Called like `transition`, returns the key of a row: rows of equal keys, of one variable
            or of several, are known to be alike. A row with the key None is its own class, and so
            is every row by default.
        reward_alike
            The same for the rows of reward factors and costs, with the name of the factor.
        reward_ranges
            name -> (lo, hi) for factors whose observed rewards may lie outside their means; for the
            others it is the least and the largest mean.
        groups
            Disjoint sets of state variables, by name, that belong together.
        forbid
            Forbidden combinations: a list of assignments {name: value, or a list of values}, none
            of which may hold, or of pairs (scope, function) whose function returns whether an
            assignment is forbidden.
        at_most
            How many action variables may differ from their first value at once.
        constraints
            Further constraints, such as `apart` makes for other models of these variables.
        noise
            As in the constructor; with one law for each factor, costs come last.
        initial_state
            {name: value} of every state variable; None for the first value of each.
        name
            As in the constructor.
        derived
            Quantities inside a step, such as a count, that parents and scopes of rewards may name:
            name -> `Count`, `Sum`, `Any`, `All`, or (scope, function). function(values) returns the
            value for an assignment of the scope, or a dictionary value -> probability if it is
            drawn at random. A scope may name other derived variables.
        quantities
            Factors that pay nothing, in the form of `reward`: name -> (scope, function). A plan may
            limit their long-run averages.

        Raises
        ------
        InvalidModel
            If these do not make a model; if a function is at fault, the message has the assignment
            by name.
        TooLarge
            If a function would have to be called for millions of assignments.
        """
        return cls._of(
            contents_from_functions(
                states,
                actions,
                parents,
                transition,
                reward,
                costs=costs,
                alike=alike,
                reward_alike=reward_alike,
                reward_ranges=reward_ranges,
                groups=groups,
                forbid=forbid,
                at_most=at_most,
                constraints=constraints,
                noise=noise,
                initial_state=initial_state,
                name=name,
                derived=derived,
                quantities=quantities,
            )
        )

    @classmethod
    def from_effects(
        cls,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        effects: Sequence[Effect | tuple[Sequence[int], Sequence[int], npt.ArrayLike]],
        transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
        rewards: Sequence[tuple[RewardKind, Sequence[int | str], npt.ArrayLike]] = (),
        *,
        reward_ranges: Sequence[tuple[float, float]] = (),
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        reward_names: Sequence[str] = (),
        state_values: Sequence[Sequence[Value]] = (),
        action_values: Sequence[Sequence[Value]] = (),
        groups: Sequence[Sequence[int | str]] = (),
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Assignment | None = None,
        name: str = "",
        alike: Alike | None = None,
        constraints: Sequence[Constraint] = (),
        derived: Mapping[str, Any] | None = None,
    ) -> FactoredMDP:
        """Return a model whose actions act first, deterministically, one component at a time.

        The action a changes the state s to y = f(s, a) at once; then the next state is drawn from
        P(. | y). The tables are over y and become tables over (s, a), in which rows of equal y are
        alike. Planners maximise over the joint actions one component at a time.

        Parameters
        ----------
        effects
            The components: each an `Effect` or (states, actions, outcome), the outcome with one
            entry for each assignment of (states, actions). Disjoint; every action variable is in
            one.
        transitions
            For each state variable i a pair (scope, table): the state variables whose values after
            the action its next value depends on, and the probabilities of its next value for each
            assignment of them.
        rewards
            For each reward factor (kind, scope, table): "before", a function of the state before
            the action; "after", of the state after it; "cost", of the state and action of one
            component; "setup", of whether any action variable is not 0, with an empty scope and
            two means, for nothing and for something done. "before" and "setup" may also be over
            derived variables.
        reward_ranges
            (lo, hi) of each reward factor; by default from the least to the largest mean.
        alike
            Which rows of the given tables are known to be equal; None if every row is its own
            class.
        derived
            As in `from_functions`; only rewards may name derived variables.
        state_sizes, action_sizes, state_names, action_names, reward_names, state_values, \
        action_values, groups, constraints, noise, initial_state, name
            As in `from_factors`.

        Returns
        -------
        FactoredMDP
            The model, with `structure.effects` and `structure.alike`.

        Raises
        ------
        InvalidModel
            If these do not make a model; the message names the factor and the row as given.
        TooLarge
            If the tables over (s, a) would take more than a GiB.
        """
        variables = variables_of(
            state_sizes, action_sizes, state_names, action_names, state_values, action_values
        )
        return cls._of(
            contents_from_effects(
                variables,
                effects,
                transitions,
                rewards,
                reward_ranges=reward_ranges,
                reward_names=reward_names,
                groups=groups,
                noise=noise,
                initial_state=initial_state,
                name=name,
                alike=alike,
                constraints=constraints,
                derived=derived,
            )
        )

    @classmethod
    def trusted(
        cls,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
        initial_state: tuple[int, ...] | None = None,
    ) -> FactoredMDP:
        """Return a model of tables that are right by construction, without checking them.

        For code that makes models by the thousand (a learner samples one every episode).
        `transitions` and `rewards` must be arrays, for `structure`, that the constructor would
        leave unchanged; they become read-only. `initial_state` is in positions, all 0 by default.
        Noise and name are the defaults.
        """
        for table in (*transitions, *rewards):
            table.flags.writeable = False
        start = (0,) * structure.m if initial_state is None else initial_state
        noise = (_NO_NOISE,) * structure.l
        return cls._of(
            Contents(structure, tuple(transitions), tuple(rewards), noise, start, "", None)
        )

    def _with_expanded_tables(
        self,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
        intervals: Intervals | None,
        quantities: tuple[Quantity, ...] = (),
    ) -> FactoredMDP:
        """Return the model over a structure with other scopes, for tables that are right by
        construction (see `trusted`)."""
        for table in (*transitions, *rewards):
            table.flags.writeable = False
        return self._of(
            self._contents._replace(
                structure=structure,
                transitions=tuple(transitions),
                rewards=tuple(rewards),
                intervals=intervals,
                quantities=quantities,
            )
        )

    def with_table(self, variable: str | int, table: npt.ArrayLike) -> FactoredMDP:
        """Return the model with another transition table; everything else is shared.

        `variable` is the state variable of the factor, by name or number, and `table` is as one of
        `transitions` in the constructor.

        Raises
        ------
        InvalidParameter
            If there is no such state variable.
        InvalidModel
            If the table does not fit; the message names the factor and the row.
        """
        s = self.structure
        i = _factor_number(variable, s.state_names, "with_table: no state variable")
        rows = transition_table(s, i, s.transition_scopes[i], table)
        return self._changed(transitions=_replaced(self.transitions, i, rows))

    def with_reward(self, factor: str | int, table: npt.ArrayLike) -> FactoredMDP:
        """Return the model with other means of one reward factor; everything else is shared.

        `factor` is a name or number, and `table` is as one of `rewards` in the constructor. The
        means must lie in the range of the factor, which `with_range` changes.

        Raises
        ------
        InvalidParameter
            If there is no such reward factor.
        InvalidModel
            If the table does not fit; the message names the factor and the row.
        """
        s = self.structure
        k = _factor_number(factor, s.reward_names, "with_reward: no reward factor")
        means = reward_table(s, k, s.reward_scopes[k], table)
        return self._changed(rewards=_replaced(self.rewards, k, means))

    def with_range(self, factor: str | int, low: float, high: float) -> FactoredMDP:
        """Return the model with another range of one reward factor; the tables are shared.

        `factor` is a name or number. The range from `low` to `high` must hold its means.

        Raises
        ------
        InvalidParameter
            If there is no such reward factor.
        InvalidModel
            If it is no range, or a mean lies outside; the message names the factor and the row.
        """
        s = self.structure
        k = _factor_number(factor, s.reward_names, "with_range: no reward factor")
        structure = s.with_ranges(_replaced(s.reward_ranges, k, (low, high)))
        means = reward_table(structure, k, s.reward_scopes[k], self.rewards[k])
        same = np.array_equal(means, self.rewards[k])
        rewards = self.rewards if same else _replaced(self.rewards, k, means)
        return self._changed(structure=structure, rewards=rewards)

    def _changed(self, **values: Any) -> FactoredMDP:
        """Return the model with other fields, each of them checked."""
        return self._of(checked_together(*self._contents._replace(**values)))

    def with_constraints(self, *constraints: Constraint) -> FactoredMDP:
        """Return the model with these `constraints` on actions beside those that it has.

        They are from `forbid`, `apart`, `at_most` and `budget`, or each is a `Forbidden`, `AtMost`
        or `Budget`.

        Raises
        ------
        InvalidModel
            If one does not fit the model, or some state would have no allowed action; the message
            names the state.
        """
        structure = replace(self.structure, constraints=(*self.structure.constraints, *constraints))
        return self._of(self._contents._replace(structure=structure))

    @property
    def remarks(self) -> tuple[str, ...]:
        """How the file of another program was read, one sentence each.

        They are no part of the content: models with other remarks are equal, and copies and model
        files have none.
        """
        return tuple(vars(self).get("_remarks", ()))

    def with_remarks(self, *remarks: str) -> FactoredMDP:
        """Return the same model with other `remarks`, one sentence each."""
        model = self._of(self._contents)
        vars(model)["_remarks"] = remarks
        return model

    def check(self) -> list[Finding]:
        """Return what is valid in the model and may still be a mistake, one finding per sentence.

        Parents that are never read; values that are never left, or never reached from the initial
        state; factors with equal tables that are not declared alike; variables without effect on
        any reward; constant rewards; values of an action variable that never make a difference. The
        list is empty if there is none.
        """
        return check_contents(self._contents)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of everything in the model: the same on every machine and run."""
        return content_hash(self._contents)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactoredMDP):
            return NotImplemented
        mine, theirs = self._contents, other._contents
        return (
            mine._replace(transitions=(), rewards=()) == theirs._replace(transitions=(), rewards=())
        ) and all(
            np.array_equal(table, its)
            for table, its in zip(
                mine.transitions + mine.rewards, theirs.transitions + theirs.rewards, strict=True
            )
        )

    def __hash__(self) -> int:
        return int(self.content_hash[:15], 16)

    def __reduce__(self) -> tuple[type[FactoredMDP], tuple[Any, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def _repr_html_(self) -> str:
        s = self.structure
        rows = [
            (
                name,
                ", ".join(values[:_LISTED]) + (", ..." if len(values) > _LISTED else ""),
                parents,
            )
            for name, values, parents in (
                *(
                    (s.state_names[i], s.state_values[i], ", ".join(self._parents(i)))
                    for i in range(min(s.m, _LISTED))
                ),
                *zip(s.action_names, s.action_values, [""] * len(s.action_names), strict=True),
            )
        ]
        more = f", the first {_LISTED} of {s.m} state variables" if s.m > _LISTED else ""
        caption = f"{self.name or 'FactoredMDP'}: {describe_count(s.n_states)} states{more}"
        return html_table(caption, ("variable", "values", "depends on"), rows)

    def _parents(self, i: int) -> list[str]:
        return [self.structure.names[v] for v in self.structure.transition_scopes[i]]

    def __repr__(self) -> str:
        s = self.structure
        name = f"{self.name!r}: " if self.name else ""
        return (
            f"FactoredMDP({name}state sizes {s.state_sizes}, action sizes {s.action_sizes}, "
            f"{s.l} reward factors)"
        )

    def expected_reward(self, state: Assignment, action: Assignment) -> float:
        """Return the mean reward of a state and action: R(s, a) = sum_k R_k(x[Z_k]).

        `state` and `action` are in any form that `Structure.check_state` takes.
        """
        s = self.structure
        state, action = s.check_state(state), s.check_action(action)
        return float(
            sum(
                table[s.scope_row(scope, state, action)]
                for scope, table in zip(s.reward_scopes, self.rewards, strict=True)
            )
        )

    def transition_row(self, i: int, state: Assignment, action: Assignment) -> FloatArray:
        """Return the distribution of the next value of state variable `i`: P_i(. | x[Z_i]).

        `state` and `action` are in any form that `Structure.check_state` takes.
        """
        s = self.structure
        state, action = s.check_state(state), s.check_action(action)
        row: FloatArray = self.transitions[i][s.scope_row(s.transition_scopes[i], state, action)]
        return row


def check_model(model: object, owner: str) -> None:
    """Raise InvalidParameter if it is not a model."""
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(
            f"the model of {owner} must be a FactoredMDP (fmdp.problem or fmdp.load makes one); "
            f"got {shown(model)}"
        )


def _replaced(values: Sequence[Any], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _factor_number(given: object, names: Sequence[str], what: str) -> int:
    """Return the number of a factor that is given by name or number."""
    if isinstance(given, str) and given in names:
        return names.index(given)
    number = whole_number(given)
    if number is None or not 0 <= number < len(names):
        hint = did_you_mean(given, names) if isinstance(given, str) else ""
        raise InvalidParameter(
            f"{what} {shown(given)}; must be one of {listed(names)}, or its number{hint}"
        )
    return number
