"""The figure of a front of two long-run averages."""

from __future__ import annotations

from fmdp.planning.constrained.front import Front
from fmdp.reports.figures import saved
from fmdp.reports.style import COLOURS


def front_figure(front: Front) -> dict[str, bytes]:
    """Return the figure in all formats: the vertices, joined by the averages of mixtures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5, 4.0), layout="constrained")
    axes = figure.add_subplot()
    points = [vertex.values for vertex in front.vertices]
    axes.plot(*zip(*points, strict=True), "o-", color=COLOURS[0][0], markersize=4)
    words = [
        f"{name} per step ({'minimised' if low else 'maximised'})"
        for name, low in zip(front.names, front.minimised, strict=True)
    ]
    axes.set_xlabel(words[0], parse_math=False)
    axes.set_ylabel(words[1], parse_math=False)
    axes.grid(alpha=0.3)
    return saved(figure)
