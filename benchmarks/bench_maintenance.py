"""Joint actions at the price of one: maintenance by components, against those who enumerate.

Two tables, measured in one run:

* `mdpsolver` (C++, all 2^n joint actions) on the sizes that it can do: the same discounted model,
  values compared, times of solving alone (its model is lists of lists, which take longer to make);
* about a million states with 2^6 to 2^10 joint actions, the time of one sweep: by components, of
  chance for a single action, by enumeration with the ordinary engine, and of what a clever user
  would write in NumPy: a matrix product an axis, then a maximum an axis, a flag for the set-up.

Everything runs on one thread, and what is measured is processor time, the least of the repeats.

    python -m benchmarks.bench_maintenance [--repeats 3] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fmdp.elimination.backup import Backup, backup_for
from fmdp.elimination.effects import EffectsBackup
from fmdp.model import FactoredMDP
from fmdp.planning.exact.planner import Exact
from fmdp.problems import problem

Vector = NDArray[np.float64]

DISCOUNT, TOLERANCE = 0.99, 1e-4
PEER_SIZES = (3, 4, 5)
PEER = "maintenance:{n},levels=4,k={k}"
LARGE = (
    "maintenance:6,levels=10,k=5",
    "maintenance:6,levels=10,k=5,crew=2",
    "maintenance:8,levels=6,k=6",
    "maintenance:10,levels=4,k=8",
    "maintenance:10,levels=4,k=8,crew=2",
)


def without_effects(model: FactoredMDP) -> FactoredMDP:
    """The same tables for an engine that knows nothing of effects."""
    s = model.structure
    plain = s.with_factors(
        s.transition_scopes,
        s.reward_scopes,
        s.reward_ranges,
        s.reward_names,
        constraints=s.constraints,
    )
    return FactoredMDP(plain, model.transitions, model.rewards)


def against_mdpsolver(n: int, repeats: int) -> dict[str, Any]:
    import mdpsolver

    from fmdp.planning.tabular.model import Successors

    model = problem(PEER.format(n=n, k=n - 1))
    structure = model.structure
    n_states, n_actions = structure.n_states, structure.n_actions
    columns, weights, possible = Successors(model).rows_of(np.arange(n_states * n_actions))
    plain = backup_for(without_effects(model))
    rewards = plain.action_values(np.zeros(n_states))
    probs = [row[kept].tolist() for row, kept in zip(weights, possible, strict=True)]
    places = [row[kept].tolist() for row, kept in zip(columns, possible, strict=True)]
    theirs = np.inf
    for _ in range(repeats):
        peer = mdpsolver.model()
        peer.mdp(
            discount=DISCOUNT,
            rewards=rewards.tolist(),
            tranMatProbs=[probs[s * n_actions : (s + 1) * n_actions] for s in range(n_states)],
            tranMatColumns=[places[s * n_actions : (s + 1) * n_actions] for s in range(n_states)],
        )
        started = time.process_time()
        peer.solve(tolerance=TOLERANCE, parallel=False)
        theirs = min(theirs, time.process_time() - started)
    planner = Exact(criterion="discounted", discount=DISCOUNT, tolerance=TOLERANCE, threads=1)
    found = planner.plan(model)
    ours = seconds(lambda: planner.plan(model), repeats)
    assert found.bias is not None
    return {
        "problem": model.name,
        "states": n_states,
        "actions": n_actions,
        "mdpsolver_seconds": theirs,
        "fmdp_seconds": ours,
        "ratio": theirs / ours,
        "largest_difference": float(np.abs(found.bias - peer.getValueVector()).max()),
    }


def numpy_sweep(model: FactoredMDP, crew: int | None) -> Callable[[Vector], Vector]:
    """One sweep as a clever user would write it, for components that do not share a load."""
    n, levels = model.structure.m, model.structure.state_sizes[0]
    laws = [table.reshape(levels, 2, levels)[:, 0] for table in model.transitions]
    costs = model.rewards[0].reshape(levels, 2)[:, 1]
    setup = float(model.rewards[n][1])
    penalty = model.rewards[n + 1].reshape((levels,) * n)
    most = 1 if crew is None else crew

    def sweep(h: Vector) -> Vector:
        u = h.reshape((levels,) * n)
        for axis in range(n):
            u = np.moveaxis(np.tensordot(laws[axis], u, axes=(1, axis)), 0, axis)
        best: list[Vector | None] = [u] + [None] * most  # by how many are replaced, or whether
        for axis in range(n):
            shape = [1] * n
            shape[axis] = levels
            cost = costs.reshape(shape)
            for busy in range(most, -1, -1):
                source = best[busy - 1] if busy else None
                candidates = [own for own in (source,) if own is not None]
                if crew is None and busy and best[busy] is not None:
                    candidates.append(best[busy])
                for own in candidates:
                    replaced = np.take(own, [0], axis=axis) + cost
                    held = best[busy]
                    best[busy] = replaced if held is None else np.maximum(held, replaced)
        tops = [own + (setup if busy else 0.0) for busy, own in enumerate(best) if own is not None]
        value = tops[0]
        for own in tops[1:]:
            value = np.maximum(value, own)
        found: Vector = (penalty + value).reshape(-1)
        return found

    return sweep


def seconds(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times)


def one_sweep(name: str, repeats: int) -> dict[str, Any]:
    model = problem(name)
    crew = next((c.most for c in model.structure.constraints if hasattr(c, "most")), None)
    backup = backup_for(model, threads=1)
    assert isinstance(backup, EffectsBackup)
    h = np.random.default_rng(0).normal(size=backup.n_states)
    source = backup.to_internal(h)
    out = np.empty_like(source)
    backup.sweep(source, out)
    found = backup.to_canonical(out)
    by_components = seconds(lambda: backup.sweep(source, out), repeats)
    chance = seconds(lambda: backup.chance.sweep(source, out), repeats)
    by_hand = numpy_sweep(model, crew)
    theirs = by_hand(h)
    in_numpy = seconds(lambda: by_hand(h), repeats)
    plain = without_effects(model)
    enumerating = Backup(plain.structure, share_for=plain, threads=1)
    ordinary = enumerating.to_internal(h)
    enumerated = seconds(lambda: enumerating.sweep(ordinary, out), 1)
    reference = enumerating.to_canonical(out)
    return {
        "problem": name,
        "states": backup.n_states,
        "actions": model.structure.n_actions,
        "components_seconds": by_components,
        "one_action_seconds": chance,
        "numpy_seconds": in_numpy,
        "enumeration_seconds": enumerated,
        "price_of_one": by_components / chance,
        "numpy_ratio": in_numpy / by_components,
        "enumeration_ratio": enumerated / by_components,
        "largest_difference": float(np.abs(found - reference).max()),
        "numpy_difference": float(np.abs(found - theirs).max()),
    }


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        print(
            "  ".join(
                f"{key} {value:.3g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.items()
            ),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    threadpool_limits(1)
    Exact(criterion="discounted").plan(problem("maintenance:2"))  # compiled
    one_sweep("maintenance:7,levels=4,k=5", 1)
    peers = []
    try:
        import mdpsolver  # noqa: F401
    except ImportError:
        print("mdpsolver is not installed: pip install 'fmdp[bench]'")
    else:
        peers = [against_mdpsolver(n, arguments.repeats) for n in PEER_SIZES]
        show(peers)
    sweeps = []
    for name in LARGE:
        sweeps.append(one_sweep(name, arguments.repeats))
        show(sweeps[-1:])
    if arguments.out:
        arguments.out.write_text(json.dumps({"peers": peers, "sweeps": sweeps}, indent=2) + "\n")


if __name__ == "__main__":
    main()
