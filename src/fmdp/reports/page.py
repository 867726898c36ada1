"""The web page: one file that works offline, made from the assets beside this module.

Data goes into the page as JSON in a script element that no browser runs, with every "<" written as
an escape, so that no text from the store can end the element; what is written as HTML is escaped.
The page's content security policy allows our own script and style by their hashes and nothing else:
no network, and no script that might slip in. Recordings are deflated; the page unpacks them when
they are asked for.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp._base.memory import describe_count
from fmdp.experiments.confidence_intervals import TOO_SMALL, mean_interval, mean_of
from fmdp.experiments.measures import GAIN, PLANNER_CALLS, UNCONVERGED_PLANS
from fmdp.experiments.store import Store, StoredSpec
from fmdp.reports.analysis import Analysis, CellSummary
from fmdp.reports.cells import GAP, MEASURES, REALISED, Cell, Compared, Runs, replay
from fmdp.reports.figures import drawn_cells
from fmdp.reports.network import network, touched_nodes
from fmdp.reports.statistics import Summary
from fmdp.reports.style import styles

SCRIPTS = ("dom.js", "curves.js", "tables.js", "replay.js", "start.js")
MOST_SHOWN = 16
"""Labels whose curves are all shown when the page opens."""
MOST_REPLAYED = 20_000
"""Steps of a recording that go into the page; learning is early, and the store keeps all."""

CAPTIONS = {
    REALISED: "Realised regret: t times the gain minus the rewards of t steps.",
    GAP: "Gap regret: what the actions of t steps give away against optimal ones, by the optimal "
    "bias; free of the luck in the rewards.",
}
LINES = {
    "median": "Median over the seeds; the bands reach from the lower to the upper quartile.",
    "mean": "Mean over the seeds; the bands are its 95 % interval at each step by itself "
    "(Student's t).",
}


def page(
    store: Store,
    runs: Runs,
    analysis: Analysis,
    paragraphs: Sequence[str] = (),
    featured: Collection[str] = (),
    ahead: Sequence[str] = (),
) -> str:
    """The page of a report; `paragraphs` about the paper and about who is ahead stand on top,
    before the curves, and the curves of the `featured` labels are shown even where there are too
    many to show all at first."""
    assets = resources.files("fmdp.reports") / "assets"
    style = (assets / "page.css").read_text("utf-8")
    parts = [(assets / name).read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        f"base-uri 'none'; form-action 'none'"
    )
    return Template((assets / "page.html").read_text("utf-8")).substitute(
        policy=policy,
        generator=f"fmdp {__version__}",
        title=escape(title(runs)),
        facts=escape(" · ".join(facts(runs))),
        paper=_card("paper", "Against the paper", paragraphs)
        + _card("ahead", "Who is ahead", ahead),
        notes=_notes((*runs.notes, *analysis.notes)),
        provenance=_provenance(store, runs),
        style=style,
        script=script,
        # On the measure that is told of on top.
        data=as_script(
            data(store, runs, analysis, featured, by_gap=bool(ahead and not paragraphs))
        ),
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def as_script(value: object) -> str:
    """JSON that can stand inside a script element, whatever its strings are."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def title(runs: Runs) -> str:
    titles = [spec.title or spec.name for spec in runs.specs]
    return titles[0] if len(titles) == 1 else "Runs of factored MDP learners"


def facts(runs: Runs) -> Iterable[str]:
    counts = {
        "problem": len(runs.problems),
        "cell": len(runs.cells),
        "run": sum(len(cell.runs) for cell in runs.cells),
    }
    for noun, count in counts.items():
        yield f"{count:,} {noun}{'' if count == 1 else 's'}"
    steps = sorted({cell.steps for cell in runs.cells})
    yield " and ".join(f"{n:,}" for n in steps) + " steps"


