"""docs/unknown-scopes.md is true: its Python runs and finds the circle."""

from __future__ import annotations

from ...pages import Page


def test_the_page_runs() -> None:
    page = Page("unknown-scopes.md")
    page.run_python()
    for i in range(5):
        parents = {f"machine_{i}", f"machine_{(i - 1) % 5}", "restart"}
        found = page.names["edges"][f"machine_{i}"]
        assert {name for name, probability in found.items() if probability > 0.95} == parents
