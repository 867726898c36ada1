"""Counts that fade: forgetting with a half-life, for systems that drift.

A step that is h steps old counts as 2^(-h / half_life) steps. The counts are faded at the start of
every episode, all steps since the last one as if they were taken now:

    faded <- faded 2^(-steps since then / half_life) + new counts.

With at most a quarter of the half-life per episode, the weight of a step is at most 2^(1/4) too
large. A row that is visited in every step is worth half_life / log 2 samples in the long run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from fmdp.learning.noise import scaled_sums
from fmdp.learning.statistics import Floats, Statistics
from fmdp.model.entries import Entries


class Evidence(NamedTuple):
    """The counts and sums that a posterior is made from."""

    cells: Floats
    """[cells]: counts of next values."""
    reward_visits: Floats
    """[reward entries]"""
    reward_sums: Floats
    """[reward entries]: in units of the range of each reward, from its lower end."""


def evidence_of(statistics: Statistics) -> Evidence:
    """Return the counts of all steps, which have not faded."""
    return Evidence(
        statistics.cell_counts.astype(np.float64),
        statistics.reward_visits.astype(np.float64),
        scaled_sums(statistics),
    )


def no_faded_counts(entries: Entries) -> dict[str, Any]:
    """Return the memory of a learner that forgets, before its first step."""
    rewards = entries.n_entries - entries.n_transition_entries
    sizes = Evidence(entries.n_cells, rewards, rewards)._asdict()  # type: ignore[arg-type]
    return {
        **{f"faded_{name}": np.zeros(size) for name, size in sizes.items()},
        **{f"seen_{name}": np.zeros(size) for name, size in sizes.items()},
        "faded_at": np.zeros(1),
    }


def faded_counts(memory: Mapping[str, Any]) -> Evidence:
    """Return the faded counts in a learner's memory."""
    return Evidence(*(memory[f"faded_{name}"] for name in Evidence._fields))


def fade(
    memory: Mapping[str, Any], statistics: Statistics, steps: int, half_life: float
) -> dict[str, Any]:
    """Return the changes of a learner's memory after `steps` steps in all."""
    weight = math.exp(-math.log(2.0) * (steps - float(memory["faded_at"][0])) / half_life)
    changes: dict[str, Any] = {"faded_at": np.array([float(steps)])}
    for name, seen in evidence_of(statistics)._asdict().items():
        new = np.maximum(seen - memory[f"seen_{name}"], 0.0)
        changes[f"faded_{name}"] = memory[f"faded_{name}"] * weight + new
        changes[f"seen_{name}"] = seen
    return changes
