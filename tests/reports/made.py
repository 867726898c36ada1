"""Stores with made-up runs, written through the store's own API.

The recorded run of a cell is a real walk through the model under a policy that errs less and less,
so that states, actions, rewards and regret fit together; the other seeds scatter around its curve.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fmdp.experiments.store import (
    Curve,
    Member,
    Recording,
    Role,
    Store,
    StoredRun,
    StoredSpec,
    canonical_json,
)
from fmdp.model import FactoredMDP
from fmdp.problems import problem


@dataclass(frozen=True)
class MadeLearner:
    label: str
    learner: str
    scale: float  # regret grows like scale * sqrt(t)
    parameters: dict[str, Any] = field(default_factory=dict)
    planner: str | None = "exact"
    planner_settings: dict[str, Any] = field(default_factory=dict)
    curve: Callable[[np.ndarray], np.ndarray] | None = None  # regret after t steps, of every seed
    role: Role = "learner"


LEARNERS = (
    MadeLearner("PSRL", "psrl", 1.2, {"c": 0.75}, "alp", {"basis": "singles"}),
    MadeLearner("DORL", "dorl", 1.4, {"c": 0.03}, "alp", {"basis": "singles"}),
    MadeLearner("f-Rmax", "frmax", 24.0, {"m": 300}, "alp", {"basis": "singles"}),
    MadeLearner("PSRL, exact", "psrl", 1.1, {"c": 0.75}),
    MadeLearner("DORL, exact", "dorl", 1.0, {"c": 0.03}),
    MadeLearner("oracle", "oracle", 0.1, {}, None, role="upper"),
)


def with_price(model: FactoredMDP, *, seen_by_all: bool = False) -> FactoredMDP:
    """The model with one more state variable, the price of electricity, which goes its own way.
    `seen_by_all`: the action is in its scope all the same, and changes nothing."""
    structure = model.structure
    m = structure.m

    def moved(scope: Sequence[int]) -> list[int]:
        return [v if v < m else v + 1 for v in scope]

    price = np.array([[0.9, 0.1], [0.3, 0.7]])
    own = [m, m + 1] if seen_by_all else [m]
    return FactoredMDP.from_factors(
        (*structure.state_sizes, 2),
        structure.action_sizes,
        [
            *(
                (moved(scope), table)
                for scope, table in zip(structure.transition_scopes, model.transitions, strict=True)
            ),
            (own, np.repeat(price, structure.action_sizes[0], axis=0) if seen_by_all else price),
        ],
        [
            *(
                (moved(scope), table)
                for scope, table in zip(structure.reward_scopes, model.rewards, strict=True)
            ),
            ([m], [1.0, 0.0]),
        ],
        reward_ranges=(*structure.reward_ranges, (0.0, 1.0)),
        state_names=(*structure.state_names, "price"),
        action_names=structure.action_names,
        action_values=structure.action_values,
        initial_state=(*model.initial_state, 0),
        name=f"{model.name} and a price",
    )


def checkpoints(steps: int) -> np.ndarray:
    return np.unique(np.rint(np.geomspace(1, steps, 40)).astype(np.int64))


def walk(model: FactoredMDP, scale: float, steps: int, generator: np.random.Generator) -> Recording:
    """Restarts the first variable that is not at its best, and a random action now and then."""
    structure = model.structure
    best = model.initial_state
    states = np.zeros((steps + 1, structure.m), dtype=np.uint8)
    actions = np.zeros((steps, len(structure.action_sizes)), dtype=np.uint8)
    rewards = np.zeros((steps, structure.l))
    visits = [np.zeros(rows, dtype=np.int64) for rows in structure.transition_rows]
    times, visited, uncertainty = [], [], []
    frames = {0, *checkpoints(steps).tolist()}
    states[0] = model.initial_state
    for t in range(steps + 1):
        if t in frames:
            times.append(t)
            visited.append([int((own > 0).sum()) for own in visits])
            uncertainty.append([float((1 / np.sqrt(np.maximum(1, own))).mean()) for own in visits])
        if t == steps:
            break
        state = states[t].tolist()
        off = [i for i, (value, good) in enumerate(zip(state, best, strict=True)) if value != good]
        action = [size - 1 for size in structure.action_sizes]
        if generator.random() < min(1.0, 0.1 * scale / np.sqrt(t + 1)):
            action = [int(generator.integers(size)) for size in structure.action_sizes]
        elif off and len(structure.action_sizes) == 1:
            action = [off[0] % structure.action_sizes[0]]
        actions[t] = action
        for k in range(structure.l):
            rewards[t, k] = model.rewards[k][
                structure.scope_row(structure.reward_scopes[k], state, action)
            ]
        for i in range(structure.m):
            row = structure.scope_row(structure.transition_scopes[i], state, action)
            visits[i][row] += 1
            law = np.cumsum(model.transitions[i][row])
            states[t + 1, i] = min(int(np.searchsorted(law, generator.random())), len(law) - 1)
    return Recording(
        states,
        actions,
        rewards,
        np.array(times),
        np.array(visited),
        np.array(uncertainty),
    )


def make_store(
    directory: Path,
    *,
    problems: Sequence[str | FactoredMDP] = ("circle:3", "three-leg:4"),
    learners: Iterable[MadeLearner] = LEARNERS,
    seeds: Sequence[int] = range(5),
    steps: int = 200,
    name: str = "made",
    title: str = "Made-up runs",
    results_version: int = 1,
    gap: bool = True,
    failed: Sequence[tuple[str, int]] = (),  # (label, seed)
    missing: Sequence[tuple[str, int]] = (),
) -> Path:
    members: list[Member] = []
    models: dict[str, FactoredMDP] = {}
    stored: list[tuple[StoredRun, Curve | None, Recording | None]] = []
    for given in problems:
        model = problem(given) if isinstance(given, str) else given
        called = given if isinstance(given, str) else model.name
        models[called] = model
        for place, made in enumerate(learners):
            generator = np.random.Generator(np.random.PCG64([place, len(members)]))
            recording = walk(model, made.scale, steps, generator)
            t = checkpoints(steps)
            earned = np.cumsum(recording.rewards.sum(axis=1))
            gain = float(model.structure.m) * 0.98
            base = t * gain - earned[t - 1]
            for seed in seeds:
                text = canonical_json([called, made.label, steps, seed, results_version])
                key = hashlib.sha256(text.encode()).hexdigest()
                members.append(
                    Member(len(members), key, called, model.content_hash, made.label, seed)
                )
                if (made.label, seed) in missing:
                    continue
                kept = seed == seeds[0]
                luck = np.exp(generator.normal(0, 0.25))
                grown = made.scale * luck * np.sqrt(t) * model.structure.m / 4
                regret = base if kept else grown + generator.normal(0, 0.3, t.size).cumsum()
                if made.curve is not None:
                    regret = made.curve(t)
                gaps = np.maximum.accumulate(grown * (0.9 + 0.05 * generator.random(t.size)))
                common = {
                    "key": key,
                    "model": model.content_hash,
                    "problem": called,
                    "learner": made.learner,
                    "role": made.role,
                    "parameters": made.parameters,
                    "planner": made.planner,
                    "planner_settings": made.planner_settings,
                    "seed": seed,
                    "steps": steps,
                    "fmdp_version": "0.1.0",
                    "results_version": results_version,
                    "machine": "a test",
                    "finished": "2026-01-01T00:00:00Z",
                    "seconds": 0.25 * made.scale,
                }
                if (made.label, seed) in failed:
                    stored.append(
                        (StoredRun(**common, status="failed", error="Odd: no"), None, None)
                    )
                    continue
                curves = {"regret": regret} | ({"gap_regret": gaps} if gap else {})
                measures = {
                    **{name: float(values[-1]) for name, values in curves.items()},
                    "gain": gain,
                    "gain_kind": "exact",
                    "episodes": 20,
                    "planner_calls": 20,
                    "unconverged_plans": 0,
                }
                run = StoredRun(**common, status="done", measures=measures)
                stored.append((run, Curve(t, curves), recording if kept else None))
    text = f'name = "{name}"\nsteps = {steps}\n'
    spec = StoredSpec(
        hashlib.sha256(text.encode()).hexdigest(),
        name,
        title,
        text,
        {"name": name, "steps": steps},
        "0.1.0",
        "2026-01-01T00:00:00Z",
    )
    with Store.create(directory) as store:
        store.add_spec(spec, members, models.values())
        already = store.keys("done")
        for run, curve, recording in stored:
            if run.key not in already:
                store.add_run(run, curve, recording)
    return directory
