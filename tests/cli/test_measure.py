"""`fmdp measure`: the contract's keys, on problems whose measures have closed forms."""

from __future__ import annotations

from typing import Any

import pytest

CONTRACT = (
    "diameter",
    "span",
    "factored_spans",
    "factored_span_sum",
    "gain",
    "mixing_time",
    "m",
    "l",
    "L",
    "W",
    "largest_span",
    "largest_factored_spans",
    "largest_factored_span_sum",
)


def test_the_jao_product_has_its_closed_forms(run: Any) -> None:
    ran = run("measure", "jao:3", "--json")
    assert ran.status == 0
    found = ran.json
    assert set(CONTRACT) <= found.keys()
    assert found["diameter"] == pytest.approx(17.55102, abs=1e-5)
    assert found["span"] == pytest.approx(6, abs=1e-6)
    assert found["factored_spans"] == pytest.approx([2, 2, 2], abs=1e-6)
    assert found["factored_span_sum"] == pytest.approx(6, abs=1e-6)
    assert found["gain"] == pytest.approx(1.8, abs=1e-8)
    assert [found[key] for key in ("m", "l", "L", "W")] == [3, 3, 4, 2]


def test_infinity_is_a_word(run: Any) -> None:
    """Two circles of period 2 side by side: infinite diameter, and no policy ever mixes."""
    found = run("measure", "large-diameter", "--json").json
    assert found["diameter"] == "inf"
    assert found["mixing_time"] == "inf"
    assert found["gain"] == pytest.approx(1, abs=1e-8)
    assert "infinite" in run("measure", "large-diameter").out


def test_both_spans_are_printed(run: Any) -> None:
    """That of the bias, 1 a circle, and the largest among optimal policies (docs/theory.md)."""
    found = run("measure", "large-diameter", "--json").json
    assert found["span"] == pytest.approx(2, abs=1e-6)
    assert found["factored_spans"] == pytest.approx([1, 1], abs=1e-6)
    assert found["largest_span"] == pytest.approx(5)
    assert found["largest_span_bounds"] == pytest.approx([5, 5])
    assert found["largest_factored_spans"] == pytest.approx([4.5, 4.5])
    assert found["largest_factored_span_sum"] == pytest.approx(9)
    shown = run("measure", "large-diameter").out
    assert "largest span of an optimal policy   5" in shown


def test_a_largest_span_that_is_not_known_has_bounds(run: Any) -> None:
    """Machines that may stay dead for ever: too many policies to try, and no bound from above."""
    found = run("measure", "machines:2", "--json").json
    assert found["largest_span"] is None
    lower, upper = found["largest_span_bounds"]
    assert lower >= found["span"] - 1e-6
    assert upper == "inf"
    assert found["largest_factored_span_sum"] is None
    assert f"at least {lower:.9g}" in run("measure", "machines:2").out


def test_the_mixing_time_is_a_number_of_steps(run: Any) -> None:
    """One JAO chain: lambda_2 = 1 - .3 - .2 = .5 and stationary law (.4, .6), so from state 0 the
    distance is .6 * .5^t: .3 at t = 1, .15 at t = 2."""
    found = run("measure", "jao:1", "--json").json
    assert found["mixing_time"] == 2
    assert isinstance(found["mixing_time"], int)


def test_what_is_out_of_reach_is_null(run: Any) -> None:
    ran = run("measure", "circle:40", "--json")
    assert ran.status == 1
    assert ran.json["diameter"] is None
    assert ran.json["span"] is None
    assert ran.json["states"] == 2**40
    assert ran.json["m"] == 40
    assert "out of reach" in run("measure", "circle:40").out
