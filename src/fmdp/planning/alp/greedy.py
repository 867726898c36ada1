"""Greedy policies by elimination: argmax over a of Q(s, a) = sum_f T_f(s, a), asked state by state.

Q is a sum of functions of few variables (R + g P h_w by factor), so nothing is tabulated over the
states, and joint actions are never enumerated: with one action variable the sum is a vector over
its values (most of which share most of their terms), with several it is a cost network over the
action variables, prepared once. Targets of optimistic tables, and counters of caps, are eliminated
with the actions. What is forbidden is worth minus infinity.

Ties: actions as good as the best up to `slack.tie_slack` are tied, and elimination/ties.py says
which is taken; values are in the unit of the forms. With several action variables their values are
fixed one variable after the other, in the reverse of the elimination order; of the values from
which a tied joint action can still be reached the rule takes one, so that exactly the tied joint
actions can be chosen. The policy is a deterministic function of the state.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.compiled import njit
from fmdp._base.deadlines import Look, nothing
from fmdp._base.memory import describe_count
from fmdp._base.parameters import quoted
from fmdp.elimination import maxsum
from fmdp.elimination.maxsum import Messages, Packed, Schedule
from fmdp.elimination.network import Network
from fmdp.elimination.ties import mix, rule_code, tie_hash
from fmdp.errors import InvalidParameter
from fmdp.model.constraints import Constraint
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import count, starts, strides
from fmdp.model.structure import MAX_SIZE, Scope
from fmdp.planning.alp.forms import Forms
from fmdp.planning.alp.slack import tie_slack
from fmdp.planning.policies.archive import Parts, array_in, sizes_in, whole_numbers_in, write_policy
from fmdp.planning.policies.policy import TablePolicy, naming_for

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_LARGEST = 1e100
"""Of a value in a file, in the unit of the forms: sums of them stay numbers."""


class Places(NamedTuple):
    """Where Q's functions lie in a policy's array of values: [state rows, decisions] each.

    With a single decision variable a function has one decision for each slice, slice 0 being what
    most actions see: the specials are the (action, slice) that differ.
    """

    state_variables: Ints  # flat: the state variables of every function
    state_steps: Ints  # flat: and their steps in its table
    state_start: Ints  # [functions + 1]: where a function's begin
    base: Ints  # [functions + 1]: where its table begins
    special_start: Ints  # [functions + 1]
    special_action: Ints
    special_slice: Ints


@dataclass(frozen=True, eq=False)
class Lookup:
    """What Q's functions are functions of, and where they lie.

    Decision variables are the action variables and, behind them, the targets that several
    functions share.
    """

    state_sizes: tuple[int, ...]
    decision_sizes: tuple[int, ...]
    n_actions: int
    """So many of the decision variables, the first ones, are action variables."""
    decision_scopes: tuple[Scope, ...]
    places: Places

    @property
    def single(self) -> bool:
        return len(self.decision_sizes) == 1


class Extractor:
    """Takes the values of Q out of the forms' network; prepared once for a network."""

    def __init__(self, forms: Forms, look: Look = nothing) -> None:
        structure = forms.structure
        m, n_actions = structure.m, len(structure.action_sizes)
        first_target = m + n_actions
        tables = [_Table(forms, f) for f in range(len(forms.tables.functions))]
        uses = np.zeros(len(forms.sizes), dtype=np.int64)
        for table in tables:
            uses[list(table.variables)] += 1
        shared = [v for v in range(first_target, len(forms.sizes)) if uses[v] > 1]
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
            look()
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
            sizes = [forms.sizes[v] for v in states]
            state_steps += [len(columns) * step for step in strides(sizes)]
            state_start.append(len(state_variables))
            decision_scopes.append(tuple(number[v] for v in chosen))
        self.lookup = Lookup(
            state_sizes=structure.state_sizes,
            decision_sizes=tuple(forms.sizes[v] for v in number),
            n_actions=n_actions,
            decision_scopes=tuple(decision_scopes),
            places=Places(
                state_variables=np.array(state_variables, dtype=np.int64),
                state_steps=np.array(state_steps, dtype=np.int64),
                state_start=np.array(state_start, dtype=np.int64),
                base=np.array(base, dtype=np.int64),
                special_start=starts([len(actions) for actions, _ in special]),
                special_action=_joined([actions for actions, _ in special]),
                special_slice=_joined([slices for _, slices in special]),
            ),
        )
        self._forms = forms
        self._pool = _joined(pools)
        self._widths = np.array(widths, dtype=np.int64)
        self._network = None if single else _decision_network(self.lookup)

    def policy(self, weights: Floats, discount: float, ties: str, tie_seed: int) -> GreedyPolicy:
        """The policy that is greedy for R + discount P h_w; weights in the unit of the forms."""
        self._forms.fill(weights, discount, own=False)
        base = self.lookup.places.base
        values = np.empty(int(base[-1]))
        _extract(self._forms.tables.buffer, self._pool, self._widths, base, values)
        naming = self._forms.structure.naming
        return GreedyPolicy(self.lookup, values, ties, tie_seed, self._network, naming)


