"""`fmdp compare`: compare learners on problems, a sweep and its report in one command.

It prints which learners do not fit, with reasons, runs the sweep, which resumes if it was
interrupted, prints the standings of each problem, and writes the report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fmdp.cli import options
from fmdp.cli.output import columns, print_json, print_people, table
from fmdp.cli.progress import progress
from fmdp.cli.report import warn_of_figures
from fmdp.cli.signals import say
from fmdp.cli.sweep import make_workers, print_summary, run_spec
from fmdp.errors import printable

if TYPE_CHECKING:
    from fmdp.experiments.spec import Spec
    from fmdp.experiments.standings import Overall, Standing
    from fmdp.experiments.sweep import SweepSummary
    from fmdp.reports.report import Report

MOST_TABLES = 6
"""With more problems only one line each is printed; standings.csv has everything."""


def compare(
    problems: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PROBLEM...",
            help="Problem ids (see `fmdp list`) or model files; not with --suite.",
        ),
    ] = None,
    learners: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[,key=value...][,NAME...]",
            help="Learners to compare; may be repeated. module:Class for your own, a policy file "
            "for a baseline, all for every learner. Default: all learners that fit the problems, "
            "the optimal policy and random actions.",
            autocompletion=options.complete_learner,
        ),
    ] = None,
    seeds: options.Runs = 20,
    steps: options.Steps = 10_000,
    suite: Annotated[
        str | None,
        typer.Option(
            metavar="paper|wide",
            help="Instead of PROBLEM: the problems of the paper, with its learners, or (wide) "
            "problems of every family.",
        ),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR", help="Directory of the runs and the report; resumed if it exists."
        ),
    ] = Path("out/compare"),
    workers: options.WorkerCount = None,
    dask: options.DaskAddress = None,
    retry_failed: options.RetryFailed = False,
    latex: options.Latex = False,
    json: options.Json = False,
) -> int:
    """Compare learners on problems: regret and time per step.

    Finished runs are stored and never repeated. After Ctrl-C the same command continues.
    """
    from fmdp.experiments.comparison import comparison_of, split_learners
    from fmdp.reports.report import write_report

    team = make_workers(workers, dask)
    with progress("checking which learners fit", compiles=False):
        spec = comparison_of(
            problems or None,
            None if not learners else split_learners(learners),
            suite=suite,
            seeds=seeds,
            steps=steps,
            title=None if suite is not None else _title(problems or ()),
        )
    if not json:
        print_setup(spec)
    summary = run_spec(spec, out, team, retry_failed=retry_failed)
    with progress(f"report of {out}", compiles=False):
        written = write_report(out, spec=spec.hash, latex=latex, waiting=say)
    if json:
        print_json(as_json(spec, summary, written))
    else:
        print()
        print_standings(written)
        print()
        print_summary(summary, retry_failed)
        print(f"page   {printable(str(written.page))}")
    status = warn_of_figures(written)
    return 1 if summary.failed else status


def _title(problems: Sequence[str]) -> str:
    listed = ", ".join(problems) if len(problems) <= 3 else f"{len(problems)} problems"
    return f"Learners compared on {listed}"


def print_setup(spec: Spec) -> None:
    """Print what will be run, and which learners do not fit."""
    labels = list(dict.fromkeys(cell.label for cell in spec.cells))
    runs = len(spec.cells) * len(spec.seeds)
    rows = [
        ("learners", f"{len(labels)}: {', '.join(labels)}"),
        ("problems", f"{len(spec.problems)}: {', '.join(problem.id for problem in spec.problems)}"),
        ("runs", f"{runs:,} of {spec.steps:,} steps, {len(spec.seeds)} per learner and problem"),
    ]
    print_people(columns(rows))
    if spec.left_out:
        left_out = [(cell.label, cell.problem, cell.reason) for cell in spec.left_out]
        print()
        print_people(table(("does not fit", "problem", "why"), left_out))


def as_json(spec: Spec, summary: SweepSummary, written: Report) -> dict[str, Any]:
    from fmdp.experiments.standings import by_problem, first_of, ranked

    standings = written.runs.standings
    return {
        "problems": [problem.id for problem in spec.problems],
        "learners": list(dict.fromkeys(cell.label for cell in spec.cells)),
        "steps": spec.steps,
        "seeds": list(spec.seeds),
        "runs": {key: getattr(summary, key) for key in ("total", "done", "failed", "already")},
        "seconds": summary.seconds,
        "left_out": [asdict(cell) for cell in spec.left_out],
        "standings": [asdict(standing) for standing in standings],
        "winners": [
            {
                "problem": name,
                "labels": [winner.label for winner in first_of(ranking)],
                "median": next((winner.median for winner in first_of(ranking)), None),
                "finding": written.analysis.verdict_on_first(ranking),
            }
            for (name, _), ranking in by_problem(standings).items()
        ],
        "overall": [asdict(overall) for overall in ranked(standings)],
        "sentences": written.standings,
        "notes": written.notes,
        "errors": dict(summary.errors),
        "store": str(summary.path),
        "page": str(written.page),
        "files": [str(path) for path in written.files],
    }


def print_standings(written: Report) -> None:
    """Print one table (or line, if there are many) per problem, then all problems together."""
    from fmdp.experiments.standings import by_problem, ranked

    problems = by_problem(written.runs.standings)
    if len(problems) <= MOST_TABLES:
        for ranking in problems.values():
            print_problem(ranking)
            print()
    else:
        print_winners(written)
        print()
    if len(problems) > 1:
        print_overall(ranked(written.runs.standings), len(problems))
        print()
    for paragraph in (*written.standings, *written.notes):
        print(f"{printable(paragraph)}\n")


def print_problem(ranking: Sequence[Standing]) -> None:
    from fmdp.experiments.measures import title_of
    from fmdp.reports.wording import mean_text, number_text, per_step, ratio_text

    first = ranking[0]
    clock = "processor time" if first.clock == "processor" else "wall clock time"
    print(
        f"{printable(first.problem)}: {title_of(first.measure)} after {first.steps:,} steps, "
        f"{clock} per step"
    )
    rows = [
        (
            "" if standing.place is None else str(standing.place),
            standing.label,
            number_text(standing.median),
            mean_text(standing),
            number_text(standing.worst),
            f"{number_text(standing.lower_quartile)} to {number_text(standing.upper_quartile)}",
            ratio_text(standing.ratio),
            per_step(standing.seconds_per_step),
            "-" if standing.planner_calls is None else f"{standing.planner_calls:,.0f}",
            "-" if standing.unconverged_plans is None else f"{standing.unconverged_plans:,}",
            str(standing.runs),
        )
        for standing in ranking
    ]
    heads = (
        *("", "learner", "median", "mean (95 %)", "worst", "quartiles"),
        *("by best", "per step", "plans", "unconverged", "runs"),
    )
    print_people(table(heads, rows, right=(heads[0], *heads[2:])))


def print_winners(written: Report) -> None:
    """Print the best and the second-best learner of each problem."""
    from fmdp.experiments.measures import title_of
    from fmdp.experiments.standings import by_problem
    from fmdp.reports.wording import mean_text, number_text

    rows = []
    for (name, _), ranking in by_problem(written.runs.standings).items():
        learners = [standing for standing in ranking if standing.role == "learner"]
        best = [
            f"{standing.label} {number_text(standing.median)} "
            f"({mean_text(standing)}, {number_text(standing.worst)})"
            for standing in learners[:2]
        ]
        what = title_of(ranking[0].measure)
        finding = written.analysis.verdict_on_first(ranking)
        rows.append((name, what, *(*best, "-", "-")[:2], finding))
    heads = ("problem", "median (mean, worst run) of", "lowest", "second", "on the same seeds")
    print_people(table(heads, rows))
    print("standings.csv has every learner on every problem")


def print_overall(rows: Sequence[Overall], of: int) -> None:
    from fmdp.reports.wording import per_step, ratio_text

    print("all problems: median divided by that of the best learner, geometric mean and largest")
    print_people(
        table(
            ("learner", "problems", "first on", "mean", "largest", "per step"),
            [
                (
                    row.label,
                    f"{row.problems} of {of}",
                    str(row.wins) if row.role == "learner" else "",
                    ratio_text(row.ratio_mean),
                    ratio_text(row.ratio_largest),
                    per_step(row.seconds_per_step),
                )
                for row in rows
            ],
            right=("problems", "first on", "mean", "largest", "per step"),
        )
    )
