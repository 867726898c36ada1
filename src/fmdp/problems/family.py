"""What a family of problems is, and the options that mean the same in every family.

A family is a name, a size (or none), parameters, and a function that builds the model: it gets
the canonical id as `name` and every resolved value as a keyword. `reward=mean` divides every
reward factor, its range included, by the number of components n (machines, copies, variables).

A family predicts the bytes of its tables before it makes them, so that a size with a few zeros
too many is refused at once instead of filling the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fmdp.errors import TooLarge
from fmdp.model.factored import FactoredMDP
from fmdp.parameters import REQUIRED, Choice, Integer, Parameter, quoted

REWARD = Choice(
    "reward",
    "sum",
    "the reward is the sum of the factors, or every factor is divided by the size",
    choices=("sum", "mean"),
)

# The range of seeds is that of numpy's RandomState, which the `xu` tables are defined by.
HIGHEST_SEED = 2**32 - 1

# Twice this is in use for a moment, while the model makes its own copy of the tables.
TABLE_LIMIT_BYTES = 2**30

# Beside its numbers a factor holds arrays, tuples and names: about this many bytes.
_BYTES_PER_FACTOR = 1024


@dataclass(frozen=True)
class Family:
    name: str
    summary: str
    size: Integer | None
    parameters: tuple[Parameter, ...]
    build: Callable[..., FactoredMDP]
    example: str

    @property
    def all_parameters(self) -> tuple[Parameter, ...]:
        return self.parameters if self.size is None else (self.size, *self.parameters)


def seed_parameter(default: int, meaning: str) -> Integer:
    return Integer("seed", default, meaning, low=0, high=HIGHEST_SEED)


def size_parameter(meaning: str) -> Integer:
    """The SIZE of an id."""
    return Integer("size", REQUIRED, meaning, low=1)


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
