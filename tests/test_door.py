"""Python's door: whatever is handed to a public name is used, or refused in one line.

Every public name of `fmdp.__all__` is called with arguments that a clumsy user might give. What
comes back is an FmdpError whose text is one line that is not empty; never an AttributeError or a
TypeError from inside. (A wrong number of arguments stays Python's own TypeError.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fmdp
from fmdp.errors import FmdpError
from fmdp.learning.registry import learners
from fmdp.measures import measure
from fmdp.planning import settings as declared
from fmdp.simulation import Reference, Simulation, evaluate_by_simulation, reference_for

MODEL = fmdp.problem("jao:2")
STRUCTURE = MODEL.structure
ONE_ACTION = fmdp.problem("circle:2,dynamics=guestrin")
FREE = Reference(1.0, "exact", None, 0.0)
LEARNERS = (fmdp.PSRL, fmdp.DORL, fmdp.FSRL, fmdp.FRmax)
PLANNERS: tuple[Callable[..., Any], ...] = (
    fmdp.Exact,
    fmdp.ALP,
    lambda **given: fmdp.SpanConstrained(**{"budget": 1.0, **given}),
)


class Junk:
    """Nothing that anybody could want."""

    def __repr__(self) -> str:
        return "Junk()"


JUNK: tuple[Any, ...] = (
    Junk(), Junk, object, "nonsense", "", "a\nb", b"bytes", -1, 2.5, math.nan, math.inf, True, 1j,
    [], (), {}, {"a": 1}, [None], [[1], [1, 2]], np.array([1, 2]), np.array(3.5), np.zeros((2, 2)),
    np.bool_(True), lambda *_: None, range(3), 10**400, "nul\0",
)  # fmt: skip


def refused(call: Callable[[], Any]) -> str:
    """The one line of the refusal."""
    with pytest.raises(FmdpError) as refusal:
        call()
    line = str(refusal.value)
    assert line
    assert "\n" not in line
    assert len(line) < 1000
    return line


def used_or_refused(call: Callable[[], Any]) -> None:
    try:
        call()
    except FmdpError as error:
        line = str(error)
    else:
        line = "used"
    assert line
    assert "\n" not in line


def _entries() -> dict[str, Callable[[Any], Any]]:
    """A call of one argument for every argument of every public name."""
    sizes = (2, 2)
    scopes = ((0, 2), (1, 3))
    policy = fmdp.plan(MODEL, fmdp.Exact()).policy
    table = fmdp.TablePolicy(sizes, sizes, np.zeros(4, dtype=np.int64))
    calls: dict[str, Callable[[Any], Any]] = {
        "Environment.model": lambda x: fmdp.Environment(x, 0),
        "Environment.generator": lambda x: fmdp.Environment(MODEL, x),
        "Environment.gaps": lambda x: fmdp.Environment(MODEL, 0, gaps=x),
        "Environment.block": lambda x: fmdp.Environment(MODEL, 0, block=x),
        "Environment.step": lambda x: fmdp.Environment(MODEL, 0).step(x),
        "FactoredMDP.structure": lambda x: fmdp.FactoredMDP(x, MODEL.transitions, MODEL.rewards),
        "FactoredMDP.transitions": lambda x: fmdp.FactoredMDP(STRUCTURE, x, MODEL.rewards),
        "FactoredMDP.transition": lambda x: fmdp.FactoredMDP(STRUCTURE, [x, x], MODEL.rewards),
        "FactoredMDP.rewards": lambda x: fmdp.FactoredMDP(STRUCTURE, MODEL.transitions, x),
        "FactoredMDP.reward": lambda x: fmdp.FactoredMDP(STRUCTURE, MODEL.transitions, [x, x]),
        "FactoredMDP.noise": lambda x: fmdp.FactoredMDP(
            STRUCTURE, MODEL.transitions, MODEL.rewards, noise=x
        ),
        "FactoredMDP.initial_state": lambda x: fmdp.FactoredMDP(
            STRUCTURE, MODEL.transitions, MODEL.rewards, initial_state=x
        ),
        "FactoredMDP.name": lambda x: fmdp.FactoredMDP(
            STRUCTURE, MODEL.transitions, MODEL.rewards, name=x
        ),
        "FactoredMDP.from_factors": lambda x: fmdp.FactoredMDP.from_factors(x, x, x, x),
        "FactoredMDP.from_factors.transitions": lambda x: fmdp.FactoredMDP.from_factors(
            sizes, sizes, x
        ),
        "FactoredMDP.from_factors.transition": lambda x: fmdp.FactoredMDP.from_factors(
            sizes, sizes, [x, x]
        ),
        "FactoredMDP.expected_reward": lambda x: MODEL.expected_reward(x, x),
        "FactoredMDP.transition_row": lambda x: MODEL.transition_row(0, x, (0, 0)),
        "Noise.kind": lambda x: fmdp.Noise(x),
        "Noise.scale": lambda x: fmdp.Noise("gaussian", x),
        "OptimisticTables.structure": lambda x: fmdp.OptimisticTables(x, (), (), ()),
        "OptimisticTables.lower": lambda x: fmdp.OptimisticTables(STRUCTURE, x, x, x),
        "OptimisticTables.from_model": lambda x: fmdp.OptimisticTables.from_model(x),
        "OptimisticTables.from_widths": lambda x: fmdp.OptimisticTables.from_widths(
            STRUCTURE, x, x, x, x
        ),
        "Oracle.model": lambda x: fmdp.Oracle(x),
        "Oracle.planner": lambda x: fmdp.Oracle(MODEL, planner=x),
        "Policy": lambda x: policy(x),
        "Random.structure": lambda x: fmdp.Random(x),
        "Random.planner": lambda x: fmdp.Random(STRUCTURE, planner=x),
        "Random.generator": lambda x: fmdp.Random(STRUCTURE, generator=x),
        "Structure.state_sizes": lambda x: fmdp.Structure(x, sizes, scopes, ()),
        "Structure.action_sizes": lambda x: fmdp.Structure(sizes, x, scopes, ()),
        "Structure.transition_scopes": lambda x: fmdp.Structure(sizes, sizes, x, ()),
        "Structure.transition_scope": lambda x: fmdp.Structure(sizes, sizes, (x, x), ()),
        "Structure.reward_scopes": lambda x: fmdp.Structure(sizes, sizes, scopes, x),
        "Structure.reward_ranges": lambda x: fmdp.Structure(
            sizes, sizes, scopes, ((0,),), reward_ranges=x
        ),
        "TablePolicy.sizes": lambda x: fmdp.TablePolicy(x, x, np.zeros(4, dtype=np.int64)),
        "TablePolicy.actions": lambda x: fmdp.TablePolicy(sizes, sizes, x),
        "TablePolicy": lambda x: table(x),
        "TablePolicy.save": lambda x: table.save(x) if not isinstance(x, str) else refuse(),
        "evaluate.model": lambda x: fmdp.evaluate(x, policy),
        "evaluate.policy": lambda x: fmdp.evaluate(MODEL, x),
        "evaluate_by_simulation.steps": lambda x: evaluate_by_simulation(MODEL, policy, steps=x),
        "load": lambda x: fmdp.load(x),
        "load_learner": lambda x: fmdp.load_learner(x),
        "load_policy": lambda x: fmdp.load_policy(x),
        "load_policy.structure": lambda x: fmdp.load_policy("nowhere.npz", x),
        "measure.model": lambda x: measure(x),
        "measure.planner": lambda x: measure(ONE_ACTION, x),
        "measure.progress": lambda x: measure(ONE_ACTION, progress=x),
        "plan.model": lambda x: fmdp.plan(x),
        "plan.planner": lambda x: fmdp.plan(MODEL, x),
        "plan.progress": lambda x: fmdp.plan(MODEL, progress=x),
        "problem": lambda x: fmdp.problem(x),
        "reference_for": lambda x: reference_for(x),
        "save.model": lambda x: fmdp.save(x, "nowhere/model.json"),
        "save.path": lambda x: fmdp.save(MODEL, x) if not isinstance(x, str) else refuse(),
        "simulate.model": lambda x: fmdp.simulate(x, "random", 1),
        "simulate.learner": lambda x: fmdp.simulate(MODEL, x, 3, reference=FREE),
        "simulate.steps": lambda x: fmdp.simulate(MODEL, "random", x, reference=FREE),
        "simulate.seed": lambda x: fmdp.simulate(MODEL, "random", 1, seed=x, reference=FREE),
        "simulate.reference": lambda x: fmdp.simulate(MODEL, "random", 1, reference=x),
        "simulate.progress": lambda x: fmdp.simulate(
            MODEL, "random", 1, reference=FREE, progress=x
        ),
        "Simulation.run": lambda x: Simulation(MODEL, "random", reference=FREE).run(x),
    }
    for argument in ("tolerance", "max_iterations", "memory_limit", "steps", "seed", "progress"):
        calls[f"evaluate.{argument}"] = lambda x, name=argument: fmdp.evaluate(
            MODEL, policy, **{name: x}
        )
    for build in LEARNERS:
        name = build.__name__
        calls[f"{name}.structure"] = lambda x, build=build: build(x)
        calls[f"{name}.planner"] = lambda x, build=build: build(STRUCTURE, planner=x)
        calls[f"{name}.generator"] = lambda x, build=build: build(STRUCTURE, generator=x)
        calls[f"{name}.act"] = lambda x, build=build: build(STRUCTURE, generator=0).act(x)
        calls[f"{name}.observe"] = lambda x, build=build: build(STRUCTURE, generator=0).observe(
            x, x, x, x
        )
        for one in build.parameters:
            calls[f"{name}.{one.name}"] = lambda x, build=build, one=one: build(
                STRUCTURE, **{one.name: x}
            )
    fields = (declared.EXACT_FIELDS, declared.ALP_FIELDS, declared.SPAN_FIELDS)
    for build, own, name in zip(PLANNERS, fields, ("Exact", "ALP", "Span"), strict=True):
        for one in own:
            calls[f"{name}.{one.name}"] = lambda x, build=build, one=one: build(**{one.name: x})
        calls[f"{name}.plan"] = lambda x, build=build: build().plan(x)
        calls[f"{name}.prepare"] = lambda x, build=build: build().prepare(x)
    calls["ALP.basis.prepare"] = lambda x: fmdp.ALP(basis=x).prepare(STRUCTURE)
    calls["ALP.relevance.prepare"] = lambda x: fmdp.ALP(relevance=x).prepare(STRUCTURE)
    return calls


def refuse() -> None:
    """For texts that are good names of files: the test is to leave none behind."""
    raise FmdpError("not written")


ENTRIES = _entries()


def test_every_public_name_has_its_door_tried() -> None:
    tried = {name.split(".")[0] for name in ENTRIES} | {"Exact", "SpanConstrained"}
    records = {"FmdpError", "Plan", "Run", "Status", "__version__"}  # made by fmdp, not by users
    assert set(fmdp.__all__) - records <= tried
    assert {kind.build.__name__ for kind in learners()} <= tried


@pytest.mark.parametrize("entry", ENTRIES)
def test_junk_is_used_or_refused_in_one_line(entry: str) -> None:
    for junk in JUNK:
        used_or_refused(lambda junk=junk: ENTRIES[entry](junk))
