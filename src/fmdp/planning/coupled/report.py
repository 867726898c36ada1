"""What a plan of a fleet reports: prices of the budgets, simulated gain, types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fmdp.planning.coupled.pricing import Dual, DualSearch
from fmdp.planning.coupled.simulation import CONFIDENCE, COPIES, Estimate
from fmdp.planning.coupled.types import Types
from fmdp.planning.policies.fleet import FleetPolicy

MOST_TYPES = 20
"""Most types that are listed, those with the most copies."""


def fleet_record(
    types: Types,
    search: DualSearch,
    policy: FleetPolicy | None,
    estimate: Estimate | None,
    compared: Mapping[str, float],
    unit: float,
) -> dict[str, Any]:
    """Return `Plan.stats["fleet"]`: plain values, ready for JSON.

    `unit` is the value of one reward per step.
    """
    dual = search.result()
    used = types.limits - sum(
        weight * tried.line[:-1] for weight, tried in zip(dual.weights, dual.rounds, strict=True)
    )
    budgets = [
        {
            "name": cap.name,
            "limit": cap.limit,
            "price": float(dual.prices[k]) / cap.unit,
            "used": float(used[k]) * cap.unit,
        }
        for k, cap in enumerate(types.caps)
    ]
    record: dict[str, Any] = {
        "parts": types.fleet.n_parts,
        "types": types.n_types,
        "budgets": budgets,
        "bound_gap": float(search.gap) * unit,
        "policy": None if policy is None else policy.rule,
        "compared": dict(compared),
        "simulated_gain": None,
        "simulated_gain_interval": None,
        "largest_types": type_records(types, dual),
    }
    if estimate is not None:
        record["simulated_gain"] = estimate.mean
        record["simulated_gain_interval"] = [estimate.lower, estimate.upper]
        record["simulated_confidence"] = CONFIDENCE
        record["simulated_steps"] = estimate.steps
        record["simulated_copies"] = COPIES
    return record


def type_records(types: Types, dual: Dual) -> list[dict[str, Any]]:
    """Return the types with the most copies: an example, mean reward and mean use of the bound."""
    names = types.fleet.structure.names
    records = []
    for number, block in enumerate(types.blocks):
        means = sum(
            weight * tried.blocks[number].means
            for weight, tried in zip(dual.weights, dual.rounds, strict=True)
        )
        first = np.unique(block.type_of, return_index=True)[1]
        largest = np.argsort(-block.copies, kind="stable")[:MOST_TYPES]
        variables = block.shape.actions if block.shape.actions.size else block.shape.states
        for t in largest.tolist():
            units = [cap.unit for cap in types.caps]
            records.append(
                {
                    "example": names[int(variables[first[t], 0])],
                    "copies": int(block.copies[t]),
                    "mean_reward": float(means[t, 0]),
                    "mean_use": (means[t, 1:] * units).tolist(),
                }
            )
    return sorted(records, key=lambda record: -record["copies"])[:MOST_TYPES]
