"""Records of what a policy does in the long run, as `inspect` and `plan.summary` return them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fmdp._base.html import html_table
from fmdp._base.numerals import upper_text
from fmdp.model import FactoredMDP
from fmdp.planning.occupancy.law import Law

_LISTED = 60
"""Most rows of the table in a notebook, and most lines of the text."""
_IN_LINE = 12
"""Most values of one variable in a line of the text."""


@dataclass(frozen=True)
class Visited:
    """A state that is visited often.

    Attributes
    ----------
    state
        The state by name.
    share
        Its share of time.
    action
        The policy's action there, by name; one of them if it randomises.
    runner_up
        The best other action, by name; None if it is not known.
    gap
        What taking the runner-up once costs in total; None if it is not known.
    """

    state: Mapping[str, str]
    share: float
    action: Mapping[str, str]
    runner_up: Mapping[str, str] | None = None
    gap: float | None = None


@dataclass(frozen=True)
class Event:
    """How often an event happens.

    Attributes
    ----------
    share
        The share of the steps in which it holds.
    return_time
        The mean number of steps from one such step to the next, 1 / share; infinite if there is
        none.
    duration
        The mean number of consecutive steps for which it holds; None if it never holds, and
        infinite if it never ends.
    """

    share: float
    return_time: float
    duration: float | None


@dataclass(frozen=True)
class Summary:
    """What a policy does in the long run, from the initial state.

    Attributes
    ----------
    kind
        "exact": every bound is certified. "simulated": bounds are confidence intervals.
    factors
        The mean of each reward factor per step, by name.
    quantities
        The mean of each quantity per step, by name.
    actions
        For each action variable, the share of time of each of its values.
    states
        For each state variable, the share of time of each of its values.
    events
        The requested events, by name.
    most_visited
        The states that are visited most, with the action taken there and its runner-up.
    bounds
        Lower and upper bounds on the same numbers, in the same form: a mapping with the keys
        `factors`, `quantities`, `actions`, `states` and `events`. None in place of a pair if
        simulated runs do not support an interval.
    error
        Exact: certified error of the share of any set of states; otherwise None.
    confidence
        Simulated: confidence of each interval; otherwise None.
    classes
        Exact: recurrent classes in which the chain can end. With several, the shares are those
        from the initial state, weighted by the chance of ending in each.
    caveat
        One sentence on what the numbers do not say, or None.
    seconds
        Wall-clock time.
    model
        The model.
    law
        Exact: the share of time of every state (`law.states`, `law.shares`); otherwise None.
    """

    kind: str
    factors: Mapping[str, float]
    actions: Mapping[str, Mapping[str, float]]
    states: Mapping[str, Mapping[str, float]]
    events: Mapping[str, Event] = field(default_factory=dict)
    most_visited: Sequence[Visited] = ()
    bounds: Mapping[str, Any] = field(default_factory=dict)
    error: float | None = None
    confidence: float | None = None
    classes: int | None = None
    caveat: str | None = None
    seconds: float = 0.0
    model: FactoredMDP | None = field(default=None, repr=False, compare=False)
    law: Law | None = field(default=None, repr=False, compare=False)
    quantities: Mapping[str, float] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """The sum of the means of all reward factors."""
        return float(sum(self.factors.values()))

    def __str__(self) -> str:
        """Return the gain, means, shares and events as lines; `repr` has every number."""
        how = (
            self.kind
            if self.error is None
            else f"{self.kind}, every share within {upper_text(self.error, 2)}"
        )
        lines = [f"What the policy does in the long run: {how}", f"  gain {self.gain:.6g}"]
        means = [*self.factors.items(), *self.quantities.items()]
        lines += [f"  mean of {name}: {mean:.6g}" for name, mean in means]
        for kind, shares in (("action", self.actions), ("state", self.states)):
            for name, by_value in shares.items():
                parts = [f"{value} {100 * share:.2f} %" for value, share in by_value.items()]
                more = [f"{len(parts) - _IN_LINE} more"] if len(parts) > _IN_LINE else []
                lines.append(f"  {kind} {name}: {', '.join(parts[:_IN_LINE] + more)}")
        lines += [f"  event {name}: {100 * e.share:.2f} %" for name, e in self.events.items()]
        if len(lines) > _LISTED:
            lines[_LISTED:] = [f"  and {len(lines) - _LISTED} more lines"]
        return "\n".join(lines if self.caveat is None else [*lines, f"  caveat: {self.caveat}"])

    def _repr_html_(self) -> str:
        means = [*self.factors.items(), *self.quantities.items()]
        rows = [("mean of", name, "", f"{mean:.6g}") for name, mean in means]
        for kind, shares in (("action", self.actions), ("state", self.states)):
            for name, by_value in shares.items():
                for value, share in by_value.items():
                    rows.append((kind, name, value, f"{100 * share:.2f} %"))
        rows += [("event", name, "", f"{100 * e.share:.2f} %") for name, e in self.events.items()]
        head = ("", "name", "value", "in the long run")
        return html_table(f"What the policy does, {self.kind}", head, rows[:_LISTED])

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as a dictionary, with the keys that `fmdp inspect --json` prints."""
        return {
            "kind": self.kind,
            "factors": dict(self.factors),
            "quantities": dict(self.quantities),
            "actions": {name: dict(shares) for name, shares in self.actions.items()},
            "states": {name: dict(shares) for name, shares in self.states.items()},
            "events": {name: vars(event) for name, event in self.events.items()},
            "most_visited": [vars(visited) for visited in self.most_visited],
            "gain": self.gain,
            "bounds": self.bounds,
            "error": self.error,
            "confidence": self.confidence,
            "classes": self.classes,
            "caveat": self.caveat,
            "seconds": self.seconds,
        }
