"""Accelerated sweeps: the same answers in fewer of them, and when that is safe to do."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp._base.disk_arrays import disk_array
from fmdp.elimination.backup import backup_for
from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP
from fmdp.planning.exact import phases, solver
from fmdp.planning.exact.acceleration import KEPT, MOST_RESTARTS, PREFERRED_KEPT, Anderson
from fmdp.planning.exact.recurrence import always_reached, in_every_best_class
from fmdp.planning.plan import Status
from fmdp.testing import oracles, strategies

Share = tuple[int, int, int]


def in_one_piece(branches: int, work: Callable[[Share], object]) -> None:
    work((0, 0, branches))


def piece_by_piece(branches: int, work: Callable[[Share], object]) -> None:
    for piece in reversed(range(branches)):
        work((piece % 3, piece, piece + 1))


def iterated(matrix: np.ndarray, rewards: np.ndarray, kept: int, sweeps: int) -> list[float]:
    """The gaps of accelerated sweeps of one policy's chain."""
    h, gaps = np.zeros(len(rewards)), []
    anderson = Anderson(len(rewards), kept, in_one_piece)
    for _ in range(sweeps):
        new = rewards + matrix @ h
        low, high = float((new - h).min()), float((new - h).max())
        gaps.append(high - low)
        anderson.advance(h, new, low, high)
    return gaps


def test_a_chain_of_three_states_is_solved_at_the_fourth_sweep() -> None:
    """f lives in two dimensions (constants apart): two differences span them, and the combination
    that follows has none left, but for what single precision loses."""
    chain = np.array([[0.9, 0.1, 0.0], [0.0, 0.8, 0.2], [0.3, 0.0, 0.7]])
    gaps = iterated(chain, np.array([1.0, 0.0, 0.5]), 2, 4)
    assert gaps[2] > 0.01
    assert gaps[3] < 1e-6 * gaps[0]


def test_a_sixth_of_the_sweeps_on_a_ring() -> None:
    model = fmdp.problem("circle:10,dynamics=guestrin")
    plan = fmdp.Exact().plan(model)
    assert plan.status is Status.CONVERGED
    assert plan.stats["accelerated"] == KEPT
    assert plan.iterations < 30  # 140 without


def test_the_same_plan_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("circle:8,dynamics=guestrin", "riverswim:2", "tree:7,dynamics=talebi", "jao:3")
    for name in names:
        model = fmdp.problem(name)
        fast = fmdp.Exact(tolerance=1e-9).plan(model)
        with monkeypatch.context() as plain:
            plain.setattr(solver, "acceleration_for", lambda *_: None)
            slow = fmdp.Exact(tolerance=1e-9).plan(model)
        assert fast.iterations < slow.iterations
        assert fast.gain == pytest.approx(slow.gain, abs=1e-9)
        assert fast.bias == pytest.approx(slow.bias, abs=1e-6)
        discounted = fmdp.Exact(criterion="discounted", discount=0.99).plan(model)
        with monkeypatch.context() as plain:
            plain.setattr(solver, "acceleration_for", lambda *_: None)
            expected = fmdp.Exact(criterion="discounted", discount=0.99).plan(model)
        assert discounted.iterations < expected.iterations
        assert discounted.bias == pytest.approx(expected.bias, abs=1e-5)


@settings(max_examples=150)
@given(strategies.models())
def test_plans_of_all_kinds_of_models_are_what_they_were(model: FactoredMDP) -> None:
    plan = fmdp.Exact().plan(model)
    truth = oracles.optimal(oracles.dense(model)).gain
    if plan.status is Status.CONVERGED:
        assert plan.gain_lower - 1e-9 <= truth.min()
        assert truth.max() <= plan.gain_upper + 1e-9
    if always_reached(model) is not None:
        assert plan.status is Status.CONVERGED
        assert np.ptp(truth) < 1e-7


