"""What a user would try first: agents of other packages on fmdp's environments, beside its own.

    python -m benchmarks.first_try [--problems circle:4,circle:7] [--seeds N] [--steps 100000]
                                   [--agents ppo,dqn,...] [--figure FILE] [--out FILE.json]
                                   [--redraw] [--tune]

PPO and DQN of Stable-Baselines3 (the extra `agents`), tabular Q-learning and R-learning of
MushroomRL (`pip install mushroom-rl`), and fmdp's default learner and PSRL, with the same luck:
seed i is the same stream for all. Others are told the reward and the state, one value a machine,
which PPO and DQN get one-hot and the tables as one number; fmdp's learners are told the structure
as well. Regret counts every step from the first, against the optimal gain. Settings of the others
are the best of a few (`--tune`: 20,000 steps of one other seed on the last problem; what that gave
is in the file with the numbers). A package that is not there is left out, aloud.

One process, one thread, about 35 minutes; ten seeds, and five of PPO and DQN, of which a run takes
more than one. What is done is written down after every run, and another call goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import gymnasium
import numpy as np

import fmdp
from fmdp.interop.gymnasium import FactoredEnv
from fmdp.simulation import Reference, reference_for
from fmdp.simulation.loop import checkpoints

DOCS = Path(__file__).resolve().parent.parent / "docs"
FILE, FIGURE, PAGE = (
    DOCS / name for name in ("figures/first-try.json", "figures/first-try.png", "gymnasium.md")
)
TUNING_STEPS, TUNING_SEED = 20_000, 1_000


class Ledger(gymnasium.Wrapper):
    """Notes the regret at log-spaced steps, whoever acts."""

    def __init__(self, env: gymnasium.Env, gain: float, marks: Sequence[int]) -> None:
        super().__init__(env)
        self.gain, self.marks = gain, set(marks)
        self.steps, self.total = 0, 0.0
        self.curve: list[float] = []

    def step(self, action: Any) -> Any:
        found = self.env.step(action)
        self.steps += 1
        self.total += float(found[1])
        if self.steps in self.marks:
            self.curve.append(self.steps * self.gain - self.total)
        return found


# ---- the others ----------------------------------------------------------------------------------


def stable_baselines(kind: str, ledger: Ledger, steps: int, seed: int, **settings: Any) -> None:
    import stable_baselines3
    import torch

    torch.set_num_threads(1)
    agent = getattr(stable_baselines3, kind)(
        "MlpPolicy", ledger, seed=seed, device="cpu", verbose=0, **settings
    )
    agent.learn(steps)


def mushroom(
    kind: str,
    ledger: Ledger,
    steps: int,
    seed: int,
    *,
    alpha: float | None = None,
    epsilon: float = 0.1,
    last_epsilon: float = 0.01,
    gamma: float = 0.9,
    beta: float = 0.01,
) -> None:
    """A table of MushroomRL; epsilon falls to its last value over the first half of the steps, and
    alpha = None is 1 / visits^0.6."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of environments it brings along
        from mushroom_rl.algorithms.value import QLearning, RLearning
        from mushroom_rl.core import Core, Environment, MDPInfo
        from mushroom_rl.policy import EpsGreedy
        from mushroom_rl.utils.parameters import (
            ExponentialParameter,
            LinearParameter,
            Parameter,
        )
        from mushroom_rl.utils.spaces import Discrete

    sizes = ledger.unwrapped.structure.state_sizes
    number = lambda state: np.array([np.ravel_multi_index(tuple(state), sizes)])  # noqa: E731

    class Ours(Environment):
        def __init__(self) -> None:
            actions = Discrete(int(ledger.action_space.n))
            super().__init__(
                MDPInfo(Discrete(int(np.prod(sizes))), actions, gamma=gamma, horizon=np.inf)
            )

        def reset(self, state: Any = None) -> Any:
            return number(ledger.reset(seed=seed)[0])

        def step(self, action: Any) -> Any:
            state, reward, _, _, _ = ledger.step(int(action[0]))
            return number(state), reward, False, {}

        def stop(self) -> None:
            pass

    np.random.seed(seed)  # noqa: NPY002 - its policies draw from NumPy's global generator
    world = Ours()
    explore = LinearParameter(value=epsilon, threshold_value=last_epsilon, n=steps // 2)
    rate = (
        ExponentialParameter(value=1.0, exp=0.6, size=world.info.size)
        if alpha is None
        else Parameter(alpha)
    )
    policy = EpsGreedy(epsilon=explore)
    if kind == "q":
        agent = QLearning(world.info, policy, rate)
    else:
        agent = RLearning(world.info, policy, rate, Parameter(beta))
    Core(agent, world).learn(n_steps=steps, n_steps_per_fit=1, quiet=True)


Agent = Callable[..., None]
OTHERS: Mapping[str, tuple[str, Agent, str]] = {
    "ppo": ("PPO (Stable-Baselines3)", stable_baselines, "PPO"),
    "dqn": ("DQN (Stable-Baselines3)", stable_baselines, "DQN"),
    "q": ("Q-learning (MushroomRL)", mushroom, "q"),
    "r": ("R-learning (MushroomRL)", mushroom, "r"),
}
OWN = {"psrl": "PSRL (fmdp)", "default": "default (fmdp)"}
SEEDS = {"psrl": 10, "default": 10, "q": 10, "r": 10, "ppo": 5, "dqn": 5}
"""How many of each agent are run where `--seeds` does not say it."""

_QUICK_DQN = {
    "learning_rate": 1e-3,
    "learning_starts": 500,
    "target_update_interval": 500,
    "exploration_final_eps": 0.02,
    "buffer_size": 50_000,
}
TRIED: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "ppo": (
        {},
        {"n_steps": 256, "gamma": 0.9, "learning_rate": 1e-3},
        {"n_steps": 128, "gamma": 0.9, "learning_rate": 3e-3, "n_epochs": 5},
        {"n_steps": 256, "gamma": 0.95, "learning_rate": 1e-3, "ent_coef": 0.01},
    ),
    "dqn": (
        {},
        {**_QUICK_DQN, "gamma": 0.9},
        {**_QUICK_DQN, "gamma": 0.95},
    ),
    "q": (
        {"alpha": 0.1},
        {"alpha": None},
        {"alpha": 0.1, "gamma": 0.95},
        {"alpha": 0.3},
    ),
    "r": (
        {"alpha": 0.1, "beta": 0.01},
        {"alpha": None, "beta": 0.01},
        {"alpha": 0.1, "beta": 0.001},
        {"alpha": 0.3, "beta": 0.01},
    ),
}
"""What `--tune` tries, the defaults of the package first."""
CHOSEN = {"ppo": 2, "dqn": 1, "q": 1, "r": 1}
"""Which of them is run, by what `--tune` gave."""