class _Table:
    """One function of the forms' network: where the entry of an assignment lies."""

    def __init__(self, forms: Forms, f: int) -> None:
        function = forms.tables.functions[f]
        self.offset = function.offset
        self._sizes = forms.sizes
        self._rows = function.rows
        self._n_slices = function.slices
        self._slice_of = forms.tables.slices_of(f)
        self._context = function.context if self._slice_of is not None else -1
        own = [forms.sizes[v] for v in function.scope]
        self._step = dict(zip(function.scope, strides(own), strict=True))
        self.variables = function.scope
        if self._context >= 0:
            self.variables = (*function.scope, self._context)

    def positions(self, variables: Sequence[int]) -> Ints:
        """Of all assignments of these variables, C order, the other variables at 0."""
        total = np.zeros(1, dtype=np.int64)
        for v in variables:
            if v == self._context and self._slice_of is not None:
                along = self._slice_of * self._rows
            else:
                along = np.arange(self._sizes[v]) * self._step[v]
            total = (total[:, None] + along[None, :]).ravel()
        return total

    def slices(self, action: int) -> tuple[Ints, Ints]:
        """Positions of the distinct decisions of one action variable, and which each value sees."""
        if action == self._context and self._slice_of is not None:
            return np.arange(self._n_slices) * self._rows, self._slice_of
        if action in self._step:
            values = np.arange(self._sizes[action])
            return values * self._step[action], values
        return np.zeros(1, dtype=np.int64), np.zeros(self._sizes[action], dtype=np.int64)


