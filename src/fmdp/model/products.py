"""New models from old: Cartesian product, permutation of the state variables, flattening.

The product of models runs them side by side, each with its own variables and rewards:

    P = P^1 (x) P^2,   R(s, a) = R^1(s^1, a^1) + R^2(s^2, a^2)

where (x) is the Kronecker product over (state, action) of the parts. A permutation renumbers
the state variables and nothing else. Flattening enumerates all joint states and actions into a
dense P [A, S, S] and is refused above a limit. Alike rows, constraints, effects (if they still
hold) and intervals are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.alike import Alike
from fmdp.model.constraints import Forbidden, Mask
from fmdp.model.effects import Effect, Effects
from fmdp.model.expansion import expand, pair_cases, pair_rows
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.intervals import Intervals
from fmdp.model.naming import default_names
from fmdp.model.noise import Noise
from fmdp.model.scopes import Scope
from fmdp.model.spaces import (
    FloatArray,
    IndexArray,
    count,
    encode,
    shown,
    shown_tuple,
    whole_number,
)
from fmdp.model.structure import Structure
from fmdp.model.tables import sort_rows

T = TypeVar("T")

FLAT_LIMIT_BYTES = 2**30
"""Default limit on the size of a dense P: 1 GiB."""


@dataclass(frozen=True, eq=False)
class FlatMDP:
    """A dense MDP over joint states and joint actions, both in C order.

    Attributes
    ----------
    transitions
        P, [A, S, S]: `transitions[a, s, t]` is the probability of going from s to t under a.
    rewards
        R, [A, S]: the mean reward.
    allowed
        [A, S]: whether the action is allowed in the state; None if all are. A forbidden action has
        the probabilities and the reward of the lowest allowed one, so that a solver without
        constraints finds the values of the constrained model.
    """

    transitions: FloatArray
    rewards: FloatArray
    allowed: Mask | None = None


def product(*models: FactoredMDP) -> FactoredMDP:
    """Return the `models` side by side: states of all, then actions of all; rewards are summed.

    Rows of different parts are not alike, even if the parts are equal. Effects are kept if all
    parts have them and none has a set-up cost, which would be one for all parts together.

    Derived variables are substituted. Default names are numbered anew. If other names clash, every
    variable (or every reward) gets the number of its model as a suffix: "x" of the second model
    becomes "x.1".

    Parameters
    ----------
    *models
        The parts, at least one.

    Raises
    ------
    InvalidParameter
        If there is no model.
    """
    if not models:
        raise InvalidParameter("product of no models; give at least one")
    if len(models) == 1:
        return models[0]
    models = tuple(map(expand, models))
    structures = [model.structure for model in models]
    numbers = _numbers_in_product(structures)
    parts = list(zip(structures, numbers, strict=True))
    state_names, action_names = _product_names(structures)
    structure = Structure(
        state_sizes=_joined(s.state_sizes for s in structures),
        action_sizes=_joined(s.action_sizes for s in structures),
        transition_scopes=_joined(_renumbered(s.transition_scopes, new) for s, new in parts),
        reward_scopes=_joined(_renumbered(s.reward_scopes, new) for s, new in parts),
        reward_ranges=_joined(s.reward_ranges for s in structures),
        state_names=state_names,
        action_names=action_names,
        reward_names=_distinct_names([s.reward_names for s in structures], "r"),
        state_values=_joined(s.state_values for s in structures),
        action_values=_joined(s.action_values for s in structures),
        groups=_joined(_renumbered(s.groups, new) for s, new in parts),
        alike=_product_alike(structures),
        constraints=_joined(
            [constraint.renumbered(new, s.sizes) for constraint in s.constraints]
            for s, new in parts
        ),
        effects=_product_effects(structures, numbers),
    )
    return FactoredMDP(
        structure,
        _joined(model.transitions for model in models),
        _joined(model.rewards for model in models),
        _joined(model.noise for model in models),
        _joined(model.initial_state for model in models),
        " x ".join(model.name for model in models if model.name),
        _product_intervals(models),
    )


def _numbers_in_product(structures: Sequence[Structure]) -> list[list[int]]:
    """Return for every part the numbers of its variables in the product."""
    numbers = []
    state, action = 0, sum(s.m for s in structures)
    for s in structures:
        n_actions = len(s.action_sizes)
        numbers.append([*range(state, state + s.m), *range(action, action + n_actions)])
        state += s.m
        action += n_actions
    return numbers


def _product_names(structures: Sequence[Structure]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the state and of the action variables of a product."""
    state_names = [s.state_names for s in structures]
    action_names = [s.action_names for s in structures]
    names = _side_by_side(state_names, "s"), _side_by_side(action_names, "a")
    if len({*names[0], *names[1]}) < len(names[0]) + len(names[1]):
        return _suffixed(state_names), _suffixed(action_names)
    return names


