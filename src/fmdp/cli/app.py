"""The commands under one roof, and the one place where a failure becomes an exit status.

0 done; 1 finished, but not as asked; 2 bad input or a refusal, with one line on standard error;
130 interrupted, 143 by SIGTERM (signals.py). A traceback is a bug in fmdp, or in a learner, planner
or rule of the user's own, where it says which line; it is never the answer to bad input.

Nothing heavy is imported here or at the top of a command's file: `fmdp --help` has to answer
before NumPy could even be loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fmdp import __version__
from fmdp.cli.act import act
from fmdp.cli.compare import compare
from fmdp.cli.convert import convert
from fmdp.cli.doctor import doctor
from fmdp.cli.evaluate import evaluate
from fmdp.cli.export import export
from fmdp.cli.fit import fit
from fmdp.cli.learn import learn
from fmdp.cli.list import list_everything
from fmdp.cli.measure import measure
from fmdp.cli.output import ReaderGone, prepare_streams
from fmdp.cli.plan import plan
from fmdp.cli.report import report
from fmdp.cli.reproduce import reproduce
from fmdp.cli.serve import serve
from fmdp.cli.show import show
from fmdp.cli.signals import into_nothing, say
from fmdp.cli.sweep import sweep
from fmdp.errors import FmdpError, UnknownName, did_you_mean


class Commands(TyperGroup):
    """The commands, with a refusal in our own words for one that does not exist."""

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        name = arguments[0]
        if not name.startswith("-") and self.get_command(context, name) is None:
            known = self.list_commands(context)
            raise UnknownName(
                f'no command "{name}"; there are {", ".join(known)}{did_you_mean(name, known)}'
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


app = typer.Typer(
    name="fmdp",
    cls=Commands,
    help="Planning and learning in factored Markov decision processes with average reward.",
    pretty_exceptions_enable=False,
    # Plain help needs no Rich: half of the start-up time, and it reads well in a pipe.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        print(f"fmdp {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


app.command("list")(list_everything)
app.command("show")(show)
app.command("plan")(plan)
app.command("evaluate")(evaluate)
app.command("act")(act)
app.command("export")(export)
app.command("measure")(measure)
app.command("learn")(learn)
app.command("fit")(fit)
app.command("serve")(serve)
app.command("convert")(convert)
app.command("sweep")(sweep)
app.command("compare")(compare)
app.command("reproduce")(reproduce)
app.command("report")(report)
app.command("doctor")(doctor)


class Interrupted(Exception):
    """KeyboardInterrupt on its way through Typer, which would make a bare status of it."""

    def __init__(self, interrupt: KeyboardInterrupt) -> None:
        self.interrupt = interrupt


def run(arguments: Sequence[str] | None) -> int:
    """Run one command and return its exit status."""
    try:
        if not prepare_streams():
            return refuse("cannot write to standard output: it is closed")
        status = app(arguments, prog_name="fmdp", standalone_mode=False)
        sys.stdout.flush()
    except FmdpError as error:
        return refuse(str(error))
    except typer.TyperException as error:
        return refuse(usage_line(error))
    except MemoryError:
        return refuse("out of memory; a smaller --memory-limit refuses such work beforehand")
    except ReaderGone:
        return reader_has_gone()
    except SystemExit as error:
        # Typer itself ends the program when the reader of a pipe goes away.
        if isinstance(error.__context__, ReaderGone):
            return reader_has_gone()
        raise
    except Interrupted as error:
        raise error.interrupt from None
    except typer.Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else 0


def refuse(line: str) -> int:
    say(line)
    return 2


def reader_has_gone() -> int:
    """`fmdp list | head -1` is no failure; keep the interpreter from flushing into nothing."""
    into_nothing(sys.stdout.fileno())
    return 0


def usage_line(error: typer.TyperException) -> str:
    """A usage error of the parser as one line that says where to read on."""
    context = getattr(error, "ctx", None)
    command = "fmdp" if context is None else str(context.command_path)
    if context is not None and type(error).__name__ == "NoSuchOption":
        option = str(getattr(error, "option_name", ""))
        known = [name for parameter in context.command.params for name in parameter.opts]
        return f'{command} has no option "{option}"{did_you_mean(option, known)}'
    line = " ".join(error.format_message().split()).rstrip(".")
    return f"{line[:1].lower()}{line[1:]} (see {command} --help)"
