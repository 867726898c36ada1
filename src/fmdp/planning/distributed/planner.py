"""Exact plans over MPI ranks: the phases of planning/exact on vectors that the ranks share.

Average reward and discounted: sweeps with acceleration and damping, the proof of a unique bias, and
the certificates of `exact.bounds`.  Policy iteration, which writes the model out, and the direct
solution for the bias of small models are not among the phases here.  Finite: the stages of
`exact.finite`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fmdp._base.deadlines import TimeUp
from fmdp.elimination.alignment import aligned
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.factored import check_model
from fmdp.planning.distributed.acceleration import acceleration_over_ranks
from fmdp.planning.distributed.checkpoints import SECONDS, exact_text
from fmdp.planning.distributed.job import Job
from fmdp.planning.distributed.policy import PolicyParts
from fmdp.planning.distributed.ranks import Ranks, Traffic
from fmdp.planning.distributed.report import (
    PlanOverRanks,
    average_plan,
    discounted_plan,
    plan_of,
    statistics,
)
from fmdp.planning.distributed.saved_state import content_of, restored
from fmdp.planning.exact import solver
from fmdp.planning.exact.finite import Stages, plan_stages, table_digest
from fmdp.planning.exact.operators import OptimalOperator
from fmdp.planning.exact.phases import tie_reserve
from fmdp.planning.exact.planner import Exact, unprepared_exact
from fmdp.planning.exact.recurrence import always_reached, in_every_best_class
from fmdp.planning.exact.solver import Phase, Problem, State
from fmdp.planning.policies.timed import stage_bytes
from fmdp.planning.status import Progress, Status


def plan_over_ranks(
    model: FactoredMDP,
    settings: Exact | None = None,
    ranks: Ranks | None = None,
    *,
    progress: Progress | None = None,
    out: str | Path | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = SECONDS,
    resume: bool = False,
) -> PlanOverRanks:
    """Plan exactly over the ranks of an MPI job.  All ranks call it with the same arguments.

    Parameters
    ----------
    model
        The model.
    settings
        The settings of planner `exact`, of which `threads` and `targets` have no effect.
    ranks
        The ranks that plan together; by default all processes of the job.
    progress
        Called after each chunk of sweeps, on rank 0 alone.
    out
        Where the policy is saved, before the checkpoint is deleted; None for no file.
    checkpoint
        A folder that all ranks can write to.  Without one there are checkpoints only if `resume` is
        true, in a folder of the current one that is named after the plan.
    checkpoint_seconds
        Least time between two checkpoints.
    resume
        Continue from the checkpoint if there is one.

    Returns
    -------
    PlanOverRanks
        The plan with `stats["mpi"]`, and this rank's part of the policy.

    Raises
    ------
    InvalidParameter
        If the settings ask for what this engine does not do, there are too many ranks, or there is
        a checkpoint and `resume` is false.
    TooLarge
        If a rank's share needs more than its memory limit.
    FileProblem
        If a checkpoint or the policy cannot be written, or a checkpoint cannot be read.
    """
    check_model(model, "plan")
    ranks = Ranks() if ranks is None else ranks
    settings = Exact() if settings is None else settings
    if settings.intervals != "nominal":
        raise InvalidParameter(
            f"planning over MPI takes the numbers of a model as they are; "
            f"got intervals={settings.intervals}"
        )
    with ranks.interruptible():
        started = ranks.clock()
        ranks.traffic = Traffic()
        try:
            job = Job(model, settings, ranks, started, progress)
        except (TimeUp, KeyboardInterrupt) as error:
            plan = unprepared_exact(settings, model.structure, error, started)
            return PlanOverRanks(replace(plan, seconds=ranks.clock() - started), None)
        if checkpoint is not None or resume:
            job.use_checkpoints(checkpoint, checkpoint_seconds, resume)
        result = _Horizon(job).plan() if settings.criterion == "finite" else _Sweeps(job).plan()
        if out is not None and result.policy is not None:
            result.policy.save(out)
        if job.checkpoints is not None and result.plan.status is Status.CONVERGED:
            job.checkpoints.delete()
    return result


class _Sweeps:
    """A plan for average reward or under a discount."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._on_disk = job.settings.vectors == "disk"
        self._resumable: State | None = None
        """The last state before a sweep: its h is the one in memory until the next step."""

    def plan(self) -> PlanOverRanks:
        """Run the phases of solver.py and return the report."""
        job = self._job
        problem = self._problem()
        h = aligned(job.backup.share.n_states)
        h[:] = 0.0
        state = problem.first_state(h, unique=job.discount != 1.0)
        if job.saved is not None:
            state = restored(state, job.saved, job.read_vector, job.backup, self._on_disk)
        state = solver.solve(problem, state)
        return average_plan(job, state) if job.discount == 1.0 else discounted_plan(job, state)

    def _problem(self) -> Problem:
        job = self._job
        average = job.discount == 1.0
        phases = {
            **solver.VALUE_ITERATION,
            Phase.START: self._start,
            Phase.PROVE_UNIQUE: self._prove_unique,
            Phase.ACCELERATE: self._then_save(solver.accelerate),
            Phase.RESTART: self._then_save(solver.restart),
        }
        return Problem(
            operator=OptimalOperator(job.backup),
            limits=job.limits,
            phases=phases,
            discount=job.discount,
            dampings=(1.0, solver.DAMPING) if average else (1.0,),
            reserve=tie_reserve(job.structure, job.limits) if average else 0.0,
            progress=job.progress,
            at_end=self._save_at_end,
            clock=job.ranks.clock,
            started=job.started,
        )

    def _start(self, problem: Problem, state: State) -> State:
        """Turn acceleration on, and look for a state that every policy reaches."""
        job = self._job
        reached = always_reached(job.expanded, job.limits.deadline) is not None
        acceleration = acceleration_over_ranks(job.backup, self._on_disk)
        used = acceleration is not None
        return state._replace(
            phase=Phase.ITERATE,
            unique=state.unique or reached,
            acceleration=acceleration,
            accelerating=used,
            accelerated=used,
        )

    def _prove_unique(self, problem: Problem, state: State) -> State:
        """Try to prove that the bias is unique, as planning/exact/phases.py does."""
        if state.unique:
            return solver.after_proof(problem, state, True, 0)
        backup, h, rank = self._job.backup, state.h, self._job.ranks.rank
        place = int(h.argmax())
        highest = backup.largest(float(h[place]))
        # Of several states with the largest value, the first rank takes its first one.
        holder = -backup.largest(-float(rank if h[place] == highest else np.inf))
        avoided = place if holder == rank else None
        proved, sweeps = in_every_best_class(backup, h, state.lower, avoided)
        return solver.after_proof(problem, state, proved, sweeps)

    def _then_save(
        self, phase: Callable[[Problem, State], State]
    ) -> Callable[[Problem, State], State]:
        """Return the phase, followed by a checkpoint if one is due."""

        def run(problem: Problem, state: State) -> State:
            state = phase(problem, state)
            checkpoints = self._job.checkpoints
            if checkpoints is not None:
                self._resumable = state
                if checkpoints.due:
                    self._job.save(*content_of(state))
            return state

        return run

    def _save_at_end(self, problem: Problem, state: State) -> None:
        """Write a checkpoint from which a plan that did not converge can be continued."""
        # Without acceleration, several short sweeps may have moved h since the last point.
        moved = not state.extrapolates and problem.chunk > 1
        if state.status is not Status.CONVERGED and self._resumable is not None and not moved:
            self._job.save(*content_of(self._resumable))


