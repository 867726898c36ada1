"""`fmdp convert`: the written model is the same model; a refusal leaves the disk as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fmdp.model import load
from fmdp.problems import problem


def test_an_id_becomes_a_file_and_a_file_another(run: Any, tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert run("convert", "riverswim:2", str(first)).status == 0
    assert run("convert", str(first), str(second)).status == 0
    assert load(second) == problem("riverswim:2")


def test_what_a_file_knows_is_in_the_next(run: Any, tmp_path: Path) -> None:
    pumps = Path(__file__).parents[2] / "examples" / "pumps.json"
    again = tmp_path / "again.json"
    assert run("convert", str(pumps), str(again)).status == 0
    assert load(again) == load(pumps)
    assert "crew_1" in run("show", str(again)).out


def test_an_unknown_ending_is_refused(run: Any, tmp_path: Path) -> None:
    assert ".json" in run("convert", "riverswim:2", str(tmp_path / "a.xyz")).refusal
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(run: Any, tmp_path: Path) -> None:
    assert "nowhere" in run("convert", "riverswim:2", str(tmp_path / "nowhere" / "a.json")).refusal


def test_a_broken_file_is_refused_and_the_old_output_stays(run: Any, tmp_path: Path) -> None:
    broken, target = tmp_path / "broken.json", tmp_path / "target.json"
    broken.write_text('{"format": "fmdp-model", "ver')
    target.write_text("precious")
    assert "broken.json" in run("convert", str(broken), str(target)).refusal
    assert target.read_text() == "precious"
