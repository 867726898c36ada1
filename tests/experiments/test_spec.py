"""Specs: resolved and checked before anything runs; the hash knows content, not formatting."""

from __future__ import annotations

from pathlib import Path

import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.experiments.spec import Spec, parse_spec, read_spec

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
        f"dorl c={c}{rho} ({planner})"
        for c in ("0.1", "0.2")
        for rho in ("", " rho=0.5")
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


def test_a_missing_spec_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FmdpError, match=r"none\.toml"):
        read_spec(tmp_path / "none.toml")


def test_the_docs_show_the_example_as_it_is() -> None:
    docs = (EXAMPLES.parent / "docs" / "experiments.md").read_text()
    assert (EXAMPLES / "sweep.toml").read_text() in docs
