"""Several copies of a model, stepped together under one policy.

A policy that answers many states at once (`BatchedPolicy`) is asked once per step for all copies,
and compiled code moves them. That is what makes joint actions of hundreds of variables fast, whose
policies are no tables and for which single steps are dominated by checks of single actions.

The copies are the runs of an evaluation. Copy b meets the random numbers that run b would meet if
the runs were made one after the other in one `Environment`, so both ways give the same numbers to
the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fmdp._base.compiled import njit
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.entries import Entries, derive, entries_of
from fmdp.model.spaces import FloatArray, IndexArray
from fmdp.simulation import kernels
from fmdp.simulation.uniforms import ParallelUniforms

_BLOCK = 1 << 14
"""Uniforms drawn at a time for each copy."""
_MOVED = -1
"""Result of the kernel if every action was valid."""


@runtime_checkable
class BatchedPolicy(Protocol):
    """A policy that answers many states at once."""

    def actions_of(self, states: IndexArray) -> IndexArray:
        """Return the actions [number, action variables] of states [number, state variables]."""
        ...


class Copies:
    """Copies of a model, each in a state of its own.

    Parameters
    ----------
    model
        The model to simulate.
    seed
        Seed of the random numbers, as that of `Environment`.
    starts
        The state in which each copy begins.
    apart
        Steps of each copy: copy b meets the random numbers of the steps from b * apart on.
    """

    def __init__(
        self, model: FactoredMDP, seed: int, starts: Sequence[tuple[int, ...]], apart: int
    ) -> None:
        structure = model.structure
        drawn = kernels.drawn_variables(structure)
        m, width = structure.m, structure.m + structure.l + len(drawn)
        self.structure = structure
        self.states: IndexArray = np.array(starts, dtype=np.int64)
        """[copies, state variables]"""
        self.expected: FloatArray = np.zeros(len(starts))
        """[copies]: sums of the expected rewards since `clear_sums`."""
        self.steps = 0
        """Number of steps taken by all copies together."""
        law, _ = kernels.law_of(model)
        derived_column = np.full(len(structure.derived), -1, dtype=np.int64)
        derived_column[drawn] = m + np.arange(len(drawn))
        self._tables = (law.cumulative, law.means, derived_column)
        self._entries = tuple(entries_of(structure))
        columns = [*range(m), *range(m + structure.l, width)]
        rows = max(1, _BLOCK // width)
        self._source = ParallelUniforms(seed, width, columns, rows, len(starts), apart)
        self._uniforms = np.empty((len(starts), 0, len(columns)))
        self._row = 0

    def clear_sums(self) -> None:
        """Set the sums of rewards to zero."""
        self.expected[:] = 0.0

    def step(self, policy: BatchedPolicy) -> None:
        """Take one step in every copy.

        Raise InvalidParameter if the policy returns something else than an allowed action for
        every copy.
        """
        actions = self._actions(policy)
        if self._row == self._uniforms.shape[1]:
            self._uniforms, self._row = self._source.block(), 0
        wrong = _step_each(
            self._entries,
            *self._tables,
            self.states,
            actions,
            self._uniforms,
            self._row,
            self.expected,
        )
        if wrong != _MOVED:
            self.structure.check_action(actions[wrong].tolist())
        self._row += 1
        self.steps += len(self.states)

    def _actions(self, policy: BatchedPolicy) -> IndexArray:
        actions: Any = policy.actions_of(self.states)
        shape = (len(self.states), len(self.structure.action_sizes))
        kind = getattr(getattr(actions, "dtype", None), "kind", "")
        if kind not in "iu" or not kind or actions.shape != shape:
            raise InvalidParameter(
                f"actions_of of {quoted(policy)} must return an array of whole numbers of shape "
                f"{shape}; got {quoted(actions)}"
            )
        self.structure.check_allowed_each(self.states, actions)
        return np.ascontiguousarray(actions, dtype=np.int64)


@njit(nogil=True)
def _step_each(  # type: ignore[no-untyped-def]
    entries, cumulative, means, derived_column, states, actions, uniforms, t, expected
):
    """Move every copy by one step with the uniforms of row t and add its expected reward.

    Returns the number of the first copy whose action has an invalid value; nothing is moved then.
    """
    entries = Entries(*entries)
    m, n_actions = states.shape[1], actions.shape[1]
    for b in range(states.shape[0]):
        for a in range(n_actions):
            if actions[b, a] < 0 or actions[b, a] >= entries.sizes[m + a]:
                return b
    n_factors = entries.first_row.shape[0] - 1
    first_reward = entries.first_cell.shape[0] - 1
    shared = entries.entry_of_row.shape[0] > 0
    joint = np.empty(m + n_actions, dtype=np.int64)
    for b in range(states.shape[0]):
        joint[:m] = states[b]
        joint[m:] = actions[b]
        x = joint
        if derived_column.shape[0] > 0:
            x = derive(entries, joint, derived_column, uniforms[b], t)
        total = 0.0
        for factor in range(n_factors):
            row = entries.first_row[factor]
            for p in range(entries.scope_start[factor], entries.scope_start[factor + 1]):
                row += entries.scope_strides[p] * x[entries.scope_variables[p]]
            entry = entries.entry_of_row[row] if shared else row
            if factor >= m:
                total += means[entry - first_reward]
                continue
            # The smallest value whose cumulative probability exceeds the uniform.
            first, value, above = entries.first_cell[entry], 0, entries.sizes[factor] - 1
            while value < above:
                middle = (value + above) // 2
                if uniforms[b, t, factor] >= cumulative[first + middle]:
                    value = middle + 1
                else:
                    above = middle
            states[b, factor] = value
        expected[b] += total
    return -1
