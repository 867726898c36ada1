"""Relative value iteration with certificates, as phases over one state record.

The operator L is monotone and commutes with constants: the optimal backup, the backup of one
policy, the nested or the truncated one.  For every h, min(L h - h) <= gain <= max(L h - h)
(bounds.py), so the bounds hold wherever the iteration stops, whether the sweeps were damped,
accelerated or neither.  The best bounds of all sweeps are kept.

A phase is a function `phase(problem, state) -> state`; `solve` calls the phase that the state
names until it names DONE.  Phases in brackets run only for problems that bring them::

    [START] -----------> ITERATE
    ITERATE -----------> DIAGNOSE            the gap is too wide
                         [PROVE_UNIQUE]      accelerated, and the gap is small
                         [POLISH] or DONE    the bounds meet
                         DONE                a limit is reached
    [PROVE_UNIQUE] ----> as ITERATE
    DIAGNOSE ----------> ACCELERATE          no stall, or acceleration is dropped
                         RESTART             damped, or accelerated without a proof
                         [POLICY_ITERATION]  stalled for good
                         DONE                only rounding is left
    ACCELERATE --------> ITERATE
    RESTART -----------> ITERATE
    [POLICY_ITERATION] > DONE                solved, or the gains are proved to differ
                         RESTART             from the h that it found
                         ACCELERATE          it found nothing
    [POLISH] ----------> [EXTEND] or DONE
    [EXTEND] ----------> DONE

* ITERATE sweeps and tests for convergence.
* PROVE_UNIQUE asks whether the bias is unique, so that acceleration cannot change it.
* DIAGNOSE looks for a stall: a gap that has hardly shrunk over a window of sweeps.  The remedies
  are tried in this order.  Acceleration is dropped.  The iteration is damped,
  h <- (1 - tau) h + tau L h, which has the same gain and no period.  Policy iteration takes over
  (a model may need more sweeps than any limit allows until the horizon pays for changing class).
* ACCELERATE chooses the next h, by Anderson's rule (acceleration.py) or a plain step.

Under a discount the bounds are MacQueen's.  They do not change when a constant is added to h, so a
constant is subtracted where the leading digits of h would cost precision.  Nothing is damped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline, TimeUp
from fmdp.elimination.alignment import aligned
from fmdp.elimination.backup import Backup
from fmdp.elimination.kernels import Pace
from fmdp.planning.exact.acceleration import Anderson, acceleration_for
from fmdp.planning.exact.bounds import Residual, residual_from
from fmdp.planning.exact.operators import Operator
from fmdp.planning.exact.recurrence import PROOF_BYTES
from fmdp.planning.status import Progress, Status
from fmdp.planning.tabular.gains import Gains

Vector = NDArray[np.float64]
Indices = NDArray[np.int64]
History = tuple[tuple[int, float], ...]

DAMPING = 0.75
"""Weight tau of L h in a damped step."""
_WINDOW = 32
"""Sweeps over which a stall is judged."""
_STALLED = 0.99
"""A gap that has not shrunk below this share of itself over the window has stalled."""
_SLOW = 0.9
"""The same, after damping, for a problem that can turn to policy iteration."""
_NOISE = 16.0
"""A stalled gap of at most this many rounding allowances is rounding alone."""
CHUNK_SECONDS = 0.05
"""Time for which compiled code may run before signals and the clock are checked."""
_SMALL = 1.0 / 64.0
"""Share of the first gap below which h is good enough to prove that the bias is unique."""
_COSTLY = 1.0 / 16.0
"""Share of the tolerance above which rounding costs sweeps under a discount."""
_SWEEPS_IN_HAND = 2.2
"""Sweeps of time kept before a deadline: the next sweep and the one of the policy."""


@dataclass(frozen=True)
class Limits:
    """When to stop."""

    tolerance: float
    max_sweeps: int
    deadline: Deadline = NEVER


class Phase(StrEnum):  # hashed as a text, several times per plan
    """The phases, in the order of a plan that runs through all of them."""

    START = "start"
    ITERATE = "iterate"
    PROVE_UNIQUE = "prove unique"
    DIAGNOSE = "diagnose"
    ACCELERATE = "accelerate"
    RESTART = "restart"
    POLICY_ITERATION = "policy iteration"
    POLISH = "polish"
    EXTEND = "extend"
    DONE = "done"


class Uniqueness(Enum):
    """The state of the proof that acceleration cannot change the bias."""

    UNCHECKED = "unchecked"
    PROVED = "proved, or not needed"
    NOT_PROVED = "not proved"


@dataclass(frozen=True, eq=False)
class PolicySolution:
    """The result of policy iteration: a solution, a proof that gains differ, or a better start."""

    bounds: tuple[float, float] = (-np.inf, np.inf)
    """The gain of a policy from every state at least, and the optimal gain of a state at most.
    Under a discount: V* lies in h + discount / (1 - discount) [lower, upper]."""
    h: Vector | None = None
    """A solution of the optimality equation in the engine's order, if one was found."""
    differ: tuple[float, float] | None = None
    """The least and the largest gain of a state, if they are proved to be different."""
    start: Vector | None = None
    """An h from which the sweeps go on, since their bounds meet there."""
    discounted: bool = False
    """Whether the bounds are those of a policy that is optimal under a discount near 1."""
    actions: Indices | None = None
    """[S] in C order: a policy that attains the lower bound, or the gains."""
    gains: Gains | None = None
    """The gain of every state, if they are proved to differ."""
    unique_bias: bool = False
    """Whether all solutions of the optimality equation are equal up to a constant."""


