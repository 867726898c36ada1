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

Cost: one state's backup (one_state.py), or one of all states where there are intervals; the bias of
a policy, where it is needed, is a policy evaluation by elimination, or a linear solve up to 1,024
states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, backup_for
from fmdp.errors import InvalidParameter, TooLarge, printable
from fmdp.memory import describe_count
from fmdp.model import FactoredMDP
from fmdp.model.naming import Assignment
from fmdp.model.spaces import decode, encode, project, shown
from fmdp.numerals import short_number
from fmdp.planning import iteration
from fmdp.planning.chains import policy_matrix
from fmdp.planning.evaluate import (
    DIRECT_STATES,
    TABULATED_STATES,
    action_table,
    timed_values,
)
from fmdp.planning.intervals import refuse_without_intervals, tables_of
from fmdp.planning.one_state import ActionSum, values_of_basis, values_of_table
from fmdp.planning.plan import Plan, Status
from fmdp.planning.policy import Policy, has_sizes_of
from fmdp.planning.prepared import DEFAULT_SWEEPS, tolerance_of
from fmdp.planning.timed import TimedPolicy

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
_BIAS_TOLERANCE = 1e-9
"""Of the bias of a policy, in units of `Structure.reward_unit`."""


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
        The value of every action variable, by name.
    value
        What it is worth; `Explanation.of` says in which sense. None where only gaps are known.
    gap
        How much less that is than the best action's.
    """

    action: Mapping[str, str]
    value: float | None
    gap: float


@dataclass(frozen=True)
class Explanation:
    """What every action is worth in one state; `print` shows it as a table.

    Attributes
    ----------
    state
        The state that was asked, by name.
    action
        What the policy does there, by name.
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

    state: Mapping[str, str]
    action: Mapping[str, str]
    values: tuple[ActionValue, ...]
    of: str
    criterion: str
    discount: float | None
    n_actions: int
    forbidden: tuple[Mapping[str, str], ...] = ()
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
            value = [short_number(one.value)] if known else []
            mark = "<- the policy's" if one.action == self.action else ""
            rows.append([*one.action.values(), *value, self._gap(one.gap), mark])
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

    def _gap(self, gap: float) -> str:
        if 0.0 < gap < 1e-6 * self.unit:
            return f"below {1e-6 * self.unit:.1g}"
        return short_number(gap, 4)


def _pairs(named: Mapping[str, str]) -> str:
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
        Where it is no state, or the gain of the policy depends on the state.
    TooLarge
        Where the policy cannot be evaluated exactly.
    """
    checked = model.structure.check_state(state)
    return _of_table(model, policy, checked, policy_bias(model, policy), None, _OF_POLICY)


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
    backup = backup_for(model)
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
    values = values_of_table(model, h, state, 1.0 if discount is None else discount)
    if discount is None:
        values -= h[encode(state, model.structure.state_sizes)]
    return _enumerated(model, policy, state, values, discount, words)


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
    from fmdp.planning.linear.bases import make_basis

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
) -> Explanation:
    structure = model.structure
    sizes = structure.action_sizes
    allowed = np.ones(len(values), dtype=np.bool_)
    if structure.constraints:
        allowed[:] = False
        allowed[structure.allowed_actions(state)] = True
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
    return _record(model, chosen, state, listed, forbidden, discount, words, known)


def _record(
    model: FactoredMDP,
    chosen: tuple[int, ...],
    state: tuple[int, ...],
    listed: Sequence[tuple[tuple[int, ...], float]],
    forbidden: Sequence[tuple[int, ...]],
    discount: float | None,
    words: str,
    known: bool,
) -> Explanation:
    structure = model.structure
    name = structure.naming.actions.named
    best = max(value for _, value in listed)
    # The policy's own comes first of those that are as good.
    ordered = sorted(listed, key=lambda one: (best - one[1], one[0] != chosen))
    return Explanation(
        state=structure.name_state(state),
        action=name(chosen),
        values=tuple(
            ActionValue(name(action), value if known else None, best - value)
            for action, value in ordered
        ),
        of=words,
        criterion="average" if discount is None else "discounted",
        discount=discount,
        n_actions=structure.n_actions,
        forbidden=tuple(map(name, forbidden)),
        unit=structure.reward_unit,
    )


# ---- the bias of a policy ------------------------------------------------------------------------


def policy_bias(model: FactoredMDP, policy: Policy) -> Floats:
    """h with R_pi + P_pi h - h = gain, [S] in C order, 0 at its least.

    Raises
    ------
    InvalidParameter
        Where there is none: the gain of the policy depends on the state, or it takes too long.
    TooLarge
        Where there are too many states.
    """
    structure = model.structure
    if structure.n_states > TABULATED_STATES:
        raise TooLarge(
            f"a policy over {describe_count(structure.n_states)} states cannot be evaluated "
            f"exactly; at most {describe_count(TABULATED_STATES)} can",
            8 * structure.n_states,
            8 * TABULATED_STATES,
        )
    actions = action_table(model, policy)
    goal = _BIAS_TOLERANCE * structure.reward_unit
    if structure.n_states <= DIRECT_STATES:
        h = _solved(model, actions, goal)
    else:
        h = _iterated(model, actions)
    if h is None:
        raise InvalidParameter(
            "what the policy gains depends on the state, it has several recurrent classes, or it "
            "settles too slowly to be told; there are no values to explain by"
        )
    h -= h.min()
    return h


def _solved(model: FactoredMDP, actions: NDArray[np.int64], goal: float) -> Floats | None:
    """(I - P) h + gain = R and h(first) = 0: singular where there are several recurrent classes."""
    n = model.structure.n_states
    matrix = policy_matrix(model, actions)
    pairs = np.arange(n) * model.structure.n_actions + actions
    rewards = np.zeros(n)
    for scope, means in zip(model.structure.reward_scopes, model.rewards, strict=True):
        rewards += means[project(model.structure.sizes, scope)[pairs]]
    system = np.zeros((n + 1, n + 1))
    system[:n, :n] = np.eye(n) - matrix
    system[:n, n] = 1.0
    system[n, 0] = 1.0
    try:
        found = np.linalg.solve(system, np.append(rewards, 0.0))
    except np.linalg.LinAlgError:
        return None
    h, gain = found[:n], found[n]
    residual = np.abs(rewards + matrix @ h - h - gain).max()
    return h if residual <= max(goal, 1e-12 * float(np.abs(h).max())) else None


def _iterated(model: FactoredMDP, actions: NDArray[np.int64]) -> Floats | None:
    backup = Backup(model.structure, share_for=model)
    outcome = iteration.solve(
        iteration.PolicyOperator(backup, actions),
        np.zeros(backup.n_states),
        iteration.Limits(tolerance_of(None, model.structure), DEFAULT_SWEEPS, None),
    )
    if outcome.status is not Status.CONVERGED:
        return None
    return backup.to_canonical(outcome.h)
