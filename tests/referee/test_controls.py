"""The referee refereed: honest results pass, and each wrong one is caught by the claim it breaks.

The honest results are written from the truth, not by fmdp, so that the controls stand whatever the
state of the planners.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fmdp
from referee import claims, programs, recipes, replay, truth
from referee.claims import Case
from referee.ledger import Ledger

ONE_GAIN = Case(recipes.riverswim(6, 0.005))
SLOW = Case(recipes.islands(1e-5, "forced", 1))
TWO_GAINS = Case(recipes.rooms((0.2, 0.7), 2, True))
CORRIDOR = Case(recipes.corridor(4, 0.99, 1.0))
DENSE = Case(recipes.random_factored(2))
CASES = (ONE_GAIN, SLOW, TWO_GAINS, CORRIDOR, DENSE)


def _policy(case: Case, actions: Any) -> fmdp.TablePolicy:
    recipe = case.recipe
    return fmdp.TablePolicy(recipe.state_sizes, recipe.action_sizes, np.array(actions))


def _plan(case: Case) -> fmdp.Plan:
    best = case.best
    room = 1e-8 * case.unit
    bias = np.array([float(h) for h in best.bias])
    sizes = case.recipe.state_sizes
    spans = tuple(float(np.ptp(bias.reshape(sizes), axis=i).max()) for i in range(len(sizes)))
    one = best.one_gain
    start = float(best.gain[case.flat.start])
    return fmdp.Plan(
        planner="exact",
        status=fmdp.Status.CONVERGED if one else fmdp.Status.MULTICHAIN,
        policy=_policy(case, best.policy),
        gain=float(best.lowest) if one else None,
        gain_lower=float(best.lowest) - room,
        gain_upper=float(best.highest) + room,
        span=float(np.ptp(bias)) if one else None,
        factored_spans=spans if one else None,
        objective=None,
        iterations=1,
        seconds=0.0,
        ties="random",
        policy_gain=start,
        bias=bias if one else None,
        stats={} if one else {"gain_from_initial_state": start},
    )


def _broken(case: Case, plan: fmdp.Plan) -> set[str]:
    ledger = Ledger()
    claims.judge_exact_plan(ledger, case, plan)
    return ledger.claims_broken


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.recipe.name)
def test_an_honest_plan_passes(case: Case) -> None:
    assert _broken(case, _plan(case)) == set()


def _worst_policy(case: Case) -> fmdp.TablePolicy:
    every = truth.assignments((case.flat.n_actions,) * case.flat.n_states)
    return _policy(case, min(every, key=lambda actions: case.value_of(actions).gain[0]))


@pytest.mark.parametrize(
    ("case", "wrong", "claim"),
    [
        (ONE_GAIN, {"gain_lower": 1e-5}, "exact plan: lower bound holds in every state"),
        (ONE_GAIN, {"gain_upper": -1e-5}, "exact plan: upper bound holds in every state"),
        (ONE_GAIN, {"gain": 1e-5}, "exact plan: gain inside its bounds"),
        (ONE_GAIN, {"policy_gain": 1e-5}, "exact plan: gain of the policy"),
        (SLOW, {"policy_gain": 1e-5}, "exact plan: gain of the policy"),
        (TWO_GAINS, {"gain_lower": 1e-5}, "exact plan: lower bound holds in every state"),
        (ONE_GAIN, {"gain_upper": 1e-5}, "exact plan: converged means bounds within the tolerance"),
        (ONE_GAIN, {"span": 1e-5}, "exact plan: spans are those of its bias"),
    ],
)
def test_a_number_that_is_off_is_caught(case: Case, wrong: dict[str, float], claim: str) -> None:
    plan = _plan(case)
    moved = {name: getattr(plan, name) + by * case.unit for name, by in wrong.items()}
    assert claim in _broken(case, replace(plan, **moved))


def test_a_bound_that_is_wrong_by_the_last_bit_is_caught() -> None:
    plan = _plan(CORRIDOR)
    assert _broken(CORRIDOR, replace(plan, gain_lower=1.0)) == set()
    above = math.nextafter(1.0, 2.0)
    broken = _broken(CORRIDOR, replace(plan, gain_lower=above))
    assert "exact plan: lower bound holds in every state" in broken


@pytest.mark.parametrize(
    ("case", "status", "claim"),
    [
        (CORRIDOR, "MULTICHAIN", "exact plan: multichain means gains that differ"),
        (SLOW, "MULTICHAIN", "exact plan: multichain means gains that differ"),
        (TWO_GAINS, "CONVERGED", "exact plan: converged means bounds within the tolerance"),
        (CORRIDOR, "ITERATION_LIMIT", "exact plan: a small model is settled"),
        (TWO_GAINS, "ITERATION_LIMIT", "exact plan: a small model is settled"),
    ],
)
def test_a_swapped_status_is_caught(case: Case, status: str, claim: str) -> None:
    assert claim in _broken(case, replace(_plan(case), status=fmdp.Status[status]))


def test_a_guessed_gain_is_caught() -> None:
    plan = _plan(TWO_GAINS)
    middle = 0.5 * (plan.gain_lower + plan.gain_upper)
    broken = _broken(TWO_GAINS, replace(plan, gain=middle))
    assert broken == {"exact plan: no single gain where there is none"}
    wrong = replace(plan, stats={"gain_from_initial_state": 0.7})
    assert _broken(TWO_GAINS, wrong) == {"exact plan: gain from the initial state"}


@pytest.mark.parametrize("key", ["gain_from_initial_state_bounds", "policy_gain_bounds"])
def test_bounds_of_one_state_are_held_to_their_word(key: str) -> None:
    plan = _plan(TWO_GAINS)
    true = plan.policy_gain
    honest = {**plan.stats, key: (true - 1e-9, true + 1e-9)}
    assert _broken(TWO_GAINS, replace(plan, stats=honest)) == set()
    wrong = {**plan.stats, key: (true + 1e-9, true + 2e-9)}
    (broken,) = _broken(TWO_GAINS, replace(plan, stats=wrong))
    assert broken.endswith("inside its bounds")
    if key == "policy_gain_bounds":
        missing = replace(plan, policy_gain=None)
        assert _broken(TWO_GAINS, missing) == {"exact plan: gain of the policy"}


def test_a_bad_policy_is_caught() -> None:
    plan = replace(_plan(SLOW), policy=_worst_policy(SLOW))
    assert "exact plan: its policy gains the lower bound in every state" in _broken(SLOW, plan)


def test_a_bias_of_another_model_is_caught() -> None:
    plan = _plan(ONE_GAIN)
    assert plan.bias is not None
    broken = _broken(ONE_GAIN, replace(plan, bias=plan.bias * (1 + 1e-4)))
    assert "exact plan: its bias solves the optimality equation" in broken


def _evaluation(case: Case, actions: Any) -> SimpleNamespace:
    own = case.value_of(actions)
    low, high = float(min(own.gain)), float(max(own.gain))
    return SimpleNamespace(
        gain=float(own.gain[case.flat.start]),
        gain_lower=low - 1e-8,
        gain_upper=high + 1e-8,
        kind="exact",
        status=fmdp.Status.CONVERGED if high - low < 1e-9 else fmdp.Status.MULTICHAIN,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.recipe.name)
def test_evaluations(case: Case) -> None:
    actions = [0] * case.flat.n_states
    honest = vars(_evaluation(case, actions))

    def broken(**wrong: Any) -> set[str]:
        ledger = Ledger()
        claims.judge_evaluation(ledger, case, actions, SimpleNamespace(**{**honest, **wrong}))
        return ledger.claims_broken

    assert broken() == set()
    lower, upper = honest["gain_lower"] + 1e-5, honest["gain_upper"] - 1e-5
    assert "evaluation: lower bound holds in every state" in broken(gain_lower=lower)
    assert "evaluation: upper bound holds in every state" in broken(gain_upper=upper)
    assert "evaluation: gain from the initial state" in broken(gain=honest["gain"] + 1e-5)
    assert "evaluation: gain inside its bounds" in broken(gain=honest["gain_upper"] + 1e-5)
    swapped = {"converged": "MULTICHAIN", "multichain": "CONVERGED"}[honest["status"].value]
    assert broken(status=fmdp.Status[swapped])


def test_approximate_plans() -> None:
    case, settings = DENSE, fmdp.ALP(basis="singles")
    functions = programs.basis_functions(case.recipe, "singles")
    honest = replace(
        _plan(case),
        planner="alp",
        objective=programs.objective(case.flat, functions, "discounted", 0.95),
    )

    def broken(**wrong: Any) -> set[str]:
        ledger = Ledger()
        plan = replace(honest, **wrong)
        claims.judge_approximate_plan(ledger, case, plan, settings, tame=True)
        return ledger.claims_broken

    true = float(case.best.lowest)
    assert broken() == set()
    assert "linear program: lower bound holds in every state" in broken(gain_lower=true + 1e-5)
    assert "linear program: upper bound holds in every state" in broken(gain_upper=true - 1e-5)
    assert broken(objective=honest.objective + 1e-5) == {
        "linear program: objective is that of the program over all (s, a)"
    }
    # The midpoint of an evaluation is no lower bound.
    value = case.value_of(case.best.policy)
    assert "linear program: its policy gains the lower bound in every state" in broken(
        gain_lower=float(min(value.gain)) + 1e-9
    )
    assert "linear program: gain of the policy" in broken(policy_gain=true - 1e-5)
    for unsolved in (
        fmdp.Status.UNBOUNDED,
        fmdp.Status.ITERATION_LIMIT,
        fmdp.Status.PRECISION_LIMIT,
    ):
        assert broken(status=unsolved) == {"linear program: is solved"}


def test_runs() -> None:
    case, steps = DENSE, 200
    best = _policy(case, case.best.policy)

    class Player:
        def act(self, state: tuple[int, ...]) -> tuple[int, ...]:
            return best(state) if sum(state) else (0,) * len(case.recipe.action_sizes)

        def observe(self, *transition: object) -> None:
            pass

    lived = replay.live(case.recipe, lambda generator: Player(), steps, 3)
    gain = float(case.best.lowest)
    sums = np.cumsum(lived.paid)
    curve = tuple((t, t * gain - float(sums[t - 1])) for t in (1, 10, 100, steps))
    bias = np.array([float(h) for h in case.best.bias])
    q = case.flat.rewards + case.flat.matrices @ bias
    gaps = sum(float(q[:, s].max() - q[a, s]) for s, a in zip(lived.states, lived.actions))  # noqa: B905
    honest = SimpleNamespace(
        gain=gain, gain_kind="exact", curve=curve, regret=curve[-1][1], steps=steps, gap_regret=gaps
    )

    def broken(**wrong: Any) -> set[str]:
        ledger = Ledger()
        run = SimpleNamespace(**{**vars(honest), **wrong})
        claims.judge_run(ledger, case, run, lived, "player")
        return ledger.claims_broken

    assert broken() == set()
    assert broken(regret=honest.regret + 1e-6) == {"regret: player, replayed"}
    bent = ((1, curve[0][1] + 1e-6), *curve[1:])
    assert broken(curve=bent) == {"regret: player, replayed"}
    assert "regret: the gain it is measured against" in broken(gain=gain + 1e-6)
    below = gain - 1e-9
    assert "regret: the gain it is measured against" in broken(gain=below, gain_kind="upper_bound")
    assert broken(gap_regret=gaps + 1e-2) == {"regret: gaps, replayed"}
    # Another seed is another life.
    lived = replay.live(case.recipe, lambda generator: Player(), steps, 4)
    assert "regret: player, replayed" in broken()


def test_measures() -> None:
    plan = _plan(CORRIDOR)
    bounds = (plan.gain_lower, plan.gain_upper)
    honest = {
        "diameter": 3.0,
        "diameter_bounds": (3.0, 3.0),
        "status": "converged",
        "gain": 1.0,
        "gain_bounds": bounds,
    }

    def broken(**wrong: Any) -> set[str]:
        ledger = Ledger()
        claims.judge_measures(ledger, CORRIDOR, SimpleNamespace(**{**honest, **wrong}))
        return ledger.claims_broken

    assert broken() == set()
    assert broken(status="multichain") == {
        "measure: no multichain beside a finite diameter",
        "measure: multichain means gains that differ",
    }
    assert broken(diameter=math.inf)
    assert broken(diameter=3.0001) == {"measure: diameter"}
    assert broken(diameter_bounds=(3.1, 3.2)) == {"measure: bounds of the diameter hold"}
    assert broken(gain_bounds=(1.0 + 1e-6, 1.1), gain=1.05)
    assert broken(gain=0.9)


def test_equivariance() -> None:
    plan = _plan(DENSE)
    factor = 2.0**-30
    numbers = ("gain", "gain_lower", "gain_upper", "policy_gain", "span")
    scaled = replace(plan, **{name: getattr(plan, name) * factor for name in numbers})

    def broken(**wrong: Any) -> bool:
        ledger = Ledger()
        claims.judge_equivariance(ledger, DENSE, plan, replace(scaled, **wrong), factor)
        return bool(ledger.claims_broken)

    assert not broken()
    assert broken(gain=math.nextafter(scaled.gain, 1.0))
    assert broken(status=fmdp.Status.ITERATION_LIMIT)
    other = np.array(plan.policy.actions, dtype=np.int64)
    other[0] = (other[0] + 1) % DENSE.flat.n_actions
    assert broken(policy=_policy(DENSE, other))
