"""Hypothesis strategies for structures, models, optimistic tables, value vectors and policies.

Hypothesis draws the structure piece by piece, so that a failing example shrinks to few variables
and small scopes. The numbers of a table come from one drawn seed, since drawing hundreds of floats
is slow and shrinks badly. Generated on purpose: cyclic scopes, several parents, scopes without the
variable itself, empty scopes, variables with a single value, no reward factor, several action
variables; deterministic, sparse, skewed and tied rows; periodic and multichain models; optionally,
rows that are known to be alike, within factors and between them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fmdp.errors import InvalidModel
from fmdp.model import (
    Alike,
    AtMost,
    Budget,
    Constraint,
    Effect,
    FactoredMDP,
    Forbidden,
    Noise,
    OptimisticTables,
    Structure,
)
from fmdp.model.alike import first_of_class
from fmdp.model.effects import RewardKind

Floats = NDArray[np.float64]
AnyStructure = Structure | st.SearchStrategy[Structure] | None
"""A structure, a strategy for one, or None for `structures()`."""

ROW_KINDS = ("positive", "sparse", "deterministic", "lazy", "skewed", "quarters", "mixed")
"""positive: every probability above 0. sparse: some are 0. deterministic: one is 1. lazy: rows
that stay at the current value if the scope has it (closed sets, several chains). skewed:
positive, down to 1e-6. quarters: multiples of 1/4 (ties). mixed: any of these, by row."""

REWARD_RANGES = ((0.0, 1.0), (-1.0, 2.0), (-5.0, -1.0), (3.0, 3.0))

_SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def sizes(
    draw: st.DrawFn, *, min_variables: int = 1, max_variables: int, max_values: int, max_count: int
) -> tuple[int, ...]:
    """Draw sizes of variables, at least 1 each.

    Parameters
    ----------
    min_variables
        Least number of variables.
    max_variables
        Largest number of variables.
    max_values
        Largest number of values of one variable.
    max_count
        Largest number of joint assignments: the product of the sizes.
    """
    drawn: list[int] = []
    left = max_count
    for _ in range(draw(st.integers(min_variables, max_variables))):
        drawn.append(draw(st.integers(1, min(max_values, left))))
        left //= drawn[-1]
    return tuple(drawn)


@st.composite
def structures(
    draw: st.DrawFn,
    *,
    min_variables: int = 1,
    max_variables: int = 4,
    max_values: int = 5,
    max_states: int = 48,
    max_action_variables: int = 2,
    max_actions: int = 6,
    max_parents: int = 3,
    max_rewards: int = 3,
    alike: bool = False,
) -> Structure:
    """Draw a structure whose scopes are any sets of variables, or a ring of the state variables.

    Parameters
    ----------
    min_variables
        Least number of state variables.
    max_variables
        Largest number of state variables.
    max_values
        Largest number of values of one variable.
    max_states
        Largest number of joint states.
    max_action_variables
        Largest number of action variables; there is at least one.
    max_actions
        Largest number of joint actions.
    max_parents
        Largest number of state variables in a scope.
    max_rewards
        Largest number of reward factors; there may be none.
    alike
        Whether rows may be known to be alike.
    """
    state_sizes = draw(
        sizes(
            min_variables=min_variables,
            max_variables=max_variables,
            max_values=max_values,
            max_count=max_states,
        )
    )
    action_sizes = draw(
        sizes(max_variables=max_action_variables, max_values=max_values, max_count=max_actions)
    )
    m = len(state_sizes)
    parents = st.lists(st.integers(0, m - 1), max_size=max_parents, unique=True)
    acting = st.lists(st.integers(m, m + len(action_sizes) - 1), max_size=2, unique=True)

    def any_scope() -> tuple[int, ...]:
        return tuple(sorted(draw(parents) + draw(acting)))

    if draw(st.booleans()):
        with_itself = draw(st.booleans())
        scopes = [
            tuple(sorted({(i - 1) % m, *([i] if with_itself else [])} | set(draw(acting))))
            for i in range(m)
        ]
    else:
        scopes = [any_scope() for _ in range(m)]
    n_rewards = draw(st.integers(0, max_rewards))
    made = Structure(
        state_sizes=state_sizes,
        action_sizes=action_sizes,
        transition_scopes=tuple(scopes),
        reward_scopes=tuple(any_scope() for _ in range(n_rewards)),
        reward_ranges=tuple(draw(st.sampled_from(REWARD_RANGES)) for _ in range(n_rewards)),
    )
    return replace(made, alike=_alike(draw, made)) if alike else made


def _alike(draw: st.DrawFn, structure: Structure) -> Alike:
    """Draw classes of rows: a few for each kind of factor, shared between factors or not."""
    shared = draw(st.booleans())
    most = draw(st.integers(1, 8))
    rng = np.random.default_rng(draw(_SEEDS))
    known: dict[object, int] = {}

    def classes(rows: Sequence[int], kinds: Sequence[object]) -> tuple[NDArray[np.int64], ...]:
        return tuple(
            np.array(
                [
                    known.setdefault((kind, 0 if shared else factor, number), len(known))
                    for number in rng.integers(most, size=n).tolist()
                ],
                dtype=np.int64,
            )
            for factor, (n, kind) in enumerate(zip(rows, kinds, strict=True))
        )

    return Alike(
        classes(structure.transition_rows, structure.state_sizes),
        classes(structure.reward_rows, structure.reward_ranges),
    )


@st.composite
def constrained(
    draw: st.DrawFn, structure: AnyStructure = None, *, max_constraints: int = 3
) -> Structure:
    """Draw a structure with constraints on its actions; every state keeps an allowed action.

    That action may depend on the state. Constraints are on actions alone, or on one or two state
    variables as well; some are caps.

    Parameters
    ----------
    structure
        The structure, or a strategy for one; None is `structures()`.
    max_constraints
        Largest number of constraints; there is at least one.
    """
    chosen = _structure(draw, structure)
    m, n = chosen.m, len(chosen.action_sizes)
    rng = np.random.default_rng(draw(_SEEDS))
    looked_at = draw(st.integers(0, m - 1))
    # [values of that variable, action variables]: the actions that stay allowed.
    kept = np.stack(
        [rng.integers(size, size=chosen.state_sizes[looked_at]) for size in chosen.action_sizes],
        axis=1,
    )
    if draw(st.booleans()):
        kept[:] = kept[0]
    made: list[Constraint] = []
    for number in range(draw(st.integers(1, max_constraints))):
        acting = sorted(draw(st.sets(st.integers(m, m + n - 1), min_size=1, max_size=2)))
        if draw(st.booleans()):
            idle = kept[0, [v - m for v in acting]]
            at_work = (kept[:, [v - m for v in acting]] != idle).sum(axis=1)
            least = int(at_work.max())
            most = draw(st.integers(least, len(acting)))
            made.append(AtMost(tuple(acting), most, tuple(idle.tolist()), f"cap {number}"))
            continue
        if draw(st.booleans()):
            costs = [draw(_costs(chosen.sizes[v])) for v in acting]
            spent = [
                sum(row[action[v - m]] for v, row in zip(acting, costs, strict=True))
                for action in kept.tolist()
            ]
            limit = max(spent) + draw(st.integers(0, 3))
            made.append(Budget(tuple(acting), limit, tuple(costs), f"budget {number}"))
            continue
        states = sorted(draw(st.sets(st.integers(0, m - 1), max_size=2)))
        scope = (*states, *acting)
        table = rng.random(chosen.scope_sizes(scope)) < draw(st.sampled_from((0.3, 0.7, 1.0)))
        for value, action in enumerate(kept):
            place = tuple(
                int(action[v - m]) if v >= m else value if v == looked_at else slice(None)
                for v in scope
            )
            table[place] = False
        made.append(Forbidden(scope, table.reshape(-1), f"rule {number}"))
    return replace(chosen, constraints=tuple(made))


@st.composite
def models(
    draw: st.DrawFn, structure: AnyStructure = None, *, rows: Sequence[str] = ROW_KINDS
) -> FactoredMDP:
    """Draw a model over a structure.

    Parameters
    ----------
    structure
        The structure, or a strategy for one; None is `structures()`.
    rows
        Kinds of rows to choose from, out of `ROW_KINDS`: "positive", "sparse", "deterministic",
        "lazy", "skewed", "quarters", "mixed".
    """
    chosen = _structure(draw, structure)
    kind = draw(st.sampled_from(tuple(rows)))
    rewards_kind = draw(st.sampled_from(("uniform", "halves", "ends")))
    rng = np.random.default_rng(draw(_SEEDS))
    transitions = [_transition_table(rng, chosen, i, kind) for i in range(chosen.m)]
    rewards = [
        _means(rng, n_rows, bounds, rewards_kind)
        for n_rows, bounds in zip(chosen.reward_rows, chosen.reward_ranges, strict=True)
    ]
    laws = (Noise(), Noise("bernoulli"), Noise("gaussian", 0.5))
    noise = [draw(st.sampled_from(laws)) for _ in range(chosen.l)]
    if chosen.alike is not None:
        _make_alike(chosen, transitions, rewards)
        noise = noise[:1] * chosen.l  # factors that share a class have one law
    start = [draw(st.integers(0, size - 1)) for size in chosen.state_sizes]
    return FactoredMDP(chosen, transitions, rewards, noise, start, f"generated, {kind} rows")


@st.composite
def effect_models(
    draw: st.DrawFn, *, constrained: bool = True, max_states: int = 36, max_actions: int = 12
) -> FactoredMDP:
    """Draw a decomposable model whose actions act first (`FactoredMDP.from_effects`).

    It has components of several variables, adjacent or not; state variables that no action changes;
    actions without effect; rewards of all four kinds.

    Parameters
    ----------
    constrained
        Whether there may be masks inside components and a cap across them.
    max_states
        Largest number of joint states.
    max_actions
        Largest number of joint actions.
    """
    state_sizes = draw(sizes(min_variables=1, max_variables=4, max_values=4, max_count=max_states))
    m = len(state_sizes)
    n_components = draw(st.integers(1, min(3, m)))
    owner = draw(st.permutations([*range(n_components), *[-1] * (m - n_components)]))
    owner = [draw(st.integers(-1, n_components - 1)) if c < 0 else c for c in owner]
    action_sizes = draw(
        sizes(
            min_variables=n_components,
            max_variables=n_components + 1,
            max_values=3,
            max_count=max_actions,
        )
    )
    component_of_action = [*range(n_components)]
    component_of_action += [
        draw(st.integers(0, n_components - 1)) for _ in action_sizes[n_components:]
    ]
    component_of_action = draw(st.permutations(component_of_action))
    every = state_sizes + action_sizes
    rng = np.random.default_rng(draw(_SEEDS))
    effects = []
    for c in range(n_components):
        states = tuple(i for i in range(m) if owner[i] == c)
        actions = tuple(m + j for j, component in enumerate(component_of_action) if component == c)
        effects.append(_effect(draw, rng, every, states, actions))
    parents = st.lists(st.integers(0, m - 1), max_size=3, unique=True).map(sorted)
    kind = draw(st.sampled_from(ROW_KINDS))
    transitions = []
    for size in state_sizes:
        scope = draw(parents)
        rows = [_row(rng, size, kind if kind != "mixed" else "sparse", None)
                for _ in range(_count(every, scope))]  # fmt: skip
        transitions.append((scope, np.array(rows)))
    means_kind = draw(st.sampled_from(("uniform", "halves", "ends")))
    rewards: list[tuple[Any, Any, Any]] = []
    for reward in draw(st.lists(st.sampled_from(get_args(RewardKind)), max_size=4)):
        scope = draw(parents) if reward in ("before", "after") else []
        if reward == "cost":
            scope = sorted(draw(st.sets(st.sampled_from(draw(st.sampled_from(effects)).scope))))
        n_rows = 2 if reward == "setup" else _count(every, scope)
        bounds = draw(st.sampled_from(REWARD_RANGES))
        rewards.append((reward, scope, _means(rng, n_rows, bounds, means_kind)))
    limits = _constraints(draw, rng, effects, every, m) if constrained else ()
    # If some state has no allowed action, drop the masks, and then the cap.
    for kept in (limits, limits[:1], ()):
        try:
            return FactoredMDP.from_effects(
                state_sizes,
                action_sizes,
                effects,
                transitions,
                rewards,
                name=f"generated effects, {kind} rows",
                constraints=kept,
            )
        except InvalidModel:
            if not kept:
                raise
    raise AssertionError


def _effect(
    draw: st.DrawFn,
    rng: np.random.Generator,
    sizes: Sequence[int],
    states: tuple[int, ...],
    actions: tuple[int, ...],
) -> Effect:
    n_states, n_actions = (_count(sizes, scope) for scope in (states, actions))
    outcome = rng.integers(n_states, size=(n_states, n_actions))
    if draw(st.booleans()):  # the first action has no effect
        outcome[:, 0] = np.arange(n_states)
    return Effect(states, actions, outcome.reshape(-1))


def _costs(size: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Return a strategy for the costs of the values of one action variable."""
    return st.tuples(*[st.integers(0, 3)] * size)


