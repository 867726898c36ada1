"""Plans from sampled models: what they gain in the true system, and how often intervals hold.

    python -m benchmarks.simulator_samples [--seeds 5] [--repeats 200]
    python -m benchmarks.simulator_samples --draw      the figure again from the stored numbers

Writes docs/figures/simulator.json and docs/figures/simulator.png. The systems are the shop of
examples/simulated_shop.py and three environments of Gymnasium. The true models of the environments
are made from their own tables. Ten minutes on an idle core.
"""

from __future__ import annotations

import argparse
import json
import runpy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import fmdp

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"
SHOP = runpy.run_path(str(ROOT / "examples" / "simulated_shop.py"))
SAMPLES = (300, 1_000, 3_000, 10_000, 30_000, 100_000)
GOAL = 20.0
"""Added to the reward of the step that reaches the goal of CliffWalking: otherwise every policy
that never falls earns -1 per step."""


class Paid(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment that pays for its goal."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, float(reward) + GOAL * terminated, terminated, truncated, info


@dataclass(frozen=True)
class System:
    """A simulator, asked about chosen states and along trajectories, and its true model."""

    truth: fmdp.FactoredMDP
    chosen: Callable[..., fmdp.Fit]
    trajectory: Callable[..., fmdp.Fit]
    samples: tuple[int, ...]


def shop() -> System:
    step, variables = SHOP["step"], (SHOP["STATES"], SHOP["ACTIONS"])

    def asked(reset: Any) -> Callable[..., fmdp.Fit]:
        def sampled(**given: Any) -> fmdp.Fit:
            return fmdp.from_simulator(step, reset=reset, **{"variables": variables, **given})

        return sampled

    empty = dict.fromkeys(SHOP["STATES"], 0)
    return System(SHOP["exact"](), asked(None), asked(lambda _: dict(empty)), SAMPLES)


def environment(make: Callable[[], Any], goal: float, samples: tuple[int, ...]) -> System:
    """Return the system of an environment that has its tables in `P`."""
    inner = make().unwrapped
    start = np.asarray(inner.initial_state_distrib, dtype=float)
    n, k = len(inner.P), len(inner.P[0])
    rows, means, paid = np.zeros((n * k, n)), np.zeros(n * k), []
    for s, of_state in inner.P.items():
        for a, outcomes in of_state.items():
            for chance, after, reward, over in outcomes:
                rows[s * k + a] += chance * (start if over else np.eye(n)[after])
                means[s * k + a] += chance * (reward + goal * over)
                paid.append(reward + goal * over)
    truth = fmdp.FactoredMDP.from_factors(
        [n],
        [k],
        [([0, 1], rows)],
        [([0, 1], means)],
        reward_ranges=[(min(paid), max(paid))],
        initial_state=(int(np.argmax(start)),),
    )

    def step(state: Any, action: Any, rng: np.random.Generator) -> Any:
        outcomes = inner.P[state["s0"]][action["a0"]]
        number = rng.choice(len(outcomes), p=[outcome[0] for outcome in outcomes])
        _, after, reward, over = outcomes[number]
        return {"s0": int(rng.choice(n, p=start)) if over else int(after)}, reward + goal * over

    return System(
        truth,
        lambda **given: fmdp.from_simulator(step, **{"variables": ({"s0": n}, {"a0": k}), **given}),
        lambda **given: fmdp.from_simulator(make(), **given),
        samples,
    )


def systems() -> dict[str, System]:
    return {
        "shop": shop(),
        "FrozenLake": environment(lambda: gymnasium.make("FrozenLake-v1"), 0.0, SAMPLES),
        "CliffWalking": environment(lambda: Paid(gymnasium.make("CliffWalking-v1")), GOAL, SAMPLES),
        "Taxi": environment(lambda: gymnasium.make("Taxi-v4"), 0.0, SAMPLES[2:]),
    }


def gain(truth: fmdp.FactoredMDP, policy: Any) -> float:
    """Return what a policy really gains; the least over recurrent classes if there are several."""
    evaluation = fmdp.evaluate(truth, policy)
    return float(evaluation.gain_lower if evaluation.gain is None else evaluation.gain)


def gains(system: System, seeds: int) -> dict[str, Any]:
    best = fmdp.plan(system.truth).gain
    curves: dict[str, Any] = {"optimal": best, "samples": system.samples}
    for way in ("chosen", "trajectory"):
        curves[way] = []
        for samples in system.samples:
            fits = [getattr(system, way)(samples=samples, seed=seed) for seed in range(seeds)]
            curves[way].append([gain(system.truth, fmdp.plan(fit.model).policy) for fit in fits])
            print(way, samples, np.round(curves[way][-1], 4), flush=True)
    return curves


def rows_inside(model: fmdp.FactoredMDP, truth: fmdp.FactoredMDP) -> list[bool]:
    """Return for every row of every table whether all its true numbers lie inside."""
    ends = model.intervals
    assert ends is not None
    inside: list[bool] = []
    for exact, lower, upper in (
        *zip(truth.transitions, ends.lower, ends.upper, strict=True),
        *zip(truth.rewards, ends.reward_lower, ends.reward_upper, strict=True),
    ):
        holds = (lower - 1e-12 <= exact) & (exact <= upper + 1e-12)
        inside += holds.reshape(len(exact), -1).all(axis=1).tolist()
    return inside


def coverage(system: System, samples: int, repeats: int, **given: Any) -> dict[str, Any]:
    """Return the share of samplings with the right scopes, and what holds in those.

    "rows" is the share of rows inside, "all" the share of samplings with all rows inside.
    """
    result: dict[str, Any] = {"samples": samples, "repeats": repeats}
    s = system.truth.structure
    for way in ("chosen", "trajectory"):
        rows: list[bool] = []
        wholly = scopes = 0
        for seed in range(repeats):
            model = getattr(system, way)(samples=samples, seed=seed, **given).model
            mine = model.structure
            if (mine.transition_scopes, mine.reward_scopes) == (
                s.transition_scopes,
                s.reward_scopes,
            ):
                scopes += 1
                inside = rows_inside(model, system.truth)
                rows += inside
                wholly += all(inside)
        result[way] = {
            "scopes": scopes / repeats,
            "rows": float(np.mean(rows)) if rows else None,
            "all": wholly / scopes if scopes else None,
        }
    print(given.keys(), result, flush=True)
    return result


def draw(numbers: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(8, 6), layout="constrained")
    words = {"chosen": "chosen states", "trajectory": "trajectories"}
    for axis, (name, curves) in zip(axes.flat, numbers["gains"].items(), strict=True):
        axis.axhline(curves["optimal"], color="black", linewidth=1, label="optimal")
        for way, colour in (("chosen", "#d55e00"), ("trajectory", "#0072b2")):
            found = np.array(curves[way])
            axis.fill_between(
                curves["samples"], found.min(axis=1), found.max(axis=1), color=colour, alpha=0.2
            )
            axis.plot(
                curves["samples"], np.median(found, axis=1), "o-", color=colour, label=words[way]
            )
        axis.set(xscale="log", title=name)
    for axis in axes[1]:
        axis.set_xlabel("samples")
    for axis in axes[:, 0]:
        axis.set_ylabel("true gain of the plan")
    axes[0, 0].legend(frameon=False, loc="lower right")
    figure.savefig(FIGURES / "simulator.png", dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--draw", action="store_true")
    asked = parser.parse_args()
    file = FIGURES / "simulator.json"
    if not asked.draw:
        known = systems()
        structure = known["shop"].truth.structure
        numbers = {
            "coverage": {
                "shop, scopes given": coverage(
                    known["shop"], 1_000, asked.repeats, variables=structure
                ),
                "shop, scopes learned": coverage(known["shop"], 3_000, asked.repeats),
                "FrozenLake": coverage(
                    known["FrozenLake"], 2_000, asked.repeats, reward_ranges={"reward": (0, 1)}
                ),
            },
            "gains": {name: gains(system, asked.seeds) for name, system in known.items()},
        }
        file.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    draw(json.loads(file.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
