"""Settings: frozen, typed objects whose fields are declared once, with meaning and bounds.

    class PSRL(PlanningLearner):
        c: float = setting(0.75, "counts are divided by it: larger explores more", low=0.0)

This line defines the signature, the text of `help()`, the check in Python (PSRL(c="x") fails with
the message of the command line), `fmdp list`, ids, --set, options, specs, hashes and files.
Planners, learners and problem families are such classes. A subclass is a frozen dataclass with
keyword arguments, without a decorator. Two objects with equal settings are equal.

The kind of a setting follows from its annotation (int, float, bool, str with `choices`), or is
named: `setting(None, "...", kind="numbers")`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass
from typing import Any, ClassVar, TypeVar, dataclass_transform

from fmdp._base.parameters import (
    REQUIRED,
    Bytes,
    Choice,
    Edges,
    Flag,
    Integer,
    Number,
    Numbers,
    Parameter,
    Text,
    canonical,
    check_fields,
    resolve,
)

Own = TypeVar("Own", bound="Settings")

_KEY = "fmdp"
_MEANING = "fmdp.meaning"
_KINDS: dict[str, type[Parameter]] = {"numbers": Numbers, "bytes": Bytes, "edges": Edges}
"""The kinds that no annotation gives, by the names that authors of settings use."""


def setting(
    default: Any, meaning: str, *, kind: str | type[Parameter] | None = None, **limits: Any
) -> Any:
    """Declare a field of a settings class.

    Parameters
    ----------
    default
        The default value. None: the setting may stay unset; REQUIRED: it must be given.
    meaning
        A noun phrase that describes it, for lists: "steps of an episode".
    kind
        The kind if the annotation (int, float, bool, str) does not give it: "numbers" (a tuple
        of floats; as text joined by '+'), "bytes" (an int; as text also 500M or 2G) or "edges"
        (a tuple of pairs of ints; as text parent>child joined by '+').
    **limits
        Limits of the kind: low, high, low_open, high_open for numbers, choices for words; and
        only_with=(other, values), the values of another setting with which this one is used;
        unkeyed=values, those that the keys of stored runs omit.

    Returns
    -------
    Any
        A field of a dataclass; the class makes it a keyword argument.

    Raises
    ------
    TypeError
        When the class is made, if its annotation gives no kind and none is named.
    """
    given = {} if default is REQUIRED else {"default": default}
    return dataclasses.field(**given, kw_only=True, metadata={_KEY: (kind, meaning, limits)})


def part(default: Any, meaning: str) -> Any:
    """Declare a field that is an object without a text form, such as a learner's planner.

    Parameters
    ----------
    default
        The default value.
    meaning
        A noun phrase that describes it, for `help()`.
    """
    return dataclasses.field(default=default, kw_only=True, metadata={_MEANING: meaning})


# `setting` is not named as a field specifier: type checkers recognise a default there by its
# keyword only, and would require every setting in every call.
@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True)
class Settings:
    """Base class of planners, learners and problem families."""

    noun: ClassVar[str] = "settings"
    """Noun of such an object in messages: planner, learner, ...."""
    name: ClassVar[str] = ""
    """By default the name of the class in lower case with hyphens."""
    summary: ClassVar[str] = ""
    """One line for `fmdp list`; by default the first sentence of the docstring."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    """The declaration of every setting, those of the class before inherited ones."""
    __signature__: ClassVar[inspect.Signature]
    """Signature shown by `help` and completion, settings of the class before inherited ones."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        _take_new_defaults(cls)
        dataclass(frozen=True, kw_only=True, repr=False)(cls)
        _refuse_fields(cls)
        cls.parameters = tuple(
            _parameter(field, cls) for field in _own_first(cls) if _KEY in field.metadata
        )
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        if "summary" not in cls.__dict__:
            first = " ".join(re.split(r"(?<=\.)\s|\n\n", text)[0].split()).rstrip(".")
            # In a list "Posterior sampling" begins in lower case, "SysAdmin" does not.
            ordinary = re.match(r"[A-Z][a-z]*\b", first) is not None
            cls.summary = first[:1].lower() + first[1:] if ordinary else first
        cls.__doc__ = _documented(cls, text)
        given = inspect.signature(cls.__init__).parameters
        if {field.name for field in dataclasses.fields(cls)} == set(given) - {"self"}:
            cls.__signature__ = inspect.Signature([given[field.name] for field in _own_first(cls)])

    def __post_init__(self) -> None:
        check_fields(self, self.parameters, self.owner())
        self.check()

    def check(self) -> None:
        """Refuse invalid combinations of settings; each by itself has been checked.

        A subclass that overrides it calls `super().check()` first.

        Raises
        ------
        InvalidParameter
            If the combination is invalid.
        """

    @classmethod
    def owner(cls) -> str:
        """Return the name of the object in messages, such as "learner psrl"."""
        return f"{cls.noun} {cls.name}"

    @classmethod
    def make(cls: type[Own], given: Mapping[str, object], **others: Any) -> Own:
        """Return the object with these settings, and defaults for the rest.

        Parameters
        ----------
        given
            Settings by name, each as a value or as its text on a command line.
        **others
            Fields that are not settings, such as the planner of a learner.

        Raises
        ------
        UnknownName
            If there is no setting of that name.
        InvalidParameter
            If a value is not allowed, or a required one is missing.
        """
        return cls(**resolve(cls.parameters, given, cls.owner()), **others)

    def as_dict(self) -> dict[str, Any]:
        """Return every setting with its value, in the order of the declarations."""
        return {parameter.name: getattr(self, parameter.name) for parameter in self.parameters}

    def words(self) -> tuple[str, ...]:
        """Return ("c=0.5", ...): the settings that differ from their defaults, as texts."""
        return canonical(self.parameters, self.as_dict())

    def __repr__(self) -> str:
        """Return the call that makes an equal object."""
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in _own_first(type(self))
            if field.default is MISSING or getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _take_new_defaults(cls: type[Settings]) -> None:
    """Turn `c = 0.1` in a subclass, without an annotation, into a new default of a setting. With
    several bases the first one in the method resolution order that declares the setting counts. A
    dataclass would take all fields of the first base instead, inherited ones included."""
    inherited = {field.name: field for base in cls.__mro__[:0:-1] for field in _fields_of(base)}
    annotations = inspect.get_annotations(cls)
    for name, taken in inherited.items():
        if name in annotations:
            continue
        owner = next(base for base in cls.__mro__[1:] if name in inspect.get_annotations(base))
        declared = next(field for field in _fields_of(owner) if field.name == name)
        default = cls.__dict__.get(name, declared.default)
        if name in cls.__dict__ or declared.default is not taken.default:
            metadata = dict(declared.metadata)
            setattr(cls, name, dataclasses.field(default=default, kw_only=True, metadata=metadata))
            annotations = {**annotations, name: declared.type}
            cls.__annotations__ = annotations


