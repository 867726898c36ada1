"""Drawing of a directed graph as text, each edge once.

The drawing is a depth-first spanning forest from left to right: `a → b` means that a influences b,
`a ↔ b` that each influences the other, and `(a)` that a is drawn elsewhere. A node takes all its
remaining edges when it is drawn, so that every branch that is opened is also closed. Time and
space are linear in the number of edges, and there is no recursion.
"""

from __future__ import annotations

from collections.abc import Sequence

_TO, _BOTH = "→ ", "↔ "


def draw(names: Sequence[str], parents: Sequence[Sequence[int]], width: int) -> list[str]:
    """Return the lines of the drawing; `parents[i]` influence node i (i itself is left out)."""
    children: list[list[int]] = [[] for _ in names]
    edges = set()
    for child, its_parents in enumerate(parents):
        for parent in its_parents:
            if parent != child:
                children[parent].append(child)
                edges.add((parent, child))
    without_parents = [i for i, of_i in enumerate(parents) if all(p == i for p in of_i)]
    drawn: set[int] = set()
    lines: list[str] = []
    for root in [*without_parents, *range(len(names))]:
        if root not in drawn:
            lines += _draw_from(root, names, children, edges, drawn, width)
    return lines


def _draw_from(
    root: int,
    names: Sequence[str],
    children: Sequence[Sequence[int]],
    edges: set[tuple[int, int]],
    drawn: set[int],
    width: int,
) -> list[str]:
    lines: list[str] = []
    line = ""
    # (node, start of a new line or None to continue this one, arrow, margin of later lines); the
    # margin has the bars of the branches that are still open to the left.
    waiting: list[tuple[int, str | None, str, str]] = [(root, None, "", "")]
    while waiting:
        node, start, arrow, margin = waiting.pop()
        if start is not None:
            lines.append(line)
            line = start
        text = f"({names[node]})" if node in drawn else names[node]
        line += arrow
        if len(line) + len(text) + 2 > width and len(margin) < width // 2 and line.strip() != "":
            lines.append(line.rstrip())
            line = margin + "    "
        line += text
        if node in drawn:
            continue
        drawn.add(node)
        ahead = []
        for child in children[node]:
            if (node, child) in edges:
                mutual = (child, node) in edges
                edges -= {(node, child), (child, node)}
                ahead.append((child, _BOTH if mutual else _TO))
        if len(ahead) == 1:
            waiting.append((ahead[0][0], None, " " + ahead[0][1], margin))
        elif ahead:
            fork = margin.ljust(len(line) + 2)
            last = len(ahead) - 1
            branches = [
                (
                    child,
                    None if k == 0 else fork + ("└" if k == last else "├"),
                    " ─┬" + way if k == 0 else way,
                    fork + (" " if k == last else "│"),
                )
                for k, (child, way) in enumerate(ahead)
            ]
            waiting += reversed(branches)
    return [*lines, line]
