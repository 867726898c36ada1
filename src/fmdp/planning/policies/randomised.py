"""Randomised policies: uniform actions, and epsilon-greedy exploration around another policy.

They are not functions of the state. The owner of a generator draws the actions of the coming steps
in order. `draw(generator, n)` uses the same random numbers as n draws of one step, so that
simulating many steps at once changes nothing.

Under constraints a random action is uniform over the allowed joint actions: one uniform number
selects from their list, or one per action variable where caps allow too many to list (capped.py).
If the allowed actions depend on the state, the draw of a step is only a *lot* (an integer), and
`settle` turns it into an action when the state is known. So does exploration by variable, which
changes some action variables of the base's action: its lots are the new values.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fmdp._base.parameters import Number, quoted
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import Constraint, Structure
from fmdp.model.constraints import check_constraints, combinations_in, plain
from fmdp.model.naming import Naming
from fmdp.planning.policies.archive import Parts, StoredPolicy, policy_bytes
from fmdp.planning.policies.capped import CappedActions
from fmdp.planning.policies.policy import Policy

AS_THE_BASE_SAYS = -1
"""The drawn action of a step in which the base policy acts."""
LOTS = 1 << 53
"""Number of lots: as many as a generator has doubles in [0, 1)."""
_REMEMBERED_STATES = 1 << 12
"""Most states whose allowed actions are cached."""
_EPSILON = Number("epsilon", 0.1, "how often an action is random", low=0.0, high=1.0)


class RandomisedPolicy(StoredPolicy):
    """Base class of randomised policies: sizes, constraints, an optional base policy, `draw`."""

    base: Policy | None = None
    """The policy that acts in steps without a random action."""
    constraints: tuple[Constraint, ...] = ()
    """The constraints on random actions."""
    by_state: bool = False
    """Whether the allowed actions depend on the state, so that draws are lots."""

    def take_constraints(self, constraints: Sequence[Constraint] | None) -> None:
        m, sizes = len(self.state_sizes), self.state_sizes + self.action_sizes
        self.constraints = check_constraints(constraints or (), m, sizes)
        self.by_state = any(constraint.scope[0] < m for constraint in self.constraints)
        self._listed: dict[tuple[int, ...], NDArray[np.int64]] = {}
        self._capped: CappedActions | None = None

    def under(self, structure: Structure) -> RandomisedPolicy:
        """Return the policy with the constraints of a structure.

        Parameters
        ----------
        structure
            Its constraints replace those of the policy.
        """
        if self.constraints == structure.constraints:
            return self
        bound = copy.copy(self)
        bound.take_constraints(structure.constraints)
        return bound

    def _allowed(self, state: tuple[int, ...]) -> NDArray[np.int64]:
        """Return the joint actions that are allowed in a state: [A', action variables]."""
        actions = self._listed.get(state)
        if actions is None:
            m, sizes = len(self.state_sizes), self.state_sizes + self.action_sizes
            actions = combinations_in(self.constraints, state, m, sizes)
            if len(self._listed) < _REMEMBERED_STATES:
                self._listed[state] = actions
        return actions

    def _actions(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return random actions, or lots, from uniform numbers [steps, action variables]."""
        if not self.constraints:
            actions: NDArray[np.int64] = (uniforms * self.action_sizes).astype(np.int64)
            return actions
        if self.by_state:
            lots = np.zeros(uniforms.shape, dtype=np.int64)
            lots[:, 0] = (uniforms[:, 0] * LOTS).astype(np.int64)
            return lots
        if self._capped is None:
            try:
                allowed = self._allowed((0,) * len(self.state_sizes))
                return allowed[(uniforms[:, 0] * len(allowed)).astype(np.int64)]
            except TooLarge:
                sizes = self.state_sizes + self.action_sizes
                self._capped = CappedActions(self.constraints, len(self.state_sizes), sizes)
        return self._capped.draw(uniforms)

    def settle(self, drawn: NDArray[np.int64], state: Sequence[int]) -> tuple[int, ...]:
        """Return the action of one step.

        Parameters
        ----------
        drawn
            The row that `draw` returned for the step; not -1.
        state
            The state of the step, one value per state variable.
        """
        if not self.by_state:
            return tuple(drawn.tolist())
        allowed = self._allowed(tuple(state))
        return tuple(allowed[int(drawn[0]) * len(allowed) // LOTS].tolist())

    def content(self) -> Parts:
        # Digests contain the constraints of randomised policies, unless there are none.
        listed = [plain(constraint) for constraint in self.constraints]
        return {"constraints": listed} if listed else {}, {}

    @abstractmethod
    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        """Draw the actions of the coming steps.

        Parameters
        ----------
        generator
            The source of random numbers. It advances as for `steps` draws of one step.
        steps
            Number of steps.

        Returns
        -------
        NDArray[np.int64]
            [steps, action variables]: the random action of a step, or a row of -1 if the base
            acts. If the allowed actions depend on the state, it is a lot for `settle`.
        """

    def take_names(self, naming: Naming) -> None:
        super().take_names(naming)
        if self.base is not None and hasattr(self.base, "take_names"):
            self.base.take_names(naming)


class UniformPolicy(RandomisedPolicy):
    """Uniformly random actions in every step, over all joint actions that are allowed."""

    kind = "uniform"

    def __init__(
        self,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        constraints: Sequence[Constraint] = (),
        naming: Naming | None = None,
    ) -> None:
        super().__init__(tuple(state_sizes), tuple(action_sizes), naming)
        self.take_constraints(constraints)

    @classmethod
    def of(cls, structure: Structure) -> UniformPolicy:
        """Return the uniform policy of a structure."""
        return cls(
            structure.state_sizes,
            structure.action_sizes,
            structure.constraints,
            structure.naming,
        )

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        return self._actions(generator.random((steps, len(self.action_sizes))))

    def __repr__(self) -> str:
        return f"UniformPolicy({len(self.action_sizes)} action variables)"


class ExploringPolicy(RandomisedPolicy):
    """A uniformly random action with probability `epsilon`, otherwise the action of a base policy.

    Parameters
    ----------
    base
        The base policy, such as plan.policy; it must know its state and action sizes.
    epsilon
        The probability of a random action, in [0, 1].
    constraints
        Constraints on random actions; an agent replaces them by those of its structure.
    by_variable
        Whether each action variable is random on its own: it gets a uniformly random value with
        probability `epsilon`, independently of the others. If the resulting joint action is
        forbidden, the base acts. By default the whole joint action is random, or none of it.

    Raises
    ------
    InvalidParameter
        If the base does not know its sizes or depends on the time, epsilon is not in [0, 1], or
        `by_variable` is neither True nor False.
    """

    kind = "exploring"

    def __init__(
        self,
        base: Policy,
        epsilon: float,
        constraints: Sequence[Constraint] = (),
        by_variable: bool = False,
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
        if not isinstance(by_variable, bool):
            raise InvalidParameter(
                f"ExploringPolicy must have True or False as by_variable; got {quoted(by_variable)}"
            )
        self.by_variable = by_variable
        states, actions = map(tuple, sizes)  # type: ignore[arg-type]
        super().__init__(states, actions, getattr(base, "naming", None))
        self.take_constraints(constraints)

    def take_constraints(self, constraints: Sequence[Constraint] | None) -> None:
        super().take_constraints(constraints)
        # The action depends on what the base does in the state.
        self.by_state = self.by_state or self.by_variable

    def draw(self, generator: np.random.Generator, steps: int) -> NDArray[np.int64]:
        if self.by_variable:
            return self._new_values(generator.random((steps, len(self.action_sizes))))
        uniforms = generator.random((steps, 1 + len(self.action_sizes)))
        actions = self._actions(uniforms[:, 1:])
        actions[uniforms[:, 0] >= self.epsilon] = AS_THE_BASE_SAYS
        return actions

    def _new_values(self, uniforms: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return lots [steps, action variables]: 0 keeps the base's value, 1 + v sets v."""
        random = uniforms < self.epsilon
        share = np.divide(uniforms, self.epsilon, out=np.zeros_like(uniforms), where=random)
        # The quotient is below 1, but its product with a size may round up to the size.
        sizes = np.array(self.action_sizes, dtype=np.int64)
        values = np.minimum((share * sizes).astype(np.int64), sizes - 1)
        return np.where(random, 1 + values, 0)

    def settle(self, drawn: NDArray[np.int64], state: Sequence[int]) -> tuple[int, ...]:
        if not self.by_variable:
            return super().settle(drawn, state)
        assert self.base is not None
        action = self.base(tuple(state))
        changed = tuple(
            old if lot == 0 else lot - 1 for old, lot in zip(action, drawn.tolist(), strict=True)
        )
        joint, sizes = (*state, *changed), self.state_sizes + self.action_sizes
        forbidden = any(constraint.forbids(joint, sizes) for constraint in self.constraints)
        return action if forbidden else changed

    def content(self) -> Parts:
        header, _ = super().content()
        base = np.frombuffer(policy_bytes(self.base), dtype=np.uint8)
        if self.by_variable:
            header = {**header, "by_variable": True}
        return {**header, "epsilon": self.epsilon}, {"base": base}

    def __repr__(self) -> str:
        kind = ", by_variable=True" if self.by_variable else ""
        return f"ExploringPolicy({self.base!r}, {self.epsilon!r}{kind})"
