"""The report's page in a real browser: what it shows is what the store has, the controls do what
they say, and it complains about nothing (the fixture `opened` checks that after every test)."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from fmdp.experiments.dataset import CellCurves, Dataset, ProblemCells, gather
from fmdp.experiments.measures import GAP_REGRET, REGRET
from fmdp.experiments.store import Recording, Store
from fmdp.reports.network import network, touched_nodes

GAP = GAP_REGRET.name
REALISED = REGRET.name

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from tests.browser.conftest import Opened

LAPTOP_AND_PHONE = [
    (1280, 800, "light"),
    (1280, 800, "dark"),
    (390, 844, "light"),
    (390, 844, "dark"),
]


@pytest.fixture(scope="module")
def open_store(store: Path) -> Iterator[Store]:
    with Store.open(store) as found:
        yield found


@pytest.fixture(scope="module")
def runs(open_store: Store) -> Dataset:
    return gather(open_store)


def curves_shown(page: Page, problem: str) -> list[str]:
    found = page.locator(f'[data-problem="{problem}"] [data-curve]')
    return found.evaluate_all("all => all.map(e => e.dataset.curve)")


def axis(page: Page, problem: str, which: str) -> list[tuple[float, float]]:
    """(value, place) of every tick: x ticks are centred, y ticks end at the axis."""
    anchor = {"x": "middle", "y": "end"}[which]
    found = page.locator(f'[data-problem="{problem}"] svg g[aria-hidden] text').evaluate_all(
        "all => all.map(e => [e.textContent, e.getAttribute('text-anchor'), "
        "Number(e.getAttribute('x')), Number(e.getAttribute('y'))])"
    )
    return [
        (float(text.replace(",", "")), x if which == "x" else y - 4)
        for text, end, x, y in found
        if end == anchor and text != "steps"
    ]


def is_straight(points: list[tuple[float, float]], scale: Any) -> bool:
    """Do the places of the ticks lie on a line against scale(value)?"""
    values = np.array([scale(value) for value, _ in points])
    places = np.array([place for _, place in points])
    fit = np.polyfit(values, places, 1)
    return bool(np.abs(np.polyval(fit, values) - places).max() < 0.6)


def end_of_curve(page: Page, problem: str, label: str) -> float:
    """The height of the last point of a curve, in the panel's own units."""
    d = page.locator(f'[data-problem="{problem}"] [data-curve="{label}"] path').first
    return float((d.get_attribute("d") or "").rpartition(",")[2])


def choose(page: Page, group: str, value: str) -> None:
    page.locator(f"#{group} label", has=page.locator(f'input[value="{value}"]')).click()


@pytest.mark.parametrize("opened", LAPTOP_AND_PHONE, indirect=True)
def test_the_page_fits_any_screen(page: Page) -> None:
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert page.locator(".panel").count() == 3


def place_of(page: Page, selector: str) -> dict[str, float]:
    """Where an element is on the screen, in CSS pixels."""
    found: dict[str, float] = page.locator(selector).first.evaluate(
        "e => { const { left, right, top, bottom } = e.getBoundingClientRect();"
        " return { left, right, top, bottom }; }"
    )
    return found


@pytest.mark.parametrize("opened", LAPTOP_AND_PHONE[:2], indirect=True)
def test_the_first_screen_has_the_headline_and_a_panel(page: Page) -> None:
    headline, panel = place_of(page, ".headline"), place_of(page, ".panel svg")
    height = page.evaluate("innerHeight")
    assert headline["bottom"] <= panel["top"]
    assert panel["top"] + 0.5 * (panel["bottom"] - panel["top"]) <= height


