"""Stored policies and the archive format of their files: writing, digests, checked access.

A policy file is an archive of arrays with a JSON header and a checksum (`_base/archives.py`). It
holds no code. `policies/files.py` reads the files of all kinds.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import HEADER, pack, read_file, unpack
from fmdp._base.parameters import quoted
from fmdp.errors import FmdpError, InvalidParameter
from fmdp.model.constraints import Constraint, check_constraints, from_plain, plain
from fmdp.model.io.files import path_of, write_atomically
from fmdp.model.naming import Naming
from fmdp.model.structure import MAX_SIZE

FORMAT = "fmdp-policy"
VERSION = 3
WITHOUT_NAMES = 2
"""Older version whose files hold no names; they are read with default names."""
_VERSION_IN_DIGESTS = 1
"""Version that digests contain. It never changes: stores identify runs by digests of policies."""

PARTS = "parts"
"""The kind of policies whose tables lie in a folder beside the file."""
PARTS_SUFFIX = ".parts-"
"""Part of the name of such a folder, after the name of the file."""
_LARGEST_OF_PARTS = 1 << 24
"""Bytes that the file of such a policy, which has no arrays, does not exceed."""

Parts = tuple[Mapping[str, Any], Mapping[str, NDArray[Any]]]
"""Header entries and arrays of a policy file."""


class StoredPolicy(ABC):
    """Base class of policies that know their sizes and names and are saved as archives.

    A kind of policy defines `kind` and `content`, and has a reader in `files.READERS`.

    Parameters
    ----------
    state_sizes
        Number of values of each state variable.
    action_sizes
        Number of values of each action variable.
    naming
        The names of variables and values, as `structure.naming`; None for default names.
    """

    kind: ClassVar[str]
    constraints: tuple[Constraint, ...] | None = None
    """Constraints of the model that it was planned for; None if they are not known."""

    def __init__(
        self,
        state_sizes: tuple[int, ...],
        action_sizes: tuple[int, ...],
        naming: Naming | None = None,
    ) -> None:
        self.state_sizes = state_sizes
        self.action_sizes = action_sizes
        self.naming: Naming = _default_naming(state_sizes, action_sizes)
        if naming is not None:
            self.take_names(naming)

    def take_names(self, naming: Naming) -> None:
        """Replace the names of variables and values.

        Parameters
        ----------
        naming
            As `structure.naming`, for variables of the same sizes.
        """
        if not isinstance(naming, Naming):
            raise InvalidParameter(
                f"the naming of a policy must be as structure.naming is; got {quoted(naming)}"
            )
        sizes = naming.states.sizes, naming.actions.sizes
        if sizes != (self.state_sizes, self.action_sizes):
            raise InvalidParameter(
                f"the naming of a policy is for state sizes {sizes[0]} and action sizes "
                f"{sizes[1]}; must be for {self.state_sizes} and {self.action_sizes}"
            )
        self.naming = naming

    def take_constraints(self, constraints: tuple[Constraint, ...] | None) -> None:
        """Replace the constraints of the model.

        Parameters
        ----------
        constraints
            As `structure.constraints`; None if they are not known.
        """
        self.constraints = constraints

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy to a file (a NumPy archive) that `load_policy` reads.

        Parameters
        ----------
        path
            The file; an existing file is replaced atomically.

        Raises
        ------
        FileProblem
            If the file cannot be written.
        """
        target = path_of(path, "a policy file")
        replaced = parts_folder(target)
        write_atomically(path, policy_bytes(self))
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)

    def parts(self) -> Parts:
        """Return the header entries and arrays of its file, without names and constraints."""
        header, arrays = self.content()
        sizes = {"state_sizes": self.state_sizes, "action_sizes": self.action_sizes}
        return {**sizes, **header}, arrays

    @abstractmethod
    def content(self) -> Parts:
        """Return the header entries and arrays of its kind, besides the sizes."""


_default_naming = functools.lru_cache(maxsize=64)(Naming.default)


# ---- writing -------------------------------------------------------------------------------------


def policy_bytes(policy: Any) -> bytes:
    """Return the content of a policy's file, for example to store it inside another file."""
    if isinstance(policy, StoredPolicy):
        header, arrays = policy.parts()
        known = policy.constraints
        about = {
            "names": policy.naming.header(),
            "constraints": None if known is None else [plain(constraint) for constraint in known],
        }
        return pack(_header(policy, {**header, **about}, VERSION), arrays)
    # Policies of other packages only have `save`.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "policy.npz"
        policy.save(file)
        return file.read_bytes()