def test_where_it_does_not_help_it_gives_up() -> None:
    """A gap that grows is forgotten about; the fifth in a row is the last."""
    anderson = Anderson(3, 2, in_one_piece)
    h, gap = np.zeros(3), 1.0
    steps = 0
    while anderson.on:
        anderson.advance(h, h + np.array([0.0, 0.5, 1.0]) * gap, 0.0, gap)
        gap *= 3.0
        steps += 1
    assert steps == MOST_RESTARTS + 2
    anderson = Anderson(3, 2, in_one_piece)
    for gap in (1.0, 3.0, 0.9, 2.7, 0.8, 2.6, 0.7, 2.5, 0.6, 2.4, 0.5, 2.3):
        anderson.advance(h, h + np.array([0.0, 0.5, 1.0]) * gap, 0.0, gap)
    assert anderson.on  # each time it came to something


def test_threads_do_not_change_a_bit() -> None:
    rng = np.random.default_rng(3)
    n = 40_000  # three blocks
    kinds = [Anderson(n, 3, over) for over in (in_one_piece, piece_by_piece)]
    points = [np.zeros(n), np.zeros(n)]
    for _ in range(6):
        noise = rng.normal(size=n)
        for anderson, h in zip(kinds, points, strict=True):
            new = 0.5 * h + noise
            low, high = float((new - h).min()), float((new - h).max())
            anderson.advance(h, new, low, high)
        assert points[0].tobytes() == points[1].tobytes()


def test_it_takes_the_memory_that_is_left() -> None:
    model = fmdp.problem("circle:10,dynamics=guestrin")
    enough = fmdp.Exact().plan(model).stats["memory_bytes"]
    with pytest.raises(TooLarge) as refusal:  # but not because of the vectors alone
        fmdp.Exact(memory_limit=30_000).plan(model)
    least = refusal.value.needed_bytes
    assert 25 * 1024 < least < enough
    for limit, kept in ((enough, KEPT), (enough - 8 * 2 * 1024, 8), (least, 0)):
        plan = fmdp.Exact(memory_limit=limit).plan(model)
        assert plan.status is Status.CONVERGED
        assert plan.stats["memory_bytes"] <= limit
        assert abs(plan.stats["accelerated"] - kept) <= 1


def test_limits_of_memory_count_what_each_phase_holds() -> None:
    """Between sweeps: h, L h, f, g and differences in single precision; at the end: h, L h, actions
    and a policy of one byte.  The bias of this ring is unique: nothing has to be proved."""
    model = fmdp.problem("circle:13,dynamics=guestrin")
    backup = backup_for(model, threads=1)
    states = model.structure.n_states
    plan = fmdp.Exact(threads=1).plan(model)
    sums = 8 * 3 * KEPT  # of one block
    assert plan.stats["memory_bytes"] == backup.program_bytes + sums + states * (
        2 * 8 + 2 * 8 + 2 * 4 * KEPT
    )
    plain = fmdp.Exact(threads=1, memory_limit=backup.program_bytes + 40 * states).plan(model)
    assert plain.stats["accelerated"] == 0
    assert plain.stats["memory_bytes"] == backup.program_bytes + 25 * states


def test_short_memory_is_left_to_acceleration_before_faster_sweeps() -> None:
    model = fmdp.problem("circle:16,dynamics=guestrin")
    states = model.structure.n_states
    fast = backup_for(model, threads=1, state_bytes=25)
    limit = fast.program_bytes + 50 * states
    plan = fmdp.Exact(threads=1, memory_limit=limit).plan(model)
    assert plan.stats["accelerated"] >= PREFERRED_KEPT[-1]
    assert len(plan.stats["conditioned"]) > len(fast.layout.branch)  # leaner and slower
    assert plan.stats["memory_bytes"] <= limit


def test_vectors_on_disk_give_the_same_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    model = fmdp.problem("circle:13,dynamics=guestrin")
    memory = fmdp.Exact().plan(model)
    limit = backup_for(model).program_bytes + 40 * model.structure.n_states
    disk = fmdp.Exact(vectors="disk", memory_limit=limit).plan(model)
    assert disk.stats["accelerated"] == memory.stats["accelerated"] == KEPT
    assert disk.stats["disk_bytes"] == model.structure.n_states * (2 * 8 + 2 * 4 * KEPT)
    assert disk.stats["memory_bytes"] <= limit < memory.stats["memory_bytes"]
    assert (disk.gain_lower, disk.gain_upper) == (memory.gain_lower, memory.gain_upper)
    assert disk.bias is not None
    assert memory.bias is not None
    assert disk.bias.tobytes() == memory.bias.tobytes()
    assert disk.policy == memory.policy
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_left_while_vectors_are_on_disk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing has to be removed, however the process ends."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    anderson = Anderson(1000, 3, in_one_piece, on_disk=True)
    assert list(tmp_path.iterdir()) == []
    assert anderson.bytes < anderson.vector_bytes == 1000 * (2 * 8 + 2 * 4 * 3)