class GreedyPolicy:
    """argmax over the actions of a sum of functions; see the module's text for ties."""

    kind: ClassVar[str] = "greedy"
    constraints: tuple[Constraint, ...] | None = None
    """Constraints of the model that it was planned for; None where they are not known."""

    def __init__(
        self,
        lookup: Lookup,
        values: Floats,
        ties: str,
        tie_seed: int,
        network: Network | None = None,
        naming: Naming | None = None,
    ) -> None:
        self.lookup = lookup
        self.values = values
        self.ties = ties
        self.tie_seed = tie_seed
        self.state_sizes = lookup.state_sizes
        self.action_sizes = lookup.decision_sizes[: lookup.n_actions]
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)
        self._sizes = np.array(lookup.state_sizes, dtype=np.int64)
        query = _Query(
            sizes=self._sizes,
            decision_sizes=np.array(lookup.decision_sizes, dtype=np.int64),
            n_actions=lookup.n_actions,
            indexed=count(lookup.state_sizes) <= 1 << 62,
            rule=rule_code(ties),
            seed=tie_seed,
            values=values,
            places=tuple(lookup.places),
        )
        # Plain tuples: to tell the type of named ones would be a fifth of the time of a call.
        self._query = tuple(query)
        if network is None and not lookup.single:
            network = _decision_network(lookup)
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
            _choose_one(self._query, given, action)
            chosen = (int(action[0]),)
        else:
            decisions = np.empty((1, len(self.lookup.decision_sizes)), dtype=np.int64)
            _choose_jointly(self._query, self._network.packed, given, decisions)
            chosen = tuple(decisions[0, : self.lookup.n_actions].tolist())
        return self.naming.answer(chosen, state)

    def actions_of(self, states: Ints) -> Ints:
        """The actions of many states, [states, action variables]."""
        given = np.ascontiguousarray(states, dtype=np.int64)
        decisions = np.empty((len(given), len(self.lookup.decision_sizes)), dtype=np.int64)
        if self._network is None:
            _choose_one_each(self._query, given, decisions)
        else:
            _choose_jointly_each(self._query, self._network.packed, given, decisions)
        return decisions[:, : self.lookup.n_actions]

    def functions_at(self, state: Sequence[int]) -> tuple[tuple[Scope, ...], tuple[Floats, ...]]:
        """Q in one state as a sum of functions of action variables, from 0, in the unit of the
        forms and up to a constant: their scopes and tables."""
        lookup, places = self.lookup, self.lookup.places
        scopes: list[Scope] = []
        tables: list[Floats] = []
        for f, scope in enumerate(lookup.decision_scopes):
            at = int(places.base[f])
            for position in range(int(places.state_start[f]), int(places.state_start[f + 1])):
                variable = int(places.state_variables[position])
                at += int(places.state_steps[position]) * int(state[variable])
            if lookup.single:
                table = np.full(lookup.decision_sizes[0], self.values[at])
                special = slice(int(places.special_start[f]), int(places.special_start[f + 1]))
                table[places.special_action[special]] = self.values[
                    at + places.special_slice[special]
                ]
            else:
                table = self.values[at : at + count([lookup.decision_sizes[d] for d in scope])]
            if any(d >= lookup.n_actions for d in scope):
                if not np.isin(table, (0.0, -np.inf)).all():
                    raise InvalidParameter("a policy with optimistic targets has no such values")
                continue  # counts for a cap, and no value
            scopes.append((0,) if lookup.single else scope)
            tables.append(table)
        return tuple(scopes), tuple(tables)

    def take_names(self, naming: Naming) -> None:
        """Be asked by these names from now on."""
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)

    def tabulate(self) -> TablePolicy:
        """The same policy as a table over all states."""
        n_states = count(self.state_sizes)
        first = np.zeros(len(self.state_sizes), dtype=np.int64)
        if self._network is None:
            actions = np.empty(n_states, dtype=np.int64)
            _choose_one(self._query, first, actions)
        else:
            decisions = np.empty((n_states, len(self.lookup.decision_sizes)), dtype=np.int64)
            _choose_jointly(self._query, self._network.packed, first, decisions)
            actions = decisions[:, : self.lookup.n_actions] @ np.array(strides(self.action_sizes))
        table = TablePolicy(self.state_sizes, self.action_sizes, actions, self.naming)
        table.constraints = self.constraints
        return table

    def save(self, path: str | os.PathLike[str]) -> None:
        write_policy(path, self)

    def parts(self) -> Parts:
        lookup = self.lookup
        header = {
            "state_sizes": lookup.state_sizes,
            "action_sizes": self.action_sizes,
            "decision_sizes": lookup.decision_sizes,
            "ties": self.ties,
            "tie_seed": self.tie_seed,
        }
        arrays = lookup.places._asdict()
        arrays["decision_start"] = starts([len(scope) for scope in lookup.decision_scopes])
        arrays["decision_variables"] = np.array(
            [d for scope in lookup.decision_scopes for d in scope], dtype=np.int64
        )
        return header, {**arrays, "values": self.values}

    @classmethod
    def from_archive(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> GreedyPolicy:
        """The policy in the parts of a policy file, or InvalidParameter: compiled code will look
        wherever its places point, so that every one must be where a function's table is."""
        state_sizes, action_sizes = sizes_in(header)
        decision_sizes = whole_numbers_in(header, "decision_sizes", 1, MAX_SIZE)
        if decision_sizes[: len(action_sizes)] != action_sizes:
            raise InvalidParameter("its decision_sizes do not begin with its action_sizes")
        ties, seed = header.get("ties"), header.get("tie_seed")
        if not isinstance(ties, str) or type(seed) is not int or not 0 <= seed < 2**32:
            raise InvalidParameter(f"its ties {quoted(ties)} and tie_seed {quoted(seed)} are none")
        values = arrays.get("values", np.zeros(0))
        if values.dtype == np.float64:
            # What is forbidden is minus infinity; all else must be numbers.
            known = np.where(np.isneginf(values), 0.0, values)
            arrays = {**arrays, "values": known}
        array_in(arrays, "values", "f", (None,), -_LARGEST, _LARGEST)
        n_functions = len(array_in(arrays, "base", "i", (None,))) - 1
        scopes = _runs(arrays, "decision", "variables", n_functions, len(decision_sizes))
        lookup = Lookup(
            state_sizes=state_sizes,
            decision_sizes=decision_sizes,
            n_actions=len(action_sizes),
            decision_scopes=tuple(tuple(scope) for scope in scopes),
            places=Places(*(array_in(arrays, name, "i", (None,)) for name in Places._fields)),
        )
        _check_places(lookup, len(values))
        return cls(lookup, values, ties, seed)


def _runs(
    arrays: Mapping[str, NDArray[Any]], head: str, tail: str, n: int, size: int
) -> list[list[int]]:
    """n runs of ascending numbers below the size: flat, with where each begins."""
    flat = array_in(arrays, f"{head}_{tail}", "i", (None,), 0, size - 1)
    first = array_in(arrays, f"{head}_start", "i", (n + 1,), 0, len(flat))
    if first[0] != 0 or first[-1] != len(flat) or (np.diff(first) < 0).any():
        raise InvalidParameter(f"its part '{head}_start' does not divide '{head}_{tail}'")
    runs = [flat[start:end].tolist() for start, end in itertools.pairwise(first.tolist())]
    if any(a >= b for run in runs for a, b in itertools.pairwise(run)):
        raise InvalidParameter(f"its part '{head}_{tail}' names a variable twice, or in disorder")
    return runs


def _check_places(lookup: Lookup, n_values: int) -> None:
    """InvalidParameter unless every function has a table [state rows, decisions] of its own, all of
    them end to end, and every place is inside."""
    places = lookup.places
    n = len(places.base) - 1
    arrays = places._asdict()
    states = _runs(arrays, "state", "variables", n, len(lookup.state_sizes))
    array_in(arrays, "state_steps", "i", places.state_variables.shape)
    specials = n if lookup.single else 0
    n_special = len(places.special_action)
    array_in(arrays, "special_action", "i", (n_special,), 0, lookup.decision_sizes[0] - 1)
    array_in(arrays, "special_slice", "i", (n_special,), 0)
    array_in(arrays, "special_start", "i", (specials + 1,), 0, n_special)
    bounds = (places.base, n_values), (places.special_start, n_special)
    if any(at[0] != 0 or at[-1] != end or (np.diff(at) < 0).any() for at, end in bounds):
        raise InvalidParameter("its parts 'base' and 'special_start' do not divide its values")
    for f, variables in enumerate(states):
        sizes = [lookup.state_sizes[v] for v in variables]
        rows, entries = count(sizes), int(places.base[f + 1] - places.base[f])
        if lookup.single:
            width = entries // rows
            own = slice(int(places.special_start[f]), int(places.special_start[f + 1]))
            inside = bool((places.special_slice[own] < width).all())
        else:
            width = count([lookup.decision_sizes[d] for d in lookup.decision_scopes[f]])
            inside = True
        steps = [width * step for step in strides(sizes)]
        first, end = places.state_start[f], places.state_start[f + 1]
        if (
            not inside
            or width < 1
            or rows * width != entries
            or steps != places.state_steps[first:end].tolist()
        ):
            raise InvalidParameter(f"the table of its function {f} is not where its scope says")


def _decision_network(lookup: Lookup) -> Network:
    """The cost network over the decisions at one state: trees of plain eliminations, no context,
    which is what `_choose_jointly` walks down."""
    scopes = lookup.decision_scopes
    return Network(lookup.decision_sizes, scopes, contexts=[-1] * len(scopes))


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, dtype=np.int64)


