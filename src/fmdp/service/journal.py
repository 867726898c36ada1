"""The journal of a service: events are on disk before they are acknowledged.

One event per line, numbered on from the snapshot that the journal follows:

    CHECKSUM NUMBER EVENT\\n        CHECKSUM = CRC-32 of "NUMBER EVENT", eight hexadecimal digits

The first line identifies the format. `append` writes complete lines and removes what a full disk
has cut off; `commit` returns when everything appended is on disk (fsync), and only then may it be
acknowledged. A line is one write whose newline comes last, so a kill leaves at most one incomplete
line, which was not acknowledged: it is dropped, with a notice. Any other deviation is damage,
refused with file and line. CRC-32 detects every error of up to three bits or 32 consecutive bits in
lines of usual length: accidents, not forgeries.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fmdp._base.archives import read_file, reason
from fmdp.errors import FileProblem
from fmdp.model.io.files import sync_folder

FORMAT = "fmdp-journal"
VERSION = 1
_WHAT = "the journal of a service"
_synchronise = getattr(os, "fdatasync", os.fsync)
"""fdatasync skips the modification time and is several times as fast as fsync."""


class Journal:
    """A journal open for writing; use `create` or `reopen`."""

    def __init__(self, path: Path, descriptor: int, size: int, number: int) -> None:
        self.path = path
        self.number = number
        """Number of the last event appended."""
        self._descriptor = descriptor
        self._size = size
        """Number of bytes in complete lines."""
        self._committed = size
        self.broken = False
        """Whether the content on disk is unknown after an error; the next start reads it."""

    @classmethod
    def create(cls, path: Path, after: int) -> Journal:
        """Create a journal for the events after this number; durable on return."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        try:
            descriptor = os.open(path, flags, 0o666)
        except OSError as error:
            raise FileProblem(f"{path}: cannot be written ({reason(error)})") from None
        journal = cls(path, descriptor, 0, after)
        try:
            journal._write(_line(after, {"format": FORMAT, "version": VERSION}))
            journal.commit()
        except BaseException:
            journal.close()
            raise
        sync_folder(path.parent)
        return journal

    @classmethod
    def reopen(cls, path: Path, after: int) -> tuple[Journal, list[Any], int]:
        """Open a journal to continue it.

        Return the journal, its events, and the number of bytes of a dropped incomplete line.
        """
        content = read_file(path, _WHAT)
        whole = content.rfind(b"\n") + 1
        events = list(_events(content[:whole], path, after))
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        except OSError as error:
            raise FileProblem(f"{path}: cannot be written ({reason(error)})") from None
        journal = cls(path, descriptor, whole, after + len(events))
        try:
            os.ftruncate(descriptor, whole)
            journal._committed = -1  # its lines may not have been synchronised before a kill
            journal.commit()
        except OSError as error:
            journal.close()
            raise FileProblem(f"{path}: cannot be written ({reason(error)})") from None
        return journal, events, len(content) - whole

    def append(self, events: list[Any]) -> None:
        """Append all of these events, or none and raise FileProblem."""
        lines = [_line(self.number + 1 + place, event) for place, event in enumerate(events)]
        self._write(b"".join(lines))
        self.number += len(events)

    def _write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.write(self._descriptor, data[written:])
        except BaseException as error:
            # A full disk, or an interrupt between two writes: remove the incomplete line.
            self._cut(self._size)
            if isinstance(error, OSError):
                raise FileProblem(f"{self.path}: cannot be written ({reason(error)})") from None
            raise
        self._size += len(data)

    def withdraw(self, number: int, size: int) -> None:
        """Remove everything appended since `place` returned these values."""
        self._cut(size)
        self.number, self._size = number, size

    def _cut(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            self.broken = True
            raise FileProblem(f"{self.path}: cannot be written ({reason(error)})") from None

    def place(self) -> tuple[int, int]:
        """Return the current position, for `withdraw`."""
        return self.number, self._size

    def commit(self) -> None:
        """Return when everything appended is on disk; raise FileProblem if that fails."""
        if self.broken:
            raise FileProblem(f"{self.path}: has failed; a new start reads what is there")
        if self._committed == self._size:
            return
        try:
            _synchronise(self._descriptor)
        except OSError as error:
            # The system may have dropped the data, and would not report the error again.
            self.broken = True
            raise FileProblem(f"{self.path}: cannot be made durable ({reason(error)})") from None
        self._committed = self._size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _line(number: int, event: Any) -> bytes:
    text = f"{number} {json.dumps(event, separators=(',', ':'), allow_nan=False)}".encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _events(content: bytes, path: Path, after: int) -> Iterator[Any]:
    """Yield the events of complete lines; raise FileProblem with the number of a damaged line."""
    lines = content.split(b"\n")[:-1]
    if not lines:
        raise FileProblem(f"{path}: is empty; must be {_WHAT}")
    for place, line in enumerate(lines):
        event = _event(line, after + place)
        if event is None:
            raise FileProblem(
                f"{path}, line {place + 1}: is damaged: must be event {after + place} with its "
                f"checksum; got {line[:60].decode('ascii', 'backslashreplace')!r}"
            )
        if place:
            yield event[0]
        elif event[0] != {"format": FORMAT, "version": VERSION}:
            raise FileProblem(
                f"{path}, line 1: must be the head of {_WHAT}, version {VERSION}; got {event[0]!r}"
            )


def _event(line: bytes, number: int) -> tuple[Any] | None:
    head, text = line[:9], line[9:]
    if head != b"%08x " % zlib.crc32(text) or not text.startswith(b"%d " % number):
        return None
    try:
        return (json.loads(text.partition(b" ")[2]),)
    except (ValueError, RecursionError):
        return None