def _constraints(
    draw: st.DrawFn,
    rng: np.random.Generator,
    effects: Sequence[Effect],
    every: Sequence[int],
    m: int,
) -> tuple[Constraint, ...]:
    """Draw at most one cap, which comes first, and masks inside components."""
    constraints: list[Constraint] = []
    kind = draw(st.sampled_from(("none", "cap", "budget")))
    if kind != "none":
        actions = sorted(draw(st.sets(st.integers(m, len(every) - 1), min_size=1)))
    if kind == "cap":
        idle = [draw(st.integers(0, every[v] - 1)) for v in actions]
        most = draw(st.integers(0, len(actions)))
        constraints.append(AtMost(tuple(actions), most, tuple(idle)))
    elif kind == "budget":
        costs = [draw(_costs(every[v])) for v in actions]
        limit = sum(map(min, costs)) + draw(st.integers(0, 4))
        constraints.append(Budget(tuple(actions), limit, tuple(costs)))
    for effect in effects:
        if draw(st.booleans()):
            variables = draw(st.sets(st.sampled_from(effect.scope)))
            scope = tuple(sorted(variables | {draw(st.sampled_from(effect.actions))}))
            constraints.append(Forbidden(scope, rng.random(_count(every, scope)) < 0.3))
    return tuple(constraints)


