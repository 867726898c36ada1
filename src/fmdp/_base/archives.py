"""Safe reading of files, and archives of named arrays.

`read_file` returns the bytes of a regular file. Devices, pipes, sockets and folders are refused
before they are opened, so that reading neither hangs nor goes on without end. `pack` and `unpack`
handle archives of named arrays with a JSON header (NumPy's .npz), which hold policies and learners.
Files are not trusted: `unpack` reads the directory and the declared shapes first and refuses what
would not fit into half of the free memory, executes nothing, accepts arrays of plain numbers and
texts only, and verifies a checksum over the header and every array. Every error is a FileProblem,
one line that names the file. Callers check the meaning of the arrays.

Cost: an array is inflated once, in place; SHA-256 reads about a gigabyte per second.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes
from fmdp.errors import FileProblem, FmdpError

HEADER = "header"
DIGEST = "digest"
_MOST_MEMBERS = 4096
"""Most arrays of an archive, which bounds the time to read its directory."""
_CHUNK = 1 << 20
"""Bytes inflated at a time."""
_ENTRY = b"PK\x01\x02"
"""First bytes of an entry of the directory."""
_NUMBERS = re.compile(r"[<>|]([biufc][0-9]{1,2}|[US][0-9]{1,9})")
_LAYOUT = re.compile(
    rb"\{'descr': '([<>|][A-Za-z0-9]+)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n"
)
_MAGIC = b"\x93NUMPY\x01\x00"
# Bytes of Python objects per character of a JSON text, from sys.getsizeof plus a list entry.
_OF_OBJECT, _OF_ARRAY, _OF_PAIR, _OF_ITEM, _OF_TEXT = 248, 96, 104, 40, 60


def memory_for_files() -> int:
    """Return the most bytes that the content of one file may take: half of the free memory."""
    return available_memory() // 2


def read_file(
    path: str | os.PathLike[str], what: str, *, folder: int | None = None, label: str = ""
) -> bytes:
    """Return the content of a regular file or raise FileProblem.

    `what` describes what is expected. A relative path begins at the directory that the descriptor
    `folder` refers to; `label` then names the file in errors.
    """
    label = label or os.fspath(path)
    try:
        _refuse_special(os.stat(path, dir_fd=folder).st_mode, label, what)
        # The file may be replaced by a pipe between the two checks.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY
        descriptor = os.open(path, flags, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            _refuse_special(status.st_mode, label, what)
            _refuse_large(status.st_size, label)
            return file.read(status.st_size)
    except FileProblem:
        raise
    except FileNotFoundError:
        raise FileProblem(f"{label}: no such file; must be {what}") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise FileProblem(f"{label}: cannot be read ({reason(error)})") from None


_BINARY = getattr(os, "O_BINARY", 0)


def reason(error: Exception) -> str:
    """Return the system's message about a file, without its error number."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _refuse_special(mode: int, label: str, what: str) -> None:
    if stat.S_ISREG(mode):
        return
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = kinds.get(stat.S_IFMT(mode), "no regular file")
    raise FileProblem(f"{label}: is {kind}; must be {what}")


def _refuse_large(needed: int, label: str) -> None:
    limit = memory_for_files()
    if needed > limit:
        raise FileProblem(
            f"{label}: reading it takes about {describe_bytes(needed)}; must be at most "
            f"{describe_bytes(limit)}, half of the free memory"
        )


