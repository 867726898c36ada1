"""Data frames: pandas where the user has it, and else an error that says how to get it."""

from __future__ import annotations

import importlib
from typing import Any

from fmdp.errors import FmdpError


def needs_pandas() -> Any:
    """The module, or an error that names the extra."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise FmdpError(
            "a data frame needs pandas, which is not installed; pip install 'fmdp[frames]'"
        ) from None
