"""Reports: the page, tables and figures of a store, written to a directory as a whole.

`write_report(DIR)` reads DIR/runs.sqlite and writes, by default into DIR/report:

    index.html                                     the page
    cells.csv comparisons.csv curves.csv runs.csv  the tables
    standings.csv, slopes.csv                      standings; growth with the steps
    checkpoints.csv                                after the steps that a spec asks for, if any
    left-out.csv                                   pairs that do not fit, if any
    standings.tex summary.tex ...                  tables for a paper, with `latex=True`
    standings.png .svg .pdf                        the standings as a figure, for a comparison
    regret.png .svg .pdf, regret-linear, ...       curves of every measure that has them
    bayesian-regret.png .svg .pdf                  means over drawn models, for a store with priors
    slopes.png .svg .pdf                           growth of regret with the steps
    against-NAME.png .svg .pdf                     regret against a parameter with three values
    figure-2.png .svg .pdf, paper.txt              for a store with the paper's runs
    captions.txt                                   captions of the figures

The same store gives the same bytes, also while a sweep writes to it. Without Matplotlib (the extra
`plots`) there are no figures, and `Report.without_figures` gives the reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fmdp.experiments.analysis import Analysis, analyse
from fmdp.experiments.bayesian import RegretBound, regret_bounds
from fmdp.experiments.database import Notify, warn
from fmdp.experiments.dataset import Dataset, gather
from fmdp.experiments.latex import LAYOUTS
from fmdp.experiments.measures import curve_names
from fmdp.experiments.paper import panels
from fmdp.experiments.results import Results
from fmdp.experiments.standings import is_comparison
from fmdp.experiments.store import Store
from fmdp.reports import (
    bayesian_figure,
    paper_claims,
    standings_figure,
    study_figures,
    wording,
)
from fmdp.reports.figures import (
    KINDS,
    Drawing,
    MissingPlots,
    draw,
    figure_name,
    require_matplotlib,
)
from fmdp.reports.folder import Replacement
from fmdp.reports.notes import notes
from fmdp.reports.page import Texts, page
from fmdp.reports.tables import AtCheckpoint, at_checkpoints, tables

FOLDER = "report"

_FIGURES = ("figure-2", "standings", bayesian_figure.NAME)
_TABLES = (
    *("cells", "checkpoints", "comparisons", "curves", "left-out", "runs", "slopes", "standings"),
)


def is_ours(name: str) -> bool:
    """Return whether a file of this name can be part of a report, finished or not."""
    curves = [f"{figure_name(m)}{scale}" for m in curve_names() for scale in ("", "-linear")]
    names = {
        "index.html",
        "captions.txt",
        "paper.txt",
        ".DS_Store",  # written by macOS
        *(f"{table}.csv" for table in _TABLES),
        *(f"{table}.tex" for table in LAYOUTS),
        *(f"{figure}.{kind}" for figure in (*_FIGURES, *curves) for kind in KINDS),
    }
    stem, _, kind = name.rpartition(".")
    unfinished = name.startswith(".fmdp-") and kind == "tmp"
    return name in names or unfinished or (kind in KINDS and study_figures.is_study(stem))


@dataclass(frozen=True)
class Report:
    """The files of a report, and their content."""

    folder: Path
    page: Path
    files: tuple[Path, ...]
    """All files, the page first."""
    runs: Dataset
    analysis: Analysis
    paragraphs: tuple[str, ...]
    """The paper's claims compared with the numbers; empty for any other store."""
    standings: tuple[str, ...]
    """Sentences on the standings; empty if no two learners ran on one problem."""
    without_figures: str | None
    """The reason why there are no figures, or None."""
    notes: tuple[str, ...]
    """Notes on Bayesian regret, mixed versions, failed or missing runs, too few seeds."""

    @property
    def checkpoints(self) -> tuple[AtCheckpoint, ...]:
        """Summaries of every cell and measure after the steps that its specs ask for."""
        return tuple(at_checkpoints(self.runs))


def write_report(
    directory: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    spec: str | None = None,
    latex: bool = False,
    waiting: Notify = warn,
) -> Report:
    """Write the page, tables and figures of stored runs.

    Parameters
    ----------
    directory
        The `out` directory of a sweep.
    out
        Directory to write to, which holds nothing but an earlier report; by default
        directory/report.
    spec
        The hash of a spec, for its runs alone. None: all.
    latex
        Whether to write the tables as LaTeX too.
    waiting
        Called with one line when a lock on the store has to be waited for.

    Returns
    -------
    Report
        The files written, and their content.

    Raises
    ------
    FileProblem
        If there is no store or no finished run, or `out` cannot be written or holds other files.
    """
    folder = Path(directory) / FOLDER if out is None else Path(out)
    with Store.open(directory, waiting=waiting) as store, Replacement(folder, is_ours) as new:
        return _report(store, folder, new, spec, latex)


def _report(store: Store, folder: Path, new: Replacement, spec: str | None, latex: bool) -> Report:
    with store.snapshot():
        specs = None if spec is None else [s for s in store.specs() if s.hash == spec]
        runs = gather(store, specs)
        analysis = analyse(runs)
        bounds = regret_bounds(store, runs)
        texts = Texts(
            headline=paper_claims.headline(runs) or wording.headline(runs, analysis),
            paper=paper_claims.paragraphs(runs, analysis),
            standings=wording.sentences(runs, analysis),
            notes=(*bayesian_figure.sentences(runs, bounds), *notes(runs, analysis)),
        )
        featured = {cell.label for panel in panels(runs) for cell in panel.papers}
        contents: dict[str, str | bytes] = {
            "index.html": page(store, runs, analysis, texts, featured)
        }
        if latex:
            results = Results(store)
            contents |= {f"{name}.tex": results.latex(name, spec=spec) for name in LAYOUTS}
    contents |= tables(runs, analysis)
    reason = None
    try:
        require_matplotlib()
    except MissingPlots as error:
        reason = str(error)
    else:
        contents |= _figures(runs, bounds)
    if texts.paper:
        contents["paper.txt"] = "\n\n".join(texts.paper) + "\n"
    new.write(contents)
    files = tuple(folder / name for name in contents)
    return Report(
        folder, files[0], files, runs, analysis, texts.paper, texts.standings, reason, texts.notes
    )


def _figures(data: Dataset, bounds: Mapping[str, RegretBound]) -> dict[str, str | bytes]:
    drawings: list[Drawing] = [*draw(data), *study_figures.figures(data)]
    figure_panels = panels(data)
    if bayesian_figure.with_priors(data):
        drawings.insert(0, bayesian_figure.figure(data, bounds))
    if is_comparison(data.standings):
        drawings.insert(0, standings_figure.figure(data.standings, data.grouped.left_out))
    if figure_panels:
        drawings.insert(0, paper_claims.figure(data, figure_panels))
    contents: dict[str, str | bytes] = {
        f"{drawing.name}.{kind}": content
        for drawing in drawings
        for kind, content in drawing.files.items()
    }
    captions = "\n\n".join(f"{drawing.name}: {drawing.caption}" for drawing in drawings)
    return contents | {"captions.txt": captions + "\n"}
