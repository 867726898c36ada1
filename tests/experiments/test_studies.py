"""Studies: slopes, regret against a parameter, checkpoints, names of problems, and LaTeX."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fmdp import Results
from fmdp.errors import FmdpError, UnknownName
from fmdp.experiments.api import spec_of
from fmdp.experiments.executors import InThisProcess
from fmdp.experiments.latex import escaped, interval, number, tabular
from fmdp.experiments.spec import parse_spec
from fmdp.experiments.store import Store
from fmdp.experiments.studies import jackknife, log_slope
from fmdp.experiments.sweep import run_sweep

SPEC = """
name = "study"
steps = 150
seeds = 3
checkpoints = [37, 90, 150]
problems = [{ problem = "circle:2", label = "ours" }, "circle:3", "circle:4", "jao:1"]

[[learners]]
name = "psrl"
label = "PSRL with {c}"
set = { c = [0.1, 0.5, 1.0] }

[[learners]]
name = "random"
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test writes to."""
    out = tmp_path_factory.mktemp("study")
    run_sweep(parse_spec(SPEC), out, workers=InThisProcess())
    return out


@pytest.fixture
def results(directory: Path) -> Iterator[Results]:
    with Results.open(directory) as opened:
        yield opened


def test_the_slope_of_a_power_is_its_exponent() -> None:
    t = np.array([10, 20, 50, 100])
    assert log_slope(t, 3.0 * t**0.5) == pytest.approx(0.5)
    assert log_slope(t, np.full(4, 7.0)) == pytest.approx(0.0)
    assert log_slope(t, np.array([1.0, 0.0, 1.0, 1.0])) is None
    assert log_slope(t[:1], np.array([1.0])) is None


def test_the_interval_of_a_slope_by_hand() -> None:
    # Two runs, t = 1 and 10. Means 1 and 4: slope log10(4); without one run log10(2), log10(6).
    t = np.array([1, 10])
    curves = np.array([[1.0, 6.0], [1.0, 2.0]])
    spread = np.sqrt(0.5 * 2 * ((np.log10(6) - np.log10(2)) / 2) ** 2)
    half = 12.7062 * spread  # t with one degree of freedom, 97.5 %
    low, high = jackknife(t, curves, float(np.log10(4))) or (0.0, 0.0)
    assert (low, high) == pytest.approx((np.log10(4) - half, np.log10(4) + half), rel=1e-5)
    assert jackknife(t, curves[:1], 0.5) is None


def test_the_jackknife_covers_the_slope() -> None:
    """Regrets A t^.5 with A exponential: the slope of the mean is 1/2 whatever is drawn; with noise
    at every point the interval contains it nearly always, and a wrong slope hardly ever."""
    rng = np.random.default_rng(0)
    t = np.geomspace(100, 1000, 20)
    covered = wrong = 0
    for _ in range(200):
        curves = np.sqrt(t) * rng.lognormal(0.0, 0.3, (20, len(t)))
        estimate = log_slope(t, curves.mean(axis=0))
        low, high = jackknife(t, curves, estimate) or (0.0, 0.0)
        covered += low <= 0.5 <= high
        wrong += low <= 0.65 <= high
    assert covered >= 180
    assert wrong <= 20


def test_slopes_of_stored_runs(results: Results) -> None:
    table = results.slopes_table("gap_regret")
    assert len(table["slope"]) == 16
    assert set(table["first_step"]) == {16}  # the first usual checkpoint from 15 on
    random = table["label"] == "random"
    assert ((table["slope"][random] > 0.7) & (table["slope"][random] < 1.3)).all()
    with pytest.raises(UnknownName, match="no measure 'gain' has a curve"):
        results.slopes_table("gain")


def test_regret_against_a_setting_of_the_learner(results: Results) -> None:
    table = results.against_table("c", "regret")
    assert table["value"].tolist() == [0.1, 0.5, 1.0] * 4
    assert dict.fromkeys(table["series"].tolist()).keys() == {
        f"{name}: PSRL with" for name in ("ours", "circle:3", "circle:4", "jao:1")
    }
    summary = results.summary_table("regret")
    median = {
        (problem, label): value
        for problem, label, value in zip(
            summary["problem"], summary["label"], summary["median"], strict=True
        )
    }
    for problem, label, value in zip(
        table["problem"], table["label"], table["median"], strict=True
    ):
        assert value == median[problem, label]


def test_regret_against_the_size_of_the_problem(results: Results) -> None:
    table = results.against_table("problem.size")
    chosen = table["series"] == "circle: random"
    assert table["value"][chosen].tolist() == [2.0, 3.0, 4.0]
    assert table["problem"][chosen].tolist() == ["ours", "circle:3", "circle:4"]
    assert table["mean"][chosen].tolist() == sorted(table["mean"][chosen].tolist())
    assert set(table["measure"]) == {"gap_regret"}
    with pytest.raises(UnknownName, match=r"'size' alone; there are series of c, problem\.size"):
        results.against_table("size")


def test_both_names_of_a_problem_are_in_every_table(results: Results) -> None:
    for name in ("runs", "curves", "summary", "standings", "comparisons", "slopes"):
        table = getattr(results, f"{name}_table")()
        own, canonical = table["problem"] == "ours", table["problem_id"] == "circle:2"
        assert own.any(), name
        assert (own == canonical).all(), name
        others = table["problem"][~own]
        assert (others == table["problem_id"][~own]).all()
    steps = results.recording_table("circle:2", "random")
    assert np.array_equal(steps["reward"], results.recording_table("ours", "random")["reward"])


def test_the_last_request_names_a_problem(directory: Path, tmp_path: Path) -> None:
    first = spec_of({"one": "circle:2"}, {"a": "random"}, seeds=1, steps=5)
    second = spec_of({"two": "circle:2"}, {"a": "random", "b": "psrl"}, seeds=1, steps=5)
    for spec in (first, second):
        run_sweep(spec, tmp_path, workers=InThisProcess())
    with Results.open(tmp_path) as results:
        assert set(results.runs_table()["problem"]) == {"two"}
        # By the name of a spec its own names are found, with the same id.
        assert set(results.summary_table("regret", second.hash)["problem"]) == {"two"}
    run_sweep(first, tmp_path, workers=InThisProcess())
    with Results.open(tmp_path) as results:
        assert set(results.runs_table()["problem"]) == {"one"}
        assert set(results.runs_table()["problem_id"]) == {"circle:2"}


def test_measures_at_the_checkpoints_of_a_spec(results: Results) -> None:
    for at in (37, 90, 150):
        table = results.summary_table("regret", at=at)
        assert set(table["steps"]) == {at}
        curves = results.curves_table("regret")
        chosen = (curves["t"] == at) & (curves["problem"] == "ours") & (curves["label"] == "random")
        assert table["median"][3] == np.median(curves["regret"][chosen])
    ends = results.summary_table("regret")
    assert results.summary_table("regret", at=150)["mean"].tolist() == ends["mean"].tolist()
    with pytest.raises(UnknownName, match="no run has a checkpoint at 38 steps"):
        results.summary_table("regret", at=38)


def test_checkpoints_make_another_run_with_the_same_numbers(
    directory: Path, tmp_path: Path
) -> None:
    few = parse_spec(SPEC.replace("checkpoints = [37, 90, 150]\n", ""))
    usual = parse_spec(SPEC.replace("[37, 90, 150]", "[10, 100]"))  # these are there anyway
    assert [run.key for run in few.runs()] == [run.key for run in usual.runs()]
    asked = parse_spec(SPEC)
    assert not {run.key for run in few.runs()} & {run.key for run in asked.runs()}
    run_sweep(few, tmp_path, workers=InThisProcess())
    with Store.open(directory) as one, Store.open(tmp_path) as two:
        for with_marks, without in zip(asked.runs(), few.runs(), strict=True):
            first, second = one.run(with_marks.key), two.run(without.key)
            assert first is not None
            assert second is not None
            assert first.measures["regret"] == second.measures["regret"]
            assert {*one.curve(first.key).t} - {*two.curve(second.key).t} == {37, 90}
    # The run requested last is shown, once per seed.
    run_sweep(asked, tmp_path, workers=InThisProcess())
    with Results.open(tmp_path) as results:
        assert len(results.runs_table()["seed"]) == 48
        assert len(results.summary_table("regret", at=37)["median"]) == 16


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("[151]", "a checkpoint must be a whole number from 1 to 150; got 151"),
        ("[0]", "a checkpoint must be a whole number from 1 to 150; got 0"),
        ('"all"', "'checkpoints' must be a list of steps; got 'all'"),
    ],
)
def test_bad_checkpoints_are_refused(given: str, message: str) -> None:
    with pytest.raises(FmdpError) as error:
        parse_spec(SPEC.replace("[37, 90, 150]", given))
    assert message in str(error.value)


def test_comparisons_have_the_numbers_of_the_differences(results: Results) -> None:
    table = results.comparisons_table("regret")
    assert len(table["first"]) == 4 * 6
    runs = results.runs_table()

    def ends(problem: str, label: str) -> np.ndarray:
        chosen = (runs["problem"] == problem) & (runs["label"] == label)
        return np.asarray(runs["regret"][chosen])

    for problem, first, second, median in zip(
        *(table[name] for name in ("problem", "first", "second", "median_difference")), strict=True
    ):
        differences = ends(problem, first) - ends(problem, second)
        assert median == pytest.approx(np.median(differences), abs=1e-9)


def test_an_empty_store_has_empty_tables(tmp_path: Path) -> None:
    Store.create(tmp_path).close()
    with Results.open(tmp_path) as results:
        for name in ("comparisons", "slopes", "standings", "summary"):
            table = getattr(results, f"{name}_table")()
            assert all(len(column) == 0 for column in table.values())
            assert results.latex(name).count(r"\\") == 1


def test_texts_and_numbers_in_latex() -> None:
    assert escaped("50% & c_1 [x] \\a{b}~^$#<>") == (
        r"50\% \& c\_1 {[}x{]} \textbackslash{}a\{b\}\textasciitilde{}\textasciicircum{}\$\#"
        r"\textless{}\textgreater{}"
    )
    assert number(12345.6) == "$12{,}346$"
    assert number(0.012345) == "$0.0123$"
    assert number(-1.5e-9) == r"$-1.5 \cdot 10^{-9}$"
    assert number(None) == number(float("nan")) == "--"
    assert interval(1.0, 20.0) == "[$1$, $20$]"
    assert interval(float("nan"), 1.0) == "--"
    assert tabular(["A", "B"], "lr", [["x", "$1$"]]) == (
        "% needs \\usepackage{booktabs}\n\\begin{tabular}{lr}\n\\toprule\nA & B \\\\\n\\midrule\n"
        "x & $1$ \\\\\n\\bottomrule\n\\end{tabular}\n"
    )


def test_tables_of_results_in_latex(results: Results) -> None:
    text = results.latex("standings", spec="study")
    assert r"ours & 1 & " in text
    assert text.count(r" \\") == 17
    assert "PSRL with 0.1" in results.latex("comparisons", "gap_regret")
    with pytest.raises(UnknownName, match="no table 'runs' has a LaTeX form; those that have are"):
        results.latex("runs")