def policy_digest(policy: Any) -> str:
    """Return a digest of the policy's behaviour: of its file's content without the names."""
    if not isinstance(policy, StoredPolicy):
        return f"sha256:{hashlib.sha256(policy_bytes(policy)).hexdigest()}"
    digest = hashlib.sha256()
    base = getattr(policy, "base", None)
    if base is not None:
        digest.update(policy_digest(base).encode())
    header, arrays = policy.parts()
    text = json.dumps(_header(policy, header, _VERSION_IN_DIGESTS))
    content = {HEADER: np.array(text), **arrays}
    for name in sorted(content.keys() - {"base"}):
        array = content[name]
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return f"sha256:{digest.hexdigest()}"


def _header(policy: StoredPolicy, header: Mapping[str, Any], version: int) -> dict[str, Any]:
    return {"format": FORMAT, "version": version, "kind": policy.kind, **header}


def parts_folder(target: Path) -> Path | None:
    """Return the folder with the parts of a policy file that is about to be replaced.

    None if there is no such file, or one of another kind (policies/parts.py).
    """
    try:
        if target.stat().st_size > _LARGEST_OF_PARTS:
            return None
        header, _ = unpack(
            read_file(target, "a policy file"),
            str(target),
            what="policy",
            form=FORMAT,
            version=VERSION,
        )
    except (OSError, ValueError, FmdpError):
        return None
    target, name = target.resolve(), header.get("folder")
    if header.get("kind") != PARTS or not isinstance(name, str) or Path(name).name != name:
        return None
    # Nothing is deleted that is not named after the file.
    return target.parent / name if name.startswith(target.name + PARTS_SUFFIX) else None


# ---- reading -------------------------------------------------------------------------------------


def sizes_in(header: Mapping[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the state and action sizes in a header; raise InvalidParameter if they are wrong."""
    return (
        whole_numbers_in(header, "state_sizes", 1, MAX_SIZE),
        whole_numbers_in(header, "action_sizes", 1, MAX_SIZE),
    )


def whole_numbers_in(header: Mapping[str, Any], name: str, low: int, high: int) -> tuple[int, ...]:
    """Return a non-empty list of integers in a header; raise InvalidParameter if it is wrong."""
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
    """Return an array of a file after checking its type, shape and range.

    `kind` is "i" (int64), "u" (any unsigned type) or "f" (finite float64). None in `shape` allows
    any length. Raises InvalidParameter; compiled code relies on these checks.
    """
    array = arrays.get(name)
    if array is None:
        raise InvalidParameter(f"its part {name!r} is missing")
    right = array.dtype.kind == kind and array.dtype.isnative
    if not right or (kind != "u" and array.dtype.itemsize != 8):
        wanted = {"i": "int64", "f": "float64"}.get(kind, "unsigned whole numbers")
        raise InvalidParameter(f"its part {name!r} is of {array.dtype}; must be of {wanted}")
    check_shape(name, array.shape, shape)
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


def starts_in(arrays: Mapping[str, NDArray[Any]], name: str, n: int, flat: str) -> NDArray[Any]:
    """Return the array of n + 1 positions that divides an array of a file into n runs."""
    end = len(arrays[flat])
    start = array_in(arrays, name, "i", (n + 1,), 0, end)
    if start[0] != 0 or start[-1] != end or (np.diff(start) < 0).any():
        raise InvalidParameter(f"its part {name!r} does not divide {flat!r}")
    return start


def check_shape(name: str, shape: tuple[int, ...], wanted: tuple[int | None, ...]) -> None:
    """Raise InvalidParameter if an array does not have the shape; None allows any length."""
    fits = len(shape) == len(wanted) and all(
        want in (None, size) for size, want in zip(shape, wanted, strict=True)
    )
    if not fits:
        lengths = ", ".join("any" if size is None else str(size) for size in wanted)
        raise InvalidParameter(f"its part {name!r} has shape {shape}; must have ({lengths})")


def names_in(header: Mapping[str, Any]) -> Naming:
    """Return the names in a header, default names for older files; raise FmdpError if wrong."""
    names = None if header["version"] == WITHOUT_NAMES else header.get("names")
    return Naming.from_header(names, *sizes_in(header))


def constraints_in(header: Mapping[str, Any]) -> tuple[Constraint, ...] | None:
    """Return the constraints in a header, None if it has none; raise FmdpError if wrong."""
    given = header.get("constraints")
    if given is None:
        return None
    if not isinstance(given, list):
        raise InvalidParameter(f"its constraints must be a list; got {quoted(given)}")
    states, actions = sizes_in(header)
    return check_constraints(map(from_plain, given), len(states), (*states, *actions))
