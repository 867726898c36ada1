"""Python's door: whatever is handed to a public name is used, or refused in one line.

Every public name of `fmdp.__all__` is called with arguments that a clumsy user might give. What
comes back is an FmdpError whose text is one line that is not empty; never an AttributeError or a
TypeError from inside. (A wrong number of arguments stays Python's own TypeError.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp._base.parameters import resolve
from fmdp.errors import FmdpError
from fmdp.learning.agent import Agent
from fmdp.learning.registry import LEARNERS
from fmdp.measures import measure
from fmdp.planning import registry
from fmdp.planning.choice import choose_planner
from fmdp.problems import PROBLEMS
from fmdp.simulation import Reference, Simulation, evaluate_by_simulation, reference_for

MODEL = fmdp.problem("jao:2")
STRUCTURE = MODEL.structure
PLAN = fmdp.plan(MODEL)
APPROXIMATE = fmdp.ALP(basis="singles").plan(MODEL)
ONE_ACTION = fmdp.problem("circle:2,dynamics=guestrin")
FREE = Reference(1.0, "exact", None, 0.0)
STATISTICS = fmdp.Statistics(STRUCTURE)
PLANNED = fmdp.plan(MODEL, fmdp.Exact())
PLANNERS: tuple[Callable[..., Any], ...] = (
    fmdp.Exact,
    fmdp.ALP,
    lambda **given: fmdp.SpanConstrained(**{"budget": 1.0, **given}),
    fmdp.Coupled,
    fmdp.Counts,
)


class Junk:
    """Nothing that anybody could want."""

    def __repr__(self) -> str:
        return "Junk()"


JUNK: tuple[Any, ...] = (
    Junk(),
    Junk,
    object,
    "nonsense",
    "",
    "a\nb",
    b"bytes",
    -1,
    2.5,
    math.nan,
    math.inf,
    True,
    1j,
    [],
    (),
    {},
    {"a": 1},
    [None],
    [[1], [1, 2]],
    np.array([1, 2]),
    np.array(3.5),
    np.zeros((2, 2)),
    np.bool_(True),
    lambda *_: None,
    range(3),
    10**400,
    "nul\0",
)


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


FUNCTIONS: dict[str, Any] = {
    "states": {"a": 2},
    "actions": {"b": 2},
    "parents": {"a": ["a"]},
    "transition": lambda name, values: values["a"],
    "reward": (),
    "costs": (),
    "alike": None,
    "reward_alike": None,
    "reward_ranges": None,
    "groups": (),
    "forbid": (),
    "at_most": None,
    "constraints": (),
    "noise": None,
    "initial_state": None,
    "name": "",
}


def asked_functions(**given: Any) -> Any:
    return fmdp.FactoredMDP.from_functions(**{**FUNCTIONS, **given})


SAMPLED: dict[str, Any] = {
    "step": lambda state, action, generator: (state, 0.0),
    "variables": ({"a": 2}, {"b": 2}),
    "samples": 4,
    "seed": 0,
    "parents": None,
    "max_parents": None,
    "reward_ranges": None,
    "reset": None,
    "decode": None,
    "initial_state": None,
    "prior": None,
    "rho": 0.1,
    "zeros_from_samples": False,
    "name": None,
    "progress": None,
}


def _entries() -> dict[str, Callable[[Any], Any]]:
    """A call of one argument for every argument of every public name."""
    sizes = (2, 2)
    scopes = ((0, 2), (1, 3))
    policy = PLANNED.policy
    assert policy is not None
    table = fmdp.TablePolicy(sizes, sizes, np.zeros(4, dtype=np.int64))
    calls: dict[str, Callable[[Any], Any]] = {
        "register.kind": lambda x: fmdp.register(x),
        "Environment.model": lambda x: fmdp.Environment(x, 0),
        "Environment.generator": lambda x: fmdp.Environment(MODEL, x),
        "Environment.gaps": lambda x: fmdp.Environment(MODEL, 0, gaps=x),
        "Environment.block": lambda x: fmdp.Environment(MODEL, 0, block=x),
        "Environment.step": lambda x: fmdp.Environment(MODEL, 0).step(x),
        "Alike.transitions": lambda x: fmdp.Alike(x, ()),
        "Alike.transition": lambda x: fmdp.Alike((x,), ()),
        "Alike.rewards": lambda x: fmdp.Alike((), x),
        "Alike.by_key": lambda x: fmdp.Alike.by_key(STRUCTURE, x, x),
        **{
            f"FactoredMDP.from_functions.{name}": lambda x, name=name: asked_functions(**{name: x})
            for name in FUNCTIONS
        },
        **{
            f"from_simulator.{name}": lambda x, name=name: fmdp.from_simulator(
                **{**SAMPLED, name: x}
            )
            for name in SAMPLED
        },
        "from_simulator.answer": lambda x: fmdp.from_simulator(**{**SAMPLED, "step": lambda *_: x}),
        "from_simulator.next_state": lambda x: fmdp.from_simulator(
            **{**SAMPLED, "step": lambda *_: (x, 0.0)}
        ),
        "from_simulator.reward": lambda x: fmdp.from_simulator(
            **{**SAMPLED, "step": lambda state, *_: (state, x)}
        ),
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
        "OptimisticTables.upper": lambda x: fmdp.OptimisticTables(
            STRUCTURE, MODEL.transitions, [np.zeros(4), np.zeros(4)], MODEL.rewards, x
        ),
        "OptimisticTables.from_balls": lambda x: fmdp.OptimisticTables.from_balls(
            STRUCTURE, x, x, x
        ),
        "OptimisticTables.from_balls.radius": lambda x: fmdp.OptimisticTables.from_balls(
            STRUCTURE, MODEL.transitions, [x, x], MODEL.rewards
        ),
        "OptimisticTables.from_model": lambda x: fmdp.OptimisticTables.from_model(x),
        "OptimisticTables.from_widths": lambda x: fmdp.OptimisticTables.from_widths(
            STRUCTURE, x, x, x, x
        ),
        "AtMost.actions": lambda x: fmdp.AtMost(x, 1),
        "AtMost.most": lambda x: fmdp.AtMost((2, 3), x),
        "AtMost.idle": lambda x: fmdp.AtMost((2, 3), 1, x),
        "AtMost.name": lambda x: fmdp.AtMost((2, 3), 1, name=x),
        "Forbidden.scope": lambda x: fmdp.Forbidden(x, np.zeros(4, dtype=np.bool_)),
        "Forbidden.table": lambda x: fmdp.Forbidden((0, 2), x),
        "Forbidden.name": lambda x: fmdp.Forbidden((0, 2), np.zeros(4, dtype=np.bool_), x),
        "forbid.structure": lambda x: fmdp.forbid(x, {"a0": 1}),
        "forbid.rule": lambda x: fmdp.forbid(MODEL, x),
        "forbid.value": lambda x: fmdp.forbid(MODEL, {"a0": x}),
        "forbid.name": lambda x: fmdp.forbid(MODEL, {"a0": 1}, name=x),
        "apart.structure": lambda x: fmdp.apart(x, ["a0", "a1"]),
        "apart.variables": lambda x: fmdp.apart(MODEL, x),
        "apart.besides": lambda x: fmdp.apart(MODEL, ["a0", "a1"], besides=x),
        "at_most.structure": lambda x: fmdp.at_most(x, 1),
        "at_most.most": lambda x: fmdp.at_most(MODEL, x),
        "at_most.actions": lambda x: fmdp.at_most(MODEL, 1, x),
        "at_most.idle": lambda x: fmdp.at_most(MODEL, 1, idle=x),
        "budget.structure": lambda x: fmdp.budget(x, 1, {"a0": [0, 1]}),
        "budget.limit": lambda x: fmdp.budget(MODEL, x, {"a0": [0, 1]}),
        "budget.costs": lambda x: fmdp.budget(MODEL, 1, x),
        "budget.costs of one": lambda x: fmdp.budget(MODEL, 1, {"a0": x}),
        "Budget.actions": lambda x: fmdp.Budget(x, 1, ((0, 1),)),
        "Budget.limit": lambda x: fmdp.Budget((2,), x, ((0, 1),)),
        "Budget.costs": lambda x: fmdp.Budget((2,), 1, x),
        "Effect.states": lambda x: fmdp.Effect(x, (2,), np.zeros(4, dtype=np.int64)),
        "Effect.actions": lambda x: fmdp.Effect((0,), x, np.zeros(4, dtype=np.int64)),
        "Effect.outcome": lambda x: fmdp.Effect((0,), (2,), x),
        "Effects.components": lambda x: fmdp.Effects(x, ((0,), (1,))),
        "Effects.after_scopes": lambda x: fmdp.Effects((), x),
        "Effects.rewards": lambda x: fmdp.Effects((), ((0,), (1,)), x),
        "Effects.after_reward_scopes": lambda x: fmdp.Effects((), ((0,), (1,)), (), x),
        "FactoredMDP.from_effects": lambda x: fmdp.FactoredMDP.from_effects(x, x, x, x, x),
        "FactoredMDP.from_effects.effects": lambda x: fmdp.FactoredMDP.from_effects(
            sizes, sizes, x, [((0,), np.eye(2)), ((1,), np.eye(2))]
        ),
        "FactoredMDP.from_effects.rewards": lambda x: fmdp.FactoredMDP.from_effects(
            sizes,
            sizes,
            [((i,), (i + 2,), [0, 1, 1, 0]) for i in (0, 1)],
            [((0,), np.eye(2)), ((1,), np.eye(2))],
            [x],
        ),
        "FactoredMDP.from_functions": lambda x: fmdp.FactoredMDP.from_functions(x, x, x, x, x),
        "FactoredMDP.from_functions.transition": lambda x: fmdp.FactoredMDP.from_functions(
            {"s": 2}, {"a": 2}, {"s": ["s", "a"]}, lambda _, now: x
        ),
        "FactoredMDP.from_functions.parents": lambda x: fmdp.FactoredMDP.from_functions(
            {"s": 2}, {"a": 2}, {"s": x}, lambda _, now: 0
        ),
        "FactoredMDP.from_functions.reward": lambda x: fmdp.FactoredMDP.from_functions(
            {"s": 2}, {"a": 2}, {"s": ["s"]}, lambda _, now: 0, {"r": (["s"], lambda now: x)}
        ),
        "FactoredMDP.from_functions.alike": lambda x: fmdp.FactoredMDP.from_functions(
            {"s": 2}, {"a": 2}, {"s": ["s"]}, lambda _, now: 0, alike=lambda _, now: x
        ),
        "FactoredMDP.from_functions.forbid": lambda x: fmdp.FactoredMDP.from_functions(
            {"s": 2}, {"a": 2}, {"s": ["s"]}, lambda _, now: 0, forbid=x
        ),
        "FactoredMDP.with_constraints": lambda x: MODEL.with_constraints(x),
        "FactoredMDP.intervals": lambda x: fmdp.FactoredMDP(
            STRUCTURE, MODEL.transitions, MODEL.rewards, intervals=x
        ),
        "Intervals.lower": lambda x: fmdp.Intervals(x, x, x, x),
        "Intervals.table": lambda x: fmdp.FactoredMDP(
            STRUCTURE,
            MODEL.transitions,
            MODEL.rewards,
            intervals=fmdp.Intervals((x, x), MODEL.transitions, MODEL.rewards, MODEL.rewards),
        ),
        "Structure.alike": lambda x: dataclasses.replace(STRUCTURE, alike=x),
        "Structure.constraints": lambda x: dataclasses.replace(STRUCTURE, constraints=x),
        "Structure.effects": lambda x: dataclasses.replace(STRUCTURE, effects=x),
        **{
            f"{kind.__name__}.{field}": lambda x, kind=kind, field=field: counting(kind, field, x)
            for kind in (fmdp.Count, fmdp.Any, fmdp.All, fmdp.Sum)
            for field in ("over", "of", "cap", "clip")
        },
        "Derived.name": lambda x: fmdp.Derived(x, 2, (0,), [0, 1]),
        "Derived.values": lambda x: fmdp.Derived("z", x, (0,), [0, 1]),
        "Derived.scope": lambda x: STRUCTURE.with_derived([fmdp.Derived("z", 2, x, [0, 1])]),
        "Derived.table": lambda x: STRUCTURE.with_derived([fmdp.Derived("z", 2, (0,), x)]),
        "Derived.partial": lambda x: fmdp.Derived("z", 2, (0,), [0, 1], x),
        "Structure.with_derived": lambda x: STRUCTURE.with_derived(x),
        "FactoredMDP.from_functions.derived": lambda x: fmdp.FactoredMDP.from_functions(
            {"s": 2}, {"a": 2}, {"s": ["s"]}, lambda name, values: 0, derived=x
        ),
        "FactoredMDP.from_functions.derived.one": lambda x: counting(None, "z", x),
        "expand.model": lambda x: fmdp.expand(x),
        "MixedPolicy.base": lambda x: fmdp.MixedPolicy(x, {}),
        "MixedPolicy.chances": lambda x: fmdp.MixedPolicy(PLAN.policy, x),
        "plan.limits": lambda x: fmdp.plan(MODEL, limits=x),
        "plan.limits.one": lambda x: fmdp.plan(MODEL, limits={"r0": x}),
        "pareto.model": lambda x: fmdp.pareto(x, of=("reward", "r0")),
        "pareto.of": lambda x: fmdp.pareto(MODEL, of=x),
        "pareto.of.one": lambda x: fmdp.pareto(MODEL, of=("reward", x)),
        "inspect.model": lambda x: fmdp.inspect(x, PLAN.policy),
        "inspect.policy": lambda x: fmdp.inspect(MODEL, x) if not isinstance(x, str) else refuse(),
        "inspect.events": lambda x: fmdp.inspect(MODEL, PLAN.policy, events=x),
        "inspect.most_visited": lambda x: fmdp.inspect(MODEL, PLAN.policy, most_visited=x),
        "whatif.build": lambda x: fmdp.whatif(x, value=[1, 2]),
        "whatif.values": lambda x: fmdp.whatif(lambda value: MODEL, value=x),
        "whatif.planner": lambda x: fmdp.whatif(lambda value: MODEL, planner=x, value=[1]),
        "Rollout.plan": lambda x: fmdp.Rollout(x),
        **{
            f"Rollout.{name}": lambda x, name=name: fmdp.Rollout(APPROXIMATE, **{name: x})
            for name in ("horizon", "runs", "candidates", "seed")
        },
        "flatten.model": lambda x: fmdp.flatten(x),
        "flatten.limit": lambda x: fmdp.flatten(MODEL, x),
        "FamilyPrior.problem": lambda x: fmdp.FamilyPrior(x),
        "FamilyPrior.draw": lambda x: fmdp.FamilyPrior("random:2").draw(x),
        "DirichletPrior.problem": lambda x: fmdp.DirichletPrior(x),
        "DirichletPrior.concentration": lambda x: fmdp.DirichletPrior(MODEL, x),
        "DirichletPrior.rewards": lambda x: fmdp.DirichletPrior(MODEL, rewards=x),
        "DirichletPrior.draw": lambda x: fmdp.DirichletPrior(MODEL).draw(x),
        "sample_model.statistics": lambda x: fmdp.sample_model(x, 1.0, 0.1, 0),
        "sample_model.c": lambda x: fmdp.sample_model(STATISTICS, x, 0.1, 0),
        "sample_model.prior": lambda x: fmdp.sample_model(STATISTICS, 1.0, x, 0),
        "sample_model.generator": lambda x: fmdp.sample_model(STATISTICS, 1.0, 0.1, x),
        "confidence_tables.statistics": lambda x: fmdp.confidence_tables(x, t=1, rho=0.1),
        "confidence_tables.t": lambda x: fmdp.confidence_tables(STATISTICS, t=x, rho=0.1),
        "confidence_tables.rho": lambda x: fmdp.confidence_tables(STATISTICS, t=1, rho=x),
        "confidence_tables.constant": lambda x: fmdp.confidence_tables(
            STATISTICS, t=1, rho=0.1, transition_constant=x, reward_constant=x
        ),
        "with_reward_factors.structure": lambda x: fmdp.with_reward_factors(x, [(0,)], [(0, 1)]),
        "with_reward_factors.scopes": lambda x: fmdp.with_reward_factors(STRUCTURE, x, [(0, 1)]),
        "with_reward_factors.scope": lambda x: fmdp.with_reward_factors(STRUCTURE, [x], [(0, 1)]),
        "with_reward_factors.ranges": lambda x: fmdp.with_reward_factors(STRUCTURE, [(0,)], x),
        "with_reward_factors.range": lambda x: fmdp.with_reward_factors(STRUCTURE, [(0,)], [x]),
        "with_reward_factors.names": lambda x: fmdp.with_reward_factors(
            STRUCTURE, [(0,)], [(0, 1)], x
        ),
        "chains.structure": lambda x: fmdp.chains(x, 2),
        "chains.length": lambda x: fmdp.chains(STRUCTURE, x),
        "Plan.explain": lambda x: PLANNED.explain(x),
        "Plan.explain.model": lambda x: PLANNED.explain((0, 0), x),
        "fit.log": lambda x: fmdp.fit(x, MODEL),
        "fit.structure": lambda x: fmdp.fit([], x),
        "fit.record": lambda x: fmdp.fit([x], MODEL),
        "fit.max_parents": lambda x: fmdp.fit([], "learn", max_parents=x),
        "fit.actions": lambda x: fmdp.fit([], "learn", max_parents=1, actions=x),
        "fit.rewards": lambda x: fmdp.fit([], "learn", max_parents=1, rewards=x),
        "fit.prior": lambda x: fmdp.fit([], MODEL, prior=x),
        "fit.rho": lambda x: fmdp.fit([], MODEL, rho=x),
        "fit.ignore": lambda x: fmdp.fit([], MODEL, ignore=x),
        "warm.agent": lambda x: fmdp.warm(x, []),
        "warm.log": lambda x: fmdp.warm(fmdp.Random().start(STRUCTURE, 0), x),
        "Service.model": lambda x: fmdp.Service(x, "random", "/dev/null/nowhere"),
        "Service.learner": lambda x: fmdp.Service(MODEL, x, "/dev/null/nowhere"),
        "Service.directory": lambda x: (
            fmdp.Service(MODEL, "random", x) if not isinstance(x, str) else refuse()
        ),
        "Service.seed": lambda x: fmdp.Service(MODEL, "random", "/dev/null/nowhere", x),
        "Service.snapshot_every": lambda x: fmdp.Service(
            MODEL, "random", "/dev/null/nowhere", snapshot_every=x
        ),
        "Oracle.planner": lambda x: fmdp.Oracle(planner=x),
        "Decision.policy": lambda x: decided(fmdp.Decision(x)).act((0, 0)),
        "Decision.steps": lambda x: decided(fmdp.Decision(table, steps=x)).act((0, 0)),
        "Decision.limits": lambda x: decided(fmdp.Decision(table, limits=x)).act((0, 0)),
        "ExploringPolicy.base": lambda x: fmdp.ExploringPolicy(x, 0.1),
        "ExploringPolicy.epsilon": lambda x: fmdp.ExploringPolicy(table, x),
        "ExploringPolicy.by_variable": lambda x: fmdp.ExploringPolicy(table, 0.1, (), x),
        "Statistics.structure": lambda x: fmdp.Statistics(x),
        "Statistics.record": lambda x: STATISTICS.record(x, x, x, x),
        "edge_probabilities": lambda x: fmdp.edge_probabilities(x),
        "estimated_model": lambda x: fmdp.estimated_model(x),
        "Policy": lambda x: policy(x),
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
        "TimedPolicy.stages": lambda x: fmdp.TimedPolicy(x),
        "TimedPolicy.stage": lambda x: fmdp.TimedPolicy([table, x]),
        "TimedPolicy.discount": lambda x: fmdp.TimedPolicy([table], x),
        "TimedPolicy": lambda x: fmdp.TimedPolicy([table])(x),
        "TimedPolicy.step": lambda x: fmdp.TimedPolicy([table])((0, 0), step=x),
        "TablePolicy.save": lambda x: table.save(x) if not isinstance(x, str) else refuse(),
        "evaluate.model": lambda x: fmdp.evaluate(x, policy),
        "evaluate.policy": lambda x: fmdp.evaluate(MODEL, x),
        "evaluate_by_simulation.steps": lambda x: evaluate_by_simulation(MODEL, policy, steps=x),
        "Environment.move_to": lambda x: fmdp.Environment(MODEL, 0).move_to(x),
        "load": lambda x: fmdp.load(x),
        "load_agent": lambda x: fmdp.load_agent(x),
        "load_policy": lambda x: fmdp.load_policy(x),
        "load_policy.structure": lambda x: fmdp.load_policy("nowhere.npz", x),
        "named": lambda x: fmdp.simulate(MODEL, fmdp.named(x), 2),
        "measure.model": lambda x: measure(x),
        "measure.planner": lambda x: measure(ONE_ACTION, x),
        "measure.progress": lambda x: measure(ONE_ACTION, progress=x),
        "plan.model": lambda x: fmdp.plan(x),
        "plan.planner": lambda x: fmdp.plan(MODEL, x),
        "plan.progress": lambda x: fmdp.plan(MODEL, progress=x),
        "problem": lambda x: fmdp.problem(x),
        "reference_for": lambda x: reference_for(x),
        "register": lambda x: fmdp.register(x),
        "setting": lambda x: fmdp.setting(x, "a meaning"),
        "save.model": lambda x: fmdp.save(x, "nowhere/model.json"),
        "save.path": lambda x: fmdp.save(MODEL, x) if not isinstance(x, str) else refuse(),
        "learn.model": lambda x: fmdp.learn(x, 1),
        "learn.steps": lambda x: fmdp.learn(MODEL, x, reference=FREE),
        "learn.seed": lambda x: fmdp.learn(MODEL, 1, x, reference=FREE),
        "learn.planner": lambda x: fmdp.learn(MODEL, 1, planner=x, reference=FREE),
        "learn.reference": lambda x: fmdp.learn(MODEL, 1, reference=x),
        "simulate.model": lambda x: fmdp.simulate(x, "random", 1),
        "simulate.learner": lambda x: fmdp.simulate(MODEL, x, 3, reference=FREE),
        "simulate.steps": lambda x: fmdp.simulate(MODEL, "random", x, reference=FREE),
        "simulate.seed": lambda x: fmdp.simulate(MODEL, "random", 1, seed=x, reference=FREE),
        "simulate.reference": lambda x: fmdp.simulate(MODEL, "random", 1, reference=x),
        "simulate.progress": lambda x: fmdp.simulate(
            MODEL, "random", 1, reference=FREE, progress=x
        ),
        "simulate.checkpoints": lambda x: fmdp.simulate(
            MODEL, "random", 5, reference=FREE, checkpoints=x
        ),
        "simulate.record": lambda x: (
            fmdp.simulate(MODEL, "random", 5, reference=FREE, record=x)
            if not isinstance(x, str) or x in ("", "nul\0")
            else refuse()
        ),
        "Simulation.run": lambda x: Simulation(MODEL, "random", reference=FREE).run(x),
    }
    for argument in (
        "tolerance",
        "max_iterations",
        "memory_limit",
        "steps",
        "seed",
        "gain_upper",
        "progress",
    ):
        calls[f"evaluate.{argument}"] = lambda x, name=argument: fmdp.evaluate(
            MODEL, policy, **{name: x}
        )
    for family in PROBLEMS.kinds():
        needed = {"size": 3} if family.size_parameter() else {}
        for one in family.parameters:
            calls[f"Problem.{family.name}.{one.name}"] = (
                lambda x, family=family, name=one.name, needed=needed: str(
                    family(**{**needed, name: x})
                )
            )
    for kind in LEARNERS.own():
        name = kind.__name__

        def started(kind: Any = kind) -> Agent:
            agent: Agent = kind.make(kind.example).start(ONE_ACTION, 0)
            return agent

        calls[f"{name}.start"] = lambda x, kind=kind: kind.make(kind.example).start(x)
        calls[f"{name}.start.generator"] = lambda x, kind=kind: kind.make(kind.example).start(
            ONE_ACTION, x
        )
        calls[f"{name}.act"] = lambda x, started=started: started().act(x)
        calls[f"{name}.observe"] = lambda x, started=started: started().observe(x, x, x, x)
        calls[f"Agent.{name}.save"] = lambda x, started=started: (
            started().save(x) if not isinstance(x, str) else refuse()
        )
        if "planner" in {field.name for field in dataclasses.fields(kind)}:
            calls[f"{name}.planner"] = lambda x, kind=kind: kind(planner=x)
        for one in kind.parameters:
            calls[f"{name}.{one.name}"] = lambda x, kind=kind, one=one: kind.make(
                {**kind.example, one.name: x}
            )
            calls[f"{name}({one.name}=)"] = lambda x, kind=kind, one=one: kind(
                **{**kind.example, one.name: x}
            )
    kinds = (fmdp.Exact, fmdp.ALP, fmdp.SpanConstrained, fmdp.Coupled, fmdp.Counts)
    for build, kind, name in zip(
        PLANNERS, kinds, ("Exact", "ALP", "Span", "Coupled", "Counts"), strict=True
    ):
        for one in kind.parameters:
            calls[f"{name}.{one.name}"] = lambda x, build=build, one=one: build(**{one.name: x})
        calls[f"{name}.plan"] = lambda x, build=build: build().plan(x)
        calls[f"{name}.prepare"] = lambda x, build=build: build().prepare(x)
    calls["ALP.basis.prepare"] = lambda x: fmdp.ALP(basis=x).prepare(STRUCTURE)
    calls["ALP.relevance.prepare"] = lambda x: fmdp.ALP(relevance=x).prepare(STRUCTURE)
    return calls


def decided(decision: Any) -> Agent:
    class Deciding(fmdp.Learner):
        """Decides what it is told to."""

        def decide(self, agent: Agent) -> Any:
            return decision

    return Deciding().start(STRUCTURE, 0)


def counting(kind: Any, field: str, x: Any) -> fmdp.FactoredMDP:
    """A model with a derived variable, of which one argument is x, or all of it without a kind."""
    given = {"over": ["s"], "of": (lambda value: value), field: x}
    derived = {"z": x if kind is None else kind(**given)}
    return fmdp.FactoredMDP.from_functions(
        {"s": 2}, {"a": 2}, {"s": ["s", "z"]}, lambda name, values: 0, derived=derived
    )


def refuse() -> None:
    """For texts that are good names of files: the test is to leave none behind."""
    raise FmdpError("not written")


ENTRIES = _entries()


def test_every_public_name_has_its_door_tried() -> None:
    tried = {name.split(".")[0] for name in ENTRIES} | {"Exact", "SpanConstrained"}
    # Made by fmdp, not by users.
    records = {"FmdpError", "Plan", "Results", "Run", "Status", "Trajectory", "__version__"}
    records |= {
        "Explanation",
        "Finding",
        "Front",
        "Quantity",
        "Fit",
        "REQUIRED",
        "Summary",
        "WhatIf",
    }
    # What a class of one's own is made of.
    inherited = {"Flat", "Learner", "OptimisticLearner", "Planner", "PlanningLearner", "Prepared"}
    inherited |= {"Prior"}
    elsewhere = {"compare", "load_results", "sweep", "write_report"}  # tests/experiments
    assert set(fmdp.__all__) - records - inherited - elsewhere <= tried
    assert {kind.__name__ for kind in LEARNERS.own()} <= tried


@pytest.mark.parametrize("entry", ENTRIES)
def test_junk_is_used_or_refused_in_one_line(entry: str) -> None:
    for junk in JUNK:
        used_or_refused(lambda junk=junk: ENTRIES[entry](junk))


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.binary(max_size=4)
    | st.text(max_size=6).filter(lambda text: not Path(text.replace("\0", "")).exists()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=2)
    ),
    max_leaves=6,
)
_COSTLY = (
    "measure.",
    "learn.steps",
    "simulate.steps",
    "Simulation.run",
    "evaluate.steps",
    "evaluate_by",
    "from_simulator.samples",
)
CHEAP = [name for name in ENTRIES if not name.startswith(_COSTLY) and not name.endswith(".save")]


@settings(max_examples=600)
@given(st.sampled_from(CHEAP), anything)
def test_random_junk_is_used_or_refused_in_one_line(entry: str, junk: Any) -> None:
    if entry == "save.path" and isinstance(junk, str):
        return  # a good name of a file
    if entry == "Environment.block" and isinstance(junk, int) and junk > 10**6:
        return  # what is asked for, and a lot of memory
    used_or_refused(lambda: ENTRIES[entry](junk))


# ---- what is clear simply works ------------------------------------------------------------------


def test_a_policy_is_a_baseline() -> None:
    """Played by compiled code, stepped as a rule, and as the oracle does: the same run."""
    plan = fmdp.plan(MODEL, fmdp.Exact(ties="first"))
    assert plan.policy is not None
    oracle = fmdp.Oracle(planner=fmdp.Exact(ties="first"))
    runs = [
        fmdp.simulate(MODEL, player, 500, seed=3)
        for player in (plan.policy, lambda state: plan.policy(state), oracle)
    ]
    assert len({run.total_reward for run in runs}) == 1
    assert len({run.regret for run in runs}) == 1
    assert (runs[0].episodes, runs[0].planner_calls) == (0, 0)  # it decides nothing


@pytest.mark.parametrize("answer", [2, (2,), [2], np.int64(2), np.array([2])])
def test_a_rule_may_answer_with_the_value_of_the_one_action_variable(answer: Any) -> None:
    """circle:2, action 2: nobody is restarted."""
    idle = fmdp.simulate(ONE_ACTION, lambda state: answer, 300, seed=1)
    assert idle.total_reward == fmdp.simulate(ONE_ACTION, lambda _: (2,), 300, seed=1).total_reward
    assert fmdp.evaluate(ONE_ACTION, lambda state: answer).gain == pytest.approx(
        fmdp.evaluate(ONE_ACTION, lambda _: (2,)).gain
    )
    assert fmdp.Environment(ONE_ACTION, 0).step(answer) == fmdp.Environment(ONE_ACTION, 0).step(
        (2,)
    )


def test_a_learner_of_ones_own_may_answer_with_an_int_too() -> None:
    class Own:
        def act(self, state: tuple[int, ...]) -> int:
            return 2

        def observe(self, state: Any, action: Any, rewards: Any, next_state: Any) -> None:
            assert action == (2,)

    assert fmdp.simulate(ONE_ACTION, Own(), 20).steps == 20  # type: ignore[arg-type]


def test_a_name_stands_for_a_learner_with_its_defaults() -> None:
    named = fmdp.simulate(MODEL, "dorl", 200, seed=2)
    made = fmdp.simulate(MODEL, fmdp.DORL(), 200, seed=2)
    assert named.regret == made.regret


@pytest.mark.parametrize("build", [fmdp.PSRL, fmdp.DORL, fmdp.FRmax])
def test_a_name_stands_for_a_planner_with_its_defaults(build: Any) -> None:
    assert build(planner="exact") == build(planner=fmdp.Exact())
    by_name, by_default = (
        one.start(STRUCTURE).planner for one in (build(planner="exact"), build())
    )
    assert by_name == by_default
    assert fmdp.FSRL(planner="span") == fmdp.FSRL()
    assert fmdp.plan(MODEL, "alp").planner == "alp"


def test_a_path_stands_for_the_policy_in_it(tmp_path: Path) -> None:
    plan = fmdp.plan(MODEL)
    assert plan.policy is not None
    file = tmp_path / "best.npz"
    plan.policy.save(file)
    for path in (file, str(file)):
        assert fmdp.evaluate(MODEL, path).gain == fmdp.evaluate(MODEL, plan.policy).gain
        assert fmdp.simulate(MODEL, path, 50).regret == fmdp.simulate(MODEL, plan.policy, 50).regret


def test_a_seed_stands_for_a_generator() -> None:
    def reward(generator: Any) -> float:
        agent = fmdp.PSRL().start(STRUCTURE, generator)
        return fmdp.simulate(MODEL, agent, 200, reference=FREE).total_reward

    assert reward(7) == reward(np.random.Generator(np.random.PCG64(7)))
    assert reward(np.int64(7)) == reward(7)
    assert len({reward(seed) for seed in range(7, 12)}) > 1


def test_a_scope_of_the_basis_may_name_its_variables() -> None:
    model = fmdp.problem("circle:4")
    named = (("machine_1", "machine_0"), (2, "machine_3"))
    by_name = fmdp.ALP(basis=named).plan(model)
    by_number = fmdp.ALP(basis=((0, 1), (2, 3))).plan(model)
    assert by_name.objective == by_number.objective
    line = refused(lambda: fmdp.ALP(basis=(("machine_4",),)).plan(model))
    assert 'did you mean "machine_' in line
    assert "must be a state variable" in refused(
        lambda: fmdp.ALP(basis=(("restart",),)).plan(model)
    )


def test_numbers_of_numpy_are_numbers() -> None:
    planner = fmdp.Exact(max_iterations=np.int32(5), tolerance=np.float32(0.5))
    assert (type(planner.max_iterations), type(planner.tolerance)) == (int, float)
    assert planner == fmdp.Exact(max_iterations=5, tolerance=0.5)
    assert hash(planner) == hash(fmdp.Exact(max_iterations=5, tolerance=0.5))
    assert fmdp.simulate(MODEL, "random", np.int64(5), seed=np.uint8(3)).steps == 5


# ---- what is not, is refused in words that help --------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fmdp.Exact(max_iterations=2.5), "must be an integer >= 1 or none; got 2.5"),
        (lambda: fmdp.Exact(tolerance="x"), "must be a number > 0 or none; got 'x'"),
        (lambda: fmdp.Exact(tolerance=math.nan), "got nan"),
        (lambda: fmdp.Exact(threads=0), "'threads' parameter of planner exact"),
        (lambda: fmdp.Exact(memory_limit=-5), "'memory_limit' parameter of planner exact"),
        (lambda: fmdp.Exact(max_iterations=True), "got True"),
        (lambda: fmdp.ALP(relevance=5), "rows of numbers >= 0"),
        (lambda: fmdp.ALP(basis=("P1", "P2")), "or scopes of state variables; got ('P1', 'P2')"),
        (lambda: fmdp.plan(MODEL, fmdp.Exact), "must be an object such as fmdp.Exact()"),
        (lambda: fmdp.plan(MODEL, "exakt"), 'did you mean "exact"'),
        (lambda: fmdp.plan("jao:2"), "fmdp.problem or fmdp.load makes one); got 'jao:2'"),
        (lambda: fmdp.plan(MODEL, progress="yes"), "must be True (a bar), a function, or None"),
        (lambda: fmdp.DORL(planner=5), "'planner' of learner dorl must be an object"),
        (lambda: fmdp.DORL(planner="span"), "'budget' parameter of planner span"),
        (
            lambda: fmdp.DORL().start("jao:2"),
            "starts with a Structure or a FactoredMDP; got 'jao:2'",
        ),
        (lambda: LEARNERS.read("random,planner=exact"), "has no parameter 'planner'"),
        (lambda: fmdp.PSRL().start(STRUCTURE, "x"), "numpy.random.Generator or a seed"),
        (lambda: fmdp.PSRL().start(STRUCTURE, -1), "an integer >= 0; got -1"),
        (lambda: fmdp.PSRL().start(STRUCTURE).act((0, 0)), "give start a seed or"),
        (lambda: fmdp.simulate(MODEL, fmdp.PSRL, 5), "not its class: PSRL() makes one"),
        (lambda: fmdp.simulate(MODEL, "prsl", 5), 'did you mean "psrl"'),
        (lambda: fmdp.simulate(MODEL, 5, 5), "got 5"),
        (lambda: fmdp.simulate(MODEL, lambda _: 1, 5), "an action must have 2 values"),
        (lambda: fmdp.simulate(MODEL, lambda _: (0, 2), 5), "must be in 0..1"),
        (lambda: fmdp.simulate(MODEL, lambda _: "up", 5), '"up" must be name=value, as in'),
        (lambda: fmdp.simulate(MODEL, "random", 2.5), "must be an integer"),
        (lambda: fmdp.simulate(MODEL, "random", 0), "'steps' parameter of simulate"),
        (lambda: fmdp.simulate(MODEL, "random", 5, seed=-1), "'seed' parameter of simulate"),
        (lambda: fmdp.simulate(MODEL, "random", 5, seed=True), "got True"),
        (lambda: fmdp.evaluate(MODEL, "best.npz"), "no policy file at best.npz"),
        (lambda: fmdp.evaluate(MODEL, 7), "or the path of a policy file; got 7"),
        (lambda: fmdp.evaluate(ONE_ACTION, fmdp.plan(MODEL).policy), "the policy is for state"),
        (
            lambda: fmdp.plan(MODEL).policy(("good", "idle")),
            '"good"; must be one of 0, 1',
        ),
        (lambda: fmdp.plan(MODEL).policy(3), "state is 3; must be 2 whole numbers or names"),
        (lambda: fmdp.plan(MODEL).policy((True, 0)), '"s0" is True; must be in 0..1'),
        (lambda: fmdp.Environment(MODEL, None), "needs a generator, or a seed"),
        (lambda: fmdp.problem(5), "or an object such as Circle(size=7); got 5"),
        (lambda: fmdp.save("circle:3", "x.json"), "save writes a FactoredMDP"),
    ],
)
def test_the_refusal_helps(call: Callable[[], Any], words: str) -> None:
    assert words in refused(call)


# ---- one declaration for each setting ------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", [*registry.PLANNERS.own(), *LEARNERS.own()], ids=lambda kind: kind.name
)
def test_every_field_is_declared_with_its_default(kind: Any) -> None:
    # The planner of a learner is another object of settings.
    fields = {
        field.name: field.default for field in dataclasses.fields(kind) if field.name != "planner"
    }
    missing = {name for name, default in fields.items() if default is dataclasses.MISSING}
    assert missing == {one.name for one in kind.parameters if one.required}
    rest = {name: default for name, default in fields.items() if name not in missing}
    assert rest == {one.name: one.default for one in kind.parameters if not one.required}


# ---- nothing that is set is ignored --------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fmdp.Exact(discount=0.9), "is used with criterion=discounted or finite alone"),
        (lambda: fmdp.Exact(ties="first", tie_seed=3), "is used with ties=random alone"),
        (lambda: fmdp.ALP(ties="last", tie_seed=3), "tie_seed=3 with ties=last"),
        (lambda: fmdp.SpanConstrained(budget=1.0, ties="last", tie_seed=3), "ties=random alone"),
        (lambda: fmdp.SpanConstrained(budget=(1.0, 2.0), split="uniform"), "divides one budget"),
        (lambda: fmdp.plan(MODEL, fmdp.Exact(targets="vertex")), "plans for a model"),
        (lambda: fmdp.plan(MODEL, fmdp.ALP(targets="split")), "plans for a model"),
        (lambda: fmdp.PSRL(planner=fmdp.Exact(targets="vertex")), "learner psrl plans"),
        (lambda: fmdp.Oracle(planner=fmdp.Exact(targets="vertex")), "learner oracle plans"),
        (
            lambda: fmdp.DORL(targets="nested", planner=fmdp.Exact(targets="vertex")),
            "must be given once; got nested for the learner and vertex for its planner",
        ),
        (lambda: fmdp.DORL(length=5), "'length' parameter of learner dorl"),
        (
            lambda: fmdp.DORL(c=1.0, transition_constant=1.0, reward_constant=1.0),
            "'c' parameter of learner dorl stands in place of a constant that is not given",
        ),
        (lambda: fmdp.FSRL(budget=1.0, growth=2.0), "used with budget=none alone"),
        (
            lambda: fmdp.FSRL(growth=2.0, planner=fmdp.SpanConstrained(budget=1.0)),
            "where no budget is given",
        ),
        (
            lambda: fmdp.FSRL(budget=2.0, planner=fmdp.SpanConstrained(budget=1.0)),
            "must be given once; got 2.0 for the learner and 1.0 for its planner",
        ),
        (lambda: measure(MODEL, fmdp.Exact(criterion="discounted")), "about the average reward"),
        (lambda: fmdp.problem("circle:3,dynamics=guestrin,seed=7"), "used with dynamics=xu alone"),
        (lambda: fmdp.problem("star:3,dynamics=ippc,alpha1=.2"), "used with dynamics=xu alone"),
        (lambda: fmdp.problem("tree:3,dynamics=talebi,alpha2=.2"), "used with dynamics=xu alone"),
        (lambda: fmdp.Noise("bernoulli", 0.5), "only gaussian noise has a scale"),
    ],
)
def test_a_setting_without_a_use_is_refused(call: Callable[[], Any], words: str) -> None:
    assert words in refused(call)


def _alternatives(one: Any) -> list[Any]:
    """A few values of a parameter that are not its default."""
    if one.kind == "choice":
        return [value for value in one.choices if value != one.default]
    if one.kind == "number":
        return [0.5, 0.25]
    return [3, 4] if one.kind == "integer" else []


@pytest.mark.parametrize("kind", registry.PLANNERS.kinds(), ids=lambda kind: kind.name)
def test_what_is_declared_idle_is_refused_and_the_rest_is_not(kind: Any) -> None:
    """By the declarations themselves: beside every value of the other parameter."""
    own = kind.parameters
    for one in own:
        if one.only_with is None:
            continue
        other, useful = one.only_with
        (beside,) = [p for p in own if p.name == other]
        for value in _alternatives(one):
            for choice in beside.choices:
                given = {**kind.on_any_model, one.name: value, other: choice}
                if choice in useful:
                    assert resolve(own, given, "it")[one.name] == value
                else:
                    assert f"is used with {other}=" in refused(
                        lambda g=given: resolve(own, g, "it")
                    )


def test_a_saved_learner_has_every_setting_given_and_is_read_all_the_same(tmp_path: Path) -> None:
    learners = [kind.make(kind.example) for kind in LEARNERS.own()]
    planner = fmdp.SpanConstrained(budget=2.0, ties="first")
    learners.append(fmdp.FSRL(budget=2.0, planner=planner, targets="vertex"))
    for learner in learners:
        file = tmp_path / f"{learner.name}.npz"
        learner.start(MODEL).save(file)
        loaded = fmdp.load_agent(file).learner
        assert loaded == learner


def test_why_the_exact_planner_was_not_chosen() -> None:
    large = fmdp.problem("circle:30")
    planner, reason = choose_planner(large.structure)
    assert planner.name == "alp"
    assert reason == "1,073,741,824 states; exact is the default up to 4,194,304"
    small = fmdp.problem("circle:12")
    planner, reason = choose_planner(small.structure, memory_limit=1000)
    assert planner.name == "alp"
    assert reason is not None
    assert reason.startswith("exact needs ")
    assert reason.endswith("; the memory limit is 1000 bytes")
    assert choose_planner(small.structure)[1] is None
    found = fmdp.plan(fmdp.problem("circle:23"))
    expected = "8,388,608 states; exact is the default up to 4,194,304"
    assert found.stats["planner_reason"] == expected
    assert "planner_reason" not in fmdp.plan(MODEL).stats
    assert fmdp.PSRL().start(small.structure).planner_reason is None
    reason = fmdp.PSRL().start(fmdp.problem("circle:20")).planner_reason
    assert reason is not None
    assert reason.startswith("a sweep over 1,048,576 states and 21 joint actions is predicted to ")
