"""Noise: the distribution of an observed reward around its mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from fmdp.errors import InvalidModel, did_you_mean
from fmdp.model.spaces import items, shown

NoiseKind = Literal["deterministic", "bernoulli", "gaussian"]


@dataclass(frozen=True)
class Noise:
    """The distribution of an observed reward around its mean, which is the entry of the table.

    Parameters
    ----------
    kind
        "deterministic": the mean itself. "bernoulli": lo or hi of the range. "gaussian": mean +
        noise, clipped at +-min(mean - lo, hi - mean).
    scale
        Standard deviation of gaussian noise before it is clipped, above 0, in the unit of the
        reward; 0 for the other kinds.

    Raises
    ------
    InvalidModel
        If the kind is unknown, or the scale does not fit it.
    """

    kind: NoiseKind = "deterministic"
    scale: float = 0.0

    def __post_init__(self) -> None:
        kinds = get_args(NoiseKind)
        if not isinstance(self.kind, str) or self.kind not in kinds:
            hint = did_you_mean(self.kind, kinds) if isinstance(self.kind, str) else ""
            raise InvalidModel(f"noise {self.kind!r}: must be one of {', '.join(kinds)}{hint}")
        if isinstance(self.scale, bool) or not isinstance(
            self.scale, (int, float, np.integer, np.floating)
        ):
            raise InvalidModel(f"noise {self.kind}: scale is {shown(self.scale)}; must be a number")
        try:
            scale = float(self.scale) + 0.0
        except OverflowError:
            scale = math.inf
        if self.kind == "gaussian":
            if not 0.0 < scale < math.inf:
                raise InvalidModel(f"noise gaussian: scale is {scale!r}; must be above 0, finite")
        elif scale != 0.0:
            raise InvalidModel(
                f"noise {self.kind}: scale is {scale!r}; only gaussian noise has a scale"
            )
        object.__setattr__(self, "scale", scale)


def laws_of(noise: Noise | Sequence[Noise] | None, n_rewards: int) -> tuple[Noise, ...]:
    """Return one law per reward factor, from the argument of a constructor."""
    if noise is None:
        noise = Noise()
    laws = (noise,) * n_rewards if isinstance(noise, Noise) else items(noise, "noise")
    if len(laws) != n_rewards:
        raise InvalidModel(
            f"{len(laws)} noise laws for {n_rewards} reward factors; must be one for all or "
            f"one per reward factor"
        )
    for k, law in enumerate(laws):
        if not isinstance(law, Noise):
            raise InvalidModel(f"noise of reward factor {k} is {law!r}; must be a Noise")
    return laws
