"""The parts of a UMB file: an archive (tar) of an index and of arrays, decoded by umbi.

Values of variables in states are unpacked here: they are bit fields, the least significant bit
first, and umbi 0.2.5 cannot read them with bitstring 5.
"""

from __future__ import annotations

import importlib
import lzma
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.archives import read_file
from fmdp.errors import FileProblem, FmdpError, TooLarge
from fmdp.interop.explicit import MOST_STATES

MOST_BYTES = 1 << 30
"""Most bytes of the parts of a file, unpacked."""


def needed(module: str) -> Any:
    """Return a module of umbi, or raise FmdpError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise FmdpError(
            "this needs umbi, which is not installed; pip install 'fmdp[umb]'"
        ) from None


@dataclass(frozen=True)
class UmbContents:
    """The contents of a UMB file."""

    umb: Any
    """umbi's ExplicitUmb."""
    names: list[str]
    """Variables of states; empty if the file has none that can be read."""
    values: NDArray[np.int64]
    """[states, variables]."""
    truths: list[bool]
    """For each variable, true if it is boolean."""


def contents_of(path: Path, max_states: int | None) -> UmbContents:
    """Return what a file holds; refuse too many states before they are decoded."""
    umbi = needed("umbi.umb.umb_to_tar")
    read_file(path, "a UMB file")  # refuses what is missing or no file in the usual words
    try:
        _check_size(path)
        decoder = umbi.UmbDecoder(path)
        umb = umbi.ExplicitUmb()
        decoder.read_index_file(umb)
        ts = umb.index.transition_system
        _check_states(ts.num_states, max_states)
        for size in (ts.num_choices, ts.num_branches, ts.num_choice_actions):
            if size > MOST_BYTES:
                raise TooLarge(f"the index announces {size:,} entries", size, MOST_BYTES)
        decoder.read_state_files(umb)
        decoder.read_transition_files(umb)
        decoder.read_annotation_files(umb)
        return UmbContents(umb, *_valuations(umb.index, decoder))
    except FmdpError:
        raise
    except tarfile.ReadError as error:  # its other lines list the compressions that were tried
        reason = str(error).partition("\n")[0].rstrip(":")
        raise FileProblem(f"{path}: is no archive of a UMB file (ReadError: {reason})") from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        raise FileProblem(f"{path}: is no archive of a UMB file ({_line(error)})") from None
    except Exception as error:  # umbi raises whatever its parsers and assertions raise
        raise FileProblem(f"{path}: umbi cannot read it ({_line(error)})") from None


def _check_size(path: Path) -> None:
    total = 0
    with tarfile.open(path, mode="r:*") as archive:
        for member in archive:
            total += member.size
            if total > MOST_BYTES:
                raise TooLarge(f"has more than {MOST_BYTES:,} bytes", total, MOST_BYTES)


def _check_states(n: int, max_states: int | None) -> None:
    most = MOST_STATES if max_states is None else max_states
    if n > most:
        raise TooLarge(f"{n:,} states; at most {most:,}, and max-states=N allows more", n, most)


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def _valuations(index: Any, decoder: Any) -> tuple[list[str], NDArray[np.int64], list[bool]]:
    """Return names, values and kinds of the variables of states."""
    n = index.transition_system.num_states
    nothing: tuple[list[str], NDArray[np.int64], list[bool]] = ([], np.empty((n, 0), np.int64), [])
    described = (index.valuations or {}).get("states")
    if described is None or len(described.classes) != 1:
        return nothing
    fields = described.classes[0].fields
    content = decoder.read_file("valuations/states/valuations.bin")
    width = sum(field.size_bits for field in fields)
    if width % 8 or len(content) != n * width // 8:
        raise ValueError(f"the values of variables have {len(content)} bytes; must have {n} rows")
    bits = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little").reshape(n, width)
    names, columns, truths, place = [], [], [], 0
    for field in fields:
        kind = getattr(field, "sized_type", None)
        if kind is not None:  # otherwise padding
            word = str(getattr(kind.type, "value", kind.type))
            if field.is_optional or word not in ("bool", "int", "uint") or kind.size_bits > 64:
                return nothing
            number = _numbers(bits[:, place : place + kind.size_bits], signed=word == "int")
            names.append(field.name)
            columns.append(number + (field.offset or 0))
            truths.append(word == "bool")
        place += field.size_bits
    return names, np.stack(columns, axis=1) if columns else nothing[1], truths


def _numbers(bits: NDArray[np.uint8], *, signed: bool) -> NDArray[np.int64]:
    """Return the numbers that rows of bits are, the lowest bit first."""
    n = bits.shape[1]
    # Numbers of 64 bits wrap to their two's complement.
    numbers: NDArray[np.int64] = bits.astype(np.int64) @ (1 << np.arange(n, dtype=np.int64))
    if signed and n < 64:
        numbers -= (numbers >> (n - 1)) << n
    return numbers
