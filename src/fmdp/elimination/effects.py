"""The backup of a model with effects: an exact maximum over all joint actions by components.

    U(y) = after(y) + sum_{s'} prod_i P_i(s'_i | y[Z_i]) h(s')             chance: enumeration.py
    (L h)(s) = before(s) + max over allowed a of sum_c cost_c(s_c, a_c) + setup(a) + U(f(s, a))

Costs are sums over components and f does not mix components. So with Z_{C+1} = U and

    Z_c(y_1..y_{c-1}, s_c..s_C) = max over a_c of cost_c(s_c, a_c) + Z_{c+1}(.., f_c(s_c, a_c), ..)

Z_1 is the maximum over all joint actions (decomposition.py says when, effect_kernels.py how). A cap
on busy variables and the flag "anything done" are one more axis of Z, the layers: Z_c(q) is the
best value that leads to layer q. The last maximum is over the layers, each with its set-up reward
of either sign.

Guarantee: equal to enumeration up to rounding. A number is rounded as in chance, once per component
where a cost is added, and where set-up and before are added. Costs and before are sums of at most
all reward factors. All of these are sums of numbers of at most |h| + |rewards|, which is what
`rounding_allowance` charges for each. With nested targets U is the nested backup over y, in the
elimination order of the structure of chance.

Tie rule: a joint action is tied if its value is within the slack of the best, as everywhere.
Components decide in the order of their first action variables. Each takes a local action that some
tied joint action continues with: the lowest (`first`), the highest (`last`), or the one with the
lowest hash of (tie seed, state, component, local action). If components do not interleave their
action variables, `first` and `last` are the lowest and highest tied joint action, as with
enumeration; `random` is another draw among the same tied actions.

Cost of a sweep: chance for one action, and per component one pass over layers x states x local
actions. Memory: chance, and one vector per layer. To find the actions, one more per layer and
component if the limit allows it; otherwise the passes are repeated.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination import effect_kernels as ek
from fmdp.elimination import kernels, ties, tuning
from fmdp.elimination.decomposition import Component, Decomposition
from fmdp.elimination.enumeration import Backup, Vector, iterate_by_sweeps
from fmdp.elimination.kernels import Pace
from fmdp.elimination.layout import Layout
from fmdp.elimination.threads import Share
from fmdp.model import FactoredMDP, OptimisticTables
from fmdp.model.spaces import all_assignments, strides

Index = NDArray[np.int64]


def program_bytes(parts: Decomposition, layout: Layout, threads: int) -> int:
    """Return the bytes of a backup by components while it sweeps."""
    return layout.memory(threads) + _bytes_beside_chance(parts)


def _bytes_beside_chance(parts: Decomposition) -> int:
    n_states, n_layers = parts.structure.n_states, parts.n_layers
    vectors = (n_layers if n_layers > 1 else 0) + bool(parts.before)
    fibres = sum(n_states // component.n_states for component in parts.components)
    return 8 * (vectors * n_states + fibres)


def decision_bytes(parts: Decomposition) -> int:
    """Return the bytes that choosing actions needs at least in addition."""
    return 8 * (tuning.DECISION_VECTORS + parts.n_layers) * parts.structure.n_states


def choice_seconds(parts: Decomposition, threads: int) -> float:
    """Return the predicted time of the maxima of one sweep."""
    choices = sum(component.allowed.sum() / component.n_states for component in parts.components)
    cells = parts.n_layers * parts.structure.n_states
    return float(tuning.CHOICE_SECONDS * cells * choices / threads)


class EffectsBackup(Backup):
    """A `Backup` of structures whose effects decompose; one object serves all their tables.
    Operators over joint actions are overridden. Vectors are in the elimination order of chance."""

    def __init__(
        self,
        parts: Decomposition,
        *,
        nested: bool = False,
        shape: int = kernels.FREE,
        worst: bool = False,
        threads: int | None = None,
        memory_limit: int | None = None,
        state_bytes: int = tuning.STATE_BYTES,
        preferred_bytes: tuple[int, ...] = (),
        deadline: Deadline = NEVER,
    ) -> None:
        """Prepare the backup of chance and the tables of the components; options as in `Backup`."""
        # Not super().__init__: it would enumerate the joint actions.
        structure, self.parts = parts.structure, parts
        self._configure(structure, nested, shape, worst, threads, memory_limit, state_bytes)
        self.require(self.vector_bytes + tuning.DECISION_VECTORS * 8 * structure.n_states)
        nested, shape, limit = self.nested, self.shape, self.memory_limit
        self.layout, _ = self._choose_layout(
            parts.after, preferred_bytes, _bytes_beside_chance(parts), None, deadline
        )
        caps = 8 * self.layout.table_entries if shape == kernels.BOX else 0
        self.decision_bytes = decision_bytes(parts)
        programs = program_bytes(parts, self.layout, self.threads) + caps
        self.predicted_bytes = programs + self.decision_bytes + self.vector_bytes
        self.require(self.predicted_bytes)
        kept = 8 * (len(parts.components) - 1) * parts.n_layers * structure.n_states
        self._keeps_stages = kept <= min(limit - self.predicted_bytes, tuning.MOST_KEPT_BYTES)
        if self._keeps_stages:
            self.decision_bytes += kept
            self.predicted_bytes += kept
        self.chance = Backup(
            parts.after,
            nested=nested,
            shape=shape,
            worst=worst,
            threads=threads,
            memory_limit=limit,
            state_bytes=state_bytes,
            layout=self.layout,
            deadline=deadline,
        )
        self.predicted_seconds = self.chance.predicted_seconds + choice_seconds(parts, self.threads)
        self.roundings = self.chance.roundings + len(parts.components) + structure.l + 4
        self._in_order = self.chance._in_order
        self._internal_shape = self.chance._internal_shape
        self._inverse = self.chance._inverse
        deadline.check()
        self._held = self._new_tables()
        self._groups = self._cache_groups()
        many = parts.n_layers > 1
        self._layers = np.empty(parts.n_layers * structure.n_states if many else 0)
        self._followed: tuple[Index, Index, Vector, Vector] | None = None

    # ---- tables ---------------------------------------------------------------------------------

    def _new_tables(self) -> ek.Tables:
        """Return the tables of the kernels without payments, which `load` fills in."""
        parts, s = self.parts, self.structure
        order = self.layout.order
        steps = dict(zip(order, strides(self._internal_shape), strict=True))
        joint_steps = strides(s.action_sizes)
        shapes = np.zeros((len(parts.components), ek.N_SHAPE_FIELDS), dtype=np.int64)
        columns: defaultdict[str, list[Index]] = defaultdict(list)
        n_cells = n_bases = n_starts = n_choices = n_pairs = n_axes = 0
        for c, component in enumerate(parts.components):
            effect = component.effect
            values = all_assignments(s.scope_sizes(effect.states))
            cells = values @ np.array([steps[v] for v in effect.states], dtype=np.int64)
            inner, bases = self._fibres(effect.states, steps)
            pairs = np.flatnonzero(component.allowed)  # local states slowest
            counts = component.allowed.sum(axis=1)
            shapes[c, ek.STATES], shapes[c, ek.ACTIONS] = component.n_states, component.n_actions
            shapes[c, ek.INNER], shapes[c, ek.FIBRES] = inner, self.n_states // component.n_states
            shapes[c, ek.CELL], shapes[c, ek.START] = n_cells, n_starts
            shapes[c, ek.BASE] = n_bases if len(bases) else -1
            shapes[c, ek.PAIR] = n_pairs
            shapes[c, ek.S_AXIS], shapes[c, ek.S_AXES] = n_axes, len(effect.states)
            shapes[c, ek.A_AXIS] = n_axes + len(effect.states)
            shapes[c, ek.A_AXES] = len(effect.actions)
            columns["cells"].append(cells)
            columns["bases"].append(bases)
            columns["starts"].append(n_choices + np.concatenate([[0], np.cumsum(counts)]))
            columns["sources"].append(effect.outcome[pairs])
            columns["choices"].append(pairs % component.n_actions)
            columns["kinds"].append(component.kinds[pairs % component.n_actions])
            columns["outcomes"].append(effect.outcome)
            columns["pair_kinds"].append(np.tile(component.kinds, component.n_states))
            columns["joint"].append(np.tile(component.joint, component.n_states))
            sizes = s.scope_sizes(effect.states), s.scope_sizes(effect.actions)
            steps_of = (
                [steps[v] for v in effect.states],
                [joint_steps[v - s.m] for v in effect.actions],
            )
            for size, step in zip(sizes, steps_of, strict=True):
                columns["axes"].append(np.stack([step, size, strides(size)], axis=1))
            n_cells += component.n_states
            n_bases += len(bases)
            n_starts += component.n_states + 1
            n_choices += len(pairs)
            n_pairs += component.n_states * component.n_actions
            n_axes += len(effect.scope)
        whole = {name: np.concatenate(arrays) for name, arrays in columns.items()}
        self._pairs = [
            np.flatnonzero(component.allowed.reshape(-1)) + start
            for component, start in zip(parts.components, shapes[:, ek.PAIR], strict=True)
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
            **{
                name: np.ascontiguousarray(component, dtype=np.int64)
                for name, component in whole.items()
            },
        )

    def _fibres(self, states: tuple[int, ...], steps: dict[int, int]) -> tuple[int, Index]:
        """Return the length of the runs beside a component, and where each run begins. The starts
        are empty if the component's variables are adjacent in the tensor, so that the runs follow
        each other."""
        order, sizes = self.layout.order, self.structure.state_sizes
        axes = sorted(order.index(v) for v in states)
        inner = steps[order[axes[-1]]]
        if axes == list(range(axes[0], axes[-1] + 1)):
            return inner, np.zeros(0, dtype=np.int64)
        bases = np.zeros(1, dtype=np.int64)
        for v in order[: axes[-1]]:
            if v not in states:
                values = np.arange(sizes[v], dtype=np.int64) * steps[v]
                bases = (bases[:, None] + values).reshape(-1)
        return inner, bases

    def load(self, tables: FactoredMDP | OptimisticTables) -> None:
        """Set the tables of a model of this structure."""
        parts = self.parts
        self._followed = None
        rewards = [tables.rewards[k][rows] for k, rows in parts.after_rewards]
        if isinstance(tables, OptimisticTables):
            if not self.nested:
                raise RuntimeError("optimistic tables need a backup prepared with nested=True")

            def after(factors: tuple[Vector, ...]) -> list[Vector]:
                return [table[rows] for table, rows in zip(factors, parts.rows, strict=True)]

            optional = (tables.upper, tables.centre, tables.radius)
            self.chance.load(
                OptimisticTables.trusted(
                    parts.after,
                    after(tables.lower),
                    after(tables.free),
                    rewards,
                    *(None if factors is None else after(factors) for factors in optional),
                    distance=tables.distance,
                )
            )
        else:
            pairs = zip(tables.transitions, parts.rows, strict=True)
            transitions = [table[rows] for table, rows in pairs]
            self.chance.load(FactoredMDP.trusted(parts.after, transitions, rewards))
        targets = self._held
        for c, component in enumerate(parts.components):
            self._fill_costs(targets, c, component, tables)
        if parts.before:
            self._fill_before(targets.before, tables)
        for busy in range(2):
            paid = [tables.rewards[k][row * busy] for k, row in parts.setups]
            targets.setup[busy] = sum(paid)
        for q, (_, busy) in enumerate(parts.layers):
            targets.setups[q] = targets.setup[busy]

    def _fill_costs(
        self,
        targets: ek.Tables,
        c: int,
        component: Component,
        tables: FactoredMDP | OptimisticTables,
    ) -> None:
        start = int(targets.shapes[c, ek.PAIR])
        pays = targets.pays[start : start + component.n_states * component.n_actions]
        pays[:] = 0.0
        for k, rows in component.costs:
            pays += tables.rewards[k][rows]
        first = int(targets.starts[targets.shapes[c, ek.START]])
        targets.costs[first : first + len(self._pairs[c])] = targets.pays[self._pairs[c]]

    def _fill_before(self, out: Vector, tables: FactoredMDP | OptimisticTables) -> None:
        """Sum the rewards of the state before the action, in elimination order."""
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
        """Maximise over components end - 1, ..., first, in place."""
        tables: tuple[Any, ...] = tuple(self._held)
        n, stop = self.n_states, self._stop

        def work(part: Share, low: int, high: int, blocks: int) -> None:
            ek.maximise(tensor, n, tables, low, high, part[1], part[2], blocks, stop)

        if self.threads == 1 and self._is_short and n <= tuning.CACHED_CELLS:
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

    def _cache_groups(self) -> list[tuple[int, int, int]]:
        """Return (first, end, blocks) of components that are processed together, in order of work.
        A block holds all values of the fastest axes. It has to contain the axes of the components
        and to fit into the cache. With 0 blocks a component is processed by itself."""
        order, shape = self.layout.order, self._internal_shape
        most = tuning.CACHED_CELLS // self.parts.n_layers
        groups: list[tuple[int, int, int]] = []
        for c in range(len(self.parts.components) - 1, -1, -1):
            slowest = min(order.index(v) for v in self.parts.components[c].effect.states)
            volume = math.prod(shape[slowest:])
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
        """Compute out <- the maximum over all joint actions; `tensor` begins with the values of
        chance."""
        self._maximise(tensor, 0, len(self.parts.components))
        tables: tuple[Any, ...] = tuple(self._held)
        n = self.n_states
        self.over(n, lambda part: ek.collect(tensor, n, tables, out, part[1], part[2]))

    def _tensor(self, out: Vector) -> Vector:
        return self._layers if self.parts.n_layers > 1 else out

    def sweep(self, h: Vector, out: Vector) -> None:
        """Compute out <- L h without discount, both in elimination order."""
        tensor = self._tensor(out)
        self._chance(h, tensor[: self.n_states])
        self._best(tensor, out)

    def iterate(self, h: Vector, new: Vector, scratch: Vector, pace: Pace) -> int:
        """Iterate as `Backup.iterate`, sweep by sweep."""
        return iterate_by_sweeps(self.sweep, h, new, scratch, self.extremes, pace)

    def lowest(self, h: Vector, out: Vector) -> None:
        """Compute out <- min over joint actions (and targets) of R + P h, in elimination order."""
        # As in `Backup`: minus the maximum of everything negated.
        tensor = self._tensor(out)
        chance = tensor[: self.n_states]
        self.chance.deadline = self.deadline
        self.chance.lowest(h, chance)
        np.negative(chance, out=chance)
        tables = self._held
        paid = (tables.costs, tables.before, tables.setups)
        for payments in paid:
            np.negative(payments, out=payments)
        try:
            self._best(tensor, out)
        finally:
            for payments in paid:
                np.negative(payments, out=payments)
        np.negative(out, out=out)

    def greedy_actions(
        self, h: Vector, value: Vector, ties_rule: str, tie_seed: int, slack: float
    ) -> NDArray[np.int64]:
        """Return action indices in C order; h and value = L h are in elimination order. Actions
        within `slack` of the best are tied. `value` is overwritten by the values of the chosen
        actions."""
        n, choice = self.n_states, (slack, ties.rule_code(ties_rule), tie_seed)
        tables: tuple[Any, ...] = tuple(self._held)
        chance, pays = np.empty(n), np.zeros(n)
        self._chance(h, chance)
        canonical = self._c_order()
        positions = np.arange(n, dtype=np.int64)
        layers, actions = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        chosen = (positions, layers, actions, pays)
        for c, tensor in enumerate(self._stages(chance)):
            self.over(
                int(self._held.shapes[c, ek.FIBRES]),
                lambda part, c=c, tensor=tensor: ek.decide(  # type: ignore[misc]
                    *(tensor, n, tables, c, value, choice, canonical, chosen, part[1], part[2])
                ),
            )
        self.over(n, lambda part: ek.settle(tables, layers, pays, part[1], part[2]))
        self.over(n, lambda part: ek.gather(chance, positions, pays, value, part[1], part[2]))
        return actions

    def _stages(self, chance: Vector) -> Iterator[Vector]:
        """Yield, for c = 0, 1, ..., the maxima over the components after c."""
        n_components, n = len(self.parts.components), self.n_states
        tensor = np.empty(self.parts.n_layers * n)
        tensor[:n] = chance
        if self._keeps_stages:
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
        """Return the C-order index of each state; empty if the orders are equal."""
        if self._in_order:
            return np.zeros(0, dtype=np.int64)
        cube = np.arange(self.n_states, dtype=np.int64).reshape(self.structure.state_sizes)
        return np.array(cube.transpose(self.layout.order), order="C").reshape(-1)

    def _follow(self, actions: NDArray[np.int64], positions: Index, pays: Vector) -> None:
        tables: tuple[Any, ...] = tuple(self._held)
        canonical = self._c_order()
        self.over(
            self.n_states,
            lambda part: ek.follow(tables, canonical, actions, positions, pays, part[1], part[2]),
        )

    def policy_sweep(self, h: Vector, out: Vector, actions: NDArray[np.integer[Any]]) -> None:
        """Compute out <- R_pi + P_pi h; vectors in elimination order, actions in C order."""
        n, taken = self.n_states, np.asarray(actions, dtype=np.int64)
        if self._followed is None or not np.array_equal(self._followed[0], taken):
            # A policy is evaluated in many sweeps; its outcomes are computed in the first.
            positions, pays = np.empty(n, dtype=np.int64), np.empty(n)
            self._followed = None
            self._follow(taken, positions, pays)
            self._followed = (taken.copy(), positions, pays, np.empty(n))
        _, positions, pays, chance = self._followed
        self._chance(h, chance)
        self.over(n, lambda part: ek.gather(chance, positions, pays, out, part[1], part[2]))

    def action_values(self, h: Vector, discount: float = 1.0) -> Vector:
        """Return R + discount * P h, [S, A], with -inf for actions that are not allowed."""
        source = self.to_internal(h)
        source *= discount
        chance, pays = np.empty_like(source), np.empty_like(source)
        positions = np.empty(self.n_states, dtype=np.int64)
        self._chance(source, chance)
        out = np.empty((self.n_states, self.structure.n_actions))
        for action in range(self.structure.n_actions):
            self._follow(np.array([action], dtype=np.int64), positions, pays)
            out[:, action] = self.to_canonical(pays + chance[positions])
        if self.structure.constraints:
            out[~self.structure.allowed_mask()] = -np.inf
        return out
