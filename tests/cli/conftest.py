from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fmdp.cli import main


@dataclass(frozen=True)
class Ran:
    """One run of the command line in this process."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output, and nothing beside it."""
        return json.loads(self.out, parse_constant=_no_such_constant)

    @property
    def refusal(self) -> str:
        """The one line of a refusal; fails if it is anything else than that."""
        assert self.status == 2
        assert self.err.startswith("fmdp: ")
        assert self.err.endswith("\n")
        assert self.err.count("\n") == 1
        return self.err.removeprefix("fmdp: ").rstrip("\n")


def _no_such_constant(name: str) -> None:
    raise AssertionError(f"JSON has no {name}")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine with nothing compiled yet would say so on standard error."""
    monkeypatch.setattr("fmdp._base.progress._SAID_AFTER_SECONDS", 1e6)
    monkeypatch.setattr("fmdp.cli.progress._FIRST_LINE_AFTER_SECONDS", 1e6)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs the command line the way the installed program does."""

    def runner(*arguments: str) -> Ran:
        status = main(arguments)
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    return runner