@pytest.mark.parametrize("opened", LAPTOP_AND_PHONE[1:3], indirect=True)
@pytest.mark.parametrize(
    ("table", "head"), [("summary", "Median"), ("comparisons", "Median difference")]
)
def test_the_median_is_seen_without_scrolling_sideways(page: Page, table: str, head: str) -> None:
    """Beside problems and learners with names as long as they get (conftest.py)."""
    box = place_of(page, f"#{table}-table")
    heads = page.locator(f"#{table}-table th").all_inner_texts()
    nth = [text.replace("\n", " ").strip(" ↕↑↓") for text in heads].index(head) + 1
    for selector in (f"th:nth-child({nth})", f"td:nth-child({nth})"):
        cells = page.locator(f"#{table}-table {selector}").evaluate_all(
            "all => all.map(e => [e.getBoundingClientRect().right, e.scrollWidth - e.clientWidth])"
        )
        assert cells
        assert all(right <= box["right"] and cut <= 0 for right, cut in cells)


@pytest.mark.parametrize("opened", LAPTOP_AND_PHONE[1:3], indirect=True)
def test_play_is_on_the_same_screen_as_the_network(page: Page) -> None:
    for problem in range(3):
        page.select_option("#replay-problem", str(problem))
        page.wait_for_selector("#replay[data-ready]")
        page.locator("#network").evaluate("e => e.scrollIntoView({ block: 'start' })")
        network, play, slider = (place_of(page, one) for one in ("#network", "#play", "#scrub"))
        height = page.evaluate("innerHeight")
        assert network["top"] >= -1
        assert network["bottom"] <= play["top"]
        assert max(play["bottom"], slider["bottom"]) <= height


@pytest.mark.parametrize("opened", LAPTOP_AND_PHONE[:2], indirect=True)
def test_text_has_contrast(page: Page) -> None:
    """WCAG AA: 4.5 to 1 for every text that is seen, against the nearest background behind it."""
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    weak = page.evaluate(
        """() => {
          const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
          const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const behind = (e) => { for (; e; e = e.parentElement) {
            const c = parse(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c; } return [255, 255, 255]; };
          const found = [];
          for (const e of document.querySelectorAll("body *")) {
            const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
            if (!own || e.closest("#network, script, style, noscript, .hidden, .skip")) continue;
            const style = getComputedStyle(e), svg = e instanceof SVGElement;
            const a = light(parse(svg ? style.fill : style.color)), b = light(behind(e));
            const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            if (ratio < 4.5) found.push([e.textContent.slice(0, 40), ratio]);
          }
          return found;
        }"""
    )
    assert weak == []


def test_the_legend_hides_and_shows_a_learner_in_every_panel(page: Page, runs: Dataset) -> None:
    every = list(runs.labels)
    for problem in runs.problems:
        assert curves_shown(page, problem.name) == every
    button = page.get_by_role("button", name="DORL")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    for problem in runs.problems:
        assert curves_shown(page, problem.name) == ["PSRL", "f-Rmax"]
        band = page.locator(f'[data-problem="{problem.name}"] [data-band="DORL"]')
        assert band.count() == 0
    button.click()
    assert curves_shown(page, "circle:4") == every
    page.get_by_role("button", name="Hide all").click()
    assert curves_shown(page, "circle:4") == []
    page.get_by_role("button", name="Show all").click()
    assert curves_shown(page, "circle:4") == every


def test_bands_are_shown_and_hidden(page: Page) -> None:
    assert page.locator("[data-band]").count() == 9
    page.get_by_label("Bands").uncheck()
    assert page.locator("[data-band]").count() == 0


def test_a_band_is_interrupted_where_its_line_is(
    made: ModuleType, tmp_path: Path, opened: Opened, page_of: Callable[[Path], Path]
) -> None:
    """Regret positive, negative for a while, positive again: on the logarithmic axis band and line
    have the same two stretches, on the linear one a single one."""

    def broken(t: np.ndarray) -> np.ndarray:
        return np.where((t > 5) & (t < 40), -1.0, np.sqrt(t))

    learner = made.MadeLearner("PSRL", "psrl", 1.0, curve=broken)
    made.make_store(tmp_path, problems=["circle:3"], learners=[learner], steps=200)
    page = opened.open(page_of(tmp_path))

    def across(which: str) -> list[list[float]]:
        """The places across, in order, of every stretch of the path."""
        d = page.locator(which).first.get_attribute("d") or ""
        parts = [part.rstrip("z").split("L") for part in d.split("M")[1:]]
        return [sorted({float(point.split(",")[0]) for point in part}) for part in parts]

    assert len(across('[data-curve="PSRL"] path')) == 2
    assert across('[data-band="PSRL"]') == across('[data-curve="PSRL"] path')
    choose(page, "y-axis", "linear")
    assert len(across('[data-band="PSRL"]')) == 1
    assert across('[data-band="PSRL"]') == across('[data-curve="PSRL"] path')


