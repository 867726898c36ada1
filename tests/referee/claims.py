"""What every number that fmdp prints about a small model has to satisfy.

Each function holds one printed result (a plan, an evaluation, a run, a measurement) against the
truth and writes what it finds into the ledger. Bounds are compared exactly: a certified bound that
is wrong by the last bit is wrong. Where a number is right up to a tolerance, it is the one that
fmdp documents, in the unit of the rewards, and no other room is given but for the rounding of a
double (`ROUNDING`, on the size of what was added up).
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

import fmdp
from referee import programs, replay, truth
from referee.ledger import Ledger
from referee.recipes import Recipe

TOLERANCE = 1e-6
"""The default gap of a plan's bounds, in units of the reward."""
ROUNDING = 256 * 2.0**-52
"""Rounding of a few hundred operations, relative to the size of the bias and the rewards."""
TRAVELLED_UP_TO = 12
"""States up to which the diameter is computed: a policy iteration for every target."""
INFINITE = float("inf")


class Case:
    """A recipe, the model that fmdp makes of it, and what is true of it."""

    def __init__(self, recipe: Recipe, policy_hint: Sequence[int] | None = None) -> None:
        self.recipe = recipe
        self.model = recipe.build()
        self.flat = truth.flatten(recipe)
        self._hint = policy_hint
        self._valued: dict[tuple[int, ...], truth.Valued] = {}

    @cached_property
    def best(self) -> truth.Best:
        return truth.best(self.flat, self._hint)

    @property
    def unit(self) -> float:
        return self.recipe.unit

    @property
    def tolerance(self) -> float:
        return TOLERANCE * self.unit

    def value_of(self, actions: Sequence[int]) -> truth.Valued:
        key = tuple(int(a) for a in actions)
        if key not in self._valued:
            self._valued[key] = truth.policy_value(self.flat, key)
        return self._valued[key]

    def excess(self, printed: float, true: Any) -> float:
        """printed - true in units of the reward, exactly up to its own rounding."""
        with decimal.localcontext(prec=truth.DIGITS):
            kind = Fraction if self.flat.exact else Decimal
            # Decimals have an end, too: what they cannot tell apart is equal.
            if self.flat.same(kind(float(printed)), true, self.recipe.reward_size):
                return 0.0
            return float((kind(float(printed)) - true) / kind(self.unit))

    def rounding(self, bias_size: float) -> float:
        """What doubles can do to a number of this model, in units of the reward."""
        return ROUNDING * (bias_size + self.recipe.reward_size) / self.unit

    def actions_of(self, policy: Any) -> list[int]:
        """The joint action of every state, asked one by one."""
        sizes = self.recipe.action_sizes
        found = []
        for state in truth.assignments(self.recipe.state_sizes):
            action = policy(state)
            if not self.recipe.allows(state, action):
                raise AssertionError(f"{self.recipe.name}: {action} in {state} is forbidden")
            index = 0
            for value, size in zip(action, sizes, strict=True):
                index = index * size + int(value)
            found.append(index)
        return found


def _bounds(
    ledger: Ledger, case: Case, what: str, lower: float | None, upper: float | None, gains: Any
) -> None:
    """lower <= gain(s) <= upper for every state."""
    for side, bound, over in (
        ("lower bound", lower, lambda b: case.excess(b, min(gains))),
        ("upper bound", upper, lambda b: -case.excess(b, max(gains))),
    ):
        if bound is None:
            continue
        wrong = over(bound)
        true = float(min(gains) if side == "lower bound" else max(gains))
        ledger.judge(
            f"{what}: {side} holds in every state",
            case.recipe,
            wrong <= 0.0,
            wrong,
            f"printed {bound!r}, true {true!r}",
        )


def _inside(
    ledger: Ledger, case: Case, claim: str, value: float | None, lower: float, upper: float
) -> None:
    if value is None:
        return
    out = max(lower - value, value - upper) / case.unit
    ledger.judge(claim, case.recipe, out <= 0.0, out, f"{value!r} outside {lower!r} to {upper!r}")


