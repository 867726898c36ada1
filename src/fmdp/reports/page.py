"""The web page of a report: one file that works offline, made from the assets beside this module.

Data is embedded as JSON in a script element that browsers do not run, with every "<" escaped, so
that no text from the store can end the element; text written as HTML is escaped. The content
security policy allows our own script and style by their hashes and nothing else: no network, and no
injected script. Recordings are deflated, and unpacked by the page on demand.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp._base.memory import describe_count
from fmdp.errors import FmdpError
from fmdp.experiments.analysis import Analysis, Comparison
from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells
from fmdp.experiments.measures import GAIN, Measure, declared, measure_named
from fmdp.experiments.statistics import TOO_SMALL, SampleSummary, mean_interval, mean_of
from fmdp.experiments.store import Recording, Store, StoredRun, StoredSpec
from fmdp.learning.registry import LEARNERS
from fmdp.learning.unknown.learner import UNKNOWN, ScopeLearner
from fmdp.model import FactoredMDP
from fmdp.reports.figures import drawn_cells
from fmdp.reports.network import network, touched_nodes
from fmdp.reports.style import styles

SCRIPTS = ("dom.js", "curves.js", "tables.js", "replay.js", "start.js")
MOST_SHOWN = 16
"""Most labels whose curves are all shown when the page opens."""
MOST_REPLAYED = 20_000
"""Most steps of a recording in the page; the store keeps all."""

LEAST_SHOWN = 0.05
"""Smallest probability of an arrow that is drawn, for learners that learn the scopes."""

LINES = {
    "median": "Median over the seeds; the bands reach from the lower to the upper quartile.",
    "mean": "Mean over the seeds; the bands are its 95 % interval at each step by itself "
    "(Student's t).",
}


@dataclass(frozen=True)
class Texts:
    """The sentences of a page."""

    headline: tuple[str, ...] = ()
    """At most three short sentences, above the curves."""
    paper: tuple[str, ...] = ()
    """The paper's claims compared with the numbers."""
    standings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def page(
    store: Store,
    dataset: Dataset,
    analysis: Analysis,
    texts: Texts,
    featured: Collection[str] = (),
) -> str:
    """Return the page of a report.

    If there are too many curves to show all, those of the `featured` labels are shown at first.
    """
    assets = resources.files("fmdp.reports") / "assets"
    style = (assets / "page.css").read_text("utf-8")
    parts = [(assets / name).read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n(() => {\n' + "\n".join(parts) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{style_hash(script)}'; style-src '{style_hash(style)}'; "
        f"base-uri 'none'; form-action 'none'"
    )
    return Template((assets / "page.html").read_text("utf-8")).substitute(
        policy=policy,
        generator=f"fmdp {__version__}",
        title=escape(title(dataset)),
        facts=escape(" · ".join(facts(dataset))),
        headline=_headline(texts),
        details=_card("notes", "About these runs", _list(texts.notes), "note")
        + _card("ahead", "Standings", _paragraphs(texts.standings))
        + _card("paper", "Against the paper", _paragraphs(texts.paper)),
        provenance=_provenance(store, dataset),
        style=style,
        script=script,
        # Curves open on the measure of the headline.
        data=as_script(
            page_data(
                store, dataset, analysis, featured, by_gap=bool(texts.standings and not texts.paper)
            )
        ),
    )


def style_hash(text: str) -> str:
    """Return the hash by which a content security policy allows a script or style."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def as_script(value: object) -> str:
    """Return JSON that is safe inside a script element, whatever its strings are."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def title(dataset: Dataset) -> str:
    titles = [spec.title or spec.name for spec in dataset.specs]
    return titles[0] if len(titles) == 1 else "Runs of factored MDP learners"


def facts(dataset: Dataset) -> Iterable[str]:
    counts = {
        "problem": len(dataset.problems),
        "cell": len(dataset.cells),
        "run": sum(len(cell.runs) for cell in dataset.cells),
    }
    for noun, count in counts.items():
        yield f"{count:,} {noun}{'' if count == 1 else 's'}"
    steps = sorted({cell.steps for cell in dataset.cells})
    yield " and ".join(f"{n:,}" for n in steps) + " steps"


def page_data(
    store: Store,
    dataset: Dataset,
    analysis: Analysis,
    featured: Collection[str],
    *,
    by_gap: bool = False,
) -> dict[str, Any]:
    """Return the data of the scripts; with `by_gap` they open on the measure of the standings."""
    looks = styles(dataset.cells)
    step_seconds = {(s.problem, s.label): s.seconds_per_step for s in dataset.standings}
    learner_of = {cell.label: cell.learner for cell in dataset.cells}
    role_of = {cell.label: cell.role for cell in dataset.cells}
    # Of too many curves the choice of the figures is shown at first.
    shown = set(looks) if len(looks) <= MOST_SHOWN else _drawn(dataset) | {*featured}
    compared = {standing.measure for standing in dataset.standings}
    columns = [measure for measure in declared() if measure.column is not None]
    return {
        "tooSmall": TOO_SMALL,
        "lines": LINES,
        "opens": compared.pop() if by_gap and len(compared) == 1 else dataset.measures[0],
        "measures": [_measure(measure_named(name)) for name in dataset.measures],
        "columns": [{"key": measure.name, "head": measure.column} for measure in columns],
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
        "problems": [_problem(store, problem) for problem in dataset.problems],
        "summaries": [
            {
                **_summary(cell, measure, summary),
                **{m.name: _over_runs(m, cell.runs) for m in columns},
                "microseconds": 1e6 * step_seconds[cell.problem, cell.label],
                "seconds": float(np.median([run.seconds for run in cell.runs])),
            }
            for cell, measure, summary in _by_median(dataset, analysis)
        ],
        "comparisons": [_comparison(comparison) for comparison in analysis.comparisons],
    }


def _summary(cell: CellCurves, measure: str, summary: SampleSummary) -> dict[str, Any]:
    return {
        "measure": measure,
        "problem": cell.problem,
        "label": cell.label,
        "learner": cell.learner,
        "role": cell.role,
        "runs": summary.n,
        "steps": cell.steps,
        "median": summary.median,
        "interval": summary.interval,
        "quartiles": [summary.lower_quartile, summary.upper_quartile],
        "mean": summary.mean,
        "meanInterval": summary.mean_interval,
        "worst": summary.worst,
    }


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "measure": comparison.measure,
        "problem": comparison.problem,
        "first": comparison.first,
        "second": comparison.second,
        "seeds": comparison.test.n,
        "median": comparison.differences.median,
        "interval": comparison.differences.interval,
        "mean": comparison.differences.mean,
        "meanInterval": comparison.differences.mean_interval,
        "lower": comparison.test.lower,
        "p": comparison.test.p_value,
        "adjusted": comparison.adjusted,
        "family": comparison.family,
        "verdict": comparison.verdict,
    }


def _drawn(dataset: Dataset) -> set[str]:
    return {
        cell.label
        for problem in dataset.problems
        for measure in dataset.measures
        for cell in drawn_cells(problem, measure, "linear")
    }


def _measure(measure: Measure[Any]) -> dict[str, str]:
    return {
        "key": measure.name,
        "name": measure.title,
        "caption": measure.caption,
        "axis": measure.axis,
    }


def _by_median(dataset: Dataset, analysis: Analysis) -> list[tuple[CellCurves, str, SampleSummary]]:
    """Return every cell with every measure: problem by problem, the lowest median first."""
    order = [problem.name for problem in dataset.problems]
    rows = [
        (of_cell.cell, measure, summary)
        for of_cell in analysis.summaries
        for measure, summary in of_cell.by_measure.items()
    ]
    return sorted(rows, key=lambda row: (order.index(row[0].problem), row[2].median))


def _over_runs(measure: Measure[Any], runs: Sequence[StoredRun]) -> float | None:
    """Combine a measure over the runs of a cell; None if no run has it."""
    known = [value for run in runs if (value := run.measure(measure)) is not None]
    if not known:
        return None
    return sum(known) if measure.over_runs == "sum" else float(np.median(known))


def _problem(store: Store, problem: ProblemCells) -> dict[str, Any]:
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
        "cells": [_cell(store, cell, model) for cell in problem.cells],
    }


