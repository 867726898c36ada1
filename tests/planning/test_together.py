"""Alike rows, constraints, effects and intervals in one model, against truths written out here.

Nothing of the engine is used for the truth: a model is written out pair by pair from its tables,
its constraints are read one by one, its best gains come from one linear program over all states,
and what a policy gains from the powers of its chain.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

import fmdp
from fmdp import Alike, AtMost, FactoredMDP, Forbidden, Intervals, Structure
from fmdp.errors import FmdpError
from fmdp.model import flat_model, permute_states, product

Floats = NDArray[np.float64]
SEEDS = range(36)
CLOSE = 2e-6


class Dense(NamedTuple):
    chance: Floats  # [S, A, S]
    pay: Floats  # [S, A]
    allowed: NDArray[np.bool_]  # [S, A]


def row_of(scope: Any, joint: Any, sizes: Any) -> int:
    row = 0
    for v in scope:
        row = row * sizes[v] + joint[v]
    return row


def forbids(constraint: Any, joint: Any, sizes: Any) -> bool:
    if isinstance(constraint, AtMost):
        pairs = zip(constraint.actions, constraint.idle, strict=True)
        return sum(joint[v] != idle for v, idle in pairs) > constraint.most
    return bool(constraint.table[row_of(constraint.scope, joint, sizes)])


def written_out(model: FactoredMDP, transitions: Any = None, rewards: Any = None) -> Dense:
    s = model.structure
    transitions = model.transitions if transitions is None else transitions
    rewards = model.rewards if rewards is None else rewards
    states = list(itertools.product(*map(range, s.state_sizes)))
    actions = list(itertools.product(*map(range, s.action_sizes)))
    chance = np.zeros((len(states), len(actions), len(states)))
    pay = np.zeros(chance.shape[:2])
    allowed = np.ones(pay.shape, dtype=np.bool_)
    for (i, state), (j, action) in itertools.product(enumerate(states), enumerate(actions)):
        x = state + action
        law = np.ones(1)
        for scope, table in zip(s.transition_scopes, transitions, strict=True):
            law = np.multiply.outer(law, table[row_of(scope, x, s.sizes)]).reshape(-1)
        chance[i, j] = law
        for scope, means in zip(s.reward_scopes, rewards, strict=True):
            pay[i, j] += means[row_of(scope, x, s.sizes)]
        allowed[i, j] = not any(forbids(c, x, s.sizes) for c in s.constraints)
    return Dense(chance, pay, allowed)


def best_gains(model: Dense) -> Floats:
    """The least g with g >= P g and g + h >= R + P h for some h, allowed pairs alone: [S]."""
    n = len(model.pay)
    rows, ends = [], []
    for i, j in np.argwhere(model.allowed):
        own = -np.eye(n)[i] + model.chance[i, j]
        rows += [np.append(own, np.zeros(n)), np.append(-np.eye(n)[i], own)]
        ends += [0.0, -model.pay[i, j]]
    cost = np.append(np.ones(n), np.zeros(n))
    found = linprog(cost, A_ub=np.array(rows), b_ub=ends, bounds=[(None, None)] * (2 * n))
    assert found.status == 0
    gains: Floats = found.x[:n]
    return gains


def gains_of(model: Dense, actions: NDArray[np.int64]) -> Floats:
    n = len(actions)
    lazy = 0.5 * (np.eye(n) + model.chance[np.arange(n), actions])
    for _ in range(60):
        lazy = lazy @ lazy
        lazy /= lazy.sum(axis=1, keepdims=True)
    gains: Floats = lazy @ model.pay[np.arange(n), actions]
    return gains


def random_subset(rng: np.random.Generator, members: Any, least: int, most: int) -> tuple[int, ...]:
    size = int(rng.integers(min(least, len(members)), min(most, len(members)) + 1))
    return tuple(sorted(int(v) for v in rng.choice(members, size=size, replace=False)))


def random_constraints(rng: np.random.Generator, m: int, sizes: Any) -> list[Any]:
    made: list[Any] = []
    for _ in range(int(rng.integers(1, 4))):
        acting = random_subset(rng, range(m, len(sizes)), 1, 3)
        if rng.random() < 0.5:
            idle = tuple(int(rng.integers(sizes[v])) for v in acting)
            made.append(AtMost(acting, int(rng.integers(0, len(acting) + 1)), idle))
        else:
            scope = tuple(sorted({*acting, *random_subset(rng, range(m), 0, 2)}))
            rows = int(np.prod([sizes[v] for v in scope]))
            made.append(Forbidden(scope, rng.random(rows) < 0.4))
    return made


def laws(rng: np.random.Generator, rows: int, size: int, sure: float) -> Floats:
    made = rng.dirichlet(np.ones(size), size=rows)
    certain = rng.random(rows) < sure
    made[certain] = np.eye(size)[rng.integers(0, size, certain.sum())]
    return made


def put_together(rng: np.random.Generator, tables: list[Floats]) -> list[NDArray[np.int64]]:
    """Classes within and between tables whose rows have one shape; their rows made equal."""
    classes, first = [], []
    for table in tables:
        own = np.empty(len(table), dtype=np.int64)
        for row in range(len(table)):
            like = [c for c, one in enumerate(first) if np.shape(one) == np.shape(table[row])]
            own[row] = rng.choice(like) if like and rng.random() < 0.4 else len(first)
            if own[row] == len(first):
                first.append(np.copy(table[row]))
            table[row] = first[own[row]]
        classes.append(own)
    return classes


def random_model(seed: int) -> FactoredMDP:
    """Every second with effects, every third with intervals; some or all rows may be sure."""
    rng = np.random.default_rng(seed)
    m, n_actions = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    state_sizes = tuple(int(v) for v in rng.choice([1, 2, 2, 3] if m < 3 else [1, 2, 2], size=m))
    action_sizes = tuple(int(v) for v in rng.choice([1, 2, 2, 2], size=n_actions))
    sizes = state_sizes + action_sizes
    sure = float(rng.choice([0.0, 0.5, 1.0]))

    def rows(scope: Any) -> int:
        return int(np.prod([sizes[v] for v in scope], dtype=int))

    for _ in range(20):
        constraints = random_constraints(rng, m, sizes)
        try:
            told = Structure(state_sizes, action_sizes, ((),) * m, (), constraints=constraints)
        except FmdpError:
            constraints = []  # a state without an action
        else:
            if not told.allowed_mask().all():
                break
    parents = range(m) if seed % 2 else range(len(sizes))
    scopes = [random_subset(rng, parents, 0, 3) for _ in range(m)]
    tables = [laws(rng, rows(scope), k, sure) for scope, k in zip(scopes, state_sizes, strict=True)]
    start = tuple(int(rng.integers(k)) for k in state_sizes)
    if seed % 2:
        parts = np.array_split(rng.permutation(n_actions), min(m, n_actions))
        effects = []
        for state, acting in enumerate(parts):
            own = tuple(sorted(m + int(a) for a in acting))
            outcome = rng.integers(0, sizes[state], size=(sizes[state], rows(own)))
            effects.append(((state,), own, outcome))
        rewards: list[Any] = [
            ("before", (0,), rng.random(sizes[0])),
            ("after", (m - 1,), rng.random(sizes[m - 1])),
            ("cost", (0, *effects[0][1]), -0.5 * rng.random(rows((0, *effects[0][1])))),
            ("setup", (), rng.normal(size=2) / 4),
        ]
        means = [table for _, _, table in rewards]
        alike = Alike(tuple(put_together(rng, tables)), tuple(put_together(rng, means)))
        model = FactoredMDP.from_effects(
            state_sizes,
            action_sizes,
            effects,
            list(zip(scopes, tables, strict=True)),
            rewards,
            reward_ranges=[(-2.0, 2.0)] * 4,
            initial_state=start,
            alike=alike,
            constraints=constraints,
        )
    else:
        reward_scopes = [random_subset(rng, range(len(sizes)), 0, 3) for _ in range(2)]
        means = [rng.random(rows(scope)) for scope in reward_scopes]
        structure = Structure(
            state_sizes,
            action_sizes,
            tuple(scopes),
            tuple(reward_scopes),
            alike=Alike(tuple(put_together(rng, tables)), tuple(put_together(rng, means))),
            constraints=tuple(constraints),
        )
        model = FactoredMDP(structure, tables, means, initial_state=start)
    if seed % 3:
        return model
    off = [(rng.random(t.shape) * 0.3, rng.random(t.shape) * 0.3) for t in model.transitions]
    known = Intervals(
        tuple(np.maximum(t - d, 0.0) for t, (d, _) in zip(model.transitions, off, strict=True)),
        tuple(np.minimum(t + d, 1.0) for t, (_, d) in zip(model.transitions, off, strict=True)),
        model.rewards,
        model.rewards,
    )
    return FactoredMDP(
        model.structure, model.transitions, model.rewards, None, start, intervals=known
    )


def table_of(policy: Any, structure: Structure, **step: int) -> NDArray[np.int64]:
    states = np.ndindex(*structure.state_sizes)
    sizes = structure.action_sizes
    return np.array([np.ravel_multi_index(policy(state, **step), sizes) for state in states])


def check_plan(plan: Any, truth: Dense, structure: Structure) -> None:
    """Bounds that hold the truth, and a policy that is allowed and keeps the lower one."""
    best, n = best_gains(truth), len(truth.pay)
    assert plan.gain_lower - CLOSE <= best.min() <= best.max() <= plan.gain_upper + CLOSE
    actions = table_of(plan.policy, structure)
    assert truth.allowed[np.arange(n), actions].all()
    assert gains_of(truth, actions).min() >= plan.gain_lower - CLOSE


@pytest.mark.parametrize("seed", SEEDS)
def test_plans_of_models_with_everything_keep_their_bounds(seed: int) -> None:
    model = random_model(seed)
    s, truth = model.structure, written_out(model)
    for planner in ("exact", "exact,ties=last", "alp"):
        check_plan(fmdp.plan(model, planner), truth, s)
    check_plan(fmdp.plan(flat_model(model)), truth, flat_model(model).structure)
    turned = permute_states(model, range(s.m - 1, -1, -1))
    check_plan(fmdp.plan(turned), written_out(turned), turned.structure)
    assert permute_states(turned, range(s.m - 1, -1, -1)).content_hash == model.content_hash


@pytest.mark.parametrize("seed", SEEDS)
def test_finite_plans_of_models_with_everything_are_backward_induction(seed: int) -> None:
    model = random_model(seed)
    s, truth = model.structure, written_out(model)
    best = kept = np.zeros(len(truth.pay))
    plan = fmdp.plan(model, fmdp.Exact(criterion="finite", horizon=4, discount=0.8))
    for step in range(3, -1, -1):
        best = np.where(truth.allowed, truth.pay + 0.8 * truth.chance @ best, -np.inf).max(axis=1)
        chosen = (np.arange(len(best)), table_of(plan.policy, s, step=step))
        assert truth.allowed[chosen].all()
        kept = truth.pay[chosen] + 0.8 * truth.chance[chosen] @ kept
    start = np.ravel_multi_index(model.initial_state, s.state_sizes)
    assert plan.objective == pytest.approx(best[start], abs=1e-9)
    assert fmdp.evaluate(model, plan.policy).value == pytest.approx(kept[start], abs=1e-9)


@pytest.mark.parametrize("seed", [seed for seed in SEEDS if seed % 3 == 0])
def test_robust_plans_hold_in_every_member(seed: int) -> None:
    model = random_model(seed)
    s, rng, known = model.structure, np.random.default_rng(seed), model.intervals
    assert known is not None
    robust = fmdp.plan(model, fmdp.Exact(intervals="robust"))
    hopeful = fmdp.plan(model, fmdp.Exact(intervals="optimistic"))
    actions = table_of(robust.policy, s)
    for _ in range(8):
        # Rows of a class have one interval and are moved together.
        moved: dict[int, Floats] = {}
        tables = []
        for i, nominal in enumerate(model.transitions):
            table = nominal.copy()
            for row, number in enumerate(s.transition_classes_of(i)):
                if number not in moved:
                    law, left = known.lower[i][row].copy(), 1.0 - known.lower[i][row].sum()
                    for value in rng.permutation(len(law)):
                        more = min(left, known.upper[i][row][value] - law[value])
                        law[value], left = law[value] + more, left - more
                    moved[int(number)] = law
                table[row] = moved[int(number)]
            tables.append(table)
        member = written_out(model, tables)
        assert gains_of(member, actions).min() >= robust.gain_lower - CLOSE
        assert best_gains(member).max() <= hopeful.gain_upper + CLOSE


@pytest.mark.parametrize("seed", SEEDS)
def test_a_product_of_models_with_everything_is_both_side_by_side(seed: int) -> None:
    one, other = random_model(seed), random_model(seed + 100)
    p, q = written_out(one), written_out(other)
    both = written_out(product(one, other))
    n = both.pay.shape
    assert both.pay == pytest.approx((p.pay[:, None, :, None] + q.pay[None, :, None]).reshape(n))
    assert np.array_equal(
        both.allowed, (p.allowed[:, None, :, None] & q.allowed[None, :, None]).reshape(n)
    )
    chance = np.einsum("iaj,kbl->ikabjl", p.chance, q.chance).reshape(both.chance.shape)
    assert both.chance == pytest.approx(chance)