class State(NamedTuple):
    """Everything that is known at one point of a solution.

    A named tuple, since learners make thousands of small plans and a frozen dataclass takes several
    times as long to copy.

    Arrays are workspaces of the run and change in place.  A phase that writes to h is entered with
    `whole` false, so that h and new are never taken for a pair when Ctrl-C has separated them.
    """

    h: Vector
    new: Vector
    scratch: Vector
    lower: float
    upper: float
    phase: Phase = Phase.ITERATE
    status: Status = Status.ITERATION_LIMIT
    sweeps: int = 0
    seconds_per_sweep: float = 0.0
    whole: bool = False
    """Whether new is L h."""
    residual: Residual = Residual(-np.inf, np.inf, 0.0)
    """Of the last whole sweep."""
    damping: float = 1.0
    dampings: tuple[float, ...] = ()
    """Dampings to turn to when the iteration stalls."""
    history: History = ()
    """Sweeps and gap after each chunk, back to the one before the window of a stall."""
    first_gap: float | None = None
    restart_at: Vector | float = 0.0
    acceleration: Anderson | None = None
    accelerating: bool = False
    """Whether acceleration has not been dropped."""
    accelerated: bool = False
    """Whether h was reached by accelerated sweeps; its bias is then proved to be unique."""
    uniqueness: Uniqueness = Uniqueness.PROVED
    unique: bool = False
    """Whether the bias is known to be unique without any sweep."""
    policies_tried: bool = False
    solution: PolicySolution | None = None
    solved_by_policies: bool = False
    """Whether h and the bounds are those of `solution`."""
    bias: Vector | None = None
    """The h to be reported as the bias, in the engine's order."""
    span_error: float | None = None
    """Estimated distance of the bias, as a span, from the limit of value iteration."""

    @property
    def slack(self) -> float:
        return self.residual.slack

    @property
    def extrapolates(self) -> bool:
        """Whether the next h is chosen by acceleration."""
        return self.accelerating and self.acceleration is not None and self.acceleration.on


PhaseFunction = Callable[[Any, State], State]


