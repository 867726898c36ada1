"""FactoredMDP: a structure with its tables, frozen, checked and comparable by content.

    P(s' | s, a) = prod_i P_i(s'_i | x[Z_i]),   R(s, a) = sum_k R_k(x[Z_k]),   x = (s, a)

Transition table i has one row for each assignment of its scope, in C order, and one column for
each value of S_i; reward table k has one mean for each assignment. Every row that is handed out
is a distribution: rows may miss 1 by at most ROW_TOLERANCE and are then divided by their sum.
Rows that are distributions up to rounding are left alone to the last bit, so that making a
model from the tables of a model changes nothing. Checking is vectorised: one pass over a table.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fmdp.errors import InvalidModel, InvalidParameter, UnknownName, did_you_mean
from fmdp.model.spaces import FloatArray, count, items, shown, strides, weighted_index, whole_number
from fmdp.model.structure import Structure, members, numerals

NoiseKind = Literal["deterministic", "bernoulli", "gaussian"]

ROW_TOLERANCE = 1e-9
"""How far a given row may miss 1, and (relative to the range's size) a mean its range."""


@dataclass(frozen=True)
class Noise:
    """The law of an observed reward around its mean; the mean is always what the table says.

    Parameters
    ----------
    kind
        "deterministic": the mean itself. "bernoulli": lo or hi of the range. "gaussian": mean +
        noise, the noise clipped at +-min(mean - lo, hi - mean).
    scale
        Standard deviation of gaussian noise before it is clipped, above 0, in the unit of the
        reward; 0 for the other kinds.

    Raises
    ------
    InvalidModel
        For an unknown kind, or a scale that does not go with it.
    """

    kind: NoiseKind = "deterministic"
    scale: float = 0.0

    def __post_init__(self) -> None:
        kinds = get_args(NoiseKind)
        if not isinstance(self.kind, str) or self.kind not in kinds:
            hint = did_you_mean(self.kind, kinds) if isinstance(self.kind, str) else ""
            raise InvalidModel(f"noise {self.kind!r}: must be one of {', '.join(kinds)}{hint}")
        if isinstance(self.scale, bool) or not isinstance(
            self.scale, (int, float, np.integer, np.floating)
        ):
            raise InvalidModel(f"noise {self.kind}: scale is {shown(self.scale)}; must be a number")
        try:
            scale = float(self.scale) + 0.0
        except OverflowError:
            scale = math.inf
        if self.kind == "gaussian":
            if not 0.0 < scale < math.inf:
                raise InvalidModel(f"noise gaussian: scale is {scale!r}; must be above 0, finite")
        elif scale != 0.0:
            raise InvalidModel(
                f"noise {self.kind}: scale is {scale!r}; only gaussian noise has a scale"
            )
        object.__setattr__(self, "scale", scale)


@dataclass(frozen=True, init=False, eq=False, repr=False)
class FactoredMDP:
    """A factored MDP: structure, transition and reward tables, noise, initial state, name.

    Frozen: tables are copied and read-only. Equal to another model, and of one hash with it,
    exactly if all contents are equal. `from_factors` makes one without a structure at hand.

    Parameters
    ----------
    structure
        Sizes, scopes, ranges and names.
    transitions
        For each state variable i a table [|X[Z_i]|, |S_i|], or with one axis for each variable of
        the scope, [size, ..., size, |S_i|]: the law of its next value for each assignment of its
        scope. A row may miss 1 by 1e-9 and is then divided by its sum.
    rewards
        For each reward factor k a table of means, [|X[Z_k]|] or [size, ..., size], inside its
        range.
    noise
        One law for all reward factors, or one for each; None is for rewards that are always their
        mean.
    initial_state
        One value a state variable; None is all zeros.
    name
        Any printable text on one line.

    Raises
    ------
    InvalidModel
        Where these do not make a model; the text names the factor, the row and the value.
    """

    structure: Structure
    transitions: tuple[FloatArray, ...]  # [|X[Z_i]|, |S_i|] each
    rewards: tuple[FloatArray, ...]  # [|X[Z_k]|] each
    noise: tuple[Noise, ...]
    initial_state: tuple[int, ...]
    name: str

    def __init__(
        self,
        structure: Structure,
        transitions: Sequence[npt.ArrayLike],
        rewards: Sequence[npt.ArrayLike],
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Sequence[int] | None = None,
        name: str = "",
    ) -> None:
        if not isinstance(structure, Structure):
            raise InvalidModel(f"structure is {structure!r}; must be a Structure")
        transitions = items(transitions, "transition tables")
        rewards = items(rewards, "reward tables")
        for given, needed, what in (
            (transitions, structure.m, "transition tables for {} state variables"),
            (rewards, structure.l, "reward tables for {} reward factors"),
        ):
            if len(given) != needed:
                raise InvalidModel(f"{len(given)} {what.format(needed)}; the numbers must agree")
        self._hold(
            structure,
            [
                _transition_table(structure, i, structure.transition_scopes[i], table)
                for i, table in enumerate(transitions)
            ],
            [
                _reward_table(structure, k, structure.reward_scopes[k], table)
                for k, table in enumerate(rewards)
            ],
            _noise(noise, structure.l),
            _initial_state(initial_state, structure),
            _printable(name),
        )

    def _hold(
        self,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
        noise: tuple[Noise, ...],
        initial_state: tuple[int, ...],
        name: str,
    ) -> None:
        """Set the fields, all of them checked; tables become read-only."""
        for table in (*transitions, *rewards):
            table.flags.writeable = False
        values: dict[str, Any] = {
            "structure": structure,
            "transitions": tuple(transitions),
            "rewards": tuple(rewards),
            "noise": noise,
            "initial_state": initial_state,
            "name": name,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    @classmethod
    def from_factors(
        cls,
        state_sizes: Sequence[int],
        action_sizes: Sequence[int],
        transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
        rewards: Sequence[tuple[Sequence[int | str], npt.ArrayLike]] = (),
        *,
        reward_ranges: Sequence[tuple[float, float]] = (),
        state_names: Sequence[str] = (),
        action_names: Sequence[str] = (),
        reward_names: Sequence[str] = (),
        state_values: Sequence[Sequence[str]] = (),
        action_values: Sequence[Sequence[str]] = (),
        groups: Sequence[Sequence[int | str]] = (),
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Sequence[int] | None = None,
        name: str = "",
    ) -> FactoredMDP:
        """A model from (scope, table) pairs, one for each factor.

        A scope is a list of variables, by number or by name, in any order; the table's axes are
        in that order (last variable fastest) and are permuted to the sorted scope.

        Parameters
        ----------
        state_sizes
            Number of values of each state variable, at least 1; there are m of them.
        action_sizes
            Number of values of each action variable, at least 1.
        transitions
            For each state variable i a pair (scope, table) with a table
            [size, ..., size, |S_i|] or [|X[scope]|, |S_i|] of probabilities of its next value.
        rewards
            For each reward factor a pair (scope, table) with a table [size, ..., size] or
            [|X[scope]|] of means.
        reward_ranges
            (lo, hi) of each reward factor; (0, 1) for all where none is given.
        state_names
            Names of the state variables; s0, s1, ... where none is given.
        action_names
            Names of the action variables; a0, a1, ... where none is given.
        reward_names
            Names of the reward factors; r0, r1, ... where none is given.
        state_values
            For each state variable the names of its values; "0", "1", ... where none is given.
        action_values
            For each action variable the names of its values; "0", "1", ... where none is given.
        groups
            Disjoint sets of state variables, by number or by name, that belong together.
        noise
            One law for all reward factors, or one for each; None is for rewards that are always
            their mean.
        initial_state
            One value a state variable; None is all zeros.
        name
            Any printable text on one line.

        Returns
        -------
        FactoredMDP
            The model, its scopes sorted.

        Raises
        ------
        InvalidModel
            Where these do not make a model; the text names the factor and the row as given.
        """
        sizes = items(state_sizes, "state sizes")
        variables = Structure(
            sizes,
            action_sizes,  # type: ignore[arg-type]  # Structure makes tuples of all these
            ((),) * len(sizes),
            (),
            state_names=state_names,  # type: ignore[arg-type]
            action_names=action_names,  # type: ignore[arg-type]
            state_values=state_values,  # type: ignore[arg-type]
            action_values=action_values,  # type: ignore[arg-type]
        )
        return cls.over(
            variables,
            transitions,
            rewards,
            reward_ranges=reward_ranges,
            reward_names=reward_names,
            groups=groups,
            noise=noise,
            initial_state=initial_state,
            name=name,
        )

    @classmethod
    def over(
        cls,
        variables: Structure,
        transitions: Sequence[tuple[Sequence[int | str], npt.ArrayLike]],
        rewards: Sequence[tuple[Sequence[int | str], npt.ArrayLike]] = (),
        *,
        reward_ranges: Sequence[tuple[float, float]] = (),
        reward_names: Sequence[str] = (),
        groups: Sequence[Sequence[int | str]] = (),
        noise: Noise | Sequence[Noise] | None = None,
        initial_state: Sequence[int] | None = None,
        name: str = "",
    ) -> FactoredMDP:
        """As `from_factors`, over the variables of a structure, whose factors do not count.

        Parameters
        ----------
        variables
            Has the sizes and names of all variables.
        transitions, rewards, reward_ranges, reward_names, groups, noise, initial_state, name
            As in `from_factors`.
        """
        transitions = _pairs(transitions, "transition factor")
        rewards = _pairs(rewards, "reward factor")
        bare = variables.with_factors(
            ((),) * variables.m, ((),) * len(rewards), reward_ranges, reward_names
        )
        if len(transitions) != bare.m:
            raise InvalidModel(
                f"{len(transitions)} transition factors for {bare.m} state variables; "
                f"there must be one a state variable"
            )
        # Checked in the given order, so that an error names the row as the caller counts.
        given: list[tuple[tuple[int, ...], FloatArray]] = []
        for i, (scope, table) in enumerate(transitions):
            numbers = _scope_numbers(bare, scope, bare.transition_label(i))
            given.append((numbers, _transition_table(bare, i, numbers, table)))
        for k, (scope, table) in enumerate(rewards):
            numbers = _scope_numbers(bare, scope, bare.reward_label(k))
            given.append((numbers, _reward_table(bare, k, numbers, table)))
        scopes = tuple(tuple(sorted(numbers)) for numbers, _ in given)
        tables = [sort_rows(bare.sizes, numbers, table) for numbers, table in given]
        structure = bare.with_factors(
            scopes[: bare.m],
            scopes[bare.m :],
            bare.reward_ranges,
            bare.reward_names,
            tuple(
                _scope_numbers(bare, group, f"group {index}")
                for index, group in enumerate(items(groups, "groups"))
            ),
        )
        made = object.__new__(cls)
        made._hold(
            structure,
            tables[: bare.m],
            tables[bare.m :],
            _noise(noise, bare.l),
            _initial_state(initial_state, bare),
            _printable(name),
        )
        return made

    @classmethod
    def trusted(
        cls,
        structure: Structure,
        transitions: Sequence[FloatArray],
        rewards: Sequence[FloatArray],
    ) -> FactoredMDP:
        """Tables that are right by the way they were made, taken as they are and not checked.

        For code that makes models by the thousand (a learner samples one every episode). The
        arrays must be what the constructor would leave alone, and become read-only. Noise, initial
        state and name are the defaults.

        Parameters
        ----------
        structure
            Sizes, scopes, ranges and names.
        transitions
            For each state variable i a C-contiguous array [|X[Z_i]|, |S_i|] whose rows are
            distributions up to rounding.
        rewards
            For each reward factor k an array [|X[Z_k]|] of means inside its range.
        """
        made = object.__new__(cls)
        laws = (Noise(),) * structure.l
        made._hold(structure, transitions, rewards, laws, (0,) * structure.m, "")
        return made

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 (hex) of everything in the model: the same on every machine and run."""
        header = {
            "structure": [getattr(self.structure, field.name) for field in fields(Structure)],
            "noise": [(noise.kind, noise.scale) for noise in self.noise],
            "initial_state": self.initial_state,
            "name": self.name,
        }
        digest = hashlib.sha256()
        for part in _json_parts(header):
            digest.update(part.encode())
        for table in self.transitions + self.rewards:
            digest.update(table.astype("<f8", copy=False).tobytes())
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FactoredMDP):
            return NotImplemented
        return (
            self.structure == other.structure
            and self.noise == other.noise
            and self.initial_state == other.initial_state
            and self.name == other.name
            and all(
                np.array_equal(mine, theirs)
                for mine, theirs in zip(
                    self.transitions + self.rewards,
                    other.transitions + other.rewards,
                    strict=True,
                )
            )
        )

    def __hash__(self) -> int:
        return int(self.content_hash[:15], 16)

    def __reduce__(self) -> tuple[type[FactoredMDP], tuple[Any, ...]]:
        # Through the constructor, because pickled arrays come back writeable.
        return type(self), tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        s = self.structure
        name = f"{self.name!r}: " if self.name else ""
        return (
            f"FactoredMDP({name}state sizes {s.state_sizes}, action sizes {s.action_sizes}, "
            f"{s.l} reward factors)"
        )

    def expected_reward(self, state: Sequence[int], action: Sequence[int]) -> float:
        """The mean reward of a state and action: R(s, a) = sum_k R_k(x[Z_k]).

        Parameters
        ----------
        state
            One value a state variable.
        action
            One value an action variable.

        Raises
        ------
        InvalidParameter
            Where the state or the action is none of the model's.
        """
        s = self.structure
        state, action = s.check_state(state), s.check_action(action)
        return float(
            sum(
                table[s.scope_row(scope, state, action)]
                for scope, table in zip(s.reward_scopes, self.rewards, strict=True)
            )
        )

    def transition_row(self, i: int, state: Sequence[int], action: Sequence[int]) -> FloatArray:
        """The law of the next value of one state variable, P_i(. | x[Z_i]).

        Parameters
        ----------
        i
            Number of the state variable.
        state
            One value a state variable.
        action
            One value an action variable.

        Returns
        -------
        numpy.ndarray
            [|S_i|], read-only.

        Raises
        ------
        InvalidParameter
            Where the state or the action is none of the model's.
        """
        s = self.structure
        state, action = s.check_state(state), s.check_action(action)
        row: FloatArray = self.transitions[i][s.scope_row(s.transition_scopes[i], state, action)]
        return row


def check_model(model: object, owner: str) -> None:
    """Refuse what is no model, and say where models come from."""
    if not isinstance(model, FactoredMDP):
        raise InvalidParameter(
            f"the model of {owner} must be a FactoredMDP (fmdp.problem or fmdp.load makes one); "
            f"got {shown(model)}"
        )


def _pairs(factors: Any, what: str) -> list[tuple[Any, Any]]:
    """(scope, table) of every factor."""
    pairs: list[tuple[Any, Any]] = []
    for index, factor in enumerate(items(factors, f"the {what}s")):
        parts = items(factor, f"{what} {index}, a pair (scope, table),")
        if len(parts) != 2:
            raise InvalidModel(f"{what} {index} has {len(parts)} parts; must be (scope, table)")
        pairs.append((parts[0], parts[1]))
    return pairs


def as_distributions(table: FloatArray, row_label: Callable[[int], str]) -> FloatArray:
    """The table [rows, values] with rows that are distributions, or InvalidModel on a bad row.

    Dividing n numbers by their computed sum leaves a computed sum within n * 2^-52 of 1 (to first
    order). Rows twice as near as that are not touched, which makes the function idempotent.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        totals = table.sum(axis=1)
        off = np.abs(totals - 1.0)
        fine = bool((table >= 0.0).all()) and bool((off <= ROW_TOLERANCE).all())
        if not fine:
            _name_bad_row(table, totals, off, row_label)
    inexact = off > 2 * table.shape[1] * np.finfo(np.float64).eps
    if inexact.any():
        table[inexact] /= totals[inexact, None]
    return table


def _name_bad_row(
    table: FloatArray, totals: FloatArray, off: FloatArray, row_label: Callable[[int], str]
) -> None:
    entries = np.isfinite(table) & (table >= 0.0)
    bad = ~entries.all(axis=1) | ~(off <= ROW_TOLERANCE)
    row = int(bad.argmax())
    more = int(bad.sum()) - 1
    others = f" (and {more} more bad row{'s' if more > 1 else ''})" if more else ""
    if entries[row].all():
        raise InvalidModel(
            f"{row_label(row)}: sums to {float(totals[row])!r}; must sum to 1 within "
            f"{ROW_TOLERANCE:g}{others}"
        )
    value = int((~entries[row]).argmax())
    raise InvalidModel(
        f"{row_label(row)}: probability of value {value} is {float(table[row, value])!r}; "
        f"must be a finite number, at least 0{others}"
    )


def sort_rows(
    sizes: Sequence[int], scope: Sequence[int], table: npt.NDArray[np.float64]
) -> FloatArray:
    """Rows in the order of `scope` (any order) rearranged to the order of the sorted scope."""
    if list(scope) == sorted(scope):
        return table
    step_of = dict(zip(scope, strides([sizes[v] for v in scope]), strict=True))
    in_order = sorted(scope)
    source = weighted_index([sizes[v] for v in in_order], [step_of[v] for v in in_order])
    rearranged: FloatArray = table[source]
    return rearranged


def _scope_numbers(structure: Structure, scope: Iterable[int | str], label: str) -> tuple[int, ...]:
    numbers: list[int] = []
    n_variables = len(structure.sizes)
    for variable in members(scope, f"{label}: scope"):
        if isinstance(variable, str):
            try:
                number: int | None = structure.variable(variable)
            except UnknownName as error:
                raise InvalidModel(f"{label}: {error}") from None
        else:
            number = whole_number(variable)
        if number is None or not 0 <= number < n_variables:
            raise InvalidModel(
                f"{label}: variable {shown(variable)} must be in 0..{n_variables - 1} or a name"
            )
        if number in numbers:
            raise InvalidModel(
                f'{label}: variable {number} ("{structure.names[number]}") occurs twice; '
                f"must occur once"
            )
        numbers.append(number)
    return tuple(numbers)


def _rows(
    structure: Structure,
    scope: Sequence[int],
    table: npt.ArrayLike,
    columns: tuple[int, ...],
    label: str,
) -> FloatArray:
    """A table of numbers as a fresh C-contiguous [rows, *columns] array."""
    try:
        array = np.asarray(table)
    except ValueError:
        raise InvalidModel(f"{label}: the rows of the table must all have one length") from None
    if array.dtype.kind not in "biuf":
        raise InvalidModel(f"{label}: the table has entries that are not numbers")
    sizes = structure.scope_sizes(scope)
    shapes = ((count(sizes), *columns), (*sizes, *columns))
    if array.shape not in shapes:
        allowed = " or ".join(
            f"[{', '.join(map(shown, shape))}]" for shape in dict.fromkeys(shapes)
        )
        raise InvalidModel(
            f"{label}: the table has shape {list(array.shape)}; must be {allowed}, "
            f"for scope ({', '.join(structure.names[v] for v in scope)})"
        )
    # + 0.0 copies and turns -0.0 into 0.0, which content_hash would tell apart.
    fresh: FloatArray = np.ascontiguousarray(array.reshape(shapes[0]), dtype=np.float64) + 0.0
    return fresh


def _transition_table(
    structure: Structure, i: int, scope: Sequence[int], table: npt.ArrayLike
) -> FloatArray:
    label = structure.transition_label(i)
    rows = _rows(structure, scope, table, (structure.state_sizes[i],), label)
    as_distributions(rows, lambda row: f"{label}, {structure.row_label(scope, row)}")
    return rows


def _reward_table(
    structure: Structure, k: int, scope: Sequence[int], table: npt.ArrayLike
) -> FloatArray:
    label = structure.reward_label(k)
    means = _rows(structure, scope, table, (), label)
    lo, hi = structure.reward_ranges[k]
    slack = ROW_TOLERANCE * max(hi - lo, abs(lo), abs(hi))
    inside = (means >= lo - slack) & (means <= hi + slack)
    if not inside.all():
        row = int((~inside).argmax())
        more = int((~inside).sum()) - 1
        others = f" (and {more} more bad row{'s' if more > 1 else ''})" if more else ""
        raise InvalidModel(
            f"{label}, {structure.row_label(scope, row)}: mean is {float(means[row])!r}; "
            f"must be in its range [{lo!r}, {hi!r}]{others}"
        )
    np.clip(means, lo, hi, out=means)
    return means


_MANY = re.compile(r'"\\u0000(\d+)"')
_AT_ONCE = 1 << 16


def _json_parts(header: dict[str, Any]) -> Iterator[str]:
    """The JSON text in parts: the names of millions of values never stand there all at once."""
    # A mark that no name can be, since names are printable; where it stands the numerals follow.
    text = json.dumps(header, sort_keys=True, default=lambda names: f"\0{len(names)}")
    for number, part in enumerate(_MANY.split(text)):
        if number % 2 == 0:
            yield part
            continue
        for first in range(0, int(part), _AT_ONCE):
            names = numerals(int(part))[first : first + _AT_ONCE]
            yield ('["' if first == 0 else '", "') + '", "'.join(names)
        yield '"]'


def _printable(name: object) -> str:
    if not isinstance(name, str) or not name.isprintable():
        raise InvalidModel(f"name {name!r}: must be a printable string")
    return name


def _initial_state(given: Sequence[int] | None, structure: Structure) -> tuple[int, ...]:
    try:
        return structure.check_state(
            (0,) * structure.m if given is None else given, "initial state"
        )
    except InvalidParameter as error:
        raise InvalidModel(str(error)) from None


def _noise(noise: Noise | Sequence[Noise] | None, n_rewards: int) -> tuple[Noise, ...]:
    if noise is None:
        noise = Noise()
    laws = (noise,) * n_rewards if isinstance(noise, Noise) else items(noise, "noise")
    if len(laws) != n_rewards:
        raise InvalidModel(
            f"{len(laws)} noise laws for {n_rewards} reward factors; must be one for all or "
            f"one a reward factor"
        )
    for k, law in enumerate(laws):
        if not isinstance(law, Noise):
            raise InvalidModel(f"noise of reward factor {k} is {law!r}; must be a Noise")
    return laws
