"""The site: its formulas, links to the API and columns of numbers. (`make docs` builds it.)"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from docutils.utils.math.latex2mathml import tex2mathml

DOCS = Path(__file__).resolve().parent.parent / "docs"


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"fmdp_tests_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


plain = _load(DOCS / "mathml.py").plain
pages = _load(DOCS / "pages.py")


def drawn(formula: str) -> str:
    return re.sub(r"\s+", "", tex2mathml(formula)).partition(">")[2].removesuffix("</math>")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"\frac12", r"\frac{1}{2}"),
        (r"\tfrac12 T", r"\tfrac{1}{2} T"),
        (r"\frac T2 + 1", r"\frac{T}{2} + 1"),
        (r"\tfrac1A", r"\tfrac{1}{A}"),
        (r"\frac{\frac12}{3}", r"\frac{\frac{1}{2}}{3}"),
        (r"x^12", r"x^{1}2"),
        (r"\Big[ x \Big]", r"\Bigl[ x \Bigr]"),
        (r"1, \dots, m", r"1, \ldots, m"),
        (r"x \tag{1}", r"x \qquad (1)"),
    ],
)
def test_a_formula_is_what_tex_shows(written: str, meant: str) -> None:
    assert drawn(plain(written)) == drawn(meant)


def test_one_half_of_t_would_be_twelve_over_t() -> None:
    """The control: without `plain` docutils reads another formula, and says nothing."""
    assert drawn(r"\tfrac12 T") != drawn(r"\tfrac{1}{2} T")


@pytest.mark.parametrize("formula", [r"\tilde R_k", r"\hat\lambda_2^*", r"\bar{p}_i"])
def test_an_index_stands_beside_its_accent(formula: str) -> None:
    assert "munder" not in drawn(plain(formula))
    assert "munder" in drawn(formula), "docutils has learned it: take the rule out of mathml.py"


@pytest.mark.parametrize(
    "formula", [r"\frac{1}{2A} N_0", r"h_{12}", r"\dotsb", r"2^{16}", r"\sqrt W \sqrt{L T}"]
)
def test_what_is_plain_stays(formula: str) -> None:
    assert plain(formula) == formula


@pytest.mark.parametrize(
    ("code", "target"),
    [
        ("fmdp.plan(model)", "fmdp.plan"),
        ("fmdp.Exact(criterion='finite', horizon=40)", "fmdp.Exact"),
        ("FactoredMDP.from_functions", "fmdp.FactoredMDP.from_functions"),
        ("Default()", "fmdp.Default"),
        ("plan.explain(state)", "fmdp.Plan.explain"),
        ("agent.act", "fmdp.Agent.act"),
        ("plan", None),  # the command
        ("learn", None),
        ("fmdp", None),
        ("fmdp plan circle:7", None),
        ("Exact() or ALP()", None),
        ("OSError", None),
    ],
)
def test_names_of_the_api_in_code_font(code: str, target: str | None) -> None:
    assert pages.api_target(code) == target


@pytest.mark.parametrize(
    "cell",
    [
        *("7", "-0.591", "1,048,576", ".95", "12 to 18 s", "0.14 s, 106 MB", "+9.1 %", "10^301"),
        *("-6.12 ± .09", "162 (93 to 141, 186)", "1.06 (JAO: 3.5)", "10^{-2}", "22 allowed"),
    ],
)
def test_a_cell_that_is_a_number(cell: str) -> None:
    assert pages.is_number(cell)


@pytest.mark.parametrize(
    "cell", ["", "circle:7", "3 neighbours", "5, 6, 7, 8, 9, 10", "not in 200 s", "0.1: s, sweeps"]
)
def test_a_cell_that_is_no_number(cell: str) -> None:
    assert not pages.is_number(cell)


def test_a_column_of_numbers_may_have_holes() -> None:
    assert pages.is_number_column(["none", "8,000", "", "500"])
    assert not pages.is_number_column(["none", ""])
    assert not pages.is_number_column(["8,000", "does not end"])
