"""Decomposition of models with effects into one maximum per component.

    max over allowed a of  sum_c cost_c(s_c, a_c) + setup(is anything done) + U(f(s, a))

splits into one maximum per component if the set of allowed actions does. A constraint inside one
component is a mask on its local actions. The running sum of one cap or budget is carried along, and
so is the flag "anything done" for set-up rewards. Sum and flag together form the `layers`: the
pairs (cost, anything done) that some actions lead to. For all other constraints (across components,
caps on different sets) the joint actions are enumerated, and `enumeration_reason` says why.

Only arrays of the size of the model's tables are allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.constraints import Constraint, LinearCap
from fmdp.model.effects import Effect, first_rows
from fmdp.model.spaces import all_assignments, count, project, strides

Index = NDArray[np.int64]
Layer = tuple[int, int]
"""Cost of the actions under the cap, and whether anything is done (0 or 1)."""


_MOST_LAYERS = 1 << 10
"""Most layers; the table of their sums has the square of this many entries."""


@dataclass(frozen=True, eq=False)
class Component:
    """One component: allowed local actions in each local state, their effects and costs."""

    effect: Effect
    n_states: int
    n_actions: int
    allowed: NDArray[np.bool_]  # [n_states, n_actions]
    kinds: Index
    """[n_actions]: index of each local action's kind in `Decomposition.kinds`."""
    joint: Index
    """[n_actions]: contribution of each local action to the index of the joint action."""
    costs: tuple[tuple[int, Index], ...]
    """Reward factors that depend on this component alone, each with the row of its table for every
    local (state, action): [n_states * n_actions].
    """


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A model with effects: chance after the action, and one maximum per component."""

    structure: Structure
    after: Structure
    """Structure of chance alone: the same states, one action with one value, the factors over y."""
    rows: tuple[Index, ...]
    """For each row of a transition factor of `after`, an equal row of the structure's factor."""
    after_rewards: tuple[tuple[int, Index], ...]
    """Reward factors over y: their index in the structure, and rows as in `rows`."""
    components: tuple[Component, ...]
    """Sorted by first action variable."""
    before: tuple[int, ...]
    """Reward factors of the state before the action that span several components."""
    setups: tuple[tuple[int, int], ...]
    """Set-up reward factors, each with a row in which something is done (0 if there is none)."""
    kinds: tuple[Layer, ...]
    layers: tuple[Layer, ...]
    following: Index
    """[kinds, layers]: the layer after one more action of the kind, -1 beyond the cap."""
    joined: Index
    """[layers, layers]: the layer of two sets of components together, -1 beyond the cap."""
    live: NDArray[np.bool_]
    """[components + 1, layers]: layers reachable by the actions of components c, c + 1, ...."""

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def describes(self, tables: FactoredMDP | OptimisticTables) -> bool:
        """Return True if the tables depend on (s, a) only as the effects say. Always true for a
        model, which is checked when it is made. Intervals given for single rows may violate it."""
        if isinstance(tables, FactoredMDP):
            return True
        effects, sizes = self.structure.effects, self.structure.sizes
        assert effects is not None
        optional = (tables.upper, tables.centre, tables.radius)
        parts = [tables.lower, tables.free, *(table for table in optional if table is not None)]
        factors = [
            (table[i], self.rows[i], effects.after_scopes[i])
            for table in parts
            for i in range(self.structure.m)
        ]
        factors += [
            (tables.rewards[k], rows, effects.after_reward_scopes[k])
            for k, rows in self.after_rewards
        ]
        same = all(
            np.array_equal(table, table[rows][effects.after_rows(scope, sizes)])
            for table, rows, scope in factors
        )
        setups = (tables.rewards[k][1:] for k, _ in self.setups)
        return same and all(bool((table == table[:1]).all()) for table in setups)


def decompose(structure: Structure) -> Decomposition | None:
    """Return the decomposition of a structure; None without effects or if enumeration is needed."""
    result = _decomposed(structure) if structure.effects is not None else None
    return result if isinstance(result, Decomposition) else None


def enumeration_reason(structure: Structure) -> str | None:
    """Return why a structure with effects needs enumeration; None if it does not."""
    result = _decomposed(structure) if structure.effects is not None else None
    return result if isinstance(result, str) else None


