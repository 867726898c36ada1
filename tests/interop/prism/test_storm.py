"""Storm as a referee: gains of exported models, of files, and a control that must be seen.

    |Storm's gain - ours| <= 2e-6 (1 + largest reward - least reward)

Storm's answer is within half of that; ours is certified to 1e-9 here. Storm reads the file that
fmdp wrote and shares nothing else with it.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import InvalidModel
from fmdp.interop import prism, storm
from fmdp.model import FactoredMDP
from fmdp.testing import oracles, strategies

from .test_exploring import CLIENTS, QUEUE
from .test_reading import HEATER, HERMAN, MACHINES

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
pytest.importorskip("stormpy", reason="the extra `storm` is not installed: no referee for PRISM")


def agree(mine: float, theirs: float, model: FactoredMDP | None = None) -> bool:
    """Whether two gains are one; rewards range over 4 where no model is given."""
    tables = () if model is None else model.rewards
    width = sum(float(table.max() - table.min()) for table in tables) if tables else 4.0
    return abs(mine - theirs) <= 2e-6 * (1.0 + width)


def unichain() -> st.SearchStrategy[FactoredMDP]:
    """Every probability is above 0, so that a gain does not depend on the state."""
    plain = strategies.structures(max_states=24)
    return strategies.models(st.one_of(plain, strategies.constrained(plain)), rows=["positive"])


@given(unichain())
@settings(max_examples=30)
def test_storm_finds_the_gain_between_our_bounds(model: FactoredMDP) -> None:
    plan = fmdp.plan(model, fmdp.Exact(tolerance=1e-9))
    theirs = storm.gain(model)
    assert agree(plan.gain_bounds[0], theirs, model)
    assert agree(plan.gain_bounds[1], theirs, model)


@given(strategies.models(strategies.constrained(strategies.structures(max_states=12))))
@settings(max_examples=20)
def test_storm_and_brute_force_agree_on_any_chain(model: FactoredMDP) -> None:
    """Several recurrent classes, periods, rows of zeros: the gain is that of the initial state."""
    best = oracles.optimal(oracles.dense(model)).gain
    s = model.structure
    index = 0
    for value, size in zip(model.initial_state, s.state_sizes, strict=True):
        index = index * size + value
    assert agree(float(best[index]), storm.gain(model), model)


@pytest.mark.parametrize(
    "problem",
    ["circle:4", "circle:6,dynamics=guestrin,reward=mean", "three-leg:4", "maintenance:2,levels=3"],
)
def test_gains_of_problems(problem: str) -> None:
    model = fmdp.problem(problem)
    assert agree(fmdp.plan(model).gain, storm.gain(model), model)


def test_the_known_gain_of_seven_machines() -> None:
    assert storm.gain(fmdp.problem("circle:7,dynamics=guestrin,reward=mean")) == pytest.approx(
        0.844975, abs=2e-6
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("0.525", "0.475"), ("0.52", "0.48")),  # a probability
        ((": 0.25;", ": 0.25;"), (": 0.26;", ": 0.26;")),  # a reward
        (("[restart_0] true", ""), ("[restart_0] machine_0=1", "")),  # a guard
    ],
)
def test_a_perturbed_export_is_seen(old: tuple[str, str], new: tuple[str, str]) -> None:
    """The control: were the comparison blind, a wrong file would pass it."""
    model = fmdp.problem("circle:4,dynamics=guestrin,reward=mean")
    text = prism.dumps(model)
    moved = text
    for before, after in zip(old, new, strict=True):
        assert before in moved
        moved = moved.replace(before, after, 1) if before else moved
    gain = fmdp.plan(model).gain
    assert agree(gain, storm.gain(text))
    assert not agree(gain, storm.gain(moved))


@pytest.mark.parametrize("rewards", ["comfort", "heat"])
def test_files_by_hand_mean_the_same_to_storm(rewards: str) -> None:
    text = HEATER.replace("const double cost;", "const double cost = 0.3;")
    mine = fmdp.plan(prism.loads(text, rewards=rewards)).gain
    assert agree(mine, storm.gain(text, rewards, lowest=-0.3))


def test_a_chain_means_the_same_to_storm() -> None:
    assert storm.gain(HERMAN, "tokens") == pytest.approx(1.0, abs=2e-6)
    assert storm.gain(prism.loads(HERMAN)) == pytest.approx(1.0, abs=2e-6)


def test_the_example_means_the_same_to_storm() -> None:
    text = MACHINES.read_text()
    assert storm.gain(text, "working") == pytest.approx(1990 / 1099, abs=2e-6)
    again = prism.dumps(fmdp.problem(MACHINES))  # in the form that fmdp writes
    assert storm.gain(again) == pytest.approx(1990 / 1099, abs=2e-6)


PHILOSOPHERS = """
mdp
// Formulas, renaming, booleans, functions, conditions: all that the reader takes.
const int K = 3;
const double p = 0.25 * (1 + 1);
formula hungry = a = K;
formula busy = b > 0 & b < K;

