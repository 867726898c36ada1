"""Actions of Gymnasium environments, and masks of allowed actions.

An action is one number, or one number per action variable. If there are constraints, a mask over
the joint actions (in C order, the last variable fastest) is 1 for allowed and 0 for forbidden ones.
Gymnasium's masks for MultiDiscrete treat each variable separately and cannot express "at most two
at once"; `JointActions` accepts a mask of joint actions. A forbidden action is either refused, or
replaced by the allowed joint action with the lowest number, which changes neither the optimal gain
nor the optimal policies.

The table of all masks is made once if it has at most 2^24 entries; otherwise a mask is made per
visited state, in time proportional to the number of joint actions.
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
    "whether a forbidden action is replaced by the lowest allowed one, or is an error",
    choices=("replace", "raise"),
)
MOST_MASKED = 1 << 20
"""Most joint actions for which masks are made."""
_MOST_TABULATED = 1 << 24
"""Most entries of the table of all masks; 16 MiB."""

Ints = NDArray[np.int64]
Mask = NDArray[np.int8]


class JointActions(spaces.MultiDiscrete):
    """MultiDiscrete whose `sample` also accepts a mask of joint actions.

    Parameters
    ----------
    nvec
        Number of values of each action variable.
    seed
        Seed of the samples.
    """

    def __init__(
        self, nvec: Any, dtype: Any = np.int64, seed: Any = None, start: Any = None
    ) -> None:
        super().__init__(nvec, dtype=dtype, seed=seed, start=start)

    def sample(self, mask: Any = None, probability: Any = None) -> Ints:
        """Return a random joint action, among those that a mask allows.

        Parameters
        ----------
        mask
            int8 [joint actions] in C order, 1 if allowed, as in `info["action_mask"]`; or a tuple
            of masks, one per variable, as in MultiDiscrete.
        probability
            As in MultiDiscrete.
        """
        if not isinstance(mask, np.ndarray):
            return np.asarray(super().sample(mask=mask, probability=probability))
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
    """Conversion of actions of the Gymnasium space to actions of the model.

    `joint`, `forbidden`: as in `FactoredEnv`; `owner`: how error messages call the environment.
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
        """Return the action space of one environment."""
        if self.single:
            return spaces.Discrete(self.structure.n_actions)
        kind = JointActions if self.masked else spaces.MultiDiscrete
        return kind(self.sizes)

    def one(self, given: Any) -> Ints:
        """Return an action of one environment as one value per action variable."""
        array = np.asarray(given)
        if array.dtype.kind not in "iu" or array.shape != (() if self.single else self.sizes.shape):
            self.refuse(given, 1)
        values: list[int] = array.reshape(-1).tolist()
        allowed = (self.structure.n_actions,) if self.joint else self.structure.action_sizes
        if not all(0 <= value < size for value, size in zip(values, allowed, strict=True)):
            self.refuse(given, 1)
        if self.joint:
            values = list(decode(values[0], self.structure.action_sizes))
        return np.array(values, dtype=np.int64)

    def values(self, given: Any, copies: int) -> Ints:
        """Return actions of all copies as [copies, action variables].

        The caller has to check that each value is in range.
        """
        array = np.asarray(given)
        shape = (copies,) if self.single else (copies, len(self.sizes))
        if array.dtype.kind not in "iu" or array.shape != shape:
            self.refuse(given, copies)
        array = array.astype(np.int64, copy=False)
        if self.joint:
            if copies and not 0 <= array.min() <= array.max() < self.structure.n_actions:
                self.refuse(given, copies)
            return array[:, None] // np.array(self._steps, dtype=np.int64) % self.sizes
        return array.reshape(copies, len(self.sizes))

    def refuse(self, given: Any, copies: int) -> None:
        """Raise InvalidParameter for something that is not an action."""
        batch = f" for each of {copies} environments" if copies > 1 else ""
        if self.single:
            allowed = f"a whole number in 0..{self.structure.n_actions - 1}"
        else:
            allowed = f"{len(self.sizes)} whole numbers below {tuple(self.sizes.tolist())}"
        raise InvalidParameter(
            f"the action of {self.owner} must be {allowed}{batch}; got {quoted(given)}"
        )

    def masks(self, states: Ints) -> Mask:
        """Return the masks of states: [copies, joint actions]."""
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
            return np.asarray(self._table[states @ self._state_steps])
        masks = np.zeros((len(states), s.n_actions), dtype=np.int8)
        for mask, state in zip(masks, states.tolist(), strict=True):
            mask[s.allowed_actions(state)] = 1
        return masks

    def allowed(self, states: Ints, values: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the actions to take, and which of them replace a forbidden one."""
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
