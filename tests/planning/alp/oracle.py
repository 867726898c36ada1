"""The linear programs over all (state, action), and the bases written out: no shared code."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import linprog

from fmdp.model import FactoredMDP, Structure
from fmdp.testing.oracles import dense as dense_mdp


def basis_matrix(structure: Structure, basis) -> np.ndarray:
    """phi_b(s) for all states in C order, [S, K], by the definitions of the families."""
    states = np.array(list(itertools.product(*(range(size) for size in structure.state_sizes))))
    m = structure.m
    columns = []
    if basis in ("singles", "pairs"):
        columns += [states[:, i] for i in range(m)]
    if basis == "pairs":
        edges = {frozenset((i, j)) for i in range(m) for j in structure.state_scope(i) if i != j}
        columns += [states[:, min(e)] * states[:, max(e)] for e in sorted(edges, key=sorted)]
    scopes = []
    if basis == "indicators":
        scopes = [(i,) for i in range(m)]
    elif basis == "local":
        grouped = {v for group in structure.groups for v in group}
        scopes = [*structure.groups, *((v,) for v in range(m) if v not in grouped)]
    elif not isinstance(basis, str):
        scopes = [tuple(scope) for scope in basis]
    for scope in scopes:
        for values in itertools.product(*(range(structure.state_sizes[v]) for v in scope)):
            columns.append((states[:, list(scope)] == values).all(axis=1))
    if not columns:
        return np.zeros((len(states), 0))
    return np.array(columns, dtype=float).T


def joint_relevance(structure: Structure, relevance=None) -> np.ndarray:
    weights = np.ones(1)
    for v, size in enumerate(structure.state_sizes):
        own = np.full(size, 1 / size) if relevance is None else np.array(relevance[v], dtype=float)
        weights = np.outer(weights, own / own.sum()).ravel()
    return weights


def dense(model: FactoredMDP) -> tuple[np.ndarray, np.ndarray]:
    flat = dense_mdp(model)
    return flat.transitions, flat.rewards  # [A, S, S], [A, S]


def discounted_lp(model: FactoredMDP, phi: np.ndarray, discount: float, relevance=None):
    """(objective, weights with the constant first) of the LP with a row for every (s, a)."""
    P, R = dense(model)
    full = np.hstack([np.ones((len(phi), 1)), phi])
    rows = np.vstack([full - discount * Pa @ full for Pa in P])
    cost = joint_relevance(model.structure, relevance) @ full
    return minimum(cost, rows, R.ravel())


def average_lp(model: FactoredMDP, phi: np.ndarray) -> float:
    P, R = dense(model)
    rows = np.vstack([np.hstack([np.ones((len(phi), 1)), phi - Pa @ phi]) for Pa in P])
    cost = np.zeros(rows.shape[1])
    cost[0] = 1.0
    return minimum(cost, rows, R.ravel())[0]


def minimum(cost: np.ndarray, rows: np.ndarray, lower: np.ndarray) -> tuple[float, np.ndarray]:
    """min cost x subject to rows x >= lower, x free. Bases with functions that depend on each
    other make singular programs, on which one algorithm or the other may give up."""
    for method in ("highs-ds", "highs-ipm"):
        found = linprog(cost, A_ub=-rows, b_ub=-lower, bounds=(None, None), method=method)
        if found.status == 0:
            return found.fun, found.x
    raise AssertionError(found.message)


def residuals(model: FactoredMDP, h: np.ndarray, discount: float = 1.0) -> np.ndarray:
    """R + discount P h - h, [A, S]."""
    P, R = dense(model)
    return R + discount * P @ h - h
