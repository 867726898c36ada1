"""The measures of a run: every number that the store keeps of it, each declared once.

A declaration has the name under which a measure is stored, its type, what it means, and how it is
read off a run; with `curve`, also how it stands at each checkpoint. Worker, store, frames and
tables all go by the declarations, so a new measure is one `declare` here, beside the code in
`simulation` that computes it. A failed run has no measures; one that is done has at least those
that are `required`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, UnknownName, did_you_mean
from fmdp.simulation.run import Run

Value = float | int | str
Points = Sequence[tuple[int, float]]
"""(t, value after t steps), t rising."""

T = TypeVar("T", bound=Value)


@dataclass(frozen=True)
class Measure(Generic[T]):
    """One measure. `of` and `curve` give None for a run to which it does not apply."""

    name: str
    kind: type[T]
    meaning: str
    of: Callable[[Run], T | None]
    curve: Callable[[Run], Points | None] | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    """All values that a text may have; empty: any."""
    repeatable: bool = True
    """Whether the same run has the same value, to the last bit; a time has not."""

    def check(self, value: object) -> T:
        """The value in the measure's own type, or an error that names the measure."""
        if self.kind is str:
            good = isinstance(value, str) and (not self.choices or value in self.choices)
        else:
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            real = isinstance(value, float | np.floating) and math.isfinite(value)
            good = whole or (self.kind is float and real)
        if not good:
            allowed = " or ".join(self.choices) or _KINDS[self.kind]
            raise InvalidParameter(
                f"the '{self.name}' measure of a run must be {allowed}; got {quoted(value)}"
            )
        make: Callable[[Any], T] = self.kind  # a NumPy scalar becomes Python's
        return make(value)


_KINDS = {float: "a finite number", int: "a whole number", str: "a text"}

_declared: dict[str, Measure[Any]] = {}


def declare(measure: Measure[T]) -> Measure[T]:
    """Make a measure known under its name, which must be free."""
    if measure.name in _declared:
        raise InvalidParameter(f"the measure {quoted(measure.name)} is declared already")
    _declared[measure.name] = measure
    return measure


def declared() -> tuple[Measure[Any], ...]:
    """Every measure, in the order of the columns of a table."""
    return tuple(_declared.values())


def is_declared(name: str) -> bool:
    """Whether this fmdp knows the measure; a store may have others, of some package."""
    return name in _declared


def measure_named(name: str) -> Measure[Any]:
    if name not in _declared:
        raise UnknownName(
            f"unknown measure {quoted(name)}; known are {', '.join(_declared)}"
            f"{did_you_mean(name, _declared)}"
        )
    return _declared[name]


def curve_names() -> tuple[str, ...]:
    """The measures that are known at every checkpoint, not only at the end."""
    return tuple(measure.name for measure in declared() if measure.curve is not None)


def measured(run: Run) -> dict[str, Value]:
    """All that is measured of a run, by name; what does not apply is not there."""
    found = {measure.name: measure.of(run) for measure in declared()}
    return {name: value for name, value in found.items() if value is not None}


def curves_of(run: Run) -> dict[str, Points]:
    """Measure -> its values at the checkpoints, for those that have a curve."""
    found = {m.name: m.curve(run) for m in declared() if m.curve is not None}
    return {name: points for name, points in found.items() if points is not None}


def repeatable(measures: Mapping[str, Value]) -> dict[str, Value]:
    """Of the measures of a run those that it has again when it is made again: no times."""
    times = {measure.name for measure in declared() if not measure.repeatable}
    return {name: value for name, value in measures.items() if name not in times}


def checked(measures: Mapping[str, object], *, done: bool) -> dict[str, Value]:
    """The measures of a run as they are stored: known, of their type, none that is required
    missing; of a failed run none at all."""
    if not done:
        if measures:
            raise InvalidParameter(f"a failed run must have no measures; got {', '.join(measures)}")
        return {}
    for measure in declared():
        if measure.required and measure.name not in measures:
            raise InvalidParameter(f"a run that is done must have the measure '{measure.name}'")
    return {name: measure_named(name).check(value) for name, value in measures.items()}


REGRET = declare(
    Measure(
        "regret",
        float,
        "realised regret: steps times the gain, minus the rewards",
        of=lambda run: run.regret,
        curve=lambda run: run.curve,
        required=True,
    )
)
GAP_REGRET = declare(
    Measure(
        "gap_regret",
        float,
        "what the actions gave away against optimal ones, by the optimal bias; not there where the "
        "model is too large for it",
        of=lambda run: run.gap_regret,
        curve=lambda run: run.gap_curve,
    )
)
GAIN = declare(
    Measure(
        "gain",
        float,
        "reward a step that regret is measured against",
        of=lambda run: run.gain,
        required=True,
    )
)
GAIN_KIND = declare(
    Measure(
        "gain_kind",
        str,
        "whether that gain is the optimal one or an upper bound of it",
        of=lambda run: run.gain_kind,
        required=True,
        choices=("exact", "upper_bound"),
    )
)
EPISODES = declare(Measure("episodes", int, "episodes begun", of=lambda run: run.episodes))
PLANNER_CALLS = declare(
    Measure("planner_calls", int, "plans made", of=lambda run: run.planner_calls)
)
UNCONVERGED_PLANS = declare(
    Measure(
        "unconverged_plans",
        int,
        "plans among them that did not converge and were used all the same",
        of=lambda run: run.unconverged_plans,
    )
)
CPU_SECONDS = declare(
    Measure(
        "cpu_seconds",
        float,
        "processor time of acting, observing and planning, of all threads of the process; not "
        "there in runs of stores that are older than it",
        of=lambda run: run.cpu_seconds,
        repeatable=False,
    )
)
