"""`fmdp inspect`: what a saved policy does in the long run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp._base.memory import describe_count
from fmdp._base.parameters import Integer
from fmdp.cli import options
from fmdp.cli.output import (
    columns,
    known_number,
    print_json,
    print_people,
    refuse_unwritable,
    seconds_text,
    short_number,
    table,
    upper_text,
)
from fmdp.cli.progress import progress
from fmdp.errors import FileProblem, InvalidParameter

if TYPE_CHECKING:
    from rich.console import RenderableType

    from fmdp.planning.occupancy.records import Summary, Visited

PAGE = "inspect.html"
"""The file that `--out` writes."""
_VISITED = Integer("most-visited", 10, "states that are listed", low=0)
_PRINTED_VALUES = 12
"""Most values of one variable that are printed; the JSON object has all."""


def inspect(
    problem: options.Problem,
    policy: options.PolicyFile,
    event: Annotated[
        list[str] | None,
        typer.Option(
            "--event",
            metavar="NAME=CONDITION",
            help="Count how often a condition on named values holds, such as 'full=queue>=3' or "
            "'idle=crew=free and queue>0'; may be repeated.",
        ),
    ] = None,
    most_visited: Annotated[
        str, typer.Option("--most-visited", metavar="N", help="Number of states to list.")
    ] = "10",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help=f"Write a page with pictures, {PAGE}, to this directory, created if missing.",
        ),
    ] = None,
    steps: Annotated[
        str, typer.Option(metavar="T", help="If simulated: number of steps of all runs together.")
    ] = "200000",
    seed: Annotated[str, typer.Option(metavar="S", help="If simulated: seed of the runs.")] = "0",
    json: options.Json = False,
) -> int:
    """Show what a saved policy does in the long run.

    The numbers are exact, with a certified error, where the long-run law of the policy can be
    computed; otherwise they are simulated, with confidence intervals.
    """
    from fmdp.planning.policies.files import load_policy
    from fmdp.problems import problem as problem_of
    from fmdp.simulation import inspect as inspect_policy
    from fmdp.simulation.evaluate import SEED, STEPS

    n_steps, n_seed = STEPS.parse(steps, "fmdp inspect"), SEED.parse(seed, "fmdp inspect")
    n_visited = _VISITED.parse(most_visited, "fmdp inspect")
    events = dict(_event(text) for text in event or ())
    if len(events) < len(event or ()):
        raise InvalidParameter("--event: two events have the same name")
    page = None if out is None else page_in(out, PAGE)
    with progress(f"inspecting {policy}") as report:
        model = problem_of(problem)
        saved: Any = load_policy(policy, model.structure)
        summary = inspect_policy(
            model,
            saved,
            events=events,
            most_visited=n_visited,
            steps=n_steps,
            seed=n_seed,
            progress=report,
        )
    if page is not None:
        from fmdp.model.io.files import write_atomically
        from fmdp.reports.plan_page import plan_page

        write_atomically(page, plan_page(summary, problem).encode())
    sizes = {"states_count": model.structure.n_states, "actions_count": model.structure.n_actions}
    if json:
        written = None if page is None else str(page)
        print_json(
            {
                "problem": problem,
                "policy": str(policy),
                **summary.to_dict(),
                **sizes,
                "page": written,
            }
        )
        return 0
    print_people(*_parts(problem, policy, summary))
    if page is not None:
        print(f"\nwrote {page}")
    return 0


def page_in(folder: Path, name: str) -> Path:
    """Return the path of a file in a directory, which is created if missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileProblem(f"cannot write to {folder}: {error.strerror}") from None
    refuse_unwritable(folder / name)
    return folder / name


def _event(text: str) -> tuple[str, str]:
    name, sign, condition = text.partition("=")
    if not sign or not name.strip() or not condition.strip():
        raise InvalidParameter(
            f"--event must be NAME=CONDITION, as in 'full=queue>=3'; got {text!r}"
        )
    return name.strip(), condition.strip()


def percent(share: float) -> str:
    """Return a share of time as a percentage with two decimals, more for small ones."""
    return f"{100 * share:.2f} %" if share == 0 or share >= 1e-4 else f"{100 * share:.1e} %"


def pairs(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in named.items())


def _parts(problem: str, policy: Path, summary: Summary) -> Iterable[RenderableType]:
    assert summary.model is not None
    how = "exact" if summary.kind == "exact" else f"simulated, {summary.confidence:.0%} intervals"
    if summary.error is not None:
        how += f"; every share within {upper_text(summary.error, 2)}"
    rows = [
        ("problem", problem),
        ("size", f"{describe_count(summary.model.structure.n_states)} states"),
        ("policy", str(policy)),
        ("numbers", how),
        ("gain", short_number(summary.gain)),
        ("time", seconds_text(summary.seconds)),
    ]
    if summary.caveat is not None:
        rows.append(("caveat", summary.caveat))
    yield columns(rows)
    yield _means("reward factor", summary.factors, summary.bounds["factors"])
    if summary.quantities:
        yield _means("quantity", summary.quantities, summary.bounds["quantities"])
    yield _shares("action", summary.actions)
    yield _shares("variable", summary.states)
    if summary.events:
        yield table(
            ["event", "share of time", "steps from one to the next", "lasts"],
            [
                (n, percent(e.share), short_number(e.return_time), _duration(e.duration))
                for n, e in summary.events.items()
            ],
        )
    if summary.most_visited:
        yield table(
            ["share of time", "state", "action", "runner-up", "costs"],
            [_visited(v) for v in summary.most_visited],
            right=["share of time"],
        )


def _means(head: str, means: Mapping[str, float], bounds: Mapping[str, Any]) -> RenderableType:
    rows = [(n, known_number(v, *(bounds[n] or (None, None)))) for n, v in means.items()]
    return table([head, "mean per step"], rows, right=["mean per step"])


def _duration(steps: float | None) -> str:
    if steps is None:
        return ""
    return "for ever" if math.isinf(steps) else f"{short_number(steps)} steps"


def _shares(head: str, shares: Mapping[str, Mapping[str, float]]) -> RenderableType:
    rows = []
    for name, by_value in shares.items():
        often = sorted(by_value.items(), key=lambda entry: -entry[1])[:_PRINTED_VALUES]
        text = ", ".join(f"{value} {percent(share)}" for value, share in often)
        more = len(by_value) - len(often)
        rows.append((name, text + (f", {more} more" if more else "")))
    return table([head, "share of time of each value"], rows)


def _visited(visited: Visited) -> tuple[str, ...]:
    runner_up = "" if visited.runner_up is None else pairs(visited.runner_up)
    gap = "" if visited.gap is None else short_number(round(visited.gap, 9) + 0.0, 4)
    return percent(visited.share), pairs(visited.state), pairs(visited.action), runner_up, gap