def other(
    name: str, problem: str, reference: Reference, steps: int, seed: int, settings: Any
) -> tuple[list[float], float]:
    """The regret of one run at its checkpoints, and processor seconds."""
    _, run, kind = OTHERS[name]
    ledger = Ledger(FactoredEnv(problem), reference.gain, checkpoints(steps))
    started = time.process_time()
    run(kind, ledger, steps, seed, **settings)
    return ledger.curve, time.process_time() - started


def there(name: str) -> bool:
    """Whether its package is; said aloud where not."""
    import importlib.util

    package = "mushroom_rl" if OTHERS[name][1] is mushroom else "stable_baselines3"
    found = importlib.util.find_spec(package) is not None
    if not found:
        print(f"{OTHERS[name][0]} is left out: {package} is not installed", flush=True)
    return found


def tune(problem: str, agents: Sequence[str]) -> dict[str, Any]:
    """The last regret of every setting that is tried."""
    reference = reference_for(fmdp.problem(problem))
    found: dict[str, Any] = {"problem": problem, "steps": TUNING_STEPS, "seed": TUNING_SEED}
    for name in agents:
        if name in OTHERS and there(name):
            for settings in TRIED[name]:
                curve, seconds = other(
                    name, problem, reference, TUNING_STEPS, TUNING_SEED, settings
                )
                found.setdefault(name, []).append(
                    {"settings": dict(settings), "regret": round(curve[-1], 1)}
                )
                print(f"{name:4} {curve[-1]:9.1f} {seconds:6.1f} s  {settings}", flush=True)
    return found


def run(
    problems: Sequence[str], agents: Sequence[str], seeds: int | None, steps: int, out: Path
) -> Any:
    """Curves of all runs; those that the file has already are not made again."""
    results: dict[str, Any] = json.loads(out.read_text()) if out.exists() else {}
    if results.setdefault("steps", steps) != steps:
        raise SystemExit(f"{out} has runs of {results['steps']} steps; give --out another file")
    results["t"] = list(checkpoints(steps))
    for problem in problems:
        model = fmdp.problem(problem)
        reference = reference_for(model)
        panel = results.setdefault("problems", {}).setdefault(
            problem, {"gain": reference.gain, "states": model.structure.n_states, "agents": {}}
        )
        for name in agents:
            if name in OTHERS and not there(name):
                continue
            settings = TRIED[name][CHOSEN[name]] if name in OTHERS else {}
            found = panel["agents"].setdefault(
                name,
                {
                    "label": OTHERS[name][0] if name in OTHERS else OWN[name],
                    "settings": dict(settings),
                    "regret": [],
                    "seconds": [],
                },
            )
            for seed in range(len(found["regret"]), seeds or SEEDS[name]):
                if name in OTHERS:
                    curve, spent = other(name, problem, reference, steps, seed, settings)
                else:
                    done = fmdp.simulate(model, name, steps, seed, reference=reference)
                    curve, spent = [regret for _, regret in done.curve], done.cpu_seconds
                found["regret"].append([round(regret, 1) for regret in curve])
                found["seconds"].append(round(spent, 1))
                out.write_text(json.dumps(results) + "\n")
                print(
                    f"{problem} {name:8} seed {seed}: {curve[-1]:10.1f}, {spent:.1f} s", flush=True
                )
    return results


