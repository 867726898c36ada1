"""From a docstring to its entry in the reference: numpydoc sections, types from the signature.

Docstrings are written for `help()` first. The types of arguments are put in here, as the source
spells them, whether or not the section has one in words; defaults stand in the signature. napoleon
turns sections into fields; what it gets wrong for this project is mended before and after it.
"""

from __future__ import annotations

import enum
import inspect
import re
from typing import TYPE_CHECKING

from sphinx import addnodes
from sphinx.transforms import SphinxTransform

if TYPE_CHECKING:
    from collections.abc import Callable

    from sphinx.application import Sphinx

_BACKTICKS_OR_BAR = re.compile(r"(`[^`]*`)|\|")
_SECTION = re.compile(r"^(Parameters|Attributes)\n-+\n(.*?)(?=^[A-Z]\w*\n-+$|\Z)", re.M | re.S)
_ATTRIBUTE = re.compile(
    r"^(\.\. attribute:: \w+\n)((?:(?!   :type:|\.\. ).*\n)*)(   :type: .*\n)", re.MULTILINE
)
_NAMES = re.compile(r"^(\*{0,2}\w+(?:, \w+)*)(?: : .*)?$", re.MULTILINE)
_UNDERSCORE_AT_END = re.compile(r"(?<=\w)_(?!\w)")
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


def _spelled(annotation: str) -> str:
    """An annotation as text: `np.bool_` is no reference of reStructuredText."""
    return _UNDERSCORE_AT_END.sub(r"\\_", annotation)


def _with_type(found: re.Match[str], types: dict[str, str], spelled: Callable[[str], str]) -> str:
    """The names of an entry, one or several that share a text, and their type if it is one."""
    told = {types.get(name) for name in found[1].lstrip("*").split(", ")}
    kind = told.pop()
    return found[0] if told or kind is None else f"{found[1]} : {spelled(kind)}"


def _before_napoleon(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Types of arguments come from the signature; |S_i| is a number and no substitution."""
    types = _annotations(obj)

    def typed(section: re.Match[str]) -> str:
        # The type of an attribute is an option of its directive, that of an argument is text.
        spelled = _spelled if section[1] == "Parameters" else str
        return _NAMES.sub(lambda found: _with_type(found, types, spelled), section[0])

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
    if what in ("attribute", "data", "property"):
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
            lines[place:place] = ["", f":rtype: {_spelled(answer)}"]


class KeepTypingAny(SphinxTransform):
    """Let `Any` in an annotation be Python's, where Sphinx would find fmdp.Any."""

    default_priority = 400

    def apply(self, **_: object) -> None:
        """Give every such reference its full name, which leads nowhere and is shown as it was."""
        for reference in self.document.findall(addnodes.pending_xref):
            if reference.get("reftarget") == "Any":
                reference["reftarget"] = "typing.Any"


_OF_EVERY_CLASS = ("noun", "parameters", "registry")
"""What classes of settings have for fmdp's own use, each with other values."""


def _is_skipped(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """What is not shown though it is public and documented; None leaves it to autodoc."""
    return True if what == "class" and name in _OF_EVERY_CLASS else None


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


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("sphinx.ext.napoleon")  # whose own handler has priority 500
    app.connect("autodoc-process-docstring", _before_napoleon, priority=400)
    app.connect("autodoc-process-docstring", _after_napoleon, priority=600)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _is_skipped)
    app.add_transform(KeepTypingAny)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
