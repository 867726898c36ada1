"""Optimal values of competition instances, by dynamic programming that shares nothing with fmdp:
the instance's text is read by regular expressions, and the transition probabilities are written out
from the domain's formula."""

from __future__ import annotations

import itertools
import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.interop.rddl.sources import files_of

pytest.importorskip("rddlrepository")

STORED = Path(__file__).parents[3] / "docs" / "figures" / "rddl-values.json"
TABLE = STORED.with_name("rddl-table.json")


def finite(chances: np.ndarray, rewards: np.ndarray, horizon: int) -> np.ndarray:
    """The values of all states over a horizon: chances [A, S, S], rewards [S, A]."""
    values = np.zeros(rewards.shape[0])
    for _ in range(horizon):
        values = (rewards + np.einsum("aij,j->ia", chances, values)).max(axis=1)
    return values


def joint(working: np.ndarray) -> np.ndarray:
    """[A, S, S] from the probability [A, S, n] that each of n booleans is true next."""
    found = np.ones((*working.shape[:2], 1))
    for i in range(working.shape[2]):
        own = np.stack([1 - working[..., i], working[..., i]], axis=-1)
        found = (found[..., :, None] * own[..., None, :]).reshape(*working.shape[:2], -1)
    return found


def sysadmin(text: str) -> float:
    names = re.search(r"computer\s*:\s*\{([^}]*)\}", text)[1].replace(" ", "").split(",")
    chance = float(re.search(r"REBOOT-PROB\s*=\s*([\d.]+)", text)[1])
    edges = re.findall(r"CONNECTED\((\w+)\s*,\s*(\w+)\)", text)
    penalty = 0.75  # the domain's default, which no instance changes
    n = len(names)
    states = np.array(list(itertools.product((0, 1), repeat=n)))
    working = np.zeros((n + 1, 2**n, n))
    for i, name in enumerate(names):
        parents = [names.index(a) for a, b in edges if b == name]
        up = 0.45 + 0.5 * (1 + states[:, parents].sum(axis=1)) / (1 + len(parents))
        working[:, :, i] = np.where(states[:, i] == 1, up, chance)
        working[i, :, i] = 1.0
    rewards = states.sum(axis=1)[:, None] - penalty * (np.arange(n + 1) < n)
    return float(finite(joint(working), rewards, 40)[-1])  # all running at first


def life(text: str) -> float:
    cells = sorted(set(re.findall(r"NOISE-PROB\((\w+),(\w+)\)", text)))
    noise = {
        (x, y): float(p)
        for x, y, p in re.findall(r"NOISE-PROB\((\w+),(\w+)\)\s*=\s*([\d.]+)", text)
    }
    near = re.findall(r"NEIGHBOR\((\w+),(\w+),(\w+),(\w+)\)", text)
    first = set(re.findall(r"alive\((\w+),(\w+)\);", text))
    n = len(cells)
    states = np.array(list(itertools.product((0, 1), repeat=n)))
    alive = np.zeros((n + 1, 2**n, n))
    for i, (x, y) in enumerate(cells):
        others = [cells.index((a, b)) for own_x, own_y, a, b in near if (own_x, own_y) == (x, y)]
        around = states[:, others].sum(axis=1)
        lives = np.where(states[:, i] == 1, (around >= 2) & (around <= 3), around == 3)
        p = noise[x, y]
        alive[:, :, i] = np.where(lives, 1 - p, p)
        alive[i, :, i] = 1 - p
    rewards = states.sum(axis=1)[:, None] - 1.0 * (np.arange(n + 1) < n)
    values = finite(joint(alive), rewards, 40)
    begin = tuple(int(cell in first) for cell in cells)
    return float(values[np.flatnonzero((states == begin).all(axis=1))[0]])


def planned(name: str) -> float:
    planner = fmdp.Exact(criterion="finite", horizon=40)
    value = fmdp.plan(fmdp.problem(name), planner).objective
    assert value is not None
    return float(value)


@pytest.mark.parametrize(
    ("name", "by_hand"),
    [("rddl:SysAdmin_MDP_ippc2011:1", sysadmin), ("rddl:GameOfLife_MDP_ippc2011:1", life)],
)
def test_the_value_is_that_of_dynamic_programming(name: str, by_hand) -> None:
    _, instance, _ = files_of(name)
    value = by_hand(instance.read_text())
    assert planned(name) == pytest.approx(value, abs=1e-8)
    assert json.loads(STORED.read_text())[name]["value"] == pytest.approx(value, abs=1e-8)


def test_the_stored_values_are_certified() -> None:
    stored = json.loads(STORED.read_text())
    values = [one for one in stored.values() if one["status"] == "planned"]
    assert len(values) >= 40
    for one in values:
        low, high = one["bounds"]
        assert low <= one["value"] <= high
        assert high - low <= 1e-6


def knapsack(
    weights: tuple[int, ...], values: tuple[int, ...], chances: tuple[float, ...]
) -> float:
    """The value of a knapsack for 20 over 40 steps: every step pays the value that is in it."""

    @cache
    def best(steps: int, weight: int, item: int) -> float:
        if steps == 0:
            return 0.0

        def ahead(weight: int) -> float:
            return sum(p * best(steps - 1, weight, i) for i, p in enumerate(chances))

        heavier = weight + weights[item]
        taken = values[item] * (steps - 1) + ahead(heavier) if heavier <= 20 else -np.inf
        return max(ahead(weight), taken)

    return best(40, 0, 1)


def blackjack() -> float:
    """The probability to win, with the cards 1 to 10, three figures and an ace in equal shares."""

    def drawn(value: int) -> list[int]:
        return [value + card for card in (*range(1, 11), 10, 10, 10)] + [
            value + (1 if value + 11 > 21 else 11)
        ]

    @cache
    def dealer_draws(player: int, dealer: int) -> float:
        if dealer >= 17:
            return float(dealer > 21 or player > dealer)
        return sum(dealer_draws(player, value) for value in drawn(dealer)) / 14

    @cache
    def player_draws(player: int, dealer: int) -> float:
        """The player draws a card, and then says whether to draw another."""

        def after(value: int, hit: bool) -> float:
            if value > 21:
                return 0.0
            return player_draws(value, dealer) if hit else dealer_draws(value, dealer)

        return max(sum(after(v, hit) for v in drawn(player)) / 14 for hit in (False, True))

    def second_card_of_dealer(player: int, dealer: int) -> float:
        hands = drawn(dealer)
        stays = sum(dealer_draws(player, value) for value in hands) / 14
        hits = sum(player_draws(player, value) for value in hands) / 14
        return max(stays, hits)

    wins = [
        second_card_of_dealer(player, dealer)
        for first in drawn(0)
        for player in drawn(first)
        for dealer in drawn(0)
    ]
    return sum(wins) / 14**3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Knapsack_or", knapsack((2, 3, 6), (1, 4, 12), (0.2, 0.5, 0.3))),
        ("Blackjack_arcade", blackjack()),
        ("TSP_or", -min(7 + 3 + 2, 2 + 3 + 4)),  # a, b, c, a or a, c, b, a
        ("TowerOfHanoi_arcade", 20 - (2**4 - 1)),  # 1 for every step after the last disk
    ],
)
def test_values_of_the_table_by_hand(name: str, value: float) -> None:
    assert json.loads(TABLE.read_text())[name]["first"]["value"] == pytest.approx(value, abs=1e-8)
