"""The Bellman residual of h_w as a cost network of linear forms in the weights.

For weights w and discount g the network's sum at x = (state, action) is the Bellman residual

    sum_k R_k(x) + sum_b w_b (g (P phi_b)(x) - phi_b(x)),    (P phi_b)(x) = E[phi_b(s') | x],

and the constraint "V_w >= R + g P V_w" says that its maximum over x is at most (1 - g) w_0.
Backprojection works factor by factor: P phi_b depends only on the factors of the variables of
phi_b, so its scope is the union of their scopes (Koller & Parr 1999). A term whose scope lies
inside another's is added to it, so that every function of the network has a maximal scope. Each
entry of a function is a linear form in w: a constant, and coefficients for a few basis functions.

Optimistic tables add one action variable per factor, its target. All functions of the factor's
variable share the target, so it is eliminated after they are summed. With `split` each basis scope
has its own targets: a relaxation, never below, and cheaper if scopes overlap.

Constraints on actions are functions too: 0 where they allow x, minus infinity where they forbid it,
so that the maximum is over the allowed x. Their sums are exact, and no row of a linear program
reads a forbidden entry. A cap of K on many action variables is a chain of small functions over
counters of the busy ones, c_j = c_{j-1} + 1{a_j not idle} <= K, with one more variable for each.
A deterministic derived variable is one more variable too, with a function that forbids every value
but its own.

All numbers, here and in the linear programs, are in units of `Structure.reward_unit`, with rewards
counted from the lower end of their ranges: the loaded rewards are (R_k - lo_k) / unit, and planners
add `origin` and multiply their results. So tolerances are plain numbers that do not depend on the
unit and the zero of the rewards. If rewards are rescaled by 2^k, the loaded numbers and all results
are the same bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp.elimination.network import FunctionTables, Network, choose_contexts
from fmdp.elimination.prohibitions import derived_prohibitions, prohibitions
from fmdp.model import FactoredMDP, OptimisticTables, Structure
from fmdp.model.spaces import starts, strides, weighted_index
from fmdp.model.structure import Scope
from fmdp.planning.alp.bases import Basis
from fmdp.planning.alp.residual_functions import (
    NetworkFunction,
    context_classes,
    network_functions,
)
from fmdp.planning.alp.residual_kernels import (
    Coefficients,
    Terms,
    extend_optimistic,
    fill_tables,
    largest_row_error,
    linear_forms,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class BellmanResidual:
    """The cost network of a structure and a basis, and its linear forms for the loaded tables."""

    def __init__(
        self,
        structure: Structure,
        basis: Basis,
        *,
        optimistic: bool = False,
        split: bool = False,
        model: FactoredMDP | None = None,
        context: int = -1,
        memory_limit: int | None = None,
        maximised: bool = True,
        close_inside: bool = False,
        deadline: Deadline = NEVER,
    ) -> None:
        """Prepare the network; see the description of the module for `optimistic` and `split`.

        With a model, contexts with equal tables share their work. Without one, contexts share it
        whose rows the structure declares to be alike, and the network fits any tables. `context` is
        the variable to condition on; by default the network chooses. `maximised` is False for
        tables that are only filled: then there is no network. `memory_limit` and `close_inside` are
        those of `Network`.
        """
        self.structure = structure
        self.basis = basis
        self.optimistic = optimistic
        self.unit = structure.reward_unit
        """The unit of rewards and weights."""
        lowest = np.array([lo for lo, _ in structure.reward_ranges], dtype=np.float64)
        self.origin = float((lowest / self.unit).sum())
        """The smallest reward of a step, which the loaded rewards leave out."""
        self._lowest: Floats = np.repeat(lowest, np.array(structure.reward_rows, dtype=np.int64))
        self._lowest_size = float(np.abs(lowest / self.unit).sum())
        sizes = list(structure.all_sizes)
        self._targets = _targets(structure, basis, sizes, split) if optimistic else None
        self._prohibitions = derived_prohibitions(structure) + prohibitions(structure, sizes)
        self.sizes = tuple(sizes)
        functions = network_functions(
            structure.reward_scopes,
            [block.scope for block in basis.blocks],
            self._backprojected_scopes(),
            [prohibition.scope for prohibition in self._prohibitions],
        )
        scopes = [function.scope for function in functions]
        contexts = choose_contexts(self.sizes, scopes, context)
        self._classes: Mapping[int, Ints] = {}
        if model is not None or structure.alike is not None:
            self._classes = context_classes(
                structure,
                model,
                basis,
                functions,
                contexts,
                self._prohibitions,
                self.sizes,
                deadline,
            )
        self.tables: FunctionTables
        if maximised:
            self.tables = self.network = Network(
                self.sizes,
                scopes,
                contexts=contexts,
                classes=self._classes,
                close_inside=close_inside,
                memory_limit=memory_limit,
                deadline=deadline,
            )
        else:
            self.tables = FunctionTables(self.sizes, scopes, contexts, self._classes)
        self._build(functions, deadline)

    # -- preparation --------------------------------------------------------------------------

    def _backprojected_scopes(self) -> list[Scope]:
        targets = self._targets or [{} for _ in self.basis.blocks]
        return [
            tuple(
                sorted(
                    {v for i in block.scope for v in self.structure.transition_scopes[i]}
                    | set(targets[q].values())
                )
            )
            for q, block in enumerate(self.basis.blocks)
        ]

    def _build(self, functions: Sequence[NetworkFunction], deadline: Deadline) -> None:
        structure, basis, tables = self.structure, self.basis, self.tables.functions
        self.columns: list[NDArray[np.int32]] = []
        """For each function, the basis functions that it depends on."""
        positions: list[dict[int, int]] = []  # for each function: block -> its first column
        for function in functions:
            position: dict[int, int] = {}
            columns: list[int] = []
            for q in sorted({*function.current, *function.expected}):
                position[q] = len(columns)
                columns.extend(basis.blocks[q].columns.tolist())
            positions.append(position)
            self.columns.append(np.array(columns, dtype=np.int32))
        counts = np.array([len(columns) for columns in self.columns], dtype=np.int64)
        entries = np.array([table.entries for table in tables], dtype=np.int64)
        first_coefficient = starts(entries * counts)
        self.coefficients = Coefficients(
            function=np.repeat(np.arange(len(functions), dtype=np.int32), entries),
            first_entry=starts(entries),
            first_coefficient=first_coefficient,
            first_column=starts(counts),
            columns=np.concatenate([*self.columns, np.zeros(0, dtype=np.int32)]),
            constant=np.zeros(self.tables.n_functions),
            expected=np.zeros(int(first_coefficient[-1])),
            current=np.zeros(int(first_coefficient[-1])),
        )
        self.coefficient_arrays = tuple(self.coefficients)
        """The same as a plain tuple, on which Numba dispatches faster."""
        self._write_current(functions, positions, deadline)
        forbidden = [
            tables[f].offset + np.flatnonzero(prohibition.table[self._rows(f, prohibition.scope)])
            for f, function in enumerate(functions)
            for prohibition in (self._prohibitions[c] for c in function.forbidden)
        ]
        self._forbidden: Ints = np.concatenate([*forbidden, np.zeros(0)]).astype(np.int64)
        """Entries that a constraint forbids."""
        self.coefficients.constant[self._forbidden] = -np.inf
        self._terms = self._make_terms(functions, positions, deadline)
        self._tables = np.zeros(int(self._terms.table[-1]))
        self._rewards = np.zeros(structure.reward_starts[-1])
        self._rewards_at = np.array(structure.reward_starts[:-1], dtype=np.int64)
        self._reward_size = 0.0  # sum_k max |R_k - lo_k|
        self._row_error = 0.0  # max |sum of a row - 1| over the loaded tables
        self._heights = basis.heights()
        self._longest = max((len(block.scope) for block in basis.blocks), default=0)
        self._maximum: tuple[Floats, float, float] | None = None
        """The weights and the discount of the network's last maximum, and that maximum."""
        self._roundings = self._count_roundings(int(counts.max(initial=0)))

    def _write_current(
        self,
        functions: Sequence[NetworkFunction],
        positions: Sequence[Mapping[int, int]],
        deadline: Deadline,
    ) -> None:
        """Write the coefficients of -w_b, which do not depend on tables."""
        for f, function in enumerate(functions):
            shape = (self.tables.functions[f].entries, len(self.columns[f]))
            first = int(self.coefficients.first_coefficient[f])
            view = self.coefficients.current[first : first + math.prod(shape)].reshape(shape)
            for q in function.current:
                deadline.check()
                block, place = self.basis.blocks[q], positions[f][q]
                view[:, place : place + block.size] += block.values[self._rows(f, block.scope)]

    def _make_terms(
        self,
        functions: Sequence[NetworkFunction],
        positions: Sequence[Mapping[int, int]],
        deadline: Deadline,
    ) -> Terms:
        structure, blocks = self.structure, self.basis.blocks
        index: list[NDArray[np.int32]] = []
        index_at: dict[tuple[int, Scope], int] = {}
        index_end = 0

        def add_index(f: int, scope: Scope) -> int:
            nonlocal index_end
            if (f, scope) not in index_at:
                index.append(self._rows(f, scope))
                index_at[f, scope] = index_end
                index_end += len(index[-1])
            return index_at[f, scope]

        phi_at = starts([block.values.size for block in blocks])
        rewards: list[tuple[int, ...]] = []
        back: list[tuple[int, ...]] = []
        factors: list[tuple[int, int]] = []
        back_factors = [0]
        for f, function in enumerate(functions):
            deadline.check()
            offset, entries = self.tables.functions[f].offset, self.tables.functions[f].entries
            for k in function.rewards:
                at = add_index(f, structure.reward_scopes[k])
                rewards.append((structure.reward_starts[k], offset, entries, at))
            coefficient, width = int(self.coefficients.first_coefficient[f]), len(self.columns[f])
            for q in function.expected:
                place, size, phi = positions[f][q], blocks[q].size, int(phi_at[q])
                back.append((offset, entries, coefficient, width, place, size, phi))
                for i in blocks[q].scope:
                    scope = structure.transition_scopes[i]
                    if self._targets is not None:
                        scope = (*scope, self._targets[q][i])
                    factors.append((i, add_index(f, scope)))
                back_factors.append(len(factors))
        sizes = structure.state_sizes
        table_sizes = [
            rows * size * (size if self.optimistic else 1)
            for rows, size in zip(structure.transition_rows, sizes, strict=True)
        ]
        return Terms._make(
            [
                *_columns(rewards, 4),
                *_columns(back, 7),
                np.array(back_factors, dtype=np.int64),
                *_columns(factors, 2),
                starts(table_sizes),
                np.array(sizes, dtype=np.int64),
                np.concatenate([*(block.values.ravel() for block in blocks), np.zeros(1)]),
                np.concatenate([*index, np.zeros(1, dtype=np.int32)]),
            ]
        )

    def _count_roundings(self, most_columns: int) -> int:
        """Return the largest number of roundings on the way from the tables to the maximum.

        They are products of probabilities and their sum with the values of a basis function; the
        rewards and weights of one function; one per function and per message; and a few more.
        """
        blocks = self.basis.blocks
        sums = [int((block.values != 0.0).sum(axis=0).max(initial=0)) for block in blocks]
        components = self.network.components if isinstance(self.tables, Network) else ()
        nodes = sum(len(component.nodes) for component in components)
        of_function = self._longest + max(sums, default=0) + most_columns
        of_network = len(self.columns) + nodes + 2 * len(components)
        return of_function + self.structure.l + of_network + 8

    def _rows(self, f: int, scope: Scope) -> NDArray[np.int32]:
        """Return, for every entry of function f, the row of a table over `scope` (C order)."""
        function, classes = self.tables.functions[f], self._classes.get(f)
        step = dict(zip(scope, strides([self.sizes[v] for v in scope]), strict=True))
        inner = weighted_index(
            [self.sizes[v] for v in function.scope], [step.get(v, 0) for v in function.scope]
        )
        if function.slices == 1 and classes is None:
            # One slice: the context has one value, or the function does not mention it.
            return inner.astype(np.int32)
        if classes is None:
            shown = np.arange(function.slices)
        else:
            shown = np.zeros(function.slices, dtype=np.int64)
            shown[classes[::-1]] = np.arange(len(classes))[::-1]  # the first context of each class
        outer = step.get(function.context, 0) * shown
        return (outer[:, None] + inner[None, :]).ravel().astype(np.int32)

    # -- tables ----------------------------------------------------------------------------------

    def load(self, tables: FactoredMDP | OptimisticTables) -> None:
        """Compute the linear forms of these tables."""
        self._maximum = None
        n_rows = np.array(self.structure.transition_rows, dtype=np.int64)
        sizes = self._terms.values
        if isinstance(tables, OptimisticTables):
            lower = np.concatenate([table.ravel() for table in tables.lower])
            free = np.concatenate(tables.free)
            extend_optimistic(lower, free, sizes, n_rows, self._tables)
        else:
            np.concatenate([table.ravel() for table in tables.transitions], out=self._tables)
        if len(self._rewards):
            np.concatenate(tables.rewards, out=self._rewards)
            self._rewards -= self._lowest
            self._rewards /= self.unit
            largest = np.maximum.reduceat(np.abs(self._rewards), self._rewards_at)
            self._reward_size = float(largest.sum())
        # Optimistic tables have a row for every target.
        copies = sizes if self.optimistic else 1
        self._row_error = largest_row_error(self._tables, sizes, n_rows * copies)
        linear_forms(self._terms, self._tables, self._rewards, self.coefficient_arrays)
        self.coefficients.constant[self._forbidden] = -np.inf

    def form(self, entries: Ints, discount: float) -> tuple[float, Floats]:
        """Return the sum of these entries as a linear form: its constant and coefficients."""
        form = np.zeros(self.basis.size)
        known = self.coefficients
        for e in entries:
            f = int(known.function[e])
            columns = self.columns[f]
            at = known.first_coefficient[f] + (e - known.first_entry[f]) * len(columns)
            part = slice(at, at + len(columns))
            np.add.at(form, columns, discount * known.expected[part] - known.current[part])
        return float(known.constant[entries].sum()), form

    def largest(self, weights: Floats, discount: float) -> float:
        """Return an upper bound on the largest Bellman residual, tight up to rounding.

        With discount 1 it bounds the gain of every policy from above, for any weights.
        """
        return self.maximum(weights, discount) + self.origin + self.rounding(weights, discount)

    def maximum(self, weights: Floats, discount: float) -> float:
        """Return the maximum of the network for these weights, which the network then holds.

        A pass over a large network takes a second, so the last result is kept.
        """
        weights = weights[: self.basis.size]
        kept = self._maximum
        if kept is None or kept[1] != discount or not np.array_equal(kept[0], weights):
            self.fill(weights, discount)
            kept = self._maximum = weights.copy(), discount, self.network.maximise()
        return kept[2]

    def rounding(self, weights: Floats, discount: float) -> float:
        """Return a bound on the error of the network's maximum.

        Every partial sum is at most S = sum_k (max |R_k - lo_k| + |lo_k|) + (1 + g) sum_b |w_b|
        max |phi_b|, so each rounding moves the result by at most eps S (twice the actual bound, to
        cover terms of higher order). Rows whose sum is not 1 stand for the distributions that they
        are multiples of.
        """
        heights = float(np.abs(weights[: self.basis.size]) @ self._heights)
        size = self._reward_size + self._lowest_size + (1.0 + discount) * heights
        eps = float(np.finfo(np.float64).eps)
        return self._roundings * eps * size + self._longest * self._row_error * heights

    def fill(self, weights: Floats, discount: float, *, subtract_current: bool = True) -> None:
        """Write the tables of the Bellman residual for these weights into the network, or, without
        the term -h_w, those of Q = R + discount P h_w."""
        self._maximum = None
        share = 1.0 if subtract_current else 0.0
        fill_tables(self.coefficient_arrays, weights, discount, share, self.tables.buffer)


def _targets(
    structure: Structure, basis: Basis, sizes: list[int], split: bool
) -> list[dict[int, int]]:
    """Return, for each block, the target variable of each factor; appends targets to the sizes."""
    first_target = len(sizes)
    sizes += structure.state_sizes
    targets: list[dict[int, int]] = []
    for block in basis.blocks:
        if split:
            targets.append({i: len(sizes) + position for position, i in enumerate(block.scope)})
            sizes += [structure.state_sizes[i] for i in block.scope]
        else:
            targets.append({i: first_target + i for i in block.scope})
    return targets


def _columns(rows: Sequence[Sequence[int]], width: int) -> list[Ints]:
    table = np.array(rows, dtype=np.int64).reshape(-1, width)
    return [np.ascontiguousarray(table[:, column]) for column in range(width)]
