"""Structures with added reward factors, for learners that plan with exploration bonuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model import Alike, Structure
from fmdp.model.effects import RewardKind
from fmdp.model.spaces import shown, whole_number
from fmdp.model.structure import check_structure


def with_reward_factors(
    structure: Structure,
    scopes: Sequence[Sequence[int]],
    ranges: Sequence[tuple[float, float]],
    names: Sequence[str] | None = None,
) -> Structure:
    """Return a structure with more reward factors, behind those that it has.

    Return it from `Learner.planned_structure` to plan with bonuses. States and actions are the
    same, so the policies of its plans can be played as they are.

    Parameters
    ----------
    structure
        The structure to extend.
    scopes
        For each new factor the numbers of its variables; state variables come before action
        variables. `structure.transition_scopes` gives one factor per transition table.
    ranges
        For each new factor the lowest and the highest reward.
    names
        For each new factor its name; by default "bonus 0", "bonus 1", ....

    Raises
    ------
    InvalidParameter
        If there are not as many ranges and names as scopes.
    InvalidModel
        If a scope, range or name is not valid, or, in a structure with effects, if a scope with
        action variables is not within one component.
    """
    check_structure(structure, "with_reward_factors")
    s = structure
    scopes = [_listed(scope, "each scope") for scope in _listed(scopes, "scopes")]
    ranges = _listed(ranges, "ranges")
    names = [f"bonus {k}" for k in range(len(scopes))] if names is None else _listed(names, "names")
    if not len(scopes) == len(ranges) == len(names):
        raise InvalidParameter(
            f"reward factors must have one range and one name per scope; got {len(scopes)} scopes, "
            f"{len(ranges)} ranges and {len(names)} names"
        )
    numbers = [[whole_number(variable) for variable in scope] for scope in scopes]
    added = tuple(tuple(sorted(v for v in scope if v is not None)) for scope in numbers)
    if any(None in scope or not set(scope) <= set(range(len(s.sizes))) for scope in numbers):
        raise InvalidModel(
            f"scopes of with_reward_factors must be numbers of variables, 0 to {len(s.sizes) - 1}; "
            f"got {shown(scopes)}"
        )
    effects = s.effects
    if effects is not None:
        kinds: list[RewardKind] = [
            "cost" if any(v >= s.m for v in scope) else "before" for scope in added
        ]
        effects = replace(
            effects,
            rewards=(*effects.rewards, *kinds),
            after_reward_scopes=(*effects.after_reward_scopes, *((),) * len(added)),
        )
    alike = s.alike
    if alike is not None:
        classes, first = list(alike.rewards), s.n_reward_classes
        for scope in added:
            n_rows = int(np.prod(s.scope_sizes(scope), dtype=np.int64))
            classes.append(np.arange(first, first + n_rows))
            first += n_rows
        alike = Alike(alike.transitions, tuple(classes))
    return replace(
        s,
        reward_scopes=(*s.reward_scopes, *added),
        reward_ranges=(*s.reward_ranges, *ranges),
        reward_names=(*s.reward_names, *names),
        alike=alike,
        effects=effects,
    )


def _listed(values: Any, label: str) -> list[Any]:
    try:
        if not isinstance(values, str | Mapping):
            return list(values)
    except TypeError:
        pass
    raise InvalidParameter(
        f"{label} of with_reward_factors must be a sequence; got {shown(values)}"
    )