# -- compiled -------------------------------------------------------------------------------------


@njit(nogil=True)
def _extract(buffer: Floats, pool: Ints, widths: Ints, base: Ints, values: Floats) -> None:
    at = 0
    for f in range(widths.shape[0]):
        for entry in range(base[f], base[f + 1]):
            best = -np.inf
            for _ in range(widths[f]):
                best = max(best, buffer[pool[at]])
                at += 1
            values[entry] = best


class _Query(NamedTuple):
    """All of a policy that does not change from state to state."""

    sizes: Ints
    decision_sizes: Ints
    n_actions: int
    indexed: bool
    """Whether a state's index is its key for ties."""
    rule: int
    seed: int
    values: Floats
    places: tuple[Ints, ...]
    """The arrays of `Places`."""


@njit(nogil=True)
def _key(state: Ints, sizes: Ints, indexed: bool) -> np.uint64:
    """The same as elimination.ties.state_key."""
    if indexed:
        index = np.int64(0)
        for v in range(sizes.shape[0]):
            index = index * sizes[v] + state[v]
        return np.uint64(index)
    key = np.uint64(0)
    for v in range(sizes.shape[0]):
        key = mix(key ^ np.uint64(state[v]))
    return key >> np.uint64(1)


@njit(nogil=True)
def _better(rule: int, seed: int, key: Any, candidate: int, incumbent: int) -> bool:
    """Whether the rule prefers a tied candidate to a tied incumbent of lower index."""
    if rule == 0:
        return bool(tie_hash(seed, key, candidate) < tie_hash(seed, key, incumbent))
    return rule == 2


