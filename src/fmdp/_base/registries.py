"""Open registries: planners, learners and families of problems by name, ours and anybody's.

A text names a class in one of four ways, looked for in this order: a name of fmdp's own ("psrl");
one that `fmdp.register(Class)` has given it in this process; an entry point of an installed package
(groups fmdp.planners, fmdp.learners, fmdp.problems); or where it lives, "package.module:Class",
which is imported. Classes of fmdp's own are imported when they are asked for, not before.

A name stands for one class: registering another under a name that is taken is refused, unless it
is the same definition anew (a notebook's cell that was run again).
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
    """The classes of one noun. `find` has the class of a name, `read` the object of a text."""

    def __init__(self, noun: str, base: str, homes: Mapping[str, str]) -> None:
        """`base` is where the class lives that all inherit from, and `homes` where fmdp's own do,
        in their order: {"psrl": "fmdp.learning.psrl:PSRL"}."""
        self.noun = noun
        self._base_place = base
        self._homes = dict(homes)
        self._registered: dict[str, type[Kind]] = {}

    @cached_property
    def _entry_points(self) -> dict[str, EntryPoint]:
        # To look through all installed packages takes a tenth of a small plan's time, so fmdp's own
        # names are looked for before.
        from importlib.metadata import entry_points

        found = entry_points(group=f"fmdp.{self.noun}s")
        return {point.name: point for point in found}

    def names(self) -> tuple[str, ...]:
        """Every name that is known, fmdp's own first."""
        return tuple(dict.fromkeys([*self._homes, *self._registered, *self._entry_points]))

    def kinds(self) -> tuple[type[Kind], ...]:
        """Every class that has a name; those of packages that cannot be imported are left out
        (`broken` has them)."""
        broken = self.broken()
        return tuple(self.find(name) for name in self.names() if name not in broken)

    def own(self) -> tuple[type[Kind], ...]:
        """fmdp's own classes alone."""
        return tuple(self.find(name) for name in self._homes)

    def broken(self) -> dict[str, str]:
        """Names whose package cannot be imported, with the reason."""
        reasons = {}
        for name in self._entry_points:
            try:
                self.find(name)
            except FmdpError as error:
                reasons[name] = str(error)
        return reasons

    def knows(self, text: str) -> bool:
        """Whether `find` would look for it: a known name, or module:Class."""
        named = text in self._homes or text in self._registered
        return named or is_place(text) or text in self._entry_points

    def find(self, text: str, folder: Path | None = None, *, importing: bool = True) -> type[Kind]:
        """The class of a name, or of module:Class (looked for in `folder` too).

        Without `importing` a module that is not there yet is not brought in: what a file says must
        not run code.
        """
        if text in self._homes:
            return self._checked(attribute_at(self._homes[text], self.noun), text)
        if text in self._registered:
            return self._registered[text]
        if text in self._entry_points:
            found = self._checked(_loaded(self._entry_points[text], self.noun), text)
            if found.name != text:
                raise InvalidParameter(
                    f"{self.noun} {quoted(text)} is the entry point of a class whose `name` is "
                    f"{quoted(found.name)}; the two must be the same"
                )
            return found
        if is_place(text):
            return self._checked(attribute_at(text, self.noun, folder, importing=importing), text)
        known = self.names()
        raise UnknownName(
            f"unknown {self.noun} {quoted(text)}; known are {', '.join(known)}, "
            f"and module:Class{did_you_mean(text, known)}"
        )

    def read(self, text: str, folder: Path | None = None) -> Kind:
        """The settings that a text stands for: NAME[,key=value...], as in "alp,basis=pairs" or
        "my_module:MyPlanner,depth=3"."""
        kind, given = self.split(text, folder)
        return kind.make(given)

    def split(self, text: str, folder: Path | None = None) -> tuple[type[Kind], dict[str, str]]:
        """The class that such a text names, and what it sets, not checked yet."""
        name, *assignments = (part.strip() for part in text.split(","))
        kind = self.find(name, folder)
        return kind, split_assignments(assignments, kind.owner())

    def place(self, kind: type[Kind]) -> str:
        """The text that `find` takes back to this class, in other processes too: its name, or
        where it lives. What `register` has named is known by that name in this process alone, so
        it goes by its name only where no other process could find it: made in a function, in a
        script or in a notebook."""
        everywhere = kind.name in self._homes or kind.name in self._entry_points
        if everywhere and self.find(kind.name) is kind:
            return kind.name
        at_home = kind.__module__ == "__main__" or not is_place(place_of(kind))
        if at_home and self._registered.get(kind.name) is kind:
            return kind.name
        return place_of(kind)

    def register(self, kind: type[Kind]) -> type[Kind]:
        """Give a class its name in this process."""
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
        """Take back what `register` did."""
        self._registered.pop(name, None)

    def _checked(self, found: Any, text: str) -> type[Kind]:
        base = attribute_at(self._base_place, self.noun)
        if not (isinstance(found, type) and issubclass(found, base)) or inspect.isabstract(found):
            if inspect.isabstract(found) and issubclass(found, base):
                missing = ", ".join(sorted(found.__abstractmethods__))
                raise InvalidParameter(
                    f"{self.noun} {quoted(text)} must say what it does in {missing}, which it has "
                    f"not"
                )
            raise InvalidParameter(
                f"{self.noun} {quoted(text)} is {quoted(found)}; must be a subclass of "
                f"{base.__module__}.{base.__name__}"
            )
        return found