@pytest.mark.parametrize(("group", "which"), [("x-axis", "x"), ("y-axis", "y")])
def test_logarithmic_and_linear_axes(page: Page, group: str, which: str) -> None:
    points = axis(page, "circle:4", which)
    assert len(points) >= 2
    assert is_straight(points, math.log10)
    assert [value for value, _ in points] == [10.0 ** round(math.log10(v)) for v, _ in points]
    choose(page, group, "linear")
    points = axis(page, "circle:4", which)
    assert len(points) >= 3
    assert is_straight(points, float)
    assert points[0][0] == 0
    choose(page, group, "log")
    assert is_straight(axis(page, "circle:4", which), math.log10)


@pytest.mark.parametrize("scale", ["log", "linear"])
@pytest.mark.parametrize("measure", [REALISED, GAP])
def test_a_curve_ends_at_its_median(page: Page, runs: Dataset, scale: str, measure: str) -> None:
    choose(page, "y-axis", scale)
    choose(page, "measure", measure)
    f = {"log": math.log10, "linear": float}[scale]
    for problem in runs.problems:
        ticks = axis(page, problem.name, "y")
        fit = np.polyfit([place for _, place in ticks], [f(value) for value, _ in ticks], 1)
        unit = abs(fit[0])  # one pixel
        for cell in problem.cells:
            shown = np.polyval(fit, end_of_curve(page, problem.name, cell.label))
            assert shown == pytest.approx(f(np.median(cell.curves[measure][:, -1])), abs=1.5 * unit)


def test_the_pointer_and_the_arrow_keys_read_values(page: Page, runs: Dataset) -> None:
    panel = page.locator('[data-problem="circle:4"]')
    tip = panel.locator(".tip")
    assert not tip.is_visible()
    chart = panel.locator("svg").first
    box = chart.bounding_box()
    assert box is not None
    chart.hover(position={"x": box["width"] - 26, "y": box["height"] / 2})
    assert "t = 300" in tip.inner_text()
    for cell in runs.problems[0].cells:
        median = float(np.median(cell.curves[REALISED][:, -1]))
        row = tip.locator("tr", has_text=cell.label).locator("td").nth(1).inner_text()
        assert float(row.replace(",", "")) == pytest.approx(median, rel=6e-3)
    page.mouse.move(0, 0)
    assert not tip.is_visible()
    panel.locator("svg").first.focus()
    page.keyboard.press("End")
    assert "t = 300" in tip.inner_text()
    page.keyboard.press("ArrowLeft")
    before = runs.problems[0].cells[0].t[-2]
    assert f"t = {before}" in tip.inner_text()
    assert f"step {before}:" in page.locator("#spoken").inner_text()
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_the_line_can_be_the_mean_with_its_interval(page: Page, runs: Dataset) -> None:
    choose(page, "line", "mean")
    assert "95 % interval" in page.locator("#curve-caption").inner_text()
    page.locator('[data-problem="circle:4"] svg').first.focus()
    page.keyboard.press("End")
    for cell in runs.problems[0].cells:
        values = cell.curves[REALISED][:, -1]
        row = page.locator('[data-problem="circle:4"] .tip tr', has_text=cell.label)
        mean, ends = row.locator("td").nth(1).inner_text(), row.locator("td").nth(2).inner_text()
        assert value_of(mean) == pytest.approx(values.mean(), rel=6e-3)
        half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
        low, high = (value_of(text) for text in ends.split(" to "))
        # Three digits of each end are shown.
        assert high - low == pytest.approx(2 * half, abs=0.01 * max(abs(low), abs(high)))


