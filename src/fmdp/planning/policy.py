"""Policies: deterministic functions of the state, asked one state at a time, saved compactly.

`TablePolicy` holds one action index a state in the smallest unsigned integer type that fits
(a million states and 21 actions: one megabyte, less on disk).  Files are NumPy archives that hold
numbers and a JSON header and no code (`allow_pickle=False`), written atomically.  Other kinds of
policy register a reader under their own name, so that `load_policy` opens them all.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem, InvalidParameter
from fmdp.model import Structure
from fmdp.model.files import write_atomically
from fmdp.model.spaces import count, decode, encode

FORMAT = "fmdp-policy"
VERSION = 1


@runtime_checkable
class Policy(Protocol):
    """Anything that answers a state with an action and can be saved."""

    def __call__(self, state: Sequence[int]) -> tuple[int, ...]: ...

    def save(self, path: str | os.PathLike[str]) -> None: ...


class TablePolicy:
    """One joint action index for every state, C order."""

    kind: ClassVar[str] = "table"

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        actions: NDArray[np.integer[Any]],
    ) -> None:
        self.state_sizes = tuple(int(size) for size in state_sizes)
        self.action_sizes = tuple(int(size) for size in action_sizes)
        states, joint = count(self.state_sizes), count(self.action_sizes)
        if actions.shape != (states,):
            raise InvalidParameter(
                f"a policy over {states} states needs that many actions; got shape {actions.shape}"
            )
        if states and (int(actions.min()) < 0 or int(actions.max()) >= joint):
            worst = int(np.argmax((actions < 0) | (actions >= joint)))
            raise InvalidParameter(
                f"the action of state {worst} is {int(actions[worst])}; allowed: 0 to {joint - 1}"
            )
        table = actions.astype(smallest_unsigned(joint), copy=True)
        table.flags.writeable = False
        self.actions: NDArray[np.unsignedinteger[Any]] = table

    def __call__(self, state: Sequence[int]) -> tuple[int, ...]:
        if len(state) != len(self.state_sizes):
            raise InvalidParameter(
                f"a state has {len(self.state_sizes)} values; got {len(state)}: {tuple(state)}"
            )
        for position, (value, size) in enumerate(zip(state, self.state_sizes, strict=True)):
            if not 0 <= value < size:
                raise InvalidParameter(
                    f"value {value} of state variable {position} is out of range; "
                    f"allowed: 0 to {size - 1}"
                )
        return decode(int(self.actions[encode(state, self.state_sizes)]), self.action_sizes)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, TablePolicy)
            and self.state_sizes == other.state_sizes
            and self.action_sizes == other.action_sizes
            and np.array_equal(self.actions, other.actions)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"TablePolicy({len(self.actions)} states, {count(self.action_sizes)} actions)"

    def save(self, path: str | os.PathLike[str]) -> None:
        header = {"state_sizes": self.state_sizes, "action_sizes": self.action_sizes}
        write_archive(path, self.kind, header, {"actions": self.actions})

    @classmethod
    def from_archive(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> TablePolicy:
        return cls(header["state_sizes"], header["action_sizes"], arrays["actions"])


def smallest_unsigned(values: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that tells `values` values apart."""
    for kind in (np.uint8, np.uint16, np.uint32):
        if values <= np.iinfo(kind).max + 1:
            return kind
    return np.uint64


def _greedy(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
    # Imported when such a file is opened: it brings the cost networks with it.
    from fmdp.planning.linear.greedy import GreedyPolicy

    return GreedyPolicy.from_archive(header, arrays)


READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]]], Policy]] = {
    TablePolicy.kind: TablePolicy.from_archive,
    "greedy": _greedy,
}


def write_archive(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write a policy file whole or not at all."""
    text = json.dumps({"format": FORMAT, "version": VERSION, "kind": kind, **header})
    stream = io.BytesIO()
    np.savez_compressed(stream, header=np.array(text), **arrays)  # type: ignore[arg-type]
    write_atomically(path, stream.getvalue())


def load_policy(path: str | os.PathLike[str], structure: Structure | None = None) -> Policy:
    """Read a saved policy; with a structure, check that the sizes are the same."""
    target = Path(path)
    if not target.exists():
        raise FileProblem(f"no policy file at {target}")
    try:
        # Opened here: np.load leaves a file open that turns out to be cut short.
        with target.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("header")))
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise FileProblem(f"{target} is not a policy file (or is cut short)") from error
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise FileProblem(f"{target} is not a policy file: its format is not {FORMAT}")
    if header.get("version") != VERSION:
        raise FileProblem(
            f"{target} has policy version {header.get('version')}; this fmdp reads {VERSION}"
        )
    reader = READERS.get(str(header.get("kind")))
    if reader is None:
        raise FileProblem(f"{target} holds a policy of unknown kind {header.get('kind')!r}")
    try:
        policy = reader(header, arrays)
    except (KeyError, TypeError) as error:
        raise FileProblem(f"{target} lacks a part of its policy: {error}") from error
    if structure is not None:
        for what, ours in (
            ("state", structure.state_sizes),
            ("action", structure.action_sizes),
        ):
            theirs = tuple(header.get(f"{what}_sizes", ()))
            if theirs != ours:
                raise FileProblem(
                    f"{target} is a policy for {what} sizes {theirs}; the problem has {ours}"
                )
    return policy
