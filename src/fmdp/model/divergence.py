"""Balls of the Kullback-Leibler divergence: {q : KL(p, q) <= r}, and boxes around them.

KL(p, q) = sum_v p(v) log(p(v) / q(v)), so that values with p(v) = 0 may get any probability that
the others can spare. The probabilities that a value v can have are exactly those q with kl(p(v), q)
<= r, kl the divergence of two Bernoulli laws. With two values that interval is the ball itself; for
more the box around the ball is Pinsker's |q - p(v)| <= sqrt(r / 2), which costs no logarithms.
"""

from __future__ import annotations

import numpy as np

from fmdp._base.portable_math import log
from fmdp.model.spaces import FloatArray

EVERYTHING = 1e300
"""The radius of a row that may be anything. It is finite, so that radii can be subtracted."""
_HALVINGS = 50


def bernoulli_divergence(p: FloatArray, q: FloatArray) -> FloatArray:
    """Return kl(p, q), with 0 log 0 = 0 and infinite where q excludes what p allows."""
    total = np.zeros(np.broadcast_shapes(p.shape, q.shape))
    for mass, other in ((p, q), (1.0 - p, 1.0 - q)):
        mass, other = np.broadcast_arrays(mass, other)
        usual = (mass > 0.0) & (other > 0.0)
        ratio = np.where(usual, mass, 1.0) / np.where(usual, other, 1.0)
        total += np.where(usual, mass * log(ratio), np.where(mass > 0.0, np.inf, 0.0))
    return np.maximum(total, 0.0)


def largest_within(p: FloatArray, radius: FloatArray) -> FloatArray:
    """Return the largest q with kl(p, q) <= radius, by bisection, rounded up; broadcasts."""
    inside, outside = np.broadcast_arrays(p, np.ones(()), radius)[:2]
    inside, outside = inside.copy(), outside.copy()
    for halved in range(_HALVINGS):
        q = 0.5 * (inside + outside) if halved else outside
        within = bernoulli_divergence(p, q) <= radius
        inside, outside = np.where(within, q, inside), np.where(within, outside, q)
    # At radius 0 rounding would let the bisection end some 1e-8 above p.
    return np.where(np.equal(radius, 0.0), p, outside)


def box_around(centre: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return lower and upper ends of a box around {q : KL(p, q) <= r}, for rows p.

    `centre` is [rows, values], `radius` [rows].
    """
    r = radius[:, None]
    if centre.shape[1] == 2:
        upper = largest_within(centre, r)
        return np.minimum(1.0 - upper[:, ::-1], centre), np.maximum(upper, centre)
    apart = np.sqrt(0.5 * r)
    return np.maximum(centre - apart, 0.0), np.minimum(centre + apart, 1.0)
