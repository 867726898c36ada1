"""The site: the pages of this folder and a reference made of the docstrings (`make docs`).

Nothing is fetched, neither by the build nor by a reader: there is no inventory of other projects,
and formulas become MathML while the site is built, which browsers draw by themselves. Every
warning is an error (-W), a link that leads nowhere is one (-n), and so is a formula that cannot
be read.
"""

from __future__ import annotations

import enum
import inspect
import re
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
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["figures"]
nitpicky = True
smartquotes_action = "D"
"""Dashes alone: quotes and dots in docstrings are those of code."""

# ---- pages: Markdown that reads the same in a repository browser ---------------------------------

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
highlight_language = "none"
"""A block without a language is what a terminal shows."""

# ---- reference: from docstrings, with the types of the signatures --------------------------------

napoleon_google_docstring = False
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_default_options = {"members": True, "special-members": "__call__"}
autodoc_class_signature = "mixed"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
default_role = "py:obj"
"""`name` in a docstring is a link where there is such a name, and code where there is none."""
nitpick_ignore_regex = [
    ("py:obj", r".*"),
    # What a public signature names and is itself not public is told by name alone.
    ("py:class", r"fmdp\.(learning|planning|elimination)\..*"),
    ("py:class", r"\w+"),
    # Other projects, whose inventories would have to be fetched.
    ("py:.*", r"(numpy|np|npt|scipy|hypothesis|st|collections|os|enum|typing|fractions)\..*"),
]

html_theme = "furo"
html_title = f"fmdp {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False


def _public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Annotations name a class by its home (fmdp.planning.plan.Plan); readers know fmdp.Plan."""
    target = node.get("reftarget", "")
    home, _, name = target.rpartition(".")
    if node.get("refdomain") != "py" or not home.startswith("fmdp.") or name not in fmdp.__all__:
        return None
    python = env.domains.python_domain
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", f"fmdp.{name}", node, shown)


_PAGE_OF = {"../CHANGELOG.md": "changes.md", "../README.md": "index.md"}


def _links_out_of_docs(app: Sphinx, page: str, source: list[str]) -> None:
    """Pages link to the files of the repository; what the site has as a page is linked as one."""
    for file, its_page in _PAGE_OF.items():
        source[0] = source[0].replace(f"]({file})", f"]({its_page})")


_BACKTICKS_OR_BAR = re.compile(r"(`[^`]*`)|\|")
_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=^[A-Z]\w*\n-+$|\Z)", re.M | re.S)
_ATTRIBUTE = re.compile(
    r"^(\.\. attribute:: \w+\n)((?:(?!   :type:|\.\. ).*\n)*)(   :type: .*\n)", re.MULTILINE
)
_RETURNS = re.compile(r"^:(returns?|rtype)\b", re.MULTILINE)
_as_written: dict[str, list[str]] = {}


def _annotations(obj: object) -> dict[str, str]:
    """The annotation of every argument as it stands in the source: `NDArray[np.float64]`, not
    what NumPy makes of it."""
    try:
        arguments = inspect.signature(obj).parameters  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return {}
    return {
        name: one.annotation for name, one in arguments.items() if isinstance(one.annotation, str)
    }


def _before_napoleon(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Types of arguments come from the signature; |S_i| is a number and no substitution."""
    types = _annotations(obj)

    def typed(section: re.Match[str]) -> str:
        return re.sub(
            r"^\*{0,2}(\w+)$",
            lambda found: f"{found[0]} : {types[found[1]]}" if found[1] in types else found[0],
            section[0],
            flags=re.M,
        )

    escaped = [
        line
        if line.lstrip().startswith(">>>")
        else _BACKTICKS_OR_BAR.sub(lambda found: found[1] or r"\|", line)
        for line in lines
    ]
    lines[:] = _SECTION.sub(typed, "\n".join(escaped)).split("\n")
    _as_written[name] = list(lines)


def _after_napoleon(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Undo what napoleon reads into attributes, and add what the source knows besides."""
    if what in ("attribute", "property"):
        # What stands before a colon is no type here: types are those of the annotations.
        lines[:] = _as_written[name]
    elif isinstance(obj, type) and issubclass(obj, enum.Enum):
        for member in obj:
            told = getattr(member, "message", "")
            lines += ["", f".. attribute:: {member.name}", f"   :value: {member.value!r}", ""]
            lines += [f"   {told}", ""]
    elif what == "class":
        # The type of an attribute stands beside its name, not below its text.
        lines[:] = _ATTRIBUTE.sub(r"\1\3\2", "\n".join(lines)).split("\n")
    elif callable(obj) and not isinstance(obj, type):
        answer = inspect.signature(obj).return_annotation
        is_told = _RETURNS.search("\n".join(lines)) is not None
        if isinstance(answer, str) and answer != "None" and not is_told:
            raising = (n for n, line in enumerate(lines) if line.startswith(":raises"))
            place = next(raising, len(lines))
            lines[place:place] = ["", f":rtype: {answer}"]


def _signature(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    answer: str | None,
) -> tuple[str | None, str | None] | None:
    """What users do not make is shown without one: records that they read, enumerations and
    protocols."""
    if not isinstance(obj, type):
        return None
    is_record = "\nAttributes\n---" in inspect.cleandoc(obj.__doc__ or "")
    is_made = not (is_record or issubclass(obj, enum.Enum) or getattr(obj, "_is_protocol", False))
    return None if is_made else ("", "")


def setup(app: Sphinx) -> None:
    app.connect("source-read", _links_out_of_docs)
    app.connect("autodoc-process-docstring", _before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
    app.connect("autodoc-process-signature", _signature)
    app.connect("missing-reference", _public_name)
