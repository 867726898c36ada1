"""A cheap certified upper bound on the gain: the least over scopes that widen while it is cheap.

For any weights w, max over (s, a) of R + P h_w - h_w is at least the gain of every policy. So the
average program is solved by a few rounds, which need not converge, over every variable alone, then
with one more parent in every scope, and so on, while its predicted time is at most `SECONDS`. The
least residual is a bound. No policy is made, simulated or judged. Functions that are images of each
other under symmetries of the model share one weight. Times are predicted and not measured, so the
scopes do not depend on the machine.
"""

from __future__ import annotations

import math
from dataclasses import replace

from fmdp.errors import TooLarge
from fmdp.model import FactoredMDP
from fmdp.model.expansion import shared_draws
from fmdp.model.structure import Scope
from fmdp.model.symmetry import symmetry_of
from fmdp.planning.alp.alp_settings import ALPSettings
from fmdp.planning.alp.basis_scopes import first_scopes, widened_scopes
from fmdp.planning.alp.basis_trial import MEMORY_LIMIT
from fmdp.planning.alp.growth import TIGHTENING_ROUNDS
from fmdp.planning.alp.prepared_alp import PreparedALP
from fmdp.planning.settings import with_basis
from fmdp.planning.status import Progress

SECONDS = 1.5
"""Most predicted seconds of a program. Those before it take less together, because each is several
times as fast as the next."""
_INCREASE = 3.0
"""Least factor by which the next program is assumed to be slower; merely preparing one that is then
too slow takes as long as solving the one before."""


def least_gain_upper(
    settings: ALPSettings, model: FactoredMDP, progress: Progress | None = None
) -> float:
    """Return a certified upper bound on the gain; infinity if no program is small enough.

    `settings` are those of the programs, but for their basis and memory.
    """
    structure = model.structure
    bound = math.inf
    if shared_draws(structure):  # a larger function could not be projected
        return bound
    settings = replace(settings, memory_limit=MEMORY_LIMIT)
    try:
        symmetry = symmetry_of(model)
        scopes: tuple[Scope, ...] | None = first_scopes(structure, symmetry)
        while scopes is not None:
            prepared = PreparedALP(
                with_basis(settings, scopes),
                structure,
                share_for=model,
                dense=True,
                symmetry=symmetry,
            )
            seconds = prepared.predicted_seconds()
            if seconds > SECONDS:
                break
            bound = min(bound, prepared.bound(model, TIGHTENING_ROUNDS, progress))
            if seconds > SECONDS / _INCREASE:
                break
            scopes = widened_scopes(structure, scopes, symmetry)
    except TooLarge:
        pass
    return bound
