"""Policies that draw: uniform actions, and a policy that is left now and then for a random action.

They are no functions of the state: somebody who owns a generator draws from them, in the order of
the steps. `draw(generator, n)` is what n steps come to, and takes the same numbers from the
generator as n draws of one step, so that playing many steps at once changes nothing.

Where constraints forbid actions, a random action is uniform over the joint actions that are
allowed: one uniform number picks from their list. If what is allowed hangs on the state, a step's
draw is only a *lot*, and `settle` makes the action of it when the state is known.
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import Number, quoted
from fmdp.errors import InvalidParameter
from fmdp.model import Constraint, Structure
from fmdp.model.constraints import check_constraints, combinations_in, plain
from fmdp.model.naming import Naming
from fmdp.planning.policies.archive import Parts, policy_bytes, write_policy
from fmdp.planning.policies.policy import Policy, naming_for

AS_THE_BASE_SAYS = -1
LOTS = 1 << 53
"""How many lots there are: as many as a generator has doubles."""
_REMEMBERED_STATES = 1 << 12
_EPSILON = Number("epsilon", 0.1, "how often an action is random", low=0.0, high=1.0)


class RandomisedPolicy(ABC):
    """What all have: sizes, the policy behind it if there is one, and `draw`."""

    kind: ClassVar[str]
    state_sizes: tuple[int, ...]
    action_sizes: tuple[int, ...]
    naming: Naming
    base: Policy | None = None
    """Who is asked where nothing random is done."""
    constraints: tuple[Constraint, ...] = ()
    """What forbids actions."""
    by_state: bool = False
    """Whether what is allowed hangs on the state, so that draws are lots."""

    def _hold(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        constraints: Sequence[Constraint],
    ) -> None:
        self.state_sizes, self.action_sizes = tuple(state_sizes), tuple(action_sizes)
        sizes = self.state_sizes + self.action_sizes
        self.constraints = check_constraints(constraints, len(self.state_sizes), sizes)
        m = len(self.state_sizes)
        self.by_state = any(constraint.scope[0] < m for constraint in self.constraints)
        self._listed: dict[tuple[int, ...], NDArray[np.int64]] = {}

    def under(self, structure: Structure) -> RandomisedPolicy:
        """The same with the constraints of a structure.

        Parameters
        ----------
        structure
            Whose constraints take the place of its own.
        """
        if self.constraints == structure.constraints:
            return self
        bound = copy.copy(self)
        bound._hold(self.state_sizes, self.action_sizes, structure.constraints)
        return bound

    def _allowed(self, state: tuple[int, ...]) -> NDArray[np.int64]:
        """The joint actions that are allowed in a state: [A', action variables]."""
        found = self._listed.get(state)
        if found is None:
            m, sizes = len(self.state_sizes), self.state_sizes + self.action_sizes
            found = combinations_in(self.constraints, state, m, sizes)
            if len(self._listed) < _REMEMBERED_STATES:
                self._listed[state] = found
        return found

    def _actions(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Random actions, or lots, from uniform numbers [steps, action variables]."""
        if not self.constraints:
            actions: NDArray[np.int64] = (uniforms * self.action_sizes).astype(np.int64)
            return actions
        if self.by_state:
            lots = np.zeros(uniforms.shape, dtype=np.int64)
            lots[:, 0] = (uniforms[:, 0] * LOTS).astype(np.int64)
            return lots
        allowed = self._allowed((0,) * len(self.state_sizes))
        return allowed[(uniforms[:, 0] * len(allowed)).astype(np.int64)]

    def settle(self, drawn: NDArray[np.int64], state: Sequence[int]) -> tuple[int, ...]:
        """The action of one step.

        Parameters
        ----------
        drawn
            What `draw` gave for the step, and not -1.
        state
            Where the step is taken, one value a state variable.
        """
        if not self.by_state:
            return tuple(drawn.tolist())
        allowed = self._allowed(tuple(state))
        return tuple(allowed[int(drawn[0]) * len(allowed) // LOTS].tolist())

    def _header(self) -> dict[str, Any]:
        header: dict[str, Any] = {
            "state_sizes": self.state_sizes,
            "action_sizes": self.action_sizes,
        }
        if self.constraints:
            header["constraints"] = [plain(constraint) for constraint in self.constraints]
        return header

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
            is asked. Where what is allowed hangs on the state it is a lot, for `settle`.
        """

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file that `load_policy` reads.

        Parameters
        ----------
        path
            Where to; a file that is there is replaced, whole or not at all.
        """
        write_policy(path, self)

    def take_names(self, naming: Naming) -> None:
        """Be known by these names from now on, and so the policy behind it.

        Parameters
        ----------
        naming
            As `structure.naming` is, for variables of the same sizes.
        """
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)
        if self.base is not None and hasattr(self.base, "take_names"):
            self.base.take_names(naming)

    @abstractmethod
    def parts(self) -> Parts:
        """What its file holds beside the names: a header and arrays."""


class UniformPolicy(RandomisedPolicy):
    """Every action variable uniform at random, in every step; of constrained joint actions every
    one that is allowed."""

    kind = "uniform"

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        constraints: Sequence[Constraint] = (),
        naming: Naming | None = None,
    ) -> None:
        self._hold(state_sizes, action_sizes, constraints)
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)

    @classmethod
    def of(cls, structure: Structure) -> UniformPolicy:
        """That of a structure."""
        return cls(
            structure.state_sizes,
            structure.action_sizes,
            structure.constraints,
            structure.naming,
        )

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        return self._actions(generator.random((steps, len(self.action_sizes))))

    def parts(self) -> Parts:
        return self._header(), {}

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
    constraints
        What forbids actions; an agent that plays it puts in those of its structure.

    Raises
    ------
    InvalidParameter
        Where the base does not know its sizes, or epsilon is no such number.
    """

    kind = "exploring"

    def __init__(
        self, base: Policy, epsilon: float, constraints: Sequence[Constraint] = ()
    ) -> None:
        sizes = [getattr(base, f"{what}_sizes", None) for what in ("state", "action")]
        if getattr(base, "horizon", None) is not None:
            raise InvalidParameter(
                f"the policy that ExploringPolicy leaves now and then must not depend on the time; "
                f"got {quoted(base)}"
            )
        if not callable(base) or None in sizes:
            raise InvalidParameter(
                f"the policy that ExploringPolicy leaves now and then must be one that a planner "
                f"made, or a TablePolicy; got {quoted(base)}"
            )
        self.base = base
        self.epsilon: float = _EPSILON.check(epsilon, "ExploringPolicy")
        states, actions = (tuple(one) for one in sizes)  # type: ignore[arg-type]
        self._hold(states, actions, constraints)
        naming = getattr(base, "naming", None)
        self.naming = naming_for(naming, self.state_sizes, self.action_sizes)

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        uniforms = generator.random((steps, 1 + len(self.action_sizes)))
        actions = self._actions(uniforms[:, 1:])
        actions[uniforms[:, 0] >= self.epsilon] = AS_THE_BASE_SAYS
        return actions

    def parts(self) -> Parts:
        assert self.base is not None
        header = {**self._header(), "epsilon": self.epsilon}
        base = np.frombuffer(policy_bytes(self.base), dtype=np.uint8)
        return header, {"base": base}

    def __repr__(self) -> str:
        return f"ExploringPolicy({self.base!r}, {self.epsilon!r})"
