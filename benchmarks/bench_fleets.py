"""Fleets: gaps of policies against the number of parts, times, and Whittle indices beside a peer.

Three tables, measured in one run, on one thread:

* the share of the certified bound that the simulated gain of each policy misses, for the published
  example `restless:N,arm=gast2`, where priorities do not become optimal, and for `fleet:N` of
  ten types; with the slope of log(gap) against log(N) (-0.5 is 1 / sqrt N);
* processor time of building the model, of finding its parts and types, of the prices, and of one
  joint action, for 100 to 100,000 parts;
* processor time of Whittle indices: all parts of a shape at once, and `markovianbandit-pkg` (Gast,
  Gaujal & Khun 2023) part by part, with the largest difference.

    python -m benchmarks.bench_fleets [--steps 1000] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import fmdp
from fmdp._base.deadlines import NEVER
from fmdp.planning.coupled import Coupled
from fmdp.planning.coupled.fleet import fleet_of
from fmdp.planning.coupled.pricing import Criterion, DualSearch
from fmdp.planning.coupled.rules import priority_policy
from fmdp.planning.coupled.types import types_of
from fmdp.planning.coupled.whittle import block_indices

GAP_SIZES = (50, 100, 200, 400, 800, 1600, 3200)
GAP_FLEETS = ("restless:{n},arm=gast2", "fleet:{n},types=10,seed=1")
RULES = ("priority", "id", "whittle")
TIMED = (
    "fleet:100",
    "fleet:1000",
    "fleet:10000",
    "fleet:1000,types=10",
    "fleet:10000,types=10",
    "fleet:100000,types=10",
)
INDEX_SIZES = ((1000, 4), (1000, 8), (100, 30))
"""Parts and states."""


def gaps(family: str, rule: str, steps: int) -> dict[str, Any]:
    """Relative gaps to the bound for all sizes, half-widths of their intervals, and the slope."""
    found, halves = [], []
    for n in GAP_SIZES:
        model = fmdp.problem(family.format(n=n))
        plan = Coupled(policy=rule, simulated_steps=steps).plan(model)
        record, upper = plan.stats["fleet"], plan.gain_upper
        lower, _ = record["simulated_gain_interval"]
        assert upper is not None
        found.append(1.0 - record["simulated_gain"] / upper)
        halves.append((record["simulated_gain"] - lower) / upper)
    sure = [i for i, (gap, half) in enumerate(zip(found, halves, strict=True)) if gap > half]
    slope = None
    if len(sure) > 2:
        logs = np.log([[GAP_SIZES[i], found[i]] for i in sure])
        slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return {
        "problem": family.format(n="N"),
        "policy": rule,
        "gaps": dict(zip(map(str, GAP_SIZES), found, strict=True)),
        "half_widths": dict(zip(map(str, GAP_SIZES), halves, strict=True)),
        "slope": slope,
    }


def times(name: str) -> dict[str, Any]:
    clock = time.process_time
    started = clock()
    model = fmdp.problem(name)
    built = clock()
    fleet = fleet_of(model.structure)
    types = types_of(fleet, model)
    split = clock()
    search = DualSearch(types, Criterion(), 1e-6 * model.structure.reward_unit)
    search.run(np.zeros(len(types.caps)), NEVER, lambda latest: None)
    priced = clock()
    policy = priority_policy(types, search.result(), Criterion())
    state = np.array([model.initial_state])
    policy.actions_of(state)  # loads compiled code
    ready = clock()
    for _ in range(20):
        policy.actions_of(state)
    acted = clock()
    return {
        "problem": name,
        "types": types.n_types,
        "build_seconds": built - started,
        "parts_seconds": split - built,
        "prices_seconds": priced - split,
        "rounds": len(search.rounds),
        "action_milliseconds": 50.0 * (acted - ready),
        "relative_gap_of_the_prices": search.gap / search.best.upper,
    }


def indices(n: int, levels: int) -> dict[str, Any]:
    """Ours and theirs on random parts; theirs only if the package is installed."""
    rng = np.random.default_rng(0)
    scopes = tuple((i, n + i) for i in range(n))
    cap = fmdp.AtMost(tuple(range(n, 2 * n)), n // 5)
    structure = fmdp.Structure((levels,) * n, (2,) * n, scopes, scopes, constraints=(cap,))
    model = fmdp.FactoredMDP(
        structure,
        [rng.dirichlet(np.ones(levels), 2 * levels) for _ in range(n)],
        [rng.random(2 * levels) for _ in range(n)],
    )
    block = types_of(fleet_of(structure), model).blocks[0]
    block_indices(block, Criterion())  # loads libraries
    started = time.process_time()
    ours, indexable = block_indices(block, Criterion())
    row: dict[str, Any] = {
        "parts": n,
        "states": levels,
        "fmdp_seconds": time.process_time() - started,
        "indexable": int(indexable.sum()),
    }
    try:
        import markovianbandit
    except ImportError:
        return row

    def theirs(t: int) -> Any:
        law, pay = block.transitions[t], block.rewards[t]
        bandit = markovianbandit.restless_bandit_from_P0P1_R0R1(
            law[:, 0], law[:, 1], pay[:, 0], pay[:, 1]
        )
        return bandit.whittle_indices() if bandit.is_indexable() else None

    theirs(0)  # loads compiled code
    started = time.process_time()
    found = [theirs(t) for t in range(n)]
    row["peer_seconds"] = time.process_time() - started
    row["ratio"] = row["peer_seconds"] / row["fmdp_seconds"]
    both = [t for t in range(n) if found[t] is not None and indexable[t]]
    row["same_verdict"] = sum((found[t] is not None) == bool(indexable[t]) for t in range(n))
    row["largest_difference"] = max(float(np.abs(found[t] - ours[t]).max()) for t in both)
    return row


def show(row: dict[str, Any]) -> None:
    def text(value: Any) -> str:
        if isinstance(value, dict):
            return " ".join(f"{key}:{number:.3g}" for key, number in value.items())
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    print("  ".join(f"{key} {text(value)}" for key, value in row.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000, help="steps of each simulated copy")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    threadpool_limits(1)
    result: dict[str, list[dict[str, Any]]] = {"times": [], "indices": [], "gaps": []}
    for name in TIMED:
        result["times"].append(times(name))
        show(result["times"][-1])
    for n, levels in INDEX_SIZES:
        result["indices"].append(indices(n, levels))
        show(result["indices"][-1])
    for family in GAP_FLEETS:
        for rule in RULES:
            result["gaps"].append(gaps(family, rule, arguments.steps))
            show(result["gaps"][-1])
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
