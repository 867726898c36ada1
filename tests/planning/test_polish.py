"""The bias to its last digits: by hand, against the oracle, and where there is none to be had."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.elimination.backup import TimeUp, backup_for
from fmdp.model import FactoredMDP
from fmdp.model.independence import independent_parts
from fmdp.planning.exact import phases
from fmdp.planning.exact.polish import unique_bias
from fmdp.planning.exact.solver import State
from fmdp.planning.plan import Status
from fmdp.planning.tabular.end_components import only_class
from fmdp.testing import oracles


def two_states(left: float, returned: float, less: float) -> FactoredMDP:
    """1 a step in the first state, `less` less in the second, which are left with these
    probabilities. A second action pays nothing."""
    law = [[1.0 - left, left], [returned, 1.0 - returned]]
    return FactoredMDP.from_factors(
        (2,), (2,), [((0,), law)], [((0, 1), [[1.0, 0.0], [1.0 - less, 0.0]])]
    )


def ending(model: FactoredMDP, h: np.ndarray) -> tuple[Any, State]:
    """As if value iteration had ended there."""
    backup = backup_for(model)
    inside = backup.to_internal(h)
    new = np.empty_like(inside)
    return backup, State(inside, new, new.copy(), 0.0, 10.0, sweeps=1, accelerated=True)


def test_a_state_that_is_hardly_ever_left_has_its_bias() -> None:
    """(left + returned) (h(0) - h(1)) is the difference of what they pay: 50, and no sweep sees
    more than a millionth of it."""
    plan = fmdp.Exact().plan(two_states(1e-8, 1e-8, 1e-6))
    assert plan.status is Status.CONVERGED
    assert plan.span == pytest.approx(50.0, rel=1e-8)
    assert plan.gain == pytest.approx(1.0 - 0.5e-6, abs=1e-13)
    assert plan.gain_lower <= 1.0 - 0.5e-6 <= plan.gain_upper  # type: ignore[operator]


@pytest.mark.parametrize(
    "problem",
    [
        "circle:4",
        "circle:6,dynamics=guestrin",
        "three-leg:5,dynamics=talebi",
        "star:4,dynamics=ippc",
        "machines:2",
        "riverswim:2",
        "jao:3",
        *(f"random:4,values=3,seed={seed}" for seed in range(6)),
    ],
)
def test_it_is_the_bias_of_an_optimal_policy(problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all of these the bias is known to be the only one: nothing is written out for it."""

    def not_needed(*_: object, **__: object) -> None:
        raise AssertionError("polished by writing the model out")

    monkeypatch.setattr(phases, "average_solution", not_needed)
    model = fmdp.problem(problem)
    plan = fmdp.Exact().plan(model)
    known = oracles.optimal(oracles.dense(model))
    assert plan.bias is not None
    own = np.asarray(plan.bias).ravel() - known.bias
    assert float(own.max() - own.min()) < 1e-9 * max(1.0, float(np.ptp(known.bias)))
    assert plan.gain_lower <= known.gain[0] + 1e-12  # type: ignore[operator]
    assert plan.gain_upper >= known.gain[0] - 1e-12  # type: ignore[operator]
    assert plan.gain_upper - plan.gain_lower < 1e-10  # type: ignore[operator]


def test_a_policy_that_is_not_the_best_is_made_better() -> None:
    """From an h at which others are greedy."""
    model = fmdp.problem("circle:4,dynamics=guestrin")
    known = oracles.optimal(oracles.dense(model))
    rng = np.random.default_rng(0)
    backup, start = ending(model, known.bias + rng.random(16))
    before = start.h.copy()
    found = unique_bias(model, backup, start, 1e-6)
    assert found is not None
    assert np.array_equal(start.h, before)
    own = backup.to_canonical(found.h) - known.bias
    assert float(own.max() - own.min()) < 1e-10
    assert found.lower <= known.gain[0] <= found.upper
    assert found.whole
    assert np.allclose(found.new - found.h, known.gain[0], atol=1e-12)