def _distinct_names(parts: Sequence[Sequence[str]], prefix: str) -> tuple[str, ...]:
    names = _side_by_side(parts, prefix)
    return _suffixed(parts) if len(set(names)) < len(names) else names


def permute_states(model: FactoredMDP, order: Sequence[int]) -> FactoredMDP:
    """Return `model` with its state variables renumbered: new variable j is old `order[j]`.

    Actions and the order of the reward factors stay. Derived variables are substituted.

    Parameters
    ----------
    model
        The model to renumber.
    order
        A permutation of 0 to m - 1.

    Raises
    ------
    InvalidParameter
        If the order is no permutation of the state variables.
    """
    model = expand(model)
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

    def both(transitions: Sequence[Any], rewards: Sequence[Any]) -> tuple[Any, Any]:
        """Return arrays with one entry per row of every table, in the new order."""
        moved = [transitions[variable] for variable in old]
        return (
            tuple(sort_rows(sizes, *pair) for pair in zip(transition_scopes, moved, strict=True)),
            tuple(sort_rows(sizes, *pair) for pair in zip(reward_scopes, rewards, strict=True)),
        )

    structure = replace(
        s,
        state_sizes=sizes[: s.m],
        transition_scopes=tuple(tuple(sorted(scope)) for scope in transition_scopes),
        reward_scopes=tuple(tuple(sorted(scope)) for scope in reward_scopes),
        state_names=tuple(s.state_names[variable] for variable in old),
        state_values=tuple(s.state_values[variable] for variable in old),
        groups=tuple(_renumbered(s.groups, new)),
        alike=None if s.alike is None else Alike(*both(s.alike.transitions, s.alike.rewards)),
        constraints=tuple(c.renumbered(new, s.sizes) for c in s.constraints),
        effects=None if s.effects is None else _permuted_effects(s.effects, old, new, s.sizes),
    )
    intervals = model.intervals
    if intervals is not None:
        lower, reward_lower = both(intervals.lower, intervals.reward_lower)
        upper, reward_upper = both(intervals.upper, intervals.reward_upper)
        intervals = Intervals(lower, upper, reward_lower, reward_upper)
    return FactoredMDP(
        structure,
        *both(model.transitions, model.rewards),
        model.noise,
        [model.initial_state[variable] for variable in old],
        model.name,
        intervals,
    )