@dataclass(frozen=True, eq=False)
class Problem:
    """An operator, when to stop, and the phases that may run."""

    operator: Operator
    limits: Limits
    phases: Mapping[Phase, PhaseFunction]
    discount: float = 1.0
    cold: bool = True
    """h starts at zero, and so it does again after a change of the damping.  The bias is then the
    limit of damped value iteration from zero, which defines it where it is not unique."""
    dampings: tuple[float, ...] = (1.0, DAMPING)
    """The first damping, and those after each stall."""
    reserve: float = 0.0
    """Part of the tolerance that the caller needs."""
    patience: int | None = None
    """Sweeps after which policy iteration is tried even if the gap still shrinks."""
    on_disk: bool = False
    """Whether acceleration keeps its vectors on disk."""
    progress: Progress | None = None
    at_end: Callable[[Problem, State], None] | None = None
    """Called with the last state, while acceleration still has its vectors."""
    clock: Callable[[], float] = time.perf_counter
    started: float = field(default_factory=time.perf_counter)
    """On that clock."""

    @property
    def backup(self) -> Backup:
        return self.operator.backup

    @property
    def scale(self) -> float:
        """Factor from a gap of residuals to a gap of values (MacQueen)."""
        return 1.0 if self.discount == 1.0 else self.discount / (1.0 - self.discount)

    @property
    def tolerance(self) -> float:
        """Largest gap of residuals that meets the tolerance."""
        return self.limits.tolerance / self.scale if self.scale > 0.0 else np.inf

    @property
    def chunk(self) -> int:
        """Sweeps that compiled code makes at once."""
        seconds = max(self.backup.predicted_seconds, 1e-7)
        return max(1, min(_WINDOW, int(CHUNK_SECONDS / seconds)))

    def allows(self, phase: Phase) -> bool:
        return phase in self.phases

    def sweep_bytes(self, unique: bool) -> int:
        """Return the bytes per state of the vectors of the sweeps, without those of acceleration.

        They are h, L h, and the discounted h or, unless the bias is known to be `unique`, the
        vectors of a proof.
        """
        if self.discount != 1.0:
            return 3 * 8
        return 2 * 8 + (0 if unique or not self.allows(Phase.PROVE_UNIQUE) else PROOF_BYTES)

    def first_state(self, h: Vector, **known: Any) -> State:
        """Return the state before the first sweep from h, which is changed in place."""
        average = self.discount == 1.0
        bounds = self.backup.structure.reward_bounds if average else (-np.inf, np.inf)
        return State(
            h=h,
            new=aligned(len(h)),
            scratch=aligned(len(h)),
            lower=bounds[0],
            upper=bounds[1],
            phase=Phase.START if self.allows(Phase.START) else Phase.ITERATE,
            damping=self.dampings[0],
            dampings=self.dampings[1:],
            uniqueness=(
                Uniqueness.UNCHECKED if self.allows(Phase.PROVE_UNIQUE) else Uniqueness.PROVED
            ),
            **known,
        )


def solve(problem: Problem, state: State) -> State:
    """Run the phases until the state is done.

    When time runs out or Ctrl-C comes, the bounds of the last whole sweep hold.  Bounds that have
    met already, and are being polished, stay converged when time runs out.
    """
    backup = problem.backup
    backup.deadline = problem.limits.deadline
    try:
        while state.phase is not Phase.DONE:
            try:
                state = problem.phases[state.phase](problem, state)
            except KeyboardInterrupt:
                state = state._replace(status=Status.INTERRUPTED, phase=Phase.DONE)
            except TimeUp:
                met = state.status is Status.CONVERGED
                status = Status.CONVERGED if met else Status.TIME_LIMIT
                state = state._replace(status=status, phase=Phase.DONE)
        if problem.at_end is not None:
            problem.at_end(problem, state)
    finally:
        backup.deadline = NEVER
        if state.acceleration is not None:
            state.acceleration.release()
    return state


def start(problem: Problem, state: State) -> State:
    """Turn acceleration on if there is memory for it."""
    acceleration = acceleration_for(
        problem.backup, problem.sweep_bytes(state.unique), problem.on_disk
    )
    used = acceleration is not None
    return state._replace(
        phase=Phase.ITERATE,
        acceleration=acceleration,
        accelerating=used,
        accelerated=used,
    )


