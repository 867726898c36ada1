"""The files of a front of two long-run averages: a table, policies and a figure."""

from __future__ import annotations

from pathlib import Path

from fmdp.errors import FmdpError
from fmdp.model.io.files import write_atomically
from fmdp.planning.constrained.front import Front
from fmdp.reports.figures import require_matplotlib, saved
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


def write_front(front: Front, target: Path) -> list[str]:
    """Write the table, the policy of each vertex and, with Matplotlib, the figure.

    `target` is the file of the table; the others are beside it. Return the paths of the policies.
    """
    write_atomically(target, front.to_csv().encode())
    files = []
    for number, vertex in enumerate(front.vertices):
        path = target.with_name(f"vertex-{number}.npz")
        vertex.policy.save(path)
        files.append(str(path))
    try:
        require_matplotlib()
    except FmdpError:
        return files
    for ending, content in front_figure(front).items():
        write_atomically(target.with_suffix(f".{ending}"), content)
    return files
