"""Exact plans over MPI ranks: the phases of planning/exact on vectors that the ranks share.

Average reward and discounted: sweeps with acceleration and damping, the proof of a unique bias, and
the certificates of `exact.bounds`.  Policy iteration, which writes the model out, and the direct
solution for the bias of small models are not among the phases here.  Finite: the stages of
`exact.finite`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import TimeUp
from fmdp.elimination.alignment import aligned
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.model.expansion import expand
from fmdp.model.factored import check_model
from fmdp.planning.distributed.acceleration import RanksAnderson, acceleration_over_ranks
from fmdp.planning.distributed.backup import RanksBackup
from fmdp.planning.distributed.checkpoints import SECONDS, Checkpoints, exact_text
from fmdp.planning.distributed.policy import PolicyParts
from fmdp.planning.distributed.ranks import Ranks, Traffic
from fmdp.planning.exact import solver
from fmdp.planning.exact.bounds import (
    Residual,
    average_bounds,
    discounted_value,
    policy_lower_bound,
)
from fmdp.planning.exact.finite import Stages, plan_stages
from fmdp.planning.exact.operators import OptimalOperator
from fmdp.planning.exact.phases import tie_reserve
from fmdp.planning.exact.planner import Exact, unprepared_exact
from fmdp.planning.exact.recurrence import always_reached, in_every_best_class
from fmdp.planning.exact.solver import Limits, Phase, Problem, State, Uniqueness
from fmdp.planning.limits import DEFAULT_SWEEPS, GRACE_SECONDS, tolerance_of
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import smallest_unsigned
from fmdp.planning.policies.timed import stage_bytes
from fmdp.planning.prepared import engine_stats
from fmdp.planning.status import Progress, Status, middle_of_bounds

Vector = NDArray[np.float64]

DISTRIBUTED = "exact"
"""The planner that a plan over ranks names: its numbers are those of planner exact."""


@dataclass(frozen=True, eq=False)
class PlanOverRanks:
    """A plan, the same on all ranks, and this rank's part of the policy."""

    plan: Plan
    """Its policy is None: no rank holds it whole."""
    policy: PolicyParts | None
    """None if planning ended before there was a policy."""


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
            job = _Job(model, settings, ranks, started)
        except (TimeUp, KeyboardInterrupt) as error:
            plan = unprepared_exact(settings, model.structure, error, started)
            return PlanOverRanks(replace(plan, seconds=ranks.clock() - started), None)
        job.progress = progress if ranks.is_first else None
        if checkpoint is not None or resume:
            job.use_checkpoints(checkpoint, checkpoint_seconds, resume)
        result = job.finite() if settings.criterion == "finite" else job.sweeps()
        if out is not None and result.policy is not None:
            result.policy.save(out)
        finished = result.plan.status is Status.CONVERGED
        if job.checkpoints is not None and finished:
            job.checkpoints.delete()
    return result