def test_a_full_disk_is_refused_in_one_line() -> None:
    with pytest.raises(TooLarge, match=r"vectors on disk need a file of 4.*TMPDIR") as refusal:
        disk_array(1 << 59)
    assert refusal.value.needed_bytes == 1 << 62


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 5e-309, 1e-300, 1e290])
def test_units_at_the_ends_of_what_numbers_can_be(unit: float) -> None:
    rows = [[0.6, 0.4], [0.3, 0.7]]
    model = FactoredMDP.from_factors(
        (2,), (1,), [((0,), rows)], [((0,), [0.0, unit])], reward_ranges=[(0.0, unit)]
    )
    plan = fmdp.Exact().plan(model)
    assert plan.gain_lower <= unit * 4 / 7 <= plan.gain_upper


def test_plans_inside_learners_do_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phases, "always_reached", lambda *_: pytest.fail("asked"))
    model = fmdp.problem("circle:4,dynamics=guestrin")
    prepared = fmdp.Exact().prepare(model.structure)
    for _ in range(2):
        assert prepared.solve(model).status is Status.CONVERGED


# -- a state that is always reached ---------------------------------------------------------------


def test_states_that_are_always_reached() -> None:
    """RiverSwim: the left bank; SysAdmin: all machines up, or all down. A machine that stays down
    until it is restarted, and up when it is, has neither; nor has what only oscillates."""
    assert always_reached(fmdp.problem("riverswim:2")) == (0, 0)
    assert always_reached(fmdp.problem("circle:3,dynamics=guestrin")) == (1, 1, 1)
    assert always_reached(fmdp.problem("circle:3,dynamics=talebi")) == (0, 0, 0)
    assert always_reached(fmdp.problem("circle:3")) is None
    long = np.eye(40, k=1) * 0.5 + np.eye(40) * 0.5
    long[-1, -1] = 1.0
    chain = FactoredMDP.from_factors((40,), (1,), [((0,), long)], [((0,), np.zeros(40))])
    assert always_reached(chain) == (39,)
    idle = tuple(range(1, 71))
    wide = FactoredMDP.from_factors(
        (2,), (1,) * 70, [((0, *idle), [[0.5, 0.5], [0.0, 1.0]])], [((0,), [0, 1])]
    )
    assert always_reached(wide) == (1,)
    assert fmdp.Exact().plan(wide).status is Status.CONVERGED
    turning = FactoredMDP.from_factors((2,), (1,), [((0,), [[0, 1], [1, 0]])], [((0,), [0, 1])])
    assert always_reached(turning) is None


@settings(max_examples=200)
@given(strategies.models(rows=("sparse", "lazy", "deterministic", "quarters", "mixed")), st.data())
def test_such_a_state_is_reached_under_every_policy(
    model: FactoredMDP, data: st.DataObject
) -> None:
    """Brute force: the states from which all actions lead to it with some probability, sooner or
    later, are all; and it lies in the one recurrent class of a policy at random."""
    state = always_reached(model)
    if state is None:
        return
    mdp = oracles.dense(model)
    target = int(np.ravel_multi_index(state, model.structure.state_sizes))
    reached = np.arange(mdp.n_states) == target
    for _ in range(mdp.n_states):
        goes = (mdp.transitions[:, :, reached].sum(axis=2) > 0.0).all(axis=0)
        reached = reached | goes
    assert reached.all()
    policy = data.draw(strategies.policies(model.structure))
    chain = mdp.transitions[policy, np.arange(mdp.n_states)]
    (alone,) = oracles.recurrent_classes(chain)
    assert target in alone


# -- a state in every class of the best gain ------------------------------------------------------


