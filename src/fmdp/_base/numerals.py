"""Numbers as text: no more digits than are known, and bounds rounded outwards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal


def short_number(value: float | str | None, digits: int = 7) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return "infinite" if math.isinf(value) else f"{value:.{digits}g}"


def known_number(value: float, lower: float | None, upper: float | None) -> str:
    """Return the shortest text of a number that lies between its bounds. 0.428622 rather than
    0.428621987 if the bounds are 1e-6 apart."""
    if lower is not None and upper is not None and lower < upper:
        for digits in range(1, 17):
            shown = f"{value:.{digits}g}"
            if lower <= float(shown) <= upper:
                # 10 rather than 1e+01
                return f"{Decimal(shown):f}" if 1.0 <= abs(float(shown)) < 1e9 else shown
    return short_number(value, 9)


def rounded_number(value: float, error: float | None, digits: int = 7) -> str:
    """Return a number with at most so many digits, none of them below the bound on its error. The
    last digit printed is at least twenty times the error, so it is off by at most one. Without a
    known digit the text is "0". An error of None is ignored."""
    if not error or not math.isfinite(value):
        return short_number(value, digits)
    if not math.isfinite(error):
        return "unknown"
    last = math.ceil(math.log10(20.0 * error))
    first = math.floor(math.log10(abs(value))) if value else last
    rounded = round(value, -last) if -300 < last < 300 else value
    return short_number(rounded + 0.0, max(1, min(digits, first - last + 1)))


def interval_text(lower: float, upper: float, least_digits: int = 9) -> str:
    """Return an interval such as "0.4286219 to 0.4286228". It is rounded outwards, so that the
    printed interval holds, with two digits of the width and at least `least_digits` in all."""
    digits = least_digits
    size, width = max(abs(lower), abs(upper)), upper - lower
    if width > 0.0 and math.isfinite(size):
        digits = min(17, max(digits, 2 + math.ceil(math.log10(size / width))))

    return f"{_rounded(lower, ROUND_FLOOR, digits)} to {_rounded(upper, ROUND_CEILING, digits)}"


def upper_text(upper: float, digits: int = 9) -> str:
    """Return an upper bound, rounded upwards."""
    return _rounded(upper, ROUND_CEILING, digits)


def lower_text(lower: float, digits: int = 9) -> str:
    """Return a lower bound, rounded downwards."""
    return _rounded(lower, ROUND_FLOOR, digits)


def _rounded(value: float, rounding: str, digits: int) -> str:
    if not math.isfinite(value):
        return short_number(value)
    rounded = Context(prec=digits, rounding=rounding).create_decimal_from_float(value).normalize()
    # A normalised decimal prints 40 as 4e+1.
    return f"{rounded:f}" if 0 <= rounded.adjusted() < digits else f"{rounded:.{digits}g}"


def numbers_text(values: Sequence[float], digits: int = 4, error: float | None = None) -> str:
    """Return many numbers on one line, without the middle of a long list. `error` bounds the error
    of each number."""
    shown = [rounded_number(value, error, digits) for value in values]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-5:]])


def seconds_text(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
