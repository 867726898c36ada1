"""The interpreters of this machine: python3.11, ... on PATH, and those that pyenv keeps.

A shim can exist and still refuse to run, so each is started and asked what it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
"""What is looked for. The classifiers of pyproject.toml name those that have passed."""


def candidates(version: str) -> Iterator[str]:
    """Where a Python of this version may be, the nearest first."""
    on_path = shutil.which(f"python{version}")
    if on_path is not None:
        yield on_path
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for place in sorted(root.glob(f"versions/{version}.*"), reverse=True):
        yield str(place / "bin" / "python")


def version_of(interpreter: str) -> str | None:
    """Its version as "3.12", or None where it does not start."""
    script = "import sys; print('.'.join(map(str, sys.version_info[:2])))"
    try:
        ran = subprocess.run(
            [interpreter, "-c", script], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return ran.stdout.strip()


def interpreters() -> dict[str, str]:
    """version -> an interpreter that starts and is of that version."""
    found = {}
    for version in SUPPORTED:
        for candidate in candidates(version):
            if version_of(candidate) == version:
                found[version] = candidate
                break
    return found
