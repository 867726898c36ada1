"""The simulated count process: one-step laws against the chain, gains against certified bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fmdp.model.exchangeable.finding import exchangeable_parts
from fmdp.planning.counts.policy_chain import PolicyChain
from fmdp.planning.counts.quotient import Quotient
from fmdp.problems import problem
from fmdp.simulation.count_kernels import binomials
from fmdp.simulation.counts import CountEnvironment
from fmdp.testing.exchangeable import exchangeable_model


def chain_of(model: object, seed: int) -> PolicyChain:
    """Return the chain of a random policy on counts."""
    parts, _ = exchangeable_parts(model)  # type: ignore[arg-type]
    assert parts is not None
    quotient = Quotient(parts)
    ranks = np.random.default_rng(seed).random((len(quotient.moves), quotient.n_states))
    for move, pairs in enumerate(quotient.pairs):
        missing = np.ones(quotient.n_states, dtype=bool)
        missing[pairs.states] = False
        ranks[move, missing] = np.inf
    return PolicyChain(quotient, ranks.argmin(axis=0))


def p_value(observed: np.ndarray, law: np.ndarray) -> float:
    """Return the probability of a worse fit, by chi-square; rare outcomes are one class."""
    expected = law * observed.sum()
    assert not observed[law == 0.0].any()
    often = expected >= 5.0
    pairs = [(observed[often], expected[often])]
    if (~often).any():
        pairs.append((observed[~often].sum(keepdims=True), expected[~often].sum(keepdims=True)))
    seen, wanted = (np.concatenate(arrays) for arrays in zip(*pairs, strict=True))
    kept = wanted > 0.0
    if kept.sum() < 2:
        return 1.0
    chi = ((seen[kept] - wanted[kept]) ** 2 / wanted[kept]).sum()
    return float(stats.chi2.sf(chi, kept.sum() - 1))


def one_step_values(chain: PolicyChain, law_of: PolicyChain, draws: int) -> list[float]:
    """Return the p-value of the next states from some states."""
    environment = CountEnvironment(chain, 0, 1)
    states = np.random.default_rng(0).permutation(chain.n_states)[:4]
    values = []
    for state in states.tolist():
        observed = np.zeros(chain.n_states)
        for _ in range(draws):
            environment.state = state
            environment.play(1)
            observed[environment.state] += 1
        values.append(p_value(observed, law_of.matrix[state]))
    return values


@pytest.mark.parametrize("seed", range(8))
def test_one_step_laws_are_those_of_the_chain(seed: int) -> None:
    chain = chain_of(exchangeable_model(np.random.default_rng(seed), most_states=200), seed)
    assert min(one_step_values(chain, chain, 2000)) > 1e-4


def test_the_comparison_of_laws_finds_another_chain() -> None:
    """The negative control: the same problem with a little more wear."""
    chain = chain_of(problem("maintenance:3,levels=3,crew=2"), 1)
    other = chain_of(problem("maintenance:3,levels=3,crew=2,wear=0.35"), 1)
    assert min(one_step_values(chain, chain, 2000)) > 1e-4
    assert min(one_step_values(chain, other, 2000)) < 1e-4


@pytest.mark.parametrize(
    "name", ["star:30,dynamics=guestrin", "maintenance:12,crew=2", "machines:4,topology=none"]
)
def test_the_mean_of_a_long_run_is_the_gain(name: str) -> None:
    chain = chain_of(problem(name), 3)
    means = chain.means(chain.pairs.rewards[:, None], 1e-6)
    environment = CountEnvironment(chain, 0, 5)
    environment.play(1000)
    batches = np.array([environment.play(2000) / 2000 for _ in range(50)])
    error = 5.0 * batches.std(ddof=1) / math.sqrt(len(batches)) + 1e-9
    assert means.lower[0] - error <= batches.mean() <= means.upper[0] + error


def test_runs_depend_on_the_seed_alone() -> None:
    chain = chain_of(problem("star:30,dynamics=guestrin"), 0)
    totals = []
    for seed in (1, 1, 2):
        environment = CountEnvironment(chain, 0, seed)
        totals.append([environment.play(steps) for steps in (10, 200)])
    assert totals[0] == totals[1] != totals[2]


@pytest.mark.parametrize(
    ("n", "p"), [(1, 0.3), (5, 0.5), (40, 0.01), (300, 0.4), (1000, 0.999), (7, 1.0), (7, 0.0)]
)
def test_binomial_draws(n: int, p: float) -> None:
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    uniforms = np.random.default_rng(n).random(20_000)
    out = np.empty(len(uniforms), dtype=np.int64)
    binomials(n, p, uniforms, logs, out)
    law = stats.binom.pmf(np.arange(n + 1), n, p)
    assert p_value(np.bincount(out, minlength=n + 1).astype(float), law) > 1e-4
