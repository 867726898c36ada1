"""The table of learning in fleets is that of the stored numbers."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

SCRIPT = Path(__file__).resolve().parent.parent / "benchmarks" / "bench_fleet_learning.py"


def test_the_page_has_the_stored_numbers() -> None:
    script = runpy.run_path(str(SCRIPT))
    page = script["PAGE"].read_text(encoding="utf-8")
    numbers = json.loads(script["NUMBERS"].read_text(encoding="utf-8"))
    assert script["with_table"](page, numbers) == page
