"""`fmdp measure`: how hard a problem is; a measure that is too expensive is null."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from fmdp._base.memory import describe_count
from fmdp._base.progress import line_of_parts
from fmdp.cli import options
from fmdp.cli.output import (
    columns,
    interval_text,
    numbers_text,
    print_json,
    print_people,
    seconds_text,
    short_number,
)
from fmdp.cli.progress import progress

if TYPE_CHECKING:
    from fmdp.measures import Measures
    from fmdp.model import Structure


def measure(problem: options.Problem, json: options.Json = False) -> int:
    """Measure how hard a problem is: diameter, spans, mixing time.

    Measures that are too expensive to compute are reported as out of reach (null in JSON).
    """
    from fmdp.measures import measure as measure_model
    from fmdp.problems import problem as problem_of

    started = time.perf_counter()
    model = problem_of(problem)
    with progress(f"measuring {problem}", line_of_parts) as report:
        found = measure_model(model, progress=lambda done, total, text: report((done, total, text)))
    seconds = time.perf_counter() - started
    if json:
        print_json(
            {
                "problem": problem,
                "diameter": found.diameter,
                "diameter_bounds": found.diameter_bounds,
                "span": found.span,
                "factored_spans": found.factored_spans,
                "factored_span_sum": found.factored_span_sum,
                "largest_span": found.largest_span,
                "largest_span_bounds": found.largest_span_bounds,
                "largest_factored_spans": found.largest_factored_spans,
                "largest_factored_spans_bounds": found.largest_factored_spans_bounds,
                "largest_factored_span_sum": found.largest_factored_span_sum,
                "gain": found.gain,
                "gain_bounds": found.gain_bounds,
                "status": found.status,
                "mixing_time": whole(found.mixing_time),
                "m": found.m,
                "l": found.l,
                "L": found.L,
                "W": found.W,
                "states": model.structure.n_states,
                "actions": model.structure.n_actions,
                "seconds": seconds,
            }
        )
    else:
        print_measures(problem, model.structure, found, seconds)
    # A measure that is out of reach is no failure.
    return 0 if found.status == "converged" else 1


def whole(number: float | None) -> Any:
    """Return a finite number of steps as an integer."""
    return number if number is None or math.isinf(number) else int(number)


def print_measures(problem: str, structure: Structure, found: Measures, seconds: float) -> None:
    rows = "rows" if structure.alike is None else "classes of rows"
    multichain = found.status == "multichain"
    missing = "none: the gain depends on the state" if multichain else "out of reach"

    def known(value: float | None, digits: int = 9) -> str:
        return missing if value is None else short_number(value, digits)

    def between(bounds: tuple[float, float] | None, digits: int = 9) -> str:
        """Return one number if the bounds agree in its digits, else both bounds."""
        if bounds is None:
            return missing
        lower, upper = (short_number(bound, digits) for bound in bounds)
        if math.isinf(bounds[1]):
            return f"at least {lower}"
        return lower if lower == upper else f"{lower} to {upper}"

    spans = found.factored_spans
    factored = found.largest_factored_spans_bounds
    each = missing if factored is None else ", ".join(between(bounds, 4) for bounds in factored)
    diameter = known(found.diameter)
    if found.diameter is None and found.diameter_bounds is not None:
        diameter = between(found.diameter_bounds)
    gain = known(found.gain)
    if multichain and found.gain_bounds is not None:
        gain = f"{interval_text(*found.gain_bounds)}, depending on the state"
    print_people(
        columns(
            [
                ("problem", problem),
                ("states", describe_count(structure.n_states)),
                ("diameter", diameter),
                ("span", known(found.span)),
                ("factored spans", missing if spans is None else numbers_text(spans)),
                ("their sum (Q)", known(found.factored_span_sum)),
                ("largest span of an optimal policy", between(found.largest_span_bounds)),
                ("largest factored spans", each),
                ("their sum", known(found.largest_factored_span_sum)),
                ("gain", gain),
                ("status", found.status),
                (
                    "mixing time",
                    "out of reach" if found.mixing_time is None else known(found.mixing_time),
                ),
                ("state variables (m)", f"{found.m:,}"),
                ("reward factors (l)", f"{found.l:,}"),
                (f"{rows} of the largest table (L)", describe_count(found.L)),
                ("values of the largest variable (W)", describe_count(found.W)),
                ("time", seconds_text(seconds)),
            ]
        )
    )
