"""Reading policy files of every kind, and converting what users pass as a policy.

Readers validate everything: compiled code does not check array bounds.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import Shapes, read_file, unpack
from fmdp._base.parameters import quoted
from fmdp.errors import FileProblem, FmdpError, InvalidParameter
from fmdp.model import Structure
from fmdp.model.io.files import path_of
from fmdp.model.spaces import count
from fmdp.planning.policies.archive import (
    FORMAT,
    PARTS,
    VERSION,
    WITHOUT_NAMES,
    StoredPolicy,
    array_in,
    check_shape,
    constraints_in,
    names_in,
    sizes_in,
    starts_in,
)
from fmdp.planning.policies.counts import (
    CountPolicy,
    TimedCountPolicy,
    read_counts,
    read_timed_counts,
)
from fmdp.planning.policies.fleet import FleetPolicy
from fmdp.planning.policies.mixed import MixedPolicy
from fmdp.planning.policies.parts import read_parts
from fmdp.planning.policies.policy import Policy, TablePolicy, has_sizes_of
from fmdp.planning.policies.randomised import ExploringPolicy, UniformPolicy
from fmdp.planning.policies.rule import Rule
from fmdp.planning.policies.timed import TimedPolicy

Header = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]


def _table(header: Header, arrays: Arrays) -> StoredPolicy:
    states, actions = sizes_in(header)
    return TablePolicy(states, actions, array_in(arrays, "actions", "u", (count(states),)))


def _timed(header: Header, arrays: Arrays) -> StoredPolicy:
    states, actions = sizes_in(header)
    tables = array_in(arrays, "tables", "u", (None, count(states)))
    numbers = array_in(arrays, "stages", "i", (None,), 0, len(tables) - 1)
    stages = [TablePolicy(states, actions, table) for table in tables]
    return TimedPolicy([stages[number] for number in numbers.tolist()], header.get("discount", 1.0))


def _mixed(header: Header, arrays: Arrays) -> StoredPolicy:
    base = _table(header, arrays)
    assert isinstance(base, TablePolicy)
    states = array_in(arrays, "states", "i", (None,), 0, count(base.state_sizes) - 1)
    choices = array_in(arrays, "choices", "i", (None,), 0, count(base.action_sizes) - 1)
    return MixedPolicy.from_arrays(
        base,
        states,
        starts_in(arrays, "starts", len(states), "choices"),
        choices,
        array_in(arrays, "probabilities", "f", (len(choices),), 0.0, 1.0),
    )


def _greedy(header: Header, arrays: Arrays) -> StoredPolicy:
    # Imported on use: it loads the cost networks of the linear programs.
    from fmdp.planning.alp.greedy import GreedyPolicy

    return GreedyPolicy.from_archive(header, arrays)


def _uniform(header: Header, arrays: Arrays) -> StoredPolicy:
    return UniformPolicy(*sizes_in(header))


BASES = ("table", "greedy", "fleet", "counts")
"""The kinds of policies that are functions of the state alone."""


def _exploring(header: Header, arrays: Arrays) -> StoredPolicy:
    sizes = sizes_in(header)
    content = array_in(arrays, "base", "u", (None,))
    if content.dtype != np.uint8:
        raise InvalidParameter(f"its part 'base' is of {content.dtype}; must be of uint8")
    # The base is a function of the state alone, so it contains no further policy.
    base = policy_from_bytes(content.tobytes(), "its base", kinds=BASES)
    epsilon = header.get("epsilon")
    if not isinstance(epsilon, int | float):
        raise InvalidParameter(f"its epsilon must be a number; got {quoted(epsilon)}")
    policy = ExploringPolicy(base, epsilon, by_variable=header.get("by_variable", False))
    if (policy.state_sizes, policy.action_sizes) != sizes:
        raise InvalidParameter("its base is a policy for other sizes than its header says")
    if policy.naming != names_in(header):
        raise InvalidParameter("its base is a policy for other names than its header says")
    return policy


READERS: dict[str, Callable[[Header, Arrays], StoredPolicy]] = {
    TablePolicy.kind: _table,
    TimedPolicy.kind: _timed,
    UniformPolicy.kind: _uniform,
    ExploringPolicy.kind: _exploring,
    MixedPolicy.kind: _mixed,
    FleetPolicy.kind: FleetPolicy.from_archive,
    CountPolicy.kind: read_counts,
    TimedCountPolicy.kind: read_timed_counts,
    "greedy": _greedy,
}
"""The function that reads each kind of policy from the header and the arrays of its file.

