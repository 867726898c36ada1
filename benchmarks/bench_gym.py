"""Steps a second of Gymnasium environments: the native vector environment, Gymnasium's own vectors
of single ones, and the NumPy loop that a clever user would write.

    python -m benchmarks.bench_gym [--problem circle:7] [--copies 1,16,256,1024,8192] [--seconds 1]
                                   [--out FILE.json]

All in one process and one thread, processor time, actions drawn beforehand. The NumPy loop has all
copies in arrays, one gather a factor and one generator for all of them, and gives no reward by
factor: less than the environments do. Each is timed five times in turn, and the best counts.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import gymnasium
import numpy as np

import fmdp
import fmdp.interop.gymnasium  # registers the environments
from fmdp.model.spaces import strides

MOST_SYNC = 1024
"""Copies of a vector of single environments: more only take longer."""


class NumpyLoop:
    """All copies in arrays: states [m, n], and tables that are gathered from."""

    def __init__(self, problem: str, copies: int) -> None:
        model = fmdp.problem(problem)
        s = model.structure
        self.m = s.m
        self.states = np.tile(np.array(model.initial_state)[:, None], (1, copies))
        self.scopes = [*s.transition_scopes, *s.reward_scopes]
        self.steps = [strides(s.scope_sizes(scope)) for scope in self.scopes]
        self.cumulative = [np.cumsum(table, axis=1)[:, :-1] for table in model.transitions]
        self.means = model.rewards
        self.generator = np.random.default_rng(0)

    def step(self, actions: np.ndarray) -> Any:
        joint = [*self.states, *np.atleast_2d(actions.T)]
        uniforms = self.generator.random((self.m, actions.shape[0]))
        following = np.empty_like(self.states)
        total = np.zeros(actions.shape[0])
        for f, (scope, steps) in enumerate(zip(self.scopes, self.steps, strict=True)):
            row = np.zeros(actions.shape[0], dtype=np.int64)
            for variable, step in zip(scope, steps, strict=True):
                row += joint[variable] * step
            if f < self.m:
                following[f] = (uniforms[f][:, None] >= self.cumulative[f][row]).sum(axis=1)
            else:
                total += self.means[f - self.m][row]
        self.states = following
        return following.T, total


def best_rate(step: Callable[[Any], Any], actions: Any, copies: int, seconds: float) -> float:
    """Steps of all copies a second of processor time, the best of five turns."""
    step(actions)
    best = 0.0
    for _ in range(5):
        done, started = 0, time.process_time()
        while (spent := time.process_time() - started) < seconds / 5:
            for _ in range(max(1, 2_000 // copies)):
                step(actions)
                done += copies
        best = max(best, done / spent)
    return best


def measure(problem: str, copies: int, seconds: float) -> dict[str, float]:
    """Steps a second by kind."""
    native = gymnasium.make_vec("fmdp/Model-v0", num_envs=copies, problem=problem)
    native.reset(seed=0)
    actions = native.action_space.sample()
    found = {"native": best_rate(native.step, actions, copies, seconds)}
    loop = NumpyLoop(problem, copies)
    found["NumPy loop"] = best_rate(loop.step, actions, copies, seconds)
    if copies <= MOST_SYNC:
        sync = gymnasium.make_vec(
            "fmdp/Model-v0", num_envs=copies, problem=problem, vectorization_mode="sync"
        )
        sync.reset(seed=0)
        found["SyncVectorEnv"] = best_rate(sync.step, actions, copies, seconds)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="circle:7")
    parser.add_argument("--copies", default="1,16,256,1024,8192")
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    results: dict[str, Any] = {"problem": asked.problem, "copies": {}}
    print("| copies | native | NumPy loop | SyncVectorEnv | native by NumPy | native by Sync |")
    print("|---|---|---|---|---|---|")
    for copies in map(int, asked.copies.split(",")):
        found = measure(asked.problem, copies, asked.seconds)
        results["copies"][copies] = found
        sync = found.get("SyncVectorEnv")
        cells = [
            f"{found['native']:,.0f}",
            f"{found['NumPy loop']:,.0f}",
            "" if sync is None else f"{sync:,.0f}",
            f"{found['native'] / found['NumPy loop']:.1f}",
            "" if sync is None else f"{found['native'] / sync:.0f}",
        ]
        print(f"| {copies:,} | {' | '.join(cells)} |", flush=True)
    if asked.out is not None:
        asked.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
