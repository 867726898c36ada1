"""Regret: the lemma on episodes, Theorems 1 to 3 of the paper as docs/theory.md repairs them.

The probability-free part of each proof is an inequality on every path and is tested as one; what
is left are expectations, tested with a negative control.
"""

from __future__ import annotations

import itertools
import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fmdp
from fmdp import Exact, FactoredMDP, OptimisticTables, Statistics, Structure, TablePolicy
from fmdp.learning.episodes import episode_rule
from fmdp.learning.posterior import dirichlet_parameters, sample_rows
from fmdp.learning.registry import LEARNERS
from fmdp.measures import diameter
from fmdp.planning.plan import Plan, Tables
from fmdp.planning.spans import factored_spans, span
from fmdp.simulation import Environment, reference_for
from fmdp.testing import oracles, strategies

# ---- the lemma on episodes ----------------------------------------------------------------------


def visits_over_roots(symbols: list[int], lengths: list[int]) -> float:
    """sum over x and k of nu_k(x) / sqrt(max{1, N_k(x)})."""
    counts: dict[int, int] = {}
    total, position = 0.0, 0
    for length in lengths:
        before = dict(counts)
        for x in symbols[position : position + length]:
            total += 1 / math.sqrt(max(1, before.get(x, 0)))
            counts[x] = counts.get(x, 0) + 1
        position += length
    assert position >= len(symbols)
    return total


def lemma(size: int, longest: int, steps: int) -> float:
    """Lemma 2: 2 L T-bar + (1 + sqrt 2) sqrt(L T)."""
    return 2 * size * longest + (1 + math.sqrt(2)) * math.sqrt(size * steps)


@settings(max_examples=150)
@given(st.data())
def test_the_lemma_on_episodes(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    longest = data.draw(st.integers(1, 40))
    lengths = data.draw(st.lists(st.integers(1, longest), min_size=1, max_size=60))
    steps = sum(lengths)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    # Uniform, blocks of one symbol, or a few symbols much more often than others.
    kind = data.draw(st.sampled_from(("uniform", "blocks", "skewed")))
    if kind == "blocks":
        symbols = np.repeat(rng.integers(size, size=len(lengths)), lengths)
    else:
        weights = rng.dirichlet(np.full(size, 5.0 if kind == "uniform" else 0.2))
        symbols = rng.choice(size, size=steps, p=weights)
    assert visits_over_roots(symbols.tolist(), lengths) <= lemma(size, longest, steps)


@pytest.mark.parametrize("longest", [1, 2, 5, 30])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_the_lemma_where_every_episode_is_as_long_as_it_may_be(size: int, longest: int) -> None:
    """The worst case for the first term: each symbol's first visits fall into one episode."""
    lengths = [longest] * (3 * size)
    in_turn = [k % size for k in range(3 * size) for _ in range(longest)]
    assert visits_over_roots(in_turn, lengths) <= lemma(size, longest, len(in_turn))
    assert visits_over_roots(in_turn, lengths) >= size * longest


def test_the_printed_lemma_has_lost_its_constants() -> None:
    """One symbol, ten episodes of one step: 1 + sum_1^9 n^-1/2 = 5.7048 > L T-bar + sqrt(L T)."""
    found = visits_over_roots([0] * 10, [1] * 10)
    assert found == pytest.approx(5.7048, abs=1e-4)
    assert found > 1 + math.sqrt(10)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=400))
def test_doubling_needs_no_longest_episode(symbols: list[int]) -> None:
    """nu_k <= max{1, N_k} gives L + (1 + sqrt 2) sqrt(L T), in K <= 1 + E (1 + log2 T) episodes."""
    structure = Structure(
        state_sizes=(4,),
        action_sizes=(1,),
        transition_scopes=((0,),),
        reward_scopes=(),
        reward_ranges=(),
    )
    rule = episode_rule("doubling", None, structure)
    visits = np.zeros(4, dtype=np.int64)
    lengths: list[int] = []
    limits = rule.start(1, visits, 1).limits
    length = 0
    for x in symbols:
        visits[x] += 1
        length += 1
        if visits[x] >= limits[x]:
            lengths.append(length)
            limits, length = rule.start(len(lengths) + 1, visits, length).limits, 0
    if length:
        lengths.append(length)
    steps = len(symbols)
    bound = 4 + (1 + math.sqrt(2)) * math.sqrt(4 * steps)
    assert visits_over_roots(symbols, lengths) <= bound
    assert len(lengths) <= 1 + 4 * (1 + math.log2(steps))


