"""Models whose actions act first, from tables over the state after them (`from_effects`).

    y = f(s, a),   P(s' | s, a) = prod_i P_i(s'_i | y[Z_i]),
    R(s, a) = sum of before_k(s) + after_k(y) + cost_k(s_c, a_c) + setup_k(is anything done)

The tables over y become tables over (s, a) by one gather each. Rows of equal y are put into one
class of alike rows (learners learn P(. | y)), and `Structure.effects` declares it to the planners.
Full tables above TABLE_LIMIT_BYTES are refused before they are made. An "after" reward is over the
states and actions of all components in its scope; a reward that depends on many components is
cheaper as a function of the state before the action, or of a derived count of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.aggregates import with_derived
from fmdp.model.alike import Alike
from fmdp.model.builder import (
    Contents,
    contents_from_tables,
    group_numbers,
    refuse_wrong_number,
    with_rewards,
)
from fmdp.model.constraints import Constraint
from fmdp.model.effects import Effect, Effects, RewardKind, check_components
from fmdp.model.naming import Assignment
from fmdp.model.noise import Noise
from fmdp.model.scopes import scope_numbers
from fmdp.model.spaces import FloatArray, IndexArray, array_of, count, items, shown
from fmdp.model.structure import Structure
from fmdp.model.tables import (
    GivenFactor,
    pairs_of,
    parts_of,
    sorted_factor,
    table_rows,
    transition_table,
)

TABLE_LIMIT_BYTES = 1 << 30
"""Largest total size of the tables over (s, a)."""


def contents_from_effects(
    variables: Structure,
    effects: Sequence[Effect | tuple[Sequence[int], Sequence[int], npt.ArrayLike]],
    transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
    rewards: Sequence[tuple[RewardKind, Sequence[int | str], npt.ArrayLike]],
    *,
    reward_ranges: Sequence[tuple[float, float]] = (),
    reward_names: Sequence[str] = (),
    groups: Sequence[Sequence[int | str]] = (),
    noise: Noise | Sequence[Noise] | None = None,
    initial_state: Assignment | None = None,
    name: str = "",
    alike: Alike | None = None,
    constraints: Sequence[Constraint] = (),
    derived: Mapping[str, Any] | None = None,
) -> Contents:
    """Check the arguments of `FactoredMDP.from_effects` and write out the tables over (s, a)."""
    if derived is not None:
        variables = with_derived(variables, derived)
    triples = [
        parts_of(reward, f"reward {k}", "kind, scope, table")
        for k, reward in enumerate(items(rewards, "the rewards"))
    ]
    components = [_effect(given, index) for index, given in enumerate(items(effects, "effects"))]
    bare = with_rewards(variables, len(triples), reward_ranges, reward_names)
    pairs = pairs_of(transitions, "transition factor")
    refuse_wrong_number(pairs, bare)
    # Checked in the given order, so that a message names the row as the caller counts.
    laws = []
    for i, (scope, table) in enumerate(pairs):
        numbers = scope_numbers(bare, scope, bare.transition_label(i))
        laws.append(sorted_factor(bare, numbers, transition_table(bare, i, numbers, table)))
    means = [_reward(bare, k, *triple) for k, triple in enumerate(triples)]
    full = _full_tables(bare, components, laws, means, alike)
    given_ranges = len(items(reward_ranges, "reward ranges")) > 0
    structure = bare.with_factors(
        full.transition_scopes,
        full.reward_scopes,
        bare.reward_ranges if given_ranges else [_range_of(factor.table) for _, factor in means],
        bare.reward_names,
        group_numbers(bare, groups),
        full.alike,
        constraints,
        full.effects,
    )
    return contents_from_tables(
        structure, full.transitions, full.rewards, noise, initial_state, name, None
    )


def _reward(
    variables: Structure, k: int, given_kind: object, scope: Any, table: Any
) -> tuple[RewardKind, GivenFactor]:
    label = variables.reward_label(k)
    kind = _kind(given_kind, label)
    numbers = scope_numbers(variables, scope, label)
    bare = kind == "setup" and not numbers
    if kind == "setup" and (
        any(v < len(variables.sizes) for v in numbers) or (bare and np.shape(table) != (2,))
    ):
        raise InvalidModel(
            f"{label}: a set-up reward has an empty scope and two means, for nothing and "
            f"for something done, or derived variables alone; got scope {shown(scope)} and shape "
            f"{np.shape(table)}"
        )
    rows = table_rows(variables, numbers, table, (2,) if bare else (), label)
    factor = sorted_factor(variables, numbers, rows)
    return kind, factor._replace(table=factor.table.reshape(-1))


class _FullTables(NamedTuple):
    """Scopes and tables over (s, a)."""

    effects: Effects
    alike: Alike
    transition_scopes: tuple[tuple[int, ...], ...]
    reward_scopes: tuple[tuple[int, ...], ...]
    transitions: list[FloatArray]
    rewards: list[FloatArray]


def _effect(given: object, index: int) -> Effect:
    """Return an Effect, made from (states, actions, outcome) if necessary."""
    if isinstance(given, Effect):
        return given
    states, actions, outcome = parts_of(given, f"effect {index}", "states, actions, outcome")
    return Effect(states, actions, array_of(outcome).reshape(-1))


def _kind(kind: object, label: str) -> RewardKind:
    kinds = get_args(RewardKind)
    if not isinstance(kind, str) or kind not in kinds:
        hint = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
        raise InvalidModel(
            f"{label} is a function of {shown(kind)}; must be one of {', '.join(kinds)}{hint}"
        )
    return kind  # type: ignore[return-value]


def _full_tables(
    variables: Structure,
    components: Sequence[Effect],
    transitions: Sequence[GivenFactor],
    rewards: Sequence[tuple[RewardKind, GivenFactor]],
    alike: Alike | None,
) -> _FullTables:
    """Return tables over (s, a) from tables over y; `alike` has classes of the given rows."""
    sizes, m = variables.sizes, variables.m
    effects = Effects(
        tuple(components),
        tuple(factor.scope for factor in transitions),
        tuple(kind for kind, _ in rewards),
        tuple(factor.scope if kind == "after" else () for kind, factor in rewards),
    )
    check_components(effects, m, sizes, variables.names)
    transition_scopes = tuple(effects.full_scope(factor.scope) for factor in transitions)
    reward_scopes = tuple(_reward_scope(effects, kind, factor) for kind, factor in rewards)
    _refuse_if_too_large(variables, transition_scopes, reward_scopes)
    factors = [*transitions, *(factor for _, factor in rewards)]
    classes = _given_classes(alike, factors, m)
    sources = [effects.after_rows(factor.scope, sizes) for factor in transitions]
    sources += [_source(effects, kind, factor, sizes) for kind, factor in rewards]
    full_classes = [numbers[rows] for numbers, rows in zip(classes, sources, strict=True)]
    tables = [factor.table[rows] for factor, rows in zip(factors, sources, strict=True)]
    return _FullTables(
        effects,
        Alike(tuple(full_classes[:m]), tuple(full_classes[m:])),
        transition_scopes,
        reward_scopes,
        tables[:m],
        tables[m:],
    )


def _setup_scope(effects: Effects) -> tuple[int, ...]:
    """Return all action variables."""
    return tuple(sorted({v for effect in effects.components for v in effect.actions}))


def _reward_scope(effects: Effects, kind: RewardKind, factor: GivenFactor) -> tuple[int, ...]:
    if kind == "after":
        return effects.full_scope(factor.scope)
    return _setup_scope(effects) if kind == "setup" and not factor.scope else factor.scope


def _source(
    effects: Effects, kind: RewardKind, factor: GivenFactor, sizes: Sequence[int]
) -> IndexArray:
    """Return for every row of the full table the row of the given one."""
    if kind == "after":
        return effects.after_rows(factor.scope, sizes)
    if kind == "setup" and not factor.scope:
        rows = np.ones(count([sizes[v] for v in _setup_scope(effects)]), dtype=np.int64)
        rows[0] = 0
        return rows
    return np.arange(len(factor.table), dtype=np.int64)


def _refuse_if_too_large(
    variables: Structure,
    transition_scopes: Sequence[tuple[int, ...]],
    reward_scopes: Sequence[tuple[int, ...]],
) -> None:
    needed = {
        variables.transition_label(i): 8 * size * count(variables.scope_sizes(scope))
        for i, (scope, size) in enumerate(
            zip(transition_scopes, variables.state_sizes, strict=True)
        )
    } | {
        variables.reward_label(k): 8 * count(variables.scope_sizes(scope))
        for k, scope in enumerate(reward_scopes)
    }
    total = sum(needed.values())
    if total > TABLE_LIMIT_BYTES:
        largest = max(needed, key=needed.__getitem__)
        raise TooLarge(
            f"the tables over states and actions need {shown(total)} bytes, {largest} "
            f"{shown(needed[largest])} of them; at most {TABLE_LIMIT_BYTES} are made",
            needed_bytes=total,
            limit_bytes=TABLE_LIMIT_BYTES,
        )


def _given_classes(alike: Alike | None, factors: Sequence[GivenFactor], m: int) -> list[IndexArray]:
    """Return the class of every row of every given table."""
    rows = [len(factor.table) for factor in factors]
    if alike is None:
        starts = np.cumsum([0, *rows])
        return [np.arange(n) + start for n, start in zip(rows, starts[:-1], strict=True)]
    if not isinstance(alike, Alike):
        raise InvalidModel(f"alike is {shown(alike)}; must be an Alike")
    classes = [*alike.transitions, *alike.rewards]
    given = list(map(len, classes))
    if given != rows or len(alike.transitions) != m:
        raise InvalidModel(
            f"classes of rows for tables of {tuple(given)} rows; the tables over what the actions "
            f"leave have {tuple(rows)}"
        )
    return classes


def _range_of(table: FloatArray) -> tuple[float, float]:
    finite = table[np.isfinite(table)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
