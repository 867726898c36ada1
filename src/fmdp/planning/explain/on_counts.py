"""Explanations of a policy on counts: the value of every move in one state.

    value(move) = R(s, move) + (P h)(s, move) - h(s),   h the bias of the policy on counts

The moves stand for actions of the model; exchanging parts in the same local state gives others of
the same value, which are not listed. The bias is unique up to a constant if some state is reached
from all states. This is proven: the share of time of a typical state is positive from every state.
"""

from __future__ import annotations

import numpy as np

from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.naming import Assignment
from fmdp.planning.counts.policy_chain import PolicyChain, chain_of
from fmdp.planning.explain.explanation import ActionValue, Explanation
from fmdp.planning.policies.counts import CountPolicy

TOLERANCE = 1e-9
"""Largest gap between the bounds of the gain, in units of the reward."""
_SIGNIFICANT = 1e-6
"""Largest gap at which values are reported, in units of the reward."""
_OF_POLICY = (
    "R + P h - h(s), h the bias of the policy: that of its own action is its gain; actions that "
    "only exchange parts in the same state are not listed"
)


def explain_on_counts(model: FactoredMDP, policy: CountPolicy, state: Assignment) -> Explanation:
    """Return the values of taking a move once and following the policy afterwards.

    Raise InvalidParameter if it is not a state, or the bias of the policy is not known.
    """
    structure = model.structure
    checked = structure.check_state(state)
    chain = chain_of(model, policy)
    number = chain.quotient.space.state_of(checked)
    values = _move_values(chain, number, structure.reward_unit)
    moves = sorted(values, key=lambda move: (-values[move], move != chain.moves[number]))
    rows = np.array([checked] * len(moves), dtype=np.int64)
    actions = chain.quotient.count_moves.actions_of(rows, np.array(moves))
    name = structure.naming.actions.as_listed
    best = values[moves[0]]
    return Explanation(
        state=structure.naming.states.as_listed(checked),
        action=name(tuple(policy(checked))),
        values=tuple(
            ActionValue(name(tuple(action)), values[move], best - values[move])
            for move, action in zip(moves, actions.tolist(), strict=True)
        ),
        of=_OF_POLICY,
        criterion="average",
        discount=None,
        n_actions=len(moves),
        unit=structure.reward_unit,
    )


def _move_values(chain: PolicyChain, state: int, unit: float) -> dict[int, float]:
    """Return the value of every move that is possible in a state."""
    typical = np.zeros(chain.n_states)
    typical[chain.typical_state(state)] = 1.0
    functions = np.stack([chain.pairs.rewards / unit, typical], axis=1)
    h, means = chain.solved(functions, TOLERANCE)
    if means.upper[0] - means.lower[0] > _SIGNIFICANT or means.lower[1] <= 0.0:
        raise InvalidParameter(
            "the bias of this policy on counts is not known: it may end in several recurrent "
            "classes, or mixes too slowly"
        )
    bias = unit * (h[:, 0] - h[state, 0])
    quotient = chain.quotient
    expectations = quotient.expectations(bias)
    values = {}
    for move, pairs in enumerate(quotient.pairs):
        place = int(np.searchsorted(pairs.states, state))
        if place < len(pairs.states) and pairs.states[place] == state:
            laws = None if pairs.laws is None else pairs.laws[place : place + 1]
            mean = quotient.expected(expectations, pairs.rows[place : place + 1], laws)
            values[move] = float(pairs.rewards[place] + mean[0])
    if not values:
        raise InvalidParameter("no move is possible in this state")
    return values
