"""`fmdp plan`: plan for a problem and print gain, certified bounds, spans, time and memory.

Three clocks: `seconds` covers building the model, preparing and solving. `seconds_startup` covers
imports, compiling and loading compiled code. `seconds_evaluation` covers the evaluation of the
policy.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from fmdp._base.deadlines import Deadline, TimeUp
from fmdp._base.interrupts import held
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
from fmdp.errors import Infeasible, InvalidParameter, TooLarge, did_you_mean
from fmdp.planning.constrained.limits import limits_from_texts

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan


ENGINES = ("threads", "mpi")
"""The engines of exact plans."""
# A planner whose time is used up by building the model still gets a moment to report that.
_LEAST_SECONDS = 1e-3
# Python drops an exception that is raised inside a destructor, so the alarm repeats.
_SECONDS_BETWEEN_ALARMS = 0.2


@options.with_planner_options
def plan(
    problem: options.Problem,
    request: options.PlannerRequest = options.NO_REQUEST,
    robust: options.Robust = False,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="NAME<=VALUE",
            help="Limit the long-run average of a reward factor or quantity (also NAME>=VALUE). "
            "May be repeated. Exact planner only.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="POLICY",
            help="Save the policy in this file, for `fmdp evaluate`, `act` and `export`.",
        ),
    ] = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="threads|mpi",
            help="Where exact plans run: the threads of this process, or all processes of a job "
            "that mpiexec has started.",
        ),
    ] = "threads",
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="With --engine mpi: write checkpoints to this folder, which all processes must "
            "reach. The checkpoint is deleted when the plan has converged.",
        ),
    ] = None,
    checkpoint_every: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Least time between two checkpoints, 600 by default.",
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue from the checkpoint if there is one. Without --checkpoint it is in a "
            "folder of the current one that is named after the plan.",
        ),
    ] = False,
    json: options.Json = False,
) -> int:
    """Plan for a problem: gain, certified bounds, policy.

    The gain is the average reward per step in the long run. Ctrl-C stops with the bounds so far.
    """
    if robust:
        request = request._replace(settings={**request.settings, "intervals": "robust"})
    checkpoints = checkpoint is not None or checkpoint_every is not None or resume
    refuse_engine(engine, checkpoints)
    if engine == "mpi":
        # Imported on use: it needs an MPI library.
        from fmdp.cli.plan_mpi import Saving, plan_mpi

        saving = Saving(out, checkpoint, checkpoint_every, resume)
        return plan_mpi(problem, request, limit, saving, json)
    if out is not None:
        refuse_unwritable(out, problem)
    result: dict[str, Any] = dict.fromkeys(KEYS) | {"problem": problem}
    try:
        solution = run(result, request, limit or ())
    except Infeasible:
        if json:
            print_json(result | {"status": "infeasible"})
        raise
    except TooLarge as error:
        if json:
            print_json(result | refusal(error))
        raise
    if out is not None and solution.policy is not None:
        with held():  # another Ctrl-C must not interrupt the saving
            solution.policy.save(out)
    if json:
        print_json(result)
    else:
        print_plan(result, solution, out, solution.policy is not None)
    return exit_status(solution.status)


def refuse_engine(engine: str, checkpoints: bool) -> None:
    """Raise InvalidParameter if there is no such engine, or if it has no checkpoints."""
    if engine not in ENGINES:
        raise InvalidParameter(
            f"--engine must be one of {', '.join(ENGINES)}; got {engine!r}"
            f"{did_you_mean(engine, ENGINES)}"
        )
    if checkpoints and engine != "mpi":
        raise InvalidParameter(
            "--checkpoint, --checkpoint-every and --resume are options of --engine mpi"
        )


def run(
    result: dict[str, Any], request: options.PlannerRequest, limits: Sequence[str] = ()
) -> Plan:
    """Plan for result["problem"] and fill in the result as it becomes known."""
    clock = time.perf_counter
    started = clock()
    from fmdp._base.compiled import seconds_loading
    from fmdp.planning import choice
    from fmdp.planning.absorption import ends_settled
    from fmdp.problems import problem as problem_of
    from fmdp.problems.ids import import_family

    limited = limits_from_texts(limits)
    kind, settings = options.requested_planner(request)
    result["planner"] = None if kind is None else kind.name
    problem = result["problem"]
    import_family(problem)
    imported = clock()
    settings = with_horizon_of_problem(problem, settings)
    deadline = Deadline.after(time_limit(settings), imported)
    with progress(f"planning {problem}") as report:
        try:
            with alarm(deadline):
                model = problem_of(problem)
            structure = model.structure
            result["states"], result["actions"] = structure.n_states, structure.n_actions
            result["remarks"] = list(model.remarks)
            if kind is None:
                memory: Any = settings.get("memory_limit")
                default, result["planner_reason"] = choice.choose_planner_of(
                    model,
                    settings=settings,
                    averages=bool(limited),
                    memory_limit=memory,
                    deadline=deadline,
                )
                kind = type(default)
        except TimeUp:
            return out_of_time(result, started, imported)
        loaded = seconds_loading()
        remaining = deadline.remaining()
        if remaining is not None:
            settings = {**settings, "max_seconds": max(remaining, _LEAST_SECONDS)}
        planner = kind.make(settings)
        result["planner"] = kind.name
        solution = choice.plan(model, planner, limits=limited, progress=report)
    planned = clock()
    loading = seconds_loading() - loaded
    evaluation = solution.stats.get("seconds_evaluation", 0.0)
    result |= {key: getattr(solution, key) for key in PLAN_KEYS}
    result |= {key: solution.stats.get(key) for key in STATISTICS_KEYS}
    result |= {
        "planner_reason": result.get("planner_reason") or solution.stats.get("planner_reason"),
        "status": solution.status.value,
        "seconds": max(planned - imported - loading - evaluation, 0.0),
        "seconds_startup": imported - started + loading,
        "seconds_evaluation": evaluation,
        "peak_memory_bytes": peak_memory(),
        "settled": None if solution.gain_upper is None else ends_settled(model, solution.policy),
    }
    return solution


def time_limit(settings: Mapping[str, object]) -> float | None:
    """Return the value of --max-seconds, checked as every planner checks it."""
    from fmdp.planning.exact.planner import Exact

    given = settings.get("max_seconds")
    declared = next(one for one in Exact.parameters if one.name == "max_seconds")
    return None if given is None else cast(float | None, declared.check(given, "the planner"))


def out_of_time(result: dict[str, Any], started: float, imported: float) -> Plan:
    """Return the plan of a run whose time ended before there was a model or a planner."""
    from fmdp.planning.plan import Plan
    from fmdp.planning.status import Status

    solution = Plan(result["planner"] or "none", Status.TIME_LIMIT)
    result |= {
        "status": solution.status.value,
        "iterations": 0,
        "seconds": time.perf_counter() - imported,
        "seconds_startup": imported - started,
        "seconds_evaluation": 0.0,
        "peak_memory_bytes": peak_memory(),
    }
    return solution


@contextmanager
def alarm(deadline: Deadline) -> Iterator[None]:
    """Raise TimeUp at the deadline inside work that cannot check it.

    Building a model runs code of others: the JSON reader, pyRDDLGym, families of the user. Nothing
    else uses this alarm, which has no effect outside the main thread and without SIGALRM.
    """
    import signal
    import threading

    seconds = deadline.remaining()
    in_main = threading.current_thread() is threading.main_thread()
    if seconds is None or not in_main or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, max(seconds, _LEAST_SECONDS), _SECONDS_BETWEEN_ALARMS)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
