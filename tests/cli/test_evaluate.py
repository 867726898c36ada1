"""`fmdp evaluate` of models that are too large for tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp

COINS = 22


def rooms(leak: float) -> fmdp.FactoredMDP:
    """Two rooms that pay 1 and 0 beside coins that are tossed in every step: 2^23 states."""
    structure = fmdp.Structure(
        [2] * (1 + COINS), [2], [[0], *[[]] * COINS], [[0]], state_names=("room", *_names())
    )
    moves = [[1 - leak, leak], [leak, 1 - leak]]
    coins = [[[0.5, 0.5]]] * COINS
    return fmdp.FactoredMDP(structure, [moves, *coins], [np.array([1.0, 0.0])])


def _names() -> list[str]:
    return [f"coin{number}" for number in range(COINS)]


@pytest.fixture(scope="module", params=[0.3, 1e-7])
def saved(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[float, str, str]:
    folder = tmp_path_factory.mktemp("rooms")
    model, policy = str(folder / "rooms.json"), str(folder / "policy.npz")
    fmdp.save(rooms(request.param), model)
    plan = fmdp.plan(rooms(request.param), fmdp.ALP(basis="singles"))
    assert plan.policy is not None
    plan.policy.save(policy)
    return request.param, model, policy


def test_it_says_what_a_simulation_is_worth(run: Any, saved: tuple[float, str, str]) -> None:
    leak, model, policy = saved
    ran = run("evaluate", model, policy, "--steps", "6000", "--seed", "1", "--json")
    found = ran.json
    assert found["kind"] == "simulated"
    assert (found["certified_lower"], found["certified_upper"]) == (0.0, 1.0)
    assert found["gain_lower"] <= 0.5 <= found["gain_upper"]
    assert len(found["run_gains"]) == 16
    text = run("evaluate", model, policy, "--steps", "6000", "--seed", "1").out
    assert "certified" in text
    if leak == 0.3:
        assert ran.status == 0
        assert (found["status"], found["confidence"]) == ("simulated", 0.99)
        assert found["gain_upper"] - found["gain_lower"] < 0.2
        for words in ("simulated: ", "99% interval", "if no unseen behaviour lasts", "caveat"):
            assert words in text
    else:
        assert ran.status == 1
        assert (found["status"], found["confidence"]) == ("unmixed", None)
        assert (found["gain"], found["caveat"], found["batch_steps"]) == (None, None, None)
        assert "unmixed: " in text
        assert "not known (simulated)" in text
        assert "99%" not in text


def test_steps_and_seeds_are_checked(run: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "policy.npz")
    run("plan", "jao:2", "--out", path)
    assert "'steps' parameter" in run("evaluate", "jao:2", path, "--steps", "63").refusal
    assert "'seed' parameter" in run("evaluate", "jao:2", path, "--seed", "-1").refusal


def test_several_classes_are_named_with_their_gains(run: Any, tmp_path: Path) -> None:
    """Two rooms that are never left: 1 in the first one, 0 in the other."""
    structure = fmdp.Structure([2], [2], [[0]], [[0]], state_names=("room",))
    rooms = fmdp.FactoredMDP(structure, [[[1.0, 0.0], [0.0, 1.0]]], [np.array([1.0, 0.0])])
    model, policy = str(tmp_path / "rooms.json"), str(tmp_path / "policy.npz")
    fmdp.save(rooms, model)
    fmdp.TablePolicy((2,), (2,), np.array([0, 1])).save(policy)
    found = run("evaluate", model, policy, "--json").json
    assert found["n_classes"] == 2
    assert [part["example"]["room"] for part in found["classes"]] == ["0", "1"]
    for part, gain in zip(found["classes"], (1.0, 0.0), strict=True):
        assert part["states"] == 1
        assert part["gain_lower"] <= gain <= part["gain_upper"]
    text = run("evaluate", model, policy).out
    assert "2 sets of states that are never left" in text
    assert "such as room=1" in text


def test_a_time_limit_leaves_certified_bounds(run: Any, saved: tuple[float, str, str]) -> None:
    _, model, policy = saved
    ran = run("evaluate", model, policy, "--max-seconds", "1e-6", "--json")
    assert ran.json["status"] == "time_limit"
    assert (ran.json["gain_lower"], ran.json["gain_upper"]) == (0.0, 1.0)
    assert "max_seconds" in run("evaluate", model, policy, "--max-seconds", "-1").err