def _cell(store: Store, cell: CellCurves, model: FactoredMDP) -> dict[str, Any]:
    curves = {}
    for measure, values in cell.curves.items():
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        columns = values.T.tolist()
        means = [mean_of(column) for column in columns]
        # A single run has no interval: its band is the line.
        ends = [mean_interval(column) or (column[0], column[0]) for column in columns]
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
        "replay": _replay(store, cell, model),
    }


def _short(values: Iterable[float]) -> list[float]:
    """Round to six digits, more than a screen can show, to halve the size."""
    return [float(f"{value:.6g}") for value in values]


def _replay(store: Store, cell: CellCurves, model: FactoredMDP) -> dict[str, Any] | None:
    run = cell.recorded
    recording = None if run is None else store.recording(run.key)
    # With a prior the network that is drawn is that of one draw.
    if run is None or recording is None or run.model != model.content_hash:
        return None
    of = len(recording.actions)
    steps = min(of, MOST_REPLAYED)
    frames = recording.times <= steps
    return {
        "seed": run.seed,
        "gain": run.measure(GAIN),
        "steps": steps,
        "of": of,
        "states": packed(recording.states[: steps + 1]),
        "actions": packed(recording.actions[:steps]),
        "rewards": packed(recording.rewards[:steps].sum(axis=1)),
        "times": recording.times[frames].tolist(),
        "uncertainty": [_short(row) for row in recording.uncertainty[frames]],
        "visited": recording.visited[frames].tolist(),
        "rows": list(model.structure.transition_class_counts),
        "edges": _learned_edges(run, recording, model, frames),
    }