`policy_from_bytes` sets names and constraints, which all kinds have."""


def policy_from_bytes(
    content: bytes,
    label: str,
    structure: Structure | None = None,
    kinds: Sequence[str] = (),
    folder: Path | None = None,
) -> Any:
    """Return the policy that `policy_bytes` has written; raise FileProblem if it is not valid.

    `label` is what errors call the file. If a structure is given, the policy must have its sizes
    and names. `kinds` are the allowed kinds, all if empty. `folder` is where the file is; without
    one, a policy in parts is refused.
    """

    def expect(header: Header, shapes: Shapes) -> None:
        kind = header.get("kind")
        if not isinstance(kind, str) or kind not in (kinds or (*READERS, PARTS)):
            raise FileProblem(f"{label} holds a policy of unknown kind {kind!r}")
        if structure is not None:
            _expect_sizes(header, structure, label)
        try:
            _expect_shapes(kind, header, shapes)
        except FmdpError as error:
            raise FileProblem(f"{label} holds no policy: {error}") from None

    header, arrays = unpack(
        content,
        label,
        what="policy",
        form=FORMAT,
        version=VERSION,
        older=(WITHOUT_NAMES,),
        expect=expect,
    )
    try:
        in_parts = header["kind"] == PARTS
        policy = read_parts(header, folder) if in_parts else READERS[header["kind"]](header, arrays)
        naming = names_in(header)
        policy.take_constraints(constraints_in(header))
    except FmdpError as error:
        raise FileProblem(f"{label} holds no policy: {error}") from None
    if structure is not None:
        try:
            naming.refuse_other(structure.naming, "its policy", "the problem")
        except FmdpError as error:
            raise FileProblem(f"{label} is a policy for other names: {error}") from None
        # Equal names are taken from the structure, which knows the values that are numbers.
        same = naming.is_default or naming == structure.naming
        naming = structure.naming if same else naming
    policy.take_names(naming)
    return policy


def _expect_sizes(header: Header, structure: Structure, label: str) -> None:
    for what in ("state", "action"):
        ours = getattr(structure, f"{what}_sizes")
        theirs = header.get(f"{what}_sizes")
        if theirs != list(ours):
            shown = quoted(tuple(theirs) if isinstance(theirs, list) else theirs)
            raise FileProblem(
                f"{label} is a policy for {what} sizes {shown}; the problem has {ours}"
            )


def _expect_shapes(kind: str, header: Header, shapes: Shapes) -> None:
    """Raise FmdpError if the arrays of a table or a timed policy have wrong names or shapes."""
    if kind not in (TablePolicy.kind, TimedPolicy.kind):
        return
    states = count(sizes_in(header)[0])
    wanted: dict[str, tuple[int | None, ...]] = {"actions": (states,)}
    if kind == TimedPolicy.kind:
        wanted = {"tables": (None, states), "stages": (None,)}
    if shapes.keys() != wanted.keys():
        raise InvalidParameter(f"its parts must be {' and '.join(map(repr, wanted))}")
    for name, shape in wanted.items():
        check_shape(name, shapes[name], shape)


def load_policy(path: str | os.PathLike[str], structure: Structure | None = None) -> Policy:
    """Read a saved policy of any kind.

    Parameters
    ----------
    path
        The file. Reading it runs no code from the file.
    structure
        If given, the sizes and the names of the policy must be those of this structure. A policy
        without names takes the names of the structure.

    Returns
    -------
    Policy
        It returns the same action as the saved policy in every state, by number and by name.

    Raises
    ------
    FileProblem
        If the file is missing, truncated, of another format or version, or for other sizes or
        names.
    InvalidParameter
        If `path` is not a path or `structure` is not a Structure.
    """
    target = path_of(path, "a policy file")
    if structure is not None and not isinstance(structure, Structure):
        raise InvalidParameter(
            f"the structure of load_policy must be a Structure; got {quoted(structure)}"
        )
    try:
        exists = target.exists()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    if not exists:
        raise FileProblem(f"no policy file at {target}")
    content = read_file(target, "a policy file")
    policy: Any = policy_from_bytes(content, str(target), structure, folder=target.resolve().parent)
    if structure is not None:
        policy.take_constraints(structure.constraints)
    loaded: Policy = policy
    return loaded


def policy_of(given: object, structure: Structure, owner: str) -> Policy:
    """Return a policy from what a user passes: a policy, a rule, or the path of a policy file."""
    if isinstance(given, str | os.PathLike):
        return load_policy(given, structure)
    if has_sizes_of(given, structure) and isinstance(given, Policy):
        return given
    if isinstance(given, type) or not callable(given):
        raise InvalidParameter(
            f"the policy of {owner} must be a policy (as plan.policy is), a function "
            f"state -> action, or the path of a policy file; got {quoted(given)}"
        )
    return Rule(given, structure)
