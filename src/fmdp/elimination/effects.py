"""The backup of a model whose actions act first: the best of all joint actions, exactly, at about
the price of one.

    U(y) = after(y) + sum_{s'} prod_i P_i(s'_i | y[Z_i]) h(s')                  chance: backup.py
    (L h)(s) = before(s) + max over allowed a of sum_c cost_c(s_c, a_c) + setup(a) + U(f(s, a))

The maximum is taken one component at a time (decomposition.py says when, effect_kernels.py how):
costs are sums over components and f does not mix them, so with Z_C = U and

    Z_c(y_1..y_{c-1}, s_c..s_C) = max over a_c of cost_c(s_c, a_c) + Z_{c+1}(.., f_c(s_c, a_c), ..)

Z_1 is the maximum over all. A cap on how many are at work, and whether anything is done, are one
more axis of Z (the layers), along which Z_c(q) is the best that leads to layer q; the last maximum
is over the layers, each with its set-up reward, of whichever sign.

Guarantee: equal to enumeration up to rounding. On its way a number is rounded as in chance, once
for each component where a cost is added, and where set-up and before are; costs and before are
sums of at most all reward factors. All of these are sums of numbers of at most |h| + |rewards|,
which is what `rounding_allowance` charges for each. With nested targets U is the nested backup over
y, in the order of elimination of the structure of chance.

Tie rule: a joint action is tied if its value is within the slack of the best, as everywhere.
Components decide in the order of their first action variables; each takes one of its local actions
with which some tied joint action goes on: the lowest (`first`), the highest (`last`), or that whose
hash of (tie seed, state, component, local action) is the lowest. Where components do not interleave
their action variables, `first` and `last` are the lowest and highest tied joint action, as
enumeration has them; `random` is another draw among the same tied actions.

Cost of a sweep: that of chance for one action, and for each component one pass over layers x
states x its local actions. Memory: chance, and a vector for each layer; to find the actions, one
more for each layer and component while the limit allows it, else the passes are run again.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory
from fmdp.elimination import effect_kernels as ek
from fmdp.elimination import kernels, ties
from fmdp.elimination.backup import (
    _SHORT_SECONDS,
    Backup,
    Share,
    Vector,
    check_clock,
    iterate_by_sweeps,
    usable_cores,
)
from fmdp.elimination.classes import Look, nothing
from fmdp.elimination.decomposition import Component, Decomposition
from fmdp.elimination.kernels import Pace
from fmdp.elimination.layout import PARALLEL_STATES, VECTORS, Layout, choose_layout
from fmdp.model import FactoredMDP, OptimisticTables
from fmdp.model.spaces import strides

Index = NDArray[np.int64]

_STEP_SECONDS = 8e-10  # one choice of one component in one state and layer
_CACHED_CELLS = 1 << 15  # of the tensor, that are worked on while they are in cache
_MOST_KEPT_BYTES = 1 << 29  # of the maxima that are kept while actions are found
_DECIDING = 5  # vectors while actions are found: chance, places, layers, payments, C order


def predicted_bytes(parts: Decomposition, layout: Layout, threads: int) -> int:
    """What a backup by components needs, with the fewest vectors."""
    vectors = (parts.n_layers if parts.n_layers > 1 else 0) + bool(parts.before) + _DECIDING
    deciding = parts.n_layers
    fibres = sum(parts.structure.n_states // own.n_states for own in parts.components)
    return layout.memory(threads) + 8 * ((vectors + deciding) * parts.structure.n_states + fibres)


def choice_seconds(parts: Decomposition, threads: int) -> float:
    """Return the predicted time of the maxima of a sweep."""
    choices = sum(own.allowed.sum() / own.n_states for own in parts.components)
    cells = parts.n_layers * parts.structure.n_states
    return float(_STEP_SECONDS * cells * choices / threads)


def chance_layout(
    parts: Decomposition,
    *,
    nested: bool = False,
    threads: int,
    memory_limit: int,
    look: Look = nothing,
) -> Layout:
    """How chance after the action is eliminated."""
    return choose_layout(
        parts.after, nested=nested, threads=threads, memory_limit=memory_limit, look=look
    )


class EffectsBackup(Backup):
    """As `Backup`, for structures whose effects decompose; one object serves all their tables.

    Only what runs over joint actions is its own; vectors are in the elimination order of chance.
    """

    def __init__(
        self,
        parts: Decomposition,
        *,
        nested: bool = False,
        shape: int = kernels.FREE,
        worst: bool = False,
        threads: int | None = None,
        memory_limit: int | None = None,
        deadline: float | None = None,
    ) -> None:
        """All as in `Backup`."""
        # Not super().__init__: it would enumerate the joint actions.
        structure = self.structure = parts.structure
        self.parts = parts
        self.shape = shape = kernels.BOX if worst and shape == kernels.FREE else shape
        self.nested = nested = nested or shape != kernels.FREE
        cores = threads if threads is not None else usable_cores()
        self.threads = cores if structure.n_states >= PARALLEL_STATES else 1
        limit = memory_limit if memory_limit is not None else available_memory() // 2
        self.memory_limit = limit
        if (VECTORS + _DECIDING) * 8 * structure.n_states > limit:
            self._refuse((VECTORS + _DECIDING) * 8 * structure.n_states, limit)
        look = partial(check_clock, deadline)
        self.layout = chance_layout(
            parts, nested=nested, threads=self.threads, memory_limit=limit, look=look
        )
        caps = 8 * self.layout.table_entries if shape == kernels.BOX else 0
        self.predicted_bytes = predicted_bytes(parts, self.layout, self.threads) + caps
        if self.predicted_bytes > limit:
            self._refuse(self.predicted_bytes, limit)
        self._spare = min(limit - self.predicted_bytes, _MOST_KEPT_BYTES)
        self.chance = Backup(
            parts.after,
            nested=nested,
            shape=shape,
            worst=worst,
            threads=threads,
            memory_limit=limit,
            layout=self.layout,
            deadline=deadline,
        )
        self.predicted_seconds = self.chance.predicted_seconds + choice_seconds(parts, self.threads)
        self.roundings = self.chance.roundings + len(parts.components) + structure.l + 4
        self.deadline: float | None = None
        self._stop = np.zeros(1, dtype=np.int64)
        self.extremes = np.zeros(3)
        self._in_order = self.chance._in_order
        self._internal_shape = self.chance._internal_shape
        self._inverse = self.chance._inverse
        look()
        self._held = self._new_tables()
        self._groups = self._grouped()
        many = parts.n_layers > 1
        self._layers = np.empty(parts.n_layers * structure.n_states if many else 0)
        self._followed: tuple[Index, Index, Vector, Vector] | None = None

    # ---- tables ---------------------------------------------------------------------------------

    def _new_tables(self) -> ek.Tables:
        """Everything but what is paid, which `load` fills in."""
        parts, s = self.parts, self.structure
        order = self.layout.order
        steps = dict(zip(order, strides(self._internal_shape), strict=True))
        joint_steps = strides(s.action_sizes)
        shapes = np.zeros((len(parts.components), ek.N_SHAPE_FIELDS), dtype=np.int64)
        held: defaultdict[str, list[Index]] = defaultdict(list)
        n_cells = n_bases = n_starts = n_choices = n_pairs = n_axes = 0
        for c, own in enumerate(parts.components):
            effect = own.effect
            values = np.stack(
                np.unravel_index(np.arange(own.n_states), s.scope_sizes(effect.states)), axis=1
            )
            cells = values @ np.array([steps[v] for v in effect.states], dtype=np.int64)
            inner, bases = self._fibres(effect.states, steps)
            pairs = np.flatnonzero(own.allowed)  # local states slowest
            counts = own.allowed.sum(axis=1)
            shapes[c, ek.STATES], shapes[c, ek.ACTIONS] = own.n_states, own.n_actions
            shapes[c, ek.INNER], shapes[c, ek.FIBRES] = inner, self.n_states // own.n_states
            shapes[c, ek.CELL], shapes[c, ek.START] = n_cells, n_starts
            shapes[c, ek.BASE] = n_bases if len(bases) else -1
            shapes[c, ek.PAIR] = n_pairs
            shapes[c, ek.S_AXIS], shapes[c, ek.S_AXES] = n_axes, len(effect.states)
            shapes[c, ek.A_AXIS] = n_axes + len(effect.states)
            shapes[c, ek.A_AXES] = len(effect.actions)
            held["cells"].append(cells)
            held["bases"].append(bases)
            held["starts"].append(n_choices + np.concatenate([[0], np.cumsum(counts)]))
            held["sources"].append(effect.outcome[pairs])
            held["choices"].append(pairs % own.n_actions)
            held["kinds"].append(own.kinds[pairs % own.n_actions])
            held["outcomes"].append(effect.outcome)
            held["pair_kinds"].append(np.tile(own.kinds, own.n_states))
            held["joint"].append(np.tile(own.joint, own.n_states))
            sizes = s.scope_sizes(effect.states), s.scope_sizes(effect.actions)
            at = [steps[v] for v in effect.states], [joint_steps[v - s.m] for v in effect.actions]
            for size, step in zip(sizes, at, strict=True):
                held["axes"].append(np.stack([step, size, strides(size)], axis=1))
            n_cells += own.n_states
            n_bases += len(bases)
            n_starts += own.n_states + 1
            n_choices += len(pairs)
            n_pairs += own.n_states * own.n_actions
            n_axes += len(effect.scope)
        whole = {name: np.concatenate(parts_of) for name, parts_of in held.items()}
        self._pairs = [
            np.flatnonzero(own.allowed.reshape(-1)) + start
            for own, start in zip(parts.components, shapes[:, ek.PAIR], strict=True)
        ]
        return ek.Tables(
            shapes=shapes,
            costs=np.zeros(n_choices),
            pays=np.zeros(n_pairs),
            following=parts.following,
            joined=parts.joined,
            live=parts.live,
            setups=np.zeros(parts.n_layers),
            setup=np.zeros(2),
            done=np.array([done for _, done in parts.kinds], dtype=np.int64),
            before=np.zeros(self.n_states if parts.before else 0),
            **{name: np.ascontiguousarray(own, dtype=np.int64) for name, own in whole.items()},
        )

    def _fibres(self, states: tuple[int, ...], steps: dict[int, int]) -> tuple[int, Index]:
        """How long the runs beside a component are, and where each begins; nothing where its
        variables are next to each other in the tensor and runs follow each other."""
        order, sizes = self.layout.order, self.structure.state_sizes
        places = sorted(order.index(v) for v in states)
        inner = steps[order[places[-1]]]
        if places == list(range(places[0], places[-1] + 1)):
            return inner, np.zeros(0, dtype=np.int64)
        bases = np.zeros(1, dtype=np.int64)
        for v in order[: places[-1]]:
            if v not in states:
                values = np.arange(sizes[v], dtype=np.int64) * steps[v]
                bases = (bases[:, None] + values).reshape(-1)
        return inner, bases

    def load(self, tables: FactoredMDP | OptimisticTables) -> None:
        """Put in the tables of a model of this structure."""
        parts = self.parts
        self._followed = None
        rewards = [tables.rewards[k][rows] for k, rows in parts.after_rewards]
        if isinstance(tables, OptimisticTables):
            if not self.nested:
                raise RuntimeError("optimistic tables need a backup prepared with nested=True")

            def after(held: tuple[Vector, ...]) -> list[Vector]:
                return [own[rows] for own, rows in zip(held, parts.rows, strict=True)]

            others = (tables.upper, tables.centre, tables.radius)
            self.chance.load(
                OptimisticTables.trusted(
                    parts.after,
                    after(tables.lower),
                    after(tables.free),
                    rewards,
                    *(None if held is None else after(held) for held in others),
                )
            )
        else:
            laws = [own[rows] for own, rows in zip(tables.transitions, parts.rows, strict=True)]
            self.chance.load(FactoredMDP.trusted(parts.after, laws, rewards))
        own_tables = self._held
        for c, component in enumerate(parts.components):
            self._fill_costs(own_tables, c, component, tables)
        if parts.before:
            self._fill_before(own_tables.before, tables)
        for busy in range(2):
            paid = [tables.rewards[k][row * busy] for k, row in parts.setups]
            own_tables.setup[busy] = sum(paid)
        for q, (_, busy) in enumerate(parts.layers):
            own_tables.setups[q] = own_tables.setup[busy]

    def _fill_costs(
        self, own: ek.Tables, c: int, component: Component, tables: FactoredMDP | OptimisticTables
    ) -> None:
        start = int(own.shapes[c, ek.PAIR])
        pays = own.pays[start : start + component.n_states * component.n_actions]
        pays[:] = 0.0
        for k, rows in component.costs:
            pays += tables.rewards[k][rows]
        first = int(own.starts[own.shapes[c, ek.START]])
        own.costs[first : first + len(self._pairs[c])] = own.pays[self._pairs[c]]

    def _fill_before(self, out: Vector, tables: FactoredMDP | OptimisticTables) -> None:
        """The rewards of the state before the action, summed, in elimination order."""
        structure, order = self.structure, self.layout.order
        cube = out.reshape(self._internal_shape)
        cube[...] = 0.0
        for k in self.parts.before:
            scope = structure.reward_scopes[k]
            table = tables.rewards[k].reshape(structure.scope_sizes(scope))
            axes = sorted(range(len(scope)), key=lambda axis: order.index(scope[axis]))
            shape = [structure.state_sizes[v] if v in scope else 1 for v in order]
            cube += table.transpose(axes).reshape(shape)

    # ---- operators in elimination order ---------------------------------------------------------

    def _chance(self, h: Vector, out: Vector) -> None:
        self.chance.deadline = self.deadline
        self.chance.sweep(h, out)

    def _maximise(self, tensor: Vector, first: int, end: int) -> None:
        """The maxima over components end - 1, ..., first, in place."""
        tables: tuple[Any, ...] = tuple(self._held)
        n, stop = self.n_states, self._stop

        def work(part: Share, low: int, high: int, blocks: int) -> None:
            ek.maximise(tensor, n, tables, low, high, part[1], part[2], blocks, stop)

        if self.threads == 1 and self.predicted_seconds < _SHORT_SECONDS and n <= _CACHED_CELLS:
            stop[0] = 0
            if end > first:
                work((0, 0, 1), first, end, 1)
            return
        for low, high, blocks in self._groups:
            low, high = max(low, first), min(high, end)
            if low >= high:
                continue
            pieces = blocks or int(self._held.shapes[low, ek.FIBRES])
            self.over(pieces, partial(work, low=low, high=high, blocks=blocks))

    def _grouped(self) -> list[tuple[int, int, int]]:
        """(first, end, blocks) of components that are worked on together, in order of work.

        A block is all the values of the fastest axes; it has to hold the axes of the components and
        to fit into the cache. 0 blocks: one component by itself.
        """
        order, shape = self.layout.order, self._internal_shape
        most = _CACHED_CELLS // self.parts.n_layers
        groups: list[tuple[int, int, int]] = []
        for c in range(len(self.parts.components) - 1, -1, -1):
            own = min(order.index(v) for v in self.parts.components[c].effect.states)
            volume = math.prod(shape[own:])
            if volume > most:
                groups.append((c, c + 1, 0))
                continue
            blocks = self.n_states // volume
            if groups and groups[-1][2]:
                _, high, other = groups.pop()
                groups.append((c, high, min(blocks, other)))
            else:
                groups.append((c, c + 1, blocks))
        return groups

    def _best(self, tensor: Vector, out: Vector) -> None:
        """out <- the best over all joint actions where `tensor` begins with chance's worth."""
        self._maximise(tensor, 0, len(self.parts.components))
        tables: tuple[Any, ...] = tuple(self._held)
        n = self.n_states
        self.over(n, lambda part: ek.collect(tensor, n, tables, out, part[1], part[2]))

    def _tensor(self, out: Vector) -> Vector:
        return self._layers if self.parts.n_layers > 1 else out

    def sweep(self, h: Vector, out: Vector) -> None:
        """out <- L h (no discount), both in elimination order."""
        tensor = self._tensor(out)
        self._chance(h, tensor[: self.n_states])
        self._best(tensor, out)

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        """As `Backup.iterate`, sweep by sweep."""
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def lowest(self, h: Vector, out: Vector) -> None:
        """out <- min over joint actions (and targets) of R + P h, both in elimination order."""
        # As in `Backup`: the maximum of everything negated.
        tensor = self._tensor(out)
        chance = tensor[: self.n_states]
        self.chance.deadline = self.deadline
        self.chance.lowest(h, chance)
        np.negative(chance, out=chance)
        tables = self._held
        paid = (tables.costs, tables.before, tables.setups)
        for own in paid:
            np.negative(own, out=own)
        try:
            self._best(tensor, out)
        finally:
            for own in paid:
                np.negative(own, out=own)
        np.negative(out, out=out)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> NDArray[np.int64]:
        """Action indices in C order; h and value = L h in elimination order.

        Actions within `slack` of the best are tied.  `value` becomes what the chosen are worth.
        """
        n, choice = self.n_states, (slack, ties.rule_code(ties_rule), tie_seed)
        tables: tuple[Any, ...] = tuple(self._held)
        chance, pays = np.empty(n), np.zeros(n)
        self._chance(h, chance)
        canonical = self._c_order()
        places = np.arange(n, dtype=np.int64)
        layers, actions = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        found = (places, layers, actions, pays)
        for c, tensor in enumerate(self._stages(chance)):
            self.over(
                int(self._held.shapes[c, ek.FIBRES]),
                lambda part, c=c, tensor=tensor: ek.decide(  # type: ignore[misc]
                    *(tensor, n, tables, c, value, choice, canonical, found, part[1], part[2])
                ),
            )
        self.over(n, lambda part: ek.settle(tables, layers, pays, part[1], part[2]))
        self.over(n, lambda part: ek.gather(chance, places, pays, value, part[1], part[2]))
        return actions

    def _stages(self, chance: Vector) -> Iterator[Vector]:
        """For c = 0, 1, ...: the maxima over the components after c."""
        n_components, n = len(self.parts.components), self.n_states
        tensor = np.empty(self.parts.n_layers * n)
        tensor[:n] = chance
        if 8 * (n_components - 1) * len(tensor) <= self._spare:
            kept = [tensor]
            for c in range(n_components - 1, 0, -1):
                kept.append(kept[-1].copy())
                self._maximise(kept[-1], c, c + 1)
            while kept:
                yield kept.pop()
            return
        for c in range(n_components):
            tensor[:n] = chance
            self._maximise(tensor, c + 1, n_components)
            yield tensor

    def _c_order(self) -> Index:
        """Where each state stands in C order; empty where the orders are the same."""
        if self._in_order:
            return np.zeros(0, dtype=np.int64)
        cube = np.arange(self.n_states, dtype=np.int64).reshape(self.structure.state_sizes)
        return np.array(cube.transpose(self.layout.order), order="C").reshape(-1)

    def _follow(self, actions: NDArray[np.int64], places: Index, pays: Vector) -> None:
        tables: tuple[Any, ...] = tuple(self._held)
        canonical = self._c_order()
        self.over(
            self.n_states,
            lambda part: ek.follow(tables, canonical, actions, places, pays, part[1], part[2]),
        )

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """out <- R_pi + P_pi h, vectors in elimination order, actions in C order."""
        n, taken = self.n_states, np.asarray(actions, dtype=np.int64)
        if self._followed is None or not np.array_equal(self._followed[0], taken):
            # A policy is evaluated in many sweeps: where it leads is found in the first.
            places, pays = np.empty(n, dtype=np.int64), np.empty(n)
            self._followed = None
            self._follow(taken, places, pays)
            self._followed = (taken.copy(), places, pays, np.empty(n))
        _, places, pays, chance = self._followed
        self._chance(h, chance)
        self.over(n, lambda part: ek.gather(chance, places, pays, out, part[1], part[2]))

    def action_values(self, h: Vector, discount: float = 1.0) -> Vector:
        """R + discount * P h for every state and joint action, -inf where it is not allowed:
        [S, A]."""
        source = self.to_internal(h)
        source *= discount
        chance, pays = np.empty_like(source), np.empty_like(source)
        places = np.empty(self.n_states, dtype=np.int64)
        self._chance(source, chance)
        out = np.empty((self.n_states, self.structure.n_actions))
        for action in range(self.structure.n_actions):
            self._follow(np.array([action], dtype=np.int64), places, pays)
            out[:, action] = self.to_canonical(pays + chance[places])
        if self.structure.constraints:
            out[~self.structure.allowed_mask()] = -np.inf
        return out
