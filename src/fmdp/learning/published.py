"""Published: learners from papers, with the choices of their public code in one preset.

The defaults of a rival are those of this library, so that all learners are compared on equal terms:
sets that keep their promise, plans of one precision, `rho` = .1. With `faithful=True` every setting
that was left at its default takes the value in the class's `published` mapping, which has the
choices of the authors' public code, or of the paper where there is no code. Each of them can also
be set by itself. A setting that was given another value than its default keeps it.

How precise a plan is (`stopping`), with R the largest range of a reward factor and t the first step
of the episode:

* fixed: 1e-3 times the sum of the reward ranges, and at most 200 sweeps;
* inverse: R / t, and at most 1,000 sweeps (the public UCRL2 and UCRL3);
* inverse-root: R / sqrt(t), and at most 1,000 sweeps (UCRL2 in the paper, DBN-UCRL, SCAL).

A limit or tolerance that is set on the planner itself is used as it is.
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
"""The most sweeps of a plan in the public codes."""


class Published(PlanningLearner):
    """A planning learner from a paper, which can make every choice of its public code."""

    published: ClassVar[Mapping[str, object]] = {}
    """The values that settings take with faithful=True, where they are at their defaults."""

    faithful: bool = setting(
        False,
        "make the choices of the public code or the paper, wherever a setting is at its default",
        unkeyed=(False,),
    )
    stopping: str = setting(
        "fixed",
        "how precise a plan is: 1e-3 of the reward's range, range / t, or range / sqrt(t)",
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
        """Return the settings that differ from their defaults; what the preset set is left out."""
        words = super().words()
        if not self.faithful:
            return words
        preset = {name for name, value in self.published.items() if getattr(self, name) == value}
        return tuple(word for word in words if word.partition("=")[0] not in preset)

    @property
    def max_sweeps(self) -> int:
        """The most sweeps of a plan, where the planner has no limit of its own."""
        return MAX_SWEEPS if self.stopping == "fixed" else PUBLIC_SWEEPS

    def plan_tolerance(self, agent: Agent) -> float | None:
        """Return the tolerance of a plan made now; None for that of the planner.

        Parameters
        ----------
        agent
            The run so far: t is the number of the coming step.
        """
        given: Any = self.planner
        if self.stopping == "fixed" or getattr(given, "tolerance", None) is not None:
            return None
        s = agent.statistics.structure
        largest = max((hi - lo for lo, hi in s.reward_ranges), default=0.0) or s.reward_unit
        t = agent.steps + 1
        return float(largest / (t if self.stopping == "inverse" else math.sqrt(t)))
