"""Four learners on a ring of machines that they have never seen: regret over time.

python examples/learners_side_by_side.py [PICTURE]
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt
import numpy as np

import fmdp

# %%
model = fmdp.problem("circle:5,dynamics=talebi")
# show: model
LEARNERS = {
    "default": fmdp.Default(),
    "PSRL": fmdp.PSRL(),
    "DORL": fmdp.DORL(),
    "random actions": fmdp.Random(),
}
STEPS, SEEDS = 3_000, 5
TIMES = np.unique(np.geomspace(1, STEPS, 40).astype(int)).tolist()


def main(picture: str) -> None:
    reference = fmdp.reference_for(model)  # the optimal gain and what each action gives away
    figure, axis = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for label, learner in LEARNERS.items():
        curves = []
        for seed in range(SEEDS):
            run = fmdp.simulate(
                model, learner, steps=STEPS, seed=seed, checkpoints=TIMES, reference=reference
            )
            curves.append([regret for _, regret in run.gap_curve])
        low, middle, high = np.quantile(curves, (0.25, 0.5, 0.75), axis=0)
        (line,) = axis.plot(TIMES, middle, label=label)
        axis.fill_between(TIMES, low, high, alpha=0.2, color=line.get_color())
        print(f"{label:15} {middle[-1]:8.1f}")
    axis.set(xscale="log", yscale="log", xlabel="steps", ylabel="gap regret", ylim=(1, None))
    axis.set_title(f"{model.name}: median and quartiles of {SEEDS} seeds")
    axis.legend(frameon=False)
    # show: run
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "learners_side_by_side.png")
