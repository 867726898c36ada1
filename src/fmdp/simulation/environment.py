"""Environment: a factored MDP that is lived in, one step or many at a time, without resets.

The environment owns its generator and draws m uniforms for the next state and l for the rewards in
every step, whatever the action, so that two learners with the same seed meet the same luck. They
are drawn in blocks; the size of a block changes nothing, as the doubles of a generator come in one
order however they are asked for.

Many steps are played by compiled code. To call it for a single one takes a hundred times as long
as the step, so `step` stays in Python where it can: what a pair of state and action comes to is
kept when it is met for the second time, and the state after it is found by the cuts (kernels.py)
that the uniforms have reached. About a microsecond for seven machines.
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
from fmdp.simulation.luck import Luck
from fmdp.simulation.trajectory import Recorder, Rows

BLOCK = 1 << 14
"""Uniforms drawn at a time."""
_LISTED = 64
"""Rows of uniforms made into lists at a time."""
_KEPT = 1 << 18
"""Numbers in what `step` keeps: some ten megabytes at most."""

_NOT_WRITTEN = Rows(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.int32), np.zeros((0, 0)))


class _Outcome:
    """What an action in a state comes to."""

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
        """Of the variables of many values."""
        self.rewards = rewards
        """Their means, which are what is observed where there is no noise."""
        self.expected = expected
        self.gap = gap


class _Place:
    """A state that was met, and what the actions that were taken in it come to; None for one that
    was taken once."""

    __slots__ = ("outcomes", "state")

    def __init__(self, state: tuple[int, ...]) -> None:
        self.state = state
        self.outcomes: dict[Any, _Outcome | None] = {}


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
        self._law, uniforms = kernels.law_of(model)
        self._met = kernels.nothing_met(model, self._law)
        self._plain_entries, self._plain_law = tuple(self.entries), tuple(self._law)
        self._plain_met = tuple(self._met)
        width = structure.m + structure.l
        self._luck = Luck(source, width, uniforms, max(1, block // width))
        self._uniforms = np.empty((0, len(uniforms)))
        self._used = 0
        self._coming: list[list[float]] = []
        self._gaps = np.zeros((0, 0)) if gaps is None else gaps
        self._recorder = recorder
        # Where it is and the sums so far are in these arrays, which compiled code moves, or while
        # there is a place in the numbers below, which single steps move.
        self._state = np.array(model.initial_state, dtype=np.int64)
        self._totals = np.zeros(4)
        self._place: _Place | None = None
        self._state_of: _Place | None = None
        self._reward = self._expected = self._gap = 0.0
        self._steps = 0
        self._alone = kernels.nothing_met(model, self._law, 0)
        self._plain_alone = tuple(self._alone)
        self._joint = np.zeros(len(structure.sizes), dtype=np.int64)
        self._means = np.zeros(structure.l)
        actions = structure.naming.actions
        # Whether an action may be looked up by a number alone: positions and values do not differ.
        self._number_alone = len(actions.sizes) == 1 and (
            are_numerals(actions.values[0]) or positions_are_clear(actions.values[0])
        )
        self._many = tuple(i for i, n in enumerate(structure.state_sizes) if n > FEW_VALUES)
        law = self._law
        noise = (law.column[structure.m :], law.kind, law.scale, law.lo, law.hi)
        self._noise = tuple(zip(*(part.tolist() for part in noise), strict=True))
        self._noisy = any(column >= 0 for column, *_ in self._noise)
        # States that were met, as they are and by what was reached: of two values that is the same,
        # as False is 0 and True is 1.
        self._places: dict[tuple[int, ...], _Place] = {}
        self._by_reached = self._places if set(structure.state_sizes) <= {2} else {}
        self._room = self._most = max(1, _KEPT // (len(self._law.weights) + width + 16))

    @property
    def state(self) -> tuple[int, ...]:
        """Where it is now, one value a state variable."""
        return tuple(self._state.tolist()) if self._place is None else self._place.state

    @property
    def steps(self) -> int:
        """Steps taken."""
        return int(self._totals[STEPS]) if self._place is None else self._steps

    @property
    def total_reward(self) -> float:
        """Sum of all observed rewards."""
        return float(self._totals[REWARD]) if self._place is None else self._reward

    @property
    def total_expected_reward(self) -> float:
        """Sum of R(s_t, a_t): what the rewards would have been without their noise."""
        return float(self._totals[EXPECTED]) if self._place is None else self._expected

    @property
    def total_gap(self) -> float:
        """Sum of the gaps of what was done; 0 where no gaps were given."""
        return float(self._totals[GAP]) if self._place is None else self._gap

    def move_to(self, state: Assignment) -> None:
        """Put the system into a state; sums, steps and random numbers go on.

        Parameters
        ----------
        state
            As in `Structure.check_state`.

        Raises
        ------
        InvalidParameter
            Where it is no state of the model.
        """
        checked = self.model.structure.check_state(state)
        self._leave()
        self._state[:] = checked

    def clear_sums(self) -> None:
        """Set the sums of rewards and gaps to zero, so that what follows is summed without the
        rounding of a large sum; the steps go on."""
        self._leave()
        self._totals[[REWARD, EXPECTED, GAP]] = 0.0

    def ready(self) -> int:
        """Steps for which uniforms are drawn, at least one: the longest offer to play at once."""
        left = len(self._uniforms) - self._used + len(self._coming)
        if left == 0:
            self._uniforms = self._luck.block()
            self._used, left = 0, len(self._uniforms)
        return left

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
        place = self._place
        if place is None:
            place = self._enter()
        try:
            outcome = place.outcomes.get(action)
        except TypeError:  # a list, a mapping
            outcome = None
        # (1.0,) and (True,) are equal to (1,), and yet no actions.
        if outcome is None or (outcome.action is not action and not only_ints(action)):
            done = as_action(action, self.model.structure)
            outcome = place.outcomes.get(done)
        if outcome is None:
            rewards, total, expected, gap, after = self._compiled_step(place, done)
        else:
            if not self._coming:
                self._list_coming()
            uniforms = self._coming.pop()
            reached: tuple[int, ...] = tuple(map(ge, uniforms, outcome.cuts))
            if self._many:
                reached += self._values_of_many(uniforms, outcome)
            known = self._by_reached.get(reached)
            after = self._arrive(reached) if known is None else known
            rewards, done = outcome.rewards, outcome.action
            total = expected = outcome.expected
            gap = outcome.gap
            if self._noisy:
                rewards, total = self._observed(uniforms, rewards)
        self._reward += total
        self._expected += expected
        self._gap += gap
        self._steps += 1
        self._place = after
        if self._recorder is not None:
            rows = self._recorder.rows()
            rows.states[0], rows.actions[0], rows.rewards[0] = place.state, done, rewards
            self._recorder.written(1)
        return rewards, after.state

    def _enter(self) -> _Place:
        """From now on single steps move."""
        self._reward, self._expected, self._gap, steps = self._totals.tolist()
        self._steps = int(steps)
        self._place = self._state_of = self._place_of(tuple(self._state.tolist()))
        return self._place

    def _leave(self) -> None:
        """From now on compiled code moves."""
        if self._place is not None:
            self._state[:] = self._place.state
            self._totals[:] = self._reward, self._expected, self._gap, self._steps
            self._place = self._state_of = None
        self._used -= len(self._coming)
        self._coming.clear()

    def _list_coming(self) -> None:
        """Some of the uniforms that are ready, the next ones last."""
        self.ready()
        first, self._used = self._used, min(self._used + _LISTED, len(self._uniforms))
        self._coming = self._uniforms[first : self._used].tolist()
        self._coming.reverse()

    def _place_of(self, state: tuple[int, ...]) -> _Place:
        place = self._places.get(state)
        if place is None:
            self._make_room()
            place = self._places[state] = _Place(state)
        return place

    def _make_room(self) -> None:
        """For one more state or outcome; all are forgotten where there are too many."""
        self._room -= 1
        if self._room < 0:
            self._places.clear()
            self._by_reached.clear()
            self._room = self._most

    def _arrive(self, reached: tuple[int, ...]) -> _Place:
        """The state where these cuts are reached, followed by the values of those of many."""
        values, first = [], 0
        for size in self.model.structure.state_sizes:
            cuts = size - 1 if size <= FEW_VALUES else 0
            values.append(sum(reached[first : first + cuts]))
            first += cuts
        for i, value in zip(self._many, reached[first:], strict=True):
            values[i] = value
        place = self._place_of(tuple(values))
        self._by_reached[reached] = place
        return place

    def _values_of_many(self, uniforms: list[float], outcome: _Outcome) -> tuple[int, ...]:
        """The next values of the variables of many values."""
        column, sizes = len(self._law.weights), self.model.structure.state_sizes
        sums = self._law.cumulative.data  # as floats of Python
        return tuple(
            bisect_right(sums, uniforms[column + n], first, first + sizes[i] - 1) - first
            for n, (i, first) in enumerate(zip(self._many, outcome.first_cells, strict=True))
        )

    def _observed(
        self, uniforms: list[float], means: tuple[float, ...]
    ) -> tuple[tuple[float, ...], float]:
        """Rewards with their noise, and their sum: one after the other, as compiled code adds."""
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
        self, place: _Place, action: tuple[int, ...]
    ) -> tuple[tuple[float, ...], float, float, float, _Place]:
        """What `step` needs of a step whose outcome is not kept, and is if it was taken before; or
        InvalidParameter where a constraint forbids it."""
        structure = self.model.structure
        again = action in place.outcomes
        if structure.constraints and not again:
            structure.check_allowed(place.state, action)
        m = structure.m
        if self._state_of is not place:
            self._state[:] = place.state
        self._state_of = None  # until the step is done: Ctrl-C may come in between
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
            before = encode(place.state, structure.state_sizes)
            gap = float(self._gaps[before, encode(action, structure.action_sizes)])
        outcome = self._outcome(action, means, expected, gap) if again else None
        place.outcomes[action] = outcome
        if self._number_alone:
            place.outcomes[action[0]] = outcome
        self._make_room()
        self._state_of = self._place_of(tuple(self._state.tolist()))
        return rewards, total, expected, gap, self._state_of

    def _outcome(
        self, action: tuple[int, ...], means: tuple[float, ...], expected: float, gap: float
    ) -> _Outcome:
        """What compiled code has just looked up."""
        found = self._alone.found[0]
        return _Outcome(
            action,
            tuple(self._alone.cuts[0].tolist()),
            tuple(self.entries.first_cell[found[list(self._many)]].tolist()),
            means,
            expected,
            gap,
        )

    def play(self, stretch: StepBatch, signals: Held | None = None) -> tuple[int, bool]:
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
        self._leave()
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
                    self._plain_met,
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
