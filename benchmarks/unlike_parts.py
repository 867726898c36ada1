"""Problems whose parts are not alike, for benchmarks.default_suite.

* `exchanged:jao...`: in a JAO product the best action has the same number in every copy. Here the
  actions of copy 1 are in the opposite order, which changes nothing for a learner that does not
  compare copies.
* `makes:SEED`: a ring of six machines, each with tables of its own. Action i < 6 restarts machine i
  and leaves the others alone; action 6 does nothing. The reward is the share of machines that work.
"""

from __future__ import annotations

import numpy as np

import fmdp

MACHINES = 6


def unlike(name: str) -> fmdp.FactoredMDP | None:
    """Return the problem of this name, None if it is not one of these."""
    kind, _, rest = name.partition(":")
    if kind == "exchanged":
        return exchanged(fmdp.problem(rest))
    return ring_of_makes(int(rest)) if kind == "makes" else None


def exchanged(model: fmdp.FactoredMDP) -> fmdp.FactoredMDP:
    """Reverse the order of the actions of factor 1, whose scope is (its state, its action)."""
    tables = list(model.transitions)
    rows = tables[1].reshape(model.structure.state_sizes[1], -1, tables[1].shape[-1])
    tables[1] = rows[:, ::-1].reshape(tables[1].shape).copy()
    return fmdp.FactoredMDP.trusted(model.structure, tables, model.rewards)


def ring_of_makes(seed: int) -> fmdp.FactoredMDP:
    """Draw for each machine how well it works and recovers, beside a neighbour that works or not,
    and how well its restarts succeed."""
    generator = np.random.default_rng(seed)
    transitions, rewards = [], []
    for i in range(MACHINES):
        works, recovers = generator.uniform(0.6, 0.98), generator.uniform(0.01, 0.2)
        beside_failed = generator.uniform(0.5, 0.95), generator.uniform(0.2, 1.0)
        stays = np.array(
            [[recovers * beside_failed[1], recovers], [works * beside_failed[0], works]]
        )
        restarted = generator.uniform(0.8, 1.0, (2, 2))
        up = np.repeat(stays[..., None], MACHINES + 1, axis=-1)  # [itself, neighbour, action]
        up[..., i] = restarted
        scope = [i, (i - 1) % MACHINES]
        if scope[0] > scope[1]:
            scope, up = scope[::-1], up.swapaxes(0, 1)
        table = np.stack([1.0 - up, up], axis=-1).reshape(-1, 2)
        transitions.append(([*scope, MACHINES], table))
        rewards.append(([i], np.array([0.0, 1.0 / MACHINES])))
    return fmdp.FactoredMDP.from_factors([2] * MACHINES, [MACHINES + 1], transitions, rewards)
