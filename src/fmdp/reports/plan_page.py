"""The page of `fmdp inspect`: one HTML file with pictures, without scripts, that works offline.

All text is escaped. The content security policy allows the page's own style by its hash and nothing
else; SVG attributes carry what varies.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from importlib import resources
from typing import Any

from fmdp import __version__
from fmdp._base.memory import describe_count
from fmdp._base.numerals import known_number, short_number, upper_text
from fmdp.planning.occupancy.records import Summary
from fmdp.reports.network import Network, network
from fmdp.reports.page import style_hash
from fmdp.reports.style import COLOURS

_MOST_VALUES = 12
"""Most values of one variable that are drawn."""
_MOST_VARIABLES = 40
"""Most variables that are drawn; the JSON output of `fmdp inspect` has all."""
_RADIUS = 0.3
_APART = 0.9
"""Least distance between two nodes: two radii and a label."""
_MOST_SPREAD = 3.0
"""Most that a network is enlarged."""


def plan_page(summary: Summary, title: str) -> str:
    """Return the page of a summary."""
    assert summary.model is not None
    style = (resources.files("fmdp.reports") / "assets" / "plan.css").read_text("utf-8")
    s = summary.model.structure
    sizes = f"{describe_count(s.n_states)} states, {describe_count(s.n_actions)} actions"
    body = [
        '<div class="two"><div>',
        _section("factors", "Reward per step", _factors(summary)),
        _quantities(summary),
        _section("actions", "Share of time of each action", _shares(summary, "actions")),
        "</div>",
        _section("network", "Variables", _network(summary)),
        "</div>",
        _section("states", "Share of time of each value", _shares(summary, "states")),
        _section("events", "Events", _events(summary)) if summary.events else "",
        _section("visited", "States visited most", _visited(summary)),
    ]
    policy = f"default-src 'none'; style-src '{style_hash(style)}'; base-uri 'none'"
    caveat = f"<p>{escape(summary.caveat)}</p>" if summary.caveat else ""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}: what the plan does</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n<header><h1>{escape(title)}</h1>\n"
        f'<p class="soft">What the plan does in the long run · {escape(sizes)} · '
        f"{escape(_kind(summary))}</p>{caveat}</header>\n<main>\n{''.join(body)}</main>\n"
        f'<footer class="soft"><p>fmdp {__version__}. This page is one file and loads nothing from '
        "the network.</p></footer>\n</body>\n</html>\n"
    )


def _kind(summary: Summary) -> str:
    if summary.error is not None:
        return f"exact: every share is certified to {upper_text(summary.error, 2)}"
    return f"simulated, with intervals of {summary.confidence:.0%} confidence"


def _section(name: str, head: str, body: str) -> str:
    return (
        f'<section id="{name}" aria-labelledby="{name}-head">'
        f'<h2 id="{name}-head">{escape(head)}</h2>\n{body}</section>\n'
    )


def percent(share: float) -> str:
    """Return a share of time as a percentage."""
    return f"{100 * share:.2f} %" if share == 0 or share >= 1e-4 else f"{100 * share:.1e} %"


def _bar(label: str, share: float, text: str, bounds: Sequence[float] | None = None) -> str:
    """Return one bar; a mark shows the interval if it is wide enough to be seen."""
    mark = ""
    if bounds is not None and bounds[1] - bounds[0] > 0.004:
        low, width = 100 * bounds[0], 100 * (bounds[1] - bounds[0])
        mark = f'<rect class="span" x="{low:.3f}" y="4.5" width="{width:.3f}" height="1"/>'
    return (
        f'<div class="bar"><span>{escape(label)}</span>'
        f'<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="track" width="100" height="10"/>'
        f'<rect class="fill" width="{100 * min(max(share, 0.0), 1.0):.3f}" height="10"/>{mark}'
        f"</svg><span>{escape(text)}</span></div>\n"
    )


def _shares(summary: Summary, kind: str) -> str:
    parts = []
    shares: Mapping[str, Mapping[str, float]] = getattr(summary, kind)
    for name, by_value in list(shares.items())[:_MOST_VARIABLES]:
        bounds = summary.bounds[kind][name]
        values = list(by_value)
        if len(values) > _MOST_VALUES:
            values = sorted(values, key=lambda value: -by_value[value])[:_MOST_VALUES]
        bars = "".join(_bar(v, by_value[v], percent(by_value[v]), bounds[v]) for v in values)
        more = len(by_value) - len(values)
        rest = f'<p class="soft">and {more:,} values that are rarer</p>' if more else ""
        parts.append(f"<div><h3>{escape(name)}</h3>{bars}{rest}</div>")
    left = len(shares) - _MOST_VARIABLES
    rest = f'<p class="soft">and {left:,} more variables</p>' if left > 0 else ""
    return f'<div class="variables">{"".join(parts)}</div>{rest}'


def _factors(summary: Summary) -> str:
    total = f'<p class="soft">All together {short_number(summary.gain)} per step.</p>'
    return _means(summary.factors, summary.bounds["factors"]) + total


def _quantities(summary: Summary) -> str:
    """Return the section of the quantities; empty if there are none."""
    if not summary.quantities:
        return ""
    bars = _means(summary.quantities, summary.bounds["quantities"])
    return _section("quantities", "Quantities per step", bars)


def _means(means: Mapping[str, float], intervals: Mapping[str, Any]) -> str:
    largest = max((abs(mean) for mean in means.values()), default=0.0) or 1.0
    bars = []
    for name, mean in list(means.items())[:_MOST_VARIABLES]:
        bounds = intervals[name] or (None, None)
        bars.append(_bar(name, abs(mean) / largest, known_number(mean, *bounds)[:9]))
    return "".join(bars)


def _network(summary: Summary) -> str:
    """Return the network; each node is a pie of the shares of its first variable's values."""
    assert summary.model is not None
    s = summary.model.structure
    if s.m > _MOST_VARIABLES:
        return f'<p class="soft">{s.m:,} variables are too many to draw.</p>'
    drawn = _spread(network(s))
    names = s.state_names
    sliced = {
        number: summary.states[names[node.variables[0]]] for number, node in enumerate(drawn.nodes)
    }
    pies = "".join(
        _pie(node.x, node.y, node.label, sliced[k]) for k, node in enumerate(drawn.nodes)
    )
    xs, ys = [node.x for node in drawn.nodes], [node.y for node in drawn.nodes]
    left, top = min(xs) - 0.6, min(ys) - 0.5
    box = f"{left:.3f} {top:.3f} {max(xs) - left + 0.6:.3f} {max(ys) - top + 0.65:.3f}"
    key = _key(list(sliced.values()))
    return (
        f'<figure class="box"><svg class="network" viewBox="{box}" role="img" '
        f'aria-label="Network of the variables">{_arrows(drawn)}{pies}</svg>'
        f"<figcaption>Each variable, by its share of time in each value{escape(key)}. Lines lead "
        "from a variable to those that depend on it.</figcaption></figure>"
    )


