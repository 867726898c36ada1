"""Small HTML tables for notebooks; all text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a caption, and a header row if `head` is not empty."""
    heads = "".join(f"<th>{escape(word)}</th>" for word in head)
    top = f"<thead><tr>{heads}</tr></thead>" if head else ""
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><caption>{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>"


def html_lines(text: str) -> str:
    """Return a text as a table: the first line as its caption, each other line as a row."""
    caption, *lines = text.splitlines() or [""]
    return html_table(caption, (), ((line.strip(),) for line in lines))
