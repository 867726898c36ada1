"""Reports recomputed from runs: a small sweep, its CSV files, and every statistic in them again.

The rewards of a model are whole multiples of a unit such as .1, so the total of a run, lived again
on the same random streams, is a whole number and the difference of two runs is exact. Ties, zeros,
ranks, p-values and Holm's correction are recomputed from these whole numbers; medians, means,
quartiles and intervals from the printed runs.
"""

from __future__ import annotations

import csv
import io
import math
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import fmdp
from fmdp.experiments.analysis import analyse
from fmdp.experiments.dataset import gather
from fmdp.experiments.store import Store
from fmdp.reports.tables import tables
from referee import recipes, replay, report_truth, truth
from referee.ledger import Ledger
from referee.recipes import Recipe

STEPS = 60
SPECS: tuple[tuple[str, ...], ...] = (("psrl", "dorl", "random"), ("psrl", "random", "oracle"))
"""Two comparisons in one store: one pair is in both, one in none."""
UNITS = (0.1, 1.0, 1 / 3, 0.007, 3e8, 1e-9)
ULPS = 16
"""Rounding that a printed statistic may contain, in units of the last place of the largest run."""

Row = Mapping[str, str]
Tables = Mapping[str, Sequence[Row]]


@dataclass(frozen=True)
class Sweep:
    """The CSV files of a report, and for each measure the exact regrets up to a constant."""

    recipe: Recipe
    csv: Tables
    curves: Mapping[str, Mapping[str, Mapping[int, float]]]
    """Key of a run -> measure -> t -> value."""
    exact: Mapping[str, Mapping[str, Mapping[int, Fraction]]]
    """Measure -> label -> seed -> regret in units, without what all runs have in common."""
    unit: float


def play(short: bool) -> Ledger:
    """Judge the reports of a few sweeps."""
    ledger = Ledger()
    for turn in range(2 if short else 2 * len(UNITS)):
        with tempfile.TemporaryDirectory() as folder:
            judge(ledger, swept(turn, Path(folder)))
    return ledger


def swept(turn: int, folder: Path) -> Sweep:
    """Run two comparisons of a model, report on them, and live all runs again."""
    seeds = (7, 5, 10)[turn % 3]
    whole = recipes.random_factored(turn, "dense", "coarse")
    unit = UNITS[turn % len(UNITS)]
    recipe = replace(whole.in_unit(unit), name=f"report {turn}: {whole.name} in units of {unit:g}")
    model = recipe.build()
    for number, labels in enumerate(SPECS):
        fmdp.compare(
            {"model": model},
            list(labels),
            seeds=seeds,
            steps=STEPS,
            out=folder,
            name=f"question {number}",
            workers=0,
            progress=None,
        )
    with Store.open(folder) as store:
        runs = gather(store)
        written = tables(runs, analyse(runs))
        found = {name: list(csv.DictReader(io.StringIO(text))) for name, text in written.items()}
        curves = {row["key"]: _curves(store.curve(row["key"])) for row in found["runs.csv"]}
    exact = _exact(whole, recipe, model, range(seeds))
    return Sweep(recipe, found, curves, exact, unit)


def _curves(curve: Any) -> dict[str, dict[int, float]]:
    return {
        name: dict(zip(curve.t.tolist(), values.tolist(), strict=True))
        for name, values in curve.values.items()
    }


def _exact(
    whole: Recipe, recipe: Recipe, model: fmdp.FactoredMDP, seeds: Sequence[int]
) -> dict[str, dict[str, dict[int, Fraction]]]:
    """Live every run again; `whole` has the rewards before they were put into other units."""
    flat = truth.flatten(whole)
    bias = truth.best(flat).bias
    q = [
        [
            pay + sum(p * bias[t] for t, p in row.items())
            for pay, row in zip(pays, rows, strict=True)
        ]
        for pays, rows in zip(flat.pays, flat.rows, strict=True)
    ]
    makers: dict[str, Callable[[np.random.Generator], Any]] = {
        "psrl": lambda generator: fmdp.PSRL().start(model.structure, generator),
        "dorl": lambda generator: fmdp.DORL().start(model.structure, generator),
        "random": lambda generator: fmdp.Random().start(model.structure, generator),
        "oracle": lambda generator: fmdp.Oracle().start(model, generator),
    }
    found: dict[str, dict[str, dict[int, Fraction]]] = {"regret": {}, "gap_regret": {}}
    for label, make in makers.items():
        for seed in seeds:
            lived = replay.live(recipe, make, STEPS, seed)
            steps = list(zip(lived.states, lived.actions, strict=True))
            earned = sum((Fraction(flat.pays[s][a]) for s, a in steps), Fraction(0))
            given_away = sum((Fraction(max(q[s]) - q[s][a]) for s, a in steps), Fraction(0))
            found["regret"].setdefault(label, {})[seed] = -earned
            found["gap_regret"].setdefault(label, {})[seed] = given_away
    return found


