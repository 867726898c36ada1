"""Value iteration for planners and evaluations that need no polish: solver.py with fewer phases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp.planning.exact import solver
from fmdp.planning.exact.operators import Operator, OptimalOperator, PolicyOperator
from fmdp.planning.exact.solver import (
    DAMPING,
    Limits,
    Phase,
    PhaseFunction,
    PolicySolution,
    Problem,
    State,
)
from fmdp.planning.status import Progress

__all__ = ["Limits", "OptimalOperator", "PolicyOperator", "PolicySolution", "State", "solve"]


def solve(
    operator: Operator,
    h: NDArray[np.float64],
    limits: Limits,
    *,
    cold: bool = True,
    dampings: Sequence[float] = (1.0, DAMPING),
    policy_iteration: Callable[[NDArray[np.float64]], PolicySolution | None] | None = None,
    accelerated: bool = False,
    progress: Progress | None = None,
) -> State:
    """Iterate from h, which is changed in place, until the bounds meet or a limit is reached.

    Parameters
    ----------
    operator
        The operator whose gain is wanted.
    h
        Where to begin.
    limits
        Tolerance, most sweeps and deadline.
    cold
        Whether h is zero, to which it returns when the damping changes.
    dampings
        The first damping, and those to turn to after each stall.
    policy_iteration
        Called once with h when the iteration stalls for good; see `solver.PolicySolution`.
    accelerated
        Whether Anderson acceleration chooses the iterates; the bias should then be unique, or
        only the bounds be used.
    progress
        Called after every few sweeps with a mapping of what is known so far.
    """
    phases: dict[Phase, PhaseFunction] = dict(solver.VALUE_ITERATION)
    if accelerated:
        phases[Phase.START] = solver.start
    if policy_iteration is not None:
        ask = policy_iteration
        phases[Phase.POLICY_ITERATION] = lambda problem, state: solver.after_policy_iteration(
            problem, state, ask(state.h)
        )
    problem = Problem(
        operator, limits, phases, cold=cold, dampings=tuple(dampings), progress=progress
    )
    return solver.solve(problem, problem.first_state(h))