def best_classes(mdp: oracles.DenseMDP, least: float) -> list[set[int]]:
    """All recurrent classes of all policies whose gain is at least so much, by enumeration."""
    found = []
    for policy in oracles.all_policies(mdp):
        gains = oracles.policy_gain(mdp, policy)
        for own in oracles.recurrent_classes(oracles.policy_chain(mdp, policy)[0]):
            if gains[own[0]] >= least:
                found.append({int(s) for s in own})
    return found


@settings(max_examples=150)
@given(strategies.models(rows=("sparse", "lazy", "deterministic", "quarters", "mixed")))
def test_no_class_of_the_best_gain_is_without_it(model: FactoredMDP) -> None:
    """Brute force over all policies, for every state that is shown to be in every best class."""
    structure = model.structure
    if structure.n_actions**structure.n_states > 2_000:
        return
    mdp = oracles.dense(model)
    best = oracles.optimal(mdp).gain
    backup = backup_for(model, threads=1)
    h, new = np.zeros(backup.n_states), np.empty(backup.n_states)
    for _ in range(30):
        backup.sweep(h, new)
        lower = float((new - h).min()) - 1e-12
        h[:] = 0.5 * h + 0.5 * new
    shown = [s for s in range(len(h)) if in_every_best_class(backup, h, lower, s)[0]]
    if not shown:
        return
    assert np.ptp(best) < 1e-9
    for own in best_classes(mdp, float(best.max()) - 1e-9):
        for state in shown:
            place = np.zeros(len(h))
            place[state] = 1.0
            assert int(backup.to_canonical(place).argmax()) in own


def two_rooms(second: float) -> FactoredMDP:
    """In the first room one earns .6; a door, that costs nothing, leads to the second and back."""
    stay, leave = [[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0], [1.0, 0.0]]
    rows = [row for pair in zip(stay, leave, strict=True) for row in pair]
    return FactoredMDP.from_factors((2,), (2,), [((0, 1), rows)], [((0,), [0.6, second])])


def test_two_rooms_and_their_classes() -> None:
    """With .5 in the second room the first one is in every best class, and the second is not; with
    .6 neither is, and the plan is that of plain sweeps."""
    for second, shown in ((0.5, [True, False]), (0.6, [False, False])):
        backup = backup_for(two_rooms(second), threads=1)
        h = np.array([0.0, second - 0.6])
        found = [in_every_best_class(backup, h, 0.6 - 1e-9, state)[0] for state in range(2)]
        assert found == shown
    assert fmdp.Exact().plan(two_rooms(0.5)).stats["accelerated"] == KEPT
    plain = fmdp.Exact().plan(two_rooms(0.6))
    assert plain.status is Status.CONVERGED
    assert plain.stats["accelerated"] == 0


@pytest.mark.parametrize("name", ["circle:7", "three-leg:7", "machines:3", "bi-ring:6"])
def test_fewer_sweeps_where_no_state_is_always_reached(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fmdp.problem(name)
    assert always_reached(model) is None
    fast = fmdp.Exact(tolerance=1e-9).plan(model)
    monkeypatch.setattr(solver, "acceleration_for", lambda *_: None)
    slow = fmdp.Exact(tolerance=1e-9).plan(model)
    assert fast.stats["accelerated"] == KEPT
    assert fast.iterations < slow.iterations  # those that show it are counted
    assert fast.gain == pytest.approx(slow.gain, abs=1e-9)
    assert fast.bias == pytest.approx(slow.bias, abs=1e-6)


def test_what_cannot_be_shown_is_swept_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told at the last moment that there may be another bias, a plan is that of plain sweeps, and
    the sweeps until then are counted."""
    model = fmdp.problem("circle:7")
    monkeypatch.setattr(phases, "in_every_best_class", lambda *_: (False, 6))
    found = fmdp.Exact(tolerance=1e-9).plan(model)
    monkeypatch.setattr(solver, "acceleration_for", lambda *_: None)
    plain = fmdp.Exact(tolerance=1e-9).plan(model)
    assert found.stats["accelerated"] == 0
    assert found.iterations > plain.iterations + 6
    assert found.gain == plain.gain
    assert found.bias.tobytes() == plain.bias.tobytes()
