"""What of a model with effects can be maximised one component at a time, and how.

    max over allowed a of  sum_c cost_c(s_c, a_c) + setup(is anything done) + U(f(s, a))

splits into one maximum a component where what is allowed does: a constraint inside one component is
a mask on its own actions, and one cap on how many action variables are at work is a number that is
carried along, as is whether anything is done at all for set-up rewards. The two together are the
`layers` below: pairs (how many are at work, is anything done) that some actions lead to. Anything
else (constraints across components, caps on different sets) is said in words, and the joint actions
are enumerated.

Only arrays of the size of the tables are made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fmdp.model import AtMost, FactoredMDP, OptimisticTables, Structure
from fmdp.model.constraints import Constraint
from fmdp.model.effects import Effect, first_rows
from fmdp.model.spaces import all_assignments, count, project, strides

Index = NDArray[np.int64]
Layer = tuple[int, int]
"""How many action variables under the cap are at work; whether anything is done (0 or 1)."""


@dataclass(frozen=True, eq=False)
class Component:
    """One component: which local actions are allowed in which local states, and what they do."""

    effect: Effect
    n_states: int
    n_actions: int
    allowed: NDArray[np.bool_]  # [n_states, n_actions]
    kinds: Index
    """[n_actions]: which of `Decomposition.kinds` a local action is."""
    joint: Index
    """[n_actions]: what a local action adds to the number of the joint action."""
    costs: tuple[tuple[int, Index], ...]
    """Reward factors that it pays alone, and for each local (state, action) the row of the
    factor's table: [n_states * n_actions]."""


