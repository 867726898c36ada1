"""PRISM files that are read state by state: numbers by hand, and a walker that shares no code."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fmdp
from fmdp.cli import main
from fmdp.errors import InvalidModel, InvalidParameter, TooLarge
from fmdp.interop import prism

QUEUE = """ctmc
const int c;
module arrivals
  n : [0..c];
  [] n<c -> 2 : (n'=n+1);
  [serve] n>0 -> 1 : (n'=n-1);
endmodule
module server
  fast : bool;
  [serve] !fast -> 3 : true;
  [serve] fast -> 6 : true;
endmodule
label "full" = n=c;
rewards "waiting"  true : n;  endrewards
rewards "served"  [serve] true : 10;  endrewards
"""


def queue(rewards: str, c: int = 2) -> fmdp.FactoredMDP:
    return prism.loads(QUEUE, {"c": c}, rewards)


def test_a_queue_has_the_averages_of_its_formula() -> None:
    """Birth and death: pi_n is proportional to (2/3)^n; served jobs are those that arrive."""
    pi = np.array([9, 6, 4]) / 19
    waiting = queue("waiting")
    assert waiting.structure.state_names == ("n/fast",)
    assert waiting.structure.state_values == (("0/false", "1/false", "2/false"),)
    assert fmdp.plan(waiting).gain == pytest.approx(pi @ [0, 1, 2], abs=1e-9)
    # A reward of a step counts once per unit of time for each unit of its rate.
    assert fmdp.plan(queue("served")).gain == pytest.approx(10 * 2 * (pi[0] + pi[1]), abs=1e-8)
    assert fmdp.plan(queue("full")).gain == pytest.approx(pi[2], abs=1e-9)


def test_a_module_called_as_the_action_of_deadlocks_is_paid() -> None:
    text = """mdp
module stay
  x : bool;
  [] true -> (x'=!x);
endmodule
module other
  y : bool;
  [go] y -> true;
endmodule
rewards [] true : 1; endrewards
"""
    assert fmdp.plan(prism.loads(text)).gain == pytest.approx(1.0, abs=1e-9)


def test_uniformisation_by_hand() -> None:
    model = queue("waiting")
    assert model.transitions[0].tolist() == pytest.approx(
        np.array([[3 / 5, 2 / 5, 0], [3 / 5, 0, 2 / 5], [0, 3 / 5, 2 / 5]])
    )
    assert "a ctmc, uniformised at rate 5; rewards and gain are per unit of time" in model.remarks
    assert "3 reachable states of 6 assignments" in model.remarks[0]


def test_what_is_not_chosen_is_measured() -> None:
    model = queue("waiting")
    assert [q.name for q in model.quantities] == ["served", "full"]
    assert model.quantities[0].table.tolist() == [0.0, 30.0, 30.0]
    assert model.quantities[1].table.tolist() == [0.0, 0.0, 1.0]


CLIENTS = """mdp
module one  x : [0..2];
  [take] x=0 -> (x'=1);
  [] x=0 -> 0.5 : (x'=0) + 0.5 : (x'=2);
  [] x=0 -> (x'=2);
  [take] x=1 -> (x'=0);
endmodule
module two  y : bool;
  [take] !y -> (y'=true);
  [take] y -> (y'=false);
  [take] y & x=1 -> 0.25 : (y'=true) + 0.75 : (y'=false);
  [] x<2 & y -> true;
endmodule
rewards "taken"  [take] true : 4;  endrewards
rewards "alone"  [] true : 1;  x=2 : 0.5;  endrewards
"""


def test_choices_are_named_by_their_label_or_module() -> None:
    model = prism.loads(CLIENTS, rewards="alone")
    s = model.structure
    assert s.state_names == ("x/y",)
    # 2/true follows a take from 0/true, which needs x=1 and y=true with the chance of 0.25.
    assert s.state_values == (("0/false", "0/true", "1/false", "1/true", "2/false", "2/true"),)
    assert s.action_values == (("take", "one", "one_2", "two", "take_2", "stay"),)
    allowed = [
        [s.action_values[0][a] for a in s.allowed_actions((state,)).tolist()] for state in range(6)
    ]
    assert allowed == [
        ["take", "one", "one_2"],
        ["take", "one", "one_2", "two"],
        ["take"],
        ["take", "two", "take_2"],
        ["stay"],
        ["stay"],
    ]
    assert model.transition_row(0, (0,), ["one"]).tolist() == [0.5, 0, 0, 0, 0.5, 0]
    assert model.transition_row(0, (3,), ["take"]).tolist() == [1, 0, 0, 0, 0, 0]
    assert model.transition_row(0, (3,), ["take_2"]).tolist() == [0.75, 0.25, 0, 0, 0, 0]
    assert model.expected_reward((0,), ["one"]) == 1.0
    assert model.expected_reward((0,), ["take"]) == 0.0
    assert model.expected_reward((4,), ["stay"]) == 0.5  # a deadlock takes no command
    assert "2 deadlocks get a self-loop, e.g. x=2, y=false" in model.remarks


def test_the_best_and_the_least_average() -> None:
    assert fmdp.plan(prism.loads(CLIENTS, rewards="taken")).gain_upper == pytest.approx(4.0)
    least = prism.loads(CLIENTS, minimise="taken")
    plan = fmdp.plan(least)
    # It stops taking: in a deadlock, or by moving alone.
    assert plan.gain == pytest.approx(0.0, abs=1e-9)
    assert least.remarks[-1].startswith("minimises taken: rewards are its negatives")
    assert least.rewards[0].min() == -4.0
    # A limit on what is minimised means what the file says, not its negative.
    assert least.structure.reward_names == ("minus_taken",)
    taken = next(quantity for quantity in least.quantities if quantity.name == "taken")
    assert taken.table.max() == 4.0


def test_the_front_of_two_structures() -> None:
    """Between taking always (4, 0) and ending in x=2 (0, 0.5), moving alone pays (0, 1)."""
    model = prism.loads(CLIENTS, rewards="taken")
    front = fmdp.pareto(model, of=("reward", "alone"))
    ends = sorted(tuple(np.round(vertex.values, 6)) for vertex in front.vertices)
    assert ends == [(0.0, 1.0), (4.0, 0.0)]
    plan = fmdp.plan(model, limits={"alone": (">=", 0.25)})
    assert plan.gain == pytest.approx(3.0, abs=1e-6)


def test_a_chain_draws_among_its_commands() -> None:
    model = prism.loads("""dtmc
module a  x : [0..1];  [] x=0 -> (x'=1);  [go] true -> (x'=0);  endmodule
module b  y : bool;  [] true -> (y'=!y);  endmodule
rewards  [go] true : 6;  endrewards
""")
    # Three commands hold where x=0, two where x=1.
    assert model.structure.state_values[0][0] == "0/false"
    assert model.transitions[0][0].tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert model.transitions[0][2].tolist() == pytest.approx([1 / 2, 0, 0, 1 / 2])
    assert model.rewards[0].tolist() == pytest.approx([2, 2, 3, 3])
    assert "in 4 states of the dtmc several commands hold: each is equally likely" in model.remarks


def test_guards_and_ranges_count_where_states_can_be_reached() -> None:
    model = prism.loads("""mdp
module m  x : [0..9];
  [up] x<3 -> (x'=x+1);
  [up] x>=3 & x!=7 -> (x'=0);
  [up] x=8 -> 0.3 : (x'=10);
endmodule
""")
    assert model.structure.state_values == (("0", "1", "2", "3"),)
    with pytest.raises(InvalidModel, match=r"line 4: x' is 10 where x=9; must be in 0\.\.9"):
        prism.loads("""mdp
module m  x : [0..9];
  [up] x<9 -> (x'=x+1);
  [up] x=9 -> (x'=x+1);
endmodule""")


def test_an_unbounded_counter_needs_a_limit() -> None:
    text = "mdp\nmodule m x : int init 1; [up] x<K -> (x'=2*x); [up] x>=K -> (x'=1); endmodule\n"
    model = prism.loads("const int K;" + text, {"K": 20})
    assert model.structure.state_values == (("1", "2", "4", "8", "16", "32"),)
    assert "x is unbounded" in model.remarks[0]
    both = text.replace("(x'=2*x)", "0.5 : (x'=2*x) + 0.5 : (x'=2*x+1)")
    with pytest.raises(TooLarge, match="more than 10,000 states can be reached; max-states=N all"):
        prism.loads("const int K;" + both, {"K": 2 * 10**4})
    with pytest.raises(TooLarge, match="more than 5 states"):
        prism.loads("const int K;" + both, {"K": 20}, max_states=5)
    with pytest.raises(TooLarge, match="9,999 states and 1 actions make a table of 99,980,001"):
        prism.loads("const int K;" + both, {"K": 5000})
    with pytest.raises(InvalidParameter, match="max-states must be at least 1; got 0"):
        prism.loads("const int K;" + both, {"K": 2}, max_states=0)


def test_globals_that_are_written() -> None:
    model = prism.loads("""mdp
global turn : [1..2];
module a  x : bool;  [] turn=1 -> (turn'=2) & (x'=!x);  endmodule
module b  y : bool;  [] turn=2 -> (turn'=1) & (y'=!y);  endmodule
rewards  x & y : 1;  endrewards
""")
    assert model.structure.n_states == 4  # x, y, x, y: a cycle
    assert fmdp.plan(model).gain == pytest.approx(0.25, abs=1e-9)


@given(st.integers(0, 2**32 - 1))
def test_a_walker_over_states_finds_the_same_chain(seed: int) -> None:
    """Two modules with random commands, against a walk that evaluates them in Python."""
    rng = np.random.default_rng(seed)
    commands: dict[str, list[tuple[str, int, int, int, int]]] = {"x": [], "y": []}
    text = ["mdp"]
    for name, other in (("x", "y"), ("y", "x")):
        text.append(f"module m{name} {name} : [0..2];")
        for _ in range(rng.integers(1, 5)):
            label = str(rng.choice(["", "a", "b"]))
            here, there, first, second = map(int, rng.integers(0, 3, 4))
            commands[name].append((label, here, there, first, second))
            text.append(
                f"[{label}] {name}={here} & {other}<={there} -> "
                f"0.25 : ({name}'={first}) + 0.75 : ({name}'={second});"
            )
        text.append("endmodule")
    text.append("rewards true : 3*x+y; [a] true : 5; endrewards")
    labels = {label for listed in commands.values() for label, *_ in listed}
    if "a" not in labels:
        text[-1] = "rewards true : 3*x+y; endrewards"

    def enabled(name: str, label: str, state: tuple[int, int]) -> list[tuple[int, int]]:
        mine, others = (state[0], state[1]) if name == "x" else (state[1], state[0])
        return [
            (first, second)
            for known, here, there, first, second in commands[name]
            if known == label and mine == here and others <= there
        ]

    def choices(state: tuple[int, int]) -> list[tuple[dict[tuple[int, int], float], float]]:
        x, y = state
        made: list[tuple[dict[tuple[int, int], float], float]] = []
        for label in ("", "a", "b"):
            sides = []
            for name in ("x", "y"):
                knows = any(known == label for known, *_ in commands[name])
                sides.append(enabled(name, label, state) if knows else None)
            pays = 3.0 * x + y + (5.0 if label == "a" else 0.0)
            pairs: list[tuple[object, object]] = []
            if label == "" or sides[0] is None or sides[1] is None:
                pairs += [(one, None) for one in sides[0] or ()]
                pairs += [(None, two) for two in sides[1] or ()]
            else:
                pairs += [(one, two) for one in sides[0] for two in sides[1]]
            for one, two in pairs:
                law: dict[tuple[int, int], float] = {}
                for i, p in ((0, 0.25), (1, 0.75)) if one else ((0, 1.0),):
                    for j, q in ((0, 0.25), (1, 0.75)) if two else ((0, 1.0),):
                        target = (one[i] if one else x, two[j] if two else y)  # type: ignore[index]
                        law[target] = law.get(target, 0.0) + p * q
                made.append((law, pays))
        return made or [({state: 1.0}, 3.0 * x + y)]

    found, queue_ = {(0, 0)}, [(0, 0)]
    while queue_:
        for law, _ in choices(queue_.pop()):
            new = set(law) - found
            found |= new
            queue_ += sorted(new)
    model = prism.loads("\n".join(text))
    if model.structure.m == 2:  # read as a product, whose states need not be reachable
        return
    s = model.structure
    assert [tuple(map(int, v.split("/"))) for v in s.state_values[0]] == sorted(found)
    for number, state in enumerate(sorted(found)):
        mine = sorted(
            (
                tuple(model.transition_row(0, (number,), (action,)).tolist()),
                model.expected_reward((number,), (action,)),
            )
            for action in s.allowed_actions((number,)).tolist()
        )
        theirs = sorted(
            (tuple(law.get(target, 0.0) for target in sorted(found)), pays)
            for law, pays in choices(state)
        )
        assert mine == theirs


def test_quantities_go_there_and_back() -> None:
    model = queue("served", 3)
    again = prism.loads(prism.dumps(model))
    assert again == model
    assert [q.name for q in again.quantities] == ["waiting", "full"]
    other = prism.loads(prism.dumps(model), rewards="waiting")
    assert other.structure.reward_names == ("waiting",)


def test_names_that_would_be_there_twice() -> None:
    model = prism.loads(
        """mdp
module m x : bool; [a] true -> (x'=!x); endmodule
label "up" = x;
rewards "up"  x : 2;  endrewards
rewards  x : 3;  endrewards
rewards "reward"  x : 4;  endrewards
""",
        rewards="up",
    )
    assert model.structure.reward_names == ("up",)
    assert [q.name for q in model.quantities] == ["rewards_2", "reward_", "label_up"]


def test_the_output_says_how_a_file_was_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "queue.prism").write_text(QUEUE)
    assert main(["plan", "queue.prism,c=2,min=waiting", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["gain"] == pytest.approx(-14 / 19, abs=1e-9)
    assert [remark.split(":")[0] for remark in result["remarks"][1:]] == [
        "a ctmc, uniformised at rate 5; rewards and gain are per unit of time",
        "minimises waiting",
    ]
    for words in (["plan"], ["show"], ["pareto", "--of", "reward,full:min"]):
        assert main([words[0], "queue.prism,c=2,rewards=served", *words[1:]]) == 0
        assert "uniformised at rate 5" in " ".join(capsys.readouterr().out.split())
    assert main(["convert", "queue.prism,c=2,rewards=served", "queue.json"]) == 0
    assert "remark: a ctmc, uniformised at rate 5" in capsys.readouterr().out
    assert fmdp.load(folder / "queue.json") == prism.loads(QUEUE, {"c": 2}, "served", "queue")
