"""The simulator: steps a second, beside a loop that does nothing else.

    python -m benchmarks.bench_simulator                    one table, and what is to be had
    python -m benchmarks.bench_simulator --beside PYTHON    and another build of fmdp, by its Python
    python -m benchmarks.bench_simulator --joint            evaluations with many action variables

Processor time, the fastest of several turns, compilation not counted; the ways take turns, so that
a busy machine slows them alike, and the ratios are what counts.

`plain` is what one would write for one model and nothing else: Numba over the bits of the state of
a ring, thresholds in an array [machine, itself, the one before, action], Numba's own random
numbers, only those that are needed. It has no luck to share, no noise, no sums but one, no limits.
`python` is the same without Numba and with lists, for `env.step(policy(state))`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("FMDP_THREADS", "1")

import numpy as np

TURNS = 7
RING = "circle:7"
BULK = {
    "circle:7": 1_000_000,
    "circle:20": 200_000,
    "random:6": 500_000,
    "random:6,noise=bernoulli": 500_000,
    "random:6,noise=gaussian": 300_000,
    "maintenance:6": 300_000,
    "machines:3": 500_000,
}
"""Under a fixed policy, which is a table: how many steps at a time."""
SINGLE = {"circle:7": 100_000, "random:6,noise=gaussian": 30_000, "maintenance:6": 50_000}
LEARNERS = {"psrl": 10_000, "dorl": 10_000, "random": 100_000}

Way = Callable[[int], object]


def policy_of(model: Any) -> Any:
    """The optimal policy, or in large models the rule that repairs the first broken machine."""
    import fmdp

    s = model.structure
    if s.n_states <= 1 << 13:
        return fmdp.plan(model).policy
    index = np.arange(s.n_states)
    actions = np.full(s.n_states, s.n_actions - 1)
    for i in reversed(range(s.m)):
        actions[(index >> (s.m - 1 - i)) & 1 == 0] = i
    return fmdp.TablePolicy(s.state_sizes, s.action_sizes, actions)


def in_bulk(name: str, *, counted: bool = False) -> Way:
    import fmdp
    from fmdp.model.entries import NOT_COUNTED, no_counts
    from fmdp.planning.policies.playing import StepBatch, action_table
    from fmdp.simulation import Environment

    model = fmdp.problem(name)
    table = action_table(policy_of(model), model.structure)
    environment = Environment(model, 0)
    counts = no_counts(environment.entries) if counted else NOT_COUNTED

    def play(steps: int) -> float:
        while steps:
            steps -= environment.play(StepBatch(steps, table, counts=counts))[0]
        return environment.total_reward

    return play


def step_by_step(name: str) -> Way:
    import fmdp
    from fmdp.simulation import Environment

    model = fmdp.problem(name)
    policy, environment = policy_of(model), Environment(model, 0)

    def play(steps: int) -> float:
        state = environment.state
        for _ in range(steps):
            _, state = environment.step(policy(state))
        return environment.total_reward

    return play


def learning(name: str, *, record: bool = False) -> Way:
    import fmdp
    from fmdp.simulation import reference_for

    model = fmdp.problem(RING)
    reference = reference_for(model)
    return lambda steps: (
        fmdp.simulate(model, name, steps, 0, reference=reference, record=record).total_reward
    )


def ring() -> tuple[Any, Any, Any]:
    """Thresholds [machine, itself, the one before, action], rewards and actions by state."""
    import fmdp

    model = fmdp.problem(RING)
    n, n_actions = model.structure.m, model.structure.n_actions
    thresholds = np.zeros((n, 2, 2, n_actions))
    for i, own, before, action in product(range(n), (0, 1), (0, 1), range(n_actions)):
        state = [0] * n
        state[i], state[i - 1] = own, before
        thresholds[i, own, before, action] = model.transition_row(i, tuple(state), (action,))[0]
    states = product((0, 1), repeat=n)
    rewards = np.array([model.expected_reward(state, (0,)) for state in states])
    return thresholds, rewards, policy_of(model).actions.astype(np.int64)


def plain() -> Way:
    import numba

    thresholds, rewards, actions = ring()

    @numba.njit
    def play(thresholds, rewards, actions, steps):  # type: ignore[no-untyped-def]
        n, state, total = thresholds.shape[0], 0, 0.0
        for _ in range(steps):
            action = actions[state]
            total += rewards[state]
            after = 0
            for i in range(n):
                own = state >> (n - 1 - i) & 1
                before = state >> (n - 1 - (i - 1) % n) & 1
                after = 2 * after + (np.random.random() >= thresholds[i, own, before, action])  # noqa: NPY002 - what Numba has
            state = after
        return total

    return lambda steps: play(thresholds, rewards, actions, steps)


def python() -> Way:
    from random import random

    arrays = ring()
    thresholds, rewards, actions = (array.tolist() for array in arrays)

    def play(steps: int) -> float:
        state, total, n = (1,) * len(thresholds), 0.0, len(thresholds)
        for _ in range(steps):
            place = 0
            for value in state:
                place = 2 * place + value
            action = actions[place]
            total += rewards[place]
            state = tuple(
                int(random() >= thresholds[i][state[i]][state[i - 1]][action]) for i in range(n)
            )
        return total

    return play


def ours() -> dict[str, tuple[Way, int]]:
    return {
        **{f"bulk, {name}": (in_bulk(name), steps) for name, steps in BULK.items()},
        f"bulk, counted, {RING}": (in_bulk(RING, counted=True), 300_000),
        **{f"step, {name}": (step_by_step(name), steps) for name, steps in SINGLE.items()},
        **{f"{name}, {RING}": (learning(name), steps) for name, steps in LEARNERS.items()},
        f"random, recorded, {RING}": (learning("random", record=True), 100_000),
    }


def limits() -> dict[str, tuple[Way, int]]:
    return {"plain": (plain(), 1_000_000), "python": (python(), 20_000)}


def rates(ways: dict[str, tuple[Way, int]], turns: int) -> dict[str, float]:
    """Steps a second of each, the fastest of so many turns."""
    best = dict.fromkeys(ways, 0.0)
    for way, steps in ways.values():
        way(steps // 10)
    for _ in range(turns):
        for name, (way, steps) in ways.items():
            started = time.process_time()
            way(steps)
            best[name] = max(best[name], steps / (time.process_time() - started))
    return best


def elsewhere(python: str, turns: int) -> dict[str, float]:
    """The numbers of a build of fmdp, whose Python runs this very file."""
    command = [python, str(Path(__file__).resolve()), "--json", "--turns", str(turns)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def shown(rate: float) -> str:
    return f"{rate / 1e6:.3g} M" if rate >= 1e6 else f"{float(f'{rate:.3g}'):,.0f}"


def table(found: dict[str, float], other: dict[str, float] | None) -> None:
    head = " | that build | ratio" if other is not None else ""
    print(f"| steps a second | this build{head} |\n|---|---{'|---|---' if other else ''}|")
    for name, rate in found.items():
        cells = [name, shown(rate)]
        if other is not None:
            cells += (
                [shown(other[name]), f"{rate / other[name]:.2f}"] if name in other else ["", ""]
            )
        print(f"| {' | '.join(cells)} |")
    for ours_, limit in (("bulk", "plain"), ("step", "python")):
        print(
            f"{ours_}, {RING}: {found[f'{ours_}, {RING}'] / found[limit]:.2f} times {limit}",
            flush=True,
        )


def worst_first(model: Any) -> tuple[Any, Any]:
    """A compiled policy that repairs the most worn machines of a fleet, and the same policy without
    `actions_of`, which is asked for one state at a time."""
    from fmdp._base.compiled import njit

    s = model.structure
    most, n = s.constraints[0].most, len(s.action_sizes)

    @njit(nogil=True)
    def choose(states, levels, most, actions):  # type: ignore[no-untyped-def]
        for b in range(states.shape[0]):
            left = most
            actions[b] = 0
            for level in range(levels - 1, 0, -1):
                for i in range(states.shape[1]):
                    if states[b, i] == level and left > 0:
                        actions[b, i] = 1
                        left -= 1

    class Single:
        state_sizes, action_sizes = s.state_sizes, s.action_sizes

        def __call__(self, state: Any) -> tuple[int, ...]:
            return tuple(self.act(np.array([state]))[0].tolist())

        def act(self, states: Any) -> Any:
            actions = np.empty((len(states), n), dtype=np.int64)
            choose(states, s.max_state_size, most, actions)
            return actions

        def save(self, path: Any) -> None:
            raise NotImplementedError

    class Batched(Single):
        def actions_of(self, states: Any) -> Any:
            return self.act(states)

    return Batched(), Single()


def joint(turns: int) -> None:
    """Steps per second of processor time of evaluations, by the number of action variables."""
    import fmdp

    print("| action variables | together | x variables | one by one |")
    print("|---|---|---|---|")
    for n in (50, 200, 1000):
        model = fmdp.problem(f"fleet:{n}")
        batched, single = (partial(evaluated, model, policy) for policy in worst_first(model))
        # Multiples of 1,024 steps, so that all of them are taken.
        found = rates(
            {"together": (batched, 20_000 // n * 1024), "alone": (single, 2_000 // n * 1024)}, turns
        )
        together = found["together"]
        cells = [shown(together), shown(together * n), shown(found["alone"])]
        print(f"| {n} | {' | '.join(cells)} |", flush=True)


def evaluated(model: Any, policy: Any, steps: int) -> object:
    import fmdp

    return fmdp.evaluate(model, policy, steps=steps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--beside", metavar="PYTHON", help="the Python of another build of fmdp")
    parser.add_argument("--json", action="store_true", help="the numbers of this build alone")
    parser.add_argument("--joint", action="store_true", help="many action variables alone")
    given = parser.parse_args()
    if given.joint:
        joint(given.turns)
        return
    if given.json:
        print(json.dumps(rates(ours(), given.turns)))
        return
    found: dict[str, float] = {}
    other: dict[str, float] = {}
    if given.beside:
        # By turns, and both as processes that do nothing else.
        for turns in (given.turns // 2, given.turns - given.turns // 2):
            for into, by in ((found, sys.executable), (other, given.beside)):
                for name, rate in elsewhere(by, turns).items():
                    into[name] = max(rate, into.get(name, 0.0))
        found |= rates(limits(), given.turns)
    else:
        found = rates({**ours(), **limits()}, given.turns)
    table(found, other or None)


if __name__ == "__main__":
    main()
