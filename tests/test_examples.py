"""The examples run as they stand, draw what the gallery shows, and print what it says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from .pages import DOCS, Page, steady

EXAMPLES = DOCS.parent / "examples"
DRAWING = sorted(path for path in EXAMPLES.glob("*.py") if "def main(picture" in path.read_text())
GALLERY = Page("gallery.md")


@pytest.mark.parametrize("example", DRAWING, ids=lambda path: path.stem)
def test_an_example_draws_its_picture_and_prints_what_the_gallery_says(
    example: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    picture = tmp_path / "picture.png"
    monkeypatch.setattr("sys.argv", [str(example), str(picture)])
    runpy.run_path(str(example), run_name="__main__")
    matplotlib.pyplot.close("all")
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size > 10_000
    printed = capsys.readouterr().out
    shown = re.search(
        rf"examples/{example.name}\).*?^```text\n(.*?)^```",
        GALLERY.text,
        flags=re.DOTALL | re.MULTILINE,
    )
    assert shown is not None
    assert steady(printed) == steady(shown[1])


def test_every_example_that_draws_is_in_the_gallery() -> None:
    assert len(DRAWING) >= 5
    for example in DRAWING:
        assert f"figures/gallery-{example.stem.replace('_', '-')}.png" in GALLERY.text
        assert f"{{literalinclude}} ../examples/{example.name}" in GALLERY.text
