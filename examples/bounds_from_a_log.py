"""What a log proves: bounds on the best gain that hold for every model the log allows.

python examples/bounds_from_a_log.py [PICTURE]
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt

import fmdp

# %%
model = fmdp.problem("jao:2")  # stands for the system, whose numbers nobody knows
LENGTHS = (300, 1_000, 3_000, 10_000, 30_000)


def main(picture: str) -> None:
    truth = fmdp.plan(model).gain
    lower, upper, played = [], [], []
    for steps in LENGTHS:
        run = fmdp.simulate(model, "random", steps=steps, seed=0, record=True)
        columns = run.trajectory.columns()  # as in a CSV file, which would do as well
        log = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        fitted = fmdp.fit(log, model).model
        robust = fmdp.plan(fitted, fmdp.Exact(intervals="robust"))
        lower.append(robust.gain_lower)
        upper.append(fmdp.plan(fitted, fmdp.Exact(intervals="optimistic")).gain_upper)
        played.append(fmdp.evaluate(model, robust.policy).gain)
        print(f"{steps:6} steps: {lower[-1]:.3f} to {upper[-1]:.3f}; plays {played[-1]:.3f}")
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.fill_between(
        LENGTHS, lower, upper, color="#56b4e9", alpha=0.4, label="what the log proves"
    )
    axis.plot(LENGTHS, played, "o-", color="#d55e00", label="what the robust policy really gains")
    axis.axhline(truth, color="black", label="the optimal gain")
    axis.set(xscale="log", xlabel="steps in the log", ylabel="gain")
    axis.legend(frameon=False, loc="lower right")
    # show: robust
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "bounds_from_a_log.png")
