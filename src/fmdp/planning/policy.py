"""Policies: deterministic functions of the state, asked one state at a time, saved compactly.

`TablePolicy` holds one action index a state in the smallest unsigned integer type that fits
(a million states and 21 actions: one megabyte, less on disk).  Files are archives of arrays with a
JSON header and a checksum (archives.py), no code, written atomically.  Other kinds of policy
register a reader under their own name, so that `load_policy` opens them all.  A reader takes
nothing on trust: compiled code does not look where an array ends.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fmdp.archives import HEADER, Shapes, pack, read_file, unpack
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.model import Structure
from fmdp.model.files import path_of, write_atomically
from fmdp.model.spaces import count, decode, encode, shown_tuple, whole_number
from fmdp.model.structure import MAX_SIZE
from fmdp.parameters import quoted

FORMAT = "fmdp-policy"
VERSION = 2
_VERSION_IN_DIGESTS = 1
"""Runs in stores are known by digests of policies, whatever becomes of the files."""


Parts = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]


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
        write_policy(path, self)

    def parts(self) -> Parts:
        """What its file holds: a header and arrays."""
        header = {"state_sizes": self.state_sizes, "action_sizes": self.action_sizes}
        return header, {"actions": self.actions}

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
        states, actions = sizes_in(header)
        table = array_in(arrays, "actions", "u", (count(states),))
        return cls(states, actions, table)


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


class Saved(Protocol):
    """A policy whose file is an archive: its kind, and what the archive holds."""

    kind: ClassVar[str]

    def parts(self) -> Parts: ...


def write_policy(path: str | os.PathLike[str], policy: Saved) -> None:
    """Write a policy file whole or not at all."""
    path_of(path, "a policy file")
    write_atomically(path, policy_bytes(policy))


def _header(policy: Saved, header: Mapping[str, Any], version: int) -> dict[str, Any]:
    return {"format": FORMAT, "version": version, "kind": policy.kind, **header}


def policy_bytes(policy: Any) -> bytes:
    """The content of a policy's file, to be kept inside another file."""
    if hasattr(policy, "parts"):
        header, arrays = policy.parts()
        return pack(_header(policy, header, VERSION), arrays)
    # A policy of one's own is saved by path, in its own way.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        policy.save(file)
        return file.read_bytes()


def policy_digest(policy: Any) -> str:
    """A digest of what a policy is: of what its file holds."""
    if not hasattr(policy, "parts"):
        return f"sha256:{hashlib.sha256(policy_bytes(policy)).hexdigest()}"
    digest = hashlib.sha256()
    base = getattr(policy, "base", None)
    if base is not None:
        digest.update(policy_digest(base).encode())
    header, arrays = policy.parts()
    text = json.dumps(_header(policy, header, _VERSION_IN_DIGESTS))
    held = {HEADER: np.array(text), **arrays}
    for name in sorted(held.keys() - {"base"}):
        array = held[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return f"sha256:{digest.hexdigest()}"


# ---- reading -------------------------------------------------------------------------------------


def sizes_in(header: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """State and action sizes in the header of a policy file, or InvalidParameter."""
    return (
        whole_numbers_in(header, "state_sizes", 1, MAX_SIZE),
        whole_numbers_in(header, "action_sizes", 1, MAX_SIZE),
    )


def whole_numbers_in(header: Mapping[str, Any], name: str, low: int, high: int) -> tuple[int, ...]:
    """A list of whole numbers in a header, at least one, or InvalidParameter."""
    given = header.get(name)
    if not isinstance(given, list) or not given:
        raise InvalidParameter(f"its {name} must be a list of whole numbers; got {quoted(given)}")
    for value in given:
        if type(value) is not int or not low <= value <= high:
            raise InvalidParameter(
                f"its {name} must be whole numbers from {low} to {high}; got {quoted(value)}"
            )
    return tuple(given)


def array_in(
    arrays: Mapping[str, NDArray[Any]],
    name: str,
    kind: str,
    shape: tuple[int | None, ...],
    low: float | None = None,
    high: float | None = None,
) -> NDArray[Any]:
    """An array of a file: whole numbers ("i", "u") or finite floats ("f"), of 64 bits but for
    unsigned ones, of this shape (None for any length), its entries from low to high; or
    InvalidParameter."""
    array = arrays.get(name)
    if array is None:
        raise InvalidParameter(f"its part {name!r} is missing")
    right = array.dtype.kind == kind and array.dtype.isnative
    if not right or (kind != "u" and array.dtype.itemsize != 8):
        wanted = {"i": "int64", "f": "float64"}.get(kind, "unsigned whole numbers")
        raise InvalidParameter(f"its part {name!r} is of {array.dtype}; must be of {wanted}")
    fits = len(array.shape) == len(shape) and all(
        want in (None, size) for size, want in zip(array.shape, shape, strict=True)
    )
    if not fits:
        raise InvalidParameter(
            f"its part {name!r} has shape {array.shape}; must have "
            f"({', '.join('any' if size is None else str(size) for size in shape)})"
        )
    if kind == "f" and not np.isfinite(array).all():
        raise InvalidParameter(f"its part {name!r} has entries that are no finite numbers")
    if array.size and (
        (low is not None and array.min() < low) or (high is not None and array.max() > high)
    ):
        raise InvalidParameter(
            f"its part {name!r} has entries from {array.min()} to {array.max()}; "
            f"allowed: {'any' if low is None else low} to {'any' if high is None else high}"
        )
    return array


def policy_from_bytes(
    content: bytes, label: str, structure: Structure | None = None, kinds: Sequence[str] = ()
) -> Any:
    """The policy that `policy_bytes` has written, of one of these kinds if any are given; what is
    wrong is a FileProblem that begins with the label."""

    def expect(header: Mapping[str, Any], shapes: Shapes) -> None:
        kind = header.get("kind")
        if not isinstance(kind, str) or kind not in (kinds or READERS):
            raise FileProblem(f"{label} holds a policy of unknown kind {kind!r}")
        for what in ("state", "action") if structure is not None else ():
            ours = getattr(structure, f"{what}_sizes")
            theirs = header.get(f"{what}_sizes")
            if theirs != list(ours):
                shown = quoted(tuple(theirs) if isinstance(theirs, list) else theirs)
                raise FileProblem(
                    f"{label} is a policy for {what} sizes {shown}; the problem has {ours}"
                )
        if kind == TablePolicy.kind and shapes.keys() != {"actions"}:
            raise FileProblem(f"{label} holds no policy: its parts are not the one 'actions'")
        if kind == TablePolicy.kind and shapes["actions"] != (states := _n_states(header, label)):
            raise FileProblem(
                f"{label} holds no policy: its part 'actions' has shape {shapes['actions']}; "
                f"must have {states}"
            )

    header, arrays = unpack(
        content, label, what="policy", form=FORMAT, version=VERSION, expect=expect
    )
    try:
        return READERS[header["kind"]](header, arrays)
    except FmdpError as error:
        raise FileProblem(f"{label} holds no policy: {error}") from None


def _n_states(header: Mapping[str, Any], label: str) -> tuple[int]:
    try:
        return (count(sizes_in(header)[0]),)
    except FmdpError as error:
        raise FileProblem(f"{label} holds no policy: {error}") from None


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
    content = read_file(target, "a policy file")
    found: Policy = policy_from_bytes(content, str(target), structure)
    return found
