"""Structures with added reward factors, for learners that plan with exploration bonuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.model import Alike, Structure
from fmdp.model.effects import RewardKind


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
    s = structure
    names = [f"bonus {k}" for k in range(len(scopes))] if names is None else names
    if not len(scopes) == len(ranges) == len(names):
        raise InvalidParameter(
            f"reward factors must have one range and one name per scope; got {len(scopes)} scopes, "
            f"{len(ranges)} ranges and {len(names)} names"
        )
    added = tuple(tuple(sorted(scope)) for scope in scopes)
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