def test_too_few_runs_are_said_in_words(page: Page) -> None:
    """Five seeds (conftest.py): no interval of a median, in the table and in what is saved."""
    for table in ("summary", "comparisons"):
        assert set(column(page, table, "95 % interval")) == {"n too small"}
        assert all(" to " in text for text in column(page, table, "Mean, 95 %"))
    with page.expect_download() as waiting:
        page.locator("#summary-tools").get_by_role("button", name="Save as CSV").click()
    rows = list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
    assert {row["95 % interval"] for row in rows} == {"n too small"}


def column(page: Page, table: str, head: str) -> list[str]:
    heads = page.locator(f"#{table}-table th").all_inner_texts()
    place = [text.strip(" ↕↑↓") for text in heads].index(head)
    cells = page.locator(f"#{table}-table tbody tr td:nth-child({place + 1})")
    return cells.all_inner_texts()


def value_of(text: str) -> float:
    return float(text.replace(",", "").replace("●", ""))


@pytest.mark.parametrize(
    ("table", "head"), [("summary", "Median"), ("comparisons", "Median difference")]
)
def test_tables_sort_by_numbers_both_ways(page: Page, table: str, head: str) -> None:
    found = page.locator(f"#{table}-table th", has_text=head).first
    assert found.get_attribute("aria-sort") == "none"
    found.get_by_role("button").click()
    values = [value_of(text) for text in column(page, table, head)]
    assert len(values) == 9
    assert values == sorted(values)
    assert len(set(values)) > 5
    found = page.locator(f"#{table}-table th", has_text=head).first
    assert found.get_attribute("aria-sort") == "ascending"
    page.keyboard.press("Enter")  # the button keeps the focus
    values = [value_of(text) for text in column(page, table, head)]
    assert values == sorted(values, reverse=True)
    found = page.locator(f"#{table}-table th", has_text=head).first
    assert found.get_attribute("aria-sort") == "descending"


def test_tables_sort_by_text_and_are_narrowed(page: Page, runs: Dataset) -> None:
    page.locator("#summary-table th", has_text="Learner").get_by_role("button").click()
    labels = column(page, "summary", "Learner")
    assert labels == sorted(labels, key=str.casefold)
    page.locator("#summary-tools select").nth(1).select_option(runs.problems[1].name)
    assert set(column(page, "summary", "Problem")) == {runs.problems[1].name}
    page.locator("#summary-tools select").nth(0).select_option(GAP)
    cells = {cell.label: cell for cell in runs.problems[1].cells}
    for label, median in zip(
        column(page, "summary", "Learner"), column(page, "summary", "Median"), strict=True
    ):
        exact = float(np.median(cells[label].ends(GAP)))
        assert value_of(median) == pytest.approx(exact, rel=6e-3)


def test_a_table_is_saved_as_csv(page: Page, runs: Dataset) -> None:
    with page.expect_download() as waiting:
        page.locator("#summary-tools").get_by_role("button", name="Save as CSV").click()
    rows = list(csv.DictReader(io.StringIO(waiting.value.path().read_text())))
    assert waiting.value.suggested_filename == "summary.csv"
    medians = {(row["Problem"], row["Learner"]): float(row["Median"]) for row in rows}
    assert medians == {
        (cell.problem, cell.label): float(np.median(cell.ends(REALISED))) for cell in runs.cells
    }


def scrub(page: Page, t: int) -> None:
    page.locator("#scrub").evaluate(
        "(slider, t) => { slider.value = t; slider.dispatchEvent(new Event('input')); }", t
    )


def show_cell(page: Page, problem: int, cell: int) -> None:
    page.select_option("#replay-problem", str(problem))
    page.wait_for_selector("#replay[data-ready]")
    page.select_option("#replay-cell", str(cell))
    page.wait_for_selector("#replay[data-ready]")