def growing_lemma(size: int, steps: int) -> float:
    """Lemma 2 for growing episodes: 6 L + (1 + sqrt 2) sqrt(L T), whatever their length."""
    return 6 * size + (1 + math.sqrt(2)) * math.sqrt(size * steps)


@settings(max_examples=100)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=400)
    | st.lists(st.sampled_from((0, 0, 0, 0, 0, 1, 2, 3)), min_size=300, max_size=400)
)
def test_growing_episodes_are_few_and_keep_the_lemma(symbols: list[int]) -> None:
    """K <= 1 + sqrt(2 T) + E (1 + log2 T), and the sum of Lemma 2 as above."""
    structure = Structure((4,), (1,), ((0,),), ())
    rule = episode_rule("growing", None, structure)
    visits = np.zeros(4, dtype=np.int64)
    lengths: list[int] = []
    episode, length = rule.start(1, visits, 1), 0
    for x in symbols:
        visits[x] += 1
        length += 1
        if visits[x] >= episode.limits[x] or length == episode.length:
            lengths.append(length)
            episode, length = rule.start(len(lengths) + 1, visits, length), 0
    if length:
        lengths.append(length)
    steps = len(symbols)
    assert visits_over_roots(symbols, lengths) <= growing_lemma(4, steps)
    assert len(lengths) <= 1 + math.sqrt(2 * steps) + 4 * (1 + math.log2(steps))


def test_growing_episodes_without_their_limits_lose_the_lemma() -> None:
    """The negative control: by their length alone, each of 300 symbols is met first in an episode
    that is all its own, so that every visit weighs 1."""
    lengths = list(range(1, 301))
    symbols = [k for k in lengths for _ in range(k)]
    assert visits_over_roots(symbols, lengths) == len(symbols) > growing_lemma(300, len(symbols))


# ---- alike rows: several visits of one class in a step ------------------------------------------

STEPS_OF_THREE = st.lists(
    st.tuples(*(st.integers(0, 3),) * 3), min_size=1, max_size=200
) | st.lists(st.integers(0, 3).map(lambda x: (x, x, x)), min_size=1, max_size=200)
"""Each step meets three elements, perhaps one of them three times."""


def shared_sum(steps: list[tuple[int, ...]], lengths: list[int]) -> float:
    """The sum of nu_k / sqrt(max(1, N_k)) over elements and episodes."""
    total, start = 0.0, 0
    before = np.zeros(4)
    for length in lengths:
        met = np.bincount([x for step in steps[start : start + length] for x in step], minlength=4)
        total += float((met / np.sqrt(np.maximum(1, before))).sum())
        before += met
        start += length
    return total


@settings(max_examples=100)
@given(STEPS_OF_THREE, st.integers(1, 40))
def test_the_pigeonhole_where_a_step_meets_several(
    steps: list[tuple[int, ...]], longest: int
) -> None:
    lengths = [min(longest, len(steps) - at) for at in range(0, len(steps), longest)]
    most = max(max(step.count(x) for x in step) for step in steps)
    bound = 2 * 4 * most * longest + (1 + math.sqrt(2)) * math.sqrt(4 * 3 * len(steps))
    assert shared_sum(steps, lengths) <= bound


