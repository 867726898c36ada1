"""The quotient of a model by its exchangeable parts: an MDP over counts.

State: for each group the counts of its parts by local state (a composition), and the values of the
common variables. `Quotient.counts[g]` has the counts of every state, in the order group 1, group 2,
..., common variables, the last fastest.

Action ("move"): the values of the common action variables, where "a part of the group" stands for
all values that address one, and for each group how many parts in each local state take each action
other than the default one. A move is possible where there are that many parts.

Transition: the parts of a group are counted by class (local state, action, addressed or not). Given
the common variables, the common actions and the sums, each class has a row over the next local
states. Classes of default actions are counted by distinct rows, the types of the chance step
(chance.py); a class of another action whose row is equal to one of these is counted with it, which
makes "replace, then wear" the same as being new. What is left are few parts, which are added one by
one. The next values of the common variables are independent of those of the parts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.compositions import composition_rank
from fmdp.model.count_space import CountSpace
from fmdp.model.exchangeable.parts import Exchangeable
from fmdp.model.structure import Structure
from fmdp.planning.counts.chance import Chance, with_one_more
from fmdp.planning.counts.cost import (
    BYTES_PER_PAIR,
    SECONDS_PER_PAIR,
    predicted_pair_bytes,
    refuse_many_counts,
)
from fmdp.planning.counts.moves import LocalSpace, Move, all_moves
from fmdp.planning.counts.pair_values import PairValues, RegimesOfGroup, common_transitions
from fmdp.planning.policies.counts import CountMoves, PartsOfGroup

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Pairs:
    """The states in which a move is possible, and what it leads to: arrays of one length."""

    states: NDArray[np.int32]
    rows: Indices
    """Places in the concatenated expectations of all blocks."""
    rewards: Floats
    laws: NDArray[np.int32] | None
    """Laws of the next common values; None without common variables."""


class _BlockKey(NamedTuple):
    """A chance step: by group the regime and how many parts have each extra row."""

    regimes: tuple[int, ...]
    extras: tuple[tuple[int, ...], ...]


class Quotient:
    """An MDP over counts, with its backup.

    Parameters
    ----------
    parts
        The groups of the model.
    memory_limit
        In bytes; by default half of what is free.
    deadline
        TimeUp is raised after it.

    Raises
    ------
    TooLarge
        If states, moves or chance steps need more than the memory limit.
    """

    def __init__(
        self,
        parts: Exchangeable,
        *,
        memory_limit: int | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self.parts = parts
        self.deadline = deadline
        self.limit = available_memory() // 2 if memory_limit is None else memory_limit
        self.locals = tuple(LocalSpace(parts, g) for g in range(len(parts.groups)))
        self.space = CountSpace(
            parts.model.structure.state_sizes, [group.states for group in parts.groups]
        )
        """The states."""
        self.shape = self.space.shape
        self.n_states = self.space.n_states
        self._refuse_many()
        self.regimes = tuple(RegimesOfGroup(parts, local) for local in self.locals)
        """By group the rows of its classes in every context."""
        self.moves: tuple[Move, ...] = tuple(all_moves(parts, self.locals))
        """The actions of the quotient."""
        self.pairs: tuple[Pairs, ...] = ()
        """For each move the states in which it is possible."""
        self._offsets: dict[_BlockKey, int] = {}
        self._n_rows = 0
        self._law_numbers: dict[tuple[int, ...], int] = {}
        self._chances: dict[tuple[int, int, int], Chance] = {}
        self._list_pairs()
        self.laws = self._law_table()
        """Laws of the next common values: [laws, common values]."""
        self._refuse_memory(self.predicted_bytes, "its chance steps")

    # ---- sizes ----

    def _refuse_many(self) -> None:
        refuse_many_counts(self.n_states)
        self._refuse_memory(predicted_pair_bytes(self.parts), "its pairs of counts and actions")

    def _refuse_memory(self, needed: int, what: str) -> None:
        if needed > self.limit:
            raise TooLarge(
                f"planning on {describe_count(self.n_states)} counts needs "
                f"{describe_bytes(needed)} for {what}; the memory limit is "
                f"{describe_bytes(self.limit)}",
                needed,
                self.limit,
            )

    @property
    def n_pairs(self) -> int:
        """Number of (state, move) pairs."""
        return sum(len(pairs.states) for pairs in self.pairs)

    @property
    def predicted_bytes(self) -> int:
        """Memory of the pairs and of a sweep."""
        inner = self.n_states // min((local.n_counts for local in self.locals), default=1)
        chance = sum(chance.entries for chance in self._chances.values()) * (1 + inner // 4)
        return BYTES_PER_PAIR * self.n_pairs + 8 * (
            chance + self._n_rows * self.shape[-1] + 8 * self.n_states
        )

    @property
    def predicted_seconds(self) -> float:
        """Time of a sweep."""
        seconds = SECONDS_PER_PAIR * self.n_pairs * (1 + self.shape[-1] // 2)
        for key in self._offsets:
            for g, local in enumerate(self.locals):
                inner = self.n_states / local.n_counts
                chance = self._chances[g, key.regimes[g], local.n_parts - sum(key.extras[g])]
                seconds += chance.seconds * max(1.0, inner / 4)
        return seconds

    @property
    def roundings(self) -> int:
        """Largest number of roundings on the way of a number through a backup.

        The chance steps of the groups, the parts that are added one by one, the law of the common
        variables (a product, and a sum over their values), and the reward: a sum over factors of
        sums over classes.
        """
        steps = 0
        for g, local in enumerate(self.locals):
            of_group = [c.roundings for key, c in self._chances.items() if key[0] == g]
            steps += max(of_group, default=0) + 2 * local.n_parts * (local.n_states + 2)
        common = len(self.space.common_sizes) + sum(self.space.common_sizes) + self.shape[-1] + 2
        classes = sum(local.n_classes for local in self.locals)
        return steps + common + 2 * self.structure.l + 2 * classes + 8

    @cached_property
    def structure(self) -> Structure:
        """The quotient as one state and one action variable, with the reward ranges of the model.

        Its tables are never written out, and constraints are those of `pairs`.
        """
        s = self.parts.model.structure
        return Structure(
            state_sizes=(self.n_states,),
            action_sizes=(len(self.moves),),
            transition_scopes=((0, 1),),
            reward_scopes=((0, 1),) * s.l,
            reward_ranges=s.reward_ranges,
        )

    # ---- pairs ----

    def _list_pairs(self) -> None:
        values = PairValues(self.parts, self.locals, self.space)
        listed = []
        for move in self.moves:
            self.deadline.check()
            listed.append(self._pairs_of(move, values))
        self.pairs = tuple(listed)
        stuck = np.ones(self.n_states, dtype=np.bool_)
        for pairs in self.pairs:
            stuck[pairs.states] = False
        assert not stuck.any(), "every joint state of a model has an allowed action"

    def _pairs_of(self, move: Move, values: PairValues) -> Pairs:
        states = values.start(move)
        if values.forbidden.any():
            states = values.restrict(~values.forbidden)
        rewards = values.rewards()
        regimes = [of_group.numbers(values) for of_group in self.regimes]
        rows = self._rows(regimes, values)
        laws = None
        if self.shape[-1] > 1:
            different, place = values.laws()
            known = [self._law_numbers.setdefault(law, len(self._law_numbers)) for law in different]
            laws = np.array(known, dtype=np.int32)[place]
        return Pairs(states.astype(np.int32), rows, rewards, laws)

    def _rows(self, regimes: list[Indices], values: PairValues) -> Indices:
        """Return the place of each pair among the expectations, and note the blocks it needs."""
        n = len(values.states)
        joint = np.zeros(n, dtype=np.int64)
        for number, of_group in zip(regimes, self.regimes, strict=True):
            joint = joint * len(of_group.regimes) + number
        rows = np.empty(n, dtype=np.int64)
        for case in np.unique(joint):
            some = np.flatnonzero(joint == case)
            numbers = tuple(int(number[some[0]]) for number in regimes)
            extras, place = [], np.zeros(len(some), dtype=np.int64)
            for g, local in enumerate(self.locals):
                regime = self.regimes[g].regimes[numbers[g]]
                n_base = len(regime.base)
                extra = [0] * len(regime.extra)
                columns = [np.zeros(len(some), dtype=np.int64) for _ in range(n_base)]
                for c in values.present[g]:
                    t = int(regime.type_of[c])
                    if t >= n_base:
                        extra[t - n_base] += int(values.counts[g][c][0])
                    else:
                        columns[t] = columns[t] + values.counts[g][c][some]
                left = local.n_parts - sum(extra)
                chance = self._chance(g, numbers[g], left)
                place = place * chance.n_before + composition_rank(columns, left)
                extras.append(tuple(extra))
            rows[some] = self._offset(_BlockKey(numbers, tuple(extras))) + place
        return rows

    def _chance(self, g: int, regime: int, total: int) -> Chance:
        key = (g, regime, total)
        if key not in self._chances:
            self._chances[key] = Chance(self.regimes[g].regimes[regime].base, total)
        return self._chances[key]

    def _offset(self, key: _BlockKey) -> int:
        """Return where the expectations of a block begin; a new block is appended."""
        if key not in self._offsets:
            self._offsets[key] = self._n_rows
            self._n_rows += math.prod(
                self._chance(g, regime, local.n_parts - sum(extra)).n_before
                for g, (local, regime, extra) in enumerate(
                    zip(self.locals, key.regimes, key.extras, strict=True)
                )
            )
        return self._offsets[key]

    def _law_table(self) -> Floats:
        """Return the laws of the next common values: [laws, common values]."""
        laws = np.ones((len(self._law_numbers), 1))
        factors = common_transitions(self.parts)
        numbers = np.array(list(self._law_numbers), dtype=np.int64)
        for factor, rows in zip(factors, numbers.reshape(len(laws), len(factors)).T, strict=True):
            row = factor.table.reshape(-1, factor.table.shape[-1])[rows]
            laws = (laws[:, :, None] * row[:, None, :]).reshape(len(laws), -1)
        return laws

    @property
    def least_log_probability(self) -> float:
        """Logarithm of a lower bound on the positive probabilities of the quotient."""
        total = 0.0
        for local, of_group in zip(self.locals, self.regimes, strict=True):
            rows = [r for regime in of_group.regimes for r in (regime.base, regime.extra)]
            least = min(float(r[r > 0.0].min(initial=1.0)) for r in rows)
            total += local.n_parts * math.log(least)
        positive = self.laws[self.laws > 0.0]
        return total + math.log(float(positive.min(initial=1.0)))

    # ---- the backup ----

    def expectations(self, h: Floats) -> Floats:
        """Return the expectations of h over the next counts, for all blocks: [rows, common].

        `h` is [S] or [S, inner]; with inner the result is [rows, common, inner].
        """
        inner = h.shape[1:]
        cube = h.reshape(*self.shape, -1)
        out = np.empty((self._n_rows, self.shape[-1], cube.shape[-1]))
        made: dict[object, Floats] = {}
        for key, offset in self._offsets.items():
            self.deadline.check()
            values = cube
            for g in range(len(self.locals)):
                last = g == len(self.locals) - 1
                prefix = (key.regimes[: g + 1], key.extras[: g + 1])
                if prefix not in made or last:
                    result = self._expectation(values, g, key.regimes[g], key.extras[g])
                    if last:
                        values = result
                        break
                    made[prefix] = result
                values = made[prefix]
            block = values.reshape(-1, *out.shape[1:])
            out[offset : offset + len(block)] = block
        return out.reshape(self._n_rows, self.shape[-1], *inner)

    def _expectation(self, values: Floats, g: int, regime: int, extra: tuple[int, ...]) -> Floats:
        """Return the expectation over the next counts of one group, on its axis."""
        local = self.locals[g]
        moved = np.moveaxis(values, g, 0)
        rest = moved.shape[1:]
        flat = np.ascontiguousarray(moved).reshape(len(moved), -1)
        total = local.n_parts
        for row, number in zip(self.regimes[g].regimes[regime].extra, extra, strict=True):
            for _ in range(number):
                total -= 1
                flat = with_one_more(flat, total, row)
        flat = self._chances[g, regime, total].expectation(flat)
        return np.moveaxis(flat.reshape(-1, *rest), 0, g)

    @cached_property
    def count_moves(self) -> CountMoves:
        """The moves as policies store them."""
        parts = self.parts
        s = parts.model.structure
        groups = [
            PartsOfGroup(
                group.states,
                group.actions,
                -1 if group.selector is None else group.selector,
                group.values,
                tuple(int(local.value(slot)[local.defaults[0]]) for slot in local.action_slots),
            )
            for group, local in zip(parts.groups, self.locals, strict=True)
        ]
        common = np.zeros((len(self.moves), len(s.action_sizes)), dtype=np.int64)
        allotments = []
        for number, move in enumerate(self.moves):
            for v, value in zip(parts.common_actions, move.common, strict=True):
                if v in parts.modes:
                    mode = parts.modes[v][value]
                    value = mode.kind if mode.group < 0 else -1
                common[number, v - s.m] = value
            for g, (local, allotment) in enumerate(zip(self.locals, move.allotments, strict=True)):
                for c, n in zip(allotment.classes, allotment.counts, strict=True):
                    row = (int(local.state[c]), int(local.action[c]), int(local.way[c]))
                    allotments.append((number, g, *row, n))
        listed = np.array(allotments, dtype=np.int64).reshape(-1, 6)
        return CountMoves(s.state_sizes, s.action_sizes, tuple(groups), common, listed)

    def of_policy(self, moves: NDArray[np.integer[Any]]) -> Pairs:
        """Return the pairs of a policy, one move per state: arrays in the order of the states.

        Raise InvalidParameter if a move is not possible in its state.
        """
        rows = np.full(self.n_states, -1, dtype=np.int64)
        rewards = np.zeros(self.n_states)
        laws = None if self.shape[-1] == 1 else np.zeros(self.n_states, dtype=np.int32)
        for move in np.unique(moves).tolist():
            pairs = self.pairs[move]
            some = moves[pairs.states] == move
            states = pairs.states[some]
            rows[states], rewards[states] = pairs.rows[some], pairs.rewards[some]
            if laws is not None and pairs.laws is not None:
                laws[states] = pairs.laws[some]
        if (rows < 0).any():
            state = int((rows < 0).argmax())
            raise InvalidParameter(
                f"move {int(moves[state])} of a policy on counts is not possible in state {state}"
            )
        return Pairs(np.arange(self.n_states, dtype=np.int32), rows, rewards, laws)

    def worth(self, expectations: Floats, move: int) -> Floats:
        """Return R + P h of a move in the states in which it is possible.

        `expectations` are those of h.
        """
        pairs = self.pairs[move]
        return pairs.rewards + self.expected(expectations, pairs.rows, pairs.laws)

    def expected(
        self, expectations: Floats, rows: Indices, laws: NDArray[np.int32] | None
    ) -> Floats:
        """Return P h for pairs with these rows and laws."""
        picked: Floats = expectations[rows]
        if laws is None:
            return picked[:, 0]
        mean: Floats = np.einsum("pc...,pc->p...", picked, self.laws[laws])
        return mean
