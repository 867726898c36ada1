"""`fmdp reproduce`: for now, exact plans for the four problems of Xu & Tewari (2020)."""

from __future__ import annotations

from typing import Any

from fmdp.cli.output import print_people, seconds_text, short_number, table
from fmdp.cli.plan import exit_status, run
from fmdp.memory import describe_count

PROBLEMS = ("circle:4", "circle:7", "three-leg:4", "three-leg:7")
# So tight that the gains can be compared digit by digit; it costs a few more sweeps.
TOLERANCE = 1e-9


def reproduce() -> int:
    """Plans for the paper's four problems, as a table."""
    rows = []
    status = 0
    settings = {"tolerance": TOLERANCE}
    for problem in PROBLEMS:
        result: dict[str, Any] = {"problem": problem}
        found = run(result, "exact", settings)
        status = max(status, exit_status(found.status))
        lower, upper = (short_number(result[key], 10) for key in ("gain_lower", "gain_upper"))
        rows.append(
            (
                problem,
                describe_count(result["states"]),
                describe_count(result["actions"]),
                short_number(result["gain"], 8),
                f"{lower} to {upper}",
                short_number(result["span"], 5),
                short_number(result["factored_span_sum"], 5),
                f"{result['iterations']:,}",
                seconds_text(result["seconds"]),
                result["status"],
            )
        )
    heads = (
        "problem", "states", "actions", "gain", "certified bounds", "span", "Q", "sweeps", "time",
        "status",
    )  # fmt: skip
    print_people(table(heads, rows, right=heads[1:4] + heads[5:9]))
    return status
