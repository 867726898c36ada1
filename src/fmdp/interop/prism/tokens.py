"""Tokens of a PRISM file with their lines; comments are dropped, except those of fmdp.

A comment that begins with `//:` is a *note*: a word and a JSON object, in which fmdp stores what
PRISM cannot express (original names, the action variables of a label, the range and noise of a
reward). Other tools ignore it.
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
"""Reserved words of PRISM."""

AVOIDED = KEYWORDS | frozenset(
    re.findall(
        r"\w+",
        """ceil cos endplayer exp floor identity log ma M mod multi O player pow quantile round sin
        smg T""",
    )
)
"""Names that are not written: reserved words, functions, and words of Storm and others."""

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
    """A token."""

    kind: str
    """name, number, text, sign, note or end."""
    text: str
    line: int


def tokens(text: str) -> list[Token]:
    """Return the tokens of a file; the last one is of kind "end"."""
    words: list[Token] = []
    line, place = 1, 0
    while place < len(text):
        match = _WORD.match(text, place)
        if match is None:
            refuse(line, f"{text[place]!r} is no character of a PRISM model")
        kind = str(match.lastgroup)
        if kind == "newline":
            line += 1
        elif kind != "blank":
            words.append(Token(kind, match.group(), line))
        place = match.end()
    words.append(Token("end", "the end of the file", line))
    return words


def refuse(line: int, what: str) -> NoReturn:
    """Raise InvalidModel with the line of the file."""
    raise InvalidModel(f"line {line}: {what}")
