"""`fmdp evaluate`: the gain of a saved policy, exact where it fits, else simulated; where it has a
horizon, its value."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fmdp.cli import options
from fmdp.cli.output import (
    columns,
    interval_text,
    known_number,
    print_json,
    print_people,
    seconds_text,
)
from fmdp.cli.plan import exit_status
from fmdp.cli.progress import progress
from fmdp.memory import describe_count


def evaluate(
    problem: options.Problem,
    policy: Annotated[
        Path,
        typer.Argument(
            metavar="POLICY", help="A policy saved by `fmdp plan --out`.", show_default=False
        ),
    ],
    json: options.Json = False,
) -> int:
    """The gain of a saved policy; its value if it has a horizon."""
    from fmdp.planning.policy import load_policy
    from fmdp.problems import problem as problem_of
    from fmdp.simulation import evaluate as evaluate_policy

    with progress(f"evaluating {policy}") as report:
        model = problem_of(problem)
        saved = load_policy(policy, model.structure)
        found = evaluate_policy(model, saved, progress=report)
    if json:
        print_json(
            {
                "problem": problem,
                "policy": str(policy),
                "kind": found.kind,
                "status": found.status.value,
                "gain": found.gain,
                "gain_lower": found.gain_lower,
                "gain_upper": found.gain_upper,
                "value": found.value,
                "value_lower": None if found.value_bounds is None else found.value_bounds[0],
                "value_upper": None if found.value_bounds is None else found.value_bounds[1],
                "horizon": found.horizon,
                "confidence": found.confidence,
                "iterations": found.iterations,
                "seconds": found.seconds,
                "states": model.structure.n_states,
                "actions": model.structure.n_actions,
            }
        )
        return exit_status(found.status)
    exact = found.kind == "exact"
    how = "by elimination" if exact else "simulated"
    unit = "sweeps" if exact else "steps"
    if found.horizon is not None:
        value = "not known"
        if found.value is not None and found.value_bounds is not None:
            value = known_number(found.value, *found.value_bounds)
        rows = [("value", f"{value} over {found.horizon:,} steps from the initial state ({how})")]
    else:
        assert found.gain_lower is not None
        assert found.gain_upper is not None
        bounds = interval_text(found.gain_lower, found.gain_upper)
        within = found.gain_bounds or (found.gain_lower, found.gain_upper)
        gain = "not known" if found.gain is None else known_number(found.gain, *within)
        label = "certified" if exact else f"{found.confidence:.0%} interval"
        rows = [("gain", f"{gain} ({how})"), (label, bounds)]
    print_people(
        columns(
            [
                ("problem", problem),
                ("size", f"{describe_count(model.structure.n_states)} states"),
                ("policy", str(policy)),
                ("status", f"{found.status.value}: {found.status.message}"),
                *rows,
                ("time", f"{seconds_text(found.seconds)}, {found.iterations:,} {unit}"),
            ]
        )
    )
    return exit_status(found.status)
