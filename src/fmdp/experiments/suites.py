"""Suites of `fmdp compare`: named sets of problems, with their learners.

`paper` has the four problems of Xu & Tewari (2020) and the runs of `fmdp reproduce` (paper.py),
with the same keys, beside all other registered learners. `wide` runs all registered learners on
problems of every family: several topologies and dynamics, products, rivers and the other problems
that theory papers plot, two to twelve values per variable, rewards by state and with costs. All are
small enough for flat learners, whose tables have A S^2 numbers.

The tables of the `xu` dynamics are drawn at random, with `seed=1` by default, so each such problem
is one instance. A statement about `xu` in general needs several: `wide` has three instances of
`circle:4`.

`theory` runs all of them on problems that theory papers plot, at sizes for flat learners. The taxi
is not among them: its 135 states make flat learners ten times as slow as the others do.
"""

from __future__ import annotations

from dataclasses import dataclass

from fmdp._base.parameters import quoted
from fmdp.errors import UnknownName, did_you_mean
from fmdp.experiments import paper


@dataclass(frozen=True)
class Suite:
    """Problems, and TOML of learners, under one name."""

    name: str
    title: str
    problems: tuple[str, ...]
    learners: str = ""
    """TOML of the learners of the suite; empty: only the registered or requested ones."""


SUITES = {
    suite.name: suite
    for suite in (
        Suite(
            "paper",
            "The problems of Xu & Tewari (2020): its learners and their rivals",
            paper.PROBLEMS,
            paper.LEARNERS,
        ),
        Suite(
            "wide",
            "Every learner on problems of every family",
            (
                "circle:4",
                "circle:4,seed=2",
                "circle:4,seed=3",
                "circle:7",
                "circle:7,dynamics=guestrin",
                "star:5,dynamics=ippc",
                "bi-ring:5,dynamics=guestrin",
                "grid:6",
                "machines:2",
                "maintenance:3",
                "jao:3",
                "jao:2,delta=0.1,epsilon=0.1,actions=3",
                "riverswim:1",
                "riverswim:1,length=12",
                "riverswim:2",
                "coupled-rivers:2,length=4",
                "lock:6",
                "coffee",
                "taxi:3",
                "epidemic:5,graph=grid",
                "random:5,seed=7",
                "random:3,values=3,seed=2",
            ),
        ),
        Suite(
            "theory",
            "Every learner on problems that theory papers plot",
            (
                "riverswim:1",
                "riverswim:1,length=12",
                "coupled-rivers:2,length=4",
                "coffee",
                "lock:6",
                "epidemic:5,graph=grid",
                "jao:3",
                "circle:4",
            ),
        ),
    )
}


def suite_named(name: str) -> Suite:
    """Return the suite of this name, or raise UnknownName."""
    if name not in SUITES:
        raise UnknownName(
            f"no suite {quoted(name)}; there are {', '.join(SUITES)}{did_you_mean(name, SUITES)}"
        )
    return SUITES[name]
