"""Fleets and restless bandits: published bounds, hand-made numbers, sizes, refusals."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import linprog

import fmdp
from fmdp.errors import FmdpError
from fmdp.model import AtMost, FactoredMDP


def occupancy_bound(model: FactoredMDP, share: float) -> float:
    """The best average reward of part 0 alone that is acted on for at most a share of the time."""
    size = model.structure.state_sizes[0]
    rows = model.transitions[0].reshape(size, 2, size)
    balance = np.array([rows[x, a] - np.eye(size)[x] for x in range(size) for a in range(2)]).T
    found = linprog(
        -model.rewards[0],
        A_ub=[[0.0, 1.0] * size],
        b_ub=[share],
        A_eq=np.vstack([balance, np.ones(2 * size)]),
        b_eq=[0.0] * size + [1.0],
    )
    return float(-found.fun)


@pytest.mark.parametrize(
    ("arm", "share", "bound"),
    [
        ("gast1", 0.4, 0.247597),
        ("gast2", 0.4, 0.12380016733626052),  # published
        ("gast3", 0.4, 0.363776),
        # Acting on state 2 alone gains as much as it is acted on: the chain has pi_1 = pi_0, and
        # pi_3 - pi_0 = q pi_2, where q is the chance to act in state 2.
        ("circulant", 0.2, 0.2),
        ("nonindexable", 0.5, 0.779206),
    ],
)
def test_bounds_of_the_restless_bandits(arm: str, share: float, bound: float) -> None:
    model = fmdp.problem(f"restless:10,arm={arm}")
    (cap,) = model.structure.constraints
    assert isinstance(cap, AtMost)
    assert cap.most == round(10 * share)
    # The published matrices have eight digits.
    assert occupancy_bound(model, share) == pytest.approx(
        bound, abs=1e-6 if arm != "gast2" else 1e-8
    )


def test_whittle_indices_of_the_circulant_arm() -> None:
    """An arm that pays its published index for being active does not mind whether it is."""
    model = fmdp.problem("restless:1,arm=circulant,budget=1")
    rows, means = model.transitions[0].reshape(4, 2, 4), model.rewards[0].reshape(4, 2)
    for state, index in enumerate((-0.5, 0.5, 1.0, -1.0)):
        priced = means - [0.0, index]
        arm = FactoredMDP.from_factors((4,), (2,), [((0, 1), rows)], [((0, 1), priced)])
        plan = fmdp.plan(arm, "exact,tolerance=1e-12")
        assert plan.bias is not None
        passive, active = rows[state] @ plan.bias + priced[state]
        assert active == pytest.approx(passive, abs=1e-9)


def test_an_arm_that_is_not_indexable() -> None:
    """In state 1 it is active for a low price, passive for a higher one, and active again."""
    model = fmdp.problem("restless:1,arm=nonindexable,budget=1")
    rows, means = model.transitions[0].reshape(3, 2, 3), model.rewards[0].reshape(3, 2)
    chosen = []
    for price in (-0.5, -0.2, 0.3):
        gains = {}
        for policy in itertools.product((0, 1), repeat=3):
            states = np.arange(3)
            chain = rows[states, policy]
            stationary = np.linalg.lstsq(
                np.vstack([chain.T - np.eye(3), np.ones(3)]), [0.0, 0.0, 0.0, 1.0], rcond=None
            )[0]
            gains[policy] = stationary @ (means[states, policy] - price * np.array(policy))
        chosen.append(max(gains, key=gains.__getitem__))
    assert chosen == [(1, 1, 1), (1, 0, 1), (1, 1, 0)]


def test_the_machines_of_a_fleet() -> None:
    model = fmdp.problem("fleet:6,types=2,levels=3,seed=3")
    s = model.structure
    assert s.state_sizes == (3,) * 6
    assert s.constraints == (AtMost(tuple(range(6, 12)), 1, name="budget"),)
    assert s.values[0] == ("0", "1", "failed")
    for i in range(6):
        leave, repair = model.transitions[i].reshape(3, 2, 3).transpose(1, 0, 2)
        assert leave[2].tolist() == [0, 0, 1]  # failed stays failed
        assert leave[0, 2] == leave[1, 0] == 0
        assert 0.05 <= leave[0, 1] <= 0.35
        assert (repair[:, 0] >= 0.6).all()
        assert repair[1, 2] == repair[2, 1] == 0
        left, repaired = model.rewards[i].reshape(3, 2).T
        assert 0.5 <= left[0] <= 2
        assert left[0] > left[1] > left[2] == 0
        assert np.allclose(left - repaired, left[0] - repaired[0])
        assert model.transitions[i] is model.transitions[i % 2]
    assert not np.array_equal(model.transitions[0], model.transitions[1])


def test_machines_of_one_type_are_alike() -> None:
    model = fmdp.problem("fleet:5,types=2,alike=types")
    alike = model.structure.alike
    assert alike is not None
    for classes in (alike.transitions, alike.rewards):
        assert [int(rows[0]) for rows in classes] == [0, 8, 0, 8, 0]
    assert len(set(itertools.chain(*(rows.tolist() for rows in alike.transitions)))) == 16
    plain = fmdp.problem("fleet:5,types=2")
    assert plain.structure.alike is None
    assert all(map(np.array_equal, model.transitions, plain.transitions))


def test_a_share_of_a_fleet_is_the_default_budget() -> None:
    for n, most in ((1, None), (2, 1), (200, 30)):
        caps = fmdp.problem(f"fleet:{n}").structure.constraints
        assert [cap.most for cap in caps if isinstance(cap, AtMost)] == ([most] if most else [])
    assert fmdp.problem("fleet:9,budget=9").structure.constraints == ()


def test_a_large_fleet_is_small() -> None:
    model = fmdp.problem("fleet:3000,types=10,alike=types")
    assert len({id(table) for table in (*model.transitions, *model.rewards)}) == 20
    assert model.structure.constraints[0].label() == 'constraint "budget"'


def test_bad_settings_are_refused_in_one_line() -> None:
    with pytest.raises(FmdpError, match="types of fleet must be at most the number of machines, 3"):
        fmdp.problem("fleet:3,types=4")
    with pytest.raises(FmdpError, match="arm"):
        fmdp.problem("restless:3,arm=gast9")
    with pytest.raises(FmdpError, match="GiB"):
        fmdp.problem("fleet:100000000")
