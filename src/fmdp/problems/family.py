"""The base class of problem families, and options with one meaning in every family.

A family is a class of settings with a method `build` that makes the model. An object of it is one
problem: Circle(size=7).build(). Its text is the canonical id, `NAME:SIZE[,key=value...]`, with the
settings that differ from their defaults, in the order of declaration. A setting called `size` is
the SIZE. `reward=mean` divides every reward factor, its range included, by the number of components
n (machines, copies, variables). `alike` declares to learners which rows are equal by the rule that
makes them; it never depends on their numbers.

A family predicts the bytes of its tables before it makes them, so that a size with a few zeros too
many is refused at once.
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

HIGHEST_SEED = 2**32 - 1
"""Largest seed of numpy's RandomState, which defines the `xu` tables."""
TABLE_LIMIT_BYTES = 2**30
"""Most bytes of tables that are built. The model copies them, so twice as many are in use."""
_BYTES_PER_FACTOR = 1024
"""Approximate bytes of a factor's arrays, tuples and names beside its numbers."""


class Problem(Settings, ABC):
    """A problem: settings, and the model that is made of them.

    A subclass declares its settings as fields and makes the model in `build`.
    """

    noun: ClassVar[str] = "problem"
    registry: ClassVar[Registry[Problem]] = PROBLEMS
    example: ClassVar[str] = ""
    """A small id, for `fmdp list` and for the checks; by default NAME, or NAME:3."""

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # The size comes first, as in an id, whichever class declares it.
        cls.parameters = tuple(sorted(cls.parameters, key=lambda p: p.name != "size"))
        if "example" not in cls.__dict__:
            size = cls.size_parameter()
            cls.example = cls.name if size is None else f"{cls.name}:{_small(size)}"

    @abstractmethod
    def build(self) -> FactoredMDP:
        """Make the model of these settings; `fmdp.problem` gives it the id as its name.

        Returns
        -------
        FactoredMDP
            Such as FactoredMDP.from_factors makes; the same on every call.
        """

    @classmethod
    def owner(cls) -> str:
        return cls.name

    @classmethod
    def size_parameter(cls) -> Parameter | None:
        """Return the parameter of an id's SIZE, or None."""
        return next((parameter for parameter in cls.parameters if parameter.name == "size"), None)

    @classmethod
    def options(cls) -> tuple[Parameter, ...]:
        """Return the parameters that an id has as key=value: all but the size."""
        return tuple(parameter for parameter in cls.parameters if parameter.name != "size")

    @classmethod
    def example_id(cls) -> str:
        """Return the example as a valid id, also for classes without a registered name."""
        return PROBLEMS.place(cls) + cls.example.removeprefix(cls.name)

    def __str__(self) -> str:
        """Return the canonical id."""
        head = PROBLEMS.place(type(self))
        values = {parameter.name: getattr(self, parameter.name) for parameter in self.parameters}
        size = self.size_parameter()
        if size is not None and values["size"] != size.default:
            head += f":{size.show(values['size'])}"
        return ",".join((head, *canonical(self.options(), values)))


def crew_setting() -> Any:
    """Return the setting of how many components may be replaced or rebooted at once."""
    return setting(None, "most replacements or reboots at once; no limit by default", low=0)


def reward_setting() -> Any:
    """Return the `reward` setting of a family whose reward is a sum over its components."""
    return setting(
        "sum",
        "the reward is the sum of the factors, or every factor is divided by the size",
        choices=("sum", "mean"),
    )


def alike_setting(*choices: str, **limits: Any) -> Any:
    """Return the `alike` setting of a family whose rows follow a rule."""
    meanings = {
        "rows": "rows: those of one machine of which the rule reads the same",
        "machines": "machines: those of all machines",
        "copies": "copies: the same row of every copy",
        "types": "types: the same row of all parts of one type",
    }
    listed = "; ".join(meanings[choice] for choice in choices)
    return setting(
        "none",
        f"rows that are known to be alike, none or {listed}",
        choices=("none", *choices),
        **limits,
    )


def unshared(classes: Sequence[IndexArray]) -> list[IndexArray]:
    """Return the same classes of rows, renumbered so that factors share none."""
    return list(
        itertools.accumulate(classes, lambda previous, factor: factor + int(previous.max()) + 1)
    )


def reward_divisor(reward: str, n: int) -> int:
    return n if reward == "mean" else 1


def refuse_if_too_large(name: str, table_entries: int, factors: int) -> None:
    """Raise TooLarge if tables of this many numbers in this many factors exceed the limit."""
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
    """Return 3, or the nearest allowed size."""
    return int(min(max(3, size.low), size.high)) if isinstance(size, Integer) else 3
