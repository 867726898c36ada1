"""The chance step of exchangeable parts: the expectation over their next counts.

M parts are counted by type, y = (y_1, ..., y_d); a part of type t moves to local state j with
probability r_t(j), independently. The next counts n are a sum of multinomials, and

    (E f)(y) = sum over n of P(n | y) f(n)

is computed for all y at once, one type after another and never as a matrix over (y, n). Read
forwards in time, the types are emptied in some order. The bins of the intermediate count vectors
are the types that are still full and the local states that have been filled. Three operations,
applied backwards to functions of the bins, empty a type t:

* NewBin: each part of t goes to an empty bin a with probability p. For fixed other bins,
  f(y_t) = sum_i Binomial(y_t, p)(i) g(a = i, y_t - i): a dot product.
* Move: the same for a bin b that is filled already,
  f(b, y_t) = sum_i Binomial(y_t, p)(i) g(b + i, y_t - i): a product with a triangular matrix.
* Empty: all bins of its row are filled. Part by part,
  f(y_t, x) = sum_j r_t(j) f(y_t - 1, x + e_j): a recursion.

What remains of t after the first two is renamed to a local state. Cost and memory depend on the
order of the types; the best is chosen by predicted cost. For wear by one level, emptying from the
top keeps the number of bins constant.

Parts with two local states are the exception: their next counts are one number, whose law is a
convolution of d binomials. These laws are kept as a matrix if it is small, which takes less time.

Rounding: all terms are products of probabilities, without subtraction. A part passes through at
most q - 1 splits, q the largest number of successors of a row. Their probabilities are quotients
of sums of at most q numbers, and binomial rows are made by the recursion of Pascal's triangle: the
relative error of the weight of an outcome is at most M (q - 1) (q + 4) units, plus M + 2 for each
sum. `Chance.roundings` counts these.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fmdp.model.compositions import composition_rank, compositions, n_compositions

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]
Bins = tuple[int, ...]
"""Types are bins 0 .. d-1, local states d .. d+k-1."""

_MOST_KEPT = 1 << 22
"""Most entries of the matrix of laws of parts with two local states."""
_MOST_ORDERS = 720
"""Most orders of the types that are compared."""
_CACHED_PARTS = 160
"""Most parts for which the triangular matrices of a Move are kept."""
_SECONDS_PER_OPERATION = 2e-9
_SECONDS_PER_CALL = 5e-6


@lru_cache(maxsize=32)
def binomial_rows(total: int, share: float, rest: float) -> Floats:
    """Return Binomial(m, share)(i) for m, i = 0 .. total: [total + 1, total + 1], read-only.

    `share` and `rest` sum to 1; both are given, because a difference would cost digits.
    """
    rows = np.zeros((total + 1, total + 1))
    rows[0, 0] = 1.0
    for m in range(total):
        rows[m + 1, : m + 1] = rest * rows[m, : m + 1]
        rows[m + 1, 1 : m + 2] += share * rows[m, : m + 1]
    rows.flags.writeable = False
    return rows


class _Operation(ABC):
    """One step, applied backwards to arrays [compositions of the bins, inner]."""

    before: Bins
    after: Bins

    @abstractmethod
    def apply(self, values: Floats) -> Floats:
        """Return the function of the bins before, given that of the bins after."""


class _NewBin(_Operation):
    def __init__(self, total: int, rest: Bins, source: int, new: int, rows: Floats) -> None:
        self.before, self.after = (*rest, source), (*rest, new, source)
        counts = compositions(total, len(self.after))
        moved, kept = counts[:, -2], counts[:, -1]
        self._starts = np.flatnonzero(moved == 0)
        self._weights = rows[moved + kept, moved][:, None]

    def apply(self, values: Floats) -> Floats:
        return np.add.reduceat(self._weights * values, self._starts, axis=0)


class _Move(_Operation):
    def __init__(self, total: int, rest: Bins, source: int, target: int, rows: Floats) -> None:
        self.before = self.after = (*rest, target, source)
        self._rows = rows
        counts = compositions(total, len(self.after))
        starts = np.flatnonzero(counts[:, -2] == 0)
        left = counts[starts, -1]
        self._blocks = [(m, starts[left == m]) for m in np.unique(left).tolist()]
        self._kept: dict[int, Floats] = {}

    def _matrix(self, m: int) -> Floats:
        """Return T[b, b'], the probability that b' - b of m - b parts move."""
        known = self._kept.get(m)
        if known is not None:
            return known
        filled = np.arange(m + 1)
        moved = filled - filled[:, None]
        matrix = np.where(moved >= 0, self._rows[(m - filled)[:, None], moved], 0.0)
        if len(self._rows) <= _CACHED_PARTS:
            self._kept[m] = matrix
        return matrix

    def apply(self, values: Floats) -> Floats:
        out = np.empty_like(values)
        for m, starts in self._blocks:
            places = starts[:, None] + np.arange(m + 1)
            # Not BLAS: the last bits of its sums depend on its number of threads.
            out[places] = np.einsum("sbr,cb->scr", values[places], self._matrix(m))
        return out


class _Empty(_Operation):
    def __init__(self, total: int, rest: Bins, source: int, row: dict[int, float]) -> None:
        self.before, self.after = (source, *rest), rest
        self._total = total
        self._row = list(row.values())
        places = [rest.index(b) for b in row]
        self._sources = [
            [_rank_plus_one(total - y, len(rest), place) for place in places]
            for y in range(1, total + 1)
        ]

    def apply(self, values: Floats) -> Floats:
        layers = [values]
        for sources in self._sources:
            last = layers[-1]
            layer = self._row[0] * last[sources[0]]
            for probability, source in zip(self._row[1:], sources[1:], strict=True):
                layer += probability * last[source]
            layers.append(layer)
        return np.concatenate(layers)


class _Gather(_Operation):
    """The same function with its bins in another order; bins that are left out are empty."""

    def __init__(self, total: int, before: Bins, after: Bins) -> None:
        self.before, self.after = before, after
        counts = compositions(total, len(before))
        empty = np.zeros(len(counts), dtype=np.int64)
        columns = [counts[:, before.index(b)] if b in before else empty for b in after]
        self._places = composition_rank(columns, total)

    def apply(self, values: Floats) -> Floats:
        return values[self._places]


def _rank_plus_one(total: int, bins: int, place: int) -> Indices:
    """Return for each composition of `total` the rank of the one with one more in a bin."""
    counts = compositions(total, bins)
    columns = [counts[:, b] + (b == place) for b in range(bins)]
    return composition_rank(columns, total + 1)


@dataclass(frozen=True)
class _Split:
    """A step of the program before its index arrays are made."""

    kind: str
    rest: Bins
    source: int
    target: int
    share: float
    left: float
    row: tuple[tuple[int, float], ...] = ()

    def cost(self, total: int) -> int:
        """Return the multiply-adds of the operation."""
        others = len(self.rest)
        if self.kind == "new":
            return n_compositions(total, others + 2)
        if self.kind == "move":
            return 2 * n_compositions(total, others + 3)
        return len(self.row) * n_compositions(total, others + 1)

    def entries(self, total: int) -> int:
        """Return the numbers that the operation keeps or makes."""
        others = len(self.rest)
        if self.kind == "empty":
            return (2 + len(self.row)) * n_compositions(total, others + 1)
        return 4 * n_compositions(total, others + 2)


def _splits(rows: Sequence[Sequence[float]], order: Sequence[int]) -> list[_Split]:
    """Return the steps that empty the types in this order, forwards in time."""
    d = len(rows)
    bins = list(range(d))  # a renamed type keeps its place
    filled: set[int] = set()
    splits: list[_Split] = []
    for t in order:
        row = {d + j: p for j, p in enumerate(rows[t]) if p > 0.0}
        new = [b for b in row if b not in filled]
        if not new:
            bins.remove(t)
            splits.append(_Split("empty", tuple(bins), t, -1, 0.0, 0.0, tuple(row.items())))
            continue
        stay = new.pop()
        left = dict(row)
        for b in [b for b in row if b != stay and b not in new] + new:
            share = left.pop(b)
            rest = sum(left.values())
            total = share + rest
            others = tuple(x for x in bins if x not in (t, b))
            kind = "new" if b in new else "move"
            splits.append(_Split(kind, others, t, b, share / total, rest / total))
            if b in new:
                bins.append(b)
        bins[bins.index(t)] = stay
        filled |= row.keys()
        splits.append(_Split("rename", (), t, stay, 0.0, 0.0))
    return splits


def _cost(splits: Sequence[_Split], total: int) -> int:
    return sum(split.cost(total) for split in splits if split.kind != "rename")


def _best_splits(rows: Sequence[Sequence[float]], total: int) -> list[_Split]:
    """Return the steps of the cheapest order."""
    support = tuple(tuple(float(p > 0.0) for p in row) for row in rows)
    return _splits(rows, _best_order(support, total))


@lru_cache(maxsize=256)
def _best_order(rows: tuple[tuple[float, ...], ...], total: int) -> tuple[int, ...]:
    """Return the cheapest order of types; of many types only some orders are compared."""
    types = range(len(rows))
    orders: list[tuple[int, ...]]
    if len(rows) <= 6:
        orders = list(itertools.islice(itertools.permutations(types), _MOST_ORDERS))
    else:
        orders = [tuple(types), tuple(reversed(types))]
        by_width = sorted(types, key=lambda t: sum(p > 0.0 for p in rows[t]))
        orders += [tuple(by_width), tuple(reversed(by_width))]
    return min(orders, key=lambda order: _cost(_splits(rows, order), total))


class Chance:
    """The chance step of `total` parts whose types have these rows: [d, k]."""

    def __init__(self, rows: Floats, total: int) -> None:
        self.rows, self.total = rows, total
        self._splits = _best_splits(rows.tolist(), total)
        self._operations: list[_Operation] | None = None
        self._laws: Floats | None = None

    @property
    def _by_laws(self) -> bool:
        return self.rows.shape[1] == 2 and self.n_before * self.n_after <= _MOST_KEPT

    @property
    def seconds(self) -> float:
        """Predicted seconds for a function with one number per count vector."""
        if self._by_laws:
            return _SECONDS_PER_OPERATION * self.n_before * self.n_after + _SECONDS_PER_CALL
        operations = _cost(self._splits, self.total) + self.n_before + self.n_after
        layers = self.total * (1 + len(self.rows))
        return _SECONDS_PER_OPERATION * operations + _SECONDS_PER_CALL * layers

    @property
    def entries(self) -> int:
        """Predicted numbers in memory, for a function with one number per count vector."""
        if self._by_laws:
            return self.n_before * self.n_after
        steps = [split.entries(self.total) for split in self._splits if split.kind != "rename"]
        return sum(steps) + self.n_before + self.n_after

    @property
    def n_before(self) -> int:
        """Count vectors of types."""
        return n_compositions(self.total, len(self.rows))

    @property
    def n_after(self) -> int:
        """Count vectors of local states."""
        return n_compositions(self.total, self.rows.shape[1])

    @property
    def roundings(self) -> int:
        """Largest number of roundings on the way of a number through the step."""
        widest = int((self.rows > 0.0).sum(axis=1).max(initial=1))
        sums = sum(split.kind != "rename" for split in self._splits)
        return self.total * widest * (widest + 4) + sums * (self.total + 2)

    def expectation(self, values: Floats) -> Floats:
        """Return E f for every count vector of types: [n_before, inner], from [n_after, inner]."""
        if self._by_laws:
            if self._laws is None:
                self._laws = _laws(self.rows, self.total)
            # Not BLAS: the last bits of its sums depend on its number of threads.
            mean: Floats = np.einsum("yn,nr->yr", self._laws, values)
            return mean
        if self._operations is None:
            self._operations = self._made()
        for operation in reversed(self._operations):
            values = operation.apply(values)
        return values

    def _made(self) -> list[_Operation]:
        """Return the operations, forwards in time, with those that only reorder bins."""
        d, k = self.rows.shape
        operations: list[_Operation] = []
        bins: Bins = tuple(range(d))

        def append(operation: _Operation) -> None:
            nonlocal bins
            if operation.before != bins:
                operations.append(_Gather(self.total, bins, operation.before))
            operations.append(operation)
            bins = operation.after

        for split in self._splits:
            if split.kind == "rename":
                bins = tuple(split.target if b == split.source else b for b in bins)
                continue
            rest = split.rest
            if split.kind == "empty":
                append(_Empty(self.total, rest, split.source, dict(split.row)))
                continue
            table = binomial_rows(self.total, split.share, split.left)
            kind = _NewBin if split.kind == "new" else _Move
            append(kind(self.total, rest, split.source, split.target, table))
        states = tuple(range(d, d + k))
        if bins != states:
            operations.append(_Gather(self.total, bins, states))
        return operations


def _laws(rows: Floats, total: int) -> Floats:
    """Return the law of the next counts of parts with two local states: [types' counts, counts]."""
    binomials = [binomial_rows(total, *(row / row.sum()).tolist()) for row in rows]
    laws = np.empty((n_compositions(total, len(rows)), total + 1))
    for place, counts in enumerate(compositions(total, len(rows))):
        law = np.ones(1)
        for of_type, n in zip(binomials, counts, strict=True):
            law = np.convolve(law, of_type[n, : n + 1])
        laws[place] = law
    return laws


@lru_cache(maxsize=64)
def one_more(total: int, bins: int) -> tuple[Indices, ...]:
    """Return for each bin the ranks of the compositions of `total` with one more part in it."""
    return tuple(_rank_plus_one(total, bins, place) for place in range(bins))


def with_one_more(values: Floats, total: int, row: Floats) -> Floats:
    """Return the expectation over the next local state of one more part: [n(total), inner].

    `values` is a function of the counts of total + 1 parts.
    """
    sources = one_more(total, len(row))
    out = np.zeros((n_compositions(total, len(row)), values.shape[1]))
    for probability, source in zip(row, sources, strict=True):
        if probability > 0.0:
            out += probability * values[source]
    return out
