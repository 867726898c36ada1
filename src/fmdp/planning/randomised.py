"""Policies that draw: uniform actions, and a policy that is left now and then for a random action.

They are no functions of the state: somebody who owns a generator draws from them, in the order of
the steps. `draw(generator, n)` is what n steps come to, and takes the same numbers from the
generator as n draws of one step, so that playing many steps at once changes nothing.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter
from fmdp.model import Structure
from fmdp.parameters import Number, quoted
from fmdp.planning.policy import (
    Parts,
    Policy,
    array_in,
    policy_bytes,
    policy_from_bytes,
    sizes_in,
    write_policy,
)

AS_THE_BASE_SAYS = -1
_EPSILON = Number("epsilon", 0.1, "how often an action is random", low=0.0, high=1.0)


class RandomisedPolicy(ABC):
    """What all have: sizes, the policy behind it if there is one, and `draw`."""

    kind: ClassVar[str]
    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    base: Policy | None = None
    """Who is asked where nothing random is done."""

    @abstractmethod
    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        """What the coming steps do; so many draws of one step take the same random numbers.

        Parameters
        ----------
        generator
            Whence the random numbers come; it moves on.
        steps
            How many steps.

        Returns
        -------
        NDArray[np.int64]
            [steps, action variables]: the random action of a step, or -1 all over where the base
            is asked.
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file that `load_policy` reads.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced, whole or not at all.
        """
        write_policy(path, self)

    @abstractmethod
    def parts(self) -> Parts:
        """What its file holds: a header and arrays."""


class UniformPolicy(RandomisedPolicy):
    """Every action variable uniform at random, in every step."""

    kind = "uniform"

    def __init__(self, state_sizes: Sequence[int], action_sizes: Sequence[int]) -> None:
        self.state_sizes = tuple(state_sizes)
        self.action_sizes = tuple(action_sizes)

    @classmethod
    def of(cls, structure: Structure) -> UniformPolicy:
        """That of a structure."""
        return cls(structure.state_sizes, structure.action_sizes)

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        uniforms = generator.random((steps, len(self.action_sizes)))
        actions: NDArray[np.int64] = (uniforms * self.action_sizes).astype(np.int64)
        return actions

    def parts(self) -> Parts:
        return {"state_sizes": self.state_sizes, "action_sizes": self.action_sizes}, {}

    def __repr__(self) -> str:
        return f"UniformPolicy({len(self.action_sizes)} action variables)"


class ExploringPolicy(RandomisedPolicy):
    """With probability `epsilon` a uniform action, else what another policy says.

    Parameters
    ----------
    base
        The other policy, such as plan.policy: one that knows its state and action sizes.
    epsilon
        How often an action is random, in [0, 1].

    Raises
    ------
    InvalidParameter
        Where the base does not know its sizes, or epsilon is no such number.
    """

    kind = "exploring"

    def __init__(self, base: Policy, epsilon: float) -> None:
        sizes = [getattr(base, f"{what}_sizes", None) for what in ("state", "action")]
        if not callable(base) or None in sizes:
            raise InvalidParameter(
                f"the policy that ExploringPolicy leaves now and then must be one that a planner "
                f"made, or a TablePolicy; got {quoted(base)}"
            )
        self.base = base
        self.epsilon: float = _EPSILON.check(epsilon, "ExploringPolicy")
        self.state_sizes, self.action_sizes = (tuple(one) for one in sizes)  # type: ignore[arg-type]

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        uniforms = generator.random((steps, 1 + len(self.action_sizes)))
        actions: NDArray[np.int64] = (uniforms[:, 1:] * self.action_sizes).astype(np.int64)
        actions[uniforms[:, 0] >= self.epsilon] = AS_THE_BASE_SAYS
        return actions

    def parts(self) -> Parts:
        assert self.base is not None
        header = {
            "state_sizes": self.state_sizes,
            "action_sizes": self.action_sizes,
            "epsilon": self.epsilon,
        }
        base = np.frombuffer(policy_bytes(self.base), dtype=np.uint8)
        return header, {"base": base}

    def __repr__(self) -> str:
        return f"ExploringPolicy({self.base!r}, {self.epsilon!r})"


def from_archive(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> RandomisedPolicy:
    """What a policy file of either kind holds."""
    sizes = sizes_in(header)
    if header["kind"] == UniformPolicy.kind:
        return UniformPolicy(*sizes)
    held = array_in(arrays, "base", "u", (None,))
    if held.dtype != np.uint8:
        raise InvalidParameter(f"its part 'base' is of {held.dtype}; must be of uint8")
    # A base is a function of the state: none inside another inside another.
    base = policy_from_bytes(held.tobytes(), "its base", kinds=("table", "greedy"))
    epsilon = header.get("epsilon")
    if not isinstance(epsilon, int | float):
        raise InvalidParameter(f"its epsilon must be a number; got {quoted(epsilon)}")
    policy = ExploringPolicy(base, epsilon)
    if (policy.state_sizes, policy.action_sizes) != sizes:
        raise InvalidParameter("its base is a policy for other sizes than its header says")
    return policy
