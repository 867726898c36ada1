"""SysAdmin: n machines in a network, one of which may be restarted in every step.

Machine i is 0 (down) or 1 (working). The one action variable has n + 1 values: i restarts machine
i, n restarts none. The scope of transition factor i is machine i, its parents in the network and
the action; reward factor i pays 1 (machine 0: `server`) while machine i works.

The topology gives the parents; the dynamics give P(works next). Parents are the *other* machines in
the scope, and a machine without parents counts as one whose parents all work.

Each table has as many rows as the product of the scope's sizes, 2^(1 + parents) (n + 1). The draws
of `xu` are made in blocks that consume the generator exactly as its row-by-row recipe does.

Every rule but `xu` depends on a part of the row only: whether the machine is restarted, whether it
works, how many of its parents do. With `alike=rows` the structure declares this, and with
`alike=machines` also that the machines follow one rule.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import REQUIRED
from fmdp._base.settings import setting
from fmdp.errors import InvalidParameter
from fmdp.model.alike import Alike
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import FloatArray, IndexArray, all_assignments
from fmdp.model.structure import Structure
from fmdp.problems import topologies
from fmdp.problems.family import (
    HIGHEST_SEED,
    Problem,
    alike_setting,
    refuse_if_too_large,
    reward_divisor,
    reward_setting,
    unshared,
)
from fmdp.problems.topologies import Parents

RESTART_COST = 0.5
"""Cost of a restart with the dynamics of the IPPC."""
_OF_XU = ("dynamics", ("xu",))
"""Condition of the settings of random tables."""

Rule = Callable[[NDArray[np.bool_], NDArray[np.bool_]], FloatArray]
"""(self works [V], parents work [V, parents]) -> P(works next) without a restart [V]."""


Reading = Callable[[NDArray[np.bool_], NDArray[np.bool_]], IndexArray]
"""The same arguments -> a positive class number, equal where the rule gives equal probabilities
[V]."""


def guestrin_rule(works: NDArray[np.bool_], parents_work: NDArray[np.bool_]) -> FloatArray:
    base = np.where(works, 0.95, 0.0475)
    return np.where(parents_work.all(axis=1), base, base * 0.5)


def guestrin_reading(works: NDArray[np.bool_], parents_work: NDArray[np.bool_]) -> IndexArray:
    return 1 + 2 * parents_work.all(axis=1).astype(np.int64) + works


def talebi_rule(works: NDArray[np.bool_], parents_work: NDArray[np.bool_]) -> FloatArray:
    return np.where(works, np.where(parents_work.all(axis=1), 0.90, 0.67), 0.01)


def talebi_reading(works: NDArray[np.bool_], parents_work: NDArray[np.bool_]) -> IndexArray:
    return np.where(works, 2 + parents_work.all(axis=1).astype(np.int64), 1)


def ippc_rule(works: NDArray[np.bool_], parents_work: NDArray[np.bool_]) -> FloatArray:
    share = (1 + parents_work.sum(axis=1)) / (1 + parents_work.shape[1])
    return np.where(works, 0.45 + 0.5 * share, 0.1)


def ippc_reading(works: NDArray[np.bool_], parents_work: NDArray[np.bool_]) -> IndexArray:
    # A triangular number encodes the pair (parents, working parents).
    parents = parents_work.shape[1]
    share = parents * (parents + 1) // 2 + parents_work.sum(axis=1, dtype=np.int64)
    return np.where(works, 2 + share, 1)


# dynamics -> (P(works next) without a restart, its class numbers, P(works next) with a restart)
_RULES: dict[str, tuple[Rule, Reading, float]] = {
    "guestrin": (guestrin_rule, guestrin_reading, 1.0),
    "talebi": (talebi_rule, talebi_reading, 0.95),
    "ippc": (ippc_rule, ippc_reading, 1.0),
}

DYNAMICS = ("xu", *_RULES)


def _scope_values(i: int, others: tuple[int, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return whether machine i works [V] and its parents do [V, parents] per scope assignment."""
    scope = sorted((i, *others))
    values = all_assignments((2,) * len(scope)).astype(bool)  # [V, machines of the scope]
    position = scope.index(i)
    return values[:, position], np.delete(values, position, axis=1)


