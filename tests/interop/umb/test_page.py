"""The page about UMB files: its commands and its Python do what it says."""

from __future__ import annotations

import pytest

from ...pages import Page

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
pytest.importorskip("umbi", reason="the extra `umb` is not installed")


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("umb.md")
    page.run(capsys)
    assert (page.commands, page.printed) == (3, 1)
