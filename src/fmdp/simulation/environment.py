"""Environment: a factored MDP that is lived in, one step or many at a time, without resets.

The environment owns its generator and draws m uniforms for the next state and l for the rewards in
every step, whatever the action, so that two learners with the same seed meet the same luck. They
are drawn in blocks; the size of a block changes nothing, as the doubles of a generator come in one
order however they are asked for.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.generators import generator_of
from fmdp.interrupts import Held
from fmdp.model import FactoredMDP
from fmdp.model.entries import Entries, entries_of
from fmdp.model.factored import check_model
from fmdp.model.naming import Assignment
from fmdp.parameters import Integer, quoted
from fmdp.planning.playing import Stretch
from fmdp.planning.policy import as_action
from fmdp.simulation import kernels
from fmdp.simulation.kernels import EXPECTED, GAP, REWARD, STEPS
from fmdp.simulation.trajectory import Recorder, Rows

BLOCK = 1 << 14
"""Uniforms drawn at a time."""

_NOT_WRITTEN = Rows(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.int32), np.zeros((0, 0)))


class Environment:
    """One stream of experience from the initial state on, with sums over all steps so far.

    There are no resets. Two environments with the same model and seed have the same luck, whatever
    is done in them.

    Parameters
    ----------
    model
        The model to live in.
    generator
        Where the luck comes from; a seed i is `Generator(PCG64(i))`. The environment draws from it
        in blocks, so a generator should not be shared.
    gaps
        max q - q of every joint state and action, [S, A]: where given, `total_gap` sums it.
    recorder
        Gets every step, if there is one.
    block
        How many uniforms are drawn at a time, at least 1; the run is the same for any.

    Raises
    ------
    InvalidParameter
        Where there is no generator, or the gaps have another shape.
    """

    def __init__(
        self,
        model: FactoredMDP,
        generator: np.random.Generator | int,
        *,
        gaps: NDArray[np.float64] | None = None,
        recorder: Recorder | None = None,
        block: int = BLOCK,
    ) -> None:
        check_model(model, "Environment")
        structure = model.structure
        source = generator_of(generator, "Environment")
        if source is None:
            raise InvalidParameter("Environment draws at random: it needs a generator, or a seed")
        block = Integer("block", BLOCK, "uniforms drawn at a time", low=1).check(
            block, "Environment"
        )
        shape = (structure.n_states, structure.n_actions)
        if gaps is not None and getattr(gaps, "shape", None) != shape:
            raise InvalidParameter(
                f"the gaps of Environment must be an array of shape {shape}; got {quoted(gaps)}"
            )
        self.model = model
        self.entries: Entries = entries_of(structure)
        self._law = kernels.law_of(model)
        self._plain_entries, self._plain_law = tuple(self.entries), tuple(self._law)
        self._generator = source
        self._width = structure.m + structure.l
        self._rows = max(1, block // self._width)
        self._uniforms = np.empty((0, self._width))
        self._used = 0
        self._state = np.array(model.initial_state, dtype=np.int64)
        self._joint = np.zeros(len(structure.sizes), dtype=np.int64)
        self._found = np.zeros(self._width, dtype=np.int64)
        self._rewards = np.zeros(structure.l)
        self._gaps = np.zeros((0, 0)) if gaps is None else gaps
        self._totals = np.zeros(4)
        self._recorder = recorder

    @property
    def state(self) -> tuple[int, ...]:
        """Where it is now, one value a state variable."""
        return tuple(self._state.tolist())

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self._totals[STEPS])

    @property
    def total_reward(self) -> float:
        """Sum of all observed rewards."""
        return float(self._totals[REWARD])

    @property
    def total_expected_reward(self) -> float:
        """Sum of R(s_t, a_t): what the rewards would have been without their noise."""
        return float(self._totals[EXPECTED])

    @property
    def total_gap(self) -> float:
        """Sum of the gaps of what was done; 0 where no gaps were given."""
        return float(self._totals[GAP])

    def ready(self) -> int:
        """Steps for which uniforms are drawn, at least one: the longest offer to play at once."""
        if self._used == len(self._uniforms):
            self._uniforms = self._generator.random((self._rows, self._width))
            self._used = 0
        return len(self._uniforms) - self._used

    def step(self, action: Assignment | int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Take an action.

        Parameters
        ----------
        action
            One value an action variable, by number or by name, as in `Structure.check_action`;
            where there is one action variable, its value alone will do.

        Returns
        -------
        tuple[tuple[float, ...], tuple[int, ...]]
            The observed reward of every reward factor, and the next state.

        Raises
        ------
        InvalidParameter
            Where it is no action of the model, or a constraint forbids it here.
        """
        structure = self.model.structure
        m = structure.m
        done = as_action(action, structure)
        if structure.constraints:
            structure.check_allowed(self.state, done)
        self._joint[:m] = self._state
        self._joint[m:] = done
        self.ready()
        uniforms = self._uniforms[self._used]
        expected = kernels.draw(
            self.entries, self._law, self._joint, self._found, uniforms, self._state, self._rewards
        )
        self._used += 1
        # One reward after the other, as the compiled loop adds: np.sum would add in pairs.
        rewards = tuple(self._rewards.tolist())
        total = 0.0
        for reward in rewards:
            total += reward
        self._totals[REWARD] += total
        self._totals[EXPECTED] += expected
        if self._gaps.size:
            sizes = structure.sizes
            before = np.ravel_multi_index(self._joint[:m].tolist(), sizes[:m])
            number = np.ravel_multi_index(self._joint[m:].tolist(), sizes[m:])
            self._totals[GAP] += self._gaps[before, number]
        self._totals[STEPS] += 1.0
        if self._recorder is not None:
            rows = self._recorder.rows()
            rows.states[0], rows.actions[0] = self._joint[:m], self._joint[m:]
            rows.rewards[0] = self._rewards
            self._recorder.written(1)
        return rewards, self.state

    def play(self, stretch: Stretch, signals: Held | None = None) -> tuple[int, bool]:
        """Play in compiled code, for at most `ready()` steps.

        Parameters
        ----------
        stretch
            What is done in every state, for how many steps at most, and what ends them sooner.
        signals
            Shut; they are let through while a policy is asked for an action.

        Returns
        -------
        tuple[int, bool]
            How many steps were taken, and whether a limit was reached.
        """
        steps = min(stretch.steps, self.ready())
        taken = 0
        while True:
            rows = _NOT_WRITTEN if self._recorder is None else self._recorder.rows()
            least = steps - taken
            if self._recorder is not None:
                least = min(least, len(rows.states))
            before, end = self.steps, kernels.ALL_TAKEN
            try:
                _, end = kernels.play(
                    self._plain_entries,
                    tuple(stretch.joined),
                    self._plain_law,
                    stretch.actions,
                    stretch.drawn[taken:],
                    least,
                    self._state,
                    self._uniforms[self._used :],
                    tuple(stretch.counts),
                    stretch.limits,
                    self._gaps,
                    self._totals,
                    tuple(rows),
                )
            finally:
                # Ctrl-C during compiled code is raised when it returns: what it did is done.
                more = self.steps - before
                self._used += more
                taken += more
                if self._recorder is not None:
                    self._recorder.written(more)
            if end == kernels.UNKNOWN_ACTION:
                assert stretch.table is not None
                if signals is not None:
                    signals.let_through()
                stretch.table.ask(self.state)
                if signals is not None:
                    signals.shut = True
            elif end == kernels.LIMIT_REACHED or taken == steps:
                return taken, end == kernels.LIMIT_REACHED