@settings(max_examples=100)
@given(STEPS_OF_THREE, st.sampled_from(("growing", "doubling")))
def test_limits_keep_the_pigeonhole_though_they_are_passed(
    steps: list[tuple[int, ...]], name: str
) -> None:
    structure = Structure((4,), (1,), ((0,),), ())
    rule = episode_rule(name, None, structure)
    visits = np.zeros(4, dtype=np.int64)
    lengths: list[int] = []
    episode, length = rule.start(1, visits, 1), 0
    for step in steps:
        for x in step:
            visits[x] += 1
        length += 1
        if (visits >= episode.limits).any() or length == episode.length:
            lengths.append(length)
            episode, length = rule.start(len(lengths) + 1, visits, length), 0
    if length:
        lengths.append(length)
    bound = 3 * 4 * 4 + (1 + math.sqrt(3)) * math.sqrt(4 * 3 * len(steps))
    assert shared_sum(steps, lengths) <= bound
    few = 0.0 if name == "doubling" else math.sqrt(2 * len(steps))
    assert len(lengths) <= 1 + few + 4 * (1 + math.log2(3 * len(steps)))


@given(strategies.structures(alike=True))
def test_the_union_bound_over_classes_sums_to_at_most_one(structure: Structure) -> None:
    """sum_c M_c / (m C_(c)) <= 1, with equality where nothing is alike."""
    classes = [set(structure.transition_classes_of(i).tolist()) for i in range(structure.m)]
    total = 0.0
    for c in set().union(*classes):
        having = [own for own in classes if c in own]
        total += len(having) / (structure.m * max(map(len, having)))
    assert total <= 1 + 1e-12
    if structure.alike is None:
        assert total == pytest.approx(1.0)


# ---- DORL ---------------------------------------------------------------------------------------


class Recording:
    """The exact planner, which keeps what it was asked and what it said."""

    name = "recording"

    def __init__(self) -> None:
        self.inner = Exact(tolerance=1e-8)
        self.episodes: list[tuple[OptimisticTables, Plan]] = []

    def prepare(self, structure: Structure) -> Recording:
        self.prepared = self.inner.prepare(structure)
        return self

    def solve(self, tables: Tables, **more: Any) -> Plan:
        assert isinstance(tables, OptimisticTables)
        self.episodes.append((tables, self.prepared.solve(tables, describe=True, **more)))
        return self.episodes[-1][1]

    def warm_state(self) -> Any:
        return self.prepared.warm_state()


def holds(tables: OptimisticTables, model: FactoredMDP) -> bool:
    """Whether the truth is in the set."""
    rows = zip(tables.lower, model.transitions, strict=True)
    means = zip(tables.rewards, model.rewards, strict=True)
    return all((low <= true + 1e-12).all() for low, true in rows) and all(
        (true <= high + 1e-12).all() for high, true in means
    )


def most_episodes(structure: Structure, steps: int, rule: str) -> float:
    if rule == "arithmetic":
        return math.sqrt(3 * structure.max_scope_size * steps)
    entries = sum(structure.transition_rows) + sum(structure.reward_rows)
    return 1 + math.sqrt(2 * steps) + entries * (1 + math.log2(steps))


def closed_form(
    model: FactoredMDP,
    steps: int,
    far: float,
    rho: float,
    delta: float,
    rule: str = "arithmetic",
) -> float:
    """Theorem 9: what DORL loses in T steps, all constants written out."""
    s = model.structure
    largest, scope = s.reward_range_total, s.max_scope_size
    episodes = most_episodes(s, steps, rule)
    longest = 1 + math.sqrt(3 * steps / scope)  # of the arithmetic episodes
    seen = lemma(scope, longest, steps) if rule == "arithmetic" else growing_lemma(scope, steps)
    log = math.log(6 * max(s.m, s.l) * s.max_state_size * scope * steps / rho)
    widths = 2 * far * largest * s.m * math.sqrt(18 * s.max_state_size * log)
    widths += 2 * largest * math.sqrt(12 * log)
    luck = (1 + far) * largest * math.sqrt(0.5 * steps * math.log(1 / delta))
    return widths * seen + episodes * far * largest + luck