@lru_cache(maxsize=16)
def _decomposed(s: Structure) -> Decomposition | str:
    """Return the decomposition, or the reason why joint actions have to be enumerated."""
    effects = s.effects
    assert effects is not None
    owners = sorted(effects.components, key=lambda effect: effect.actions[0])
    masked, cap, reason = _sorted_constraints(s, owners)
    if reason is not None:
        return reason
    setups = [k for k, kind in enumerate(effects.rewards) if kind == "setup"]
    setup_scopes = {s.reward_scopes[k] for k in setups}
    if len(setup_scopes) > 1:
        return "set-up rewards look at different action variables"
    setup_scope = setup_scopes.pop() if setup_scopes else ()
    local_kinds, cap_at = _counted_kinds(s, owners, cap, setup_scope)
    kinds = tuple(sorted({kind for of_component in local_kinds for kind in of_component}))
    layers = _reachable(local_kinds, cap_at)
    if len(layers) > _MOST_LAYERS:
        return f"the costs of its actions have {len(layers)} sums; at most {_MOST_LAYERS} are used"
    position = {layer: number for number, layer in enumerate(layers)}

    def successors(sources: Sequence[Layer]) -> Index:
        """Return [sources, layers]: the layer of each sum, -1 beyond the cap."""
        table = [[position.get(_plus(layer, other), -1) for layer in layers] for other in sources]
        return np.array(table, dtype=np.int64)

    costs, before = _costs(s, owners)
    components = tuple(
        Component(
            effect=effect,
            n_states=count(s.scope_sizes(effect.states)),
            n_actions=count(s.scope_sizes(effect.actions)),
            allowed=_allowed(s, effect, masked[c]),
            kinds=np.array([kinds.index(kind) for kind in local_kinds[c]], dtype=np.int64),
            joint=_joint(s, effect),
            costs=tuple(costs[c]),
        )
        for c, effect in enumerate(owners)
    )
    following = successors(kinds)
    after = [k for k, kind in enumerate(effects.rewards) if kind == "after"]
    return Decomposition(
        structure=s,
        after=_chance_structure(s, after),
        rows=tuple(_representatives(s, scope) for scope in effects.after_scopes),
        after_rewards=tuple(
            (k, _representatives(s, effects.after_reward_scopes[k])) for k in after
        ),
        components=components,
        before=before,
        setups=tuple((k, min(1, s.reward_rows[k] - 1)) for k in setups),
        kinds=kinds,
        layers=layers,
        following=following,
        joined=successors(layers),
        live=_live(components, following),
    )


def _chance_structure(s: Structure, after: Sequence[int]) -> Structure:
    """Return the structure of chance alone, with the reward factors `after`."""
    assert s.effects is not None
    return Structure(
        s.state_sizes,
        (1,),
        s.effects.after_scopes,
        tuple(s.effects.after_reward_scopes[k] for k in after),
        tuple(s.reward_ranges[k] for k in after),
    )


def _counted_kinds(
    s: Structure, owners: Sequence[Effect], cap: LinearCap | None, setup_scope: Sequence[int]
) -> tuple[list[list[Layer]], int]:
    """Return the kinds of the local actions of each component, and the limit on their costs. A cap
    that can never be exceeded is dropped: all local actions then cost 0, and so does the limit."""
    local_kinds = [_kinds(s, effect, cap, setup_scope) for effect in owners]
    most = sum(max(cost for cost, _ in of_component) for of_component in local_kinds)
    if cap is not None and cap.most_units < most:
        return local_kinds, cap.most_units
    return [[(0, done) for _, done in of_component] for of_component in local_kinds], 0


def _sorted_constraints(
    s: Structure, owners: Sequence[Effect]
) -> tuple[list[list[Constraint]], LinearCap | None, str | None]:
    """Return the constraints inside each component, the cap across them, and an obstacle."""
    masked: list[list[Constraint]] = [[] for _ in owners]
    cap: LinearCap | None = None
    for constraint in s.constraints:
        inside = [c for c, e in enumerate(owners) if set(constraint.scope) <= set(e.scope)]
        if inside:
            masked[inside[0]].append(constraint)
        elif not isinstance(constraint, LinearCap):
            return masked, cap, f"{constraint.label()} looks at several components"
        elif cap is None or _same_costs(s, cap, constraint):
            cap = constraint if cap is None or constraint.most_units < cap.most_units else cap
        else:
            return masked, cap, f"{cap.label()} and {constraint.label()} cap different sets"
    return masked, cap, None