def iterate(problem: Problem, state: State) -> State:
    """Sweep, certify what the sweeps show, and test for convergence."""
    begun = problem.clock()
    operator, limits = problem.operator, problem.limits
    at_once = 1 if state.extrapolates else problem.chunk
    pace = Pace(
        sweeps=max(1, min(at_once, limits.max_sweeps - state.sweeps)),
        tolerance=problem.tolerance - problem.reserve - 2.0 * state.slack,
        tau=state.damping,
        discount=problem.discount,
    )
    made = operator.iterate(state.h, state.new, state.scratch, pace)
    reward_size = problem.backup.structure.reward_size
    residual = residual_from(operator.extremes, reward_size, operator.roundings)
    lower, upper = residual.lower, residual.upper
    if problem.discount == 1.0:
        lower, upper = max(state.lower, lower), min(state.upper, upper)
    sweeps, now = state.sweeps + made, problem.clock()
    if problem.progress is not None:
        problem.progress(
            {
                "sweeps": sweeps,
                "gain_lower": lower,
                "gain_upper": upper,
                "gap": residual.gap * problem.scale,
                "tolerance": limits.tolerance,
                "seconds": now - problem.started,
                "damping": state.damping,
            }
        )
    first_gap = residual.gap if state.first_gap is None else state.first_gap
    met = _bounds_meet(problem, residual)
    ask = state.uniqueness is Uniqueness.UNCHECKED and state.accelerating
    if ask and (met or residual.gap <= _SMALL * first_gap):
        following, status = Phase.PROVE_UNIQUE, state.status
    else:
        following, status = _after_sweeps(problem, sweeps, met, (now - begun) / made)
    return state._replace(
        phase=following,
        status=status,
        sweeps=sweeps,
        seconds_per_sweep=(now - begun) / made,
        whole=True,
        residual=residual,
        lower=lower,
        upper=upper,
        first_gap=first_gap,
    )


def _bounds_meet(problem: Problem, residual: Residual) -> bool:
    return residual.gap + 2.0 * residual.slack + problem.reserve <= problem.tolerance


def _after_sweeps(
    problem: Problem, sweeps: int, met: bool, seconds_per_sweep: float
) -> tuple[Phase, Status]:
    """Return the next phase and the status: converged, at a limit, or to be diagnosed."""
    if met:
        polish = problem.allows(Phase.POLISH)
        return Phase.POLISH if polish else Phase.DONE, Status.CONVERGED
    if sweeps >= problem.limits.max_sweeps:
        return Phase.DONE, Status.ITERATION_LIMIT
    left = problem.limits.deadline.remaining()
    if left is not None and left <= _SWEEPS_IN_HAND * seconds_per_sweep:
        return Phase.DONE, Status.TIME_LIMIT
    return Phase.DIAGNOSE, Status.ITERATION_LIMIT


def after_proof(problem: Problem, state: State, proved: bool, sweeps: int) -> State:
    """Return the state after a proof of uniqueness that took so many sweeps was tried.

    If it failed, bounds that have met are no reason to stop: the h belongs to some bias, not
    necessarily to the one that plain sweeps from zero find.
    """
    total = state.sweeps + sweeps
    met = proved and _bounds_meet(problem, state.residual)
    phase, status = _after_sweeps(problem, total, met, state.seconds_per_sweep)
    outcome = Uniqueness.PROVED if proved else Uniqueness.NOT_PROVED
    return state._replace(phase=phase, status=status, sweeps=total, uniqueness=outcome)


def diagnose(problem: Problem, state: State) -> State:
    """Look for a stall and choose the remedy; without one, the iteration goes on."""
    gap, earlier, history = state.residual.gap, _gap_before_window(state), _window(state)
    stalled = earlier is not None and gap >= _STALLED * earlier
    unchecked = state.uniqueness is Uniqueness.UNCHECKED
    gave_up = state.accelerating and (stalled or not state.extrapolates)
    if state.uniqueness is Uniqueness.NOT_PROVED or (gave_up and unchecked):
        return _restart_without_acceleration(state)
    if stalled and state.extrapolates:
        return _go_on(state, accelerating=False, history=())
    if earlier is None:
        return _go_on(state, history=history)
    return _remedy(problem, state, earlier, history)


def _remedy(problem: Problem, state: State, earlier: float, history: History) -> State:
    """Damp, turn to policy iteration, or stop at what rounding allows, if the gap has stalled."""
    gap = state.residual.gap
    stalled = gap >= _STALLED * earlier
    can_improve = problem.allows(Phase.POLICY_ITERATION) and not state.policies_tried
    impatient = can_improve and problem.patience is not None and state.sweeps >= problem.patience
    if state.dampings and stalled and not impatient:
        return _damp(problem, state)
    if can_improve and (impatient or (not state.dampings and gap >= _SLOW * earlier)):
        return state._replace(phase=Phase.POLICY_ITERATION, whole=False, history=history)
    if not state.dampings and stalled and gap <= _NOISE * state.slack:
        return state._replace(phase=Phase.DONE, status=Status.PRECISION_LIMIT)
    return _go_on(state, history=history)


