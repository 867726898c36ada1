"""`fmdp evaluate`: the gain of a saved policy, or its value if it has a horizon.

It is computed exactly if that fits into memory, otherwise simulated.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.memory import describe_count
from fmdp.cli import options
from fmdp.cli.output import (
    columns,
    interval_text,
    known_number,
    print_json,
    print_people,
    seconds_text,
)
from fmdp.cli.plan_output import exit_status
from fmdp.cli.progress import progress

if TYPE_CHECKING:
    from fmdp.model import FactoredMDP
    from fmdp.planning.evaluate import Evaluation

_PRINTED_CLASSES = 4
"""Recurrent classes that are printed; `--json` has more."""


def evaluate(
    problem: options.Problem,
    policy: options.PolicyFile,
    steps: Annotated[
        str, typer.Option(metavar="T", help="If simulated: number of steps of all runs together.")
    ] = "1000000",
    seed: Annotated[str, typer.Option(metavar="S", help="If simulated: seed of the runs.")] = "0",
    max_seconds: Annotated[
        str | None,
        typer.Option(metavar="S", help="Stop after S seconds; the bounds so far hold."),
    ] = None,
    json: options.Json = False,
) -> int:
    """Compute the gain of a saved policy.

    The gain is exact if that fits into memory, otherwise simulated, with a confidence interval. A
    policy with a horizon has a value instead of a gain.
    """
    from fmdp.planning.policies.files import load_policy
    from fmdp.problems import problem as problem_of
    from fmdp.simulation import evaluate as evaluate_policy
    from fmdp.simulation.evaluate import MAX_SECONDS, SEED, STEPS

    n_steps, n_seed = STEPS.parse(steps, "fmdp evaluate"), SEED.parse(seed, "fmdp evaluate")
    limit = None if max_seconds is None else MAX_SECONDS.parse(max_seconds, "fmdp evaluate")
    with progress(f"evaluating {policy}") as report:
        model = problem_of(problem)
        saved = load_policy(policy, model.structure)
        evaluation = evaluate_policy(
            model, saved, max_seconds=limit, steps=n_steps, seed=n_seed, progress=report
        )
    if json:
        sizes = {"states": model.structure.n_states, "actions": model.structure.n_actions}
        keys = {**_keys(evaluation), **_class_keys(evaluation, model)}
        print_json({"problem": problem, "policy": str(policy), **keys, **sizes})
    else:
        unit = "sweeps" if evaluation.kind == "exact" else "steps"
        print_people(
            columns(
                [
                    ("problem", problem),
                    ("size", f"{describe_count(model.structure.n_states)} states"),
                    ("policy", str(policy)),
                    ("status", f"{evaluation.status.value}: {evaluation.status.message}"),
                    *_rows(evaluation),
                    *_class_rows(evaluation, model),
                    (
                        "time",
                        f"{seconds_text(evaluation.seconds)}, {evaluation.iterations:,} {unit}",
                    ),
                ]
            )
        )
    return exit_status(evaluation.status)


def _keys(evaluation: Evaluation) -> dict[str, Any]:
    """Return the keys and values that `--json` prints about an evaluation."""
    value_lower, value_upper = evaluation.value_bounds or (None, None)
    certified_lower, certified_upper = evaluation.certified_bounds or (None, None)

    def attributes(*names: str) -> dict[str, Any]:
        return {name: getattr(evaluation, name) for name in names}

    return {
        **attributes("kind", "status", "gain", "gain_lower", "gain_upper", "value"),
        "value_lower": value_lower,
        "value_upper": value_upper,
        **attributes("horizon", "confidence"),
        "certified_lower": certified_lower,
        "certified_upper": certified_upper,
        **attributes("run_gains", "batch_steps", "caveat", "iterations", "seconds"),
    }


def _class_keys(evaluation: Evaluation, model: FactoredMDP) -> dict[str, Any]:
    """Return the keys and values that `--json` prints about recurrent classes."""
    classes = [
        {
            "states": some.states,
            "example": model.structure.naming.states.named(some.example),
            "gain_lower": some.gain_lower,
            "gain_upper": some.gain_upper,
        }
        for some in evaluation.classes
    ]
    return {"n_classes": evaluation.n_classes, "classes": classes}


def _class_rows(evaluation: Evaluation, model: FactoredMDP) -> list[tuple[str, str]]:
    """Return the printed rows about recurrent classes, if there are several."""
    if not evaluation.classes or evaluation.n_classes is None:
        return []
    listed = evaluation.classes[:_PRINTED_CLASSES]
    more = evaluation.n_classes - len(listed)
    rest = f"; the {len(listed)} largest:" if more else ":"
    rows = [("classes", f"{evaluation.n_classes:,} sets of states that are never left{rest}")]
    for some in listed:
        named = model.structure.naming.states.named(some.example)
        gain = interval_text(some.gain_lower, some.gain_upper)
        state = ", ".join(map("=".join, named.items()))
        rows.append(("", f"gain {gain}: {describe_count(some.states)} states such as {state}"))
    return rows


def _gain_text(gain: float | None, within: tuple[float, float], how: str) -> str:
    """Return the known digits of a gain; if simulated, to two digits of its interval."""
    if gain is None:
        return "not known"
    width = within[1] - within[0]
    if how != "simulated" or width <= 0.0:
        return known_number(gain, *within)
    return f"{gain:.{max(0, 1 - math.floor(math.log10(width)))}f}"


def _rows(evaluation: Evaluation) -> list[tuple[str, str]]:
    """Return the printed rows about the gain, or about the value over a horizon."""
    how = "by elimination" if evaluation.kind == "exact" else "simulated"
    if evaluation.horizon is not None:
        value = "not known"
        if evaluation.value is not None and evaluation.value_bounds is not None:
            value = known_number(evaluation.value, *evaluation.value_bounds)
        when = f"over {evaluation.horizon:,} steps from the initial state"
        return [("value", f"{value} {when} ({how})")]
    assert evaluation.gain_lower is not None
    assert evaluation.gain_upper is not None
    bounds = (evaluation.gain_lower, evaluation.gain_upper)
    within = evaluation.gain_bounds or bounds
    rows = [("gain", f"{_gain_text(evaluation.gain, within, how)} ({how})")]
    if evaluation.confidence is None:
        rows.append(("certified bounds", interval_text(*bounds)))
    else:
        assumed = f"if no unseen behaviour lasts longer than {evaluation.batch_steps:,} steps"
        label = f"{evaluation.confidence:.0%} interval"
        rows.append((label, f"{interval_text(*bounds, least_digits=2)}, {assumed}"))
        assert evaluation.certified_bounds is not None
        rows.append(("certified bounds", interval_text(*evaluation.certified_bounds)))
    if evaluation.run_gains is not None:
        runs = f"{len(evaluation.run_gains)} from different states, with gains of"
        spread = interval_text(min(evaluation.run_gains), max(evaluation.run_gains), least_digits=3)
        rows.append(("runs", f"{runs} {spread}"))
    if evaluation.caveat is not None:
        rows.append(("caveat", evaluation.caveat))
    return rows
