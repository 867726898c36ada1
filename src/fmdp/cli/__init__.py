"""The `fmdp` command: one file a command, each thin (parse, call, print).

Here is only what has to be there before anything else is imported: signals are heard from the first
line on, since to import the commands takes longer than many a Ctrl-C.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmdp.cli.app import app as app

__all__ = ["app", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; without arguments, those of the program."""
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
        # Not a call, and so nothing that a signal could come into: from here on they are noted.
        signals.over = True
    except KeyboardInterrupt as interrupt:
        signals.over = True
        status = signals.say(interrupt)
    finally:
        signals.over = True
        signals.leave()
    return signals.status(status)


def __getattr__(name: str) -> Any:
    if name == "app":
        from fmdp.cli.app import app

        return app
    raise AttributeError(f"module 'fmdp.cli' has no attribute {name!r}")
