"""Tools for tests: generated models, brute-force oracles, and conformance checkers.

`strategies` (needs Hypothesis) generates structures, models and optimistic tables. `oracles` has
short, slow definitions of what the library computes fast. `check_planner`, `check_problem` and
`check_learner` check the contracts of planners, problems and learners, like the checkers of
Gymnasium and scikit-learn. Names are loaded on first use, so that the checkers do not need
Hypothesis.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmdp.testing import oracles, strategies
    from fmdp.testing.checks import ContractBroken, check_planner, check_problem
    from fmdp.testing.learners import check_learner

_HOME = {
    "ContractBroken": "checks",
    "check_learner": "learners",
    "check_planner": "checks",
    "check_problem": "checks",
}

__all__ = [
    "ContractBroken",
    "check_learner",
    "check_planner",
    "check_problem",
    "oracles",
    "strategies",
]


def __getattr__(name: str) -> Any:
    if name in ("oracles", "strategies"):
        return importlib.import_module(f"fmdp.testing.{name}")
    if name in _HOME:
        return getattr(importlib.import_module(f"fmdp.testing.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
