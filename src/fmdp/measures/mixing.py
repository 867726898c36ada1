"""The mixing time of a policy: how soon the initial state is forgotten.

    t_mix = min { t >= 0 : max_s 1/2 sum_s' |P^t(s, s') - mu(s')| <= 1/4 },   mu the stationary law

It is infinite if the chain has several recurrent classes or its recurrent class is periodic, both
decided on the support. The distance never grows with t, so t is found by squaring P until the
distance is at most 1/4 and then bisecting with the stored powers: about 2 log2 t products of S x S
matrices. Rows are divided by their sums after each product, so that rounding errors stay below a
few units of 1e-16 times S t; if that leaves t in doubt, the result is None.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fmdp._base.progress import PartsReport
from fmdp.measures.reachability import closed_classes, levels
from fmdp.model import FactoredMDP
from fmdp.planning.tabular.gth import stationary_law
from fmdp.planning.tabular.model import policy_matrix

Matrix = NDArray[np.float64]

THRESHOLD = 0.25  # the usual distance in the definition of mixing times
STATE_LIMIT = 2048
"""Default for the largest number of states."""
_SQUARINGS = 52  # beyond 2^52 steps rounding errors dominate
_TIE = 1e-11  # with smaller rounding errors, distances this close to 1/4 equal 1/4


def mixing_time(
    model: FactoredMDP,
    actions: NDArray[np.int64],
    *,
    state_limit: int = STATE_LIMIT,
    progress: PartsReport | None = None,
) -> float | None:
    """Return the steps until a policy is within 1/4 of its stationary law from every state.

    Parameters
    ----------
    model
        The model that the policy acts in.
    actions
        The index of the joint action of every joint state: [S].
    state_limit
        Largest number of states for which it is computed.
    progress
        Called as `progress(done, total, text)`.

    Returns
    -------
    float or None
        A whole number, or infinity; None if the model has more than `state_limit` states, or the
        chain mixes so slowly that rounding would decide between one step and the next.
    """
    model.structure.check_policy(actions)
    if model.structure.n_states > state_limit:
        return None
    return chain_mixing_time(policy_matrix(model, actions), progress=progress)


def chain_mixing_time(matrix: Matrix, *, progress: PartsReport | None = None) -> float | None:
    """Return the mixing time of a chain, as `mixing_time` does.

    Parameters
    ----------
    matrix
        Transition probabilities, [S, S], one row per state.
    progress
        Called as `progress(done, total, text)`.
    """
    support = csr_array(matrix > 0)
    classes = closed_classes(support)
    if len(classes) > 1 or period(support, classes[0]) > 1:
        return math.inf
    recurrent = classes[0]
    law = np.zeros(len(matrix))
    law[recurrent] = stationary_law(matrix[np.ix_(recurrent, recurrent)])

    def distance(power: Matrix) -> float:
        return 0.5 * float(np.abs(power - law).sum(axis=1).max())

    def doubt(steps: int) -> float:
        """Bound the rounding error of the distance: a product adds n roundings to a row."""
        return 4 * len(matrix) * float(np.finfo(np.float64).eps) * steps

    def far(power: Matrix, steps: int) -> bool:
        return distance(power) > THRESHOLD + doubt(steps)

    if not far(np.eye(len(matrix)), 1):
        return 0.0
    powers = [matrix]  # P^(2^k)
    while far(powers[-1], 2 ** (len(powers) - 1)):
        if len(powers) > _SQUARINGS:
            return None
        if progress is not None:
            progress(len(powers), 2 * len(powers), "mixing time: squaring the chain")
        powers.append(_product(powers[-1], powers[-1]))
    # The largest t that is certainly far: P^(2^(k-1)) times smaller powers that keep it far.
    current, steps = np.eye(len(matrix)), 0
    for k in range(len(powers) - 2, -1, -1):
        if progress is not None:
            progress(2 * len(powers) - k, 2 * len(powers), "mixing time: bisecting")
        further = powers[k] if steps == 0 else _product(current, powers[k])
        if far(further, steps + 2**k):
            current, steps = further, steps + 2**k
    steps += 1
    # A distance of 1/4 counts as reached if rounding is small; otherwise t is in doubt.
    unsure = distance(_product(current, matrix)) > THRESHOLD - doubt(steps)
    return None if unsure and doubt(steps) > _TIE else float(steps)


def period(support: csr_array, members: NDArray[np.int64]) -> int:
    """Return the greatest common divisor of the cycle lengths within a strongly connected set."""
    inside = support[members][:, members]
    level, _ = levels(inside, 0)
    origin, successor = inside.nonzero()
    return int(np.gcd.reduce(level[origin] + 1 - level[successor]))


def _product(left: Matrix, right: Matrix) -> Matrix:
    result: Matrix = left @ right
    result /= result.sum(axis=1, keepdims=True)
    return result