def judge(ledger: Ledger, sweep: Sweep) -> None:
    """Compare every column of every table."""
    for row in sweep.csv["cells.csv"]:
        _judge_summary(ledger, sweep, row, _printed_runs(sweep, row["label"], row["measure"]))
    for measure in ("regret", "gap_regret"):
        _judge_runs(ledger, sweep, measure)
        _judge_comparisons(ledger, sweep, measure)
    _judge_curves(ledger, sweep)
    _judge_standings(ledger, sweep)


def _printed_runs(sweep: Sweep, label: str, measure: str) -> dict[int, Fraction]:
    rows = [row for row in sweep.csv["runs.csv"] if row["label"] == label]
    return {int(row["seed"]): Fraction(float(row[measure])) for row in rows}


def _says(ledger: Ledger, sweep: Sweep, claim: str, holds: bool, detail: str) -> None:
    ledger.judge(f"report: {claim}", sweep.recipe, holds, math.inf, detail)


def _number(
    ledger: Ledger,
    sweep: Sweep,
    claim: str,
    printed: str,
    true: Fraction | float | None,
    room: float,
) -> None:
    """Judge one printed number; None stands for an empty field."""
    if true is None or printed == "":
        right = true is None and printed == ""
    else:
        # Intervals of the mean contain a quantile that the truth has in floats, too.
        room = max(room, 1e-13 * abs(true)) if isinstance(true, float) else room
        right = abs(Fraction(float(printed)) - Fraction(true)) <= Fraction(room)
    _says(ledger, sweep, claim, right, f"printed {printed!r}, true {true!r}")


def _room(values: Collection[Fraction]) -> float:
    return ULPS * math.ulp(max(abs(float(value)) for value in values))


def _judge_summary(ledger: Ledger, sweep: Sweep, row: Row, by_seed: Mapping[int, Fraction]) -> None:
    values = list(by_seed.values())
    room = _room(values)
    interval = report_truth.median_ends(values)
    of_mean = report_truth.mean_ends(values)
    known = {
        "median": report_truth.median(values),
        "lower_quartile": report_truth.quantile(values, Fraction(1, 4)),
        "upper_quartile": report_truth.quantile(values, Fraction(3, 4)),
        "best": min(values),
        "worst": max(values),
        "mean": report_truth.mean(values),
        "interval_low": interval and interval[0],
        "interval_high": interval and interval[1],
        "mean_low": of_mean and of_mean[0],
        "mean_high": of_mean and of_mean[1],
    }
    for name, true in known.items():
        _number(ledger, sweep, name.replace("_", " "), row[name], true, room)
    note = "" if len(values) >= 6 else "n too small"
    _says(ledger, sweep, "words for no interval", row["interval_note"] == note, row["label"])
    _says(ledger, sweep, "number of runs", int(row["runs"]) == len(values), row["runs"])


def _judge_runs(ledger: Ledger, sweep: Sweep, measure: str) -> None:
    """The printed regrets are the exact ones in the unit, up to one constant and the planner."""
    unit, offsets = Fraction(sweep.unit), []
    for label, exact in sweep.exact[measure].items():
        for seed, printed in _printed_runs(sweep, label, measure).items():
            offsets.append(printed / unit - exact[seed])
    spread = float(max(offsets) - min(offsets))
    detail = f"{measure}: off by {spread:g} units"
    _says(ledger, sweep, "runs, lived again", spread <= STEPS * 1e-6, detail)


