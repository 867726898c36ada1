"""Measures: a new one takes one declaration; what is stored is whole and of its type."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fmdp import Results
from fmdp.errors import InvalidParameter, UnknownName
from fmdp.experiments import measures
from fmdp.experiments.analysis import analyse
from fmdp.experiments.dataset import gather
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.measures import Measure, checked, curve_names, declare, declared
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.sweep import run_sweep
from fmdp.reports.page import Texts, page, page_data
from fmdp.reports.tables import tables
from fmdp.simulation.loop import Run

SPEC = 'steps = 20\nseeds = 2\nproblems = ["circle:2"]\nlearners = ["random"]\n'

WHOLE = {"regret": 1.0, "gain": 1.9, "gain_kind": "exact"}


@pytest.fixture
def mean_reward(monkeypatch: pytest.MonkeyPatch) -> Measure[float]:
    """A new measure with a curve; known only while the test lasts."""
    monkeypatch.setattr(measures, "_declared", dict(measures._declared))

    def curve(run: Run) -> list[tuple[int, float]]:
        return [(t, run.gain - regret / t) for t, regret in run.curve]

    return declare(
        Measure(
            "mean_reward",
            float,
            "reward a step",
            of=lambda run: run.total_reward / run.steps,
            curve=curve,
        )
    )


def test_a_new_measure_is_one_declaration(mean_reward: Measure[float], tmp_path: Path) -> None:
    run_sweep(parse_spec(SPEC), tmp_path, workers=InThisProcess())
    with Store.open(tmp_path) as store:
        runs = list(store.runs())
        for run in runs:
            value, regret, gain = (run.measures[n] for n in ("mean_reward", "regret", "gain"))
            assert run.measure(mean_reward) == value == pytest.approx(gain - regret / 20)
            curve = store.curve(run.key)
            assert curve.values.keys() == {"regret", "gap_regret", "mean_reward"}
            assert curve.values["mean_reward"][-1] == pytest.approx(value)
        found = gather(store)
        files = tables(found, analyse(found))
        text = page(store, found, analyse(found), Texts())
    assert "\nrandom,mean_reward," in files["curves.csv"].replace("circle:2,", "")
    assert '"name":"mean reward","caption":"Mean reward: reward a step."' in text
    lines = files["runs.csv"].splitlines()
    written = [float(row["mean_reward"]) for row in csv.DictReader(lines)]
    assert written == [run.measures["mean_reward"] for run in runs]
    with Results.open(tmp_path) as results:
        assert results.runs()["mean_reward"].tolist() == [r.measures["mean_reward"] for r in runs]
        assert results.curves("mean_reward").columns[-2] == "mean_reward"
        assert "mean_reward" in results.summary()["measure"].tolist()


def test_a_new_number_without_a_curve_is_a_column_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "_declared", dict(measures._declared))
    declare(Measure("odd_steps", int, "a test", of=lambda run: run.steps + 1, over_runs="sum"))
    run_sweep(parse_spec(SPEC), tmp_path, workers=InThisProcess())
    with Store.open(tmp_path) as store:
        found = gather(store)
        data = page_data(store, found, analyse(found), ())
    assert data["columns"][-1] == {"key": "odd_steps", "head": "Odd steps"}
    assert {row["odd_steps"] for row in data["summaries"]} == {42}


def test_a_measure_that_this_fmdp_does_not_know_is_read_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a package that is not installed here, or of a newer fmdp."""
    with monkeypatch.context() as with_more:
        with_more.setattr(measures, "_declared", dict(measures._declared))
        declare(Measure("luck", float, "a test", of=lambda run: 0.5, curve=lambda run: run.curve))
        run_sweep(parse_spec(SPEC), tmp_path, workers=InThisProcess())
    with Results.open(tmp_path) as results:
        assert results.runs()["luck"].tolist() == [0.5, 0.5]
        assert results.curves()["luck"].tolist() == results.curves()["regret"].tolist()


def test_a_name_is_declared_once() -> None:
    with pytest.raises(InvalidParameter, match="'regret' is declared already"):
        declare(Measure("regret", float, "again", of=lambda run: run.regret))
    assert [measure.name for measure in declared()][:2] == ["regret", "gap_regret"]
    assert curve_names() == ("regret", "gap_regret")


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"gain": 1.9, "gain_kind": "exact"}, "must have the measure 'regret'"),
        ({**WHOLE, "regret": "low"}, "'regret' measure of a run must be a finite number"),
        ({**WHOLE, "regret": float("nan")}, "must be a finite number; got nan"),
        ({**WHOLE, "regret": True}, "must be a finite number; got True"),
        ({**WHOLE, "episodes": 1.0}, "'episodes' measure of a run must be a whole number; got 1.0"),
        ({**WHOLE, "gain_kind": "odd"}, "must be exact or upper_bound; got 'odd'"),
    ],
)
def test_what_is_not_as_declared_is_refused(values: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidParameter, match=why):
        checked(values, done=True)


def test_an_unknown_measure_is_not_stored() -> None:
    with pytest.raises(UnknownName, match='did you mean "gap_regret"'):
        checked({**WHOLE, "gap_regrets": 1.0}, done=True)


def test_a_failed_run_has_no_measures() -> None:
    assert checked({}, done=False) == {}
    with pytest.raises(InvalidParameter, match="a failed run must have no measures; got regret"):
        checked({"regret": 1.0}, done=False)


def test_numbers_of_numpy_become_pythons() -> None:
    given = {**WHOLE, "regret": np.float64(0.1), "episodes": np.int64(3), "gain": 2}
    kept = checked(given, done=True)
    assert [type(kept[name]) for name in ("regret", "episodes", "gain")] == [float, int, float]
    assert kept["regret"] == 0.1


def test_a_curve_of_a_measure_without_one_is_refused(tmp_path: Path) -> None:
    run_sweep(parse_spec(SPEC), tmp_path, workers=InThisProcess())
    with Store.create(tmp_path) as store:
        run = next(store.runs())
        curve = store.curve(run.key)
        odd = replace(curve, values={"gain": curve.values["regret"]})
        with pytest.raises(InvalidParameter, match="'gain' measure of a run has no curve"):
            store.add_run(replace(run, key="f" * 64), odd)
        assert store.run("f" * 64) is None
