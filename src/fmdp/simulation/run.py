"""Run: the result of a simulation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.html import html_lines
from fmdp.simulation.frames import needs_pandas
from fmdp.simulation.trajectory import Trajectory


@dataclass(frozen=True, repr=False, eq=False)
class Run:
    """The result of one run. Numbers that do not apply are None.

    Attributes
    ----------
    regret
        Realised regret: steps times the gain, less the rewards; None if it was not computed.
    gap_regret
        Sum over the steps of the value lost against the best action; None for large models.
    gain, gain_kind
        What regret is measured against: the optimal gain (exact), or an upper_bound on it.
    steps, total_reward
        Steps taken, and the sum of their rewards.
    curve, gap_curve
        (t, regret after t steps) at the checkpoints and at the end; empty without regret.
    episodes, planner_calls, unconverged_plans
        Counters of the learner; None for anything else.
    seconds
        Time of acting, observing and planning, without the computation of the reference.
    cpu_seconds
        Processor time of the same, of all threads of this process.
    interrupted
        True if Ctrl-C ended it before its last step.
    problem, learner, seed
        The model's name, the learner as its call, the seed.
    no_regret_reason
        Why there is no regret; None if there is.
    trajectory
        Every step, if the run was recorded.
    agent
        The agent; an Agent can be saved, or simulated further.
    """

    regret: float | None
    gap_regret: float | None
    gain: float | None
    gain_kind: str | None
    steps: int
    episodes: int | None
    planner_calls: int | None
    unconverged_plans: int | None
    curve: tuple[tuple[int, float], ...]
    gap_curve: tuple[tuple[int, float], ...] | None
    total_reward: float
    seconds: float
    cpu_seconds: float
    interrupted: bool = False
    problem: str | None = None
    learner: str = ""
    seed: int = 0
    no_regret_reason: str | None = None
    trajectory: Trajectory | None = None
    agent: Any = field(default=None, compare=False)

    def _repr_html_(self) -> str:
        return html_lines(repr(self))

    def __repr__(self) -> str:
        ended = "interrupted after" if self.interrupted else "after"
        who = " ".join(self.learner.split())  # the repr of a user's object may have several lines
        lines = [f"Run of {who} on {self.problem or 'a model'}, seed {self.seed}"]
        if self.regret is None:
            lines += [
                f"  total reward {self.total_reward:.6g} {ended} {self.steps:,} steps",
                f"  no regret: {self.no_regret_reason}; {self.seconds:.3g} s",
            ]
        else:
            kind = (
                "the optimal gain" if self.gain_kind == "exact" else "an upper bound on the gain,"
            )
            gaps = "" if self.gap_regret is None else f" (gap regret {self.gap_regret:.6g})"
            lines += [
                f"  regret {self.regret:.6g}{gaps} {ended} {self.steps:,} steps",
                f"  measured against {kind} {self.gain:.9g}; {self.seconds:.3g} s",
            ]
        if self.planner_calls:
            lines.append(
                f"  {self.episodes:,} episodes, {self.planner_calls:,} plans, "
                f"{self.unconverged_plans:,} of them not converged"
            )
        return "\n".join(lines)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return t, regret and, if known, gap_regret at the checkpoints."""
        columns: dict[str, NDArray[Any]] = {
            "t": np.array([t for t, _ in self.curve], dtype=np.int64),
            "regret": np.array([regret for _, regret in self.curve]),
        }
        if self.gap_curve is not None:
            columns["gap_regret"] = np.array([gap for _, gap in self.gap_curve])
        return columns

    def to_frame(self) -> Any:
        """Return the columns as a pandas DataFrame, one row per checkpoint.

        `trajectory.to_frame()` has one row per step.

        Raises
        ------
        FmdpError
            If pandas is not installed.
        """
        return needs_pandas().DataFrame(self.columns())