def number_shown(page: Page, term: str) -> str:
    return page.locator("#replay-numbers dt", has_text=term).locator("+ dd").inner_text()


def recording_of(store: Store, cell: CellCurves) -> Recording:
    assert cell.recorded is not None
    recording = store.recording(cell.recorded.key)
    assert recording is not None
    return recording


@pytest.mark.parametrize("place", range(3))
def test_the_replay_shows_what_is_stored(
    page: Page, runs: Dataset, open_store: Store, place: int
) -> None:
    problem: ProblemCells = runs.problems[place]
    cell: CellCurves = problem.cells[place]
    model, recording = open_store.model(cell.model), recording_of(open_store, cell)
    structure = model.structure
    drawn = network(structure)
    touched = touched_nodes(model, drawn)
    show_cell(page, place, place)
    for t in (0, 1, 7, 123, 299, 300):
        scrub(page, t)
        shown = page.locator("#network [data-node]").evaluate_all(
            "all => all.map(e => [e.dataset.values, e.dataset.touched, "
            "e.querySelector('.value').textContent])"
        )
        action = recording.actions[t].tolist() if t < 300 else []
        acted = {node for k, value in enumerate(action) for node in touched[k][value]}
        assert shown == [
            [
                ",".join(str(recording.states[t, i]) for i in node.variables),
                "true" if k in acted else "false",
                ", ".join(
                    structure.state_values[i][recording.states[t, i]] for i in node.variables
                ),
            ]
            for k, node in enumerate(drawn.nodes)
        ]
        assert number_shown(page, "Step") == f"{t} of 300"
        if t < 300:
            assert number_shown(page, "Action") == ", ".join(
                f"{structure.action_names[k]} = {structure.action_values[k][value]}"
                for k, value in enumerate(action)
            )
        regret = t * cell.runs[0].measures["gain"] - recording.rewards[:t].sum()
        assert value_of(number_shown(page, "Regret so far")) == pytest.approx(
            regret, rel=6e-3, abs=0.06
        )
        frame = int(np.searchsorted(recording.times, t, side="right")) - 1
        amounts = page.locator("#factors .amount").all_inner_texts()
        assert amounts == [
            f"{recording.uncertainty[frame, i]:.3f} · {recording.visited[frame, i]}/{rows} rows"
            for i, rows in enumerate(structure.transition_rows)
        ]
    assert page.locator("#replay-numbers dd").nth(1).inner_text() == "none: the run ends here"


def test_machines_are_coloured_by_state_and_the_action_is_seen(
    page: Page, runs: Dataset, open_store: Store
) -> None:
    recording = recording_of(open_store, runs.problems[0].cells[2])
    states, actions = recording.states, recording.actions
    show_cell(page, 0, 2)
    colours: dict[int, set[str]] = {0: set(), 1: set()}
    for t in range(40):
        scrub(page, t)
        fills = page.locator("#network [data-node] path:not(.arc)").evaluate_all(
            "all => all.map(e => e.getAttribute('fill'))"
        )
        for machine, fill in enumerate(fills):
            colours[int(states[t, machine])].add(fill)
        rings = page.locator("#network [data-node] .ring").evaluate_all(
            "all => all.map(e => Number(getComputedStyle(e).opacity))"
        )
        assert rings == [1.0 if machine == actions[t, 0] else 0.0 for machine in range(4)]
    assert len(colours[0]) == len(colours[1]) == 1
    assert colours[0] != colours[1]


def test_a_price_does_not_make_every_machine_acted_on(
    made: ModuleType, tmp_path: Path, opened: Opened, page_of: Callable[[Path], Path]
) -> None:
    from fmdp.problems import problem

    model = made.with_price(problem("circle:4"))
    made.make_store(tmp_path, problems=[model], learners=made.LEARNERS[2:3], steps=60)
    page = opened.open(page_of(tmp_path))
    page.wait_for_selector("#replay[data-ready]")
    with Store.open(tmp_path) as store:
        actions = recording_of(store, gather(store).cells[0]).actions[:, 0]
    assert len(set(actions[:40].tolist())) > 2
    for t in range(40):
        scrub(page, t)
        marked = page.locator("#network [data-node]").evaluate_all(
            "all => all.map(e => e.dataset.touched === 'true')"
        )
        assert marked == [node == actions[t] for node in range(4)] + [False]


