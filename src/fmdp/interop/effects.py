"""Conversion of effects to and from JSON values, for formats that cannot express them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fmdp.model.effects import Effect, Effects
from fmdp.model.factored import FactoredMDP


def plain(effects: Effects) -> dict[str, Any]:
    """Return effects as JSON values that `with_effects` reads."""
    return {
        "components": [
            {"states": effect.states, "actions": effect.actions, "outcome": effect.outcome.tolist()}
            for effect in effects.components
        ],
        "after_scopes": effects.after_scopes,
        "rewards": effects.rewards,
        "after_reward_scopes": effects.after_reward_scopes,
    }


def with_effects(model: FactoredMDP, given: Any) -> FactoredMDP:
    """Return the model with effects that `plain` wrote.

    Values from a file that were not written by `plain` may raise KeyError, TypeError or ValueError.
    """
    effects = Effects(
        tuple(
            Effect(effect["states"], effect["actions"], np.array(effect["outcome"]))
            for effect in given["components"]
        ),
        tuple(map(tuple, given["after_scopes"])),
        tuple(given["rewards"]),
        tuple(map(tuple, given["after_reward_scopes"])),
    )
    structure = replace(model.structure, effects=effects)
    return FactoredMDP(
        structure, model.transitions, model.rewards, model.noise, model.initial_state, model.name
    )