def refuse_large_json(text: str, label: str) -> None:
    """Raise FileProblem if the objects of a JSON text would not fit, before they are made."""
    needed = 2 * len(text)
    for sign, each in (("{", _OF_OBJECT), ("[", _OF_ARRAY), (":", _OF_PAIR), (",", _OF_ITEM)):
        needed += each * text.count(sign)
    _refuse_large(needed + _OF_TEXT * text.count('"') // 2, label)


# ---- archives ------------------------------------------------------------------------------------


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an archive, equal for equal content; raise TypeError for other arrays."""
    kept = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    for name, array in kept.items():
        if not _NUMBERS.fullmatch(array.dtype.str):
            raise TypeError(f"an array of {array.dtype} ({name})")
    text = json.dumps({**header, DIGEST: checksum(header, kept)})
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in {HEADER: np.array(text), **kept}.items():
            member = zipfile.ZipInfo(f"{name}.npy")  # without the time of day
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, array, version=(1, 0), allow_pickle=False)
    return stream.getvalue()


def checksum(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return a digest of an archive's content, except for the digest itself."""
    content = {key: value for key, value in header.items() if key != DIGEST}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        if array.size:
            digest.update(_bytes_of(array))
    return f"sha256:{digest.hexdigest()}"


Shapes = Mapping[str, tuple[int, ...]]


def unpack(
    content: bytes,
    label: str,
    *,
    what: str,
    form: str,
    version: int,
    older: tuple[int, ...] = (),
    expect: Callable[[dict[str, Any], Shapes], None] | None = None,
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of an archive; `what`, `form` and `version` are used in errors.
    Versions in `older` are accepted too; the header contains the version. `expect` receives the
    header and the shapes before any array is inflated, and raises if they are inconsistent."""
    try:
        if content.count(_ENTRY) > _MOST_MEMBERS:
            raise _Flawed(f"it has more than {_MOST_MEMBERS} parts")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive, len(content), label)
            header = _header(archive, members.pop(HEADER), label)
            _refuse_other(header, label, what, form, (version, *older))
            if expect is not None:
                expect(header, {name: member.shape for name, member in members.items()})
            arrays = {name: _array(archive, member, name) for name, member in members.items()}
        digest = checksum(header, arrays)
    except FmdpError:
        raise
    except (_Flawed, *_FLAWS) as error:
        detail = f": {error}" if isinstance(error, _Flawed) else ""
        raise FileProblem(f"{label} is not a {what} file (or is cut short){detail}") from None
    if header.pop(DIGEST, None) != digest:
        raise FileProblem(f"{label} is damaged: its checksum is not that of its content")
    return header, arrays


def _header(archive: zipfile.ZipFile, member: _Member, label: str) -> Any:
    if member.dtype.kind != "U" or member.shape != ():
        raise _Flawed("its header is no text")
    text = str(_array(archive, member, HEADER))
    refuse_large_json(text, label)
    return json.loads(text)


def _refuse_other(header: Any, label: str, what: str, form: str, versions: tuple[int, ...]) -> None:
    if not isinstance(header, dict) or header.get("format") != form:
        raise FileProblem(f"{label} is not a {what} file: its format is not {form}")
    version = header.get("version")
    if type(version) is not int or version not in versions:
        known = " and ".join(map(str, versions))
        raise FileProblem(f"{label} has {what} version {version}; this fmdp reads {known}")


class _Flawed(Exception):
    """A defect of an archive."""


# Exceptions of zipfile, zlib and json on malformed bytes; RuntimeError includes RecursionError.
_FLAWS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    ValueError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
    TypeError,
)


class _Member(NamedTuple):
    """An array in an archive: its member, offset, type and shape."""

    info: zipfile.ZipInfo
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bytes: int


def _members(archive: zipfile.ZipFile, size: int, label: str) -> dict[str, _Member]:
    members = archive.infolist()
    _refuse_large(size + 2 * sum(member.file_size for member in members), label)
    arrays: dict[str, _Member] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in arrays:
            raise _Flawed(f"its part {member.filename!r} is no array, or is there twice")
        if member.flag_bits & 1 or member.compress_type not in _PLAIN:
            raise _Flawed(f"its part {name!r} is packed in a way that fmdp does not use")
        arrays[name] = _member(archive, member, name)
    return arrays


_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> _Member:
    """Return the array's header, which must agree with the size in the directory."""
    with archive.open(member) as file:
        start = file.read(len(_MAGIC) + 2)
        length = int.from_bytes(start[-2:], "little")
        layout = _LAYOUT.fullmatch(file.read(length))
    if len(start) < len(_MAGIC) + 2 or not start.startswith(_MAGIC) or layout is None:
        raise _Flawed(f"its part {name!r} is no plain array")
    kind = layout[1].decode()
    if not _NUMBERS.fullmatch(kind):
        raise _Flawed(f"its part {name!r} is an array of {kind}")
    shape = tuple(int(size) for size in layout[2].decode().replace(" ", "").split(",") if size)
    dtype = np.dtype(kind)
    needed = math.prod(shape) * dtype.itemsize
    offset = len(start) + length
    if needed != member.file_size - offset or len(shape) > 8:
        raise _Flawed(f"its part {name!r} is of another size than its shape {shape} says")
    return _Member(member, offset, dtype, shape, needed)


def _array(archive: zipfile.ZipFile, member: _Member, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.empty(member.shape, dtype=member.dtype)
    with archive.open(member.info) as file:
        file.read(member.offset)
        if member.bytes:
            target = _bytes_of(array)
            done = 0
            while done < member.bytes:
                got = file.readinto(target[done : done + _CHUNK])  # type: ignore[attr-defined]
                if not got:
                    raise _Flawed(f"its part {name!r} is cut short")
                done += got
            if member.dtype.kind == "b" and array.view(np.uint8).max() > 1:
                raise _Flawed(f"its part {name!r} has truth values that are neither")
        if file.read(1):  # reading to the end also makes zipfile verify its checksum
            raise _Flawed(f"its part {name!r} is too long")
    return array


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
