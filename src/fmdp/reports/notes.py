"""Notes of a report: what a reader must know about its runs, most important first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fmdp.experiments.analysis import SIGNIFICANT, Analysis
from fmdp.experiments.dataset import Dataset
from fmdp.experiments.measures import GAIN_KIND, PLANNER_CALLS, UNCONVERGED_PLANS
from fmdp.experiments.statistics import TOO_SMALL, interval_rank, smallest_p_value


def notes(data: Dataset, analysis: Analysis) -> tuple[str, ...]:
    """Return all notes of a report."""
    return (
        *notes_on_runs(data),
        *notes_on_intervals(analysis),
        *notes_on_seeds(analysis),
    )


def notes_on_runs(data: Dataset) -> Iterable[str]:
    """Yield notes on mixed versions, and on failed, missing and left-out runs."""
    grouped = data.grouped
    runs = [run for cell in data.cells for run in cell.runs]
    versions = Counter(run.results_version for run in runs)
    if len(versions) > 1:
        parts = ", ".join(f"{versions[v]} of version {v}" for v in sorted(versions))
        yield (
            f"Results versions are mixed: {parts}. A newer version gives other numbers for the "
            f"same run; compare with care, or sweep again with one version."
        )
    if grouped.superseded:
        yield (
            f"{_runs(grouped.superseded)} of an older results version, or of older code of one's "
            f"own, left out: the same run is there with a newer version, or with the code that was "
            f"requested last."
        )
    if grouped.failed:
        n = len(grouped.failed)
        yield f"{_runs(n)} failed and {_are(n)} not in any number here."
    if grouped.damaged:
        n = grouped.damaged
        yield f"{_runs(n)} that no spec requests {_are(n)} damaged and {_are(n)} left out."
    if grouped.missing:
        n = grouped.missing
        yield f"{_runs(n)} that the spec requests {_are(n)} not in the store (yet)."
    if grouped.left_out:
        n = len(grouped.left_out)
        yield (
            f"{n:,} pair{'' if n == 1 else 's'} of learner and problem "
            f"{'does' if n == 1 else 'do'} not fit and {_are(n)} left out of the "
            f"comparison; left-out.csv has the reasons."
        )
    sizes = Counter(len(cell.runs) for cell in data.cells)
    if len(sizes) > 1:
        yield (
            f"Cells have different numbers of runs, {min(sizes)} to {max(sizes)}; "
            f"learners are compared on the seeds that they share."
        )
    bounded = sum(run.measure(GAIN_KIND) == "upper_bound" for run in runs)
    if bounded:
        yield (
            f"{_runs(bounded)} measured against an upper bound of the gain: their realised regret "
            f"is too high by at most the bound's error times the steps."
        )
    unconverged = sum(run.measure(UNCONVERGED_PLANS) or 0 for run in runs)
    if unconverged:
        calls = sum(run.measure(PLANNER_CALLS) or 0 for run in runs)
        yield f"{unconverged:,} of {calls:,} plans inside the learners did not converge in time."


def notes_on_intervals(analysis: Analysis) -> Iterable[str]:
    """Say which cells have too few runs for an interval of the median."""
    summaries = analysis.summaries
    small = [len(s.cell.runs) for s in summaries if not interval_rank(len(s.cell.runs))]
    if small:
        yield (
            f"{len(small):,} of {len(summaries):,} cells have no 95 % interval of the median, "
            f"{TOO_SMALL}: it takes six runs, and they have {counts_text(small)}."
        )


def notes_on_seeds(analysis: Analysis) -> Iterable[str]:
    """Say for how many comparisons no result could be significant after the correction."""
    if not analysis.comparisons:
        return
    # All measures have the same pairs; one sentence is enough.
    measure = analysis.comparisons[0].measure
    pairs = [c for c in analysis.comparisons if c.measure == measure]
    hopeless = [c for c in pairs if smallest_p_value(c.test.n) * c.family > SIGNIFICANT]
    if hopeless:
        least = min(c.test.n for c in hopeless)
        yield (
            f"{len(hopeless):,} of {len(pairs):,} comparisons have so few shared seeds (as "
            f"few as {least}) that hardly any difference could be called significant after the "
            f"correction: {least} pairs give no p-value below {smallest_p_value(least):.2g}."
        )


def counts_text(counts: Sequence[int]) -> str:
    """Return "5", or "3 to 5" if the counts differ."""
    low, high = min(counts), max(counts)
    return f"{low}" if low == high else f"{low} to {high}"


def _runs(n: int) -> str:
    return f"{n:,} run{'' if n == 1 else 's'}"


def _are(n: int) -> str:
    return "is" if n == 1 else "are"
