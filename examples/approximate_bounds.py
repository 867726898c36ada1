"""What an approximate plan is worth: its certified bound, and what its policy really gains.

python examples/approximate_bounds.py [PICTURE]
"""

from __future__ import annotations

import sys

import matplotlib.pyplot as plt

import fmdp

# %%
model = fmdp.problem("circle:7,dynamics=guestrin,reward=mean")
# show: model
BASES = {
    "singles": "singles",
    "pairs": "pairs",
    "3 neighbours": fmdp.chains(model.structure, 3),
    "4 neighbours": fmdp.chains(model.structure, 4),
}


def main(picture: str) -> None:
    best = fmdp.plan(model, fmdp.Exact()).gain
    figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    axis.axhline(best, color="black", label=f"the optimal gain, {best:.4f}")
    for place, (name, basis) in enumerate(BASES.items()):
        plan = fmdp.plan(model, fmdp.ALP(basis=basis))
        gap = plan.gain_upper - plan.policy_gain
        axis.bar(place, gap, 0.5, bottom=plan.policy_gain, color="#56b4e9")
        axis.text(place, plan.gain_upper, f"{plan.gain_upper:.3f}", ha="center", va="bottom")
        axis.text(place, plan.policy_gain, f"{plan.policy_gain:.3f}", ha="center", va="top")
        print(f"{name:14} at most {plan.gain_upper:.4f}, its policy gains {plan.policy_gain:.4f}")
    axis.set_xticks(range(len(BASES)), BASES)
    axis.set(ylabel="gain (share of machines working)", ylim=(0.55, 1.0))
    axis.set_title("From what the policy gains to the bound that is certified")
    axis.legend(loc="lower right", frameon=False)
    # show: plan
    figure.savefig(picture, dpi=150)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "approximate_bounds.png")
