"""Policy iteration on a model that is written out, for plans whose sweeps have stalled.

Either the gain is one number that the sweeps cannot find within any limit (states that are left
once in a million steps, a corridor that pays a little less at one end): policy iteration finds an h
whose bounds meet.  Or the gain depends on the state: two states are found whose certified gains
differ (gains.py).  Nothing else is a proof, and None is returned.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fmdp.elimination.backup import Backup, check_clock
from fmdp.elimination.ties import TIE_TOLERANCE, Ties
from fmdp.model import FactoredMDP
from fmdp.planning.exact.solver import PolicySolution

Vector = NDArray[np.float64]

_NOISE = 1e3
"""A gap of at most this many rounding errors is due to rounding."""


def average_solution(
    model: FactoredMDP,
    backup: Backup,
    h: Vector,
    tolerance: float,
    ties: Ties,
    *,
    memory_limit: int | None = None,
    deadline: float | None = None,
    converged: bool = False,
) -> PolicySolution | None:
    """Return the optimal gains by policy iteration, and an h that certifies them if there is one.

    `h` is in the engine's order.  `converged`: its bounds meet, so that its greedy policy is a good
    one to begin with.  None if the model is too large, or nothing is proved.

    The bias is unique if the actions that are optimal at h have one end component (Schweitzer &
    Federgruen 1978: the solutions of the optimality equation have as many degrees of freedom as
    there are recurrent classes of an optimal policy that has as many as possible).
    """
    from fmdp.planning.tabular.component import one_gain
    from fmdp.planning.tabular.flat import end_components, flat_of
    from fmdp.planning.tabular.gains import best_gains

    flat = flat_of(model, _most_entries(memory_limit))
    if flat is None:
        return None
    check = partial(check_clock, deadline)
    start = flat.advantages(backup.to_canonical(h))[0].argmax(axis=1) if converged else None
    gains = best_gains(flat, check, start)
    if gains is None:
        return None
    bounds = (float(gains.lower.min()), float(gains.upper.max()))
    actions = flat.played(gains.actions)
    if gains.lower.max() > gains.upper.min():
        return PolicySolution(differ=bounds, gains=gains, actions=actions)
    all_states = np.ones(flat.n_states, dtype=np.bool_)
    all_pairs = np.ones((flat.n_states, flat.n_actions), dtype=np.bool_)
    whole = one_gain(flat, all_states, all_pairs, check, gains.actions)
    # Between components that are hardly ever left there may be a gain and no h to show it.
    without_h = PolicySolution(bounds=bounds, actions=actions)
    without_h_suffices = bounds[1] - bounds[0] <= tolerance
    if whole is None:
        return without_h if without_h_suffices else None
    worth, noise = flat.advantages(whole.h)
    best = (worth - noise).max(axis=1, keepdims=True)
    slack = min(TIE_TOLERANCE * model.structure.reward_unit, 0.25 * tolerance)
    tied = worth - noise >= best - slack
    if flat.stands is not None:
        tied &= flat.stands == np.arange(flat.n_actions)
    chosen = ties.choose(np.where(tied, 0.0, -np.inf), 0.0)
    lower = float(np.take_along_axis(worth - noise, chosen[:, None], axis=1).min())
    upper = min(float((worth + noise).max()), bounds[1])
    if upper - lower > max(tolerance, _NOISE * float(noise.max())):
        # Policy iteration did not end.  What is known may suffice; else the sweeps go on.
        return without_h if without_h_suffices else None
    # As many components whether ties count or not: then nothing depends on what a tie is.
    surely, perhaps = worth - noise >= best, worth + noise >= best - slack
    optimal = (surely,) if np.array_equal(surely, perhaps) else (surely, perhaps)
    return PolicySolution(
        bounds=(lower, upper),
        h=backup.to_internal(whole.h),
        actions=chosen,
        unique_bias=all(end_components(flat, allowed).count == 1 for allowed in optimal),
    )


def discounted_solution(
    model: FactoredMDP,
    backup: Backup,
    h: Vector,
    discount: float,
    *,
    memory_limit: int | None = None,
    deadline: float | None = None,
) -> PolicySolution | None:
    """Return the values of policy iteration from the policy that is greedy at h under a discount.

    None if the model is too large to be written out.
    """
    from fmdp.planning.tabular.component import SPARSE_STATES
    from fmdp.planning.tabular.discounted import best_discounted
    from fmdp.planning.tabular.flat import flat_of

    if discount == 0.0 or model.structure.n_states > SPARSE_STATES:
        return None
    flat = flat_of(model, _most_entries(memory_limit))
    if flat is None:
        return None
    start = flat.advantages(discount * backup.to_canonical(h))[0].argmax(axis=1)
    best = best_discounted(flat, discount, start, partial(check_clock, deadline))
    if best is None:
        return None
    bounds = (best.lower / discount, best.upper / discount)
    return PolicySolution(bounds=bounds, h=backup.to_internal(best.values))


def _most_entries(memory_limit: int | None) -> int:
    """Return the entries that may be written out.

    Memory that is free at the moment does not count: the same run gives the same plan anywhere.
    """
    from fmdp.planning.tabular.flat import BYTES_AN_ENTRY, ENTRIES

    return ENTRIES if memory_limit is None else min(ENTRIES, memory_limit // BYTES_AN_ENTRY)
