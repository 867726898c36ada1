"""Relative value iteration with certificates, for any monotone operator L that commutes with
constants (L(h + c) = L h + c): the optimal backup, that of one policy, the nested, the truncated.

For every h:  min(L h - h) <= gain(s) <= max(L h - h) for all s  (Puterman 2014, theorem 8.5.5),
so the bounds hold wherever the iteration stands, damped or not, converged or not.  They are widened
by what rounding can have done to L h.

Undamped sweeps come first.  If the gap stalls, the chain may be periodic: start again with
h <- (1 - tau) h + tau L h, which has the same gain and no period.  If it stalls there too and
L h - h itself has come to rest without being constant, then it is the gain of each state (status
`multichain`).  Under a discount the bounds are MacQueen's, and nothing stalls.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination import kernels
from fmdp.elimination.backup import Backup
from fmdp.planning.plan import Progress, Status

Vector = NDArray[np.float64]

DAMPING = 0.75
_WINDOW = 32  # sweeps over which a stall is judged
_STALLED = 0.99  # the gap has shrunk by less than this factor over the window
_STALLED_DAMPED = 0.999
_AT_REST = 1e-7  # L h - h moves by less than this fraction of its span in one sweep
_CHUNK_SECONDS = 0.05  # how long compiled code may run before signals and clocks are looked at


class Operator(Protocol):
    """What is iterated; vectors are in the operator's own order of the states."""

    extremes: Vector

    def iterate(
        self, h: Vector, new: Vector, scratch: Vector, *, discount: float, tau: float,
        tolerance: float, sweeps: int,
    ) -> int: ...  # fmt: skip

    def advance(self, h: Vector, new: Vector, *, tau: float, discount: float) -> None: ...


class PolicyOperator:
    """The backup of one fixed policy (action indices in C order)."""

    def __init__(self, backup: Backup, actions: NDArray[np.integer[Any]]) -> None:
        self.backup = backup
        self.actions = actions
        self.extremes = np.zeros(3)

    def iterate(
        self, h: Vector, new: Vector, scratch: Vector, *, discount: float, tau: float,
        tolerance: float, sweeps: int,
    ) -> int:  # fmt: skip
        for number in range(1, sweeps + 1):
            np.multiply(h, discount, out=scratch)
            self.backup.policy_sweep(scratch, new, self.actions)
            kernels.residual(h, new, self.extremes)
            if self.extremes[1] - self.extremes[0] <= tolerance or number == sweeps:
                return number
            self.advance(h, new, tau=tau, discount=discount)
        return 0

    def advance(self, h: Vector, new: Vector, *, tau: float, discount: float) -> None:
        kernels.advance(h, new, tau, kernels.relative_shift(self.extremes, tau, discount))


@dataclass(frozen=True, eq=False)
class Outcome:
    """Where an iteration ended: h, new = L h, and what they certify."""

    status: Status
    lower: float
    upper: float
    sweeps: int
    damping: float
    h: Vector
    new: Vector


@dataclass(frozen=True)
class Limits:
    tolerance: float
    max_sweeps: int
    deadline: float | None = None  # on time.monotonic's clock


def solve(
    operator: Operator,
    h: Vector,
    limits: Limits,
    *,
    discount: float = 1.0,
    cold: bool = True,
    dampings: Sequence[float] = (1.0, DAMPING),
    one_gain: bool = False,
    sweep_seconds: float = 0.0,
    reward_size: float = 1.0,
    depth: int = 1,
    progress: Progress | None = None,
) -> Outcome:
    """Iterate from h (changed in place) until the gap is at most the tolerance or a limit is hit.

    `cold`: h is zero, and a change to damping starts from zero again, so that the bias is the one
    that damped value iteration from zero converges to, which is a definition where the bias is not
    unique.  `dampings`: what tau is at first, and after each stall.  `one_gain`: the operator has
    the same gain in every state whatever the model, so that no stall is taken for `multichain`.
    `reward_size` and `depth` (of the elimination) enter the rounding allowance only.
    """
    new, scratch = np.empty_like(h), np.empty_like(h)
    # MacQueen: V* lies in L V + discount / (1 - discount) * [min, max] of (L V - V).
    scale = 1.0 if discount == 1.0 else discount / (1.0 - discount)
    tolerance = limits.tolerance / scale if scale > 0.0 else np.inf
    tau, *lower_taus = dampings
    sweeps = 0
    history: list[tuple[int, float]] = []
    chunk = max(1, min(_WINDOW, int(_CHUNK_SECONDS / max(sweep_seconds, 1e-7))))
    started = time.monotonic()
    status = Status.ITERATION_LIMIT
    lower, upper = -np.inf, np.inf

    # Wherever Ctrl-C finds it, the bounds of the last whole sweep hold.
    try:
        while True:
            sweeps += operator.iterate(
                h, new, scratch, discount=discount, tau=tau, tolerance=tolerance,
                sweeps=max(1, min(chunk, limits.max_sweeps - sweeps)),
            )  # fmt: skip
            slack = rounding_allowance(float(operator.extremes[2]) + reward_size, depth)
            lower, upper = float(operator.extremes[0]) - slack, float(operator.extremes[1]) + slack
            gap = float(operator.extremes[1] - operator.extremes[0])
            if progress is not None:
                progress(_report(sweeps, lower, upper, gap, scale, limits, started, tau))
            if gap <= tolerance:
                status = Status.CONVERGED
                break
            if sweeps >= limits.max_sweeps:
                break
            if limits.deadline is not None and time.monotonic() >= limits.deadline:
                status = Status.TIME_LIMIT
                break
            history.append((sweeps, gap))
            before = next((g for n, g in reversed(history) if n <= sweeps - _WINDOW), None)
            if discount == 1.0 and before is not None:
                if lower_taus and gap > _STALLED * before:
                    tau = lower_taus.pop(0)
                    history.clear()
                    if cold:
                        h[:] = 0.0
                        continue
                elif (
                    not lower_taus
                    and not one_gain
                    and gap > _STALLED_DAMPED * before
                    and _at_rest(operator, h, new, tau)
                ):
                    sweeps += 1
                    lower = float(operator.extremes[0]) - slack
                    upper = float(operator.extremes[1]) + slack
                    status = Status.MULTICHAIN
                    break
            operator.advance(h, new, tau=tau, discount=discount)
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Outcome(status, lower, upper, sweeps, tau, h, new)


def rounding_allowance(size: float, depth: int) -> float:
    """How far rounding can move L h - h: each of `depth` eliminations rounds a convex combination
    of numbers of at most `size` once or twice."""
    return 4 * (depth + 2) * float(np.finfo(np.float64).eps) * size


def _at_rest(operator: Operator, h: Vector, new: Vector, tau: float) -> bool:
    """Whether L h - h stays where it is when h moves on: then it is the gain of every state."""
    before = new - h
    span = float(before.max() - before.min())
    operator.advance(h, new, tau=tau, discount=1.0)
    operator.iterate(h, new, np.empty_like(h), discount=1.0, tau=tau, tolerance=-1.0, sweeps=1)
    return float(np.abs(new - h - before).max()) <= _AT_REST * span


def _report(
    sweeps: int,
    lower: float,
    upper: float,
    gap: float,
    scale: float,
    limits: Limits,
    started: float,
    tau: float,
) -> Mapping[str, Any]:
    return {
        "sweeps": sweeps,
        "gain_lower": lower,
        "gain_upper": upper,
        "gap": gap * scale,
        "tolerance": limits.tolerance,
        "seconds": time.monotonic() - started,
        "damping": tau,
    }
