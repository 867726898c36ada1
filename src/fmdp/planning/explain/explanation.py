"""Why this action: what every action is worth in one state, and what it costs to take another.

    average reward    value(a) = R(s, a) + (P h)(s, a) - h(s)
    discounted        value(a) = R(s, a) + g (P V)(s, a)
    gap(a)            = the best value - value(a), never negative

h is known up to a constant only, so it is counted from the state that is asked: then the best value
is the gain, whatever the constant, and under a discount it is V(s). A gap is what taking the action
once costs in all, rewards to come included, if one plays on as h says. The values are as good as h:
the optimal bias (exact), h_w (the linear program: the values that its policy is greedy for), u
(span), or the bias of the policy itself, where a plan has no other or a saved policy is explained.
A plan for the worst or the best case inside intervals has an h of the nested backup N, in the place
of whose P h the model's own numbers would be those of nobody: its values are R + N_a h - h(s).

The bias of a policy is defined up to one constant per recurrent class. So the values of a state are
defined where the policy, after any action there, ends in one and the same class; elsewhere they are
refused. They come with bounds on their errors (policy_bias.py), and digits below these bounds are
not printed.

Cost: one state's backup (one_state.py), or one of all states where there are intervals; the bias of
a policy, where it is needed, is a policy evaluation by elimination, or a few direct solutions up to
1,024 states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp._base.numerals import rounded_number, upper_text
from fmdp.elimination.backup import backup_for
from fmdp.errors import InvalidParameter, TooLarge, printable
from fmdp.model import FactoredMDP
from fmdp.model.naming import Assignment, Value
from fmdp.model.spaces import decode, encode, shown
from fmdp.planning.evaluate import timed_values
from fmdp.planning.exact.intervals import refuse_without_intervals, tables_of
from fmdp.planning.exact.small import tabular_backup
from fmdp.planning.explain.one_state import (
    ActionSum,
    count_successors,
    expected_next,
    rewards_of,
    values_of_basis,
    values_of_table,
)
from fmdp.planning.explain.policy_bias import policy_bias, several_classes
from fmdp.planning.plan import Plan
from fmdp.planning.policies.policy import Policy, has_sizes_of
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.tabular.flat import rounding_of

Floats = NDArray[np.float64]

ALL_LISTED = 1 << 12
"""Joint actions up to which every one is listed; above, the best few."""
FEW = 20
_SUMMED = 1 << 16
"""Joint actions up to which a sum of functions is written out; above, the best come by
elimination."""
_NESTED_PAIRS = 1 << 24
"""States x joint actions up to which a plan for intervals is explained."""
_FORBIDDEN_PRINTED = 3
_PRINTED = 20
_TOLD = 1e-3
"""Largest error of a value, relative to it or to the unit of the reward, at which it is told."""


_OF_BIAS = "R + P h - h(s), h the optimal bias: the best is the gain"
_OF_POLICY = "R + P h - h(s), h the bias of the policy: that of its own action is its gain"
_OF_CASE = {
    "robust": "R + N h - h(s), N the backup with nature at her worst inside the intervals and h "
    "its bias: the best is the lower bound of the worst case",
    "optimistic": "R + N h - h(s), N the backup with nature at her best inside the intervals and h "
    "its bias: the best is the upper bound of the best case",
}
_OF_SPAN = "R + P u - u(s), u the truncated bias of the plan, for which its policy is greedy"
_OF_PROGRAM = (
    "R + P h_w - h_w(s), h_w the approximate bias of the linear program, for which its policy is "
    "greedy"
)


@dataclass(frozen=True)
class ActionValue:
    """One action in the state that is asked.

    Attributes
    ----------
    action
        The value of every action variable by its name, as the value was listed.
    value
        What it is worth; `Explanation.of` says in which sense. None where only gaps are known.
    gap
        How much less that is than the best action's.
    error
        Bound on the error of the value: of a policy that is explained, on the whole error; of a
        plan's bias, on what rounding can have done to it. None where no bound is known.
    """

    action: Mapping[str, Value]
    value: float | None
    gap: float
    error: float | None = None


@dataclass(frozen=True)
class Explanation:
    """What every action is worth in one state; `print` shows it as a table.

    Attributes
    ----------
    state
        The state that was asked, by name, with its values as they were listed.
    action
        What the policy does there, in the same form.
    values
        The allowed actions, best first: all of them up to 4,096, else the best 20 and the policy's.
    of
        What the values are, in words.
    criterion
        "average", "discounted" or "finite".
    discount
        Of the discounted criterion, and of the finite one, where 1 is none; else None.
    n_actions
        How many joint actions there are.
    forbidden
        Actions that a constraint forbids in this state, where all actions are listed.
    unit
        The largest range of a reward factor, in which differences are to be seen.
    """

    state: Mapping[str, Value]
    action: Mapping[str, Value]
    values: tuple[ActionValue, ...]
    of: str
    criterion: str
    discount: float | None
    n_actions: int
    forbidden: tuple[Mapping[str, Value], ...] = ()
    unit: float = 1.0

    @property
    def chosen(self) -> ActionValue:
        """The policy's own action among the values."""
        return next(one for one in self.values if one.action == self.action)

    @property
    def runner_up(self) -> ActionValue | None:
        """The best of the other actions; None where there is no other."""
        return next((one for one in self.values if one.action != self.action), None)

    def __str__(self) -> str:
        shown = list(self.values[:_PRINTED])
        if self.chosen not in shown:
            shown.append(self.chosen)
        known = shown[0].value is not None
        rows = [[*self.action, *(["value"] if known else []), "gap", ""]]
        for one in shown:
            value = [] if one.value is None else [rounded_number(one.value, one.error)]
            mark = "<- the policy's" if one.action == self.action else ""
            rows.append([*map(str, one.action.values()), *value, self._gap(one), mark])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  " + "  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines = [f"state   {_pairs(self.state)}", f"action  {_pairs(self.action)}", *table]
        hidden = self.n_actions - len(self.forbidden) - len(shown)
        if hidden > 0:
            lines.append(f"  and {describe_count(hidden)} more actions")
        if self.forbidden:
            told = "; ".join(map(_pairs, self.forbidden[:_FORBIDDEN_PRINTED]))
            more = len(self.forbidden) - _FORBIDDEN_PRINTED
            lines.append(f"  forbidden here: {told}{f'; {more:,} more' if more > 0 else ''}")
        lines.append("gap     the best value less the action's: what it costs to take it once")
        lines.append(f"value   {self.of}")
        return "\n".join(map(printable, lines))

    def _gap(self, one: ActionValue) -> str:
        """Return the gap with the digits that are known; both values have errors."""
        error = (one.error or 0.0) + (self.values[0].error or 0.0)
        least = max(1e-6 * self.unit, 2.0 * error)
        if 0.0 < one.gap < least:
            return f"below {upper_text(least, 1)}"
        return rounded_number(one.gap, error, 4)