def _kinds(
    s: Structure, effect: Effect, cap: LinearCap | None, setup_scope: Sequence[int]
) -> list[Layer]:
    """Return, for each local action, its cost under the cap and "anything done"."""
    costs = {} if cap is None else dict(zip(cap.actions, cap.unit_costs(s.sizes), strict=True))
    values = all_assignments(s.scope_sizes(effect.actions))
    cost, done = np.zeros((2, len(values)), dtype=np.int64)
    for v, column in zip(effect.actions, values.T, strict=True):
        if v in costs:
            cost += costs[v][column]
        if v in setup_scope:
            done |= column != 0
    return [(int(c), int(d)) for c, d in zip(cost, done, strict=True)]


def _same_costs(s: Structure, cap: LinearCap, other: LinearCap) -> bool:
    """Return whether two caps count the same, so that the smaller limit implies the other."""
    return cap.actions == other.actions and all(
        map(np.array_equal, cap.unit_costs(s.sizes), other.unit_costs(s.sizes))
    )


def _plus(layer: Layer, kind: Layer) -> Layer:
    return layer[0] + kind[0], layer[1] | kind[1]


def _reachable(local_kinds: Sequence[Sequence[Layer]], cap: int) -> tuple[Layer, ...]:
    """Return the layers that actions of some components lead to; (0, 0) comes first."""
    layers: set[Layer] = {(0, 0)}
    for kinds in local_kinds:
        layers |= {_plus(layer, kind) for layer in layers for kind in set(kinds)}
        layers = {layer for layer in layers if layer[0] <= cap}
    return tuple(sorted(layers))


def _live(components: Sequence[Component], following: Index) -> NDArray[np.bool_]:
    live = np.zeros((len(components) + 1, following.shape[1]), dtype=np.bool_)
    live[-1, 0] = True
    for c in range(len(components) - 1, -1, -1):
        allowed = components[c].kinds[components[c].allowed.any(axis=0)]
        reached = following[np.unique(allowed)][:, live[c + 1]]
        live[c, reached[reached >= 0]] = True
    return live


def _allowed(s: Structure, effect: Effect, constraints: Sequence[Constraint]) -> NDArray[np.bool_]:
    sizes = s.scope_sizes(effect.scope)
    position = {v: index for index, v in enumerate(effect.scope)}
    allowed = np.ones(count(sizes), dtype=np.bool_)
    for constraint in constraints:
        rows = project(sizes, [position[v] for v in constraint.scope])
        allowed &= ~constraint.forbidden_table(s.sizes)[rows]
    return allowed.reshape(-1, count(s.scope_sizes(effect.actions)))


def _joint(s: Structure, effect: Effect) -> Index:
    steps = strides(s.action_sizes)
    values = all_assignments(s.scope_sizes(effect.actions))
    weights = np.array([steps[v - s.m] for v in effect.actions], dtype=np.int64)
    joint: Index = values @ weights
    return joint


def _costs(
    s: Structure, owners: Sequence[Effect]
) -> tuple[list[list[tuple[int, Index]]], tuple[int, ...]]:
    """Return the costs of each component, and the "before" rewards that span several."""
    assert s.effects is not None
    costs: list[list[tuple[int, Index]]] = [[] for _ in owners]
    before: list[int] = []
    for k, kind in enumerate(s.effects.rewards):
        if kind not in ("cost", "before"):
            continue
        scope = s.reward_scopes[k]
        inside = [c for c, effect in enumerate(owners) if set(scope) <= set(effect.scope)]
        if not inside:
            before.append(k)
            continue
        effect = owners[inside[0]]
        position = {v: index for index, v in enumerate(effect.scope)}
        rows = project(s.scope_sizes(effect.scope), [position[v] for v in scope])
        costs[inside[0]].append((k, rows))
    return costs, tuple(before)


def _representatives(s: Structure, after: Sequence[int]) -> Index:
    """Return, for each y[after], the first row over (s, a) that leads to it; 0 if none does."""
    assert s.effects is not None
    rows = s.effects.after_rows(after, s.sizes)
    return first_rows(rows, count(s.scope_sizes(after)))
