"""Changed models: with_table, with_reward and with_range change one factor and share the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fmdp.errors import InvalidModel, InvalidParameter
from fmdp.model import Alike, FactoredMDP, Intervals, Noise, forbid


def shop(**more: Any) -> FactoredMDP:
    """A queue (2 values) that only its own value moves, a door, and two reward factors."""
    return FactoredMDP.from_factors(
        [2, 2],
        [2],
        [
            (["queue"], [[0.75, 0.25], [0.5, 0.5]]),
            (["door", "call"], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]]),
        ],
        [(["queue"], [1.0, 0.25])],
        costs=[(["call"], [0.0, 2.0])],
        state_names=["queue", "door"],
        action_names=["call"],
        reward_names=["sales", "callouts"],
        initial_state=[1, 0],
        noise=[Noise("bernoulli"), Noise()],
        name="shop",
        **more,
    )


def test_with_table_changes_one_table_and_shares_the_rest() -> None:
    model = shop()
    changed = model.with_table("queue", [[0.125, 0.875], [1.0, 0.0]])
    assert changed.transition_row(0, (0, 0), (0,)).tolist() == [0.125, 0.875]
    assert changed.transition_row(0, (1, 0), (0,)).tolist() == [1.0, 0.0]
    assert model.transition_row(0, (0, 0), (0,)).tolist() == [0.75, 0.25]
    assert changed.transitions[1] is model.transitions[1]
    assert changed.rewards[0] is model.rewards[0]
    assert changed.structure is model.structure
    assert (changed.noise, changed.initial_state, changed.name) == (
        model.noise,
        model.initial_state,
        model.name,
    )
    assert not changed.transitions[0].flags.writeable
    assert changed == replace(
        model, transitions=[[[0.125, 0.875], [1.0, 0.0]], model.transitions[1]]
    )
    assert changed.content_hash != model.content_hash
    assert model.with_table(0, model.transitions[0]) == model


def test_with_table_takes_one_axis_per_variable_and_normalises() -> None:
    table = np.zeros((2, 2, 2))
    table[..., 0] = 0.5 + 5e-10
    table[..., 1] = 0.5
    changed = shop().with_table(1, table)
    assert changed.transitions[1].shape == (4, 2)
    assert changed.transitions[1].sum(axis=1) == pytest.approx(1.0, abs=1e-15)


def test_with_reward_changes_the_means() -> None:
    model = shop()
    assert model.expected_reward((0, 0), (1,)) == 1.0 - 2.0
    changed = model.with_reward("callouts", [-0.5, -1.5])
    assert changed.expected_reward((0, 0), (1,)) == 1.0 - 1.5
    assert changed.expected_reward((1, 0), (0,)) == 0.25 - 0.5
    assert changed.transitions[0] is model.transitions[0]
    assert changed.rewards[0] is model.rewards[0]
    assert changed.structure is model.structure
    assert changed == model.with_reward(1, [-0.5, -1.5])


def test_with_range_lets_a_factor_pay_more() -> None:
    model = shop()
    assert model.structure.reward_ranges == ((0.0, 1.0), (-2.0, 0.0))
    wider = model.with_range("callouts", -5, 0)
    assert wider.structure.reward_ranges == ((0.0, 1.0), (-5.0, 0.0))
    assert wider.structure.reward_bounds == (-5.0, 1.0)
    assert model.structure.reward_bounds == (-2.0, 1.0)
    assert all(new is old for new, old in zip(wider.rewards, model.rewards, strict=True))
    assert wider == replace(
        model, structure=replace(model.structure, reward_ranges=((0, 1), (-5, 0)))
    )
    assert hash(wider.structure) != hash(model.structure)
    dearer = wider.with_reward("callouts", [0.0, -4.5])
    assert dearer.expected_reward((0, 0), (1,)) == 1.0 - 4.5


def test_with_constraints_shares_the_tables() -> None:
    model = shop()
    rule = forbid(model, {"queue": 0, "call": 1})
    changed = model.with_constraints(rule)
    assert changed.structure.allowed_actions((0, 0)).tolist() == [0]
    assert changed.transitions[0] is model.transitions[0]
    assert changed.with_range(0, 0, 3).structure.constraints == (rule,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: m.with_table("queue", [[0.5, 0.6], [1, 0]]),
            r'transition factor 0 \("queue"\), row 0 \(queue=0\): sums to 1\.1; must sum to 1 .*',
        ),
        (
            lambda m: m.with_table("queue", [[0.5, 0.5]]),
            r'transition factor 0 \("queue"\): the table has shape \[1, 2\]; must be \[2, 2\].*',
        ),
        (
            lambda m: m.with_reward("callouts", [0.0, -3.0]),
            (
                r'reward factor 1 \("callouts"\), row 1 \(call=1\): mean is -3\.0; must be in its '
                r"range \[-2\.0, 0\.0\]"
            ),
        ),
        (
            lambda m: m.with_reward("sales", ["much", 1]),
            r'reward factor 0 \("sales"\): the table has entries that are not numbers',
        ),
        (
            lambda m: m.with_range("callouts", -1, 0),
            (
                r'reward factor 1 \("callouts"\), row 1 \(call=1\): mean is -2\.0; must be in its '
                r"range \[-1\.0, 0\.0\]"
            ),
        ),
        (
            lambda m: m.with_range("sales", 2, 1),
            r'reward factor 0 \("sales"\): range \[2\.0, 1\.0\] must be finite with lo <= hi',
        ),
        (
            lambda m: m.with_range("sales", "a", None),
            r'reward factor 0 \("sales"\): range .* must be two numbers lo, hi',
        ),
    ],
)
def test_a_change_that_does_not_fit_names_the_factor(change: Any, message: str) -> None:
    with pytest.raises(InvalidModel) as error:
        change(shop())
    assert error.match(f"^{message}$")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda m: m.with_table("call", [[1, 0]]),
            r"with_table: no state variable 'call'; must be one of queue, door, or its number",
        ),
        (
            lambda m: m.with_table("queu", [[1, 0]]),
            (
                r"with_table: no state variable 'queu'; must be one of queue, door, or its number; "
                r'did you mean "queue"\?'
            ),
        ),
        (lambda m: m.with_table(2, [[1, 0]]), r"with_table: no state variable 2; .*"),
        (lambda m: m.with_table(True, [[1, 0]]), r"with_table: no state variable True; .*"),
        (lambda m: m.with_reward("costs", [0]), r"with_reward: no reward factor 'costs'; .*"),
        (lambda m: m.with_reward(-1, [0, 1]), r"with_reward: no reward factor -1; .*"),
        (lambda m: m.with_range("x", 0, 1), r"with_range: no reward factor 'x'; .*"),
    ],
)
def test_unknown_factors_are_refused(change: Any, message: str) -> None:
    with pytest.raises(InvalidParameter) as error:
        change(shop())
    assert error.match(f"^{message}$")


def twins(first: float) -> FactoredMDP:
    """Two variables whose first rows are alike, and two rewards whose first means are."""
    tables = [([i], [[first, 1 - first], [0.5, 0.5]]) for i in range(2)]
    return FactoredMDP.from_factors(
        [2, 2],
        [1],
        tables,
        [([0], [0.5, 0.25]), ([1], [0.5, 0.75])],
        alike=Alike(([0, 1], [0, 2]), ([0, 1], [0, 2])),  # type: ignore[arg-type]
    )


def test_alike_rows_stay_equal() -> None:
    model = twins(0.25)
    assert model.with_table(0, [[0.25, 0.75], [1, 0]]).transitions[0][1].tolist() == [1, 0]
    with pytest.raises(InvalidModel, match=r"transition factor 1 .* rows of one class must be"):
        model.with_table(0, [[0.5, 0.5], [1, 0]])
    with pytest.raises(InvalidModel, match=r"reward factor 1 .* rows of one class must be equal"):
        model.with_reward(0, [0.75, 0.25])
    with pytest.raises(InvalidModel, match=r"have rows of one class, but range"):
        model.with_range("r0", 0, 2)


def test_rounding_in_alike_rows_does_not_change_the_old_model() -> None:
    model = twins(0.25)
    before = [table.copy() for table in model.transitions]
    nudged = [[0.25 + 2**-50, 0.75 - 2**-50], [0.5, 0.5]]
    changed = model.with_table(0, nudged)
    assert changed.transitions[0][0].tolist() == nudged[0]
    assert changed.transitions[1][0].tolist() == nudged[0]
    for table, old in zip(model.transitions, before, strict=True):
        assert np.array_equal(table, old)


def test_intervals_must_hold_the_new_numbers() -> None:
    ends = [np.array([[0.5, 0.0], [0.5, 0.5]]), np.array([[1.0, 0.5], [0.5, 0.5]])]
    door = shop().transitions[1]
    rewards = shop().rewards
    model = replace(shop(), intervals=Intervals((ends[0], door), (ends[1], door), rewards, rewards))
    changed = model.with_table("queue", [[0.5, 0.5], [0.5, 0.5]])
    assert changed.intervals == model.intervals
    with pytest.raises(InvalidModel, match=r'transition factor 0 \("queue"\), row 0 .*: interval'):
        model.with_table("queue", [[0.25, 0.75], [0.5, 0.5]])
    with pytest.raises(InvalidModel, match=r'reward factor 0 \("sales"\), row 0 .*: interval'):
        model.with_reward("sales", [0.5, 0.25])
