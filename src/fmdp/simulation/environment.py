"""Environment: simulation of a factored MDP, one step or many at a time, without resets.

The environment owns its generator and draws m uniforms for the next state and l for the rewards in
every step (and one for each drawn variable, after these), whatever the action, so that learners
with the same seed meet the same random numbers.
They are drawn in blocks; the block size does not change them.

Many steps are played by compiled code. Calling it for a single step takes a hundred times as long
as the step, so `step` stays in Python where it can: the outcome of a state and action is cached
when it is met for the second time, and the next state is found by comparing the uniforms with its
cuts (kernels.py). About a microsecond for seven machines.
"""

from __future__ import annotations

from bisect import bisect_right
from operator import ge
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.generators import generator_of
from fmdp._base.interrupts import Held
from fmdp._base.parameters import Integer, quoted
from fmdp.errors import InvalidParameter
from fmdp.model import FactoredMDP
from fmdp.model.entries import Entries, entries_of
from fmdp.model.factored import check_model
from fmdp.model.naming import Assignment, are_numerals, positions_are_clear
from fmdp.model.spaces import encode
from fmdp.planning.policies.playing import StepBatch
from fmdp.planning.policies.policy import only_ints
from fmdp.planning.policies.rule import as_action
from fmdp.simulation import kernels
from fmdp.simulation.kernels import EXPECTED, FEW_VALUES, GAP, REWARD, STEPS
from fmdp.simulation.trajectory import Recorder, Rows
from fmdp.simulation.uniforms import UniformBlocks

BLOCK = 1 << 14
"""Uniforms drawn at a time, to amortise the call of the generator."""
_LISTED = 64
"""Rows of uniforms converted to lists at a time for single steps."""
_KEPT = 1 << 18
"""Numbers in the cache of `step`: about ten megabytes at most."""

_NOT_RECORDED = Rows(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.int32), np.zeros((0, 0)))


class _Outcome:
    """The outcome of an action in a state."""

    __slots__ = ("action", "cuts", "expected", "first_cells", "gap", "rewards")

    def __init__(
        self,
        action: tuple[int, ...],
        cuts: tuple[float, ...],
        first_cells: tuple[int, ...],
        rewards: tuple[float, ...],
        expected: float,
        gap: float,
    ) -> None:
        self.action = action
        self.cuts = cuts
        self.first_cells = first_cells
        """First cells of the variables with many values."""
        self.rewards = rewards
        """Means of the rewards."""
        self.expected = expected
        self.gap = gap


class _VisitedState:
    """A state that was visited, with the outcomes of its actions; None for an action taken once."""

    __slots__ = ("outcomes", "state")

    def __init__(self, state: tuple[int, ...]) -> None:
        self.state = state
        self.outcomes: dict[Any, _Outcome | None] = {}


