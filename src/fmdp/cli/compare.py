"""`fmdp compare`: learners on problems, a sweep and its report in one command.

First what does not fit, with its reason; then the sweep, which goes on where it was interrupted;
then who is ahead, problem by problem, and the report.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli.options import Json, complete_learner
from fmdp.cli.output import columns, print_json, print_people, table
from fmdp.cli.progress import progress
from fmdp.cli.signals import say
from fmdp.cli.sweep import WorkerCount, print_summary, run_spec, team
from fmdp.errors import InvalidParameter, printable

if TYPE_CHECKING:
    from fmdp.experiments.spec import Spec
    from fmdp.experiments.standings import Overall, Standing
    from fmdp.experiments.sweep import SweepSummary
    from fmdp.reports.report import Report

MOST_TABLES = 6
"""Of more problems than a terminal has room for, a line each is printed; standings.csv has all."""


def compare(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEM...",
            help="Problem ids (see `fmdp list`) or model files; none with --suite.",
            show_default=False,
        ),
    ] = None,
    learners: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,key=value...][,NAME...]",
            help="Who is compared; may be given several times. module:Class is a learner of your "
            "own, a policy file a baseline, all everybody. Default: all learners that fit, the "
            "optimal policy and random actions.",
            autocompletion=complete_learner,
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", help="Runs of each learner.", min=1)] = 20,
    steps: Annotated[int, typer.Option(metavar="T", help="Steps of each run.", min=1)] = 10_000,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="paper|wide",
            help="In the place of problems: those of the paper, with its learners too, or problems "
            "of every family.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory of the store and the report.")
    ] = Path("out/compare"),
    workers: WorkerCount = None,
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Send the runs to this Dask scheduler instead."),
    ] = None,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run those again that failed or are damaged.")
    ] = False,
    json: Json = False,
) -> int:
    """Learners side by side: regret, and what a step costs."""
    from fmdp.experiments.comparison import comparison_of, split_learners
    from fmdp.reports.report import write_report

    if dask is not None and workers is not None:
        raise InvalidParameter("--workers and --dask exclude each other; give one of them")
    with progress("looking who fits", compiles=False):
        spec = comparison_of(
            problems or None,
            None if not learners else split_learners(learners),
            suite=suite,
            seeds=seeds,
            steps=steps,
            title=None if suite is not None else _title(problems or ()),
        )
    if not json:
        print_plan(spec)
    summary = run_spec(spec, out, team(workers, dask), retry_failed=retry_failed)
    with progress(f"report of {out}", compiles=False):
        written = write_report(out, spec=spec.hash, waiting=say)
    if json:
        print_json(as_json(spec, summary, written))
    else:
        print()
        print_standings(written)
        print()
        print_summary(summary, retry_failed)
        print(f"page   {printable(str(written.page))}")
    if written.without_figures is not None:
        print(f"fmdp: {written.without_figures}", file=sys.stderr)
        return 1
    return 1 if summary.failed else 0


def _title(problems: Sequence[str]) -> str:
    listed = ", ".join(problems) if len(problems) <= 3 else f"{len(problems)} problems"
    return f"Learners compared on {listed}"


def print_plan(spec: Spec) -> None:
    """What will be run, and what does not fit."""
    labels = list(dict.fromkeys(cell.label for cell in spec.cells))
    runs = len(spec.cells) * len(spec.seeds)
    rows = [
        ("learners", f"{len(labels)}: {', '.join(labels)}"),
        ("problems", f"{len(spec.problems)}: {', '.join(one.id for one in spec.problems)}"),
        ("runs", f"{runs:,} of {spec.steps:,} steps, {len(spec.seeds)} of each pair"),
    ]
    print_people(columns(rows))
    if spec.left_out:
        left_out = [(one.label, one.problem, one.reason) for one in spec.left_out]
        print()
        print_people(table(("does not fit", "problem", "why"), left_out))


def as_json(spec: Spec, summary: SweepSummary, written: Report) -> dict[str, Any]:
    from fmdp.experiments.standings import by_problem, first_of, ranked

    found = written.runs.standings
    problems = by_problem(found)
    return {
        "problems": [one.id for one in spec.problems],
        "learners": list(dict.fromkeys(cell.label for cell in spec.cells)),
        "steps": spec.steps,
        "seeds": list(spec.seeds),
        "runs": {
            "total": summary.total,
            "done": summary.done,
            "failed": summary.failed,
            "already": summary.already,
        },
        "seconds": summary.seconds,
        "left_out": [asdict(one) for one in spec.left_out],
        "standings": [asdict(one) for one in found],
        "winners": [
            {
                "problem": name,
                "labels": [one.label for one in first_of(own)],
                "median": next((one.median for one in first_of(own)), None),
                "finding": written.analysis.verdict_on_first(own),
            }
            for (name, _), own in problems.items()
        ],
        "overall": [asdict(one) for one in ranked(found)],
        "sentences": written.standings,
        "notes": written.notes,
        "errors": dict(summary.errors),
        "store": str(summary.path),
        "page": str(written.page),
        "files": [str(path) for path in written.files],
    }


def print_standings(written: Report) -> None:
    """A table a problem, or a line a problem where there are many; then all problems together."""
    from fmdp.experiments.standings import by_problem, ranked

    problems = by_problem(written.runs.standings)
    if len(problems) <= MOST_TABLES:
        for own in problems.values():
            print_problem(own)
            print()
    else:
        print_winners(written)
        print()
    if len(problems) > 1:
        print_overall(ranked(written.runs.standings), len(problems))
        print()
    for paragraph in (*written.standings, *written.notes):
        print(f"{printable(paragraph)}\n")


def print_problem(own: Sequence[Standing]) -> None:
    from fmdp.experiments.measures import title_of
    from fmdp.reports.wording import mean_text, number_text, per_step, ratio_text

    first = own[0]
    print(
        f"{printable(first.problem)}: {title_of(first.measure)} after {first.steps:,} steps, "
        f"{_time(own)} a step"
    )
    rows = [
        (
            "" if one.place is None else str(one.place),
            one.label,
            number_text(one.median),
            mean_text(one),
            number_text(one.worst),
            f"{number_text(one.lower_quartile)} to {number_text(one.upper_quartile)}",
            ratio_text(one.ratio),
            per_step(one.seconds_per_step),
            "-" if one.planner_calls is None else f"{one.planner_calls:,.0f}",
            "-" if one.unconverged_plans is None else f"{one.unconverged_plans:,}",
            str(one.runs),
        )
        for one in own
    ]
    heads = (
        "",
        "learner",
        "median",
        "mean (95 %)",
        "worst",
        "quartiles",
        "by best",
        "a step",
        "plans",
        "unconverged",
        "runs",
    )
    print_people(table(heads, rows, right=(heads[0], *heads[2:])))


def print_winners(written: Report) -> None:
    """The first and the second of each problem."""
    from fmdp.experiments.measures import title_of
    from fmdp.experiments.standings import by_problem
    from fmdp.reports.wording import mean_text, number_text

    rows = []
    for (name, _), own in by_problem(written.runs.standings).items():
        learners = [one for one in own if one.role == "learner"]
        told = [
            f"{one.label} {number_text(one.median)} ({mean_text(one)}, {number_text(one.worst)})"
            for one in learners[:2]
        ]
        what = title_of(own[0].measure)
        rows.append((name, what, *(*told, "-", "-")[:2], written.analysis.verdict_on_first(own)))
    heads = ("problem", "median (mean, worst run) of", "lowest", "second", "on the same seeds")
    print_people(table(heads, rows))
    print("every learner on every problem: standings.csv")


def print_overall(rows: Sequence[Overall], of: int) -> None:
    from fmdp.reports.wording import per_step, ratio_text

    print("over the problems: medians in units of the best learner's, geometric mean and largest")
    print_people(
        table(
            ("learner", "problems", "first on", "mean", "largest", "a step"),
            [
                (
                    one.label,
                    f"{one.problems} of {of}",
                    str(one.wins) if one.role == "learner" else "",
                    ratio_text(one.ratio_mean),
                    ratio_text(one.ratio_largest),
                    per_step(one.seconds_per_step),
                )
                for one in rows
            ],
            right=("problems", "first on", "mean", "largest", "a step"),
        )
    )


def _time(own: Sequence[Standing]) -> str:
    return "processor time" if own[0].clock == "processor" else "wall clock"
