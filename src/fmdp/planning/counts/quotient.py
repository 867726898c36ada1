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

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model.compositions import composition_rank, compositions, n_compositions
from fmdp.model.count_space import CountSpace
from fmdp.model.exchangeable.parts import (
    FORBIDDEN,
    REWARD,
    TRANSITION,
    CommonFactor,
    Exchangeable,
    PartFactor,
)
from fmdp.model.spaces import MAX_SIZE, count, strides
from fmdp.model.structure import Structure
from fmdp.planning.counts.chance import Chance, with_one_more
from fmdp.planning.policies.counts import CountMoves, PartsOfGroup

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_CONTEXTS = 1 << 14
"""Most joint values of the common variables and sums that the rows of one group depend on."""
_BYTES_PER_PAIR = 24
_SECONDS_PER_PAIR = 2e-8


class Allotment(NamedTuple):
    """How many parts of a group take actions other than the default one."""

    classes: tuple[int, ...]
    """Classes of which there are some, none of them a default class."""
    counts: tuple[int, ...]


class Move(NamedTuple):
    """An action of the quotient."""

    common: tuple[int, ...]
    """Values of the common action variables; the mode of a selector."""
    allotments: tuple[Allotment, ...]
    """By group."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The states in which a move is possible, and what it leads to: arrays of one length."""

    states: NDArray[np.int32]
    rows: Indices
    """Places in the concatenated expectations of all blocks."""
    rewards: Floats
    laws: NDArray[np.int32] | None
    """Laws of the next common values; None without common variables."""


class LocalSpace:
    """The classes of the parts of one group: (local state, own action, way it is addressed)."""

    def __init__(self, parts: Exchangeable, g: int) -> None:
        group, sizes = parts.groups[g], parts.model.structure.all_sizes
        self.number = g
        self.n_parts = group.n_parts
        self.state_sizes = tuple(sizes[v] for v in group.states[0])
        self.action_sizes = tuple(sizes[v] for v in group.actions[0])
        self.ways = len(group.values[0]) if group.values else 0
        self.selector = group.selector
        self.n_states, self.n_actions = count(self.state_sizes), count(self.action_sizes)
        self.n_classes = self.n_states * self.n_actions * (self.ways + 1)
        numbers = np.arange(self.n_classes)
        self.state = numbers // (self.n_actions * (self.ways + 1))
        self.action = numbers // (self.ways + 1) % self.n_actions
        self.way = numbers % (self.ways + 1)
        """0 if not addressed, else 1 + the way."""
        idle = [0] * len(self.action_sizes)
        for cap in parts.caps:
            for group_number, slot, value in cap.of_parts:
                if group_number == g:
                    idle[slot - len(self.state_sizes)] = value
        self.default_action = sum(
            value * step for value, step in zip(idle, strides(self.action_sizes), strict=True)
        )

    @property
    def action_slots(self) -> range:
        """Slots of the action variables of a part."""
        n = len(self.state_sizes)
        return range(n, n + len(self.action_sizes))

    def value(self, slot: int) -> Indices:
        """Return the value of a variable of the part in each class."""
        n = len(self.state_sizes)
        if slot < n:
            return self.state // strides(self.state_sizes)[slot] % self.state_sizes[slot]
        place = slot - n
        return self.action // strides(self.action_sizes)[place] % self.action_sizes[place]

    def number_of(self, state: int, action: int, way: int = 0) -> int:
        """Return the number of a class."""
        return (state * self.n_actions + action) * (self.ways + 1) + way

    @cached_property
    def defaults(self) -> Indices:
        """The class of each local state with the default action."""
        states = range(self.n_states)
        return np.array([self.number_of(j, self.default_action) for j in states])

    @property
    def n_counts(self) -> int:
        return n_compositions(self.n_parts, self.n_states)