def _number(
    ledger: Ledger,
    case: Case,
    claim: str,
    value: float | None,
    bounds: tuple[float, float] | None,
    true: Any,
    bias_size: float,
) -> None:
    """A gain from one state, with bounds of its own where it has them.

    It may be missing only where rounding keeps it from being known to the tolerance.
    """
    room = case.rounding(bias_size)
    if value is None:
        ledger.judge(claim, case.recipe, room >= 0.25 * TOLERANCE, INFINITE, "is missing")
    else:
        off = abs(case.excess(value, true))
        detail = f"printed {value!r}, true {float(true)!r}"
        ledger.judge(claim, case.recipe, off <= TOLERANCE + room, off, detail)
    if bounds is not None:
        off = max(case.excess(bounds[0], true), -case.excess(bounds[1], true))
        detail = f"printed {bounds[0]!r} to {bounds[1]!r}, true {float(true)!r}"
        ledger.judge(f"{claim}, inside its bounds", case.recipe, off <= 0.0, off, detail)
        _inside(ledger, case, f"{claim}, inside its bounds", value, *bounds)


def _status(
    ledger: Ledger,
    case: Case,
    what: str,
    status: str,
    gap: float,
    gains: Sequence[Any],
    one_gain: bool,
    bias_size: float,
    tolerance: float,
) -> None:
    """Each status means what it says; a small model is settled unless rounding forbids it."""
    spread = case.excess(float(max(gains)), min(gains)) if not one_gain else 0.0
    said = f"status {status}, true gains {float(min(gains))!r} to {float(max(gains))!r}"
    if status == "converged":
        over = (gap - tolerance) / case.unit
        ledger.judge(
            f"{what}: converged means bounds within the tolerance",
            case.recipe,
            gap <= tolerance * (1 + 1e-6),
            over,
            f"gap {gap!r}, tolerance {tolerance!r}",
        )
    if status == "multichain":
        ledger.judge(
            f"{what}: multichain means gains that differ", case.recipe, not one_gain, INFINITE, said
        )
    hard = case.rounding(bias_size) >= 0.25 * tolerance / case.unit
    if status == "precision_limit":
        ledger.judge(
            f"{what}: precision limit means that rounding is in the way",
            case.recipe,
            hard,
            INFINITE,
            f"{said}, bias {bias_size!r}",
        )
    elif not hard:
        near = spread <= 2 * tolerance / case.unit
        expected = {"converged"} if one_gain else {"multichain"}
        if near and not one_gain:
            expected = {"converged", "multichain"}
        ledger.judge(
            f"{what}: a small model is settled", case.recipe, status in expected, INFINITE, said
        )


def judge_exact_plan(
    ledger: Ledger, case: Case, plan: Any, *, stopped: bool = False, what: str = "exact plan"
) -> None:
    """An exact plan for average reward, finished or stopped early."""
    best = case.best
    lower, upper, status = plan.gain_lower, plan.gain_upper, plan.status.value
    _bounds(ledger, case, what, lower, upper, best.gain)
    if lower is None or upper is None:
        ledger.judge(f"{what}: has bounds", case.recipe, False, INFINITE, f"{lower}, {upper}")
        return
    if not stopped:
        _status(
            ledger,
            case,
            what,
            status,
            upper - lower,
            best.gain,
            best.one_gain,
            best.bias_size,
            case.tolerance,
        )
    elif status == "multichain":
        ledger.judge(
            f"{what}: multichain means gains that differ",
            case.recipe,
            not best.one_gain,
            INFINITE,
            f"true gain {float(best.lowest)!r} everywhere",
        )
    elif status == "converged":
        ledger.judge(
            f"{what}: converged means bounds within the tolerance",
            case.recipe,
            upper - lower <= case.tolerance * (1 + 1e-6),
            (upper - lower) / case.unit,
            "",
        )
    _inside(ledger, case, f"{what}: gain inside its bounds", plan.gain, lower, upper)
    actions = case.actions_of(plan.policy)
    own = case.value_of(actions)
    wrong = case.excess(lower, min(own.gain))
    ledger.judge(
        f"{what}: its policy gains the lower bound in every state",
        case.recipe,
        wrong <= 0.0,
        wrong,
        f"lower bound {lower!r}, the policy gains {float(min(own.gain))!r}",
    )
    _number(
        ledger,
        case,
        f"{what}: gain of the policy",
        plan.policy_gain,
        plan.stats.get("policy_gain_bounds"),
        own.gain[case.flat.start],
        own.bias_size,
    )
    if status == "multichain":
        ledger.judge(
            f"{what}: no single gain where there is none",
            case.recipe,
            plan.gain is None,
            INFINITE,
            f"gain {plan.gain!r} with status multichain",
        )
        _number(
            ledger,
            case,
            f"{what}: gain from the initial state",
            plan.stats.get("gain_from_initial_state"),
            plan.stats.get("gain_from_initial_state_bounds"),
            best.gain[case.flat.start],
            best.bias_size,
        )
    if status == "converged" and plan.bias is not None:
        backed, _ = truth.backup(case.flat, plan.bias)
        steps = [case.excess(-float(h), -new) for h, new in zip(plan.bias, backed, strict=True)]
        gap = max(steps) - min(steps)
        ledger.judge(
            f"{what}: its bias solves the optimality equation",
            case.recipe,
            gap <= TOLERANCE * (1 + 1e-6) + case.rounding(float(np.ptp(plan.bias))),
            gap,
            f"L h - h spans {gap!r} units",
        )
        _spans(ledger, case, plan, what)