def _spread(drawn: Network) -> Network:
    """Return the network, enlarged so that no pie covers another or its label."""
    places = [(node.x, node.y) for node in drawn.nodes]
    nearest = min((math.dist(a, b) for a, b in itertools.combinations(places, 2)), default=1.0)
    scale = min(max(1.0, _APART / max(nearest, 1e-9)), _MOST_SPREAD)
    nodes = (replace(n, x=round(scale * n.x, 4), y=round(scale * n.y, 4)) for n in drawn.nodes)
    return replace(drawn, nodes=tuple(nodes))


_NAMES = ("blue", "vermilion", "green", "purple", "orange", "light blue")


def _key(shares: Sequence[Mapping[str, float]]) -> str:
    """Return the meaning of the colours, if all variables have the same values."""
    values = {tuple(by_value) for by_value in shares}
    if len(values) != 1:
        return ", the first value in blue"
    first = next(iter(values))[: len(_NAMES)]
    return ": " + ", ".join(f"{v} {c}" for v, c in zip(first, _NAMES, strict=False))


def _arrows(drawn: Network) -> str:
    lines = []
    for arrow in drawn.arrows:
        a, b = drawn.nodes[arrow.source], drawn.nodes[arrow.target]
        lines.append(f'<line x1="{a.x}" y1="{a.y}" x2="{b.x}" y2="{b.y}"/>')
    return "".join(lines)


