"""Greedy policies as decision lists, and constraints on the Bellman residual of one policy.

With one action variable and a default action d, the advantage of a over d,

    delta_a(s) = Q(s, a) - Q(s, d),

is a function of the few variables T_a that a affects. Sorted by delta, the list "if s[T_a] = t then
a", ending in "else d", is the greedy policy (Koller & Parr 2000; Guestrin, Koller & Parr 2001). A
branch decides in the states that match it and no earlier branch. One function per action, minus
infinity where an earlier branch matches, restricts the cost network to these states. So the largest
residual |R_pi + g P_pi V - V| of a policy over all states takes one pass per branch.

The number of branches is the sum over the actions of |X[T_a]|. It is small if an action affects few
factors (SysAdmin: four); models with too many branches are refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination import maxsum
from fmdp.elimination.network import Network
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.spaces import project, starts
from fmdp.model.structure import Scope
from fmdp.planning.alp.bases import Basis
from fmdp.planning.alp.bellman_residual import BellmanResidual
from fmdp.planning.alp.constraints import RowPattern, no_rows
from fmdp.planning.alp.highs import Rows
from fmdp.planning.alp.slack import tie_slack

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_BRANCHES = 1 << 16
"""Largest decision list: every branch costs one pass of the network per round."""


@dataclass(frozen=True, eq=False)
class DecisionList:
    """Branches in order of priority; the last one always matches."""

    action: Ints
    match: Ints
    """The assignment of the variables that the action affects; -1 for the default."""
    advantage: Floats

    def __len__(self) -> int:
        return len(self.action)

    def same_as(self, other: DecisionList) -> bool:
        return np.array_equal(self.action, other.action) and np.array_equal(self.match, other.match)


class Advantages:
    """The advantages of a model's actions over the default, and a cost network over its states."""

    def __init__(self, model: FactoredMDP, basis: Basis, memory_limit: int | None = None) -> None:
        structure = model.structure
        if len(structure.action_sizes) != 1:
            raise InvalidParameter(
                f"decision lists are for one action variable; the model has "
                f"{len(structure.action_sizes)}"
            )
        if structure.constraints:
            raise InvalidParameter(
                f"decision lists know no constraints on actions, and the model has "
                f"{structure.constraints[0].label()}; use planner exact or alp"
            )
        m = structure.m
        self.residual = BellmanResidual(
            structure, basis, model=model, context=m, memory_limit=memory_limit
        )
        self.residual.load(model)
        network = self.residual.network
        self.n_actions = structure.action_sizes[0]
        self.slices = np.zeros((len(network.functions), self.n_actions), dtype=np.int64)
        for f in range(len(network.functions)):
            slices = network.slices_of(f)
            if slices is not None:
                self.slices[f] = slices
        self.default = int((self.slices != 0).sum(axis=0).argmin())
        self.touched: list[Scope] = []
        """For each action, the state variables on which its advantage depends."""
        self._differs: list[Ints] = []
        for a in range(self.n_actions):
            differs = np.flatnonzero(self.slices[:, a] != self.slices[:, self.default])
            self._differs.append(differs)
            scope = sorted({v for f in differs for v in network.functions[f].scope})
            self.touched.append(tuple(scope))
        sizes = structure.state_sizes
        counts = [
            math.prod(sizes[v] for v in self.touched[a]) if len(self._differs[a]) else 0
            for a in range(self.n_actions)
        ]
        if sum(counts) > MOST_BRANCHES:
            widest = max(range(self.n_actions), key=lambda a: counts[a])
            raise TooLarge(
                f"a decision list would have {sum(counts)} branches (action {widest} touches "
                f"{len(self.touched[widest])} variables); at most {MOST_BRANCHES} are allowed",
                8 * sum(counts),
                8 * MOST_BRANCHES,
            )
        scopes = [function.scope for function in network.functions]
        self.states = Network(
            sizes,
            [*scopes, *self.touched],
            contexts=[-1] * (len(scopes) + self.n_actions),
            memory_limit=memory_limit,
        )
        self._rows = {
            (a, int(f)): project(
                [sizes[v] for v in self.touched[a]],
                [self.touched[a].index(v) for v in network.functions[f].scope],
            )
            for a in range(self.n_actions)
            for f in self._differs[a]
        }

    def decision_list(self, weights: Floats, discount: float) -> DecisionList:
        """Return the greedy policy for weights in units of the residual. Among tied advantages the
        lowest action comes first."""
        self.residual.fill(weights, discount)
        network = self.residual.network
        actions, matches, advantages = [], [], []
        for a in range(self.n_actions):
            if not len(self._differs[a]):
                continue
            delta = np.zeros(math.prod(self.states.sizes[v] for v in self.touched[a]))
            for f in self._differs[a]:
                table = network.table(int(f))
                change = table[self.slices[f, a]] - table[self.slices[f, self.default]]
                delta += change[self._rows[a, int(f)]]
            actions.append(np.full(len(delta), a))
            matches.append(np.arange(len(delta)))
            advantages.append(delta)
        action = np.concatenate([*actions, [self.default]]).astype(np.int64)
        match = np.concatenate([*matches, [-1]]).astype(np.int64)
        advantage = np.concatenate([*advantages, [0.0]])
        size = sum(float(np.abs(network.table(f)).max()) for f in range(len(network.functions)))
        steps = np.round(advantage / tie_slack(size))
        order = np.argsort(-steps[:-1], kind="stable")
        order = np.append(order[steps[order] > 0.0], len(action) - 1)
        return DecisionList(action[order], match[order], advantage[order])


