"""The journal: what was committed is read back, what was torn is dropped, damage is refused."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fmdp.errors import FileProblem
from fmdp.service import journal as journal_module
from fmdp.service.folder import Folder
from fmdp.service.journal import Journal

EVENTS = [{"act": [0, 1]}, {"observe": [[0], [1], [0.1], [1]]}, {"act": [1, 1]}]
NAME = "journal-7"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    opened = Folder(tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / NAME


def written(folder: Folder, committed: int = 3) -> bytes:
    """Return the content of a journal with the three events, of which so many are committed."""
    journal = Journal.create(folder, NAME, 7)
    for number, event in enumerate(EVENTS):
        journal.append([event])
        if number < committed:
            journal.commit()
    journal.close()
    return (folder.path / NAME).read_bytes()


def reopened(folder: Folder, after: int = 7) -> tuple[Journal, list[Any]]:
    journal = Journal.reopen(folder, NAME, after)
    try:
        return journal, list(journal.events())
    except FileProblem:
        journal.close()
        raise


def test_what_was_appended_comes_back_and_goes_on(folder: Folder) -> None:
    written(folder)
    journal, events = reopened(folder)
    assert events == EVENTS
    assert (journal.number, journal.torn) == (10, 0)
    journal.append([{"act": [9]}, {"act": [8]}])
    journal.commit()
    journal.close()
    journal, events = reopened(folder)
    journal.close()
    assert events == [*EVENTS, {"act": [9]}, {"act": [8]}]


@pytest.mark.parametrize("committed", [0, 1, 2, 3])
def test_a_cut_is_damage_up_to_the_last_acknowledged_event_and_a_tear_after_it(
    folder: Folder, path: Path, committed: int
) -> None:
    content = written(folder, committed)
    ends = [place + 1 for place, byte in enumerate(content) if byte == ord("\n")]
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        newline_alone_is_missing = cut + 1 in ends
        if cut < ends[committed] or newline_alone_is_missing:
            with pytest.raises(FileProblem, match=r"journal-7.* is damaged"):
                reopened(folder)
            assert path.read_bytes() == content[:cut], "a refusal changes nothing"
            continue
        journal, events = reopened(folder)
        assert events == EVENTS[: content[:cut].count(b"\n") - 1]
        assert journal.torn == cut - (content[:cut].rfind(b"\n") + 1)
        journal.append([{"act": [5]}])  # nothing of the torn line is left in front of it
        journal.commit()
        journal.close()
        journal, again = reopened(folder)
        journal.close()
        assert (again, journal.torn) == ([*events, {"act": [5]}], 0)


@pytest.mark.parametrize("committed", [0, 3])
def test_a_changed_bit_in_any_byte_is_refused_by_line(
    folder: Folder, path: Path, committed: int
) -> None:
    """The newline at the very end included, acknowledged or not."""
    content = written(folder, committed)
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        line = content[:place].count(b"\n") + 1
        with pytest.raises(FileProblem, match=rf"journal-7, line {line}: is damaged"):
            reopened(folder)


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_line_that_is_missing_is_refused(folder: Folder, path: Path, gone: int) -> None:
    lines = written(folder).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    said = "ends with event 9, and 10 were acknowledged" if gone == 3 else f"line {gone + 1}"
    with pytest.raises(FileProblem, match=said):
        reopened(folder)


@pytest.mark.parametrize("content", [b"", b"torn head", b"\n", b"00000000 7 {}\n", b"x" * 10**6])
def test_what_is_no_journal_is_refused(folder: Folder, path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileProblem, match="journal-7, line 1"):
        reopened(folder)


def test_what_is_no_file_is_refused(folder: Folder, path: Path) -> None:
    os.mkfifo(path)
    with pytest.raises(FileProblem, match="is no regular file; must be the journal of a service"):
        Journal.reopen(folder, NAME, 7)


def test_a_journal_after_another_number_is_refused(folder: Folder) -> None:
    written(folder)
    with pytest.raises(FileProblem, match="no such file"):
        Journal.reopen(folder, "journal-8", 8)
    with pytest.raises(FileProblem, match="line 1"):
        reopened(folder, 8)


def test_a_journal_of_the_first_version_is_read_and_then_counts(folder: Folder, path: Path) -> None:
    """Version 1 had a shorter head; its lines are the same, and a torn one is dropped."""
    text = b'7 {"format":"fmdp-journal","version":1}'
    _, *lines = written(folder).splitlines(keepends=True)
    first = b"%08x %s\n" % (zlib.crc32(text), text)
    path.write_bytes(b"".join([first, *lines, b"torn"]))
    journal, events = reopened(folder)
    journal.close()
    assert (events, journal.torn) == (EVENTS, 4)
    path.write_bytes(path.read_bytes()[: -len(lines[-1])])
    with pytest.raises(FileProblem, match="10 were acknowledged"):
        reopened(folder)


def test_what_the_disk_cuts_off_is_taken_back(
    folder: Folder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = written(folder)
    journal, _ = reopened(folder)
    real = os.pwrite

    def full(descriptor: int, data: bytes, place: int) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10], place)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(FileProblem, match=r"journal-7: cannot be written \(No space left"):
            journal.append([{"act": [1, 2, 3, 4]}])
    assert path.read_bytes() == content
    journal.append([{"act": [4]}])
    journal.commit()
    journal.close()
    journal, events = reopened(folder)
    journal.close()
    assert (events, journal.torn) == ([*EVENTS, {"act": [4]}], 0)


def test_after_a_failed_fsync_nothing_is_ever_committed(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fsync may say that all is well while the data are gone."""
    journal = Journal.create(folder, NAME, 7)
    journal.append([{"act": [1]}])

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_synchronise", broken)
        with pytest.raises(FileProblem, match="cannot be made durable"):
            journal.commit()
    with pytest.raises(FileProblem, match="cannot be made durable"):
        journal.commit()
    journal.close()


def test_events_are_counted_as_acknowledged_only_after_the_synchronisation(
    folder: Folder, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal.create(folder, NAME, 7)
    heads: list[bytes] = []
    real = journal_module._synchronise

    def synchronise(descriptor: int) -> None:
        heads.append(path.read_bytes().split(b"\n")[0])
        real(descriptor)

    monkeypatch.setattr(journal_module, "_synchronise", synchronise)
    for event in EVENTS:
        journal.append([event])
        journal.commit()
    journal.close()
    numbers = [int(head.partition(b'"acknowledged":')[2].rstrip(b" }")) for head in heads]
    assert numbers == [7, 8, 9]


def test_a_journal_that_somebody_empties_acknowledges_nothing(folder: Folder, path: Path) -> None:
    journal = Journal.create(folder, NAME, 7)
    journal.append([{"act": [1]}])
    journal.commit()
    path.write_bytes(b"")
    journal.append([{"act": [2]}])
    path.write_bytes(b"")
    with pytest.raises(FileProblem, match="was changed by another program: has 0 bytes"):
        journal.commit()
    journal.close()


@settings(max_examples=20)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_rewards_come_back_to_the_last_bit(rewards: list[float]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place))
        journal = Journal.create(folder, NAME, 7)
        journal.append([{"observe": [[0], [0], rewards, [0]]}])
        journal.commit()
        journal.close()
        journal, (event,) = reopened(folder)
        journal.close()
        folder.close()
    assert [value.hex() for value in event["observe"][2]] == [v.hex() for v in rewards]
