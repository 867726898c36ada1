"""Policies of fleets: a joint action for thousands of parts that keeps their budgets.

In each state of the fleet every part first has its cheapest action. Under the ID policy (Hong, Xie,
Chen & Wang 2024; Zhang, Hong & Wang 2025 for different parts) parts then follow policies of their
own, in a fixed order, while the budgets last. Under the other rules the budgets go to the parts
with the highest priority: their candidates, (part, action) pairs, are taken by rank.

A policy is a deterministic function of the state. It holds, for each type of part and each of its
states, the cheapest action, the ranks of the others, and the actions of the own policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import describe_count
from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter
from fmdp.model.naming import ByName, ByNumber, Naming, Value
from fmdp.model.spaces import IndexArray
from fmdp.planning.policies.archive import Parts, StoredPolicy, array_in, sizes_in
from fmdp.planning.policies.fleet_kernels import Layout, Rules, choose_each
from fmdp.planning.policies.policy import Policy

_LARGEST = 2**40
"""Largest cost or limit in a file: sums over millions of parts stay below 2^63."""


class FleetPolicy(StoredPolicy, Policy):
    """A policy of a fleet; see the module. Its arrays are checked by `from_archive`.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable.
    action_sizes
        Number of values of each action variable.
    rule
        What it does with the budgets: "priority", "id" or "whittle"; for display.
    arrays
        See `_ARRAYS`.
    naming
        The names of variables and values; None for default names.
    """

    kind = "fleet"

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        rule: str,
        arrays: Mapping[str, NDArray[Any]],
        naming: Naming | None = None,
    ) -> None:
        super().__init__(tuple(state_sizes), tuple(action_sizes), naming)
        self.rule = rule
        self.arrays = dict(arrays)
        types = self.arrays["type_of"]
        self.n_parts = len(types)
        self._layout = Layout(
            state_part=self.arrays["state_part"],
            state_step=self.arrays["state_step"],
            action_part=self.arrays["action_part"],
            action_step=self.arrays["action_step"],
            action_sizes=np.array(self.action_sizes, dtype=np.int64),
        )
        self.rules = Rules(
            row_start=self.arrays["row_start"][types],
            cost_start=self.arrays["cost_start"][types],
            cheapest=self.arrays["cheapest"],
            ranks=self.arrays["ranks"],
            candidates=self.arrays["candidates"],
            n_ranks=int(self.arrays["ranks"].max(initial=-1)) + 1,
            costs=self.arrays["costs"],
            limits=self.arrays["limits"],
            order=self.arrays["order"],
            profiles=self.arrays["profiles"],
            wishes=self.arrays["wishes"],
        )

    def workspaces(self) -> tuple[IndexArray, IndexArray, IndexArray]:
        """Return the arrays that the compiled code overwrites."""
        return (
            np.empty(self.rules.n_ranks, dtype=np.int64),
            np.empty(self.n_parts * self.rules.candidates.shape[1], dtype=np.int64),
            np.empty(len(self.rules.limits), dtype=np.int64),
        )

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        given = np.array(self.naming.states.check(state, "state"), dtype=np.int64)
        return self.naming.answer(tuple(self.actions_of(given[None, :])[0].tolist()), state)

    def actions_of(self, states: IndexArray) -> IndexArray:
        """Return the actions of many states, [states, action variables]; states not checked."""
        given = np.ascontiguousarray(states, dtype=np.int64)
        actions = np.empty((len(given), len(self.action_sizes)), dtype=np.int64)
        choose_each(self.rules, self._layout, given, actions, *self.workspaces())
        return actions

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FleetPolicy)
            and (self.state_sizes, self.action_sizes) == (other.state_sizes, other.action_sizes)
            and all(np.array_equal(self.arrays[name], other.arrays[name]) for name in _ARRAYS)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return (
            f"FleetPolicy({self.rule}, {describe_count(self.n_parts)} parts of "
            f"{describe_count(len(self.arrays['row_start']))} types, "
            f"{len(self.rules.limits)} budget{'s' * (len(self.rules.limits) != 1)})"
        )

    def content(self) -> Parts:
        return {"rule": self.rule}, self.arrays

    @classmethod
    def from_archive(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> FleetPolicy:
        """Return the policy of a policy file.

        Raise InvalidParameter unless every number lies inside the array that it points into,
        because compiled code does not check bounds.
        """
        states, actions = sizes_in(header)
        rule = header.get("rule")
        if not isinstance(rule, str):
            raise InvalidParameter(f"its rule must be a text; got {quoted(rule)}")
        _check_arrays(arrays, states, actions)
        return cls(states, actions, rule, {name: arrays[name] for name in _ARRAYS})


_ARRAYS = {
    "type_of": "[parts]: the type of each part",
    "state_part": "[state variables]: the part of each",
    "state_step": "[state variables]: its weight in the state of the part",
    "action_part": "[action variables]: the part of each",
    "action_step": "[action variables]: its weight in the action of the part",
    "row_start": "[types]: the row of state 0",
    "cost_start": "[types]: the row of `costs` of action 0",
    "cheapest": "[rows]",
    "ranks": "[rows, candidates]",
    "candidates": "[rows, candidates]",
    "costs": "[types and actions, budgets]",
    "limits": "[budgets]",
    "order": "[parts] or []",
    "profiles": "[parts] or []",
    "wishes": "[profiles, rows]",
}
"""The arrays of a policy, all of int64; `kernels.Rules` explains them."""


def _check_arrays(
    arrays: Mapping[str, NDArray[Any]], states: tuple[int, ...], actions: tuple[int, ...]
) -> None:
    """Raise InvalidParameter unless the arrays are those of a policy for these variables."""
    n_parts = len(array_in(arrays, "type_of", "i", (None,), 0))
    n_types = len(array_in(arrays, "row_start", "i", (None,), 0))
    array_in(arrays, "type_of", "i", (n_parts,), 0, n_types - 1)
    n_rows = len(array_in(arrays, "cheapest", "i", (None,), 0))
    costs = array_in(arrays, "costs", "i", (None, None), 0, _LARGEST)
    n_costs, n_budgets = costs.shape
    array_in(arrays, "limits", "i", (n_budgets,), 0, _LARGEST)
    array_in(arrays, "cost_start", "i", (n_types,), 0, n_costs - 1)
    sizes = [
        _check_steps(arrays, "state", states, n_parts),
        _check_steps(arrays, "action", actions, n_parts),
    ]
    types = arrays["type_of"]
    for start, end, numbers in (("row_start", n_rows, sizes[0]), ("cost_start", n_costs, sizes[1])):
        if (arrays[start][types] + numbers > end).any():
            raise InvalidParameter(f"its part {start!r} points behind the last row")
    candidates = array_in(arrays, "candidates", "i", (n_rows, None), 0)
    array_in(arrays, "ranks", "i", candidates.shape, -1, candidates.size - 1)
    wishes = array_in(arrays, "wishes", "i", (None, n_rows), 0)
    n_ordered = len(array_in(arrays, "order", "i", (None,), 0, n_parts - 1))
    if n_ordered and len(np.unique(arrays["order"])) != n_ordered:
        raise InvalidParameter("its part 'order' has a part twice")
    array_in(arrays, "profiles", "i", (n_parts if n_ordered else 0,), 0, len(wishes) - 1)
    # The number of actions of each row is that of the parts of its type.
    most = np.zeros(n_rows, dtype=np.int64)
    for start, n_states, n_actions in np.unique(
        np.stack([arrays["row_start"][types], *sizes], axis=1), axis=0
    ).tolist():
        most[start : start + n_states] = n_actions
    for name, rows in (
        ("cheapest", arrays["cheapest"][:, None]),
        ("candidates", candidates),
        ("wishes", wishes.T),
    ):
        if (rows >= np.maximum(most, 1)[:, None]).any():
            raise InvalidParameter(f"its part {name!r} has an action that a part does not have")


def _check_steps(
    arrays: Mapping[str, NDArray[Any]], kind: str, sizes: tuple[int, ...], n_parts: int
) -> IndexArray:
    """Return the numbers of states or actions of every part; raise InvalidParameter."""
    n = len(sizes)
    part = array_in(arrays, f"{kind}_part", "i", (n,), 0, n_parts - 1)
    step = array_in(arrays, f"{kind}_step", "i", (n,), 1)
    numbers = np.ones(n_parts, dtype=np.int64)
    # The last variable of a part has weight 1, and each other the sizes of those behind it.
    for v in range(n - 1, -1, -1):
        if step[v] != numbers[part[v]]:
            raise InvalidParameter(f"its part '{kind}_step' is not that of its {kind} variables")
        numbers[part[v]] *= sizes[v]
        if numbers[part[v]] > _LARGEST:
            raise InvalidParameter(f"its part '{kind}_part' has a part that is too large")
    return numbers
