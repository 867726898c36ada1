"""Who plays against the referee: every public verb on every generated model.

A round takes the recipes one by one, asks fmdp, and hands what it says to the claims. Everything is
a function of the recipes: two games give the same table.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import fmdp
from fmdp.measures import measure
from referee import claims, recipes, replay, truth
from referee.claims import Case
from referee.discounts import discounts_near_one
from referee.explanations import explanations
from referee.ledger import Ledger
from referee.trees import trees_against_constraints
from referee.values import values_as_values

STEPS = 300
"""Of a replayed run."""
POWERS = (2.0**-30, 2.0**27)
SMALLEST_COEFFICIENT = 1e-6
"""Linear programs with smaller ones are at the mercy of the solver's own idea of zero."""

Round = Callable[[Ledger, Case, bool, int], None]


@dataclass
class Played:
    """What came of one base model: the comparisons, the seconds of each round, its units."""

    ledger: Ledger
    seconds: dict[str, float]
    models: int


def exact_plans(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    claims.judge_exact_plan(ledger, case, fmdp.plan(case.model, fmdp.Exact()))


def stopped_plans(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    for sweeps in (1 + turn % 10,) if short else (1 + turn % 3, 4 + turn % 7):
        plan = fmdp.plan(case.model, fmdp.Exact(max_iterations=sweeps))
        claims.judge_exact_plan(ledger, case, plan, stopped=True, what="stopped plan")


def discounted_plans(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    discount = (0.95, 0.5, 0.0, 0.99)[turn % 4]
    plan = fmdp.plan(case.model, fmdp.Exact(criterion="discounted", discount=discount))
    claims.judge_discounted_plan(ledger, case, plan, discount)


def linear_programs(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    bases, methods = ("singles", "indicators", "pairs"), ("cuts", "factored")
    for number, criterion in enumerate(("discounted", "average")):
        settings = fmdp.ALP(
            basis=bases[turn % 3], criterion=criterion, method=methods[(turn + number) % 2]
        )
        plan = fmdp.plan(case.model, settings)
        tables = [table for _, table in case.recipe.transitions]
        tame = all(table[table > 0].min() >= SMALLEST_COEFFICIENT for table in tables)
        claims.judge_approximate_plan(ledger, case, plan, settings, tame=tame)


def evaluations(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    recipe = case.recipe
    draw = np.random.default_rng(turn)
    may = [
        [recipe.allows(state, action) for action in truth.assignments(recipe.action_sizes)]
        for state in truth.assignments(recipe.state_sizes)
    ]
    policies = [draw.integers(recipe.n_actions, size=recipe.n_states) for _ in range(2)]
    policies.append(np.array(case.best.policy))
    for actions in policies:
        for s, own in enumerate(may):
            if not own[actions[s]]:
                actions[s] = own.index(True)
    for actions in policies[:1] if short else policies:
        policy = fmdp.TablePolicy(recipe.state_sizes, recipe.action_sizes, actions)
        claims.judge_evaluation(ledger, case, actions.tolist(), fmdp.evaluate(case.model, policy))


def measurements(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    claims.judge_measures(ledger, case, measure(case.model))


def runs(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    noise = ("deterministic", "bernoulli", "gaussian")[turn % 3]
    recipe = replace(case.recipe, noise=noise)
    model = recipe.build()
    makers: list[tuple[str, Callable[[Any], Any]]] = [
        ("psrl", lambda generator: fmdp.PSRL().start(model.structure, generator)),
        ("oracle", lambda generator: fmdp.Oracle().start(model, generator)),
        ("random", lambda generator: fmdp.Random().start(model.structure, generator)),
        ("dorl", lambda generator: fmdp.DORL().start(model.structure, generator)),
    ]
    if noise == "gaussian":
        # The last bit of a quantile is nobody's to fix, and a learner may act on it.
        makers = makers[1:3]
    chosen = [makers[turn % len(makers)]] if short else makers[:3]
    if not short and noise != "gaussian" and turn % 2 == 1:
        chosen.append(makers[3])
    for name, make in chosen:
        # The run has its stream from the loop, the replay has its own copy of it.
        run = fmdp.simulate(model, make(None), steps=STEPS, seed=turn)
        lived = replay.live(recipe, make, STEPS, turn)
        claims.judge_run(ledger, case, run, lived, name)


def other_units(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    planners = (fmdp.Exact(), fmdp.ALP(), fmdp.ALP(criterion="average", basis="pairs"))
    for planner in planners[:1] if short else planners:
        plan = fmdp.plan(case.model, planner)
        for factor in POWERS:
            scaled = fmdp.plan(case.recipe.in_unit(factor).build(), planner)
            claims.judge_equivariance(ledger, case, plan, scaled, factor)


def learners_in_other_units(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    """Rewards times a power of two: a learner does the same, and its regret is times it."""
    names = ("PSRL", "DORL")
    for name in names[:1] if short else names:
        learner = getattr(fmdp, name)
        own = fmdp.simulate(case.model, learner(), steps=STEPS, seed=turn)
        for factor in POWERS:
            other = case.recipe.in_unit(factor).build()
            run = fmdp.simulate(other, learner(), steps=STEPS, seed=turn)
            wrong = [
                field
                for field in ("regret", "gap_regret", "total_reward", "gain")
                if (one := getattr(own, field)) is not None and getattr(run, field) != one * factor
            ]
            ledger.judge(
                f"another unit: regret of {name.lower()}, to the bit",
                case.recipe,
                not wrong,
                abs(run.regret / factor - own.regret) / case.unit,
                f"at {factor:g}: {', '.join(wrong)} differ; regret {own.regret!r} "
                f"and {run.regret / factor!r}",
            )


EVERY_UNIT: tuple[Round, ...] = (exact_plans, stopped_plans, linear_programs, evaluations)
"""Rounds that are played in every unit of reward."""
SOME_UNITS: tuple[Round, ...] = (
    discounted_plans,
    measurements,
    runs,
    explanations,
    discounts_near_one,
)
"""Rounds that are played in one unit, by turns."""
OWN_UNIT: tuple[Round, ...] = (other_units, values_as_values, trees_against_constraints)
"""Rounds that change the unit themselves, or in which it does not matter."""
ROUNDS = {one.__name__: one for one in (*EVERY_UNIT, *SOME_UNITS, *OWN_UNIT)}
ROUNDS[learners_in_other_units.__name__] = learners_in_other_units


def play_model(turn: int, short: bool, only: set[str] | None = None) -> Played:
    """All that is asked about one base model, in every unit; `only` names rounds."""
    played = Played(Ledger(), {}, 0)

    def ask(one: Round, case: Case, number: int) -> None:
        if only is not None and one.__name__ not in only:
            return
        started = time.perf_counter()
        referee_a_round(played.ledger, one, case, short, number)
        spent = time.perf_counter() - started
        played.seconds[one.__name__] = played.seconds.get(one.__name__, 0.0) + spent

    hint = None
    in_units = list(recipes.units_of(recipes.base(short)[turn], short, turn))
    for place, recipe in enumerate(in_units):
        case = Case(recipe, hint)
        hint = case.best.policy
        played.models += 1
        for one in EVERY_UNIT:
            ask(one, case, turn + place)
        for number, one in enumerate(SOME_UNITS):
            if place == (turn + number) % len(in_units):
                ask(one, case, turn)
        if place == 0:
            for one in OWN_UNIT:
                ask(one, case, turn)
            if claims.unique_bias(case) and turn % 3 == 0:
                ask(learners_in_other_units, case, turn)
    return played


def play(short: bool, only: set[str] | None = None) -> Ledger:
    """The whole game, one base model after the other."""
    ledger = Ledger()
    for turn in range(len(recipes.base(short))):
        ledger.add(play_model(turn, short, only).ledger)
    return ledger


def referee_a_round(ledger: Ledger, one: Round, case: Case, short: bool, turn: int) -> None:
    """A round, in which an exception or a warning of fmdp's is a disagreement too."""
    claim = "any verb: no exception and no warning"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            one(ledger, case, short, turn)
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        detail = f"{type(error).__name__} in {where}: {error}"
        ledger.judge(claim, case.recipe, False, claims.INFINITE, detail)
    else:
        ledger.judge(claim, case.recipe, True)


def kinds(short: bool) -> dict[str, int]:
    """How many models of each family there are, units not counted."""
    found: dict[str, int] = {}
    for recipe in recipes.base(short):
        found[recipe.family] = found.get(recipe.family, 0) + 1
    return found