def _judge_comparisons(ledger: Ledger, sweep: Sweep, measure: str) -> None:
    rows = {
        (row["first"], row["second"]): row
        for row in sweep.csv["comparisons.csv"]
        if row["measure"] == measure
    }
    labels = list(dict.fromkeys(row["label"] for row in sweep.csv["cells.csv"]))
    questions = report_truth.families(labels, SPECS)
    _says(ledger, sweep, "pairs", set(rows) == set(questions), f"{sorted(rows)}")
    exact = sweep.exact[measure]
    differences = {
        (first, second): [exact[first][seed] - exact[second][seed] for seed in exact[first]]
        for first, second in questions
    }
    tests = {pair: report_truth.signed_rank(own) for pair, own in differences.items()}
    adjusted = report_truth.corrected({pair: p for pair, (_, p) in tests.items()}, questions)
    for pair, row in rows.items():
        own, (plus, p_value) = differences[pair], tests[pair]
        counts = [sum(d < 0 for d in own), sum(d == 0 for d in own), sum(d > 0 for d in own)]
        printed = [int(row[name]) for name in ("first_lower", "equal", "second_lower")]
        detail = f"{measure} of {pair}: printed {printed}, true {counts}"
        _says(ledger, sweep, "which of a pair is lower", printed == counts, detail)
        _number(ledger, sweep, "rank sum", row["signed_rank"], plus, 0.0)
        _number(ledger, sweep, "signed-rank p", row["p"], p_value, 1e-15)
        _number(ledger, sweep, "p after Holm", row["p_holm"], adjusted[pair], 1e-14)
        size = int(row["comparisons_in_question"])
        _says(ledger, sweep, "pairs of a question", size == len(questions[pair]), f"{pair}: {size}")
        middle = sum(counts[::2]) * (sum(counts[::2]) + 1) / 4
        better = pair[0] if plus < middle else pair[1]
        finding = f"{better} is better" if adjusted[pair] <= 0.05 else "no difference shown"
        _says(ledger, sweep, "finding", row["finding"] == finding, f"{row['finding']}: {finding}")
        _judge_differences(ledger, sweep, measure, row)


def _judge_differences(ledger: Ledger, sweep: Sweep, measure: str, row: Row) -> None:
    """Median and mean of the differences of the printed runs; rounding alone is printed as 0."""
    first, second = (_printed_runs(sweep, row[name], measure) for name in ("first", "second"))
    own = [first[seed] - second[seed] for seed in first]
    room = STEPS * ULPS * math.ulp(max(map(float, map(abs, (*first.values(), *second.values())))))
    room = max(room, STEPS * math.ulp(STEPS * sweep.recipe.reward_size))
    interval, of_mean = report_truth.median_ends(own), report_truth.mean_ends(own)
    known = {
        "median_difference": report_truth.median(own),
        "interval_low": interval and interval[0],
        "interval_high": interval and interval[1],
        "mean_difference": report_truth.mean(own),
        "mean_low": of_mean and of_mean[0],
        "mean_high": of_mean and of_mean[1],
    }
    for name, true in known.items():
        _number(ledger, sweep, f"differences: {name.replace('_', ' ')}", row[name], true, room)


def _judge_curves(ledger: Ledger, sweep: Sweep) -> None:
    keys: dict[str, list[str]] = {}
    for row in sweep.csv["runs.csv"]:
        keys.setdefault(row["label"], []).append(row["key"])
    for row in sweep.csv["curves.csv"]:
        own = [sweep.curves[key][row["measure"]][int(row["t"])] for key in keys[row["label"]]]
        values = [Fraction(value) for value in own]
        of_mean = report_truth.mean_ends(values)
        known = {
            "median": report_truth.median(values),
            "lower_quartile": report_truth.quantile(values, Fraction(1, 4)),
            "upper_quartile": report_truth.quantile(values, Fraction(3, 4)),
            "mean": report_truth.mean(values),
            "mean_low": of_mean and of_mean[0],
            "mean_high": of_mean and of_mean[1],
        }
        for name, true in known.items():
            _number(ledger, sweep, f"curves: {name}", row[name], true, _room(values))


def _judge_standings(ledger: Ledger, sweep: Sweep) -> None:
    learners = [row for row in sweep.csv["standings.csv"] if row["role"] == "learner"]
    medians = {
        row["label"]: report_truth.median(
            list(_printed_runs(sweep, row["label"], row["measure"]).values())
        )
        for row in learners
    }
    exact = {
        row["label"]: report_truth.median(list(sweep.exact[row["measure"]][row["label"]].values()))
        for row in learners
    }
    for row in learners:
        label = row["label"]
        place = 1 + sum(other < exact[label] for other in exact.values())
        _says(ledger, sweep, "place", int(row["place"]) == place, f"{label}: {row['place']}")
        best = min(medians.values())
        ratio = medians[label] / best if best > 0 else None
        _number(ledger, sweep, "ratio to the best", row["ratio"], ratio, 1e-13 * float(ratio or 1))
