"""Models that other programs list state by state, as factored MDPs with one variable.

The states become the values of one state variable, the names of the choices those of one action
variable, and a choice that a state does not have is forbidden there.

Cost: the table of transitions is dense, states x actions x states numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.errors import TooLarge
from fmdp.model.constraints import Forbidden
from fmdp.model.factored import FactoredMDP
from fmdp.model.naming import Value
from fmdp.model.spaces import FloatArray

MOST_STATES = 10_000
"""Most states, unless a user allows more."""
MOST_NUMBERS = 1 << 26
"""Most numbers in the table of transitions, unless a user allows more states; 512 MiB."""
STEP = "step"
"""Action of a choice without a name."""
STAY = "stay"
"""Action of a state without a choice."""
_COPIES = 3
"""Copies of the table that are in memory while a model is made."""

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Explicit:
    """Choices of states, and where they lead."""

    variable: str
    """Name of the state variable."""
    values: Sequence[Value]
    """One name per state."""
    initial: int
    actions: Sequence[str]
    """Names of choices."""
    states: Indices
    """[choices]: the state that has the choice."""
    chosen: Indices
    """[choices]: the name of the choice, by number; different for the choices of one state."""
    rows: Indices
    """[entries]: the choice of each entry of the matrix of transitions."""
    successors: Indices
    """[entries]: the next state."""
    chances: FloatArray
    """[entries]: its probability; entries of the same place add up."""
    rewards: Mapping[str, FloatArray] = field(default_factory=dict)
    """[choices] each: what a choice pays per step, by name."""
    quantities: Mapping[str, FloatArray] = field(default_factory=dict)
    """[choices] each: quantities that are measured but not paid, by name."""
    action: str = "action"
    """Name of the action variable."""

    def model(self, name: str, max_states: int | None = None) -> FactoredMDP:
        """Return the factored MDP; raise TooLarge if its table exceeds the limits.

        With `max_states`, only the memory of the machine limits the table.
        """
        n, width = len(self.values), len(self.actions)
        check_numbers(n, width, max_states)
        allowed = np.zeros((n, width), dtype=np.bool_)
        allowed[self.states, self.chosen] = True
        table = np.zeros((n, width, n))
        places = (self.states * width + self.chosen)[self.rows] * n + self.successors
        np.add.at(table.reshape(-1), places, self.chances)
        # Rows of actions that are never allowed may be anything: they stay.
        state, action = np.nonzero(~allowed)
        table[state, action, state] = 1.0
        scope = (0,) if width == 1 else (0, 1)
        forbidden = [] if allowed.all() else [Forbidden((0, 1), ~allowed.reshape(-1), "choices")]
        return FactoredMDP.from_factors(
            [n],
            [width],
            [(scope, table.reshape(-1, n))],
            [self._factor(means, allowed) for means in self.rewards.values()],
            state_names=[self.variable],
            action_names=[self.action],
            reward_names=list(self.rewards),
            state_values=[list(self.values)],
            action_values=[list(self.actions)],
            initial_state=[self.initial],
            name=name,
            constraints=forbidden,
            quantities={
                key: self._factor(means, allowed) for key, means in self.quantities.items()
            },
        )

    def _factor(
        self, means: FloatArray, allowed: NDArray[np.bool_]
    ) -> tuple[tuple[int, ...], FloatArray]:
        """Return the scope and the table of a reward; of the states alone if that says it all."""
        n, width = allowed.shape
        table = np.zeros((n, width))
        table[self.states, self.chosen] = means
        first = table[np.arange(n), allowed.argmax(axis=1)]
        table = np.where(allowed, table, first[:, None])
        if (table == first[:, None]).all():
            return (0,), first
        return (0, 1), table.reshape(-1)


def uniformised(
    owners: Indices, rows: Indices, successors: Indices, rates: FloatArray
) -> tuple[Indices, Indices, FloatArray, float]:
    """Return the entries of a model in continuous time as probabilities, and the rate of its steps.

    `owners` is the state of each choice, and `rates` those of the entries. The rate of steps is the
    largest at which a choice leaves its state: P(s' | s, a) = rate(s, a, s') / rate for s' != s.
    """
    leaving = owners[rows] != successors
    exits = np.zeros(len(owners))
    np.add.at(exits, rows[leaving], rates[leaving])
    rate = float(exits.max(initial=0.0)) or 1.0
    return (
        np.concatenate([rows[leaving], np.arange(len(owners))]),
        np.concatenate([successors[leaving], owners]),
        np.concatenate([rates[leaving] / rate, np.maximum(1.0 - exits / rate, 0.0)]),
        rate,
    )


def check_numbers(n: int, width: int, max_states: int | None) -> None:
    """Raise TooLarge for a table of n states and `width` actions that exceeds the limits."""
    numbers = n * width * n
    most = MOST_NUMBERS if max_states is None else available_memory() // (8 * _COPIES)
    if numbers > most:
        limit = (
            f"at most {MOST_NUMBERS:,}, and as many as fit into memory with max-states={n}"
            if max_states is None
            else f"{describe_bytes(8 * _COPIES * numbers)} do not fit into memory"
        )
        raise TooLarge(
            f"{n:,} states and {width} actions make a table of {describe_count(numbers)} "
            f"numbers; {limit}",
            8 * numbers,
            8 * most,
        )


def numbered(names: Sequence[str], states: Indices) -> tuple[list[str], Indices]:
    """Return distinct names of choices and the number of each choice's name.

    The second choice of the same name in one state becomes NAME_2, and so on.
    """
    known: dict[str, int] = {}
    counts: dict[tuple[int, str], int] = {}
    taken = set(names)
    chosen = np.zeros(len(names), dtype=np.int64)
    for place, (name, state) in enumerate(zip(names, states.tolist(), strict=True)):
        count = counts[state, name] = counts.get((state, name), 0) + 1
        label = name if count == 1 else f"{name}_{count}"
        while count > 1 and label in taken:
            label += "_"
        chosen[place] = known.setdefault(label, len(known))
    return list(known), chosen
