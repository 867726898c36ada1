"""The page of `fmdp inspect` in a real browser: nothing is loaded, blocked, or wider than it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import fmdp
from fmdp.reports.plan_page import plan_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page(browser: Browser, tmp_path: Path, width: int, scheme: str) -> None:
    plan = fmdp.plan(fmdp.problem("circle:3"))
    summary = plan.summary(events={"<b>down</b>": "machine_0=down"})
    path = tmp_path / "inspect.html"
    path.write_text(plan_page(summary, "circle:3 <script>alert(1)</script>"))
    page = browser.new_page(
        viewport={"width": width, "height": 800},
        color_scheme=scheme,  # type: ignore[arg-type]
    )
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert said == []
    assert asked == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg.network path, svg.network circle").count() >= 3
    assert page.get_by_text("<b>down</b>").count() == 1
    bars = page.locator("#states .bar svg").first.bounding_box()
    assert bars is not None
    assert bars["width"] > 40
    page.close()
