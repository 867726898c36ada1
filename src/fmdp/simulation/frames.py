"""Access to pandas, with an error that names the extra if it is missing."""

from __future__ import annotations

import importlib
from typing import Any

from fmdp.errors import FmdpError


class MissingFrames(FmdpError, ImportError):
    """pandas is not installed; the message names the extra that installs it."""


def needs_pandas() -> Any:
    """Return the pandas module, or raise `MissingFrames`."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise MissingFrames(
            "a data frame needs pandas, which is not installed: pip install 'fmdp[frames]'; the "
            "same columns are there as arrays (columns, runs_table, ...)"
        ) from None
