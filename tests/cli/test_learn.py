"""`fmdp learn`: the keys of the contract, the options, the refusals, the way it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fmdp
from fmdp._base.progress import line_of_run
from fmdp.cli.learn import basis_text
from fmdp.learning.registry import LEARNERS

from .conftest import Ran

Runner = Callable[..., Ran]

KEYS = {
    "regret",
    "gap_regret",
    "gain",
    "gain_kind",
    "steps",
    "episodes",
    "planner_calls",
    "unconverged_plans",
    "curve",
    "seconds",
}


@pytest.mark.parametrize("kind", LEARNERS.own(), ids=lambda kind: kind.name)
def test_the_keys_of_the_contract(run: Runner, kind: type[fmdp.Learner]) -> None:
    learner = ",".join([kind.name, *(f"{name}={value}" for name, value in kind.example.items())])
    ran = run("learn", "jao:1", "--learner", learner, "--steps", "200", "--seed", "3", "--json")
    assert ran.status == 0
    result = ran.json
    assert set(result) >= KEYS
    assert (result["steps"], result["gain_kind"]) == (200, "exact")
    assert result["gain"] == pytest.approx(0.6, abs=1e-6)
    assert result["curve"][-1] == [200, pytest.approx(result["regret"])]
    assert result["regret"] == pytest.approx(200 * 0.6 - result["total_reward"], abs=1e-3)
    assert result["gap_regret"] >= 0.0
    assert ran.err == ""


def test_it_is_the_run_of_the_library(run: Runner) -> None:
    ran = run(
        "learn",
        "circle:3",
        "--learner",
        "psrl",
        "--set",
        "c=0.5",
        "--set",
        "episodes=doubling",
        "--planner",
        "exact",
        "--ties",
        "first",
        "--steps",
        "500",
        "--seed",
        "7",
        "--json",
    )
    model = fmdp.problem("circle:3")
    learner = fmdp.PSRL(c=0.5, episodes="doubling", planner=fmdp.Exact(ties="first"))
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
        (("--learner", "psrl", "--set", "horizon=9"), "is used with episodes=fixed alone"),
        (
            ("--learner", "psrl,episodes=fixed", "--set", "horizon=9", "--set", "length=8"),
            "must be its horizon, or not be given; got length=8 with horizon=9",
        ),
        (
            (
                *("--learner", "psrl,episodes=fixed,horizon=9"),
                *("--criterion", "finite", "--horizon", "8"),
            ),
            "got horizon=9 for the learner and horizon=8 for its planner",
        ),
        (("--learner", "dorl", "--steps", "1e3"), "must be an integer"),
        (("--learner", "dorl", "--seed", "-1"), "must be an integer >= 0"),
        (("--learner", "dorl", "--planner", "exakt"), 'did you mean "exact"'),
        (
            ("--learner", "dorl", "--planner", "exact", "--basis", "pairs"),
            "planner exact has no parameter 'basis'",
        ),
        (("--learner", "dorl", "--basis", "pairs", "--max-seconds", "0"), "'max_seconds'"),
        (("--learner", "psrl,c=.1", "--set", "c=.2"), "c=.1 with --learner, and --set c=.2"),
        (("--learner", "random", "--ties", "first"), "does not plan; got planner --ties"),
        (("--learner", "policy"), "must be given: a policy, the path of a policy file"),
        (("--learner", "policy", "--set", "policy=none.npz"), "none.npz"),
        (("--learner", "policy", "--set", "policy=nowhere:rule"), "no module 'nowhere'"),
        (("--learner", "policy", "--set", "policy=math:pi"), "must be a function state -> action"),
        (("--learner", "nowhere:Mine"), "no module 'nowhere'"),
        (("--learner", "math:pi"), "must be a subclass of fmdp.learning.learner.Learner"),
        (("--learner", "math:Pi"), "module math has no 'Pi'"),
        (("--learner", "dorl", "--planner", "nowhere:Mine"), "no module 'nowhere'"),
        (("--learner", "fsrl", "--planner", "exact"), "must be span"),
        (("--learner", "random", "--planner", "exact"), "does not plan"),
        (("--learner", "dorl", "--out", "nowhere/learner.npz"), "there is no directory"),
    ],
)
def test_refusals_are_one_line(run: Runner, arguments: tuple[str, ...], said: str) -> None:
    assert said in run("learn", "jao:2", *arguments).refusal


def test_a_horizon_is_the_planners_or_the_learners(run: Runner) -> None:
    """The same plans and the same episodes, said in either place."""
    base = ("learn", "jao:2", "--steps", "60", "--json", "--learner", "psrl,episodes=fixed")
    own = run(*base, "--set", "horizon=6").json
    planners = run(*base, "--set", "length=6", "--criterion", "finite", "--horizon", "6").json
    assert own["parameters"]["horizon"] == own["parameters"]["length"] == 6
    assert planners["parameters"]["horizon"] is None
    assert (own["regret"], own["episodes"]) == (planners["regret"], planners["episodes"])
    assert own["episodes"] == 10


MINE = """
import fmdp

