"""Figure 2 of Xu & Tewari (2020) as a sweep, and ours beside it.

The four networks have `xu` dynamics, whose tables are random: each is one instance, the draw with
seed=1. What the figure shows is shown for these instances.

Theirs: PSRL, DORL and f-Rmax with the paper's constants, planned by approximate linear programming
with single-variable bases under a discount of 0.95, on four networks, 20 runs of 10,000 steps (the
paper's text does not say how many steps). Beside them FSRL, the paper's third algorithm, which it
does not run because its planning problem was open: with the span planner, DORL's c and no budget
given, so that it finds its own (learning/budgets.py). All of these have the paper's episodes,
ceil(k / L) steps. Ours: the same learners with the exact
planner, and two whose constants and episodes do better: DORL with narrower widths and doubling
episodes, PSRL with a sharper posterior, a broader prior and the episodes of TSDE. They were found
by trying a dozen on the figure's seeds and compared again on fresh ones (`FRESH`, whose numbers
docs/experiments.md has). And the default learner, with nothing set, which was found on other
problems (docs/default-learner.md).

The search is the paper's: c of PSRL, c of DORL and m of f-Rmax over its own grids, to which the
0.03 that it reports for DORL is added, as it is in none of them.
"""

from __future__ import annotations

from fmdp.experiments.spec import Spec, parse_spec

RUNS = 20
STEPS = 10_000

HEAD = """\
name = "figure-2"
title = "Figure 2 of Xu & Tewari (2020), and ours beside it"
steps = {steps}
seeds = {runs}
problems = ["circle:4", "circle:7", "three-leg:4", "three-leg:7"]
"""

THEIRS = """
# The paper's learners, constants and planner.

[[learners]]
name = "psrl"
label = "PSRL c=0.75, ALP"
set = { c = 0.75, episodes = "arithmetic" }
planner = { name = "alp", basis = "singles", discount = 0.95 }

[[learners]]
name = "dorl"
label = "DORL c=0.03, ALP"
set = { c = 0.03, episodes = "arithmetic" }
planner = { name = "alp", basis = "singles", discount = 0.95 }

[[learners]]
name = "frmax"
label = "f-Rmax m=300/500, ALP"
problems = ["circle:4"]
set = { m = 300 }
planner = { name = "alp", basis = "singles", discount = 0.95 }

[[learners]]
name = "frmax"
label = "f-Rmax m=300/500, ALP"
problems = ["circle:7", "three-leg:4", "three-leg:7"]
set = { m = 500 }
planner = { name = "alp", basis = "singles", discount = 0.95 }
"""

THIRD = """
# The paper's third algorithm, with the planner that it lacked; no budget is given.

[[learners]]
name = "fsrl"
label = "FSRL c=0.03, span"
set = { c = 0.03, episodes = "arithmetic" }
"""

OURS = """
# The same with the exact planner.

[[learners]]
name = "psrl"
label = "PSRL c=0.75, exact"
set = { c = 0.75, episodes = "arithmetic" }
planner = "exact"

[[learners]]
name = "dorl"
label = "DORL c={c}, exact"
set = { c = [0.03, 0.003], episodes = "arithmetic" }
planner = "exact"

[[learners]]
name = "frmax"
label = "f-Rmax m=300/500, exact"
problems = ["circle:4"]
set = { m = 300 }
planner = "exact"

[[learners]]
name = "frmax"
label = "f-Rmax m=300/500, exact"
problems = ["circle:7", "three-leg:4", "three-leg:7"]
set = { m = 500 }
planner = "exact"

"""

BETTER = """
# Better ones.

[[learners]]
name = "dorl"
label = "DORL c=0.01 doubling, exact"
set = { c = 0.01, episodes = "doubling" }
planner = "exact"

[[learners]]
name = "psrl"
label = "PSRL c=0.1 prior=0.03 tsde, exact"
set = { c = 0.1, prior = 0.03, episodes = "tsde" }
planner = "exact"
"""

DEFAULT = """
# The default learner, as it is.

[[learners]]
name = "default"
label = "default, exact"
planner = "exact"
"""

ENDS = """
# The two ends of what is possible.

[[learners]]
name = "oracle"
label = "optimal policy"
planner = "exact"

[[learners]]
name = "random"
label = "random actions"
"""

FRESH = """\
name = "fresh"
title = "The better ones on seeds that they were not chosen on"
steps = 10_000
seeds = [{seeds}]
problems = ["circle:4", "circle:7", "three-leg:4", "three-leg:7"]
"""

SEARCH = """
# The paper's search, without what is above.

[[learners]]
name = "psrl"
label = "PSRL c={c}, ALP"
set = { c = [0.05, 0.1, 0.3, 1, 5, 20], episodes = "arithmetic" }
planner = { name = "alp", basis = "singles", discount = 0.95 }

[[learners]]
name = "dorl"
label = "DORL c={c}, ALP"
set = { c = [0.05, 0.1, 0.3, 0.5, 1, 5, 20], episodes = "arithmetic" }
planner = { name = "alp", basis = "singles", discount = 0.95 }

[[learners]]
name = "frmax"
label = "f-Rmax m={m}, ALP"
problems = ["circle:4"]
set = { m = [100, 500, 700] }
planner = { name = "alp", basis = "singles", discount = 0.95 }

[[learners]]
name = "frmax"
label = "f-Rmax m={m}, ALP"
problems = ["circle:7", "three-leg:4", "three-leg:7"]
set = { m = [100, 300, 700] }
planner = { name = "alp", basis = "singles", discount = 0.95 }
"""


def figure_spec(*, runs: int = RUNS, steps: int = STEPS, search: bool = False) -> Spec:
    """The figure's sweep; smaller for a first look, larger for the search."""
    head = HEAD.format(runs=runs, steps=steps)
    text = head + THEIRS + THIRD + OURS + BETTER + DEFAULT + ENDS + (SEARCH if search else "")
    return parse_spec(text, "the paper's figure", name="figure-2")


def fresh_spec(seeds: range = range(100, 130)) -> Spec:
    """The better ones again, on seeds that had no part in choosing them, beside the default."""
    head = FRESH.format(seeds=", ".join(map(str, seeds)))
    return parse_spec(head + BETTER + DEFAULT, "the better ones, afresh", name="fresh")
