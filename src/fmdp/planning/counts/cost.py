"""Predictions of the cost of a plan on counts, without listing its states and moves."""

from __future__ import annotations

import math
from typing import NamedTuple

from fmdp._base.memory import describe_count
from fmdp.errors import TooLarge
from fmdp.model.compositions import n_compositions
from fmdp.model.exchangeable.parts import Exchangeable
from fmdp.model.spaces import MAX_SIZE, count
from fmdp.planning.counts.chance import Chance
from fmdp.planning.counts.moves import LocalSpace, most_active
from fmdp.planning.counts.pair_values import RegimesOfGroup

BYTES_PER_PAIR = 24
SECONDS_PER_PAIR = 2e-8


class PredictedCost(NamedTuple):
    """The predicted size, memory and time of a plan on counts."""

    states: int
    memory: int
    """In bytes."""
    seconds: float
    """Per sweep."""


def predicted_cost(parts: Exchangeable) -> PredictedCost:
    """Return the predicted cost of a quotient, without listing its pairs.

    Each regime of a group has a chance step for every way in which parts with rows of their own may
    act. Raise TooLarge if there are too many counts, or if the rows of a part depend on too much.
    """
    sizes = parts.model.structure.all_sizes
    common = count([sizes[v] for v in parts.common_states])
    for group in parts.groups:  # before the states of a part are listed
        n_states = count([sizes[v] for v in group.states[0]])
        refuse_many_counts(n_compositions(group.n_parts, n_states))
    locals_ = [LocalSpace(parts, g) for g in range(len(parts.groups))]
    states = common * math.prod(local.n_counts for local in locals_)
    refuse_many_counts(states)
    pairs = predicted_pair_bytes(parts)
    entries, seconds = 0.0, SECONDS_PER_PAIR * pairs / BYTES_PER_PAIR
    for local in locals_:
        inner = max(1.0, states / local.n_counts / 4)
        for regime in RegimesOfGroup(parts, local).regimes:
            chance = Chance(regime.base, local.n_parts)
            steps = _chance_steps(parts, local, len(regime.extra))
            entries += (chance.entries + local.n_counts * steps) * inner
            seconds += chance.seconds * steps * inner
    return PredictedCost(states, pairs + int(8 * entries), seconds)


def _chance_steps(parts: Exchangeable, local: LocalSpace, n_extra: int) -> int:
    """Return how many multisets of parts with rows of their own may act at once."""
    acting = min(most_active(parts, local), local.n_parts) if local.n_actions > 1 else 0
    addressed = 1 + n_extra if local.ways else 1
    return n_compositions(acting, n_extra + 1) * addressed


def predicted_pair_bytes(parts: Exchangeable) -> int:
    """Return the memory that the pairs of states and moves need, without listing them."""
    pairs = count([parts.model.structure.all_sizes[v] for v in parts.common_states])
    for v in parts.common_actions:
        pairs *= parts.size(v)
    for g in range(len(parts.groups)):
        local = LocalSpace(parts, g)
        other = local.n_states * (local.n_actions - 1)
        most = min(most_active(parts, local), local.n_parts)
        of_group = 0
        for acting in range(most + 1 if other else 1):
            of_group += n_compositions(acting, other) * n_compositions(
                local.n_parts - acting, local.n_states
            )
        pairs *= of_group
    return BYTES_PER_PAIR * pairs


def refuse_many_counts(n_counts: int) -> None:
    """Raise TooLarge if there are too many counts to list."""
    if n_counts > MAX_SIZE:
        raise TooLarge(
            f"counts have {describe_count(n_counts)} states; at most {describe_count(MAX_SIZE)}",
            8 * n_counts,
            8 * MAX_SIZE,
        )