def _gap_before_window(state: State) -> float | None:
    """Return the last gap that is at least a window of sweeps old."""
    newest = state.sweeps - _WINDOW
    return next((gap for sweeps, gap in reversed(state.history) if sweeps <= newest), None)


def _window(state: State) -> History:
    """Return the history with the last gap added, less what is older than the window needs."""
    newest = state.sweeps - _WINDOW
    old = [place for place, (sweeps, _) in enumerate(state.history) if sweeps <= newest]
    return (*state.history[old[-1] if old else 0 :], (state.sweeps, state.residual.gap))


def _go_on(state: State, **changes: Any) -> State:
    return state._replace(phase=Phase.ACCELERATE, whole=False, **changes)


def _restart_without_acceleration(state: State) -> State:
    """Sweep from zero again: of the accelerated sweeps only the bounds are kept."""
    return state._replace(
        phase=Phase.RESTART,
        restart_at=0.0,
        whole=False,
        accelerating=False,
        accelerated=False,
        uniqueness=Uniqueness.PROVED,
        history=(),
    )


def _damp(problem: Problem, state: State) -> State:
    damping, *rest = state.dampings
    damped = state._replace(damping=damping, dampings=tuple(rest), history=())
    if not problem.cold:
        return _go_on(damped)
    return damped._replace(phase=Phase.RESTART, restart_at=0.0, whole=False)


def accelerate(problem: Problem, state: State) -> State:
    """Choose the next h: by Anderson's rule as long as that helps, else by a (damped) step."""
    h, residual = state.h, state.residual
    if state.extrapolates:
        assert state.acceleration is not None
        state.acceleration.advance(h, state.new, residual.low, residual.high)
    else:
        pace = Pace(tau=state.damping, discount=problem.discount)
        problem.operator.advance(h, state.new, pace)
    if problem.discount != 1.0 and residual.slack > _COSTLY * problem.tolerance:
        largest = problem.backup.largest
        h -= 0.5 * (largest(h.max()) - largest(-h.min()))  # the bounds do not change
    return state._replace(phase=Phase.ITERATE)


def restart(problem: Problem, state: State) -> State:
    """Set h to where the sweeps begin again."""
    state.h[:] = state.restart_at
    return state._replace(phase=Phase.ITERATE)


def after_policy_iteration(
    problem: Problem, state: State, solution: PolicySolution | None
) -> State:
    """Return the state with what policy iteration found; without a result the sweeps go on."""
    state = state._replace(policies_tried=True)
    if solution is None or not _narrows(solution, state):
        return _go_on(state)
    if solution.start is not None:
        return state._replace(phase=Phase.RESTART, restart_at=solution.start, history=())
    state = state._replace(phase=Phase.DONE, solution=solution)
    if solution.differ is not None:
        lower, upper = solution.differ
        return state._replace(status=Status.MULTICHAIN, lower=lower, upper=upper)
    if solution.h is not None:
        state.h[:] = solution.h
    # The lower bound is that of the policy that was found with it.
    best_upper = state.upper if problem.discount == 1.0 else np.inf
    lower, upper = solution.bounds[0], min(best_upper, solution.bounds[1])
    if solution.discounted:
        return state._replace(status=Status.DISCOUNTED, lower=lower, upper=upper)
    precise = upper - lower <= problem.tolerance
    status = Status.CONVERGED if precise else Status.PRECISION_LIMIT
    return state._replace(status=status, lower=lower, upper=upper, solved_by_policies=True)


def _narrows(solution: PolicySolution, state: State) -> bool:
    """Return whether a solution has closer bounds than the sweeps, or says something else.

    Where two classes are left once in 10^200 steps, biases are so large that rounding hides which
    policy is better, and the sweeps may know more.
    """
    if solution.differ is not None or solution.start is not None:
        return True
    return solution.bounds[1] - solution.bounds[0] < state.upper - state.lower


VALUE_ITERATION: Mapping[Phase, PhaseFunction] = {
    Phase.ITERATE: iterate,
    Phase.DIAGNOSE: diagnose,
    Phase.ACCELERATE: accelerate,
    Phase.RESTART: restart,
}
"""The phases of every problem."""
