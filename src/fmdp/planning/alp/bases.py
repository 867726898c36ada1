"""Bases: families of functions whose weighted sum h_w = sum_b w_b phi_b approximates the value.

| name | functions |
|---|---|
| `singles` | phi_i(s) = s_i, the raw value 0..k-1 (Xu & Tewari 2020) |
| `indicators` | 1{s_i = v}, one for every value of every variable |
| `pairs` | singles, and s_i s_j for every j != i in the state scope of factor i, each pair once |
| `local` | 1{s[C] = v} for every group C of the structure; indicators where there is none |

or the user's scopes, with which every function of each scope can be represented. The functions are
products of indicators of the values 1..k-1 over subsets of the scopes, so that overlapping scopes
share functions and none occurs twice. The constant is not part of the basis: the linear program
adds it under the discounted criterion, and it cancels under average reward.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fmdp.errors import InvalidParameter, TooLarge, did_you_mean
from fmdp.model import Structure
from fmdp.model.groups import Groups
from fmdp.model.spaces import all_assignments, shown, starts, whole_number
from fmdp.model.structure import Scope, check_structure
from fmdp.model.symmetry import Symmetry
from fmdp.planning.settings import FAMILIES

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LARGEST_SCOPE = 1 << 11
"""Largest number of assignments of one scope of a basis; backprojection enumerates them."""


@dataclass(frozen=True, eq=False)
class Block:
    """The basis functions over one scope: values[x, b] for the assignments x of the scope."""

    scope: Scope
    values: Floats  # [|X[scope]|, functions]
    columns: Ints
    """[functions]: the index of each function's weight; other blocks may share it."""

    @property
    def size(self) -> int:
        return int(self.values.shape[1])

    def weighted(self, weights: Floats) -> Floats:
        """Return the weighted sum of the functions at every assignment of the scope."""
        total: Floats = self.values @ weights[self.columns]
        return total


@dataclass(frozen=True, eq=False)
class Basis:
    """All blocks, one per scope.

    Each function has its own weight, numbered block by block, unless `tied` gives one weight to
    functions that are images of each other. Then "function b" below is the sum of the functions
    that share weight b.
    """

    name: str
    state_sizes: tuple[int, ...]
    blocks: tuple[Block, ...]

    @cached_property
    def size(self) -> int:
        """Number of weights, without that of the constant."""
        return 1 + max((int(block.columns.max(initial=-1)) for block in self.blocks), default=-1)

    @cached_property
    def needless(self) -> NDArray[np.bool_]:
        """[functions]: redundant functions, whose weight is fixed at 0.

        They are one indicator of each complete set, which the constant and the others can express,
        and functions that are 0 everywhere. Free weights would make the linear program singular.
        """
        marks = self.void.copy()
        for block in self.blocks:
            if block.size and (block.values.sum(axis=1) == 1.0).all():
                marks[block.columns[0]] = True
        return marks

    @cached_property
    def void(self) -> NDArray[np.bool_]:
        """[functions]: functions that are 0 everywhere."""
        marks = np.ones(self.size, dtype=np.bool_)
        for block in self.blocks:
            marks[block.columns[block.values.any(axis=0)]] = False
        return marks

    def value(self, weights: Floats, state: Sequence[int]) -> float:
        """Return h_w at one state."""
        total = 0.0
        for block in self.blocks:
            row = 0
            for v in block.scope:
                row = row * self.state_sizes[v] + int(state[v])
            total += float(block.values[row] @ weights[block.columns])
        return total

    def means(self, relevance: Sequence[Floats]) -> Floats:
        """Return E phi_b under a product of distributions, one per state variable: [functions]."""
        means = np.zeros(self.size)
        for block in self.blocks:
            weight = np.ones(1)
            for v in block.scope:
                weight = np.outer(weight, relevance[v]).ravel()
            np.add.at(means, block.columns, weight @ block.values)
        return means

    def heights(self) -> Floats:
        """Return upper bounds on max |phi_b|: [functions]."""
        heights = np.zeros(self.size)
        for block in self.blocks:
            np.add.at(heights, block.columns, np.abs(block.values).max(axis=0, initial=0.0))
        return heights

    def untied(self, weights: Floats) -> Floats:
        """Return the weights of the same basis without shared weights."""
        return np.concatenate([*(weights[block.columns] for block in self.blocks), np.zeros(0)])


