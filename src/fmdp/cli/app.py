"""The Typer application, and the only place where a failure becomes an exit status.

0: done; 1: finished, but not as requested; 2: bad input or a refusal, with one line on standard
error; 130: interrupted, 143: terminated (signals.py). A traceback is a bug in fmdp or in a
third-party learner, planner or rule, never the answer to bad input.

Neither this file nor the top of a command's file imports anything heavy: `fmdp --help` takes less
time than importing NumPy. The commands are in commands.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from fmdp import __version__
from fmdp.cli.commands import APPEARANCE, Commands, Interrupted
from fmdp.cli.output import ReaderGone, prepare_streams, release_output, results
from fmdp.cli.signals import discard_output, say
from fmdp.errors import FmdpError, did_you_mean

app = typer.Typer(
    name="fmdp",
    cls=Commands,
    help="Planning and learning in factored Markov decision processes with average reward. "
    "`fmdp list` names the problems; `fmdp plan circle:4` is a first plan.",
    **APPEARANCE,
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"fmdp {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())


def run(arguments: Sequence[str] | None) -> int:
    """Run one command and return its exit status."""
    try:
        if not prepare_streams():
            return refuse("cannot write to standard output: it is closed")
        status = app(arguments, prog_name="fmdp", standalone_mode=False)
        results().flush()
    except FmdpError as error:
        return refuse(str(error))
    except typer.TyperException as error:
        return refuse(usage_line(error))
    except MemoryError:
        return refuse("out of memory; a smaller --memory-limit refuses such work beforehand")
    except ReaderGone:
        return reader_has_gone()
    except SystemExit as error:
        # Typer exits when the reader of a pipe is gone.
        if isinstance(error.__context__, ReaderGone):
            return reader_has_gone()
        raise
    except Interrupted as error:
        raise error.interrupt from None
    except typer.Abort as abort:
        # Typer aborts on Ctrl-C, and on EOFError, which is a bug here: no command asks anything.
        if isinstance(abort.__cause__, EOFError):
            raise abort.__cause__ from None
        raise KeyboardInterrupt from None
    finally:
        if arguments is not None:  # otherwise compiled code may still have text in its buffers
            release_output()
    return status if isinstance(status, int) else 0


def refuse(line: str) -> int:
    say(line)
    return 2


def reader_has_gone() -> int:
    """Return 0, since `fmdp list | head -1` is no failure; discard what is still buffered."""
    discard_output(results().fileno())
    return 0


def usage_line(error: typer.TyperException) -> str:
    """Return a usage error of the parser as one line that names the help to read."""
    context = getattr(error, "ctx", None)
    command = "fmdp" if context is None else str(context.command_path)
    if context is not None and type(error).__name__ == "NoSuchOption":
        option = str(getattr(error, "option_name", ""))
        known = [name for parameter in context.command.params for name in parameter.opts]
        hint = did_you_mean(option, known) or f" (see {command} --help)"
        return f'{command} has no option "{option}"{hint}'
    line = " ".join(error.format_message().split()).rstrip(".")
    return f"{line[:1].lower()}{line[1:]} (see {command} --help)"
