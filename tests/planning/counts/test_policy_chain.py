"""Chains of policies on counts, against the chains of the same policies on joint states."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fmdp._base.deadlines import NEVER
from fmdp.model import FactoredMDP
from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.model.expansion import expand
from fmdp.model.spaces import count, encode
from fmdp.planning.counts.policy_chain import PolicyChain
from fmdp.planning.counts.quotient import Move, Quotient
from fmdp.problems import problem
from fmdp.testing import oracles
from fmdp.testing.exchangeable import exchangeable_model


def quotient_of(model: FactoredMDP) -> Quotient:
    parts, _ = exchangeable_parts(model)
    assert parts is not None
    return Quotient(parts)


def joint_action(quotient: Quotient, move: Move, state: tuple[int, ...]) -> tuple[int, ...]:
    """Return an action of the model that a move stands for: the first parts act."""
    parts, s = quotient.parts, quotient.parts.model.structure
    action = dict.fromkeys(range(s.m, len(s.sizes)), 0)
    for v, value in zip(parts.common_actions, move.common, strict=True):
        action[v] = value if v not in parts.modes else parts.modes[v][value].kind
    for local, group, allotment in zip(quotient.locals, parts.groups, move.allotments, strict=True):

        def act(part: int, number: int, group=group, local=local) -> None:  # type: ignore[no-untyped-def]
            joint = np.unravel_index(number, local.action_sizes) if local.action_sizes else ()
            for v, value in zip(group.actions[part], joint, strict=True):
                action[v] = int(value)

        inside = [
            encode([state[v] for v in variables], local.state_sizes) for variables in group.states
        ]
        free = set(range(group.n_parts))
        for part in free:
            act(part, local.default_action)
        for c, number in zip(allotment.classes, allotment.counts, strict=True):
            ready = [part for part in sorted(free) if inside[part] == local.state[c]]
            for part in ready[:number]:
                free.remove(part)
                act(part, int(local.action[c]))
                if local.way[c]:
                    action[group.selector] = group.values[part][local.way[c] - 1]
    return tuple(action[v] for v in sorted(action))


def random_moves(quotient: Quotient, seed: int) -> np.ndarray:
    ranks = np.random.default_rng(seed).random((len(quotient.moves), quotient.n_states))
    for move, pairs in enumerate(quotient.pairs):
        missing = np.ones(quotient.n_states, dtype=bool)
        missing[pairs.states] = False
        ranks[move, missing] = np.inf
    return ranks.argmin(axis=0)


def chain_of_joint_states(
    model: FactoredMDP, quotient: Quotient, moves: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return P and R of the policy over joint states, and the number of each one's counts."""
    s = model.structure
    states = list(itertools.product(*map(range, s.state_sizes)))
    numbers = quotient.space.states_of(np.array(states))
    actions = [
        encode(joint_action(quotient, quotient.moves[moves[n]], state), s.action_sizes)
        for n, state in zip(numbers, states, strict=True)
    ]
    chain, rewards = oracles.policy_chain(oracles.dense(expand(model)), np.array(actions))
    return chain, rewards, numbers


MODELS = [
    *(exchangeable_model(np.random.default_rng(seed), most_states=200) for seed in range(12)),
    problem("star:5,dynamics=guestrin"),
    problem("maintenance:3,levels=3,crew=2"),
    problem("machines:2,topology=none"),
]


@pytest.mark.parametrize("number", range(len(MODELS)))
def test_the_chain_is_the_lumped_chain_of_joint_states(number: int) -> None:
    model = MODELS[number]
    quotient = quotient_of(model)
    moves = random_moves(quotient, number)
    chain = PolicyChain(quotient, moves)
    joint, rewards, numbers = chain_of_joint_states(model, quotient, moves)
    lumped = np.zeros((len(joint), quotient.n_states))
    np.add.at(lumped.T, numbers, joint.T)
    np.testing.assert_allclose(lumped, chain.matrix[numbers], atol=1e-12)
    np.testing.assert_allclose(rewards, chain.pairs.rewards[numbers], atol=1e-12)


@pytest.mark.parametrize("name", ["star:5,dynamics=guestrin", "maintenance:3,levels=3,crew=2"])
def test_means_enclose_the_stationary_means(name: str) -> None:
    model = problem(name)
    quotient = quotient_of(model)
    moves = random_moves(quotient, 1)
    chain = PolicyChain(quotient, moves)
    functions = np.random.default_rng(0).normal(size=(quotient.n_states, 3))
    law = oracles.stationary_law(chain.matrix)
    for means in (
        chain.means(functions, 1e-9),
        chain._iterated(functions, 1e-9, NEVER)[1],
    ):
        assert means.widest <= 1e-9
        assert (means.lower <= law @ functions + 1e-14).all()
        assert (means.upper >= law @ functions - 1e-14).all()


def test_means_that_depend_on_the_state_do_not_meet() -> None:
    """Nobody replaces anything: what is failed stays failed, but everything fails in the end. With
    no wear, every state stays as it is."""
    quotient = quotient_of(problem("maintenance:3,levels=2,crew=0,wear=0"))
    chain = PolicyChain(quotient, np.zeros(quotient.n_states, dtype=np.int64))
    means = chain.means(chain.pairs.rewards[:, None], 1e-9)
    assert means.lower[0] == pytest.approx(-10.0)
    assert means.upper[0] == pytest.approx(0.0)
    assert count(quotient.shape) == quotient.n_states
