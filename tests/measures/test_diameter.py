"""The diameter against brute force, closed forms, and exact numbers; its bounds always hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings

from fmdp.measures import Diameter, diameter
from fmdp.model import FactoredMDP, flat_model, permute_states
from fmdp.problems import problem
from fmdp.testing import oracles
from fmdp.testing.strategies import models, structures


def found(model: FactoredMDP) -> Diameter:
    result = diameter(model)
    assert result is not None
    assert result.lower <= result.value <= result.upper
    return result


@settings(max_examples=120, deadline=None)
@given(models(structures(max_variables=3, max_values=4, max_states=24)))
def test_agrees_with_brute_force(model: FactoredMDP) -> None:
    expected = oracles.diameter(oracles.dense(model))
    result = found(model)
    if math.isinf(expected):
        assert result.value == math.inf
        return
    # The oracle solves linear systems whose condition is the diameter.
    slack = 1e-11 + 1e-14 * expected
    assert result.value == pytest.approx(expected, rel=slack)
    assert result.lower <= expected * (1 + slack)
    assert result.upper >= expected * (1 - slack)


@settings(max_examples=15, deadline=None)
@given(
    models(
        structures(max_variables=2, max_values=20, max_states=60),
        rows=("quarters", "deterministic", "skewed"),
    )
)
def test_agrees_with_brute_force_on_large_variables(model: FactoredMDP) -> None:
    expected = oracles.diameter(oracles.dense(model))
    assert found(model).value == pytest.approx(expected, rel=1e-11 + 1e-14 * min(expected, 1e9))


@settings(max_examples=30, deadline=None)
@given(models(structures(max_states=24), rows=("positive", "quarters")))
def test_the_pair_attains_it(model: FactoredMDP) -> None:
    result = found(model)
    if math.isinf(result.value) or model.structure.n_states == 1:
        assert result.source is None
        assert result.target is None
        return
    states = list(oracles.assignments(model.structure.state_sizes))
    assert result.source is not None
    assert result.target is not None
    times = oracles.shortest_times(oracles.dense(model), states.index(result.target))
    assert times[states.index(result.source)] == pytest.approx(result.value, rel=1e-9)


@settings(max_examples=20, deadline=None)
@given(models(structures(max_states=16), rows=("positive", "skewed")))
def test_flattening_and_renumbering_change_nothing(model: FactoredMDP) -> None:
    expected = found(model).value
    assert found(flat_model(model)).value == pytest.approx(expected, rel=1e-10)
    order = list(reversed(range(model.structure.m)))
    assert found(permute_states(model, order)).value == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_jao_closed_form(n: int) -> None:
    """2 sum over odd j of C(n, j) / (1 - (1 - 2 delta)^j), delta = .2."""
    expected = 2 * sum(math.comb(n, j) / (1 - 0.6**j) for j in range(1, n + 1, 2))
    assert found(problem(f"jao:{n}")).value == pytest.approx(expected, rel=1e-12)


def test_large_diameter_is_infinite_though_each_circle_has_2() -> None:
    assert found(problem("large-diameter")).value == math.inf


def line(n: int, up: float) -> FactoredMDP:
    """n places in a row; left always works, right with probability `up` (else one back)."""
    table = np.zeros((n, 2, n))
    for place in range(n):
        table[place, 0, max(place - 1, 0)] = 1.0
        table[place, 1, min(place + 1, n - 1)] += up
        table[place, 1, max(place - 1, 0)] += 1.0 - up
    return FactoredMDP.from_factors((n,), (2,), [((0, 1), table)])


def test_deep_graphs_are_solved_directly() -> None:
    """More steps than value iteration is given: 149 on a line of 150."""
    result = found(line(150, 1.0))
    assert result.value == 149.0
    assert (result.source, result.target) in [((0,), (149,)), ((149,), (0,))]


@pytest.mark.parametrize(("n", "up"), [(4, 1e-2), (6, 1e-2), (8, 0.05)])
def test_times_of_many_digits(n: int, up: float) -> None:
    """From 0 to the top of a climb: t_k = (1 + (1 - up) t_{k-1}) / up, t_0 = 1 / up."""
    steps = [1 / up]
    for _ in range(n - 2):
        steps.append((1 + (1 - up) * steps[-1]) / up)
    result = found(line(n, up))
    assert result.value == pytest.approx(sum(steps), rel=1e-10)
    assert result.lower <= sum(steps) * (1 + 1e-13)
    assert result.upper >= sum(steps) * (1 - 1e-13)


def two_wells(bits: int, switch: float) -> FactoredMDP:
    """A bit that switches rarely beside bits that mix at once: value iteration crawls."""
    rng = np.random.default_rng(0)
    well = np.zeros((2, 2, 2))
    for side in (0, 1):
        well[side, 0, side] = 1.0
        well[side, 1, side], well[side, 1, 1 - side] = 1.0 - switch, switch
    others = [
        ((0, i, bits + 1), rng.dirichlet(np.ones(2), size=(2, 2, 2))) for i in range(1, bits + 1)
    ]
    return FactoredMDP.from_factors((2,) * (bits + 1), (2,), [((0, 1), well), *others])


@pytest.mark.parametrize("switch", [1e-3, 1e-6])
def test_slowly_mixing_models(switch: float) -> None:
    model = two_wells(4, switch)
    expected = oracles.diameter(oracles.dense(model))
    assert found(model).value == pytest.approx(expected, rel=1e-14 * expected + 1e-11)


@pytest.mark.parametrize("n", [3, 20, 40])
@pytest.mark.parametrize("leak", [1e-6, 1e-12, 1e-15, 1e-17, 1e-60])
def test_a_corridor_of_slow_steps(n: int, leak: float) -> None:
    """One of n - 1 steps is taken in (stay + leak) / leak tries on average."""
    stay = 1.0 - leak
    table = np.zeros((n, 2, n))
    for s in range(n):
        for action, other in enumerate((max(s - 1, 0), min(s + 1, n - 1))):
            table[s, action, s] += stay
            table[s, action, other] += leak
    scopes = [((0, 1), table.reshape(-1, n))]
    found = diameter(FactoredMDP.from_factors((n,), (2,), scopes, []))
    assert found is not None
    true = (n - 1) * (stay + leak) / leak
    assert found.value == pytest.approx(true, rel=1e-10)
    assert found.lower <= true * (1 + 1e-15)
    assert found.upper >= true * (1 - 1e-15)
    assert found.upper - found.lower <= 1e-9 * true


def test_a_single_state_has_diameter_0() -> None:
    model = FactoredMDP.from_factors((1, 1), (2,), [((), [1.0]), ((0,), [[1.0]])])
    assert found(model).value == 0.0


def test_beyond_the_limits_there_is_no_answer_but_infinity() -> None:
    assert diameter(problem("circle:16")) is None
    assert diameter(problem("circle:5"), always_states=4, multiply_adds=1) is None
    inf = diameter(problem("large-diameter"), always_states=1, multiply_adds=1)
    assert inf is not None
    assert inf.value == math.inf


def test_progress_is_reported() -> None:
    calls: list[tuple[int, int, str]] = []
    diameter(problem("circle:4"), progress=lambda *call: calls.append(call))
    assert calls
    assert all(0 <= done <= total and text.startswith("diameter") for done, total, text in calls)
    assert calls[-1][0] == calls[-1][1]
