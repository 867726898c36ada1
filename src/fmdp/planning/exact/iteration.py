"""Relative value iteration with certificates, for any monotone operator L that commutes with
constants (L(h + c) = L h + c): the optimal backup, that of one policy, the nested, the truncated.

For every h:  min(L h - h) <= gain(s) <= max(L h - h) for all s  (Puterman 2014, theorem 8.5.5),
so the bounds hold wherever the iteration stands, damped, accelerated (acceleration.py) or neither,
converged or not.  They are widened by what rounding can have done to L h, and the best of all
sweeps are kept.

Undamped sweeps come first.  If the gap stalls, the chain may be periodic: start again with
h <- (1 - tau) h + tau L h, which has the same gain and no period.  If it stalls there too, nothing
follows: value iteration rests for as long as it takes until the horizon pays for changing class.
Then the caller's `rescue` is asked, once, for an h whose bounds meet or for a proof that the gain
depends on the state (finish.py); without one the iteration goes on to its limits.

Under a discount the bounds are MacQueen's: V* lies in L h + discount / (1 - discount) [min, max] of
L h - h, whatever h is.  They do not change when a constant is added to h, so a constant is taken
off where the digits that h has before its point would cost precision.  Nothing is damped.  A gap
that hardly shrinks (a discount near 1 and several recurrent classes) is left to policy iteration
(discounted.py) by the same `rescue`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.alignment import aligned
from fmdp.elimination.backup import Backup, TimeUp, advance, iterate_by_sweeps
from fmdp.elimination.kernels import Pace
from fmdp.elimination.rounding import rounding_allowance
from fmdp.planning.exact.acceleration import Anderson
from fmdp.planning.status import Progress, Status

Vector = NDArray[np.float64]

DAMPING = 0.75
_WINDOW = 32  # sweeps over which a stall is judged
_STALLED = 0.99  # the gap has shrunk by less than this factor over the window
_SLOW = 0.9  # and by less than this, damped, where there is a rescue
_NOISE = 16.0  # a gap of so many rounding allowances is not worth going on for
_CHUNK_SECONDS = 0.05  # how long compiled code may run before signals and clocks are looked at
_SMALL = 1.0 / 64.0  # of the first gap: where `settle` is asked
_COSTLY = 1.0 / 16.0  # of the tolerance: rounding above this costs sweeps under a discount
_SWEEPS_IN_HAND = 2.2  # time kept back before a deadline: the next sweep and the policy's


class Operator(Protocol):
    """What is iterated; vectors are in the operator's own order of the states."""

    backup: Backup
    extremes: Vector
    roundings: int
    """How often a number is rounded on its way through the operator, at most."""

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int: ...

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None: ...


class OptimalOperator:
    """The backup itself: the best action in every state."""

    def __init__(self, backup: Backup) -> None:
        self.backup = backup
        self.extremes = backup.extremes
        self.roundings = backup.roundings
        self.iterate = backup.iterate
        self.advance = backup.advance


class PolicyOperator:
    """The backup of one fixed policy (action indices in C order)."""

    def __init__(self, backup: Backup, actions: NDArray[np.integer[Any]]) -> None:
        self.backup = backup
        self.actions = actions
        self.extremes = np.zeros(3)
        self.roundings = backup.roundings

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        def sweep(source: Vector, out: Vector) -> None:
            self.backup.policy_sweep(source, out, self.actions)

        return iterate_by_sweeps(sweep, h, new, scratch, self.extremes, pace)

    def advance(self, h: Vector, new: Vector, pace: Pace) -> None:
        advance(h, new, self.extremes, pace)


@dataclass(frozen=True, eq=False)
class Rescue:
    """What became of an iteration that stood still."""

    bounds: tuple[float, float] = (-np.inf, np.inf)
    """What a policy gains from every state at least, and the best gain of a state at most. Under a
    discount: V* lies in h + discount / (1 - discount) [lower, upper]."""
    h: Vector | None = None
    """A solution of the optimality equation, where one was found."""
    differ: tuple[float, float] | None = None
    """The least and the largest gain of a state, where they are proved to be different."""
    start: Vector | None = None
    """From where sweeps are to go on: their bounds meet there."""
    discounted: bool = False
    """Whether the bounds are those of a policy that is best under a discount near 1."""