def register(kind: type[Kind]) -> type[Kind]:
    """Give a planner, learner or problem of your own its name in this process; a decorator.

    It is then listed by `fmdp list`, may be named wherever fmdp's own are, and is what
    `fmdp.testing` checks. For other processes use module:Class, or an entry point.

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
        Where it is no such class, is abstract, or its name is taken or no name.
    """
    registry = getattr(kind, "registry", None)
    if not isinstance(kind, type) or not isinstance(registry, Registry):
        raise InvalidParameter(
            f"register takes a class that inherits from fmdp.Planner, fmdp.Learner or "
            f"fmdp.Problem; got {quoted(kind)}"
        )
    return registry.register(kind)


def is_place(text: str) -> bool:
    """Whether a text is module:Class, or module:function."""
    return _PLACE.fullmatch(text) is not None


def attribute_at(
    place: str, noun: str, folder: Path | None = None, *, importing: bool = True
) -> Any:
    """What lives at module:name, imported; UnknownName or InvalidParameter in one line.

    Without `importing` a module that is not there yet is refused.
    """
    module_name, _, path = place.partition(":")
    if importing:
        module = _imported(module_name, place, noun, folder)
    elif module_name in sys.modules:
        module = sys.modules[module_name]
    else:
        raise InvalidParameter(
            f"{noun} {quoted(place)} lives in a module that is not imported, and a file does not "
            f"import code; import {module_name} first"
        )
    found: Any = module
    for name in path.split("."):
        if not hasattr(found, name):
            public = [one for one in vars(module) if not one.startswith("_")]
            raise UnknownName(
                f"{noun} {quoted(place)}: module {module_name} has no {quoted(path)}"
                f"{did_you_mean(name, public)}"
            )
        found = getattr(found, name)
    return found


def _imported(name: str, place: str, noun: str, folder: Path | None) -> Any:
    # A script finds modules beside itself; the command line has no script, so it looks where the
    # user stands. At the end of the path: nothing that is installed is hidden by it.
    here = () if "" in sys.path else (str(Path.cwd()),)
    for extra in (*here, *(() if folder is None else (str(folder.resolve()),))):
        if extra not in sys.path:
            sys.path.append(extra)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UnknownName(
                f"{noun} {quoted(place)}: there is no module {error.name!r} here or among the "
                f"installed ones"
            ) from None
        raise _unimportable(place, noun, error) from error
    except Exception as error:
        raise _unimportable(place, noun, error) from error


def _unimportable(place: str, noun: str, error: BaseException) -> InvalidParameter:
    # The last line at the top of a module; a syntax error says itself where it is.
    lines = [one for one in traceback.extract_tb(error.__traceback__) if one.name == "<module>"]
    at = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
    return InvalidParameter(
        f"{noun} {quoted(place)}: its module cannot be imported: {type(error).__name__}: "
        f"{' '.join(str(error).split())}{at}"
    )


def _loaded(point: EntryPoint, noun: str) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise _unimportable(f"{point.name} = {point.value}", noun, error) from error
