"""Figures: every format, the same bytes every time, and one line where Matplotlib is missing."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from fmdp.experiments.dataset import Dataset, gather
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.store import Store
from fmdp.reports import figures
from fmdp.reports.figures import MissingPlots, caption, draw, drawn_cells, regret_figure, titled
from fmdp.reports.style import BLACK, COLOURS, DASHES, GREY, styles

GAP = GAP_REGRET.name
REALISED = REGRET.name

MAGIC = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.fixture
def runs(store: Store) -> Dataset:
    return gather(store)


def test_every_format_and_the_same_bytes_every_time(runs: Dataset) -> None:
    panels = [(problem, problem.cells) for problem in runs.problems]
    first = regret_figure(panels, REALISED, "log", styles(runs.cells))
    again = regret_figure(panels, REALISED, "log", styles(runs.cells))
    assert first == again
    for kind, magic in MAGIC.items():
        assert first[kind].startswith(magic)
    assert b"dc:date" not in first["svg"]
    assert b"CreationDate" not in first["pdf"]
    assert re.search(rb"/Subtype\s*/Type0|/FontFile2", first["pdf"])  # fonts are inside


def test_measures_and_scales(runs: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "regret_figure", lambda *_: {})
    names = [drawing.name for drawing in draw(runs)]
    assert names == ["regret", "regret-linear", "gap-regret", "gap-regret-linear"]


def test_the_caption_says_what_is_drawn(runs: Dataset) -> None:
    panels = [(problem, problem.cells) for problem in runs.problems]
    words = caption(panels, REALISED, "log")
    for part in (
        "circle:3, three-leg:4",
        "medians over 5 runs",
        "quartile",
        "units of reward",
        "both axes logarithmic",
    ):
        assert part in words
    assert "linear" in caption(panels, GAP, "linear")


def test_the_oracle_is_drawn_where_zero_has_a_place(runs: Dataset) -> None:
    problem = runs.problems[0]
    assert "oracle" not in [cell.label for cell in drawn_cells(problem, REALISED, "log")]
    assert "oracle" in [cell.label for cell in drawn_cells(problem, REALISED, "linear")]
    panels = [(problem, drawn_cells(problem, REALISED, "log"))]
    assert "zero up to luck, is not drawn" in caption(panels, REALISED, "log")


def test_roles_decide_how_a_cell_is_drawn_whatever_it_is_called(runs: Dataset) -> None:
    """The same cells with their roles exchanged: who is black, and who is left out, goes along."""
    problem = runs.problems[0]
    swapped = {"PSRL": "upper", "DORL": "lower", "oracle": "learner"}
    cells = tuple(
        replace(c, runs=tuple(replace(r, role=swapped.get(c.label, c.role)) for r in c.runs))
        for c in problem.cells
    )
    looks = styles(cells)
    assert looks["PSRL"].colour == BLACK[0]
    assert looks["DORL"].colour == GREY[0]
    assert looks["oracle"].colour not in (BLACK[0], GREY[0])
    drawn = [cell.label for cell in drawn_cells(replace(problem, cells=cells), GAP, "log")]
    assert "PSRL" not in drawn
    assert "oracle" in drawn
    assert "Random actions leave" in caption([(problem, cells)], REALISED, "linear")
    without = [cell for cell in cells if cell.role != "lower"]
    assert "Random actions leave" not in caption([(problem, without)], REALISED, "linear")


def test_long_ids_are_broken_after_commas() -> None:
    assert titled("circle:7") == "circle:7"
    long = "circle:7,dynamics=guestrin,reward=mean"
    assert titled(long) == "circle:7,dynamics=guestrin,\nreward=mean"
    assert titled("a" * 50) == "a" * 50


def test_regret_that_is_never_positive_is_drawn_all_the_same(runs: Dataset) -> None:
    problem = runs.problems[0]
    cell = problem.cells[0]
    negative = replace(cell, curves={REALISED: -np.abs(cell.curves[REALISED]) - 1})
    for scale in ("log", "linear"):
        files = regret_figure([(problem, [negative])], REALISED, scale, styles(runs.cells))
        assert files["png"].startswith(MAGIC["png"])


def test_a_band_is_interrupted_where_its_line_is(runs: Dataset) -> None:
    """Medians positive, then not, then positive: two stretches of line, two bands, and no corner of
    a band where there is no line."""
    from matplotlib.figure import Figure

    cell = runs.problems[0].cells[0]
    t = np.arange(1, 10)
    middle = np.array([1.0, 2, 3, -1, -2, 0, 4, 5, 6])
    values = np.stack([middle - 0.5, middle, middle + 0.5])
    broken = replace(cell, t=t, curves={REALISED: values})
    ax = Figure().subplots()
    figures.draw_panel(ax, [broken], REALISED, "log", styles(runs.cells))
    (band,) = ax.collections
    stretches = [sorted(set(path.vertices[:, 0].tolist())) for path in band.get_paths()]
    assert stretches == [[1, 2, 3], [7, 8, 9]]
    line = np.ma.masked_invalid(ax.lines[0].get_ydata())
    assert [t[part].tolist() for part in np.ma.clump_unmasked(line)] == [[1, 2, 3], [7, 8, 9]]


def test_a_panel_with_too_many_cells_has_the_best_of_each_learner(
    made: ModuleType, tmp_path: Path
) -> None:
    learners = [
        made.MadeLearner(f"{name} {scale}", name, scale, {"c": scale})
        for name in ("psrl", "dorl")
        for scale in (1.0, 9.0, 20.0, 40.0, 60.0)
    ]
    made.make_store(tmp_path, problems=["circle:3"], learners=learners, steps=60)
    with Store.open(tmp_path) as store:
        runs = gather(store)
    panel = (runs.problems[0], drawn_cells(runs.problems[0], GAP, "log"))
    assert [cell.label for cell in panel[1]] == ["psrl 1.0", "dorl 1.0"]
    assert "Of each learner (with each planner) only the variant" in caption([panel], GAP, "log")


def test_colour_is_the_learner_and_dash_the_variant(runs: Dataset) -> None:
    looks = styles(runs.cells)
    assert looks["PSRL"].colour == looks["PSRL, exact"].colour == COLOURS[0][0]
    assert (looks["PSRL"].dash, looks["PSRL, exact"].dash) == DASHES[:2]
    assert looks["oracle"].colour == BLACK[0]
    assert len({(look.colour, look.dash) for look in looks.values()}) == len(looks)
    assert len({look.marker for look in looks.values()}) == len(looks)


def test_learners_without_variants_differ_in_their_dashes_too(runs: Dataset) -> None:
    looks = styles([c for c in runs.problems[0].cells if c.label in ("PSRL", "DORL", "f-Rmax")])
    assert [look.dash for look in looks.values()] == list(DASHES[:3])
    assert len({look.colour for look in looks.values()}) == 3


def test_a_learner_keeps_its_colour_in_a_figure_with_fewer_of_them(runs: Dataset) -> None:
    every = styles(runs.cells)
    some = [cell for cell in runs.problems[0].cells if cell.learner != "psrl"]
    looks = styles(some, runs.cells)
    for cell in some:
        assert looks[cell.label].colour == every[cell.label].colour


def test_thirty_variants_of_one_learner_all_look_different(runs: Dataset) -> None:
    cell = runs.cells[0]
    looks = styles([replace(cell, label=f"c = {k}") for k in range(30)])
    assert len({(look.colour, look.dash) for look in looks.values()}) == 30


def test_without_matplotlib_one_line_names_the_extra(
    runs: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [*filter(lambda name: name.startswith("matplotlib"), sys.modules), "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPlots, match=r"pip install 'fmdp\[plots\]'"):
        draw(runs)
