"""Effects: actions that change the state at once and deterministically, before chance.

    y = f(s, a),   s' ~ prod_i P_i(. | y[Z_i]),   f one component at a time

In maintenance, ordering and pricing an action sets components to new values at a cost that is a sum
over the components, and then nature moves. A component is a few state variables with the action
variables that change them; f does not mix components. The model has tables over (s, a) like any
other; `Effects` declares which of their rows depend on (s, a) through y alone. A planner that uses
it maximises over all joint actions one component at a time (elimination/effects.py).

A reward of the state before the action, or of whether anything is done, may be over derived
variables: a penalty for too few working components over their count.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from fmdp.errors import InvalidModel
from fmdp.model.alike import RowClasses
from fmdp.model.derived import Derived
from fmdp.model.spaces import (
    IndexArray,
    array_of,
    count,
    items,
    project,
    shown,
    sorted_numbers,
    strides,
)

RewardKind = Literal["before", "after", "cost", "setup"]
"""The argument of a reward factor: the state before the action; the state y after it; the state
and action of one component; whether any action variable is not idle (0)."""


@dataclass(frozen=True, eq=False)
class Effect:
    """The deterministic effect of the actions of one component on its state variables.

    Parameters
    ----------
    states
        Its state variables, sorted, at least one.
    actions
        Its action variables (m, m + 1, ...), sorted, at least one; they act on nothing else.
    outcome
        [|S_c| * |A_c|]: the joint index of the states after the action, for every assignment of
        (states, actions), the last action variable fastest.

    Raises
    ------
    InvalidModel
        If these are not as above.
    """

    states: tuple[int, ...]
    actions: tuple[int, ...]
    outcome: IndexArray

    def __post_init__(self) -> None:
        for field in ("states", "actions"):
            scope = sorted_numbers(getattr(self, field), f"{field} of an effect")
            if not scope:
                raise InvalidModel(f"{field} of an effect are (); must be at least one")
            object.__setattr__(self, field, scope)
        outcome = array_of(self.outcome)
        if outcome.ndim != 1 or outcome.dtype.kind not in "iu":
            raise InvalidModel(
                f"outcome of an effect is {shown(self.outcome)}; must be one index for each "
                f"assignment of its states and actions"
            )
        outcome = outcome.astype(np.int64)
        outcome.flags.writeable = False
        object.__setattr__(self, "outcome", outcome)

    @property
    def scope(self) -> tuple[int, ...]:
        """State and action variables."""
        return self.states + self.actions

    def _content(self) -> tuple[Any, ...]:
        return self.states, self.actions, self.outcome.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Effect) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def __reduce__(self) -> tuple[type[Effect], tuple[Any, ...]]:
        return type(self), (self.states, self.actions, self.outcome)


@dataclass(frozen=True)
class Effects:
    """The components of a model whose actions act first, and the scopes over the state after them.

    Parameters
    ----------
    components
        Disjoint effects; every action variable is in exactly one. No action changes a state
        variable that is in none.
    after_scopes
        For each state variable i the state variables, sorted, whose values after the action its
        next value depends on.
    rewards
        For each reward factor its argument: "before", "after", "cost" or "setup".
    after_reward_scopes
        For each reward factor the state variables whose values after the action it depends on;
        empty unless it is "after".

    Raises
    ------
    InvalidModel
        If components overlap or a kind of reward is unknown.
    """

    components: tuple[Effect, ...]
    after_scopes: tuple[tuple[int, ...], ...]
    rewards: tuple[RewardKind, ...] = ()
    after_reward_scopes: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        components = items(self.components, "components of effects")
        rewards = items(self.rewards, "kinds of rewards")
        empty: tuple[tuple[int, ...], ...] = ((),) * len(rewards)
        scopes = {
            "after_scopes": items(self.after_scopes, "scopes after the action"),
            "after_reward_scopes": items(self.after_reward_scopes, "scopes of rewards") or empty,
        }
        for field, given in scopes.items():
            checked = (
                sorted_numbers(scope, f"{field}[{i}] of effects") for i, scope in enumerate(given)
            )
            object.__setattr__(self, field, tuple(checked))
        object.__setattr__(self, "components", components)
        object.__setattr__(self, "rewards", rewards)
        self._check_components()
        self._check_rewards()

    def _check_components(self) -> None:
        used: set[int] = set()
        for effect in self.components:
            if not isinstance(effect, Effect):
                raise InvalidModel(f"a component of effects is {shown(effect)}; must be an Effect")
            if used & set(effect.scope):
                raise InvalidModel(
                    f"variable {min(used & set(effect.scope))} is in two components of effects; "
                    f"they must be disjoint"
                )
            used |= set(effect.scope)

    def _check_rewards(self) -> None:
        for kind in self.rewards:
            if not isinstance(kind, str) or kind not in get_args(RewardKind):
                raise InvalidModel(
                    f"a reward is a function of {shown(kind)}; must be one of "
                    f"{', '.join(get_args(RewardKind))}"
                )
        if len(self.after_reward_scopes) != len(self.rewards):
            raise InvalidModel(
                f"{len(self.after_reward_scopes)} scopes after the action for "
                f"{len(self.rewards)} rewards; the numbers must agree"
            )
        for k, (kind, after) in enumerate(zip(self.rewards, self.after_reward_scopes, strict=True)):
            if after and kind != "after":
                raise InvalidModel(
                    f"reward {k} is a function of {kind}, and has the scope {after} after the "
                    f"action; only one of after has such a scope"
                )

    def full_scope(self, after: Sequence[int]) -> tuple[int, ...]:
        """Return the variables (s, a), sorted, that y[`after`] is a function of."""
        variables: set[int] = set(after)
        for effect in self.components:
            if variables & set(effect.states):
                variables |= set(effect.scope)
        return tuple(sorted(variables))

    def after_rows(self, after: Sequence[int], sizes: Sequence[int]) -> IndexArray:
        """Return the index of y[`after`] for every assignment of `full_scope(after)`.

        `after` are state variables, sorted; `sizes` are those of all variables, states then
        actions.
        """
        scope = self.full_scope(after)
        scope_sizes = [sizes[v] for v in scope]
        place = {v: index for index, v in enumerate(scope)}
        steps = dict(zip(after, strides([sizes[v] for v in after]), strict=True))
        rows = np.zeros(count(scope_sizes), dtype=np.int64)
        free = set(after)
        for effect in self.components:
            if not steps.keys() & set(effect.states):
                continue
            free -= set(effect.states)
            joint = effect.outcome[project(scope_sizes, [place[v] for v in effect.scope])]
            for v, step in zip(
                effect.states, strides([sizes[u] for u in effect.states]), strict=True
            ):
                if v in steps:
                    rows += joint // step % sizes[v] * steps[v]
        for v in sorted(free):
            rows += project(scope_sizes, [place[v]]) * steps[v]
        return rows


def effects_plain(effects: Effects) -> dict[str, Any]:
    """Return the effects as plain JSON values; `effects_from_plain` reads them back."""
    return {
        "components": [
            [effect.states, effect.actions, effect.outcome.tolist()]
            for effect in effects.components
        ],
        "after_scopes": effects.after_scopes,
        "rewards": effects.rewards,
        "after_reward_scopes": effects.after_reward_scopes,
    }


def effects_from_plain(given: Any) -> Effects:
    """Return the effects that `effects_plain` wrote, or raise InvalidModel."""
    try:
        components = tuple(
            Effect(tuple(states), tuple(actions), np.array(outcome))
            for states, actions, outcome in given["components"]
        )
        scopes = [
            tuple(tuple(scope) for scope in given[name])
            for name in ("after_scopes", "after_reward_scopes")
        ]
        return Effects(components, scopes[0], tuple(given["rewards"]), scopes[1])
    except (TypeError, ValueError, LookupError):
        raise InvalidModel(f"the effects in a file are {shown(given)}, which are none") from None


def check_components(effects: object, m: int, sizes: Sequence[int], names: Sequence[str]) -> None:
    """Raise InvalidModel if the components do not fit variables of these sizes and names."""
    if not isinstance(effects, Effects):
        raise InvalidModel(f"effects are {shown(effects)}; must be Effects")
    acting: set[int] = set()
    for effect in effects.components:
        if effect.states[-1] >= m or not m <= effect.actions[0] <= effect.actions[-1] < len(sizes):
            raise InvalidModel(
                f"a component of effects has states {effect.states} and actions "
                f"{effect.actions}; must be state variables 0..{m - 1} and action variables "
                f"{m}..{len(sizes) - 1}"
            )
        joint = count([sizes[v] for v in effect.states])
        needed = joint * count([sizes[v] for v in effect.actions])
        out = effect.outcome
        if len(out) != needed or not (0 <= out.min(initial=0) <= out.max(initial=0) < joint):
            raise InvalidModel(
                f"the outcome of the effect on states {effect.states} has {len(out)} entries; "
                f"must have {needed}, each in 0..{joint - 1}"
            )
        acting |= set(effect.actions)
    idle = sorted(set(range(m, len(sizes))) - acting)
    if idle:
        raise InvalidModel(
            f'action variable {idle[0]} ("{names[idle[0]]}") is in no component of effects; each '
            f"must be in one"
        )
    if len(effects.after_scopes) != m:
        raise InvalidModel(
            f"effects have {len(effects.after_scopes)} scopes for {m} state variables"
        )
    for after in (*effects.after_scopes, *effects.after_reward_scopes):
        if after and after[-1] >= m:
            raise InvalidModel(
                f"a scope after the action is {after}; must be state variables 0..{m - 1}"
            )


def check_factors(effects: Effects, structure: RowClasses) -> None:
    """Raise InvalidModel if a factor is not a function of what the effects declare.

    Rows of equal y must be of one class of alike rows. Then every table that fits the structure,
    also a learner's, is a function of y, and planning by components is exact for it.
    """
    s = structure
    if len(effects.rewards) != s.l:
        raise InvalidModel(f"effects have {len(effects.rewards)} kinds for {s.l} reward factors")
    for i, after in enumerate(effects.after_scopes):
        scope, label = s.transition_scopes[i], s.transition_label(i)
        _check_after(effects, after, scope, s.transition_classes_of(i), s, label)
    for k, kind in enumerate(effects.rewards):
        scope, label = s.reward_scopes[k], s.reward_label(k)
        if kind == "after":
            after = effects.after_reward_scopes[k]
            _check_after(effects, after, scope, s.reward_classes_of(k), s, label)
        elif kind == "before":
            _check_scope(label, s.origins(scope)[0], range(s.m), "of the state before the action")
        elif kind == "cost":
            if not any(set(scope) <= set(effect.scope) for effect in effects.components):
                raise InvalidModel(
                    f"{label}: its scope is ({', '.join(s.names[v] for v in scope)}), and it is a "
                    f"cost; must lie inside one component of effects"
                )
        else:
            base = s.origins(scope)[0]
            _check_scope(label, base, range(s.m, len(s.sizes)), "of whether anything is done")
            _check_setup(s, k, label)


def _check_setup(s: RowClasses, k: int, label: str) -> None:
    """Raise InvalidModel unless all rows in which something is done are of one class.

    Derived variables must tell idle from busy by themselves: the row in which nothing is done must
    not also occur when something is done.
    """
    idle, busy = _setup_rows(s, s.reward_scopes[k])
    if idle & busy:
        raise InvalidModel(
            f"{label}: it is a set-up reward, but {s.row_label(s.reward_scopes[k], min(idle))} may "
            f"mean that nothing or that something is done"
        )
    classes = s.reward_classes_of(k)[sorted(busy)]
    if classes.size and (classes != classes[0]).any():
        raise InvalidModel(
            f"{label}: it is a set-up reward, but rows in which something is done are of "
            f"several classes; must be of one"
        )


def _setup_rows(s: RowClasses, scope: Sequence[int]) -> tuple[set[int], set[int]]:
    """Return the rows of a scope when nothing is done, and a superset of those when something is.

    It is a superset where derived variables of the scope depend on the same action variable.
    """
    n = len(s.sizes)
    if all(v < n for v in scope):
        return {0}, set(range(1, count(s.scope_sizes(scope))))
    values: dict[int, tuple[set[int], set[int]]] = {}
    for v in sorted({*scope, *s.origins(scope)[0], *s.origins(scope)[1]}):
        if v < n:
            values[v] = {0}, set(range(1, s.sizes[v]))
        else:
            variable = s.derived[v - n]
            pair = _combined([values[u] for u in variable.scope], s.scope_sizes(variable.scope))
            values[v] = _outcomes(variable, pair[0]), _outcomes(variable, pair[1])
    return _combined([values[v] for v in scope], s.scope_sizes(scope))


def _combined(
    members: Sequence[tuple[set[int], set[int]]], sizes: Sequence[int]
) -> tuple[set[int], set[int]]:
    """Return the rows over variables whose values (idle, busy) are given."""
    idle, busy = {0}, set[int]()
    for (calm, active), size in zip(members, sizes, strict=True):
        both = calm | active
        busy = {row * size + v for row in busy for v in both} | {
            row * size + v for row in idle for v in active
        }
        idle = {row * size + v for row in idle for v in calm}
    return idle, busy


def _outcomes(variable: Derived, rows: set[int]) -> set[int]:
    """Return the values that a derived variable can have in these rows of its table."""
    entries = variable.table[sorted(rows)]
    if variable.deterministic:
        return set(entries.tolist())
    return set(np.flatnonzero((entries > 0.0).any(axis=0)).tolist())


def _check_scope(label: str, scope: Sequence[int], allowed: range, what: str) -> None:
    outside = [v for v in scope if v not in allowed]
    if outside:
        raise InvalidModel(
            f"{label}: it is a function {what}, but its scope has variable {outside[0]}; must be "
            f"in {allowed.start}..{allowed.stop - 1}"
        )


def _check_after(
    effects: Effects,
    after: Sequence[int],
    scope: Sequence[int],
    classes: IndexArray,
    structure: RowClasses,
    label: str,
) -> None:
    needed = effects.full_scope(after)
    if tuple(scope) != needed:
        raise InvalidModel(
            f"{label}: its scope is {tuple(scope)}; must be {needed}, of which the values of "
            f"{tuple(after)} after the action are a function"
        )
    rows = effects.after_rows(after, structure.sizes)
    first = first_rows(rows, count(structure.scope_sizes(after)))
    differs = np.flatnonzero(classes != classes[first[rows]])
    if differs.size:
        row, other = int(first[rows[differs[0]]]), int(differs[0])
        raise InvalidModel(
            f"{label}: {structure.row_label(scope, row)} and {structure.row_label(scope, other)} "
            f"lead to the same values after the action, but are not alike; must be of one class"
        )


def first_rows(rows: IndexArray, n: int) -> IndexArray:
    """Return for every y in 0..n-1 the first place where rows is y, or 0 if there is none."""
    first = np.zeros(n, dtype=np.int64)
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    return first
