"""New models from old: Cartesian product, permutation of the state variables, flattening.

The product of models runs them side by side, each with its own variables and rewards:

    P = P^1 (x) P^2,   R(s, a) = R^1(s^1, a^1) + R^2(s^2, a^2)

where (x) is the Kronecker product over (state, action) of the parts. A permutation renumbers
the state variables and nothing else. Flattening enumerates all joint states and actions into a
dense P [A, S, S] at a cost of A * S^2 numbers, and is refused above a limit; products and
permutations cost only the size of the tables.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.factored import FactoredMDP, Noise, sort_rows
from fmdp.model.spaces import FloatArray, encode, project, shown, shown_tuple, whole_number
from fmdp.model.structure import Scope, Structure, default_names

T = TypeVar("T")

FLAT_LIMIT_BYTES = 2**30
"""Default size of a dense P that flatten still makes: 1 GiB."""


@dataclass(frozen=True, eq=False)
class FlatMDP:
    """A dense MDP over joint states and joint actions, both in C order.

    Attributes
    ----------
    transitions
        P, [A, S, S]: `transitions[a, s, t]` is the probability of going from s to t under a.
    rewards
        R, [A, S]: the mean reward.
    """

    transitions: FloatArray
    rewards: FloatArray


def product(*models: FactoredMDP) -> FactoredMDP:
    """The models side by side: states of all, then actions of all; rewards are summed.

    Default names are numbered anew. Where other names clash, every variable (or every reward)
    gets the number of its model as a suffix: "x" of the second model becomes "x.1".

    Parameters
    ----------
    *models
        The parts, at least one.

    Returns
    -------
    FactoredMDP
        The product; its tables are those of the parts.

    Raises
    ------
    InvalidParameter
        Where there is no model.
    """
    if not models:
        raise InvalidParameter("product of no models; give at least one")
    if len(models) == 1:
        return models[0]
    structures = [model.structure for model in models]
    transition_scopes: list[Scope] = []
    reward_scopes: list[Scope] = []
    groups: list[Scope] = []
    state_offset, action_offset = 0, sum(s.m for s in structures)
    for s in structures:
        new = [*range(state_offset, state_offset + s.m)]
        new += range(action_offset, action_offset + len(s.action_sizes))
        transition_scopes += _renumbered(s.transition_scopes, new)
        reward_scopes += _renumbered(s.reward_scopes, new)
        groups += _renumbered(s.groups, new)
        state_offset += s.m
        action_offset += len(s.action_sizes)
    state_names = _side_by_side([s.state_names for s in structures], "s")
    action_names = _side_by_side([s.action_names for s in structures], "a")
    if len({*state_names, *action_names}) < len(state_names) + len(action_names):
        state_names = _numbered([s.state_names for s in structures])
        action_names = _numbered([s.action_names for s in structures])
    reward_names = _side_by_side([s.reward_names for s in structures], "r")
    if len(set(reward_names)) < len(reward_names):
        reward_names = _numbered([s.reward_names for s in structures])
    structure = Structure(
        state_sizes=_joined(s.state_sizes for s in structures),
        action_sizes=_joined(s.action_sizes for s in structures),
        transition_scopes=tuple(transition_scopes),
        reward_scopes=tuple(reward_scopes),
        reward_ranges=_joined(s.reward_ranges for s in structures),
        state_names=state_names,
        action_names=action_names,
        reward_names=reward_names,
        state_values=_joined(s.state_values for s in structures),
        action_values=_joined(s.action_values for s in structures),
        groups=tuple(groups),
    )
    return FactoredMDP(
        structure,
        _joined(model.transitions for model in models),
        _joined(model.rewards for model in models),
        _joined(model.noise for model in models),
        _joined(model.initial_state for model in models),
        " x ".join(model.name for model in models if model.name),
    )


def permute_states(model: FactoredMDP, order: Sequence[int]) -> FactoredMDP:
    """The same model with its state variables renumbered: new variable j is old `order[j]`.

    Names, values, groups, the initial state, scopes and tables follow; actions and the order of
    the reward factors stay.

    Parameters
    ----------
    model
        The model to renumber.
    order
        A permutation of 0 to m - 1.

    Raises
    ------
    InvalidParameter
        Where the order is no permutation of the state variables.
    """
    s = model.structure
    numbers = [whole_number(variable) for variable in order]
    old = [number for number in numbers if number is not None]
    if len(old) != len(numbers) or sorted(old) != list(range(s.m)):
        raise InvalidParameter(
            f"order {shown_tuple(order)}: must be a permutation of the state variables 0..{s.m - 1}"
        )
    new = [old.index(variable) for variable in range(s.m)]
    new += range(s.m, len(s.sizes))
    sizes = tuple(s.state_sizes[variable] for variable in old) + s.action_sizes
    transition_scopes = _renumbered([s.transition_scopes[variable] for variable in old], new)
    reward_scopes = _renumbered(s.reward_scopes, new)
    structure = replace(
        s,
        state_sizes=sizes[: s.m],
        transition_scopes=tuple(tuple(sorted(scope)) for scope in transition_scopes),
        reward_scopes=tuple(tuple(sorted(scope)) for scope in reward_scopes),
        state_names=tuple(s.state_names[variable] for variable in old),
        state_values=tuple(s.state_values[variable] for variable in old),
        groups=tuple(_renumbered(s.groups, new)),
    )
    old_tables = [model.transitions[variable] for variable in old]
    return FactoredMDP(
        structure,
        [sort_rows(sizes, *pair) for pair in zip(transition_scopes, old_tables, strict=True)],
        [sort_rows(sizes, *pair) for pair in zip(reward_scopes, model.rewards, strict=True)],
        model.noise,
        [model.initial_state[variable] for variable in old],
        model.name,
    )


def flatten(model: FactoredMDP, limit_bytes: int = FLAT_LIMIT_BYTES) -> FlatMDP:
    """The dense tables over joint states and actions, where they fit.

    Parameters
    ----------
    model
        The model to write out.
    limit_bytes
        The most that the tables may take; 1 GiB by default.

    Raises
    ------
    TooLarge
        Where they would take more.
    """
    s = model.structure
    needed = 8 * s.n_actions * s.n_states * (s.n_states + 1)
    if needed > limit_bytes:
        raise TooLarge(
            f"flattening {shown(s.n_states)} states and {shown(s.n_actions)} actions needs "
            f"{shown(needed)} bytes; "
            f"at most {limit_bytes} are allowed",
            needed,
            limit_bytes,
        )
    n_states, n_actions = s.n_states, s.n_actions
    rewards = np.zeros(n_states * n_actions)
    for scope, means in zip(s.reward_scopes, model.rewards, strict=True):
        rewards += means[project(s.sizes, scope)]
    # Rows of (s, a) with the action fastest, turned to one [A, S] index a factor.
    rows = [project(s.sizes, scope).reshape(n_states, n_actions).T for scope in s.transition_scopes]
    transitions = np.empty((n_actions, n_states, n_states))
    for action in range(n_actions):
        joint = np.ones((n_states, 1))
        for row, table in zip(rows, model.transitions, strict=True):
            own = table[row[action]]  # [S, S_i]
            joint = (joint[:, :, None] * own[:, None, :]).reshape(n_states, -1)
        transitions[action] = joint
    return FlatMDP(transitions, np.ascontiguousarray(rewards.reshape(n_states, n_actions).T))


def flat_model(model: FactoredMDP, limit_bytes: int = FLAT_LIMIT_BYTES) -> FactoredMDP:
    """The model with one state variable, one action variable and one reward factor.

    The range of the reward is the sum of the ranges. The noise of a single factor is kept; laws
    of several factors do not add up to one of ours, so their sum is deterministic at its mean.

    Parameters
    ----------
    model
        The model to write out.
    limit_bytes
        The most that the dense tables may take; 1 GiB by default.

    Raises
    ------
    TooLarge
        Where they would take more.
    """
    s = model.structure
    flat = flatten(model, limit_bytes)
    lows = [lo for lo, _ in s.reward_ranges]
    highs = [hi for _, hi in s.reward_ranges]
    structure = Structure(
        state_sizes=(s.n_states,),
        action_sizes=(s.n_actions,),
        transition_scopes=((0, 1),),
        reward_scopes=((0, 1),),
        reward_ranges=((sum(lows), sum(highs)),),
    )
    return FactoredMDP(
        structure,
        [flat.transitions.transpose(1, 0, 2)],
        [flat.rewards.T],
        model.noise[0] if s.l == 1 else Noise(),
        [encode(model.initial_state, s.state_sizes)],
        model.name,
    )


def _joined(parts: Iterable[Sequence[T]]) -> tuple[T, ...]:
    return tuple(itertools.chain.from_iterable(parts))


def _renumbered(scopes: Iterable[Scope], new: Sequence[int]) -> list[Scope]:
    """Scopes in the new numbers, each still in its old order."""
    return [tuple(new[variable] for variable in scope) for scope in scopes]


def _side_by_side(parts: Sequence[Sequence[str]], prefix: str) -> tuple[str, ...]:
    """The names of the parts; if all are default names, default names for the whole."""
    if all(tuple(part) == default_names(prefix, len(part)) for part in parts):
        return default_names(prefix, sum(map(len, parts)))
    return _joined(parts)


def _numbered(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Names that cannot clash: within a part they differ already, between parts the suffix does."""
    return tuple(f"{name}.{index}" for index, part in enumerate(parts) for name in part)