@dataclass(frozen=True, eq=False)
class Ending:
    """Where an iteration ended: h, new = L h, and what they certify."""

    status: Status
    lower: float
    upper: float
    sweeps: int
    damping: float
    h: Vector
    new: Vector
    whole: bool
    """Whether new is L h; not if the last sweep was cut off."""
    slack: float
    """What rounding can have done, part of the bounds already."""
    rescued: bool = False
    accelerated: bool = False
    """Whether it came there by accelerated sweeps."""


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
    rescue: Callable[[Vector], Rescue | None] | None = None,
    patience: int | None = None,
    room: float = 0.0,
    accelerate: Callable[[], Anderson | None] | None = None,
    settle: Callable[[Vector, float], tuple[bool, int]] | None = None,
    progress: Progress | None = None,
) -> Ending:
    """Iterate from h (changed in place) until the gap is at most the tolerance or a limit is hit.

    `cold`: h is zero, and a change to damping starts from zero again, so that the bias is the one
    that damped value iteration from zero converges to, which is a definition where the bias is not
    unique.  `dampings`: what tau is at first, and after each stall.  `rescue`: see above;
    `patience`: after how many sweeps it is asked even if the gap still shrinks.  `room`: how much
    of the tolerance the caller needs for itself.  `accelerate`: makes what chooses the next h
    for as long as that helps; whatever bias it comes to should then be the only one.
    `settle`: told h and the lower bound when the gap is small, says whether it is, and after how
    many sweeps; if not, or if acceleration ends before, everything so far was in vain but for the
    bounds, and plain sweeps begin from zero.
    """
    backup = operator.backup
    new, scratch = aligned(len(h)), aligned(len(h))
    # MacQueen: V* lies in L V + discount / (1 - discount) * [min, max] of (L V - V).
    scale = 1.0 if discount == 1.0 else discount / (1.0 - discount)
    tolerance = limits.tolerance / scale if scale > 0.0 else np.inf
    tau, *lower_taus = dampings
    sweeps = 0
    history: list[tuple[int, float]] = []
    chunk = max(1, min(_WINDOW, int(_CHUNK_SECONDS / max(backup.predicted_seconds, 1e-7))))
    started = time.monotonic()
    status = Status.ITERATION_LIMIT
    lower, upper = backup.structure.reward_bounds if discount == 1.0 else (-np.inf, np.inf)
    slack, whole = 0.0, False
    rescued = accelerated = False
    backup.deadline = limits.deadline

    # Wherever Ctrl-C or the clock finds it, the bounds of the whole sweeps before hold.
    try:
        faster = None if accelerate is None else accelerate()
        accelerated = faster is not None
        small: float | None = None
        in_vain = False  # what acceleration came to
        while True:
            before_sweeps, begun = sweeps, time.monotonic()
            whole = False
            at_once = 1 if faster is not None and faster.on else chunk
            pace = Pace(
                sweeps=max(1, min(at_once, limits.max_sweeps - sweeps)),
                tolerance=tolerance - room - 2.0 * slack,
                tau=tau,
                discount=discount,
            )
            sweeps += operator.iterate(h, new, scratch, pace)
            whole = True
            size = float(operator.extremes[2]) + backup.structure.reward_size
            slack = rounding_allowance(size, operator.roundings)
            low, high = float(operator.extremes[0]), float(operator.extremes[1])
            gap = high - low
            if discount == 1.0:
                lower, upper = max(lower, low - slack), min(upper, high + slack)
            else:
                lower, upper = low - slack, high + slack
            if progress is not None:
                progress(
                    {
                        "sweeps": sweeps,
                        "gain_lower": lower,
                        "gain_upper": upper,
                        "gap": gap * scale,
                        "tolerance": limits.tolerance,
                        "seconds": time.monotonic() - started,
                        "damping": tau,
                    }
                )
            done = gap + 2.0 * slack + room <= tolerance
            small = _SMALL * gap if small is None else small
            if settle is not None and faster is not None and (done or gap <= small):
                unique, more = settle(h, lower)
                sweeps += more
                settle = None
                if not unique:
                    in_vain = True
            if done and not in_vain:
                status = Status.CONVERGED
                break
            if sweeps >= limits.max_sweeps:
                break
            now = time.monotonic()
            in_hand = _SWEEPS_IN_HAND * (now - begun) / (sweeps - before_sweeps)
            if limits.deadline is not None and now + in_hand >= limits.deadline:
                status = Status.TIME_LIMIT
                break
            history.append((sweeps, gap))
            before = next((g for n, g in reversed(history) if n <= sweeps - _WINDOW), None)
            impatient = rescue is not None and patience is not None and sweeps >= patience
            stalled = before is not None and gap >= _STALLED * before
            gave_up = faster is not None and (stalled or not faster.on)
            if in_vain or (gave_up and settle is not None):
                faster = settle = None
                accelerated = in_vain = whole = False
                h[:] = 0.0
                history.clear()
                continue
            if stalled and faster is not None and faster.on:
                faster = None
                history.clear()
            elif before is not None:
                if lower_taus and gap >= _STALLED * before and not impatient:
                    tau = lower_taus.pop(0)
                    history.clear()
                    if cold:
                        whole = False
                        h[:] = 0.0
                        continue
                elif rescue is not None and (
                    impatient or (not lower_taus and gap >= _SLOW * before)
                ):
                    found = rescue(h)
                    rescue = None
                    if found is not None and discount != 1.0:
                        narrower = found.bounds[1] - found.bounds[0] < upper - lower
                        found = found if narrower else None
                    if found is not None and found.start is not None:
                        whole = False
                        h[:] = found.start
                        history.clear()
                        continue
                    if found is not None and found.differ is not None:
                        lower, upper = found.differ
                        status = Status.MULTICHAIN
                        break
                    if found is not None:
                        whole = False
                        if found.h is not None:
                            h[:] = found.h
                        # The lower one is that of the policy that was found with them.
                        best_upper = upper if discount == 1.0 else np.inf
                        lower, upper = found.bounds[0], min(best_upper, found.bounds[1])
                        precise = upper - lower <= tolerance
                        if found.discounted:
                            status = Status.DISCOUNTED
                            break
                        status = Status.CONVERGED if precise else Status.PRECISION_LIMIT
                        rescued = True
                        break
                elif not lower_taus and gap >= _STALLED * before and gap <= _NOISE * slack:
                    # Sweeps only shuffle the last digits.
                    status = Status.PRECISION_LIMIT
                    break
            whole = False  # from here on new is no longer L h
            if faster is not None and faster.on:
                faster.advance(h, new, low, high)
            else:
                operator.advance(h, new, pace._replace(tau=tau))
            if discount != 1.0 and slack > _COSTLY * tolerance:
                h -= 0.5 * (h.min() + h.max())  # the bounds do not change
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    except TimeUp:
        status = Status.TIME_LIMIT
    finally:
        backup.deadline = None
    return Ending(status, lower, upper, sweeps, tau, h, new, whole, slack, rescued, accelerated)