@dataclass(frozen=True, eq=False)
class Decomposition:
    """A model with effects as chance after the action, and maxima one component at a time."""

    structure: Structure
    after: Structure
    """Of chance alone: the same states, one action of one value, the factors over y."""
    rows: tuple[Index, ...]
    """For each row of a transition factor of `after` a row of the structure's that is equal."""
    after_rewards: tuple[tuple[int, Index], ...]
    """The same for its reward factors, with their number in the structure."""
    components: tuple[Component, ...]
    """In the order of their first action variables."""
    before: tuple[int, ...]
    """Reward factors of the state before the action that look beyond one component."""
    setups: tuple[tuple[int, int], ...]
    """Set-up reward factors, and a row of each in which something is done (0 where none is)."""
    kinds: tuple[Layer, ...]
    layers: tuple[Layer, ...]
    following: Index
    """[kinds, layers]: the layer after one more action of the kind; -1 beyond the cap."""
    joined: Index
    """[layers, layers]: of two sets of components together; -1 beyond the cap."""
    live: NDArray[np.bool_]
    """[components + 1, layers]: which layers there are when components c, c + 1, ... are done."""

    @property
    def n_layers(self) -> int:
        return len(self.layers)

    def describes(self, tables: FactoredMDP | OptimisticTables) -> bool:
        """Whether the tables depend on (s, a) as the effects say.

        A model's do, which is checked when it is made; intervals need not, where some are said for
        single rows.
        """
        if isinstance(tables, FactoredMDP):
            return True
        effects, sizes = self.structure.effects, self.structure.sizes
        assert effects is not None
        others = (tables.upper, tables.centre, tables.radius)
        parts = [tables.lower, tables.free, *(own for own in others if own is not None)]
        factors = [
            (own[i], self.rows[i], effects.after_scopes[i])
            for own in parts
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
        return same and all(bool((own == own[:1]).all()) for own in setups)


def decompose(structure: Structure) -> Decomposition | None:
    """The parts of a structure with effects; None where there are none, or enumeration is needed.

    `enumeration_reason` says why.
    """
    found = _decomposed(structure) if structure.effects is not None else None
    return found if isinstance(found, Decomposition) else None


def enumeration_reason(structure: Structure) -> str | None:
    """Why the joint actions of a structure with effects are enumerated; None if they are not."""
    found = _decomposed(structure) if structure.effects is not None else None
    return found if isinstance(found, str) else None


@lru_cache(maxsize=16)
def _decomposed(s: Structure) -> Decomposition | str:
    effects = s.effects
    assert effects is not None
    owners = sorted(effects.components, key=lambda effect: effect.actions[0])
    masked, cap, reason = _sorted_constraints(s, owners)
    if reason is not None:
        return reason
    setup_scopes = {s.reward_scopes[k] for k, kind in enumerate(effects.rewards) if kind == "setup"}
    if len(setup_scopes) > 1:
        return "set-up rewards look at different action variables"
    setup_scope = setup_scopes.pop() if setup_scopes else ()
    local_kinds = [_kinds(s, effect, cap, setup_scope) for effect in owners]
    most = sum(max(busy for busy, _ in own) for own in local_kinds)
    cap_at = most if cap is None else min(cap.most, most)
    if cap_at == most:  # never reached: nothing is to be counted
        local_kinds = [[(0, done) for _, done in own] for own in local_kinds]
        cap_at = 0
    kinds = tuple(sorted({kind for own in local_kinds for kind in own}))
    layers = _reachable(local_kinds, cap_at)
    place = {layer: number for number, layer in enumerate(layers)}
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
    following = np.array(
        [[place.get(_plus(layer, kind), -1) for layer in layers] for kind in kinds],
        dtype=np.int64,
    )
    joined = np.array(
        [[place.get(_plus(one, other), -1) for other in layers] for one in layers], dtype=np.int64
    )
    after = [k for k, kind in enumerate(effects.rewards) if kind == "after"]
    return Decomposition(
        structure=s,
        after=Structure(
            s.state_sizes,
            (1,),
            effects.after_scopes,
            tuple(effects.after_reward_scopes[k] for k in after),
            tuple(s.reward_ranges[k] for k in after),
        ),
        rows=tuple(_representatives(s, scope) for scope in effects.after_scopes),
        after_rewards=tuple(
            (k, _representatives(s, effects.after_reward_scopes[k])) for k in after
        ),
        components=components,
        before=before,
        setups=tuple(
            (k, min(1, s.reward_rows[k] - 1))
            for k, kind in enumerate(effects.rewards)
            if kind == "setup"
        ),
        kinds=kinds,
        layers=layers,
        following=following,
        joined=joined,
        live=_live(components, following),
    )


def _sorted_constraints(
    s: Structure, owners: Sequence[Effect]
) -> tuple[list[list[Constraint]], AtMost | None, str | None]:
    """The constraints inside each component, the one cap across them, and what is in the way."""
    masked: list[list[Constraint]] = [[] for _ in owners]
    cap: AtMost | None = None
    for constraint in s.constraints:
        inside = [c for c, e in enumerate(owners) if set(constraint.scope) <= set(e.scope)]
        if inside:
            masked[inside[0]].append(constraint)
        elif not isinstance(constraint, AtMost):
            return masked, cap, f"{constraint.label()} looks at several components"
        elif cap is None or (cap.actions, cap.idle) == (constraint.actions, constraint.idle):
            cap = constraint if cap is None or constraint.most < cap.most else cap
        else:
            return masked, cap, f"{cap.label()} and {constraint.label()} cap different sets"
    return masked, cap, None


def _kinds(
    s: Structure, effect: Effect, cap: AtMost | None, setup_scope: Sequence[int]
) -> list[Layer]:
    """For each local action: how many are at work under the cap, and is anything done."""
    idle = {} if cap is None else dict(zip(cap.actions, cap.idle, strict=True))
    values = all_assignments(s.scope_sizes(effect.actions))
    busy, done = np.zeros((2, len(values)), dtype=np.int64)
    for v, own in zip(effect.actions, values.T, strict=True):
        if v in idle:
            busy += own != idle[v]
        if v in setup_scope:
            done |= own != 0
    return [(int(b), int(d)) for b, d in zip(busy, done, strict=True)]


def _plus(layer: Layer, kind: Layer) -> Layer:
    return layer[0] + kind[0], layer[1] | kind[1]


def _reachable(local_kinds: Sequence[Sequence[Layer]], cap: int) -> tuple[Layer, ...]:
    """The layers that the actions of some of the components lead to; nothing done is the first."""
    found: set[Layer] = {(0, 0)}
    for own in local_kinds:
        found |= {_plus(layer, kind) for layer in found for kind in set(own)}
        found = {layer for layer in found if layer[0] <= cap}
    return tuple(sorted(found))


def _live(components: Sequence[Component], following: Index) -> NDArray[np.bool_]:
    live = np.zeros((len(components) + 1, following.shape[1]), dtype=np.bool_)
    live[-1, 0] = True
    for c in range(len(components) - 1, -1, -1):
        allowed = components[c].kinds[components[c].allowed.any(axis=0)]
        reached = following[np.unique(allowed)][:, live[c + 1]]
        live[c, reached[reached >= 0]] = True
    return live


def _allowed(s: Structure, effect: Effect, constraints: Sequence[Constraint]) -> NDArray[np.bool_]:
    own = s.scope_sizes(effect.scope)
    place = {v: index for index, v in enumerate(effect.scope)}
    allowed = np.ones(count(own), dtype=np.bool_)
    for constraint in constraints:
        rows = project(own, [place[v] for v in constraint.scope])
        allowed &= ~constraint.forbidden_table(s.sizes)[rows]
    return allowed.reshape(-1, count(s.scope_sizes(effect.actions)))


def _joint(s: Structure, effect: Effect) -> Index:
    steps = strides(s.action_sizes)
    values = all_assignments(s.scope_sizes(effect.actions))
    weights = np.array([steps[v - s.m] for v in effect.actions], dtype=np.int64)
    found: Index = values @ weights
    return found


def _costs(
    s: Structure, owners: Sequence[Effect]
) -> tuple[list[list[tuple[int, Index]]], tuple[int, ...]]:
    """What each component pays alone, and the rewards before the action that none does."""
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
        place = {v: index for index, v in enumerate(effect.scope)}
        rows = project(s.scope_sizes(effect.scope), [place[v] for v in scope])
        costs[inside[0]].append((k, rows))
    return costs, tuple(before)


def _representatives(s: Structure, after: Sequence[int]) -> Index:
    """For each y[after] a row over (s, a) that leads to it; any row where none does."""
    assert s.effects is not None
    rows = s.effects.after_rows(after, s.sizes)
    return first_rows(rows, count(s.scope_sizes(after)))
