"""The actions that the constraints of a structure allow in its states.

Every state must keep an action. That is checked without enumerating joint states: constraints that
share no action variable cannot conflict, so each connected set of constraints is checked by itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.model.constraints import (
    MOST_ROWS,
    Columns,
    Constraint,
    LinearCap,
    Mask,
    forbidden_choices,
)
from fmdp.model.groups import Groups
from fmdp.model.spaces import (
    IndexArray,
    count,
    decode,
    project,
    refuse_above_limit,
    shown,
    shown_tuple,
)
from fmdp.model.variables import VariableSpace

_MOST_SHOWN = 64
"""Most values of a state or an action that an error message shows."""


class AllowedActions(VariableSpace):
    """Variables and the constraints on the actions."""

    constraints: tuple[Constraint, ...]

    def allowed(self, state: Sequence[int], action: Sequence[int]) -> bool:
        """Return whether no constraint forbids `action` in `state`, which are not checked."""
        joint = tuple(map(int, (*state, *action)))
        return not any(c.forbids(joint, self.sizes) for c in self.constraints)

    def check_allowed(self, state: Sequence[int], action: Sequence[int]) -> None:
        """Raise InvalidParameter, with its name, if a constraint forbids `action` in `state`.

        Positions, one per variable; not checked: see `check_state` and `check_action`.
        """
        if not self.constraints:
            return
        joint = tuple(map(int, (*state, *action)))
        for constraint in self.constraints:
            if constraint.forbids(joint, self.sizes):
                values = [joint[v] for v in constraint.scope]
                raise InvalidParameter(
                    f"action {_some(action)} is not allowed in state {_some(state)}: "
                    f"{constraint.label(self.names)} forbids "
                    f"{self._assignment_label(constraint.scope, values)}"
                )

    def check_allowed_each(self, states: IndexArray, actions: IndexArray) -> None:
        """Raise InvalidParameter as `check_allowed` for the first of many pairs that is forbidden.

        `states` [number, state variables] and `actions` [number, action variables] have positions,
        which are not checked.
        """
        if not self.constraints:
            return
        joint = np.concatenate([states, actions], axis=1)
        for constraint in self.constraints:
            forbidden = constraint.forbids_rows(joint, self.sizes)
            if forbidden.any():
                first = int(forbidden.argmax())
                self.check_allowed(states[first].tolist(), actions[first].tolist())

    def allowed_actions(self, state: Sequence[int]) -> IndexArray:
        """Return the indices of the joint actions that are allowed in `state`, ascending.

        Positions, one per variable; not checked: see `check_state`.
        """
        action_sizes, m = self.action_sizes, self.m
        joint = Columns(lambda v: int(state[v]) if v < m else project(action_sizes, [v - m]))
        allowed = np.ones(count(action_sizes), dtype=np.bool_)
        for constraint in self.constraints:
            allowed &= ~constraint.forbids(joint, self.sizes)
        return np.flatnonzero(allowed).astype(np.int64)

    def allowed_mask(self) -> Mask:
        """Return whether each joint action is allowed in each joint state: [S, A]; or TooLarge."""
        shape, m = (self.n_states, self.n_actions), self.m
        refuse_above_limit(math.prod(shape))

        def column(v: int) -> IndexArray:
            if v < m:
                return project(self.state_sizes, [v])[:, None]
            return project(self.action_sizes, [v - m])

        forbidden = np.zeros(shape, dtype=np.bool_)
        for constraint in self.constraints:
            forbidden |= constraint.forbids(Columns(column), self.sizes)
        return ~forbidden

    def allowed_pairs(self) -> IndexArray:
        """Return for each pair s * A + a itself if a is allowed in s, else that of the lowest
        action that is: [S * A].

        Tables over all pairs that are read through it have the values, gains and reachable states
        of the constrained model. Raises TooLarge above a limit.
        """
        pairs = np.arange(self.n_states * self.n_actions, dtype=np.int64)
        if not self.constraints:
            return pairs
        mask = self.allowed_mask()
        first = np.arange(self.n_states) * self.n_actions + mask.argmax(axis=1)
        substitutes: IndexArray = np.where(
            mask, pairs.reshape(mask.shape), first[:, None].astype(np.int64)
        ).reshape(-1)
        return substitutes

    def check_policy(self, actions: IndexArray) -> None:
        """Raise InvalidParameter if a policy plays a forbidden action.

        `actions` has the index of the joint action of every joint state, [S], and is not checked
        otherwise. The message has the first such state, the action and the constraint.
        """
        if not self.constraints:
            return
        forbidden = forbidden_choices(self.constraints, actions, self.m, self.sizes)
        if forbidden.any():
            first = int(forbidden.argmax())
            state = decode(first, self.state_sizes)
            self.check_allowed(state, decode(int(actions[first]), self.action_sizes))

    def _refuse_stuck_states(self) -> None:
        """Raise InvalidModel if some state has no allowed action."""
        for part in _connected(self.constraints, self.m):
            scope = sorted({v for constraint in part for v in constraint.scope})
            if _one_action_serves(part, scope, self.sizes, self.m):
                continue
            stuck = self._stuck_state(part, scope)
            if stuck is None:
                continue
            states = self._assignment_label([v for v in scope if v < self.m], stuck)
            raise InvalidModel(
                f"no action is allowed {f'where {states}' if states else 'in any state'}: "
                f"{' and '.join(c.label(self.names) for c in part)} "
                f"forbid{'s' if len(part) == 1 else ''} all; every state must keep an action"
            )

    def _stuck_state(self, part: Sequence[Constraint], scope: list[int]) -> tuple[int, ...] | None:
        """Return values of the state variables of the scope for which nothing is allowed."""
        sizes = self.scope_sizes(scope)
        total = count(sizes)
        if total > MOST_ROWS:
            raise TooLarge(
                f"constraints that share action variables are over {shown(total)} assignments; "
                f"at most {MOST_ROWS} can be looked at to see that every state keeps an action",
                total,
                MOST_ROWS,
            )
        forbidden = np.zeros(total, dtype=np.bool_)
        for constraint in part:
            rows = project(sizes, [scope.index(v) for v in constraint.scope])
            forbidden |= constraint.forbidden_table(self.sizes)[rows]
        # The scope is sorted, so states come before actions.
        state_sizes = [self.sizes[v] for v in scope if v < self.m]
        stuck = forbidden.reshape(count(state_sizes), -1).all(axis=1)
        return decode(int(stuck.argmax()), state_sizes) if stuck.any() else None


def _some(values: Sequence[int]) -> str:
    """Return values as a tuple for messages, of which large ones are cut short."""
    return shown_tuple(values) if len(values) <= _MOST_SHOWN else shown(tuple(values))


def _connected(constraints: Sequence[Constraint], m: int) -> list[list[Constraint]]:
    """Return the constraints in sets that share action variables, directly or through others."""
    sets = Groups(len(constraints))
    first: dict[int, int] = {}
    for number, constraint in enumerate(constraints):
        for v in constraint.scope:
            if v >= m:
                sets.join(number, first.setdefault(v, number))
    return [[constraints[number] for number in members] for members in sets.members()]


def _one_action_serves(
    part: Sequence[Constraint], scope: Sequence[int], sizes: Sequence[int], m: int
) -> bool:
    """Return whether the cheapest values of the caps, and 0 elsewhere, are always allowed."""
    chosen = {v: 0 for v in scope if v >= m}
    for constraint in part:
        if isinstance(constraint, LinearCap):
            chosen.update(zip(constraint.actions, constraint.cheapest(), strict=True))
    for constraint in part:
        if isinstance(constraint, LinearCap):
            rows = zip(constraint.actions, constraint.unit_costs(sizes), strict=True)
            if sum(int(costs[chosen[v]]) for v, costs in rows) > constraint.most_units:
                return False
            continue
        cube = constraint.forbidden_table(sizes).reshape([sizes[v] for v in constraint.scope])
        if cube[tuple(chosen[v] if v >= m else slice(None) for v in constraint.scope)].any():
            return False
    return True
