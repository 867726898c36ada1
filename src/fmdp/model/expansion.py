"""Models without their derived variables: every scope over states and actions alone.

A factor that names derived variables depends on the states and actions behind them, its *base*. The
expanded table has one row per assignment of the base:

    P_i(s'_i | base) = sum over the drawn z of prod_j P_j(z_j | ...) P_i(s'_i | x[Z_i])

and with deterministic variables alone each row is a copy. Copies of one row are alike, so a learner
on the expanded structure learns as many rows as before.

The expanded model has the same states, actions, rewards and transition probabilities, so policies
and values carry over. Two next values that depend on the same drawn variable are not independent
given the state and action; then no expanded model exists, and this is refused.

`without_draws` removes drawn variables only. Its tables have the right marginal distribution of
each next value, which is all that the expectation of a function of one state variable needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from fmdp._base.memory import available_memory, describe_bytes, describe_count
from fmdp.errors import InvalidModel, TooLarge
from fmdp.model.alike import Alike
from fmdp.model.factored import FactoredMDP, check_model
from fmdp.model.intervals import Intervals
from fmdp.model.naming import quote
from fmdp.model.optimistic import OptimisticTables
from fmdp.model.quantities import Quantity
from fmdp.model.spaces import FloatArray, IndexArray, count, strides, weighted_index
from fmdp.model.structure import Scope, Structure

Numbers = TypeVar("Numbers", bound=np.generic)

_MOST_CASES = 1 << 12
"""Most joint values of drawn variables that are listed one by one."""


@dataclass(frozen=True, eq=False)
class ExpandedRows:
    """The rows of one factor over its base, as rows of its table.

    `sources` is [cases, rows]: the row of the table for each assignment of the drawn variables.
    `weights` are the probabilities of the cases, [cases, rows], or None if nothing is drawn.
    """

    sources: IndexArray
    weights: FloatArray | None

    def copied(self, table: NDArray[Numbers]) -> NDArray[Numbers]:
        """Return the expanded table if nothing is drawn."""
        assert self.weights is None
        rows: NDArray[Numbers] = table[self.sources[0]]
        return rows

    def averaged(self, table: FloatArray) -> FloatArray:
        """Return the expanded table: copies, or means over the drawn variables."""
        if self.weights is None:
            return self.copied(table)
        shape = (-1,) + (1,) * (table.ndim - 1)
        total = np.zeros((len(self.sources[0]), *table.shape[1:]))
        for source, weight in zip(self.sources, self.weights, strict=True):
            total += weight.reshape(shape) * table[source]
        return total


@dataclass(frozen=True, eq=False)
class Expansion:
    """A structure without its derived variables, and how tables are expanded to it."""

    structure: Structure
    transitions: tuple[ExpandedRows | None, ...]
    """None for factors that name no derived variable."""
    rewards: tuple[ExpandedRows | None, ...]

    @property
    def drawn(self) -> bool:
        """Whether a factor depends on a drawn variable."""
        rows = self.transitions + self.rewards
        return any(factor is not None and factor.weights is not None for factor in rows)

    @overload
    def tables(self, tables: FactoredMDP) -> FactoredMDP: ...
    @overload
    def tables(self, tables: OptimisticTables) -> OptimisticTables: ...
    def tables(self, tables: FactoredMDP | OptimisticTables) -> FactoredMDP | OptimisticTables:
        """Return the expanded model, or the expanded tables of an optimistic learner."""
        if isinstance(tables, FactoredMDP):
            return self._model(tables)
        if self.drawn:
            raise InvalidModel("sets of models with drawn derived variables are not supported")
        sets = {
            name: None if rows is None else self._copied(rows, self.transitions)
            for name in ("upper", "centre", "radius")
            for rows in (getattr(tables, name),)
        }
        return OptimisticTables.trusted(
            self.structure,
            self._copied(tables.lower, self.transitions),
            self._copied(tables.free, self.transitions),
            self._copied(tables.rewards, self.rewards),
            **sets,
            distance=tables.distance,
        )

    def _model(self, model: FactoredMDP) -> FactoredMDP:
        intervals = model.intervals
        if intervals is not None:
            if self.drawn:
                raise InvalidModel("a model with drawn derived variables has no intervals")
            kinds = (self.transitions, self.transitions, self.rewards, self.rewards)
            arrays = zip(intervals.arrays(), kinds, strict=True)
            intervals = Intervals(*(self._copied(tables, rows) for tables, rows in arrays))
        return model._with_expanded_tables(
            self.structure,
            self._averaged(model.transitions, self.transitions),
            self._averaged(model.rewards, self.rewards),
            intervals,
            self._quantities(model),
        )

    def _quantities(self, model: FactoredMDP) -> tuple[Quantity, ...]:
        """Return the quantities of a model over the expanded structure."""
        s = model.structure
        names = [variable.name for variable in self.structure.derived]
        kept = tuple(v for v in range(len(s.sizes), len(s.all_sizes)) if s.names[v] in names)
        return _Substitution(s, kept).quantities(model.quantities)

    @staticmethod
    def _averaged(
        tables: Sequence[FloatArray], expanded: Sequence[ExpandedRows | None]
    ) -> tuple[FloatArray, ...]:
        pairs = zip(tables, expanded, strict=True)
        return tuple(table if rows is None else rows.averaged(table) for table, rows in pairs)

    @staticmethod
    def _copied(tables: Sequence[Any], expanded: Sequence[ExpandedRows | None]) -> tuple[Any, ...]:
        pairs = zip(tables, expanded, strict=True)
        return tuple(table if rows is None else rows.copied(table) for table, rows in pairs)


def expand(model: FactoredMDP) -> FactoredMDP:
    """Return the same model without derived variables, whose scopes name states and actions alone.

    States, actions, rewards and probabilities are the same, so a policy or a value function of one
    model is one of the other. A model without derived variables is returned as it is.

    Parameters
    ----------
    model
        The model.

    Raises
    ------
    InvalidModel
        If two state variables depend on the same drawn variable: then no such model exists.
    InvalidParameter
        If it is not a model.
    TooLarge
        If the tables do not fit into half of the free memory.
    """
    check_model(model, "expand")
    return expansion_of(model.structure).tables(model) if model.structure.derived else model


def expanded_structure(structure: Structure) -> Structure:
    """Return the structure of the expanded models; see `expand`."""
    return expansion_of(structure).structure if structure.derived else structure


@lru_cache(maxsize=8)
def expansion_of(structure: Structure) -> Expansion:
    """Return the expansion of a structure with derived variables; raise as `expand` does."""
    refuse_shared_draws(structure)
    return _Substitution(structure, ()).expansion()


@lru_cache(maxsize=8)
def without_draws(structure: Structure) -> Expansion | None:
    """Return a structure without its drawn variables and what is computed from them, None if
    nothing is drawn; raise TooLarge as `expand` does."""
    n = len(structure.sizes)
    drawn: set[int] = set()
    for v, variable in enumerate(structure.derived, n):
        if not variable.deterministic or drawn.intersection(variable.scope):
            drawn.add(v)
    if not drawn:
        return None
    kept = tuple(v for v in range(n, len(structure.all_sizes)) if v not in drawn)
    return _Substitution(structure, kept).expansion()


def without_all_but(model: FactoredMDP, kept: Scope) -> FactoredMDP:
    """Return the model whose only derived variables are the kept ones; raise as `expand` does.

    The kept variables must depend on states, actions and kept variables alone.
    """
    structure = model.structure
    if len(kept) == len(structure.derived):
        return model
    refuse_shared_draws(structure)
    return _Substitution(structure, kept).expansion().tables(model)


def shared_draws(s: Structure) -> dict[int, list[int]]:
    """Return the drawn variables behind several state variables, with these state variables."""
    n = len(s.sizes)
    children: dict[int, list[int]] = {}
    for i, scope in enumerate(s.transition_scopes):
        if s.state_sizes[i] > 1:
            for v in s.origins(scope)[1]:
                if not s.derived[v - n].deterministic:
                    children.setdefault(v, []).append(i)
    return {v: states for v, states in children.items() if len(states) > 1}


def refuse_shared_draws(s: Structure) -> None:
    """Raise InvalidModel if two state variables depend on the same drawn variable."""
    for v, states in shared_draws(s).items():
        first, second = (quote(s.state_names[i]) for i in states[:2])
        raise InvalidModel(
            f"derived variable {quote(s.names[v])} is drawn, and both {first} and {second} depend "
            f"on it, so their next values are not independent given the state and action"
        )


def pair_rows(structure: Structure, scope: Scope) -> IndexArray:
    """Return the row of a table over the scope for every state and action, in C order: [S * A].

    Derived variables of the scope must be deterministic.
    """
    return _BaseValues(structure, tuple(range(len(structure.sizes))), {}).rows(scope)


def with_derived_values(structure: Structure, joint: IndexArray) -> IndexArray:
    """Return states and actions [T, states + actions] followed by the derived values: [T, all].

    Drawn variables, and those that follow from them, are -1: their values are not known.
    """
    extended = np.full((len(joint), len(structure.all_sizes)), -1, dtype=np.int64)
    n = len(structure.sizes)
    extended[:, :n] = joint
    for v, variable in enumerate(structure.derived, n):
        inputs = extended[:, list(variable.scope)]
        if variable.deterministic and (inputs >= 0).all():
            steps = np.array(strides(structure.scope_sizes(variable.scope)), dtype=np.int64)
            extended[:, v] = variable.table[inputs @ steps]
    return extended


class PairCase(NamedTuple):
    """One assignment of all drawn variables, at every state and action in C order."""

    probability: FloatArray
    """[S * A]"""
    rows: Callable[[Scope], IndexArray]
    """Returns the row of a table over a scope: [S * A]."""


def pair_cases(structure: Structure) -> Iterator[PairCase]:
    """Yield every assignment of the drawn variables with its probability; one if none is drawn.

    Raise TooLarge if there are too many.
    """
    n = len(structure.sizes)
    drawn = [v for v, z in enumerate(structure.derived, n) if not z.deterministic]
    cases = count(structure.scope_sizes(drawn))
    if cases > _MOST_CASES:
        raise TooLarge(
            f"{len(drawn)} drawn variables have {describe_count(cases)} joint values, which would "
            f"all be listed; at most {_MOST_CASES}",
            cases,
            _MOST_CASES,
        )
    for case in np.ndindex(*structure.scope_sizes(drawn)):
        values = _BaseValues(structure, tuple(range(n)), dict(zip(drawn, case, strict=True)))
        yield PairCase(values.probability(drawn), values.rows)


class _Substitution:
    """The derived variables of a structure, all but those kept, substituted into its factors."""

    def __init__(self, structure: Structure, kept: Scope) -> None:
        self.structure = structure
        self._n = len(structure.sizes)
        self._kept = kept
        self._number = {v: self._n + place for place, v in enumerate(kept)}

    def expansion(self) -> Expansion:
        s = self.structure
        self._refuse_large()
        transitions = tuple(map(self._rows, s.transition_scopes))
        rewards = tuple(map(self._rows, s.reward_scopes))
        expanded = replace(
            s,
            transition_scopes=tuple(map(self._new_scope, s.transition_scopes)),
            reward_scopes=tuple(map(self._new_scope, s.reward_scopes)),
            alike=_alike(s, transitions, rewards),
            derived=tuple(
                replace(variable, scope=self._new_scope(variable.scope))
                for variable in (s.derived[v - self._n] for v in self._kept)
            ),
        )
        return Expansion(expanded, transitions, rewards)

    def quantities(self, given: Sequence[Quantity]) -> tuple[Quantity, ...]:
        """Return the quantities over the new scopes."""
        tables = []
        for quantity in given:
            rows = self._rows(quantity.scope)
            table = quantity.table if rows is None else rows.averaged(quantity.table)
            table.flags.writeable = False
            tables.append(Quantity(quantity.name, self._new_scope(quantity.scope), table))
        return tuple(tables)

    def _origins(self, scope: Sequence[int]) -> tuple[Scope, Scope]:
        """Return the states, actions and kept variables behind a scope, and the removed ones."""
        base: set[int] = set()
        removed: set[int] = set()
        ahead = list(scope)
        while ahead:
            v = ahead.pop()
            if v < self._n or v in self._number:
                base.add(v)
            elif v not in removed:
                removed.add(v)
                ahead.extend(self.structure.derived[v - self._n].scope)
        return tuple(sorted(base)), tuple(sorted(removed))

    def _new_scope(self, scope: Scope) -> Scope:
        return tuple(self._number.get(v, v) for v in self._origins(scope)[0])

    def _drawn(self, removed: Scope) -> list[int]:
        derived = self.structure.derived
        return [v for v in removed if not derived[v - self._n].deterministic]

    def _rows(self, scope: Scope) -> ExpandedRows | None:
        base, removed = self._origins(scope)
        if not removed:
            return None
        drawn = self._drawn(removed)
        sources: list[IndexArray] = []
        weights: list[FloatArray] = []
        for case in np.ndindex(*(self.structure.all_sizes[v] for v in drawn)):
            values = _BaseValues(self.structure, base, dict(zip(drawn, case, strict=True)))
            sources.append(values.rows(scope))
            weights.append(values.probability(drawn))
        return ExpandedRows(np.stack(sources), np.stack(weights) if drawn else None)

    def _refuse_large(self) -> None:
        s = self.structure
        labels = [*map(s.transition_label, range(s.m)), *map(s.reward_label, range(s.l))]
        scopes = [*s.transition_scopes, *s.reward_scopes]
        widths = [*s.state_sizes, *(1 for _ in s.reward_scopes)]
        needed, worst, most = 0, "", 0
        for label, scope, width in zip(labels, scopes, widths, strict=True):
            base, removed = self._origins(scope)
            if removed:
                rows = count(s.scope_sizes(base))
                cases = count(s.scope_sizes(self._drawn(removed)))
                needed += 8 * rows * (2 * cases + width + 2)
                worst, most = max((worst, most), (label, rows), key=lambda pair: pair[1])
        limit = available_memory() // 2
        if needed > limit:
            raise TooLarge(
                f"{worst} has {describe_count(most)} rows without derived variables, and all "
                f"factors need {describe_bytes(needed)}; the memory limit is "
                f"{describe_bytes(limit)}",
                needed,
                limit,
            )


def _alike(
    s: Structure,
    transitions: Sequence[ExpandedRows | None],
    rewards: Sequence[ExpandedRows | None],
) -> Alike:
    """Return which rows are alike: copies of one row, or of rows that were alike before."""
    sets = (
        [s.transition_classes_of(i) for i in range(s.m)],
        [s.reward_classes_of(k) for k in range(s.l)],
    )
    numbered: list[tuple[IndexArray, ...]] = []
    for classes, expanded in zip(sets, (transitions, rewards), strict=True):
        unused = 1 + max((int(rows.max(initial=-1)) for rows in classes), default=0)
        result = []
        for rows, factor in zip(classes, expanded, strict=True):
            if factor is None:
                result.append(rows)
            elif factor.weights is None:
                result.append(factor.copied(rows))
            else:  # every mean of rows is a class of its own
                n_rows = len(factor.sources[0])
                result.append(np.arange(unused, unused + n_rows))
                unused += n_rows
        numbered.append(tuple(result))
    return Alike(*numbered)


class _BaseValues:
    """The values of variables for every assignment of some of them, the base.

    Drawn variables have the given values.
    """

    def __init__(self, s: Structure, base: Scope, drawn: Mapping[int, int]) -> None:
        self._structure = s
        self._base = base
        self._sizes = s.scope_sizes(base)
        self._known: dict[int, Any] = dict(drawn)

    def _of(self, v: int) -> Any:
        """Return the values of a variable: [assignments of the base], or one if it is drawn."""
        if v not in self._known:
            if v in self._base:
                weights = [int(u == v) for u in self._base]
                self._known[v] = weighted_index(self._sizes, weights)
            else:
                self._compute(v)
        return self._known[v]

    def _compute(self, v: int) -> None:
        """Compute a derived variable and those behind it, which have smaller numbers."""
        s = self._structure
        n = len(s.sizes)
        needed, ahead = {v}, [v]
        while ahead:
            for u in s.derived[ahead.pop() - n].scope:
                if u >= n and u not in self._base and u not in self._known and u not in needed:
                    needed.add(u)
                    ahead.append(u)
        for u in sorted(needed):  # in this order, no value is computed by recursion
            variable = s.derived[u - n]
            self._known[u] = variable.table[self.rows(variable.scope)]

    def rows(self, scope: Scope) -> IndexArray:
        """Return the row of a table over the scope for every assignment of the base."""
        rows: IndexArray = np.zeros(count(self._sizes), dtype=np.int64)
        for v, step in zip(scope, strides(self._structure.scope_sizes(scope)), strict=True):
            rows += step * self._of(v)
        return rows

    def probability(self, drawn: Sequence[int]) -> FloatArray:
        """Return the probability of the values of the drawn variables."""
        n = len(self._structure.sizes)
        total: FloatArray = np.ones(count(self._sizes))
        for v in drawn:
            variable = self._structure.derived[v - n]
            total *= variable.table[self.rows(variable.scope), self._known[v]]
        return total
