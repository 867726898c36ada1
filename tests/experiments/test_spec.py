"""Specs: resolved and checked before anything runs; the hash knows content, not formatting."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.experiments.api import spec_of
from fmdp.experiments.executors import Processes
from fmdp.experiments.spec import PlannedRun, Spec, parse_spec, read_spec, resolved_learner
from fmdp.experiments.sweep import run_sweep

EXAMPLES = Path(__file__).parents[2] / "examples"

BASE = """
steps = 100
seeds = 2
problems = ["circle:3"]
learners = [{ name = "dorl", set = { c = 0.03 }, planner = "exact" }]
"""


def labels(spec: Spec) -> list[tuple[str, str]]:
    return [(cell.problem.id, cell.label) for cell in spec.cells]


def test_the_example_is_read_as_its_comments_say() -> None:
    spec = read_spec(EXAMPLES / "sweep.toml")
    both = ["PSRL c=0.1", "PSRL c=0.75", "DORL"]
    ends = ["oracle", "random"]
    assert labels(spec) == [
        *(("circle:4", label) for label in [*both, "f-Rmax", *ends]),
        *(("three-leg:4,dynamics=guestrin", label) for label in [*both, *ends]),
    ]
    assert spec.seeds == (0, 1, 2)
    runs = list(spec.runs())
    assert len(runs) == len({run.key for run in runs}) == 3 * 11
    assert [run.record for run in runs] == [True] * 11 + [False] * 22
    dorl = spec.cells[2].resolved
    assert dorl["parameters"]["c"] == 0.03
    assert dorl["parameters"]["rho"] == 0.1  # a default, resolved
    assert dorl["planner"] == "exact"
    assert dorl["planner_settings"]["tolerance"] == 0.01


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.toml")), ids=lambda path: path.name)
def test_every_example_is_a_spec(path: Path) -> None:
    assert read_spec(path).cells


def test_the_hash_does_not_see_order_comments_or_formatting() -> None:
    other = """
    # a comment
    learners = [ { planner = { name = "exact" }, set.c = 3e-2, name = "dorl" } ]
    seeds = [0, 1]
    problems = [ "circle:3,reward=sum" ]   # the default, written out
    steps = 1_00
    name = "sweep"
    """
    one, two = parse_spec(BASE), parse_spec(other)
    assert one.hash == two.hash
    assert [run.key for run in one.runs()] == [run.key for run in two.runs()]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("steps = 100", "steps = 101"),
        ("c = 0.03", "c = 0.030000000000000002"),
        ("circle:3", "circle:3,seed=2"),
        ('planner = "exact"', 'planner = { name = "exact", tie_seed = 1 }'),
        ("dorl", "psrl"),
    ],
)
def test_whatever_changes_a_number_changes_every_key(old: str, new: str) -> None:
    assert old in BASE
    before = {run.key for run in parse_spec(BASE).runs()}
    after = {run.key for run in parse_spec(BASE.replace(old, new)).runs()}
    assert not before & after


def test_more_seeds_keep_the_keys_of_the_first() -> None:
    few = [run.key for run in parse_spec(BASE).runs()]
    more = [run.key for run in parse_spec(BASE.replace("seeds = 2", "seeds = 5")).runs()]
    assert more[:2] == few
    # A label or a name is what a run is called, not what it is.
    renamed = BASE.replace('name = "dorl"', 'name = "dorl", label = "ours"')
    assert [run.key for run in parse_spec(renamed).runs()] == few


def test_a_setting_at_an_unkeyed_value_is_not_in_the_key() -> None:
    agent = fmdp.PSRL(planner="exact").start(fmdp.problem("circle:2"))
    held = resolved_learner(agent)
    assert not {"horizon", "ties", "rewards"} & held["parameters"].keys()
    assert not {"horizon", "intervals"} & held["planner_settings"].keys()
    other = resolved_learner(fmdp.PSRL(rewards="known").start(fmdp.problem("circle:2")))
    assert other["parameters"]["rewards"] == "known"


def test_a_new_results_version_gives_new_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {run.key for run in parse_spec(BASE).runs()}
    monkeypatch.setattr("fmdp.experiments.spec.RESULTS_VERSION", 10**6)
    assert not before & {run.key for run in parse_spec(BASE).runs()}


def test_model_files_are_known_by_content(tmp_path: Path) -> None:
    model = fmdp.problem("circle:3")
    fmdp.save(model, tmp_path / "mine.json")
    (tmp_path / "other").mkdir()
    fmdp.save(model, tmp_path / "other" / "moved.json")
    (tmp_path / "a.toml").write_text(BASE.replace("circle:3", "mine.json"))
    (tmp_path / "b.toml").write_text(BASE.replace("circle:3", "other/moved.json"))
    keys = [
        [run.key for run in spec.runs()]
        for spec in (
            parse_spec(BASE),
            read_spec(tmp_path / "a.toml"),  # relative to the spec, not to where we stand
            read_spec(tmp_path / "b.toml"),
        )
    ]
    assert keys[0] == keys[1] == keys[2]
    fmdp.save(fmdp.problem("circle:3,seed=2"), tmp_path / "mine.json")
    assert [run.key for run in read_spec(tmp_path / "a.toml").runs()] != keys[0]


def test_lists_are_grids_and_labels_tell_them_apart() -> None:
    text = BASE.replace("set = { c = 0.03 }", "set = { c = [0.1, 0.2], rho = [0.1, 0.5] }")
    text = text.replace(
        'planner = "exact"', 'planner = ["exact", { name = "exact", ties = "first" }]'
    )
    assert [label for _, label in labels(parse_spec(text))] == [
        f"dorl c={c} rho={rho} ({planner})"
        for c in ("0.1", "0.2")
        for rho in ("0.1", "0.5")  # the default is shown where it varies
        for planner in ("exact", "exact ties=first")
    ]
    named = text.replace('name = "dorl"', 'name = "dorl", label = "D"')
    assert labels(parse_spec(named))[0][1] == "D c=0.1 rho=0.1 (exact)"
    placed = text.replace('name = "dorl"', 'name = "dorl", label = "D, c is {c}, {targets}"')
    assert labels(parse_spec(placed))[0][1] == "D, c is 0.1, none rho=0.1 (exact)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("steps = 100", "steps = 0", "steps must be a whole number from 1; got 0"),
        ("steps = 100", "step = 100", "no key 'step' .*; did you mean \"steps\""),
        ("steps = 100", "", "'steps' is missing"),
        ("seeds = 2", "seeds = [1, 1]", "each once"),
        ("seeds = 2", "seeds = -1", "seeds must be a whole number from 1"),
        ("seeds = 2", "seeds = true", "seeds must be a whole number"),
        ('["circle:3"]', "[]", "'problems' must be a list"),
        ('["circle:3"]', '["circle:3", "circle:3,reward=sum"]', r"problems\[1\]: .*given twice"),
        ("circle:3", "cirlce:3", r"problems\[0\]: unknown problem .* did you mean \"circle\""),
        ("circle:3", "missing.json", r"problems\[0\]: .*missing.json"),
        ("dorl", "dorel", r"learners\[0\]: unknown learner 'dorel'.* did you mean \"dorl\""),
        ("set =", "sett =", r"learners\[0\]: a learner has no key 'sett' .* did you mean \"set\""),
        ("set = { c", "set = { cc", "learner dorl has no parameter 'cc' .* did you mean \"c\""),
        ("c = 0.03", "c = -1", "the 'c' parameter of learner dorl must be"),
        ("c = 0.03", "c = []", "the 'c' parameter of learner dorl has an empty list"),
        ('"exact"', '"exakt"', "unknown planner 'exakt'.* did you mean \"exact\""),
        ('"exact"', '{ name = "exact", tol = 1 }', "planner exact has no parameter 'tol'"),
        ('"exact"', '{ name = "exact", max_seconds = 1.0 }', "a sweep takes 'max_iterations'"),
        ("name = ", 'problems = ["circle:4"], name = ', 'not among the problems .* "circle:3"'),
        ("[{ ", '["dorl", { label = "x", ', "are the same learner on circle:3"),
        ("[{ ", '[{ name = "psrl", label = "x" }, { label = "x", ', "stands for two learners"),
        ("name = ", 'label = "{cc}", name = ', 'no parameter of the learner; did you mean "c"'),
        ("steps = 100", "steps = ", "is not TOML"),
    ],
)
def test_a_bad_spec_is_refused_with_one_line_that_names_the_place(
    old: str, new: str, message: str
) -> None:
    assert old in BASE
    with pytest.raises(FmdpError, match=message) as caught:
        parse_spec(BASE.replace(old, new, 1), "some.toml")
    assert str(caught.value).startswith("some.toml: ")
    assert "\n" not in str(caught.value)


def test_the_planner_of_fsrl_needs_no_budget_that_fsrl_sets_itself() -> None:
    text = BASE.replace("dorl", "fsrl").replace('"exact"', '{ name = "span", tolerance = 0.5 }')
    (cell,) = parse_spec(text).cells
    assert cell.label == "fsrl (span tolerance=0.5)"
    assert cell.resolved["parameters"]["budget"] is None
    assert cell.resolved["planner_settings"]["tolerance"] == 0.5
    in_python = fmdp.FSRL(planner=fmdp.SpanConstrained(budget=0.0, tolerance=0.5))
    (same,) = spec_of("circle:3", in_python, seeds=2, steps=100).cells
    assert (same.resolved, same.label) == (cell.resolved, cell.label)


def test_a_missing_spec_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FmdpError, match=r"none\.toml"):
        read_spec(tmp_path / "none.toml")


def test_the_docs_show_the_example_as_it_is() -> None:
    docs = (EXAMPLES.parent / "docs" / "experiments.md").read_text()
    assert (EXAMPLES / "sweep.toml").read_text() in docs


KEYS = """
steps = 400
seeds = 1
problems = ["circle:3", "m.json"]

