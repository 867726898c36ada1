"""The oracle lies beside the tests; with importlib mode it must be put in reach."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
