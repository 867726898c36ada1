"""The same model with its rewards stated in another unit.

Multiplying every reward, range and noise scale by c > 0 multiplies gains, biases and regret by c
and changes no decision. By a power of two every floating-point operation scales without rounding,
so that whatever is equivariant is so to the last bit (until numbers under- or overflow).
"""

from __future__ import annotations

from dataclasses import replace

from fmdp.model import FactoredMDP, Noise


def in_units(model: FactoredMDP, factor: float) -> FactoredMDP:
    """The model with its rewards in another unit.

    Parameters
    ----------
    model
        The model.
    factor
        What rewards, ranges and noise are multiplied by, above 0.
    """
    structure = replace(
        model.structure,
        reward_ranges=tuple((lo * factor, hi * factor) for lo, hi in model.structure.reward_ranges),
    )
    noise = tuple(
        Noise(own.kind, own.scale * factor) if own.kind == "gaussian" else own
        for own in model.noise
    )
    return FactoredMDP(
        structure,
        model.transitions,
        [table * factor for table in model.rewards],
        noise,
        model.initial_state,
        model.name,
    )
