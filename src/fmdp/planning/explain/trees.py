"""Decision trees that represent a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.model.naming import Naming
from fmdp.model.spaces import decode
from fmdp.planning.explain.tree_kernels import LEAF, Ints
from fmdp.planning.policies.policy import TablePolicy


@dataclass(frozen=True, eq=False)
class Tree:
    """The tree of one action variable, or of several together; node 0 is the root."""

    actions: tuple[int, ...]
    """The action variables."""
    sizes: tuple[int, ...]
    """Number of values of each."""
    variable: Ints
    """[nodes]: the state variable of the split, or LEAF."""
    value: Ints
    """[nodes]: the value that it is compared with."""
    upto: NDArray[np.bool_]
    """[nodes]: whether the first child has all values up to that one, or that one alone."""
    yes: Ints
    """[nodes]: the first child."""
    no: Ints
    """[nodes]: the second child."""
    label: Ints
    """[nodes]: the joint value of a leaf; for any other node, its joint value if it were a leaf."""

    @property
    def leaves(self) -> int:
        """The number of leaves."""
        return int((self.variable == LEAF).sum())

    @property
    def depth(self) -> int:
        """The number of splits on the longest path."""
        depth = np.zeros(len(self.variable), dtype=np.int64)
        for node in np.flatnonzero(self.variable != LEAF):  # children come after their parents
            depth[self.yes[node]] = depth[self.no[node]] = depth[node] + 1
        return int(depth.max())

    def values(self, node: int) -> tuple[int, ...]:
        """Return the action of a leaf: one position per action variable of the tree."""
        return decode(int(self.label[node]), self.sizes)

    def __call__(self, state: Sequence[int]) -> tuple[int, ...]:
        """Return the action in a state: one position per action variable of the tree."""
        node = 0
        while self.variable[node] != LEAF:
            have, value = state[self.variable[node]], self.value[node]
            first = have == value or (self.upto[node] and have < value)
            node = self.yes[node] if first else self.no[node]
        return self.values(node)


@dataclass(frozen=True, eq=False)
class PolicyTree:
    """A policy as trees, which together contain every action variable once."""

    trees: tuple[Tree, ...]
    naming: Naming
    n_states: int
    wrong: int
    """Number of states in which some action variable differs from the policy."""
    table: TablePolicy
    """The action of the trees in every state."""
    wrong_time: float | None = None
    """The share of time that the policy spends in the wrong states, if it is known."""

    @property
    def leaves(self) -> int:
        """The number of leaves of all trees."""
        return sum(tree.leaves for tree in self.trees)

    @property
    def depth(self) -> int:
        """The depth of the deepest tree."""
        return max(tree.depth for tree in self.trees)

    def __call__(self, state: Any) -> Any:
        checked = self.naming.check_state(state)
        values: dict[int, int] = {}
        for tree in self.trees:
            values.update(zip(tree.actions, tree(checked), strict=True))
        return self.naming.answer(tuple(values[action] for action in sorted(values)), state)

    def __str__(self) -> str:
        trees = f" in {len(self.trees)} trees" if len(self.trees) > 1 else ""
        share = f" ({self.wrong / self.n_states:.3g} of them)" if self.wrong else ""
        if self.wrong and self.wrong_time is not None:
            share += f", {100 * self.wrong_time:.3g} % of the time"
        return (
            f"{self.leaves:,} leaves{trees}, depth {self.depth}; wrong in {self.wrong:,} of "
            f"{self.n_states:,} states{share}"
        )
