"""Maintenance: gains by hand, costs row by row, against the definition of the peer's model."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.problems import maintenance, problem


@pytest.mark.parametrize(
    ("name", "gain"),
    [
        # Replaced whenever failed: always new after the action, so each step costs
        # wear * (penalty + corrective + setup).
        ("maintenance:1,levels=2", -0.3 * (10 + 3 + 1)),
        # Replaced at the first sign of wear, it never fails.
        ("maintenance:1,levels=3", -0.3 * (1 + 1)),
        # Nobody to replace: failed for ever.
        ("maintenance:1,levels=3,crew=0", -10.0),
        # Free of cost as long as nothing must work.
        ("maintenance:2,levels=3,k=0", 0.0),
    ],
)
def test_gains_by_hand(name: str, gain: float) -> None:
    assert fmdp.plan(problem(name)).gain == pytest.approx(gain, abs=1e-9)


def test_costs_and_wear_are_those_of_the_definition() -> None:
    """The definition written out a second time, as the condition-based model of mdpsolver has it:
    costs by what is found, wear from what is left."""
    model = problem("maintenance:3,levels=3,k=2,wear=0.25,load=0.5")
    for state in itertools.product(range(3), repeat=3):
        for action in itertools.product(range(2), repeat=3):
            cost = sum(a * (3.0 if s == 2 else 1.0) for s, a in zip(state, action, strict=True))
            cost += 1.0 * any(action) + 10.0 * (sum(s != 2 for s in state) < 2)
            assert model.expected_reward(state, action) == pytest.approx(-cost, abs=1e-12)
            left = [0 if a else s for s, a in zip(state, action, strict=True)]
            for i in range(3):
                wear = 0.25 * (1.5 if left[i - 1] == 2 else 1.0) * (left[i] < 2)
                law = np.zeros(3)
                law[left[i]] += 1.0 - wear
                law[min(left[i] + 1, 2)] += wear
                row = model.transition_row(i, state, action)
                np.testing.assert_allclose(row, law, atol=1e-15)


def test_what_is_alike() -> None:
    rows, machines = (
        problem(f"maintenance:3,levels=3,load=1,learned={learned}").structure
        for learned in ("apart", "together")
    )
    assert rows.n_transition_classes == 3 * 9
    assert machines.n_transition_classes == 3 * 2  # own level, and whether the other is failed
    assert machines.n_reward_classes == 6 + 2 + 27


def test_the_crew_is_a_constraint() -> None:
    structure = problem("maintenance:3,levels=2,crew=1").structure
    assert structure.allowed((1, 1, 1), (0, 1, 0))
    with pytest.raises(InvalidParameter, match='constraint "crew" forbids'):
        structure.check_allowed((1, 1, 1), (1, 1, 0))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="k of maintenance must be at most"):
        problem("maintenance:3,k=4")
    with pytest.raises(TooLarge, match="GiB of tables"):
        problem("maintenance:20000")


def test_large_systems_count_working_components() -> None:
    model = problem("maintenance:100,k=90,crew=5")
    s = model.structure
    assert max(*s.transition_rows, *s.reward_rows) == 101
    worn = [3] * 10 + [0] * 90
    idle, one = (0,) * 100, (0,) * 99 + (1,)
    assert model.expected_reward(worn, idle) == 0.0
    assert model.expected_reward([3, *worn[:10], *worn[11:]], one) == -10.0 - 1.0 - 1.0


def test_derived_counts_describe_the_same_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "maintenance:3,levels=3,k=2,crew=2,learned=together"
    written_out = problem(name)
    monkeypatch.setattr(maintenance, "MOST_ENTRIES", 1)
    counted = problem(name)
    assert [v.name for v in counted.structure.derived if not v.partial] == ["replacing", "working"]
    expanded = fmdp.expand(counted)
    assert expanded.structure.reward_scopes == written_out.structure.reward_scopes
    for table, other in zip(expanded.rewards, written_out.rewards, strict=True):
        np.testing.assert_array_equal(table, other)
    assert fmdp.plan(counted).gain == fmdp.plan(written_out).gain
    fmdp.save(counted, tmp_path / "counted.json")
    assert fmdp.load(tmp_path / "counted.json") == counted