module one
  a : [0..K] init 1;
  [think] hungry -> (a'=0);
  [think] !hungry & !busy -> p : (a'=a+1) + (1-p)/2 : (a'=max(a-1, 0)) + (1-p)/2 : true;
  [think] !hungry & busy -> (a'=mod(a+2, K+1));
  [eat] a>0 -> pow(p, a) : (a'=0) + 1-pow(p, a) : (a'=floor(a/2));
  [eat] a=0 -> (a'=(b=0 ? 1 : 0));
endmodule

module two = one [a=b, b=a] endmodule

module light
  on : bool init false;
  n : [1..2];
  [think] on -> 0.3 : (on'=!on) & (n'=3-n) + 0.7 : (n'=1);
  [think] !on -> (on'=(a=b));
  [rest] n=1 | on -> (n'=2);
endmodule

rewards "fed"
  [eat] on = (a>b) : a + 2*b - 1;
  on & a=b : 0.5;
  [rest] true : -0.25;
endrewards
"""


def test_all_that_is_read_means_the_same_to_storm() -> None:
    model = prism.loads(PHILOSOPHERS)
    assert model.structure.state_names == ("a", "b", "on/n")  # these two hang together
    flat = oracles.optimal(oracles.dense(model))
    start = (1 * 4 + 1) * 4 + 0
    assert agree(float(flat.gain[start]), storm.gain(PHILOSOPHERS, "fed", lowest=-1.25))
    again = prism.dumps(model)
    assert agree(float(flat.gain[start]), storm.gain(again))


DRAWN = """dtmc
module a  x : [0..1];  [] x=0 -> (x'=1);  [go] true -> (x'=0);  endmodule
module b  y : bool;  [] true -> (y'=!y);  endmodule
label "up" = x=1;
rewards "go"  [go] true : 6;  [] x=0 : 1;  y : 2;  endrewards
"""


@pytest.mark.parametrize(
    ("text", "of"),
    [
        (DRAWN, "go"),
        (DRAWN, "up"),
        (CLIENTS, "alone"),
        (CLIENTS, "taken"),
        (QUEUE.replace("int c", "int c = 3"), "served"),
        (QUEUE.replace("int c", "int c = 3"), "full"),
    ],
)
@pytest.mark.parametrize("minimise", [False, True])
def test_files_that_are_explored_mean_the_same_to_storm(text: str, of: str, minimise: bool) -> None:
    """Several commands at once, modules that move alone, deadlocks, rates; in exact arithmetic."""
    model = prism.loads(text, minimise=of) if minimise else prism.loads(text, rewards=of)
    assert model.structure.m == 1
    gain = oracles.optimal(oracles.dense(model)).gain[model.initial_state[0]]
    theirs = storm.average(text, of, minimise=minimise, exact=True)
    assert float(-gain if minimise else gain) == pytest.approx(theirs, abs=1e-9)


def test_what_storm_does_not_read_is_told_in_one_line() -> None:
    with pytest.raises(InvalidModel, match=r"^Storm: "):
        storm.gain("mdp module")
