"""`fmdp.sweep`: whatever may stand for a problem and a learner, from scripts and from here."""

from __future__ import annotations

import importlib
import linecache
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp import Results
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.experiments.api import spec_of
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import Store

SRC = Path(fmdp.__file__).parents[1]

GREEDY = '''
import fmdp


class Greedy(fmdp.PlanningLearner):
    """Plans with the estimated model, and at times does anything."""

    epsilon: float = fmdp.setting(0.1, "how often it does anything", low=0.0, high=1.0)

    def tables(self, agent):
        return fmdp.estimated_model(agent.statistics)

    def decide(self, agent):
        decision = super().decide(agent)
        agent.memory["decided"] = agent.memory.get("decided", 0) + 1
        return decision


def nothing(state):
    return len(state)
'''


def run_script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(text)
    return subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(SRC), "FMDP_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def regrets(directory: Path) -> dict[tuple[str, str, int], float]:
    with Results.open(directory) as results:
        table = results.runs_table()
    columns = (table[name].tolist() for name in ("problem", "label", "seed", "regret"))
    return {
        (problem, label, seed): regret
        for problem, label, seed, regret in zip(*columns, strict=True)
    }


def stored(directory: Path) -> int:
    path = directory / "runs.sqlite"
    if not path.exists():
        return 0
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return int(connection.execute("SELECT count(*) FROM runs").fetchone()[0])
    except sqlite3.OperationalError:  # not made yet
        return 0
    finally:
        connection.close()


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Writes a module and imports it, again if it was there."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def written(text: str) -> ModuleType:
        (tmp_path / "own_module.py").write_text(text)
        sys.modules.pop("own_module", None)
        importlib.invalidate_caches()
        # Written within the same second, a module is not seen to have changed.
        for cached in (tmp_path / "__pycache__").glob("own_module.*"):
            cached.unlink()
        linecache.clearcache()
        return importlib.import_module("own_module")

    return written


