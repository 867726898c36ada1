"""`fmdp learn`: the keys of the contract, the options, the refusals, the way it ends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fmdp
from fmdp.cli import learn as learn_module
from fmdp.progress import line_of_run

from .conftest import Ran

Runner = Callable[..., Ran]

KEYS = {
    "regret", "gap_regret", "gain", "gain_kind", "steps", "episodes", "planner_calls",
    "unconverged_plans", "curve", "seconds",
}  # fmt: skip


@pytest.mark.parametrize("learner", ["psrl", "dorl", "fsrl", "frmax", "oracle", "random"])
def test_the_keys_of_the_contract(run: Runner, learner: str) -> None:
    ran = run("learn", "jao:2", "--learner", learner, "--steps", "200", "--seed", "3", "--json")
    assert ran.status == 0
    result = ran.json
    assert set(result) >= KEYS
    assert (result["steps"], result["gain_kind"]) == (200, "exact")
    assert result["gain"] == pytest.approx(1.2, abs=1e-6)
    assert result["curve"][-1] == [200, pytest.approx(result["regret"])]
    assert result["regret"] == pytest.approx(200 * 1.2 - result["total_reward"], abs=1e-3)
    assert result["gap_regret"] >= 0.0
    assert ran.err == ""


def test_it_is_the_run_of_the_library(run: Runner) -> None:
    ran = run(
        "learn", "circle:3", "--learner", "psrl", "--set", "c=0.5", "--set", "episodes=doubling",
        "--planner", "exact", "--ties", "first", "--steps", "500", "--seed", "7", "--json",
    )  # fmt: skip
    model = fmdp.problem("circle:3")
    learner = fmdp.PSRL(
        model.structure, c=0.5, episodes="doubling", planner=fmdp.Exact(ties="first")
    )
    same = fmdp.simulate(model, learner, 500, seed=7)
    assert ran.json["regret"] == same.regret
    assert ran.json["planner_calls"] == same.planner_calls
    assert ran.json["parameters"]["c"] == 0.5


def test_the_budget_of_fsrl_may_be_an_option_or_a_parameter(run: Runner) -> None:
    base = ("learn", "jao:2", "--learner", "fsrl", "--steps", "100", "--json")
    by_option = run(*base, "--planner", "span", "--span-budget", "1,2").json
    by_parameter = run(*base, "--set", "budget=1+2").json
    assert by_option["planner"] == "span"
    assert by_option["parameters"] == by_parameter["parameters"]
    assert by_option["regret"] == by_parameter["regret"]
    twice = run(*base, "--span-budget", "3", "--set", "budget=4")
    assert "must be given once" in twice.refusal
    assert run(*base, "--tolerance", "0.01").json["parameters"]["budget"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--learner", "drol"), 'did you mean "dorl"'),
        (("--learner", "dorl", "--set", "cc=1"), 'did you mean "c"'),
        (("--learner", "dorl", "--set", "c=much"), "must be a number >= 0; got 'much'"),
        (("--learner", "dorl", "--set", "c"), "must be given as key=value"),
        (("--learner", "dorl", "--set", "c=1", "--set", "c=2"), "must be given once"),
        (("--learner", "dorl", "--set", "episodes=fixed"), "'length' parameter"),
        (("--learner", "dorl", "--steps", "1e3"), "must be an integer"),
        (("--learner", "dorl", "--seed", "-1"), "must be an integer in [0,"),
        (("--learner", "dorl", "--planner", "exakt"), 'did you mean "exact"'),
        (("--learner", "dorl", "--basis", "pairs"), "planner exact has no parameter 'basis'"),
        (("--learner", "fsrl", "--planner", "exact"), "must be span"),
        (("--learner", "random", "--planner", "exact"), "does not plan"),
        (("--learner", "dorl", "--out", "nowhere/learner.npz"), "there is no directory"),
    ],
)
def test_refusals_are_one_line(run: Runner, arguments: tuple[str, ...], said: str) -> None:
    assert said in run("learn", "jao:2", *arguments).refusal


def test_the_learner_can_be_saved(run: Runner, tmp_path: Path) -> None:
    target = tmp_path / "learner.npz"
    ran = run("learn", "jao:2", "--learner", "dorl", "--steps", "50", "--out", str(target))
    assert ran.status == 0
    assert fmdp.load_learner(target).steps == 50


def test_people_see_what_it_cost(run: Runner) -> None:
    ran = run("learn", "jao:2", "--learner", "dorl", "--steps", "150")
    assert ran.status == 0
    for words in ("gap regret", "the optimal gain", "steps a second", "100: ", "150: "):
        assert words in ran.out


def test_an_interrupt_gives_the_run_so_far(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = fmdp.DORL.absorb

    def absorb(self: Any, taken: int, limit_reached: bool) -> None:
        observed(self, taken, limit_reached)
        if self.steps > 100:
            raise KeyboardInterrupt

    monkeypatch.setattr(learn_module, "rehearse", lambda *_: None)
    monkeypatch.setattr(fmdp.DORL, "absorb", absorb)
    ran = run("learn", "jao:2", "--learner", "dorl", "--steps", "1000", "--json")
    assert ran.status == 130
    assert 100 < ran.json["steps"] < 1000
    assert ran.json["curve"][-1][0] == ran.json["steps"]


def test_lines_of_progress() -> None:
    news = {"step": 250, "steps": 1000, "episode": 7, "regret": 3.25, "seconds": 5.0}
    line = line_of_run(news, 5.0)
    assert line == "step 250 of 1,000, episode 7, regret 3.25, 15 s left"
