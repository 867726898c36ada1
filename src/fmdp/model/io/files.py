"""Model files: one factored MDP as JSON, format "fmdp-model".

docs/model-file.md describes the format; schema/ has the JSON Schemas of its versions. A file that
is read back gives an equal model, bit for bit, because floats are written with the digits that
identify them. Writing is atomic: the text goes to a new file in the same folder, is synchronised to
disk, and replaces the old file in one step, so that a failure leaves the old file as it was. Error
messages name the file, the place, the value and what is allowed.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fmdp._base.archives import read_file, reason, refuse_large_json
from fmdp.errors import FileProblem, InvalidModel, InvalidParameter, TooLarge
from fmdp.model.factored import FactoredMDP
from fmdp.model.fields import show
from fmdp.model.io.document import read_document
from fmdp.model.io.writing import text_of
from fmdp.model.spaces import shown

_fcntl: Any = importlib.import_module("fcntl") if os.name == "posix" else None


def save(model: FactoredMDP, path: str | os.PathLike[str]) -> None:
    """Write a model to a model file (JSON), atomically.

    Parameters
    ----------
    model
        The model.
    path
        Path of the file. An existing file is replaced; if writing fails it stays as it was.

    Raises
    ------
    FileProblem
        If the file cannot be written.
    InvalidParameter
        If it is no model, or no path.
    """
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(f"save writes a FactoredMDP; got {shown(model)}")
    path_of(path, "a model file")
    write_atomically(path, dumps(model))


def load(path: str | os.PathLike[str]) -> FactoredMDP:
    """Read a model file (JSON, format "fmdp-model").

    Parameters
    ----------
    path
        Path of the file.

    Raises
    ------
    FileProblem
        If the file is missing, no JSON, or of another format or version.
    InvalidModel
        If it does not contain a model; the message names the factor and the row.
    InvalidParameter
        If it is no path.
    """
    path_of(path, "a model file")
    return loads(read_text(path, "a model file"), os.fspath(path))


def dumps(model: FactoredMDP) -> str:
    """Return the text of the model file."""
    return text_of(model)


def loads(text: str, source: str = "model") -> FactoredMDP:
    """Return the model in the text of a model file; error messages begin with the source."""
    document = parse_json(text, source)
    try:
        return FactoredMDP._of(read_document(document))
    except FileProblem as error:
        raise FileProblem(f"{source}: {error}") from None
    except InvalidModel as error:
        raise InvalidModel(f"{source}: {error}") from None
    except TooLarge as error:
        raise TooLarge(f"{source}: {error}", error.needed_bytes, error.limit_bytes) from None


def path_of(path: object, what: str) -> Path:
    """Return the path of a file, or raise InvalidParameter if it is neither text nor a path."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InvalidParameter(f"the path of {what} must be a text or a path; got {shown(path)}")
    return Path(path)


def read_text(path: str | os.PathLike[str], what: str) -> str:
    """Return the text of a UTF-8 file, or raise FileProblem; `what` was expected."""
    content = read_file(path, what)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise FileProblem(
            f"{os.fspath(path)}: byte {error.start} is not UTF-8 text; must be {what}"
        ) from None


def write_atomically(path: str | os.PathLike[str], content: str | bytes | Iterable[str]) -> None:
    """Replace the file (or create it) in one step; on failure the old file stays as it was.

    A long text may be given in parts. The new file keeps the permissions of the old one, and a
    symbolic link stays a link.
    """
    parts = [content] if isinstance(content, str | bytes) else content
    label = os.fspath(path)
    try:
        target = Path(path).resolve()
        _remove_abandoned(target.parent)
        # Replacing a device or a pipe (/dev/null) would destroy it.
        refused = target.exists() and not target.is_file()
        temporary = target.parent / f".fmdp-{secrets.token_hex(8)}.tmp"
        if not refused:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a loop of links
        raise FileProblem(f"{label}: cannot be written ({reason(error)})") from None
    if refused:
        kind = "a directory" if target.is_dir() else "not a regular file"
        raise FileProblem(f"{label}: is {kind}; must be a file, or a new name")
    try:
        with os.fdopen(descriptor, "wb") as file:
            locked(descriptor)  # marks the file as not abandoned
            for part in parts:
                file.write(part.encode() if isinstance(part, str) else part)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(OSError):
            temporary.chmod(target.stat().st_mode & 0o7777)
        temporary.replace(target)
        sync_folder(target.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise FileProblem(f"{label}: cannot be written ({reason(error)})") from None
        raise


def _remove_abandoned(folder: Path) -> None:
    """Remove temporary files of killed writers, whose locks are free.

    An empty file may be new and not locked yet.
    """
    for left in folder.glob(".fmdp-????????????????.tmp"):
        with contextlib.suppress(OSError):
            descriptor = os.open(left, os.O_RDONLY)
            try:
                if os.fstat(descriptor).st_size > 0 and locked(descriptor):
                    left.unlink()
            finally:
                os.close(descriptor)


def locked(descriptor: int) -> bool:
    """Return whether the lock of an open file or directory could be taken.

    The lock ends with the process. False also on systems without such locks.
    """
    if _fcntl is None:
        return False
    try:
        _fcntl.flock(descriptor, _fcntl.LOCK_EX | _fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def sync_folder(folder: Path) -> None:
    """Synchronise a folder to disk if the system can (POSIX), so that new names are durable."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class _Refused(ValueError):
    """Raised inside the JSON parser for JSON that Python would accept."""


def parse_json(text: str, source: str) -> Any:
    """Return parsed JSON, or raise FileProblem.

    NaN, Infinity, repeated keys and texts that would not fit into memory are refused.
    """
    refuse_large_json(text, source)

    def constant(name: str) -> Any:
        raise _Refused(f"{name} is not allowed; numbers must be finite")

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            seen: set[str] = set()
            for key, _ in items:
                if key in seen:
                    raise _Refused(f"key {show(key)} occurs twice in one object; must occur once")
                seen.add(key)
        return result

    try:
        return json.loads(text, parse_constant=constant, object_pairs_hook=pairs)
    except json.JSONDecodeError as error:
        raise FileProblem(
            f"{source}: not valid JSON, or cut short: {error.msg} at line {error.lineno}, "
            f"column {error.colno}"
        ) from None
    except _Refused as error:
        raise FileProblem(f"{source}: {error}") from None
    except RecursionError:
        raise FileProblem(f"{source}: not a model file: brackets are nested too deeply") from None
    except ValueError as error:
        # Python does not read whole numbers of thousands of digits.
        raise FileProblem(f"{source}: a number cannot be read ({error})") from None