def make_basis(structure: Structure, basis: str | Iterable[Iterable[int | str]]) -> Basis:
    """Return the named family, or all functions of the given scopes of state variables, which are
    given by number or name."""
    sizes = structure.state_sizes
    if isinstance(basis, str):
        if basis not in FAMILIES:
            raise InvalidParameter(
                f"basis must be one of {', '.join(FAMILIES)}, or scopes of state variables; "
                f'got "{basis}"{did_you_mean(basis, FAMILIES)}'
            )
        if basis == "local":
            scopes = local_scopes(structure)
            for scope in scopes:
                _refuse_large(sizes, scope)
            joint = [(scope, np.eye(math.prod(sizes[v] for v in scope))) for scope in scopes]
            return _basis(basis, sizes, joint)
        singles = [((v,), _raw(sizes[v])[:, None]) for v in range(len(sizes))]
        if basis == "indicators":
            return _basis(basis, sizes, [((v,), np.eye(sizes[v])) for v in range(len(sizes))])
        if basis == "singles":
            return _basis(basis, sizes, singles)
        pairs = sorted(
            {
                (min(i, j), max(i, j))
                for i in range(structure.m)
                for j in structure.state_scope(i)
                if i != j
            }
        )
        products: list[tuple[Scope, Floats]] = [
            ((i, j), np.outer(_raw(sizes[i]), _raw(sizes[j])).reshape(-1, 1)) for i, j in pairs
        ]
        return _basis(basis, sizes, [*singles, *products])
    return _basis("scopes", sizes, _interactions(sizes, _checked_scopes(structure, basis)))


def local_scopes(structure: Structure) -> list[Scope]:
    """Return the groups that the problem declares, and every other variable alone."""
    grouped = {v for group in structure.groups for v in group}
    return sorted([*structure.groups, *((v,) for v in range(structure.m) if v not in grouped)])


def chains(structure: Structure, length: int) -> tuple[Scope, ...]:
    """Return the scopes of `length` variables along the paths of parents, for `ALP(basis=...)`.

    A path starts at a variable and goes on to one of its parents, then to one of theirs. A path
    that has no further parent ends early. On a circle the scopes are `length` neighbouring
    machines each.

    Parameters
    ----------
    structure : Structure
        The structure of the model to plan for.
    length : int
        The number of variables along each path, at least 1.

    Returns
    -------
    tuple[tuple[int, ...], ...]
        The scopes, sorted; each is a sorted tuple of numbers of state variables.

    Raises
    ------
    InvalidParameter
        If `length` is not an integer of at least 1.
    """
    check_structure(structure, "chains")
    whole = whole_number(length)
    if whole is None or whole < 1:
        raise InvalidParameter(f"length must be an integer >= 1; got {shown(length)}")
    paths: set[Scope] = {(v,) for v in range(structure.m)}
    for _ in range(min(whole, structure.m) - 1):
        longer: set[Scope] = set()
        for path in paths:
            following = [j for j in structure.state_scope(path[-1]) if j not in path]
            longer.update((*path, j) for j in following)
            if not following:
                longer.add(path)
        paths = longer
    return tuple(sorted({tuple(sorted(path)) for path in paths}))


def tied(basis: Basis, symmetry: Symmetry) -> Basis:
    """Return the basis with one weight for all functions that symmetries map to each other.

    The scopes must be closed under the symmetry (`Symmetry.closed`). If the linear program is
    invariant too, as with uniform relevance, no optimum is lost: the mean of any feasible h_w over
    the group is feasible and costs the same.
    """
    first = starts([block.size for block in basis.blocks]).tolist()
    number = {block.scope: q for q, block in enumerate(basis.blocks)}
    known = [
        {column.tobytes(): first[q] + b for b, column in enumerate(_columns(block.values))}
        for q, block in enumerate(basis.blocks)
    ]
    groups = Groups(first[-1])
    for renumbering in symmetry.renumberings:
        for q, block in enumerate(basis.blocks):
            to = number[renumbering.scope(block.scope)]
            image = renumbering.pulled_back(basis.blocks[to].values, block.scope, basis.state_sizes)
            for b, column in enumerate(_columns(image.reshape(block.values.shape))):
                groups.join(first[to] + b, known[q][column.tobytes()])
    weights = np.unique(groups.leaders(), return_inverse=True)[1].astype(np.int64)
    return replace(
        basis,
        blocks=tuple(
            replace(block, columns=weights[first[q] : first[q + 1]])
            for q, block in enumerate(basis.blocks)
        ),
    )


