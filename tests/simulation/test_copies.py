"""Copies that are stepped together: the same numbers as one run after the other, and refusals."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.simulation import evaluate_by_simulation
from fmdp.simulation.copies import BatchedPolicy, Copies
from fmdp.simulation.uniforms import ParallelUniforms

TALL = FactoredMDP.from_factors(  # a variable with many values, whose rows are bisected
    (20, 2),
    (3,) * 40,
    [
        ((0, 2), np.random.default_rng(0).dirichlet(np.full(20, 0.2), size=(20, 3))),
        ((1, 3), np.random.default_rng(1).dirichlet(np.ones(2), size=(2, 3))),
    ],
    [((0, 1), np.random.default_rng(2).random((20, 2)))],
)


def drawn_weather() -> FactoredMDP:
    """Forty machines that share a drawn derived variable."""
    machines = [f"m{i}" for i in range(40)]
    return FactoredMDP.from_functions(
        dict.fromkeys(machines, 2),
        {f"a{i}": 3 for i in range(40)},
        {name: [name, f"a{i}", "storm"] for i, name in enumerate(machines)},
        lambda name, x: _chance(0.9 - 0.4 * x["storm"] if x[name] or x["a" + name[1:]] else 0.1),
        {name: ([name], lambda x: float(next(iter(x.values())))) for name in machines},
        derived={"storm": (["m0"], lambda x: {0: 0.7, 1: 0.3})},
    )


def _chance(p: float) -> dict[int, float]:
    return {1: p, 0: 1.0 - p}


class Worst:
    """Acts on the variables with the highest values, as many as the first constraint allows."""

    def __init__(self, model: FactoredMDP) -> None:
        s = model.structure
        self.state_sizes, self.action_sizes = s.state_sizes, s.action_sizes
        self.most = s.constraints[0].most if s.constraints else len(s.action_sizes)  # type: ignore[attr-defined]

    def __call__(self, state: Any) -> tuple[int, ...]:
        return tuple(self._act(np.array([state]))[0].tolist())

    def _act(self, states: Any) -> Any:
        n = len(self.action_sizes)
        values = np.resize(states, (len(states), n)) if states.shape[1] < n else states[:, :n]
        order = np.argsort(-values, axis=1, kind="stable")[:, : self.most]
        actions = np.zeros((len(states), n), dtype=np.int64)
        np.put_along_axis(actions, order, 1, axis=1)
        return actions

    def save(self, path: str | os.PathLike[str]) -> None:
        raise NotImplementedError


class WorstOfMany(Worst):
    """The same policy, asked for many states at once."""

    def actions_of(self, states: Any) -> Any:
        return self._act(states)


MODELS = {
    "fleet": lambda: fmdp.problem("fleet:70"),
    "alike": lambda: fmdp.problem("fleet:70,types=3,alike=types"),
    "machines": lambda: fmdp.problem("machines:64,topology=none,crew=5"),
    "derived": drawn_weather,
    "tall": lambda: TALL,
}


@pytest.mark.parametrize("name", MODELS)
def test_runs_together_are_runs_one_after_the_other(name: str) -> None:
    model = MODELS[name]()
    alone = evaluate_by_simulation(model, Worst(model), steps=2_000, seed=3)
    together = evaluate_by_simulation(model, WorstOfMany(model), steps=2_000, seed=3)
    assert together.run_gains == alone.run_gains
    assert (together.gain, together.gain_lower, together.gain_upper, together.status) == (
        alone.gain,
        alone.gain_lower,
        alone.gain_upper,
        alone.status,
    )
    assert together.iterations == alone.iterations == 16 * 64


def test_a_linear_policy_is_asked_for_all_runs_at_once() -> None:
    model = fmdp.problem("machines:64,topology=none")
    policy = fmdp.plan(model, "alp,basis=indicators").policy
    assert isinstance(policy, BatchedPolicy)

    class OneByOne(Worst):
        def __call__(self, state: Any) -> tuple[int, ...]:
            return policy(state)  # type: ignore[no-any-return, operator]

    together = evaluate_by_simulation(model, policy, steps=320)
    alone = evaluate_by_simulation(model, OneByOne(model), steps=320)
    assert together.run_gains == alone.run_gains


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**64), width=st.integers(1, 6), apart=st.integers(1, 9))
def test_copies_have_stretches_of_one_stream(seed: int, width: int, apart: int) -> None:
    stream = np.random.Generator(np.random.PCG64(seed)).random((4 * apart + 6, width))
    columns = [width - 1, 0]
    luck = ParallelUniforms(seed, width, columns, 3, 4, apart)
    for block in range(2):
        drawn = luck.block()
        for copy in range(4):
            first = copy * apart + 3 * block
            assert np.array_equal(drawn[copy], stream[first : first + 3, columns])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda states: np.ones((len(states), 70), dtype=np.int64), 'constraint "budget" forbids'),
        (lambda states: np.full((len(states), 70), -1), "action"),
        (lambda states: np.zeros((len(states), 69), dtype=np.int64), "whole numbers of shape"),
        (lambda states: np.zeros((len(states), 70)), "whole numbers of shape"),
        (lambda states: None, "whole numbers of shape"),
    ],
)
def test_wrong_actions_are_refused_in_one_line(answer: Any, text: str) -> None:
    model = fmdp.problem("fleet:70,budget=60")

    class Wrong(WorstOfMany):
        def actions_of(self, states: Any) -> Any:
            return answer(states)

    copies = Copies(model, 0, [model.initial_state] * 3, 10)
    before = copies.states.copy()
    with pytest.raises(InvalidParameter, match=text) as caught:
        copies.step(Wrong(model))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1200
    assert np.array_equal(copies.states, before)
