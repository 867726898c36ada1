"""`fmdp plan --engine mpi`: one command in every process of an MPI job, of which rank 0 reports."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fmdp.cli import options
from fmdp.cli.output import print_json, refuse_unwritable
from fmdp.cli.plan_output import (
    KEYS,
    PLAN_KEYS,
    STATISTICS_KEYS,
    exit_status,
    peak_memory,
    print_plan,
    refusal,
    with_horizon_of_problem,
)
from fmdp.cli.progress import progress
from fmdp.errors import FmdpError, InvalidParameter, TooLarge
from fmdp.planning.distributed.checkpoints import SECONDS
from fmdp.planning.distributed.planner import plan_over_ranks
from fmdp.planning.distributed.ranks import Ranks
from fmdp.planning.distributed.report import PlanOverRanks
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem as problem_of

if TYPE_CHECKING:
    from fmdp.model import FactoredMDP


class Saving(NamedTuple):
    """The files that a plan over ranks writes."""

    out: Path | None
    checkpoint: Path | None
    checkpoint_every: int | None
    resume: bool


def plan_mpi(
    problem: str,
    request: options.PlannerRequest,
    limit: list[str] | None,
    saving: Saving,
    json: bool,
) -> int:
    """Plan over all ranks and return the exit status; only rank 0 writes to the streams."""
    started = time.perf_counter()
    ranks, out = Ranks(), saving.out
    result: dict[str, Any] = dict.fromkeys(KEYS) | {"problem": problem, "planner": Exact.name}
    try:
        with _ending_together(ranks):
            # A file that one rank cannot read must not leave the others waiting.
            settings = ranks.each(lambda: _settings(problem, request, limit))
            if out is not None:
                ranks.from_first(lambda: refuse_unwritable(out, problem))
            model = ranks.each(lambda: problem_of(problem))
            structure = model.structure
            result |= {"states": structure.n_states, "actions": structure.n_actions}
            result["remarks"] = list(model.remarks)
            imported = time.perf_counter()
            solution = _planned(model, settings, ranks, problem, saving)
            peak = ranks.largest(np.array([float(peak_memory() or 0)]))[0]
    except FmdpError as error:
        if not ranks.is_first:
            return 2
        if json and isinstance(error, TooLarge):
            print_json(result | refusal(error))
        raise
    plan = solution.plan
    result |= {key: getattr(plan, key) for key in PLAN_KEYS}
    result |= {key: plan.stats.get(key) for key in STATISTICS_KEYS}
    result |= {
        "status": plan.status.value,
        "seconds": plan.seconds,
        "seconds_startup": imported - started,
        "seconds_evaluation": 0.0,
        "peak_memory_bytes": int(peak) or None,
    }
    if ranks.is_first and json:
        print_json(result)
    elif ranks.is_first:
        print_plan(result, plan, out, solution.policy is not None)
    return exit_status(plan.status)


@contextmanager
def _ending_together(ranks: Ranks) -> Iterator[None]:
    """End the whole job upon an error that the other ranks do not know of."""
    try:
        yield
    except FmdpError:
        raise
    except KeyboardInterrupt:
        ranks.end_job(130)
        raise
    except BaseException:
        traceback.print_exc()
        ranks.end_job()
        raise


def _settings(problem: str, request: options.PlannerRequest, limit: list[str] | None) -> Exact:
    kind, settings = options.requested_planner(request)
    if kind not in (None, Exact):
        raise InvalidParameter(
            f"--engine mpi runs planner exact; got options of planner {kind.name}"
        )
    if limit:
        raise InvalidParameter("--engine mpi takes no --limit")
    return Exact.make(with_horizon_of_problem(problem, settings))


def _planned(
    model: FactoredMDP, settings: Exact, ranks: Ranks, problem: str, saving: Saving
) -> PlanOverRanks:
    files: dict[str, Any] = {
        "out": saving.out,
        "checkpoint": saving.checkpoint,
        "checkpoint_seconds": SECONDS
        if saving.checkpoint_every is None
        else saving.checkpoint_every,
        "resume": saving.resume,
    }
    if not ranks.is_first:
        return plan_over_ranks(model, settings, ranks, **files)
    with progress(f"planning {problem} on {ranks.size} MPI ranks") as report:
        return plan_over_ranks(model, settings, ranks, progress=report, **files)
