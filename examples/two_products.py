"""A problem of one's own: two products in a store, and one lorry that brings one of them a night.

python examples/two_products.py [PICTURE]
"""

from __future__ import annotations

import sys
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap

import fmdp

# %%
ROOM, LOAD = 9, 4  # places on a shelf, and what a lorry carries
DEMAND = {"bread": {0: 0.2, 1: 0.4, 2: 0.4}, "salt": {0: 0.6, 1: 0.4}}  # customers a day
PRICE = {"bread": 3.0, "salt": 4.0}


def sold(name: str, stock: int) -> float:
    return sum(chance * min(stock, wanted) for wanted, chance in DEMAND[name].items())


def transition(name: str, values: dict[str, Any]) -> dict[int, float]:
    law: dict[int, float] = {}
    for wanted, chance in DEMAND[name].items():
        left = max(0, values[name] - wanted)
        if values["lorry"] == name:
            left = min(ROOM, left + LOAD)
        law[left] = law.get(left, 0.0) + chance
    return law


model = fmdp.FactoredMDP.from_functions(
    states={"bread": range(ROOM + 1), "salt": range(ROOM + 1)},
    actions={"lorry": ["none", "bread", "salt"]},
    parents={"bread": ["bread", "lorry"], "salt": ["salt", "lorry"]},
    transition=transition,
    reward={
        name: ([name], lambda v, name=name: PRICE[name] * sold(name, v[name])) for name in PRICE
    },
    costs={
        "lorry": (["lorry"], lambda v: 0.0 if v["lorry"] == "none" else 2.5),
        "shelf": (["bread", "salt"], lambda v: 0.05 * (v["bread"] + v["salt"])),
    },
    name="two products",
)
# show: model


def main(picture: str) -> None:
    plan = fmdp.plan(model)
    print(f"{plan.gain:.4f} a day ({plan.status.value})")
    # show: plan
    # show: plan.explain({"bread": 3, "salt": 1})
    chosen = np.array([[plan.policy((b, s))[0] for s in range(ROOM + 1)] for b in range(ROOM + 1)])
    figure, axis = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    colours = ["#eeeeee", "#e69f00", "#56b4e9"]
    axis.imshow(chosen, origin="lower", cmap=ListedColormap(colours))
    for colour, word in zip(colours, ("nothing", "bread", "salt"), strict=True):
        axis.plot([], [], "s", color=colour, markeredgecolor="#888888", label=word)
    axis.legend(title="the lorry brings", loc="upper right")
    axis.set(xlabel="salt on the shelf", ylabel="bread on the shelf", title="What is best to do")
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "two_products.png")