def at_step(page: Page) -> int:
    return int(page.locator("#scrub").input_value())


def until(page: Page, condition: Callable[[], bool]) -> None:
    """Playwright's own waiting for an expression needs eval, which the page's policy forbids."""
    for _ in range(600):
        if condition():
            return
        page.wait_for_timeout(50)
    raise AssertionError("waited in vain")


def test_play_pause_and_single_steps(page: Page) -> None:
    play = page.locator("#play")
    page.select_option("#speed", "100")
    play.click()
    assert play.get_attribute("aria-label") == "Pause"
    until(page, lambda: at_step(page) >= 20)
    play.click()
    assert play.get_attribute("aria-label") == "Play"
    stopped = at_step(page)
    page.wait_for_timeout(150)
    assert at_step(page) == stopped
    page.get_by_role("button", name="One step forward").click()
    assert at_step(page) == stopped + 1
    page.get_by_role("button", name="One step back").click()
    page.get_by_role("button", name="One step back").click()
    assert at_step(page) == stopped - 1
    page.locator("#scrub").focus()
    page.keyboard.press("ArrowRight")
    assert number_shown(page, "Step") == f"{stopped} of 300"
    page.select_option("#speed", "1000")
    play.click()
    until(page, lambda: play.get_attribute("aria-label") == "Play")
    assert number_shown(page, "Step") == "300 of 300"  # it stops at the end
    play.click()
    page.wait_for_function(
        "Number(document.getElementById('scrub').value) < 300"
    )  # and begins anew
    play.click()


def test_the_theme_can_be_chosen(page: Page) -> None:
    def looks() -> tuple[str, str]:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        line = page.locator('[data-curve="PSRL"] path').first.get_attribute("stroke")
        return background, line or ""

    light = looks()
    choose(page, "theme", "dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    dark = looks()
    assert light[0] != dark[0]
    assert light[1] != dark[1]
    choose(page, "theme", "light")
    assert looks() == light


def test_failed_runs_and_the_spec_are_told(page: Page) -> None:
    notes = page.locator(".note li").all_inner_texts()
    assert notes[0] == "3 runs failed and are not in any number here."
    assert 'name = "made"' in page.locator("#spec pre").inner_text()
    assert page.locator("#spec li").count() == 3


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def test_names_from_the_store_are_text(
    opened: Opened, made: ModuleType, tmp_path: Path, page_of: Callable[[Path], Path]
) -> None:
    learners = [made.MadeLearner(EVIL, "psrl", 1.0), made.MadeLearner("b", "dorl", 2.0)]
    made.make_store(
        tmp_path, problems=["circle:3"], learners=learners, steps=30, name=EVIL, title=EVIL
    )
    page = opened.open(page_of(tmp_path))
    page.wait_for_selector("#replay[data-ready]")
    assert page.locator("h1").inner_text() == EVIL
    assert page.locator("#legend button").first.inner_text() == EVIL
    assert page.locator("img").count() == 0
    page.locator("#legend button").first.click()
    assert curves_shown(page, "circle:3") == ["b"]


def test_a_page_without_recordings(
    opened: Opened, made: ModuleType, tmp_path: Path, page_of: Callable[[Path], Path]
) -> None:
    made.make_store(
        tmp_path,
        problems=["jao:2"],
        learners=made.LEARNERS[:1],
        steps=20,
        gap=False,
        seeds=[0, 1],
        missing=[("PSRL", 0)],
    )
    page = opened.open(page_of(tmp_path))
    assert page.locator("#replay-facts").inner_text() == "No run of this problem was recorded."
    assert page.locator("#play").is_disabled()
    assert page.locator("#network [data-node]").count() == 2
    assert "Nothing to compare" in page.locator("#comparisons-table").inner_text()
