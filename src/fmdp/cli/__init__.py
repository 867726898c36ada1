"""The `fmdp` command: one file a command, each thin (parse, call, print)."""

from __future__ import annotations

from fmdp.cli.app import app, main

__all__ = ["app", "main"]