def _pairs(named: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in named.items())


def explain_plan(
    plan: Plan, state: Assignment, model: FactoredMDP | None = None, step: int = 0
) -> Explanation:
    """What every action is worth to a plan in one state; see `Plan.explain`."""
    model = plan.model if model is None else model
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(
            "this plan does not know its model; give it, as in plan.explain(state, model=model)"
        )
    if plan.policy is None:
        raise InvalidParameter(f"this plan has no policy to explain: {plan.status.message}")
    checked = model.structure.check_state(state)
    if isinstance(plan.policy, TimedPolicy):
        return explain_timed(model, plan.policy, checked, step)
    refuse_step(step)
    discount = plan.settings.discount if _is_discounted(plan) else None
    case = getattr(plan.settings, "intervals", "nominal")
    if plan.bias is not None and case in _OF_CASE:
        return _of_case(plan, model, checked, case)
    if plan.bias is not None:
        words = _OF_SPAN if plan.planner == "span" else _OF_BIAS
        if discount is not None:
            words = f"R + {discount:g} P V, V the optimal value: the best is V(s)"
        return _of_table(model, plan.policy, checked, plan.bias, discount, words)
    if "weights" in plan.stats and plan.settings is not None:
        return _of_weights(plan, model, checked, discount)
    if discount is not None:
        raise InvalidParameter(f"this plan has no values to explain by: {plan.status.message}")
    return explain_policy(model, plan.policy, checked)


