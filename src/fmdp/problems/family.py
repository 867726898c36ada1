"""What a family of problems is, and the options that mean the same in every family.

A family is a class of settings with a `build` that makes the model; an object of it is one problem:
Circle(size=7).build(). Its text is the canonical id, `NAME:SIZE[,key=value...]` with the settings
that differ from their defaults, in the order of their declarations. A setting called `size` is the
SIZE. `reward=mean` divides every reward factor, its range included, by the number of components n
(machines, copies, variables). `alike` says what a learner is told of the rows that are equal by the
rule they are made by; it is never read off their numbers.

A family predicts the bytes of its tables before it makes them, so that a size with a few zeros
too many is refused at once instead of filling the memory.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from fmdp._base.parameters import Integer, Parameter, canonical, quoted
from fmdp._base.registries import Registry
from fmdp._base.settings import Settings, setting
from fmdp.errors import TooLarge
from fmdp.model.factored import FactoredMDP
from fmdp.model.spaces import IndexArray
from fmdp.problems.registry import PROBLEMS

# The range of seeds is that of numpy's RandomState, which the `xu` tables are defined by.
HIGHEST_SEED = 2**32 - 1

# Twice this is in use for a moment, while the model makes its own copy of the tables.
TABLE_LIMIT_BYTES = 2**30

# Beside its numbers a factor holds arrays, tuples and names: about this many bytes.
_BYTES_PER_FACTOR = 1024


class Problem(Settings, ABC):
    """A problem: settings, and a model that is made of them.

    A subclass declares its settings as fields and says in `build` what the model is.
    """

    noun: ClassVar[str] = "problem"
    registry: ClassVar[Registry[Problem]] = PROBLEMS
    example: ClassVar[str] = ""
    """A small id, for `fmdp list` and for the checks; by default NAME, or NAME:3."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # As in an id: the size is the first, in whichever of the classes it is declared.
        cls.parameters = tuple(sorted(cls.parameters, key=lambda one: one.name != "size"))
        if "example" not in cls.__dict__:
            size = cls.size_parameter()
            cls.example = cls.name if size is None else f"{cls.name}:{_small(size)}"

    @abstractmethod
    def build(self) -> FactoredMDP:
        """Make the model of these settings; `fmdp.problem` gives it the id as its name.

        Returns
        -------
        FactoredMDP
            Such as FactoredMDP.from_factors makes; the same whenever it is asked for.
        """

    @classmethod
    def owner(cls) -> str:
        return cls.name

    @classmethod
    def size_parameter(cls) -> Parameter | None:
        """The SIZE of an id, if there is one."""
        return next((one for one in cls.parameters if one.name == "size"), None)

    @classmethod
    def options(cls) -> tuple[Parameter, ...]:
        """What an id has as key=value: all but the size."""
        return tuple(one for one in cls.parameters if one.name != "size")

    @classmethod
    def example_id(cls) -> str:
        """The example as an id that reads back, whether or not the class has a name."""
        return PROBLEMS.place(cls) + cls.example.removeprefix(cls.name)

    def __str__(self) -> str:
        """The canonical id."""
        head = PROBLEMS.place(type(self))
        held = {one.name: getattr(self, one.name) for one in self.parameters}
        size = self.size_parameter()
        if size is not None and held["size"] != size.default:
            head += f":{size.show(held['size'])}"
        return ",".join((head, *canonical(self.options(), held)))


def reward_setting() -> Any:
    """The `reward` of a family whose reward is a sum over its components."""
    return setting(
        "sum",
        "the reward is the sum of the factors, or every factor is divided by the size",
        choices=("sum", "mean"),
    )


def alike_setting(*choices: str, **limits: Any) -> Any:
    """The `alike` of a family whose rows follow from a rule: what the structure says of them."""
    meanings = {
        "rows": "rows: those of one machine of which the rule reads the same",
        "machines": "machines: those of all machines",
        "copies": "copies: the same row of every copy",
    }
    return setting(
        "none",
        f"rows that are known to be alike, none or {'; '.join(meanings[one] for one in choices)}",
        choices=("none", *choices),
        **limits,
    )


def unshared(classes: Sequence[IndexArray]) -> list[IndexArray]:
    """The same classes of rows, none of them shared between factors."""
    return list(itertools.accumulate(classes, lambda last, own: own + int(last.max()) + 1))


def reward_divisor(reward: str, n: int) -> int:
    return n if reward == "mean" else 1


def refuse_if_too_large(name: str, table_entries: int, factors: int) -> None:
    """TooLarge if tables of this many numbers in this many factors are beyond the limit."""
    needed = 8 * table_entries + _BYTES_PER_FACTOR * factors
    if needed > TABLE_LIMIT_BYTES:
        about = f"about {needed / 2**30:.3g}" if needed < 2**60 else "more than a billion"
        raise TooLarge(
            f"problem {quoted(name)} needs {about} GiB of tables; "
            f"at most {TABLE_LIMIT_BYTES / 2**30:.3g} GiB are built",
            needed_bytes=needed,
            limit_bytes=TABLE_LIMIT_BYTES,
        )


def _small(size: Parameter) -> int:
    """3, or the nearest size that is allowed."""
    return int(min(max(3, size.low), size.high)) if isinstance(size, Integer) else 3
