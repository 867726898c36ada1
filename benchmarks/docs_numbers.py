"""The numbers that the pages print: run, stored in docs/numbers.json, written into the pages.

    make docs-numbers          or: python -m benchmarks.docs_numbers [--workers N]
    python -m benchmarks.docs_numbers --seeds 2          a first look, with a tenth of the seeds
    python -m benchmarks.docs_numbers --only plans       one part again; the others stay
    python -m benchmarks.docs_numbers --write            the pages again from what is stored

A page has its numbers between `<!-- numbers: NAME -->` and `<!-- end of NAME -->`: what stands
there is made by the function of that name below, from docs/numbers.json alone, and says itself over
how many seeds. tests/test_docs_numbers.py compares the pages with the stored numbers, and the
version of the stored numbers and the settings of their runs with those of now. Times are not among
them: benchmarks measure those.

Runs go through `fmdp.experiments` into stores under build/docs-numbers, so that what is killed goes
on where it was; other fingerprints (tests/experiments) are other stores. Cost of all with their
seeds: about ten minutes on two idle cores.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from fmdp.experiments import RESULTS_VERSION
from fmdp.experiments.executors import Processes
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.paper import figure_spec, fresh_spec
from fmdp.experiments.spec import PlannedRun, Spec, parse_spec, read_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep
from fmdp.model import FactoredMDP, product

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FILE = DOCS / "numbers.json"
FINGERPRINTS = ROOT / "tests" / "experiments" / "fingerprints.json"
STORES = ROOT / "build" / "docs-numbers"

SEEDS = 20
"""Of most parts; half as many of the longest runs, the example's own ten, thirty fresh ones."""
XU = ("circle:4", "circle:7", "three-leg:4", "three-leg:7")
KNOWN_AFTER = {"circle:4": 300, "circle:7": 500, "three-leg:4": 500, "three-leg:7": 500}
GUESTRIN = "circle:7,dynamics=guestrin,reward=mean"
CORNERS = {1: "corner-1.json", 2: "corner-2.json", 4: "corner-4.json"}
REACHABLE = ("large-diameter", "jao:6", "riverswim:2")
BUDGETS = {"large-diameter": 4.0, "jao:6": 12.0, "riverswim:2": 13.0} | {
    name: 0.5 * n for n, name in CORNERS.items()
}
"""m times the largest factored span, rounded up: enough."""

Numbers = Mapping[str, Any]


# ---- what is run --------------------------------------------------------------------------------

KNOWN = """
name = "known"
steps = 10_000
seeds = {seeds}
problems = ["circle:4", "circle:7", "three-leg:4", "three-leg:7"]

[[learners]]
name = "frmax"
label = "f-Rmax m=300"
set = {{ m = 300 }}
planner = ["exact", {{ name = "alp", basis = "singles", discount = 0.95 }}]

[[learners]]
name = "frmax"
label = "f-Rmax m=300, ties"
problems = ["circle:7"]
set = {{ m = 300 }}
planner = {{ name = "exact", ties = ["first", "last"] }}
"""

HARD = """
name = "hard"
steps = 10_000
seeds = {seeds}
problems = ["circle:7,dynamics=guestrin,reward=mean"]

[[learners]]
name = "psrl"
label = "PSRL"
set = {{ episodes = "arithmetic" }}
planner = ["exact", "alp"]

[[learners]]
name = "dorl"
label = "DORL"
set = {{ episodes = "arithmetic" }}
planner = ["exact", "alp"]

[[learners]]
name = "fsrl"
label = "FSRL"
set = {{ episodes = "arithmetic" }}

[[learners]]
name = "frmax"
label = "f-Rmax"
planner = ["exact", "alp"]
"""

SLOPES = """
name = "slopes"
steps = 100_000
seeds = {seeds}
problems = ["circle:4", "circle:7", "three-leg:4", "three-leg:7", "circle:7,dynamics=guestrin,reward=mean"]

[[learners]]
name = "psrl"
label = "psrl"
set = {{ episodes = "arithmetic" }}

[[learners]]
name = "dorl"
label = "dorl"
set = {{ episodes = "arithmetic" }}

[[learners]]
name = "fsrl"
label = "fsrl"
set = {{ episodes = "arithmetic" }}
"""  # noqa: E501

SPAN = """
name = "span"
steps = 20_000
seeds = {seeds}
problems = [{problems}]

[[learners]]
name = "psrl"
label = "psrl"
set = {{ episodes = "arithmetic" }}

[[learners]]
name = "dorl"
label = "dorl"
set = {{ episodes = "arithmetic" }}

[[learners]]
name = "fsrl"
label = "fsrl, no budget"
set = {{ episodes = "arithmetic" }}
"""

BUDGETED = """
[[learners]]
name = "fsrl"
label = "fsrl, budget given"
problems = ["{problem}"]
set = {{ budget = "{budget}", episodes = "arithmetic" }}
"""


