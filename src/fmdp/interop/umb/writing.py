"""Writing of a model as a UMB file: all states, the actions that are allowed, and where they lead.

The sum of all reward factors is called "reward" and each quantity has its name; all of them belong
to choices. Variables of states are written as whole numbers or truths; other values are written as
their positions. The same model gives the same bytes.

Cost: all successors of all states and actions, in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp import __version__
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.interop.explicit import Indices
from fmdp.interop.identifiers import identifiers
from fmdp.interop.umb.archives import needed
from fmdp.model.factored import FactoredMDP
from fmdp.model.quantities import TOTAL
from fmdp.model.spaces import FloatArray, all_assignments, project_some
from fmdp.planning.tabular.model import Successors

MOST_ENTRIES = 1 << 22
"""Most states x actions x successors of a model that is written."""
VERSION = (1, 0)
"""Version and revision of the format."""


def bytes_of(model: FactoredMDP) -> bytes:
    """Return the bytes of the UMB file of a model."""
    if model.intervals is not None:
        raise InvalidParameter(
            f"model {model.name or '(without a name)'} has intervals; write it without them"
        )
    umbi = needed("umbi.umb.umb_to_tar")
    encoder = umbi.UmbEncoder()
    umb, values = _Writing(model).umb()
    encoder.add_index_file(umb)
    encoder.add_state_files(umb)
    encoder.add_transition_files(umb)
    encoder.add_annotation_files(umb)
    encoder.add_file("valuations/states/valuations.bin", values)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.umb"
        encoder.write(path, compression="xz")  # gz has the time of day in its head
        return path.read_bytes()


class _Writing:
    def __init__(self, model: FactoredMDP) -> None:
        s = self.s = model.structure
        self.model = model
        self.lists = Successors(model) if s.n_states * s.n_actions <= MOST_ENTRIES else None
        entries = s.n_states * s.n_actions * (1 if self.lists is None else self.lists.width)
        if self.lists is None or entries > MOST_ENTRIES:
            raise TooLarge(
                f"a UMB file lists all states, actions and successors, and there may be "
                f"{entries:,}; at most {MOST_ENTRIES:,} are written",
                8 * entries,
                8 * MOST_ENTRIES,
            )
        every = np.arange(s.n_states * s.n_actions, dtype=np.int64)
        self.pairs: Indices = every[s.allowed_pairs() == every]

    def umb(self) -> tuple[Any, bytes]:
        """Return umbi's object, and the values of variables in states."""
        s, pairs = self.s, self.pairs
        assert self.lists is not None
        successors, chances, _ = self.lists.rows_of(pairs)
        kept = chances > 0.0
        rewards = self._rewards()
        keys = dict(zip(identifiers(rewards), rewards, strict=True))
        structure, values = self._valuations()
        umb = needed("umbi.umb").ExplicitUmb(
            index=self._index(int(kept.sum()), keys, structure),
            state_is_initial=self._initial(),
            state_to_choices=_starts(np.bincount(pairs // s.n_actions, minlength=s.n_states)),
            choice_to_branches=_starts(kept.sum(axis=1)),
            branch_to_target=successors[kept].tolist(),
            branch_to_probability=chances[kept].tolist(),
            choice_to_choice_action=(pairs % s.n_actions).tolist(),
            choice_action_to_string=self._actions(),
            annotations={
                "rewards": {key: {"choices": rewards[name].tolist()} for key, name in keys.items()}
            },
        )
        return umb, values

    def _index(self, branches: int, rewards: Mapping[str, str], structure: Any) -> Any:
        """Return the index; `rewards` has the names of rewards by their keys in the file."""
        index, kinds = needed("umbi.umb.index"), needed("umbi.datatypes")
        double = needed("umbi.binary").SizedType.for_type(kinds.NumericPrimitiveType.DOUBLE)
        s, name = self.s, self.model.name
        return index.UmbIndex(
            *VERSION,
            file_data=index.FileData(tool="fmdp", tool_version=__version__),
            model_data=index.ModelData(name=name) if name else None,
            transition_system=index.TransitionSystem(
                time="discrete",
                num_players=0 if s.n_actions == 1 else 1,
                num_states=s.n_states,
                num_initial_states=1,
                num_choices=len(self.pairs),
                num_choice_actions=s.n_actions,
                num_branches=branches,
                branch_probability_type=double,
            ),
            annotations={
                "rewards": {
                    key: index.AnnotationDescription(
                        alias=name, applies_to=["choices"], type=double
                    )
                    for key, name in rewards.items()
                }
            },
            valuations={"states": index.ValuationDescription(unique=True, classes=[structure])},
        )

    def _initial(self) -> list[bool]:
        index = 0
        for value, size in zip(self.model.initial_state, self.s.state_sizes, strict=True):
            index = index * size + value
        return [state == index for state in range(self.s.n_states)]

    def _actions(self) -> list[str]:
        s = self.s
        if len(s.action_sizes) == 1:
            return list(s.action_values[0])
        return [
            " ".join(
                f"{name}={values[value]}"
                for name, values, value in zip(s.action_names, s.action_values, row, strict=True)
            )
            for row in all_assignments(s.action_sizes).tolist()
        ]

    def _rewards(self) -> dict[str, FloatArray]:
        """Return the total reward, and every quantity, of each choice."""
        s = self.s
        total = np.zeros(len(self.pairs))
        for scope, means in zip(s.reward_scopes, self.model.rewards, strict=True):
            total += means[project_some(s.sizes, scope, self.pairs)]
        rewards = {TOTAL: total}
        for quantity in self.model.quantities:
            rows = project_some(s.sizes, quantity.scope, self.pairs)
            rewards[quantity.name] = quantity.table[rows]
        return rewards

    def _valuations(self) -> tuple[Any, bytes]:
        """Return the description of the variables of states, and their values in 64 bits each."""
        types, kinds = needed("umbi.binary"), needed("umbi.datatypes")
        s = self.s
        joint = all_assignments(s.state_sizes)
        structure = types.StructType()
        columns: list[NDArray[np.int64]] = []
        for i, (name, values) in enumerate(zip(s.state_names, s.state_values, strict=True)):
            for part, listed in _parts(name, values):
                is_truth = {*listed} <= {"true", "false"}
                numbers = _numbers_of(listed)
                columns.append(numbers[joint[:, i]])
                kind = kinds.PrimitiveType.BOOL if is_truth else kinds.NumericPrimitiveType.INT
                structure.add_attribute(part, types.SizedType(kind, 1 if is_truth else 64))
                if is_truth:
                    structure.add_padding(63)
        return structure, np.stack(columns, axis=1).astype("<i8").tobytes()


def _starts(counts: NDArray[Any]) -> list[int]:
    return [0, *np.cumsum(counts).tolist()]


def _parts(name: str, values: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the variables behind one that was joined, as x/y with the values 0/true."""
    names, rows = name.split("/"), [value.split("/") for value in values]
    if any(len(row) != len(names) for row in rows):
        return [(name, list(values))]
    return [(part, [row[place] for row in rows]) for place, part in enumerate(names)]


def _numbers_of(values: Sequence[str]) -> NDArray[np.int64]:
    """Return values as whole numbers: their own, 0 and 1 for truths, else positions."""
    if {*values} <= {"true", "false"}:
        return np.array([value == "true" for value in values], dtype=np.int64)
    try:
        numbers = [int(value) for value in values]
    except ValueError:
        numbers = []
    # "07" and "7" are two values, and one number.
    if [str(number) for number in numbers] == list(values) and max(map(abs, numbers)) < 2**53:
        return np.array(numbers, dtype=np.int64)
    order = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([order[value] for value in values], dtype=np.int64)