class _Context:
    """A factor of one part by (values of shared variables, class)."""

    def __init__(self, parts: Exchangeable, local: LocalSpace, form: PartFactor) -> None:
        self.form = form
        self.shared = form.shared
        self.sizes = tuple(parts.size(v) for v in form.shared)
        classes = np.arange(local.n_classes)
        n = len(form.shared)
        index: list[Indices] = [local.value(slot).reshape((1,) * n + (-1,)) for slot in form.slots]
        for axis, (v, size) in enumerate(zip(form.shared, self.sizes, strict=True)):
            along = [1] * (n + 1)
            along[axis] = size
            values = np.arange(size).reshape(along)
            if v == local.selector:
                way = local.way.reshape((1,) * n + (-1,))
                values = np.where(way > 0, size + way - 1, values)
            index.append(values)
        shape = (*self.sizes, len(classes))
        places = tuple(np.broadcast_to(i, shape) for i in index)
        self.table = (
            form.table[places]
            if places
            else np.broadcast_to(form.table, (*shape, form.table.shape[-1]))
        )
        """[sizes of the shared variables, classes, outcomes]"""


class _Regime(NamedTuple):
    """The rows of a group in one context, and the types that classes belong to."""

    base: Floats
    """[types, local states]: distinct rows of default classes."""
    extra: Floats
    """[types, local states]: rows of other classes that are equal to none of these."""
    type_of: Indices
    """[classes]: base types first, then extra types."""


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
        self.regimes = tuple(_RegimesOfGroup(parts, local) for local in self.locals)
        """By group the rows of its classes in every context."""
        self.moves: tuple[Move, ...] = tuple(self._all_moves())
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
        return _BYTES_PER_PAIR * self.n_pairs + 8 * (
            chance + self._n_rows * self.shape[-1] + 8 * self.n_states
        )

    @property
    def predicted_seconds(self) -> float:
        """Time of a sweep."""
        seconds = _SECONDS_PER_PAIR * self.n_pairs * (1 + self.shape[-1] // 2)
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

    # ---- moves ----

    def _all_moves(self) -> Iterator[Move]:
        parts = self.parts
        for common in itertools.product(*(range(parts.size(v)) for v in parts.common_actions)):
            modes = dict(zip(parts.common_actions, common, strict=True))
            allotments = []
            for local in self.locals:
                way = 0
                if local.selector is not None:
                    mode = parts.modes[local.selector][modes[local.selector]]
                    way = mode.kind + 1 if mode.group == local.number else 0
                allotments.append(list(_allotments(parts, local, way)))
            for chosen in itertools.product(*allotments):
                move = Move(common, chosen)
                if _within_caps(parts, self.locals, move):
                    yield move

    # ---- pairs ----

    def _list_pairs(self) -> None:
        values = PairValues(self)
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


class PredictedCost(NamedTuple):
    """What a plan on counts is predicted to take."""

    states: int
    memory: int
    """In bytes."""
    seconds: float
    """Per sweep."""


def refuse_many_counts(n_counts: int) -> None:
    """Raise TooLarge if there are too many counts to list."""
    if n_counts > MAX_SIZE:
        raise TooLarge(
            f"counts have {describe_count(n_counts)} states; at most {describe_count(MAX_SIZE)}",
            8 * n_counts,
            8 * MAX_SIZE,
        )


def predicted_cost(parts: Exchangeable) -> PredictedCost:
    """Return the predicted cost of a quotient, without listing its pairs.

    Each regime of a group has a chance step for every way in which parts with rows of their own may
    act. Raise TooLarge if there are too many counts, or if the rows of a part depend on too much.
    """
    common = count([parts.model.structure.all_sizes[v] for v in parts.common_states])
    locals_ = [LocalSpace(parts, g) for g in range(len(parts.groups))]
    states = common * math.prod(local.n_counts for local in locals_)
    refuse_many_counts(states)
    pairs = predicted_pair_bytes(parts)
    entries, seconds = 0.0, _SECONDS_PER_PAIR * pairs / _BYTES_PER_PAIR
    for local in locals_:
        inner = max(1.0, states / local.n_counts / 4)
        for regime in _RegimesOfGroup(parts, local).regimes:
            chance = Chance(regime.base, local.n_parts)
            steps = _chance_steps(parts, local, len(regime.extra))
            entries += (chance.entries + local.n_counts * steps) * inner
            seconds += chance.seconds * steps * inner
    return PredictedCost(states, pairs + int(8 * entries), seconds)


def _chance_steps(parts: Exchangeable, local: LocalSpace, n_extra: int) -> int:
    """Return how many multisets of parts with rows of their own may act at once."""
    own = min(_most_active(parts, local), local.n_parts) if local.n_actions > 1 else 0
    addressed = 1 + n_extra if local.ways else 1
    return n_compositions(own, n_extra + 1) * addressed


def predicted_pair_bytes(parts: Exchangeable) -> int:
    """Return the memory that the pairs of states and moves need, without listing them."""
    pairs = count([parts.model.structure.all_sizes[v] for v in parts.common_states])
    for v in parts.common_actions:
        pairs *= parts.size(v)
    for g in range(len(parts.groups)):
        local = LocalSpace(parts, g)
        other = local.n_states * (local.n_actions - 1)
        most = min(_most_active(parts, local), local.n_parts)
        of_group = 0
        for acting in range(most + 1 if other else 1):
            of_group += n_compositions(acting, other) * n_compositions(
                local.n_parts - acting, local.n_states
            )
        pairs *= of_group
    return _BYTES_PER_PAIR * pairs


def _most_active(parts: Exchangeable, local: LocalSpace) -> int:
    """Return a bound on the parts of a group with another than the default action.

    A cap bounds them only if its idle values are the default action: those of two caps may differ.
    """
    default = {slot: int(local.value(slot)[local.defaults[0]]) for slot in local.action_slots}
    most = local.n_parts
    for cap in parts.caps:
        if default == {slot: idle for g, slot, idle in cap.of_parts if g == local.number}:
            most = min(most, cap.most)
    return most


def _allotments(parts: Exchangeable, local: LocalSpace, way: int) -> Iterator[Allotment]:
    """Yield the allotments of a group; `way` is 1 + the way in which one part is addressed."""
    others = [
        local.number_of(j, v)
        for j in range(local.n_states)
        for v in range(local.n_actions)
        if v != local.default_action
    ]
    most = _most_active(parts, local) if others else 0
    addressed: list[tuple[int, ...]] = [()]
    if way:
        addressed = [
            (local.number_of(j, v, way),)
            for j in range(local.n_states)
            for v in range(local.n_actions)
        ]
    for extra in addressed:
        # The last bin are the parts that do nothing else.
        for row in compositions(min(most, local.n_parts - len(extra)), len(others) + 1):
            used = [(c, int(n)) for c, n in zip(others, row[:-1], strict=True) if n]
            yield Allotment(
                (*(c for c, _ in used), *extra), (*(n for _, n in used), *(1 for _ in extra))
            )


def _within_caps(parts: Exchangeable, locals_: Sequence[LocalSpace], move: Move) -> bool:
    """Return whether a move respects all caps; the default action of a part is idle."""
    values = dict(zip(parts.common_actions, move.common, strict=True))
    for cap in parts.caps:
        active = sum(values[v] != idle for v, idle in cap.common)
        for g, slot, idle in cap.of_parts:
            local, allotment = locals_[g], move.allotments[g]
            value = local.value(slot)
            default = int(value[local.defaults[0]]) != idle
            active += local.n_parts * default
            for c, number in zip(allotment.classes, allotment.counts, strict=True):
                active += number * (int(value[c] != idle) - default)
        if active > cap.most:
            return False
    return True


def common_transitions(parts: Exchangeable) -> list[CommonFactor]:
    """Return the transition factors of the common variables, in their order."""
    factors = [f for f in parts.common_factors if f.kind == TRANSITION]
    return sorted(factors, key=lambda factor: factor.number)


class _RegimesOfGroup:
    """The rows of a group in all contexts; contexts with equal rows are one regime."""

    def __init__(self, parts: Exchangeable, local: LocalSpace) -> None:
        forms = [f for f in parts.part_factors[local.number] if f.kind == TRANSITION]
        contexts = [_Context(parts, local, form) for form in forms]
        contexts.sort(key=lambda context: context.form.number)
        self.shared = tuple(sorted({v for context in contexts for v in context.shared}))
        self.sizes = tuple(parts.size(v) for v in self.shared)
        if count(self.sizes) > MOST_CONTEXTS:
            raise TooLarge(
                f"the rows of a part depend on {describe_count(count(self.sizes))} joint values of "
                f"what is common; at most {MOST_CONTEXTS}",
                count(self.sizes),
                MOST_CONTEXTS,
            )
        self.regimes: list[_Regime] = []
        known: dict[bytes, int] = {}
        numbers = []
        for values in itertools.product(*map(range, self.sizes)):
            at = dict(zip(self.shared, values, strict=True))
            rows = np.ones((local.n_classes, 1))
            for context in contexts:
                factor = context.table[tuple(at[v] for v in context.shared)]
                rows = (rows[:, :, None] * factor[:, None, :]).reshape(local.n_classes, -1)
            number = known.setdefault(rows.tobytes(), len(known))
            if number == len(self.regimes):
                self.regimes.append(_regime(rows, local))
            numbers.append(number)
        self._number = np.array(numbers, dtype=np.int64)

    def numbers(self, values: PairValues) -> Indices:
        """Return the regime of each pair."""
        return self._number[values.index(self.shared, self.sizes)]


def _regime(rows: Floats, local: LocalSpace) -> _Regime:
    base: dict[bytes, int] = {}
    for c in local.defaults:
        base.setdefault(rows[c].tobytes(), len(base))
    extra: dict[bytes, int] = {}
    type_of = np.zeros(local.n_classes, dtype=np.int64)
    for c in range(local.n_classes):
        mark = rows[c].tobytes()
        if mark in base:
            type_of[c] = base[mark]
        else:
            type_of[c] = len(base) + extra.setdefault(mark, len(extra))
    width = rows.shape[1]

    def stacked(marks: dict[bytes, int]) -> Floats:
        listed = [np.frombuffer(mark) for mark in marks]
        return np.array(listed).reshape(-1, width)

    return _Regime(stacked(base), stacked(extra), type_of)


class PairValues:
    """Everything that factors depend on, for the pairs of one move after another."""

    def __init__(self, quotient: Quotient) -> None:
        self.quotient = quotient
        parts = self.parts = quotient.parts
        self.reward_forms = [
            (local, _Context(parts, local, form))
            for local in quotient.locals
            for form in parts.part_factors[local.number]
            if form.kind == REWARD
        ]
        self.forbidden_forms = [
            (local, _Context(parts, local, form))
            for local in quotient.locals
            for form in parts.part_factors[local.number]
            if form.kind == FORBIDDEN
        ]

    def start(self, move: Move) -> Indices:
        """Take a move, and return the states in which there are parts enough for it."""
        q = self.quotient
        possible = np.ones(q.n_states, dtype=np.bool_)
        acting = []
        for local, allotment, counts in zip(q.locals, move.allotments, q.space.counts, strict=True):
            by_state = np.zeros(local.n_states, dtype=np.int64)
            for c, number in zip(allotment.classes, allotment.counts, strict=True):
                by_state[local.state[c]] += number
            acting.append(by_state)
            for j in np.flatnonzero(by_state):
                possible &= counts[:, j] >= by_state[j]
        self.states = np.flatnonzero(possible)
        self.present: list[list[int]] = []
        self.counts: list[dict[int, Indices]] = []
        for local, allotment, by_state, counts in zip(
            q.locals, move.allotments, acting, q.space.counts, strict=True
        ):
            of_class = {
                int(local.defaults[j]): counts[self.states, j] - by_state[j]
                for j in range(local.n_states)
            }
            for c, number in zip(allotment.classes, allotment.counts, strict=True):
                of_class[c] = np.full(len(self.states), number)
            self.present.append(list(of_class))
            self.counts.append(of_class)
        self._common_actions = dict(zip(self.parts.common_actions, move.common, strict=True))
        self._known: dict[int, Indices] = {}
        self._ranks: dict[object, Indices] = {}
        self._find_forbidden()
        return self.states

    def restrict(self, kept: Mask) -> Indices:
        """Keep some of the pairs, and return their states."""
        self.states = self.states[kept]
        self.counts = [{c: n[kept] for c, n in of.items()} for of in self.counts]
        self._known, self._ranks = {}, {}
        return self.states

    def value(self, v: int) -> Indices:
        """Return the value of a shared variable in every pair."""
        if v not in self._known:
            n = len(self.states)
            if v in self._common_actions:
                self._known[v] = np.full(n, self._common_actions[v])
            elif v in self.parts.common_states:
                column = self.parts.common_states.index(v)
                self._known[v] = self.quotient.space.common[self.states, column]
            else:
                self._known[v] = self._sum(v)
        return self._known[v]

    def _sum(self, v: int) -> Indices:
        total = next(s for s in self.parts.sums if s.number == v)
        value = np.zeros(len(self.states), dtype=np.int64)
        for step in total.steps:
            if step.block is None:
                value = step.table[value, self.value(step.variable)]
            else:
                value = step.table[value, self.rank(step.block, step.classes)]
        return value

    def rank(self, block: tuple[int, tuple[int, ...]], classes: Indices | None = None) -> Indices:
        """Return the rank of the counts of the joint values of some slots, or of their classes."""
        key = (block, None if classes is None else classes.tobytes())
        if key not in self._ranks:
            g, slots = block
            local = self.quotient.locals[g]
            sizes = [int(local.value(slot).max()) + 1 for slot in slots]
            joint = np.zeros(local.n_classes, dtype=np.int64)
            for slot, size in zip(slots, sizes, strict=True):
                joint = joint * size + local.value(slot)
            if classes is not None:
                joint = classes[joint]
            bins = math.prod(sizes) if classes is None else int(classes.max()) + 1
            columns = [np.zeros(len(self.states), dtype=np.int64) for _ in range(bins)]
            for c in self.present[g]:
                columns[joint[c]] = columns[joint[c]] + self.counts[g][c]
            self._ranks[key] = composition_rank(columns, local.n_parts)
        return self._ranks[key]

    def index(self, shared: Sequence[int], sizes: Sequence[int]) -> Indices:
        """Return the joint index of shared variables in every pair."""
        index = np.zeros(len(self.states), dtype=np.int64)
        for v, size in zip(shared, sizes, strict=True):
            index = index * size + self.value(v)
        return index

    def common_rows(self, factor: CommonFactor) -> Indices:
        """Return the row of a common factor in every pair."""
        index = self.index(factor.shared, factor.table.shape[: len(factor.shared)])
        for block, size in zip(
            factor.blocks, factor.table.shape[len(factor.shared) : -1], strict=True
        ):
            index = index * size + self.rank(block)
        return index

    def _find_forbidden(self) -> None:
        forbidden = np.zeros(len(self.states), dtype=np.bool_)
        for factor in self.parts.common_factors:
            if factor.kind == FORBIDDEN:
                forbidden |= factor.table.reshape(-1)[self.common_rows(factor)]
        for local, context in self.forbidden_forms:
            table = context.table.reshape(-1, local.n_classes)
            row = self.index(context.shared, context.sizes)
            for c in self.present[local.number]:
                forbidden |= table[row, c] & (self.counts[local.number][c] > 0)
        self.forbidden = forbidden

    def rewards(self) -> Floats:
        """Return the reward of every pair."""
        rewards = np.zeros(len(self.states))
        for factor in self.parts.common_factors:
            if factor.kind == REWARD:
                rewards += factor.table.reshape(-1)[self.common_rows(factor)]
        for local, context in self.reward_forms:
            table = context.table.reshape(-1, local.n_classes)
            row = self.index(context.shared, context.sizes)
            for c in self.present[local.number]:
                rewards += self.counts[local.number][c] * table[row, c]
        return rewards

    def laws(self) -> tuple[list[tuple[int, ...]], Indices]:
        """Return the different laws of the next common values, each as the rows of its factors, and
        the place of that of every pair among them."""
        columns = [self.common_rows(factor) for factor in common_transitions(self.parts)]
        # Numbered again after every factor: the number of all combinations may be beyond 64 bits.
        place = np.zeros(len(self.states), dtype=np.int64)
        first = place[:0]
        for rows in columns:
            joint = place * (int(rows.max(initial=0)) + 1) + rows
            _, first, inverse = np.unique(joint, return_index=True, return_inverse=True)
            place = inverse.reshape(-1)
        return list(zip(*(rows[first].tolist() for rows in columns), strict=True)), place
