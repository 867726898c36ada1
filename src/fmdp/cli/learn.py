"""`fmdp learn`: one run of a learner on a problem, and its regret.

Three clocks: `seconds` covers acting, observing and planning. `seconds_startup` covers imports,
compiling and loading compiled code. `seconds_reference` covers the plan that regret is measured
against. Ctrl-C ends the run and reports it so far.
"""

from __future__ import annotations

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
    refuse_unwritable,
    seconds_text,
    short_number,
)
from fmdp.cli.plan_output import planner_text
from fmdp.cli.progress import progress
from fmdp.cli.signals import INTERRUPTED, say
from fmdp.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fmdp._base.parameters import Parameter
    from fmdp.learning.agent import Agent
    from fmdp.learning.learner import Learner
    from fmdp.learning.residuals import Finding
    from fmdp.model import FactoredMDP
    from fmdp.planning.plan import Planner
    from fmdp.simulation import Run
    from fmdp.simulation.baseline import AgainstRandom
    from fmdp.simulation.regret import Reference

RUN_KEYS = (
    *("regret", "gap_regret", "gain", "gain_kind", "steps", "episodes"),
    *("planner_calls", "unconverged_plans", "curve", "seconds", "gap_curve", "total_reward"),
)
"""Keys of the JSON object that are attributes of the run."""


@options.with_planner_options
def learn(
    problem: options.Problem,
    learner: options.Learner = "default",
    steps: Annotated[str, typer.Option(metavar="T", help="Number of steps.")] = "10000",
    seed: Annotated[
        str, typer.Option(metavar="S", help="Seed of the environment and the learner.")
    ] = "0",
    set: options.LearnerSettings = None,
    request: options.PlannerRequest = options.NO_REQUEST,
    out: Annotated[
        Path | None, typer.Option(metavar="LEARNER", help="Save the learner here after the run.")
    ] = None,
    log: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="LOG",
            help="Let the learner first observe the steps of this log (format: `fmdp fit --help`).",
        ),
    ] = None,
    regret: Annotated[
        bool | None,
        typer.Option(
            "--regret/--no-regret",
            help="Whether to compute the optimal gain and the regret. Default: unless that is "
            "predicted to take longer than the run.",
        ),
    ] = None,
    json: options.Json = False,
) -> int:
    """Run a learner on a problem and report its regret.

    Regret is the reward missed, compared with the optimal policy. Ctrl-C reports the run so far.
    """
    if out is not None:
        refuse_unwritable(out, problem, log)
    started = time.perf_counter()
    from fmdp._base.compiled import seconds_loading
    from fmdp.problems import problem as problem_of
    from fmdp.simulation import Simulation, reference_for
    from fmdp.simulation.loop import SEED, STEPS, no_regret_reason

    n_steps, n_seed = STEPS.parse(steps, "fmdp learn"), SEED.parse(seed, "fmdp learn")
    with progress(f"{learner} on {problem}", line_of_run) as report:
        model = problem_of(problem)
        chosen, reason = make_learner(learner, set or (), request, model)
        agent = chosen.start(model)
        findings = observed_findings(agent, log)
        startup = time.perf_counter() - started
        loaded = [seconds_loading()]
        no_regret = no_regret_reason(model, agent, n_steps, regret)
        reference = None if no_regret else reference_for(model, progress=report)
        loaded.append(seconds_loading())
        simulation = Simulation(model, agent, n_seed, reference=reference, no_regret=no_regret)
        simulation.run(n_steps, progress=report)
        loaded.append(seconds_loading())
    run = simulation.result()
    findings = agent.scope_findings or findings
    if out is not None:
        with held():  # another Ctrl-C must not interrupt the saving
            agent.save(out)
    comparison, interrupted = compared_with_random(run, agent, model, reference)
    times = {
        "seconds": max(run.seconds - (loaded[2] - loaded[1]), 0.0),
        "seconds_startup": startup + loaded[2] - loaded[0],
        "seconds_reference": None
        if reference is None
        else max(reference.seconds - (loaded[1] - loaded[0]), 0.0),
    }
    result: dict[str, Any] = {
        "problem": problem,
        "learner": learner.partition(",")[0],
        "parameters": {p.name: plain(p, getattr(chosen, p.name)) for p in chosen.parameters},
        "planner": None if agent.planner is None else agent.planner.name,
        "planner_settings": settings_of(agent.planner),
        "planner_reason": reason or agent.planner_reason,
        "plan_seconds": agent.plan_seconds or None,
        "seed": n_seed,
        **{key: getattr(run, key) for key in RUN_KEYS},
        "curve": None if reference is None else run.curve,
        "states": model.structure.n_states,
        "actions": model.structure.n_actions,
        **times,
        "no_regret_reason": no_regret,
        "scopes": chosen.learned_scopes(agent),
        "basis": agent.basis,
        "better_than_random": None if comparison is None else comparison.better,
        "scope_findings": [finding._asdict() for finding in findings],
    }
    if json:
        print_json(result)
    else:
        print_run(result, run, chosen, out)
    warn_of_findings(findings, agent, log)
    if comparison is not None and not comparison.better:
        warn_of_random(comparison, run.steps, result["planner"])
    return INTERRUPTED if interrupted else 0


