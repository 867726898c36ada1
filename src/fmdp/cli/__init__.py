"""The `fmdp` command line: one thin file per command (parse, call, print).

This file installs the signal handlers before it imports anything else: Ctrl-C may arrive while the
commands are being imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmdp.cli.app import app as app

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; `arguments` defaults to those of the program."""
    try:
        from fmdp.cli.signals import Signals

        signals = Signals(whole_program=arguments is None)
        signals.listen()
    except KeyboardInterrupt:
        print("fmdp: interrupted", file=sys.stderr)
        return 130
    try:
        from fmdp.cli.app import run

        status = run(arguments)
        # An assignment, unlike a call, cannot be interrupted; from here on signals are ignored.
        signals.over = True
        if signals.came and status == 0:
            status = signals.report()
    except KeyboardInterrupt as interrupt:
        signals.over = True
        status = signals.report(interrupt)
    finally:
        signals.over = True
        signals.leave()
    return signals.status(status)


def __getattr__(name: str) -> Any:
    if name == "app":
        from fmdp.cli.app import app

        return app
    raise AttributeError(f"module 'fmdp.cli' has no attribute {name!r}")