def explain_policy(model: FactoredMDP, policy: Policy, state: Assignment) -> Explanation:
    """What every action is worth in one state if the policy is followed afterwards.

    Parameters
    ----------
    model
        What is acted in.
    policy
        One action for every state.
    state
        As in `Structure.check_state`.

    Raises
    ------
    InvalidParameter
        Where it is no state, the policy may end in several recurrent classes after an action
        there, or rounding leaves the values unknown.
    TooLarge
        Where the policy cannot be evaluated exactly.
    """
    structure = model.structure
    checked = structure.check_state(state)
    bias = policy_bias(model, policy, encode(checked, structure.state_sizes))
    own = encode(structure.check_action(policy(checked)), structure.action_sizes)
    listed = _allowed(model, checked)
    listed[own] = True  # also where a constraint forbids it: it is what the policy does
    if (count_successors(model, ~bias.defined, checked)[listed] > 0.0).any():
        raise several_classes("an action leads to another recurrent class of the policy")
    values = values_of_table(model, bias.h, checked, 1.0)
    errors = _errors(model, bias.h, bias.error, checked)
    rounded_gain = bias.gain_error + 2.0 * float(np.finfo(np.float64).eps) * abs(bias.gain)
    if rounded_gain < errors[own]:  # the value of the policy's own action is its gain
        values[own], errors[own] = bias.gain, rounded_gain
    known = np.maximum(np.abs(values), structure.reward_unit)
    if (errors[listed] > _TOLD * known[listed]).any():
        raise InvalidParameter(
            f"rounding leaves the values of this state unknown by up to "
            f"{upper_text(float(errors[listed].max()), 2)}: the policy's chain is too slow to be "
            f"explained"
        )
    return _enumerated(model, policy, checked, values, None, _OF_POLICY, errors=errors)


def _errors(model: FactoredMDP, h: Floats, errors: Floats, state: tuple[int, ...]) -> Floats:
    """Return a bound on the error of R + P h, where h is counted from the state and has these
    errors: [A]."""
    structure = model.structure
    rounding = rounding_of(structure.m + structure.l, sum(structure.state_sizes))
    rewards = rewards_of(model, state)
    sizes = replace(rewards, tables=tuple(np.abs(table) for table in rewards.tables))
    moved = expected_next(model, errors + rounding * np.abs(h), state)
    return 1.01 * (rounding * sizes.all() + moved)


def explain_greedy(model: FactoredMDP, policy: Any, state: Assignment) -> Explanation:
    """The gaps of a policy that is greedy for a sum of functions, by these functions alone: for
    models whose policies cannot be evaluated."""
    structure = model.structure
    checked = structure.check_state(state)
    scopes, tables = policy.functions_at(checked)
    unit = structure.reward_unit
    # What is forbidden is minus infinity there, and left out here.
    numbers = tuple(unit * np.where(np.isneginf(table), 0.0, table) for table in tables)
    total = ActionSum(structure.action_sizes, scopes, numbers)
    words = (
        "that of the approximate values for which the policy is greedy, known up to a constant, so "
        "that only gaps are given"
    )
    return _of_sum(model, policy, checked, total, None, None, words)


