"""The functions of the cost network of the Bellman residual: their scopes, terms and contexts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp._base.deadlines import Deadline
from fmdp.elimination.action_classes import number_slices
from fmdp.elimination.prohibitions import Prohibition
from fmdp.model import FactoredMDP, Structure
from fmdp.model.structure import Scope
from fmdp.planning.alp.bases import Basis

Ints = NDArray[np.int64]

_MOST_CLASSES = 64
"""Classes of contexts above which a function is stored once per context: more classes save less
and take longer to compare."""


@dataclass(frozen=True)
class NetworkFunction:
    """A function of the network and its terms."""

    scope: Scope
    rewards: tuple[int, ...]
    """Reward factors."""
    current: tuple[int, ...]
    """Blocks of the basis whose phi_b(s) it contains."""
    expected: tuple[int, ...]
    """Blocks of the basis whose (P phi_b)(x) it contains."""
    forbidden: tuple[int, ...] = ()
    """Prohibitions."""


def network_functions(
    rewards: Sequence[Scope],
    current: Sequence[Scope],
    expected: Sequence[Scope],
    forbidden: Sequence[Scope] = (),
) -> list[NetworkFunction]:
    """Return functions with maximal scopes, in the order of their first term, and their terms."""
    kinds = ("rewards", "current", "expected", "forbidden")
    terms = [
        (scope, kind, number)
        for kind, scopes in zip(kinds, (rewards, current, expected, forbidden), strict=True)
        for number, scope in enumerate(scopes)
    ]
    functions: list[tuple[Scope, dict[str, list[int]], int]] = []
    containing: dict[int, list[int]] = {}
    # Longest first, so that a scope is kept exactly if no earlier one contains it.
    by_length = sorted(range(len(terms)), key=lambda t: (-len(terms[t][0]), t))
    for t in by_length:
        scope, kind, number = terms[t]
        among: Sequence[int] = range(len(functions))
        if scope:
            among = min((containing.get(v, []) for v in scope), key=len)
        wanted = set(scope)
        home = next((f for f in among if wanted.issubset(functions[f][0])), None)
        if home is None:
            home = len(functions)
            functions.append((scope, {kind: [] for kind in kinds}, t))
            for v in scope:
                containing.setdefault(v, []).append(home)
        functions[home][1][kind].append(number)
    if not functions:
        return [NetworkFunction((), (), (), ())]  # no rewards and no basis: the sum is 0
    functions.sort(key=lambda function: function[2])
    return [
        NetworkFunction(scope, *(tuple(numbers[kind]) for kind in kinds))
        for scope, numbers, _ in functions
    ]


def context_classes(
    structure: Structure,
    model: FactoredMDP | None,
    basis: Basis,
    functions: Sequence[NetworkFunction],
    contexts: Sequence[int],
    forbidden: Sequence[Prohibition],
    sizes: Sequence[int],
    deadline: Deadline,
) -> dict[int, Ints]:
    """Return, for each function that depends on its context, the class of each context.

    Contexts of one class have equal tables in the model; without a model, rows that the structure
    declares to be alike. Class 0 is the largest.
    """
    known: dict[tuple[str, int], Ints] = {}

    def factor_classes(kind: str, number: int, context: int) -> Ints:
        key = (kind, number)
        if key not in known:
            transition = kind == "transition"
            scopes = structure.transition_scopes if transition else structure.reward_scopes
            table: NDArray[Any]
            if model is not None:
                table = model.transitions[number] if transition else model.rewards[number]
            elif transition:
                table = structure.transition_classes_of(number)
            else:
                table = structure.reward_classes_of(number)
            known[key] = _equal_slices(table, sizes, scopes[number], context)
        return known[key]

    classes: dict[int, Ints] = {}
    for f, (function, context) in enumerate(zip(functions, contexts, strict=True)):
        deadline.check()
        # Every value of a target has different numbers.
        if context not in function.scope or context >= len(structure.sizes):
            continue
        n = structure.sizes[context]
        if any(context in basis.blocks[q].scope for q in function.current):
            classes[f] = np.arange(n)
            continue
        joint = np.zeros(n, dtype=np.int64)
        for k in function.rewards:
            joint = _combine(joint, factor_classes("reward", k, context))
        for i in (i for q in function.expected for i in basis.blocks[q].scope):
            joint = _combine(joint, factor_classes("transition", i, context))
        for c in function.forbidden:
            table = forbidden[c].table.astype(np.float64)
            joint = _combine(joint, _equal_slices(table, sizes, forbidden[c].scope, context))
        largest = int(np.bincount(joint).argmax())
        swapped = joint.copy()
        swapped[joint == 0] = largest
        swapped[joint == largest] = 0
        classes[f] = swapped
    return classes


def _combine(first: Ints, second: Ints) -> Ints:
    pairs = first * (int(second.max()) + 1) + second
    numbered: Ints = np.unique(pairs, return_inverse=True)[1].astype(np.int64)
    return numbered


def _equal_slices(table: NDArray[Any], sizes: Sequence[int], scope: Scope, context: int) -> Ints:
    n = sizes[context]
    if context not in scope:
        return np.zeros(n, dtype=np.int64)
    position = scope.index(context)
    after = math.prod(sizes[v] for v in scope[position + 1 :])
    last = table.shape[1] if table.ndim == 2 else 1
    alike, first = number_slices(table.reshape(-1, n, after * last))
    return alike if len(first) <= _MOST_CLASSES else np.arange(n)
