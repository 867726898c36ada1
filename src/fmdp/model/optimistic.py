"""OptimisticTables: the confidence set of an optimistic learner, as tables.

With an estimate p-hat and widths w (Xu & Tewari 2020, the extreme transition P_i(x)^{s+}) the set
of a row is {p >= p-minus}:

    p-minus = p-hat - min(w, p-hat),   free = 1 - sum p-minus,
    P_i(x)^{s+} = p-minus + free * 1{s},   R+ = min(hi, mean + w_R * (hi - lo))

Every distribution above p-minus is a mixture of the extreme transitions of that row, so planning
with the target s of each factor as one more action is planning over the whole set. That model, the
extended FMDP, is `extended()`; its table i is |S_i| times the size of table i. A row without
observations has p-minus = 0 and free = 1.

With upper ends the set of a row is a box, p-minus <= p <= upper, sum p = 1 (Givan, Leach & Dean
2000): the best p for values v is p-minus with the free mass assigned in decreasing order of v, each
value up to its upper end; the worst p, in increasing order. `upper` = 1 is the set above.

With a radius the set of a row is a ball, |p - p-hat|_1 <= radius (`from_balls`): the best p is
p-hat with half the radius moved from the worst values to the best one, as far as they have it.
`lower` and `upper` are then a box around the ball, the same set if there are two values. With
distance="kl" the ball is {p : KL(p-hat, p) <= radius} (Filippi, Cappe & Garivier 2010; its maximum
is in elimination/steps.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel
from fmdp.model.alike import Alike
from fmdp.model.divergence import EVERYTHING, box_around
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.spaces import FloatArray, items, shown
from fmdp.model.structure import Structure, check_structure
from fmdp.model.tables import ROW_TOLERANCE, as_distributions, make_equal

DISTANCES = ("l1", "kl")
"""Distances of a row from the centre of its ball."""


@dataclass(frozen=True, eq=False)
class OptimisticTables:
    """Optimistic rewards and the set of all models whose transition rows are at least `lower`.

    Frozen; the tables are copied and read-only. `from_widths` and `from_balls` make them from
    estimates.

    Parameters
    ----------
    structure
        Sizes, scopes and ranges.
    lower
        For each state variable i the certain part p-minus of every row: [|X[Z_i]|, |S_i|], at
        least 0.
    free
        For each state variable i the unassigned mass of every row, 1 - sum p-minus: [|X[Z_i]|].
    rewards
        For each reward factor k the optimistic means, inside its range: [|X[Z_k]|].
    upper
        For each state variable i upper bounds of the probabilities: [|X[Z_i]|, |S_i|], from lower
        to 1, every row with a sum of at least 1. None means 1.
    centre
        For each state variable i the centres of balls: distributions [|X[Z_i]|, |S_i|] between
        lower and upper; None without balls.
    radius
        For each state variable i the largest distance of a row from its centre: [|X[Z_i]|], at
        least 0.
    distance
        Distance of a row p from its centre: "l1", the sum of the absolute differences, or "kl", the
        divergence KL(centre, p). Used with balls only.

    Raises
    ------
    InvalidModel
        If a shape is wrong, a row of lower and free does not sum to 1, an upper end is below its
        lower one, a reward is outside its range, or alike rows differ.
    """

    structure: Structure
    lower: tuple[FloatArray, ...]  # p-minus, [|X[Z_i]|, |S_i|] each
    free: tuple[FloatArray, ...]  # 1 - sum p-minus, [|X[Z_i]|] each
    rewards: tuple[FloatArray, ...]  # [|X[Z_k]|] each
    upper: tuple[FloatArray, ...] | None = None  # [|X[Z_i]|, |S_i|] each
    centre: tuple[FloatArray, ...] | None = None  # p-hat, [|X[Z_i]|, |S_i|] each
    radius: tuple[FloatArray, ...] | None = None  # [|X[Z_i]|] each
    distance: str = "l1"

    def __post_init__(self) -> None:
        s = self.structure
        check_structure(s, "OptimisticTables")
        _check_distance(self.distance)
        rows, shapes = [(n,) for n in s.transition_rows], _shapes(s)
        lower = self._tables("lower", "lower tables", shapes)
        free = self._tables("free", "free tables", rows)
        for i, (least, mass) in enumerate(zip(lower, free, strict=True)):
            fine = np.abs(least.sum(axis=1) + mass - 1.0) <= ROW_TOLERANCE
            fine &= (mass >= 0.0) & (least >= 0.0).all(axis=1)
            if not fine.all():
                row, label = _bad_row(s, i, fine)
                raise InvalidModel(
                    f"{label}: lower {least[row].tolist()} and free {float(mass[row])!r} "
                    f"must be at least 0 and sum to 1"
                )
        made = {"lower": lower, "free": free}
        if self.upper is not None:
            made["upper"] = self._tables("upper", "upper tables", shapes)
            self._check_upper(lower, made["upper"])
        if self.centre is not None or self.radius is not None:
            if self.centre is None or self.radius is None or self.upper is None:
                raise InvalidModel("a ball has a centre, a radius, and lower and upper ends")
            made["centre"] = self._tables("centre", "tables of centres", shapes)
            made["radius"] = self._tables("radius", "tables of radii", rows)
            self._check_balls(**made)
        rewards = self._checked_rewards()
        self._hold(
            {field: make_equal(s, tables) for field, tables in made.items()}
            | {"rewards": make_equal(s, rewards, of_rewards=True)}
        )

    def _tables(self, field: str, what: str, shapes: Sequence[tuple[int, ...]]) -> list[FloatArray]:
        """Return fresh tables, one of each shape, of a field over the transition factors."""
        given = getattr(self, field)
        _refuse_other_number(given, what, self.structure.m)
        return [
            _table(table, shape, f"{self.structure.transition_label(i)}: {field}")
            for i, (table, shape) in enumerate(zip(given, shapes, strict=True))
        ]

    def _checked_rewards(self) -> list[FloatArray]:
        s = self.structure
        _refuse_other_number(self.rewards, "reward tables", s.l)
        rewards: list[FloatArray] = []
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
        return rewards

    def _check_balls(
        self,
        lower: Sequence[FloatArray],
        free: Sequence[FloatArray],
        upper: Sequence[FloatArray],
        centre: Sequence[FloatArray],
        radius: Sequence[FloatArray],
    ) -> None:
        ends = zip(lower, upper, centre, radius, strict=True)
        for i, (least, most, middle, radii) in enumerate(ends):
            fine = np.abs(middle.sum(axis=1) - 1.0) <= ROW_TOLERANCE
            fine &= (least <= middle).all(axis=1) & (middle <= most).all(axis=1) & (radii >= 0.0)
            if not fine.all():
                row, label = _bad_row(self.structure, i, fine)
                raise InvalidModel(
                    f"{label}: centre {middle[row].tolist()} must sum to 1 between lower and "
                    f"upper, and the radius {float(radii[row])!r} must be at least 0"
                )

    def _check_upper(self, lower: Sequence[FloatArray], upper: Sequence[FloatArray]) -> None:
        for i, (least, most) in enumerate(zip(lower, upper, strict=True)):
            fine = (most >= least).all(axis=1) & (most <= 1.0).all(axis=1)
            fine &= most.sum(axis=1) >= 1.0 - ROW_TOLERANCE
            if not fine.all():
                row, label = _bad_row(self.structure, i, fine)
                raise InvalidModel(
                    f"{label}: upper {most[row].tolist()} must be from lower "
                    f"{least[row].tolist()} to 1 and sum to at least 1"
                )

    def _hold(self, tables: Mapping[str, Sequence[FloatArray] | None]) -> None:
        for field, arrays in tables.items():
            for table in arrays or ():
                table.flags.writeable = False
            vars(self)[field] = None if arrays is None else tuple(arrays)

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
        upper: Sequence[FloatArray] | None = None,
        centre: Sequence[FloatArray] | None = None,
        radius: Sequence[FloatArray] | None = None,
        *,
        distance: str = "l1",
    ) -> OptimisticTables:
        """Return tables that are right by construction, without checking or copying them.

        For learners, which make them every episode. `structure`, `lower`, `free`, `rewards`,
        `upper`, `centre`, `radius` and `distance` are as in the constructor, arrays of exactly
        these shapes, and become read-only.
        """
        tables = object.__new__(cls)
        vars(tables)["structure"] = structure
        vars(tables)["distance"] = distance
        sets = {"lower": lower, "free": free, "upper": upper, "centre": centre, "radius": radius}
        tables._hold({**sets, "rewards": rewards})
        return tables

    @classmethod
    def from_widths(
        cls,
        structure: Structure,
        p_hat: Sequence[npt.ArrayLike],
        widths: Sequence[npt.ArrayLike],
        reward_mean: Sequence[npt.ArrayLike],
        reward_width: Sequence[npt.ArrayLike],
    ) -> OptimisticTables:
        """Return the tables of estimates and widths, one array per factor.

        p-minus = p-hat - min(width, p-hat), and rewards are min(hi, mean + width * (hi - lo)).

        Parameters
        ----------
        structure
            Sizes, scopes and ranges.
        p_hat
            For each state variable i the estimated probabilities, [|X[Z_i]|, |S_i|]. A row
            may be all zeros (no visit): all its mass is free.
        widths
            For each state variable i the widths of the confidence intervals, at least 0; they
            broadcast to [|X[Z_i]|, |S_i|] and may be infinite.
        reward_mean
            For each reward factor k the estimated means, [|X[Z_k]|].
        reward_width
            For each reward factor k the widths, at least 0, in units of (hi - lo); they broadcast
            to [|X[Z_k]|] and may be infinite.

        Raises
        ------
        InvalidModel
            If a number or shape is wrong; the message names the factor and the row.
        """
        s = structure
        check_structure(s, "OptimisticTables")
        for what, given, needed in (
            ("transition estimates", p_hat, s.m),
            ("transition widths", widths, s.m),
            ("reward means", reward_mean, s.l),
            ("reward widths", reward_width, s.l),
        ):
            _refuse_other_number(given, what, needed)
        lower: list[FloatArray] = []
        free: list[FloatArray] = []
        for i, shape in enumerate(_shapes(s)):
            estimate = _estimate(s, i, p_hat[i])
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
            # The reward of a factor of range 0 is known; an infinite width would give inf * 0.
            bonus = width * (hi - lo) if hi > lo else np.zeros(rows)
            rewards.append(np.clip(mean + bonus, lo, hi))
        # The constructor's other checks hold by the formulas above.
        equal = make_equal(s, rewards, of_rewards=True)
        return cls.trusted(s, make_equal(s, lower), make_equal(s, free), equal)

    @classmethod
    def from_balls(
        cls,
        structure: Structure,
        p_hat: Sequence[npt.ArrayLike],
        radius: Sequence[npt.ArrayLike],
        rewards: Sequence[npt.ArrayLike],
        distance: str = "l1",
    ) -> OptimisticTables:
        """Return the tables of the sets |p - p-hat|_1 <= radius, one array per factor.

        Parameters
        ----------
        structure
            Sizes, scopes and ranges.
        p_hat
            For each state variable i the estimated probabilities, [|X[Z_i]|, |S_i|]. A row
            may be all zeros (no visit): its ball is everything, whatever its radius.
        radius
            For each state variable i the radii, at least 0; they broadcast to [|X[Z_i]|] and may
            be infinite.
        rewards
            For each reward factor k the optimistic means, inside its range: [|X[Z_k]|].
        distance
            "l1", or "kl" for the sets KL(p-hat, p) <= radius.

        Raises
        ------
        InvalidModel
            If a number or shape is wrong; the message names the factor and the row.
        """
        s = structure
        check_structure(s, "OptimisticTables")
        _check_distance(distance)
        _refuse_other_number(p_hat, "transition estimates", s.m)
        _refuse_other_number(radius, "radii", s.m)
        made: dict[str, list[FloatArray]] = {
            name: [] for name in ("lower", "free", "upper", "centre", "radius")
        }
        for i, shape in enumerate(_shapes(s)):
            centre = _estimate(s, i, p_hat[i])
            unseen = ~centre.any(axis=1)
            centre[unseen] = 1.0 / shape[1]
            radii = np.array(_widths(radius[i], shape[:1], f"{s.transition_label(i)}: radius"))
            if distance == "kl":
                radii[unseen] = EVERYTHING
                radii = np.minimum(radii, EVERYTHING)
                lower, upper = box_around(centre, radii)
            else:
                radii[unseen] = 2.0
                radii = np.minimum(radii, 2.0)  # no two distributions are further apart
                half = 0.5 * radii[:, None]
                lower, upper = np.maximum(centre - half, 0.0), np.minimum(centre + half, 1.0)
            made["lower"].append(lower)
            made["free"].append(np.maximum(1.0 - lower.sum(axis=1), 0.0))
            made["upper"].append(upper)
            made["centre"].append(centre)
            made["radius"].append(radii)
        tables = {name: tuple(parts) for name, parts in made.items()}
        return cls(s, rewards=tuple(items(rewards, "reward tables")), distance=distance, **tables)

    @classmethod
    def from_model(cls, model: FactoredMDP) -> OptimisticTables:
        """Return the set that contains only `model` itself."""
        check_model(model, "OptimisticTables")
        free = tuple(np.zeros(rows) for rows in model.structure.transition_rows)
        return cls(model.structure, model.transitions, free, model.rewards)

    def extreme_row(self, i: int, row: int, target: int) -> FloatArray:
        """Return an extreme transition P_i(x)^{s+}: p-minus with all free mass on one value.

        `i` is the number of the state variable, `row` a row of its table, and `target` the value.
        """
        extreme: FloatArray = self.lower[i][row].copy()
        extreme[target] += self.free[i][row]
        return extreme

    def extended(self) -> FactoredMDP:
        """Return the extended FMDP: m more action variables, target t_i with the values of S_i.

        The scope of factor i gains t_i, number m + (action variables) + i; the paper calls the
        scopes unchanged. Rewards do not depend on targets. The initial state is all zeros.

        Raises
        ------
        InvalidModel
            If there are upper ends: the corners of a box or a ball are other points.
        """
        if self.upper is not None:
            raise InvalidModel(
                "tables with upper ends have no extended FMDP (targets=vertex, planner alp): its "
                "targets take all of the free mass; only targets=nested takes boxes and balls"
            )
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
        alike=_extended_alike(s),
        # A target acts together with chance, not before it.
        effects=None,
    )


def _extended_alike(s: Structure) -> Alike | None:
    """Return the classes of rows with targets; the target is the last variable of the scope."""
    if s.alike is None:
        return None
    most = s.max_state_size
    transitions = tuple(
        (classes[:, None] * most + np.arange(size)).reshape(-1)
        for classes, size in zip(s.alike.transitions, s.state_sizes, strict=True)
    )
    return Alike(transitions, s.alike.rewards)


def _check_distance(distance: str) -> None:
    if distance not in DISTANCES:
        raise InvalidModel(
            f"the distance of balls is {shown(distance)}; must be {' or '.join(DISTANCES)}"
        )


def _shapes(s: Structure) -> list[tuple[int, int]]:
    """Return the shape of every transition table."""
    return list(zip(s.transition_rows, s.state_sizes, strict=True))


def _refuse_other_number(given: Any, what: str, needed: int) -> None:
    if len(items(given, what)) != needed:
        raise InvalidModel(f"{len(given)} {what}; must be {needed}")


def _bad_row(s: Structure, i: int, fine: npt.NDArray[np.bool_]) -> tuple[int, str]:
    """Return the first row of a transition factor that is not fine, and its label."""
    row = int((~fine).argmax())
    return row, f"{s.transition_label(i)}, {s.row_label(s.transition_scopes[i], row)}"


def _table(table: npt.ArrayLike, shape: tuple[int, ...], what: str) -> FloatArray:
    """Return a fresh float64 array of the shape."""
    array = _numbers(table, what)
    if array.shape != shape:
        raise InvalidModel(f"{what} has shape {list(array.shape)}; must be {list(shape)}")
    return array


def _estimate(s: Structure, i: int, given: npt.ArrayLike) -> FloatArray:
    """Return an estimated transition table; rows sum to at most 1."""
    estimate = _table(given, _shapes(s)[i], f"{s.transition_label(i)}: p_hat")
    # Written so that a comparison with NaN counts as a flaw.
    if not (estimate.min() >= 0.0 and estimate.sum(axis=1).max() <= 1.0 + ROW_TOLERANCE):
        fine = (estimate >= 0.0).all(axis=1) & (estimate.sum(axis=1) <= 1.0 + ROW_TOLERANCE)
        row, label = _bad_row(s, i, fine)
        raise InvalidModel(
            f"{label}: p_hat is {estimate[row].tolist()}; must be at least 0 and sum to at most 1"
        )
    return estimate


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
    except (TypeError, ValueError, OverflowError):
        raise InvalidModel(f"{what} must be an array of numbers") from None
