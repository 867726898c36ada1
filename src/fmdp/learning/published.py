"""Learners from papers, with the choices of their public code in one preset.

By default all learners are compared on equal terms: sets with a guarantee, plans of equal
precision, `rho` = .1. With `faithful=True` every setting at its default takes the value in the
class's `published` mapping: the choice of the authors' public code, or of the paper if there is no
code. Each of these settings can also be given by itself. A setting with another value than its
default keeps it.

The precision of a plan (`stopping`), with R the largest range of a reward factor and t the first
step of the episode:

* fixed: 1e-3 times the sum of the reward ranges, and at most 200 sweeps;
* inverse: R / t, and at most 1,000 sweeps (the public UCRL2 and UCRL3);
* inverse-root: R / sqrt(t), and at most 1,000 sweeps (UCRL2 in the paper, DBN-UCRL, SCAL).

A limit or tolerance of the planner itself takes precedence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.learning.agent import Agent
from fmdp.learning.learner import MAX_SWEEPS, PlanningLearner

PUBLIC_SWEEPS = 1000
"""Largest number of sweeps per plan in the public codes."""


class Published(PlanningLearner):
    """A planning learner from a paper, with a preset for the choices of its public code."""

    published: ClassVar[Mapping[str, object]] = {}
    """Values of the preset, by setting."""

    faithful: bool = setting(
        False,
        "use the choices of the public code or the paper for all settings at their defaults",
        unkeyed=(False,),
    )
    stopping: str = setting(
        "fixed",
        "precision of plans: 1e-3 of the reward range, range / t, or range / sqrt(t)",
        choices=("fixed", "inverse", "inverse-root"),
        unkeyed=("fixed",),
    )

    def check(self) -> None:
        if self.faithful:
            if not self.published:
                raise InvalidParameter(
                    f"the 'faithful' parameter of {self.owner()} must be false: neither public "
                    f"code nor the choices of the paper were at hand; got true"
                )
            for field in fields(self):
                if field.name in self.published and getattr(self, field.name) == field.default:
                    object.__setattr__(self, field.name, self.published[field.name])
        super().check()

    def words(self) -> tuple[str, ...]:
        """Return the settings that differ from their defaults, without those of the preset."""
        words = super().words()
        if not self.faithful:
            return words
        preset = {name for name, value in self.published.items() if getattr(self, name) == value}
        return tuple(word for word in words if word.partition("=")[0] not in preset)

    @property
    def max_sweeps(self) -> int:
        """Largest number of sweeps per plan if the planner sets no limit."""
        return MAX_SWEEPS if self.stopping == "fixed" else PUBLIC_SWEEPS

    def plan_tolerance(self, agent: Agent) -> float | None:
        """Return the tolerance of the next plan of `agent`; None for that of the planner."""
        given: Any = self.planner
        if self.stopping == "fixed" or getattr(given, "tolerance", None) is not None:
            return None
        s = agent.statistics.structure
        largest = max((hi - lo for lo, hi in s.reward_ranges), default=0.0) or s.reward_unit
        t = agent.steps + 1
        return float(largest / (t if self.stopping == "inverse" else math.sqrt(t)))