@pytest.mark.slow
def test_a_script_without_a_guard_uses_worker_processes(tmp_path: Path) -> None:
    (tmp_path / "own_module.py").write_text(GREEDY)
    script = """
import os
import fmdp
from own_module import Greedy, nothing

print("begun", flush=True)
results = fmdp.sweep(
    ["circle:2", fmdp.problem("jao:1")],
    {"mine": Greedy(epsilon=0.2), "never": nothing, "PSRL": "psrl"},
    seeds=2, steps=60, out="runs", workers=2, progress=None,
)
print(len(results.runs_table()["key"]), sorted(set(results.runs_table()["role"])))
"""
    done = run_script(tmp_path, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "begun\n12 ['baseline', 'learner']\n"  # begun once: no worker ran it
    # The same in one process, to the bit; and nothing is run again.
    before = regrets(tmp_path / "runs")
    again = run_script(tmp_path, script.replace('out="runs", workers=2', 'out="other", workers=0'))
    assert again.returncode == 0, again.stderr
    assert regrets(tmp_path / "other") == before
    with Store.open(tmp_path / "runs") as store:
        finished = {run.key: run.finished for run in store.runs()}
    assert run_script(tmp_path, script).returncode == 0
    with Store.open(tmp_path / "runs") as store:
        assert {run.key: run.finished for run in store.runs()} == finished


@pytest.mark.slow
def test_what_is_defined_in_a_script_is_run_in_its_process(tmp_path: Path) -> None:
    script = (
        GREEDY
        + """
import os, sys
results = fmdp.sweep("circle:2", [Greedy(), nothing], seeds=2, steps=40, out="runs", progress=None)
print(sorted(set(results.runs_table()["learner"])), results.runs_table()["label"].tolist())
try:
    fmdp.sweep("circle:2", Greedy(), seeds=1, steps=40, out="runs", workers=2)
except fmdp.FmdpError as error:
    print(error)
"""
    )
    done = run_script(tmp_path, script)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "['__main__:Greedy', 'policy'] ['greedy', 'greedy', 'nothing', 'nothing']"
    assert second.startswith("Greedy is defined in this script or notebook and cannot travel")


def test_the_keys_are_those_of_a_spec(tmp_path: Path) -> None:
    text = """
        steps = 50
        seeds = 2
        problems = ["circle:2", "m.json"]
        learners = [
            { name = "psrl", set = { c = 0.1 }, planner = { name = "alp", basis = "pairs" } },
            "random",
        ]
    """
    fmdp.save(fmdp.problem("jao:1"), tmp_path / "m.json")
    by_text = parse_spec(text, folder=tmp_path)
    learners = [fmdp.PSRL(c=0.1, planner=fmdp.ALP(basis="pairs")), "random"]
    in_python = spec_of(["circle:2", tmp_path / "m.json"], learners, seeds=2, steps=50)
    assert [run.key for run in in_python.runs()] == [run.key for run in by_text.runs()]
    assert [cell.label for cell in in_python.cells] == [cell.label for cell in by_text.cells]
    assert in_python.problems[1].id == str(tmp_path / "m.json")


def making(action: int, held: object = None) -> Callable[[tuple[int, ...]], int]:
    def rule(state: tuple[int, ...]) -> int:
        assert held is not state
        return action

    return rule


def test_closures_with_different_values_are_different_rules(tmp_path: Path) -> None:
    results = fmdp.sweep(
        "circle:2",
        {"first": making(0), "none": making(2)},
        seeds=1,
        steps=50,
        out=tmp_path,
        progress=None,
    )
    table = results.runs_table()
    assert len(set(table["key"])) == 2
    assert table["label"].tolist() == ["first", "none"]  # two cells, though their code is the same
    model = fmdp.problem("circle:2")
    for label, action in (("first", 0), ("none", 2)):
        expected = fmdp.simulate(model, making(action), 50, seed=0).regret
        assert regrets(tmp_path)["circle:2", label, 0] == expected


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (np.zeros(5000), np.r_[np.zeros(2500), 1.0, np.zeros(2499)]),  # the same when printed
        ({"a": [1]}, {"a": [2]}),
        (fmdp.PSRL(), fmdp.PSRL(c=0.5)),
        (making(0), making(1)),
    ],
)
def test_what_a_rule_holds_is_in_its_key(one: object, two: object) -> None:
    def key(held: object) -> str:
        (run,) = spec_of("circle:2", making(0, held), seeds=1, steps=5).runs()
        return run.key

    assert key(one) != key(two)
    assert key(one) == key(one)


def test_a_rule_that_holds_what_cannot_be_told_is_refused() -> None:
    with pytest.raises(FmdpError, match="cannot be told from others by its content"):
        spec_of("circle:2", making(0, (n for n in range(3))), seeds=1, steps=5)


def test_policies_models_and_names(tmp_path: Path) -> None:
    model = fmdp.problem("circle:2")
    plan = fmdp.plan(model)
    plan.policy.save(tmp_path / "best.npz")
    changed = fmdp.problem("circle:2,seed=5")
    learners = {"object": plan.policy, "oracle": "oracle"}
    results = fmdp.sweep(
        {"ours": model, "theirs": changed},
        learners,
        seeds=2,
        steps=50,
        out=tmp_path / "runs",
        workers=0,
        progress=None,
    )
    found = regrets(tmp_path / "runs")
    assert {problem for problem, _, _ in found} == {"ours", "theirs"}
    for seed in (0, 1):
        assert found["ours", "object", seed] == found["ours", "oracle", seed]
    assert results.failures == {}
    # The file holds the same policy: the runs are there already.
    again = fmdp.sweep(
        {"ours": model},
        [str(tmp_path / "best.npz")],
        seeds=2,
        steps=50,
        out=tmp_path / "runs",
        workers=0,
        progress=None,
    )
    assert len(again.runs_table()["key"]) == 8
    nameless = fmdp.FactoredMDP(
        model.structure, model.transitions, model.rewards, model.noise, model.initial_state
    )
    spec = spec_of([nameless, "jao:1"], "random", seeds=1, steps=5)
    assert [one.id for one in spec.problems] == ["model 1", "jao:1"]


