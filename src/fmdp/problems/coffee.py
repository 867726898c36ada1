"""Coffee, modified to run for ever (Boutilier et al. 2000; Talebi, Jonsson and Maillard 2021).

A robot moves between the office, where its user is, and the shop. Moving and buying succeed with
probability .9, and so do delivering and fetching the umbrella, both in the office. Without an
umbrella the robot gets wet if it moves in the rain. A dry robot pays .2 per step, and a user with
coffee 1.8. One step after a delivery the user wants coffee again: the robot is dry, in the office
and without umbrella, and it rains with probability 1/2. In between the weather does not change.

The numbers are those of the public code of Talebi, Jonsson and Maillard, which draws the weather of
the first round at random; here it rains. Boutilier's version ends with the delivery.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray
from fmdp.problems.family import Problem

WET, UMBRELLA, RAIN, PLACE, USER, ROBOT, ACTION = range(7)
OFFICE, SHOP = range(2)
MOVE, BUY, DELIVER, FETCH = range(4)
ACTIONS = ("move", "buy", "deliver", "fetch umbrella")
SUCCESS = 0.9
"""Probability that an action has its effect."""
_SIZES = (2, 2, 2, 2, 2, 2, 4)


def _table(scope: Sequence[int], one: Callable[..., float]) -> tuple[Sequence[int], FloatArray]:
    """Return a factor: its scope, and a table from the probability of the value 1."""
    values = itertools.product(*(range(_SIZES[v]) for v in scope))
    probability = np.array([one(*assignment) for assignment in values])
    return scope, np.stack([1.0 - probability, probability], axis=1)


def _wet(wet: int, umbrella: int, rain: int, user: int, action: int) -> float:
    if user:
        return 0.0
    return 1.0 if wet or (rain and not umbrella and action == MOVE) else 0.0


def _umbrella(umbrella: int, place: int, user: int, action: int) -> float:
    if user:
        return 0.0
    return 1.0 if umbrella else SUCCESS if place == OFFICE and action == FETCH else 0.0


def _rain(rain: int, user: int) -> float:
    return 0.5 if user else float(rain)


def _place(place: int, user: int, action: int) -> float:
    if user:
        return 0.0
    if action != MOVE:
        return float(place)
    return SUCCESS if place == OFFICE else 1.0 - SUCCESS


def _user(place: int, user: int, robot: int, action: int) -> float:
    return SUCCESS if place == OFFICE and not user and robot and action == DELIVER else 0.0


def _robot(place: int, robot: int, action: int) -> float:
    if robot:
        return 0.0 if place == OFFICE and action == DELIVER else 1.0
    return SUCCESS if place == SHOP and action == BUY else 0.0


class Coffee(Problem):
    """A robot that fetches coffee, again and again, and should stay dry."""

    name = "coffee"
    summary = "a robot fetches coffee, again and again, and should stay dry"
    example = "coffee"

    def build(self) -> FactoredMDP:
        return FactoredMDP.from_factors(
            _SIZES[:ACTION],
            _SIZES[ACTION:],
            [
                _table((WET, UMBRELLA, RAIN, USER, ACTION), _wet),
                _table((UMBRELLA, PLACE, USER, ACTION), _umbrella),
                _table((RAIN, USER), _rain),
                _table((PLACE, USER, ACTION), _place),
                _table((PLACE, USER, ROBOT, ACTION), _user),
                _table((PLACE, ROBOT, ACTION), _robot),
            ],
            [((WET,), [0.2, 0.0]), ((USER,), [0.0, 1.8])],
            reward_ranges=[(0.0, 0.2), (0.0, 1.8)],
            state_names=("wet", "umbrella", "rain", "place", "user", "robot"),
            action_names=("action",),
            reward_names=("dry", "coffee"),
            state_values=(
                ("dry", "wet"),
                ("no", "yes"),
                ("no", "yes"),
                ("office", "shop"),
                ("wants coffee", "has coffee"),
                ("empty", "coffee"),
            ),
            action_values=(ACTIONS,),
            initial_state=(0, 0, 1, OFFICE, 0, 0),
            name=str(self),
        )
