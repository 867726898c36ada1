"""The wide comparison of docs/compare.md: every learner on the problems of the suite `wide`.

    python -m benchmarks.compare_wide [--workers N]              run, store the numbers, write
    python -m benchmarks.compare_wide --seeds 2 --steps 400      a first look
    python -m benchmarks.compare_wide --write                    again from the stored numbers

Every registered learner runs with its defaults, as in `fmdp compare --suite wide`, and once more as
its authors run it where that differs (`entries`). Runs are kept in build/compare-wide (`--store`),
so an interrupted comparison continues, and only what is missing is run. The numbers go into
docs/figures/compare-wide.json. The figures, and the text between `<!-- compare: NAME -->` and
`<!-- compare ends: NAME -->` in the page, are made from them alone (tests/test_compare_wide.py).
Times are processor times of the machine that ran it, one thread per run.

Slow pairs are left out (TOO_SLOW) and listed on the page; slow learners have fewer seeds (FEWER).
The rest takes 22 minutes of processor time.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import fmdp
from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.analysis import analyse
from fmdp.experiments.api import problems_of
from fmdp.experiments.comparison import SEEDS, STEPS, everybody
from fmdp.experiments.compatibility import incompatibility
from fmdp.experiments.dataset import gather
from fmdp.experiments.executors import Processes
from fmdp.experiments.progress import progress_line
from fmdp.experiments.spec import PlannedRun, Spec, cell_of
from fmdp.experiments.standings import (
    Standing,
    by_problem,
    geometric_mean,
    learners_of,
    ranked,
)
from fmdp.experiments.store import LeftOut, Store
from fmdp.experiments.suites import SUITES
from fmdp.experiments.sweep import run_sweep
from fmdp.learning.flat import Flat
from fmdp.learning.imed_rl import IMEDRL
from fmdp.learning.learner import Learner
from fmdp.learning.registry import LEARNERS
from fmdp.learning.unknown.learner import FullSizeScopes
from fmdp.measures import span
from fmdp.model import FactoredMDP
from fmdp.reports.figures import SETTINGS, saved
from fmdp.reports.standings_figure import MOST_RATIO, figure
from fmdp.reports.style import COLOURS, GREY
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
FILE = FIGURES / "compare-wide.json"

PUBLISHED = " published"
"""Ends the label of a learner with the settings of its authors."""
KNOWN = " known rewards"
"""Ends the label of a learner of which the only setting of its authors is `rewards=known`."""
FAITHFUL = ("ucrl2", "ucrl3", "kl-ucrl", "imed-rl", "dbn-ucrl", "ucrl-factored")
"""Learners whose `faithful=true` needs nothing else; the first four are flat."""
SLOW = "left out for its time"
"""Reason of a pair that fits and is too slow."""
DRAWS = ("circle:4,seed=2", "circle:4,seed=3")
MIDDLE = (
    "star:5,dynamics=ippc",
    "bi-ring:5,dynamics=guestrin",
    "riverswim:2",
    "epidemic:5,graph=grid",
    "random:5,seed=7",
    "random:3,values=3,seed=2",
)
"""Problems with 27 to 36 joint states."""
LARGE = (
    "circle:7",
    "circle:7,dynamics=guestrin",
    "grid:6",
    "machines:2",
    "maintenance:3",
    "coffee",
    "taxi:3",
)
"""Problems with 64 to 135 joint states."""
SINGLE = ("riverswim:1", "riverswim:1,length=12", "lock:6")
"""Problems with one variable, which have no scopes to find."""
SLOW_RIVALS = (
    *(name + end for name in FAITHFUL[:4] for end in ("", PUBLISHED)),
    *(name + end for name in ("scal", "regal") for end in ("", PUBLISHED)),
    *(name + end for name in ("tsde", "opsrl") for end in ("", KNOWN)),
    *("e3", "pmevi"),
)
"""Learners that run on the small problems only."""
FINDERS = ("slf-ucrl", f"slf-ucrl{PUBLISHED}", "slf-rmax", "lse-rmax")
"""Learners that find the scopes."""
TOO_SLOW: Mapping[str, Sequence[str]] = {
    **dict.fromkeys(SLOW_RIVALS, (*DRAWS, *MIDDLE, *LARGE)),
    **dict.fromkeys(FINDERS, (*SINGLE, *DRAWS, *MIDDLE, *LARGE)),
    "imed-rl": (*DRAWS, *MIDDLE, *(set(LARGE) - {"coffee", "taxi:3"})),
    "kl-ucrl-factored": (*(set(LARGE) - {"coffee"}),),
    f"psrl{PUBLISHED}": ("coffee", "taxi:3"),
    f"dbn-ucrl{PUBLISHED}": ("taxi:3",),
    "f-ucbvi": ("taxi:3",),
    "f-euler": ("taxi:3",),
}
"""Problems on which a label is not run because of the time that it would take, by label."""
FEWER = dict.fromkeys((*SLOW_RIVALS, "kl-ucrl-factored"), 10) | dict.fromkeys(
    (
        *FINDERS,
        *("e3", "pmevi", "opsrl", f"opsrl{KNOWN}"),
        *(name + PUBLISHED for name in ("ucrl2", "scal", "regal")),
    ),
    6,
)
"""Number of seeds, by label, of the learners that are slow; the others have all."""
FAMILIES: Mapping[str, Sequence[str]] = {
    "SysAdmin, `xu`": ("circle:4", "circle:4,seed=2", "circle:4,seed=3", "circle:7", "grid:6"),
    "SysAdmin, others": (
        "circle:7,dynamics=guestrin",
        "star:5,dynamics=ippc",
        "bi-ring:5,dynamics=guestrin",
    ),
    "machines, maintenance": ("machines:2", "maintenance:3"),
    "JAO": ("jao:3", "jao:2,delta=0.1,actions=3"),
    "rivers": (
        "riverswim:1",
        "riverswim:1,length=12",
        "riverswim:2",
        "coupled-rivers:2,length=4",
    ),
    "lock": ("lock:6",),
    "Coffee": ("coffee",),
    "taxi": ("taxi:3",),
    "epidemic": ("epidemic:5,graph=grid",),
    "random": ("random:5,seed=7", "random:3,values=3,seed=2"),
}
FLAT = {kind.name for kind in LEARNERS.kinds() if issubclass(kind, Flat | IMEDRL)}
"""Names of the learners that ignore the factors."""

Numbers = Mapping[str, Any]


def stored() -> dict[str, Any]:
    """Return the stored numbers."""
    numbers: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return numbers


# ---- what is run --------------------------------------------------------------------------------


def entries(model: FactoredMDP) -> Iterator[tuple[str, Learner]]:
    """Yield the label and the learner of every row of the comparison, for one problem.

    Learners with a number of parents are given the true one, as in their papers, and SCAL and REGAL
    as published the span of the optimal bias.
    """
    s = model.structure
    parents = max(sum(v < s.m for v in scope) for scope in s.transition_scopes)
    actions = max(sum(v >= s.m for v in scope) for scope in s.transition_scopes)
    sizes = f"parents={parents},action_parents={actions}"
    bias = fmdp.plan(model).bias
    assert bias is not None
    budget = f"budget={math.ceil(100.0 * span(bias)) / 100.0}"
    for candidate in everybody():
        if isinstance(candidate.learner, FullSizeScopes):
            yield candidate.label, LEARNERS.read(f"{candidate.label},{sizes}")
        elif candidate.learner is not None:
            yield candidate.label, candidate.learner
    published = dict.fromkeys(FAITHFUL, "faithful=true") | {
        "psrl": "episodes=arithmetic",
        "dorl": "episodes=arithmetic",
        "scal": f"faithful=true,{budget}",
        "regal": f"faithful=true,{budget}",
        "slf-ucrl": f"faithful=true,{sizes}",
    }
    for name, settings in published.items():
        yield f"{name}{PUBLISHED}", LEARNERS.read(f"{name},{settings}")
    for known in ("tsde,faithful=true", "opsrl,faithful=true", "cpsrl,rewards=known"):
        yield f"{known.partition(',')[0]}{KNOWN}", LEARNERS.read(known)


class Wide(Spec):
    """A sweep in which some learners have fewer seeds; without recordings, which nobody reads."""

    def runs(self) -> Iterator[PlannedRun]:
        for planned in super().runs():
            if planned.seed < FEWER.get(planned.cell.label, len(self.seeds)):
                yield replace(planned, record=False)


def comparison(seeds: int, steps: int) -> Spec:
    """Return the sweep over all pairs that fit and are not too slow."""
    cells, left_out = [], []
    problems = problems_of(SUITES["wide"].problems, "a comparison", range(seeds))
    for problem in problems:
        for label, learner in entries(problem.model):
            reason = incompatibility(learner, problem.model)
            if reason is None and problem.id in TOO_SLOW.get(label, ()):
                reason = SLOW
            if reason is None:
                cells.append(cell_of(problem, label, learner, steps))
            else:
                left_out.append(LeftOut(problem.id, label, reason))
    text = f"# python -m benchmarks.compare_wide --seeds {seeds} --steps {steps}\n"
    name, title = "wide", SUITES["wide"].title
    seeded = tuple(range(seeds))
    return Wide(name, title, text, steps, seeded, problems, tuple(cells), tuple(left_out))


def run(spec: Spec, store: Path, workers: int | None) -> dict[str, Any]:
    """Return the numbers of the comparison; what the store has is not run again."""
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
        "seeds": len(spec.seeds),
        "steps": spec.steps,
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
    return [Standing(**row) for row in numbers["standings"]]


def left_out_in(numbers: Numbers) -> list[LeftOut]:
    return [LeftOut(**pair) for pair in numbers["left_out"]]


def table(head: Sequence[str], rows: Iterable[Sequence[str]], texts: Sequence[int] = (0,)) -> str:
    """Return a table; all columns but `texts` are aligned to the right."""
    rules = ["---" if column in texts else "---:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rules, *rows))


def _standings_picture(numbers: Numbers) -> str:
    words = "Median gap regret of every learner on every problem, divided by that of the best"
    caption = standings_caption(standings_in(numbers), MOST_RATIO)
    caption = caption.replace("does not fit", "does not fit or was left out for its time")
    return f"[![{words}](figures/compare-wide.png)](figures/compare-wide.png)\n\n{caption}"


def _published_picture(numbers: Numbers) -> str:
    words = "Median gap regret with the settings of the authors, divided by that with the defaults"
    place = "figures/compare-published.png"
    return (
        f"[![{words}]({place})]({place})\n\nMedian gap regret with the authors' settings divided by"
        f" that with fmdp's defaults, one dot per problem; the bar is the geometric mean. To the "
        f"left of 1 the authors' settings have less regret."
    )


def _overall(numbers: Numbers) -> str:
    rows = standings_in(numbers)
    many = len(numbers["problems"])
    means = mean_ratios(rows)
    lines = [
        [
            row.label,
            f"{row.problems}",
            str(FEWER.get(row.label, numbers["seeds"])),
            f"{row.wins}" if row.role == "learner" else "",
            ratio_text(row.ratio_mean),
            ratio_text(row.ratio_largest),
            ratio_text(geometric_mean(means[row.label])),
            per_step(row.seconds_per_step),
        ]
        for row in ranked(rows)
    ]
    head = [
        "learner",
        f"of {many}",
        "runs",
        "first on",
        "median",
        "largest",
        "mean",
        "step",
    ]
    return table(head, lines)


def mean_ratios(rows: Sequence[Standing]) -> dict[str, list[float]]:
    """Return the means of each label divided by the lowest mean of a learner, per problem."""
    ratios: dict[str, list[float]] = {}
    for members in by_problem(rows).values():
        best = min(row.mean for row in learners_of(members))
        for row in members:
            ratios.setdefault(row.label, []).append(row.mean / best)
    return ratios


def _families(numbers: Numbers) -> str:
    rows = standings_in(numbers)
    ratios = {(row.problem, row.label): row.ratio for row in rows}

    def text(label: str, problems: Sequence[str]) -> str:
        known = [ratios[p, label] for p in problems if (p, label) in ratios]
        if not known:
            return ""
        mean = ratio_text(geometric_mean([ratio or 0.0 for ratio in known]))
        return mean if len(known) == len(problems) else f"({mean})"

    lines = [
        [row.label, *(text(row.label, problems) for problems in FAMILIES.values())]
        for row in ranked(rows)
        if row.role != "upper"
    ]
    return table(["learner", *FAMILIES], lines)


def _winners(numbers: Numbers) -> str:
    lines = []
    for (name, _), members in by_problem(standings_in(numbers)).items():
        learners = learners_of(members)
        first, second = (_measured(row) for row in learners[:2])
        flat = next((_measured(row) for row in learners if row.learner in FLAT), "")
        random = next((number_text(row.median) for row in members if row.role == "lower"), "")
        lines.append([f"`{name}`", first, second, flat, random, numbers["findings"][name]])
    head = ["problem", "lowest median", "second", "best flat learner", "random", "first two"]
    return table(head, lines, texts=(0, 1, 2, 3, 5))


def _measured(row: Standing) -> str:
    """Return the label, the median with its interval, and the mean with that of the mean."""
    interval = ""
    if row.interval_low is not None and row.interval_high is not None:
        interval = f" [{number_text(row.interval_low)}, {number_text(row.interval_high)}]"
    return f"{row.label} {number_text(row.median)}{interval}; {mean_text(row)}"


def published_ratios(rows: Sequence[Standing]) -> dict[str, list[float]]:
    """Return, per learner, the medians as published divided by those with the defaults."""
    medians = {(row.problem, row.label): row.median for row in rows}
    ratios: dict[str, list[float]] = {}
    for (problem, label), median in medians.items():
        name = label.removesuffix(PUBLISHED).removesuffix(KNOWN)
        if name != label and (problem, name) in medians:
            ratios.setdefault(name, []).append(median / medians[problem, name])
    return dict(sorted(ratios.items(), key=lambda item: geometric_mean(item[1])))


def _words(numbers: Numbers) -> str:
    return "\n\n".join(numbers["sentences"])


def _left_out(numbers: Numbers) -> str:
    by_label: dict[str, list[LeftOut]] = {}
    for pair in left_out_in(numbers):
        by_label.setdefault(pair.label, []).append(pair)
    lines = []
    for label, pairs in by_label.items():
        large = [f"`{pair.problem}`" for pair in pairs if pair.reason != SLOW]
        slow = [f"`{pair.problem}`" for pair in pairs if pair.reason == SLOW]
        lines.append([label, ", ".join(large), ", ".join(slow)])
    return table(["learner", "does not fit", "too slow"], lines, texts=range(3))


BLOCKS: dict[str, Callable[[Numbers], str]] = {
    "words": _words,
    "picture": _standings_picture,
    "overall": _overall,
    "families": _families,
    "winners": _winners,
    "published": _published_picture,
    "left-out": _left_out,
}


def filled(text: str, numbers: Numbers) -> str:
    """Return the page with the blocks of these numbers."""
    for name, block in BLOCKS.items():
        head, end = f"<!-- compare: {name} -->", f"<!-- compare ends: {name} -->"
        many = text.count(head)
        if many != 1 or text.count(end) != 1:
            raise SystemExit(f"{PAGE.name} must have the block {name!r} once; it has {many}")
        before, after = text.partition(head)[0], text.partition(end)[2]
        text = f"{before}{head}\n{block(numbers)}\n{end}{after}"
    return text


def draw_published(rows: Sequence[Standing]) -> bytes:
    """Draw the medians as published divided by those with the defaults, a line per learner."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ratios = published_ratios(rows)
    with mpl.rc_context(SETTINGS):
        drawing = Figure(figsize=(6.4, 0.6 + 0.3 * len(ratios)), layout="constrained")
        ax = drawing.subplots()
        for y, values in enumerate(ratios.values()):
            ax.plot(values, [y] * len(values), "o", color=COLOURS[0][0], alpha=0.35, markersize=5)
            mean = geometric_mean(values)
            ax.plot([mean], [y], "|", color=COLOURS[1][0], markersize=13, markeredgewidth=2.2)
        ax.axvline(1.0, color=GREY[0], linewidth=1.0)
        ax.set_xscale("log")
        ticks = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0]
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        ax.set_yticks(range(len(ratios)), list(ratios))
        ax.set_ylim(len(ratios) - 0.4, -0.6)
        ax.set_xlabel("median gap regret as published / with fmdp's defaults")
        return saved(drawing)["png"]


def write(numbers: Numbers) -> None:
    rows = standings_in(numbers)
    pictures = {
        "compare-wide.png": figure(rows, left_out_in(numbers)).files["png"],
        "compare-published.png": draw_published(rows),
    }
    for name, picture in pictures.items():
        (FIGURES / name).write_bytes(picture)
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), numbers), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {', '.join(pictures)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--workers", type=int, default=None)
    parser.add_argument("--store", type=Path, default=ROOT / "build" / "compare-wide")
    parser.add_argument("--write", action="store_true", help="the page again from what is stored")
    given = parser.parse_args()
    if not given.write:
        numbers = run(comparison(given.seeds, given.steps), given.store, given.workers)
        FILE.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    write(stored())


if __name__ == "__main__":
    main()
