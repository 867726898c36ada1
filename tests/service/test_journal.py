"""The journal: what was committed is read back, what was torn is dropped, damage is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fmdp.errors import FileProblem
from fmdp.service import journal as journal_module
from fmdp.service.journal import Journal

EVENTS = [{"act": [0, 1]}, {"observe": [[0], [1], [0.1], [1]]}, {"act": [1, 1]}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal-7"


def written(path: Path) -> bytes:
    journal = Journal.create(path, 7)
    for event in EVENTS:
        journal.append([event])
    journal.commit()
    journal.close()
    return path.read_bytes()


def test_what_was_appended_comes_back_and_goes_on(path: Path) -> None:
    written(path)
    journal, events, torn = Journal.reopen(path, 7)
    assert events == EVENTS
    assert (journal.number, torn) == (10, 0)
    journal.append([{"act": [9]}, {"act": [8]}])
    journal.commit()
    journal.close()
    journal, events, _ = Journal.reopen(path, 7)
    journal.close()
    assert events == [*EVENTS, {"act": [9]}, {"act": [8]}]


def test_a_cut_at_any_byte_leaves_the_whole_lines(path: Path) -> None:
    content = written(path)
    head = content.index(b"\n") + 1
    for cut in range(head, len(content)):
        path.write_bytes(content[:cut])
        journal, events, torn = Journal.reopen(path, 7)
        assert events == EVENTS[: content[:cut].count(b"\n") - 1]
        assert torn == cut - (content[:cut].rfind(b"\n") + 1)
        journal.append([{"act": [5]}])  # nothing of the torn line is left in front of it
        journal.commit()
        journal.close()
        journal, again, torn = Journal.reopen(path, 7)
        journal.close()
        assert (again, torn) == ([*events, {"act": [5]}], 0)


def test_any_changed_byte_before_the_last_newline_is_refused_by_line(path: Path) -> None:
    content = written(path)
    for place in range(len(content) - 1):
        changed = bytearray(content)
        changed[place] ^= 0x10
        path.write_bytes(changed)
        line = content[:place].count(b"\n") + 1
        with pytest.raises(FileProblem, match=rf"journal-7, line {line}: is damaged"):
            Journal.reopen(path, 7)


@pytest.mark.parametrize("gone", [0, 1, 2, 3])
def test_a_line_that_is_missing_is_refused_unless_it_was_the_last(path: Path, gone: int) -> None:
    lines = written(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:gone] + lines[gone + 1 :]))
    if gone == 3:
        Journal.reopen(path, 7)[0].close()
        return
    with pytest.raises(FileProblem, match=f"line {gone + 1}"):
        Journal.reopen(path, 7)


@pytest.mark.parametrize("content", [b"", b"torn head", b"\n", b"00000000 7 {}\n"])
def test_what_is_no_journal_is_refused(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(FileProblem, match="journal-7"):
        Journal.reopen(path, 7)


def test_a_journal_after_another_number_is_refused(path: Path) -> None:
    written(path)
    with pytest.raises(FileProblem, match="line 1"):
        Journal.reopen(path, 8)


def test_what_the_disk_cuts_off_is_taken_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(path)
    journal, _, _ = Journal.reopen(path, 7)
    real = os.write

    def full(descriptor: int, data: bytes) -> int:
        if len(data) > 10:
            return real(descriptor, data[:10])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(FileProblem, match=r"journal-7: cannot be written \(No space left"):
        journal.append([{"act": [1, 2, 3, 4]}])
    assert path.read_bytes() == content
    monkeypatch.setattr(os, "write", real)
    journal.append([{"act": [4]}])
    journal.commit()
    journal.close()
    journal, events, torn = Journal.reopen(path, 7)
    journal.close()
    assert (events, torn) == ([*EVENTS, {"act": [4]}], 0)


def test_after_a_failed_fsync_nothing_is_ever_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second fsync may say that all is well while the data are gone."""
    journal = Journal.create(path, 7)
    journal.append([{"act": [1]}])

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module, "_synchronise", broken)
        with pytest.raises(FileProblem, match="cannot be made durable"):
            journal.commit()
    with pytest.raises(FileProblem, match="has failed"):
        journal.commit()
    journal.close()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_rewards_come_back_to_the_last_bit(rewards: list[float]) -> None:
    from fmdp.service.journal import _event, _line

    event = {"observe": [[0], [0], rewards, [0]]}
    found = _event(_line(3, event)[:-1], 3)
    assert found is not None
    assert [value.hex() for value in found[0]["observe"][2]] == [v.hex() for v in rewards]
