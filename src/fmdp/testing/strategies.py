"""Hypothesis strategies for structures, models, optimistic tables, value vectors and policies.

The structure is drawn by Hypothesis piece by piece, so that a failing example shrinks to few
variables and small scopes; the numbers of a table come from one drawn seed, since drawing
hundreds of floats one by one is slow and shrinks badly. What is generated on purpose: cyclic
scopes, several parents, scopes that miss the variable itself, empty scopes, variables with a
single value, no reward factor, several action variables; deterministic, sparse, skewed and tied
rows; periodic and multichain models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from fmdp.model import FactoredMDP, Noise, OptimisticTables, Structure

Floats = NDArray[np.float64]

ROW_KINDS = ("positive", "sparse", "deterministic", "lazy", "skewed", "quarters", "mixed")
"""positive: every probability above 0. sparse: some are 0. deterministic: one is 1.
lazy: rows that stay at the current value where the scope holds it (closed sets, several chains).
skewed: positive, down to 1e-6. quarters: multiples of 1/4 (ties). mixed: any of these, by row."""

REWARD_RANGES = ((0.0, 1.0), (-1.0, 2.0), (-5.0, -1.0), (3.0, 3.0))

_SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def sizes(
    draw: st.DrawFn, *, min_variables: int = 1, max_variables: int, max_values: int, max_count: int
) -> tuple[int, ...]:
    """Sizes of variables, at least 1 each.

    Parameters
    ----------
    min_variables
        Least number of variables.
    max_variables
        Most variables.
    max_values
        Most values of one variable.
    max_count
        Most joint assignments: the product of the sizes.
    """
    drawn: list[int] = []
    room = max_count
    for _ in range(draw(st.integers(min_variables, max_variables))):
        drawn.append(draw(st.integers(1, min(max_values, room))))
        room //= drawn[-1]
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
) -> Structure:
    """A structure whose scopes are any sets of variables, or a ring of the state variables.

    Parameters
    ----------
    min_variables
        Least number of state variables.
    max_variables
        Most state variables.
    max_values
        Most values of one variable.
    max_states
        Most joint states.
    max_action_variables
        Most action variables; there is at least one.
    max_actions
        Most joint actions.
    max_parents
        Most state variables in a scope.
    max_rewards
        Most reward factors; there may be none.
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
    return Structure(
        state_sizes=state_sizes,
        action_sizes=action_sizes,
        transition_scopes=tuple(scopes),
        reward_scopes=tuple(any_scope() for _ in range(n_rewards)),
        reward_ranges=tuple(draw(st.sampled_from(REWARD_RANGES)) for _ in range(n_rewards)),
    )


@st.composite
def models(
    draw: st.DrawFn,
    structure: Structure | st.SearchStrategy[Structure] | None = None,
    *,
    rows: Sequence[str] = ROW_KINDS,
) -> FactoredMDP:
    """A model over a structure.

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
    start = [draw(st.integers(0, size - 1)) for size in chosen.state_sizes]
    return FactoredMDP(chosen, transitions, rewards, noise, start, f"generated, {kind} rows")


@st.composite
def optimistic_pairs(
    draw: st.DrawFn, structure: Structure | st.SearchStrategy[Structure] | None = None
) -> tuple[OptimisticTables, FactoredMDP]:
    """Optimistic tables and a model in their set: rows above p-minus, rewards not above theirs.

    The free mass of a row is nothing, everything (a row never visited) or in between.

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
    return OptimisticTables(chosen, tuple(lower), tuple(free), tuple(rewards)), truth


def optimistic_tables(
    structure: Structure | st.SearchStrategy[Structure] | None = None,
) -> st.SearchStrategy[OptimisticTables]:
    """Optimistic tables alone.

    Parameters
    ----------
    structure
        The structure, or a strategy for one; None is `structures()`.
    """
    return optimistic_pairs(structure).map(lambda pair: pair[0])


@st.composite
def values(draw: st.DrawFn, structure: Structure, *, additive: bool = False) -> Floats:
    """A vector over the joint states [S]: any numbers, whole numbers (ties), or one peak.

    Parameters
    ----------
    structure
        Whose states they are over.
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
    """One joint action index for every joint state: [S].

    Parameters
    ----------
    structure
        Whose states and actions they are.
    """
    return _SEEDS.map(
        lambda seed: np.random.default_rng(seed).integers(
            structure.n_actions, size=structure.n_states
        )
    )


def _structure(
    draw: st.DrawFn, structure: Structure | st.SearchStrategy[Structure] | None
) -> Structure:
    if isinstance(structure, Structure):
        return structure
    return draw(structures() if structure is None else structure)


def _transition_table(rng: np.random.Generator, structure: Structure, i: int, kind: str) -> Floats:
    scope, size = structure.transition_scopes[i], structure.state_sizes[i]
    table = np.empty((structure.transition_rows[i], size))
    for row in range(len(table)):
        own = ROW_KINDS[rng.integers(len(ROW_KINDS) - 1)] if kind == "mixed" else kind
        current: int | None = None
        if own == "lazy" and i in scope:
            behind = [structure.sizes[v] for v in scope[scope.index(i) + 1 :]]
            current = row // int(np.prod(behind, dtype=np.int64)) % size
        table[row] = _row(rng, size, own, current)
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
