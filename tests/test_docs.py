"""The pages: every link leads somewhere, every picture is there, every page can be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fmdp

from .pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    for not_prose in (r"```.*?```", r"\$\$.*?\$\$", r"\$[^$\n]*\$", r"`[^`\n]*`"):
        text = re.sub(not_prose, "", text, flags=re.DOTALL)
    return [link for link in LINK.findall(text) if "://" not in link]


def anchors(page: Path) -> set[str]:
    """As GitHub makes them from headings."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name}: no heading for {link}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_fits_the_page(page: Path) -> None:
    """A hundred columns are what the site shows without scrolling (docs/static/site.css)."""
    for language, text in Page(str(page)).blocks:
        if language in ("python", "toml"):
            assert [line for line in text.splitlines() if len(line) > 100] == []


def test_the_python_of_the_page_about_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    Page("python.md").run_python()
    assert capsys.readouterr().out == "True True\n"


@pytest.mark.usefixtures("folder")
def test_the_first_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("index.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (1, 1)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("name", "commands", "printed"),
    [
        pytest.param("choosing.md", 1, 1, marks=pytest.mark.slow),
        ("counts.md", 2, 2),
        pytest.param("fleet-tutorial.md", 1, 6, marks=pytest.mark.slow),
        ("fleets.md", 2, 1),
        ("install.md", 1, 0),
        ("limits.md", 2, 1),
        pytest.param("plan-a-network.md", 7, 5, marks=pytest.mark.slow),
    ],
)
def test_a_page_from_top_to_bottom(
    name: str, commands: int, printed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Page(name)
    page.run(capsys)
    assert (page.commands, page.printed) == (commands, printed)


@pytest.mark.usefixtures("folder")
def test_the_python_of_the_page_about_reports_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """On a small store in the place of the example's."""
    fmdp.sweep("jao:1", "random", seeds=2, steps=20, out="out/sweep", workers=0, progress=None)
    Page("reports.md").run_python()
    assert "jao:1 random" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_page_about_clusters_from_top_to_bottom(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("distributed", reason="the extra `dask` is not installed")
    monkeypatch.setenv("FMDP_THREADS", "1")  # a worker in this process sets it, for good
    page = Page("cluster.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (2, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_twenty_minutes_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("twenty-minutes.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (5, 6)
    assert Path("runs/report/index.html").exists()
    assert page.names["agent"].steps == 200


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_page_about_comparing_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("compare.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (2, 1)
    assert Path("compared/report/standings.png").exists()


def test_every_page_with_python_is_run_by_some_test() -> None:
    """By name: whoever adds a page with code says in a test that it is run."""
    tests = "".join(
        path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("*.py")
    )
    idle = [
        page.name
        for page in (ROOT / "docs").glob("*.md")
        if Page(page.name).python and f'"{page.name}"' not in tests
    ]
    assert idle == []


def test_every_page_is_linked_from_another() -> None:
    reached = {
        (page.parent / link.partition("#")[0]).resolve() for page in PAGES for link in links(page)
    }
    on_the_site_alone = {ROOT / "docs" / name for name in ("changes.md", "contributing.md")}
    orphans = [page.name for page in PAGES[1:] if page.resolve() not in reached | on_the_site_alone]
    assert not orphans, f"no page links to {orphans}"