def _count(sizes: Sequence[int], scope: Sequence[int]) -> int:
    return int(np.prod([sizes[v] for v in scope], dtype=np.int64))


@st.composite
def optimistic_pairs(
    draw: st.DrawFn, structure: AnyStructure = None
) -> tuple[OptimisticTables, FactoredMDP]:
    """Draw optimistic tables and a model in their set: rows above p-minus, rewards not above
    theirs.

    The free mass of a row is nothing, everything (a row without visits) or in between.

    Parameters
    ----------
    structure
        The structure, or a strategy for one; None is `structures()`.
    """
    truth = draw(models(structure))
    chosen = truth.structure
    rng = np.random.default_rng(draw(_SEEDS))
    lower, free = [], []
    for table in truth.transitions:
        kept = rng.choice([0.0, 1.0, 0.5, 0.9, -1.0], size=(len(table), 1))
        shares = np.where(kept >= 0, np.broadcast_to(kept, table.shape), rng.random(table.shape))
        lower.append(table * shares)
        free.append(np.clip(1.0 - lower[-1].sum(axis=1), 0.0, None))
    rewards = []
    for means, (_, hi) in zip(truth.rewards, chosen.reward_ranges, strict=True):
        shares = rng.choice([0.0, 1.0, -1.0], size=len(means))
        shares = np.where(shares >= 0, shares, rng.random(len(means)))
        rewards.append(np.minimum(means + shares * (hi - means), hi))
    if chosen.alike is not None:
        _make_alike(chosen, lower, rewards)
        free = [np.clip(1.0 - table.sum(axis=1), 0.0, None) for table in lower]
    return OptimisticTables(chosen, tuple(lower), tuple(free), tuple(rewards)), truth


