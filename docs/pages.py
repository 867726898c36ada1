"""What the site adds to the Markdown of the pages, so that the files stay plain Markdown.

* Names of the API in code font become links to the reference: `fmdp.plan(model)`, `Exact()`,
  `plan.explain`. A name that begins with `fmdp.` and does not exist is a warning, and so an error
  of the build.
* Columns of numbers are aligned to the right, and a unit stays beside its number.
* Long code in a table may be broken after punctuation.
* A picture that links to its own file opens it, instead of downloading it; one that is too wide for
  a phone has the class `wide`.
* A dollar sign in the text is a warning: it belongs to a formula that was not understood.
"""

from __future__ import annotations

import ast
import pkgutil
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

import fmdp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sphinx.application import Sphinx

_log = logging.getLogger(__name__)

_CLASS_OF = {
    "agent": "Agent",
    "model": "FactoredMDP",
    "plan": "Plan",
    "results": "Results",
    "structure": "Structure",
}
"""The pages call objects of these classes by these names."""

_PARENTHESES = re.compile(r"\([^()]*\)|\[[^][]*\]")
_NUMBER = re.compile(r"\d*\.?\d[\d,.]*(e-?\d+)?")
_BESIDE_NUMBERS = re.compile(
    r"\b(to|of|and|million|billion|steps|allowed|s|ms|min|h|kB|MB|GB)\b|µs|\\cdot|[%±+\-/^{},;.\s]"
)
_SPACE_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:%|µs|s|ms|min|kB|MB|GB|million)(?!\w))")
_MOST_NUMBERS = 3
"""A cell with more of them is a list, which is read from the left."""

_PIECES = re.compile(r".+?[,=(:./](?=.)|.+", re.DOTALL)
_LONG_CODE = 14
"""Shorter code in a table is never broken."""

_WIDE = 1.5
"""Wider pictures would have letters on a phone that nobody can read."""


def api_target(code: str) -> str | None:
    """Return the full name of what a piece of code names, or None if it is no name of the API.

    Parameters
    ----------
    code
        The text of a piece of code in a page.
    """
    name = _dotted_name(code)
    first, _, rest = name.partition(".")
    if first == "fmdp":
        return name if rest else None
    if first in _CLASS_OF:
        return f"fmdp.{_CLASS_OF[first]}.{rest}" if rest else None
    is_public_class = first in fmdp.__all__ and first[0].isupper()
    return f"fmdp.{name}" if is_public_class else None


def _dotted_name(code: str) -> str:
    """Return the name that the code is, or calls; empty if it is anything else."""
    try:
        node = ast.parse(code, mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    if isinstance(node, ast.Call):
        node = node.func
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def is_number(cell: str) -> bool:
    """Return whether a cell of a table is a number, or a few with their units.

    Parameters
    ----------
    cell
        The text of the cell; formulas are TeX.
    """
    outside = _PARENTHESES.sub("", cell)
    numbers = len(_NUMBER.findall(outside))
    rest = _BESIDE_NUMBERS.sub("", _NUMBER.sub("", outside))
    return 0 < numbers <= _MOST_NUMBERS and not rest


def is_number_column(cells: Sequence[str]) -> bool:
    """Return whether the cells below a heading are numbers; some may be empty or say "none".

    Parameters
    ----------
    cells
        The texts of the cells.
    """
    said = [cell for cell in cells if cell not in ("", "-", "none")]
    return bool(said) and all(is_number(cell) for cell in said)


class LinkNames(SphinxTransform):
    """Replace names of the API in code font by references to them."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Replace every name outside of headings and links."""
        for code in list(self.document.findall(nodes.literal)):
            target = api_target(code.astext())
            inside = isinstance(code.parent, nodes.reference | addnodes.pending_xref | nodes.title)
            if target is None or inside:
                continue
            if code.astext().startswith("fmdp.") and not _exists(target):
                _log.warning("there is no %s", target, location=code)
            reference = addnodes.pending_xref(
                "",
                refdoc=self.env.docname,
                refdomain="py",
                reftype="obj",
                reftarget=target,
                refexplicit=True,
                refwarn=False,
            )
            code.replace_self(reference)
            reference += code


def _exists(name: str) -> bool:
    try:
        pkgutil.resolve_name(name)
    except (AttributeError, ImportError):
        return False
    return True


class AlignNumbers(SphinxTransform):
    """Align columns of numbers to the right, with their headings."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Align the columns of every table."""
        for table in self.document.findall(nodes.tgroup):
            rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
            body = [list(row.findall(nodes.entry)) for row in next(table.findall(nodes.tbody))]
            for column in range(max(map(len, body), default=0)):
                cells = [row[column].astext().strip() for row in body if column < len(row)]
                if is_number_column(cells):
                    for row in rows:
                        if column < len(row):
                            row[column]["classes"] = ["text-right"]
                            _keep_units(row[column])


def _keep_units(cell: nodes.entry) -> None:
    for text in list(cell.findall(nodes.Text)):
        kept = _SPACE_BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", text)
        text.parent.replace(text, nodes.Text(kept))


class BreakCodeInTables(SphinxTransform):
    """Let a browser break long code in a table after punctuation, and nowhere else."""

    default_priority = 410
    """After the names in it have become links."""

    def apply(self, **_: Any) -> None:
        """Put a possible break between the pieces of each code."""
        for cell in self.document.findall(nodes.entry):
            for code in cell.findall(nodes.literal):
                pieces = _PIECES.findall(code.astext())
                if len(code.astext()) <= _LONG_CODE or len(pieces) == 1:
                    continue
                code.clear()
                for number, piece in enumerate(pieces):
                    if number:
                        code += nodes.raw("", "<wbr>", format="html")
                    code += nodes.Text(piece)


class OpenPictures(SphinxTransform):
    """Make `[![text](picture.png)](picture.png)` a link to the picture of the page."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Mark wide pictures, and replace every download of a picture that shows itself."""
        for picture in self.document.findall(nodes.image):
            if _ratio(Path(self.document["source"]).parent / picture["uri"]) > _WIDE:
                picture["classes"].append("wide")
        for download in list(self.document.findall(addnodes.download_reference)):
            pictures = list(download.findall(nodes.image))
            if [picture["uri"] for picture in pictures] == [download["reftarget"]]:
                name = download["reftarget"].rpartition("/")[2]
                link = nodes.reference("", "", *pictures, refuri=f"_images/{name}", internal=True)
                download.replace_self(link)


class CheckFormulas(SphinxTransform):
    """Warn about a dollar sign in the text: it belongs to a formula that was not understood."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Look at every text outside of code; a displayed formula needs lines of its own."""
        for text in self.document.findall(nodes.Text):
            inside = text.parent
            is_code = isinstance(inside, nodes.literal | nodes.FixedTextElement | nodes.comment)
            if "$" in text and not is_code and not isinstance(inside, nodes.math | nodes.raw):
                _log.warning("a formula that was not understood: %.60s", text, location=inside)


def _ratio(picture: Path) -> float:
    """Return the width of a PNG file divided by its height, which stand in its first bytes."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return float(width / height)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(LinkNames)
    app.add_transform(AlignNumbers)
    app.add_transform(BreakCodeInTables)
    app.add_transform(OpenPictures)
    app.add_transform(CheckFormulas)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
