"""OptimisticTables: the confidence set {P_i >= p-minus} of an optimistic learner, as tables.

With an estimate p-hat and widths w (Xu & Tewari 2020, the extreme transition P_i(x)^{s+}):

    p-minus = p-hat - min(w, p-hat),   free = 1 - sum p-minus,
    P_i(x)^{s+} = p-minus + free * 1{s},   R+ = min(hi, mean + w_R * (hi - lo))

Every distribution above p-minus is a mixture of the extreme transitions of that row, so planning
where each factor's target s is one more action is planning over the whole set. That model, the
extended FMDP, is `extended()`; its table i is |S_i| times the size of table i. A row of which
nothing is known has p-minus = 0 and free = 1. Rows above p-minus are distributions throughout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel
from fmdp.model.factored import ROW_TOLERANCE, FactoredMDP, as_distributions, check_model
from fmdp.model.spaces import FloatArray, items
from fmdp.model.structure import Structure, check_structure


@dataclass(frozen=True, eq=False)
class OptimisticTables:
    """What an optimistic planner reads: p-minus, the free mass, and optimistic rewards.

    The set of all models whose transition rows are at least `lower`. Frozen; the tables are copied
    and read-only. `from_widths` makes them from estimates and widths.

    Parameters
    ----------
    structure
        Sizes, scopes and ranges.
    lower
        For each state variable i the part p-minus of every row that is sure: [|X[Z_i]|, |S_i|], at
        least 0.
    free
        For each state variable i the mass of every row that may go anywhere, 1 - sum p-minus:
        [|X[Z_i]|].
    rewards
        For each reward factor k the optimistic means, inside its range: [|X[Z_k]|].

    Raises
    ------
    InvalidModel
        Where a shape is wrong, a row of lower and free does not sum to 1, or a reward is outside
        its range.
    """

    structure: Structure
    lower: tuple[FloatArray, ...]  # p-minus, [|X[Z_i]|, |S_i|] each
    free: tuple[FloatArray, ...]  # 1 - sum p-minus, [|X[Z_i]|] each
    rewards: tuple[FloatArray, ...]  # [|X[Z_k]|] each

    def __post_init__(self) -> None:
        s = self.structure
        check_structure(s, "OptimisticTables")
        for what, given, needed in (
            ("lower tables", self.lower, s.m),
            ("free tables", self.free, s.m),
            ("reward tables", self.rewards, s.l),
        ):
            if len(items(given, what)) != needed:
                raise InvalidModel(f"{len(given)} {what}; must be {needed}")
        lower: list[FloatArray] = []
        free: list[FloatArray] = []
        rewards: list[FloatArray] = []
        for i, (rows, size) in enumerate(zip(s.transition_rows, s.state_sizes, strict=True)):
            label = s.transition_label(i)
            lower.append(_table(self.lower[i], (rows, size), f"{label}: lower"))
            free.append(_table(self.free[i], (rows,), f"{label}: free"))
            missed = np.abs(lower[i].sum(axis=1) + free[i] - 1.0)
            bad = ~(missed <= ROW_TOLERANCE) | ~(free[i] >= 0.0) | ~(lower[i] >= 0.0).all(axis=1)
            if bad.any():
                row = int(bad.argmax())
                raise InvalidModel(
                    f"{label}, {s.row_label(s.transition_scopes[i], row)}: lower "
                    f"{lower[i][row].tolist()} and free {float(free[i][row])!r} must be at "
                    f"least 0 and sum to 1"
                )
        for k, (rows, (lo, hi)) in enumerate(zip(s.reward_rows, s.reward_ranges, strict=True)):
            label = s.reward_label(k)
            rewards.append(_table(self.rewards[k], (rows,), f"{label}: rewards"))
            outside = ~((rewards[k] >= lo) & (rewards[k] <= hi))
            if outside.any():
                row = int(outside.argmax())
                raise InvalidModel(
                    f"{label}, {s.row_label(s.reward_scopes[k], row)}: reward is "
                    f"{float(rewards[k][row])!r}; must be in its range [{lo!r}, {hi!r}]"
                )
        self._hold(lower, free, rewards)

    def _hold(
        self,
        lower: Sequence[FloatArray],
        free: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
    ) -> None:
        for field, tables in (("lower", lower), ("free", free), ("rewards", rewards)):
            for table in tables:
                table.flags.writeable = False
            object.__setattr__(self, field, tuple(tables))

    def __reduce__(self) -> tuple[type[OptimisticTables], tuple[Any, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    @classmethod
    def trusted(
        cls,
        structure: Structure,
        lower: Sequence[FloatArray],
        free: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
    ) -> OptimisticTables:
        """Tables that are right by the way they were made, taken as they are and not checked.

        For learners, which make them every episode. The arrays become read-only.

        Parameters
        ----------
        structure
            Sizes, scopes and ranges.
        lower
            For each state variable i an array [|X[Z_i]|, |S_i|].
        free
            For each state variable i an array [|X[Z_i]|].
        rewards
            For each reward factor k an array [|X[Z_k]|].
        """
        made = object.__new__(cls)
        object.__setattr__(made, "structure", structure)
        made._hold(lower, free, rewards)
        return made

    @classmethod
    def from_widths(
        cls,
        structure: Structure,
        p_hat: Sequence[npt.ArrayLike],
        widths: Sequence[npt.ArrayLike],
        reward_mean: Sequence[npt.ArrayLike],
        reward_width: Sequence[npt.ArrayLike],
    ) -> OptimisticTables:
        """The tables of estimates and widths, one array a factor.

        p-minus = p-hat - min(width, p-hat), and rewards are min(hi, mean + width * (hi - lo)).

        Parameters
        ----------
        structure
            Sizes, scopes and ranges.
        p_hat
            For each state variable i the estimated laws, [|X[Z_i]|, |S_i|]. A row may be all
            zeros (no visit): all its mass is free.
        widths
            For each state variable i the widths of the confidence intervals, at least 0; they
            broadcast to [|X[Z_i]|, |S_i|] and may be infinite.
        reward_mean
            For each reward factor k the estimated means, [|X[Z_k]|].
        reward_width
            For each reward factor k the widths, at least 0, in units of (hi - lo); they broadcast
            to [|X[Z_k]|] and may be infinite.

        Returns
        -------
        OptimisticTables
            The tables.

        Raises
        ------
        InvalidModel
            Where a number or shape is wrong; the text names the factor and the row.
        """
        s = structure
        check_structure(s, "OptimisticTables")
        for what, given, needed in (
            ("transition estimates", p_hat, s.m),
            ("transition widths", widths, s.m),
            ("reward means", reward_mean, s.l),
            ("reward widths", reward_width, s.l),
        ):
            if len(items(given, what)) != needed:
                raise InvalidModel(f"{len(given)} {what}; must be {needed}")
        lower: list[FloatArray] = []
        free: list[FloatArray] = []
        for i, shape in enumerate(zip(s.transition_rows, s.state_sizes, strict=True)):
            estimate = _table(p_hat[i], shape, f"{s.transition_label(i)}: p_hat")
            # Written so that a comparison with NaN counts as a flaw.
            if not (estimate.min() >= 0.0 and estimate.sum(axis=1).max() <= 1.0 + ROW_TOLERANCE):
                _refuse_estimate(s, i, estimate)
            width = _widths(widths[i], shape, f"{s.transition_label(i)}: widths")
            lower.append(estimate - np.minimum(width, estimate))
            free.append(np.maximum(1.0 - lower[i].sum(axis=1), 0.0))
        rewards: list[FloatArray] = []
        for k, (rows, (lo, hi)) in enumerate(zip(s.reward_rows, s.reward_ranges, strict=True)):
            label = s.reward_label(k)
            mean = _table(reward_mean[k], (rows,), f"{label}: reward_mean")
            if not np.isfinite(mean).all():
                raise InvalidModel(f"{label}: reward_mean has entries that are not finite")
            width = _widths(reward_width[k], (rows,), f"{label}: reward_width")
            # A factor of range 0 is known, whatever its width (inf * 0 is not a number).
            bonus = width * (hi - lo) if hi > lo else np.zeros(rows)
            rewards.append(np.clip(mean + bonus, lo, hi))
        # The constructor's checks hold by the formulas above.
        return cls.trusted(s, lower, free, rewards)

    @classmethod
    def from_model(cls, model: FactoredMDP) -> OptimisticTables:
        """Zero widths: the model itself, nothing free.

        Parameters
        ----------
        model
            The one model of the set.
        """
        check_model(model, "OptimisticTables")
        free = tuple(np.zeros(rows) for rows in model.structure.transition_rows)
        return cls(model.structure, model.transitions, free, model.rewards)

    def extreme_row(self, i: int, row: int, target: int) -> FloatArray:
        """An extreme transition P_i(x)^{s+}: p-minus with all free mass on one value.

        Parameters
        ----------
        i
            Number of the state variable.
        row
            Number of the assignment of its scope.
        target
            The value that the free mass goes to.

        Returns
        -------
        numpy.ndarray
            [|S_i|], a distribution.
        """
        extreme: FloatArray = self.lower[i][row].copy()
        extreme[target] += self.free[i][row]
        return extreme

    def extended(self) -> FactoredMDP:
        """The extended FMDP: m more action variables, target t_i with the values of S_i.

        Factor i's scope gains t_i, number m + (action variables) + i; the paper calls the scopes
        unchanged. Rewards do not depend on targets. The initial state is all zeros, as no
        learner's tables have another.
        """
        structure = _extended_structure(self.structure)
        tables = []
        for i, (lower, free) in enumerate(zip(self.lower, self.free, strict=True)):
            size = lower.shape[1]
            table = lower[:, None, :] + free[:, None, None] * np.eye(size)  # [rows, t_i, S_i]
            label = structure.transition_label(i)
            tables.append(as_distributions(table.reshape(-1, size), f"{label}, row {{}}".format))
        return FactoredMDP.trusted(structure, tables, self.rewards)


@lru_cache(maxsize=8)  # learners plan with the same structure thousands of times
def _extended_structure(s: Structure) -> Structure:
    first = len(s.sizes)
    taken = set(s.names)
    targets: list[str] = []
    for state_name in s.state_names:
        name = f"target_{state_name}"
        while name in taken:
            name += "_"
        taken.add(name)
        targets.append(name)
    return replace(
        s,
        action_sizes=s.action_sizes + s.state_sizes,
        transition_scopes=tuple((*scope, first + i) for i, scope in enumerate(s.transition_scopes)),
        action_names=s.action_names + tuple(targets),
        action_values=s.action_values + s.state_values,
    )


def _table(table: npt.ArrayLike, shape: tuple[int, ...], what: str) -> FloatArray:
    """A fresh float64 array of the shape."""
    array = _numbers(table, what)
    if array.shape != shape:
        raise InvalidModel(f"{what} has shape {list(array.shape)}; must be {list(shape)}")
    return array


def _refuse_estimate(s: Structure, i: int, estimate: FloatArray) -> None:
    fine = (estimate >= 0.0).all(axis=1) & (estimate.sum(axis=1) <= 1.0 + ROW_TOLERANCE)
    row = int((~fine).argmax())
    raise InvalidModel(
        f"{s.transition_label(i)}, {s.row_label(s.transition_scopes[i], row)}: p_hat is "
        f"{estimate[row].tolist()}; must be at least 0 and sum to at most 1"
    )


def _widths(width: npt.ArrayLike, shape: tuple[int, ...], what: str) -> FloatArray:
    array = _numbers(width, what)
    try:
        array = np.broadcast_to(array, shape)
    except ValueError:
        raise InvalidModel(
            f"{what} has shape {list(array.shape)}; must broadcast to {list(shape)}"
        ) from None
    if not array.min() >= 0.0:
        flawed = array[~(array >= 0.0)]
        raise InvalidModel(f"{what} has {float(flawed[0])!r}; all must be at least 0")
    return array


def _numbers(table: npt.ArrayLike, what: str) -> FloatArray:
    try:
        return np.array(table, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise InvalidModel(f"{what} must be an array of numbers") from None
