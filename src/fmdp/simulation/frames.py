"""Data frames: pandas where the user has it, and else an error that says how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from fmdp.errors import FmdpError


class MissingFrames(FmdpError, ImportError):
    """pandas is not installed; the message names the extra that brings it."""


def needs_pandas() -> Any:
    """The module, or an error that names the extra."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise MissingFrames(
            "a data frame needs pandas, which is not installed: pip install 'fmdp[frames]'; the "
            "same columns are there as arrays (columns, runs_table, ...)"
        ) from None
