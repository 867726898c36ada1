"""`fmdp learn`: one run of a learner on a problem, and what it cost.

The clock: `seconds` is acting, observing and planning. Imports, and compiling or loading compiled
code, are `seconds_startup`, the plan that regret is measured against is `seconds_reference`. Ctrl-C
gives the run so far.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.interrupts import held
from fmdp._base.memory import describe_count
from fmdp._base.progress import line_of_run
from fmdp.cli import options
from fmdp.cli.output import (
    columns,
    print_json,
    print_people,
    seconds_text,
    short_number,
)
from fmdp.cli.plan import planner_text, refuse_unwritable
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fmdp._base.parameters import Parameter
    from fmdp.learning.learner import Learner
    from fmdp.model import FactoredMDP
    from fmdp.planning.plan import Planner
    from fmdp.simulation import Run

INTERRUPTED = 130

OF_THE_RUN = (
    "regret",
    "gap_regret",
    "gain",
    "gain_kind",
    "steps",
    "episodes",
    "planner_calls",
    "unconverged_plans",
    "curve",
    "seconds",
    "gap_curve",
    "total_reward",
)
"""Keys of the JSON object that the run has under the same names."""


def learn(
    problem: options.Problem,
    learner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A learner (see `fmdp list`), e.g. psrl or psrl,c=0.1; one's own as module:Class.",
            autocompletion=options.complete_learner,
        ),
    ] = "default",
    steps: Annotated[str, typer.Option(metavar="T", help="Steps to take.")] = "10000",
    seed: Annotated[str, typer.Option(metavar="S", help="Seed of environment and learner.")] = "0",
    set: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A parameter of the learner; repeatable.",
            autocompletion=options.complete_setting,
        ),
    ] = None,
    planner: options.Planner = None,
    span_budget: options.SpanBudget = None,
    span_split: options.SpanSplit = None,
    basis: options.Basis = None,
    method: options.Method = None,
    criterion: options.Criterion = None,
    horizon: options.Horizon = None,
    discount: options.Discount = None,
    tolerance: options.Tolerance = None,
    max_iterations: options.MaxIterations = None,
    max_seconds: options.MaxSeconds = None,
    memory_limit: options.MemoryLimit = None,
    ties: options.Ties = None,
    tie_seed: options.TieSeed = None,
    out: Annotated[
        Path | None, typer.Option(metavar="LEARNER", help="Save the learner here at the end.")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="LOG",
            help="Show the learner this log first (see `fmdp fit`): a warm start.",
            show_default=False,
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """One run of a learner; regret."""
    settings = options.planner_settings(locals())
    if out is not None:
        refuse_unwritable(out)
    started = time.perf_counter()
    from fmdp._base.compiled import seconds_loading
    from fmdp.logs import warm
    from fmdp.problems import problem as problem_of
    from fmdp.simulation import Simulation, reference_for
    from fmdp.simulation.baseline import compare_with_random
    from fmdp.simulation.loop import SEED, STEPS

    n_steps, n_seed = STEPS.parse(steps, "fmdp learn"), SEED.parse(seed, "fmdp learn")
    with progress(f"{learner} on {problem}", line_of_run) as report:
        model = problem_of(problem)
        chosen, reason = learner_of(learner, set or (), planner, settings, model)
        agent = chosen.start(model)
        if log is not None:
            warm(agent, log)
        startup = time.perf_counter() - started
        loaded = [seconds_loading()]
        reference = reference_for(model, progress=report)
        loaded.append(seconds_loading())
        simulation = Simulation(model, agent, n_seed, reference=reference)
        simulation.run(n_steps, progress=report)
        loaded.append(seconds_loading())
    run = simulation.result()
    if out is not None:
        with held():  # what was learnt is saved, even if another Ctrl-C comes
            agent.save(out)
    beside = None
    if chosen.role == "learner" and not run.interrupted:
        # Ctrl-C here ends the comparison and not the run, which is finished.
        with contextlib.suppress(KeyboardInterrupt):
            beside = compare_with_random(run, model, reference)
    of_planner = agent.planner
    result: dict[str, Any] = {
        "problem": problem,
        "learner": learner.partition(",")[0],
        "parameters": {
            one.name: plain(one, getattr(chosen, one.name)) for one in chosen.parameters
        },
        "planner": None if of_planner is None else of_planner.name,
        "planner_settings": settings_of(of_planner),
        "planner_reason": reason or agent.planner_reason,
        "plan_seconds": agent.plan_seconds or None,
        "seed": n_seed,
        **{key: getattr(run, key) for key in OF_THE_RUN},
        "seconds": max(run.seconds - (loaded[2] - loaded[1]), 0.0),
        "states": model.structure.n_states,
        "actions": model.structure.n_actions,
        "seconds_startup": startup + loaded[2] - loaded[0],
        "seconds_reference": max(reference.seconds - (loaded[1] - loaded[0]), 0.0),
        "better_than_random": None if beside is None else beside.better,
    }
    if json:
        print_json(result)
    else:
        print_run(result, run, chosen, out)
    if beside is not None and not beside.better:
        weak = of_planner is not None and of_planner.name == "alp"
        say(
            f"the learner cannot be told from random actions after {run.steps:,} steps: the regret "
            f"of its second half is {short_number(beside.learner, 3)} per step, that of random "
            f"actions {short_number(beside.random, 3)} (noise {short_number(beside.noise, 2)}); "
            f"more steps{', or a stronger planner (--planner exact, --basis pairs),' * weak} may "
            f"help"
        )
    return INTERRUPTED if run.interrupted else 0


def settings_of(planner: Any) -> dict[str, Any] | None:
    """Of a planner that has declared them."""
    from fmdp._base.settings import Settings

    return planner.as_dict() if isinstance(planner, Settings) else None


def plain(parameter: Parameter, value: Any) -> Any:
    """A value for the JSON; what has no number and no word of its own is told as on the command
    line."""
    return value if isinstance(value, int | float | str | tuple | None) else parameter.show(value)


def learner_of(
    text: str,
    assignments: Sequence[str],
    planner: str | None,
    settings: dict[str, object],
    model: FactoredMDP,
) -> tuple[Learner, str | None]:
    """The learner that the options ask for; and why its planner is not the exact one, where options
    were given for a planner that nobody named."""
    from dataclasses import fields

    from fmdp._base.parameters import split_assignments
    from fmdp.elimination.ties import LEAST_TRIED
    from fmdp.learning.follow import Follow, is_policy_file
    from fmdp.learning.registry import LEARNERS

    if is_policy_file(text):
        text, assignments = Follow.name, [*assignments, f"policy={text}"]
    kind, given = LEARNERS.split(text)
    parameters: dict[str, object] = {**given}
    for name, value in split_assignments(assignments, kind.owner()).items():
        if name in parameters:
            raise InvalidParameter(
                f"the '{name}' parameter of {kind.owner()} must be given once; "
                f"got {name}={parameters[name]} with --learner, and --set {name}={value}"
            )
        parameters[name] = value
    # --horizon is the planner's, whatever the episodes are; a learner's own is said with --set.
    own = {one.name for one in kind.parameters} - {"horizon"}
    # --ties is the planner's too, but for the rule that only learners have.
    own -= set() if settings.get("ties") == LEAST_TRIED else {"ties"}
    for key in [key for key in settings if key in own]:
        # FSRL plans under a span budget, which may be given as an option or with --set.
        if key in parameters:
            raise InvalidParameter(
                f"the '{key}' of {kind.owner()} must be given once; "
                f"got {options.option_of(key)} {settings[key]} and --set {key}={parameters[key]}"
            )
        parameters[key] = settings.pop(key)
    if planner is None and not settings:
        return kind.make(parameters), None
    if "planner" not in {one.name for one in fields(kind)}:
        what = planner or options.option_of(next(iter(settings)))
        raise InvalidParameter(f"{kind.owner()} does not plan; got planner {what}, must be none")
    made, reason = planner_of(kind, planner, settings, model)
    return kind.make(parameters, planner=made), reason


def planner_of(
    kind: type[Learner], text: str | None, settings: dict[str, object], model: FactoredMDP
) -> tuple[Planner, str | None]:
    """The planner that the options ask for, and why it is not the exact one where they do not."""
    from fmdp.learning.planning_budget import planner_for_learning

    found, given = options.asked_planner(text or kind.only_planner, settings)
    if found is not None:
        if found.name == kind.only_planner:
            # What the learner sets itself at every plan need not be given.
            given = {**kind.planner_defaults, **given}
        return found.make(given), None
    limit: Any = settings.get("memory_limit")
    # Options for a planner that nobody named: it is chosen as for a learner without them.
    chosen, reason = planner_for_learning(model.structure, limit)
    return type(chosen).make(given), reason


def print_run(result: dict[str, Any], run: Run, chosen: Learner, out: Path | None) -> None:
    exact = run.gain_kind == "exact"
    decades = [(t, regret) for t, regret in run.curve if t == run.steps or is_power_of_ten(t)]
    parameters = ", ".join(
        f"{key}={value}" for key, value in result["parameters"].items() if value is not None
    )
    rows = [
        ("problem", f"{result['problem']}, {describe_count(result['states'])} states"),
        ("learner", result["learner"] + (f" ({parameters})" if parameters else "")),
        ("planner", planner_text(result) + set_text(chosen)),
        ("steps", f"{run.steps:,}" + (" (interrupted)" if run.interrupted else "")),
        ("regret", short_number(run.regret, 6)),
        ("gap regret", short_number(run.gap_regret, 6)),
        ("regret by step", ", ".join(f"{t:,}: {short_number(r, 4)}" for t, r in decades)),
        (
            "measured against",
            f"{short_number(run.gain, 9)}, "
            + (
                "the optimal gain"
                if exact
                else "an upper bound on the gain: regret is at most this"
            ),
        ),
    ]
    if run.planner_calls:
        unconverged = f", {run.unconverged_plans:,} of them not converged"
        rows.append(
            (
                "episodes",
                f"{run.episodes:,}, {run.planner_calls:,} plans"
                + (unconverged if run.unconverged_plans else ""),
            )
        )
    seconds = result["seconds"]
    speed = f"{run.steps / max(seconds, 1e-9):,.0f} steps a second"
    startup = seconds_text(result["seconds_startup"])
    apart = f"apart: start-up {startup}, optimal gain {seconds_text(result['seconds_reference'])}"
    rows.append(("time", f"{seconds_text(seconds)}, {speed} ({apart})"))
    if out is not None:
        rows.append(("saved", f"the learner, in {out}"))
    print_people(columns(rows))


def set_text(learner: Learner) -> str:
    """ " (basis=pairs, discount=0.9)": what was set for the planner; tolerance and sweeps that a
    learner's plans have by default are not."""
    planner = getattr(learner, "planner", None)
    own = () if planner is None else planner.words()
    return f" ({', '.join(own)})" if own else ""


def is_power_of_ten(t: int) -> bool:
    text = str(t)
    return text[0] == "1" and set(text[1:]) <= {"0"}