class PolicyConstraints:
    """BellmanConstraints sign * (R_pi + g P_pi h_w - h_w)(s) <= bound for all s, of one policy.

    The bound is c for the sign 1, and 2 delta - c for the sign -1. Columns: the weights, delta, c.
    With c = delta + (1 - g) w_0 the two signs together say that the Bellman residual of
    V = w_0 + h_w under the policy is at most delta everywhere.
    """

    n_columns = 0

    def __init__(
        self, advantages: Advantages, policy: DecisionList, discount: float, sign: float
    ) -> None:
        self._advantages = advantages
        self._policy = policy
        self._discount = discount
        self._sign = sign
        self._n = advantages.residual.basis.size
        self._values = np.zeros(len(policy))
        self._maximisers: list[Ints] = []

    def joining_row(self) -> Rows | None:
        return None

    def _allowed(self, x: Floats) -> float:
        delta, c = float(x[self._n]), float(x[self._n + 1])
        return c if self._sign > 0 else 2.0 * delta - c

    def violation(self, x: Floats) -> float:
        """Return the largest violation; keeps each branch's worst state for `traced`."""
        advantages, policy = self._advantages, self._policy
        states, network = advantages.states, advantages.residual.network
        advantages.residual.fill(x[: self._n], self._discount)
        n = len(network.functions)
        # The states that earlier branches match, as minus infinity.
        barred = [np.zeros(states.functions[n + a].rows) for a in range(advantages.n_actions)]
        root = np.array([states.root])
        from_best = np.full(1, -1, dtype=np.int64)
        entries = np.zeros(n + advantages.n_actions, dtype=np.int64)
        self._maximisers = []
        for branch in range(len(policy)):
            a, match = int(policy.action[branch]), int(policy.match[branch])
            for f in range(n):
                states.table(f)[0] = self._sign * network.table(f)[advantages.slices[f, a]]
            for other in range(advantages.n_actions):
                states.table(n + other)[0] = barred[other]
            if match >= 0:
                only = np.full_like(barred[a], -np.inf)
                only[match] = barred[a][match]
                states.table(n + a)[0] = only
                barred[a][match] = -np.inf
            self._values[branch] = states.maximise()
            counts = np.empty(1, dtype=np.int64)
            count = maxsum.trace(states.packed, root, from_best, counts, entries)
            self._maximisers.append(self._positions(a, entries[:count]))
        return float(self._values.max()) - self._allowed(x)

    def _positions(self, action: int, entries: Ints) -> Ints:
        """Return entries of the state network as entries of the residual's network, without those
        of the functions that restrict the states."""
        advantages = self._advantages
        functions = advantages.residual.network.functions
        starts = np.array([function.offset for function in advantages.states.functions])
        owner = np.searchsorted(starts, entries, side="right") - 1
        kept = owner < len(functions)
        return np.array(
            [
                functions[f].offset + advantages.slices[f, action] * functions[f].rows + at
                for f, at in zip(owner[kept], (entries - starts[owner])[kept], strict=True)
            ],
            dtype=np.int64,
        )

    def violated(self, x: Floats, threshold: float) -> Ints:
        # A branch that no state reaches has the value minus infinity.
        over = (self._values > self._allowed(x) + threshold) & np.isfinite(self._values)
        return np.flatnonzero(over)

    def traced(self, heads: Ints, rivals: int = 0) -> RowPattern:
        """Return the rows of these branches; one policy has no rivals."""
        if not len(heads):
            return no_rows()
        entries = [self._maximisers[branch] for branch in heads]
        return RowPattern(heads, starts([len(at) for at in entries]), np.concatenate(entries))

    def rows(self, pattern: RowPattern) -> Rows:
        residual = self._advantages.residual
        n_rows = len(pattern)
        start = np.zeros(n_rows, dtype=np.int32)
        lower = np.zeros(n_rows)
        index: list[NDArray[np.int32]] = []
        value: list[Floats] = []
        at = 0
        for r in range(n_rows):
            constant, coefficients = residual.form(
                pattern.at[pattern.start[r] : pattern.start[r + 1]], self._discount
            )
            columns = np.flatnonzero(coefficients)
            scalars = [self._n + 1] if self._sign > 0 else [self._n, self._n + 1]
            bound = [1.0] if self._sign > 0 else [2.0, -1.0]
            index.append(np.append(columns, scalars).astype(np.int32))
            value.append(np.append(-self._sign * coefficients[columns], bound))
            lower[r] = self._sign * constant
            start[r] = at
            at += len(index[-1])
        empty = np.zeros(0, dtype=np.int32)
        return Rows(
            lower,
            start,
            np.concatenate(index) if index else empty,
            np.concatenate(value) if value else np.zeros(0),
        )
