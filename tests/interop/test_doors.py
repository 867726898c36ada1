"""Files of other programs wherever a problem is asked for: the command line, specs, settings."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import fmdp
from fmdp.cli import main
from fmdp.errors import FmdpError
from fmdp.experiments.spec import read_spec
from fmdp.interop import dbn, storm
from fmdp.interop.identifiers import identifiers

EXAMPLE = Path(__file__).parents[2] / "examples" / "machines.prism"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(list(words))
    said = capsys.readouterr()
    return status, said.out, said.err


def test_convert_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, back = tmp_path / "circle.prism", tmp_path / "circle.json"
    status, out, _ = run(capsys, "convert", "circle:3", str(file))
    assert (status, out) == (0, f"wrote {file}: circle:3, 8 states, 4 actions\n")
    assert run(capsys, "convert", str(file), str(back))[0] == 0
    assert fmdp.load(back) == fmdp.problem("circle:3")


def test_plan_and_learn_on_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capsys, "plan", str(EXAMPLE), "--json")
    assert status == 0
    assert json.loads(out)["gain"] == pytest.approx(1990 / 1099, abs=1e-6)
    status, out, _ = run(capsys, "learn", str(EXAMPLE), "--steps", "20", "--json")
    assert status == 0
    assert json.loads(out)["gain"] == pytest.approx(1990 / 1099, abs=1e-6)


OPEN = """mdp
const double p;
const int N;
module m x : [0..N]; [a] x<N -> p : (x'=x+1) + 1-p : true; [a] x=N -> (x'=0); endmodule
rewards "full" x=N : 1; endrewards
rewards "empty" x=0 : 1; endrewards
"""


def test_settings_behind_the_name_of_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "open.prism").write_text(OPEN)
    status, out, _ = run(capsys, "plan", "open.prism,p=0.5,N=1,rewards=full", "--json")
    assert status == 0
    assert json.loads(out)["gain"] == pytest.approx(1 / 3, abs=1e-6)  # two steps in, one out
    for given, words in (
        ("open.prism", "constant p has no value: give one, as in MODEL.prism,p=..."),
        ("open.prism,p=0.5,N=1", "several structures of rewards, 'full', 'empty': choose one"),
        ("open.prism,p=0.5,N=1.5,rewards=full", "constant N must be int; got '1.5'"),
        ("open.prism,p=0.5,M=1,rewards=full", "M is no constant of the file"),
        ("open.prism,p=0.5,N,rewards=full", "'N' must be CONSTANT=VALUE, rewards=NAME, min="),
        ("open.prism,p=0.5,N=1,max-states=many", "max-states must be a whole number; got 'many'"),
        ("open.prism,p=0.5,N=1,rewards=full,min=empty", "one structure is optimised; give one"),
        ("missing.prism", "missing.prism"),
        ("missing.prism,N=1", "missing.prism"),
    ):
        status, out, err = run(capsys, "plan", given)
        assert (status, out) == (2, "")
        assert words in err
        assert len(err.splitlines()) == 1


def test_a_spec_takes_files(folder: Path) -> None:
    (folder / "specs").mkdir()
    (folder / "specs" / "own.prism").write_text(EXAMPLE.read_text())
    (folder / "specs" / "spec.toml").write_text(
        'name = "own"\nsteps = 20\nseeds = 1\nproblems = ["own.prism"]\n'
        '[[learners]]\nname = "random"\n'
    )
    spec = read_spec(folder / "specs" / "spec.toml")
    assert [cell.problem.model.structure.state_names for cell in spec.cells] == [("m1", "m2")]


def test_nothing_is_written_where_the_name_is_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "convert", "circle:3", "out.prism,N=3")
    assert status == 2
    assert "the name must end in .prism" in err
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(
    importlib.util.find_spec("pyagrum") is not None, reason="it looks at who lacks pyAgrum"
)
def test_the_missing_extra_is_named_for_networks() -> None:
    with pytest.raises(FmdpError, match=r"needs pyAgrum, .*; pip install 'fmdp\[dbn\]'"):
        dbn.to_bayesian_network(fmdp.problem("circle:3"))


@pytest.mark.skipif(
    importlib.util.find_spec("stormpy") is not None, reason="it looks at who lacks Storm"
)
def test_the_missing_extra_is_named_for_storm() -> None:
    with pytest.raises(FmdpError, match=r"needs stormpy, .*; pip install 'fmdp\[storm\]'"):
        storm.gain(fmdp.problem("circle:3"))


def test_the_missing_extra_is_named_for_umb(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "umbi", None)  # importing it fails as if it were missing
    status, _, err = run(capsys, "convert", "circle:3", "circle.umb")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "this needs umbi, which is not installed; pip install 'fmdp[umb]'" in err
    assert list(folder.iterdir()) == []
    (folder / "circle.umb").write_bytes(b"")
    assert run(capsys, "plan", "circle.umb")[2] == err


@pytest.mark.parametrize(
    ("names", "made"),
    [
        (["a", "b_1"], ["a", "b_1"]),
        (["pump 1", "pump-1", "pump_1"], ["pump_1_2", "pump_1_3", "pump_1"]),
        (["1st", "", "é"], ["_1st", "_", "__2"]),
        (["if", "if_"], ["if__2", "if_"]),
    ],
)
def test_identifiers_by_hand(names: list[str], made: list[str]) -> None:
    assert identifiers(names, ["if"]) == made