# ---- the figure ----------------------------------------------------------------------------------

# Okabe & Ito, as in fmdp.reports.style: colour, dash.
STYLES = {
    "ppo": ("#D55E00", "-"),
    "dqn": ("#CC79A7", "--"),
    "q": ("#E69F00", "-."),
    "r": ("#767676", ":"),
    "psrl": ("#56B4E9", "--"),
    "default": ("#0072B2", "-"),
}


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Regret against steps, both on a log scale: a panel a problem, a line an agent, its median, in
    a band from the best to the worst seed. One panel below the other, or the words could not be
    read on a phone."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    panels = results["problems"]
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(6.4, 3.9 * len(panels)), squeeze=False, sharey=True
    )
    t = np.array(results["t"])
    late = t >= 30
    worst = max(
        max(map(max, found["regret"]))
        for panel in panels.values()
        for found in panel["agents"].values()
    )
    for axis, (problem, panel) in zip(axes[:, 0], panels.items(), strict=True):
        for name, (colour, dash) in STYLES.items():
            if name not in panel["agents"]:
                continue
            found = panel["agents"][name]
            curves = np.maximum(np.array(found["regret"]), 1.0)[:, late]
            label = f"{found['label']}, {len(curves)} seeds"
            axis.plot(t[late], np.median(curves, axis=0), dash, color=colour, label=label)
            axis.fill_between(
                t[late],
                curves.min(axis=0),
                curves.max(axis=0),
                color=colour,
                alpha=0.15,
                linewidth=0,
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_ylim(1.0, 2.0 * worst)
        axis.set_xlabel("steps")
        axis.set_ylabel("regret")
        axis.set_title(f"{problem}: {panel['states']} states", fontsize=10)
        axis.legend(fontsize=8, frameon=False, loc="upper left")
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def table(results: Mapping[str, Any]) -> str:
    """The table of the page: median, best and worst of the regrets at the end, and seeds."""
    panels = results["problems"]
    lines = [
        "| | seeds | " + " | ".join(f"`{problem}`" for problem in panels) + " |",
        "|---|---|" + "---|" * len(panels),
    ]
    for name in reversed(STYLES):
        if any(name not in panel["agents"] for panel in panels.values()):
            continue
        runs = [panel["agents"][name]["regret"] for panel in panels.values()]
        seeds = sorted({len(one) for one in runs})
        cells = []
        for curves in runs:
            last = [curve[-1] for curve in curves]
            cells.append(f"{np.median(last):,.0f} ({min(last):,.0f} to {max(last):,.0f})")
        label = OTHERS[name][0] if name in OTHERS else OWN[name]
        lines.append(f"| {label} | {', '.join(map(str, seeds))} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write(results: Mapping[str, Any]) -> None:
    """The table between the markers of the page."""
    begin, end = "<!-- first try -->", "<!-- end of first try -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{table(results)}\n{end}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", default="circle:4,circle:7")
    parser.add_argument("--agents", default=",".join([*OWN, *OTHERS]))
    parser.add_argument("--seeds", type=int, help="of every agent; unless told, see SEEDS")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument(
        "--redraw",
        action="store_true",
        help="figure and table of the stored numbers",
    )
    parser.add_argument("--tune", action="store_true", help="try a few settings, and no more")
    asked = parser.parse_args()
    problems, agents = asked.problems.split(","), asked.agents.split(",")
    if asked.tune:
        results = json.loads(asked.out.read_text()) if asked.out.exists() else {}
        results["tuning"] = {**results.get("tuning", {}), **tune(problems[-1], agents)}
        asked.out.write_text(json.dumps(results) + "\n")
        return
    if asked.redraw:
        results = json.loads(asked.out.read_text())
    else:
        results = run(problems, agents, asked.seeds, asked.steps, asked.out)
    draw(results, asked.figure)
    print(f"figure in {asked.figure}")
    if asked.out == FILE:
        write(results)


if __name__ == "__main__":
    main()
