"""The checkers pass on everything registered, and fail on broken examples."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from fmdp import TablePolicy
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP, Structure
from fmdp.planning.exact.planner import Exact, PreparedExact
from fmdp.planning.plan import Plan, Planner, Prepared, Tables
from fmdp.planning.registry import PLANNERS
from fmdp.problems import problem
from fmdp.testing import ContractBroken, check_planner


@pytest.mark.parametrize("kind", PLANNERS.kinds(), ids=lambda kind: kind.name)
def test_every_planner_keeps_its_contract(kind: type[Planner]) -> None:
    check_planner(kind.make(kind.on_any_model))


@pytest.mark.parametrize("settings", [{"ties": "last"}, {"targets": "vertex"}])
def test_other_settings_of_the_exact_planner(settings: dict[str, Any]) -> None:
    check_planner(Exact(**settings))


@dataclass(frozen=True)
class Broken:
    """The exact planner with its plans spoilt."""

    spoil: Callable[[Plan], Plan]

    name = "exact"

    def prepare(self, structure: Structure) -> PreparedExact:
        return Exact().prepare(structure)

    def plan(self, model: FactoredMDP, *, progress: Any = None) -> Plan:
        return self.spoil(Exact().plan(model, progress=progress))


def too_hopeful(plan: Plan) -> Plan:
    assert plan.gain_upper is not None
    return replace(plan, gain_lower=plan.gain_upper + 0.1, gain=None)


def too_low(plan: Plan) -> Plan:
    assert plan.gain_upper is not None
    low = plan.gain_upper - 0.1
    return replace(plan, gain_upper=low, gain=low, gain_lower=low)


def wrong_policy_gain(plan: Plan) -> Plan:
    return replace(plan, policy_gain=0.123)


def wrong_span(plan: Plan) -> Plan:
    return replace(plan, span=(plan.span or 0.0) + 1.0)


def unsigned(plan: Plan) -> Plan:
    return replace(plan, planner="someone")


def nan(plan: Plan) -> Plan:
    return replace(plan, gain=float("nan"))


def no_policy(plan: Plan) -> Plan:
    return replace(plan, policy=None)


class Fickle:
    def __init__(self, policy: TablePolicy) -> None:
        self.policy, self.asked = policy, 0

    def __call__(self, state: Any) -> tuple[int, ...]:
        self.asked += 1
        return (self.asked % 2, *self.policy(state)[1:])

    def save(self, path: Any) -> None:
        self.policy.save(path)


def fickle(plan: Plan) -> Plan:
    assert isinstance(plan.policy, TablePolicy)
    return replace(plan, policy=Fickle(plan.policy))


def out_of_range(plan: Plan) -> Plan:
    assert isinstance(plan.policy, TablePolicy)
    sizes = tuple(size + 1 for size in plan.policy.action_sizes)
    actions = np.full(len(plan.policy.actions), np.prod(sizes) - 1)
    return replace(plan, policy=TablePolicy(plan.policy.state_sizes, sizes, actions))


@pytest.mark.parametrize(
    ("spoil", "promise"),
    [
        (too_hopeful, "gain_lower <= gain <= gain_upper"),
        (too_low, "bounds the best gain from above"),
        (wrong_policy_gain, "says what its policy gains"),
        (wrong_span, "the span of its bias"),
        (unsigned, "signs its plan"),
        (nan, "finite gain"),
        (no_policy, "has a policy unless"),
        (fickle, "the same twice"),
        (out_of_range, "with an action"),
    ],
)
def test_a_broken_planner_is_caught(spoil: Callable[[Plan], Plan], promise: str) -> None:
    with pytest.raises(ContractBroken, match=promise):
        check_planner(Broken(spoil), [problem("circle:3")])


class Restless(Exact):
    """Breaks ties differently every time."""

    name = "exact"
    times: ClassVar[Iterator[int]] = itertools.count()

    def plan(self, model: FactoredMDP, *, progress: Any = None) -> Plan:
        return Exact(tie_seed=next(self.times)).plan(model)


BROKEN = """
import fmdp

@fmdp.register
class Boastful(fmdp.Exact):
    name = "exact-but-boastful"

    def plan(self, model, *, progress=None):
        from dataclasses import replace
        plan = super().plan(model, progress=progress)
        return replace(plan, gain=None, gain_lower=plan.gain_lower + 1)
"""


def test_a_broken_planner_that_is_registered_fails_these_tests(tmp_path: Path) -> None:
    """The list of the tests is the registry, so that new entries are tested automatically."""
    (tmp_path / "boastful.py").write_text(BROKEN)
    selected = "test_every_planner_keeps_its_contract and boastful"
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "0",
            "-q",
            "-p",
            "boastful",
            "-k",
            selected,
            __file__,
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "1 failed" in ran.stdout
    assert "planner exact-but-boastful on " in ran.stdout
    assert "does not keep this promise: has gain_lower <= gain <= gain_upper" in ran.stdout


class ForModels(Exact):
    """Takes no optimistic tables."""

    name = "exact"

    def prepare(self, structure: Structure) -> Any:
        return PreparedForModels(structure)


class PreparedForModels(Prepared):
    def __init__(self, structure: Structure) -> None:
        self.structure = structure

    def solve(self, tables: Tables, *, progress: Any = None) -> Plan:
        if not isinstance(tables, FactoredMDP):
            raise InvalidParameter("planner for-models plans for models")
        return Exact().plan(tables)


def test_a_planner_may_refuse_optimistic_tables() -> None:
    check_planner(ForModels(), [problem("circle:3")])


@dataclass(frozen=True)
class Duck:
    """No Planner by birth: it can prepare, and that is all."""

    name: str = "exact"

    def prepare(self, structure: Structure) -> PreparedExact:
        return Exact().prepare(structure)


def test_a_planner_may_be_given_as_a_text() -> None:
    check_planner("exact,ties=last", [problem("circle:3")])
    with pytest.raises(InvalidParameter, match="key=value"):
        check_planner("exact,last", [])


def test_a_planner_need_not_inherit() -> None:
    check_planner(Duck(), [problem("circle:3")])  # type: ignore[arg-type]


def test_a_planner_with_a_memory_is_caught() -> None:
    with pytest.raises(ContractBroken, match="same plan twice"):
        check_planner(Restless(), [problem("circle:7,dynamics=guestrin")])


@dataclass(unsafe_hash=True)
class Soft:
    tolerance: float = 1e-6
    name: str = "soft"


def test_a_planner_that_can_be_changed_is_caught() -> None:
    with pytest.raises(ContractBroken, match="frozen"):
        check_planner(Soft(), [])  # type: ignore[arg-type]
