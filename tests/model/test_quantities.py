"""Quantities of a model: named factors that pay nothing."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import FactoredMDP
from fmdp.cli import main
from fmdp.errors import FmdpError, InvalidModel


def pump(**more: Any) -> FactoredMDP:
    """A pump that wears out; a repair calls out a technician."""

    def wear(name: str, values: Any) -> Any:
        if values["do"] == "repair":
            return "good"
        return {"good": 0.8, "bad": 0.2} if values["pump"] == "good" else "bad"

    return FactoredMDP.from_functions(
        {"pump": ["good", "bad"]},
        {"do": ["nothing", "repair"]},
        {"pump": ["pump", "do"]},
        wear,
        {"work": (["pump"], lambda values: float(values["pump"] == "good"))},
        **({"quantities": {"calls": (["do"], lambda v: float(v["do"] == "repair"))}} | more),
    )


def test_they_are_content_and_survive_everything(tmp_path: Path) -> None:
    model, without = pump(), pump(quantities={})
    (quantity,) = model.quantities
    assert (quantity.name, quantity.scope, quantity.table.tolist()) == ("calls", (1,), [0.0, 1.0])
    assert model != without
    assert model.content_hash != without.content_hash
    assert without.quantities == ()
    for again in (
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        fmdp.expand(model),
        model.with_reward("work", model.rewards[0]),
    ):
        assert again == model
        assert again.content_hash == model.content_hash
        assert not again.quantities[0].table.flags.writeable
    assert model.with_range("work", -1, 2).quantities == model.quantities
    assert model.with_constraints(fmdp.at_most(model, 1)).quantities == model.quantities
    path = tmp_path / "pump.json"
    fmdp.save(model, path)
    assert fmdp.load(path) == model
    document = json.loads(path.read_text())
    assert document["version"] == 3
    assert document["quantities"] == [{"name": "calls", "scope": ["do"], "means": [0, 1]}]
    fmdp.save(without, path)
    assert "quantities" not in json.loads(path.read_text())


def test_from_factors_sorts_the_axes() -> None:
    table = np.arange(6.0).reshape(3, 2)
    model = FactoredMDP.from_factors(
        [2], [3], [([0], np.eye(2))], quantities={"q": (["a0", "s0"], table)}
    )
    assert model.quantities[0].scope == (0, 1)
    assert model.quantities[0].table.tolist() == table.T.ravel().tolist()


def test_derived_variables_are_substituted() -> None:
    model = FactoredMDP.from_functions(
        {"a": 2, "b": 2},
        {"do": 2},
        {"a": ["a"], "b": ["b"]},
        lambda name, values: values[name],
        derived={
            "up": fmdp.Count(["a", "b"], of=[1]),
            "rain": (["a"], lambda v: {0: 0.25, 1: 0.75}),
        },
        quantities={
            "up": (["up", "do"], lambda v: v["up"] * v["do"]),
            "wet": (["rain", "b"], lambda v: v["rain"] * v["b"]),
        },
    )
    up, wet = fmdp.expand(model).quantities
    assert up.scope == (0, 1, 2)
    assert up.table.tolist() == [0, 0, 0, 1, 0, 1, 0, 2]
    assert (wet.scope, wet.table.tolist()) == ((0, 1), [0, 0.75, 0, 0.75])


@pytest.mark.parametrize(
    ("quantities", "match"),
    [
        ({"work": (["do"], lambda v: 0.0)}, "name is that of a reward"),
        ({"reward": (["do"], lambda v: 0.0)}, "name is that of a reward"),
        ({"calls": (["dp"], lambda v: 0.0)}, "dp"),
        ({"calls": (["do"], lambda v: float("nan"))}, "finite"),
        ({"calls": (["do"], lambda v: "x")}, "must be a number"),
        ({"calls": 3}, "calls"),
        ({3: (["do"], lambda v: 0.0)}, "3"),
        ([1], "quantities must be"),
    ],
)
def test_bad_quantities_are_refused(quantities: Any, match: str) -> None:
    with pytest.raises(InvalidModel, match=match):
        pump(quantities=quantities)


@pytest.mark.parametrize(
    "change", [{"means": [0]}, {"means": [0, "x"]}, {"scope": ["dp"]}, {"name": "work"}, {"x": 1}]
)
def test_bad_files_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "pump.json"
    fmdp.save(pump(), path)
    document = json.loads(path.read_text())
    document["quantities"][0] |= change
    path.write_text(json.dumps(document))
    with pytest.raises(FmdpError, match="quantity"):
        fmdp.load(path)


def test_show_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "pump.json")
    fmdp.save(pump(), path)
    assert main(["show", path, "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["quantities"]
    assert shown == {"name": "calls", "scope": ["do"], "rows": 2, "range": [0.0, 1.0]}
    assert main(["show", path]) == 0
    assert "calls" in capsys.readouterr().out