@njit(nogil=True)
def _choose_one(packed: Any, state: Ints, actions: Ints) -> None:
    """The actions of the given state (moved in place) and of those that follow it in C order."""
    query = _Query(*packed)
    places, values = Places(*query.places), query.values
    variables, steps = places.state_variables, places.state_steps
    q = np.empty(query.decision_sizes[0])
    bars = np.empty(query.decision_sizes[0], dtype=np.int64)
    for asked in range(actions.shape[0]):
        total = 0.0
        size = 0.0
        q[:] = 0.0
        # How many functions forbid an action, apart from the sums: infinities do not cancel.
        bars_of_all = 0
        bars[:] = 0
        for f in range(places.base.shape[0] - 1):
            at = places.base[f]
            for position in range(places.state_start[f], places.state_start[f + 1]):
                at += steps[position] * state[variables[position]]
            usual = values[at]
            barred = usual == -np.inf
            if barred:
                bars_of_all += 1
                usual = 0.0
            total += usual
            size += abs(usual)
            for s in range(places.special_start[f], places.special_start[f + 1]):
                own = values[at + places.special_slice[s]]
                if own == -np.inf:
                    bars[places.special_action[s]] += 0 if barred else 1
                    continue
                bars[places.special_action[s]] -= 1 if barred else 0
                q[places.special_action[s]] += own - usual
        best = -np.inf
        for a in range(q.shape[0]):
            q[a] = q[a] + total if bars[a] + bars_of_all == 0 else -np.inf
            best = max(best, q[a])
        least = best - tie_slack(size)
        key = _key(state, query.sizes, query.indexed)
        chosen = -1
        for a in range(q.shape[0]):
            if q[a] >= least and (chosen < 0 or _better(query.rule, query.seed, key, a, chosen)):
                chosen = a
        actions[asked] = max(chosen, 0)
        _next_state(state, query.sizes)


