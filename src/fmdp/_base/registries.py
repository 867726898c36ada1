"""Open registries of planners, learners and problem families by name.

A text names a class in one of four ways, tried in this order: a built-in name ("psrl"); a name
given by `fmdp.register(Class)` in this process; an entry point of an installed package (groups
fmdp.planners, fmdp.learners, fmdp.problems); or "package.module:Class", which is imported. Built-in
classes are imported on first use.

A name stands for one class. Registering another class under a taken name is refused, unless it is
the same definition again (a notebook cell that is re-run).
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import traceback
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fmdp._base.foreign_code import place_of
from fmdp._base.parameters import quoted, split_assignments
from fmdp._base.settings import Settings
from fmdp.errors import FmdpError, InvalidParameter, UnknownName, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Kind = TypeVar("Kind", bound=Settings)

_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


class Registry(Generic[Kind]):
    """The classes of one noun: `find` returns the class of a name, `read` the object of a text."""

    def __init__(self, noun: str, base: str, homes: Mapping[str, str]) -> None:
        """`base` locates the common base class, `homes` the built-in classes in their order:
        {"psrl": "fmdp.learning.psrl:PSRL"}."""
        self.noun = noun
        self._base_place = base
        self._homes = dict(homes)
        self._registered: dict[str, type[Kind]] = {}

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        # Searching all installed packages takes a tenth of a small plan's time, so built-in names
        # are tried first.
        from importlib.metadata import entry_points

        return {point.name: point for point in entry_points(group=f"fmdp.{self.noun}s")}

    def names(self) -> tuple[str, ...]:
        """Return every known name, built-in ones first."""
        return tuple(dict.fromkeys([*self._homes, *self._registered, *self._entry_points]))

    def kinds(self) -> tuple[type[Kind], ...]:
        """Return every class with a name, except those that cannot be imported (see `broken`)."""
        broken = self.broken()
        return tuple(self.find(name) for name in self.names() if name not in broken)

    def own(self) -> tuple[type[Kind], ...]:
        """Return the built-in classes only."""
        return tuple(self.find(name) for name in self._homes)

    def broken(self) -> dict[str, str]:
        """Return the names whose package cannot be imported, with the reasons."""
        reasons = {}
        for name in self._entry_points:
            try:
                self.find(name)
            except FmdpError as error:
                reasons[name] = str(error)
        return reasons

    def knows(self, text: str) -> bool:
        """Return True if a text is a known name, or module:Class."""
        named = text in self._homes or text in self._registered
        return named or is_place(text) or text in self._entry_points

    def find(self, text: str, folder: Path | None = None, *, importing: bool = True) -> type[Kind]:
        """Return the class of a name, or of module:Class (searched in `folder` too).

        Without `importing` only modules that are already imported are used, because reading a file
        must not run code.
        """
        if text in self._homes:
            return self._checked(attribute_at(self._homes[text], self.noun), text)
        if text in self._registered:
            return self._registered[text]
        if text in self._entry_points:
            point = self._entry_points[text]
            try:
                loaded = point.load()
            except Exception as error:
                raise _unimportable(f"{text} = {point.value}", self.noun, error) from error
            kind = self._checked(loaded, text)
            if kind.name != text:
                raise InvalidParameter(
                    f"{self.noun} {quoted(text)} is the entry point of a class whose `name` is "
                    f"{quoted(kind.name)}; the two must be the same"
                )
            return kind
        if is_place(text):
            return self._checked(attribute_at(text, self.noun, folder, importing=importing), text)
        known = self.names()
        raise UnknownName(
            f"unknown {self.noun} {quoted(text)}; known are {', '.join(known)}, "
            f"and module:Class{did_you_mean(text, known)}"
        )

    def read(self, text: str, folder: Path | None = None) -> Kind:
        """Return the object of a text NAME[,key=value...], as in "alp,basis=pairs" or
        "my_module:MyPlanner,depth=3"."""
        kind, given = self.split(text, folder)
        return kind.make(given)

    def split(self, text: str, folder: Path | None = None) -> tuple[type[Kind], dict[str, str]]:
        """Return the class that such a text names, and its settings, unchecked."""
        name, *assignments = (part.strip() for part in text.split(","))
        kind = self.find(name, folder)
        return kind, split_assignments(assignments, kind.owner())

    def place(self, kind: type[Kind]) -> str:
        """Return the text that `find` maps back to this class in other processes: name or
        module:Class.

        A registered name is known in this process only. It is used only for classes that no other
        process could import: made in a function, a script or a notebook.
        """
        everywhere = kind.name in self._homes or kind.name in self._entry_points
        if everywhere and self.find(kind.name) is kind:
            return kind.name
        local = kind.__module__ == "__main__" or not is_place(place_of(kind))
        if local and self._registered.get(kind.name) is kind:
            return kind.name
        return place_of(kind)

    def register(self, kind: type[Kind]) -> type[Kind]:
        """Register a class under its name in this process."""
        name = kind.name
        self._checked(kind, name)
        if not _NAME.fullmatch(name):
            raise InvalidParameter(
                f"the name of a {self.noun} must be letters, digits, '-', '_' and '.', beginning "
                f"with a letter; got {quoted(name)}"
            )
        taken = name in self._homes or name in self._entry_points
        other = self._registered.get(name, kind)
        if taken or place_of(other) != place_of(kind):
            holder = "one of fmdp's own" if name in self._homes else place_of(other)
            raise InvalidParameter(
                f"the name {quoted(name)} of {place_of(kind)} is taken by {holder}; "
                f"give the class another `name`"
            )
        self._registered[name] = kind
        return kind

    def forget(self, name: str) -> None:
        """Undo `register`."""
        self._registered.pop(name, None)

    def _checked(self, kind: Any, text: str) -> type[Kind]:
        base = attribute_at(self._base_place, self.noun)
        if not (isinstance(kind, type) and issubclass(kind, base)) or inspect.isabstract(kind):
            if inspect.isabstract(kind) and issubclass(kind, base):
                missing = ", ".join(sorted(kind.__abstractmethods__))
                raise InvalidParameter(
                    f"{self.noun} {quoted(text)} must say what it does in {missing}, which it has "
                    f"not"
                )
            raise InvalidParameter(
                f"{self.noun} {quoted(text)} is {quoted(kind)}; must be a subclass of "
                f"{base.__module__}.{base.__name__}"
            )
        return kind


def register(kind: type[Kind]) -> type[Kind]:
    """Register your planner, learner or problem under its name in this process; a decorator.

    It is then listed by `fmdp list`, can be named wherever a built-in one can, and is checked by
    `fmdp.testing`. For other processes use module:Class, or an entry point.

    Parameters
    ----------
    kind
        A subclass of fmdp.Planner, fmdp.Learner or fmdp.Problem, with its `name`.

    Returns
    -------
    type
        The same class.

    Raises
    ------
    InvalidParameter
        If it is no such class, is abstract, or its name is taken or invalid.
    """
    registry = getattr(kind, "registry", None)
    if not isinstance(kind, type) or not isinstance(registry, Registry):
        raise InvalidParameter(
            f"register takes a class that inherits from fmdp.Planner, fmdp.Learner or "
            f"fmdp.Problem; got {quoted(kind)}"
        )
    return registry.register(kind)


def is_place(text: str) -> bool:
    """Return True if a text is module:Class or module:function."""
    return _PLACE.fullmatch(text) is not None


def attribute_at(
    path: str, noun: str, folder: Path | None = None, *, importing: bool = True
) -> Any:
    """Return the object at module:name; raise UnknownName or InvalidParameter with one line.

    Without `importing` a module that is not imported yet is refused.
    """
    module_name, _, attributes = path.partition(":")
    if importing:
        module = _imported(module_name, path, noun, folder)
    elif module_name in sys.modules:
        module = sys.modules[module_name]
    else:
        raise InvalidParameter(
            f"{noun} {quoted(path)} lives in a module that is not imported, and a file does not "
            f"import code; import {module_name} first"
        )
    target: Any = module
    for name in attributes.split("."):
        if not hasattr(target, name):
            public = [known for known in vars(module) if not known.startswith("_")]
            raise UnknownName(
                f"{noun} {quoted(path)}: module {module_name} has no {quoted(attributes)}"
                f"{did_you_mean(name, public)}"
            )
        target = getattr(target, name)
    return target


def _imported(name: str, path: str, noun: str, folder: Path | None) -> Any:
    # A script finds modules beside itself. The command line has no script, so it searches the
    # current folder, at the end of the path so that it hides no installed module.
    current = () if "" in sys.path else (str(Path.cwd()),)
    for extra in (*current, *(() if folder is None else (str(folder.resolve()),))):
        if extra not in sys.path:
            sys.path.append(extra)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UnknownName(
                f"{noun} {quoted(path)}: there is no module {error.name!r} here or among the "
                f"installed ones"
            ) from None
        raise _unimportable(path, noun, error) from error
    except Exception as error:
        raise _unimportable(path, noun, error) from error


def _unimportable(path: str, noun: str, error: BaseException) -> InvalidParameter:
    # The innermost module-level line. A syntax error contains its own location.
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name == "<module>"]
    location = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return InvalidParameter(
        f"{noun} {quoted(path)}: its module cannot be imported: {type(error).__name__}: "
        f"{' '.join(str(error).split())}{location}"
    )
