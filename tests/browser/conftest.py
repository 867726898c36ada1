"""A real Chromium over the report's page and the site. Without one the tests are skipped, with the
reason; with FMDP_BROWSER_REQUIRED set, as .ci/run does for root, a missing browser is a failure."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from fmdp.reports import figures
from fmdp.reports.report import write_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# As long as ids get: nothing may grow wider than a phone because of it.
LONG = "machines:3,topology=star,reward=mean"


def _without(what: str, remedy: str) -> NoReturn:
    """Skip a test, or fail it where browser tests are required."""
    if os.environ.get("FMDP_BROWSER_REQUIRED"):
        pytest.fail(f"browser tests cannot run: {what} ({remedy})")
    pytest.skip(f"browser tests skipped: {what} ({remedy})")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _without("Playwright is not installed", "the extra dev")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        _without("there is no chromium on PATH", "Debian: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="session")
def site() -> Path:
    """The site as it was built last; .ci/run builds it before the tests."""
    root = Path(__file__).parents[2]
    index = root / "build" / "docs" / "searchindex.js"
    if not index.exists():
        _without("there is no site", "make docs")
    newest = max(path.stat().st_mtime for path in (root / "docs").glob("*.*"))
    if index.stat().st_mtime < newest:
        _without("the site is older than its pages", "make docs")
    return index.parent


@pytest.fixture(scope="session")
def made() -> ModuleType:
    path = Path(__file__).parents[1] / "reports" / "made.py"
    spec = importlib.util.spec_from_file_location("fmdp_tests_made", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def store(made: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three kinds of problem: one action for all machines, one for each, and values beyond two."""
    folder: Path = made.make_store(
        tmp_path_factory.mktemp("browser"),
        problems=("circle:4", LONG, "riverswim:2"),
        learners=made.LEARNERS[:3],
        steps=300,
        failed=[("DORL", 4)],
    )
    return folder


def without_figures(directory: Path) -> Path:
    """The page alone: nothing here looks at the figures, which take longer than all the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "FORMATS", ())
        return write_report(directory).page


@pytest.fixture(scope="session")
def report_page(store: Path) -> Path:
    return without_figures(store)


@pytest.fixture
def page_of() -> Callable[[Path], Path]:
    return without_figures


class Opened:
    """A page, and everything that it complained about or asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.troubles: list[str] = []
        page.set_default_timeout(60_000)
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self._note("error", str(error)))
        page.on("dialog", lambda dialog: self._dialog(dialog))
        page.on("request", lambda request: self._request(request.url))

    def _note(self, kind: str, text: str) -> None:
        self.troubles.append(f"{kind}: {text}")

    def _dialog(self, dialog: Any) -> None:
        self._note("dialog", dialog.message)
        dialog.dismiss()

    def _request(self, url: str) -> None:
        if not url.startswith(("file:", "blob:")):
            self._note("request", url)

    def open(self, path: Path) -> Page:
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("html[data-theme]")
        return self.page


@pytest.fixture
def opened(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Opened]:
    """A page in a context of its own; `@pytest.mark.parametrize(..., indirect=True)` gives it a
    width and a colour scheme. Whatever the test did, the page must not have complained."""
    width, height, scheme = getattr(request, "param", (1280, 800, "light"))
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        locale="en-GB",
        reduced_motion="reduce",
    )
    found = Opened(context.new_page())
    yield found
    context.close()
    assert found.troubles == []


@pytest.fixture
def page(opened: Opened, report_page: Path) -> Page:
    """The report's page with its replay ready."""
    page = opened.open(report_page)
    page.wait_for_selector("#replay[data-ready]")
    return page
