"""Recurrent classes of a policy: found by graph search, each with its gain."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import TablePolicy
from fmdp._base.deadlines import NEVER
from fmdp.model.spaces import encode
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.status import Status
from fmdp.planning.tabular.recurrence import (
    ClassSolver,
    chain_entries,
    recurrent_classes,
    write_chain,
)
from fmdp.testing import oracles, strategies


def corridor(bits: int, sides: int = 2, leak: float = 0.0) -> fmdp.FactoredMDP:
    """A shift register behind a random bit, beside a side that pays its number and is never left.

    With a leak, side 0 is left with that probability: a third to side 1, else to side 2.
    """

    def transition(name: str, values: dict[str, Any]) -> Any:
        if name == "side":
            leaks = leak if values["side"] == 0 else 0.0
            return (
                {values["side"]: 1.0 - leaks, 1: leaks / 3, 2: 2 * leaks / 3}
                if leaks
                else ({values["side"]: 1.0})
            )
        if name == "bit0":
            return {0: 0.75, 1: 0.25}
        return values[f"bit{int(name[3:]) - 1}"]

    names = [f"bit{i}" for i in range(bits)]
    parents: dict[str, list[str]] = {b: [a] for a, b in itertools.pairwise(names)}
    return fmdp.FactoredMDP.from_functions(
        {name: [0, 1] for name in names} | {"side": list(range(sides))},
        {"idle": ["no", "yes"]},
        parents | {"bit0": ["idle"], "side": ["side"]},
        transition,
        {"pay": (["side", "bit0", "idle"], lambda v: v["side"] + 0.1 * v["bit0"])},
    )


def idle(model: fmdp.FactoredMDP) -> TablePolicy:
    s = model.structure
    return TablePolicy(s.state_sizes, s.action_sizes, np.zeros(s.n_states, dtype=np.int64))


@pytest.mark.parametrize("bits", [4, 13])
def test_two_classes_are_named_with_their_gains(bits: int) -> None:
    """Solved directly and by iteration: 0.025 on side 0 and 1.025 on side 1."""
    model = corridor(bits)
    reports: list[Any] = []
    evaluation = fmdp.evaluate(model, idle(model), progress=reports.append)
    assert evaluation.status is Status.MULTICHAIN
    assert evaluation.gain == pytest.approx(0.025, abs=1e-6)
    assert evaluation.n_classes == 2
    assert [found.states for found in evaluation.classes] == [2**bits, 2**bits]
    for side, found in enumerate(evaluation.classes):
        assert found.example == (0,) * bits + (side,)
        assert found.gain_lower <= side + 0.025 <= found.gain_upper
        assert found.gain_upper - found.gain_lower < 2e-6
    assert bits == 4 or any("2 recurrent" in report.get("what", "") for report in reports)


def test_a_transient_state_gets_the_mean_of_where_it_ends() -> None:
    model = corridor(10, sides=3, leak=0.5)
    evaluation = evaluate_exactly(model, idle(model))
    assert evaluation.n_classes == 2
    assert evaluation.gain == pytest.approx(5 / 3 + 0.025, abs=1e-6)
    assert evaluation.gain_lower == pytest.approx(1.025, abs=3e-6)
    assert evaluation.gain_upper == pytest.approx(2.025, abs=3e-6)


def test_one_class_is_iterated_as_before() -> None:
    model = corridor(11, sides=1)
    evaluation = evaluate_exactly(model, idle(model))
    assert evaluation.status is Status.CONVERGED
    assert evaluation.gain == pytest.approx(0.025, abs=1e-6)
    assert (evaluation.n_classes, evaluation.classes) == (1, ())


def test_a_slow_class_is_solved_directly() -> None:
    """Its bit turns round once in 10^7 steps: iteration would need as many sweeps."""

    def transition(name: str, values: dict[str, Any]) -> Any:
        if name == "slow":
            return {values["slow"]: 1.0 - 1e-7, 1 - values["slow"]: 1e-7}
        return {values[name]: 1.0}

    model = fmdp.FactoredMDP.from_functions(
        {"slow": [0, 1], "number": list(range(600))},
        {"idle": [0, 1]},
        {"slow": ["slow"], "number": ["number"]},
        transition,
        {"pay": (["slow", "number", "idle"], lambda v: v["slow"] * v["number"])},
    )
    evaluation = evaluate_exactly(model, idle(model), tolerance=1e-4, max_iterations=2000)
    assert evaluation.status is Status.MULTICHAIN
    assert evaluation.n_classes == 600
    assert len(evaluation.classes) == 16
    assert evaluation.gain == pytest.approx(0.0, abs=1e-4)
    assert evaluation.gain_upper == pytest.approx(299.5, abs=1e-4)


def test_a_limit_leaves_bounds_that_hold() -> None:
    model = corridor(11)
    evaluation = evaluate_exactly(model, idle(model), max_iterations=1)
    assert evaluation.status is Status.ITERATION_LIMIT
    assert evaluation.gain is None
    assert evaluation.gain_lower <= 0.025
    assert evaluation.gain_upper >= 1.025
    late = evaluate_exactly(model, idle(model), max_seconds=1e-9)
    assert late.status is Status.TIME_LIMIT
    assert (late.gain_lower, late.gain_upper) == model.structure.reward_bounds


def test_ctrl_c_leaves_bounds_that_hold() -> None:
    model = corridor(11)

    def stop(report: Any) -> None:
        if report.get("sweeps", 0) >= 3:
            raise KeyboardInterrupt

    evaluation = evaluate_exactly(model, idle(model), progress=stop)
    assert evaluation.status is Status.INTERRUPTED
    assert evaluation.n_classes == 2
    assert evaluation.gain_lower <= 0.025
    assert evaluation.gain_upper >= 1.025


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_classes_and_gains_of_any_policy(data: st.DataObject) -> None:
    model = data.draw(strategies.models())
    s = model.structure
    actions = np.asarray(data.draw(strategies.policies(s)))
    gains = oracles.policy_gain(oracles.dense(model), actions)
    chain = write_chain(model, actions, chain_entries(model, actions), NEVER)
    count, label = recurrent_classes(chain.matrix)
    reach = np.linalg.matrix_power(chain.matrix.toarray() + np.eye(s.n_states) > 0, s.n_states)
    recurrent = [all(reach[j, i] for j in np.flatnonzero(reach[i])) for i in range(s.n_states)]
    assert (label >= 0).tolist() == recurrent
    assert count == len({tuple(reach[i]) for i in np.flatnonzero(recurrent)})
    initial = encode(model.initial_state, s.state_sizes)
    bounds = ClassSolver(model, chain, label, count, 1e-7, 20_000, NEVER).solve(initial)
    assert bounds.start[0] - 1e-12 <= gains[initial] + 1e-9
    assert bounds.start[1] + 1e-12 >= gains[initial] - 1e-9
    assert bounds.start[1] - bounds.start[0] < 1e-6
    for number in range(count):
        (first, *_) = np.flatnonzero(label == number)
        assert bounds.lower[number] - 1e-9 <= gains[first] <= bounds.upper[number] + 1e-9