RIVALS: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("psrl", {}),
    ("psrl", {"horizon": 20}),
    ("psrl", {"horizon": 100}),
    ("dorl", {}),
    ("fsrl", {}),
    ("random", {}),
    *(("ucrl-factored", {"c": c}) for c in (1, 0.1)),
    ("ucrl-factored", {"c": 0.1, "horizon": 20}),
    ("ucrl-factored", {"c": 0.1, "horizon": 100}),
    *(("dbn-ucrl", {"c": c}) for c in (1, 0.1)),
    *((name, {"c": c}) for name in ("kl-ucrl-factored", "f-ucbvi", "f-euler") for c in (1, 0.1)),
    *(("slf-ucrl", {"c": c}) for c in (1, 0.1)),
    *(("ucrl2", {"c": c}) for c in (1, 0.1, 0.01)),
    *(("ucrl3", {"c": c}) for c in (1, 0.1)),
    *(("kl-ucrl", {"c": c}) for c in (1, 0.1)),
    ("imed-rl", {}),
    ("imed-rl", {"faithful": True}),
    *(("scal", {"c": c}) for c in (1, 0.1)),
    *(("regal", {"c": c}) for c in (1, 0.1)),
    *(("pmevi", {"c": c}) for c in (1, 0.1, 0.01)),
    *(("tsde", {"rewards": rewards}) for rewards in ("learned", "known")),
    *(("cpsrl", {"discount": discount}) for discount in (0.99, 0.95)),
    *(("opsrl", {"c": c}) for c in (1, 0.01)),
    *(("e3", {"m": m}) for m in (300, 10)),
    *(("frmax", {"m": m, "form": form}) for m in (300, 10) for form in ("extreme", "heaven")),
    *((name, {"m": m}) for name in ("slf-rmax", "lse-rmax") for m in (300, 10)),
)
"""The rows of the table of rivals: every learner of the literature, and what is varied of it."""
RIVALS_PROBLEMS = ("riverswim:1", "circle:4")


def _rivals_spec(seeds: int) -> Spec:
    """Return the sweep behind the table of rivals, one learner of the spec per row."""
    head = f'name = "rivals"\nsteps = 10_000\nseeds = {max(1, seeds // 4)}\n'
    text = [f"{head}problems = {json.dumps(RIVALS_PROBLEMS)}\n"]
    for name, settings in RIVALS:
        words = [f"{key}={json.dumps(value)}".replace('"', "") for key, value in settings.items()]
        label = ", ".join([f"`{name}`", *words])
        given = {"episodes": "fixed"} if "horizon" in settings else {}
        chosen = [f"{key} = {json.dumps(value)}" for key, value in (given | settings).items()]
        text.append(f"[[learners]]\nname = {json.dumps(name)}\nlabel = {json.dumps(label)}\n")
        text.append(f"set = {{ {', '.join(chosen)} }}\n" if chosen else "")
    return parse_spec("\n".join(text), "rivals")


class Unrecorded(Spec):
    """A sweep of which no run is kept whole, step by step: the numbers are the same, and it takes
    half the time."""

    def runs(self) -> Iterator[PlannedRun]:
        return (replace(planned, record=False) for planned in super().runs())


def unrecorded(spec: Spec) -> Spec:
    return Unrecorded(**{one.name: getattr(spec, one.name) for one in fields(Spec)})