def data(
    store: Store,
    runs: Runs,
    analysis: Analysis,
    featured: Collection[str],
    *,
    by_gap: bool = False,
) -> dict[str, Any]:
    """What the scripts draw; `by_gap`: curves and tables open on the measure of the standings."""
    looks = styles(runs.cells)
    step_seconds = {(one.problem, one.label): one.seconds_per_step for one in runs.standings}
    learner_of = {cell.label: cell.learner for cell in runs.cells}
    role_of = {cell.label: cell.role for cell in runs.cells}
    # Too many curves to read: the figures' choice is shown at first, the others can be switched on.
    shown = set(looks) if len(looks) <= MOST_SHOWN else _chosen(runs) | {*featured}
    told = {one.measure for one in runs.standings}
    return {
        "tooSmall": TOO_SMALL,
        "lines": LINES,
        "opens": told.pop() if by_gap and len(told) == 1 else runs.measures[0],
        "measures": [
            {"key": measure, "name": MEASURES[measure], "caption": CAPTIONS[measure]}
            for measure in runs.measures
        ],
        "labels": [
            {
                "label": label,
                "learner": learner_of[label],
                "role": role_of[label],
                "colour": look.colour,
                "dark": look.colour_on_dark,
                "dash": look.dash,
                "marker": look.marker,
                "shown": label in shown,
            }
            for label, look in looks.items()
        ],
        "problems": [_problem(store, problem) for problem in runs.problems],
        "summaries": [
            {
                "measure": measure,
                "problem": found.cell.problem,
                "label": found.cell.label,
                "learner": found.cell.learner,
                "role": found.cell.role,
                "runs": summary.n,
                "steps": found.cell.steps,
                "median": summary.median,
                "interval": summary.interval,
                "quartiles": [summary.lower_quartile, summary.upper_quartile],
                "mean": summary.mean,
                "meanInterval": summary.mean_interval,
                "worst": summary.worst,
                "plans": _median(run.measure(PLANNER_CALLS) for run in found.cell.runs),
                "unconverged": _sum(run.measure(UNCONVERGED_PLANS) for run in found.cell.runs),
                "microseconds": 1e6 * step_seconds[found.cell.problem, found.cell.label],
                "seconds": _median(run.seconds for run in found.cell.runs),
            }
            for found, measure, summary in _by_median(runs, analysis)
        ],
        "comparisons": [
            {
                "measure": comparison.measure,
                "problem": comparison.problem,
                "first": comparison.first,
                "second": comparison.second,
                "seeds": comparison.test.n,
                "median": comparison.median,
                "interval": comparison.interval,
                "mean": comparison.differences.mean,
                "meanInterval": comparison.differences.mean_interval,
                "lower": comparison.test.lower,
                "p": comparison.test.p_value,
                "adjusted": comparison.adjusted,
                "family": comparison.family,
                "verdict": comparison.verdict,
            }
            for comparison in analysis.comparisons
        ],
    }


def _chosen(runs: Runs) -> set[str]:
    return {
        cell.label
        for problem in runs.problems
        for measure in runs.measures
        for cell in drawn_cells(problem, measure, "linear")
    }


def _by_median(runs: Runs, analysis: Analysis) -> list[tuple[CellSummary, str, Summary]]:
    """Every cell with every measure: problem by problem, the lowest median first."""
    order = [problem.name for problem in runs.problems]
    found = [
        (cell, measure, summary)
        for cell in analysis.summaries
        for measure, summary in cell.by_measure.items()
    ]
    return sorted(found, key=lambda one: (order.index(one[0].cell.problem), one[2].median))


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def _problem(store: Store, problem: Compared) -> dict[str, Any]:
    model = store.model(problem.model_hash)
    structure = model.structure
    drawn = network(structure)
    touched = touched_nodes(model, drawn)
    return {
        "name": problem.name,
        "gain": problem.gain,
        "gainKind": problem.gain_kind,
        "size": f"{describe_count(structure.n_states)} states, "
        f"{describe_count(structure.n_actions)} actions",
        "actions": [
            {"name": name, "values": list(values), "touched": nodes}
            for name, values, nodes in zip(
                structure.action_names, structure.action_values, touched, strict=True
            )
        ],
        "variables": [
            {"name": name, "values": list(values)}
            for name, values in zip(structure.state_names, structure.state_values, strict=True)
        ],
        "initial": model.initial_state,
        "network": {
            "nodes": [vars(node) for node in drawn.nodes],
            "arrows": [[arrow.source, arrow.target, arrow.both] for arrow in drawn.arrows],
        },
        "cells": [_cell(store, cell) for cell in problem.cells],
    }


def _cell(store: Store, cell: Cell) -> dict[str, Any]:
    curves = {}
    for measure, values in cell.curves.items():
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        columns = values.T.tolist()
        means = [mean_of(own) for own in columns]
        # A single run has no interval: its band is the line.
        ends = [mean_interval(own) or (own[0], own[0]) for own in columns]
        curves[measure] = {
            "median": _short(median),
            "low": _short(low),
            "high": _short(high),
            "mean": _short(means),
            "meanLow": _short(low for low, _ in ends),
            "meanHigh": _short(high for _, high in ends),
        }
    return {
        "label": cell.label,
        "t": cell.t.tolist(),
        "curves": curves,
        "replay": _replay(store, cell),
    }


def _short(values: Iterable[float]) -> list[float]:
    """Round to six digits: more than a screen can show, at half the size."""
    return [float(f"{value:.6g}") for value in values]


