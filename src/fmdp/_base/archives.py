"""Files that are read: regular ones alone, no larger than memory allows, and whole.

`read_file` gives the bytes of a regular file; a device, a pipe, a socket or a folder is refused
before it is opened, so that nothing hangs and nothing has no end. `pack` and `unpack` are archives
of named arrays with a JSON header (what NumPy calls .npz), which hold policies and learners. A file
is taken for hostile: `unpack` reads the directory and the declared shapes first and refuses what
would not fit into half of the free memory, runs nothing, takes arrays of plain numbers and texts
alone, and compares a checksum over the header and every array. Whatever is wrong is a FileProblem,
one line that names the file. What the arrays mean is checked by those who know it.

Cost: an array is inflated once, into its place; SHA-256 reads about a gigabyte a second.
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
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes
from fmdp.errors import FileProblem, FmdpError

HEADER = "header"
DIGEST = "digest"
_MOST_MEMBERS = 4096
_CHUNK = 1 << 20
_ENTRY = b"PK\x01\x02"
"""What an entry of the directory begins with."""
_NUMBERS = re.compile(r"[<>|]([biufc][0-9]{1,2}|[US][0-9]{1,9})")
_LAYOUT = re.compile(
    rb"\{'descr': '([<>|][A-Za-z0-9]+)', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \} *\n"
)
_MAGIC = b"\x93NUMPY\x01\x00"
# Bytes of Python objects for each sign in a JSON text, from sys.getsizeof and a place in a list.
_OF_OBJECT, _OF_ARRAY, _OF_PAIR, _OF_ITEM, _OF_TEXT = 248, 96, 104, 40, 60


def memory_for_files() -> int:
    """Bytes that what is read from one file may take: half of what is free, as for planners."""
    return available_memory() // 2


def read_file(path: str | os.PathLike[str], what: str) -> bytes:
    """The content of a regular file, or FileProblem; `what` says what was expected there."""
    label = os.fspath(path)
    try:
        _refuse_special(Path(path).stat().st_mode, label, what)
        # Somebody may put a pipe in its place between the two looks.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | _BINARY)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(file.fileno())
            _refuse_special(found.st_mode, label, what)
            _refuse_large(found.st_size, label)
            return file.read(found.st_size)
    except FileProblem:
        raise
    except FileNotFoundError:
        raise FileProblem(f"{label}: no such file; must be {what}") from None
    except (OSError, ValueError) as error:  # ValueError: a name that no file can have
        raise FileProblem(f"{label}: cannot be read ({reason(error)})") from None


_BINARY = getattr(os, "O_BINARY", 0)


def reason(error: Exception) -> str:
    """What the system says about a file, without its number."""
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
    found = kinds.get(stat.S_IFMT(mode), "no regular file")
    raise FileProblem(f"{label}: is {found}; must be {what}")


def _refuse_large(needed: int, label: str) -> None:
    limit = memory_for_files()
    if needed > limit:
        raise FileProblem(
            f"{label}: reading it takes about {describe_bytes(needed)}; must be at most "
            f"{describe_bytes(limit)}, half of the free memory"
        )


def refuse_large_json(text: str, label: str) -> None:
    """FileProblem where the objects of a JSON text would not fit; counted, and not yet made."""
    needed = 2 * len(text)
    for sign, each in (("{", _OF_OBJECT), ("[", _OF_ARRAY), (":", _OF_PAIR), (",", _OF_ITEM)):
        needed += each * text.count(sign)
    _refuse_large(needed + _OF_TEXT * text.count('"') // 2, label)


# ---- archives ------------------------------------------------------------------------------------


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The bytes of an archive: the same for the same content. TypeError for what cannot be kept."""
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
    """A digest of all that an archive holds but itself."""
    held = {key: value for key, value in header.items() if key != DIGEST}
    digest = hashlib.sha256(json.dumps(held, sort_keys=True).encode())
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
    """Header and arrays of an archive; `what` it is, its format and version, for the errors.

    `older` versions are read too: the header says which it is.

    `expect` is shown the header and the shapes before any array is inflated, and raises what it
    likes where they cannot be.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(_of_few_members(content))) as archive:
            places = _places(archive, len(content), label)
            header = _header(archive, places.pop(HEADER), label)
            _refuse_other(header, label, what, form, (version, *older))
            if expect is not None:
                expect(header, {name: place.shape for name, place in places.items()})
            arrays = {name: _array(archive, place, name) for name, place in places.items()}
        found = checksum(header, arrays)
    except FmdpError:
        raise
    except (_Flawed, *_FLAWS) as error:
        said = f": {error}" if isinstance(error, _Flawed) else ""
        raise FileProblem(f"{label} is not a {what} file (or is cut short){said}") from None
    if header.pop(DIGEST, None) != found:
        raise FileProblem(f"{label} is damaged: its checksum is not that of its content")
    return header, arrays


def _header(archive: zipfile.ZipFile, place: _Place, label: str) -> Any:
    if place.dtype.kind != "U" or place.shape != ():
        raise _Flawed("its header is no text")
    text = str(_array(archive, place, HEADER))
    refuse_large_json(text, label)
    return json.loads(text)


def _refuse_other(header: Any, label: str, what: str, form: str, versions: tuple[int, ...]) -> None:
    if not isinstance(header, dict) or header.get("format") != form:
        raise FileProblem(f"{label} is not a {what} file: its format is not {form}")
    found = header.get("version")
    if type(found) is not int or found not in versions:
        known = " and ".join(map(str, versions))
        raise FileProblem(f"{label} has {what} version {found}; this fmdp reads {known}")


class _Flawed(Exception):
    """What is wrong with an archive."""


# What zipfile, zlib and json raise on bytes that lie; RecursionError by nested brackets.
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


def _of_few_members(content: bytes) -> bytes:
    if content.count(_ENTRY) > _MOST_MEMBERS:
        raise _Flawed(f"it has more than {_MOST_MEMBERS} parts")
    return content


class _Place(NamedTuple):
    """Where an array is, and what it says that it is."""

    member: zipfile.ZipInfo
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    bytes: int


def _places(archive: zipfile.ZipFile, size: int, label: str) -> dict[str, _Place]:
    members = archive.infolist()
    _refuse_large(size + 2 * sum(member.file_size for member in members), label)
    places: dict[str, _Place] = {}
    for member in members:
        name = member.filename.removesuffix(".npy")
        if name == member.filename or name in places:
            raise _Flawed(f"its part {member.filename!r} is no array, or is there twice")
        if member.flag_bits & 1 or member.compress_type not in _PLAIN:
            raise _Flawed(f"its part {name!r} is packed in a way that fmdp does not use")
        places[name] = _place(archive, member, name)
    return places


_PLAIN = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def _place(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> _Place:
    """What stands before the numbers, which must agree with the size in the directory."""
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
    return _Place(member, offset, dtype, shape, needed)


def _array(archive: zipfile.ZipFile, place: _Place, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.empty(place.shape, dtype=place.dtype)
    with archive.open(place.member) as file:
        file.read(place.offset)
        if place.bytes:
            held = _bytes_of(array)
            done = 0
            while done < place.bytes:
                got = file.readinto(held[done : done + _CHUNK])  # type: ignore[attr-defined]
                if not got:
                    raise _Flawed(f"its part {name!r} is cut short")
                done += got
            if place.dtype.kind == "b" and array.view(np.uint8).max() > 1:
                raise _Flawed(f"its part {name!r} has truth values that are neither")
        if file.read(1):  # nothing is left; and the end is where zipfile compares its own checksum
            raise _Flawed(f"its part {name!r} is too long")
    return array


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