def _rule_tables(parents: Parents, dynamics: str) -> list[FloatArray]:
    rule, _, restarted = _RULES[dynamics]
    n = len(parents)
    tables = []
    for i, others in enumerate(parents):
        works_next = rule(*_scope_values(i, others))  # [V]
        table = np.empty((len(works_next), n + 1, 2))
        table[:, :, 1] = works_next[:, None]
        table[:, i, 1] = restarted
        table[:, :, 0] = 1.0 - table[:, :, 1]
        tables.append(table.reshape(-1, 2))
    return tables


def _rule_classes(parents: Parents, dynamics: str) -> list[IndexArray]:
    """Return the class number of every row, 0 for a restart; equal for all machines."""
    _, reading, _ = _RULES[dynamics]
    n = len(parents)
    classes = []
    for i, others in enumerate(parents):
        read = reading(*_scope_values(i, others))
        table = np.repeat(read[:, None], n + 1, axis=1)
        table[:, i] = 0
        classes.append(table.reshape(-1))
    return classes


def _xu_tables(parents: Parents, seed: int, alpha1: float, alpha2: float) -> list[FloatArray]:
    """Return the seeded random tables of Xu and Tewari's experiments.

    For factor i, then the values of the sorted scope in lexicographic order, then the action: one
    uniform U, q = alpha1 U if machine i works, else max(U, 1/2); then for every machine of the
    scope that is down, in order, q += alpha2 times a new uniform; a restart of i makes q = 0, after
    the draws. P(works next) = 1 - min(q, 1). The number of draws depends on the value of the scope
    alone, so all actions are drawn as one block [n + 1, 1 + down].
    """
    generator = np.random.RandomState(seed)
    n = len(parents)
    tables = []
    for i, others in enumerate(parents):
        scope = sorted((i, *others))
        position = scope.index(i)
        values = all_assignments((2,) * len(scope))
        table = np.empty((len(values), n + 1, 2))
        for row, value in enumerate(values):
            down = len(scope) - int(value.sum())
            draws = generator.random_sample((n + 1, 1 + down))
            fails = alpha1 * draws[:, 0] if value[position] else np.maximum(draws[:, 0], 0.5)
            for j in range(1, 1 + down):
                fails = fails + alpha2 * draws[:, j]
            fails[i] = 0.0
            table[row, :, 0] = np.minimum(fails, 1.0)
        table[:, :, 1] = 1.0 - table[:, :, 0]
        tables.append(table.reshape(-1, 2))
    return tables


