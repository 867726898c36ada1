"""Learners by name, each with the declaration of its parameters.

The command line, sweep specs and `fmdp list` read learners from here, and saved learners are
rebuilt through it. Building from a name and a mapping checks every setting and names the culprit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import numpy as np

from fmdp.errors import UnknownName, did_you_mean
from fmdp.learning.learner import Learner
from fmdp.model import FactoredMDP
from fmdp.parameters import Parameter, quoted
from fmdp.planning.plan import Planner

_HOMES = {
    "psrl": "PSRL",
    "dorl": "DORL",
    "fsrl": "FSRL",
    "frmax": "FRmax",
    "oracle": "Oracle",
    "random": "Random",
}


@dataclass(frozen=True)
class LearnerKind:
    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    build: type[Learner]

    def make(
        self,
        model: FactoredMDP,
        settings: Mapping[str, object],
        planner: Planner | None = None,
        generator: np.random.Generator | None = None,
    ) -> Learner:
        """The learner with these settings. All but the oracle are told the structure alone."""
        told = model if self.name == "oracle" else model.structure
        return self.build(told, planner=planner, generator=generator, **settings)  # type: ignore[call-arg, arg-type]


def learners() -> tuple[LearnerKind, ...]:
    """Every learner, in the order in which they are listed."""
    return tuple(learner_kind(name) for name in _HOMES)


def learner_names() -> tuple[str, ...]:
    return tuple(_HOMES)


def learner_kind(name: str) -> LearnerKind:
    if name not in _HOMES:
        raise UnknownName(
            f"unknown learner {quoted(name)}; known are {', '.join(_HOMES)}"
            f"{did_you_mean(name, _HOMES)}"
        )
    build: type[Learner] = getattr(import_module(f"fmdp.learning.{name}"), _HOMES[name])
    return LearnerKind(build.name, build.summary, build.parameters, build)
