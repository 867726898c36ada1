"""Numbers as people read them: no more digits than are known, and bounds rounded outwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def short_number(value: float | str | None, digits: int = 7) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return "infinite" if math.isinf(value) else f"{value:.{digits}g}"


def known_number(value: float, lower: float | None, upper: float | None) -> str:
    """A number with no more digits than are known: the shortest that lies between its bounds.

    0.428622 rather than 0.428621987 where the bounds are 1e-6 apart, and never one outside them.
    """
    if lower is not None and upper is not None and lower < upper:
        for digits in range(1, 17):
            shown = f"{value:.{digits}g}"
            if lower <= float(shown) <= upper:
                return shown
    return short_number(value, 9)


def interval_text(lower: float, upper: float) -> str:
    """ "0.4286219 to 0.4286228": rounded outwards, so that what is printed still holds, with two
    digits of the width and at least nine in all."""
    digits = 9
    size, width = max(abs(lower), abs(upper)), upper - lower
    if width > 0.0 and math.isfinite(size):
        digits = min(17, max(digits, 2 + math.ceil(math.log10(size / width))))

    return f"{_rounded(lower, ROUND_FLOOR, digits)} to {_rounded(upper, ROUND_CEILING, digits)}"


def upper_text(upper: float, digits: int = 9) -> str:
    """A bound from above, rounded upwards."""
    return _rounded(upper, ROUND_CEILING, digits)


def lower_text(lower: float, digits: int = 9) -> str:
    """A bound from below, rounded downwards."""
    return _rounded(lower, ROUND_FLOOR, digits)


def _rounded(value: float, rounding: str, digits: int) -> str:
    if not math.isfinite(value):
        return short_number(value)
    rounded = Context(prec=digits, rounding=rounding).create_decimal_from_float(value).normalize()
    # Without its zeros at the end 40 is 4e+1 to a decimal.
    return f"{rounded:f}" if 0 <= rounded.adjusted() < digits else f"{rounded:.{digits}g}"


def numbers_text(values: Sequence[float], digits: int = 4) -> str:
    """Many numbers on one line, with the middle left out of a long list."""
    shown = [short_number(value, digits) for value in values]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-5:]])


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
