"""Reports against exact arithmetic, and controls: each wrong number is caught by its own claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

from fmdp.experiments.dataset import ProblemCells
from referee import report_truth, reports
from referee.ledger import Ledger


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> reports.Sweep:
    return reports.swept(0, tmp_path_factory.mktemp("sweep"))


def judged(sweep: reports.Sweep) -> Ledger:
    ledger = Ledger()
    reports.judge(ledger, sweep)
    return ledger


@pytest.mark.referee
def test_a_few_reports() -> None:
    ledger = reports.play(short=True)
    assert ledger.compared > 1_000
    assert not ledger.disagreements, "\n".join(map(str, ledger.disagreements[:5]))


@pytest.mark.slow
@pytest.mark.referee
def test_all_reports() -> None:
    ledger = reports.play(short=False)
    assert not ledger.disagreements, "\n".join(map(str, ledger.disagreements[:5]))


@pytest.mark.referee
@pytest.mark.parametrize(
    ("table", "column", "claim"),
    [
        ("cells.csv", "median", "report: median"),
        ("cells.csv", "mean", "report: mean"),
        ("cells.csv", "interval_low", "report: interval low"),
        ("cells.csv", "mean_high", "report: mean high"),
        ("cells.csv", "upper_quartile", "report: upper quartile"),
        ("comparisons.csv", "p", "report: signed-rank p"),
        ("comparisons.csv", "p_holm", "report: p after Holm"),
        ("comparisons.csv", "equal", "report: which of a pair is lower"),
        ("comparisons.csv", "median_difference", "report: differences: median difference"),
        ("curves.csv", "mean_low", "report: curves: mean_low"),
        ("standings.csv", "place", "report: place"),
    ],
)
def test_a_wrong_number_is_caught(
    sweep: reports.Sweep, table: str, column: str, claim: str
) -> None:
    rows = [dict(row) for row in sweep.csv[table]]
    changed = next(row for row in rows if row[column])
    number = changed[column]
    changed[column] = (
        str(int(number) + 1) if number.isdigit() else repr(float(number) * 1.001 + 1e-6)
    )
    wrong: Mapping[str, Sequence[reports.Row]] = {**sweep.csv, table: rows}
    assert judged(replace(sweep, csv=wrong)).claims_broken == {claim}


@pytest.mark.referee
def test_ties_that_rounding_breaks_are_caught(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The finding itself: without a resolution, equal differences get different ranks."""
    monkeypatch.setattr(ProblemCells, "resolution", lambda self, steps, largest: 0.0)
    broken = judged(reports.swept(0, tmp_path)).claims_broken
    assert "report: rank sum" in broken or "report: which of a pair is lower" in broken


def test_the_truth_by_hand() -> None:
    """Numbers of textbooks, and of pencil and paper."""
    values = [Fraction(v) for v in (4, 1, 3, 2)]
    assert report_truth.median(values) == Fraction(5, 2)
    assert report_truth.quantile(values, Fraction(1, 4)) == Fraction(7, 4)
    assert report_truth.median_ends(values) is None
    assert report_truth.coverage(6, 1) == Fraction(62, 64)
    assert report_truth.student_quantile(1) == pytest.approx(12.7062047)
    assert report_truth.student_quantile(4) == pytest.approx(2.7764451)
    assert report_truth.student_quantile(9) == pytest.approx(2.2621572)
    # Sizes 1, 1, 2: ranks 3/2, 3/2, 3. W+ = 9/2 of 6; 0, 3/2, 9/2, 6 are as far from 3: 6 of 8.
    differences = [Fraction(d) for d in (1, 0, -1, 2)]
    assert report_truth.signed_rank(differences) == (Fraction(9, 2), Fraction(6, 8))
    p_values = [Fraction(p, 100) for p in (1, 4, 3)]
    assert report_truth.holm(p_values) == [Fraction(p, 100) for p in (3, 6, 6)]
