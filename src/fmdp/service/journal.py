"""The journal of a service: events are on disk before they are acknowledged.

One event per line, numbered on from the snapshot that the journal follows:

    CHECKSUM NUMBER EVENT\\n        CHECKSUM = CRC-32 of "NUMBER EVENT", eight hexadecimal digits

`append` writes complete lines and removes what a full disk has cut off; `commit` returns when
everything appended is on disk, and only then may it be acknowledged.

The first line is the head. It names the format and the number of the last acknowledged event.
`commit` updates it in place, after the synchronisation and without another one:

* The number is never too large: the events up to it were on disk before it was written.
* When the process is killed, the system keeps what was written, so the number is exact.
* When the machine stops, the disk has the number of the last commit or of the one before, since a
  synchronisation also covers the head that the commit before has written.

So a journal with fewer events than its head says is damaged. An incomplete last line after them is
what a stop in the middle of a write leaves; it is dropped with a notice. Any other deviation is
damage, refused with file and line. CRC-32 detects every error of up to three bits or 32 consecutive
bits in lines of usual length: accidents, not forgeries.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from typing import Any

from fmdp._base.archives import reason
from fmdp.errors import FileProblem
from fmdp.service.folder import Folder

FORMAT = "fmdp-journal"
VERSION = 2
"""Version 1 has no number of acknowledged events; `Journal.reopen` adds it."""
_WHAT = "the journal of a service"
_HEAD_LENGTH = 100
"""Length of the head's text, padded with spaces, so that it can be updated in place. It lies within
one sector of the disk, which is written as a whole."""
_LONGEST_LINE = 1 << 26
"""Bytes of a line that are read at once, so that damage cannot exhaust the memory."""
_synchronise = getattr(os, "fdatasync", os.fsync)
"""fdatasync skips the modification time and is several times as fast as fsync."""


class Journal:
    """A journal open for writing; use `create`, or `reopen` and then `events`."""

    def __init__(self, folder: Folder, name: str, after: int) -> None:
        self.path = folder.path / name
        """Its name, for messages."""
        self.number = after
        """Number of the last event appended."""
        self.torn = 0
        """Number of bytes of an incomplete last line, which `events` has dropped."""
        self.failure = ""
        """Error after which the content on disk is unknown; the next start reads it."""
        self._after = after
        self._descriptor = folder.open(name, _WHAT)
        self._size = len(_head(after, after))
        """Number of bytes in complete lines."""
        self._committed = self._size

    @classmethod
    def create(cls, folder: Folder, name: str, after: int) -> Journal:
        """Create a journal for the events after this number; durable on return."""
        folder.write(name, _head(after, after))
        return cls(folder, name, after)

    @classmethod
    def reopen(cls, folder: Folder, name: str, after: int) -> Journal:
        """Open a journal to continue it; `events` has to be exhausted first."""
        first_version = _line(f'{after} {{"format":"{FORMAT}","version":1}}')
        journal = cls(folder, name, after)
        if os.pread(journal._descriptor, len(first_version), 0) == first_version:
            journal.close()
            content = folder.read(name, _WHAT)
            folder.write(name, _head(after, after) + content[len(first_version) :])
            journal = cls(folder, name, after)
        return journal

    def events(self) -> Iterator[Any]:
        """Yield the events, then prepare for appending; raise FileProblem if it is damaged."""
        with os.fdopen(self._descriptor, "rb", closefd=False) as file:
            acknowledged = self._read_head(file.readline(_LONGEST_LINE))
            while line := file.readline(_LONGEST_LINE):
                event = _event(line, self.number + 1)
                if event is not None:
                    self.number += 1
                    self._size += len(line)
                    yield event[0]
                elif self.number < acknowledged or not _cut_off(line, self.number + 1):
                    place = self.number - self._after + 2
                    raise self._damage(place, f"event {self.number + 1} with its checksum", line)
                else:
                    self.torn += len(line)
        if self.number < acknowledged:
            raise FileProblem(
                f"{self.path}: is damaged: ends with event {self.number:,}, and {acknowledged:,} "
                f"were acknowledged"
            )
        self._cut(self._size)
        self._committed = -1  # its lines may not have been synchronised before a kill
        self.commit()

    def _read_head(self, line: bytes) -> int:
        event = _event(line, self._after)
        acknowledged = (
            event[0].get("acknowledged") if event and isinstance(event[0], dict) else None
        )
        if not isinstance(acknowledged, int) or line != _head(self._after, acknowledged):
            raise self._damage(1, f"the head of {_WHAT}, version {VERSION}", line)
        return acknowledged

    def _damage(self, place: int, expected: str, line: bytes) -> FileProblem:
        return FileProblem(
            f"{self.path}, line {place}: is damaged: must be {expected}; "
            f"got {line[:60].decode('ascii', 'backslashreplace')!r}"
        )

    def append(self, events: list[Any]) -> None:
        """Append all of these events, or none and raise FileProblem."""
        lines = [
            _line(f"{number} {json.dumps(event, separators=(',', ':'), allow_nan=False)}")
            for number, event in enumerate(events, self.number + 1)
        ]
        self._write(b"".join(lines))
        self.number += len(events)

    def _write(self, data: bytes) -> None:
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self._size + written)
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
            raise self.fail(f"{self.path}: cannot be written ({reason(error)})") from None

    def fail(self, failure: str) -> FileProblem:
        """Refuse every later commit, and return the error to raise."""
        self.failure = failure
        return FileProblem(failure)

    def place(self) -> tuple[int, int]:
        """Return the current position, for `withdraw`."""
        return self.number, self._size

    def commit(self) -> None:
        """Return when everything appended is on disk; raise FileProblem if that fails."""
        if self.failure:
            raise FileProblem(self.failure)
        if self._committed == self._size:
            return
        try:
            _synchronise(self._descriptor)
            size = os.fstat(self._descriptor).st_size
            if size == self._size:
                os.pwrite(self._descriptor, _head(self._after, self.number), 0)
        except OSError as error:
            # The system may have dropped the data, and would not report the error again.
            raise self.fail(f"{self.path}: cannot be made durable ({reason(error)})") from None
        if size != self._size:
            raise self.fail(
                f"{self.path}: was changed by another program: has {size:,} bytes; must have "
                f"{self._size:,}"
            )
        self._committed = self._size

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _line(text: str) -> bytes:
    data = text.encode()
    return b"%08x %s\n" % (zlib.crc32(data), data)


def _head(after: int, acknowledged: int) -> bytes:
    form = f'{{"format":"{FORMAT}","version":{VERSION},"acknowledged":{acknowledged}}}'
    return _line(f"{after} {form}".ljust(_HEAD_LENGTH))


def _event(line: bytes, number: int) -> tuple[Any] | None:
    """Return the event of a complete line in a tuple; None if the line is not that event."""
    head, text, end = line[:9], line[9:-1], line[-1:]
    if end != b"\n" or head != b"%08x " % zlib.crc32(text) or not text.startswith(b"%d " % number):
        return None
    try:
        return (json.loads(text.partition(b" ")[2]),)
    except (ValueError, RecursionError):
        return None


def _cut_off(line: bytes, number: int) -> bool:
    """Return whether a line lost its end: it has no newline, and its text is not complete."""
    complete = (line + b"\n", line[:-1] + b"\n")  # the newline is missing, or was changed
    return not line.endswith(b"\n") and not any(_event(text, number) for text in complete)
