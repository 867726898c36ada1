"""Paths of files that problem ids name."""

from __future__ import annotations

from pathlib import Path


def located(name: str, folder: Path | None) -> Path:
    """Return the path in the current folder, or in `folder` if the file exists only there."""
    path = Path(name)
    if folder is not None and not path.exists() and (folder / path).exists():
        return folder / path
    return path
