"""Policies: deterministic functions of the state, asked one state at a time, saved compactly.

`TablePolicy` holds one action index a state in the smallest unsigned integer type that fits
(a million states and 21 actions: one megabyte, less on disk).  Files are NumPy archives that hold
numbers and a JSON header and no code (`allow_pickle=False`), written atomically.  Other kinds of
policy register a reader under their own name, so that `load_policy` opens them all.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.model import Structure
from fmdp.model.files import path_of, write_atomically
from fmdp.model.spaces import count, decode, encode, shown_tuple, whole_number
from fmdp.parameters import quoted

FORMAT = "fmdp-policy"
VERSION = 1


@runtime_checkable
class Policy(Protocol):
    """Anything that answers a state with an action and can be saved."""

    def __call__(self, state: Sequence[int]) -> tuple[int, ...]:
        """The action in a state: the same one whenever it is asked.

        Parameters
        ----------
        state
            One value a state variable, by number.

        Returns
        -------
        tuple[int, ...]
            One value an action variable, by number.
        """
        ...

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to a file that `load_policy` reads.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced, whole or not at all.
        """
        ...


class TablePolicy:
    """A policy as a table: one joint action for every state.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable.
    action_sizes
        Number of values of each action variable.
    actions
        The index of the joint action of every joint state, both in C order: [S], whole numbers
        from 0 to A - 1. Copied, into the smallest type that holds them.

    Raises
    ------
    InvalidParameter
        Where the sizes, the shape or an action are not as above; the text names the state.
    """

    kind: ClassVar[str] = "table"

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        actions: NDArray[np.integer[Any]],
    ) -> None:
        self.state_sizes = _sizes(state_sizes, "state")
        self.action_sizes = _sizes(action_sizes, "action")
        states, joint = count(self.state_sizes), count(self.action_sizes)
        try:
            actions = np.asarray(actions)
        except ValueError:  # lists of unequal length
            actions = np.empty(0, dtype=object)
        if actions.dtype.kind not in "iu":
            raise InvalidParameter(
                f"the actions of a policy must be whole numbers; got an array of {actions.dtype}"
            )
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
        """The action in a state.

        Parameters
        ----------
        state
            One value a state variable, by number.

        Returns
        -------
        tuple[int, ...]
            One value an action variable, by number.

        Raises
        ------
        InvalidParameter
            Where it is no state of the policy.
        """
        values = check_values(state, self.state_sizes)
        return decode(int(self.actions[encode(values, self.state_sizes)]), self.action_sizes)

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
        """Write the policy to a file (a NumPy archive) that `load_policy` reads.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced, whole or not at all.

        Raises
        ------
        FileProblem
            Where the file cannot be written.
        """
        header = {"state_sizes": self.state_sizes, "action_sizes": self.action_sizes}
        write_archive(path, self.kind, header, {"actions": self.actions})

    @classmethod
    def from_archive(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> TablePolicy:
        """The policy in the parts of a policy file; `load_policy` calls it.

        Parameters
        ----------
        header
            Holds `state_sizes` and `action_sizes`.
        arrays
            Holds `actions`, [S].
        """
        return cls(header["state_sizes"], header["action_sizes"], arrays["actions"])


class Rule:
    """A policy that is a function of one's own: state -> action, a tuple of ints.

    Where there is one action variable its value alone is an answer too. The function is asked for
    every state that is met; a policy must answer the same state with the same action.
    """

    def __init__(self, function: Callable[[tuple[int, ...]], Any], structure: Structure) -> None:
        if isinstance(function, type) or not callable(function):
            raise InvalidParameter(
                f"a rule must be a function state -> action; got {quoted(function)}"
            )
        self.function = function
        self._structure = structure

    def __repr__(self) -> str:
        return f"Rule({getattr(self.function, '__name__', type(self.function).__name__)})"

    def __call__(self, state: Sequence[int]) -> tuple[int, ...]:
        checked = self._structure.check_state(state)
        answer = self.function(checked)
        try:
            return as_action(answer, self._structure)
        except FmdpError as error:
            error.args = (f"{self!r} in state {checked}: {error}",)
            raise

    def save(self, path: str | os.PathLike[str]) -> None:
        raise InvalidParameter(
            "a rule of one's own cannot be saved: a policy file holds numbers and no code"
        )


def as_action(answer: Any, structure: Structure) -> tuple[int, ...]:
    """An action from what a rule answers: values, or the value of the one action variable."""
    alone = whole_number(answer)
    if alone is not None:
        if len(structure.action_sizes) > 1:
            raise InvalidParameter(
                f"a rule answered {alone}; an action must have {len(structure.action_sizes)} "
                f"values, one for each action variable"
            )
        answer = (alone,)
    return structure.check_action(answer)


def policy_of(given: object, structure: Structure, owner: str) -> Policy:
    """A policy from what a user hands over: a policy, a rule, or the path of a policy file."""
    if isinstance(given, str | os.PathLike):
        return load_policy(given, structure)
    if has_sizes_of(given, structure) and isinstance(given, Policy):
        return given  # made by a planner: it checks what it is asked
    if isinstance(given, type) or not callable(given):
        raise InvalidParameter(
            f"the policy of {owner} must be a policy (as plan.policy is), a function "
            f"state -> action, or the path of a policy file; got {quoted(given)}"
        )
    return Rule(given, structure)


def has_sizes_of(policy: object, structure: Structure) -> bool:
    """Whether it knows its sizes, which must be those of the structure: compiled code does not look
    where a table ends."""
    given = [getattr(policy, f"{what}_sizes", None) for what in ("state", "action")]
    if None in given:
        return False
    sizes = tuple(tuple(one) for one in given)  # type: ignore[arg-type]
    ours = (structure.state_sizes, structure.action_sizes)
    if sizes != ours:
        raise InvalidParameter(
            f"the policy is for state sizes {sizes[0]} and action sizes {sizes[1]}; "
            f"the model has {ours[0]} and {ours[1]}"
        )
    return True


def check_values(state: Any, sizes: Sequence[int]) -> tuple[int, ...]:
    """A state as a tuple of ints, or InvalidParameter naming the variable."""
    try:
        values = () if isinstance(state, str | bytes) else tuple(state)
    except TypeError:
        values = ()
    if len(values) != len(sizes):
        got = f"{len(values)}: {shown_tuple(values)}" if values else quoted(state)
        raise InvalidParameter(f"a state has {len(sizes)} values; got {got}")
    checked: list[int] = []
    for position, (value, size) in enumerate(zip(values, sizes, strict=True)):
        whole = whole_number(value)
        if whole is None:
            names = "; values are given by number, not by name" if isinstance(value, str) else ""
            raise InvalidParameter(
                f"value {quoted(value)} of state variable {position} must be a whole number, "
                f"0 to {size - 1}{names}"
            )
        if not 0 <= whole < size:
            raise InvalidParameter(
                f"value {whole} of state variable {position} is out of range; "
                f"allowed: 0 to {size - 1}"
            )
        checked.append(whole)
    return tuple(checked)


def _sizes(sizes: Any, kind: str) -> tuple[int, ...]:
    try:
        checked = [whole_number(size) for size in sizes]
    except TypeError:
        checked = []
    whole = tuple(size for size in checked if size is not None and size > 0)
    if not whole or len(whole) < len(checked):
        raise InvalidParameter(
            f"{kind} sizes of a policy must be whole numbers of at least 1; got {quoted(sizes)}"
        )
    return whole


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


def _randomised(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    from fmdp.planning import randomised

    return randomised.from_archive(header, arrays)


READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]]], Policy]] = {
    TablePolicy.kind: TablePolicy.from_archive,
    "greedy": _greedy,
    "uniform": _randomised,
    "exploring": _randomised,
}