def _spans(ledger: Ledger, case: Case, plan: Any, what: str) -> None:
    """Judge sp(h) and sp_i(h), the largest change along one variable, by the printed bias.

    Spans may be left out where the plan says that their error is large against them.
    """
    table = np.asarray(plan.bias).reshape(case.recipe.state_sizes)
    if plan.span is None:
        error = plan.stats.get("span_error", 0.0)
        ledger.judge(
            f"{what}: spans are left out only where they are not known",
            case.recipe,
            plan.factored_spans is None and error > 1e-2 * float(np.ptp(table)),
            INFINITE,
            f"no span for a bias that spans {float(np.ptp(table))!r}, with error {error!r}",
        )
        return
    sizes = [float(np.ptp(table, axis=i).max()) for i in range(table.ndim)]
    off = abs(float(np.ptp(table)) - plan.span)
    off = max(off, *(abs(a - b) for a, b in zip(sizes, plan.factored_spans, strict=True)))
    ledger.judge(
        f"{what}: spans are those of its bias",
        case.recipe,
        off <= ROUNDING * (float(np.abs(table).max()) + case.unit),
        off / case.unit,
        f"{plan.span!r}, {plan.factored_spans!r} for {float(np.ptp(table))!r}, {sizes!r}",
    )


def judge_discounted_plan(ledger: Ledger, case: Case, plan: Any, discount: float) -> None:
    """An exact plan under a discount: the mean value, and bounds on the gain from it."""
    what = "discounted plan"
    _bounds(ledger, case, what, plan.gain_lower, plan.gain_upper, case.best.gain)
    if plan.status.value != "converged":
        return
    value = truth.discounted_value(case.flat, discount)
    off = abs(plan.objective - float(value.mean())) / case.unit
    room = TOLERANCE + case.rounding(float(np.abs(value).max()))
    ledger.judge(
        f"{what}: mean value",
        case.recipe,
        off <= room,
        off,
        f"printed {plan.objective!r}, true {float(value.mean())!r}",
    )


