"""Effects as plain values that JSON holds: formats of others have no words for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fmdp.model.effects import Effect, Effects
from fmdp.model.factored import FactoredMDP


def plain(effects: Effects) -> dict[str, Any]:
    """What `with_effects` reads."""
    return {
        "components": [
            {"states": own.states, "actions": own.actions, "outcome": own.outcome.tolist()}
            for own in effects.components
        ],
        "after_scopes": effects.after_scopes,
        "rewards": effects.rewards,
        "after_reward_scopes": effects.after_reward_scopes,
    }


def with_effects(model: FactoredMDP, given: Any) -> FactoredMDP:
    """The model with the effects that `plain` wrote; a file may say anything, so that this may
    also raise KeyError or TypeError."""
    effects = Effects(
        tuple(
            Effect(own["states"], own["actions"], np.array(own["outcome"]))
            for own in given["components"]
        ),
        tuple(map(tuple, given["after_scopes"])),
        tuple(given["rewards"]),
        tuple(map(tuple, given["after_reward_scopes"])),
    )
    structure = replace(model.structure, effects=effects)
    return FactoredMDP(
        structure, model.transitions, model.rewards, model.noise, model.initial_state, model.name
    )