def _learned_edges(
    run: StoredRun, recording: Recording, model: FactoredMDP, frames: NDArray[np.bool_]
) -> list[list[tuple[int, int, float]]] | None:
    """Return, per frame, the arrows between nodes of which a learner without known scopes was at
    least 5 % sure, as (source, target, probability); None for learners that know the scopes."""
    try:
        learner = LEARNERS.find(run.learner, importing=False).make(run.parameters)
    except FmdpError:  # a learner of one's own that is not at hand
        return None
    if not isinstance(learner, ScopeLearner) or learner.scopes != UNKNOWN:
        return None
    structure, states = model.structure, recording.states
    log = np.concatenate([states[:-1], recording.actions, states[1:]], axis=1)
    edges = learner.edges_over_time(structure, log, recording.times[frames].tolist())
    nodes = network(structure).nodes
    members = [list(node.variables) for node in nodes]
    arrows = []
    for probabilities in edges:
        between = [
            (a, b, round(float(probabilities[np.ix_(members[b], members[a])].max()), 2))
            for a in range(len(nodes))
            for b in range(len(nodes))
            if a != b
        ]
        arrows.append([arrow for arrow in between if arrow[2] >= LEAST_SHOWN])
    return arrows


def packed(array: NDArray[Any]) -> dict[str, str]:
    """Return an array for the page: little-endian, deflated, base64."""
    if array.dtype.kind in "iu":
        largest = int(array.max(initial=0))
        kind = "u1" if largest < 2**8 else "u2" if largest < 2**16 else "u4"
    else:
        kind = "f8"
    flat = np.ascontiguousarray(array, dtype=f"<{kind}").tobytes()
    return {"type": kind, "data": base64.b64encode(zlib.compress(flat, level=9)).decode()}


def _headline(texts: Texts) -> str:
    sentences = " ".join(escape(sentence) for sentence in texts.headline)
    many = len(texts.notes)
    link = f' <a href="#notes">{many} note{"s" if many > 1 else ""}</a>' if many else ""
    return f'<p class="headline">{sentences}{link}</p>\n'


def _card(name: str, head: str, body: str, kind: str = "paper") -> str:
    if not body:
        return ""
    return (
        f'<section class="{kind}" id="{name}" aria-labelledby="{name}-title">'
        f'<h2 id="{name}-title">{head}</h2>\n{body}</section>\n'
    )


def _paragraphs(texts: Sequence[str]) -> str:
    return "".join(f"<p>{escape(text)}</p>\n" for text in texts)


def _list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _provenance(store: Store, dataset: Dataset) -> str:
    done = [run for cell in dataset.cells for run in cell.runs]
    rows: list[tuple[str, str]] = [
        ("fmdp", _counted(Counter(run.fmdp_version for run in done))),
        ("Results version", _counted(Counter(str(run.results_version) for run in done))),
        ("Machine", _counted(Counter(run.machine for run in done))),
        ("Time in runs", f"{sum(run.seconds for run in done):,.1f} s"),
        ("Page made by", f"fmdp {__version__}"),
    ]
    text = _facts_table(rows)
    for spec in dataset.specs:
        text += _spec(spec)
    cells = "".join(
        f"<details><summary>{escape(cell.problem)}: {escape(cell.label)}</summary>"
        f"{_facts_table(_settings(cell))}</details>\n"
        for cell in dataset.cells
    )
    text += f"<details><summary>All parameters of every cell</summary>{cells}</details>\n"
    text += _sources(store, dataset)
    if dataset.grouped.left_out:
        pairs = "".join(
            f"<li>{escape(pair.label)} on {escape(pair.problem)}: {escape(pair.reason)}</li>\n"
            for pair in dataset.grouped.left_out
        )
        text += f"<details><summary>Pairs that do not fit</summary><ul>{pairs}</ul></details>\n"
    if dataset.grouped.failed:
        failures = "".join(
            f"<li>{escape(run.problem)}, {escape(run.learner)}, seed {run.seed}: "
            f"{escape(run.error or '')}</li>\n"
            for _, _, run in dataset.grouped.failed
        )
        text += f"<details open><summary>Failed runs</summary><ul>{failures}</ul></details>\n"
    return text


def _sources(store: Store, dataset: Dataset) -> str:
    """Return the source texts of users' code, each once, with the cells that it made."""
    users: dict[tuple[str, str], list[str]] = {}
    for cell in dataset.cells:
        with_code = [run.key for run in cell.runs if run.code]
        for source in {text for key in with_code for text in store.sources(key).items()}:
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


def _settings(cell: CellCurves) -> list[tuple[str, str]]:
    def text(values: Mapping[str, Any]) -> str:
        return ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) or "none"

    return [
        ("Learner", cell.learner),
        ("Parameters", text(cell.parameters)),
        ("Planner", cell.planner or "none"),
        ("Its settings", text(cell.planner_settings)),
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