def specs(seeds: int) -> dict[str, Spec]:
    """The sweeps, each by the name of its part."""
    return {
        "figure": figure_spec(runs=seeds, search=True),
        "known": parse_spec(KNOWN.format(seeds=seeds), "known"),
        "fresh": fresh_spec(range(100, 100 + seeds * 3 // 2)),
        "hard": parse_spec(HARD.format(seeds=seeds), "hard"),
        "planner": _fewer(ROOT / "examples" / "planner.toml", seeds),
        "rivals": _rivals_spec(seeds),
        "slopes": parse_spec(SLOPES.format(seeds=(seeds + 1) // 2), "slopes"),
        "span": _span_spec(seeds),
    }


def _fewer(path: Path, seeds: int) -> Spec:
    """The spec of a file; of a first look, with so many seeds."""
    if seeds >= SEEDS:
        return read_spec(path)
    return parse_spec(
        re.sub(r"^seeds = \d+$", f"seeds = {seeds}", path.read_text(), flags=re.MULTILINE),
        path.name,
    )


def corners(n: int, chance: float = 0.0) -> FactoredMDP:
    """n copies of: stay at home for .5, or try for .4 to reach a corner that is hardly ever reached
    (never, with chance 0), pays .6 and is left again with probability .9. Trying is not worth it:
    the factored spans are 1/9 each, the diameter is 1 / chance and more."""
    one = FactoredMDP.from_factors(
        [2],
        [2],
        [((0, 1), [[1, 0], [1 - chance, chance], [0.9, 0.1], [0.9, 0.1]])],
        [((0, 1), [0.5, 0.4, 0.6, 0.6])],
    )
    return product(*(one for _ in range(n)))


def _span_spec(seeds: int) -> Spec:
    from fmdp.model.io.files import save

    STORES.mkdir(parents=True, exist_ok=True)
    for n, name in CORNERS.items():
        save(corners(n), STORES / name)
    listed = ", ".join(f'"{name}"' for name in BUDGETS)
    text = SPAN.format(seeds=seeds, problems=listed) + "".join(
        BUDGETED.format(problem=name, budget=f"{budget:g}") for name, budget in BUDGETS.items()
    )
    return parse_spec(text, "span", STORES)


def settings_digest(spec: Spec) -> str:
    """What was run, every setting resolved: a default that moves gives another."""
    keys = "".join(sorted(planned.key for planned in spec.runs()))
    return hashlib.sha256(keys.encode()).hexdigest()[:16]


def run(spec: Spec, folder: Path, workers: int | None) -> None:
    summary = run_sweep(spec, folder, workers=Processes(workers), retry_failed=True)
    if summary.failed:
        raise SystemExit(f"{spec.name}: {summary.failed} runs failed, such as {summary.errors}")


def collected(spec: Spec, folder: Path, *, curves: bool) -> dict[str, Any]:
    """problem -> label -> what its runs came to."""
    with Store.open(folder) as store:
        runs = {run.key: run for run in store.runs(status="done")}
        grouped: dict[tuple[str, str], list[str]] = {}
        for planned in spec.runs():
            cell = planned.cell
            grouped.setdefault((cell.problem.id, cell.label), []).append(planned.key)
        cells: dict[str, dict[str, Any]] = {}
        for (problem, label), keys in grouped.items():
            own = [runs[key] for key in keys]
            found = {
                "regret": _summary([run.measure(REGRET) for run in own]),
                "gap_regret": _summary([run.measure(GAP_REGRET) for run in own]),
            }
            if curves:
                found |= _curve([store.curve(key) for key in keys])
            cells.setdefault(problem, {})[label] = found
    return {"steps": spec.steps, "seeds": len(spec.seeds), "cells": cells}


def _summary(values: Sequence[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    low, median, high = np.quantile(known, (0.25, 0.5, 0.75))
    found = {"lower": low, "median": median, "upper": high, "worst": max(known)}
    return {name: float(f"{value:.8g}") for name, value in found.items()}


def _curve(curves: Sequence[Any]) -> dict[str, Any]:
    """Gap regret against t, and the slope of the median's logarithm over the last decade."""
    t = curves[0].t
    values = np.array([curve.values["gap_regret"] for curve in curves])
    low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    late = (t >= t[-1] / 10) & (median > 0)
    slope = np.polyfit(np.log(t[late]), np.log(median[late]), 1)[0] if late.sum() > 1 else 0.0
    curve = {"t": t.tolist(), "low": low, "median": median, "high": high}
    return {"curve": curve, "slope": float(f"{slope:.6g}")}


def words(folder: Path) -> list[str]:
    """What paper.txt says of this store."""
    from fmdp.experiments.analysis import analyse
    from fmdp.experiments.dataset import gather
    from fmdp.reports.paper_claims import paragraphs

    with Store.open(folder) as store:
        runs = gather(store)
        return list(paragraphs(runs, analyse(runs)))


# ---- plans --------------------------------------------------------------------------------------

GAPS = {
    "guestrin circle 7": GUESTRIN,
    "guestrin three-leg 7": "three-leg:7,dynamics=guestrin,reward=mean",
    "talebi circle 7": "circle:7,dynamics=talebi,reward=mean",
    "xu circle 7": "circle:7,reward=mean",
    "machines:3": "machines:3",
}
KINDS: dict[str, dict[str, Any]] = {
    "singles": {"basis": "singles"},
    "singles, ties first": {"basis": "singles", "ties": "first"},
    "singles, ties last": {"basis": "singles", "ties": "last"},
    "pairs": {"basis": "pairs"},
    "local": {"basis": "local"},
}
WIDER: dict[str, tuple[int, dict[str, Any]]] = {
    "3 neighbours": (3, {}),
    "4 neighbours": (4, {}),
    "4 neighbours, average criterion": (4, {"criterion": "average"}),
}
LARGER = (8, 9, 10, 11, 12)
WIDTHS = (3, 4, 5)
HARDER = {"discount .99": {"discount": 0.99}, "average": {"criterion": "average"}}
RELATIVES = {
    ("guestrin circle 7", "singles"): "singles",
    ("guestrin circle 7", "pairs"): "pairs",
    ("guestrin circle 7", "3 neighbours"): 3,
    ("talebi circle 7", "pairs"): "pairs",
    ("guestrin three-leg 7", "pairs"): "pairs",
}

PlanTask = tuple[str, str, dict[str, Any]]
"""Planner, problem, settings; a basis that is a number stands for so many neighbours."""


def plan_tasks() -> dict[str, PlanTask]:
    """Everything that is planned, by name."""
    tasks: dict[str, PlanTask] = {}
    for title, problem in GAPS.items():
        tasks[f"{title} | exact"] = ("exact", problem, {"tolerance": 1e-8})
        for kind, settings in KINDS.items():
            tasks[f"{title} | {kind}"] = ("alp", problem, settings)
    for kind, (width, settings) in WIDER.items():
        tasks[f"guestrin circle 7 | {kind}"] = ("alp", GUESTRIN, {"basis": width, **settings})
    for n in LARGER:
        problem = f"circle:{n},dynamics=guestrin,reward=mean"
        tasks[f"{n} machines | exact"] = ("exact", problem, {})
        tasks[f"{n} machines | singles"] = ("alp", problem, {"basis": "singles"})
        for width in WIDTHS:
            tasks[f"{n} machines | {width} neighbours"] = ("alp", problem, {"basis": width})
    for kind, settings in HARDER.items():
        problem = "circle:11,dynamics=guestrin,reward=mean"
        tasks[f"11 machines | 4 neighbours, {kind}"] = ("alp", problem, {"basis": 4, **settings})
    for (title, kind), basis in RELATIVES.items():
        for planner in ("alp", "policy-iteration", "bellman-error"):
            name = f"{title} | {kind} | {planner}"
            tasks[name] = (planner, GAPS[title], {"basis": basis})
    return tasks


def planned(task: PlanTask) -> dict[str, float | None]:
    from fmdp.planning.alp import ALP, chains
    from fmdp.planning.alp.bellman import BellmanError
    from fmdp.planning.alp.policy_iteration import PolicyIteration
    from fmdp.planning.choice import plan
    from fmdp.planning.exact.planner import Exact
    from fmdp.problems import problem

    name, where, given = task
    settings: dict[str, Any] = dict(given)
    model = problem(where)
    if isinstance(settings.get("basis"), int):
        settings["basis"] = chains(model.structure, settings["basis"])
    makers: dict[str, Callable[..., Any]] = {
        "exact": Exact,
        "alp": ALP,
        "policy-iteration": PolicyIteration,
        "bellman-error": BellmanError,
    }
    found = plan(model, makers[name](**settings))
    kept = {"gain": found.gain, "upper": found.gain_upper, "policy": found.policy_gain}
    return {key: None if v is None else float(f"{v:.8g}") for key, v in kept.items()}


def plans(workers: int | None) -> dict[str, Any]:
    from benchmarks.bench_linear import split

    # Under its own name: what runs as __main__ is not known to the workers.
    from benchmarks.docs_numbers import planned as work

    with Processes(workers) as team:
        waiting = {name: team.submit(work, task) for name, task in plan_tasks().items()}
        found: dict[str, Any] = {name: future.result() for name, future in waiting.items()}
    mean, worst = split()
    return found | {"split targets": {"mean": float(f"{mean:.6g}"), "worst": float(f"{worst:.6g}")}}


# ---- what the pages say -------------------------------------------------------------------------


def _cells(numbers: Numbers, part: str) -> Mapping[str, Mapping[str, Any]]:
    cells: Mapping[str, Mapping[str, Any]] = numbers["parts"][part]["cells"]
    return cells


def _median(cell: Numbers, measure: str = "regret") -> float:
    value: float = cell[measure]["median"]
    return value


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False) -> str:
    """Return a table; `right` aligns all columns but the first to the right."""
    lines = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in (head, *rows)]
    rule = "|---" + ("|---:" if right else "|---") * (len(head) - 1) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def _whole(value: float) -> str:
    """ "1,234"; a little below 0 is 0, not -0."""
    text = f"{value:,.0f}"
    return "0" if text == "-0" else text


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _between(values: Sequence[float], form: str = ",.0f") -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def _wrapped(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 108, break_long_words=False, break_on_hyphens=False)


def figure(numbers: Numbers) -> str:
    """docs/experiments.md: the paper's figure as a table."""
    part = numbers["parts"]["figure"]
    cells = part["cells"]
    labels = [
        label
        for label in cells["circle:4"]
        if not re.fullmatch(r".* [cm]=\S+, ALP", label) or label in THEIRS
    ]
    rows = [
        [
            {"optimal policy": "optimal policy (noise)"}.get(label, label),
            *(
                f"{_whole(_median(cells[p][label]))} ({_whole(cells[p][label]['regret']['worst'])})"
                for p in XU
            ),
        ]
        for label in labels
    ]
    head = (
        f"Realised regret after {part['steps']:,} steps, median and worst of {part['seeds']} runs:"
    )
    return f"{head}\n\n{_table(['', *XU], rows)}"


THEIRS = ("PSRL c=0.75, ALP", "DORL c=0.03, ALP", "f-Rmax m=300/500, ALP")


def paper(numbers: Numbers) -> str:
    """docs/experiments.md: what paper.txt says, the search included."""
    return "\n>\n".join(
        "\n".join(f"> {line}" for line in _wrapped(text).splitlines())
        for text in numbers["parts"]["figure"]["words"]
    )


def fresh(numbers: Numbers) -> str:
    """docs/experiments.md: the better ones on seeds that they were not chosen on."""
    part = numbers["parts"]["fresh"]
    cells = part["cells"]
    told = []
    for label in cells["circle:4"]:
        medians = [f"{_whole(_median(cells[p][label], 'gap_regret'))}" for p in XU]
        told.append(f"{_listed(medians)} for {label}")
    return _wrapped(
        f"DORL c=0.01 and PSRL c=0.1 were chosen from a dozen candidates on these seeds, the "
        f"default learner on other problems and `circle:4`. On {part['seeds']} new seeds, from 100 "
        f"on, the medians of gap regret, in the order of the problems, are {'; '.join(told)}."
    )


def planner(numbers: Numbers) -> str:
    """docs/experiments.md: where planning is hard."""
    part = numbers["parts"]["planner"]
    cells = part["cells"][GUESTRIN]
    told = " ".join(
        f"For {name} it is {_median(cells[f'{name} (exact)']):,.0f} with the exact planner, "
        f"{_median(cells[f'{name} (alp basis=singles)']):,.0f} with approximate linear programming "
        f"and {_median(cells[f'{name} (alp basis=pairs)']):,.0f} with its pairs."
        for name in ("PSRL", "DORL")
    )
    return _wrapped(
        f"On these four instances nearly every planner is good enough. This is not so where "
        f"planning is hard. An example is the median regret over {part['seeds']} runs of "
        f"{part['steps']:,} steps on `{GUESTRIN}` (`examples/planner.toml`). {told}"
    )


def rivals(numbers: Numbers) -> str:
    """docs/learning.md: the rivals on two small problems."""
    part = numbers["parts"]["rivals"]
    cells = part["cells"]

    def told(cell: Numbers) -> str:
        gap = cell["gap_regret"]
        middle = f"{_whole(gap['lower'])} to {_whole(gap['upper'])}"
        return f"{_whole(gap['median'])} ({middle}, {_whole(gap['worst'])})"

    titles = ["learner", *(f"`{p}`" for p in RIVALS_PROBLEMS)]
    labels = list(cells[RIVALS_PROBLEMS[0]])
    rows = [[label, *(told(cells[p][label]) for p in RIVALS_PROBLEMS)] for label in labels]
    head = _wrapped(
        f"Gap regret after {part['steps']:,} steps: the median of {part['seeds']} seeds, and in "
        f"brackets the quartiles and the worst run."
    )
    return f"{head}\n\n{_table(titles, rows, right=True)}"


def learning(numbers: Numbers) -> str:
    """docs/learning.md: the paper's problems."""
    part = numbers["parts"]["figure"]
    cells, known = part["cells"], _cells(numbers, "known")

    def quartiles(cell: Numbers) -> str:
        found = cell["regret"]
        return f"{_whole(found['median'])}, {_whole(found['lower'])} to {_whole(found['upper'])}"

    def whole(cell: Numbers) -> str:
        gap = cell["gap_regret"]
        return f"{quartiles(cell)} ({_whole(gap['median'])}, {_whole(gap['worst'])})"

    rows: list[tuple[str, Callable[[str], str]]] = [
        ("oracle", lambda p: quartiles(cells[p]["optimal policy"])),
        ("random actions", lambda p: quartiles(cells[p]["random actions"])),
        ("exact, PSRL c=.75", lambda p: whole(cells[p]["PSRL c=0.75, exact"])),
        ("exact, DORL c=.03", lambda p: whole(cells[p]["DORL c=0.03, exact"])),
        ("exact, DORL c=.003", lambda p: whole(cells[p]["DORL c=0.003, exact"])),
        ("span, FSRL, no budget given", lambda p: whole(cells[p]["FSRL c=0.03, span"])),
        ("exact, f-Rmax m=300", lambda p: quartiles(known[p]["f-Rmax m=300 (exact)"])),
        ("alp, PSRL c=.75", lambda p: whole(cells[p]["PSRL c=0.75, ALP"])),
        ("alp, DORL c=.03", lambda p: whole(cells[p]["DORL c=0.03, ALP"])),
        ("alp, f-Rmax m=300", lambda p: quartiles(known[p]["f-Rmax m=300 (alp basis=singles)"])),
        ("alp, f-Rmax, the paper's m", lambda p: quartiles(cells[p]["f-Rmax m=300/500, ALP"])),
    ]
    table = _table(
        ["planner, learner", "circle 4", "circle 7", "three-leg 4", "three-leg 7"],
        [[name, *(tell(p) for p in XU)] for name, tell in rows],
    )
    head = _wrapped(
        f"**The paper's problems.** Realised regret after {part['steps']:,} steps on the paper's "
        f"four instances of the random `xu` tables (seed=1 of each network). The table has the "
        f"median and quartiles of {part['seeds']} seeds, and in brackets the median and the worst "
        f"gap regret."
    )
    apart, below = [], []
    for own in ("exact", "ALP"):
        for p in XU:
            psrl, dorl = (_median(cells[p][f"{k}, {own}"]) for k in ("PSRL c=0.75", "DORL c=0.03"))
            apart.append(max(psrl, dorl) / min(psrl, dorl))
            below.append(_median(cells[p][f"f-Rmax m=300/500, {own}"]) / max(psrl, dorl))
    small = cells["three-leg:7"]["DORL c=0.003, exact"]["gap_regret"]
    ties = [
        _median(known["circle:7"][label])
        for label in (
            "f-Rmax m=300, ties (exact ties=first)",
            "f-Rmax m=300 (exact)",
            "f-Rmax m=300, ties (exact ties=last)",
        )
    ]
    claim = "the paper's claim"
    holds = f"{claim} {'holds' if min(below) >= 3 else 'does not hold'} on these instances"
    tail = _wrapped(
        f"PSRL and DORL are within a factor of {max(apart):.1f} of each other and "
        f"{_between(below, '.0f')} times below f-Rmax with the paper's m, with either planner: "
        f"{holds}. Small constants have better medians and can have worse tails, because some runs "
        f"settle on a wrong policy. For DORL with c = .003 on three-leg 7 the median gap regret is "
        f"{_whole(small['median'])} and the worst {_whole(small['worst'])}. The choice of the tied "
        f"action changes f-Rmax too: on circle 7 with exact plans and m = 300 its regret is "
        f"{_whole(ties[0])} with the first, {_whole(ties[1])} with a random and {_whole(ties[2])} "
        f"with the last of the tied actions."
    )
    return f"{head}\n\n{tail}\n\n{table}"


def hard(numbers: Numbers) -> str:
    """docs/learning.md: where planning is hard."""
    part = numbers["parts"]["hard"]
    cells = part["cells"][GUESTRIN]
    exact, linear = (
        {name: f"{_median(cells[f'{name} ({own})']):,.0f}" for name in ("PSRL", "DORL", "f-Rmax")}
        for own in ("exact", "alp")
    )
    return _wrapped(
        f"**Where planning is hard**, the planner decides. The example is `{GUESTRIN}` with T = "
        f"{part['steps']:,}, medians of {part['seeds']} seeds. With the exact planner the regret "
        f"is {exact['PSRL']} for PSRL, {exact['DORL']} for DORL and {exact['f-Rmax']} for f-Rmax. "
        f"With the linear planner, whose basis grows inside PSRL and consists of single variables "
        f"for the others, it is {linear['PSRL']} for PSRL, "
        f"{linear['DORL']} for DORL and {linear['f-Rmax']} for f-Rmax. FSRL, with the span "
        f"planner, has {_whole(_median(cells['FSRL']))}."
    )


def slopes(numbers: Numbers) -> str:
    """docs/learning.md: growth with T."""
    part = numbers["parts"]["slopes"]
    found = [cell["slope"] for own in part["cells"].values() for cell in own.values()]
    slower = "far slower than sqrt(T)" if max(found) < 0.4 else "as follows"
    return _wrapped(
        f"**Growth with T.** With the exact planner the gap regret grows {slower}. Over the last "
        f"decade up to T = {part['steps']:,}, the slope of log regret (median of {part['seeds']} "
        f"seeds) against log T is {_between(found, '.2f')} on {len(part['cells'])} instances. Four "
        f"of these are one draw each of random tables."
    )


def span(numbers: Numbers) -> str:
    """docs/learning.md: where the factored span matters."""
    part = numbers["parts"]["span"]
    cells = part["cells"]

    def gap(problem: str, label: str) -> float:
        return _median(cells[problem][label], "gap_regret")

    alike = [max(gap(p, "fsrl, budget given"), 1e-9) / max(gap(p, "dorl"), 1e-9) for p in REACHABLE]
    each = {
        label: _between([gap(name, label) / n for n, name in CORNERS.items()])
        for label in ("dorl", "fsrl, no budget", "psrl")
    }
    given = _listed([f"{_whole(gap(name, 'fsrl, budget given'))}" for name in CORNERS.values()])
    reachable = _wrapped(
        f"**Where the factored span matters, and where it does not.** A span budget helps only "
        f"where something attractive can hardly be reached. On the large-diameter example, on JAO "
        f"products (whose diameter grows like 2^n) and on RiverSwim products, FSRL and DORL do "
        f"nearly the same. With a sufficient budget, FSRL has {_between(alike, '.2f')} times "
        f"DORL's median gap regret after {part['steps']:,} steps, over {part['seeds']} seeds. "
        f"Optimism makes a bias smaller, not larger, so such a budget hardly ever binds."
    )
    unreachable = _wrapped(
        f"The opposite case is a product of n copies of this problem: stay at home for .5, or try "
        f"for .4 to reach a corner that is never reached. It has an infinite diameter and factored "
        f"spans of 1/9. DORL believes in the corner forever and its regret is linear: medians of "
        f"{each['dorl']} times n after {part['steps']:,} steps, n = 1, 2, 4. FSRL with a budget of "
        f"n/2 stops trying ({given}). FSRL without a budget, where the budget doubles and grows, "
        f"is in between ({each['fsrl, no budget']} times n), and so is PSRL ({each['psrl']} times "
        f"n). PSRL's samples give the corner a small probability, and under average reward the "
        f"best policy of such a sample tries forever."
    )
    return f"{reachable}\n\n{unreachable}"


def _percent(value: float) -> str:
    digits = 1 if abs(value) >= 0.00095 or abs(value) < 5e-5 else 2
    text = f"{100 * value:.{digits}f}"
    return f"{text.removeprefix('-') if float(text) == 0 else text} %"


def _loss(numbers: Numbers, title: str, kind: str) -> float:
    found = numbers["parts"]["plans"]
    return 1.0 - float(found[f"{title} | {kind}"]["policy"] / found[f"{title} | exact"]["gain"])


def _excess(numbers: Numbers, title: str, kind: str) -> float:
    found = numbers["parts"]["plans"]
    return float(found[f"{title} | {kind}"]["upper"] / found[f"{title} | exact"]["gain"]) - 1.0


def gaps(numbers: Numbers) -> str:
    """docs/approximate.md: what the linear program loses."""
    rows = []
    for kind in KINDS:
        if "ties" not in kind:
            rows.append(
                [f"{kind}, bound", *(f"+{_percent(_excess(numbers, t, kind))}" for t in GAPS)]
            )
        name = kind if "ties" in kind else f"{kind}, policy"
        rows.append([name, *(_percent(-_loss(numbers, t, kind)) for t in GAPS)])
    head = [f"`{title}`" if ":" in title else _coded(title) for title in GAPS]
    return _table(["basis", *head], rows)


def _coded(title: str) -> str:
    first, rest = title.split(" ", 1)
    return f"`{first}` {rest}"


def wider(numbers: Numbers) -> str:
    """docs/approximate.md: neighbours on seven machines."""
    title = "guestrin circle 7"
    rows = [
        [
            kind,
            f"+{_percent(_excess(numbers, title, kind))}",
            _percent(-_loss(numbers, title, kind)),
        ]
        for kind in WIDER
    ]
    return _table(["scopes", "bound", "policy"], rows)


def larger(numbers: Numbers) -> str:
    """docs/approximate.md: neighbours on larger circles."""
    kinds = ["singles", *(f"{width} neighbours" for width in WIDTHS)]
    rows = [
        [f"{n}", *(_percent(_loss(numbers, f"{n} machines", kind)) for kind in kinds)]
        for n in LARGER
    ]
    worst = max(_loss(numbers, f"{n} machines", f"{WIDTHS[-1]} neighbours") for n in LARGER)
    at = {
        kind: _percent(_loss(numbers, "11 machines", f"4 neighbours{kind}"))
        for kind in ("", *(f", {kind}" for kind in HARDER))
    }
    tail = _wrapped(
        f"With {WIDTHS[-1]} neighbours the loss is at most {_percent(worst)} throughout. A larger "
        f"discount or the average criterion tightens the bound and can worsen the policy, because "
        f"the linear program bounds the value and ignores the policy. With 4 neighbours and 11 "
        f"machines the loss is {at['']} at .95, {at[', discount .99']} at .99 and "
        f"{at[', average']} with the average criterion."
    )
    return f"{tail}\n\n{_table(['machines', *kinds], rows)}"


def relatives(numbers: Numbers) -> str:
    """docs/approximate.md: policy iteration and Bellman error beside the linear program."""
    rows = [
        [
            f"{_coded(title)}, {kind}",
            *(
                _percent(_loss(numbers, title, f"{kind} | {name}"))
                for name in ("alp", "policy-iteration", "bellman-error")
            ),
        ]
        for title, kind in RELATIVES
    ]
    return _table(
        ["loss of the policy", "linear program", "policy iteration", "Bellman error"], rows
    )


def split_targets(numbers: Numbers) -> str:
    """docs/approximate.md: how far the relaxed targets are off."""
    found = numbers["parts"]["plans"]["split targets"]
    return _wrapped(
        f"On 40 random models of five variables the objective of `split` was "
        f"{_percent(found['mean'])} too high on average and {_percent(found['worst'])} at worst."
    )


BLOCKS: Mapping[str, Mapping[str, Callable[[Numbers], str]]] = {
    "experiments.md": {"figure": figure, "paper": paper, "fresh": fresh, "planner": planner},
    "learning.md": {
        "rivals": rivals,
        "learning": learning,
        "hard": hard,
        "slopes": slopes,
        "span": span,
    },
    "approximate.md": {
        "split-targets": split_targets,
        "gaps": gaps,
        "wider": wider,
        "larger": larger,
        "relatives": relatives,
    },
}


def block(name: str, text: str) -> str:
    return f"<!-- numbers: {name} -->\n{text}\n<!-- end of {name} -->"


def filled(page: str, text: str, numbers: Numbers) -> str:
    """The page with its blocks made afresh."""
    for name, tell in BLOCKS[page].items():
        pattern = (
            re.escape(f"<!-- numbers: {name} -->") + r".*?" + re.escape(f"<!-- end of {name} -->")
        )
        parts = re.split(pattern, text, flags=re.DOTALL)
        if len(parts) != 2:
            raise SystemExit(f"docs/{page}: has {len(parts) - 1} blocks {name}; must have one")
        text = block(name, tell(numbers)).join(parts)
    return text


def write_pages(numbers: Numbers) -> None:
    for page in BLOCKS:
        path = DOCS / page
        path.write_text(filled(page, path.read_text(encoding="utf-8"), numbers), encoding="utf-8")


STYLES = {
    "psrl": ("PSRL", "#0072B2", "-"),
    "dorl": ("DORL", "#D55E00", "--"),
    "fsrl": ("FSRL", "#009E73", "-."),
    "fsrl, budget given": ("FSRL, budget given", "#009E73", "-."),
    "fsrl, no budget": ("FSRL, budget doubled", "#CC79A7", ":"),
}


FIGURES = {
    "slopes": (*XU, GUESTRIN),
    "span": (*REACHABLE, "corner never reached, 4"),
}


def draw_curves(results: Mapping[str, Any], path: Path, problems: Sequence[str]) -> None:
    """Median gap regret and quartiles against time, one panel a problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "fmdp"})
    figure, axes = plt.subplots(
        1, len(problems), figsize=(3.4 * len(problems), 3.4), layout="constrained"
    )
    for axis, problem in zip(np.atleast_1d(axes), problems, strict=True):
        for label, (name, colour, line) in STYLES.items():
            row = results.get(f"{problem} | {label}")
            if row is None:
                continue
            if "slope" in row:
                name = f"{name}, slope {row['slope']:.2f}"
            axis.plot(row["t"], row["median"], color=colour, linestyle=line, label=name)
            axis.fill_between(row["t"], row["low"], row["high"], color=colour, alpha=0.15, lw=0)
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(bottom=1.0)
        axis.set_xlabel("step")
        axis.set_title(problem.replace(",", ",\n", 1), fontsize=10)
        axis.grid(visible=True, which="major", color="#dddddd", linewidth=0.7)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=8, loc="upper left")
    np.atleast_1d(axes)[0].set_ylabel("gap regret: median, quartiles")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, metadata={"Software": None} if path.suffix == ".png" else None)


def draw_figure(part: str, cells: Mapping[str, Mapping[str, Any]]) -> None:
    """docs/figures/learning-slopes.png or learning-span.png."""
    titles = {name: f"corner never reached, {n}" for n, name in CORNERS.items()}
    results = {
        f"{titles.get(problem, problem)} | {label}": {
            **cell["curve"],
            **({"slope": cell["slope"]} if part == "slopes" else {}),
        }
        for problem, own in cells.items()
        for label, cell in own.items()
    }
    draw_curves(results, DOCS / "figures" / f"learning-{part}.png", FIGURES[part])


# ---- the command --------------------------------------------------------------------------------

PARTS = ("figure", "known", "fresh", "hard", "planner", "rivals", "slopes", "span", "plans")
CURVES = ("slopes", "span")


def measure(part: str, seeds: int, workers: int | None, *, figures: bool) -> dict[str, Any]:
    if part == "plans":
        return plans(workers)
    spec = unrecorded(specs(seeds)[part])
    # Before a version is final its results may move: runs of then and of now must not mix.
    history = json.loads(FINGERPRINTS.read_text())["history"]
    folder = STORES / f"{RESULTS_VERSION}-{history[str(RESULTS_VERSION)]}" / part
    run(spec, folder, workers)
    found = collected(spec, folder, curves=part in CURVES) | {"settings": settings_digest(spec)}
    if part in CURVES:
        if figures:
            draw_figure(part, found["cells"])
        for own in found["cells"].values():
            for cell in own.values():
                del cell["curve"]
    return found | ({"words": words(folder)} if part == "figure" else {})


def store(document: Numbers) -> None:
    text = json.dumps(document, indent=1, allow_nan=False)
    # What has nothing inside it on one line.
    text = re.sub(r"\{[^{}\[\]]*\}", lambda found: " ".join(found[0].split()), text)
    FILE.write_text(text + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="fewer for a first look")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone")
    parser.add_argument("--write", action="store_true", help="run nothing, write the pages again")
    parser.add_argument("--no-figures", action="store_true")
    given = parser.parse_args()
    old = json.loads(FILE.read_text()) if FILE.exists() else {"parts": {}}
    kept = old["parts"] if old.get("results_version") == RESULTS_VERSION else {}
    if not given.write:
        wanted = given.only or PARTS
        for part in wanted:
            print(part, flush=True)
            kept[part] = measure(part, given.seeds, given.workers, figures=not given.no_figures)
        store({"results_version": RESULTS_VERSION, "parts": kept})
    missing = [part for part in PARTS if part not in kept]
    if missing:
        sys.exit(f"docs_numbers: the pages stay as they are, {', '.join(missing)} must be run too")
    write_pages(json.loads(FILE.read_text()))


if __name__ == "__main__":
    main()
