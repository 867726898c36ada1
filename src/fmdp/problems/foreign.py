"""Formats of other programs: RDDL, PRISM, UMB, Bayesian networks.

A format is recognised by a prefix or suffix of a text. The modules that read and write it are in
`fmdp.interop` and may need an extra, so they are named here and imported on first use. Such a
module has two functions,

    read(text, folder) -> FactoredMDP     text as the user wrote it; files are searched in
                                          `folder` too, if given
    write(model, paths) -> omissions      paths as `Format.paths` returns them, checked to be
                                          writable; a list of what the format cannot express, or
                                          None

and, if its problems may have a horizon, horizon(text, folder) -> int | None. On invalid input they
raise subclasses of FmdpError only.
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
    """A foreign format.

    `forms` shows what a problem in it looks like, `place` is the module that reads and writes it.
    An id in it begins with `prefix` ("" if there are no ids), a file name ends in `suffix`. A model
    has `files` files, their paths joined by "+". With `settings` a file that is read may be
    followed by settings, as in MODEL.prism,key=value.
    """

    name: str
    forms: str
    place: str
    suffix: str
    prefix: str = ""
    files: int = 1
    settings: bool = False

    def is_id(self, text: str) -> bool:
        """Return True if a text is an id in this format, and not a path."""
        return bool(self.prefix) and text.startswith(self.prefix)

    def holds(self, text: str) -> bool:
        """Return True if a text is a problem, or the target of an export, in this format."""
        with_settings = self.settings and f"{self.suffix}," in text
        return self.is_id(text) or text.endswith(self.suffix) or with_settings

    def paths(self, text: str) -> tuple[Path, ...]:
        """Return the files of a text such as DOMAIN.rddl+INSTANCE.rddl."""
        return tuple(map(Path, re.split(rf"(?<={re.escape(self.suffix)})\+", text)))

    def read(self, text: str, folder: Path | None = None) -> FactoredMDP:
        """Return the model of a problem in this format."""
        model: FactoredMDP = self._module().read(text, folder)
        return model

    def write(self, model: FactoredMDP, paths: Sequence[Path]) -> list[str]:
        """Write a model in this format; return what the format cannot express."""
        return list(self._module().write(model, paths) or ())

    def horizon(self, text: str, folder: Path | None = None) -> int | None:
        """Return the number of steps of a problem; None if it does not say."""
        horizon = getattr(self._module(), "horizon", None)
        return None if horizon is None else horizon(text, folder)

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
        "MODEL.prism[,CONSTANT=VALUE...][,rewards=NAME|,min=NAME][,max-states=N]",
        "fmdp.interop.prism",
        suffix=".prism",
        settings=True,
    ),
    Format(
        "UMB",
        "MODEL.umb[,rewards=NAME|,min=NAME][,max-states=N]",
        "fmdp.interop.umb",
        suffix=".umb",
        settings=True,
    ),
    Format("pyAgrum network", "MODEL.gum", "fmdp.interop.dbn", suffix=".gum"),
    Format("BIFXML influence diagram", "MODEL.bifxml", "fmdp.interop.dbn", suffix=".bifxml"),
    Format("BIF network of transitions", "MODEL.bif", "fmdp.interop.dbn", suffix=".bif"),
)


def format_of(problem: object) -> Format | None:
    """Return the foreign format of a text or a path; None for anything else."""
    if not isinstance(problem, str | os.PathLike):
        return None
    text = os.fspath(problem)
    return next((known for known in FORMATS if isinstance(text, str) and known.holds(text)), None)
