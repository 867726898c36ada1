"""The state of a plan over ranks as numbers and arrays of a checkpoint, and back, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fmdp.planning.distributed.acceleration import RanksAnderson
from fmdp.planning.distributed.backup import RanksBackup
from fmdp.planning.distributed.checkpoints import exact_text
from fmdp.planning.exact.bounds import Residual
from fmdp.planning.exact.solver import Phase, State, Uniqueness


def content_of(state: State) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the numbers of a state before a sweep, and this rank's arrays."""
    numbers: dict[str, Any] = {
        "bounds": [exact_text(state.lower), exact_text(state.upper)],
        "residual": [exact_text(x) for x in (state.residual.low, state.residual.high)],
        "slack": exact_text(state.residual.slack),
        "sweeps": state.sweeps,
        "damping": state.damping,
        "dampings": list(state.dampings),
        "history": [[sweeps, exact_text(gap)] for sweeps, gap in state.history],
        "first_gap": None if state.first_gap is None else exact_text(state.first_gap),
        "accelerating": state.accelerating,
        "accelerated": state.accelerated,
        "uniqueness": state.uniqueness.name,
        "unique": state.unique,
        "acceleration": None,
    }
    arrays: dict[str, NDArray[Any]] = {"h": state.h}
    if isinstance(state.acceleration, RanksAnderson) and state.extrapolates:
        numbers["acceleration"], vectors = state.acceleration.content()
        arrays |= vectors
    return numbers, arrays


def restored(
    state: State,
    saved: Mapping[str, Any],
    read: Callable[[str], NDArray[np.float64]],
    backup: RanksBackup,
    on_disk: bool,
) -> State:
    """Return the state with the numbers of a checkpoint, whose arrays `read` returns by name.

    Acceleration that was given up is not made again.
    """
    number = float.fromhex
    state.h[:] = read("h")
    acceleration: RanksAnderson | None = None
    if saved["acceleration"] is not None:
        acceleration = RanksAnderson(backup, saved["acceleration"]["kept"], on_disk)
        acceleration.restore(saved["acceleration"], read)
    low, high = map(number, saved["residual"])
    return state._replace(
        phase=Phase.ITERATE,
        lower=number(saved["bounds"][0]),
        upper=number(saved["bounds"][1]),
        residual=Residual(low, high, number(saved["slack"])),
        sweeps=saved["sweeps"],
        damping=saved["damping"],
        dampings=tuple(saved["dampings"]),
        history=tuple((sweeps, number(gap)) for sweeps, gap in saved["history"]),
        first_gap=None if saved["first_gap"] is None else number(saved["first_gap"]),
        acceleration=acceleration,
        accelerating=saved["accelerating"] and acceleration is not None,
        accelerated=saved["accelerated"],
        uniqueness=Uniqueness[saved["uniqueness"]],
        unique=saved["unique"],
    )
