"""The gain of the returned policy is reported where it is known, and never guessed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import fmdp
from fmdp.errors import TooLarge
from fmdp.planning import choice
from fmdp.planning.evaluate import evaluate_exactly
from fmdp.planning.plan import Status


def test_the_policy_gain_is_the_optimal_gain_for_an_exact_plan() -> None:
    plan = fmdp.plan(fmdp.problem("jao:2"))
    assert plan.policy_gain == pytest.approx(1.2, abs=2e-6)


def test_an_evaluation_that_does_not_fit_leaves_the_plan_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def too_large(*_: Any, **__: Any) -> None:
        raise TooLarge("too large", needed_bytes=2, limit_bytes=1)

    monkeypatch.setattr(choice, "evaluate_exactly", too_large)
    plan = fmdp.plan(fmdp.problem("jao:2"))
    assert plan.status is Status.CONVERGED
    assert plan.policy_gain is None


@pytest.mark.parametrize(
    ("evaluation", "plan_status"),
    [
        (Status.INTERRUPTED, Status.INTERRUPTED),
        (Status.ITERATION_LIMIT, Status.CONVERGED),
    ],
)
def test_an_evaluation_that_stopped_early_is_no_gain(
    monkeypatch: pytest.MonkeyPatch, evaluation: Status, plan_status: Status
) -> None:
    def stopped(*args: Any, **settings: Any) -> Any:
        return replace(evaluate_exactly(*args, **settings), status=evaluation, gain=None)

    monkeypatch.setattr(choice, "evaluate_exactly", stopped)
    plan = fmdp.plan(fmdp.problem("jao:2"))
    assert plan.status is plan_status
    assert plan.policy_gain is None
    assert plan.gain == pytest.approx(1.2, abs=1e-6)


def test_parts_with_too_many_states_to_list_are_planned_otherwise() -> None:
    # The two halves of this tree are exchangeable and have 2^31 states each.
    chosen = choice.choose_planner_of(fmdp.problem("tree:63,dynamics=ippc"))
    assert chosen.planner.name == "alp"