def test_two_classes_have_no_bias_of_this_kind() -> None:
    """Where a policy stays in either half there is no single equation to solve."""
    model = FactoredMDP.from_factors((2,), (1,), [((0,), np.eye(2))], [((0,), [1.0, 1.0])])
    backup, start = ending(model, np.zeros(2))
    assert unique_bias(model, backup, start, 1e-6) is None


_PRODUCT = fmdp.problem("large-diameter")
PERIODIC = independent_parts(_PRODUCT.structure)[0].model(_PRODUCT)
"""One of its two circles: every policy has a period, and the bias is not unique."""


@pytest.mark.parametrize(
    ("stop", "status"), [(TimeUp, "converged"), (KeyboardInterrupt, "interrupted")]
)
@pytest.mark.parametrize(
    ("name", "model"), [("unique_bias", fmdp.problem("circle:4")), ("average_solution", PERIODIC)]
)
def test_what_stops_it_costs_no_bounds(
    name: str,
    model: FactoredMDP,
    stop: type[BaseException],
    status: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Time that is up, or Ctrl-C, after the bounds have met: they and the policy stay."""

    def stopped(*_: object, **__: object) -> None:
        raise stop

    monkeypatch.setattr(phases, name, stopped)
    plan = fmdp.Exact().plan(model)
    assert plan.status.value == status
    best = oracles.optimal(oracles.dense(model)).gain[0]
    assert plan.gain_lower <= best <= plan.gain_upper  # type: ignore[operator]
    assert plan.gain_upper - plan.gain_lower <= 1e-6  # type: ignore[operator]
    assert plan.policy is not None
    assert fmdp.evaluate(model, plan.policy).gain == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("leak", [1e-9, 1e-12, 1e-15, 1e-18, 1e-25])
def test_converged_means_bounds_within_the_tolerance(leak: float) -> None:
    """However large h is: what its size would do to the engine's rounding is not told."""
    law = [[1.0 - leak, leak], [leak, 1.0 - leak]]
    model = FactoredMDP.from_factors(
        (2,), (1,), [((0,), law)], [((0,), [1.0, 1.0 - 8e-7])], reward_ranges=[(0.0, 1.0)]
    )
    plan = fmdp.Exact().plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.gain == pytest.approx(1.0 - 4e-7, abs=1e-9)
    assert plan.gain_upper - plan.gain_lower < 1e-8  # type: ignore[operator]


@pytest.mark.parametrize(
    ("slow", "pay"), [(1e-10, 1e-11), (1e-11, 1e-10), (1e-12, 1e-10), (1e-12, 1e-9)]
)
def test_a_large_part_does_not_hide_the_actions_of_a_small_one(slow: float, pay: float) -> None:
    """Two variables that know nothing of each other: the first has a span of 8e-7 / (2 slow), and
    the second, left at 1e-9 or 3e-9 as the action has it, one of pay / 4e-9."""
    e = 1e-9
    rows = np.array([[[1 - e, e], [1 - e, e]], [[e, 1 - e], [3 * e, 1 - 3 * e]]]).reshape(4, 2)
    model = FactoredMDP.from_factors(
        (2, 2),
        (2,),
        [((0,), [[1 - slow, slow], [slow, 1 - slow]]), ((1, 2), rows)],
        [((0,), [1.0, 1.0 - 8e-7]), ((1,), [pay, 0.0])],
    )
    spans = fmdp.Exact().plan(model).factored_spans
    assert spans == pytest.approx((4e-7 / slow, pay / 4e-9), rel=1e-4)


def test_a_corridor_is_understood_at_once() -> None:
    """One way, to the end: S classes, of which one is never left."""
    n = 400
    successors = np.minimum(np.arange(n) + 1, n - 1)[:, None]
    found = only_class(successors, np.ones((n, 1), dtype=bool), n)
    assert found is not None
    assert np.flatnonzero(found).tolist() == [n - 1]


def test_a_memory_limit_holds_for_it_too() -> None:
    model = fmdp.problem("circle:4")
    backup, start = ending(model, np.zeros(16))
    assert unique_bias(model, backup, start, 1e-6, 64) is None