@pytest.mark.parametrize(
    ("problems", "learners", "others", "said"),
    [
        ([], "random", {}, "at least one problem"),
        ("circle:2", [], {}, "at least one learner"),
        (["circle:2", "circle:2"], "random", {}, "given twice"),
        ("circel:2", "random", {}, 'did you mean "circle"'),
        ("circle:2", "psrll", {}, 'did you mean "psrl"'),
        ("circle:2", fmdp.PSRL, {}, "not its class"),
        ("circle:2", 7, {}, "needs a learner"),
        ("circle:2", ["psrl", "psrl"], {}, "the same learner"),
        ("circle:2", {"a\nb": "psrl"}, {}, "a label must be a line of text"),
        ("circle:2", "random", {"seeds": 0}, "seeds must be"),
        ("circle:2", "random", {"seeds": [1, 1]}, "each once"),
        ("circle:2", "random", {"steps": 0.5}, "steps must be"),
        ("circle:2", "random", {"workers": -1}, "workers must be a whole number from 0"),
        ("circle:2", "random", {"progress": 3}, "'progress' of sweep"),
    ],
)
def test_what_is_refused_is_one_line_and_makes_nothing(
    problems: object, learners: object, others: dict[str, object], said: str, tmp_path: Path
) -> None:
    given = {"seeds": 1, "steps": 5, "workers": 0, "progress": None, **others}
    with pytest.raises(FmdpError, match=said) as caught:
        fmdp.sweep(problems, learners, out=tmp_path / "out", **given)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_an_agent_is_no_learner(tmp_path: Path) -> None:
    agent = fmdp.PSRL().start(fmdp.problem("circle:2"), 0)
    with pytest.raises(InvalidParameter, match="needs a learner and not an agent"):
        fmdp.sweep("circle:2", agent, out=tmp_path)