@pytest.mark.parametrize("problem", ["jao:1", "jao:2", "random:2,seed=4", "circle:2"])
@pytest.mark.parametrize("constants", [(18.0, 12.0), (0.5, 0.5)])
@pytest.mark.parametrize("rule", ["arithmetic", "growing"])
def test_what_dorl_loses_is_in_its_widths(
    problem: str, constants: tuple[float, float], rule: str
) -> None:
    """Theorem 2 of the paper, before and after any probability.

    On every path on which the truth stays in the sets: the regret is at most the free mass times
    the factored spans, the reward widths, the span once an episode, and a martingale; the sets and
    the spans obey their bounds; and with all of it the closed form.
    """
    model = fmdp.problem(problem)
    structure = model.structure
    flat = oracles.dense(model)
    gain = float(oracles.optimal(flat).gain[0])
    longest = oracles.diameter(flat)
    planner = Recording()
    dorl = fmdp.DORL(
        transition_constant=constants[0],
        reward_constant=constants[1],
        episodes=rule,
        planner=planner,
    )
    agent = dorl.start(model, 1)
    environment = Environment(model, np.random.Generator(np.random.PCG64(2)))
    numbers = {s: k for k, s in enumerate(oracles.assignments(structure.state_sizes))}
    actions = {a: k for k, a in enumerate(oracles.assignments(structure.action_sizes))}
    regret = widths = martingale = telescoped = 0.0
    steps, episode, spans = 400, 0, (0.0,) * structure.m
    for _ in range(steps):
        state = environment.state
        action = tuple(agent.act(state))
        rewards, following = environment.step(action)
        agent.observe(state, action, rewards, following)
        if len(planner.episodes) != episode:
            episode = len(planner.episodes)
            tables, plan = planner.episodes[-1]
            assert holds(tables, model)
            assert plan.gain_upper is not None
            assert plan.gain_upper >= gain - 1e-7  # optimism
            v = plan.bias
            assert v is not None
            assert isinstance(plan.policy, TablePolicy)
            # The optimistic diameter is at most the true one, and sp <= D times the range.
            assert span(v) <= longest * structure.reward_range_total + 1e-6
            spans = factored_spans(v, structure.state_sizes)
            telescoped += span(v)
        s, a, x = numbers[state], actions[action], state + action
        regret += gain - sum(rewards)
        widths += oracles.optimistic_reward(tables, x) - flat.rewards[a, s]
        widths += sum(
            own * tables.free[i][oracles.scope_row(structure, scope, x)]
            for i, (own, scope) in enumerate(zip(spans, structure.transition_scopes, strict=True))
        )
        martingale += flat.rewards[a, s] - sum(rewards)
        martingale += float(flat.transitions[a, s] @ v) - v[numbers[following]]
    assert regret <= widths + martingale + telescoped + steps * 1e-6
    assert episode <= most_episodes(structure, steps, rule)
    bound = closed_form(model, steps, longest, rho=0.1, delta=0.1, rule=rule)
    assert regret <= bound
    if constants == (18.0, 12.0):
        assert widths + martingale + telescoped <= bound


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["jao:1", "circle:3", "random:3,seed=1"])
def test_dorl_with_the_constants_of_the_theorem_stays_below_it(problem: str) -> None:
    model = fmdp.problem(problem)
    found = diameter(model)
    assert found is not None
    reference = reference_for(model)
    learner = fmdp.DORL(transition_constant=18.0, reward_constant=12.0, episodes="arithmetic")
    for seed in range(5):
        run = fmdp.simulate(model, learner, 30_000, seed, reference=reference)
        assert all(
            regret <= closed_form(model, t, found.value, rho=0.1, delta=0.1)
            for t, regret in run.curve
        )


# ---- PSRL ---------------------------------------------------------------------------------------


