"""Policies: deterministic functions of the state, asked one state at a time, saved compactly.

`TablePolicy` holds one action index a state in the smallest unsigned integer type that fits
(a million states and 21 actions: one megabyte, less on disk).  Files are archives of arrays with a
JSON header and a checksum (archives.py), no code, written atomically.  Other kinds of policy
register a reader under their own name, so that `load_policy` opens them all.  A reader takes
nothing on trust: compiled code does not look where an array ends.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import HEADER, Shapes, pack, read_file, unpack
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.model import Structure
from fmdp.model.constraints import Constraint, check_constraints, from_plain, plain
from fmdp.model.io.files import path_of, write_atomically
from fmdp.model.naming import ByName, ByNumber, NamedValues, Naming, Value, plain_value
from fmdp.model.spaces import count, decode, strides, whole_number
from fmdp.model.structure import MAX_SIZE

FORMAT = "fmdp-policy"
VERSION = 3
_WITHOUT_NAMES = 2
"""The version of files that hold no names; they are read as those of default names."""
_VERSION_IN_DIGESTS = 1
"""Runs in stores are known by digests of policies, whatever becomes of the files."""
MOST_ANSWERED = 1 << 12
"""States whose action a table keeps as it is answered, since most are asked for again."""


Parts = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]


@runtime_checkable
class Policy(Protocol):
    """Anything that answers a state with an action and can be saved."""

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        """The action in a state: the same one whenever it is asked.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One position per action variable. Where a mapping or a text was asked, the value of each
            action variable by its name, as the value was listed.
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
    naming
        What variables and values are called, as `structure.naming` has it; None for the default
        names. Two policies that do the same are equal, whatever things are called.

    Raises
    ------
    InvalidParameter
        Where the sizes, the shape, an action or the names are not as above; the text names the
        state.
    """

    kind: ClassVar[str] = "table"
    constraints: tuple[Constraint, ...] | None = None
    """Constraints of the model that it was planned for; None where they are not known."""

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        actions: NDArray[np.integer[Any]],
        naming: Naming | None = None,
    ) -> None:
        self.state_sizes = _sizes(state_sizes, "state")
        self.action_sizes = _sizes(action_sizes, "action")
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)
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
        self._steps = strides(self.state_sizes)
        self._answered: dict[Any, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        """The action in a state.

        Parameters
        ----------
        state
            One position or name of a value per state variable; or a mapping or a text by name, as
            in `Structure.check_state`.

        Returns
        -------
        tuple[int, ...] or dict[str, str | int | float]
            One position per action variable. Where a mapping or a text was asked, the value of each
            action variable by its name, as the value was listed.

        Raises
        ------
        InvalidParameter
            Where it is no state of the policy.
        """
        try:
            known = self._answered.get(state)
        except TypeError:  # a list, a mapping
            known = None
        # (1.0,) and (True,) are equal to (1,), and yet no states.
        if known is not None and (known[0] is state or only_ints(state)):
            return known[1]
        place = 0
        checked = self.naming.states.check(state, "state")
        for value, step in zip(checked, self._steps, strict=True):
            place += value * step
        action = decode(int(self.actions[place]), self.action_sizes)
        if checked is state:
            if len(self._answered) >= MOST_ANSWERED:
                self._answered.clear()
            self._answered[checked] = checked, action
        return self.naming.answer(action, state)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_answered": {}}

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

    def take_names(self, naming: Naming) -> None:
        """Be asked by these names from now on.

        Parameters
        ----------
        naming
            As `structure.naming` is, for variables of the same sizes.
        """
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)

    def parts(self) -> Parts:
        """What its file holds beside the names: a header and arrays."""
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


_R = TypeVar("_R", bound=Callable[[Any], Any])


def named(rule: _R) -> _R:
    """Mark a rule of one's own as asked by name: it receives a mapping, and not a tuple.

    Made for a decorator: `@fmdp.named` above `def careful(state)`, which then reads
    `state["pump"] == "worn"` or `state["queue"] >= 2`. Values are those that were listed: numbers
    where numbers were listed, texts where texts were. Any rule may answer by position or by name.

    Parameters
    ----------
    rule
        A function that takes a mapping from the name of every state variable to its value, and
        gives an action.

    Returns
    -------
    Callable
        The same rule, for wherever fmdp takes a rule.

    Raises
    ------
    InvalidParameter
        Where it is no function.
    """
    if isinstance(rule, type) or not callable(rule):
        raise InvalidParameter(f"named takes a function state -> action; got {quoted(rule)}")

    @functools.wraps(rule)
    def asked(state: Mapping[str, Value]) -> Any:
        return rule(state)

    asked.asked_by_name = True  # type: ignore[attr-defined]
    return asked  # type: ignore[return-value]


class Rule:
    """A policy that is a function of one's own: state -> action, by position or by name.

    Where there is one action variable its value alone is an answer too. The function is asked for
    every state that is met; a policy must answer the same state with the same action. It is given a
    tuple of positions, or a mapping to the values as they were listed where it is marked by
    `named`. An exception inside the function becomes an InvalidParameter that names the state.
    """

    def __init__(self, function: Callable[[Any], Any], structure: Structure) -> None:
        if isinstance(function, type) or not callable(function):
            raise InvalidParameter(
                f"a rule must be a function state -> action; got {quoted(function)}"
            )
        self.function = function
        self._structure = structure
        self._by_name = getattr(function, "asked_by_name", False) is True

    def __repr__(self) -> str:
        return f"Rule({getattr(self.function, '__name__', type(self.function).__name__)})"

    @overload
    def __call__(self, state: ByName) -> dict[str, Value]: ...  # type: ignore[overload-overlap]
    @overload
    def __call__(self, state: ByNumber) -> tuple[int, ...]: ...
    def __call__(self, state: Any) -> Any:
        naming = self._structure.naming
        checked = naming.check_state(state)
        asked = NamedValues(naming.states.as_listed(checked)) if self._by_name else checked
        try:
            answer = self.function(asked)
        except Exception as error:
            reason = error.args[0] if isinstance(error, KeyError) and error.args else error
            text = ": ".join(filter(None, [type(error).__name__, " ".join(str(reason).split())]))
            raise InvalidParameter(
                f"{self.in_state(checked)}: the function fails: {text}"
            ) from error
        try:
            action = as_action(answer, self._structure, by_value=self._by_name)
            self._structure.check_allowed(checked, action)
        except FmdpError as error:
            error.args = (f"{self.in_state(checked)}: {error}",)
            raise
        return naming.answer(action, state)

    def confirm(self, state: tuple[int, ...], action: tuple[int, ...]) -> None:
        """Raise InvalidParameter if the rule, asked again, does not answer with this action."""
        if self(state) != action:
            raise InvalidParameter(
                f"{self.in_state(state)}: answered two different actions when it was asked twice; "
                f"a policy must always answer a state with the same action, so a rule that draws "
                f"its actions at random is none"
            )

    def in_state(self, state: tuple[int, ...]) -> str:
        """Return how errors call the rule in a state, which is given by positions."""
        named = self._structure.naming.states.named(state)
        return f"{self!r} in state {', '.join(map('='.join, named.items()))}"

    def save(self, path: str | os.PathLike[str]) -> None:
        raise InvalidParameter(
            "a rule of one's own cannot be saved: a policy file holds numbers and no code"
        )


def only_ints(given: Any) -> bool:
    """Whether it is a number or a tuple of numbers, all of them plain ones of Python."""
    if type(given) is tuple:
        return {*map(type, given)} == _INT
    return type(given) is int


_INT = {int}


def as_action(answer: Any, structure: Structure, *, by_value: bool = False) -> tuple[int, ...]:
    """Return the positions of an action from what a rule or a learner answers.

    The answer is a sequence of positions or names, an action by name, or the value of the one
    action variable alone. Such a number alone is a value with `by_value`, as it is in a mapping;
    without, it may be a position too, and is refused where the two differ.
    """
    alone = plain_value(answer)
    is_number = isinstance(alone, int | float) if by_value else whole_number(alone) is not None
    if not is_number:
        return structure.check_action(answer)
    if len(structure.action_sizes) > 1:
        raise InvalidParameter(
            f"a rule answered {quoted(alone)}; an action must have "
            f"{len(structure.action_sizes)} values, one for each action variable"
        )
    actions = structure.naming.actions
    return (actions.place(0, alone) if by_value else actions.alone(alone),)


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
    naming = getattr(policy, "naming", None)
    if isinstance(naming, Naming) and naming is not structure.naming:
        naming.refuse_other(structure.naming, "the policy", "the model")
    return True


def naming_for(
    naming: Naming | None, state_sizes: tuple[int, ...], action_sizes: tuple[int, ...]
) -> Naming:
    """The names of a policy's variables: those that are given, of these sizes, or the default."""
    if naming is None:
        return _default_naming(state_sizes, action_sizes)
    if not isinstance(naming, Naming):
        raise InvalidParameter(
            f"the naming of a policy must be as structure.naming is; got {quoted(naming)}"
        )
    sizes = naming.states.sizes, naming.actions.sizes
    if sizes != (state_sizes, action_sizes):
        raise InvalidParameter(
            f"the naming of a policy is for state sizes {sizes[0]} and action sizes {sizes[1]}; "
            f"must be for {state_sizes} and {action_sizes}"
        )
    return naming