def optimistic_tables(structure: AnyStructure = None) -> st.SearchStrategy[OptimisticTables]:
    """Draw optimistic tables alone.

    Parameters
    ----------
    structure
        The structure, or a strategy for one; None is `structures()`.
    """
    return optimistic_pairs(structure).map(lambda pair: pair[0])


@st.composite
def box_pairs(
    draw: st.DrawFn, structure: AnyStructure = None
) -> tuple[OptimisticTables, FactoredMDP]:
    """Draw tables with upper ends and a model in their set; ends may be 0, 1 or the model's own.

    Parameters
    ----------
    structure
        The structure, or a strategy for one; None is `structures()`.
    """
    truth = draw(models(structure))
    rng = np.random.default_rng(draw(_SEEDS))
    lower, free, upper = [], [], []
    for table in truth.transitions:
        below, above = (_shares(rng, table.shape) for _ in range(2))
        lower.append(table * below)
        free.append(np.clip(1.0 - lower[-1].sum(axis=1), 0.0, None))
        upper.append(np.clip(table + above * (1.0 - table), lower[-1], 1.0))
    rewards = []
    for means, (lo, _) in zip(truth.rewards, truth.structure.reward_ranges, strict=True):
        rewards.append(np.maximum(means - _shares(rng, means.shape) * (means - lo), lo))
    tables = OptimisticTables(
        truth.structure, tuple(lower), tuple(free), tuple(rewards), tuple(upper)
    )
    return tables, truth


