"""Discounts near 1 against exact arithmetic: value iteration alone needs millions of sweeps, and
rounding is multiplied by 1 / (1 - discount).

The truth is policy iteration in fractions. A plan must end as converged, or say that rounding keeps
it from that, and either way its bounds on the objective must hold.
"""

from __future__ import annotations

from fractions import Fraction

import fmdp
from referee import truth
from referee.claims import INFINITE, Case
from referee.ledger import Ledger

DISCOUNTS = (0.99999, 1.0 - 1e-9, 0.999, 1.0 - 1e-12)
STATES = 8
"""States up to which the truth is computed."""


def true_mean(case: Case, discount: float) -> Fraction:
    """Return the mean over the states of the best discounted values, exactly."""
    flat, share = case.flat, Fraction(discount)
    n, one = flat.n_states, Fraction(1)
    policy = [0] * n
    while True:
        rows = [{t: share * p for t, p in flat.rows[s][a].items()} for s, a in enumerate(policy)]
        pays = [[flat.pays[s][a]] for s, a in enumerate(policy)]
        values = [value for (value,) in truth._absorbed(rows, range(n), pays, one)]
        better = list(policy)
        for s in range(n):
            worth = [
                pay + share * sum(p * values[t] for t, p in row.items())
                for pay, row in zip(flat.pays[s], flat.rows[s], strict=True)
            ]
            if max(worth) > worth[policy[s]]:
                better[s] = worth.index(max(worth))
        if better == policy:
            return sum(values, Fraction(0)) / n
        policy = better


def judge_discount(ledger: Ledger, case: Case, plan: fmdp.Plan, discount: float) -> None:
    """Compare one discounted plan with the truth."""
    what, mean = "discount near 1", true_mean(case, discount)
    bounds = plan.stats.get("objective_bounds")
    ledger.judge(
        f"{what}: converged, or at the limit of precision",
        case.recipe,
        plan.status.value in ("converged", "precision_limit")
        and plan.objective is not None
        and bounds is not None,
        INFINITE,
        f"{discount!r}: {plan.status.value}, objective {plan.objective}",
    )
    if plan.objective is None or bounds is None:
        return
    lower, upper = bounds
    off = max(Fraction(lower) - mean, mean - Fraction(upper), Fraction(0))
    ledger.judge(
        f"{what}: objective within its bounds",
        case.recipe,
        off == 0 and lower <= plan.objective <= upper,
        float(off) / case.unit,
        f"{discount!r}: {lower!r} to {upper!r}, true {float(mean)!r}",
    )
    # Beside the tolerance there is the rounding of the mean itself.
    room = case.tolerance + 64 * 2.0**-52 * abs(float(mean))
    ledger.judge(
        f"{what}: converged means bounds within the tolerance",
        case.recipe,
        plan.status.value != "converged" or upper - lower <= room,
        (upper - lower) / case.unit,
        f"{discount!r}: {lower!r} to {upper!r}",
    )


def discounts_near_one(ledger: Ledger, case: Case, short: bool, turn: int) -> None:
    """The round: one discount in the short form, all in the full one."""
    if case.flat.n_states > STATES:
        return
    for discount in DISCOUNTS[turn % 2 : turn % 2 + 1] if short else DISCOUNTS:
        plan = fmdp.plan(case.model, fmdp.Exact(criterion="discounted", discount=discount))
        judge_discount(ledger, case, plan, discount)