def _pie(x: float, y: float, label: str, shares: Mapping[str, float]) -> str:
    slices = [f'<circle cx="{x}" cy="{y}" r="{_RADIUS}"/>']
    begin = 0.0
    for (value, share), (colour, _) in zip(shares.items(), COLOURS * len(shares), strict=False):
        words = f"<title>{escape(value)}: {percent(share)}</title>"
        if share > 0.9999:
            slices.append(
                f'<circle cx="{x}" cy="{y}" r="{_RADIUS}" fill="{colour}">{words}</circle>'
            )
        elif share > 0.0:
            slices.append(_slice(x, y, begin, begin + share, colour, words))
        begin += share
    below = f'<text x="{x}" y="{y + _RADIUS + 0.2}">{escape(label[:14])}</text>'
    return f"<g>{''.join(slices)}{below}</g>"


def _slice(x: float, y: float, begin: float, end: float, colour: str, words: str) -> str:
    def at(share: float) -> str:
        angle = 2 * math.pi * share - math.pi / 2
        return f"{x + _RADIUS * math.cos(angle):.4f} {y + _RADIUS * math.sin(angle):.4f}"

    large = int(end - begin > 0.5)
    path = f"M {x} {y} L {at(begin)} A {_RADIUS} {_RADIUS} 0 {large} 1 {at(end)} Z"
    return f'<path d="{path}" fill="{colour}">{words}</path>'


def _events(summary: Summary) -> str:
    rows = []
    for name, event in summary.events.items():
        lasts = "" if event.duration is None else _steps(event.duration)
        rows.append([name, percent(event.share), short_number(event.return_time), lasts])
    return _table(["event", "share of time", "steps from one to the next", "lasts"], rows)


def _steps(duration: float) -> str:
    return "for ever" if math.isinf(duration) else f"{short_number(duration)} steps"


def _visited(summary: Summary) -> str:
    assert summary.model is not None
    usual = _usual(summary)
    rows = []
    for visited in summary.most_visited:
        runner_up = "" if visited.runner_up is None else _named(visited.runner_up)
        gap = "" if visited.gap is None else short_number(round(visited.gap, 9) + 0.0, 4)
        unusual = {n: v for n, v in visited.state.items() if v != usual[n]}
        where = _named(unusual) if unusual else "every variable at its usual value"
        rows.append([percent(visited.share), where, _named(visited.action), runner_up, gap])
    head = ["share of time", "state", "action", "runner-up", "costs"]
    usually = _usual_text(usual)
    note = (
        '<p class="soft">Only variables that are not at their usual value are named'
        f"{escape(f' (usual: {usually})') if usually else ''}. The last column is what taking the "
        "runner-up once, instead of the action, costs in total.</p>"
    )
    return note + _table(head, rows)


def _usual(summary: Summary) -> dict[str, str]:
    """Return the value in which each variable is most of the time."""
    return {n: max(shares, key=lambda v: shares[v]) for n, shares in summary.states.items()}


def _usual_text(usual: Mapping[str, str]) -> str:
    """Return "up", or "open for lift_1, lift_2; sun for weather" if usual values differ."""
    of_value: dict[str, list[str]] = {}
    for name, value in usual.items():
        of_value.setdefault(value, []).append(name)
    if len(of_value) <= 1:
        return "".join(of_value)
    parts = []
    for value, names in list(of_value.items())[:6]:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        parts.append(f"{value} for {', '.join(names[:4])}{more}")
    return "; ".join(parts)


def _named(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in values.items())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    heads = "".join(f'<th scope="col">{escape(word)}</th>' for word in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>\n" for row in rows
    )
    return (
        f'<div class="box"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
        "</div>"
    )
