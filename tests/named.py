"""A small model in which everything has a name of its own: two pumps, a price, one crew."""

from __future__ import annotations

import numpy as np

import fmdp

WEAR = ("new", "worn", "broken")
PRICES = ("low", "high")
CREW = ("rest", "pump_a", "pump_b")


def pumps(**others: object) -> fmdp.FactoredMDP:
    """A pump wears out unless the crew is on it; a working pump pays by the price, a crew costs."""
    wear = np.zeros((3, 3, 3))
    for own, stays in enumerate((0.8, 0.7, 1.0)):
        wear[own, :, own] = stays
        if own < 2:
            wear[own, :, own + 1] = 1.0 - stays
    tables = []
    for pump in (1, 2):
        table = wear.copy()
        table[:, pump] = (0.9, 0.1, 0.0)
        tables.append(table)
    price = [[0.7, 0.3], [0.4, 0.6]]
    income = np.array([[1.0, 2.0], [0.8, 1.6], [0.0, 0.0]])
    given: dict[str, object] = {
        "transitions": [
            (["pump_a", "crew"], tables[0]),
            (["pump_b", "crew"], tables[1]),
            (["price"], price),
        ],
        "rewards": [
            (["pump_a", "price"], income),
            (["pump_b", "price"], income),
            (["crew"], [0.0, -0.6, -0.6]),
        ],
        "reward_ranges": [(0, 2), (0, 2), (-1, 0)],
        "state_names": ["pump_a", "pump_b", "price"],
        "action_names": ["crew"],
        "reward_names": ["income_a", "income_b", "cost"],
        "state_values": [WEAR, WEAR, PRICES],
        "action_values": [CREW],
        "initial_state": {"pump_a": "new", "pump_b": "new", "price": "low"},
        "name": "two pumps",
        **others,
    }
    return fmdp.FactoredMDP.from_factors([3, 3, 2], [3], **given)  # type: ignore[arg-type]
