"""Pages of the docs that are run from top to bottom: their files, Python, commands and output.

A block that begins with "# name.py" or "# name.toml" is a file; blocks of one name are its parts.
Other Python is run, in one namespace; `text` is what the Python before it has printed; a block
without a language has commands, one a line, or a refusal ("fmdp: ..."), which is not run.
"""

from __future__ import annotations

import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from fmdp.cli import main

DOCS = Path(__file__).parents[1] / "docs"


@dataclass
class Page:
    """One page, and what came of running it."""

    name: str
    names: dict[str, Any] = field(default_factory=dict)
    """What its Python has defined."""
    commands: int = 0
    printed: int = 0
    files: dict[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return (DOCS / self.name).read_text(encoding="utf-8")

    @property
    def blocks(self) -> list[tuple[str, str]]:
        """(language, text) of every block."""
        return re.findall(r"^```(\w*)\n(.*?)^```$", self.text, flags=re.DOTALL | re.MULTILINE)

    def run(self, capsys: pytest.CaptureFixture[str]) -> None:
        """From top to bottom, in the current folder."""
        for language, text in self.blocks:
            named = re.match(r"# (\S+\.(?:py|toml))\n", text)
            if named:
                self._write(named[1], text)
            elif language == "python":
                capsys.readouterr()
                exec(compile(text, self.name, "exec"), self.names)
            elif language == "text":
                assert capsys.readouterr().out == text
                self.printed += 1
            elif language == "" and not text.startswith(("fmdp: ", ">>> ", "$ ")):
                self._command(text)

    def _write(self, name: str, text: str) -> None:
        self.files[name] = self.files.get(name, "") + text
        Path(name).write_text(self.files[name], encoding="utf-8")
        sys.modules.pop(name.removesuffix(".py"), None)  # a further part of a module

    def _command(self, text: str) -> None:
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "fmdp", line
            assert main(arguments) == 0, line
            self.commands += 1