def judge_approximate_plan(
    ledger: Ledger, case: Case, plan: Any, settings: fmdp.ALP, *, tame: bool
) -> None:
    """A plan of the approximate linear program; `tame` if no coefficient is tiny."""
    what = "linear program"
    asked = f"basis {settings.basis}, {settings.criterion}, by {settings.method}"
    best = case.best
    upper, lower = plan.gain_upper, plan.gain_lower
    _bounds(ledger, case, what, None, upper, best.gain)
    _bounds(ledger, case, what, lower, None, best.gain)
    if plan.policy is not None:
        own = case.value_of(case.actions_of(plan.policy))
        if lower is not None:
            wrong = case.excess(lower, min(own.gain))
            ledger.judge(
                f"{what}: its policy gains the lower bound in every state",
                case.recipe,
                wrong <= 0.0,
                wrong,
                f"lower bound {lower!r}, the policy gains {float(min(own.gain))!r}",
            )
        _number(
            ledger,
            case,
            f"{what}: gain of the policy",
            plan.policy_gain,
            plan.stats.get("policy_gain_bounds"),
            own.gain[case.flat.start],
            own.bias_size,
        )
    if lower is not None and upper is not None:
        _inside(ledger, case, f"{what}: gain inside its bounds", plan.gain, lower, upper)
        if plan.policy_gain is not None:
            _inside(
                ledger,
                case,
                f"{what}: gain of the policy inside the bounds",
                plan.policy_gain,
                lower,
                upper,
            )
    ledger.judge(
        f"{what}: is solved",
        case.recipe,
        # Coefficients below a solver's own tolerances may end it early, and it has to say so.
        plan.status.value in (("converged",) if tame else ("converged", "precision_limit")),
        INFINITE,
        f"status {plan.status.value} with {asked}",
    )
    if plan.status.value != "converged" or not tame:
        return
    functions = programs.basis_functions(case.recipe, str(settings.basis))
    own_objective = programs.objective(
        case.flat, functions, settings.criterion, settings.discount or 0.95
    )
    if own_objective is None:
        return
    horizon = 20.0 if settings.criterion == "discounted" else 1.0
    off = abs(plan.objective - own_objective) / case.unit
    room = TOLERANCE + ROUNDING * horizon * case.recipe.reward_size / case.unit
    ledger.judge(
        f"{what}: objective is that of the program over all (s, a)",
        case.recipe,
        off <= room,
        off,
        f"{plan.objective!r} and {own_objective!r} with {asked}",
    )


def judge_evaluation(ledger: Ledger, case: Case, actions: Sequence[int], found: Any) -> None:
    """The gain of a given policy."""
    what = "evaluation"
    own = case.value_of(actions)
    ledger.judge(f"{what}: is exact", case.recipe, found.kind == "exact", INFINITE, found.kind)
    _bounds(ledger, case, what, found.gain_lower, found.gain_upper, own.gain)
    _inside(
        ledger,
        case,
        f"{what}: gain inside its bounds",
        found.gain,
        found.gain_lower,
        found.gain_upper,
    )
    one_gain = all(case.flat.same(g, own.gain[0], case.recipe.reward_size) for g in own.gain)
    _status(
        ledger,
        case,
        what,
        found.status.value,
        found.gain_upper - found.gain_lower,
        own.gain,
        one_gain,
        own.bias_size,
        case.tolerance,
    )
    _number(
        ledger,
        case,
        f"{what}: gain from the initial state",
        found.gain,
        getattr(found, "gain_bounds", None),
        own.gain[case.flat.start],
        own.bias_size,
    )


def judge_run(ledger: Ledger, case: Case, run: Any, lived: replay.Lived, learner: str) -> None:
    """Regret against the true gain, recomputed step by step from the replayed streams."""
    what = f"regret: {learner}"
    true = case.best.gain[case.flat.start]
    off = case.excess(run.gain, true)
    if run.gain_kind == "exact":
        room = 1e-8 * len(case.recipe.ranges) + case.rounding(case.best.bias_size)
        right = abs(off) <= room
    else:
        right = off >= 0.0
    ledger.judge(
        "regret: the gain it is measured against",
        case.recipe,
        right,
        abs(off),
        f"printed {run.gain!r} ({run.gain_kind}), true {float(true)!r}",
    )
    marks = dict(run.curve)
    total, worst = 0.0, 0.0
    for step, paid in enumerate(lived.paid, start=1):
        total += paid
        if step in marks:
            worst = max(worst, abs(step * run.gain - total - marks[step]) / case.unit)
    steps = len(lived.paid)
    room = steps * ROUNDING * case.recipe.reward_size / case.unit
    ledger.judge(
        f"{what}, replayed",
        case.recipe,
        worst <= room and steps in marks,
        worst,
        f"off by up to {worst!r} units along the curve",
    )
    ledger.judge(
        f"{what}, replayed",
        case.recipe,
        marks.get(steps) == run.regret and run.steps == steps,
        INFINITE,
        "the curve's end",
    )
    if run.gap_regret is None:
        return
    ledger.judge(
        "regret: gaps only where there is one gain", case.recipe, case.best.one_gain, INFINITE, ""
    )
    if not unique_bias(case):
        return
    q = case.flat.rewards.T + (case.flat.matrices @ _floats(case.best.bias)).T
    gaps = q.max(axis=1, keepdims=True) - q
    own = sum(float(gaps[s, a]) for s, a in zip(lived.states, lived.actions, strict=True))
    off = abs(run.gap_regret - own) / case.unit
    # The planner stops at 1e-8 of the ranges; the bias is a few mixing times less precise.
    room = steps * (1e-7 * len(case.recipe.ranges) + case.rounding(case.best.bias_size))
    ledger.judge(
        "regret: gaps, replayed",
        case.recipe,
        off <= room,
        off,
        f"printed {run.gap_regret!r}, own {own!r}",
    )