@st.composite
def values(draw: st.DrawFn, structure: Structure, *, additive: bool = False) -> Floats:
    """Draw a vector over the joint states [S]: any numbers, whole numbers (ties), or one peak.

    Parameters
    ----------
    structure
        The structure with the states.
    additive
        Whether it is a sum of functions of single variables.
    """
    rng = np.random.default_rng(draw(_SEEDS))
    scale = draw(st.sampled_from((1.0, 100.0)))
    kind = draw(st.sampled_from(("any", "whole", "peak")))

    def vector(n: int) -> Floats:
        if kind == "peak":
            return scale * _unit(n, rng.integers(n))
        numbers = scale * rng.normal(size=n)
        return np.round(numbers) if kind == "whole" else numbers

    if not additive:
        return vector(structure.n_states)
    total = np.zeros(1)
    for size in structure.state_sizes:
        total = np.add.outer(total, vector(size)).ravel()
    return total


def policies(structure: Structure) -> st.SearchStrategy[NDArray[np.int64]]:
    """Draw an allowed joint action index for every joint state: [S].

    Parameters
    ----------
    structure
        The structure with the states and actions.
    """

    def policy(seed: int) -> NDArray[np.int64]:
        drawn = np.random.default_rng(seed).integers(structure.n_actions, size=structure.n_states)
        pairs = np.arange(structure.n_states) * structure.n_actions + drawn
        played: NDArray[np.int64] = structure.allowed_pairs()[pairs] % structure.n_actions
        return played

    return _SEEDS.map(policy)


def _shares(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Draw 0, 1, 0.1 or a uniform number for every entry."""
    shares = rng.choice([0.0, 1.0, 0.1, -1.0], size=shape)
    mixed: Floats = np.where(shares >= 0, shares, rng.random(shape))
    return mixed


def _structure(draw: st.DrawFn, structure: AnyStructure) -> Structure:
    if isinstance(structure, Structure):
        return structure
    return draw(structures() if structure is None else structure)


def _make_alike(structure: Structure, transitions: list[Floats], rewards: list[Floats]) -> None:
    """Replace every row by the first of its class."""
    assert structure.alike is not None
    for tables, classes in (
        (transitions, structure.alike.transitions),
        (rewards, structure.alike.rewards),
    ):
        rows = [row for table in tables for row in table]
        source = first_of_class(classes).tolist()
        ends = np.cumsum([0, *map(len, tables)])
        for f, (start, end) in enumerate(itertools.pairwise(ends.tolist())):
            tables[f] = np.array([rows[source[at]] for at in range(start, end)], dtype=np.float64)


def _transition_table(rng: np.random.Generator, structure: Structure, i: int, kind: str) -> Floats:
    scope, size = structure.transition_scopes[i], structure.state_sizes[i]
    table = np.empty((structure.transition_rows[i], size))
    for row in range(len(table)):
        row_kind = ROW_KINDS[rng.integers(len(ROW_KINDS) - 1)] if kind == "mixed" else kind
        current: int | None = None
        if row_kind == "lazy" and i in scope:
            behind = [structure.sizes[v] for v in scope[scope.index(i) + 1 :]]
            current = row // int(np.prod(behind, dtype=np.int64)) % size
        table[row] = _row(rng, size, row_kind, current)
    return table


def _row(rng: np.random.Generator, size: int, kind: str, current: int | None) -> Floats:
    if kind == "deterministic" or (kind == "lazy" and current is None):
        return _unit(size, rng.integers(size))
    if kind == "lazy" and current is not None:
        stay = _unit(size, current)
        return stay if rng.random() < 0.7 else (stay + _unit(size, rng.integers(size))) / 2
    if kind == "quarters":
        return rng.multinomial(4, np.full(size, 1 / size)) / 4
    if kind == "skewed":
        weights = 10.0 ** rng.uniform(-6, 0, size=size)
    else:
        weights = rng.exponential(size=size) + 1e-3
    if kind == "sparse":
        weights *= rng.random(size) < 0.5
        if not weights.any():
            weights[rng.integers(size)] = 1.0
    normalised: Floats = weights / weights.sum()
    return normalised


def _unit(size: int, value: int | np.integer[Any]) -> Floats:
    unit = np.zeros(size)
    unit[value] = 1.0
    return unit


def _means(rng: np.random.Generator, n_rows: int, bounds: tuple[float, float], kind: str) -> Floats:
    lo, hi = bounds
    shares = rng.random(n_rows)
    if kind != "uniform":
        shares = np.round(2 * shares) / 2 if kind == "halves" else np.round(shares)
    means: Floats = np.clip(lo + shares * (hi - lo), lo, hi)
    return means