class SysAdmin(Problem):
    """SysAdmin: the settings and the model that all topologies share; a subclass has `parents`."""

    size: int = setting(REQUIRED, "number of machines", low=1)
    dynamics: str = setting("xu", "the probability that a machine works next", choices=DYNAMICS)
    reward: str = reward_setting()
    server: float = setting(1.0, "reward of machine 0 while it works", low=0.0)
    seed: int = setting(
        1,
        "seed of the random tables (dynamics=xu)",
        low=0,
        high=HIGHEST_SEED,
        only_with=_OF_XU,
    )
    alpha1: float = setting(
        0.1,
        "largest chance that a machine fails by itself (dynamics=xu)",
        low=0.0,
        only_with=_OF_XU,
    )
    alpha2: float = setting(
        0.1,
        "largest addition for each machine that is down (dynamics=xu)",
        low=0.0,
        only_with=_OF_XU,
    )
    alike: str = alike_setting("rows", "machines", only_with=("dynamics", tuple(_RULES)))

    @abstractmethod
    def parents(self) -> Parents:
        """Return for each machine the sorted indices of the others that it depends on."""

    def build(self) -> FactoredMDP:
        n = self.size
        # Every scope has at least its machine and the action: refuse before n objects are made.
        refuse_if_too_large(str(self), 4 * n * (n + 1), 2 * n)
        parents = self.parents()
        refuse_if_too_large(str(self), sum(2 ** (2 + len(p)) for p in parents) * (n + 1), 2 * n)

        if self.dynamics == "xu":
            transitions = _xu_tables(parents, self.seed, self.alpha1, self.alpha2)
        else:
            transitions = _rule_tables(parents, self.dynamics)

        divisor = reward_divisor(self.reward, n)
        pays = [(self.server if i == 0 else 1.0) / divisor for i in range(n)]
        scopes: list[tuple[int, ...]] = [(i,) for i in range(n)]
        ranges = [(0.0, pay) for pay in pays]
        means = [np.array([0.0, pay]) for pay in pays]
        reward_names = [f"working_{i}" for i in range(n)]
        if self.dynamics == "ippc":
            cost = -RESTART_COST / divisor
            scopes.append((n,))
            ranges.append((cost, 0.0))
            means.append(np.append(np.full(n, cost), 0.0))
            reward_names.append("restart_cost")

        structure = Structure(
            state_sizes=(2,) * n,
            action_sizes=(n + 1,),
            transition_scopes=tuple((*sorted((i, *p)), n) for i, p in enumerate(parents)),
            reward_scopes=tuple(scopes),
            reward_ranges=tuple(ranges),
            state_names=tuple(f"machine_{i}" for i in range(n)),
            action_names=("restart",),
            reward_names=tuple(reward_names),
            state_values=(("down", "working"),) * n,
            action_values=((*(str(i) for i in range(n)), "none"),),
            alike=self._alike(parents),
        )
        return FactoredMDP(
            structure,
            transitions=transitions,
            rewards=means,
            initial_state=(1,) * n,
            name=str(self),
        )

    def _alike(self, parents: Parents) -> Alike | None:
        """Return the classes of rows that the rule does not distinguish. Rewards depend on whether
        the machine works (the server's apart, which may pay more), the cost on whether there is a
        restart."""
        if self.alike == "none":
            return None
        n = len(parents)
        transitions = _rule_classes(parents, self.dynamics)
        rewards = [np.array([0, 1]) for _ in range(n)]
        if self.server != 1.0:
            rewards[0] += 2
        if self.alike == "rows":
            transitions, rewards = unshared(transitions), unshared(rewards)
        if self.dynamics == "ippc":
            rewards.append(np.append(np.zeros(n, dtype=np.int64), 1) - 2)
        return Alike(tuple(transitions), tuple(rewards))


class Circle(SysAdmin):
    """SysAdmin, a one-way ring: the parent of i is i - 1."""

    example = "circle:7"

    def parents(self) -> Parents:
        return topologies.circle(self.size)


class ThreeLeg(SysAdmin):
    """SysAdmin, three chains that hang on machine 0."""

    example = "three-leg:7"

    def parents(self) -> Parents:
        return topologies.three_leg(self.size)


class Star(SysAdmin):
    """SysAdmin, all machines hang on machine 0."""

    example = "star:7"

    def parents(self) -> Parents:
        return topologies.star(self.size)


class BiRing(SysAdmin):
    """SysAdmin, a two-way ring: the parents of i are i - 1 and i + 1."""

    example = "bi-ring:7"

    def parents(self) -> Parents:
        return topologies.bi_ring(self.size)


class Grid(SysAdmin):
    """SysAdmin, rows of ceil(sqrt n): the parents are to the left and above."""

    example = "grid:7"

    def parents(self) -> Parents:
        return topologies.grid(self.size)


class Tree(SysAdmin):
    """SysAdmin, a binary tree: the parent of i is (i - 1) // 2."""

    example = "tree:7"

    def parents(self) -> Parents:
        return topologies.tree(self.size)


class Network(SysAdmin):
    """SysAdmin, any directed graph."""

    example = "network:3,edges=0>1+1>2"

    edges: tuple[tuple[int, int], ...] = setting(
        (), "directed edges parent>child joined by +", kind="edges"
    )

    def check(self) -> None:
        for parent, child in self.edges:
            if max(parent, child) >= self.size:
                raise InvalidParameter(
                    f"the 'edges' parameter of {self.owner()} must join machines "
                    f"0 to {self.size - 1}; got {parent}>{child}"
                )

    def parents(self) -> Parents:
        return topologies.network(self.size, self.edges)
