"""Policies whose tables lie in a folder next to the policy file, in parts of several processes.

The policy file has no arrays.  It names that folder, the order of the state variables in the table,
and for policies of a horizon the table of every step.  Reading the action in one state reads one
entry of one file.  A planner or an evaluation that needs all actions gets them as one array.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.divided import DividedArray
from fmdp.errors import FileProblem, InvalidParameter
from fmdp.model.spaces import count, strides
from fmdp.planning.policies.archive import StoredPolicy, sizes_in, whole_numbers_in
from fmdp.planning.policies.policy import TablePolicy, refuse_unnumbered
from fmdp.planning.policies.timed import TimedPolicy

TABLES = "actions"
"""The name of the array of tables: [tables, states in the order of the header]."""


class PartsPolicy(TablePolicy):
    """A table whose entries are read from files when they are needed.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable.
    action_sizes
        Number of values of each action variable.
    order
        The state variables, slowest first, in the order of the table.
    tables
        The tables in files: [tables, states].
    number
        Which of them this policy is.
    """

    def __init__(
        self,
        state_sizes: tuple[int, ...],
        action_sizes: tuple[int, ...],
        order: Sequence[int],
        tables: DividedArray,
        number: int = 0,
    ) -> None:
        StoredPolicy.__init__(self, state_sizes, action_sizes)
        refuse_unnumbered(action_sizes)
        sizes = [state_sizes[j] for j in order]
        step_of = dict(zip(order, strides(sizes), strict=True))
        self._steps = tuple(step_of[j] for j in range(len(state_sizes)))
        self._order, self._tables, self._number = tuple(order), tables, number
        self._answered = {}

    def _index_at(self, place: int) -> int:
        index = int(self._tables.entry(place)[self._number])
        self._refuse_above(index)
        return index

    def _refuse_above(self, largest: int) -> None:
        joint = count(self.action_sizes)
        if largest >= joint:
            raise FileProblem(
                f"{self._tables.label}: holds the action {largest}; allowed: 0 to {joint - 1}"
            )

    @property
    def actions(self) -> NDArray[np.unsignedinteger[Any]]:  # type: ignore[override]
        """The index of the joint action of every joint state, both in C order: read from the files
        at every use."""
        table = self._tables.read()[self._number]
        self._refuse_above(int(table.max()))
        sizes = [self.state_sizes[j] for j in self._order]
        back = np.argsort(self._order)
        return np.ascontiguousarray(table.reshape(sizes).transpose(back)).reshape(-1)

    def __repr__(self) -> str:
        states, joint = count(self.state_sizes), count(self.action_sizes)
        return f"PartsPolicy({states} states, {joint} actions)"


def read_parts(header: Mapping[str, Any], folder: Path | None) -> StoredPolicy:
    """Return the policy of a header; `folder` is that of its file, None if it has no file.

    Raises FmdpError if the header or the files are wrong.
    """
    states, actions = sizes_in(header)
    name = header.get("folder")
    if folder is None or not isinstance(name, str) or Path(name).name != name:
        raise InvalidParameter("its tables are in parts, which must lie in a folder beside it")
    if not (folder / name).is_dir():
        raise InvalidParameter(f"its folder {name} is missing; it must lie beside the file")
    order = whole_numbers_in(header, "order", 0, len(states) - 1)
    if sorted(order) != list(range(len(states))):
        raise InvalidParameter(f"its order must name every state variable once; got {list(order)}")
    tables = DividedArray(folder / name, TABLES, count(states), "u")
    stages = None
    if header.get("stages") is not None:
        stages = whole_numbers_in(header, "stages", 0, tables.rows - 1)
    distinct = [PartsPolicy(states, actions, order, tables, row) for row in range(tables.rows)]
    if stages is None:
        return distinct[0]
    return TimedPolicy([distinct[number] for number in stages], header.get("discount", 1.0))
