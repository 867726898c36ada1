"""Digests of stored runs, specs and models: SHA-256 over all their rows.

A digest is computed from what is read back before the transaction ends and compared on every read
(store.py), so a byte that changed on disk or a row edited by hand is detected before it becomes a
number. It protects against accidents, not against forgery. Rows enter in Python's ASCII notation,
which distinguishes 1 from 1.0 and any two floats; blobs enter by their own SHA-256, so that a
recording is not held in memory twice.
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
"""Tables added in schema version 4; older runs without rows there keep their digests."""


def computed(connection: sqlite3.Connection, kind: Kind, name: str) -> str:
    """Return the digest of the current rows."""
    digest = hashlib.sha256()
    for query in _ROWS[kind]:
        rows = connection.execute(query, (name,)).fetchall()
        digest.update(ascii(rows).encode("ascii"))
    for query in _ROWS_IF_ANY[kind]:
        rows = connection.execute(query, (name,)).fetchall()
        if rows:
            digest.update(ascii(rows).encode("ascii"))
    for query in _BLOBS[kind]:
        for row in connection.execute(query, (name,)):
            digest.update(ascii([_plain(value) for value in row]).encode("ascii"))
    return digest.hexdigest()


def stated(connection: sqlite3.Connection, kind: Kind, name: str) -> str | None:
    """Return the digest that was stored with the rows, or None."""
    query = "SELECT digest FROM digests WHERE kind = ? AND name = ?"
    row = connection.execute(query, (kind, name)).fetchone()
    return None if row is None else row[0]


def is_sound(connection: sqlite3.Connection, kind: Kind, name: str) -> bool:
    """Return whether the rows are what was stored."""
    return stated(connection, kind, name) == computed(connection, kind, name)


def note(connection: sqlite3.Connection, kind: Kind, name: str) -> None:
    """Store the digest of the current rows, in the transaction that wrote them."""
    connection.execute(
        "INSERT OR REPLACE INTO digests VALUES (?, ?, ?)",
        (kind, name, computed(connection, kind, name)),
    )


def _plain(value: Any) -> Any:
    return hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else value