_default_naming = functools.lru_cache(maxsize=64)(Naming.default)


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
    from fmdp.planning.alp.greedy import GreedyPolicy

    return GreedyPolicy.from_archive(header, arrays)


def _timed(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Policy:
    from fmdp.planning.policies.timed import TimedPolicy

    return TimedPolicy.from_archive(header, arrays)


def _randomised(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Any:
    from fmdp.planning.policies import randomised

    return randomised.from_archive(header, arrays)


READERS: dict[str, Callable[[Mapping[str, Any], Mapping[str, NDArray[Any]]], Policy]] = {
    TablePolicy.kind: TablePolicy.from_archive,
    "greedy": _greedy,
    "timed": _timed,
    "uniform": _randomised,
    "exploring": _randomised,
}


class Saved(Protocol):
    """A policy whose file is an archive: its kind, its names, and what the archive holds."""

    kind: ClassVar[str]

    @property
    def naming(self) -> Naming: ...

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
        known = getattr(policy, "constraints", None)
        about = {
            "names": policy.naming.header(),
            "constraints": None if known is None else [plain(one) for one in known],
        }
        return pack(_header(policy, {**header, **about}, VERSION), arrays)
    # A policy of one's own is saved by path, in its own way.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        policy.save(file)
        return file.read_bytes()


def policy_digest(policy: Any) -> str:
    """A digest of what a policy does: of what its file holds but the names."""
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
        if kind == "timed":
            if shapes.keys() != {"tables", "stages"}:
                raise FileProblem(
                    f"{label} holds no policy: its parts are not the two 'tables' and 'stages'"
                )
            if shapes["tables"][1:] != (states := _n_states(header, label)):
                raise FileProblem(
                    f"{label} holds no policy: its part 'tables' has shape {shapes['tables']}; "
                    f"must have (any, {states[0]})"
                )

    header, arrays = unpack(
        content,
        label,
        what="policy",
        form=FORMAT,
        version=VERSION,
        older=(_WITHOUT_NAMES,),
        expect=expect,
    )
    try:
        found: Any = READERS[header["kind"]](header, arrays)
        naming = names_in(header)
        constraints = _constraints_in(header)
    except FmdpError as error:
        raise FileProblem(f"{label} holds no policy: {error}") from None
    if structure is not None:
        try:
            naming.refuse_other(structure.naming, "its policy", "the problem")
        except FmdpError as error:
            raise FileProblem(f"{label} is a policy for other names: {error}") from None
        # Of the same names those of the structure know which values were listed as numbers.
        same = naming.is_default or naming == structure.naming
        naming = structure.naming if same else naming
    found.take_names(naming)
    keep_constraints(found, constraints)
    return found


def keep_constraints(policy: Any, constraints: tuple[Constraint, ...] | None) -> None:
    """Let a policy know the constraints of its model, where its kind of policy keeps them."""
    if hasattr(policy, "parts") and hasattr(policy, "constraints"):
        policy.constraints = constraints


def _constraints_in(header: Mapping[str, Any]) -> tuple[Constraint, ...] | None:
    """Return the constraints in the header of a policy file; None if it does not have them."""
    given = header.get("constraints")
    if given is None:
        return None
    if not isinstance(given, list):
        raise InvalidParameter(f"its constraints must be a list; got {quoted(given)}")
    states, actions = sizes_in(header)
    return check_constraints(map(from_plain, given), len(states), (*states, *actions))


def names_in(header: Mapping[str, Any]) -> Naming:
    """The names in the header of a policy file, which older ones do not have; or FmdpError."""
    names = None if header["version"] == _WITHOUT_NAMES else header.get("names")
    return Naming.from_header(names, *sizes_in(header))


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
        Where given, the sizes and the names of the policy must be those of this structure; a policy
        without names takes those of the structure.

    Returns
    -------
    Policy
        It answers every state as the saved one did, by number and by name.

    Raises
    ------
    FileProblem
        Where the file is missing, cut short, of another format or version, or for other sizes
        or names.
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
    if structure is not None:
        keep_constraints(found, structure.constraints)
    return found
