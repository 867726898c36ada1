"""A simulator becomes a plan: a shop of three products, known only as a function that plays a day.

python examples/simulated_shop.py [PICTURE]
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import fmdp

# %%
ROOM, LOAD = 7, 4  # places on a shelf, and what the lorry carries
DEMAND = {"bread": (0.2, 0.4, 0.4), "salt": (0.6, 0.4), "milk": (0.3, 0.4, 0.3)}
PRICE = {"bread": 3.0, "salt": 4.0, "milk": 2.0}
STATES = {name: range(ROOM + 1) for name in DEMAND}
ACTIONS = {"lorry": ["none", *DEMAND]}
SAMPLES = (300, 1_000, 3_000, 10_000, 30_000)


def step(state: dict[str, int], action: dict[str, str], rng: np.random.Generator) -> Any:
    """Play one day: customers come, then the lorry brings one of the products."""
    following, reward = {}, {}
    for name, law in DEMAND.items():
        sold = min(state[name], int(rng.choice(len(law), p=law)))
        brought = LOAD if action["lorry"] == name else 0
        following[name] = min(ROOM, state[name] - sold + brought)
        reward[f"sales of {name}"] = PRICE[name] * sold
    reward["cost of the lorry"] = 0.0 if action["lorry"] == "none" else -2.5
    return following, reward


def exact() -> fmdp.FactoredMDP:
    """Return the model behind the simulator, to compare with."""

    def law(name: str, x: dict[str, Any]) -> dict[int, float]:
        after: dict[int, float] = {}
        for wanted, chance in enumerate(DEMAND[name]):
            left = max(0, x[name] - wanted) + (LOAD if x["lorry"] == name else 0)
            after[min(ROOM, left)] = after.get(min(ROOM, left), 0.0) + chance
        return after

    def sales(name: str, stock: int) -> float:
        return PRICE[name] * sum(p * min(stock, wanted) for wanted, p in enumerate(DEMAND[name]))

    return fmdp.FactoredMDP.from_functions(
        STATES,
        ACTIONS,
        {name: [name, "lorry"] for name in DEMAND},
        law,
        {f"sales of {n}": ([n], lambda x, n=n: sales(n, x[n])) for n in DEMAND},
        costs={"cost of the lorry": (["lorry"], lambda x: 2.5 * (x["lorry"] != "none"))},
        reward_ranges={f"sales of {n}": (0, PRICE[n] * (len(DEMAND[n]) - 1)) for n in DEMAND},
    )


def main(picture: str) -> None:
    truth = exact()
    best = fmdp.plan(truth).gain
    proved, played, robust_played = [], [], []
    for samples in SAMPLES:
        sampled = fmdp.from_simulator(step, (STATES, ACTIONS), samples)
        robust = fmdp.plan(sampled.model, fmdp.Exact(intervals="robust"))
        proved.append(robust.gain_lower)
        played.append(fmdp.evaluate(truth, fmdp.plan(sampled.model).policy).gain)
        robust_played.append(fmdp.evaluate(truth, robust.policy).gain)
        s = sampled.model.structure
        scopes = (*s.transition_scopes, *s.reward_scopes)
        true = (*truth.structure.transition_scopes, *truth.structure.reward_scopes)
        right = sum(one == other for one, other in zip(scopes, true, strict=True))
        print(
            f"{samples:6} samples: {right} of {len(true)} scopes; the plan gains {played[-1]:.3f}; "
            f"the robust plan {robust_played[-1]:.3f}, and promises {proved[-1]:.3f}"
        )
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.axhline(best, color="black", label="the optimal gain")
    axis.plot(SAMPLES, played, "o-", color="#d55e00", label="the plan gains")
    axis.plot(SAMPLES, robust_played, "s-", color="#0072b2", label="the robust plan gains")
    axis.plot(SAMPLES, proved, "^--", color="#56b4e9", label="the robust plan promises")
    axis.set(xscale="log", xlabel="samples of the simulator", ylabel="gain per day")
    axis.legend(frameon=False, loc="lower right")
    # show: sampled
    # show: sampled.model
    # show: robust
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "simulated_shop.png")
