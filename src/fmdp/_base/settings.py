"""Settings: frozen, typed objects whose every field is declared once, with its meaning and bounds.

    class PSRL(PlanningLearner):
        c: float = setting(0.75, "counts are divided by it: larger explores more", low=0.0)

From this one line come the signature, what `help()` says, the check in Python (PSRL(c="x") is
refused in the words of the command line), `fmdp list`, ids, --set, options, specs, hashes, files.
Planners, learners and families of problems are such classes; a subclass is a frozen dataclass with
keyword arguments, without a decorator. Two objects with equal settings are equal.

The kind of a setting follows from its annotation (int, float, bool, str with `choices`), or is
named: `setting(None, "...", kind=Numbers)`. Fields without `setting` are fields like any other.
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
    Choice,
    Flag,
    Integer,
    Number,
    Parameter,
    Text,
    canonical,
    check_fields,
    resolve,
)

Own = TypeVar("Own", bound="Settings")

_KEY = "fmdp"
_MEANING = "fmdp.meaning"


def setting(
    default: Any, meaning: str, *, kind: type[Parameter] | None = None, **limits: Any
) -> Any:
    """Declare a field of a settings class.

    Parameters
    ----------
    default
        The value where none is given; None: it may stay unset; REQUIRED: it has to be given.
    meaning
        What it is, in words that complete a list: "steps of an episode".
    kind
        A class of fmdp._base.parameters; by default the one that the field's annotation asks for.
    **limits
        Those of the kind: low, high, low_open, high_open for numbers, choices for words; and
        only_with=(other, values), the values of another setting beside which this one has a use;
        unkeyed=values, those that the keys of stored runs omit.

    Returns
    -------
    Any
        A field of a dataclass; the class makes it a keyword argument.

    Raises
    ------
    TypeError
        When the class is made, where its annotation asks for no kind and none is named.
    """
    held = {} if default is REQUIRED else {"default": default}
    return dataclasses.field(**held, kw_only=True, metadata={_KEY: (kind, meaning, limits)})


def part(default: Any, meaning: str) -> Any:
    """Declare a field that is an object and has no text of its own, such as a learner's planner.

    Parameters
    ----------
    default
        The value where none is given.
    meaning
        What it is, for `help()`.
    """
    return dataclasses.field(default=default, kw_only=True, metadata={_MEANING: meaning})


# `setting` is not named as a field specifier: type checkers find a default there by its keyword
# alone, and would ask for every setting in every call.
@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True)
class Settings:
    """What planners, learners and families of problems have in common."""

    noun: ClassVar[str] = "settings"
    """What such a thing is called in messages: planner, learner, ...."""
    name: ClassVar[str] = ""
    """By default the name of the class, in small letters with hyphens."""
    summary: ClassVar[str] = ""
    """One line for `fmdp list`; by default the first sentence of the docstring."""
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    """The declaration of every setting, the class's own first; made from the fields."""
    __signature__: ClassVar[inspect.Signature]
    """What `help` and completion show: the class's own settings first."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        text = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        _take_new_defaults(cls)
        dataclass(frozen=True, kw_only=True, repr=False)(cls)
        _refuse_fields(cls)
        cls.parameters = tuple(
            _parameter(one, cls) for one in _own_first(cls) if _KEY in one.metadata
        )
        if "name" not in cls.__dict__:
            cls.name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", cls.__name__).lower()
        if "summary" not in cls.__dict__:
            first = " ".join(re.split(r"(?<=\.)\s|\n\n", text)[0].split()).rstrip(".")
            # "Posterior sampling" begins a list's line in small letters, "SysAdmin" does not.
            usual = re.match(r"[A-Z][a-z]*\b", first) is not None
            cls.summary = first[:1].lower() + first[1:] if usual else first
        cls.__doc__ = _documented(cls, text)
        given = inspect.signature(cls.__init__).parameters
        if {one.name for one in dataclasses.fields(cls)} == set(given) - {"self"}:
            cls.__signature__ = inspect.Signature([given[one.name] for one in _own_first(cls)])

    def __post_init__(self) -> None:
        check_fields(self, self.parameters, self.owner())
        self.check()

    def check(self) -> None:
        """Refuse settings that do not go together; each by itself is checked by then.

        A subclass that overrides it calls `super().check()` first.

        Raises
        ------
        InvalidParameter
            Where they do not.
        """

    @classmethod
    def owner(cls) -> str:
        """ "learner psrl": what messages call it."""
        return f"{cls.noun} {cls.name}"

    @classmethod
    def make(cls: type[Own], given: Mapping[str, object], **others: Any) -> Own:
        """The object with these settings, and the defaults for the rest.

        Parameters
        ----------
        given
            Settings by name, each as a value or as its text on a command line.
        **others
            Fields that are no settings, such as the planner of a learner.

        Raises
        ------
        UnknownName
            Where there is no setting of that name.
        InvalidParameter
            Where a value is not allowed, or one that has to be given is not there.
        """
        return cls(**resolve(cls.parameters, given, cls.owner()), **others)

    def as_dict(self) -> dict[str, Any]:
        """Every setting with its value, in the order of the declarations."""
        return {one.name: getattr(self, one.name) for one in self.parameters}

    def words(self) -> tuple[str, ...]:
        """("c=0.5", ...): the settings that differ from their defaults, as texts."""
        return canonical(self.parameters, self.as_dict())

    def __repr__(self) -> str:
        """The call that makes an equal object."""
        shown = [
            f"{one.name}={getattr(self, one.name)!r}"
            for one in _own_first(type(self))
            if one.default is MISSING or getattr(self, one.name) != one.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"


def _take_new_defaults(cls: type[Settings]) -> None:
    """`c = 0.1` in a subclass, without an annotation, is a new default of the inherited setting.

    Of several bases the one counts that says something, as everywhere in Python: a dataclass would
    take the whole of the first one, with what that has from further up.
    """
    inherited = {one.name: one for base in cls.__mro__[:0:-1] for one in _fields_of(base)}
    annotations = inspect.get_annotations(cls)
    for name, one in inherited.items():
        if name in annotations:
            continue
        says = next(base for base in cls.__mro__[1:] if name in inspect.get_annotations(base))
        said = next(field for field in _fields_of(says) if field.name == name)
        default = cls.__dict__.get(name, said.default)
        if name in cls.__dict__ or said.default is not one.default:
            field = dataclasses.field(default=default, kw_only=True, metadata=dict(said.metadata))
            setattr(cls, name, field)
            annotations = {**annotations, name: said.type}
            cls.__annotations__ = annotations


def _fields_of(cls: type) -> tuple[Field[Any], ...]:
    return dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ()


def _refuse_fields(cls: type[Settings]) -> None:
    """Settings are all that such an object is known by, in ids, keys and files: a field beside them
    would be left out. And none may hide what its base uses."""
    for field in dataclasses.fields(cls):
        if _KEY not in field.metadata and field.name != "planner":
            raise TypeError(
                f"the field '{field.name}' of {cls.noun} {cls.__name__} must be declared as a "
                f'setting: {field.name}: ... = fmdp.setting(default, "its meaning")'
            )
    own = {field.name for field in dataclasses.fields(cls)}
    for name in inspect.get_annotations(cls):
        above = next((one for one in cls.__mro__[1:] if name in one.__dict__), None)
        inherited = {field.name for field in _fields_of(above)} if above else set()
        # A field may be declared anew, with another default; a method or a fact of the class not.
        if name in own and above is not None and name not in inherited:
            raise TypeError(
                f"the setting '{name}' of {cls.noun} {cls.__name__} has a name that every "
                f"{cls.noun} uses itself; it must have another"
            )


def _own_first(cls: type[Settings]) -> list[Field[Any]]:
    """The fields of a class before those of its bases."""
    place = {
        name: (number, position)
        for number, home in reversed(list(enumerate(cls.__mro__)))
        for position, name in enumerate(inspect.get_annotations(home))
    }
    return sorted(dataclasses.fields(cls), key=lambda one: place[one.name])


def _parameter(field: Field[Any], cls: type[Settings]) -> Parameter:
    kind, meaning, limits = field.metadata[_KEY]
    default = REQUIRED if field.default is MISSING else field.default
    found: type[Parameter] = kind or _kind_of(field, "choices" in limits)
    declared = found(field.name, default, meaning, **limits)
    if default is not None and default is not REQUIRED:
        declared.check(default, f"{cls.noun} {cls.__name__}, by default,")
    return declared


def _kind_of(field: Field[Any], with_choices: bool) -> type[Parameter]:
    words = field.type if isinstance(field.type, str) else _spelled(field.type)
    names = {word.strip() for word in words.split("|")} - {"None"}
    kinds: dict[str, type[Parameter]] = {
        "int": Integer,
        "float": Number,
        "bool": Flag,
        "str": Choice if with_choices else Text,
    }
    if len(names) == 1 and (name := names.pop()) in kinds:
        return kinds[name]
    raise TypeError(
        f"the setting {field.name}: {words} needs a kind, such as "
        "kind=fmdp._base.parameters.Numbers"
    )


def _spelled(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _documented(cls: type[Settings], text: str) -> str:
    """The docstring with a section that has every field."""
    declared = {one.name: one for one in cls.parameters}
    lines = []
    for field in _own_first(cls):
        spelled = field.type if isinstance(field.type, str) else _spelled(field.type)
        default = "required" if field.default is MISSING else f"default {field.default!r}"
        meaning = field.metadata.get(_MEANING, "")
        if field.name in declared:
            one = declared[field.name]
            meaning = f"{one.meaning}: {one.allowed}"
        lines.append(f"{field.name} : {spelled}, {default}")
        lines.append(f"    {meaning[:1].upper()}{meaning[1:]}.")
    return "\n".join([text, "", "Parameters", "----------", *lines]).strip() if lines else text