def collapsed(basis: Basis, weights: Floats) -> Basis:
    """Return a basis of one function per maximal scope whose sum is h_w."""
    homes: dict[Scope, Floats] = {}
    around: list[list[Scope]] = [[] for _ in basis.state_sizes]
    for block in sorted(basis.blocks, key=lambda block: -len(block.scope)):
        wanted = set(block.scope)
        among = min((around[v] for v in block.scope), key=len, default=list(homes))
        home = next((scope for scope in among if wanted.issubset(scope)), None)
        if home is None:
            home = block.scope
            homes[home] = np.zeros([basis.state_sizes[v] for v in home])
            for v in home:
                around[v].append(home)
        table = block.weighted(weights)
        shape = [basis.state_sizes[v] if v in wanted else 1 for v in home]
        homes[home] += table.reshape(shape)
    parts = [(scope, homes[scope].reshape(-1, 1)) for scope in sorted(homes)]
    return _basis(basis.name, basis.state_sizes, parts)


def _columns(values: Floats) -> Floats:
    return np.ascontiguousarray(values.T)


def _basis(name: str, sizes: tuple[int, ...], parts: Iterable[tuple[Scope, Floats]]) -> Basis:
    blocks: list[Block] = []
    first = 0
    for scope, values in parts:
        values = np.ascontiguousarray(values, dtype=np.float64)
        values.flags.writeable = False
        blocks.append(Block(scope, values, np.arange(first, first + values.shape[1])))
        first += values.shape[1]
    return Basis(name, sizes, tuple(blocks))


def _raw(size: int) -> Floats:
    """Return the value of the variable itself."""
    return np.arange(size, dtype=np.float64)


def subsets_of(scopes: Iterable[Scope]) -> set[Scope]:
    """Return the non-empty subsets of all scopes, each once."""
    return {
        subset
        for scope in scopes
        for length in range(1, len(scope) + 1)
        for subset in itertools.combinations(scope, length)
    }


def _interactions(sizes: Sequence[int], scopes: Sequence[Scope]) -> list[tuple[Scope, Floats]]:
    """Return the products of indicators of values 1..k-1 for every non-empty subset of a scope."""
    for scope in scopes:
        _refuse_large(sizes, scope)
    parts: list[tuple[Scope, Floats]] = []
    for subset in sorted(subsets_of(scopes), key=lambda s: (len(s), s)):
        shape = [sizes[v] for v in subset]
        inner = math.prod(size - 1 for size in shape)
        if inner == 0:
            continue  # a variable with one value adds nothing to the smaller subset
        assignments = all_assignments(shape)
        positive = (assignments > 0).all(axis=1)
        values = np.zeros((len(assignments), inner))
        values[np.flatnonzero(positive), np.arange(inner)] = 1.0
        parts.append((subset, values))
    return parts


def _checked_scopes(structure: Structure, basis: Iterable[Iterable[int | str]]) -> list[Scope]:
    checked: list[Scope] = []
    for number, scope in enumerate(basis):
        members: set[int] = set()
        for variable in scope:
            if isinstance(variable, str):
                whole: int | None = structure.variable(variable)
            else:
                whole = whole_number(variable)
            if whole is None or not 0 <= whole < structure.m:
                raise InvalidParameter(
                    f"scope {number} of the basis has variable {variable!r}; must be a state "
                    f"variable, by name or in 0..{structure.m - 1}"
                )
            members.add(whole)
        checked.append(tuple(sorted(members)))
    return checked


def _refuse_large(sizes: Sequence[int], scope: Scope) -> None:
    total = math.prod(sizes[v] for v in scope)
    if total > LARGEST_SCOPE:
        raise TooLarge(
            f"a basis over {len(scope)} variables jointly has {total} functions; "
            f"at most {LARGEST_SCOPE} are allowed",
            8 * total * total,
            8 * LARGEST_SCOPE * LARGEST_SCOPE,
        )
