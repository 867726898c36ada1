"""`fmdp export`: files that say what the policy says; a refusal leaves the disk as it was."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

import fmdp

from ..named import pumps
from ..planning.test_export import function


@pytest.fixture
def saved(tmp_path: Path) -> str:
    path = tmp_path / "policy.npz"
    fmdp.plan(pumps()).policy.save(path)  # type: ignore[union-attr]
    return str(path)


def test_a_csv(run: Any, saved: str, tmp_path: Path) -> None:
    said = run("export", saved, str(tmp_path / "p.csv"), "--as", "csv")
    assert said.out == f"csv: 18 rows, one per state; saved in {tmp_path / 'p.csv'}\n"
    policy: Any = fmdp.load_policy(saved)
    with (tmp_path / "p.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            crew = row.pop("crew")
            assert policy(row) == {"crew": crew}


def test_a_tree(run: Any, saved: str, tmp_path: Path) -> None:
    said = run("export", saved, str(tmp_path / "p.txt"), "--as", "tree")
    assert "6 leaves, depth 4; wrong in 0 of 18 states; saved in" in said.out
    text = (tmp_path / "p.txt").read_text()
    assert text.startswith("# 6 leaves, depth 4; wrong in 0 of 18 states\nif pump_b = new:\n")
    assert run("export", saved, "-", "--as", "tree").out == text
    smaller = run("export", saved, "-", "--as", "tree", "--max-leaves", "3").out
    assert smaller.startswith("# 3 leaves, depth 2; wrong in 3 of 18 states (0.167 of them)")
    erring = run("export", saved, "-", "--as", "tree", "--max-error", "0.1").out
    assert "wrong in 1 of 18 states" in erring


def test_a_small_tree_keeps_the_constraints(run: Any, tmp_path: Path) -> None:
    """In a state with a broken pump only that pump may be repaired."""
    wear = ["new", "broken"]
    model = fmdp.FactoredMDP.from_functions(
        {"a": wear, "b": wear},
        {"crew": ["rest", "a", "b"]},
        {pump: [pump, "crew"] for pump in "ab"},
        lambda name, v: "new" if v["crew"] == name else [0.9, 0.1] if v[name] == "new" else [0, 1],
        {pump: ([pump], lambda v, pump=pump: float(v[pump] == "new")) for pump in "ab"},
        costs={"wages": (["crew"], lambda v: 0.4 * (v["crew"] != "rest"))},
        forbid=[{"a": "broken", "crew": ["rest", "b"]}, {"a": "new", "crew": "a"}],
    )
    fmdp.save(model, tmp_path / "m.json")
    fmdp.plan(model, "exact,ties=first").policy.save(tmp_path / "p.npz")  # type: ignore[union-attr]
    saved = str(tmp_path / "p.npz")
    said = run("export", saved, "-", "--as", "tree", "--max-leaves", "1").refusal
    assert "keeps the constraints of the model; at least 2 leaves are needed" in said
    options = "--as", "tree", "--max-leaves", "2"
    tree = run("export", saved, "-", *options).out
    assert tree.startswith(
        "# 2 leaves, depth 1; wrong in 1 of 4 states (0.25 of them)\nif a = new:"
    )
    costed = run("export", saved, "-", *options, "--problem", str(tmp_path / "m.json")).out
    assert "(0.25 of them), 9.02 % of the time; gain " in costed.splitlines()[0]
    assert f"the policy's is {fmdp.plan(model).gain:.7g}" in costed.splitlines()[0]


def test_a_function(run: Any, saved: str, tmp_path: Path) -> None:
    assert run("export", saved, str(tmp_path / "p.py"), "--as", "python").status == 0
    act = function((tmp_path / "p.py").read_text())
    assert act(pump_a="worn", pump_b="broken", price="high") == {"crew": "pump_b"}


def test_names_for_a_policy_without_names(run: Any, tmp_path: Path) -> None:
    fmdp.save(pumps(), tmp_path / "pumps.json")
    policy: Any = fmdp.plan(pumps()).policy
    bare = fmdp.TablePolicy(policy.state_sizes, policy.action_sizes, policy.actions)
    bare.save(tmp_path / "bare.npz")
    assert "s1 = 0" in run("export", str(tmp_path / "bare.npz"), "-", "--as", "tree").out
    options = "--as", "tree", "--problem", str(tmp_path / "pumps.json")
    assert "pump_b = new" in run("export", str(tmp_path / "bare.npz"), "-", *options).out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--as is missing; it must be one of csv, tree, python"),
        (("--as", "pythn"), 'did you mean "python"?'),
        (("--as", "csv", "--max-leaves", "3"), "a CSV is never wrong"),
        (("--as", "tree", "--max-leaves", "0"), "must be an integer >= 1"),
        (("--as", "tree", "--max-error", "2"), "max_error"),
        (("--as", "tree", "--max-leaves", "3", "--max-error", "0"), "no cut of the exact tree"),
    ],
)
def test_refusals_leave_the_disk_as_it_was(
    run: Any, saved: str, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    target = tmp_path / "out"
    target.write_text("precious")
    assert words in run("export", saved, str(target), *options).refusal
    assert target.read_text() == "precious"
    assert {path.name for path in tmp_path.iterdir()} == {"out", "policy.npz"}


def test_a_missing_policy(run: Any) -> None:
    assert "no policy file" in run("export", "nowhere.npz", "x", "--as", "csv").refusal


def test_a_missing_folder_is_noticed_before_the_work(
    run: Any, saved: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree was searched for seconds, and then there was nowhere to write it."""

    def work(*_: Any, **__: Any) -> None:
        pytest.fail("the work was begun")

    monkeypatch.setattr("fmdp.planning.explain.export.exported", work)
    place = str(tmp_path / "nowhere" / "x")
    assert f"cannot write {place}" in run("export", saved, place, "--as", "tree").refusal


def test_a_policy_too_large_is_one_line(run: Any, tmp_path: Path) -> None:
    fmdp.plan(fmdp.problem("circle:30"), "alp,basis=singles").policy.save(tmp_path / "p.npz")  # type: ignore[union-attr]
    for kind in ("csv", "tree", "python"):
        said = run("export", str(tmp_path / "p.npz"), str(tmp_path / "x"), "--as", kind)
        assert "1,073,741,824 states" in said.refusal


def test_an_input_is_never_overwritten(run: Any, saved: str, tmp_path: Path) -> None:
    model, before = tmp_path / "m.json", Path(saved).read_bytes()
    fmdp.save(fmdp.problem("circle:2"), model)
    text = model.read_text()
    assert "is an input of this command" in run("export", saved, saved, "--as", "csv").refusal
    assert "is an input of this command" in run("plan", str(model), "--out", str(model)).refusal
    learned = run("learn", str(model), "--steps", "5", "--out", str(model))
    assert "is an input of this command" in learned.refusal
    assert (Path(saved).read_bytes(), model.read_text()) == (before, text)
