"""An option that would have no effect beside the others is refused in one line, with status 2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fmdp.errors import InvalidParameter
from fmdp.experiments.spec import parse_spec

from .conftest import Ran

Runner = Callable[..., Ran]
BOTH_CONSTANTS = "--set transition_constant=1 --set reward_constant=1"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (
            "plan circle:3 --discount .9",
            "of planner exact is used with criterion=discounted or finite alone; got discount=0.9",
        ),
        (
            "plan circle:3 --planner exact --criterion average --discount .9",
            "discounted or finite alone",
        ),
        ("plan circle:3 --ties first --tie-seed 3", "is used with ties=random alone"),
        ("plan circle:3 --planner alp --ties last --tie-seed 3", "tie_seed=3 with ties=last"),
        ("plan circle:3 --span-budget 3 --ties first --tie-seed 1", "ties=random alone"),
        ("plan circle:3 --span-budget 1,2,3 --span-split uniform", "divides one budget"),
        ("plan circle:3 --planner exact --basis pairs", "--basis is for planner alp"),
        ("plan circle:3 --planner alp --span-budget 3", "--span-budget is for planner span"),
        ("plan circle:3,dynamics=guestrin,seed=3", "is used with dynamics=xu alone"),
        ("measure star:3,dynamics=ippc,alpha1=.3", "is used with dynamics=xu alone"),
        ("show circle:3 --rows 5", "--rows is for a printed table"),
        ("show circle:3 --table machine_0 --rows 5 --json", "--rows is for a printed table"),
        ("learn jao:2 --learner dorl --discount .9", "criterion=discounted or finite alone"),
        ("learn jao:2 --learner dorl --ties first --tie-seed 3", "ties=random alone"),
        ("learn jao:2 --learner dorl --set length=5", "episodes=growing has no use for one"),
        ("learn jao:2 --learner frmax --set length=5", "episodes=known has no use for one"),
        (
            f"learn jao:2 --learner dorl --set c=1 {BOTH_CONSTANTS}",
            "stands in place of a constant that is not given",
        ),
        ("learn jao:2 --learner fsrl --set budget=1 --set growth=2", "budget=none alone"),
        ("learn jao:2 --learner fsrl --span-budget 1 --set growth=2", "budget=none alone"),
        ("learn jao:2 --learner random --planner exact", "does not plan"),
        ("learn jao:2 --learner random --ties first", "does not plan"),
        ("learn jao:2 --learner psrl --set targets=vertex", "has no parameter 'targets'"),
        ("learn jao:2 --learner oracle --set c=1", "has no parameter 'c'"),
        ("sweep spec.toml --out out --workers 2 --dask tcp://x:1", "exclude each other"),
    ],
)
def test_an_option_without_effect_is_refused(run: Runner, command: str, line: str) -> None:
    assert line in run(*command.split()).refusal


def spec(learner: str) -> str:
    return f'steps = 10\nseeds = 1\nproblems = ["jao:2"]\n[[learners]]\nname = "dorl"\n{learner}\n'


@pytest.mark.parametrize(
    ("learner", "line"),
    [
        ('planner = { name = "exact", discount = 0.9 }', "criterion=discounted or finite alone"),
        ('planner = { name = "exact", ties = ["random", "first"], tie_seed = 3 }', "ties=first"),
        ('set = { episodes = ["arithmetic", "fixed"], length = 5 }', "has no use for one"),
        (
            "set = { c = [0.03, 1], transition_constant = 1, reward_constant = 1 }",
            "stands in place of a constant",
        ),
    ],
)
def test_so_is_a_cell_of_a_grid(learner: str, line: str) -> None:
    with pytest.raises(InvalidParameter) as refusal:
        parse_spec(spec(learner))
    assert "learners[0]: " in str(refusal.value)
    assert line in str(refusal.value)


def test_a_grid_in_which_every_value_counts_is_taken() -> None:
    cells = parse_spec(spec('planner = { name = "exact", tie_seed = [0, 1, 2] }')).cells
    assert len(cells) == 3
    cells = parse_spec(spec('planner = { name = "exact", ties = ["random", "first"] }')).cells
    assert len(cells) == 2


@pytest.mark.slow
def test_a_fall_back_is_said(run: Runner) -> None:
    small = run("plan", "circle:10", "--memory-limit", "20k", "--json").json
    assert small["planner"] == "alp"
    assert small["planner_reason"].startswith("exact needs ")
    assert small["planner_reason"].endswith("; the memory limit is 20 kB")
    shown = run("plan", "circle:10", "--memory-limit", "20k").out
    assert f" alp ({small['planner_reason']})\n" in shown
    large = run("plan", "circle:23", "--json").json
    assert (large["planner"], large["planner_reason"]) == (
        "alp",
        "8,388,608 states; exact is the default up to 4,194,304",
    )
    for asked in (("--planner", "alp"), ("--basis", "pairs"), ("--max-iterations", "5")):
        assert run("plan", "circle:4", *asked, "--json").json["planner_reason"] is None


def test_a_learner_says_so_too(run: Runner) -> None:
    base: tuple[Any, ...] = ("learn", "circle:23", "--learner", "psrl", "--steps", "2")
    said = "8,388,608 states; exact is the default up to 4,194,304"
    assert run(*base, "--json").json["planner_reason"] == said
    assert f"alp ({said})" in run(*base).out
    assert run(*base, "--ties", "first", "--json").json["planner_reason"] == said
    assert run(*base, "--planner", "alp", "--json").json["planner_reason"] is None
    small = run("learn", "jao:2", "--learner", "random", "--steps", "2", "--json").json
    assert (small["planner"], small["planner_reason"]) == (None, None)
