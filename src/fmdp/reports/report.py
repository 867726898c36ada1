"""A report of a store: everything is made first, then written, and replaces an older one whole.

`write_report(DIR)` reads DIR/runs.sqlite and writes, into DIR/report unless told otherwise:

    index.html                                     the page
    cells.csv comparisons.csv curves.csv runs.csv  the tables
    standings.csv, left-out.csv                    who is ahead where; pairs that do not fit, if any
    standings.png .svg .pdf                        the same as a figure, where two learners meet
    regret.png .svg .pdf, regret-linear, ...       the figures, gap regret too where it is known
    figure-2.png .svg .pdf, paper.txt              for a store with the paper's runs
    captions.txt                                   the words under the figures

The same store gives the same bytes, also while a sweep writes to it. Without Matplotlib (the extra
`plots`) there are no figures, and `Report.without_figures` says why; page and tables need none.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fmdp.experiments.opening import Say, warn
from fmdp.experiments.store import Store
from fmdp.reports import paper, standings
from fmdp.reports.analysis import Analysis, analyse
from fmdp.reports.cells import Runs, gather
from fmdp.reports.figures import KINDS, Drawing, MissingPlots, draw, require_matplotlib
from fmdp.reports.folder import Replacement
from fmdp.reports.page import page
from fmdp.reports.tables import tables

FOLDER = "report"

_FIGURES = (
    "figure-2",
    "standings",
    *(f"{m}{s}" for m in ("regret", "gap-regret") for s in ("", "-linear")),
)
_NAMES = {
    "index.html",
    "captions.txt",
    "paper.txt",
    *(
        f"{name}.csv"
        for name in ("cells", "comparisons", "curves", "left-out", "runs", "standings")
    ),
    *(f"{name}.{kind}" for name in _FIGURES for kind in KINDS),
    ".DS_Store",  # of whoever looked at it
}


def is_ours(name: str) -> bool:
    """Whether a report may have written a file of this name, or died while it did."""
    return name in _NAMES or (name.startswith(".fmdp-") and name.endswith(".tmp"))


@dataclass(frozen=True)
class Report:
    """What was written, and what it says."""

    folder: Path
    page: Path
    files: tuple[Path, ...]
    """All of them, the page first."""
    runs: Runs
    analysis: Analysis
    paragraphs: tuple[str, ...]
    """How the numbers stand to the paper's claims; empty for any other store."""
    standings: tuple[str, ...]
    """Who is ahead, in words; empty where no two learners meet."""
    without_figures: str | None
    """Why there are no figures; None if there are."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know: versions mixed, runs failed or missing, too few seeds."""
        return (*self.runs.notes, *self.analysis.notes)


def write_report(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    spec: str | None = None,
    waiting: Say = warn,
) -> Report:
    """Read the store in `directory`, write its report into `out` (default: directory/report).

    With `spec`, the hash of one, only of what that asks for. `waiting` is told when a lock on the
    store is waited for.
    """
    folder = Path(directory) / FOLDER if out is None else Path(out)
    with Store.open(directory, waiting=waiting) as store, Replacement(folder, is_ours) as new:
        return _report(store, folder, new, spec)


def _report(store: Store, folder: Path, new: Replacement, spec: str | None) -> Report:
    with store.snapshot():
        asked = None if spec is None else [one for one in store.specs() if one.hash == spec]
        runs = gather(store, asked)
        analysis = analyse(runs)
        paragraphs = paper.paragraphs(runs, analysis)
        ahead = standings.sentences(runs, analysis)
        featured = {cell.label for panel in paper.panels(runs) for cell in panel.papers}
        contents: dict[str, str | bytes] = {
            "index.html": page(store, runs, analysis, paragraphs, featured, ahead)
        }
    contents |= tables(runs, analysis)
    reason = None
    try:
        require_matplotlib()
    except MissingPlots as error:
        reason = str(error)
    else:
        contents |= _figures(runs)
    if paragraphs:
        contents["paper.txt"] = "\n\n".join(paragraphs) + "\n"
    new.write(contents)
    files = tuple(folder / name for name in contents)
    return Report(folder, files[0], files, runs, analysis, paragraphs, ahead, reason)


def _figures(runs: Runs) -> dict[str, str | bytes]:
    drawings: list[Drawing] = draw(runs)
    found = paper.panels(runs)
    if standings.is_comparison(runs.standings):
        drawings.insert(0, standings.figure(runs.standings, runs.left_out))
    if found:
        drawings.insert(0, paper.figure(runs, found))
    contents: dict[str, str | bytes] = {
        f"{drawing.name}.{kind}": content
        for drawing in drawings
        for kind, content in drawing.files.items()
    }
    captions = "\n\n".join(f"{drawing.name}: {drawing.caption}" for drawing in drawings)
    return contents | {"captions.txt": captions + "\n"}
