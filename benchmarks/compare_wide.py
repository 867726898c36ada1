"""The comparisons of docs/compare.md: every learner on the problems of a suite.

    python -m benchmarks.compare_wide [--workers N]              run, store the numbers, write
    python -m benchmarks.compare_wide --suite theory             the same for another suite
    python -m benchmarks.compare_wide --seeds 2 --steps 400      a first look
    python -m benchmarks.compare_wide --write                    again from the stored numbers

It is `fmdp compare --suite wide --out build/compare-wide` (`--store`): what is killed goes on where
it was, and learners that came since are the only ones to be run. The numbers go into
docs/figures/compare-wide.json; the figure, and the text between `<!-- compare: wide NAME -->` and
`<!-- compare ends: wide NAME -->` in the page, are made from them alone (tests/test_compare_wide.py
compares). Times are processor times of the machine that ran it, each run on one thread. Cost of all
with eleven learners, estimated from one seed: 35 minutes of processor time, more than half of it
TSDE and UCRL3 on the two problems of 128 states.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.analysis import analyse
from fmdp.experiments.comparison import SEEDS, STEPS, comparison_of
from fmdp.experiments.dataset import gather
from fmdp.experiments.executors import Processes
from fmdp.experiments.progress import progress_line
from fmdp.experiments.standings import Standing, by_problem, ranked
from fmdp.experiments.store import LeftOut, Store
from fmdp.experiments.sweep import run_sweep
from fmdp.reports.standings_figure import MOST_RATIO, figure
from fmdp.reports.wording import (
    mean_text,
    number_text,
    per_step,
    ratio_text,
    sentences,
    standings_caption,
)

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "compare.md"
FIGURES = ROOT / "docs" / "figures"
SUITES = ("wide", "theory")

Numbers = Mapping[str, Any]


def file_of(suite: str) -> Path:
    """Return the file with the numbers of a suite."""
    return FIGURES / f"compare-{suite}.json"


def stored(suite: str) -> dict[str, Any]:
    """Return the stored numbers of a suite."""
    numbers: dict[str, Any] = json.loads(file_of(suite).read_text(encoding="utf-8"))
    return {"suite": suite, **numbers}


# ---- what is run --------------------------------------------------------------------------------


def run(suite: str, store: Path, seeds: int, steps: int, workers: int | None) -> dict[str, Any]:
    """The numbers of the comparison; what the store has is not run again."""
    spec = comparison_of(suite=suite, seeds=seeds, steps=steps)
    last = ""

    def report(news: Any) -> None:
        nonlocal last
        line = progress_line(news, news.seconds)
        if line != last:
            print(line, file=sys.stderr, flush=True)
        last = line

    summary = run_sweep(spec, store, workers=Processes(workers), retry_failed=True, progress=report)
    for failed, error in summary.errors.items():
        print(f"failed: {failed}: {error.strip().splitlines()[-1]}", file=sys.stderr)
    with Store.open(store) as opened:
        (kept,) = [one for one in opened.specs() if one.hash == spec.hash]
        found = gather(opened, [kept])
        machines = sorted({run.machine for cell in found.cells for run in cell.runs})
    analysis = analyse(found)
    return {
        "results_version": RESULTS_VERSION,
        "seeds": seeds,
        "steps": steps,
        "problems": [one.id for one in spec.problems],
        "machines": machines,
        "failed": len(found.grouped.failed),
        "sentences": sentences(found, analysis),
        "findings": {
            name: analysis.verdict_on_first(own)
            for (name, _), own in by_problem(found.standings).items()
        },
        "left_out": [asdict(one) for one in found.grouped.left_out],
        "standings": [
            {key: rounded(value) for key, value in asdict(one).items()} for one in found.standings
        ],
    }


def rounded(value: Any) -> Any:
    """Six digits: the page has three at most."""
    return float(f"{value:.6g}") if isinstance(value, float) else value


# ---- what is written ----------------------------------------------------------------------------


def standings_in(numbers: Numbers) -> list[Standing]:
    return [Standing(**one) for one in numbers["standings"]]


def left_out_in(numbers: Numbers) -> list[LeftOut]:
    return [LeftOut(**one) for one in numbers["left_out"]]


def _picture(numbers: Numbers) -> str:
    words = "Median gap regret of every learner on every problem, by that of the best"
    place = f"figures/compare-{numbers['suite']}.png"
    return (
        f"[![{words}]({place})]({place})\n\n{standings_caption(standings_in(numbers), MOST_RATIO)}"
    )


def _overall(numbers: Numbers) -> str:
    many = len(numbers["problems"])
    seeds, steps = numbers["seeds"], numbers["steps"]
    lines = [
        f"The next table summarises {many} problems with {seeds} runs of {steps:,} steps each. The",
        "means and the largest are of medians divided by that of the best learner of the problem:",
        "",
        "| learner | problems | first on | geometric mean | largest | time per step |",
        "|---|---|---|---|---|---|",
    ]
    for one in ranked(standings_in(numbers)):
        first = one.wins if one.role == "learner" else ""
        lines.append(
            f"| {one.label} | {one.problems} of {many} | {first} | {ratio_text(one.ratio_mean)} | "
            f"{ratio_text(one.ratio_largest)} | {per_step(one.seconds_per_step)} |"
        )
    return "\n".join(lines)


def _winners(numbers: Numbers) -> str:
    lines = [
        "| problem | lowest median (mean, worst run) | second | random | on the same seeds |",
        "|---|---|---|---|---|",
    ]
    for (name, _), own in by_problem(standings_in(numbers)).items():
        learners = [one for one in own if one.role == "learner"]
        told = [
            f"{one.label} {number_text(one.median)} ({mean_text(one)}, {number_text(one.worst)})"
            for one in learners[:2]
        ]
        random = next((number_text(one.median) for one in own if one.role == "lower"), "")
        lines.append(f"| `{name}` | {' | '.join(told)} | {random} | {numbers['findings'][name]} |")
    return "\n".join(lines)


def _words(numbers: Numbers) -> str:
    return "\n\n".join(numbers["sentences"])


def _left_out(numbers: Numbers) -> str:
    found = left_out_in(numbers)
    if not found:
        return "Every learner fits every problem of the suite."
    lines = [f"* {one.label} on `{one.problem}`: {one.reason}" for one in found]
    head = "These pairs of learner and problem do not fit, which is known before any run:"
    return "\n".join([head, "", *lines])


BLOCKS: dict[str, Callable[[Numbers], str]] = {
    "picture": _picture,
    "overall": _overall,
    "winners": _winners,
    "words": _words,
    "left-out": _left_out,
}


def filled(text: str, numbers: Numbers) -> str:
    """The page with the blocks of these numbers."""
    for block, made in BLOCKS.items():
        name = f"{numbers['suite']} {block}"
        head, end = f"<!-- compare: {name} -->", f"<!-- compare ends: {name} -->"
        many = text.count(head)
        if many != 1 or text.count(end) != 1:
            raise SystemExit(f"{PAGE.name} must have the block {name!r} once; it has {many}")
        before, after = text.partition(head)[0], text.partition(end)[2]
        text = f"{before}{head}\n{made(numbers)}\n{end}{after}"
    return text


def write(numbers: Numbers) -> None:
    drawn = figure(standings_in(numbers), left_out_in(numbers))
    picture = file_of(numbers["suite"]).with_suffix(".png")
    picture.write_bytes(drawn.files["png"])
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {picture.relative_to(ROOT)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--suite", choices=SUITES, default="wide")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--store", type=Path, help="by default build/compare-SUITE")
    parser.add_argument("--write", action="store_true", help="the page again from what is stored")
    given = parser.parse_args()
    if given.write:
        write(stored(given.suite))
        return
    store = given.store or ROOT / "build" / f"compare-{given.suite}"
    numbers = run(given.suite, store, given.seeds, given.steps, given.workers)
    file_of(given.suite).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    write({"suite": given.suite, **numbers})


if __name__ == "__main__":
    main()
