"""The mixing time against its definition, step by step, and by hand."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from fmdp.measures import chain_mixing_time, mixing_time
from fmdp.problems import problem
from fmdp.testing import oracles
from fmdp.testing.strategies import models, policies, structures


def by_definition(chain: np.ndarray, steps: int) -> float | None:
    """The smallest t by multiplying out; None if it is above `steps`. One aperiodic class only."""
    law = oracles.limiting_matrix(chain)[0]
    power = np.eye(len(chain))
    for t in range(steps + 1):
        distance = np.abs(power - law).sum(axis=1).max() / 2
        assume(abs(distance - 0.25) > 1e-9)  # too near to call
        if distance <= 0.25:
            return float(t)
        power = power @ chain
    return None


def is_aperiodic(chain: np.ndarray, members: np.ndarray) -> bool:
    """Some power of the support has no zero (Wielandt: (n - 1)^2 + 1 at the latest)."""
    support = (chain[np.ix_(members, members)] > 0).astype(float)
    n = len(members)
    power = np.linalg.matrix_power(support / support.sum(), 1)
    for _ in range((n - 1) ** 2 + 1):
        if (power > 0).all():
            return True
        power = power @ support
        power /= power.max()
    return bool((power > 0).all())


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_agrees_with_the_definition(data: st.DataObject) -> None:
    model = data.draw(models(structures(max_states=10)))
    actions = data.draw(policies(model.structure))
    chain, _ = oracles.policy_chain(oracles.dense(model), actions)
    classes = oracles.recurrent_classes(chain)
    found = mixing_time(model, actions)
    if len(classes) > 1 or not is_aperiodic(chain, classes[0]):
        assert found == math.inf
        return
    expected = by_definition(chain, 3000)
    if expected is None:
        assert found is None or found > 3000
    else:
        assert found == expected


def test_by_hand() -> None:
    # Two states that swap with probability 1/8: |P^t - 1/2| = (3/4)^t / 2 from either side.
    chain = np.array([[7 / 8, 1 / 8], [1 / 8, 7 / 8]])
    assert chain_mixing_time(chain) == 3.0  # (3/4)^3 / 2 = .21, (3/4)^2 / 2 = .28
    # One step forgets everything; so does none when there is one state.
    assert chain_mixing_time(np.array([[0.5, 0.5], [0.5, 0.5]])) == 1.0
    assert chain_mixing_time(np.ones((1, 1))) == 0.0
    # A transient state on the way to the only recurrent one.
    assert chain_mixing_time(np.array([[0.5, 0.5], [0, 1.0]])) == 2.0


def test_slow_chains_take_few_products() -> None:
    # The distance is (1 - 2 p)^t / 2: t = log(1/2) / log(1 - 2 p), rounded up.
    for p in (1e-3, 1e-5, 1e-7):
        chain = np.array([[1 - p, p], [p, 1 - p]])
        assert chain_mixing_time(chain) == math.ceil(math.log(0.5) / math.log1p(-2 * p))


def test_a_time_that_rounding_leaves_in_doubt_is_not_given() -> None:
    # At 1e-9 the true 346,573,590 steps came out as 346,573,605.
    chain = np.array([[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]])
    assert chain_mixing_time(chain) is None


def test_a_chain_that_is_hardly_ever_left_has_no_traceback() -> None:
    """1 - 1e-18 is 1, so that I - P is singular in doubles. From state 1 the other is not met in
    any number of steps that doubles can tell apart."""
    assert chain_mixing_time(np.array([[1.0, 1e-18], [1e-18, 1.0]])) is None
    # State 1 is as good as never met again: what counts is the way from there.
    assert chain_mixing_time(np.array([[1.0, 1e-18], [0.5, 0.5]])) == 2.0


def test_infinite_by_the_support() -> None:
    assert chain_mixing_time(np.array([[0, 1.0], [1, 0]])) == math.inf
    assert chain_mixing_time(np.eye(2)) == math.inf
    cycle = np.roll(np.eye(6), 1, axis=1)
    assert chain_mixing_time(cycle) == math.inf
    cycle[0] = [0, 0.5, 0, 0.5, 0, 0]  # cycles of 6 and 4: period 2
    assert chain_mixing_time(cycle) == math.inf
    cycle[0] = [0, 0.5, 0.5, 0, 0, 0]  # cycles of 6 and 5: aperiodic
    assert chain_mixing_time(cycle) < math.inf


def test_above_the_limit_there_is_no_answer() -> None:
    model = problem("circle:4")
    actions = np.zeros(16, dtype=np.int64)
    assert mixing_time(model, actions, state_limit=15) is None