def flatten(model: FactoredMDP, limit_bytes: int = FLAT_LIMIT_BYTES) -> FlatMDP:
    """Return the dense tables of `model` over joint states and actions.

    Tables of more than `limit_bytes`, 1 GiB by default, are refused (TooLarge).
    """
    check_model(model, "flatten")
    limit = whole_number(limit_bytes)
    if limit is None or limit < 0:
        raise InvalidParameter(f"limit_bytes must be an integer >= 0; got {shown(limit_bytes)}")
    s = model.structure
    needed = flat_bytes(s)
    if needed > limit:
        raise TooLarge(
            f"flattening {shown(s.n_states)} states and {shown(s.n_actions)} actions needs "
            f"{shown(needed)} bytes; at most {limit} are allowed",
            needed,
            limit,
        )
    n_states, n_actions = s.n_states, s.n_actions
    pairs = s.allowed_pairs()
    rewards = np.zeros(n_states * n_actions)
    transitions = np.zeros((n_actions, n_states, n_states))
    for case in pair_cases(s):
        # Without drawn variables there is one case, of probability 1.
        weight = case.probability[pairs]
        for scope, means in zip(s.reward_scopes, model.rewards, strict=True):
            rewards += weight * means[case.rows(scope)[pairs]]
        # Of (s, a), the action fastest, as one [A, S] index per factor.
        rows = [
            case.rows(scope)[pairs].reshape(n_states, n_actions).T for scope in s.transition_scopes
        ]
        for action in range(n_actions):
            joint = weight.reshape(n_states, n_actions)[:, action, None]
            for row, table in zip(rows, model.transitions, strict=True):
                factor = table[row[action]]  # [S, S_i]
                joint = (joint[:, :, None] * factor[:, None, :]).reshape(n_states, -1)
            transitions[action] += joint
    rewards = np.ascontiguousarray(rewards.reshape(n_states, n_actions).T)
    allowed = np.ascontiguousarray(s.allowed_mask().T) if s.constraints else None
    return FlatMDP(transitions, rewards, allowed)


def flat_bytes(structure: Structure) -> int:
    """Return the size of the dense tables over joint states and actions."""
    return 8 * structure.n_actions * structure.n_states * (structure.n_states + 1)


def flat_model(model: FactoredMDP, limit_bytes: int = FLAT_LIMIT_BYTES) -> FactoredMDP:
    """Return `model` with one state variable, one action variable and one reward factor.

    The range of the reward is the sum of the ranges. All constraints become one over the joint
    state and action. The noise of a single factor is kept; the sum of several noise laws is none of
    the known laws, so the reward is then deterministic. Rows are alike if those of all factors are.
    Effects and intervals are left out: one component would have all joint actions, and a set of
    products is not a set of joint rows. Tables of more than `limit_bytes` are refused (TooLarge).
    """
    s = model.structure
    flat = flatten(model, limit_bytes)
    return FactoredMDP(
        flat_structure(s),
        [flat.transitions.transpose(1, 0, 2)],
        [flat.rewards.T],
        model.noise[0] if s.l == 1 else Noise(),
        [encode(model.initial_state, s.state_sizes)],
        model.name,
    )


def flat_structure(structure: Structure) -> Structure:
    """Return the structure of `flat_model`; all joint states and actions are listed."""
    s = structure
    lows = [lo for lo, _ in s.reward_ranges]
    highs = [hi for _, hi in s.reward_ranges]
    forbidden = ~s.allowed_mask().reshape(-1) if s.constraints else None
    return Structure(
        state_sizes=(s.n_states,),
        action_sizes=(s.n_actions,),
        transition_scopes=((0, 1),),
        reward_scopes=((0, 1),),
        reward_ranges=((sum(lows), sum(highs)),),
        alike=_flat_alike(s),
        constraints=() if forbidden is None else (Forbidden((0, 1), forbidden, "allowed actions"),),
    )


def _product_alike(structures: Sequence[Structure]) -> Alike | None:
    """Return the classes of the parts, none of them shared between parts."""
    if all(s.alike is None for s in structures):
        return None
    transitions: list[IndexArray] = []
    rewards: list[IndexArray] = []
    first, first_reward = 0, 0
    for s in structures:
        transitions += [first + s.transition_classes_of(i) for i in range(s.m)]
        rewards += [first_reward + s.reward_classes_of(k) for k in range(s.l)]
        first += s.n_transition_classes
        first_reward += s.n_reward_classes
    return Alike(tuple(transitions), tuple(rewards))


