"""Small HTML tables for notebooks; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Notebooks align all cells to the right, which suits no text.
_LEFT = ' style="text-align: left"'


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a caption, and a header row if `head` is not empty."""
    heads = "".join(f"<th{_LEFT}>{escape(word)}</th>" for word in head)
    top = f"<thead><tr>{heads}</tr></thead>" if head else ""
    body = "".join(
        f"<tr>{''.join(f'<td{_LEFT}>{escape(str(cell))}</td>' for cell in row)}</tr>"
        for row in rows
    )
    title = f"<caption{_LEFT}>{escape(caption)}</caption>"
    return f"<table>{title}{top}<tbody>{body}</tbody></table>"


def html_lines(text: str) -> str:
    """Return a text as a table: the first line as its caption, each other line as a row."""
    caption, *lines = text.splitlines() or [""]
    return html_table(caption, (), ((line.strip(),) for line in lines))
