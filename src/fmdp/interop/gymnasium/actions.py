"""Actions as Gymnasium has them: one number, or one number an action variable; and their masks.

Where constraints forbid actions, a mask over the joint actions (in C order, the last variable
fastest) says which are allowed: 1, and 0 where forbidden. Gymnasium's own masks of MultiDiscrete
speak of each variable by itself, and cannot say "at most two at once"; `JointActions` takes a mask
of joint actions. A forbidden action is either refused, or the lowest allowed joint action is done
in its place, which leaves the model's gain and best policies as they are.

The table of all masks is made once where it has at most 2^24 entries; else a mask is made when a
state is met, which costs as many operations as there are joint actions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from fmdp._base.parameters import Choice, quoted
from fmdp.errors import InvalidParameter, TooLarge
from fmdp.model import Structure
from fmdp.model.spaces import decode, strides

FORBIDDEN = Choice(
    "forbidden",
    "replace",
    "what becomes of a forbidden action: the lowest that is allowed is done, or it is an error",
    choices=("replace", "raise"),
)
MOST_MASKED = 1 << 20
"""Joint actions that have a mask."""
_MOST_TABULATED = 1 << 24

Ints = NDArray[np.int64]
Mask = NDArray[np.int8]


class JointActions(spaces.MultiDiscrete):
    """MultiDiscrete whose `sample` takes a mask of joint actions too.

    Parameters
    ----------
    nvec
        Number of values of each action variable.
    seed
        Of the samples.
    """

    def __init__(
        self, nvec: Any, dtype: Any = np.int64, seed: Any = None, start: Any = None
    ) -> None:
        super().__init__(nvec, dtype=dtype, seed=seed, start=start)

    def sample(self, mask: Any = None, probability: Any = None) -> Ints:
        """A joint action: any, or one that a mask allows.

        Parameters
        ----------
        mask
            int8 [joint actions] in C order, 1 where allowed, as `info["action_mask"]` is; or a
            tuple of masks, one a variable, as MultiDiscrete has it.
        probability
            As MultiDiscrete has it.

        Returns
        -------
        NDArray[np.int64]
            One value an action variable.

        Raises
        ------
        InvalidParameter
            Where the mask has another length, or allows nothing.
        """
        if not isinstance(mask, np.ndarray):
            found: Ints = super().sample(mask=mask, probability=probability)
            return found
        sizes = self.nvec.tolist()
        allowed = np.flatnonzero(mask)
        if mask.shape != (int(np.prod(self.nvec)),) or not len(allowed):
            raise InvalidParameter(
                f"a mask of joint actions must have {np.prod(self.nvec)} entries, one of them 1 at "
                f"least; got {quoted(mask)}"
            )
        chosen = allowed[self.np_random.integers(len(allowed))]
        return np.array(np.unravel_index(chosen, sizes), dtype=np.int64)


class Actions:
    """How actions of the one space become actions of the model.

    Parameters
    ----------
    structure
        Of the model.
    joint
        Whether the space is one number for each joint action.
    forbidden
        What becomes of a forbidden action, "replace" or "raise".
    owner
        How errors call the environment.
    """

    def __init__(self, structure: Structure, joint: bool, forbidden: str, owner: str) -> None:
        self.structure = structure
        self.owner = owner
        self.sizes = np.array(structure.action_sizes, dtype=np.int64)
        self.joint = joint and len(self.sizes) > 1
        if self.joint and structure.n_actions > np.iinfo(np.int64).max:
            raise TooLarge(
                f"{owner} has more joint actions than an integer can count; leave joint out",
                structure.n_actions,
                np.iinfo(np.int64).max,
            )
        self.single = self.joint or len(self.sizes) == 1
        self._replacing = FORBIDDEN.check(forbidden, owner) == "replace"
        self.masked = bool(structure.constraints) and structure.n_actions <= MOST_MASKED
        if structure.constraints and not self.masked and self._replacing:
            raise TooLarge(
                f"{owner} has constraints on {structure.n_actions} joint actions; to replace a "
                f"forbidden one at most {MOST_MASKED} are listed: give forbidden='raise'",
                structure.n_actions,
                MOST_MASKED,
            )
        self._table: Mask | None = None
        if self.masked and structure.n_states * structure.n_actions <= _MOST_TABULATED:
            self._table = structure.allowed_mask().astype(np.int8)
        self._state_steps = np.zeros(0, dtype=np.int64)
        if self._table is not None:
            self._state_steps = np.array(strides(structure.state_sizes), dtype=np.int64)
        self._steps = [*strides(structure.action_sizes)]

    def space(self) -> Any:
        """The action space of one environment."""
        if self.single:
            return spaces.Discrete(self.structure.n_actions)
        kind = JointActions if self.masked else spaces.MultiDiscrete
        return kind(self.sizes)

    def one(self, given: Any) -> Ints:
        """An action of one environment, one value an action variable."""
        found = np.asarray(given)
        if found.dtype.kind not in "iu" or found.shape != (() if self.single else self.sizes.shape):
            self.refuse(given, 1)
        values: list[int] = found.reshape(-1).tolist()
        allowed = (self.structure.n_actions,) if self.joint else self.structure.action_sizes
        if not all(0 <= value < size for value, size in zip(values, allowed, strict=True)):
            self.refuse(given, 1)
        if self.joint:
            values = list(decode(values[0], self.structure.action_sizes))
        return np.array(values, dtype=np.int64)

    def values(self, given: Any, copies: int) -> Ints:
        """Actions of so many copies, one value an action variable, as [copies, action variables];
        whether each value is one is for whoever uses it."""
        found = np.asarray(given)
        shape = (copies,) if self.single else (copies, len(self.sizes))
        if found.dtype.kind not in "iu" or found.shape != shape:
            self.refuse(given, copies)
        found = found.astype(np.int64, copy=False)
        if self.joint:
            if copies and not 0 <= found.min() <= found.max() < self.structure.n_actions:
                self.refuse(given, copies)
            return found[:, None] // np.array(self._steps, dtype=np.int64) % self.sizes
        return found.reshape(copies, len(self.sizes))

    def refuse(self, given: Any, copies: int) -> None:
        """An error for what is no action."""
        batch = f" for each of {copies} environments" if copies > 1 else ""
        if self.single:
            allowed = f"a whole number in 0..{self.structure.n_actions - 1}"
        else:
            allowed = f"{len(self.sizes)} whole numbers below {tuple(self.sizes.tolist())}"
        raise InvalidParameter(
            f"the action of {self.owner} must be {allowed}{batch}; got {quoted(given)}"
        )

    def masks(self, states: Ints) -> Mask:
        """[copies, joint actions]: 1 where an action is allowed in a state."""
        s = self.structure
        if not s.constraints:
            raise InvalidParameter(f"{self.owner} has no constraints: every action is allowed")
        if not self.masked:
            raise TooLarge(
                f"{self.owner} has {s.n_actions} joint actions; a mask has at most {MOST_MASKED}",
                s.n_actions,
                MOST_MASKED,
            )
        if self._table is not None:
            found: Mask = self._table[states @ self._state_steps]
            return found
        masks = np.zeros((len(states), s.n_actions), dtype=np.int8)
        for mask, state in zip(masks, states.tolist(), strict=True):
            mask[s.allowed_actions(state)] = 1
        return masks

    def allowed(self, states: Ints, values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """What is done, and whether it stands for something forbidden; or an error."""
        s = self.structure
        steps = np.array(self._steps, dtype=np.int64)
        if ((values < 0) | (values >= self.sizes)).any():
            self.refuse(values, len(values))
        if not self._replacing:
            for state, action in zip(states.tolist(), values.tolist(), strict=True):
                s.check_allowed(state, action)
            return values, np.zeros(len(values), dtype=np.bool_)
        masks = self.masks(states)
        numbers = values @ steps
        replaced = masks[np.arange(len(masks)), numbers] == 0
        if replaced.any():
            numbers = np.where(replaced, masks.argmax(axis=1), numbers)
            values = numbers[:, None] // steps % self.sizes
        return values, replaced
