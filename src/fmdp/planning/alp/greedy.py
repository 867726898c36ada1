"""Greedy policies by elimination: argmax over a of Q(s, a) = sum_f T_f(s, a), state by state.

Q is a sum of functions of few variables (R + g P h_w by factor), so nothing is tabulated over the
states, and joint actions are never enumerated. With one action variable the sum is a vector over
its values, most of which share most of their terms. With several it is a cost network over the
action variables, prepared once. Targets of optimistic tables, and counters of caps, are eliminated
with the actions. Forbidden actions have the value minus infinity.

Ties: actions within `slack.tie_slack` of the best are tied, and the rule of elimination/ties.py
chooses among them; values are in units of `BellmanResidual.unit`. Several action variables are
fixed one by one, in the reverse of the elimination order, each by the rule among the values that a
tied joint action can still have. So exactly the tied joint actions can be chosen. The policy is a
deterministic function of the state.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import NEVER, Deadline
from fmdp._base.memory import describe_count
from fmdp._base.parameters import quoted
from fmdp.elimination.network import Network
from fmdp.elimination.ties import rule_code
from fmdp.errors import InvalidParameter
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import count, starts, strides
from fmdp.model.structure import MAX_SIZE, Scope
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.greedy_kernels import (
    Query,
    TableLayout,
    choose_jointly,
    choose_jointly_each,
    choose_single,
    choose_single_each,
    extract,
)
from fmdp.planning.policies.archive import (
    Parts,
    StoredPolicy,
    array_in,
    sizes_in,
    starts_in,
    whole_numbers_in,
)
from fmdp.planning.policies.policy import (
    MOST_NUMBERED,
    Policy,
    TablePolicy,
    refuse_unnumbered,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LARGEST = 1e100
"""Largest value accepted from a file, in units of the residual: sums of them stay finite."""


@dataclass(frozen=True, eq=False)
class QFunctions:
    """The scopes of Q's functions, and the layout of their tables.

    Decision variables are the action variables, followed by the targets that several functions
    share.
    """

    state_sizes: tuple[int, ...]
    decision_sizes: tuple[int, ...]
    n_actions: int
    """Number of action variables, the first decision variables."""
    decision_scopes: tuple[Scope, ...]
    layout: TableLayout

    @property
    def single(self) -> bool:
        return len(self.decision_sizes) == 1


class GreedyExtractor:
    """Extracts greedy policies from a Bellman residual; prepared once for its network."""

    def __init__(self, residual: BellmanResidual, deadline: Deadline = NEVER) -> None:
        structure = residual.structure
        m, n_actions = structure.m, len(structure.action_sizes)
        first_target = m + n_actions
        tables = [_Table(residual, f) for f in range(len(residual.tables.functions))]
        uses = np.zeros(len(residual.sizes), dtype=np.int64)
        for table in tables:
            uses[list(table.variables)] += 1
        shared = [v for v in range(first_target, len(residual.sizes)) if uses[v] > 1]
        number = {v: d for d, v in enumerate([*range(m, first_target), *shared])}
        single = len(number) == 1
        pools: list[Ints] = []
        widths: list[int] = []
        base = [0]
        state_variables: list[int] = []
        state_steps: list[int] = []
        state_start = [0]
        decision_scopes: list[Scope] = []
        special: list[tuple[Ints, Ints]] = []
        for table in tables:
            deadline.check()
            states = sorted(v for v in table.variables if v < m)
            chosen = sorted((v for v in table.variables if v in number), key=lambda v: number[v])
            hidden = [v for v in table.variables if v >= first_target and v not in number]
            if single:
                columns, slice_of = table.slices(m)
                differs = np.flatnonzero(slice_of)
                special.append((differs, slice_of[differs]))
            else:
                columns = table.positions(chosen)
            rows, inner = table.positions(states), table.positions(hidden)
            pool = rows[:, None, None] + columns[None, :, None] + inner[None, None, :]
            pools.append(pool.ravel() + table.offset)
            widths.append(len(inner))
            base.append(base[-1] + len(rows) * len(columns))
            state_variables += states
            sizes = [residual.sizes[v] for v in states]
            state_steps += [len(columns) * step for step in strides(sizes)]
            state_start.append(len(state_variables))
            decision_scopes.append(tuple(number[v] for v in chosen))
        self.q = QFunctions(
            state_sizes=structure.state_sizes,
            decision_sizes=tuple(residual.sizes[v] for v in number),
            n_actions=n_actions,
            decision_scopes=tuple(decision_scopes),
            layout=TableLayout(
                state_variables=np.array(state_variables, dtype=np.int64),
                state_steps=np.array(state_steps, dtype=np.int64),
                state_start=np.array(state_start, dtype=np.int64),
                base=np.array(base, dtype=np.int64),
                special_start=starts([len(actions) for actions, _ in special]),
                special_action=_joined([actions for actions, _ in special]),
                special_slice=_joined([slices for _, slices in special]),
            ),
        )
        self._residual = residual
        self._pool = _joined(pools)
        self._widths = np.array(widths, dtype=np.int64)
        self._network = None if single else _decision_network(self.q)

    def policy(self, weights: Floats, discount: float, ties: str, tie_seed: int) -> GreedyPolicy:
        """Return the greedy policy for R + discount P h_w; weights in units of the residual."""
        self._residual.fill(weights, discount, subtract_current=False)
        base = self.q.layout.base
        values = np.empty(int(base[-1]))
        extract(self._residual.tables.buffer, self._pool, self._widths, base, values)
        naming = self._residual.structure.naming
        return GreedyPolicy(self.q, values, ties, tie_seed, self._network, naming)


class _Table:
    """The position of each assignment in the table of one function of the network."""

    def __init__(self, residual: BellmanResidual, f: int) -> None:
        function = residual.tables.functions[f]
        self.offset = function.offset
        self._sizes = residual.sizes
        self._rows = function.rows
        self._n_slices = function.slices
        self._slice_of = residual.tables.slices_of(f)
        self._context = function.context if self._slice_of is not None else -1
        sizes = [residual.sizes[v] for v in function.scope]
        self._step = dict(zip(function.scope, strides(sizes), strict=True))
        self.variables = function.scope
        if self._context >= 0:
            self.variables = (*function.scope, self._context)

    def positions(self, variables: Sequence[int]) -> Ints:
        """Return the positions of all assignments of these variables in C order, the other
        variables at 0."""
        total = np.zeros(1, dtype=np.int64)
        for v in variables:
            if v == self._context and self._slice_of is not None:
                along = self._slice_of * self._rows
            else:
                along = np.arange(self._sizes[v]) * self._step[v]
            total = (total[:, None] + along[None, :]).ravel()
        return total

    def slices(self, action: int) -> tuple[Ints, Ints]:
        """Return the positions of the distinct decisions of an action variable, and the decision of
        each of its values."""
        if action == self._context and self._slice_of is not None:
            return np.arange(self._n_slices) * self._rows, self._slice_of
        if action in self._step:
            values = np.arange(self._sizes[action])
            return values * self._step[action], values
        return np.zeros(1, dtype=np.int64), np.zeros(self._sizes[action], dtype=np.int64)


class GreedyPolicy(StoredPolicy, Policy):
    """The argmax over the actions of a sum of functions; the module describes ties."""

    kind = "greedy"

    def __init__(
        self,
        q: QFunctions,
        values: Floats,
        ties: str,
        tie_seed: int,
        network: Network | None = None,
        naming: Naming | None = None,
    ) -> None:
        self.q = q
        self.values = values
        self.ties = ties
        self.tie_seed = tie_seed
        super().__init__(q.state_sizes, q.decision_sizes[: q.n_actions], naming)
        self._sizes = np.array(q.state_sizes, dtype=np.int64)
        query = Query(
            sizes=self._sizes,
            decision_sizes=np.array(q.decision_sizes, dtype=np.int64),
            n_actions=q.n_actions,
            indexed=count(q.state_sizes) <= 1 << 62,
            rule=rule_code(ties),
            seed=tie_seed,
            values=values,
            forbids=bool(np.isneginf(values).any()),
            layout=tuple(q.layout),
        )
        # Numba needs a fifth of the time of a call to find the type of named tuples.
        self._query = tuple(query)
        if network is None and not q.single:
            network = _decision_network(q)
        self._network = network

    def __repr__(self) -> str:
        states, actions = (describe_count(count(s)) for s in (self.state_sizes, self.action_sizes))
        return f"GreedyPolicy({states} states, {actions} actions)"

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        given = np.array(self.naming.states.check(state, "state"), dtype=np.int64)
        if self._network is None:
            action = np.empty(1, dtype=np.int64)
            choose_single(self._query, given, action)
            chosen = (int(action[0]),)
        else:
            decisions = np.empty((1, len(self.q.decision_sizes)), dtype=np.int64)
            choose_jointly(self._query, self._network.packed, given, decisions)
            chosen = tuple(decisions[0, : self.q.n_actions].tolist())
        return self.naming.answer(chosen, state)

    def actions_of(self, states: Ints) -> Ints:
        """Return the actions of many states, [states, action variables]."""
        given = np.ascontiguousarray(states, dtype=np.int64)
        decisions = np.empty((len(given), len(self.q.decision_sizes)), dtype=np.int64)
        if self._network is None:
            choose_single_each(self._query, given, decisions[:, 0])
        else:
            choose_jointly_each(self._query, self._network.packed, given, decisions)
        return decisions[:, : self.q.n_actions]

    def functions_at(self, state: Sequence[int]) -> tuple[tuple[Scope, ...], tuple[Floats, ...]]:
        """Return the scopes and tables of functions of the action variables, numbered from 0, whose
        sum is Q in one state up to a constant, in units of the residual."""
        q, layout = self.q, self.q.layout
        scopes: list[Scope] = []
        tables: list[Floats] = []
        for f, scope in enumerate(q.decision_scopes):
            at = int(layout.base[f])
            for position in range(int(layout.state_start[f]), int(layout.state_start[f + 1])):
                variable = int(layout.state_variables[position])
                at += int(layout.state_steps[position]) * int(state[variable])
            if q.single:
                table = np.full(q.decision_sizes[0], self.values[at])
                special = slice(int(layout.special_start[f]), int(layout.special_start[f + 1]))
                table[layout.special_action[special]] = self.values[
                    at + layout.special_slice[special]
                ]
            else:
                table = self.values[at : at + count([q.decision_sizes[d] for d in scope])]
            if any(d >= q.n_actions for d in scope):
                if not np.isin(table, (0.0, -np.inf)).all():
                    raise InvalidParameter("a policy with optimistic targets has no such values")
                continue  # a function of counters only forbids
            scopes.append((0,) if q.single else scope)
            tables.append(table)
        return tuple(scopes), tuple(tables)

    def tabulate_up_to(self, most_states: int) -> Policy:
        """Return the policy as a table if it has few enough states, and actions to number."""
        fits = count(self.state_sizes) <= most_states
        return self.tabulate() if fits and count(self.action_sizes) < MOST_NUMBERED else self

    def tabulate(self) -> TablePolicy:
        """Return the same policy as a table over all states."""
        refuse_unnumbered(self.action_sizes)
        n_states = count(self.state_sizes)
        first = np.zeros(len(self.state_sizes), dtype=np.int64)
        if self._network is None:
            actions = np.empty(n_states, dtype=np.int64)
            choose_single(self._query, first, actions)
        else:
            decisions = np.empty((n_states, len(self.q.decision_sizes)), dtype=np.int64)
            choose_jointly(self._query, self._network.packed, first, decisions)
            actions = decisions[:, : self.q.n_actions] @ np.array(strides(self.action_sizes))
        table = TablePolicy(self.state_sizes, self.action_sizes, actions, self.naming)
        table.take_constraints(self.constraints)
        return table

    def content(self) -> Parts:
        q = self.q
        header = {
            "decision_sizes": q.decision_sizes,
            "ties": self.ties,
            "tie_seed": self.tie_seed,
        }
        arrays = q.layout._asdict()
        arrays["decision_start"] = starts([len(scope) for scope in q.decision_scopes])
        arrays["decision_variables"] = np.array(
            [d for scope in q.decision_scopes for d in scope], dtype=np.int64
        )
        return header, {**arrays, "values": self.values}

    @classmethod
    def from_archive(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> GreedyPolicy:
        """Return the policy of a policy file.

        Raise InvalidParameter unless every position lies inside a function's table, because
        compiled code does not check bounds.
        """
        state_sizes, action_sizes = sizes_in(header)
        decision_sizes = whole_numbers_in(header, "decision_sizes", 1, MAX_SIZE)
        if decision_sizes[: len(action_sizes)] != action_sizes:
            raise InvalidParameter("its decision_sizes do not begin with its action_sizes")
        ties, seed = header.get("ties"), header.get("tie_seed")
        if not isinstance(ties, str) or type(seed) is not int or not 0 <= seed < 2**32:
            raise InvalidParameter(f"its ties {quoted(ties)} and tie_seed {quoted(seed)} are none")
        values = arrays.get("values", np.zeros(0))
        if values.dtype == np.float64:
            # Forbidden entries are minus infinity; all others must be numbers.
            arrays = {**arrays, "values": np.where(np.isneginf(values), 0.0, values)}
        array_in(arrays, "values", "f", (None,), -_LARGEST, _LARGEST)
        n_functions = len(array_in(arrays, "base", "i", (None,))) - 1
        scopes = _runs(arrays, "decision", "variables", n_functions, len(decision_sizes))
        q = QFunctions(
            state_sizes=state_sizes,
            decision_sizes=decision_sizes,
            n_actions=len(action_sizes),
            decision_scopes=tuple(tuple(scope) for scope in scopes),
            layout=TableLayout._make(
                array_in(arrays, name, "i", (None,)) for name in TableLayout._fields
            ),
        )
        _check_layout(q, len(values))
        return cls(q, values, ties, seed)


def _runs(
    arrays: Mapping[str, NDArray[Any]], head: str, tail: str, n: int, size: int
) -> list[list[int]]:
    """Return n runs of ascending numbers below the size, from a flat array and its starts."""
    flat = array_in(arrays, f"{head}_{tail}", "i", (None,), 0, size - 1)
    first = starts_in(arrays, f"{head}_start", n, f"{head}_{tail}")
    runs = [flat[start:end].tolist() for start, end in itertools.pairwise(first.tolist())]
    if any(a >= b for run in runs for a, b in itertools.pairwise(run)):
        raise InvalidParameter(f"its part '{head}_{tail}' names a variable twice, or in disorder")
    return runs


def _check_layout(q: QFunctions, n_values: int) -> None:
    """Raise InvalidParameter unless the tables [state rows, decisions] of the functions fill the
    values without gaps and every position is inside its table."""
    layout = q.layout
    n = len(layout.base) - 1
    arrays = layout._asdict()
    states = _runs(arrays, "state", "variables", n, len(q.state_sizes))
    array_in(arrays, "state_steps", "i", layout.state_variables.shape)
    specials = n if q.single else 0
    n_special = len(layout.special_action)
    array_in(arrays, "special_action", "i", (n_special,), 0, q.decision_sizes[0] - 1)
    array_in(arrays, "special_slice", "i", (n_special,), 0)
    array_in(arrays, "special_start", "i", (specials + 1,), 0, n_special)
    bounds = (layout.base, n_values), (layout.special_start, n_special)
    if any(at[0] != 0 or at[-1] != end or (np.diff(at) < 0).any() for at, end in bounds):
        raise InvalidParameter("its parts 'base' and 'special_start' do not divide its values")
    for f, variables in enumerate(states):
        sizes = [q.state_sizes[v] for v in variables]
        rows, entries = count(sizes), int(layout.base[f + 1] - layout.base[f])
        if q.single:
            width = entries // rows
            special = slice(int(layout.special_start[f]), int(layout.special_start[f + 1]))
            inside = bool((layout.special_slice[special] < width).all())
        else:
            width = count([q.decision_sizes[d] for d in q.decision_scopes[f]])
            inside = True
        steps = [width * step for step in strides(sizes)]
        first, end = layout.state_start[f], layout.state_start[f + 1]
        if (
            not inside
            or width < 1
            or rows * width != entries
            or steps != layout.state_steps[first:end].tolist()
        ):
            raise InvalidParameter(f"the table of its function {f} is not where its scope says")


def _decision_network(q: QFunctions) -> Network:
    """Return the cost network over the decisions at one state: trees of eliminations without
    contexts, as `choose_jointly` requires."""
    scopes = q.decision_scopes
    return Network(q.decision_sizes, scopes, contexts=[-1] * len(scopes))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)