def _fields_of(cls: type) -> tuple[Field[Any], ...]:
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


def _refuse_fields(cls: type[Settings]) -> None:
    """Raise TypeError for fields that are not settings, or that hide a name of the base class. Ids,
    keys and files contain settings only, so any other field would be lost."""
    for field in dataclasses.fields(cls):
        if _KEY not in field.metadata and field.name != "planner":
            raise TypeError(
                f"the field '{field.name}' of {cls.noun} {cls.__name__} must be declared as a "
                f'setting: {field.name}: ... = fmdp.setting(default, "its meaning")'
            )
    names = {field.name for field in dataclasses.fields(cls)}
    for name in inspect.get_annotations(cls):
        above = next((base for base in cls.__mro__[1:] if name in base.__dict__), None)
        inherited = {field.name for field in _fields_of(above)} if above else set()
        # A field may be redeclared with another default, but not hide a method or class attribute.
        if name in names and above is not None and name not in inherited:
            raise TypeError(
                f"the setting '{name}' of {cls.noun} {cls.__name__} has a name that every "
                f"{cls.noun} uses itself; it must have another"
            )


def _own_first(cls: type[Settings]) -> list[Field[Any]]:
    """Return the fields of a class before those of its bases."""
    rank = {
        name: (number, position)
        for number, base in reversed(list(enumerate(cls.__mro__)))
        for position, name in enumerate(inspect.get_annotations(base))
    }
    return sorted(dataclasses.fields(cls), key=lambda field: rank[field.name])


def _parameter(field: Field[Any], cls: type[Settings]) -> Parameter:
    kind, meaning, limits = field.metadata[_KEY]
    default = REQUIRED if field.default is MISSING else field.default
    if isinstance(kind, str) and kind not in _KINDS:
        raise TypeError(
            f"the kind of the setting {field.name} must be one of {', '.join(_KINDS)}; got {kind!r}"
        )
    named = _KINDS[kind] if isinstance(kind, str) else kind
    chosen: type[Parameter] = named or _kind_of(field, "choices" in limits)
    declared = chosen(field.name, default, meaning, **limits)
    if default is not None and default is not REQUIRED:
        declared.check(default, f"{cls.noun} {cls.__name__}, by default,")
    return declared


def _kind_of(field: Field[Any], with_choices: bool) -> type[Parameter]:
    words = _spelled(field.type)
    names = {word.strip() for word in words.split("|")} - {"None"}
    kinds: dict[str, type[Parameter]] = {
        "int": Integer,
        "float": Number,
        "bool": Flag,
        "str": Choice if with_choices else Text,
    }
    if len(names) == 1 and (name := names.pop()) in kinds:
        return kinds[name]
    raise TypeError(f'the setting {field.name}: {words} needs a kind, such as kind="numbers"')


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _documented(cls: type[Settings], text: str) -> str:
    """Return the docstring with a section that lists every field."""
    declared = {parameter.name: parameter for parameter in cls.parameters}
    lines = []
    for field in _own_first(cls):
        default = "required" if field.default is MISSING else f"default {field.default!r}"
        meaning = field.metadata.get(_MEANING, "")
        if field.name in declared:
            parameter = declared[field.name]
            meaning = f"{parameter.meaning}: {parameter.allowed}"
        lines.append(f"{field.name} : {_spelled(field.type)}, {default}")
        lines.append(f"    {meaning[:1].upper()}{meaning[1:]}.")
    return "\n".join([text, "", "Parameters", "----------", *lines]).strip() if lines else text
