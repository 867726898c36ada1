"""Parser of PRISM files: constants, modules, commands, rewards, notes.

As in PRISM, formulas are substituted before modules are renamed, so that a renaming applies inside
them; a renamed module is parsed again from the tokens of the original. Features that a factored
MDP lacks are refused here by name and line: clocks, several initial states, explicit composition
of modules.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fmdp.errors import InvalidParameter, did_you_mean
from fmdp.interop.limits import LARGEST_WHOLE
from fmdp.interop.prism.expressions import ONE, Expression, Values, Words, evaluate
from fmdp.interop.prism.tokens import Token, refuse, tokens

MOST_WORDS = 1 << 20
"""Most tokens of a file after formulas have been substituted."""

_KINDS = {
    "mdp": "mdp",
    "nondeterministic": "mdp",
    "dtmc": "dtmc",
    "probabilistic": "dtmc",
    "ctmc": "ctmc",
    "stochastic": "ctmc",
}
_OTHER_KINDS = ("pta", "popta", "pomdp", "ma", "smg")
_ALLOWED_KINDS = "must be mdp, dtmc or ctmc"
_SECTIONS = ("const", "formula", "label", "global", "module", "rewards", "init", "system")


@dataclass(frozen=True)
class Note:
    """A comment written by fmdp: `//: WORD [NAME] {...}`."""

    word: str
    name: str
    content: dict[str, Any]
    line: int


@dataclass(frozen=True)
class Variable:
    """A variable of a module; its values are the numbers from `low` to `high`.

    Those of an unbounded `int` are all whole numbers that are exact.
    """

    name: str
    low: int
    high: int
    is_truth: bool
    first: int
    """The value in the initial state."""
    line: int

    @property
    def is_bounded(self) -> bool:
        """Whether the file states the values."""
        return self.high < LARGEST_WHOLE - 1


@dataclass(frozen=True)
class Update:
    """A possible outcome with its probability; variables that are not set keep their values."""

    probability: Expression
    sets: tuple[tuple[str, Expression], ...]
    line: int


@dataclass(frozen=True)
class Command:
    """[label] guard -> p1 : update1 + p2 : update2 + ...;"""

    label: str
    """Empty if there is none."""
    guard: Expression
    updates: tuple[Update, ...]
    line: int


@dataclass(frozen=True)
class Module:
    """Variables and the commands that change them."""

    name: str
    variables: tuple[Variable, ...]
    commands: tuple[Command, ...]
    line: int
    note: Note | None = None


@dataclass(frozen=True)
class Item:
    """`guard : value;` for a state, or `[label] guard : value;` for a step."""

    label: str | None
    """None for a state reward."""
    guard: Expression
    value: Expression
    line: int
    note: Note | None

    @property
    def expressions(self) -> tuple[Expression, Expression]:
        """The guard and the value."""
        return self.guard, self.value


@dataclass(frozen=True)
class Rewards:
    """A reward structure; rewards that apply together add up."""

    name: str
    items: tuple[Item, ...]
    notes: tuple[Note, ...]
    line: int

    @property
    def is_quantity(self) -> bool:
        """Whether fmdp wrote it for a quantity, which is measured and not paid."""
        return bool(self.notes) and self.notes[0].word == "quantity"


class _Constant(NamedTuple):
    """A declaration: const KIND NAME = VALUE;"""

    kind: str
    value: Expression | None
    """None if it must be given."""
    line: int


@dataclass
class Program:
    """The content of a file."""

    kind: str = ""
    """mdp, dtmc or ctmc."""
    constants: dict[str, Values] = field(default_factory=dict)
    modules: list[Module] = field(default_factory=list)
    rewards: list[Rewards] = field(default_factory=list)
    labels: list[Rewards] = field(default_factory=list)
    """Labels, as reward structures that pay 1 where the label holds."""
    notes: list[Note] = field(default_factory=list)

    @property
    def variables(self) -> list[Variable]:
        """The variables of all modules, in order."""
        return [variable for module in self.modules for variable in module.variables]


def parse(text: str, constants: Mapping[str, Any] | None = None) -> Program:
    """Return the program in the text of a PRISM file; see `prism.loads`."""
    words = _with_formulas(tokens(text))
    reader = _Reader(words)
    reader.kind()
    reader.constants(dict(constants or {}))
    reader.sections()
    return reader.program


def _formulas(words: list[Token]) -> dict[str, list[Token]]:
    """Return the tokens of every formula."""
    formulas: dict[str, list[Token]] = {}
    for place, token in enumerate(words):
        if token.kind == "name" and token.text == "formula":
            name, sign = words[place + 1], words[min(place + 2, len(words) - 1)]
            if name.kind != "name" or sign.text != "=":
                refuse(token.line, "formula must be followed by NAME = EXPRESSION;")
            if name.text in formulas:
                refuse(name.line, f"formula {name.text} is there twice")
            end = place + 3
            while words[end].text != ";" and words[end].kind != "end":
                end += 1
            formulas[name.text] = [word for word in words[place + 3 : end] if word.kind != "note"]
    return formulas


def _with_formulas(words: list[Token]) -> list[Token]:
    """Return the tokens with every formula substituted for its name."""
    formulas = _formulas(words)
    if not formulas:
        return words
    ready: dict[str, list[Token]] = {}

    def whole(name: str, inside: tuple[str, ...]) -> list[Token]:
        if name in inside:
            refuse(formulas[name][0].line if formulas[name] else 1, f"formula {name} uses itself")
        if name not in ready:
            ready[name] = replaced(formulas[name], (*inside, name))
        return ready[name]

    def replaced(given: list[Token], inside: tuple[str, ...]) -> list[Token]:
        made: list[Token] = []
        for place, token in enumerate(given):
            after_formula = place > 0 and given[place - 1].text == "formula"
            if token.kind == "name" and token.text in formulas and not after_formula:
                made += [
                    Token("sign", "(", token.line),
                    *whole(token.text, inside),
                    Token("sign", ")", token.line),
                ]
                if len(made) > MOST_WORDS:
                    refuse(token.line, f"formulas come to more than {MOST_WORDS} words")
            else:
                made.append(token)
        return made

    return replaced(words, ())


class _Reader(Words):
    """Parser of the sections of a file."""

    def __init__(self, given: list[Token]) -> None:
        self._all = given
        self._notes = [_note(token) for token in given if token.kind == "note"]
        super().__init__([token for token in given if token.kind != "note"])
        self.program = Program(notes=self._notes)
        self._bodies: dict[str, list[Token]] = {}

    def kind(self) -> None:
        """Find the kind of model, which may be declared anywhere between sections."""
        kinds = [
            token
            for token in self._given
            if token.kind == "name" and token.text in (*_KINDS, *_OTHER_KINDS)
        ]
        if not kinds:
            refuse(1, f"the kind of model is missing; {_ALLOWED_KINDS}")
        if len(kinds) > 1:
            refuse(kinds[1].line, f"a second kind of model, {kinds[1].text}; must be one")
        if kinds[0].text not in _KINDS:
            refuse(kinds[0].line, f"a {kinds[0].text} is no factored MDP; {_ALLOWED_KINDS}")
        self.program.kind = _KINDS[kinds[0].text]

    # ---- constants -------------------------------------------------------------------------------

    def constants(self, given: dict[str, Any]) -> None:
        """Evaluate all constants, which may use each other in any order."""
        declared = self._declared()
        for name in given:
            if name not in declared:
                hint = did_you_mean(name, declared)
                raise InvalidParameter(f"{name} is no constant of the file{hint}")
            if declared[name].value is not None:
                raise InvalidParameter(
                    f"constant {name} has a value in the file (line {declared[name].line}); only "
                    f"those without one can be given"
                )
        for name in declared:
            if name not in self.program.constants:
                self._evaluate_constant(name, declared, given, ())

    def _declared(self) -> dict[str, _Constant]:
        """Return the constants, which may be declared anywhere between sections."""
        declared: dict[str, _Constant] = {}
        for place, token in enumerate(self._given):
            if token.kind == "name" and token.text == "const":
                self._place = place + 1
                kind = self.takes("int", "double", "bool")
                word = self.name("a constant")
                value = self.expression() if self.takes("=") else None
                self.need(";", f"constant {word.text}")
                if word.text in declared:
                    refuse(word.line, f"constant {word.text} is there twice")
                declared[word.text] = _Constant(kind.text if kind else "int", value, word.line)
        self._place = 0
        return declared

    def _evaluate_constant(
        self,
        name: str,
        declared: Mapping[str, _Constant],
        given: Mapping[str, Any],
        inside: tuple[str, ...],
    ) -> None:
        """Evaluate a constant and those that it uses; `inside` are those that use it."""
        values = self.program.constants
        kind, expression, line = declared[name]
        if name in inside:
            refuse(line, f"constant {name} uses itself")
        if expression is None and name not in given:
            refuse(line, f"constant {name} has no value: give one, as in MODEL.prism,{name}=...")
        if expression is None:
            values[name] = _given_constant(name, kind, given[name])
            return
        for leaf in expression.leaves():
            if leaf.detail in declared and leaf.detail not in values:
                self._evaluate_constant(leaf.detail, declared, given, (*inside, name))
        made = evaluate(expression, values)
        if made.dtype.kind not in {"int": "i", "bool": "b", "double": "if"}[kind]:
            refuse(line, f"constant {name} is {made.item()}; must be {kind}")
        values[name] = made.astype(np.float64) if kind == "double" else made

    # ---- sections --------------------------------------------------------------------------------

    def sections(self) -> None:
        """Parse all other sections."""
        while self.next.kind != "end":
            token = self.take()
            if token.text in _KINDS:
                continue
            if token.text == "label":
                self._label(token)
            elif token.text in ("const", "formula"):
                while self.next.kind != "end" and self.take().text != ";":
                    pass
            elif token.text == "module":
                self._module(token)
            elif token.text == "rewards":
                self._rewards(token)
            elif token.text == "global":
                variable = self._variable(self.name("a global variable"))
                # A module without commands: the variable never changes, and no module may set it.
                self.program.modules.append(
                    Module(f"global {variable.name}", (variable,), (), token.line)
                )
            else:
                self._refuse_section(token)
        names = set(self.program.constants)
        for variable in self.program.variables:
            if variable.name in names:
                refuse(variable.line, f"the name {variable.name} is there twice")
            names.add(variable.name)
        if not self.program.variables:
            refuse(self.next.line, "there is no variable; must be at least one")

    def _refuse_section(self, token: Token) -> NoReturn:
        reasons = {
            "init": "init ... endinit makes several initial states; a factored MDP has one",
            "system": "system ... endsystem composes in its own way; modules must synchronise "
            "on their labels",
            "observables": f"observables are those of a POMDP; {_ALLOWED_KINDS}",
            "invariant": f"an invariant is that of timed automata; {_ALLOWED_KINDS}",
            "player": f"players are those of a game; {_ALLOWED_KINDS}",
        }
        hint = did_you_mean(token.text, _SECTIONS)
        refuse(token.line, reasons.get(token.text, f"{token.text} begins no section{hint}"))

    def _module(self, start: Token) -> None:
        name = self.name("a module")
        if name.text in self._bodies:
            refuse(name.line, f"module {name.text} is there twice")
        if self.takes("="):
            body = self._renamed(name)
        else:
            begin = self._place
            while self.next.kind != "end" and self.next.text != "endmodule":
                self.take()
            body = [*self._given[begin : self._place], self.next]
            self.need("endmodule", f"module {name.text}")
        self._bodies[name.text] = body
        first = bisect_left(self._notes, start.line, key=lambda note: note.line)
        inside = self._notes[first : first + 1]
        note = inside[0] if inside and inside[0].line <= body[-1].line else None
        self.program.modules.append(_ModuleReader(body, self.program).module(name, note))

    def _renamed(self, name: Token) -> list[Token]:
        """Return the tokens of another module with names replaced."""
        source = self.name("the module that is renamed")
        if source.text not in self._bodies:
            hint = did_you_mean(source.text, self._bodies)
            refuse(
                source.line, f"module {name.text} renames {source.text}, which is not there{hint}"
            )
        self.need("[", f"module {name.text} = {source.text}")
        new: dict[str, str] = {}
        while not self.takes("]"):
            old = self.name("what is renamed")
            self.need("=", old.text)
            new[old.text] = self.name("a new name").text
            if not self.takes(","):
                self.need("]", "a renaming")
                break
        self.need("endmodule", f"module {name.text}")
        body = self._bodies[source.text]
        # Errors in the renamed module are reported at the line of the renaming.
        return [
            Token(word.kind, new.get(word.text, word.text) if word.kind == "name" else word.text,
                  name.line)
            for word in body
        ]  # fmt: skip

    def _label(self, start: Token) -> None:
        name = self.take()
        if name.kind != "text":
            refuse(name.line, f"label must be followed by a name in quotes; got {name.text}")
        self.need("=", f"label {name.text}")
        item = Item(None, self.expression(), ONE, start.line, None)
        self.need(";", f"label {name.text}")
        if any(label.name == name.text.strip('"') for label in self.program.labels):
            refuse(name.line, f"label {name.text} is there twice")
        self.program.labels.append(Rewards(name.text.strip('"'), (item,), (), start.line))

    def _variable(self, name: Token) -> Variable:
        return read_variable(self, name, self.program)

    def _rewards(self, start: Token) -> None:
        name = ""
        if self.next.kind == "text":
            name = self.take().text.strip('"')
        notes = [
            candidate
            for candidate in self._notes
            if candidate.word in ("reward", "quantity") and candidate.line >= start.line
        ]
        items: list[Item] = []
        while not self.takes("endrewards"):
            if self.next.kind == "end":
                refuse(start.line, "rewards without endrewards")
            line = self.next.line
            label: str | None = None
            if self.takes("["):
                label = "" if self.next.text == "]" else self.name("a label").text
                self.need("]", "a label")
            guard = self.expression()
            self.need(":", "the guard of a reward")
            value = self.expression()
            self.need(";", "a reward")
            before = bisect_right(notes, line, key=lambda note: note.line)
            note = notes[before - 1] if before else None
            items.append(Item(label, guard, value, line, note))
        end = self._given[self._place - 1].line
        inside = tuple(candidate for candidate in notes if candidate.line <= end)
        self.program.rewards.append(Rewards(name, tuple(items), inside, start.line))


class _ModuleReader(Words):
    """Parser of the body of a module."""

    def __init__(self, given: list[Token], program: Program) -> None:
        super().__init__([*given, Token("end", "the end of the module", given[-1].line)])
        self._program = program

    def module(self, name: Token, note: Note | None) -> Module:
        variables: list[Variable] = []
        commands: list[Command] = []
        while not self.takes("endmodule"):
            token = self.next
            if token.text == "[":
                commands.append(self._command())
            elif token.text == "invariant":
                refuse(token.line, f"an invariant is that of timed automata; {_ALLOWED_KINDS}")
            else:
                variables.append(read_variable(self, self.name("a variable"), self._program))
        return Module(name.text, tuple(variables), tuple(commands), name.line, note)

    def _command(self) -> Command:
        start = self.take()
        label = "" if self.next.text == "]" else self.name("a label").text
        self.need("]", "a label")
        guard = self.expression()
        self.need("->", "the guard of a command")
        updates = [self._update()]
        while self.takes("+"):
            updates.append(self._update())
        self.need(";", "a command")
        return Command(label, guard, tuple(updates), start.line)

    def _update(self) -> Update:
        line = self.next.line
        probability = ONE
        if not self._is_update():
            probability = self.expression()
            self.need(":", "a probability")
        if self.takes("true"):
            return Update(probability, (), line)
        sets: list[tuple[str, Expression]] = []
        while True:
            self.need("(", "an update, and each part of it,")
            name = self.name("the variable that is set")
            self.need("'", f"({name.text}")
            self.need("=", f"({name.text}'")
            if name.text in dict(sets):
                refuse(name.line, f"{name.text}' is set twice in one update")
            sets.append((name.text, self.expression()))
            self.need(")", f"({name.text}' = ...")
            if not self.takes("&"):
                return Update(probability, tuple(sets), line)

    def _is_update(self) -> bool:
        """Return whether an update follows without a probability: true, or (x'=...)."""
        texts = [word.text for word in self._given[self._place : self._place + 3]]
        if texts[0] == "true":
            return texts[1] in (";", "+")
        return texts[0] == "(" and texts[2:] == ["'"]


def read_variable(words: Words, name: Token, program: Program) -> Variable:
    """Parse `name : [low..high] init value;`, or with `bool` or `int` for the values."""
    words.need(":", name.text)
    if words.takes("bool"):
        low, high, is_truth = 0, 1, True
    elif words.takes("int"):
        low, high, is_truth = 1 - LARGEST_WHOLE, LARGEST_WHOLE - 1, False
    elif words.takes("["):
        low = _whole(words.expression(), program, f"the least value of {name.text}")
        words.need("..", f"{name.text} : [{low}")
        high = _whole(words.expression(), program, f"the largest value of {name.text}")
        words.need("]", f"{name.text} : [{low}..{high}")
        is_truth = False
        if low > high:
            refuse(name.line, f"{name.text} has no value: [{low}..{high}]")
    else:
        kind = words.next.text
        refuse(name.line, f"{name.text} is of the kind {kind}; must be bool, int or [low..high]")
    first = low if is_truth or high < LARGEST_WHOLE - 1 else 0
    if words.takes("init"):
        start = words.expression()
        if is_truth:
            made = evaluate(start, program.constants)
            if made.dtype.kind != "b":
                refuse(name.line, f"{name.text} begins at {made.item()}; must be true or false")
            first = int(made)
        else:
            first = _whole(start, program, f"the first value of {name.text}")
        if not low <= first <= high:
            refuse(name.line, f"{name.text} begins at {first}; must be in {low}..{high}")
    words.need(";", f"variable {name.text}")
    return Variable(name.text, low, high, is_truth, first, name.line)


def _whole(expression: Expression, program: Program, what: str) -> int:
    made = evaluate(expression, program.constants)
    # N/2 is a real, and a whole number for even N, as in Storm.
    if made.dtype.kind == "b" or float(made) != int(made):
        refuse(expression.line, f"{what} is {made.item()}; must be a whole number")
    return int(made)


def _given_constant(name: str, kind: str, value: Any) -> Values:
    made = value
    if isinstance(value, str):
        try:
            made = {"true": True, "false": False}[value] if kind == "bool" else float(value)
            if kind == "int":
                made = int(value)
        except (ValueError, KeyError):
            raise InvalidParameter(f"constant {name} must be {kind}; got {value!r}") from None
    array = np.asarray(made)
    if array.ndim or array.dtype.kind not in {"int": "i", "bool": "b", "double": "if"}[kind]:
        raise InvalidParameter(f"constant {name} must be {kind}; got {value!r}")
    if not np.isfinite(array):
        raise InvalidParameter(f"constant {name} must be finite; got {value!r}")
    return array.astype(np.float64) if kind == "double" else array


def _note(token: Token) -> Note:
    head, brace, rest = token.text[3:].partition("{")
    word, _, name = head.strip().partition(" ")
    try:
        content = json.loads(brace + rest)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        refuse(token.line, f"a comment of fmdp's, //: {word}, holds no JSON object")
    return Note(word, name.strip(), content, token.line)
