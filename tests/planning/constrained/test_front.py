"""Fronts of two long-run averages, against the linear program with swept weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.cli import main
from fmdp.errors import InvalidParameter, UnknownName

from .occupancies import averages_of, best_gain
from .test_limits import unichain, with_restarts


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("of", [("reward", "q0"), ("q0:min", "q1"), ("r1", "q1:min")])
def test_the_vertices_support_every_direction(seed: int, of: tuple[str, str]) -> None:
    model = unichain(seed, 2)
    tables = averages_of(model)
    front = fmdp.pareto(model, of)
    assert front.status is fmdp.Status.CONVERGED
    assert front.gap <= 1e-6
    signs = [-1.0 if low else 1.0 for low in front.minimised]
    points = np.array([vertex.values for vertex in front.vertices]) * signs
    assert (np.diff(points[:, 0]) < 0).all()
    assert (np.diff(points[:, 1]) > 0).all()
    for angle in np.linspace(0.05, np.pi / 2 - 0.05, 9):
        weights = np.array([np.cos(angle), np.sin(angle)])
        objective: Any = sum(
            w * sign * tables[name]
            for w, sign, name in zip(weights, signs, front.names, strict=True)
        )
        assert (points @ weights).max() == pytest.approx(best_gain(model, {}, objective), abs=1e-5)
    for vertex in front.vertices:
        if front.names[0] == "reward":
            assert fmdp.evaluate(model, vertex.policy).gain == pytest.approx(vertex.values[0])


@pytest.mark.parametrize(
    ("of", "error"),
    [
        ("ab", InvalidParameter),
        (("reward",), InvalidParameter),
        (("reward", "reward:min"), InvalidParameter),
        (("reward", "nothing"), UnknownName),
        ((1, 2), InvalidParameter),
    ],
)
def test_bad_names_are_refused(of: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        fmdp.pareto(with_restarts(), of)


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = str(tmp_path / "c.json"), tmp_path / "front"
    fmdp.save(with_restarts(), path)
    arguments = ["pareto", path, "--of", "reward,restarts:min"]
    assert main([*arguments, "--out", str(out), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["vertices"][0][1] == pytest.approx(0.2467, abs=1e-4)
    assert printed["vertices"][-1][1] == 0.0
    assert len((out / "front.csv").read_text().splitlines()) == len(printed["vertices"]) + 1
    for file, (gain, _) in zip(printed["policies"], printed["vertices"], strict=True):
        assert fmdp.evaluate(fmdp.load(path), file).gain == pytest.approx(gain, abs=1e-5)
    assert main(arguments) == 0
    assert "restarts" in capsys.readouterr().out
    for bad in ("reward", "reward,restart", "a,b,c"):
        assert main(["pareto", path, "--of", bad]) == 2
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
