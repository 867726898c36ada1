"""Settings of planners: one declaration each, the same in a text, a call and a help page."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.planning.plan import Plan, Planner, Prepared, Progress, Tables
from fmdp.planning.registry import PLANNERS, planner_of
from fmdp.planning.settings import Limited


@pytest.mark.parametrize(
    "planner",
    [
        *(kind.make(kind.on_any_model) for kind in PLANNERS.kinds()),
        fmdp.Exact(criterion="discounted", tolerance=1e-3, targets="vertex", threads=2),
        fmdp.Exact(ties="first", max_iterations=7, max_seconds=0.5, memory_limit=10**9),
        fmdp.ALP(basis="pairs", method="factored", criterion="average", tie_seed=3),
        fmdp.ALP(basis=((0, 1), ("machine_2", 3)), targets="split"),
        fmdp.ALP(relevance=((0.5, 0.5), (1e-20, 1.0), (0.25, 0.75))),
        fmdp.SpanConstrained(budget=(1.0, 2.5), split="given"),
        fmdp.SpanConstrained(budget=1e20, split="search"),
    ],
    ids=repr,
)
def test_a_planner_is_a_text_and_a_call(planner: Planner) -> None:
    assert PLANNERS.read(",".join([planner.name, *planner.words()])) == planner
    names: dict[str, Any] = {type(planner).__name__: type(planner)}
    assert eval(repr(planner), names) == planner
    assert hash(eval(repr(planner), names)) == hash(planner)


@pytest.mark.parametrize("kind", PLANNERS.kinds(), ids=lambda kind: kind.name)
def test_help_has_every_setting_with_its_meaning(kind: type[Planner]) -> None:
    assert kind.__doc__ is not None
    shown = inspect.signature(kind).parameters
    assert list(shown) == [one.name for one in kind.parameters]
    for one in kind.parameters:
        assert f"\n{one.name} : " in kind.__doc__
        assert one.meaning[1:] in kind.__doc__
        assert shown[one.name].kind is inspect.Parameter.KEYWORD_ONLY


def test_what_is_shared_is_the_same_declaration() -> None:
    for one in Limited.parameters:
        for kind in PLANNERS.own():
            assert one in kind.parameters


def test_a_planner_may_be_given_as_an_object_or_a_text_or_not_at_all() -> None:
    model = fmdp.problem("circle:4,dynamics=guestrin")
    assert planner_of(None, "it") is None
    assert planner_of(fmdp.ALP(), "it") == planner_of("alp", "it") == fmdp.ALP()
    by_text = fmdp.plan(model, "alp,basis=pairs")
    assert by_text.gain_upper == fmdp.plan(model, fmdp.ALP(basis="pairs")).gain_upper
    assert by_text.gain_upper != fmdp.plan(model, "alp").gain_upper
    learner = fmdp.PSRL(planner="alp,basis=pairs")
    assert learner.planner.basis == "pairs"  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Duck:
    """Not a Planner, but it can prepare."""

    name: str = "duck"

    def prepare(self, structure: fmdp.Structure) -> Prepared:
        return fmdp.Exact().prepare(structure)


def test_any_object_that_can_prepare_is_a_planner() -> None:
    model = fmdp.problem("jao:2")
    assert planner_of(Duck(), "it") == Duck()
    assert fmdp.plan(model, Duck()).gain == pytest.approx(1.2, abs=1e-6)  # type: ignore[arg-type]


class Lazy(Planner):
    """Goes by the ranges of the rewards.

    The rest of the docstring is no part of the summary.
    """

    def prepare(self, structure: fmdp.Structure) -> Prepared:
        return PreparedLazy(structure)


class PreparedLazy(Prepared):
    def __init__(self, structure: fmdp.Structure) -> None:
        self.structure = structure

    def solve(self, tables: Tables, *, progress: Progress | None = None) -> Plan:
        upper = sum(high for _, high in self.structure.reward_ranges)
        return Plan("lazy", fmdp.Status.TOO_LARGE, gain_upper=upper)


def test_a_planner_of_a_few_lines() -> None:
    assert (Lazy.name, Lazy.summary) == ("lazy", "goes by the ranges of the rewards")
    assert Lazy.owner() == "planner lazy"
    prepared = Lazy().prepare(fmdp.problem("jao:2").structure)
    assert prepared.warm_state() == {}
    prepared.restore_warm_state({})
    plan = fmdp.plan(fmdp.problem("jao:2"), Lazy())
    assert (plan.gain_upper, plan.policy, plan.gain, plan.ties) == (2.0, None, None, None)
    with pytest.raises(FmdpError, match="plan"):
        Lazy().plan("jao:2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="abstract"):
        Planner()  # type: ignore[abstract]