[[learners]]
name = "psrl"
label = "psrl"
set = { c = 0.1, prior = 0.03, episodes = "arithmetic" }

[[learners]]
name = "psrl"
label = "psrl fixed"
set = { episodes = "fixed", length = 7 }
planner = [
    { name = "alp", basis = "pairs", discount = 0.9, method = "factored" },
    { name = "exact", ties = "first", tolerance = 0.25, max_iterations = 11 },
]

[[learners]]
name = "dorl"
label = "dorl vertex"
set = { episodes = "arithmetic", rho = 0.2, targets = "vertex" }
planner = "exact"

[[learners]]
name = "dorl"
label = "dorl average"
set = { episodes = "arithmetic", c = 1 }
planner = { name = "alp", basis = "local", criterion = "average" }

[[learners]]
name = "fsrl"
label = "fsrl"
set = { episodes = "arithmetic" }

[[learners]]
name = "fsrl"
label = "fsrl budgets"
problems = ["circle:3"]
set = { episodes = "doubling", budget = "1+1+1" }

[[learners]]
name = "frmax"
label = "frmax"
set = { m = 3, episodes = "arithmetic" }
planner = "exact"

[[learners]]
name = "oracle"
label = "oracle"
planner = { name = "exact", criterion = "discounted", discount = 0.9 }