def observed_findings(agent: Agent, log: str | None) -> tuple[Finding, ...]:
    """Let the agent observe a log, if there is one, and return what it shows about wrong scopes.

    Learners of scopes go on testing in the run. Others do not: simulated steps follow the scopes of
    the model, and would hide what the log shows.
    """
    from fmdp.logs import warm

    learns_scopes = agent.statistics.stepwise
    if log is not None or learns_scopes:
        agent.test_scopes()
    if log is not None:
        warm(agent, log)
    findings = agent.scope_findings
    if not learns_scopes:
        agent.test_scopes(False)
    return findings


def compared_with_random(
    run: Run, agent: Agent, model: FactoredMDP, reference: Reference | None
) -> tuple[AgainstRandom | None, bool]:
    """Return the comparison with random actions, if there can be one, and whether Ctrl-C came."""
    from fmdp.simulation.baseline import compare_with_random

    if agent.learner.role != "learner" or run.interrupted or reference is None:
        return None, run.interrupted
    try:
        return compare_with_random(run, model, reference), False
    except KeyboardInterrupt:  # the run is finished and reported, the comparison is unknown
        return None, True


def warn_of_findings(findings: Sequence[Finding], agent: Agent, log: str | None) -> None:
    """Print which scopes seem to be wrong."""
    if findings and agent.statistics.stepwise:
        others = ", ".join(finding.variable for finding in findings[1:])
        say(f"the scopes may be wrong: {findings[0]}" + (f"; likewise {others}" if others else ""))
        return
    for finding in findings:
        say(f"the model may be wrong: in {log}, {finding}")


def settings_of(planner: Any) -> dict[str, Any] | None:
    """Return the settings of a planner that declares them, else None."""
    from fmdp._base.settings import Settings

    return planner.as_dict() if isinstance(planner, Settings) else None


def plain(parameter: Parameter, value: Any) -> Any:
    """Return a parameter's value for JSON; objects are written as on the command line."""
    return value if isinstance(value, int | float | str | tuple | None) else parameter.show(value)


def make_learner(
    text: str, assignments: Sequence[str], request: options.PlannerRequest, model: FactoredMDP
) -> tuple[Learner, str | None]:
    """Return the learner that the options ask for.

    Also returns the reason why its planner is not the exact one, if there are planner options but
    no --planner.
    """
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
    # FSRL, for example, takes a span budget itself, from --span-budget or from --set. --horizon is
    # the planner's in any case, and so is --ties with a rule that planners have.
    of_learner = {parameter.name for parameter in kind.parameters} - {"horizon"}
    if request.settings.get("ties") != LEAST_TRIED:
        of_learner -= {"ties"}
    of_planner = dict(request.settings)
    for key in [key for key in of_planner if key in of_learner]:
        if key in parameters:
            raise InvalidParameter(
                f"the '{key}' of {kind.owner()} must be given once; "
                f"got {options.flag_of(key)} {of_planner[key]} and --set {key}={parameters[key]}"
            )
        parameters[key] = of_planner.pop(key)
    request = request._replace(settings=of_planner)
    if request == options.NO_REQUEST:
        return kind.make(parameters), None
    if "planner" not in {field.name for field in fields(kind)}:
        got = request.text or options.flag_of(next(iter(of_planner)))
        raise InvalidParameter(f"{kind.owner()} does not plan; got planner {got}, must be none")
    planner, reason = make_planner(kind, request, model)
    return kind.make(parameters, planner=planner), reason


def make_planner(
    learner: type[Learner], request: options.PlannerRequest, model: FactoredMDP
) -> tuple[Planner, str | None]:
    """Return the planner of a learner, and why it is not the exact one if fmdp chose it."""
    from fmdp.learning.planning_budget import planner_for_learning

    if request.text is None:
        request = request._replace(text=learner.only_planner)
    kind, settings = options.requested_planner(request)
    if kind is None:
        limit: Any = settings.get("memory_limit")
        default, reason = planner_for_learning(
            model.structure, limit, for_models=learner.plans_for_models, settings=settings
        )
        return type(default).make(settings), reason
    if kind.name == learner.only_planner:
        # The learner sets these itself before every plan.
        settings = {**learner.planner_defaults, **settings}
    return kind.make(settings), None


