"""The explanation of a policy's action in one state, as a record that prints as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fmdp._base.html import html_table
from fmdp._base.memory import describe_count
from fmdp._base.numerals import rounded_number, upper_text
from fmdp.errors import printable
from fmdp.model.naming import Value

_PRINTED = 20
"""Most actions that are printed."""
_FORBIDDEN_PRINTED = 3
"""Most forbidden actions that are printed."""


@dataclass(frozen=True)
class ActionValue:
    """One action in the explained state.

    Attributes
    ----------
    action
        The value of every action variable by its name, as listed in the model.
    value
        The value of the action; `Explanation.of` says in which sense. None if only gaps are known.
    gap
        The best value minus this one.
    error
        Bound on the error of the value: on the whole error if a policy is explained, on the
        rounding error if it is computed from a plan's bias. None if no bound is known.
    """

    action: Mapping[str, Value]
    value: float | None
    gap: float
    error: float | None = None


@dataclass(frozen=True)
class Explanation:
    """The value of every action in one state; `print` shows it as a table.

    Attributes
    ----------
    state
        The explained state by name, with its values as listed in the model.
    action
        The policy's action there, in the same form.
    values
        The allowed actions, best first: all of them up to 4,096, otherwise the best 20 and the
        policy's.
    of
        The meaning of the values, in words.
    criterion
        "average", "discounted" or "finite".
    discount
        Of the discounted and the finite criterion, where 1 is no discount; otherwise None.
    n_actions
        Number of joint actions.
    forbidden
        Actions that a constraint forbids in this state, if all actions are listed.
    unit
        The largest range of a reward factor, the scale on which differences matter.
    """

    state: Mapping[str, Value]
    action: Mapping[str, Value]
    values: tuple[ActionValue, ...]
    of: str
    criterion: str
    discount: float | None
    n_actions: int
    forbidden: tuple[Mapping[str, Value], ...] = ()
    unit: float = 1.0

    @property
    def chosen(self) -> ActionValue:
        """The entry of the policy's action."""
        return next(entry for entry in self.values if entry.action == self.action)

    @property
    def runner_up(self) -> ActionValue | None:
        """The best of the other actions; None if there is no other."""
        return next((entry for entry in self.values if entry.action != self.action), None)

    def __str__(self) -> str:
        shown = list(self.values[:_PRINTED])
        if self.chosen not in shown:
            shown.append(self.chosen)
        known = shown[0].value is not None
        rows = [[*self.action, *(["value"] if known else []), "gap", ""]]
        for entry in shown:
            value = [] if entry.value is None else [rounded_number(entry.value, entry.error)]
            mark = "<- the policy's" if entry.action == self.action else ""
            rows.append([*map(str, entry.action.values()), *value, self._gap(entry), mark])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = [
            "  " + "  ".join(word.ljust(w) for word, w in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
        lines = [f"state   {_pairs(self.state)}", f"action  {_pairs(self.action)}", *table]
        hidden = self.n_actions - len(self.forbidden) - len(shown)
        if hidden > 0:
            lines.append(f"  and {describe_count(hidden)} more actions")
        if self.forbidden:
            listed = "; ".join(map(_pairs, self.forbidden[:_FORBIDDEN_PRINTED]))
            more = len(self.forbidden) - _FORBIDDEN_PRINTED
            lines.append(f"  forbidden here: {listed}{f'; {more:,} more' if more > 0 else ''}")
        lines.append("gap     the best value less the action's: what it costs to take it once")
        lines.append(f"value   {self.of}")
        return "\n".join(map(printable, lines))

    def _repr_html_(self) -> str:
        rows = [
            (
                "→" if entry.action == self.action else "",
                *entry.action.values(),
                "" if entry.value is None else rounded_number(entry.value, entry.error),
                self._gap(entry),
            )
            for entry in self.values[:_PRINTED]
        ]
        return html_table(_pairs(self.state), ("", *self.action, "value", "gap"), rows)

    def _gap(self, entry: ActionValue) -> str:
        """Return the gap with its significant digits; both values contribute to its error."""
        error = (entry.error or 0.0) + (self.values[0].error or 0.0)
        least = max(1e-6 * self.unit, 2.0 * error)
        if 0.0 < entry.gap < least:
            return f"below {upper_text(least, 1)}"
        return rounded_number(entry.gap, error, 4)


def _pairs(named: Mapping[str, Value]) -> str:
    return ", ".join(f"{name}={value}" for name, value in named.items())