def unique_bias(case: Case) -> bool:
    """All transition probabilities positive: one recurrent class whatever is done."""
    return all(bool((table > 0.0).all()) for _, table in case.recipe.transitions)


def _floats(values: Sequence[Any]) -> np.ndarray:
    return np.array([float(value) for value in values])


def judge_measures(ledger: Ledger, case: Case, found: Any) -> None:
    """Diameter, status and gain say the same about the model, and it is true."""
    what = "measure"
    connected = truth.communicating(case.flat)
    finite = found.diameter is not None and np.isfinite(found.diameter)
    if found.diameter is not None:
        ledger.judge(
            f"{what}: finite diameter where all states communicate",
            case.recipe,
            finite == connected,
            INFINITE,
            f"diameter {found.diameter!r}",
        )
    if finite and connected and case.flat.n_states <= TRAVELLED_UP_TO:
        true = truth.diameter(case.flat)
        lower, upper = found.diameter_bounds
        off = float(max(Decimal(lower) - true, true - Decimal(upper)) / true)
        ledger.judge(
            f"{what}: bounds of the diameter hold",
            case.recipe,
            off <= ROUNDING,  # as its documentation says
            off,
            f"printed {lower!r} to {upper!r}, true {float(true)!r}",
        )
        off = float(abs(Decimal(found.diameter) / true - 1))
        ledger.judge(
            f"{what}: diameter",
            case.recipe,
            off <= TOLERANCE,
            off,
            f"printed {found.diameter!r}, true {float(true)!r}",
        )
    ledger.judge(
        f"{what}: no multichain beside a finite diameter",
        case.recipe,
        not (finite and found.status == "multichain"),
        INFINITE,
        f"diameter {found.diameter!r}, status {found.status}",
    )
    if found.status == "multichain":
        ledger.judge(
            f"{what}: multichain means gains that differ",
            case.recipe,
            not case.best.one_gain,
            INFINITE,
            f"true gain {float(case.best.lowest)!r} everywhere",
        )
    if found.gain_bounds is not None:
        lower, upper = found.gain_bounds
        _bounds(ledger, case, what, lower, upper, case.best.gain)
        _inside(ledger, case, f"{what}: gain inside its bounds", found.gain, lower, upper)


def judge_equivariance(ledger: Ledger, case: Case, plan: Any, scaled: Any, factor: float) -> None:
    """Rewards times a power of two: every number times it to the bit, the same policy."""

    def bits(one: Any, other: Any) -> bool:
        return one == other if one is None or other is None else one * factor == other

    numbers = ("gain", "gain_lower", "gain_upper", "policy_gain", "span", "objective")
    wrong = [name for name in numbers if not bits(getattr(plan, name), getattr(scaled, name))]
    if plan.status != scaled.status:
        wrong.append(f"status ({plan.status.value}, {scaled.status.value})")
    if (plan.policy is None) != (scaled.policy is None) or (
        plan.policy is not None and case.actions_of(plan.policy) != case.actions_of(scaled.policy)
    ):
        wrong.append("policy")
    ledger.judge(
        f"another unit: {plan.planner} plan, to the bit",
        case.recipe,
        not wrong,
        INFINITE,
        f"at {factor:g}: {', '.join(wrong)} differ",
    )
