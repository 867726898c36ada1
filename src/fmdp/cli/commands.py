"""The table of commands; the file of a command is imported when that command runs.

Building all commands would take longer than planning for a small problem.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from fmdp._base.parameters import REQUIRED, Integer
from fmdp.cli.output import ReaderGone, reserve_output
from fmdp.errors import InvalidParameter, UnknownName, did_you_mean

COMMANDS = {
    "list": "list_everything",
    "show": "show",
    "plan": "plan",
    "evaluate": "evaluate",
    "inspect": "inspect",
    "whatif": "whatif",
    "pareto": "pareto",
    "act": "act",
    "export": "export",
    "measure": "measure",
    "learn": "learn",
    "fit": "fit",
    "serve": "serve",
    "convert": "convert",
    "sweep": "sweep",
    "compare": "compare",
    "reproduce": "reproduce",
    "report": "report",
    "forget": "forget",
    "doctor": "doctor",
}
"""The name of each command, which is also the name of its file, and the function in that file."""

# Plain help does not need Rich, which takes half of the start-up time.
APPEARANCE: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Interrupted(Exception):
    """Carrier of a KeyboardInterrupt through Typer, which would turn it into a bare status."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        self.interrupt = interrupt


class Commands(TyperGroup):
    """The group of all commands."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def get_params(self, ctx: Any) -> list[Any]:
        return without_pydantic(super().get_params(ctx))

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        name = arguments[0]
        if not name.startswith("-") and name not in COMMANDS:
            raise UnknownName(
                f'no command "{name}"; there are {", ".join(COMMANDS)}'
                f"{did_you_mean(name, COMMANDS)}"
            )
        return super().resolve_command(context, arguments)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise Interrupted(interrupt) from None
        except BrokenPipeError as error:
            if isinstance(error, ReaderGone):
                raise
            # Typer would take it for standard output and exit silently.
            raise RuntimeError("the connection to another process is broken") from error


class Command(TyperCommand):
    """A single command, whose usage errors know it, so that they can name its help."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return list(super().parse_args(ctx, args))
        except typer.TyperException as error:
            if getattr(error, "ctx", None) is None:
                error.ctx = ctx  # type: ignore[attr-defined]
            raise

    def invoke(self, ctx: Any) -> Any:
        if ctx.params.get("json") or self.name == "serve":
            reserve_output()
        return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        return without_pydantic(super().get_params(ctx))


@cache
def command(name: str) -> Any:
    """Import the file of a command and return the Typer command."""
    function = getattr(importlib.import_module(f"fmdp.cli.{name}"), COMMANDS[name])
    app = typer.Typer(add_completion=False, **APPEARANCE)
    app.command(name, cls=Command)(function)
    return get_command(app)


def without_pydantic(parameters: list[Any]) -> list[Any]:
    """Convert texts, paths and integers here instead of in Typer.

    Typer 0.29 builds a Pydantic validator for every parameter of a command, given or not, which
    adds 50 ms to `fmdp plan --help` and 100 ms to `fmdp plan`. Everything else, and other versions
    of Typer, use Typer's own conversion.
    """
    for parameter in parameters:
        if "process_value" not in vars(parameter):
            parameter.process_value = partial(_process, parameter, parameter.process_value)
    return parameters


def _process(parameter: Any, by_typer: Callable[..., Any], context: Any, value: Any) -> Any:
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if value is None and not parameter.required:
        converted: Any = () if parameter.multiple or parameter.nargs != 1 else None
    elif kind in (str, Path, int) and isinstance(value, str):
        converted = _convert(parameter, kind, context, value)
    elif kind == list[str] and value:
        converted = list(value)
    else:
        return by_typer(context, value)
    callback = parameter.callback
    return converted if callback is None else callback(context, parameter, converted)


def _convert(parameter: Any, kind: type, context: Any, value: str) -> Any:
    flag = parameter.opts[0]
    name = flag if flag.startswith("-") else parameter.metavar
    if kind is Path and value == "":
        raise InvalidParameter(f"{name} must be a path; got ''")
    if kind is int:
        low = getattr(parameter, "min", None)
        declared = Integer(name, REQUIRED, "", low=-math.inf if low is None else low)
        return declared.parse(value, context.command_path)
    return kind(value)
