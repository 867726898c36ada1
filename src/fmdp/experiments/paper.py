"""Figure 2 of Xu & Tewari (2020): its sweep, and its cells in a dataset.

The four networks have `xu` dynamics, whose tables are random; each is one instance, the draw with
seed=1, and the figure makes statements about these instances only.

The paper's learners: PSRL, DORL and f-Rmax with its constants, planned by approximate linear
programming with single-variable bases under a discount of 0.95, on four networks, 20 runs of 10,000
steps (the paper's text does not state the number of steps). Beside them FSRL, the paper's third
algorithm, which it does not run because its planning problem was open: with the span planner,
DORL's c and no given budget (learning/budgets.py). All have the paper's episodes, ceil(k / L)
steps.

Ours: the same learners with the exact planner, and two with better constants and episodes: DORL
with narrower widths and doubling episodes, PSRL with a sharper posterior, a broader prior and the
episodes of TSDE. They were found by trying a dozen on the figure's seeds and compared again on
fresh seeds (`FRESH`; docs/experiments.md has the numbers). The default learner, with nothing set,
was found on other problems (docs/default-learner.md).

The search is the paper's: c of PSRL, c of DORL and m of f-Rmax over its grids, with 0.03 added for
DORL, which the paper reports although none of its grids contains it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells
from fmdp.experiments.measures import REGRET
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.problems import problem

RUNS = 20
STEPS = 10_000
PROBLEMS = ("circle:4", "circle:7", "three-leg:4", "three-leg:7")
KNOWN_AFTER = {"circle:4": 300, "circle:7": 500, "three-leg:4": 500, "three-leg:7": 500}
"""The m of f-Rmax in the paper's figure."""
NAMES = {"psrl": "PSRL", "dorl": "DORL", "frmax": "f-Rmax"}
PLANNER = "alp"
_THIRD = "fsrl"

HEAD = """\
name = "figure-2"
title = "Figure 2 of Xu & Tewari (2020), and ours beside it"
steps = {steps}
seeds = {runs}
problems = ["circle:4", "circle:7", "three-leg:4", "three-leg:7"]
"""


FRESH = """\
name = "fresh"
title = "The better ones on seeds that they were not chosen on"
steps = 10_000
seeds = [{seeds}]
problems = ["circle:4", "circle:7", "three-leg:4", "three-leg:7"]
"""


def _learner(
    name: str, label: str, settings: str = "", planner: str = "", problems: str = ""
) -> str:
    """Return a learner in TOML."""
    lines = [
        *("", "[[learners]]", f'name = "{name}"', f'label = "{label}"'),
        *([f"problems = {problems}"] if problems else []),
        *([f"set = {{ {settings} }}"] if settings else []),
        *([f"planner = {planner}"] if planner else []),
    ]
    return "\n".join(lines) + "\n"


def _frmax(label: str, of_circle_4: object, of_others: object, planner: str) -> str:
    """Return f-Rmax in TOML; its m in the paper depends on the problem."""
    others = '["circle:7", "three-leg:4", "three-leg:7"]'
    return _learner("frmax", label, f"m = {of_circle_4}", planner, '["circle:4"]') + _learner(
        "frmax", label, f"m = {of_others}", planner, others
    )


_ALP = '{ name = "alp", basis = "singles", discount = 0.95 }'
_EXACT = '"exact"'
_ARITHMETIC = 'episodes = "arithmetic"'

THEIRS = (
    "\n# The paper's learners, constants and planner.\n"
    + _learner("psrl", "PSRL c=0.75, ALP", f"c = 0.75, {_ARITHMETIC}", _ALP)
    + _learner("dorl", "DORL c=0.03, ALP", f"c = 0.03, {_ARITHMETIC}", _ALP)
    + _frmax("f-Rmax m=300/500, ALP", 300, 500, _ALP)
)
THIRD = (
    "\n# The paper's third algorithm, with the planner that it lacked; no budget is given.\n"
    + _learner("fsrl", "FSRL c=0.03, span", f"c = 0.03, {_ARITHMETIC}")
)
OURS = (
    "\n# The same with the exact planner.\n"
    + _learner("psrl", "PSRL c=0.75, exact", f"c = 0.75, {_ARITHMETIC}", _EXACT)
    + _learner("dorl", "DORL c={c}, exact", f"c = [0.03, 0.003], {_ARITHMETIC}", _EXACT)
    + _frmax("f-Rmax m=300/500, exact", 300, 500, _EXACT)
    + "\n"
)
_PSRL = "PSRL c=0.1 prior=0.03 tsde, exact"
BETTER = (
    "\n# Better ones.\n"
    + _learner("dorl", "DORL c=0.01 doubling, exact", 'c = 0.01, episodes = "doubling"', _EXACT)
    + _learner("psrl", _PSRL, 'c = 0.1, prior = 0.03, episodes = "tsde"', _EXACT)
)
DEFAULT = "\n# The default learner, as it is.\n" + _learner(
    "default", "default, exact", planner=_EXACT
)
ENDS = (
    "\n# The two ends of what is possible.\n"
    + _learner("oracle", "optimal policy", planner=_EXACT)
    + _learner("random", "random actions")
)
SEARCH = (
    "\n# The paper's search, without what is above.\n"
    + _learner("psrl", "PSRL c={c}, ALP", f"c = [0.05, 0.1, 0.3, 1, 5, 20], {_ARITHMETIC}", _ALP)
    + _learner(
        "dorl", "DORL c={c}, ALP", f"c = [0.05, 0.1, 0.3, 0.5, 1, 5, 20], {_ARITHMETIC}", _ALP
    )
    + _frmax("f-Rmax m={m}, ALP", [100, 500, 700], [100, 300, 700], _ALP)
)
LEARNERS = THEIRS + THIRD + OURS + BETTER + DEFAULT + ENDS
"""All learners of the figure."""


