"""`fmdp evaluate`: the gain of a saved policy, exact where it fits, else simulated."""

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
    """The gain of a saved policy."""
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
                "confidence": found.confidence,
                "iterations": found.iterations,
                "seconds": found.seconds,
                "states": model.structure.n_states,
                "actions": model.structure.n_actions,
            }
        )
        return exit_status(found.status)
    bounds = interval_text(found.gain_lower, found.gain_upper)
    within = found.gain_bounds or (found.gain_lower, found.gain_upper)
    gain = "not known" if found.gain is None else known_number(found.gain, *within)
    exact = found.kind == "exact"
    how = "by elimination" if exact else "simulated"
    unit = "sweeps" if exact else "steps"
    print_people(
        columns(
            [
                ("problem", problem),
                ("size", f"{describe_count(model.structure.n_states)} states"),
                ("policy", str(policy)),
                ("status", f"{found.status.value}: {found.status.message}"),
                ("gain", f"{gain} ({how})"),
                ("certified", bounds) if exact else (f"{found.confidence:.0%} interval", bounds),
                ("time", f"{seconds_text(found.seconds)}, {found.iterations:,} {unit}"),
            ]
        )
    )
    return exit_status(found.status)
