"""Independent parts of a model: groups of variables that share no factor and no constraint.

Two variables belong to the same part if they occur together in a transition factor (a state
variable and its scope), in a reward factor or in a constraint. Parts evolve independently of each
other under any policy that looks at each part alone, and rewards add up, so the optimal gain, bias
and discounted value of the model are sums over its parts:

    gain(s) = sum_p gain_p(s_p),    h(s) = sum_p h_p(s_p),    V(s) = sum_p V_p(s_p).

A part without state variables (an action with a separate cost) or without action variables (an
uncontrolled process) gets one variable with a single value, because a structure needs both.
Variables of the whole with a single value are in no part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from fmdp.model.alike import Alike
from fmdp.model.constraints import Constraint
from fmdp.model.factored import FactoredMDP
from fmdp.model.groups import Groups
from fmdp.model.intervals import Intervals
from fmdp.model.optimistic import OptimisticTables
from fmdp.model.scopes import Scope
from fmdp.model.spaces import FloatArray
from fmdp.model.structure import Structure

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Part:
    """The numbers of the variables and reward factors of one part in the whole, ascending.

    States and actions may be empty; actions are numbered m, m + 1, .... `structure` is that of the
    part alone, with default names.
    """

    states: tuple[int, ...]
    actions: tuple[int, ...]
    rewards: tuple[int, ...]
    structure: Structure

    def model(self, whole: FactoredMDP) -> FactoredMDP:
        """Return the part of a model of the whole structure."""
        return FactoredMDP(
            self.structure,
            self._of_states(whole.transitions, _CERTAIN_ROW),
            self._of_rewards(whole.rewards),
            self._of_rewards(whole.noise),
            [whole.initial_state[i] for i in self.states] or [0],
            intervals=None if whole.intervals is None else self._intervals(whole.intervals),
        )

    def tables(self, whole: FactoredMDP | OptimisticTables) -> FactoredMDP | OptimisticTables:
        """Return the part of a learner's tables of the whole structure, not checked again."""
        rewards = self._of_rewards(whole.rewards)
        if isinstance(whole, FactoredMDP):
            rows = self._of_states(whole.transitions, _CERTAIN_ROW)
            start = tuple(whole.initial_state[i] for i in self.states) or (0,)
            return FactoredMDP.trusted(self.structure, rows, rewards, start)
        upper, centre, radius = (
            None if given is None else self._of_states(given, filling)
            for given, filling in (
                (whole.upper, _CERTAIN_ROW),
                (whole.centre, _CERTAIN_ROW),
                (whole.radius, _NO_MASS),
            )
        )
        lower = self._of_states(whole.lower, _CERTAIN_ROW)
        free = self._of_states(whole.free, _NO_MASS)
        sets = (lower, free, rewards, upper, centre, radius)
        return OptimisticTables.trusted(self.structure, *sets, distance=whole.distance)

    def _of_states(self, tables: Sequence[FloatArray], filling: FloatArray) -> list[FloatArray]:
        """Return the tables of the part's state variables; `filling` for the single-valued one."""
        return [tables[i] for i in self.states] or [filling]

    def _of_rewards(self, values: Sequence[T]) -> list[T]:
        return [values[k] for k in self.rewards]

    def _intervals(self, whole: Intervals) -> Intervals:
        return Intervals(
            tuple(self._of_states(whole.lower, _CERTAIN_ROW)),
            tuple(self._of_states(whole.upper, _CERTAIN_ROW)),
            tuple(self._of_rewards(whole.reward_lower)),
            tuple(self._of_rewards(whole.reward_upper)),
        )


_CERTAIN_ROW = np.ones((1, 1))
_NO_MASS = np.zeros(1)


@lru_cache(maxsize=64)
def independent_parts(structure: Structure) -> tuple[Part, ...]:
    """Return the independent parts of a structure in the order of their first variables.

    The tuple is empty if there are fewer than two. Models with effects are not split: their planner
    already works component by component, and a cap or a set-up cost usually ties the components
    together. Neither are models with derived variables: the exact planner splits the same model
    without them.
    """
    if structure.effects is not None or structure.derived or _constrained_constant(structure):
        return ()
    joined = Groups(len(structure.sizes))
    joined.join_all(_shared_scopes(structure))
    # Variables of one value carry no information.
    groups = [group for group in joined.members() if structure.sizes[group[0]] > 1]
    if len(groups) < 2:
        return ()
    owner = {variable: number for number, group in enumerate(groups) for variable in group}
    rewards: list[list[int]] = [[] for _ in groups]
    for k, scope in enumerate(structure.reward_scopes):
        # Constant rewards are assigned to the first part.
        rewards[next((owner[v] for v in scope if v in owner), 0)].append(k)
    return tuple(
        _part(structure, group, tuple(factors))
        for group, factors in zip(groups, rewards, strict=True)
    )


def _shared_scopes(structure: Structure) -> Iterable[Sequence[int]]:
    """Return the sets of variables that occur together somewhere."""
    scopes: list[Sequence[int]] = [
        (i, *scope) for i, scope in enumerate(structure.transition_scopes) if structure.sizes[i] > 1
    ]
    scopes += structure.reward_scopes
    scopes += [constraint.scope for constraint in structure.constraints]
    for scope in scopes:
        yield [v for v in scope if structure.sizes[v] > 1]


def _constrained_constant(structure: Structure) -> bool:
    """Return whether a constraint names a variable of one value, which is in no part."""
    return any(
        structure.sizes[v] == 1 for constraint in structure.constraints for v in constraint.scope
    )


def _part(structure: Structure, group: Sequence[int], rewards: tuple[int, ...]) -> Part:
    m = structure.m
    states = tuple(v for v in group if v < m)
    actions = tuple(v for v in group if v >= m)
    own_m = max(1, len(states))
    number = {v: place for place, v in enumerate(states)}
    number |= {v: own_m + place for place, v in enumerate(actions)}

    def renumbered(scope: Scope) -> Scope:
        # A variable of one value does not add rows to a table.
        return tuple(number[v] for v in scope if v in number)

    return Part(
        states,
        actions,
        rewards,
        Structure(
            state_sizes=tuple(structure.sizes[v] for v in states) or (1,),
            action_sizes=tuple(structure.sizes[v] for v in actions) or (1,),
            transition_scopes=tuple(renumbered(structure.transition_scopes[i]) for i in states)
            or ((),),
            reward_scopes=tuple(renumbered(structure.reward_scopes[k]) for k in rewards),
            reward_ranges=tuple(structure.reward_ranges[k] for k in rewards),
            groups=tuple(
                renumbered(group) for group in structure.groups if set(group) <= set(states)
            ),
            alike=_alike_rows(structure.alike, states, rewards),
            constraints=_constraints(structure, number),
        ),
    )


def _alike_rows(alike: Alike | None, states: Sequence[int], rewards: Sequence[int]) -> Alike | None:
    """Return which rows of a part are alike."""
    if alike is None:
        return None
    # The single-valued variable of a part without states has one row.
    classes = tuple(alike.transitions[i] for i in states) or (np.zeros(1, dtype=np.int64),)
    return Alike(classes, tuple(alike.rewards[k] for k in rewards))


def _constraints(structure: Structure, number: Mapping[int, int]) -> tuple[Constraint, ...]:
    """Return the constraints on the variables of a part, which have these new numbers."""
    numbers = [number.get(v, -1) for v in range(len(structure.sizes))]
    return tuple(
        constraint.renumbered(numbers, structure.sizes)
        for constraint in structure.constraints
        if set(constraint.scope) & number.keys()
    )
