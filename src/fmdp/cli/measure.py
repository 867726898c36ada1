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


MEASURE_KEYS = (
    *("diameter", "diameter_bounds", "span", "factored_spans", "factored_span_sum"),
    *("largest_span", "largest_span_bounds", "largest_factored_spans"),
    *("largest_factored_spans_bounds", "largest_factored_span_sum"),
    *("gain", "gain_bounds", "status", "mixing_time", "m", "l", "L", "W"),
)
"""Keys of the JSON object that are attributes of the measures."""


def measure(problem: options.Problem, json: options.Json = False) -> int:
    """Measure how hard a problem is: diameter, spans, mixing time.

    Measures that are too expensive to compute are reported as out of reach (null in JSON).
    """
    from fmdp.measures import measure as measure_model
    from fmdp.problems import problem as problem_of

    started = time.perf_counter()
    model = problem_of(problem)
    with progress(f"measuring {problem}", line_of_parts) as report:
        measures = measure_model(
            model, progress=lambda done, total, text: report((done, total, text))
        )
    seconds = time.perf_counter() - started
    if json:
        print_json(
            {
                "problem": problem,
                **{key: getattr(measures, key) for key in MEASURE_KEYS},
                "mixing_time": whole(measures.mixing_time),
                "states": model.structure.n_states,
                "actions": model.structure.n_actions,
                "seconds": seconds,
            }
        )
    else:
        print_measures(problem, model.structure, measures, seconds)
    # A measure that is out of reach is no failure.
    return 0 if measures.status == "converged" else 1


def whole(number: float | None) -> Any:
    """Return a finite number of steps as an integer."""
    return number if number is None or math.isinf(number) else int(number)


def print_measures(problem: str, structure: Structure, measures: Measures, seconds: float) -> None:
    rows = "rows" if structure.alike is None else "classes of rows"
    multichain = measures.status == "multichain"
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

    spans = measures.factored_spans
    factored = measures.largest_factored_spans_bounds
    each = missing if factored is None else ", ".join(between(bounds, 4) for bounds in factored)
    diameter = known(measures.diameter)
    if measures.diameter is None and measures.diameter_bounds is not None:
        diameter = between(measures.diameter_bounds)
    gain = known(measures.gain)
    if multichain and measures.gain_bounds is not None:
        gain = f"{interval_text(*measures.gain_bounds)}, depending on the state"
    print_people(
        columns(
            [
                ("problem", problem),
                ("states", describe_count(structure.n_states)),
                ("diameter", diameter),
                ("span", known(measures.span)),
                ("factored spans", missing if spans is None else numbers_text(spans)),
                ("their sum (Q)", known(measures.factored_span_sum)),
                ("largest span of an optimal policy", between(measures.largest_span_bounds)),
                ("largest factored spans", each),
                ("their sum", known(measures.largest_factored_span_sum)),
                ("gain", gain),
                ("status", measures.status),
                (
                    "mixing time",
                    "out of reach" if measures.mixing_time is None else known(measures.mixing_time),
                ),
                ("state variables (m)", f"{measures.m:,}"),
                ("reward factors (l)", f"{measures.l:,}"),
                (f"{rows} of the largest table (L)", describe_count(measures.L)),
                ("values of the largest variable (W)", describe_count(measures.W)),
                ("time", seconds_text(seconds)),
            ]
        )
    )