def drawn_and_sampled(c: float, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Gains of models from the prior Dirichlet(1), and of samples from the posterior after 20 steps
    in which a policy is chosen by an earlier sample; rewards are known, 1 in state 1."""
    structure = Structure(
        state_sizes=(2,),
        action_sizes=(2,),
        transition_scopes=((0, 1),),
        reward_scopes=((0,),),
        reward_ranges=((0.0, 1.0),),
    )
    rng = np.random.default_rng(seed)

    def solved(rows: np.ndarray) -> tuple[float, tuple[int, int]]:
        """The best action goes up most often from 0 and down least often from 1."""
        up = rows.reshape(2, 2, 2)[:, :, 1]  # [state, action]
        best = (int(up[0].argmax()), int(up[1].argmax()))
        return up[0].max() / (up[0].max() + 1 - up[1].max()), best

    true, sampled = np.empty(draws), np.empty(draws)
    for k in range(draws):
        statistics = Statistics(structure)
        rows = sample_rows(dirichlet_parameters(statistics, 1.0, 1.0), statistics.entries, rng)
        true[k], _ = solved(rows)
        table = rows.reshape(4, 2)
        state = 0
        for t in range(20):
            if t % 5 == 0:
                guess = sample_rows(
                    dirichlet_parameters(statistics, c, 1.0), statistics.entries, rng
                )
                _, policy = solved(guess)
            action = policy[state]
            following = int(rng.random() < table[2 * state + action, 1])
            statistics.record((state,), (action,), (float(state),), (following,))
            state = following
        guess = sample_rows(dirichlet_parameters(statistics, c, 1.0), statistics.entries, rng)
        sampled[k], _ = solved(guess)
    return true, sampled


def test_the_sampled_gain_has_the_expectation_of_the_true_one() -> None:
    """Theorem 1 of the paper rests on E[lambda(M_k)] = E[lambda(M)]; with counts that are believed
    too little (c = 20) the sampled gain is another one: the negative control."""
    true, sampled = drawn_and_sampled(1.0, 1500, seed=0)
    error = (true - sampled).std() / math.sqrt(len(true))
    assert abs((true - sampled).mean()) <= 4 * error
    # Conditionally on what was seen, too: correlated with the truth, and no more spread out.
    assert np.corrcoef(true, sampled)[0, 1] > 0.4
    assert sampled.std() == pytest.approx(true.std(), rel=0.15)
    true, sampled = drawn_and_sampled(20.0, 1500, seed=1)
    assert np.corrcoef(true, sampled)[0, 1] < 0.3


def bayesian_regret(steps: int, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean gap regret of PSRL over models from its own prior: rows uniform on the simplex."""
    curves = []
    for seed in range(draws):
        model = fmdp.problem(f"random:2,parents=1,actions=2,seed={seed}")
        run = fmdp.simulate(model, fmdp.PSRL(c=1.0, prior=1.0), steps, seed)
        assert run.gap_curve is not None
        curves.append([gap for _, gap in run.gap_curve])
    return np.array([t for t, _ in run.gap_curve]), np.mean(curves, axis=0)


def grows_no_faster_than_root(t: np.ndarray, regret: np.ndarray, slack: float) -> bool:
    last, middle = len(t) - 1, int(np.searchsorted(t, t[-1] / 10))
    return bool(regret[last] / regret[middle] <= slack * math.sqrt(t[last] / t[middle]))


def test_psrl_over_its_prior_grows_no_faster_than_root_t() -> None:
    t, regret = bayesian_regret(3000, 12)
    assert grows_no_faster_than_root(t, regret, slack=1.2)
    assert not grows_no_faster_than_root(t, t.astype(float), slack=1.2)  # what is linear is seen


@pytest.mark.slow
def test_psrl_over_its_prior_for_longer() -> None:
    t, regret = bayesian_regret(100_000, 40)
    assert grows_no_faster_than_root(t, regret, slack=1.0)


# ---- the lower bound ----------------------------------------------------------------------------


def best_possible(steps: int, epsilon: float, delta: float) -> float:
    """The least expected gap regret of any learner on one JAO copy with two actions, on average
    over which is the good one: dynamic programming over what has been seen."""
    price = epsilon / (2 * delta + epsilon)
    fast = (delta, delta + epsilon)

    @cache
    def least(left: int, state: int, seen: tuple[int, int, int, int]) -> float:
        """`seen`: failures and successes of action 0, then of action 1."""
        if left == 0:
            return 0.0
        if state == 1:
            down, stay = least(left - 1, 0, seen), least(left - 1, 1, seen)
            return delta * down + (1 - delta) * stay
        likely = [
            (1 - fast[good == 0]) ** seen[0]
            * fast[good == 0] ** seen[1]
            * (1 - fast[good == 1]) ** seen[2]
            * fast[good == 1] ** seen[3]
            for good in (0, 1)
        ]
        belief = likely[0] / sum(likely)
        costs = []
        for action in (0, 1):
            right = belief if action == 0 else 1 - belief
            up = right * fast[1] + (1 - right) * fast[0]
            won, lost = list(seen), list(seen)
            won[2 * action + 1] += 1
            lost[2 * action] += 1
            costs.append(
                (1 - right) * price
                + up * least(left - 1, 1, tuple(won))  # type: ignore[arg-type]
                + (1 - up) * least(left - 1, 0, tuple(lost))  # type: ignore[arg-type]
            )
        return min(costs)

    return least(steps, 0, (0, 0, 0, 0))


@pytest.mark.parametrize(
    ("steps", "delta", "epsilon"),
    list(itertools.product((1, 5, 14), (0.2, 0.5), (0.01, 0.05, 0.1, 0.3))),
)
def test_no_learner_is_below_the_lower_bound(steps: int, delta: float, epsilon: float) -> None:
    bound = oracles.jao_least_regret(steps, epsilon, delta=delta)
    assert bound <= best_possible(steps, epsilon, delta) + 1e-12


@pytest.mark.parametrize("actions", [2, 4, 10])
def test_the_lower_bound_grows_like_the_root_of_span_scope_and_steps(actions: int) -> None:
    """c sqrt((1 - delta) sp L T), sp = 1 / (2 delta), L = 2 A, for one copy; n times that for n."""
    ratios = []
    for steps, delta in itertools.product((10_000, 1_000_000), (0.02, 0.2, 0.4)):
        bound = oracles.jao_lower_bound(steps, delta=delta, actions=actions)
        ratios.append(bound / math.sqrt((1 - delta) * actions * steps / delta))
        three = oracles.jao_lower_bound(steps, delta=delta, actions=actions, copies=3)
        assert three == pytest.approx(3 * bound)
    assert min(ratios) > 0.015
    assert max(ratios) / min(ratios) < 1.03


@pytest.mark.parametrize("name", ["psrl", "dorl", "fsrl", "frmax", "random"])
def test_learners_lose_at_least_the_lower_bound(name: str) -> None:
    """Mean over seeds, on the epsilon that is worst for the bound: 2.2 at T = 1,200."""
    steps = 1200
    epsilon = max(
        np.geomspace(1e-4, 0.1, 60), key=lambda e: oracles.jao_least_regret(steps, float(e))
    )
    bound = oracles.jao_least_regret(steps, float(epsilon))
    model = fmdp.problem(f"jao:1,epsilon={epsilon:.6f}")
    reference = reference_for(model)
    lost = []
    for seed in range(40):
        run = fmdp.simulate(model, LEARNERS.read(name), steps, seed, reference=reference)
        lost.append(run.gap_regret)
    error = np.std(lost) / math.sqrt(len(lost))
    assert np.mean(lost) >= bound - 2 * error
    assert bound > 2


def test_the_figure_says_what_the_page_says() -> None:
    """docs/figures/lower-bound.json, made by `python -m benchmarks.lower_bound`."""
    stored = Path(__file__).resolve().parents[2] / "docs" / "figures" / "lower-bound.json"
    found = json.loads(stored.read_text())
    for n, panel in found["copies"].items():
        bound = np.array(panel["lower_bound"])
        for t, value in list(zip(panel["t"], bound, strict=True))[::10]:
            delta, actions = found["delta"], found["actions"]
            again = oracles.jao_lower_bound(t, delta=delta, actions=actions, copies=int(n))
            assert value == pytest.approx(again, abs=1e-3)
        late = np.array(panel["t"]) >= 100
        for name, row in panel["learners"].items():
            lost = np.array(row["worst_mean_gap_regret"])
            if name == "oracle":
                assert not lost.any()
            else:
                assert (lost >= bound - 2 * np.array(row["standard_error"]))[late].all()
        for name, low, high in (("psrl, c=1, prior=1", 5, 11), ("dorl, c=1", 18, 30)):
            row = panel["learners"][name]
            assert 0.35 <= row["slope"] <= 0.65
            assert low <= row["worst_mean_gap_regret"][-1] / bound[-1] <= high
        assert panel["learners"]["random"]["slope"] == pytest.approx(1, abs=0.05)