def explain_timed(
    model: FactoredMDP, policy: TimedPolicy, state: Assignment, step: int = 0
) -> Explanation:
    """What every action is worth at a step of a horizon if the policy is followed afterwards.

    Parameters
    ----------
    model
        What is acted in.
    policy
        A table for every step.
    state
        As in `Structure.check_state`.
    step
        Of the run, from 0; stage `step` mod H.

    Raises
    ------
    InvalidParameter
        Where it is no state or no step, or the policy is for other sizes.
    TooLarge
        Where the policy cannot be evaluated exactly.
    """
    checked = model.structure.check_state(state)
    has_sizes_of(policy, model.structure)
    stage = policy.stage(step)
    left = policy.horizon - 1 - step % policy.horizon
    backup = tabular_backup(model) or backup_for(model)
    after = np.zeros(backup.n_states)
    for values, _ in islice(timed_values(backup, policy, model.structure.reward_size), left):
        after = values
    share = "" if policy.discount == 1.0 else f"{policy.discount:g} "
    steps = "1 step" if left == 1 else f"{describe_count(left)} steps"
    words = (
        f"R + {share}P V, V what the policy gets in the {steps} after this "
        f"one: that of its own action is its value"
    )
    found = _of_table(model, stage, checked, backup.to_canonical(after), policy.discount, words)
    return replace(found, criterion="finite")


def refuse_step(step: int) -> None:
    """InvalidParameter where a step is asked of a policy that is the same at every step."""
    if step != 0:
        raise InvalidParameter(
            f"a step is for policies with a horizon; this one is the same at every step, got "
            f"step {shown(step)}"
        )


def _is_discounted(plan: Plan) -> bool:
    return getattr(plan.settings, "criterion", "average") == "discounted"


def _of_table(
    model: FactoredMDP,
    policy: Policy,
    state: tuple[int, ...],
    h: Floats,
    discount: float | None,
    words: str,
) -> Explanation:
    """Return the explanation by a table h of the bias, or of the values under a discount."""
    if discount is not None:
        values = values_of_table(model, h, state, discount)
        return _enumerated(model, policy, state, values, discount, words)
    # Counted from the state before anything is summed: what h has in common costs no digits.
    counted = h - h[encode(state, model.structure.state_sizes)]
    rounded = np.full(len(h), 2.0 * float(np.finfo(np.float64).eps) * float(np.abs(h).max()))
    values = values_of_table(model, counted, state, 1.0)
    errors = _errors(model, counted, rounded, state)
    return _enumerated(model, policy, state, values, None, words, errors=errors)


def _of_case(plan: Plan, model: FactoredMDP, state: tuple[int, ...], case: str) -> Explanation:
    """By the backup in which nature chooses, at its own h."""
    assert plan.policy is not None
    assert plan.bias is not None
    s, worst = model.structure, case == "robust"
    pairs = s.n_states * s.n_actions
    if pairs > _NESTED_PAIRS:
        raise TooLarge(
            f"the {case} values of {describe_count(pairs)} states and actions are not written out; "
            f"at most {describe_count(_NESTED_PAIRS)} are",
            8 * pairs,
            8 * _NESTED_PAIRS,
        )
    known = refuse_without_intervals(plan.settings, model)
    backup = backup_for(tables_of(known, worst=worst), worst=worst)
    place = encode(state, s.state_sizes)
    values = backup.action_values(plan.bias)[place] - plan.bias[place]
    return _enumerated(model, plan.policy, state, values, None, _OF_CASE[case])


def _of_weights(
    plan: Plan, model: FactoredMDP, state: tuple[int, ...], discount: float | None
) -> Explanation:
    # Imported when such a plan is explained: it brings the linear programs with it.
    from fmdp.planning.alp.bases import make_basis

    assert plan.policy is not None
    basis = make_basis(model.structure, plan.settings.basis)
    weights = plan.stats["weights"]
    total = values_of_basis(model, basis, weights, state, 1.0 if discount is None else discount)
    if discount is None:
        shift = -basis.value(weights, state)
        words = _OF_PROGRAM
    else:
        shift = discount * (plan.stats["constant"] or 0.0)
        words = (
            f"R + {discount:g} P V_w, V_w the approximate value of the linear program, for which "
            f"its policy is greedy"
        )
    return _of_sum(model, plan.policy, state, total, shift, discount, words)


