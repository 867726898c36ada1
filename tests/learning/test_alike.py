"""Learning by classes of alike rows: counts, sets, posteriors, episodes, files."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import Statistics, load_agent
from fmdp._base.archives import pack
from fmdp.errors import FileProblem
from fmdp.learning.confidence import (
    all_or_nothing_tables,
    confidence_tables,
    reward_log_terms,
    transition_log_terms,
)
from fmdp.learning.posterior import sample_model
from fmdp.learning.registry import LEARNERS
from fmdp.model import Alike, FactoredMDP, OptimisticTables, Structure
from fmdp.simulation import Environment, Reference, Simulation
from fmdp.testing import check_learner, strategies

from .test_confidence import lost

FREE = Reference(gain=0.0, gain_kind="exact", gaps=None, seconds=0.0)
RING = "circle:4,dynamics=guestrin,reward=mean,alike={}"


def walk(model: FactoredMDP, statistics: Sequence[Statistics], seed: int, steps: int) -> None:
    """The same random steps, counted by all of these."""
    rng = np.random.default_rng(seed)
    environment = Environment(model, rng)
    for _ in range(steps):
        state = environment.state
        action = tuple(int(rng.integers(size)) for size in model.structure.action_sizes)
        rewards, after = environment.step(action)
        for one in statistics:
            one.record(state, action, rewards, after)


# ---- counts -------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(strategies.models(strategies.structures(alike=True)), st.integers(0, 2**32 - 1))
def test_the_counts_of_a_class_are_the_sum_over_its_rows(model: FactoredMDP, seed: int) -> None:
    s = model.structure
    told, untold = Statistics(s), Statistics(replace(s, alike=None))
    walk(model, (told, untold), seed, 30)
    for i in range(s.m):
        for row, own in enumerate(s.transition_classes_of(i)):
            expected = sum(
                untold.transition_counts(j)[s.transition_classes_of(j) == own].sum(axis=0)
                for j in range(s.m)
                if (s.transition_classes_of(j) == own).any()
            )
            assert np.array_equal(told.transition_counts(i)[row], expected)
            assert told.transition_visits[own] == np.sum(expected)
    for k in range(s.l):
        visits, sums = told.reward_totals(k)
        for row, own in enumerate(s.reward_classes_of(k)):
            parts = [
                (n[at].sum(), paid[at].sum())
                for j in range(s.l)
                for (n, paid), at in [(untold.reward_totals(j), s.reward_classes_of(j) == own)]
            ]
            assert visits[row] == sum(n for n, _ in parts)
            assert sums[row] == pytest.approx(sum(paid for _, paid in parts), abs=1e-12)
    assert told.visits.sum() == 30 * (s.m + s.l)
    assert told.cell_counts.sum() == 30 * s.m


def test_a_class_of_two_machines_is_counted_twice_a_step() -> None:
    s = fmdp.problem("jao:2,alike=copies").structure
    statistics = Statistics(s)
    statistics.record((0, 0), (1, 1), (0.0, 0.0), (1, 0))
    statistics.record((1, 0), (1, 1), (1.0, 0.0), (1, 1))
    # Row (state 0, action 1): next values 1, 0 and then 1; row (state 1, action 1): 1.
    assert statistics.transition_visits.tolist() == [0, 3, 0, 1]
    assert statistics.cell_counts.tolist() == [0, 0, 1, 2, 0, 0, 0, 1]
    assert statistics.transition_counts(1).tolist() == [[0, 0], [1, 2], [0, 0], [0, 1]]
    assert statistics.reward_visits.tolist() == [3, 1]
    assert statistics.reward_sums.tolist() == [0.0, 1.0]
    assert fmdp.estimated_model(statistics).transitions[1][1].tolist() == [1 / 3, 2 / 3]


# ---- tables and samples of classes --------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    strategies.models(strategies.structures(alike=True)),
    st.integers(0, 2**32 - 1),
    st.integers(0, 40),
)
def test_tables_have_equal_rows_in_a_class(model: FactoredMDP, seed: int, steps: int) -> None:
    statistics = Statistics(model.structure)
    walk(model, (statistics,), seed, steps)
    # The checking constructors compare the rows of a class.
    made: Any
    for made in (
        confidence_tables(statistics, t=steps + 1, rho=0.1),
        confidence_tables(
            statistics, t=steps + 1, rho=0.1, transition_constant=0.03, reward_constant=0.03
        ),
        all_or_nothing_tables(statistics, 3),
    ):
        OptimisticTables(made.structure, made.lower, made.free, made.rewards)
    for made in (
        sample_model(statistics, 0.75, 0.01, np.random.default_rng(seed)),
        fmdp.estimated_model(statistics),
    ):
        again = FactoredMDP(made.structure, made.transitions, made.rewards)
        for one, other in zip(made.transitions, again.transitions, strict=True):
            assert np.array_equal(one, other)


def test_log_terms_have_the_number_of_classes() -> None:
    """Two factors of 4 and 8 rows in 2 and 3 classes, one class shared; two rewards of 4 rows."""
    alike = Alike(
        (np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0, 2, 2, 3, 3])),
        (np.array([0, 1, 1, 1]), np.arange(4)),
    )
    s = Structure((2, 2), (2,), ((0, 2), (0, 1, 2)), ((0, 2), (1, 2)), alike=alike)
    assert transition_log_terms(s, 5, 0.1) == pytest.approx(
        [math.log(6 * 2 * 2 * classes * 5 / 0.1) for classes in (2, 3)]
    )
    assert reward_log_terms(s, 5, 0.1) == pytest.approx(
        [math.log(6 * 2 * classes * 5 / 0.1) for classes in (2, 4)]
    )
    statistics = Statistics(s)
    for _ in range(4):
        statistics.record((0, 0), (0,), (0.0, 0.0), (0, 0))
        statistics.record((1, 0), (0,), (0.0, 0.0), (1, 1))
    tables = confidence_tables(
        statistics, t=9, rho=0.1, transition_constant=0.01, reward_constant=0.0
    )
    # The shared class was seen eight times, four of them in each factor, and always led to 0; it
    # has the log term of the factor with most classes, as class 2 of that factor has.
    shared = 0.01 * math.log(6 * 2 * 2 * 3 * 9 / 0.1) / 8
    assert tables.lower[0][0, 0] == pytest.approx(1 - math.sqrt(shared) - shared)
    assert np.array_equal(tables.lower[0][0], tables.lower[1][3])
    own = 0.01 * math.log(6 * 2 * 2 * 2 * 9 / 0.1) / 4
    assert tables.lower[0][2, 1] == pytest.approx(1 - math.sqrt(own) - own)


@pytest.mark.parametrize("alike", ["rows", "machines"])
def test_coverage_by_class_with_a_negative_control(alike: str) -> None:
    model = fmdp.problem(f"bi-ring:4,dynamics=ippc,alike={alike}")
    noisy = FactoredMDP(
        model.structure, model.transitions, model.rewards, noise=fmdp.Noise("bernoulli")
    )
    runs = 40
    # At most rho = .1 of the runs may lose the truth: 40 runs lose 8 with probability .04.
    assert sum(lost(noisy, seed) for seed in range(runs)) < 8
    narrow = {"transition_constant": 0.018, "reward_constant": 0.012}
    assert sum(lost(noisy, seed, **narrow) for seed in range(runs)) > runs // 2


def test_rows_that_are_not_alike_lose_the_truth() -> None:
    """The control of the control: with classes that lie, the sets of the theorem do not hold."""
    model = fmdp.problem("random:2,values=2,parents=1,actions=2,seed=2")
    s = model.structure
    lie = replace(
        s,
        alike=Alike(
            tuple(np.zeros(n, dtype=int) for n in s.transition_rows),
            tuple(
                np.arange(start, start + n)
                for start, n in zip(s.reward_starts, s.reward_rows, strict=False)
            ),
        ),
    )
    statistics = Statistics(lie)
    walk(model, (statistics,), 0, 5000)
    tables = confidence_tables(statistics, t=5001, rho=0.1)
    assert any(
        (low > true).any() for low, true in zip(tables.lower, model.transitions, strict=True)
    )


# ---- learners -----------------------------------------------------------------------------------

SHARED = fmdp.problem("machines:2,topology=bi-ring,alike=machines")
NOISY = FactoredMDP(
    fmdp.problem(RING.format("machines")).structure,
    fmdp.problem(RING.format("machines")).transitions,
    fmdp.problem(RING.format("machines")).rewards,
    noise=fmdp.Noise("bernoulli"),
    initial_state=(1,) * 4,
)


@pytest.mark.parametrize("name", ["psrl", "dorl", "fsrl", "frmax,m=5", "oracle", "random"])
@pytest.mark.parametrize("model", [NOISY, SHARED], ids=["ring", "agents"])
def test_learners_do_what_they_have_to_with_shared_rows(name: str, model: FactoredMDP) -> None:
    check_learner(LEARNERS.read(name), model, steps=120, seed=2, save_after=31)


@pytest.mark.parametrize(
    "episodes", ["growing", "arithmetic", "doubling", "tsde", "fixed,length=5"]
)
def test_every_rule_in_bulk_and_step_by_step(episodes: str) -> None:
    """A count grows by up to four in a step here, and passes limits without meeting them."""
    check_learner(LEARNERS.read(f"psrl,episodes={episodes}"), NOISY, steps=150, seed=1)


@pytest.mark.parametrize("planner", ["alp", "alp,method=factored", "alp,basis=pairs"])
@pytest.mark.parametrize("name", ["psrl", "dorl"])
def test_learners_with_the_linear_planner(name: str, planner: str) -> None:
    learner = LEARNERS.find(name).make({}, planner=planner)
    check_learner(learner, NOISY, steps=60, seed=3, save_after=21)


@pytest.mark.parametrize(("rule", "least"), [("doubling", 1), ("growing", 4)])
def test_an_episode_ends_in_the_step_in_which_a_count_doubles(rule: str, least: int) -> None:
    """On every path: not before, and not after, though counts grow by more than one."""
    agent = fmdp.PSRL(episodes=rule).start(NOISY, 0)
    environment = Environment(NOISY, 1)
    before = previous = agent.statistics.visits.copy()
    episode, steps = 0, 0
    for _ in range(400):
        state = environment.state
        action = agent.act(state)
        if agent.episodes != episode:
            if episode:
                ended = (previous >= np.maximum(least, 2 * before)).any()
                assert ended or (rule == "growing" and steps == episode)
            episode, steps, before = agent.episodes, 0, agent.statistics.visits.copy()
        else:
            assert (agent.statistics.visits < np.maximum(least, 2 * before)).all()
        agent.observe(state, action, *environment.step(action))
        previous, steps = agent.statistics.visits.copy(), steps + 1


def test_what_is_known_to_be_alike_is_learned_sooner() -> None:
    """The median gap regret over five seeds: none above rows above machines."""
    regrets = {}
    for alike in ("none", "rows", "machines"):
        model = fmdp.problem(RING.format(alike))
        reference = fmdp.reference_for(model)
        runs = [
            fmdp.simulate(model, "dorl", 2000, seed, reference=reference).gap_regret
            for seed in range(5)
        ]
        regrets[alike] = float(np.median(runs))
    assert regrets["none"] > 1.5 * regrets["rows"] > 1.5 * 1.5 * regrets["machines"]


# ---- files --------------------------------------------------------------------------------------


def parts(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    return json.loads(str(arrays.pop("header"))), arrays


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    agent = fmdp.PSRL().start(NOISY, 0)
    Simulation(NOISY, agent, reference=FREE).run(60)
    agent.save(tmp_path / "agent.npz")
    return tmp_path / "agent.npz"


def test_a_file_holds_the_classes(saved: Path) -> None:
    assert load_agent(saved).structure == NOISY.structure
    _, arrays = parts(saved)
    assert arrays["alike"].tolist() == [
        int(number)
        for own in (*NOISY.structure.alike.transitions, *NOISY.structure.alike.rewards)  # type: ignore[union-attr]
        for number in own
    ]
    assert arrays["counts.visits"].sum() == 60 * 8


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("alike", lambda a: a[:-1], "'alike' has shape"),
        ("alike", lambda a: a - 1, "'alike' has entries from -1"),
        ("alike", lambda a: a.astype(float), "'alike' is of float64"),
        ("alike", lambda a: np.arange(len(a)), "'counts.cells' has shape"),
        ("counts.visits", lambda a: a + 1, "not of the same number of steps"),
        ("counts.visits", lambda a: a[::-1].copy(), "not"),
        ("counts.cells", lambda a: np.roll(a, 2), "not those of the visits"),
        ("counts.reward_sums", lambda a: a + 100.0, "outside the range"),
    ],
)
def test_a_file_that_lies_is_refused(saved: Path, name: str, change: Any, said: str) -> None:
    header, arrays = parts(saved)
    saved.write_bytes(pack(header, {**arrays, name: change(arrays[name])}))
    with pytest.raises(FileProblem, match=said):
        load_agent(saved)
