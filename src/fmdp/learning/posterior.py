"""The posterior that PSRL samples from (Xu & Tewari 2020, section 6), made proper.

    P_i(. | x) ~ Dirichlet(N_P(x, .) / c + prior),
    R_k(x) ~ Normal(R-hat(x), c / max{1, N_R(x)} * (hi - lo)^2), clipped to [lo, hi],

with R-hat in the middle of the range if nothing was observed. The paper has no prior, which gives
Dirichlet(0) at a count of zero, and N_P for N_R. c scales how fast the posterior narrows; at c = 1
the rows are the Bayesian posterior under a Dirichlet(prior) prior. Rows that are known to be alike
share one draw.

A Dirichlet row is a row of gamma variates divided by its sum. Variates with small parameters
underflow: at .001 all of a row are 0 in a fifth of the draws. So logarithms are drawn, log G(a) =
log G(a + 1) + log(U) / a (Marsaglia & Tsang 2000), which is exact for every a > 0.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.generators import generator_of
from fmdp._base.parameters import Number
from fmdp._base.portable_math import exp, log
from fmdp.errors import InvalidParameter
from fmdp.learning.statistics import Floats, Statistics, check_statistics
from fmdp.model import FactoredMDP
from fmdp.model.entries import Entries, split_cells, split_reward_entries

C = Number("c", 0.75, "divisor of the counts: larger explores more", low=0.0, low_open=True)
PRIOR = Number("prior", 0.01, "Dirichlet parameter of every value before any count", low=1e-9)


def dirichlet_parameters(statistics: Statistics, c: float, prior: float) -> Floats:
    """Return N_P(x, s') / c + prior for every cell."""
    parameters: Floats = statistics.cell_counts / c + prior
    return parameters


def sample_logarithms(parameters: Floats, generator: np.random.Generator) -> Floats:
    """Draw log G(a) for every parameter a, of any shape."""
    gammas = generator.standard_gamma(parameters + 1.0)
    uniforms = 1.0 - generator.random(parameters.shape)  # in (0, 1]
    logarithms: Floats = log(gammas) + log(uniforms) / parameters
    return logarithms


def sample_rows(parameters: Floats, entries: Entries, generator: np.random.Generator) -> Floats:
    """Draw one Dirichlet row for every transition entry, flat over the cells."""
    logarithms = sample_logarithms(parameters, generator)
    starts = entries.first_cell[:-1]
    largest = np.maximum.reduceat(logarithms, starts)
    weights = exp(logarithms - largest[entries.cell_entry])
    rows: Floats = weights / np.add.reduceat(weights, starts)[entries.cell_entry]
    return rows


def reward_posterior(statistics: Statistics, c: float) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of every reward entry, before clipping."""
    lo, hi = statistics.reward_lo, statistics.reward_hi
    visits = statistics.reward_visits
    means = np.where(visits > 0, statistics.reward_means(), 0.5 * (lo + hi))
    deviations: Floats = np.sqrt(c / np.maximum(1, visits)) * (hi - lo)
    return means, deviations


def sample_rewards(statistics: Statistics, c: float, generator: np.random.Generator) -> Floats:
    """Draw one mean for every reward entry, inside its range."""
    means, deviations = reward_posterior(statistics, c)
    lo, hi = statistics.reward_lo, statistics.reward_hi
    normals = generator.standard_normal(means.shape)
    sampled: Floats = np.clip(means + deviations * normals, lo, hi)
    return sampled


def sample_model(
    statistics: Statistics, c: float, prior: float, generator: np.random.Generator | int
) -> FactoredMDP:
    """Return a model that is drawn from the posterior, as PSRL does in every episode.

    Every transition row is drawn from a Dirichlet distribution with parameters counts / c + prior.
    Every mean reward is drawn from a normal distribution around the estimate, with standard
    deviation sqrt(c / visits) times the range of the reward, and clipped to that range.

    Parameters
    ----------
    statistics
        The counts, as in `agent.statistics`.
    c
        Counts are divided by it, so that a larger value explores more; 0.75 in PSRL.
    prior
        Dirichlet parameter of every next value before any count; 0.01 in PSRL.
    generator
        The source of random numbers, as in `agent.randomness`, or a seed.

    Returns
    -------
    FactoredMDP
        A model of the same structure.
    """
    check_statistics(statistics, "sample_model")
    c, prior = C.check(c, "sample_model"), PRIOR.check(prior, "sample_model")
    randomness = generator_of(generator, "sample_model")
    if randomness is None:
        raise InvalidParameter("sample_model must be given a generator or a seed; got None")
    return drawn_model(statistics, c, prior, randomness)


def drawn_model(
    statistics: Statistics, c: float, prior: float, generator: np.random.Generator
) -> FactoredMDP:
    """Return what `sample_model` returns, for checked arguments."""
    s = statistics.structure
    rows = sample_rows(dirichlet_parameters(statistics, c, prior), statistics.entries, generator)
    rewards = sample_rewards(statistics, c, generator)
    return FactoredMDP.trusted(s, split_cells(s, rows), split_reward_entries(s, rewards))
