"""Docstrings document their arguments, and the reference has every public name.

Every function, class and method that can be reached from `fmdp.__all__`, `fmdp.testing.__all__`,
`fmdp.measures.__all__`, `fmdp.model.__all__` and `fmdp.interop.gymnasium.__all__` names each
argument of its signature in a section "Parameters" (or "Attributes", where a result is a record)
or, if one clause is enough, as `name` in the text above the sections. A section has no argument
that the signature does not have. The pages of docs/reference have exactly these names. The
signature is the one source: a new argument without a word about it fails here.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fmdp
import fmdp.interop.dbn
import fmdp.interop.gymnasium
import fmdp.interop.prism
import fmdp.interop.storm
import fmdp.interop.umb
import fmdp.measures
import fmdp.model
import fmdp.testing

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference"


# ---- what a docstring documents ------------------------------------------------------------------


def sections(text: str) -> dict[str, list[str]]:
    """The names that stand in each section of a numpydoc docstring, stars left out."""
    found: dict[str, list[str]] = {}
    lines = inspect.cleandoc(text).split("\n")
    section = None
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if after and set(after) == {"-"}:
            section = line
            found[section] = []
        elif section and line and not line[0].isspace() and set(line) != {"-"}:
            head = line.partition(" : ")[0]
            found[section] += [name.strip().lstrip("*") for name in head.split(",")]
    return found


def troubles(obj: Any, where: str, *, is_method: bool = False) -> list[str]:
    """What the docstring of a function, method or class lacks, and what it has too much."""
    text = obj.__doc__ if isinstance(obj, type) else inspect.getdoc(obj)
    if isinstance(obj, type) and text and text.startswith(f"{obj.__name__}("):
        text = None  # what a dataclass writes where nobody wrote anything
    if not text or not text.strip():
        return [f"{where} has no docstring"]
    if not callable(obj) or (isinstance(obj, type) and not is_called(obj)):
        return []
    told = sections(text)
    parameters, attributes = told.get("Parameters", []), told.get("Attributes", [])
    needed = list(inspect.signature(obj).parameters)[1 if is_method else 0 :]
    in_text = re.findall(r"`(\w+)`", re.split(r"\n\w+\n-+\n", inspect.cleandoc(text))[0])
    missing = [name for name in needed if name not in {*parameters, *attributes, *in_text}]
    unknown = [name for name in parameters if name not in needed]
    return [
        *(f"{where} does not document {name!r}" for name in missing),
        *(f"{where} documents {name!r}, which it does not have" for name in unknown),
    ]


def is_called(cls: type) -> bool:
    """Whether users make one by a signature of its own: not a protocol, not an enumeration, not an
    error that is made as its base is."""
    if issubclass(cls, BaseException):
        return "__init__" in vars(cls)
    return not (issubclass(cls, enum.Enum) or getattr(cls, "_is_protocol", False))


def all_troubles(obj: Any, where: str) -> list[str]:
    """Those of a function, or of a class and its public methods and properties, inherited ones
    too; an override that says nothing has the docstring of what it overrides."""
    found = troubles(obj, where)
    if not isinstance(obj, type):
        return found
    for name in dict.fromkeys(name for base in obj.__mro__ if is_own(base) for name in vars(base)):
        if name.startswith("_") and name != "__call__":
            continue
        home = next(base for base in obj.__mro__ if name in vars(base))
        member = vars(home)[name]
        if not is_own(home):
            continue
        if isinstance(member, property | cached_property):
            found += [] if inspect.getdoc(member) else [f"{where}.{name} has no docstring"]
        elif isinstance(member, classmethod | staticmethod):
            found += troubles(getattr(obj, name), f"{where}.{name}")
        elif inspect.isfunction(member):
            found += troubles(member, f"{where}.{name}", is_method=True)
    return found


def is_own(cls: type) -> bool:
    """Whether a class is of fmdp, or of the controls below."""
    return cls.__module__.startswith(("fmdp", __name__))


# ---- the public names ----------------------------------------------------------------------------


def public() -> Iterator[tuple[str, Any]]:
    """Every public function and class with the name that the reference has it under."""
    for name in fmdp.__all__:
        if name != "__version__":
            yield f"fmdp.{name}", getattr(fmdp, name)
    for module in (
        fmdp.interop.dbn,
        fmdp.interop.gymnasium,
        fmdp.interop.prism,
        fmdp.interop.storm,
        fmdp.interop.umb,
    ):
        yield from ((f"{module.__name__}.{own}", getattr(module, own)) for own in names(module))
    for room in (fmdp.testing, fmdp.measures, fmdp.model):
        for name in room.__all__:
            one = getattr(room, name)
            if isinstance(one, ModuleType):
                yield from ((f"{one.__name__}.{own}", getattr(one, own)) for own in names(one))
            elif room is not fmdp.model or name not in fmdp.__all__:
                yield f"{room.__name__}.{name}", one


def names(module: ModuleType) -> list[str]:
    """What a module offers: its list, or where it has none the public functions that it defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, one in vars(module).items()
        if callable(one) and not name.startswith("_") and one.__module__ == module.__name__
    ]


