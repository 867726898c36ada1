"""The constraints of the approximate linear program as a cost network of linear forms.

For weights w and discount g the network's sum at x = (state, action) is the Bellman residual

    sum_k R_k(x) + sum_b w_b (g (P phi_b)(x) - phi_b(x)),    (P phi_b)(x) = E[phi_b(s') | x],

and the constraint "V_w >= R + g P V_w" says that its maximum over x is at most (1 - g) w_0.
Backprojection goes by factor: P phi_b needs only the factors of the variables of phi_b, so it is a
function of the union of their scopes (Koller & Parr 1999). Terms whose scope lies inside another's
are added there, so that every function of the network is maximal. Each entry of a function is a
linear form in w: a constant, and coefficients for the few basis functions that meet there.

Optimistic tables add one action variable for each factor, its target; a target is shared by all
functions of that factor's variable, so it is eliminated after they are summed. With `split` each
basis scope has targets of its own: a relaxation, never below, cheaper where scopes overlap.

Constraints on actions are functions too: 0 where they allow x, minus infinity where they forbid it,
so that the maximum is over the allowed x alone; sums of them are exact, and no row of a program
reads a forbidden entry. A cap of K on many action variables is a chain of small functions over
counters of those at work, c_j = c_{j-1} + 1{a_j not idle} <= K, one more variable for each.

Everything here and in the programs made of it is in units of `Structure.reward_unit`, with rewards
counted from the lower end of their ranges: (R_k - lo_k) / unit is what is loaded, and planners add
`origin` and multiply what they hand out. So tolerances can be plain numbers and mean the same in
whatever unit and from whatever zero the rewards are stated. Restated by a factor of 2^k, what is
loaded is the same number for number, and so are all results to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.deadlines import Look, nothing
from fmdp.elimination.action_classes import number_slices
from fmdp.elimination.network import FunctionTables, Network, choose_contexts
from fmdp.model import AtMost, FactoredMDP, OptimisticTables, Structure
from fmdp.model.constraints import Mask
from fmdp.model.spaces import starts, strides, weighted_index
from fmdp.model.structure import Scope
from fmdp.planning.alp.bases import Basis

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_CLASSES = 64


class Coefficients(NamedTuple):
    """Every entry of every function of the network as a linear form in w, function by function.

    Entry e of function f is constant[e] + sum_c (g back - own)[at + c] w[columns[first + c]] for
    its few columns c, where at and first are the function's own.
    """

    function: NDArray[np.int32]  # [entries]
    first_entry: Ints  # [functions + 1]
    first_coefficient: Ints  # [functions + 1]
    first_column: Ints  # [functions + 1]
    columns: NDArray[np.int32]
    constant: Floats  # [entries]
    back: Floats
    """Coefficients of g w_b in every entry: (P phi_b)(x)."""
    own: Floats
    """Coefficients of -w_b in every entry: phi_b(s)."""


class _Terms(NamedTuple):
    """The terms of all functions, flat, for the compiled passes."""

    reward: Ints  # [rewards]: where the factor's table begins
    reward_entry: Ints  # [rewards]: first entry of the host function
    reward_entries: Ints
    reward_index: Ints  # [rewards + 1]: where its index array begins
    back_entry: Ints  # [blocks]: first entry of the host function
    back_entries: Ints
    back_coefficient: Ints  # [blocks]: where the host's coefficients begin
    back_columns: Ints  # [blocks]: columns of the host
    back_position: Ints  # [blocks]: position of the block's first function among them
    back_size: Ints  # [blocks]: functions of the block
    back_values: Ints  # [blocks]: where phi begins
    back_factors: Ints  # [blocks + 1]: where its list of factors begins
    factor: Ints  # the factor
    factor_index: Ints  # and where its index array begins
    table: Ints  # [m]: where the factor's table begins
    values: Ints  # [m]: sizes of the state variables
    phi: Floats
    rows: NDArray[np.int32]  # the index arrays, one after another


@dataclass(frozen=True)
class _Host:
    """A function of the network with the terms it carries."""

    scope: Scope
    rewards: tuple[int, ...]
    own: tuple[int, ...]
    back: tuple[int, ...]
    barred: tuple[int, ...] = ()


class Forms:
    """The cost network of a structure and a basis, and its linear forms for the tables loaded."""

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
        look: Look = nothing,
    ) -> None:
        """With a model, contexts that see equal tables share their work; without one those that see
        rows that the structure knows to be alike: then the network is a function of the structure
        alone and fits any tables. `context` is the variable to condition on, if it should not be
        left to the network; forms that are not to be maximised, only filled, have no network;
        `close_inside` as in `Network`; `look` is called between steps."""
        self.structure = structure
        self.basis = basis
        self.optimistic = optimistic
        self.unit = structure.reward_unit
        """What rewards, weights and all that is made of them are multiples of."""
        lowest = np.array([lo for lo, _ in structure.reward_ranges], dtype=np.float64)
        self.origin = float((lowest / self.unit).sum())
        """What a step pays at least, and what the rewards loaded leave out."""
        self._lowest: Floats = np.repeat(lowest, np.array(structure.reward_rows, dtype=np.int64))
        self._lowest_size = float(np.abs(lowest / self.unit).sum())
        m, n_actions = structure.m, len(structure.action_sizes)
        first_target = m + n_actions
        sizes = list(structure.sizes)
        if optimistic:
            sizes += structure.state_sizes
        targets: list[dict[int, int]] = []  # for each block: factor -> its target variable
        for block in basis.blocks:
            own = {i: first_target + i for i in block.scope}
            if split:
                own = {i: len(sizes) + position for position, i in enumerate(block.scope)}
                sizes += [structure.state_sizes[i] for i in block.scope]
            targets.append(own if optimistic else {})
        self._bars = _bars(structure, sizes)
        self.sizes = tuple(sizes)
        self._targets = targets
        back_scopes = [
            tuple(
                sorted(
                    {v for i in block.scope for v in structure.transition_scopes[i]}
                    | set(targets[q].values())
                )
            )
            for q, block in enumerate(basis.blocks)
        ]
        hosts = _hosts(
            structure.reward_scopes,
            [block.scope for block in basis.blocks],
            back_scopes,
            [bar.scope for bar in self._bars],
        )
        scopes = [host.scope for host in hosts]
        contexts = choose_contexts(self.sizes, scopes, context)
        classes: dict[int, Ints] = {}
        if model is not None or structure.alike is not None:
            classes = _classes(
                structure, model, basis, hosts, contexts, self._bars, self.sizes, look
            )
        self.tables: FunctionTables
        if maximised:
            self.tables = self.network = Network(
                self.sizes,
                scopes,
                contexts=contexts,
                classes=classes,
                close_inside=close_inside,
                memory_limit=memory_limit,
                look=look,
            )
        else:
            self.tables = FunctionTables(self.sizes, scopes, contexts, classes)
        self._build(hosts, classes, look)

    # -- preparation --------------------------------------------------------------------------

    def _build(self, hosts: Sequence[_Host], classes: Mapping[int, Ints], look: Look) -> None:
        structure, basis = self.structure, self.basis
        functions = self.tables.functions
        table_sizes = [
            rows * size * (size if self.optimistic else 1)
            for rows, size in zip(structure.transition_rows, structure.state_sizes, strict=True)
        ]
        tables = starts(table_sizes)
        rewards_at = structure.reward_starts
        index: list[NDArray[np.int32]] = []
        index_end = 0

        index_at: dict[tuple[int, Scope], int] = {}

        def add_index(f: int, scope: Scope) -> int:
            nonlocal index_end
            if (f, scope) not in index_at:
                index.append(self._rows(f, scope, classes.get(f)))
                index_at[f, scope] = index_end
                index_end += len(index[-1])
            return index_at[f, scope]

        self.columns: list[NDArray[np.int32]] = []
        """For each function the basis functions that meet there."""
        reward: list[tuple[int, int, int]] = []
        back: list[tuple[int, ...]] = []
        back_factors: list[int] = [0]
        factor: list[tuple[int, int]] = []
        phi_at = starts([block.values.size for block in basis.blocks])
        own_terms: list[tuple[int, int, int]] = []
        coefficient_end = 0
        coefficients: list[int] = []
        for f, host in enumerate(hosts):
            look()
            function = functions[f]
            met = sorted({*host.own, *host.back})
            position: dict[int, int] = {}
            columns: list[int] = []
            for q in met:
                position[q] = len(columns)
                block = basis.blocks[q]
                columns.extend(block.columns.tolist())
            self.columns.append(np.array(columns, dtype=np.int32))
            coefficients.append(coefficient_end)
            for k in host.rewards:
                at = add_index(f, structure.reward_scopes[k])
                reward.append((rewards_at[k], function.offset, at))
            for q in host.own:
                own_terms.append((f, q, position[q]))
            for q in host.back:
                block = basis.blocks[q]
                back.append(
                    (
                        function.offset,
                        function.entries,
                        coefficient_end,
                        len(columns),
                        position[q],
                        block.size,
                        int(phi_at[q]),
                    )
                )
                for i in block.scope:
                    scope = structure.transition_scopes[i]
                    if self.optimistic:
                        scope = (*scope, self._targets[q][i])
                    factor.append((i, add_index(f, scope)))
                back_factors.append(len(factor))
            coefficient_end += function.entries * len(columns)
        counts = np.array([len(columns) for columns in self.columns], dtype=np.int64)
        entries = np.array([function.entries for function in functions], dtype=np.int64)
        self.coefficients = Coefficients(
            function=np.repeat(np.arange(len(hosts), dtype=np.int32), entries),
            first_entry=starts(entries),
            first_coefficient=np.array([*coefficients, coefficient_end], dtype=np.int64),
            first_column=starts(counts),
            columns=np.concatenate([*self.columns, np.zeros(0, dtype=np.int32)]),
            constant=np.zeros(self.tables.n_functions),
            back=np.zeros(coefficient_end),
            own=np.zeros(coefficient_end),
        )
        self.coefficient_arrays = tuple(self.coefficients)
        """The same as a plain tuple, whose type Numba tells in less time."""
        for f, q, place in own_terms:
            look()
            function = functions[f]
            block = basis.blocks[q]
            rows = self._rows(f, block.scope, classes.get(f))
            first, shape = coefficients[f], (function.entries, counts[f])
            view = self.coefficients.own[first : first + math.prod(shape)].reshape(shape)
            view[:, place : place + block.size] += block.values[rows]
        barred = [
            functions[f].offset
            + np.flatnonzero(
                self._bars[c].table[self._rows(f, self._bars[c].scope, classes.get(f))]
            )
            for f, host in enumerate(hosts)
            for c in host.barred
        ]
        self._barred: Ints = np.concatenate([*barred, np.zeros(0)]).astype(np.int64)
        """Entries that a constraint forbids."""
        self.coefficients.constant[self._barred] = -np.inf
        reward_array = np.array(reward, dtype=np.int64).reshape(-1, 3)
        back_array = np.array(back, dtype=np.int64).reshape(-1, 7)
        factor_array = np.array(factor, dtype=np.int64).reshape(-1, 2)
        reward_entries = [
            functions[self.coefficients.function[at]].entries for at in reward_array[:, 1]
        ]
        self._terms = _Terms(
            reward=np.ascontiguousarray(reward_array[:, 0]),
            reward_entry=np.ascontiguousarray(reward_array[:, 1]),
            reward_entries=np.array(reward_entries, dtype=np.int64),
            reward_index=np.ascontiguousarray(reward_array[:, 2]),
            back_entry=np.ascontiguousarray(back_array[:, 0]),
            back_entries=np.ascontiguousarray(back_array[:, 1]),
            back_coefficient=np.ascontiguousarray(back_array[:, 2]),
            back_columns=np.ascontiguousarray(back_array[:, 3]),
            back_position=np.ascontiguousarray(back_array[:, 4]),
            back_size=np.ascontiguousarray(back_array[:, 5]),
            back_values=np.ascontiguousarray(back_array[:, 6]),
            back_factors=np.array(back_factors, dtype=np.int64),
            factor=np.ascontiguousarray(factor_array[:, 0]),
            factor_index=np.ascontiguousarray(factor_array[:, 1]),
            table=tables,
            values=np.array(structure.state_sizes, dtype=np.int64),
            phi=np.concatenate([*(block.values.ravel() for block in basis.blocks), np.zeros(1)]),
            rows=np.concatenate([*index, np.zeros(1, dtype=np.int32)]),
        )
        self._tables = np.zeros(int(tables[-1]))
        self._missed = 0.0  # by how much a row of the tables loaded misses 1, at most
        self._largest = basis.heights()
        self._longest = max((len(block.scope) for block in basis.blocks), default=0)
        sums = [int((block.values != 0.0).sum(axis=0).max(initial=0)) for block in basis.blocks]
        components = self.network.components if isinstance(self.tables, Network) else ()
        nodes = sum(len(component.nodes) for component in components)
        # On the way from the tables to the maximum: products of probabilities and their sum with
        # the values of a basis function; one function's rewards and weights; every function and
        # every message read once; and a few that are there once.
        of_function = self._longest + max(sums, default=0) + int(counts.max(initial=0))
        of_network = len(hosts) + nodes + 2 * len(components)
        self._roundings = of_function + structure.l + of_network + 8
        self._rewards = np.zeros(rewards_at[-1])
        self._rewards_at = np.array(rewards_at[:-1], dtype=np.int64)
        self._reward_size = 0.0  # sum_k max |R_k - lo_k|

    def _rows(self, f: int, scope: Scope, classes: Ints | None) -> NDArray[np.int32]:
        """For every entry of function f, the row of a table over `scope` (C order)."""
        function = self.tables.functions[f]
        step = dict(zip(scope, strides([self.sizes[v] for v in scope]), strict=True))
        own = weighted_index(
            [self.sizes[v] for v in function.scope], [step.get(v, 0) for v in function.scope]
        )
        if function.slices == 1 and classes is None:
            # One slice: the context has one value, or the function does not mention it.
            return own.astype(np.int32)
        if classes is None:
            shown = np.arange(function.slices)
        else:
            shown = np.zeros(function.slices, dtype=np.int64)
            shown[classes[::-1]] = np.arange(len(classes))[::-1]  # the first context of each
        along = step.get(function.context, 0) * shown
        return (along[:, None] + own[None, :]).ravel().astype(np.int32)

    # -- tables ----------------------------------------------------------------------------------

    def load(self, tables: FactoredMDP | OptimisticTables) -> None:
        """Compute the linear forms of these tables."""
        if isinstance(tables, OptimisticTables):
            lower = np.concatenate([table.ravel() for table in tables.lower])
            free = np.concatenate(tables.free)
            _extend(lower, free, self._terms.values, self._rows_of_factors(), self._tables)
        else:
            np.concatenate([table.ravel() for table in tables.transitions], out=self._tables)
        if len(self._rewards):
            np.concatenate(tables.rewards, out=self._rewards)
            self._rewards -= self._lowest
            self._rewards /= self.unit
            largest = np.maximum.reduceat(np.abs(self._rewards), self._rewards_at)
            self._reward_size = float(largest.sum())
        # Optimistic tables have a row for every target.
        copies = self._terms.values if self.optimistic else 1
        self._missed = _most_missed(
            self._tables, self._terms.values, self._rows_of_factors() * copies
        )
        _forms(self._terms, self._tables, self._rewards, self.coefficient_arrays)
        self.coefficients.constant[self._barred] = -np.inf

    def _rows_of_factors(self) -> Ints:
        return np.array(self.structure.transition_rows, dtype=np.int64)

    def form(self, entries: Ints, discount: float) -> tuple[float, Floats]:
        """The Bellman residual that these entries add up to, as constant + coefficients . w."""
        form = np.zeros(self.basis.size)
        known = self.coefficients
        for e in entries:
            f = int(known.function[e])
            columns = self.columns[f]
            at = known.first_coefficient[f] + (e - known.first_entry[f]) * len(columns)
            own = slice(at, at + len(columns))
            np.add.at(form, columns, discount * known.back[own] - known.own[own])
        return float(known.constant[entries].sum()), form

    def largest_residual(self, weights: Floats, discount: float) -> float:
        """The largest Bellman residual, or more by what rounding may have hidden: with discount 1
        an upper bound on the gain of every policy, whatever the weights."""
        self.fill(weights, discount)
        return self.network.maximise() + self.origin + self.rounding(weights, discount)

    def rounding(self, weights: Floats, discount: float) -> float:
        """By how much the network's maximum can miss the largest Bellman residual, at most.

        Every partial sum is at most S = sum_k (max |R_k - lo_k| + |lo_k|) + (1 + g) sum_b |w_b|
        max |phi_b|, so each rounding moves the result by at most eps S (twice what it can be, for
        those of higher order). Rows that miss 1 stand for the distributions that they are
        multiples of.
        """
        heights = float(np.abs(weights[: self.basis.size]) @ self._largest)
        size = self._reward_size + self._lowest_size + (1.0 + discount) * heights
        eps = float(np.finfo(np.float64).eps)
        return self._roundings * eps * size + self._longest * self._missed * heights

    def fill(self, weights: Floats, discount: float, *, own: bool = True) -> None:
        """Write the tables for these weights into the network: the Bellman residual, or with
        own=False its first part alone, Q = R + discount P h_w."""
        own_share = 1.0 if own else 0.0
        _fill(self.coefficient_arrays, weights, discount, own_share, self.tables.buffer)


class _Bar(NamedTuple):
    """What is forbidden, over variables of the network: part of a constraint."""

    scope: Scope
    table: Mask


_TABULATED_CAP = 64
"""Joint actions up to which a cap is one function."""


def _bars(structure: Structure, sizes: list[int]) -> list[_Bar]:
    """The constraints as functions; counters that they need are appended to the sizes."""
    bars: list[_Bar] = []
    for constraint in structure.constraints:
        small = math.prod(structure.sizes[v] for v in constraint.scope) <= _TABULATED_CAP
        if not isinstance(constraint, AtMost) or small:
            bars.append(_Bar(constraint.scope, constraint.forbidden_table(structure.sizes)))
            continue
        # Over [a, the counter so far, the counter with a]: what does not add up; at last, [a, the
        # counter so far]: what is too much.
        known: Scope = ()
        counted = 1
        *first, (last, idle_last) = constraint.pairs()
        for v, idle in first:
            after = min(counted, constraint.most) + 1
            busy = (np.arange(sizes[v]) != idle)[:, None] + np.arange(counted)
            table = busy[:, :, None] != np.arange(after)
            bars.append(_Bar((v, *known, len(sizes)), table.reshape(-1)))
            known, counted = (len(sizes),), after
            sizes.append(after)
        busy = (np.arange(sizes[last]) != idle_last)[:, None] + np.arange(counted)
        bars.append(_Bar((last, *known), (busy > constraint.most).reshape(-1)))
    return bars


def _hosts(
    rewards: Sequence[Scope],
    own: Sequence[Scope],
    back: Sequence[Scope],
    barred: Sequence[Scope] = (),
) -> list[_Host]:
    """Functions with maximal scopes, in the order of their first term, and what each carries."""
    terms = [(scope, "rewards", k) for k, scope in enumerate(rewards)]
    terms += [(scope, "own", q) for q, scope in enumerate(own)]
    terms += [(scope, "back", q) for q, scope in enumerate(back)]
    terms += [(scope, "barred", c) for c, scope in enumerate(barred)]
    hosts: list[tuple[Scope, dict[str, list[int]], int]] = []
    containing: dict[int, list[int]] = {}
    # Longest first, so that a scope is kept exactly if no earlier one contains it.
    by_length = sorted(range(len(terms)), key=lambda t: (-len(terms[t][0]), t))
    for t in by_length:
        scope, kind, number = terms[t]
        among: Sequence[int] = range(len(hosts))
        if scope:
            among = min((containing.get(v, []) for v in scope), key=len)
        wanted = set(scope)
        home = next((h for h in among if wanted.issubset(hosts[h][0])), None)
        if home is None:
            home = len(hosts)
            hosts.append((scope, {"rewards": [], "own": [], "back": [], "barred": []}, t))
            for v in scope:
                containing.setdefault(v, []).append(home)
        hosts[home][1][kind].append(number)
    if not hosts:
        return [_Host((), (), (), ())]  # no rewards and no basis: the sum is 0
    hosts.sort(key=lambda host: host[2])
    return [
        _Host(scope, *(tuple(parts[kind]) for kind in ("rewards", "own", "back", "barred")))
        for scope, parts, _ in hosts
    ]


def _classes(
    structure: Structure,
    model: FactoredMDP | None,
    basis: Basis,
    hosts: Sequence[_Host],
    contexts: Sequence[int],
    bars: Sequence[_Bar],
    sizes: Sequence[int],
    look: Look,
) -> dict[int, Ints]:
    """For each function that mentions its context, which contexts show the same numbers there, or
    without a model rows that are known to be alike.

    Class 0 is the one of most contexts: what the others are compared with.
    """
    of_factor: dict[tuple[str, int], Ints] = {}

    def classes(kind: str, number: int, context: int) -> Ints:
        key = (kind, number)
        if key not in of_factor:
            transition = kind == "transition"
            scopes = structure.transition_scopes if transition else structure.reward_scopes
            table: NDArray[Any]
            if model is not None:
                table = model.transitions[number] if transition else model.rewards[number]
            elif transition:
                table = structure.transition_classes_of(number)
            else:
                table = structure.reward_classes_of(number)
            of_factor[key] = _equal_slices(table, sizes, scopes[number], context)
        return of_factor[key]

    result: dict[int, Ints] = {}
    for f, (host, context) in enumerate(zip(hosts, contexts, strict=True)):
        look()
        if context not in host.scope:
            continue
        n = structure.sizes[context] if context < len(structure.sizes) else 0
        if n == 0:
            continue  # a target: every value shows other numbers
        joint = np.zeros(n, dtype=np.int64)
        parts = [("reward", k) for k in host.rewards]
        parts += [("transition", i) for q in host.back for i in basis.blocks[q].scope]
        own = any(context in basis.blocks[q].scope for q in host.own)
        if own:
            result[f] = np.arange(n)
            continue
        for kind, number in parts:
            joint = _combine(joint, classes(kind, number, context))
        for c in host.barred:
            table = bars[c].table.astype(np.float64)
            joint = _combine(joint, _equal_slices(table, sizes, bars[c].scope, context))
        counts = np.bincount(joint)
        common = int(counts.argmax())
        swapped = joint.copy()
        swapped[joint == 0] = common
        swapped[joint == common] = 0
        result[f] = swapped
    return result


def _combine(one: Ints, other: Ints) -> Ints:
    pairs = one * (int(other.max()) + 1) + other
    numbered: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbered


def _equal_slices(table: NDArray[Any], sizes: Sequence[int], scope: Scope, context: int) -> Ints:
    n = sizes[context]
    if context not in scope:
        return np.zeros(n, dtype=np.int64)
    position = scope.index(context)
    after = math.prod(sizes[v] for v in scope[position + 1 :])
    last = table.shape[1] if table.ndim == 2 else 1
    alike, first = number_slices(table.reshape(-1, n, after * last))
    return alike if len(first) <= _MOST_CLASSES else np.arange(n)


# -- compiled -------------------------------------------------------------------------------------


@njit(nogil=True)
def _most_missed(tables: Floats, sizes: Ints, rows: Ints) -> float:
    """max |sum of a row - 1| over the rows of all factors."""
    missed = 0.0
    at = 0
    for i in range(sizes.shape[0]):
        for _ in range(rows[i]):
            total = 0.0
            for value in range(sizes[i]):
                total += tables[at + value]
            at += sizes[i]
            missed = max(missed, abs(total - 1.0))
    return missed


@njit(nogil=True)
def _extend(lower: Floats, free: Floats, sizes: Ints, rows: Ints, out: Floats) -> None:
    """P_i(x)^{t+}: p-minus with the free mass on target t; [row, t, value], factor by factor."""
    at = 0
    read = 0
    row_at = 0
    for i in range(sizes.shape[0]):
        size = sizes[i]
        for _ in range(rows[i]):
            for target in range(size):
                for value in range(size):
                    out[at + value] = lower[read + value]
                out[at + target] += free[row_at]
                at += size
            read += size
            row_at += 1


@njit(nogil=True)
def _forms(terms: _Terms, tables: Floats, rewards: Floats, coefficients: Any) -> None:
    """Constants (rewards) and coefficients (backprojections) of every entry."""
    named = Coefficients(*coefficients)
    constant, back = named.constant, named.back
    constant[:] = 0.0
    back[:] = 0.0
    for r in range(terms.reward.shape[0]):
        first = terms.reward_entry[r]
        index = terms.reward_index[r]
        for e in range(terms.reward_entries[r]):
            constant[first + e] += rewards[terms.reward[r] + terms.rows[index + e]]
    for t in range(terms.back_entry.shape[0]):
        first_factor = terms.back_factors[t]
        n_factors = terms.back_factors[t + 1] - first_factor
        joint = 1
        for q in range(n_factors):
            joint *= terms.values[terms.factor[first_factor + q]]
        size = terms.back_size[t]
        for e in range(terms.back_entries[t]):
            out = terms.back_coefficient[t] + e * terms.back_columns[t] + terms.back_position[t]
            for x in range(joint):
                values = terms.back_values[t] + x * size
                if not terms.phi[values : values + size].any():
                    continue  # as for most values of a product of indicators
                rest = x
                probability = 1.0
                for q in range(n_factors - 1, -1, -1):
                    i = terms.factor[first_factor + q]
                    value = rest % terms.values[i]
                    rest //= terms.values[i]
                    row = terms.rows[terms.factor_index[first_factor + q] + e]
                    probability *= tables[terms.table[i] + row * terms.values[i] + value]
                    if probability == 0.0:
                        break
                if probability != 0.0:
                    for b in range(size):
                        back[out + b] += probability * terms.phi[values + b]


@njit(nogil=True)
def _fill(
    coefficients: Any, weights: Floats, discount: float, own_share: float, out: Floats
) -> None:
    forms = Coefficients(*coefficients)
    columns, constant, back, own = forms.columns, forms.constant, forms.back, forms.own
    for f in range(forms.first_entry.shape[0] - 1):
        first_column = forms.first_column[f]
        n_columns = forms.first_column[f + 1] - first_column
        at = forms.first_coefficient[f]
        for e in range(forms.first_entry[f], forms.first_entry[f + 1]):
            total = constant[e]
            for c in range(n_columns):
                total += weights[columns[first_column + c]] * (
                    discount * back[at + c] - own_share * own[at + c]
                )
            out[e] = total
            at += n_columns
