"""Coverage of simulated intervals: policies of small models, evaluated by simulation many times.

Large models are simulated because nothing else is possible, so nobody can tell whether their
intervals hold. Small models that are sent through the same code have a true gain in exact
arithmetic. Of many seeds at most one in a hundred may miss it, up to luck: the number of misses is
held against the binomial law of an interval that keeps its word. The rooms of the slow models have
leaks between 1e-2 and 1e-7, so most of them cannot be resolved by the steps that are taken, and
an evaluation has to say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

import fmdp
from fmdp.simulation import evaluate_by_simulation
from referee import recipes
from referee.claims import Case
from referee.ledger import Ledger
from referee.recipes import Recipe

STEPS = 20_000
LUCK = 1e-4
"""Probability with which an interval of the printed confidence is called wrong, per model."""
LEAKS = (1e-2, 1e-4, 1e-6, 1e-7)

Evaluate = Callable[[Case, Any, int], Any]


def cases(short: bool) -> list[tuple[Recipe, bool]]:
    """Slow models at every leak, models that mix, and models whose gain depends on the start; with
    each, whether it mixes so fast that there has to be an interval."""
    slow = [recipes.leaking_class(leak, 1) for leak in LEAKS]
    fast = [recipes.random_factored(2)]
    if short:
        slow.append(recipes.islands(1e-4, "forced", 1))
    else:
        slow += [recipes.islands(leak, kind, 1) for leak in LEAKS for kind in ("forced", "oneway")]
        slow += [recipes.rooms((0.2, 0.7), 2, True), recipes.class_beside(1, False)]
        fast += [recipes.random_factored(seed) for seed in (0, 1)]
        fast += [recipes.riverswim(6, 0.005), recipes.class_beside(1, True)]
        fast.append(recipes.circles((3, 4)))
    return [*((recipe, False) for recipe in slow), *((recipe, True) for recipe in fast)]


def pieces(short: bool) -> int:
    """Return the number of models."""
    return len(cases(short))


def simulated(case: Case, policy: Any, seed: int) -> Any:
    return evaluate_by_simulation(case.model, policy, steps=STEPS, seed=seed)


def play_model(turn: int, short: bool) -> Ledger:
    """Evaluate one model with 30 seeds, or with 200."""
    ledger = Ledger()
    recipe, mixes = cases(short)[turn]
    judge_coverage(ledger, Case(recipe), range(30 if short else 200), mixes)
    return ledger


def judge_coverage(
    ledger: Ledger,
    case: Case,
    seeds: Sequence[int],
    mixes: bool,
    evaluate: Evaluate = simulated,
) -> None:
    """Hold the intervals of all seeds against the true gain of the policy."""
    recipe = case.recipe
    actions = np.zeros(recipe.n_states, dtype=np.int64)
    policy = fmdp.TablePolicy(recipe.state_sizes, recipe.action_sizes, actions)
    true = case.value_of(actions.tolist()).gain[case.flat.start]
    evaluations = [evaluate(case, policy, seed) for seed in seeds]
    for found in evaluations:
        _judge_words(ledger, case, found, true)
    if mixes:
        intervals = sum(found.confidence is not None for found in evaluations)
        ledger.judge(
            "simulated evaluation: a model that mixes has an interval",
            recipe,
            intervals >= 0.9 * len(evaluations),
            detail=f"{intervals} of {len(evaluations)}",
        )
    misses = [found for found in evaluations if _distance(case, found, true) > 0.0]
    confidence = max((found.confidence or 0.0 for found in evaluations), default=0.0)
    most = int(stats.binom.isf(LUCK, len(evaluations), 1.0 - (confidence or 0.99)))
    ledger.judge(
        "simulated evaluation: intervals cover the gain",
        recipe,
        len(misses) <= most,
        max((_distance(case, found, true) for found in misses), default=0.0),
        f"{len(misses)} of {len(evaluations)} miss {float(true)!r}; at most {most} may",
    )


def _distance(case: Case, found: Any, true: Any) -> float:
    """By how much the gain lies outside the interval, in units of the reward."""
    return max(case.excess(found.gain_lower, true), -case.excess(found.gain_upper, true), 0.0)


def _judge_words(ledger: Ledger, case: Case, found: Any, true: Any) -> None:
    """Hold what is certain, and what the status says, against the truth."""
    status = found.status.value
    ledger.judge(
        "simulated evaluation: says that it is simulated",
        case.recipe,
        found.kind == "simulated" and status in ("simulated", "unmixed"),
        detail=f"status {status}",
    )
    honest = found.confidence is not None if status == "simulated" else found.confidence is None
    ledger.judge(
        "simulated evaluation: a confidence only with an interval",
        case.recipe,
        honest and (found.gain is None) == (found.confidence is None),
        detail=f"status {status}, confidence {found.confidence!r}, gain {found.gain!r}",
    )
    low, high = found.certified_bounds
    wrong = max(case.excess(low, true), -case.excess(high, true), 0.0)
    ledger.judge(
        "simulated evaluation: certified bounds hold",
        case.recipe,
        wrong == 0.0 and low <= found.gain_lower <= found.gain_upper <= high,
        wrong,
        f"printed {low!r} to {high!r}, true {float(true)!r}",
    )
