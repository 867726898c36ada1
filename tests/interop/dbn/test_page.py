"""The page about networks: its Python prints what it says."""

from __future__ import annotations

import pytest

from ...pages import Page

pytestmark = [
    pytest.mark.peers,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
pytest.importorskip("pyagrum", reason="the extra `dbn` is not installed: its page is not run")


@pytest.mark.usefixtures("folder")
def test_the_page_from_top_to_bottom(capsys: pytest.CaptureFixture[str]) -> None:
    page = Page("dbn.md")
    page.run(capsys)
    assert page.printed == 2
