"""An operating block: theatres that share one queue of patients, with 3, 6 or 12 theatres.

Each theatre is a room and a team. A shift begins with a decision per theatre, to operate or not,
and whether extra cleaners come. How many patients are operated on depends on all theatres together,
so it is a derived variable: a count of the theatres that are ready, and its minimum with the queue.

    python examples/operating_block.py 3
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import fmdp

ARRIVALS = {
    "quiet": {0: 0.7, 1: 0.3},
    "normal": {0: 0.5, 1: 0.5},
    "busy": {0: 0.3, 1: 0.6, 2: 0.1},
    "epidemic": {0: 0.1, 1: 0.6, 2: 0.3},
}
"""How many patients come per shift and three theatres, by season."""
RESTING = {
    "fresh": {"fresh": 1.0},
    "tired": {"fresh": 0.8, "tired": 0.2},
    "off": {"fresh": 0.5, "off": 0.5},
}
WORKING = {
    "fresh": {"fresh": 0.6, "tired": 0.4},
    "tired": {"tired": 0.7, "off": 0.3},
    "off": {"off": 1.0},
}


def operating_block(theatres: int) -> fmdp.FactoredMDP:
    """Return the model of a block with this many theatres."""
    numbers = range(1, theatres + 1)
    longest_queue = 2 * theatres
    states: dict[str, list[Any]] = {}
    for n in numbers:
        states |= {f"room_{n}": ["clean", "busy", "dirty"], f"team_{n}": ["fresh", "tired", "off"]}
    states |= {"queue": list(range(longest_queue + 1)), "season": list(ARRIVALS)}
    actions = {f"operate_{n}": ["no", "yes"] for n in numbers} | {"cleaners": ["usual", "extra"]}
    derived: dict[str, Any] = {
        f"ready_{n}": ([f"room_{n}", f"team_{n}", f"operate_{n}"], is_ready) for n in numbers
    }
    derived["ready"] = fmdp.Sum([f"ready_{n}" for n in numbers])
    derived["served"] = (["ready", "queue"], lambda v: min(v["ready"], v["queue"]))
    parents = {"queue": ["queue", "served", "season"], "season": ["season"]}
    for n in numbers:
        parents[f"room_{n}"] = [f"room_{n}", f"ready_{n}", "cleaners"]
        parents[f"team_{n}"] = [f"team_{n}", f"room_{n}", f"ready_{n}"]
    costs: dict[str, Any] = {
        "waiting": (["queue"], lambda v: v["queue"]),
        "extra cleaners": (["cleaners"], lambda v: 0.5 * (v["cleaners"] == "extra")),
    }
    for n in numbers:
        costs[f"staff {n}"] = ([f"operate_{n}"], lambda v: 0.4 * ("yes" in v.values()))
    return fmdp.FactoredMDP.from_functions(
        states,
        actions,
        parents,
        lambda name, values: transition(name, values, theatres),
        costs=costs,
        derived=derived,
        name=f"operating block with {theatres} theatres",
    )


def is_ready(values: Mapping[str, Any]) -> int:
    room, team, operate = values.values()
    return int(room == "clean" and team != "off" and operate == "yes")


def transition(name: str, values: Mapping[str, Any], theatres: int) -> Any:
    if name == "season":
        names = list(ARRIVALS)
        following = names[(names.index(values["season"]) + 1) % len(names)]
        return {values["season"]: 0.95, following: 0.05}
    if name == "queue":
        # Also called for more patients served than queued, which never happens.
        law = {max(values["queue"] - values["served"], 0): 1.0}
        for _ in range(theatres // 3):
            law = longer(law, ARRIVALS[values["season"]], 2 * theatres)
        return law
    part, number = name.split("_")
    ready = values[f"ready_{number}"]
    if part == "room":
        if ready:
            return {"busy": 0.6, "dirty": 0.4}
        if values[name] == "busy":
            return {"busy": 0.4, "dirty": 0.6}
        if values[name] == "dirty":
            clean = 0.9 if values["cleaners"] == "extra" else 0.4
            return {"clean": clean, "dirty": 1.0 - clean}
        return "clean"
    works = ready or values[f"room_{number}"] == "busy"
    return (WORKING if works else RESTING)[values[name]]


def longer(
    queue: Mapping[int, float], arrivals: Mapping[int, float], longest: int
) -> dict[int, float]:
    """Return the law of a queue after arrivals; nobody joins a queue that is full."""
    law: dict[int, float] = {}
    for length, chance in queue.items():
        for new, probability in arrivals.items():
            after = min(length + new, longest)
            law[after] = law.get(after, 0.0) + chance * probability
    return law


def rule_of_thumb(theatres: int) -> Any:
    """Operate in every theatre that can, as long as there are patients; never pay for cleaners."""

    @fmdp.named
    def rule(state: Mapping[str, Any]) -> dict[str, Any]:
        waiting = state["queue"]
        action = {"cleaners": "usual"}
        for n in range(1, theatres + 1):
            fit = state[f"room_{n}"] == "clean" and state[f"team_{n}"] != "off" and waiting > 0
            action[f"operate_{n}"] = "yes" if fit else "no"
            waiting -= fit
        return action

    return rule


def main(theatres: int) -> None:
    model = operating_block(theatres)
    s = model.structure
    print(
        f"{theatres} theatres: {s.n_states:,} states, {s.n_actions:,} actions, "
        f"{max(s.transition_rows)} rows in the largest table"
    )
    plan = fmdp.plan(model)
    print(plan)
    for name, policy in (("the plan", plan.policy), ("rule of thumb", rule_of_thumb(theatres))):
        evaluation = fmdp.evaluate(model, policy)
        print(
            f"{name}: {evaluation.gain} in [{evaluation.gain_lower}, {evaluation.gain_upper}], "
            f"{evaluation.kind}"
        )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
