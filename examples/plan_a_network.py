"""A ring of eight machines: the optimal policy beside two rules of thumb, on the same luck.

python examples/plan_a_network.py [PICTURE]
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt

import fmdp

# %%
MACHINES, NOTHING = 8, 8  # action i restarts machine i; the last one does nothing
model = fmdp.problem(f"circle:{MACHINES},dynamics=guestrin")
# show: model


def never(state: tuple[int, ...]) -> int:
    return NOTHING


def first_that_is_down(state: tuple[int, ...]) -> int:
    return state.index(0) if 0 in state else NOTHING


def main(picture: str) -> None:
    plan = fmdp.plan(model)
    # show: plan
    # show: plan.policy
    rules = {"never": never, "first that is down": first_that_is_down, "optimal": plan.policy}
    figure, axes = plt.subplots(3, 1, figsize=(5.6, 4.2), sharex=True, layout="constrained")
    for axis, (name, rule) in zip(axes, rules.items(), strict=True):
        gain = fmdp.evaluate(model, rule).gain
        run = fmdp.simulate(model, rule, steps=100, seed=0, record=True)
        film = run.trajectory.states[:-1].T
        axis.imshow(
            film, aspect="auto", cmap="RdYlBu", vmin=-0.2, vmax=1.2, interpolation="nearest"
        )
        restarted = [(t, a) for t, (a,) in enumerate(run.trajectory.actions) if a != NOTHING]
        if restarted:
            axis.plot(*zip(*restarted, strict=True), "k.", markersize=3)
        axis.set(title=f"{name}: {gain:.3f} machines working on average", ylabel="machine")
        axis.set_yticks(range(0, MACHINES, 2))
        print(f"{name:20} {gain:.4f}")
    axes[-1].set_xlabel("step (blue: working, red: down, dot: restarted)")
    figure.savefig(picture, dpi=200)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "plan_a_network.png")
