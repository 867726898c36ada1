"""Measures of a run: every number that the store keeps of it, each declared once.

A declaration states the name, type and meaning of a measure and how it is read off a run; with
`curve`, also its value at each checkpoint. Worker, store, frames, CSV files and the page of a
report all use the declarations, so a new measure is one `declare` here, beside the code in
`simulation` that computes it (docs/experiments.md, "Add a measure of a run"). A failed run has no
measures; a finished one has at least those that are `required`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import numpy as np

from fmdp._base.parameters import quoted
from fmdp.errors import InvalidParameter, UnknownName, did_you_mean
from fmdp.simulation.run import Run

Value = float | int | str
Points = Sequence[tuple[int, float]]
"""Pairs (t, value after t steps), t increasing."""

T = TypeVar("T", bound=Value)


@dataclass(frozen=True)
class Measure(Generic[T]):
    """One measure. `of` and `curve` return None for a run to which it does not apply.

    Reports show a number without a curve as a column of their summary table. A measure with a curve
    gets curves, figures, intervals and paired comparisons, in which lower is better.
    """

    name: str
    kind: type[T]
    meaning: str
    of: Callable[[Run], T | None]
    curve: Callable[[Run], Points | None] | None = None
    required: bool = False
    choices: tuple[str, ...] = ()
    """All values that a text may have; empty: any."""
    repeatable: bool = True
    """True if repeating the run gives the same value to the last bit; False for times."""
    title: str = ""
    """Name in reports; by default the name with spaces for underscores."""
    unit: str = ""
    """Unit on the axes of reports."""
    column: str | None = ""
    """Heading of its column on the page: by default the title, None for no column."""
    over_runs: Literal["median", "sum"] = "median"
    """How that column combines the runs of a cell."""

    def __post_init__(self) -> None:
        title = self.title or self.name.replace("_", " ")
        object.__setattr__(self, "title", title)
        if self.column == "":
            number = self.kind is not str and self.curve is None
            object.__setattr__(self, "column", _capitalised(title) if number else None)

    @property
    def caption(self) -> str:
        """The sentence under its curves."""
        return f"{_capitalised(self.title)}: {self.meaning}."

    @property
    def axis(self) -> str:
        """The title of its axis."""
        return f"{self.title} ({self.unit})" if self.unit else self.title

    def check(self, value: object) -> T:
        """Return the value in the measure's type, or raise InvalidParameter."""
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
        make: Callable[[Any], T] = self.kind  # NumPy scalars become Python's
        return make(value)


_KINDS = {float: "a finite number", int: "a whole number", str: "a text"}

_declared: dict[str, Measure[Any]] = {}


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def declare(measure: Measure[T]) -> Measure[T]:
    """Register a measure under its name, which must be free."""
    if measure.name in _declared:
        raise InvalidParameter(f"the measure {quoted(measure.name)} is declared already")
    _declared[measure.name] = measure
    return measure


def declared() -> tuple[Measure[Any], ...]:
    """Return all measures, in the order of the columns of a table."""
    return tuple(_declared.values())


def measure_named(name: str) -> Measure[Any]:
    """Return the measure of this name, or raise UnknownName."""
    if name not in _declared:
        raise UnknownName(
            f"unknown measure {quoted(name)}; known are {', '.join(_declared)}"
            f"{did_you_mean(name, _declared)}"
        )
    return _declared[name]


def title_of(name: str) -> str:
    """Return the name that reports use for a measure."""
    return measure_named(name).title


def curve_names() -> tuple[str, ...]:
    """Return the names of the measures that have a value at every checkpoint."""
    return tuple(measure.name for measure in declared() if measure.curve is not None)


def measured(run: Run) -> dict[str, Value]:
    """Return the value of every measure that applies to a run, by name."""
    values = {measure.name: measure.of(run) for measure in declared()}
    return {name: value for name, value in values.items() if value is not None}


def curves_of(run: Run) -> dict[str, Points]:
    """Return the values at the checkpoints of every measure that has a curve, by name."""
    curves = {m.name: m.curve(run) for m in declared() if m.curve is not None}
    return {name: points for name, points in curves.items() if points is not None}


def repeatable(measures: Mapping[str, Value]) -> dict[str, Value]:
    """Return the measures that a repetition of the run reproduces: all but times."""
    times = {measure.name for measure in declared() if not measure.repeatable}
    return {name: value for name, value in measures.items() if name not in times}


def checked(measures: Mapping[str, object], *, done: bool) -> dict[str, Value]:
    """Return the measures of a run with their types checked.

    Raise InvalidParameter for an unknown or missing measure, and for any measure of a failed run.
    """
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
        "t times the gain minus the rewards of t steps",
        of=lambda run: run.regret,
        curve=lambda run: run.curve,
        required=True,
        title="realised regret",
        unit="reward",
    )
)
GAP_REGRET = declare(
    Measure(
        "gap_regret",
        float,
        "what the actions of t steps give away against optimal ones, by the optimal bias; free of "
        "the luck in the rewards",
        of=lambda run: run.gap_regret,
        curve=lambda run: run.gap_curve,
        unit="reward",
    )
)
GAIN = declare(
    Measure(
        "gain",
        float,
        "reward per step that regret is measured against",
        of=lambda run: run.gain,
        required=True,
        column=None,
    )
)
GAIN_KIND = declare(
    Measure(
        "gain_kind",
        str,
        "whether that gain is the optimal one or an upper bound on it",
        of=lambda run: run.gain_kind,
        required=True,
        choices=("exact", "upper_bound"),
    )
)
EPISODES = declare(
    Measure("episodes", int, "episodes started", of=lambda run: run.episodes, column=None)
)
PLANNER_CALLS = declare(
    Measure(
        "planner_calls",
        int,
        "plans made",
        of=lambda run: run.planner_calls,
        column="Plans per run",
    )
)
UNCONVERGED_PLANS = declare(
    Measure(
        "unconverged_plans",
        int,
        "plans that were used although they had not converged",
        of=lambda run: run.unconverged_plans,
        column="Unconverged, total",
        over_runs="sum",
    )
)
CPU_SECONDS = declare(
    Measure(
        "cpu_seconds",
        float,
        "processor time of acting, observing and planning, over all threads of the process; "
        "missing in runs that were stored before this measure existed",
        of=lambda run: run.cpu_seconds,
        repeatable=False,
        column=None,
    )
)
PRIOR = declare(
    Measure(
        "prior",
        str,
        "the distribution from which the model of the run was drawn; missing where the model was "
        "given",
        of=lambda _: None,  # known to the sweep, not to the run
    )
)
