"""Logs in the order of their times, bad cells, and what a model holds impossible."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.logs.ordering import time_of

Rows = list[dict[str, Any]]


def wearing() -> fmdp.FactoredMDP:
    """A machine that wears by at most one of five levels per step and is repaired to the first."""
    return fmdp.FactoredMDP.from_functions(
        states={"level": 5},
        actions={"crew": ["rest", "fix"]},
        parents={"level": ["level", "crew"]},
        transition=lambda n, v: (
            0
            if v["crew"] == "fix"
            else v["level"]
            if v["level"] == 4
            else {v["level"]: 0.75, v["level"] + 1: 0.25}
        ),
        costs={
            "loss": (["level"], lambda v: float(v["level"])),
            "wage": (["crew"], lambda v: 1.0 * (v["crew"] == "fix")),
        },
    )


def stream(steps: int, seed: int = 0) -> Rows:
    """A stream of random actions, with column `when`."""
    run = fmdp.simulate(wearing(), "random", steps, seed=seed, record=True)
    assert run.trajectory is not None
    parts = (run.trajectory.states[:-1], run.trajectory.actions, run.trajectory.rewards)
    return [
        {
            "when": float(t),
            "level": state[0],
            "crew": ["rest", "fix"][action[0]],
            "loss": rewards[0],
            "wage": rewards[1],
        }
        for t, (state, action, rewards) in enumerate(
            zip(*(part.tolist() for part in parts), strict=True)
        )
    ]


def same(one: fmdp.Fit, other: fmdp.Fit) -> bool:
    return one.steps == other.steps and all(
        np.array_equal(a, b)
        for a, b in zip(one.model.transitions, other.model.transitions, strict=True)
    )


def test_a_shuffled_log_is_put_in_order() -> None:
    rows = stream(800)
    expected = fmdp.fit(rows, wearing(), time="when")
    assert expected.notes == ()
    shuffled = rows[:]
    random.Random(0).shuffle(shuffled)
    fitted = fmdp.fit(shuffled, wearing(), time="when")
    assert same(fitted, expected)
    assert "were put in order" in fitted.notes[0]
    # Without the times the shuffled rows are fitted as they are, and the model objects.
    (note,) = fmdp.fit(shuffled, wearing(), ignore=["when"]).notes
    assert "steps are impossible in the model" in note
    assert fmdp.fit(rows, wearing(), ignore=["when"]).notes == ()


def test_dates_sort_like_numbers() -> None:
    rows = stream(300)
    expected = fmdp.fit(rows, wearing(), time="when")
    for form in ("2026-{:02d}-{:02d}", "2026-{:02d}-{:02d}T06:30:00Z"):
        dated = [
            {**row, "when": form.format(1 + t // 28, 1 + t % 28)} for t, row in enumerate(rows)
        ]
        again = fmdp.fit(dated[::-1], wearing(), time="when")
        assert "were put in order" in again.notes[0]
        assert "holes" in again.notes[1]  # from the 28th to the next month
        assert again.steps < expected.steps
    assert time_of("1970-01-02") == (86400.0, "an ISO date without a time zone")
    assert time_of("1970-01-01T01:00+01:00") == (0.0, "an ISO date with a time zone")
    assert time_of("soon") is time_of("") is time_of(None) is time_of(True) is None


def test_holes_and_duplicates() -> None:
    rows = stream(200)
    kept = [row for t, row in enumerate(rows) if t not in (50, 51, 120)]
    fitted = fmdp.fit([*kept, rows[7], rows[8]], wearing(), time="when")
    assert fitted.steps == 196 - 2  # of 197 rows in three parts
    assert fitted.runs == 3
    text = " ".join(fitted.notes)
    assert "2 rows repeat an earlier row and time, and count once: record 197, record 198" in text
    assert "2 holes longer than the usual step of 1, before record 50, record 118" in text


def test_different_rows_of_one_time_are_bad() -> None:
    rows = stream(100)
    other = {**rows[30], "level": (rows[30]["level"] + 1) % 5}
    with pytest.raises(InvalidParameter, match=r"record 100 has the same time, 30\.0, and"):
        fmdp.fit([*rows, other], wearing(), time="when")
    fitted = fmdp.fit([*rows, other], wearing(), time="when", skip_bad=True)
    assert [cell.where for cell in fitted.skipped] == [30, 100]
    assert fitted.steps == 97  # the steps into and out of the missing row


def test_irregular_times_and_bad_ones() -> None:
    rows = stream(60)
    uneven = [{**row, "when": float(t * t)} for t, row in enumerate(rows)]
    assert "irregular" in fmdp.fit(uneven, wearing(), time="when").notes[0]
    for bad in ("soon", "", None, "2026-01-01"):
        changed = [*rows[:20], {**rows[20], "when": bad}, *rows[21:]]
        with pytest.raises(InvalidParameter, match="record 20, column 'when': a time must be"):
            fmdp.fit(changed, wearing(), time="when")


def test_rows_that_do_not_chain() -> None:
    rows = stream(100)
    steps = [{**row, "next_level": after["level"]} for row, after in itertools.pairwise(rows)]
    assert fmdp.fit(steps, wearing(), ignore=["when"]).notes == ()
    odd = [steps[0], *steps[50:], *steps[1:50]]
    breaks = sum(a["next_level"] != b["level"] for a, b in itertools.pairwise(odd))
    assert breaks
    fitted = fmdp.fit(odd, wearing(), ignore=["when"])
    assert fitted.notes[0].startswith(f"{breaks} of 99 rows do not begin in the next state")
    assert same(fitted, fmdp.fit(steps, wearing(), ignore=["when"]))


def test_a_dozen_bad_cells_in_one_refusal() -> None:
    rows = stream(100)
    for t in range(20, 60, 2):
        rows[t] = {**rows[t], "level": "x", "loss": "y"}
    with pytest.raises(InvalidParameter) as caught:
        fmdp.fit(rows, wearing(), ignore=["when"])
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("the records, record 20, column 'level': there is no value 'x'")
    assert "record 22, column 'loss'" in text
    assert text.count("column") == 12
    assert "and more, 40 so far" in text
    fitted = fmdp.fit(rows, wearing(), ignore=["when"], skip_bad=True)
    assert len(fitted.skipped) == 40
    assert fitted.steps == 99 - 40


def test_nothing_left_to_fit() -> None:
    rows = [{**row, "level": "x"} for row in stream(10)]
    with pytest.raises(InvalidParameter, match=r"no step; .*10 bad rows were skipped"):
        fmdp.fit(rows, wearing(), ignore=["when"], skip_bad=True)


def test_the_zeros_of_the_model_stay() -> None:
    model = wearing()
    fitted = fmdp.fit(stream(2000), model, ignore=["when"], zeros_from_model=True).model
    possible = model.transitions[0] > 0
    ends = fitted.intervals
    assert ends is not None
    assert (ends.upper[0][~possible] == 0).all()
    assert (fitted.transitions[0][~possible] == 0).all()
    assert (ends.lower[0] <= model.transitions[0]).all()
    assert (model.transitions[0] <= ends.upper[0]).all()
    # A certain move is known, and the others have narrower intervals.
    assert (ends.lower[0][model.transitions[0] == 1] == 1).all()
    loose = fmdp.fit(stream(2000), model, ignore=["when"]).model.intervals
    assert loose is not None
    assert ((ends.upper[0] - ends.lower[0]) <= (loose.upper[0] - loose.lower[0])).all()
    robust = fmdp.Exact(intervals="robust")
    gains = [
        fmdp.plan(m, robust).gain_lower
        for m in (fitted, fmdp.fit(stream(2000), model, ignore=["when"]).model)
    ]
    assert gains[1] < gains[0] <= fmdp.plan(model).gain + 1e-6  # type: ignore[operator]


def test_a_log_that_contradicts_the_model() -> None:
    rows = stream(50)
    rows[30] = {**rows[30], "level": 4}
    rows[29] = {**rows[29], "level": 0, "crew": "rest"}
    with pytest.raises(
        InvalidParameter, match="record 29: the next value of 'level' is '4', which"
    ):
        fmdp.fit(rows, wearing(), ignore=["when"], zeros_from_model=True)
    with pytest.raises(InvalidParameter, match="needs a model with tables"):
        fmdp.fit(rows, wearing().structure, ignore=["when"], zeros_from_model=True)


def test_the_default_prior_is_a_share_of_one_observation(tmp_path: Path) -> None:
    rows = [
        {"level": 0, "crew": "rest", "loss": 0, "wage": 0, "next_level": 1},
        {"level": 1, "crew": "rest", "loss": -1, "wage": 0, "next_level": 1},
    ]
    row = fmdp.fit(rows, wearing()).model.transitions[0][0]
    # 1/25 for each of five values: 1.04 of 1.2.
    assert row == pytest.approx([0.04 / 1.2, 1.04 / 1.2, *[0.04 / 1.2] * 3])
    row = fmdp.fit(rows, wearing(), zeros_from_model=True).model.transitions[0][0]
    assert row == pytest.approx([0.25 / 1.5, 1.25 / 1.5, 0, 0, 0])
