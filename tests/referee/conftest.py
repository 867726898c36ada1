"""Tests are collected without packages on the path; the referee is one, also for `make referee`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
