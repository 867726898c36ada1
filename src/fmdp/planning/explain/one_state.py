"""The backup of one state: R(s, a) + g (P h)(s, a) for all joint actions a.

    (P h)(s, a) = sum_{s'} prod_i P_i(s'_i | s[Z_i], a[Z_i]) h(s')

In one state, a factor is a function of few action variables. If h is a table, the axes s'_1, ...,
s'_m are summed out one after the other, those with the fewest distinct rows first. Actions whose
rows agree so far share the remaining table, so that a million actions that each affect different
variables cost about as much as one. If h is a sum of basis functions, Q is a sum of functions of
few action variables (`ActionSum`). Elimination then finds the best joint actions, however many
there are; further ones come from splitting the rest of the space (Lawler 1972).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp.elimination.network import Network
from fmdp.elimination.prohibitions import prohibitions
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP, Structure
from fmdp.model.spaces import count, encode, project
from fmdp.model.structure import Scope

if TYPE_CHECKING:
    from fmdp.planning.alp.bases import Basis

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
_T = TypeVar("_T", bound=np.generic)

ENUMERATED = 1 << 20
"""Most joint actions that are enumerated."""
_AT_ONCE = 1 << 22
"""Most numbers of a batch; larger batches are split."""
_FORBIDDEN = -1e200
"""The value of a forbidden action; sums of it stay finite."""


@dataclass(frozen=True, eq=False)
class ActionSum:
    """A sum of functions of few action variables, which are numbered from 0."""

    sizes: tuple[int, ...]
    scopes: tuple[Scope, ...]
    tables: tuple[Floats, ...]
    """[|A[scope]|] each."""

    def all(self) -> Floats:
        """Return the sum for every joint action: [A]."""
        total = np.zeros(count(self.sizes))
        for scope, table in zip(self.scopes, self.tables, strict=True):
            total += table[project(self.sizes, scope)] if scope else table[0]
        return total

    def at(self, action: Sequence[int]) -> float:
        """Return the sum for one joint action."""
        return float(
            sum(
                table[encode([action[v] for v in scope], [self.sizes[v] for v in scope])]
                for scope, table in zip(self.scopes, self.tables, strict=True)
            )
        )

    def best(
        self, most: int, structure: Structure, state: Sequence[int]
    ) -> list[tuple[tuple[int, ...], float]]:
        """Return the `most` best joint actions that are allowed in the state, with their sums."""
        return list(itertools.islice(_Search(self, structure, state).run(), most))


class _Search:
    """Enumeration of joint actions in the order of their sums (Lawler 1972).

    After the best action is removed, the rest is split into parts in which a prefix of the
    variables is fixed and some values of the next variable are excluded. Elimination finds the best
    action of each part.
    """

    def __init__(self, functions: ActionSum, structure: Structure, state: Sequence[int]) -> None:
        self.functions = functions
        sizes = list(structure.sizes)
        scopes, tables = list(functions.scopes), list(functions.tables)
        for prohibition in prohibitions(structure, sizes):
            scope, forbidden = _in_state(structure.m, sizes, *prohibition, state)
            scopes.append(scope)
            tables.append(np.where(forbidden, _FORBIDDEN, 0.0))
        self.n = len(functions.sizes)
        self.first_filter = len(scopes)
        scopes += [(v,) for v in range(self.n)]
        self.network = Network(tuple(sizes[structure.m :]), scopes, contexts=[-1] * len(scopes))
        for f, table in enumerate(tables):
            self.network.table(f)[0] = table

    def run(self) -> Iterator[tuple[tuple[int, ...], float]]:
        parts: list[tuple[float, int, tuple[int, ...], tuple[int, ...], frozenset[int]]] = []
        number = itertools.count()

        def consider(prefix: tuple[int, ...], banned: frozenset[int]) -> None:
            best = self._best_with(prefix, banned)
            if best is not None:
                action, value = best
                heapq.heappush(parts, (-value, next(number), action, prefix, banned))

        consider((), frozenset())
        while parts:
            _, _, action, prefix, banned = heapq.heappop(parts)
            yield action, self.functions.at(action)
            for v in range(len(prefix), self.n):
                before = banned if v == len(prefix) else frozenset()
                consider(action[:v], before | {action[v]})

    def _best_with(
        self, prefix: tuple[int, ...], banned: frozenset[int]
    ) -> tuple[tuple[int, ...], float] | None:
        if len(prefix) < self.n and len(banned) == self.functions.sizes[len(prefix)]:
            return None
        for v in range(self.n):
            table = self.network.table(self.first_filter + v)[0]
            table[:] = 0.0
            if v < len(prefix):
                table[:] = _FORBIDDEN
                table[prefix[v]] = 0.0
            elif v == len(prefix) and banned:
                table[list(banned)] = _FORBIDDEN
        if self.network.maximise() < 0.5 * _FORBIDDEN:
            return None
        action = tuple(self.network.maximiser()[: self.n].tolist())
        return action, self.functions.at(action)


# ---- Q of one state ------------------------------------------------------------------------------


def rewards_of(model: FactoredMDP, state: Sequence[int]) -> ActionSum:
    """Return R(s, .) of one state."""
    structure = model.structure
    scopes: list[Scope] = []
    tables: list[Floats] = []
    for scope, means in zip(structure.reward_scopes, model.rewards, strict=True):
        actions, table = _in_state(structure.m, structure.sizes, scope, means, state)
        scopes.append(actions)
        tables.append(table)
    return ActionSum(structure.action_sizes, tuple(scopes), tuple(tables))


def values_of_table(model: FactoredMDP, h: Floats, state: Sequence[int], discount: float) -> Floats:
    """Return R(s, a) + discount (P h)(s, a) for every joint action: [A]; h is [S] in C order."""
    expected = expected_next(model, h, state)
    return rewards_of(model, state).all() + discount * expected


def expected_next(model: FactoredMDP, h: Floats, state: Sequence[int]) -> Floats:
    """Return (P h)(s, a) for every joint action: [A]; h is [S] in C order."""
    return _expectations(h, model.structure.state_sizes, *_rows_in_state(model, state))


def count_successors(model: FactoredMDP, among: NDArray[np.bool_], state: Sequence[int]) -> Floats:
    """Return the number of possible successors in `among` [S] for each joint action: [A].

    It uses the supports of the factors, so that no product of probabilities can underflow.
    """
    rows, which = _rows_in_state(model, state)
    supports = [(of_factor > 0.0).astype(np.float64) for of_factor in rows]
    sizes = model.structure.state_sizes
    return _expectations(among.astype(np.float64), sizes, supports, which)


def _rows_in_state(model: FactoredMDP, state: Sequence[int]) -> tuple[list[Floats], list[Indices]]:
    """Return the rows of each factor in one state, and the row that each action uses."""
    structure = model.structure
    n_actions = structure.n_actions
    if n_actions > ENUMERATED:
        raise TooLarge(
            f"{describe_count(n_actions)} joint actions cannot be told apart one by one; at most "
            f"{describe_count(ENUMERATED)} can",
            8 * n_actions * structure.m,
            8 * ENUMERATED * structure.m,
        )
    rows, which = [], []
    for scope, table in zip(structure.transition_scopes, model.transitions, strict=True):
        actions, of_factor = _in_state(structure.m, structure.sizes, scope, table, state)
        rows.append(of_factor)
        which.append(project(structure.action_sizes, actions))
    return rows, which


def values_of_basis(
    model: FactoredMDP, basis: Basis, weights: Floats, state: Sequence[int], discount: float
) -> ActionSum:
    """Return R(s, a) + discount (P h_w)(s, a) as a sum of functions of few action variables."""
    structure = model.structure
    rewards = rewards_of(model, state)
    scopes, tables = list(rewards.scopes), list(rewards.tables)
    for block in basis.blocks:
        factors = [
            _in_state(
                structure.m,
                structure.sizes,
                structure.transition_scopes[v],
                model.transitions[v],
                state,
            )
            for v in block.scope
        ]
        scope = tuple(sorted({action for actions, _ in factors for action in actions}))
        sizes = [structure.action_sizes[action] for action in scope]
        place = {action: position for position, action in enumerate(scope)}
        expected = _expectations(
            block.weighted(weights),
            [structure.state_sizes[v] for v in block.scope],
            [rows for _, rows in factors],
            [project(sizes, [place[action] for action in actions]) for actions, _ in factors],
        )
        scopes.append(scope)
        tables.append(discount * expected)
    return ActionSum(structure.action_sizes, tuple(scopes), tuple(tables))


def _in_state(
    m: int, sizes: Sequence[int], scope: Scope, table: NDArray[_T], state: Sequence[int]
) -> tuple[Scope, NDArray[_T]]:
    """Return the variables of a scope that are not among the m state variables, numbered from 0,
    and the rows of its table in one state."""
    states = [v for v in scope if v < m]
    others = [v for v in scope if v >= m]
    width = count([sizes[v] for v in others])
    first = width * encode([state[v] for v in states], [sizes[v] for v in states])
    return tuple(v - m for v in others), table[first : first + width]


def _expectations(
    h: Floats, sizes: Sequence[int], rows: Sequence[Floats], which: Sequence[Indices]
) -> Floats:
    """Return E h(s') under n product distributions: [n].

    In distribution k, variable i has the law rows[i][which[i][k]].
    """
    n = len(which[0]) if which else 1
    laws, chosen = [], []
    for of_variable, used in zip(rows, which, strict=True):
        distinct, same = np.unique(of_variable, axis=0, return_inverse=True)
        laws.append(distinct)
        chosen.append(same.reshape(-1)[used])
    order = sorted(range(len(sizes)), key=lambda i: len(laws[i]))
    tensor = np.ascontiguousarray(h.reshape(tuple(sizes) or (1,)).transpose(order or (0,)))
    out = np.empty(n)
    _sum_out(tensor, [laws[i] for i in order], [chosen[i] for i in order], np.arange(n), out)
    return out


def _sum_out(
    tensor: Floats,
    laws: Sequence[Floats],
    chosen: Sequence[Indices],
    members: Indices,
    out: Floats,
) -> None:
    """Sum the first axis out with each law, and continue with the members that share it."""
    if not laws:
        out[members] = tensor.reshape(-1)[0]
        return
    if len(members) * tensor.size <= _AT_ONCE:
        _sum_out_together(tensor, laws, chosen, members, out)
        return
    of_member = chosen[0][members]
    for law in np.unique(of_member):
        rest = np.tensordot(laws[0][law], tensor, axes=1)
        _sum_out(rest, laws[1:], chosen[1:], members[of_member == law], out)


def _sum_out_together(
    tensor: Floats,
    laws: Sequence[Floats],
    chosen: Sequence[Indices],
    members: Indices,
    out: Floats,
) -> None:
    """Sum all axes out for all members at once."""
    left = tensor.reshape(1, -1)  # [groups, remaining table]
    group = np.zeros(len(members), dtype=np.int64)
    for law, used_law in zip(laws, chosen, strict=True):
        pairs, group = np.unique(group * len(law) + used_law[members], return_inverse=True)
        held, used = np.divmod(pairs, len(law))
        tensors = left.reshape(len(left), law.shape[1], -1)
        left = np.matmul(law[used][:, None, :], tensors[held])[:, 0, :]
    out[members] = left[group, 0]
