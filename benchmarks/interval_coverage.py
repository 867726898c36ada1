"""Coverage of 95 % intervals of the mean and of the median on skewed samples, by simulation.

    python -m benchmarks.interval_coverage [--samples 1500]

docs/reports.md has the table of the means. Half a minute.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fmdp.experiments.statistics import mean_interval, median_coverage

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats]

RESAMPLES = 799
TAILS = (0.025, 0.975)


def stuck(share: float) -> Draw:
    """Return runs of which a share has ten times the regret."""

    def draw(generator: np.random.Generator, shape: tuple[int, int]) -> Floats:
        usual = generator.lognormal(0, 0.3, shape)
        return usual * np.where(generator.random(shape) < share, 10, 1)

    return draw


LAWS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda g, shape: g.normal(5, 1, shape), 5.0),
    "exponential": (lambda g, shape: g.exponential(1, shape), 1.0),
    "lognormal, sd of the log .5": (lambda g, shape: g.lognormal(0, 0.5, shape), np.exp(0.125)),
    "lognormal, sd of the log 1": (lambda g, shape: g.lognormal(0, 1, shape), np.exp(0.5)),
    "one in ten stuck": (stuck(0.1), 1.9 * np.exp(0.045)),
    "one in fifty stuck": (stuck(0.02), 1.18 * np.exp(0.045)),
}
"""How runs are drawn, and their mean."""


def intervals(sample: Floats, generator: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return the intervals of the mean: Student's t and three bootstraps."""
    n, mean = sample.size, float(sample.mean())
    error = float(sample.std(ddof=1)) / np.sqrt(n)
    drawn = sample[generator.integers(n, size=(RESAMPLES, n))]
    means, errors = drawn.mean(axis=1), drawn.std(axis=1, ddof=1) / np.sqrt(n)
    usable = errors > 0
    low, high = np.quantile((means[usable] - mean) / errors[usable], TAILS)
    # BCa (Efron 1987): bias z0 and acceleration a, which for the mean is the skewness.
    below = ((means < mean).sum() + 0.5 * (means == mean).sum()) / RESAMPLES
    z0, z = norm.ppf(below), norm.ppf(TAILS)
    a = ((sample - mean) ** 3).sum() / (6 * ((sample - mean) ** 2).sum() ** 1.5)
    tails = norm.cdf(z0 + (z0 + z) / (1 - a * (z0 + z)))
    return {
        "Student's t": mean_interval(sample.tolist()) or (mean, mean),
        "percentile bootstrap": tuple(np.quantile(means, TAILS)),
        "BCa bootstrap": tuple(np.quantile(means, tails)),
        "bootstrap-t": (mean - high * error, mean - low * error),
    }


def mean_coverage(name: str, n: int, samples: int) -> dict[str, float]:
    """Return how often each interval of n runs has the mean."""
    draw, mean = LAWS[name]
    generator = np.random.default_rng([n, len(name)])
    found = [intervals(sample, generator) for sample in draw(generator, (samples, n))]
    return {
        kind: float(np.mean([own[kind][0] <= mean <= own[kind][1] for own in found]))
        for kind in found[0]
    }


def bootstrapped_median_coverage(n: int, samples: int) -> float:
    """Return how often the percentile bootstrap of n exponential runs has the median."""
    generator = np.random.default_rng(n)
    inside = 0
    for sample in generator.exponential(1, (samples, n)):
        drawn = np.median(sample[generator.integers(n, size=(RESAMPLES, n))], axis=1)
        low, high = np.quantile(drawn, TAILS)
        inside += bool(low <= np.log(2) <= high)
    return inside / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--samples", type=int, default=1_500)
    samples = parser.parse_args().samples
    print("mean\n")
    for name in LAWS:
        for n in (5, 10, 20, 50):
            found = mean_coverage(name, n, samples)
            told = "  ".join(f"{kind} {share:.2f}" for kind, share in found.items())
            print(f"{name:28} n = {n:2}  {told}", flush=True)
    print("\nmedian, exponential runs\n")
    for n in (3, 5, 6, 10, 20):
        share, exact = bootstrapped_median_coverage(n, samples), median_coverage(n)
        told = "n too small" if exact is None else f"{exact:.3f}"
        print(f"n = {n:2}  percentile bootstrap {share:.2f}  order statistics {told}")


if __name__ == "__main__":
    main()
