"""Plans on counts against plans on all states, by fmdp, mdpsolver and Storm, in one run.

Every answer comes from a process of its own: seconds of processor time from the model in hand to
the plan, and the growth of its peak of resident memory during that time. fmdp has compiled its
kernels on a smaller instance beforehand. A side that is not installed, refuses a size or takes
more than `--limit` seconds is left out from that size on. All sides maximise the long-run average;
the gain of mdpsolver's policy is evaluated exactly by fmdp.

    python -m benchmarks.bench_counts [--limit 60] [--out FILE.json] [--docs]

`--docs` writes the table into docs/counts.md. The peers are the extras `bench` and `storm`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "counts.md"
FAMILIES = {
    "star:{n},dynamics=guestrin": (6, 8, 10, 16, 20, 50, 100, 200, 500, 1000),
    "maintenance:{n},levels=4,crew=5,k={k}": (3, 4, 6, 8, 10, 20, 50, 100),
    "maintenance:{n},levels=2,crew=5,k={k},wear=0.01": (
        4,
        6,
        8,
        10,
        16,
        20,
        50,
        100,
        200,
        500,
        1000,
    ),
}
SMALLEST = {name: sizes[0] for name, sizes in FAMILIES.items()}
SIDES = ("counts", "exact", "mdpsolver", "storm")
WIDEST = {"exact": 1 << 22, "mdpsolver": 1 << 12, "storm": 1 << 12}
"""Most states that a side is asked for: more take minutes or do not fit."""


def name_of(family: str, n: int) -> str:
    """Return the problem of a family with n parts; k of them must work: nine tenths."""
    return family.format(n=n, k=n - n // 10)


def peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    before, started = peak_megabytes(), time.process_time()
    answer = work()
    seconds = time.process_time() - started
    return {"seconds": seconds, "megabytes": peak_megabytes() - before, **answer}


def by_fmdp(planner: str, family: str, n: int) -> dict[str, Any]:
    import fmdp

    fmdp.plan(fmdp.problem(name_of(family, SMALLEST[family])), planner)
    model = fmdp.problem(name_of(family, n))

    def work() -> dict[str, Any]:
        plan = fmdp.plan(model, planner)
        return {"gain": plan.gain, "bounds": plan.gain_bounds}

    return measured(work)


def by_mdpsolver(family: str, n: int) -> dict[str, Any]:
    import mdpsolver
    import numpy as np

    import fmdp
    from fmdp.model.expansion import expand
    from fmdp.model.spaces import project
    from fmdp.planning.tabular.model import Successors

    model = expand(fmdp.problem(name_of(family, n)))
    s = model.structure
    pairs = np.arange(s.n_states * s.n_actions)
    columns, weights, possible = Successors(model).rows_of(pairs)
    by_state = pairs.reshape(s.n_states, s.n_actions)
    allowed = s.allowed_mask() if s.constraints else np.ones(by_state.shape, dtype=bool)
    numbers = [row[kept] for row, kept in zip(by_state, allowed, strict=True)]
    probs = [[weights[p][possible[p]].tolist() for p in row] for row in numbers]
    places = [[columns[p][possible[p]].tolist() for p in row] for row in numbers]
    means = sum(
        table[project(s.sizes, scope)]
        for scope, table in zip(s.reward_scopes, model.rewards, strict=True)
    )
    rewards = [means[row].tolist() for row in numbers]
    peer = mdpsolver.model()
    peer.mdp(discount=0.99, rewards=rewards, tranMatProbs=probs, tranMatColumns=places)

    def work() -> dict[str, Any]:
        peer.solve(criterion="average", tolerance=1e-6, parallel=False)
        return {}

    answer = measured(work)
    chosen = np.array([numbers[i][a] % s.n_actions for i, a in enumerate(peer.getPolicy())])
    policy = fmdp.TablePolicy(s.state_sizes, s.action_sizes, chosen)
    return {**answer, "gain": fmdp.evaluate(model, policy).gain}


def by_storm(family: str, n: int) -> dict[str, Any]:
    import stormpy

    import fmdp
    from fmdp.interop import prism

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.prism"
        prism.save(fmdp.problem(name_of(family, n)), path)

        def work() -> dict[str, Any]:
            program = stormpy.parse_prism_program(str(path))
            question = stormpy.parse_properties('R{"reward"}max=? [ LRA ]', program)
            sparse = stormpy.build_model(program, question)
            answer = stormpy.model_checking(sparse, question[0])
            return {"gain": float(answer.get_value(sparse.initial_states[0]))}

        return measured(work)


def one(side: str, family: str, n: int) -> dict[str, Any]:
    if side == "mdpsolver":
        return by_mdpsolver(family, n)
    return by_storm(family, n) if side == "storm" else by_fmdp(side, family, n)


def alone(side: str, family: str, n: int, limit: float) -> dict[str, Any]:
    """Return the answer of one side, from a process of its own, or why there is none."""
    words = [sys.executable, "-m", "benchmarks.bench_counts", "--one", side, family, str(n)]
    environment = os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            env=environment,
            timeout=limit + 30,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"missing": f"more than {limit:g} s"}
    if done.returncode:
        return {"missing": (done.stderr.strip().splitlines() or ["ended"])[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(limit: float) -> list[dict[str, Any]]:
    from fmdp.problems import problem

    rows = []
    for family, sizes in FAMILIES.items():
        active = list(SIDES)
        for n in sizes:
            states = problem(name_of(family, n)).structure.n_states
            row: dict[str, Any] = {"problem": name_of(family, n), "states": states}
            for side in list(active):
                if states > WIDEST.get(side, states):
                    active.remove(side)
                    continue
                row[side] = alone(side, family, n, limit)
                if "missing" in row[side] or row[side]["seconds"] > limit:
                    active.remove(side)
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def cell(answer: dict[str, Any] | None) -> str:
    if answer is None or "missing" in answer:
        return ""
    return f"{answer['seconds']:.3g} s, {max(answer['megabytes'], 0.0):.0f} MB"


def states_text(states: int) -> str:
    text = f"{states:,}"
    return text if len(text) <= 13 else f"10^{len(str(states)) - 1}"


def gain_text(answer: dict[str, Any]) -> str:
    if "missing" in answer:
        return ""
    lower, upper = answer["bounds"]
    if upper - lower > 1e-4 * max(1.0, abs(upper)):
        return f"{lower:.3f} to {upper:.3f}"
    return f"{0.5 * (lower + upper):.5f}"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| problem | states | gain | counts | all states | mdpsolver | Storm |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [f"`{row['problem']}`", states_text(row["states"]), gain_text(row["counts"])]
        cells += [cell(row.get(side)) for side in SIDES]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(rows: list[dict[str, Any]]) -> None:
    page = PAGE.read_text()
    start, end = "<!-- measured: counts -->\n", "\n<!-- measured ends: counts -->"
    pattern = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
    PAGE.write_text(pattern.sub(lambda _: start + table(rows) + end, page, count=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--limit", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--docs", action="store_true")
    parser.add_argument("--read", type=Path, help="a file of an earlier run, instead of a new one")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        side, family, n = given.one
        print(json.dumps(one(side, family, int(n))))
        return
    rows = json.loads(given.read.read_text()) if given.read else run(given.limit)
    print(table(rows))
    if given.out:
        given.out.write_text(json.dumps(rows, indent=2) + "\n")
    if given.docs:
        write_page(rows)


if __name__ == "__main__":
    main()
