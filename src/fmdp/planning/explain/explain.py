"""Explanations of a policy's action: the value of every action in one state, and its gap.

    average reward    value(a) = R(s, a) + (P h)(s, a) - h(s)
    discounted        value(a) = R(s, a) + g (P V)(s, a)
    gap(a)            = the best value - value(a), never negative

The bias h is known up to a constant, so it is taken relative to the explained state: the best value
is then the gain, and under a discount V(s). A gap is the total loss, future rewards included, from
taking the action once and continuing as h assumes. h is the optimal bias (exact), h_w (the function
of the linear program for which its policy is greedy), u (span), or the bias of the policy itself if
the plan has no other or a saved policy is explained. A plan for the worst or the best case inside
intervals has the bias h of the nested backup N; its values are R + N_a h - h(s).

The bias of a policy is defined up to one constant per recurrent class. The values of a state are
therefore defined only if the policy, after any action there, ends in one and the same class;
otherwise they are refused. They come with bounds on their errors (policy_bias.py), and digits below
these bounds are not printed.

Cost: the backup of one state (one_state.py), or of all states with intervals. The bias of a policy,
if needed, is a policy evaluation by elimination, or a few direct solutions up to 1,024 states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp._base.numerals import upper_text
from fmdp.elimination.backup import backup_for
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.expansion import expand
from fmdp.model.naming import Assignment
from fmdp.model.spaces import decode, encode, shown
from fmdp.planning.counts.policy_chain import NotOnCounts
from fmdp.planning.evaluate import timed_values
from fmdp.planning.exact.interval_sets import refuse_without_intervals, tables_of
from fmdp.planning.exact.small import tabular_backup
from fmdp.planning.explain.explanation import ActionValue, Explanation
from fmdp.planning.explain.on_counts import explain_on_counts
from fmdp.planning.explain.one_state import (
    ActionSum,
    count_successors,
    expected_next,
    rewards_of,
    values_of_basis,
    values_of_table,
)
from fmdp.planning.explain.policy_bias import PolicyBias, policy_bias, several_classes
from fmdp.planning.policies.counts import CountPolicy, TimedCountPolicy
from fmdp.planning.policies.policy import Policy, has_sizes_of
from fmdp.planning.policies.timed import TimedPolicy
from fmdp.planning.tabular.model import relative_rounding

if TYPE_CHECKING:
    from fmdp.planning.plan import Plan

Floats = NDArray[np.float64]
State = tuple[int, ...]

ALL_LISTED = 1 << 12
"""Most joint actions of which every one is listed."""
FEW = 20
"""Number of best actions that are listed if there are more."""
_SUMMED = 1 << 16
"""Most joint actions for which a sum of functions is written out; above, elimination finds the
best."""
_NESTED_PAIRS = 1 << 24
"""Most pairs of state and joint action for which a plan for intervals is explained."""
_SIGNIFICANT = 1e-3
"""Largest error of a value that is reported, relative to it or to the unit of the reward."""

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


def explain_plan(
    plan: Plan, state: Assignment, model: FactoredMDP | None = None, step: int = 0
) -> Explanation:
    """Return the explanation of a plan in one state; see `Plan.explain`."""
    model = plan.model if model is None else model
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(
            "this plan does not know its model; give it, as in plan.explain(state, model=model)"
        )
    policy = plan.policy
    if policy is None:
        raise InvalidParameter(f"this plan has no policy to explain: {plan.status.message}")
    if isinstance(policy, CountPolicy | TimedCountPolicy) and plan.bias is None:
        refuse_step(step)
        if getattr(plan.settings, "criterion", "average") != "average":
            raise InvalidParameter(
                "a plan on counts for this criterion has no values of joint states to explain by"
            )
        return explain_policy(model, policy, state)
    model = expand(model)
    checked = model.structure.check_state(state)
    if isinstance(policy, TimedPolicy):
        return explain_timed(model, policy, checked, step)
    refuse_step(step)
    discounted = getattr(plan.settings, "criterion", "average") == "discounted"
    discount = plan.settings.discount if discounted else None
    if plan.bias is not None and getattr(plan.settings, "intervals", "nominal") in _OF_CASE:
        return _of_case(plan, policy, model, checked)
    if plan.bias is not None:
        words = _OF_SPAN if plan.planner == "span" else _OF_BIAS
        if discount is not None:
            words = f"R + {discount:g} P V, V the optimal value: the best is V(s)"
        return _Question(model, policy, checked, words, discount).from_table(plan.bias)
    if "weights" in plan.stats and plan.settings is not None:
        return _of_weights(plan, policy, model, checked, discount)
    if discount is not None:
        raise InvalidParameter(f"this plan has no values to explain by: {plan.status.message}")
    return explain_policy(model, policy, checked)


def explain_policy(model: FactoredMDP, policy: Policy, state: Assignment) -> Explanation:
    """Return the values of taking an action once and following the policy afterwards.

    Raises InvalidParameter if it is not a state, the policy may end in several recurrent classes
    after an action there, or rounding leaves the values unknown; TooLarge if the policy cannot be
    evaluated exactly.
    """
    if isinstance(policy, CountPolicy):
        with suppress(NotOnCounts):
            return explain_on_counts(model, policy, state)
    return explain_states(model, policy, [state])[0]


def explain_states(
    model: FactoredMDP, policy: Policy, states: Sequence[Assignment]
) -> list[Explanation]:
    """Return the explanations of several states, for which the policy is evaluated once.

    Raises as `explain_policy` does, if one of the states cannot be explained.
    """
    model = expand(model)
    structure = model.structure
    checked = [structure.check_state(state) for state in states]
    bias = policy_bias(model, policy, encode(checked[0], structure.state_sizes))
    return [_explain_by(model, policy, state, bias) for state in checked]


def _explain_by(
    model: FactoredMDP, policy: Policy, checked: State, bias: PolicyBias
) -> Explanation:
    """Return the explanation of a state from the bias of the policy."""
    structure = model.structure
    chosen = encode(structure.check_action(policy(checked)), structure.action_sizes)
    listed = _allowed(model, checked)
    listed[chosen] = True  # listed even if a constraint forbids it
    place = encode(checked, structure.state_sizes)
    others = ~bias.defined
    if others[place] or (count_successors(model, others, checked)[listed] > 0.0).any():
        raise several_classes("an action leads to another recurrent class of the policy")
    h, error = bias.h - bias.h[place], bias.error + bias.error[place]
    values = values_of_table(model, h, checked, 1.0)
    errors = _errors(model, h, error, checked)
    rounded_gain = bias.gain_error + 2.0 * float(np.finfo(np.float64).eps) * abs(bias.gain)
    if rounded_gain < errors[chosen]:  # the value of the policy's action is its gain
        values[chosen], errors[chosen] = bias.gain, rounded_gain
    known = np.maximum(np.abs(values), structure.reward_unit)
    if (errors[listed] > _SIGNIFICANT * known[listed]).any():
        raise InvalidParameter(
            f"rounding leaves the values of this state unknown by up to "
            f"{upper_text(float(errors[listed].max()), 2)}: the policy's chain is too slow to be "
            f"explained"
        )
    return _Question(model, policy, checked, _OF_POLICY).from_values(values, errors=errors)


def _errors(model: FactoredMDP, h: Floats, errors: Floats, state: State) -> Floats:
    """Return bounds on the errors of R + P h, where h is relative to the state and has these
    errors: [A]."""
    structure = model.structure
    rounding = relative_rounding(structure.m + structure.l, sum(structure.state_sizes))
    rewards = rewards_of(model, state)
    sizes = replace(rewards, tables=tuple(np.abs(table) for table in rewards.tables))
    moved = expected_next(model, errors + rounding * np.abs(h), state)
    return 1.01 * (rounding * sizes.all() + moved)


def explain_greedy(model: FactoredMDP, policy: Any, state: Assignment) -> Explanation:
    """Return the gaps of a policy that is greedy for a sum of functions, from these functions.

    It is for models whose policies cannot be evaluated.
    """
    structure = model.structure
    checked = structure.check_state(state)
    scopes, tables = policy.functions_at(checked)
    unit = structure.reward_unit
    # Forbidden actions are minus infinity there; they are not listed here.
    numbers = tuple(unit * np.where(np.isneginf(table), 0.0, table) for table in tables)
    total = ActionSum(structure.action_sizes, scopes, numbers)
    words = (
        "that of the approximate values for which the policy is greedy, known up to a constant, so "
        "that only gaps are given"
    )
    return _Question(model, policy, checked, words).from_sum(total, None)


def explain_timed(
    model: FactoredMDP, policy: TimedPolicy, state: Assignment, step: int = 0
) -> Explanation:
    """Return the values of the actions at a step of a horizon, following the policy afterwards."""
    if isinstance(policy, TimedCountPolicy):
        raise InvalidParameter("no values are computed for a policy on counts with a horizon")
    model = expand(model)
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
    question = _Question(model, stage, checked, words, policy.discount)
    return replace(question.from_table(backup.to_canonical(after)), criterion="finite")


def refuse_step(step: int) -> None:
    """Raise InvalidParameter if a step is given for a policy that is the same at every step."""
    if step != 0:
        raise InvalidParameter(
            f"a step is for policies with a horizon; this one is the same at every step, got "
            f"step {shown(step)}"
        )


@dataclass(frozen=True)
class _Question:
    """The state and the policy that are explained, and the meaning of the values."""

    model: FactoredMDP
    policy: Policy
    state: State
    words: str
    discount: float | None = None
    """None for the average reward."""

    def from_table(self, h: Floats) -> Explanation:
        """Return the explanation from a table of the bias, or of the values under a discount."""
        model, state = self.model, self.state
        if self.discount is not None:
            return self.from_values(values_of_table(model, h, state, self.discount))
        # Subtracting h(s) before summing keeps a large common constant from costing digits.
        relative = h - h[encode(state, model.structure.state_sizes)]
        rounded = np.full(len(h), 2.0 * float(np.finfo(np.float64).eps) * float(np.abs(h).max()))
        values = values_of_table(model, relative, state, 1.0)
        return self.from_values(values, errors=_errors(model, relative, rounded, state))

    def from_sum(self, total: ActionSum, shift: float | None) -> Explanation:
        """Return the explanation from a sum of functions, to which `shift` is added.

        If `shift` is None, only the gaps are known.
        """
        structure = self.model.structure
        known = shift is not None
        if structure.n_actions <= _SUMMED:
            return self.from_values(total.all() + (shift or 0.0), known=known)
        best = total.best(FEW, structure, self.state)
        chosen = structure.check_action(self.policy(self.state))
        if chosen not in [action for action, _ in best]:
            best.append((chosen, total.at(chosen)))
        listed = [(action, value + (shift or 0.0)) for action, value in best]
        return self._record(chosen, listed, known=known)

    def from_values(
        self, values: Floats, *, known: bool = True, errors: Floats | None = None
    ) -> Explanation:
        """Return the explanation from the values [A] of all joint actions and their error
        bounds."""
        structure = self.model.structure
        sizes = structure.action_sizes
        allowed = _allowed(self.model, self.state)
        chosen = structure.check_action(self.policy(self.state))
        chosen_place = encode(chosen, sizes)
        order = np.flatnonzero(allowed)[np.argsort(-values[allowed], kind="stable")]
        all_listed = len(values) <= ALL_LISTED
        places = (order if all_listed else order[:FEW]).tolist()
        if chosen_place not in places:
            places.append(chosen_place)  # listed even if a constraint forbids it
        listed = [(decode(place, sizes), float(values[place])) for place in places]
        refused = np.flatnonzero(~allowed).tolist() if all_listed else []
        forbidden = [decode(place, sizes) for place in refused if place != chosen_place]
        bounds = None if errors is None else dict(zip(places, errors[places].tolist(), strict=True))
        return self._record(chosen, listed, forbidden, known=known, errors=bounds)

    def _record(
        self,
        chosen: State,
        listed: Sequence[tuple[State, float]],
        forbidden: Sequence[State] = (),
        *,
        known: bool,
        errors: Mapping[int, float] | None = None,
    ) -> Explanation:
        """Return the record of the listed actions and values; `errors` is by action index."""
        structure = self.model.structure
        name = structure.naming.actions.as_listed
        best = max(value for _, value in listed)
        # The policy's action comes first among equally good ones.
        ordered = sorted(listed, key=lambda entry: (best - entry[1], entry[0] != chosen))
        return Explanation(
            state=structure.naming.states.as_listed(self.state),
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
            of=self.words,
            criterion="average" if self.discount is None else "discounted",
            discount=self.discount,
            n_actions=structure.n_actions,
            forbidden=tuple(map(name, forbidden)),
            unit=structure.reward_unit,
        )


def _of_case(plan: Plan, policy: Policy, model: FactoredMDP, state: State) -> Explanation:
    """Return the explanation from the nested backup, in which nature chooses, at its bias."""
    assert plan.bias is not None
    s, case = model.structure, plan.settings.intervals
    pairs = s.n_states * s.n_actions
    if pairs > _NESTED_PAIRS:
        raise TooLarge(
            f"the {case} values of {describe_count(pairs)} states and actions are not written out; "
            f"at most {describe_count(_NESTED_PAIRS)} are",
            8 * pairs,
            8 * _NESTED_PAIRS,
        )
    worst = case == "robust"
    known = refuse_without_intervals(plan.settings, model)
    backup = backup_for(tables_of(known, worst=worst), worst=worst)
    place = encode(state, s.state_sizes)
    values = backup.action_values(plan.bias)[place] - plan.bias[place]
    return _Question(model, policy, state, _OF_CASE[case]).from_values(values)


def _of_weights(
    plan: Plan, policy: Policy, model: FactoredMDP, state: State, discount: float | None
) -> Explanation:
    # Imported on use: it loads the solver of linear programs.
    from fmdp.planning.alp.bases import make_basis

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
    return _Question(model, policy, state, words, discount).from_sum(total, shift)


def _allowed(model: FactoredMDP, state: State) -> NDArray[np.bool_]:
    """Return which joint actions are allowed in a state: [A]."""
    structure = model.structure
    allowed = np.ones(structure.n_actions, dtype=np.bool_)
    if structure.constraints:
        allowed[:] = False
        allowed[structure.allowed_actions(state)] = True
    return allowed
