"""What to do when value iteration stands still on a model that is small enough to be written out.

Either the gain is one number that the iteration cannot find within its lifetime (states that are
left once in a million steps, a corridor that pays a little less at one end): then policy iteration
finds an h whose bounds meet, and the iteration goes on from there.  Or it depends on the state:
then two states are shown whose certified gains differ (gains.py).  No third answer is a proof, and
none is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, check_clock
from fmdp.elimination.ties import TIE_TOLERANCE, Ties
from fmdp.model import FactoredMDP
from fmdp.model.spaces import encode
from fmdp.planning.exact.iteration import Rescue

if TYPE_CHECKING:  # needed seldom, and SciPy's sparse solvers take their time to load
    from fmdp.planning.tabular.gains import Gains

Vector = NDArray[np.float64]

_NOISE = 1e3  # a gap of so many rounding errors is what rounding leaves


@dataclass(eq=False)
class Finish:
    """`iteration.solve` calls it with h when it stands still; it remembers what it found."""

    model: FactoredMDP
    backup: Backup
    tolerance: float
    ties: Ties
    memory_limit: int | None = None
    deadline: float | None = None
    gains: Gains | None = None
    """Of every state, if they were proved to differ."""
    actions: NDArray[np.int64] | None = None
    """A policy that gains the lower bound of the h that was found, or the gains."""
    solved: bool = False
    """Whether an h was found that solves the optimality equation."""
    unique_bias: bool = False
    """Whether every solution of the optimality equation is the same up to a constant: the actions
    that are optimal at h have one end component (Schweitzer & Federgruen 1978: there are as many
    degrees of freedom as a policy that is as recurrent as optimal ones can be has classes)."""

    def __call__(self, h: Vector, *, converged: bool = False) -> Rescue | None:
        """`converged`: the bounds of h meet, so that what is greedy for it is near the best."""
        from fmdp.planning.tabular.component import one_gain
        from fmdp.planning.tabular.flat import BYTES_AN_ENTRY, ENTRIES, end_components, flat_of
        from fmdp.planning.tabular.gains import best_gains

        # Not by what is free at the moment: the same run must come to the same plan anywhere.
        limit = ENTRIES if self.memory_limit is None else self.memory_limit // BYTES_AN_ENTRY
        flat = flat_of(self.model, min(ENTRIES, limit))
        if flat is None:
            return None
        start = None
        if converged:
            start = flat.advantages(self.backup.to_canonical(h))[0].argmax(axis=1)
        gains = best_gains(flat, self._check, start)
        if gains is None:
            return None
        if gains.lower.max() > gains.upper.min():
            self.gains, self.actions = gains, flat.played(gains.actions)
            return Rescue(differ=(float(gains.lower.min()), float(gains.upper.max())))
        all_states = np.ones(flat.n_states, dtype=np.bool_)
        all_pairs = np.ones((flat.n_states, flat.n_actions), dtype=np.bool_)
        whole = one_gain(flat, all_states, all_pairs, self._check, gains.actions)
        # Between components that are hardly ever left there may be a gain and no h to show it.
        self.actions = flat.played(gains.actions)
        known = Rescue(bounds=(float(gains.lower.min()), float(gains.upper.max())))
        if whole is None:
            return known if known.bounds[1] - known.bounds[0] <= self.tolerance else None
        worth, noise = flat.advantages(whole.h)
        best = (worth - noise).max(axis=1, keepdims=True)
        slack = min(TIE_TOLERANCE * self.model.structure.reward_unit, 0.25 * self.tolerance)
        tied = worth - noise >= best - slack
        if flat.stands is not None:
            tied &= flat.stands == np.arange(flat.n_actions)
        chosen = self._chosen(tied)
        lower = float(np.take_along_axis(worth - noise, chosen[:, None], axis=1).min())
        upper = min(float((worth + noise).max()), known.bounds[1])
        if upper - lower > max(self.tolerance, _NOISE * float(noise.max())):
            # Policy iteration did not end.  What is known may suffice; else the sweeps go on.
            return known if known.bounds[1] - known.bounds[0] <= self.tolerance else None
        self.actions, self.solved = chosen, True
        # As many components whether ties count or not: then nothing hangs on what a tie is.
        surely, perhaps = worth - noise >= best, worth + noise >= best - slack
        both = (surely,) if np.array_equal(surely, perhaps) else (surely, perhaps)
        self.unique_bias = all(end_components(flat, own).count == 1 for own in both)
        return Rescue(bounds=(lower, upper), h=self.backup.to_internal(whole.h))

    def _chosen(self, tied: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return one of the tied actions of every state, by the rule."""
        return self.ties.choose(np.where(tied, 0.0, -np.inf), 0.0)

    def _check(self) -> None:
        check_clock(self.deadline)

    def gain_from(self, state: tuple[int, ...]) -> tuple[float, float]:
        """Bounds on the best gain from a state, where gains differ."""
        assert self.gains is not None
        position = encode(state, self.model.structure.state_sizes)
        return float(self.gains.lower[position]), float(self.gains.upper[position])
