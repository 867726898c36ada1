"""FactoredMDP: a structure with its tables, frozen, checked and comparable by content.

    P(s' | s, a) = prod_i P_i(s'_i | x[Z_i]),   R(s, a) = sum_k R_k(x[Z_k]),   x = (s, a)

Transition table i has one row for each assignment of its scope, in C order, and one column for
each value of S_i; reward table k has one mean for each assignment. Every row that is handed out
is a distribution: rows may miss 1 by at most ROW_TOLERANCE and are then divided by their sum.
Rows that are distributions up to rounding are left alone to the last bit, so that making a
model from the tables of a model changes nothing. Checking is vectorised: one pass over a table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model import afterstates
from fmdp.model.alike import Alike, unequal_pair
from fmdp.model.constraints import Constraint
from fmdp.model.content import HASHED, json_parts, knowledge_parts
from fmdp.model.effects import Effect, Effects, RewardKind
from fmdp.model.intervals import Intervals
from fmdp.model.naming import Assignment, Value
from fmdp.model.noise import Noise, laws_of
from fmdp.model.spaces import FloatArray, items, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import (
    given_factor,
    make_equal,
    negated,
    pairs_of,
    range_of,
    reward_table,
    scope_numbers,
    sort_rows,
    sorted_alike,
    sorted_intervals,
    table_rows,
    transition_table,
)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class FactoredMDP:
    """A factored MDP: structure, transition and reward tables, noise, initial state, name.

    Frozen: tables are copied and read-only. Equal to another model, and of one hash with it,
    exactly if all contents are equal. `from_factors` makes one without a structure at hand.

    Parameters
    ----------
    structure
        Sizes, scopes, ranges and names.
    transitions
        For each state variable i a table [|X[Z_i]|, |S_i|], or with one axis for each variable of
        the scope, [size, ..., size, |S_i|]: the law of its next value for each assignment of its
        scope. A row may miss 1 by 1e-9 and is then divided by its sum.
    rewards
        For each reward factor k a table of means, [|X[Z_k]|] or [size, ..., size], inside its
        range.
    noise
        One law for all reward factors, or one for each; None is for rewards that are always their
        mean.
    initial_state
        One value a state variable, by number or by name, or a mapping by name, as in
        `Structure.check_state`; None is all zeros.
    name
        Any printable text on one line.
    intervals
        How well the numbers are known; None where they are known.

    Raises
    ------
    InvalidModel
        Where these do not make a model; the text names the factor, the row and the value.
    """

    structure: Structure
    transitions: tuple[FloatArray, ...]  # [|X[Z_i]|, |S_i|] each
    rewards: tuple[FloatArray, ...]  # [|X[Z_k]|] each
    noise: tuple[Noise, ...]
    initial_state: tuple[int, ...]
    name: str
    intervals: Intervals | None

    def __init__(
        self,
        structure: Structure,
        transitions: Sequence[npt.ArrayLike],
        rewards: Sequence[npt.ArrayLike],
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Assignment | None = None,
        name: str = "",
        intervals: Intervals | None = None,
    ) -> None:
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
        self._hold(
            structure,
            [
                transition_table(structure, i, structure.transition_scopes[i], table)
                for i, table in enumerate(transitions)
            ],
            [
                reward_table(structure, k, structure.reward_scopes[k], table)
                for k, table in enumerate(rewards)
            ],
            laws_of(noise, structure.l),
            _initial_state(initial_state, structure),
            _printable(name),
            intervals,
        )
        self._check_knowledge()

    def _hold(
        self,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
        noise: tuple[Noise, ...],
        initial_state: tuple[int, ...],
        name: str,
        intervals: Intervals | None = None,
    ) -> None:
        """Set the fields, all of them checked; tables become read-only."""
        for table in (*transitions, *rewards):
            table.flags.writeable = False
        values: dict[str, Any] = {
            "structure": structure,
            "transitions": tuple(transitions),
            "rewards": tuple(rewards),
            "noise": noise,
            "initial_state": initial_state,
            "name": name,
            "intervals": intervals,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def _check_knowledge(self) -> None:
        """Rows of a class are equal, and every number lies in its interval."""
        s = self.structure
        if s.alike is not None:
            pair = unequal_pair(s.alike.rewards, self.noise)
            if pair is not None:
                raise InvalidModel(
                    f"{s.reward_label(pair[0])} and {s.reward_label(pair[1])} have rows of one "
                    f"class, but {self.noise[pair[0]]} and {self.noise[pair[1]]}; must be equal"
                )
            make_equal(s, self.transitions, s.alike.transitions, s.transition_scopes, False)
            make_equal(s, self.rewards, s.alike.rewards, s.reward_scopes, True)
        if self.intervals is not None:
            if not isinstance(self.intervals, Intervals):
                raise InvalidModel(f"intervals are {shown(self.intervals)}; must be Intervals")
            around = self.intervals.around(s, self.transitions, self.rewards)
            if s.alike is not None:
                around = around.together(s.alike)
            object.__setattr__(self, "intervals", around)

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
    ) -> FactoredMDP:
        """A model from (scope, table) pairs, one for each factor.

        A scope is a list of variables, by number or by name, in any order; the table's axes are
        in that order (last variable fastest) and are permuted to the sorted scope.

        Parameters
        ----------
        state_sizes
            Number of values of each state variable, at least 1; there are m of them.
        action_sizes
            Number of values of each action variable, at least 1.
        transitions
            For each state variable i a pair (scope, table) with a table
            [size, ..., size, |S_i|] or [|X[scope]|, |S_i|] of probabilities of its next value.
        rewards
            For each reward factor a pair (scope, table) with a table [size, ..., size] or
            [|X[scope]|] of means.
        costs
            More reward factors in the same form, of what is to be paid: their means are the
            negated tables. They come after the rewards, also in names, ranges and noise.
        reward_ranges
            (lo, hi) of each reward factor. Where none is given it is (0, 1) for a factor whose
            means lie there, and from the least to the largest mean for any other.
        state_names
            Names of the state variables; s0, s1, ... where none is given.
        action_names
            Names of the action variables; a0, a1, ... where none is given.
        reward_names
            Names of the reward factors; r0, r1, ... where none is given.
        state_values
            For each state variable its values, texts or numbers; 0, 1, ... where none are given.
        action_values
            For each action variable its values, texts or numbers; 0, 1, ... where none are given.
        groups
            Disjoint sets of state variables, by number or by name, that belong together.
        noise
            One law for all reward factors, or one for each; None is for rewards that are always
            their mean.
        initial_state
            One value a state variable, by number or by name, or a mapping by name, as in
            `Structure.check_state`; None is all zeros.
        name
            Any printable text on one line.
        alike
            Which rows are known to be equal, rows counted as in the tables; None where each is
            its own.
        constraints
            What forbids actions in states.
        intervals
            How well the numbers are known, rows counted as in the tables; None where they are
            known.

        Returns
        -------
        FactoredMDP
            The model, its scopes sorted.

        Raises
        ------
        InvalidModel
            Where these do not make a model; the text names the factor and the row as given.
        """
        sizes = items(state_sizes, "state sizes")
        variables = Structure(
            sizes,
            action_sizes,  # type: ignore[arg-type]  # Structure makes tuples of all these
            ((),) * len(sizes),
            (),
            state_names=state_names,  # type: ignore[arg-type]
            action_names=action_names,  # type: ignore[arg-type]
            state_values=state_values,  # type: ignore[arg-type]
            action_values=action_values,  # type: ignore[arg-type]
        )
        factors = pairs_of(rewards, "reward factor")
        factors += [
            (scope, negated(table, f"cost {index}"))
            for index, (scope, table) in enumerate(pairs_of(costs, "cost"))
        ]
        if len(items(reward_ranges, "reward ranges")) == 0:
            reward_ranges = [range_of(table) for _, table in factors]
        return cls.over(
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
        )

    @classmethod
    def from_functions(
        cls,
        states: Mapping[str, Any],
        actions: Mapping[str, Any],
        parents: Mapping[str, Sequence[str]],
        transition: Callable[[str, Mapping[str, Any]], Any],
        reward: Any = (),
        *,
        costs: Any = (),
        alike: Callable[[str, Mapping[str, Any]], Hashable] | None = None,
        reward_alike: Callable[[str, Mapping[str, Any]], Hashable] | None = None,
        reward_ranges: Mapping[str, tuple[float, float]] | None = None,
        groups: Sequence[Sequence[int | str]] = (),
        forbid: Sequence[Any] = (),
        at_most: int | None = None,
        constraints: Sequence[Constraint] = (),
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Assignment | None = None,
        name: str = "",
    ) -> FactoredMDP:
        """A model whose tables are what functions of named values say.

        Parameters
        ----------
        states
            The state variables: name -> list of values, texts or numbers; a number n stands for the
            values 0 to n - 1.
        actions
            The action variables, in the same form.
        parents
            For each state variable the variables, states and actions, that its next value depends
            on; its own name where its own value matters.
        transition
            Called as transition(name, values) for every state variable and every assignment of its
            parents, {name of variable: value as listed}. Gives the law of the next value: a
            dictionary value -> probability (what is left out has 0), probabilities in the order of
            the values, or one value that comes surely.
        reward
            The reward factors: name -> (scope, function), or a list of (name, scope, function);
            function(values) is the mean for an assignment of the scope. A function alone is one
            factor over all variables.
        costs
            More reward factors in the same form, whose functions say what is to be paid: their
            means are negated.
        alike
            Called as `transition` is, gives the key of a row: rows of equal keys, of one variable
            or of several, are known to be alike. A row with the key None is its own, and so is
            every row where no function is given.
        reward_alike
            The same for the rows of reward factors and costs, with the factor's name.
        reward_ranges
            name -> (lo, hi) for factors whose observed rewards may lie outside their means; for the
            others it is the least and the largest mean.
        groups
            Disjoint sets of state variables, by name, that belong together.
        forbid
            What does not go together: a list of assignments {name: value, or a list of values}, of
            which none may hold, or pairs (scope, function) whose function says whether an
            assignment is forbidden.
        at_most
            How many action variables may be at work at once, that is not at their first value.
        constraints
            Further constraints, such as `apart` makes for other models of these variables.
        noise
            One law for all reward factors, or one for each, costs last; None is for rewards that
            are always their mean.
        initial_state
            {name: value} of every state variable; None is the first value of all.
        name
            Any printable text on one line.

        Returns
        -------
        FactoredMDP
            The model, its tables written out.

        Raises
        ------
        InvalidModel
            Where these do not make a model; where a function is at fault, the text has the
            assignment by name.
        TooLarge
            Where a function would have to be called for millions of assignments.
        """
        from fmdp.model.functions import from_functions

        return from_functions(
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
        )

    @classmethod
    def over(
        cls,
        variables: Structure,
        transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
        rewards: Sequence[tuple[Sequence[int | str], npt.ArrayLike]] = (),
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
    ) -> FactoredMDP:
        """As `from_factors`, over the variables of a structure, whose factors do not count.

        Parameters
        ----------
        variables
            Has the sizes and names of all variables.
        transitions, rewards, reward_ranges, reward_names, groups, noise, initial_state, name, \
        alike, constraints, intervals
            As in `from_factors`.
        effects
            As in `Structure`.
        """
        transitions = pairs_of(transitions, "transition factor")
        rewards = pairs_of(rewards, "reward factor")
        bare = variables.with_factors(
            ((),) * variables.m, ((),) * len(rewards), reward_ranges, reward_names
        )
        if len(transitions) != bare.m:
            raise InvalidModel(
                f"{len(transitions)} transition factors for {bare.m} state variables; "
                f"there must be one a state variable"
            )
        # Checked in the given order, so that an error names the row as the caller counts.
        given: list[tuple[tuple[int, ...], FloatArray]] = []
        for i, (scope, table) in enumerate(transitions):
            numbers = scope_numbers(bare, scope, bare.transition_label(i))
            given.append((numbers, transition_table(bare, i, numbers, table)))
        for k, (scope, table) in enumerate(rewards):
            numbers = scope_numbers(bare, scope, bare.reward_label(k))
            given.append((numbers, reward_table(bare, k, numbers, table)))
        scopes = tuple(tuple(sorted(numbers)) for numbers, _ in given)
        tables = [sort_rows(bare.sizes, numbers, table) for numbers, table in given]
        structure = bare.with_factors(
            scopes[: bare.m],
            scopes[bare.m :],
            bare.reward_ranges,
            bare.reward_names,
            tuple(
                scope_numbers(bare, group, f"group {index}")
                for index, group in enumerate(items(groups, "groups"))
            ),
            sorted_alike(alike, bare, [numbers for numbers, _ in given]),
            constraints,
            effects,
        )
        made = object.__new__(cls)
        made._hold(
            structure,
            tables[: bare.m],
            tables[bare.m :],
            laws_of(noise, bare.l),
            _initial_state(initial_state, bare),
            _printable(name),
            sorted_intervals(intervals, bare, [numbers for numbers, _ in given]),
        )
        made._check_knowledge()
        return made

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
        initial_state: Sequence[int] | None = None,
        name: str = "",
        alike: Alike | None = None,
        constraints: Sequence[Constraint] = (),
    ) -> FactoredMDP:
        """A model whose actions act first, surely, one component at a time; then chance comes.

        The action a changes the state s to y = f(s, a) at once; the next state is drawn from
        P(. | y). The tables are over y, and become the model's tables over (s, a), in which rows
        of equal y are alike. Planners find the best of all joint actions one component at a time.

        Parameters
        ----------
        state_sizes
            Number of values of each state variable, at least 1; there are m of them.
        action_sizes
            Number of values of each action variable, at least 1.
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
            two means, for nothing and for something done.
        reward_ranges
            (lo, hi) of each reward factor; from the tables where none is given.
        state_names, action_names, reward_names, state_values, action_values, groups, noise, \
        initial_state, name
            As in `from_factors`.
        alike
            Which rows of the given tables are known to be equal; None where each is its own.
        constraints
            What forbids actions in states.

        Returns
        -------
        FactoredMDP
            The model, with `structure.effects` and `structure.alike`.

        Raises
        ------
        InvalidModel
            Where these do not make a model; the text names the factor and the row as given.
        TooLarge
            Where the tables over (s, a) would take more than a GiB.
        """
        sizes = items(state_sizes, "state sizes")
        triples = afterstates.triples(rewards)
        components = [
            afterstates.effect_of(given, index)
            for index, given in enumerate(items(effects, "effects"))
        ]
        bare = Structure(
            sizes,
            action_sizes,  # type: ignore[arg-type]  # Structure makes tuples of all these
            ((),) * len(sizes),
            ((),) * len(triples),
            reward_ranges,  # type: ignore[arg-type]
            state_names,  # type: ignore[arg-type]
            action_names,  # type: ignore[arg-type]
            reward_names,  # type: ignore[arg-type]
            state_values,  # type: ignore[arg-type]
            action_values,  # type: ignore[arg-type]
        )
        pairs = pairs_of(transitions, "transition factor")
        if len(pairs) != bare.m:
            raise InvalidModel(
                f"{len(pairs)} transition factors for {bare.m} state variables; "
                f"there must be one a state variable"
            )
        # Checked as they are given, so that an error names the row as the caller counts.
        laws = []
        for i, (scope, table) in enumerate(pairs):
            numbers = scope_numbers(bare, scope, bare.transition_label(i))
            rows = transition_table(bare, i, numbers, table)
            laws.append(given_factor(bare, numbers, rows))
        means = []
        for k, (kind, scope, table) in enumerate(triples):
            label = bare.reward_label(k)
            own = afterstates.kind_of(kind, label)
            if own == "setup" and (len(items(scope, label)) or np.shape(table) != (2,)):
                raise InvalidModel(
                    f"{label}: a set-up reward has an empty scope and two means, for nothing and "
                    f"for something done; got scope {shown(scope)} and shape {np.shape(table)}"
                )
            numbers = scope_numbers(bare, scope, label)
            rows = table_rows(bare, numbers, table, (2,) if own == "setup" else (), label)
            factor = given_factor(bare, numbers, rows)
            means.append((own, factor._replace(table=factor.table.reshape(-1))))
        full = afterstates.full_tables(bare, components, laws, means, alike)
        structure = bare.with_factors(
            full.transition_scopes,
            full.reward_scopes,
            bare.reward_ranges
            if len(items(reward_ranges, "reward ranges"))
            else [afterstates.range_of(factor.table) for _, factor in means],
            bare.reward_names,
            tuple(
                scope_numbers(bare, group, f"group {index}")
                for index, group in enumerate(items(groups, "groups"))
            ),
            full.alike,
            constraints,
            full.effects,
        )
        return cls(structure, full.transitions, full.rewards, noise, initial_state, name)

    @classmethod
    def trusted(
        cls,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
        initial_state: tuple[int, ...] | None = None,
    ) -> FactoredMDP:
        """Return a model of tables that are right by construction, without checking them.

        For code that makes models by the thousand (a learner samples one every episode). The
        arrays must be what the constructor would leave alone, and become read-only. Noise and name
        are the defaults.

        Parameters
        ----------
        structure
            Sizes, scopes, ranges and names.
        transitions
            For each state variable i a C-contiguous array [|X[Z_i]|, |S_i|] whose rows are
            distributions up to rounding.
        rewards
            For each reward factor k an array [|X[Z_k]|] of means inside its range.
        initial_state
            Values by position; None is 0 for every variable.
        """
        made = object.__new__(cls)
        laws = (Noise(),) * structure.l
        start = (0,) * structure.m if initial_state is None else initial_state
        made._hold(structure, transitions, rewards, laws, start, "")
        return made

    def with_constraints(self, *constraints: Constraint) -> FactoredMDP:
        """The same model with these constraints on actions beside those that it has.

        Parameters
        ----------
        *constraints
            What `forbid`, `apart` and `at_most` make, or a `Forbidden` or `AtMost` of one's own.

        Raises
        ------
        InvalidModel
            Where one does not fit the model, or a state would keep no action; the text names the
            state.
        """
        structure = replace(self.structure, constraints=(*self.structure.constraints, *constraints))
        return replace(self, structure=structure)

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of everything in the model: the same on every machine and run."""
        header = {
            "structure": [getattr(self.structure, field) for field in HASHED],
            "noise": [(noise.kind, noise.scale) for noise in self.noise],
            "initial_state": self.initial_state,
            "name": self.name,
        }
        digest = hashlib.sha256()
        for part in json_parts(header):
            digest.update(part.encode())
        for table in self.transitions + self.rewards:
            digest.update(table.astype("<f8", copy=False).tobytes())
        for told in knowledge_parts(self.structure, self.intervals):
            digest.update(told)
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactoredMDP):
            return NotImplemented
        return (
            self.structure == other.structure
            and self.noise == other.noise
            and self.initial_state == other.initial_state
            and self.name == other.name
            and self.intervals == other.intervals
            and all(
                np.array_equal(mine, theirs)
                for mine, theirs in zip(
                    self.transitions + self.rewards,
                    other.transitions + other.rewards,
                    strict=True,
                )
            )
        )

    def __hash__(self) -> int:
        return int(self.content_hash[:15], 16)

    def __reduce__(self) -> tuple[type[FactoredMDP], tuple[Any, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        s = self.structure
        name = f"{self.name!r}: " if self.name else ""
        return (
            f"FactoredMDP({name}state sizes {s.state_sizes}, action sizes {s.action_sizes}, "
            f"{s.l} reward factors)"
        )

    def expected_reward(self, state: Assignment, action: Assignment) -> float:
        """The mean reward of a state and action: R(s, a) = sum_k R_k(x[Z_k]).

        Parameters
        ----------
        state
            As in `Structure.check_state`: by number or by name.
        action
            As in `Structure.check_action`.

        Raises
        ------
        InvalidParameter
            Where the state or the action is none of the model's.
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
        """The law of the next value of one state variable, P_i(. | x[Z_i]).

        Parameters
        ----------
        i
            Number of the state variable.
        state
            As in `Structure.check_state`: by number or by name.
        action
            As in `Structure.check_action`.

        Returns
        -------
        numpy.ndarray
            [|S_i|], read-only.

        Raises
        ------
        InvalidParameter
            Where the state or the action is none of the model's.
        """
        s = self.structure
        state, action = s.check_state(state), s.check_action(action)
        row: FloatArray = self.transitions[i][s.scope_row(s.transition_scopes[i], state, action)]
        return row


def check_model(model: object, owner: str) -> None:
    """Refuse what is no model, and say where models come from."""
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(
            f"the model of {owner} must be a FactoredMDP (fmdp.problem or fmdp.load makes one); "
            f"got {shown(model)}"
        )


def _printable(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable():
        raise InvalidModel(f"name {name!r}: must be a printable string")
    return name


def _initial_state(given: Assignment | None, structure: Structure) -> tuple[int, ...]:
    try:
        return structure.check_state(
            (0,) * structure.m if given is None else given, "initial state"
        )
    except InvalidParameter as error:
        raise InvalidModel(str(error)) from None