def print_run(result: dict[str, Any], run: Run, learner: Learner, out: Path | None) -> None:
    rows = [
        ("problem", f"{result['problem']}, {describe_count(result['states'])} states"),
        ("learner", result["learner"] + parameters_text(result["parameters"], learner)),
        ("planner", planner_text(result) + settings_text(learner)),
        ("steps", f"{run.steps:,}" + (" (interrupted)" if run.interrupted else "")),
        *regret_rows(run),
    ]
    if run.planner_calls:
        plans = f"{run.episodes:,}, {run.planner_calls:,} plans"
        if run.unconverged_plans:
            plans += f", {run.unconverged_plans:,} of them not converged"
        rows.append(("episodes", plans))
    if result["scopes"] is not None:
        rows.append(("scopes", scopes_text(result["scopes"])))
    if result["basis"] is not None:
        rows.append(("basis", basis_text(result["basis"])))
    seconds = result["seconds"]
    speed = f"{run.steps / max(seconds, 1e-9):,.0f} steps per second"
    startup = seconds_text(result["seconds_startup"])
    others = f"start-up {startup}"
    if result["seconds_reference"] is not None:
        others += f", optimal gain {seconds_text(result['seconds_reference'])}"
    rows.append(("time", f"{seconds_text(seconds)}, {speed} (besides: {others})"))
    if out is not None:
        rows.append(("saved", f"the learner, in {out}"))
    print_people(columns(rows))


def parameters_text(values: Mapping[str, Any], learner: Learner) -> str:
    """Return the parameters that have an effect, in brackets."""
    idle = {
        p.name
        for p in learner.parameters
        if p.only_with and getattr(learner, p.only_with[0]) not in p.only_with[1]
    }
    shown = [f"{key}={value}" for key, value in values.items() if value is not None]
    shown = [text for text in shown if text.partition("=")[0] not in idle]
    return f" ({', '.join(shown)})" if shown else ""


def regret_rows(run: Run) -> list[tuple[str, str]]:
    """Return the regret and what it is measured against, or why there is none."""
    if run.regret is None:
        reason = str(run.no_regret_reason).replace("regret=True", "--regret")
        return [
            ("total reward", short_number(run.total_reward, 6)),
            ("regret", f"not computed: {reason}"),
        ]
    reference = "the optimal gain"
    if run.gain_kind != "exact":
        reference = "an upper bound on the gain: the regret is at most this"
    # The end, and the powers of ten.
    decades = [
        (t, regret) for t, regret in run.curve if t == run.steps or str(t).rstrip("0") == "1"
    ]
    return [
        ("regret", short_number(run.regret, 6)),
        ("gap regret", short_number(run.gap_regret, 6)),
        ("regret by step", ", ".join(f"{t:,}: {short_number(r, 4)}" for t, r in decades)),
        ("measured against", f"{short_number(run.gain, 9)}, {reference}"),
    ]


def warn_of_random(comparison: AgainstRandom, steps: int, planner: str | None) -> None:
    """Print that the learner does no better than random actions, and what may help."""
    learner, random = short_number(comparison.learner, 3), short_number(comparison.random, 3)
    stronger = ", or a stronger planner (--planner exact, --basis pairs),"
    say(
        f"the learner is not better than random actions after {steps:,} steps: the regret of its "
        f"second half is {learner} per step, that of random actions {random} "
        f"(noise {short_number(comparison.noise, 2)}); "
        f"more steps{stronger if planner == 'alp' else ''} may help"
    )


def scopes_text(scopes: Mapping[str, Any]) -> str:
    """Return how sure the learned scopes are, and when they changed."""
    sure = [
        scopes["edges"][child].get(parent, 0.0)
        for child, parents in scopes["scopes"].items()
        for parent in parents
    ]
    text = f"learned, {len(sure)} edges, {sum(p > 0.95 for p in sure)} of them above 95 % sure"
    if scopes["last_change"] is None:
        return text
    times = f"{scopes['preparations']:,} times"
    return f"{text}; the planner was prepared {times}, last at step {scopes['last_change']:,}"


def basis_text(basis: Mapping[str, Any]) -> str:
    """Return what a growing basis has become, and when."""
    text = "singles"
    if basis["scopes"]:  # 0 again if larger ones were given up
        largest = basis["largest_scope"]
        variables = "1 variable" if largest == 1 else f"up to {largest} variables"
        text = f"{basis['scopes']:,} scopes of {variables}"
    text += f"; {basis['bases_tried']:,} larger ones tried"
    if not basis["changes"]:
        return text
    times = "once" if basis["changes"] == 1 else f"{basis['changes']:,} times, last"
    return f"{text}, changed {times} at step {basis['last_change']:,}"


def settings_text(learner: Learner) -> str:
    """Return " (basis=pairs, discount=0.9)": the planner settings that differ from defaults."""
    planner = getattr(learner, "planner", None)
    words = () if planner is None else planner.words()
    return f" ({', '.join(words)})" if words else ""