class Mine(fmdp.PlanningLearner):
    epsilon: float = fmdp.setting(0.1, "nothing", low=0.0)

    def tables(self, agent):
        if self.epsilon == 7:
            return {}[self.epsilon]
        return fmdp.estimated_model(agent.statistics)

class Answerless(fmdp.Learner):
    def decide(self, agent):
        return 7

def rule(state):
    return state[0]

def nonsense(state):
    return 99
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where one stands, with a module of one's own."""
    (tmp_path / "own_learners.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("own_learners", None)


def test_a_learner_of_ones_own_where_one_stands(run: Runner, mine: Path) -> None:
    base = ("learn", "circle:3", "--steps", "60", "--json", "--learner")
    ran = run(*base, "own_learners:Mine", "--set", "epsilon=.2", "--planner", "exact,ties=first")
    assert ran.status == 0, ran.err
    assert ran.json["learner"] == "own_learners:Mine"
    assert ran.json["parameters"]["epsilon"] == 0.2
    assert ran.json["planner_settings"]["ties"] == "first"
    assert ran.json["planner_calls"] > 1
    shorter = run(*base, "own_learners:Mine,epsilon=.2", "--planner", "exact,ties=first").json
    assert shorter["regret"] == ran.json["regret"]
    refused = run(*base, "own_learners:Mine", "--set", "epsilon=-1").refusal
    assert "the 'epsilon' parameter of learner mine must be a number >= 0; got '-1'" in refused
    assert 'did you mean "epsilon"' in run(*base, "own_learners:Mine,epsilom=1").refusal


def test_a_policy_or_a_rule_is_a_baseline(run: Runner, mine: Path) -> None:
    model = fmdp.problem("circle:3")
    fmdp.plan(model).policy.save(mine / "plan.npz")
    base = ("learn", "circle:3", "--steps", "60", "--json", "--learner", "policy", "--set")
    ran = run(*base, "policy=plan.npz")
    assert ran.status == 0, ran.err
    assert ran.json["regret"] == fmdp.simulate(model, mine / "plan.npz", 60, seed=0).regret
    assert ran.json["planner"] is None
    by_rule = run(*base, "policy=own_learners:rule")
    assert by_rule.json["regret"] == fmdp.simulate(model, lambda state: state[0], 60, seed=0).regret
    assert by_rule.json["parameters"] == {"policy": "own_learners:rule"}
    said = run(*base, "policy=own_learners:nonsense").refusal
    assert said.startswith("Rule(nonsense) in state machine_0=working, machine_1=working, ")
    assert "99" in said
    assert "does not plan" in run(*base, "policy=plan.npz", "--planner", "exact").refusal


def test_a_bug_of_ones_own_keeps_its_traceback(run: Runner, mine: Path) -> None:
    with pytest.raises(KeyError) as caught:
        run("learn", "circle:3", "--learner", "own_learners:Mine,epsilon=7", "--steps", "5")
    assert caught.traceback[-1].path.name == "own_learners.py"
    # What it answers is checked, and said in one line.
    said = run("learn", "circle:3", "--learner", "own_learners:Answerless", "--steps", "5").refusal
    assert said == "learner answerless: decide must give a Decision; got 7"
    (mine / "own_broken.py").write_text("import fmdp\nfmdp.PSRLL\n")
    said = run("learn", "circle:3", "--learner", "own_broken:Mine").refusal
    assert "cannot be imported: AttributeError: module 'fmdp' has no attribute 'PSRLL'" in said
    assert said.endswith("(own_broken.py, line 2)")


def test_settings_of_the_planner_are_told_where_they_were_set(run: Runner) -> None:
    ran = run(
        "learn",
        "jao:2",
        "--learner",
        "psrl",
        "--planner",
        "alp,basis=pairs",
        "--discount",
        "0.9",
        "--steps",
        "5",
    )
    (line,) = [line for line in ran.out.splitlines() if line.startswith("planner")]
    assert line.split(maxsplit=1)[1] == "alp (basis=pairs, discount=0.9)"
    (line,) = [
        line
        for line in run("learn", "jao:2", "--learner", "psrl", "--steps", "5").out.splitlines()
        if line.startswith("planner")
    ]
    assert line.split() == ["planner", "exact"]
    # An option that one planner alone takes asks for it.
    ran = run("learn", "jao:2", "--learner", "psrl", "--basis", "pairs", "--steps", "5", "--json")
    assert ran.json["planner"] == "alp"


def test_the_learner_can_be_saved(run: Runner, tmp_path: Path) -> None:
    target = tmp_path / "learner.npz"
    ran = run("learn", "jao:2", "--learner", "dorl", "--steps", "50", "--out", str(target))
    assert ran.status == 0
    assert fmdp.load_agent(target).steps == 50


def test_people_see_what_it_cost(run: Runner) -> None:
    ran = run("learn", "jao:2", "--learner", "dorl", "--steps", "150")
    assert ran.status == 0
    for words in ("gap regret", "the optimal gain", "steps per second", "100: ", "150: "):
        assert words in ran.out


def test_a_growing_basis_is_shown(run: Runner) -> None:
    words = ("learn", "circle:6,dynamics=guestrin,alike=machines", "--planner", "alp")
    words += ("--learner", "psrl", "--steps", "60")
    basis = run(*words, "--json").json["basis"]
    assert basis["bases_tried"] > 0
    assert (basis["changes"] > 0) == (basis["last_change"] is not None)
    assert basis["changes"] > 0 or basis["scopes"] == 0
    line = next(line for line in run(*words).out.splitlines() if line.startswith("basis"))
    assert f"{basis['bases_tried']} larger ones tried" in line
    assert run(*words, "--basis", "singles", "--json").json["basis"] is None


def test_a_larger_basis_that_was_given_up_is_not_called_kept() -> None:
    basis = {"scopes": 0, "largest_scope": 1, "bases_tried": 3, "changes": 2, "last_change": 48}
    assert basis_text(basis) == "singles; 3 larger ones tried, changed 2 times, last at step 48"
    grown = {**basis, "scopes": 6, "largest_scope": 2, "changes": 1}
    shown = "6 scopes of up to 2 variables; 3 larger ones tried, changed once at step 48"
    assert basis_text(grown) == shown
    assert basis_text({**basis, "changes": 0}) == "singles; 3 larger ones tried"


def test_an_interrupt_gives_the_run_so_far(run: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    decide = fmdp.DORL.decide

    def interrupted(self: Any, agent: Any) -> Any:
        if agent.steps > 100:
            raise KeyboardInterrupt
        return decide(self, agent)

    monkeypatch.setattr(fmdp.DORL, "decide", interrupted)
    ran = run("learn", "jao:2", "--learner", "dorl", "--steps", "1000", "--json")
    assert ran.status == 130
    assert 100 < ran.json["steps"] < 1000
    assert ran.json["curve"][-1][0] == ran.json["steps"]


def test_lines_of_progress() -> None:
    news = {"step": 250, "steps": 1000, "episode": 7, "regret": 3.25, "seconds": 5.0}
    line = line_of_run(news, 5.0)
    assert line == "regret 3.25, step 250 of 1,000, episode 7, 15 s left"


def test_without_regret(run: Callable[..., Ran]) -> None:
    words = ["learn", "circle:3", "--learner", "psrl", "--steps", "200"]
    full, plain = run(*words, "--json").json, run(*words, "--no-regret", "--json").json
    for key in ("regret", "gap_regret", "gain", "gain_kind", "curve", "gap_curve"):
        assert plain[key] is None
    assert plain["seconds_reference"] is None
    assert plain["no_regret_reason"] == "not asked for"
    assert full["no_regret_reason"] is None
    assert plain["total_reward"] == full["total_reward"]
    assert "not computed: not asked for" in run(*words, "--no-regret").out
