"""Formulas of the site as MathML, made while it is built: no script, nothing fetched by a reader.

docutils turns TeX into MathML, but reads numbers greedily: `\\tfrac12 T` would be 12 over T where
TeX, and the repository browser, see one half of T; and an index after an accent would stand below
it. `plain` writes such arguments with braces first, and what docutils has no word for in words that
it has. Whatever it still cannot read is a warning, and so an error of the build.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

_log = logging.getLogger(__name__)

_LONG = 24
"""A formula in the text with more characters of TeX may be wider than a phone."""

_REWRITTEN = (
    (r"\\([td]?frac)\s*([0-9A-Za-z])", r"\\\1{\2}"),  # the numerator is one character
    (r"\\([td]?frac\{[^{}]*\})\s*([0-9A-Za-z])", r"\\\1{\2}"),  # and so is the denominator
    (r"([_^])([0-9])(?=[0-9])", r"\1{\2}"),
    (r"\\(tilde|hat|bar)\s*([A-Za-z]|\\[A-Za-z]+|\{[^{}]*\})(?=[_^])", r"{{}\\\1 \2}"),
    (r"\\dots(?![A-Za-z])", r"\\ldots"),
    (r"\\([Bb]igg?)([(\[])", r"\\\1l\2"),
    (r"\\([Bb]igg?)([)\]])", r"\\\1r\2"),
    (r"\\tag\{([^{}]*)\}", r"\\qquad (\1)"),
)


def plain(formula: str) -> str:
    """The formula in the TeX that docutils reads as TeX does.

    Parameters
    ----------
    formula
        TeX of a formula, without its dollar signs.
    """
    for pattern, replacement in _REWRITTEN:
        formula = re.sub(pattern, replacement, formula)
    return formula


def _written(writer: HTML5Translator, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    try:
        drawn = tex2mathml(plain(node.astext()), as_block=block).replace("'", "\N{PRIME}")
    except MathError as error:
        _log.warning("a formula that cannot become MathML: %s", error, location=node)
        raise nodes.SkipNode from None
    if block:
        drawn = f'<div class="formula">{drawn}</div>\n'
    elif len(node.astext()) > _LONG:
        drawn = f'<span class="long-formula">{drawn}</span>'
    writer.body.append(drawn)
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (_written, None), (_written, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