def _replay(store: Store, cell: Cell) -> dict[str, Any] | None:
    found = replay(store, cell)
    gain = None if found is None else found.run.measure(GAIN)
    if found is None or gain is None:
        return None
    recording = found.recording
    of = len(recording.actions)
    steps = min(of, MOST_REPLAYED)
    frames = recording.times <= steps
    return {
        "seed": found.run.seed,
        "gain": gain,
        "steps": steps,
        "of": of,
        "states": packed(recording.states[: steps + 1]),
        "actions": packed(recording.actions[:steps]),
        "rewards": packed(recording.rewards[:steps].sum(axis=1)),
        "times": recording.times[frames].tolist(),
        "uncertainty": [_short(row) for row in recording.uncertainty[frames]],
        "visited": recording.visited[frames].tolist(),
        "rows": list(found.model.structure.transition_class_counts),
    }


def packed(array: NDArray[Any]) -> dict[str, str]:
    """An array for the page: little-endian, deflated, base64."""
    if array.dtype.kind in "iu":
        largest = int(array.max(initial=0))
        kind = "u1" if largest < 2**8 else "u2" if largest < 2**16 else "u4"
    else:
        kind = "f8"
    flat = np.ascontiguousarray(array, dtype=f"<{kind}").tobytes()
    return {"type": kind, "data": base64.b64encode(zlib.compress(flat, level=9)).decode()}


def _card(name: str, head: str, paragraphs: Sequence[str]) -> str:
    if not paragraphs:
        return ""
    body = "".join(f"<p>{escape(paragraph)}</p>\n" for paragraph in paragraphs)
    return (
        f'<section class="paper" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{head}</h2>\n{body}</section>\n'
    )


def _notes(notes: Sequence[str]) -> str:
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<aside class="note" aria-label="What to know about these runs"><ul>{items}</ul></aside>\n'
    )


def _provenance(store: Store, runs: Runs) -> str:
    done = [run for cell in runs.cells for run in cell.runs]
    rows: list[tuple[str, str]] = [
        ("fmdp", _counted(Counter(run.fmdp_version for run in done))),
        ("Results version", _counted(Counter(str(run.results_version) for run in done))),
        ("Machine", _counted(Counter(run.machine for run in done))),
        ("Time in runs", f"{sum(run.seconds for run in done):,.1f} s"),
        ("Page made by", f"fmdp {__version__}"),
    ]
    text = _facts_table(rows)
    for spec in runs.specs:
        text += _spec(spec)
    cells = "".join(
        f"<details><summary>{escape(cell.problem)}: {escape(cell.label)}</summary>"
        f"{_facts_table(_settings(cell))}</details>\n"
        for cell in runs.cells
    )
    text += f"<details><summary>All parameters of every cell</summary>{cells}</details>\n"
    text += _sources(store, runs)
    if runs.left_out:
        pairs = "".join(
            f"<li>{escape(one.label)} on {escape(one.problem)}: {escape(one.reason)}</li>\n"
            for one in runs.left_out
        )
        text += f"<details><summary>Pairs that do not fit</summary><ul>{pairs}</ul></details>\n"
    if runs.failed:
        failures = "".join(
            f"<li>{escape(run.problem)}, {escape(run.learner)}, seed {run.seed}: "
            f"{escape(run.error or '')}</li>\n"
            for run in runs.failed
        )
        text += f"<details open><summary>Failed runs</summary><ul>{failures}</ul></details>\n"
    return text


def _sources(store: Store, runs: Runs) -> str:
    """Return the source texts of users' code that made the runs, each once, with its cells."""
    users: dict[tuple[str, str], list[str]] = {}
    for cell in runs.cells:
        with_code = [run.key for run in cell.runs if run.code]
        for source in {one for key in with_code for one in store.sources(key).items()}:
            users.setdefault(source, []).append(f"{cell.problem}: {cell.label}")
    return "".join(
        f"<details><summary>Code of {escape(name)}, for {escape('; '.join(cells))}</summary>"
        f"<pre>{escape(text)}</pre></details>\n"
        for (name, text), cells in sorted(users.items())
    )


def _spec(spec: StoredSpec) -> str:
    rows = [("Spec", spec.name), ("Hash", spec.hash), ("Added", f"{spec.added} (UTC)")]
    head = escape(spec.title or spec.name)
    return f"<h3>{head}</h3>{_facts_table(rows)}<pre>{escape(spec.text)}</pre>\n"


def _settings(cell: Cell) -> list[tuple[str, str]]:
    def told(values: Mapping[str, Any]) -> str:
        return ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) or "none"

    return [
        ("Learner", cell.learner),
        ("Parameters", told(cell.parameters)),
        ("Planner", cell.planner or "none"),
        ("Its settings", told(cell.planner_settings)),
        ("Steps", f"{cell.steps:,}"),
        ("Seeds", ", ".join(map(str, cell.seeds))),
        ("Model", cell.model),
    ]


def _counted(counts: Counter[str]) -> str:
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({count:,} runs)" for name, count in counts.items())


def _facts_table(rows: Iterable[tuple[str, str]]) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f'<table class="facts-table"><tbody>{body}</tbody></table>\n'
