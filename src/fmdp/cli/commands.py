"""The commands by name; a command's file is imported when that command is asked for.

Making all seventeen takes longer than planning for a small problem, and so does Pydantic, by which
Typer converts the value of every parameter. Nearly all parameters here are texts, which the
declarations of parameters.py read later: those are passed on as they are.
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
from fmdp.cli.output import ReaderGone
from fmdp.errors import InvalidParameter, UnknownName, did_you_mean

COMMANDS = {
    "list": "list_everything",
    "show": "show",
    "plan": "plan",
    "evaluate": "evaluate",
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
"""The name of a command, which is its file's, and the function in that file."""

# Plain help needs no Rich: half of the start-up time, and it reads well in a pipe.
LOOKS: dict[str, Any] = {
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


class Interrupted(Exception):
    """KeyboardInterrupt on its way through Typer, which would make a bare status of it."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        self.interrupt = interrupt


class Commands(TyperGroup):
    """All of them, with a refusal in our own words for one that does not exist."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return command(cmd_name) if cmd_name in COMMANDS else None

    def get_params(self, ctx: Any) -> list[Any]:
        return [_with_texts(one) for one in super().get_params(ctx)]

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
            # Typer takes any broken pipe for standard output, and ends without a word.
            raise RuntimeError("a process that fmdp talks to has gone") from error


class Command(TyperCommand):
    """One command, whose texts are taken as they are."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [_with_texts(one) for one in super().get_params(ctx)]


@cache
def command(name: str) -> Any:
    """The command of this name, from its file."""
    function = getattr(importlib.import_module(f"fmdp.cli.{name}"), COMMANDS[name])
    alone = typer.Typer(add_completion=False, **LOOKS)
    alone.command(name, cls=Command)(function)
    return get_command(alone)


def _name(parameter: Any) -> str:
    """ "--out", or "DIR" of an argument."""
    return str(parameter.opts[0] if parameter.opts[0].startswith("-") else parameter.metavar)


def _with_texts(parameter: Any) -> Any:
    """What was not given is not converted, nor is what is a text, a path or a list of texts, and
    whole numbers are read as everywhere else; what is missing is Typer's, in its own words."""
    if "process_value" not in vars(parameter):
        parameter.process_value = partial(_processed, parameter, parameter.process_value)
    return parameter


def _processed(parameter: Any, convert: Callable[..., Any], context: Any, value: Any) -> Any:
    several = parameter.multiple or parameter.nargs != 1
    # Only a Typer that converts by Pydantic says so; with another one every text is converted.
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    if value is None and not parameter.required:
        taken: Any = () if several else None
    elif kind is Path and value == "":
        raise InvalidParameter(f"{_name(parameter)} must be a path; got ''")
    elif kind in (str, Path) and isinstance(value, str):
        taken = kind(value)
    elif kind is int and isinstance(value, str):
        low, high = (getattr(parameter, end, None) for end in ("min", "max"))
        declared = Integer(
            _name(parameter),
            REQUIRED,
            "",
            low=-math.inf if low is None else low,
            high=math.inf if high is None else high,
        )
        taken = declared.parse(value, context.command_path)
    elif kind == list[str] and value and all(isinstance(one, str) for one in value):
        taken = list(value)
    else:
        return convert(context, value)
    return taken if parameter.callback is None else parameter.callback(context, parameter, taken)
