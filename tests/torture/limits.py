"""`--max-seconds` with every planner and criterion, on models that take far longer.

Many independent variables, wide scopes, hubs, long chains, millions of states. A plan must end soon
after its limit, by the processor's time since a machine may have much else to do, with a status
and with bounds that agree with those of all other plans for the model.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from torture.nursery import Nursery
from torture.trial import SHORT, Trial

PLANS = 60
"""At scale 1."""
LIMIT, SHORT_LIMIT = 2.0, 0.2
LATE_SECONDS = 8.0
"""Of the processor, beyond the limit: the grace for a policy, one compiled call on all cores, the
exit, and a wide margin. What is late takes minutes."""
SECONDS = 600.0
"""By the clock, on a machine that has much else to do."""
STATUSES = {"converged": 0, "time_limit": 1, "precision_limit": 1, "too_large": 2}

PROBLEMS = (
    "circle:20",
    "circle:1000",
    "star:300,dynamics=guestrin",
    "three-leg:1000,dynamics=guestrin",
    "grid:25",
    "random:400,seed=1,parents=6",
    "random:18,seed=3,parents=8",
    "machines:6",
    "machines:400",
    "maintenance:9,levels=4",
    "jao:2000",
    "riverswim:8",
)
PLANNERS = (
    (),
    ("--planner", "exact"),
    ("--planner", "exact", "--criterion", "discounted"),
    ("--planner", "exact", "--criterion", "finite", "--horizon", "500"),
    ("--planner", "span", "--span-budget", "9"),
    ("--planner", "span", "--span-budget", "9", "--span-split", "search"),
    ("--planner", "alp"),
    ("--planner", "alp", "--criterion", "average"),
    ("--planner", "alp", "--basis", "pairs"),
    ("--planner", "alp", "--method", "factored", "--basis", "singles"),
)


def independent(path: Path, n: int) -> str:
    """A file with n independent binary variables, each with an action of its own."""
    from fmdp import FactoredMDP, Structure, save

    structure = Structure(
        state_sizes=(2,) * n,
        action_sizes=(2,) * n,
        transition_scopes=tuple((i, n + i) for i in range(n)),
        reward_scopes=tuple((i,) for i in range(n)),
    )
    rows = [[0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.3, 0.7]]
    save(FactoredMDP(structure, [rows] * n, [[0.0, 1.0]] * n), path)
    return str(path)


def rounds(seed: int, scale: float) -> Iterator[Trial]:
    chance = random.Random(seed)
    short = scale < SHORT
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        problems = [independent(place / "independent.json", 1000)]
        if not short:
            problems += [independent(place / "more.json", 10_000), *PROBLEMS]
        tried = [(problem, planner) for problem in problems for planner in PLANNERS]
        if short:
            tried = [(problems[0], ("--planner", "alp"))]
        else:
            tried = chance.sample(tried, min(round(PLANS * scale), len(tried)))
        warm = [] if short else [["plan", "circle:11", *planner] for planner in PLANNERS]
        with Nursery(place, warm) as nursery:
            limit = SHORT_LIMIT if short else LIMIT
            yield planned(nursery, tried, limit)


def planned(nursery: Nursery, tried: Sequence[tuple[str, tuple[str, ...]]], limit: float) -> Trial:
    failures = []
    bounds: dict[str, tuple[float, float]] = {}
    for problem, planner in tried:
        words = ("plan", problem, *planner, "--max-seconds", str(limit), "--json")
        ended = nursery.start(words).wait(SECONDS)
        if ended is None:
            failures.append(f"{' '.join(words)}: did not end within {SECONDS:.0f} s")
            continue
        wrong = ended.wrong(0, 1, 2)
        if wrong is None and ended.seconds > limit + LATE_SECONDS:
            wrong = f"{ended.seconds:.1f} s of the processor"
        result = json.loads(ended.output or "{}")
        if wrong is None and STATUSES.get(result.get("status"), ended.status) != ended.status:
            wrong = f"status {ended.status} with {result['status']}"
        lower, upper = result.get("gain_lower"), result.get("gain_upper")
        if wrong is None and lower is not None and upper is not None and "span" not in planner:
            low, high = bounds.get(problem, (lower, upper))
            bounds[problem] = max(low, lower), min(high, upper)
            if max(low, lower) > min(high, upper) + 1e-6:
                wrong = f"the gain is between {lower} and {upper}, and between {low} and {high}"
        if wrong is not None:
            failures.append(f"{' '.join(words)}: {wrong}")
    return Trial("plans that take far longer than --max-seconds", len(tried), tuple(failures))