def write_archive(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write a policy file whole or not at all."""
    path_of(path, "a policy file")
    text = json.dumps({"format": FORMAT, "version": VERSION, "kind": kind, **header})
    stream = io.BytesIO()
    np.savez_compressed(stream, header=np.array(text), **arrays)  # type: ignore[arg-type]
    write_atomically(path, stream.getvalue())


def policy_bytes(policy: Any) -> bytes:
    """The content of a policy's file, to be kept inside another file."""
    # Policies are saved by path, each kind in its own way; a file of its own serves them all.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        policy.save(file)
        return file.read_bytes()


def policy_digest(policy: Any) -> str:
    """A digest of what a policy's file would hold; the file itself has the time of day in it."""
    digest = hashlib.sha256()
    base = getattr(policy, "base", None)  # its file is inside, and has the time of day in it too
    if base is not None:
        digest.update(policy_digest(base).encode())
    with np.load(io.BytesIO(policy_bytes(policy)), allow_pickle=False) as archive:
        for name in sorted({*archive.files} - {"base"}):
            array = archive[name]
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return f"sha256:{digest.hexdigest()}"


def policy_from_bytes(content: bytes, structure: Structure | None = None) -> Any:
    """The policy that `policy_bytes` has written."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        file.write_bytes(content)
        return load_policy(file, structure)


def load_policy(path: str | os.PathLike[str], structure: Structure | None = None) -> Policy:
    """Read a saved policy, of whatever kind.

    Parameters
    ----------
    path
        Where it is. Reading runs no code of the file.
    structure
        Where given, the sizes of the policy must be those of this structure.

    Returns
    -------
    Policy
        It answers every state as the saved one did.

    Raises
    ------
    FileProblem
        Where the file is missing, cut short, of another format or version, or for other sizes.
    InvalidParameter
        Where it is no path, or no structure.
    """
    target = path_of(path, "a policy file")
    if structure is not None and not isinstance(structure, Structure):
        raise InvalidParameter(
            f"the structure of load_policy must be a Structure; got {quoted(structure)}"
        )
    try:
        there = target.exists()
    except (OSError, ValueError):  # a name that no file can have
        there = False
    if not there:
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
