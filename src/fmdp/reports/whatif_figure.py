"""The figure of `fmdp whatif`: gain, shares of actions and changed decisions by parameter."""

from __future__ import annotations

import numpy as np

from fmdp.reports.figures import saved
from fmdp.reports.style import COLOURS, MARKERS
from fmdp.simulation.whatif import WhatIf

_MOST_ACTIONS = 6
"""Most values of actions that are drawn, those with the largest shares."""


def whatif_figure(varied: WhatIf) -> dict[str, bytes]:
    """Return the figure in the formats of the reports."""
    from matplotlib.figure import Figure

    x = np.array([float(point.value) for point in varied.points])
    figure = Figure(figsize=(7.0, 7.5), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True)
    rows = varied.rows()

    def column(name: str) -> list[float]:
        return [np.nan if row.get(name) is None else float(row[name]) for row in rows]

    lower, upper = column("gain_lower"), column("gain_upper")
    top.fill_between(x, lower, upper, color=COLOURS[0][0], alpha=0.25, linewidth=0)
    top.plot(x, column("gain"), color=COLOURS[0][0], marker="o")
    top.set_ylabel("gain")
    shares = {name: column(name) for name in rows[0] if name.startswith("share ")}
    often = sorted(shares, key=lambda name: -float(np.nanmax(shares[name])))[:_MOST_ACTIONS]
    for name, (colour, _), marker in zip(often, COLOURS, MARKERS, strict=False):
        label = name.removeprefix("share ").replace("$", r"\$")
        middle.plot(x, shares[name], color=colour, marker=marker, label=label)
    middle.set_ylabel("share of time")
    if often:
        middle.legend(fontsize="small")
    bottom.plot(x, column("changed"), color=COLOURS[1][0], marker="s", label="of states")
    bottom.plot(x, column("changed_time"), color=COLOURS[2][0], marker="^", label="of time")
    bottom.set_ylabel("decisions that differ\nfrom the first")
    bottom.set_xlabel(varied.parameter.replace("$", r"\$"))
    bottom.legend(fontsize="small")
    return saved(figure)
