"""`fmdp fit` and `fmdp learn --from` as commands."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import fmdp

from .conftest import Ran

Run = Callable[..., Ran]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Two machines at random, as a CSV file."""
    run = fmdp.simulate(fmdp.problem("circle:2"), "random", 2000, seed=0, record=True)
    assert run.trajectory is not None
    s = run.trajectory.structure
    lines = [",".join([*s.state_names, *s.action_names, *s.reward_names])]
    for state, action, rewards in zip(
        run.trajectory.states[:-1].tolist(),
        run.trajectory.actions.tolist(),
        run.trajectory.rewards.tolist(),
        strict=True,
    ):
        lines.append(",".join(map(str, [*state, *action, *rewards])))
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines))
    return path


def test_a_model_from_a_log(log: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "model.json"
    ran = run("fit", str(log), "--model", "circle:2", "--out", str(out))
    assert ran.status == 0
    assert "1,999 steps in 1 stream\n" in ran.out
    found = run("fit", str(log), "--model", "circle:2", "--out", str(out), "--json").json
    assert (found["steps"], found["runs"], found["rho"], found["scopes"]) == (1999, 1, 0.1, None)
    assert 0 < found["rows_seen"] <= found["rows"]
    model = fmdp.load(out)
    assert model.structure == fmdp.problem("circle:2").structure
    fitted = fmdp.fit(log, "circle:2").model
    assert model.intervals is not None
    assert (model.transitions[0] == fitted.transitions[0]).all()
    assert model.intervals == fitted.intervals


def test_its_structure_learned(log: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "model.json"
    words = ["--structure", "learn", "--max-parents", "3", "--actions", "restart"]
    names = fmdp.problem("circle:2").structure.reward_names
    words += ["--rewards", ",".join(names), "--out", str(out)]
    found = run("fit", str(log), *words, "--json").json
    assert found["scopes"][names[0]] == [fmdp.problem("circle:2").structure.state_names[0]]
    assert len(found["notes"]) == 3
    assert "scope" in run("fit", str(log), *words).out
    fmdp.load(out)


def test_a_warm_learner(log: Path, run: Run) -> None:
    words = ["learn", "circle:2", "--learner", "psrl", "--steps", "300", "--json"]
    cold = run(*words).json
    warm = run(*words, "--from", str(log)).json
    assert warm["steps"] == 300
    assert warm["regret"] < cold["regret"]


def test_a_log_that_contradicts_the_scopes(log: Path, tmp_path: Path, run: Run) -> None:
    """The model says that both machines move by themselves; the log has a third one, which copies
    the first, in place of the second."""
    header, *lines = log.read_text().splitlines()
    values = [line.split(",") for line in lines]
    for last, line in itertools.pairwise(values):
        line[1] = last[0]
    log.write_text("\n".join([header, *map(",".join, values)]))
    s = fmdp.problem("circle:2").structure
    factors = [([i, 2], np.full((2, 3, 2), 0.5)) for i in range(2)]
    rewards = [([i], np.array([0.0, 1.0])) for i in range(2)]
    names = {"state_names": s.state_names, "action_names": s.action_names}
    model = fmdp.FactoredMDP.from_factors(
        [2, 2], [3], factors, rewards, reward_names=s.reward_names, **names
    )
    fmdp.save(model, tmp_path / "model.json")
    words = ["learn", str(tmp_path / "model.json"), "--steps", "20", "--json"]
    assert run(*words).json["scope_findings"] == []
    ran = run(*words, "--from", str(log))
    first, second = s.state_names
    found = {finding["variable"]: finding for finding in ran.json["scope_findings"]}
    assert (found[second]["depends_on"], found[second]["when"]) == (first, "current")
    assert f"the model may be wrong: in {log}, the next value of {second!r} depends on" in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--model SKELETON or --structure learn, or both"),
        (["--structure", "learn", "--known", "a"], "without a model"),
        (["--model", "circle:2", "--structure", "learn", "--known", "a"], "must be among"),
        (["--model", "circle:2", "--structure", "learn", "--actions", "a"], "those of the model"),
        (["--model", "circle:2", "--known", "a"], "structure=learn alone"),
        (["--model", "circle:2", "--structure", "learn", "--zeros-from-model"], "needs the scopes"),
        (["--model", "circle:2", "--skipped", "bad.csv"], "for --skip-bad alone"),
        (["--model", "circle:2", "--time", "when"], "no column 'when' of times"),
        (["--structure", "guess"], "--structure must be learn"),
        (["--structure", "learn"], "say which columns are actions"),
        (["--model", "circle:3"], "lacks the column"),
        (["--model", "circle:2", "--rho", "2"], "'rho' parameter"),
        (["--model", "circle:2", "--prior", "-1"], "'prior' parameter"),
        (["--model", "circle:2", "--max-parents", "2"], "structure=learn alone"),
        (["--model", "circle:2", "--ignore", "nothing"], "no column 'nothing' to ignore"),
    ],
)
def test_refusals(words: list[str], said: str, log: Path, tmp_path: Path, run: Run) -> None:
    out = tmp_path / "model.json"
    assert said in run("fit", str(log), *words, "--out", str(out)).refusal
    assert not out.exists()


def test_where_it_is_written(log: Path, tmp_path: Path, run: Run) -> None:
    words = ["fit", str(log), "--model", "circle:2", "--out"]
    assert "that of a model file, .json" in run(*words, str(tmp_path / "model.txt")).refusal
    assert "no directory" in run(*words, str(tmp_path / "none" / "model.json")).refusal
    assert "no such file" in run("fit", "none.csv", *words[2:], str(tmp_path / "m.json")).refusal


def test_bad_cells_are_skipped_and_listed(log: Path, tmp_path: Path, run: Run) -> None:
    lines = log.read_text().splitlines()
    lines[7] = "wron" + lines[7][1:]
    lines[20] = lines[20] + ",1"
    log.write_text("\n".join(lines))
    out, bad = tmp_path / "model.json", tmp_path / "bad.csv"
    words = ["fit", str(log), "--model", "circle:2", "--out", str(out)]
    refusal = run(*words).refusal
    assert "line 8, column 'machine_0': there is no value 'wron'" in refusal
    assert "also bad: line 21" in refusal
    assert not out.exists()
    ran = run(*words, "--skip-bad", "--skipped", str(bad))
    assert ran.status == 0
    assert "2 rows with a bad cell" in ran.out
    rows = bad.read_text().splitlines()
    assert rows[0] == "row,column,value,why"
    assert [row.split(",")[0] for row in rows[1:]] == ["8", "21"]
    found = run(*words, "--skip-bad", "--json").json
    assert [cell["where"] for cell in found["skipped"]] == [8, 21]
    assert found["steps"] == 1999 - 4  # a bad state takes the step before with it


def test_scopes_learned_for_a_known_model(log: Path, tmp_path: Path, run: Run) -> None:
    s = fmdp.problem("circle:2").structure
    words = ["fit", str(log), "--model", "circle:2", "--structure", "learn", "--known"]
    words += [s.state_names[1], "--out", str(tmp_path / "model.json"), "--json"]
    found = run(*words).json
    assert found["scopes"][s.state_names[1]] == [s.names[v] for v in s.transition_scopes[1]]
    assert found["scopes"][s.reward_names[0]] == [s.state_names[0]]
    model = fmdp.load(tmp_path / "model.json")
    assert model.structure.values == s.values
    assert model.initial_state == fmdp.problem("circle:2").initial_state
