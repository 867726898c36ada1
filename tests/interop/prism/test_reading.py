"""PRISM files as people write them: what is read, with numbers by hand, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError, InvalidModel, InvalidParameter
from fmdp.interop import prism
from fmdp.model import Forbidden

MACHINES = Path(__file__).parents[3] / "examples" / "machines.prism"

HEATER = """
mdp
const int N = 2;
const double lose = 1/4;
const double cost;
formula cold = (t < N) ? 1 : 0;

module room
  t : [0..N] init N;
  on : bool init true;
  [heat]  true -> (t'=min(t+1, N)) & (on'=true);
  [rest]  t>0 -> lose : (t'=t-1) & (on'=false) + 1-lose : (on'=false);
  [rest]  t=0 -> (on'=false);
endmodule

rewards "comfort"
  cold=0 : 1;
  [heat] !on : -cost;
endrewards

rewards "heat"
  [heat] true : 1;
endrewards
"""


def test_the_example_has_the_gain_of_its_comment() -> None:
    model = fmdp.problem(MACHINES)
    s = model.structure
    assert s.state_names == ("m1", "m2")
    assert s.action_values == (("repair1", "repair2", "wait"),)
    assert s.transition_scopes == ((0, 2), (1, 2))
    assert s.reward_scopes == ((0,), (1,))  # m1 + m2: a factor each
    assert model.initial_state == (1, 1)
    assert s.constraints == (
        Forbidden((0, 2), np.array([False, False, False, True, False, False]), "module machine1"),
        Forbidden((1, 2), np.array([False, False, False, False, True, False]), "module machine2"),
    )
    assert fmdp.plan(model).gain == pytest.approx(1990 / 1099, abs=1e-9)
    # By hand: m1 works and m2 is repaired.
    assert model.transition_row(0, (1, 0), "action=repair2").tolist() == [0.1, 0.9]
    assert model.transition_row(1, (1, 0), "action=repair2").tolist() == [0.0, 1.0]


def test_the_example_goes_there_and_back() -> None:
    model = fmdp.problem(MACHINES)
    assert prism.loads(prism.dumps(model)) == model


def test_variables_of_one_module_that_move_apart_are_variables_of_their_own() -> None:
    model = prism.loads(HEATER, {"cost": 0.5}, "comfort")
    s = model.structure
    assert s.state_names == ("t", "on")
    assert s.state_values == (("0", "1", "2"), ("false", "true"))
    assert s.transition_scopes == ((0, 2), (2,))  # whether it is on follows from the action alone
    assert model.initial_state == (2, 1)
    rest = s.check_action(["rest"])
    assert model.transition_row(0, (2, 1), rest).tolist() == [0.0, 0.25, 0.75]
    assert model.transition_row(0, (0, 1), rest).tolist() == [1.0, 0.0, 0.0]
    assert model.transition_row(1, (2, 1), rest).tolist() == [1.0, 0.0]
    assert model.expected_reward((2, 0), ["heat"]) == 0.5
    assert model.expected_reward((2, 1), ["heat"]) == 1.0
    assert model.expected_reward((1, 0), ["rest"]) == 0.0
    assert prism.loads(HEATER, {"cost": 1}, "heat").structure.reward_names == ("heat",)


def test_variables_that_hang_together_become_one() -> None:
    model = prism.loads("""
mdp
module pair
  x : [1..2] init 2;
  y : bool;
  [go] true -> 0.3 : (x'=1) & (y'=true) + 0.7 : (x'=2) & (y'=false);
  [swap] true -> (x'=3-x) & (y'=!y);
endmodule
module other
  z : [0..1];
  [go] y -> (z'=1);
  [go] !y -> (z'=x-1);
  [swap] true -> true;
endmodule
""")
    s = model.structure
    assert s.state_names == ("x/y", "z")
    assert s.state_values[0] == ("1/false", "1/true", "2/false", "2/true")
    assert model.initial_state == (2, 0)
    assert s.transition_scopes == ((0, 2), (0, 1, 2))
    go, swap = s.check_action(["go"]), s.check_action(["swap"])
    assert model.transition_row(0, (0, 0), go).tolist() == [0.0, 0.3, 0.7, 0.0]
    assert model.transition_row(0, (1, 0), swap).tolist() == [0.0, 0.0, 1.0, 0.0]
    assert [int(model.transition_row(1, (v, 0), go)[1]) for v in range(4)] == [0, 1, 1, 1]
    assert model.transition_row(1, (0, 1), swap).tolist() == [0.0, 1.0]  # it stays


def test_a_module_that_does_not_know_a_label_stands_still() -> None:
    model = prism.loads("""
mdp
global g : [0..2] init 1;
module a  x : bool;  [tick] true -> (x'=!x);  endmodule
module b  y : bool;  [tock] x & g>0 -> (y'=true);  [tick] true -> true;  endmodule
""")
    s = model.structure
    assert s.state_names == ("g", "x", "y")
    assert model.transition_row(0, (2, 0, 0), ["tick"]).tolist() == [0, 0, 1]
    assert model.transition_row(1, (1, 1, 0), ["tock"]).tolist() == [0, 1]
    assert [c.name for c in s.constraints] == ["module b"]
    assert s.allowed_actions((1, 1, 0)).tolist() == [0, 1]
    assert s.allowed_actions((0, 1, 0)).tolist() == [0]


def test_a_chain_has_one_action() -> None:
    model = prism.loads("""
dtmc
module weather
  sunny : bool init true;
  [] sunny -> 0.1 : (sunny'=false) + 0.9 : true;
  [] !sunny -> 0.5 : (sunny'=true) + 0.5 : (sunny'=false);
endmodule
rewards  sunny : 1;  endrewards
""")
    assert model.structure.action_values == (("step",),)
    assert model.structure.constraints == ()
    assert fmdp.plan(model).gain == pytest.approx(5 / 6, abs=1e-9)


HERMAN = """
dtmc
// Self-stabilisation on a ring (Herman 1990): who has the value of the one before him has a token.
formula tokens = (x1=x3 ? 1 : 0) + (x2=x1 ? 1 : 0) + (x3=x2 ? 1 : 0);
module p1
  x1 : [0..1] init 1;
  [step] x1=x3 -> 0.5 : (x1'=0) + 0.5 : (x1'=1);
  [step] !(x1=x3) -> (x1'=x3);
endmodule
module p2 = p1 [ x1=x2, x3=x1 ] endmodule
module p3 = p1 [ x1=x3, x3=x2 ] endmodule
rewards "tokens"  [step] true : tokens;  endrewards
"""


def test_a_ring_that_stabilises_has_one_token_in_the_long_run() -> None:
    model = prism.loads(HERMAN)
    s = model.structure
    assert s.transition_scopes == ((0, 2), (0, 1), (1, 2))
    assert s.reward_scopes == ((0, 2), (0, 1), (1, 2))
    assert s.action_values == (("step",),)
    assert model.expected_reward((1, 1, 1), (0,)) == 3.0
    assert fmdp.plan(model).gain == pytest.approx(1.0, abs=1e-6)


def test_formulas_are_renamed_with_their_module() -> None:
    """As in PRISM's philosophers: a formula of p2 becomes one of p3 where p2 becomes p3."""
    model = prism.loads("""
mdp
formula free = q=0;
formula go = free & true;
module one  p : [0..1];  [a] go -> (p'=1);  [a] !go -> (p'=0);  endmodule
module two = one [p=q, q=p] endmodule
""")
    assert model.structure.transition_scopes == ((1,), (0,))
    assert model.transition_row(1, (0, 1), (0,)).tolist() == [0, 1]


def test_values_are_named_by_their_numbers() -> None:
    model = prism.loads("mdp module m x : [-1..1] init 0; [a] true -> (x'=-x); endmodule")
    assert model.structure.state_values == (("-1", "0", "1"),)
    assert model.transitions[0].tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


ONE = "mdp\nmodule m\n x : [0..1];\n [a] true -> (x'=1-x);\nendmodule\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ONE.replace("mdp", "pta"), "line 1: a pta is no factored MDP; must be mdp, dtmc or ctmc"),
        (ONE.replace("mdp", "ma"), "line 1: a ma is no factored MDP"),
        (ONE.replace("mdp", ""), "line 1: the kind of model is missing; must be mdp, dtmc or ctmc"),
        (ONE + "dtmc", "line 6: a second kind of model, dtmc"),
        (ONE + "init x=0 endinit", "line 6: init ... endinit makes several initial states"),
        (ONE + "system m endsystem", "line 6: system ... endsystem composes in its own way"),
        (ONE + "modul n endmodule", "line 6: modul begins no section; did you mean \"module\"?"),
        (ONE.replace("[0..1]", "clock"), "line 3: x is of the kind clock; must be bool, int or"),
        (ONE.replace("[0..1]", "[2..1]"), "line 3: x has no value: [2..1]"),
        (ONE.replace("[0..1]", "[0..1] init 2"), "line 3: x begins at 2; must be in 0..1"),
        (ONE.replace("[0..1]", "[0..1.5]"), "line 3: the largest value of x is 1.5"),
        (ONE.replace("1-x", "x'"), "line 4: x' is read; only values before the step may be"),
        (ONE.replace("1-x", "2-x"), "line 4: x' is 2 where x=0; must be in 0..1"),
        (ONE.replace("1-x", "x/2"), "line 4: x' must be a whole number"),
        (ONE.replace("1-x", "y"), "line 4: y is no variable, constant or formula"),
        (ONE.replace("true ->", "1 ->"), "line 4: a guard must be true or false; got a number"),
        (ONE.replace("-> (", "-> 0.5 : ("), "line 4: probabilities sum to 0.5"),
        (ONE.replace("-> (", "-> 1-2*x : (x'=1) + 2*x : ("),
         "line 4: a probability is -1.0 where x=1; must be in 0..1"),
        (ONE + "module n y : bool; [a] true -> (x'=0); endmodule",
         "line 6: module n sets x', which is that of m"),
        (ONE.replace("(x'", "(y'"), "line 4: y' is set, but y is no variable"),
        ("global g : bool;\n" + ONE.replace("(x'=1-x)", "(g'=true)")
         + "module n y : bool; [a] true -> (g'=y); endmodule",
         "line 7: two modules set g' in one step of [a]"),
        (ONE + "module n = o [x=y] endmodule", "line 6: module n renames o, which is not there"),
        (ONE + "module m = m [x=y] endmodule", "line 6: module m is there twice"),
        (ONE + "module n = m [a=b] endmodule", "line 6: the name x is there twice"),
        (ONE + "const int x = 1;", "line 3: the name x is there twice"),
        (ONE + "const int k = k+1;", "line 6: constant k uses itself"),
        (ONE + "const int k;", "line 6: constant k has no value: give one, as in MODEL.prism,k="),
        (ONE + "const int k = 1.5;", "line 6: constant k is 1.5; must be int"),
        (ONE + "formula f = f+1;", "line 6: formula f uses itself"),
        (ONE + "rewards [b] true : 1; endrewards", "line 6: a reward of [b], which no command has"),
        (ONE + "rewards x : 1; endrewards", "line 6: a guard must be true or false"),
        (ONE + "rewards true : true; endrewards", "line 6: a reward must be a number"),
        (ONE + "rewards true : 1;", "line 6: rewards without endrewards"),
        (ONE + 'rewards "a" true : 1; endrewards\nrewards "b" true : 2; endrewards',
         "line 7: several structures of rewards, 'a', 'b': choose one, as in MODEL.prism,rewards="),
        (ONE + 'label x = x=1;', "line 6: label must be followed by a name in quotes; got x"),
        (ONE + 'label "a" = x=1; label "a" = x=0;', 'line 6: label "a" is there twice'),
        (ONE + 'label "a" = x;', "line 6: a guard must be true or false"),
        ("mdp module m x : [0..9]; endmodule", "line 1: there is no command; modules must move"),
        ("mdp const int k = 1;", "line 1: there is no variable; must be at least one"),
        (ONE[:-12], "must be followed by endmodule"),
        (ONE.replace("[a] true", "[a] %"), "line 4: '%' is no character of a PRISM model"),
        ("//: model []\n" + ONE, "line 1: a comment of fmdp's, //: model, holds no JSON object"),
    ],
)  # fmt: skip
def test_what_is_outside_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(InvalidModel) as caught:
        prism.loads(text)
    assert words in str(caught.value)


def test_constants_and_rewards_that_are_not_there() -> None:
    with pytest.raises(InvalidParameter, match='kost is no constant of the file; did you mean "co'):
        prism.loads(HEATER, {"kost": 1}, "heat")
    with pytest.raises(InvalidParameter, match=r"constant N has a value in the file \(line 3\)"):
        prism.loads(HEATER, {"N": 1, "cost": 1}, "heat")
    with pytest.raises(InvalidParameter, match="constant cost must be double; got 'much'"):
        prism.loads(HEATER, {"cost": "much"}, "heat")
    with pytest.raises(InvalidParameter, match="no rewards called 'het', only 'comfort', 'heat'; "):
        prism.loads(HEATER, {"cost": 1}, "het")
    with pytest.raises(InvalidParameter, match="'cost' must be CONSTANT=VALUE, rewards=NAME"):
        fmdp.problem("heater.prism,cost")


def test_a_part_of_a_reward_structure_has_another_name_than_the_whole() -> None:
    """The profit is 2 + 1 per step if x and y stay 1; a part must not pass for it."""
    module = "module {0}m {0} : [0..1] init 1; [go] true -> true; [no] true -> ({0}'=0); endmodule "
    rewards = 'rewards "profit" true : 2*x; true : y; endrewards'
    model = prism.loads("mdp " + module.format("x") + module.format("y") + rewards)
    assert model.structure.reward_names == ("profit_1", "profit_2")
    plan = fmdp.plan(model, limits={"reward": (">=", 2.5)})
    assert plan.gain == pytest.approx(3.0, abs=1e-6)
    with pytest.raises(FmdpError, match="no reward factor or quantity is called 'profit'"):
        fmdp.plan(model, limits={"profit": (">=", 2.5)})


def test_a_file_without_rewards_says_so() -> None:
    chain = "dtmc module m x : [0..1]; [] true -> (x'=1-x); endmodule "
    assert prism.loads(chain).remarks[-1].startswith("no reward structure: all rewards are 0")
    assert not prism.loads(chain + "rewards true : x; endrewards").remarks
    assert not prism.loads(chain + 'label "one" = x=1;', rewards="one").remarks


CIRCLE = prism.dumps(fmdp.problem("circle:3"))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"scope": ["machine_0", "machine_2", "restart"]', '"scope": ["machine_0", "restart"]',
         "the comment says that this depends on machine_0, restart, but it depends on machine_2"),
        ('"scope": ["machine_0", "machine_2", "restart"]', '"scope": 7', "must be variables"),
        ('["down", "working"]', '["down"]', "has 1 value names; must have 2"),
        ('"range": [0.0, 1.0]', '"range": 3', "range 3 must be two numbers"),
        ('label restart_0 {"restart": "0"}', 'label restart_0 {"restart": "9"}',
         "label restart_0: restart is '9'; must be one of 0, 1, 2, none"),
        ('//: label restart_1 {"restart": "1"}\n', "",
         "3 labels are noted for 4 joint actions; must be one each"),
        ("  [restart_0]", "  [again]", "[again] is none of the labels that are noted in line 5"),
        ('{"name": "circle:3"}', '{"name": 3}', "must be a printable string"),
        ('{"name": "circle:3"}', '{"effects": 3}', "comments of fmdp's do not fit the model"),
    ],
)  # fmt: skip
def test_comments_that_do_not_fit_the_commands_are_refused(old: str, new: str, words: str) -> None:
    assert old in CIRCLE
    with pytest.raises(InvalidModel) as caught:
        prism.loads(CIRCLE.replace(old, new))
    assert words in str(caught.value)


def test_without_its_comments_a_file_has_the_same_numbers() -> None:
    model = fmdp.problem("circle:3,dynamics=guestrin")
    bare = prism.loads(re.sub(r"//[^\n]*", "", prism.dumps(model)))
    assert bare.structure.action_values[0] == (
        "restart_0",
        "restart_1",
        "restart_2",
        "restart_none",
    )
    for mine, theirs in zip(model.transitions, bare.transitions, strict=True):
        assert np.array_equal(mine, theirs)
    assert model.structure.transition_scopes == bare.structure.transition_scopes


def test_any_text_is_read_or_refused() -> None:
    """A file that is cut short or has a word missing never ends in another kind of error."""
    words = re.findall(r"\S+|\n", HEATER)
    rng = np.random.default_rng(0)
    refused = []
    for _ in range(150):
        kept = [word for word in words if rng.random() > 0.02]
        try:
            prism.loads(" ".join(kept[: rng.integers(1, len(kept))]), {"cost": 1}, "heat")
        except FmdpError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert not any("\n" in text for text in refused)
