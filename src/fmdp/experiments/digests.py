"""What a stored run, spec or model comes to: SHA-256 over all that the file holds of it.

    digest = SHA-256 of the text of its rows, table by table, every row in the order of its key

A digest is computed from what is read back before the transaction ends, and compared whenever the
thing is read (store.py): a byte that has changed on the disk, or a row that was edited by hand, is
found before it becomes a number. It guards against accidents, not against forgers. The text is
ASCII in Python's own notation, which tells 1 from 1.0 and every float from every other; blobs enter
by their own SHA-256, so that a recording is not held in memory twice.
"""

from __future__ import annotations

import hashlib
import sqlite3
from typing import Any, Literal

Kind = Literal["model", "spec", "run"]

_BLOBS: dict[Kind, tuple[str, ...]] = {
    "model": ("SELECT * FROM models WHERE hash = ?",),
    "spec": (),
    "run": ("SELECT * FROM recordings WHERE run = ? ORDER BY array",),
}
_ROWS: dict[Kind, tuple[str, ...]] = {
    "model": (),
    "spec": (
        "SELECT * FROM specs WHERE hash = ?",
        "SELECT * FROM members WHERE spec = ? ORDER BY position",
    ),
    "run": (
        "SELECT * FROM runs WHERE key = ?",
        "SELECT * FROM measures WHERE run = ? ORDER BY name",
        "SELECT * FROM curves WHERE run = ? ORDER BY measure, t",
    ),
}
_ROWS_IF_ANY: dict[Kind, tuple[str, ...]] = {
    "model": (),
    "spec": ("SELECT * FROM requests WHERE spec = ?",),
    "run": (
        "SELECT * FROM run_code WHERE run = ? ORDER BY place",
        "SELECT * FROM run_sources WHERE run = ? ORDER BY name",
    ),
}
"""Tables that came with schema version 4. What has no rows in them, as most older runs, keeps the
digest that it had before."""


def computed(connection: sqlite3.Connection, kind: Kind, name: str) -> str:
    """Return the digest of what the file has under this name now."""
    found = hashlib.sha256()
    for query in _ROWS[kind]:
        rows = connection.execute(query, (name,)).fetchall()
        found.update(ascii(rows).encode("ascii"))
    for query in _ROWS_IF_ANY[kind]:
        rows = connection.execute(query, (name,)).fetchall()
        if rows:
            found.update(ascii(rows).encode("ascii"))
    for query in _BLOBS[kind]:
        for row in connection.execute(query, (name,)):
            found.update(ascii([_plain(value) for value in row]).encode("ascii"))
    return found.hexdigest()


def stated(connection: sqlite3.Connection, kind: Kind, name: str) -> str | None:
    """The digest that was noted when it was stored; None if there is none."""
    query = "SELECT digest FROM digests WHERE kind = ? AND name = ?"
    row = connection.execute(query, (kind, name)).fetchone()
    return None if row is None else row[0]


def note(connection: sqlite3.Connection, kind: Kind, name: str) -> None:
    """Note what is there now, inside the transaction that has put it there."""
    connection.execute(
        "INSERT OR REPLACE INTO digests VALUES (?, ?, ?)",
        (kind, name, computed(connection, kind, name)),
    )


def _plain(value: Any) -> Any:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value