def test_failed_runs_are_told_and_stop_nothing(
    own: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    broken = own(GREEDY.replace("decision = super()", 'raise ValueError("my bug")  # '))
    with pytest.warns(UserWarning, match="2 of 4 runs failed, such as circle:2, mine, seed 0: "):
        results = fmdp.sweep(
            "circle:2",
            {"mine": broken.Greedy(), "chance": "random"},
            seeds=2,
            steps=20,
            out=tmp_path / "out",
            workers=0,
            progress=None,
        )
    assert list(results.failures) == ["circle:2, mine, seed 0", "circle:2, mine, seed 1"]
    error = results.failures["circle:2, mine, seed 1"]
    assert error.startswith("Traceback")  # where it happened is what one needs
    assert "own_module.py" in error
    assert error.endswith("ValueError: my bug\n")
    # Mended, it is other code: what failed does not stand in the way, nor in the results.
    mended = own(GREEDY)
    results = fmdp.sweep(
        "circle:2",
        {"mine": mended.Greedy(), "chance": "random"},
        seeds=2,
        steps=20,
        out=tmp_path / "out",
        workers=0,
        progress=None,
    )
    assert results.failures == {}
    assert results.runs_table()["status"].tolist() == ["done"] * 4


TYPED = """
import fmdp
class Typed(fmdp.Learner):
    factor = 1
    def decide(self, agent):
        values = [value + 1 for value in range(3)]
        return fmdp.Decision(lambda state: values[0])
    @staticmethod
    def helper():
        return 5
def rule(state):
    return max(value + 1 for value in state)
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("factor = 1", "factor = 2"),
        ("value + 1 for value in range", "value + 2 for value in range"),
        ("values[0]", "values[1]"),
        ("return 5", "return 6"),
        ("value + 1 for value in state", "value - 1 for value in state"),
    ],
)
def test_code_that_was_typed_into_a_prompt_is_known_by_what_it_does(old: str, new: str) -> None:
    """A prompt keeps no source."""

    def keys(text: str) -> list[str]:
        typed: dict[str, Any] = {"__name__": "typed"}
        exec(text, typed)
        learners = {"class": typed["Typed"](), "rule": typed["rule"]}
        return [run.key for run in spec_of("circle:2", learners, seeds=1, steps=5).runs()]

    assert old in TYPED
    assert keys(TYPED) == keys(TYPED)
    assert keys(TYPED.replace(old, new)) != keys(TYPED)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_run_that_is_interrupted_ends_the_sweep_and_has_not_failed(
    own: Callable[[str], ModuleType], tmp_path: Path, workers: int
) -> None:
    module = own(GREEDY.replace("decision = super()", "raise KeyboardInterrupt  # "))
    with pytest.raises(KeyboardInterrupt):
        fmdp.sweep(
            "circle:2",
            {"chance": "random", "mine": module.Greedy()},
            seeds=1,
            steps=20,
            out=tmp_path / "out",
            workers=workers,
            progress=None,
        )
    with Store.open(tmp_path / "out") as store:
        assert store.keys("failed") == set()


def test_changed_code_is_another_learner_and_the_newest_counts(
    own: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    def result(text: str) -> tuple[list[float], list[str], list[str]]:
        module = own(text)
        results = fmdp.sweep(
            "circle:3",
            {"rule": module.nothing, "class": module.Greedy(epsilon=0.3)},
            seeds=2,
            steps=50,
            out=tmp_path / "out",
            workers=0,
            progress=None,
        )
        table = results.runs_table()
        rule, greedy = table["label"] == "rule", table["label"] == "class"
        return (
            table["regret"][rule].tolist(),
            table["key"][rule].tolist(),
            table["key"][greedy].tolist(),
        )

    first, rule, greedy = result(GREEDY)
    other, other_rule, other_greedy = result(GREEDY.replace("return len(state)", "return 0"))
    assert len(first) == len(other) == 2  # not four: the old code's are left out
    assert first != other
    assert not set(rule) & set(other_rule)
    assert greedy == other_greedy  # the class has not changed
    # A class is known by its source too; and the rule is again what it was at first.
    again, third_rule, third_greedy = result(GREEDY.replace("+ 1", "+ 2"))
    assert len(third_greedy) == 2
    assert not set(greedy) & set(third_greedy)
    assert (again, third_rule) == (first, rule)
    with Store.open(tmp_path / "out") as store:
        assert len(store.keys("done")) == 8  # nothing is ever lost


def test_a_registered_learner_is_known_to_workers_by_where_it_lives(
    own: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    module = own(GREEDY)
    (cell,) = spec_of("circle:2", module.Greedy(), seeds=1, steps=5).cells
    fmdp.register(module.Greedy)
    try:
        (registered,) = spec_of("circle:2", "greedy", seeds=1, steps=5).cells
        assert registered.resolved == cell.resolved
        assert registered.resolved["learner"] == "own_module:Greedy"
    finally:
        module.Greedy.registry.forget("greedy")


@pytest.mark.slow
@pytest.mark.parametrize("where", ["workers=2", "workers=0"])
def test_ctrl_c_keeps_what_is_done_and_the_same_call_goes_on(where: str, tmp_path: Path) -> None:
    script = f"""
import fmdp
slow = fmdp.PSRL(episodes="fixed", length=1)
steps = int(open("steps").read())
fmdp.sweep("circle:2", ["random", slow], seeds=1, steps=steps, out="runs", {where}, progress=None)
print("done")
"""
    (tmp_path / "steps").write_text("3000000")
    (tmp_path / "script.py").write_text(script)
    program = subprocess.Popen(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(SRC), "FMDP_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while stored(tmp_path / "runs") < 1:
        assert program.poll() is None
        time.sleep(0.02)
    time.sleep(0.2)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=300)
    assert stored(tmp_path / "runs") == 1  # the run under way was not waited for
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert program.returncode != 0
    (tmp_path / "steps").write_text("50")
    done = run_script(tmp_path, script)
    assert done.stdout == "done\n", done.stderr
    assert stored(tmp_path / "runs") == 3