class _Horizon:
    """A plan for a finite horizon."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def plan(self) -> PlanOverRanks:
        """Plan backwards from the last step."""
        job = self._job
        settings, structure, backup = job.settings, job.structure, job.backup
        horizon = settings.horizon
        assert horizon is not None
        states = int(backup.largest(float(backup.share.n_actions)))
        of_stages = stage_bytes(states, structure.n_actions, horizon)
        backup.require(backup.predicted_bytes + of_stages)
        stages = Stages(np.zeros(backup.share.n_states))
        if job.saved is not None:
            self._restore(stages)
        status = plan_stages(
            stages,
            settings,
            backup,
            structure,
            job.limits,
            ties=settings.tie_breaking,
            progress=job.progress,
            started=job.started,
            after_each=self._save_if_due,
        )
        made = len(stages.tables)
        # A stage that is cut off may have discounted the values in place.
        if job.checkpoints is not None and 0 < made < horizon and job.discount == 1.0:
            self._save(stages)
        stats: dict[str, Any] = {"horizon": horizon, "steps_planned": made}
        policy: PolicyParts | None = None
        objective: float | None = None
        if made == horizon:
            objective = self._value_at_start(stages)
            low, high = stages.bounds(objective)
            stats["objective_bounds"] = (low, high)
            stats["different_stages"] = len(stages.distinct)
            precise = high - low <= job.limits.tolerance
            status = Status.CONVERGED if precise else Status.PRECISION_LIMIT
            tables = np.stack(list(stages.distinct.values()))
            policy = PolicyParts(backup, structure, tables, stages.numbers[::-1], job.discount)
        stats |= statistics(job)
        plan = plan_of(job, status, iterations=made, objective=objective, stats=stats)
        return PlanOverRanks(plan, policy)

    def _value_at_start(self, stages: Stages) -> float:
        """Return the value of the initial state, which one rank holds."""
        place = self._job.backup.place_of(self._job.model.initial_state)
        return self._job.backup.largest(-np.inf if place is None else float(stages.value[place]))

    def _save_if_due(self, stages: Stages) -> None:
        checkpoints = self._job.checkpoints
        if checkpoints is not None and checkpoints.due:
            self._save(stages)

    def _save(self, stages: Stages) -> None:
        numbers = {
            "error": exact_text(stages.error),
            "loss": exact_text(stages.loss),
            "stages": stages.numbers,
        }
        tables = np.stack(list(stages.distinct.values()))
        self._job.save(numbers, {"value": stages.value}, {"tables": tables})

    def _restore(self, stages: Stages) -> None:
        job, saved = self._job, self._job.saved
        assert saved is not None
        stages.value[:] = job.read_vector("value")
        stages.error, stages.loss = (float.fromhex(saved[key]) for key in ("error", "loss"))
        for table in job.read_table("tables"):
            stages.distinct[table_digest(job.backup, table)] = table
        digests = list(stages.distinct)
        stages.tables += [digests[number] for number in saved["stages"]]
