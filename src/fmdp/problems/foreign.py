"""Problems that other programs' files describe: RDDL, PRISM, networks.

A format is told by how a text begins or ends. What reads and writes it lives above this room, in
`fmdp.interop`, and may need an extra: it is named here and imported when it is asked for. Such a
module has two functions,

    read(text, folder) -> FactoredMDP     text as the user wrote it; files are looked for in
                                          `folder` too, where one is given
    write(model, paths) -> what is left   paths as `Format.paths` has them, checked to be writable;
                         out, or None     a list of what the format has no place for

and, where its problems have horizons of their own, horizon(text, folder) -> int | None. They raise
nothing but children of FmdpError on what a user can cause.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fmdp.model.factored import FactoredMDP


@dataclass(frozen=True)
class Format:
    """A format that is not fmdp's own.

    Parameters
    ----------
    name
        What people call it.
    forms
        What a problem in it looks like.
    place
        The module that reads and writes it.
    suffix
        How the name of a file in it ends.
    prefix
        How an id begins that stands for a problem in it; "" where there is no such id.
    files
        How many files a model is written to, their paths joined by "+".
    settings
        Whether settings may stand behind the name of a file that is read, as in
        MODEL.prism,key=value.
    """

    name: str
    forms: str
    place: str
    suffix: str
    prefix: str = ""
    files: int = 1
    settings: bool = False

    def is_id(self, text: str) -> bool:
        """Whether a text is an id in this format, and no path."""
        return bool(self.prefix) and text.startswith(self.prefix)

    def holds(self, text: str) -> bool:
        """Whether a text is a problem, or where to write one, in this format."""
        told = self.settings and f"{self.suffix}," in text and "=" in text
        return self.is_id(text) or text.endswith(self.suffix) or told

    def paths(self, text: str) -> tuple[Path, ...]:
        """The files of a text such as DOMAIN.rddl+INSTANCE.rddl, as many as there are."""
        return tuple(map(Path, re.split(rf"(?<={re.escape(self.suffix)})\+", text)))

    def read(self, text: str, folder: Path | None = None) -> FactoredMDP:
        """The model of a problem in this format."""
        found: FactoredMDP = self._module().read(text, folder)
        return found

    def write(self, model: FactoredMDP, paths: Sequence[Path]) -> list[str]:
        """Write a model in this format; what the format has no place for."""
        return list(self._module().write(model, paths) or ())

    def horizon(self, text: str, folder: Path | None = None) -> int | None:
        """How many steps a problem is meant to last; None where it does not say."""
        asked = getattr(self._module(), "horizon", None)
        return None if asked is None else asked(text, folder)

    def _module(self) -> Any:
        return importlib.import_module(self.place)


FORMATS: tuple[Format, ...] = (
    Format(
        "RDDL",
        "rddl:NAME:INSTANCE or DOMAIN.rddl+INSTANCE.rddl",
        "fmdp.interop.rddl",
        suffix=".rddl",
        prefix="rddl:",
        files=2,
    ),
    Format(
        "PRISM",
        "MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME]",
        "fmdp.interop.prism",
        suffix=".prism",
        settings=True,
    ),
    Format("pyAgrum network", "MODEL.gum", "fmdp.interop.dbn", suffix=".gum"),
    Format("BIFXML influence diagram", "MODEL.bifxml", "fmdp.interop.dbn", suffix=".bifxml"),
    Format("BIF network of transitions", "MODEL.bif", "fmdp.interop.dbn", suffix=".bif"),
)


def format_of(problem: object) -> Format | None:
    """The format of a text or a path that is not fmdp's own; None for anything else."""
    if not isinstance(problem, str | os.PathLike):
        return None
    text = os.fspath(problem)
    return next((one for one in FORMATS if isinstance(text, str) and one.holds(text)), None)
