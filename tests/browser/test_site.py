"""The site of `make docs` in a real browser: search, the first page, and every page on a phone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

WIDER_THAN_THE_PAGE = """() => {
    const isScrolled = (element) => {
        for (let box = element.parentElement; !box.matches(".content"); box = box.parentElement)
            if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return true;
        return false;
    };
    return [...document.querySelectorAll("article *")]
        .filter((element) => element.getBoundingClientRect().right > innerWidth + 1)
        .filter((element) => !isScrolled(element))
        .map((element) => element.outerHTML.slice(0, 80));
}"""


def page_of(browser: Browser, width: int) -> Page:
    page = browser.new_page(viewport={"width": width, "height": 800}, locale="en-GB")
    page.set_default_timeout(60_000)
    return page


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("maintenance", "fleet-tutorial.html"),
        ("restless bandit", "fleets.html"),
        ("constrained MDP", "limits.html"),
        ("average reward", "exact.html"),
        ("POMDP", "alternatives.html"),
    ],
)
def test_search_finds_what_people_type(
    browser: Browser, site: Path, words: str, expected: str
) -> None:
    page = page_of(browser, 1280)
    page.goto((site / "index.html").as_uri())
    page.get_by_placeholder("Search").first.fill(words)
    page.keyboard.press("Enter")
    page.get_by_text("Search finished").wait_for()
    hits = page.locator("#search-results ul.search > li > a")
    first = [(hits.nth(i).get_attribute("href") or "").partition("?")[0] for i in range(2)]
    assert expected in [hit.partition("#")[0] for hit in first], first
    page.close()


def test_the_first_page_shows_picture_command_and_example_at_once(
    browser: Browser, site: Path
) -> None:
    page = page_of(browser, 1280)
    page.goto((site / "index.html").as_uri())
    for shown in ("#fmdp img", "#fmdp .highlight-none", "#fmdp .highlight-python"):
        box = page.locator(shown).first.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] < 720, shown
    page.close()


def test_no_page_is_wider_than_a_phone(browser: Browser, site: Path) -> None:
    page = page_of(browser, 360)
    pages = sorted([*site.glob("*.html"), *(site / "reference").glob("*.html")])
    assert len(pages) > 50
    for path in pages:
        page.goto(path.as_uri(), wait_until="domcontentloaded")
        assert page.evaluate(WIDER_THAN_THE_PAGE) == [], path.name
    page.close()
