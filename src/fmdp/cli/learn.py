"""`fmdp learn`: one run of a learner on a problem, and what it cost.

The clock: `seconds` is acting, observing and planning. Imports and compilation are
`seconds_startup` (a rehearsal of two steps on a small model brings them forward), the plan that
regret is measured against is `seconds_reference`. Ctrl-C gives the run so far.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from fmdp.errors import InvalidParameter
from fmdp.memory import describe_count
from fmdp.progress import line_of_run

if TYPE_CHECKING:
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
            metavar="NAME", help="A learner (see `fmdp list`), e.g. psrl, dorl, fsrl, frmax."
        ),
    ],
    steps: Annotated[str, typer.Option(metavar="T", help="Steps to take.")] = "10000",
    seed: Annotated[str, typer.Option(metavar="S", help="Seed of environment and learner.")] = "0",
    set: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the learner; repeatable."),
    ] = None,
    planner: options.Planner = None,
    span_budget: options.SpanBudget = None,
    span_split: options.SpanSplit = None,
    basis: options.Basis = None,
    method: options.Method = None,
    criterion: options.Criterion = None,
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
    json: options.Json = False,
) -> int:
    """One run of a learner; regret."""
    settings = options.planner_settings(locals())
    if out is not None:
        refuse_unwritable(out)
    started = time.perf_counter()
    from fmdp.learning.registry import learner_kind
    from fmdp.parameters import Integer, split_assignments
    from fmdp.problems import problem as problem_of
    from fmdp.simulation import Simulation, reference_for

    n_steps = Integer("steps", 10_000, "steps to take", low=1, high=2**53).parse(
        steps, "fmdp learn"
    )
    n_seed = Integer("seed", 0, "seed of the run", low=0, high=2**63).parse(seed, "fmdp learn")
    kind = learner_kind(learner)
    parameters: dict[str, object] = {**split_assignments(set or (), f"learner {learner}")}
    with progress(f"{learner} on {problem}", line_of_run) as report:
        model = problem_of(problem)
        chosen, reason = planner_of(learner, planner, settings, parameters, model)
        made = kind.make(model, parameters, chosen)
        rehearse(learner, made)
        startup = time.perf_counter() - started
        reference = reference_for(model, progress=report)
        simulation = Simulation(model, made, n_seed, reference=reference)
        interrupted = False
        try:
            simulation.run(n_steps, progress=report)
        except KeyboardInterrupt:
            interrupted = True
    run = simulation.result()
    if out is not None:
        made.save(out)
    of_planner = getattr(made, "planner", None)
    result: dict[str, Any] = {
        "problem": problem,
        "learner": learner,
        "parameters": made.settings,
        "planner": None if of_planner is None else of_planner.name,
        "planner_reason": reason or getattr(made, "planner_reason", None),
        "seed": n_seed,
        **{key: getattr(run, key) for key in OF_THE_RUN},
        "states": model.structure.n_states,
        "actions": model.structure.n_actions,
        "seconds_startup": startup,
        "seconds_reference": reference.seconds,
    }
    if json:
        print_json(result)
    else:
        print_run(result, run, interrupted, out)
    return INTERRUPTED if interrupted else 0


def planner_of(
    learner: str,
    name: str | None,
    settings: dict[str, object],
    parameters: dict[str, object],
    model: FactoredMDP,
) -> tuple[Planner | None, str | None]:
    """The planner that the options ask for, None where they leave it to the learner; and why it is
    not the exact one, where they do not name it.

    FSRL always plans under a span budget, which may be given as an option or with --set.
    """
    from fmdp.learning.learner import EXACT_STATES
    from fmdp.planning.choice import choose_planner
    from fmdp.planning.registry import PLANNERS

    if learner == "fsrl":
        for key in ("budget", "split"):
            if key in settings and key in parameters:
                raise InvalidParameter(
                    f"the '{key}' of learner fsrl must be given once; "
                    f"got --span-{key} {settings[key]} and --set {key}={parameters[key]}"
                )
            if key in settings:
                parameters[key] = settings.pop(key)
        if name in (None, "span"):
            # Budget 0 stands for none: the learner has its own.
            made = PLANNERS.find("span").make({**settings, "budget": 0}) if settings else None
            return made, None
    reason = None
    if name is None:
        if not settings:
            return None, None
        limit: Any = settings.get("memory_limit")
        chosen, reason = choose_planner(
            model.structure, most_states=EXACT_STATES, memory_limit=limit
        )
        name = chosen.name
    kind, given = options.asked_planner(name, settings)
    return None if kind is None else kind.make(given), reason


def rehearse(name: str, learner: Learner) -> None:
    """Compile what the run will use, or load it from the cache: two steps on two machines."""
    from fmdp.learning.registry import learner_kind
    from fmdp.problems import problem as problem_of
    from fmdp.registries import is_own
    from fmdp.simulation import Reference, Simulation

    small = problem_of("circle:2")
    planner = getattr(learner, "planner", None)
    if planner is not None and name != "fsrl":
        kind = type(planner)
        planner = kind.make({"ties": "first", **kind.on_any_model}) if is_own(kind) else None
    copy = learner_kind(name).make(small, {}, None if name == "fsrl" else planner)
    Simulation(small, copy, reference=Reference(0.0, "exact", None, 0.0)).run(2)


def print_run(result: dict[str, Any], run: Run, interrupted: bool, out: Path | None) -> None:
    exact = run.gain_kind == "exact"
    decades = [(t, regret) for t, regret in run.curve if t == run.steps or is_power_of_ten(t)]
    parameters = ", ".join(
        f"{key}={value}" for key, value in result["parameters"].items() if value is not None
    )
    rows = [
        ("problem", f"{result['problem']}, {describe_count(result['states'])} states"),
        ("learner", result["learner"] + (f" ({parameters})" if parameters else "")),
        ("planner", planner_text(result)),
        ("steps", f"{run.steps:,}" + (" (interrupted)" if interrupted else "")),
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
    if run.planner_calls is not None:
        unconverged = f", {run.unconverged_plans:,} of them not converged"
        rows.append(
            (
                "episodes",
                f"{run.episodes:,}, {run.planner_calls:,} plans"
                + (unconverged if run.unconverged_plans else ""),
            )
        )
    speed = f"{run.steps / max(run.seconds, 1e-9):,.0f} steps a second"
    startup = seconds_text(result["seconds_startup"])
    apart = f"apart: start-up {startup}, optimal gain {seconds_text(result['seconds_reference'])}"
    rows.append(("time", f"{seconds_text(run.seconds)}, {speed} ({apart})"))
    if out is not None:
        rows.append(("saved", f"the learner, in {out}"))
    print_people(columns(rows))


def is_power_of_ten(t: int) -> bool:
    text = str(t)
    return text[0] == "1" and set(text[1:]) <= {"0"}