class _Job:
    """One plan over ranks."""

    def __init__(self, model: FactoredMDP, settings: Exact, ranks: Ranks, started: float) -> None:
        self.model, self.settings, self.ranks, self.started = model, settings, ranks, started
        self.structure: Structure = model.structure
        self.progress: Progress | None = None
        self.checkpoints: Checkpoints | None = None
        self.saved: Any = None
        """The content of the checkpoint to continue from."""
        self.chunk = 1
        """Sweeps that are made at once without acceleration."""
        self.resumable: State | None = None
        """The last state before a sweep: its h is the one in memory until the next step."""
        self.limits = Limits(
            tolerance_of(settings.tolerance, self.structure),
            settings.max_iterations or DEFAULT_SWEEPS,
            ranks.deadline(settings.max_seconds, started),
        )
        self.discount = 1.0 if settings.discount is None else settings.discount
        self.backup = RanksBackup(
            ranks.each(lambda: expand(model)),  # one rank may have too little memory
            ranks,
            memory_limit=settings.memory_limit,
            deadline=self.limits.deadline,
        )

    # ---- checkpoints ----------------------------------------------------------------------------

    def use_checkpoints(self, folder: str | Path | None, every: float, resume: bool) -> None:
        identity = self._identity()
        folder = Path(f"fmdp-checkpoint-{identity[:12]}" if folder is None else folder)
        self.checkpoints = Checkpoints(folder, self.ranks, identity, every)
        self.saved = self.checkpoints.read()
        if self.saved is not None and not resume:
            raise InvalidParameter(
                f"{folder} holds the checkpoint of this plan; give --resume to continue from it, "
                f"another --checkpoint folder, or delete it"
            )

    def _identity(self) -> str:
        """Return a digest of everything that the numbers of the plan depend on."""
        settings, cut = self.settings, self.backup.cut
        values = (
            settings.criterion,
            settings.discount,
            settings.horizon,
            self.limits.tolerance,
            settings.ties,
            settings.tie_seed,
            self.model.content_hash,
            cut.layout.order,
            cut.layout.pieces,
            cut.known,
            cut.spread,
        )
        return hashlib.sha256(repr(values).encode()).hexdigest()

    def _part(self, vector: NDArray[Any]) -> tuple[NDArray[Any], int]:
        """Return a vector of this rank with the index of its first entry."""
        return vector, self.backup.share.first_state

    def _read(self, name: str, kind: str = "f") -> NDArray[Any]:
        assert self.checkpoints is not None
        first = self.backup.share.first_state
        end = first + self.backup.share.n_states
        return self.checkpoints.array(name, self.structure.n_states, first, end, kind)

    # ---- average reward and discounted ----------------------------------------------------------

    def sweeps(self) -> PlanOverRanks:
        """Plan by sweeps: the phases of solver.py, then the report."""
        problem = self._problem()
        self.chunk = problem.chunk
        h = aligned(self.backup.share.n_states)
        h[:] = 0.0
        state = problem.first_state(h, unique=self.discount != 1.0)
        if self.saved is not None:
            state = self._resumed(state)
        state = solver.solve(problem, state)
        return _average(self, state) if self.discount == 1.0 else _discounted(self, state)

    def _problem(self) -> Problem:
        average = self.discount == 1.0
        phases = {
            **solver.VALUE_ITERATION,
            Phase.START: self._start,
            Phase.PROVE_UNIQUE: self._prove_unique,
            Phase.ACCELERATE: self._then_save(solver.accelerate),
            Phase.RESTART: self._then_save(solver.restart),
        }
        return Problem(
            operator=OptimalOperator(self.backup),
            limits=self.limits,
            phases=phases,
            discount=self.discount,
            dampings=(1.0, solver.DAMPING) if average else (1.0,),
            reserve=tie_reserve(self.structure, self.limits) if average else 0.0,
            progress=self.progress,
            at_end=self._save_at_end,
            clock=self.ranks.clock,
            started=self.started,
        )

    def _start(self, problem: Problem, state: State) -> State:
        """Turn acceleration on, and look for a state that every policy reaches."""
        reached = always_reached(self.model, self.limits.deadline) is not None
        acceleration = acceleration_over_ranks(self.backup, self.settings.vectors == "disk")
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
        backup, h = self.backup, state.h
        place = int(h.argmax())
        highest = backup.largest(float(h[place]))
        # Of several states with the largest value, the first rank takes its first one.
        holder = -backup.largest(-float(self.ranks.rank if h[place] == highest else np.inf))
        avoided = place if holder == self.ranks.rank else None
        proved, sweeps = in_every_best_class(backup, h, state.lower, avoided)
        return solver.after_proof(problem, state, proved, sweeps)

    def _then_save(
        self, phase: Callable[[Problem, State], State]
    ) -> Callable[[Problem, State], State]:
        """Return the phase, followed by a checkpoint if one is due."""

        def run(problem: Problem, state: State) -> State:
            state = phase(problem, state)
            if self.checkpoints is not None:
                self.resumable = state
                if self.checkpoints.due:
                    self._save(state)
            return state

        return run

    def _save_at_end(self, state: State) -> None:
        """Write a checkpoint from which a plan that did not converge can be continued."""
        # Without acceleration, several short sweeps may have moved h since the last point.
        moved = not state.extrapolates and self.chunk > 1
        if state.status is not Status.CONVERGED and self.resumable is not None and not moved:
            self._save(self.resumable)

    def _save(self, state: State) -> None:
        assert self.checkpoints is not None
        content: dict[str, Any] = {
            "bounds": [exact_text(state.lower), exact_text(state.upper)],
            "residual": [exact_text(x) for x in (state.residual.low, state.residual.high)],
            "slack": exact_text(state.residual.slack),
            "sweeps": state.sweeps,
            "damping": state.damping,
            "dampings": list(state.dampings),
            "history": [[sweeps, exact_text(gap)] for sweeps, gap in state.history],
            "first_gap": None if state.first_gap is None else exact_text(state.first_gap),
            "accelerating": state.accelerating,
            "accelerated": state.accelerated,
            "uniqueness": state.uniqueness.name,
            "unique": state.unique,
            "acceleration": None,
        }
        arrays = {"h": self._part(state.h)}
        if isinstance(state.acceleration, RanksAnderson) and state.extrapolates:
            content["acceleration"], kept = state.acceleration.content()
            arrays |= {name: self._part(array) for name, array in kept.items()}
        self.checkpoints.write(content, arrays)

    def _resumed(self, state: State) -> State:
        """Return the state of the checkpoint; acceleration that was given up is not made again."""
        saved, number = self.saved, float.fromhex
        state.h[:] = self._read("h")
        acceleration: RanksAnderson | None = None
        if saved["acceleration"] is not None:
            acceleration = RanksAnderson(
                self.backup, saved["acceleration"]["kept"], self.settings.vectors == "disk"
            )
            acceleration.restore(saved["acceleration"], self._read)
        low, high = map(number, saved["residual"])
        return state._replace(
            phase=Phase.ITERATE,
            lower=number(saved["bounds"][0]),
            upper=number(saved["bounds"][1]),
            residual=Residual(low, high, number(saved["slack"])),
            sweeps=saved["sweeps"],
            damping=saved["damping"],
            dampings=tuple(saved["dampings"]),
            history=tuple((sweeps, number(gap)) for sweeps, gap in saved["history"]),
            first_gap=None if saved["first_gap"] is None else number(saved["first_gap"]),
            acceleration=acceleration,
            accelerating=saved["accelerating"] and acceleration is not None,
            accelerated=saved["accelerated"],
            uniqueness=Uniqueness[saved["uniqueness"]],
            unique=saved["unique"],
        )

    # ---- finite horizon -------------------------------------------------------------------------

    def finite(self) -> PlanOverRanks:
        """Plan backwards from the last step."""
        settings, structure, backup = self.settings, self.structure, self.backup
        assert settings.horizon is not None
        states = int(backup.largest(float(backup.share.n_actions)))
        kept = stage_bytes(states, structure.n_actions, settings.horizon)
        backup.require(backup.predicted_bytes + kept)
        stages = Stages(np.zeros(backup.share.n_states))
        if self.saved is not None:
            self._restore_stages(stages)
        status = plan_stages(
            stages,
            settings,
            backup,
            structure,
            self.limits,
            ties=settings.tie_breaking,
            progress=self.progress,
            started=self.started,
            after_each=self._save_stages,
        )
        horizon, made = settings.horizon, len(stages.tables)
        # A stage that is cut off may have discounted the values in place.
        if 0 < made < settings.horizon and self.discount == 1.0:
            self._save_stages(stages, now=True)
        stats: dict[str, Any] = {"horizon": horizon, "steps_planned": made}
        policy: PolicyParts | None = None
        objective: float | None = None
        if made == horizon:
            objective = self._value_at_start(stages.value)
            low, high = stages.bounds(objective)
            stats["objective_bounds"] = (low, high)
            stats["different_stages"] = len(stages.distinct)
            status = Status.PRECISION_LIMIT
            if high - low <= self.limits.tolerance:
                status = Status.CONVERGED
            numbers = {digest: number for number, digest in enumerate(stages.distinct)}
            order = [numbers[digest] for digest in stages.tables[::-1]]
            tables = np.stack(list(stages.distinct.values()))
            policy = PolicyParts(backup, structure, tables, order, self.discount)
        stats |= self.stats()
        plan = self.plan(status, iterations=made, objective=objective, stats=stats)
        return PlanOverRanks(plan, policy)

    def _value_at_start(self, value: Vector) -> float:
        """Return the value of the initial state, which one rank holds."""
        place = self.backup.place_of(self.model.initial_state)
        own = -np.inf if place is None else float(value[place])
        return self.backup.largest(own)

    def _save_stages(self, stages: Stages, *, now: bool = False) -> None:
        """Write a checkpoint if one is due, or now."""
        if self.checkpoints is None or not (now or self.checkpoints.due):
            return
        digests = list(stages.distinct)
        content = {
            "error": exact_text(stages.error),
            "loss": exact_text(stages.loss),
            "stages": [digests.index(digest) for digest in stages.tables],
            "kept": len(digests),
        }
        tables = np.stack(list(stages.distinct.values()))
        first = self.backup.share.first_action
        arrays = {"value": self._part(stages.value), "tables": (tables, first)}
        self.checkpoints.write(content, arrays)

    def _restore_stages(self, stages: Stages) -> None:
        saved, backup = self.saved, self.backup
        assert self.checkpoints is not None
        stages.value[:] = self._read("value")
        stages.error, stages.loss = (float.fromhex(saved[key]) for key in ("error", "loss"))
        first = backup.share.first_action
        end = first + backup.share.n_actions
        n_states = self.structure.n_states
        tables = self.checkpoints.array("tables", n_states, first, end, "u")
        digests = [
            backup.digest_of_all(hashlib.sha256(table.astype(np.int64).tobytes()).digest())
            for table in tables
        ]
        stages.distinct.update(zip(digests, tables, strict=True))
        stages.tables += [digests[number] for number in saved["stages"]]

    # ---- reports --------------------------------------------------------------------------------

    def plan(self, status: Status, **fields: Any) -> Plan:
        return Plan(
            planner=DISTRIBUTED,
            status=status,
            seconds=self.ranks.clock() - self.started,
            ties=self.settings.tie_breaking.name,
            model=self.model,
            settings=self.settings,
            **fields,
        )

    def stats(self, state: State | None = None) -> dict[str, Any]:
        """Return the statistics of the plan; all ranks call it."""
        backup, ranks, traffic = self.backup, self.ranks, self.ranks.traffic
        stats = engine_stats(backup) | {"multiply_adds": backup.cut.multiply_adds}
        acceleration = None if state is None else state.acceleration
        if acceleration is not None:
            stats["memory_bytes"] += acceleration.bytes
        if state is not None:
            stats["damping"] = state.damping
            stats["accelerated"] = 0
            if acceleration is not None and state.accelerated:
                stats["accelerated"] = acceleration.kept
        counted = (traffic.bytes_sent, backup.predicted_bytes_sent, traffic.seconds)
        sent, predicted, seconds = ranks.largest(np.array(counted, dtype=np.float64)).tolist()
        stats["mpi"] = {
            "ranks": ranks.size,
            "bytes_per_rank": stats["memory_bytes"],
            "bytes_sent_per_rank": int(sent),
            "bytes_sent_predicted": int(predicted),
            "seconds_communicating": seconds,
            "checkpoints": 0 if self.checkpoints is None else self.checkpoints.count,
            "checkpoint": None if self.checkpoints is None else str(self.checkpoints.folder),
            "resumed": self.saved is not None,
        }
        return stats

    def policy(self, state: State, h: Vector) -> tuple[PolicyParts | None, Vector | None]:
        """Return the policy that is greedy at h and its one-step values, if there is time."""
        limited = self.limits.deadline.at is not None or state.status is Status.INTERRUPTED
        if limited:
            left = self.limits.deadline.remaining() or 0.0
            if 3.0 * state.seconds_per_sweep > max(left, GRACE_SECONDS):
                return None, None
        backup = self.backup
        size = backup.largest(max(float(h.max()), -float(h.min())))
        slack = backup.tie_slack(size, self.limits.tolerance)
        ties = self.settings.tie_breaking
        actions = backup.greedy_actions(h, state.new, ties.rule, ties.seed, slack)
        kept = actions.astype(smallest_unsigned(self.structure.n_actions))
        return PolicyParts(backup, self.structure, kept[None, :], None), state.new

    def spans(self, h: Vector) -> tuple[float, tuple[float, ...]]:
        """Return the span and the factored spans of a vector."""
        backup, ranks, sizes = self.backup, self.ranks, self.structure.state_sizes
        span = backup.largest(float(h.max())) + backup.largest(-float(h.min()))
        cells, known = backup.share.cells, backup.share.known
        largest = np.zeros(len(sizes))
        for division, vector in ((cells, h), (known, backup.by_known(h))):
            inner = division.piece_size
            for j in division.others:
                inner //= sizes[j]
                cube = vector.reshape(-1, sizes[j], inner)
                if cube.size:
                    change = cube.max(axis=1) - cube.min(axis=1)
                    largest[j] = max(largest[j], float(change.max()))
        return span, tuple(ranks.largest(largest).tolist())


