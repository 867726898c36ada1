"""Pages of the docs that are run from top to bottom: their files, Python, commands and output.

A block that begins with "# name.py" or "# name.toml" is a file; blocks of one name are its parts.
Other Python is run, in one namespace; `text` is what the Python before it has printed, but for
times and digits that depend on the machine; a block without a language has commands, one a line, or
a refusal ("fmdp: ..."), which is not run. Of pages with other blocks the Python alone can be run.
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
_FILE = re.compile(r"# (\S+\.(?:py|toml))\n")
_DIGITS = re.compile(r"\d+\.\d{7,}")
_TIME = re.compile(r"\b[\d.,]+ (ms|s|min)\b")


def steady(text: str) -> str:
    """What a page prints, without what differs from one machine or run to another."""
    return _TIME.sub("some time", _DIGITS.sub(lambda found: f"{float(found[0]):.6f}", text))


@dataclass
class Page:
    """One page of docs, or "../README.md", and what came of running it."""

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
        """(language, text) of every block; the language of a directive of the site has braces."""
        return re.findall(r"^```([^`\n]*)\n(.*?)^```$", self.text, flags=re.DOTALL | re.MULTILINE)

    @property
    def python(self) -> list[str]:
        """The Python of the page but for that of files."""
        return [
            text for language, text in self.blocks if language == "python" and not _FILE.match(text)
        ]

    def run_python(self) -> None:
        """The Python alone, from top to bottom, in the current folder."""
        for text in self.python:
            self._execute(text)

    def run(self, capsys: pytest.CaptureFixture[str]) -> None:
        """From top to bottom, in the current folder."""
        for language, text in self.blocks:
            named = _FILE.match(text)
            if named:
                self._write(named[1], text)
            elif language == "python":
                capsys.readouterr()
                self._execute(text)
            elif language == "text":
                printed = capsys.readouterr().out
                assert steady(printed) == steady(text), f"{self.name} prints:\n{printed}"
                self.printed += 1
            elif language == "" and not text.startswith(("fmdp: ", ">>> ", "$ ")):
                self._command(text)

    def _execute(self, text: str) -> None:
        exec(compile(text, self.name, "exec"), self.names)

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