def figure_spec(*, runs: int = RUNS, steps: int = STEPS, search: bool = False) -> Spec:
    """Return the sweep of the figure, with the paper's search on request."""
    text = HEAD.format(runs=runs, steps=steps) + LEARNERS + (SEARCH if search else "")
    return parse_spec(text, "the paper's figure", name="figure-2")


def fresh_spec(seeds: range = range(100, 130)) -> Spec:
    """Return the sweep of the better learners and the default on seeds not used to choose them."""
    head = FRESH.format(seeds=", ".join(map(str, seeds)))
    return parse_spec(head + BETTER + DEFAULT, "the better ones, afresh", name="fresh")


# ---- the cells of the figure -----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Panel:
    """One problem of the figure: the paper's learners, and all others as ours."""

    name: str
    problem: ProblemCells
    theirs: Mapping[str, CellCurves]
    """psrl, dorl, frmax."""
    third: CellCurves | None
    """FSRL: with the paper's c and, if possible, without a given budget."""
    ours: tuple[CellCurves, ...]

    @property
    def papers(self) -> tuple[CellCurves, ...]:
        """The paper's algorithms: PSRL, DORL, FSRL if present, f-Rmax."""
        third = () if self.third is None else (self.third,)
        return (self.theirs["psrl"], self.theirs["dorl"], *third, self.theirs["frmax"])


def constant(learner: str, problem_name: str) -> tuple[str, float]:
    """Return the parameter that the paper searched, and its value in the figure."""
    if learner == "frmax":
        return "m", KNOWN_AFTER[problem_name]
    return "c", {"psrl": 0.75, "dorl": 0.03}[learner]


@cache
def _hashes() -> Mapping[str, str]:
    return {problem(name).content_hash: name for name in PROBLEMS}


def panels(data: Dataset) -> list[Panel]:
    """Return the paper's problems that have all three learners, in its order.

    Models are recognised by content. Of runs of several lengths the longest count.
    """
    by_name = {}
    for entry in data.problems:
        name = _hashes().get(entry.model_hash)
        if name is None:
            continue
        longest = max(cell.steps for cell in entry.cells)
        cells = [cell for cell in entry.cells if cell.steps == longest]
        theirs = {learner: _theirs(cells, learner, name) for learner in NAMES}
        known = {learner: cell for learner, cell in theirs.items() if cell is not None}
        if len(known) == len(NAMES):
            third = _third(cells)
            ours = tuple(c for c in cells if c.planner != PLANNER and c is not third)
            by_name[name] = Panel(name, entry, known, third, ours)
    return [by_name[name] for name in PROBLEMS if name in by_name]


def _theirs(cells: Sequence[CellCurves], learner: str, name: str) -> CellCurves | None:
    """Return the cell with the paper's constant, or the best cell of a search without it."""
    cells = [c for c in cells if c.learner == learner and c.planner == PLANNER]
    parameter, value = constant(learner, name)
    exactly = [cell for cell in cells if cell.parameters.get(parameter) == value]
    return min(exactly or cells, key=median_regret, default=None)


def _third(cells: Sequence[CellCurves]) -> CellCurves | None:
    c = constant("dorl", "")[1]
    return min(
        (cell for cell in cells if cell.learner == _THIRD),
        key=lambda cell: (cell.parameters.get("c") != c, bool(budget_of(cell))),
        default=None,
    )


def budget_of(cell: CellCurves) -> object:
    """Return the span budget that FSRL was given; falsy if it finds its own."""
    return cell.parameters.get("budget") or cell.planner_settings.get("budget")


def median_regret(cell: CellCurves) -> float:
    """Return the median of the realised regret; infinity if it is unknown."""
    ends = cell.ends(REGRET.name)
    return float("inf") if ends is None else float(np.median(ends))


def late_loss(cell: CellCurves, gain: float | None) -> float | None:
    """Return the median loss per step in the second half of the run, as a share of the gain."""
    if gain is None or gain <= 0 or len(cell.t) < 2:
        return None
    middle = int(np.abs(cell.t - cell.t[-1] / 2).argmin())
    if middle == len(cell.t) - 1:
        middle -= 1
    values = cell.curves[REGRET.name]
    steps = int(cell.t[-1] - cell.t[middle])
    return float(np.median(values[:, -1] - values[:, middle])) / steps / gain
