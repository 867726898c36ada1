"""The site: the pages of this folder and a reference made of the docstrings (`make docs`).

Nothing is fetched, neither by the build nor by a reader: there is no inventory of other projects,
and formulas become MathML while the site is built, which browsers draw by themselves. Every
warning is an error (-W): a broken link, a formula that cannot be read, a docstring that is not
valid reStructuredText, a page that is in no table of contents.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import fmdp

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx
    from sphinx.environment import BuildEnvironment

sys.path.insert(0, str(Path(__file__).parent))

project = "fmdp"
author = "fmdp developers"
project_copyright = author
version = release = fmdp.__version__

extensions = [
    "docstrings",
    "mathml",
    "myst_parser",
    "pages",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["figures"]
nitpicky = True
smartquotes = False
"""Quotes, dots and double hyphens in docstrings are code and stay as they are."""

# ---- pages: Markdown that reads the same in a repository browser ---------------------------------

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
highlight_language = "none"
"""A block without a language shows a terminal."""

# ---- reference: from docstrings, with the types of the signatures --------------------------------

napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_default_options = {"members": True, "special-members": "__call__"}
autodoc_class_signature = "mixed"
autodoc_inherit_docstrings = False
"""A member that is overridden without a docstring is documented in the base class only."""
autodoc_preserve_defaults = True
autodoc_type_aliases = {name: name for name in ("FloatArray", "Floats", "Index", "Tables")}
"""Shown by these names, as in the source, not as NumPy expands them."""
python_use_unqualified_type_names = True
default_role = "py:obj"
"""`name` in a docstring is a link if there is such a name, and code otherwise."""
nitpick_ignore_regex = [
    ("py:obj", r".*"),
    # A private class in a public signature is shown by name, without a link.
    ("py:class", r"fmdp\.(learning|planning|elimination|parameters|model\.(naming|entries))\..*"),
    ("py:class", r"\w+"),
    # Other projects, whose inventories would have to be fetched.
    (
        "py:.*",
        r"(numpy|np|npt|pd|pyagrum|gymnasium|scipy|hypothesis|st|collections|os|enum|typing|fractions)\..*",
    ),
]

html_theme = "furo"
html_title = f"fmdp {release}"
html_static_path = ["static"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False


def _public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Link the name of a class in its own module (fmdp.planning.plan.Plan) to its public name."""
    target = node.get("reftarget", "")
    home, _, name = target.rpartition(".")
    if node.get("refdomain") != "py" or not home.startswith("fmdp.") or name not in fmdp.__all__:
        return None
    python = env.domains.python_domain
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"fmdp.{name}", node, shown)


_PAGE_OF = {
    "../CHANGELOG.md": "changes.md",
    "../CONTRIBUTING.md": "contributing.md",
    "../README.md": "index.md",
}


def _links_out_of_docs(app: Sphinx, page: str, source: list[str]) -> None:
    """Replace links to files of the repository by links to their pages of the site."""
    for file, its_page in _PAGE_OF.items():
        source[0] = source[0].replace(f"]({file})", f"]({its_page})")


def setup(app: Sphinx) -> None:
    app.connect("source-read", _links_out_of_docs)
    app.connect("missing-reference", _public_name)