def _average(job: _Job, state: State) -> PlanOverRanks:
    """Return the plan for average reward."""
    structure = job.structure
    lower = state.lower
    policy, image = job.policy(state, state.h)
    if image is not None:
        # The chosen actions may be worth a tie's slack less than L h promises.
        lower = policy_lower_bound(job.backup, state.h, image)
        lower = max(lower, structure.reward_bounds[0])
    span = spans = None
    if state.status is Status.CONVERGED and (state.accelerated or state.unique):
        span, spans = job.spans(state.h)
    plan = job.plan(
        state.status,
        gain=middle_of_bounds(lower, state.upper, structure, job.limits.tolerance),
        gain_lower=lower,
        gain_upper=state.upper,
        span=span,
        factored_spans=spans,
        iterations=state.sweeps,
        stats=job.stats(state),
    )
    return PlanOverRanks(plan, policy)


def _discounted(job: _Job, state: State) -> PlanOverRanks:
    """Return the plan under a discount."""
    policy, image = job.policy(state, state.h * job.discount)
    fields: dict[str, Any] = {}
    objective: dict[str, Any] = {}
    if image is not None and np.isfinite(state.lower):
        value, mean, bounds = discounted_value(
            job.backup, image, job.discount, state.lower, state.upper, state.slack
        )
        objective["objective_bounds"] = bounds
        actions = None if policy is None else policy.tables[0]
        fields["gain_lower"], fields["gain_upper"] = average_bounds(job.backup, value, actions)
        if state.status in (Status.CONVERGED, Status.PRECISION_LIMIT):
            fields["objective"] = mean
        if state.status is Status.CONVERGED:
            fields["span"], fields["factored_spans"] = job.spans(value)
    stats = {**job.stats(state), **objective}
    plan = job.plan(state.status, iterations=state.sweeps, stats=stats, **fields)
    return PlanOverRanks(plan, policy)
