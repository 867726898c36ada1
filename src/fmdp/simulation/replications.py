"""A confidence interval for a long-run mean from independent simulated runs.

Several runs begin in different states and are cut into batches; the first eighth of each run is
not counted (replication/deletion and batch means: Law, *Simulation Modeling and Analysis*,
chapter 9). Three things decide the interval:

* Sampling error: Student's t on the means of the runs. They are independent however long the chain
  remembers, so their variance needs no model of the correlation.
* Memory: batches are independent only if they are longer than the chain's memory. A batch length
  is accepted if no longer one, the whole run included, has a significantly larger variance than it
  predicts. Between runs this is the analysis of variance behind Gelman and Rubin's diagnostic.
  The uncounted steps take part in it: how long a run remembers its start is memory, too.
  If no length of at most an eighth of a run is accepted there is no interval at all: the runs
  disagree, or drift.
* Unseen events: if an event has probability f per independent batch, then N batches miss it
  with probability (1 - f)^N. So with confidence 1 - alpha an event that no batch showed has
  f <= 1 - alpha^(1/N), about 3/N at 95 % (the rule of three), and a batch that shows it can pay
  anything between the certified bounds.

The interval therefore has its confidence if batches of the accepted length are independent, have
the same law in every run, and the means of runs are close to normal. It does not cover a chain with
a set of states that pays differently, that every run missed, and that is left more slowly than
after one batch. No simulation can exclude such a set.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEWEST_BATCHES = 8
"""Batches per run at the longest batch length that is accepted, so that three doublings of it are
tested."""
DISCARDED = 8
"""The first of this many parts of each run is not counted, to reduce the influence of the start."""
_SIGNIFICANCE = 1e-3
"""Level of each test of a batch length against a longer one."""


@dataclass(frozen=True)
class Interval:
    """A confidence interval for the long-run mean, and the batches per run at the accepted
    length."""

    lower: float
    upper: float
    batches: int


def accepted_batches(means: NDArray[np.float64], rounding: float = 0.0) -> int | None:
    """Return the batches per run at the shortest batch length that no longer one contradicts.

    `means`, [runs, batches], are means of consecutive batches of at least two runs, with a power of
    two of batches. `rounding` bounds the rounding error of each mean; a run's mean counts as no
    more precise. None if no batch length of at most an eighth of a run is accepted.
    """
    from scipy.special import fdtri  # imported late, for start-up

    levels = _variances(means, rounding)
    for level, (batches, variance, degrees) in enumerate(levels):
        if batches < FEWEST_BATCHES:
            break
        if all(
            longer <= variance * fdtri(their_degrees, degrees, 1.0 - _SIGNIFICANCE)
            for _, longer, their_degrees in levels[level + 1 :]
        ):
            return batches
    return None


def _variances(means: NDArray[np.float64], rounding: float) -> list[tuple[int, float, int]]:
    """Return (batches per run, predicted variance of a run's mean, degrees of freedom) per length.
    The prediction assumes independent batches. Shortest batches come first; the last level is the
    variance of the means of the runs themselves."""
    runs, batches = means.shape
    levels = []
    while batches > 1:
        predicted = float(means.var(axis=1, ddof=1).mean()) / batches
        levels.append((batches, max(predicted, rounding**2), runs * (batches - 1)))
        means = 0.5 * (means[:, ::2] + means[:, 1::2])
        batches //= 2
    between = max(float(means.var(ddof=1)), rounding**2)
    return [*levels, (1, between, runs - 1)]


def counted(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the batches without those of the first eighth of each run."""
    return means[:, means.shape[1] // DISCARDED :]


def unseen_share(batches: int, miss_probability: float) -> float:
    """Return the largest probability per batch of an event that all batches may have missed. A
    likelier event is missed by this many independent batches with less than `miss_probability`."""
    return -math.expm1(math.log(miss_probability) / batches)


def interval(
    means: NDArray[np.float64],
    certified: tuple[float, float],
    confidence: float,
    rounding: float = 0.0,
) -> Interval | None:
    """Return a confidence interval for the long-run mean; None if the runs do not support one.

    Half of the allowed error probability is spent on the sampling error, half on unseen events.
    `means` and `rounding` are as in `accepted_batches`, from the first step on. Every batch and the
    long-run mean lie between the bounds `certified` with certainty.
    """
    from scipy.special import stdtrit  # imported late, for start-up

    batches = accepted_batches(means, rounding)
    if batches is None:
        return None
    runs = len(means)
    run_means = counted(means).mean(axis=1)
    alpha = (1.0 - confidence) / 2
    half = float(stdtrit(runs - 1, 1.0 - alpha / 2) * run_means.std(ddof=1) / math.sqrt(runs))
    half += rounding
    mean = float(run_means.mean())
    unseen = unseen_share(runs * (batches - batches // DISCARDED), alpha)
    low, high = certified
    lower = (1.0 - unseen) * (mean - half) + unseen * low
    upper = (1.0 - unseen) * (mean + half) + unseen * high
    return Interval(min(max(lower, low), high), max(min(upper, high), low), batches)