[[learners]]
name = "random"
"""


def test_the_keys_of_runs_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by the code before learners were settings: what was stored then is found now. A new
    RESULTS_VERSION gives others; a change of anything else must not. Then every run had the tie
    seed 0, which has to be given today."""
    monkeypatch.setattr("fmdp.experiments.spec.RESULTS_VERSION", 2)
    fmdp.save(fmdp.problem("random:3,seed=4"), tmp_path / "m.json")
    (tmp_path / "keys.toml").write_text(KEYS)
    found = {
        (run.cell.problem.id, run.cell.label): run
        for run in read_spec(tmp_path / "keys.toml").runs()
    }
    expected = {
        ("circle:3", "psrl"): "4c15a3e84508c42e",
        (
            "circle:3",
            "psrl fixed (alp basis=pairs method=factored discount=0.9)",
        ): "65c4f9ceb630bc17",  # with results version 4 its tolerance is one of discounted values
        (
            "circle:3",
            "psrl fixed (exact tolerance=0.25 max_iterations=11 ties=first)",
        ): "d02cf5428c20ff1b",
        ("circle:3", "dorl vertex"): "6afc74ca6a9d8165",
        ("circle:3", "dorl average"): "0b2435420edc292d",
        ("circle:3", "fsrl"): "5a4362bc0bf9a87f",
        ("circle:3", "fsrl budgets"): "730ac7a7b9c13c7c",
        ("circle:3", "frmax"): "83c15dda66313d01",
        ("circle:3", "oracle"): "1b955a22bf7c95aa",
        ("circle:3", "random"): "837ce1c7d8d24ef6",
        ("m.json", "psrl"): "464cba1bbc63db42",
        ("m.json", "dorl average"): "67b7612370bf3d10",
        ("m.json", "oracle"): "5bb1a5ebd63d28d9",
    }
    assert {name: with_tie_seed_zero(found[name]).key[:16] for name in expected} == expected
    changed = [name for name in expected if found[name].key[:16] != expected[name]]
    assert changed == [name for name in expected if name[1] != "random"]