PUBLIC = dict(public())


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_every_argument_is_documented(name: str) -> None:
    assert all_troubles(PUBLIC[name], name) == []


@pytest.mark.parametrize("room", ["fmdp.testing.strategies", "fmdp.testing.oracles"])
def test_rooms_within_rooms_are_walked(room: str) -> None:
    assert len([name for name in PUBLIC if name.startswith(f"{room}.")]) >= 7


# ---- the controls: what is lacking is seen -------------------------------------------------------


def _silent(model: object) -> None:
    pass


def _half(model: object, *others: object, steps: int = 1) -> None:
    """Says what it does.

    Parameters
    ----------
    model
        The model.

    Returns
    -------
    steps
        Not an argument here.
    """


def _stale(model: object) -> None:
    """Says what it does.

    Parameters
    ----------
    model, steps
        One is there, one is gone.
    """


def _in_text(model: object, steps: int = 1) -> None:
    """Say what it does with `model`, but not with steps.

    Returns
    -------
    steps
        Not an argument: `steps` here is no documentation.
    """


@dataclass
class _Record:
    value: int
    other: int = 0


@dataclass
class _Told:
    """A record.

    Attributes
    ----------
    value : int
        What it is.
    """

    value: int

    @property
    def twice(self) -> int:
        return 2 * self.value

    @classmethod
    def made(cls, value: int) -> _Told:
        """One more."""
        return cls(value)

    def plus(self, other: int) -> int:
        """Adds.

        Parameters
        ----------
        other
            What to add.
        """
        return self.value + other


class _Heir(_Told):
    """A record.

    Attributes
    ----------
    value
        What it is.
    """

    def plus(self, other: int) -> int:
        return other


class _Wayward(_Heir):
    """A record.

    Attributes
    ----------
    value
        What it is.
    """

    def plus(self, another: int) -> int:  # type: ignore[override]
        return another


INHERITED = ["it.twice has no docstring", "it.made does not document 'value'"]


@pytest.mark.parametrize(
    ("obj", "expected"),
    [
        (_silent, ["it has no docstring"]),
        (_half, ["it does not document 'others'", "it does not document 'steps'"]),
        (_stale, ["it documents 'steps', which it does not have"]),
        (_in_text, ["it does not document 'steps'"]),
        (_Record, ["it has no docstring"]),
        (_Told, INHERITED),
        (_Heir, INHERITED),
        (
            _Wayward,
            [
                "it.plus does not document 'another'",
                "it.plus documents 'other', which it does not have",
                *INHERITED,
            ],
        ),
    ],
)
def test_the_reader_sees_what_is_lacking(obj: Any, expected: list[str]) -> None:
    assert all_troubles(obj, "it") == expected


# ---- the reference -------------------------------------------------------------------------------

DIRECTIVE = re.compile(r"^\.\. auto\w+:: (fmdp\.[\w.]+)$", re.MULTILINE)
BESIDE = {
    f"fmdp.{name}"
    for name in (
        "errors.FileProblem",
        "errors.Infeasible",
        "errors.InvalidModel",
        "errors.InvalidParameter",
        "errors.TooLarge",
        "errors.UnknownName",
        "interop.rddl.Imported",
        "interop.rddl.imported",
        "planning.constrained.front.Vertex",
        "service.Observations",
        "service.export_log",
        "service.migrate",
        "service.observations",
        "planning.evaluate.Evaluation",
        "planning.occupancy.summary.Event",
        "planning.occupancy.summary.Visited",
        "simulation.whatif.Point",
        "simulation.Reference",
    )
}
"""In the reference though not in a list of public names: what these return, raise or ask for."""


def test_the_reference_has_every_public_name_once() -> None:
    pages = sorted(REFERENCE.glob("*.md"))
    listed = [name for page in pages for name in DIRECTIVE.findall(page.read_text())]
    assert len(listed) == len({*listed}), "a name stands twice in docs/reference"
    assert {*PUBLIC} - {*listed} == set(), "public, but in no page of docs/reference"
    assert {*listed} - {*PUBLIC} == BESIDE, "in docs/reference, but not public"


def test_the_overview_of_the_reference_has_every_name_of_fmdp() -> None:
    overview = {*re.findall(r"`(\w+)`", (REFERENCE / "index.md").read_text())}
    assert {*fmdp.__all__} - {"__version__"} - overview == set()


@pytest.mark.parametrize("name", sorted(BESIDE))
def test_what_stands_beside_is_documented_too(name: str) -> None:
    module, _, own = name.rpartition(".")
    assert all_troubles(getattr(importlib.import_module(module), own), name) == []