@njit(nogil=True)
def _choose_jointly(packed: Any, network: Packed, state: Ints, decisions: Any) -> None:
    """The decisions of the given state (moved in place) and of those that follow it in C order.

    At each, fill the network, maximise, and walk down from the root with what slack the tie
    tolerance leaves.
    """
    query = _Query(*packed)
    places, values = Places(*query.places), query.values
    variables, steps = places.state_variables, places.state_steps
    schedule, messages = Schedule(*network[0]), Messages(*network[1])
    buffer, best, stack = messages.buffer, messages.best, messages.stack
    maps, input_map, input_at = schedule.maps, schedule.input_map, schedule.input_at
    n_functions = buffer.shape[0] - best.shape[0]
    for asked in range(decisions.shape[0]):
        to = 0
        size = 0.0
        for f in range(places.base.shape[0] - 1):
            at = places.base[f]
            rows = places.base[f + 1] - at
            for position in range(places.state_start[f], places.state_start[f + 1]):
                at += steps[position] * state[variables[position]]
                rows //= query.sizes[variables[position]]
            largest = 0.0
            for entry in range(rows):
                value = values[at + entry]
                buffer[to] = value
                if value != -np.inf:
                    largest = max(largest, abs(value))
                to += 1
            size += largest
        maxsum.evaluate(network)
        key = _key(state, query.sizes, query.indexed)
        chosen = decisions[asked]
        chosen[:] = -1
        depth = 1
        stack[0] = buffer.shape[0] - 1
        slack = tie_slack(size)
        while depth > 0:
            depth -= 1
            entry = stack[depth]
            item = schedule.owner[entry - n_functions]
            block = schedule.item_block[item]
            first_map = schedule.block_inputs[block]
            n_inputs = schedule.block_inputs[block + 1] - first_map
            reads = schedule.item_input[item]
            options = schedule.block_joint[block] // schedule.block_out_size[block]
            first = (entry - schedule.item_out[item]) * options
            j = best[entry - n_functions]
            variable = -1  # the fastest of the joint table, over which is maximised
            if schedule.first_variable[block + 1] > schedule.first_variable[block]:
                variable = schedule.variables[schedule.first_variable[block + 1] - 1]
            if 0 <= variable < query.n_actions:
                own_key = _key_of(key, variable, query.n_actions)
                taken = -1
                lost = 0.0
                for option in range(options):
                    total = 0.0
                    for q in range(n_inputs):
                        place = input_map[first_map + q] + first + option
                        total += buffer[input_at[reads + q] + maps[place]]
                    loss = buffer[entry] - total
                    if loss <= slack and (
                        taken < 0 or _better(query.rule, query.seed, own_key, option, taken)
                    ):
                        taken = option
                        lost = loss
                slack -= lost
                taken = max(taken, 0)  # only a file that lies forbids all
                chosen[variable] = taken
                j = first + taken
            for q in range(n_inputs):
                read = input_at[reads + q] + maps[input_map[first_map + q] + j]
                if read >= n_functions:
                    stack[depth] = read
                    depth += 1
        for variable in range(query.n_actions):
            if chosen[variable] < 0:  # no function mentions it: all its values are tied
                own_key = _key_of(key, variable, query.n_actions)
                chosen[variable] = 0
                for option in range(1, query.decision_sizes[variable]):
                    if _better(query.rule, query.seed, own_key, option, chosen[variable]):
                        chosen[variable] = option
        _next_state(state, query.sizes)


@njit(nogil=True)
def _choose_one_each(packed: Any, states: Ints, decisions: Ints) -> None:
    """As `_choose_one`, of every row of states alone."""
    for r in range(states.shape[0]):
        _choose_one(packed, states[r].copy(), decisions[r])


@njit(nogil=True)
def _choose_jointly_each(packed: Any, network: Packed, states: Ints, decisions: Ints) -> None:
    for r in range(states.shape[0]):
        _choose_jointly(packed, network, states[r].copy(), decisions[r : r + 1])


@njit(nogil=True)
def _key_of(key: np.uint64, variable: int, n_actions: int) -> np.uint64:
    """One action variable breaks its ties as the exact planner does; several must differ."""
    if n_actions == 1:
        return key
    own: np.uint64 = mix(key ^ mix(np.uint64(variable)))
    return own


@njit(nogil=True)
def _next_state(state: Ints, sizes: Ints) -> None:
    for v in range(sizes.shape[0] - 1, -1, -1):
        state[v] += 1
        if state[v] < sizes[v]:
            return
        state[v] = 0
