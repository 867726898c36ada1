"""The same model with its rewards in another unit.

Multiplying every reward, range and noise scale by c > 0 multiplies gains, biases and regret by c
and changes no decision. By a power of two every floating-point operation scales without rounding,
so that equivariance holds bit by bit (barring under- and overflow).
"""

from __future__ import annotations

from dataclasses import replace

from fmdp.model import FactoredMDP, Noise


def in_units(model: FactoredMDP, factor: float) -> FactoredMDP:
    """Return the model with its rewards in another unit.

    Parameters
    ----------
    model
        The model.
    factor
        Factor of rewards, ranges and noise, above 0.
    """
    structure = replace(
        model.structure,
        reward_ranges=tuple((lo * factor, hi * factor) for lo, hi in model.structure.reward_ranges),
    )
    noise = tuple(
        Noise(law.kind, law.scale * factor) if law.kind == "gaussian" else law
        for law in model.noise
    )
    return FactoredMDP(
        structure,
        model.transitions,
        [table * factor for table in model.rewards],
        noise,
        model.initial_state,
        model.name,
    )
