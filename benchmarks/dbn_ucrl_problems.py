"""The problems of the public DBN-UCRL code (Talebi, Jonsson & Maillard 2021), learner by learner.

    python -m benchmarks.dbn_ucrl_problems [--seeds 20] [LEARNER...]

Seven machines, all down at the start, mean reward: a circle with the `guestrin` dynamics (that code
has .0238 for .02375) and a three-leg network with `talebi`. Prints median and worst gap regret
after 10,000 steps, and on the circle after 100,000, plans that did not converge, and steps a second
of processor time. That code's PSRL has medians of 277, 134 and 377 (measured once, apart).
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

import fmdp

PROBLEMS = (
    ("circle:7,dynamics=guestrin,reward=mean", 10_000),
    ("three-leg:7,dynamics=talebi,reward=mean", 10_000),
    ("circle:7,dynamics=guestrin,reward=mean", 100_000),
)
LEARNERS = ("default", "psrl", "dorl")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("learners", nargs="*", default=LEARNERS)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    for name, steps in PROBLEMS:
        model = replace(fmdp.problem(name), initial_state=(0,) * 7)
        reference = fmdp.reference_for(model)
        for learner in given.learners:
            regrets, unconverged, begun = [], 0, time.process_time()
            for seed in range(given.seeds):
                run = fmdp.simulate(model, learner, steps, seed, reference=reference)
                regrets.append(run.gap_regret)
                unconverged += run.unconverged_plans
            pace = given.seeds * steps / (time.process_time() - begun)
            print(
                f"{name}, {steps:,} steps, {learner}: median {np.median(regrets):.0f}, worst "
                f"{max(regrets):.0f}, {unconverged} plans unconverged, {pace:,.0f} steps/s",
                flush=True,
            )


if __name__ == "__main__":
    main()