def with_tie_seed_zero(run: PlannedRun) -> PlannedRun:
    """Return the run with the tie seed 0 of its planner, where it has one."""
    settings = dict(run.cell.resolved["planner_settings"])
    settings |= {"tie_seed": 0} if "tie_seed" in settings else {}
    resolved = {**run.cell.resolved, "planner_settings": settings}
    return replace(run, cell=replace(run.cell, resolved=resolved))


MODULE = """
import fmdp


class Mine(fmdp.PlanningLearner):
    epsilon: float = fmdp.setting(0.1, "how often it does anything", low=0.0, high=1.0)

    def tables(self, agent):
        return fmdp.estimated_model(agent.statistics)


class Careful(fmdp.Exact):
    depth: int = fmdp.setting(3, "how careful", low=1)


class Coin(fmdp.Problem):
    chance: float = fmdp.setting(0.5, "of heads", low=0.0, high=1.0)

    def build(self):
        heads = [[1 - self.chance, self.chance]] * 4
        return fmdp.FactoredMDP.from_factors([2], [2], [((0, 1), heads)], [((0,), [0.0, 1.0])])


def first(state):
    return 0


def nonsense(state):
    return "left"


number = 7
"""

OWN = """
steps = 20
seeds = 2
problems = ["circle:2", "beside_the_spec:Coin,chance=0.25"]

[[learners]]
name = "beside_the_spec:Mine"
set = { epsilon = [0.1, 0.2] }
planner = { name = "beside_the_spec:Careful", depth = 5 }

[[learners]]
rule = "beside_the_spec:first"

[[learners]]
policy = "best.npz"
label = "planned"
problems = ["circle:2"]
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a spec, a module and a policy, which is not where one stands."""
    (tmp_path / "beside_the_spec.py").write_text(MODULE)
    fmdp.plan(fmdp.problem("circle:2")).policy.save(tmp_path / "best.npz")
    (tmp_path / "own.toml").write_text(OWN)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [*sys.path])
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("beside_the_spec", None)


def test_a_spec_names_what_is_ones_own(beside: Path) -> None:
    spec = read_spec(beside / "own.toml")
    coin = "beside_the_spec:Coin,chance=0.25"
    mine = [f"mine epsilon={epsilon} (careful depth=5)" for epsilon in (0.1, 0.2)]
    assert labels(spec) == [
        *(("circle:2", label) for label in (*mine, "beside_the_spec:first", "planned")),
        *((coin, label) for label in (*mine, "beside_the_spec:first")),
    ]
    resolved = spec.cells[0].resolved
    assert resolved["learner"] == "beside_the_spec:Mine"
    assert resolved["planner"] == "beside_the_spec:Careful"
    assert resolved["planner_settings"]["depth"] == 5
    assert set(resolved["code"]) == {"beside_the_spec:Mine", "beside_the_spec:Careful"}
    assert spec.cells[3].resolved["parameters"]["policy"].startswith("sha256:")
    assert spec.cells[3].learner.role == "baseline"
    assert "code" not in spec.cells[3].resolved
    # A policy is what it does, wherever it is stored; by name and by key.
    moved = OWN.replace('policy = "best.npz"', 'name = "policy"\nset = { policy = "a/b.npz" }')
    (beside / "a").mkdir()
    (beside / "best.npz").rename(beside / "a" / "b.npz")
    (beside / "own.toml").write_text(moved)
    keys = [run.key for run in spec.runs()]
    assert [run.key for run in read_spec(beside / "own.toml").runs()] == keys


