"""What is written is read back as the same model, bit for bit; and it says what it should.

The second is looked at by a reader that shares nothing with the library's: each command of the file
by itself, its guard evaluated by Python, state by state.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.interop import prism
from fmdp.model import FactoredMDP, Intervals
from fmdp.testing import oracles, strategies


def interpreted(text: str) -> tuple[Any, Any, Any]:
    """P [A, S, S], R [A, S] and allowed [A, S] of a file that fmdp wrote."""
    labels = re.findall(r"^//: label (\w+) ", text, flags=re.MULTILINE)
    variables = {
        name: int(high) + 1
        for name, high in re.findall(r"^  (\w+) : \[0\.\.(\d+)\] init \d+;$", text, re.MULTILINE)
    }
    modules = re.findall(r"^module \w+\n(.*?)^endmodule$", text, re.DOTALL | re.MULTILINE)
    rewards = re.findall(r'^rewards "reward"\n(.*?)^endrewards$', text, re.DOTALL | re.MULTILINE)
    states = list(itertools.product(*map(range, variables.values())))

    def holds(guard: str, state: tuple[int, ...]) -> bool:
        python = re.sub(r"(?<![<>!])=", "==", guard).replace("&", " and ").replace("|", " or ")
        values = dict(zip(variables, state, strict=True)) | {"true": True, "false": False}
        return bool(eval(python, {"__builtins__": {}}, values))

    P = np.zeros((len(labels), len(states), len(states)))
    R = np.zeros((len(labels), len(states)))
    allowed = np.ones((len(labels), len(states)), dtype=bool)
    for (a, label), (i, state) in itertools.product(enumerate(labels), enumerate(states)):
        laws: dict[str, dict[int, float]] = {}
        for body in modules:
            commands = re.findall(rf"^  \[{label}\] (.*) -> (.*);$", body, re.MULTILINE)
            fitting = [update for guard, update in commands if holds(guard, state)]
            assert len(fitting) <= 1, "two commands hold"
            if not fitting:
                allowed[a, i] = False
            elif fitting[0] != "true":
                for part in fitting[0].split(" + "):
                    p, name, value = re.fullmatch(r"(\S+) : \((\w+)'=(\d+)\)", part).groups()
                    laws.setdefault(name, {})[int(value)] = float(p)
        for line in rewards[0].splitlines() if rewards else []:
            item = re.fullmatch(r"  (?:\[(\w+)\] )?(.*) : (\S+);", line)
            if item and not line.startswith("  //") and item[1] in (None, label):
                R[a, i] += float(item[3]) if holds(item[2], state) else 0.0
        if allowed[a, i]:
            for j, after in enumerate(states):
                P[a, i, j] = np.prod(
                    [laws[name].get(v, 0.0) for name, v in zip(variables, after, strict=True)]
                )
    return P, R, allowed


def models() -> st.SearchStrategy[FactoredMDP]:
    """Models of all that a PRISM file can say."""
    plain = strategies.structures(max_states=12, max_actions=4, alike=True)
    return st.one_of(
        strategies.models(plain),
        strategies.models(strategies.constrained(strategies.structures(max_states=12))),
        strategies.effect_models(max_states=12, max_actions=6),
    )


@given(models())
@settings(max_examples=60)
def test_what_is_written_is_read_as_the_same_model(model: FactoredMDP) -> None:
    text = prism.dumps(model)
    assert prism.loads(text) == model
    assert prism.dumps(prism.loads(text)) == text


@given(models())
@settings(max_examples=25)
def test_the_commands_say_what_the_tables_say(model: FactoredMDP) -> None:
    P, R, allowed = interpreted(prism.dumps(model))
    flat = oracles.dense(model)
    table = np.ones_like(allowed) if flat.allowed is None else flat.allowed
    assert np.array_equal(allowed, table)
    np.testing.assert_allclose(P[allowed], flat.transitions[allowed], atol=1e-14)
    np.testing.assert_allclose(R[allowed], flat.rewards[allowed], atol=1e-12)


@pytest.mark.parametrize(
    "problem",
    [
        "circle:4",
        "circle:3,dynamics=guestrin,reward=mean,alike=machines",
        "three-leg:4",
        "jao:3",
        "riverswim:6",
        "random:4,seed=0",
        "maintenance:2,levels=3",
        "large-diameter",
    ],
)
def test_problems_go_there_and_back(problem: str) -> None:
    model = fmdp.problem(problem)
    assert prism.loads(prism.dumps(model)) == model


def named(**names: Any) -> FactoredMDP:
    return FactoredMDP.from_factors(
        [2, 2], [2], [([0, 2], [[[0.5, 0.5], [1, 0]]] * 2), ([0], [[0.5, 0.5], [0, 1]])], **names
    )


def test_names_become_identifiers_and_come_back() -> None:
    model = named(
        state_names=["pump 1", "pump-1"],
        action_names=["pump_1"],
        state_values=[["new & shiny", "mod"], ["1", "0"]],
        action_values=[["endmodule", "é"]],
        rewards=[(["pump 1"], [0.0, -1.5])],
        reward_names=["worth // it"],
        initial_state=[1, 0],
        name='a "name" }',
    )
    text = prism.dumps(model)
    assert prism.loads(text) == model
    # The action has the name already.
    assert re.findall(r"^  (\w+) : \[", text, re.MULTILINE) == ["pump_1_", "pump_1__2"]
    assert text.isascii()


def test_words_of_the_language_are_no_names() -> None:
    model = named(state_names=["mdp", "max"], action_names=["floor"])
    text = prism.dumps(model)
    assert prism.loads(text) == model
    assert re.findall(r"^  (\w+) : \[", text, re.MULTILINE) == ["mdp_", "max_"]


def test_a_perturbed_file_is_another_model() -> None:
    """What would not be seen were the comparison to look at the comments alone."""
    model = fmdp.problem("circle:3,dynamics=guestrin")
    text = prism.dumps(model)
    moved = text.replace("0.475", "0.476").replace("0.525", "0.524")
    assert prism.loads(moved) != model
    assert prism.loads(moved).structure == model.structure


def test_what_cannot_be_said_is_refused() -> None:
    model = fmdp.problem("circle:3")
    told = replace(model, intervals=Intervals(model.transitions, model.transitions,
                                              model.rewards, model.rewards))  # fmt: skip
    with pytest.raises(InvalidParameter, match="has intervals, and a PRISM file one number"):
        prism.dumps(told)
    sizes = [2] * 13
    many = FactoredMDP.from_factors([2], sizes, [([0], [[0.5, 0.5], [0, 1]])])
    with pytest.raises(TooLarge, match="a label for each joint action, and there are 8192"):
        prism.dumps(many)
    with pytest.raises(InvalidParameter, match="must be a FactoredMDP"):
        prism.dumps("circle:3")  # type: ignore[arg-type]
