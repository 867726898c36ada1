"""Learners of every kind, for the tests that all of them have to pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fmdp import FactoredMDP
from fmdp.learning.learner import Learner
from fmdp.learning.registry import learner_kind

EVERY = [
    *(
        (name, {"episodes": rule} | ({"length": 7} if rule == "fixed" else {}))
        for name in ("psrl", "dorl", "fsrl", "frmax")
        for rule in ("arithmetic", "doubling", "tsde", "fixed")
    ),
    ("frmax", {"m": 3}),
    ("dorl", {"targets": "vertex"}),
    ("dorl", {"transition_constant": 18, "reward_constant": 12}),
    ("fsrl", {"budget": 4, "split": "search", "episodes": "doubling"}),
    ("fsrl", {"budget": (1.0, 2.0, 0.5)}),
    ("oracle", {}),
    ("random", {}),
]


def make(name: str, settings: dict[str, Any], model: FactoredMDP, seed: int = 0) -> Learner:
    generator = np.random.Generator(np.random.PCG64(seed))
    return learner_kind(name).make(model, settings, generator=generator)


def called(case: tuple[str, dict[str, Any]]) -> str:
    name, settings = case
    return "-".join([name, *(f"{key}={value}" for key, value in settings.items())])


@pytest.fixture(params=EVERY, ids=called)
def kind(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param  # type: ignore[no-any-return]