@pytest.mark.slow
def test_it_runs_in_worker_processes_and_nonsense_is_told(beside: Path) -> None:
    text = OWN + '[[learners]]\nrule = "beside_the_spec:nonsense"\nproblems = ["circle:2"]\n'
    (beside / "own.toml").write_text(text)
    summary = run_sweep(read_spec(beside / "own.toml"), beside / "out", workers=Processes(1))
    assert (summary.done, summary.failed) == (14, 2)
    name, error = next(iter(summary.errors.items()))
    assert name == "circle:2, beside_the_spec:nonsense, seed 0"
    assert "Rule(nonsense) in state machine_0=working, machine_1=working: " in error
    assert "left" in error
    assert "\n" not in error


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "beside_the_spec:Mine",
            "beside_the_spek:Mine",
            r"learners\[0\]: .*no module 'beside_the_",
        ),
        ("beside_the_spec:Mine", "beside_the_spec:Mime", 'did you mean "Mine"'),
        ("beside_the_spec:Mine", "beside_the_spec:Careful", "must be a subclass of .*Learner"),
        ("beside_the_spec:Careful", "beside_the_spec:Mine", "must be a subclass of .*Planner"),
        ("beside_the_spec:Coin", "beside_the_spec:Mine", r"problems\[1\]: .*must be a subclass"),
        ("epsilon = [0.1, 0.2]", "epsilon = 2", "'epsilon' parameter of learner mine must be"),
        ("depth = 5", "depth = 0", "'depth' parameter of planner careful must be"),
        (":first", ":number", "must be a function state -> action; got 7"),
        (":first", ":Mine", "must be a function state -> action"),
        (":first", ":fist", 'did you mean "first"'),
        ("beside_the_spec:first", "first", "'rule' must be module:function; got 'first'"),
        ('policy = "best.npz"', 'policy = "none.npz"', "none.npz"),
        ('policy = "best.npz"', 'policy = "beside_the_spec:first"', "is for 'rule'"),
        ('rule = "', 'name = "psrl"\nrule = "', "needs one of .*; got 'name' and 'rule'"),
        ('label = "planned"', "set = { c = 1 }", "a policy has no parameters"),
        ('label = "planned"', 'planner = "exact"', "learner policy does not plan"),
    ],
)
def test_bad_names_of_ones_own_are_refused_with_one_line(
    beside: Path, old: str, new: str, message: str
) -> None:
    assert old in OWN
    (beside / "own.toml").write_text(OWN.replace(old, new, 1))
    with pytest.raises(FmdpError, match=message) as caught:
        read_spec(beside / "own.toml")
    assert "\n" not in str(caught.value)


def test_a_module_beside_the_spec_is_found_from_a_prompt(
    beside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the path begins with "", which is where one stands, and not where the spec is."""
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert read_spec(beside / "own.toml").cells


def test_a_setting_that_came_later_moves_no_key_where_it_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The key is that of a run which was stored before `horizon` and `intervals` came, with the
    results version of that day."""
    monkeypatch.setattr("fmdp.experiments.spec.RESULTS_VERSION", 2)
    text = """
    steps = 10000
    seeds = [0]
    problems = ["circle:4"]

    [[learners]]
    name = "psrl"
    set = { c = 0.75, episodes = "arithmetic" }
    planner = { name = "exact", tie_seed = 0 }
    """
    (planned,) = parse_spec(text, "old").runs()
    assert planned.key.startswith("b5b574ae1c")
