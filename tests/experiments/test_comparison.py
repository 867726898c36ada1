"""Comparisons: who takes part, what does not fit, and that each is the sweep that a spec makes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import fmdp
from fmdp.errors import InvalidParameter, UnknownName
from fmdp.experiments.comparison import comparison_of, everybody, split_learners
from fmdp.experiments.compatibility import incompatibility
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.paper import figure_spec
from fmdp.experiments.spec import Spec, parse_spec
from fmdp.experiments.store import LeftOut
from fmdp.experiments.suites import SUITES
from fmdp.experiments.sweep import run_sweep
from fmdp.learning.registry import LEARNERS


def keys(spec: Spec) -> list[str]:
    return [run.key for run in spec.runs()]


@pytest.fixture
def needy() -> Iterator[type[fmdp.Learner]]:
    """A registered learner that cannot run with its defaults, because it has none."""

    @fmdp.register
    class Needy(fmdp.Random):
        role = "learner"
        patience: int = fmdp.setting(fmdp.REQUIRED, "how long", low=1)

    yield Needy
    LEARNERS.forget("needy")


# ---- who takes part -----------------------------------------------------------------------------


def test_everybody_is_every_learner_and_the_ends() -> None:
    found = everybody()
    labels = [one.label for one in found]
    assert labels[-2:] == ["oracle", "random"]
    assert set(labels) == {kind.name for kind in LEARNERS.kinds() if kind.role != "baseline"}
    assert all(one.learner == LEARNERS.find(one.label)() for one in found)


def test_a_learner_that_needs_a_setting_is_told_of(needy: type[fmdp.Learner]) -> None:
    spec = comparison_of("circle:2", seeds=1, steps=5)
    (left_out,) = spec.left_out
    assert (left_out.problem, left_out.label) == ("circle:2", "needy")
    assert "'patience' parameter of learner needy" in left_out.reason
    assert "needy" not in [cell.label for cell in spec.cells]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (["psrl"], ["psrl"]),
        (["psrl,dorl,c=0.1, rho=0.2,scal"], ["psrl", "dorl,c=0.1,rho=0.2", "scal"]),
        (["psrl,c=1", "c=2"], ["psrl,c=1", "c=2"]),
        (["own:Mine,k=3,all"], ["own:Mine,k=3", "all"]),
    ],
)  # fmt: skip
def test_a_comma_begins_the_next_learner(texts: list[str], found: list[str]) -> None:
    assert split_learners(texts) == found


def test_all_in_a_list_is_everybody() -> None:
    spec = comparison_of("circle:2", ["all", "psrl,c=0.1"], seeds=1, steps=5)
    assert [cell.label for cell in spec.cells] == [
        *(one.label for one in everybody()),
        "psrl c=0.1",
    ]


# ---- it is a sweep ------------------------------------------------------------------------------


def test_the_keys_are_those_of_an_equal_sweep() -> None:
    spec = comparison_of(
        ["circle:2", "circle:14"], ["psrl,c=0.1", "ucrl2", "random"], seeds=2, steps=30
    )
    by_hand = parse_spec("""
        steps = 30
        seeds = 2
        problems = ["circle:2", "circle:14"]
        learners = [
            { name = "psrl", set = { c = 0.1 } },
            { name = "ucrl2", problems = ["circle:2"] },
            { name = "random" },
        ]
    """)
    assert keys(spec) == keys(by_hand)
    # What the store keeps of it is a spec too.
    assert keys(parse_spec(spec.text)) == keys(spec)


def test_the_paper_has_the_runs_of_reproduce() -> None:
    spec, figure = comparison_of(suite="paper", seeds=2, steps=20), figure_spec(runs=2, steps=20)
    assert set(keys(figure)) < set(keys(spec))
    assert keys(parse_spec(spec.text)) == keys(spec)
    beside = {cell.label for cell in spec.cells} - {cell.label for cell in figure.cells}
    theirs = {type(cell.learner).name for cell in figure.cells}
    assert beside == {one.label for one in everybody()} - theirs
    only = comparison_of(None, ["psrl"], suite="paper", seeds=2, steps=20)
    assert [cell.label for cell in only.cells] == ["psrl"] * 4


def test_in_a_store_of_a_sweep_only_what_is_missing_is_run(tmp_path: Path) -> None:
    sweep = 'steps = 20\nseeds = 2\nproblems = ["circle:2"]\nlearners = ["psrl", "random"]'
    run_sweep(parse_spec(sweep), tmp_path, workers=InThisProcess())
    results = fmdp.compare(
        "circle:2", ["psrl", "dorl"], seeds=3, steps=20, out=tmp_path, workers=0, progress=None
    )
    with results:
        assert results.failures == results.left_out == {}
        table = results.standings_table("comparison")
        assert sorted(table["label"]) == ["dorl", "psrl"]
        assert table["runs"].tolist() == [3, 3]
        assert len(results.runs_table()["key"]) == 2 * 2 + 4


def test_in_python_what_was_named_and_does_not_fit_is_warned_of(tmp_path: Path) -> None:
    asked = ["random", "ucrl2"]
    problems = ["circle:2", "circle:14"]
    with pytest.warns(UserWarning, match="1 pairs .* such as ucrl2 on circle:14: learner ucrl2"):
        results = fmdp.compare(
            problems, asked, seeds=1, steps=5, out=tmp_path, workers=0, progress=None
        )
    with results:
        assert list(results.left_out) == ["circle:14, ucrl2"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fmdp.compare(
            "circle:2", asked, seeds=1, steps=5, out=tmp_path, workers=0, progress=None
        ).close()


def test_the_hash_knows_what_is_left_out_and_not_why() -> None:
    spec = comparison_of(["circle:2", "circle:14"], ["random", "ucrl2"], seeds=1, steps=5)
    (pair,) = spec.left_out
    other = replace(spec, left_out=(replace(pair, reason="no memory today"),))
    assert other.hash == spec.hash
    assert other.resolved != spec.resolved
    assert replace(spec, left_out=()).hash != spec.hash
    assert replace(spec, left_out=(LeftOut("circle:2", "odd", ""),)).hash != spec.hash


# ---- what fits ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("learner", "problem", "told"),
    [
        ("psrl", "circle:14", None),  # it turns to linear programs
        ("psrl", "circle:40", None),
        ("oracle", "circle:40", None),
        ("random", "circle:40", None),
        ("fsrl", "circle:13", None),
        ("fsrl", "circle:20", "a sweep over 1,048,576 states and 21 joint actions"),
        ("fsrl,budget=3", "circle:40", "1,099,511,627,776 states; exact is the default up to"),
        ("ucrl-factored", "circle:18", "need the exact planner"),
        ("tsde", "circle:9", None),
        ("tsde", "circle:11", "is flat: 2048 joint states"),
    ],
)
def test_what_fits(learner: str, problem: str, told: str | None) -> None:
    found = incompatibility(LEARNERS.read(learner), fmdp.problem(problem))
    assert (told is None and found is None) or (told or "?") in (found or "")


def test_a_planner_that_was_chosen_is_refused_by_its_memory_alone() -> None:
    model = fmdp.problem("circle:14")
    chosen = fmdp.PSRL(planner=fmdp.Exact())
    assert incompatibility(chosen, model) is None
    assert incompatibility(fmdp.FSRL(planner=fmdp.SpanConstrained(budget=3.0)), model) is None
    small = fmdp.PSRL(planner=fmdp.Exact(memory_limit=1000))
    assert "the memory limit is 1000 bytes" in (incompatibility(small, model) or "")
    huge = incompatibility(chosen, fmdp.problem("circle:40"))
    assert huge is not None
    assert huge.startswith("learner psrl plans over all states: exact needs")


def test_no_pair_that_fits_fails_and_what_does_not_is_refused_by_its_run() -> None:
    """The prediction against the run itself, for everybody."""
    model = fmdp.problem("circle:14")
    for one in everybody():
        assert one.learner is not None
        if "flat" in (incompatibility(one.learner, model) or ""):
            with pytest.raises(fmdp.FmdpError):
                fmdp.simulate(model, one.learner, 1, reference=_none(model))
    small = fmdp.problem("circle:2")
    for one in everybody():
        assert one.learner is not None
        assert incompatibility(one.learner, small) is None
        fmdp.simulate(small, one.learner, 3)


def _none(model: fmdp.FactoredMDP) -> object:
    from fmdp.simulation.regret import Reference

    return Reference(1.0, "upper_bound", None, 0.0)


# ---- suites and refusals ------------------------------------------------------------------------


def test_the_wide_suite_is_wide_and_fits_flat_learners() -> None:
    problems = SUITES["wide"].problems
    models = [fmdp.problem(name) for name in problems]
    assert len({model.content_hash for model in models}) == len(models)
    families = {name.partition(":")[0].partition(",")[0] for name in problems}
    assert {"circle", "machines", "maintenance", "jao", "riverswim", "random"} <= families
    assert {"coupled-rivers", "lock", "coffee", "taxi", "epidemic"} <= families
    assert any(3 in model.structure.state_sizes for model in models)
    # Several draws of one network's random tables, for statements about draws at large.
    assert {"circle:4", "circle:4,seed=2", "circle:4,seed=3"} <= {*problems}
    # Plans of a flat learner go through all of these, thousands of times.
    cells = [model.structure.n_actions * model.structure.n_states**2 for model in models]
    assert max(cells) <= 2**18


@pytest.mark.parametrize(
    ("arguments", "error", "told"),
    [
        ({}, InvalidParameter, "got neither"),
        ({"problems": "circle:2", "suite": "paper"}, InvalidParameter, "got both"),
        ({"suite": "papers"}, UnknownName, 'did you mean "paper"'),
        ({"problems": []}, InvalidParameter, "a comparison needs at least one problem"),
        ({"problems": "circle:2", "learners": []}, InvalidParameter, "at least one learner"),
        ({"problems": "circle:2", "seeds": 0}, InvalidParameter, "seeds must be a whole number"),
        ({"problems": "circle:2", "steps": 0}, InvalidParameter, "steps must be a whole number"),
        ({"problems": "circle:2", "learners": 7}, InvalidParameter, "needs a learner"),
        (
            {"problems": "circle:14", "learners": {"mine": "ucrl2"}},
            InvalidParameter,
            "mine does not fit the problem: learner ucrl2 is flat",
        ),
    ],
)
def test_refusals(arguments: dict[str, object], error: type[Exception], told: str) -> None:
    with pytest.raises(error) as caught:
        comparison_of(**arguments)  # type: ignore[arg-type]
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
