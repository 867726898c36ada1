"""Models whose actions act first, from tables over what the actions leave.

    y = f(s, a),   P(s' | s, a) = prod_i P_i(s'_i | y[Z_i]),
    R(s, a) = sum of before_k(s) + after_k(y) + cost_k(s_c, a_c) + setup_k(is anything done)

The tables over y become tables over (s, a) by one gather each, rows of equal y are put into one
class of alike rows (learners learn P(. | y)), and `Structure.effects` says so to the planners. The
full tables are what every other part of the package reads: their size is predicted, and refused in
one line where it is too large. A reward of "after" is over the states and actions of all components
that it looks at; what counts many components at once is better said of the state before the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel, TooLarge, did_you_mean
from fmdp.model.alike import Alike
from fmdp.model.effects import Effect, Effects, RewardKind, check_components
from fmdp.model.spaces import FloatArray, IndexArray, count, items, shown

if TYPE_CHECKING:
    from fmdp.model.structure import Structure

TABLE_LIMIT_BYTES = 1 << 30
"""Of all full tables together."""


class GivenFactor(NamedTuple):
    """A table over what it is a function of, its scope sorted."""

    scope: tuple[int, ...]
    table: FloatArray


class FullTables(NamedTuple):
    """What a model is made of."""

    effects: Effects
    alike: Alike
    transition_scopes: tuple[tuple[int, ...], ...]
    reward_scopes: tuple[tuple[int, ...], ...]
    transitions: list[FloatArray]
    rewards: list[FloatArray]


def effect_of(given: object, index: int) -> Effect:
    """An Effect, or one from (states, actions, outcome) with an outcome of any shape in C order."""
    if isinstance(given, Effect):
        return given
    parts = items(given, f"effect {index}, (states, actions, outcome),")
    if len(parts) != 3:
        raise InvalidModel(
            f"effect {index} has {len(parts)} parts; must be an Effect or (states, actions, "
            f"outcome)"
        )
    states, actions, outcome = parts
    try:
        flat = np.asarray(outcome).reshape(-1)
    except ValueError:
        flat = np.empty(0, dtype=object)
    return Effect(states, actions, flat)


def kind_of(kind: object, label: str) -> RewardKind:
    """A kind of reward, or InvalidModel with the one that may be meant."""
    kinds = get_args(RewardKind)
    if not isinstance(kind, str) or kind not in kinds:
        hint = did_you_mean(kind, kinds) if isinstance(kind, str) else ""
        raise InvalidModel(
            f"{label} is a function of {shown(kind)}; must be one of {', '.join(kinds)}{hint}"
        )
    return kind  # type: ignore[return-value]


def setup_scope(effects: Sequence[Effect]) -> tuple[int, ...]:
    """All action variables: a set-up reward looks at whether any of them is not 0."""
    return tuple(sorted({v for effect in effects for v in effect.actions}))


def full_tables(
    variables: Structure,
    components: Sequence[Effect],
    transitions: Sequence[GivenFactor],
    rewards: Sequence[tuple[RewardKind, GivenFactor]],
    alike: Alike | None,
) -> FullTables:
    """Tables over (s, a) from tables over y, with their effects and classes.

    `alike` puts rows of the given tables together; without it each is its own. Raises TooLarge
    before any full table is made.
    """
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
    classes = _given_classes(alike, transitions, [factor for _, factor in rewards])
    row_sources = [effects.after_rows(factor.scope, sizes) for factor in transitions]
    reward_sources = [_source(effects, kind, factor, sizes) for kind, factor in rewards]
    return FullTables(
        effects,
        Alike(
            tuple(own[rows] for own, rows in zip(classes[:m], row_sources, strict=True)),
            tuple(own[rows] for own, rows in zip(classes[m:], reward_sources, strict=True)),
        ),
        transition_scopes,
        reward_scopes,
        [factor.table[rows] for factor, rows in zip(transitions, row_sources, strict=True)],
        [factor.table[rows] for (_, factor), rows in zip(rewards, reward_sources, strict=True)],
    )


def _reward_scope(effects: Effects, kind: RewardKind, factor: GivenFactor) -> tuple[int, ...]:
    if kind == "after":
        return effects.full_scope(factor.scope)
    return setup_scope(effects.components) if kind == "setup" else factor.scope


def _source(
    effects: Effects, kind: RewardKind, factor: GivenFactor, sizes: Sequence[int]
) -> IndexArray:
    """For every row of the full table the row of the given one."""
    if kind == "after":
        return effects.after_rows(factor.scope, sizes)
    if kind == "setup":
        rows = np.ones(count([sizes[v] for v in setup_scope(effects.components)]), dtype=np.int64)
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


def _given_classes(
    alike: Alike | None, transitions: Sequence[GivenFactor], rewards: Sequence[GivenFactor]
) -> list[IndexArray]:
    """A class for every row of every given table."""
    tables = [len(factor.table) for factor in (*transitions, *rewards)]
    if alike is None:
        starts = np.cumsum([0, *tables])
        return [np.arange(rows) + start for rows, start in zip(tables, starts[:-1], strict=True)]
    if not isinstance(alike, Alike):
        raise InvalidModel(f"alike is {shown(alike)}; must be an Alike")
    given = [len(own) for own in (*alike.transitions, *alike.rewards)]
    if given != tables or len(alike.transitions) != len(transitions):
        raise InvalidModel(
            f"classes of rows for tables of {tuple(given)} rows; the tables over what the actions "
            f"leave have {tuple(tables)}"
        )
    return [*alike.transitions, *alike.rewards]


def range_of(table: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The least and the largest mean: the range of a reward for which none is given."""
    finite = table[np.isfinite(table)]
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def triples(rewards: Any) -> list[tuple[Any, Any, Any]]:
    """(kind, scope, table) of every reward."""
    found = []
    for k, reward in enumerate(items(rewards, "the rewards")):
        parts = items(reward, f"reward {k}, (kind, scope, table),")
        if len(parts) != 3:
            raise InvalidModel(f"reward {k} has {len(parts)} parts; must be (kind, scope, table)")
        found.append((parts[0], parts[1], parts[2]))
    return found
