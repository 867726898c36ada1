"""What a user can cause to go wrong, each with one clear line of explanation.

Every message says what is wrong, where, the value, and what is allowed, and is a single line:
the command line prints it as it is and ends with status 2. The children also derive from the
built-in error that a Python user would expect to catch (ValueError, LookupError, OSError).
All of them survive pickling, since they travel from worker processes.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def printable(text: str) -> str:
    """The text as one line that prints anywhere and that no terminal takes for a command.

    Names of files may hold bytes that are no text, and any name may hold what moves the cursor or
    turns the direction of writing: such characters are spelled out.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class FmdpError(Exception):
    """Base of every error that bad input can cause; its text is one line.

    Parameters
    ----------
    message
        What is wrong, where, the value, and what is allowed. Lines are joined to one.
    """

    def __init__(self, message: str) -> None:
        super().__init__(printable(" ".join(message.splitlines())))


class InvalidModel(FmdpError, ValueError):
    """The sizes, scopes or tables do not make a factored MDP."""


class InvalidParameter(FmdpError, ValueError):
    """An argument or setting is of the wrong type or out of its range."""


class Infeasible(FmdpError, ValueError):
    """No policy satisfies the limits of a plan; the message has the certificate."""


class UnknownName(FmdpError, LookupError):
    """A name that is not registered; the message suggests the nearest that is."""


class FileProblem(FmdpError, OSError):
    """A file is missing, unreadable, half-written, or of another format or version."""


class TooLarge(FmdpError):
    """A refusal before the memory is spent: what was asked needs more than the limit.

    Parameters
    ----------
    message
        What is too large, in one line.
    needed_bytes
        What it would take.
    limit_bytes
        The most that was allowed.
    """

    def __init__(self, message: str, needed_bytes: int, limit_bytes: int) -> None:
        super().__init__(message)
        self.needed_bytes = int(needed_bytes)
        self.limit_bytes = int(limit_bytes)

    def __reduce__(self) -> tuple[type[TooLarge], tuple[str, int, int]]:
        return type(self), (str(self), self.needed_bytes, self.limit_bytes)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of an error message: '; did you mean "x"?', or "" if nothing known is near."""
    by_folded = {name.casefold(): name for name in known}
    nearest = difflib.get_close_matches(word.casefold(), by_folded, n=1)
    return f'; did you mean "{by_folded[nearest[0]]}"?' if nearest else ""
