"""The words of a PRISM file, each with its line; comments go, but for those that fmdp wrote.

A comment that begins with `//:` is a *note*: a word and a JSON object, in which fmdp keeps what
PRISM has no words for (the names as they were, the action variables behind a label, the range and
noise of a reward). Other tools take it for a comment.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from fmdp.errors import InvalidModel

KEYWORDS = frozenset(
    re.findall(
        r"\w+",
        """A bool clock const ctmc C double dtmc E endinit endinvariant endmodule endobservables
        endrewards endsystem false formula filter func F global G init invariant I int label max mdp
        min module X nondeterministic observable observables of Pmax Pmin P pomdp popta
        probabilistic prob pta rate rewards Rmax Rmin R S stochastic system true U W""",
    )
)
"""Words of PRISM that name nothing else."""

AVOIDED = KEYWORDS | frozenset(
    re.findall(
        r"\w+",
        """ceil cos endplayer exp floor identity log ma M mod multi O player pow quantile round sin
        smg T""",
    )
)
"""What no name that is written is called: functions, and words of Storm and other versions."""

_WORD = re.compile(
    r"""(?P<note>//:[^\n]*)
    | (?P<blank>[ \t\r\f\v]+|//[^\n]*)
    | (?P<newline>\n)
    | (?P<number>(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<text>"[^"\n]*")
    | (?P<sign><=>|->|\.\.|=>|<=|>=|!=|[-+*/^&|!=<>()\[\]{}:;,'?])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One word."""

    kind: str
    """name, number, text, sign, note or end."""
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """All words of a file, ended by one of the kind "end"."""
    found: list[Token] = []
    line, place = 1, 0
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            refuse(line, f"{text[place]!r} is no character of a PRISM model")
        kind = str(match.lastgroup)
        if kind == "newline":
            line += 1
        elif kind != "blank":
            found.append(Token(kind, match.group(), line))
        place = match.end()
    found.append(Token("end", "the end of the file", line))
    return found


def refuse(line: int, what: str) -> NoReturn:
    """InvalidModel, with the line of the file."""
    raise InvalidModel(f"line {line}: {what}")