class Environment:
    """One stream of experience from the initial state on, with sums over all steps so far.

    There are no resets. Two environments with the same model and seed draw the same random numbers,
    whatever the actions.

    Parameters
    ----------
    model
        The model to simulate.
    generator
        A generator or a seed; seed i is `Generator(PCG64(i))`. The environment draws in blocks, so
        a generator should not be shared.
    gaps
        max q - q of every joint state and action, [S, A]; if given, `total_gap` sums it.
    recorder
        Receives every step.
    block
        Uniforms drawn at a time, at least 1; it does not change the run.

    Raises
    ------
    InvalidParameter
        If there is no generator, or the gaps have another shape.
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
        self._law, uniforms = kernels.law_of(model)
        self._cache = kernels.empty_cache(model, self._law)
        self._plain_entries, self._plain_law = tuple(self.entries), tuple(self._law)
        self._plain_cache = tuple(self._cache)
        self._drawing = bool(kernels.drawn_variables(structure))
        width = structure.m + structure.l + len(kernels.drawn_variables(structure))
        self._blocks = UniformBlocks(source, width, uniforms, max(1, block // width))
        self._uniforms = np.empty((0, len(uniforms)))
        self._used = 0
        self._coming: list[list[float]] = []
        self._gaps = np.zeros((0, 0)) if gaps is None else gaps
        self._recorder = recorder
        # Compiled code keeps the state and the sums in these arrays. While single steps are taken,
        # they are in `_visited` and the numbers below it, and `_visited` is not None.
        self._state = np.array(model.initial_state, dtype=np.int64)
        self._totals = np.zeros(4)
        self._visited: _VisitedState | None = None
        self._state_of: _VisitedState | None = None
        self._reward = self._expected = self._gap = 0.0
        self._steps = 0
        self._alone = kernels.empty_cache(model, self._law, 0)
        self._plain_alone = tuple(self._alone)
        self._joint = np.zeros(len(structure.sizes), dtype=np.int64)
        self._means = np.zeros(structure.l)
        actions = structure.naming.actions
        # True if an action may be looked up by a number: positions and values cannot differ.
        self._number_alone = len(actions.sizes) == 1 and (
            are_numerals(actions.values[0]) or positions_are_clear(actions.values[0])
        )
        self._many = tuple(i for i, n in enumerate(structure.state_sizes) if n > FEW_VALUES)
        law = self._law
        noise = (law.column[structure.m :], law.kind, law.scale, law.lo, law.hi)
        self._noise = tuple(zip(*(part.tolist() for part in noise), strict=True))
        self._noisy = any(column >= 0 for column, *_ in self._noise)
        # Visited states by their values and by the cuts that were reached. For binary variables
        # both keys are equal, as False == 0 and True == 1.
        self._states: dict[tuple[int, ...], _VisitedState] = {}
        self._by_reached = self._states if set(structure.state_sizes) <= {2} else {}
        self._capacity = max(1, _KEPT // (len(self._law.weights) + width + 16))
        self._free = self._capacity

    @property
    def state(self) -> tuple[int, ...]:
        """Current state, one value per state variable."""
        return tuple(self._state.tolist()) if self._visited is None else self._visited.state

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return int(self._totals[STEPS]) if self._visited is None else self._steps

    @property
    def total_reward(self) -> float:
        """Sum of all observed rewards."""
        return float(self._totals[REWARD]) if self._visited is None else self._reward

    @property
    def total_expected_reward(self) -> float:
        """Sum of R(s_t, a_t), the rewards without their noise."""
        return float(self._totals[EXPECTED]) if self._visited is None else self._expected

    @property
    def total_gap(self) -> float:
        """Sum of the gaps of the actions taken; 0 if no gaps were given."""
        return float(self._totals[GAP]) if self._visited is None else self._gap

    def move_to(self, state: Assignment) -> None:
        """Move the system to `state`, as in `Structure.check_state`.

        Sums, steps and random numbers continue.
        """
        checked = self.model.structure.check_state(state)
        self._leave()
        self._state[:] = checked

    def clear_sums(self) -> None:
        """Set the sums of rewards and gaps to zero; the steps continue.

        Later rewards are then summed without the rounding of a large sum.
        """
        self._leave()
        self._totals[[REWARD, EXPECTED, GAP]] = 0.0

    def ready(self) -> int:
        """Return the number of steps, at least 1, whose uniforms are drawn: the most to play at
        once."""
        left = len(self._uniforms) - self._used + len(self._coming)
        if left == 0:
            self._uniforms = self._blocks.block()
            self._used, left = 0, len(self._uniforms)
        return left

    def step(self, action: Assignment | int) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """Take an action.

        Parameters
        ----------
        action
            One value per action variable, by number or by name, as in `Structure.check_action`.
            With one action variable its value alone is enough.

        Returns
        -------
        tuple[tuple[float, ...], tuple[int, ...]]
            The observed reward of every reward factor, and the next state.

        Raises
        ------
        InvalidParameter
            If it is not an action of the model, or a constraint forbids it here.
        """
        current = self._visited
        if current is None:
            current = self._enter()
        try:
            outcome = current.outcomes.get(action)
        except TypeError:  # a list, a mapping
            outcome = None
        # (1.0,) and (True,) equal (1,) but are not valid actions.
        if outcome is None or (outcome.action is not action and not only_ints(action)):
            checked = as_action(action, self.model.structure)
            outcome = current.outcomes.get(checked)
        if outcome is None:
            rewards, total, expected, gap, after = self._compiled_step(current, checked)
        else:
            if not self._coming:
                self._list_coming()
            uniforms = self._coming.pop()
            reached: tuple[int, ...] = tuple(map(ge, uniforms, outcome.cuts))
            if self._many:
                reached += self._values_of_many(uniforms, outcome)
            known = self._by_reached.get(reached)
            after = self._arrive(reached) if known is None else known
            rewards, checked = outcome.rewards, outcome.action
            total = expected = outcome.expected
            gap = outcome.gap
            if self._noisy:
                rewards, total = self._observed(uniforms, rewards)
        self._reward += total
        self._expected += expected
        self._gap += gap
        self._steps += 1
        self._visited = after
        if self._recorder is not None:
            rows = self._recorder.rows()
            rows.states[0], rows.actions[0], rows.rewards[0] = current.state, checked, rewards
            self._recorder.written(1)
        return rewards, after.state

    def _enter(self) -> _VisitedState:
        """Move the state and the sums to where single steps keep them."""
        self._reward, self._expected, self._gap, steps = self._totals.tolist()
        self._steps = int(steps)
        self._visited = self._state_of = self._visit(tuple(self._state.tolist()))
        return self._visited

    def _leave(self) -> None:
        """Move the state and the sums to where compiled code keeps them."""
        if self._visited is not None:
            self._state[:] = self._visited.state
            self._totals[:] = self._reward, self._expected, self._gap, self._steps
            self._visited = self._state_of = None
        self._used -= len(self._coming)
        self._coming.clear()

    def _list_coming(self) -> None:
        """List some of the uniforms that are drawn, the next ones last."""
        self.ready()
        first, self._used = self._used, min(self._used + _LISTED, len(self._uniforms))
        self._coming = self._uniforms[first : self._used].tolist()
        self._coming.reverse()

    def _visit(self, state: tuple[int, ...]) -> _VisitedState:
        visited = self._states.get(state)
        if visited is None:
            self._reserve()
            visited = self._states[state] = _VisitedState(state)
        return visited

    def _reserve(self) -> None:
        """Reserve memory for one more state or outcome; a full cache is cleared."""
        self._free -= 1
        if self._free < 0:
            self._states.clear()
            self._by_reached.clear()
            self._free = self._capacity

    def _arrive(self, reached: tuple[int, ...]) -> _VisitedState:
        """Return the state with these reached cuts, followed by the values of variables with
        many."""
        values, first = [], 0
        for size in self.model.structure.state_sizes:
            cuts = size - 1 if size <= FEW_VALUES else 0
            values.append(sum(reached[first : first + cuts]))
            first += cuts
        for i, value in zip(self._many, reached[first:], strict=True):
            values[i] = value
        visited = self._visit(tuple(values))
        self._by_reached[reached] = visited
        return visited

    def _values_of_many(self, uniforms: list[float], outcome: _Outcome) -> tuple[int, ...]:
        """Return the next values of the variables with many values."""
        column, sizes = len(self._law.weights), self.model.structure.state_sizes
        sums = self._law.cumulative.data  # a memoryview yields Python floats
        return tuple(
            bisect_right(sums, uniforms[column + n], first, first + sizes[i] - 1) - first
            for n, (i, first) in enumerate(zip(self._many, outcome.first_cells, strict=True))
        )

    def _observed(
        self, uniforms: list[float], means: tuple[float, ...]
    ) -> tuple[tuple[float, ...], float]:
        """Return rewards with their noise, and their sum in the order of the compiled code."""
        rewards = []
        total = 0.0
        for mean, (column, kind, scale, lo, hi) in zip(means, self._noise, strict=True):
            reward = mean
            if column >= 0:
                reward = kernels.observed(kind, mean, scale, lo, hi, uniforms[column])
            rewards.append(reward)
            total += reward
        return tuple(rewards), total

    def _compiled_step(
        self, current: _VisitedState, action: tuple[int, ...]
    ) -> tuple[tuple[float, ...], float, float, float, _VisitedState]:
        """Take a step whose outcome is not cached; cache it if the action was taken before. Raises
        InvalidParameter if a constraint forbids the action."""
        structure = self.model.structure
        again = action in current.outcomes
        if structure.constraints and not again:
            structure.check_allowed(current.state, action)
        m = structure.m
        if self._state_of is not current:
            self._state[:] = current.state
        self._state_of = None  # Ctrl-C may come before the step is done
        self._joint[:m], self._joint[m:] = self._state, action
        self.ready()
        row = self._used - len(self._coming)
        kernels.draw(
            self._plain_entries,
            self._plain_law,
            self._plain_alone,
            self._joint,
            self._uniforms,
            row,
            self._state,
            self._means,
        )
        if self._coming:
            self._coming.pop()
        else:
            self._used += 1
        means = tuple(self._means.tolist())
        rewards, expected, gap = means, float(self._alone.expected[0]), 0.0
        total = expected
        if self._noisy:
            rewards, total = self._observed(self._uniforms[row].tolist(), means)
        if self._gaps.size:
            before = encode(current.state, structure.state_sizes)
            gap = float(self._gaps[before, encode(action, structure.action_sizes)])
        keep = again and not self._drawing
        outcome = self._outcome(action, means, expected, gap) if keep else None
        current.outcomes[action] = outcome
        if self._number_alone:
            current.outcomes[action[0]] = outcome
        self._reserve()
        self._state_of = self._visit(tuple(self._state.tolist()))
        return rewards, total, expected, gap, self._state_of

    def _outcome(
        self, action: tuple[int, ...], means: tuple[float, ...], expected: float, gap: float
    ) -> _Outcome:
        """Return the outcome that compiled code has just looked up."""
        entries = self._alone.entries[0]
        return _Outcome(
            action,
            tuple(self._alone.cuts[0].tolist()),
            tuple(self.entries.first_cell[entries[list(self._many)]].tolist()),
            means,
            expected,
            gap,
        )

    def preview(
        self, stretch: StepBatch
    ) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
        """Return the steps that `play` would take for `stretch`, without taking them.

        Returns states [n + 1, m], the one after the last step included, actions [n, variables] and
        rewards [n, l].
        """
        steps = min(stretch.steps, self.ready())
        self._leave()
        s = self.model.structure
        rows = Rows(
            np.zeros((steps, s.m), np.int32),
            np.zeros((steps, len(s.action_sizes)), np.int32),
            np.zeros((steps, s.l)),
        )
        state, totals = self._state.copy(), self._totals.copy()
        counts = tuple(array.copy() for array in stretch.counts)
        taken = 0
        while True:
            before = totals[STEPS]
            _, end = kernels.play(
                self._plain_entries,
                tuple(stretch.joined),
                self._plain_law,
                self._plain_cache,
                stretch.actions,
                stretch.drawn[taken:],
                steps - taken,
                state,
                self._uniforms[self._used + taken :],
                counts,
                stretch.limits,
                self._gaps,
                totals,
                tuple(array[taken:] for array in rows),
            )
            taken += int(totals[STEPS] - before)
            if end == kernels.UNKNOWN_ACTION:
                assert stretch.table is not None
                stretch.table.ask(tuple(state.tolist()))
            elif end == kernels.LIMIT_REACHED or taken == steps:
                last = state.astype(np.int32)[None]
                states = np.concatenate([rows.states[:taken], last])
                return states, rows.actions[:taken], rows.rewards[:taken]

    def play(self, stretch: StepBatch, signals: Held | None = None) -> tuple[int, bool]:
        """Play `stretch` in compiled code, for at most `ready()` steps.

        Return the number of steps taken, and whether a limit was reached. `signals` are shut, and
        let through while a policy is asked for an action.
        """
        steps = min(stretch.steps, self.ready())
        self._leave()
        taken = 0
        while True:
            rows = _NOT_RECORDED if self._recorder is None else self._recorder.rows()
            length = steps - taken
            if self._recorder is not None:
                length = min(length, len(rows.states))
            before, end = self.steps, kernels.ALL_TAKEN
            try:
                _, end = kernels.play(
                    self._plain_entries,
                    tuple(stretch.joined),
                    self._plain_law,
                    self._plain_cache,
                    stretch.actions,
                    stretch.drawn[taken:],
                    length,
                    self._state,
                    self._uniforms[self._used :],
                    tuple(stretch.counts),
                    stretch.limits,
                    self._gaps,
                    self._totals,
                    tuple(rows),
                )
            finally:
                # Ctrl-C during compiled code is raised when it returns, after its steps.
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