def _of_sum(
    model: FactoredMDP,
    policy: Policy,
    state: tuple[int, ...],
    total: ActionSum,
    shift: float | None,
    discount: float | None,
    words: str,
) -> Explanation:
    """`shift` is added to the values; where it is None they are not known, only their gaps."""
    structure = model.structure
    known = shift is not None
    if structure.n_actions <= _SUMMED:
        values = total.all() + (shift or 0.0)
        return _enumerated(model, policy, state, values, discount, words, known=known)
    found = total.best(FEW, structure, state)
    chosen = structure.check_action(policy(state))
    if chosen not in [action for action, _ in found]:
        found.append((chosen, total.at(chosen)))
    listed = [(action, value + (shift or 0.0)) for action, value in found]
    return _record(model, chosen, state, listed, (), discount, words, known)


def _enumerated(
    model: FactoredMDP,
    policy: Policy,
    state: tuple[int, ...],
    values: Floats,
    discount: float | None,
    words: str,
    *,
    known: bool = True,
    errors: Floats | None = None,
) -> Explanation:
    """Return the explanation by the values [A] of all joint actions, with bounds on their errors
    where these are known."""
    structure = model.structure
    sizes = structure.action_sizes
    allowed = _allowed(model, state)
    chosen = structure.check_action(policy(state))
    own = encode(chosen, sizes)
    order = np.flatnonzero(allowed)[np.argsort(-values[allowed], kind="stable")]
    if len(values) > ALL_LISTED:
        order = order[:FEW]
    places = order.tolist()
    if own not in places:
        places.append(own)  # also where a constraint forbids it: it is what the policy does
    listed = [(decode(place, sizes), float(values[place])) for place in places]
    refused = [] if len(values) > ALL_LISTED else np.flatnonzero(~allowed).tolist()
    forbidden = [decode(place, sizes) for place in refused if place != own]
    bounds = None if errors is None else dict(zip(places, errors[places].tolist(), strict=True))
    return _record(model, chosen, state, listed, forbidden, discount, words, known, bounds)


def _allowed(model: FactoredMDP, state: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return which joint actions are allowed in a state: [A]."""
    structure = model.structure
    allowed = np.ones(structure.n_actions, dtype=np.bool_)
    if structure.constraints:
        allowed[:] = False
        allowed[structure.allowed_actions(state)] = True
    return allowed


def _record(
    model: FactoredMDP,
    chosen: tuple[int, ...],
    state: tuple[int, ...],
    listed: Sequence[tuple[tuple[int, ...], float]],
    forbidden: Sequence[tuple[int, ...]],
    discount: float | None,
    words: str,
    known: bool,
    errors: Mapping[int, float] | None = None,
) -> Explanation:
    """Return the explanation of the listed actions and values; `errors` by index of the action."""
    structure = model.structure
    name = structure.naming.actions.as_listed
    best = max(value for _, value in listed)
    # The policy's own comes first of those that are as good.
    ordered = sorted(listed, key=lambda one: (best - one[1], one[0] != chosen))
    return Explanation(
        state=structure.naming.states.as_listed(state),
        action=name(chosen),
        values=tuple(
            ActionValue(
                name(action),
                value if known else None,
                best - value,
                None if errors is None else errors[encode(action, structure.action_sizes)],
            )
            for action, value in ordered
        ),
        of=words,
        criterion="average" if discount is None else "discounted",
        discount=discount,
        n_actions=structure.n_actions,
        forbidden=tuple(map(name, forbidden)),
        unit=structure.reward_unit,
    )
