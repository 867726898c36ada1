"""When to plan again: regret and plans of every episode rule, for the table in docs/learning.md.

    python -m benchmarks.bench_episodes [--seeds 12] [--steps 10000] [--out build/bench-episodes]

A sweep that can be interrupted and goes on where it stopped; about ten minutes on one core.
"""

from __future__ import annotations

import argparse

import numpy as np

import fmdp

RULES = ("arithmetic", "doubling", "tsde", "growing")
LARGE = "random:4,values=4,parents=3,actions=2"
"""L = 128."""
PROBLEMS = (
    "circle:4",
    "circle:4,dynamics=guestrin",
    "circle:6,dynamics=talebi",
    "circle:7",
    "three-leg:4",
    "jao:3",
    "riverswim:1",
    "riverswim:2",
    "random:4",
    LARGE,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", default="build/bench-episodes")
    given = parser.parse_args()
    for learner in (fmdp.PSRL, fmdp.DORL):
        results = fmdp.sweep(
            PROBLEMS,
            {rule: learner(episodes=rule) for rule in RULES},
            seeds=given.seeds,
            steps=given.steps,
            out=f"{given.out}/{learner.name}",
            name=f"episodes of {learner.name}",
        )
        runs = results.runs().groupby(["problem", "label"])
        regret = runs["regret"].median().unstack()[list(RULES)]
        plans = runs["planner_calls"].median().unstack()[list(RULES)]
        ratio = regret.div(regret["arithmetic"], axis=0)
        print(learner.name)
        print(regret.round(0).to_string())
        print("relative to arithmetic, geometric mean:")
        print(np.exp(np.log(ratio).mean()).round(2).to_string())
        print("and on jao:3:", ratio.loc["jao:3"].round(2).to_dict())
        print(
            "plans, median:", plans.median().to_dict(), "where L = 128:", plans.loc[LARGE].to_dict()
        )


if __name__ == "__main__":
    main()