def _product_effects(
    structures: Sequence[Structure], numbers: Sequence[Sequence[int]]
) -> Effects | None:
    effects = [s.effects for s in structures]
    known = [effect for effect in effects if effect is not None]
    if len(known) < len(effects) or any("setup" in effect.rewards for effect in known):
        return None
    components: list[Effect] = []
    after_scopes: list[Scope] = []
    after_reward_scopes: list[Scope] = []
    for part, new in zip(known, numbers, strict=True):
        for effect in part.components:
            states, actions = _renumbered((effect.states, effect.actions), new)
            components.append(Effect(states, actions, effect.outcome))
        after_scopes += _renumbered(part.after_scopes, new)
        after_reward_scopes += _renumbered(part.after_reward_scopes, new)
    return Effects(
        tuple(components),
        tuple(after_scopes),
        _joined(part.rewards for part in known),
        tuple(after_reward_scopes),
    )


def _product_intervals(models: Sequence[FactoredMDP]) -> Intervals | None:
    """Return the intervals of the parts; a part without intervals is known exactly."""
    if all(model.intervals is None for model in models):
        return None
    parts = [
        (model.transitions, model.transitions, model.rewards, model.rewards)
        if model.intervals is None
        else model.intervals.arrays()
        for model in models
    ]
    return Intervals(*(_joined(part[field] for part in parts) for field in range(4)))


def _permuted_effects(
    effects: Effects, old: Sequence[int], new: Sequence[int], sizes: Sequence[int]
) -> Effects:
    """Return the effects with state variable v renumbered to new[v]; `sizes` are the old ones."""
    components = []
    for effect in effects.components:
        order = sorted(range(len(effect.states)), key=lambda place: new[effect.states[place]])
        state_sizes = [sizes[v] for v in effect.states]
        cube = effect.outcome.reshape(*state_sizes, -1)
        cube = cube.transpose(*order, len(state_sizes)).reshape(-1)
        # The outcomes are joint states too.
        digits = np.unravel_index(cube, state_sizes)
        outcome = np.ravel_multi_index(
            [digits[place] for place in order], [state_sizes[place] for place in order]
        )
        states = tuple(new[effect.states[place]] for place in order)
        components.append(Effect(states, effect.actions, outcome.astype(np.int64)))

    def moved(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
        return tuple(tuple(sorted(scope)) for scope in _renumbered(scopes, new))

    return Effects(
        tuple(components),
        moved(effects.after_scopes[variable] for variable in old),
        effects.rewards,
        moved(effects.after_reward_scopes),
    )


def _flat_alike(s: Structure) -> Alike | None:
    """Return the classes of joint rows: alike if, factor by factor, they are of one class."""
    drawn = any(not variable.deterministic for variable in s.derived)
    if s.alike is None or drawn:
        return None
    pairs = s.allowed_pairs()  # forbidden actions are replaced as in `flatten`

    def joint(classes: Sequence[IndexArray], scopes: Sequence[Scope]) -> IndexArray:
        number = np.zeros(count(s.sizes), dtype=np.int64)
        for factor, scope in zip(classes, scopes, strict=True):
            key = number * (int(factor.max()) + 1) + factor[pair_rows(s, scope)[pairs]]
            number = np.unique(key, return_inverse=True)[1].reshape(-1)
        return number

    return Alike(
        (joint(s.alike.transitions, s.transition_scopes),),
        (joint(s.alike.rewards, s.reward_scopes),),
    )


def _joined(parts: Iterable[Sequence[T]]) -> tuple[T, ...]:
    return tuple(itertools.chain.from_iterable(parts))


def _renumbered(scopes: Iterable[Scope], new: Sequence[int]) -> list[Scope]:
    """Return scopes in the new numbers, each in its old order."""
    return [tuple(new[variable] for variable in scope) for scope in scopes]


def _side_by_side(parts: Sequence[Sequence[str]], prefix: str) -> tuple[str, ...]:
    """Return the names of the parts, or default names if all are default names."""
    if all(tuple(part) == default_names(prefix, len(part)) for part in parts):
        return default_names(prefix, sum(map(len, parts)))
    return _joined(parts)


def _suffixed(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return names with the number of the part as a suffix, which cannot clash."""
    return tuple(f"{name}.{index}" for index, part in enumerate(parts) for name in part)
